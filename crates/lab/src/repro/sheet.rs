//! A result as a table of strings, for a terminal or a document.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::Value;

use super::outcome::{Line, Outcome, Statement};
use super::shape::Range;
use super::source::Column;
use crate::row::Verdict;
use crate::stats::Estimate;

/// Placeholder for unknown values.
const NOTHING: &str = "-";

/// Strings in rows and columns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sheet {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Columns of a sheet: headings, and their text for a line.
type Part<'a> = (String, Box<dyn Fn(&Line) -> String + 'a>);

impl Sheet {
    pub(crate) fn new<const WIDTH: usize>(head: [&str; WIDTH], rows: Vec<[String; WIDTH]>) -> Self {
        let head = head.map(str::to_owned).to_vec();
        Self { head, rows: rows.into_iter().map(Vec::from).collect() }
    }

    /// Creates a sheet with the parameters, the source's columns next to ours, their ratio, our own
    /// columns, and the remarks on each line. Empty columns are omitted.
    pub(crate) fn of_outcome(outcome: &Outcome) -> Self {
        let parts = parts(outcome);
        let cells = |line: &Line| parts.iter().map(|(_, text)| text(line)).collect();
        let rows: Vec<Vec<String>> = outcome.lines.iter().map(cells).collect();
        let is_used = |index: &usize| rows.iter().any(|row| !is_empty_cell(&row[*index]));
        let used: Vec<usize> = (0..parts.len()).filter(is_used).collect();
        let chosen = |row: &Vec<String>| used.iter().map(|index| row[*index].clone()).collect();
        Self {
            head: used.iter().map(|index| parts[*index].0.clone()).collect(),
            rows: rows.iter().map(chosen).collect(),
        }
    }

    pub(crate) fn of_statements(statements: &[Statement]) -> Self {
        let row = |statement: &Statement| {
            [
                statement.claim.to_owned(),
                statement.source.name().to_owned(),
                statement.ours.name().to_owned(),
                statement.verdict().to_owned(),
            ]
        };
        Self::new(["shape", "source", "ours", "verdict"], statements.iter().map(row).collect())
    }

