//! Values as text: JSON for SELECT JSON, and constants in CQL syntax.

use std::net::IpAddr;

use num_bigint::BigInt;
use uuid::Uuid;

use base::hex::hex;

use super::calendar::CivilDay;
use super::collection::{fields, items};
use super::constant::decode_days;
use super::number::{Decimal, check_number, float_text};
use super::time::{format_time, format_timestamp};
use super::vector::{fixed_width, split_vector};
use crate::duration::Duration;
use crate::type_name::Native;
use crate::types::CqlType;

/// Appends the value as JSON. The bytes must have been checked; a value without a JSON form is
/// null. Numbers of any length keep their digits.
// Source: Cassandra's CQL documentation, "JSON Encoding of Cassandra Data Types"
pub fn put_json(bytes: &[u8], of: &CqlType, out: &mut String) {
    match of.unfrozen() {
        CqlType::Native(native) => put_native(bytes, *native, out),
        CqlType::List(element) | CqlType::Set(element) => {
            let items = items(bytes, 1).unwrap_or_default();
            put_array(items.into_iter().map(|item| (Some(item), &**element)), out);
        }
        CqlType::Map(key, value) => {
            let items = items(bytes, 2).unwrap_or_default();
            let (pairs, _) = items.as_chunks::<2>();
            let pairs =
                pairs.iter().map(|[name, item]| (map_key(name, key), Some(*item), &**value));
            put_object(pairs, out);
        }
        CqlType::Tuple(parts) => {
            let fields = fields(bytes, parts.len()).unwrap_or_default();
            put_array(fields.into_iter().zip(parts), out);
        }
        CqlType::UserDefined(user) => {
            let fields = fields(bytes, user.fields.len()).unwrap_or_default();
            let pairs = fields.into_iter().zip(&user.fields);
            put_object(pairs.map(|(field, (name, of))| (json_name(name), field, of)), out);
        }
        CqlType::Vector(element, dimensions) => {
            let parts = split_vector(bytes, *dimensions, fixed_width(element)).unwrap_or_default();
            put_array(parts.into_iter().map(|part| (Some(part), &**element)), out);
        }
        CqlType::Frozen(_) => unreachable!("frozen types are never nested directly"),
    }
}

fn put_array<'a>(items: impl Iterator<Item = (Option<&'a [u8]>, &'a CqlType)>, out: &mut String) {
    out.push('[');
    for (nth, (item, of)) in items.enumerate() {
        out.push_str(if nth == 0 { "" } else { ", " });
        put_part(item, of, out);
    }
    out.push(']');
}

fn put_object<'a>(
    pairs: impl Iterator<Item = (String, Option<&'a [u8]>, &'a CqlType)>,
    out: &mut String,
) {
    out.push('{');
    for (nth, (name, item, of)) in pairs.enumerate() {
        out.push_str(if nth == 0 { "" } else { ", " });
        put_string(&name, out);
        out.push_str(": ");
        put_part(item, of, out);
    }
    out.push('}');
}

fn put_part(part: Option<&[u8]>, of: &CqlType, out: &mut String) {
    match part {
        None => out.push_str("null"),
        Some(bytes) => put_json(bytes, of, out),
    }
}

fn put_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// A name as JSON: with quotes of its own unless it is all lower case.
pub(crate) fn json_name(name: &str) -> String {
    if name.chars().any(char::is_uppercase) { format!("\"{name}\"") } else { name.to_owned() }
}

/// Keys of JSON are texts: other values are printed into one.
fn map_key(bytes: &[u8], of: &CqlType) -> String {
    if let CqlType::Native(native) = of {
        let text = native_to_text(bytes, *native).unwrap_or_default();
        return if is_not_a_number(&text, *native) { "null".to_owned() } else { text };
    }
    let mut text = String::new();
    put_json(bytes, of, &mut text);
    text
}

fn put_native(bytes: &[u8], native: Native, out: &mut String) {
    let Some(text) = native_to_text(bytes, native) else {
        // An empty value without a meaning is not null.
        return out.push_str(if bytes.is_empty() { "\"\"" } else { "null" });
    };
    match native {
        _ if is_not_a_number(&text, native) => out.push_str("null"),
        Native::Tinyint
        | Native::Smallint
        | Native::Int
        | Native::Bigint
        | Native::Counter
        | Native::Varint
        | Native::Decimal
        | Native::Float
        | Native::Double
        | Native::Boolean => out.push_str(&text),
        _ => put_string(&text, out),
    }
}

/// Whether JSON has no syntax for the number, not even in a key.
fn is_not_a_number(text: &str, native: Native) -> bool {
    matches!(native, Native::Float | Native::Double)
        && ["NaN", "Infinity", "-Infinity"].contains(&text)
}

fn integer(bytes: &[u8]) -> Option<i64> {
    let number = BigInt::from_signed_bytes_be(bytes);
    if bytes.is_empty() { None } else { i64::try_from(number).ok() }
}

