//! Constants in statements to bytes.

use std::net::{IpAddr, Ipv4Addr};

use uuid::Uuid;

use super::calendar::CivilDay;
use super::collection::put_part;
use super::number::{Decimal, parse_integer};
use super::time;
use super::timestamp;
use crate::duration::{Duration, NS_PER_DAY};
use crate::term::Constant;
use crate::type_name::Native;
use crate::types::CqlType;

/// The bytes of a constant for a type that accepts its kind; the error is Cassandra's.
// Source: native_protocol_v5.spec 6 "Data Type Serialization Formats"; Cassandra 5.0,
// AbstractType.fromString of each type
pub(crate) fn encode(constant: &Constant, native: Native) -> Result<Vec<u8>, String> {
    match constant {
        Constant::String(text) => encode_string(text, native),
        Constant::Integer(digits) if native == Native::Duration => duration(digits),
        Constant::Integer(digits) => encode_integer(digits, native),
        Constant::Float(digits) => encode_float(digits, native),
        Constant::Boolean(value) if native == Native::Boolean => Ok(vec![u8::from(*value)]),
        Constant::Uuid(text) => encode_uuid(text, native),
        Constant::Blob(digits) if native == Native::Blob => decode_hex(digits),
        Constant::Duration(text) if native == Native::Duration => duration(text),
        Constant::Boolean(_) | Constant::Blob(_) | Constant::Duration(_) => {
            Err(wrong_kind(constant, native))
        }
    }
}

/// Encodes the text form of a value of any type that is not a collection.
// Source: Cassandra 5.0, AbstractType.fromString of each type
pub(crate) fn from_text(text: &str, of: &CqlType) -> Result<Vec<u8>, String> {
    match of.unfrozen() {
        CqlType::Native(native) => native_from_text(text, *native),
        CqlType::Tuple(parts) => tuple_from_text(text, parts, of),
        _ => Err(format!("Unable to make a value of type {of} from '{text}'")),
    }
}

fn native_from_text(text: &str, native: Native) -> Result<Vec<u8>, String> {
    match native {
        Native::Blob => decode_hex(text),
        _ if text.is_empty() && !matches!(native, Native::Date | Native::Time) => Ok(Vec::new()),
        Native::Uuid | Native::Timeuuid => encode_uuid(text, native),
        Native::Float | Native::Double | Native::Decimal => encode_float(text, native),
        Native::Duration => duration(text),
        Native::Boolean => match text.to_ascii_lowercase().as_str() {
            "true" => Ok(vec![1]),
            "false" => Ok(vec![0]),
            _ => Err(format!("Unable to make boolean from '{text}'")),
        },
        Native::Tinyint
        | Native::Smallint
        | Native::Int
        | Native::Bigint
        | Native::Counter
        | Native::Varint => encode_integer(text, native),
        Native::Text
        | Native::Ascii
        | Native::Inet
        | Native::Date
        | Native::Time
        | Native::Timestamp => encode_string(text, native),
    }
}

/// `1:foo:@`: parts separated by colons, `@` for null. A backslash escapes both.
// Source: Cassandra 5.0, TupleType.fromString
fn tuple_from_text(text: &str, parts: &[CqlType], of: &CqlType) -> Result<Vec<u8>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut texts = vec![String::new()];
    let mut is_escaped = false;
    for character in text.chars() {
        if character == ':' && !is_escaped {
            texts.push(String::new());
        } else if let Some(text) = texts.last_mut() {
            text.push(character);
        }
        is_escaped = character == '\\';
    }
    if texts.len() > parts.len() {
        return Err(format!(
            "Invalid tuple literal: too many elements. Type {of} expects {} but got {}",
            parts.len(),
            texts.len()
        ));
    }
    let mut bytes = Vec::new();
    for (text, part) in texts.iter().zip(parts) {
        if text == "@" {
            put_part(None, &mut bytes);
            continue;
        }
        let text = text.replace("\\:", ":").replace("\\@", "@");
        put_part(Some(&from_text(&text, part)?), &mut bytes);
    }
    parts[texts.len()..].iter().for_each(|_| put_part(None, &mut bytes));
    Ok(bytes)
}

