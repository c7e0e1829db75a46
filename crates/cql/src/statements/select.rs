//! `SELECT [JSON] [DISTINCT] columns FROM table [WHERE ...] [GROUP BY ...] [ORDER BY ...] [LIMIT ...]`

use super::Statement;
use crate::lexer::Kind;
use crate::parser::{Parser, QualifiedName, Result};
use crate::relation::{Relation, parse_where};
use crate::term::{Constant, NEGATION, Operator, Term};
use crate::type_name::TypeName;

#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    pub(crate) is_json: bool,
    pub(crate) is_distinct: bool,
    /// None: all columns.
    pub(crate) columns: Vec<SelectedColumn>,
    pub(crate) table: QualifiedName,
    pub(crate) relations: Vec<Relation>,
    pub(crate) group_by: Vec<Selector>,
    /// Column and whether it is descending.
    pub(crate) order_by: Vec<(String, bool)>,
    pub(crate) per_partition_limit: Option<Term>,
    pub(crate) limit: Option<Term>,
    pub(crate) allows_filtering: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SelectedColumn {
    pub(crate) selector: Selector,
    pub(crate) alias: Option<String>,
}

/// The computation of one result column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Selector {
    Column(String),
    /// `count(*)`
    CountRows,
    Call {
        function: QualifiedName,
        arguments: Vec<Selector>,
    },
    /// `CAST(column AS type)`
    Cast(Box<Selector>, TypeName),
    /// `c['k']`
    Element(Box<Selector>, Term),
    /// `c['a'..'b']`; ends may be open.
    Slice(Box<Selector>, Option<Term>, Option<Term>),
    /// `c.field`
    Field(Box<Selector>, String),
    /// `(a + b)`: names of result columns include the brackets.
    Brackets(Box<Selector>),
    /// `(type) c`
    Hint(TypeName, Box<Selector>),
    /// A constant or a marker.
    Value(Term),
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    // JSON and DISTINCT are also valid names: `SELECT json FROM t`.
    let is_json = parser.is_at_word("json") && begins_column(parser);
    if is_json {
        parser.take();
    }
    let is_distinct = parser.is_at_word("distinct") && begins_column(parser);
    if is_distinct {
        parser.take();
    }
    let columns =
        if parser.take_symbol("*") { Vec::new() } else { parser.list(SelectedColumn::parse)? };
    parser.expect_word("from")?;
    let table = parser.qualified_name()?;
    let relations = parse_where(parser)?;
    let mut select = Select {
        is_json,
        is_distinct,
        columns,
        table,
        relations,
        group_by: Vec::new(),
        order_by: Vec::new(),
        per_partition_limit: None,
        limit: None,
        allows_filtering: false,
    };
    if parser.take_words(&["group", "by"]) {
        select.group_by = parser.list(Selector::parse)?;
    }
    if parser.take_words(&["order", "by"]) {
        select.order_by = parser.list(parse_order)?;
    }
    if parser.take_words(&["per", "partition", "limit"]) {
        select.per_partition_limit = Some(Term::parse(parser)?);
    }
    if parser.take_word("limit") {
        select.limit = Some(Term::parse(parser)?);
    }
    select.allows_filtering = parser.take_words(&["allow", "filtering"]);
    skip_timeout(parser)?;
    Ok(Statement::Select(Box::new(select)))
}

/// `USING TIMEOUT 2s`, which drivers append if the server announces shards. It is ignored: no
/// statement runs long enough to be aborted.
// Source: ScyllaDB, docs/cql/cql-extensions.md, "USING TIMEOUT"
fn skip_timeout(parser: &mut Parser<'_>) -> Result<()> {
    if !parser.take_words(&["using", "timeout"]) {
        return Ok(());
    }
    match parser.peek().kind {
        Kind::Duration => {
            parser.take();
            Ok(())
        }
        _ => parser.unexpected("a duration"),
    }
}

/// Whether the next token but one begins a column, and does not continue one.
fn begins_column(parser: &Parser<'_>) -> bool {
    let token = parser.peek_at(1);
    match token.kind {
        Kind::Word => !token.is_word("from") && !token.is_word("as"),
        Kind::Symbol => token.text == "*",
        Kind::End => false,
        _ => true,
    }
}

