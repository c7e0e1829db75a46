//! Compares the keys of two servers that do not change: types, values, times of expiry.
//!
//! Values are compared as plain data, so that their encodings, which differ between servers, do not
//! matter. One connection lists the keys, others compare them.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context as _, bail};
use base::time::UnixMs;
use store::DATABASES;
use wire::rdb::{Limits, Stream, Strings, Value, decode_payload};
use wire::resp::Reply;

use super::peer::{Peer, shown};
use crate::engine::clock;
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
const TTL_MS_DIFFERENCE_MAX: u64 = 5000;

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
    expiry: Expiry,
}

/// What both servers are asked about the expiry of a key: Redis has PEXPIRETIME since 7.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiry {
    Time,
    Remaining,
}

impl Expiry {
    fn command(self) -> &'static [u8] {
        match self {
            Expiry::Time => b"PEXPIRETIME",
            Expiry::Remaining => b"PTTL",
        }
    }

    /// Whether a server that still has the key does not show it, or will delete it at the next
    /// access: a source whose clients are paused deletes nothing, nor does the target of an import.
    fn has_passed(self, reply: &Reply, now: UnixMs) -> bool {
        let Reply::Integer(at) = *reply else { return false };
        match self {
            Expiry::Time => at >= 0 && at.unsigned_abs() <= now.0,
            Expiry::Remaining => at == 0,
        }
    }

    /// How far the replies of two servers may be from each other.
    fn allowed_ms(self, wanted: i64, got: i64) -> u64 {
        let is_remaining = self == Expiry::Remaining && wanted >= 0 && got >= 0;
        if is_remaining { TTL_MS_DIFFERENCE_MAX } else { 0 }
    }
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
    let expiry = match from.ask(&[Expiry::Time.command(), STATE_KEY])? {
        Reply::Error(_) => Expiry::Remaining,
        _ => Expiry::Time,
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
                compare(shared.expiry, &mut from, &mut to, &keys.names, &mut differ)?;
                shared.compared.fetch_add(count, Ordering::Relaxed);
            }
            Found::InTarget => {
                let names = missing(&mut from, keys.names)?;
                compare(shared.expiry, &mut from, &mut to, &names, &mut differ)?;
            }
        }
    }
}

/// The keys that the source does not have.
fn missing(from: &mut Peer, mut names: Vec<Vec<u8>>) -> anyhow::Result<Vec<Vec<u8>>> {
    for name in &names {
        from.push(&[b"EXISTS", name]);
    }
    from.send()?;
    let mut are_missing = Vec::with_capacity(names.len());
    for _ in &names {
        match from.read()? {
            Reply::Integer(count) => are_missing.push(count == 0),
            other => bail!("EXISTS: {}", shown(&other)),
        }
    }
    let mut are_missing = are_missing.into_iter();
    names.retain(|_| are_missing.next() == Some(true));
    Ok(names)
}

fn compare(
    expiry: Expiry,
    from: &mut Peer,
    to: &mut Peer,
    names: &[Vec<u8>],
    differ: &mut impl FnMut(&[u8], &str),
) -> anyhow::Result<()> {
    for peer in [&mut *from, &mut *to] {
        for name in names {
            peer.push(&[b"DUMP", name]);
            peer.push(&[expiry.command(), name]);
        }
        peer.send()?;
    }
    for name in names {
        let wanted = (from.read()?, from.read()?);
        let got = (to.read()?, to.read()?);
        // After the replies: what has expired since the first of them does not count either.
        if let Some(what) = difference(&wanted, &got, expiry, clock::unix_now()) {
            differ(name, &what);
        }
    }
    Ok(())
}

/// What clients of both servers would read differently, by the replies to DUMP and about the expiry.
fn difference(
    wanted: &(Reply, Reply),
    got: &(Reply, Reply),
    expiry: Expiry,
    now: UnixMs,
) -> Option<String> {
    let value = |side: &(Reply, Reply), name: &str| match &side.0 {
        Reply::Null => Ok(None),
        Reply::Bulk(_) if expiry.has_passed(&side.1, now) => Ok(None),
        Reply::Bulk(payload) => match decode_payload(payload, LIMITS) {
            Ok(value) => Ok(without_expired_fields(value, now)),
            Err(error) => Err(format!("the value of the {name}: {error}")),
        },
        other => Err(format!("DUMP of the {name}: {}", shown(other))),
    };
    // Strings of one server that has the encoding of the other.
    let has_passed = [wanted, got].iter().any(|side| expiry.has_passed(&side.1, now));
    if has_passed || wanted.0 != got.0 || !matches!(wanted.0, Reply::Bulk(_)) {
        let (wanted, got) = match (value(wanted, "source"), value(got, "target")) {
            (Ok(wanted), Ok(got)) => (wanted, got),
            (Err(what), _) | (_, Err(what)) => return Some(what),
        };
        match (wanted, got) {
            // It has expired, or was deleted, since it was listed.
            (None, None) => return None,
            (Some(_), None) => return Some("the target does not have it".to_owned()),
            (None, Some(_)) => return Some("only the target has it".to_owned()),
            (Some(wanted), Some(got)) => {
                if let Some(what) = value_difference(wanted, got) {
                    return Some(what);
                }
            }
        }
    }
    match (&wanted.1, &got.1) {
        (Reply::Integer(wanted), Reply::Integer(got)) => {
            let allowed_ms = expiry.allowed_ms(*wanted, *got);
            (wanted.abs_diff(*got) > allowed_ms)
                .then(|| format!("it expires at {got} instead of {wanted}"))
        }
        (wanted, got) => Some(format!("times of expiry: {}, {}", shown(wanted), shown(got))),
    }
}

