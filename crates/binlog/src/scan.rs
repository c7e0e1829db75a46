//! Reads a log from disk: follows the chain of valid records to its end, then judges that end.
//!
//! The end is a torn tail unless something after it proves that the missing part was durable once.
//! Proof is a valid mark or a valid segment header at a later position that states a durable
//! position beyond the end. A later valid record alone proves nothing: a power cut may keep a late
//! sector of a group and lose an early one.

use std::fmt;
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::aligned::BLOCK_BYTES;
use crate::disk::{Disk, DiskFile, read_full_at};
use crate::manifest::{self, MANIFEST_NAME, Manifest};
use crate::record::{
    self, Checksum, Header, Lsn, MARK_BYTES_MAX, MARK_BYTES_MIN, Mark, Record, Seal,
};
use crate::segment::{
    FORMAT_VERSION, FORMAT_VERSION_MIN, HeaderState, SEGMENT_HEADER_BYTES, Segment, SegmentHeader,
    file_name, parse_file_name, read_header,
};

/// Files are read in pieces of this size.
const READ_BYTES: usize = 1 << 20;
const _: () = assert!(READ_BYTES >= MARK_BYTES_MAX, "the search for marks gets on");

/// Advice to the operator after damage; the last part of every message about it.
pub(crate) const ADVICE: &str = "copy the directory, then restore it from a backup or a replica; \
    to give up what cannot be read, run \"myriad log repair\" on it";

/// The kind of damage to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Bytes that were durable are not a valid record.
    Record,
    /// The file is missing.
    Missing,
    /// The file ends too early.
    Short { size_bytes: u64, expected_bytes: u64 },
    /// The file is there, but does not start with a valid header of its own.
    Header,
}

/// A place where durable bytes are missing or wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub fault: Fault,
    pub file: String,
    /// Offset in the file where valid bytes should start.
    pub offset: u64,
    /// Where the readable part of the log ends.
    pub lsn: Lsn,
    /// The log was durable at least up to here.
    pub durable: Lsn,
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, file, offset, lsn, durable } = self;
        match fault {
            Fault::Record => write!(out, "{file} is damaged at offset {offset}")?,
            Fault::Missing => write!(out, "{file} is missing: a part of the log was in it")?,
            Fault::Short { size_bytes, expected_bytes } => write!(
                out,
                "{file} is cut off at offset {offset}: it has {size_bytes} of {expected_bytes} bytes"
            )?,
            Fault::Header => write!(
                out,
                "{file} is damaged at offset {offset}: it does not start with the header of this \
                 segment"
            )?,
        }
        write!(
            out,
            " (the log can be read up to position {lsn} and was durable up to {durable}): {ADVICE}"
        )
    }
}

/// The state of the end of the log.
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

/// Why a log cannot be read at all.
#[derive(Debug, Error)]
pub enum ScanError {
    #[error("could not {operation} {file}: {source}")]
    Io { operation: &'static str, file: String, source: io::Error },
    #[error(
        "{file} has format version {version}; this program reads versions {FORMAT_VERSION_MIN} to {FORMAT_VERSION}"
    )]
    Version { file: String, version: u32 },
    #[error(
        "{file} is damaged at offset 0: it holds records, but no segment has a valid header: {ADVICE}"
    )]
    NoHeader { file: String },
    #[error("no segment of the log has a valid header: {0}")]
    NoSegment(Damage),
    #[error("{MANIFEST_NAME} is damaged at offset 0: neither of its copies is valid: {ADVICE}")]
    Manifest,
    #[error(
        "{file} belongs to another log than {first}: copy the directory, then restore the file that \
         belongs here, or remove it"
    )]
    Foreign { file: String, first: String },
    #[error(
        "{file} starts at position {first}, after {needed}, from where the log is needed: the \
         snapshot is missing or older than the log, or a segment is missing: restore the directory \
         from a backup or a replica; to use only the log, run \"myriad log repair\" on it"
    )]
    StartsAfter { file: String, first: Lsn, needed: Lsn },
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
    /// The segment's own header.
    header: Option<SegmentHeader>,
    /// Another segment's header: what a recycled file holds until it is used.
    other_header: Option<SegmentHeader>,
}

