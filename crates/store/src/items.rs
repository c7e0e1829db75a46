//! Lists in a log record, either from the caller or as encoded in its bytes.

use crate::types::{Malformed, StreamId, Write};
use crate::varint::{put_bytes, put_u64, put_varint, take_bytes, take_u64, take_varint};

/// A list of elements, either from the caller or as encoded in a log record.
#[derive(Debug, Clone, Copy)]
pub enum List<'a, T> {
    Slice(&'a [T]),
    /// `count` times [`Element::put`]. Checked by [`crate::Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

/// Byte strings.
pub type Items<'a> = List<'a, &'a [u8]>;
/// Members with scores.
pub type Scored<'a> = List<'a, (f64, &'a [u8])>;
/// Values of a time series with their timestamps.
pub type Points<'a> = List<'a, (i64, &'a [u8])>;
/// Timestamps of a time series.
pub type Timestamps<'a> = List<'a, i64>;
/// Writes of one partition.
pub type Writes<'a> = List<'a, Write<'a>>;
/// Identifiers of entries of a stream.
pub type Ids<'a> = List<'a, StreamId>;
/// Identifiers of entries of a stream with their numbers of deliveries.
pub type Deliveries<'a> = List<'a, (StreamId, u64)>;

/// An element of a [`List`]. `before` is the previous element, for encodings of a difference.
pub trait Element<'a>: Copy {
    fn put(self, before: Option<Self>, out: &mut Vec<u8>);
    fn take(before: Option<Self>, input: &mut &'a [u8]) -> Result<Self, Malformed>;
}

impl<T> List<'_, T> {
    pub fn len(&self) -> usize {
        match self {
            List::Slice(elements) => elements.len(),
            List::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Element<'a>> List<'a, T> {
    pub fn iter(self) -> impl Iterator<Item = T> + Clone {
        let (slice, mut packed) = match self {
            List::Slice(elements) => (elements, &[][..]),
            List::Packed { bytes, .. } => (&[][..], bytes),
        };
        let mut before = None;
        let rest = std::iter::from_fn(move || {
            if packed.is_empty() {
                return None;
            }
            before = Some(T::take(before, &mut packed).expect("checked by decode"));
            before
        });
        slice.iter().copied().chain(rest)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        match self {
            List::Slice(elements) => {
                let mut before = None;
                for &element in elements {
                    element.put(before, out);
                    before = Some(element);
                }
            }
            List::Packed { bytes, .. } => out.extend_from_slice(bytes),
        }
    }

    pub(crate) fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            T::take(None, input)?;
        }
        Ok(List::Packed { count, bytes: &start[..start.len() - input.len()] })
    }
}

impl<'a> Writes<'a> {
    /// Decodes the output of [`crate::Partition::encode`].
    pub(crate) fn of_partition(mut encoded: &'a [u8]) -> Writes<'a> {
        Writes::decode(&mut encoded).expect("encoded by the partition itself")
    }
}

/// Length v, bytes.
impl<'a> Element<'a> for &'a [u8] {
    fn put(self, _: Option<Self>, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }

    fn take(_: Option<Self>, input: &mut &'a [u8]) -> Result<Self, Malformed> {
        take_bytes(input)
    }
}

/// Score f64, length v, bytes.
impl<'a> Element<'a> for (f64, &'a [u8]) {
    fn put(self, _: Option<Self>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
        put_bytes(out, self.1);
    }

    fn take(_: Option<Self>, input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let score = f64::from_bits(take_u64(input)?);
        if score.is_nan() {
            return Err(Malformed);
        }
        Ok((score, take_bytes(input)?))
    }
}

/// Timestamp i64, length v, bytes.
impl<'a> Element<'a> for (i64, &'a [u8]) {
    fn put(self, _: Option<Self>, out: &mut Vec<u8>) {
        put_u64(out, self.0.cast_unsigned());
        put_bytes(out, self.1);
    }

    fn take(_: Option<Self>, input: &mut &'a [u8]) -> Result<Self, Malformed> {
        Ok((take_u64(input)?.cast_signed(), take_bytes(input)?))
    }
}

/// 8 bytes.
impl Element<'_> for i64 {
    fn put(self, _: Option<Self>, out: &mut Vec<u8>) {
        put_u64(out, self.cast_unsigned());
    }

    fn take(_: Option<Self>, input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(take_u64(input)?.cast_signed())
    }
}

impl<'a> Element<'a> for Write<'a> {
    fn put(self, _: Option<Self>, out: &mut Vec<u8>) {
        self.encode(out);
    }

    fn take(_: Option<Self>, input: &mut &'a [u8]) -> Result<Self, Malformed> {
        Write::decode(input)
    }
}

/// [`StreamId::encode_after`] the previous identifier.
impl Element<'_> for StreamId {
    fn put(self, before: Option<Self>, out: &mut Vec<u8>) {
        self.encode_after(before.unwrap_or(StreamId::MIN), out);
    }

    fn take(before: Option<Self>, input: &mut &[u8]) -> Result<Self, Malformed> {
        StreamId::decode_after(before.unwrap_or(StreamId::MIN), input)
    }
}

/// [`StreamId::encode_after`] the previous identifier, deliveries v.
impl Element<'_> for (StreamId, u64) {
    fn put(self, before: Option<Self>, out: &mut Vec<u8>) {
        self.0.put(before.map(|(id, _)| id), out);
        put_varint(out, self.1);
    }

    fn take(before: Option<Self>, input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok((StreamId::take(before.map(|(id, _)| id), input)?, take_varint(input)?))
    }
}
