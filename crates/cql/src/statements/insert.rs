//! `INSERT INTO table (columns) VALUES (terms) [IF NOT EXISTS] [USING ...]`, or `INSERT ... JSON`

use super::Statement;
use super::using::Using;
use crate::parser::{Parser, QualifiedName, Result};
use crate::term::Term;

#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    pub(crate) table: QualifiedName,
    pub(crate) row: InsertedRow,
    pub(crate) if_not_exists: bool,
    pub(crate) using: Using,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum InsertedRow {
    /// The numbers of columns and values must be equal.
    Values { columns: Vec<String>, values: Vec<Term> },
    /// An object; missing columns become null, or keep their values.
    Json { document: Term, default_unset: bool },
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.expect_word("into")?;
    let table = parser.qualified_name()?;
    let row = if parser.take_word("json") { parse_json(parser)? } else { parse_values(parser)? };
    let if_not_exists = parser.if_not_exists();
    let using = Using::parse(parser)?;
    Ok(Statement::Insert(Box::new(Insert { table, row, if_not_exists, using })))
}

fn parse_values(parser: &mut Parser<'_>) -> Result<InsertedRow> {
    let columns = parser.bracketed("(", ")", Parser::name)?;
    parser.expect_word("values")?;
    let values = parser.bracketed("(", ")", Term::parse)?;
    Ok(InsertedRow::Values { columns, values })
}

fn parse_json(parser: &mut Parser<'_>) -> Result<InsertedRow> {
    let document = Term::parse(parser)?;
    let mut default_unset = false;
    if parser.take_word("default") {
        default_unset = parser.take_word("unset");
        if !default_unset {
            parser.expect_word("null")?;
        }
    }
    Ok(InsertedRow::Json { document, default_unset })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    fn parsed(text: &str) -> Insert {
        match parse(text).unwrap().statement {
            Statement::Insert(insert) => *insert,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_go_with_their_columns() {
        let insert = parsed(
            "INSERT INTO k.t (a, b) VALUES (?, {'x'}) IF NOT EXISTS USING TTL 5 AND TIMESTAMP ?",
        );
        let InsertedRow::Values { columns, values } = insert.row else { panic!() };
        assert_eq!(columns, ["a", "b"]);
        assert_eq!(values[0], Term::Marker(0));
        assert_eq!(insert.using.timestamp, Some(Term::Marker(1)));
        assert!(insert.if_not_exists && insert.using.ttl.is_some());
        assert!(parse("INSERT INTO t (a) VALUES (1) USING TTL 1 AND TTL 2").is_err());
    }

    #[test]
    fn json_determines_the_value_of_missing_columns() {
        for (text, expected) in [
            ("INSERT INTO t JSON '{}'", false),
            ("INSERT INTO t JSON ? DEFAULT NULL", false),
            ("INSERT INTO t JSON ? DEFAULT UNSET", true),
        ] {
            let InsertedRow::Json { default_unset, .. } = parsed(text).row else { panic!() };
            assert_eq!(default_unset, expected, "{text}");
        }
    }
}
