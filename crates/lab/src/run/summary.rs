//! Rows as text: one line for each, and a table of all cells at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::verdict::{BusyReactors, busy_reactors, latencies_ns};
use crate::row::{Row, Verdict};
use crate::stats::{Estimate, histogram, median_interval};

/// Cells whose repeats differ by more than this (half their interval) are marked.
const HALF_WIDTH_MAX: f64 = 0.05;

/// Formats one row: `connections=8: 123456/s, 7.9 us of CPU, p99 0.210 ms, 1/1 busy, ok`.
pub(super) fn line(row: &Row) -> String {
    let mut text = parameters(&row.parameters);
    if !text.is_empty() {
        text.push_str(": ");
    }
    if !has_figures(row) {
        let _ = write!(text, "{}: {}", name(row.verdict), row.reasons.join("; "));
        return text;
    }
    let _ = write!(
        text,
        "{:.0}/s, {:.2} us of CPU",
        row.operations_per_second(),
        row.cpu_ns_per_operation() / 1e3
    );
    if let Ok(latencies) = latencies_ns(row)
        && !latencies.is_empty()
    {
        let _ = write!(text, ", p99 {} ms", ms(latencies.value_at_quantile(0.99)));
    }
    for (load, row) in side_loads(row) {
        let _ = write!(text, ", {load} {:.0}/s", row.operations_per_second());
    }
    let reactors = busy_reactors(row);
    if reactors.count > 0 {
        let _ = write!(text, ", {} busy", busy_text(&reactors));
    }
    let _ = write!(text, ", {}", name(row.verdict));
    if !row.reasons.is_empty() {
        let _ = write!(text, " ({})", row.reasons.join("; "));
    }
    text
}

/// Returns the row from the perspective of each additional load, by name.
fn side_loads(row: &Row) -> impl Iterator<Item = (&str, Row)> {
    let names = row.load.side_loads.keys();
    names.filter_map(|name| Some((name.as_str(), row.side_load(name)?)))
}

/// Formats parameters without table names: `options.reactors=2 connections=8`.
pub(super) fn parameters(parameters: &BTreeMap<String, Value>) -> String {
    let words = parameters.iter().map(|(path, value)| {
        let name = path.split_once('.').map_or(path.as_str(), |(_, rest)| rest);
        format!("{name}={}", value_text(value))
    });
    words.collect::<Vec<String>>().join(" ")
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(entries) if entries.is_empty() => "-".to_owned(),
        Value::Object(entries) => {
            let entries =
                entries.iter().map(|(name, value)| format!("{name}={}", value_text(value)));
            entries.collect::<Vec<String>>().join(",")
        }
        other => other.to_string(),
    }
}

/// Formats a table of all cells in the order of the grid: medians with their intervals and the
/// number of repeats. Only `ok` rows count; a cell without any shows its other rows, with their
/// verdict.
pub fn summary(rows: &[Row]) -> String {
    let mut cells: BTreeMap<usize, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        cells.entry(row.cell).or_default().push(row);
    }
    let names: Vec<&String> = match rows.first() {
        Some(row) => row.parameters.keys().collect(),
        None => return "no rows\n".to_owned(),
    };
    let side_loads: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.load.side_loads.keys().map(String::as_str)).collect();
    let mut table = vec![header(&names, &side_loads)];
    table.extend(cells.values().map(|rows| cell_line(&names, &side_loads, rows)));
    aligned(&table)
}

fn header(names: &[&String], side_loads: &BTreeSet<&str>) -> Vec<String> {
    let short = names
        .iter()
        .map(|path| path.rsplit_once('.').map_or(path.as_str(), |(_, name)| name).to_owned());
    let side_loads =
        side_loads.iter().flat_map(|name| [format!("{name}/s"), format!("{name} p99 ms")]);
    let figures = ["operations/s", "CPU us/operation", "p50 ms", "p99 ms"].map(String::from);
    let last = ["busy", "verdict"].map(String::from);
    short.chain(figures).chain(side_loads).chain(last).collect()
}

