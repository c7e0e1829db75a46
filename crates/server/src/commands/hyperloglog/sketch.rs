//! The string value of a `HyperLogLog`, with the bytes of Redis: a header, and 16,384 registers of 6
//! bits, either as they are (dense) or as runs (sparse).
//!
//! Header: `HYLL`, encoding u8, three zeros, the last count u64, whose highest bit is set if
//! elements were added since.
// Source: Redis 7.2 `hyperloglog.c`, the comment at its top

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use super::hash::Place;
use super::sparse;

pub(super) const REGISTERS: usize = 16_384;

const MAGIC: &[u8; 4] = b"HYLL";
const ENCODING_AT: usize = 4;
const COUNT_AT: usize = 8;
pub(super) const HEADER_BYTES: usize = 16;
/// The byte with the bit that marks the count as outdated.
const OUTDATED_AT: usize = HEADER_BYTES - 1;
const OUTDATED: u8 = 0x80;

const REGISTER_BITS: usize = 6;
const REGISTER_MASK: u16 = (1 << REGISTER_BITS) - 1;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

/// Longer sparse values become dense in self-tests: the default of `hll-sparse-max-bytes`.
pub(super) const SPARSE_BYTES_MAX: usize = 3000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Dense = 0,
    Sparse = 1,
}

/// A string that is not a `HyperLogLog`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SketchError {
    NotASketch,
    /// The header is right, and the registers are not.
    Corrupt,
}

/// All registers, one byte each.
#[derive(Debug, Clone)]
pub(super) struct Registers(Box<[u8]>);

impl Default for Registers {
    fn default() -> Registers {
        Registers(vec![0; REGISTERS].into())
    }
}

impl Deref for Registers {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Registers {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// A value whose header is valid.
#[derive(Debug, Clone)]
pub(super) struct Sketch<'a> {
    value: Cow<'a, [u8]>,
    encoding: Encoding,
}

impl<'a> Sketch<'a> {
    pub(super) fn empty() -> Sketch<'static> {
        let mut value = header(Encoding::Sparse);
        sparse::push_zeros(&mut value, REGISTERS);
        Sketch { value: Cow::Owned(value), encoding: Encoding::Sparse }
    }

    pub(super) fn parse(value: Cow<'a, [u8]>) -> Result<Sketch<'a>, SketchError> {
        if value.len() < HEADER_BYTES || !value.starts_with(MAGIC) {
            return Err(SketchError::NotASketch);
        }
        let encoding = match value[ENCODING_AT] {
            0 if value.len() == DENSE_BYTES => Encoding::Dense,
            1 => Encoding::Sparse,
            _ => return Err(SketchError::NotASketch),
        };
        Ok(Sketch { value, encoding })
    }

    pub(super) fn into_owned(self) -> Sketch<'static> {
        Sketch { value: Cow::Owned(self.value.into_owned()), encoding: self.encoding }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.value
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The registers in their encoding.
    pub(super) fn body(&self) -> &[u8] {
        &self.value[HEADER_BYTES..]
    }

    /// The count that was stored, if no element was added since.
    pub(super) fn known_count(&self) -> Option<u64> {
        let count = self.value[COUNT_AT..HEADER_BYTES].try_into().expect("eight bytes");
        (self.value[OUTDATED_AT] & OUTDATED == 0).then(|| u64::from_le_bytes(count))
    }

    /// Marks the stored count as outdated.
    pub(super) fn forget_count(&mut self) {
        self.value.to_mut()[OUTDATED_AT] |= OUTDATED;
    }

    /// Raises registers to the values of this sketch.
    pub(super) fn merge_into(&self, registers: &mut Registers) -> Result<(), SketchError> {
        match self.encoding {
            Encoding::Dense => {
                for (at, known) in registers.iter_mut().enumerate() {
                    *known = (*known).max(dense_value(self.body(), at));
                }
                Ok(())
            }
            Encoding::Sparse => sparse::decode(self.body(), |at, value| {
                registers[at] = registers[at].max(value);
            }),
        }
    }

    /// Raises one register. False if it has this value already, or a larger one. A sketch that
    /// would be longer than `sparse_bytes_max` becomes dense.
    pub(super) fn raise(
        &mut self,
        place: Place,
        sparse_bytes_max: usize,
    ) -> Result<bool, SketchError> {
        if self.encoding == Encoding::Sparse {
            match sparse::raise(self.value.to_mut(), place, sparse_bytes_max)? {
                sparse::Raised::Yes => return Ok(true),
                sparse::Raised::No => return Ok(false),
                sparse::Raised::DoesNotFit => self.unpack()?,
            }
        }
        if dense_value(self.body(), place.register) >= place.rank {
            return Ok(false);
        }
        set_dense_value(&mut self.value.to_mut()[HEADER_BYTES..], place);
        Ok(true)
    }

    /// Makes the sketch dense. The stored count stays.
    pub(super) fn unpack(&mut self) -> Result<(), SketchError> {
        if self.encoding == Encoding::Dense {
            return Ok(());
        }
        let mut value = header(Encoding::Dense);
        value[COUNT_AT..HEADER_BYTES].copy_from_slice(&self.value[COUNT_AT..HEADER_BYTES]);
        value.resize(DENSE_BYTES, 0);
        sparse::decode(self.body(), |register, rank| {
            set_dense_value(&mut value[HEADER_BYTES..], Place { register, rank });
        })?;
        *self = Sketch { value: Cow::Owned(value), encoding: Encoding::Dense };
        Ok(())
    }
}

fn header(encoding: Encoding) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES];
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    header[ENCODING_AT] = encoding as u8;
    header
}

