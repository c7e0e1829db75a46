//! Result of an ablation: its two numbers, further observations, and its lesson.

use std::fmt::Write as _;

use serde::Serialize;

use crate::ablation::{Ablation, Expects, Role, Sample, Variant};

/// Numbers that differ by less are considered equal.
const SAME_SHARE: f64 = 0.15;
/// Minimum ratio that counts as a gain.
const GAIN_MIN: f64 = 1.03;

/// One variant, over all repeats.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) variant: String,
    /// `naive`, `right` or empty.
    pub(crate) role: &'static str,
    /// The median.
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) unit: String,
    /// Target for the median.
    pub(crate) wanted: Option<f64>,
    pub(crate) note: String,
}

impl Row {
    fn is_reached(&self) -> bool {
        self.wanted.is_none_or(|wanted| self.value >= wanted)
    }
}

/// Return value of [`Ablation::run`], for printing and as JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) naive: f64,
    pub(crate) right: f64,
    pub(crate) source: String,
    /// Whether the direction agrees with the source, and all targets are reached.
    pub(crate) agrees: bool,
    pub(crate) teaches: String,
    /// Possible reason for a different direction; empty if it agrees.
    pub(crate) otherwise: String,
    pub(crate) rows: Vec<Row>,
}

impl Outcome {
    /// # Panics
    /// If a variant has no sample, or the naive or the improved one is missing.
    pub(super) fn new(ablation: &Ablation, samples: Vec<(&Variant, Vec<Sample>)>) -> Self {
        let rows = samples.into_iter().map(|(variant, samples)| row(ablation, variant, samples));
        let rows: Vec<Row> = rows.collect();
        let of = |role: Role| {
            let found = rows.iter().find(|row| row.role == name(role));
            found.expect("every ablation has both").value
        };
        let (naive, right) = (of(Role::Naive), of(Role::Right));
        let agrees = agrees(ablation.expects, naive, right) && rows.iter().all(Row::is_reached);
        Self {
            name: ablation.name.to_owned(),
            title: ablation.title.to_owned(),
            unit: ablation.unit.to_owned(),
            naive,
            right,
            source: ablation.source.to_owned(),
            agrees,
            teaches: ablation.teaches.to_owned(),
            otherwise: if agrees { String::new() } else { ablation.otherwise.to_owned() },
            rows,
        }
    }

    /// Returns the variants that miss their target.
    pub(crate) fn missed(&self) -> Vec<String> {
        let missed = self.rows.iter().filter(|row| !row.is_reached());
        let said = |row: &Row| {
            let wanted = shown(row.wanted.unwrap_or_default());
            format!("{}, {}: {} of {wanted} {}", self.name, row.variant, shown(row.value), row.unit)
        };
        missed.map(said).collect()
    }

    /// Formats the outcome for display.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.title);
        let width = self.rows.iter().map(|row| row.variant.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            let (value, unit) = (shown(row.value), &row.unit);
            let spread = match (row.low, row.high) {
                (low, high) if low < high => format!(" [{}, {}]", shown(low), shown(high)),
                _ => String::new(),
            };
            let mut note = String::new();
            if let Some(wanted) = row.wanted {
                let missed = if row.is_reached() { "" } else { ": missed" };
                note = format!("; target {}{missed}", shown(wanted));
            }
            if !row.note.is_empty() {
                note = format!("{note}; {}", row.note);
            }
            writeln!(
                text,
                "  {:<5} {:<width$}  {value:>12} {unit}{spread}{note}",
                row.role, row.variant
            )
            .expect("writing to a String cannot fail");
        }
        let verdict = if self.agrees { "agrees" } else { "differs" };
        write!(
            text,
            "  naive {}, right {} {}; the source: {}: {verdict}\n  {}\n",
            shown(self.naive),
            shown(self.right),
            self.unit,
            self.source,
            self.teaches,
        )
        .expect("writing to a String cannot fail");
        if !self.otherwise.is_empty() {
            writeln!(text, "  Why it differs here: {}", self.otherwise)
                .expect("writing to a String cannot fail");
        }
        text
    }
}

