//! Durations, and their units.

use super::vint::{put_vint, take_vint};

pub(crate) const NS_PER_US: i64 = 1_000;
pub(crate) const NS_PER_MS: i64 = 1_000_000;
pub(crate) const NS_PER_SECOND: i64 = 1_000_000_000;
pub(crate) const NS_PER_MINUTE: i64 = 60 * NS_PER_SECOND;
pub(crate) const NS_PER_HOUR: i64 = 60 * NS_PER_MINUTE;
pub(crate) const NS_PER_DAY: i64 = 24 * NS_PER_HOUR;

/// Months, days and nanoseconds, which cannot be converted into each other. All have the same sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Duration {
    pub(crate) months: i32,
    pub(crate) days: i32,
    pub(crate) nanoseconds: i64,
}

impl Duration {
    // Source: native_protocol_v5.spec 6.8 "duration"
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_vint(self.months.into(), &mut out);
        put_vint(self.days.into(), &mut out);
        put_vint(self.nanoseconds, &mut out);
        out
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Duration> {
        let months = i32::try_from(take_vint(&mut bytes)?).ok()?;
        let days = i32::try_from(take_vint(&mut bytes)?).ok()?;
        let nanoseconds = take_vint(&mut bytes)?;
        let has_negative = months < 0 || days < 0 || nanoseconds < 0;
        let has_positive = months > 0 || days > 0 || nanoseconds > 0;
        let is_valid = bytes.is_empty() && !(has_negative && has_positive);
        is_valid.then_some(Duration { months, days, nanoseconds })
    }

    /// `1y2mo3w4d5h6m7s8ms9us10ns`, `P1Y2M3DT4H5M6S`, `P3W` or `P0001-02-03T04:05:06`, each with an
    /// optional minus sign. The error is Cassandra's.
    pub(crate) fn parse(text: &str) -> Result<Duration, String> {
        let unable = || format!("Unable to convert '{text}' to a duration");
        let (body, is_negative) = match text.strip_prefix('-') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let total = match body.strip_prefix('P') {
            None => {
                let units = take_units(body).ok_or_else(unable)?;
                check_order(&units)?;
                sum(&units)
            }
            Some(iso) if iso.contains('-') => parse_alternative(iso),
            Some(iso) => parse_iso(iso),
        };
        total.and_then(|total| total.into_duration(is_negative)).ok_or_else(unable)
    }
}

impl Duration {
    #[must_use]
    pub(crate) fn negated(self) -> Option<Duration> {
        Some(Duration {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            nanoseconds: self.nanoseconds.checked_neg()?,
        })
    }
}

/// Sums that may exceed the range of a duration.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    months: i64,
    days: i64,
    nanoseconds: i64,
}

impl Total {
    fn add(&mut self, count: i64, unit: &str) -> Option<()> {
        let (slot, factor) = match unit {
            "y" => (&mut self.months, 12),
            "mo" => (&mut self.months, 1),
            "w" => (&mut self.days, 7),
            "d" => (&mut self.days, 1),
            "h" => (&mut self.nanoseconds, NS_PER_HOUR),
            "m" => (&mut self.nanoseconds, NS_PER_MINUTE),
            "s" => (&mut self.nanoseconds, NS_PER_SECOND),
            "ms" => (&mut self.nanoseconds, NS_PER_MS),
            "us" => (&mut self.nanoseconds, NS_PER_US),
            "ns" => (&mut self.nanoseconds, 1),
            _ => return None,
        };
        *slot = slot.checked_add(count.checked_mul(factor)?)?;
        Some(())
    }

    fn into_duration(self, is_negative: bool) -> Option<Duration> {
        let sign = if is_negative { -1 } else { 1 };
        Some(Duration {
            months: i32::try_from(self.months * sign).ok()?,
            days: i32::try_from(self.days * sign).ok()?,
            nanoseconds: self.nanoseconds * sign,
        })
    }
}

/// Digits, and the characters after them up to the next digit.
fn take_unit(text: &str) -> Option<(i64, &str, &str)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, rest) = text.split_at(unit_at);
    let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    Some((digits.parse().ok()?, &rest[..end], &rest[end..]))
}