/// A native value as text that CQL reads back, without quotes. None for an empty value of a type
/// whose values are never empty.
pub(crate) fn native_to_text(bytes: &[u8], native: Native) -> Option<String> {
    let as_text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    match native {
        Native::Text | Native::Ascii => as_text(bytes),
        Native::Blob => Some(format!("0x{}", hex(bytes))),
        Native::Tinyint | Native::Smallint | Native::Int | Native::Bigint | Native::Counter => {
            integer(bytes).map(|value| value.to_string())
        }
        // Stored by a version without the limit.
        Native::Varint | Native::Decimal if check_number(bytes, native).is_err() => {
            Some(format!("0x{}", hex(bytes)))
        }
        Native::Varint => {
            (!bytes.is_empty()).then(|| BigInt::from_signed_bytes_be(bytes).to_string())
        }
        Native::Decimal => Decimal::decode(bytes).map(|decimal| decimal.to_string()),
        Native::Float => {
            <[u8; 4]>::try_from(bytes).ok().map(|bytes| float_text(f32::from_be_bytes(bytes)))
        }
        Native::Double => {
            <[u8; 8]>::try_from(bytes).ok().map(|bytes| float_text(f64::from_be_bytes(bytes)))
        }
        Native::Boolean => bytes.first().map(|byte| (*byte != 0).to_string()),
        Native::Uuid | Native::Timeuuid => {
            Uuid::from_slice(bytes).ok().map(|uuid| uuid.hyphenated().to_string())
        }
        Native::Inet => address(bytes).map(address_text),
        Native::Date => Some(CivilDay::after_epoch(decode_days(bytes.try_into().ok()?)).text()),
        Native::Time => Some(format_time(i64::from_be_bytes(bytes.try_into().ok()?))),
        Native::Timestamp => {
            Some(format_timestamp(i64::from_be_bytes(bytes.try_into().ok()?), ' '))
        }
        Native::Duration => Duration::decode(bytes).map(|duration| duration.to_string()),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

/// All eight groups, and IPv4-mapped addresses as IPv4.
// Source: java.net.InetAddress, getByAddress and getHostAddress
fn address_text(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let groups = address.segments().map(|group| format!("{group:x}"));
            groups.join(":")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::term::Constant;
    use crate::value::{collection, constant};

    fn json(bytes: &[u8], of: &CqlType) -> String {
        let mut out = String::new();
        put_json(bytes, of, &mut out);
        out
    }

    #[test]
    fn natives_have_their_text() {
        for (text, native) in [
            ("ä", Native::Text),
            ("127.0.0.1", Native::Inet),
            ("0:0:0:0:0:0:0:1", Native::Inet),
            ("2011-02-03", Native::Date),
            ("08:12:54.123000000", Native::Time),
            ("2011-02-03 04:05:06.789Z", Native::Timestamp),
        ] {
            let bytes = constant::encode(&Constant::String(text.into()), native).unwrap();
            assert_eq!(native_to_text(&bytes, native).as_deref(), Some(text));
            assert_eq!(json(&bytes, &CqlType::Native(native)), format!("\"{text}\""));
        }
        assert_eq!(native_to_text(&[0xca, 0xfe], Native::Blob).as_deref(), Some("0xcafe"));
        assert_eq!(native_to_text(&[], Native::Int), None);
        assert_eq!(native_to_text(&1.5_f32.to_be_bytes(), Native::Float).as_deref(), Some("1.5"));
    }

    #[test]
    fn json_keeps_digits_and_nests() {
        assert_eq!(json(&0.1_f32.to_be_bytes(), &CqlType::Native(Native::Float)), "0.1");
        let nan = f64::NAN.to_be_bytes();
        assert_eq!(json(&nan, &CqlType::Native(Native::Double)), "null");
        let digits = "1234567890123456789012345678901234567890";
        let varint = constant::encode(&Constant::Integer(digits.into()), Native::Varint).unwrap();
        assert_eq!(json(&varint, &CqlType::Native(Native::Varint)), digits);
        let mut map = Vec::new();
        collection::put_count(1, &mut map);
        collection::put_part(Some(&5_i32.to_be_bytes()), &mut map);
        collection::put_part(Some(b"x\""), &mut map);
        let of = CqlType::Map(Box::new(CqlType::INT), Box::new(CqlType::TEXT));
        assert_eq!(json(&map, &of), r#"{"5": "x\""}"#);
        let mut map = Vec::new();
        collection::put_count(1, &mut map);
        collection::put_part(Some(&f32::INFINITY.to_be_bytes()), &mut map);
        collection::put_part(Some(&[0x80, 0, 0, 0]), &mut map);
        let [float, date] = [Native::Float, Native::Date].map(CqlType::Native);
        let of = CqlType::Map(Box::new(float), Box::new(date));
        assert_eq!(json(&map, &of), r#"{"null": "1970-01-01"}"#);
        let mut tuple = Vec::new();
        collection::put_part(None, &mut tuple);
        collection::put_part(Some(&[1]), &mut tuple);
        let of = CqlType::Tuple(vec![CqlType::TEXT, CqlType::BOOLEAN]);
        assert_eq!(json(&tuple, &of), "[null, true]");
        assert_eq!(json_name("Name"), "\"Name\"");
    }
}