fn wrong_kind(constant: &Constant, native: Native) -> String {
    let text = match constant {
        Constant::String(text) => text.clone(),
        other => other.to_string(),
    };
    let kind = kind(constant);
    format!("Invalid {kind} constant ({text}) for type {}", native.name())
}

fn duration(text: &str) -> Result<Vec<u8>, String> {
    Duration::parse(text).map(Duration::encode)
}

/// Cassandra's name for this kind of constant.
pub(crate) fn kind(constant: &Constant) -> &'static str {
    match constant {
        Constant::String(_) => "STRING",
        Constant::Integer(_) => "INTEGER",
        Constant::Float(_) => "FLOAT",
        Constant::Boolean(_) => "BOOLEAN",
        Constant::Uuid(_) => "UUID",
        Constant::Blob(_) => "HEX",
        Constant::Duration(_) => "DURATION",
    }
}

fn encode_integer(digits: &str, native: Native) -> Result<Vec<u8>, String> {
    let unable = |what: &str| format!("Unable to make {what} from '{digits}'");
    match native {
        Native::Tinyint => {
            let value = digits.parse::<i8>().map(|value| value.to_be_bytes().to_vec());
            value.map_err(|_| unable("byte"))
        }
        Native::Smallint => {
            let value = digits.parse::<i16>().map(|value| value.to_be_bytes().to_vec());
            value.map_err(|_| unable("short"))
        }
        Native::Int => {
            let value = digits.parse::<i32>().map(|value| value.to_be_bytes().to_vec());
            value.map_err(|_| unable("int"))
        }
        Native::Bigint | Native::Counter => long(digits).ok_or_else(|| unable("long")),
        Native::Timestamp => {
            let bytes = long(digits);
            bytes.ok_or_else(|| format!("Unable to make long (for date) from: '{digits}'"))
        }
        Native::Time => {
            let ns = digits.parse().ok().filter(|ns| (0..NS_PER_DAY).contains(ns));
            let bytes = ns.map(|ns: i64| ns.to_be_bytes().to_vec());
            bytes.ok_or_else(|| format!("Unable to make long (for time) from: '{digits}'"))
        }
        Native::Date => {
            let days = digits.parse::<u32>().map(|days| days.to_be_bytes().to_vec());
            days.map_err(|_| format!("Unable to make unsigned int (for date) from: '{digits}'"))
        }
        Native::Varint => {
            let value = parse_integer(digits).map(|value| value.to_signed_bytes_be());
            value.ok_or_else(|| format!("unable to make int from '{digits}'"))
        }
        Native::Decimal | Native::Float | Native::Double => encode_float(digits, native),
        _ => Err(wrong_kind(&Constant::Integer(digits.to_owned()), native)),
    }
}

fn long(digits: &str) -> Option<Vec<u8>> {
    digits.parse::<i64>().ok().map(|value| value.to_be_bytes().to_vec())
}

fn encode_float(digits: &str, native: Native) -> Result<Vec<u8>, String> {
    match native {
        Native::Float => {
            let value = digits.parse::<f32>().map(|value| value.to_be_bytes().to_vec());
            value.map_err(|_| format!("Unable to make float from '{digits}'"))
        }
        Native::Double => {
            let value = digits.parse::<f64>().map(|value| value.to_be_bytes().to_vec());
            value.map_err(|_| format!("Unable to make double from '{digits}'"))
        }
        Native::Decimal => Decimal::parse(digits)
            .map(|decimal| decimal.encode())
            .ok_or_else(|| format!("unable to make BigDecimal from '{digits}'")),
        _ => Err(wrong_kind(&Constant::Float(digits.to_owned()), native)),
    }
}