fn parse_order(parser: &mut Parser<'_>) -> Result<(String, bool)> {
    let column = parser.name()?;
    let is_descending = parser.take_word("desc");
    if !is_descending {
        parser.take_word("asc");
    }
    Ok((column, is_descending))
}

impl SelectedColumn {
    fn parse(parser: &mut Parser<'_>) -> Result<SelectedColumn> {
        parser.begin_term();
        let selector = Selector::parse(parser)?;
        let alias = if parser.take_word("as") { Some(parser.name()?) } else { None };
        Ok(SelectedColumn { selector, alias })
    }
}

impl Selector {
    /// The selector inside the brackets.
    pub(crate) fn without_brackets(&self) -> &Selector {
        match self {
            Selector::Brackets(inner) => inner.without_brackets(),
            other => other,
        }
    }

    fn parse(parser: &mut Parser<'_>) -> Result<Selector> {
        parser.nested(|parser| {
            let mut left = Selector::parse_product(parser)?;
            while let Some(operator) = take_operator(parser, &[Operator::Add, Operator::Subtract])?
            {
                left = operation(operator, left, Selector::parse_product(parser)?);
            }
            Ok(left)
        })
    }

    fn parse_product(parser: &mut Parser<'_>) -> Result<Selector> {
        let operators = [Operator::Multiply, Operator::Divide, Operator::Remainder];
        let mut left = Selector::parse_operand(parser)?;
        while let Some(operator) = take_operator(parser, &operators)? {
            left = operation(operator, left, Selector::parse_operand(parser)?);
        }
        Ok(left)
    }

    /// `-a`, or a selector of a part of a selector: `a.b['c']`.
    fn parse_operand(parser: &mut Parser<'_>) -> Result<Selector> {
        let is_number =
            matches!(parser.peek_at(1).kind, Kind::Integer | Kind::Float | Kind::Duration);
        if parser.is_at_symbol("-") && !is_number {
            parser.take();
            let negated = parser.nested(Selector::parse_operand)?;
            let function = QualifiedName::native(NEGATION);
            return Ok(Selector::Call { function, arguments: vec![negated] });
        }
        let mut selector = Selector::parse_simple(parser)?;
        loop {
            if parser.take_symbol(".") {
                parser.count_operator()?;
                selector = Selector::Field(Box::new(selector), parser.name()?);
            } else if parser.take_symbol("[") {
                // Each is one level of the tree, which is later traversed recursively.
                parser.count_operator()?;
                selector = parse_element(parser, selector)?;
            } else {
                return Ok(selector);
            }
        }
    }

    fn parse_simple(parser: &mut Parser<'_>) -> Result<Selector> {
        let is_call = parser.peek_at(1).is_symbol("(");
        if parser.is_at_word("cast") && is_call {
            parser.take();
            parser.expect_symbol("(")?;
            let selector = Selector::parse(parser)?;
            parser.expect_word("as")?;
            let target = TypeName::parse(parser)?;
            parser.expect_symbol(")")?;
            return Ok(Selector::Cast(Box::new(selector), target));
        }
        if parser.is_at_word("token") && is_call {
            parser.take();
            let function = QualifiedName { keyspace: None, name: "token".into() };
            let arguments = parser.bracketed("(", ")", Selector::parse)?;
            return Ok(Selector::Call { function, arguments });
        }
        let token = parser.peek();
        let is_constant = ["null", "true", "false", "nan", "infinity"];
        let is_name = token.kind == Kind::QuotedName
            || token.kind == Kind::Word && !is_constant.iter().any(|word| token.is_word(word));
        if parser.is_at_symbol("(") {
            return if Term::is_hint(parser) { parse_hint(parser) } else { parse_brackets(parser) };
        }
        if !is_name {
            return Ok(Selector::Value(Term::parse_operand(parser)?));
        }
        let is_qualified_call =
            parser.peek_at(1).is_symbol(".") && parser.peek_at(3).is_symbol("(");
        if !is_call && !is_qualified_call {
            return Ok(Selector::Column(parser.name()?));
        }
        let function = parser.qualified_name()?;
        parse_call(parser, function)
    }
}

