//! The complete requests of one read, and the arguments of one request.

use std::fmt;
use std::ops::Range;
use std::slice;

use super::limits::ProtocolError;

/// Spans that an emptied batch keeps allocated (512 KiB); one giant request must not hold memory
/// forever.
const SPANS_KEPT_MAX: usize = 64 << 10;
/// Bytes of inline arguments that an emptied batch keeps allocated.
const INLINE_BYTES_KEPT_MAX: usize = 64 << 10;

/// The position of one argument in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// `start` and `len` are within a buffer of at most `u32::MAX` bytes.
    #[inline]
    pub(super) fn new(start: usize, len: usize) -> Self {
        debug_assert!(u32::try_from(start + len).is_ok());
        #[expect(clippy::cast_possible_truncation, reason = "buffers end before u32::MAX")]
        Self { start: start as u32, len: len as u32 }
    }

    /// The same bytes, in a buffer whose first `offset` bytes were dropped.
    pub(super) fn moved_down(self, offset: usize) -> Self {
        Self::new(self.start as usize - offset, self.len as usize)
    }

    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &bytes[start..start + self.len as usize]
    }
}

/// Which buffer a request's spans point into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Input,
    Inline,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    span_first: u32,
    span_count: u32,
    source: Source,
    /// Position in the input after this request.
    end: u32,
}

/// All complete requests of one read: flat, reused, without allocation once warm.
///
/// The arguments stay in the input, which the caller therefore passes to [`get`](Self::get). Inline
/// requests are the exception: quotes and escapes change their bytes, so the batch stores them.
#[derive(Debug, Default)]
pub struct RequestBatch {
    pub(super) spans: Vec<Span>,
    pub(super) inline_bytes: Vec<u8>,
    requests: Vec<Request>,
    pub(super) error: Option<ProtocolError>,
}

impl RequestBatch {
    /// An empty batch without allocated memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the requests and the error; keeps memory for the next batch, up to a limit.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT_MAX);
        self.inline_bytes.clear();
        self.inline_bytes.shrink_to(INLINE_BYTES_KEPT_MAX);
        self.requests.clear();
        self.error = None;
    }

    /// Number of complete requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// True if there is no complete request. There may still be an [`error`](Self::error).
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The request at `index`; `input` is the buffer that the batch was decoded from. It has at
    /// least one argument.
    ///
    /// Panics if `index` is not below [`len`](Self::len).
    #[inline]
    pub fn get<'a>(&'a self, index: usize, input: &'a [u8]) -> Args<'a> {
        let request = self.requests[index];
        let first = request.span_first as usize;
        let bytes = match request.source {
            Source::Input => input,
            Source::Inline => &self.inline_bytes,
        };
        Args { bytes, spans: &self.spans[first..first + request.span_count as usize] }
    }

    /// Bytes of the input that the requests up to and including `index` take: the bytes to consume
    /// when later requests are deferred (see
    /// [`RequestDecoder::restart`](super::RequestDecoder::restart)).
    ///
    /// Panics if `index` is not below [`len`](Self::len).
    pub fn end(&self, index: usize) -> usize {
        self.requests[index].end as usize
    }

    /// Why the input after the last complete request can never become a request: reply to the
    /// requests, then send this error and close.
    pub fn error(&self) -> Option<&ProtocolError> {
        self.error.as_ref()
    }

    /// Adds a request: the spans from `span_first` on, which refer to the input.
    #[inline]
    pub(super) fn push_request(&mut self, span_first: usize) {
        self.push(span_first, Source::Input);
    }

    /// Adds a request: the spans from `span_first` on, which refer to `inline_bytes`.
    pub(super) fn push_inline_request(&mut self, span_first: usize) {
        self.push(span_first, Source::Inline);
    }

    #[inline]
    fn push(&mut self, span_first: usize, source: Source) {
        let place = Span::new(span_first, self.spans.len() - span_first);
        let (span_first, span_count) = (place.start, place.len);
        self.requests.push(Request { span_first, span_count, source, end: 0 });
    }

    /// Notes that the requests so far take the input's first `end` bytes.
    #[inline]
    pub(super) fn note_end(&mut self, end: usize) {
        if let Some(last) = self.requests.last_mut() {
            last.end = Span::new(end, 0).start;
        }
    }
}

/// The borrowed arguments of one request; the command's name is at 0.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// Number of arguments, including the name.
    #[inline]
    pub fn len(self) -> usize {
        self.spans.len()
    }

    /// Whether it has no arguments, as after [`skip`](Self::skip) of all.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`. Panics out of range, like a slice.
    #[inline]
    pub fn get(self, index: usize) -> &'a [u8] {
        self.spans[index].of(self.bytes)
    }

    /// The argument at `index`, if there is one.
    #[inline]
    pub fn try_get(self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.of(self.bytes))
    }

    /// All arguments in order.
    #[inline]
    pub fn iter(self) -> ArgsIter<'a> {
        ArgsIter { bytes: self.bytes, spans: self.spans.iter() }
    }

    /// An upper bound of the bytes of all arguments: from the start of the first to the end of the
    /// last. O(1).
    #[inline]
    pub fn bytes_max(self) -> usize {
        match (self.spans.first(), self.spans.last()) {
            (Some(first), Some(last)) => {
                (last.start as usize + last.len as usize).saturating_sub(first.start as usize)
            }
            _ => 0,
        }
    }

    /// An upper bound of [`Self::wire_bytes`]. O(1).
    #[inline]
    pub fn wire_bytes_max(self) -> usize {
        /// A `$`, a length of up to ten digits, and two line ends; for the header of the array as
        /// well.
        const HEADER_BYTES_MAX: usize = 16;
        self.bytes_max() + HEADER_BYTES_MAX * (self.len() + 1)
    }

    /// Size of the request as an array of bulk strings.
    pub fn wire_bytes(self) -> usize {
        /// A type, the digits of a number, and a line end.
        fn header_bytes(number: usize) -> usize {
            const TYPE_AND_END: usize = 3;
            TYPE_AND_END + number.checked_ilog10().map_or(1, |digits| digits as usize + 1)
        }
        let bulk_bytes = |arg: &[u8]| header_bytes(arg.len()) + arg.len() + b"\r\n".len();
        header_bytes(self.len()) + self.iter().map(bulk_bytes).sum::<usize>()
    }

    /// All but the first `count` arguments; none if there are fewer.
    #[must_use]
    #[inline]
    pub fn skip(self, count: usize) -> Self {
        Self { bytes: self.bytes, spans: self.spans.get(count..).unwrap_or_default() }
    }

    /// The arguments at these positions. Panics out of range, like a slice.
    #[must_use]
    pub fn range(self, positions: Range<usize>) -> Self {
        Self { bytes: self.bytes, spans: &self.spans[positions] }
    }

    /// A copy that outlives the input, as MULTI requires. Takes `&self`: with `self`, a call on a
    /// reference would resolve to the clone method of the same name.
    pub fn to_owned(&self) -> OwnedArgs {
        self.iter().collect()
    }
}

