//! The files of a backup: `docs/internals/backup-format.md` specifies them.
//!
//! Each file holds frames of the replication stream as they were received. The files of a chain
//! begin with a copy of all data and continue each other; each one names the checksum of the one
//! before it, so that a missing, exchanged or damaged file is found. The checksum of the frames'
//! chain continues from file to file.

use std::io::{BufReader, Read as _, Write as _};

use anyhow::{Context as _, bail};
use wire::replication::{
    Chain as Checksum, EpochId, Format, Frame, FrameReader, FrameWriter,
    HEADER_BYTES as FRAME_HEADER_BYTES, Header, Kind,
};

use super::storage::{FILE_END, NewFile, Storage};

const MAGIC: [u8; 8] = *b"MYRIADBK";
const END_MAGIC: [u8; 8] = *b"MYRIADBE";
/// Files of version 1 have no times, and those of version 2 no checksum of the chain.
const VERSION: u32 = 3;
const VERSION_MIN: u32 = 1;
/// Bytes of a file before its frames, and of its header in older versions.
const HEADER_BYTES: usize = 88;
const HEADER_BYTES_2: usize = 80;
/// Bytes of a file after its frames, and in older versions.
const END_BYTES: usize = 40;
const END_BYTES_2: usize = 32;
/// Bytes that are gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// Names the newest file, so that it is missed.
const NEWEST_NAME: &str = "newest";
const NOTE_BYTES_MAX: u64 = 256;
/// Files whose headers are read at a time: storage on a network takes a while to answer.
const OPEN_AT_A_TIME: usize = 16;

/// What a file states before its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) number: u64,
    /// Position of the stream where its frames begin.
    pub(crate) base: u64,
    /// The epoch of the last position.
    pub(crate) epoch: EpochId,
    /// Checksum of the file that it continues; `None`: it begins with a copy.
    pub(crate) previous: Option<u32>,
    /// Of the frames of the files before it.
    pub(crate) chain: Checksum,
}

impl FileHeader {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::from(self.previous.is_some()).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.base.to_le_bytes());
        bytes[32..72].copy_from_slice(&self.epoch);
        bytes[72..76].copy_from_slice(&self.previous.unwrap_or(0).to_le_bytes());
        bytes[76..84].copy_from_slice(&self.chain.0.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..84]);
        bytes[84..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header. Returns the version of the file, too.
    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<(FileHeader, u32), String> {
        if bytes[..8] != MAGIC {
            return Err("it is not a file of a backup".to_owned());
        }
        let version = le32(&bytes[8..]);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(format!(
                "it has version {version}, and this program reads {VERSION_MIN} to {VERSION}"
            ));
        }
        let crc_at = header_bytes(version) - 4;
        if le32(&bytes[crc_at..]) != crc32c::crc32c(&bytes[..crc_at]) {
            return Err("its header is damaged".to_owned());
        }
        let chain = if version < 3 { 0 } else { le64(&bytes[76..]) };
        let header = FileHeader {
            number: le64(&bytes[16..]),
            base: le64(&bytes[24..]),
            epoch: bytes[32..72].try_into().expect("40 bytes"),
            previous: (bytes[12] != 0).then(|| le32(&bytes[72..])),
            chain: Checksum(chain),
        };
        Ok((header, version))
    }
}

fn header_bytes(version: u32) -> usize {
    if version < 3 { HEADER_BYTES_2 } else { HEADER_BYTES }
}

fn end_bytes(version: u32) -> usize {
    if version < 3 { END_BYTES_2 } else { END_BYTES }
}

/// What a file states after its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileEnd {
    /// Position of the stream where its frames end.
    pub(crate) position: u64,
    /// Bytes of the file before this.
    pub(crate) bytes: u64,
    /// Of all bytes before this.
    pub(crate) crc: u32,
    /// Of the frames of this file and those before it; 0 in older versions.
    pub(crate) chain: Checksum,
}

