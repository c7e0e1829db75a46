//! `myriad import cassandra://...`: copies tables of a running Cassandra into a running server.
//!
//! `schema` creates what is missing in the target. Then threads read ranges of tokens (`copy`,
//! `pages`), and write their rows with the timestamps and TTLs that they have (`rows`, `writer`). So
//! a row can be written any number of times, and `state` only has to know which ranges were copied.
//! `session` is a connection to one of the servers. `verify` compares both.

mod copy;
mod failure;
mod pages;
mod report;
mod rows;
mod schema;
mod session;
mod state;
mod table;
mod tasks;
mod verify;
mod writer;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

use super::place::Place;
use super::{Losses, with_signals};
use failure::Failure;
use report::Report;
use schema::Schema;
use session::{Role, Session};
use state::{Claim, Copied};
use table::Part;
use tasks::Tasks;
use verify::Differences;

/// Time between two looks for a signal.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// An import from a running Cassandra.
#[derive(Debug)]
pub struct CassandraImport {
    pub source: Place,
    /// `None`: all keyspaces, except those of the system.
    pub keyspace: Option<String>,
    pub target: Place,
    pub losses: Losses,
}

impl CassandraImport {
    /// The name of the progress in the target.
    fn name(&self) -> String {
        format!("{}/{}", self.source.shown(), self.keyspace.as_deref().unwrap_or_default())
    }
}

/// What an import has done.
struct Outcome {
    rows: u64,
    losses: u64,
    is_continued: bool,
}

/// Imports, and reports the progress on standard error, the outcome on `out`.
pub fn import(import: &CassandraImport, out: &mut dyn Write) -> anyhow::Result<()> {
    let outcome = until_stopped(|stop| import_all(import, stop))?;
    writeln!(out, "{} rows were copied", outcome.rows)?;
    if outcome.losses > 0 {
        writeln!(out, "{} objects were not imported", outcome.losses)?;
    }
    writeln!(out, "the import is complete")?;
    if outcome.is_continued {
        let advice = "run it once more for what was written to them since";
        writeln!(out, "an earlier run has copied some of the ranges: {advice}")?;
    }
    Ok(())
}

/// Runs on a thread, with a flag that SIGTERM and SIGINT set.
fn until_stopped<T: Send>(
    run: impl FnOnce(&AtomicBool) -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    with_signals(|is_stopped| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| run(&stop));
            while !worker.is_finished() {
                if is_stopped() {
                    stop.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(SIGNAL_INTERVAL);
            }
            worker.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
        })
    })
}

fn import_all(import: &CassandraImport, stop: &AtomicBool) -> anyhow::Result<Outcome> {
    let mut source = open(&import.source, Role::Source, stop)?;
    let schema = Schema::read(&mut source, import.keyspace.as_deref());
    let schema = schema.map_err(Failure::into_error)?;
    let mut target = open(&import.target, Role::Target, stop)?;
    let claim = Claim::take(&mut target).map_err(Failure::into_error)?;
    let report = Report::new(import.losses);
    let outcome = prepare(&schema, &mut source, &mut target, &report).and_then(|parts| {
        let copied = state::read(&import.name(), &parts, &mut target)?;
        let is_continued = !copied.is_empty();
        copy_all(Prepared { request: import, claim, parts, copied }, &report, stop)?;
        // The connection was idle meanwhile.
        target = Session::open(&import.target, Role::Target, stop)?;
        state::remove(&import.name(), claim, &mut target)?;
        Ok(is_continued)
    });
    match outcome {
        Ok(is_continued) => {
            let (rows, losses) = (report.rows.into_inner(), report.losses.into_inner());
            Ok(Outcome { rows, losses, is_continued })
        }
        Err(failure) => {
            // If the target is not there, the claim expires.
            let never = AtomicBool::new(false);
            let _ = open(&import.target, Role::Target, &never)
                .map(|mut target| claim.release(&mut target));
            let error = failure.into_error();
            Err(error.context("the import ended; run it again to continue where it is"))
        }
    }
}

fn open<'s>(place: &Place, role: Role, stop: &'s AtomicBool) -> anyhow::Result<Session<'s>> {
    let session = Session::open(place, role, stop).map_err(Failure::into_error);
    session.with_context(|| format!("could not use the {}", role.name()))
}

