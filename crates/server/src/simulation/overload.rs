//! An overloaded reactor refuses old requests for data, in the terms of each protocol.

use reactor::SimClient;
use wire::cql::Version;
use wire::resp::encode_request;

use super::cql_client::Client;
use super::world::{Plan, World};

const HTTP: usize = 2;
const REQUESTS: usize = 50;

fn world(limit_ms: u64) -> World {
    let listeners = [("cql", "127.0.0.1:0"), ("http", "127.0.0.1:0")];
    let mut options: Vec<_> =
        listeners.map(|(name, value)| (name, value.to_owned())).into_iter().collect();
    options.push(("overload-queue-age-ms", limit_ms.to_string()));
    // A request takes about a millisecond, and a turn one for each connection.
    World::new(1, Plan { reactors: 1, step_ns: 200_000, options, ..Plan::default() })
}

fn run(world: &mut World) {
    while world.step(0) || world.write_log() {}
}

fn requests(words: &[&str], count: usize) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut bytes = Vec::new();
    (0..count).for_each(|_| encode_request(&words, &mut bytes));
    bytes
}

/// Clients whose requests are served before those of later clients in each turn.
fn connect(world: &mut World) -> Vec<SimClient> {
    (0..8).map(|_| world.sim().connect()).collect()
}

/// Makes clients send requests for data at once.
fn load(clients: &[SimClient]) {
    for client in clients {
        client.send(&requests(&["GET", "k"], REQUESTS));
    }
}

fn text(client: &SimClient) -> String {
    String::from_utf8(client.received()).expect("text")
}

#[test]
fn an_overloaded_reactor_refuses_old_requests_and_serves_administrators() {
    let mut world = world(2);
    let clients = connect(&mut world);
    load(&clients);
    let (admin, writer) = (world.sim().connect(), world.sim().connect());
    admin.send(&requests(&["PING"], REQUESTS));
    for _ in 0..REQUESTS {
        writer.send(&requests(&["MULTI"], 1));
        writer.send(&requests(&["SET", "other", "v"], 1));
        writer.send(&requests(&["EXEC"], 1));
    }
    run(&mut world);
    let mut refused = 0;
    for client in &clients {
        let replies = text(client);
        assert_eq!(replies.lines().count(), REQUESTS, "{replies}");
        assert!(replies.starts_with("$-1\r\n"), "one long turn is not overload");
        refused += replies.lines().filter(|line| line.starts_with("-TRYAGAIN ")).count();
        assert!(replies.lines().all(|line| line == "$-1" || line.starts_with("-TRYAGAIN ")));
    }
    assert!(refused > 0);
    assert_eq!(text(&admin), "+PONG\r\n".repeat(REQUESTS));
    // A transaction is run as a whole, or not at all.
    let replies = text(&writer);
    let count = |start: &str| replies.lines().filter(|line| line.starts_with(start)).count();
    let (run_whole, aborted) = (count("*1"), count("-EXECABORT"));
    assert!(run_whole > 0 && aborted > 0, "{replies}");
    assert_eq!(run_whole + aborted, REQUESTS);
    assert_eq!((count("+QUEUED"), count("-TRYAGAIN")), (run_whole, aborted));
    let totals = world.shared().totals();
    // SET, and then EXEC.
    assert_eq!(totals.refused_old, (refused + 2 * aborted) as u64);
    assert!(totals.overloads > 0);
    // The load has ended.
    clients[0].send(&requests(&["GET", "k"], 1));
    run(&mut world);
    assert_eq!(text(&clients[0]), "$-1\r\n");
}

#[test]
fn a_generous_limit_and_none_refuse_nothing() {
    for limit_ms in [0, 60_000] {
        let mut world = world(limit_ms);
        let clients = connect(&mut world);
        load(&clients);
        run(&mut world);
        for client in &clients {
            assert_eq!(text(client), "$-1\r\n".repeat(REQUESTS));
        }
        assert_eq!(world.shared().totals().overloads, 0);
    }
}

#[test]
fn cql_and_http_report_overload_in_their_terms() {
    let mut world = world(2);
    let clients = connect(&mut world);
    let mut cql = Client::start(&mut world, Version::V4, None);
    let (http, health) = (world.sim().connect_to(HTTP), world.sim().connect_to(HTTP));
    for stream in 0..i16::try_from(REQUESTS).expect("small") {
        load(&clients);
        cql.query(stream, "SELECT key FROM system.local");
        http.send(b"GET /kv/k HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        health.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        world.step(0);
    }
    run(&mut world);
    let replies = cql.replies();
    assert_eq!(replies.len(), REQUESTS);
    assert!(replies.iter().any(|reply| reply.contains("has waited for too long")), "{replies:?}");
    let replies = text(&http);
    assert!(replies.contains("HTTP/1.1 503 "), "{replies}");
    assert!(replies.contains("Retry-After: 1\r\n"), "{replies}");
    assert!(replies.contains("TRYAGAIN "), "{replies}");
    let replies = text(&health);
    assert_eq!(replies.matches("HTTP/1.1 200 ").count(), REQUESTS, "{replies}");
}

/// The scripts of a transaction meet a key that a slow script holds: they wait for it only once.
#[test]
fn the_scripts_of_a_transaction_wait_only_once() {
    const SCRIPTS: usize = 50;
    // A second is a hundred readings of the clock.
    let plan = Plan { reactors: 1, step_ns: 10_000_000, ..Plan::default() };
    let mut world = World::new(1, plan);
    let script = "redis.call('set', KEYS[1], 1) return redis.call('get', 'held')";
    let ask = |world: &mut World, words: &[&[u8]]| {
        let mut bytes = Vec::new();
        encode_request(words, &mut bytes);
        String::from_utf8(world.ask(&bytes)).expect("text")
    };
    let eval: [&[u8]; 4] = [b"EVAL", script.as_bytes(), b"1", b"k"];
    // From now on the server knows that the script accesses other keys.
    assert_eq!(ask(&mut world, &eval), "$-1\r\n");
    let client = world.sim().connect();
    let mut bytes = Vec::new();
    encode_request(&[b"MULTI".as_slice()], &mut bytes);
    for _ in 0..SCRIPTS {
        encode_request(&eval, &mut bytes);
    }
    encode_request(&[b"EXEC".as_slice()], &mut bytes);
    client.send(&bytes);
    let shared = std::sync::Arc::clone(world.shared());
    let params = crate::engine::server_state::params(
        &shared.settings.load(),
        base::time::UnixMs(0),
        shared.keyspace.seed(),
        1,
    );
    let held = shared.keyspace.lock_one(shared.keyspace.hash(b"held"), &params);
    let began = shared.cycles.now();
    while world.step(0) {}
    let waited_s = shared.cycles.delta_ns(began, shared.cycles.now()) / 1_000_000_000;
    drop(held);
    assert!(
        (1..SCRIPTS as u64 / 2).contains(&waited_s),
        "each would wait for a second: {waited_s}"
    );
    run(&mut world);
    let replies = String::from_utf8(client.received()).expect("text");
    assert_eq!(replies.matches("-TRYAGAIN").count(), SCRIPTS, "{replies}");
}
