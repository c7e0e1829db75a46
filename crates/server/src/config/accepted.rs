//! Options of Redis that tune something which this server does not have, or always does. Tools set
//! them, so every value that Redis takes is taken, kept and shown. None has an effect.

use options::Change::WithoutEffect;
use options::{Unit, choice, field, number, option, settings, with_aliases, word};

use super::OptionSpec;
use super::table::{BYTES_MAX, INT_MAX, MS, NUMBER, SECONDS};

choice! {
    /// How a replica of Redis stores a file that it receives.
    DisklessLoad {
        Disabled = "disabled",
        OnEmptyDb = "on-empty-db",
        Swapdb = "swapdb",
    }
}

choice! {
    /// Which payloads Redis checks completely.
    SanitizePayload {
        No = "no",
        Yes = "yes",
        Clients = "clients",
    }
}

settings! {
    /// Values that are only shown.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Accepted {
        stop_writes_on_bgsave_error: bool = true,
        rdbcompression: bool = false,
        rdb_save_incremental_fsync: bool = true,
        rdb_del_sync_files: bool = false,
        no_appendfsync_on_rewrite: bool = false,
        auto_aof_rewrite_percentage: usize = 0,
        auto_aof_rewrite_min_size_bytes: u64 = 67_108_864,
        aof_use_rdb_preamble: bool = true,
        aof_rewrite_incremental_fsync: bool = true,
        repl_ping_replica_period_s: usize = 10,
        repl_backlog_ttl_s: u64 = 3_600,
        repl_diskless_sync: bool = true,
        repl_diskless_sync_delay_s: usize = 5,
        repl_diskless_sync_max_replicas: usize = 0,
        repl_diskless_load: DisklessLoad = DisklessLoad::Disabled,
        repl_disable_tcp_nodelay: bool = false,
        lazyfree_lazy_eviction: bool = true,
        lazyfree_lazy_expire: bool = true,
        lazyfree_lazy_server_del: bool = true,
        lazyfree_lazy_user_del: bool = true,
        lazyfree_lazy_user_flush: bool = true,
        replica_lazy_flush: bool = true,
        activerehashing: bool = true,
        active_defrag_ignore_bytes: u64 = 104_857_600,
        active_defrag_threshold_lower_percent: usize = 10,
        active_defrag_threshold_upper_percent: usize = 100,
        active_defrag_cycle_min_percent: usize = 1,
        active_defrag_cycle_max_percent: usize = 25,
        active_defrag_max_scan_fields: u64 = 1_000,
        jemalloc_bg_thread: bool = false,
        list_compress_depth: usize = 0,
        maxmemory_eviction_tenacity: usize = 10,
        io_threads: usize = 1,
        dynamic_hz: bool = false,
        sanitize_dump_payload: SanitizePayload = SanitizePayload::Yes,
        cluster_node_timeout_ms: u64 = 15_000,
        cluster_require_full_coverage: bool = true,
        cluster_allow_reads_when_down: bool = false,
        cluster_allow_pubsubshard_when_down: bool = true,
        cluster_allow_replica_migration: bool = true,
        cluster_migration_barrier: usize = 1,
        cluster_replica_validity_factor: usize = 10,
        cluster_replica_no_failover: bool = false,
        cluster_link_sendbuf_limit_bytes: u64 = 0,
    }
}

const LAZY: &str = "Memory of removed values is always freed outside the locks.";
const NO_REWRITE: &str = "The log is not rewritten: a snapshot frees it, see `snapshot-log-bytes`.";
const NO_DEFRAG: &str = "Tunes `activedefrag`, which cannot be switched on.";
const COPY: &str =
    "The copy for a replica is sent at once, stripe by stripe, and no file is made for it.";
const ONE_SERVER: &str =
    "Nodes of `cluster-view` are reactors of this server, which fail only together.";
const ONE_WAY: &str = "Files are always written, synced and removed in the same way.";

/// A switch without effect.
macro_rules! switch {
    ($name:literal, $field:ident, $doc:expr) => {
        option($name, field!(YesNo, accepted.$field), WithoutEffect, $doc)
    };
}

