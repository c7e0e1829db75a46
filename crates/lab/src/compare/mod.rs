//! `myriad-lab compare A B`: two servers under the same load, in alternation.
//!
//! Runs are grouped in blocks, alternately A B B A and B A A B, so that linear drift of the machine
//! favors neither server. Each block has new server processes, because a process keeps its memory
//! layout: a server compared with itself differed by 4.5 % for the lifetime of both processes,
//! which more runs cannot distinguish from a real difference. [`decision`] evaluates the blocks.

mod decision;

use anyhow::{Context, Result, bail, ensure};

use crate::command_line::{CommandLine, Job, print, printing};
use crate::measure::Machine;
use crate::row::Row;
use crate::run::latencies_ns;
use crate::stats::quantile;
use crate::trial::flags::{self, LoadFlags, ServerWords};
use crate::trial::{Trial, fault, timed};
use decision::{CHANCE_MAX, Comparison, Finding, VALUES_MIN};

const BLOCKS_DEFAULT: usize = 12;
/// Maximum factor by which the blocks of an imprecise comparison are extended.
const EXTENSION: usize = 4;
/// Beyond this, a difference that is still undecided is too small to matter.
const BLOCKS_MAX: usize = 100;
/// Default for half the interval. Extending depends only on the precision, never on the direction
/// of the results: stopping as soon as a difference appears would produce false positives.
const PRECISION_DEFAULT: f64 = 0.01;
const PRECISION_MIN: f64 = 0.001;
/// Duration of four runs. Many short runs are better: on a disturbed machine, 40 blocks of 1.2 s
/// measured a difference of 6 % within 1.2 %, where 15 blocks of 3.2 s had an uncertainty of 4 %.
const BLOCK_MS_DEFAULT: u64 = 2_000;
const RUNS_PER_BLOCK: u64 = 4;
const BLOCK_MS_MIN: u64 = 40;
const BLOCK_MS_MAX: u64 = 600_000;
/// A short run without any operation is repeated: other programs occupied the processor.
const TRIES_MAX: usize = 5;
const A: &str = "A";
const B: &str = "B";

fn help() -> String {
    format!(
        "\
Usage: myriad-lab compare A B [OPTIONS]

Compares two servers under the same load: processor time per operation, operations per second,
and latency. Both are restarted for each block and loaded alternately,
A B B A, then B A A B. There is a verdict only if the interval of B/A leaves 1 out and chance
alone would do as much in at most {:.1} % of all comparisons of equals.

{}
Options:
  --metric NAME        cpu, throughput, p50 or p99: subject of the last line [cpu]
  --blocks N           Blocks of four runs [{BLOCKS_DEFAULT}]; fewer than {} end without a verdict
  --precision N        Extend, up to {EXTENSION} times as many, while half the interval of the metric is
                       wider [{PRECISION_DEFAULT}]
  --block-ms N         Length of the runs of a block together [{BLOCK_MS_DEFAULT}]
  --keep-servers       Start each server once, if starting or warming up takes long; the
                       verdict then applies to these two processes, not to their programs
  -h, --help           Print this text
",
        CHANCE_MAX * 100.0,
        flags::HELP,
        VALUES_MIN,
    )
}

/// The comparable metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    Throughput,
    Cpu,
    P50,
    P99,
}

impl Metric {
    const ALL: [Metric; 4] = [Metric::Throughput, Metric::Cpu, Metric::P50, Metric::P99];

    fn word(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput",
            Metric::Cpu => "cpu",
            Metric::P50 => "p50",
            Metric::P99 => "p99",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Metric::Throughput => "operations per second",
            Metric::Cpu => "server CPU, ns per operation",
            Metric::P50 => "latency p50, us",
            Metric::P99 => "latency p99, us",
        }
    }

    /// Interprets a finding: B is worse or better.
    fn meaning(self, finding: Finding) -> &'static str {
        match (self, finding) {
            (_, Finding::Open) => "no difference shown",
            (Metric::Throughput, Finding::More) => "B does more",
            (Metric::Throughput, Finding::Less) => "B does less",
            (Metric::Cpu, Finding::More) => "B costs more",
            (Metric::Cpu, Finding::Less) => "B costs less",
            (Metric::P50 | Metric::P99, Finding::More) => "B answers later",
            (Metric::P50 | Metric::P99, Finding::Less) => "B answers sooner",
        }
    }
}

struct Options {
    servers: [ServerWords; 2],
    load: LoadFlags,
    metric: Metric,
    blocks: usize,
    precision: f64,
    block_ms: u64,
    keeps_servers: bool,
}

/// `myriad-lab compare`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    let Some(options) = parse(parser)? else { return Ok(printing(help())) };
    Ok(Box::new(move || compare(&options)))
}

