//! The files of a backup: `docs/internals/backup-format.md` specifies them.
//!
//! Each file holds frames of the replication stream as they were received. The files of a chain
//! begin with a copy of all data and continue each other; each one names the checksum of the one
//! before it, so that a missing, exchanged or damaged file is found.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use binlog::{Disk, DiskFile, FileDisk, write_all_at};
use wire::replication::{EpochId, HEADER_BYTES as FRAME_HEADER_BYTES, Header, Kind};

const MAGIC: [u8; 8] = *b"MYRIADBK";
const END_MAGIC: [u8; 8] = *b"MYRIADBE";
/// Files of version 1 have no times.
const VERSION: u32 = 2;
const VERSION_MIN: u32 = 1;
/// Bytes of a file before its frames.
const HEADER_BYTES: usize = 80;
/// Bytes of a file after its frames.
const END_BYTES: usize = 32;
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
        let crc = crc32c::crc32c(&bytes[..76]);
        bytes[76..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FileHeader, String> {
        if bytes[..8] != MAGIC {
            return Err("it is not a file of a backup".to_owned());
        }
        let version = le32(&bytes[8..]);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(format!(
                "it has version {version}, and this program reads {VERSION_MIN} to {VERSION}"
            ));
        }
        if le32(&bytes[76..]) != crc32c::crc32c(&bytes[..76]) {
            return Err("its header is damaged".to_owned());
        }
        Ok(FileHeader {
            number: le64(&bytes[16..]),
            base: le64(&bytes[24..]),
            epoch: bytes[32..72].try_into().expect("40 bytes"),
            previous: (bytes[12] != 0).then(|| le32(&bytes[72..])),
        })
    }
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
}

impl FileEnd {
    fn encode(self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[..8].copy_from_slice(&END_MAGIC);
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; END_BYTES]) -> Option<FileEnd> {
        let is_valid =
            bytes[..8] == END_MAGIC && le32(&bytes[28..]) == crc32c::crc32c(&bytes[..28]);
        let (position, length) = (le64(&bytes[8..]), le64(&bytes[16..]));
        is_valid.then_some(FileEnd { position, bytes: length, crc: le32(&bytes[24..]) })
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
        Ok(Draft { disk, file, number, buffer, written: 0, synced: 0, crc: 0 })
    }

    /// Appends a frame.
    pub(crate) fn put(&mut self, header: &Header, payload: &[u8]) -> anyhow::Result<()> {
        self.buffer.extend_from_slice(header.bytes());
        self.buffer.extend_from_slice(payload);
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

    /// Ends the file and gives it its name. Returns its checksum.
    pub(crate) fn finish(mut self, position: u64) -> anyhow::Result<u32> {
        self.flush()?;
        let (bytes, crc) = (self.written, self.crc);
        self.buffer.extend_from_slice(&FileEnd { position, bytes, crc }.encode());
        self.flush()?;
        self.file.sync().context("could not sync a file")?;
        self.disk.rename(TEMPORARY_NAME, &name_of(self.number))?;
        self.disk.sync_dir()?;
        note_newest(self.disk, self.number).context("could not note the newest file")?;
        Ok(crc)
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
    pub(crate) header: FileHeader,
    pub(crate) end: FileEnd,
}

impl ArchiveFile {
    fn open(path: PathBuf, number: u64) -> anyhow::Result<ArchiveFile> {
        let shown = path.display().to_string();
        let mut file = File::open(&path).with_context(|| format!("could not open {shown}"))?;
        let size = file.metadata()?.len();
        let mut head = [0; HEADER_BYTES];
        let mut tail = [0; END_BYTES];
        if size < (HEADER_BYTES + END_BYTES) as u64 {
            bail!("{shown} is damaged: it has only {size} bytes");
        }
        let reading = || format!("could not read {shown}");
        file.read_exact(&mut head).with_context(reading)?;
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut tail, size - END_BYTES as u64)
            .with_context(reading)?;
        let header =
            FileHeader::decode(&head).map_err(|what| anyhow::anyhow!("{shown}: {what}"))?;
        if header.number != number {
            bail!(
                "{shown} has another name than when it was written: it was number {}",
                header.number
            );
        }
        let end = FileEnd::decode(&tail).filter(|end| end.bytes == size - END_BYTES as u64);
        let end = end.with_context(|| {
            format!(
                "{shown} is damaged: its end is missing or malformed, at offset {}",
                size - END_BYTES as u64
            )
        })?;
        Ok(ArchiveFile { path, header, end })
    }

    /// Passes every frame, in order, with its offset in the file, and checks all of the file.
    pub(crate) fn read(
        &self,
        frame: &mut dyn FnMut(&Header, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let shown = self.path.display();
        let file = File::open(&self.path).with_context(|| format!("could not open {shown}"))?;
        let mut reader = BufReader::with_capacity(WRITE_BYTES, file);
        let mut head = [0; HEADER_BYTES];
        reader.read_exact(&mut head).with_context(|| format!("could not read {shown}"))?;
        let mut crc = crc32c::crc32c(&head);
        let (mut offset, mut position) = (HEADER_BYTES as u64, self.header.base);
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
            header.check(&payload).with_context(damaged)?;
            frame(&header, &payload).with_context(damaged)?;
            crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &head), &payload);
            offset += (head.len() + payload.len()) as u64;
            if matches!(header.kind, Kind::Records | Kind::Heartbeat) {
                position = header.end;
            }
        }
        if crc != self.end.crc || position != self.end.position {
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
        if before.end.crc != previous || before.end.position != file.header.base {
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
