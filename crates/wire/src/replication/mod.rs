//! Frames of the replication stream: `docs/internals/replication.md` specifies them.
//!
//! A stream is a sequence of frames on a connection of the Redis protocol, after the reply to
//! PSYNC. Positions are those of the stream; a frame of records continues where the one before it
//! ended.

mod stream;

use std::net::{IpAddr, Ipv6Addr};

use thiserror::Error;

use stream::EXTRA_BYTES;
pub use stream::{Chain, Format, Frame, FrameReader, FrameWriter};

/// Bytes of a frame before its payload.
pub const HEADER_BYTES: usize = 36;
/// Maximum contents of a frame: a record of the log of the maximum length, with its header.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 30) + 64;
/// Payload after which the source begins another frame.
pub const FRAME_BYTES: usize = 256 << 10;

/// The value of REPLCONF `capa` by which a replica requests this stream instead of an RDB file.
pub const CAPABILITY: &str = "myriad-stream-1";
/// The value of REPLCONF `capa` by which a reader of the stream requests frames of version 2.
pub const CHAIN_CAPABILITY: &str = "myriad-stream-2";
/// The value of REPLCONF `capa` by which a reader of the stream announces that it only stores it,
/// so that it is not a replica.
pub const ARCHIVE_CAPABILITY: &str = "myriad-archive-1";

/// The value of REPLCONF `capa` by which a reader of the stream requests [`Kind::Times`].
pub const TIMES_CAPABILITY: &str = "myriad-times-1";

/// The value of REPLCONF `capa` by which a replica requests [`Kind::Members`].
pub const MEMBERS_CAPABILITY: &str = "myriad-members-1";

/// Positions fit the integers of the Redis protocol.
const POSITION_MAX: u64 = i64::MAX as u64;

const MAGIC: [u8; 4] = *b"MYRS";
/// Frames of version 1 have no checksum of the chain.
const VERSION: u8 = 2;
const VERSION_MIN: u8 = 1;
/// Set if the contents are compressed.
const COMPRESSED: u8 = 1;
const RECORD_HEADER_BYTES: usize = 9;
const EPOCH_BYTES: usize = 48;

/// Name of an epoch: 40 hexadecimal digits, as those of Redis's replication IDs.
pub type EpochId = [u8; 40];

/// From position `start` on, the server that chose `id` assigned the positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    pub id: EpochId,
    pub start: u64,
}

/// What a frame contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The beginning of a stream that continues at a position: [`Opening`].
    Resume = 1,
    /// The beginning of a stream that starts with a copy of all data: [`Opening`].
    Copy = 2,
    /// Mutations that build a part of the copy: [`put_block`].
    Block = 3,
    /// The end of the copy: [`Copied`].
    Copied = 4,
    /// Records: [`put_record`].
    Records = 5,
    /// Nothing new up to the frame's position; the payload is empty.
    Heartbeat = 6,
    /// When positions before the frame's became durable: [`put_time`].
    Times = 7,
    /// To a peer of a group of masters: values of keys with their versions, and rows, as mutations.
    States = 8,
    /// The servers that drivers of CQL should know: [`put_members`].
    Members = 9,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::{Block, Copied, Copy, Heartbeat, Members, Records, Resume, States, Times};
        let all = [Resume, Copy, Block, Copied, Records, Heartbeat, Times, States, Members];
        all.into_iter().find(|one| *one as u8 == byte)
    }
}

/// Why a stream cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StreamError {
    #[error("the bytes are not a frame of a replication stream")]
    NoFrame,
    #[error("the stream has version {0}, and this server reads {VERSION_MIN} to {VERSION}")]
    Version(u8),
    #[error("a frame is damaged: its checksum is wrong")]
    Checksum,
    #[error("a frame of {0} bytes is too long")]
    TooLong(u64),
    #[error(
        "the stream is not the one that was sent: a frame before position {end} was lost, repeated, \
         reordered or altered (the chain up to the frame at {base} has the checksum {found:016x}, \
         the sender computed {named:016x})"
    )]
    Chain { base: u64, end: u64, named: u64, found: u64 },
    #[error("a frame is malformed: {0}")]
    Malformed(&'static str),
}

/// Fills in the header of a frame, whose payload follows it. `format`: its version, and whether its
/// contents are compressed.
fn put_frame(frame: &mut [u8], format: (u8, bool), kind: Kind, (base, end): (u64, u64)) {
    let (header, payload) = frame.split_at_mut(HEADER_BYTES);
    header[..4].copy_from_slice(&MAGIC);
    (header[4], header[5]) = (format.0, kind as u8);
    header[6] = if format.1 { COMPRESSED } else { 0 };
    header[12..20].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    header[20..28].copy_from_slice(&base.to_le_bytes());
    header[28..36].copy_from_slice(&end.to_le_bytes());
    let crc = checksum(header, payload);
    header[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// CRC-32 of the header without the checksum, then of the payload.
fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..8]);
    hasher.update(&header[12..HEADER_BYTES]);
    hasher.update(payload);
    hasher.finalize()
}

