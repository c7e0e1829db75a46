//! `INSERT INTO table (columns) VALUES (terms) [IF NOT EXISTS] [USING ...]`, or `INSERT ... JSON`

use super::Statement;
use super::using::Using;
use crate::cql::parser::{Parser, QualifiedName, Result};
use crate::cql::term::Term;

#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    pub table: QualifiedName,
    pub row: InsertedRow,
    pub if_not_exists: bool,
    pub using: Using,
}

#[derive(Debug, Clone, PartialEq)]
pub enum InsertedRow {
    /// As many columns as values.
    Values(Vec<(String, Term)>),
    /// An object; columns that are missing become null, or stay as they are.
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
    let start = parser.peek();
    let columns = parser.bracketed("(", ")", Parser::name)?;
    parser.expect_word("values")?;
    let values = parser.bracketed("(", ")", Term::parse)?;
    if columns.len() != values.len() {
        return parser.fault(start, "Unmatched column names/values");
    }
    Ok(InsertedRow::Values(columns.into_iter().zip(values).collect()))
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
    use crate::cql::statements::parse;

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
        let InsertedRow::Values(values) = insert.row else { panic!() };
        assert_eq!(values[0], ("a".into(), Term::Marker(0)));
        assert_eq!(insert.using.timestamp, Some(Term::Marker(1)));
        assert!(insert.if_not_exists && insert.using.ttl.is_some());
        let error = parse("INSERT INTO t (a, b) VALUES (1)").unwrap_err();
        assert_eq!(error.reason, "Unmatched column names/values");
        assert!(parse("INSERT INTO t (a) VALUES (1) USING TTL 1 AND TTL 2").is_err());
    }

    #[test]
    fn json_says_what_becomes_of_missing_columns() {
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
