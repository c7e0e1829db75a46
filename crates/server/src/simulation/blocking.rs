//! Clients that are blocked on keys: every element is handed out once, in order, and no client waits
//! while its key has elements.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use binlog::Faults as DiskFaults;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reactor::SimClient;
use wire::resp::{Reply, decode_reply, encode_request};

use super::chaos::pick;
use super::cql_client::run_reactors;
use super::tests::{Announce, seeds};
use super::world::{Plan, World};
use crate::engine::snapshot_taker::Progress;

/// Seeds per `cargo test`.
const SEEDS: u64 = 300;
const WORKERS: usize = 5;
const ACTIONS_MAX: usize = 150;
const LISTS: [&str; 3] = ["list0", "list1", "list2"];
const ZSETS: [&str; 2] = ["zset0", "zset1"];

/// A client that takes elements, and its unanswered request.
struct Worker {
    sim: SimClient,
    unread: Vec<u8>,
    request: Option<Vec<String>>,
}

impl Worker {
    fn new(world: &mut World) -> Worker {
        Worker { sim: world.sim().connect(), unread: Vec::new(), request: None }
    }

    fn send(&mut self, words: Vec<String>) {
        let bytes: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let mut request = Vec::new();
        encode_request(&bytes, &mut request);
        self.sim.send(&request);
        self.request = Some(words);
    }

    /// Returns the elements of an answer that has arrived.
    fn receive(&mut self) -> Option<Vec<String>> {
        self.unread.extend(self.sim.received());
        let (reply, bytes) = decode_reply(&self.unread).expect("RESP")?;
        self.unread.drain(..bytes);
        let request = self.request.take().expect("an answer to a request");
        let mut texts = Vec::new();
        collect(&reply, &mut texts);
        // The elements are those texts that producers have made.
        texts.retain(|text| text.starts_with("element"));
        assert!(texts.len() <= 3, "{request:?} {texts:?}");
        Some(texts)
    }
}

