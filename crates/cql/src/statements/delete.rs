//! `DELETE [columns] FROM table [USING TIMESTAMP ...] WHERE ... [IF ...]`

use super::Statement;
use super::using::Using;
use crate::parser::{Parser, QualifiedName, Result};
use crate::relation::{Conditions, Part, Relation, parse_where};

#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    pub(crate) table: QualifiedName,
    /// None: whole rows.
    pub(crate) parts: Vec<DeletedPart>,
    pub(crate) using: Using,
    pub(crate) relations: Vec<Relation>,
    pub(crate) conditions: Conditions,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeletedPart {
    pub(crate) column: String,
    pub(crate) part: Part,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let mut parts = Vec::new();
    if !parser.is_at_word("from") {
        parts = parser.list(|parser| {
            Ok(DeletedPart { column: parser.name()?, part: Part::parse(parser)? })
        })?;
    }
    parser.expect_word("from")?;
    let table = parser.qualified_name()?;
    let token = parser.peek();
    let using = Using::parse(parser)?;
    if using.ttl.is_some() {
        return token.fault("a deletion cannot have a TTL");
    }
    if !parser.is_at_word("where") {
        return parser.unexpected("WHERE");
    }
    let relations = parse_where(parser)?;
    let conditions = Conditions::parse(parser)?;
    Ok(Statement::Delete(Box::new(Delete { table, parts, using, relations, conditions })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    #[test]
    fn rows_columns_and_parts_can_be_deleted() {
        let parsed = |text: &str| match parse(text).unwrap().statement {
            Statement::Delete(delete) => *delete,
            other => panic!("{other:?}"),
        };
        assert_eq!(parsed("DELETE FROM t WHERE a = 1").parts, []);
        let delete = parsed(
            "DELETE a, m['k'], u.f FROM k.t USING TIMESTAMP 5 WHERE a = 1 AND b > 2 IF EXISTS",
        );
        assert_eq!((delete.parts.len(), delete.relations.len()), (3, 2));
        assert_eq!(delete.conditions, Conditions::Exists);
        assert!(parse("DELETE FROM t USING TTL 5 WHERE a = 1").is_err());
        assert!(parse("DELETE FROM t").is_err());
    }
}
