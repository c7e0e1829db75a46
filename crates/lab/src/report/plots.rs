//! The charts of one table: figures and their axes.

use anyhow::Result;
use maud::{Markup, html};

use crate::report::chart::{self, Ink, Point, Scale, Series, Shape};
use crate::report::figure::{
    CORRECTED_P50, CORRECTED_P99, CORRECTED_P999, Figure, RAW_P99, SERVER_CPU, THROUGHPUT,
};
use crate::report::grid::{self, Axis, Layout};
use crate::report::measurement::{as_f64, exact};
use crate::report::number::Unit;
use crate::report::table::{Cell, Table};

/// Maximum number of charts of one figure, one per value of the facet axis.
const FACETS_MAX: usize = 6;
/// More lines are not distinguishable even with a ramp.
const LINES_MAX: usize = 24;
/// Maximum number of heat maps and latency curves of one figure.
const MAPS_MAX: usize = 6;
/// Maximum number of window charts.
const WINDOW_CHARTS_MAX: usize = 48;
/// Points of one line of windows; longer runs are averaged.
const WINDOW_POINTS_MAX: usize = 60;

/// Lines of a latency chart.
const LATENCIES: [(Figure, &str); 4] = [
    (CORRECTED_P50, "p50"),
    (CORRECTED_P99, "p99"),
    (CORRECTED_P999, "p99.9"),
    (RAW_P99, "p99, raw"),
];

/// Renders a chart with its title and description.
pub(crate) fn figure(title: &str, about: &str, content: &Markup) -> Markup {
    html! {
        figure {
            figcaption { b { (title) } " " span.about { (about) } }
            (content)
        }
    }
}

/// Draws throughput, CPU and latency over the varied axis, with a line per value of the others.
pub(crate) fn lines_over_axis(table: &Table) -> Result<Vec<Markup>> {
    let Some(layout) = grid::layout(&table.axes) else {
        return Ok(Vec::new());
    };
    if table.rate_axis().is_some_and(|axis| axis.name == layout.x.name) {
        return Ok(Vec::new());
    }
    let mut charts = Vec::new();
    for shown in [&THROUGHPUT, &SERVER_CPU, &CORRECTED_P99] {
        if table.has(shown) {
            charts.extend(facets(table, &layout, shown)?);
        }
    }
    Ok(charts)
}

fn facets(table: &Table, layout: &Layout<'_>, shown: &Figure) -> Result<Vec<Markup>> {
    let Some(facet) = layout.facet else {
        let chart = line_chart(table, layout, shown, None)?;
        return Ok(chart.into_iter().collect());
    };
    let mut charts = Vec::new();
    for index in 0..facet.values.len().min(FACETS_MAX) {
        charts.extend(line_chart(table, layout, shown, Some((facet, index)))?);
    }
    Ok(charts)
}

/// All charts of a figure have the same scale, so that they are comparable. Returns `None` if there
/// is nothing to draw.
fn line_chart(
    table: &Table,
    layout: &Layout<'_>,
    shown: &Figure,
    facet: Option<(&Axis, usize)>,
) -> Result<Option<Markup>> {
    let y = y_scale(table, shown);
    let levels =
        layout.x.values.iter().filter_map(|level| Some((level.number?, level.text.clone())));
    let x = Scale::of_levels(&layout.x.label, &levels.collect::<Vec<_>>());
    let in_facet = |cell: &&Cell| {
        facet.is_none_or(|(axis, index)| axis.index(&cell.parameters) == Some(index))
    };
    let groups = groups(table.cells.iter().filter(in_facet), &layout.lines);
    let is_ordered = layout.lines.len() == 1 && layout.lines[0].is_numeric();
    let drawn = groups.len().min(LINES_MAX);
    let mut series = Vec::new();
    for (index, (label, cells)) in groups.iter().take(LINES_MAX).enumerate() {
        let points = points(cells, layout.x, shown);
        if points.is_empty() {
            continue;
        }
        series.push(Series {
            label: label.clone(),
            ink: Ink::of_line(index, drawn, is_ordered),
            shape: Shape::of_line(index),
            points,
        });
    }
    if series.is_empty() {
        return Ok(None);
    }
    let mut about = format!("by {}", layout.x.label);
    if let Some((axis, index)) = facet {
        about = format!("{about}, {}", axis.describe(index));
    }
    if groups.len() > LINES_MAX {
        about = format!("{about}; {LINES_MAX} of {} lines", groups.len());
    }
    let content = chart::lines(&format!("{} {about}", shown.title), &x, &y, &series)?;
    Ok(Some(figure(shown.title, &about, &content)))
}

