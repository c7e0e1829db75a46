//! State shared by all reactors and background threads of one server.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use base::stages::{CycleClock, StageTimers};
use base::time::{MonoNs, Now, UnixMs};
use binlog::Log;
use cql::roles::Roles;
use cql::schema::Catalog;
use parking_lot::Mutex;
use reactor::Links;
use store::types::Compact;
use store::{AccessClock, AccessRule, DATABASES, DbStats, EvictionPolicy, Keyspace, Params};

use crate::config::{Config, MaxmemoryPolicy, MemoryTrackers, Settings};
use crate::engine::acl::{Acl, RefusalLog};
use crate::engine::activity::Activities;
use crate::engine::baseline::Baseline;
use crate::engine::blocked::BlockedClients;
use crate::engine::client_address::ClientAddress;
use crate::engine::client_row::ClientRow;
use crate::engine::command_log::{CommandLogs, Taken};
use crate::engine::free_thread::FreeThread;
use crate::engine::functions::Functions;
use crate::engine::history::History;
use crate::engine::hub::Hub;
use crate::engine::invalidations::Invalidations;
use crate::engine::key_usage::KeyUsage;
use crate::engine::latency::LatencyEvents;
use crate::engine::line_writer::LineWriter;
use crate::engine::long_requests::LongRequests;
use crate::engine::mail::Mail;
use crate::engine::migrations::Migrations;
use crate::engine::monitor_feeds::MonitorFeeds;
use crate::engine::pause::Pause;
use crate::engine::prepared::PreparedTable;
use crate::engine::published::{CommandCounts, PublishedStats, Totals};
use crate::engine::pubsub::Directory;
use crate::engine::refusal::{LOG_FAILED, READONLY, READONLY_HUB};
use crate::engine::replication::{Replication, Role};
use crate::engine::requests::RequestKinds;
use crate::engine::running_scripts::RunningScripts;
use crate::engine::scripts::Scripts;
use crate::engine::secret::Shown;
use crate::engine::snapshots::{SnapshotStatus, Snapshots};
use crate::engine::stalls::Stalls;
use crate::engine::transfers::Transfers;
use crate::engine::write_clock::WriteClock;
use crate::tls::ListenerTls;

/// Identity of this server, fixed at startup.
#[derive(Debug)]
pub(crate) struct Identity {
    /// 40 hexadecimal digits, new at each start.
    pub(crate) run_id: String,
    pub(crate) started: Now,
    pub(crate) executable: String,
    pub(crate) addresses: OnceLock<Vec<std::net::SocketAddr>>,
}

/// The reactors of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReactorCount {
    /// Reactors that serve all connections.
    pub(crate) regular: usize,
    /// Whether one more serves administrators: see `commands::administration`.
    pub(crate) has_spare: bool,
}

impl ReactorCount {
    pub(crate) fn all(self) -> usize {
        self.regular + usize::from(self.has_spare)
    }

    pub(crate) fn is_spare(self, index: usize) -> bool {
        index >= self.regular
    }

    /// Returns the name of a reactor, which is that of its thread.
    pub(crate) fn name(self, index: usize) -> String {
        if self.is_spare(index) { "spare".to_owned() } else { format!("r{index:02}") }
    }
}

/// Statistics of the databases, and the bytes of their data.
pub(crate) type DataStats = ([DbStats; DATABASES], usize);

/// Rates per second for INFO: samples of totals, ten per second.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    samples: Mutex<RateSamples>,
}

#[derive(Debug, Default)]
struct RateSamples {
    last: [u64; RATES],
    at: MonoNs,
    per_second: [[u64; RATE_SAMPLES]; RATES],
    next: usize,
}

const RATE_SAMPLES: usize = 16;
pub(crate) const RATES: usize = 5;

