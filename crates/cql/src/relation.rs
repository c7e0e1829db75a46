//! WHERE and IF: conditions on columns.

use super::parser::{Parser, Result};
use super::term::Term;

/// A condition of WHERE.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Relation {
    pub(crate) left: Left,
    pub(crate) operator: Comparison,
    pub(crate) right: Right,
}

/// The left side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Left {
    Column(String),
    /// `m['k']`
    Element(String, Term),
    /// `(a, b)`: at least one.
    Columns(Vec<String>),
    /// `token(a, b)`: at least one.
    Token(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Contains,
    ContainsKey,
    Like,
    IsNotNull,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Right {
    /// Of [`Comparison::IsNotNull`].
    Nothing,
    Term(Term),
    /// Of [`Comparison::In`]: a list in the statement.
    Terms(Vec<Term>),
}

/// Conditions after WHERE, joined by AND; empty if there is no WHERE.
pub(crate) fn parse_where(parser: &mut Parser<'_>) -> Result<Vec<Relation>> {
    let mut relations = Vec::new();
    if parser.take_word("where") {
        relations.push(Relation::parse(parser)?);
        while parser.take_word("and") {
            relations.push(Relation::parse(parser)?);
        }
    }
    Ok(relations)
}

impl Relation {
    fn parse(parser: &mut Parser<'_>) -> Result<Relation> {
        let left = Left::parse(parser)?;
        let operator = Comparison::parse(parser)?;
        let right = Right::parse(parser, operator)?;
        Ok(Relation { left, operator, right })
    }
}

impl Left {
    fn parse(parser: &mut Parser<'_>) -> Result<Left> {
        if parser.take_word("token") {
            return Ok(Left::Token(parser.parenthesized(Parser::name)?));
        }
        if parser.is_at_symbol("(") {
            return Ok(Left::Columns(parser.parenthesized(Parser::name)?));
        }
        let column = parser.name()?;
        if parser.take_symbol("[") {
            let key = Term::parse(parser)?;
            parser.expect_symbol("]")?;
            return Ok(Left::Element(column, key));
        }
        Ok(Left::Column(column))
    }
}

impl Comparison {
    fn parse(parser: &mut Parser<'_>) -> Result<Comparison> {
        for (symbol, comparison) in [
            ("=", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            ("<", Comparison::Less),
            (">=", Comparison::GreaterOrEqual),
            (">", Comparison::Greater),
        ] {
            if parser.take_symbol(symbol) {
                return Ok(comparison);
            }
        }
        for (words, comparison) in [
            (&["in"][..], Comparison::In),
            (&["contains", "key"], Comparison::ContainsKey),
            (&["contains"], Comparison::Contains),
            (&["like"], Comparison::Like),
            (&["is", "not", "null"], Comparison::IsNotNull),
        ] {
            if parser.take_words(words) {
                return Ok(comparison);
            }
        }
        parser.unexpected("a comparison")
    }
}

impl Right {
    fn parse(parser: &mut Parser<'_>, operator: Comparison) -> Result<Right> {
        match operator {
            Comparison::IsNotNull => Ok(Right::Nothing),
            Comparison::In => match parser.marker()? {
                Some(marker) => Ok(Right::Term(Term::Marker(marker))),
                None => Ok(Right::Terms(parser.bracketed("(", ")", Term::parse)?)),
            },
            _ => Ok(Right::Term(Term::parse(parser)?)),
        }
    }
}

/// Conditions of a conditional write.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Conditions {
    #[default]
    None,
    Exists,
    /// All of these.
    Columns(Vec<Condition>),
}

/// A condition of IF on one column, or on a part of its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    pub(crate) column: String,
    pub(crate) part: Part,
    pub(crate) operator: Comparison,
    pub(crate) right: Right,
}

/// The part of a value that is read or set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Whole,
    /// `c[1]`
    Element(Term),
    /// `c.field`
    Field(String),
}

impl Part {
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<Part> {
        if parser.take_symbol("[") {
            let key = Term::parse(parser)?;
            parser.expect_symbol("]")?;
            return Ok(Part::Element(key));
        }
        if parser.take_symbol(".") {
            return Ok(Part::Field(parser.name()?));
        }
        Ok(Part::Whole)
    }
}

