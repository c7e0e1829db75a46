//! A table of a source document combined with our measurements.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::figure::{self, window_rates};
use super::shape::{Point, Range, Truth, matches, same};
use super::source::{Column, SourceRow, Table};
use crate::load::Work;
use crate::row::{Row, Verdict};
use crate::stats::{Estimate, ratio_interval};

/// Confidence of ratios between repeats that are measured one after the other.
const CONFIDENCE: f64 = 0.95;

/// Result of a table.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub table: &'static Table,
    pub lines: Vec<Line>,
    pub statements: Vec<Statement>,
}

/// One row of the table: the values of the source, and ours.
#[derive(Debug)]
pub(crate) struct Line {
    /// By the source's names; if it has no rows, by the paths of the grid.
    pub parameters: BTreeMap<String, Value>,
    pub source: BTreeMap<String, Range>,
    /// The source's own remark.
    pub source_remark: String,
    pub ours: BTreeMap<String, Estimate>,
    /// From the slowest to the fastest second observed.
    pub seen: Option<Range>,
    pub remark: String,
    /// Number of measurements with each verdict.
    pub verdicts: BTreeMap<Verdict, usize>,
    /// Whether more threads than cores were active.
    pub is_beyond_cores: bool,
}

/// A statement about the shape, and whether it is true.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub claim: &'static str,
    pub source: Truth,
    pub ours: Truth,
}

impl Statement {
    /// Summarizes the source's result and ours in a few words.
    pub(crate) fn verdict(&self) -> &'static str {
        match (self.source, self.ours) {
            (Truth::Holds, Truth::Holds) | (Truth::Fails, Truth::Fails) => "agrees",
            (Truth::Holds, Truth::Fails) => "differs",
            (Truth::Absent, Truth::Holds) => "holds",
            (_, Truth::Holds) => "ours alone",
            (_, Truth::Fails) => "does not hold",
            (_, Truth::Undecided) => "undecided",
            (_, Truth::Absent) => "not measured",
        }
    }
}

/// Joins rows of the table's definition with the table. `core_count` is that of the machine on
/// which they were measured. O(lines * columns * rows).
pub(crate) fn outcome(table: &'static Table, rows: &[Row], core_count: usize) -> Outcome {
    let lines: Vec<Line> = if table.rows.is_empty() {
        let groups = groups(table, rows);
        groups.iter().map(|parameters| own_line(table, parameters, rows, core_count)).collect()
    } else {
        let source = table.source_rows().into_iter();
        source.map(|row| source_line(table, row, rows, core_count)).collect()
    };
    let source_points = table.source_points();
    let our_points: Vec<Point> = lines.iter().map(Line::our_point).collect();
    let statements = table.shapes.iter().map(|shape| Statement {
        claim: &shape.claim,
        source: shape.check.judge(&source_points),
        ours: shape.check.judge(&our_points),
    });
    let statements = statements.collect();
    Outcome { table, lines, statements }
}

/// Whether a cell of the definition corresponds to a row of the source.
pub(super) fn is_joined(
    table: &Table,
    source: &BTreeMap<String, Value>,
    cell: &BTreeMap<String, Value>,
) -> bool {
    table.join.iter().all(|(path, names)| {
        let expected = product(source, names);
        cell.get(path).zip(expected).is_some_and(|(found, expected)| same(found, &expected))
    })
}

/// Returns the value of the one parameter, or the product of several.
fn product(parameters: &BTreeMap<String, Value>, names: &[String]) -> Option<Value> {
    if let [name] = names {
        return parameters.get(name).cloned();
    }
    let factor = |name: &String| parameters.get(name)?.as_f64();
    names.iter().map(factor).product::<Option<f64>>().map(Value::from)
}

/// If the source has no rows: the values that distinguish lines, in the order of the cells.
fn groups(table: &Table, rows: &[Row]) -> Vec<BTreeMap<String, Value>> {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by_key(|row| row.cell);
    let mut groups: Vec<BTreeMap<String, Value>> = Vec::new();
    for row in sorted {
        let mut parameters = row.parameters.clone();
        parameters.retain(|path, _| table.parameters.contains(path));
        if !groups.contains(&parameters) {
            groups.push(parameters);
        }
    }
    groups
}

fn own_line(
    table: &Table,
    parameters: &BTreeMap<String, Value>,
    rows: &[Row],
    core_count: usize,
) -> Line {
    let ours = rows.iter().filter(|row| matches(parameters, &row.parameters)).collect();
    let nothing = SourceRow {
        parameters: parameters.clone(),
        figures: BTreeMap::new(),
        remark: String::new(),
    };
    line(table, nothing, ours, core_count)
}

