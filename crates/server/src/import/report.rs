//! What an import has found, and what it could not import.

use std::collections::BTreeMap;
use std::io::{self, Write};

use base::time::MonoNs;

use crate::engine::clock;

/// Different losses that are listed; there can be as many as error texts.
const LOSSES_MAX: usize = 1000;
const REPORT_PERIOD_NS: u64 = 2_000_000_000;

#[derive(Debug)]
struct Loss {
    count: u64,
    /// Where the first one is.
    first: String,
}

/// Counts of an import.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Keys of the RDB part by database and type.
    keys: BTreeMap<(u8, &'static str), u64>,
    expired: u64,
    commands: u64,
    functions: u64,
    losses: BTreeMap<String, Loss>,
    notes: Vec<String>,
    /// Keys of each database after the commands.
    totals: BTreeMap<usize, u64>,
    progress: Progress,
}

/// When progress was shown.
#[derive(Debug, Default)]
struct Progress {
    shown: Option<MonoNs>,
}

impl Report {
    pub(super) fn add_key(&mut self, db: u8, type_name: &'static str) {
        *self.keys.entry((db, type_name)).or_default() += 1;
    }

    pub(super) fn add_expired(&mut self) {
        self.expired += 1;
    }

    pub(super) fn add_command(&mut self) {
        self.commands += 1;
    }

    pub(super) fn add_function(&mut self) {
        self.functions += 1;
    }

    pub(super) fn add_note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Replaces the number of keys that had expired before the commands.
    pub(super) fn set_expired(&mut self, keys: u64) {
        self.expired = keys;
    }

    pub(super) fn set_total(&mut self, db: usize, keys: u64) {
        self.totals.insert(db, keys);
    }

    /// Counts something that is not imported.
    pub(super) fn lose(&mut self, what: String, first: impl FnOnce() -> String) {
        let is_known = self.losses.contains_key(&what);
        let what =
            if is_known || self.losses.len() < LOSSES_MAX { what } else { "others".to_owned() };
        let loss = self.losses.entry(what).or_insert_with(|| Loss { count: 0, first: first() });
        loss.count += 1;
    }

    pub(super) fn has_losses(&self) -> bool {
        !self.losses.is_empty()
    }

    /// Shows how far the import is, now and then.
    pub(super) fn show_progress(
        &mut self,
        done_bytes: u64,
        total_bytes: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let now = clock::mono_now();
        let shown = *self.progress.shown.get_or_insert(now);
        if now.since(shown) < REPORT_PERIOD_NS {
            return Ok(());
        }
        self.progress.shown = Some(now);
        let keys: u64 = self.keys.values().sum();
        let percent = done_bytes.saturating_mul(100) / total_bytes.max(1);
        writeln!(out, "{percent} %: {keys} keys, {} commands", self.commands)
    }

    /// Prints the outcome.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        let mut databases: BTreeMap<u8, (u64, Vec<String>)> = BTreeMap::new();
        for ((db, type_name), count) in &self.keys {
            let (sum, types) = databases.entry(*db).or_default();
            *sum += count;
            types.push(format!("{type_name} {count}"));
        }
        for (db, (sum, types)) in databases {
            writeln!(out, "database {db}: {sum} keys ({})", types.join(", "))?;
        }
        for (count, what) in [
            (self.expired, "keys had expired and were left out"),
            (self.functions, "libraries of functions were loaded"),
            (self.commands, "commands were executed"),
        ] {
            if count > 0 {
                writeln!(out, "{count} {what}")?;
            }
        }
        for (db, keys) in &self.totals {
            writeln!(out, "database {db}: {keys} keys at the end")?;
        }
        if self.losses.is_empty() {
            return writeln!(out, "everything was imported");
        }
        writeln!(out, "not imported:")?;
        for (what, Loss { count, first }) in &self.losses {
            writeln!(out, "  {count} x {what}; first: {first}")?;
        }
        Ok(())
    }
}
