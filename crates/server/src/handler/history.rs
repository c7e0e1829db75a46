//! Measures the figures of [`crate::engine::history`] once a second.

use base::stages::Stage;
use base::time::{MonoNs, Now};
use binlog::LogStats;

use crate::engine::baseline::Counters;
use crate::engine::history::{Column, Combine, Point};
use crate::engine::latency_counts::LatencyCounts;
use crate::engine::published::Totals;
use crate::engine::server_state::{ReactorCount, ServerState};
use crate::protocol::ClientProtocol;

/// Percentiles of latencies in thousandths, with their names.
const PERCENTILES: [(u64, &str); 3] = [(500, "p50"), (990, "p99"), (999, "p999")];

/// Figures other than those of protocols and reactors.
const OTHERS: [(&str, Combine); 14] = [
    ("errors_per_s", Combine::Mean),
    ("input_bytes_per_s", Combine::Mean),
    ("output_bytes_per_s", Combine::Mean),
    ("expired_per_s", Combine::Mean),
    ("evicted_per_s", Combine::Mean),
    ("hit_share", Combine::Mean),
    ("connections", Combine::Max),
    ("used_bytes", Combine::Max),
    ("syncs_per_s", Combine::Mean),
    ("records_per_s", Combine::Mean),
    ("sync_share", Combine::Mean),
    ("sync_mean_ns", Combine::Max),
    ("sync_p99_ns", Combine::Max),
    ("lag_bytes", Combine::Max),
];

/// The columns of the history, in the order in which [`Sampler::sample`] returns their values.
pub(crate) fn columns(reactors: ReactorCount) -> Vec<Column> {
    let requests = ClientProtocol::ALL.map(|one| (format!("{}_per_s", one.name()), Combine::Mean));
    let others = OTHERS.map(|(name, combine)| (name.to_owned(), combine));
    let loads =
        (0..reactors.all()).map(|index| (format!("{}_load", reactors.name(index)), Combine::Mean));
    let latencies = ClientProtocol::ALL.into_iter().flat_map(|protocol| {
        Stage::ALL.into_iter().flat_map(move |stage| {
            PERCENTILES.map(|(_, percentile)| {
                let name = format!("{}_{}_{percentile}_ns", protocol.name(), stage.name());
                (name, Combine::Max)
            })
        })
    });
    let all = requests.into_iter().chain(others).chain(loads).chain(latencies);
    all.map(|(name, combine)| Column { name, combine }).collect()
}

/// Counters at the last point.
#[derive(Debug)]
struct Reading {
    at: MonoNs,
    requests: [u64; ClientProtocol::ALL.len()],
    totals: Totals,
    counters: Counters,
    log: LogStats,
    latency: LatencyCounts,
}

#[derive(Debug, Default)]
pub(super) struct Sampler {
    last: Option<Reading>,
}

impl Sampler {
    /// Adds a point with the growth of the counters since the last call.
    pub(super) fn sample(&mut self, shared: &ServerState, now: Now) {
        let reading = read(shared, now.mono);
        if let Some(last) = &self.last {
            let values = values(shared, last, &reading);
            shared.history.add(Point { at: now.unix, values });
        }
        self.last = Some(reading);
    }
}

fn read(shared: &ServerState, at: MonoNs) -> Reading {
    let mut requests = [0; ClientProtocol::ALL.len()];
    for (id, counts) in shared.request_counts().iter().enumerate() {
        requests[shared.request_kinds.protocol(id) as usize] += counts.calls;
    }
    let mut latency = LatencyCounts::default();
    for published in &shared.published {
        latency.add(&published.lock().latency);
    }
    Reading {
        at,
        requests,
        totals: shared.totals(),
        counters: shared.links().stats_sum(),
        log: shared.log.stats(),
        latency,
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "for a chart")]
fn values(shared: &ServerState, last: &Reading, now: &Reading) -> Box<[f32]> {
    let seconds = now.at.since(last.at).max(1) as f64 / 1e9;
    // A counter shrinks when it is reset.
    let grown = |now: u64, last: u64| now.saturating_sub(last) as f64;
    let per_s = |now: u64, last: u64| (grown(now, last) / seconds) as f32;
    let share = |part: f64, whole: f64| (part / whole) as f32;
    let mut values = Vec::with_capacity(shared.history.columns.len());
    values.extend(now.requests.iter().zip(&last.requests).map(|(now, last)| per_s(*now, *last)));
    let (totals, earlier) = (&now.totals, &last.totals);
    let hits = grown(totals.hits, earlier.hits);
    let sync_ns = grown(now.log.sync_ns_sum, last.log.sync_ns_sum);
    let others: [f32; OTHERS.len()] = [
        per_s(totals.error_replies, earlier.error_replies),
        per_s(now.counters.input_bytes, last.counters.input_bytes),
        per_s(now.counters.output_bytes, last.counters.output_bytes),
        per_s(totals.expired_keys, earlier.expired_keys),
        per_s(totals.evicted_keys, earlier.evicted_keys),
        share(hits, hits + grown(totals.misses, earlier.misses)),
        shared.links().connections() as f32,
        shared.used_bytes() as f32,
        per_s(now.log.syncs, last.log.syncs),
        per_s(now.log.records, last.log.records),
        share(sync_ns, seconds * 1e9),
        share(sync_ns, grown(now.log.syncs, last.log.syncs)),
        sync_p99_ns(&now.log, &last.log).map_or(f32::NAN, |ns| ns as f32),
        lag_bytes(shared, &now.log) as f32,
    ];
    values.extend(others);
    let links = shared.links();
    values.extend((0..shared.reactors.all()).map(|index| links.load_ppm(index) as f32 / 1e6));
    let latency = now.latency.since(&last.latency);
    for protocol in ClientProtocol::ALL {
        for stage in Stage::ALL {
            for (permille, _) in PERCENTILES {
                let ns = latency.permille_ns(protocol, stage, permille);
                values.push(ns.map_or(f32::NAN, |ns| ns as f32));
            }
        }
    }
    values.into()
}

/// The upper bound of the bucket with the 99th percentile of the syncs; `None` without any sync.
fn sync_p99_ns(now: &LogStats, last: &LogStats) -> Option<u64> {
    let pairs = now.sync_ns_buckets.iter().zip(&last.sync_ns_buckets);
    let counts: Vec<u64> = pairs.map(|(now, last)| now.saturating_sub(*last)).collect();
    let rank = counts.iter().sum::<u64>().saturating_mul(99).div_ceil(100);
    let mut seen = 0;
    let found = counts.iter().position(|count| {
        seen += count;
        rank > 0 && seen >= rank
    });
    found.map(|power| 2_u64 << power)
}

/// The bytes of the log that a follower or replica of this server lacks, or that this replica lacks.
fn lag_bytes(shared: &ServerState, log: &LogStats) -> u64 {
    let position = shared.replication.position(&shared.log);
    let link = shared.replication.link();
    let behind = link.source.as_ref().map_or(0, |_| link.source_position.saturating_sub(position));
    behind.max(log.follower_lag_bytes)
}
