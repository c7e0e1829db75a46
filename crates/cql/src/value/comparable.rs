//! Clustering keys as bytes that sort like their values.
//!
//! Each part is followed by nothing or is self-delimiting, so that a prefix of a key sorts before
//! all keys that begin with it, and the values can be decoded. All bits of a descending column's
//! part are inverted.

use num_bigint::{BigInt, Sign};

use super::collection::{fields, items, put_count, put_part};
use super::number::Decimal;
use super::vector::{fixed_width, put_element, split_vector};
use crate::type_name::Native;
use crate::types::{CqlType, UserType};

/// Ends texts; a zero byte inside is followed by `0xFF`.
const END: u8 = 0x00;
const ESCAPE: u8 = 0xFF;
/// Precedes each part of a tuple and each item of a collection. `ABSENT` also ends the items.
const ABSENT: u8 = 0x01;
const PRESENT: u8 = 0x02;
/// Ends the fields of a user-defined type. It sorts before every further field.
const FIELDS_END: u8 = 0x00;
const _: () = assert!(FIELDS_END < ABSENT && ABSENT < PRESENT);

/// Appends one part of a key. The bytes must be a checked value of the type.
pub fn encode(bytes: &[u8], of: &CqlType, is_descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    put(bytes, of, out);
    if is_descending {
        for byte in &mut out[start..] {
            *byte = !*byte;
        }
    }
}

/// Removes one part from the front of a key: the bytes passed to [`encode`]; for a decimal, those
/// of an equal number. None if the key is damaged.
pub fn decode(key: &mut &[u8], of: &CqlType, is_descending: bool) -> Option<Vec<u8>> {
    if !is_descending {
        return take(key, of);
    }
    let turned: Vec<u8> = key.iter().map(|byte| !byte).collect();
    let mut rest = &turned[..];
    let value = take(&mut rest, of)?;
    *key = &key[key.len() - rest.len()..];
    Some(value)
}

fn put(bytes: &[u8], of: &CqlType, out: &mut Vec<u8>) {
    match of.unfrozen() {
        CqlType::Native(native) => put_native(bytes, *native, out),
        CqlType::List(element) | CqlType::Set(element) => put_items(bytes, &[element], out),
        CqlType::Map(key, value) => put_items(bytes, &[key, value], out),
        CqlType::Tuple(parts) => put_parts(bytes, parts, out),
        CqlType::UserDefined(user) => put_fields(bytes, user, out),
        CqlType::Vector(element, dimensions) => {
            let parts = split_vector(bytes, *dimensions, fixed_width(element));
            parts.expect("was checked").into_iter().for_each(|part| put(part, element, out));
        }
        CqlType::Frozen(_) => unreachable!("frozen types are never nested directly"),
    }
}

fn take(key: &mut &[u8], of: &CqlType) -> Option<Vec<u8>> {
    match of.unfrozen() {
        CqlType::Native(native) => take_native(key, *native),
        CqlType::List(element) | CqlType::Set(element) => take_items(key, &[element]),
        CqlType::Map(name, value) => take_items(key, &[name, value]),
        CqlType::Tuple(parts) => take_parts(key, parts),
        CqlType::UserDefined(user) => take_fields(key, user),
        CqlType::Vector(element, dimensions) => {
            let mut value = Vec::new();
            for _ in 0..*dimensions {
                put_element(&take(key, element)?, fixed_width(element), &mut value);
            }
            Some(value)
        }
        CqlType::Frozen(_) => None,
    }
}

/// How values of a type are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// As bytes, with an end mark.
    Text,
    /// As bytes, all of one length.
    Fixed(usize),
    /// As bytes with the first bit inverted.
    Signed(usize),
    /// IEEE 754: all bits of negative numbers are inverted.
    Float(usize),
    Varint,
    Decimal,
    /// By time, then as signed bytes.
    TimeUuid,
    /// By version, then by time if it has one, then as bytes.
    Uuid,
}

