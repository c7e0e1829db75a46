//! `UPDATE table [USING ...] SET assignments WHERE ... [IF ...]`

use super::Statement;
use super::using::Using;
use crate::parser::{Parser, QualifiedName, Result};
use crate::relation::{Conditions, Part, Relation, parse_where};
use crate::term::Term;

#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    pub(crate) table: QualifiedName,
    pub(crate) using: Using,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) relations: Vec<Relation>,
    pub(crate) conditions: Conditions,
}

/// `column = term`; the term may contain the column itself: `c = c + 1`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) column: String,
    pub(crate) part: Part,
    pub(crate) value: Term,
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    let table = parser.qualified_name()?;
    let using = Using::parse(parser)?;
    parser.expect_word("set")?;
    let assignments = parser.list(Assignment::parse)?;
    if !parser.is_at_word("where") {
        return parser.unexpected("WHERE");
    }
    let relations = parse_where(parser)?;
    let conditions = Conditions::parse(parser)?;
    let update = Update { table, using, assignments, relations, conditions };
    Ok(Statement::Update(Box::new(update)))
}

impl Assignment {
    fn parse(parser: &mut Parser<'_>) -> Result<Assignment> {
        let column = parser.name()?;
        let part = Part::parse(parser)?;
        let operator = ["+", "-"]
            .into_iter()
            .find(|symbol| parser.is_at_symbol(symbol) && parser.peek_at(1).is_symbol("="));
        if operator.is_some() {
            parser.take();
        }
        parser.expect_symbol("=")?;
        let value = Term::parse_with_columns(parser)?;
        // `c += 1` is `c = c + 1`.
        let value = match operator {
            None => value,
            Some(symbol) => {
                let operator = match symbol {
                    "+" => crate::term::Operator::Add,
                    _ => crate::term::Operator::Subtract,
                };
                let own = Term::Column(column.clone());
                Term::Arithmetic(operator, Box::new(own), Box::new(value))
            }
        };
        Ok(Assignment { column, part, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;
    use crate::term::Operator;

    fn parsed(text: &str) -> Update {
        match parse(text).unwrap().statement {
            Statement::Update(update) => *update,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn assignments_may_name_their_column() {
        let update = parsed(
            "UPDATE k.t USING TTL ? SET a = 1, c = c + 2, l = [1] + l, m['k'] = 'v', u.f = 3, \
             s -= {4} WHERE p = 1 IF a != 2",
        );
        assert_eq!(update.assignments.len(), 6);
        let Term::Arithmetic(Operator::Add, left, _) = &update.assignments[1].value else {
            panic!()
        };
        assert_eq!(**left, Term::Column("c".into()));
        let Term::Arithmetic(Operator::Add, _, right) = &update.assignments[2].value else {
            panic!()
        };
        assert_eq!(**right, Term::Column("l".into()));
        assert!(matches!(update.assignments[3].part, Part::Element(_)));
        assert_eq!(update.assignments[4].part, Part::Field("f".into()));
        let Term::Arithmetic(Operator::Subtract, left, _) = &update.assignments[5].value else {
            panic!()
        };
        assert_eq!(**left, Term::Column("s".into()));
        assert!(matches!(update.conditions, Conditions::Columns(_)));
        assert!(parse("UPDATE t SET a = 1").is_err());
    }
}
