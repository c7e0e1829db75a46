//! Terms of statements to expressions.

use super::Expression;
use super::markers::Markers;
use crate::cql::error::CqlError;
use crate::cql::schema::{Catalog, Table};
use crate::cql::term::Term;
use crate::cql::types::CqlType;
use crate::cql::value::constant;

/// What a term may refer to.
#[derive(Debug)]
pub struct TermCx<'a> {
    pub catalog: &'a Catalog,
    /// Of the statement: user-defined types are looked up there.
    pub keyspace: &'a str,
    /// Where columns may stand in terms: whose they are.
    pub table: Option<&'a Table>,
    pub markers: &'a mut Markers,
}

/// Types a term for what receives it: constants are encoded and checked now, markers get their type,
/// functions are chosen. The receiver's name is that of a column or of a place, for messages and for
/// the names of markers.
pub fn bind_term(
    term: &Term,
    receiver: &CqlType,
    receiver_name: &str,
    cx: &mut TermCx<'_>,
) -> Result<Expression, CqlError> {
    match term {
        Term::Null => Ok(Expression::Null { of: receiver.clone() }),
        Term::Marker(index) => {
            cx.markers.set(*index, receiver_name, receiver);
            Ok(Expression::Marker { index: *index, of: receiver.clone() })
        }
        Term::Constant(constant) => {
            let CqlType::Native(native) = receiver.unfrozen() else {
                return Err(CqlError::invalid(format!("Invalid constant for {receiver_name}")));
            };
            let bytes = constant::encode(constant, *native).map_err(CqlError::Invalid)?;
            Ok(Expression::Constant { bytes, of: receiver.clone() })
        }
        _ => Err(CqlError::invalid("Terms with parts are not known yet")),
    }
}
