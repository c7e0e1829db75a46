//! Values in statements: constants, markers, collections, calls, arithmetic.

use std::fmt::{self, Display, Formatter};

use super::lexer::Kind;
use super::parser::{Parser, QualifiedName, Result, string_of};
use super::type_name::TypeName;

/// A value in a statement. Its meaning depends on the type of its receiver, which is determined
/// when the statement is prepared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Term {
    Null,
    /// The index of the marker among all markers of the statement.
    Marker(usize),
    Constant(Constant),
    /// `[a, b]`
    List(Vec<Term>),
    /// `{a, b}`; empty braces are an empty set or an empty map.
    Set(Vec<Term>),
    /// `{a: b}` with terms as keys.
    Map(Vec<(Term, Term)>),
    /// `{a: b}` with names as keys.
    UserDefined(Vec<(String, Term)>),
    /// `(a, b)`
    Tuple(Vec<Term>),
    Call {
        function: QualifiedName,
        arguments: Vec<Term>,
    },
    /// `(type) term`
    Hint(TypeName, Box<Term>),
    Negative(Box<Term>),
    Arithmetic(Operator, Box<Term>, Box<Term>),
    /// A column, where functions of columns are allowed.
    Column(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Constant {
    String(String),
    /// Digits of any number, with a sign if it was in the text.
    Integer(String),
    Float(String),
    Boolean(bool),
    Uuid(String),
    /// Hexadecimal digits.
    Blob(String),
    Duration(String),
}

impl Display for Constant {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            // In Cassandra's format: a quote inside is not doubled.
            Constant::String(text) => write!(formatter, "'{text}'"),
            Constant::Boolean(value) => write!(formatter, "{value}"),
            Constant::Blob(digits) => write!(formatter, "0x{digits}"),
            Constant::Integer(text)
            | Constant::Float(text)
            | Constant::Uuid(text)
            | Constant::Duration(text) => formatter.write_str(text),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// The function that negates.
pub(crate) const NEGATION: &str = "_negate";

impl Operator {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Remainder => "%",
        }
    }

    /// The name of its function, which is not a CQL name.
    // Source: Cassandra 5.0, OperationFcts
    pub(crate) const fn function(self) -> &'static str {
        match self {
            Operator::Add => "_add",
            Operator::Subtract => "_substract",
            Operator::Multiply => "_multiply",
            Operator::Divide => "_divide",
            Operator::Remainder => "_modulo",
        }
    }
}

/// The position of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Names are functions.
    Value,
    /// Names may be columns: assignments such as `c = c + 1`.
    Assignment,
}

impl Term {
    pub(crate) fn parse(parser: &mut Parser<'_>) -> Result<Term> {
        parser.begin_term();
        sum(parser, Place::Value)
    }

    /// A term without operators after it.
    pub(crate) fn parse_operand(parser: &mut Parser<'_>) -> Result<Term> {
        factor(parser, Place::Value)
    }

    /// Whether the current bracket opens a type hint, `(type) term`, and not a tuple with a name.
    pub(crate) fn is_hint(parser: &Parser<'_>) -> bool {
        is_hint(parser)
    }

    /// A term that may contain columns.
    pub(crate) fn parse_with_columns(parser: &mut Parser<'_>) -> Result<Term> {
        parser.begin_term();
        sum(parser, Place::Assignment)
    }
}

fn sum(parser: &mut Parser<'_>, place: Place) -> Result<Term> {
    parser.nested(|parser| {
        let mut left = product(parser, place)?;
        loop {
            let operator = if parser.take_symbol("+") {
                Operator::Add
            } else if parser.take_symbol("-") {
                Operator::Subtract
            } else {
                return Ok(left);
            };
            parser.count_operator()?;
            let right = product(parser, place)?;
            left = Term::Arithmetic(operator, Box::new(left), Box::new(right));
        }
    })
}

