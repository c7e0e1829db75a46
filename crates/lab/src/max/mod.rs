//! `myriad-lab max`: the highest rate at which a server meets its latency limits and loses nothing.
//!
//! The load follows a schedule that does not wait for replies, and latency is measured from the due
//! time of a request: a slow server thus cannot slow down the load to look better. [`search`]
//! contains the search, [`slo`] the conditions.

mod search;
mod slo;

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};

use crate::command_line::{CommandLine, Job, print, printing};
use crate::load::{Arrival, Schedule, Work};
use crate::measure::Machine;
use crate::row::Row;
use crate::run::{RunFolder, Settings, latencies_ns};
use crate::stats::median_interval;
use crate::trial::flags::{self, LoadFlags, ServerWords};
use crate::trial::{Trial, fault, timed};
use search::{Found, Outcome, PRECISION_DEFAULT, Terms, search};
use slo::{Slo, human_ns};

const RUN_MS_DEFAULT: u64 = 2_000;
const RUN_MS_MIN: u64 = 100;
const RUN_MS_MAX: u64 = 600_000;
const CONFIRMATIONS_DEFAULT: usize = 5;
const CONFIRMATIONS_MAX: usize = 100;
const PRECISION_MIN: f64 = 0.005;
const PRECISION_MAX: f64 = 1.0;
/// Maximum share of requests that were due but not sent when a run ended. A server that keeps up
/// leaves a few; more mean that the run did not have the intended rate.
const UNSENT_SHARE_MAX: f64 = 0.01;
/// The rate is set by path, as in a grid.
const RATE: &str = "load.arrival.open.per_second";

fn help() -> String {
    format!(
        "\
Usage: myriad-lab max --slo BOUND [--slo BOUND ...] [SERVER] [OPTIONS]

Finds the highest rate at which a server meets all latency limits and loses nothing. Requests
are due by a schedule, regardless of replies, and latency is measured from the due time.

  --slo BOUND          p99<1ms, p99.9<=250us, mean<100us or max<1s; may be given several times
  SERVER               [this]

{}
Options:
  --start N            First rate, per second [half of the rate in a closed loop]
  --precision N        Maximum gap between the rate found and the one that fails [{PRECISION_DEFAULT}]
  --confirm N          Runs at the rate found, most of which must pass [{CONFIRMATIONS_DEFAULT}]
  --run-ms N           Length of a run [{RUN_MS_DEFAULT}]
  --schedule NAME      poisson or even [poisson]
  --out DIR            Folder for rows [target/lab/max-TIME]
  -h, --help           Print this text
",
        flags::HELP
    )
}

struct Options {
    server: ServerWords,
    load: LoadFlags,
    slos: Vec<Slo>,
    start_per_second: Option<f64>,
    precision: f64,
    confirmations: usize,
    run_ms: u64,
    schedule: Schedule,
    out: Option<PathBuf>,
}

/// `myriad-lab max`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    Ok(match parse(parser)? {
        None => printing(help()),
        Some(options) => Box::new(move || find(&options)),
    })
}

/// Returns `None` if help was requested.
fn parse(parser: &mut CommandLine<'_>) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let mut options = Options {
        server: "this".parse()?,
        load: LoadFlags::default(),
        slos: Vec::new(),
        start_per_second: None,
        precision: PRECISION_DEFAULT,
        confirmations: CONFIRMATIONS_DEFAULT,
        run_ms: RUN_MS_DEFAULT,
        schedule: Schedule::Poisson,
        out: None,
    };
    let mut has_server = false;
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(None),
            Long("slo") => options.slos.push(parser.value()?),
            Long("start") => options.start_per_second = Some(parser.value()?),
            Long("precision") => options.precision = parser.value()?,
            Long("confirm") => options.confirmations = parser.value()?,
            Long("run-ms") => options.run_ms = parser.value()?,
            Long("schedule") => options.schedule = schedule(&parser.text()?)?,
            Long("out") => options.out = Some(parser.path()?),
            Value(word) if !has_server => {
                has_server = true;
                options.server = word.string()?.parse()?;
            }
            Long(name) => {
                let name = name.to_owned();
                if !options.load.take(&name, parser)? {
                    bail!("unknown option --{name}; see myriad-lab max --help");
                }
            }
            other @ (Short(_) | Value(_)) => return Err(other.unexpected().into()),
        }
    }
    check(&options)?;
    Ok(Some(options))
}

