//! Converts column types of the protocol to CQL types.

use cql::type_name::Native;
use cql::types::{CqlType, UserType};
use wire::cql::ColumnType;

/// Package prefix of Cassandra's class names.
const MARSHAL: &str = "org.apache.cassandra.db.marshal.";

/// Returns the CQL type that the protocol's description was made from. The description does not
/// include frozen. An unknown class is a blob.
pub(super) fn of_wire(column: &ColumnType) -> CqlType {
    let part = |part: &ColumnType| Box::new(of_wire(part));
    CqlType::Native(match column {
        ColumnType::Custom(class) => return of_class(class),
        ColumnType::List(element) => return CqlType::List(part(element)),
        ColumnType::Set(element) => return CqlType::Set(part(element)),
        ColumnType::Map(key, value) => return CqlType::Map(part(key), part(value)),
        ColumnType::Tuple(parts) => return CqlType::Tuple(parts.iter().map(of_wire).collect()),
        ColumnType::UserDefined { keyspace, name, fields } => {
            let fields = fields.iter().map(|(name, of)| (name.clone(), of_wire(of))).collect();
            let (keyspace, name) = (keyspace.clone(), name.clone());
            return CqlType::UserDefined(std::sync::Arc::new(UserType::new(
                keyspace, name, fields,
            )));
        }
        ColumnType::Ascii => Native::Ascii,
        ColumnType::Bigint => Native::Bigint,
        ColumnType::Blob => Native::Blob,
        ColumnType::Boolean => Native::Boolean,
        ColumnType::Counter => Native::Counter,
        ColumnType::Date => Native::Date,
        ColumnType::Decimal => Native::Decimal,
        ColumnType::Double => Native::Double,
        ColumnType::Duration => Native::Duration,
        ColumnType::Float => Native::Float,
        ColumnType::Inet => Native::Inet,
        ColumnType::Int => Native::Int,
        ColumnType::Smallint => Native::Smallint,
        ColumnType::Text => Native::Text,
        ColumnType::Time => Native::Time,
        ColumnType::Timestamp => Native::Timestamp,
        ColumnType::Timeuuid => Native::Timeuuid,
        ColumnType::Tinyint => Native::Tinyint,
        ColumnType::Uuid => Native::Uuid,
        ColumnType::Varint => Native::Varint,
    })
}

/// Converts a class name: vectors of numbers and texts are known, other classes are shown as bytes.
fn of_class(class: &str) -> CqlType {
    let vector = || {
        let inside = class.strip_prefix(MARSHAL)?.strip_prefix("VectorType(")?.strip_suffix(')')?;
        let (element, dimensions) = inside.rsplit_once(',')?;
        let element = match element.trim().strip_prefix(MARSHAL)? {
            "FloatType" => Native::Float,
            "DoubleType" => Native::Double,
            "Int32Type" => Native::Int,
            "LongType" => Native::Bigint,
            "UTF8Type" => Native::Text,
            _ => return None,
        };
        let dimensions = dimensions.trim().parse().ok()?;
        Some(CqlType::Vector(Box::new(CqlType::Native(element)), dimensions))
    };
    vector().unwrap_or(CqlType::Native(Native::Blob))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_survive_a_round_trip() {
        let float = || Box::new(CqlType::Native(Native::Float));
        for of in [
            CqlType::TEXT,
            CqlType::Native(Native::Duration),
            CqlType::Map(Box::new(CqlType::TEXT), Box::new(CqlType::Set(Box::new(CqlType::INT)))),
            CqlType::List(Box::new(CqlType::Tuple(vec![CqlType::INT, CqlType::UUID]))),
            CqlType::Vector(float(), 3),
        ] {
            assert_eq!(of_wire(&of.wire()), of);
        }
        assert_eq!(of_wire(&ColumnType::Custom("a.b.C".to_owned())), CqlType::Native(Native::Blob));
    }
}
