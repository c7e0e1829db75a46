//! The values of an RDB file, put into a keyspace.

use std::io::{Read, Write};

use base::time::UnixMs;
use store::{DATABASES, Key, Keyspace, Mutation, Params, StoreError};
use wire::rdb::{Entry, FileReader, Item, Value};

use super::report::Report;
use super::source::Opened;
use crate::engine::rdb::Storable;

/// Where the values go.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) keyspace: &'a Keyspace,
    pub(super) params: &'a Params,
    pub(super) report: &'a mut Report,
}

/// Loads the RDB part of a file; what follows it stays unread. Returns its functions.
pub(super) fn load(
    file: &mut Opened,
    mut target: Target<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<Vec<u8>>> {
    let (name, before_bytes, total_bytes) = (file.name(), file.before_bytes, file.total_bytes);
    let mut reader = FileReader::new(file.reader.by_ref())?;
    target.report.add_note(format!("{name}: RDB version {}", reader.version().number()));
    let mut functions = Vec::new();
    while let Some(item) = reader.read_item()? {
        match item {
            Item::Fact { .. } => {}
            Item::Function(source) => functions.push(source),
            Item::ModuleData(module) => {
                target.report.lose(format!("data of the module {module}"), || name.clone());
            }
            Item::Entry(entry) => target.put(*entry)?,
        }
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
        let storable = match Storable::new(self.without_expired_fields(value)) {
            Ok(storable) => storable,
            Err(error) => {
                self.report.lose(error.to_string(), place);
                return Ok(());
            }
        };
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

    /// Removes the fields of a hash that have expired.
    fn without_expired_fields(&self, value: Value) -> Value {
        let Value::Hash { pairs, expiries } = value else { return value };
        let now = self.params.now().0;
        if expiries.iter().any(|(_, at)| *at > now) {
            return Value::Hash { pairs, expiries };
        }
        let mut expired = expiries.into_iter().map(|(pair, _)| pair).peekable();
        let live = (0..pairs.len() / 2).filter(|pair| expired.next_if_eq(pair).is_none());
        let parts = live.flat_map(|pair| [pairs.get(2 * pair), pairs.get(2 * pair + 1)]);
        Value::Hash { pairs: parts.collect(), expiries: Vec::new() }
    }
}