    /// Aligned with blanks.
    pub(crate) fn text(&self) -> String {
        let widths = self.widths();
        let line = |cells: &Vec<String>| {
            let padded: Vec<String> =
                cells.iter().zip(&widths).map(|(cell, width)| pad(cell, *width)).collect();
            padded.join("  ").trim_end().to_owned()
        };
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let lines = [&self.head, &rule].into_iter().chain(&self.rows).map(line);
        lines.collect::<Vec<String>>().join("\n") + "\n"
    }

    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let numeric = (0..self.head.len()).map(|index| self.is_numeric(index));
        let rule: Vec<String> =
            numeric.map(|is_numeric| if is_numeric { "---:" } else { "---" }.to_owned()).collect();
        let escaped = |row: &Vec<String>| -> Vec<String> {
            row.iter().map(|cell| cell.replace('|', "\\|")).collect()
        };
        let mut lines = vec![line(&escaped(&self.head)), line(&rule)];
        lines.extend(self.rows.iter().map(|row| line(&escaped(row))));
        lines.join("\n") + "\n"
    }

    /// For a page of the report.
    pub(crate) fn html(&self) -> Markup {
        html! {
            table {
                thead { tr { @for cell in &self.head { th scope="col" { (cell) } } } }
                tbody { @for row in &self.rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        let width = |index: usize| {
            let cells = self.rows.iter().chain([&self.head]).map(|row| row[index].chars().count());
            cells.max().unwrap_or_default()
        };
        (0..self.head.len()).map(width).collect()
    }

    fn is_numeric(&self, index: usize) -> bool {
        self.rows.iter().all(|row| starts_with_number(&row[index]))
    }
}

fn is_empty_cell(cell: &str) -> bool {
    cell.is_empty() || cell == NOTHING
}

/// Aligns numbers right, words left.
fn pad(cell: &str, width: usize) -> String {
    if starts_with_number(cell) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
}

fn starts_with_number(cell: &str) -> bool {
    cell == NOTHING || cell.starts_with(|first: char| first.is_ascii_digit())
}

fn parts(outcome: &Outcome) -> Vec<Part<'_>> {
    let table = outcome.table;
    let mut parts: Vec<Part<'_>> = Vec::new();
    for name in &table.parameters {
        let text = |line: &Line| line.parameters.get(name).map(shown_value).unwrap_or_default();
        parts.push((last_word(name), Box::new(text)));
    }
    for column in table.columns.iter().filter(|column| !column.unit.is_empty()) {
        parts.push((format!("source {}", heading(column)), Box::new(|line| source(column, line))));
        parts.push(("ours".to_owned(), Box::new(|line| ours(column, line))));
    }
    let ratio = |line: &Line| line.ratio(table).map_or(NOTHING.to_owned(), shown);
    parts.push(("ours/source".to_owned(), Box::new(ratio)));
    for column in &table.ours {
        parts.push((heading(column), Box::new(|line| ours(column, line))));
    }
    let seen = |line: &Line| line.seen.map_or(NOTHING.to_owned(), shown_range);
    parts.push(("seen per s".to_owned(), Box::new(seen)));
    parts.push(("remark".to_owned(), Box::new(|line: &Line| line.remark.clone())));
    let source_remark = |line: &Line| line.source_remark.clone();
    parts.push(("source's remark".to_owned(), Box::new(source_remark)));
    parts.push(("verdict".to_owned(), Box::new(verdict)));
    parts
}

/// Converts `operations_per_second` to `operations (per s)`, so that the unit is not repeated.
fn heading(column: &Column) -> String {
    let suffix = match column.unit.as_str() {
        "per s" => "_per_second",
        "per min" => "_per_minute",
        "%" => "_percent",
        "B" => "_bytes",
        "ns" => "_ns",
        "us" => "_us",
        "ms" => "_ms",
        _ => "",
    };
    let name = column.name.strip_suffix(suffix).unwrap_or(&column.name).replace('_', " ");
    if column.unit == "x" { name } else { format!("{name} ({})", column.unit) }
}

fn source(column: &Column, line: &Line) -> String {
    line.source.get(&column.name).map_or(NOTHING.to_owned(), |range| shown_range(*range))
}

fn ours(column: &Column, line: &Line) -> String {
    line.ours.get(&column.name).map_or(NOTHING.to_owned(), shown_estimate)
}

/// Returns the last word of a path: `load.connections` -> `connections`.
fn last_word(path: &str) -> String {
    path.rsplit('.').next().unwrap_or(path).replace('_', " ")
}

/// Formats `ok`, or the problem and its frequency: `client-bound 2 of 3`. A star: more threads than
/// cores.
fn verdict(line: &Line) -> String {
    let count: usize = line.verdicts.values().sum();
    let star = if line.is_beyond_cores { " *" } else { "" };
    let wrong = line.verdicts.iter().filter(|(verdict, _)| **verdict != Verdict::Ok);
    let wrong: Vec<String> = wrong
        .map(|(verdict, wrong)| match count {
            1 => verdict.name().to_owned(),
            _ => format!("{} {wrong} of {count}", verdict.name()),
        })
        .collect();
    match (count, wrong.is_empty()) {
        (0, _) => "not measured".to_owned(),
        (_, true) => format!("ok{star}"),
        (_, false) => format!("{}{star}", wrong.join(", ")),
    }
}

/// Formats a setting: a mix of commands by their names, a choice with its numbers by its words.
fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let name = |value: &Value| match value.get("words") {
                // A method is less informative than its target.
                Some(words) if words[1].as_str().is_some_and(|word| word.starts_with('/')) => {
                    format!("{} {}", shown_value(&words[0]), shown_value(&words[1]))
                }
                Some(words) => shown_value(&words[0]),
                None => shown_value(value),
            };
            values.iter().map(name).collect::<Vec<String>>().join(" + ")
        }
        Value::Object(fields) => shown_fields(&fields.iter().collect()),
        other => other.to_string(),
    }
}

fn shown_fields(fields: &BTreeMap<&String, &Value>) -> String {
    let field = |(name, value): (&&String, &&Value)| format!("{name} {}", shown_value(value));
    fields.iter().map(field).collect::<Vec<String>>().join(", ")
}

fn shown_estimate(estimate: &Estimate) -> String {
    let Estimate { median, low, high, .. } = *estimate;
    // A single measurement, or pair of measurements, has no known variation.
    if low.total_cmp(&high).is_eq() || !high.is_finite() {
        return shown(median);
    }
    format!("{} [{}, {}]", shown(median), shown(low), shown(high))
}

fn shown_range(range: Range) -> String {
    if range.low.total_cmp(&range.high).is_eq() {
        return shown(range.low);
    }
    format!("{} - {}", shown(range.low), shown(range.high))
}

