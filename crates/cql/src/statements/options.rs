//! WITH clauses: options of keyspaces and tables.

use crate::lexer::Kind;
use crate::parser::{Parser, Result};

/// Options by name, in the order in which they were written.
pub(crate) type Options = Vec<(String, OptionValue)>;

/// The value of an option. Numbers are text: their valid values depend on the option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OptionValue {
    Text(String),
    Map(Vec<(String, String)>),
}

/// One `name = value`. Keys and values of a map are constants; a plain value may be a word.
// Source: Cassandra 5.0, Parser.g: property, and CqlParser.convertPropertyMap
pub(super) fn parse_option(parser: &mut Parser<'_>) -> Result<(String, OptionValue)> {
    let name = parser.name()?;
    parser.expect_symbol("=")?;
    if !parser.is_at_symbol("{") {
        return Ok((name, OptionValue::Text(scalar(parser)?)));
    }
    let constant = |parser: &mut Parser<'_>| {
        let token = parser.peek();
        let words = ["true", "false", "nan", "infinity"];
        if token.kind == Kind::Word && !words.iter().any(|word| token.is_word(word)) {
            return parser.unexpected("a constant");
        }
        scalar(parser)
    };
    let pairs = parser.bracketed("{", "}", |parser| {
        let key = constant(parser)?;
        parser.expect_symbol(":")?;
        Ok((key, constant(parser)?))
    })?;
    Ok((name, OptionValue::Map(pairs)))
}

/// Options after WITH, joined by AND; empty if there is no WITH.
pub(super) fn parse_with(parser: &mut Parser<'_>) -> Result<Options> {
    let mut options = Options::new();
    if parser.take_word("with") {
        options.push(parse_option(parser)?);
        while parser.take_word("and") {
            options.push(parse_option(parser)?);
        }
    }
    Ok(options)
}

fn scalar(parser: &mut Parser<'_>) -> Result<String> {
    let token = parser.peek();
    match token.kind {
        Kind::String => parser.string(),
        Kind::Word | Kind::Integer | Kind::Float | Kind::Uuid | Kind::Blob => {
            parser.take();
            Ok(token.text.to_owned())
        }
        Kind::Symbol if token.text == "-" => {
            parser.take();
            let number = parser.peek();
            if !matches!(number.kind, Kind::Integer | Kind::Float) {
                return parser.unexpected("a number");
            }
            parser.take();
            Ok(format!("-{}", number.text))
        }
        _ => parser.unexpected("a string, a number or a map"),
    }
}
