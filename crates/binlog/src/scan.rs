//! Reads a log from disk: follows the chain of valid records to its end, then judges that end.
//!
//! The end is a torn tail unless something behind it proves that the missing part was durable once.
//! Proof is a valid mark or a valid segment header at a later position that states a durable
//! position beyond the end. A later valid record alone proves nothing: a power cut may keep a late
//! sector of a group and lose an early one.

use std::fmt;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::aligned::BLOCK_BYTES;
use crate::disk::{Disk, DiskFile, read_full_at};
use crate::record::{self, Checksum, Header, Lsn, MARK_BYTES, Record};
use crate::segment::{
    FORMAT_VERSION, HeaderState, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, file_name,
    parse_file_name, read_header,
};

/// Files are read in pieces of this size.
const READ_BYTES: usize = 1 << 20;

/// A place where durable bytes are missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub file: String,
    /// Offset in the file where a valid record should start.
    pub offset: u64,
    pub lsn: Lsn,
    /// The log says that it was durable up to here.
    pub durable: Lsn,
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, lsn, durable } = self;
        write!(
            out,
            "{file} is damaged at offset {offset} (position {lsn}; the log was durable up to \
             {durable}): copy the directory away, then restore this file from a replica or a \
             backup; to give up what follows, cut the file at this offset and remove the later \
             segments"
        )
    }
}

/// What stands at the end of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tail {
    /// Nothing follows the last record. In a segment that was used before, remains of a torn group
    /// may be taken for old bytes.
    Clean,
    /// Remains of a group that was never durable.
    Torn { file: String, offset: u64, lsn: Lsn },
    /// Durable records are lost.
    Damaged(Damage),
}

/// Why a log cannot even be read.
#[derive(Debug, Error)]
pub enum ScanError {
    #[error("{operation} {file}: {source}")]
    Io { operation: &'static str, file: String, source: io::Error },
    #[error("{file} has format version {version}; this program reads version {FORMAT_VERSION}")]
    Version { file: String, version: u32 },
    #[error(
        "{file} holds records but no segment has a valid header: restore the directory from a \
         replica or a backup"
    )]
    NoHeader { file: String },
    #[error("{file} belongs to another log than {first}: restore or remove it")]
    Foreign { file: String, first: String },
    #[error(
        "the log starts at {first}, after {wanted}: a segment is missing, or the snapshot is older than the log"
    )]
    StartsAfter { first: Lsn, wanted: Lsn },
}

impl ScanError {
    pub(crate) fn io(operation: &'static str, number: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { operation, file: file_name(number), source }
    }
}

/// A segment file as found.
#[derive(Debug)]
struct Found {
    number: u64,
    file: Arc<dyn DiskFile>,
    size_bytes: u64,
    header: Option<SegmentHeader>,
}

impl Found {
    fn segment(&self, base: Lsn) -> Segment {
        Segment {
            number: self.number,
            base,
            file: Arc::clone(&self.file),
            // Whole blocks: the last one is written to its end.
            capacity_bytes: self.size_bytes - self.size_bytes % BLOCK_BYTES as u64,
        }
    }
}

/// The segment files of a directory, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct Files(Vec<Found>);

/// One segment of the chain and what was read from it.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) segment: Segment,
    pub(crate) end: Lsn,
    pub(crate) records: u64,
}

/// A log as found.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) salt: u64,
    /// Segments before the first one read, as far as they can be followed.
    pub(crate) earlier: Vec<Segment>,
    /// From the first one read to the one that holds the end.
    pub(crate) chain: Vec<Scanned>,
    pub(crate) end: Lsn,
    /// What the marks and headers up to the end state to be durable. What follows was read, but
    /// perhaps only from the page cache.
    pub(crate) proved: Lsn,
    pub(crate) tail: Tail,
    /// Files that hold nothing that counts.
    pub(crate) obsolete: Vec<u64>,
}

