//! Lists in a log record, either from the caller or as encoded in its bytes.

use crate::types::{Malformed, StreamId, Write};
use crate::varint::{put_bytes, put_u64, put_varint, take_bytes, take_u64, take_varint};

/// A list of byte strings, either from the caller or as encoded in a log record.
#[derive(Debug, Clone, Copy)]
pub enum Items<'a> {
    Slice(&'a [&'a [u8]]),
    /// `count` times: length v, bytes. Checked by [`crate::Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

impl<'a> Items<'a> {
    pub fn len(&self) -> usize {
        match self {
            Items::Slice(items) => items.len(),
            Items::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        let (slice, mut packed) = match self {
            Items::Slice(items) => (items, &[][..]),
            Items::Packed { bytes, .. } => (&[][..], bytes),
        };
        let rest = std::iter::from_fn(move || {
            (!packed.is_empty()).then(|| take_bytes(&mut packed).expect("checked by decode"))
        });
        slice.iter().copied().chain(rest)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|item| put_bytes(out, item));
    }

    pub(crate) fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            take_bytes(input)?;
        }
        Ok(Items::Packed { count, bytes: &start[..start.len() - input.len()] })
    }
}

/// Members with scores, likewise.
#[derive(Debug, Clone, Copy)]
pub enum Scored<'a> {
    Slice(&'a [(f64, &'a [u8])]),
    /// `count` times: score f64, length v, bytes. Checked by [`crate::Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

fn take_scored<'a>(input: &mut &'a [u8]) -> Result<(f64, &'a [u8]), Malformed> {
    let (score, rest) = input.split_first_chunk::<8>().ok_or(Malformed)?;
    *input = rest;
    let score = f64::from_le_bytes(*score);
    if score.is_nan() {
        return Err(Malformed);
    }
    Ok((score, take_bytes(input)?))
}

impl<'a> Scored<'a> {
    pub fn len(&self) -> usize {
        match self {
            Scored::Slice(items) => items.len(),
            Scored::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = (f64, &'a [u8])> {
        let (slice, mut packed) = match self {
            Scored::Slice(items) => (items, &[][..]),
            Scored::Packed { bytes, .. } => (&[][..], bytes),
        };
        let rest = std::iter::from_fn(move || {
            (!packed.is_empty()).then(|| take_scored(&mut packed).expect("checked by decode"))
        });
        slice.iter().copied().chain(rest)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (score, member) in self.iter() {
            out.extend_from_slice(&score.to_le_bytes());
            put_bytes(out, member);
        }
    }

    pub(crate) fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            take_scored(input)?;
        }
        Ok(Scored::Packed { count, bytes: &start[..start.len() - input.len()] })
    }
}

/// Values of a time series with their timestamps, likewise.
#[derive(Debug, Clone, Copy)]
pub enum Points<'a> {
    Slice(&'a [(i64, &'a [u8])]),
    /// `count` times: timestamp i64, length v, bytes. Checked by [`crate::Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

fn take_point<'a>(input: &mut &'a [u8]) -> Result<(i64, &'a [u8]), Malformed> {
    Ok((take_u64(input)?.cast_signed(), take_bytes(input)?))
}

impl<'a> Points<'a> {
    pub fn len(&self) -> usize {
        match self {
            Points::Slice(points) => points.len(),
            Points::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = (i64, &'a [u8])> {
        let (slice, mut packed) = match self {
            Points::Slice(points) => (points, &[][..]),
            Points::Packed { bytes, .. } => (&[][..], bytes),
        };
        let rest = std::iter::from_fn(move || {
            (!packed.is_empty()).then(|| take_point(&mut packed).expect("checked by decode"))
        });
        slice.iter().copied().chain(rest)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (timestamp, value) in self.iter() {
            put_u64(out, timestamp.cast_unsigned());
            put_bytes(out, value);
        }
    }

    pub(crate) fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            take_point(input)?;
        }
        Ok(Points::Packed { count, bytes: &start[..start.len() - input.len()] })
    }
}

/// Timestamps of a time series, likewise.
#[derive(Debug, Clone, Copy)]
pub enum Timestamps<'a> {
    Slice(&'a [i64]),
    /// 8 bytes each.
    Packed(&'a [[u8; 8]]),
}

impl<'a> Timestamps<'a> {
    pub fn len(&self) -> usize {
        match self {
            Timestamps::Slice(timestamps) => timestamps.len(),
            Timestamps::Packed(packed) => packed.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = i64> + use<'a> {
        let (slice, packed) = match self {
            Timestamps::Slice(timestamps) => (timestamps, &[][..]),
            Timestamps::Packed(packed) => (&[][..], packed),
        };
        slice.iter().copied().chain(packed.iter().map(|bytes| i64::from_le_bytes(*bytes)))
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|timestamp| put_u64(out, timestamp.cast_unsigned()));
    }

    pub(crate) fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let bytes = count.checked_mul(8).ok_or(Malformed)?;
        let (packed, rest) = input.split_at_checked(bytes).ok_or(Malformed)?;
        *input = rest;
        Ok(Timestamps::Packed(packed.as_chunks().0))
    }
}

