//! JSON to values: for INSERT JSON and `from_json`.
//!
//! The types drive the decoding. As in Cassandra, a number with a point or an exponent is first
//! parsed as a double: clients send decimals with more digits as texts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::check_size;
use super::collection::{put_count, put_part};
use super::constant::{self, encode};
use super::number::{Decimal, float_text, parse_integer};
use super::order::sorted;
use super::vector::{fixed_width, put_element};
use crate::json_limits;
use crate::term::Constant;
use crate::type_name::Native;
use crate::types::{CqlType, UserType};

/// The value of a document; None is null. The error is Cassandra's.
pub(crate) fn decode(text: &str, of: &CqlType) -> Result<Option<Vec<u8>>, String> {
    let raw: &RawValue = serde_json::from_str(text)
        .map_err(|error| format!("Could not decode JSON string '{text}': {error}"))?;
    decode_raw(raw, of)
}

/// The members of an INSERT JSON document, under the names of columns. Of duplicate names the last
/// one counts, and of different spellings the last one that is not the column's own.
// Source: Cassandra 5.0, Json.parseJson; JsonUtils.handleCaseSensitivity replaces them in this order
pub(crate) fn decode_row(text: &str) -> Result<BTreeMap<String, &RawValue>, String> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(|error| {
        format!("Could not decode JSON string as a map: {error}. (String was: {text})")
    })?;
    let mut members: Vec<(bool, String, &RawValue)> = members
        .into_iter()
        .map(|(name, value)| {
            let column = column_name(&name);
            (column != name, column, value)
        })
        .collect();
    // The values are parts of the text, in its order.
    members.sort_by_key(|(is_other, _, value)| (*is_other, value.get().as_ptr()));
    Ok(members.into_iter().map(|(_, column, value)| (column, value)).collect())
}

/// Names are lower case unless they contain quotes of their own.
// Source: Cassandra 5.0, JsonUtils.handleCaseSensitivity
fn column_name(name: &str) -> String {
    let quoted = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    quoted.map_or_else(|| name.to_lowercase(), str::to_owned)
}

/// The value of a part of a document; None is null.
pub fn decode_raw(raw: &RawValue, of: &CqlType) -> Result<Option<Vec<u8>>, String> {
    let json = Json::new(raw.get())?;
    if matches!(json, Json::Null) {
        return Ok(None);
    }
    decode_json(&json, of).map(Some)
}

/// One level of a document.
#[derive(Debug)]
enum Json<'a> {
    Null,
    Boolean(bool),
    /// Integers keep all their digits, other numbers are doubles.
    Number(Cow<'a, str>),
    String(String),
    List(&'a str, Vec<&'a RawValue>),
    Object(&'a str, BTreeMap<String, &'a RawValue>),
}

impl<'a> Json<'a> {
    fn new(text: &'a str) -> Result<Self, String> {
        let text = text.trim();
        let failed = |error: serde_json::Error| format!("Could not decode JSON: {error}");
        Ok(match text.as_bytes().first() {
            Some(b'n') => Json::Null,
            Some(b't') => Json::Boolean(true),
            Some(b'f') => Json::Boolean(false),
            Some(b'"') => Json::String(serde_json::from_str(text).map_err(failed)?),
            Some(b'[') => Json::List(text, serde_json::from_str(text).map_err(failed)?),
            Some(b'{') => Json::Object(text, serde_json::from_str(text).map_err(failed)?),
            _ if number_kind(text) == "Double" => {
                Json::Number(float_text(text.parse::<f64>().unwrap_or(f64::NAN)).into())
            }
            _ => Json::Number(text.into()),
        })
    }

    /// Cassandra's name for it, and its text.
    fn described(&self) -> String {
        let (kind, text) = match self {
            Json::Null => ("null", "null"),
            Json::Boolean(true) => ("Boolean", "true"),
            Json::Boolean(false) => ("Boolean", "false"),
            Json::Number(digits) => (number_kind(digits), &**digits),
            Json::String(text) => ("String", text.as_str()),
            Json::List(text, _) => ("ArrayList", *text),
            Json::Object(text, _) => ("LinkedHashMap", *text),
        };
        format!("{kind}: {text}")
    }
}

/// The class of a number in Java.
fn number_kind(digits: &str) -> &'static str {
    if digits.contains(['.', 'e', 'E']) {
        return "Double";
    }
    if digits.parse::<i32>().is_ok() {
        return "Integer";
    }
    if digits.parse::<i64>().is_ok() { "Long" } else { "BigInteger" }
}

