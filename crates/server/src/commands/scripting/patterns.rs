//! Patterns of Lua, for searches that may take long: the interpreter's own cannot be ended.
//!
//! The prelude asks for the cost of a pattern first, and leaves cheap searches to the interpreter.
//!
//! Source: Lua 5.1 `lstrlib.c`, for patterns, results and texts of errors

#[cfg(test)]
mod tests;

use mlua::{Lua, LuaString, MultiValue, Value};

use super::host::check_end;

/// Captures of a pattern.
// Source: Lua 5.1 `luaconf.h`, `LUA_MAXCAPTURES`
const CAPTURES_MAX: usize = 32;

/// Items of a pattern that wait for the end of the match: the matcher is recursive.
// Source: Lua 5.2 `lstrlib.c`, `MAXCCALLS`
const DEPTH_MAX: usize = 200;

/// Steps between two checks whether the script must end.
const STEPS_PER_CHECK: usize = 100_000;

/// Why a search fails.
#[derive(Debug)]
enum SearchError {
    /// The pattern is malformed.
    Pattern(&'static str),
    Lua(mlua::Error),
}

impl From<mlua::Error> for SearchError {
    fn from(error: mlua::Error) -> SearchError {
        SearchError::Lua(error)
    }
}

/// What a pattern costs and needs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    /// A search in `n` bytes takes up to `n` to this power.
    exponent: f64,
    /// A search may raise an error.
    is_malformed: bool,
    /// It is a plain text.
    is_plain: bool,
}

/// A pattern: it ends before its first zero byte, and is then zero.
#[derive(Debug, Clone, Copy)]
struct Pattern<'p>(&'p [u8]);

impl<'p> Pattern<'p> {
    fn new(bytes: &'p [u8]) -> Pattern<'p> {
        Pattern(&bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())])
    }

    fn at(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    /// The end of the class of characters that begins here.
    fn class_end(self, mut at: usize) -> Result<usize, SearchError> {
        let first = self.at(at);
        at += 1;
        if first == b'%' {
            if self.at(at) == 0 {
                return Err(SearchError::Pattern("malformed pattern (ends with '%')"));
            }
            return Ok(at + 1);
        }
        if first != b'[' {
            return Ok(at);
        }
        if self.at(at) == b'^' {
            at += 1;
        }
        loop {
            if self.at(at) == 0 {
                return Err(SearchError::Pattern("malformed pattern (missing ']')"));
            }
            let is_escape = self.at(at) == b'%';
            at += 1;
            if is_escape && self.at(at) != 0 {
                at += 1;
            }
            if self.at(at) == b']' {
                return Ok(at + 1);
            }
        }
    }

    /// Whether the class at `at` contains a character.
    fn class_has(self, at: usize, end: usize, character: u8) -> bool {
        match self.at(at) {
            b'.' => true,
            b'%' => is_of_class(character, self.at(at + 1)),
            b'[' => self.set_has(at, end - 1, character),
            plain => plain == character,
        }
    }

    /// Whether the set at `at`, whose `]` is at `end`, contains a character.
    fn set_has(self, mut at: usize, end: usize, character: u8) -> bool {
        let is_inverted = self.at(at + 1) == b'^';
        if is_inverted {
            at += 1;
        }
        at += 1;
        while at < end {
            if self.at(at) == b'%' {
                at += 1;
                if is_of_class(character, self.at(at)) {
                    return !is_inverted;
                }
            } else if self.at(at + 1) == b'-' && at + 2 < end {
                if (self.at(at)..=self.at(at + 2)).contains(&character) {
                    return !is_inverted;
                }
                at += 2;
            } else if self.at(at) == character {
                return !is_inverted;
            }
            at += 1;
        }
        is_inverted
    }

    /// Estimates searches for this pattern. An item that is repeated multiplies the cost if the
    /// match can fail after it.
    fn cost(self) -> Cost {
        let is_plain = !self.0.iter().any(|byte| b"^$*+?.([%-".contains(byte));
        let is_anchored = self.at(0) == b'^';
        let mut at = usize::from(is_anchored);
        let mut exponent = f64::from(u8::from(!is_anchored));
        let (mut repeated, mut open, mut closed) = (0.0, Vec::new(), Vec::new());
        let mut is_malformed = false;
        while self.at(at) != 0 {
            match (self.at(at), self.at(at + 1)) {
                (b'(', next) => {
                    let is_position = next == b')';
                    closed.push(is_position);
                    if !is_position {
                        open.push(closed.len() - 1);
                    }
                    at += 1 + usize::from(is_position);
                    continue;
                }
                (b')', _) => {
                    match open.pop() {
                        Some(capture) => closed[capture] = true,
                        None => is_malformed = true,
                    }
                    at += 1;
                    continue;
                }
                _ => {}
            }
            exponent += repeated;
            repeated = 0.0;
            match (self.at(at), self.at(at + 1)) {
                (b'%', b'b') => {
                    is_malformed |= self.at(at + 2) == 0 || self.at(at + 3) == 0;
                    exponent += 1.0;
                    at += 4;
                }
                (b'%', b'f') => match self.class_end(at + 2) {
                    Ok(end) if self.at(at + 2) == b'[' => at = end,
                    _ => return Cost { exponent, is_malformed: true, is_plain },
                },
                (b'%', digit @ b'0'..=b'9') => {
                    let capture = usize::from(digit).wrapping_sub(usize::from(b'1'));
                    is_malformed |= !closed.get(capture).is_some_and(|is_closed| *is_closed);
                    exponent += 1.0;
                    at += 2;
                }
                _ => {
                    let Ok(end) = self.class_end(at) else {
                        return Cost { exponent, is_malformed: true, is_plain };
                    };
                    at = end;
                    if matches!(self.at(at), b'*' | b'+' | b'-' | b'?') {
                        repeated = 1.0;
                        at += 1;
                    }
                }
            }
        }
        is_malformed |= !open.is_empty() || closed.len() > CAPTURES_MAX;
        Cost { exponent, is_malformed, is_plain }
    }
}