/// The header of a frame, whose payload is not yet checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    version: u8,
    is_compressed: bool,
    pub kind: Kind,
    pub base: u64,
    pub end: u64,
    pub payload_bytes: usize,
    bytes: [u8; HEADER_BYTES],
}

impl Header {
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, StreamError> {
        if bytes[..4] != MAGIC {
            return Err(StreamError::NoFrame);
        }
        let version = bytes[4];
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(StreamError::Version(version));
        }
        let is_compressed = version == 2 && bytes[6] == COMPRESSED;
        if version == 2 && (bytes[6] > COMPRESSED || bytes[7] != 0) {
            return Err(StreamError::Malformed("unknown flags"));
        }
        let kind = Kind::of(bytes[5]).ok_or(StreamError::Malformed("unknown kind"))?;
        let length = le64(&bytes[12..]);
        let payload_bytes =
            usize::try_from(length).ok().filter(|bytes| *bytes <= PAYLOAD_BYTES_MAX + EXTRA_BYTES);
        let payload_bytes = payload_bytes.ok_or(StreamError::TooLong(length))?;
        if version == 2 && payload_bytes < size_of::<u64>() {
            return Err(StreamError::Malformed("it has no checksum of the chain"));
        }
        let (base, end) = (le64(&bytes[20..]), le64(&bytes[28..]));
        if end < base || end > POSITION_MAX {
            return Err(StreamError::Malformed("its positions are out of range"));
        }
        Ok(Header { version, is_compressed, kind, base, end, payload_bytes, bytes: *bytes })
    }

    /// Checks the payload that follows the header.
    fn check(&self, payload: &[u8]) -> Result<(), StreamError> {
        let expected = u32::from_le_bytes(self.bytes[8..12].try_into().expect("four bytes"));
        let is_right =
            payload.len() == self.payload_bytes && checksum(&self.bytes, payload) == expected;
        if is_right { Ok(()) } else { Err(StreamError::Checksum) }
    }
}

/// The payload of [`Kind::Resume`] and [`Kind::Copy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Seed of the key hash that divides the copy into stripes.
    pub seed: u64,
    /// Version of the program that sends the stream; empty in a stream of version 1.
    pub program: String,
    /// Oldest first.
    pub epochs: Vec<Epoch>,
}

/// Epochs that a server remembers.
pub const EPOCHS_MAX: usize = 64;

impl Opening {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seed.to_le_bytes());
        let length = u8::try_from(self.program.len()).expect("a version is short");
        out.push(length);
        out.extend_from_slice(self.program.as_bytes());
        put_epochs(&self.epochs, out);
    }

    /// The contents in a frame of version 1.
    fn encode_plain(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seed.to_le_bytes());
        put_epochs(&self.epochs, out);
    }

    pub fn decode(frame: &Frame<'_>) -> Result<Opening, StreamError> {
        Self::take(frame).ok_or(StreamError::Malformed("opening"))
    }

    fn take(frame: &Frame<'_>) -> Option<Opening> {
        let (seed, mut rest) = frame.contents.split_first_chunk::<8>()?;
        let mut program = String::new();
        if frame.header.version > 1 {
            let ([length], named) = rest.split_first_chunk::<1>()?;
            let (named, epochs) = named.split_at_checked(usize::from(*length))?;
            // It is shown in logs and replies.
            let is_shown = named.iter().all(u8::is_ascii_graphic);
            program.push_str(std::str::from_utf8(named).ok().filter(|_| is_shown)?);
            rest = epochs;
        }
        let epochs = take_epochs(rest)?;
        Some(Opening { seed: u64::from_le_bytes(*seed), program, epochs })
    }
}

/// Appends epochs: 48 bytes each.
pub fn put_epochs(epochs: &[Epoch], out: &mut Vec<u8>) {
    for epoch in epochs {
        out.extend_from_slice(&epoch.id);
        out.extend_from_slice(&epoch.start.to_le_bytes());
    }
}

