//! Restarts with the clock set back, and snapshots without enough space or time.

use base::time::UnixMs;
use binlog::{Disk, Faults};
use wire::cql::Version;

use super::cql_client::{Client, with_options};
use super::world::{Plan, World};
use crate::engine::server_state::params;
use crate::engine::snapshot_taker::Progress;

const HOUR_NS: u64 = 3_600_000_000_000;

/// Sends statements one after the other. Each has one response with the given beginning.
#[track_caller]
fn check(world: &mut World, talk: &[(&str, &str)]) {
    let mut client = Client::start(world, Version::V4, None);
    for (statement, expected) in talk {
        client.query(1, statement);
        let mut replies = client.ask(world);
        while world.write_log() {
            replies.extend(client.ask(world));
        }
        assert_eq!(replies.len(), 1, "{statement}: {replies:?}");
        assert!(replies[0].starts_with(&format!("1 {expected}")), "{statement}: {replies:?}");
    }
    client.sim.close();
}

fn take_snapshot(world: &mut World) -> Progress {
    world.begin_snapshot();
    loop {
        world.write_log();
        let progress = world.go_on_with_snapshot(10_000);
        if progress != Progress::WaitsForLog {
            return progress;
        }
    }
}

fn names(world: &World, prefix: &str) -> Vec<String> {
    let mut names = world.disk.list().unwrap();
    names.retain(|name| name.starts_with(prefix));
    names
}

const CREATE: [(&str, &str); 3] = [
    (
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CHANGE",
    ),
    ("CREATE TABLE k.t (k int PRIMARY KEY, v int)", "CHANGE"),
    ("CREATE TABLE k.l (k int PRIMARY KEY, l list<int>)", "CHANGE"),
];

/// The newest timestamp is in the log, in a snapshot, or in a snapshot whose log adds nothing to
/// it.
fn check_clock_set_back(snapshot: bool) {
    let mut world = World::new(3, with_options(&[]));
    check(&mut world, &CREATE);
    check(
        &mut world,
        &[
            ("INSERT INTO k.t (k, v) VALUES (1, 1)", "VOID"),
            ("INSERT INTO k.t (k, v) VALUES (2, 1)", "VOID"),
            ("UPDATE k.l SET l = l + [1] WHERE k = 1", "VOID"),
            ("DELETE FROM k.t WHERE k = 2", "VOID"),
        ],
    );
    if snapshot {
        assert_eq!(take_snapshot(&mut world), Progress::Idle);
        assert_eq!(names(&world, "snapshot").len(), 1);
    }
    for round in 0..2 {
        world.set_clock_back(HOUR_NS);
        world.restart().unwrap();
        let (old, new) = (round + 1, round + 2);
        let one = "00000001";
        check(
            &mut world,
            &[
                ("SELECT v FROM k.t WHERE k = 1", &format!("ROWS 0000000{old}")),
                (&format!("UPDATE k.t SET v = {new} WHERE k = 1"), "VOID"),
                ("SELECT v FROM k.t WHERE k = 1", &format!("ROWS 0000000{new}")),
                // The insertion is applied once: its row is newer than the deletion before the
                // restart.
                ("INSERT INTO k.t (k, v) VALUES (2, 7) IF NOT EXISTS", "ROWS 01"),
                ("INSERT INTO k.t (k, v) VALUES (2, 8) IF NOT EXISTS", "ROWS 00"),
                ("SELECT v FROM k.t WHERE k = 2", "ROWS 00000007"),
                ("DELETE FROM k.t WHERE k = 2", "VOID"),
                ("SELECT v FROM k.t WHERE k = 2", "ROWS "),
                // Items keep the order in which they were appended.
                (&format!("UPDATE k.l SET l = l + [{new}] WHERE k = 1"), "VOID"),
                (&format!("INSERT INTO k.t (k, v) VALUES (3, {one})"), "VOID"),
            ],
        );
    }
    check(
        &mut world,
        &[(
            "SELECT l FROM k.l WHERE k = 1",
            "ROWS 00000003000000040000000100000004000000020000000400000003",
        )],
    );
}

#[test]
fn writes_take_effect_after_a_restart_with_the_clock_set_back() {
    check_clock_set_back(false);
    check_clock_set_back(true);
}

/// A client whose clock is far ahead affects only the data that it writes.
#[test]
fn a_clients_timestamp_does_not_move_the_servers_clock() {
    let mut world = World::new(4, with_options(&[]));
    check(&mut world, &CREATE);
    check(
        &mut world,
        &[
            ("INSERT INTO k.t (k, v) VALUES (1, 1) USING TIMESTAMP 9000000000000000", "VOID"),
            ("UPDATE k.t SET v = 2 WHERE k = 1 IF v = 1", "ROWS 01"),
            ("INSERT INTO k.t (k, v) VALUES (2, 1)", "VOID"),
        ],
    );
    let newest = world.shared().write_clock.newest();
    let now_us = world.sim().now().unix_us();
    assert!(newest < now_us + 1_000_000, "{newest} {now_us}");
    assert_eq!(take_snapshot(&mut world), Progress::Idle);
    world.restart().unwrap();
    assert_eq!(world.shared().write_clock.newest(), newest);
}

