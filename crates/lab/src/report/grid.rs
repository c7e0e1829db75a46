//! The varying parameters of a table, and their assignment to the axes of charts.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::report::number::Unit;

/// The parameters of one cell, by name.
pub(crate) type Parameters = BTreeMap<String, Value>;

/// Longer values are truncated in labels.
const VALUE_CHARS_MAX: usize = 48;

/// A parameter with several values in a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    /// As in the rows: `load.connections`.
    pub(crate) name: String,
    /// Display name: `connections`.
    pub(crate) label: String,
    /// Distinct values: numbers in increasing order, others in the order of the grid.
    pub(crate) values: Vec<Level>,
}

/// One value of an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Level {
    pub(crate) text: String,
    pub(crate) number: Option<f64>,
}

impl Level {
    pub(crate) fn of(value: &Value) -> Self {
        let per_second = value.pointer("/open/per_second");
        Self { text: show(value), number: per_second.unwrap_or(value).as_f64() }
    }
}

impl Axis {
    pub(crate) fn is_numeric(&self) -> bool {
        self.values.iter().all(|level| level.number.is_some())
    }

    /// Returns the index of a cell's value on the axis.
    pub(crate) fn index(&self, parameters: &Parameters) -> Option<usize> {
        let text = show(parameters.get(&self.name)?);
        self.values.iter().position(|level| level.text == text)
    }

    /// Formats `connections 64`; names are self-explanatory: `redis-server`.
    pub(crate) fn describe(&self, index: usize) -> String {
        let text = &self.values[index].text;
        if self.is_numeric() || self.values.iter().any(|level| level.text.len() < 3) {
            return format!("{} {text}", self.label);
        }
        text.clone()
    }
}

/// Returns the axes of a table: parameters with at least two values. Of parameters that vary
/// together, only the first is kept.
pub(crate) fn axes(cells: &[&Parameters]) -> Vec<Axis> {
    let mut names: Vec<&String> = cells.iter().flat_map(|cell| cell.keys()).collect();
    names.sort();
    names.dedup();
    let mut axes: Vec<Axis> = Vec::new();
    for name in names.iter().copied() {
        let axis = Axis {
            name: name.clone(),
            label: label(name, &names),
            values: levels(cells.iter().filter_map(|parameters| parameters.get(name))),
        };
        let walks_along = |other: &Axis| walk_together(other, &axis, cells);
        if axis.values.len() > 1 && !axes.iter().any(walks_along) {
            axes.push(axis);
        }
    }
    axes
}

fn levels<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    for value in values {
        let level = Level::of(value);
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    if levels.iter().all(|level| level.number.is_some()) {
        levels.sort_by(|a, b| a.number.partial_cmp(&b.number).expect("JSON has no NaN"));
    }
    levels
}

fn walk_together(a: &Axis, b: &Axis, cells: &[&Parameters]) -> bool {
    let mut pairs: Vec<(Option<usize>, Option<usize>)> =
        cells.iter().map(|parameters| (a.index(parameters), b.index(parameters))).collect();
    pairs.sort_unstable();
    pairs.dedup();
    a.values.len() == b.values.len() && pairs.len() == a.values.len()
}

/// Returns the last word of the name, or all of it if another parameter has the same last word.
pub(crate) fn label(name: &str, names: &[&String]) -> String {
    let last = last_word(name);
    let is_shared = names.iter().any(|other| *other != name && last_word(other) == last);
    let label = if is_shared { name } else { last };
    label.replace(['_', '-'], " ")
}

fn last_word(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Formats a value as a label: text without quotes, a mix by its commands, a rate as a rate.
pub(crate) fn show(value: &Value) -> String {
    let text = show_whole(value);
    if text.chars().count() <= VALUE_CHARS_MAX {
        return text;
    }
    text.chars().take(VALUE_CHARS_MAX - 1).chain(['…']).collect()
}

/// Formats a value in full, for other programs.
pub(crate) fn show_whole(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items)
            if !items.is_empty() && items.iter().all(|item| item.get("words").is_some()) =>
        {
            let commands = items.iter().filter_map(|item| item["words"].get(0)?.as_str());
            commands.collect::<Vec<_>>().join(" + ")
        }
        Value::Object(_) => match value.pointer("/open/per_second") {
            Some(rate) => Unit::PerSecond.show(rate.as_f64().unwrap_or_default()),
            None => value.to_string(),
        },
        // Whole numbers may be stored as floats.
        Value::Number(number) => {
            number.as_f64().map_or(number.to_string(), |real| real.to_string())
        }
        other => other.to_string(),
    }
}

