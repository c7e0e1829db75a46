//! Prepared statements: one table for the server, and a cache of it in each reactor.
//!
//! EXECUTE looks its statement up in the cache of its own reactor, without a lock or a shared
//! counter. Only a cache miss reads the table. A flag in the statement marks it as removed from the
//! table.

use std::collections::{HashMap, hash_map};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::memory::Tracker;
use base::time::MonoNs;
use cql::plan::prepared::PreparedStatement;
use cql::schema::Catalog;
use foldhash::fast::FixedState;
use parking_lot::Mutex;

/// Age of the last recorded use at which a new one is recorded: frequent uses by many reactors must
/// not write to the same memory.
const USE_NS_MIN: u64 = 1_000_000_000;

/// Fraction of the statements that is evicted when the table is full, least recently used first:
/// finding them costs a pass over all statements.
const EVICTED_PARTS: usize = 16;

/// Memory of a statement apart from its text and its columns: its plan, its entries in two tables.
const STATEMENT_BYTES: u64 = 2048;

/// Limits of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PreparedLimits {
    pub(crate) statements_max: usize,
    pub(crate) bytes_max: u64,
}

/// A statement in the table.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) statement: Arc<PreparedStatement>,
    bytes: u64,
    used_at: AtomicU64,
    /// True once the statement was removed from the table.
    is_removed: AtomicBool,
}

impl Entry {
    fn new(statement: PreparedStatement, now: MonoNs) -> Entry {
        Entry {
            bytes: estimate_bytes(&statement),
            statement: Arc::new(statement),
            used_at: AtomicU64::new(now.0),
            is_removed: AtomicBool::new(false),
        }
    }

    fn note_use(&self, now: MonoNs) {
        let used_at = MonoNs(self.used_at.load(Ordering::Relaxed));
        if now.since(used_at) >= USE_NS_MIN {
            self.used_at.store(now.0, Ordering::Relaxed);
        }
    }

    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }
}

fn estimate_bytes(statement: &PreparedStatement) -> u64 {
    let columns = |columns: &[wire::cql::Column]| -> usize {
        columns.iter().map(|column| size_of_val(column) + column.name.len()).sum()
    };
    let result = statement.result.as_ref().map_or(0, |result| columns(&result.columns));
    // The plan repeats the text, as names and constants.
    let bytes = 2 * statement.text.len() + columns(&statement.markers.columns) + result;
    bytes as u64 + STATEMENT_BYTES
}

/// All prepared statements of the server.
#[derive(Debug)]
pub(crate) struct PreparedTable {
    inner: Mutex<Inner>,
    memory: Arc<Tracker>,
    /// Number of statements that were removed from the table.
    removed: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    by_id: HashMap<[u8; 16], Arc<Entry>, FixedState>,
    bytes: u64,
}

/// Statistics for INFO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PreparedStats {
    pub(crate) statements: usize,
    pub(crate) bytes: u64,
    /// Statements that were evicted, or invalidated by a schema change.
    pub(crate) removed: u64,
}

impl PreparedTable {
    pub(crate) fn new(memory: Arc<Tracker>) -> PreparedTable {
        PreparedTable { inner: Mutex::default(), memory, removed: AtomicU64::new(0) }
    }

    /// Reports the table's memory to the tracker, and counts the removed statements.
    fn account(&self, before: u64, after: u64, removed: u64) {
        self.memory.consume(after);
        self.memory.release(before);
        self.removed.fetch_add(removed, Ordering::Relaxed);
    }

    pub(crate) fn find(&self, id: &[u8; 16]) -> Option<Arc<Entry>> {
        self.inner.lock().by_id.get(id).map(Arc::clone)
    }

    /// Returns the statements that are valid for this schema, by id. O(statements).
    pub(crate) fn current_statements(&self, catalog: &Arc<Catalog>) -> Vec<Arc<PreparedStatement>> {
        let entries = self.inner.lock();
        let statements = entries.by_id.values().map(|entry| Arc::clone(&entry.statement));
        let mut statements: Vec<_> = statements.collect();
        drop(entries);
        statements.retain(|statement| statement.is_current(catalog));
        statements.sort_unstable_by_key(|statement| statement.id);
        statements
    }

    /// Adds a statement, replacing any older one with its id, and evicts others to make room.
    pub(crate) fn insert(
        &self,
        statement: PreparedStatement,
        limits: PreparedLimits,
        now: MonoNs,
    ) -> Arc<Entry> {
        let entry = Arc::new(Entry::new(statement, now));
        let mut inner = self.inner.lock();
        let before = inner.bytes;
        let mut removed = inner.make_room(entry.bytes, limits);
        inner.bytes += entry.bytes;
        let old = inner.by_id.insert(entry.statement.id, Arc::clone(&entry));
        if let Some(old) = old {
            inner.bytes -= old.bytes;
            old.is_removed.store(true, Ordering::Relaxed);
            removed += 1;
        }
        self.account(before, inner.bytes, removed);
        entry
    }

