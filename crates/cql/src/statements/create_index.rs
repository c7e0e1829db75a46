//! `CREATE [CUSTOM] INDEX [IF NOT EXISTS] [name] ON table (column) [USING class] [WITH OPTIONS]`

use super::Statement;
use super::options::{Options, parse_with};
use crate::parser::{Parser, QualifiedName, Result};

#[derive(Debug, Clone, PartialEq)]
pub struct CreateIndex {
    pub(crate) name: Option<QualifiedName>,
    pub(crate) if_not_exists: bool,
    pub(crate) table: QualifiedName,
    pub(crate) targets: Vec<IndexTarget>,
    pub(crate) is_custom: bool,
    pub(crate) class: Option<String>,
    pub(crate) options: Options,
}

/// The indexed part of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IndexTarget {
    Column(String),
    Keys(String),
    Values(String),
    Entries(String),
    Full(String),
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    parse_rest(parser, false)
}

/// `CREATE CUSTOM INDEX`
pub(super) fn parse_custom(parser: &mut Parser<'_>) -> Result<Statement> {
    parse_rest(parser, true)
}

fn parse_rest(parser: &mut Parser<'_>, is_custom: bool) -> Result<Statement> {
    let if_not_exists = parser.if_not_exists();
    let name = if parser.is_at_word("on") { None } else { Some(parser.qualified_name()?) };
    parser.expect_word("on")?;
    let table = parser.qualified_name()?;
    let targets = parser.bracketed("(", ")", IndexTarget::parse)?;
    let class = if parser.take_word("using") { Some(parser.string()?) } else { None };
    let options = parse_with(parser)?;
    let index = CreateIndex { name, if_not_exists, table, targets, is_custom, class, options };
    Ok(Statement::CreateIndex(index))
}

type MakeTarget = fn(String) -> IndexTarget;

/// Functions around a column that is not indexed as a whole.
const TARGETS: [(&str, MakeTarget); 4] = [
    ("keys", IndexTarget::Keys),
    ("values", IndexTarget::Values),
    ("entries", IndexTarget::Entries),
    ("full", IndexTarget::Full),
];

impl IndexTarget {
    fn parse(parser: &mut Parser<'_>) -> Result<IndexTarget> {
        for (word, target) in TARGETS {
            if parser.is_at_word(word) && parser.peek_at(1).is_symbol("(") {
                parser.take();
                parser.expect_symbol("(")?;
                let column = parser.name()?;
                parser.expect_symbol(")")?;
                return Ok(target(column));
            }
        }
        Ok(IndexTarget::Column(parser.name()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    #[test]
    fn names_and_targets_are_optional_in_their_ways() {
        for (text, has_name, target) in [
            ("CREATE INDEX ON t (a)", false, IndexTarget::Column("a".into())),
            ("CREATE INDEX i ON k.t (keys(m))", true, IndexTarget::Keys("m".into())),
            ("CREATE INDEX IF NOT EXISTS i ON t (FULL(f))", true, IndexTarget::Full("f".into())),
            (
                "CREATE CUSTOM INDEX i ON t (keys) USING 'StorageAttachedIndex'",
                true,
                IndexTarget::Column("keys".into()),
            ),
        ] {
            let Statement::CreateIndex(index) = parse(text).unwrap().statement else { panic!() };
            assert_eq!((index.name.is_some(), &index.targets[..]), (has_name, &[target][..]));
        }
    }
}
