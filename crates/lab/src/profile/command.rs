//! `myriad lab profile`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lexopt::Parser;

use super::{Change, Labels, Options, Profile, Share};
use crate::cli::{Subcommand, print};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "profile",
    about: "Show where a process spends its processor time: flame graph, table",
    run,
};

const HELP: &str = "\
Shows where the processor time of a running process goes.

Usage:
  myriad lab profile --pid PID --out FILE.svg [OPTIONS]
  myriad lab profile --difference BEFORE.folded AFTER.folded --out FILE.svg

Writes a flame graph to FILE.svg and the samples, one line per stack, to FILE.folded; prints the
functions with the most samples. With --difference, the flame graph of AFTER in which what takes a
greater share than in BEFORE is red, and what takes a smaller one is blue.

      --pid <PID>            The process; all its threads
      --seconds <SECONDS>    How long, 1 to 3600 [10]
      --frequency <NUMBER>   Samples per second of each thread's processor time [999]
      --thread <NAME>        Only threads of this name: r00
      --top <NUMBER>         Functions to print [20]
      --out <FILE.svg>       Where the flame graph goes
  -h, --help                 Print this

Needs to be root or the owner of the process. Callers are found by frame pointers; a program that
was built without them shows its innermost functions only.
";

const SECONDS_MAX: u64 = 3_600;

#[derive(Debug)]
enum Request {
    Help,
    Process { pid: u32, duration: Duration, options: Options, output: Output },
    Difference { before: PathBuf, after: PathBuf, output: Output },
}

#[derive(Debug)]
struct Output {
    svg: PathBuf,
    /// Functions to print.
    top: usize,
}

fn run(parser: &mut Parser) -> Result<()> {
    match parse(parser)? {
        Request::Help => print(HELP),
        Request::Process { pid, duration, options, output } => {
            let profile = super::record(pid, duration, &options)?;
            write(&profile, &output, &format!("Process {pid}"))
        }
        Request::Difference { before, after, output } => compare(&before, &after, &output),
    }
}

fn parse(parser: &mut Parser) -> Result<Request> {
    use lexopt::prelude::*;
    let mut pid = None;
    let mut difference = None;
    let mut seconds = 10;
    let mut options = Options::default();
    let mut svg: Option<PathBuf> = None;
    let mut top = 20;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Request::Help),
            Long("pid") => pid = Some(parser.value()?.parse()?),
            Long("seconds") => seconds = parser.value()?.parse()?,
            Long("frequency") => options.frequency = parser.value()?.parse()?,
            Long("thread") => options.thread = Some(parser.value()?.string()?),
            Long("top") => top = parser.value()?.parse()?,
            Long("out") => svg = Some(parser.value()?.into()),
            Long("difference") => {
                difference = Some((parser.value()?.into(), parser.value()?.into()));
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(svg) = svg else { bail!("--out FILE.svg is missing") };
    let output = Output { svg, top };
    match (pid, difference) {
        (Some(_), Some(_)) => bail!("--pid and --difference exclude each other"),
        (None, None) => bail!("either --pid PID or --difference BEFORE AFTER is needed"),
        (None, Some((before, after))) => Ok(Request::Difference { before, after, output }),
        (Some(pid), None) => {
            if !(1..=SECONDS_MAX).contains(&seconds) {
                bail!("--seconds must be 1 to {SECONDS_MAX}");
            }
            if options.frequency == 0 {
                bail!("--frequency must be at least 1");
            }
            let duration = Duration::from_secs(seconds);
            Ok(Request::Process { pid, duration, options, output })
        }
    }
}

/// Writes the flame graph and the folded stacks beside it, prints the table.
fn write(profile: &Profile, output: &Output, title: &str) -> Result<()> {
    let folded = profile.folded();
    let folded_path = output.svg.with_extension("folded");
    write_file(&folded_path, &folded)?;
    let mut text = format!("{}\n", profile.summary());
    if profile.samples == 0 {
        text.push_str("The process used no processor time: there is nothing to draw.\n");
        return print(&text);
    }
    let labels = Labels { title: title.to_owned(), subtitle: profile.summary() };
    write_file(&output.svg, &super::flame_graph(&folded, &labels)?)?;
    text.push_str(&share_table(&super::shares(&folded), output.top));
    let _ = writeln!(text, "\n{}\n{}", output.svg.display(), folded_path.display());
    print(&text)
}

fn compare(before: &Path, after: &Path, output: &Output) -> Result<()> {
    let read =
        |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let labels = Labels {
        title: format!("{} beside {}", after.display(), before.display()),
        subtitle: "red: a greater share than before; blue: a smaller one".to_owned(),
    };
    let (before, after) = (read(before)?, read(after)?);
    write_file(&output.svg, &super::difference(&before, &after, &labels)?)?;
    let mut text = change_table(&super::changes(&before, &after), output.top);
    let _ = writeln!(text, "\n{}", output.svg.display());
    print(&text)
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn share_table(shares: &[Share], top: usize) -> String {
    let mut text = String::from("\n  self   total  samples  function\n");
    for share in shares.iter().take(top) {
        let _ = writeln!(
            text,
            "{:5.1} % {:5.1} % {:8}  {}",
            share.own_share * 100.0,
            share.with_callees_share * 100.0,
            share.own,
            share.function
        );
    }
    text
}

fn change_table(changes: &[Change], top: usize) -> String {
    let mut text = String::from("before   after  change  function (own time)\n");
    for change in changes.iter().take(top) {
        let _ = writeln!(
            text,
            "{:5.1} % {:5.1} % {:+6.1}  {}",
            change.before * 100.0,
            change.after * 100.0,
            (change.after - change.before) * 100.0,
            change.function
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &[&str], expected: &str) {
        let mut parser = Parser::from_args(arguments);
        let error = parse(&mut parser).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        check(&["--pid", "1"], "--out FILE.svg is missing");
        let needed = "either --pid PID or --difference BEFORE AFTER is needed";
        check(&["--out", "a.svg"], needed);
        let both = ["--out", "a.svg", "--pid", "1", "--difference", "a", "b"];
        check(&both, "--pid and --difference exclude each other");
        let seconds = ["--out", "a.svg", "--pid", "1", "--seconds", "0"];
        check(&seconds, "--seconds must be 1 to 3600");
        let frequency = ["--out", "a.svg", "--pid", "1", "--frequency", "0"];
        check(&frequency, "--frequency must be at least 1");
    }

    #[test]
    fn tables_show_shares_in_percent() {
        let shares = super::super::shares("r;a;b 3\nr;a 1\n");
        assert_eq!(
            share_table(&shares, 1),
            "\n  self   total  samples  function\n 75.0 %  75.0 %        3  b\n"
        );
        let changes = super::super::changes("r;a 1\nr;b 1\n", "r;a 3\nr;b 1\n");
        let table = change_table(&changes, 1);
        assert!(table.ends_with(" 50.0 %  75.0 %  +25.0  a\n"), "{table}");
    }
}
