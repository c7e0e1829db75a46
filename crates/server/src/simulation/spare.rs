//! The spare reactor serves administrators while scripts hold the other reactor and its data.

use reactor::SimClient;
use wire::resp::encode_request;

use super::world::{Plan, World};
use crate::engine::running_scripts::RoutineKind;

/// The regular reactor, and the spare one.
const REGULAR: usize = 0;
const SPARE: usize = 1;

struct Scene {
    world: World,
    client: SimClient,
    /// Whether the regular reactor takes no turns.
    is_stalled: bool,
}

impl Scene {
    /// A client on the spare reactor.
    fn new() -> Scene {
        // A script is slow after a few readings of the clock.
        let options = vec![("busy-reply-threshold", "3".to_owned())];
        let step_ns = 1_000_000;
        let plan = Plan { reactors: 1, has_spare: true, step_ns, options, ..Plan::default() };
        let mut world = World::new(1, plan);
        let client = world.sim().connect();
        let mut scene = Scene { world, client, is_stalled: false };
        assert_eq!(scene.ask(&[&["PING"]]), "+PONG\r\n");
        scene.move_to_spare();
        scene
    }

    fn move_to_spare(&mut self) {
        assert!(self.world.sim().migrate(self.client.id(), SPARE));
        self.run();
        assert_eq!(self.place(), SPARE);
    }

    fn place(&mut self) -> usize {
        let id = self.client.id();
        self.world.sim().place_of(id).expect("open")
    }

    fn run(&mut self) {
        if self.is_stalled {
            while self.world.step(SPARE) {}
        } else {
            while self.world.sim().turn() || self.world.write_log() {}
        }
    }

    /// Sends requests at once, and returns the replies.
    fn ask(&mut self, requests: &[&[&str]]) -> String {
        let mut bytes = Vec::new();
        for request in requests {
            let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
            encode_request(&words, &mut bytes);
        }
        self.client.send(&bytes);
        self.run();
        String::from_utf8(self.client.received()).expect("text")
    }
}

#[test]
fn a_connection_leaves_the_spare_reactor_with_its_first_request_for_data() {
    let mut scene = Scene::new();
    let replies = scene.ask(&[&["PING"], &["CLIENT", "SETNAME", "c"], &["CONFIG", "GET", "hz"]]);
    assert!(replies.starts_with("+PONG\r\n+OK\r\n*2\r\n$2\r\nhz\r\n"), "{replies}");
    assert_eq!(scene.place(), SPARE);
    let pipeline: [&[&str]; 5] =
        [&["ECHO", "1"], &["SET", "k", "v"], &["ECHO", "2"], &["GET", "k"], &["CLIENT", "GETNAME"]];
    assert_eq!(scene.ask(&pipeline), "$1\r\n1\r\n+OK\r\n$1\r\n2\r\n$1\r\nv\r\n$1\r\nc\r\n");
    assert_eq!(scene.place(), REGULAR);
    // A transaction is data, too, and stays whole.
    scene.move_to_spare();
    let transaction: [&[&str]; 4] = [&["PING"], &["MULTI"], &["GET", "k"], &["EXEC"]];
    let replies = scene.ask(&transaction);
    assert_eq!(replies, "+PONG\r\n+OK\r\n+QUEUED\r\n*1\r\n$1\r\nv\r\n");
    assert_eq!(scene.place(), REGULAR);
}

#[test]
fn health_checks_stay_and_other_requests_of_http_leave() {
    const HTTP: usize = 1;
    let options = vec![("http", "127.0.0.1:0".to_owned())];
    let plan = Plan { reactors: 1, has_spare: true, options, ..Plan::default() };
    let mut world = World::new(1, plan);
    let client = world.sim().connect_to(HTTP);
    let mut scene = Scene { world, client, is_stalled: false };
    scene.run();
    scene.move_to_spare();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    scene.client.send([get("/healthz"), get("/metrics")].concat().as_bytes());
    scene.run();
    let replies = String::from_utf8(scene.client.received()).expect("text");
    assert_eq!(replies.matches("HTTP/1.1 200 ").count(), 2, "{replies}");
    assert_eq!(scene.place(), SPARE);
    scene.client.send([get("/healthz"), get("/kv/k"), get("/healthz")].concat().as_bytes());
    scene.run();
    let replies = String::from_utf8(scene.client.received()).expect("text");
    let statuses: Vec<&str> =
        replies.split("HTTP/1.1 ").skip(1).filter_map(|reply| reply.get(..3)).collect();
    assert_eq!(statuses, ["200", "404", "200"]);
    assert_eq!(scene.place(), REGULAR);
}

#[test]
fn the_spare_reactor_waits_for_no_data() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(&[&["SET", "k", "v"]]), "+OK\r\n");
    assert!(scene.ask(&[&["INFO", "keyspace"]]).contains("db0:keys=1,"));
    scene.move_to_spare();
    let shared = std::sync::Arc::clone(scene.world.shared());
    // A script has been running for long, and holds its stripe.
    shared.running_scripts.begin(REGULAR, shared.cycles.now(), RoutineKind::Script);
    while !shared.running_scripts.is_busy(3) {}
    scene.is_stalled = true;
    let params = scene.world.params();
    let locked = shared.keyspace.lock_one(shared.keyspace.hash(b"k"), &params);
    assert!(scene.ask(&[&["INFO", "keyspace"]]).contains("db0:keys=1,"), "as before");
    assert!(scene.ask(&[&["MEMORY", "STATS"]]).starts_with('*'));
    let replies = scene.ask(&[&["GET", "k"], &["SCRIPT", "KILL"], &["EVAL", "return 1", "0"]]);
    let replies: Vec<&str> = replies.lines().collect();
    assert!(replies[0].starts_with("-BUSY "), "{replies:?}");
    assert_eq!(replies[1], "+OK");
    assert!(replies[2].starts_with("-BUSY "), "{replies:?}");
    assert!(shared.running_scripts.is_killed(REGULAR));
    assert_eq!(scene.place(), SPARE);
    drop(locked);
    shared.running_scripts.end(REGULAR);
    scene.is_stalled = false;
    assert_eq!(scene.ask(&[&["GET", "k"]]), "$1\r\nv\r\n");
    assert_eq!(scene.place(), REGULAR);
}
