//! Fields of hashes that expire: what clients see before and after they are removed.

use reactor::SimClient;

use super::http_client::SECOND_NS;
use super::pubsub_client::{ask, connect, run, world_with};
use super::pubsub_keys::received_events;
use super::world::World;

/// A server that does not remove expired fields on its own, and a client.
fn idle() -> (World, SimClient) {
    let mut world = world_with(2, &[("active-expire", "no")]);
    let client = connect(&mut world, 1);
    (world, client)
}

/// Runs commands one after the other, and compares the replies, with spaces for line ends.
#[track_caller]
fn check(world: &mut World, client: &SimClient, steps: &[(&str, &str)]) {
    for (command, expected) in steps {
        let words: Vec<&str> = command.split(' ').collect();
        let reply = ask(world, client, &words).trim_end().replace("\r\n", " ");
        assert_eq!(reply, *expected, "{command}");
    }
}

#[test]
fn no_command_sees_a_field_that_has_expired() {
    let (mut world, client) = idle();
    let steps = [
        ("HSET h a 1 b 2 c 3", ":3"),
        ("HPEXPIRE h 100 FIELDS 2 a b", "*2 :1 :1"),
        ("RPUSH l h", ":1"),
    ];
    check(&mut world, &client, &steps);
    world.advance(SECOND_NS);
    let steps = [
        ("HLEN h", ":1"),
        ("HGETALL h", "*2 $1 c $1 3"),
        ("HKEYS h", "*1 $1 c"),
        ("HVALS h", "*1 $1 3"),
        ("HGET h a", "$-1"),
        ("HMGET h a b c", "*3 $-1 $-1 $1 3"),
        ("HEXISTS h a", ":0"),
        ("HSTRLEN h b", ":0"),
        ("HSCAN h 0", "*2 $1 0 *2 $1 c $1 3"),
        ("HRANDFIELD h", "$1 c"),
        ("HRANDFIELD h 5", "*1 $1 c"),
        ("HRANDFIELD h -2", "*2 $1 c $1 c"),
        ("HTTL h FIELDS 2 a c", "*2 :-2 :-1"),
        ("SORT l BY nosort GET *->a GET *->c", "*2 $-1 $1 3"),
        ("COPY h copy", ":1"),
        ("HGETALL copy", "*2 $1 c $1 3"),
        ("RENAME copy other", "+OK"),
        ("HLEN other", ":1"),
        ("TYPE h", "+hash"),
    ];
    check(&mut world, &client, &steps);
}

#[test]
fn a_hash_without_live_fields_does_not_exist() {
    let (mut world, client) = idle();
    let timed = [("HSETEX h PX 100 FIELDS 2 a 1 b 2", ":1")];
    check(&mut world, &client, &timed);
    check(&mut world, &client, &[("EXISTS h", ":1")]);
    world.advance(SECOND_NS);
    let steps = [("KEYS *", "*0"), ("RANDOMKEY", "$-1"), ("SCAN 0 COUNT 10000", "*2 $1 0 *0")];
    check(&mut world, &client, &steps);
    for (command, expected) in [
        ("EXISTS h", ":0"),
        ("TYPE h", "+none"),
        ("DUMP h", "$-1"),
        ("HGETALL h", "*0"),
        ("HRANDFIELD h 3", "*0"),
        ("TTL h", ":-2"),
        ("HEXPIRE h 10 FIELDS 1 a", "*1 :-2"),
        ("HINCRBY h a 1", ":1"),
        ("HSETEX h KEEPTTL FIELDS 1 a 2", ":1"),
        ("SETNX h v", ":1"),
        ("LPUSH h v", ":1"),
        ("DEL h", ":0"),
    ] {
        ask(&mut world, &client, &["DEL", "h"]);
        check(&mut world, &client, &timed);
        world.advance(SECOND_NS);
        check(&mut world, &client, &[(command, expected)]);
    }
}

