//! Values of the store in the form of Redis's RDB files and DUMP payloads, and back.

use std::sync::Arc;

use base::time::UnixMs;
use store::types::{Compact, OutOfOrder, Stream, StreamId};
use store::{Change, Elements, Items, Kind, Scored, Value};
use wire::rdb::{self, Strings, Written, put_length, put_stream, put_string, put_timed_pairs};

/// The type of a value in a file. `None`: Redis has no such values.
pub(crate) fn written_type(value: &Value<'_>) -> Option<Written> {
    Some(match value {
        Value::String(_) => Written::String,
        Value::Hash(hash) if hash.has_times() => Written::TimedHash,
        Value::Hash(_) => Written::Hash,
        Value::List(_) => Written::List,
        Value::Set(_) => Written::Set,
        Value::ZSet(_) => Written::ZSet,
        Value::Stream(_) => Written::Stream,
        Value::Series(_) => return None,
    })
}

/// Appends a value that has a type, without it.
pub(crate) fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    let has_own_length = match value {
        Value::String(_) | Value::Stream(_) => true,
        Value::Hash(hash) => hash.has_times(),
        _ => false,
    };
    if !has_own_length {
        put_length(out, value.len() as u64);
    }
    match value {
        Value::String(bytes) => put_string(out, bytes),
        Value::Hash(hash) if hash.has_times() => {
            let fields = hash.iter_timed().map(|(f, value, at)| (f, value, at.map(|at| at.0)));
            put_timed_pairs(out, hash.len(), fields);
        }
        Value::Hash(hash) => hash.iter().for_each(|(field, value)| {
            put_string(out, &field);
            put_string(out, &value);
        }),
        Value::List(list) => list.iter().for_each(|element| put_string(out, &element)),
        Value::Set(set) => {
            set.iter().for_each(|member| member.with_bytes(|bytes| put_string(out, bytes)));
        }
        Value::ZSet(zset) => zset.iter().for_each(|(member, score)| {
            put_string(out, &member);
            out.extend_from_slice(&score.to_le_bytes());
        }),
        Value::Stream(stream) => put_stream(out, &plain_stream(stream)),
        Value::Series(_) => unreachable!("a time series has no type in a file"),
    }
}

fn plain_id(id: StreamId) -> rdb::StreamId {
    rdb::StreamId { ms: id.ms, sequence: id.seq }
}

fn stored_id(id: rdb::StreamId) -> StreamId {
    StreamId::new(id.ms, id.sequence)
}

fn plain_stream(stream: &Stream) -> rdb::Stream {
    let mut entries: Vec<rdb::StreamEntry> = Vec::with_capacity(stream.len());
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        let (mut fields, mut values) = (Strings::default(), Strings::default());
        for (field, value) in entry.fields() {
            field.with_bytes(|bytes| fields.push(bytes));
            value.with_bytes(|bytes| values.push(bytes));
        }
        // Most entries have the fields of the one before them.
        let fields = match entries.last() {
            Some(before) if *before.fields == fields => Arc::clone(&before.fields),
            _ => Arc::new(fields),
        };
        entries.push(rdb::StreamEntry { id: plain_id(entry.id), fields, values });
    }
    rdb::Stream {
        entries,
        last_id: plain_id(stream.last_id()),
        max_deleted_id: plain_id(stream.max_deleted_id()),
        entries_added: stream.entries_added(),
        groups: stream.groups().map(plain_group).collect(),
    }
}

fn plain_group(group: &store::types::Group) -> rdb::Group {
    let consumers: Vec<_> = group.consumers().collect();
    let plain = |consumer: &&store::types::Consumer| rdb::Consumer {
        name: consumer.name().to_vec(),
        seen_unix_ms: consumer.seen_ms,
        active_unix_ms: consumer.active_ms,
    };
    // Consumers are in the order of their names.
    let place = |name: &[u8]| consumers.binary_search_by(|it| it.name().cmp(name));
    let pending = group.pending_from(StreamId::MIN).map(|pending| rdb::Pending {
        id: plain_id(pending.id),
        delivered_unix_ms: pending.delivered_ms,
        deliveries: pending.deliveries,
        consumer: place(group.consumer_of(pending).name()).expect("a consumer of this group"),
    });
    rdb::Group {
        name: group.name().to_vec(),
        last_id: plain_id(group.last_id),
        entries_read: group.entries_read,
        pending: pending.collect(),
        consumers: consumers.iter().map(plain).collect(),
    }
}

