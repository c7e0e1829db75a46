//! Types of columns, as described in metadata.

use std::mem::discriminant;

use super::envelope::Version;
use super::limits::{MalformedBody, TYPE_DEPTH_MAX};
use super::notation::{Encoded, Notation, Reader};

/// The type of a column or of a bind marker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// The name of a Java class that Cassandra's drivers recognize.
    Custom(String),
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Decimal,
    Double,
    Float,
    Int,
    Timestamp,
    Uuid,
    Text,
    Varint,
    Timeuuid,
    Inet,
    Date,
    Time,
    Smallint,
    Tinyint,
    Duration,
    List(Box<ColumnType>),
    Map(Box<ColumnType>, Box<ColumnType>),
    Set(Box<ColumnType>),
    UserDefined {
        keyspace: String,
        name: String,
        fields: Vec<(String, ColumnType)>,
    },
    Tuple(Vec<ColumnType>),
}

/// Types without parts and their codes.
// Source: native_protocol_v5.spec 4.2.5.2 "Rows", option ids
const SIMPLE: [(u16, ColumnType); 20] = [
    (0x01, ColumnType::Ascii),
    (0x02, ColumnType::Bigint),
    (0x03, ColumnType::Blob),
    (0x04, ColumnType::Boolean),
    (0x05, ColumnType::Counter),
    (0x06, ColumnType::Decimal),
    (0x07, ColumnType::Double),
    (0x08, ColumnType::Float),
    (0x09, ColumnType::Int),
    (0x0B, ColumnType::Timestamp),
    (0x0C, ColumnType::Uuid),
    (0x0D, ColumnType::Text),
    (0x0E, ColumnType::Varint),
    (0x0F, ColumnType::Timeuuid),
    (0x10, ColumnType::Inet),
    (0x11, ColumnType::Date),
    (0x12, ColumnType::Time),
    (0x13, ColumnType::Smallint),
    (0x14, ColumnType::Tinyint),
    (DURATION, ColumnType::Duration),
];
const CUSTOM: u16 = 0x00;
const DURATION: u16 = 0x15;
const LIST: u16 = 0x20;
const MAP: u16 = 0x21;
const SET: u16 = 0x22;
const USER_DEFINED: u16 = 0x30;
const TUPLE: u16 = 0x31;
/// The class name of durations in versions without a code for them.
const DURATION_CLASS: &str = "org.apache.cassandra.db.marshal.DurationType";
/// Version 3 has no codes for dates, times and short integers.
const CODES_OF_V4: [(u16, &str); 4] = [
    (0x11, "org.apache.cassandra.db.marshal.SimpleDateType"),
    (0x12, "org.apache.cassandra.db.marshal.TimeType"),
    (0x13, "org.apache.cassandra.db.marshal.ShortType"),
    (0x14, "org.apache.cassandra.db.marshal.ByteType"),
];

