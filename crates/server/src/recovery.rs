//! Recovery of the data from the data directory: loads the newest snapshot, then replays the log
//! after it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use base::time::UnixMs;
use binlog::{Disk, Log, Lsn, OpenError, Options, Record, Span, Tail};
use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};
use store::{Keyspace, Mutation, Params};

use crate::config::Settings;
use crate::engine::clock;
use crate::engine::hub::Hub;
use crate::engine::records::{self, Progress};
use crate::engine::replay::{Replayer, Target};
use crate::engine::replication::{Replaced, Replication, epoch_file};
use crate::engine::server_state::{RecoveryReport, params};
use crate::engine::snapshots::{self, Snapshot};
use crate::service_manager;
use crate::statements::stored_schema::{self, Loaded};

/// Records of the log that are replayed between two messages to the service manager.
const RECORDS_PER_STATUS: u64 = 1 << 20;

/// Everything that the server starts from.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) keyspace: Keyspace,
    pub(crate) log: Arc<Log>,
    pub(crate) report: RecoveryReport,
    pub(crate) snapshot_unix_ms: u64,
    /// Log position of the snapshot; without a snapshot, of the first record.
    pub(crate) snapshot_position: u64,
    pub(crate) schema: Loaded,
    pub(crate) progress: Progress,
    pub(crate) replication: Replication,
    pub(crate) hub: Hub,
}

/// Log options from the settings. A group always fits into a segment and a lane into a group, no
/// matter how small the segments are.
fn log_options(settings: &Settings, salt: u64) -> Options {
    let group_bytes_max = settings.internals.log_group_bytes_max().min(settings.log_segment_bytes);
    let lane_bytes_max = settings.internals.log_lane_bytes_max().min(group_bytes_max);
    Options {
        segment_bytes: settings.log_segment_bytes,
        lane_bytes_max: usize::try_from(lane_bytes_max).unwrap_or(usize::MAX),
        group_bytes_max: usize::try_from(group_bytes_max).unwrap_or(usize::MAX),
        sync: settings.sync_policy(),
        salt,
        ..Options::default()
    }
}

/// Recovers the keyspace and the log, with a thread for each reactor. The log has a lane for each
/// reactor, and one for the links to other servers. `random` seeds a new keyspace and a new log.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    settings: &Settings,
    reactors: usize,
    now: UnixMs,
    random: u64,
) -> anyhow::Result<Recovered> {
    let start = clock::mono_now();
    let salt = SmallRng::seed_from_u64(random).next_u64();
    service_manager::show("Loading the snapshot");
    let loading = params(settings, now, random, random);
    let loaded = snapshots::load(&**disk, &loading, reactors).context("could not load snapshot")?;
    let loaded = loaded.unwrap_or_else(|| Snapshot::none(random, now));
    let Snapshot { keyspace, floors, keys: snapshot_keys, taken_unix_ms, .. } = loaded;
    // Each stripe was read at its own log position. A log that does not reach the highest of them
    // would reassign positions that the block of some stripe already covers.
    let from = Lsn(floors.iter().copied().min().unwrap_or(0));
    let reach = Lsn(floors.iter().copied().max().unwrap_or(0));
    let replaying = params(settings, now, keyspace.seed(), random);
    let options = log_options(settings, salt);
    let mut progress = loaded.progress;
    let has_failed = AtomicBool::new(false);
    let target = Target {
        keyspace: &keyspace,
        params: replaying.clone(),
        floors: &floors,
        has_failed: &has_failed,
    };
    let (log, recovered) = std::thread::scope(|scope| {
        let mut replayer = Replayer::start(scope, target, reactors);
        let mut replayed = 0_u64;
        let mut replay = |record: Record<'_>| {
            if replayed.is_multiple_of(RECORDS_PER_STATUS) {
                service_manager::show(&format!("Replaying the log: {replayed} records"));
            }
            replayed += 1;
            replayer.take(record, &mut progress)
        };
        let span = Span { from, reach };
        let opened = Log::open(Arc::clone(disk), options, reactors + 1, span, &mut replay);
        // A record that a thread could not apply is before one that this thread could not.
        replayer.end().map_err(|failure| {
            OpenError::of_record(&**disk, failure.at, failure.error.to_string().into())
        })?;
        opened
    })
    .context("could not recover log")?;
    if let Tail::Torn { file, offset, .. } = &recovered.tail {
        tracing::warn!(file, offset, "removed an unacknowledged torn tail from the log");
    }
    let took_ms = clock::mono_now().since(start) / 1_000_000;
    let report = RecoveryReport { snapshot_keys, log_records: recovered.records, took_ms };
    tracing::info!(snapshot_keys, log_records = recovered.records, took_ms, "data recovered");
    warn_of_clock(progress.newest_timestamp, now);
    let schema = stored_schema::load(&keyspace, &replaying).context("could not read CQL schema")?;
    let replication = Replication::load(&keyspace, &replaying, &log, progress.stream_position)
        .map_err(anyhow::Error::msg)?;
    restore_epoch(&**disk, &replication, &log).context("could not read files about the epoch")?;
    let hub = Hub::load(&keyspace, &replaying, settings).map_err(anyhow::Error::msg)?;
    stored_schema::report_unusable(&schema.catalog, hub.is_copying());
    Ok(Recovered {
        replication,
        hub,
        keyspace,
        log,
        report,
        snapshot_unix_ms: taken_unix_ms,
        snapshot_position: from.0,
        schema,
        progress,
    })
}

