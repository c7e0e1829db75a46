//! The expected content of one client's keys: the semantics of the commands, implemented naively
//! and independently of the server.
//!
//! [`Model::apply`] changes the state and returns the expected answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Bytes;
use super::op::{Op, Step};
use crate::resp::Value;

const WRONG_TYPE: &str = "WRONGTYPE ";
const NOT_INTEGER: &str = "ERR value is not an integer";
const NO_SUCH_KEY: &str = "ERR no such key";

/// A value by its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Data {
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    List(VecDeque<Bytes>),
    Set(BTreeSet<Bytes>),
    Zset(BTreeMap<Bytes, i64>),
}

/// A key's value and its time to live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) data: Data,
    /// Unix time; `None`: never.
    pub(crate) expires_at_ms: Option<u64>,
}

/// All keys of one client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Model {
    pub(crate) entries: BTreeMap<Bytes, Entry>,
}

/// The required answer of the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expected {
    Exactly(Value),
    /// An error that begins like this.
    Error(&'static str),
    /// An array of these.
    All(Vec<Expected>),
}

impl Expected {
    pub(crate) fn matches(&self, reply: &Value) -> bool {
        match (self, reply) {
            (Self::Exactly(expected), reply) => expected == reply,
            (Self::Error(begin), Value::Error(text)) => text.starts_with(begin.as_bytes()),
            (Self::All(expected), Value::Array(Some(replies))) => {
                expected.len() == replies.len()
                    && expected.iter().zip(replies).all(|(expected, reply)| expected.matches(reply))
            }
            _ => false,
        }
    }

    fn ok() -> Self {
        Self::Exactly(Value::Simple(b"OK".to_vec()))
    }

    fn bulk(bytes: Option<Bytes>) -> Self {
        Self::Exactly(Value::Bulk(bytes))
    }

    fn number(number: impl std::fmt::Display) -> Self {
        Self::Exactly(Value::Scalar(format!(":{number}")))
    }
}

/// A type of value that a command works on.
trait Kind: Default {
    fn wrap(self) -> Data;
    fn of(data: &mut Data) -> Option<&mut Self>;
    /// Whether it is empty, so that its key does not exist.
    fn is_nothing(&self) -> bool;
}

/// The error is the answer for a key of the wrong type.
type Checked<T> = Result<T, Expected>;

impl Model {
    /// Applies one step of the client's history; `None`: the step does not affect the client's
    /// keys.
    pub(crate) fn take(&mut self, step: &Step) -> Option<Expected> {
        match step {
            Step::Single(op) => Some(self.apply(op)),
            Step::Transaction(ops) => {
                Some(Expected::All(ops.iter().map(|op| self.apply(op)).collect()))
            }
            Step::Share(_) => None,
        }
    }

    /// Applies one operation and returns the expected answer.
    pub(crate) fn apply(&mut self, op: &Op) -> Expected {
        self.run(op).unwrap_or_else(|refusal| refusal)
    }

    fn run(&mut self, op: &Op) -> Checked<Expected> {
        Ok(match op {
            Op::Set { key, value } => {
                self.put(key, value);
                Expected::ok()
            }
            Op::Get { key } => Expected::bulk(self.string(key)?.cloned()),
            Op::StrLen { key } => Expected::number(self.string(key)?.map_or(0, Vec::len)),
            Op::Del { keys } => {
                let gone = keys.iter().filter(|key| self.entries.remove(*key).is_some());
                Expected::number(gone.count())
            }
            Op::Append { key, value } => {
                Expected::number(self.edit(key, |string: &mut Bytes| {
                    string.extend_from_slice(value);
                    string.len()
                })?)
            }
            Op::Incr { key } => self.increment(key)?,
            Op::HSet { key, fields } => {
                Expected::number(self.edit(key, |hash: &mut BTreeMap<_, _>| {
                    fields
                        .iter()
                        .filter(|(f, v)| hash.insert(f.clone(), v.clone()).is_none())
                        .count()
                })?)
            }
            Op::HDel { key, fields } => {
                Expected::number(self.edit(key, |hash: &mut BTreeMap<Bytes, Bytes>| {
                    fields.iter().filter(|field| hash.remove(*field).is_some()).count()
                })?)
            }
            Op::LPush { key, elements } => {
                Expected::number(self.edit(key, |list: &mut VecDeque<Bytes>| {
                    for element in elements {
                        list.push_front(element.clone());
                    }
                    list.len()
                })?)
            }
            Op::RPop { key } => {
                Expected::bulk(self.edit(key, |list: &mut VecDeque<Bytes>| list.pop_back())?)
            }
            Op::SAdd { key, members } => {
                Expected::number(self.edit(key, |set: &mut BTreeSet<_>| {
                    members.iter().filter(|member| set.insert((*member).clone())).count()
                })?)
            }
            Op::SRem { key, members } => {
                Expected::number(self.edit(key, |set: &mut BTreeSet<Bytes>| {
                    members.iter().filter(|member| set.remove(*member)).count()
                })?)
            }
            Op::ZAdd { key, members } => {
                Expected::number(self.edit(key, |zset: &mut BTreeMap<_, i64>| {
                    members
                        .iter()
                        .filter(|(m, score)| zset.insert(m.clone(), *score).is_none())
                        .count()
                })?)
            }
            Op::ZIncrBy { key, member, by } => {
                let score = self.edit(key, |zset: &mut BTreeMap<Bytes, i64>| {
                    let score = zset.entry(member.clone()).or_default();
                    *score += by;
                    *score
                })?;
                Expected::bulk(Some(score.to_string().into_bytes()))
            }
            Op::ExpireAt { key, seconds } => self.expire(key, Some(seconds * 1000)),
            Op::Persist { key } => self.expire(key, None),
            Op::MSet { pairs } => {
                for (key, value) in pairs {
                    self.put(key, value);
                }
                Expected::ok()
            }
            Op::Rename { from, to } => {
                let entry = self.entries.remove(from).ok_or(Expected::Error(NO_SUCH_KEY))?;
                self.entries.insert(to.clone(), entry);
                Expected::ok()
            }
            Op::FlushDb => {
                self.entries.clear();
                Expected::ok()
            }
        })
    }

