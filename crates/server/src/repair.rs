//! `myriad log repair`: from a directory that the server refuses to the data that can still be read.
//!
//! All that recovery can read becomes a new snapshot, at a position above all that the old log has ever
//! given out. The old files move to a directory beside it: nothing is removed, and a new log begins at
//! the next start. Whenever this is interrupted, the directory is refused as before or it is repaired:
//!
//! 1. the snapshot is written and gets its name; the old log does not reach its position, and is refused;
//! 2. segments and older snapshots move; without segments a log with a manifest is refused;
//! 3. the manifest moves.

use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use binlog::{Disk, FileDisk, Lsn, ReplayError, Salvage, Span};

use crate::config::Settings;
use crate::engine::clock;
use crate::engine::shared::params;
use crate::engine::snapshot_taker::write_whole;
use crate::engine::snapshots::{self, Snapshot};
use crate::recovery::replay_record;

/// What is done with a directory that needs a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Say what would be done. An error, as the directory still needs it.
    Try,
    Apply,
}

/// Repairs the directory of a server that does not run. A directory that the server would take stays
/// as it is.
pub fn repair(dir: &Path, mode: Mode, out: &mut dyn Write) -> anyhow::Result<()> {
    let opening = || format!("opening {}", dir.display());
    // Not made if it is missing, as the server would.
    FileDisk::read_only(dir).with_context(opening)?;
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open_buffered(dir).with_context(opening)?);
    let (read, found) = read_back(&*disk, Lsn(u64::MAX))?;
    let Some(fault) = &found.fault else {
        writeln!(out, "nothing to repair: a server would start with this directory")?;
        return Ok(());
    };
    writeln!(out, "{fault}")?;
    if read.floors.iter().any(|floor| *floor > 0) {
        writeln!(out, "there is a snapshot of {} keys", read.keys)?;
    }
    writeln!(
        out,
        "{} records of the log can be used, up to position {}",
        found.records, found.end
    )?;
    if mode == Mode::Try {
        bail!("nothing was changed; to continue with these data, run it again with --apply");
    }
    drop(read);
    // Again, but not into the record that could not be applied.
    let (read, again) = read_back(&*disk, found.end)?;
    if again.records != found.records {
        bail!("{} has changed meanwhile", dir.display());
    }
    let old: Vec<String> = disk.list()?.into_iter().filter(|name| is_data(name)).collect();
    let position = found.above.0;
    let keys = write_whole(&disk, &read.keyspace, position, read.newest_timestamp)
        .context("writing a new snapshot")?;
    let aside = format!("before-repair-{position}");
    move_to(dir, &aside, old).with_context(|| format!("moving the old files to {aside}"))?;
    writeln!(
        out,
        "repaired: a new snapshot holds {keys} keys; the old files are in {aside}, which \
         can be removed once the data has been checked"
    )?;
    Ok(())
}

/// What recovery can read before position `stop`.
fn read_back(disk: &dyn Disk, stop: Lsn) -> anyhow::Result<(Snapshot, Salvage)> {
    let (now, random) = (clock::unix_now(), rand::random());
    let settings = Settings::default();
    let read = snapshots::read(disk, &params(&settings, now, random, random))
        .context("a snapshot cannot be repaired")?;
    let mut read = read.unwrap_or_else(|| Snapshot::none(random, now));
    let replaying = params(&settings, now, read.keyspace.seed(), random);
    let lowest = read.floors.iter().copied().min().unwrap_or(0);
    let highest = read.floors.iter().copied().max().unwrap_or(0);
    let span = Span { from: Lsn(lowest), reach: Lsn(highest) };
    let mut newest = read.newest_timestamp;
    let found = binlog::salvage(disk, span, &mut |record| {
        if record.start >= stop {
            return Err(ReplayError::from("the repair stops here"));
        }
        let stamp = replay_record(&read.keyspace, &replaying, &read.floors, record)?;
        newest = newest.max(stamp.unwrap_or(i64::MIN));
        Ok(())
    })?;
    read.newest_timestamp = newest;
    Ok((read, found))
}

fn is_data(name: &str) -> bool {
    let has = |start: &str, end: &str| name.starts_with(start) && name.ends_with(end);
    has("log-", ".seg") || has("snapshot-", ".myr") || name.starts_with(MANIFEST_START)
}

/// A manifest, or one that was not finished.
const MANIFEST_START: &str = "log.manifest";

fn move_to(dir: &Path, aside: &str, mut names: Vec<String>) -> std::io::Result<()> {
    let to = dir.join(aside);
    DirBuilder::new().mode(0o700).create(&to)?;
    names.sort_by_key(|name| (name.starts_with(MANIFEST_START), name.clone()));
    for name in names {
        if name.starts_with(MANIFEST_START) {
            File::open(&to)?.sync_all()?;
            File::open(dir)?.sync_all()?;
        }
        fs::rename(dir.join(&name), to.join(&name))?;
    }
    File::open(&to)?.sync_all()?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests;
