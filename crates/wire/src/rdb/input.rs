//! Numbers and strings of the format, from any source of bytes.

use std::io::{ErrorKind, Read};

use super::checksum::Checksum;
use super::error::RdbError;
use super::lzf;
use super::packed::{ELEMENT_BYTES, Malformed, Room, Sink, TOO_LARGE, TOO_MANY};
use super::strings::Strings;

/// Bytes by which a buffer grows before the bytes of a string are there.
const STEP_BYTES: usize = 64 << 10;
/// Bytes by which a short string may grow when it is compressed; a long one grows by a 32nd.
const LZF_EXCESS_BYTES: u64 = 64;

/// Limits of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that it may take in memory while it is decoded: its strings, and what each element
    /// takes beyond them.
    pub bytes_max: u64,
    /// Bytes of each string.
    pub string_bytes_max: u64,
    /// Strings of a collection.
    pub elements_max: usize,
}

impl Limits {
    /// Only the input limits a value.
    pub const NONE: Limits =
        Limits { bytes_max: u64::MAX, string_bytes_max: u64::MAX, elements_max: usize::MAX };
}

/// A length, or the encoding of a string that has none.
enum Length {
    Plain(u64),
    Encoded(u8),
}

/// Bytes of a file or payload, with their checksum.
#[derive(Debug)]
pub(super) struct Input<R> {
    from: R,
    offset: u64,
    checksum: Checksum,
    /// Bytes that this value may still take.
    room: Room,
    /// Bytes that a copy may have.
    copied_max: u64,
    string_bytes_max: u64,
    elements_max: usize,
    /// A compressed string.
    compressed: Vec<u8>,
    /// The bytes of a value as they are read, if they are required.
    copied: Option<Vec<u8>>,
}

impl<R: Read> Input<R> {
    pub(super) fn new(from: R) -> Input<R> {
        let checksum = Checksum::new();
        let Limits { bytes_max, string_bytes_max, elements_max } = Limits::NONE;
        Input {
            from,
            offset: 0,
            checksum,
            room: Room(bytes_max),
            copied_max: bytes_max,
            string_bytes_max,
            elements_max,
            compressed: Vec::new(),
            copied: None,
        }
    }

    /// Keeps a copy of the bytes that follow, after those in `copy`.
    pub(super) fn begin_copy(&mut self, copy: Vec<u8>) {
        self.copied = Some(copy);
    }

    /// Ends the copy, and returns it.
    pub(super) fn end_copy(&mut self) -> Vec<u8> {
        self.copied.take().unwrap_or_default()
    }

    /// Sets the limits of the value that follows.
    pub(super) fn limit(&mut self, limits: Limits) {
        self.room = Room(limits.bytes_max);
        self.copied_max = limits.bytes_max;
        self.string_bytes_max = limits.string_bytes_max;
        self.elements_max = limits.elements_max;
    }

    /// A sink with the limits of this value.
    pub(super) fn sink<'a>(&'a mut self, out: &'a mut Strings) -> Sink<'a> {
        Sink { out, elements_max: self.elements_max, room: &mut self.room }
    }

    /// The error for `what` is wrong with a packed value.
    pub(super) fn refused(&self, what: Malformed) -> RdbError {
        match what {
            TOO_MANY => self.too_many(),
            TOO_LARGE => RdbError::TooLarge { offset: self.offset },
            _ => self.malformed(what),
        }
    }

    fn too_many(&self) -> RdbError {
        RdbError::TooMany { offset: self.offset }
    }