    /// Sets a string, without a time to live.
    fn put(&mut self, key: &Bytes, value: &Bytes) {
        let entry = Entry { data: Data::String(value.clone()), expires_at_ms: None };
        self.entries.insert(key.clone(), entry);
    }

    fn string(&self, key: &Bytes) -> Checked<Option<&Bytes>> {
        match self.entries.get(key).map(|entry| &entry.data) {
            None => Ok(None),
            Some(Data::String(value)) => Ok(Some(value)),
            Some(_) => Err(Expected::Error(WRONG_TYPE)),
        }
    }

    fn increment(&mut self, key: &Bytes) -> Checked<Expected> {
        let number = match self.string(key)? {
            None => 0,
            Some(text) => integer(text).ok_or(Expected::Error(NOT_INTEGER))?,
        };
        let next = number.checked_add(1).ok_or(Expected::Error("ERR increment"))?;
        self.edit(key, |string: &mut Bytes| *string = next.to_string().into_bytes())?;
        Ok(Expected::number(next))
    }

    /// Sets or removes a time to live. 1: it was changed.
    fn expire(&mut self, key: &Bytes, at_ms: Option<u64>) -> Expected {
        let Some(entry) = self.entries.get_mut(key) else { return Expected::number(0) };
        let had = std::mem::replace(&mut entry.expires_at_ms, at_ms);
        Expected::number(i32::from(at_ms.is_some() || had.is_some()))
    }

    /// Changes the value of `key`, which is created if missing and removed when it becomes empty.
    fn edit<K: Kind, R>(&mut self, key: &Bytes, change: impl FnOnce(&mut K) -> R) -> Checked<R> {
        let entry = self.entries.entry(key.clone());
        let made = || Entry { data: K::default().wrap(), expires_at_ms: None };
        let value = K::of(&mut entry.or_insert_with(made).data);
        let value = value.ok_or(Expected::Error(WRONG_TYPE))?;
        let result = change(value);
        if value.is_nothing() {
            self.entries.remove(key);
        }
        Ok(result)
    }
}

