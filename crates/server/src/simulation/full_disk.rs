//! A disk that is full or does not answer: writes wait or are refused, and every reactor serves all
//! other requests, over each protocol, also while a link fills the log.

use binlog::{Disk as _, Faults};
use wire::cql::Version;
use wire::resp::encode_request;

use super::cql_client::{Client as CqlClient, run_reactors, with_options};
use super::http_client::{Client as HttpClient, request};
use super::hub::{add_peer, merge_until_full};
use super::replication::{apply_until_full, ask, copy_from, master, turn};
use super::world::{Plan, World};

/// The listener after those of RESP and CQL.
const HTTP: usize = 2;
const VALUE_BYTES: usize = 100;
/// More than a lane holds.
const WRITES: usize = 400;

fn world(seed: u64, reactors: usize, options: &[(&'static str, &str)]) -> World {
    let plan = with_options(&[&[("http", "127.0.0.1:0")], options].concat());
    World::new(seed, Plan { reactors, ..plan })
}

fn writes(prefix: &str, count: usize) -> Vec<u8> {
    let mut requests = Vec::new();
    for number in 0..count {
        let key = format!("{prefix}{number}");
        encode_request(&[b"SET", key.as_bytes(), &[b'x'; VALUE_BYTES]], &mut requests);
    }
    requests
}

fn fill_disk(world: &World) {
    let names = world.disk.list().unwrap();
    let used: usize = names.iter().map(|name| world.disk.contents(name).unwrap().len()).sum();
    world.disk.set_faults(Faults { capacity_bytes: Some(used as u64), ..Faults::default() });
}

/// Writes the log until the full disk stops it.
fn stall(world: &mut World) {
    fill_disk(world);
    for _ in 0..20 {
        world.write_log();
        // A tick, at which waiting writes are served again.
        world.advance(200_000_000);
        run_reactors(world);
    }
    assert!(world.shared().log.stall().is_some(), "the disk is full");
}

/// Sends requests that only read over new connections of all protocols, on each reactor. The log is
/// not written meanwhile.
fn check_served(world: &mut World, has_data: bool, what: &str) {
    // Connections are placed in turn.
    for _ in 0..2 * world.plan.reactors {
        let resp = world.sim().connect();
        resp.send(b"PING\r\nGET first\r\nINFO replication\r\n");
        run_reactors(world);
        let replies = String::from_utf8(resp.received().clone()).unwrap();
        // A server without all data refuses PING, as Redis does.
        let start = if has_data { "+PONG\r\n" } else { "-LOADING " };
        assert!(replies.starts_with(start) && replies.contains("role:"), "{what}: {replies}");
        assert!(!has_data || replies.starts_with("+PONG\r\n$1\r\n1\r\n"), "{what}: {replies}");
        resp.close();
        for target in ["/get/first", "/metrics"] {
            let mut http = HttpClient::connect_to(world, HTTP);
            http.sim.send(request(&format!("GET {target}"), "").as_bytes());
            run_reactors(world);
            let answers = http.answers();
            assert_eq!(answers.len(), 1, "{what}: {target}");
            assert!(!has_data || answers[0].status == 200, "{what}: {target} {answers:?}");
            http.sim.close();
        }
        let mut cql = CqlClient::start(world, Version::V5, None);
        cql.query(1, "SELECT key FROM system.local");
        let answers = cql.ask(world);
        assert_eq!(answers.len(), 1, "{what}: {answers:?}");
        assert!(!has_data || answers[0].starts_with("1 ROWS"), "{what}: {answers:?}");
        cql.sim.close();
        run_reactors(world);
    }
}

/// The clients of a server that nothing else writes to fill the lanes of all reactors.
#[test]
fn a_full_log_stops_writes_alone() {
    for reactors in [1, 2] {
        let mut world = world(31, reactors, &[]);
        ask(&mut world, "SET first 1|");
        let writers: Vec<_> = (0..2 * reactors)
            .map(|number| {
                let client = world.sim().connect();
                client.send(&writes(&format!("w{number}-"), WRITES));
                client.send(b"GET first\r\n");
                client
            })
            .collect();
        let http = HttpClient::connect_to(&mut world, HTTP);
        run_reactors(&mut world);
        let lanes = 0..reactors;
        assert!(lanes.into_iter().all(|lane| world.shared().is_lane_full(lane)));
        check_served(&mut world, true, "a slow disk");
        // Writes wait over each protocol, and so do the requests after them.
        http.sim
            .send((request("POST /set/http/1", "") + &request("GET /get/first", "")).as_bytes());
        let mut cql = CqlClient::start(&mut world, Version::V5, None);
        cql.query(1, "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        cql.query(2, "SELECT key FROM system.local");
        assert!(cql.ask(&mut world).is_empty());
        assert!(http.sim.received().is_empty());
        assert!(writers.iter().all(|writer| writer.received().is_empty()));

        stall(&mut world);
        check_served(&mut world, true, "a full disk");
        world.disk.set_faults(Faults::default());
        for _ in 0..20 {
            world.advance(200_000_000);
            turn(&mut world);
        }
        assert!(world.shared().log.stall().is_none());
        for writer in &writers {
            let replies = String::from_utf8(writer.received().clone()).unwrap();
            let ok = replies.matches("+OK\r\n").count();
            let refused = replies.matches("-MISCONF").count();
            assert_eq!(ok + refused, WRITES, "each write has its reply");
            assert!(replies.ends_with("$1\r\n1\r\n"), "the read after them follows: {replies}");
        }
        assert_eq!(cql.ask(&mut world).len(), 2);
        assert!(!http.sim.received().is_empty());
        assert_eq!(ask(&mut world, "SET after 1|"), "+OK\r\n");
    }
}

#[test]
fn a_member_with_a_full_disk_serves_reads() {
    for reactors in [1, 2] {
        let mut source = world(32, 1, &[("server-id", "1")]);
        let mut member = world(33, reactors, &[("server-id", "2")]);
        ask(&mut member, "SET first 1|");
        add_peer(&mut member, 0);
        source.ask(&writes("k", WRITES));
        merge_until_full(&mut source, &mut member, (0, 1));
        check_served(&mut member, true, "a member with a slow disk");
        stall(&mut member);
        check_served(&mut member, true, "a member with a full disk");
    }
}

#[test]
fn a_replica_with_a_full_disk_serves_reads() {
    for reactors in [1, 2] {
        let mut source = world(34, 1, &[]);
        ask(&mut source, "SET first 1|");
        source.ask(&writes("k", WRITES));
        let mut replica = world(35, reactors, &[]);
        replica.shared().replication.set_source(master(1));
        apply_until_full(&mut source, &mut replica, true);
        check_served(&mut replica, false, "a copy to a slow disk");
        stall(&mut replica);
        check_served(&mut replica, false, "a copy to a full disk");

        let mut replica = world(36, reactors, &[]);
        copy_from(&mut source, &mut replica);
        source.ask(&writes("l", WRITES));
        apply_until_full(&mut source, &mut replica, false);
        check_served(&mut replica, true, "a replica with a slow disk");
        assert!(ask_without_log(&mut replica, "SET k v\r\n").starts_with("-READONLY"));
        stall(&mut replica);
        check_served(&mut replica, true, "a replica with a full disk");
    }
}

fn ask_without_log(world: &mut World, request: &str) -> String {
    let client = world.sim().connect();
    client.send(request.as_bytes());
    run_reactors(world);
    String::from_utf8(client.received().clone()).unwrap()
}