impl Found {
    fn segment(&self, header: SegmentHeader) -> Segment {
        Segment {
            number: self.number,
            version: header.version,
            base: header.base,
            file: Arc::clone(&self.file),
            // Whole blocks: the last one is written to its end.
            capacity_bytes: self.size_bytes - self.size_bytes % BLOCK_BYTES as u64,
        }
    }
}

/// The segment files of a directory in the order of their numbers, and the manifest.
#[derive(Debug)]
pub(crate) struct Files {
    found: Vec<Found>,
    pub(crate) manifest: Option<Manifest>,
}

/// The part of the log that a caller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Records from here on are replayed.
    pub from: Lsn,
    /// The log must reach this position. A new log starts here. At or after `from`.
    pub reach: Lsn,
}

impl From<Lsn> for Span {
    fn from(from: Lsn) -> Self {
        Self { from, reach: from }
    }
}

/// One segment of the chain and what was read from it.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) segment: Segment,
    pub(crate) end: Lsn,
    pub(crate) records: u64,
    /// What the segment states about its successor, if it is full.
    seal: Option<Seal>,
    /// Damage to the file that its records do not show.
    is_short: Option<Fault>,
}

/// The result of a scan.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) salt: u64,
    /// Segments before the first one read, as far as they can be followed.
    pub(crate) earlier: Vec<Segment>,
    /// From the first segment read to the one that holds the end.
    pub(crate) chain: Vec<Scanned>,
    pub(crate) end: Lsn,
    /// The newest durable position that the marks and headers up to the end state. Bytes after it
    /// were read, but perhaps only from the page cache.
    pub(crate) proved: Lsn,
    pub(crate) tail: Tail,
    /// Files that hold nothing valid.
    pub(crate) obsolete: Vec<u64>,
}

impl Files {
    /// Reads the directory, the manifest and all headers.
    pub(crate) fn load(disk: &dyn Disk) -> Result<Self, ScanError> {
        let files = Self::load_segments(disk, Self::load_manifest(disk)?)?;
        files.check_same_log()?;
        Ok(files)
    }

    fn load_manifest(disk: &dyn Disk) -> Result<Option<Manifest>, ScanError> {
        let found = manifest::read(disk).map_err(|source| ScanError::Io {
            operation: "read",
            file: MANIFEST_NAME.into(),
            source,
        })?;
        match found {
            manifest::Found::Nothing => Ok(None),
            manifest::Found::Damaged => Err(ScanError::Manifest),
            manifest::Found::Valid(manifest) => {
                check_version(MANIFEST_NAME, manifest.version)?;
                Ok(Some(manifest))
            }
        }
    }