/// A number in the only form that INCR accepts: the one that it writes.
fn integer(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

impl Kind for Bytes {
    fn wrap(self) -> Data {
        Data::String(self)
    }
    fn of(data: &mut Data) -> Option<&mut Self> {
        if let Data::String(string) = data { Some(string) } else { None }
    }
    fn is_nothing(&self) -> bool {
        false
    }
}

impl Kind for BTreeMap<Bytes, Bytes> {
    fn wrap(self) -> Data {
        Data::Hash(self)
    }
    fn of(data: &mut Data) -> Option<&mut Self> {
        if let Data::Hash(hash) = data { Some(hash) } else { None }
    }
    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl Kind for VecDeque<Bytes> {
    fn wrap(self) -> Data {
        Data::List(self)
    }
    fn of(data: &mut Data) -> Option<&mut Self> {
        if let Data::List(list) = data { Some(list) } else { None }
    }
    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl Kind for BTreeSet<Bytes> {
    fn wrap(self) -> Data {
        Data::Set(self)
    }
    fn of(data: &mut Data) -> Option<&mut Self> {
        if let Data::Set(set) = data { Some(set) } else { None }
    }
    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl Kind for BTreeMap<Bytes, i64> {
    fn wrap(self) -> Data {
        Data::Zset(self)
    }
    fn of(data: &mut Data) -> Option<&mut Self> {
        if let Data::Zset(zset) = data { Some(zset) } else { None }
    }
    fn is_nothing(&self) -> bool {
        self.is_empty()
    }
}

impl Entry {
    /// The parts of the entry as text: two entries differ in the parts that only one of them has.
    pub(crate) fn parts(&self) -> BTreeSet<String> {
        let pair = |(name, value): (&Bytes, &Bytes)| format!("{} = {}", shown(name), shown(value));
        let mut parts: BTreeSet<String> = match &self.data {
            Data::String(value) => [format!("string {}", shown(value))].into(),
            Data::Hash(hash) => hash.iter().map(pair).collect(),
            Data::List(list) => list
                .iter()
                .enumerate()
                .map(|(at, value)| format!("[{at}] {}", shown(value)))
                .collect(),
            Data::Set(set) => set.iter().map(|member| shown(member)).collect(),
            Data::Zset(zset) => {
                zset.iter().map(|(member, score)| format!("{} at {score}", shown(member))).collect()
            }
        };
        parts.insert(self.data.type_name().to_owned());
        if let Some(at_ms) = self.expires_at_ms {
            parts.insert(format!("expires at {at_ms}"));
        }
        parts
    }
}

impl Data {
    /// The name that TYPE returns.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Zset(_) => "zset",
        }
    }
}

/// Bytes as readable text: escaped, and truncated if they are long.
pub(crate) fn shown(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 60;
    match bytes.get(..SHOWN_BYTES_MAX) {
        Some(begin) => format!("\"{}\"... ({} bytes)", begin.escape_ascii(), bytes.len()),
        None => format!("\"{}\"", bytes.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Bytes {
        b"k".to_vec()
    }

    /// Applies `ops` to an empty model; returns the last answer.
    fn answer(ops: &[Op]) -> Expected {
        let mut model = Model::default();
        ops.iter().map(|op| model.apply(op)).last().unwrap()
    }

    #[test]
    fn a_list_is_a_queue_and_goes_with_its_last_element() {
        let mut model = Model::default();
        model.apply(&Op::LPush { key: key(), elements: vec![b"a".to_vec(), b"b".to_vec()] });
        let pop = Op::RPop { key: key() };
        assert_eq!(model.apply(&pop), Expected::bulk(Some(b"a".to_vec())));
        assert_eq!(model.apply(&pop), Expected::bulk(Some(b"b".to_vec())));
        assert_eq!(model, Model::default());
        assert_eq!(model.apply(&pop), Expected::bulk(None));
        assert_eq!(model, Model::default());
    }

    #[test]
    fn wrong_types_are_refused_and_change_nothing() {
        let set = Op::Set { key: key(), value: b"x".to_vec() };
        let push = Op::LPush { key: key(), elements: vec![b"a".to_vec()] };
        let get = Op::Get { key: key() };
        assert_eq!(answer(&[set.clone(), push.clone()]), Expected::Error(WRONG_TYPE));
        assert_eq!(answer(&[push.clone(), get.clone()]), Expected::Error(WRONG_TYPE));
        assert_eq!(answer(&[set, push, get]), Expected::bulk(Some(b"x".to_vec())));
    }

    #[test]
    fn times_to_live_go_with_their_key_and_with_a_new_string() {
        let mut model = Model::default();
        let set = Op::Set { key: key(), value: b"7".to_vec() };
        let expire = Op::ExpireAt { key: key(), seconds: 9 };
        assert_eq!(model.apply(&expire), Expected::number(0));
        model.apply(&set);
        assert_eq!(model.apply(&expire), Expected::number(1));
        assert_eq!(model.apply(&Op::Incr { key: key() }), Expected::number(8));
        model.apply(&Op::Rename { from: key(), to: b"other".to_vec() });
        assert_eq!(model.entries[&b"other"[..]].expires_at_ms, Some(9000));
        model.apply(&Op::Set { key: b"other".to_vec(), value: b"".to_vec() });
        assert_eq!(model.entries[&b"other"[..]].expires_at_ms, None);
        assert_eq!(model.apply(&Op::Persist { key: b"other".to_vec() }), Expected::number(0));
    }

    #[test]
    fn only_numbers_in_their_one_form_are_incremented() {
        for (text, answered) in [
            ("-1", Expected::number(0)),
            ("07", Expected::Error(NOT_INTEGER)),
            ("", Expected::Error(NOT_INTEGER)),
        ] {
            let set = Op::Set { key: key(), value: text.into() };
            assert_eq!(answer(&[set, Op::Incr { key: key() }]), answered, "{text}");
        }
    }

    #[test]
    fn answers_are_compared_by_meaning() {
        let all = Expected::All(vec![Expected::ok(), Expected::Error(WRONG_TYPE)]);
        let ok = Value::Simple(b"OK".to_vec());
        let refused = Value::Error(b"WRONGTYPE Operation".to_vec());
        assert!(all.matches(&Value::Array(Some(vec![ok.clone(), refused.clone()]))));
        assert!(!all.matches(&Value::Array(Some(vec![ok.clone()]))));
        assert!(!all.matches(&Value::Array(Some(vec![refused.clone(), ok]))));
        assert!(!Expected::Error(NOT_INTEGER).matches(&refused));
    }
}
