//! From the files in the data directory to the data: the newest snapshot, then the log after it.

use std::sync::Arc;

use anyhow::Context as _;
use base::time::UnixMs;
use binlog::{Disk, Log, Lsn, Options, Record, Span, SyncPolicy, Tail};
use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};
use store::{Keyspace, Mutation, Params, STRIPES};

use crate::clock;
use crate::config::{Durability, Settings};
use crate::cql;
use crate::cql::schema::Loaded;
use crate::records;
use crate::shared::{RecoveryReport, params};
use crate::snapshots;

/// Everything that a server starts from.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) keyspace: Keyspace,
    pub(crate) log: Arc<Log>,
    pub(crate) report: RecoveryReport,
    pub(crate) snapshot_unix_ms: u64,
    /// The position of the snapshot, or of the log's first record.
    pub(crate) snapshot_position: u64,
    pub(crate) schema: Loaded,
}

pub(crate) fn sync_policy(settings: &Settings) -> SyncPolicy {
    match settings.durability {
        Durability::Always => SyncPolicy::Always,
        Durability::Interval => {
            SyncPolicy::Interval(std::time::Duration::from_millis(settings.durability_interval_ms))
        }
        Durability::Never => SyncPolicy::Never,
    }
}

fn log_options(settings: &Settings, salt: u64) -> Options {
    Options {
        segment_bytes: settings.log_segment_bytes,
        lane_bytes_max: usize::try_from(settings.log_lane_bytes_max).unwrap_or(usize::MAX),
        group_bytes_max: usize::try_from(settings.log_group_bytes_max).unwrap_or(usize::MAX),
        sync: sync_policy(settings),
        salt,
        ..Options::default()
    }
}

/// Reads the data back. `lanes`: one per reactor. `random` seeds a new keyspace and a new log.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    lanes: usize,
    now: UnixMs,
    random: u64,
) -> anyhow::Result<Recovered> {
    let start = clock::mono_now();
    let salt = SmallRng::seed_from_u64(random).next_u64();
    let loading = params(settings, now, random, random);
    let loaded = snapshots::load(&**disk, &loading).context("loading the snapshot")?;
    let (keyspace, floors, snapshot_keys, snapshot_unix_ms) = match loaded {
        Some(loaded) => (loaded.keyspace, loaded.floors, loaded.keys, loaded.taken_unix_ms),
        None => (Keyspace::new(random), vec![0; STRIPES], 0, now.0),
    };
    // Each stripe was read at a position of its own. A log that does not reach the last of them
    // would give out positions that some stripe's block covers already.
    let from = Lsn(floors.iter().copied().min().unwrap_or(0));
    let reach = Lsn(floors.iter().copied().max().unwrap_or(0));
    let replaying = params(settings, now, keyspace.seed(), random);
    let options = log_options(settings, salt);
    let mut replay = |record: Record<'_>| replay_record(&keyspace, &replaying, &floors, record);
    let (log, recovered) =
        Log::open(Arc::clone(disk), options, lanes, Span { from, reach }, &mut replay)
            .context("recovering the log")?;
    if let Tail::Torn { file, offset, .. } = &recovered.tail {
        tracing::warn!(file, offset, "the log ended in a group that was never acknowledged: cut");
    }
    let took_ms = clock::mono_now().since(start) / 1_000_000;
    let report = RecoveryReport { snapshot_keys, log_records: recovered.records, took_ms };
    tracing::info!(snapshot_keys, log_records = recovered.records, took_ms, "data recovered");
    let snapshot_position = from.0;
    let schema = cql::schema::load(&keyspace, &replaying).context("reading the CQL schema")?;
    Ok(Recovered { keyspace, log, report, snapshot_unix_ms, snapshot_position, schema })
}

fn replay_record(
    keyspace: &Keyspace,
    params: &Params,
    floors: &[u64],
    record: Record<'_>,
) -> Result<(), binlog::ReplayError> {
    if record.kind != records::MUTATIONS {
        return Err(format!("a record of unknown kind {}", record.kind).into());
    }
    let mut input = record.payload;
    while !input.is_empty() {
        let mutation = Mutation::decode(&mut input, |key| keyspace.hash(key))
            .map_err(|error| error.to_string())?;
        keyspace
            .replay(&mutation, params, |stripe| record.start.0 < floors[stripe])
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}