    pub(crate) fn load_segments(
        disk: &dyn Disk,
        manifest: Option<Manifest>,
    ) -> Result<Self, ScanError> {
        let names = disk.list().map_err(|source| ScanError::Io {
            operation: "list",
            file: "the directory".into(),
            source,
        })?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse_file_name(name)).collect();
        numbers.sort_unstable();
        let mut found = Vec::with_capacity(numbers.len());
        for number in numbers {
            found.push(load_file(disk, number)?);
        }
        Ok(Self { found, manifest })
    }

    /// The same for a log that may be damaged; also returns the error with which [`Files::load`]
    /// would refuse it. Files of another log count as unused.
    pub(crate) fn load_leniently(disk: &dyn Disk) -> Result<(Self, Option<ScanError>), ScanError> {
        let (manifest, fault) = match Self::load_manifest(disk) {
            Err(error @ ScanError::Manifest) => (None, Some(error)),
            loaded => (loaded?, None),
        };
        let mut files = Self::load_segments(disk, manifest)?;
        let fault = fault.or(files.check_same_log().err());
        let salt = manifest.map(|manifest| manifest.salt);
        let salt = salt.or(files.active().next().map(|(_, header)| header.salt));
        for found in &mut files.found {
            found.header = found.header.filter(|header| Some(header.salt) == salt);
        }
        Ok((files, fault))
    }

    /// At or after every position that the files have room for or refer to.
    pub(crate) fn newest_position(&self) -> Lsn {
        let stated = self.manifest.map_or(0, |manifest| manifest.durable.0);
        let ends = self.found.iter().filter_map(|found| Some((found.header?, found.size_bytes)));
        let ends =
            ends.map(|(header, size)| header.base.max(header.durable).0.saturating_add(size));
        Lsn(ends.fold(stated, u64::max))
    }

    fn check_same_log(&self) -> Result<(), ScanError> {
        let manifest = self.manifest.map(|manifest| (MANIFEST_NAME.to_owned(), manifest.salt));
        let segments = self.active().map(|(number, header)| (file_name(number), header.salt));
        let mut all = manifest.into_iter().chain(segments);
        let Some((first, salt)) = all.next() else { return Ok(()) };
        match all.find(|(_, other)| *other != salt) {
            Some((file, _)) => Err(ScanError::Foreign { file, first }),
            None => Ok(()),
        }
    }

    fn active(&self) -> impl Iterator<Item = (u64, SegmentHeader)> {
        self.found.iter().filter_map(|found| Some((found.number, found.header?)))
    }

    fn get(&self, number: u64) -> Option<&Found> {
        self.found.iter().find(|found| found.number == number)
    }

    /// Numbers of all files.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.found.iter().map(|found| found.number).collect()
    }

    /// Where the first segment starts; None if there is no log yet.
    pub(crate) fn first_base(&self) -> Option<Lsn> {
        self.active().next().map(|(_, header)| header.base)
    }

    /// The file and offset of a position that a segment in use covers.
    pub(crate) fn place_of(&self, at: Lsn) -> (String, u64) {
        let covers = |(_, header): &(u64, SegmentHeader)| header.base <= at;
        let (number, header) =
            self.active().filter(covers).last().expect("the position was read from a segment");
        (file_name(number), SEGMENT_HEADER_BYTES as u64 + (at.0 - header.base.0))
    }

    /// Without a valid header and a manifest there is no log yet, if no file holds anything: the
    /// first header is synced before the first record is written.
    fn check_empty(&self) -> Result<(), ScanError> {
        for found in &self.found {
            let facts = search(&*found.file, SEGMENT_HEADER_BYTES as u64, None)
                .map_err(ScanError::io("read", found.number))?;
            if facts.holds_bytes {
                return Err(ScanError::NoHeader { file: file_name(found.number) });
            }
        }
        let Some(manifest) = self.manifest else { return Ok(()) };
        let number = manifest.number;
        let fault = if self.get(number).is_some() { Fault::Header } else { Fault::Missing };
        let (file, durable) = (file_name(number), manifest.durable);
        let lsn = manifest.origin.unwrap_or_default();
        Err(ScanError::NoSegment(Damage { fault, file, offset: 0, lsn, durable }))
    }

    /// Follows the chain from the segment that holds `span.from`, showing every valid record.
    ///
    /// None if there is no log yet.
    pub(crate) fn scan<E: From<ScanError>>(
        &self,
        span: Span,
        visit: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
    ) -> Result<Option<Scan>, E> {
        let active: Vec<(&Found, SegmentHeader)> =
            self.found.iter().filter_map(|found| Some((found, found.header?))).collect();
        let Some((_, first)) = active.first() else {
            self.check_empty()?;
            return Ok(None);
        };
        let start = self.start_of(span, &active)?;
        let checksum = Checksum::new(first.salt);
        let mut chain: Vec<Scanned> = Vec::new();
        let mut proved = Lsn(0);
        let mut visit_and_note = |record: Record<'_>| {
            proved = Mark::read(&record).map_or(proved, |mark| proved.max(mark.durable));
            visit(record)
        };
        for (found, header) in &active[start..] {
            if chain.last().is_some_and(|last| last.end != header.base || last.is_short.is_some()) {
                break;
            }
            chain.push(read_segment(found, *header, checksum, &mut visit_and_note)?);
        }
        for (_, header) in &active[start..start + chain.len()] {
            proved = proved.max(header.durable);
        }
        let last = chain.last().expect("the start segment is in the chain");
        let (number, end) = (last.segment.number, last.end);
        let tail = self.judge_tail(last, first.salt)?;
        let earlier: Vec<Segment> =
            active[..start].iter().map(|(found, header)| found.segment(*header)).collect();
        let keeps = |number: u64| {
            earlier.iter().chain(chain.iter().map(|one| &one.segment)).any(|s| s.number == number)
        };
        let obsolete = self.numbers().into_iter().filter(|n| *n > number || !keeps(*n)).collect();
        Ok(Some(Scan { salt: first.salt, earlier, chain, end, proved, tail, obsolete }))
    }

    /// Index of the segment that holds `span.from`.
    ///
    /// A log that was created for a snapshot without a log starts where the snapshot ends: it has
    /// never held a record from between the first and the last position of the snapshot.
    fn start_of(&self, span: Span, active: &[(&Found, SegmentHeader)]) -> Result<usize, ScanError> {
        let holds = |(_, header): &(&Found, SegmentHeader)| header.base <= span.from;
        if let Some(start) = active.iter().rposition(holds) {
            return Ok(start);
        }
        let (found, first) = active.first().expect("the caller has looked");
        let origin = self.manifest.and_then(|manifest| manifest.origin);
        // Without an origin, the power failed before a new log had its manifest.
        if first.base == span.reach && origin.is_none_or(|origin| origin == span.reach) {
            return Ok(0);
        }
        let file = file_name(found.number);
        Err(ScanError::StartsAfter { file, first: first.base, needed: span.from })
    }

    /// Searches everything after the end for proof of damage, and for the remains of a group.
    fn judge_tail(&self, last: &Scanned, salt: u64) -> Result<Tail, ScanError> {
        let Scanned { segment, end, seal, is_short, .. } = last;
        let (end, checksum) = (*end, Checksum::new(salt));
        let offset = segment.offset(end);
        let reading = |number| ScanError::io("read", number);
        let own = search(&*segment.file, offset, Some((checksum, segment.base)))
            .map_err(reading(segment.number))?;
        let is_recycled = self
            .get(segment.number)
            .is_some_and(|found| found.header.is_some_and(|header| header.recycled));
        // A seal without a successor: the header of that one never reached the disk.
        let mut torn = seal.is_some() || own.durable.is_some() || (own.holds_bytes && !is_recycled);
        let mut durable = own.durable.unwrap_or_default();
        durable = durable.max(self.manifest.map_or(Lsn(0), |manifest| manifest.durable));
        let later = self.found.iter().filter(|found| found.number > segment.number);
        for (index, found) in later.enumerate() {
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
        let damage = |fault, file, offset| Damage { fault, file, offset, lsn: end, durable };
        if let Some(fault @ Fault::Short { size_bytes, .. }) = is_short {
            let file = file_name(segment.number);
            return Ok(Tail::Damaged(damage(*fault, file, *size_bytes)));
        }
        if let Some((fault, number)) = self.fault_of_successor(seal.as_ref()) {
            return Ok(Tail::Damaged(damage(fault, file_name(number), fault.offset())));
        }
        if let Some(number) = self.misplaced(end, salt) {
            return Ok(Tail::Damaged(damage(Fault::Header, file_name(number), 0)));
        }
        let file = file_name(segment.number);
        Ok(if durable > end {
            let (fault, file, offset) =
                self.blame(segment.number, seal.as_ref()).unwrap_or((Fault::Record, file, offset));
            Tail::Damaged(damage(fault, file, offset))
        } else if torn {
            Tail::Torn { file, offset, lsn: end }
        } else {
            Tail::Clean
        })
    }

    /// A full segment states which file follows, and that this file was durable with its size.
    fn fault_of_successor(&self, seal: Option<&Seal>) -> Option<(Fault, u64)> {
        let Seal { successor, successor_bytes } = *seal?;
        match self.get(successor) {
            None => Some((Fault::Missing, successor)),
            Some(found) if found.size_bytes < successor_bytes => {
                let (size_bytes, expected_bytes) = (found.size_bytes, successor_bytes);
                Some((Fault::Short { size_bytes, expected_bytes }, successor))
            }
            Some(_) => None,
        }
    }

    /// A file that holds a segment of this log from after the end, but has another one's name.
    ///
    /// A recycled file holds an old header too, but of a segment from before the end: it had been
    /// durable when it was recycled.
    fn misplaced(&self, end: Lsn, salt: u64) -> Option<u64> {
        let is_later = |header: &SegmentHeader| header.salt == salt && header.base >= end;
        let found =
            self.found.iter().find(|found| found.other_header.as_ref().is_some_and(is_later));
        found.map(|found| found.number)
    }

    /// The file that should hold the missing part, unless it is the last one that was read.
    fn blame(&self, last: u64, seal: Option<&Seal>) -> Option<(Fault, String, u64)> {
        let stated = self.manifest.map(|manifest| manifest.number).filter(|number| *number > last);
        let number = seal.map(|seal| seal.successor).or(stated)?;
        match self.get(number) {
            None => Some((Fault::Missing, file_name(number), 0)),
            Some(Found { header: None, .. }) => Some((Fault::Header, file_name(number), 0)),
            Some(_) => None,
        }
    }
}

