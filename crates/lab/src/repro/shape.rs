//! Statements about the shape of a table, which also apply to other machines than the original one:
//! a small closed set. Each is evaluated with intervals, so it may be true, false, or undecided.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The lowest and highest possible value of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    pub(crate) fn exactly(value: f64) -> Self {
        Self { low: value, high: value }
    }

    pub(crate) fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }

    fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, high: self.high * factor }
    }
}

/// Parameters, and the observed figures by column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub parameters: BTreeMap<String, Value>,
    pub figures: BTreeMap<String, Range>,
}

/// Truth value of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Truth {
    Holds,
    Fails,
    /// The intervals overlap.
    Undecided,
    /// There are too few figures.
    Absent,
}

impl Truth {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Truth::Holds => "yes",
            Truth::Fails => "no",
            Truth::Undecided => "undecided",
            Truth::Absent => "-",
        }
    }

    /// Fails if any part fails; holds only if all hold. Absent if empty.
    fn all(parts: impl IntoIterator<Item = Truth>) -> Truth {
        let worse = |a: Truth, b: Truth| match (a, b) {
            (Truth::Absent, other) | (other, Truth::Absent) => other,
            (Truth::Fails, _) | (_, Truth::Fails) => Truth::Fails,
            (Truth::Undecided, _) | (_, Truth::Undecided) => Truth::Undecided,
            (Truth::Holds, Truth::Holds) => Truth::Holds,
        };
        parts.into_iter().fold(Truth::Absent, worse)
    }

    fn not(self) -> Truth {
        match self {
            Truth::Holds => Truth::Fails,
            Truth::Fails => Truth::Holds,
            other => other,
        }
    }
}

/// Whether `a` is at least `b`.
fn at_least(a: Range, b: Range) -> Truth {
    if a.low >= b.high {
        Truth::Holds
    } else if a.high < b.low {
        Truth::Fails
    } else {
        Truth::Undecided
    }
}

/// The checks. Each documents the meaning of `percent`; the default is 0.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Check {
    /// The last value is above the first, and no step falls by more than `percent`.
    Rises(Line),
    /// The last value is below the first, and no step rises by more than `percent`.
    Falls(Line),
    /// The highest value is at most `percent` above the lowest.
    Flat(Line),
    /// No value is more than `percent` above the first.
    GainsNothing(Line),
    /// Some value after the best is below `percent` of it.
    Collapses(Line),
    /// No value is below `percent` of any value before it.
    Keeps(Line),
    /// At every common position each series is at least `times` the next, less `percent`.
    Order(Order),
    /// Each value is at least this.
    AtLeast(Bound),
    /// Each value is at most this.
    AtMost(Bound),
}

/// The values of a column, in the order of a parameter.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    column: String,
    along: String,
    #[serde(default, rename = "where")]
    points: BTreeMap<String, Value>,
    from: Option<f64>,
    to: Option<f64>,
    #[serde(default)]
    percent: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    series: Vec<Series>,
    /// `None`: there is only one position.
    along: Option<String>,
    from: Option<f64>,
    to: Option<f64>,
    #[serde(default = "once")]
    times: f64,
    #[serde(default)]
    percent: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Series {
    column: String,
    #[serde(default, rename = "where")]
    points: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bound {
    column: String,
    #[serde(default, rename = "where")]
    points: BTreeMap<String, Value>,
    value: f64,
}

fn once() -> f64 {
    1.0
}

/// Selects values from the points.
#[derive(Clone, Copy)]
struct Selection<'check> {
    column: &'check str,
    along: Option<&'check str>,
    wanted: &'check BTreeMap<String, Value>,
    from: Option<f64>,
    to: Option<f64>,
}

impl Check {
    /// Evaluates the statement for `points`, given in any order.
    pub(crate) fn judge(&self, points: &[Point]) -> Truth {
        match self {
            Check::Rises(line) => rises(&line.values(points), line.percent),
            Check::Falls(line) => falls(&line.values(points), line.percent),
            Check::Flat(line) => flat(&line.values(points), line.percent),
            Check::GainsNothing(line) => gains_nothing(&line.values(points), line.percent),
            Check::Collapses(line) => collapses(&line.values(points), line.percent),
            Check::Keeps(line) => keeps(&line.values(points), line.percent),
            Check::Order(order) => order.judge(points),
            Check::AtLeast(bound) => bound.judge(points, at_least),
            Check::AtMost(bound) => bound.judge(points, |value, limit| at_least(limit, value)),
        }
    }

    /// Returns the columns that it refers to.
    #[cfg(test)]
    pub(crate) fn columns(&self) -> Vec<&str> {
        match self {
            Check::Rises(line)
            | Check::Falls(line)
            | Check::Flat(line)
            | Check::GainsNothing(line)
            | Check::Collapses(line)
            | Check::Keeps(line) => vec![&line.column],
            Check::Order(order) => {
                order.series.iter().map(|series| series.column.as_str()).collect()
            }
            Check::AtLeast(bound) | Check::AtMost(bound) => vec![&bound.column],
        }
    }
}