/// The stream of a file. Fails if its entries have no order or no fields.
fn stored_stream(stream: &rdb::Stream) -> Result<Stream, OutOfOrder> {
    let (mut stored, compact) = (Stream::new(), Compact::default());
    for entry in &stream.entries {
        if entry.fields.is_empty() {
            return Err(OutOfOrder);
        }
        let parts = entry.pairs().flat_map(|(field, value)| [field, value]);
        let parts: Vec<&[u8]> = parts.collect();
        stored.add(stored_id(entry.id), parts.into_iter(), &compact)?;
    }
    let max_deleted_id = Some(stored_id(stream.max_deleted_id));
    stored.set_ids(stored_id(stream.last_id), Some(stream.entries_added), max_deleted_id)?;
    for group in &stream.groups {
        stored.set_group(&group.name, stored_id(group.last_id), group.entries_read);
        for pending in &group.pending {
            let name = &group.consumers[pending.consumer].name;
            let entry = (stored_id(pending.id), pending.deliveries);
            stored.assign(&group.name, name, pending.delivered_unix_ms, std::iter::once(entry));
        }
        for consumer in &group.consumers {
            let rdb::Consumer { name, seen_unix_ms, active_unix_ms } = consumer;
            stored.set_consumer(&group.name, name, *seen_unix_ms, *active_unix_ms);
        }
    }
    Ok(stored)
}

/// A value of a file or payload, as the store takes it.
#[derive(Debug)]
pub(crate) struct Storable {
    /// `None`: a string.
    kind: Option<Kind>,
    bytes: Vec<u8>,
}

/// Values that this server cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsupported {
    #[error("a malformed stream")]
    MalformedStream,
    #[error("a value of the module {0}")]
    Module(String),
}

fn slices(strings: &Strings) -> Vec<&[u8]> {
    strings.iter().collect()
}

impl Storable {
    pub(crate) fn new(value: rdb::Value) -> Result<Storable, Unsupported> {
        Ok(match value {
            rdb::Value::String(bytes) => Storable { kind: None, bytes },
            rdb::Value::List(items) => Self::of(Elements::List(Items::Slice(&slices(&items)))),
            rdb::Value::Set(members) => Self::of(Elements::Set(Items::Slice(&slices(&members)))),
            rdb::Value::Hash { pairs, expiries } if expiries.is_empty() => {
                Self::of(Elements::Hash(Items::Slice(&slices(&pairs))))
            }
            rdb::Value::Hash { pairs, expiries } => {
                let mut times = vec![None; pairs.len() / 2];
                for (pair, at) in expiries {
                    times[pair] = Some(UnixMs(at));
                }
                let pairs = slices(&pairs);
                Self::of(Elements::TimedHash(Items::Slice(&pairs), &times))
            }
            rdb::Value::ZSet { members, scores } => {
                let scored: Vec<(f64, &[u8])> = scores.into_iter().zip(members.iter()).collect();
                Self::of(Elements::ZSet(Scored::Slice(&scored)))
            }
            rdb::Value::Stream(stream) => {
                let stored = stored_stream(&stream);
                let stored = stored.map_err(|OutOfOrder| Unsupported::MalformedStream)?;
                let mut bytes = Vec::new();
                stored.encode(&mut bytes);
                Storable { kind: Some(Kind::Stream), bytes }
            }
            rdb::Value::Module(name) => return Err(Unsupported::Module(name)),
        })
    }

    fn of(elements: Elements<'_>) -> Storable {
        let mut bytes = Vec::new();
        elements.encode(&mut bytes);
        Storable { kind: Some(elements.kind()), bytes }
    }

