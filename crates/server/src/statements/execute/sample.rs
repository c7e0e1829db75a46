//! Samples the partitions that statements name, for [`HotKeys`](crate::engine::hot_keys::HotKeys).

use cql::schema::Table;
use cql::value::text::put_json;

use super::keys::{Key, split};
use super::write::BoundWrite;
use crate::engine::hot_keys::Space;
use crate::statements::executor::CqlExecutor;

/// Longer key parts are truncated to this size before display.
const PART_BYTES_MAX: usize = 64;

impl CqlExecutor<'_> {
    /// Records one of the keys that a SELECT names, if it is selected for the sample.
    #[inline]
    pub(super) fn sample_keys(&mut self, table: &Table, keys: &[Key]) {
        if self.reactor.key_sampler.is_due() {
            self.note_sample(table, keys);
        }
    }

    /// Records a key of writes that are applied atomically. There is at least one write.
    #[inline]
    pub(super) fn sample_writes(&mut self, writes: &[BoundWrite<'_>]) {
        if self.reactor.key_sampler.is_due() {
            let nth = self.reactor.key_sampler.choose(writes.len()).unwrap_or(0);
            self.note_sample(&writes[nth].plan.table, &writes[nth].keys);
        }
    }

    #[cold]
    fn note_sample(&mut self, table: &Table, keys: &[Key]) {
        let chosen = self.reactor.key_sampler.choose(keys.len());
        let found = chosen.map(|nth| &keys[nth]);
        let found = found.map(|key| (self.shared.keyspace.hash(&key.bytes), shown(key, table)));
        let mut published = self.shared.published[self.reactor.index].lock();
        match found {
            None => published.hot_keys.note_keyless(),
            Some((hash, name)) => {
                published.hot_keys.note(Space::Table(table.id), hash, name.as_bytes());
            }
        }
    }
}

/// Formats a key: its parts as SELECT JSON shows them.
fn shown(key: &Key, table: &Table) -> String {
    let mut out = String::new();
    let parts = split(&key.bytes, table);
    for (nth, (part, column)) in parts.iter().zip(table.partition_key()).enumerate() {
        out.push_str(if nth == 0 { "" } else { ", " });
        if part.len() <= PART_BYTES_MAX {
            put_json(part, &column.column_type, &mut out);
        } else {
            out.push_str(&String::from_utf8_lossy(&part[..PART_BYTES_MAX]));
        }
    }
    out
}