fn y_scale(table: &Table, shown: &Figure) -> Scale {
    let ends = || {
        let estimates = table.cells.iter().filter_map(|cell| cell.estimate(shown));
        estimates.flat_map(|estimate| [estimate.low, estimate.high])
    };
    let (least, most) =
        ends().fold((f64::MAX, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    // Latencies and costs of extreme cells would flatten all others.
    let is_wide = shown.unit == Unit::Nanoseconds && least > 0.0 && most / least > 20.0;
    let by_ratios =
        if is_wide { Scale::logarithmic(shown.title, shown.unit, ends()) } else { None };
    by_ratios.unwrap_or_else(|| Scale::from_zero(shown.title, shown.unit, ends()))
}

fn points(cells: &[&Cell], x: &Axis, shown: &Figure) -> Vec<Point> {
    let mut points: Vec<Point> = cells
        .iter()
        .filter_map(|cell| {
            let estimate = cell.estimate(shown)?;
            Some(Point {
                x: x.values[x.index(&cell.parameters)?].number?,
                low: estimate.low,
                median: estimate.median,
                high: estimate.high,
                is_trusted: cell.is_trusted(),
            })
        })
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

fn line_label(axes: &[&Axis], key: &[Option<usize>]) -> String {
    let texts = axes.iter().zip(key).filter_map(|(axis, index)| Some(axis.describe((*index)?)));
    texts.collect::<Vec<_>>().join(", ")
}

/// Draws latency against the offered rate of an open loop: a chart per combination of other axes.
pub(crate) fn latency_by_rate(table: &Table) -> Result<Vec<Markup>> {
    let Some(rate) = table.rate_axis() else {
        return Ok(Vec::new());
    };
    let others: Vec<&Axis> = table.axes.iter().filter(|axis| axis.name != rate.name).collect();
    // One scale for all charts, so that they are comparable.
    let ends = LATENCIES.iter().flat_map(|(shown, _)| {
        let estimates = table.cells.iter().filter_map(|cell| cell.estimate(shown));
        estimates.flat_map(|estimate| [estimate.low, estimate.high])
    });
    let Some(y) = Scale::logarithmic("latency", Unit::Nanoseconds, ends) else {
        return Ok(Vec::new());
    };
    let mut charts = Vec::new();
    for (label, cells) in groups(table.cells.iter(), &others).into_iter().take(MAPS_MAX) {
        charts.extend(latency_chart(&label, &cells, &y)?);
    }
    Ok(charts)
}

fn latency_chart(label: &str, cells: &[&Cell], y: &Scale) -> Result<Option<Markup>> {
    let mut series = Vec::new();
    for (index, (shown, name)) in LATENCIES.iter().enumerate() {
        let mut points: Vec<Point> =
            cells.iter().filter_map(|cell| point_by_rate(cell, shown)).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        series.push(Series {
            label: (*name).to_owned(),
            ink: Ink::of_line(index, LATENCIES.len(), false),
            shape: Shape::of_line(index),
            points,
        });
    }
    series.retain(|line| !line.points.is_empty());
    if series.is_empty() {
        return Ok(None);
    }
    let all = series.iter().flat_map(|line| &line.points);
    let x = Scale::from_zero("offered rate", Unit::PerSecond, all.map(|point| point.x));
    let about = if label.is_empty() {
        "by offered rate".to_owned()
    } else {
        format!("by offered rate, {label}")
    };
    let content = chart::lines(&format!("Latency {about}"), &x, y, &series)?;
    Ok(Some(figure("Latency", &about, &content)))
}

fn point_by_rate(cell: &Cell, shown: &Figure) -> Option<Point> {
    let estimate = cell.estimate(shown)?;
    Some(Point {
        x: cell.offered_rate()?,
        low: estimate.low,
        median: estimate.median,
        high: estimate.high,
        is_trusted: cell.is_trusted(),
    })
}

/// Groups cells by their values on some axes, with those values as labels.
fn groups<'a>(
    cells: impl Iterator<Item = &'a Cell>,
    axes: &[&Axis],
) -> Vec<(String, Vec<&'a Cell>)> {
    let mut groups: Vec<(Vec<Option<usize>>, Vec<&Cell>)> = Vec::new();
    for cell in cells {
        let key: Vec<Option<usize>> =
            axes.iter().map(|axis| axis.index(&cell.parameters)).collect();
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, cells)) => cells.push(cell),
            None => groups.push((key, vec![cell])),
        }
    }
    groups.sort_by(|(a, _), (b, _)| a.cmp(b));
    groups.into_iter().map(|(key, cells)| (line_label(axes, &key), cells)).collect()
}

