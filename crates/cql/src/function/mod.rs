//! Functions of CQL: their parameters, results and implementations.
//!
//! `list` is the one table of all functions; each of the other files contains the rows and the code
//! of one kind. `aggregate` contains the aggregate functions.

pub mod aggregate;
mod blob;
pub(crate) mod cast;
mod collection;
pub(crate) mod decimal;
mod json;
pub(crate) mod list;
mod mask;
mod math;
pub(crate) mod number;
pub(crate) mod part;
pub(crate) mod signature;
mod time;
mod token;
mod uuids;
mod vector;

pub(crate) use signature::{Parameter, Shape, Signature};

use super::error::CqlError;
use super::moment::Moment;
use super::types::CqlType;

/// A scalar function: a row of a table.
#[derive(Debug)]
pub struct Function {
    pub(crate) name: &'static str,
    /// The name before Cassandra 5, which still works.
    pub(crate) older_name: Option<&'static str>,
    pub(crate) shape: Shape,
    /// One sentence for the documentation.
    pub(crate) doc: &'static str,
    pub(crate) run: fn(&Call<'_>) -> Result<Option<Vec<u8>>, CqlError>,
}

impl PartialEq for Function {
    /// Every function is exactly one row of one table.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// A call of a function.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The name used in the statement, for messages.
    pub(crate) called: &'static str,
    /// None is null. The bytes are checked values of their types.
    pub(crate) arguments: &'a [Option<&'a [u8]>],
    pub(crate) types: &'a [CqlType],
    pub(crate) returns: &'a CqlType,
    pub(crate) moment: &'a Moment,
}

impl<'a> Call<'a> {
    /// An argument; None if it is null or omitted.
    pub(crate) fn argument(&self, nth: usize) -> Option<&'a [u8]> {
        self.arguments.get(nth).copied().flatten()
    }

    /// The argument if it is a number of `WIDTH` bytes; None if it is null or empty.
    pub(crate) fn fixed<const WIDTH: usize>(&self, nth: usize) -> Option<[u8; WIDTH]> {
        self.argument(nth)?.try_into().ok()
    }
}
