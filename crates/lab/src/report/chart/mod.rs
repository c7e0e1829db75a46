//! Charts as inline SVG whose colors are variables of the page.
//!
//! The library draws whole pixels, so charts are drawn at twice the display size. The sizes are
//! chosen so that a chart is as wide as a phone, with readable text, and three fit next to each
//! other on a desktop screen.

mod ink;
mod scale;

use anyhow::{Result, anyhow};
use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;

pub(crate) use ink::Ink;
pub(crate) use scale::Scale;

const WIDTH: u32 = 800;
const HEIGHT: u32 = 500;
/// The library divides text sizes by 1.24 in its output.
const FONT: f64 = 25.0 * 1.24;
const LINE_WIDTH: u32 = 4;
const MARKER: i32 = 9;
/// Space below the axis for ticks, and for ticks and a title.
const TITLED_AXIS_HEIGHT: u32 = 84;
/// Space left of the axis: a tick such as `2.5 M/s`.
const TICKS_WIDTH: u32 = 118;
/// Approximate width of a character in a label.
const CHARACTER_WIDTH: usize = 13;
const DOT_ROW_HEIGHT: usize = 38;
const DOT_LABEL_CHARS_MAX: usize = 24;

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type DrawResult = Result<(), Box<dyn std::error::Error>>;

/// Positions from 0 to 1 along a side of a chart, with its ticks.
struct Axis {
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        #[allow(clippy::cast_possible_truncation)] // clamped to the range
        let offset = (value * f64::from(end - start)).round() as i32;
        start + offset
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        0.0..1.0
    }
}

/// A line of a chart.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) ink: Ink,
    pub(crate) shape: Shape,
    /// In increasing order of `x`.
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
    /// Points without a valid measurement are hollow.
    pub(crate) is_trusted: bool,
}

/// Lines also differ in shape, because colors alone are not distinguishable for everyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Circle,
    Square,
    Diamond,
    Triangle,
    /// No markers: for lines of many points.
    None,
}

impl Shape {
    pub(crate) fn of_line(index: usize) -> Self {
        [Self::Circle, Self::Square, Self::Diamond, Self::Triangle][index % 4]
    }

    /// Corners relative to the center.
    fn corners(self) -> Vec<(i32, i32)> {
        let size = MARKER;
        match self {
            Self::Circle | Self::None => Vec::new(),
            Self::Square => vec![(-size, -size), (size, -size), (size, size), (-size, size)],
            Self::Diamond => vec![(0, -size - 3), (size + 3, 0), (0, size + 3), (-size - 3, 0)],
            Self::Triangle => vec![(0, -size - 3), (size + 2, size), (-size - 2, size)],
        }
    }
}

/// Draws lines with the confidence bands of their medians, and a legend if there are several.
pub(crate) fn lines(name: &str, x: &Scale, y: &Scale, series: &[Series]) -> Result<Markup> {
    let svg = draw(name, (WIDTH, HEIGHT), |canvas| {
        let mut plane = plane(canvas, x, y, TICKS_WIDTH)?;
        for line in series {
            draw_band(&mut plane, x, y, line)?;
        }
        for line in series {
            draw_line(&mut plane, x, y, line)?;
        }
        Ok(())
    })?;
    Ok(html! {
        (svg)
        @if series.len() > 1 { (legend(series)) }
    })
}

/// One row of dots: a value and its interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dot {
    pub(crate) label: String,
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
    pub(crate) is_trusted: bool,
}

/// Draws a row per dot, from the top; `reference` is marked by a line.
pub(crate) fn dots(name: &str, x: &Scale, dots: &[Dot], reference: Option<f64>) -> Result<Markup> {
    let count = dots.len().max(1);
    let position = |row: usize| (count_f64(count - row) - 0.5) / count_f64(count);
    let y = Rows {
        ticks: dots.iter().enumerate().map(|(row, dot)| (position(row), cut(&dot.label))).collect(),
    };
    let longest = y.ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
    let labels_width = u32::try_from(longest * CHARACTER_WIDTH + 24).unwrap_or(WIDTH / 2);
    let height = u32::try_from(count * DOT_ROW_HEIGHT)? + TITLED_AXIS_HEIGHT + 30;
    draw(name, (WIDTH, height), |canvas| {
        let mut plane = plane_of_rows(canvas, x, &y, labels_width)?;
        if let Some(value) = reference {
            let at = x.position(value);
            let style = Ink::Text.stand_in().stroke_width(2);
            plane.draw_series([PathElement::new(vec![(at, 0.0), (at, 1.0)], style)])?;
        }
        for (row, dot) in dots.iter().enumerate() {
            let at = position(row);
            let style = Ink::Series(0).stand_in().stroke_width(LINE_WIDTH);
            let interval = vec![(x.position(dot.low), at), (x.position(dot.high), at)];
            plane.draw_series([PathElement::new(interval, style)])?;
            let middle = (x.position(dot.median), at);
            draw_marker(&mut plane, middle, Shape::Circle, Ink::Series(0), dot.is_trusted)?;
        }
        Ok(())
    })
}

