//! Converts CQL text to tokens.
//!
//! Keywords are not separate tokens: CQL has few reserved words, and each grammar rule checks for
//! its own keywords.

use std::fmt;

use thiserror::Error;

use crate::duration::Duration;

/// Start of a token, counted as in Cassandra's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// From 1.
    pub(crate) line: u32,
    /// In characters, from 0.
    pub(crate) column: u32,
}

impl Position {
    /// The position after the given number of characters of the same line.
    pub(crate) fn after(self, characters: u32) -> Position {
        Position { column: self.column.saturating_add(characters), ..self }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}:{}", self.line, self.column)
    }
}

/// The text is not CQL.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{position} {reason}")]
pub struct SyntaxError {
    pub(crate) position: Position,
    pub(crate) reason: String,
}

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A word: a keyword, or a name in any case.
    Word,
    /// `"Name"`
    QuotedName,
    /// `'text'` or `$$text$$`
    String,
    /// Digits.
    Integer,
    Float,
    Uuid,
    /// `0x`, then hexadecimal digits.
    Blob,
    /// `1h30m` or `P1Y2M`.
    Duration,
    /// An operator, a bracket, a comma.
    Symbol,
    End,
}

/// A token and its text, including quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) position: Position,
}

impl Token<'_> {
    /// Whether this is the given keyword, in any case.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    pub(crate) fn is_symbol(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }

    /// An error at this token, for a reason beyond the token itself.
    pub(crate) fn fault<T>(self, reason: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { position: self.position, reason: reason.into() })
    }
}

/// Symbols, longer ones first.
const SYMBOLS: [&str; 22] = [
    "<=", ">=", "!=", "->", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", "{", "}",
    ",", ";", ":", ".",
];
/// Units of durations, longer ones first.
const UNITS: [&str; 11] = ["mo", "ms", "us", "µs", "ns", "y", "w", "d", "h", "m", "s"];

/// Maximum number of words, numbers, strings and symbols of a statement. Parsing and planning
/// cannot pause, so the number is limited. Longer statements must bind values, or be split.
///
/// A collection of 65,535 elements, the maximum of older versions of the protocol, may have 16
/// tokens in each.
pub(crate) const TOKENS_MAX: usize = 1 << 20;

/// All tokens of `text`, the last one with [`Kind::End`].
pub(crate) fn tokenize(text: &str) -> Result<Vec<Token<'_>>, SyntaxError> {
    let mut lexer = Lexer { text, at: 0, position: Position { line: 1, column: 0 } };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next_token()?;
        if tokens.len() >= TOKENS_MAX && token.kind != Kind::End {
            let reason = format!("a statement has at most {TOKENS_MAX} words, values and symbols");
            return Err(SyntaxError { position: token.position, reason });
        }
        tokens.push(token);
        if token.kind == Kind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Position of `at`, updated along with it: counting from the start of the line for each token
    /// would make a line of n tokens cost n * n.
    /// line of n tokens cost n * n.
    position: Position,
}

