//! JSON as values of Lua.

use std::cell::RefCell;

use mlua::{Lua, MultiValue, Table, Value};

use super::{ARRAY_METATABLE, Options};
use crate::commands::scripting::native::{
    ARRAY_GROWTH_BYTES, MAP_GROWTH_BYTES, NativeError, check, check_bytes, check_growth,
    check_room, string,
};

pub(super) fn decode(
    lua: &Lua,
    args: &MultiValue,
    options: &RefCell<Options>,
) -> Result<MultiValue, NativeError> {
    if args.len() != 1 {
        return Err(NativeError::text("bad argument #1 to 'decode' (expected 1 argument)"));
    }
    let text = string(lua, args, 1, "decode")?;
    let bytes = text.as_bytes();
    // UTF-16 and UTF-32 have zero bytes in their first two characters.
    if bytes.len() >= 2 && (bytes[0] == 0 || bytes[1] == 0) {
        return Err(NativeError::text("JSON parser does not support UTF-16 or UTF-32"));
    }
    check_bytes(lua, bytes.len())?;
    let options = options.borrow().clone();
    let array_metatable = options.mark_arrays.then(|| lua.named_registry_value(ARRAY_METATABLE));
    let array_metatable: Option<Table> = array_metatable.transpose()?;
    let mut parser =
        Parser { lua, options: &options, bytes: &bytes, at: 0, values: 0, array_metatable };
    let token = parser.token()?;
    let value = parser.value(token, 0)?;
    let end = parser.token()?;
    if !matches!(end.kind, Kind::End) {
        return Err(unexpected("the end", &end));
    }
    Ok(super::one(value))
}

#[derive(Debug, PartialEq)]
enum Kind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Invalid(&'static str),
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::ObjectBegin => "T_OBJ_BEGIN",
            Kind::ObjectEnd => "T_OBJ_END",
            Kind::ArrayBegin => "T_ARR_BEGIN",
            Kind::ArrayEnd => "T_ARR_END",
            Kind::String(_) => "T_STRING",
            Kind::Number(_) => "T_NUMBER",
            Kind::Boolean(_) => "T_BOOLEAN",
            Kind::Null => "T_NULL",
            Kind::Colon => "T_COLON",
            Kind::Comma => "T_COMMA",
            Kind::End => "T_END",
            Kind::Invalid(what) => what,
        }
    }
}

#[derive(Debug)]
struct Token {
    kind: Kind,
    at: usize,
}

fn unexpected(expected: &str, token: &Token) -> NativeError {
    let (found, at) = (token.kind.name(), token.at + 1);
    NativeError::text(format!("Expected {expected} but found {found} at character {at}"))
}

struct Parser<'t> {
    lua: &'t Lua,
    options: &'t Options,
    bytes: &'t [u8],
    at: usize,
    values: usize,
    array_metatable: Option<Table>,
}