/// Decodes epochs. `None` unless they are in order, at least one and at most [`EPOCHS_MAX`].
pub fn take_epochs(bytes: &[u8]) -> Option<Vec<Epoch>> {
    let (chunks, rest) = bytes.as_chunks::<EPOCH_BYTES>();
    let epoch = |chunk: &[u8; EPOCH_BYTES]| {
        let (id, start) = chunk.split_first_chunk::<40>().expect("48 bytes");
        id.iter().all(u8::is_ascii_hexdigit).then(|| Epoch { id: *id, start: le64(start) })
    };
    let epochs = chunks.iter().map(epoch).collect::<Option<Vec<_>>>()?;
    let is_valid = rest.is_empty()
        && (1..=EPOCHS_MAX).contains(&epochs.len())
        && epochs.is_sorted_by_key(|epoch| epoch.start);
    is_valid.then_some(epochs)
}

/// Appends the payload of [`Kind::Block`]: the mutations of keys of one stripe of the source. They
/// contain all records of the stripe that end at or before the frame's position.
pub fn put_block(stripe: u32, mutations: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&stripe.to_le_bytes());
    out.extend_from_slice(mutations);
}

/// Decodes the payload of [`Kind::Block`].
pub fn take_block(payload: &[u8]) -> Result<(u32, &[u8]), StreamError> {
    let (stripe, mutations) =
        payload.split_first_chunk::<4>().ok_or(StreamError::Malformed("block"))?;
    Ok((u32::from_le_bytes(*stripe), mutations))
}

/// The payload of [`Kind::Copied`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// The data is consistent once all records before this position are applied.
    pub reach: u64,
    /// Keys and partitions of all blocks.
    pub keys: u64,
    /// The newest timestamp that the source had given to a CQL write, in microseconds.
    pub newest_timestamp: i64,
}

impl Copied {
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.reach.to_le_bytes());
        out.extend_from_slice(&self.keys.to_le_bytes());
        out.extend_from_slice(&self.newest_timestamp.to_le_bytes());
    }

    pub fn decode(payload: &[u8]) -> Result<Copied, StreamError> {
        let ([reach, keys, newest], []) = payload.as_chunks::<8>() else {
            return Err(StreamError::Malformed("end of the copy"));
        };
        Ok(Copied {
            reach: u64::from_le_bytes(*reach),
            keys: u64::from_le_bytes(*keys),
            newest_timestamp: i64::from_le_bytes(*newest),
        })
    }
}

/// A record of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    pub kind: u8,
    pub payload: &'a [u8],
    /// Position in the stream at which the record ends.
    pub end: u64,
}

/// A record before its payload: kind, length, end.
const RECORD_PREFIX_BYTES: usize = size_of::<u8>() + 2 * size_of::<u32>();

/// Appends a record to the payload of [`Kind::Records`]. `base`: of the frame, at most 4 GiB before
/// the record's end.
pub fn put_record(base: u64, record: &Record<'_>, out: &mut Vec<u8>) {
    let end = u32::try_from(record.end - base).expect("a frame is shorter than 4 GiB");
    let length = u32::try_from(record.payload.len()).expect("at most 2^30");
    out.push(record.kind);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&end.to_le_bytes());
    out.extend_from_slice(record.payload);
}

/// Takes the next record from the payload of a frame; `None` at its end. The ends of records grow.
pub fn take_record<'a>(
    header: &Header,
    input: &mut &'a [u8],
) -> Result<Option<Record<'a>>, StreamError> {
    if input.is_empty() {
        return Ok(None);
    }
    let malformed = StreamError::Malformed("record");
    let (head, rest) = input.split_first_chunk::<RECORD_HEADER_BYTES>().ok_or(malformed)?;
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let offset = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
    let length = usize::try_from(length).map_err(|_| malformed)?;
    let (payload, rest) = rest.split_at_checked(length).ok_or(malformed)?;
    let end = header.base.saturating_add(u64::from(offset));
    if end > header.end {
        return Err(malformed);
    }
    *input = rest;
    Ok(Some(Record { kind: head[0], payload, end }))
}

/// From this time on, everything before the position was durable on the source, and nothing after
/// it until the time of a later position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    pub position: u64,
    /// Microseconds since the Unix epoch.
    pub unix_us: i64,
}

/// Appends a time to the payload of [`Kind::Times`].
pub fn put_time(time: Time, out: &mut Vec<u8>) {
    out.extend_from_slice(&time.position.to_le_bytes());
    out.extend_from_slice(&time.unix_us.to_le_bytes());
}

