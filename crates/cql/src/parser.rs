//! A cursor over the tokens of a statement, with the rules that statements share.

use super::lexer::{Kind, SyntaxError, Token, tokenize};

pub(crate) type Result<T> = std::result::Result<T, SyntaxError>;

/// Words that cannot be unquoted names.
// Source: Cassandra 5.0 CQL documentation, appendix A "CQL keywords"
const RESERVED: [&str; 62] = [
    "add",
    "allow",
    "alter",
    "and",
    "apply",
    "asc",
    "authorize",
    "batch",
    "begin",
    "by",
    "columnfamily",
    "create",
    "default",
    "delete",
    "desc",
    "describe",
    "drop",
    "entries",
    "execute",
    "from",
    "full",
    "grant",
    "if",
    "in",
    "index",
    "infinity",
    "insert",
    "into",
    "is",
    "keyspace",
    "limit",
    "materialized",
    "mbean",
    "mbeans",
    "modify",
    "nan",
    "norecursive",
    "not",
    "null",
    "of",
    "on",
    "or",
    "order",
    "primary",
    "rename",
    "replace",
    "revoke",
    "schema",
    "select",
    "set",
    "table",
    "to",
    "token",
    "truncate",
    "unlogged",
    "unset",
    "update",
    "use",
    "using",
    "view",
    "where",
    "with",
];

/// Maximum nesting of terms.
pub(crate) const DEPTH_MAX: usize = 64;
/// Maximum nesting of types.
pub(crate) const TYPE_DEPTH_MAX: usize = 128;
/// Maximum number of arithmetic operators in one term: the depth of `1 + 1 + 1` is its length.
pub(crate) const OPERATORS_MAX: usize = 200;

/// A table, a type or an index, with an optional keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QualifiedName {
    pub(crate) keyspace: Option<String>,
    pub(crate) name: String,
}

impl QualifiedName {
    /// The name of a built-in function or type.
    pub(crate) fn native(name: &str) -> QualifiedName {
        QualifiedName { keyspace: Some("system".to_owned()), name: name.to_owned() }
    }
}

