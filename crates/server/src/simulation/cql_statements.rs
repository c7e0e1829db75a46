//! CQL statements: replies are sent when the log permits, in any order, and none twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use binlog::Faults as DiskFaults;
use cql::plan::prepared::statement_id;
use wire::cql::{BatchKind, BatchStatement, Consistency, Parameters, Value, Version};

use super::cql_client::{Client, answers, execute, run_reactors, with_options, world};
use super::world::{Plan, World};
use crate::engine::command_log::LogKind;
use crate::statements::scan_queue::{OF_CONNECTION_MAX, ROWS_PER_TURN};

const SEED: u64 = 1;
const VERSIONS: [Version; 3] = [Version::V3, Version::V4, Version::V5];

/// Creates a table of texts with integer keys.
pub(super) fn create_table(world: &mut World) {
    let mut client = Client::start(world, Version::V4, None);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    client.query(1, &format!("CREATE KEYSPACE k WITH replication = {replication}"));
    client.query(2, "CREATE TABLE k.t (p int PRIMARY KEY, v text)");
    let replies = answers(world, &mut client);
    assert_eq!(replies, ["1 CHANGE CREATED KEYSPACE k", "2 CHANGE CREATED TABLE k t"]);
}

fn world_with_table() -> World {
    let mut world = world(&[]);
    create_table(&mut world);
    world
}

const INSERT: &str = "INSERT INTO k.t (p, v) VALUES (?, ?)";

/// A client that has prepared INSERT, and the statement's id.
pub(super) fn inserter(world: &mut World, version: Version) -> (Client, [u8; 16]) {
    let mut client = Client::start(world, version, None);
    client.send(|to, out| to.prepare(1, INSERT, None, out));
    assert!(client.ask(world)[0].starts_with("1 PREPARED "));
    (client, statement_id(INSERT, None))
}

#[test]
fn a_write_waits_for_the_log_and_reads_of_other_keys_do_not() {
    for version in VERSIONS {
        let mut world = world_with_table();
        let mut client = Client::start(&mut world, version, None);
        let mut other = Client::start(&mut world, version, None);
        client.query(1, "INSERT INTO k.t (p, v) VALUES (1, 'a')");
        client.query(2, "SELECT v FROM k.t WHERE p = 2");
        client.query(3, "SELECT v FROM k.t WHERE p = 1");
        client.query(4, "SELECT v FROM k.none WHERE p = 1");
        other.query(5, "SELECT v FROM k.t WHERE p = 1");
        other.query(6, "SELECT v FROM k.t WHERE p = 2");
        let replies = client.ask(&mut world);
        assert_eq!(replies.len(), 2, "{replies:?}");
        assert_eq!(replies[0], "2 ROWS ");
        assert!(replies[1].starts_with("4 ERROR 2200 "), "{replies:?}");
        assert_eq!(other.ask(&mut world), ["6 ROWS "]);
        world.write_log();
        assert_eq!(client.ask(&mut world), ["1 VOID", "3 ROWS 61"]);
        assert_eq!(other.ask(&mut world), ["5 ROWS 61"]);
    }
}

#[test]
fn a_thousand_streams_in_flight_are_each_answered_once() {
    for version in VERSIONS {
        let mut world = world_with_table();
        let (mut client, id) = inserter(&mut world, version);
        for stream in 0..1000_i16 {
            let number = i32::from(stream).to_be_bytes();
            execute(&client, stream, &id, &[&number, b"text"]);
        }
        // The lane of the log fills up long before the last request: reading continues as the log
        // is written.
        let replies = answers(&mut world, &mut client);
        let expected: BTreeSet<String> = (0..1000).map(|stream| format!("{stream} VOID")).collect();
        assert_eq!(replies.len(), 1000);
        assert_eq!(replies.into_iter().collect::<BTreeSet<_>>(), expected);
        client.query(1, "SELECT count(*) FROM k.t");
        let replies = answers(&mut world, &mut client);
        assert!(replies[0].starts_with("1 ROWS 00000000000003e8"), "{replies:?}");
    }
}

