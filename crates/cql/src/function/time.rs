//! Functions of time.

use uuid::Uuid;

use super::{Call, Function, Shape, Signature};
use crate::duration::{Duration, NS_PER_DAY, NS_PER_MS, NS_PER_US};
use crate::error::CqlError;
use crate::type_name::Native;
use crate::value::constant::{decode_days, encode_days};
use crate::value::time::{MS_PER_DAY, add_to_days, months_of_days};

type Outcome = Result<Option<Vec<u8>>, CqlError>;

/// Ticks of 100 ns from 1582-10-15, the epoch of version 1 UUIDs, to 1970-01-01.
// Source: RFC 9562 5.1
const GREGORIAN_TICKS: i64 = 0x01B2_1DD2_1381_4000;
const US_PER_DAY: i64 = NS_PER_DAY / NS_PER_US;
const TICKS_PER_MS: i64 = 10_000;
const TICKS_PER_US: i64 = 10;

const fn row(
    name: &'static str,
    older_name: Option<&'static str>,
    signatures: &'static [Signature],
    doc: &'static str,
    run: fn(&Call<'_>) -> Outcome,
) -> Function {
    Function { name, older_name, shape: Shape::Fixed(signatures), doc, run }
}

const fn from(arguments: &'static [Native], returns: Native) -> Signature {
    Signature { arguments, returns }
}

use Native::{Bigint, Date, Duration as Span, Time, Timestamp, Timeuuid};

// Source: Cassandra 5.0, TimeFcts
pub(super) static FUNCTIONS: &[Function] = &[
    row(
        "now",
        None,
        &[from(&[], Timeuuid)],
        "A new time-based UUID of the current time.",
        |call| Ok(now(call)),
    ),
    row(
        "current_timeuuid",
        Some("currenttimeuuid"),
        &[from(&[], Timeuuid)],
        "The same as `now`.",
        |call| Ok(now(call)),
    ),
    row(
        "current_timestamp",
        Some("currenttimestamp"),
        &[from(&[], Timestamp)],
        "The current time.",
        |call| Ok(Some(now_ms(call).to_be_bytes().to_vec())),
    ),
    row(
        "current_date",
        Some("currentdate"),
        &[from(&[], Date)],
        "The current date, in UTC.",
        |call| Ok(encode_days(now_ms(call).div_euclid(MS_PER_DAY))),
    ),
    row(
        "current_time",
        Some("currenttime"),
        &[from(&[], Time)],
        "The current time of day, in UTC.",
        |call| {
            let us = call.moment.now_us().rem_euclid(US_PER_DAY);
            Ok(Some((us * NS_PER_US).to_be_bytes().to_vec()))
        },
    ),
    row(
        "min_timeuuid",
        Some("mintimeuuid"),
        &[from(&[Timestamp], Timeuuid)],
        "The lowest time-based UUID of a millisecond: for ranges, not for keys.",
        |call| Ok(ms_of(call, 0).and_then(|ms| bound_uuid(ms, Bound::Lowest))),
    ),
    row(
        "max_timeuuid",
        Some("maxtimeuuid"),
        &[from(&[Timestamp], Timeuuid)],
        "The highest time-based UUID of a millisecond: for ranges, not for keys.",
        |call| Ok(ms_of(call, 0).and_then(|ms| bound_uuid(ms, Bound::Highest))),
    ),
    row(
        "to_date",
        Some("todate"),
        &[from(&[Timeuuid], Date), from(&[Timestamp], Date)],
        "The date of a time, in UTC.",
        |call| Ok(to_date(call)),
    ),
    row(
        "to_timestamp",
        Some("totimestamp"),
        &[from(&[Timeuuid], Timestamp), from(&[Date], Timestamp)],
        "The time of a time-based UUID, or the start of a day.",
        |call| Ok(to_timestamp(call)),
    ),
    row(
        "to_unix_timestamp",
        Some("tounixtimestamp"),
        &[from(&[Timeuuid], Bigint), from(&[Timestamp], Bigint), from(&[Date], Bigint)],
        "Milliseconds since 1970.",
        |call| Ok(to_timestamp(call)),
    ),
    row(
        "floor",
        None,
        &[
            from(&[Timestamp, Span], Timestamp),
            from(&[Timestamp, Span, Timestamp], Timestamp),
            from(&[Timeuuid, Span], Timestamp),
            from(&[Timeuuid, Span, Timestamp], Timestamp),
            from(&[Date, Span], Date),
            from(&[Date, Span, Date], Date),
            from(&[Time, Span], Time),
        ],
        "The start of the interval that contains the time; intervals start at 1970, or at the third argument.",
        floor,
    ),
];

fn now_ms(call: &Call<'_>) -> i64 {
    call.moment.now_us().div_euclid(1000)
}

/// A node and a clock sequence for this statement, and a different tick for each call: every result
/// is unique.
fn now(call: &Call<'_>) -> Option<Vec<u8>> {
    let ticks = call.moment.now_us().saturating_mul(TICKS_PER_US);
    let ticks = ticks.saturating_add_unsigned(call.moment.tick());
    let ticks = ticks.checked_add(GREGORIAN_TICKS)?;
    // This bit marks a random node, which is not the address of a network card.
    // Source: RFC 9562 6.10
    let low = call.moment.node() | 1 << 40;
    Some(time_uuid(ticks, low))
}

fn time_uuid(ticks: i64, low: u64) -> Vec<u8> {
    let ticks = ticks.cast_unsigned();
    let [high, low] = [ticks >> 48 & 0x0FFF | 0x1000, low & 0x3FFF_FFFF_FFFF_FFFF | 1 << 63];
    let first = ticks << 32 | (ticks >> 32 & 0xFFFF) << 16 | high;
    Uuid::from_u64_pair(first, low).as_bytes().to_vec()
}

/// The smallest or largest UUID of a millisecond. The last eight bytes of UUIDs are compared as
/// signed bytes.
#[derive(Debug, Clone, Copy)]
enum Bound {
    Lowest,
    Highest,
}

// Source: Cassandra 5.0, TimeUUID.minAtUnixMillis and maxAtUnixMillis
fn bound_uuid(ms: i64, bound: Bound) -> Option<Vec<u8>> {
    let (ms, back, low) = match bound {
        Bound::Lowest => (ms, 0, 0x8080_8080_8080_8080_u64),
        Bound::Highest => (ms.checked_add(1)?, 1, 0x7F7F_7F7F_7F7F_7F7F),
    };
    let ticks = ms.checked_mul(TICKS_PER_MS)?.checked_add(GREGORIAN_TICKS)? - back;
    let mut uuid = time_uuid(ticks, 0);
    uuid[8..].copy_from_slice(&low.to_be_bytes());
    Some(uuid)
}

/// An argument as milliseconds since 1970: a timestamp, a date, or a time-based UUID.
fn ms_of(call: &Call<'_>, nth: usize) -> Option<i64> {
    if let Some(bytes) = call.fixed::<16>(nth) {
        let uuid = Uuid::from_bytes(bytes);
        let (ticks, _) = uuid.get_timestamp()?.to_gregorian();
        let ticks = i64::try_from(ticks).ok()? - GREGORIAN_TICKS;
        return Some(ticks.div_euclid(TICKS_PER_MS));
    }
    if let Some(bytes) = call.fixed::<4>(nth) {
        return decode_days(bytes).checked_mul(MS_PER_DAY);
    }
    call.fixed::<8>(nth).map(i64::from_be_bytes)
}

/// The first argument as a date.
pub(super) fn to_date(call: &Call<'_>) -> Option<Vec<u8>> {
    ms_of(call, 0).and_then(|ms| encode_days(ms.div_euclid(MS_PER_DAY)))
}

/// The first argument as milliseconds since 1970.
pub(super) fn to_timestamp(call: &Call<'_>) -> Option<Vec<u8>> {
    ms_of(call, 0).map(|ms| ms.to_be_bytes().to_vec())
}

// Source: Cassandra 5.0, TimeFcts.FloorFunction and Duration.floorTimestamp
fn floor(call: &Call<'_>) -> Outcome {
    let Some(duration) = call.argument(1).and_then(Duration::decode) else { return Ok(None) };
    if call.arguments.len() == 3 && call.argument(2).is_none() {
        return Ok(None);
    }
    let is_negative = duration.months < 0 || duration.days < 0 || duration.nanoseconds < 0;
    let has_calendar = duration.months != 0 || duration.days != 0;
    if call.returns.to_string() == "time" {
        let Some(ns) = call.fixed::<8>(0).map(i64::from_be_bytes) else { return Ok(None) };
        if has_calendar {
            return Err(CqlError::invalid(format!(
                "For floor on time values, the duration must not have any days or months (was: {duration})"
            )));
        }
        if duration.nanoseconds > NS_PER_DAY {
            return Err(CqlError::invalid(format!(
                "The duration must not be larger than a day (was: {duration})"
            )));
        }
        if duration.nanoseconds <= 0 {
            return Err(not_positive());
        }
        let floor = ns - ns.rem_euclid(duration.nanoseconds);
        return Ok(Some(floor.to_be_bytes().to_vec()));
    }
    let is_date = call.returns.to_string() == "date";
    if is_date && duration.nanoseconds != 0 {
        return Err(CqlError::invalid(format!(
            "The floor on date values cannot be computed for the {duration} duration as precision is below 1 day"
        )));
    }
    if duration.nanoseconds % NS_PER_MS != 0 {
        return Err(CqlError::invalid(format!(
            "The floor cannot be computed for the {duration} duration as precision is below 1 millisecond"
        )));
    }
    if is_negative || !has_calendar && duration.nanoseconds == 0 {
        return Err(not_positive());
    }
    let Some(ms) = ms_of(call, 0) else { return Ok(None) };
    let start = ms_of(call, 2).unwrap_or(0);
    if start > ms {
        return Err(CqlError::invalid(
            "The floor function starting time is greater than the provided time",
        ));
    }
    let floor = floor_ms(ms, start, duration).ok_or_else(|| {
        CqlError::invalid(format!("The floor cannot be computed for the {duration} duration"))
    })?;
    if is_date {
        return Ok(encode_days(floor.div_euclid(MS_PER_DAY)));
    }
    Ok(Some(floor.to_be_bytes().to_vec()))
}

fn not_positive() -> CqlError {
    CqlError::invalid("Negative durations are not supported by the floor function")
}

/// The last time at or before `ms` that is a whole number of durations after the start.
fn floor_ms(ms: i64, start: i64, duration: Duration) -> Option<i64> {
    let rest_ms = i64::from(duration.days)
        .checked_mul(MS_PER_DAY)?
        .checked_add(duration.nanoseconds / NS_PER_MS)?;
    if duration.months == 0 {
        let since = ms.checked_sub(start)?;
        return Some(ms - since.rem_euclid(rest_ms));
    }
    let start_days = start.div_euclid(MS_PER_DAY);
    let at = |count: i64| {
        let months = i32::try_from(i64::from(duration.months).checked_mul(count)?).ok()?;
        let months = Duration { months, ..Duration::default() };
        let days = add_to_days(start_days, months)?;
        let ms = days.checked_mul(MS_PER_DAY)?.checked_add(start.rem_euclid(MS_PER_DAY))?;
        ms.checked_add(rest_ms.checked_mul(count)?)
    };
    // A first estimate by the calendar, never too low; then decrement while it is too late.
    let months = months_of_days(ms.div_euclid(MS_PER_DAY))? - months_of_days(start_days)?;
    let by_months = months / i64::from(duration.months);
    let mut count = match rest_ms {
        0 => by_months,
        rest => by_months.min(ms.checked_sub(start)? / rest),
    };
    while at(count)? > ms {
        count -= count_back(at(count)? - ms, duration);
    }
    while let Some(next) = at(count + 1).filter(|next| *next <= ms) {
        debug_assert!(next > at(count)?);
        count += 1;
    }
    at(count)
}

/// A lower bound of the durations within `excess_ms` milliseconds, and at least one.
fn count_back(excess_ms: i64, duration: Duration) -> i64 {
    let longest_ms = i64::from(duration.months) * 31 * MS_PER_DAY
        + i64::from(duration.days) * MS_PER_DAY
        + duration.nanoseconds / NS_PER_MS;
    (excess_ms / longest_ms).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::{NOW_US, evaluated, refused};

    #[test]
    fn times_are_converted_into_each_other() {
        let uuid = "(timeuuid) 5f6c5b10-2b0b-11e9-b210-d663bd873d93";
        for (term, of, expected) in [
            ("to_timestamp(UUID)", "timestamp", "2019-02-07 19:05:45.708Z"),
            ("toTimestamp((date) '2011-02-03')", "timestamp", "2011-02-03 00:00:00.000Z"),
            ("to_date(UUID)", "date", "2019-02-07"),
            ("toDate((timestamp) '2011-02-03 23:59')", "date", "2011-02-03"),
            ("to_date((timestamp) -1)", "date", "1969-12-31"),
            ("to_unix_timestamp(UUID)", "bigint", "1549566345708"),
            ("min_timeuuid(0)", "timeuuid", "13814000-1dd2-11b2-8080-808080808080"),
            ("maxTimeuuid(0)", "timeuuid", "1381670f-1dd2-11b2-7f7f-7f7f7f7f7f7f"),
            ("to_date((timestamp) null)", "date", "null"),
        ] {
            assert_eq!(evaluated(&term.replace("UUID", uuid), of), expected, "{term}");
        }
    }

    #[test]
    fn now_is_the_moment_of_the_statement() {
        let ms = (NOW_US / 1000).to_string();
        for (term, of, expected) in [
            ("to_unix_timestamp(now())", "bigint", ms.as_str()),
            ("to_unix_timestamp(current_timestamp())", "bigint", ms.as_str()),
            ("currentTimestamp()", "timestamp", "2023-11-14 22:13:20.123Z"),
            ("currentDate()", "date", "2023-11-14"),
            ("current_time()", "time", "22:13:20.123000000"),
        ] {
            assert_eq!(evaluated(term, of), expected, "{term}");
        }
        let first = evaluated("now()", "timeuuid");
        let uuid = Uuid::parse_str(&first).unwrap();
        assert_eq!(uuid.get_version_num(), 1);
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        let pair = evaluated("(now(), now())", "tuple<timeuuid, timeuuid>");
        let (left, right) = pair.trim_matches(['[', ']']).split_once(", ").unwrap();
        assert_ne!(left, right);
    }

    #[test]
    fn floors_are_the_beginnings_of_intervals() {
        for (term, of, expected) in [
            (
                "floor((timestamp) '2011-02-03 04:05:06', 1h)",
                "timestamp",
                "2011-02-03 04:00:00.000Z",
            ),
            (
                "floor((timestamp) '2011-02-03 04:05:06', 1mo)",
                "timestamp",
                "2011-02-01 00:00:00.000Z",
            ),
            (
                "floor((timestamp) '2011-02-03 04:05:06', 2d, (timestamp) '2011-02-02')",
                "timestamp",
                "2011-02-02 00:00:00.000Z",
            ),
            ("floor((date) '2011-02-03', 1y)", "date", "2011-01-01"),
            ("floor((date) '2011-02-03', 1mo, (date) '2010-01-31')", "date", "2011-01-31"),
            ("floor((date) '2011-02-03', 1mo1d)", "date", "2011-01-21"),
            ("floor((time) '08:12:54', 10m)", "time", "08:10:00.000000000"),
        ] {
            assert_eq!(evaluated(term, of), expected, "{term}");
        }
        for (term, of, expected) in [
            (
                "floor((date) '2011-02-03', 1h)",
                "date",
                "The floor on date values cannot be computed for the 1h duration as precision is below 1 day",
            ),
            (
                "floor((timestamp) '2011-02-03', 1us)",
                "timestamp",
                "The floor cannot be computed for the 1us duration as precision is below 1 millisecond",
            ),
            (
                "floor((timestamp) '2011-02-03', -1h)",
                "timestamp",
                "Negative durations are not supported by the floor function",
            ),
            (
                "floor((time) '08:00:00', 1d)",
                "time",
                "For floor on time values, the duration must not have any days or months (was: 1d)",
            ),
        ] {
            assert_eq!(refused(term, of), expected, "{term}");
        }
    }
}
