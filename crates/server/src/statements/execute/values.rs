//! Evaluates expressions for one run of a statement.

use std::borrow::Cow;

use cql::error::CqlError;
use cql::expression::{BoundValues, Evaluated, Expression, Row};
use cql::moment::Moment;
use cql::plan::Choices;
use cql::value::collection::items;
use smallvec::{SmallVec, smallvec};
use store::Seconds;

/// Evaluation inputs other than the expression.
#[derive(Clone, Copy)]
pub(super) struct EvalContext<'v> {
    pub(super) values: &'v BoundValues<'v>,
    /// Of INSERT JSON: the columns of the document.
    pub(super) document: Option<&'v dyn Row>,
    /// Flags the columns that the document does not name and that keep their values, by index.
    pub(super) left_out: &'v [bool],
    pub(super) moment: &'v Moment,
    /// The reference time of expiry.
    pub(super) now: Seconds,
}

impl<'v> EvalContext<'v> {
    pub(super) fn evaluate(&self, expression: &'v Expression) -> Result<Evaluated<'v>, CqlError> {
        expression.evaluate(self.values, self.document, self.moment)
    }

    pub(super) fn is_left_out(&self, column: usize) -> bool {
        self.left_out.get(column).copied().unwrap_or(false)
    }

    /// Evaluates a value that is compared with a column; it must not be null or unset.
    pub(super) fn known(
        &self,
        expression: &'v Expression,
        column: &str,
    ) -> Result<Cow<'v, [u8]>, CqlError> {
        match self.evaluate(expression)? {
            Evaluated::Bytes(bytes) => Ok(bytes),
            Evaluated::Null => Err(CqlError::invalid(format!(
                "Invalid null value in condition for column {column}"
            ))),
            Evaluated::Unset => {
                Err(CqlError::invalid(format!("Invalid unset value for column {column}")))
            }
        }
    }

    /// Evaluates choices that can only be a single value.
    pub(super) fn one(
        &self,
        choices: &'v Choices,
        column: &str,
    ) -> Result<Cow<'v, [u8]>, CqlError> {
        match choices {
            Choices::One(value) => self.known(value, column),
            Choices::Several(_) | Choices::List(_) => unreachable!("the caller has checked"),
        }
    }

    /// Evaluates all values, none of which may be null.
    pub(super) fn choose(
        &self,
        choices: &'v Choices,
        column: &str,
    ) -> Result<SmallVec<[Cow<'v, [u8]>; 1]>, CqlError> {
        match choices {
            Choices::One(value) => Ok(smallvec![self.known(value, column)?]),
            Choices::Several(values) => {
                values.iter().map(|value| self.known(value, column)).collect()
            }
            Choices::List(list) => {
                let damaged = |_| CqlError::invalid(format!("Invalid list for column {column}"));
                match self.known(list, column)? {
                    Cow::Borrowed(bytes) => Ok(items(bytes, 1)
                        .map_err(damaged)?
                        .into_iter()
                        .map(Cow::Borrowed)
                        .collect()),
                    Cow::Owned(bytes) => {
                        let items = items(&bytes, 1).map_err(damaged)?;
                        Ok(items.into_iter().map(|item| Cow::Owned(item.to_vec())).collect())
                    }
                }
            }
        }
    }

    /// Evaluates the number of a clause; `None` if the value is unset.
    pub(super) fn integer(
        &self,
        expression: &'v Expression,
        clause: &str,
    ) -> Result<Option<i64>, CqlError> {
        let null = || Err(CqlError::invalid(format!("Invalid null value of {clause}")));
        self.integer_or(expression, clause, null)
    }

    /// Like [`EvalContext::integer`], with a value for null.
    pub(super) fn integer_or(
        &self,
        expression: &'v Expression,
        clause: &str,
        null: impl FnOnce() -> Result<Option<i64>, CqlError>,
    ) -> Result<Option<i64>, CqlError> {
        let bytes = match self.evaluate(expression)? {
            Evaluated::Bytes(bytes) => bytes,
            Evaluated::Null => return null(),
            Evaluated::Unset => return Ok(None),
        };
        let invalid = || CqlError::invalid(format!("Invalid {clause} value"));
        let value = match bytes.len() {
            4 => <[u8; 4]>::try_from(&*bytes).map(|bytes| i64::from(i32::from_be_bytes(bytes))),
            _ => <[u8; 8]>::try_from(&*bytes).map(i64::from_be_bytes),
        };
        value.map(Some).map_err(|_| invalid())
    }
}
