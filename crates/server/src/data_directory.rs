//! An existing data directory, as the tools open it: they change no other directory, and make none.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use binlog::FileDisk;

/// Prefix of the name of the log's manifest, also of an unfinished one.
pub(crate) const MANIFEST_START: &str = "log.manifest";

/// Opens the directory for reading, even while a server uses it.
pub(crate) fn read(dir: &Path) -> anyhow::Result<FileDisk> {
    check(dir)?;
    FileDisk::read_only(dir).with_context(|| opening(dir))
}

/// Opens the directory of a stopped server, which cannot start meanwhile.
pub(crate) fn hold(dir: &Path) -> anyhow::Result<FileDisk> {
    check(dir)?;
    FileDisk::open_buffered(dir).with_context(|| opening(dir))
}

/// Whether a file of this name is part of the data: of the log, or a snapshot.
pub(crate) fn is_data(name: &str) -> bool {
    let has = |start: &str, end: &str| name.starts_with(start) && name.ends_with(end);
    has("log-", ".seg") || has("snapshot-", ".myr") || name.starts_with(MANIFEST_START)
}

/// Checks that a server has used the directory, or a tool has made it.
fn check(dir: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| opening(dir))? {
        let name = entry.with_context(|| opening(dir))?.file_name();
        if name.to_str().is_some_and(is_data) {
            return Ok(());
        }
    }
    bail!("{} is not a data directory: it has no log and no snapshot", dir.display())
}

fn opening(dir: &Path) -> String {
    format!("could not open {}", dir.display())
}