fn product(parser: &mut Parser<'_>, place: Place) -> Result<Term> {
    let mut left = factor(parser, place)?;
    loop {
        let operator = if parser.take_symbol("*") {
            Operator::Multiply
        } else if parser.take_symbol("/") {
            Operator::Divide
        } else if parser.take_symbol("%") {
            Operator::Remainder
        } else {
            return Ok(left);
        };
        parser.count_operator()?;
        let right = factor(parser, place)?;
        left = Term::Arithmetic(operator, Box::new(left), Box::new(right));
    }
}

fn factor(parser: &mut Parser<'_>, place: Place) -> Result<Term> {
    let minus = parser.peek();
    if !parser.take_symbol("-") {
        return simple(parser, place);
    }
    // A duration includes its sign; no operator negates one.
    let is_sign = parser.peek().position == minus.position.after(1);
    Ok(match parser.nested(|parser| factor(parser, place))? {
        Term::Constant(Constant::Integer(digits)) => {
            Term::Constant(Constant::Integer(negated(&digits)))
        }
        Term::Constant(Constant::Float(digits)) => {
            Term::Constant(Constant::Float(negated(&digits)))
        }
        Term::Constant(Constant::Duration(text)) if is_sign => {
            Term::Constant(Constant::Duration(negated(&text)))
        }
        other => Term::Negative(Box::new(other)),
    })
}

fn negated(digits: &str) -> String {
    digits.strip_prefix('-').map_or_else(|| format!("-{digits}"), str::to_owned)
}

fn simple(parser: &mut Parser<'_>, place: Place) -> Result<Term> {
    if let Some(marker) = parser.marker()? {
        return Ok(Term::Marker(marker));
    }
    let token = parser.peek();
    let constant = match token.kind {
        Kind::String => Constant::String(string_of(token.text)),
        Kind::Integer => Constant::Integer(token.text.to_owned()),
        // Source: Cassandra 5.0, Constants.Literal.floatingPoint
        Kind::Float if token.text.parse::<f64>().is_ok_and(f64::is_infinite) => {
            return token.fault(format!("{} is too large for a double", token.text));
        }
        Kind::Float => Constant::Float(token.text.to_owned()),
        Kind::Uuid => Constant::Uuid(token.text.to_owned()),
        Kind::Blob => Constant::Blob(token.text[2..].to_owned()),
        Kind::Duration => Constant::Duration(token.text.to_owned()),
        Kind::Word | Kind::QuotedName => return word(parser, place),
        Kind::Symbol => return symbol(parser, place),
        Kind::End => return parser.unexpected("a value"),
    };
    parser.take();
    Ok(Term::Constant(constant))
}

fn word(parser: &mut Parser<'_>, place: Place) -> Result<Term> {
    for (word, term) in [
        ("null", Term::Null),
        ("true", Term::Constant(Constant::Boolean(true))),
        ("false", Term::Constant(Constant::Boolean(false))),
        ("nan", Term::Constant(Constant::Float("NaN".into()))),
        ("infinity", Term::Constant(Constant::Float("Infinity".into()))),
    ] {
        if parser.take_word(word) {
            return Ok(term);
        }
    }
    let function = if parser.is_at_word("token") {
        parser.take();
        QualifiedName { keyspace: None, name: "token".into() }
    } else {
        parser.qualified_name()?
    };
    if parser.is_at_symbol("(") {
        let arguments = parser.bracketed("(", ")", |parser| sum(parser, place))?;
        return Ok(Term::Call { function, arguments });
    }
    match (place, function.keyspace) {
        (Place::Assignment, None) => Ok(Term::Column(function.name)),
        _ => parser.unexpected("'('"),
    }
}

