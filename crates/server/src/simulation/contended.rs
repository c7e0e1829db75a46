//! A request whose data another thread holds for long waits without its reactor.

use std::sync::Arc;

use reactor::SimClient;
use wire::resp::encode_request;

use super::world::{Plan, World};
use crate::engine::running_scripts::RoutineKind;

const HTTP: usize = 1;

/// Turns in which every request is served that can be.
const TURNS: usize = 50;

struct Scene {
    world: World,
}

impl Scene {
    fn new() -> Scene {
        let options = vec![("http", "127.0.0.1:0".to_owned())];
        // Half a millisecond of real time, for which a lock is tried, is one of these steps.
        let plan = Plan { reactors: 1, step_ns: 1_000_000, options, ..Plan::default() };
        Scene { world: World::new(1, plan) }
    }

    fn run(&mut self) {
        for _ in 0..TURNS {
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.world.sim().turn();
        self.world.write_log();
        self.world.advance(1_000_000);
    }

    fn send(&mut self, client: &mut SimClient, requests: &[&[&str]]) {
        encode_and_send(client, requests);
        self.run();
    }

    fn ask(&mut self, client: &mut SimClient, requests: &[&[&str]]) -> String {
        self.send(client, requests);
        received(client)
    }
}

fn encode_and_send(client: &mut SimClient, requests: &[&[&str]]) {
    let mut bytes = Vec::new();
    for request in requests {
        let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
        encode_request(&words, &mut bytes);
    }
    client.send(&bytes);
}

fn received(client: &mut SimClient) -> String {
    String::from_utf8(client.received()).expect("text")
}

#[test]
fn a_request_waits_for_its_data_without_its_reactor() {
    let mut scene = Scene::new();
    let [mut other, mut reader, mut writer, mut blocked] =
        std::array::from_fn(|_| scene.world.sim().connect());
    let [mut browser, mut console] = std::array::from_fn(|_| scene.world.sim().connect_to(HTTP));
    assert_eq!(
        scene.ask(&mut other, &[&["SET", "k", "v"], &["SET", "free", "1"]]),
        "+OK\r\n+OK\r\n"
    );
    let blocks: &[&str] = &["BLMOVE", "list", "k2{k}", "LEFT", "LEFT", "0"];
    assert_eq!(scene.ask(&mut blocked, &[&["DEL", "k2{k}"], blocks]), ":0\r\n");

    let shared = Arc::clone(scene.world.shared());
    let params = scene.world.params();
    let hash = |key: &[u8]| shared.keyspace.hash(key);
    let held = shared.keyspace.lock([hash(b"k"), hash(b"k2{k}")].into_iter(), &params);
    scene.send(&mut reader, &[&["GET", "k"], &["PING"]]);
    let transaction: [&[&str]; 4] = [&["MULTI"], &["SET", "free", "2"], &["INCR", "k"], &["EXEC"]];
    assert_eq!(scene.ask(&mut writer, &transaction), "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    browser.send(b"GET /kv/k HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let text = "SELECT value FROM redis.strings WHERE key = textAsBlob('k')";
    let body = format!(r#"{{"statement": "{text}"}}"#);
    let length = body.len();
    let head = format!("POST /cql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n");
    console.send((head + &body).as_bytes());
    let replies = scene.ask(&mut other, &[&["RPUSH", "list", "x"], &["GET", "free"], &["PING"]]);
    assert_eq!(replies, ":1\r\n$1\r\n1\r\n+PONG\r\n");
    // The key changes again while its client waits.
    assert_eq!(scene.ask(&mut other, &[&["RPUSH", "list", "y"]]), ":2\r\n");
    for client in [&mut reader, &mut writer, &mut blocked, &mut browser, &mut console] {
        assert_eq!(received(client), "", "it waits");
    }

    drop(held);
    scene.run();
    assert_eq!(received(&mut reader), "$1\r\nv\r\n+PONG\r\n");
    let not_an_integer = "-ERR value is not an integer or out of range\r\n";
    assert_eq!(received(&mut writer), format!("*2\r\n+OK\r\n{not_an_integer}"));
    assert_eq!(received(&mut blocked), "$1\r\nx\r\n");
    let page = received(&mut browser);
    assert!(page.starts_with("HTTP/1.1 200 ") && page.ends_with("\r\n\r\nv"), "{page}");
    let rows = received(&mut console);
    assert!(rows.starts_with("HTTP/1.1 200 ") && rows.contains(r#"[["0x76"]]"#), "{rows}");
    assert_eq!(scene.ask(&mut other, &[&["LLEN", "list"], &["LLEN", "k2{k}"]]), ":1\r\n:1\r\n");
}

/// A pause of writes ends later than the wait of a read.
#[test]
fn a_pause_does_not_prolong_the_wait_for_data() {
    let mut scene = Scene::new();
    let [mut other, mut reader] = std::array::from_fn(|_| scene.world.sim().connect());
    let pause: &[&str] = &["CLIENT", "PAUSE", "100000000", "WRITE"];
    assert_eq!(scene.ask(&mut other, &[&["SET", "k", "v"], pause]), "+OK\r\n+OK\r\n");
    scene.send(&mut other, &[&["SET", "paused", "1"]]);
    let shared = Arc::clone(scene.world.shared());
    let params = scene.world.params();
    let held = shared.keyspace.lock_one(shared.keyspace.hash(b"k"), &params);
    scene.send(&mut reader, &[&["GET", "k"]]);
    assert_eq!(received(&mut reader), "");
    drop(held);
    scene.run();
    assert_eq!(received(&mut reader), "$1\r\nv\r\n");
    assert_eq!(received(&mut other), "", "a write, which is paused");
}

/// A request of a key that is free again runs although a script is slow, and others wait.
#[test]
fn a_wait_for_data_ends_with_it_alone() {
    let mut scene = Scene::new();
    let [mut first, mut second] = std::array::from_fn(|_| scene.world.sim().connect());
    assert_eq!(scene.ask(&mut first, &[&["SET", "a", "1"], &["SET", "b", "2"]]), "+OK\r\n+OK\r\n");
    let shared = Arc::clone(scene.world.shared());
    let params = scene.world.params();
    let lock = |key: &[u8]| shared.keyspace.lock_one(shared.keyspace.hash(key), &params);
    shared.running_scripts.begin(0, 1, RoutineKind::Script);
    assert!(shared.running_scripts.is_slow());
    let (a, b) = (lock(b"a"), lock(b"b"));
    scene.send(&mut first, &[&["GET", "a"]]);
    scene.send(&mut second, &[&["GET", "b"]]);
    drop(a);
    scene.run();
    assert_eq!(received(&mut first), "$1\r\n1\r\n");
    assert_eq!(received(&mut second), "");
    drop(b);
    scene.run();
    assert_eq!(received(&mut second), "$1\r\n2\r\n");
    shared.running_scripts.end(0);
}

/// The requests that it has sent are run although it sends nothing more.
#[test]
fn a_client_that_closes_its_side_gets_its_replies() {
    let mut scene = Scene::new();
    let mut client = scene.world.sim().connect();
    let shared = Arc::clone(scene.world.shared());
    let params = scene.world.params();
    let held = shared.keyspace.lock_one(shared.keyspace.hash(b"k"), &params);
    scene.send(&mut client, &[&["INCR", "k"], &["INCR", "k"]]);
    client.half_close();
    scene.run();
    assert_eq!(received(&mut client), "");
    drop(held);
    scene.run();
    assert_eq!(received(&mut client), ":1\r\n:2\r\n");
    assert!(client.is_closed() || client.is_ended());
}

#[test]
fn an_exec_that_is_refused_ends_its_transaction() {
    let mut scene = Scene::new();
    let mut client = scene.world.sim().connect();
    assert_eq!(
        scene.ask(&mut client, &[&["CONFIG", "SET", "busy-reply-threshold", "1"]]),
        "+OK\r\n"
    );
    let shared = Arc::clone(scene.world.shared());
    let params = scene.world.params();
    let held = shared.keyspace.lock_one(shared.keyspace.hash(b"k"), &params);
    shared.running_scripts.begin(0, 1, RoutineKind::Script);
    let replies = scene.ask(&mut client, &[&["MULTI"], &["GET", "k"], &["EXEC"], &["PING"]]);
    let replies: Vec<&str> = replies.lines().collect();
    assert_eq!(replies[..2], ["+OK", "+QUEUED"]);
    assert!(replies[2].starts_with("-EXECABORT ") && replies[2].contains("BUSY"), "{replies:?}");
    assert_eq!(replies[3], "+PONG");
    shared.running_scripts.end(0);
    drop(held);
}

/// Attempts that failed have no traces, and a client that leaves is forgotten.
#[test]
fn a_request_that_waits_for_data_counts_once() {
    let mut scene = Scene::new();
    let [mut other, mut reader, mut watcher] = std::array::from_fn(|_| scene.world.sim().connect());
    assert_eq!(scene.ask(&mut other, &[&["CONFIG", "RESETSTAT"]]), "+OK\r\n");
    assert_eq!(scene.ask(&mut watcher, &[&["MONITOR"]]), "+OK\r\n");
    let shared = Arc::clone(scene.world.shared());
    let params = scene.world.params();
    let held = shared.keyspace.lock_all(&params);
    scene.send(&mut reader, &[&["SCAN", "0"]]);
    let mut gone = scene.world.sim().connect();
    scene.send(&mut gone, &[&["GET", "k"]]);
    // They are tried again meanwhile.
    for _ in 0..TURNS {
        encode_and_send(&mut other, &[&["INFO", "clients"]]);
        scene.turn();
    }
    scene.run();
    let pages = received(&mut other);
    assert_eq!(pages.matches("blocked_clients:2\r").count(), TURNS, "{pages}");
    gone.reset();
    scene.run();
    assert!(scene.ask(&mut other, &[&["INFO", "clients"]]).contains("blocked_clients:1\r"));
    drop(held);
    scene.run();
    assert!(received(&mut reader).starts_with("*2\r\n$"));
    let info = scene.ask(&mut other, &[&["INFO", "clients", "commandstats"]]);
    assert!(info.contains("blocked_clients:0\r"), "{info}");
    assert!(info.contains("cmdstat_scan:calls=1,"), "{info}");
    let feed = received(&mut watcher);
    assert_eq!(feed.matches("\"SCAN\"").count(), 1, "{feed}");
}

#[test]
fn a_scan_waits_for_the_data_at_which_it_begins() {
    let mut scene = Scene::new();
    let [mut other, mut reader] = std::array::from_fn(|_| scene.world.sim().connect());
    assert_eq!(scene.ask(&mut other, &[&["SET", "k", "v"]]), "+OK\r\n");
    let shared = Arc::clone(scene.world.shared());
    let params = scene.world.params();
    let held = shared.keyspace.lock_all(&params);
    scene.send(&mut reader, &[&["SCAN", "0"]]);
    assert_eq!(scene.ask(&mut other, &[&["PING"]]), "+PONG\r\n");
    assert_eq!(received(&mut reader), "");
    drop(held);
    scene.run();
    let reply = received(&mut reader);
    assert!(reply.starts_with("*2\r\n$"), "{reply}");
}
