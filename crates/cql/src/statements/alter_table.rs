//! `ALTER TABLE [IF EXISTS] name ADD | DROP | RENAME | WITH ...`

use super::Statement;
use super::create_table::{ColumnDefinition, parse_column, parse_mask};
use super::options::{Options, parse_with};
use crate::parser::{Parser, QualifiedName, Result};

#[derive(Debug, Clone, PartialEq)]
pub struct AlterTable {
    pub(crate) name: QualifiedName,
    pub(crate) if_exists: bool,
    pub(crate) change: TableChange,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TableChange {
    Add {
        if_not_exists: bool,
        columns: Vec<ColumnDefinition>,
    },
    /// With the time before which cells of these columns are deleted.
    Drop {
        if_exists: bool,
        columns: Vec<String>,
        timestamp: Option<i64>,
    },
    /// Old and new names.
    Rename {
        if_exists: bool,
        columns: Vec<(String, String)>,
    },
    With(Options),
    /// `ALTER name MASKED WITH ...` or `ALTER name DROP MASKED`
    Mask {
        if_exists: bool,
        column: String,
        is_masked: bool,
    },
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_exists = parser.if_exists();
    let name = parser.qualified_name()?;
    let change = parse_change(parser)?;
    Ok(Statement::AlterTable(AlterTable { name, if_exists, change }))
}

fn parse_change(parser: &mut Parser<'_>) -> Result<TableChange> {
    let token = parser.peek();
    if parser.take_word("add") {
        let if_not_exists = parser.if_not_exists();
        let columns = parse_columns(parser, parse_column)?;
        return Ok(TableChange::Add { if_not_exists, columns });
    }
    if parser.take_word("drop") {
        let if_exists = parser.if_exists();
        let columns = parse_columns(parser, Parser::name)?;
        let timestamp =
            if parser.take_words(&["using", "timestamp"]) { Some(parser.integer()?) } else { None };
        return Ok(TableChange::Drop { if_exists, columns, timestamp });
    }
    if parser.take_word("rename") {
        let if_exists = parser.if_exists();
        let mut columns = Vec::new();
        loop {
            let old = parser.name()?;
            parser.expect_word("to")?;
            columns.push((old, parser.name()?));
            if !parser.take_word("and") {
                return Ok(TableChange::Rename { if_exists, columns });
            }
        }
    }
    if parser.take_word("alter") {
        let if_exists = parser.if_exists();
        let column = parser.name()?;
        if parser.take_words(&["drop", "masked"]) {
            return Ok(TableChange::Mask { if_exists, column, is_masked: false });
        }
        if parse_mask(parser)? {
            return Ok(TableChange::Mask { if_exists, column, is_masked: true });
        }
        return token.fault("Altering column types is no longer supported");
    }
    if parser.is_at_word("with") {
        return Ok(TableChange::With(parse_with(parser)?));
    }
    parser.unexpected("ADD, DROP, RENAME or WITH")
}

/// One column, or several in brackets.
fn parse_columns<'a, T>(
    parser: &mut Parser<'a>,
    mut item: impl FnMut(&mut Parser<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    if parser.is_at_symbol("(") {
        return parser.bracketed("(", ")", item);
    }
    Ok(vec![item(parser)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    fn parsed(text: &str) -> TableChange {
        match parse(text).unwrap().statement {
            Statement::AlterTable(table) => table.change,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_change_is_read() {
        let TableChange::Add { columns, .. } = parsed("ALTER TABLE t ADD (a int, b text static)")
        else {
            panic!()
        };
        assert!(!columns[0].is_static && columns[1].is_static);
        let TableChange::Drop { columns, timestamp, .. } =
            parsed("ALTER TABLE t DROP (a, b) USING TIMESTAMP 5")
        else {
            panic!()
        };
        assert_eq!((columns.len(), timestamp.is_some()), (2, true));
        assert!(parse("ALTER TABLE t DROP a, b").is_err());
        assert!(parse("ALTER TABLE t ADD a int, b int").is_err());
        let TableChange::Rename { columns, .. } = parsed("ALTER TABLE t RENAME a TO b AND c TO d")
        else {
            panic!()
        };
        assert_eq!(columns.len(), 2);
        assert!(matches!(parsed("ALTER TABLE t WITH gc_grace_seconds = 0"), TableChange::With(_)));
        let error = parse("ALTER TABLE t ALTER a TYPE int").unwrap_err();
        assert_eq!(error.reason, "Altering column types is no longer supported");
    }
}
