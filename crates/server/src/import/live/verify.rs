//! Compares the keys of two servers that do not change: types, values, times of expiry.
//!
//! Values are compared as plain data, so that their encodings, which differ between servers, do not
//! matter. One connection lists the keys, others compare them.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context as _, bail};
use store::DATABASES;
use wire::rdb::{Limits, Stream, Value, decode_payload};
use wire::resp::Reply;

use super::peer::{Peer, shown};
use crate::engine::import_mode::STATE_KEY;
use crate::import::place::Place;

const WORKERS: usize = 4;
/// Keys that are compared with one exchange, and batches that wait.
const SCAN_COUNT: &[u8] = b"256";
const BATCHES_MAX: usize = 8;
const DIFFERENCES_SHOWN: u64 = 100;
/// As in a copy.
const LIMITS: Limits = Limits { bytes_max: 4 << 30, elements_max: 1 << 28, ..Limits::NONE };
/// Two requests do not arrive at the same time; only servers before Redis 7.0 need this.
const TTL_MS_DIFFERENCE_MAX: i64 = 5000;

/// Which server the keys were found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    InSource,
    InTarget,
}

/// Keys of a database.
struct Keys {
    db: usize,
    found: Found,
    names: Vec<Vec<u8>>,
}

/// What all threads know.
struct Shared {
    batches: Mutex<Receiver<Keys>>,
    compared: AtomicU64,
    differences: AtomicU64,
    is_over: AtomicBool,
    /// The command that returns the time of expiry: Redis has PEXPIRETIME since 7.0.
    expiry: &'static [u8],
}

/// Fails if the servers differ.
pub(super) fn verify(
    source: &Place,
    target: &Place,
    is_stopped: &dyn Fn() -> bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut from = Peer::connect(source).context("could not use the source")?;
    let mut to = Peer::connect(target).context("could not use the target")?;
    let expiry: &[u8] = match from.ask(&[b"PEXPIRETIME", STATE_KEY])? {
        Reply::Error(_) => b"PTTL",
        _ => b"PEXPIRETIME",
    };
    let (sender, receiver) = sync_channel(BATCHES_MAX);
    let shared = Shared {
        batches: Mutex::new(receiver),
        compared: AtomicU64::new(0),
        differences: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        expiry,
    };
    let (lines, printed) = sync_channel::<String>(BATCHES_MAX);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let (shared, lines) = (&shared, lines.clone());
            workers.push(scope.spawn(move || {
                let outcome = work(shared, source, target, &lines);
                if outcome.is_err() {
                    shared.is_over.store(true, Ordering::Relaxed);
                    // The scan must not wait for room.
                    while shared.batches.lock().is_ok_and(|batches| batches.recv().is_ok()) {}
                }
                outcome
            }));
        }
        let shared = &shared;
        let scanner = scope.spawn(move || {
            if !has_same_functions(&mut from, &mut to)? {
                shared.differences.fetch_add(1, Ordering::Relaxed);
                // The receiver ends after the last thread.
                let _ = lines.send("libraries of functions differ".to_owned());
            }
            scan_all(&mut from, Found::InSource, &sender, shared)?;
            scan_all(&mut to, Found::InTarget, &sender, shared)
        });
        loop {
            match printed.recv_timeout(super::RETRY / 10) {
                Ok(line) => writeln!(out, "{line}")?,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            }
            if is_stopped() {
                shared.is_over.store(true, Ordering::Relaxed);
            }
        }
        let scanned = scanner.join().map_err(|_| anyhow::anyhow!("the scan panicked"))?;
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("the comparison panicked"))??;
        }
        scanned
    })?;
    let (compared, differences) = (shared.compared.into_inner(), shared.differences.into_inner());
    writeln!(out, "{compared} keys were compared, {differences} differences")?;
    if differences > 0 {
        bail!("the servers differ");
    }
    Ok(())
}

/// True also for a source without functions, before Redis 7.0.
fn has_same_functions(from: &mut Peer, to: &mut Peer) -> anyhow::Result<bool> {
    let words: [&[u8]; 3] = [b"FUNCTION", b"LIST", b"WITHCODE"];
    let Reply::Array(wanted) = from.ask(&words)? else { return Ok(true) };
    let Reply::Array(got) = to.ask(&words)? else { bail!("FUNCTION LIST of the target failed") };
    let codes = |libraries: &[Reply]| {
        let mut codes: Vec<Vec<u8>> = libraries.iter().filter_map(code).collect();
        codes.sort();
        codes
    };
    Ok(codes(&wanted) == codes(&got))
}