fn collect(reply: &Reply, texts: &mut Vec<String>) {
    match reply {
        Reply::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Reply::Bulk(bytes) => texts.push(String::from_utf8_lossy(bytes).into_owned()),
        Reply::Error(text) => panic!("{}", String::from_utf8_lossy(text)),
        _ => {}
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// A request that takes elements, and waits at most `timeout` seconds.
fn taking(random: &mut SmallRng) -> Vec<String> {
    let timeout = pick(random, &["0", "0", "0.05", "3"]);
    let (list, other) = (pick(random, &LISTS), pick(random, &LISTS));
    let (zset, second) = (pick(random, &ZSETS), pick(random, &ZSETS));
    words(&match random.random_range(0..7) {
        0 | 1 => format!("BLPOP {list} {other} {timeout}"),
        2 => format!("BRPOP {list} {timeout}"),
        3 => format!("BLMPOP {timeout} 2 {list} {other} LEFT COUNT 3"),
        4 => format!("BZPOPMIN {zset} {second} {timeout}"),
        5 => format!("BZMPOP {timeout} 1 {zset} MAX COUNT 2"),
        _ => format!("BLMOVE {list} moved LEFT RIGHT {timeout}"),
    })
}

/// Requests that make elements, as one pipeline.
fn making(random: &mut SmallRng, made: &mut u64) -> Vec<Vec<String>> {
    let mut element = || {
        *made += 1;
        format!("element{made}")
    };
    let list = pick(random, &LISTS);
    let zset = pick(random, &ZSETS);
    let lines = match random.random_range(0..6) {
        0 | 1 => vec![format!("RPUSH {list} {}", element())],
        2 => vec![format!("RPUSH {list} {} {} {}", element(), element(), element())],
        3 => vec![
            "MULTI".to_owned(),
            format!("RPUSH {list} {}", element()),
            format!("LPUSH {} {}", pick(random, &LISTS), element()),
            "EXEC".to_owned(),
        ],
        // A key that another one becomes. The old value is moved away first, so that none is lost.
        4 => vec![
            format!("RPUSH fresh {}", element()),
            format!("LMOVE fresh {list} LEFT RIGHT"),
            format!("LPUSH {list} {}", element()),
        ],
        _ => vec![format!("ZADD {zset} 1 {} 2 {}", element(), element())],
    };
    lines.iter().map(|line| words(line)).collect()
}

struct Scene {
    world: World,
    workers: Vec<Worker>,
    producer: SimClient,
    made: u64,
    taken: BTreeSet<String>,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let mut random = SmallRng::seed_from_u64(seed);
        let plan = Plan { reactors: random.random_range(1..4), ..Plan::default() };
        let mut world = World::new(seed, plan);
        let workers = (0..WORKERS).map(|_| Worker::new(&mut world)).collect();
        let producer = world.sim().connect();
        Scene { world, workers, producer, made: 0, taken: BTreeSet::new() }
    }

    fn produce(&mut self) {
        let mut pipeline = Vec::new();
        for request in making(&mut self.world.random, &mut self.made) {
            let bytes: Vec<&[u8]> = request.iter().map(String::as_bytes).collect();
            encode_request(&bytes, &mut pipeline);
        }
        self.producer.send(&pipeline);
    }

    fn receive(&mut self) {
        for worker in &mut self.workers {
            while worker.request.is_some() {
                let Some(texts) = worker.receive() else { break };
                for text in texts {
                    assert!(self.taken.insert(text.clone()), "{text} was handed out twice");
                }
            }
        }
        self.producer.received();
    }

    fn act(&mut self) {
        let index = self.world.random.random_range(0..WORKERS);
        match self.world.random.random_range(0..12) {
            0..4 => {
                if self.workers[index].request.is_none() {
                    let request = taking(&mut self.world.random);
                    self.workers[index].send(request);
                }
            }
            4..7 => self.produce(),
            7 | 8 => {
                let reactor = self.world.random.random_range(0..self.world.plan.reactors);
                self.world.step(reactor);
            }
            9 => {
                self.world.write_log();
            }
            10 => self.world.advance(20_000_000),
            // What it is handed in this moment is lost with its connection, as in Redis.
            _ => {
                if self.world.chance(0.3) {
                    self.world.settle();
                    self.receive();
                    self.workers[index].sim.close();
                    self.world.settle();
                    self.workers[index] = Worker::new(&mut self.world);
                }
            }
        }
        self.receive();
    }

    /// Returns the values of the lists and sorted sets, from a new connection.
    fn left(&mut self) -> BTreeMap<&'static str, Vec<String>> {
        let mut left = BTreeMap::new();
        for (key, request) in LISTS
            .iter()
            .chain(&["moved", "fresh"])
            .map(|key| (*key, format!("LRANGE {key} 0 -1")))
            .chain(ZSETS.iter().map(|key| (*key, format!("ZRANGE {key} 0 -1"))))
        {
            let mut bytes = Vec::new();
            let request = words(&request);
            let slices: Vec<&[u8]> = request.iter().map(String::as_bytes).collect();
            encode_request(&slices, &mut bytes);
            let answer = self.world.ask(&bytes);
            let (reply, _) = decode_reply(&answer).expect("RESP").expect("complete");
            let mut texts = Vec::new();
            collect(&reply, &mut texts);
            left.insert(key, texts);
        }
        left
    }

    /// Checks that no worker waits for a key that has elements, and that no element is missing or
    /// was handed out and is still there.
    fn check(&mut self) {
        self.world.settle();
        self.receive();
        let left = self.left();
        for worker in &self.workers {
            let Some(request) = &worker.request else { continue };
            for key in request.iter().filter(|word| *word != "moved") {
                let found = left.get(key.as_str()).is_some_and(|elements| !elements.is_empty());
                assert!(!found, "{request:?} waits although there is {left:?}");
            }
        }
        let moved: BTreeSet<&String> = left["moved"].iter().collect();
        let mut seen = 0;
        for (key, elements) in &left {
            for element in elements {
                let is_taken = self.taken.contains(element);
                assert!(!is_taken || moved.contains(element), "{element} is still in {key}");
                seen += usize::from(!is_taken);
            }
        }
        assert_eq!(seen + self.taken.len(), usize::try_from(self.made).unwrap(), "{left:?}");
    }
}

#[test]
fn every_element_is_handed_out_once_and_no_client_waits_in_vain() {
    for seed in seeds(SEEDS) {
        let _announce = Announce(seed);
        let mut scene = Scene::new(seed);
        let actions = scene.world.random.random_range(1..ACTIONS_MAX);
        for _ in 0..actions {
            scene.act();
        }
        scene.check();
    }
}

/// Sends a request on a connection of its own, and runs the server until it is idle.
fn send(world: &mut World, sim: &mut SimClient, text: &str) -> VecDeque<String> {
    let request = words(text);
    let bytes: Vec<&[u8]> = request.iter().map(String::as_bytes).collect();
    let mut out = Vec::new();
    encode_request(&bytes, &mut out);
    sim.send(&out);
    world.settle();
    String::from_utf8_lossy(&sim.received()).lines().map(str::to_owned).collect()
}

