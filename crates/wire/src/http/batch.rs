//! The complete requests of one read, and the contents of one request.

use std::ops::Range;
use std::slice;

use super::fields::Summary;

/// Header lines that an emptied batch keeps allocated (64 KiB).
const FIELDS_KEPT_MAX: usize = 4 << 10;
/// Bytes of unchunked bodies that an emptied batch keeps allocated.
const GATHERED_BYTES_KEPT_MAX: usize = 64 << 10;

/// The methods that servers distinguish; the text is in [`Request::method_text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Patch,
    Connect,
    Trace,
    /// A token that is not defined in RFC 9110.
    Other,
}

impl Method {
    // Source: RFC 9110 9.1 (methods are case-sensitive), 9.3; RFC 5789 (PATCH)
    pub(super) fn of(text: &str) -> Self {
        match text {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "PATCH" => Self::Patch,
            "CONNECT" => Self::Connect,
            "TRACE" => Self::Trace,
            _ => Self::Other,
        }
    }
}

/// A position in a buffer of at most `u32::MAX` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    #[inline]
    pub(super) fn new(start: usize, len: usize) -> Self {
        debug_assert!(u32::try_from(start + len).is_ok());
        #[expect(clippy::cast_possible_truncation, reason = "buffers end before u32::MAX")]
        Self { start: start as u32, len: len as u32 }
    }

    /// The position of `part`, a slice of `whole`, in a buffer where `whole` starts at `start`.
    #[inline]
    pub(super) fn within(whole: &[u8], part: &[u8], start: usize) -> Self {
        let offset = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        debug_assert!(offset + part.len() <= whole.len());
        Self::new(start + offset, part.len())
    }

    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &bytes[start..start + self.len as usize]
    }
}

/// The positions of one header line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: Span,
    pub(super) value: Span,
}

/// The positions of a request's first line.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestLine {
    pub(super) method: Method,
    pub(super) method_text: Span,
    pub(super) target: Span,
    pub(super) minor_version: u8,
}

/// The positions of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) line: RequestLine,
    pub(super) summary: Summary,
    pub(super) field_first: u32,
    pub(super) trailer_first: u32,
    pub(super) field_end: u32,
    pub(super) body: Span,
    /// Whether the body is in `gathered`, not in the input.
    pub(super) is_gathered: bool,
    /// Position in the input after this request.
    pub(super) end: u32,
}

/// All complete requests of one read: flat, reused, without allocation once warm.
///
/// Request text stays in the input, which the caller therefore passes to [`get`](Self::get).
/// Chunked bodies are the exception: the batch reassembles them.
#[derive(Debug, Default)]
pub struct RequestBatch {
    pub(super) fields: Vec<Field>,
    pub(super) gathered: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    pub(super) error: Option<super::RequestError>,
}

impl RequestBatch {
    /// An empty batch without allocated memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the requests and the error; keeps memory for the next batch, up to a limit.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.fields.shrink_to(FIELDS_KEPT_MAX);
        self.gathered.clear();
        self.gathered.shrink_to(GATHERED_BYTES_KEPT_MAX);
        self.entries.clear();
        self.error = None;
    }

    /// Number of complete requests.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no complete request. There may still be an [`error`](Self::error).
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The request at `index`; `input` is the buffer that the batch was decoded from.
    ///
    /// Panics if `index` is not below [`len`](Self::len).
    #[inline]
    pub fn get<'a>(&'a self, index: usize, input: &'a [u8]) -> Request<'a> {
        Request { input, batch: self, entry: &self.entries[index] }
    }

    /// Bytes of the input that the requests up to and including `index` take: the bytes to consume
    /// when later requests are deferred (see
    /// [`RequestDecoder::restart`](super::RequestDecoder::restart)).
    ///
    /// Panics if `index` is not below [`len`](Self::len).
    pub fn end(&self, index: usize) -> usize {
        self.entries[index].end as usize
    }

    /// Why the input after the last complete request can never become a request: answer the
    /// requests, then answer with this error's status and close.
    pub fn error(&self) -> Option<super::RequestError> {
        self.error
    }
}

/// One request, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    input: &'a [u8],
    batch: &'a RequestBatch,
    entry: &'a Entry,
}

impl<'a> Request<'a> {
    #[inline]
    pub fn method(&self) -> Method {
        self.entry.line.method
    }

