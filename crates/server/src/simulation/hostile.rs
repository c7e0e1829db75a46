//! Clients that mean no good: requests of a few bytes that would fill the memory, and peers that do not
//! read what they get.

use reactor::SimClient;

use super::world::{Plan, World};
use crate::resp::REPLY_BYTES_MAX;

const SEED: u64 = 1;
const SECOND_NS: u64 = 1_000_000_000;

fn world_with(options: &[(&'static str, &str)]) -> World {
    let options = options.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let plan = Plan {
        reactors: 1,
        segment_bytes: 4 << 20,
        lane_bytes: 1 << 20,
        options,
        ..Plan::default()
    };
    World::new(SEED, plan)
}

/// Runs reactor and log until they wait.
fn run(world: &mut World) {
    while world.write_log() | world.step(0) {}
}

fn send(client: &SimClient, words: &[&str]) {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut bytes = Vec::new();
    wire::resp::encode_request(&words, &mut bytes);
    client.send(&bytes);
}

/// Sends one request and returns what has come, as text.
fn ask(world: &mut World, client: &SimClient, words: &[&str]) -> String {
    send(client, words);
    run(world);
    String::from_utf8(client.received()).unwrap()
}

/// A request that shows one large value more often than fits into a reply is refused; the
/// connection lives on, and one that fits is served.
#[track_caller]
fn check_large_reply(fill: &[&str], show: impl Fn(usize) -> Vec<String>) {
    const VALUE_BYTES: usize = REPLY_BYTES_MAX / 16;
    let mut world = world_with(&[]);
    let client = world.sim().connect();
    let value = "v".repeat(VALUE_BYTES);
    let fill: Vec<&str> =
        fill.iter().map(|word| if *word == "{value}" { value.as_str() } else { word }).collect();
    let filled = ask(&mut world, &client, &fill);
    assert!(!filled.starts_with('-'), "{filled}");
    for (times, is_refused) in [(20, true), (4, false)] {
        let show = show(times);
        let show: Vec<&str> = show.iter().map(String::as_str).collect();
        let reply = ask(&mut world, &client, &show);
        assert_eq!(reply.starts_with("-ERR "), is_refused, "{times} times: {reply:.60}");
        assert_eq!(reply.len() > 4 * VALUE_BYTES, !is_refused, "{times} times: {reply:.60}");
        assert_eq!(ask(&mut world, &client, &["PING"]), "+PONG\r\n");
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn replies_have_a_limit_whoever_writes_them() {
    let repeated = |words_before: &'static [&'static str], name: &'static str| {
        move |times: usize| [words(words_before), vec![name.to_owned(); times]].concat()
    };
    let counted =
        |name: &'static str| move |times: usize| words(&[name, "key", &format!("-{times}")]);
    check_large_reply(&["SET", "key", "{value}"], repeated(&["MGET"], "key"));
    check_large_reply(&["HSET", "key", "field", "{value}"], repeated(&["HMGET", "key"], "field"));
    check_large_reply(&["SADD", "key", "{value}"], counted("SRANDMEMBER"));
    check_large_reply(&["ZADD", "key", "1", "{value}"], counted("ZRANDMEMBER"));
    check_large_reply(&["HSET", "key", "{value}", "1"], counted("HRANDFIELD"));
}

#[test]
fn replies_of_a_transaction_have_a_limit_together() {
    let mut world = world_with(&[]);
    let client = world.sim().connect();
    let value = "v".repeat(REPLY_BYTES_MAX / 4);
    ask(&mut world, &client, &["SET", "key", &value]);
    ask(&mut world, &client, &["MULTI"]);
    for _ in 0..8 {
        ask(&mut world, &client, &["GET", "key"]);
    }
    let reply = ask(&mut world, &client, &["EXEC"]);
    assert!(reply.starts_with("*8\r\n"), "{reply:.60}");
    assert!(reply.ends_with("-ERR reply is too large\r\n"));
    assert!(reply.len() < REPLY_BYTES_MAX + value.len());
    assert_eq!(ask(&mut world, &client, &["PING"]), "+PONG\r\n");
}

#[test]
fn watched_keys_have_a_limit_and_count_once() {
    let mut world = world_with(&[]);
    let (client, other) = (world.sim().connect(), world.sim().connect());
    let names: Vec<String> = (0..=1 << 16).map(|number| format!("key{number}")).collect();
    let mut watch: Vec<&str> = vec!["WATCH"];
    watch.extend(names[..1 << 16].iter().map(String::as_str));
    assert_eq!(ask(&mut world, &client, &watch), "+OK\r\n");
    assert_eq!(ask(&mut world, &client, &watch), "+OK\r\n", "the same ones again");
    let one_more = ask(&mut world, &client, &["WATCH", "key7", &names[1 << 16]]);
    assert_eq!(one_more, "-ERR too many watched keys\r\n");
    // Those before are watched all the same.
    ask(&mut world, &other, &["SET", "key7", "x"]);
    ask(&mut world, &client, &["MULTI"]);
    assert_eq!(ask(&mut world, &client, &["EXEC"]), "*-1\r\n");
    assert_eq!(ask(&mut world, &client, &["WATCH", &names[1 << 16]]), "+OK\r\n");
}

#[test]
fn a_monitor_that_does_not_read_is_closed_by_what_others_do() {
    let options = [("client-output-buffer-limit", "pubsub 65536 0 0")];
    let mut world = world_with(&options);
    let (monitor, other) = (world.sim().connect(), world.sim().connect());
    assert_eq!(ask(&mut world, &monitor, &["MONITOR"]), "+OK\r\n");
    monitor.set_window(0);
    let word = "x".repeat(4096);
    for _ in 0..10 {
        ask(&mut world, &other, &["ECHO", &word]);
    }
    assert!(!monitor.is_closed());
    for _ in 0..10 {
        ask(&mut world, &other, &["ECHO", &word]);
    }
    assert!(monitor.is_closed());
    assert_eq!(ask(&mut world, &other, &["PING"]), "+PONG\r\n");
}

/// Seconds that a client stays connected that leaves `unread` bytes or so of its replies unread.
#[track_caller]
fn check_unread(limits: &str, unread_bytes: usize, expected: std::ops::Range<u64>) {
    const SECONDS_MAX: u64 = 20;
    let mut world = world_with(&[("client-output-buffer-limit", limits)]);
    let client = world.sim().connect();
    client.set_window(0);
    send(&client, &["ECHO", &"x".repeat(unread_bytes)]);
    run(&mut world);
    let mut seconds = 0;
    while !client.is_closed() && seconds < SECONDS_MAX {
        // In small steps, as the ticks of a reactor come.
        for _ in 0..100 {
            world.advance(SECOND_NS / 100);
            run(&mut world);
        }
        seconds += 1;
    }
    assert!(expected.contains(&seconds), "{limits}: {seconds} s");
}

#[test]
fn who_does_not_read_is_closed_at_the_hard_limit_or_a_while_after_the_soft_one() {
    check_unread("normal 0 0 0", 400_000, 20..21);
    check_unread("normal 100000 0 0", 50_000, 20..21);
    check_unread("normal 100000 0 0", 400_000, 0..3);
    check_unread("normal 0 100000 5", 50_000, 20..21);
    check_unread("normal 0 100000 5", 400_000, 5..8);
    check_unread("normal 1000000 100000 5", 400_000, 5..8);
    check_unread("pubsub 1000 1000 1", 400_000, 20..21);
}

#[test]
fn a_command_is_found_anew_where_the_one_before_was_another() {
    let mut world = world_with(&[]);
    let client = world.sim().connect();
    for words in [
        &["CLIENT", "GETNAME"][..],
        &["CLIENT", "SETNAME", "me"],
        &["CLIENT", "GETNAME"],
        &["client", "getname"],
        &["ECHO", "a"],
        &["ECHO", "b"],
        &["CLIENT", "NONSENSE"],
        &["NONSENSE"],
        &["NONSENSE", "again"],
        &["PING"],
    ] {
        send(&client, words);
    }
    run(&mut world);
    let replies = String::from_utf8(client.received()).unwrap();
    let lines: Vec<&str> = replies.lines().collect();
    let (known, rest) = lines.split_at(10);
    assert_eq!(known, ["$-1", "+OK", "$2", "me", "$2", "me", "$1", "a", "$1", "b"]);
    assert!(rest[..3].iter().all(|line| line.starts_with("-ERR unknown ")), "{rest:?}");
    assert_eq!(rest[3..], ["+PONG"]);
}

/// A page in a browser can have it send a form to any port of its machine.
#[test]
fn requests_after_a_line_of_http_do_not_run() {
    for line in ["POST / HTTP/1.1", "Host: localhost", "hOSt:", "post"] {
        let mut world = world_with(&[]);
        let client = world.sim().connect();
        client.send(format!("SET before 1\r\n{line}\r\nSET after 1\r\n").as_bytes());
        run(&mut world);
        assert!(client.is_ended(), "{line}");
        let other = world.sim().connect();
        let found = ask(&mut world, &other, &["MGET", "before", "after"]);
        assert_eq!(found, "*2\r\n$1\r\n1\r\n$-1\r\n", "{line}");
    }
}