fn symbol(parser: &mut Parser<'_>, place: Place) -> Result<Term> {
    if parser.is_at_symbol("[") {
        return Ok(Term::List(parser.bracketed("[", "]", |parser| sum(parser, place))?));
    }
    if parser.is_at_symbol("{") {
        return braces(parser, place);
    }
    if !parser.is_at_symbol("(") {
        return parser.unexpected("a value");
    }
    if is_hint(parser) {
        parser.expect_symbol("(")?;
        let hint = TypeName::parse(parser)?;
        parser.expect_symbol(")")?;
        let term = parser.nested(|parser| factor(parser, place))?;
        return Ok(Term::Hint(hint, Box::new(term)));
    }
    let mut parts = parser.bracketed("(", ")", |parser| sum(parser, place))?;
    match parts.len() {
        // Brackets around one term only group it: `(1 + 2) * 3`.
        1 if followed_by_operator(parser) => Ok(parts.remove(0)),
        0 => parser.unexpected("a value"),
        _ => Ok(Term::Tuple(parts)),
    }
}

fn followed_by_operator(parser: &Parser<'_>) -> bool {
    ["+", "-", "*", "/", "%"].iter().any(|symbol| parser.is_at_symbol(symbol))
}

/// Words that are values, not types.
const VALUE_WORDS: [&str; 5] = ["null", "true", "false", "nan", "infinity"];
/// Words that follow a term, and do not begin one.
const CLAUSE_WORDS: [&str; 10] =
    ["and", "or", "if", "where", "using", "allow", "order", "limit", "per", "group"];

fn is_hint(parser: &Parser<'_>) -> bool {
    if !matches!(parser.peek_at(1).kind, Kind::Word | Kind::QuotedName | Kind::String) {
        return false;
    }
    let is_value = VALUE_WORDS.iter().any(|word| parser.peek_at(1).is_word(word));
    if is_value && parser.peek_at(2).text == ")" {
        return false;
    }
    let mut ahead = 2;
    let mut depth = 0;
    loop {
        let token = parser.peek_at(ahead);
        match token.text {
            "<" => depth += 1,
            ">" => depth -= 1,
            ")" => break,
            "," if depth > 0 => {}
            "." => {}
            _ if token.kind == Kind::Word => {}
            // The dimensions of a vector.
            _ if token.kind == Kind::Integer && depth > 0 => {}
            _ => return false,
        }
        ahead += 1;
    }
    // The next token must begin a term, not continue one.
    let next = parser.peek_at(ahead + 1);
    match next.kind {
        // A named marker, not the value after a key of a map.
        Kind::Symbol if next.text == ":" => {
            let name = parser.peek_at(ahead + 2);
            matches!(name.kind, Kind::Word | Kind::QuotedName)
                && !VALUE_WORDS.iter().any(|word| name.is_word(word))
        }
        Kind::Symbol => ["?", "(", "[", "{", "-"].contains(&next.text),
        Kind::End => false,
        Kind::Word => {
            let mut clause_words = CLAUSE_WORDS.iter().chain(&["from", "as"]);
            !clause_words.any(|word| next.is_word(word))
        }
        _ => true,
    }
}

fn braces(parser: &mut Parser<'_>, place: Place) -> Result<Term> {
    parser.expect_symbol("{")?;
    if parser.take_symbol("}") {
        return Ok(Term::Set(Vec::new()));
    }
    if is_field(parser) {
        let fields = parser.list(|parser| {
            let name = parser.name()?;
            parser.expect_symbol(":")?;
            Ok((name, sum(parser, place)?))
        })?;
        parser.expect_symbol("}")?;
        return Ok(Term::UserDefined(fields));
    }
    let first = sum(parser, place)?;
    let term = if parser.take_symbol(":") {
        let mut pairs = vec![(first, sum(parser, place)?)];
        while parser.take_symbol(",") {
            let key = sum(parser, place)?;
            parser.expect_symbol(":")?;
            pairs.push((key, sum(parser, place)?));
        }
        Term::Map(pairs)
    } else {
        let mut items = vec![first];
        while parser.take_symbol(",") {
            items.push(sum(parser, place)?);
        }
        Term::Set(items)
    };
    parser.expect_symbol("}")?;
    Ok(term)
}

