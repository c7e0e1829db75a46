//! Result of an experiment without a grid of cells: its key numbers, whether they agree with the
//! source, and its lesson.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::sheet::{Sheet, shown};
use crate::run::read_json;

/// File next to the folders of runs.
const FILE: &str = "finding.json";

/// Result of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// For example, `d05` or `s2.r7`.
    pub name: String,
    pub title: String,
    /// The key numbers.
    pub numbers: Vec<Number>,
    /// Observation in the source.
    pub source: String,
    /// Whether the observation agrees, and all targets are reached.
    pub agrees: bool,
    #[serde(rename = "teaches")]
    pub conclusion: String,
    /// Possible reason for a different result; empty if it agrees.
    #[serde(rename = "otherwise")]
    pub deviation_reason: String,
    pub rows: Vec<FindingRow>,
}

/// A key number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Number {
    pub label: String,
    pub value: f64,
    pub unit: String,
}

/// One variant, over all repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FindingRow {
    pub variant: String,
    /// `naive`, `right`, a parameter, or empty.
    pub role: String,
    /// The median.
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub unit: String,
    /// Target for the median.
    #[serde(default, rename = "wanted")]
    pub target: Option<f64>,
    pub note: String,
}

impl Number {
    pub(crate) fn new(label: &str, value: f64, unit: &str) -> Self {
        Self { label: label.to_owned(), value, unit: unit.to_owned() }
    }
}

impl FindingRow {
    /// Creates a row for a single value.
    pub(crate) fn once(variant: &str, role: &str, value: f64, unit: &str, note: String) -> Self {
        Self::over(variant, role, &[value], unit, note)
    }

    /// Creates a row with the median of several values; 0 if empty.
    pub(crate) fn over(
        variant: &str,
        role: &str,
        values: &[f64],
        unit: &str,
        note: String,
    ) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        Self {
            variant: variant.to_owned(),
            role: role.to_owned(),
            value: median(values),
            low: at(0),
            high: at(sorted.len().saturating_sub(1)),
            unit: unit.to_owned(),
            target: None,
            note,
        }
    }
}

/// Returns the median, or 0 if empty.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.as_slice() {
        [] => 0.0,
        some if some.len() % 2 == 1 => some[middle],
        some => f64::midpoint(some[middle - 1], some[middle]),
    }
}

impl Finding {
    /// Reads the finding in a folder; `None` if there is none.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        read_json(&path).map(Some)
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("write {}", path.display()))
    }

    /// In the same words as for statements of other tables.
    pub(crate) fn verdict(&self) -> &'static str {
        if self.agrees { "agrees" } else { "differs" }
    }

    /// Formats `naive 20,000, right 40,000 tasks/s`; a common unit is written once.
    pub(crate) fn numbers(&self) -> String {
        let mut text = String::new();
        for (index, number) in self.numbers.iter().enumerate() {
            let next = self.numbers.get(index + 1);
            let unit = match next {
                Some(next) if next.unit == number.unit => "",
                _ => &number.unit,
            };
            let blank = if unit.is_empty() { "" } else { " " };
            let comma = if next.is_some() { ", " } else { "" };
            write!(text, "{} {}{blank}{unit}{comma}", number.label, shown(number.value))
                .expect("writing to a String cannot fail");
        }
        text
    }

    /// Formats the text below the table.
    pub(crate) fn remark(&self) -> String {
        let mut text = format!(
            "{}. The source: {}: {}.\n\n{}\n",
            self.numbers(),
            self.source,
            self.verdict(),
            self.conclusion
        );
        if !self.deviation_reason.is_empty() {
            writeln!(text, "\nWhy it differs here: {}", self.deviation_reason)
                .expect("writing to a String cannot fail");
        }
        text
    }

    pub(crate) fn sheet(&self) -> Sheet {
        let row = |row: &FindingRow| {
            let spread = match (row.low, row.high) {
                (low, high) if low < high => format!("{} to {}", shown(low), shown(high)),
                _ => "-".to_owned(),
            };
            [
                row.variant.clone(),
                row.role.clone(),
                shown(row.value),
                spread,
                row.unit.clone(),
                row.target.map_or_else(String::new, |target| {
                    let missed = if row.value < target { ", missed" } else { "" };
                    format!("{}{missed}", shown(target))
                }),
                row.note.clone(),
            ]
        };
        let head = ["variant", "", "median", "repeats", "unit", "target", "remark"];
        Sheet::new(head, self.rows.iter().map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Scratch;

    fn finding(agrees: bool) -> Finding {
        let row = |variant: &str, role: &str, value: f64| FindingRow {
            high: value * 1.5,
            target: (role == "right").then_some(50_000.0),
            ..FindingRow::once(variant, role, value, "tasks/s", String::new())
        };
        Finding {
            name: "d05".into(),
            title: "Buffers".into(),
            numbers: vec![
                Number::new("naive", 20_000.0, "tasks/s"),
                Number::new("right", 40_000.0, "tasks/s"),
            ],
            source: "40,000 to 70,000 per second".into(),
            agrees,
            conclusion: "Calls cost.".into(),
            deviation_reason: if agrees { String::new() } else { "No calls.".into() },
            rows: vec![row("none", "naive", 20_000.0), row("64 KiB", "right", 40_000.0)],
        }
    }

    #[test]
    fn numbers_and_the_reason_are_said() {
        let agreeing = finding(true);
        let remark = agreeing.remark();
        assert!(remark.starts_with("naive 20,000, right 40,000 tasks/s. The source:"), "{remark}");
        assert!(remark.contains(": agrees.") && !remark.contains("Why"), "{remark}");
        assert!(finding(false).remark().ends_with("Why it differs here: No calls.\n"));
        let markdown = agreeing.sheet().markdown();
        assert!(
            markdown.contains("| none | naive | 20,000 | 20,000 to 30,000 | tasks/s |  |"),
            "{markdown}"
        );
        assert!(markdown.contains("| tasks/s | 50,000, missed |"), "{markdown}");
    }

    #[test]
    fn each_unit_is_said_where_it_ends() {
        let numbers = vec![
            Number::new("after", 12.0, "ms"),
            Number::new("tried", 31.0, ""),
            Number::new("answered", 31.0, ""),
        ];
        let found = Finding { numbers, ..finding(true) };
        assert_eq!(found.numbers(), "after 12 ms, tried 31, answered 31");
    }

    #[test]
    fn findings_round_trip_through_files() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let folder = scratch.path();
        assert_eq!(Finding::read(folder).unwrap(), None);
        finding(true).write(folder).unwrap();
        assert_eq!(Finding::read(folder).unwrap(), Some(finding(true)));
        fs::write(folder.join(FILE), "{").unwrap();
        assert!(Finding::read(folder).is_err());
    }

    #[test]
    fn the_middle_of_several_tries() {
        let row = FindingRow::over("a", "", &[3.0, 1.0, 2.0], "ms", String::new());
        assert_eq!((row.value, row.low, row.high), (2.0, 1.0, 3.0));
        assert!((median(&[1.0, 4.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }
}