fn order(native: Native) -> Order {
    match native {
        // Durations have no order and cannot be part of a key.
        Native::Text | Native::Ascii | Native::Blob | Native::Inet | Native::Duration => {
            Order::Text
        }
        Native::Boolean => Order::Fixed(1),
        Native::Date => Order::Fixed(4),
        Native::Time => Order::Fixed(8),
        Native::Tinyint => Order::Signed(1),
        Native::Smallint => Order::Signed(2),
        Native::Int => Order::Signed(4),
        Native::Bigint | Native::Timestamp | Native::Counter => Order::Signed(8),
        Native::Float => Order::Float(4),
        Native::Double => Order::Float(8),
        Native::Varint => Order::Varint,
        Native::Decimal => Order::Decimal,
        Native::Timeuuid => Order::TimeUuid,
        Native::Uuid => Order::Uuid,
    }
}

fn put_native(bytes: &[u8], native: Native, out: &mut Vec<u8>) {
    let order = order(native);
    if order == Order::Text {
        return put_text(bytes, out);
    }
    // An empty value sorts before all others.
    if bytes.is_empty() {
        return out.push(ABSENT);
    }
    out.push(PRESENT);
    match order {
        Order::Text => {}
        Order::Fixed(_) => out.extend_from_slice(bytes),
        Order::Signed(_) => {
            out.push(bytes[0] ^ 0x80);
            out.extend_from_slice(&bytes[1..]);
        }
        Order::Float(_) => {
            let turn = if bytes[0] & 0x80 == 0 { 0x00 } else { 0xFF };
            out.push((bytes[0] ^ turn) | (!turn & 0x80));
            out.extend(bytes[1..].iter().map(|byte| byte ^ turn));
        }
        Order::Varint => put_varint(&BigInt::from_signed_bytes_be(bytes), out),
        Order::Decimal => {
            let decimal = Decimal::decode(bytes).expect("was checked");
            put_decimal(&decimal, out);
        }
        Order::TimeUuid => put_time_uuid(bytes, out),
        Order::Uuid => {
            let version = bytes[6] >> 4;
            out.push(version);
            if version == 1 { put_time_uuid(bytes, out) } else { out.extend_from_slice(bytes) }
        }
    }
}

fn take_native(key: &mut &[u8], native: Native) -> Option<Vec<u8>> {
    let order = order(native);
    if order == Order::Text {
        return take_text(key);
    }
    if take_byte(key)? == ABSENT {
        return Some(Vec::new());
    }
    match order {
        Order::Text => None,
        Order::Fixed(bytes) => Some(take_bytes(key, bytes)?.to_vec()),
        Order::Signed(bytes) => {
            let mut value = take_bytes(key, bytes)?.to_vec();
            value[0] ^= 0x80;
            Some(value)
        }
        Order::Float(bytes) => {
            let value = take_bytes(key, bytes)?;
            let turn = if value[0] & 0x80 == 0 { 0xFF } else { 0x00 };
            let mut value: Vec<u8> = value.iter().map(|byte| byte ^ turn).collect();
            value[0] = if turn == 0 { value[0] & 0x7F } else { value[0] | 0x80 };
            Some(value)
        }
        Order::Varint => Some(take_varint(key)?.to_signed_bytes_be()),
        Order::Decimal => Some(take_decimal(key)?.encode()),
        Order::TimeUuid => take_time_uuid(key),
        Order::Uuid => {
            if take_byte(key)? == 1 {
                return take_time_uuid(key);
            }
            Some(take_bytes(key, 16)?.to_vec())
        }
    }
}

fn take_byte(key: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = key.split_first()?;
    *key = rest;
    Some(byte)
}

fn take_bytes<'a>(key: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = key.split_at_checked(count)?;
    *key = rest;
    Some(taken)
}

fn put_text(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        out.push(byte);
        if byte == END {
            out.push(ESCAPE);
        }
    }
    // Bytes after the end mark are below the escape: the shorter text sorts first.
    out.extend_from_slice(&[END, 0x00]);
}

fn take_text(key: &mut &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    loop {
        let byte = take_byte(key)?;
        if byte == END && take_byte(key)? != ESCAPE {
            return Some(value);
        }
        value.push(byte);
    }
}

/// Sign and length first, then the digits; inverted for a negative number.
fn put_varint(value: &BigInt, out: &mut Vec<u8>) {
    let (sign, digits) = value.to_bytes_be();
    let digits = if sign == Sign::NoSign { Vec::new() } else { digits };
    let length = u32::try_from(digits.len()).expect("values are below 2 GiB").to_be_bytes();
    if sign == Sign::Minus {
        out.push(0x00);
        out.extend(length.iter().chain(&digits).map(|byte| !byte));
    } else {
        out.push(0x01);
        out.extend(length.iter().chain(&digits));
    }
}

