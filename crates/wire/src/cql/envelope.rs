//! The header of every message.

use std::fmt;

use super::limits::{EnvelopeError, Limits, MalformedBody};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 9;
/// Set in the version byte of a server's messages.
const RESPONSE: u8 = 0x80;
/// Versions 1 and 2 have a stream of one byte, and so a header of 8.
const OLD_HEADER_BYTES: usize = 8;

/// A supported version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V3,
    V4,
    V5,
}

impl Version {
    pub const LOWEST: Self = Self::V3;
    pub const GREATEST: Self = Self::V5;

    pub fn number(self) -> u8 {
        match self {
            Self::V3 => 3,
            Self::V4 => 4,
            Self::V5 => 5,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            3 => Some(Self::V3),
            4 => Some(Self::V4),
            5 => Some(Self::V5),
            _ => None,
        }
    }
}

impl fmt::Display for Version {
    /// In Cassandra's form: `4/v4`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{0}/v{0}", self.number())
    }
}

/// The kind of a message.
// Source: native_protocol_v5.spec 2.3 "opcode"
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    Error = 0x00,
    Startup = 0x01,
    Ready = 0x02,
    Authenticate = 0x03,
    Options = 0x05,
    Supported = 0x06,
    Query = 0x07,
    Result = 0x08,
    Prepare = 0x09,
    Execute = 0x0A,
    Register = 0x0B,
    Event = 0x0C,
    Batch = 0x0D,
    AuthChallenge = 0x0E,
    AuthResponse = 0x0F,
    AuthSuccess = 0x10,
}

impl Opcode {
    const ALL: [Self; 16] = [
        Self::Error,
        Self::Startup,
        Self::Ready,
        Self::Authenticate,
        Self::Options,
        Self::Supported,
        Self::Query,
        Self::Result,
        Self::Prepare,
        Self::Execute,
        Self::Register,
        Self::Event,
        Self::Batch,
        Self::AuthChallenge,
        Self::AuthResponse,
        Self::AuthSuccess,
    ];

    pub fn from_byte(byte: u8) -> Result<Self, MalformedBody> {
        let found = Self::ALL.into_iter().find(|opcode| *opcode as u8 == byte);
        found.ok_or(MalformedBody::UnknownOpcode(byte))
    }
}

/// Flags of a header.
// Source: native_protocol_v5.spec 2.2 "flags"
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    pub const COMPRESSED: u8 = 0x01;
    pub const TRACING: u8 = 0x02;
    pub const CUSTOM_PAYLOAD: u8 = 0x04;
    pub const WARNING: u8 = 0x08;

    pub fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Request,
    Response,
}

/// The header of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub version: Version,
    pub flags: Flags,
    pub stream: i16,
    /// As it was sent: an unknown one is answered on the stream, and the connection continues.
    pub opcode: u8,
    pub body_bytes: usize,
}

impl Header {
    /// Decodes the header at the front of `input`; `None` if it is incomplete. A header with a
    /// length above the limits is rejected before its body has arrived.
    ///
    /// `agreed` is the version of the connection's first message, if there was one.
    // Source: native_protocol_v5.spec 2 "Frame header"
    pub fn decode(
        input: &[u8],
        direction: Direction,
        agreed: Option<Version>,
        limits: &Limits,
    ) -> Result<Option<Self>, EnvelopeError> {
        let Some(&first) = input.first() else { return Ok(None) };
        let is_response = first & RESPONSE != 0;
        if is_response != (direction == Direction::Response) {
            return Err(EnvelopeError::Direction(first));
        }
        let number = first & !RESPONSE;
        if number == 1 || number == 2 {
            let Some(header) = input.get(..OLD_HEADER_BYTES) else { return Ok(None) };
            let stream = i16::from(i8::from_be_bytes([header[2]]));
            return Err(EnvelopeError::UnsupportedVersion { version: number, stream });
        }
        let Some(&[_, flags, stream_high, stream_low, opcode, ref length @ ..]) =
            input.first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        let stream = i16::from_be_bytes([stream_high, stream_low]);
        let Some(version) = Version::from_number(number) else {
            return Err(EnvelopeError::UnsupportedVersion { version: number, stream });
        };
        if let Some(expected) = agreed
            && expected != version
        {
            return Err(EnvelopeError::VersionChanged { got: version, expected, stream });
        }
        let length = u32::from_be_bytes(*length);
        let length_max = limits.body_bytes_max;
        match usize::try_from(length) {
            Ok(body_bytes) if body_bytes <= length_max => {
                Ok(Some(Header { version, flags: Flags(flags), stream, opcode, body_bytes }))
            }
            _ => Err(EnvelopeError::TooLarge { length, length_max, stream }),
        }
    }