impl Line {
    fn values(&self, points: &[Point]) -> Vec<Range> {
        let Line { column, along, points: wanted, from, to, .. } = self;
        let along = Some(along.as_str());
        let selection = Selection { column, along, wanted, from: *from, to: *to };
        placed(points, selection).into_iter().map(|(_, value)| value).collect()
    }
}

impl Order {
    fn judge(&self, points: &[Point]) -> Truth {
        let lines: Vec<Vec<(f64, Range)>> =
            self.series.iter().map(|series| placed(points, self.selection(series))).collect();
        let factor = self.times * (1.0 - self.percent / 100.0);
        Truth::all(lines.windows(2).flat_map(|pair| {
            pair[0].iter().filter_map(move |(place, above)| {
                let (_, below) = pair[1].iter().find(|(other, _)| same_number(*other, *place))?;
                Some(at_least(*above, below.times(factor)))
            })
        }))
    }

    fn selection<'check>(&'check self, series: &'check Series) -> Selection<'check> {
        let Series { column, points: wanted } = series;
        Selection { column, along: self.along.as_deref(), wanted, from: self.from, to: self.to }
    }
}

impl Bound {
    fn judge(&self, points: &[Point], compare: fn(Range, Range) -> Truth) -> Truth {
        let limit = Range::exactly(self.value);
        let chosen = points.iter().filter(|point| matches(&self.points, &point.parameters));
        let values = chosen.filter_map(|point| point.figures.get(&self.column));
        Truth::all(values.map(|value| compare(*value, limit)))
    }
}

/// Whether `parameters` contains all of `wanted`.
pub(super) fn matches(
    wanted: &BTreeMap<String, Value>,
    parameters: &BTreeMap<String, Value>,
) -> bool {
    wanted.iter().all(|(name, value)| parameters.get(name).is_some_and(|found| same(found, value)))
}

/// Compares values; numbers by their value, not their notation.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => same_number(a, b),
        _ => a == b,
    }
}

fn same_number(a: f64, b: f64) -> bool {
    a.total_cmp(&b).is_eq()
}

/// Returns positions and values, in the order of the positions.
fn placed(points: &[Point], selection: Selection<'_>) -> Vec<(f64, Range)> {
    let Selection { column, along, wanted, from, to } = selection;
    let chosen = points.iter().filter(|point| matches(wanted, &point.parameters));
    let place = |point: &Point| match along {
        Some(along) => point.parameters.get(along)?.as_f64(),
        None => Some(0.0),
    };
    let mut placed: Vec<(f64, Range)> = chosen
        .filter_map(|point| Some((place(point)?, *point.figures.get(column)?)))
        .filter(|(place, _)| from.is_none_or(|from| *place >= from))
        .filter(|(place, _)| to.is_none_or(|to| *place <= to))
        .collect();
    placed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    placed
}

/// Only certain results count: if the last value may be no more than the first, the result is
/// undecided.
fn above(a: Range, b: Range) -> Truth {
    at_least(b, a).not()
}

fn rises(values: &[Range], percent: f64) -> Truth {
    let [first, .., last] = values else { return Truth::Absent };
    let kept = 1.0 - percent / 100.0;
    let falls =
        values.windows(2).any(|pair| at_least(pair[1], pair[0].times(kept)) == Truth::Fails);
    if falls { Truth::Fails } else { above(*last, *first) }
}

fn falls(values: &[Range], percent: f64) -> Truth {
    let [first, .., last] = values else { return Truth::Absent };
    let allowed = 1.0 + percent / 100.0;
    let rises =
        values.windows(2).any(|pair| at_least(pair[0].times(allowed), pair[1]) == Truth::Fails);
    if rises { Truth::Fails } else { above(*first, *last) }
}

fn flat(values: &[Range], percent: f64) -> Truth {
    let allowed = 1.0 + percent / 100.0;
    let indices = 0..values.len();
    let pairs = indices.clone().flat_map(|low| indices.clone().map(move |high| (low, high)));
    // However wide its interval, a value is not different from itself.
    let pairs = pairs.filter(|(low, high)| low != high);
    Truth::all(pairs.map(|(low, high)| at_least(values[low].times(allowed), values[high])))
}

fn gains_nothing(values: &[Range], percent: f64) -> Truth {
    let Some((first, rest)) = values.split_first() else { return Truth::Absent };
    let most = first.times(1.0 + percent / 100.0);
    Truth::all(rest.iter().map(|value| at_least(most, *value)))
}

