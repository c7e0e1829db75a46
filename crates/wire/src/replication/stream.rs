//! The frames of one stream in their order, from which both ends compute the same checksum.
//!
//! The checksum of a [`Chain`] covers all contents since the beginning of the stream. A frame names
//! it, so that a reader finds at the next frame that contents were lost, repeated, reordered or
//! altered, by whichever part of either end.

use twox_hash::XxHash3_64;

use super::{
    HEADER_BYTES, Header, Kind, Opening, PAYLOAD_BYTES_MAX, RECORD_PREFIX_BYTES, Record,
    StreamError, put_frame, put_record, take_record,
};

const CHAIN_BYTES: usize = size_of::<u64>();
/// The number of bytes before compression.
const LENGTH_BYTES: usize = size_of::<u32>();
/// Bytes in a frame besides its contents.
pub(super) const EXTRA_BYTES: usize = CHAIN_BYTES + LENGTH_BYTES;

/// Shorter contents are not compressed: a frame of a few records shrinks little.
const COMPRESSED_FROM_BYTES: usize = 512;
/// Longer contents are not compressed: they would delay other streams.
const COMPRESSED_BYTES_MAX: usize = 16 << 20;
/// The most bytes that one byte of a block can expand to. Source: LZ4 block format, lengths of matches
const EXPANSION_MAX: usize = 255;
/// Capacity that a reader keeps.
const EXPANDED_BYTES_KEPT_MAX: usize = 512 << 10;

/// Longer parts are represented by their CRC. Measured: XXH3 takes 15 ns for 80 bytes, half of the
/// time of the CRC, but 140 ns for 300 bytes, three times as long.
const SHORT_BYTES_MAX: usize = 240;

/// Marks records in the checksum, whose kinds have the same numbers as kinds of frames.
const RECORD_TAG: u64 = 0x40;

/// What a reader of the stream understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Version 1: without checksum of the chain.
    Plain,
    /// Version 2.
    Chained,
    /// Version 2, with contents compressed where they shrink by an eighth or more.
    Compressed,
}

/// A checksum of the contents of a stream up to a frame or record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chain(pub u64);

impl Chain {
    fn add(&mut self, tag: u64, end: u64, bytes: &[u8]) {
        // Positions leave the upper bits free.
        let seed = self.0 ^ (end << 8 | tag);
        self.0 = if bytes.len() <= SHORT_BYTES_MAX {
            XxHash3_64::oneshot_with_seed(seed, bytes)
        } else {
            let mut digest = [0; 12];
            digest[..4].copy_from_slice(&crc32fast::hash(bytes).to_le_bytes());
            digest[4..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            XxHash3_64::oneshot_with_seed(seed, &digest)
        };
    }

    /// Adds a record.
    pub fn add_record(&mut self, record: &Record<'_>) {
        self.add(RECORD_TAG | u64::from(record.kind), record.end, record.payload);
    }

    /// Adds what a frame of another kind than [`Kind::Records`] contains.
    pub fn add_contents(&mut self, kind: Kind, end: u64, contents: &[u8]) {
        // A reader may leave out those.
        if !matches!(kind, Kind::Heartbeat | Kind::Times | Kind::Members) {
            self.add(kind as u64, end, contents);
        }
    }

    fn add_frame(&mut self, header: &Header, contents: &[u8]) -> Result<(), StreamError> {
        if header.kind != Kind::Records {
            self.add_contents(header.kind, header.end, contents);
            return Ok(());
        }
        let mut input = contents;
        while let Some(record) = take_record(header, &mut input)? {
            self.add_record(&record);
        }
        Ok(())
    }
}

/// Encodes the frames of one stream.
#[derive(Debug)]
pub struct FrameWriter {
    format: Format,
    chain: Chain,
}

impl FrameWriter {
    /// `chain`: of what precedes the frames.
    pub fn new(format: Format, chain: Chain) -> FrameWriter {
        FrameWriter { format, chain }
    }

    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// Appends a frame of another kind than [`Kind::Records`]; `fill` appends its contents.
    pub fn put(
        &mut self,
        kind: Kind,
        (base, end): (u64, u64),
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let at = out.len() + self.prefix_bytes();
        self.put_frame(kind, (base, end), out, |chain, out| {
            fill(out);
            chain.add_contents(kind, end, &out[at..]);
        });
    }

    /// Appends the first frame of a stream.
    pub fn put_opening(&mut self, kind: Kind, base: u64, opening: &Opening, out: &mut Vec<u8>) {
        let is_plain = self.format == Format::Plain;
        self.put(kind, (base, base), out, |out| {
            if is_plain { opening.encode_plain(out) } else { opening.encode(out) }
        });
    }

