//! Iteration over the rows of a small collection, from both ends.

use smallvec::SmallVec;

use super::score;
use crate::types::element;
use crate::types::text::Text;

/// What an iteration yields.
pub(crate) trait Row<'a>: Sized {
    /// Takes one row off the front.
    fn take(input: &mut &'a [u8]) -> Self;
}

impl<'a> Row<'a> for Text<'a> {
    #[inline]
    fn take(input: &mut &'a [u8]) -> Text<'a> {
        element::take(input).expect("made by `put`").into()
    }
}

/// A field and its value.
impl<'a> Row<'a> for (Text<'a>, Text<'a>) {
    #[inline]
    fn take(input: &mut &'a [u8]) -> (Text<'a>, Text<'a>) {
        (Text::take(input), Text::take(input))
    }
}

/// A member and its score.
impl<'a> Row<'a> for (Text<'a>, f64) {
    #[inline]
    fn take(input: &mut &'a [u8]) -> (Text<'a>, f64) {
        let score = score::take(input);
        (Text::take(input), score)
    }
}

/// Rows from both ends. The first step from the end walks over all rows.
#[derive(Debug, Clone)]
pub(crate) struct Rows<'a, R> {
    bytes: &'a [u8],
    rest: &'a [u8],
    remaining: usize,
    /// Positions of the rows that remain, and of some before; empty until the first step from the
    /// end.
    starts: SmallVec<[u16; 32]>,
    row: std::marker::PhantomData<R>,
}

impl<'a, R: Row<'a>> Rows<'a, R> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8], count: usize) -> Rows<'a, R> {
        let starts = SmallVec::new();
        Rows { bytes, rest: bytes, remaining: count, starts, row: std::marker::PhantomData }
    }

    /// The rows `start..end`, both at most the number of rows.
    pub(crate) fn between(mut self, start: usize, end: usize) -> Rows<'a, R> {
        for _ in 0..start {
            R::take(&mut self.rest);
        }
        self.remaining = end - start;
        self
    }

    fn find_starts(&mut self) {
        let mut rest = self.rest;
        for _ in 0..self.remaining {
            let at = self.bytes.len() - rest.len();
            self.starts.push(u16::try_from(at).expect("a small collection has less than 64 KiB"));
            R::take(&mut rest);
        }
    }
}

impl<'a, R: Row<'a>> Iterator for Rows<'a, R> {
    type Item = R;

    #[inline]
    fn next(&mut self) -> Option<R> {
        self.remaining = self.remaining.checked_sub(1)?;
        Some(R::take(&mut self.rest))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl<'a, R: Row<'a>> DoubleEndedIterator for Rows<'a, R> {
    fn next_back(&mut self) -> Option<R> {
        if self.remaining == 0 {
            return None;
        }
        if self.starts.is_empty() {
            self.find_starts();
        }
        self.remaining -= 1;
        let start = self.starts.pop().expect("each row that remains has a position");
        Some(R::take(&mut &self.bytes[usize::from(start)..]))
    }
}

impl<'a, R: Row<'a>> ExactSizeIterator for Rows<'a, R> {}
