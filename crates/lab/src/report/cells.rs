//! The tables of one experiment: its cells, its reactors, every measurement.

use std::collections::BTreeSet;

use anyhow::Result;
use maud::{Markup, html};

use crate::report::chart;
use crate::report::facts;
use crate::report::figure::{
    CLIENT_CPU, CORRECTED_P50, CORRECTED_P99, CORRECTED_P999, FIGURES, Figure, MAX_OVER_MEAN,
    RAW_P50, RAW_P99, RAW_P999, REACTORS_BUSY, SERVER_CPU, THROUGHPUT, of_any_load,
};
use crate::report::measurement::{Measurement, Workers};
use crate::report::number::Unit;
use crate::report::table::{Cell, Table};
use crate::row::Verdict;
use crate::stats::{self, Estimate};

/// Maximum ratio of the busiest reactor to the mean for balanced reactors.
const BALANCED_MAX: f64 = 1.15;
/// More bars are not distinguishable.
const BARS_MAX: usize = 64;

/// Wraps a table so that it scrolls on narrow screens, also by keyboard.
pub(crate) fn scrolled(label: &str, table: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label=(label) { (table) } }
}

/// Formats median, interval and count: `1.02 M/s [0.98, 1.05] 3`.
pub(crate) fn number(unit: Unit, estimate: &Estimate) -> Markup {
    html! {
        span.median { (unit.show(estimate.median)) }
        " "
        span.interval {
            @if estimate.count > 1 {
                (unit.show_interval(estimate.median, estimate.low, estimate.high)) " "
            }
            "n " (estimate.count)
        }
    }
}

/// A row per cell: its figures and its verdict.
pub(crate) fn cells(table: &Table) -> Markup {
    let has = |figure: &&Figure| table.has(figure);
    let single: Vec<&Figure> = [&THROUGHPUT, &SERVER_CPU].into_iter().filter(has).collect();
    let corrected: Vec<&Figure> =
        [&CORRECTED_P50, &CORRECTED_P99, &CORRECTED_P999].into_iter().filter(has).collect();
    let raw: Vec<&Figure> = [&RAW_P50, &RAW_P99, &RAW_P999].into_iter().filter(has).collect();
    let has_reactors = table.has(&REACTORS_BUSY);
    let has_client = table.has(&CLIENT_CPU);
    let content = html! {
        table.sortable {
            thead {
                tr {
                    th.sorts rowspan="2" scope="col" { (table.axis_labels()) }
                    @for figure in &single {
                        th.sorts.number rowspan="2" scope="col" { (figure.title) }
                    }
                    @if !corrected.is_empty() {
                        th.group colspan=(corrected.len()) scope="colgroup" { "Latency, corrected" }
                    }
                    @if !raw.is_empty() {
                        th.group colspan=(raw.len()) scope="colgroup" { "Latency, raw" }
                    }
                    @if has_reactors {
                        th.sorts.number rowspan="2" scope="col" { "Reactors busy" }
                        th.sorts.number rowspan="2" scope="col" { "Max / mean" }
                    }
                    @if has_client { th.sorts.number rowspan="2" scope="col" { "Client CPU" } }
                    th.sorts rowspan="2" scope="col" { "Verdict" }
                }
                tr {
                    @for figure in corrected.iter().chain(&raw) {
                        th.sorts.number scope="col" { (short_title(figure)) }
                    }
                }
            }
            tbody {
                @for cell in &table.cells {
                    tr.doubtful[!cell.is_trusted()] {
                        th scope="row" data-sort=(cell.number) { (table.describe(cell)) }
                        @for figure in single.iter().chain(&corrected).chain(&raw) {
                            (number_cell(cell, figure))
                        }
                        @if has_reactors {
                            (busy_cell(cell))
                            (number_cell(cell, &MAX_OVER_MEAN))
                        }
                        @if has_client { (number_cell(cell, &CLIENT_CPU)) }
                        (verdict_cell(cell))
                    }
                }
            }
        }
    };
    scrolled(&format!("Cells of {}", table.name), &content)
}

/// A row per cell and additional load; `None` if there are none.
pub(crate) fn side_loads(table: &Table) -> Option<Markup> {
    let names = |cell: &Cell| -> BTreeSet<String> {
        cell.measurements.iter().flat_map(|one| one.side_loads.keys().cloned()).collect()
    };
    if table.cells.iter().all(|cell| names(cell).is_empty()) {
        return None;
    }
    let figures = || of_any_load().filter(|figure| figure.unit != Unit::Count);
    let content = html! {
        table.sortable {
            thead { tr {
                th.sorts scope="col" { (table.axis_labels()) }
                th.sorts scope="col" { "Load" }
                @for figure in figures() { th.sorts.number scope="col" { (figure.title) } }
            } }
            tbody {
                @for cell in &table.cells {
                    @for name in names(cell) {
                        tr.doubtful[!cell.is_trusted()] {
                            th scope="row" data-sort=(cell.number) { (table.describe(cell)) }
                            td { (name) }
                            @for figure in figures() { (side_load_cell(cell, &name, figure)) }
                        }
                    }
                }
            }
        }
    };
    Some(scrolled(&format!("Additional loads of {}", table.name), &content))
}