#[rustfmt::skip]
pub(super) const ACCEPTED: &[OptionSpec] = &[
    switch!("stop-writes-on-bgsave-error", stop_writes_on_bgsave_error,
        "A failed snapshot loses nothing, so it does not stop writes. If the log cannot be written, writes are always refused."),
    switch!("rdbcompression", rdbcompression, "Snapshots and RDB files are not compressed."),
    switch!("rdb-save-incremental-fsync", rdb_save_incremental_fsync, ONE_WAY),
    switch!("rdb-del-sync-files", rdb_del_sync_files, COPY),
    switch!("no-appendfsync-on-rewrite", no_appendfsync_on_rewrite,
        "The log is synced by `durability` at all times, also while a snapshot is taken."),
    option("auto-aof-rewrite-percentage", number!(NUMBER, 0, INT_MAX, accepted.auto_aof_rewrite_percentage), WithoutEffect,
        NO_REWRITE),
    option("auto-aof-rewrite-min-size", number!(Unit::Bytes, 0, BYTES_MAX, accepted.auto_aof_rewrite_min_size_bytes), WithoutEffect,
        NO_REWRITE),
    switch!("aof-use-rdb-preamble", aof_use_rdb_preamble, "The log always begins where a snapshot ends."),
    switch!("aof-rewrite-incremental-fsync", aof_rewrite_incremental_fsync, ONE_WAY),
    with_aliases(&["repl-ping-slave-period"], option("repl-ping-replica-period", number!(SECONDS, 1, INT_MAX, accepted.repl_ping_replica_period_s), WithoutEffect,
        "A master sends a heartbeat each second, which is as often as any value requires.")),
    option("repl-backlog-ttl", number!(SECONDS, 0, BYTES_MAX, accepted.repl_backlog_ttl_s), WithoutEffect,
        "The log is the backlog, also without replicas."),
    switch!("repl-diskless-sync", repl_diskless_sync, COPY),
    option("repl-diskless-sync-delay", number!(SECONDS, 0, INT_MAX, accepted.repl_diskless_sync_delay_s), WithoutEffect, COPY),
    option("repl-diskless-sync-max-replicas", number!(NUMBER, 0, INT_MAX, accepted.repl_diskless_sync_max_replicas), WithoutEffect, COPY),
    option("repl-diskless-load", word!(DisklessLoad, accepted.repl_diskless_load), WithoutEffect, COPY),
    switch!("repl-disable-tcp-nodelay", repl_disable_tcp_nodelay,
        "Replication always sends at once, in parts of up to 512 KiB."),
    switch!("lazyfree-lazy-eviction", lazyfree_lazy_eviction, LAZY),
    switch!("lazyfree-lazy-expire", lazyfree_lazy_expire, LAZY),
    switch!("lazyfree-lazy-server-del", lazyfree_lazy_server_del, LAZY),
    switch!("lazyfree-lazy-user-del", lazyfree_lazy_user_del, LAZY),
    switch!("lazyfree-lazy-user-flush", lazyfree_lazy_user_flush, LAZY),
    with_aliases(&["slave-lazy-flush"], switch!("replica-lazy-flush", replica_lazy_flush, LAZY)),
    switch!("activerehashing", activerehashing, "The table of each of 4,096 stripes grows and shrinks by itself, at once."),
    option("active-defrag-ignore-bytes", number!(Unit::Bytes, 1, BYTES_MAX, accepted.active_defrag_ignore_bytes), WithoutEffect, NO_DEFRAG),
    option("active-defrag-threshold-lower", number!(NUMBER, 0, 1_000, accepted.active_defrag_threshold_lower_percent), WithoutEffect, NO_DEFRAG),
    option("active-defrag-threshold-upper", number!(NUMBER, 0, 1_000, accepted.active_defrag_threshold_upper_percent), WithoutEffect, NO_DEFRAG),
    option("active-defrag-cycle-min", number!(NUMBER, 1, 99, accepted.active_defrag_cycle_min_percent), WithoutEffect, NO_DEFRAG),
    option("active-defrag-cycle-max", number!(NUMBER, 1, 99, accepted.active_defrag_cycle_max_percent), WithoutEffect, NO_DEFRAG),
    option("active-defrag-max-scan-fields", number!(NUMBER, 1, BYTES_MAX, accepted.active_defrag_max_scan_fields), WithoutEffect, NO_DEFRAG),
    switch!("jemalloc-bg-thread", jemalloc_bg_thread, "The allocator has no threads."),
    option("list-compress-depth", number!(NUMBER, 0, INT_MAX, accepted.list_compress_depth), WithoutEffect,
        "Blocks of lists are not compressed."),
    option("maxmemory-eviction-tenacity", number!(NUMBER, 0, 100, accepted.maxmemory_eviction_tenacity), WithoutEffect,
        "One command evicts at most 128 keys."),
    option("io-threads", number!(NUMBER, 1, 128, accepted.io_threads), WithoutEffect,
        "The threads that read and write sockets are the `reactors`, which also execute commands."),
    switch!("dynamic-hz", dynamic_hz, "`hz` does not follow the number of clients."),
    option("sanitize-dump-payload", word!(SanitizePayload, accepted.sanitize_dump_payload), WithoutEffect,
        "RESTORE and imports check every value completely."),
    option("cluster-node-timeout", number!(MS, 0, BYTES_MAX, accepted.cluster_node_timeout_ms), WithoutEffect, ONE_SERVER),
    switch!("cluster-require-full-coverage", cluster_require_full_coverage, ONE_SERVER),
    switch!("cluster-allow-reads-when-down", cluster_allow_reads_when_down, ONE_SERVER),
    switch!("cluster-allow-pubsubshard-when-down", cluster_allow_pubsubshard_when_down, ONE_SERVER),
    switch!("cluster-allow-replica-migration", cluster_allow_replica_migration, ONE_SERVER),
    option("cluster-migration-barrier", number!(NUMBER, 0, INT_MAX, accepted.cluster_migration_barrier), WithoutEffect, ONE_SERVER),
    with_aliases(&["cluster-slave-validity-factor"], option("cluster-replica-validity-factor", number!(NUMBER, 0, INT_MAX, accepted.cluster_replica_validity_factor), WithoutEffect,
        ONE_SERVER)),
    with_aliases(&["cluster-slave-no-failover"], switch!("cluster-replica-no-failover", cluster_replica_no_failover, ONE_SERVER)),
    option("cluster-link-sendbuf-limit", number!(Unit::Bytes, 0, BYTES_MAX, accepted.cluster_link_sendbuf_limit_bytes), WithoutEffect,
        "Nodes of `cluster-view` have no bus."),
];
