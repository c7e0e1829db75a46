//! Client-side caches: once the server is idle, no client caches a value that has changed.

use std::collections::HashMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use reactor::SimClient;
use wire::resp::{Reply, decode_reply, encode_request};

use super::chaos::pick;
use super::tests::{Announce, seeds};
use super::world::{Plan, World};

/// Seeds per `cargo test`.
const SEEDS: u64 = 200;
const CLIENTS: usize = 4;
const ACTIONS_MAX: usize = 200;
const KEYS: [&str; 6] = ["user:1", "user:2", "item:1", "item:2", "a", "b"];

fn encode(text: &str) -> Vec<u8> {
    let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
    let mut bytes = Vec::new();
    encode_request(&words, &mut bytes);
    bytes
}

/// A client with a cache, which reads one key at a time.
struct Reader {
    sim: SimClient,
    unread: Vec<u8>,
    /// The connection to which invalidations are redirected.
    target: Option<(SimClient, Vec<u8>)>,
    cache: HashMap<String, Option<Vec<u8>>>,
    /// The key of the unanswered GET.
    asked: Option<String>,
    /// The answer to the unanswered GET is not to be cached: its key was invalidated meanwhile, or
    /// the client does not track it.
    skips: bool,
    mode: &'static str,
}

impl Reader {
    fn new(world: &mut World) -> Reader {
        let modes = ["", " NOLOOP", " BCAST", " BCAST PREFIX user: PREFIX item:", " REDIRECT"];
        let mode = pick(&mut world.random, &modes);
        let connect = |world: &mut World, requests: &[String]| {
            let sim = world.sim().connect();
            sim.send(&encode("HELLO 3"));
            for request in requests {
                sim.send(&encode(request));
            }
            world.settle();
            sim.received();
            sim
        };
        let (mut option, mut target) = (mode.to_owned(), None);
        if mode == " REDIRECT" {
            let sim = connect(world, &[]);
            option = format!("{mode} {}", sim.id().0);
            target = Some((sim, Vec::new()));
        }
        let sim = connect(world, &[format!("CLIENT TRACKING ON{option}")]);
        let (unread, cache) = (Vec::new(), HashMap::new());
        Reader { sim, unread, target, cache, asked: None, skips: false, mode }
    }

    fn ask(&mut self, key: &str) {
        self.sim.send(&encode(&format!("GET {key}")));
        self.asked = Some(key.to_owned());
        self.skips = self.mode.contains("PREFIX") && !key.contains(':');
    }