impl ColumnType {
    /// Appends the type as an option. A type without a code in `version` is written as its class
    /// name.
    pub fn encode(&self, version: Version, out: &mut Vec<u8>) -> Encoded {
        // Types without parts are equal if their variants are.
        let own = discriminant(self);
        if let Some((code, _)) = SIMPLE.iter().find(|(_, simple)| discriminant(simple) == own) {
            match class_instead(*code, version) {
                Some(class) => encode_custom(class, out)?,
                None => out.put_short(*code),
            }
            return Ok(());
        }
        match self {
            Self::Custom(class) => encode_custom(class, out),
            Self::List(element) => {
                out.put_short(LIST);
                element.encode(version, out)
            }
            Self::Set(element) => {
                out.put_short(SET);
                element.encode(version, out)
            }
            Self::Map(key, value) => {
                out.put_short(MAP);
                key.encode(version, out)?;
                value.encode(version, out)
            }
            Self::UserDefined { keyspace, name, fields } => {
                out.put_short(USER_DEFINED);
                out.put_string(keyspace)?;
                out.put_string(name)?;
                out.put_short_count(fields.len())?;
                fields.iter().try_for_each(|(name, field)| {
                    out.put_string(name)?;
                    field.encode(version, out)
                })
            }
            Self::Tuple(parts) => {
                out.put_short(TUPLE);
                out.put_short_count(parts.len())?;
                parts.iter().try_for_each(|part| part.encode(version, out))
            }
            _ => unreachable!("simple types were written above"),
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, MalformedBody> {
        Self::decode_level(reader, 0)
    }

    fn decode_level(reader: &mut Reader<'_>, depth: usize) -> Result<Self, MalformedBody> {
        if depth == TYPE_DEPTH_MAX {
            return Err(MalformedBody::TooDeepType);
        }
        let part = |reader: &mut Reader<'_>| Self::decode_level(reader, depth + 1);
        let code = reader.short()?;
        match code {
            CUSTOM => Ok(custom(reader.string()?)),
            LIST => Ok(Self::List(Box::new(part(reader)?))),
            SET => Ok(Self::Set(Box::new(part(reader)?))),
            MAP => Ok(Self::Map(Box::new(part(reader)?), Box::new(part(reader)?))),
            USER_DEFINED => {
                let keyspace = reader.string()?.to_owned();
                let name = reader.string()?.to_owned();
                let count = reader.short()?;
                let fields = (0..count).map(|_| Ok((reader.string()?.to_owned(), part(reader)?)));
                Ok(Self::UserDefined { keyspace, name, fields: fields.collect::<Result<_, _>>()? })
            }
            TUPLE => {
                let count = reader.short()?;
                Ok(Self::Tuple((0..count).map(|_| part(reader)).collect::<Result<_, _>>()?))
            }
            _ => {
                let simple = SIMPLE.iter().find(|(known, _)| *known == code);
                simple.map(|(_, simple)| simple.clone()).ok_or(MalformedBody::UnknownType(code))
            }
        }
    }
}

fn class_instead(code: u16, version: Version) -> Option<&'static str> {
    if code == DURATION && version < Version::V5 {
        return Some(DURATION_CLASS);
    }
    let is_missing = version < Version::V4;
    CODES_OF_V4.iter().find(|(known, _)| is_missing && *known == code).map(|(_, class)| *class)
}

fn encode_custom(class: &str, out: &mut Vec<u8>) -> Encoded {
    out.put_short(CUSTOM);
    out.put_string(class)
}

fn custom(class: &str) -> ColumnType {
    let code = match CODES_OF_V4.iter().find(|(_, known)| *known == class) {
        Some((code, _)) => Some(*code),
        None => (class == DURATION_CLASS).then_some(DURATION),
    };
    let simple = SIMPLE.iter().find(|(known, _)| Some(*known) == code);
    simple.map_or_else(|| ColumnType::Custom(class.to_owned()), |(_, simple)| simple.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_shape() -> Vec<ColumnType> {
        let mut types: Vec<ColumnType> = SIMPLE.iter().map(|(_, simple)| simple.clone()).collect();
        types.push(ColumnType::Custom("org.example.Type".into()));
        let all = types.clone();
        types.push(ColumnType::Tuple(all));
        types.push(ColumnType::Map(
            Box::new(ColumnType::List(Box::new(ColumnType::Int))),
            Box::new(ColumnType::Set(Box::new(ColumnType::Duration))),
        ));
        types.push(ColumnType::UserDefined {
            keyspace: "k".into(),
            name: "t".into(),
            fields: vec![("a".into(), ColumnType::Date), ("b".into(), ColumnType::Text)],
        });
        types
    }

    #[test]
    fn every_type_survives_every_version() {
        for version in [Version::V3, Version::V4, Version::V5] {
            for column_type in every_shape() {
                let mut out = Vec::new();
                column_type.encode(version, &mut out).unwrap();
                let mut reader = Reader::new(&out);
                assert_eq!(ColumnType::decode(&mut reader), Ok(column_type.clone()), "{version}");
                assert_eq!(reader.finish(), Ok(()));
            }
        }
    }

    #[test]
    fn durations_are_classes_before_version_5() {
        let mut out = Vec::new();
        ColumnType::Duration.encode(Version::V4, &mut out).unwrap();
        assert_eq!(out[..2], [0, 0]);
        out.clear();
        ColumnType::Duration.encode(Version::V5, &mut out).unwrap();
        assert_eq!(out, [0, 0x15]);
    }

    #[test]
    fn depth_is_limited() {
        let nested: Vec<u8> = [0, 0x20].repeat(TYPE_DEPTH_MAX + 1);
        let decoded = ColumnType::decode(&mut Reader::new(&nested));
        assert_eq!(decoded, Err(MalformedBody::TooDeepType));
        let decoded = ColumnType::decode(&mut Reader::new(&[0, 0x40]));
        assert_eq!(decoded, Err(MalformedBody::UnknownType(0x40)));
    }
}