impl FileEnd {
    fn encode(self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[..8].copy_from_slice(&END_MAGIC);
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.crc.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.chain.0.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the end of a file of this version.
    fn decode(bytes: &[u8], version: u32) -> Option<FileEnd> {
        let crc_at = end_bytes(version) - 4;
        let is_valid =
            bytes[..8] == END_MAGIC && le32(&bytes[crc_at..]) == crc32c::crc32c(&bytes[..crc_at]);
        let chain = Checksum(if version < 3 { 0 } else { le64(&bytes[28..]) });
        let (position, length) = (le64(&bytes[8..]), le64(&bytes[16..]));
        is_valid.then_some(FileEnd { position, bytes: length, crc: le32(&bytes[24..]), chain })
    }
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn le64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

fn name_of(number: u64) -> String {
    format!("backup-{number:08}{FILE_END}")
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix("backup-")?.strip_suffix(FILE_END)?.parse().ok()
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Draft<'s> {
    storage: &'s dyn Storage,
    file: Box<dyn NewFile + 's>,
    number: u64,
    writer: FrameWriter,
    buffer: Vec<u8>,
    written: u64,
    crc: u32,
}

impl<'s> Draft<'s> {
    pub(crate) fn begin(
        storage: &'s dyn Storage,
        header: &FileHeader,
    ) -> anyhow::Result<Draft<'s>> {
        let number = header.number;
        let file = storage.create(&name_of(number)).with_context(|| writing(storage, number))?;
        let buffer = header.encode().to_vec();
        let writer = FrameWriter::new(Format::Compressed, header.chain);
        Ok(Draft { storage, file, number, writer, buffer, written: 0, crc: 0 })
    }

    /// Appends a frame.
    pub(crate) fn put(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        self.writer.put_again(frame, &mut self.buffer)?;
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
            self.buffer.shrink_to(2 * WRITE_BYTES);
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let written = self.file.write_all(&self.buffer);
        written.with_context(|| writing(self.storage, self.number))?;
        self.written += self.buffer.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, &self.buffer);
        self.buffer.clear();
        Ok(())
    }

    /// Ends the file and gives it its name.
    pub(crate) fn finish(mut self, position: u64) -> anyhow::Result<FileEnd> {
        self.flush()?;
        let (bytes, crc, chain) = (self.written, self.crc, self.writer.chain());
        let end = FileEnd { position, bytes, crc, chain };
        self.buffer.extend_from_slice(&end.encode());
        self.flush()?;
        self.file.finish().with_context(|| writing(self.storage, self.number))?;
        note_newest(self.storage, self.number).context("could not note the newest file")?;
        Ok(end)
    }
}

fn writing(storage: &dyn Storage, number: u64) -> String {
    format!("could not write {}", storage.place(&name_of(number)))
}

fn note_newest(storage: &dyn Storage, number: u64) -> std::io::Result<()> {
    let mut file = storage.create(NEWEST_NAME)?;
    writeln!(file, "{}", name_of(number))?;
    file.finish()
}

/// A complete file, whose frames are not yet checked.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveFile<'s> {
    storage: &'s dyn Storage,
    name: String,
    version: u32,
    pub(crate) header: FileHeader,
    pub(crate) end: FileEnd,
}

impl<'s> ArchiveFile<'s> {
    /// Where it is, for messages.
    pub(crate) fn place(&self) -> String {
        self.storage.place(&self.name)
    }

    /// Opens a file of `size` bytes.
    fn open(storage: &'s dyn Storage, number: u64, size: u64) -> anyhow::Result<ArchiveFile<'s>> {
        let name = name_of(number);
        let shown = storage.place(&name);
        let mut head = [0; HEADER_BYTES];
        // The shortest file of the oldest version has more bytes than a header of the newest one.
        if size < (HEADER_BYTES_2 + END_BYTES_2) as u64 {
            bail!("{shown} is damaged: it has only {size} bytes");
        }
        let reading = || format!("could not read {shown}");
        storage.read_at(&name, 0, &mut head).with_context(reading)?;
        let (header, version) =
            FileHeader::decode(&head).map_err(|what| anyhow::anyhow!("{shown}: {what}"))?;
        let mut tail = vec![0; end_bytes(version)];
        let end_at = size - tail.len() as u64;
        storage.read_at(&name, end_at, &mut tail).with_context(reading)?;
        if header.number != number {
            bail!(
                "{shown} has another name than when it was written: it was number {}",
                header.number
            );
        }
        let end = FileEnd::decode(&tail, version).filter(|end| end.bytes == end_at);
        let end = end.with_context(|| {
            format!("{shown} is damaged: its end is missing or malformed, at offset {end_at}")
        })?;
        Ok(ArchiveFile { storage, name, version, header, end })
    }

    /// Passes every frame, in order, with its offset in the file, and checks all of the file.
    pub(crate) fn read(
        &self,
        pass: &mut dyn FnMut(&Frame<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let shown = self.place();
        let opened = self.storage.open(&self.name);
        let file = opened.with_context(|| format!("could not open {shown}"))?;
        let mut reader = BufReader::with_capacity(WRITE_BYTES, file);
        let mut head = vec![0; header_bytes(self.version)];
        reader.read_exact(&mut head).with_context(|| format!("could not read {shown}"))?;
        let mut crc = crc32c::crc32c(&head);
        let (mut offset, mut position) = (head.len() as u64, self.header.base);
        let mut frames = match self.version {
            ..3 => FrameReader::default(),
            _ => FrameReader::after(self.header.chain),
        };
        let mut chain = self.header.chain;
        let mut payload = Vec::new();
        while offset < self.end.bytes {
            let damaged = || format!("{shown} is damaged at offset {offset}, position {position}");
            let left = self.end.bytes - offset;
            let mut head = [0; FRAME_HEADER_BYTES];
            if left < head.len() as u64 {
                bail!("{}: it ends inside a frame", damaged());
            }
            reader.read_exact(&mut head).with_context(damaged)?;
            let header = Header::decode(&head).with_context(damaged)?;
            // No more memory than the file has bytes.
            if header.payload_bytes as u64 > left - head.len() as u64 {
                bail!("{}: it ends inside a frame", damaged());
            }
            payload.clear();
            payload.shrink_to(2 * WRITE_BYTES);
            payload.resize(header.payload_bytes, 0);
            reader.read_exact(&mut payload).with_context(damaged)?;
            let frame = frames.open(&header, &payload).with_context(damaged)?;
            pass(&frame).with_context(damaged)?;
            chain = if self.version < 3 { chain } else { frame.chain };
            crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &head), &payload);
            offset += (head.len() + payload.len()) as u64;
            if matches!(header.kind, Kind::Records | Kind::Heartbeat) {
                position = header.end;
            }
        }
        if (crc, position, chain) != (self.end.crc, self.end.position, self.end.chain) {
            bail!("{shown} is damaged: its frames differ from the written ones");
        }
        Ok(())
    }
}

