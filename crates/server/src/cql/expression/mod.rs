//! Terms and selectors with all names looked up and all types known, and what they evaluate to.
//!
//! Reading order: `bind` (terms of statements to expressions), `select` (what SELECT computes of rows),
//! `markers` (what clients must send), `bound` (what they sent), `moment` (time and chance).

mod bind;
mod bound;
mod markers;
mod moment;
mod select;

use std::borrow::Cow;

pub use bind::{TermCx, bind_term};
pub use bound::BoundValues;
pub use markers::{Marker, Markers};
pub use moment::Moment;
pub use select::{AggregateCall, SelectorCx, bind_selector};

use super::error::CqlError;
use super::function::{Call, Function};
use super::types::CqlType;
use super::value::check::check;
use super::value::collection;
use wire::cql::Value;

/// See the module. Every expression knows its type: see [`Expression::cql_type`].
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
        /// The place among all markers of the statement.
        index: usize,
        of: CqlType,
    },
    /// The place among the columns of the table.
    Column {
        index: usize,
        of: CqlType,
    },
    /// A list, set, map (keys and values in turn), tuple, user-defined type or vector of parts.
    Parts {
        parts: Vec<Expression>,
        of: CqlType,
    },
    Call {
        function: &'static Function,
        arguments: Vec<Expression>,
        of: CqlType,
    },
    /// What the selection's nth aggregate came to.
    Aggregate {
        nth: usize,
        of: CqlType,
    },
}

/// What an expression comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evaluated<'a> {
    Bytes(Cow<'a, [u8]>),
    Null,
    /// What stands in the column is left as it is.
    Unset,
}

impl<'a> Evaluated<'a> {
    /// For places where unset is no answer; the name is that of the place.
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
    /// The whole value of a column, by its place in the table.
    fn column(&self, index: usize) -> Option<Cow<'_, [u8]>>;

    /// What the nth aggregate of the selection came to. Only for rows that stand for groups.
    fn aggregate(&self, nth: usize) -> Option<&[u8]>;
}

impl Expression {
    pub fn cql_type(&self) -> &CqlType {
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

    /// The value for these bound values, and for this row if columns stand in the expression. Bound
    /// values are checked to be of their types.
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
                    check(bytes, of).map_err(CqlError::Invalid)?;
                    Ok(Evaluated::Bytes(Cow::Borrowed(bytes)))
                }
            },
            Expression::Column { index, .. } => {
                let value = row.and_then(|row| row.column(*index));
                Ok(value.map_or(Evaluated::Null, Evaluated::Bytes))
            }
            Expression::Aggregate { nth, .. } => {
                let value = row.and_then(|row| row.aggregate(*nth));
                Ok(value.map_or(Evaluated::Null, |bytes| Evaluated::Bytes(Cow::Borrowed(bytes))))
            }
            Expression::Parts { parts, of } => parts_value(parts, of, values, row, moment),
            Expression::Call { function, arguments, of } => {
                let types: Vec<CqlType> =
                    arguments.iter().map(|argument| argument.cql_type().clone()).collect();
                let values: Vec<Option<Cow<'_, [u8]>>> = arguments
                    .iter()
                    .map(|argument| argument.evaluate(values, row, moment)?.required("argument"))
                    .collect::<Result<_, _>>()?;
                let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
                let call = Call { arguments: &values, types: &types, returns: of, moment };
                let value = (function.run)(&call)?;
                Ok(value.map_or(Evaluated::Null, |bytes| Evaluated::Bytes(Cow::Owned(bytes))))
            }
        }
    }
}

fn parts_value<'a>(
    parts: &'a [Expression],
    of: &CqlType,
    values: &BoundValues<'a>,
    row: Option<&'a dyn Row>,
    moment: &Moment,
) -> Result<Evaluated<'a>, CqlError> {
    let mut out = Vec::new();
    let per_item = if matches!(of.unfrozen(), CqlType::Map(..)) { 2 } else { 1 };
    collection::put_count(parts.len() / per_item, &mut out);
    for part in parts {
        let value = part.evaluate(values, row, moment)?.required("collection")?;
        collection::put_part(value.as_deref(), &mut out);
    }
    Ok(Evaluated::Bytes(Cow::Owned(out)))
}
