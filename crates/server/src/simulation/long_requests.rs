//! Requests that process more elements than `elements-per-command-max` run outside the reactors.

use base::units::Limit;
use reactor::SimClient;

use super::http_client::{self, Client};
use super::pubsub_client::{received, send};
use super::world::{Plan, World};
use crate::protocol::ClientProtocol;

const SEED: u64 = 1;
const MAX: &str = "100";
const TOO_MANY: &str =
    "-ERR the command would process more elements than elements-per-command-max allows\r\n";

fn world_with(options: &[(&'static str, &str)]) -> World {
    let all = [("enable-debug-command", "yes")].iter().chain(options);
    let options = all.map(|(name, value)| (*name, (*value).to_owned())).collect();
    World::new(SEED, Plan { reactors: 1, options, ..Plan::default() })
}

fn run(world: &mut World) {
    while world.write_log() | world.step(0) {}
}

fn ask(world: &mut World, client: &SimClient, request: &str) -> String {
    send(client, &request.split_whitespace().collect::<Vec<_>>());
    run(world);
    received(client)
}

/// Sends a request that its reactor hands over.
fn begin(world: &mut World, client: &SimClient, request: &str) {
    send(client, &request.split_whitespace().collect::<Vec<_>>());
    while world.step(0) {}
    assert_eq!(received(client), "", "{request}");
}

/// The reply to a request that its reactor hands over.
fn ask_long(world: &mut World, client: &SimClient, request: &str) -> String {
    begin(world, client, request);
    assert!(world.run_long_requests(), "{request} ran on its reactor");
    run(world);
    received(client)
}

/// Fills keys with 101 elements each.
fn fill(world: &mut World, client: &SimClient) {
    let numbers: Vec<String> = (0..101).map(|number| number.to_string()).collect();
    for (command, key, pairs) in
        [("RPUSH", "l", false), ("SADD", "s", false), ("HSET", "h", true), ("ZADD", "z", true)]
    {
        let mut words = vec![command, key];
        for number in &numbers {
            words.push(number);
            words.extend(pairs.then_some(number.as_str()));
        }
        send(client, &words);
        run(world);
    }
    for number in &numbers {
        send(client, &["XADD", "x", &format!("1-{}", number.len() * 1000), "f", number]);
        send(client, &["XADD", "y", "*", "f", number]);
        send(client, &["SET", &format!("k{number}"), number]);
    }
    let long = "v".repeat(60_000);
    send(client, &["SET", "string", &long]);
    run(world);
    received(client);
}

/// Requests above the limit, each of which runs alone.
const LONG: &str = "LRANGE l 0 -1;LPOS l x;SMEMBERS s;SRANDMEMBER s 101;SUNION s;SDIFF s;SINTER s s;\
    SINTERCARD 2 s s LIMIT 3;SUNIONSTORE d s;SDIFFSTORE d s;SINTERSTORE d s s;HGETALL h;HKEYS h;HVALS h;\
    ZRANGE z 0 -1;ZREVRANGE z 0 -1;ZRANGEBYSCORE z 0 inf;ZRANGESTORE d z 0 6;ZUNION 1 z WITHSCORES;\
    ZINTER 1 z;ZDIFF 1 z;ZINTERCARD 2 z z LIMIT 2;ZUNIONSTORE d 1 z;SORT s LIMIT 0 3;SORT l DESC;\
    SORT l ALPHA LIMIT 50 2 STORE d;XRANGE y - + COUNT 50;BITCOUNT string;DUMP s;DUMP z;DEBUG DIGEST;\
    DEBUG DIGEST-VALUE l s h z;DEBUG POPULATE 200 p;DEBUG DIGEST;COPY s d REPLACE;COPY z e;RENAME l m;\
    RENAMENX h i;RENAME s d;MOVE d 1;LINSERT m BEFORE x y;LREM m 0 5;LTRIM m 101 0;ZPOPMIN z 13;\
    ZMPOP 1 z MIN COUNT 13;ZREMRANGEBYRANK z 0 12;GEORADIUS z 0 0 1 m;LMPOP 1 m LEFT COUNT 100";

/// The same replies and the same data, whatever runs them.
#[test]
fn a_long_request_has_the_same_result_as_on_its_reactor() {
    let mut here = world_with(&[("elements-per-command-max", "0")]);
    let mut there = world_with(&[("elements-per-command-max", MAX)]);
    let (of_here, of_there) = (here.sim().connect(), there.sim().connect());
    fill(&mut here, &of_here);
    fill(&mut there, &of_there);
    let mut long = 0;
    for request in LONG.split(';') {
        send(&of_here, &request.split_whitespace().collect::<Vec<_>>());
        run(&mut here);
        send(&of_there, &request.split_whitespace().collect::<Vec<_>>());
        while there.step(0) {}
        long += usize::from(there.run_long_requests());
        run(&mut there);
        assert_eq!(of_there.received(), of_here.received(), "{request}");
        let digest = ask(&mut here, &of_here, "DEBUG DIGEST");
        assert_eq!(ask(&mut there, &of_there, "DEBUG DIGEST"), digest, "after {request}");
    }
    assert!(long > 40, "{long} requests ran on a thread");
}

/// A payload of more elements than the limit is restored on a thread.
#[test]
fn a_long_payload_is_restored() {
    let mut world = world_with(&[]);
    let client = world.sim().connect();
    fill(&mut world, &client);
    client.send(b"*2\r\n$4\r\nDUMP\r\n$1\r\ns\r\n");
    run(&mut world);
    let reply = client.received();
    let start = reply.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
    let payload = &reply[start..reply.len() - 2];
    ask(&mut world, &client, &format!("CONFIG SET elements-per-command-max {MAX}"));
    let mut request = Vec::new();
    wire::resp::encode_request(&[b"RESTORE", b"r", b"0", payload], &mut request);
    client.send(&request);
    while world.step(0) {}
    assert!(world.run_long_requests());
    run(&mut world);
    assert_eq!(received(&client), "+OK\r\n");
    assert_eq!(ask(&mut world, &client, "SCARD r"), ":101\r\n");
}

#[test]
fn others_are_served_while_a_long_request_waits() {
    let mut world = world_with(&[("elements-per-command-max", MAX)]);
    let (client, other) = (world.sim().connect(), world.sim().connect());
    fill(&mut world, &client);
    begin(&mut world, &client, "SMEMBERS s");
    send(&client, &["PING"]);
    send(&other, &["GET", "k7"]);
    send(&other, &["INFO", "clients"]);
    while world.step(0) {}
    let replies = received(&other);
    assert!(replies.starts_with("$1\r\n7\r\n") && replies.contains("blocked_clients:1\r\n"));
    assert_eq!(received(&client), "", "its next request waits for the reply before it");
    run(&mut world);
    let replies = received(&client);
    assert!(replies.starts_with("*101\r\n") && replies.ends_with("+PONG\r\n"), "{replies}");
    let statistics = ask(&mut world, &other, "INFO all");
    assert!(statistics.contains("blocked_clients:0\r\n"));
    assert!(statistics.contains("cmdstat_smembers:calls=1,"), "{statistics}");
}

#[test]
fn the_reply_of_a_long_write_waits_for_the_log() {
    let mut world = world_with(&[("elements-per-command-max", MAX)]);
    let client = world.sim().connect();
    fill(&mut world, &client);
    begin(&mut world, &client, "RENAME s t");
    assert!(world.run_long_requests());
    while world.step(0) {}
    assert_eq!(received(&client), "", "the record is not durable");
    run(&mut world);
    assert_eq!(received(&client), "+OK\r\n");
}

/// What a client that disconnects has requested does not run, and its memory is released.
#[test]
fn a_client_may_leave_before_its_long_request_runs() {
    let mut world = world_with(&[("elements-per-command-max", MAX)]);
    let (client, other) = (world.sim().connect(), world.sim().connect());
    fill(&mut world, &other);
    run(&mut world);
    let charged = |world: &mut World| {
        world.advance(1_000_000_000);
        run(world);
        world.shared().memory.call.of(ClientProtocol::Resp).current_bytes()
    };
    let before = charged(&mut world);
    begin(&mut world, &client, "RENAME s t");
    client.close();
    while world.step(0) {}
    run(&mut world);
    assert_eq!(ask(&mut world, &other, "EXISTS s t"), ":1\r\n");
    assert_eq!(ask(&mut world, &other, "SCARD s"), ":101\r\n");
    assert_eq!(charged(&mut world), before);
}

/// A client with a cache is notified of changes to what a long request has read.
#[test]
fn a_long_request_is_tracked() {
    let mut world = world_with(&[("elements-per-command-max", MAX)]);
    let (client, other) = (world.sim().connect(), world.sim().connect());
    fill(&mut world, &other);
    ask(&mut world, &client, "HELLO 3");
    assert_eq!(ask(&mut world, &client, "CLIENT TRACKING on"), "+OK\r\n");
    begin(&mut world, &client, "SMEMBERS s");
    send(&other, &["SADD", "s", "new"]);
    while world.step(0) {}
    run(&mut world);
    let replies = received(&client);
    assert!(replies.contains("invalidate") && replies.contains("~102\r\n"), "{replies}");
    received(&other);
    assert_eq!(ask(&mut world, &other, "SADD s newer"), ":1\r\n");
    assert!(received(&client).contains("invalidate"), "the new value is cached");
}

/// A server has a limited number of them. CLIENT PAUSE defers writes.
#[test]
fn long_requests_wait_in_a_limited_queue() {
    let mut world = world_with(&[("elements-per-command-max", MAX)]);
    let admin = world.sim().connect();
    fill(&mut world, &admin);
    let clients: Vec<SimClient> = (0..65).map(|_| world.sim().connect()).collect();
    for client in &clients {
        send(client, &["SMEMBERS", "s"]);
    }
    while world.step(0) {}
    let refused = "-ERR too many requests that process many elements are waiting\r\n";
    assert_eq!(clients.iter().filter(|client| received(client) == refused).count(), 1);
    run(&mut world);
    let served = clients.iter().filter(|client| received(client).starts_with("*101\r\n"));
    assert_eq!(served.count(), 64);

    begin(&mut world, &clients[0], "RENAME s t");
    assert_eq!(ask_here(&mut world, &admin, "CLIENT PAUSE 1000 WRITE"), "+OK\r\n");
    assert!(!world.run_long_requests(), "writes are paused");
    assert_eq!(ask_here(&mut world, &admin, "CLIENT UNPAUSE"), "+OK\r\n");
    assert!(world.run_long_requests());
    run(&mut world);
    assert_eq!(received(&clients[0]), "+OK\r\n");
}

/// A long request needs memory for what it keeps, and a digest keeps nothing.
#[test]
fn long_requests_follow_the_memory_limit() {
    let options = [("elements-per-command-max", MAX), ("read-buffer-memory-limit", "0")];
    let mut world = world_with(&options);
    let client = world.sim().connect();
    fill(&mut world, &client);
    let members: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
    for some in members.chunks(1_000) {
        let words = ["SADD", "s"].into_iter().chain(some.iter().map(String::as_str));
        send(&client, &words.collect::<Vec<_>>());
    }
    run(&mut world);
    received(&client);
    let server = world.shared().memory.server.clone();
    server.set_limit(Limit::Bytes(server.current_bytes() + (100 << 10)));
    let reply = ask_long(&mut world, &client, "SINTERCARD 2 s s");
    assert!(reply.starts_with("-OOM "), "{reply}");
    assert_eq!(ask_long(&mut world, &client, "DEBUG DIGEST").len(), 43);
    server.set_limit(Limit::None);
    assert_eq!(ask_long(&mut world, &client, "SINTERCARD 2 s s"), ":5000\r\n");
}

/// Asks without running long requests.
fn ask_here(world: &mut World, client: &SimClient, request: &str) -> String {
    send(client, &request.split_whitespace().collect::<Vec<_>>());
    while world.step(0) {}
    received(client)
}

/// Where a request is part of another one, or needs all keys, the limit remains one.
#[test]
fn the_limit_remains_in_transactions_scripts_and_http() {
    let mut world = http_client::world_with(&[
        ("elements-per-command-max", MAX),
        ("enable-debug-command", "yes"),
    ]);
    let client = world.sim().connect();
    fill(&mut world, &client);
    for request in ["MULTI", "SMEMBERS s", "DEBUG DIGEST"] {
        ask(&mut world, &client, request);
    }
    assert_eq!(ask(&mut world, &client, "EXEC"), format!("*2\r\n{TOO_MANY}{TOO_MANY}"));
    send(&client, &["EVAL", "return redis.call('SMEMBERS', KEYS[1])", "1", "s"]);
    run(&mut world);
    assert!(received(&client).contains("elements-per-command-max"));
    assert_eq!(ask(&mut world, &client, "KEYS *"), TOO_MANY);
    assert_eq!(ask(&mut world, &client, "SORT l BY k*"), TOO_MANY);
    let mut http = Client::connect(&mut world);
    let answer = http.ask(&mut world, "GET /SMEMBERS/s", "");
    assert!(answer.body.contains("elements-per-command-max"), "{}", answer.body);
    assert!(ask_long(&mut world, &client, "SMEMBERS s").starts_with("*101\r\n"));
}
