//! One file per stage with one block per minute, byte for byte as the exercise's original program
//! wrote them: in its earlier layout, or in the later one of its published logs.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::monitor::board::Totals;

options::choice! {
    /// Layout of the original program.
    Layout {
        Early = "early",
        /// With time, backlog, and accuracy as a percentage; begins with minute 0.
        Late = "late",
    }
}

/// Writes `generator`, `executor` and `collector` in a directory.
#[derive(Debug)]
pub(super) struct Minutes {
    dir: PathBuf,
    layout: Layout,
    minute: u64,
    last: Totals,
}

impl Minutes {
    /// `now` is used only as a timestamp.
    pub(super) fn new(dir: PathBuf, layout: Layout, now: SystemTime) -> Result<Self> {
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        let minutes = Self { dir, layout, minute: 0, last: Totals::default() };
        if layout == Layout::Late {
            minutes.write(&late_blocks(0, &minutes.last, &minutes.last, 0, &stamp(now)))?;
        }
        Ok(minutes)
    }

    pub(super) fn has_changes(&self, totals: &Totals) -> bool {
        *totals != self.last
    }

    /// Ends a minute. `waiting` is the number of assigned but uncollected tasks.
    pub(super) fn end(&mut self, totals: &Totals, waiting: u64, now: SystemTime) -> Result<()> {
        self.minute += 1;
        let blocks = match self.layout {
            Layout::Early => blocks(self.minute, &self.last, totals),
            Layout::Late => late_blocks(self.minute, &self.last, totals, waiting, &stamp(now)),
        };
        self.last = *totals;
        self.write(&blocks)
    }

