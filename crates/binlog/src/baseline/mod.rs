//! Logs as others build them, for comparison only: no server runs on them.
//!
//! [`Kind::Mutex`] is Pika's: one lock, held while each record is written. [`Kind::LeaderCondvar`]
//! and [`Kind::LeaderFutex`] are `pika_hub`'s, which took it from `RocksDB`: a thread that finds no
//! leader writes for all threads that arrived in the meantime, and the others sleep, each on its
//! own variable. As in `pika_hub`, neither spins or yields before it sleeps.
//!
//! The files contain the same records as those of [`Log`](crate::Log), headers and checksums
//! included, one after the other from the start of a file; the name of a file is the position at
//! which it starts. Files grow as they are written and are closed at [`Options::segment_bytes`].
//! There are no marks and no recycling, and there is no recovery: a baseline that is opened again
//! starts empty.

mod leader;
mod mutex;
mod sleeper;
mod tail;

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, read_full_at};
use crate::log::{AppendError, Poisoned};
use crate::record::{self, Checksum, KIND_MARK, Lsn, PAYLOAD_BYTES_MAX, Record};
use crate::stats::GroupSizes;
use crate::to_usize;
use leader::Leader;
use mutex::MutexLog;
use sleeper::{CondvarSleeper, FutexSleeper};
use tail::{Tail, parse_file_name};

/// Which way of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    LeaderCondvar,
    LeaderFutex,
}

/// When writes are synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    /// Each one, before its records count as written.
    EachWrite,
    /// When [`Baseline::sync`] is called.
    OnDemand,
}

#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub kind: Kind,
    pub syncs: Syncs,
    /// A file of at least this many bytes is followed by a new one.
    pub segment_bytes: u64,
}

/// What a baseline has done since it was opened.
#[derive(Debug, Clone)]
pub struct Stats {
    pub writes: u64,
    pub syncs: u64,
    pub bytes: u64,
    pub sizes: GroupSizes,
}

/// One of the logs.
#[derive(Debug)]
pub struct Baseline {
    writer: Writer,
    checksum: Checksum,
}

#[derive(Debug)]
enum Writer {
    Mutex(MutexLog),
    LeaderCondvar(Leader<CondvarSleeper>),
    LeaderFutex(Leader<FutexSleeper>),
}

/// A record that has no place yet.
#[derive(Debug, Clone, Copy)]
struct Draft<'a> {
    kind: u8,
    payload: &'a [u8],
    payload_crc: u32,
}

impl Draft<'_> {
    /// Returns where the record ends.
    fn encode(self, out: &mut Vec<u8>, start: Lsn) -> Lsn {
        let before = out.len();
        record::encode(out, start, self.kind, self.payload, self.payload_crc);
        Lsn(start.0 + (out.len() - before) as u64)
    }
}

/// Baselines have no salt: their files are nobody's input.
const SALT: u64 = 0;

impl Baseline {
    /// Starts a new log in `disk`'s directory, which should be empty.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> io::Result<Self> {
        let tail = Tail::open(disk, options)?;
        let writer = match options.kind {
            Kind::Mutex => Writer::Mutex(MutexLog::new(tail)),
            Kind::LeaderCondvar => Writer::LeaderCondvar(Leader::new(tail)),
            Kind::LeaderFutex => Writer::LeaderFutex(Leader::new(tail)),
        };
        Ok(Self { writer, checksum: Checksum::new(SALT) })
    }

    /// Adds a record and returns where it ends, once it is written, and synced if writes are.
    ///
    /// # Panics
    /// If `kind` is 0 or [`KIND_MARK`].
    pub fn append(&self, kind: u8, payload: &[u8]) -> Result<Lsn, AppendError> {
        assert!(kind != 0 && kind != KIND_MARK, "kinds 0 and 255 belong to the log");
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(AppendError::TooLarge { bytes: payload.len() });
        }
        let draft = Draft { kind, payload, payload_crc: self.checksum.of_payload(payload) };
        let end = match &self.writer {
            Writer::Mutex(log) => log.append(draft),
            Writer::LeaderCondvar(log) => log.append(draft),
            Writer::LeaderFutex(log) => log.append(draft),
        };
        Ok(end?)
    }

    /// Syncs everything written so far. Appends continue in the meantime.
    pub fn sync(&self) -> Result<(), Poisoned> {
        let unsynced = self.with_tail(Tail::take_unsynced)?;
        let synced = unsynced.sync();
        self.with_tail(|tail| tail.end_sync(synced))
    }

    /// Removes all files but the one that is written.
    pub fn remove_filled(&self) -> io::Result<()> {
        let (disk, filled) = self.with_tail(Tail::take_filled);
        filled.iter().try_for_each(|name| disk.remove(name))
    }

    pub fn stats(&self) -> Stats {
        self.with_tail(Tail::stats)
    }

    fn with_tail<T>(&self, act: impl FnOnce(&mut Tail) -> T) -> T {
        match &self.writer {
            Writer::Mutex(log) => log.with_tail(act),
            Writer::LeaderCondvar(log) => log.with_tail(act),
            Writer::LeaderFutex(log) => log.with_tail(act),
        }
    }
}

/// Passes the records of a baseline's files to `see`, from the oldest file on, up to the first one
/// that is not whole. Returns where they end. Each file is held in memory at once.
pub fn read(disk: &dyn Disk, see: &mut dyn FnMut(Record<'_>)) -> io::Result<Lsn> {
    let mut bases: Vec<Lsn> =
        disk.list()?.iter().filter_map(|name| parse_file_name(name)).collect();
    bases.sort_unstable();
    let mut at = bases.first().copied().unwrap_or_default();
    for base in bases {
        if base != at {
            break;
        }
        let file = disk.open(&tail::file_name(base))?;
        let mut bytes = vec![0; to_usize(file.size()?)];
        let count = read_full_at(&*file, 0, &mut bytes)?;
        let mut rest = &bytes[..count];
        while let Some(record) = record::decode(Checksum::new(SALT), at, rest) {
            see(record);
            rest = &rest[to_usize(record.end.0 - at.0)..];
            at = record.end;
        }
    }
    Ok(at)
}