/// The code of a library, the last of its fields.
fn code(library: &Reply) -> Option<Vec<u8>> {
    let Reply::Array(fields) = library else { return None };
    let at = fields.iter().position(|it| *it == Reply::Bulk(b"library_code".to_vec()))?;
    match fields.get(at + 1) {
        Some(Reply::Bulk(code)) => Some(code.clone()),
        _ => None,
    }
}

/// Lists the keys of all databases.
fn scan_all(
    peer: &mut Peer,
    found: Found,
    to: &SyncSender<Keys>,
    shared: &Shared,
) -> anyhow::Result<()> {
    for db in 0..DATABASES {
        match peer.ask(&[b"SELECT", db.to_string().as_bytes()])? {
            Reply::Simple(_) => {}
            // A server with fewer databases, or a cluster.
            _ if found == Found::InSource && db > 0 => return Ok(()),
            other => bail!("SELECT: {}", shown(&other)),
        }
        let mut cursor = b"0".to_vec();
        loop {
            if shared.is_over.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let reply = peer.ask(&[b"SCAN", &cursor, b"COUNT", SCAN_COUNT])?;
            let (next, names) = scanned(reply)?;
            // A source with fewer databases has none to compare with.
            if !names.is_empty() && to.send(Keys { db, found, names }).is_err() {
                bail!("the comparison has ended");
            }
            if next == b"0" {
                break;
            }
            cursor = next;
        }
    }
    Ok(())
}

fn scanned(reply: Reply) -> anyhow::Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let Reply::Array(parts) = reply else { bail!("SCAN: {}", shown(&reply)) };
    match <[Reply; 2]>::try_from(parts) {
        Ok([Reply::Bulk(cursor), Reply::Array(names)]) => {
            let names = names.into_iter().filter_map(|name| match name {
                Reply::Bulk(name) => Some(name),
                _ => None,
            });
            Ok((cursor, names.filter(|name| name != STATE_KEY).collect()))
        }
        _ => bail!("SCAN has a malformed reply"),
    }
}

/// Compares batches until there are no more.
fn work(
    shared: &Shared,
    source: &Place,
    target: &Place,
    lines: &SyncSender<String>,
) -> anyhow::Result<()> {
    let (mut from, mut to) = (Peer::connect(source)?, Peer::connect(target)?);
    let mut db = 0;
    loop {
        let next = shared.batches.lock().map_err(|_| anyhow::anyhow!("a thread panicked"))?.recv();
        let Ok(keys) = next else { return Ok(()) };
        if keys.db != db {
            db = keys.db;
            let number = db.to_string();
            for peer in [&mut from, &mut to] {
                peer.expect_ok(&[b"SELECT", number.as_bytes()])?;
            }
        }
        let mut differ = |key: &[u8], what: &str| {
            if shared.differences.fetch_add(1, Ordering::Relaxed) < DIFFERENCES_SHOWN {
                let key = key.escape_ascii();
                // The receiver ends after the last thread.
                let _ = lines.send(format!("key {key:.200} of database {db}: {what}"));
            }
        };
        match keys.found {
            Found::InSource => {
                let count = keys.names.len() as u64;
                compare(shared, &mut from, &mut to, &keys.names, &mut differ)?;
                shared.compared.fetch_add(count, Ordering::Relaxed);
            }
            Found::InTarget => find_additional(&mut from, &keys.names, &mut differ)?,
        }
    }
}

/// Reports keys that only the target has.
fn find_additional(
    from: &mut Peer,
    names: &[Vec<u8>],
    differ: &mut impl FnMut(&[u8], &str),
) -> anyhow::Result<()> {
    for name in names {
        from.push(&[b"EXISTS", name]);
    }
    from.send()?;
    for name in names {
        match from.read()? {
            Reply::Integer(1) => {}
            Reply::Integer(_) => differ(name, "only the target has it"),
            other => bail!("EXISTS: {}", shown(&other)),
        }
    }
    Ok(())
}

fn compare(
    shared: &Shared,
    from: &mut Peer,
    to: &mut Peer,
    names: &[Vec<u8>],
    differ: &mut impl FnMut(&[u8], &str),
) -> anyhow::Result<()> {
    for peer in [&mut *from, &mut *to] {
        for name in names {
            peer.push(&[b"DUMP", name]);
            peer.push(&[shared.expiry, name]);
        }
        peer.send()?;
    }
    for name in names {
        let wanted = (from.read()?, from.read()?);
        let got = (to.read()?, to.read()?);
        if let Some(what) = difference(&wanted, &got) {
            differ(name, &what);
        }
    }
    Ok(())
}

