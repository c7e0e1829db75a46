//! Dates and times, and their sums with durations.

use jiff::civil::Date;

use super::calendar::CivilDay;
use crate::duration::{Duration, NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, NS_PER_MS, NS_PER_SECOND};

pub(crate) const MS_PER_DAY: i64 = NS_PER_DAY / NS_PER_MS;

/// Whether the text consists of decimal digits only.
pub(crate) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Nanoseconds since midnight of `08:12:54.123456789`; seconds may be omitted if `needs_seconds` is
/// false.
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
    // A timestamp has a resolution of milliseconds.
    format!("{date}{between}{}Z", &time[..time.len() - 6])
}

/// Days since 1970-01-01 after adding the months and days of the duration; the day is clamped to
/// the end of its month. None beyond the years of the calendar.
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

/// Months since the beginning of the calendar's first year, from days since 1970-01-01.
pub(crate) fn months_of_days(days: i64) -> Option<i64> {
    let span = jiff::Span::new().try_days(days).ok()?;
    let date = Date::constant(1970, 1, 1).checked_add(span).ok()?;
    Some(i64::from(date.year()) * 12 + i64::from(date.month()))
}

/// Milliseconds since 1970 after adding a duration; fractions of a millisecond are dropped.
// Source: Cassandra 5.0, Duration.addTo
pub(crate) fn add_to_timestamp(ms: i64, duration: Duration) -> Option<i64> {
    let days = add_to_days(ms.div_euclid(MS_PER_DAY), duration)?;
    let rest = ms.rem_euclid(MS_PER_DAY);
    days.checked_mul(MS_PER_DAY)?.checked_add(rest)?.checked_add(duration.nanoseconds / NS_PER_MS)
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
}