fn collapses(values: &[Range], percent: f64) -> Truth {
    let middle = |index: &usize| values[*index].middle();
    let best = (0..values.len()).max_by(|a, b| middle(a).total_cmp(&middle(b)));
    let Some(best) = best.filter(|_| values.len() > 1) else { return Truth::Absent };
    let limit = values[best].times(percent / 100.0);
    let stays = values[best + 1..].iter().map(|value| at_least(*value, limit));
    match Truth::all(stays) {
        Truth::Absent => Truth::Fails,
        judged => judged.not(),
    }
}

fn keeps(values: &[Range], percent: f64) -> Truth {
    let part = percent / 100.0;
    let later = |index: usize| {
        let limit = values[index].times(part);
        Truth::all(values[index + 1..].iter().map(|value| at_least(*value, limit)))
    };
    Truth::all((0..values.len()).map(later))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_of(text: &str) -> Check {
        #[derive(Deserialize)]
        struct Holder {
            check: Check,
        }
        let holder: Holder = toml::from_str(&format!("check.{text}\n")).unwrap();
        holder.check
    }

    fn point(x: f64, name: &str, value: Range) -> Point {
        let parameters = BTreeMap::from([("x".into(), json!(x)), ("name".into(), json!(name))]);
        Point { parameters, figures: BTreeMap::from([("y".into(), value)]) }
    }

    fn exact(values: &[f64]) -> Vec<Range> {
        values.iter().copied().map(Range::exactly).collect()
    }

    /// Values plus or minus a tenth.
    fn vague(values: &[f64]) -> Vec<Range> {
        values.iter().map(|value| Range { low: value * 0.9, high: value * 1.1 }).collect()
    }

    /// At x = 1, 2, 4, ..., given in reverse.
    #[track_caller]
    fn check(text: &str, values: &[Range], expected: Truth) {
        let mut x = 0.5;
        let mut points: Vec<Point> = values
            .iter()
            .map(|value| {
                x *= 2.0;
                point(x, "a", *value)
            })
            .collect();
        points.reverse();
        assert_eq!(check_of(text).judge(&points), expected, "{text}");
    }

    const RISES: &str = r#"rises = { column = "y", along = "x", percent = 5 }"#;

    #[test]
    fn rising() {
        check(RISES, &exact(&[1.0, 2.0, 3.0]), Truth::Holds);
        check(RISES, &exact(&[1.0, 2.0, 1.95, 3.0]), Truth::Holds);
        check(RISES, &exact(&[1.0, 2.0, 1.5, 3.0]), Truth::Fails);
        check(RISES, &exact(&[2.0, 2.0]), Truth::Fails);
        check(RISES, &exact(&[3.0, 2.0, 1.0]), Truth::Fails);
        check(RISES, &vague(&[1.0, 2.0, 3.0]), Truth::Holds);
        check(RISES, &vague(&[1.0, 1.1]), Truth::Undecided);
        check(RISES, &exact(&[1.0]), Truth::Absent);
        check(RISES, &[], Truth::Absent);
    }

    #[test]
    fn falling() {
        let falls = r#"falls = { column = "y", along = "x", percent = 5 }"#;
        check(falls, &exact(&[3.0, 2.0, 1.0]), Truth::Holds);
        check(falls, &exact(&[3.0, 2.0, 2.05, 1.0]), Truth::Holds);
        check(falls, &exact(&[3.0, 1.0, 2.0]), Truth::Fails);
        check(falls, &exact(&[1.0, 2.0, 3.0]), Truth::Fails);
        check(falls, &vague(&[1.1, 1.0]), Truth::Undecided);
    }

    #[test]
    fn being_flat() {
        let flat = r#"flat = { column = "y", along = "x", percent = 10 }"#;
        check(flat, &exact(&[100.0, 109.0, 101.0]), Truth::Holds);
        check(flat, &exact(&[100.0, 111.0]), Truth::Fails);
        check(flat, &exact(&[111.0, 105.0, 100.0]), Truth::Fails);
        check(flat, &vague(&[100.0, 105.0]), Truth::Undecided);
        check(flat, &vague(&[100.0, 300.0]), Truth::Fails);
        check(flat, &exact(&[100.0]), Truth::Absent);
    }

    #[test]
    fn gaining_nothing() {
        let nothing = r#"gains_nothing = { column = "y", along = "x", percent = 10 }"#;
        check(nothing, &exact(&[100.0, 60.0, 109.0]), Truth::Holds);
        check(nothing, &exact(&[100.0, 60.0, 120.0]), Truth::Fails);
        check(nothing, &vague(&[100.0, 105.0]), Truth::Undecided);
        check(nothing, &exact(&[100.0]), Truth::Absent);
    }

    #[test]
    fn collapsing() {
        let collapses = r#"collapses = { column = "y", along = "x", percent = 50 }"#;
        check(collapses, &exact(&[60.0, 100.0, 30.0, 90.0]), Truth::Holds);
        check(collapses, &exact(&[30.0, 100.0, 60.0]), Truth::Fails);
        check(collapses, &exact(&[30.0, 60.0, 100.0]), Truth::Fails);
        check(collapses, &vague(&[100.0, 52.0]), Truth::Undecided);
        check(collapses, &exact(&[100.0]), Truth::Absent);
    }

    #[test]
    fn keeping() {
        let keeps = r#"keeps = { column = "y", along = "x", percent = 90 }"#;
        check(keeps, &exact(&[60.0, 100.0, 95.0, 91.0]), Truth::Holds);
        check(keeps, &exact(&[60.0, 100.0, 89.0, 100.0]), Truth::Fails);
        check(keeps, &vague(&[100.0, 95.0]), Truth::Undecided);
        check(keeps, &exact(&[100.0]), Truth::Absent);
    }

    #[test]
    fn order() {
        let order = check_of(
            r#"order = { series = [{ column = "y", where = { name = "a" } }, { column = "y", where = { name = "b" } }], along = "x", from = 2, times = 2 }"#,
        );
        let judge = |a: &[f64], b: &[f64]| {
            let at = |name: &'static str, values: &[f64]| {
                let places = [1.0, 2.0, 3.0, 4.0];
                let points = places.iter().zip(values.to_vec());
                points
                    .map(|(x, value)| point(*x, name, Range::exactly(value)))
                    .collect::<Vec<Point>>()
            };
            order.judge(&[at("b", b), at("a", a)].concat())
        };
        assert_eq!(judge(&[1.0, 4.0, 9.0], &[1.0, 2.0, 3.0]), Truth::Holds);
        assert_eq!(judge(&[9.0, 4.0, 5.0], &[1.0, 2.0, 3.0]), Truth::Fails);
        // Only common positions count, from 2 on.
        assert_eq!(judge(&[9.0, 4.0], &[9.0, 2.0, 3.0, 4.0]), Truth::Holds);
        assert_eq!(judge(&[9.0], &[1.0]), Truth::Absent);
    }

    #[test]
    fn order_of_vague_values_may_be_open() {
        let order = check_of(
            r#"order = { series = [{ column = "y", where = { name = "a" } }, { column = "y", where = { name = "b" } }], along = "x", percent = 5 }"#,
        );
        let pair = |a: f64, b: f64| {
            let values = vague(&[a, b]);
            order.judge(&[point(1.0, "a", values[0]), point(1.0, "b", values[1])])
        };
        assert_eq!(pair(2.0, 1.0), Truth::Holds);
        assert_eq!(pair(1.0, 1.0), Truth::Undecided);
        assert_eq!(pair(1.0, 2.0), Truth::Fails);
    }

    #[test]
    fn bounds() {
        let floor = r#"at_least = { column = "y", where = { name = "a" }, value = 10 }"#;
        check(floor, &exact(&[10.0, 12.0]), Truth::Holds);
        check(floor, &exact(&[9.0, 12.0]), Truth::Fails);
        check(floor, &vague(&[10.5, 20.0]), Truth::Undecided);
        check(r#"at_least = { column = "z", value = 10 }"#, &exact(&[10.0]), Truth::Absent);
        let ceiling = r#"at_most = { column = "y", value = 10 }"#;
        check(ceiling, &exact(&[9.0, 10.0]), Truth::Holds);
        check(ceiling, &exact(&[9.0, 11.0]), Truth::Fails);
        check(ceiling, &vague(&[9.5]), Truth::Undecided);
    }

    #[test]
    fn order_without_places() {
        let order = check_of(
            r#"order = { series = [{ column = "y", where = { name = "a" } }, { column = "y", where = { name = "b" } }] }"#,
        );
        let at = |name: &str, value: f64| point(value, name, Range::exactly(value));
        assert_eq!(order.judge(&[at("a", 2.0), at("b", 1.0)]), Truth::Holds);
        assert_eq!(order.judge(&[at("a", 1.0), at("b", 2.0)]), Truth::Fails);
    }

    #[test]
    fn parameters_are_compared_by_value() {
        assert!(same(&json!(1), &json!(1.0)));
        assert!(!same(&json!(1), &json!("1")));
        assert!(same(&json!("a"), &json!("a")));
        let one = BTreeMap::from([("x".into(), json!(1))]);
        assert!(!matches(&one, &BTreeMap::new()));
        assert!(matches(&BTreeMap::new(), &one));
    }

    #[test]
    fn unknown_words_are_refused() {
        let parse = |text: &str| toml::from_str::<Check>(text);
        assert!(parse("grows = { column = \"y\" }").is_err());
        assert!(parse("at_least = { column = \"y\", value = 1, along = \"x\" }").is_err());
    }
}
