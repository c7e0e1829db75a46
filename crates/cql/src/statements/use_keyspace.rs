//! `USE keyspace`

use super::Statement;
use crate::parser::{Parser, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseKeyspace {
    pub(crate) keyspace: String,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    Ok(Statement::Use(UseKeyspace { keyspace: parser.name()? }))
}
