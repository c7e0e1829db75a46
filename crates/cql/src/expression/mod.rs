//! Terms and selectors with resolved names and known types, and their evaluation.
//!
//! Reading order: `bind` (terms of statements to expressions), `select` (the selectors of SELECT),
//! `resolve` (the function of a call), `operator` (the same for arithmetic), `cast`, `markers` (the
//! values that clients must send), `bound` (the values they sent).

mod bind;
mod bound;
mod cast;
mod document;
pub(crate) mod fit;
mod literal;
mod markers;
pub(crate) mod operator;
pub(crate) mod resolve;
mod select;
pub(crate) mod text;

use std::borrow::Cow;

use smallvec::SmallVec;
use wire::cql::Value;

pub(crate) use bind::{Target, TermContext, bind_term};
pub use bound::BoundValues;
pub use document::decode_document;
pub use markers::Marker;
pub(crate) use markers::Markers;
pub(crate) use select::{AggregateCall, SelectorContext, bind_selector};

use super::error::CqlError;
use super::function::{Call, Function};
use super::moment::Moment;
use super::types::CqlType;
use super::value::check::check;
use super::value::check_size;
use super::value::collection::{put_count, put_part};
use super::value::number::check_number;
use super::value::order::{canonical, sorted};
use super::value::vector::{fixed_width, put_element};

/// A typed term or selector. Every expression has a type: see [`Expression::cql_type`].
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    Constant {
        bytes: Vec<u8>,
        of: CqlType,
    },
    Null {
        of: CqlType,
    },
    Marker {
        /// The index among all markers of the statement.
        index: usize,
        of: CqlType,
    },
    /// The index among the columns of the table.
    Column {
        index: usize,
        of: CqlType,
    },
    /// A list, set, map (alternating keys and values), tuple, user-defined type or vector of parts.
    Parts {
        parts: Vec<Expression>,
        of: CqlType,
    },
    Call {
        function: &'static Function,
        /// The function's name in the statement.
        called: &'static str,
        arguments: Vec<Expression>,
        of: CqlType,
    },
    /// The result of the selection's nth aggregate.
    Aggregate {
        nth: usize,
        of: CqlType,
    },
}

/// The result of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evaluated<'a> {
    Bytes(Cow<'a, [u8]>),
    Null,
    /// The column keeps its value.
    Unset,
}

impl<'a> Evaluated<'a> {
    /// For positions that do not allow unset; `place` names the position.
    pub fn required(self, place: &str) -> Result<Option<Cow<'a, [u8]>>, CqlError> {
        match self {
            Evaluated::Bytes(bytes) => Ok(Some(bytes)),
            Evaluated::Null => Ok(None),
            Evaluated::Unset => Err(CqlError::invalid(format!("Invalid unset value for {place}"))),
        }
    }
}

/// A row that expressions read.
pub trait Row {
    /// The whole value of a column, by its index in the table.
    fn column(&self, index: usize) -> Result<Option<Cow<'_, [u8]>>, CqlError>;

    /// The result of the nth aggregate of the selection. Only for rows that represent groups.
    fn aggregate(&self, nth: usize) -> Option<&[u8]>;
}

impl Expression {
    /// A call of a function without a name in CQL.
    pub(crate) fn call(
        function: &'static Function,
        arguments: Vec<Expression>,
        of: CqlType,
    ) -> Self {
        Expression::Call { function, called: function.name, arguments, of }
    }

    pub(crate) fn cql_type(&self) -> &CqlType {
        match self {
            Expression::Constant { of, .. }
            | Expression::Null { of }
            | Expression::Marker { of, .. }
            | Expression::Column { of, .. }
            | Expression::Parts { of, .. }
            | Expression::Call { of, .. }
            | Expression::Aggregate { of, .. } => of,
        }
    }

