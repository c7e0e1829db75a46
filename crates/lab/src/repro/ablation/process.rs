//! Each ablation runs in a process of its own: its memory is measured, and it can be stopped at any
//! time.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::{Ablation, Budget};
use crate::command_line::{self, CommandLine, Job};
use crate::repro::finding::Finding;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

const HELP: &str = "\
Usage: myriad-lab ablation NAME [--quick]

Measures one step by which the task pipeline was tuned, or one of its targets, and prints the
finding as JSON. `myriad-lab repro s3.NAME` runs it and prints the finding as a table.

  NAME         d01 to d16, limits, speed, paced, overload or throttled
      --quick  Three repeats of 0.25 s instead of five of 1 s
";

/// `myriad-lab ablation`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    use lexopt::prelude::*;
    let (mut ablation, mut budget) = (None, Budget::FULL);
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(command_line::printing(HELP)),
            Long("quick") => budget = Budget::QUICK,
            Value(name) if ablation.is_none() => {
                let name = name.string()?;
                let found = Ablation::find(&name);
                ablation = Some(found.ok_or_else(|| anyhow!("unknown ablation {name:?}"))?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let ablation = ablation.context("missing name; see myriad-lab ablation --help")?;
    Ok(Box::new(move || {
        let finding = ablation.run(budget)?;
        command_line::print(&(serde_json::to_string(&finding)? + "\n"))
    }))
}

/// Runs `program`, a `myriad-lab`, to measure the ablation of this name.
pub(in crate::repro) fn measure(
    program: &Path,
    name: &str,
    is_quick: bool,
    stop: &AtomicBool,
) -> Result<Finding> {
    let mut command = Command::new(program);
    command.args(["ablation", name]);
    if is_quick {
        command.arg("--quick");
    }
    let text = output(command.stdin(Stdio::null()), stop)?;
    serde_json::from_str(&text).context("could not parse the output of the ablation")
}

/// Returns the whole output of the program; fails if the program fails, or if `stop` is set first.
fn output(command: &mut Command, stop: &AtomicBool) -> Result<String> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().context("could not start the ablation")?;
    let mut printed = child.stdout.take().context("output is piped")?;
    let reader = thread::spawn(move || {
        let mut text = String::new();
        printed.read_to_string(&mut text).map(|_| text)
    });
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            child.kill()?;
            child.wait()?;
            bail!("stopped during an ablation");
        }
        thread::sleep(POLL_INTERVAL);
    };
    let text = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    ensure!(status.success(), "the ablation failed: {status}");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_failed_or_stopped_process_is_an_error() {
        let never = AtomicBool::new(false);
        let run = |script: &str| output(Command::new("sh").args(["-c", script]), &never);
        assert_eq!(run("echo a").unwrap(), "a\n");
        assert!(run("exit 3").unwrap_err().to_string().contains("failed"));
        let stopped = AtomicBool::new(true);
        let outcome = output(Command::new("sh").args(["-c", "sleep 60"]), &stopped);
        assert!(outcome.unwrap_err().to_string().contains("stopped"));
    }
}