    /// Fails if a value has as many parts of a kind as allowed, or no memory for another one.
    pub(super) fn take_part(&mut self, count: usize, bytes: usize) -> Result<(), RdbError> {
        if count >= self.elements_max {
            return Err(self.too_many());
        }
        self.take_room(bytes as u64)
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn checksum(&self) -> u64 {
        self.checksum.value()
    }

    pub(super) fn malformed(&self, what: &'static str) -> RdbError {
        RdbError::Malformed { offset: self.offset, what }
    }

    pub(super) fn unsupported(&self, what: String) -> RdbError {
        RdbError::Unsupported { offset: self.offset, what }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), RdbError> {
        self.from.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => RdbError::Truncated { offset: self.offset },
            _ => RdbError::Io(error),
        })?;
        self.checksum.update(bytes);
        if let Some(copy) = &mut self.copied {
            if copy.len() as u64 > self.copied_max {
                return Err(RdbError::TooLarge { offset: self.offset });
            }
            copy.extend_from_slice(bytes);
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, RdbError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Appends `len` bytes.
    fn bytes(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), RdbError> {
        let mut missing = len;
        while missing > 0 {
            let step = usize::try_from(missing).map_or(STEP_BYTES, |bytes| bytes.min(STEP_BYTES));
            let start = out.len();
            out.resize(start + step, 0);
            self.fill(&mut out[start..])?;
            missing -= step as u64;
        }
        Ok(())
    }

    // Source: Redis 7.2 `rdb.c`, `rdbLoadLenByRef`
    fn length(&mut self) -> Result<Length, RdbError> {
        let first = self.byte()?;
        Ok(Length::Plain(match (first >> 6, first & 0x3f) {
            (0, low) => u64::from(low),
            (1, high) => u64::from(high) << 8 | u64::from(self.byte()?),
            (2, 0) => u64::from(u32::from_be_bytes(self.array()?)),
            (2, 1) => u64::from_be_bytes(self.array()?),
            (2, _) => return Err(self.malformed("unknown form of a length")),
            (_, encoding) => return Ok(Length::Encoded(encoding)),
        }))
    }

    /// A number that stands for itself.
    pub(super) fn number(&mut self) -> Result<u64, RdbError> {
        match self.length()? {
            Length::Plain(number) => Ok(number),
            Length::Encoded(_) => Err(self.malformed("a string where a length is expected")),
        }
    }

    /// Fails if a value would take more memory than allowed.
    pub(super) fn take_room(&mut self, bytes: u64) -> Result<(), RdbError> {
        self.room.take(bytes).map_err(|what| self.refused(what))
    }

    /// Passes a packed string to `read`, with the sink for its elements.
    pub(super) fn unpack<T>(
        &mut self,
        out: &mut Strings,
        read: impl FnOnce(&[u8], &mut Sink<'_>) -> Result<T, Malformed>,
    ) -> Result<T, RdbError> {
        let bytes = self.owned_string()?;
        let found = read(&bytes, &mut self.sink(out)).map_err(|what| self.refused(what))?;
        self.room.release(bytes.len() as u64);
        Ok(found)
    }

    /// Fails if a string of a value is longer than allowed. Called before its bytes are read or
    /// decompressed.
    fn take_string(&mut self, bytes: u64) -> Result<(), RdbError> {
        if bytes > self.string_bytes_max {
            return Err(RdbError::TooLong { offset: self.offset });
        }
        self.take_room(bytes)
    }

    /// Appends a string in its decoded form.
    // Source: Redis 7.2 `rdb.c`, `rdbGenericLoadStringObject`
    pub(super) fn string(&mut self, out: &mut Vec<u8>) -> Result<(), RdbError> {
        let number = match self.length()? {
            Length::Plain(len) => {
                self.take_string(len)?;
                return self.bytes(len, out);
            }
            Length::Encoded(0) => i32::from(i8::from_le_bytes(self.array()?)),
            Length::Encoded(1) => i32::from(i16::from_le_bytes(self.array()?)),
            Length::Encoded(2) => i32::from_le_bytes(self.array()?),
            Length::Encoded(3) => return self.compressed(out),
            Length::Encoded(_) => return Err(self.malformed("unknown encoding of a string")),
        };
        let mut text = itoa::Buffer::new();
        let text = text.format(number).as_bytes();
        self.take_room(text.len() as u64)?;
        out.extend_from_slice(text);
        Ok(())
    }

    fn compressed(&mut self, out: &mut Vec<u8>) -> Result<(), RdbError> {
        let (compressed_len, len) = (self.number()?, self.number()?);
        self.take_string(len)?;
        // A longer one would only be there to fill the memory.
        if compressed_len > len.saturating_add(len / 32 + LZF_EXCESS_BYTES) {
            return Err(self.malformed("a compressed string that is longer than the string"));
        }
        let mut compressed = std::mem::take(&mut self.compressed);
        compressed.clear();
        self.bytes(compressed_len, &mut compressed)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let decoded = lzf::decode(&compressed, len, out);
        self.compressed = compressed;
        self.compressed.shrink_to(STEP_BYTES);
        decoded.map_err(|lzf::Malformed| self.malformed("a compressed string"))
    }

    pub(super) fn owned_string(&mut self) -> Result<Vec<u8>, RdbError> {
        let mut out = Vec::new();
        self.string(&mut out)?;
        Ok(out)
    }

    /// Appends `count` strings.
    pub(super) fn strings(&mut self, count: u64, out: &mut Strings) -> Result<(), RdbError> {
        for _ in 0..count {
            if out.len() >= self.elements_max {
                return Err(self.too_many());
            }
            self.take_room(ELEMENT_BYTES)?;
            self.string(out.begin())?;
            out.end();
        }
        Ok(())
    }

    pub(super) fn time_ms(&mut self) -> Result<u64, RdbError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
