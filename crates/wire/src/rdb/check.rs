//! Invariants for every input: called by the fuzzer, by the test that replays its corpus, and by
//! the property tests. A violation panics.

use super::{
    FileEncoder, FileReader, Item, Limits, RdbError, Strings, Value, Version, Written,
    decode_payload, end_payload, put_pairs, put_scored, put_stream, put_string, put_strings,
    put_timed_pairs,
};

/// Any bytes are a file or are refused, and so is every beginning of them; what was read is the
/// same after it is written and read again.
pub fn check_file(data: &[u8]) {
    let Ok((items, used)) = read_all(data) else { return };
    assert!(used <= data.len());
    let mut encoder = FileEncoder::new(Version::WRITTEN_WITH_TIMES);
    let mut expected = Vec::new();
    for item in items {
        let Item::Entry(entry) = item else { continue };
        let Some(kind) = written_type(&entry.value) else { continue };
        let db = u8::try_from(entry.db).unwrap_or(u8::MAX);
        put_value(encoder.put_key(db, &entry.key, entry.expires_unix_ms, kind), &entry.value);
        expected.push((db, entry.key, entry.expires_unix_ms, entry.value));
    }
    let mut file = encoder.take();
    file.extend(encoder.finish());
    let (again, used) = read_all(&file).expect("a written file is well formed");
    assert_eq!(used, file.len());
    assert_eq!(again.len(), expected.len());
    for (item, (db, key, expires, value)) in again.into_iter().zip(expected) {
        let Item::Entry(entry) = item else { panic!("{item:?} was not written") };
        assert_eq!((entry.db, &entry.key, entry.expires_unix_ms), (u64::from(db), &key, expires));
        assert_eq!(entry.value, value);
    }
}

/// Any bytes are a value or are refused; what was decoded is the same after it is written and
/// decoded again, and is no larger than allowed.
pub fn check_payload(data: &[u8]) {
    // With a right end, most inputs get beyond it.
    let mut ended = data.to_vec();
    end_payload(&mut ended, Version::WRITTEN);
    for payload in [data, &ended] {
        let limits = Limits { bytes_max: 1 << 20, elements_max: 1 << 16, ..Limits::NONE };
        let Ok(value) = decode_payload(payload, limits) else { continue };
        let Some(kind) = written_type(&value) else { continue };
        let mut again = vec![kind as u8];
        put_value(&mut again, &value);
        end_payload(&mut again, kind.version());
        let decoded =
            decode_payload(&again, Limits::NONE).expect("a written payload is well formed");
        assert_eq!(decoded, value);
    }
}

fn read_all(data: &[u8]) -> Result<(Vec<Item>, usize), RdbError> {
    let mut rest = data;
    let mut reader = FileReader::new(&mut rest)?;
    let mut items = Vec::new();
    while let Some(item) = reader.read_item()? {
        items.push(item);
    }
    Ok((items, data.len() - rest.len()))
}

/// `None`: it is not written, or not completely.
fn written_type(value: &Value) -> Option<Written> {
    match value {
        Value::String(_) => Some(Written::String),
        Value::List(_) => Some(Written::List),
        Value::Set(_) => Some(Written::Set),
        Value::Hash { expiries, .. } if expiries.is_empty() => Some(Written::Hash),
        // Later times are written as those of fields that do not expire.
        Value::Hash { expiries, .. } => {
            let are_signed = expiries.iter().all(|(_, at)| i64::try_from(*at).is_ok());
            are_signed.then_some(Written::TimedHash)
        }
        Value::ZSet { .. } => Some(Written::ZSet),
        // Times of activity are not written.
        Value::Stream(stream) => {
            let mut consumers = stream.groups.iter().flat_map(|group| &group.consumers);
            consumers.all(|it| it.active_unix_ms.is_none()).then_some(Written::Stream)
        }
        Value::Module(_) => None,
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(bytes) => put_string(out, bytes),
        Value::List(items) | Value::Set(items) => put_strings(out, items.len(), items.iter()),
        Value::Hash { pairs, expiries } if expiries.is_empty() => {
            put_pairs(out, pairs.len() / 2, pairs.iter());
        }
        Value::Hash { pairs, expiries } => {
            let mut times = expiries.iter().copied().peekable();
            let fields = (0..pairs.len() / 2).map(|pair| {
                let at = times.next_if(|(timed, _)| *timed == pair).map(|(_, at)| at);
                (pairs.get(2 * pair), pairs.get(2 * pair + 1), at)
            });
            put_timed_pairs(out, pairs.len() / 2, fields);
        }
        Value::ZSet { members, scores } => put_members(out, members, scores),
        Value::Stream(stream) => put_stream(out, stream),
        Value::Module(_) => unreachable!("it has no type to write"),
    }
}

fn put_members(out: &mut Vec<u8>, members: &Strings, scores: &[f64]) {
    put_scored(out, members.len(), scores.iter().copied().zip(members.iter()));
}
