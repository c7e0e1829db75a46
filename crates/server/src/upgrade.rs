//! `myriad upgrade --check`: reports whether this program can start with a data directory, and what
//! a start changes. Reads what a start reads, and changes nothing.

use std::io::Write;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use binlog::{FORMAT_VERSIONS, FileDisk, Formats, Lsn};
use store::Keyspace;

use crate::config::Settings;
use crate::data_directory;
use crate::engine::clock;
use crate::engine::server_state::params;
use crate::engine::snapshots::{SNAPSHOT_VERSIONS, newest_version};
use crate::repair::{ReadBack, read_back};
use crate::statements::stored_schema;

/// Reports on the directory of a stopped server. Fails if a start with it would fail.
pub fn check(dir: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let disk = data_directory::read(dir)?;
    let is_held = FileDisk::is_held(dir);
    ensure!(
        !is_held.with_context(|| format!("could not open {}", dir.display()))?,
        "{} is in use: the server must be stopped",
        dir.display()
    );
    let log = binlog::formats(&disk)?;
    let snapshot = newest_version(&disk).context("could not read snapshot")?;
    if log == Formats::default() && snapshot.is_none() {
        writeln!(out, "{} has no data: a start begins a new log", dir.display())?;
        return Ok(());
    }
    let mut is_read = true;
    if let Some(version) = log.manifest {
        is_read &= show(out, "log.manifest", version, &FORMAT_VERSIONS)?;
    }
    for (version, count) in &log.segments {
        is_read &= show(out, &format!("{count} log segments"), *version, &FORMAT_VERSIONS)?;
    }
    if let Some((name, version)) = &snapshot {
        let version = version.with_context(|| format!("{name} has no valid header"))?;
        is_read &= show(out, name, version, &SNAPSHOT_VERSIONS)?;
    }
    ensure!(is_read, "this program cannot start with {}: use a newer one", dir.display());
    let ReadBack { read, of_snapshot, found } = read_back(&disk, Lsn(u64::MAX))?;
    if let Some(fault) = found.fault {
        bail!("a start fails: {fault}");
    }
    load_system(&read.keyspace)?;
    let (records, end) = (found.records, found.end);
    if snapshot.is_some() {
        writeln!(out, "a start loads {of_snapshot} from the snapshot")?;
    }
    writeln!(out, "a start replays {records} log records, up to position {end}")?;
    let snapshot_version = snapshot.and_then(|(_, version)| version);
    for line in downgrade(&log, snapshot_version) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Fails if a start cannot use what the server stores of itself.
fn load_system(keyspace: &Keyspace) -> anyhow::Result<()> {
    let settings = Settings::default();
    let params = params(&settings, clock::unix_now(), keyspace.seed(), rand::random());
    let loaded = stored_schema::load(keyspace, &params)
        .context("a start fails: could not read CQL schema")?;
    stored_schema::report_unusable(&loaded.catalog, false);
    Ok(())
}

/// Prints the version of a file. Returns whether this program reads it.
fn show<T: Copy + PartialOrd + std::fmt::Display>(
    out: &mut dyn Write,
    file: &str,
    version: T,
    read: &RangeInclusive<T>,
) -> std::io::Result<bool> {
    let is_read = read.contains(&version);
    let word = if is_read { "reads" } else { "does not read this: it reads" };
    let (first, last) = (read.start(), read.end());
    writeln!(out, "{file}: version {version}; this program {word} {first} to {last}")?;
    Ok(is_read)
}

/// Describes whether the program that wrote the files can start with the directory again.
fn downgrade(log: &Formats, snapshot: Option<u8>) -> Vec<String> {
    let (writes_log, writes_snapshot) = (*FORMAT_VERSIONS.end(), *SNAPSHOT_VERSIONS.end());
    if *log == Formats::default() {
        return vec![
            format!("a start begins a log of version {writes_log}"),
            format!(
                "downgrade possible only to a program that reads log version {writes_log} and \
                 snapshot version {writes_snapshot}; take a backup first"
            ),
        ];
    }
    let found = log.manifest.iter().chain(log.segments.keys());
    if let Some(old) = found.filter(|version| **version < writes_log).max() {
        return vec![
            format!("a start continues the log in version {writes_log}"),
            format!(
                "no downgrade after a start: a program that writes log version {old} refuses the \
                 new files; take a backup first"
            ),
        ];
    }
    let Some(version) = snapshot else {
        return vec![
            "a start changes no format".to_owned(),
            format!(
                "downgrade possible until the first snapshot, which has version {writes_snapshot}, \
                 or to a program that reads it; take a backup first"
            ),
        ];
    };
    if version < writes_snapshot {
        return vec![
            format!("the next snapshot has version {writes_snapshot}"),
            format!(
                "downgrade possible until the next snapshot: a program that writes version {version} \
                 refuses that one; take a backup first"
            ),
        ];
    }
    vec![
        "a start changes no format".to_owned(),
        "downgrade possible, unless data of a kind that is newer than the other program is \
         written; take a backup first"
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests;
