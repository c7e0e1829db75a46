//! Steps by which a program was tuned, measured in the naive way and in the right one: by the
//! program itself, which says what it found as JSON.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::sheet::{Sheet, shown};

/// Beside the folders of runs.
pub(super) const FILE: &str = "ablation.json";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What came of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ablation {
    /// `d05`.
    pub name: String,
    pub title: String,
    pub unit: String,
    pub naive: f64,
    pub right: f64,
    /// What the source saw.
    pub source: String,
    /// The sign is that of the source, and all that is wanted is reached.
    pub agrees: bool,
    pub teaches: String,
    /// Why the sign is another one; empty where it agrees.
    pub otherwise: String,
    pub rows: Vec<Way>,
}

/// One way of doing it, over all repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Way {
    pub variant: String,
    /// `naive`, `right` or empty.
    pub role: String,
    /// The median.
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub unit: String,
    /// What the median must reach.
    #[serde(default)]
    pub wanted: Option<f64>,
    pub note: String,
}

impl Ablation {
    /// Has the program measure the step of this name.
    pub fn measure(program: &Path, name: &str, is_quick: bool, stop: &AtomicBool) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["pipeline", "ablation", name, "--json"]);
        if is_quick {
            command.arg("--quick");
        }
        let text = output(command.stdin(Stdio::null()), stop)?;
        let found: Self = serde_json::from_str(&text).context("read what the program printed")?;
        ensure!(found.name == name, "asked for {name}, got {}", found.name);
        Ok(found)
    }

    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
    }

    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        std::fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("write {}", path.display()))
    }

    /// As for the statements of other tables.
    pub fn verdict(&self) -> &'static str {
        if self.agrees { "agrees" } else { "differs" }
    }

    /// The two numbers.
    pub fn numbers(&self) -> String {
        format!("naive {}, right {} {}", shown(self.naive), shown(self.right), self.unit)
    }

    /// What is to be said under the table.
    pub fn remark(&self) -> String {
        let mut text = format!(
            "{}. The source: {}: {}.\n\n{}\n",
            self.numbers(),
            self.source,
            self.verdict(),
            self.teaches
        );
        if !self.otherwise.is_empty() {
            writeln!(text, "\nWhy it differs here: {}", self.otherwise)
                .expect("a string takes all");
        }
        text
    }

    pub fn sheet(&self) -> Sheet {
        let row = |way: &Way| {
            let spread = match (way.low, way.high) {
                (low, high) if low < high => format!("{} to {}", shown(low), shown(high)),
                _ => "-".to_owned(),
            };
            [
                way.variant.clone(),
                way.role.clone(),
                shown(way.value),
                spread,
                way.unit.clone(),
                way.wanted.map_or_else(String::new, |wanted| {
                    let missed = if way.value < wanted { ", missed" } else { "" };
                    format!("{}{missed}", shown(wanted))
                }),
                way.note.clone(),
            ]
        };
        let head = ["way", "", "median", "repeats", "unit", "wanted", "remark"];
        Sheet::new(head, self.rows.iter().map(row).collect())
    }
}

/// All that the program prints; an error if it fails, or if `stop` is set first.
fn output(command: &mut Command, stop: &AtomicBool) -> Result<String> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("start the ablation")?;
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
            bail!("stopped while an ablation was measured");
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

    pub(super) fn ablation(agrees: bool) -> Ablation {
        let way = |variant: &str, role: &str, value: f64| Way {
            variant: variant.into(),
            role: role.into(),
            value,
            low: value,
            high: value * 1.5,
            unit: "tasks/s".into(),
            wanted: (role == "right").then_some(50_000.0),
            note: String::new(),
        };
        Ablation {
            name: "d05".into(),
            title: "Buffers".into(),
            unit: "tasks/s".into(),
            naive: 20_000.0,
            right: 40_000.0,
            source: "40,000 to 70,000 per second".into(),
            agrees,
            teaches: "Calls cost.".into(),
            otherwise: if agrees { String::new() } else { "No calls.".into() },
            rows: vec![way("none", "naive", 20_000.0), way("64 KiB", "right", 40_000.0)],
        }
    }

    #[test]
    fn both_numbers_and_the_reason_are_said() {
        let agreeing = ablation(true);
        let remark = agreeing.remark();
        assert!(remark.starts_with("naive 20,000, right 40,000 tasks/s. The source:"), "{remark}");
        assert!(remark.contains(": agrees.") && !remark.contains("Why"), "{remark}");
        assert!(ablation(false).remark().ends_with("Why it differs here: No calls.\n"));
        let markdown = agreeing.sheet().markdown();
        assert!(
            markdown.contains("| none | naive | 20,000 | 20,000 to 30,000 | tasks/s |  |"),
            "{markdown}"
        );
        assert!(markdown.contains("| tasks/s | 50,000, missed |"), "{markdown}");
    }

    #[test]
    fn what_was_measured_is_read_back() {
        let scratch = crate::subject::Scratch::new(&std::env::temp_dir()).unwrap();
        let folder = std::path::PathBuf::from(scratch.path());
        ablation(true).write(&folder).unwrap();
        assert_eq!(Ablation::read(&folder).unwrap(), ablation(true));
        assert!(Ablation::read(&folder.join("none")).is_err());
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