impl<'a> Lexer<'a> {
    fn next_token(&mut self) -> Result<Token<'a>, SyntaxError> {
        self.skip_blanks()?;
        let position = self.position;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(Token { kind: Kind::End, text: "", position });
        };
        let (kind, bytes) = match first {
            '\'' => (Kind::String, self.quoted('\'')?),
            '"' => (Kind::QuotedName, self.quoted('"')?),
            '$' if rest.starts_with("$$") => (Kind::String, self.dollar_quoted()?),
            _ => plain_token(rest, first).ok_or_else(|| SyntaxError {
                position,
                reason: format!("no viable alternative at character '{first}'"),
            })?,
        };
        let text = &rest[..bytes];
        self.advance(bytes);
        Ok(Token { kind, text, position })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.text[self.at..self.at + bytes];
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let Position { line, column } = &mut self.position;
        let mut tail = passed;
        if let Some((before, behind)) = passed.rsplit_once('\n') {
            *line = line.saturating_add(count(before.matches('\n').count() + 1));
            *column = 0;
            tail = behind;
        }
        *column = column.saturating_add(count(tail.chars().count()));
        self.at += bytes;
    }

    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = self.rest();
            let bytes = if rest.starts_with("--") || rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let end = comment.find("*/").ok_or_else(|| self.unfinished("comment"))?;
                2 + end + 2
            } else {
                rest.len() - rest.trim_start().len()
            };
            if bytes == 0 {
                return Ok(());
            }
            self.advance(bytes);
        }
    }

    /// Length of the quoted text at the front; a doubled quote is a literal quote.
    fn quoted(&self, quote: char) -> Result<usize, SyntaxError> {
        let rest = self.rest();
        let mut at = 1;
        loop {
            let end = rest[at..].find(quote).ok_or_else(|| self.unfinished("quoted text"))?;
            at += end + 1;
            if !rest[at..].starts_with(quote) {
                return Ok(at);
            }
            at += 1;
        }
    }

    fn dollar_quoted(&self) -> Result<usize, SyntaxError> {
        let end = self.rest()[2..].find("$$").ok_or_else(|| self.unfinished("quoted text"))?;
        Ok(2 + end + 2)
    }

    fn unfinished(&self, what: &str) -> SyntaxError {
        SyntaxError { position: self.position, reason: format!("{what} without an end") }
    }
}

/// The unquoted token at the front, and its length.
fn plain_token(rest: &str, first: char) -> Option<(Kind, usize)> {
    if first == '?' {
        return Some((Kind::Symbol, 1));
    }
    if let Some(bytes) = uuid_bytes(rest) {
        return Some((Kind::Uuid, bytes));
    }
    if first.is_ascii_digit() {
        return Some(number(rest));
    }
    if let Some(bytes) = iso_duration_bytes(rest) {
        return Some((Kind::Duration, bytes));
    }
    if first.is_ascii_alphabetic() {
        return Some((Kind::Word, word_bytes(rest)));
    }
    let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol))?;
    Some((Kind::Symbol, symbol.len()))
}

fn word_bytes(rest: &str) -> usize {
    rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
}

fn digits(rest: &str) -> usize {
    rest.bytes().take_while(u8::is_ascii_digit).count()
}

fn number(rest: &str) -> (Kind, usize) {
    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        return (Kind::Blob, 2 + hex.bytes().take_while(u8::is_ascii_hexdigit).count());
    }
    if let Some(bytes) = duration_bytes(rest) {
        return (Kind::Duration, bytes);
    }
    let whole = digits(rest);
    let mut end = whole;
    // Two dots are a slice: `l[1..2]`. Three are the end of a number and a slice.
    // Source: Cassandra 5.0, Lexer.g: FLOAT
    let is_fraction = rest[end..].starts_with('.') && !rest[end..].starts_with("..");
    if rest[end..].starts_with("...") {
        return (Kind::Float, end + 1);
    }
    if is_fraction {
        end += 1 + digits(&rest[end + 1..]);
    }
    if let Some(exponent) = rest[end..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let count = digits(&exponent[sign..]);
        if count > 0 {
            end += 1 + sign + count;
        }
    }
    (if end == whole { Kind::Integer } else { Kind::Float }, end)
}

/// `1h30m`: one or more pairs of digits and a unit, not followed by a letter.
fn duration_bytes(rest: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let count = digits(&rest[at..]);
        if count == 0 {
            break;
        }
        let tail = &rest[at + count..];
        let unit = UNITS.iter().find(|unit| {
            tail.get(..unit.len()).is_some_and(|start| start.eq_ignore_ascii_case(unit))
        })?;
        at += count + unit.len();
    }
    let goes_on = rest[at..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    (at > 0 && !goes_on).then_some(at)
}