fn side_load_cell(cell: &Cell, name: &str, figure: &Figure) -> Markup {
    let of_load = cell.counted().filter_map(|one| one.side_loads.get(name));
    let values: Vec<f64> = of_load.filter_map(figure.of).collect();
    if values.is_empty() {
        return absent();
    }
    let estimate = stats::median_interval(&values);
    html! { td.number data-sort=(sort_key(estimate.median)) { (number(figure.unit, &estimate)) } }
}

/// Shortens `Latency p99` to `p99`, below a common heading.
fn short_title(figure: &Figure) -> &'static str {
    figure.title.rsplit(' ').next().unwrap_or(figure.title)
}

fn number_cell(cell: &Cell, figure: &Figure) -> Markup {
    let Some(estimate) = cell.estimate(figure) else {
        return absent();
    };
    html! { td.number data-sort=(sort_key(estimate.median)) { (number(figure.unit, &estimate)) } }
}

/// Formats a number for the page's script, with the precision needed for sorting.
pub(crate) fn sort_key(value: f64) -> String {
    format!("{value:.4e}")
}

/// Placeholder for a missing figure.
pub(crate) fn absent() -> Markup {
    html! { td.number.absent data-sort="" { "–" } }
}

fn busy_cell(cell: &Cell) -> Markup {
    let total = cell.typical().and_then(Measurement::reactors).map(|workers| workers.shares.len());
    let (Some(busy), Some(total)) = (cell.estimate(&REACTORS_BUSY), total) else {
        return absent();
    };
    html! { td.number data-sort=(busy.median) { (busy.median) " of " (total) } }
}

fn verdict_cell(cell: &Cell) -> Markup {
    let ok_count = cell.measurements.iter().filter(|one| one.is_ok()).count();
    let count = cell.measurements.len();
    let doubts = cell.doubts();
    html! {
        td.verdict data-sort=(count - ok_count) {
            @if doubts.is_empty() {
                span.chip.ok { "ok" }
            } @else {
                @if ok_count > 0 { span.chip.ok { "ok " (ok_count) " of " (count) } " " }
                @for (verdict, reason) in doubts {
                    span.chip.bad { (verdict.name()) }
                    @if !reason.is_empty() { span.reason { (reason) } }
                }
            }
        }
    }
}

/// The distribution of work over the reactors, cell by cell; `None` without reactors.
pub(crate) fn reactors(table: &Table) -> Result<Option<Markup>> {
    let mut rows = Vec::new();
    let mut most = 0;
    for cell in &table.cells {
        let Some(one) = cell.typical() else { continue };
        let Some(workers) = one.reactors() else { continue };
        most = most.max(workers.shares.len());
        rows.push(reactor_row(table, cell, one, &workers)?);
    }
    if most < 2 {
        return Ok(None);
    }
    let content = html! {
        table.sortable {
            thead { tr {
                th.sorts scope="col" { (table.axis_labels()) }
                th scope="col" { "CPU of each reactor" }
                th.sorts.number scope="col" { "Busy" }
                th.sorts.number scope="col" { "Expected by hashing" }
                th.sorts.number scope="col" { "Least" }
                th.sorts.number scope="col" { "Most" }
                th.sorts.number scope="col" { "Max / mean" }
                th scope="col" { "Remark" }
            } }
            tbody { @for row in rows { (row) } }
        }
    };
    Ok(Some(scrolled(&format!("Reactors of {}", table.name), &content)))
}

fn reactor_row(table: &Table, cell: &Cell, one: &Measurement, workers: &Workers) -> Result<Markup> {
    let name = table.describe(cell);
    let total = workers.shares.len();
    let least = workers.shares.iter().copied().fold(f64::MAX, f64::min);
    let most = workers.shares.iter().copied().fold(0.0, f64::max);
    let shown = &workers.shares[..total.min(BARS_MAX)];
    let bars = chart::bars(&format!("CPU of each reactor, {name}"), shown)?;
    let expected = connections(one).map(|count| stats::balls_in_bins(total, count));
    let show = |value: Option<f64>, unit: Unit| {
        let text = value.map_or("–".to_owned(), |value| unit.show(value));
        let sort = value.map(|value| value.to_string()).unwrap_or_default();
        html! { td.number data-sort=(sort) { (text) } }
    };
    Ok(html! {
        tr.doubtful[!cell.is_trusted()] {
            th scope="row" data-sort=(cell.number) { (name) }
            td.bars { (bars) @if total > BARS_MAX { " first " (BARS_MAX) } }
            td.number data-sort=(workers.busy_count) { (workers.busy_count) " of " (total) }
            (show(expected.filter(|_| total > 1), Unit::Count))
            (show(Some(least), Unit::Share))
            (show(Some(most), Unit::Share))
            (show(workers.max_over_mean, Unit::Ratio))
            td { (remark(workers)) }
        }
    })
}