/// Draws thin bars from 0 to 1 without axes: the surrounding table row names them and gives their
/// range.
pub(crate) fn bars(name: &str, shares: &[f64]) -> Result<Markup> {
    const BAR_WIDTH: i32 = 14;
    const BAR_HEIGHT: i32 = 52;
    let width = u32::try_from(shares.len())? * BAR_WIDTH.unsigned_abs();
    draw(name, (width.max(1), BAR_HEIGHT.unsigned_abs()), |canvas| {
        let mut left = 0;
        for share in shares {
            let full = Rectangle::new(
                [(left, 0), (left + BAR_WIDTH - 4, BAR_HEIGHT)],
                Ink::Grid.stand_in().filled(),
            );
            canvas.draw(&full)?;
            #[allow(clippy::cast_possible_truncation)] // at most BAR_HEIGHT
            let height = (share.clamp(0.0, 1.0) * f64::from(BAR_HEIGHT)).round() as i32;
            let bar = Rectangle::new(
                [(left, BAR_HEIGHT - height), (left + BAR_WIDTH - 4, BAR_HEIGHT)],
                Ink::Series(0).stand_in().filled(),
            );
            canvas.draw(&bar)?;
            left += BAR_WIDTH;
        }
        Ok(())
    })
}

fn draw(
    name: &str,
    size: (u32, u32),
    paint: impl FnOnce(&Canvas<'_>) -> DrawResult,
) -> Result<Markup> {
    let mut svg = String::new();
    {
        let canvas = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        paint(&canvas).map_err(|error| anyhow!("draw {name}: {error}"))?;
        canvas.present().map_err(|error| anyhow!("draw {name}: {error}"))?;
    }
    Ok(inline(name, size, &svg))
}

/// Extracts the parts of an SVG file that a page needs, with the page's colors and font.
fn inline(name: &str, (width, height): (u32, u32), svg: &str) -> Markup {
    let start = svg.find('>').map_or(0, |end| end + 1);
    let content = svg[start..].trim_end().trim_end_matches("</svg>");
    let content = ink::replace_stand_ins(content)
        .replace(" opacity=\"1\"", "")
        .replace(" font-family=\"sans-serif\"", "")
        .replace(" stroke=\"none\" stroke-width=\"1\"", "")
        .replace(" stroke=\"none\"", "")
        .replace('\n', "");
    html! {
        svg viewBox=(format!("0 0 {width} {height}")) width=(width / 2) height=(height / 2)
            role="img" aria-label=(name) { (PreEscaped(content)) }
    }
}

fn plane<'a, 'b>(
    canvas: &'a Canvas<'b>,
    x: &Scale,
    y: &Scale,
    labels_width: u32,
) -> Result<Plane<'a, 'b>, Box<dyn std::error::Error>> {
    let mut plane = axes(canvas, &x.ticks, &y.ticks, labels_width)?;
    mesh(&mut plane, x, &|at| y.tick_text(*at), Lines::Horizontal)?;
    Ok(plane)
}

/// Rows of a dot chart, from the top.
struct Rows {
    ticks: Vec<(f64, String)>,
}

fn plane_of_rows<'a, 'b>(
    canvas: &'a Canvas<'b>,
    x: &Scale,
    rows: &Rows,
    labels_width: u32,
) -> Result<Plane<'a, 'b>, Box<dyn std::error::Error>> {
    let mut plane = axes(canvas, &x.ticks, &rows.ticks, labels_width)?;
    let text = |at: &f64| {
        let found = rows.ticks.iter().find(|(position, _)| (position - at).abs() < 1e-9);
        found.map(|(_, text)| text.clone()).unwrap_or_default()
    };
    mesh(&mut plane, x, &text, Lines::Vertical)?;
    Ok(plane)
}

fn axes<'a, 'b>(
    canvas: &'a Canvas<'b>,
    x_ticks: &[(f64, String)],
    y_ticks: &[(f64, String)],
    labels_width: u32,
) -> Result<Plane<'a, 'b>, Box<dyn std::error::Error>> {
    let axis = |ticks: &[(f64, String)]| Axis { ticks: ticks.iter().map(|(at, _)| *at).collect() };
    let plane = ChartBuilder::on(canvas)
        .margin_top(16)
        .margin_right(34)
        .x_label_area_size(TITLED_AXIS_HEIGHT)
        .y_label_area_size(labels_width)
        .build_cartesian_2d(axis(x_ticks), axis(y_ticks))?;
    Ok(plane)
}

/// Which grid lines to draw.
#[derive(Clone, Copy, PartialEq)]
enum Lines {
    Horizontal,
    Vertical,
}

fn mesh(
    plane: &mut Plane<'_, '_>,
    x: &Scale,
    y_text: &dyn Fn(&f64) -> String,
    grid: Lines,
) -> DrawResult {
    let x_text = |at: &f64| x.tick_text(*at);
    let label = ("sans-serif", FONT).into_font().color(&Ink::Text.stand_in());
    let mut mesh = plane.configure_mesh();
    if grid == Lines::Horizontal {
        mesh.disable_x_mesh();
    } else {
        mesh.disable_y_mesh();
    }
    mesh.axis_style(Ink::Grid.stand_in())
        .bold_line_style(Ink::Grid.stand_in().stroke_width(2))
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&x_text)
        .y_label_formatter(y_text)
        .x_desc(x.title.clone())
        .label_style(label.clone())
        .axis_desc_style(label)
        .set_all_tick_mark_size(6)
        .draw()?;
    Ok(())
}