    /// The method as it was sent: a token.
    pub fn method_text(&self) -> &'a [u8] {
        self.entry.line.method_text.of(self.input)
    }

    /// The request target as it was sent: visible ASCII without `#`.
    #[inline]
    pub fn target(&self) -> &'a [u8] {
        self.entry.line.target.of(self.input)
    }

    /// The path of the target, still percent-encoded: it starts with `/`, or is `*` for the server
    /// as a whole; for CONNECT it is the authority.
    // Source: RFC 9112 3.2 (request target), 3.2.2 (absolute-form)
    #[inline]
    pub fn path(&self) -> &'a [u8] {
        split_target(self.target()).0
    }

    /// The part of the target after `?`, still percent-encoded.
    pub fn query(&self) -> Option<&'a [u8]> {
        split_target(self.target()).1
    }

    /// The requested host: from the target if it is absolute, otherwise from the Host line.
    // Source: RFC 9112 3.2.2 (absolute-form), 3.3 (reconstructing the target URI)
    pub fn host(&self) -> Option<&'a [u8]> {
        let target = self.target();
        match authority(target) {
            Some(authority) => Some(authority),
            None => self.header("host"),
        }
    }

    /// 0 or 1, for HTTP/1.0 and HTTP/1.1.
    #[inline]
    pub fn minor_version(&self) -> u8 {
        self.entry.line.minor_version
    }

    /// Whether the peer keeps the connection open after this request.
    // Source: RFC 9112 9.3 (persistence)
    #[inline]
    pub fn keeps_alive(&self) -> bool {
        keeps_alive(self.entry.line.minor_version, &self.entry.summary)
    }

    /// Value of the first header line of this name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().get(name)
    }

    /// All header lines in order.
    pub fn headers(&self) -> Fields<'a> {
        self.fields(self.entry.field_first..self.entry.trailer_first)
    }

    /// Header lines after a chunked body.
    pub fn trailers(&self) -> Fields<'a> {
        self.fields(self.entry.trailer_first..self.entry.field_end)
    }

    /// The body, reassembled if it was chunked; empty if there is none.
    pub fn body(&self) -> &'a [u8] {
        let bytes = if self.entry.is_gathered { &self.batch.gathered } else { self.input };
        self.entry.body.of(bytes)
    }

    /// Bytes that the request takes in the input, up to and including its end.
    pub fn end(&self) -> usize {
        self.entry.end as usize
    }

    fn fields(&self, range: Range<u32>) -> Fields<'a> {
        let fields = &self.batch.fields[range.start as usize..range.end as usize];
        Fields { bytes: self.input, fields: fields.iter() }
    }
}

/// Whether a connection stays open after a message.
// Source: RFC 9112 9.3 (persistence)
pub(super) fn keeps_alive(minor_version: u8, summary: &Summary) -> bool {
    !summary.says_close && (minor_version >= 1 || summary.says_keep_alive)
}

/// Path and query.
// Source: RFC 9112 3.2; RFC 3986 3.3, 3.4
#[inline]
fn split_target(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let from_path = if target.first() == Some(&b'/') { target } else { after_authority(target) };
    match memchr::memchr(b'?', from_path) {
        Some(0) => (b"/", Some(&from_path[1..])),
        Some(at) => (&from_path[..at], Some(&from_path[at + 1..])),
        None if from_path.is_empty() => (b"/", None),
        None => (from_path, None),
    }
}

fn after_authority(target: &[u8]) -> &[u8] {
    match authority(target) {
        Some(authority) => {
            let start = memchr::memmem::find(target, b"://").map_or(0, |at| at + 3);
            &target[start + authority.len()..]
        }
        None => target,
    }
}

/// The authority of a target in absolute-form.
pub(super) fn authority(target: &[u8]) -> Option<&[u8]> {
    if target.first() == Some(&b'/') {
        return None;
    }
    let start = memchr::memmem::find(target, b"://")? + 3;
    let rest = &target[start..];
    Some(&rest[..memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len())])
}

/// Iterator over header lines: name and value.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) fields: slice::Iter<'a, Field>,
}

impl<'a> Fields<'a> {
    /// Value of the first line of this name, ignoring case.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.get_all(name).next()
    }

    /// Values of all lines of this name, in order.
    #[inline]
    pub fn get_all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.fields
            .filter(move |field| field.name.of(bytes).eq_ignore_ascii_case(name.as_bytes()))
            .map(move |field| field.value.of(bytes))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = self.fields.next()?;
        // Names are tokens, which are ASCII.
        let name = std::str::from_utf8(field.name.of(self.bytes)).unwrap_or_default();
        Some((name, field.value.of(self.bytes)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.fields.size_hint()
    }
}

impl ExactSizeIterator for Fields<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(target: &str, path: &str, query: Option<&str>, host: Option<&str>) {
        let found = split_target(target.as_bytes());
        assert_eq!(found, (path.as_bytes(), query.map(str::as_bytes)), "{target}");
        assert_eq!(authority(target.as_bytes()), host.map(str::as_bytes), "{target}");
    }

    #[test]
    fn targets_have_a_path_and_a_query() {
        check("/", "/", None, None);
        check("/a/b?c=d?e", "/a/b", Some("c=d?e"), None);
        check("/?", "/", Some(""), None);
        check("//a://b", "//a://b", None, None);
        check("*", "*", None, None);
        check("http://a:80/b?c", "/b", Some("c"), Some("a:80"));
        check("http://a", "/", None, Some("a"));
        check("http://a?b/c", "/", Some("b/c"), Some("a"));
        check("a:443", "a:443", None, None);
    }

    #[test]
    fn a_cleared_batch_frees_the_memory_of_a_giant_request() {
        let mut batch = RequestBatch::new();
        batch.gathered.resize(4 * GATHERED_BYTES_KEPT_MAX, 0);
        batch.clear();
        assert!(batch.is_empty());
        assert!(batch.gathered.capacity() < 2 * GATHERED_BYTES_KEPT_MAX);
    }
}
