//! `CAST(value AS type)` of selectors.

use super::Expression;
use super::resolve::signature_list;
use crate::error::CqlError;
use crate::function::cast::FUNCTIONS;
use crate::function::{Function, Shape, Signature};
use crate::types::CqlType;

/// Casts the value to another type. A cast to its own type does nothing. `text` is the value's text
/// for messages.
// Source: Cassandra 5.0, Selectable.WithCast
pub(crate) fn bind_cast(
    value: Expression,
    to: &CqlType,
    text: &str,
) -> Result<Expression, CqlError> {
    if value.cql_type() == to {
        return Ok(value);
    }
    let forms = |function: &Function| match function.shape {
        Shape::Fixed(signatures) => signatures,
        _ => unreachable!("casts have lists of signatures"),
    };
    let is_to = |function: &&Function| matches!(to, CqlType::Native(native) if forms(function)[0].returns == *native);
    let Some(function) = FUNCTIONS.iter().find(is_to) else {
        return Err(CqlError::invalid(format!("{text} cannot be cast to {to}")));
    };
    let is_from = |signature: &Signature| matches!(value.cql_type(), CqlType::Native(native) if signature.arguments == [*native]);
    if !forms(function).iter().any(is_from) {
        return Err(CqlError::invalid(format!(
            "Invalid call to function system.{}, none of its type signatures match (known type signatures: {})",
            function.name,
            signature_list(function.name, forms(function).iter())
        )));
    }
    Ok(Expression::call(function, vec![value], to.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::{bound_term, evaluated_expression, type_of};

    const DATE_REFUSED: &str = "Invalid call to function system.cast_as_date, none of its type \
        signatures match (known type signatures: system.cast_as_date : (timeuuid) -> date, \
        system.cast_as_date : (timestamp) -> date)";

    fn cast(term: &str, from: &str, to: &str) -> String {
        let value = bound_term(term, from).unwrap();
        match bind_cast(value, &type_of(to), "c") {
            Ok(expression) => evaluated_expression(&expression).unwrap(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn values_are_cast() {
        for (term, from, to, expected) in [
            ("300", "int", "tinyint", "44"),
            ("1.9", "double", "int", "1"),
            ("1.5", "double", "decimal", "1.5"),
            ("3", "int", "decimal", "3"),
            ("5.2", "float", "decimal", "5.2"),
            ("1e20", "float", "decimal", "1.0E+20"),
            ("16777216", "float", "decimal", "16777216"),
            ("5.2", "double", "decimal", "5.2"),
            ("1.99", "decimal", "varint", "1"),
            ("5", "varint", "double", "5.0"),
            ("1e10", "double", "int", "2147483647"),
            ("5", "int", "int", "5"),
            ("5", "int", "text", "5"),
            ("1.5", "float", "ascii", "1.5"),
            ("'a'", "ascii", "text", "a"),
            ("'127.0.0.1'", "inet", "text", "127.0.0.1"),
            ("true", "boolean", "text", "true"),
            ("'2011-02-03'", "date", "text", "2011-02-03"),
            ("'2011-02-03'", "date", "timestamp", "2011-02-03 00:00:00.000Z"),
            ("'2011-02-03 23:00'", "timestamp", "date", "2011-02-03"),
            ("'2011-02-03 23:00'", "timestamp", "text", "2011-02-03T23:00:00.000Z"),
            ("min_timeuuid(0)", "timeuuid", "timestamp", "1970-01-01 00:00:00.000Z"),
            ("min_timeuuid(0)", "timeuuid", "date", "1970-01-01"),
            ("null", "int", "text", "null"),
            ("1", "int", "boolean", "c cannot be cast to boolean"),
            ("1", "int", "list<int>", "c cannot be cast to list<int>"),
            ("[1]", "list<int>", "date", DATE_REFUSED),
            ("'a'", "text", "date", DATE_REFUSED),
        ] {
            assert_eq!(cast(term, from, to), expected, "{term} from {from} to {to}");
        }
    }
}
