//! Child processes whose output is shown indented and counted.

use std::io::{BufRead, BufReader, Write, stdout};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::tally::Tally;

/// Runs a command that counts its own tests. Their lines are indented by two spaces, so that the
/// last line of a whole run is the only one of its kind at the start of a line.
///
/// A command that ends with an error without having counted a failure is one failure.
pub(crate) fn run_counted(command: &mut Command) -> Result<Tally> {
    run_counted_to(command, &mut stdout())
}

/// Like [`run_counted`], with the lines written to `output`.
pub(crate) fn run_counted_to(command: &mut Command, output: &mut dyn Write) -> Result<Tally> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {shown}"))?;
    let stdout = child.stdout.take().context("stdout was asked for as a pipe")?;
    let mut tally = Tally::default();
    for line in BufReader::new(stdout).lines() {
        let line = line.with_context(|| format!("read the output of {shown}"))?;
        writeln!(output, "  {line}")?;
        if let Some(counts) = Tally::parse(&line) {
            tally += counts;
        }
    }
    let status = child.wait()?;
    if !status.success() && tally.failed == 0 {
        writeln!(output, "  {shown}: {status}")?;
        tally.failed += 1;
    }
    Ok(tally)
}

/// Cargo, as started from a shell: `cargo xtask` sets a variable on which a build script depends, and
/// which would make each change between both ways compile most packages again.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).env_remove("CARGO_MANIFEST_DIR").args(arguments);
    command
}

/// Runs a command that only succeeds or fails.
pub(crate) fn run_plain(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}
