//! The page of an experiment without cells: its table, and values over its time.

use anyhow::Result;
use maud::{Markup, html};

use crate::report::chart::{self, Ink, Point, Scale, Series, Shape};
use crate::report::number::Unit;
use crate::report::plots::figure;
use crate::report::{cells, document, masthead};

/// A line of the chart.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    pub(crate) label: String,
    /// Time and value, both in nanoseconds.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Renders the page. `chart`: title and explanation.
pub(crate) fn experiment(
    title: &str,
    about: &str,
    table: &Markup,
    chart: (&str, &str),
    curves: &[Curve],
) -> Result<String> {
    let series: Vec<Series> = curves
        .iter()
        .enumerate()
        .map(|(at, curve)| {
            let point = |(x, y): &(f64, f64)| Point {
                x: *x,
                low: *y,
                median: *y,
                high: *y,
                is_trusted: true,
            };
            Series {
                label: curve.label.clone(),
                ink: Ink::of_line(at, curves.len(), false),
                shape: Shape::None,
                points: curve.points.iter().map(point).collect(),
            }
        })
        .collect();
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let x = Scale::from_zero("time", Unit::Nanoseconds, all().map(|(x, _)| *x));
    let y = Scale::from_zero("lag", Unit::Nanoseconds, all().map(|(_, y)| *y));
    let (name, explanation) = chart;
    let lines = chart::lines(name, &x, &y, &series)?;
    let content = html! {
        (masthead(title, about))
        main {
            (figure(name, explanation, &lines))
            (cells::scrolled(title, table))
        }
    };
    Ok(document(title, &content).into_string())
}