impl Files {
    /// Reads the directory and all headers.
    pub(crate) fn load(disk: &dyn Disk) -> Result<Self, ScanError> {
        let names = disk.list().map_err(|source| ScanError::Io {
            operation: "listing",
            file: "the directory".into(),
            source,
        })?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_file_name(name)).collect();
        numbers.sort_unstable();
        let mut files = Vec::with_capacity(numbers.len());
        for number in numbers {
            files.push(load_file(disk, number)?);
        }
        let files = Self(files);
        files.check_same_log()?;
        Ok(files)
    }

    fn check_same_log(&self) -> Result<(), ScanError> {
        let mut first: Option<(u64, u64)> = None;
        for (number, header) in self.active() {
            match first {
                Some((first, salt)) if salt != header.salt => {
                    let (file, first) = (file_name(number), file_name(first));
                    return Err(ScanError::Foreign { file, first });
                }
                Some(_) => {}
                None => first = Some((number, header.salt)),
            }
        }
        Ok(())
    }

    fn active(&self) -> impl Iterator<Item = (u64, SegmentHeader)> {
        self.0.iter().filter_map(|found| Some((found.number, found.header?)))
    }

    /// Numbers of all files.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.iter().map(|found| found.number).collect()
    }

    /// Where the first segment starts; None if there is no log yet.
    pub(crate) fn first_base(&self) -> Option<Lsn> {
        self.active().next().map(|(_, header)| header.base)
    }

    /// Without any valid header there is no log yet, if no file holds anything: the first header
    /// is synced before the first record is written.
    pub(crate) fn check_empty(&self) -> Result<(), ScanError> {
        for found in &self.0 {
            let facts = search(&*found.file, SEGMENT_HEADER_BYTES as u64, None)
                .map_err(ScanError::io("reading", found.number))?;
            if facts.holds_bytes {
                return Err(ScanError::NoHeader { file: file_name(found.number) });
            }
        }
        Ok(())
    }

    /// Follows the chain from the segment that holds `from`, showing every valid record.
    ///
    /// None if there is no log yet.
    pub(crate) fn scan<E: From<ScanError>>(
        &self,
        from: Lsn,
        visit: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<Option<Scan>, E> {
        let active: Vec<(&Found, SegmentHeader)> =
            self.0.iter().filter_map(|found| Some((found, found.header?))).collect();
        let Some((_, first)) = active.first() else {
            self.check_empty()?;
            return Ok(None);
        };
        let start = active
            .iter()
            .rposition(|(_, header)| header.base <= from)
            .ok_or(ScanError::StartsAfter { first: first.base, wanted: from })?;
        let checksum = Checksum::new(first.salt);
        let mut chain: Vec<Scanned> = Vec::new();
        let mut proved = Lsn(0);
        let mut visit_and_note = |record: Record<'_>| {
            proved = proved.max(record::read_mark(&record).unwrap_or_default());
            visit(record)
        };
        for (found, header) in &active[start..] {
            if chain.last().is_some_and(|last| last.end != header.base) {
                break;
            }
            let segment = found.segment(header.base);
            chain.push(read_segment(segment, found.size_bytes, checksum, &mut visit_and_note)?);
        }
        for (_, header) in &active[start..start + chain.len()] {
            proved = proved.max(header.durable);
        }
        let last = chain.last().expect("the start segment is in the chain");
        let (number, end) = (last.segment.number, last.end);
        let tail = self.judge_tail(&last.segment, end, checksum)?;
        let earlier: Vec<Segment> =
            active[..start].iter().map(|(found, header)| found.segment(header.base)).collect();
        let keeps = |wanted: u64| {
            earlier.iter().chain(chain.iter().map(|one| &one.segment)).any(|s| s.number == wanted)
        };
        let obsolete = self.numbers().into_iter().filter(|n| *n > number || !keeps(*n)).collect();
        Ok(Some(Scan { salt: first.salt, earlier, chain, end, proved, tail, obsolete }))
    }

    /// Looks behind the end for proof of damage, and for remains of a group.
    fn judge_tail(&self, last: &Segment, end: Lsn, checksum: Checksum) -> Result<Tail, ScanError> {
        let offset = last.offset(end);
        let reading = |number| ScanError::io("reading", number);
        let own = search(&*last.file, offset, Some((checksum, last.base)))
            .map_err(reading(last.number))?;
        let recycled = self
            .0
            .iter()
            .any(|found| found.number == last.number && found.header.is_some_and(|h| h.recycled));
        let mut torn = own.durable.is_some() || (own.holds_bytes && !recycled);
        let mut durable = own.durable.unwrap_or_default();
        for (index, found) in self.0.iter().filter(|found| found.number > last.number).enumerate() {
            // The next file may be a segment whose header was lost; it would start at the end.
            let base = match found.header {
                Some(header) => header.base,
                None if index == 0 => end,
                None => continue,
            };
            let start = SEGMENT_HEADER_BYTES as u64;
            let facts = search(&*found.file, start, Some((checksum, base)))
                .map_err(reading(found.number))?;
            torn |= found.header.is_some() || facts.durable.is_some();
            let stated = found.header.map(|header| header.durable).unwrap_or_default();
            durable = durable.max(stated).max(facts.durable.unwrap_or_default());
        }
        let file = file_name(last.number);
        Ok(if durable > end {
            Tail::Damaged(Damage { file, offset, lsn: end, durable })
        } else if torn {
            Tail::Torn { file, offset, lsn: end }
        } else {
            Tail::Clean
        })
    }
}

