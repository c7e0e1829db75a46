//! The data: a striped keyspace shared by all reactors, values by type, and the one writer.
//!
//! *Must never know*: protocols, files, sockets, clocks. Time and the hash seed are arguments. Only
//! a thread that waits for a lock reads the cycle counter, and only to measure the wait.
//!
//! Data changes only through [`Locked::apply_mutation`], at run time and in recovery, so the log is
//! sufficient to restore the data.
#![deny(unsafe_code)]

mod access;
mod ahead;
#[allow(unsafe_code)]
mod blob;
mod change;
mod databases;
mod deferred_free;
mod draft;
mod elements;
mod encoded;
mod entry;
mod error;
mod evict;
mod expiries;
mod indexes;
mod items;
mod key;
mod keyspace;
mod locked;
mod locking;
#[cfg(test)]
mod memory_tests;
mod mutation;
mod object;
mod params;
mod partitions;
mod pending;
mod shown;
mod small;
mod snapshot;
mod stream_change;
#[cfg(test)]
mod stream_tests;
mod stripe;
mod table;
#[cfg(test)]
mod tests;
pub mod types;
mod value;
mod varint;
mod versions;
mod views;
mod watch;

pub use access::{AccessClock, AccessRule};
pub use change::{Change, End, Kind};
pub use deferred_free::DeferredFree;
pub use draft::Draft;
pub use elements::Elements;
pub use encoded::read_encoded;
pub use error::StoreError;
pub use evict::{Candidate, EvictionPolicy};
pub use indexes::{Definitions, IndexId, Indexing, Posting, Start};
pub use items::{Deliveries, Ids, Items, Points, Scored, Timestamps, Writes};
pub use key::{Key, PARTITIONS_DB, PartitionKey, TableId, stripe_of, stripe_of_token};
pub use keyspace::{Keyspace, LockWaits};
pub use locked::{Locked, Lookups, Seen, StoredString};
pub use mutation::{Mutation, Scope};
pub use object::Depth;
pub use params::{DbStats, Params, ScanCursor};
pub use partitions::Reach;
pub use snapshot::{SnapshotBlock, load_block};
pub use stream_change::{Assignment, GroupRead, StreamChange, StreamChangeRef};
pub use stripe::Due;
pub use types::{
    CellValue, CellView, Expiry, Malformed, Partition, RowKey, RowView, Seconds, Stamp, Timestamp,
    Write,
};
pub use value::{Value, ValueKind};
pub use versions::{Given, Version};
pub use views::{HashRef, ListRef, RowsRef, SetRef, ZSetRef};
pub use watch::{
    AwaitedKeys, ChangedKeys, InvalidatedKey, Reader, Readers, ReadyKey, Ticket, WatchFlag,
};

/// Numbered databases, as many as Redis has by default.
pub const DATABASES: usize = 16;

/// Stripes of the keyspace. Each has its lock; 4,096 keep two of 64 reactors from meeting in one
/// with more than 2 % probability, and a stripe of a 10 M key store at 2,441 keys.
pub const STRIPES: usize = 4096;