fn decode_json(json: &Json<'_>, of: &CqlType) -> Result<Vec<u8>, String> {
    match of.unfrozen() {
        CqlType::Native(native) => decode_native(json, *native),
        structure => match json {
            // A key of an object is always a text: its content is parsed as JSON again.
            Json::String(text) => {
                // The limits of the document did not count the content of its texts.
                json_limits::check(text.as_bytes()).map_err(|error| error.to_string())?;
                let raw: &RawValue = serde_json::from_str(text)
                    .map_err(|error| format!("Could not decode JSON string '{text}': {error}"))?;
                match Json::new(raw.get())? {
                    Json::String(_) => Err(wrong_structure(json, structure)),
                    inner => decode_structure(&inner, structure),
                }
            }
            _ => decode_structure(json, structure),
        },
    }
}

fn decode_structure(json: &Json<'_>, of: &CqlType) -> Result<Vec<u8>, String> {
    match (of, json) {
        (CqlType::List(element), Json::List(_, items)) => decode_items(items, element, "list"),
        (CqlType::Set(element), Json::List(_, items)) => {
            let bytes = decode_items(items, element, "set")?;
            Ok(sorted(&bytes, of).into_owned())
        }
        (CqlType::Map(key, value), Json::Object(_, members)) => {
            let mut out = Vec::new();
            put_count(members.len(), &mut out);
            for (name, member) in members {
                let key = decode_json(&Json::String(name.clone()), key)?;
                put_part(Some(&key), &mut out);
                let value =
                    decode_raw(member, value)?.ok_or("Invalid null value in map".to_owned())?;
                put_part(Some(&value), &mut out);
                check_length(&out)?;
            }
            Ok(sorted(&out, of).into_owned())
        }
        (CqlType::Tuple(parts), Json::List(text, items)) => {
            let problem = match items.len().cmp(&parts.len()) {
                std::cmp::Ordering::Greater => Some("contains extra items"),
                std::cmp::Ordering::Less => Some("is missing items"),
                std::cmp::Ordering::Equal => None,
            };
            if let Some(problem) = problem {
                return Err(format!("Tuple {problem} (expected {}): {text}", parts.len()));
            }
            let mut out = Vec::new();
            for (item, part) in items.iter().zip(parts) {
                put_part(decode_raw(item, part)?.as_deref(), &mut out);
            }
            Ok(out)
        }
        (CqlType::UserDefined(user), Json::Object(_, members)) => decode_fields(members, user),
        (CqlType::Vector(element, dimensions), Json::List(_, items)) => {
            if items.len() != *dimensions {
                return Err(format!(
                    "List had incorrect size: expected {dimensions} but given {}: {}",
                    items.len(),
                    json.described()
                ));
            }
            let mut out = Vec::new();
            for item in items {
                let item = decode_raw(item, element)?
                    .ok_or("Invalid null element in vector".to_owned())?;
                put_element(&item, fixed_width(element), &mut out);
            }
            Ok(out)
        }
        _ => Err(wrong_structure(json, of)),
    }
}

fn wrong_structure(json: &Json<'_>, of: &CqlType) -> String {
    let expected = match of {
        CqlType::Set(_) => "a list (representing a set)",
        CqlType::Map(..) | CqlType::UserDefined(_) => "a map",
        CqlType::Tuple(_) => "a list representation of a tuple",
        _ => "a list",
    };
    format!("Expected {expected}, but got a {}", json.described())
}

fn decode_items(items: &[&RawValue], element: &CqlType, kind: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    put_count(items.len(), &mut out);
    for item in items {
        let bytes = decode_raw(item, element)?;
        let bytes = bytes.ok_or_else(|| format!("Invalid null element in {kind}"))?;
        put_part(Some(&bytes), &mut out);
        check_length(&out)?;
    }
    Ok(out)
}

/// Missing fields let a short text become a long value.
fn check_length(value: &[u8]) -> Result<(), String> {
    check_size(value.len()).map_err(|error| error.to_string())
}

