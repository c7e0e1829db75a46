//! Redis values as rows: keyspace `redis`, database 0.
//!
//! A key is a partition of the table for its type, and of no other. Reading order: `shape` (values
//! as partitions), `gather` (rows of large values, in parts), `table_scan` (the rows that a SELECT
//! visits), `write` (writes of rows as changes of keys).
//!
//! CQL statements use the locks, the log and the gates of the Redis protocol, so Redis clients see
//! a CQL write like one of their own: WATCH detects it, and it is ordered before or after a
//! transaction.

mod gather;
mod shape;
mod table_scan;
mod write;

pub(super) use gather::Gathering;
pub(super) use shape::partition;
pub(super) use write::{Elements, KeyChange, KeyChanged};

/// The database that the keyspace exposes.
pub(super) const DB: u8 = 0;