fn take_operator(parser: &mut Parser<'_>, of: &[Operator]) -> Result<Option<Operator>> {
    let Some(operator) = of.iter().find(|operator| parser.is_at_symbol(operator.symbol())) else {
        return Ok(None);
    };
    parser.take();
    parser.count_operator()?;
    Ok(Some(*operator))
}

/// Operators are functions, too.
fn operation(operator: Operator, left: Selector, right: Selector) -> Selector {
    let function = QualifiedName::native(operator.function());
    Selector::Call { function, arguments: vec![left, right] }
}

/// `(a + b)`, or a tuple of constants.
fn parse_brackets(parser: &mut Parser<'_>) -> Result<Selector> {
    let start = parser.peek();
    let mut selectors = parser.bracketed("(", ")", Selector::parse)?;
    if selectors.len() == 1 {
        return Ok(Selector::Brackets(Box::new(selectors.remove(0))));
    }
    let parts = selectors.into_iter().map(|selector| match selector {
        Selector::Value(term) => Some(term),
        _ => None,
    });
    match parts.collect::<Option<Vec<Term>>>() {
        Some(parts) if !parts.is_empty() => Ok(Selector::Value(Term::Tuple(parts))),
        _ => start.fault("tuples of columns cannot be selected"),
    }
}

/// `(type) c`, or a constant or a marker with a hint.
fn parse_hint(parser: &mut Parser<'_>) -> Result<Selector> {
    parser.expect_symbol("(")?;
    let hint = TypeName::parse(parser)?;
    parser.expect_symbol(")")?;
    let hinted = |term| Ok(Selector::Value(Term::Hint(hint.clone(), Box::new(term))));
    match parser.nested(Selector::parse_simple)? {
        Selector::Value(term) => hinted(term),
        Selector::Brackets(inner) => match *inner {
            Selector::Value(term) => hinted(Term::Tuple(vec![term])),
            inner => Ok(Selector::Hint(hint, Box::new(Selector::Brackets(Box::new(inner))))),
        },
        inner => Ok(Selector::Hint(hint, Box::new(inner))),
    }
}

fn parse_call(parser: &mut Parser<'_>, function: QualifiedName) -> Result<Selector> {
    let counts = function.name == "count" && parser.peek_at(2).is_symbol(")");
    if counts && parser.peek_at(1).is_symbol("*") {
        parser.expect_symbol("(")?;
        parser.take();
        parser.expect_symbol(")")?;
        return Ok(Selector::CountRows);
    }
    let arguments = parser.bracketed("(", ")", Selector::parse)?;
    let one = Selector::Value(Term::Constant(Constant::Integer("1".into())));
    // count(1) is count(*).
    if counts && arguments == [one] {
        return Ok(Selector::CountRows);
    }
    Ok(Selector::Call { function, arguments })
}