/// Returns `None` if help was requested.
fn parse(parser: &mut CommandLine<'_>) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let mut servers: Vec<ServerWords> = Vec::new();
    let (mut load, mut metric) = (LoadFlags::default(), Metric::Cpu);
    let (mut blocks, mut precision) = (BLOCKS_DEFAULT, PRECISION_DEFAULT);
    let mut block_ms = BLOCK_MS_DEFAULT;
    let mut keeps_servers = false;
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(None),
            Long("metric") => {
                let word = parser.text()?;
                let known = Metric::ALL.into_iter().find(|metric| metric.word() == word);
                metric = known.with_context(|| {
                    format!("--metric {word:?}: not one of cpu, throughput, p50, p99")
                })?;
            }
            Long("blocks") => blocks = parser.value()?,
            Long("precision") => precision = parser.value()?,
            Long("block-ms") => block_ms = parser.value()?,
            Long("keep-servers") => keeps_servers = true,
            Value(word) => servers.push(word.string()?.parse()?),
            Long(name) => {
                let name = name.to_owned();
                if !load.take(&name, parser)? {
                    bail!("unknown option --{name}; see myriad-lab compare --help");
                }
            }
            other @ Short(_) => return Err(other.unexpected().into()),
        }
    }
    ensure!((1..=BLOCKS_MAX).contains(&blocks), "--blocks must be 1 to {BLOCKS_MAX}");
    ensure!((PRECISION_MIN..=1.0).contains(&precision), "--precision must be {PRECISION_MIN} to 1");
    let lengths = BLOCK_MS_MIN..=BLOCK_MS_MAX;
    ensure!(lengths.contains(&block_ms), "--block-ms must be {BLOCK_MS_MIN} to {BLOCK_MS_MAX}");
    let Ok(servers) = <[ServerWords; 2]>::try_from(servers) else {
        bail!("two servers are required; see myriad-lab compare --help");
    };
    Ok(Some(Options { servers, load, metric, blocks, precision, block_ms, keeps_servers }))
}

/// The metrics of one run.
#[derive(Debug, Clone, Copy)]
struct Figures {
    by_metric: [f64; 4],
    is_client_bound: bool,
}

impl Figures {
    #[expect(clippy::cast_precision_loss, reason = "latencies below 2^53 ns")]
    fn of(row: &Row, is_client_bound: bool) -> Result<Figures> {
        let latencies = latencies_ns(row)?;
        let latency_us = |part: f64| latencies.value_at_quantile(part) as f64 / 1e3;
        let by_metric = Metric::ALL.map(|metric| match metric {
            Metric::Throughput => row.operations_per_second(),
            Metric::Cpu => row.cpu_ns_per_operation(),
            Metric::P50 => latency_us(0.5),
            Metric::P99 => latency_us(0.99),
        });
        Ok(Figures { by_metric, is_client_bound })
    }

    fn get(&self, metric: Metric) -> f64 {
        self.by_metric[metric as usize]
    }
}

/// The two runs of each server in a block.
#[derive(Debug, Clone, Copy)]
struct Block {
    a: [Figures; 2],
    b: [Figures; 2],
}

impl Block {
    fn figures(&self) -> impl Iterator<Item = &Figures> {
        self.a.iter().chain(&self.b)
    }

    /// Returns the geometric means of A and of B: one value per block, because all its runs share
    /// the same processes.
    fn values(&self, metric: Metric) -> (f64, f64) {
        let mean = |runs: &[Figures; 2]| (runs[0].get(metric) * runs[1].get(metric)).sqrt();
        (mean(&self.a), mean(&self.b))
    }
}

fn compare(options: &Options) -> Result<()> {
    let machine = Machine::detect();
    let mut servers = None;
    let mut blocks: Vec<Block> = Vec::with_capacity(options.blocks);
    for number in 1..=EXTENSION * options.blocks {
        if number > options.blocks && is_precise(options, &blocks) {
            break;
        }
        let is_a_first = number % 2 == 1;
        let mut both = match servers.take() {
            Some(both) => both,
            None => start_both(options, &machine, is_a_first)?,
        };
        if number == 1 {
            print(&headline(A, &both[0]))?;
            print(&headline(B, &both[1]))?;
        }
        let block = run_block(&mut both, is_a_first)?;
        print(&progress(options.metric, number, &block))?;
        blocks.push(block);
        servers = options.keeps_servers.then_some(both);
    }
    print(&summary(options.metric, &blocks))
}

fn start_both(options: &Options, machine: &Machine, is_a_first: bool) -> Result<[Trial; 2]> {
    let [first, second] = &options.servers;
    if is_a_first {
        let a = start(A, options, first, machine)?;
        return Ok([a, start(B, options, second, machine)?]);
    }
    let b = start(B, options, second, machine)?;
    Ok([start(A, options, first, machine)?, b])
}

