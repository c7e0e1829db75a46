//! Units of work: memory and the log have the same content, whatever is rejected, and a conditional
//! write that is reported as applied has taken effect.

use proptest::prelude::*;

use super::harness::{Asked, Server};

/// An operation on a few keys of keyspace `redis`.
#[derive(Debug, Clone)]
enum Step {
    Resp(String),
    Cql(String),
    PassMs(u64),
}

const KEYS: usize = 3;

/// Writes of each type, so that many target a key of another type.
fn resp_write() -> impl Strategy<Value = Step> {
    let parts = (0..KEYS, 0..4_u8, 1..40_u64);
    let words = (0..11_usize, parts).prop_map(|(kind, (key, member, ms))| match kind {
        0 => format!("SET k{key} v{member} PX {ms}"),
        1 => format!("APPEND k{key} {member}"),
        2 => format!("HSET k{key} f{member} {ms}"),
        3 => format!("HDEL k{key} f{member}"),
        4 => format!("RPUSH k{key} e{member}"),
        5 => format!("LPOP k{key}"),
        6 => format!("SADD k{key} m{member}"),
        7 => format!("ZADD k{key} {ms} m{member}"),
        8 => format!("PEXPIRE k{key} {ms}"),
        9 => format!("DEL k{key}"),
        _ => format!("RENAME k{key} k{}", (key + 1) % KEYS),
    });
    words.prop_map(Step::Resp)
}

