//! Encoder of answers.

/// Permits a waiting peer to send its body.
// Source: RFC 9110 15.2.1 (100 Continue)
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends one answer. Start it, add header lines, and end it with the method for its kind of body;
/// an answer dropped before that is incomplete.
#[derive(Debug)]
pub struct ResponseWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> ResponseWriter<'a> {
    /// Appends the status line.
    // Source: RFC 9112 4 (status line); 2.6 of RFC 9110 (an HTTP/1.0 peer is answered in 1.1 as well)
    pub fn new(out: &'a mut Vec<u8>, status: u16) -> Self {
        if status == 200 {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
            out.push(b' ');
            out.extend_from_slice(reason(status).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Self { out }
    }

    /// Appends a header line. Control characters in the value become spaces, so that no value,
    /// whatever its origin, can end its line.
    // Source: RFC 9110 5.5 (field values: CR, LF and NUL are invalid and dangerous)
    #[must_use]
    pub fn header(self, name: &str, value: &[u8]) -> Self {
        debug_assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'));
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        put_value(self.out, value);
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Appends complete header lines: constants, which are copied without a check of their values.
    #[must_use]
    pub fn lines(self, lines: &'static str) -> Self {
        debug_assert!(lines.ends_with("\r\n"));
        self.out.extend_from_slice(lines.as_bytes());
        self
    }

    /// Appends a header line with a number.
    #[must_use]
    pub fn header_number(self, name: &str, value: u64) -> Self {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Ends the answer with a body of known length.
    pub fn body(self, body: &[u8]) {
        let out = self.length(body.len() as u64);
        out.extend_from_slice(body);
    }

    /// Ends the head of an answer whose body has `bytes` and is sent by other means, or is omitted
    /// because the request was HEAD. Returns the buffer.
    // Source: RFC 9112 6.2 (Content-Length), RFC 9110 9.3.2 (HEAD)
    pub fn length(self, bytes: u64) -> &'a mut Vec<u8> {
        let Self { out } = self.header_number("Content-Length", bytes);
        out.extend_from_slice(b"\r\n");
        out
    }

    /// Ends the head of an answer whose body is written by [`write_chunk`] and
    /// [`write_last_chunk`]. Not for HTTP/1.0, which has no chunks. Returns the buffer.
    // Source: RFC 9112 6.1 (Transfer-Encoding)
    pub fn chunked(self) -> &'a mut Vec<u8> {
        self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        self.out
    }

    /// Ends an answer that has no body by its status (1xx, 204, 304), or whose body ends with the
    /// connection. Returns the buffer.
    // Source: RFC 9112 6.3 (message body length)
    pub fn end(self) -> &'a mut Vec<u8> {
        self.out.extend_from_slice(b"\r\n");
        self.out
    }
}

/// Appends one chunk; does nothing without bytes, because an empty chunk would be the last.
// Source: RFC 9112 7.1 (chunked transfer coding)
pub fn write_chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    put_hexadecimal(out, bytes.len());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Ends a chunked body, with trailers.
// Source: RFC 9112 7.1.2 (chunked trailer section)
pub fn write_last_chunk(out: &mut Vec<u8>, trailers: &[(&str, &[u8])]) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        put_value(out, value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a value with spaces for control characters.
pub(super) fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    let is_control = |byte: u8| (byte < b' ' && byte != b'\t') || byte == 0x7f;
    // Without an early exit the compiler checks many bytes at a time.
    if value.iter().fold(false, |found, &byte| found | is_control(byte)) {
        out.extend(value.iter().map(|&byte| if is_control(byte) { b' ' } else { byte }));
    } else {
        out.extend_from_slice(value);
    }
}

fn put_hexadecimal(out: &mut Vec<u8>, value: usize) {
    let digits = (usize::BITS - value.leading_zeros()).div_ceil(4).max(1);
    for position in (0..digits).rev() {
        let digit = (value >> (4 * position)) & 0xf;
        out.push(b"0123456789abcdef"[digit]);
    }
}

/// The reason phrase of a status; empty for a status without one.
// Source: RFC 9110 15; RFC 6585 (428, 429, 431)
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn answers_with_every_kind_of_body() {
        check(|out| ResponseWriter::new(out, 200).body(b"hi"), {
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        });
        check(
            |out| {
                ResponseWriter::new(out, 404).header("A", b"b").header_number("N", 7).body(b"");
            },
            "HTTP/1.1 404 Not Found\r\nA: b\r\nN: 7\r\nContent-Length: 0\r\n\r\n",
        );
        check(
            |out| {
                ResponseWriter::new(out, 299).length(1 << 40);
            },
            "HTTP/1.1 299 \r\nContent-Length: 1099511627776\r\n\r\n",
        );
        check(
            |out| {
                let out = ResponseWriter::new(out, 200).chunked();
                write_chunk(out, b"0123456789abcdef");
                write_chunk(out, b"");
                write_last_chunk(out, &[("Sum", b"16")]);
            },
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n0\r\n\
             Sum: 16\r\n\r\n",
        );
        check(
            |out| {
                ResponseWriter::new(out, 304).end();
            },
            "HTTP/1.1 304 Not Modified\r\n\r\n",
        );
    }

    #[test]
    fn no_value_ends_its_line() {
        check(|out| ResponseWriter::new(out, 301).header("L", b"/a\r\nB: c\0\td").body(b""), {
            "HTTP/1.1 301 Moved Permanently\r\nL: /a  B: c \td\r\nContent-Length: 0\r\n\r\n"
        });
    }

    #[test]
    fn lengths_of_chunks() {
        for (value, expected) in [(1, "1"), (15, "f"), (16, "10"), (0x1_0000, "10000")] {
            check(|out| put_hexadecimal(out, value), expected);
        }
    }
}
