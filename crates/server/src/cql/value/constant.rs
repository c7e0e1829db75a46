//! Constants of statements to bytes.

use std::net::IpAddr;

use num_bigint::BigInt;
use uuid::Uuid;

use super::number::Decimal;
use super::time::{self, Duration};
use crate::cql::term::Constant;
use crate::cql::type_name::Native;

/// The bytes of a constant for a type; the error is Cassandra's word for the constant's own kind.
// Source: native_protocol_v5.spec 6 "Data Type Serialization Formats"
pub fn encode(constant: &Constant, native: Native) -> Result<Vec<u8>, String> {
    let found = match constant {
        Constant::String(text) => return encode_string(text, native),
        Constant::Integer(digits) => encode_integer(digits, native),
        Constant::Float(digits) => encode_float(digits, native),
        Constant::Boolean(value) => (native == Native::Boolean).then(|| vec![u8::from(*value)]),
        Constant::Uuid(text) => encode_uuid(text, native),
        Constant::Blob(digits) if native == Native::Blob => return decode_hex(digits),
        Constant::Duration(text) if native == Native::Duration => {
            let duration = Duration::parse(text).map(Duration::encode);
            return duration.ok_or_else(|| format!("Unable to convert '{text}' to a duration"));
        }
        Constant::Blob(_) | Constant::Duration(_) => None,
    };
    found.ok_or_else(|| {
        format!(
            "Invalid {} constant ({}) for type {}",
            kind(constant),
            text(constant),
            native.name()
        )
    })
}

fn kind(constant: &Constant) -> &'static str {
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

fn text(constant: &Constant) -> String {
    match constant {
        Constant::Boolean(value) => value.to_string(),
        Constant::Blob(digits) => format!("0x{digits}"),
        Constant::String(text)
        | Constant::Integer(text)
        | Constant::Float(text)
        | Constant::Uuid(text)
        | Constant::Duration(text) => text.clone(),
    }
}

fn encode_integer(digits: &str, native: Native) -> Option<Vec<u8>> {
    Some(match native {
        Native::Tinyint => digits.parse::<i8>().ok()?.to_be_bytes().to_vec(),
        Native::Smallint => digits.parse::<i16>().ok()?.to_be_bytes().to_vec(),
        Native::Int => digits.parse::<i32>().ok()?.to_be_bytes().to_vec(),
        Native::Bigint | Native::Counter | Native::Timestamp => {
            digits.parse::<i64>().ok()?.to_be_bytes().to_vec()
        }
        Native::Time => {
            let ns: i64 = digits.parse().ok()?;
            (0..time::NS_PER_DAY).contains(&ns).then(|| ns.to_be_bytes().to_vec())?
        }
        Native::Date => digits.parse::<u32>().ok()?.to_be_bytes().to_vec(),
        Native::Varint => digits.parse::<BigInt>().ok()?.to_signed_bytes_be(),
        Native::Decimal | Native::Float | Native::Double => encode_float(digits, native)?,
        _ => return None,
    })
}

fn encode_float(digits: &str, native: Native) -> Option<Vec<u8>> {
    Some(match native {
        Native::Float => digits.parse::<f32>().ok()?.to_be_bytes().to_vec(),
        Native::Double => digits.parse::<f64>().ok()?.to_be_bytes().to_vec(),
        Native::Decimal => Decimal::parse(digits)?.encode(),
        _ => return None,
    })
}

fn encode_uuid(text: &str, native: Native) -> Option<Vec<u8>> {
    let uuid = Uuid::try_parse(text).ok()?;
    let is_wanted = native == Native::Uuid || native == Native::Timeuuid && is_time_based(&uuid);
    is_wanted.then(|| uuid.as_bytes().to_vec())
}

/// Whether it is a UUID of version 1.
pub fn is_time_based(uuid: &Uuid) -> bool {
    uuid.get_version_num() == 1
}

fn encode_string(text: &str, native: Native) -> Result<Vec<u8>, String> {
    let (found, wanted) = match native {
        Native::Text => (Some(text.as_bytes().to_vec()), ""),
        Native::Ascii => (text.is_ascii().then(|| text.as_bytes().to_vec()), "an ascii text"),
        Native::Inet => (text.parse().ok().map(encode_address), "an IP address"),
        Native::Timestamp => (
            time::parse_timestamp(text).map(|ms| ms.to_be_bytes().to_vec()),
            "a formatted date/time or a number of milliseconds",
        ),
        Native::Date => {
            (time::parse_days(text).and_then(encode_days), "a formatted date or a number of days")
        }
        Native::Time => (
            time::parse_time(text, true).map(|ns| ns.to_be_bytes().to_vec()),
            "a formatted time or a number of nanoseconds",
        ),
        _ => {
            let name = native.name();
            return Err(format!("Invalid STRING constant ({text}) for type {name}"));
        }
    };
    found.ok_or_else(|| format!("Unable to convert '{text}' to {wanted}"))
}

pub fn encode_address(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A day is a number without sign; 1970-01-01 is its middle.
// Source: native_protocol_v5.spec 6.4 "date"
fn encode_days(days: i64) -> Option<Vec<u8>> {
    let shifted = u32::try_from(days + (1 << 31)).ok()?;
    Some(shifted.to_be_bytes().to_vec())
}

pub fn decode_days(bytes: [u8; 4]) -> i64 {
    i64::from(u32::from_be_bytes(bytes)) - (1 << 31)
}

fn decode_hex(digits: &str) -> Result<Vec<u8>, String> {
    let refused = || format!("An hex string must have an even number of digits: 0x{digits}");
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
            (string("1970-01-01"), Native::Date, &[0x80, 0, 0, 0]),
            (string("1970-01-01 00:00:01"), Native::Timestamp, &[0, 0, 0, 0, 0, 0, 3, 0xe8]),
        ] {
            assert_eq!(encode(&constant, native).as_deref(), Ok(expected), "{constant:?}");
        }
    }

    #[test]
    fn wrong_constants_are_refused_by_their_kind() {
        let time_based = "550e8400-e29b-11d4-a716-446655440000";
        let random = "550e8400-e29b-41d4-a716-446655440000";
        assert!(encode(&Constant::Uuid(time_based.into()), Native::Timeuuid).is_ok());
        for (constant, native, expected) in [
            (string("x"), Native::Int, "Invalid STRING constant (x) for type int"),
            (integer("128"), Native::Tinyint, "Invalid INTEGER constant (128) for type tinyint"),
            (integer("1"), Native::Text, "Invalid INTEGER constant (1) for type text"),
            (Constant::Boolean(true), Native::Int, "Invalid BOOLEAN constant (true) for type int"),
            (
                Constant::Uuid(random.into()),
                Native::Timeuuid,
                "Invalid UUID constant (550e8400-e29b-41d4-a716-446655440000) for type timeuuid",
            ),
            (
                Constant::Blob("abc".into()),
                Native::Blob,
                "An hex string must have an even number of digits: 0xabc",
            ),
            (string("ä"), Native::Ascii, "Unable to convert 'ä' to an ascii text"),
        ] {
            assert_eq!(encode(&constant, native), Err(expected.to_owned()));
        }
    }
}