    fn forget(&mut self, key: &Reply) {
        match key {
            Reply::Null => {
                self.cache.clear();
                self.skips = true;
            }
            Reply::Array(keys) => {
                for key in keys {
                    let Reply::Bulk(key) = key else { panic!("{key:?}") };
                    let key = String::from_utf8_lossy(key);
                    self.cache.remove(&*key);
                    self.skips |= self.asked.as_deref() == Some(&*key);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn receive(&mut self) {
        let (mut target, mut replies) = (self.target.take(), Vec::new());
        if let Some((sim, unread)) = &mut target {
            unread.extend(sim.received());
            replies.extend(replies_of(unread));
        }
        self.target = target;
        self.unread.extend(self.sim.received());
        replies.extend(replies_of(&mut self.unread));
        for reply in replies {
            match reply {
                Reply::Push(items) => {
                    assert_eq!(items[0], Reply::Bulk(b"invalidate".to_vec()));
                    self.forget(&items[1]);
                }
                Reply::Bulk(value) => self.take(Some(value)),
                Reply::Null => self.take(None),
                other => panic!("{other:?}"),
            }
        }
    }

    fn take(&mut self, value: Option<Vec<u8>>) {
        let key = self.asked.take().expect("an answer to a request");
        // In broadcast mode an invalidation may precede the answer that it concerns.
        if !self.skips {
            self.cache.insert(key, value);
        }
    }
}

/// Takes the complete replies.
fn replies_of(unread: &mut Vec<u8>) -> Vec<Reply> {
    let mut replies = Vec::new();
    while let Some((reply, bytes)) = decode_reply(unread).expect("RESP") {
        unread.drain(..bytes);
        replies.push(reply);
    }
    replies
}

fn write(random: &mut SmallRng, number: usize) -> String {
    let (key, other) = (pick(random, &KEYS), pick(random, &KEYS));
    match random.random_range(0..12) {
        0..6 => format!("SET {key} {number}"),
        6 => format!("MSET {key} {number} {other} {number}"),
        7 => format!("DEL {key} {other}"),
        8 => format!("COPY {key} {other} REPLACE"),
        9 => format!("PEXPIRE {key} 1"),
        10 => format!("APPEND {key} {number}"),
        _ => "FLUSHALL".to_owned(),
    }
}

#[test]
fn no_cache_keeps_a_changed_value() {
    for seed in seeds(SEEDS) {
        let _announce = Announce(seed);
        let mut random = SmallRng::seed_from_u64(seed);
        let plan = Plan { reactors: random.random_range(1..4), ..Plan::default() };
        let mut world = World::new(seed, plan);
        let mut readers: Vec<Reader> = (0..CLIENTS).map(|_| Reader::new(&mut world)).collect();
        let writer = world.sim().connect();
        for number in 0..random.random_range(1..ACTIONS_MAX) {
            match random.random_range(0..10) {
                0..4 => {
                    let index = random.random_range(0..CLIENTS);
                    if readers[index].asked.is_none() {
                        let key = pick(&mut random, &KEYS);
                        readers[index].ask(key);
                    }
                }
                4..6 => writer.send(&encode(&write(&mut random, number))),
                6..8 => {
                    let reactor = random.random_range(0..world.plan.reactors);
                    world.step(reactor);
                }
                8 => {
                    world.write_log();
                }
                _ => world.advance(2_000_000),
            }
            readers.iter_mut().for_each(Reader::receive);
            writer.received();
        }
        // Expired keys are removed in the background.
        for _ in 0..50 {
            world.advance(100_000_000);
            world.settle();
        }
        readers.iter_mut().for_each(Reader::receive);
        for reader in &readers {
            for (key, cached) in &reader.cache {
                let answer = world.ask(&encode(&format!("GET {key}")));
                let (reply, _) = decode_reply(&answer).expect("RESP").expect("complete");
                let value = if let Reply::Bulk(value) = reply { Some(value) } else { None };
                assert_eq!(*cached, value, "{key} in a cache of mode {:?}", reader.mode);
            }
        }
    }
}

/// What a client with tracking receives after requests of its own, and then of another client.
fn invalidations(own: &[&str], others: &str) -> Vec<Reply> {
    let mut world = World::new(1, Plan::default());
    let client = world.sim().connect();
    let ask = |world: &mut World, text: &str| {
        client.send(&encode(text));
        world.settle();
        client.received()
    };
    ask(&mut world, "HELLO 3");
    ask(&mut world, "CLIENT TRACKING ON");
    for text in own {
        ask(&mut world, text);
    }
    world.ask(&encode(others));
    world.settle();
    replies_of(&mut client.received())
}

#[test]
fn a_script_tracks_what_its_commands_read() {
    let one = |key: &str| {
        let names = Reply::Array(vec![Reply::Bulk(key.into())]);
        Reply::Push(vec![Reply::Bulk(b"invalidate".to_vec()), names])
    };
    for command in ["EVAL", "EVAL_RO"] {
        let none = format!("{command} return(1) 2 a b");
        assert_eq!(invalidations(&[&none], "MSET a 1 b 1"), [], "{command}");
        let reads = format!("{command} return(redis.call('get',KEYS[1])) 2 a b");
        assert_eq!(invalidations(&[&reads], "MSET a 1 b 1"), [one("a")], "{command}");
    }
    let both = invalidations(&["MGET a b"], "MSET a 1 b 1");
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both.contains(&one("a")) && both.contains(&one("b")), "{both:?}");
}