/// Formats about four digits, with thousands separators.
pub(super) fn shown(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "?".to_owned(),
        size if size >= 9_999.5 => thousands(value),
        size if size >= 999.5 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats `1,234,567`.
fn thousands(value: f64) -> String {
    let mut step = 1.0;
    while value.abs() / step >= 99_999.5 {
        step *= 10.0;
    }
    let digits = format!("{:.0}", (value / step).round() * step);
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits.as_str()),
    };
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = if first > 0 { vec![&digits[..first]] } else { Vec::new() };
    let mut rest = &digits[first..];
    while let Some((group, after)) = rest.split_at_checked(3) {
        groups.push(group);
        rest = after;
    }
    format!("{sign}{}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::repro::shape::Truth;
    use crate::repro::source;

    #[test]
    fn numbers() {
        let check = |value: f64, expected: &str| assert_eq!(shown(value), expected);
        check(0.0, "0");
        check(0.1234, "0.123");
        check(12.345, "12.35");
        check(123.45, "123.5");
        check(1234.5, "1234");
        check(9_999.9, "10,000");
        check(18_634.0, "18,634");
        check(1_234_567.0, "1,234,600");
        check(123_456_789.0, "123,460,000");
        check(f64::INFINITY, "?");
    }

    #[test]
    fn intervals() {
        let check = |low, high, expected: &str| {
            let estimate = Estimate { median: 0.5, low, high, count: 1 };
            assert_eq!(shown_estimate(&estimate), expected);
        };
        check(0.4, 0.6, "0.500 [0.400, 0.600]");
        check(0.5, 0.5, "0.500");
        check(0.0, f64::INFINITY, "0.500");
    }

    #[test]
    fn settings() {
        let check = |value: Value, expected: &str| assert_eq!(shown_value(&value), expected);
        check(json!([{ "weight": 1, "words": ["SET", "{key}"] }]), "SET");
        check(json!([{ "weight": 1, "words": ["GET", "/4k.bin"] }]), "GET /4k.bin");
        check(json!([{ "weight": 1, "words": ["SELECT 1"] }]), "SELECT 1");
        check(json!({ "interval": { "ms": 100 } }), "interval ms 100");
        check(json!("lanes"), "lanes");
        check(json!(4), "4");
        assert_eq!(last_word("subject.options.reactors"), "reactors");
    }

    fn line(source: f64, ours: Option<f64>) -> Line {
        let name = || "operations_per_second".to_owned();
        let estimate =
            |value: f64| Estimate { median: value, low: value * 0.9, high: value * 1.1, count: 3 };
        Line {
            parameters: BTreeMap::from([
                ("reactors".into(), json!(1)),
                ("instances".into(), json!(2)),
                ("connections".into(), json!(64)),
            ]),
            source: BTreeMap::from([(name(), Range::exactly(source))]),
            source_remark: String::new(),
            ours: ours.map(|value| (name(), estimate(value))).into_iter().collect(),
            seen: None,
            remark: String::new(),
            verdicts: BTreeMap::from([(Verdict::Ok, 2), (Verdict::Noisy, 1)]),
            is_beyond_cores: true,
        }
    }

    fn outcome(lines: Vec<Line>) -> Outcome {
        let table = source::tables().find(|table| table.id == "s1.t6").unwrap();
        Outcome { table, lines, statements: Vec::new() }
    }

    #[test]
    fn source_and_ours_stand_side_by_side() {
        let sheet = Sheet::of_outcome(&outcome(vec![line(55_500.0, Some(111_000.0))]));
        assert_eq!(
            sheet.text(),
            "reactors  instances  connections  source operations (per s)  ours                       ours/source  verdict\n\
             --------  ---------  -----------  -------------------------  -------------------------  -----------  --------------\n\
             \x20      1          2           64                     55,500  111,000 [99,900, 122,100]            2  noisy 1 of 3 *\n"
        );
        assert!(sheet.markdown().contains("|---:") || sheet.markdown().contains("| ---: |"));
        assert!(sheet.markdown().ends_with("| 2 | noisy 1 of 3 * |\n"), "{}", sheet.markdown());
    }

    #[test]
    fn missing_measurements_are_marked() {
        let sheet = Sheet::of_outcome(&outcome(vec![Line {
            verdicts: BTreeMap::new(),
            is_beyond_cores: false,
            ..line(55_500.0, None)
        }]));
        assert_eq!(sheet.head.last().unwrap(), "verdict");
        assert_eq!(sheet.rows[0].last().unwrap(), "not measured");
        assert!(!sheet.head.contains(&"ours".to_owned()), "{sheet:?}");
    }

    #[test]
    fn statements_in_markdown() {
        let statement = Statement { claim: "a | b", source: Truth::Holds, ours: Truth::Fails };
        let markdown = Sheet::of_statements(&[statement]).markdown();
        assert_eq!(
            markdown,
            "| shape | source | ours | verdict |\n| --- | --- | --- | --- |\n\
             | a \\| b | yes | no | differs |\n"
        );
    }
}
