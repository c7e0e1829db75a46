//! Number formatting: three significant digits and a suitable unit.

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    PerSecond,
    Nanoseconds,
    Bytes,
    /// A fraction, displayed in percent.
    Share,
    /// A factor.
    Ratio,
}

/// Divisor and name of a step of a unit, in increasing order.
type Step = (f64, &'static str);

/// A value that would be displayed as 1000 uses the next step.
const STEP_FULL: f64 = 0.9995;

impl Unit {
    /// Steps with a factor of a thousand; the first is also used for smaller values.
    fn steps(self) -> &'static [Step] {
        match self {
            Self::Count => &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")],
            Self::PerSecond => &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")],
            Self::Nanoseconds => &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")],
            Self::Bytes => {
                &[(1.0, "B"), (1024.0, "KiB"), (1_048_576.0, "MiB"), (1_073_741_824.0, "GiB")]
            }
            Self::Share => &[(0.01, "%")],
            Self::Ratio => &[(1.0, "×")],
        }
    }

    fn step(self, value: f64) -> Step {
        let fits = |step: &&Step| value.abs() >= step.0 * STEP_FULL;
        let steps = self.steps();
        *steps.iter().rev().find(fits).unwrap_or(&steps[0])
    }

    /// Formats `1.02 M/s`.
    pub(crate) fn show(self, value: f64) -> String {
        self.show_as(value, self.step(value))
    }

    /// Formats the ends of an interval in the unit of its middle, which precedes it: `[0.98,
    /// 1.05]`.
    pub(crate) fn show_interval(self, middle: f64, low: f64, high: f64) -> String {
        let (divisor, _) = self.step(middle);
        format!("[{}, {}]", digits(low / divisor), digits(high / divisor))
    }

    /// Formats minimum and maximum: `5.76 to 7.04 k/s`.
    pub(crate) fn show_range(self, low: f64, high: f64) -> String {
        if low >= high {
            return self.show(high);
        }
        format!("{} to {}", digits(low / self.step(high).0), self.show(high))
    }

    /// Formats the round values of an axis: `500 k/s`.
    pub(crate) fn show_tick(self, value: f64) -> String {
        if value == 0.0 {
            return "0".to_owned();
        }
        let (divisor, name) = self.step(value);
        let number = format!("{:.2}", value / divisor);
        let number = number.trim_end_matches('0').trim_end_matches('.').to_owned();
        self.with_name(&number, name)
    }

    fn show_as(self, value: f64, (divisor, name): Step) -> String {
        let number = if self == Self::Count && value.abs() < 1e3 && value.fract() == 0.0 {
            format!("{value}")
        } else {
            digits(value / divisor)
        };
        self.with_name(&number, name)
    }

    fn with_name(self, number: &str, name: &str) -> String {
        match self {
            Self::Share | Self::Ratio | Self::Count => format!("{number}{name}"),
            _ => format!("{number} {name}"),
        }
    }
}

/// Formats three significant digits, with at most two decimals.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_fitting_unit() {
        for (unit, value, expected) in [
            (Unit::PerSecond, 1_023_456.0, "1.02 M/s"),
            (Unit::PerSecond, 999_700.0, "1.00 M/s"),
            (Unit::PerSecond, 812_400.0, "812 k/s"),
            (Unit::PerSecond, 0.25, "0.25 /s"),
            (Unit::Nanoseconds, 412_345.0, "412 µs"),
            (Unit::Nanoseconds, 9_996.0, "10.0 µs"),
            (Unit::Nanoseconds, 0.0, "0 ns"),
            (Unit::Bytes, 3.0 * 1024.0 * 1024.0, "3.00 MiB"),
            (Unit::Share, 0.853, "85.3%"),
            (Unit::Ratio, 1.034, "1.03×"),
            (Unit::Count, 64.0, "64"),
            (Unit::Count, 25_000.0, "25.0k"),
        ] {
            assert_eq!(unit.show(value), expected, "{unit:?} {value}");
        }
    }

    #[test]
    fn ticks_have_no_empty_digits() {
        for (unit, value, expected) in [
            (Unit::PerSecond, 500_000.0, "500 k/s"),
            (Unit::Nanoseconds, 2_500.0, "2.5 µs"),
            (Unit::Share, 1.0, "100%"),
            (Unit::Ratio, 0.5, "0.5×"),
            (Unit::Count, 0.0, "0"),
        ] {
            assert_eq!(unit.show_tick(value), expected);
        }
    }

    #[test]
    fn a_range_has_one_unit() {
        assert_eq!(Unit::PerSecond.show_range(900.0, 12_000.0), "0.90 to 12.0 k/s");
        assert_eq!(Unit::PerSecond.show_range(900.0, 900.0), "900 /s");
    }

    #[test]
    fn an_interval_is_in_the_step_of_its_middle() {
        let shown = Unit::PerSecond.show_interval(1.0e6, 980_000.0, 1_050_000.0);
        assert_eq!(shown, "[0.98, 1.05]");
    }
}