#[test]
fn batches_find_prepared_statements() {
    for version in VERSIONS {
        let mut world = world_with_table();
        let (mut client, id) = inserter(&mut world, version);
        let with = Parameters::new(Consistency::One);
        let values = [Value::Bytes(&[0, 0, 0, 9]), Value::Bytes(b"b")];
        let text = "INSERT INTO k.t (p, v) VALUES (8, 'a')";
        let statements =
            [(BatchStatement::Text(text), &[][..]), (BatchStatement::Prepared(&id), &values[..])];
        client.send(|to, out| to.batch(2, BatchKind::Unlogged, &statements, &with, out));
        let unknown = [(BatchStatement::Prepared(&[1; 16]), &[][..])];
        client.send(|to, out| to.batch(3, BatchKind::Unlogged, &unknown, &with, out));
        let replies = answers(&mut world, &mut client);
        assert!(replies[0].starts_with("3 ERROR 2500 "), "{replies:?}");
        assert_eq!(replies[1..], ["2 VOID"]);
        client.query(4, "SELECT v FROM k.t WHERE p IN (8, 9)");
        assert_eq!(answers(&mut world, &mut client), ["4 ROWS 61 62"]);
    }
}

/// Other connections are served meanwhile.
#[test]
fn statements_wait_for_their_data_without_their_reactor() {
    for version in VERSIONS {
        let mut world = world_with_table();
        let (mut writer, id) = inserter(&mut world, version);
        let [mut reader, mut batcher, mut other] =
            std::array::from_fn(|_| Client::start(&mut world, version, None));
        world.settle();
        let (shared, params) = (Arc::clone(world.shared()), world.params());
        let blocked = || shared.blocked_clients.load(Ordering::Relaxed);
        let run = |world: &mut World| {
            for _ in 0..50 {
                world.sim().turn();
                world.write_log();
                world.advance(1_000_000);
            }
        };
        execute(&writer, 1, &id, &[&[0, 0, 0, 1], b"a"]);
        execute(&writer, 2, &id, &[&[0, 0, 0, 2], b"b"]);
        run(&mut world);
        assert_eq!(writer.ask(&mut world), ["1 VOID", "2 VOID"]);
        let held = shared.keyspace.lock_all(&params);
        execute(&writer, 1, &id, &[&[0, 0, 0, 5], b"a"]);
        execute(&writer, 2, &id, &[&[0, 0, 0, 6], b"b"]);
        run(&mut world);
        reader.query(3, "SELECT v FROM k.t WHERE p IN (1, 2)");
        let with = Parameters::new(Consistency::One);
        let values = [Value::Bytes(&[0, 0, 0, 3]), Value::Bytes(b"c")];
        let text = "INSERT INTO k.t (p, v) VALUES (4, 'd')";
        let mut statements = vec![(BatchStatement::Text(text), &[][..])];
        // More statements than a request may have keys, and fewer partitions.
        statements.extend([(BatchStatement::Prepared(&id), &values[..]); 20]);
        batcher.send(|to, out| to.batch(4, BatchKind::Logged, &statements, &with, out));
        run(&mut world);
        other.send(|to, out| to.options(5, out));
        run(&mut world);
        assert!(other.ask(&mut world)[0].starts_with("5 SUPPORTED "));
        for client in [&mut writer, &mut reader, &mut batcher] {
            assert_eq!(client.ask(&mut world), [""; 0], "it waits");
        }
        assert_eq!(blocked(), 3);
        // What it has sent is run although it sends nothing more.
        writer.sim.half_close();
        run(&mut world);

        drop(held);
        run(&mut world);
        assert_eq!(writer.ask(&mut world), ["1 VOID", "2 VOID"]);
        assert_eq!(reader.ask(&mut world), ["3 ROWS 61 62"]);
        assert_eq!(batcher.ask(&mut world), ["4 VOID"]);
        assert_eq!(blocked(), 0);
        other.query(6, "SELECT count(*) FROM k.t");
        assert!(answers(&mut world, &mut other)[0].starts_with("6 ROWS 0000000000000006"));
    }
}

