//! Many byte strings in two allocations.

/// A list of byte strings, one after another in one buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    /// Where each string ends.
    ends: Vec<usize>,
}

impl Strings {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Panics if `index` is not below [`len`](Self::len).
    pub fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.end();
    }

    /// The buffer to append the next string to. [`Strings::end`] follows.
    pub(super) fn begin(&mut self) -> &mut Vec<u8> {
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        &mut self.bytes
    }

    pub(super) fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }
}

impl<'a> FromIterator<&'a [u8]> for Strings {
    fn from_iter<T: IntoIterator<Item = &'a [u8]>>(items: T) -> Strings {
        let mut strings = Strings::default();
        items.into_iter().for_each(|item| strings.push(item));
        strings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_in_order() {
        let items: [&[u8]; 3] = [b"one", b"", b"three"];
        let mut strings: Strings = items.into_iter().collect();
        assert!(strings.iter().eq(items));
        strings.begin().extend_from_slice(b"abandoned");
        strings.begin().extend_from_slice(b"four");
        strings.end();
        assert_eq!((strings.len(), strings.get(3)), (4, &b"four"[..]));
    }
}