fn cql_write() -> impl Strategy<Value = String> {
    let parts = (0..KEYS, 0..KEYS, 0..4_u8, prop_oneof![Just(0_u32), Just(1)]);
    (0..10_usize, parts).prop_map(|(kind, (key, other, member, ttl))| {
        let at = |key: usize| format!("textAsBlob('k{key}')");
        let (key, other) = (at(key), at(other));
        let blob = |letter: char| format!("textAsBlob('{letter}{member}')");
        let (field, element, one) = (blob('f'), blob('e'), blob('m'));
        match kind {
            0 => format!("INSERT INTO strings (key, value) VALUES ({key}, {one}) USING TTL {ttl}"),
            1 => format!("INSERT INTO hashes (key, field, value) VALUES ({key}, {field}, {one})"),
            2 => format!(
                "UPDATE hashes SET value = {one} WHERE key IN ({key}, {other}) AND field = {field}"
            ),
            3 => format!("DELETE FROM hashes WHERE key = {key} AND field = {field}"),
            4 => format!("INSERT INTO sets (key, member) VALUES ({key}, {one})"),
            5 => format!("DELETE FROM strings WHERE key = {key}"),
            6 => format!("DELETE FROM sets WHERE key IN ({key}, {other})"),
            7 => format!("INSERT INTO zsets (key, member, score) VALUES ({key}, {one}, 1)"),
            8 => {
                format!("INSERT INTO strings (key, value) VALUES ({key}, {element}) IF NOT EXISTS")
            }
            _ => format!("DELETE FROM hashes WHERE key = {key} AND field IN ({field}, {one})"),
        }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let batch = proptest::collection::vec(cql_write(), 2..4).prop_map(|all| {
        let plain = all.into_iter().filter(|one| !one.contains(" IF "));
        let statements = plain.collect::<Vec<_>>().join("; ");
        Step::Cql(format!("BEGIN UNLOGGED BATCH {statements}; APPLY BATCH"))
    });
    let step = prop_oneof![
        4 => resp_write(),
        3 => cql_write().prop_map(Step::Cql),
        3 => batch,
        2 => (1..60_u64).prop_map(Step::PassMs),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Everything that a client can read from the keys.
fn visible(server: &mut Server) -> Vec<String> {
    let mut seen = Vec::new();
    for key in 0..KEYS {
        let kind = server.resp(&format!("TYPE k{key}"));
        let question = match kind.trim_start_matches('+') {
            "string" => format!("GET k{key}"),
            "hash" => format!("HGETALL k{key}"),
            "list" => format!("LRANGE k{key} 0 -1"),
            "set" => format!("SMEMBERS k{key}"),
            "zset" => format!("ZRANGE k{key} 0 -1 WITHSCORES"),
            other => {
                assert_eq!(other, "none");
                format!("EXISTS k{key}")
            }
        };
        let mut words: Vec<String> = server.resp(&question).split(' ').map(str::to_owned).collect();
        words.sort();
        seen.push(format!("{kind} {words:?} {}", server.resp(&format!("PEXPIRETIME k{key}"))));
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After a restart the data equals the data before it, whether statements and commands
    /// succeeded or were rejected. Expired keys stay in memory until then.
    #[test]
    fn memory_and_log_have_the_same_content(steps in steps()) {
        let mut server = Server::new();
        server.client.keyspace = Some("redis".to_owned());
        for step in &steps {
            match step {
                Step::Resp(text) => drop(server.resp(text)),
                // Many are rejected, because a key has another type or is repeated.
                Step::Cql(text) => drop(server.run(text)),
                Step::PassMs(ms) => server.pass_ms(*ms),
            }
        }
        let before = visible(&mut server);
        let mut server = server.restart();
        prop_assert_eq!(visible(&mut server), before);
    }
}

/// A write of a row at a timestamp relative to the clock, in microseconds.
#[derive(Debug, Clone)]
struct Write {
    kind: usize,
    ahead_us: i64,
    v: i32,
}

/// A conditional write, and the value that must be read once it was applied.
const CONDITIONAL: [(&str, &str); 7] = [
    ("INSERT INTO t (p, c, v) VALUES (1, 1, 77) IF NOT EXISTS", "77"),
    ("UPDATE t SET v = 77 WHERE p = 1 AND c = 1 IF v = null", "77"),
    ("UPDATE t SET v = 77 WHERE p = 1 AND c = 1 IF EXISTS", "77"),
    ("DELETE v FROM t WHERE p = 1 AND c = 1 IF EXISTS", "null"),
    ("DELETE FROM t WHERE p = 1 AND c = 1 IF EXISTS", ""),
    ("UPDATE t SET m = {1: 7}, v = 77 WHERE p = 1 AND c = 1 IF m = null", "77"),
    ("UPDATE t SET m = m + {5: 5}, v = 77 WHERE p = 1 AND c = 1 IF v != 77", "77"),
];

fn plain(write: &Write, now_us: i64) -> String {
    let at = now_us + write.ahead_us;
    let v = write.v;
    match write.kind {
        0 => format!("INSERT INTO t (p, c, v) VALUES (1, 1, {v}) USING TIMESTAMP {at}"),
        1 => format!("INSERT INTO t (p, c) VALUES (1, 1) USING TIMESTAMP {at}"),
        2 => format!(
            "UPDATE t USING TIMESTAMP {at} SET v = {v}, m = {{2: {v}}} WHERE p = 1 AND c = 1"
        ),
        3 => format!("DELETE v FROM t USING TIMESTAMP {at} WHERE p = 1 AND c = 1"),
        4 => format!("DELETE m FROM t USING TIMESTAMP {at} WHERE p = 1 AND c = 1"),
        5 => format!("DELETE FROM t USING TIMESTAMP {at} WHERE p = 1 AND c = 1"),
        6 => format!("DELETE FROM t USING TIMESTAMP {at} WHERE p = 1 AND c > 0"),
        7 => format!("DELETE FROM t USING TIMESTAMP {at} WHERE p = 1"),
        _ => format!("DELETE m[2] FROM t USING TIMESTAMP {at} WHERE p = 1 AND c = 1"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Cells, markers, and deletions of cells, rows, ranges, partitions and collections that are
    /// ahead of the clock: a conditional write reported as applied is visible afterwards.
    #[test]
    fn an_applied_conditional_write_takes_effect(
        writes in proptest::collection::vec((0..9_usize, -50..50_i64, 0..3_i32), 0..8),
        conditional in 0..CONDITIONAL.len(),
    ) {
        let mut server = Server::new();
        server.check("> CREATE TABLE t (p int, c int, v int, m map<int, int>, PRIMARY KEY (p, c))");
        for (kind, seconds, v) in writes {
            let write = Write { kind, ahead_us: seconds * 1_000_000, v };
            let now_us = server.now.unix_us();
            server.run(&plain(&write, now_us)).unwrap();
        }
        let (statement, expected) = CONDITIONAL[conditional];
        let answer = server.run(statement).unwrap();
        if answer.rows[0].starts_with("true") {
            let seen = server.run("SELECT v FROM t WHERE p = 1 AND c = 1").unwrap();
            // A row without a marker disappears with its last cell.
            let seen = seen.rows.join("");
            prop_assert!(seen == expected || (expected == "null" && seen.is_empty()), "{}", seen);
            // The same insertion cannot be applied a second time.
            if statement.ends_with("IF NOT EXISTS") {
                let again = server.run(statement).unwrap();
                prop_assert!(again.rows[0].starts_with("false"), "two winners");
            }
        }
    }
}

/// The longest record is 4 MiB in unit tests.
#[test]
fn commands_that_exceed_the_record_limit_change_nothing() {
    let mut server = Server::new();
    assert_eq!(server.resp("SETRANGE large 1048575 x"), ":1048576");
    assert_eq!(server.resp("RPUSH queue a b c"), ":3");
    server.resp("MULTI");
    server.resp("DEL queue");
    for number in 0..5 {
        assert_eq!(server.resp(&format!("COPY large copy{number}")), "+QUEUED");
    }
    let too_long = "-ERR the changes of this request are too long for one log record";
    let expected = ["*6", ":1", ":1", ":1", too_long, too_long, too_long].join(" ");
    assert_eq!(server.resp("EXEC"), expected);
    let seen = |server: &mut Server| {
        [
            "EXISTS copy0",
            "EXISTS copy1",
            "EXISTS copy2",
            "EXISTS copy3",
            "EXISTS copy4",
            "LLEN queue",
        ]
        .map(|question| server.resp(question))
    };
    let before = seen(&mut server);
    assert_eq!(before, [":1", ":1", ":0", ":0", ":0", ":0"]);
    assert_eq!(seen(&mut server.restart()), before);
}

/// A lock taken late in a long turn has its full duration, and keys that have expired within the
/// turn are gone.
#[test]
fn commands_late_in_a_turn_see_a_later_time() {
    let mut server = Server::new();
    assert_eq!(server.resp("SET lock one NX PX 400"), "+OK");
    assert_eq!(server.resp("SET short v PX 50"), "+OK");
    server.spend_ms(399);
    assert_eq!(server.resp("GET short"), "$-1");
    assert_eq!(server.resp("SET lock two NX PX 400"), "$-1");
    server.spend_ms(2);
    assert_eq!(server.resp("SET lock two NX PX 400"), "+OK");
    server.spend_ms(300);
    assert_eq!(server.resp("SET lock three NX PX 400"), "$-1");
    server.client.keyspace = Some("redis".to_owned());
    server.run("INSERT INTO strings (key, value) VALUES (0x6b, 0x76) USING TTL 1").unwrap();
    assert_eq!(server.run("SELECT key FROM strings WHERE key = 0x6b").unwrap().rows.len(), 1);
    server.spend_ms(1001);
    assert_eq!(server.run("SELECT key FROM strings WHERE key = 0x6b").unwrap().rows.len(), 0);
}

/// The server never assigns a timestamp that a conditional write has already used.
#[test]
fn write_timestamps_follow_those_of_conditional_writes() {
    let mut server = Server::new();
    server.check("> CREATE TABLE t (p int PRIMARY KEY, v int)");
    let ahead = Asked { timestamp: Some(server.now.unix_us() + 500_000), ..Asked::default() };
    server.ask("INSERT INTO t (p, v) VALUES (1, 1)", ahead).unwrap();
    server.check(
        "
        > UPDATE t SET v = 2 WHERE p = 1 IF v = 1
        true
        > UPDATE t SET v = 3 WHERE p = 1
        > SELECT v FROM t
        3
        ",
    );
}