/// `name:` begins a field of a user-defined type.
fn is_field(parser: &Parser<'_>) -> bool {
    let is_constant = ["null", "true", "false", "nan", "infinity"];
    let first = parser.peek();
    let is_name = first.kind == Kind::QuotedName
        || first.kind == Kind::Word && !is_constant.iter().any(|word| first.is_word(word));
    is_name && parser.peek_at(1).is_symbol(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Term {
        let mut parser = Parser::new(text).unwrap();
        let term = Term::parse(&mut parser).unwrap();
        parser.expect_end().unwrap();
        term
    }

    fn integer(digits: &str) -> Term {
        Term::Constant(Constant::Integer(digits.into()))
    }

    #[test]
    fn constants_keep_their_text() {
        assert_eq!(parsed("-12"), integer("-12"));
        assert_eq!(parsed("'a'"), Term::Constant(Constant::String("a".into())));
        assert_eq!(parsed("0xff"), Term::Constant(Constant::Blob("ff".into())));
        assert_eq!(parsed("-1h"), Term::Constant(Constant::Duration("-1h".into())));
        assert_eq!(parsed("NULL"), Term::Null);
        assert_eq!(parsed("-Infinity"), Term::Constant(Constant::Float("-Infinity".into())));
    }

    #[test]
    fn collections_are_distinguished() {
        assert_eq!(parsed("[1, 2]"), Term::List(vec![integer("1"), integer("2")]));
        assert_eq!(parsed("{}"), Term::Set(vec![]));
        assert_eq!(parsed("{1}"), Term::Set(vec![integer("1")]));
        assert_eq!(parsed("{1: 2}"), Term::Map(vec![(integer("1"), integer("2"))]));
        assert_eq!(parsed("{a: 2}"), Term::UserDefined(vec![("a".into(), integer("2"))]));
        assert_eq!(parsed("(1, 2)"), Term::Tuple(vec![integer("1"), integer("2")]));
        assert_eq!(parsed("{?: ?}"), Term::Map(vec![(Term::Marker(0), Term::Marker(1))]));
    }

    #[test]
    fn arithmetic_binds_as_usual() {
        let Term::Arithmetic(Operator::Add, left, right) = parsed("1 + 2 * 3") else { panic!() };
        assert_eq!(*left, integer("1"));
        assert!(matches!(*right, Term::Arithmetic(Operator::Multiply, ..)));
        let Term::Arithmetic(Operator::Multiply, left, _) = parsed("(1 + 2) * 3") else { panic!() };
        assert!(matches!(*left, Term::Arithmetic(Operator::Add, ..)));
    }

    #[test]
    fn hints_are_not_tuples() {
        assert!(matches!(parsed("(int) 5"), Term::Hint(..)));
        assert!(matches!(parsed("(list<frozen<map<int, text>>>) ?"), Term::Hint(..)));
        assert!(matches!(parsed("(int) (5, 6)"), Term::Hint(..)));
        assert!(matches!(parsed("(int) :name"), Term::Hint(..)));
        assert!(matches!(parsed("{('a'): 1, ('b'): true}"), Term::Map(..)));
        assert!(matches!(parsed("(vector<float, 2>) [1, 2]"), Term::Hint(..)));
        assert!(matches!(parsed("(now(), 5)"), Term::Tuple(..)));
    }

    #[test]
    fn calls_nest() {
        let Term::Call { function, arguments } = parsed("ks.f(1, token(2, ?))") else { panic!() };
        assert_eq!(function.keyspace.as_deref(), Some("ks"));
        assert!(matches!(&arguments[1], Term::Call { function, .. } if function.name == "token"));
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert!(Term::parse(&mut Parser::new(&deep).unwrap()).is_err());
        let long = format!("1{}", "+1".repeat(201));
        assert!(Term::parse(&mut Parser::new(&long).unwrap()).is_err());
        let long = format!("1{}", "*1".repeat(200));
        assert!(Term::parse(&mut Parser::new(&long).unwrap()).is_ok());
        assert!(Term::parse(&mut Parser::new("a").unwrap()).is_err());
    }
}
