//! The encoder of replies.

use super::json::JsonReply;
use super::number::double_text;
use super::room::{ReplyRoom, SMALL_REPLY_BYTES};

/// The version of RESP on a connection: 2 until HELLO 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Simple strings, errors, integers, bulk strings and arrays.
    #[default]
    Resp2,
    /// Additionally null, booleans, doubles, big numbers, verbatim strings, maps, sets and pushes.
    Resp3,
}

/// Appends replies to a buffer, in one of three forms: RESP2, RESP3 and JSON. For RESP2, types of RESP3 are
/// replaced as Redis does; JSON has the shapes of RESP2.
///
/// `array`, `map`, `set` and `push` write only the header: the elements follow by as many further calls.
// Source: RESP3 specification (antirez/RESP3 spec.md); Redis 7.0 networking.c addReply* behaviour for RESP2
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    /// Where replies are appended.
    pub out: &'a mut Vec<u8>,
    /// The version whose shapes the reply has.
    pub protocol: Protocol,
    json: Option<&'a mut JsonReply>,
    /// Where the reply begins in `out`.
    start: usize,
    /// Permission to grow; `None`: without a limit.
    room: Option<&'a ReplyRoom>,
}

/// The form in which a writer writes: see [`ReplyWriter::take_form`].
#[derive(Debug)]
pub struct ReplyForm<'a> {
    protocol: Protocol,
    json: Option<&'a mut JsonReply>,
}

/// A place in a reply to which [`ReplyWriter::rewind`] can return.
#[derive(Debug, Clone, Copy)]
pub struct ReplyMark {
    bytes: usize,
    /// Open arrays of JSON, and what the innermost one lacks.
    json: (usize, usize),
}

/// Elements of an array that are counted while they are written.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Counted {
    start: usize,
}