fn take_varint(key: &mut &[u8]) -> Option<BigInt> {
    let (sign, turn) = if take_byte(key)? == 0 { (Sign::Minus, 0xFF) } else { (Sign::Plus, 0x00) };
    let length: [u8; 4] = take_bytes(key, 4)?.try_into().ok()?;
    let length = u32::from_be_bytes(length.map(|byte| byte ^ turn)) as usize;
    let digits: Vec<u8> = take_bytes(key, length)?.iter().map(|byte| byte ^ turn).collect();
    Some(BigInt::from_bytes_be(sign, &digits))
}

/// Sign, exponent, then the decimal digits as text without trailing zeros.
fn put_decimal(decimal: &Decimal, out: &mut Vec<u8>) {
    let text = decimal.unscaled.magnitude().to_string();
    let digits = text.trim_end_matches('0');
    if digits.is_empty() {
        return out.push(0x01);
    }
    // The number is 0.digits * 10^exponent.
    let length = i64::try_from(text.len()).expect("texts fit memory");
    let exponent = length - i64::from(decimal.scale);
    let mut body = (exponent.cast_unsigned() ^ 1 << 63).to_be_bytes().to_vec();
    body.extend_from_slice(digits.as_bytes());
    body.push(END);
    if decimal.unscaled.sign() == Sign::Minus {
        out.push(0x00);
        out.extend(body.iter().map(|byte| !byte));
    } else {
        out.push(0x02);
        out.extend_from_slice(&body);
    }
}

/// Trailing zeros of a whole number that are written out: 100 instead of 1E+2.
const ZEROS_MAX: u32 = 38;

fn take_decimal(key: &mut &[u8]) -> Option<Decimal> {
    let turn = match take_byte(key)? {
        0x01 => return Some(Decimal { unscaled: BigInt::ZERO, scale: 0 }),
        0x00 => 0xFF,
        _ => 0x00,
    };
    let exponent: [u8; 8] = take_bytes(key, 8)?.try_into().ok()?;
    let exponent = u64::from_be_bytes(exponent.map(|byte| byte ^ turn)) ^ 1 << 63;
    let mut digits = String::new();
    loop {
        match take_byte(key)? ^ turn {
            END => break,
            digit => digits.push(char::from(digit)),
        }
    }
    let length = i64::try_from(digits.len()).ok()?;
    let scale = i32::try_from(length.checked_sub(exponent.cast_signed())?).ok()?;
    let unscaled: BigInt = digits.parse().ok()?;
    let unscaled = if turn == 0 { unscaled } else { -unscaled };
    let zeros = scale.unsigned_abs();
    if scale < 0 && zeros <= ZEROS_MAX {
        return Some(Decimal { unscaled: unscaled * BigInt::from(10).pow(zeros), scale: 0 });
    }
    Some(Decimal { unscaled, scale })
}

/// A UUID contains the time in three pieces, the lowest first: the key contains them in descending
/// significance, without the version. The remaining bytes are compared as signed.
// Source: RFC 4122 4.1.2; Cassandra's TimeUUIDType
fn put_time_uuid(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[bytes[6] & 0x0F, bytes[7], bytes[4], bytes[5]]);
    out.extend_from_slice(&bytes[..4]);
    out.extend(bytes[8..].iter().map(|byte| byte ^ 0x80));
}

fn take_time_uuid(key: &mut &[u8]) -> Option<Vec<u8>> {
    let from = take_bytes(key, 16)?;
    let mut value = from[4..8].to_vec();
    value.extend_from_slice(&[from[2], from[3], from[0] | 0x10, from[1]]);
    value.extend(from[8..].iter().map(|byte| byte ^ 0x80));
    Some(value)
}

fn put_items(bytes: &[u8], types: &[&CqlType], out: &mut Vec<u8>) {
    let items = items(bytes, types.len()).expect("was checked");
    for (nth, item) in items.into_iter().enumerate() {
        out.push(PRESENT);
        put(item, types[nth % types.len()], out);
    }
    out.push(ABSENT);
}

fn take_items(key: &mut &[u8], types: &[&CqlType]) -> Option<Vec<u8>> {
    let mut parts = Vec::new();
    while take_byte(key)? == PRESENT {
        parts.push(take(key, types[parts.len() % types.len()])?);
    }
    let mut value = Vec::new();
    put_count(parts.len() / types.len(), &mut value);
    for part in &parts {
        put_part(Some(part), &mut value);
    }
    Some(value)
}

