//! Binds terms of statements to expressions.

use std::sync::Arc;

use super::fit::{Fit, fit_term, fit_type};
use super::literal;
use super::markers::Markers;
use super::operator;
use super::resolve::{self, Argument};
use super::text::TermText;
use super::{BoundValues, Evaluated, Expression};
use crate::error::CqlError;
use crate::function::aggregate::Aggregate;
use crate::moment::Moment;
use crate::parser::QualifiedName;
use crate::schema::{Catalog, Table};
use crate::term::{Constant, Term};
use crate::type_name::{Native, TypeName};
use crate::types::CqlType;
use crate::value::constant;

/// What a term may refer to.
#[derive(Debug)]
pub(crate) struct TermContext<'a> {
    pub(crate) catalog: &'a Catalog,
    /// The statement's keyspace, in which user-defined types are looked up.
    pub(crate) keyspace: &'a str,
    /// The table of the statement: `token` takes its key, and terms of assignments may contain its
    /// columns.
    pub(crate) table: Option<&'a Table>,
    pub(crate) markers: &'a mut Markers,
}

/// Types a term for its receiver: constants are encoded and checked now, markers get their type,
/// functions are chosen. The receiver's name is that of a column or of a position; messages contain
/// it, and markers are named after it.
pub(crate) fn bind_term(
    term: &Term,
    receiver: &CqlType,
    receiver_name: &str,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let target = Target { of: receiver, name: receiver_name };
    match term {
        Term::Null if receiver.is_counter() => {
            Err(CqlError::invalid("Invalid null value for counter increment/decrement"))
        }
        Term::Null => Ok(Expression::Null { of: receiver.clone() }),
        Term::Marker(index) => {
            cx.markers.set(*index, receiver_name, receiver);
            Ok(Expression::Marker { index: *index, of: receiver.clone() })
        }
        Term::Constant(constant) => bind_constant(constant, target, cx),
        Term::List(items) => literal::bind_list(items, target, cx),
        Term::Set(items) => literal::bind_set(items, target, cx),
        Term::Map(pairs) => literal::bind_map(pairs, target, cx),
        Term::UserDefined(fields) => literal::bind_user_type(fields, target, cx),
        Term::Tuple(parts) => {
            let is_tuple = matches!(receiver.unfrozen(), CqlType::Tuple(_));
            match &parts[..] {
                // Brackets around one term may only group it.
                [only] if !is_tuple => bind_term(only, receiver, receiver_name, cx),
                _ => literal::bind_tuple(parts, target, cx),
            }
        }
        Term::Call { function, arguments } => {
            let arguments: Vec<_> = arguments.iter().map(Argument::Term).collect();
            let found = resolve::resolve(function, &arguments, Some(receiver), cx)?
                .ok_or_else(|| unknown_function(function))?;
            if !fit_type(&found.returns, receiver).is_some() {
                return Err(CqlError::invalid(format!(
                    "Type error: cannot assign result of function system.{} (type {}) to {receiver_name} (type {receiver})",
                    found.called, found.returns
                )));
            }
            resolve::bind_resolved(found, arguments, cx)
        }
        Term::Hint(name, inner) => bind_hint(name, inner, target, cx),
        Term::Negative(inner) => operator::bind_negation(Argument::Term(inner), Some(target), cx),
        Term::Arithmetic(kind, left, right) => {
            let operands = [Argument::Term(left), Argument::Term(right)];
            let bound = operator::bind_operation(*kind, operands, Some(target), cx)?;
            if fit_type(bound.cql_type(), receiver).is_some() {
                return Ok(bound);
            }
            Err(CqlError::invalid(format!(
                "Type error: cannot assign result of operation {} (type {}) to {receiver_name} (type {receiver})",
                kind.symbol(),
                bound.cql_type()
            )))
        }
        Term::Column(name) => bind_column(name, cx),
    }
}

// Source: Cassandra 5.0, FunctionCall.Raw.prepare
fn unknown_function(name: &QualifiedName) -> CqlError {
    if name.keyspace.as_deref().is_none_or(|keyspace| keyspace == "system")
        && Aggregate::is_known(&name.name)
    {
        return CqlError::invalid("Aggregation function are not supported in the where clause");
    }
    let keyspace = name.keyspace.as_deref().map(|keyspace| format!("{keyspace}."));
    CqlError::invalid(format!(
        "Unknown function {}{} called",
        keyspace.unwrap_or_default(),
        name.name
    ))
}