/// Creates the schema. Returns what can be copied.
fn prepare(
    schema: &Schema,
    source: &mut Session<'_>,
    target: &mut Session<'_>,
    report: &Report,
) -> Result<Vec<Part>, Failure> {
    schema.create(target, report)?;
    let parts = schema.parts(source, target, report)?;
    usable(parts, source, report)
}

/// An import that may begin.
struct Prepared<'a> {
    request: &'a CassandraImport,
    claim: Claim,
    parts: Vec<Part>,
    copied: Copied,
}

fn copy_all(
    Prepared { request: import, claim, parts, copied }: Prepared<'_>,
    report: &Report,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    if !copied.is_empty() {
        let count = copied.len();
        let note = "what was written to them since is not copied";
        report.note(&format!("continuing: {count} ranges were begun or copied; {note}"));
    }
    let tasks = Tasks::new(&parts, &copied, report, stop);
    let mut keeper = Keeper { import, claim, session: None, renewed: Instant::now() };
    tasks.run("copying", &|| copy::work(import, &tasks), &mut || keeper.keep(stop))
}

/// The parts whose rows the source can send with their times.
fn usable(
    parts: Vec<Part>,
    source: &mut Session<'_>,
    report: &Report,
) -> Result<Vec<Part>, Failure> {
    let mut usable = Vec::new();
    for part in parts {
        match source.prepare(&part.select_range()) {
            Ok(_) => usable.push(part),
            Err(Failure::Refused(reason)) => {
                let advice = "; the times of collections are known since Cassandra 5.0";
                let advice = if part.has_collections() { advice } else { "" };
                report.lose(&format!("{}: {reason}{advice}", part.name()))?;
            }
            Err(other) => return Err(other),
        }
    }
    Ok(usable)
}

/// Keeps the claim on the target.
struct Keeper<'a, 's> {
    import: &'a CassandraImport,
    claim: Claim,
    session: Option<Session<'s>>,
    renewed: Instant,
}

impl<'s> Keeper<'_, 's> {
    /// Renews the claim now and then. A target that cannot be reached is the matter of the threads
    /// that write to it.
    fn keep(&mut self, stop: &'s AtomicBool) -> Result<(), Failure> {
        if self.renewed.elapsed() < state::CLAIM_INTERVAL {
            return Ok(());
        }
        self.renewed = Instant::now();
        match self.try_renew(stop) {
            Ok(true) => Ok(()),
            Ok(false) => Err(anyhow!("another import into the target has begun").into()),
            Err(Failure::Transient(_)) => {
                self.session = None;
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    fn try_renew(&mut self, stop: &'s AtomicBool) -> Result<bool, Failure> {
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(Session::open(&self.import.target, Role::Target, stop)?),
        };
        self.claim.renew(session)
    }
}

/// Compares the tables of two servers; fails if they differ.
pub fn verify(import: &CassandraImport, out: &mut dyn Write) -> anyhow::Result<()> {
    let (differences, rows) = until_stopped(|stop| compare(import, stop))?;
    let shown = differences.shown.into_inner().unwrap_or_default();
    for line in shown {
        writeln!(out, "{line}")?;
    }
    let count = differences.count.into_inner();
    writeln!(out, "{rows} rows were compared, {count} differences")?;
    if count > 0 {
        bail!("the servers differ");
    }
    Ok(())
}

/// Returns also the number of compared rows.
fn compare(import: &CassandraImport, stop: &AtomicBool) -> anyhow::Result<(Differences, u64)> {
    let mut source = open(&import.source, Role::Source, stop)?;
    let mut target = open(&import.target, Role::Target, stop)?;
    // What is missing is reported, and fails the comparison.
    let report = Report::new(Losses::Accept);
    let differences = Differences::default();
    let mut compare = || {
        let schema = Schema::read(&mut source, import.keyspace.as_deref())?;
        let parts = schema.parts(&mut source, &mut target, &report)?;
        let parts = usable(parts, &mut source, &report)?;
        let tasks = Tasks::new(&parts, &Copied::new(), &report, stop);
        let work = || verify::work(import, &tasks, &differences);
        tasks.run("comparing", &work, &mut || Ok(()))
    };
    compare().map_err(Failure::into_error)?;
    differences.count.fetch_add(report.losses.into_inner(), Ordering::Relaxed);
    Ok((differences, report.rows.into_inner()))
}
