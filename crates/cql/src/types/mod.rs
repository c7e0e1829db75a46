//! Types with resolved names.

pub mod size;

use std::fmt;
use std::sync::Arc;

use base::hex::hex;
use wire::cql::ColumnType;

use self::size::TypeSize;
use crate::parser::quoted_if_needed;
use crate::type_name::{CLASS_PACKAGE, Native, TypeName};

/// A type with all names resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CqlType {
    Native(Native),
    List(Box<CqlType>),
    Set(Box<CqlType>),
    Map(Box<CqlType>, Box<CqlType>),
    Tuple(Vec<CqlType>),
    UserDefined(Arc<UserType>),
    Vector(Box<CqlType>, usize),
    /// A collection or a user-defined type that is one cell: it is written as a whole.
    Frozen(Box<CqlType>),
}

/// A user-defined type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserType {
    pub(crate) keyspace: String,
    pub(crate) name: String,
    pub fields: Vec<(String, CqlType)>,
    size: TypeSize,
}

impl UserType {
    pub fn new(keyspace: String, name: String, fields: Vec<(String, CqlType)>) -> UserType {
        let size = TypeSize::of_fields(&keyspace, &name, &fields);
        UserType { keyspace, name, fields, size }
    }

    /// Computed at creation: computing it again would cost time proportional to the size of the
    /// type.
    pub(crate) fn size(&self) -> TypeSize {
        self.size
    }
}

/// Why a type is invalid. The texts are Cassandra's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TypeError {
    #[error("Unknown type {0}")]
    Unknown(String),
    #[error(
        "Statement on keyspace {statement} cannot refer to a user type in keyspace {of}; user types can only be used in the keyspace they are defined in"
    )]
    OtherKeyspace { statement: String, of: String },
    #[error("Non-frozen collections are not allowed inside collections: {0}")]
    Unfrozen(String),
    #[error("Non-frozen UDTs are not allowed inside collections: {0}")]
    UnfrozenUserType(String),
    #[error("Counters are not allowed inside collections: {0}")]
    CounterInside(String),
    #[error("Durations are not allowed inside sets: {0}")]
    DurationInSet(String),
    #[error("Durations are not allowed as map keys: {0}")]
    DurationAsKey(String),
    #[error("frozen<> is only allowed on collections, tuples, and user-defined types (got {0})")]
    FrozenNative(String),
    #[error("vectors may only have positive dimensions; given {0}")]
    NoDimensions(i32),
    #[error("Custom types are not supported: {0}")]
    Custom(String),
    #[error("The type is too large: {0}")]
    TooLarge(String),
}

impl CqlType {
    pub const TEXT: CqlType = CqlType::Native(Native::Text);
    pub const INT: CqlType = CqlType::Native(Native::Int);
    pub const BIGINT: CqlType = CqlType::Native(Native::Bigint);
    pub const BOOLEAN: CqlType = CqlType::Native(Native::Boolean);
    pub const UUID: CqlType = CqlType::Native(Native::Uuid);

    /// Resolves the names. `find` looks up the user-defined types of `keyspace`.
    pub(crate) fn resolve(
        name: &TypeName,
        keyspace: &str,
        find: &dyn Fn(&str) -> Option<Arc<UserType>>,
    ) -> Result<CqlType, TypeError> {
        let found = Self::resolve_any(name, keyspace, find)?;
        TypeSize::of(&found).excess().map_or(Ok(found), |excess| Err(TypeError::TooLarge(excess)))
    }