/// A UUID's bytes; a time-based one must be of version 1.
pub(crate) fn encode_uuid(text: &str, native: Native) -> Result<Vec<u8>, String> {
    // Cassandra accepts only the form with hyphens.
    let uuid = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
    match (native, uuid) {
        (Native::Uuid, Some(uuid)) => Ok(uuid.as_bytes().to_vec()),
        (Native::Uuid, None) => Err(format!("Unable to make UUID from '{text}'")),
        (Native::Timeuuid, Some(uuid)) if is_time_based(&uuid) => Ok(uuid.as_bytes().to_vec()),
        (Native::Timeuuid, Some(_)) => Err("TimeUUID supports only version 1 UUIDs".to_owned()),
        (Native::Timeuuid, None) => Err(format!("Unknown timeuuid representation: {text}")),
        _ => Err(wrong_kind(&Constant::Uuid(text.to_owned()), native)),
    }
}

/// Whether it is a UUID of version 1.
pub(crate) fn is_time_based(uuid: &Uuid) -> bool {
    uuid.get_version_num() == 1
}

fn encode_string(text: &str, native: Native) -> Result<Vec<u8>, String> {
    match native {
        Native::Text => Ok(text.as_bytes().to_vec()),
        Native::Ascii if text.is_ascii() => Ok(text.as_bytes().to_vec()),
        Native::Ascii => Err(format!(
            "Invalid ASCII character in string literal: java.nio.charset.UnmappableCharacterException: Input length = {}",
            // Java counts UTF-16 units.
            text.chars().find(|character| !character.is_ascii()).map_or(0, char::len_utf16)
        )),
        Native::Inet | Native::Timestamp if text.is_empty() => Ok(Vec::new()),
        Native::Inet => parse_address(text)
            .map(encode_address)
            .ok_or_else(|| format!("Unable to make inet address from '{text}'")),
        Native::Timestamp => timestamp::parse_timestamp(text).map(|ms| ms.to_be_bytes().to_vec()),
        Native::Date | Native::Time if is_number(text) => encode_integer(text, native),
        Native::Date => encode_date(text),
        // Source: Cassandra 5.0, TimeSerializer.parseTimeStrictly
        Native::Time => {
            time::parse_time(text.trim(), true).map(|ns| ns.to_be_bytes().to_vec()).ok_or_else(
                || format!("(TimeType) Unable to coerce '{text}' to a formatted time (long)"),
            )
        }
        _ => Err(wrong_kind(&Constant::String(text.to_owned()), native)),
    }
}

fn is_number(text: &str) -> bool {
    time::is_digits(text.strip_prefix('-').unwrap_or(text))
}

/// Parses an address without DNS: the only host name is `localhost`.
// Source: java.net.InetAddress.getByName
fn parse_address(text: &str) -> Option<IpAddr> {
    if text == "localhost" {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let address = match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => IpAddr::V6(inner.parse().ok()?),
        None => match text.parse() {
            Ok(address) => address,
            Err(_) => IpAddr::V4(short_address(text)?),
        },
    };
    Some(match address {
        IpAddr::V6(mapped) => mapped.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    })
}

/// `127.1`: the last part fills the remaining bytes.
fn short_address(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > 4 || parts.iter().any(|part| !time::is_digits(part)) {
        return None;
    }
    let (last, first) = parts.split_last()?;
    let mut bytes = [0; 4];
    for (byte, part) in bytes.iter_mut().zip(first) {
        *byte = part.parse().ok()?;
    }
    let last: u32 = last.parse().ok()?;
    let free_bits = 8 * (4 - first.len());
    if u64::from(last) >> free_bits != 0 {
        return None;
    }
    Some(Ipv4Addr::from(u32::from_be_bytes(bytes) | last))
}

// Source: Cassandra 5.0, SimpleDateSerializer.dateStringToDays
fn encode_date(text: &str) -> Result<Vec<u8>, String> {
    let days = CivilDay::parse(text).and_then(CivilDay::since_epoch);
    // Days whose milliseconds overflow are invalid.
    let days = days
        .filter(|days| days.checked_mul(time::MS_PER_DAY).is_some())
        .ok_or_else(|| format!("Unable to coerce '{text}' to a formatted date (long)"))?;
    encode_days(days).ok_or_else(|| {
        let (what, limit) = if days < 0 {
            ("less than min", "-5877641-06-23")
        } else {
            ("greater than max", "+5881580-07-11")
        };
        format!("Input date {text} is {what} supported date {limit}T00:00Z")
    })
}

