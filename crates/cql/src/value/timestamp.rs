//! Texts of timestamps: a number of milliseconds, or a day with a time and a time zone.

use jiff::civil::date;
use jiff::tz::TimeZone;

use super::calendar::CivilDay;
use super::time::{MS_PER_DAY, is_digits, parse_time};
use crate::duration::NS_PER_MS;

/// Abbreviations of time zones, as Java reads them in an English locale. Most are also names in the
/// tz database, where they denote a fixed offset or another place.
// Source: java.time.format.DateTimeFormatter, pattern letter z
const SHORT_NAMES: [(&str, &str); 30] = [
    ("AEDT", "Australia/Sydney"),
    ("AEST", "Australia/Sydney"),
    ("AKDT", "America/Anchorage"),
    ("AKST", "America/Anchorage"),
    ("BRT", "America/Sao_Paulo"),
    ("BST", "Pacific/Bougainville"),
    ("CDT", "America/Chicago"),
    ("CEST", "Europe/Paris"),
    ("CET", "Europe/Paris"),
    ("CST", "America/Chicago"),
    ("EDT", "America/New_York"),
    ("EEST", "Europe/Bucharest"),
    ("EET", "Europe/Bucharest"),
    ("EST", "America/New_York"),
    ("GMT", "UTC"),
    ("HKT", "Asia/Hong_Kong"),
    ("HST", "Pacific/Honolulu"),
    ("IST", "Europe/Dublin"),
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
    ("MDT", "America/Denver"),
    ("MSK", "Europe/Moscow"),
    ("MST", "America/Denver"),
    ("NZDT", "Pacific/Auckland"),
    ("NZST", "Pacific/Auckland"),
    ("PDT", "America/Los_Angeles"),
    ("PST", "America/Los_Angeles"),
    ("SGT", "Asia/Singapore"),
    ("WEST", "Europe/Lisbon"),
    ("WET", "Europe/Lisbon"),
];

/// Milliseconds since 1970 of `2011-02-03`, `2011-02-03 04:05:06.789 Europe/Berlin` and forms in
/// between, or of the number itself. Without a zone, UTC. The error is Cassandra's.
// Source: Cassandra 5.0, TimestampSerializer.dateStringToTimestamp
pub(crate) fn parse_timestamp(text: &str) -> Result<i64, String> {
    if is_digits(text.strip_prefix('-').unwrap_or(text)) {
        return text.parse().map_err(|_| format!("Unable to make long (for date) from: '{text}'"));
    }
    parse_moment(text).ok_or_else(|| format!("Unable to parse a date/time from '{text}'"))
}

fn parse_moment(text: &str) -> Option<i64> {
    let (day, rest) = take_day(text)?;
    let (ns, rest) = match rest.strip_prefix(['T', ' ']) {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => {
            let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c)));
            let (time, rest) = rest.split_at(end.unwrap_or(rest.len()));
            (parse_time_of_day(time)?, rest)
        }
        // Only a day may be followed by a lower-case letter.
        _ if rest == "z" => (0, ""),
        _ => (0, rest),
    };
    let local_ms = day.since_epoch()?.checked_mul(MS_PER_DAY)?.checked_add(ns / NS_PER_MS)?;
    local_ms.checked_sub(ahead_ms(local_ms, rest)?)
}

/// Reads `2011-02-03` from the front. A day beyond the end of its month is clamped to the last one.
// Source: java.time.format.ResolverStyle, SMART
fn take_day(text: &str) -> Option<(CivilDay, &str)> {
    let sign = usize::from(text.starts_with(['-', '+']));
    let year_digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let (text, rest) = text.split_at_checked(sign + year_digits + "-02-03".len())?;
    let (beginning, last_day) = text.split_at_checked(text.len() - 2)?;
    let day = CivilDay::parse(text).or_else(|| {
        let days = ["29", "30", "31"].contains(&last_day).then_some(["30", "29", "28"])?;
        days.iter().find_map(|day| CivilDay::parse(&format!("{beginning}{day}")))
    });
    Some((day?, rest))
}

/// Nanoseconds since midnight; the day may end with `24:00`.
fn parse_time_of_day(text: &str) -> Option<i64> {
    let parts = text.split([':', '.']);
    if text.starts_with("24:") && parts.clone().skip(1).all(|part| part.bytes().all(|b| b == b'0'))
    {
        let midnight = format!("00{}", &text[2..]);
        return parse_time(&midnight, false).map(|_| MS_PER_DAY * NS_PER_MS);
    }
    parse_time(text, false)
}