fn fill(world: &mut World, count: usize) {
    let mut requests = Vec::new();
    for number in 0..count {
        let key = format!("key{number}");
        wire::resp::encode_request(&[b"SET", key.as_bytes(), &[b'x'; 500]], &mut requests);
    }
    assert_eq!(world.ask(&requests), b"+OK\r\n".repeat(count));
}

fn used_bytes(world: &World) -> u64 {
    let names = world.disk.list().unwrap();
    names.iter().map(|name| world.disk.contents(name).unwrap().len() as u64).sum()
}

/// Leaves this much free space on the disk.
fn leave_room(world: &World, bytes: u64) {
    let capacity_bytes = Some(used_bytes(world) + bytes);
    world.disk.set_faults(Faults { capacity_bytes, ..Faults::default() });
}

#[test]
fn a_snapshot_without_room_leaves_no_file_and_the_log_continues() {
    let plan = Plan { segment_bytes: 32 * 1024, ..Plan::default() };
    let mut world = World::new(9, plan);
    fill(&mut world, 2_000);
    // With very little space it is not begun; with more, it fails in the middle.
    let kept = 2 * world.shared().settings.load().log_segment_bytes;
    for room in [1_000, kept + 600_000, kept + 1_100_000] {
        leave_room(&world, room);
        let before = used_bytes(&world);
        assert_eq!(take_snapshot(&mut world), Progress::Idle);
        let status = world.shared().snapshots.status();
        let error = status.last_error.unwrap();
        assert!(!status.last_ok && error.contains("free bytes"), "{room}: {error}");
        assert_eq!(names(&world, "snapshot"), [""; 0], "{room}");
        assert_eq!(used_bytes(&world), before, "{room}");
        assert!(!world.log_failed() && world.shared().log.stall().is_none());
    }
    // The space reserved for the log is enough for it to continue.
    fill(&mut world, 50);
    assert!(world.shared().log.stall().is_none());
    world.disk.set_faults(Faults::default());
    assert_eq!(take_snapshot(&mut world), Progress::Idle);
    assert!(world.shared().snapshots.status().last_ok);
    assert_eq!(names(&world, "snapshot").len(), 1);
    world.restart().unwrap();
    assert_eq!(world.ask(b"DBSIZE\r\n"), b":2000\r\n");
}

/// The log's growth triggers another attempt, but not at once.
#[test]
fn a_failed_snapshot_is_retried_after_a_while() {
    let options = vec![("snapshot-log-bytes", "10kb".to_owned())];
    let mut world = World::new(13, Plan { options, ..Plan::default() });
    fill(&mut world, 100);
    leave_room(&world, 10);
    let tried = |world: &mut World| {
        for _ in 0..20 {
            world.advance(200_000_000);
            world.settle();
            world.take_snapshot_request();
            world.go_on_with_snapshot(10_000);
            world.write_log();
        }
        world.shared().snapshots.status().finished
    };
    assert_eq!(tried(&mut world), 1);
    world.disk.set_faults(Faults::default());
    assert_eq!(tried(&mut world), 1);
    world.advance(60_000_000_000);
    assert_eq!(tried(&mut world), 2);
    assert!(world.shared().snapshots.status().last_ok);
    world.advance(60_000_000_000);
    assert_eq!(tried(&mut world), 2, "the log has not grown");
}

/// As in Redis, lower limits are those of the data from the next start on, whether it is loaded from
/// the snapshot or from the log.
#[test]
fn compact_encodings_follow_lower_limits_at_the_next_start() {
    const LIMITS: [&str; 6] = [
        "hash-max-listpack-entries",
        "zset-max-ziplist-entries",
        "set-max-listpack-entries",
        "set-max-intset-entries",
        "list-max-listpack-size",
        "hash-max-listpack-value",
    ];
    for has_snapshot in [true, false] {
        let mut world = World::new(14, Plan::default());
        world.ask(
            b"HSET h a 1 b 2 c 3\r\nZADD z 1 a 2 b 3 c\r\nSADD s a b c\r\nSADD i 1 2 3\r\n\
              RPUSH l a b c\r\nHSET w f value\r\n",
        );
        let encodings = |world: &mut World| {
            let names = ["h", "z", "s", "i", "l", "w"];
            names.map(|name| {
                let reply = world.ask(format!("OBJECT ENCODING {name}\r\n").as_bytes());
                let text = String::from_utf8(reply).unwrap();
                text.split("\r\n").nth(1).unwrap().to_owned()
            })
        };
        let before = ["listpack", "listpack", "listpack", "intset", "listpack", "listpack"];
        assert_eq!(encodings(&mut world), before);
        if has_snapshot {
            assert_eq!(take_snapshot(&mut world), Progress::Idle);
        }
        world.plan.options.extend(LIMITS.map(|name| (name, "2".to_owned())));
        world.restart().unwrap();
        let after = ["hashtable", "skiplist", "hashtable", "hashtable", "quicklist", "hashtable"];
        assert_eq!(encodings(&mut world), after, "with a snapshot: {has_snapshot}");
    }
}

