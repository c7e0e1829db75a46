//! An ordered, durable log of opaque records. It never knows what a record means.
//!
//! Appenders copy a record into their own lane and get its position in the one global order by a
//! `fetch_add` on a byte count, the [`Lsn`]. One writer takes all lanes, copies their bytes into a
//! gap-free run, writes it once, past the page cache, syncs once (group commit) and publishes how
//! far the log is durable. [`Log::append`] never waits for the disk; a caller whose reply depends
//! on durability waits by [`Log::wake_when_durable`].
//!
//! `docs/internals/binlog-format.md` specifies the format on disk, the recovery algorithm and the
//! assumptions about the disk.
//!
//! Reading order: [`record`](Record), `lane`, `aligned`, `window`, `segment`, [`Log`], `writer`,
//! `gathering`, `scan`, `open`, [`salvage`](salvage()), [`Follower`]. [`baseline`] holds other ways
//! to build a log, for comparison.
#![forbid(unsafe_code)]

mod aligned;
pub mod baseline;
mod commit;
mod committers;
mod crc;
mod disk;
mod fault_disk;
mod follow;
mod gathering;
mod inspect;
mod lane;
mod log;
mod manifest;
mod open;
mod options;
mod recent;
mod record;
mod salvage;
mod scan;
mod segment;
mod shelf;
mod slot;
mod stats;
mod waiter;
mod window;
mod writer;
mod writer_state;

pub use disk::{Disk, DiskFile, FileDisk, LOCK_NAME, read_full_at, write_all_at};
pub use fault_disk::{FaultDisk, Faults};
pub use follow::{Batch, FollowError, Follower};
pub use inspect::{
    DumpError, FORMAT_VERSIONS, Formats, Report, SegmentReport, dump, formats, verify,
};
pub use log::{AppendError, Log, Poisoned};
pub use open::{OpenError, Recovered, ReplayError};
pub use options::{Options, OptionsError, SyncPolicy};
pub use record::{KIND_MARK, Lsn, Mark, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, Record};
pub use salvage::{Salvage, salvage};
pub use scan::{Damage, Fault, ScanError, Span, Tail};
pub use segment::SEGMENT_HEADER_BYTES;
pub use slot::Scope;
pub use stats::{GroupSizes, LogStats, SYNC_LATENCY_BUCKETS};
pub use writer::{Next, StepOutcome, WriterHandle};

const _: () = assert!(usize::BITS == 64, "byte positions are held in memory sizes and back");

/// A byte count of the log as a memory size. Lossless: the build refuses other than 64-bit targets.
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn to_usize(bytes: u64) -> usize {
    bytes as usize
}