/// The parts of a tuple: their number is fixed by the type and never changes.
fn put_parts(bytes: &[u8], types: &[CqlType], out: &mut Vec<u8>) {
    let parts = fields(bytes, types.len()).expect("was checked");
    for (part, of) in parts.into_iter().zip(types) {
        put_part_of(part, of, out);
    }
}

fn put_part_of(part: Option<&[u8]>, of: &CqlType, out: &mut Vec<u8>) {
    match part {
        None => out.push(ABSENT),
        Some(part) => {
            out.push(PRESENT);
            put(part, of, out);
        }
    }
}

fn take_parts(key: &mut &[u8], types: &[CqlType]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for of in types {
        let is_present = take_byte(key)? == PRESENT;
        let part = if is_present { Some(take(key, of)?) } else { None };
        put_part(part.as_deref(), &mut value);
    }
    Some(value)
}

/// The fields of a user-defined type up to the last one that is not null.
///
/// Invariant: the bytes of a value do not depend on how many fields the type had when the value was
/// encoded, since ALTER TYPE adds fields only at the end and stored values have null there. Stored
/// keys therefore stay equal to the keys that statements encode after the type has grown.
fn put_fields(bytes: &[u8], user: &UserType, out: &mut Vec<u8>) {
    let fields = fields(bytes, user.fields.len()).expect("was checked");
    let count = fields.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    for (field, (_, of)) in fields[..count].iter().zip(&user.fields) {
        put_part_of(*field, of, out);
    }
    out.push(FIELDS_END);
}