fn draw_band(plane: &mut Plane<'_, '_>, x: &Scale, y: &Scale, line: &Series) -> DrawResult {
    let upper = line.points.iter().map(|point| (x.position(point.x), y.position(point.high)));
    let lower = line.points.iter().map(|point| (x.position(point.x), y.position(point.low)));
    let outline: Vec<(f64, f64)> = upper.chain(lower.rev()).collect();
    let has_width = line.points.iter().any(|point| point.high > point.low);
    if line.points.len() > 1 && has_width {
        plane.draw_series([Polygon::new(outline, line.ink.stand_in().mix(0.18).filled())])?;
    }
    Ok(())
}

fn draw_line(plane: &mut Plane<'_, '_>, x: &Scale, y: &Scale, line: &Series) -> DrawResult {
    let path: Vec<(f64, f64)> =
        line.points.iter().map(|point| (x.position(point.x), y.position(point.median))).collect();
    let width = if line.shape == Shape::None { LINE_WIDTH / 2 } else { LINE_WIDTH };
    let style = line.ink.stand_in().stroke_width(width);
    plane.draw_series([PathElement::new(path.clone(), style)])?;
    if line.points.len() == 1 {
        draw_whisker(plane, x, y, line, path[0].0)?;
    }
    for (point, at) in line.points.iter().zip(path) {
        draw_marker(plane, at, line.shape, line.ink, point.is_trusted)?;
    }
    Ok(())
}

/// A line with a single point has no band: its interval is vertical.
fn draw_whisker(
    plane: &mut Plane<'_, '_>,
    x: &Scale,
    y: &Scale,
    line: &Series,
    at: f64,
) -> DrawResult {
    debug_assert!((x.position(line.points[0].x) - at).abs() < 1e-9);
    let ends = vec![(at, y.position(line.points[0].low)), (at, y.position(line.points[0].high))];
    let style = line.ink.stand_in().stroke_width(LINE_WIDTH);
    plane.draw_series([PathElement::new(ends, style)])?;
    Ok(())
}

