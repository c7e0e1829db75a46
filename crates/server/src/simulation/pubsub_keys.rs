//! Keyspace events: the events of each command, and when they are sent.

use reactor::SimClient;
use store::STRIPES;
use wire::cql::Version;
use wire::resp::{Reply, decode_reply};

use super::cql_client::{Client, run_reactors, world_with_system};
use super::http_client::SECOND_NS;
use super::pubsub_client::{ask, connect, run, send, world_with};
use super::world::World;

/// A world with these events enabled, a client that receives all of them, and one that changes
/// keys.
fn listen(events: &str) -> (World, SimClient, SimClient) {
    let mut world = world_with(2, &[("notify-keyspace-events", events)]);
    let (listener, client) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &listener, &["PSUBSCRIBE", "__key*@*__:*"]);
    (world, listener, client)
}

/// Channels and payloads of the received messages; for events of database 0 only their names.
pub(super) fn received_events(listener: &SimClient) -> Vec<String> {
    let bytes = listener.received();
    let (mut rest, mut events) = (bytes.as_slice(), Vec::new());
    while let Ok(Some((Reply::Array(parts), used))) = decode_reply(rest) {
        let texts: Vec<String> = parts
            .into_iter()
            .map(|part| match part {
                Reply::Bulk(text) => String::from_utf8(text).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        let [_, _, channel, payload] = texts.as_slice() else { panic!("{texts:?}") };
        let name = channel.strip_prefix("__keyevent@0__:").unwrap_or(channel);
        events.push(format!("{name} {payload}"));
        rest = &rest[used..];
    }
    assert_eq!(rest, b"", "nothing else arrives");
    events
}

/// Runs commands one after the other, and compares the events of each.
#[track_caller]
fn check(events: &str, steps: &[(&str, &[&str])]) {
    let (mut world, listener, client) = listen(events);
    for (command, expected) in steps {
        let words: Vec<&str> = command.split(' ').collect();
        let reply = ask(&mut world, &client, &words);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
        assert_eq!(received_events(&listener), *expected, "{command}");
    }
}

#[test]
fn reads_report_the_expired_keys_that_they_remove() {
    let options = [("notify-keyspace-events", "EAm"), ("active-expire", "no")];
    let mut world = world_with(2, &options);
    let (listener, client) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &listener, &["PSUBSCRIBE", "__key*@*__:*"]);
    let read: [(&str, &[&str]); 6] = [
        ("GET k", &["expired k", "keymiss k"]),
        ("EXISTS none k", &["expired k", "keymiss none", "keymiss k"]),
        ("HGETALL k", &["expired k", "keymiss k"]),
        ("TYPE k", &["expired k", "keymiss k"]),
        ("SCAN 0 COUNT 10000", &["expired k"]),
        ("KEYS *", &[]),
    ];
    for (command, expected) in read {
        ask(&mut world, &client, &["SET", "k", "v", "PXAT", "1"]);
        received_events(&listener);
        let words: Vec<&str> = command.split(' ').collect();
        ask(&mut world, &client, &words);
        assert_eq!(received_events(&listener), expected, "{command}");
    }
}

/// Those of the commands with the same effect, also if the statement is a part of a batch.
#[test]
fn statements_about_values_send_events() {
    let options = [("notify-keyspace-events", "EAn"), ("active-expire", "no")];
    let mut world = world_with_system(&options);
    let (listener, client) = (connect(&mut world, 0), connect(&mut world, 0));
    ask(&mut world, &listener, &["PSUBSCRIBE", "__key*@*__:*"]);
    let mut cql = Client::start(&mut world, Version::V4, None);
    let steps: [(&str, &[&str]); 19] = [
        ("INSERT INTO redis.strings (key, value) VALUES (0x6b, 0x61)", &["new k", "set k"]),
        ("INSERT INTO redis.strings (key, value) VALUES (0x6b, 0x61) IF NOT EXISTS", &[]),
        (
            "UPDATE redis.strings USING TTL 100 SET value = 0x62 WHERE key = 0x6b",
            &["set k", "expire k"],
        ),
        ("INSERT INTO redis.sets (key, member) VALUES (0x6b, 0x61)", &[]), // another type
        ("DELETE FROM redis.strings WHERE key = 0x6b", &["del k"]),
        ("DELETE FROM redis.strings WHERE key = 0x6b", &[]),
        (
            "INSERT INTO redis.hashes (key, field, value) VALUES (0x68, 0x61, 0x62) USING TTL 100",
            &["new h", "hset h", "expire h"],
        ),
        ("DELETE FROM redis.hashes WHERE key = 0x68 AND field = 0x62", &[]),
        ("DELETE FROM redis.hashes WHERE key = 0x68 AND field = 0x61", &["hdel h", "del h"]),
        ("INSERT INTO redis.sets (key, member) VALUES (0x73, 0x61)", &["new s", "sadd s"]),
        ("INSERT INTO redis.sets (key, member) VALUES (0x73, 0x62)", &["sadd s"]),
        ("DELETE FROM redis.sets WHERE key = 0x73 AND member = 0x62", &["srem s"]),
        (
            "INSERT INTO redis.zsets (key, member, score) VALUES (0x7a, 0x61, 1)",
            &["new z", "zadd z"],
        ),
        (
            "INSERT INTO redis.lists (key, \"index\", value) VALUES (0x6c, 0, 0x61)",
            &["new l", "rpush l"],
        ),
        ("UPDATE redis.lists SET value = 0x62 WHERE key = 0x6c AND \"index\" = 0", &["lset l"]),
        ("DELETE FROM redis.lists WHERE key = 0x6c", &["del l"]),
        (
            "INSERT INTO redis.series (key, time, value) VALUES (0x74, 1, 0x61)",
            &["new t", "tsadd t"],
        ),
        ("DELETE FROM redis.series WHERE key = 0x74 AND time = 1", &["tsrem t", "del t"]),
        (
            "BEGIN BATCH INSERT INTO redis.sets (key, member) VALUES (0x62, 0x61); \
             DELETE FROM redis.zsets WHERE key = 0x7a; APPLY BATCH",
            &["new b", "sadd b", "del z"],
        ),
    ];
    for (statement, expected) in steps {
        cql.query(1, statement);
        run(&mut world);
        assert_eq!(received_events(&listener), expected, "{statement}");
        assert_eq!(cql.ask(&mut world).len(), 1);
    }
    ask(&mut world, &client, &["SET", "k", "v", "PXAT", "1"]);
    received_events(&listener);
    cql.query(1, "INSERT INTO redis.sets (key, member) VALUES (0x6b, 0x61)");
    run(&mut world);
    assert_eq!(received_events(&listener), ["expired k", "new k", "sadd k"]);
    assert!(ask(&mut world, &client, &["INFO", "stats"]).contains("\r\nexpired_keys:1\r\n"));
}

#[test]
fn commands_on_time_series_send_events() {
    check(
        "EA",
        &[
            ("TSADD ts 1 a 2 b", &["tsadd ts"]),
            ("TSADD ts 3 c EXPIRE_IN 100", &["tsadd ts"]),
            ("TSREM ts 9", &[]),
            ("TSREM ts 1 9", &["tsrem ts"]),
            ("TSREM ts 2 3", &["tsrem ts", "del ts"]),
            ("TSCARD ts", &[]),
        ],
    );
    check("Eg", &[("TSADD ts 1 a", &[]), ("TSREM ts 1", &["del ts"])]);
}

#[test]
fn commands_on_strings_and_on_all_keys_send_events() {
    check(
        "EA",
        &[
            ("SET k v", &["set k"]),
            ("SET k v EX 100", &["set k", "expire k"]),
            ("SET k v EXAT 9999999999", &["set k", "expire k"]),
            ("SET k v EXAT 9999999999", &["set k", "expire k"]),
            ("SET k w KEEPTTL", &["set k"]),
            ("SET k w XX GET", &["set k"]),
            ("SET k w NX", &[]),
            ("SETEX k 100 v", &["set k", "expire k"]),
            ("APPEND k x", &["append k"]),
            ("APPEND k ", &["append k"]),
            ("SETRANGE k 1 y", &["setrange k"]),
            ("PERSIST k", &["persist k"]),
            ("PERSIST k", &[]),
            ("GET k", &[]),
            ("GET none", &[]),
            ("INCR n", &["incrby n"]),
            ("DECRBY n 2", &["incrby n"]),
            ("INCRBYFLOAT n 1.5", &["incrbyfloat n"]),
            ("MSET a 1 b 2", &["set a", "set b"]),
            ("GETSET a 3", &["set a"]),
            ("GETDEL a", &["del a"]),
            ("EXPIRE b 100", &["expire b"]),
            ("EXPIRE b -1", &["del b"]),
            ("DEL k none", &["del k"]),
            ("GETEX n EX 100", &["expire n"]),
            ("GETEX n PERSIST", &["persist n"]),
            ("RENAME n m", &["rename_from n", "rename_to m"]),
            ("COPY m o", &["copy_to o"]),
            ("MOVE m 1", &["move_from m", "__keyevent@1__:move_to m"]),
            ("UNLINK o", &["del o"]),
            ("FLUSHALL", &[]),
        ],
    );
}

#[test]
fn commands_on_collections_send_events() {
    check(
        "EA",
        &[
            ("HSET h f 1 g 2 t 3", &["hset h"]),
            ("HEXPIRE h 100 FIELDS 2 none t", &["hexpire h"]),
            ("HEXPIRE h 100 NX FIELDS 1 t", &[]),
            ("HPERSIST h FIELDS 1 t", &["hpersist h"]),
            ("HPERSIST h FIELDS 1 t", &[]),
            ("HGETEX h EX 100 FIELDS 1 t", &["hexpire h"]),
            ("HGETEX h FIELDS 1 t", &[]),
            ("HGETEX h PERSIST FIELDS 1 t", &["hpersist h"]),
            ("HGETEX h PERSIST FIELDS 1 t", &[]),
            ("HGETEX h EX 0 FIELDS 2 none t", &["hexpired h"]),
            ("HGETDEL h FIELDS 1 t", &[]),
            ("HSETEX h EX 100 FIELDS 2 t 1 u 2", &["hset h", "hexpire h"]),
            ("HSETEX h KEEPTTL FIELDS 2 t 1 v 2", &["hset h"]),
            ("HSETEX h FNX FIELDS 1 t 1", &[]),
            ("HSETEX h EX 0 FIELDS 1 t 1", &["hset h", "hexpire h", "hexpired h"]),
            ("HGETDEL h FIELDS 2 u v", &["hdel h"]),
            ("HSETEX i PXAT 1 FIELDS 1 t 1", &["hset i", "hexpire i", "hexpired i", "del i"]),
            ("HSET i t 1", &["hset i"]),
            ("HEXPIREAT i 1 FIELDS 1 t", &["hexpired i", "del i"]),
            ("HINCRBY h f 1", &["hincrby h"]),
            ("HINCRBYFLOAT h f 1.5", &["hincrbyfloat h"]),
            ("HDEL h f", &["hdel h"]),
            ("HDEL h g", &["hdel h", "del h"]),
            ("RPUSH l a b c d", &["rpush l"]),
            ("LPUSH l z", &["lpush l"]),
            ("LPUSHX none z", &[]),
            ("LINSERT l BEFORE a y", &["linsert l"]),
            ("LSET l 0 x", &["lset l"]),
            ("LREM l 0 x", &["lrem l"]),
            ("LTRIM l 0 2", &["ltrim l"]),
            ("LPOP l", &["lpop l"]),
            ("RPOPLPUSH l r", &["lpush r", "rpop l"]),
            ("LMOVE l r LEFT RIGHT", &["rpush r", "lpop l", "del l"]),
            ("LMPOP 1 r RIGHT COUNT 9", &["rpop r", "del r"]),
            ("SADD s a b c", &["sadd s"]),
            ("SADD s a", &[]),
            ("SREM s a", &["srem s"]),
            ("SMOVE s t b", &["srem s", "sadd t"]),
            ("SPOP s 5", &["spop s", "del s"]),
            ("SINTERSTORE u t t", &["sinterstore u"]),
            ("SDIFFSTORE u t t", &["del u"]),
            ("ZADD z 1 a 2 b 3 c 4 d", &["zadd z"]),
            ("ZINCRBY z 1 a", &["zincr z"]),
            ("ZADD z INCR 1 a", &["zincr z"]),
            ("ZREM z a", &["zrem z"]),
            ("ZPOPMIN z", &["zpopmin z"]),
            ("ZMPOP 1 z MAX", &["zpopmax z"]),
            ("ZRANGESTORE y z 0 -1", &["zrangestore y"]),
            ("ZUNIONSTORE y 1 z", &["zunionstore y"]),
            ("ZREMRANGEBYRANK z 0 -1", &["zremrangebyrank z", "del z"]),
        ],
    );
}

#[test]
fn only_enabled_events_are_sent() {
    check("", &[("SET k v", &[])]);
    check("A", &[("SET k v", &[])]);
    check("Eg", &[("SET k v", &[]), ("EXPIRE k 100", &["expire k"])]);
    check(
        "KE$",
        &[("SELECT 3", &[]), ("SET k v", &["__keyspace@3__:k set", "__keyevent@3__:set k"])],
    );
    check(
        "E$nm",
        &[
            ("SET k v", &["new k", "set k"]),
            ("SET k v", &["set k"]),
            ("GET none", &["keymiss none"]),
            ("MGET k none more", &["keymiss none", "keymiss more"]),
            ("GETDEL none", &["keymiss none"]),
            ("OBJECT ENCODING none", &[]),
            ("RENAME k l", &["new l"]),
            ("SET k w", &["new k", "set k"]),
            ("RENAME k l", &["new l"]),
            ("COPY l m", &["new m"]),
            ("COPY l m REPLACE", &["new m"]),
            ("MSET m 1 n 2", &["set m", "new n", "set n"]),
            ("GETDEL m", &[]),
            ("GETEX n EXAT 1", &[]),
            ("SET gone v PXAT 1", &["new gone", "set gone"]),
            ("MULTI", &[]),
            ("MGET l none", &[]),
            ("GETDEL none", &[]),
            ("EXEC", &["keymiss none", "keymiss none"]),
        ],
    );
    check(
        "",
        &[
            ("CONFIG SET notify-keyspace-events Ex$", &[]),
            ("SET k v", &["set k"]),
            ("CONFIG SET notify-keyspace-events KE", &[]),
            ("SET k v", &[]),
        ],
    );
}

#[test]
fn expired_and_evicted_keys_are_reported() {
    let (mut world, listener, client) = listen("Exe");
    ask(&mut world, &client, &["SET", "k", "v", "PX", "100"]);
    ask(&mut world, &client, &["SET", "l", "v", "PX", "100"]);
    assert_eq!(received_events(&listener), [""; 0]);
    for _ in 0..20 {
        world.advance(SECOND_NS / 10);
        run(&mut world);
    }
    let mut expired = received_events(&listener);
    expired.sort_unstable();
    assert_eq!(expired, ["expired k", "expired l"]);
    // The key is found by a write before a reactor expires it.
    ask(&mut world, &client, &["CONFIG", "SET", "active-expire", "no"]);
    ask(&mut world, &client, &["SET", "k", "v", "PX", "100"]);
    world.advance(SECOND_NS);
    run(&mut world);
    ask(&mut world, &client, &["INCR", "k"]);
    assert_eq!(received_events(&listener), ["expired k"]);
    ask(&mut world, &client, &["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    ask(&mut world, &client, &["CONFIG", "SET", "maxmemory", "1"]);
    ask(&mut world, &client, &["SET", "m", "v"]);
    assert_eq!(received_events(&listener), ["evicted k"]);
}

#[test]
fn keys_stay_while_too_many_events_are_in_flight() {
    const KEYS: usize = 64;
    let (mut world, listener, client) = listen("Ex");
    ask(&mut world, &listener, &["SUBSCRIBE", "a"]);
    for number in 0..KEYS {
        ask(&mut world, &client, &["SET", &number.to_string(), "v", "PX", "100"]);
    }
    let payload = "x".repeat(128 << 10);
    for _ in 0..12 {
        send(&client, &["PUBLISH", "a", &payload]);
    }
    // The listener's reactor does not run, so no event is delivered.
    let step = |world: &mut World| {
        for _ in 0..2000 {
            world.step(1);
        }
    };
    step(&mut world);
    assert!(world.shared().pubsub.is_any_full());
    world.advance(SECOND_NS);
    step(&mut world);
    let now = world.sim().now().unix;
    let keyspace = &world.shared().keyspace;
    assert!((1..STRIPES).step_by(2).any(|stripe| keyspace.has_due(stripe, now)));
    for _ in 0..20 {
        run(&mut world);
        world.advance(SECOND_NS / 10);
    }
    run(&mut world);
    let received = String::from_utf8(listener.received()).unwrap();
    assert_eq!(received.matches("__keyevent@0__:expired").count(), KEYS);
}

#[test]
fn events_wait_for_the_log_and_keep_the_order_of_a_transaction() {
    let (mut world, listener, client) = listen("E$");
    send(&client, &["SET", "k", "v"]);
    run_reactors(&mut world);
    assert_eq!(received_events(&listener), [""; 0], "a crash could undo the change");
    run(&mut world);
    assert_eq!(received_events(&listener), ["set k"]);
    ask(&mut world, &client, &["MULTI"]);
    ask(&mut world, &client, &["SET", "a", "1"]);
    ask(&mut world, &client, &["PUBLISH", "__keyevent@0__:mine", "x"]);
    ask(&mut world, &client, &["INCR", "a"]);
    assert_eq!(received_events(&listener), [""; 0]);
    ask(&mut world, &client, &["EXEC"]);
    assert_eq!(received_events(&listener), ["set a", "mine x", "incrby a"]);
}

/// A turn compares 8,192 steps, and each message takes at least 512.
const MESSAGES_PER_TURN: usize = 16;

#[test]
fn events_of_many_keys_are_matched_in_parts_while_only_their_client_waits() {
    const KEYS: usize = 100;
    let (mut world, listener, client) = listen("KE$gx");
    let (neighbor, distant) = (connect(&mut world, 1), connect(&mut world, 0));
    let names: Vec<String> = (0..KEYS).map(|number| format!("k{number:03}")).collect();
    let pairs = names.iter().flat_map(|name| [name.as_str(), "v"]);
    send(&client, &std::iter::once("MSET").chain(pairs).collect::<Vec<_>>());
    send(&client, &["PING"]);
    let mut turns = 0;
    while !world.shared().pubsub.has_unmatched() {
        assert!(world.step(1));
    }
    while world.shared().pubsub.has_unmatched() {
        assert!(!String::from_utf8(client.received()).unwrap().contains("PONG"));
        send(&neighbor, &["PING"]);
        assert!(world.step(1), "the next turn continues");
        assert_eq!(neighbor.received(), b"+PONG\r\n");
        turns += 1;
    }
    assert!((2 * KEYS / MESSAGES_PER_TURN - 3..=2 * KEYS).contains(&turns), "{turns} turns");
    run(&mut world);
    let expected: Vec<String> = names
        .iter()
        .flat_map(|name| [format!("__keyspace@0__:{name} set"), format!("set {name}")])
        .collect();
    assert_eq!(received_events(&listener), expected);
    assert_eq!(client.received(), b"+OK\r\n+PONG\r\n");
    // In log order, whichever client made the changes.
    send(
        &client,
        &std::iter::once("DEL").chain(names.iter().map(String::as_str)).collect::<Vec<_>>(),
    );
    send(&client, &["PUBLISH", "__keyevent@0__:mine", "x"]);
    while !world.shared().pubsub.has_unmatched() {
        assert!(world.step(1));
    }
    send(&distant, &["SET", &names[KEYS - 1], "w"]);
    run(&mut world);
    let messages: Vec<String> =
        received_events(&listener).into_iter().filter(|it| !it.starts_with("__")).collect();
    let of_client = |name: &String| format!("del {name}");
    assert_eq!(messages[..KEYS], names.iter().map(of_client).collect::<Vec<_>>());
    let mut others = messages[KEYS..].to_vec();
    others.sort_unstable();
    assert_eq!(others, ["mine x".to_owned(), format!("set {}", names[KEYS - 1])]);
}

#[test]
fn keys_stay_while_events_wait_to_be_matched() {
    const KEYS: usize = 100;
    let (mut world, listener, client) = listen("KEx");
    for number in 0..KEYS {
        ask(&mut world, &client, &["SET", &number.to_string(), "v", "PX", "100"]);
    }
    world.advance(SECOND_NS / 2);
    let keys = |world: &World, now| {
        let keyspace = &world.shared().keyspace;
        (1..STRIPES).step_by(2).filter(|stripe| keyspace.has_due(*stripe, now)).count()
    };
    let now = world.sim().now().unix;
    let before = keys(&world, now);
    while !world.shared().pubsub.has_unmatched() {
        assert!(world.step(1));
    }
    // A round ends when a turn has compared its limit: two messages per key.
    let removed = before - keys(&world, now);
    assert!((1..=MESSAGES_PER_TURN).contains(&removed), "{removed} of {before} at once");
    for _ in 0..20 {
        run(&mut world);
        world.advance(SECOND_NS / 10);
    }
    run(&mut world);
    assert_eq!(received_events(&listener).len(), 2 * KEYS);
}

#[test]
fn messages_of_a_transaction_count_their_matching_cost() {
    let mut world = world_with(2, &[]);
    let (listener, client) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &listener, &["SUBSCRIBE", "a"]);
    ask(&mut world, &client, &["MULTI"]);
    for _ in 0..4 {
        ask(&mut world, &client, &["PUBLISH", "a", "x"]);
    }
    // Each takes sixteen.
    ask(&mut world, &listener, &["RESET"]);
    ask(&mut world, &listener, &["CONFIG", "SET", "elements-per-command-max", "40"]);
    ask(&mut world, &listener, &["SUBSCRIBE", "a"]);
    let reply = ask(&mut world, &client, &["EXEC"]);
    assert!(reply.starts_with("*4\r\n:1\r\n:1\r\n-ERR the command would process"), "{reply}");
    let messages = String::from_utf8(listener.received()).unwrap();
    assert_eq!(messages.matches("message").count(), 2);
}