    /// Bytes of the whole message.
    pub fn envelope_bytes(&self) -> usize {
        HEADER_BYTES + self.body_bytes
    }
}

/// Appends a header whose length is filled in by [`end`]. Returns the header's position.
pub(super) fn begin(
    out: &mut Vec<u8>,
    direction: Direction,
    version: Version,
    flags: Flags,
    stream: i16,
    opcode: Opcode,
) -> usize {
    let start = out.len();
    let response = if direction == Direction::Response { RESPONSE } else { 0 };
    let [stream_high, stream_low] = stream.to_be_bytes();
    let first = version.number() | response;
    out.extend_from_slice(&[first, flags.0, stream_high, stream_low, opcode as u8, 0, 0, 0, 0]);
    start
}

/// Fills in the length of the message that begins at `start` and ends at the end of `out`.
pub(super) fn end(out: &mut [u8], start: usize) {
    let body_bytes = out.len() - start - HEADER_BYTES;
    let length = u32::try_from(body_bytes).expect("a body is checked to be below 2 GiB");
    out[start + HEADER_BYTES - 4..start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// Sets a flag of the message at `start`.
pub(super) fn set_flag(out: &mut [u8], start: usize, flag: u8) {
    out[start + 1] |= flag;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<Option<Header>, EnvelopeError> {
        Header::decode(input, Direction::Request, None, &Limits::DEFAULT)
    }

    #[test]
    fn a_header_is_read_when_it_is_whole() {
        let mut out = Vec::new();
        let flags = Flags(Flags::TRACING);
        let start = begin(&mut out, Direction::Request, Version::V4, flags, -7, Opcode::Query);
        out.extend_from_slice(b"body");
        end(&mut out, start);
        for cut in 0..HEADER_BYTES {
            assert_eq!(decoded(&out[..cut]), Ok(None), "{cut}");
        }
        let header = decoded(&out).unwrap().unwrap();
        assert_eq!((header.version, header.stream, header.body_bytes), (Version::V4, -7, 4));
        assert_eq!(header.envelope_bytes(), out.len());
        assert_eq!(Opcode::from_byte(header.opcode), Ok(Opcode::Query));
        assert!(header.flags.has(Flags::TRACING) && !header.flags.has(Flags::COMPRESSED));
    }

    #[test]
    fn unknown_versions_are_named_as_drivers_expect() {
        let error = decoded(&[0x42, 0, 0, 9, 5, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(error, EnvelopeError::UnsupportedVersion { version: 66, stream: 9 });
        assert_eq!(
            error.to_string(),
            "Invalid or unsupported protocol version (66); the lowest supported version is 3 and \
             the greatest is 5"
        );
        // The 8 bytes of an OPTIONS in version 2: a ninth never arrives.
        assert_eq!(decoded(&[2, 0, 3, 5, 0, 0, 0]), Ok(None));
        let error = decoded(&[2, 0, 3, 5, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(error, EnvelopeError::UnsupportedVersion { version: 2, stream: 3 });
    }

    #[test]
    fn false_headers_are_rejected_before_their_body() {
        let huge = [4, 0, 0, 1, 7, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(decoded(&huge).unwrap_err().stream(), 1);
        assert_eq!(decoded(&[0x84]), Err(EnvelopeError::Direction(0x84)));
        let changed = [4, 0, 0, 1, 7, 0, 0, 0, 0];
        let decoded =
            Header::decode(&changed, Direction::Request, Some(Version::V3), &Limits::DEFAULT);
        assert_eq!(
            decoded.unwrap_err().to_string(),
            "Invalid message version. Got 4/v4 but previous messages on this connection had \
             version 3/v3"
        );
    }

    #[test]
    fn opcodes_are_those_of_the_table() {
        let known = (0..=255).filter(|&byte| Opcode::from_byte(byte).is_ok()).count();
        assert_eq!(known, 16);
        assert_eq!(Opcode::from_byte(0x04), Err(MalformedBody::UnknownOpcode(4)));
    }
}