impl Fault {
    /// Offset of the fault in the file, as far as the fault itself shows it.
    fn offset(self) -> u64 {
        match self {
            Self::Short { size_bytes, .. } => size_bytes,
            Self::Record | Self::Missing | Self::Header => 0,
        }
    }
}

fn check_version(file: &str, version: u32) -> Result<(), ScanError> {
    if (FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version) {
        return Ok(());
    }
    Err(ScanError::Version { file: file.into(), version })
}

fn load_file(disk: &dyn Disk, number: u64) -> Result<Found, ScanError> {
    let file = disk.open_direct(&file_name(number)).map_err(ScanError::io("open", number))?;
    let size_bytes = file.size().map_err(ScanError::io("open", number))?;
    let state = read_header(&*file, number).map_err(ScanError::io("read", number))?;
    let (header, other_header) = match state {
        HeaderState::Active(header) => (Some(header), None),
        HeaderState::Other(header) => (None, Some(header)),
        HeaderState::Unused => (None, None),
    };
    if let Some(header) = header {
        check_version(&file_name(number), header.version)?;
    }
    Ok(Found { number, file, size_bytes, header, other_header })
}

/// Shows every record of a segment, from its base to the first place without a valid one.
fn read_segment<E: From<ScanError>>(
    found: &Found,
    header: SegmentHeader,
    checksum: Checksum,
    visit: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
) -> Result<Scanned, E> {
    let (segment, size_bytes) = (found.segment(header), found.size_bytes);
    let expected_bytes = header.file_bytes;
    let is_short =
        (size_bytes < expected_bytes).then_some(Fault::Short { size_bytes, expected_bytes });
    let mut reader = SegmentReader { file: &*segment.file, size_bytes, bytes: Vec::new(), at: 0 };
    let mut end = segment.base;
    let mut records = 0;
    loop {
        let offset = segment.offset(end);
        let count = reader.have_record(offset).map_err(ScanError::io("read", segment.number))?;
        let bytes = &reader.bytes[reader.at..reader.at + count];
        let record = record::decode(checksum, end, bytes);
        let seal = record.as_ref().and_then(Seal::read);
        let Some(record) = record.filter(|_| seal.is_none()) else {
            return Ok(Scanned { segment, end, records, seal, is_short });
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
    /// Loads the bytes of the record at `offset` and returns their number; smaller than the record
    /// if the file ends first or no record starts there.
    fn have_record(&mut self, offset: u64) -> io::Result<usize> {
        let header = self.have(offset, record::RECORD_HEADER_BYTES)?;
        let Some(header) = Header::decode(&self.bytes[self.at..self.at + header]) else {
            return Ok(0);
        };
        // No memory is allocated for a length that the file cannot hold.
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

/// The result of a search of the rest of a file.
#[derive(Debug, Default)]
struct Facts {
    /// The newest durable position stated by a mark at its correct position.
    durable: Option<Lsn>,
    /// Not everything is zero.
    holds_bytes: bool,
}

/// Searches from `from` on for marks of the segment that starts at the given base, at every byte.
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
        offset += (count - (MARK_BYTES_MAX - 1)) as u64;
    }
}

/// The largest durable position that a valid mark in `bytes` states; `at` is that of byte 0.
fn newest_mark(checksum: Checksum, at: Lsn, bytes: &[u8]) -> Option<Lsn> {
    let mut newest = None;
    for (index, window) in bytes.windows(MARK_BYTES_MIN).enumerate() {
        if record::may_be_mark(window) {
            let start = Lsn(at.0.saturating_add(index as u64));
            let record = record::decode(checksum, start, &bytes[index..]);
            let mark = record.and_then(|record| Mark::read(&record));
            newest = newest.max(mark.map(|mark| mark.durable));
        }
    }
    newest
}