/// All current fields of the type.
fn take_fields(key: &mut &[u8], user: &UserType) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let mut types = user.fields.iter().map(|(_, of)| of);
    loop {
        let part = match take_byte(key)? {
            FIELDS_END => break,
            PRESENT => Some(take(key, types.next()?)?),
            _ => types.next().map(|_| None)?,
        };
        put_part(part.as_deref(), &mut value);
    }
    types.for_each(|_| put_part(None, &mut value));
    Some(value)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::term::Constant;
    use crate::value::constant;
    use proptest::prelude::*;

    fn encoded(bytes: &[u8], of: &CqlType, is_descending: bool) -> Vec<u8> {
        let mut out = Vec::new();
        encode(bytes, of, is_descending, &mut out);
        out
    }

    fn check(values: &[Vec<u8>], of: &CqlType) {
        for is_descending in [false, true] {
            let keys: Vec<Vec<u8>> =
                values.iter().map(|value| encoded(value, of, is_descending)).collect();
            assert!(
                keys.windows(2)
                    .all(|pair| pair[0] != pair[1] && (pair[0] < pair[1]) != is_descending),
                "{of}"
            );
            for (value, key) in values.iter().zip(&keys) {
                let key = [key, &b"rest"[..]].concat();
                let mut rest = &key[..];
                assert_eq!(decode(&mut rest, of, is_descending).as_ref(), Some(value), "{of}");
                assert_eq!(rest, b"rest");
            }
        }
    }

    /// Checks that values, written as constants in ascending order, have ascending keys.
    fn check_constants(native: Native, texts: &[&str]) {
        let is_string = matches!(
            native,
            Native::Text | Native::Inet | Native::Timestamp | Native::Date | Native::Time
        );
        let values: Vec<Vec<u8>> = texts
            .iter()
            .map(|text| {
                let text = (*text).to_owned();
                let constant = match native {
                    _ if is_string => Constant::String(text),
                    Native::Uuid | Native::Timeuuid => Constant::Uuid(text),
                    Native::Float | Native::Double => Constant::Float(text),
                    _ => Constant::Integer(text),
                };
                constant::encode(&constant, native).unwrap()
            })
            .collect();
        check(&values, &CqlType::Native(native));
    }

    #[test]
    fn natives_sort_as_their_values() {
        check_constants(Native::Text, &["", "a", "a\0", "a\0b", "a\u{1}", "aa", "b"]);
        check_constants(Native::Int, &["-2147483648", "-1", "0", "1", "2147483647"]);
        check_constants(Native::Tinyint, &["-128", "-1", "0", "127"]);
        check_constants(Native::Double, &["-Infinity", "-1.5", "-0.0", "0.0", "1e-5", "7", "NaN"]);
        check_constants(Native::Varint, &["-65536", "-256", "-255", "-1", "0", "1", "255", "256"]);
        check_constants(Native::Date, &["-0001-01-01", "1969-12-31", "1970-01-01", "2011-02-03"]);
        check_constants(Native::Timestamp, &["1969-12-31", "1970-01-01", "2011-02-03 04:05"]);
        check_constants(
            Native::Timeuuid,
            &[
                "ffffffff-0000-1000-8000-000000000000",
                "00000000-0001-1000-8000-000000000000",
                "00000000-0001-1000-8000-00000000007f",
                "00000000-0000-1001-8000-000000000000",
            ],
        );
        check_constants(
            Native::Uuid,
            &[
                "ffffffff-0000-1000-8000-000000000000",
                "00000000-0000-1001-8000-000000000000",
                "00000000-0000-4000-8000-000000000000",
                "10000000-0000-4000-8000-000000000000",
            ],
        );
    }

    #[test]
    fn decimals_sort_by_value_and_lose_their_zeros() {
        let decimal = |text: &str| Decimal::parse(text).unwrap().encode();
        let of = CqlType::Native(Native::Decimal);
        let sorted = ["-1e3", "-12.5", "-12.4", "-0.1", "0", "1e-9", "0.1", "12.45", "12.5", "1e3"];
        let keys: Vec<Vec<u8>> =
            sorted.iter().map(|text| encoded(&decimal(text), &of, false)).collect();
        assert!(keys.is_sorted());
        assert_eq!(encoded(&decimal("1.50"), &of, false), encoded(&decimal("1.5"), &of, false));
        for (text, key) in sorted.iter().zip(&keys) {
            let back = Decimal::decode(&decode(&mut &key[..], &of, false).unwrap()).unwrap();
            assert_eq!(encoded(&back.encode(), &of, false), *key, "{text}");
        }
        let back = decode(&mut &keys[9][..], &of, false).unwrap();
        assert_eq!(Decimal::decode(&back), Decimal::parse("1000"));
    }

    // Source: Cassandra 5.0, VectorType.compareCustom
    #[test]
    fn vectors_sort_element_by_element() {
        let floats = |elements: [f32; 2]| elements.map(f32::to_be_bytes).concat();
        let of = CqlType::Vector(Box::new(CqlType::Native(Native::Float)), 2);
        check(
            &[[-2.0, 1.5], [-0.0, 1.5], [0.0, -2.0], [0.0, 1.5], [f32::NAN, 1.5]].map(floats),
            &of,
        );
        let of = CqlType::Vector(Box::new(CqlType::TEXT), 2);
        check(
            &[&b"\x00\x03bbb"[..], b"\x01a\x01b", b"\x02aa\x00", b"\x01b\x01b"].map(<[u8]>::to_vec),
            &of,
        );
        // An element may be empty where its type allows that.
        let of = CqlType::Vector(Box::new(CqlType::Native(Native::Varint)), 2);
        check(
            &[b"\x00\x01\xff".to_vec(), b"\x01\x80\x00".to_vec(), b"\x01\x01\x01\x02".to_vec()],
            &of,
        );
    }

    #[test]
    fn collections_and_tuples_sort_part_by_part() {
        let list = |items: &[i32]| {
            let mut out = Vec::new();
            put_count(items.len(), &mut out);
            for item in items {
                put_part(Some(&item.to_be_bytes()), &mut out);
            }
            out
        };
        let of = CqlType::List(Box::new(CqlType::INT)).frozen();
        check(&[list(&[]), list(&[-1]), list(&[-1, 5]), list(&[0])], &of);
        let tuple = |parts: [Option<&[u8]>; 2]| {
            let mut out = Vec::new();
            for part in parts {
                put_part(part, &mut out);
            }
            out
        };
        let of = CqlType::Tuple(vec![CqlType::TEXT, CqlType::BOOLEAN]);
        check(
            &[tuple([None, None]), tuple([Some(b"a"), None]), tuple([Some(b"a"), Some(&[1])])],
            &of,
        );
    }

    fn user_type(fields: usize) -> CqlType {
        let fields = (0..fields).map(|nth| (format!("f{nth}"), CqlType::INT)).collect();
        let user = UserType::new("k".into(), "u".into(), fields);
        CqlType::UserDefined(Arc::new(user)).frozen()
    }

    fn user_value(fields: &[Option<i32>]) -> Vec<u8> {
        let mut out = Vec::new();
        for field in fields {
            put_part(field.map(i32::to_be_bytes).as_ref().map(<[u8; 4]>::as_slice), &mut out);
        }
        out
    }

    /// Types that contain a user-defined type, each with a value that contains the given one.
    fn holders(of: &CqlType, value: &[u8]) -> Vec<(CqlType, Vec<u8>)> {
        let boxed = || Box::new(of.clone());
        let mut tuple = Vec::new();
        put_part(Some(value), &mut tuple);
        put_part(Some(&[0, 0, 0, 7]), &mut tuple);
        let mut set = Vec::new();
        put_count(1, &mut set);
        put_part(Some(value), &mut set);
        let mut map = set.clone();
        put_part(Some(value), &mut map);
        let fields = vec![("inner".into(), of.clone()), ("n".into(), CqlType::INT)];
        let user = UserType::new("k".into(), "outer".into(), fields);
        let mut vector = Vec::new();
        put_element(value, None, &mut vector);
        vec![
            (of.clone(), value.to_vec()),
            (CqlType::Tuple(vec![of.clone(), CqlType::INT]), tuple.clone()),
            (CqlType::UserDefined(Arc::new(user)).frozen(), tuple),
            (CqlType::Set(boxed()).frozen(), set),
            (CqlType::Map(boxed(), boxed()).frozen(), map),
            (CqlType::Vector(boxed(), 1), vector),
        ]
    }

    proptest! {
        // Fields added by ALTER TYPE change no key, however the type is nested.
        #[test]
        fn a_type_that_grows_changes_no_key(
            fields in proptest::collection::vec(proptest::option::of(-2..3_i32), 1..4),
            other in proptest::collection::vec(proptest::option::of(-2..3_i32), 1..6),
            added in 0..3_usize,
            is_descending: bool,
        ) {
            let grown_fields = fields.len() + added;
            let (before, after) = (user_type(fields.len()), user_type(grown_fields));
            let mut padded = fields.clone();
            padded.resize(grown_fields, None);
            let stored = holders(&before, &user_value(&fields));
            let short = holders(&after, &user_value(&fields));
            let full = holders(&after, &user_value(&padded));
            for ((stored, short), full) in stored.iter().zip(&short).zip(&full) {
                let key = encoded(&stored.1, &stored.0, is_descending);
                prop_assert_eq!(&key, &encoded(&short.1, &short.0, is_descending));
                prop_assert_eq!(&key, &encoded(&full.1, &full.0, is_descending));
                let key = [&key[..], b"rest"].concat();
                let mut rest = &key[..];
                prop_assert_eq!(decode(&mut rest, &full.0, is_descending), Some(full.1.clone()));
                prop_assert_eq!(rest, b"rest");
            }
            let mut other = other;
            other.resize(grown_fields, None);
            let key = |fields: &[Option<i32>]| encoded(&user_value(fields), &after, false);
            prop_assert_eq!(key(&padded).cmp(&key(&other)), padded.cmp(&other));
        }

        #[test]
        fn damaged_keys_are_refused(key in proptest::collection::vec(any::<u8>(), 0..40)) {
            for native in [Native::Text, Native::Int, Native::Varint, Native::Decimal, Native::Uuid] {
                let of = CqlType::List(Box::new(CqlType::Native(native)));
                // Any result is acceptable, but it must not panic.
                let _ = decode(&mut &key[..], &of, true);
                let _ = decode(&mut &key[..], &CqlType::Native(native), false);
            }
        }

        #[test]
        fn any_texts_sort_as_they_are(a: Vec<u8>, b: Vec<u8>) {
            let of = CqlType::Native(Native::Blob);
            prop_assert_eq!(encoded(&a, &of, false).cmp(&encoded(&b, &of, false)), a.cmp(&b));
        }

        #[test]
        fn any_numbers_sort_as_they_are(a: i128, b: i128, shift in 0..127) {
            let of = CqlType::Native(Native::Varint);
            let (a, b) = (a >> shift, b);
            let key = |n: i128| encoded(&BigInt::from(n).to_signed_bytes_be(), &of, false);
            prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
        }
    }
}
