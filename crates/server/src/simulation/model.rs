//! The expected data: a naive implementation of a few Redis commands, with ordered maps and
//! absolute times.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::resp::{Protocol, ReplyWriter};

pub(super) type Bytes = Vec<u8>;
/// A command's words.
pub(super) type Command = Vec<Bytes>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Builds a command from words, for use in tests.
pub(super) fn command(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(Bytes),
    /// Values with the time from which on the field does not exist.
    Hash(BTreeMap<Bytes, (Bytes, Option<u64>)>),
    List(VecDeque<Bytes>),
    Set(BTreeSet<Bytes>),
    Scores(BTreeMap<Bytes, i64>),
}

impl Value {
    fn is_empty(&self) -> bool {
        match self {
            Value::Text(_) => false,
            Value::Hash(fields) => fields.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Set(members) => members.is_empty(),
            Value::Scores(members) => members.is_empty(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    value: Value,
    /// Milliseconds since the epoch, from which on the key does not exist.
    expires: Option<u64>,
}

/// The data of database 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Model {
    keys: BTreeMap<Bytes, Entry>,
}

/// The keys that a command names; `None` if it affects all keys.
pub(super) fn keys_of(command: &Command) -> Option<Vec<Bytes>> {
    let step = match command[0].as_slice() {
        b"FLUSHDB" => return None,
        b"DEL" | b"EXISTS" | b"MGET" | b"RENAME" => 1,
        b"MSET" => 2,
        _ => return Some(command.iter().skip(1).take(1).cloned().collect()),
    };
    Some(command.iter().skip(1).step_by(step).cloned().collect())
}

pub(super) fn is_write(command: &Command) -> bool {
    const READS: [&[u8]; 12] = [
        b"GET",
        b"MGET",
        b"EXISTS",
        b"HMGET",
        b"HLEN",
        b"HPEXPIRETIME",
        b"LRANGE",
        b"SCARD",
        b"SMISMEMBER",
        b"ZRANGE",
        b"PEXPIRETIME",
        b"CLIENT",
    ];
    !READS.contains(&command[0].as_slice())
}

/// Passes the value of the requested type to the expression on the right. Creates an empty value if
/// the key does not exist, and returns WRONGTYPE for another type. Removes the key if the value is
/// empty afterwards.
macro_rules! with_value {
    ($model:ident, $key:expr, $reply:ident, $kind:ident, |$value:ident| $act:expr) => {{
        let entry = $model
            .keys
            .entry($key.clone())
            .or_insert_with(|| Entry { value: Value::$kind(Default::default()), expires: None });
        if let Value::$kind($value) = &mut entry.value {
            $act;
            if entry.value.is_empty() {
                $model.keys.remove($key);
            }
        } else {
            $reply.error(WRONG_TYPE);
        }
    }};
}

impl Model {
    /// The keys that exist at the given time.
    pub(super) fn names(&self, now_ms: u64) -> BTreeSet<Bytes> {
        let live = self.keys.iter().filter(|(_, entry)| entry.at(now_ms).is_some());
        live.map(|(key, _)| key.clone()).collect()
    }

    /// The value of a key as read at the given time.
    pub(super) fn entry(&self, key: &[u8], now_ms: u64) -> Option<Entry> {
        self.keys.get(key)?.at(now_ms)
    }

    /// Whether a key exists and nothing of it has an expiry time.
    pub(super) fn is_lasting(&self, key: &[u8]) -> bool {
        let Some(entry) = self.keys.get(key) else { return false };
        let has_times = match &entry.value {
            Value::Hash(fields) => fields.values().any(|(_, at)| at.is_some()),
            _ => false,
        };
        entry.expires.is_none() && !has_times
    }

    /// Runs a command and appends its reply.
    pub(super) fn run(&mut self, command: &Command, now_ms: u64, out: &mut Bytes) {
        self.keys = std::mem::take(&mut self.keys)
            .into_iter()
            .filter_map(|(key, entry)| Some((key, entry.at(now_ms)?)))
            .collect();
        let reply = &mut ReplyWriter::new(out, Protocol::Resp2);
        let args = &command[1..];
        match command[0].as_slice() {
            b"GET" | b"MGET" | b"SET" | b"MSET" | b"APPEND" | b"INCR" => {
                self.run_text(command, now_ms, reply);
            }
            b"DEL" | b"EXISTS" | b"RENAME" | b"FLUSHDB" | b"PEXPIRE" | b"PERSIST"
            | b"PEXPIRETIME" => self.run_generic(command, now_ms, reply),
            b"HSET" => with_value!(self, &args[0], reply, Hash, |fields| {
                let is_new = fields.insert(args[1].clone(), (args[2].clone(), None)).is_none();
                reply.integer(i64::from(is_new));
            }),
            b"HPEXPIRETIME" => with_value!(self, &args[0], reply, Hash, |fields| {
                reply.array(args.len() - 3);
                for field in &args[3..] {
                    reply.integer(match fields.get(field) {
                        None => -2,
                        Some((_, None)) => -1,
                        Some((_, Some(at))) => i64::try_from(*at).unwrap(),
                    });
                }
            }),
            b"HSETEX" | b"HGETEX" | b"HGETDEL" | b"HPEXPIRE" | b"HPERSIST" => {
                with_value!(self, &args[0], reply, Hash, |fields| {
                    run_on_field(fields, command, now_ms, reply);
                });
            }
            b"HDEL" => with_value!(self, &args[0], reply, Hash, |fields| {
                reply.integer(i64::from(fields.remove(&args[1]).is_some()));
            }),
            b"HLEN" => with_value!(self, &args[0], reply, Hash, |fields| {
                reply.integer(integer(fields.len()));
            }),
            b"HMGET" => with_value!(self, &args[0], reply, Hash, |fields| {
                reply.array(args.len() - 1);
                for field in &args[1..] {
                    bulk_or_null(reply, fields.get(field).map(|(value, _)| value));
                }
            }),
            b"LPUSH" | b"RPUSH" => with_value!(self, &args[0], reply, List, |items| {
                for item in &args[1..] {
                    if command[0] == b"LPUSH" {
                        items.push_front(item.clone());
                    } else {
                        items.push_back(item.clone());
                    }
                }
                reply.integer(integer(items.len()));
            }),
            b"LPOP" => with_value!(self, &args[0], reply, List, |items| {
                bulk_or_null(reply, items.pop_front().as_ref());
            }),
            b"RPOP" => with_value!(self, &args[0], reply, List, |items| {
                bulk_or_null(reply, items.pop_back().as_ref());
            }),
            b"LRANGE" => with_value!(self, &args[0], reply, List, |items| {
                reply.array(items.len());
                for item in items.iter() {
                    reply.bulk(item);
                }
            }),
            b"SADD" => with_value!(self, &args[0], reply, Set, |members| {
                let added = args[1..].iter().filter(|member| members.insert((*member).clone()));
                reply.integer(integer(added.count()));
            }),
            b"SREM" => with_value!(self, &args[0], reply, Set, |members| {
                reply.integer(i64::from(members.remove(&args[1])));
            }),
            b"SCARD" => with_value!(self, &args[0], reply, Set, |members| {
                reply.integer(integer(members.len()));
            }),
            b"SMISMEMBER" => with_value!(self, &args[0], reply, Set, |members| {
                reply.array(args.len() - 1);
                args[1..].iter().for_each(|one| reply.integer(i64::from(members.contains(one))));
            }),
            b"ZADD" => with_value!(self, &args[0], reply, Scores, |scores| {
                let is_new = scores.insert(args[2].clone(), number(&args[1])).is_none();
                reply.integer(i64::from(is_new));
            }),
            b"ZREM" => with_value!(self, &args[0], reply, Scores, |scores| {
                reply.integer(i64::from(scores.remove(&args[1]).is_some()));
            }),
            b"ZRANGE" => with_value!(self, &args[0], reply, Scores, |scores| {
                let mut ranked: Vec<_> = scores.iter().map(|(member, at)| (*at, member)).collect();
                ranked.sort_unstable();
                reply.array(2 * ranked.len());
                for (score, member) in ranked {
                    reply.bulk(member);
                    reply.bulk(score.to_string().as_bytes());
                }
            }),
            other => panic!("the model does not implement {}", String::from_utf8_lossy(other)),
        }
    }

    fn run_text(&mut self, command: &Command, now_ms: u64, reply: &mut ReplyWriter<'_>) {
        let args = &command[1..];
        match command[0].as_slice() {
            b"GET" => match self.keys.get(&args[0]).map(|entry| &entry.value) {
                None => reply.null(),
                Some(Value::Text(text)) => reply.bulk(text),
                Some(_) => reply.error(WRONG_TYPE),
            },
            b"MGET" => {
                reply.array(args.len());
                for key in args {
                    match self.keys.get(key).map(|entry| &entry.value) {
                        Some(Value::Text(text)) => reply.bulk(text),
                        _ => reply.null(),
                    }
                }
            }
            b"SET" => {
                let is_refused = args.get(2).is_some_and(|option| option == b"NX")
                    && self.keys.contains_key(&args[0]);
                if is_refused {
                    return reply.null();
                }
                let is_timed = args.get(2).is_some_and(|option| option == b"PX");
                let expires = is_timed.then(|| after(now_ms, &args[3]));
                self.put(&args[0], &args[1], expires);
                reply.ok();
            }
            b"MSET" => {
                args.chunks(2).for_each(|pair| self.put(&pair[0], &pair[1], None));
                reply.ok();
            }
            b"APPEND" => with_value!(self, &args[0], reply, Text, |text| {
                text.extend_from_slice(&args[1]);
                reply.integer(integer(text.len()));
            }),
            _ => self.increment(&args[0], reply),
        }
    }

    fn put(&mut self, key: &Bytes, text: &Bytes, expires: Option<u64>) {
        self.keys.insert(key.clone(), Entry { value: Value::Text(text.clone()), expires });
    }

    fn increment(&mut self, key: &Bytes, reply: &mut ReplyWriter<'_>) {
        let (old, expires) = match self.keys.get(key) {
            None => (Some(0), None),
            Some(Entry { value: Value::Text(text), expires }) => {
                (std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok()), *expires)
            }
            Some(_) => return reply.error(WRONG_TYPE),
        };
        let Some(old) = old else {
            return reply.error("ERR value is not an integer or out of range");
        };
        self.put(key, &(old + 1).to_string().into_bytes(), expires);
        reply.integer(old + 1);
    }

    fn run_generic(&mut self, command: &Command, now_ms: u64, reply: &mut ReplyWriter<'_>) {
        let args = &command[1..];
        match command[0].as_slice() {
            b"DEL" => {
                let removed = args.iter().filter(|key| self.keys.remove(*key).is_some()).count();
                reply.integer(integer(removed));
            }
            b"EXISTS" => {
                let there = args.iter().filter(|key| self.keys.contains_key(*key)).count();
                reply.integer(integer(there));
            }
            b"FLUSHDB" => {
                self.keys.clear();
                reply.ok();
            }
            b"RENAME" => match self.keys.remove(&args[0]) {
                None => reply.error("ERR no such key"),
                Some(entry) => {
                    self.keys.insert(args[1].clone(), entry);
                    reply.ok();
                }
            },
            b"PEXPIRE" => {
                let at = after(now_ms, &args[1]);
                let found = self.keys.get_mut(&args[0]).map(|entry| entry.expires = Some(at));
                reply.integer(i64::from(found.is_some()));
            }
            b"PERSIST" => {
                let had = self.keys.get_mut(&args[0]).and_then(|entry| entry.expires.take());
                reply.integer(i64::from(had.is_some()));
            }
            _ => reply.integer(match self.keys.get(&args[0]) {
                None => -2,
                Some(Entry { expires: None, .. }) => -1,
                Some(Entry { expires: Some(at), .. }) => i64::try_from(*at).unwrap(),
            }),
        }
    }
}

impl Entry {
    /// The entry at the given time; `None` if it has expired, or all its fields have.
    fn at(&self, now_ms: u64) -> Option<Entry> {
        let is_live = |at: Option<u64>| at.is_none_or(|at| at > now_ms);
        let mut entry = self.clone();
        if let Value::Hash(fields) = &mut entry.value {
            fields.retain(|_, (_, at)| is_live(*at));
        }
        (is_live(entry.expires) && !entry.value.is_empty()).then_some(entry)
    }
}

/// Runs a command on one field of a hash: KEY [PX MS | MS] FIELDS 1 FIELD [VALUE].
fn run_on_field(
    fields: &mut BTreeMap<Bytes, (Bytes, Option<u64>)>,
    command: &Command,
    now_ms: u64,
    reply: &mut ReplyWriter<'_>,
) {
    let name = command[0].as_slice();
    let place = command.iter().position(|word| word == b"FIELDS").expect("with FIELDS");
    let field = &command[place + 2];
    let at = (place > 2).then(|| after(now_ms, &command[place - 1]));
    if name == b"HSETEX" {
        fields.insert(field.clone(), (command[place + 3].clone(), at));
        return reply.integer(1);
    }
    reply.array(1);
    match name {
        b"HGETDEL" => bulk_or_null(reply, fields.remove(field).map(|(value, _)| value).as_ref()),
        b"HGETEX" => {
            bulk_or_null(reply, fields.get(field).map(|(value, _)| value));
            if let (Some((_, own)), Some(_)) = (fields.get_mut(field), at) {
                *own = at;
            }
        }
        b"HPEXPIRE" => {
            let found = fields.get_mut(field).map(|(_, own)| *own = at);
            reply.integer(found.map_or(-2, |()| 1));
        }
        _ => reply.integer(match fields.get_mut(field).map(|(_, own)| own.take()) {
            None => -2,
            Some(None) => -1,
            Some(Some(_)) => 1,
        }),
    }
}

fn after(now_ms: u64, text: &[u8]) -> u64 {
    now_ms + u64::try_from(number(text)).unwrap()
}

fn number(text: &[u8]) -> i64 {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

fn integer(count: usize) -> i64 {
    i64::try_from(count).unwrap()
}

fn bulk_or_null(reply: &mut ReplyWriter<'_>, value: Option<&Bytes>) {
    match value {
        Some(bytes) => reply.bulk(bytes),
        None => reply.null(),
    }
}
