//! `myriad lab compare A B`: two servers under the same load, in turn.
//!
//! Both run all the time, each on its own port, one idle while the other is loaded. Runs come in
//! blocks A B B A, so that a machine that drifts in one direction favours neither; each half of a
//! block is a pair. What may be said of the pairs is the matter of [`decision`].

mod decision;

use anyhow::{Context, Result, bail, ensure};
use lexopt::Parser;

use crate::cli::print;
use crate::measure::Machine;
use crate::row::Row;
use crate::run::latencies_ns;
use crate::stats::quantile;
use crate::trial::flags::{self, LoadFlags, ServerWords};
use crate::trial::{Trial, fault, timed};
use decision::{CHANCE_MAX, Comparison, Finding, PAIRS_MIN};

const BLOCKS_DEFAULT: usize = 10;
/// A comparison that is not precise enough goes on to so many times its blocks.
const EXTENSION: usize = 4;
/// Beyond this a verdict that is still open is about a difference that nobody would notice.
const BLOCKS_MAX: usize = 100;
/// Of half the interval. Going on depends on this alone, never on which way the figures point:
/// whoever stops when a difference shows will find one.
const PRECISION_DEFAULT: f64 = 0.01;
const PRECISION_MIN: f64 = 0.001;
/// Four runs. Short ones, and more of them: on a disturbed machine 40 blocks of 1.2 s found 6 % of
/// difference within 1.2 %, where 15 blocks of 3.2 s left 4 % of doubt.
const BLOCK_MS_DEFAULT: u64 = 2_000;
const RUNS_PER_BLOCK: u64 = 4;
const BLOCK_MS_MIN: u64 = 40;
const BLOCK_MS_MAX: u64 = 600_000;
const A: &str = "A";
const B: &str = "B";

fn help() -> String {
    format!(
        "\
Usage: myriad lab compare A B [OPTIONS]

Compares two servers under the same load: which does an operation with less processor time, which
does more per second, which answers sooner. Both run all the time and are loaded in turn, A B B A.
There is a verdict only if the interval of B/A leaves 1 out and chance alone would do as much in at
most {:.1} % of all comparisons of equals.

{}
Options:
  --metric NAME        cpu, throughput, p50 or p99: what the last line is about [cpu]
  --blocks N           Blocks of four runs [{BLOCKS_DEFAULT}]; fewer than {} end without a verdict
  --precision N        Go on, to {EXTENSION} times as many, while half the interval of the metric is
                       wider [{PRECISION_DEFAULT}]
  --block-ms N         Length of a block [{BLOCK_MS_DEFAULT}]
  -h, --help           Print this text
",
        CHANCE_MAX * 100.0,
        flags::HELP,
        PAIRS_MIN.div_ceil(2),
    )
}

/// What can be compared.
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

    /// What a finding means: that B is worse or better.
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
}

/// `lab compare`.
pub(crate) fn command(parser: &mut Parser) -> Result<()> {
    let Some(options) = parse(parser)? else {
        return print(&help());
    };
    compare(&options)
}

/// `None`: help was asked for.
fn parse(parser: &mut Parser) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let mut servers: Vec<ServerWords> = Vec::new();
    let (mut load, mut metric) = (LoadFlags::default(), Metric::Cpu);
    let (mut blocks, mut precision) = (BLOCKS_DEFAULT, PRECISION_DEFAULT);
    let mut block_ms = BLOCK_MS_DEFAULT;
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(None),
            Long("metric") => {
                let word = parser.value()?.string()?;
                let known = Metric::ALL.into_iter().find(|metric| metric.word() == word);
                metric = known.with_context(|| {
                    format!("{word:?} is no metric: cpu, throughput, p50 or p99")
                })?;
            }
            Long("blocks") => blocks = parser.value()?.parse()?,
            Long("precision") => precision = parser.value()?.parse()?,
            Long("block-ms") => block_ms = parser.value()?.parse()?,
            Value(word) => servers.push(word.string()?.parse()?),
            Long(name) => {
                let name = name.to_owned();
                if !load.take(&name, parser)? {
                    bail!("unknown option --{name}; see myriad lab compare --help");
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
        bail!("two servers are wanted; see myriad lab compare --help");
    };
    Ok(Some(Options { servers, load, metric, blocks, precision, block_ms }))
}