fn schedule(word: &str) -> Result<Schedule> {
    match word {
        "poisson" => Ok(Schedule::Poisson),
        "even" => Ok(Schedule::Even),
        _ => bail!("--schedule {word:?}: not one of poisson, even"),
    }
}

fn check(options: &Options) -> Result<()> {
    ensure!(!options.slos.is_empty(), "missing --slo; see myriad-lab max --help");
    let start = options.start_per_second.unwrap_or(1.0);
    ensure!((1.0..=1e9).contains(&start), "--start must be 1 to 1000000000");
    ensure!(
        (PRECISION_MIN..=PRECISION_MAX).contains(&options.precision),
        "--precision must be {PRECISION_MIN} to {PRECISION_MAX}"
    );
    ensure!(
        (1..=CONFIRMATIONS_MAX).contains(&options.confirmations),
        "--confirm must be 1 to {CONFIRMATIONS_MAX}"
    );
    ensure!(
        (RUN_MS_MIN..=RUN_MS_MAX).contains(&options.run_ms),
        "--run-ms must be {RUN_MS_MIN} to {RUN_MS_MAX}"
    );
    Ok(())
}

/// A run of the search.
struct Run {
    asked_per_second: f64,
    served_per_second: f64,
    /// By limit, in nanoseconds.
    values_ns: Vec<u64>,
}

struct Searcher<'a> {
    options: &'a Options,
    trial: Trial,
    folder: RunFolder,
    /// Distinct rates; the index is the cell of their rows.
    rates: Vec<f64>,
    runs: Vec<Run>,
}

fn find(options: &Options) -> Result<()> {
    let definition = options.load.definition("max", &options.server)?;
    let machine = Machine::detect();
    let mut trial = Trial::start(&definition, &machine)?;
    let row = trial.subject.row();
    print(&format!("{}  [{}]\n", row.command_line.join(" "), row.version))?;
    let start_per_second = match options.start_per_second {
        Some(rate) => rate,
        None => closed_loop(&mut trial, options.run_ms)? / 2.0,
    };
    let folder = RunFolder::create(&definition, &Settings::default(), options.out.as_deref())?;
    folder.write_machine(&machine)?;
    let mut searcher = Searcher { options, trial, folder, rates: Vec::new(), runs: Vec::new() };
    let terms = Terms {
        start_per_second,
        precision: options.precision,
        confirmations: options.confirmations,
    };
    let found = search(terms, &mut |rate| searcher.attempt(rate))?;
    searcher.report(&found)
}

/// Measures the rate in a closed loop, where each connection waits for its replies.
fn closed_loop(trial: &mut Trial, run_ms: u64) -> Result<f64> {
    let row = trial.run(timed(&trial.load, run_ms))?;
    if let Some(fault) = fault(&row) {
        bail!("the server failed this load: {fault}");
    }
    let rate = row.operations_per_second();
    print(&format!("closed loop: {rate:.0} per second\n"))?;
    Ok(rate)
}