impl<'a> ReplyWriter<'a> {
    /// A writer of RESP that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        let start = out.len();
        Self { out, protocol, json: None, start, room: None }
    }

    /// A writer of JSON that appends to `out`. Call [`JsonReply::begin`] before each reply.
    pub fn json(out: &'a mut Vec<u8>, json: &'a mut JsonReply) -> Self {
        let start = out.len();
        Self { out, protocol: Protocol::Resp2, json: Some(json), start, room: None }
    }

    /// Makes the reply ask for memory when it grows beyond [`SMALL_REPLY_BYTES`]. An element for
    /// which there is none is left out: see [`ReplyWriter::has_room`].
    #[inline]
    #[must_use]
    pub fn within(self, room: Option<&'a ReplyRoom>) -> Self {
        ReplyWriter { room, ..self }
    }

    /// What [`ReplyWriter::within`] set.
    pub fn room(&self) -> Option<&'a ReplyRoom> {
        self.room
    }

    /// Whether the reply may be this large, and no element was left out since the last rewind.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.has_room_for(0)
    }

    /// Why the reply has no room.
    pub fn refusal(&self) -> Option<String> {
        self.room.and_then(ReplyRoom::refusal)
    }

    /// Whether the reply may have `more` bytes.
    #[inline]
    pub fn has_room_for(&self, more: usize) -> bool {
        self.room.is_none_or(|room| room.admits(self.bytes() + more))
    }

    /// Whether an element may be written. A small one always: callers ask between small elements.
    #[inline]
    fn admits(&self, bytes: &[u8]) -> bool {
        bytes.len() <= SMALL_REPLY_BYTES || self.admits_large(bytes)
    }

    #[cold]
    fn admits_large(&self, bytes: &[u8]) -> bool {
        let more = self.json.as_ref().map_or(bytes.len(), |json| json.string_bytes_max(bytes));
        self.has_room_for(more)
    }

    /// The same writer for a shorter time.
    #[inline]
    pub fn reborrow(&mut self) -> ReplyWriter<'_> {
        let json = self.json.as_deref_mut();
        ReplyWriter {
            out: &mut *self.out,
            protocol: self.protocol,
            json,
            start: self.start,
            room: self.room,
        }
    }

    /// Makes this a writer of RESP until [`ReplyWriter::restore_form`]. Returns the form to restore.
    pub fn take_form(&mut self, protocol: Protocol) -> ReplyForm<'a> {
        let form = ReplyForm { protocol: self.protocol, json: self.json.take() };
        self.protocol = protocol;
        form
    }

    pub fn restore_form(&mut self, form: ReplyForm<'a>) {
        self.protocol = form.protocol;
        self.json = form.json;
    }

    /// Bytes of the reply so far.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.out.len() - self.start
    }

    /// The current end of the reply.
    #[inline]
    pub fn mark(&mut self) -> ReplyMark {
        let json = match &mut self.json {
            None => (0, 0),
            Some(json) => {
                json.close_complete(self.out);
                json.position()
            }
        };
        ReplyMark { bytes: self.out.len(), json }
    }

    /// Ends the reply: JSON closes its arrays.
    #[inline]
    pub fn finish(&mut self) {
        if let Some(json) = &mut self.json {
            json.close_complete(self.out);
        }
    }

    /// The bytes written since the mark.
    #[inline]
    pub fn since(&self, mark: ReplyMark) -> &[u8] {
        &self.out[mark.bytes..]
    }

    /// Whether the reply written since the mark is an error.
    pub fn is_error_since(&self, mark: ReplyMark) -> bool {
        match &self.json {
            Some(json) => json.is_error(),
            None => self.since(mark).first() == Some(&b'-'),
        }
    }

    /// Removes what was written since the mark.
    #[inline]
    pub fn rewind(&mut self, mark: ReplyMark) {
        self.out.truncate(mark.bytes);
        if let Some(json) = &mut self.json {
            json.rewind(mark.json);
        }
        if let Some(room) = self.room {
            room.forget_refusal();
        }
    }

    /// Begins the elements of an array whose number is not known yet.
    pub fn begin_counted(&mut self) -> Counted {
        if let Some(json) = &mut self.json {
            json.begin_counted();
        }
        Counted { start: self.out.len() }
    }

    /// Ends the elements: `head` writes what precedes the array's header. O(bytes of the elements).
    pub fn end_counted(&mut self, counted: Counted, count: usize, head: impl FnOnce(&mut Self)) {
        self.end_counted_as(counted, |reply| {
            head(reply);
            reply.array(count);
        });
    }

    /// Ends the elements of an aggregate whose header `head` writes.
    pub fn end_counted_as(&mut self, counted: Counted, head: impl FnOnce(&mut Self)) {
        if let Some(json) = &mut self.json {
            json.end_counted(self.out);
        }
        let end = self.out.len();
        head(self);
        let header_bytes = self.out.len() - end;
        self.out[counted.start..].rotate_right(header_bytes);
        if let Some(json) = &mut self.json {
            json.complete_array();
        }
    }

    /// `+OK`
    #[inline]
    pub fn ok(&mut self) {
        if let Some(json) = &mut self.json {
            return json.status(b"OK", self.out);
        }
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// `+text`; CR and LF in the text become spaces.
    pub fn simple(&mut self, text: &str) {
        if !self.admits(text.as_bytes()) {
            return;
        }
        if let Some(json) = &mut self.json {
            return json.status(text.as_bytes(), self.out);
        }
        self.text_line(b'+', text.as_bytes());
    }

    /// `-text`, where the text starts with the error's code (`ERR ...`); CR and LF become spaces,
    /// so that input quoted in an error cannot end the reply and forge another.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// [`Self::error`] of a text that quotes bytes.
    pub fn error_bytes(&mut self, text: &[u8]) {
        if !self.admits(text) {
            return;
        }
        if let Some(json) = &mut self.json {
            return json.error(text, self.out);
        }
        self.text_line(b'-', text);
    }

    /// `:value`
    #[inline]
    pub fn integer(&mut self, value: i64) {
        if let Some(json) = &mut self.json {
            return json.literal(itoa::Buffer::new().format(value).as_bytes(), self.out);
        }
        self.number_line(b':', value);
    }

    /// A length, count or other number that is not negative, at most `i64::MAX`.
    #[inline]
    pub fn count(&mut self, count: impl TryInto<i64>) {
        self.integer(count.try_into().unwrap_or(i64::MAX));
    }

    /// `$length`, then the bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if !self.admits(bytes) {
            return;
        }
        if let Some(json) = &mut self.json {
            return json.string(bytes, self.out);
        }
        self.blob(b'$', b"", bytes);
    }

    /// The value's text as a bulk string.
    pub fn bulk_integer(&mut self, value: i64) {
        let mut buffer = itoa::Buffer::new();
        self.bulk(buffer.format(value).as_bytes());
    }

    /// The null value: `$-1`, in RESP3 `_`.
    #[inline]
    pub fn null(&mut self) {
        self.null_of(b"$-1\r\n");
    }

    /// The null array: `*-1`, in RESP3 `_`.
    #[inline]
    pub fn null_array(&mut self) {
        self.null_of(b"*-1\r\n");
    }

    #[inline]
    fn null_of(&mut self, resp2: &[u8]) {
        if let Some(json) = &mut self.json {
            return json.literal(b"null", self.out);
        }
        self.by_protocol(resp2, b"_\r\n");
    }

    /// Header of an array of `count` elements.
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count, count);
    }

    /// Header of a map of `pairs` keys, each followed by its value; in RESP2 a flat array of both.
    pub fn map(&mut self, pairs: usize) {
        self.header(b'%', pairs, pairs * 2);
    }

    /// Header of a set of `count` members; in RESP2 an array.
    pub fn set(&mut self, count: usize) {
        self.header(b'~', count, count);
    }

    /// Header of an out-of-band message of `count` elements; in RESP2 an array.
    pub fn push(&mut self, count: usize) {
        self.header(b'>', count, count);
    }

    /// `kind` and `count` are those of RESP3; `elements`: how many values follow.
    #[inline]
    fn header(&mut self, kind: u8, count: usize, elements: usize) {
        if let Some(json) = &mut self.json {
            return json.array(elements, self.out);
        }
        match self.protocol {
            Protocol::Resp2 => self.length_line(b'*', elements),
            Protocol::Resp3 => self.length_line(kind, count),
        }
    }

    /// `|1`, pairs of RESP3 that precede a reply.
    pub fn attribute(&mut self, pairs: usize) {
        debug_assert_eq!(self.protocol, Protocol::Resp3);
        self.length_line(b'|', pairs);
    }

    /// `,1.5`; in RESP2 the text as a bulk string. See [`double_text`] for the format.
    pub fn double(&mut self, value: f64) {
        /// Sign, 17 digits, point, `e+308`, and zeros of the short notations.
        const TEXT_BYTES_MAX: usize = 32;

        // The text's length precedes the text, so the text is written, removed and framed.
        let start = self.out.len();
        double_text(value, self.out);
        let mut text = [0; TEXT_BYTES_MAX];
        let text = &mut text[..self.out.len() - start];
        text.copy_from_slice(&self.out[start..]);
        self.out.truncate(start);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => self.line(b',', text),
        }
    }

    /// `,13.36138933897018433`; in RESP2 the text as a bulk string: all digits up to the 17th decimal
    /// place, without trailing zeros. For a finite number.
    // Source: Redis 7.2 `networking.c`, `addReplyHumanLongDouble`
    pub fn exact_double(&mut self, value: f64) {
        let text = format!("{value:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        self.number_text(if text == "-0" { b"0" } else { text.as_bytes() });
    }

    /// `,1.5`, the text of a number; in RESP2 a bulk string.
    pub fn number_text(&mut self, text: &[u8]) {
        if !self.admits(text) {
            return;
        }
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => self.text_line(b',', text),
        }
    }

    /// `#t` or `#f`; in RESP2 `:1` or `:0`.
    pub fn boolean(&mut self, value: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(i64::from(value)),
            Protocol::Resp3 if value => self.out.extend_from_slice(b"#t\r\n"),
            Protocol::Resp3 => self.out.extend_from_slice(b"#f\r\n"),
        }
    }

    /// Text with a format of three letters (`txt`, `mkd`); in RESP2 a bulk string of the text alone.
    ///
    /// Panics if the format is not three bytes long.
    pub fn verbatim(&mut self, format: &str, text: &[u8]) {
        if !self.admits(text) {
            return;
        }
        let &[a, b, c] = format.as_bytes() else { panic!("a format has three letters") };
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => self.blob(b'=', &[a, b, c, b':'], text),
        }
    }

    /// `(digits`, an integer of any size; in RESP2 a bulk string.
    pub fn big_number(&mut self, digits: &str) {
        if !self.admits(digits.as_bytes()) {
            return;
        }
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => self.text_line(b'(', digits.as_bytes()),
        }
    }

    fn by_protocol(&mut self, resp2: &[u8], resp3: &[u8]) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => resp2,
            Protocol::Resp3 => resp3,
        });
    }

    /// Type byte, text, CR LF. Line ends in the text would end the reply, so they become spaces.
    fn text_line(&mut self, kind: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.push(kind);
        let start = self.out.len();
        self.out.extend_from_slice(text);
        if memchr::memchr2(b'\r', b'\n', text).is_some() {
            for byte in &mut self.out[start..] {
                if matches!(byte, b'\r' | b'\n') {
                    *byte = b' ';
                }
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn blob(&mut self, kind: u8, prefix: &[u8], bytes: &[u8]) {
        /// Type byte, 20 digits, two line ends.
        const FRAME_BYTES: usize = 25;

        self.out.reserve(prefix.len() + bytes.len() + FRAME_BYTES);
        self.length_line(kind, prefix.len() + bytes.len());
        self.out.extend_from_slice(prefix);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn length_line(&mut self, kind: u8, length: usize) {
        // No memory contains more than i64::MAX bytes or elements.
        self.number_line(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    #[inline]
    fn number_line(&mut self, kind: u8, value: i64) {
        if let Ok(digit @ 0..=9) = u8::try_from(value) {
            self.out.extend_from_slice(&[kind, b'0' + digit, b'\r', b'\n']);
            return;
        }
        if let Ok(number @ 10..=99) = u8::try_from(value) {
            let (tens, ones) = (b'0' + number / 10, b'0' + number % 10);
            self.out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
            return;
        }
        let mut buffer = itoa::Buffer::new();
        self.line(kind, buffer.format(value).as_bytes());
    }

    /// Type byte, a number's text and CR LF. Appended one by one: a line that is put together first
    /// is read back before its parts have left the processor's store buffer, and waits for them.
    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.reserve(text.len() + 3);
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method has one lifetime, `Fn` all"
)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl Fn(&mut ReplyWriter<'_>), resp2: &str, resp3: &str) {
        for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = b"before".to_vec();
            write(&mut ReplyWriter::new(&mut out, protocol));
            assert_eq!(
                out.escape_ascii().to_string(),
                format!("before{}", expected.escape_default())
            );
        }
    }

    #[test]
    fn bulk_strings_of_any_length() {
        for len in 0..120 {
            let bytes: Vec<u8> = (1..=len).collect();
            let mut out = b"before".to_vec();
            ReplyWriter::new(&mut out, Protocol::Resp2).bulk(&bytes);
            let expected = [format!("before${len}\r\n").as_bytes(), &bytes, b"\r\n"].concat();
            assert_eq!(out, expected, "{len}");
        }
    }

    #[track_caller]
    fn check_both(write: impl Fn(&mut ReplyWriter<'_>), expected: &str) {
        check(write, expected, expected);
    }

    #[test]
    fn shapes_of_both_versions() {
        check_both(|w| w.ok(), "+OK\r\n");
        check_both(|w| w.simple("QUEUED"), "+QUEUED\r\n");
        check_both(|w| w.error("ERR no"), "-ERR no\r\n");
        check_both(|w| w.integer(0), ":0\r\n");
        check_both(|w| w.integer(10), ":10\r\n");
        check_both(|w| w.integer(-1), ":-1\r\n");
        check_both(|w| w.integer(i64::MIN), ":-9223372036854775808\r\n");
        check_both(|w| w.bulk(b""), "$0\r\n\r\n");
        check_both(|w| w.bulk(b"a\r\nb56789"), "$9\r\na\r\nb56789\r\n");
        check_both(|w| w.bulk(b"0123456789"), "$10\r\n0123456789\r\n");
        check_both(|w| w.bulk_integer(-12), "$3\r\n-12\r\n");
        check_both(|w| w.array(0), "*0\r\n");
        check_both(|w| w.array(12), "*12\r\n");
    }

    #[test]
    fn shapes_that_resp2_does_not_know() {
        check(|w| w.null(), "$-1\r\n", "_\r\n");
        check(|w| w.null_array(), "*-1\r\n", "_\r\n");
        check(|w| w.map(7), "*14\r\n", "%7\r\n");
        check(|w| w.set(2), "*2\r\n", "~2\r\n");
        check(|w| w.push(3), "*3\r\n", ">3\r\n");
        check(|w| w.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(
            |w| w.double(-1.797_693_134_862_315_7e308),
            "$24\r\n-1.7976931348623157e+308\r\n",
            ",-1.7976931348623157e+308\r\n",
        );
        check(|w| w.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
        check(|w| w.boolean(true), ":1\r\n", "#t\r\n");
        check(|w| w.boolean(false), ":0\r\n", "#f\r\n");
        check(|w| w.verbatim("txt", b"Some"), "$4\r\nSome\r\n", "=8\r\ntxt:Some\r\n");
        check(|w| w.big_number("-123"), "$4\r\n-123\r\n", "(-123\r\n");
    }

    #[test]
    fn a_line_cannot_be_ended_by_its_text() {
        check_both(|w| w.error("ERR 'a\r\n+OK\n'"), "-ERR 'a  +OK '\r\n");
        check_both(|w| w.simple("a\nb"), "+a b\r\n");
    }
}