/// What differs between the replies of both servers to DUMP and to the time of expiry.
fn difference(wanted: &(Reply, Reply), got: &(Reply, Reply)) -> Option<String> {
    let payloads = match (&wanted.0, &got.0) {
        // It has expired, or was deleted, since it was listed.
        (Reply::Null, Reply::Null) => return None,
        (Reply::Bulk(wanted), Reply::Bulk(got)) => (wanted, got),
        (Reply::Bulk(_), Reply::Null) => return Some("the target does not have it".to_owned()),
        (Reply::Null, _) => return Some("only the target has it".to_owned()),
        (Reply::Error(_), _) => return Some(format!("DUMP of the source: {}", shown(&wanted.0))),
        (_, other) => return Some(format!("DUMP of the target: {}", shown(other))),
    };
    if let Some(what) = payload_difference(payloads.0, payloads.1) {
        return Some(what);
    }
    match (&wanted.1, &got.1) {
        (Reply::Integer(wanted), Reply::Integer(got)) => {
            let is_ttl = *wanted >= 0 && *got >= 0 && *wanted < 1 << 40;
            let allowed = if is_ttl { TTL_MS_DIFFERENCE_MAX } else { 0 };
            (wanted.abs_diff(*got) > allowed.unsigned_abs())
                .then(|| format!("it expires at {got} instead of {wanted}"))
        }
        (wanted, got) => Some(format!("times of expiry: {}, {}", shown(wanted), shown(got))),
    }
}

fn payload_difference(wanted: &[u8], got: &[u8]) -> Option<String> {
    // Strings of one server that has the encoding of the other.
    if wanted == got {
        return None;
    }
    let decode = |payload: &[u8]| decode_payload(payload, LIMITS);
    let (wanted, got) = match (decode(wanted), decode(got)) {
        (Ok(wanted), Ok(got)) => (wanted, got),
        (Err(error), _) => return Some(format!("the value of the source: {error}")),
        (_, Err(error)) => return Some(format!("the value of the target: {error}")),
    };
    if wanted.type_name() != got.type_name() {
        return Some(format!("it is a {} instead of a {}", got.type_name(), wanted.type_name()));
    }
    let counts = (wanted.len(), got.len());
    if canonical(wanted) == canonical(got) {
        return None;
    }
    Some(match counts {
        (wanted, got) if wanted == got => "its value is another".to_owned(),
        (wanted, got) => format!("it has {got} elements instead of {wanted}"),
    })
}

/// A value without what may differ: the order of elements that have none.
#[derive(Debug, PartialEq)]
enum Canonical {
    Ordered(Vec<Vec<u8>>),
    Hash(Vec<(Vec<u8>, Vec<u8>, Option<u64>)>),
    Scored(Vec<(Vec<u8>, u64)>),
    Stream(Box<Stream>),
    Module(String),
}

fn canonical(value: Value) -> Canonical {
    match value {
        Value::String(bytes) => Canonical::Ordered(vec![bytes]),
        Value::List(items) => Canonical::Ordered(items.iter().map(<[u8]>::to_vec).collect()),
        Value::Set(members) => {
            let mut members: Vec<Vec<u8>> = members.iter().map(<[u8]>::to_vec).collect();
            members.sort_unstable();
            Canonical::Ordered(members)
        }
        Value::Hash { pairs, expiries } => {
            let mut times = vec![None; pairs.len() / 2];
            for (pair, at) in expiries {
                times[pair] = Some(at);
            }
            let pair = |(index, at): (usize, Option<u64>)| {
                (pairs.get(2 * index).to_vec(), pairs.get(2 * index + 1).to_vec(), at)
            };
            let mut fields: Vec<_> = times.into_iter().enumerate().map(pair).collect();
            fields.sort_unstable();
            Canonical::Hash(fields)
        }
        Value::ZSet { members, scores } => {
            // Both zeros are one score.
            let bits = |score: f64| (score + 0.0).to_bits();
            let scores = scores.into_iter().map(bits);
            let mut scored: Vec<_> = members.iter().map(<[u8]>::to_vec).zip(scores).collect();
            scored.sort_unstable();
            Canonical::Scored(scored)
        }
        Value::Stream(mut stream) => {
            stream.groups.iter_mut().for_each(order_group);
            stream.groups.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            Canonical::Stream(stream)
        }
        Value::Module(name) => Canonical::Module(name),
    }
}