fn source_line(table: &Table, source: SourceRow, rows: &[Row], core_count: usize) -> Line {
    let joined = rows.iter().filter(|row| is_joined(table, &source.parameters, &row.parameters));
    let ours = joined.collect();
    line(table, source, ours, core_count)
}

fn line(table: &Table, source: SourceRow, ours: Vec<&Row>, core_count: usize) -> Line {
    let mut verdicts = BTreeMap::new();
    for row in &ours {
        *verdicts.entry(row.verdict).or_insert(0) += 1;
    }
    let measured: Vec<&Row> = ours.iter().copied().filter(|row| has_result(row)).collect();
    let usable: Vec<&Row> = ours.into_iter().filter(|row| is_usable(row)).collect();
    let first = table.columns.iter().chain(&table.ours).find(|column| column.figure.is_some());
    let of_first = first.map(|column| of_column(column, &usable)).unwrap_or_default();
    Line {
        parameters: source.parameters,
        source: source.figures,
        source_remark: source.remark,
        ours: estimates(table, &usable, &measured),
        remark: of_first.first().map(|row| figure::remark(row)).unwrap_or_default(),
        seen: seen(&of_first),
        verdicts,
        is_beyond_cores: usable.iter().any(|row| thread_count(row) > core_count),
    }
}

/// Rows with losses or without results are not used for figures.
fn is_usable(row: &Row) -> bool {
    match row.verdict {
        Verdict::Ok | Verdict::ClientBound | Verdict::Noisy | Verdict::EnvChanged => true,
        Verdict::Stalled | Verdict::Lossy | Verdict::Failed | Verdict::Skipped => false,
    }
}

fn has_result(row: &Row) -> bool {
    !matches!(row.verdict, Verdict::Failed | Verdict::Skipped)
}

/// Returns the rows of a column, reduced to the load that the column refers to.
fn of_column<'rows>(column: &Column, rows: &[&'rows Row]) -> Vec<Cow<'rows, Row>> {
    let chosen = rows.iter().filter(|row| matches(&column.cells, &row.parameters));
    match &column.side_load {
        None => chosen.map(|row| Cow::Borrowed(*row)).collect(),
        Some(name) => chosen.filter_map(|row| row.side_load(name)).map(Cow::Owned).collect(),
    }
}

/// `usable` rows are for normal figures, `measured` ones for figures of losses.
fn estimates(table: &Table, usable: &[&Row], measured: &[&Row]) -> BTreeMap<String, Estimate> {
    let columns = || table.columns.iter().chain(&table.ours);
    let estimate = |column: &Column| match (&column.figure, &column.ratio) {
        (Some(figure), _) => {
            let rows = of_column(column, if figure.is_of_losses() { measured } else { usable });
            figure.estimate(&rows.iter().map(AsRef::as_ref).collect::<Vec<&Row>>())
        }
        (None, Some([over, under])) => {
            let find = |name: &String| columns().find(|column| column.name == *name);
            ratio(find(over)?, find(under)?, usable)
        }
        (None, None) => None,
    };
    columns().filter_map(|column| Some((column.name.clone(), estimate(column)?))).collect()
}

/// Divides the first column by the second, by repeat: measurements of a repeat are close in time.
fn ratio(over: &Column, under: &Column, rows: &[&Row]) -> Option<Estimate> {
    let values = |column: &Column| -> BTreeMap<usize, f64> {
        let rows = of_column(column, rows).into_iter();
        rows.filter_map(|row| Some((row.repeat, column.figure?.value(&row)?))).collect()
    };
    let under = values(under);
    let pairs: Vec<(f64, f64)> = values(over)
        .iter()
        .filter_map(|(repeat, value)| Some((*under.get(repeat)?, *value)))
        .collect();
    let ratio = ratio_interval(&pairs, CONFIDENCE);
    (ratio.count > 0).then_some(Estimate {
        median: ratio.ratio,
        low: ratio.low,
        high: ratio.high,
        count: ratio.count,
    })
}

