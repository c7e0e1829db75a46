//! Child processes whose output is shown indented and counted.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

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
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.with_context(|| format!("read the output of {shown}"))?;
        let line = String::from_utf8_lossy(&line);
        writeln!(output, "  {line}")?;
        if let Some(counts) = Tally::parse(&line) {
            tally += counts;
        }
    }
    let status = child.wait()?;
    if !status.success() && tally.failed == 0 {
        writeln!(output, "  FAILED {shown}: {status}")?;
        tally.failed += 1;
    }
    Ok(tally)
}

/// Takes jobs in order, several at a time. The output of each is printed when the job ends, so that
/// the outputs do not mix.
pub(crate) fn run_lanes<T: Send>(
    lanes: usize,
    jobs: Vec<T>,
    run: impl Fn(T) -> Result<(Vec<u8>, Tally)> + Sync,
) -> Result<Tally> {
    let jobs = Mutex::new(jobs.into_iter());
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..lanes {
            let (jobs, run, sender) = (&jobs, &run, sender.clone());
            scope.spawn(move || {
                loop {
                    let Some(job) = jobs.lock().next() else { break };
                    // The receiver ends at the first error.
                    if sender.send(run(job)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut tally = Tally::default();
        for result in results {
            let (output, counted) = result?;
            stdout().write_all(&output)?;
            tally += counted;
        }
        Ok(tally)
    })
}

/// Cargo, as started from a shell.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(cargo_path());
    command.current_dir(root).args(arguments);
    forget_package(&mut command);
    command
}

/// A variable with an item of cargo's configuration for the release build.
const BUILD_CONFIG: &str = "XTASK_BUILD_CONFIG";

/// [`cargo`] for a release build.
pub(crate) fn cargo_as_configured(root: &Path, arguments: &[&str]) -> Command {
    let mut command = cargo(root, arguments);
    if let Some(config) = env::var_os(BUILD_CONFIG) {
        command.arg("--config").arg(config);
    }
    command
}

/// Cargo at the lowest priority.
pub(crate) fn cargo_in_background(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(cargo_path()).current_dir(root).args(arguments);
    forget_package(&mut command);
    command
}

fn cargo_path() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// `cargo xtask` describes its package in variables on which a build script depends: with them, each
/// change between both ways to start cargo would compile most packages again.
fn forget_package(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"CARGO_MANIFEST_") || bytes.starts_with(b"CARGO_PKG_") {
            command.env_remove(name);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_jobs_run_and_are_counted() {
        let counted = |failed| Tally { passed: 1, failed };
        let tally = run_lanes(2, vec![0, 1, 2, 3], |failed| Ok((Vec::new(), counted(failed))));
        assert_eq!(tally.unwrap(), Tally { passed: 4, failed: 6 });
    }

    #[test]
    fn an_error_of_a_job_is_the_result() {
        let run = |job: u64| if job == 1 { bail!("broken") } else { Ok(Default::default()) };
        assert_eq!(run_lanes(1, vec![0, 1, 2], run).unwrap_err().to_string(), "broken");
    }
}