#[test]
fn a_statement_is_prepared_again_after_its_table_changed() {
    for version in VERSIONS {
        let mut world = world_with_table();
        let (mut client, id) = inserter(&mut world, version);
        client.query(2, "CREATE TABLE k.other (p int PRIMARY KEY)");
        execute(&client, 3, &id, &[&[0, 0, 0, 1], b"a"]);
        let replies = answers(&mut world, &mut client);
        assert_eq!(replies, ["2 CHANGE CREATED TABLE k other", "3 VOID"], "an unrelated table");
        client.query(4, "ALTER TABLE k.t ADD w int");
        execute(&client, 5, &id, &[&[0, 0, 0, 1], b"b"]);
        let replies = answers(&mut world, &mut client);
        assert_eq!(replies[0], "4 CHANGE UPDATED TABLE k t");
        assert!(
            replies[1].starts_with("5 ERROR 2500 "),
            "after the change is durable: {replies:?}"
        );
        client.send(|to, out| to.prepare(6, INSERT, None, out));
        execute(&client, 7, &id, &[&[0, 0, 0, 1], b"c"]);
        let replies = answers(&mut world, &mut client);
        assert!(replies[0].starts_with("6 PREPARED "), "the id is the same: {replies:?}");
        assert_eq!(replies[1], "7 VOID");
    }
}

#[test]
fn clients_receive_schema_events_when_they_are_durable() {
    let mut world = world_with_table();
    let mut client = Client::start(&mut world, Version::V5, None);
    let mut listener = Client::start(&mut world, Version::V4, None);
    listener.send(|to, out| to.register(1, &["SCHEMA_CHANGE"], out));
    assert_eq!(listener.ask(&mut world), ["1 READY"]);
    client.query(1, "DROP TABLE k.t");
    assert_eq!(client.ask(&mut world), [""; 0]);
    assert_eq!(listener.ask(&mut world), [""; 0]);
    world.write_log();
    assert_eq!(client.ask(&mut world), ["1 CHANGE DROPPED TABLE k t"]);
    assert_eq!(listener.ask(&mut world), ["-1 EVENT SCHEMA_CHANGE"]);
}

#[test]
fn writes_in_flight_are_answered_at_shutdown() {
    let mut world = world_with_table();
    let (mut client, id) = inserter(&mut world, Version::V5);
    for stream in 0..20_i16 {
        let number = i32::from(stream).to_be_bytes();
        execute(&client, stream, &id, &[&number, b"text"]);
    }
    run_reactors(&mut world);
    world.sim().drain();
    let replies = answers(&mut world, &mut client);
    assert_eq!(replies.len(), 20);
    world.settle();
    assert!(world.sim().is_ended() && client.sim.is_closed());
}

#[test]
fn a_write_to_a_failed_log_is_not_acknowledged() {
    for version in VERSIONS {
        let mut world = world_with_table();
        let mut client = Client::start(&mut world, version, None);
        let mut late = Client::start(&mut world, version, None);
        world.settle();
        world.disk.set_faults(DiskFaults { sync_error: 1.0, ..DiskFaults::default() });
        client.query(1, "INSERT INTO k.t (p, v) VALUES (1, 'a')");
        world.settle();
        assert!(world.log_failed());
        assert_eq!(client.ask(&mut world), [""; 0]);
        assert!(client.sim.is_closed());
        late.query(1, "INSERT INTO k.t (p, v) VALUES (2, 'a')");
        late.query(2, "SELECT v FROM k.t WHERE p = 3");
        let replies = late.ask(&mut world);
        assert!(replies[0].starts_with("1 ERROR "), "{replies:?}");
        assert_eq!(replies[1], "2 ROWS ");
        assert!(!late.sim.is_closed());
    }
}