fn remark(workers: &Workers) -> String {
    match workers.max_over_mean {
        None => "idle".to_owned(),
        Some(_) if workers.shares.len() == 1 => "one reactor".to_owned(),
        Some(ratio) if ratio < BALANCED_MAX => "balanced".to_owned(),
        Some(_) => "unbalanced".to_owned(),
    }
}

fn connections(one: &Measurement) -> Option<usize> {
    match &one.row.load.work {
        crate::load::Work::Socket(work) => Some(work.connections),
        crate::load::Work::Append(_) => None,
    }
}

/// Every measurement of a table, one row each, with all figures that occur in any of them.
pub(crate) fn measurements(table: &Table) -> Markup {
    let figures: Vec<&Figure> = FIGURES.iter().filter(|figure| table.has(figure)).collect();
    let mut counters: Vec<&String> =
        table.measurements().flat_map(|one| one.row.counters.keys()).collect();
    counters.sort();
    counters.dedup();
    let content = html! {
        table.sortable.small {
            thead { tr {
                th.sorts scope="col" { (table.axis_labels()) }
                th.sorts.number scope="col" { "Repeat" }
                @for figure in &figures { th.sorts.number scope="col" { (figure.title) } }
                @for counter in &counters { th.sorts.number scope="col" { (counter) " / op" } }
                th.sorts scope="col" { "Verdict" }
            } }
            tbody {
                @for cell in &table.cells { @for one in &cell.measurements {
                    tr.doubtful[!one.is_ok()] title=(facts::parameters(&one.row)) {
                        th scope="row" data-sort=(cell.number) { (table.describe(cell)) }
                        td.number data-sort=(one.row.repeat) { (one.row.repeat + 1) }
                        @for figure in &figures { (single_cell(one, figure)) }
                        @for counter in &counters {
                            @match one.row.counters.get(*counter) {
                                Some(value) => td.number data-sort=(sort_key(*value)) { (Unit::Count.show(*value)) },
                                None => (absent()),
                            }
                        }
                        (single_verdict(one))
                    }
                } }
            }
        }
    };
    scrolled(&format!("Measurements of {}", table.name), &content)
}

fn single_cell(one: &Measurement, figure: &Figure) -> Markup {
    let value = one.has_result().then(|| (figure.of)(one)).flatten();
    let Some(value) = value else {
        return absent();
    };
    html! { td.number data-sort=(sort_key(value)) { (figure.unit.show(value)) } }
}

/// Rows of any experiments, in the given order.
pub(crate) fn last_rows(rows: &[&Measurement]) -> Markup {
    let figures = [&THROUGHPUT, &SERVER_CPU, &CORRECTED_P50, &CORRECTED_P99];
    let content = html! {
        table.flat {
            thead { tr {
                th scope="col" { "Experiment" }
                th scope="col" { "Cell" }
                th.number scope="col" { "Repeat" }
                @for figure in figures { th.number scope="col" { (figure.title) } }
                th scope="col" { "Verdict" }
            } }
            tbody {
                @for one in rows {
                    tr.doubtful[!one.is_ok()] {
                        th scope="row" { (one.row.table) }
                        td.parameters { (facts::parameters(&one.row)) }
                        td.number { (one.row.repeat + 1) }
                        @for figure in figures { (single_cell(one, figure)) }
                        (single_verdict(one))
                    }
                }
            }
        }
    };
    scrolled("Last rows", &content)
}

fn single_verdict(one: &Measurement) -> Markup {
    let name = one.row.verdict.name();
    html! {
        td.verdict data-sort=(name) {
            span.chip.ok[one.is_ok()].bad[!one.is_ok()] { (name) }
            @if !one.row.reasons.is_empty() {
                span.reason { (one.row.reasons.join("; ")) }
            }
        }
    }
}

/// The number of valid measurements, and the problems of the others.
pub(crate) fn verdicts(table: &Table) -> Markup {
    html! {
        ul.verdicts {
            @for (verdict, count) in table.verdicts() {
                li {
                    span.chip.ok[verdict == Verdict::Ok].bad[verdict != Verdict::Ok] {
                        (count) " " (verdict.name())
                    }
                }
            }
        }
    }
}