    /// Like [`resolve`](Self::resolve), for types of any size.
    pub(super) fn resolve_any(
        name: &TypeName,
        keyspace: &str,
        find: &dyn Fn(&str) -> Option<Arc<UserType>>,
    ) -> Result<CqlType, TypeError> {
        let part = |name: &TypeName| Self::resolve_any(name, keyspace, find);
        match name {
            TypeName::Native(native) => Ok(CqlType::Native(*native)),
            TypeName::List(element) => {
                let element = part(element)?;
                let found = CqlType::List(Box::new(element.clone()));
                found.check_part(&element)?;
                Ok(found)
            }
            TypeName::Set(element) => {
                let element = part(element)?;
                let found = CqlType::Set(Box::new(element.clone()));
                found.check_part(&element)?;
                if element.holds_duration() {
                    return Err(TypeError::DurationInSet(found.to_string()));
                }
                Ok(found)
            }
            TypeName::Map(key, value) => {
                let (key, value) = (part(key)?, part(value)?);
                let found = CqlType::Map(Box::new(key.clone()), Box::new(value.clone()));
                found.check_part(&key)?;
                found.check_part(&value)?;
                if key.holds_duration() {
                    return Err(TypeError::DurationAsKey(found.to_string()));
                }
                Ok(found)
            }
            TypeName::Tuple(parts) => {
                let parts: Result<Vec<_>, _> = parts.iter().map(part).collect();
                // A tuple is one cell, including everything inside it.
                Ok(CqlType::Tuple(parts?.into_iter().map(CqlType::frozen).collect()))
            }
            TypeName::Vector(element, dimensions) => {
                // A vector is one cell too, but its parts are written as in the statement.
                match usize::try_from(*dimensions) {
                    Ok(dimensions @ 1..) => {
                        Ok(CqlType::Vector(Box::new(part(element)?), dimensions))
                    }
                    _ => Err(TypeError::NoDimensions(*dimensions)),
                }
            }
            TypeName::Frozen(inner) => {
                if matches!(**inner, TypeName::Native(_)) {
                    return Err(TypeError::FrozenNative(part(inner)?.to_string()));
                }
                Self::resolve_frozen(inner, keyspace, find)
            }
            TypeName::UserDefined(name) => {
                if let Some(of) = name.keyspace.as_ref().filter(|of| *of != keyspace) {
                    let statement = keyspace.to_owned();
                    return Err(TypeError::OtherKeyspace { statement, of: of.clone() });
                }
                let found = find(&name.name).map(CqlType::UserDefined);
                found.ok_or_else(|| TypeError::Unknown(format!("{keyspace}.{}", name.name)))
            }
            TypeName::Custom(class) => Err(TypeError::Custom(class.clone())),
        }
    }

    /// Everything inside `frozen<>` is frozen.
    fn resolve_frozen(
        name: &TypeName,
        keyspace: &str,
        find: &dyn Fn(&str) -> Option<Arc<UserType>>,
    ) -> Result<CqlType, TypeError> {
        let part = |name: &TypeName| match name {
            TypeName::List(_) | TypeName::Set(_) | TypeName::Map(..) | TypeName::UserDefined(_) => {
                Self::resolve_frozen(name, keyspace, find)
            }
            _ => Self::resolve_any(name, keyspace, find),
        };
        let inner = match name {
            TypeName::List(element) => CqlType::List(Box::new(part(element)?)),
            TypeName::Set(element) => CqlType::Set(Box::new(part(element)?)),
            TypeName::Map(key, value) => CqlType::Map(Box::new(part(key)?), Box::new(part(value)?)),
            _ => Self::resolve_any(name, keyspace, find)?,
        };
        Ok(inner.frozen())
    }

    /// The same type as one cell.
    #[must_use]
    pub fn frozen(self) -> CqlType {
        if self.is_multi_cell() { CqlType::Frozen(Box::new(self)) } else { self }
    }

    /// The type inside `frozen<>`.
    pub fn unfrozen(&self) -> &CqlType {
        match self {
            CqlType::Frozen(inner) => inner,
            other => other,
        }
    }

    /// Whether its parts are separate cells.
    pub fn is_multi_cell(&self) -> bool {
        matches!(
            self,
            CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) | CqlType::UserDefined(_)
        )
    }

    pub(crate) fn is_counter(&self) -> bool {
        *self == CqlType::Native(Native::Counter)
    }

    fn holds_duration(&self) -> bool {
        match self.unfrozen() {
            CqlType::Native(native) => *native == Native::Duration,
            CqlType::List(part) | CqlType::Set(part) | CqlType::Vector(part, _) => {
                part.holds_duration()
            }
            CqlType::Map(key, value) => key.holds_duration() || value.holds_duration(),
            CqlType::Tuple(parts) => parts.iter().any(CqlType::holds_duration),
            CqlType::UserDefined(user) => {
                user.fields.iter().any(|(_, field)| field.holds_duration())
            }
            CqlType::Frozen(_) => false,
        }
    }

    /// Whether its values may be part of a primary key: they must have an order.
    pub(crate) fn is_ordered(&self) -> bool {
        !self.holds_duration() && !self.is_counter()
    }

    fn check_part(&self, part: &CqlType) -> Result<(), TypeError> {
        match part {
            CqlType::UserDefined(_) => Err(TypeError::UnfrozenUserType(self.to_string())),
            _ if part.is_multi_cell() => Err(TypeError::Unfrozen(self.to_string())),
            _ if part.is_counter() => Err(TypeError::CounterInside(self.to_string())),
            _ => Ok(()),
        }
    }

    /// The protocol's description of the type.
    pub fn wire(&self) -> ColumnType {
        match self {
            CqlType::Native(native) => native.wire(),
            CqlType::List(element) => ColumnType::List(Box::new(element.wire())),
            CqlType::Set(element) => ColumnType::Set(Box::new(element.wire())),
            CqlType::Map(key, value) => {
                ColumnType::Map(Box::new(key.wire()), Box::new(value.wire()))
            }
            CqlType::Tuple(parts) => ColumnType::Tuple(parts.iter().map(CqlType::wire).collect()),
            CqlType::UserDefined(user) => ColumnType::UserDefined {
                keyspace: user.keyspace.clone(),
                name: user.name.clone(),
                fields: user
                    .fields
                    .iter()
                    .map(|(name, field)| (name.clone(), field.wire()))
                    .collect(),
            },
            CqlType::Vector(element, dimensions) => ColumnType::Custom(format!(
                "org.apache.cassandra.db.marshal.VectorType({} , {dimensions})",
                class_name(element, false)
            )),
            CqlType::Frozen(inner) => inner.wire(),
        }
    }
}

