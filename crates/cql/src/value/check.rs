//! Whether bytes of a client are a valid value of a type.

use uuid::Uuid;

use super::collection::{fields, items};
use super::constant::is_time_based;
use super::number::check_number;
use super::vector::{fixed_width, split_vector};
use crate::duration::{Duration, NS_PER_DAY};
use crate::type_name::Native;
use crate::types::CqlType;

/// Checks a value. The error names the expected format, in Cassandra's words.
pub fn check(bytes: &[u8], of: &CqlType) -> Result<(), String> {
    match of.unfrozen() {
        CqlType::Native(native) => check_native(bytes, *native),
        CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) if bytes.is_empty() => {
            Err(format!("Not enough bytes to read a {}", collection_name(of)))
        }
        CqlType::List(element) | CqlType::Set(element) => {
            check_items(bytes, 1, |_, item| check(item, element))
        }
        CqlType::Map(key, value) => {
            check_items(bytes, 2, |nth, item| check(item, if nth % 2 == 0 { key } else { value }))
        }
        CqlType::Tuple(parts) => check_fields(bytes, parts.iter()),
        CqlType::UserDefined(user) => {
            check_fields(bytes, user.fields.iter().map(|(_, field)| field))
        }
        CqlType::Vector(element, dimensions) => {
            if bytes.is_empty() {
                return Err("Invalid empty vector value".into());
            }
            let width = fixed_width(element);
            let parts = split_vector(bytes, *dimensions, width).ok_or_else(|| {
                format!("Not enough bytes to read a vector of {dimensions} elements")
            })?;
            parts.into_iter().try_for_each(|part| check(part, element))
        }
        CqlType::Frozen(_) => unreachable!("frozen types are never nested directly"),
    }
}

fn collection_name(of: &CqlType) -> &'static str {
    match of.unfrozen() {
        CqlType::Set(_) => "set",
        CqlType::Map(..) => "map",
        _ => "list",
    }
}

fn check_items(
    bytes: &[u8],
    per_item: usize,
    check: impl Fn(usize, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let items = items(bytes, per_item).map_err(|error| error.to_string())?;
    items.into_iter().enumerate().try_for_each(|(nth, item)| check(nth, item))
}

fn check_fields<'a>(
    bytes: &[u8],
    types: impl ExactSizeIterator<Item = &'a CqlType>,
) -> Result<(), String> {
    let fields = fields(bytes, types.len()).map_err(|error| error.to_string())?;
    let pairs = fields.into_iter().zip(types);
    pairs.filter_map(|(field, of)| Some((field?, of))).try_for_each(|(field, of)| check(field, of))
}

