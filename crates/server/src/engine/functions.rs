//! Libraries of functions, which all reactors share: their source texts, and the names of their
//! functions.
//!
//! The texts are [`stored_rows`]: the row's key is the library's name, and its cell the text. The
//! partition's stripe is locked by every change.
//!
//! Each reactor compiles the libraries whose functions it runs; [`Libraries::generation`] shows it
//! that they have changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use base::memory::Tracker;
use foldhash::fast::FixedState;
use store::{
    Keyspace, Mutation, Params, PartitionKey, StoreError, TableId, Timestamp, Write, Writes,
};

use crate::engine::gate::Gate;
use crate::engine::scripts::{Routine, ScriptOptions};
use crate::engine::stored_rows;

/// The place of all libraries. The identifier is part of the log's format; no table of CQL has it,
/// since its version is not that of generated ones.
pub(crate) const STORED: PartitionKey<'static> = PartitionKey {
    table: TableId(0x6d79_7269_6164_8f00_8000_6c69_6272_6172),
    token: 0,
    bytes: b"libraries",
};

/// Maximum number of libraries, of functions, and of bytes of both. A change copies the table of
/// all, and every interpreter may compile all.
pub(crate) const LIBRARIES_MAX: usize = 4_096;
pub(crate) const FUNCTIONS_MAX: usize = 65_536;
pub(crate) const BYTES_MAX: usize = 64 << 20;

/// Memory of a function or library beyond its texts: its entries in the tables of all reactors.
const ENTRY_BYTES: usize = 512;

/// Hash of the place of all libraries, to lock it.
pub(crate) fn stored_hash() -> u64 {
    STORED.hash()
}

/// Flags of a function, with the names of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FunctionFlags(u8);

// Source: Redis 7.2 `script.c`, `scripts_flags_def`
const FLAG_NAMES: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
const NO_WRITES: u8 = 1;
const ALLOW_OOM: u8 = 2;

impl FunctionFlags {
    /// Adds the flag with this name. False if there is none.
    pub(crate) fn add(&mut self, name: &[u8]) -> bool {
        let Some(place) = FLAG_NAMES.iter().position(|known| known.as_bytes() == name) else {
            return false;
        };
        self.0 |= 1 << place;
        true
    }

    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let is_set = move |(place, _): &(usize, &&str)| self.0 & (1 << place) != 0;
        FLAG_NAMES.iter().enumerate().filter(is_set).map(|(_, name)| *name)
    }

    pub(crate) fn options(self) -> ScriptOptions {
        ScriptOptions {
            is_declared: true,
            no_writes: self.0 & NO_WRITES != 0,
            allow_oom: self.0 & ALLOW_OOM != 0,
        }
    }
}

/// One function of a library.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Box<[u8]>,
    pub(crate) description: Option<Box<[u8]>>,
    pub(crate) flags: FunctionFlags,
    pub(crate) routine: Routine,
}

/// A library. Its text has run at least once without an error.
#[derive(Debug)]
pub(crate) struct Library {
    /// Never used again in this process, so that interpreters recognize what they have compiled.
    number: u64,
    pub(crate) name: Box<[u8]>,
    /// With the first line.
    pub(crate) text: Box<[u8]>,
    pub(crate) functions: Vec<Arc<Function>>,
}

impl Library {
    pub(crate) fn new(name: &[u8], text: &[u8], functions: Vec<Arc<Function>>) -> Library {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Library { number, name: name.into(), text: text.into(), functions }
    }

    fn bytes(&self) -> usize {
        let of_function = |function: &Arc<Function>| {
            let description = function.description.as_ref().map_or(0, |text| text.len());
            function.name.len() + description + ENTRY_BYTES
        };
        let functions: usize = self.functions.iter().map(of_function).sum();
        self.name.len() + self.text.len() + ENTRY_BYTES + functions
    }
}

/// Why libraries cannot be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddError {
    KnownLibrary(Box<[u8]>),
    KnownFunction(Box<[u8]>),
    TooMany,
}

/// All libraries at one time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Libraries {
    /// Different after each change.
    generation: u64,
    by_name: BTreeMap<Box<[u8]>, Arc<Library>>,
    /// By names in lower case: FCALL ignores case.
    // Source: Redis 7.2 `functions.c`, `functionDictType`
    by_function: HashMap<Vec<u8>, (Arc<Library>, Arc<Function>), FixedState>,
    bytes: usize,
}

impl Libraries {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Library>> {
        self.by_name.get(name)
    }

    /// Whether this very library is one of them, not only one of the same name.
    pub(crate) fn contains(&self, library: &Library) -> bool {
        self.get(&library.name).is_some_and(|known| known.number == library.number)
    }

