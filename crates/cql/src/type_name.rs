//! Type names in statements.

use std::fmt;

use wire::cql::ColumnType;

use super::lexer::Kind;
use super::parser::{Parser, QualifiedName, Result};

/// A type by its name. Whether a user-defined type of that name exists is determined when the
/// statement is prepared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TypeName {
    Native(Native),
    List(Box<TypeName>),
    Set(Box<TypeName>),
    Map(Box<TypeName>, Box<TypeName>),
    Tuple(Vec<TypeName>),
    Frozen(Box<TypeName>),
    UserDefined(QualifiedName),
    /// `vector<float, 3>`
    Vector(Box<TypeName>, i32),
    /// The name of a Java class.
    Custom(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Native {
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Duration,
    Float,
    Inet,
    Int,
    Smallint,
    Text,
    Time,
    Timestamp,
    Timeuuid,
    Tinyint,
    Uuid,
    Varint,
}

/// Names of native types. `varchar` is another name of `text`, and follows it.
// Source: Cassandra's CQL documentation, "Native types"
pub const NATIVES: [(&str, Native); 21] = [
    ("ascii", Native::Ascii),
    ("bigint", Native::Bigint),
    ("blob", Native::Blob),
    ("boolean", Native::Boolean),
    ("counter", Native::Counter),
    ("date", Native::Date),
    ("decimal", Native::Decimal),
    ("double", Native::Double),
    ("duration", Native::Duration),
    ("float", Native::Float),
    ("inet", Native::Inet),
    ("int", Native::Int),
    ("smallint", Native::Smallint),
    ("text", Native::Text),
    ("varchar", Native::Text),
    ("time", Native::Time),
    ("timestamp", Native::Timestamp),
    ("timeuuid", Native::Timeuuid),
    ("tinyint", Native::Tinyint),
    ("uuid", Native::Uuid),
    ("varint", Native::Varint),
];

/// All native types in the order of the enum, with Cassandra's class names and the types of the
/// protocol.
// Source: Cassandra 5.0, db.marshal
pub(crate) static NATIVE_TYPES: [(Native, &str, ColumnType); 20] = [
    (Native::Ascii, "AsciiType", ColumnType::Ascii),
    (Native::Bigint, "LongType", ColumnType::Bigint),
    (Native::Blob, "BytesType", ColumnType::Blob),
    (Native::Boolean, "BooleanType", ColumnType::Boolean),
    (Native::Counter, "CounterColumnType", ColumnType::Counter),
    (Native::Date, "SimpleDateType", ColumnType::Date),
    (Native::Decimal, "DecimalType", ColumnType::Decimal),
    (Native::Double, "DoubleType", ColumnType::Double),
    (Native::Duration, "DurationType", ColumnType::Duration),
    (Native::Float, "FloatType", ColumnType::Float),
    (Native::Inet, "InetAddressType", ColumnType::Inet),
    (Native::Int, "Int32Type", ColumnType::Int),
    (Native::Smallint, "ShortType", ColumnType::Smallint),
    (Native::Text, "UTF8Type", ColumnType::Text),
    (Native::Time, "TimeType", ColumnType::Time),
    (Native::Timestamp, "TimestampType", ColumnType::Timestamp),
    (Native::Timeuuid, "TimeUUIDType", ColumnType::Timeuuid),
    (Native::Tinyint, "ByteType", ColumnType::Tinyint),
    (Native::Uuid, "UUIDType", ColumnType::Uuid),
    (Native::Varint, "IntegerType", ColumnType::Varint),
];
/// Classes of older tables whose values have the format of another class.
const OLDER_CLASSES: [(&str, Native); 2] =
    [("LexicalUUIDType", Native::Uuid), ("DateType", Native::Timestamp)];

pub(crate) const CLASS_PACKAGE: &str = "org.apache.cassandra.db.marshal.";

impl Native {
    pub(crate) fn name(self) -> &'static str {
        let row = NATIVES.iter().find(|(_, native)| *native == self);
        row.map(|(name, _)| *name).expect("every type has a row")
    }

    /// Cassandra's class name, without the package.
    pub(crate) fn class(self) -> &'static str {
        NATIVE_TYPES[self as usize].1
    }

    /// The protocol's description of the type.
    pub(crate) fn wire(self) -> ColumnType {
        NATIVE_TYPES[self as usize].2.clone()
    }
}