/// An empty value is allowed where Cassandra allows it: it is not null, but has no meaning.
fn check_native(bytes: &[u8], native: Native) -> Result<(), String> {
    let length = bytes.len();
    let expected = |what: &str| Err(format!("Expected {what} ({length})"));
    match native {
        Native::Blob => Ok(()),
        Native::Text => match std::str::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err("String didn't validate.".into()),
        },
        Native::Ascii if bytes.is_ascii() => Ok(()),
        Native::Ascii => Err("Invalid byte for ascii".into()),
        Native::Tinyint if length == 1 => Ok(()),
        Native::Tinyint => expected("1 byte for a tinyint"),
        Native::Smallint if length == 2 => Ok(()),
        Native::Smallint => expected("2 bytes for a smallint"),
        Native::Date if length == 4 => Ok(()),
        Native::Date => expected("4 byte long for date"),
        Native::Time => match <[u8; 8]>::try_from(bytes).map(i64::from_be_bytes) {
            Ok(ns) if (0..NS_PER_DAY).contains(&ns) => Ok(()),
            Ok(ns) => Err(format!("{ns} is not a time of day in nanoseconds")),
            Err(_) => expected("8 byte long for time"),
        },
        _ if length == 0 => match native {
            Native::Duration => expected("at least 3 bytes for a duration"),
            _ => Ok(()),
        },
        Native::Boolean if length == 1 => Ok(()),
        Native::Boolean => expected("1 or 0 byte value"),
        Native::Int | Native::Float if length == 4 => Ok(()),
        Native::Int => expected("4 or 0 byte int"),
        Native::Float => expected("4 or 0 byte value for a float"),
        Native::Bigint | Native::Counter | Native::Timestamp | Native::Double if length == 8 => {
            Ok(())
        }
        Native::Bigint | Native::Counter => expected("8 or 0 byte long"),
        Native::Timestamp => expected("8 or 0 byte long for date"),
        Native::Double => expected("8 or 0 byte value for a double"),
        Native::Varint => check_number(bytes, native),
        Native::Decimal if length > 4 => check_number(bytes, native),
        Native::Decimal => expected("0 or at least 5 bytes for a decimal"),
        Native::Inet if length == 4 || length == 16 => Ok(()),
        Native::Inet => expected("4 or 16 byte inetaddress"),
        Native::Uuid if length == 16 => Ok(()),
        Native::Uuid => expected("UUID should be 16 or 0 bytes"),
        Native::Timeuuid => match Uuid::from_slice(bytes) {
            Ok(uuid) if is_time_based(&uuid) => Ok(()),
            Ok(_) => Err("Invalid version for TimeUUID type.".into()),
            Err(_) => expected("TimeUUID should be 16 or 0 bytes"),
        },
        Native::Duration if Duration::decode(bytes).is_some() => Ok(()),
        Native::Duration => expected("months, days and nanoseconds of one sign for a duration"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::collection::{put_count, put_part};

    #[test]
    fn native_values_have_their_lengths() {
        for (native, good, bad) in [
            (Native::Int, &[0; 4][..], &[0; 3][..]),
            (Native::Int, &[], &[0; 5]),
            (Native::Bigint, &[0; 8], &[0; 4]),
            (Native::Tinyint, &[0], &[]),
            (Native::Smallint, &[0; 2], &[0]),
            (Native::Boolean, &[1], &[0; 2]),
            (Native::Text, "ä".as_bytes(), &[0xff]),
            (Native::Ascii, b"a", "ä".as_bytes()),
            (Native::Inet, &[0; 16], &[0; 5]),
            (Native::Uuid, &[0; 16], &[0; 15]),
            (Native::Time, &[0; 8], &[0x7f; 8]),
            (Native::Decimal, &[0, 0, 0, 0, 5], &[0; 4]),
            (Native::Duration, &[0; 3], &[]),
        ] {
            let of = CqlType::Native(native);
            assert_eq!(check(good, &of), Ok(()), "{of}");
            assert!(check(bad, &of).is_err(), "{of}");
        }
        assert!(check(&[0; 16], &CqlType::Native(Native::Timeuuid)).is_err());
    }

    #[test]
    fn parts_are_checked_too() {
        let list = CqlType::List(Box::new(CqlType::INT));
        let mut bytes = Vec::new();
        put_count(1, &mut bytes);
        put_part(Some(&[0; 4]), &mut bytes);
        assert_eq!(check(&bytes, &list), Ok(()));
        assert_eq!(check(b"", &list), Err("Not enough bytes to read a list".into()));
        bytes.truncate(4);
        put_part(Some(&[0; 3]), &mut bytes);
        assert_eq!(check(&bytes, &list), Err("Expected 4 or 0 byte int (3)".into()));
        let vector = CqlType::Vector(Box::new(CqlType::Native(Native::Float)), 2);
        assert_eq!(check(&[0; 8], &vector), Ok(()));
        assert!(check(&[0; 9], &vector).is_err());
        let texts = CqlType::Vector(Box::new(CqlType::TEXT), 2);
        assert_eq!(check(&[1, b'a', 0], &texts), Ok(()));
        assert!(check(&[1, b'a', 5], &texts).is_err());
    }
}
