//! The form of a hash with fields that expire: a table, and the times of its fields.

use base::time::UnixMs;

use super::set_in_table;
use super::times::FieldTimes;
use crate::types::table::Table;

/// A hash has this form only while a field has a time, so that others pay nothing for it. Either
/// change of form is O(1): the table is moved.
#[derive(Debug, Clone)]
pub(super) struct TimedTable {
    pub(super) table: Table<()>,
    pub(super) times: FieldTimes,
}

impl TimedTable {
    /// The value of a field, and when it expires.
    #[inline]
    pub(super) fn stored(&self, field: &[u8]) -> Option<(&[u8], Option<UnixMs>)> {
        let index = self.table.find(field)?;
        let (_, value, ()) = self.table.get_index(index)?;
        Some((value, self.times.get(index)))
    }

    /// The field at an index, unless it has expired.
    pub(super) fn live_index(&self, index: usize, now: UnixMs) -> Option<(&[u8], &[u8])> {
        let (field, value, ()) = self.table.get_index(index)?;
        (!is_due(self.times.get(index), now)).then_some((field, value))
    }

    /// All fields with their values and times, expired ones too.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], Option<UnixMs>)> {
        let rows = self.table.iter().enumerate();
        rows.map(|(index, (field, value, ()))| (field, value, self.times.get(index)))
    }

    /// Sets a field that then does not expire; true if it is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        if let Some(index) = self.table.find(field) {
            self.times.set(index, None);
        }
        set_in_table(&mut self.table, field, value)
    }

    /// Sets when a field expires, if it is there.
    pub(super) fn expire(&mut self, field: &[u8], at: Option<UnixMs>) {
        if let Some(index) = self.table.find(field) {
            self.times.set(index, at);
        }
    }

    /// Removes a field; false if it is not there.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(index) = self.table.find(field) else { return false };
        let last = self.table.len() - 1;
        self.table.swap_remove(index);
        self.times.swap_remove(index, last);
        true
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes() + self.times.heap_bytes()
    }
}

pub(super) fn is_due(at: Option<UnixMs>, now: UnixMs) -> bool {
    at.is_some_and(|at| at <= now)
}