/// The figures of one run.
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

fn compare(options: &Options) -> Result<()> {
    let [first, second] = &options.servers;
    let machine = Machine::look();
    let mut trials = [start(A, options, first, &machine)?, start(B, options, second, &machine)?];
    let mut pairs = Vec::with_capacity(2 * options.blocks);
    for block in 1..=EXTENSION * options.blocks {
        if block > options.blocks && is_precise(options, &pairs) {
            break;
        }
        let [a, b] = [run(&mut trials[0], A)?, run(&mut trials[1], B)?];
        let [other_b, other_a] = [run(&mut trials[1], B)?, run(&mut trials[0], A)?];
        let both = [(a, b), (other_a, other_b)];
        print(&progress(options, block, &both))?;
        pairs.extend(both);
    }
    print(&summary(options.metric, &pairs))
}

/// Starts a server, and loads it once for nothing: the first run of a server is never like others.
fn start(
    name: &'static str,
    options: &Options,
    words: &ServerWords,
    machine: &Machine,
) -> Result<Trial> {
    let definition = options.load.definition("compare", words)?;
    let started = Trial::start(&definition, machine);
    let mut trial = started.with_context(|| format!("{name} ({})", words.text))?;
    let row = trial.subject.row();
    print(&format!("{name}: {}  [{}]\n", row.command_line.join(" "), row.version))?;
    trial.load = timed(&trial.load, options.block_ms / RUNS_PER_BLOCK);
    run(&mut trial, name)?;
    Ok(trial)
}

fn run(trial: &mut Trial, name: &str) -> Result<Figures> {
    let row = trial.run(trial.load.clone()).with_context(|| format!("load {name}"))?;
    if let Some(fault) = fault(&row) {
        bail!("{name}: {fault}: figures of failed work cannot be compared");
    }
    Figures::of(&row, trial.is_client_bound(&row))
}

fn progress(options: &Options, block: usize, pairs: &[(Figures, Figures)]) -> String {
    let ratios: Vec<String> = pairs
        .iter()
        .map(|(a, b)| format!("{:.3}", b.get(options.metric) / a.get(options.metric)))
        .collect();
    let bound = pairs.iter().any(|(a, b)| a.is_client_bound || b.is_client_bound);
    format!(
        "block {block:>2}: B/A {} = {}{}\n",
        options.metric.word(),
        ratios.join(" "),
        if bound { "  client-bound" } else { "" }
    )
}

fn summary(metric: Metric, pairs: &[(Figures, Figures)]) -> String {
    let mut text =
        format!("\n{:<30} {:>12} {:>12}   {:<22} {:>8}\n", "", "A", "B", "B/A [95 %]", "chance");
    for one in Metric::ALL {
        text.push_str(&line(one, pairs));
    }
    text.push_str(&client_bound(pairs));
    let comparison = Comparison::of(&values(metric, pairs));
    let (ratio, meaning) = (interval(&comparison), metric.meaning(comparison.finding()));
    text + &format!("\n{}: B/A = {ratio}: {meaning}\n", metric.title())
}

/// Which runs were limited by the generator; nothing if none was.
fn client_bound(pairs: &[(Figures, Figures)]) -> String {
    let runs = pairs.iter().flat_map(|(a, b)| [a, b]);
    let bound = runs.filter(|figures| figures.is_client_bound).count();
    if bound == 0 {
        return String::new();
    }
    let runs = 2 * pairs.len();
    format!(
        "\nclient-bound: in {bound} of {runs} runs the generator was at its limit: their rates and \
         latencies are its own, CPU per operation is the server's\n"
    )
}

fn is_precise(options: &Options, pairs: &[(Figures, Figures)]) -> bool {
    Comparison::of(&values(options.metric, pairs)).half_width() <= options.precision
}

fn values(metric: Metric, pairs: &[(Figures, Figures)]) -> Vec<(f64, f64)> {
    pairs.iter().map(|(a, b)| (a.get(metric), b.get(metric))).collect()
}

fn line(metric: Metric, pairs: &[(Figures, Figures)]) -> String {
    let values = values(metric, pairs);
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

/// With about four digits.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 1_000.0 => 0,
        size if size >= 10.0 => 1,
        _ => 3,
    };
    format!("{value:.decimals$}")
}