#[test]
fn writes_in_flight_move_with_their_connection() {
    let plan = Plan { reactors: 2, ..with_options(&[]) };
    let mut world = World::new(SEED, plan);
    create_table(&mut world);
    let (mut client, id) = inserter(&mut world, Version::V5);
    world.settle();
    for round in 0..4_i16 {
        for stream in 0..10 {
            let number = i32::from(round * 10 + stream).to_be_bytes();
            execute(&client, stream, &id, &[&number, b"text"]);
        }
        run_reactors(&mut world);
        let from = world.sim().place_of(client.sim.id()).expect("the client is connected");
        assert!(world.sim().migrate(client.sim.id(), 1 - from));
        assert_eq!(answers(&mut world, &mut client).len(), 10);
        assert_eq!(world.sim().place_of(client.sim.id()), Some(1 - from));
    }
    client.query(1, "SELECT count(*) FROM k.t");
    let replies = answers(&mut world, &mut client);
    assert!(replies[0].starts_with("1 ROWS 0000000000000028"), "{replies:?}");
}

#[test]
fn slow_and_large_statements_are_in_the_logs() {
    let options = [("slowlog-log-slower-than", "0"), ("commandlog-reply-larger-than", "30")];
    let mut world = world(&options);
    create_table(&mut world);
    let (mut client, id) = inserter(&mut world, Version::V4);
    world.shared().command_logs.lock(LogKind::Slow).clear();
    world.shared().command_logs.lock(LogKind::LargeReply).clear();
    client.query(1, "SELECT v FROM k.t WHERE p = 1");
    execute(&client, 2, &id, &[&[0, 0, 0, 1], b"a"]);
    answers(&mut world, &mut client);
    let slowlog = world.shared().command_logs.lock(LogKind::Slow);
    let entries = slowlog.iter().map(|entry| {
        let words = entry.args.iter().map(|word| String::from_utf8_lossy(word).into_owned());
        words.collect::<Vec<_>>().join(": ")
    });
    assert_eq!(
        entries.collect::<Vec<_>>(),
        [format!("EXECUTE: {INSERT}"), "QUERY: SELECT v FROM k.t WHERE p = 1".to_owned(),]
    );
    let large = world.shared().command_logs.lock(LogKind::LargeReply);
    let large: Vec<_> = large.iter().map(|entry| (&entry.args[0][..], entry.value)).collect();
    let [(b"QUERY", bytes)] = large[..] else { panic!("{large:?}") };
    assert!((30..200).contains(&bytes), "the frame of the reply");
}

/// More rows than one turn examines.
const MANY_ROWS: usize = 10 * ROWS_PER_TURN;

