//! The values of an RDB file, put into a keyspace.

use std::io::{Read, Write};

use anyhow::ensure;
use base::time::UnixMs;
use store::{DATABASES, Key, Keyspace, Mutation, Params, StoreError};
use wire::rdb::{Entry, FileReader, Item, Limits, Strings, Value};

use super::report::Report;
use super::source::Opened;
use crate::config::machine_memory_bytes;
use crate::engine::rdb::Storable;

/// Where the values go.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) keyspace: &'a Keyspace,
    pub(super) params: &'a Params,
    pub(super) report: &'a mut Report,
    /// Bytes of the values so far: a small file can have much larger ones.
    pub(super) bytes: u64,
}

/// Loads the RDB part of a file; what follows it stays unread. Returns its functions.
pub(super) fn load(
    file: &mut Opened,
    mut target: Target<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<Vec<u8>>> {
    let (name, before_bytes, total_bytes) = (file.name(), file.before_bytes, file.total_bytes);
    let memory_bytes = machine_memory_bytes().unwrap_or(u64::MAX);
    let limits = Limits { bytes_max: memory_bytes / 2, elements_max: usize::MAX, ..Limits::NONE };
    let mut reader = FileReader::new(file.reader.by_ref())?.limited(limits);
    target.report.add_note(format!("{name}: RDB version {}", reader.version().number()));
    let mut functions = Vec::new();
    while let Some(item) = reader.read_item()? {
        match item {
            Item::Fact { .. } => {}
            Item::Function(source) => {
                target.bytes += source.len() as u64;
                functions.push(source);
            }
            Item::ModuleData(module) => {
                target.report.lose(format!("data of the module {module}"), || name.clone());
            }
            Item::Entry(entry) => target.put(*entry)?,
        }
        ensure!(
            target.bytes <= memory_bytes,
            "the data is larger than the memory of this machine, {} MiB, at offset {}",
            memory_bytes >> 20,
            reader.offset()
        );
        target.report.show_progress(before_bytes + reader.offset(), total_bytes, out)?;
    }
    Ok(functions)
}

impl Target<'_> {
    fn put(&mut self, entry: Entry) -> anyhow::Result<()> {
        let Entry { db, key, value, expires_unix_ms, .. } = entry;
        let place = || format!("key {} of database {db}", key.escape_ascii());
        let expiry = expires_unix_ms.map(UnixMs);
        if expiry.is_some_and(|at| at <= self.params.now()) {
            self.report.add_expired();
            return Ok(());
        }
        let known = u8::try_from(db).ok().filter(|db| usize::from(*db) < DATABASES);
        let Some(db) = known else {
            let what = format!("key of a database above {}", DATABASES - 1);
            self.report.lose(what, place);
            return Ok(());
        };
        let type_name = value.type_name();
        let Some(value) = self.without_expired_fields(value) else {
            self.report.add_expired();
            return Ok(());
        };
        let storable = match Storable::new(value) {
            Ok(storable) => storable,
            Err(error) => {
                self.report.lose(error.to_string(), place);
                return Ok(());
            }
        };
        self.bytes += (key.len() + storable.record_bytes()) as u64;
        let name = Key { bytes: &key, hash: self.keyspace.hash(&key) };
        let mutation = Mutation::Key { db, key: name, change: storable.change(expiry) };
        match self.keyspace.replay(&mutation, self.params, |_| false) {
            Ok(()) => self.report.add_key(db, type_name),
            Err(StoreError::Malformed) => {
                let what = format!("a {type_name} without elements, or with the same one twice");
                self.report.lose(what, place);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Removes the fields of a hash that have expired. `None`: all have.
    fn without_expired_fields(&self, value: Value) -> Option<Value> {
        let Value::Hash { pairs, expiries } = value else { return Some(value) };
        let now = self.params.now().0;
        if expiries.iter().all(|(_, at)| *at > now) {
            return Some(Value::Hash { pairs, expiries });
        }
        let mut times = expiries.into_iter().peekable();
        let (mut live, mut live_expiries) = (Strings::default(), Vec::new());
        for pair in 0..pairs.len() / 2 {
            let at = times.next_if(|(timed, _)| *timed == pair).map(|(_, at)| at);
            if at.is_some_and(|at| at <= now) {
                continue;
            }
            live_expiries.extend(at.map(|at| (live.len() / 2, at)));
            live.push(pairs.get(2 * pair));
            live.push(pairs.get(2 * pair + 1));
        }
        let value = Value::Hash { pairs: live, expiries: live_expiries };
        (!value.is_empty()).then_some(value)
    }
}