    /// Bytes of the value in a log record.
    pub(crate) fn record_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The change that stores the value. The store refuses a collection that is empty or has equal
    /// members.
    pub(crate) fn change(&self, expiry: Option<UnixMs>) -> Change<'_> {
        match self.kind {
            None => Change::Set { value: &self.bytes, expiry },
            Some(kind) => Change::Put { kind, encoded: &self.bytes, expiry },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::time::UnixMs;
    use store::{AccessClock, AccessRule, Key, Keyspace, Mutation, Params, StoreError};
    use wire::rdb::{Limits, decode_payload, end_payload};

    fn params() -> Params {
        let access = AccessClock::new(AccessRule::Lru, UnixMs(0), 1);
        Params::new(UnixMs(0), access, store::types::Compact::default())
    }

    fn strings(items: &[&str]) -> Strings {
        items.iter().map(|item| item.as_bytes()).collect()
    }

    fn store(keyspace: &Keyspace, key: &str, value: rdb::Value) -> Result<(), StoreError> {
        let storable = Storable::new(value).unwrap();
        let key = Key { bytes: key.as_bytes(), hash: keyspace.hash(key.as_bytes()) };
        let mutation = Mutation::Key { db: 0, key, change: storable.change(None) };
        keyspace.replay(&mutation, &params(), |_| false)
    }

    fn stream() -> rdb::Stream {
        let id = |sequence| rdb::StreamId { ms: 5, sequence };
        let entry = |sequence, fields: &[&str]| rdb::StreamEntry {
            id: id(sequence),
            fields: Arc::new(strings(fields)),
            values: strings(fields),
        };
        let consumer = |name: &str, seen_unix_ms| rdb::Consumer {
            name: name.as_bytes().to_vec(),
            seen_unix_ms,
            active_unix_ms: None,
        };
        let pending = |sequence, consumer| rdb::Pending {
            id: id(sequence),
            delivered_unix_ms: 77,
            deliveries: sequence,
            consumer,
        };
        rdb::Stream {
            entries: vec![entry(1, &["f", "g"]), entry(2, &["f", "g"]), entry(9, &["12"])],
            last_id: id(20),
            max_deleted_id: id(8),
            entries_added: 30,
            groups: vec![rdb::Group {
                name: b"g".to_vec(),
                last_id: id(9),
                entries_read: Some(4),
                consumers: vec![consumer("a", 50), consumer("b", 60), consumer("idle", 70)],
                pending: vec![pending(1, 1), pending(2, 0), pending(9, 1)],
            }],
        }
    }

    #[test]
    fn stored_values_are_written_as_they_were_read() {
        let (keyspace, params) = (Keyspace::new(1), params());
        let values = [
            rdb::Value::String(b"text".to_vec()),
            rdb::Value::List(strings(&["b", "a", "b"])),
            rdb::Value::Set(strings(&["1", "2"])),
            rdb::Value::Set(strings(&["a"])),
            rdb::Value::Hash { pairs: strings(&["f", "v"]), expiries: Vec::new() },
            rdb::Value::Hash { pairs: strings(&["f", "v", "g", "w"]), expiries: vec![(1, 9)] },
            rdb::Value::ZSet { members: strings(&["m", "n"]), scores: vec![-1.5, 2.0] },
            rdb::Value::Stream(Box::new(stream())),
        ];
        for value in values {
            store(&keyspace, "k", value.clone()).unwrap();
            let key = keyspace.key(b"k");
            let locked = keyspace.lock_one(key.hash, &params);
            let stored = locked.get(0, key).unwrap();
            let written = written_type(&stored).unwrap();
            let mut payload = vec![written as u8];
            put_value(&mut payload, &stored);
            end_payload(&mut payload, written.version());
            assert_eq!(decode_payload(&payload, Limits::NONE).unwrap(), value);
        }
    }

    #[test]
    fn values_that_no_key_can_have_are_refused() {
        let keyspace = Keyspace::new(1);
        for value in [
            rdb::Value::List(Strings::default()),
            rdb::Value::Set(strings(&["a", "a"])),
            rdb::Value::Hash { pairs: strings(&["f", "v", "f", "w"]), expiries: Vec::new() },
            rdb::Value::Hash { pairs: strings(&["f", "v", "f", "w"]), expiries: vec![(0, 9)] },
        ] {
            assert_eq!(store(&keyspace, "k", value), Err(StoreError::Malformed));
        }
        let mut without_fields = stream();
        without_fields.entries[0].fields = Arc::default();
        let malformed = Storable::new(rdb::Value::Stream(Box::new(without_fields)));
        assert_eq!(malformed.unwrap_err(), Unsupported::MalformedStream);
        let module = Storable::new(rdb::Value::Module("bloom".to_owned())).unwrap_err();
        assert_eq!(module.to_string(), "a value of the module bloom");
    }
}
