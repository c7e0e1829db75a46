//! Lists in a log record, either from the caller or as encoded in its bytes.

use crate::types::{Malformed, Write};
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

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

    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
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