impl<'a> IntoIterator for Args<'a> {
    type Item = &'a [u8];
    type IntoIter = ArgsIter<'a>;

    fn into_iter(self) -> ArgsIter<'a> {
        self.iter()
    }
}

impl PartialEq for Args<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Args<'_> {}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut list = formatter.debug_list();
        for arg in *self {
            list.entry(&format_args!("\"{}\"", arg.escape_ascii()));
        }
        list.finish()
    }
}

/// Iterator over the arguments of a request.
#[derive(Debug, Clone)]
pub struct ArgsIter<'a> {
    bytes: &'a [u8],
    spans: slice::Iter<'a, Span>,
}

impl<'a> Iterator for ArgsIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.spans.next().map(|span| span.of(self.bytes))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl DoubleEndedIterator for ArgsIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.spans.next_back().map(|span| span.of(self.bytes))
    }
}

impl ExactSizeIterator for ArgsIter<'_> {}

/// An argument list that owns its bytes: queued by MULTI, or built by a script or another protocol.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    /// An empty list without allocated memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one argument.
    ///
    /// Panics if all arguments together reach 4 GiB; a caller that takes them from a peer has a far
    /// lower limit.
    pub fn push(&mut self, arg: &[u8]) {
        let start = self.bytes.len();
        assert!(u32::try_from(start + arg.len()).is_ok());
        self.bytes.extend_from_slice(arg);
        self.spans.push(Span::new(start, arg.len()));
    }

    /// Removes the arguments, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// The arguments in the form that commands take.
    pub fn as_args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans }
    }

    /// Bytes of memory that the list holds, for accounting of queued commands.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

impl fmt::Debug for OwnedArgs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_args().fmt(formatter)
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for OwnedArgs {
    fn from_iter<I: IntoIterator<Item = T>>(args: I) -> Self {
        let mut list = Self::new();
        for arg in args {
            list.push(arg.as_ref());
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn args_are_read_by_place_and_by_range() {
        let owned: OwnedArgs = ["MSET", "a", "", "b", "2"].into_iter().collect();
        let args = owned.as_args();
        assert_eq!(args.len(), 5);
        assert_eq!(args.get(0), b"MSET");
        assert_eq!(args.try_get(2), Some(&b""[..]));
        assert_eq!(args.try_get(5), None);
        assert_eq!(args.skip(3).iter().collect::<Vec<_>>(), [b"b", b"2"]);
        assert!(args.skip(9).is_empty());
        assert_eq!(args.range(1..2).get(0), b"a");
        assert_eq!(args.iter().next_back(), Some(&b"2"[..]));
        assert_eq!(format!("{:?}", args.range(0..2)), r#"["MSET", "a"]"#);
    }

    #[test]
    fn the_size_on_the_wire_is_that_of_an_array() {
        let many: OwnedArgs = (0..12).map(|number| vec![b'x'; 9 * number]).collect();
        let few: OwnedArgs = ["GET", ""].into_iter().collect();
        for owned in [many, few] {
            let args = owned.as_args();
            let mut encoded = format!("*{}\r\n", args.len()).into_bytes();
            for arg in args {
                encoded.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                encoded.extend_from_slice(arg);
                encoded.extend_from_slice(b"\r\n");
            }
            assert_eq!(args.wire_bytes(), encoded.len());
            assert!(args.wire_bytes_max() >= encoded.len());
        }
    }

    #[test]
    fn a_copy_holds_only_its_own_bytes() {
        let owned: OwnedArgs = ["DEL", "key"].into_iter().collect();
        let copy = owned.as_args().skip(1).to_owned();
        assert_eq!(copy.as_args(), owned.as_args().skip(1));
        assert_eq!(copy.bytes, b"key");
        assert!(copy.memory_bytes() >= 3 + size_of::<Span>());
    }

    #[test]
    fn a_cleared_batch_frees_the_memory_of_a_giant_request() {
        let mut batch = RequestBatch::new();
        batch.spans.resize(4 * SPANS_KEPT_MAX, Span::new(0, 0));
        batch.inline_bytes.resize(4 * INLINE_BYTES_KEPT_MAX, 0);
        batch.push_request(0);
        batch.clear();
        assert!(batch.is_empty());
        assert!(batch.spans.capacity() < 2 * SPANS_KEPT_MAX);
        assert!(batch.inline_bytes.capacity() < 2 * INLINE_BYTES_KEPT_MAX);
    }
}