/// Decodes the payload of [`Kind::Times`]: positions that grow and are not after the frame's.
pub fn take_times(header: &Header, payload: &[u8]) -> Result<Vec<Time>, StreamError> {
    let malformed = StreamError::Malformed("times");
    let (chunks, []) = payload.as_chunks::<16>() else { return Err(malformed) };
    let time =
        |chunk: &[u8; 16]| Time { position: le64(chunk), unix_us: le64(&chunk[8..]).cast_signed() };
    let times: Vec<Time> = chunks.iter().map(time).collect();
    let is_in_range = times.last().is_none_or(|last| last.position <= header.base);
    let is_valid = is_in_range && times.is_sorted_by_key(|time| time.position);
    is_valid.then_some(times).ok_or(malformed)
}

/// Where a server serves CQL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CqlEndpoint {
    /// `None`: that of its connection to the server that asks.
    pub ip: Option<IpAddr>,
    /// Of connections without TLS; 0: there are none.
    pub port: u16,
    /// Of connections with TLS; 0: there are none.
    pub tls_port: u16,
}

/// A server of a replication, as drivers of CQL see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its permanent identity.
    pub host: [u8; 16],
    pub is_master: bool,
    pub cql: CqlEndpoint,
}

/// Members that a frame lists.
pub const MEMBERS_MAX: usize = 64;
const MEMBER_BYTES: usize = 37;

/// Appends the payload of [`Kind::Members`]. The first member is the sender.
pub fn put_members(members: &[Member], out: &mut Vec<u8>) {
    for Member { host, is_master, cql } in &members[..members.len().min(MEMBERS_MAX)] {
        let ip = match cql.ip {
            None => Ipv6Addr::UNSPECIFIED,
            Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped(),
            Some(IpAddr::V6(ip)) => ip,
        };
        out.push(u8::from(*is_master));
        out.extend_from_slice(host);
        out.extend_from_slice(&ip.octets());
        out.extend_from_slice(&cql.port.to_le_bytes());
        out.extend_from_slice(&cql.tls_port.to_le_bytes());
    }
}

/// Decodes the payload of [`Kind::Members`].
pub fn take_members(payload: &[u8]) -> Result<Vec<Member>, StreamError> {
    let malformed = StreamError::Malformed("members");
    let (chunks, []) = payload.as_chunks::<MEMBER_BYTES>() else { return Err(malformed) };
    if chunks.len() > MEMBERS_MAX {
        return Err(malformed);
    }
    chunks.iter().map(|chunk| take_member(chunk).ok_or(malformed)).collect()
}

fn take_member(chunk: &[u8; MEMBER_BYTES]) -> Option<Member> {
    let ([flags], rest) = chunk.split_first_chunk()?;
    let (host, rest) = rest.split_first_chunk::<16>()?;
    let (ip, ports) = rest.split_first_chunk::<16>()?;
    let ip = Some(Ipv6Addr::from(*ip)).filter(|ip| !ip.is_unspecified());
    let ip = ip.map(|ip| IpAddr::V6(ip).to_canonical());
    let port = |at: usize| u16::from_le_bytes([ports[at], ports[at + 1]]);
    let cql = CqlEndpoint { ip, port: port(0), tls_port: port(2) };
    (*flags <= 1).then_some(Member { host: *host, is_master: *flags == 1, cql })
}