    /// Removes an outdated statement, unless another one has replaced it.
    fn remove(&self, entry: &Arc<Entry>) {
        let mut inner = self.inner.lock();
        let id = &entry.statement.id;
        if inner.by_id.get(id).is_some_and(|known| Arc::ptr_eq(known, entry)) {
            inner.by_id.remove(id);
            let before = inner.bytes;
            inner.bytes -= entry.bytes;
            entry.is_removed.store(true, Ordering::Relaxed);
            self.account(before, inner.bytes, 1);
        }
    }

    pub(crate) fn stats(&self) -> PreparedStats {
        let inner = self.inner.lock();
        PreparedStats {
            statements: inner.by_id.len(),
            bytes: inner.bytes,
            removed: self.removed.load(Ordering::Relaxed),
        }
    }
}

impl Inner {
    /// Evicts until a statement of `bytes` fits. Returns the number of evicted statements.
    fn make_room(&mut self, bytes: u64, limits: PreparedLimits) -> u64 {
        let fits = |inner: &Inner| {
            inner.by_id.len() < limits.statements_max && inner.bytes + bytes <= limits.bytes_max
        };
        let mut evicted = 0;
        while !fits(self) && !self.by_id.is_empty() {
            let mut entries: Vec<Arc<Entry>> = self.by_id.values().map(Arc::clone).collect();
            entries.sort_by_key(|entry| entry.used_at.load(Ordering::Relaxed));
            let count = entries.len().div_ceil(EVICTED_PARTS);
            for entry in entries.into_iter().take(count) {
                self.by_id.remove(&entry.statement.id);
                self.bytes -= entry.bytes;
                entry.is_removed.store(true, Ordering::Relaxed);
                evicted += 1;
            }
        }
        evicted
    }
}

/// One reactor's cache of the table.
#[derive(Debug, Default)]
pub(crate) struct StatementCache {
    by_id: HashMap<[u8; 16], KnownEntry, FixedState>,
    /// The table's count of removed statements when the cache was last cleaned.
    removed: u64,
}

#[derive(Debug)]
struct KnownEntry {
    entry: Arc<Entry>,
    /// The schema for which the statement was last found to be valid.
    catalog: Arc<Catalog>,
}

impl KnownEntry {
    /// Whether the statement is valid for this schema and still in the table.
    fn is_current(&self, catalog: &Arc<Catalog>) -> bool {
        !self.entry.is_removed() && Arc::ptr_eq(&self.catalog, catalog)
    }
}

impl StatementCache {
    /// Returns a valid statement. `None` if the client must prepare it (again). Costs one lookup if
    /// the statement is cached and the schema has not changed.
    pub(crate) fn find_valid(
        &mut self,
        table: &PreparedTable,
        id: &[u8],
        catalog: &Arc<Catalog>,
        now: MonoNs,
    ) -> Option<&Arc<PreparedStatement>> {
        let id = <&[u8; 16]>::try_from(id).ok()?;
        match self.by_id.entry(*id) {
            hash_map::Entry::Occupied(known) if known.get().is_current(catalog) => {
                let known = known.into_mut();
                known.entry.note_use(now);
                Some(&known.entry.statement)
            }
            place => reload(place, table, id, catalog),
        }
    }

    /// Returns a cached statement, which may be invalid.
    pub(crate) fn get(&self, id: &[u8]) -> Option<&Arc<PreparedStatement>> {
        let id = <&[u8; 16]>::try_from(id).ok()?;
        self.by_id.get(id).map(|known| &known.entry.statement)
    }

    pub(crate) fn add(&mut self, entry: Arc<Entry>, catalog: &Arc<Catalog>) {
        let id = entry.statement.id;
        self.by_id.insert(id, KnownEntry { entry, catalog: Arc::clone(catalog) });
    }

    /// Drops cached statements that were removed from the table. Free if none was.
    pub(crate) fn forget_removed(&mut self, table: &PreparedTable) {
        let removed = table.removed.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.removed, removed) != removed {
            self.by_id.retain(|_, known| !known.entry.is_removed());
        }
    }
}

