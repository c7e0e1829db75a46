//! Scripts that clients have sent, shared by all reactors: source text by SHA-1.
//!
//! Each reactor compiles the scripts that it runs. A script that was only run by EVAL is removed
//! when many newer ones have been run since; one of SCRIPT LOAD remains until SCRIPT FLUSH.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::memory::Tracker;
use foldhash::fast::FixedState;
use parking_lot::Mutex;

/// Scripts that were only run by EVAL. Further ones replace the one that was not used for the
/// longest time.
// Source: Redis 7.4 `eval.c`, `LRU_LIST_LENGTH`
const EVALUATED_MAX: usize = 500;

/// Memory of a script beyond its text: its entries in the tables of all reactors.
const SCRIPT_BYTES: u64 = 512;

/// Name of a script: the SHA-1 of its text in 40 lowercase hexadecimal digits.
pub(crate) type ScriptName = [u8; 40];

/// Options of a script, from its first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ScriptOptions {
    /// The text begins with `#!`. Without it the script has the rules of older versions: it may
    /// run without memory until its first write.
    pub(crate) is_declared: bool,
    pub(crate) no_writes: bool,
    pub(crate) allow_oom: bool,
}

/// What is known of a script or function before it runs.
#[derive(Debug)]
pub(crate) struct Routine {
    pub(crate) options: ScriptOptions,
    /// It has accessed keys that its callers did not declare.
    is_undeclared: AtomicBool,
    /// It has accessed the keyspace as a whole.
    needs_all: AtomicBool,
}

impl Routine {
    pub(crate) fn new(options: ScriptOptions) -> Routine {
        Routine {
            options,
            is_undeclared: AtomicBool::new(false),
            needs_all: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_undeclared(&self) -> bool {
        self.is_undeclared.load(Ordering::Relaxed)
    }

    /// Records an access of a key that was not declared.
    pub(crate) fn mark_undeclared(&self) {
        self.is_undeclared.store(true, Ordering::Relaxed);
    }

    pub(crate) fn needs_all(&self) -> bool {
        self.needs_all.load(Ordering::Relaxed)
    }

    /// Records an access of the keyspace as a whole.
    pub(crate) fn mark_all(&self) {
        self.mark_undeclared();
        self.needs_all.store(true, Ordering::Relaxed);
    }
}

/// A script, compiled at least once without an error.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: ScriptName,
    pub(crate) text: Box<[u8]>,
    pub(crate) routine: Routine,
    /// Number of scripts that had been added when the script was last run.
    used_at: AtomicU64,
    /// Loaded by SCRIPT LOAD.
    is_kept: AtomicBool,
    is_removed: AtomicBool,
}

impl Script {
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.text.len() as u64 + SCRIPT_BYTES
    }
}

#[derive(Debug, Default)]
struct Table {
    by_name: HashMap<ScriptName, Arc<Script>, FixedState>,
    bytes: u64,
}

/// The table of all scripts.
#[derive(Debug)]
pub(crate) struct Scripts {
    table: Mutex<Table>,
    memory: Arc<Tracker>,
    /// Scripts added since the start.
    added: AtomicU64,
    /// Held by a script that accesses keys that it did not declare: two of them might wait for
    /// each other. Taken before any stripe.
    pub(crate) turn: Mutex<()>,
    /// Scripts removed since the start; reactors compare it with the value they saw last.
    removed: AtomicU64,
}

impl Scripts {
    pub(crate) fn new(memory: Arc<Tracker>) -> Scripts {
        Scripts {
            table: Mutex::default(),
            memory,
            added: AtomicU64::new(0),
            turn: Mutex::new(()),
            removed: AtomicU64::new(0),
        }
    }

    pub(crate) fn find(&self, name: &ScriptName) -> Option<Arc<Script>> {
        self.table.lock().by_name.get(name).cloned()
    }

