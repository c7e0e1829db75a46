//! The data of users in a keyspace, as the tools report it.

use std::fmt;
use std::ops::Bound;

use store::{Keyspace, Params, STRIPES, TableId};

use super::local_tables::is_of_server;

/// Numbers of keys and rows. Rows of the server's own tables are not counted: its schema, roles,
/// libraries of functions, and history of replication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) keys: u64,
    pub(crate) rows: u64,
}

impl Contents {
    /// Counts. O(rows) in addition to O(stripes).
    pub(crate) fn of(keyspace: &Keyspace, params: &Params) -> Contents {
        let (stats, _) = keyspace.stats(params.now());
        let keys = stats.iter().map(|db| db.keys).sum();
        let tables = keyspace.tables();
        let tables: Vec<TableId> =
            tables.into_iter().filter(|table| !is_of_server(*table)).collect();
        let now = u32::try_from(params.now().0 / 1000).unwrap_or(u32::MAX);
        let mut rows = 0;
        for stripe in 0..STRIPES {
            let locked = keyspace.lock_stripe(stripe, params);
            for table in &tables {
                for (_, _, partition) in locked.partitions(*table, Bound::Unbounded) {
                    rows += partition.rows(Bound::Unbounded, Bound::Unbounded, now).count() as u64;
                }
            }
        }
        Contents { keys, rows }
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys and {} rows of tables", self.keys, self.rows)
    }
}
