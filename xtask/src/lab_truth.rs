//! Checks that the verdicts of `myriad-lab compare` are correct: a server compared with itself,
//! many times, is never reported as different; a server with an injected extra cost of a twentieth
//! always is. Takes a third of a minute per try, and depends on the machine's noise, so it is not
//! part of `ci`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::process::LAB;
use crate::tally::Tally;

/// Chance alone reports 1 of 1,000 equal pairs as different: in 20 tries none is expected.
pub(crate) const TRIES_DEFAULT: usize = 20;
/// The options of both servers.
const SERVER: &str = "this:durability=never,reactors=1";
/// Number of tries with servers of a known cost per request: an echo that spends a given time on
/// each read.
const PLANTED_TRIES: usize = 5;
const PLANTED_NS: [f64; 2] = [50_000.0, 53_000.0];
/// Maximum difference between the measured and the injected cost.
const PLANTED_ERROR_MAX: f64 = 0.02;
/// Each request is a read of its own.
const PLANTED_FLAGS: [&str; 6] = ["--pipeline", "1", "--keys", "1000", "--block-ms", "400"];
/// The verdict on the second server of such a pair.
const COSTS_MORE: &str = "B costs more";
/// The figure with the injected cost.
const CPU: &str = "server CPU, ns per operation";

/// Options as in a user's comparison, but with shorter runs, fewer keys and less precision.
const FLAGS: [&str; 8] =
    ["--pipeline", "16", "--keys", "100000", "--block-ms", "400", "--precision", "0.03"];
/// The verdict on a figure without a significant difference.
const OPEN: &str = "no difference shown";
/// Throughput, processor time, two latencies.
const FIGURES: usize = 4;

/// Compares a server with itself `tries` times; a try passes if no figure has a verdict.
pub(crate) fn run(root: &Path, tries: usize) -> Result<Tally> {
    let program = root.join(LAB);
    ensure!(program.is_file(), "{} is not built", program.display());
    let mut tally = Tally::default();
    let mut figures_open = 0;
    for number in 1..=tries {
        let text = compare(&program, [SERVER, SERVER], &FLAGS)?;
        let found = Found::read(&text)?;
        println!("try {number:>2}: {}; {} of {FIGURES} figures open", found.last, found.open);
        figures_open += found.open;
        if found.is_open() {
            tally.passed += 1;
        } else {
            tally.failed += 1;
        }
    }
    println!("{figures_open} of {} figures without a difference", tries * FIGURES);
    find_planted(&program, &mut tally)?;
    Ok(tally)
}

/// Passes if the slower one is reported as slower, by the injected amount.
fn find_planted(program: &Path, tally: &mut Tally) -> Result<()> {
    let servers = PLANTED_NS.map(|ns| format!("echo:read-cost-ns={ns}"));
    for number in 1..=PLANTED_TRIES {
        let text = compare(program, [&servers[0], &servers[1]], &PLANTED_FLAGS)?;
        let (found, costs) = (Found::read(&text)?, Costs::read(&text)?);
        let truth = costs.planted_ratio();
        println!("planted {number}: {}; the truth is {truth:.3}", found.last);
        if found.last.ends_with(COSTS_MORE) && (costs.ratio - truth).abs() <= PLANTED_ERROR_MAX {
            tally.passed += 1;
        } else {
            tally.failed += 1;
        }
    }
    Ok(())
}

fn compare(program: &Path, servers: [&str; 2], flags: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.arg("compare").args(servers).args(flags).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// The last lines of a comparison.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// The line with the verdict.
    last: String,
    /// Number of figures without a significant difference.
    open: usize,
}

impl Found {
    fn read(text: &str) -> Result<Found> {
        let last = text.lines().last().context("the comparison printed nothing")?;
        ensure!(last.contains("B/A = "), "no verdict in {text}");
        let rows: Vec<&str> = text.lines().filter(|line| is_figure(line)).collect();
        ensure!(rows.len() == FIGURES, "{} figures in {text}", rows.len());
        let open = rows.iter().filter(|line| line.ends_with(OPEN)).count();
        Ok(Found { last: last.to_owned(), open })
    }

    fn is_open(&self) -> bool {
        self.last.ends_with(OPEN)
    }
}

/// The row of processor time.
#[derive(Debug, PartialEq)]
struct Costs {
    /// Nanoseconds per operation on A.
    a_ns: f64,
    /// B over A.
    ratio: f64,
}

impl Costs {
    fn read(text: &str) -> Result<Costs> {
        let row = text.lines().find_map(|line| line.strip_prefix(CPU)?.strip_prefix(' '));
        let row = row.with_context(|| format!("no row of processor time in {text}"))?;
        let words: Vec<&str> = row.split_whitespace().collect();
        let [a, _, ratio, ..] = words.as_slice() else { bail!("too short: {row}") };
        Ok(Costs { a_ns: a.parse()?, ratio: ratio.parse()? })
    }

    /// The expected cost of B relative to A: the injected cost is their only difference.
    fn planted_ratio(&self) -> f64 {
        1.0 + (PLANTED_NS[1] - PLANTED_NS[0]) / self.a_ns
    }
}

/// `latency p50, us    98.2   98.5   1.003 [0.998, 1.009]   0.2312  no difference shown`
fn is_figure(line: &str) -> bool {
    !line.starts_with("block")
        && !line.contains("B/A")
        && line.contains('[')
        && line.contains(']')
        && !line.starts_with("A: ")
        && !line.starts_with("B: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(verdict: &str) -> String {
        format!(
            "A: myriad serve --reactors 1  [myriad 0.1.0]\nB: myriad serve  [myriad 0.1.0]\n\
             block  1: B/A cpu = 1.001\n\n\
             \u{20}                  A  B  B/A [95 %]  chance\n\
             operations per second   1  1  1.003 [0.998, 1.009]   0.2312  no difference shown\n\
             server CPU, ns per operation   1  1  1.003 [0.998, 1.009]   0.2312  {verdict}\n\
             latency p50, us   1  1  1.003 [0.998, 1.009]   0.2312  no difference shown\n\
             latency p99, us   1  1  1.003 [0.998, 1.009]   0.2312  no difference shown\n\
             \nclient-bound: in 3 of 44 runs the generator was at its limit\n\
             \nserver CPU, ns per operation: B/A = 1.003 [0.998, 1.009]: {verdict}\n"
        )
    }

    #[test]
    fn the_last_line_decides() {
        let equal = Found::read(&text(OPEN)).unwrap();
        assert_eq!((equal.open, equal.is_open()), (4, true));
        let different = Found::read(&text("B costs more")).unwrap();
        assert_eq!((different.open, different.is_open()), (3, false));
        assert!(different.last.starts_with("server CPU, ns per operation: B/A = 1.003"));
    }

    #[test]
    fn the_row_of_processor_time_is_read() {
        let row = format!(
            "{CPU}        60000        63000   1.048 [1.041, 1.055]   0.0005  {COSTS_MORE}"
        );
        let costs = Costs::read(&format!("A: echo\n{row}\n{CPU}: B/A = 1.048")).unwrap();
        assert_eq!(costs, Costs { a_ns: 60_000.0, ratio: 1.048 });
        assert!((costs.planted_ratio() - 1.05).abs() < 1e-9);
        assert!(Costs::read(&format!("{CPU}: B/A = 1.048")).is_err());
        assert!(Costs::read(&format!("{CPU} 25000")).is_err());
    }

    #[test]
    fn other_output_is_an_error() {
        for text in ["", "A: myriad\n", "operations per second: B/A = 1: no difference shown\n"] {
            assert!(Found::read(text).is_err(), "{text}");
        }
    }
}
