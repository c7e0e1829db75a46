//! Identifiers of the entries of a stream.

use crate::varint::{Malformed, put_varint, take_varint};

/// Milliseconds since the Unix epoch, and a number that orders the entries of one millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    /// Less than all entries: no entry has it.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// The smallest greater identifier; `None` after [`StreamId::MAX`].
    #[must_use]
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The greatest smaller identifier; `None` before [`StreamId::MIN`].
    #[must_use]
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Appends: milliseconds v, number v (v = LEB128 varint).
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.ms);
        put_varint(out, self.seq);
    }

    pub(crate) fn decode(input: &mut &[u8]) -> Result<StreamId, Malformed> {
        Ok(StreamId { ms: take_varint(input)?, seq: take_varint(input)? })
    }

    /// Appends the identifier as its difference from one that precedes it in a list: difference of
    /// the milliseconds v, then the number v, or its difference if the milliseconds are equal.
    /// Differences wrap, so any order of identifiers can be encoded.
    pub(crate) fn encode_after(self, before: StreamId, out: &mut Vec<u8>) {
        let ms = self.ms.wrapping_sub(before.ms);
        put_varint(out, ms);
        put_varint(out, if ms == 0 { self.seq.wrapping_sub(before.seq) } else { self.seq });
    }

    pub(crate) fn decode_after(before: StreamId, input: &mut &[u8]) -> Result<StreamId, Malformed> {
        let (ms, seq) = (take_varint(input)?, take_varint(input)?);
        let seq = if ms == 0 { before.seq.wrapping_add(seq) } else { seq };
        Ok(StreamId { ms: before.ms.wrapping_add(ms), seq })
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors() {
        let id = StreamId::new;
        for (left, right) in [
            (id(0, 0), id(0, 1)),
            (id(7, u64::MAX), id(8, 0)),
            (id(u64::MAX, u64::MAX - 1), StreamId::MAX),
        ] {
            assert_eq!(left.next(), Some(right));
            assert_eq!(right.previous(), Some(left));
        }
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(StreamId::MIN.previous(), None);
    }

    #[test]
    fn differences_of_any_order_are_encoded() {
        let ids = [
            StreamId::new(5, 7),
            StreamId::new(5, 8),
            StreamId::new(5, 2),
            StreamId::MAX,
            StreamId::MIN,
            StreamId::new(1 << 40, 0),
        ];
        let (mut bytes, mut before) = (Vec::new(), StreamId::MIN);
        for id in ids {
            id.encode_after(before, &mut bytes);
            before = id;
        }
        let (mut input, mut before) = (bytes.as_slice(), StreamId::MIN);
        for id in ids {
            before = StreamId::decode_after(before, &mut input).expect("own bytes");
            assert_eq!(before, id);
        }
        assert!(input.is_empty());
    }
}