/// Brings the consumers of a group into the order of their names, and leaves out what sources do not
/// send their replicas: when a consumer was last seen, that there is one without messages, and how
/// many entries the group has read (Redis 7.0).
// Source: Redis 7.0 `t_stream.c`, `xreadCommand` and `xautoclaimCommand`
fn order_group(group: &mut wire::rdb::Group) {
    group.entries_read = None;
    let mut has_messages = vec![false; group.consumers.len()];
    group.pending.iter().for_each(|pending| has_messages[pending.consumer] = true);
    let mut order: Vec<usize> = (0..has_messages.len()).filter(|at| has_messages[*at]).collect();
    order.sort_unstable_by(|a, b| group.consumers[*a].name.cmp(&group.consumers[*b].name));
    let mut places = vec![0; has_messages.len()];
    order.iter().enumerate().for_each(|(place, consumer)| places[*consumer] = place);
    group.pending.iter_mut().for_each(|pending| pending.consumer = places[pending.consumer]);
    group.consumers = order.iter().map(|consumer| group.consumers[*consumer].clone()).collect();
    for consumer in &mut group.consumers {
        consumer.seen_unix_ms = 0;
        consumer.active_unix_ms = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::rdb::{Written, end_payload, put_pairs, put_scored, put_string, put_strings};

    fn payload(kind: Written, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = vec![kind as u8];
        fill(&mut bytes);
        end_payload(&mut bytes, kind.version());
        bytes
    }

    fn set(members: &[&str]) -> Vec<u8> {
        let items = members.iter().map(|member| member.as_bytes());
        payload(Written::Set, |out| put_strings(out, members.len(), items))
    }

    #[track_caller]
    fn check(wanted: &[u8], got: &[u8], expected: Option<&str>) {
        assert_eq!(payload_difference(wanted, got).as_deref(), expected);
    }

    #[test]
    fn values_are_compared_whatever_their_order() {
        check(&set(&["a", "b"]), &set(&["b", "a"]), None);
        check(&set(&["a", "b"]), &set(&["a", "c"]), Some("its value is another"));
        check(&set(&["a", "b"]), &set(&["a"]), Some("it has 1 elements instead of 2"));
        let string = payload(Written::String, |out| put_string(out, b"a"));
        check(&set(&["a"]), &string, Some("it is a string instead of a set"));
        let hash =
            |parts: [&[u8]; 4]| payload(Written::Hash, |out| put_pairs(out, 2, parts.into_iter()));
        check(&hash([b"f", b"1", b"g", b"2"]), &hash([b"g", b"2", b"f", b"1"]), None);
        let swapped = hash([b"f", b"2", b"g", b"1"]);
        check(&hash([b"f", b"1", b"g", b"2"]), &swapped, Some("its value is another"));
        let scored = |score: f64| {
            payload(Written::ZSet, |out| {
                put_scored(out, 1, std::iter::once((score, &b"m"[..])));
            })
        };
        check(&scored(0.0), &scored(-0.0), None);
        check(&scored(1.0), &scored(2.0), Some("its value is another"));
        check(
            b"damaged",
            &string,
            Some("the value of the source: wrong version or checksum of a payload"),
        );
    }

    #[test]
    fn missing_keys_and_times_are_differences() {
        let value = || Reply::Bulk(set(&["a"]));
        let check = |wanted: (Reply, i64), got: (Reply, i64), expected: Option<&str>| {
            let pair = |(value, at)| (value, Reply::Integer(at));
            assert_eq!(difference(&pair(wanted), &pair(got)).as_deref(), expected);
        };
        check((value(), -1), (value(), -1), None);
        check((Reply::Null, -2), (Reply::Null, -2), None);
        check((value(), -1), (Reply::Null, -2), Some("the target does not have it"));
        check((Reply::Null, -2), (value(), -1), Some("only the target has it"));
        let (at, later) = (4_102_444_800_123, 4_102_444_800_124);
        let text = "it expires at 4102444800124 instead of 4102444800123";
        check((value(), at), (value(), later), Some(text));
        check((value(), -1), (value(), 50), Some("it expires at 50 instead of -1"));
        // Remaining times differ by that between the requests.
        check((value(), 50_000), (value(), 49_000), None);
    }
}