#[test]
fn clients_are_served_in_the_order_of_their_arrival() {
    let mut world = World::new(1, Plan { reactors: 3, ..Plan::default() });
    let mut clients: Vec<SimClient> = (0..20).map(|_| world.sim().connect()).collect();
    for client in &mut clients {
        assert!(send(&mut world, client, "BLPOP queue 0").is_empty());
    }
    let mut producer = world.sim().connect();
    for number in 0..10 {
        send(&mut world, &mut producer, &format!("RPUSH queue a{number} b{number}"));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let received = String::from_utf8_lossy(&client.received()).into_owned();
        let letter = if number % 2 == 0 { 'a' } else { 'b' };
        let expected = format!("*2\r\n$5\r\nqueue\r\n$2\r\n{letter}{}\r\n", number / 2);
        assert_eq!(received, expected, "client {number}");
    }
    assert_eq!(world.shared().keyspace.awaited_keys(), store::AwaitedKeys::default());
}

#[test]
fn what_a_blocked_client_received_is_gone_after_a_crash() {
    for seed in 0..50 {
        let mut world = World::new(seed, Plan::default());
        let (mut taker, producer) = (world.sim().connect(), world.sim().connect());
        assert!(send(&mut world, &mut taker, "BLMOVE from to LEFT LEFT 0").is_empty());
        producer.send(b"RPUSH from a b\r\n");
        for _ in 0..world.random.random_range(0..6) {
            run_reactors(&mut world);
            if world.chance(0.5) {
                world.write_log();
            }
        }
        run_reactors(&mut world);
        let received = taker.received();
        world.die(true, DiskFaults::default());
        let answer = world.ask(b"LRANGE to 0 -1\r\n");
        let is_kept = answer == b"*1\r\n$1\r\na\r\n";
        assert!(is_kept || received.is_empty(), "seed {seed}: the move was acknowledged and lost");
        let left = world.ask(b"LRANGE from 0 -1\r\n");
        assert!(is_kept || left != b"*1\r\n$1\r\nb\r\n", "seed {seed}: the element is nowhere");
    }
}

#[test]
fn an_entry_that_becomes_idle_wakes_the_client() {
    const S: u64 = 1_000_000_000;
    let mut world = World::new(1, Plan::default());
    let (mut first, mut waiting) = (world.sim().connect(), world.sim().connect());
    send(&mut world, &mut first, "XGROUP CREATE s g 0 MKSTREAM");
    let request = "XREADGROUP GROUP g b BLOCK 0 CLAIM 60000 STREAMS s >";
    assert!(send(&mut world, &mut waiting, request).is_empty());
    // The entry becomes pending after the client has begun to wait, but not for it.
    world.advance(30 * S);
    send(&mut world, &mut first, "MULTI");
    send(&mut world, &mut first, "XADD s 1-0 f v");
    send(&mut world, &mut first, "XREADGROUP GROUP g a STREAMS s >");
    send(&mut world, &mut first, "EXEC");
    // More than a minute after the request, and less than a minute after the delivery.
    world.advance(40 * S);
    world.settle();
    assert!(waiting.received().is_empty());
    world.advance(30 * S);
    world.settle();
    let received = String::from_utf8_lossy(&waiting.received()).into_owned();
    assert!(received.contains("1-0"), "{received}");
    let pending = send(&mut world, &mut first, "XPENDING s g");
    assert!(pending.contains(&"b".to_owned()), "{pending:?}");
    assert_eq!(world.shared().keyspace.awaited_keys(), store::AwaitedKeys::default());
}

/// How the wait of a client ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A key gets a value.
    Served,
    /// Its time passes.
    Timeout,
    /// CLIENT UNBLOCK with this word.
    Unblock(&'static str),
    /// CLIENT KILL.
    Kill,
    /// The client disconnects.
    Disconnect,
    /// The user of the client may no longer use the key.
    Revoked,
}