impl Rates {
    /// Adds a sample. `totals`: commands, input bytes, output bytes, reactor turns, nanoseconds in
    /// turns.
    pub(crate) fn sample(&self, now: MonoNs, totals: [u64; RATES]) {
        let mut samples = self.samples.lock();
        let elapsed_ns = now.since(samples.at).max(1);
        let next = samples.next;
        for (index, total) in totals.into_iter().enumerate() {
            let grown = u128::from(total.saturating_sub(samples.last[index]));
            let rate = grown * 1_000_000_000 / u128::from(elapsed_ns);
            samples.per_second[index][next] = u64::try_from(rate).unwrap_or(u64::MAX);
        }
        samples.last = totals;
        samples.at = now;
        samples.next = (next + 1) % RATE_SAMPLES;
    }

    /// Averages over the last 1.6 seconds.
    pub(crate) fn per_second(&self) -> [u64; RATES] {
        let samples = self.samples.lock();
        samples.per_second.map(|rates| rates.iter().sum::<u64>() / RATE_SAMPLES as u64)
    }
}

/// Result of recovery, shown by INFO.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecoveryReport {
    pub(crate) snapshot_keys: u64,
    pub(crate) log_records: u64,
    pub(crate) took_ms: u64,
}

#[derive(Debug)]
pub(crate) struct ServerState {
    /// Measures command times; copied by every reactor.
    pub(crate) cycles: CycleClock,
    pub(crate) keyspace: Keyspace,
    /// CQL keyspaces and tables; every change replaces the whole catalog.
    pub(crate) catalog: ArcSwap<Catalog>,
    /// CQL roles and permissions; every change replaces them as a whole.
    pub(crate) roles: ArcSwap<Roles>,
    /// Prepared CQL statements.
    pub(crate) prepared: PreparedTable,
    /// Scripts of EVAL and SCRIPT LOAD.
    pub(crate) scripts: Scripts,
    /// Functions of FUNCTION LOAD.
    pub(crate) functions: Functions,
    pub(crate) running_scripts: RunningScripts,
    pub(crate) reactors: ReactorCount,
    /// As last returned by [`ServerState::data_stats`].
    pub(crate) last_data_stats: Mutex<DataStats>,
    pub(crate) activities: Activities,
    pub(crate) stalls: Stalls,
    /// Timestamps of CQL writes whose clients send none.
    pub(crate) write_clock: WriteClock,
    pub(crate) log: Arc<Log>,
    /// Users of the Redis protocol and of HTTP.
    pub(crate) acl: Acl,
    /// ACL LOG.
    pub(crate) refusals: Mutex<RefusalLog>,
    pub(crate) config: Mutex<Config>,
    pub(crate) settings: ArcSwap<Settings>,
    pub(crate) memory: MemoryTrackers,
    pub(crate) request_kinds: RequestKinds,
    pub(crate) published: Vec<Mutex<PublishedStats>>,
    /// Clients that are moving between reactors. Locked before `published` both by a reactor that
    /// moves a client and by readers of all clients, so that they miss none.
    pub(crate) moving: Mutex<HashMap<u64, ClientRow>>,
    pub(crate) links: OnceLock<Links<Mail>>,
    /// Certificates of TLS listeners, if there are any.
    pub(crate) tls: OnceLock<ListenerTls>,
    pub(crate) identity: Identity,
    pub(crate) command_logs: CommandLogs,
    pub(crate) latency: Mutex<LatencyEvents>,
    pub(crate) rates: Rates,
    pub(crate) history: History,
    pub(crate) free_thread: FreeThread,
    /// Log lines other than events.
    pub(crate) lines: Arc<LineWriter>,
    pub(crate) snapshots: Snapshots,
    pub(crate) transfers: Transfers,
    pub(crate) replication: Replication,
    pub(crate) hub: Hub,
    pub(crate) migrations: Migrations,
    pub(crate) long_requests: LongRequests,
    /// Subscribers, and published messages on their way to them.
    pub(crate) pubsub: Directory,
    pub(crate) recovery: RecoveryReport,
    /// CLIENT PAUSE.
    pub(crate) pause: Pause,
    pub(crate) monitors: AtomicUsize,
    /// HOTKEYS.
    pub(crate) key_usage: KeyUsage,
    /// MONITOR lines on their way to reactors.
    pub(crate) monitor_feeds: MonitorFeeds,
    /// Time of the last log message about HTTP on a RESP port.
    pub(crate) http_warned: AtomicU64,
    /// Paused connections, for whatever reason.
    pub(crate) blocked_clients: AtomicUsize,
    /// Clients that wait for keys.
    pub(crate) blocked: BlockedClients,
    /// Clients that cache keys.
    pub(crate) invalidations: Invalidations,
    /// CQL requests rejected because the queue of their pool was full.
    pub(crate) cql_pool_overflows: AtomicU64,
    /// The reactors' counters at the last CONFIG RESETSTAT.
    pub(crate) baseline: ArcSwap<Baseline>,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub(crate) active_expire: std::sync::atomic::AtomicBool,
    /// Stops the reactor group on SHUTDOWN.
    pub(crate) stopper: OnceLock<reactor::GroupStopper>,
}