/// Writes of one partition, likewise.
#[derive(Debug, Clone, Copy)]
pub enum Writes<'a> {
    Slice(&'a [Write<'a>]),
    /// `count` writes. Checked by [`crate::Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

impl<'a> Writes<'a> {
    pub fn len(&self) -> usize {
        match self {
            Writes::Slice(writes) => writes.len(),
            Writes::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Write<'a>> {
        let (slice, mut packed) = match self {
            Writes::Slice(writes) => (writes, &[][..]),
            Writes::Packed { bytes, .. } => (&[][..], bytes),
        };
        let rest = std::iter::from_fn(move || {
            (!packed.is_empty()).then(|| Write::decode(&mut packed).expect("checked by decode"))
        });
        slice.iter().copied().chain(rest)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        match self {
            Writes::Slice(writes) => writes.iter().for_each(|write| write.encode(out)),
            Writes::Packed { bytes, .. } => out.extend_from_slice(bytes),
        }
    }

    pub(crate) fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            Write::decode(input)?;
        }
        Ok(Writes::Packed { count, bytes: &start[..start.len() - input.len()] })
    }

    /// Decodes the output of [`crate::Partition::encode`].
    pub(crate) fn of_partition(mut encoded: &'a [u8]) -> Writes<'a> {
        Writes::decode(&mut encoded).expect("encoded by the partition itself")
    }
}

/// Identifiers of entries of a stream, likewise.
#[derive(Debug, Clone, Copy)]
pub enum Ids<'a> {
    Slice(&'a [StreamId]),
    /// `count` times: [`StreamId::encode_after`]. Checked by [`crate::Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

impl<'a> Ids<'a> {
    pub fn len(&self) -> usize {
        match self {
            Ids::Slice(ids) => ids.len(),
            Ids::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = StreamId> + use<'a> {
        let (slice, mut packed) = match self {
            Ids::Slice(ids) => (ids, &[][..]),
            Ids::Packed { bytes, .. } => (&[][..], bytes),
        };
        let mut before = StreamId::MIN;
        let rest = std::iter::from_fn(move || {
            (!packed.is_empty()).then(|| {
                before = StreamId::decode_after(before, &mut packed).expect("checked by decode");
                before
            })
        });
        slice.iter().copied().chain(rest)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        let mut before = StreamId::MIN;
        for id in self.iter() {
            id.encode_after(before, out);
            before = id;
        }
    }

    pub(crate) fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            StreamId::decode_after(StreamId::MIN, input)?;
        }
        Ok(Ids::Packed { count, bytes: &start[..start.len() - input.len()] })
    }
}

/// Identifiers of entries of a stream with their numbers of deliveries, likewise.
#[derive(Debug, Clone, Copy)]
pub enum Deliveries<'a> {
    Slice(&'a [(StreamId, u64)]),
    /// `count` times: [`StreamId::encode_after`], deliveries v. Checked by
    /// [`crate::Mutation::decode`].
    Packed {
        count: usize,
        bytes: &'a [u8],
    },
}

fn take_delivery(before: StreamId, input: &mut &[u8]) -> Result<(StreamId, u64), Malformed> {
    Ok((StreamId::decode_after(before, input)?, take_varint(input)?))
}

impl<'a> Deliveries<'a> {
    pub fn len(&self) -> usize {
        match self {
            Deliveries::Slice(entries) => entries.len(),
            Deliveries::Packed { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(self) -> impl Iterator<Item = (StreamId, u64)> + use<'a> {
        let (slice, mut packed) = match self {
            Deliveries::Slice(entries) => (entries, &[][..]),
            Deliveries::Packed { bytes, .. } => (&[][..], bytes),
        };
        let mut before = StreamId::MIN;
        let rest = std::iter::from_fn(move || {
            (!packed.is_empty()).then(|| {
                let entry = take_delivery(before, &mut packed).expect("checked by decode");
                before = entry.0;
                entry
            })
        });
        slice.iter().copied().chain(rest)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        let mut before = StreamId::MIN;
        for (id, deliveries) in self.iter() {
            id.encode_after(before, out);
            put_varint(out, deliveries);
            before = id;
        }
    }

    pub(crate) fn decode(input: &mut &'a [u8]) -> Result<Self, Malformed> {
        let count = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
        let start = *input;
        for _ in 0..count {
            take_delivery(StreamId::MIN, input)?;
        }
        Ok(Deliveries::Packed { count, bytes: &start[..start.len() - input.len()] })
    }
}