    fn write(&self, blocks: &[String; 3]) -> Result<()> {
        for (name, block) in ["generator", "executor", "collector"].into_iter().zip(blocks) {
            let path = self.dir.join(name);
            let file = OpenOptions::new().create(true).append(true).open(&path);
            file.and_then(|mut file| file.write_all(block.as_bytes()))
                .with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Formats a UTC time as `2023-05-11-10-28-15-125`.
fn stamp(now: SystemTime) -> String {
    let text = humantime::format_rfc3339_millis(now).to_string();
    text.trim_end_matches('Z').replace(['T', ':', '.'], "-")
}

/// Formats the three blocks of a minute.
fn blocks(minute: u64, before: &Totals, now: &Totals) -> [String; 3] {
    let head = |stage: usize| {
        let new = now.tasks[stage] - before.tasks[stage];
        (format!("---------- {minute} minute ----------\nNew task number: {new}\n"), new)
    };
    let plain = |stage: usize| {
        let (head, new) = head(stage);
        let total = now.tasks[stage];
        format!(
            "{head}Current TPS: {}\nTotal task number: {total}\nAverage TPS: {}\n\n",
            per_second(new, 1),
            per_second(total, minute)
        )
    };
    let (head, new) = head(2);
    let total = now.tasks[2];
    let collector = format!(
        "{head}Correct task number: {}\nIncorrect task number: {}\nCurrent TPS: {}\n\
         Total task number: {total}\nAverage accuracy: {}%\nAverage tps: {}\n\n",
        now.right - before.right,
        now.wrong - before.wrong,
        per_second(new, 1),
        accuracy(now),
        per_second(total, minute)
    );
    [plain(0), plain(1), collector]
}

fn per_second(tasks: u64, minutes: u64) -> String {
    hundredths(u128::from(tasks) * 100, u128::from(minutes) * 60)
}

/// Formats blocks as in the published logs.
fn late_blocks(
    minute: u64,
    before: &Totals,
    now: &Totals,
    waiting: u64,
    stamp: &str,
) -> [String; 3] {
    let head = |stage: usize| {
        let new = now.tasks[stage] - before.tasks[stage];
        format!(
            "---------- {minute} minute ----------\n--- {stamp} --\nNew task number: {new}\n\
             Current TPS: {}\n",
            per_second(new, 1)
        )
    };
    let total = |stage: usize, tps: &str| {
        let total = now.tasks[stage];
        let average = per_second(total, minute.max(1));
        format!("Total task number: {total}\nAverage {tps}: {average}\n")
    };
    let (right, wrong) = (now.right - before.right, now.wrong - before.wrong);
    [
        format!("{}{}\n", head(0), total(0, "TPS")),
        format!("{}{}Waiting queue task number: {waiting}\n\n", head(1), total(1, "TPS")),
        format!(
            "{}Correct task number: {right}\nIncorrect task number: {wrong}\n\
             Current accuracy: {}%\n{}Average accuracy: {}%\n\n",
            head(2),
            percentage(right, wrong),
            total(2, "tps"),
            percentage(now.right, now.wrong)
        ),
    ]
}

/// Returns 0 without results.
fn percentage(right: u64, wrong: u64) -> String {
    let all = u128::from(right) + u128::from(wrong);
    hundredths(u128::from(right) * 10_000, all.max(1))
}

/// Returns a fraction of one, followed by a percent sign, as in the original, which printed NaN
/// without results.
fn accuracy(totals: &Totals) -> String {
    match u128::from(totals.right) + u128::from(totals.wrong) {
        0 => "NaN".to_owned(),
        all => hundredths(u128::from(totals.right) * 100, all),
    }
}

/// Formats a quotient of hundredths with two decimals; halves round away from zero.
fn hundredths(dividend: u128, divisor: u128) -> String {
    let rounded = (dividend * 2 + divisor) / (divisor * 2);
    format!("{}.{:02}", rounded / 100, rounded % 100)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// Values, time and layout of the published log of a run at 1.8 million per second.
    // Source: source document 3, published logs of its monitor, minutes 0 and 2
    #[test]
    fn blocks_are_those_of_the_published_logs() {
        let start = Totals::default();
        let [_, _, collector] = late_blocks(0, &start, &start, 0, "2023-05-11-10-28-15-130");
        assert_eq!(
            collector,
            "---------- 0 minute ----------\n--- 2023-05-11-10-28-15-130 --\nNew task number: 0\n\
             Current TPS: 0.00\nCorrect task number: 0\nIncorrect task number: 0\n\
             Current accuracy: 0.00%\nTotal task number: 0\nAverage tps: 0.00\n\
             Average accuracy: 0.00%\n\n"
        );
        let first = Totals { tasks: [120_002_000, 100_160_000, 100_232_000], right: 100, wrong: 0 };
        let second =
            Totals { tasks: [234_310_000, 206_964_000, 207_034_000], right: 200, wrong: 0 };
        let at = UNIX_EPOCH + Duration::from_millis(1_683_801_010_055);
        let stamp = stamp(at);
        let [generator, executor, collector] = late_blocks(2, &first, &second, 26_576_000, &stamp);
        assert_eq!(
            generator,
            "---------- 2 minute ----------\n--- 2023-05-11-10-30-10-055 --\n\
             New task number: 114308000\nCurrent TPS: 1905133.33\n\
             Total task number: 234310000\nAverage TPS: 1952583.33\n\n"
        );
        assert_eq!(
            executor,
            "---------- 2 minute ----------\n--- 2023-05-11-10-30-10-055 --\n\
             New task number: 106804000\nCurrent TPS: 1780066.67\n\
             Total task number: 206964000\nAverage TPS: 1724700.00\n\
             Waiting queue task number: 26576000\n\n"
        );
        assert_eq!(
            collector,
            "---------- 2 minute ----------\n--- 2023-05-11-10-30-10-055 --\n\
             New task number: 106802000\nCurrent TPS: 1780033.33\nCorrect task number: 100\n\
             Incorrect task number: 0\nCurrent accuracy: 100.00%\n\
             Total task number: 207034000\nAverage tps: 1725283.33\n\
             Average accuracy: 100.00%\n\n"
        );
    }

    #[test]
    fn blocks_have_their_layout() {
        let before = Totals { tasks: [100, 100, 100], right: 10, wrong: 0 };
        let now = Totals { tasks: [12_100, 6_145, 6_100], right: 99, wrong: 1 };
        let [generator, executor, collector] = blocks(2, &before, &now);
        assert_eq!(
            generator,
            "---------- 2 minute ----------\nNew task number: 12000\nCurrent TPS: 200.00\n\
             Total task number: 12100\nAverage TPS: 100.83\n\n"
        );
        assert!(executor.contains("Current TPS: 100.75\n"), "{executor}");
        assert_eq!(
            collector,
            "---------- 2 minute ----------\nNew task number: 6000\nCorrect task number: 89\n\
             Incorrect task number: 1\nCurrent TPS: 100.00\nTotal task number: 6100\n\
             Average accuracy: 0.99%\nAverage tps: 50.83\n\n"
        );
        assert!(blocks(1, &Totals::default(), &Totals::default())[2].contains("accuracy: NaN%"));
    }
}