pub(crate) fn encode_address(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A day is an unsigned number; 1970-01-01 is the middle of its range.
// Source: native_protocol_v5.spec 6.4 "date"
pub(crate) fn encode_days(days: i64) -> Option<Vec<u8>> {
    let shifted = u32::try_from(days + (1 << 31)).ok()?;
    Some(shifted.to_be_bytes().to_vec())
}

pub(crate) fn decode_days(bytes: [u8; 4]) -> i64 {
    i64::from(u32::from_be_bytes(bytes)) - (1 << 31)
}

fn decode_hex(digits: &str) -> Result<Vec<u8>, String> {
    let refused = || format!("cannot parse '{digits}' as hex bytes");
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return Err(refused());
    }
    let value =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |&[high, low]: &[u8; 2]| Some(value(high)? << 4 | value(low)?);
    pairs.iter().map(pair).collect::<Option<_>>().ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Constant {
        Constant::String(text.into())
    }

    fn integer(text: &str) -> Constant {
        Constant::Integer(text.into())
    }

    #[test]
    fn constants_become_bytes() {
        for (constant, native, expected) in [
            (string("ä"), Native::Text, &[0xc3, 0xa4][..]),
            (integer("-1"), Native::Int, &[0xff; 4]),
            (integer("128"), Native::Varint, &[0, 128]),
            (integer("5"), Native::Decimal, &[0, 0, 0, 0, 5]),
            (Constant::Float("1.5".into()), Native::Decimal, &[0, 0, 0, 1, 15]),
            (Constant::Float("1.5".into()), Native::Float, &[0x3f, 0xc0, 0, 0]),
            (Constant::Boolean(true), Native::Boolean, &[1]),
            (Constant::Blob("CAfe".into()), Native::Blob, &[0xca, 0xfe]),
            (string("127.0.0.1"), Native::Inet, &[127, 0, 0, 1]),
            (string("127.1"), Native::Inet, &[127, 0, 0, 1]),
            (string("2130706433"), Native::Inet, &[127, 0, 0, 1]),
            (string("1.2.65535"), Native::Inet, &[1, 2, 255, 255]),
            (string("localhost"), Native::Inet, &[127, 0, 0, 1]),
            (string("::ffff:1.2.3.4"), Native::Inet, &[1, 2, 3, 4]),
            (string(""), Native::Inet, &[]),
            (string("123"), Native::Date, &[0, 0, 0, 123]),
            (string("7"), Native::Time, &[0, 0, 0, 0, 0, 0, 0, 7]),
            (string(" 0:0:0.000000001"), Native::Time, &[0, 0, 0, 0, 0, 0, 0, 1]),
            (string("1970-01-01"), Native::Date, &[0x80, 0, 0, 0]),
            (string("1970-01-01 00:00:01"), Native::Timestamp, &[0, 0, 0, 0, 0, 0, 3, 0xe8]),
        ] {
            assert_eq!(encode(&constant, native).as_deref(), Ok(expected), "{constant:?}");
        }
    }

    #[test]
    fn tuples_have_a_text() {
        let of = CqlType::Tuple(vec![CqlType::INT, CqlType::TEXT]);
        let tuple = |number: Option<&[u8]>, text: Option<&str>| {
            let mut bytes = Vec::new();
            put_part(number, &mut bytes);
            put_part(text.map(str::as_bytes), &mut bytes);
            bytes
        };
        let one: Option<&[u8]> = Some(&[0, 0, 0, 1]);
        for (text, expected) in [
            ("1:foo", tuple(one, Some("foo"))),
            ("1", tuple(one, None)),
            ("@:foo", tuple(None, Some("foo"))),
            ("1:a\\:b\\@", tuple(one, Some("a:b@"))),
            (":", tuple(Some(&[]), Some(""))),
            ("", Vec::new()),
        ] {
            assert_eq!(from_text(text, &of), Ok(expected), "{text}");
        }
        let refused = "Invalid tuple literal: too many elements. Type frozen<tuple<int, text>> \
                       expects 2 but got 3";
        assert_eq!(from_text("1:a:b", &of), Err(refused.to_owned()));
        assert_eq!(from_text("x", &of), Err("Unable to make int from 'x'".to_owned()));
    }

    #[test]
    fn dates_reach_as_far_as_their_numbers() {
        for (text, expected) in [
            ("-5877641-06-23", Ok(&[0; 4][..])),
            ("+5881580-07-11", Ok(&[0xff; 4])),
            (
                "-5877641-06-22",
                Err("Input date -5877641-06-22 is less than min supported date \
                     -5877641-06-23T00:00Z"),
            ),
            (
                "+5881580-07-12",
                Err("Input date +5881580-07-12 is greater than max supported date \
                     +5881580-07-11T00:00Z"),
            ),
            (
                "+9999999999-01-01",
                Err("Unable to coerce '+9999999999-01-01' to a formatted date (long)"),
            ),
            ("2011-2-3", Err("Unable to coerce '2011-2-3' to a formatted date (long)")),
        ] {
            let found = encode(&string(text), Native::Date);
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn wrong_constants_are_refused_by_their_kind() {
        let time_based = "550e8400-e29b-11d4-a716-446655440000";
        let random = "550e8400-e29b-41d4-a716-446655440000";
        assert!(encode(&Constant::Uuid(time_based.into()), Native::Timeuuid).is_ok());
        for (constant, native, expected) in [
            (string("x"), Native::Int, "Invalid STRING constant (x) for type int"),
            (integer("1"), Native::Text, "Invalid INTEGER constant (1) for type text"),
            (Constant::Boolean(true), Native::Int, "Invalid BOOLEAN constant (true) for type int"),
            (integer("128"), Native::Tinyint, "Unable to make byte from '128'"),
            (integer("32768"), Native::Smallint, "Unable to make short from '32768'"),
            (integer("2147483648"), Native::Int, "Unable to make int from '2147483648'"),
            (
                integer("9223372036854775808"),
                Native::Bigint,
                "Unable to make long from '9223372036854775808'",
            ),
            (integer("-1"), Native::Date, "Unable to make unsigned int (for date) from: '-1'"),
            (integer("-1"), Native::Time, "Unable to make long (for time) from: '-1'"),
            (integer("12"), Native::Duration, "Unable to convert '12' to a duration"),
            (
                Constant::Uuid(random.into()),
                Native::Timeuuid,
                "TimeUUID supports only version 1 UUIDs",
            ),
            (Constant::Blob("abc".into()), Native::Blob, "cannot parse 'abc' as hex bytes"),
            (
                string("aä"),
                Native::Ascii,
                "Invalid ASCII character in string literal: java.nio.charset.UnmappableCharacterException: Input length = 1",
            ),
            (string("256.1.1.1"), Native::Inet, "Unable to make inet address from '256.1.1.1'"),
            (string("1.2.65536"), Native::Inet, "Unable to make inet address from '1.2.65536'"),
            (string("-5"), Native::Date, "Unable to make unsigned int (for date) from: '-5'"),
            (string("-1"), Native::Time, "Unable to make long (for time) from: '-1'"),
            (string("x"), Native::Inet, "Unable to make inet address from 'x'"),
            (string("x"), Native::Timestamp, "Unable to parse a date/time from 'x'"),
            (string("x"), Native::Date, "Unable to coerce 'x' to a formatted date (long)"),
            (
                string("x"),
                Native::Time,
                "(TimeType) Unable to coerce 'x' to a formatted time (long)",
            ),
        ] {
            assert_eq!(encode(&constant, native), Err(expected.to_owned()));
        }
    }
}