/// The name of Cassandra's class, as used in vectors. `is_frozen`: an enclosing type is frozen, and
/// therefore everything inside it.
// Source: Cassandra 5.0, AbstractType.toString(boolean) of each type
pub(crate) fn class_name(of: &CqlType, is_frozen: bool) -> String {
    let part = |of: &CqlType| class_name(of, is_frozen);
    let short = match of {
        CqlType::Native(native) => native.class().to_owned(),
        CqlType::List(element) => format!("ListType({})", part(element)),
        CqlType::Set(element) => format!("SetType({})", part(element)),
        CqlType::Map(key, value) => format!("MapType({},{})", part(key), part(value)),
        CqlType::Tuple(parts) => {
            let parts: Vec<String> = parts.iter().map(|part| class_name(part, true)).collect();
            format!("TupleType({})", parts.join(","))
        }
        CqlType::Vector(element, dimensions) => {
            format!("VectorType({} , {dimensions})", part(element))
        }
        CqlType::UserDefined(user) => {
            let fields = user.fields.iter();
            let fields: Vec<String> = fields
                .map(|(name, field)| format!(",{}:{}", hex(name.as_bytes()), part(field)))
                .collect();
            let fields = fields.concat();
            format!("UserType({},{}{fields})", user.keyspace, hex(user.name.as_bytes()))
        }
        CqlType::Frozen(inner) if is_frozen => return class_name(inner, true),
        CqlType::Frozen(inner) => format!("FrozenType({})", class_name(inner, true)),
    };
    format!("{CLASS_PACKAGE}{short}")
}