/// The byte of a register's lowest bit, and the bit; the two bytes there hold the register.
fn dense_place(register: usize) -> (usize, usize) {
    (register * REGISTER_BITS / 8, register * REGISTER_BITS % 8)
}

/// The byte and the one after it, if there is one.
fn pair(body: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([body[at], body.get(at + 1).copied().unwrap_or(0)])
}

pub(super) fn dense_value(body: &[u8], register: usize) -> u8 {
    let (at, shift) = dense_place(register);
    (pair(body, at) >> shift & REGISTER_MASK).to_le_bytes()[0]
}

fn set_dense_value(body: &mut [u8], place: Place) {
    let (at, shift) = dense_place(place.register);
    let others = pair(body, at) & !(REGISTER_MASK << shift);
    let both = (others | (u16::from(place.rank) & REGISTER_MASK) << shift).to_le_bytes();
    body[at] = both[0];
    if let Some(next) = body.get_mut(at + 1) {
        *next = both[1];
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimate;
    use super::super::hash::place_of;
    use super::*;
    use proptest::prelude::*;

    fn registers_of(sketch: &Sketch<'_>) -> Registers {
        let mut registers = Registers::default();
        sketch.merge_into(&mut registers).unwrap();
        registers
    }

    fn dense() -> Sketch<'static> {
        let mut sketch = Sketch::empty();
        sketch.unpack().unwrap();
        sketch
    }

    #[test]
    fn an_empty_sketch_has_the_bytes_of_redis() {
        let empty = Sketch::empty();
        assert_eq!(empty.bytes(), b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff");
        assert_eq!(empty.known_count(), Some(0));
        assert_eq!(dense().bytes().len(), 12_304);
        assert_eq!(estimate::count(&registers_of(&empty)), 0);
    }

    #[test]
    fn both_encodings_agree_and_estimate_well() {
        let (mut sparse, mut dense) = (Sketch::empty(), dense());
        for number in 1_u32..=20_000 {
            let place = place_of(&number.to_le_bytes());
            let changed = sparse.raise(place, SPARSE_BYTES_MAX).unwrap();
            assert_eq!(dense.raise(place, SPARSE_BYTES_MAX).unwrap(), changed);
            if number == 100 {
                assert_eq!(sparse.encoding(), Encoding::Sparse);
                assert_eq!(*registers_of(&sparse), *registers_of(&dense));
            }
        }
        assert_eq!(sparse.encoding(), Encoding::Dense);
        let count = estimate::count(&registers_of(&dense));
        assert!((19_600..=20_400).contains(&count), "{count}");
    }

    proptest! {
        #[test]
        fn registers_are_raised_and_nothing_else_changes(
            places in proptest::collection::vec((0..64_usize, 1..=51_u8), 1..200),
            is_dense in any::<bool>(),
            spread in prop_oneof![Just(1_usize), Just(7), Just(256)],
        ) {
            let mut sketch = if is_dense { dense() } else { Sketch::empty() };
            let mut model = Registers::default();
            for (at, rank) in places {
                let register = REGISTERS - 1 - at * spread % REGISTERS;
                let is_new = model[register] < rank;
                model[register] = model[register].max(rank);
                prop_assert_eq!(sketch.raise(Place { register, rank }, SPARSE_BYTES_MAX), Ok(is_new));
            }
            let parsed = Sketch::parse(Cow::Borrowed(sketch.bytes())).unwrap();
            prop_assert_eq!(&*registers_of(&parsed), &*model);
        }

        #[test]
        fn any_bytes_are_read_and_changed_or_refused(
            body in proptest::collection::vec(any::<u8>(), 0..64),
            places in proptest::collection::vec((0..REGISTERS, 1..=51_u8), 1..20),
        ) {
            let mut value = header(Encoding::Sparse);
            value.extend(body);
            let mut sketch = Sketch::parse(Cow::Owned(value)).unwrap();
            let mut registers = Registers::default();
            let is_valid = sketch.merge_into(&mut registers).is_ok();
            for (register, rank) in places {
                let raised = sketch.raise(Place { register, rank }, SPARSE_BYTES_MAX);
                prop_assert!(raised.is_ok() || !is_valid);
            }
            prop_assert!(sketch.unpack().is_ok() || !is_valid);
        }
    }
}