/// If two axes vary: a table whose cells are colored by their values. As a table, its numbers can
/// be read, copied and processed by screen readers.
pub(crate) fn heat_maps(table: &Table) -> Vec<Markup> {
    let Some(layout) = grid::layout(&table.axes) else {
        return Vec::new();
    };
    let others = table.axes.iter().filter(|axis| axis.name != layout.x.name);
    let Some(rows) = others.max_by_key(|axis| (axis.is_numeric(), axis.values.len())) else {
        return Vec::new();
    };
    let rest: Vec<&Axis> = table
        .axes
        .iter()
        .filter(|axis| axis.name != layout.x.name && axis.name != rows.name)
        .collect();
    let mut maps = Vec::new();
    for (label, cells) in groups(table.cells.iter(), &rest).into_iter().take(MAPS_MAX) {
        for shown in [&THROUGHPUT, &SERVER_CPU] {
            if table.has(shown) {
                maps.push(heat_map(&label, &cells, rows, layout.x, shown));
            }
        }
    }
    maps
}

fn heat_map(label: &str, cells: &[&Cell], rows: &Axis, columns: &Axis, shown: &Figure) -> Markup {
    let medians = cells.iter().filter_map(|cell| cell.estimate(shown));
    let (least, most) = medians.fold((f64::MAX, f64::MIN), |(least, most), estimate| {
        (least.min(estimate.median), most.max(estimate.median))
    });
    let heat = |value: f64| if most > least { (value - least) / (most - least) } else { 0.5 };
    let cell_at = |row: usize, column: usize| {
        cells.iter().find(|cell| {
            rows.index(&cell.parameters) == Some(row)
                && columns.index(&cell.parameters) == Some(column)
        })
    };
    let mut about = format!("{} by {}", rows.label, columns.label);
    if !label.is_empty() {
        about = format!("{about}, {label}");
    }
    let content = html! {
        div.scroll tabindex="0" role="region" aria-label=(format!("{} {about}", shown.title)) {
            table.heat {
                thead { tr {
                    th scope="col" { (rows.label) }
                    @for level in &columns.values { th scope="col" { (level.text) } }
                } }
                tbody { @for (row, level) in rows.values.iter().enumerate() { tr {
                    th scope="row" { (level.text) }
                    @for column in 0..columns.values.len() {
                        @match cell_at(row, column).and_then(|cell| Some((cell, cell.estimate(shown)?))) {
                            Some((cell, estimate)) => {
                                td.doubtful[!cell.is_trusted()]
                                    style=(format!("--heat:{:.0}%", heat(estimate.median) * 100.0)) {
                                    (shown.unit.show(estimate.median))
                                }
                            }
                            None => td.absent { "–" }
                        }
                    }
                } } }
            }
        }
    };
    figure(shown.title, &about, &content)
}

/// Draws the throughput of every window of every repeat, with a chart per cell.
pub(crate) fn windows(table: &Table) -> Result<Vec<Markup>> {
    let mut charts = Vec::new();
    for cell in table.cells.iter().take(WINDOW_CHARTS_MAX) {
        charts.extend(window_chart(table, cell)?);
    }
    Ok(charts)
}

/// Returns how many cells [`windows`] omits.
pub(crate) fn windows_left_out(table: &Table) -> usize {
    table.cells.len().saturating_sub(WINDOW_CHARTS_MAX)
}

fn window_chart(table: &Table, cell: &Cell) -> Result<Option<Markup>> {
    let mut series = Vec::new();
    for (index, one) in cell.measurements.iter().filter(|one| one.has_result()).enumerate() {
        let rates = one.window_rates();
        let per_point = rates.len().div_ceil(WINDOW_POINTS_MAX).max(1);
        let point_ns = as_f64(per_point) * exact(one.row.load.window_ms) * 1e6;
        let points: Vec<Point> = rates
            .chunks_exact(per_point)
            .enumerate()
            .map(|(index, rates)| {
                let rate = rates.iter().sum::<f64>() / as_f64(per_point);
                let x = as_f64(index + 1) * point_ns;
                Point { x, low: rate, median: rate, high: rate, is_trusted: true }
            })
            .collect();
        if points.len() > 1 {
            series.push(Series {
                label: format!("repeat {}", one.row.repeat + 1),
                ink: Ink::of_line(index, cell.measurements.len(), false),
                shape: Shape::None,
                points,
            });
        }
    }
    if series.is_empty() {
        return Ok(None);
    }
    let all = || series.iter().flat_map(|line| &line.points);
    let x = Scale::from_zero("time", Unit::Nanoseconds, all().map(|point| point.x));
    let y = Scale::from_zero("throughput", Unit::PerSecond, all().map(|point| point.high));
    let about = table.describe(cell);
    let content = chart::lines(&format!("Throughput over time, {about}"), &x, &y, &series)?;
    Ok(Some(figure("Throughput over time", &about, &content)))
}