impl fmt::Display for CqlType {
    /// As CQL text: the form in `system_schema`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CqlType::Native(native) => formatter.write_str(native.name()),
            CqlType::List(element) => write!(formatter, "list<{element}>"),
            CqlType::Set(element) => write!(formatter, "set<{element}>"),
            CqlType::Map(key, value) => write!(formatter, "map<{key}, {value}>"),
            CqlType::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
                write!(formatter, "frozen<tuple<{}>>", parts.join(", "))
            }
            CqlType::UserDefined(user) => formatter.write_str(&quoted_if_needed(&user.name)),
            CqlType::Vector(element, dimensions) => {
                write!(formatter, "vector<{element}, {dimensions}>")
            }
            CqlType::Frozen(inner) => write!(formatter, "frozen<{inner}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::Parser;

    fn resolved(text: &str) -> Result<CqlType, TypeError> {
        let name = TypeName::parse(&mut Parser::new(text).unwrap()).unwrap();
        let fields = vec![("a".into(), CqlType::INT)];
        let user = Arc::new(UserType::new("k".into(), "u".into(), fields));
        CqlType::resolve(&name, "k", &|name| (name == "u").then(|| Arc::clone(&user)))
    }

    #[test]
    fn types_are_written_as_cassandra_writes_them() {
        for (text, expected) in [
            ("varchar", "text"),
            (
                "map<int,list<text>>",
                "Non-frozen collections are not allowed inside collections: map<int, list<text>>",
            ),
            ("map<int, frozen<list<text>>>", "map<int, frozen<list<text>>>"),
            ("frozen<map<int, list<text>>>", "frozen<map<int, frozen<list<text>>>>"),
            ("tuple<int, list<text>>", "frozen<tuple<int, frozen<list<text>>>>"),
            ("frozen<tuple<int, text>>", "frozen<tuple<int, text>>"),
            ("u", "u"),
            ("k.u", "u"),
            ("list<frozen<u>>", "list<frozen<u>>"),
            ("list<u>", "Non-frozen UDTs are not allowed inside collections: list<u>"),
            ("vector<float, 3>", "vector<float, 3>"),
            ("x", "Unknown type k.x"),
            (
                "frozen<int>",
                "frozen<> is only allowed on collections, tuples, and user-defined types (got int)",
            ),
            ("set<duration>", "Durations are not allowed inside sets: set<duration>"),
            ("list<counter>", "Counters are not allowed inside collections: list<counter>"),
            ("vector<float, 0>", "vectors may only have positive dimensions; given 0"),
            ("vector<float, -1>", "vectors may only have positive dimensions; given -1"),
            ("vector<float, 2147483647>", "vector<float, 2147483647>"),
        ] {
            let found = resolved(text).map_or_else(|error| error.to_string(), |t| t.to_string());
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn vectors_have_the_name_of_a_class() {
        let ColumnType::Custom(class) = resolved("vector<float, 3>").unwrap().wire() else {
            panic!()
        };
        assert_eq!(
            class,
            "org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)"
        );
    }

    /// What a type name includes only implicitly is not written; what is explicit stays. All texts
    /// are those of Cassandra 5.0 in `system_schema.columns`, in DESCRIBE and in metadata.
    #[test]
    fn types_are_frozen_in_text_where_cassandra_writes_it() {
        for (text, in_schema, class) in [
            ("vector<set<text>, 2>", "", "VectorType(SetType(UTF8Type) , 2)"),
            ("vector<frozen<set<text>>, 2>", "", "VectorType(FrozenType(SetType(UTF8Type)) , 2)"),
            (
                "frozen<vector<set<text>, 2>>",
                "vector<set<text>, 2>",
                "VectorType(SetType(UTF8Type) , 2)",
            ),
            ("vector<u, 2>", "", "VectorType(UserType(k,75,61:Int32Type) , 2)"),
            ("vector<frozen<u>, 2>", "", "VectorType(FrozenType(UserType(k,75,61:Int32Type)) , 2)"),
            (
                "vector<vector<list<int>, 2>, 3>",
                "",
                "VectorType(VectorType(ListType(Int32Type) , 2) , 3)",
            ),
            (
                "vector<tuple<int, list<int>>, 2>",
                "vector<frozen<tuple<int, frozen<list<int>>>>, 2>",
                "VectorType(TupleType(Int32Type,ListType(Int32Type)) , 2)",
            ),
            (
                "vector<map<int, frozen<list<int>>>, 2>",
                "",
                "VectorType(MapType(Int32Type,FrozenType(ListType(Int32Type))) , 2)",
            ),
            (
                "vector<frozen<map<int, list<int>>>, 2>",
                "vector<frozen<map<int, frozen<list<int>>>>, 2>",
                "VectorType(FrozenType(MapType(Int32Type,ListType(Int32Type))) , 2)",
            ),
            ("tuple<int, list<int>>", "frozen<tuple<int, frozen<list<int>>>>", ""),
            ("tuple<u, frozen<u>>", "frozen<tuple<frozen<u>, frozen<u>>>", ""),
            ("tuple<vector<set<int>, 2>>", "frozen<tuple<vector<set<int>, 2>>>", ""),
            ("list<vector<set<int>, 2>>", "", ""),
            ("frozen<list<vector<set<int>, 2>>>", "", ""),
            (
                "frozen<map<int, list<set<int>>>>",
                "frozen<map<int, frozen<list<frozen<set<int>>>>>>",
                "",
            ),
            ("map<int, frozen<list<set<int>>>>", "map<int, frozen<list<frozen<set<int>>>>>", ""),
            ("list<tuple<int, set<int>>>", "list<frozen<tuple<int, frozen<set<int>>>>>", ""),
            ("frozen<frozen<list<int>>>", "frozen<list<int>>", ""),
        ] {
            let found = resolved(text).unwrap();
            let expected = if in_schema.is_empty() { text } else { in_schema };
            assert_eq!(found.to_string(), expected);
            // A stored type is read again as the same one.
            assert_eq!(resolved(&found.to_string()).unwrap(), found);
            if let ColumnType::Custom(found) = found.wire() {
                assert_eq!(found.replace("org.apache.cassandra.db.marshal.", ""), class, "{text}");
            } else {
                assert_eq!(class, "", "{text}");
            }
        }
    }

    #[test]
    fn properties_of_types_are_found() {
        assert!(!resolved("duration").unwrap().is_ordered());
        assert!(resolved("frozen<list<int>>").unwrap().is_ordered());
        assert!(resolved("list<int>").unwrap().is_multi_cell());
    }
}
