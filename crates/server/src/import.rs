//! `myriad import`: makes a data directory from the files of Redis or Valkey, without a server.
//!
//! Everything is made in a directory next to the new one, which gets its name when it is complete:
//! an interruption leaves no directory that a server would accept.
//!
//! 1. The values of an RDB file, or of the RDB part of an append-only file, are put into an empty
//!    keyspace, which is written as a snapshot.
//! 2. If there are also commands or functions, a server starts with this snapshot, on a free port
//!    of the loopback interface with a random password, and they are sent to it: they have the
//!    meaning that they have for every client.

mod aof;
mod feed;
mod report;
mod source;
mod values;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{BufRead as _, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use binlog::{Disk, FileDisk};
use store::Keyspace;

use crate::config::{Config, Settings};
use crate::engine::clock;
use crate::engine::records::Progress;
use crate::engine::server_state::params;
use crate::engine::snapshot_taker::write_whole;
use crate::logging;
use report::Report;
use source::Source;

/// What to do if the files have data that this server cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Losses {
    /// List it, and make no directory.
    Refuse,
    /// List it, and import everything else.
    Accept,
}

/// Imports `from` (an RDB file, an append-only file, a directory of such files or its manifest)
/// into the new directory `dir`.
pub fn import(from: &Path, dir: &Path, losses: Losses, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut config = Config::default();
    config.take_argument("log-level", "warn")?;
    logging::install(config.settings())?;
    run(from, dir, losses, out)
}

fn run(from: &Path, dir: &Path, losses: Losses, out: &mut dyn Write) -> anyhow::Result<()> {
    let source = Source::find(from)?;
    check_new(dir)?;
    let work = beside(dir)?;
    DirBuilder::new().mode(0o700).create(&work).with_context(|| {
        let work = work.display();
        format!("could not create {work}; if an import was interrupted, remove this directory")
    })?;
    let made = fill(&work, source, out).and_then(|report| {
        report.write(out)?;
        if losses == Losses::Refuse && report.has_losses() {
            bail!("no directory was made; to import everything else, run again with --partial");
        }
        name(&work, dir).with_context(|| format!("could not rename {}", work.display()))
    });
    if made.is_err()
        && let Err(error) = fs::remove_dir_all(&work)
    {
        tracing::warn!(dir = %work.display(), %error, "could not remove the unfinished directory");
    }
    made?;
    writeln!(out, "start the server with --dir {}", dir.display())?;
    Ok(())
}

/// Makes the data in the directory `work`.
fn fill(work: &Path, mut source: Source, out: &mut dyn Write) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let random = rand::random();
    let params = params(&Settings::default(), clock::unix_now(), random, random);
    let keyspace = Keyspace::new(random);
    let mut functions = Vec::new();
    let mut first = source.open_next()?.context("there is no file to import")?;
    if source::is_rdb(first.reader.fill_buf()?) {
        let into = values::Target { keyspace: &keyspace, params: &params, report: &mut report };
        functions = values::load(&mut first, into, out)
            .with_context(|| format!("could not import {}", first.name()))?;
    }
    let disk = FileDisk::open_buffered(work).context("could not open the new directory")?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    write_whole(&disk, &keyspace, 0, Progress::default()).context("could not write snapshot")?;
    drop((disk, keyspace));
    let has_commands = !first.reader.fill_buf()?.is_empty() || source.has_more();
    if has_commands || !functions.is_empty() {
        feed::feed(work, feed::Commands { functions, first, rest: source }, &mut report, out)?;
    }
    Ok(report)
}

/// Checks that there is no data that the import would replace.
fn check_new(dir: &Path) -> anyhow::Result<()> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("could not read {}", dir.display())),
        Ok(mut files) => match files.next() {
            None => Ok(()),
            Some(_) => bail!("{} is not empty: an import makes a new directory", dir.display()),
        },
    }
}

/// The name of the unfinished directory.
fn beside(dir: &Path) -> anyhow::Result<PathBuf> {
    let name = dir.file_name().with_context(|| format!("{} has no name", dir.display()))?;
    let name: OsString = [name, ".importing".as_ref()].into_iter().collect();
    Ok(dir.with_file_name(name))
}

fn name(work: &Path, dir: &Path) -> std::io::Result<()> {
    // An empty directory of this name is replaced.
    fs::rename(work, dir)?;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests;