impl fmt::Display for TypeName {
    /// As in the name of a column of a result.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeName::Native(native) => formatter.write_str(native.name()),
            TypeName::List(element) => write!(formatter, "list<{element}>"),
            TypeName::Set(element) => write!(formatter, "set<{element}>"),
            TypeName::Map(key, value) => write!(formatter, "map<{key}, {value}>"),
            TypeName::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
                write!(formatter, "tuple<{}>", parts.join(", "))
            }
            TypeName::Vector(element, dimensions) => {
                write!(formatter, "vector<{element}, {dimensions}>")
            }
            TypeName::Frozen(inner) => write!(formatter, "frozen<{inner}>"),
            TypeName::UserDefined(QualifiedName { keyspace: Some(keyspace), name }) => {
                write!(formatter, "{keyspace}.{name}")
            }
            TypeName::UserDefined(name) => formatter.write_str(&name.name),
            TypeName::Custom(class) => write!(formatter, "'{class}'"),
        }
    }
}

impl TypeName {
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<TypeName> {
        parser.nested_type(|parser| {
            let token = parser.peek();
            if token.kind == Kind::String {
                let class = parser.string()?;
                return Ok(of_class(&class).unwrap_or(TypeName::Custom(class)));
            }
            if token.kind == Kind::Word && parser.peek_at(1).is_symbol("<") {
                return parse_parts(parser);
            }
            let name = parser.qualified_name()?;
            let native = NATIVES.iter().find(|(known, _)| *known == name.name);
            match native {
                Some((_, native)) if name.keyspace.is_none() && token.kind == Kind::Word => {
                    Ok(TypeName::Native(*native))
                }
                _ => Ok(TypeName::UserDefined(name)),
            }
        })
    }
}

/// The type of a Cassandra class, if it has a name in CQL.
fn of_class(text: &str) -> Option<TypeName> {
    let mut parser = Parser::new(text).ok()?;
    let found = parse_class(&mut parser)?;
    parser.expect_end().ok()?;
    Some(found)
}

/// `org.apache.cassandra.db.marshal.ListType(org.apache.cassandra.db.marshal.Int32Type)`
// Source: Cassandra 5.0, db.marshal.TypeParser
fn parse_class(parser: &mut Parser<'_>) -> Option<TypeName> {
    let mut words = vec![parser.take().text];
    while parser.take_symbol(".") {
        words.push(parser.take().text);
    }
    let (class, package) = words.split_last()?;
    if !package.is_empty() && CLASS_PACKAGE.trim_end_matches('.') != package.join(".") {
        return None;
    }
    if !parser.is_at_symbol("(") {
        let classes = NATIVE_TYPES.iter().map(|(native, known, _)| (*known, *native));
        let found = classes.chain(OLDER_CLASSES).find(|(known, _)| known == class);
        return found.map(|(_, native)| TypeName::Native(native));
    }
    parser.expect_symbol("(").ok()?;
    let nested = |parser: &mut Parser<'_>| {
        parser.nested_type(|parser| Ok(parse_class(parser))).ok().flatten()
    };
    let first = Box::new(nested(parser)?);
    let comma = |parser: &mut Parser<'_>| parser.take_symbol(",").then_some(());
    let found = match *class {
        "ListType" => TypeName::List(first),
        "SetType" => TypeName::Set(first),
        "FrozenType" => TypeName::Frozen(first),
        "ReversedType" => *first,
        "MapType" => {
            comma(parser)?;
            TypeName::Map(first, Box::new(nested(parser)?))
        }
        "TupleType" => {
            let mut parts = vec![*first];
            while comma(parser).is_some() {
                parts.push(nested(parser)?);
            }
            TypeName::Tuple(parts)
        }
        "VectorType" => {
            comma(parser)?;
            TypeName::Vector(first, i32::try_from(parser.integer().ok()?).ok()?)
        }
        _ => return None,
    };
    parser.expect_symbol(")").ok()?;
    Some(found)
}

