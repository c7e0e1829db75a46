//! `TRUNCATE [TABLE] name`

use super::Statement;
use crate::parser::{Parser, QualifiedName, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncate {
    pub(crate) table: QualifiedName,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    if !parser.take_word("table") {
        parser.take_word("columnfamily");
    }
    Ok(Statement::Truncate(Truncate { table: parser.qualified_name()? }))
}
