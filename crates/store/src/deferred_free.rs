//! Removed data, kept until the lock of the stripe is released: freeing a set of a million members
//! takes tens of milliseconds, for which no other reactor should wait.

use crate::databases::Databases;
use crate::entry::Entry;
use crate::indexes::Index;
use crate::object::{Object, Objects};
use crate::partitions;
use crate::table::Table;

/// Parts of this many elements are worth a trip to a background thread.
/// Source: `LAZYFREE_THRESHOLD` 64 of Redis's `lazyfree.c`.
const HEAVY_ELEMENTS: usize = 64;

#[derive(Debug)]
#[expect(dead_code, reason = "entries are kept only to be dropped, later and elsewhere")]
pub(crate) enum Garbage {
    Entry(Entry),
    Object(Object),
    Objects(Objects),
    Table(Table),
    Databases(Databases),
    Partitions(partitions::Table),
    Index(Index),
}

impl Garbage {
    fn elements(&self) -> usize {
        match self {
            Garbage::Entry(_) => 1,
            Garbage::Object(object) => object.len(),
            Garbage::Objects(objects) => objects.slots.len(),
            Garbage::Table(table) => table.len(),
            Garbage::Partitions(table) => table.len(),
            Garbage::Index(index) => index.len(),
            Garbage::Databases(dbs) => dbs.iter().map(|(_, db)| db.table.len()).sum(),
        }
    }
}

/// Removed parts of the store. Dropping it frees them: do that without locks, and for heavy trash
/// on another thread than the reactor.
#[derive(Debug, Default)]
pub struct DeferredFree {
    /// `None` while nothing was removed, because dropping an empty list is a call.
    parts: Option<Vec<Garbage>>,
}

impl Drop for DeferredFree {
    /// Most requests remove nothing: in them a drop is a comparison.
    #[inline]
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            free(parts);
        }
    }
}

#[inline(never)]
fn free(parts: Vec<Garbage>) {
    drop(parts);
}

impl DeferredFree {
    pub fn is_empty(&self) -> bool {
        self.parts.is_none()
    }

    /// Whether freeing takes long enough to delay a reactor.
    pub fn is_heavy(&self) -> bool {
        let mut elements = 0;
        self.parts.iter().flatten().any(|part| {
            elements += part.elements();
            elements > HEAVY_ELEMENTS
        })
    }

    pub(crate) fn push_databases(&mut self, dbs: Databases) {
        if dbs.iter().any(|(_, db)| db.table.len() > 0) {
            self.push(Garbage::Databases(dbs));
        }
    }

    pub(crate) fn push(&mut self, part: Garbage) {
        self.parts.get_or_insert_default().push(part);
    }
}