fn parse_parts(parser: &mut Parser<'_>) -> Result<TypeName> {
    let token = parser.take();
    let name = token.text.to_ascii_lowercase();
    if name == "vector" {
        parser.expect_symbol("<")?;
        let element = TypeName::parse(parser)?;
        parser.expect_symbol(",")?;
        let count_token = parser.peek();
        let count = parser.integer()?;
        parser.expect_symbol(">")?;
        return match i32::try_from(count) {
            Ok(dimensions) => Ok(TypeName::Vector(Box::new(element), dimensions)),
            _ => count_token.fault(format!("a vector has 1 to {} dimensions", i32::MAX)),
        };
    }
    let mut parts = parser.bracketed("<", ">", TypeName::parse)?;
    let count = parts.len();
    match (name.as_str(), count) {
        ("list", 1) => Ok(TypeName::List(Box::new(parts.remove(0)))),
        ("set", 1) => Ok(TypeName::Set(Box::new(parts.remove(0)))),
        ("frozen", 1) => Ok(TypeName::Frozen(Box::new(parts.remove(0)))),
        ("map", 2) => {
            let value = parts.remove(1);
            Ok(TypeName::Map(Box::new(parts.remove(0)), Box::new(value)))
        }
        ("tuple", 1..) => Ok(TypeName::Tuple(parts)),
        ("list" | "set" | "frozen" | "map" | "tuple", _) => {
            token.fault(format!("{name} does not have {count} parts"))
        }
        _ => token.fault(format!("type {name} has no parts")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<TypeName> {
        let mut parser = Parser::new(text)?;
        let parsed = TypeName::parse(&mut parser)?;
        parser.expect_end()?;
        Ok(parsed)
    }

    #[test]
    fn types_nest() {
        assert_eq!(parsed("VARCHAR"), Ok(TypeName::Native(Native::Text)));
        let int = TypeName::Native(Native::Int);
        let map =
            TypeName::Map(Box::new(int.clone()), Box::new(TypeName::List(Box::new(int.clone()))));
        assert_eq!(parsed("frozen<map<int, list<int>>>"), Ok(TypeName::Frozen(Box::new(map))));
        assert_eq!(parsed("vector<int, 3>"), Ok(TypeName::Vector(Box::new(int), 3)));
        assert!(matches!(parsed("ks.address"), Ok(TypeName::UserDefined(_))));
        assert!(matches!(parsed("\"int\""), Ok(TypeName::UserDefined(_))));
        assert!(matches!(parsed("'org.example.T'"), Ok(TypeName::Custom(_))));
    }

    #[test]
    fn classes_of_cassandra_are_types() {
        for (class, expected) in [
            ("UTF8Type", "text"),
            ("org.apache.cassandra.db.marshal.Int32Type", "int"),
            ("org.apache.cassandra.db.marshal.LexicalUUIDType", "uuid"),
            ("ListType(org.apache.cassandra.db.marshal.Int32Type)", "list<int>"),
            ("FrozenType(MapType(UTF8Type,SetType(LongType)))", "frozen<map<text, set<bigint>>>"),
            ("TupleType(Int32Type, UTF8Type)", "tuple<int, text>"),
            ("VectorType(FloatType , 3)", "vector<float, 3>"),
            ("org.apache.cassandra.db.marshal.ReversedType(TimeUUIDType)", "timeuuid"),
        ] {
            assert_eq!(parsed(&format!("'{class}'")), parsed(expected), "{class}");
        }
        for class in ["Nope", "org.example.Int32Type", "ListType(Nope)", "ListType(Int32Type", ""] {
            assert_eq!(parsed(&format!("'{class}'")), Ok(TypeName::Custom(class.to_owned())));
        }
    }

    #[test]
    fn wrong_parts_are_refused_with_their_place() {
        for (text, expected) in [
            ("map<int>", "line 1:0 map does not have 1 parts"),
            ("bag<int>", "line 1:0 type bag has no parts"),
            ("vector<float, 2147483648>", "line 1:14 a vector has 1 to 2147483647 dimensions"),
        ] {
            assert_eq!(parsed(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn every_native_type_has_its_place() {
        for (place, (native, _, _)) in NATIVE_TYPES.iter().enumerate() {
            assert_eq!(*native as usize, place);
        }
    }

    #[test]
    fn every_native_type_has_its_name() {
        for (name, native) in NATIVES {
            assert_eq!(parsed(name), Ok(TypeName::Native(native)));
            assert!(name == "varchar" || native.name() == name);
        }
    }
}
