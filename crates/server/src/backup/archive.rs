//! The files of a backup: `docs/internals/backup-format.md` specifies them.
//!
//! Each file holds frames of the replication stream as they were received. The files of a chain
//! begin with a copy of all data and continue each other; each one names the checksum of the one
//! before it, so that a missing, exchanged or damaged file is found. The checksum of the frames'
//! chain continues from file to file.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use binlog::{Disk, DiskFile, FileDisk, write_all_at};
use wire::replication::{
    Chain as Checksum, EpochId, Format, Frame, FrameReader, FrameWriter,
    HEADER_BYTES as FRAME_HEADER_BYTES, Header, Kind,
};

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
/// Bytes that are written before they are synced, so that the end of a file takes no time.
const SYNC_BYTES: u64 = 64 << 20;
const TEMPORARY_NAME: &str = "backup.tmp";
/// Names the newest file, so that it is missed.
const NEWEST_NAME: &str = "newest";
const NEWEST_TEMPORARY_NAME: &str = "newest.tmp";

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
    format!("backup-{number:08}.myb")
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix("backup-")?.strip_suffix(".myb")?.parse().ok()
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Draft<'d> {
    disk: &'d FileDisk,
    file: Arc<dyn DiskFile>,
    number: u64,
    writer: FrameWriter,
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
    crc: u32,
}

impl<'d> Draft<'d> {
    pub(crate) fn begin(disk: &'d FileDisk, header: &FileHeader) -> anyhow::Result<Draft<'d>> {
        if disk.list()?.iter().any(|name| name == TEMPORARY_NAME) {
            disk.remove(TEMPORARY_NAME)?;
        }
        let file = disk.create(TEMPORARY_NAME).context("could not create a file")?;
        let buffer = header.encode().to_vec();
        let number = header.number;
        let writer = FrameWriter::new(Format::Compressed, header.chain);
        Ok(Draft { disk, file, number, writer, buffer, written: 0, synced: 0, crc: 0 })
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
        let writing = || format!("could not write {TEMPORARY_NAME}");
        write_all_at(&*self.file, self.written, &self.buffer).with_context(writing)?;
        self.written += self.buffer.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, &self.buffer);
        self.buffer.clear();
        if self.written - self.synced >= SYNC_BYTES {
            self.file.sync().with_context(writing)?;
            self.synced = self.written;
        }
        Ok(())
    }

    /// Ends the file and gives it its name.
    pub(crate) fn finish(mut self, position: u64) -> anyhow::Result<FileEnd> {
        self.flush()?;
        let (bytes, crc, chain) = (self.written, self.crc, self.writer.chain());
        let end = FileEnd { position, bytes, crc, chain };
        self.buffer.extend_from_slice(&end.encode());
        self.flush()?;
        self.file.sync().context("could not sync a file")?;
        self.disk.rename(TEMPORARY_NAME, &name_of(self.number))?;
        self.disk.sync_dir()?;
        note_newest(self.disk, self.number).context("could not note the newest file")?;
        Ok(end)
    }
}

fn note_newest(disk: &FileDisk, number: u64) -> std::io::Result<()> {
    if disk.list()?.iter().any(|name| name == NEWEST_TEMPORARY_NAME) {
        disk.remove(NEWEST_TEMPORARY_NAME)?;
    }
    let file = disk.create(NEWEST_TEMPORARY_NAME)?;
    write_all_at(&*file, 0, format!("{}\n", name_of(number)).as_bytes())?;
    file.sync()?;
    disk.rename(NEWEST_TEMPORARY_NAME, NEWEST_NAME)?;
    disk.sync_dir()
}

/// A complete file, whose frames are not yet checked.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveFile {
    pub(crate) path: PathBuf,
    version: u32,
    pub(crate) header: FileHeader,
    pub(crate) end: FileEnd,
}

impl ArchiveFile {
    fn open(path: PathBuf, number: u64) -> anyhow::Result<ArchiveFile> {
        let shown = path.display().to_string();
        let mut file = File::open(&path).with_context(|| format!("could not open {shown}"))?;
        let size = file.metadata()?.len();
        let mut head = [0; HEADER_BYTES];
        // The shortest file of the oldest version has more bytes than a header of the newest one.
        if size < (HEADER_BYTES_2 + END_BYTES_2) as u64 {
            bail!("{shown} is damaged: it has only {size} bytes");
        }
        let reading = || format!("could not read {shown}");
        file.read_exact(&mut head).with_context(reading)?;
        let (header, version) =
            FileHeader::decode(&head).map_err(|what| anyhow::anyhow!("{shown}: {what}"))?;
        let mut tail = vec![0; end_bytes(version)];
        let end_at = size - tail.len() as u64;
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut tail, end_at)
            .with_context(reading)?;
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
        Ok(ArchiveFile { path, version, header, end })
    }

    /// Passes every frame, in order, with its offset in the file, and checks all of the file.
    pub(crate) fn read(
        &self,
        pass: &mut dyn FnMut(&Frame<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let shown = self.path.display();
        let file = File::open(&self.path).with_context(|| format!("could not open {shown}"))?;
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
pub(crate) type Chain = Vec<ArchiveFile>;

/// Reads the headers of all files in a directory. Oldest chain first.
pub(crate) fn chains(dir: &Path) -> anyhow::Result<Vec<Chain>> {
    let reading = || format!("could not read {}", dir.display());
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(reading)? {
        let name = entry.with_context(reading)?.file_name();
        numbers.extend(name.to_str().and_then(number_of));
    }
    numbers.sort_unstable();
    check_newest(dir, numbers.last().copied())?;
    let mut chains: Vec<Chain> = Vec::new();
    for number in numbers {
        let file = ArchiveFile::open(dir.join(name_of(number)), number)?;
        let Some(previous) = file.header.previous else {
            chains.push(vec![file]);
            continue;
        };
        let shown = file.path.display();
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
                before.path.display(),
                file.header.base
            );
        }
        chains.last_mut().expect("it has the file before").push(file);
    }
    Ok(chains)
}

/// Checks that the newest file is present. After a crash, the note may name the file before it.
fn check_newest(dir: &Path, last: Option<u64>) -> anyhow::Result<()> {
    let path = dir.join(NEWEST_NAME);
    let noted = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("could not read {}", path.display()));
        }
    };
    let noted = noted.trim_end();
    let number = number_of(noted);
    let number = number.with_context(|| format!("{} is damaged", path.display()))?;
    if last.is_none_or(|last| last < number) {
        bail!("{} is missing, the newest file of the backup", dir.join(noted).display());
    }
    Ok(())
}