/// The rest of `c[...]`.
fn parse_element(parser: &mut Parser<'_>, of: Selector) -> Result<Selector> {
    let is_open = |parser: &Parser<'_>| parser.is_at_symbol(".") || parser.is_at_symbol("]");
    let from = if is_open(parser) { None } else { Some(Term::parse(parser)?) };
    let of = Box::new(of);
    if !parser.take_symbol(".") {
        parser.expect_symbol("]")?;
        let Some(key) = from else { return parser.unexpected("a value") };
        return Ok(Selector::Element(of, key));
    }
    parser.expect_symbol(".")?;
    let to = if is_open(parser) { None } else { Some(Term::parse(parser)?) };
    parser.expect_symbol("]")?;
    Ok(Selector::Slice(of, from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    fn parsed(text: &str) -> Select {
        match parse(text).unwrap().statement {
            Statement::Select(select) => *select,
            other => panic!("{other:?}"),
        }
    }

    fn column(name: &str) -> Selector {
        Selector::Column(name.into())
    }

    #[test]
    fn every_clause_is_read() {
        let select = parsed(
            "SELECT DISTINCT a, b AS c FROM k.t WHERE a = 1 GROUP BY a, b ORDER BY b DESC, c \
             PER PARTITION LIMIT 2 LIMIT ? ALLOW FILTERING",
        );
        assert!(select.is_distinct && select.allows_filtering && !select.is_json);
        assert_eq!(select.columns[1].alias.as_deref(), Some("c"));
        assert_eq!(select.group_by, [column("a"), column("b")]);
        assert_eq!(select.order_by, [("b".into(), true), ("c".into(), false)]);
        assert_eq!(select.limit, Some(Term::Marker(0)));
        assert!(select.per_partition_limit.is_some());
        assert!(parsed("SELECT * FROM t").columns.is_empty());
    }

    #[test]
    fn a_timeout_at_the_end_means_nothing() {
        let select = parsed("SELECT a FROM t WHERE a IN (1) LIMIT 2 USING TIMEOUT 2000ms");
        assert_eq!(select, parsed("SELECT a FROM t WHERE a IN (1) LIMIT 2"));
        assert!(parse("SELECT a FROM t USING TIMEOUT").is_err());
        assert!(parse("SELECT a FROM t USING TTL 5").is_err());
    }

    #[test]
    fn words_that_are_names_stay_names() {
        assert!(parsed("SELECT JSON * FROM t").is_json);
        let select = parsed("SELECT json, distinct FROM t");
        assert!(!select.is_json);
        assert_eq!(select.columns.len(), 2);
        let select = parsed("SELECT ttl, count, key, value FROM t");
        assert_eq!(select.columns.len(), 4);
    }

    #[test]
    fn selectors_are_computed_with() {
        let called = |selector: &Selector, name: &str| {
            matches!(selector, Selector::Call { function, .. }
                if function.name == name && function.keyspace.as_deref() == Some("system"))
        };
        let select = parsed(
            "SELECT a + 1, -a * b, (a - 1h) % 2, -5, (int) ? / a, (1, 'a'), (int) a * 2, \
             (int) (a + b) FROM t",
        );
        let selectors: Vec<&Selector> = select.columns.iter().map(|c| &c.selector).collect();
        assert!(called(selectors[0], "_add"));
        assert!(called(selectors[1], "_multiply"));
        let Selector::Call { arguments, .. } = selectors[1] else { panic!() };
        assert!(called(&arguments[0], "_negate"));
        assert!(called(selectors[2], "_modulo"));
        assert!(matches!(selectors[3], Selector::Value(_)));
        assert!(called(selectors[4], "_divide"));
        assert!(matches!(selectors[5], Selector::Value(Term::Tuple(_))));
        assert!(called(selectors[6], "_multiply"));
        assert!(
            matches!(selectors[7], Selector::Hint(_, inner) if matches!(**inner, Selector::Brackets(_)))
        );
        assert!(parse("SELECT (a, b) FROM t").is_err());
        assert!(parse(&format!("SELECT a{} FROM t", " + 1".repeat(201))).is_err());
        assert!(parse(&format!("SELECT a{} FROM t", "[1]".repeat(201))).is_err());
        assert!(parse(&format!("SELECT a{} FROM t", ".b".repeat(201))).is_err());
    }

    #[test]
    fn selectors_nest() {
        let select = parsed(
            "SELECT count(*), COUNT(1), writetime(a), CAST(avg(b) AS text), m['k'], l[1..2], s[..3], \
             u.f.g, k.f(a, 5), token(a, b), 'x', ? FROM t",
        );
        let selectors: Vec<&Selector> = select.columns.iter().map(|c| &c.selector).collect();
        assert_eq!(selectors[0], &Selector::CountRows);
        assert_eq!(selectors[1], &Selector::CountRows);
        assert!(
            matches!(selectors[2], Selector::Call { function, .. } if function.name == "writetime")
        );
        assert!(matches!(selectors[3], Selector::Cast(..)));
        assert!(matches!(selectors[4], Selector::Element(..)));
        assert!(matches!(selectors[5], Selector::Slice(_, Some(_), Some(_))), "{:?}", selectors[5]);
        assert!(matches!(selectors[6], Selector::Slice(_, None, Some(_))));
        assert!(matches!(selectors[7], Selector::Field(..)));
        assert!(
            matches!(selectors[8], Selector::Call { function, .. } if function.keyspace.is_some())
        );
        assert!(matches!(selectors[9], Selector::Call { .. }));
        assert!(matches!(selectors[10], Selector::Value(_)));
        assert_eq!(selectors[11], &Selector::Value(Term::Marker(0)));
    }
}