    /// The value for these bound values, and for this row if the expression contains columns. Bound
    /// values are checked against their types.
    pub fn evaluate<'a>(
        &'a self,
        values: &BoundValues<'a>,
        row: Option<&'a dyn Row>,
        moment: &Moment,
    ) -> Result<Evaluated<'a>, CqlError> {
        match self {
            Expression::Constant { bytes, .. } => Ok(Evaluated::Bytes(Cow::Borrowed(bytes))),
            Expression::Null { .. } => Ok(Evaluated::Null),
            Expression::Marker { index, of } => match values.get(*index) {
                Value::Null => Ok(Evaluated::Null),
                Value::Unset => Ok(Evaluated::Unset),
                Value::Bytes(bytes) => {
                    moment.spend(bytes.len())?;
                    check(bytes, of).map_err(CqlError::Invalid)?;
                    Ok(Evaluated::Bytes(canonical(bytes, of)))
                }
            },
            Expression::Column { index, .. } => {
                let value = row.map(|row| row.column(*index)).transpose()?.flatten();
                if let Some(Cow::Owned(made)) = &value {
                    moment.spend(made.len())?;
                }
                Ok(value.map_or(Evaluated::Null, Evaluated::Bytes))
            }
            Expression::Aggregate { nth, .. } => {
                let value = row.and_then(|row| row.aggregate(*nth));
                Ok(value.map_or(Evaluated::Null, |bytes| Evaluated::Bytes(Cow::Borrowed(bytes))))
            }
            Expression::Parts { parts, of } => {
                let evaluate = |part: &'a Expression| part.evaluate(values, row, moment);
                let bytes = parts_value(parts, of, evaluate)?;
                moment.spend(bytes.len())?;
                Ok(Evaluated::Bytes(Cow::Owned(bytes)))
            }
            Expression::Call { function, called, arguments, of } => {
                let evaluate =
                    |argument: &'a Expression| match argument.evaluate(values, row, moment)? {
                        Evaluated::Bytes(bytes) => Ok(Some(bytes)),
                        Evaluated::Null => Ok(None),
                        Evaluated::Unset => Err(CqlError::invalid(format!(
                            "Invalid unset value for argument in call to function {called}"
                        ))),
                    };
                let given: SmallVec<[Option<Cow<'_, [u8]>>; 4]> =
                    arguments.iter().map(evaluate).collect::<Result<_, CqlError>>()?;
                let types: SmallVec<[CqlType; 4]> =
                    arguments.iter().map(|argument| argument.cql_type().clone()).collect();
                let given: SmallVec<[Option<&[u8]>; 4]> =
                    given.iter().map(Option::as_deref).collect();
                moment.spend(given.iter().flatten().map(|bytes| bytes.len()).sum())?;
                let call = Call { called, arguments: &given, types: &types, returns: of, moment };
                let value = (function.run)(&call)?;
                let length = value.as_ref().map_or(0, Vec::len);
                check_size(length)?;
                moment.spend(length)?;
                if let (Some(bytes), CqlType::Native(native)) = (&value, of) {
                    check_number(bytes, *native).map_err(CqlError::Invalid)?;
                }
                Ok(value.map_or(Evaluated::Null, |bytes| Evaluated::Bytes(Cow::Owned(bytes))))
            }
        }
    }

    /// Whether its value depends on values from the client.
    pub(crate) fn has_marker(&self) -> bool {
        match self {
            Expression::Marker { .. } => true,
            Expression::Parts { parts, .. } => parts.iter().any(Expression::has_marker),
            Expression::Call { arguments, .. } => arguments.iter().any(Expression::has_marker),
            Expression::Constant { .. }
            | Expression::Null { .. }
            | Expression::Column { .. }
            | Expression::Aggregate { .. } => false,
        }
    }
}

/// The bytes of a collection, a tuple, a user-defined type or a vector of these parts.
// Source: Cassandra 5.0, MultiElementType.filterSortAndValidateElements of each type
fn parts_value<'a>(
    parts: &'a [Expression],
    of: &CqlType,
    evaluate: impl Fn(&'a Expression) -> Result<Evaluated<'a>, CqlError>,
) -> Result<Vec<u8>, CqlError> {
    let mut out = Vec::new();
    let per_item = match of.unfrozen() {
        CqlType::Map(..) => 2,
        CqlType::List(_) | CqlType::Set(_) => 1,
        _ => 0,
    };
    if let Some(items) = parts.len().checked_div(per_item) {
        put_count(items, &mut out);
    }
    for (nth, part) in parts.iter().enumerate() {
        match (evaluate(part)?, of.unfrozen()) {
            (Evaluated::Bytes(bytes), CqlType::Vector(element, _)) => {
                let width = fixed_width(element);
                if bytes.is_empty() && width.is_some() {
                    return Err(absent_part(&Evaluated::Null, nth, of));
                }
                put_element(&bytes, width, &mut out);
            }
            (Evaluated::Bytes(bytes), _) => put_part(Some(&bytes), &mut out),
            (Evaluated::Null, CqlType::Tuple(_) | CqlType::UserDefined(_)) => {
                put_part(None, &mut out);
            }
            (absent, _) => return Err(absent_part(&absent, nth, of)),
        }
        check_size(out.len())?;
    }
    match sorted(&out, of) {
        Cow::Borrowed(_) => Ok(out),
        Cow::Owned(sorted) => Ok(sorted),
    }
}

fn absent_part(absent: &Evaluated<'_>, nth: usize, of: &CqlType) -> CqlError {
    let what = if *absent == Evaluated::Null { "null" } else { "unset" };
    CqlError::invalid(match of.unfrozen() {
        CqlType::Vector(..) => format!("{what} is not supported inside vectors"),
        CqlType::Tuple(_) => format!("Invalid unset value for tuple field number {nth}"),
        CqlType::UserDefined(user) => format!(
            "Invalid unset value for field '{}' of user defined type {}",
            user.fields[nth].0, user.name
        ),
        _ => format!("{what} is not supported inside collections"),
    })
}

#[cfg(test)]
pub(crate) mod tests;
