//! `USE keyspace`

use super::Statement;
use crate::cql::parser::{Parser, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseKeyspace {
    pub keyspace: String,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    Ok(Statement::Use(UseKeyspace { keyspace: parser.name()? }))
}