/// `P1Y2M3DT4H5M6S`, `P2W` or `P0001-02-03T04:05:06`.
// Source: Cassandra's CQL documentation, "Working with duration"
fn iso_duration_bytes(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('P')?;
    let end =
        body.find(|c: char| !c.is_ascii_digit() && !"YMWDTHS-:".contains(c)).unwrap_or(body.len());
    let goes_on = body[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let has_digits = body[..end].bytes().any(|byte| byte.is_ascii_digit());
    let starts_well = body.starts_with(|c: char| c.is_ascii_digit() || c == 'T');
    let is_duration = has_digits && starts_well && !goes_on;
    (is_duration && Duration::parse(&rest[..=end]).is_ok()).then_some(1 + end)
}

fn uuid_bytes(rest: &str) -> Option<usize> {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let mut at = 0;
    for (nth, digits) in GROUPS.into_iter().enumerate() {
        if nth > 0 {
            rest[at..].strip_prefix('-')?;
            at += 1;
        }
        let group = rest.get(at..at + digits)?;
        if !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        at += digits;
    }
    let goes_on = rest[at..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    (!goes_on).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(Kind, &str)]) {
        let tokens = tokenize(text).unwrap();
        let found: Vec<(Kind, &str)> = tokens.iter().map(|t| (t.kind, t.text)).collect();
        assert_eq!(found[..found.len() - 1], *expected, "{text}");
        assert_eq!(found.last(), Some(&(Kind::End, "")));
    }

    #[test]
    fn every_kind_of_token_is_known() {
        check(
            "SELECT \"A\"\"b\" 'it''s' $$a'b$$",
            &[
                (Kind::Word, "SELECT"),
                (Kind::QuotedName, "\"A\"\"b\""),
                (Kind::String, "'it''s'"),
                (Kind::String, "$$a'b$$"),
            ],
        );
        check(
            "12 1.5 1. 2e10 1E-3 0xCAfe 0x",
            &[
                (Kind::Integer, "12"),
                (Kind::Float, "1.5"),
                (Kind::Float, "1."),
                (Kind::Float, "2e10"),
                (Kind::Float, "1E-3"),
                (Kind::Blob, "0xCAfe"),
                (Kind::Blob, "0x"),
            ],
        );
        check(
            "550e8400-e29b-41d4-a716-446655440000 1h30m 2mo P1Y2M P2W PT5M price",
            &[
                (Kind::Uuid, "550e8400-e29b-41d4-a716-446655440000"),
                (Kind::Duration, "1h30m"),
                (Kind::Duration, "2mo"),
                (Kind::Duration, "P1Y2M"),
                (Kind::Duration, "P2W"),
                (Kind::Duration, "PT5M"),
                (Kind::Word, "price"),
            ],
        );
        check(
            "a<=?!=b[1]",
            &[
                (Kind::Word, "a"),
                (Kind::Symbol, "<="),
                (Kind::Symbol, "?"),
                (Kind::Symbol, "!="),
                (Kind::Word, "b"),
                (Kind::Symbol, "["),
                (Kind::Integer, "1"),
                (Kind::Symbol, "]"),
            ],
        );
    }

    #[test]
    fn comments_are_blanks() {
        check(
            "a -- b\n c // d\n /* e \n */ f",
            &[(Kind::Word, "a"), (Kind::Word, "c"), (Kind::Word, "f")],
        );
    }

    #[test]
    fn positions_are_lines_and_characters() {
        let tokens = tokenize("ä".repeat(2).as_str()).unwrap_err();
        assert_eq!(tokens.to_string(), "line 1:0 no viable alternative at character 'ä'");
        let tokens = tokenize("'ä'\n  x").unwrap();
        assert_eq!(tokens[1].position, Position { line: 2, column: 2 });
        let error = tokenize("SELECT 'x").unwrap_err();
        assert_eq!(error.to_string(), "line 1:7 quoted text without an end");
    }

    #[test]
    fn statements_of_very_many_tokens_are_refused() {
        let text = "1,".repeat(TOKENS_MAX / 2);
        assert_eq!(tokenize(&text).unwrap().len(), TOKENS_MAX + 1);
        let error = tokenize(&format!("{text}\n1")).unwrap_err().to_string();
        assert_eq!(error, "line 2:0 a statement has at most 1048576 words, values and symbols");
    }
}