/// Units and their names in messages, longer units first.
const UNITS: [(&str, &str); 10] = [
    ("y", "years"),
    ("mo", "months"),
    ("w", "weeks"),
    ("d", "days"),
    ("h", "hours"),
    ("m", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
];

/// Numbers and the positions of their units in [`UNITS`].
fn take_units(mut text: &str) -> Option<Vec<(i64, usize)>> {
    let mut found = Vec::new();
    loop {
        let (count, unit, rest) = take_unit(text)?;
        let unit = unit.to_lowercase().replace('µ', "u");
        found.push((count, UNITS.iter().position(|(short, _)| *short == unit)?));
        if rest.is_empty() {
            return Some(found);
        }
        text = rest;
    }
}

/// Checks that each unit occurs once, with longer ones before shorter ones.
// Source: Cassandra 5.0, cql3.Duration.Builder.validateOrder
fn check_order(units: &[(i64, usize)]) -> Result<(), String> {
    for pair in units.windows(2) {
        let (before, unit) = (UNITS[pair[0].1].1, UNITS[pair[1].1].1);
        if before == unit {
            return Err(format!("Invalid duration. The {unit} are specified multiple times"));
        }
        if pair[1].1 < pair[0].1 {
            return Err(format!("Invalid duration. The {before} should be after {unit}"));
        }
    }
    Ok(())
}

fn sum(units: &[(i64, usize)]) -> Option<Total> {
    let mut total = Total::default();
    for (count, unit) in units {
        total.add(*count, UNITS[*unit].0)?;
    }
    Some(total)
}

fn parse_iso(text: &str) -> Option<Total> {
    let mut total = Total::default();
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    if date.is_empty() && time.is_empty() {
        return None;
    }
    for (part, units) in [
        (date, &[("Y", "y"), ("M", "mo"), ("W", "w"), ("D", "d")][..]),
        (time, &[("H", "h"), ("M", "m"), ("S", "s")]),
    ] {
        let (mut rest, mut units) = (part, units);
        while !rest.is_empty() {
            let (count, letter, after) = take_unit(rest)?;
            // Each unit occurs once, longer ones before shorter ones, and weeks alone.
            let at = units.iter().position(|(known, _)| *known == letter)?;
            if letter == "W" && text.len() > rest.len() - after.len() {
                return None;
            }
            total.add(count, units[at].1)?;
            (rest, units) = (after, &units[at + 1..]);
        }
    }
    Some(total)
}

/// `0001-02-03T04:05:06`
fn parse_alternative(text: &str) -> Option<Total> {
    let mut total = Total::default();
    let (date, time) = text.split_once('T')?;
    let parts = date.split('-').chain(time.split(':'));
    let parts: Vec<i64> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let units = ["y", "mo", "d", "h", "m", "s"];
    if parts.len() != units.len() || parts.iter().any(|part| *part < 0) {
        return None;
    }
    for (count, unit) in parts.into_iter().zip(units) {
        total.add(count, unit)?;
    }
    Some(total)
}

impl std::fmt::Display for Duration {
    /// With the largest units that fit: `1y2mo3d4h5m6s7ms8us9ns`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.months < 0 || self.days < 0 || self.nanoseconds < 0 {
            formatter.write_str("-")?;
        }
        let months = u64::from(self.months.unsigned_abs());
        let mut ns = self.nanoseconds.unsigned_abs();
        let mut parts = vec![
            (months / 12, "y"),
            (months % 12, "mo"),
            (u64::from(self.days.unsigned_abs()), "d"),
        ];
        for (factor, unit) in [
            (NS_PER_HOUR, "h"),
            (NS_PER_MINUTE, "m"),
            (NS_PER_SECOND, "s"),
            (NS_PER_MS, "ms"),
            (NS_PER_US, "us"),
            (1, "ns"),
        ] {
            parts.push((ns / factor.cast_unsigned(), unit));
            ns %= factor.cast_unsigned();
        }
        for (count, unit) in parts.into_iter().filter(|(count, _)| *count > 0) {
            write!(formatter, "{count}{unit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_forms() {
        for (text, expected) in [
            ("1y2mo3d4h5m6s7ms8us9ns", "1y2mo3d4h5m6s7ms8us9ns"),
            ("-2w", "-14d"),
            ("P1Y2M3DT4H5M6S", "1y2mo3d4h5m6s"),
            ("P2W", "14d"),
            ("P0001-02-03T04:05:06", "1y2mo3d4h5m6s"),
            ("90m", "1h30m"),
            ("1µs", "1us"),
            ("P1Y", "1y"),
        ] {
            let duration = Duration::parse(text).unwrap();
            assert_eq!(duration.to_string(), expected);
            assert_eq!(Duration::decode(&duration.encode()), Some(duration));
        }
        for text in ["", "1", "1x", "P", "99999999999y", "PT1D", "P1W2D", "P1Y2W", "P1D1Y"] {
            let refused = format!("Unable to convert '{text}' to a duration");
            assert_eq!(Duration::parse(text), Err(refused));
        }
        for (text, refused) in [
            ("1y1y", "Invalid duration. The years are specified multiple times"),
            ("1s1m", "Invalid duration. The seconds should be after minutes"),
            ("2mo3d4y", "Invalid duration. The days should be after years"),
            ("1us1ms", "Invalid duration. The microseconds should be after milliseconds"),
        ] {
            assert_eq!(Duration::parse(text), Err(refused.to_owned()));
        }
        let mixed = [put(1), put(-1), put(0)].concat();
        assert_eq!(Duration::decode(&mixed), None);
    }

    fn put(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put_vint(value, &mut out);
        out
    }
}
