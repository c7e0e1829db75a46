//! Comparison with the values of a source document, if the run has stored them.

use anyhow::Result;
use maud::{Markup, html};
use serde_json::Value;

use crate::report::cells::{absent, number, scrolled, sort_key};
use crate::report::chart::{self, Dot, Scale};
use crate::report::figure::{self, Figure};
use crate::report::folder::SourceRow;
use crate::report::grid::Parameters;
use crate::report::number::Unit;
use crate::report::table::{Cell, Table};
use crate::stats::Estimate;

/// Limit for the rows of a chart; the table contains all of them.
const DOTS_MAX: usize = 60;

/// A cell, a figure, and both of its values.
struct Pair<'a> {
    cell: &'a Cell,
    theirs: [f64; 2],
    ours: Option<Estimate>,
}

/// Renders charts and tables of ratios, one per figure of the source document; `None` without any.
pub(crate) fn comparison(table: &Table, source: &[SourceRow]) -> Result<Option<Markup>> {
    let rows: Vec<&SourceRow> = source.iter().filter(|row| row.table == table.name).collect();
    let mut names: Vec<&String> = rows.iter().flat_map(|row| row.columns.keys()).collect();
    names.sort();
    names.dedup();
    let mut parts = Vec::new();
    for name in names {
        let Some((figure, factor)) = figure::of_column(name) else { continue };
        let of_cell = |cell| {
            let theirs = column(cell, &rows, name)?.map(|value| value * factor);
            Some(Pair { cell, theirs, ours: cell.estimate(figure) })
        };
        let pairs: Vec<Pair<'_>> = table.cells.iter().filter_map(of_cell).collect();
        if !pairs.is_empty() {
            parts.push(part(table, figure, &pairs)?);
        }
    }
    Ok((!parts.is_empty()).then(|| html! { @for part in parts { (part) } }))
}

fn column(cell: &Cell, rows: &[&SourceRow], name: &str) -> Option<[f64; 2]> {
    let row = rows
        .iter()
        .find(|row| row.columns.contains_key(name) && is_same(&row.parameters, &cell.parameters))?;
    row.columns.get(name).copied()
}

/// Whether every parameter of the source has the same value in the cell, by its full name or by its
/// last word.
fn is_same(source: &Parameters, cell: &Parameters) -> bool {
    source.iter().all(|(name, value)| {
        let found = cell.get(name).or_else(|| {
            let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
            cell.iter().find(|(other, _)| last(other) == last(name)).map(|(_, value)| value)
        });
        found.is_some_and(|found| equal(found, value))
    })
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= f64::EPSILON * a.abs().max(b.abs()),
        _ => a == b,
    }
}

impl Pair<'_> {
    /// Returns our value divided by the source's; the widest interval that both ranges allow.
    fn ratio(&self) -> Option<Estimate> {
        let ours = self.ours.filter(|_| self.theirs[0] > 0.0)?;
        let middle = f64::midpoint(self.theirs[0], self.theirs[1]);
        Some(Estimate {
            median: ours.median / middle,
            low: ours.low / self.theirs[1],
            high: ours.high / self.theirs[0],
            count: ours.count,
        })
    }
}

fn part(table: &Table, figure: &Figure, pairs: &[Pair<'_>]) -> Result<Markup> {
    Ok(html! {
        div.side-loads {
            @if let Some(dots) = ratio_dots(table, figure, pairs)? { (dots) }
            div { (ratio_table(table, figure, pairs)) }
        }
    })
}

fn ratio_dots(table: &Table, figure: &Figure, pairs: &[Pair<'_>]) -> Result<Option<Markup>> {
    let dots: Vec<Dot> = pairs
        .iter()
        .take(DOTS_MAX)
        .filter_map(|pair| {
            let ratio = pair.ratio()?;
            Some(Dot {
                label: table.describe(pair.cell),
                low: ratio.low,
                median: ratio.median,
                high: ratio.high,
                is_trusted: pair.cell.is_trusted(),
            })
        })
        .collect();
    let ends = dots.iter().flat_map(|dot| [dot.low, dot.high]).chain([1.0]);
    let title = "ratio (1: equal; further right: ours is larger)";
    let Some(x) = Scale::logarithmic(title, Unit::Ratio, ends).filter(|_| !dots.is_empty()) else {
        return Ok(None);
    };
    let name = format!("{}, ours over the source's", figure.title);
    let chart = chart::dots(&name, &x, &dots, Some(1.0))?;
    Ok(Some(html! {
        figure {
            figcaption { b { (figure.title) ", ours over the source's" } " " span.about { "by " (table.axis_labels()) } }
            (chart)
        }
    }))
}

fn ratio_table(table: &Table, figure: &Figure, pairs: &[Pair<'_>]) -> Markup {
    let content = html! {
        table.sortable.flat {
            thead { tr {
                th.sorts scope="col" { (table.axis_labels()) }
                th.sorts.number scope="col" { "Source" }
                th.sorts.number scope="col" { "Ours" }
                th.sorts.number scope="col" { "Ratio" }
            } }
            tbody {
                @for pair in pairs {
                    tr {
                        th scope="row" data-sort=(pair.cell.number) { (table.describe(pair.cell)) }
                        td.number data-sort=(pair.theirs[1]) { (figure.unit.show_range(pair.theirs[0], pair.theirs[1])) }
                        @match &pair.ours {
                            Some(ours) => td.number.doubtful[!pair.cell.is_trusted()] data-sort=(sort_key(ours.median)) { (number(figure.unit, ours)) },
                            None => (absent()),
                        }
                        @match pair.ratio() {
                            Some(ratio) => td.number.doubtful[!pair.cell.is_trusted()] data-sort=(sort_key(ratio.median)) { (number(Unit::Ratio, &ratio)) },
                            None => (absent()),
                        }
                    }
                }
            }
        }
    };
    scrolled(&format!("{} of {} and its source", figure.title, table.name), &content)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_joined_by_their_parameters() {
        let parameters = |value: Value| -> Parameters { serde_json::from_value(value).unwrap() };
        let cell = parameters(json!({"load.connections": 64, "subject.kind": "myriad"}));
        for (source, expected) in [
            (json!({"load.connections": 64}), true),
            (json!({"connections": 64.0}), true),
            (json!({"connections": 65}), false),
            (json!({"connections": 64, "kind": "redis-server"}), false),
            (json!({"threads": 64}), false),
        ] {
            assert_eq!(is_same(&parameters(source.clone()), &cell), expected, "{source}");
        }
    }
}