#[test]
fn a_field_that_is_set_again_has_no_trace_of_the_expired_one() {
    let (mut world, client) = idle();
    for (command, expected, value) in [
        ("HSET h a 7", ":1", "7"),
        ("HSETNX h a 7", ":1", "7"),
        ("HINCRBY h a 7", ":7", "7"),
        ("HINCRBYFLOAT h a 7", "$1 7", "7"),
        ("HSETEX h KEEPTTL FIELDS 1 a 7", ":1", "7"),
        ("HSETEX h FNX FIELDS 1 a 7", ":1", "7"),
    ] {
        // More fields than a write removes, so that the field may still be stored.
        let mut set: Vec<String> =
            ["HSETEX", "h", "PX", "100", "FIELDS", "301", "a", "5"].map(str::to_owned).to_vec();
        set.extend((0..300).flat_map(|number| [format!("f{number}"), "v".to_owned()]));
        let words: Vec<&str> = set.iter().map(String::as_str).collect();
        assert_eq!(ask(&mut world, &client, &words), ":1\r\n");
        check(&mut world, &client, &[("HSET h kept 1", ":1")]);
        world.advance(SECOND_NS);
        let ttl = ("HTTL h FIELDS 1 a", "*1 :-1");
        let value = format!("${} {value}", value.len());
        let steps = [(command, expected), ttl, ("HGET h a", value.as_str()), ("HLEN h", ":2")];
        check(&mut world, &client, &steps);
        ask(&mut world, &client, &["DEL", "h"]);
    }
}

#[test]
fn fields_expire_with_events_and_are_counted() {
    let mut world = world_with(2, &[("notify-keyspace-events", "Eghxm")]);
    let (listener, client) = (connect(&mut world, 0), connect(&mut world, 1));
    ask(&mut world, &listener, &["PSUBSCRIBE", "__key*@*__:*"]);
    let wait = |world: &mut World| {
        for _ in 0..20 {
            world.advance(SECOND_NS / 10);
            run(world);
        }
    };
    check(&mut world, &client, &[("HSET h a 1 b 2 c 3", ":3")]);
    check(&mut world, &client, &[("HPEXPIRE h 100 FIELDS 2 a b", "*2 :1 :1")]);
    wait(&mut world);
    assert_eq!(received_events(&listener), ["hset h", "hexpire h", "hexpired h"]);
    check(&mut world, &client, &[("HPEXPIRE h 100 FIELDS 1 c", "*1 :1")]);
    wait(&mut world);
    assert_eq!(received_events(&listener), ["hexpire h", "hexpired h", "del h"]);
    // A command finds them before a reactor removes them.
    ask(&mut world, &client, &["CONFIG", "SET", "active-expire", "no"]);
    check(&mut world, &client, &[("HSET h a 1 b 2", ":2")]);
    check(&mut world, &client, &[("HPEXPIRE h 100 FIELDS 1 a", "*1 :1")]);
    world.advance(SECOND_NS);
    check(&mut world, &client, &[("HGET h a", "$-1"), ("HINCRBY h a 5", ":5")]);
    assert_eq!(received_events(&listener), ["hset h", "hexpire h", "hexpired h", "hincrby h"]);
    check(&mut world, &client, &[("HPEXPIRE h 100 FIELDS 2 a b", "*2 :1 :1")]);
    world.advance(SECOND_NS);
    check(&mut world, &client, &[("HGET h a", "$-1")]);
    assert_eq!(received_events(&listener), ["hexpire h", "hexpired h", "del h", "keymiss h"]);
    // Each reactor publishes its counts when it serves a client.
    ask(&mut world, &listener, &["PING"]);
    let stats = ask(&mut world, &client, &["INFO", "stats"]);
    assert!(stats.contains("expired_fields:6\r\n"), "{stats}");
    assert!(stats.contains("expired_keys:0\r\n"), "{stats}");
}

