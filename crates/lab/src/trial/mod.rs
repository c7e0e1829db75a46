//! A server that keeps running across several loads, for `compare` and `max`.

pub(crate) mod flags;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail, ensure};

use crate::command_line::stop_on_signals;
use crate::definition::{Cell, Definition, set_duration};
use crate::load::{LoadReport, LoadSpec, Warmup};
use crate::measure::Machine;
use crate::row::Row;
use crate::run::{Evidence, Plan, Target, aim, empty_row, generator_faults, judge, measure, take};
use crate::subject::{Kind, Subject};

/// Share of each run for the warm-up: connections open and caches fill.
const WARMUP_SHARE: u64 = 10;

/// A running server and its load.
pub(crate) struct Trial {
    pub(crate) subject: Subject,
    kind: Kind,
    /// With the address of the subject.
    pub(crate) load: LoadSpec,
    /// The program whose `myriad-lab generate` generates load.
    program: PathBuf,
    table: String,
    definition: String,
    machine: String,
    /// Set by Ctrl-C: servers must be stopped and their directories removed.
    stop: Arc<AtomicBool>,
}

impl Trial {
    /// Starts the server of the only cell of a definition, and runs its phases.
    pub(crate) fn start(definition: &Definition, machine: &Machine) -> Result<Trial> {
        let cell = only_cell(definition)?;
        if cell.subject.kind == Kind::Log {
            bail!("appends have no server: use myriad-lab run");
        }
        let subject = Subject::start(&cell.subject)?;
        let mut load = cell.load.clone();
        aim(&mut load, Target::Server(&subject));
        let mut trial = Trial {
            kind: cell.subject.kind,
            load,
            subject,
            program: std::env::current_exe().context("could not find this program's executable")?,
            table: definition.name.clone(),
            definition: definition.hash(),
            machine: machine.hash.clone(),
            stop: stop_on_signals()?,
        };
        for phase in &cell.phases {
            let mut phase = phase.clone();
            aim(&mut phase, Target::Server(&trial.subject));
            let filled = trial.run(phase).context("could not fill the server")?;
            if let Some(fault) = fault(&filled) {
                bail!("could not fill the server: {fault}");
            }
        }
        Ok(trial)
    }

    /// Generates a load: [`Trial::load`] or a variant. Takes the duration of the load, and up to a
    /// few seconds more.
    ///
    /// Fails without a result if the generator or the server exited. Lost and failed operations are
    /// in the row.
    pub(crate) fn run(&mut self, load: LoadSpec) -> Result<Row> {
        let mut row = empty_row(Plan {
            table: &self.table,
            definition: &self.definition,
            machine: &self.machine,
            subject: self.subject.row().clone(),
            load,
        });
        let subject = Some(&self.subject);
        let measured = measure(&self.program, subject, &row.load, &self.stop, &mut |_| ());
        ensure!(self.subject.is_running(), "the server exited");
        take(&mut row, measured?);
        let judgement = judge(&Evidence::of(&row, self.kind));
        row.verdict = judgement.verdict;
        row.reasons.extend(judgement.reasons);
        Ok(row)
    }

    /// Whether the generator rather than the server was the bottleneck of a row.
    pub(crate) fn is_client_bound(&self, row: &Row) -> bool {
        !generator_faults(&Evidence::of(row, self.kind)).is_empty()
    }
}

fn only_cell(definition: &Definition) -> Result<&Cell> {
    match definition.cells.as_slice() {
        [cell] => Ok(cell),
        cells => bail!("expected one cell, found {}", cells.len()),
    }
}

/// Returns the load with a measured phase of this length.
pub(crate) fn timed(load: &LoadSpec, run_ms: u64) -> LoadSpec {
    let mut load = load.clone();
    load.warmup = Warmup::Fixed { ms: run_ms / WARMUP_SHARE };
    set_duration(&mut load, run_ms);
    load
}

/// Describes failures briefly; `None` if every sent request had its reply.
pub(crate) fn fault(row: &Row) -> Option<String> {
    let side_loads = row
        .report
        .side_loads
        .iter()
        .find_map(|(name, report)| fault_of(report).map(|fault| format!("{name}: {fault}")));
    fault_of(&row.report).or(side_loads)
}

fn fault_of(report: &LoadReport) -> Option<String> {
    if let Some((word, count)) = report.errors.iter().next() {
        return Some(format!("{count} requests failed: {word}"));
    }
    let counts = [
        (report.lost, "requests without a reply"),
        (report.broken_connections, "connections closed by the server"),
        (report.stalled_connections, "connections without a reply for seconds"),
    ];
    if let Some((count, what)) = counts.into_iter().find(|(count, _)| *count > 0) {
        return Some(format!("{count} {what}"));
    }
    (report.operations == 0).then(|| "no operation at all".to_owned())
}
