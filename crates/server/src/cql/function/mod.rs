//! Functions of CQL: what they take, what they give, how they are computed.

pub mod aggregate;

use super::error::CqlError;
use super::expression::Moment;
use super::types::CqlType;

/// A scalar function.
#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    pub doc: &'static str,
    /// Whether the same arguments always give the same result.
    pub is_pure: bool,
    pub run: fn(&Call<'_>) -> Result<Option<Vec<u8>>, CqlError>,
}

impl PartialEq for Function {
    /// Every function is one row of one table.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// What a function is called with.
#[derive(Debug)]
pub struct Call<'a> {
    /// None is null.
    pub arguments: &'a [Option<&'a [u8]>],
    pub types: &'a [CqlType],
    pub returns: &'a CqlType,
    pub moment: &'a Moment,
}
