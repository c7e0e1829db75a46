//! Whether `lab compare` tells the truth: a server beside itself, many times, is never called
//! different. Takes a quarter of a minute per try, and judges by figures of this machine: no part of
//! `ci`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::tally::Tally;

/// Chance alone may call 1 of 1,000 pairs of equals different: in 20 tries none is to be expected.
pub(crate) const TRIES_DEFAULT: usize = 20;
/// Both of a pair.
const SERVER: &str = "this:durability=never,reactors=1";
/// As a user compares, but for shorter runs of fewer keys, and content with less precision.
const FLAGS: [&str; 8] =
    ["--pipeline", "16", "--keys", "100000", "--block-ms", "400", "--precision", "0.03"];
/// What is said of each figure for which no difference is shown.
const OPEN: &str = "no difference shown";
/// Throughput, processor time, two latencies.
const FIGURES: usize = 4;

/// Compares a server with itself so often; a try passes if no verdict is given about its metric.
pub(crate) fn run(root: &Path, tries: usize) -> Result<Tally> {
    let program = root.join("target/release/myriad");
    ensure!(program.is_file(), "{} is not built", program.display());
    let mut tally = Tally::default();
    let mut figures_open = 0;
    for number in 1..=tries {
        let text = compare(&program)?;
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
    Ok(tally)
}

fn compare(program: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(["lab", "compare", SERVER, SERVER]).args(FLAGS).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// What a comparison says at its end.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// The line that gives the verdict.
    last: String,
    /// Figures of the table for which no difference is shown.
    open: usize,
}

impl Found {
    fn read(text: &str) -> Result<Found> {
        let last = text.lines().last().context("the comparison said nothing")?;
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
    fn what_is_no_comparison_is_an_error() {
        for text in ["", "A: myriad\n", "operations per second: B/A = 1: no difference shown\n"] {
            assert!(Found::read(text).is_err(), "{text}");
        }
    }
}
