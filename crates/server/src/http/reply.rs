//! Replies of commands as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How strings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As text; bytes that are none become U+FFFD.
    Text,
    /// All in base64 but the reply OK, as SDKs of the dialect expect it.
    Base64,
}

impl Encoding {
    pub(crate) const COUNT: usize = 2;

    /// Its place in a table with a row for each.
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// The reply at the front of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(&'a [u8]),
    Bulk(&'a [u8]),
    Null,
    Array(usize),
}

/// The text of the error that a reply is; none: it is no error.
pub(super) fn error(reply: &[u8]) -> Option<&[u8]> {
    match head(reply).0 {
        Head::Error(text) => Some(text),
        _ => None,
    }
}

/// The elements of an array; none: it is no array.
pub(super) fn elements(reply: &[u8]) -> Option<(usize, &[u8])> {
    match head(reply) {
        (Head::Array(count), rest) => Some((count, rest)),
        _ => None,
    }
}

/// The bytes of a bulk string; none for nil and for all else.
pub(super) fn bulk(reply: &[u8]) -> Option<&[u8]> {
    match head(reply).0 {
        Head::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

/// An integer; none for all else.
pub(super) fn integer(reply: &[u8]) -> Option<i64> {
    match head(reply).0 {
        Head::Integer(digits) => wire::resp::parse_i64_strict(digits),
        _ => None,
    }
}

/// Behind the first reply, its elements included.
pub(super) fn after(reply: &[u8]) -> &[u8] {
    let (head, mut rest) = head(reply);
    if let Head::Array(count) = head {
        for _ in 0..count {
            rest = after(rest);
        }
    }
    rest
}

/// Appends the reply at the front as `{"result":...}` or `{"error":...}`. Returns what is behind it.
pub(super) fn write_result<'a>(reply: &'a [u8], encoding: Encoding, out: &mut Vec<u8>) -> &'a [u8] {
    let rest = if let (Head::Error(text), rest) = head(reply) {
        out.extend_from_slice(b"{\"error\":");
        write_text(text, out);
        rest
    } else {
        out.extend_from_slice(b"{\"result\":");
        write_value(reply, encoding, out)
    };
    out.push(b'}');
    rest
}

/// Appends `{"error":text}`.
pub(super) fn write_error(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"error\":");
    write_text(text.as_bytes(), out);
    out.push(b'}');
}

fn write_value<'a>(reply: &'a [u8], encoding: Encoding, out: &mut Vec<u8>) -> &'a [u8] {
    let (head, mut rest) = head(reply);
    match head {
        // An error inside of an array is a text, as EXEC gives it.
        Head::Simple(text @ b"OK") | Head::Error(text) => write_text(text, out),
        Head::Simple(text) | Head::Bulk(text) => match encoding {
            Encoding::Text => write_text(text, out),
            Encoding::Base64 => write_base64(text, out),
        },
        Head::Integer(digits) => out.extend_from_slice(digits),
        Head::Null => out.extend_from_slice(b"null"),
        Head::Array(count) => {
            out.push(b'[');
            for index in 0..count {
                if index > 0 {
                    out.push(b',');
                }
                rest = write_value(rest, encoding, out);
            }
            out.push(b']');
        }
    }
    rest
}

/// Appends a JSON string.
pub(super) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    if !text.iter().copied().any(needs_escape) {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
        return;
    }
    let text = String::from_utf8_lossy(text);
    serde_json::to_writer(&mut *out, &*text).expect("a string into a vector always fits");
}

/// False: the byte stands for itself in a JSON string.
fn needs_escape(byte: u8) -> bool {
    !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\')
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    // Four for each three begun.
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).expect("there is room for all");
    out.truncate(start + written);
    out.push(b'"');
}

/// Reads one reply of RESP2, which this server has just written: what it says and what follows.
// Source: Redis protocol specification, "RESP protocol description"
fn head(reply: &[u8]) -> (Head<'_>, &[u8]) {
    let end = memchr::memchr(b'\r', reply).expect("replies end their lines");
    let (line, rest) = (&reply[1..end], &reply[end + 2..]);
    let count = || wire::resp::parse_i64_strict(line).and_then(|count| usize::try_from(count).ok());
    match reply[0] {
        b'+' => (Head::Simple(line), rest),
        b'-' => (Head::Error(line), rest),
        b':' => (Head::Integer(line), rest),
        b'$' => match count() {
            Some(bytes) => (Head::Bulk(&rest[..bytes]), &rest[bytes + 2..]),
            None => (Head::Null, rest),
        },
        b'*' => match count() {
            Some(count) => (Head::Array(count), rest),
            None => (Head::Null, rest),
        },
        other => panic!("no reply of RESP2 begins with {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reply: &[u8], encoding: Encoding, expected: &str) {
        let mut out = Vec::new();
        let rest = write_result(reply, encoding, &mut out);
        assert_eq!(rest, b"", "all of it is read");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(after(reply), b"");
    }

    #[test]
    fn replies_become_json() {
        check(b"+OK\r\n", Encoding::Text, r#"{"result":"OK"}"#);
        check(b":-7\r\n", Encoding::Text, r#"{"result":-7}"#);
        check(b"$-1\r\n", Encoding::Text, r#"{"result":null}"#);
        check(b"*-1\r\n", Encoding::Text, r#"{"result":null}"#);
        check(b"$0\r\n\r\n", Encoding::Text, r#"{"result":""}"#);
        check(b"*0\r\n", Encoding::Text, r#"{"result":[]}"#);
        check(
            b"$5\r\n\"\r\n\xff\x01\r\n",
            Encoding::Text,
            "{\"result\":\"\\\"\\r\\n\u{fffd}\\u0001\"}",
        );
        check(
            b"*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n$1\r\nb\r\n",
            Encoding::Text,
            r#"{"result":["a",[1,null],"b"]}"#,
        );
        check(b"-ERR no \"\r\n", Encoding::Text, r#"{"error":"ERR no \""}"#);
    }

    #[test]
    fn base64_is_for_all_strings_but_ok() {
        check(b"+OK\r\n", Encoding::Base64, r#"{"result":"OK"}"#);
        check(b"$2\r\nOK\r\n", Encoding::Base64, r#"{"result":"T0s="}"#);
        check(b"+PONG\r\n", Encoding::Base64, r#"{"result":"UE9ORw=="}"#);
        check(b"*2\r\n$2\r\n\xff\n\r\n:3\r\n", Encoding::Base64, r#"{"result":["/wo=",3]}"#);
        check(b"$0\r\n\r\n", Encoding::Base64, r#"{"result":""}"#);
        check(b"-ERR x\r\n", Encoding::Base64, r#"{"error":"ERR x"}"#);
    }

    #[test]
    fn parts_of_replies_are_found() {
        assert_eq!(error(b"-ERR x\r\n"), Some(&b"ERR x"[..]));
        assert_eq!(error(b"+OK\r\n"), None);
        let (count, rest) = elements(b"*2\r\n$1\r\na\r\n:5\r\n").unwrap();
        assert_eq!((count, bulk(rest), integer(after(rest))), (2, Some(&b"a"[..]), Some(5)));
        assert_eq!(elements(b"*-1\r\n"), None);
        assert_eq!(bulk(b"$-1\r\n"), None);
    }
}