/// Restores what an earlier run as a master has stored about its epoch.
fn restore_epoch(disk: &dyn Disk, replication: &Replication, log: &Log) -> io::Result<()> {
    let history = replication.history().clone();
    let Some(end) = history.position(log.next()) else { return Ok(()) };
    let replaced = epoch_file::read(disk, epoch_file::REPLACED)?;
    if replaced.is_some_and(|(epoch, _)| history.is_own_epoch(&epoch)) {
        tracing::warn!(
            "another server has replaced this one as the master: writes that need replicas are \
             refused until REPLICAOF decides"
        );
        replication.replicas().fence(Replaced::ByReplica, end);
        *replication.is_replaced_stored.lock() = true;
    }
    let unsynced = epoch_file::read(disk, epoch_file::UNSYNCED)?;
    let newest = history.epoch().map(|epoch| epoch.id);
    let Some((epoch, known)) = unsynced.filter(|(epoch, _)| Some(*epoch) == newest) else {
        return Ok(());
    };
    // This run may write more, and end before a replica has connected.
    let lost_from = known.min(end);
    let stored = if lost_from < known {
        epoch_file::write(disk, epoch_file::UNSYNCED, &epoch, lost_from)
    } else {
        Ok(())
    };
    if let Err(error) = &stored {
        tracing::warn!(%error, "could not store where an epoch must begin; it begins at once");
    }
    replication.unsynced.note_lost(lost_from, stored.is_err());
    Ok(())
}

/// Warns if the clock was set back while the server was down. The server's own timestamps continue
/// from the newest one, so that later writes win; timestamps from clients may be older than the
/// stored ones.
fn warn_of_clock(newest_timestamp: i64, now: UnixMs) {
    const LEAD_US: i64 = 1_000_000;
    let now_us = i64::try_from(now.0).unwrap_or(i64::MAX).saturating_mul(1000);
    let ahead_us = newest_timestamp.saturating_sub(now_us);
    if ahead_us > LEAD_US {
        tracing::warn!(
            ahead_ms = ahead_us / 1000,
            "wall clock is earlier than the newest CQL timestamp of this server; writes with client \
             timestamps may lose to older ones"
        );
    }
}

/// Applies a record.
pub(crate) fn replay_record(
    keyspace: &Keyspace,
    params: &Params,
    floors: &[u64],
    record: Record<'_>,
    progress: &mut Progress,
) -> Result<(), binlog::ReplayError> {
    let Some(contents) = records::contents(&record) else {
        return Err(format!("unknown record kind {}", record.kind).into());
    };
    progress.note(&contents);
    let mut input = contents.mutations;
    while !input.is_empty() {
        let mutation = Mutation::decode(&mut input, |key| keyspace.hash(key))
            .map_err(|error| error.to_string())?;
        keyspace
            .replay(&mutation, params, |stripe| record.start.0 < floors[stripe])
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}