/// Assignment of a table's axes in line charts: one horizontal axis, one chart per value of
/// `facet`, one line per combination of the rest.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) x: &'a Axis,
    pub(crate) facet: Option<&'a Axis>,
    pub(crate) lines: Vec<&'a Axis>,
}

/// With more lines in one chart, one axis is split into several charts.
const LINES_MAX: usize = 9;

/// Returns `None` without a numeric axis. The numeric axis with most values is horizontal.
pub(crate) fn layout(axes: &[Axis]) -> Option<Layout<'_>> {
    let numeric = axes.iter().filter(|axis| axis.is_numeric());
    // The last of equals, as `max_by_key` chooses: names are sorted, and subjects are last.
    let x = numeric.max_by_key(|axis| axis.values.len())?;
    let mut lines: Vec<&Axis> = axes.iter().filter(|axis| axis.name != x.name).collect();
    let count: usize = lines.iter().map(|axis| axis.values.len()).product();
    let mut facet = None;
    if count > LINES_MAX && lines.len() > 1 {
        let fewest = (0..lines.len()).min_by_key(|index| lines[*index].values.len());
        facet = fewest.map(|index| lines.remove(index));
    }
    Some(Layout { x, facet, lines })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameters(value: &Value) -> Parameters {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn axes_vary_and_those_that_walk_together_are_one() {
        let cells: Vec<Parameters> = [1, 8, 64]
            .iter()
            .flat_map(|count| {
                ["b", "a"].map(|kind| {
                    parameters(&json!({"load.users": count, "load.connections": count,
                                       "load.pipeline": 16, "subject.kind": kind}))
                })
            })
            .collect();
        let found = axes(&cells.iter().collect::<Vec<_>>());
        let labels: Vec<&str> = found.iter().map(|axis| axis.label.as_str()).collect();
        assert_eq!(labels, ["connections", "kind"]);
        assert_eq!(found[0].values.len(), 3);
        assert_eq!(found[1].values[0].text, "b");
        let layout = layout(&found).unwrap();
        assert_eq!(layout.x.label, "connections");
        assert_eq!(layout.lines[0].label, "kind");
    }

    #[test]
    fn numbers_stand_in_their_order() {
        let cells = [64, 8, 1].map(|count| parameters(&json!({"n": count})));
        let texts: Vec<String> = axes(&cells.iter().collect::<Vec<_>>())[0]
            .values
            .iter()
            .map(|level| level.text.clone())
            .collect();
        assert_eq!(texts, ["1", "8", "64"]);
    }

    #[test]
    fn values_become_labels() {
        for (value, expected) in [
            (json!("never"), "never"),
            (json!(64), "64"),
            (
                json!([{"weight": 1, "words": ["SET", "k"]}, {"weight": 1, "words": ["GET"]}]),
                "SET + GET",
            ),
            (json!({"open": {"per_second": 20_000.0, "schedule": "even"}}), "20.0 k/s"),
            (json!("x".repeat(60)), &*format!("{}…", "x".repeat(47))),
        ] {
            assert_eq!(show(&value), expected);
        }
    }

    #[test]
    fn many_lines_become_several_charts() {
        let mut cells = Vec::new();
        for threads in 0..9 {
            for connections in 0..9 {
                for kind in ["SADD", "SET"] {
                    cells.push(parameters(&json!({"t": threads, "c": connections, "k": kind})));
                }
            }
        }
        let found = axes(&cells.iter().collect::<Vec<_>>());
        let layout = layout(&found).unwrap();
        assert_eq!(layout.facet.map(|axis| axis.label.as_str()), Some("k"));
        assert_eq!(layout.lines.len(), 1);
    }
}
