//! `CREATE TYPE [IF NOT EXISTS] name (fields)`

use super::Statement;
use crate::parser::{Parser, QualifiedName, Result};
use crate::type_name::TypeName;

#[derive(Debug, Clone, PartialEq)]
pub struct CreateType {
    pub(crate) name: QualifiedName,
    pub(crate) if_not_exists: bool,
    pub(crate) fields: Vec<(String, TypeName)>,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_not_exists = parser.if_not_exists();
    let name = parser.qualified_name()?;
    let field = |parser: &mut Parser<'_>| Ok((parser.name()?, TypeName::parse(parser)?));
    let fields = parser.bracketed_loosely(field)?;
    Ok(Statement::CreateType(CreateType { name, if_not_exists, fields }))
}