    /// Adds a script, or returns the one with the same text. `is_kept`: it was loaded, not run.
    pub(crate) fn add(
        &self,
        name: ScriptName,
        text: &[u8],
        options: ScriptOptions,
        is_kept: bool,
    ) -> Arc<Script> {
        let mut table = self.table.lock();
        if let Some(known) = table.by_name.get(&name) {
            known.is_kept.fetch_or(is_kept, Ordering::Relaxed);
            return Arc::clone(known);
        }
        let script = Arc::new(Script {
            name,
            text: text.into(),
            routine: Routine::new(options),
            used_at: AtomicU64::new(self.added.fetch_add(1, Ordering::Relaxed)),
            is_kept: AtomicBool::new(is_kept),
            is_removed: AtomicBool::new(false),
        });
        table.bytes += script.bytes();
        self.memory.consume(script.bytes());
        table.by_name.insert(name, Arc::clone(&script));
        if !is_kept {
            self.remove_oldest(&mut table);
        }
        script
    }

    /// Removes the script that was not run for the longest time if there are too many. O(N) in the
    /// number of scripts, when a new one arrives.
    fn remove_oldest(&self, table: &mut Table) {
        let of_eval = |script: &&Arc<Script>| !script.is_kept.load(Ordering::Relaxed);
        if table.by_name.values().filter(of_eval).count() <= EVALUATED_MAX {
            return;
        }
        let evaluated = table.by_name.values().filter(of_eval);
        let oldest = evaluated.min_by_key(|script| script.used_at.load(Ordering::Relaxed));
        let Some(name) = oldest.map(|script| script.name) else { return };
        self.remove(table, &name);
    }

    fn remove(&self, table: &mut Table, name: &ScriptName) {
        let Some(script) = table.by_name.remove(name) else { return };
        script.is_removed.store(true, Ordering::Relaxed);
        table.bytes -= script.bytes();
        self.memory.release(script.bytes());
        self.removed.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes all scripts.
    pub(crate) fn flush(&self) {
        let mut table = self.table.lock();
        for name in table.by_name.keys().copied().collect::<Vec<_>>() {
            self.remove(&mut table, &name);
        }
    }

    /// Records that a reactor ran a script.
    #[inline]
    pub(crate) fn note_use(&self, script: &Script) {
        script.used_at.store(self.added.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Number of removed scripts so far.
    #[inline]
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// Number and bytes of the scripts.
    pub(crate) fn stats(&self) -> (usize, u64) {
        let table = self.table.lock();
        (table.by_name.len(), table.bytes)
    }
}

#[cfg(test)]
mod tests {
    use base::units::Limit;

    use super::*;

    fn name_of(number: usize) -> ScriptName {
        let text = format!("{number:040}");
        text.as_bytes().try_into().unwrap()
    }

    #[test]
    fn old_evaluated_scripts_are_removed_and_loaded_ones_are_not() {
        let memory = Tracker::root("test", Limit::None, None);
        let scripts = Scripts::new(Arc::clone(&memory));
        let options = ScriptOptions::default();
        let loaded = scripts.add(name_of(0), b"return 0", options, true);
        let first = scripts.add(name_of(1), b"return 1", options, false);
        let second = scripts.add(name_of(2), b"return 2", options, false);
        scripts.add(name_of(3), b"return 3", options, false);
        scripts.note_use(&first);
        for number in 4..EVALUATED_MAX + 2 {
            scripts.add(name_of(number), b"return", options, false);
        }
        assert!(!loaded.is_removed());
        assert!(!first.is_removed(), "it was used after the second");
        assert!(second.is_removed());
        assert_eq!(scripts.removed(), 1);
        let (count, bytes) = scripts.stats();
        assert_eq!(count, EVALUATED_MAX + 1);
        assert_eq!(memory.current_bytes(), bytes);
        scripts.flush();
        assert!(loaded.is_removed());
        assert_eq!(scripts.stats(), (0, 0));
        assert_eq!(memory.current_bytes(), 0);
        assert!(scripts.find(&name_of(0)).is_none());
    }
}
