//! `DROP KEYSPACE | TABLE | INDEX | TYPE | ROLE [IF EXISTS] name`

use super::Statement;
use crate::parser::{Parser, QualifiedName, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drop {
    pub(crate) if_exists: bool,
    pub(crate) what: Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Dropped {
    Keyspace(String),
    Table(QualifiedName),
    Index(QualifiedName),
    Type(QualifiedName),
    Role(String),
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let kind = parser.take();
    let if_exists = parser.if_exists();
    let what = match kind.text.to_ascii_lowercase().as_str() {
        "keyspace" | "schema" => Dropped::Keyspace(parser.name()?),
        "table" | "columnfamily" => Dropped::Table(parser.qualified_name()?),
        "index" => Dropped::Index(parser.qualified_name()?),
        "type" => Dropped::Type(parser.qualified_name()?),
        "role" => Dropped::Role(super::roles::role_name(parser)?),
        "user" => Dropped::Role(super::roles::user_name(parser)?),
        other => return kind.fault(format!("cannot DROP '{other}'")),
    };
    Ok(Statement::Drop(Drop { if_exists, what }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    #[test]
    fn everything_that_is_created_can_be_dropped() {
        for (text, if_exists) in [
            ("DROP KEYSPACE k", false),
            ("DROP TABLE IF EXISTS k.t", true),
            ("DROP INDEX i", false),
            ("DROP TYPE k.t", false),
            ("DROP ROLE IF EXISTS 'r'", true),
        ] {
            let Statement::Drop(drop) = parse(text).unwrap().statement else { panic!("{text}") };
            assert_eq!(drop.if_exists, if_exists);
        }
        assert_eq!(parse("DROP VIEW v").unwrap_err().reason, "cannot DROP 'view'");
    }
}