/// A command counts once, is in the slow log once, and an error that ends its wait is counted,
/// however the wait ends.
#[test]
fn requests_that_waited_are_counted_however_their_wait_ends() {
    const MS: u64 = 1_000_000;
    let requests = [
        ("blpop", "BLPOP key 5", "RPUSH key a"),
        ("brpop", "BRPOP key 5", "RPUSH key a"),
        ("blmove", "BLMOVE key other LEFT LEFT 5", "RPUSH key a"),
        ("blmpop", "BLMPOP 5 1 key LEFT", "RPUSH key a"),
        ("brpoplpush", "BRPOPLPUSH key other 5", "RPUSH key a"),
        ("bzpopmin", "BZPOPMIN key 5", "ZADD key 1 a"),
        ("bzpopmax", "BZPOPMAX key 5", "ZADD key 1 a"),
        ("bzmpop", "BZMPOP 5 1 key MIN", "ZADD key 1 a"),
        ("xread", "XREAD BLOCK 5000 STREAMS key $", "XADD key * f v"),
    ];
    let ends = [
        (End::Served, None),
        (End::Timeout, None),
        (End::Unblock("TIMEOUT"), None),
        (End::Unblock("ERROR"), Some("UNBLOCKED")),
        (End::Kill, None),
        (End::Disconnect, None),
        (End::Revoked, Some("NOPERM")),
    ];
    for ((name, request, served_by), (end, error)) in
        requests.into_iter().flat_map(|one| ends.map(|end| (one, end)))
    {
        let case = format!("{request}, {end:?}");
        let mut world = World::new(1, Plan { reactors: 2, ..Plan::default() });
        let (mut admin, mut waiting) = (world.sim().connect(), world.sim().connect());
        send(&mut world, &mut admin, "CONFIG SET slowlog-log-slower-than 0");
        send(&mut world, &mut admin, "ACL SETUSER u on nopass +@all ~*");
        send(&mut world, &mut waiting, "AUTH u p");
        let id = send(&mut world, &mut waiting, "CLIENT ID").pop_front().expect("an integer");
        send(&mut world, &mut admin, "CONFIG RESETSTAT");
        send(&mut world, &mut admin, "SLOWLOG RESET");
        assert!(send(&mut world, &mut waiting, request).is_empty(), "{case}");
        let id = &id[1..];
        match end {
            End::Served => drop(send(&mut world, &mut admin, served_by)),
            End::Timeout => world.advance(6000 * MS),
            End::Unblock(word) => {
                assert_eq!(
                    send(&mut world, &mut admin, &format!("CLIENT UNBLOCK {id} {word}")),
                    [":1"]
                );
            }
            End::Kill => drop(send(&mut world, &mut admin, &format!("CLIENT KILL ID {id}"))),
            End::Disconnect => waiting.close(),
            End::Revoked => drop(send(&mut world, &mut admin, "ACL SETUSER u resetkeys")),
        }
        if end == End::Revoked {
            send(&mut world, &mut admin, served_by);
        }
        world.settle();
        // A closed connection is counted by the next turn of its reactor.
        world.advance(200 * MS);
        world.settle();
        let stats = send(&mut world, &mut admin, "INFO commandstats");
        let line = stats.iter().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        let line = line.unwrap_or_else(|| panic!("{case}: no counters in {stats:?}"));
        let calls = if end == End::Revoked { "calls=0" } else { "calls=1" };
        assert!(line.contains(&format!("{calls},")), "{case}: {line}");
        let is_failed = line.contains("failed_calls=1") || line.contains("rejected_calls=1");
        assert_eq!(is_failed, error.is_some(), "{case}: {line}");
        let stats = send(&mut world, &mut admin, "INFO errorstats");
        if let Some(error) = error {
            let line = format!("errorstat_{error}:count=1");
            assert!(stats.contains(&line), "{case}: {stats:?}");
        }
        let log = send(&mut world, &mut admin, "SLOWLOG GET 20");
        let command = request.split(' ').next().expect("a word");
        let entries = log.iter().filter(|line| *line == command).count();
        assert_eq!(entries, usize::from(end != End::Revoked), "{case}: {log:?}");
    }
}

/// SAVE takes the time of its snapshot, and is counted and logged when that has ended.
#[test]
fn save_counts_when_its_snapshot_has_ended() {
    const S: u64 = 1_000_000_000;
    let mut world = World::new(1, Plan::default());
    let (mut admin, mut waiting) = (world.sim().connect(), world.sim().connect());
    send(&mut world, &mut admin, "CONFIG SET slowlog-log-slower-than 2000000");
    assert!(send(&mut world, &mut waiting, "SAVE").is_empty());
    let is_counted = |world: &mut World, admin: &mut SimClient| {
        let stats = send(world, admin, "INFO commandstats");
        stats.iter().any(|line| line.starts_with("cmdstat_save:calls=1,usec=3"))
    };
    assert!(!is_counted(&mut world, &mut admin));
    world.advance(3 * S);
    world.take_snapshot_request();
    while world.go_on_with_snapshot(1000) != Progress::Idle {
        world.settle();
    }
    world.settle();
    assert_eq!(waiting.received(), b"+OK\r\n");
    assert!(is_counted(&mut world, &mut admin));
    let log = send(&mut world, &mut admin, "SLOWLOG GET 20");
    assert_eq!(log.iter().filter(|line| *line == "SAVE").count(), 1, "{log:?}");
}