/// Files that continue each other, the first of which begins with a copy.
pub(crate) type Chain<'s> = Vec<ArchiveFile<'s>>;

/// Reads the headers of all files. Oldest chain first.
pub(crate) fn chains(storage: &dyn Storage) -> anyhow::Result<Vec<Chain<'_>>> {
    let mut chains: Vec<Chain<'_>> = Vec::new();
    for file in files(storage)? {
        let number = file.header.number;
        let Some(previous) = file.header.previous else {
            chains.push(vec![file]);
            continue;
        };
        let shown = file.place();
        let before = chains.last().and_then(|chain| chain.last());
        let before = before.filter(|before| before.header.number + 1 == number);
        let before = before.with_context(|| {
            format!("{} is missing, which {shown} continues", name_of(number.saturating_sub(1)))
        })?;
        let is_next = (before.end.crc, before.end.position, before.end.chain)
            == (previous, file.header.base, file.header.chain);
        if !is_next {
            bail!(
                "{shown} does not continue {}: it was written after another file of this name \
                 that ended at position {}",
                before.place(),
                file.header.base
            );
        }
        chains.last_mut().expect("it has the file before").push(file);
    }
    Ok(chains)
}

/// Opens all files, in the order of their numbers.
fn files(storage: &dyn Storage) -> anyhow::Result<Vec<ArchiveFile<'_>>> {
    let reading = || format!("could not read {}", storage.place(""));
    let listed = storage.list().with_context(reading)?;
    let has_note = listed.iter().any(|(name, _)| name == NEWEST_NAME);
    let mut numbers: Vec<(u64, u64)> =
        listed.iter().filter_map(|(name, size)| Some((number_of(name)?, *size))).collect();
    numbers.sort_unstable();
    if has_note {
        check_newest(storage, numbers.last().map(|(number, _)| *number))?;
    }
    let open = |some: &[(u64, u64)]| -> anyhow::Result<Vec<ArchiveFile<'_>>> {
        some.iter().map(|(number, size)| ArchiveFile::open(storage, *number, *size)).collect()
    };
    let share = numbers.len().div_ceil(OPEN_AT_A_TIME).max(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            numbers.chunks(share).map(|some| scope.spawn(move || open(some))).collect();
        let mut files = Vec::new();
        for thread in threads {
            files.extend(thread.join().expect("it does not panic")?);
        }
        Ok(files)
    })
}

/// Checks that the newest file is present. After a crash, the note may name the file before it.
fn check_newest(storage: &dyn Storage, last: Option<u64>) -> anyhow::Result<()> {
    let place = storage.place(NEWEST_NAME);
    let mut noted = String::new();
    let read = storage.open(NEWEST_NAME).and_then(|file| {
        // A name, and more than that if it is damaged.
        file.take(NOTE_BYTES_MAX).read_to_string(&mut noted)
    });
    read.with_context(|| format!("could not read {place}"))?;
    let noted = noted.trim_end();
    let number = number_of(noted).with_context(|| format!("{place} is damaged"))?;
    if last.is_none_or(|last| last < number) {
        bail!("{} is missing, the newest file of the backup", storage.place(noted));
    }
    Ok(())
}

/// Removes the oldest chains, so that `keep` are left. Returns the number of files removed.
pub(crate) fn prune(storage: &dyn Storage, keep: usize) -> anyhow::Result<usize> {
    let mut chains = chains(storage)?;
    chains.truncate(chains.len().saturating_sub(keep));
    // From the end of each chain: an interruption leaves files that continue each other.
    let files = chains.iter().flat_map(|chain| chain.iter().rev());
    let mut removed = 0;
    for file in files {
        let place = || format!("could not remove {}", file.place());
        storage.remove(&file.name).with_context(place)?;
        removed += 1;
    }
    Ok(removed)
}