    /// A function with its library, whatever the case of the name.
    pub(crate) fn function(&self, name: &[u8]) -> Option<&(Arc<Library>, Arc<Function>)> {
        self.by_function.get(&name.to_ascii_lowercase())
    }

    /// In the order of their names.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    pub(crate) fn functions(&self) -> usize {
        self.by_function.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Arc<Library>> {
        let library = self.by_name.remove(name)?;
        for function in &library.functions {
            self.by_function.remove(&function.name.to_ascii_lowercase());
        }
        self.bytes -= library.bytes();
        Some(library)
    }

    /// Adds a library. On an error nothing has changed.
    pub(crate) fn add(&mut self, library: Arc<Library>) -> Result<(), AddError> {
        if self.by_name.contains_key(&library.name) {
            return Err(AddError::KnownLibrary(library.name.clone()));
        }
        let is_known = |function: &&Arc<Function>| self.function(&function.name).is_some();
        if let Some(known) = library.functions.iter().find(is_known) {
            return Err(AddError::KnownFunction(known.name.clone()));
        }
        let is_within = self.by_name.len() < LIBRARIES_MAX
            && self.by_function.len() + library.functions.len() <= FUNCTIONS_MAX
            && self.bytes + library.bytes() <= BYTES_MAX;
        if !is_within {
            return Err(AddError::TooMany);
        }
        self.bytes += library.bytes();
        for function in &library.functions {
            let place = (Arc::clone(&library), Arc::clone(function));
            self.by_function.entry(function.name.to_ascii_lowercase()).or_insert(place);
        }
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    /// Names of libraries that another state has removed or replaced, and libraries that it has
    /// added.
    fn changes_to<'l>(&'l self, new: &'l Libraries) -> (Vec<&'l [u8]>, Vec<&'l Library>) {
        let removed = self.iter().filter(|library| new.get(&library.name).is_none());
        let added = new.iter().filter(|library| !self.contains(library));
        (removed.map(|library| &*library.name).collect(), added.map(|library| &**library).collect())
    }

    /// Bytes of a change's record. Few more than those of the texts.
    pub(crate) fn record_bytes(&self, new: &Libraries) -> usize {
        const ROW_BYTES: usize = 64;
        let (removed, added) = self.changes_to(new);
        let removed: usize = removed.iter().map(|name| name.len() + ROW_BYTES).sum();
        let added: usize = added.iter().map(|it| it.name.len() + it.text.len() + ROW_BYTES).sum();
        removed + added + ROW_BYTES
    }

    /// Passes the mutations of a change to `apply`, under the lock of [`stored_hash`].
    pub(crate) fn store(
        &self,
        new: &Libraries,
        timestamp: Timestamp,
        mut apply: impl FnMut(&Mutation<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (removed, added) = self.changes_to(new);
        let deletions = removed.iter().map(|row| stored_rows::delete(row, timestamp));
        let texts = added.iter().map(|it| stored_rows::put(&it.name, &it.text, timestamp));
        let writes: Vec<Write<'_>> = deletions.chain(texts).collect();
        if writes.is_empty() {
            return Ok(());
        }
        apply(&Mutation::Partition { key: STORED, writes: Writes::Slice(&writes) })?;
        if removed.is_empty() {
            return Ok(());
        }
        apply(&stored_rows::purge(STORED))
    }
}

/// Names and texts of the stored libraries.
pub(crate) fn stored(keyspace: &Keyspace, params: &Params) -> Vec<(Vec<u8>, Vec<u8>)> {
    stored_rows::rows(&keyspace.lock_one(stored_hash(), params), STORED)
}

/// The functions of a server.
#[derive(Debug)]
pub(crate) struct Functions {
    current: ArcSwap<Libraries>,
    /// Number of the current libraries, so that a reactor need not load them.
    generation: AtomicU64,
    /// Log position of the last change.
    gate: AtomicU64,
    memory: Arc<Tracker>,
}

impl Functions {
    /// Whether there are no libraries.
    pub(crate) fn is_empty(&self) -> bool {
        self.current.load().iter().len() == 0
    }