/// Missing fields are null.
fn decode_fields(
    members: &BTreeMap<String, &RawValue>,
    user: &UserType,
) -> Result<Vec<u8>, String> {
    let members: BTreeMap<String, &&RawValue> =
        members.iter().map(|(name, member)| (column_name(name), member)).collect();
    let is_known = |name: &&String| user.fields.iter().any(|(known, _)| known == *name);
    if let Some(unknown) = members.keys().find(|name| !is_known(name)) {
        return Err(format!(
            "Unknown field '{unknown}' in value of user defined type {}",
            user.name
        ));
    }
    let mut out = Vec::new();
    for (name, of) in &user.fields {
        let value = members.get(name).map(|member| decode_raw(member, of)).transpose()?;
        put_part(value.flatten().as_deref(), &mut out);
    }
    Ok(out)
}

// Source: Cassandra 5.0, AbstractType.fromJSONObject of each type
fn decode_native(json: &Json<'_>, native: Native) -> Result<Vec<u8>, String> {
    let wrong = || Err(format!("Expected {}, but got a {}", expected(native), json.described()));
    match (native, json) {
        (Native::Text | Native::Ascii, Json::String(text)) => {
            encode(&Constant::String(text.clone()), native)
        }
        (Native::Boolean, Json::Boolean(value)) => Ok(vec![u8::from(*value)]),
        // Java parses every text except "true" as false.
        (Native::Boolean, Json::String(text)) => {
            Ok(vec![u8::from(text.eq_ignore_ascii_case("true"))])
        }
        (
            Native::Tinyint
            | Native::Smallint
            | Native::Int
            | Native::Bigint
            | Native::Counter
            | Native::Float
            | Native::Double,
            Json::String(text),
        ) => number_of_text(text, native),
        (Native::Tinyint | Native::Smallint, Json::Number(digits)) => {
            number_of_text(digits, native)
        }
        (Native::Int, Json::Number(digits)) if number_kind(digits) == "Integer" => {
            number_of_text(digits, native)
        }
        (Native::Bigint | Native::Counter, Json::Number(digits))
            if matches!(number_kind(digits), "Integer" | "Long") =>
        {
            number_of_text(digits, native)
        }
        (Native::Float | Native::Double, Json::Number(digits)) => number_of_text(digits, native),
        (Native::Varint, Json::Number(text)) => varint(text),
        (Native::Varint, Json::String(text)) => varint(text),
        (Native::Decimal, Json::Number(text)) => decimal(text),
        (Native::Decimal, Json::String(text)) => decimal(text),
        (Native::Varint, _) => Err(format!(
            "Value '{}' is not a valid representation of a varint value",
            json.described()
        )),
        (Native::Decimal, _) => Err(format!(
            "Value '{}' is not a valid representation of a decimal value",
            json.described()
        )),
        (Native::Timestamp, Json::Number(digits)) if number_kind(digits) == "Long" => {
            number_of_text(digits, native)
        }
        (Native::Blob, Json::String(text)) => match text.strip_prefix("0x") {
            Some(digits) => encode(&Constant::Blob(digits.to_owned()), native),
            None => Err(format!("String representation of blob is missing 0x prefix: {text}")),
        },
        (Native::Uuid | Native::Timeuuid, Json::String(text)) => {
            constant::encode_uuid(text, native)
        }
        (Native::Duration, Json::String(text)) => encode(&Constant::Duration(text.clone()), native),
        (Native::Timestamp | Native::Date | Native::Time | Native::Inet, Json::String(text)) => {
            // Digits in a text are a number of days, milliseconds or nanoseconds.
            let is_number = text.parse::<i64>().is_ok() && native != Native::Inet;
            let constant = if is_number { Constant::Integer } else { Constant::String };
            encode(&constant(text.clone()), native)
        }
        _ => wrong(),
    }
}

fn expected(native: Native) -> &'static str {
    match native {
        Native::Text => "a UTF-8 string",
        Native::Ascii => "an ascii string",
        Native::Boolean => "a boolean value",
        Native::Tinyint => "a byte value",
        Native::Smallint => "a short value",
        Native::Int => "an int value",
        Native::Bigint | Native::Counter => "a bigint value",
        Native::Float => "a float value",
        Native::Double => "a double value",
        Native::Timestamp => "a long or a datestring representation of a timestamp value",
        Native::Date => "a string representation of a date value",
        Native::Time => "a string representation of a time value",
        Native::Inet => "a string representation of an inet value",
        Native::Uuid => "a string representation of a uuid",
        Native::Timeuuid => "a string representation of a timeuuid",
        Native::Blob => "a hex string",
        Native::Duration => "a string representation of a duration",
        Native::Varint => "a varint",
        Native::Decimal => "a decimal",
    }
}