/// The receiver of a value, and its name in messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) of: &'a CqlType,
    pub(crate) name: &'a str,
}

// Source: Cassandra 5.0, Constants.Literal.prepare
fn bind_constant(
    constant: &Constant,
    target: Target<'_>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let refused = || {
        let text = constant.to_string();
        CqlError::invalid(format!(
            "Invalid {} constant ({}) for \"{}\" of type {}",
            constant::kind(constant),
            text.trim_matches('\''),
            target.name,
            target.of
        ))
    };
    let native = match (target.of.unfrozen(), constant) {
        (CqlType::Native(native), _) => native,
        (CqlType::Tuple(_), Constant::String(text)) => {
            let bytes = constant::from_text(text, target.of).map_err(CqlError::Invalid)?;
            return Ok(Expression::Constant { bytes, of: target.of.clone() });
        }
        _ => return Err(refused()),
    };
    if super::fit::fit_constant(constant, *native) == Fit::No {
        return Err(refused());
    }
    // Source: Cassandra 5.0, TimestampSerializer.dateStringToTimestamp
    if *native == Native::Timestamp
        && matches!(constant, Constant::String(text) if text.eq_ignore_ascii_case("now"))
    {
        let function = QualifiedName::native("current_timestamp");
        return bind_term(&Term::Call { function, arguments: vec![] }, target.of, target.name, cx);
    }
    let bytes = constant::encode(constant, *native).map_err(CqlError::Invalid)?;
    Ok(Expression::Constant { bytes, of: target.of.clone() })
}

// Source: Cassandra 5.0, TypeCast.prepare
fn bind_hint(
    name: &TypeName,
    inner: &Term,
    target: Target<'_>,
    cx: &mut TermContext<'_>,
) -> Result<Expression, CqlError> {
    let hinted = hinted_type(name, cx)?;
    let text = TermText(inner);
    if !fit_term(inner, &hinted, cx).is_some() {
        return Err(CqlError::invalid(format!("Cannot cast value {text} to type {hinted}")));
    }
    if !fit_type(&hinted, target.of).is_some() {
        return Err(CqlError::invalid(format!(
            "Cannot assign value ({hinted}) {text} to {} of type {}",
            target.name, target.of
        )));
    }
    bind_term(inner, &hinted, &format!("({hinted}){text}"), cx)
}

/// The type in brackets before a term.
pub(super) fn hinted_type(name: &TypeName, cx: &TermContext<'_>) -> Result<CqlType, CqlError> {
    let types = cx.catalog.keyspace(cx.keyspace).map(|keyspace| &keyspace.types);
    let find = |name: &str| types.and_then(|types| types.get(name)).map(Arc::clone);
    CqlType::resolve(name, cx.keyspace, &find).map_err(|error| CqlError::invalid(error.to_string()))
}

fn bind_column(name: &str, cx: &TermContext<'_>) -> Result<Expression, CqlError> {
    let find = |table: &Table| table.columns.iter().position(|column| column.name == name);
    let Some((table, index)) = cx.table.and_then(|table| Some((table, find(table)?))) else {
        return Err(CqlError::invalid(format!("Undefined column name {name}")));
    };
    Ok(Expression::Column { index, of: table.columns[index].column_type.clone() })
}

/// Evaluates an expression of constants once.
pub(super) fn folded(expression: Expression) -> Result<Expression, CqlError> {
    let Expression::Parts { parts, .. } = &expression else { return Ok(expression) };
    let are_constant = parts
        .iter()
        .all(|part| matches!(part, Expression::Constant { .. } | Expression::Null { .. }));
    if !are_constant {
        return Ok(expression);
    }
    let evaluated = expression.evaluate(&BoundValues::default(), None, &Moment::new(0, 0))?;
    let of = expression.cql_type().clone();
    Ok(match evaluated {
        Evaluated::Bytes(bytes) => Expression::Constant { bytes: bytes.into_owned(), of },
        Evaluated::Null | Evaluated::Unset => Expression::Null { of },
    })
}
