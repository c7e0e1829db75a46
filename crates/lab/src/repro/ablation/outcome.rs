//! The finding of an ablation: its two key numbers, its verdict, and one row per variant.

use crate::repro::ablation::{Ablation, Expects, Role, Sample, Variant};
use crate::repro::finding::{Finding, FindingRow, Number};

/// Numbers that differ by less are considered equal.
const SAME_SHARE: f64 = 0.15;
/// Minimum ratio that counts as a gain.
const GAIN_MIN: f64 = 1.03;

/// Summarizes the samples of each variant.
///
/// # Panics
/// If a variant has no sample, or the naive or the improved one is missing.
pub(super) fn finding(ablation: &Ablation, samples: Vec<(&Variant, Vec<Sample>)>) -> Finding {
    let value_of = |role: Role| {
        let index = samples.iter().position(|(variant, _)| variant.role == role);
        index.expect("every ablation has both")
    };
    let (naive, right) = (value_of(Role::Naive), value_of(Role::Right));
    let rows: Vec<FindingRow> =
        samples.into_iter().map(|(variant, samples)| row(ablation, variant, samples)).collect();
    let (naive, right) = (rows[naive].value, rows[right].value);
    let is_reached = |row: &FindingRow| row.target.is_none_or(|target| row.value >= target);
    let agrees = agrees(ablation.expects, naive, right) && rows.iter().all(is_reached);
    Finding {
        name: ablation.name.to_owned(),
        title: ablation.title.to_owned(),
        numbers: vec![
            Number::new("naive", naive, ablation.unit),
            Number::new("right", right, ablation.unit),
        ],
        source: ablation.source.to_owned(),
        agrees,
        conclusion: ablation.conclusion.to_owned(),
        deviation_reason: if agrees { String::new() } else { ablation.deviation_reason.to_owned() },
        rows,
    }
}

/// Returns the row of a variant: the median sample with its note, and the spread.
fn row(ablation: &Ablation, variant: &Variant, mut samples: Vec<Sample>) -> FindingRow {
    samples.sort_by(|a, b| a.value.total_cmp(&b.value));
    let (low, high) = (samples[0].value, samples[samples.len() - 1].value);
    let median = samples.swap_remove(samples.len() / 2);
    FindingRow {
        variant: variant.name.clone(),
        role: name(variant.role).to_owned(),
        value: median.value,
        low,
        high,
        unit: variant.unit.unwrap_or(ablation.unit).to_owned(),
        target: variant.target,
        note: median.note,
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
        Expects::Any => true,
    }
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
            (Expects::Any, 100.0, 1.0, true),
        ] {
            assert_eq!(agrees(expects, naive, right), expected, "{expects:?} {naive} {right}");
        }
    }

    fn found(naive: f64, right: f64, target: Option<f64>) -> Finding {
        let ablation = Ablation {
            name: "d00",
            title: "A step",
            unit: "per s",
            expects: Expects::More,
            source: "1 to 2",
            conclusion: "Steps help.",
            deviation_reason: "It was not the limit.",
            variants: Vec::new,
        };
        let variant = |role| Variant::new(role, "way", |_| Ok(Sample::new(0.0)));
        let (first, second) = (variant(Role::Naive), variant(Role::Right));
        let second = Variant { target, ..second };
        let samples = |values: [f64; 3]| values.map(Sample::new).to_vec();
        let naive = samples([naive, 1.0, naive * 9.0]);
        finding(&ablation, vec![(&first, naive), (&second, samples([right; 3]))])
    }

    #[test]
    fn targets_must_be_reached() {
        assert!(found(20.0, 50.0, Some(50.0)).agrees);
        assert!(!found(20.0, 50.0, Some(60.0)).agrees);
    }

    #[test]
    fn a_finding_has_medians_the_spread_and_the_reason_of_a_difference() {
        let agreeing = found(20.0, 50.0, None);
        assert_eq!(agreeing.numbers(), "naive 20, right 50 per s");
        let naive = &agreeing.rows[0];
        assert_eq!((naive.low, naive.value, naive.high), (1.0, 20.0, 180.0));
        assert!(agreeing.agrees && agreeing.deviation_reason.is_empty());
        let differing = found(20.0, 5.0, None);
        assert!(!differing.agrees && differing.deviation_reason == "It was not the limit.");
    }
}
