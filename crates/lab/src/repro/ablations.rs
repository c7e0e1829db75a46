//! Tuning steps of a program, measured in a naive and an improved variant by the program itself,
//! which prints the results as JSON.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::finding::{Finding, Number, Way};

/// Where earlier versions stored the output.
const EARLIER_FILE: &str = "ablation.json";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Output of the program for one step.
#[derive(Debug, Deserialize)]
struct Ablation {
    name: String,
    title: String,
    unit: String,
    naive: f64,
    right: f64,
    source: String,
    /// Whether the direction agrees with the source, and all targets are reached.
    agrees: bool,
    teaches: String,
    otherwise: String,
    rows: Vec<Way>,
}

impl From<Ablation> for Finding {
    fn from(found: Ablation) -> Finding {
        let Ablation { name, title, source, agrees, teaches, otherwise, rows, .. } = found;
        let numbers = vec![
            Number::new("naive", found.naive, &found.unit),
            Number::new("right", found.right, &found.unit),
        ];
        Finding { name, title, numbers, source, agrees, teaches, otherwise, rows }
    }
}

/// Runs the program to measure the step of this name.
pub(super) fn measure(
    program: &Path,
    name: &str,
    is_quick: bool,
    stop: &AtomicBool,
) -> Result<Finding> {
    let mut command = Command::new(program);
    command.args(["pipeline", "ablation", name, "--json"]);
    if is_quick {
        command.arg("--quick");
    }
    let text = output(command.stdin(Stdio::null()), stop)?;
    let found: Ablation =
        serde_json::from_str(&text).context("could not parse the output of the program")?;
    ensure!(found.name == name, "requested {name}, got {}", found.name);
    Ok(found.into())
}

/// Reads the result of an earlier version from a folder, if any.
pub(super) fn read_earlier(folder: &Path) -> Result<Option<Finding>> {
    let path = folder.join(EARLIER_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    let found = serde_json::from_slice::<Ablation>(&text);
    Ok(Some(found.with_context(|| format!("read {}", path.display()))?.into()))
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
    use crate::subject::Scratch;

    const PRINTED: &str = r#"{"name":"d05","title":"Buffers","unit":"tasks/s","naive":20000.0,
        "right":40000.0,"source":"40,000 per second","agrees":true,"teaches":"Calls cost.",
        "otherwise":"","rows":[{"variant":"none","role":"naive","value":20000.0,"low":20000.0,
        "high":30000.0,"unit":"tasks/s","note":""}]}"#;

    #[test]
    fn what_an_earlier_version_has_left_is_read() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        std::fs::write(scratch.path().join(EARLIER_FILE), PRINTED).unwrap();
        let found = Finding::read(scratch.path()).unwrap().unwrap();
        assert_eq!(found.name, "d05");
        assert_eq!(found.numbers(), "naive 20,000, right 40,000 tasks/s");
        assert_eq!(found.rows.len(), 1);
        std::fs::write(scratch.path().join(EARLIER_FILE), "{}").unwrap();
        assert!(Finding::read(scratch.path()).is_err());
    }

    #[test]
    fn a_program_that_fails_is_no_result() {
        let never = AtomicBool::new(false);
        let run = |script: &str| output(Command::new("sh").args(["-c", script]), &never);
        assert_eq!(run("echo a").unwrap(), "a\n");
        assert!(run("exit 3").unwrap_err().to_string().contains("failed"));
        let stopped = AtomicBool::new(true);
        let outcome = output(Command::new("sh").args(["-c", "sleep 60"]), &stopped);
        assert!(outcome.unwrap_err().to_string().contains("stopped"));
    }
}
