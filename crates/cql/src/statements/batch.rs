//! `BEGIN [UNLOGGED | COUNTER] BATCH [USING TIMESTAMP ...] statements APPLY BATCH`

use super::using::Using;
use super::{Statement, delete, insert, update};
use crate::parser::{Parser, Result};

#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    pub(crate) kind: BatchKind,
    pub(crate) using: Using,
    /// INSERT, UPDATE and DELETE only.
    pub(crate) statements: Vec<Statement>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    Logged,
    Unlogged,
    Counter,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let kind = if parser.take_word("unlogged") {
        BatchKind::Unlogged
    } else if parser.take_word("counter") {
        BatchKind::Counter
    } else {
        parser.take_word("logged");
        BatchKind::Logged
    };
    parser.expect_word("batch")?;
    let token = parser.peek();
    let using = Using::parse(parser)?;
    if using.ttl.is_some() {
        return token.fault("a batch cannot have a TTL: set it in its statements");
    }
    let mut statements = Vec::new();
    while !parser.take_words(&["apply", "batch"]) {
        let parse = if parser.take_word("insert") {
            insert::parse
        } else if parser.take_word("update") {
            update::parse
        } else if parser.take_word("delete") {
            delete::parse
        } else {
            return parser.unexpected("INSERT, UPDATE, DELETE or APPLY BATCH");
        };
        statements.push(parse(parser)?);
        while parser.take_symbol(";") {}
    }
    Ok(Statement::Batch(Batch { kind, using, statements }))
}

/// APPLY BATCH without BEGIN BATCH.
pub(super) fn parse_stray_apply(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.unexpected("BEGIN BATCH before APPLY BATCH")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    #[test]
    fn batches_hold_writes() {
        let parsed = parse(
            "BEGIN UNLOGGED BATCH USING TIMESTAMP ? INSERT INTO t (a) VALUES (?); \
             UPDATE t SET b = 1 WHERE a = ? DELETE FROM t WHERE a = 1; APPLY BATCH;",
        )
        .unwrap();
        assert_eq!(parsed.markers.len(), 3);
        let Statement::Batch(batch) = parsed.statement else { panic!() };
        assert_eq!((batch.kind, batch.statements.len()), (BatchKind::Unlogged, 3));
        assert!(parse("BEGIN BATCH SELECT * FROM t; APPLY BATCH").is_err());
        assert!(parse("BEGIN BATCH").is_err());
    }
}