/// Starts a server, and discards one warm-up load: the first run of a server differs from later
/// ones.
fn start(
    name: &'static str,
    options: &Options,
    words: &ServerWords,
    machine: &Machine,
) -> Result<Trial> {
    let definition = options.load.definition("compare", words)?;
    let started = Trial::start(&definition, machine);
    let mut trial = started.with_context(|| format!("{name} ({})", words.text))?;
    trial.load = timed(&trial.load, options.block_ms / RUNS_PER_BLOCK);
    run(&mut trial, name)?;
    Ok(trial)
}

fn headline(name: &str, trial: &Trial) -> String {
    let row = trial.subject.row();
    format!("{name}: {}  [{}]\n", row.command_line.join(" "), row.version)
}

fn run_block([a, b]: &mut [Trial; 2], is_a_first: bool) -> Result<Block> {
    if is_a_first {
        let first = run(a, A)?;
        let b = [run(b, B)?, run(b, B)?];
        return Ok(Block { a: [first, run(a, A)?], b });
    }
    let first = run(b, B)?;
    let a = [run(a, A)?, run(a, A)?];
    Ok(Block { a, b: [first, run(b, B)?] })
}

fn run(trial: &mut Trial, name: &str) -> Result<Figures> {
    let mut row = trial.run(trial.load.clone()).with_context(|| format!("load {name}"))?;
    for _ in 1..TRIES_MAX {
        if row.report.operations > 0 {
            break;
        }
        row = trial.run(trial.load.clone()).with_context(|| format!("load {name}"))?;
    }
    if let Some(fault) = fault(&row) {
        bail!("{name}: {fault}: results with errors cannot be compared");
    }
    Figures::of(&row, trial.is_client_bound(&row))
}

fn progress(metric: Metric, number: usize, block: &Block) -> String {
    let (a, b) = block.values(metric);
    let is_bound = block.figures().any(|figures| figures.is_client_bound);
    let bound = if is_bound { "  client-bound" } else { "" };
    format!("block {number:>2}: B/A {} = {:.3}{bound}\n", metric.word(), b / a)
}

fn summary(metric: Metric, blocks: &[Block]) -> String {
    let mut text =
        format!("\n{:<30} {:>12} {:>12}   {:<22} {:>8}\n", "", "A", "B", "B/A [95 %]", "chance");
    for one in Metric::ALL {
        text.push_str(&line(one, blocks));
    }
    text.push_str(&client_bound(blocks));
    let comparison = Comparison::of(&values(metric, blocks));
    let (ratio, meaning) = (interval(&comparison), metric.meaning(comparison.finding()));
    text + &format!("\n{}: B/A = {ratio}: {meaning}\n", metric.title())
}

/// Lists runs that were limited by the generator; empty if there are none.
fn client_bound(blocks: &[Block]) -> String {
    let figures = blocks.iter().flat_map(Block::figures);
    let bound = figures.filter(|figures| figures.is_client_bound).count();
    if bound == 0 {
        return String::new();
    }
    let runs = blocks.iter().flat_map(Block::figures).count();
    format!(
        "\nclient-bound: in {bound} of {runs} runs the generator was at its limit: rates and \
         latencies are those of the generator; CPU per operation is valid\n"
    )
}

fn is_precise(options: &Options, blocks: &[Block]) -> bool {
    Comparison::of(&values(options.metric, blocks)).half_width() <= options.precision
}

fn values(metric: Metric, blocks: &[Block]) -> Vec<(f64, f64)> {
    blocks.iter().map(|block| block.values(metric)).collect()
}

fn line(metric: Metric, blocks: &[Block]) -> String {
    let values = values(metric, blocks);
    let comparison = Comparison::of(&values);
    let middle = |side: fn(&(f64, f64)) -> f64| {
        let mut all: Vec<f64> = values.iter().map(side).collect();
        all.sort_by(f64::total_cmp);
        quantile(&all, 0.5)
    };
    format!(
        "{:<30} {:>12} {:>12}   {:<22} {:>8}  {}\n",
        metric.title(),
        number(middle(|pair| pair.0)),
        number(middle(|pair| pair.1)),
        interval(&comparison),
        format!("{:.4}", comparison.chance),
        metric.meaning(comparison.finding())
    )
}

fn interval(comparison: &Comparison) -> String {
    let ratio = &comparison.ratio;
    format!("{:.3} [{:.3}, {:.3}]", ratio.ratio, ratio.low, ratio.high)
}

/// Formats a number with about four digits.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1_000.0 => 0,
        size if size >= 10.0 => 1,
        _ => 3,
    };
    format!("{value:.decimals$}")
}