/// An empty text is an empty value.
fn number_of_text(text: &str, native: Native) -> Result<Vec<u8>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let constant = match native {
        Native::Float | Native::Double => Constant::Float,
        _ => Constant::Integer,
    };
    encode(&constant(text.to_owned()), native)
}

fn varint(text: &str) -> Result<Vec<u8>, String> {
    let number = parse_integer(text).map(|number| number.to_signed_bytes_be());
    number.ok_or_else(|| format!("Value '{text}' is not a valid representation of a varint value"))
}

fn decimal(text: &str) -> Result<Vec<u8>, String> {
    Decimal::parse(text)
        .map(|decimal| decimal.encode())
        .ok_or_else(|| format!("Value '{text}' is not a valid representation of a decimal value"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::type_of;
    use crate::value::text::put_json;

    fn check(json: &str, of: &str, expected: &str) {
        let of = type_of(of);
        let found = match decode(json, &of) {
            Ok(None) => "null".to_owned(),
            Ok(Some(bytes)) => {
                let mut text = String::new();
                put_json(&bytes, &of, &mut text);
                text
            }
            Err(message) => message,
        };
        assert_eq!(found, expected, "{json} as {of}");
    }

    /// As Cassandra 5.0.9 has answered.
    #[test]
    fn the_last_of_several_members_of_a_column_counts() {
        for (text, a) in [
            (r#"{"a":1,"a":2}"#, "2"),
            (r#"{"a":4,"A":5}"#, "5"),
            (r#"{"A":5,"a":4}"#, "5"),
            (r#"{"a":6,"\"a\"":7}"#, "7"),
            (r#"{"A":1,"\"a\"":2}"#, "2"),
            (r#"{"\"a\"":2,"A":1}"#, "1"),
        ] {
            let row = decode_row(text).unwrap();
            assert_eq!(row.len(), 1, "{text}");
            assert_eq!(row["a"].get(), a, "{text}");
        }
    }

    #[test]
    fn values_of_every_type_are_read_back() {
        for (json, of) in [
            ("\"ä\"", "text"),
            ("\"a\"", "ascii"),
            ("true", "boolean"),
            ("-5", "tinyint"),
            ("-5", "smallint"),
            ("-5", "int"),
            ("-5000000000", "bigint"),
            ("123456789012345678901234567890", "varint"),
            ("1.1", "decimal"),
            ("1.5", "float"),
            ("1.0E10", "double"),
            ("\"0xcafe\"", "blob"),
            ("\"127.0.0.1\"", "inet"),
            ("\"2011-02-03\"", "date"),
            ("\"08:12:54.123000000\"", "time"),
            ("\"2011-02-03 04:05:06.789Z\"", "timestamp"),
            ("\"550e8400-e29b-41d4-a716-446655440000\"", "uuid"),
            ("\"550e8400-e29b-11d4-a716-446655440000\"", "timeuuid"),
            ("\"1y2mo3d\"", "duration"),
            ("[1, 2, 1]", "list<int>"),
            ("[1, 2]", "set<int>"),
            (r#"{"1": "a", "2": "b"}"#, "map<int, text>"),
            (r#"[1, null, "a"]"#, "tuple<int, int, text>"),
            ("[1.5, 2.5]", "vector<float, 2>"),
            (r#"["a", "bc"]"#, "vector<text, 2>"),
            (r#"{"a": 1, "b": null}"#, "u"),
            (
                r#"{"[1, 2]": [{"a": 1, "b": "x"}]}"#,
                "map<frozen<list<int>>, frozen<list<frozen<u>>>>",
            ),
            ("null", "int"),
        ] {
            check(json, of, json);
        }
    }

    #[test]
    fn much_is_read_that_is_not_written() {
        for (json, of, expected) in [
            ("\"5\"", "int", "5"),
            ("\"\"", "int", "\"\""),
            ("\"1.5\"", "double", "1.5"),
            ("\"TRUE\"", "boolean", "true"),
            ("\"no\"", "boolean", "false"),
            ("5", "double", "5.0"),
            ("1.50", "decimal", "1.5"),
            ("1e3", "decimal", "1000.0"),
            ("\"1.50\"", "decimal", "1.50"),
            ("12345678901234567890123", "decimal", "12345678901234567890123"),
            ("\"12\"", "varint", "12"),
            ("1296705906789", "timestamp", "\"2011-02-03 04:05:06.789Z\""),
            ("\"1296705906789\"", "timestamp", "\"2011-02-03 04:05:06.789Z\""),
            ("\"2147483648\"", "date", "\"1970-01-01\""),
            ("[2, 1, 2]", "set<int>", "[1, 2]"),
            (r#"{"2": 1, "1": 1, "2": 3}"#, "map<int, int>", r#"{"1": 1, "2": 3}"#),
            ("\"[1, 2]\"", "list<int>", "[1, 2]"),
            (r#"{"A": 1}"#, "u", r#"{"a": 1, "b": null}"#),
            (" 7 ", "int", "7"),
        ] {
            check(json, of, expected);
        }
    }

    #[test]
    fn malformed_values_are_rejected_with_the_text_of_cassandra() {
        for (json, of, expected) in [
            ("1", "text", "Expected a UTF-8 string, but got a Integer: 1"),
            ("true", "ascii", "Expected an ascii string, but got a Boolean: true"),
            ("1", "boolean", "Expected a boolean value, but got a Integer: 1"),
            ("1.5", "int", "Expected an int value, but got a Double: 1.5"),
            ("5000000000", "int", "Expected an int value, but got a Long: 5000000000"),
            ("300", "tinyint", "Unable to make byte from '300'"),
            ("\"x\"", "int", "Unable to make int from 'x'"),
            ("[]", "bigint", "Expected a bigint value, but got a ArrayList: []"),
            ("true", "float", "Expected a float value, but got a Boolean: true"),
            ("\"x\"", "varint", "Value 'x' is not a valid representation of a varint value"),
            ("\"x\"", "decimal", "Value 'x' is not a valid representation of a decimal value"),
            ("\"ff\"", "blob", "String representation of blob is missing 0x prefix: ff"),
            ("1", "blob", "Expected a hex string, but got a Integer: 1"),
            (
                "123",
                "timestamp",
                "Expected a long or a datestring representation of a timestamp value, but got a Integer: 123",
            ),
            ("1", "date", "Expected a string representation of a date value, but got a Integer: 1"),
            ("1", "time", "Expected a string representation of a time value, but got a Integer: 1"),
            (
                "1",
                "inet",
                "Expected a string representation of an inet value, but got a Integer: 1",
            ),
            ("1", "uuid", "Expected a string representation of a uuid, but got a Integer: 1"),
            ("\"x\"", "uuid", "Unable to make UUID from 'x'"),
            (
                "1",
                "duration",
                "Expected a string representation of a duration, but got a Integer: 1",
            ),
            ("1", "list<int>", "Expected a list, but got a Integer: 1"),
            ("[null]", "list<int>", "Invalid null element in list"),
            ("{}", "set<int>", "Expected a list (representing a set), but got a LinkedHashMap: {}"),
            ("[null]", "set<int>", "Invalid null element in set"),
            ("[]", "map<int, int>", "Expected a map, but got a ArrayList: []"),
            (r#"{"1": null}"#, "map<int, int>", "Invalid null value in map"),
            (r#"{"x": 1}"#, "map<int, int>", "Unable to make int from 'x'"),
            ("1", "tuple<int>", "Expected a list representation of a tuple, but got a Integer: 1"),
            ("[1, 2]", "tuple<int>", "Tuple contains extra items (expected 1): [1, 2]"),
            ("[]", "tuple<int>", "Tuple is missing items (expected 1): []"),
            (r#"{"c": 1}"#, "u", "Unknown field 'c' in value of user defined type u"),
            ("\"\\\"a\\\"\"", "list<int>", "Expected a list, but got a String: \"a\""),
        ] {
            check(json, of, expected);
        }
        assert!(
            decode("{", &CqlType::INT).unwrap_err().starts_with("Could not decode JSON string")
        );
    }

    #[test]
    fn rows_have_names_of_columns() {
        let row = decode_row(r#"{"A": 1, "\"A\"": 2, "b": null}"#).unwrap();
        let names: Vec<(&str, &str)> =
            row.iter().map(|(name, value)| (name.as_str(), value.get())).collect();
        assert_eq!(names, [("A", "2"), ("a", "1"), ("b", "null")]);
        let error = decode_row("[1]").unwrap_err();
        assert!(error.starts_with("Could not decode JSON string as a map: "), "{error}");
        assert!(error.ends_with("(String was: [1])"), "{error}");
    }
}