/// Whether a character is of a class such as `%a`, as C classifies it without a locale.
fn is_of_class(character: u8, class: u8) -> bool {
    let found = match class.to_ascii_lowercase() {
        b'a' => character.is_ascii_alphabetic(),
        b'c' => character.is_ascii_control(),
        b'd' => character.is_ascii_digit(),
        b'l' => character.is_ascii_lowercase(),
        b'p' => character.is_ascii_punctuation(),
        b's' => matches!(character, b' ' | 9..=13),
        b'u' => character.is_ascii_uppercase(),
        b'w' => character.is_ascii_alphanumeric(),
        b'x' => character.is_ascii_hexdigit(),
        b'z' => character == 0,
        _ => return class == character,
    };
    found == class.is_ascii_lowercase()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Capture {
    Unfinished { start: usize },
    Position { start: usize },
    Text { start: usize, len: usize },
}

/// A search in progress.
struct Matcher<'t> {
    /// Called from time to time: fails if the script must end.
    check: &'t dyn Fn() -> mlua::Result<()>,
    text: &'t [u8],
    pattern: Pattern<'t>,
    captures: Vec<Capture>,
    depth: usize,
    /// Since the last check.
    steps: usize,
}

type Matched = Result<Option<usize>, SearchError>;

impl Matcher<'_> {
    fn step(&mut self) -> Result<(), SearchError> {
        self.steps += 1;
        if self.steps >= STEPS_PER_CHECK {
            self.steps = 0;
            (self.check)()?;
        }
        Ok(())
    }

    /// Finds the first match from `at` on. `is_literal`: a `^` is a character.
    fn search(
        &mut self,
        at: usize,
        is_literal: bool,
    ) -> Result<Option<(usize, usize)>, SearchError> {
        let is_anchored = !is_literal && self.pattern.at(0) == b'^';
        let last = if is_anchored { at } else { self.text.len() };
        for start in at..=last {
            self.captures.clear();
            if let Some(end) = self.matches(start, usize::from(is_anchored))? {
                return Ok(Some((start, end)));
            }
        }
        Ok(None)
    }

    /// Matches the pattern from `p` on with the text at `s`. Returns the end of the match.
    fn matches(&mut self, s: usize, p: usize) -> Matched {
        if self.depth == DEPTH_MAX {
            return Err(SearchError::Pattern("pattern too complex"));
        }
        self.depth += 1;
        let matched = self.matches_items(s, p);
        self.depth -= 1;
        matched
    }

    fn matches_items(&mut self, mut s: usize, mut p: usize) -> Matched {
        let pattern = self.pattern;
        loop {
            self.step()?;
            match (pattern.at(p), pattern.at(p + 1)) {
                (0, _) => return Ok(Some(s)),
                (b'(', b')') => return self.open(Capture::Position { start: s }, s, p + 2),
                (b'(', _) => return self.open(Capture::Unfinished { start: s }, s, p + 1),
                (b')', _) => return self.close(s, p + 1),
                (b'$', 0) => return Ok((s == self.text.len()).then_some(s)),
                (b'%', b'b') => {
                    let Some(end) = self.balanced(s, p + 2)? else { return Ok(None) };
                    (s, p) = (end, p + 4);
                }
                (b'%', b'f') => {
                    p += 2;
                    if pattern.at(p) != b'[' {
                        let text = "missing '[' after '%f' in pattern";
                        return Err(SearchError::Pattern(text));
                    }
                    let end = pattern.class_end(p)?;
                    let before = s.checked_sub(1).map_or(0, |before| self.text[before]);
                    let next = self.text.get(s).copied().unwrap_or(0);
                    if pattern.set_has(p, end - 1, before) || !pattern.set_has(p, end - 1, next) {
                        return Ok(None);
                    }
                    p = end;
                }
                (b'%', digit @ b'0'..=b'9') => {
                    let Some(end) = self.captured(s, digit)? else { return Ok(None) };
                    (s, p) = (end, p + 2);
                }
                _ => {
                    let end = pattern.class_end(p)?;
                    let is_first = self.has(s, p, end);
                    match pattern.at(end) {
                        b'?' => {
                            if is_first && let Some(end) = self.matches(s + 1, end + 1)? {
                                return Ok(Some(end));
                            }
                            p = end + 1;
                        }
                        b'*' => return self.longest(s, p, end),
                        b'+' if is_first => return self.longest(s + 1, p, end),
                        b'-' => return self.shortest(s, p, end),
                        b'+' => return Ok(None),
                        _ if !is_first => return Ok(None),
                        _ => (s, p) = (s + 1, end),
                    }
                }
            }
        }
    }

    /// Whether the class at `p` contains the character at `s`.
    fn has(&self, s: usize, p: usize, class_end: usize) -> bool {
        let character = self.text.get(s);
        character.is_some_and(|character| self.pattern.class_has(p, class_end, *character))
    }

    fn longest(&mut self, s: usize, p: usize, class_end: usize) -> Matched {
        let mut count = 0;
        while self.has(s + count, p, class_end) {
            count += 1;
            self.step()?;
        }
        for count in (0..=count).rev() {
            if let Some(end) = self.matches(s + count, class_end + 1)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn shortest(&mut self, mut s: usize, p: usize, class_end: usize) -> Matched {
        loop {
            if let Some(end) = self.matches(s, class_end + 1)? {
                return Ok(Some(end));
            }
            if !self.has(s, p, class_end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, capture: Capture, s: usize, p: usize) -> Matched {
        if self.captures.len() == CAPTURES_MAX {
            return Err(SearchError::Pattern("too many captures"));
        }
        self.captures.push(capture);
        let matched = self.matches(s, p)?;
        if matched.is_none() {
            self.captures.pop();
        }
        Ok(matched)
    }

    fn close(&mut self, s: usize, p: usize) -> Matched {
        let unfinished = self.captures.iter().enumerate().rev().find_map(|(at, capture)| {
            if let Capture::Unfinished { start } = capture { Some((at, *start)) } else { None }
        });
        let Some((at, start)) = unfinished else {
            return Err(SearchError::Pattern("invalid pattern capture"));
        };
        self.captures[at] = Capture::Text { start, len: s - start };
        let matched = self.matches(s, p)?;
        if matched.is_none() {
            self.captures[at] = Capture::Unfinished { start };
        }
        Ok(matched)
    }

    fn balanced(&mut self, s: usize, p: usize) -> Matched {
        let (open, close) = (self.pattern.at(p), self.pattern.at(p + 1));
        if open == 0 || close == 0 {
            return Err(SearchError::Pattern("unbalanced pattern"));
        }
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.text.len() {
            self.step()?;
            if self.text[at] == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if self.text[at] == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// The end of the text of a capture, if that text follows.
    fn captured(&mut self, s: usize, digit: u8) -> Matched {
        let at = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = at.and_then(|at| self.captures.get(at));
        let (start, len) = match capture {
            Some(Capture::Text { start, len }) => (*start, *len),
            // C compares a length that is huge.
            Some(Capture::Position { .. }) => return Ok(None),
            Some(Capture::Unfinished { .. }) | None => {
                return Err(SearchError::Pattern("invalid capture index"));
            }
        };
        self.steps += len / 64;
        let captured = &self.text[start..start + len];
        Ok(self.text[s..].starts_with(captured).then_some(s + len))
    }
}

/// The exponent of a pattern's cost, whether a search may raise an error, and whether it is plain.
#[expect(clippy::needless_pass_by_value, reason = "the interpreter passes values")]
pub(super) fn cost(_: &Lua, pattern: LuaString) -> mlua::Result<(f64, bool, bool)> {
    let Cost { exponent, is_malformed, is_plain } = Pattern::new(&pattern.as_bytes()).cost();
    Ok((exponent, is_malformed, is_plain))
}

/// Searches for a plain text from a position on, which counts from 1. Returns the first and last
/// position.
pub(super) fn find_plain(
    _: &Lua,
    (text, wanted, from): (LuaString, LuaString, f64),
) -> mlua::Result<(Option<usize>, Option<usize>)> {
    let text = text.as_bytes();
    let start = start(text.len(), from);
    let found = memchr::memmem::find(&text[start..], &wanted.as_bytes());
    let first = found.map(|at| start + at);
    Ok((first.map(|first| first + 1), first.map(|first| first + wanted.as_bytes().len())))
}

/// Searches for a pattern from a position on, which counts from 1. Returns the first and last
/// position and the captures; nil if there is no match; or false and the text of an error.
/// `is_literal`: a `^` is a character.
pub(super) fn search(
    lua: &Lua,
    (text, pattern, from, is_literal): (LuaString, LuaString, f64, bool),
) -> mlua::Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let mut matcher = Matcher {
        check: &|| check_end(lua),
        text: &text,
        pattern: Pattern::new(&pattern),
        captures: Vec::new(),
        depth: 0,
        steps: 0,
    };
    let found = matcher.search(start(text.len(), from), is_literal);
    let results = found.and_then(|found| match found {
        None => Ok(vec![Value::Nil]),
        Some((start, end)) => {
            let mut results = vec![position(start + 1), position(end)];
            for capture in &matcher.captures {
                results.push(match *capture {
                    Capture::Unfinished { .. } => {
                        return Err(SearchError::Pattern("unfinished capture"));
                    }
                    Capture::Position { start } => position(start + 1),
                    Capture::Text { start, len } => {
                        Value::String(lua.create_string(&text[start..start + len])?)
                    }
                });
            }
            Ok(results)
        }
    });
    match results {
        Ok(results) => Ok(MultiValue::from_vec(results)),
        Err(SearchError::Pattern(problem)) => {
            let problem = Value::String(lua.create_string(problem)?);
            Ok(MultiValue::from_vec(vec![Value::Boolean(false), problem]))
        }
        Err(SearchError::Lua(error)) => Err(error),
    }
}

fn position(position: usize) -> Value {
    Value::Integer(i64::try_from(position).unwrap_or(i64::MAX))
}

/// Where a search begins. `from` counts from 1, or back from the end if it is negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturating")]
fn start(len: usize, from: f64) -> usize {
    let from = from.trunc();
    let start = if from < 0.0 { len.saturating_sub(-from as usize) } else { from as usize };
    if from < 0.0 { start } else { start.saturating_sub(1).min(len) }
}
