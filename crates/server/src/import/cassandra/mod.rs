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
use std::time::Instant;

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

/// Imports, and reports the progress on standard error, the outcome on `out`.
pub fn import(import: &CassandraImport, out: &mut dyn Write) -> anyhow::Result<()> {
    with_signals(|is_stopped| {
        let never = AtomicBool::new(false);
        let mut source = open(&import.source, Role::Source, &never)?;
        let schema = Schema::read(&mut source, import.keyspace.as_deref());
        let schema = schema.map_err(Failure::into_error)?;
        let mut target = open(&import.target, Role::Target, &never)?;
        let claim = Claim::take(&mut target).map_err(Failure::into_error)?;
        let report = Report::new(import.losses);
        let parts = prepare(&schema, &mut source, &mut target, &report);
        let outcome = parts.and_then(|parts| {
            let copied = state::read(&import.name(), &mut target)?;
            copy_all(Prepared { request: import, claim, parts, copied }, &report, is_stopped)
        });
        if let Err(failure) = outcome {
            // If the target is not there, the claim expires.
            let _ = open(&import.target, Role::Target, &never)
                .map(|mut target| claim.release(&mut target));
            let error = match failure {
                Failure::Stopped => anyhow!("interrupted"),
                other => other.into_error(),
            };
            return Err(error.context("the import ended; run it again to continue where it is"));
        }
        let mut target = open(&import.target, Role::Target, &never)?;
        state::remove(&import.name(), claim, &mut target).map_err(Failure::into_error)?;
        let rows = report.rows.load(Ordering::Relaxed);
        writeln!(out, "{rows} rows were copied")?;
        match report.losses.load(Ordering::Relaxed) {
            0 => {}
            losses => writeln!(out, "{losses} objects were not imported")?,
        }
        writeln!(out, "the import is complete")?;
        Ok(())
    })
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
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    if !copied.is_empty() {
        report.note(&format!("continuing: {} ranges were begun or copied", copied.len()));
    }
    let (stop, never) = (AtomicBool::new(false), AtomicBool::new(false));
    let tasks = Tasks::new(&parts, &copied, report, &stop);
    let mut keeper = Keeper { import, claim, session: None, renewed: Instant::now() };
    tasks.run("copying", &|| copy::work(import, &tasks), &mut || {
        if is_stopped() {
            return Err(Failure::Stopped);
        }
        keeper.keep(&never)
    })
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
                let advice = "the times of collections are known since Cassandra 5.0";
                report.lose(&format!("{}: {reason}; {advice}", part.name()))?;
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
    with_signals(|is_stopped| {
        let never = AtomicBool::new(false);
        let mut source = open(&import.source, Role::Source, &never)?;
        let mut target = open(&import.target, Role::Target, &never)?;
        // What is missing is reported, and fails the comparison.
        let report = Report::new(Losses::Accept);
        let stop = AtomicBool::new(false);
        let differences = Differences::default();
        let mut compare = || {
            let schema = Schema::read(&mut source, import.keyspace.as_deref())?;
            let parts = schema.parts(&mut source, &mut target, &report)?;
            let parts = usable(parts, &mut source, &report)?;
            let tasks = Tasks::new(&parts, &Copied::new(), &report, &stop);
            let work = || verify::work(import, &tasks, &differences);
            let mut each = || if is_stopped() { Err(Failure::Stopped) } else { Ok(()) };
            tasks.run("comparing", &work, &mut each)
        };
        compare().map_err(Failure::into_error)?;
        let shown = differences.shown.into_inner().unwrap_or_default();
        for line in shown {
            writeln!(out, "{line}")?;
        }
        let (rows, losses) = (report.rows.into_inner(), report.losses.into_inner());
        let count = differences.count.into_inner() + losses;
        writeln!(out, "{rows} rows were compared, {count} differences")?;
        if count > 0 {
            bail!("the servers differ");
        }
        Ok(())
    })
}
