//! Size estimates of each table, by which tools split their work.

use cql::schema::{RowBuilder, Table, TableSource, Values};
use store::{STRIPES, TableId, stripe_of_token};

use super::VirtualTableContext;
use super::system::TOKEN;

/// The start and the end of the token ring.
const RING_START: &str = "-9223372036854775808";

/// Partitions and bytes of a table in one half of the ring.
struct Estimate {
    keyspace: String,
    table: String,
    start: &'static str,
    end: &'static str,
    partitions: u64,
    bytes: u64,
}

/// Estimates for each table on both sides of the server's token. Locks every stripe once, briefly.
fn estimates(cx: &VirtualTableContext<'_>) -> Vec<Estimate> {
    let catalog = cx.shared.catalog.load_full();
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let tables: Vec<_> = tables.filter(|table| table.source == TableSource::Stored).collect();
    let middle = stripe_of_token(TOKEN.parse().expect("a number"));
    let mut sums = vec![[(0_u64, 0_u64); 2]; tables.len()];
    for stripe in 0..STRIPES {
        let is_too_slow = cx.shared.running_scripts.until_too_slow();
        // They are estimates without what a script holds, too.
        let locked = cx.shared.keyspace.lock_stripe_unless(stripe, cx.params, is_too_slow);
        let Some(locked) = locked else { continue };
        for (table, sums) in tables.iter().zip(&mut sums) {
            let (partitions, bytes) = locked.table_stats(TableId(table.id.as_u128()));
            let half = &mut sums[usize::from(stripe >= middle)];
            half.0 += partitions as u64;
            half.1 += bytes as u64;
        }
    }
    let halves = [(RING_START, TOKEN), (TOKEN, RING_START)];
    let mut found = Vec::new();
    for (table, sums) in tables.into_iter().zip(sums) {
        found.extend(halves.into_iter().zip(sums).map(|((start, end), (partitions, bytes))| {
            let (keyspace, table) = (table.keyspace.clone(), table.name.clone());
            Estimate { keyspace, table, start, end, partitions, bytes }
        }));
    }
    found
}

fn row<'a>(table: &'a Table, estimate: &Estimate) -> RowBuilder<'a> {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let mean = estimate.bytes.checked_div(estimate.partitions).unwrap_or(0);
    RowBuilder::new(table)
        .text("keyspace_name", &estimate.keyspace)
        .text("table_name", &estimate.table)
        .text("range_start", estimate.start)
        .text("range_end", estimate.end)
        .bigint("partitions_count", count(estimate.partitions))
        .bigint("mean_partition_size", count(mean))
}

pub(super) fn sizes(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    estimates(cx).iter().map(|estimate| row(table, estimate).values()).collect()
}

pub(super) fn tables(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let mut rows = Vec::new();
    for estimates in estimates(cx).chunk_by(|one, other| one.table == other.table) {
        // Both are the same because this server is the only one.
        for range_type in ["local_primary", "primary"] {
            let estimates = estimates.iter();
            rows.extend(estimates.map(|e| row(table, e).text("range_type", range_type).values()));
        }
    }
    rows
}
