//! Inline requests: a line of words, as a person types them into `telnet`.

use super::batch::Span;
use super::limits::ProtocolError;

/// Interpretation of the next character.
#[derive(Clone, Copy)]
enum Quoting {
    None,
    Single,
    Double,
}

/// Splits a line (without its line end) into arguments, and appends their bytes to `out` and their
/// positions in `out` to `spans`.
///
/// Words are separated by white space. In double quotes `\n \r \t \b \a`, `\xHH` and a backslash before
/// any other character are escapes; in single quotes only `\'` is. A closing quote must be followed by
/// Unlike in Redis, which uses C strings here, a zero byte is an ordinary byte.
// Source: Redis 7.0 sds.c sdssplitargs behaviour
pub(super) fn split_args(
    line: &[u8],
    out: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|&byte| is_space(byte)) {
            at += 1;
        }
        if at == line.len() {
            return Ok(());
        }
        let start = out.len();
        at = read_arg(line, at, out)?;
        spans.push(Span::new(start, out.len() - start));
    }
}

/// Splits a line as an inline request, for other texts with the same syntax.
pub fn split_line(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
    let (mut out, mut spans) = (Vec::new(), Vec::new());
    split_args(line, &mut out, &mut spans)?;
    Ok(spans.iter().map(|span| span.of(&out).to_vec()).collect())
}

/// Appends the argument that starts at `at`; returns the position after it.
fn read_arg(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    let mut quoting = Quoting::None;
    loop {
        let Some(&byte) = line.get(at) else {
            return match quoting {
                Quoting::None => Ok(at),
                Quoting::Single | Quoting::Double => Err(ProtocolError::UnbalancedQuotes),
            };
        };
        at += 1;
        match (quoting, byte) {
            (Quoting::None, b' ' | b'\n' | b'\r' | b'\t') => return Ok(at),
            (Quoting::None, b'"') => quoting = Quoting::Double,
            (Quoting::None, b'\'') => quoting = Quoting::Single,
            (Quoting::Double, b'"') | (Quoting::Single, b'\'') => return end_of_quotes(line, at),
            (Quoting::Double, b'\\') if at < line.len() => {
                let (unescaped, used) = unescape(&line[at..]);
                out.push(unescaped);
                at += used;
            }
            (Quoting::Single, b'\\') if line.get(at) == Some(&b'\'') => {
                out.push(b'\'');
                at += 1;
            }
            _ => out.push(byte),
        }
    }
}

/// The position after a closing quote, if an argument may end there.
fn end_of_quotes(line: &[u8], at: usize) -> Result<usize, ProtocolError> {
    if line.get(at).is_none_or(|&byte| is_space(byte)) {
        Ok(at)
    } else {
        Err(ProtocolError::UnbalancedQuotes)
    }
}

/// The byte of an escape and the length of the escape; `rest` follows the backslash and is not
/// empty.
fn unescape(rest: &[u8]) -> (u8, usize) {
    if let [b'x', high, low, ..] = rest
        && let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low))
    {
        return (high << 4 | low, 3);
    }
    let byte = match rest[0] {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    };
    (byte, 1)
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], expected: &[&[u8]]) {
        let (mut out, mut spans) = (Vec::new(), Vec::new());
        assert_eq!(split_args(line, &mut out, &mut spans), Ok(()));
        let lens: Vec<usize> = expected.iter().map(|arg| arg.len()).collect();
        let mut start = 0;
        for (span, len) in spans.iter().zip(&lens) {
            assert_eq!(*span, Span::new(start, *len));
            start += len;
        }
        assert_eq!(spans.len(), expected.len());
        assert_eq!(out, expected.concat());
    }

    #[track_caller]
    fn check_unbalanced(line: &[u8]) {
        let (mut out, mut spans) = (Vec::new(), Vec::new());
        let result = split_args(line, &mut out, &mut spans);
        assert_eq!(result, Err(ProtocolError::UnbalancedQuotes));
    }

    #[test]
    fn words_are_separated_by_white_space() {
        check(b"", &[]);
        check(b" \t\x0b\x0c ", &[]);
        check(b"PING", &[b"PING"]);
        check(b"  SET\tkey   value ", &[b"SET", b"key", b"value"]);
        check(b"a\x0bb a\0b", &[b"a\x0bb", b"a\0b"]);
    }

    #[test]
    fn quotes_and_escapes_give_bytes() {
        check(br#"SET k "a b""#, &[b"SET", b"k", b"a b"]);
        check(br#""" ''"#, &[b"", b""]);
        check(br#""\x41\xfF\n\r\t\b\a\"\\\q""#, &[b"A\xff\n\r\t\x08\x07\"\\q"]);
        check(br#""\xg1 \x4""#, &[b"xg1 x4"]);
        check(br"'it\'s' '\n'", &[b"it's", br"\n"]);
        check(br#"ECHO a"b c""#, &[b"ECHO", b"ab c"]);
        check(br"a\x41", &[br"a\x41"]);
    }

    #[test]
    fn a_quote_must_end_and_end_at_a_space() {
        check_unbalanced(br#"PING "a"#);
        check_unbalanced(br"PING 'a");
        check_unbalanced(br#"PING "a"b"#);
        check_unbalanced(br"PING 'a'b");
        check_unbalanced(br#"PING "a\"#);
        check_unbalanced(br#"PING "a\""#);
    }
}