    /// Appends a frame of records, whose ends are at most 4 GiB after `base`.
    pub fn put_records(
        &mut self,
        (base, end): (u64, u64),
        records: &[Record<'_>],
        out: &mut Vec<u8>,
    ) {
        let payloads = records.iter().map(|record| record.payload.len() + RECORD_PREFIX_BYTES);
        out.reserve(self.prefix_bytes() + payloads.sum::<usize>());
        // From the records themselves, so that the checksum covers their encoding.
        for record in records {
            self.chain.add_record(record);
        }
        self.put_frame(Kind::Records, (base, end), out, |_, out| {
            for record in records {
                put_record(base, record, out);
            }
        });
    }

    /// Appends a frame that a [`FrameReader`] has opened.
    pub fn put_again(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), StreamError> {
        let Header { kind, base, end, .. } = frame.header;
        if matches!(kind, Kind::Resume | Kind::Copy) {
            // The versions have different contents.
            self.put_opening(kind, base, &Opening::decode(frame)?, out);
            return Ok(());
        }
        self.chain.add_frame(&frame.header, frame.contents)?;
        self.put_frame(kind, (base, end), out, |_, out| out.extend_from_slice(frame.contents));
        Ok(())
    }

    /// Bytes of a frame before its contents.
    fn prefix_bytes(&self) -> usize {
        HEADER_BYTES + if self.format == Format::Plain { 0 } else { CHAIN_BYTES }
    }

    fn put_frame(
        &mut self,
        kind: Kind,
        (base, end): (u64, u64),
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Chain, &mut Vec<u8>),
    ) {
        let (start, at) = (out.len(), out.len() + self.prefix_bytes());
        out.resize(at, 0);
        fill(&mut self.chain, out);
        if self.format != Format::Plain {
            out[start + HEADER_BYTES..at].copy_from_slice(&self.chain.0.to_le_bytes());
        }
        let is_compressed = self.format == Format::Compressed && compress(at, out);
        let version = if self.format == Format::Plain { 1 } else { 2 };
        put_frame(&mut out[start..], (version, is_compressed), kind, (base, end));
    }
}

/// Compresses the contents from `at` on. False if that does not pay.
fn compress(at: usize, out: &mut Vec<u8>) -> bool {
    let contents = &out[at..];
    if !(COMPRESSED_FROM_BYTES..=COMPRESSED_BYTES_MAX).contains(&contents.len()) {
        return false;
    }
    let block = lz4_flex::block::compress(contents);
    if block.len() + LENGTH_BYTES > contents.len() - contents.len() / 8 {
        return false;
    }
    let length = u32::try_from(contents.len()).expect("at most COMPRESSED_BYTES_MAX");
    out.truncate(at);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&block);
    true
}

/// A frame whose checksums are right.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    pub header: Header,
    /// The payload without checksum, and not compressed.
    pub contents: &'a [u8],
    /// The checksum of the contents of the stream up to the end of this frame.
    pub chain: Chain,
}

/// Checks the frames of one stream.
#[derive(Debug, Default)]
pub struct FrameReader {
    chain: Chain,
    /// The version of the first frame.
    version: Option<u8>,
    expanded: Vec<u8>,
}

impl FrameReader {
    /// Reads frames of version 2 that follow contents with this checksum.
    pub fn after(chain: Chain) -> FrameReader {
        FrameReader { chain, version: Some(2), expanded: Vec::new() }
    }

    /// Checks the payload of the next frame.
    pub fn open<'a>(
        &'a mut self,
        header: &Header,
        payload: &'a [u8],
    ) -> Result<Frame<'a>, StreamError> {
        header.check(payload)?;
        if *self.version.get_or_insert(header.version) != header.version {
            return Err(StreamError::Malformed("it has another version than the one before it"));
        }
        let malformed = StreamError::Malformed("compressed contents");
        let named = payload.split_first_chunk::<CHAIN_BYTES>();
        let (named, contents) = match named.filter(|_| header.version == 2) {
            Some((named, contents)) => (Some(Chain(u64::from_le_bytes(*named))), contents),
            None => (None, payload),
        };
        let contents = if header.is_compressed {
            expand(contents, &mut self.expanded).ok_or(malformed)?;
            &self.expanded
        } else {
            contents
        };
        self.chain.add_frame(header, contents)?;
        let chain = self.chain;
        if let Some(named) = named.filter(|named| *named != chain) {
            return Err(StreamError::Chain {
                base: header.base,
                end: header.end,
                named: named.0,
                found: chain.0,
            });
        }
        Ok(Frame { header: *header, contents, chain })
    }
}