/// Returns the slowest and the fastest second; for shorter measurements, window.
fn seen(rows: &[Cow<'_, Row>]) -> Option<Range> {
    let rates = rows.iter().flat_map(|row| rates_per_second(row));
    rates.fold(None, |range: Option<Range>, rate| {
        let range = range.unwrap_or(Range::exactly(rate));
        Some(Range { low: range.low.min(rate), high: range.high.max(rate) })
    })
}

fn rates_per_second(row: &Row) -> Vec<f64> {
    let rates = window_rates(row);
    let per_second = usize::try_from(1_000 / row.load.window_ms.max(1)).unwrap_or(1).max(1);
    if rates.len() < per_second {
        return rates;
    }
    #[allow(clippy::cast_precision_loss)]
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    rates.chunks_exact(per_second).map(mean).collect()
}

/// Number of threads kept busy by load and subject.
fn thread_count(row: &Row) -> usize {
    let reactors = row.threads.iter().filter(|thread| figure::is_reactor(thread)).count();
    match &row.load.work {
        Work::Socket(work) => {
            let side_loads: usize = row.load.side_loads.values().map(|work| work.threads).sum();
            reactors.max(1) + work.threads + side_loads
        }
        Work::Append(work) => work.threads,
    }
}

impl Line {
    /// Our value divided by the source's, in the first column that both have.
    pub(crate) fn ratio(&self, table: &Table) -> Option<f64> {
        let both = |column: &Column| {
            let (source, ours) = (self.source.get(&column.name)?, self.ours.get(&column.name)?);
            Some(ours.median / source.middle())
        };
        table.columns.iter().find_map(both).filter(|ratio| ratio.is_finite())
    }

    fn our_point(&self) -> Point {
        let range = |estimate: &Estimate| Range { low: estimate.low, high: estimate.high };
        Point {
            parameters: self.parameters.clone(),
            figures: self.ours.iter().map(|(name, value)| (name.clone(), range(value))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::repro::{definitions, fixture, source};

    fn table(id: &str) -> &'static Table {
        source::tables().find(|table| table.id == id).unwrap()
    }

    fn statement<'a>(outcome: &'a Outcome, claim: &str) -> &'a Statement {
        outcome.statements.iter().find(|statement| statement.claim.contains(claim)).unwrap()
    }

    /// Appends per second by mode and threads.
    fn appends(rate: impl Fn(&str, u64) -> f64) -> Vec<Row> {
        let definition = definitions::find("s4.t1").unwrap();
        let cells = definition.cells.iter().enumerate();
        cells
            .map(|(index, cell)| {
                let mode = cell.parameters["load.mode"].as_str().unwrap();
                let threads = cell.parameters["load.threads"].as_u64().unwrap();
                let mut row = fixture::log_row(mode, threads);
                row.cell = index;
                row.parameters = cell.parameters.clone();
                fixture::set_rate(&mut row, rate(mode, threads));
                row
            })
            .collect()
    }

    #[test]
    fn every_row_of_a_source_has_its_cells_and_every_cell_its_row() {
        for table in source::tables() {
            let source::Run::Definition(name) = &table.run else { continue };
            let definition = definitions::find(name).unwrap();
            let columns: Vec<&Column> =
                table.columns.iter().chain(&table.ours).filter(|c| c.figure.is_some()).collect();
            let belongs = |cell: &BTreeMap<String, Value>| {
                columns.iter().any(|column| matches(&column.cells, cell))
            };
            for cell in &definition.cells {
                assert!(belongs(&cell.parameters), "{}: {:?}", table.id, cell.parameters);
            }
            for row in table.source_rows() {
                for column in &columns {
                    let count = definition
                        .cells
                        .iter()
                        .filter(|cell| is_joined(table, &row.parameters, &cell.parameters))
                        .filter(|cell| matches(&column.cells, &cell.parameters))
                        .count();
                    assert_eq!(count, 1, "{}, {}: {:?}", table.id, column.name, row.parameters);
                }
            }
        }
    }

    #[test]
    fn our_figures_stand_beside_those_of_the_source() {
        let rows = appends(|mode, _| if mode == "mutex" { 1e6 } else { 3e7 });
        let outcome = outcome(table("s4.t1"), &rows, 2);
        assert_eq!(outcome.lines.len(), 9);
        let line = &outcome.lines[8];
        assert_eq!(line.parameters["threads"], 1);
        assert_eq!(line.source["duration_ms"], Range::exactly(9531.0));
        assert!((line.ours["duration_ms"].median - 3000.0).abs() < 1.0, "{line:?}");
        assert!((line.ours["lanes_per_second"].median - 3e7).abs() < 1.0, "{line:?}");
        assert!((line.ratio(outcome.table).unwrap() - 3000.0 / 9531.0).abs() < 1e-3);
        assert_eq!(line.verdicts, BTreeMap::from([(Verdict::Ok, 2)]));
        assert!(!line.is_beyond_cores);
        assert!(outcome.lines[0].is_beyond_cores);
    }

    #[test]
    fn shapes_are_judged_on_both() {
        let slower = |threads: u64| 1e6 - 1_500.0 * fixture::real(threads);
        let rows = appends(|mode, threads| if mode == "mutex" { slower(threads) } else { 3e7 });
        let good = outcome(table("s4.t1"), &rows, 2);
        assert_eq!(statement(&good, "Threads only cost").verdict(), "agrees");
        assert_eq!(statement(&good, "loses nothing").verdict(), "holds");
        assert_eq!(statement(&good, "20 million").verdict(), "holds");

        let rows = appends(
            |mode, threads| {
                if mode == "mutex" { 2e6 - slower(threads) } else { slower(threads) }
            },
        );
        let bad = outcome(table("s4.t1"), &rows, 2);
        assert_eq!(statement(&bad, "Threads only cost").verdict(), "differs");
        assert_eq!(statement(&bad, "loses nothing").verdict(), "does not hold");
        assert_eq!(statement(&bad, "20 million").verdict(), "does not hold");
    }

    #[test]
    fn rows_that_lost_something_have_no_figures() {
        let mut rows = appends(|_, _| 1e6);
        for row in &mut rows {
            row.verdict = Verdict::Lossy;
        }
        let outcome = outcome(table("s4.t1"), &rows, 2);
        assert!(outcome.lines.iter().all(|line| line.ours.is_empty() && line.seen.is_none()));
        assert_eq!(outcome.lines[0].verdicts, BTreeMap::from([(Verdict::Lossy, 2)]));
        assert!(outcome.statements.iter().all(|statement| statement.verdict() == "not measured"));
    }

    #[test]
    fn ratios_pair_repeats() {
        let mut rows = Vec::new();
        for repeat in 0..5 {
            for (durability, rate) in [("always", 80_000.0), ("never", 100_000.0)] {
                let mut row = fixture::server_row();
                row.repeat = repeat;
                row.parameters =
                    BTreeMap::from([("subject.options.durability".into(), json!(durability))]);
                // The machine drifts for both; the peer additionally on its own.
                let drift = 1.0 + fixture::real(repeat as u64);
                let own = if durability == "never" { 1.0 + drift.sin() / 100.0 } else { 1.0 };
                fixture::set_rate(&mut row, rate * drift * own);
                rows.push(row);
            }
        }
        let outcome = outcome(table("redis.cost"), &rows, 2);
        let [line] = outcome.lines.as_slice() else { panic!("one line") };
        let ratio = line.ours["ratio"];
        assert!(ratio.low > 0.78 && ratio.high < 0.82, "{ratio:?}");
        assert_eq!(outcome.statements[0].verdict(), "holds");
    }

    #[test]
    fn a_column_may_be_of_a_load_beside_the_first() {
        let definition = definitions::find("redis.reads").unwrap();
        let rows: Vec<Row> = (definition.cells.iter().zip([2.0, 1.0]))
            .map(|(cell, factor)| {
                let mut row = fixture::server_row();
                row.parameters = cell.parameters.clone();
                row.load = cell.load.clone();
                let mut writers = row.clone();
                fixture::set_rate(&mut row, 50_000.0 * factor);
                fixture::set_rate(&mut writers, 7_000.0 * factor);
                row.report.side_loads.insert("writers".into(), writers.report);
                row
            })
            .collect();
        let outcome = outcome(table("redis.reads"), &rows, 2);
        let [line] = outcome.lines.as_slice() else { panic!("one line") };
        for (column, expected) in [
            ("myriad_reads", 100_000.0),
            ("redis_reads", 50_000.0),
            ("ratio", 2.0),
            ("myriad_writes", 14_000.0),
            ("redis_writes", 7_000.0),
        ] {
            let found = line.ours[column].median;
            assert!((found / expected - 1.0).abs() < 1e-6, "{column}: {found}");
        }
        // Two threads generate load, one reactor is counted.
        assert!(line.is_beyond_cores);
    }

    #[test]
    fn observations_are_per_second() {
        let mut row = fixture::server_row();
        row.load.window_ms = 500;
        row.report.windows = vec![10, 30, 40, 80];
        assert_eq!(seen(&[Cow::Borrowed(&row)]), Some(Range { low: 40.0, high: 120.0 }));
        row.report.windows = vec![10];
        assert_eq!(seen(&[Cow::Borrowed(&row)]), Some(Range::exactly(20.0)));
    }

    #[test]
    fn verdicts_of_statements() {
        let verdict = |source, ours| Statement { claim: "", source, ours }.verdict();
        assert_eq!(verdict(Truth::Fails, Truth::Fails), "agrees");
        assert_eq!(verdict(Truth::Fails, Truth::Holds), "ours alone");
        assert_eq!(verdict(Truth::Holds, Truth::Undecided), "undecided");
    }
}