fn cell_line(names: &[&String], side_loads: &BTreeSet<&str>, rows: &[&Row]) -> Vec<String> {
    let ok: Vec<&Row> = rows.iter().copied().filter(|row| row.verdict == Verdict::Ok).collect();
    let (shown, is_ok) = if ok.is_empty() { (rows.to_vec(), false) } else { (ok, true) };
    let shown: Vec<&Row> = shown.into_iter().filter(|row| has_figures(row)).collect();
    let mut line: Vec<String> = names
        .iter()
        .map(|name| rows[0].parameters.get(*name).map(value_text).unwrap_or_default())
        .collect();
    line.extend(figures(&shown));
    for name in side_loads {
        let rows: Vec<Row> = shown.iter().filter_map(|row| row.side_load(name)).collect();
        let [rate, _, _, p99] = figures(&rows.iter().collect::<Vec<&Row>>());
        line.extend([rate, p99]);
    }
    line.push(shown.last().map_or_else(|| "-".to_owned(), |row| busy_text(&busy_reactors(row))));
    line.push(verdict_text(rows, &shown, is_ok));
    line
}

/// Rate, CPU per operation, p50 and p99.
fn figures(rows: &[&Row]) -> [String; 4] {
    if rows.is_empty() {
        return ["-"; 4].map(String::from);
    }
    let of = |figure: fn(&Row) -> f64| {
        let values: Vec<f64> = rows.iter().map(|row| figure(row)).collect();
        median_interval(&values)
    };
    let texts = rows.iter().map(|row| row.report.latency_corrected.as_str());
    let (p50, p99) = match histogram::merge(texts) {
        Ok(all) if !all.is_empty() => {
            (ms(all.value_at_quantile(0.5)), ms(all.value_at_quantile(0.99)))
        }
        _ => ("-".into(), "-".into()),
    };
    [
        of(Row::operations_per_second).to_string(),
        of(|row| row.cpu_ns_per_operation() / 1e3).to_string(),
        p50,
        p99,
    ]
}

/// Formats `ok`, or the most frequent verdict with its count: `noisy 2 of 3: why`.
fn verdict_text(rows: &[&Row], shown: &[&Row], is_ok: bool) -> String {
    let rates: Vec<f64> = shown.iter().map(|row| row.operations_per_second()).collect();
    let spread: Estimate = median_interval(&rates);
    let refused: Vec<&&Row> = rows.iter().filter(|row| row.verdict != Verdict::Ok).collect();
    if is_ok && refused.is_empty() && spread.half_width() <= HALF_WIDTH_MAX {
        return "ok".to_owned();
    }
    let Some(worst) = refused.first() else {
        return format!("noisy: repeats differ by {:.0} %", spread.half_width() * 200.0);
    };
    let reason = worst.reasons.first().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} {} of {}{reason}", name(worst.verdict), refused.len(), rows.len())
}

fn has_figures(row: &Row) -> bool {
    !matches!(row.verdict, Verdict::Failed | Verdict::Skipped)
}

/// Returns the name used in rows.
pub(super) fn name(verdict: Verdict) -> String {
    match serde_json::to_value(verdict) {
        Ok(Value::String(name)) => name,
        other => unreachable!("a verdict is written as its name, not {other:?}"),
    }
}

/// Formats `11/16 65-75%`; empty for a subject without reactors.
fn busy_text(reactors: &BusyReactors) -> String {
    if reactors.count == 0 {
        return String::new();
    }
    format!(
        "{}/{} {:.0}-{:.0}%",
        reactors.busy,
        reactors.count,
        reactors.low * 100.0,
        reactors.high * 100.0
    )
}

#[allow(clippy::cast_precision_loss)]
fn ms(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

/// Aligns all columns but the last to the right.
fn aligned(table: &[Vec<String>]) -> String {
    let columns = table.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = table.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in table {
        for (index, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let is_last = index + 1 == line.len();
            let _ = if is_last { write!(text, "{cell}") } else { write!(text, "{cell:>width$}  ") };
        }
        text.push('\n');
    }
    text
}
