//! INFO commandstats, errorstats, latencystats, reactors, counters: where time is spent.

use std::collections::BTreeMap;

use base::stages::{Stage, StageCell};

use super::{Page, ratio, us};
use crate::engine::published::CommandCounts;
use crate::engine::requests::RequestKinds;
use crate::protocol::ClientProtocol;

pub(super) fn commands(page: &mut Page<'_, '_>) {
    let shared = page.cx.shared;
    for (id, sum) in shared.request_counts().into_iter().enumerate() {
        if sum.calls + sum.rejected + sum.failed == 0 {
            continue;
        }
        let value = format!(
            "calls={},usec={},usec_per_call={:.2},rejected_calls={},failed_calls={}",
            sum.calls,
            sum.ns / 1000,
            ratio(sum.ns, sum.calls) / 1000.0,
            sum.rejected,
            sum.failed
        );
        page.field(&format!("cmdstat_{}", shared.request_kinds.name(id)), value);
    }
}

pub(super) fn errors(page: &mut Page<'_, '_>) {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for published in &page.cx.shared.published {
        for (prefix, count) in &published.lock().errors {
            *sums.entry(prefix.clone()).or_default() += count;
        }
    }
    for (prefix, count) in sums {
        page.field(&format!("errorstat_{prefix}"), format!("count={count}"));
    }
}

/// Execution times as Redis shows them, followed by the other stages of a request.
pub(super) fn latencies(page: &mut Page<'_, '_>) {
    let shared = page.cx.shared;
    let timers = shared.stage_timers();
    let settings = &page.cx.reactor.settings;
    let shown = &settings.latency_tracking_info_percentiles;
    for at in 0..shared.request_kinds.len() {
        let name = shared.request_kinds.name(at);
        if let Some(cell) = timers.cell(at, Stage::Execute) {
            page.field(&format!("latency_percentiles_usec_{name}"), percentiles(cell, shown));
        }
        for stage in [Stage::Parse, Stage::WaitForLog, Stage::Write] {
            if let Some(cell) = timers.cell(at, stage) {
                page.field(&format!("stage_usec_{name}_{}", stage.name()), summary(cell));
            }
        }
    }
}

fn percentiles(cell: &StageCell, shown: &[f64]) -> String {
    let one = |percentile: &f64| format!("p{percentile}={}", us(cell.percentile_ns(*percentile)));
    shown.iter().map(one).collect::<Vec<_>>().join(",")
}

fn summary(cell: &StageCell) -> String {
    let summary = cell.summary();
    format!(
        "count={},mean={},p50={},p99={},max={}",
        summary.count,
        us(summary.sum_ns.checked_div(summary.count).unwrap_or(0)),
        us(summary.p50_ns),
        us(summary.p99_ns),
        us(summary.max_ns)
    )
}

pub(super) fn reactors(page: &mut Page<'_, '_>) {
    let shared = page.cx.shared;
    let (links, baseline) = (shared.links(), shared.baseline.load());
    for (index, published) in shared.published.iter().enumerate() {
        let ops = published.lock().totals.commands;
        let counters = baseline.reactor(links, index);
        let load_percent = f64::from(links.load_ppm(index)) / 10_000.0;
        let value = format!(
            "load_percent={load_percent:.1},busy_ms={},cpu_ms={},connections={},ops={ops},reads={},writes={},\
             epoll_waits={},epoll_ctls={},wakes={},input_bytes={},output_bytes={},migrated_in={},migrated_out={},held_bytes={}",
            counters.busy_ns / 1_000_000,
            counters.cpu_ns / 1_000_000,
            counters.connections,
            counters.reads,
            counters.writes,
            counters.turns,
            counters.interest_changes,
            counters.wakes,
            counters.input_bytes,
            counters.output_bytes,
            counters.migrated_in,
            counters.migrated_out,
            counters.held_bytes,
        );
        let name = shared.reactors.name(index);
        page.field(&name, value);
        let requests = requests_by_kind(&shared.request_kinds, &published.lock().commands);
        if !requests.is_empty() {
            page.field(&format!("{name}_requests"), requests);
        }
    }
}

/// Number of CQL and HTTP requests of each kind that a reactor has run.
fn requests_by_kind(kinds: &RequestKinds, commands: &[CommandCounts]) -> String {
    let counts = commands
        .iter()
        .enumerate()
        .filter(|(id, counts)| counts.calls > 0 && kinds.protocol(*id) != ClientProtocol::Resp);
    let shown = counts.map(|(id, counts)| format!("{}={}", kinds.name(id), counts.calls));
    shown.collect::<Vec<_>>().join(",")
}

/// System activity caused by requests, summed over all threads: divided by the number of commands
/// it is the cost of one. `docs/reference/counters.md` defines each counter.
pub(super) fn counters(page: &mut Page<'_, '_>) {
    let shared = page.cx.shared;
    let (links, baseline) = (shared.links(), shared.baseline.load());
    let (reactors, acceptor) = (baseline.sum(links), baseline.acceptor(links));
    let (log, waits) = (baseline.log(&shared.log), baseline.lock_waits(&shared.keyspace));
    page.field("syscalls_epoll_wait", reactors.turns + acceptor.waits);
    page.field("syscalls_epoll_ctl", reactors.interest_changes);
    page.field("syscalls_read", reactors.reads);
    page.field("syscalls_send", reactors.writes);
    page.field("syscalls_accept", acceptor.calls);
    page.field("syscalls_eventfd_write", reactors.wakes);
    page.field("syscalls_log_write", log.writes);
    page.field("syscalls_log_sync", log.syncs);
    page.field("lock_waits", waits.count);
    page.field("lock_wait_ns", waits.ns);
}