#[test]
fn many_fields_expire_and_leave_nothing() {
    const FIELDS: usize = 3000;
    let mut world = world_with(1, &[]);
    let client = connect(&mut world, 0);
    let mut words: Vec<String> = ["HSETEX", "h", "PX", "100", "FIELDS"].map(str::to_owned).to_vec();
    words.push(FIELDS.to_string());
    words.extend((0..FIELDS).flat_map(|number| [number.to_string(), "v".to_owned()]));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(ask(&mut world, &client, &words), ":1\r\n");
    check(&mut world, &client, &[("HSET h kept 1", ":1"), ("HLEN h", ":3001")]);
    // A tick has little time, and this machine may be slow.
    let mut stats = String::new();
    for _ in 0..500 {
        world.advance(SECOND_NS / 10);
        run(&mut world);
        check(&mut world, &client, &[("HLEN h", ":1"), ("HGETALL h", "*2 $4 kept $1 1")]);
        stats = ask(&mut world, &client, &["INFO", "stats"]);
        if stats.contains("expired_fields:3000\r\n") {
            break;
        }
    }
    assert!(stats.contains("expired_fields:3000\r\n"), "{stats}");
    let keyspace = ask(&mut world, &client, &["INFO", "keyspace"]);
    assert!(keyspace.contains("keys_with_volatile_items=0"), "{keyspace}");
}

#[test]
fn a_transaction_fails_if_a_field_expires_while_its_hash_is_watched() {
    let (mut world, client) = idle();
    let exec = |world: &mut World, client: &SimClient, expected: &str| {
        check(world, client, &[("MULTI", "+OK"), ("HLEN h", "+QUEUED"), ("EXEC", expected)]);
    };
    check(&mut world, &client, &[("HSET h a 1 b 2 c 3", ":3")]);
    check(&mut world, &client, &[("HPEXPIRE h 100 FIELDS 1 a", "*1 :1"), ("WATCH h", "+OK")]);
    exec(&mut world, &client, "*1 :3");
    check(&mut world, &client, &[("WATCH h", "+OK")]);
    world.advance(SECOND_NS);
    exec(&mut world, &client, "*-1");
    // The field had expired before, whether or not it was removed.
    check(&mut world, &client, &[("WATCH h", "+OK")]);
    exec(&mut world, &client, "*1 :2");
    check(&mut world, &client, &[("HPEXPIRE h 100 FIELDS 2 b c", "*2 :1 :1"), ("WATCH h", "+OK")]);
    world.advance(SECOND_NS);
    exec(&mut world, &client, "*-1");
    check(&mut world, &client, &[("WATCH h", "+OK")]);
    exec(&mut world, &client, "*1 :0");
}

#[test]
fn caches_are_invalidated_when_a_field_expires() {
    let mut world = world_with(1, &[]);
    let client = connect(&mut world, 0);
    let steps = [("HSET h a 1 b 2", ":2"), ("HPEXPIRE h 100 FIELDS 1 a", "*1 :1")];
    check(&mut world, &client, &steps);
    ask(&mut world, &client, &["HELLO", "3"]);
    check(&mut world, &client, &[("CLIENT TRACKING ON", "+OK"), ("HGET h a", "$1 1")]);
    for _ in 0..20 {
        world.advance(SECOND_NS / 10);
        run(&mut world);
    }
    let received = String::from_utf8(client.received()).unwrap();
    assert_eq!(received, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nh\r\n");
}

#[test]
fn fields_keep_their_expiry_in_a_restart() {
    let mut world = world_with(1, &[]);
    let client = connect(&mut world, 0);
    let steps = [
        ("HSET h n 1 gone 2 plain 3", ":3"),
        ("HPEXPIREAT h 9999999999123 FIELDS 1 n", "*1 :1"),
        ("HPEXPIRE h 100 FIELDS 1 gone", "*1 :1"),
        ("HINCRBY h n 1", ":2"),
        ("HSETEX g EX 1000 FIELDS 1 f v", ":1"),
        ("HGETEX g PERSIST FIELDS 1 f", "*1 $1 v"),
    ];
    check(&mut world, &client, &steps);
    world.advance(SECOND_NS);
    world.restart().unwrap();
    let client = connect(&mut world, 0);
    let steps = [
        ("HGET h n", "$1 2"),
        ("HPEXPIRETIME h FIELDS 3 n gone plain", "*3 :9999999999123 :-2 :-1"),
        ("HTTL g FIELDS 1 f", "*1 :-1"),
        ("HLEN h", ":2"),
    ];
    check(&mut world, &client, &steps);
}
