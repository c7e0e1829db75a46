//! Latency limits: `p99<1ms`.

use std::fmt;
use std::str::FromStr;

use hdrhistogram::Histogram;

/// A limit on the corrected latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slo {
    figure: Figure,
    limit_ns: u64,
    /// `<=` instead of `<`.
    is_inclusive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    /// In percent, 0 to 100.
    Percentile(f64),
    Mean,
    Max,
}

/// An invalid limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a latency limit such as p99<1ms, p99.9<=250us, mean<100us or max<1s")]
pub(crate) struct SloError {
    text: String,
}

impl Slo {
    /// Returns the limited latency, in nanoseconds; 0 if nothing was measured. `unsent` requests
    /// were due but never sent: percentiles treat them as later than all others.
    pub(crate) fn value_ns(&self, latencies: &Histogram<u64>, unsent: u64) -> u64 {
        match self.figure {
            Figure::Percentile(percent) => percentile_ns(percent, latencies, unsent),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a mean of u64"
            )]
            Figure::Mean => latencies.mean().round() as u64,
            Figure::Max => latencies.max(),
        }
    }

    pub(crate) fn holds(&self, latencies: &Histogram<u64>, unsent: u64) -> bool {
        let value_ns = self.value_ns(latencies, unsent);
        if self.is_inclusive { value_ns <= self.limit_ns } else { value_ns < self.limit_ns }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
fn percentile_ns(percent: f64, latencies: &Histogram<u64>, unsent: u64) -> u64 {
    let (sent, all) = (latencies.len() as f64, (latencies.len() + unsent) as f64);
    let quantile = percent / 100.0 * all / sent.max(1.0);
    if quantile > 1.0 { u64::MAX } else { latencies.value_at_quantile(quantile) }
}

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Slo, SloError> {
        parse(text).ok_or_else(|| SloError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Slo> {
    let (name, limit) = text.split_once('<')?;
    let (limit, is_inclusive) =
        limit.strip_prefix('=').map_or((limit, false), |limit| (limit, true));
    let figure = match name.trim() {
        "mean" => Figure::Mean,
        "max" => Figure::Max,
        percentile => {
            let percent: f64 = percentile.strip_prefix('p')?.parse().ok()?;
            (0.0..=100.0).contains(&percent).then_some(Figure::Percentile(percent))?
        }
    };
    Some(Slo { figure, limit_ns: duration_ns(limit.trim())?, is_inclusive })
}

/// Parses `1.5ms` to nanoseconds.
fn duration_ns(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let ns = number.trim().parse::<f64>().ok()? * unit_ns;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in its bounds")]
    (1.0..=1e15).contains(&ns).then_some(ns.round() as u64)
}

impl fmt::Display for Slo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.figure {
            Figure::Percentile(percent) => write!(formatter, "p{percent}")?,
            Figure::Mean => formatter.write_str("mean")?,
            Figure::Max => formatter.write_str("max")?,
        }
        formatter.write_str(if self.is_inclusive { "<=" } else { "<" })?;
        formatter.write_str(&human_ns(self.limit_ns))
    }
}

/// Formats a duration in the unit that gives a number from 1 to 999, with three digits. The largest
/// value means never.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn human_ns(ns: u64) -> String {
    let value = ns as f64;
    let (value, unit) = match ns {
        u64::MAX => return "never".to_owned(),
        0..1_000 => (value, "ns"),
        1_000..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::histogram::empty;

    /// 1 to 1,000 microseconds, each once.
    fn latencies() -> Histogram<u64> {
        let mut histogram = empty();
        (1..=1_000_u64).for_each(|us| histogram.record(us * 1_000).unwrap());
        histogram
    }

    #[track_caller]
    fn check(text: &str, holds: bool) {
        let slo: Slo = text.parse().unwrap();
        assert_eq!(slo.to_string(), text);
        assert_eq!(slo.holds(&latencies(), 0), holds, "{} ns", slo.value_ns(&latencies(), 0));
    }

    #[test]
    fn bounds_are_kept_or_not() {
        check("p99<1ms", true);
        check("p99<985us", false);
        check("p50<490us", false);
        check("p50<=510us", true);
        check("p99.9<1.01ms", true);
        check("mean<510us", true);
        check("mean<490us", false);
        check("max<1ms", false);
        check("max<1.1ms", true);
        assert!("p99<1ms".parse::<Slo>().unwrap().holds(&empty(), 0));
    }

    /// Of 2,000 due requests, the slower half was never sent.
    #[test]
    fn unsent_requests_are_late() {
        let slo = |text: &str| text.parse::<Slo>().unwrap();
        assert!(slo("p49<1ms").holds(&latencies(), 1_000));
        assert!(slo("p25<510us").holds(&latencies(), 1_000));
        assert!(!slo("p51<1s").holds(&latencies(), 1_000));
    }

    #[test]
    fn blanks_and_units_are_read() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<Slo>().unwrap().to_string(), expected);
        };
        check("p99 < 1000us", "p99<1ms");
        check("p99.90<=0.25 s", "p99.9<=250ms");
        check("max<999ns", "max<999ns");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", "p99", "p99<", "p99<1", "p101<1ms", "q9<1ms", "p99>1ms", "p99<-1ms", "p<1ms",
            "p99<1h",
        ] {
            assert!(text.parse::<Slo>().is_err(), "{text}");
        }
    }
}