impl Searcher<'_> {
    /// Makes one run at a rate: a row, a line, and the outcome.
    fn attempt(&mut self, per_second: f64) -> Result<Outcome> {
        let rate = per_second.round().max(1.0);
        let mut load = timed(&self.trial.load, self.options.run_ms);
        let Work::Socket(work) = &mut load.work else {
            bail!("appends have no schedule: use myriad-lab run");
        };
        work.arrival = Arrival::Open { per_second: rate, schedule: self.options.schedule };
        // Vary arrivals and keys between runs; otherwise repeats would repeat a random effect.
        load.seed = load.seed.wrapping_add(self.runs.len() as u64);
        let row = self.trial.run(load)?;
        let (outcome, reason) = self.judge(&row)?;
        let run = self.run_of(rate, &row)?;
        print(&line(&run, outcome, &reason))?;
        let (cell, repeat) = self.place(rate);
        let parameters = [(RATE.to_owned(), rate.into())].into();
        self.folder.append(&Row { cell, repeat, parameters, ..row })?;
        self.runs.push(run);
        Ok(outcome)
    }

    /// Returns the index of this rate, and how often it was tried before.
    fn place(&mut self, rate: f64) -> (usize, usize) {
        let is_same = |other: f64| (other - rate).abs() < 0.5;
        let repeat = self.runs.iter().filter(|run| is_same(run.asked_per_second)).count();
        let known = self.rates.iter().position(|other| is_same(*other));
        let cell = known.unwrap_or_else(|| {
            self.rates.push(rate);
            self.rates.len() - 1
        });
        (cell, repeat)
    }

    fn run_of(&self, rate: f64, row: &Row) -> Result<Run> {
        let latencies = latencies_ns(row)?;
        let values =
            self.options.slos.iter().map(|slo| slo.value_ns(&latencies, row.report.unsent));
        Ok(Run {
            asked_per_second: rate,
            served_per_second: row.operations_per_second(),
            values_ns: values.collect(),
        })
    }

    /// Returns the outcome of a run, with the reason.
    fn judge(&self, row: &Row) -> Result<(Outcome, String)> {
        let (latencies, unsent) = (latencies_ns(row)?, row.report.unsent);
        let broken = self.options.slos.iter().find(|slo| !slo.holds(&latencies, unsent));
        let reason = match (fault(row), broken) {
            (Some(fault), _) => fault,
            (None, Some(slo)) => format!("not {slo}"),
            (None, None) if unsent_share(row) > UNSENT_SHARE_MAX => {
                format!("{unsent} requests were never sent")
            }
            (None, None) => return Ok((Outcome::Held, String::new())),
        };
        if self.trial.is_client_bound(row) {
            return Ok((Outcome::OutOfReach, format!("{reason}, the generator at its limit")));
        }
        Ok((Outcome::Failed, reason))
    }

    fn report(&self, found: &Found) -> Result<()> {
        let slos: Vec<String> = self.options.slos.iter().map(ToString::to_string).collect();
        print(&format!("\n{}: {}\n", slos.join(", "), self.result(found)))?;
        print(&format!("rows: {}\n", self.folder.path().display()))
    }

    fn result(&self, found: &Found) -> String {
        let Some(held) = found.held_per_second else {
            return match found.failed_per_second {
                Some(failed) => format!("even {failed:.0} per second failed"),
                None => "inconclusive: the generator was always at its limit".to_owned(),
            };
        };
        let end = found.failed_per_second.map_or_else(
            || "the generator reached its limit before the server".to_owned(),
            |failed| format!("{failed:.0} failed"),
        );
        let of_held = |run: &&Run| (run.asked_per_second - held.round()).abs() < 0.5;
        let served: Vec<f64> =
            self.runs.iter().filter(of_held).map(|run| run.served_per_second).collect();
        let (count, confirmed) = found.confirmed;
        format!(
            "{held:.0} per second held in {confirmed} of {count} more runs, {end}; served {}",
            median_interval(&served)
        )
    }
}

fn line(run: &Run, outcome: Outcome, reason: &str) -> String {
    let word = match outcome {
        Outcome::Held => "held",
        Outcome::Failed => "failed: ",
        Outcome::OutOfReach => "out of reach: ",
    };
    let values: Vec<String> = run.values_ns.iter().map(|ns| human_ns(*ns)).collect();
    format!(
        "{:>12.0} per second: served {:>10.0}, {}  {word}{reason}\n",
        run.asked_per_second,
        run.served_per_second,
        values.join(" "),
    )
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn unsent_share(row: &Row) -> f64 {
    let report = &row.report;
    report.unsent as f64 / (report.operations + report.unsent).max(1) as f64
}
