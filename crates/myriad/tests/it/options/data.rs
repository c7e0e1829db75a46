//! Logging, snapshots, eviction and expiry of data.

use std::time::Duration;

use super::fixture::{Server, happens, happens_within, word};
use super::{Row, row};
use crate::resp::{ask, request};

const COMPACT: [&str; 2] = ["listpack", "hashtable"];
const ORDERED: [&str; 2] = ["listpack", "skiplist"];
const LFU: &[&str] = &["--maxmemory-policy", "allkeys-lfu"];
const SHORT_OF_MEMORY: &[&str] = &["--maxmemory", "2mb"];
const SOONEST: &[&str] = &["--maxmemory-policy", "volatile-ttl"];
const INTERVAL: &[&str] = &["--durability", "interval"];
const YES: [&str; 2] = ["yes", "no"];

pub(super) const ROWS: &[Row] = &[
    row("durability", "never", &[], syncs, ["yes", "no"]),
    row("durability-interval-ms", "60000", INTERVAL, syncs, ["yes", "no"]),
    row("log-segment-bytes", "64kb", &[], size_of_segment, ["more", "64 KiB"]),
    row("save", "1 8", &[], takes_a_snapshot, ["no", "yes"]),
    row("snapshot-log-bytes", "64kb", &[], takes_a_snapshot, ["no", "yes"]),
    row("maxmemory", "1mb", &[], fills, ["+OK", "-OOM"]),
    row("maxmemory-policy", "allkeys-lru", SHORT_OF_MEMORY, fills, ["-OOM", "+OK"]),
    row("maxmemory-samples", "1", SOONEST, evicts_the_soonest, ["mostly", "by chance"]),
    row("lfu-log-factor", "0", LFU, frequency, ["below 100", "above 100"]),
    row("hash-max-listpack-entries", "1", &[], hash, COMPACT),
    row("hash-max-listpack-value", "1", &[], hash, COMPACT),
    row("hll-sparse-max-bytes", "20", &[], sketch, ["sparse", "dense"]),
    row("list-max-listpack-size", "1", &[], list, ["listpack", "quicklist"]),
    row("set-max-intset-entries", "1", &[], integers, ["intset", "hashtable"]),
    row("set-max-listpack-entries", "1", &[], set, COMPACT),
    row("set-max-listpack-value", "1", &[], set, COMPACT),
    row("stream-node-max-bytes", "64", &[], trimmed, [":0", ":4"]),
    row("stream-node-max-entries", "5", &[], trimmed, [":0", ":5"]),
    row("zset-max-listpack-entries", "1", &[], sorted_set, ORDERED),
    row("zset-max-listpack-value", "1", &[], sorted_set, ORDERED),
    row("active-expire", "no", &[], keys_after_expiry, [":0", ":1"]),
    row("import-mode", "yes", &[], value_after_expiry, ["$-1", "v"]),
    row("active-expire-effort", "10", &["--durability", "never"], ticks_are_cut, ["yes", "no"]),
];

/// Whether the log is synced within two seconds of a write.
fn syncs(server: &Server) -> String {
    let is_synced_soon = || {
        let before = server.counter("log_syncs");
        assert_eq!(server.ask(&["SET", "k", "v"]), "+OK");
        happens_within(Duration::from_secs(2), || server.counter("log_syncs") > before)
    };
    // The first interval ends before the first write.
    is_synced_soon();
    word(is_synced_soon(), YES)
}

fn sketch(server: &Server) -> String {
    server.ask(&["PFADD", "h", "a", "b"]);
    server.ask(&["PFDEBUG", "ENCODING", "h"]).trim_start_matches('+').to_owned()
}

fn size_of_segment(server: &Server) -> String {
    let files = server.listed("data");
    let segment = files.iter().find(|(name, _)| name.starts_with("log-0"));
    word(segment.is_some_and(|(_, bytes)| *bytes == 64 << 10), ["64 KiB", "more"])
}

fn takes_a_snapshot(server: &Server) -> String {
    let value = "v".repeat(64 << 10);
    (0..8).for_each(|_| drop(server.ask(&["SET", "k", &value])));
    let is_there =
        || server.listed("data").iter().any(|(name, bytes)| name.contains("snap") && *bytes > 0);
    word(happens_within(Duration::from_secs(4), is_there), YES)
}

/// Returns the first word of the reply to the last of several writes.
fn fills(server: &Server) -> String {
    let value = "v".repeat(1 << 10);
    let mut stream = server.connect("resp");
    let set = |index: usize| ask(&mut stream, &["SET", &format!("k{index}"), &value]);
    let last = (0..4_000).map(set).last().unwrap();
    last.split(' ').next().unwrap().to_owned()
}

