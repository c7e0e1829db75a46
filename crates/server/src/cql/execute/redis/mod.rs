//! Values of the Redis protocol as rows: keyspace `redis`, database 0.
//!
//! A key is a partition of the table of its type, and of no other. Reading order: `shape` (values as
//! partitions), `gather` (rows of large values, in pieces), `walk` (which of them a SELECT visits), `write` (writes of rows as changes of keys).
//!
//! All goes under the locks, into the log and through the gates of the Redis protocol, so its clients
//! see a write of CQL as one of their own: WATCH notices it, a transaction is before or after it.

mod gather;
mod shape;
mod walk;
mod write;

pub(super) use gather::Gathering;
pub(super) use shape::partition;
pub(super) use write::{Elements, KeyChange};

/// The database whose values are shown.
pub(super) const DB: u8 = 0;