/// Decompresses into `expanded`. `None`: malformed.
fn expand(compressed: &[u8], expanded: &mut Vec<u8>) -> Option<()> {
    let (length, block) = compressed.split_first_chunk::<LENGTH_BYTES>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    // Checked before memory is allocated: a few bytes must not take much.
    if length > PAYLOAD_BYTES_MAX || length / EXPANSION_MAX > block.len() {
        return None;
    }
    expanded.clear();
    expanded.shrink_to(EXPANDED_BYTES_KEPT_MAX);
    expanded.resize(length, 0);
    let count = lz4_flex::block::decompress_into(block, expanded).ok()?;
    (count == length).then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::replication::{CqlEndpoint, Epoch, Member, Time, put_block, put_members, put_time};

    const RECORDS: [Record<'_>; 3] = [
        Record { kind: 1, payload: b"one", end: 116 },
        Record { kind: 2, payload: b"", end: 129 },
        Record { kind: 1, payload: b"three", end: 150 },
    ];

    fn opening() -> Opening {
        let epochs = vec![Epoch { id: [b'a'; 40], start: 0 }];
        Opening { seed: 7, program: "1.2.3".to_owned(), epochs }
    }

    /// A stream as separate frames.
    fn frames(format: Format, blocks: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut writer = FrameWriter::new(format, Chain::default());
        let mut frames = Vec::new();
        let mut keep = |writer: &mut FrameWriter, fill: &dyn Fn(&mut FrameWriter, &mut Vec<u8>)| {
            let mut out = Vec::new();
            fill(writer, &mut out);
            frames.push(out);
        };
        keep(&mut writer, &|writer, out| writer.put_opening(Kind::Copy, 100, &opening(), out));
        for block in blocks {
            keep(&mut writer, &|writer, out| {
                writer.put(Kind::Block, (100, 100), out, |out| put_block(3, block, out));
            });
        }
        keep(&mut writer, &|writer, out| writer.put_records((100, 130), &RECORDS[..2], out));
        keep(&mut writer, &|writer, out| {
            writer.put(Kind::Heartbeat, (130, 140), out, |_| {});
        });
        // Neither is a part of the chain.
        let member = Member { host: [1; 16], is_master: true, cql: CqlEndpoint::default() };
        keep(&mut writer, &|writer, out| {
            writer.put(Kind::Members, (140, 140), out, |out| put_members(&[member], out));
        });
        keep(&mut writer, &|writer, out| {
            let time = Time { position: 140, unix_us: 1 };
            writer.put(Kind::Times, (140, 140), out, |out| put_time(time, out));
        });
        keep(&mut writer, &|writer, out| writer.put_records((140, 150), &RECORDS[2..], out));
        frames
    }

    /// The contents of the frames, or the first error.
    fn read(frames: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, StreamError> {
        let mut reader = FrameReader::default();
        let contents = |frame: &Vec<u8>| {
            let (head, payload) = frame.split_first_chunk().unwrap();
            let header = Header::decode(head)?;
            Ok(reader.open(&header, payload)?.contents.to_vec())
        };
        frames.iter().map(contents).collect()
    }

    #[test]
    fn every_format_has_the_same_contents() {
        let blocks = [vec![b'x'; 3000], b"short".to_vec(), vec![b'y'; 511]];
        let [plain, chained, compressed] =
            [Format::Plain, Format::Chained, Format::Compressed].map(|one| frames(one, &blocks));
        let expected = read(&chained).unwrap();
        assert_eq!(read(&compressed).unwrap(), expected);
        assert_eq!(read(&plain).unwrap()[1..], expected[1..]);
        let bytes = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).sum::<usize>();
        assert_eq!(bytes(&chained), bytes(&plain) + 8 * plain.len() + 1 + "1.2.3".len());
        assert!(bytes(&compressed) < bytes(&chained) - 2900);
        assert!(plain.iter().all(|frame| frame[4] == 1), "as older versions read it");
    }

    #[test]
    fn opened_frames_are_written_again_in_another_format() {
        let blocks = [vec![b'x'; 3000], b"short".to_vec()];
        let all = [Format::Plain, Format::Chained, Format::Compressed];
        let [plain, ..] = all.map(|one| frames(one, &blocks));
        let unnamed = Opening { program: String::new(), ..opening() };
        for format in all {
            let mut reader = FrameReader::default();
            let mut writer = FrameWriter::new(format, Chain::default());
            let mut again = Vec::new();
            for frame in &plain {
                let (head, payload) = frame.split_first_chunk().unwrap();
                let header = Header::decode(head).unwrap();
                let mut out = Vec::new();
                writer.put_again(&reader.open(&header, payload).unwrap(), &mut out).unwrap();
                again.push(out);
            }
            assert_eq!(read(&again).unwrap()[1..], read(&plain).unwrap()[1..]);
            let (head, payload) = again[0].split_first_chunk().unwrap();
            let mut reader = FrameReader::default();
            let frame = reader.open(&Header::decode(head).unwrap(), payload).unwrap();
            assert_eq!(Opening::decode(&frame).unwrap(), unnamed);
        }
    }

    #[test]
    fn what_does_not_shrink_is_not_compressed() {
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .take(4000)
        .collect();
        let blocks = [noise];
        assert_eq!(frames(Format::Compressed, &blocks), frames(Format::Chained, &blocks));
    }

    #[test]
    fn lost_repeated_and_exchanged_frames_are_found() {
        let blocks = [b"a".to_vec(), b"b".to_vec()];
        let whole = frames(Format::Chained, &blocks);
        let check = |change: &dyn Fn(&mut Vec<Vec<u8>>), is_found| {
            let mut changed = whole.clone();
            change(&mut changed);
            let error = read(&changed).err();
            assert_eq!(matches!(error, Some(StreamError::Chain { .. })), is_found, "{error:?}");
        };
        check(&|_| {}, false);
        let is_part = |frame: &Vec<u8>| {
            let apart = [Kind::Heartbeat, Kind::Times, Kind::Members];
            !apart.iter().any(|kind| frame[5] == *kind as u8)
        };
        for at in 0..whole.len() - 1 {
            check(&|frames| drop(frames.remove(at)), is_part(&whole[at]));
            check(&|frames| frames.insert(at, whole[at].clone()), is_part(&whole[at]));
            let is_found = is_part(&whole[at]) || is_part(&whole[at + 1]);
            check(&|frames| frames.swap(at, at + 1), is_found);
        }
    }

    #[test]
    fn the_order_and_the_end_of_records_count() {
        let chain = |records: &[Record<'_>]| {
            let mut chain = Chain::default();
            for record in records {
                chain.add_record(record);
            }
            chain
        };
        let [one, two, three] = RECORDS;
        let whole = chain(&RECORDS);
        let longer = Record { end: three.end + 1, ..three };
        let others: [&[Record<'_>]; 6] = [
            &[one, two],
            &[one, three, two],
            &[one, one, two, three],
            &[one, two, longer],
            &[one, two, Record { kind: 2, ..three }],
            &[one, two, Record { payload: b"threE", ..three }],
        ];
        for other in others {
            assert_ne!(chain(other), whole, "{other:?}");
        }
    }

    #[test]
    fn a_length_alone_takes_no_memory() {
        let check = |contents: &[u8]| {
            let mut frame = vec![0; HEADER_BYTES + CHAIN_BYTES];
            frame.extend_from_slice(contents);
            put_frame(&mut frame, (2, true), Kind::Block, (0, 0));
            let mut reader = FrameReader::default();
            let (head, payload) = frame.split_first_chunk().unwrap();
            let header = Header::decode(head).unwrap();
            let malformed = StreamError::Malformed("compressed contents");
            assert_eq!(reader.open(&header, payload).unwrap_err(), malformed);
            assert_eq!(reader.expanded.capacity(), 0);
        };
        check(b"");
        check(b"abc");
        check(&[0xff, 0xff, 0xff, 0x3f, 1, 2, 3]);
        check(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3]);
    }

    #[test]
    fn frames_of_several_versions_are_no_stream() {
        let (plain, chained) = (frames(Format::Plain, &[]), frames(Format::Chained, &[]));
        let mixed = [chained[0].clone(), plain[1].clone()];
        assert!(matches!(read(&mixed), Err(StreamError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn compressed_contents_are_expanded_or_refused(
            block in prop::collection::vec(0..4_u8, 0..3000),
            cut in any::<prop::sample::Index>(),
        ) {
            let whole = frames(Format::Compressed, std::slice::from_ref(&block));
            let contents = &read(&whole).unwrap()[1];
            prop_assert_eq!(&contents[4..], &block[..]);
            let mut frame = whole[1].clone();
            frame.truncate(HEADER_BYTES + CHAIN_BYTES + cut.index(frame.len() - HEADER_BYTES - CHAIN_BYTES));
            let is_compressed = frame[6] == 1;
            put_frame(&mut frame, (2, is_compressed), Kind::Block, (100, 100));
            let refused = read(&[whole[0].clone(), frame]);
            prop_assert!(refused.is_err());
        }
    }
}
