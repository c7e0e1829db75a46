//! Limits and warnings for batches that are too large or span too many partitions.

use std::collections::BTreeSet;

use cql::error::CqlError;
use cql::statements::BatchKind;

use super::write::BoundWrite;

/// Size above which a batch of several partitions is refused.
// Source: Cassandra 5.0, cassandra.yaml, batch_size_fail_threshold
const BATCH_BYTES_MAX: usize = 50 << 10;

/// Size above which the client receives a warning.
// Source: Cassandra 5.0, cassandra.yaml, batch_size_warn_threshold
const BATCH_BYTES_WARNED: usize = 5 << 10;

/// Number of partitions above which an unlogged batch causes a warning.
// Source: Cassandra 5.0, cassandra.yaml, unlogged_batch_across_partitions_warn_threshold
const PARTITIONS_WARNED: usize = 10;

// Source: Cassandra 5.0, BatchStatement.verifyBatchSize
pub(super) fn check_bytes(writes: &[BoundWrite<'_>], bytes: usize) -> Result<(), CqlError> {
    if bytes > BATCH_BYTES_MAX && spans_partitions(writes) {
        return Err(CqlError::invalid("Batch too large"));
    }
    Ok(())
}

fn spans_partitions(writes: &[BoundWrite<'_>]) -> bool {
    writes.iter().any(|write| write.keys != writes[0].keys)
}

/// The client's warnings. `bytes`: size of the batch in the log.
// Source: Cassandra 5.0, BatchStatement.verifyBatchSize and verifyBatchType
pub(super) fn warnings(writes: &[BoundWrite<'_>], kind: BatchKind, bytes: usize) -> Vec<String> {
    let is_big = bytes > BATCH_BYTES_WARNED;
    let may_be_wide = kind != BatchKind::Logged;
    if !(is_big || may_be_wide) || !spans_partitions(writes) {
        return Vec::new();
    }
    let mut tables = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for write in writes {
        tables.insert(format!("{}.{}", write.plan.table.keyspace, write.plan.table.name));
        keys.extend(write.keys.iter().map(|key| &key.bytes[..]));
    }
    let plural = if tables.len() == 1 { "" } else { "s" };
    let tables = tables.into_iter().collect::<Vec<_>>().join(", ");
    let mut found = Vec::new();
    if is_big {
        found.push(format!(
            "Batch for [{tables}] is of size {}, exceeding specified threshold of {} by {}.",
            kib(bytes),
            kib(BATCH_BYTES_WARNED),
            kib(bytes - BATCH_BYTES_WARNED)
        ));
    }
    if may_be_wide && keys.len() > PARTITIONS_WARNED {
        found.push(format!(
            "Unlogged batch covering {} partitions detected against table{plural} [{tables}]. You \
             should use a logged batch for atomicity, or asynchronous writes for performance.",
            keys.len()
        ));
    }
    found
}

/// Formats sizes below a MiB as Cassandra does.
// Source: Cassandra 5.0, FBUtilities.prettyPrintMemory
#[expect(clippy::cast_precision_loss, reason = "a batch is smaller than 2^52 bytes")]
fn kib(bytes: usize) -> String {
    format!("{:.3}KiB", bytes as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_like_cassandra() {
        assert_eq!(kib(5 << 10), "5.000KiB");
        assert_eq!(kib(6001), "5.860KiB");
    }
}
