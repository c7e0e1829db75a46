//! `myriad log repair`: recovers the readable data from a directory that the server refuses.
//!
//! All data that recovery can read is written to a new snapshot, at a position above every position
//! that the old log has assigned. The old files move to a subdirectory: nothing is deleted, and the
//! next start begins a new log. An interruption at any point leaves a directory that is either
//! repaired or still refused:
//!
//! 1. The snapshot is written and renamed. The old log does not reach its position, so the
//!    directory is refused.
//! 2. Segments and older snapshots move. A log that has a manifest but no segments is refused.
//! 3. The manifest moves.

use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use binlog::{Disk, Lsn, ReplayError, Salvage, Span};
use store::{Keyspace, Params};

use crate::config::Settings;
use crate::data_directory::{self, MANIFEST_START, is_data};
use crate::engine::clock;
use crate::engine::contents::Contents;
use crate::engine::server_state::params;
use crate::engine::snapshot_taker::write_whole;
use crate::engine::snapshots::{self, Snapshot};
use crate::recovery::replay_record;

/// What to do with a directory that needs a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Reports what a repair would do. Returns an error, because the directory still needs the
    /// repair.
    Try,
    Apply,
}

/// Repairs the data directory of a stopped server. Does not change a directory that the server
/// would accept.
pub fn repair(dir: &Path, mode: Mode, out: &mut dyn Write) -> anyhow::Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(data_directory::hold(dir)?);
    let ReadBack { read, of_snapshot, found } = read_back(&*disk, Lsn(u64::MAX))?;
    let Some(fault) = &found.fault else {
        writeln!(out, "nothing to repair: the server can start with this directory")?;
        return Ok(());
    };
    writeln!(out, "{fault}")?;
    if read.floors.iter().any(|floor| *floor > 0) {
        writeln!(out, "the snapshot has {of_snapshot}")?;
    }
    writeln!(out, "{} log records are usable, up to position {}", found.records, found.end)?;
    if mode == Mode::Try {
        bail!("nothing was changed; to keep only this data, run the command again with --apply");
    }
    drop(read);
    // Read again, this time stopping before the record that could not be applied.
    let ReadBack { read, found: again, .. } = read_back(&*disk, found.end)?;
    if again.records != found.records {
        bail!("{} changed during the repair", dir.display());
    }
    let old: Vec<String> = disk.list()?.into_iter().filter(|name| is_data(name)).collect();
    let position = found.above.0;
    write_whole(&disk, &read.keyspace, position, read.progress)
        .context("could not write new snapshot")?;
    let kept = Contents::of(&read.keyspace, &offline_params(&read.keyspace));
    let aside = format!("before-repair-{position}");
    move_to(dir, &aside, old).with_context(|| format!("could not move old files to {aside}"))?;
    writeln!(
        out,
        "repaired: a new snapshot holds {kept}; the old files are in {aside}, which \
         can be removed once the data has been checked"
    )?;
    Ok(())
}

/// The data of a directory without its server.
#[derive(Debug)]
pub(crate) struct ReadBack {
    pub(crate) read: Snapshot,
    /// The part of the snapshot.
    pub(crate) of_snapshot: Contents,
    pub(crate) found: Salvage,
}

/// Parameters to read data, with the default settings.
pub(crate) fn offline_params(keyspace: &Keyspace) -> Params {
    params(&Settings::default(), clock::unix_now(), keyspace.seed(), 0)
}

/// Reads what recovery can read before position `stop`.
pub(crate) fn read_back(disk: &dyn Disk, stop: Lsn) -> anyhow::Result<ReadBack> {
    let (now, random) = (clock::unix_now(), rand::random());
    let settings = Settings::default();
    let read = snapshots::read(disk, &params(&settings, now, random, random), 1)
        .context("could not read snapshot, which cannot be repaired")?;
    let mut read = read.unwrap_or_else(|| Snapshot::none(random, now));
    let replaying = params(&settings, now, read.keyspace.seed(), random);
    let of_snapshot = Contents::of(&read.keyspace, &replaying);
    let lowest = read.floors.iter().copied().min().unwrap_or(0);
    let highest = read.floors.iter().copied().max().unwrap_or(0);
    let span = Span { from: Lsn(lowest), reach: Lsn(highest) };
    let mut progress = read.progress;
    let found = binlog::salvage(disk, span, &mut |record| {
        if record.start >= stop {
            return Err(ReplayError::from("end of the usable records"));
        }
        replay_record(&read.keyspace, &replaying, &read.floors, record, &mut progress)
    })?;
    read.progress = progress;
    Ok(ReadBack { read, of_snapshot, found })
}

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