/// A value as clients read it. `None`: all fields of a hash have expired.
fn without_expired_fields(value: Value, now: UnixMs) -> Option<Value> {
    let Value::Hash { pairs, expiries } = value else { return Some(value) };
    if expiries.iter().all(|(_, at)| *at > now.0) {
        return Some(Value::Hash { pairs, expiries });
    }
    let mut times = expiries.into_iter().peekable();
    let (mut live, mut live_expiries) = (Strings::default(), Vec::new());
    for pair in 0..pairs.len() / 2 {
        let at = times.next_if(|(timed, _)| *timed == pair).map(|(_, at)| at);
        if at.is_some_and(|at| at <= now.0) {
            continue;
        }
        live_expiries.extend(at.map(|at| (live.len() / 2, at)));
        live.push(pairs.get(2 * pair));
        live.push(pairs.get(2 * pair + 1));
    }
    let value = Value::Hash { pairs: live, expiries: live_expiries };
    (!value.is_empty()).then_some(value)
}

fn value_difference(wanted: Value, got: Value) -> Option<String> {
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
    use wire::rdb::{
        Written, end_payload, put_pairs, put_scored, put_string, put_strings, put_timed_pairs,
    };

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
        let side = |payload: &[u8]| (Reply::Bulk(payload.to_vec()), Reply::Integer(-1));
        let found = difference(&side(wanted), &side(got), Expiry::Time, UnixMs(1));
        assert_eq!(found.as_deref(), expected);
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
            let found = difference(&pair(wanted), &pair(got), Expiry::Time, NOW);
            assert_eq!(found.as_deref(), expected);
        };
        check((value(), -1), (value(), -1), None);
        check((Reply::Null, -2), (Reply::Null, -2), None);
        check((value(), -1), (Reply::Null, -2), Some("the target does not have it"));
        check((Reply::Null, -2), (value(), -1), Some("only the target has it"));
        let (at, later) = (4_102_444_800_123, 4_102_444_800_124);
        let text = "it expires at 4102444800124 instead of 4102444800123";
        check((value(), at), (value(), later), Some(text));
        check((value(), -1), (value(), later), Some("it expires at 4102444800124 instead of -1"));
        check((Reply::Null, -2), (value(), later), Some("only the target has it"));
        // Remaining times differ by that between the requests.
        let pair = |ms| (value(), Reply::Integer(ms));
        let found = difference(&pair(50_000), &pair(49_000), Expiry::Remaining, NOW);
        assert_eq!(found, None);
        let found = difference(&pair(50_000), &pair(-1), Expiry::Remaining, NOW);
        assert_eq!(found.as_deref(), Some("it expires at -1 instead of 50000"));
    }

    const NOW: UnixMs = UnixMs(1_000_000);

    /// A hash with a field for each time.
    fn timed_hash(times: &[Option<u64>]) -> Reply {
        let names: Vec<String> = (0..times.len()).map(|at| format!("field {at}")).collect();
        let fields = names.iter().zip(times).map(|(name, at)| (name.as_bytes(), &b"v"[..], *at));
        Reply::Bulk(payload(Written::TimedHash, |out| put_timed_pairs(out, times.len(), fields)))
    }

    /// A source whose clients are paused, and the target of an import, delete nothing: clients see
    /// none of it.
    #[test]
    fn what_has_expired_is_no_difference() {
        let string =
            |text: &[u8]| Reply::Bulk(payload(Written::String, |out| put_string(out, text)));
        let (past, now, later) = (Some(1), Some(NOW.0), Some(NOW.0 + 1));
        let absent = || (Reply::Null, -2);
        for (one, other, is_equal) in [
            (absent(), (string(b"a"), 999_999), true),
            (absent(), (string(b"a"), 1_000_000), true),
            (absent(), (string(b"a"), 1_000_001), false),
            ((string(b"a"), 1), (string(b"b"), 2), true),
            ((string(b"a"), 1), (string(b"a"), 2), true),
            ((string(b"a"), 1), (string(b"b"), -1), false),
            (absent(), (timed_hash(&[past, now]), -1), true),
            (absent(), (timed_hash(&[past, later]), -1), false),
            ((timed_hash(&[later]), -1), (timed_hash(&[later, past]), -1), true),
            ((timed_hash(&[None, now]), -1), (timed_hash(&[None, past]), -1), true),
            ((timed_hash(&[None, later]), -1), (timed_hash(&[None, past]), -1), false),
        ] {
            let pair = |(value, at): &(Reply, i64)| (value.clone(), Reply::Integer(*at));
            for (wanted, got) in [(&one, &other), (&other, &one)] {
                let found = difference(&pair(wanted), &pair(got), Expiry::Time, NOW);
                assert_eq!(found.is_none(), is_equal, "{wanted:?} {got:?} {found:?}");
            }
        }
    }
}