impl ServerState {
    /// Bytes that count toward `maxmemory`.
    #[inline]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.memory.server.current_bytes()
    }

    /// Why writes are refused now, as the text of an error reply.
    #[inline]
    pub(crate) fn check_writes(&self) -> Result<(), &'static str> {
        if self.replication.role() != Role::Master {
            return Err(READONLY);
        }
        if self.hub.relays {
            return Err(READONLY_HUB);
        }
        if self.log.takes_writes() { Ok(()) } else { Err(LOG_FAILED) }
    }

    /// Whether writes must wait until a lane of the log has room. A log that cannot grow refuses
    /// them instead.
    #[inline]
    pub(crate) fn is_lane_full(&self, lane: usize) -> bool {
        !self.log.has_room(lane) && self.log.takes_writes()
    }

    /// Whether this server changes data by itself: expiry, eviction, purge. A replica only follows.
    pub(crate) fn may_change_data(&self) -> bool {
        self.replication.role() == Role::Master && self.log.takes_writes()
    }

    #[inline]
    pub(crate) fn is_monitored(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) > 0
    }

    /// Logs a connection that was closed because it used HTTP, at most once a minute.
    #[cold]
    pub(crate) fn warn_of_http(&self, now: MonoNs) {
        const INTERVAL_NS: u64 = 60_000_000_000;
        let is_due = |warned: u64| {
            (warned == 0 || now.since(MonoNs(warned)) >= INTERVAL_NS).then_some(now.0.max(1))
        };
        if self.http_warned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).is_ok() {
            tracing::warn!(
                "possible cross-protocol scripting attack: a client sent POST or Host: to a RESP \
                 port; its connection was closed"
            );
        }
    }

    /// Records a slow or large command.
    #[cold]
    pub(crate) fn note_command(
        &self,
        client: (ClientAddress, &str),
        now: Now,
        taken: Taken,
        request: Shown<'_>,
    ) {
        self.command_logs.note(&self.settings.load(), client, now.unix, taken, request);
    }

    /// Returns the statistics of the data, or earlier ones while a part of it is held for long.
    /// Locks one stripe after the other: the caller must hold none.
    pub(crate) fn data_stats(&self, now: UnixMs) -> DataStats {
        let spent_ns = Cell::new(0);
        let stats = self.keyspace.stats_unless(now, self.running_scripts.patience(&spent_ns));
        let mut last = self.last_data_stats.lock();
        if let Some(stats) = stats {
            *last = stats;
        }
        *last
    }

    pub(crate) fn links(&self) -> &Links<Mail> {
        self.links.get().expect("set before the first reactor starts")
    }

    /// Sends mail to every reactor that has not ended. A full mailbox is logged; the call does not
    /// wait.
    pub(crate) fn broadcast(&self, mail: &Mail) {
        for (index, mailbox) in self.links().mailboxes().iter().enumerate() {
            if mailbox.send(mail.clone()).is_err() && !mailbox.is_closed() {
                tracing::warn!(reactor = index, "could not deliver mail to a reactor");
            }
        }
    }

    /// Returns the totals of all reactors.
    pub(crate) fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for published in &self.published {
            sum += published.lock().totals;
        }
        sum
    }

    /// Log records that the last snapshot may not contain.
    pub(crate) fn unsaved_changes(&self, last: &SnapshotStatus) -> u64 {
        let replayed = if last.succeeded == 0 { self.recovery.log_records } else { 0 };
        self.totals().changes.saturating_sub(last.changes_before) + replayed
    }

    /// Starts a snapshot if one is due.
    pub(crate) fn consider_snapshot(&self, settings: &Settings, now: MonoNs) {
        let counts_changes = !settings.save.is_empty();
        let changes =
            if counts_changes { self.unsaved_changes(&self.snapshots.status()) } else { 0 };
        self.snapshots.consider(&self.log, settings, now, changes);
    }

    /// Returns the counters of all reactors, by request kind.
    pub(crate) fn request_counts(&self) -> Vec<CommandCounts> {
        let mut sums = vec![CommandCounts::default(); self.request_kinds.len()];
        for published in &self.published {
            for (sum, counts) in sums.iter_mut().zip(&published.lock().commands) {
                *sum += *counts;
            }
        }
        sums
    }

    /// Returns the stage timers of all reactors, by request kind.
    pub(crate) fn stage_timers(&self) -> StageTimers {
        let mut sum = StageTimers::new(self.request_kinds.len());
        self.published.iter().for_each(|published| sum.merge(&published.lock().timers));
        sum
    }
}

