//! `ALTER TYPE [IF EXISTS] name ADD field | RENAME field TO name`

use super::Statement;
use crate::parser::{Parser, QualifiedName, Result};
use crate::type_name::TypeName;

#[derive(Debug, Clone, PartialEq)]
pub struct AlterType {
    pub(crate) name: QualifiedName,
    pub(crate) if_exists: bool,
    pub(crate) change: TypeChange,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TypeChange {
    Add {
        if_not_exists: bool,
        field: String,
        field_type: TypeName,
    },
    /// Old and new names.
    Rename {
        if_exists: bool,
        fields: Vec<(String, String)>,
    },
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_exists = parser.if_exists();
    let name = parser.qualified_name()?;
    let change = parse_change(parser)?;
    Ok(Statement::AlterType(AlterType { name, if_exists, change }))
}

fn parse_change(parser: &mut Parser<'_>) -> Result<TypeChange> {
    if parser.take_word("add") {
        let if_not_exists = parser.if_not_exists();
        let field = parser.name()?;
        let field_type = TypeName::parse(parser)?;
        return Ok(TypeChange::Add { if_not_exists, field, field_type });
    }
    if !parser.take_word("rename") {
        return parser.unexpected("ADD or RENAME");
    }
    let if_exists = parser.if_exists();
    let mut fields = Vec::new();
    loop {
        let old = parser.name()?;
        parser.expect_word("to")?;
        fields.push((old, parser.name()?));
        if !parser.take_word("and") {
            return Ok(TypeChange::Rename { if_exists, fields });
        }
    }
}
