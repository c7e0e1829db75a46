//! The values of an RDB file, put into a keyspace.

use std::io::{Read, Write};

use anyhow::ensure;
use base::time::UnixMs;
use store::{Change, DATABASES, Due, Items, Key, Keyspace, Mutation, Params, STRIPES, StoreError};
use wire::rdb::{Entry, FileReader, Item, Limits, Value};

use super::report::Report;
use super::source::Opened;
use crate::config::machine_memory_bytes;
use crate::engine::rdb::Storable;

/// Fields of a hash that are removed by one change.
const FIELDS_MAX: usize = 1024;

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
        let known = u8::try_from(db).ok().filter(|db| usize::from(*db) < DATABASES);
        let Some(db) = known else {
            let what = format!("key of a database above {}", DATABASES - 1);
            self.report.lose(what, place);
            return Ok(());
        };
        let type_name = value.type_name();
        let has_expired = self.has_expired(&value, expiry);
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
            Ok(()) if has_expired => self.report.add_expired(),
            Ok(()) => self.report.add_key(db, type_name),
            Err(StoreError::Malformed) => {
                let what = format!("a {type_name} without elements, or with the same one twice");
                self.report.lose(what, place);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Whether the key, or every field of its hash, has expired. It is stored all the same, since
    /// commands may follow that extend it.
    fn has_expired(&self, value: &Value, expiry: Option<UnixMs>) -> bool {
        let now = self.params.now();
        if expiry.is_some_and(|at| at <= now) {
            return true;
        }
        let Value::Hash { pairs, expiries } = value else { return false };
        expiries.len() == pairs.len() / 2 && expiries.iter().all(|(_, at)| *at <= now.0)
    }
}

/// Removes the keys and fields of hashes that have expired.
pub(super) fn remove_expired(keyspace: &Keyspace, params: &Params) -> Result<(), StoreError> {
    for stripe in 0..STRIPES {
        let next = || keyspace.lock_stripe(stripe, params).next_expired();
        while let Some((db, name, due)) = next() {
            let key = keyspace.key(&name);
            let locked = keyspace.lock_stripe(stripe, params);
            let fields = locked.due_fields(db, key, FIELDS_MAX, usize::MAX);
            drop(locked);
            let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
            let change = match due {
                Due::Key => Change::Delete,
                Due::Fields => Change::HashRemove { fields: Items::Slice(&fields) },
                Due::Points => unreachable!("a time series has no type in a file"),
            };
            keyspace.replay(&Mutation::Key { db, key, change }, params, |_| false)?;
        }
    }
    Ok(())
}
