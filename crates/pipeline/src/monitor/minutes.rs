//! A file per stage with one block a minute, in the layout that the exercise's first program had.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::monitor::board::Totals;

/// Writes `generator`, `executor` and `collector` in a directory.
#[derive(Debug)]
pub(super) struct Minutes {
    dir: PathBuf,
    minute: u64,
    last: Totals,
}

impl Minutes {
    pub(super) fn new(dir: PathBuf) -> Result<Self> {
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        Ok(Self { dir, minute: 0, last: Totals::default() })
    }

    pub(super) fn has_news(&self, totals: &Totals) -> bool {
        *totals != self.last
    }

    /// One more minute has passed.
    pub(super) fn end(&mut self, totals: &Totals) -> Result<()> {
        self.minute += 1;
        let blocks = blocks(self.minute, &self.last, totals);
        for (name, block) in ["generator", "executor", "collector"].into_iter().zip(blocks) {
            let path = self.dir.join(name);
            let file = OpenOptions::new().create(true).append(true).open(&path);
            file.and_then(|mut file| file.write_all(block.as_bytes()))
                .with_context(|| format!("write {}", path.display()))?;
        }
        self.last = *totals;
        Ok(())
    }
}

/// The three blocks of a minute.
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

/// A share of one, although a percent sign follows: so it was. Without results it was no number.
fn accuracy(totals: &Totals) -> String {
    match u128::from(totals.right) + u128::from(totals.wrong) {
        0 => "NaN".to_owned(),
        all => hundredths(u128::from(totals.right) * 100, all),
    }
}

/// A quotient of hundredths with two decimals, halves away from zero.
fn hundredths(dividend: u128, divisor: u128) -> String {
    let rounded = (dividend * 2 + divisor) / (divisor * 2);
    format!("{}.{:02}", rounded / 100, rounded % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

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
