//! The data of the source, sent to the target while it arrives.

use std::io::Read;

use anyhow::anyhow;
use store::DATABASES;
use wire::rdb::{Entry, FileReader, Item, Limits, RdbError, Strings, Value};
use wire::resp::{Reply, double_text};

use super::Losses;
use super::failure::Failure;
use super::peer::shown;
use super::progress::Progress;
use super::target::Target;
use crate::config::machine_memory_bytes;

/// Limits of one key: the payload of RESTORE is one argument of at most 512 MB, and what is longer
/// is sent in parts. A value of a hostile source takes no more memory than this, and no more than a
/// quarter of the machine's.
const VALUE_BYTES_MAX: u64 = 4 << 30;
const VALUE_ELEMENTS_MAX: usize = 1 << 28;
/// Elements and bytes of a value that is restored at once; a larger collection is sent in parts, so
/// that no command is longer than the target allows and none delays its other clients.
const WHOLE_ELEMENTS_MAX: usize = 16 * 1024;
const WHOLE_BYTES_MAX: usize = 64 << 20;
/// Elements and bytes of a part.
const PART_ELEMENTS: usize = 1024;
const PART_BYTES: usize = 1 << 20;

/// Sends keys to the target.
#[derive(Debug)]
pub(super) struct Copier<'a> {
    target: &'a mut Target,
    pub(super) progress: &'a mut Progress,
    losses: Losses,
    /// The database that the target has selected, if it is known.
    db: Option<u64>,
    /// The keys of the requests of the batch, and of the ones that were sent.
    labels: Vec<String>,
    sent: Vec<String>,
}

