//! Maps values to positions along an axis, and chooses ticks.

use crate::report::number::Unit;

/// Minimum distance of ticks, so that labels do not overlap.
const TICK_DISTANCE_MIN: f64 = 0.075;
/// Approximate number of ticks.
const TICKS_TARGET: f64 = 5.0;
/// Wider ranges use a logarithmic scale.
const LINEAR_RANGE_MAX: f64 = 12.0;

/// One axis: its title, the mapping of values to positions from 0 to 1, and its ticks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scale {
    pub(crate) title: String,
    kind: Kind,
    /// Position and text, in increasing order.
    pub(crate) ticks: Vec<(f64, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Linear {
        low: f64,
        high: f64,
    },
    /// The ends are logarithms.
    Logarithmic {
        low: f64,
        high: f64,
    },
}

impl Scale {
    /// From zero to slightly above the largest value.
    pub(crate) fn from_zero(title: &str, unit: Unit, values: impl Iterator<Item = f64>) -> Self {
        let high = values.fold(0.0, f64::max);
        let high = if high > 0.0 { high * 1.06 } else { 1.0 };
        let step = nice_step(high / TICKS_TARGET, unit);
        let ticks = (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= high);
        let ticks = ticks.map(|tick| (tick / high, unit.show_tick(tick))).collect();
        Self { title: title.to_owned(), kind: Kind::Linear { low: 0.0, high }, ticks }
    }

    /// Logarithmic, slightly wider than the values, which are above zero; `None` without values.
    pub(crate) fn logarithmic(
        title: &str,
        unit: Unit,
        values: impl Iterator<Item = f64>,
    ) -> Option<Self> {
        let (least, most) = ends(values.filter(|value| *value > 0.0))?;
        let margin = ((most / least).ln() * 0.04).max(0.05);
        let (low, high) = (least.ln() - margin, most.ln() + margin);
        let kind = Kind::Logarithmic { low, high };
        let ticks = round_values(low.exp(), high.exp());
        let ticks = ticks.into_iter().map(|tick| (kind.position(tick), unit.show_tick(tick)));
        Some(Self { title: title.to_owned(), kind, ticks: thin(ticks.collect()) })
    }

    /// For an axis with few values, each with a tick: logarithmic if they are far apart. `values`
    /// are in increasing order and not empty.
    pub(crate) fn of_levels(title: &str, values: &[(f64, String)]) -> Self {
        let (least, most) = (values[0].0, values[values.len() - 1].0);
        let kind = if least > 0.0 && most / least > LINEAR_RANGE_MAX {
            let margin = (most / least).ln() * 0.04;
            Kind::Logarithmic { low: least.ln() - margin, high: most.ln() + margin }
        } else {
            let margin = ((most - least) * 0.04).max(f64::EPSILON);
            Kind::Linear { low: least - margin, high: most + margin }
        };
        let ticks = values.iter().map(|(value, text)| (kind.position(*value), text.clone()));
        Self { title: title.to_owned(), kind, ticks: thin(ticks.collect()) }
    }

    /// Returns the position of a value, 0 to 1, clamped to the ends.
    pub(crate) fn position(&self, value: f64) -> f64 {
        self.kind.position(value).clamp(0.0, 1.0)
    }

    /// Returns the text of the tick at a position contained in `ticks`.
    pub(crate) fn tick_text(&self, position: f64) -> String {
        let found = self.ticks.iter().find(|(at, _)| (at - position).abs() < 1e-9);
        found.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

impl Kind {
    fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Logarithmic { low, high } => {
                (value.max(f64::MIN_POSITIVE).ln() - low) / (high - low)
            }
        }
    }
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((least, most)) => Some((value.min(least), value.max(most))),
    })
}

/// Returns 1, 2 or 5 times a power of ten, at least `least`.
fn nice_step(least: f64, unit: Unit) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = factors.into_iter().map(|factor| factor * power).find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * power);
    if unit == Unit::Count { step.max(1.0) } else { step }
}

/// Returns round values between two ends: powers of ten, or more values if these are few.
fn round_values(low: f64, high: f64) -> Vec<f64> {
    let candidates: [&[f64]; 4] = [
        &[1.0],
        &[1.0, 3.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    ];
    let mut found = Vec::new();
    for factors in candidates {
        found.clear();
        #[allow(clippy::cast_possible_truncation)] // a logarithm of a f64 is below 400
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        for exponent in first..=last {
            found.extend(factors.iter().map(|factor| factor * 10f64.powi(exponent)));
        }
        found.retain(|value| (low..=high).contains(value));
        if found.len() >= 4 {
            break;
        }
    }
    found
}

/// Removes ticks that would overlap their neighbors; keeps the first and the last.
fn thin(ticks: Vec<(f64, String)>) -> Vec<(f64, String)> {
    let Some(last) = ticks.last().cloned() else {
        return ticks;
    };
    let mut kept: Vec<(f64, String)> = Vec::new();
    for tick in ticks {
        let is_clear = kept.last().is_none_or(|before| tick.0 - before.0 >= TICK_DISTANCE_MIN);
        let is_last = tick.0 >= last.0;
        if is_clear && (is_last || last.0 - tick.0 >= TICK_DISTANCE_MIN) {
            kept.push(tick);
        }
    }
    if kept.last() != Some(&last) {
        kept.push(last);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn a_scale_from_zero_has_round_ticks() {
        let scale = Scale::from_zero("", Unit::PerSecond, [430e3, 1.3e6].into_iter());
        assert_eq!(texts(&scale), ["0", "500 k/s", "1 M/s"]);
        assert!((scale.position(0.0)).abs() < 1e-9);
        assert!(scale.position(1.3e6) > 0.9);
        let empty = Scale::from_zero("", Unit::Count, std::iter::empty());
        assert_eq!(texts(&empty), ["0", "1"]);
    }

    #[test]
    fn ratios_are_equal_distances() {
        let scale = Scale::logarithmic("", Unit::Nanoseconds, [1e4, 1e7].into_iter()).unwrap();
        assert_eq!(texts(&scale), ["10 µs", "100 µs", "1 ms", "10 ms"]);
        let step = scale.position(1e5) - scale.position(1e4);
        assert!((scale.position(1e6) - scale.position(1e5) - step).abs() < 1e-9);
        let none: [f64; 1] = [0.0];
        assert_eq!(Scale::logarithmic("", Unit::Count, none.into_iter()), None);
    }

    #[test]
    fn levels_are_ticks_and_are_thinned() {
        let levels = |values: &[u32]| -> Vec<(f64, String)> {
            values.iter().map(|value| (f64::from(*value), value.to_string())).collect()
        };
        let scale = Scale::of_levels("", &levels(&[1, 2, 4, 8, 16, 32, 64, 128, 256, 384]));
        assert_eq!(texts(&scale), ["1", "2", "4", "8", "16", "32", "64", "128", "384"]);
        let scale = Scale::of_levels("", &levels(&[7]));
        assert_eq!(texts(&scale), ["7"]);
        let scale = Scale::of_levels("", &levels(&[0, 256, 1024]));
        assert_eq!(texts(&scale), ["0", "256", "1024"]);
    }
}