impl Parser<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Result<Token, NativeError> {
        while matches!(self.peek(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let at = self.at;
        let single = |parser: &mut Self, kind| {
            parser.at += 1;
            kind
        };
        let kind = match self.peek(0) {
            _ if at >= self.bytes.len() => Kind::End,
            b'{' => single(self, Kind::ObjectBegin),
            b'}' => single(self, Kind::ObjectEnd),
            b'[' => single(self, Kind::ArrayBegin),
            b']' => single(self, Kind::ArrayEnd),
            b':' => single(self, Kind::Colon),
            b',' => single(self, Kind::Comma),
            b'"' => match self.string()? {
                Ok(text) => Kind::String(text),
                Err((what, at)) => return Ok(Token { kind: Kind::Invalid(what), at }),
            },
            b'-' | b'0'..=b'9' if self.refuses_number() => Kind::Invalid("invalid number"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.word(),
        };
        Ok(Token { kind, at })
    }

    fn word(&mut self) -> Kind {
        let rest = &self.bytes[self.at..];
        for (word, kind) in
            [("true", Kind::Boolean(true)), ("false", Kind::Boolean(false)), ("null", Kind::Null)]
        {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return kind;
            }
        }
        if self.options.decode_invalid_numbers && self.is_invalid_number() {
            return self.number();
        }
        Kind::Invalid("invalid token")
    }

    fn refuses_number(&self) -> bool {
        !self.options.decode_invalid_numbers && self.is_invalid_number()
    }

    /// Whether C reads a number here that JSON does not have.
    // Source: lua-cjson 2.1.0 `lua_cjson.c`, `json_is_invalid_number`
    fn is_invalid_number(&self) -> bool {
        let rest = &self.bytes[self.at..];
        let digits = rest.strip_prefix(b"-").unwrap_or(rest);
        match digits {
            _ if rest.starts_with(b"+") => true,
            [b'0', next, ..] => next.is_ascii_digit() || next | 32 == b'x',
            [] | [..=b'9', ..] => false,
            _ => ["inf", "nan"].iter().any(|word| begins_with(digits, word)),
        }
    }

    /// A number as C's `strtod` reads it.
    fn number(&mut self) -> Kind {
        let rest = &self.bytes[self.at..];
        let sign = usize::from(matches!(rest.first(), Some(b'-' | b'+')));
        let is_negative = rest.first() == Some(&b'-');
        let digits = &rest[sign..];
        let signed = |value: f64| Kind::Number(if is_negative { -value } else { value });
        for (word, value) in
            [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)]
        {
            if begins_with(digits, word) {
                self.at += sign + word.len();
                return signed(value);
            }
        }
        if begins_with(digits, "0x")
            && let Some((value, length)) = hexadecimal(&digits[2..])
        {
            self.at += sign + 2 + length;
            return signed(value);
        }
        let length = number_length(digits);
        let text = std::str::from_utf8(&digits[..length]).unwrap_or_default();
        match text.parse::<f64>() {
            Ok(value) => {
                self.at += sign + length;
                signed(value)
            }
            Err(_) => Kind::Invalid("invalid number"),
        }
    }

    /// Bytes of a string, at most: up to its closing quote.
    fn string_bytes(&self) -> usize {
        let rest = &self.bytes[self.at..];
        let mut end = 0;
        while let Some(next) = rest.get(end..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
            end += next;
            if rest[end] == b'"' {
                return end;
            }
            end += 2;
        }
        rest.len()
    }

    /// A string after its quote. On an inner error: what is invalid, and where.
    fn string(&mut self) -> Result<Result<Vec<u8>, (&'static str, usize)>, NativeError> {
        self.at += 1;
        let bytes_max = self.string_bytes();
        check_room(self.lua, bytes_max.saturating_mul(2))?; // and the string of Lua
        let mut text = Vec::with_capacity(bytes_max);
        loop {
            let rest = &self.bytes[self.at..];
            let Some(plain) = memchr::memchr2(b'"', b'\\', rest) else {
                return Ok(Err(("unexpected end of string", self.bytes.len())));
            };
            text.extend_from_slice(&rest[..plain]);
            self.at += plain;
            if self.peek(0) == b'"' {
                self.at += 1;
                return Ok(Ok(text));
            }
            let escaped = match self.peek(1) {
                code @ (b'"' | b'\\' | b'/') => code,
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'u' => {
                    let Some(character) = self.unicode() else {
                        return Ok(Err(("invalid unicode escape code", self.at)));
                    };
                    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    continue;
                }
                _ => return Ok(Err(("invalid escape code", self.at))),
            };
            text.push(escaped);
            self.at += 2;
        }
    }