impl<'a> Copier<'a> {
    pub(super) fn new(
        target: &'a mut Target,
        progress: &'a mut Progress,
        losses: Losses,
    ) -> Copier<'a> {
        Copier { target, progress, losses, db: None, labels: Vec::new(), sent: Vec::new() }
    }

    /// Sends the data of a source. Returns the database in which its stream begins, and the bytes
    /// that were read. `each`: called after each key.
    pub(super) fn copy<R: Read>(
        &mut self,
        from: R,
        each: &mut dyn FnMut(&mut Progress) -> Result<(), Failure>,
    ) -> Result<(u64, u64), Failure> {
        let bytes_max = machine_memory_bytes().map_or(VALUE_BYTES_MAX, |bytes| bytes / 4);
        let bytes_max = bytes_max.min(VALUE_BYTES_MAX);
        let limits = Limits { bytes_max, elements_max: VALUE_ELEMENTS_MAX, ..Limits::NONE };
        let mut reader = FileReader::new(from)?.limited(limits).keeping_payloads();
        let mut stream_db = 0;
        loop {
            let item = match reader.read_item() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(error) => return Err(named(error, reader.unread_key())),
            };
            match item {
                Item::Fact { name, value } => {
                    if name == b"repl-stream-db" {
                        let text = std::str::from_utf8(&value).ok();
                        stream_db = text.and_then(|text| text.parse().ok()).unwrap_or(0);
                    }
                }
                Item::Function(source) => self.put_function(&source)?,
                Item::ModuleData(module) => {
                    self.lose(&format!("data of the module {module}"))?;
                }
                Item::Entry(entry) => self.put(*entry, reader.payload())?,
            }
            self.progress.bytes = reader.offset();
            each(self.progress)?;
        }
        self.finish()?;
        Ok((stream_db, reader.offset()))
    }

    fn put_function(&mut self, source: &[u8]) -> Result<(), Failure> {
        self.progress.functions += 1;
        let name = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let label = format!("the library {:.100}", name.escape_ascii());
        self.push(&label, &[b"FUNCTION", b"LOAD", b"REPLACE", source])
    }

    /// Sends a key. `payload`: what DUMP returns of it.
    pub(super) fn put(&mut self, entry: Entry, payload: &[u8]) -> Result<(), Failure> {
        let Entry { db, key, value, expires_unix_ms, .. } = entry;
        let label = format!("key {:.200} of database {db}", key.escape_ascii());
        if let Value::Module(module) = &value {
            return self.lose(&format!("{label} is a value of the module {module}"));
        }
        if db >= DATABASES as u64 {
            return self.lose(&format!("{label}: the target has {DATABASES} databases"));
        }
        self.select(db)?;
        self.progress.keys += 1;
        let expiry = expires_unix_ms.map(|at| at.max(1).to_string());
        let is_whole = value.len() <= WHOLE_ELEMENTS_MAX && payload.len() <= WHOLE_BYTES_MAX;
        if is_whole || matches!(value, Value::String(_) | Value::Stream(_)) {
            let ttl = expiry.as_deref().unwrap_or("0").as_bytes();
            let words = [b"RESTORE", &key[..], ttl, payload, b"REPLACE", b"ABSTTL"];
            return self.push(&label, &words);
        }
        self.push(&label, &[b"DEL", &key])?;
        self.put_parts(&label, &key, &value)?;
        match expiry {
            Some(at) => self.push(&label, &[b"PEXPIREAT", &key, at.as_bytes()]),
            None => Ok(()),
        }
    }

    /// Sends a large collection by the commands that add elements.
    fn put_parts(&mut self, label: &str, key: &[u8], value: &Value) -> Result<(), Failure> {
        match value {
            Value::List(items) => self.add(label, [b"RPUSH", key], items),
            Value::Set(members) => self.add(label, [b"SADD", key], members),
            Value::Hash { pairs, expiries } => {
                self.add(label, [b"HSET", key], pairs)?;
                for (pair, at) in expiries {
                    let at = at.max(&1).to_string();
                    let field = pairs.get(2 * pair);
                    let words = [b"HPEXPIREAT", key, at.as_bytes(), b"FIELDS", b"1", field];
                    self.push(label, &words)?;
                }
                Ok(())
            }
            Value::ZSet { members, scores } => {
                let mut pairs = Strings::default();
                for (member, score) in members.iter().zip(scores) {
                    let mut text = Vec::new();
                    double_text(*score, &mut text);
                    pairs.push(&text);
                    pairs.push(member);
                }
                self.add(label, [b"ZADD", key], &pairs)
            }
            Value::String(_) | Value::Stream(_) | Value::Module(_) => Ok(()),
        }
    }

    /// Sends the elements in parts. The number of a part is even, as are those of pairs.
    fn add(&mut self, label: &str, head: [&[u8]; 2], items: &Strings) -> Result<(), Failure> {
        let mut words = head.to_vec();
        let mut bytes = 0;
        for (index, item) in items.iter().enumerate() {
            words.push(item);
            bytes += item.len();
            let is_pair = index % 2 == 1;
            if is_pair && (words.len() > PART_ELEMENTS || bytes > PART_BYTES) {
                self.push(label, &words)?;
                words.truncate(head.len());
                bytes = 0;
            }
        }
        if words.len() > head.len() { self.push(label, &words) } else { Ok(()) }
    }

    fn select(&mut self, db: u64) -> Result<(), Failure> {
        if self.db != Some(db) {
            self.push("SELECT", &[b"SELECT", db.to_string().as_bytes()])?;
            self.db = Some(db);
        }
        Ok(())
    }

    fn push(&mut self, label: &str, words: &[&[u8]]) -> Result<(), Failure> {
        self.target.peer.push(words);
        self.labels.push(label.to_owned());
        if self.target.peer.is_full() { self.send() } else { Ok(()) }
    }

    /// Reads the replies of the last batch, and sends the next one: the target works on it while
    /// more data is read.
    fn send(&mut self) -> Result<(), Failure> {
        self.settle()?;
        self.target.peer.send().map_err(Failure::Target)?;
        self.sent = std::mem::take(&mut self.labels);
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        for label in std::mem::take(&mut self.sent) {
            let reply = self.target.peer.read().map_err(Failure::Target)?;
            if let Reply::Error(_) = reply {
                self.lose(&format!("{label}: the target replied: {}", shown(&reply)))?;
            }
        }
        Ok(())
    }

    /// Sends the rest, and reads all replies.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.send()?;
        self.settle()
    }

    /// Notes that something cannot be imported.
    fn lose(&mut self, what: &str) -> Result<(), Failure> {
        if self.losses == Losses::Refuse {
            let advice = "to leave out what cannot be imported, use --partial";
            return Err(anyhow!("{what}; {advice}").into());
        }
        self.progress.lose(what);
        Ok(())
    }
}

/// An error with the key whose value could not be read.
fn named(error: RdbError, key: Option<&[u8]>) -> Failure {
    match (error, key) {
        (RdbError::Io(error), _) => Failure::Source(error),
        (error, None) => error.into(),
        (error, Some(key)) => {
            anyhow!("the data of the source: key {:.200}: {error}", key.escape_ascii()).into()
        }
    }
}