impl Conditions {
    /// IF of UPDATE and DELETE.
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<Conditions> {
        if parser.if_exists() {
            return Ok(Conditions::Exists);
        }
        if !parser.take_word("if") {
            return Ok(Conditions::None);
        }
        let mut conditions = vec![Condition::parse(parser)?];
        while parser.take_word("and") {
            conditions.push(Condition::parse(parser)?);
        }
        Ok(Conditions::Columns(conditions))
    }
}

impl Condition {
    fn parse(parser: &mut Parser<'_>) -> Result<Condition> {
        let column = parser.name()?;
        let part = Part::parse(parser)?;
        let token = parser.peek();
        let operator = Comparison::parse(parser)?;
        if matches!(operator, Comparison::IsNotNull | Comparison::Like) {
            return token.fault("no such comparison in IF");
        }
        let is_contains = matches!(operator, Comparison::Contains | Comparison::ContainsKey);
        if is_contains && part != Part::Whole {
            return token.fault("CONTAINS is possible of whole columns only");
        }
        let right = Right::parse(parser, operator)?;
        Ok(Condition { column, part, operator, right })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::term::Constant;

    fn relations(text: &str) -> Result<Vec<Relation>> {
        let mut parser = Parser::new(text)?;
        let relations = parse_where(&mut parser)?;
        parser.expect_end()?;
        Ok(relations)
    }

    #[test]
    fn every_relation_has_its_shape() {
        let found = relations(
            "WHERE a = 1 AND b IN (1, 2) AND c IN ? AND (d, e) > (1, 2) AND token(a) <= ? AND \
             m['k'] = 'v' AND l CONTAINS 1 AND m CONTAINS KEY 'k' AND n IS NOT NULL AND t LIKE 'x%'",
        )
        .unwrap();
        let operators: Vec<Comparison> = found.iter().map(|relation| relation.operator).collect();
        assert_eq!(
            operators,
            [
                Comparison::Equal,
                Comparison::In,
                Comparison::In,
                Comparison::Greater,
                Comparison::LessOrEqual,
                Comparison::Equal,
                Comparison::Contains,
                Comparison::ContainsKey,
                Comparison::IsNotNull,
                Comparison::Like,
            ]
        );
        assert_eq!(found[3].left, Left::Columns(vec!["d".into(), "e".into()]));
        assert!(matches!(&found[3].right, Right::Term(Term::Tuple(parts)) if parts.len() == 2));
        assert_eq!(found[4].left, Left::Token(vec!["a".into()]));
        let key = Term::Constant(Constant::String("k".into()));
        assert_eq!(found[5].left, Left::Element("m".into(), key));
        assert_eq!(found[2].right, Right::Term(Term::Marker(0)));
    }

    #[test]
    fn faults_have_their_place() {
        let error = relations("WHERE a 5").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 1:8 no viable alternative at input '5' (expected a comparison)"
        );
        assert!(relations("WHERE a = 1 OR b = 2").is_err());
        assert!(relations("WHERE a = b").is_err());
        for left in ["()", "token()"] {
            for comparison in ["= (1)", "IN ()", "IN ((1))", "> ?", "IN ?", "= ()"] {
                let text = format!("WHERE {left} {comparison}");
                let reason = relations(&text).unwrap_err().reason;
                assert_eq!(
                    reason, "no viable alternative at input ')' (expected a name)",
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn conditions_look_at_parts() {
        let mut parser = Parser::new("IF a = 1 AND m['k'] != null AND u.f IN (1, 2)").unwrap();
        let Conditions::Columns(found) = Conditions::parse(&mut parser).unwrap() else { panic!() };
        assert_eq!(found[0].part, Part::Whole);
        assert!(matches!(found[1].part, Part::Element(_)));
        assert_eq!(found[2].part, Part::Field("f".into()));
        let mut parser = Parser::new("IF EXISTS").unwrap();
        assert_eq!(Conditions::parse(&mut parser), Ok(Conditions::Exists));
    }
}