/// Whether most evicted keys would have expired first: nearly all with five samples per choice, half
/// with one.
fn evicts_the_soonest(server: &Server) -> String {
    const KEYS: usize = 600;
    let value = "v".repeat(4 << 10);
    let mut stream = server.connect("resp");
    for index in 0..KEYS {
        let seconds = (10_000 + index).to_string();
        let set = ["SET", &format!("k{index}"), &value, "EX", &seconds];
        assert_eq!(ask(&mut stream, &set), "+OK");
    }
    assert_eq!(ask(&mut stream, &["CONFIG", "SET", "maxmemory", "2mb"]), "+OK");
    assert_eq!(ask(&mut stream, &["SET", "last", "v"]), "+OK");
    let mut is_gone = |index: usize| ask(&mut stream, &["EXISTS", &format!("k{index}")]) == ":0";
    let soon = (0..KEYS / 2).filter(|&index| is_gone(index)).count();
    let late = (KEYS / 2..KEYS).filter(|&index| is_gone(index)).count();
    assert!(soon + late > 20, "{soon} and {late} keys were evicted");
    word(soon * 5 > (soon + late) * 4, ["mostly", "by chance"])
}

fn frequency(server: &Server) -> String {
    let mut stream = server.connect("resp");
    ask(&mut stream, &["SET", "k", "v"]);
    (0..200).for_each(|_| drop(ask(&mut stream, &["GET", "k"])));
    let reply = ask(&mut stream, &["OBJECT", "FREQ", "k"]);
    let frequency: u64 = reply.strip_prefix(':').unwrap().parse().unwrap();
    word(frequency > 100, ["above 100", "below 100"])
}

fn encoding(server: &Server, write: &[&str]) -> String {
    let written = server.ask(write);
    assert!(written.starts_with(':'), "{written}");
    server.ask(&["OBJECT", "ENCODING", "k"])
}

fn hash(server: &Server) -> String {
    encoding(server, &["HSET", "k", "one", "first", "two", "second"])
}

fn list(server: &Server) -> String {
    encoding(server, &["RPUSH", "k", "one", "two"])
}

fn integers(server: &Server) -> String {
    encoding(server, &["SADD", "k", "1", "2"])
}

fn set(server: &Server) -> String {
    encoding(server, &["SADD", "k", "one", "two"])
}

fn sorted_set(server: &Server) -> String {
    encoding(server, &["ZADD", "k", "1", "one", "2", "two"])
}

/// Entries that approximate trimming removes: those of whole blocks.
fn trimmed(server: &Server) -> String {
    for _ in 0..10 {
        server.ask(&["XADD", "k", "*", "f", "v"]);
    }
    server.ask(&["XTRIM", "k", "MAXLEN", "~", "3"])
}

fn keys_after_expiry(server: &Server) -> String {
    assert_eq!(server.ask(&["SET", "k", "v", "PX", "50"]), "+OK");
    let is_removed = || server.ask(&["DBSIZE"]) == ":0";
    happens_within(Duration::from_secs(2), is_removed);
    server.ask(&["DBSIZE"])
}

fn value_after_expiry(server: &Server) -> String {
    keys_after_expiry(server);
    server.ask(&["GET", "k"])
}

/// Whether the ticks that remove many keys end early as often as with an effort of 1.
fn ticks_are_cut(server: &Server) -> String {
    let given = ticks_cut(server);
    assert_eq!(server.ask(&["CONFIG", "SET", "active-expire-effort", "1"]), "+OK");
    // Ten times as much time for each tick makes a tenth of them.
    word(given * 3 > ticks_cut(server), YES)
}

/// How many ticks end early while 50,000 keys are removed that have all expired.
fn ticks_cut(server: &Server) -> u64 {
    use std::io::{Read, Write};
    assert_eq!(server.ask(&["CONFIG", "SET", "active-expire", "no"]), "+OK");
    let mut stream = server.connect("resp");
    let mut requests = Vec::new();
    for index in 0..50_000 {
        requests.extend(request(&["SET", &format!("k{index}"), "v", "PX", "1"]));
    }
    let mut replies = vec![0; 5 * 50_000];
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&requests).unwrap());
        stream.read_exact(&mut replies).unwrap();
    });
    let cut = || server.counter("expired_time_cap_reached_count");
    let before = cut();
    assert_eq!(server.ask(&["CONFIG", "SET", "active-expire", "yes"]), "+OK");
    assert!(happens(|| server.ask(&["DBSIZE"]) == ":0"));
    cut() - before
}