    pub(crate) fn new(memory: Arc<Tracker>) -> Functions {
        Functions {
            current: ArcSwap::default(),
            generation: AtomicU64::new(0),
            gate: AtomicU64::new(0),
            memory,
        }
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn current(&self) -> Arc<Libraries> {
        self.current.load_full()
    }

    /// The gate of replies that depend on libraries that the caller has read.
    pub(crate) fn gate(&self) -> Gate {
        Gate::from_store(self.gate.load(Ordering::Acquire))
    }

    /// Begins a change: a copy with a new number. The caller holds the lock of [`stored_hash`], or
    /// the server has not started.
    pub(crate) fn copy_of(libraries: &Libraries) -> Libraries {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let generation = NEXT.fetch_add(1, Ordering::Relaxed);
        Libraries { generation, ..libraries.clone() }
    }

    /// Replaces the libraries, under the same lock. `gate`: of the change's record.
    pub(crate) fn publish(&self, libraries: Arc<Libraries>, gate: Gate) {
        let (before, after) = (self.current.load().bytes as u64, libraries.bytes as u64);
        if after > before {
            self.memory.consume(after - before);
        } else {
            self.memory.release(before - after);
        }
        self.gate.fetch_max(gate.position(), Ordering::Release);
        let generation = libraries.generation;
        self.current.store(libraries);
        self.generation.store(generation, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use base::units::Limit;

    use super::*;

    fn library(name: &str, functions: &[&str]) -> Arc<Library> {
        let function = |name: &&str| {
            Arc::new(Function {
                name: name.as_bytes().into(),
                description: None,
                flags: FunctionFlags::default(),
                routine: Routine::new(ScriptOptions::default()),
            })
        };
        let functions = functions.iter().map(function).collect();
        Arc::new(Library::new(name.as_bytes(), b"text", functions))
    }

    #[test]
    fn names_of_libraries_and_functions_are_unique() {
        let mut all = Libraries::default();
        all.add(library("a", &["f", "g"])).unwrap();
        let before = all.bytes();
        assert_eq!(all.add(library("a", &["h"])), Err(AddError::KnownLibrary((*b"a").into())));
        assert_eq!(
            all.add(library("b", &["h", "g"])),
            Err(AddError::KnownFunction((*b"g").into()))
        );
        assert_eq!((all.bytes(), all.functions()), (before, 2));
        assert_eq!(all.function(b"G").map(|(of, _)| &*of.name), Some(&b"a"[..]));
        assert!(all.remove(b"a").is_some() && all.remove(b"a").is_none());
        assert_eq!((all.bytes(), all.functions()), (0, 0));
        all.add(library("b", &["h", "g"])).unwrap();
    }

    #[test]
    fn libraries_are_limited_in_number_and_bytes() {
        let mut all = Libraries::default();
        for index in 0..LIBRARIES_MAX {
            all.add(library(&format!("l{index}"), &[])).unwrap();
        }
        assert_eq!(all.add(library("another", &[])), Err(AddError::TooMany));
        let mut all = Libraries::default();
        let long = Arc::new(Library::new(b"long", &vec![b' '; BYTES_MAX], Vec::new()));
        assert_eq!(all.add(long), Err(AddError::TooMany));
    }

    #[test]
    fn a_change_is_what_differs() {
        let mut old = Libraries::default();
        let (kept, replaced) = (library("kept", &[]), library("replaced", &[]));
        for library in [Arc::clone(&kept), replaced, library("removed", &[])] {
            old.add(library).unwrap();
        }
        let mut new = Functions::copy_of(&old);
        assert_ne!(new.generation(), old.generation());
        new.remove(b"removed");
        new.remove(b"replaced");
        for name in ["replaced", "added"] {
            new.add(library(name, &[])).unwrap();
        }
        let (removed, added) = old.changes_to(&new);
        assert_eq!(removed, [b"removed"]);
        let added: Vec<&[u8]> = added.iter().map(|library| &*library.name).collect();
        assert_eq!(added, [&b"added"[..], b"replaced"]);
        assert!(new.contains(&kept));
    }

    #[test]
    fn flags_have_names() {
        let mut flags = FunctionFlags::default();
        assert!(flags.add(b"allow-oom") && flags.add(b"no-writes") && !flags.add(b"NO-WRITES"));
        assert_eq!(flags.names().collect::<Vec<_>>(), ["no-writes", "allow-oom"]);
        assert!(flags.options().no_writes && flags.options().allow_oom);
    }

    #[test]
    fn memory_of_libraries_is_counted() {
        let memory = Tracker::root("test", Limit::None, None);
        let functions = Functions::new(Arc::clone(&memory));
        let mut all = Functions::copy_of(&functions.current());
        all.add(library("a", &["f"])).unwrap();
        let bytes = all.bytes() as u64;
        functions.publish(Arc::new(all), Gate::OPEN);
        assert_eq!(memory.current_bytes(), bytes);
        functions.publish(Arc::new(Functions::copy_of(&Libraries::default())), Gate::OPEN);
        assert_eq!(memory.current_bytes(), 0);
    }
}
