//! Values as encoded by the protocol.
//!
//! Independent of the server's code, so that no mistake is made on both sides.
// Source: native_protocol_v5.spec 6 "Data Type Serialization Formats"

use std::net::IpAddr;
use std::str::FromStr;

use wire::cql::Notation;

const SHORT: &str = "values of this program are short";

/// A constant of `types` as a value of a native type.
pub(super) fn native(name: &str, constant: &str) -> Vec<u8> {
    match name {
        "tinyint" => parsed::<i8>(constant).to_be_bytes().to_vec(),
        "smallint" => parsed::<i16>(constant).to_be_bytes().to_vec(),
        "int" => parsed::<i32>(constant).to_be_bytes().to_vec(),
        "bigint" | "counter" => parsed::<i64>(constant).to_be_bytes().to_vec(),
        "varint" => shortest(parsed(constant)),
        "decimal" => decimal(constant),
        "float" => parsed::<f32>(constant).to_be_bytes().to_vec(),
        "double" => parsed::<f64>(constant).to_be_bytes().to_vec(),
        "boolean" => vec![u8::from(constant == "true")],
        "text" | "ascii" => text(constant).into_bytes(),
        "blob" => unhex(constant.strip_prefix("0x").unwrap_or(constant)),
        "timestamp" | "time" => moment(constant).to_be_bytes().to_vec(),
        "date" => day(constant).to_be_bytes().to_vec(),
        "uuid" | "timeuuid" => unhex(&constant.replace('-', "")),
        "inet" => match parsed(constant.trim_matches('\'')) {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        },
        "duration" => duration(constant),
        other => unreachable!("{other} is not a type that tables have"),
    }
}

/// A list or a set.
pub(super) fn items<'a>(parts: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_count(parts.len()).expect(SHORT);
    for part in parts {
        out.put_bytes(part).expect(SHORT);
    }
    out
}

/// A map.
pub(super) fn pairs<'a>(parts: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_count(parts.len()).expect(SHORT);
    for (key, value) in parts {
        out.put_bytes(key).expect(SHORT);
        out.put_bytes(value).expect(SHORT);
    }
    out
}

/// A tuple, or a value of a user-defined type.
pub(super) fn fields<'a>(parts: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match part {
            Some(bytes) => out.put_bytes(bytes).expect(SHORT),
            None => out.put_int(-1),
        }
    }
    out
}

/// Decodes pairs of hexadecimal digits.
pub(super) fn unhex(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    (0..digits.len()).step_by(2).map(digit).collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn parsed<T: FromStr>(constant: &str) -> T {
    let Ok(value) = constant.parse() else { panic!("{constant} is none of its type") };
    value
}

/// Two's complement, without redundant bytes.
fn shortest(number: i128) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let is_needless = |at: &usize| bytes[*at] == if bytes[at + 1] < 0x80 { 0 } else { 0xFF };
    let needless = (0..bytes.len() - 1).take_while(is_needless).count();
    bytes[needless..].to_vec()
}

/// The scale, and the digits as an integer.
fn decimal(constant: &str) -> Vec<u8> {
    let (digits, exponent) = constant.split_once('E').unwrap_or((constant, "0"));
    let fraction = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let scale = i32::try_from(fraction).expect("a few digits") - parsed::<i32>(exponent);
    let mut out = scale.to_be_bytes().to_vec();
    out.extend(shortest(parsed(&digits.replace('.', ""))));
    out
}

/// The text between quotes.
pub(super) fn text(constant: &str) -> String {
    match constant.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        Some(quoted) => quoted.replace("''", "'"),
        None => constant.trim_matches('$').to_owned(),
    }
}

/// Milliseconds since the epoch, or nanoseconds of a day.
fn moment(constant: &str) -> i64 {
    match constant {
        "'2020-02-29T12:34:56.789Z'" => 1_582_979_696_789,
        "'1969-12-31'" => -86_400_000,
        "'2030-01-01 00:00+0100'" => 1_893_452_400_000,
        "'00:00:00'" => 0,
        "'23:59:59.999999999'" => 86_399_999_999_999,
        "'08:12:54.1234'" => 29_574_123_400_000,
        number => parsed(number),
    }
}

/// Days, with the epoch in the middle of the range. A number is sent as it is.
fn day(constant: &str) -> u32 {
    const EPOCH: u32 = 1 << 31;
    match constant {
        "'1970-01-01'" => EPOCH,
        "'1969-12-31'" => EPOCH - 1,
        "'2020-02-29'" => EPOCH + 18_321,
        number => parsed(number),
    }
}