/// How far the local time of a zone, with or without a blank before it, is ahead of UTC.
fn ahead_ms(local_ms: i64, zone: &str) -> Option<i64> {
    let (name, has_blank) = match zone.strip_prefix(' ') {
        Some(rest) => (rest, true),
        None => (zone, false),
    };
    if name.is_empty() {
        return (!has_blank).then_some(0);
    }
    if name == "Z" {
        return Some(0);
    }
    if name.starts_with(['+', '-']) {
        return offset_ms(name);
    }
    // Names require the blank.
    if !has_blank {
        return None;
    }
    if let Some(offset) = name.strip_prefix("GMT").filter(|rest| rest.len() == "+02:00".len()) {
        return offset_ms(offset);
    }
    let known = SHORT_NAMES.iter().find(|(short, _)| *short == name).map(|(_, known)| *known);
    // Names in the tz database are matched exactly, and few of them have no slash.
    let is_exact = |zone: &TimeZone| zone.iana_name() == Some(known.unwrap_or(name));
    let zone = TimeZone::get(known.unwrap_or(name)).ok().filter(is_exact)?;
    let seconds = jiff::SignedDuration::from_millis(local_ms);
    let local = date(1970, 1, 1).to_datetime(jiff::civil::Time::midnight());
    let local = local.checked_add(seconds).ok()?;
    let offset = zone.to_ambiguous_timestamp(local).compatible().ok()?;
    Some(local_ms - offset.as_millisecond())
}

/// `+01`, `-0130` or `+01:00`
fn offset_ms(text: &str) -> Option<i64> {
    let (sign, digits) = text.split_at_checked(1)?;
    let digits = match digits.split_once(':') {
        Some((hours, minutes)) if hours.len() == 2 && minutes.len() == 2 => {
            format!("{hours}{minutes}")
        }
        Some(_) => return None,
        None => digits.to_owned(),
    };
    if !is_digits(&digits) || ![2, 4].contains(&digits.len()) {
        return None;
    }
    let hours: i64 = digits[..2].parse().ok()?;
    let minutes: i64 = digits.get(2..).filter(|m| !m.is_empty()).unwrap_or("0").parse().ok()?;
    // Source: java.time.ZoneOffset
    if hours > 18 || minutes > 59 {
        return None;
    }
    let ms = (hours * 60 + minutes) * 60_000;
    Some(if sign == "-" { -ms } else { ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_many_forms() {
        let expected = Ok(1_296_705_900_000);
        for text in [
            "2011-02-03 04:05+0000",
            "2011-02-03 04:05:00+0000",
            "2011-02-03T04:05:00.000Z",
            "2011-02-03 04:05",
            "2011-02-03 05:05+01:00",
            "2011-02-03 02:35-0130",
            "2011-02-03 04:05:00 GMT",
            "2011-02-03 05:05 CET",
            "2011-02-03 05:05:00.0 Europe/Berlin",
            "2011-02-02 20:05 PST",
            "2011-02-02 20:05 PDT",
            "2011-02-03 06:05 GMT+02:00",
            "1296705900000",
        ] {
            assert_eq!(parse_timestamp(text), expected, "{text}");
        }
        for (text, ms) in [
            ("2011-02-03", 1_296_691_200_000),
            ("2011-02-03z", 1_296_691_200_000),
            ("2011-02-03+0000", 1_296_691_200_000),
            ("2011-02-03 Europe/Berlin", 1_296_687_600_000),
            ("2011-07-03 04:05:06 CET", 1_309_658_706_000),
            ("2020-02-30", 1_582_934_400_000),
            ("2020-01-01T24:00", 1_577_923_200_000),
            ("2020-01-01T1:2:3", 1_577_840_523_000),
            ("-2020-01-01", -125_912_275_200_000),
            ("0", 0),
            ("-1", -1),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(parse_timestamp(text), Ok(ms), "{text}");
        }
        for text in [
            "2011-02-03 25:00",
            "2011-02-03 24:01",
            "2011-02-03 04:05+1",
            "2011-02-03 04:05 utc",
            "2011-02-03 04:05 XYZ",
            "2011-02-03 04:05 europe/berlin",
            "2011-02-03T04:05:06CET",
            "2011-02-03T04:05:06z",
            "2011-02-03 04:05 GMT+2",
            "2020-1-1",
            "2020-01-32",
            "2020-13-01",
            "2020-01-01 10",
            "2020-01-01 ",
            " 2020-01-01",
            "10000-01-01",
            "+5",
            "x",
            "ä",
            "2011-02-0ä",
        ] {
            let refused = format!("Unable to parse a date/time from '{text}'");
            assert_eq!(parse_timestamp(text), Err(refused));
        }
        let refused = "Unable to make long (for date) from: '9223372036854775808'";
        assert_eq!(parse_timestamp("9223372036854775808").unwrap_err(), refused);
    }
}
