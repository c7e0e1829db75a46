//! Values as text for comparison: dates and times are shown as the numbers that were sent.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use wire::cql::{ColumnType, Reader};

/// As in CREATE TABLE.
pub(crate) fn type_name(of: &ColumnType) -> String {
    match of {
        ColumnType::Custom(class) => class.clone(),
        ColumnType::List(element) => format!("list<{}>", type_name(element)),
        ColumnType::Set(element) => format!("set<{}>", type_name(element)),
        ColumnType::Map(key, value) => format!("map<{}, {}>", type_name(key), type_name(value)),
        ColumnType::UserDefined { name, .. } => name.clone(),
        ColumnType::Tuple(parts) => {
            let parts: Vec<String> = parts.iter().map(type_name).collect();
            format!("tuple<{}>", parts.join(", "))
        }
        native => format!("{native:?}").to_lowercase(),
    }
}

/// A cell of a row.
pub(crate) fn value(bytes: Option<&[u8]>, of: &ColumnType) -> Result<String> {
    let Some(bytes) = bytes else { return Ok("null".to_owned()) };
    let is_text = matches!(of, ColumnType::Ascii | ColumnType::Text | ColumnType::Blob);
    if bytes.is_empty() && !is_text {
        return Ok("empty".to_owned());
    }
    Ok(match of {
        ColumnType::Ascii | ColumnType::Text => {
            format!("'{}'", std::str::from_utf8(bytes)?.escape_debug())
        }
        ColumnType::Boolean => (bytes != [0]).to_string(),
        ColumnType::Float => f32::from_be_bytes(bytes.try_into()?).to_string(),
        ColumnType::Double => f64::from_be_bytes(bytes.try_into()?).to_string(),
        ColumnType::Tinyint
        | ColumnType::Smallint
        | ColumnType::Int
        | ColumnType::Bigint
        | ColumnType::Counter
        | ColumnType::Timestamp
        | ColumnType::Time => signed(bytes)?.to_string(),
        ColumnType::Date => (signed(bytes)? + (1 << 31)).rem_euclid(1 << 32).to_string(),
        ColumnType::Varint if bytes.len() <= 16 => signed(bytes)?.to_string(),
        ColumnType::Decimal if (5..=20).contains(&bytes.len()) => {
            format!("{}e{}", signed(&bytes[4..])?, -signed(&bytes[..4])?)
        }
        ColumnType::Uuid | ColumnType::Timeuuid => uuid(bytes)?,
        ColumnType::Inet => match bytes.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(bytes)?).to_string(),
            _ => IpAddr::from(<[u8; 16]>::try_from(bytes)?).to_string(),
        },
        ColumnType::List(element) => format!("[{}]", items(bytes, element)?.join(", ")),
        ColumnType::Set(element) => format!("{{{}}}", items(bytes, element)?.join(", ")),
        ColumnType::Map(key, value) => format!("{{{}}}", pairs(bytes, key, value)?.join(", ")),
        ColumnType::Tuple(parts) => {
            let named = parts.iter().map(|part| (None, part));
            format!("({})", fields(bytes, named)?.join(", "))
        }
        ColumnType::UserDefined { fields: named, .. } => {
            let named = named.iter().map(|(name, of)| (Some(name.as_str()), of));
            format!("{{{}}}", fields(bytes, named)?.join(", "))
        }
        _ => hex(bytes),
    })
}

fn signed(bytes: &[u8]) -> Result<i128> {
    let Some(first) = bytes.first() else { bail!("a number without bytes") };
    let start = if *first >= 0x80 { -1 } else { 0 };
    Ok(bytes.iter().fold(start, |number: i128, byte| number << 8 | i128::from(*byte)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn uuid(bytes: &[u8]) -> Result<String> {
    if bytes.len() != 16 {
        bail!("a UUID of {} bytes", bytes.len());
    }
    let digits = hex(bytes);
    let digits = &digits[2..];
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Ok(parts.join("-"))
}

fn items(bytes: &[u8], of: &ColumnType) -> Result<Vec<String>> {
    let mut reader = Reader::new(bytes);
    let count = reader.int()?;
    let shown: Result<Vec<String>> = (0..count).map(|_| value(reader.bytes()?, of)).collect();
    reader.finish()?;
    shown
}

fn pairs(bytes: &[u8], key: &ColumnType, of: &ColumnType) -> Result<Vec<String>> {
    let mut reader = Reader::new(bytes);
    let count = reader.int()?;
    let mut shown = Vec::new();
    for _ in 0..count {
        let key = value(reader.bytes()?, key)?;
        shown.push(format!("{key}: {}", value(reader.bytes()?, of)?));
    }
    reader.finish()?;
    Ok(shown)
}

/// Fields omitted at the end are null.
fn fields<'a>(
    bytes: &[u8],
    of: impl Iterator<Item = (Option<&'a str>, &'a ColumnType)>,
) -> Result<Vec<String>> {
    let mut reader = Reader::new(bytes);
    let mut shown = Vec::new();
    for (name, of) in of {
        let bytes = if reader.rest().is_empty() { None } else { reader.bytes()? };
        let text = value(bytes, of)?;
        shown.push(name.map_or_else(|| text.clone(), |name| format!("{name}: {text}")));
    }
    reader.finish().context("more fields than the type has")?;
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_texts() {
        let list = ColumnType::List(Box::new(ColumnType::Int));
        let tuple = ColumnType::Tuple(vec![ColumnType::Int, ColumnType::Text]);
        for (of, bytes, expected) in [
            (ColumnType::Int, &[0xFF, 0xFF, 0xFF, 0xFE][..], "-2"),
            (ColumnType::Varint, &[1, 0, 0], "65536"),
            (ColumnType::Decimal, &[0, 0, 0, 2, 123], "123e-2"),
            (ColumnType::Date, &[0x80, 0, 0, 1], "1"),
            (ColumnType::Boolean, &[1], "true"),
            (ColumnType::Text, b"it's\n", "'it\\'s\\n'"),
            (ColumnType::Text, b"", "''"),
            (ColumnType::Int, b"", "empty"),
            (ColumnType::Blob, &[1, 0xAB], "0x01ab"),
            (ColumnType::Inet, &[127, 0, 0, 1], "127.0.0.1"),
            (list, &[0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7], "[7]"),
            (tuple, &[0, 0, 0, 4, 0, 0, 0, 7], "(7, null)"),
        ] {
            assert_eq!(value(Some(bytes), &of).unwrap(), expected, "{of:?}");
        }
        assert_eq!(value(None, &ColumnType::Int).unwrap(), "null");
        assert!(value(Some(&[1]), &ColumnType::Uuid).is_err());
    }
}
