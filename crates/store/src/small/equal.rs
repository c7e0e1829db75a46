//! A small list whose elements have one length: the length in a byte, then their contents.

use super::{LIST_BYTES_MAX, Small};

/// See the module's documentation. Each element is found at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EqualList<'a> {
    width: usize,
    contents: &'a [u8],
}

impl<'a> EqualList<'a> {
    #[inline]
    pub(crate) fn new(small: Small<'a>) -> EqualList<'a> {
        let (&width, contents) = small.bytes.split_first().expect("the length precedes elements");
        EqualList { width: usize::from(width), contents }
    }

    /// The length of each element.
    #[inline]
    pub(crate) fn width(self) -> usize {
        self.width
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.contents.len() / self.width
    }

    #[inline]
    pub(crate) fn get(self, index: usize) -> Option<&'a [u8]> {
        self.contents.chunks_exact(self.width).nth(index)
    }

    #[inline]
    pub(crate) fn iter(self) -> std::slice::ChunksExact<'a, u8> {
        self.contents.chunks_exact(self.width)
    }

    /// The elements from `index` on, which is at most their number.
    #[inline]
    pub(crate) fn iter_from(self, index: usize) -> std::slice::ChunksExact<'a, u8> {
        self.contents[index * self.width..].chunks_exact(self.width)
    }

    /// The address of the elements, for DEBUG OBJECT.
    pub(crate) fn address(self) -> usize {
        self.contents.as_ptr().addr()
    }
}

/// The length that all elements have, if a small list with this length can hold them and does not
/// take more than a list in which they take `element_bytes`.
pub(super) fn common_width<'a>(
    mut elements: impl Iterator<Item = &'a [u8]>,
    element_bytes: usize,
) -> Option<u8> {
    let first = elements.next()?.len();
    let width = u8::try_from(first).ok().filter(|width| *width > 0)?;
    let mut count = 1;
    for element in elements {
        if element.len() != first {
            return None;
        }
        count += 1;
    }
    let bytes = 1 + count * first;
    (bytes <= element_bytes.min(LIST_BYTES_MAX)).then_some(width)
}