/// Looks up in the table a statement that is not cached, or is outdated.
#[cold]
fn reload<'k>(
    place: hash_map::Entry<'k, [u8; 16], KnownEntry>,
    table: &PreparedTable,
    id: &[u8; 16],
    catalog: &Arc<Catalog>,
) -> Option<&'k Arc<PreparedStatement>> {
    let known = match &place {
        hash_map::Entry::Occupied(known) => Some(Arc::clone(&known.get().entry)),
        hash_map::Entry::Vacant(_) => None,
    };
    let found = known.filter(|entry| !entry.is_removed()).or_else(|| table.find(id));
    let current = found.filter(|entry| {
        let is_current = entry.statement.is_current(catalog);
        if !is_current {
            table.remove(entry);
        }
        is_current
    });
    match (current, place) {
        (Some(entry), place) => {
            let known = KnownEntry { entry, catalog: Arc::clone(catalog) };
            Some(&place.insert_entry(known).into_mut().entry.statement)
        }
        (None, hash_map::Entry::Occupied(old)) => {
            old.remove();
            None
        }
        (None, hash_map::Entry::Vacant(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use base::units::Limit;
    use cql::plan::prepared::statement_id;
    use cql::schema::builtin;

    use super::*;

    const LIMITS: PreparedLimits = PreparedLimits { statements_max: 1000, bytes_max: 1 << 20 };

    struct Fixture {
        table: PreparedTable,
        memory: Arc<Tracker>,
        catalog: Arc<Catalog>,
    }

    impl Fixture {
        fn new() -> Fixture {
            let memory = Tracker::root("prepared", Limit::None, None);
            let table = PreparedTable::new(Arc::clone(&memory));
            Fixture { table, memory, catalog: builtin() }
        }

        /// Prepares a statement followed by `number` blanks, so that each number has a different
        /// id.
        fn prepare(&self, number: usize, limits: PreparedLimits) -> [u8; 16] {
            let text = format!("USE system{}", " ".repeat(number));
            let catalog = Arc::clone(&self.catalog);
            let statement = PreparedStatement::new(&text, None, catalog).unwrap();
            let id = statement.id;
            self.table.insert(statement, limits, at(number as u64));
            id
        }

        fn find_valid(&self, known: &mut StatementCache, id: &[u8]) -> bool {
            known.find_valid(&self.table, id, &self.catalog, at(1000)).is_some()
        }
    }

    fn at(seconds: u64) -> MonoNs {
        MonoNs(seconds * 1_000_000_000)
    }

    /// The ids equal those of Cassandra: MD5 of keyspace and text.
    #[test]
    fn ids_are_the_same_everywhere() {
        let hex = |id: [u8; 16]| base::hex::hex(&id);
        assert_eq!(hex(statement_id("USE system", None)), "6025498bfbba6f68451a43c3923289ba");
        assert_eq!(
            hex(statement_id("SELECT * FROM t", Some("ks"))),
            "125e492ea51717990eba4738bbb59bdb"
        );
    }

    #[test]
    fn reactors_learn_what_is_in_the_table() {
        let fixture = Fixture::new();
        let id = fixture.prepare(0, LIMITS);
        let mut known = StatementCache::default();
        assert!(known.get(&id).is_none());
        assert!(fixture.find_valid(&mut known, &id));
        assert_eq!(known.get(&id).unwrap().text, "USE system");
        assert!(!fixture.find_valid(&mut known, &[7; 16]));
        assert!(!fixture.find_valid(&mut known, b"short"));
        assert!(known.get(b"short").is_none());
    }

    #[test]
    fn the_longest_unused_go_first() {
        let fixture = Fixture::new();
        let limits = PreparedLimits { statements_max: 4, ..LIMITS };
        let mut known = StatementCache::default();
        let ids: Vec<_> = (0..4).map(|number| fixture.prepare(number, limits)).collect();
        // The first one is used after all others were prepared.
        assert!(fixture.find_valid(&mut known, &ids[0]) && fixture.find_valid(&mut known, &ids[1]));
        assert!(fixture.find_valid(&mut known, &ids[0]));
        fixture.prepare(4, limits);
        let is_there = |id: &[u8; 16]| fixture.table.find(id).is_some();
        assert_eq!(ids.iter().map(is_there).collect::<Vec<_>>(), [true, false, true, true]);
        assert_eq!(fixture.table.stats().statements, 4);
        assert_eq!(fixture.table.stats().removed, 1);
        assert!(!fixture.find_valid(&mut known, &ids[1]), "a reactor runs a removed statement");
        assert_eq!(known.by_id.len(), 1);
    }

    #[test]
    fn bytes_are_limited_and_accounted_for() {
        let fixture = Fixture::new();
        let limits = PreparedLimits { bytes_max: 10 * STATEMENT_BYTES, ..LIMITS };
        let mut known = StatementCache::default();
        for number in 0..100 {
            let id = fixture.prepare(number, limits);
            assert!(fixture.find_valid(&mut known, &id));
            let stats = fixture.table.stats();
            assert!(stats.bytes <= limits.bytes_max && stats.statements > 0);
            assert_eq!(fixture.memory.current_bytes(), stats.bytes);
        }
        assert_eq!(known.by_id.len(), 100);
        known.forget_removed(&fixture.table);
        assert_eq!(known.by_id.len(), fixture.table.stats().statements);
        // A statement larger than the limit is kept alone, until the next one is prepared.
        fixture.prepare(0, PreparedLimits { bytes_max: 1, ..LIMITS });
        assert_eq!(fixture.table.stats().statements, 1);
    }

    #[test]
    fn a_change_of_the_schema_is_seen_at_the_next_use() {
        let mut fixture = Fixture::new();
        let id = fixture.prepare(0, LIMITS);
        let mut known = StatementCache::default();
        assert!(fixture.find_valid(&mut known, &id));
        // A schema change that does not affect the statement.
        fixture.catalog = Arc::new((*fixture.catalog).clone());
        assert!(fixture.find_valid(&mut known, &id));
        fixture.catalog = Arc::new(Catalog::default());
        assert!(!fixture.find_valid(&mut known, &id));
        assert_eq!(fixture.table.stats().statements, 0);
        assert_eq!(fixture.memory.current_bytes(), 0);
    }
}
