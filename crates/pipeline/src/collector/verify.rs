//! Checks samples by recomputing them, and writes reports.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::message::NAMED_MAX;
use crate::task::{BatchTask, TaskError};

/// Which results are recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// A uniform sample of this size from each window.
    Sample {
        size: usize,
        window_ns: u64,
    },
    All,
}

/// Verification result of one window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WindowReport {
    pub window: u64,
    /// Tasks collected in this window.
    pub tasks: u64,
    pub sampled: u64,
    pub right: u64,
    pub wrong_ids: Vec<u64>,
    /// `id x y DIGEST`, or the description of the task's record.
    pub records: Vec<String>,
}

impl WindowReport {
    /// Recomputes every record of a sample.
    pub fn check(
        task: &dyn BatchTask,
        window: u64,
        tasks: u64,
        sample: &[Vec<u8>],
    ) -> Result<Self, TaskError> {
        let mut report = Self {
            window,
            tasks,
            sampled: u64::try_from(sample.len()).expect("64 bits"),
            right: 0,
            wrong_ids: Vec::new(),
            records: Vec::with_capacity(sample.len()),
        };
        for record in sample {
            if task.verify(record)? {
                report.right += 1;
            } else {
                report.wrong_ids.push(record_id(record));
            }
            report.records.push(task.describe(record));
        }
        Ok(report)
    }

    /// Writes the report in the original's text format and as JSON. Creates the directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let write = |name: String, text: String| {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        write(self.window.to_string(), self.text())?;
        let mut json = serde_json::to_string_pretty(self)?;
        json.push('\n');
        write(format!("{}.json", self.window), json)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "Total of {} tasks calculated correctly, accuracy {}%\n",
            self.right,
            self.accuracy_percent()
        );
        for record in &self.records {
            writeln!(text, "{record}").expect("writing to a String cannot fail");
        }
        text
    }

    /// Returns the accuracy with two decimals. A window without results counts as correct.
    pub fn accuracy_percent(&self) -> String {
        percent(self.right, self.sampled)
    }
}

/// Returns `part` of `whole` in percent, truncated to two decimals: 99.99 never appears as 100.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part >= whole {
        return "100.00".to_owned();
    }
    let hundredths = u128::from(part) * 10_000 / u128::from(whole);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Returns the id at the start of a record.
pub(crate) fn record_id(record: &[u8]) -> u64 {
    record.first_chunk().map_or(u64::MAX, |id| u64::from_be_bytes(*id))
}

/// Recomputes a whole batch. Returns how many results are correct, and the first wrong ids.
pub fn check_all(
    task: &dyn BatchTask,
    outputs: &[u8],
    count: u32,
) -> Result<(u64, Vec<u64>), TaskError> {
    let mut right = 0;
    let mut wrong = Vec::new();
    for index in 0..count {
        let record = task.record(outputs, index).and_then(|range| outputs.get(range));
        let shape = TaskError::Shape { count, bytes: outputs.len() };
        let record = record.ok_or(shape)?;
        if task.verify(record)? {
            right += 1;
        } else {
            wrong.push(record_id(record));
        }
    }
    Ok((right, wrong))
}

/// Returns the directory of a stream's sample files: `DIR/sample/STREAM-EPOCH`.
pub fn sample_dir(out: &Path, stream: u64, epoch: u32) -> PathBuf {
    out.join("sample").join(format!("{stream:016x}-{epoch}"))
}

const _: () = assert!(NAMED_MAX > 0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Codec, Exercise, Ids, Kernel, OUTPUT_BYTES};

    fn outputs(task: &Exercise) -> Vec<u8> {
        let ids = Ids { first: 5, count: 3 };
        let (mut inputs, mut outputs) = (vec![0; 36], vec![0; 3 * OUTPUT_BYTES]);
        task.generate(ids, &mut inputs).unwrap();
        task.run(ids, &inputs, &mut outputs).unwrap();
        outputs
    }

    #[test]
    fn wrong_results_are_found_and_named() {
        let task = Exercise::new(Codec::Sha256Le, 1, Kernel::Serial);
        let mut outputs = outputs(&task);
        outputs[2 * OUTPUT_BYTES - 1] ^= 1;
        assert_eq!(check_all(&task, &outputs, 3), Ok((2, vec![6])));
        let sample: Vec<Vec<u8>> = outputs.chunks(OUTPUT_BYTES).map(<[u8]>::to_vec).collect();
        let report = WindowReport::check(&task, 0, 3, &sample).unwrap();
        assert_eq!((report.sampled, report.right, &report.wrong_ids[..]), (3, 2, &[6][..]));
        let text = report.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Total of 2 tasks calculated correctly, accuracy 66.66%");
        assert_eq!(lines.len(), 4);
        assert!(lines[1].starts_with("5 "), "{text}");
        assert_eq!(lines[1].rsplit(' ').next().unwrap().len(), 64);
    }

    #[test]
    fn percentages_never_flatter() {
        for (part, whole, expected) in
            [(0, 0, "100.00"), (100, 100, "100.00"), (99_999, 100_000, "99.99"), (1, 3, "33.33")]
        {
            assert_eq!(percent(part, whole), expected);
        }
    }
}