fn row(ablation: &Ablation, variant: &Variant, mut samples: Vec<Sample>) -> Row {
    samples.sort_by(|a, b| a.value.total_cmp(&b.value));
    let middle = samples.get(samples.len() / 2).expect("every variant runs once").clone();
    let end = |sample: Option<&Sample>| sample.map_or(middle.value, |sample| sample.value);
    Row {
        variant: variant.name.clone(),
        role: name(variant.role),
        value: middle.value,
        low: end(samples.first()),
        high: end(samples.last()),
        unit: variant.unit.unwrap_or(ablation.unit).to_owned(),
        wanted: variant.least,
        note: middle.note,
    }
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Naive => "naive",
        Role::Right => "right",
        Role::Other => "",
    }
}

fn agrees(expects: Expects, naive: f64, right: f64) -> bool {
    match expects {
        Expects::More => right > naive * GAIN_MIN,
        Expects::Less => naive > right * GAIN_MIN,
        Expects::Same => (right - naive).abs() <= naive.abs() * SAME_SHARE,
        Expects::Anything => true,
    }
}

/// Formats four digits, with thousands separators.
fn shown(value: f64) -> String {
    if value.abs() < 1_000.0 {
        let decimals = match value.abs() {
            0.0 => 0,
            ..1.0 => 3,
            ..10.0 => 2,
            ..100.0 => 1,
            _ => 0,
        };
        return format!("{value:.decimals$}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_judged() {
        for (expects, naive, right, expected) in [
            (Expects::More, 100.0, 200.0, true),
            (Expects::More, 100.0, 101.0, false),
            (Expects::Less, 20.0, 0.0, true),
            (Expects::Less, 0.0, 0.0, false),
            (Expects::Same, 100.0, 90.0, true),
            (Expects::Same, 100.0, 50.0, false),
            (Expects::Anything, 100.0, 1.0, true),
        ] {
            assert_eq!(agrees(expects, naive, right), expected, "{expects:?} {naive} {right}");
        }
    }

    #[test]
    fn numbers_have_separators() {
        for (value, expected) in [
            (0.0, "0"),
            (0.1234, "0.123"),
            (12.34, "12.3"),
            (999.4, "999"),
            (1_234_567.8, "1,234,568"),
        ] {
            assert_eq!(shown(value), expected);
        }
    }

    fn outcome(naive: f64, right: f64) -> Outcome {
        outcome_with_target(naive, right, None)
    }

    fn outcome_with_target(naive: f64, right: f64, least: Option<f64>) -> Outcome {
        let ablation = Ablation {
            name: "d00",
            title: "A step",
            unit: "per s",
            expects: Expects::More,
            source: "1 to 2",
            teaches: "Steps help.",
            otherwise: "It was not the limit.",
            variants: Vec::new,
        };
        let variant = |role| Variant::new(role, "way", |_| Ok(Sample::new(0.0)));
        let (first, second) = (variant(Role::Naive), variant(Role::Right));
        let second = Variant { least, ..second };
        let samples = |values: [f64; 3]| values.map(Sample::new).to_vec();
        let naive = samples([naive, 1.0, naive * 9.0]);
        Outcome::new(&ablation, vec![(&first, naive), (&second, samples([right; 3]))])
    }

    #[test]
    fn targets_must_be_reached() {
        let reached = outcome_with_target(20.0, 50.0, Some(50.0));
        assert!(reached.agrees && reached.missed().is_empty());
        assert!(reached.text().contains("50.0 per s; target 50.0\n"), "{}", reached.text());
        let missed = outcome_with_target(20.0, 50.0, Some(60.0));
        assert!(!missed.agrees);
        assert_eq!(missed.missed(), ["d00, way: 50.0 of 60.0 per s"]);
        assert!(missed.text().contains("; target 60.0: missed\n"), "{}", missed.text());
    }

    #[test]
    fn the_text_has_both_numbers_and_the_reason() {
        let text = outcome(20.0, 50.0).text();
        assert!(
            text.contains("naive 20.0, right 50.0 per s; the source: 1 to 2: agrees"),
            "{text}"
        );
        assert!(text.contains("[1.00, 180]") && !text.contains("Why it differs"), "{text}");
        let text = outcome(20.0, 5.0).text();
        assert!(text.contains("differs\n") && text.contains("It was not the limit."), "{text}");
    }
}
