//! Hostile clients: small requests that would exhaust memory, and peers that do not read their
//! replies.

use base::units::Limit;
use reactor::SimClient;
use wire::cql::Version;

use super::cql_client::{self, Client as CqlClient};
use super::pubsub_client::send;
use super::world::{Plan, World};
use crate::commands::REPLY_BYTES_MAX;
use crate::protocol::ClientProtocol;

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

/// Runs reactor and log until they are idle.
fn run(world: &mut World) {
    while world.write_log() | world.step(0) {}
}

/// Sends one request and returns the replies so far, as text.
fn ask(world: &mut World, client: &SimClient, words: &[&str]) -> String {
    send(client, words);
    run(world);
    String::from_utf8(client.received()).unwrap()
}

/// A request that returns one large value too many times for a reply is refused. The connection
/// stays open, and a request within the limit is served.
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
fn replies_of_every_command_have_a_limit() {
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
fn replies_of_a_transaction_share_one_limit() {
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
    // Each key twice.
    for part in names[..1 << 16].chunks(1 << 14).cycle().take(8) {
        let watch: Vec<&str> =
            [&["WATCH"], &part.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat();
        assert_eq!(ask(&mut world, &client, &watch), "+OK\r\n");
    }
    let one_more = ask(&mut world, &client, &["WATCH", "key7", &names[1 << 16]]);
    assert_eq!(one_more, "-ERR too many watched keys\r\n");
    // The earlier keys are still watched.
    ask(&mut world, &other, &["SET", "key7", "x"]);
    ask(&mut world, &client, &["MULTI"]);
    assert_eq!(ask(&mut world, &client, &["EXEC"]), "*-1\r\n");
    assert_eq!(ask(&mut world, &client, &["WATCH", &names[1 << 16]]), "+OK\r\n");
}

#[test]
fn a_wrong_password_is_delayed_and_blocks_no_other_client() {
    const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let mut world = world_with(&[("requirepass", "secret")]);
    let (guesser, other) = (world.sim().connect(), world.sim().connect());
    for guess in [&["AUTH", "guess"][..], &["HELLO", "2", "AUTH", "default", "guess"]] {
        send(&guesser, guess);
        send(&guesser, &["PING"]);
        run(&mut world);
        assert_eq!(guesser.received(), b"");
        assert_eq!(ask(&mut world, &other, &["AUTH", "secret"]), "+OK\r\n");
        world.advance(SECOND_NS);
        run(&mut world);
        let replies = String::from_utf8(guesser.received()).unwrap();
        assert_eq!(replies, format!("{WRONG}-NOAUTH Authentication required.\r\n"), "{guess:?}");
    }
    // An authenticated connection does not guess, so its reply is not delayed.
    assert_eq!(ask(&mut world, &other, &["AUTH", "guess"]), WRONG);
    assert_eq!(ask(&mut world, &other, &["PING"]), "+PONG\r\n");
}

#[test]
fn a_monitor_that_does_not_read_is_closed() {
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

/// Checks how many seconds a client stays connected that leaves about `unread` bytes of its replies
/// unread.
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
        // In small steps, like the ticks of a reactor.
        for _ in 0..100 {
            world.advance(SECOND_NS / 100);
            run(&mut world);
        }
        seconds += 1;
    }
    assert!(expected.contains(&seconds), "{limits}: {seconds} s");
}

#[test]
fn slow_readers_are_closed_at_the_hard_limit_or_after_the_soft_one() {
    check_unread("normal 0 0 0", 400_000, 20..21);
    check_unread("normal 100000 0 0", 50_000, 20..21);
    check_unread("normal 100000 0 0", 400_000, 0..3);
    check_unread("normal 0 100000 5", 50_000, 20..21);
    check_unread("normal 0 100000 5", 400_000, 5..8);
    check_unread("normal 1000000 100000 5", 400_000, 5..8);
    check_unread("pubsub 1000 1000 1", 400_000, 20..21);
}

#[test]
fn a_different_command_is_looked_up_again() {
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

/// A web page can make a browser send a form to any port of its machine.
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

/// However a transaction ends, its watches are removed from the stripes, and their memory is freed.
#[test]
fn watches_end_with_their_transaction() {
    let endings: [&[&[&str]]; 7] = [
        &[&["UNWATCH"]],
        &[&["RESET"]],
        &[&["MULTI"], &["DISCARD"]],
        &[&["MULTI"], &["EXEC"]],
        &[&["MULTI"], &["NONSENSE"], &["EXEC"]],
        &[&["MULTI"], &["EXEC", "refused"], &["EXEC"]],
        &[&["QUIT"]],
    ];
    for ending in endings {
        let mut world = world_with(&[]);
        let client = world.sim().connect();
        let long = "n".repeat(100_000);
        ask(&mut world, &client, &["WATCH", "a", "b", &long]);
        ask(&mut world, &client, &["SELECT", "3"]);
        ask(&mut world, &client, &["WATCH", "a"]);
        assert_eq!(world.shared().keyspace.watched_keys(), 4);
        for request in ending {
            ask(&mut world, &client, request);
        }
        assert_eq!(world.shared().keyspace.watched_keys(), 0, "{ending:?}");
        let used = ask(&mut world, &client, &["INFO", "memory"]);
        let tracked = world.shared().memory.call.of(ClientProtocol::Resp).current_bytes();
        assert_eq!(tracked, 0, "{ending:?}: {used}");
    }
}

/// Names of watched keys are counted and bounded in bytes.
#[test]
fn names_of_watched_keys_have_a_limit_in_bytes() {
    let mut world = world_with(&[]);
    let client = world.sim().connect();
    let long = "n".repeat(1 << 20);
    let names: Vec<String> = (0..65).map(|number| format!("{number}{long}")).collect();
    for (number, name) in names.iter().enumerate() {
        let reply = ask(&mut world, &client, &["WATCH", name]);
        assert_eq!(reply == "+OK\r\n", number < 63, "{number}: {reply}");
    }
    ask(&mut world, &client, &["PING"]);
    assert!(world.shared().memory.call.of(ClientProtocol::Resp).current_bytes() > 2 * (63 << 20));
}

/// A command that would process more elements than the limit is refused before it changes anything.
#[test]
fn a_command_processes_a_limited_number_of_elements() {
    const MAX: &str = "100";
    let mut world = world_with(&[("long-request-threads", "0")]);
    let client = world.sim().connect();
    let numbers: Vec<String> = (0..101).map(|number| number.to_string()).collect();
    for (command, key, pairs) in
        [("RPUSH", "l", false), ("SADD", "s", false), ("HSET", "h", true), ("ZADD", "z", true)]
    {
        let mut fill = vec![command, key];
        for number in &numbers {
            fill.push(number);
            fill.extend(pairs.then_some(number.as_str()));
        }
        ask(&mut world, &client, &fill);
    }
    ask(&mut world, &client, &["CONFIG", "SET", "elements-per-command-max", MAX]);
    let refused = "LRANGE l 0 -1;LPOP l 101;RPOP l 101;LMPOP 1 l LEFT COUNT 101;LTRIM l 1 0;LPOS l x;\
        LREM l 0 1;LINSERT l BEFORE x y;SMEMBERS s;SPOP s 13;SRANDMEMBER s 101;SUNION s;SDIFF s;\
        SINTER s s;SINTERCARD 1 s;SUNIONSTORE d s;SDIFFSTORE d s;SINTERSTORE d s s;HGETALL h;HKEYS h;\
        HVALS h;HRANDFIELD h 101;ZRANGE z 0 -1;ZREVRANGE z 0 -1;ZRANGEBYSCORE z 0 inf;\
        ZRANGESTORE d z 0 6;ZUNION 1 z;ZINTER 1 z;ZDIFF 1 z;ZINTERCARD 1 z;ZUNIONSTORE d 1 z;\
        ZPOPMIN z 13;ZMPOP 1 z MIN COUNT 13;ZREMRANGEBYRANK z 0 12;ZRANDMEMBER z 7;RENAME l d;\
        COPY s d;MOVE h 1";
    let text =
        "-ERR the command would process more elements than elements-per-command-max allows\r\n";
    for request in refused.split(';') {
        let words: Vec<&str> = request.split_whitespace().collect();
        assert_eq!(ask(&mut world, &client, &words), text, "{request}");
    }
    for (command, key) in [("LLEN", "l"), ("SCARD", "s"), ("HLEN", "h"), ("ZCARD", "z")] {
        assert_eq!(ask(&mut world, &client, &[command, key]), ":101\r\n", "{key} is unchanged");
    }
    assert_eq!(ask(&mut world, &client, &["EXISTS", "d"]), ":0\r\n");
    for request in ["LRANGE l 0 99", "SPOP s 12", "ZRANGE z 1 -1", "LPOS l x MAXLEN 100"] {
        let words: Vec<&str> = request.split_whitespace().collect();
        assert!(!ask(&mut world, &client, &words).starts_with('-'), "{request}");
    }
    // The limit applies to all commands of a transaction together.
    ask(&mut world, &client, &["MULTI"]);
    ask(&mut world, &client, &["LRANGE", "l", "0", "59"]);
    ask(&mut world, &client, &["LRANGE", "l", "0", "59"]);
    let replies = ask(&mut world, &client, &["EXEC"]);
    assert!(replies.starts_with("*2\r\n*60\r\n") && replies.ends_with(text), "{replies}");
    ask(&mut world, &client, &["CONFIG", "SET", "elements-per-command-max", "0"]);
    assert!(ask(&mut world, &client, &["HGETALL", "h"]).starts_with("*202\r\n"));
}

/// An event about a key costs as much as its change, so half as many keys may be changed.
#[test]
fn events_count_towards_what_a_command_processes() {
    let mut world = world_with(&[("elements-per-command-max", "20000")]);
    let client = world.sim().connect();
    let keys: Vec<String> = (0..1_100).map(|number| number.to_string()).collect();
    let delete: Vec<&str> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    let queued = |world: &mut World| {
        ask(world, &client, &["MULTI"]);
        let is_queued = |_: &i32| ask(world, &client, &["INCR", "n"]) == "+QUEUED\r\n";
        let count = (0..2_000).take_while(is_queued).count();
        ask(world, &client, &["DISCARD"]);
        count
    };
    assert_eq!(ask(&mut world, &client, &delete), ":0\r\n");
    assert_eq!(queued(&mut world), 20_000 / 16);
    ask(&mut world, &client, &["CONFIG", "SET", "notify-keyspace-events", "KEA"]);
    assert!(ask(&mut world, &client, &delete).contains("would process more elements"));
    assert_eq!(queued(&mut world), 20_000 / 24);
    let some: Vec<&str> = delete.iter().copied().take(1_025).collect();
    ask(&mut world, &client, &["CONFIG", "SET", "elements-per-command-max", "32800"]);
    assert_eq!(ask(&mut world, &client, &some), ":0\r\n");
}

/// A reply that becomes too large is refused while it is built, and the elements that the command
/// would remove stay.
#[test]
fn a_large_collection_is_refused_while_its_reply_is_built() {
    let mut world = world_with(&[]);
    let client = world.sim().connect();
    let value = "v".repeat(REPLY_BYTES_MAX / 4);
    for number in ["0", "1", "2", "3", "4", "5", "6", "7"] {
        let element = format!("{number}{value}");
        ask(&mut world, &client, &["RPUSH", "l", &element]);
        ask(&mut world, &client, &["SADD", "s", &element]);
        ask(&mut world, &client, &["HSET", "h", &element, number]);
        ask(&mut world, &client, &["ZADD", "z", number, &element]);
        ask(&mut world, &client, &["SET", &element, number]);
    }
    let requests = "LRANGE l 0 -1;LPOP l 8;RPOP l 7;LMPOP 1 l LEFT COUNT 8;SMEMBERS s;SUNION s;SINTER s;\
        SDIFF s;SPOP s 7;SPOP s 8;SRANDMEMBER s 8;HGETALL h;HKEYS h;HRANDFIELD h 8;HRANDFIELD h 7;\
        ZRANGE z 0 -1;ZREVRANGE z 0 -1;ZPOPMIN z 8;ZPOPMAX z 7;ZUNION 1 z;ZRANDMEMBER z 8;KEYS *;\
        SCAN 0 COUNT 1000000";
    for request in requests.split(';') {
        let words: Vec<&str> = request.split_whitespace().collect();
        let reply = ask(&mut world, &client, &words);
        assert_eq!(reply, "-ERR reply is too large\r\n", "{request}");
        ask(&mut world, &client, &["PING"]);
    }
    for (command, key) in [("LLEN", "l"), ("SCARD", "s"), ("HLEN", "h"), ("ZCARD", "z")] {
        assert_eq!(ask(&mut world, &client, &[command, key]), ":8\r\n", "{key} is unchanged");
    }
}

/// Leaves `bytes` of `memory-limit`.
fn leave(world: &World, bytes: u64) {
    let server = &world.shared().memory.server;
    server.set_limit(Limit::Bytes(server.current_bytes() + bytes));
}

/// The limits of the test above, by what `memory-limit` leaves: the connection stays open, and all
/// reservations end.
#[test]
fn replies_follow_the_memory_limit() {
    const VALUE_BYTES: usize = 40 << 10;
    const FREE_BYTES: u64 = 400 << 10;
    let mut world = world_with(&[("read-buffer-memory-limit", "0")]);
    let client = world.sim().connect();
    let value = "v".repeat(VALUE_BYTES);
    for number in ["0", "1", "2", "3", "4", "5", "6", "7"] {
        let element = format!("{number}{value}");
        ask(&mut world, &client, &["RPUSH", "l", &element]);
        ask(&mut world, &client, &["SADD", "s", &element]);
        ask(&mut world, &client, &["HSET", "h", &element, &element]);
        ask(&mut world, &client, &["ZADD", "z", number, &element]);
        ask(&mut world, &client, &["APPEND", "big", &element]);
        ask(&mut world, &client, &["SET", "value", &element]);
    }
    leave(&world, FREE_BYTES);
    let requests = "LRANGE l 0 -1;LPOP l 8;RPOP l 7;LMPOP 1 l LEFT COUNT 8;SMEMBERS s;SUNION s;SINTER s;\
        SDIFF s;SPOP s 7;SPOP s 8;SRANDMEMBER s 8;HGETALL h;HKEYS h;HRANDFIELD h 8;HRANDFIELD h 7;\
        ZRANGE z 0 -1;ZREVRANGE z 0 -1;ZPOPMIN z 8;ZPOPMAX z 7;ZUNION 1 z;ZRANDMEMBER z 8;\
        GET big;GETDEL big;GETRANGE big 0 -1;GETEX big PERSIST;MGET value value value value value value;\
        SORT l BY nosort;DUMP big;DUMP h;HVALS h;\
        EVAL_TABLE;EVAL_STRING;EVAL_CALL";
    let script_table =
        "local s = redis.call('GET', 'value') local t = {} for i = 1, 8 do t[i] = s end return t";
    let script_string = "return string.rep(redis.call('GET', 'value'), 8)";
    let script_call = "return redis.call('GET', 'big')";
    let reply_max = usize::try_from(FREE_BYTES).unwrap();
    for request in requests.split(';') {
        let words: Vec<&str> = match request {
            "EVAL_TABLE" => vec!["EVAL", script_table, "0"],
            "EVAL_STRING" => vec!["EVAL", script_string, "0"],
            "EVAL_CALL" => vec!["EVAL", script_call, "0"],
            _ => request.split_whitespace().collect(),
        };
        let reply = ask(&mut world, &client, &words);
        assert!(reply.starts_with("-OOM "), "{request}: {reply:.100}");
        assert!(reply.len() < reply_max, "{request}");
        assert_eq!(ask(&mut world, &client, &["PING"]), "+PONG\r\n", "{request}");
        let reserved = world.shared().memory.output.all.current_bytes();
        assert_eq!(reserved, 0, "{request}");
    }
    for (command, key) in [("LLEN", "l"), ("SCARD", "s"), ("HLEN", "h"), ("ZCARD", "z")] {
        assert_eq!(ask(&mut world, &client, &[command, key]), ":8\r\n", "{key} is unchanged");
    }
    assert_eq!(
        ask(&mut world, &client, &["STRLEN", "big"]),
        format!(":{}\r\n", 8 * (VALUE_BYTES + 1))
    );
    ask(&mut world, &client, &["MULTI"]);
    for _ in 0..8 {
        ask(&mut world, &client, &["GET", "value"]);
    }
    let reply = ask(&mut world, &client, &["EXEC"]);
    assert!(reply.starts_with("*8\r\n$40961\r\n"), "{reply:.60}");
    assert!(reply.contains("-OOM memory limit of server reached"), "the last ones are refused");
    assert!(reply.len() < reply_max);
    assert_eq!(ask(&mut world, &client, &["GET", "value"]).len(), VALUE_BYTES + 11);
}

/// Clients that do not read, each with a reply within the limit, together stay below it.
#[test]
fn unread_replies_of_many_clients_follow_the_memory_limit() {
    const FREE_BYTES: u64 = 1 << 20;
    const CLIENTS: usize = 60;
    let mut world = world_with(&[("read-buffer-memory-limit", "0")]);
    let client = world.sim().connect();
    ask(&mut world, &client, &["SET", "large", &"v".repeat(40 << 10)]);
    ask(&mut world, &client, &["SET", "small", &"v".repeat(10 << 10)]);
    let large: &[&str] = &["GET", "large"];
    let small: &[&str] = &["GET", "small"];
    let blocked: &[&str] = &["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"];
    for (request, times) in [(large, 10), (small, 100), (blocked, 1)] {
        let greedy: Vec<SimClient> = (0..CLIENTS).map(|_| world.sim().connect()).collect();
        run(&mut world);
        leave(&world, FREE_BYTES);
        // The next tick shares what is left among the connections.
        world.advance(SECOND_NS);
        run(&mut world);
        for client in &greedy {
            client.set_window(0);
            for _ in 0..times {
                send(client, request);
            }
            run(&mut world);
        }
        if times == 1 {
            ask(&mut world, &client, &["XADD", "stream", "*", "f", &"v".repeat(40 << 10)]);
        }
        let server = &world.shared().memory.server;
        let (held, limit) = (server.current_bytes(), server.limit_bytes().unwrap());
        assert!(held > limit - FREE_BYTES / 2, "{request:?}: {held} of {limit}");
        assert!(held < limit + FREE_BYTES / 4, "{request:?}: {held} of {limit}");
        assert_eq!(ask(&mut world, &client, &["PING"]), "+PONG\r\n");
        for client in &greedy {
            client.reset();
        }
        world.shared().memory.server.set_limit(Limit::None);
        world.advance(SECOND_NS);
        run(&mut world);
    }
}

/// What a command makes its reply from counts, however short the reply is.
#[test]
fn what_a_reply_is_made_from_follows_the_memory_limit() {
    const FREE_BYTES: u64 = 400 << 10;
    let mut world = world_with(&[("read-buffer-memory-limit", "0")]);
    let client = world.sim().connect();
    for number in ["0", "1", "2", "3", "4", "5", "6", "7"] {
        let element = format!("{number}{}", "v".repeat(40 << 10));
        ask(&mut world, &client, &["RPUSH", "l", &element]);
        for key in ["s", "s2"] {
            ask(&mut world, &client, &["SADD", key, &element]);
        }
        for key in ["z", "z2"] {
            ask(&mut world, &client, &["ZADD", key, number, &element]);
        }
        ask(&mut world, &client, &["GEOADD", "g", "1", "1", &element]);
    }
    ask(&mut world, &client, &["SET", "text", &"v".repeat(1000)]);
    let requests = [
        ("LCS text text LEN", ":1000\r\n"),
        ("SORT l BY nosort GET none_*", "*8\r\n$-1"),
        ("SORT l ALPHA GET none_*", "*8\r\n$-1"),
        ("SDIFF s s2", "*0"),
        ("ZDIFF 2 z z2", "*0"),
        ("GEOSEARCHSTORE copy g FROMLONLAT 1 1 BYRADIUS 9 km", ":8"),
    ];
    for limit in [None, Some(FREE_BYTES)] {
        if let Some(bytes) = limit {
            leave(&world, bytes);
            world.advance(SECOND_NS);
            run(&mut world);
        }
        for (request, expected) in requests {
            let words: Vec<&str> = request.split_whitespace().collect();
            let reply = ask(&mut world, &client, &words);
            let expected = if limit.is_some() { "-OOM " } else { expected };
            assert!(reply.starts_with(expected), "{request}: {reply:.100}");
            assert_eq!(world.shared().memory.output.all.current_bytes(), 0, "{request}");
        }
        ask(&mut world, &client, &["DEL", "copy"]);
    }
}

/// Responses of CQL: one that is too large, and many of clients that do not read.
#[test]
fn responses_of_cql_follow_the_memory_limit() {
    const FREE_BYTES: u64 = 1 << 20;
    const CLIENTS: usize = 60;
    const REQUESTS: i16 = 10;
    let mut world = world_with(&[("read-buffer-memory-limit", "0"), ("cql", "127.0.0.1:0")]);
    world.shared().catalog.store(cql::schema::builtin());
    let resp = world.sim().connect();
    ask(&mut world, &resp, &["SET", "large", &"v".repeat(400 << 10)]);
    ask(&mut world, &resp, &["SET", "value", &"v".repeat(40 << 10)]);
    let mut client = CqlClient::start(&mut world, Version::V4, None);
    let select =
        |key: &str| format!("SELECT value FROM redis.strings WHERE key = textAsBlob('{key}')");
    leave(&world, FREE_BYTES);
    let reply = cql_client::ask(&mut world, &mut client, &select("large"));
    assert!(reply.contains("memory limit of server"), "{reply:.100}");
    // All at once, of which each alone has room.
    (0..REQUESTS).for_each(|stream| client.query(stream, &select("value")));
    assert_eq!(cql_client::answers(&mut world, &mut client).len(), 10, "each is answered");
    let greedy: Vec<CqlClient> =
        (0..CLIENTS).map(|_| CqlClient::start(&mut world, Version::V4, None)).collect();
    leave(&world, FREE_BYTES);
    world.advance(SECOND_NS);
    run(&mut world);
    for client in &greedy {
        client.sim.set_window(0);
        (0..REQUESTS).for_each(|stream| client.query(stream, &select("value")));
        run(&mut world);
    }
    let server = &world.shared().memory.server;
    let (held, limit) = (server.current_bytes(), server.limit_bytes().unwrap());
    assert!(held > limit - FREE_BYTES / 2, "{held} of {limit}");
    assert!(held < limit + FREE_BYTES / 4, "{held} of {limit}");
    assert_eq!(ask(&mut world, &resp, &["PING"]), "+PONG\r\n");
}

/// A payload of RESTORE for a string of `len` bytes that are equal: 88 of them for one of input.
fn compressed_payload(len: usize) -> Vec<u8> {
    const COPY_BYTES: usize = 264;
    let mut compressed = vec![0, b'v'];
    let copies = (len - 1) / COPY_BYTES;
    assert_eq!(1 + copies * COPY_BYTES, len, "one literal, then whole copies");
    compressed.extend_from_slice(&[0xe0, 0xff, 0].repeat(copies));
    let mut payload = vec![0, 0xc3];
    for number in [compressed.len(), len] {
        payload.push(0x80);
        payload.extend_from_slice(&u32::try_from(number).unwrap().to_be_bytes());
    }
    payload.extend_from_slice(&compressed);
    wire::rdb::end_payload(&mut payload, wire::rdb::Version::WRITTEN);
    payload
}

/// The size of a compressed string is checked before it is decompressed, against all that limits
/// it.
#[test]
fn a_compressed_string_is_limited_before_it_is_decompressed() {
    const LEN: usize = 1 + 8_000 * 264;
    let mut world = world_with(&[("read-buffer-memory-limit", "0"), ("long-request-threads", "0")]);
    let client = world.sim().connect();
    let payload = compressed_payload(LEN);
    let restore = |world: &mut World| {
        let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &payload, b"REPLACE"];
        let mut request = Vec::new();
        wire::resp::encode_request(&words, &mut request);
        client.send(&request);
        run(world);
        String::from_utf8(client.received()).unwrap()
    };
    assert_eq!(restore(&mut world), "+OK\r\n");
    let configure = |world: &mut World, name: &str, value: &str| {
        let admin = world.sim().connect();
        assert_eq!(ask(world, &admin, &["CONFIG", "SET", name, value]), "+OK\r\n");
    };
    configure(&mut world, "proto-max-bulk-len", "2mb");
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    assert_eq!(restore(&mut world), too_long);
    configure(&mut world, "proto-max-bulk-len", "512mb");
    configure(&mut world, "elements-per-command-max", "4000");
    assert!(restore(&mut world).contains("elements-per-command-max"), "4,000 times 512 bytes");
    configure(&mut world, "elements-per-command-max", "5000");
    assert_eq!(restore(&mut world), "+OK\r\n");
    leave(&world, 2 * LEN as u64);
    world.advance(SECOND_NS);
    run(&mut world);
    assert!(restore(&mut world).starts_with("-OOM "), "it would be there four times");
}

#[test]
fn command_docs_has_a_limit_of_names() {
    let mut world = world_with(&[]);
    let client = world.sim().connect();
    for subcommand in ["DOCS", "INFO"] {
        for (count, is_refused) in [(512, false), (513, true)] {
            let mut words = vec!["COMMAND", subcommand];
            words.resize(2 + count, "get");
            let reply = ask(&mut world, &client, &words);
            assert_eq!(reply == "-ERR too many command names\r\n", is_refused, "{count}");
        }
    }
}

#[test]
fn connections_without_a_password_do_not_use_up_maxclients() {
    let mut world = world_with(&[("requirepass", "secret"), ("maxclients", "8")]);
    let connect = |world: &mut World| world.sim().connect();
    let good = connect(&mut world);
    assert_eq!(ask(&mut world, &good, &["AUTH", "secret"]), "+OK\r\n");
    let strangers: Vec<SimClient> = (0..6).map(|_| connect(&mut world)).collect();
    run(&mut world);
    assert_eq!(ask(&mut world, &strangers[1], &["AUTH", "secret"]), "+OK\r\n");
    assert!(!strangers.iter().any(SimClient::is_ended), "they have a second to authenticate");
    world.advance(SECOND_NS);
    run(&mut world);
    let ended: Vec<bool> = strangers.iter().map(SimClient::is_ended).collect();
    assert_eq!(ended, [true, false, false, false, false, false], "half of maxclients remain");
    let refusal = String::from_utf8(strangers[0].received()).unwrap();
    assert_eq!(refusal, "-ERR too many connections have not authenticated\r\n");
    for client in [&good, &strangers[1]] {
        assert_eq!(ask(&mut world, client, &["PING"]), "+PONG\r\n");
    }
    assert_eq!(ask(&mut world, &strangers[2], &["AUTH", "secret"]), "+OK\r\n");
    assert_eq!(world.shared().totals().closed_newcomers, 1);
}

#[test]
fn clients_of_cql_that_do_not_authenticate_are_limited_if_they_must() {
    const CQL: usize = 1;
    for (password, expected) in [("secret", [true, true, false, false]), ("", [false; 4])] {
        let options = [("requirepass", password), ("maxclients", "4"), ("cql", "127.0.0.1:0")];
        let mut world = world_with(&options);
        let strangers: Vec<SimClient> = (0..4).map(|_| world.sim().connect_to(CQL)).collect();
        run(&mut world);
        world.advance(SECOND_NS);
        run(&mut world);
        let ended: Vec<bool> = strangers.iter().map(SimClient::is_ended).collect();
        assert_eq!(ended, expected, "password {password:?}");
    }
}