/// Months, days and nanoseconds.
fn duration(constant: &str) -> Vec<u8> {
    let parts: [i64; 3] = match constant {
        "1h" => [0, 0, 3_600_000_000_000],
        "-2d" => [0, -2, 0],
        "1y2mo3w4d" => [14, 25, 0],
        "P1Y2M3DT4H" => [14, 3, 14_400_000_000_000],
        "0s" => [0, 0, 0],
        "5ms6us7ns" => [0, 0, 5_006_007],
        other => unreachable!("{other} is not a duration of this program"),
    };
    let mut out = Vec::new();
    for part in parts {
        vint(part, &mut out);
    }
    out
}

/// A variable-length number: the ones before the first zero bit count the following bytes, and the
/// sign is the last bit.
// Source: native_protocol_v5.spec 3 "Notations", [vint] and [unsigned vint]
fn vint(number: i64, out: &mut Vec<u8>) {
    let bits = ((number << 1) ^ (number >> 63)).cast_unsigned();
    let bytes = bits.to_be_bytes();
    let significant = u64::BITS - bits.leading_zeros();
    let following = usize::try_from(significant.saturating_sub(1) / 7).expect("at most nine");
    if following >= bytes.len() {
        out.push(0xFF);
        out.extend_from_slice(&bytes);
        return;
    }
    let kept = &bytes[bytes.len() - 1 - following..];
    out.push(kept[0] | !(0xFF_u8 >> following));
    out.extend_from_slice(&kept[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_their_bytes() {
        for (name, constant, expected) in [
            ("tinyint", "-128", "80"),
            ("smallint", "32767", "7fff"),
            ("int", "-2147483648", "80000000"),
            ("bigint", "-1", "ffffffffffffffff"),
            ("varint", "0", "00"),
            ("varint", "-1", "ff"),
            ("varint", "128", "0080"),
            ("varint", "-128", "80"),
            ("varint", "-129", "ff7f"),
            ("varint", "123456789012345678901234567890", "018ee90ff6c373e0ee4e3f0ad2"),
            ("decimal", "0", "0000000000"),
            ("decimal", "-1.5", "00000001f1"),
            ("decimal", "1.50", "000000020096"),
            ("decimal", "1E+10", "fffffff601"),
            ("decimal", "0.00", "0000000200"),
            ("float", "-0.0", "80000000"),
            ("float", "NaN", "7fc00000"),
            ("double", "-2.5", "c004000000000000"),
            ("double", "Infinity", "7ff0000000000000"),
            ("boolean", "true", "01"),
            ("text", "'it''s'", "69742773"),
            ("text", "$$dollar$$", "646f6c6c6172"),
            ("text", "'ä'", "c3a4"),
            ("ascii", "''", ""),
            ("blob", "0x", ""),
            ("blob", "0xFF00", "ff00"),
            ("timestamp", "-1", "ffffffffffffffff"),
            ("timestamp", "'2020-02-29T12:34:56.789Z'", "0000017090f14895"),
            ("date", "'1970-01-01'", "80000000"),
            ("date", "0", "00000000"),
            ("time", "'23:59:59.999999999'", "00004e94914effff"),
            ("uuid", "50554d6e-29bb-11e5-b345-feff819cdc9f", "50554d6e29bb11e5b345feff819cdc9f"),
            ("inet", "'127.0.0.1'", "7f000001"),
            ("inet", "'fe80::1:2'", "fe800000000000000000000000010002"),
            ("duration", "0s", "000000"),
            ("duration", "-2d", "000300"),
            ("duration", "1y2mo3w4d", "1c3200"),
            ("duration", "1h", "0000fc068c61714000"),
        ] {
            assert_eq!(hex(&native(name, constant)), expected, "{name} {constant}");
        }
    }

    #[test]
    fn vints_take_one_to_nine_bytes() {
        for (number, expected) in [
            (63, "7e"),
            (-64, "7f"),
            (64, "8080"),
            (8191, "bffe"),
            (8192, "c04000"),
            (i64::MAX, "fffffffffffffffffe"),
            (i64::MIN, "ffffffffffffffffff"),
            ((1 << 54) - 1, "fe7ffffffffffffe"),
            ((1 << 55) - 1, "fefffffffffffffe"),
            (1 << 55, "ff0100000000000000"),
        ] {
            let mut out = Vec::new();
            vint(number, &mut out);
            assert_eq!(hex(&out), expected, "{number}");
        }
    }

    #[test]
    fn parts_stand_behind_their_lengths() {
        let [one, two] = [&[1_u8][..], &[2, 3]];
        assert_eq!(hex(&items([one, two].into_iter())), "000000020000000101000000020203");
        assert_eq!(hex(&pairs([(one, two)].into_iter())), "000000010000000101000000020203");
        assert_eq!(hex(&fields([Some(one), None].into_iter())), "0000000101ffffffff");
        assert_eq!(hex(&items(std::iter::empty())), "00000000");
    }
}