fn le64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// Decodes arbitrary bytes in every way: for the fuzz target and the test of random bytes.
pub fn check(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    let Ok(header) = Header::decode(head) else { return };
    let _is_whole = FrameReader::default().open(&header, rest);
    let frame = Frame { header, contents: rest, chain: Chain::default() };
    let mut input = rest;
    while let Ok(Some(record)) = take_record(&header, &mut input) {
        assert!((header.base..=header.end).contains(&record.end), "an end inside the frame");
    }
    if let Ok(opening) = Opening::decode(&frame) {
        let mut again = Vec::new();
        if header.version == 1 {
            opening.encode_plain(&mut again);
        } else {
            opening.encode(&mut again);
        }
        assert_eq!(again, rest);
    }
    if let Ok(copied) = Copied::decode(rest) {
        let mut again = Vec::new();
        copied.encode(&mut again);
        assert_eq!(again, rest);
    }
    if let Ok(members) = take_members(rest) {
        let mut again = Vec::new();
        put_members(&members, &mut again);
        assert_eq!(again, rest);
    }
    if let Ok(times) = take_times(&header, rest) {
        let mut again = Vec::new();
        for time in times {
            put_time(time, &mut again);
        }
        assert_eq!(again, rest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: Kind, base: u64, end: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = FrameWriter::new(Format::Plain, Chain::default());
        writer.put(kind, (base, end), &mut out, |out| out.extend_from_slice(payload));
        out
    }

    fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), StreamError> {
        let (head, payload) = bytes.split_first_chunk().unwrap();
        let header = Header::decode(head)?;
        header.check(payload)?;
        Ok((header, payload))
    }

    #[test]
    fn the_bytes_of_a_frame() {
        let bytes = frame(Kind::Records, 7, 0x0102, b"ab");
        let head = b"MYRS\x01\x05\0\0\x87\xd5\x39\xf0\x02\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0";
        assert_eq!(bytes[..8], head[..8]);
        assert_eq!(bytes[12..36], head[12..]);
        assert_eq!(&bytes[36..], b"ab");
        let (header, payload) = decode(&bytes).unwrap();
        assert_eq!((header.kind, header.base, header.end), (Kind::Records, 7, 0x0102));
        assert_eq!(payload, b"ab");
    }

    #[test]
    fn every_bit_is_checked() {
        let bytes = frame(Kind::Copy, 1, 2, b"payload");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn members_come_back() {
        let member = |number: u8, ip: Option<&str>| Member {
            host: [number; 16],
            is_master: number == 1,
            cql: CqlEndpoint {
                ip: ip.map(|ip| ip.parse().unwrap()),
                port: 9042,
                tls_port: u16::from(number),
            },
        };
        let members =
            [member(1, None), member(2, Some("10.0.0.2")), member(3, Some("2001:db8::3"))];
        let mut payload = Vec::new();
        put_members(&members, &mut payload);
        assert_eq!(payload.len(), 3 * MEMBER_BYTES);
        assert_eq!(take_members(&payload), Ok(members.to_vec()));
        let malformed = Err(StreamError::Malformed("members"));
        assert_eq!(take_members(&payload[1..]), malformed);
        payload[0] = 2;
        assert_eq!(take_members(&payload), malformed, "an unknown flag");
        assert_eq!(take_members(&[0; (MEMBERS_MAX + 1) * MEMBER_BYTES]), malformed);
        assert_eq!(take_members(&[]), Ok(Vec::new()));
    }

    #[test]
    fn records_come_back() {
        let mut bytes = Vec::new();
        let records = [
            Record { kind: 1, payload: b"one", end: 116 },
            Record { kind: 2, payload: b"", end: 129 },
        ];
        let mut writer = FrameWriter::new(Format::Plain, Chain::default());
        writer.put_records((100, 129), &records, &mut bytes);
        let (header, mut payload) = decode(&bytes).unwrap();
        let mut found = Vec::new();
        while let Some(record) = take_record(&header, &mut payload).unwrap() {
            found.push(record);
        }
        assert_eq!(found, records);
        let late = Header { end: 128, ..header };
        let mut payload = &bytes[HEADER_BYTES..];
        take_record(&late, &mut payload).unwrap();
        assert_eq!(take_record(&late, &mut payload), Err(StreamError::Malformed("record")));
    }

    #[test]
    fn epochs_are_in_order_and_few() {
        let epoch = |start| Epoch { id: [b'a'; 40], start };
        let encoded = |epochs: &[Epoch]| {
            let mut out = Vec::new();
            put_epochs(epochs, &mut out);
            out
        };
        let epochs = vec![epoch(0), epoch(5), epoch(5)];
        assert_eq!(take_epochs(&encoded(&epochs)), Some(epochs));
        assert_eq!(take_epochs(&encoded(&[])), None);
        assert_eq!(take_epochs(&encoded(&[epoch(5), epoch(4)])), None);
        assert_eq!(take_epochs(&encoded(&vec![epoch(0); EPOCHS_MAX + 1])), None);
        assert_eq!(take_epochs(&encoded(&[Epoch { id: [b' '; 40], start: 0 }])), None);
    }

    #[test]
    fn a_long_payload_is_refused_before_it_is_read() {
        let mut bytes = frame(Kind::Block, 0, 0, b"");
        bytes[12..20].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(decode(&bytes).unwrap_err(), StreamError::TooLong(u64::MAX));
        bytes[4] = 9;
        assert_eq!(decode(&bytes).unwrap_err(), StreamError::Version(9));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_panic(
            mut bytes: Vec<u8>, version in 1u8..=2, flags in 0u8..2, kind in 0u8..=9,
        ) {
            check(&bytes);
            if bytes.len() >= HEADER_BYTES {
                bytes[..4].copy_from_slice(&MAGIC);
                (bytes[4], bytes[5], bytes[6], bytes[7]) = (version, kind, flags, 0);
                let length = (bytes.len() - HEADER_BYTES) as u64;
                bytes[12..20].copy_from_slice(&length.to_le_bytes());
                bytes[20..28].fill(0);
                bytes[28..30].fill(0);
                let crc = checksum(&bytes, &bytes[HEADER_BYTES..]);
                bytes[8..12].copy_from_slice(&crc.to_le_bytes());
                check(&bytes);
            }
        }
    }
}