/// The effect of `save`.
#[test]
fn snapshots_are_taken_after_a_time_with_changes() {
    let options = vec![("save", "3600 1 60 100".to_owned())];
    let mut world = World::new(13, Plan { options, ..Plan::default() });
    let tried = |world: &mut World, seconds: u64| {
        world.advance(seconds * 1_000_000_000);
        for _ in 0..5 {
            world.settle();
            world.take_snapshot_request();
            world.go_on_with_snapshot(10_000);
            world.write_log();
            world.advance(200_000_000);
        }
        world.shared().snapshots.status().finished
    };
    fill(&mut world, 99);
    assert_eq!(tried(&mut world, 61), 0, "too few changes");
    fill(&mut world, 1);
    assert_eq!(tried(&mut world, 1), 1);
    assert_eq!(tried(&mut world, 4_000), 1, "there was no change");
    fill(&mut world, 1);
    assert_eq!(tried(&mut world, 1), 2, "an hour has passed");
    fill(&mut world, 200);
    assert_eq!(tried(&mut world, 50), 2);
    assert_eq!(tried(&mut world, 20), 3);
}

#[test]
fn a_failing_write_of_a_snapshot_leaves_no_file() {
    let mut world = World::new(10, Plan::default());
    fill(&mut world, 100);
    world.begin_snapshot();
    world.go_on_with_snapshot(100);
    assert_eq!(names(&world, "snapshot"), ["snapshot.tmp"]);
    world.disk.set_faults(Faults { write_error: 1.0, ..Faults::default() });
    assert_eq!(world.go_on_with_snapshot(10_000), Progress::Idle);
    assert_eq!(names(&world, "snapshot"), [""; 0]);
    assert!(!world.shared().snapshots.status().last_ok);
}

#[test]
fn shutdown_abandons_a_snapshot_that_was_not_requested() {
    for is_awaited in [false, true] {
        let mut world = World::new(11, Plan::default());
        fill(&mut world, 100);
        world.begin_snapshot();
        world.go_on_with_snapshot(100);
        if is_awaited {
            world.shared().snapshots.await_at_end();
        }
        world.shared().snapshots.stop();
        while world.go_on_with_snapshot(10_000) != Progress::Idle {
            world.write_log();
        }
        assert_eq!(names(&world, "snapshot").len(), usize::from(is_awaited));
        assert_eq!(names(&world, "snapshot.tmp"), [""; 0]);
    }
}

/// Written by a version whose snapshots did not end with a timestamp.
#[test]
fn a_snapshot_of_version_1_is_read_and_replaced() {
    let mut world = World::new(12, with_options(&[]));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/snapshot-v1.myr");
    world.restore_snapshot("snapshot-00000000000000001748.myr", &std::fs::read(path).unwrap());
    for round in 0..2 {
        assert_eq!(
            world.ask(b"GET text\r\nHGET hash f\r\nLLEN list\r\nZSCORE zset m\r\n"),
            b"$2\r\nv1\r\n$1\r\nv\r\n:4\r\n$3\r\n1.5\r\n",
            "round {round}"
        );
        check(&mut world, &[("SELECT v FROM k.t WHERE k = 1", "ROWS 6f6c64")]);
        assert_eq!(take_snapshot(&mut world), Progress::Idle);
        let names = names(&world, "snapshot-");
        assert_eq!(names.len(), 1);
        assert_eq!(world.disk.contents(&names[0]).unwrap()[7], 4, "its version");
        world.restart().unwrap();
    }
}

/// Written by a member of a group of masters, whose versions name no other version.
#[test]
fn a_snapshot_of_version_3_is_read_and_replaced() {
    let mut world = World::new(12, with_options(&[("server-id", "1")]));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/snapshot-v3.myr");
    world.restore_snapshot("snapshot-00000000000000000555.myr", &std::fs::read(path).unwrap());
    for _ in 0..2 {
        assert_eq!(
            world.ask(b"GET text\r\nHGET hash f\r\nLLEN list\r\nEXISTS gone\r\n"),
            b"$2\r\nv1\r\n$1\r\nv\r\n:4\r\n:0\r\n",
        );
        let keyspace = &world.shared().keyspace;
        let (params, key) =
            (params(&world.shared().settings.load(), UnixMs(0), 0, 0), keyspace.key(b"gone"));
        assert_eq!(keyspace.lock_one(key.hash, &params).given(0, key).version.server, 1);
        assert_eq!(keyspace.floor(3).server, 1);
        assert_eq!(take_snapshot(&mut world), Progress::Idle);
        let names = names(&world, "snapshot-");
        assert_eq!(world.disk.contents(&names[0]).unwrap()[7], 4, "its version");
        world.restart().unwrap();
    }
}
