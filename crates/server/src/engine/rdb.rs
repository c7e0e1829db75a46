//! Values of the store in the form of Redis's RDB files and DUMP payloads, and back.

use base::time::UnixMs;
use store::{Change, Elements, Items, Kind, Scored, Value};
use wire::rdb::{self, Strings, Written, put_length, put_string};

/// The type of a value in a file.
pub(crate) fn written_type(value: &Value<'_>) -> Result<Written, Unsupported> {
    Ok(match value {
        Value::String(_) => Written::String,
        Value::Hash(_) => Written::Hash,
        Value::List(_) => Written::List,
        Value::Set(_) => Written::Set,
        Value::ZSet(_) => Written::ZSet,
        Value::Stream(_) => return Err(Unsupported::Stream),
    })
}

/// Appends a value, without its type.
pub(crate) fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    if !matches!(value, Value::String(_)) {
        put_length(out, value.len() as u64);
    }
    match value {
        Value::String(bytes) => put_string(out, bytes),
        Value::Hash(hash) => hash.iter().for_each(|(field, value)| {
            put_string(out, field);
            put_string(out, value);
        }),
        Value::List(list) => list.iter().for_each(|element| put_string(out, element)),
        Value::Set(set) => {
            set.iter().for_each(|member| member.with_bytes(|bytes| put_string(out, bytes)));
        }
        Value::ZSet(zset) => zset.iter().for_each(|(member, score)| {
            put_string(out, member);
            out.extend_from_slice(&score.to_le_bytes());
        }),
        Value::Stream(_) => unreachable!("it has no type to write"),
    }
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
    #[error("a stream")]
    Stream,
    #[error("a value of the module {0}")]
    Module(String),
    #[error("a hash with fields that expire")]
    FieldExpiry,
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
            rdb::Value::Hash { .. } => return Err(Unsupported::FieldExpiry),
            rdb::Value::ZSet { members, scores } => {
                let scored: Vec<(f64, &[u8])> = scores.into_iter().zip(members.iter()).collect();
                Self::of(Elements::ZSet(Scored::Slice(&scored)))
            }
            rdb::Value::Stream(_) => return Err(Unsupported::Stream),
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

    #[test]
    fn stored_values_are_written_as_they_were_read() {
        let (keyspace, params) = (Keyspace::new(1), params());
        let values = [
            rdb::Value::String(b"text".to_vec()),
            rdb::Value::List(strings(&["b", "a", "b"])),
            rdb::Value::Set(strings(&["1", "2"])),
            rdb::Value::Set(strings(&["a"])),
            rdb::Value::Hash { pairs: strings(&["f", "v"]), expiries: Vec::new() },
            rdb::Value::ZSet { members: strings(&["m", "n"]), scores: vec![-1.5, 2.0] },
        ];
        for value in values {
            store(&keyspace, "k", value.clone()).unwrap();
            let key = keyspace.key(b"k");
            let locked = keyspace.lock_one(key.hash, &params);
            let stored = locked.get(0, key).unwrap();
            let mut payload = vec![written_type(&stored).unwrap() as u8];
            put_value(&mut payload, &stored);
            end_payload(&mut payload);
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
        ] {
            assert_eq!(store(&keyspace, "k", value), Err(StoreError::Malformed));
        }
        let expiring = rdb::Value::Hash { pairs: strings(&["f", "v"]), expiries: vec![(0, 9)] };
        assert_eq!(Storable::new(expiring).unwrap_err(), Unsupported::FieldExpiry);
        let module = Storable::new(rdb::Value::Module("bloom".to_owned())).unwrap_err();
        assert_eq!(module.to_string(), "a value of the module bloom");
    }
}