/// A cursor over the tokens of a statement.
#[derive(Debug)]
pub(crate) struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Names of the markers so far; `?` has none.
    markers: Vec<Option<String>>,
    depth: usize,
    /// Number of operators in the current term.
    operators: usize,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str) -> Result<Self> {
        Ok(Parser { tokens: tokenize(text)?, at: 0, markers: Vec::new(), depth: 0, operators: 0 })
    }

    /// Names of all markers, in order.
    pub(crate) fn into_markers(self) -> Vec<Option<String>> {
        self.markers
    }

    pub(crate) fn peek(&self) -> Token<'a> {
        self.tokens[self.at]
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> Token<'a> {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    pub(crate) fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    /// The current token is not one of the expected ones.
    pub(crate) fn unexpected<T>(&self, expected: &str) -> Result<T> {
        let token = self.peek();
        let found = if token.kind == Kind::End { "<EOF>" } else { token.text };
        Err(SyntaxError {
            position: token.position,
            reason: format!("no viable alternative at input '{found}' (expected {expected})"),
        })
    }

    pub(crate) fn is_at_word(&self, word: &str) -> bool {
        self.peek().is_word(word)
    }

    /// Consumes the keyword if it is the current token.
    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let is_here = self.is_at_word(word);
        self.at += usize::from(is_here);
        is_here
    }

    /// Consumes all keywords if they follow one another; otherwise none.
    pub(crate) fn take_words(&mut self, words: &[&str]) -> bool {
        let are_here = words.iter().enumerate().all(|(nth, word)| self.peek_at(nth).is_word(word));
        if are_here {
            self.at += words.len();
        }
        are_here
    }

    pub(crate) fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.take_word(word) { Ok(()) } else { self.unexpected(&word.to_uppercase()) }
    }

    pub(crate) fn expect_words(&mut self, words: &[&str]) -> Result<()> {
        words.iter().try_for_each(|word| self.expect_word(word))
    }

    pub(crate) fn is_at_symbol(&self, symbol: &str) -> bool {
        self.peek().is_symbol(symbol)
    }

    pub(crate) fn take_symbol(&mut self, symbol: &str) -> bool {
        let is_here = self.is_at_symbol(symbol);
        self.at += usize::from(is_here);
        is_here
    }

    pub(crate) fn expect_symbol(&mut self, symbol: &str) -> Result<()> {
        if self.take_symbol(symbol) { Ok(()) } else { self.unexpected(&format!("'{symbol}'")) }
    }

    /// The end of the statement, with or without a semicolon.
    pub(crate) fn expect_end(&mut self) -> Result<()> {
        while self.take_symbol(";") {}
        if self.peek().kind == Kind::End { Ok(()) } else { self.unexpected("the end") }
    }

    /// One or more, separated by commas.
    pub(crate) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.take_symbol(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// One or more in parentheses, separated by commas.
    pub(crate) fn parenthesized<T>(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect_symbol("(")?;
        let items = self.list(item)?;
        self.expect_symbol(")")?;
        Ok(items)
    }

    /// Zero or more in brackets, separated by commas.
    pub(crate) fn bracketed<T>(
        &mut self,
        open: &str,
        close: &str,
        item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect_symbol(open)?;
        if self.take_symbol(close) {
            return Ok(Vec::new());
        }
        let items = self.list(item)?;
        self.expect_symbol(close)?;
        Ok(items)
    }

    /// One or more in parentheses. Repeated and trailing commas are allowed.
    // Source: Cassandra 5.0, Parser.g: tableDefinition and createTypeStatement
    pub(crate) fn bracketed_loosely<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.expect_symbol("(")?;
        let mut items = vec![item(self)?];
        while !self.take_symbol(")") {
            self.expect_symbol(",")?;
            if !self.is_at_symbol(",") && !self.is_at_symbol(")") {
                items.push(item(self)?);
            }
        }
        Ok(items)
    }

    /// A name: folded to lower case unless it is quoted.
    pub(crate) fn name(&mut self) -> Result<String> {
        let token = self.peek();
        let name = match token.kind {
            Kind::Word if !is_reserved(token.text) => token.text.to_ascii_lowercase(),
            Kind::QuotedName => unquoted(token.text, '"'),
            _ => return self.unexpected("a name"),
        };
        // The protocol stores their length in 16 bits.
        if name.len() > usize::from(u16::MAX) {
            return token.fault("a name of more than 65535 bytes");
        }
        self.at += 1;
        Ok(name)
    }

    /// A name, with an optional keyspace.
    pub(crate) fn qualified_name(&mut self) -> Result<QualifiedName> {
        let first = self.name()?;
        if self.take_symbol(".") {
            return Ok(QualifiedName { keyspace: Some(first), name: self.name()? });
        }
        Ok(QualifiedName { keyspace: None, name: first })
    }

    /// A quoted text, without its quotes.
    pub(crate) fn string(&mut self) -> Result<String> {
        let token = self.peek();
        if token.kind != Kind::String {
            return self.unexpected("a string");
        }
        self.at += 1;
        Ok(string_of(token.text))
    }

    pub(crate) fn integer(&mut self) -> Result<i64> {
        let token = self.peek();
        let is_negative = self.take_symbol("-");
        let digits = self.peek();
        if digits.kind != Kind::Integer {
            return self.unexpected("an integer");
        }
        self.at += 1;
        let sign = if is_negative { "-" } else { "" };
        format!("{sign}{}", digits.text)
            .parse()
            .or_else(|_| token.fault(format!("{sign}{} is too large", digits.text)))
    }

    pub(crate) fn boolean(&mut self) -> Result<bool> {
        if self.take_word("true") {
            return Ok(true);
        }
        if self.take_word("false") { Ok(false) } else { self.unexpected("true or false") }
    }

    pub(crate) fn if_not_exists(&mut self) -> bool {
        self.take_words(&["if", "not", "exists"])
    }

    pub(crate) fn if_exists(&mut self) -> bool {
        self.take_words(&["if", "exists"])
    }

    /// A marker of a value: `?` or `:name`. Returns its index.
    pub(crate) fn marker(&mut self) -> Result<Option<usize>> {
        if self.take_symbol("?") {
            self.markers.push(None);
        } else if self.take_symbol(":") {
            let name = self.name()?;
            self.markers.push(Some(name));
        } else {
            return Ok(None);
        }
        Ok(Some(self.markers.len() - 1))
    }

    /// Begins a term that is not part of another.
    pub(crate) fn begin_term(&mut self) {
        if self.depth == 0 {
            self.operators = 0;
        }
    }

    /// Counts one more arithmetic operator.
    pub(crate) fn count_operator(&mut self) -> Result<()> {
        if self.operators == OPERATORS_MAX {
            return self.peek().fault(format!("more than {OPERATORS_MAX} operators"));
        }
        self.operators += 1;
        Ok(())
    }

    /// Runs `part` one level deeper.
    pub(crate) fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.nested_up_to(DEPTH_MAX, part)
    }

    /// Like [`Parser::nested`], for types, whose parsing needs less stack.
    pub(crate) fn nested_type<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.nested_up_to(TYPE_DEPTH_MAX, part)
    }

    fn nested_up_to<T>(
        &mut self,
        depth_max: usize,
        part: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if self.depth >= depth_max {
            return self.peek().fault(format!("more than {depth_max} levels"));
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }
}

fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// A name as CQL text: quoted if necessary.
pub(crate) fn quoted_if_needed(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !is_reserved(name);
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn unquoted(text: &str, quote: char) -> String {
    let inner = &text[1..text.len() - 1];
    inner.replace(&format!("{quote}{quote}"), &quote.to_string())
}

/// The value of a string token.
pub(super) fn string_of(text: &str) -> String {
    match text.strip_prefix("$$") {
        Some(rest) => rest[..rest.len() - 2].to_owned(),
        None => unquoted(text, '\''),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_folded_unless_quoted() {
        let mut parser = Parser::new("KeySpace1.\"Ta\"\"ble\" select").unwrap();
        let name = parser.qualified_name().unwrap();
        assert_eq!(name.keyspace.as_deref(), Some("keyspace1"));
        assert_eq!(name.name, "Ta\"ble");
        assert_eq!(
            parser.name().unwrap_err().to_string(),
            "line 1:20 no viable alternative at input 'select' (expected a name)"
        );
        assert_eq!(quoted_if_needed("abc"), "abc");
        assert_eq!(quoted_if_needed("Ta\"ble"), "\"Ta\"\"ble\"");
        assert_eq!(quoted_if_needed("select"), "\"select\"");
    }

    #[test]
    fn markers_are_counted_with_their_names() {
        let mut parser = Parser::new("? :Name x").unwrap();
        assert_eq!(parser.marker(), Ok(Some(0)));
        assert_eq!(parser.marker(), Ok(Some(1)));
        assert_eq!(parser.marker(), Ok(None));
        assert_eq!(parser.into_markers(), [None, Some("name".into())]);
    }

    #[test]
    fn numbers_and_strings_have_their_values() {
        let mut parser = Parser::new("-5 'it''s' $$a'b$$ TRUE 99999999999999999999").unwrap();
        assert_eq!(parser.integer(), Ok(-5));
        assert_eq!(parser.string(), Ok("it's".into()));
        assert_eq!(parser.string(), Ok("a'b".into()));
        assert_eq!(parser.boolean(), Ok(true));
        assert!(parser.integer().is_err());
    }
}