fn draw_marker(
    plane: &mut Plane<'_, '_>,
    at: (f64, f64),
    shape: Shape,
    ink: Ink,
    is_trusted: bool,
) -> DrawResult {
    let fill = if is_trusted { ink } else { Ink::Paper }.stand_in().filled();
    let edge = ink.stand_in().stroke_width(LINE_WIDTH - 1);
    if shape == Shape::Circle {
        let round = EmptyElement::at(at)
            + Circle::new((0, 0), MARKER, fill)
            + Circle::new((0, 0), MARKER, edge);
        plane.draw_series([round])?;
    } else if shape != Shape::None {
        let corners = shape.corners();
        let outline: Vec<(i32, i32)> = corners.iter().chain(corners.first()).copied().collect();
        let angular =
            EmptyElement::at(at) + Polygon::new(corners, fill) + PathElement::new(outline, edge);
        plane.draw_series([angular])?;
    }
    Ok(())
}

fn legend(series: &[Series]) -> Markup {
    html! {
        ul.legend {
            @for line in series {
                li { (key(line)) (line.label) }
            }
        }
    }
}

/// A legend entry: color, shape and name of a line.
fn key(line: &Series) -> Markup {
    let color = line.ink.css();
    // SVG elements are self-closing, unlike the page's.
    let line_mark = format!(
        "<line x1=\"2\" y1=\"14\" x2=\"46\" y2=\"14\" stroke=\"{color}\" stroke-width=\"{LINE_WIDTH}\"/>"
    );
    let points: Vec<String> =
        line.shape.corners().iter().map(|(x, y)| format!("{},{}", 24 + x, 14 + y)).collect();
    let shape_mark = match line.shape {
        Shape::None => String::new(),
        Shape::Circle => format!("<circle cx=\"24\" cy=\"14\" r=\"{MARKER}\" fill=\"{color}\"/>"),
        _ => format!("<polygon points=\"{}\" fill=\"{color}\"/>", points.join(" ")),
    };
    html! {
        svg.key viewBox="0 0 48 28" width="24" height="14" aria-hidden="true" {
            (PreEscaped(line_mark)) (PreEscaped(shape_mark))
        }
    }
}

fn cut(label: &str) -> String {
    if label.chars().count() <= DOT_LABEL_CHARS_MAX {
        return label.to_owned();
    }
    label.chars().take(DOT_LABEL_CHARS_MAX - 1).chain(['…']).collect()
}

#[allow(clippy::cast_precision_loss)]
fn count_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::number::Unit;

    fn series(label: &str) -> Series {
        let point =
            |x: f64| Point { x, low: x * 0.9, median: x, high: x * 1.1, is_trusted: x < 3.0 };
        Series {
            label: label.into(),
            ink: Ink::Series(0),
            shape: Shape::Square,
            points: vec![point(1.0), point(2.0), point(4.0)],
        }
    }

    fn drawn(series: &[Series]) -> String {
        let x = Scale::of_levels("n", &[(1.0, "1".into()), (4.0, "4".into())]);
        let y = Scale::from_zero("y", Unit::Count, [4.4].into_iter());
        lines("test", &x, &y, series).unwrap().into_string()
    }

    #[test]
    fn colours_are_the_pages_own() {
        let svg = drawn(&[series("a"), series("b")]);
        assert!(svg.contains("var(--series-0)"), "{svg}");
        assert!(svg.contains("var(--chart-grid)"), "{svg}");
        assert!(!svg.contains('#'), "{svg}");
        assert!(!svg.contains("font-family"), "{svg}");
    }

    #[test]
    fn text_is_escaped() {
        let svg = drawn(&[series("<script>"), series("b")]);
        assert!(svg.contains("&lt;script&gt;"), "{svg}");
        assert!(!svg.contains("<script>"), "{svg}");
        let dot = Dot { label: "<b>&".into(), low: 0.5, median: 1.0, high: 2.0, is_trusted: true };
        let x = Scale::logarithmic("r", Unit::Ratio, [0.5, 2.0].into_iter()).unwrap();
        let svg = dots("x", &x, &[dot], Some(1.0)).unwrap().into_string();
        assert!(svg.contains("&lt;b&gt;&amp;"), "{svg}");
    }

    #[test]
    fn doubtful_points_are_hollow() {
        let svg = drawn(&[series("a")]);
        assert_eq!(svg.matches("<polygon fill=\"var(--paper)\"").count(), 1, "{svg}");
    }

    #[test]
    fn bars_are_as_high_as_their_shares() {
        let svg = bars("r", &[1.0, 0.5, 7.0]).unwrap().into_string();
        assert!(svg.contains("height=\"26\""), "{svg}");
        assert_eq!(svg.matches("height=\"52\"").count(), 5, "{svg}");
    }
}
