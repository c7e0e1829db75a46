//! `myriad import`: makes a data directory from the files of Redis or Valkey, without a server.
//! `live` copies from a running one, and `cassandra` the tables of a Cassandra.
//!
//! 1. The values of an RDB file, or of the RDB part of an append-only file, are put into an empty
//!    keyspace, which is written as a snapshot.
//! 2. If there are also commands or functions, a server starts with this snapshot, on a free port
//!    of the loopback interface with a random password, and they are sent to it: they have the
//!    meaning that they have for every client.
//! 3. What has expired is removed at the end only: the commands may have extended it before its
//!    time.

mod aof;
pub mod cassandra;
mod feed;
pub mod live;
mod place;
mod report;
mod source;
mod values;
mod wait;

use std::cell::Cell;
use std::io::{BufRead as _, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use binlog::{Disk, FileDisk};
use store::Keyspace;

use crate::config::{Config, Settings};
use crate::engine::clock;
use crate::engine::records::Progress;
use crate::engine::server_state::params;
use crate::engine::snapshot_taker::write_whole;
use crate::logging;
use crate::new_directory::make;
pub use place::Place;
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
    make(dir, "importing", |work| {
        let report = fill(work, source, out)?;
        report.write(out)?;
        if losses == Losses::Refuse && report.has_losses() {
            bail!("no directory was made; to import everything else, run again with --partial");
        }
        Ok(())
    })?;
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
    ensure!(first.total_bytes > 0, "{} is empty", first.name());
    if source::is_rdb(first.reader.fill_buf()?) {
        let into =
            values::Target { keyspace: &keyspace, params: &params, report: &mut report, bytes: 0 };
        functions = values::load(&mut first, into, out)
            .with_context(|| format!("could not import {}", first.name()))?;
        let skipped = first.skip_to_commands()?;
        let (name, bytes) = (first.name(), skipped.bytes);
        if skipped.has_command {
            let first = || format!("{name}: {bytes} bytes after its RDB part");
            report.lose("commands that follow damaged bytes".to_owned(), first);
        } else if bytes > 0 {
            report.add_note(format!("{name}: {bytes} bytes after its end were left out"));
        }
    }
    let has_commands = !first.reader.fill_buf()?.is_empty() || source.has_more();
    let must_feed = has_commands || !functions.is_empty();
    if !must_feed {
        values::remove_expired(&keyspace, &params)?;
    }
    let disk = FileDisk::open_buffered(work).context("could not open the new directory")?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    write_whole(&disk, &keyspace, 0, Progress::default()).context("could not write snapshot")?;
    drop((disk, keyspace));
    if must_feed {
        feed::feed(work, feed::Commands { functions, first, rest: source }, &mut report, out)?;
    }
    Ok(report)
}

/// Runs with a function that returns whether SIGTERM or SIGINT has arrived.
fn with_signals<T>(run: impl FnOnce(&dyn Fn() -> bool) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let signals = reactor::Signals::open().context("could not block signals")?;
    let is_stopped = Cell::new(false);
    run(&|| {
        let ends = |one| matches!(one, reactor::Signal::Terminate | reactor::Signal::Interrupt);
        is_stopped.set(is_stopped.get() || signals.take().is_some_and(ends));
        is_stopped.get()
    })
}

#[cfg(test)]
mod tests;
