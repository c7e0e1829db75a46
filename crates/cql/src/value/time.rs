//! Dates, times and durations.

use jiff::civil::Date;

use super::calendar::CivilDay;
use super::number::{put_vint, take_vint};

pub(crate) const NS_PER_US: i64 = 1_000;
pub(crate) const NS_PER_MS: i64 = 1_000_000;
const NS_PER_SECOND: i64 = 1_000_000_000;
const NS_PER_MINUTE: i64 = 60 * NS_PER_SECOND;
const NS_PER_HOUR: i64 = 60 * NS_PER_MINUTE;
pub(crate) const NS_PER_DAY: i64 = 24 * NS_PER_HOUR;
pub(crate) const MS_PER_DAY: i64 = NS_PER_DAY / NS_PER_MS;

/// Whether there are decimal digits and nothing else.
pub(crate) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Nanoseconds since midnight of `08:12:54.123456789`; seconds may be left out where
/// `needs_seconds` is false.
pub(crate) fn parse_time(text: &str, needs_seconds: bool) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let whole = |part: &str, max: i64| {
        let value: i64 = part.parse().ok().filter(|_| is_digits(part))?;
        (value <= max).then_some(value)
    };
    let hours = whole(parts.next()?, 23)?;
    let minutes = whole(parts.next()?, 59)?;
    let mut ns = hours * NS_PER_HOUR + minutes * NS_PER_MINUTE;
    let Some(seconds) = parts.next() else { return (!needs_seconds).then_some(ns) };
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    ns += whole(seconds, 59)? * NS_PER_SECOND;
    if fraction.len() > 9 || !is_digits(fraction) {
        return None;
    }
    Some(ns + format!("{fraction:0<9}").parse::<i64>().ok()?)
}

/// `08:12:54.123456789`
pub(crate) fn format_time(ns: i64) -> String {
    let (hours, ns) = (ns / NS_PER_HOUR, ns % NS_PER_HOUR);
    let (minutes, ns) = (ns / NS_PER_MINUTE, ns % NS_PER_MINUTE);
    let (seconds, ns) = (ns / NS_PER_SECOND, ns % NS_PER_SECOND);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{ns:09}")
}

/// `2011-02-03 04:05:06.789Z`, with any character between day and time.
// Source: Cassandra 5.0, TimestampSerializer
pub(crate) fn format_timestamp(ms: i64, between: char) -> String {
    let date = CivilDay::after_epoch(ms.div_euclid(MS_PER_DAY)).text_of_era();
    let time = format_time(ms.rem_euclid(MS_PER_DAY) * NS_PER_MS);
    // Milliseconds are all that a timestamp has.
    format!("{date}{between}{}Z", &time[..time.len() - 6])
}

/// Months, days and nanoseconds: none can be turned into another. All have one sign.
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

    /// `1y2mo3w4d5h6m7s8ms9us10ns`, `P1Y2M3DT4H5M6S`, `P3W` or `P0001-02-03T04:05:06`, each perhaps
    /// with a minus sign before it. The error is Cassandra's.
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

/// Days since 1970-01-01, months and days of the duration later: months end where they end. None
/// beyond the years of the calendar.
pub(crate) fn add_to_days(days: i64, duration: Duration) -> Option<i64> {
    let mut days = days;
    if duration.months != 0 {
        let span = jiff::Span::new().try_days(days).ok()?;
        let date = Date::constant(1970, 1, 1).checked_add(span).ok()?;
        let date = date.checked_add(jiff::Span::new().try_months(duration.months).ok()?).ok()?;
        days = i64::from(date.since(Date::constant(1970, 1, 1)).ok()?.get_days());
    }
    days.checked_add(duration.days.into())
}

/// Months since the beginning of the calendar's first year, of days since 1970-01-01.
pub(crate) fn months_of_days(days: i64) -> Option<i64> {
    let span = jiff::Span::new().try_days(days).ok()?;
    let date = Date::constant(1970, 1, 1).checked_add(span).ok()?;
    Some(i64::from(date.year()) * 12 + i64::from(date.month()))
}

/// Milliseconds since 1970, a duration later; what is below a millisecond is left out.
// Source: Cassandra 5.0, Duration.addTo
pub(crate) fn add_to_timestamp(ms: i64, duration: Duration) -> Option<i64> {
    let days = add_to_days(ms.div_euclid(MS_PER_DAY), duration)?;
    let rest = ms.rem_euclid(MS_PER_DAY);
    days.checked_mul(MS_PER_DAY)?.checked_add(rest)?.checked_add(duration.nanoseconds / NS_PER_MS)
}

/// Sums that may be too large for a duration.
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

/// Digits, then what follows them up to the next digit.
fn take_unit(text: &str) -> Option<(i64, &str, &str)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, rest) = text.split_at(unit_at);
    let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    Some((digits.parse().ok()?, &rest[..end], &rest[end..]))
}

/// Units and how they are called, longer ones first.
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

/// Numbers and the places of their units in [`UNITS`].
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

/// Checks that each unit occurs once, and longer ones before shorter ones.
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
    fn timestamps_have_a_text() {
        for (ms, expected) in [
            (1_296_705_900_123, "2011-02-03 04:05:00.123Z"),
            (-1, "1969-12-31 23:59:59.999Z"),
            (-62_167_219_200_001, "0002-12-31 23:59:59.999Z"),
            (253_402_300_800_000, "+10000-01-01 00:00:00.000Z"),
            (i64::MAX, "+292278994-08-17 07:12:55.807Z"),
            (i64::MIN, "+292275056-05-16 16:47:04.192Z"),
        ] {
            assert_eq!(format_timestamp(ms, ' '), expected);
        }
        assert_eq!(format_timestamp(0, 'T'), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn times_are_nanoseconds_of_a_day() {
        assert_eq!(parse_time("08:12:54.123456789", true), Some(29_574_123_456_789));
        assert_eq!(format_time(29_574_123_456_789), "08:12:54.123456789");
        for text in ["24:00:00", "08:12", "08:60:00", "08:12:54.1234567890", "-1:00:00"] {
            assert_eq!(parse_time(text, true), None, "{text}");
        }
    }

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