    fn hex(&self, ahead: usize) -> Option<u32> {
        let digits = self.bytes.get(self.at + ahead..self.at + ahead + 4)?;
        digits
            .iter()
            .try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))
    }

    /// `\u` and four digits, or two of them.
    fn unicode(&mut self) -> Option<char> {
        let first = self.hex(2)?;
        if (0xD800..0xDC00).contains(&first) {
            if (self.peek(6), self.peek(7)) != (b'\\', b'u') {
                return None;
            }
            let second = self.hex(8)?;
            if !(0xDC00..0xE000).contains(&second) {
                return None;
            }
            self.at += 12;
            return char::from_u32(0x1_0000 + ((first & 0x3FF) << 10) + (second & 0x3FF));
        }
        self.at += 6;
        char::from_u32(first)
    }

    fn value(&mut self, token: Token, depth: usize) -> Result<Value, NativeError> {
        self.values += 1;
        check(self.lua, self.values)?;
        Ok(match token.kind {
            Kind::String(text) => Value::String(self.lua.create_string(text)?),
            Kind::Number(number) => Value::Number(number),
            Kind::Boolean(value) => Value::Boolean(value),
            Kind::Null => Value::NULL,
            Kind::ObjectBegin => Value::Table(self.object(depth + 1)?),
            Kind::ArrayBegin => Value::Table(self.array(depth + 1)?),
            _ => return Err(unexpected("value", &token)),
        })
    }

    fn check_depth(&self, depth: usize) -> Result<(), NativeError> {
        if depth <= self.options.decode_depth_max {
            return Ok(());
        }
        let at = self.at;
        let text = format!("Found too many nested data structures ({depth}) at character {at}");
        Err(NativeError::text(text))
    }

    fn object(&mut self, depth: usize) -> Result<Table, NativeError> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        let mut token = self.token()?;
        if token.kind == Kind::ObjectEnd {
            return Ok(table);
        }
        let mut fields = 0;
        loop {
            let Kind::String(key) = &token.kind else {
                return Err(unexpected("object key string", &token));
            };
            let key = self.lua.create_string(key)?;
            let colon = self.token()?;
            if colon.kind != Kind::Colon {
                return Err(unexpected("colon", &colon));
            }
            let next = self.token()?;
            fields += 1;
            check_growth(self.lua, fields, MAP_GROWTH_BYTES)?;
            table.raw_set(key, self.value(next, depth)?)?;
            let after = self.token()?;
            match after.kind {
                Kind::ObjectEnd => return Ok(table),
                Kind::Comma => token = self.token()?,
                _ => return Err(unexpected("comma or object end", &after)),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Table, NativeError> {
        self.check_depth(depth)?;
        let table = self.lua.create_table()?;
        if let Some(metatable) = &self.array_metatable {
            table.set_metatable(Some(metatable.clone()))?;
        }
        let mut token = self.token()?;
        if token.kind == Kind::ArrayEnd {
            return Ok(table);
        }
        for index in 1.. {
            check_growth(self.lua, index, ARRAY_GROWTH_BYTES)?;
            table.raw_seti(index, self.value(token, depth)?)?;
            let after = self.token()?;
            match after.kind {
                Kind::ArrayEnd => break,
                Kind::Comma => token = self.token()?,
                _ => return Err(unexpected("comma or array end", &after)),
            }
        }
        Ok(table)
    }
}

/// Whether a text begins with a word, in any case.
fn begins_with(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
}

/// A hexadecimal number and its length: digits, fraction, binary exponent.
fn hexadecimal(bytes: &[u8]) -> Option<(f64, usize)> {
    let digits = |bytes: &[u8]| bytes.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let append = |value: f64, digits: &[u8]| {
        digits.iter().fold(value, |value, digit| {
            value * 16.0 + f64::from(char::from(*digit).to_digit(16).unwrap_or(0))
        })
    };
    let whole = digits(bytes);
    let mut value = append(0.0, &bytes[..whole]);
    let (mut end, mut fraction) = (whole, 0);
    if bytes.get(end) == Some(&b'.') {
        fraction = digits(&bytes[end + 1..]);
        value = append(value, &bytes[end + 1..end + 1 + fraction]);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    let mut exponent = -4 * i32::try_from(fraction).unwrap_or(i32::MAX / 8);
    if bytes.get(end).is_some_and(|byte| byte | 32 == b'p') {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let start = end + 1 + sign;
        let count = bytes.iter().skip(start).take_while(|b| b.is_ascii_digit()).count();
        if count > 0 {
            let text = std::str::from_utf8(&bytes[end + 1..start + count]).unwrap_or_default();
            let written: i32 =
                text.parse().unwrap_or(if text.starts_with('-') { -9_999 } else { 9_999 });
            exponent = exponent.saturating_add(written);
            end = start + count;
        }
    }
    Some((value * 2.0_f64.powi(exponent), end))
}

/// Length of a decimal number: digits, fraction, exponent.
fn number_length(bytes: &[u8]) -> usize {
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if bytes.get(end).is_some_and(|byte| byte | 32 == b'e') {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = bytes.get(end + 1 + sign..).map_or(0, |_| digits(end + 1 + sign));
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    end
}