/// Returns the thresholds and clocks of one turn, from the settings.
pub(crate) fn params(settings: &Settings, now: UnixMs, seed: u64, random: u64) -> Params {
    let policy = eviction_policy(settings.maxmemory_policy);
    let rule = if policy.uses_frequency() {
        AccessRule::Lfu {
            log_factor: u32::try_from(settings.lfu_log_factor).unwrap_or(u32::MAX),
            decay_minutes: u32::try_from(settings.lfu_decay_time_minutes).unwrap_or(u32::MAX),
        }
    } else {
        AccessRule::Lru
    };
    Params::new(now, AccessClock::new(rule, now, random), compact(settings, seed))
        .keeping_expired(settings.import_mode)
}

fn compact(settings: &Settings, seed: u64) -> Compact {
    let stream_bytes = usize::try_from(settings.stream_node_max_bytes).unwrap_or(usize::MAX);
    let blocks = Compact::default()
        .with_list_size(settings.list_max_listpack_size)
        .with_stream_node(stream_bytes, settings.stream_node_max_entries);
    Compact {
        hash_entries_max: settings.hash_max_listpack_entries,
        hash_value_bytes_max: settings.hash_max_listpack_value_bytes,
        set_intset_entries_max: settings.set_max_intset_entries,
        set_entries_max: settings.set_max_listpack_entries,
        set_value_bytes_max: settings.set_max_listpack_value_bytes,
        zset_entries_max: settings.zset_max_listpack_entries,
        zset_value_bytes_max: settings.zset_max_listpack_value_bytes,
        seed,
        ..blocks
    }
}

pub(crate) fn eviction_policy(policy: MaxmemoryPolicy) -> EvictionPolicy {
    match policy {
        MaxmemoryPolicy::VolatileLru => EvictionPolicy::VolatileLru,
        MaxmemoryPolicy::VolatileLfu => EvictionPolicy::VolatileLfu,
        MaxmemoryPolicy::VolatileRandom => EvictionPolicy::VolatileRandom,
        MaxmemoryPolicy::VolatileTtl => EvictionPolicy::VolatileTtl,
        MaxmemoryPolicy::AllkeysLru => EvictionPolicy::AllKeysLru,
        MaxmemoryPolicy::AllkeysLfu => EvictionPolicy::AllKeysLfu,
        MaxmemoryPolicy::AllkeysRandom => EvictionPolicy::AllKeysRandom,
        MaxmemoryPolicy::Noeviction => EvictionPolicy::NoEviction,
    }
}
