//! The files of a baseline, and where the next byte goes.

use std::io;
use std::sync::Arc;

use crate::baseline::{Options, Stats, Syncs};
use crate::disk::{Disk, DiskFile, write_all_at};
use crate::log::Poisoned;
use crate::record::Lsn;
use crate::stats::GroupSizesCounter;

#[derive(Debug)]
pub(super) struct Tail {
    disk: Arc<dyn Disk>,
    options: Options,
    current: Segment,
    at: Lsn,
    /// Left, and not removed.
    filled: Vec<String>,
    /// Left before they were synced.
    filled_unsynced: Vec<Segment>,
    poison: Option<Poisoned>,
    writes: u64,
    syncs: u64,
    bytes: u64,
    sizes: GroupSizesCounter,
}

#[derive(Debug, Clone)]
struct Segment {
    base: Lsn,
    file: Arc<dyn DiskFile>,
}

impl Segment {
    fn create(disk: &dyn Disk, base: Lsn) -> io::Result<Self> {
        let file = disk.create(&file_name(base))?;
        disk.sync_dir()?;
        Ok(Self { base, file })
    }
}

/// Name of the file that starts at this position.
pub(super) fn file_name(base: Lsn) -> String {
    format!("baseline-{base:020}.log")
}

/// The position in a file's name; None for any other file.
pub(super) fn parse_file_name(name: &str) -> Option<Lsn> {
    let digits = name.strip_prefix("baseline-")?.strip_suffix(".log")?;
    digits.parse().ok().map(Lsn).filter(|&base| file_name(base) == name)
}

fn failed(operation: &'static str, base: Lsn) -> impl FnOnce(io::Error) -> Poisoned {
    move |error| Poisoned::Failed { operation, file: file_name(base), source: Arc::new(error) }
}

impl Tail {
    pub(super) fn open(disk: Arc<dyn Disk>, options: Options) -> io::Result<Self> {
        let current = Segment::create(&*disk, Lsn(0))?;
        Ok(Self {
            disk,
            options,
            current,
            at: Lsn(0),
            filled: Vec::new(),
            filled_unsynced: Vec::new(),
            poison: None,
            writes: 0,
            syncs: 0,
            bytes: 0,
            sizes: GroupSizesCounter::default(),
        })
    }

    /// Where the next record starts.
    pub(super) fn at(&self) -> Lsn {
        self.at
    }

    /// Writes whole records that start at [`Tail::at`]. After a failure it does nothing any more.
    pub(super) fn write(&mut self, bytes: &[u8], records: u64) -> Result<(), Poisoned> {
        if let Some(cause) = &self.poison {
            return Err(cause.clone());
        }
        let written = self.try_write(bytes);
        self.writes += 1;
        self.bytes += bytes.len() as u64;
        self.sizes.count(records, bytes.len() as u64);
        self.note(written)
    }

    /// Why it does nothing any more; to be asked only after a failure.
    pub(super) fn poisoned(&self) -> Poisoned {
        self.poison.clone().expect("a write has failed")
    }

    fn note(&mut self, done: Result<(), Poisoned>) -> Result<(), Poisoned> {
        if let Err(cause) = &done {
            self.poison.get_or_insert_with(|| cause.clone());
        }
        done
    }

    fn try_write(&mut self, bytes: &[u8]) -> Result<(), Poisoned> {
        if self.at.0 - self.current.base.0 >= self.options.segment_bytes {
            self.roll()?;
        }
        let Segment { base, file } = &self.current;
        write_all_at(&**file, self.at.0 - base.0, bytes).map_err(failed("writing", *base))?;
        if self.options.syncs == Syncs::EachWrite {
            file.sync().map_err(failed("syncing", *base))?;
            self.syncs += 1;
        }
        self.at.0 += bytes.len() as u64;
        Ok(())
    }

    fn roll(&mut self) -> Result<(), Poisoned> {
        let next = Segment::create(&*self.disk, self.at).map_err(failed("making", self.at))?;
        let left = std::mem::replace(&mut self.current, next);
        self.filled.push(file_name(left.base));
        if self.options.syncs == Syncs::OnDemand {
            self.filled_unsynced.push(left);
        }
        Ok(())
    }

    /// What a sync must reach, to be synced without holding up who writes.
    pub(super) fn take_unsynced(&mut self) -> Result<Unsynced, Poisoned> {
        if let Some(cause) = &self.poison {
            return Err(cause.clone());
        }
        let mut segments = std::mem::take(&mut self.filled_unsynced);
        segments.push(self.current.clone());
        Ok(Unsynced(segments))
    }

    pub(super) fn end_sync(&mut self, synced: Result<(), Poisoned>) -> Result<(), Poisoned> {
        self.syncs += 1;
        self.note(synced)
    }

    /// The files to be removed. They need no sync, because they are never read again.
    pub(super) fn take_filled(&mut self) -> (Arc<dyn Disk>, Vec<String>) {
        self.filled_unsynced.clear();
        (Arc::clone(&self.disk), std::mem::take(&mut self.filled))
    }

    pub(super) fn stats(&mut self) -> Stats {
        let Self { writes, syncs, bytes, .. } = *self;
        Stats { writes, syncs, bytes, sizes: self.sizes.sizes() }
    }
}

/// Segments that hold what is not synced, oldest first.
#[derive(Debug)]
pub(super) struct Unsynced(Vec<Segment>);

impl Unsynced {
    pub(super) fn sync(&self) -> Result<(), Poisoned> {
        let mut segments = self.0.iter();
        segments
            .try_for_each(|Segment { base, file }| file.sync().map_err(failed("syncing", *base)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!(file_name(Lsn(17)), "baseline-00000000000000000017.log");
        assert_eq!(parse_file_name(&file_name(Lsn(u64::MAX))), Some(Lsn(u64::MAX)));
        for name in ["LOCK", "baseline-17.log", "baseline-+0000000000000000017.log", "17.log"] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