fn load_file(disk: &dyn Disk, number: u64) -> Result<Found, ScanError> {
    let file = disk.open_direct(&file_name(number)).map_err(ScanError::io("opening", number))?;
    let size_bytes = file.size().map_err(ScanError::io("opening", number))?;
    let state = read_header(&*file, number).map_err(ScanError::io("reading", number))?;
    let header = match state {
        HeaderState::Active(header) if header.version != FORMAT_VERSION => {
            let (file, version) = (file_name(number), header.version);
            return Err(ScanError::Version { file, version });
        }
        HeaderState::Active(header) => Some(header),
        HeaderState::Unused => None,
    };
    Ok(Found { number, file, size_bytes, header })
}

/// Shows every record of a segment, from its base to the first place without a valid one.
fn read_segment<E: From<ScanError>>(
    segment: Segment,
    size_bytes: u64,
    checksum: Checksum,
    visit: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
) -> Result<Scanned, E> {
    let mut reader = SegmentReader { file: &*segment.file, size_bytes, bytes: Vec::new(), at: 0 };
    let mut end = segment.base;
    let mut records = 0;
    loop {
        let offset = segment.offset(end);
        let count = reader.have_record(offset).map_err(ScanError::io("reading", segment.number))?;
        let bytes = &reader.bytes[reader.at..reader.at + count];
        let Some(record) = record::decode(checksum, end, bytes) else {
            return Ok(Scanned { segment, end, records });
        };
        visit(record)?;
        end = record.end;
        records += 1;
        reader.at += count;
    }
}

/// Reads a file forward in large pieces.
struct SegmentReader<'a> {
    file: &'a dyn DiskFile,
    size_bytes: u64,
    bytes: Vec<u8>,
    /// Bytes already used at the front of `bytes`.
    at: usize,
}

impl SegmentReader<'_> {
    /// Has the bytes of the record at `offset` ready and returns how many these are; fewer than a
    /// record has if the file ends before or no record stands there.
    fn have_record(&mut self, offset: u64) -> io::Result<usize> {
        let header = self.have(offset, record::RECORD_HEADER_BYTES)?;
        let Some(header) = Header::decode(&self.bytes[self.at..self.at + header]) else {
            return Ok(0);
        };
        // A length that the file cannot hold is no reason to make room for it.
        if offset.saturating_add(header.record_bytes() as u64) > self.size_bytes {
            return Ok(0);
        }
        self.have(offset, header.record_bytes())
    }

    fn have(&mut self, offset: u64, want: usize) -> io::Result<usize> {
        let held = self.bytes.len() - self.at;
        if held >= want {
            return Ok(want);
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.resize(want.max(READ_BYTES), 0);
        let count = read_full_at(self.file, offset + held as u64, &mut self.bytes[held..])?;
        self.bytes.truncate(held + count);
        Ok(want.min(self.bytes.len()))
    }
}

/// What is found in the rest of a file.
#[derive(Debug, Default)]
struct Facts {
    /// The newest durable position stated by a mark at its right place.
    durable: Option<Lsn>,
    /// Not everything is zero.
    holds_bytes: bool,
}

/// Looks at every byte from `from` on for marks of the segment that starts at the given base.
fn search(file: &dyn DiskFile, from: u64, marks: Option<(Checksum, Lsn)>) -> io::Result<Facts> {
    let mut facts = Facts::default();
    let mut bytes = vec![0; READ_BYTES];
    let mut offset = from;
    loop {
        let count = read_full_at(file, offset, &mut bytes)?;
        let chunk = &bytes[..count];
        let zero = chunk.iter().all(|&byte| byte == 0);
        if !zero {
            facts.holds_bytes = true;
            if let Some((checksum, base)) = marks {
                let at = base.0.saturating_add(offset - SEGMENT_HEADER_BYTES as u64);
                facts.durable = facts.durable.max(newest_mark(checksum, Lsn(at), chunk));
            }
        }
        if count < bytes.len() {
            return Ok(facts);
        }
        // The pieces overlap, so that no mark is cut in two.
        offset += (count - (MARK_BYTES - 1)) as u64;
    }
}

/// The largest durable position that a valid mark in `bytes` states; `at` is that of byte 0.
fn newest_mark(checksum: Checksum, at: Lsn, bytes: &[u8]) -> Option<Lsn> {
    let mut newest = None;
    for (index, window) in bytes.windows(MARK_BYTES).enumerate() {
        if record::may_be_mark(window) {
            let start = Lsn(at.0.saturating_add(index as u64));
            let mark = record::decode(checksum, start, window);
            newest = newest.max(mark.and_then(|mark| record::read_mark(&mark)));
        }
    }
    newest
}