fn world_with_many_rows(options: &[(&'static str, &str)]) -> World {
    let mut world = world(options);
    create_table(&mut world);
    let (mut client, id) = inserter(&mut world, Version::V4);
    for number in 0..i32::try_from(MANY_ROWS).unwrap() {
        execute(&client, 3, &id, &[&number.to_be_bytes(), b"text"]);
        if number % 500 == 0 {
            answers(&mut world, &mut client);
        }
    }
    answers(&mut world, &mut client);
    world
}

#[test]
fn a_long_read_yields_to_other_clients_of_its_reactor() {
    let mut world = world_with_many_rows(&[]);
    for version in VERSIONS {
        let mut client = Client::start(&mut world, version, None);
        let mut other = Client::start(&mut world, version, None);
        client.query(1, "SELECT count(*) FROM k.t");
        client.query(2, "SELECT v FROM k.t WHERE p = 7");
        // The whole table in one response, while the other client counts rows.
        client.query(3, "SELECT v FROM k.t");
        world.step(0);
        other.query(4, "SELECT v FROM k.t WHERE p = 8");
        let mut replies: Vec<String> = Vec::new();
        while replies.is_empty() {
            assert!(world.step(0));
            replies = other.replies();
        }
        assert_eq!(replies, ["4 ROWS 74657874"]);
        assert_eq!(client.replies(), ["2 ROWS 74657874"], "the long reads are still running");
        let replies = client.ask(&mut world);
        assert_eq!(replies.len(), 2);
        assert!(replies[0].starts_with(&format!("1 ROWS {MANY_ROWS:016x}")), "{}", replies[0]);
        assert!(replies[1].starts_with("3 ROWS "));
        assert_eq!(replies[1].matches("74657874").count(), MANY_ROWS);
    }
}

#[test]
fn a_connection_may_close_during_a_read() {
    let mut world = world_with_many_rows(&[]);
    let client = Client::start(&mut world, Version::V5, None);
    client.query(1, "SELECT count(*) FROM k.t");
    world.step(0);
    client.sim.close();
    run_reactors(&mut world);
    let mut client = Client::start(&mut world, Version::V5, None);
    client.query(2, "SELECT count(*) FROM k.t");
    let replies = client.ask(&mut world);
    assert!(replies[0].starts_with(&format!("2 ROWS {MANY_ROWS:016x}")), "{replies:?}");
}

#[test]
fn a_long_read_is_answered_after_its_client_half_closed() {
    let mut world = world_with_many_rows(&[]);
    let expected = format!("1 ROWS {MANY_ROWS:016x}");
    for version in VERSIONS {
        for steps in [0, 1, 3] {
            let mut client = Client::start(&mut world, version, None);
            client.query(1, "SELECT count(*) FROM k.t");
            (0..steps).for_each(|_| assert!(world.step(0)));
            client.sim.half_close();
            let replies = client.ask(&mut world);
            assert!(replies[0].starts_with(&expected), "{steps}: {replies:?}");
            assert!(client.sim.is_ended());
        }
    }
    // The process is shutting down.
    let mut client = Client::start(&mut world, Version::V5, None);
    client.query(1, "SELECT count(*) FROM k.t");
    world.step(0);
    world.sim().drain();
    let replies = client.ask(&mut world);
    assert!(replies[0].starts_with(&expected), "{replies:?}");
    world.settle();
    assert!(world.sim().is_ended());
}

/// Paused reads wait until their peer reads their results. They cost nothing in the meantime, and
/// resume at once when it does: the clock does not move here.
#[test]
fn a_client_that_does_not_read_holds_few_reads_and_delays_no_other() {
    const READS: usize = 120;
    const ROWS: usize = ROWS_PER_TURN + 50;
    let mut world = world_with_many_rows(&[("output-pause-bytes", "16kb")]);
    let mut reader = Client::start(&mut world, Version::V4, None);
    let mut other = Client::start(&mut world, Version::V4, None);
    reader.sim.set_window(0);
    for stream in 0..i16::try_from(READS).unwrap() {
        reader.query(stream, &format!("SELECT v FROM k.t LIMIT {ROWS}"));
    }
    run_reactors(&mut world);
    let waiting = world.server(0).paused_scan_count();
    assert!((1..=OF_CONNECTION_MAX as usize).contains(&waiting), "{waiting}");
    other.query(1, "SELECT count(*) FROM k.t");
    assert!(other.ask(&mut world)[0].starts_with(&format!("1 ROWS {MANY_ROWS:016x}")));
    assert_eq!(world.server(0).paused_scan_count(), waiting);
    reader.sim.set_window(usize::MAX);
    let replies = reader.ask(&mut world);
    assert_eq!(replies.len(), READS);
    assert!(replies.iter().all(|reply| reply.matches("74657874").count() == ROWS));
    assert_eq!(world.server(0).paused_scan_count(), 0);
}
