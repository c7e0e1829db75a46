//! `ALTER KEYSPACE [IF EXISTS] name WITH options`

use super::Statement;
use super::options::{Options, parse_with};
use crate::parser::{Parser, Result};

#[derive(Debug, Clone, PartialEq)]
pub struct AlterKeyspace {
    pub(crate) name: String,
    pub(crate) if_exists: bool,
    pub(crate) options: Options,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_exists = parser.if_exists();
    let name = parser.name()?;
    if !parser.is_at_word("with") {
        return parser.unexpected("WITH");
    }
    let options = parse_with(parser)?;
    Ok(Statement::AlterKeyspace(AlterKeyspace { name, if_exists, options }))
}
