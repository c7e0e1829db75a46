//! Experimental CQL switches.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cql::plan::prepared::statement_id;
use wire::cql::Version;

use super::cql::{SUPPORTED, VERSIONS, check_prepared_statements};
use super::cql_client::{Client, execute, hex, no_values, run_reactors, world, world_with_system};
use super::cql_statements::{create_table, inserter};
use crate::config::{Experiments, Settings};
use crate::cql::pool;

#[test]
fn statements_run_with_shared_scratch_space() {
    for source in ["rr256", "mutex"] {
        check_prepared_statements(&[("processor", source)]);
    }
}

#[test]
fn stubs_answer_earlier_and_earlier() {
    let ask = |stub: &str| {
        let mut world = world_with_system(&[("stub", stub)]);
        let mut client = Client::start(&mut world, Version::V4, None);
        // Queries and PREPARE are always executed.
        client.query(1, "USE system");
        client.query(2, "nonsense");
        client.send(|to, out| to.prepare(3, "USE system", None, out));
        let replies = client.ask(&mut world);
        assert_eq!(replies[0], "1 KEYSPACE system", "stub {stub}");
        assert!(replies[1].starts_with("2 ERROR 2000"), "stub {stub}: {replies:?}");
        assert!(replies[2].starts_with("3 PREPARED"), "stub {stub}: {replies:?}");
        execute(&client, 4, &statement_id("USE system", Some("system")), &[]);
        execute(&client, 5, &[7; 16], &[]);
        // A truncated body.
        client.sim.send(&[4, 0, 0, 6, 0x0A, 0, 0, 0, 1, 0]);
        let replies = client.ask(&mut world);
        replies.iter().map(|reply| reply[2..reply.len().min(12)].to_owned()).collect::<Vec<_>>()
    };
    for (stub, expected) in [
        ("0", ["KEYSPACE s", "ERROR 2500", "ERROR 000a"]),
        ("1", ["KEYSPACE s", "ERROR 2500", "ERROR 000a"]),
        ("2", ["VOID", "ERROR 2500", "ERROR 000a"]),
        ("3", ["VOID", "VOID", "ERROR 000a"]),
        ("4", ["VOID", "VOID", "VOID"]),
    ] {
        assert_eq!(ask(stub), expected, "stub {stub}");
    }
    let mut world = world_with_system(&[("stub", "5")]);
    let client = Client::connect(&mut world, Version::V4);
    client.sim.send(b"anything");
    run_reactors(&mut world);
    assert_eq!(client.sim.received(), b"anything");
}

#[test]
fn a_pool_replies_in_any_order_and_refuses_excess_requests() {
    let options = [("reply", "pool"), ("cql-service-queue-length", "3")];
    let mut world = world_with_system(&options);
    for version in VERSIONS {
        let mut client = Client::start(&mut world, version, None);
        client.send(|to, out| {
            (0..4).for_each(|stream| to.query(stream, "USE system", &no_values(), out));
        });
        client.send(|to, out| to.options(9, out));
        let refused = "3 ERROR 1001 Call dropped due to backpressure. The service queue is full, \
                       it has 3 items.";
        assert_eq!(client.ask(&mut world), [refused.to_owned(), format!("9 {SUPPORTED}")]);
        pool::run_waiting(world.shared(), &world.state().cql);
        let expected: Vec<String> =
            (0..3).map(|stream| format!("{stream} KEYSPACE system")).collect();
        assert_eq!(client.ask(&mut world), expected);
        // The response set the keyspace of the session.
        client.send(|to, out| to.prepare(5, "USE system", None, out));
        run_reactors(&mut world);
        pool::run_waiting(world.shared(), &world.state().cql);
        let id = statement_id("USE system", Some("system"));
        assert_eq!(client.ask(&mut world), [format!("5 PREPARED {}", hex(&id))]);
    }
    assert_eq!(world.shared().cql_pool_overflows.load(Ordering::Relaxed), 3);
    // A client that disconnects gets no response, and the server continues.
    let client = Client::start(&mut world, Version::V4, None);
    client.query(1, "USE system");
    run_reactors(&mut world);
    client.sim.reset();
    run_reactors(&mut world);
    pool::run_waiting(world.shared(), &world.state().cql);
    run_reactors(&mut world);
}

#[test]
fn stubs_of_writes_do_not_wait_or_do_nothing() {
    for (stub, is_written) in [(1, true), (2, false), (3, false), (4, false)] {
        let mut world = world(&[]);
        create_table(&mut world);
        // As if the server had been started with this option.
        let settings = world.shared().settings.load_full();
        let experiments = Experiments { stub, ..settings.experiments.clone() };
        world.shared().settings.store(Arc::new(Settings { experiments, ..(*settings).clone() }));
        world.settle();
        let (mut client, id) = inserter(&mut world, Version::V4);
        execute(&client, 1, &id, &[&[0, 0, 0, 1], b"a"]);
        assert_eq!(client.ask(&mut world), ["1 VOID"], "stub {stub}");
        let written = world.shared().log.next() > world.shared().log.durable();
        assert_eq!(written, is_written, "stub {stub}");
    }
}
