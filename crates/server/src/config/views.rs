//! Names that Redis tools read by CONFIG GET. Each shows a constant or a value computed from other
//! options. These names are not options: setting one is rejected unless it already has the value.
//! `appendfsync` and `loglevel` set the option that they translate.

use options::{Change, Kind, option, with_aliases};

use super::OptionSpec;
use super::settings::{DATABASES, Durability, LogLevel, Settings};

/// A row that shows the result of `show`.
const fn view(name: &'static str, show: fn(&Settings) -> String, doc: &'static str) -> OptionSpec {
    option(name, Kind::View { show }, Change::Never, doc)
}

/// A row that shows a constant.
macro_rules! fixed {
    ($name:literal, $shown:literal, $doc:expr) => {
        view($name, |_| $shown.to_owned(), $doc)
    };
}

const LAZY: &str = "Memory of removed values is always freed outside the locks.";

const NO_AOF: &str = "There is no append-only file of Redis, and the log is never rewritten.";
const REPLICATION: &str = "Replication has one way of working: see docs/operate/replication.md.";
const ONE_SERVER: &str =
    "Nodes of `cluster-view` are reactors of this server, which is one machine.";
const PROCESS: &str = "Is left to whatever starts the process, or does not exist.";

pub(super) const VIEWS: &[OptionSpec] = &[
    option(
        "appendfsync",
        Kind::Choice {
            words: &["everysec", "always", "no"],
            get: |settings| match settings.durability {
                Durability::Interval => 0,
                Durability::Always | Durability::Replicated => 1,
                Durability::Never => 2,
            },
            set: |settings, place| {
                settings.durability =
                    [Durability::Interval, Durability::Always, Durability::Never][place];
            },
        },
        Change::Through("durability"),
        "`durability` in Redis terms: always (replicated, too), everysec (interval), no (never).",
    ),
    option(
        "loglevel",
        Kind::Choice {
            words: &["debug", "verbose", "notice", "warning"],
            get: |settings| match settings.log_level {
                LogLevel::Trace => 0,
                LogLevel::Debug => 1,
                LogLevel::Info => 2,
                LogLevel::Warn | LogLevel::Error => 3,
            },
            set: |settings, place| {
                settings.log_level =
                    [LogLevel::Trace, LogLevel::Debug, LogLevel::Info, LogLevel::Warn][place];
            },
        },
        Change::Through("log-level"),
        "`log-level` in Redis terms: debug (trace), verbose (debug), notice (info), warning (warn).",
    ),
    view(
        "port",
        |settings| settings.resp.first().map_or(0, std::net::SocketAddr::port).to_string(),
        "The port of the first address in `resp`.",
    ),
    view(
        "tls-port",
        |settings| settings.resp_tls.first().map_or(0, std::net::SocketAddr::port).to_string(),
        "The port of the first address in `resp-tls`; 0: none.",
    ),
    view(
        "bind",
        |settings| {
            let hosts: Vec<_> = settings.resp.iter().map(|a| a.ip().to_string()).collect();
            hosts.join(" ")
        },
        "The hosts in `resp`.",
    ),
    view(
        "cluster-enabled",
        |settings| if settings.cluster_view { "yes" } else { "no" }.to_owned(),
        "The value of `cluster-view`.",
    ),
    view("databases", |_| DATABASES.to_string(), "Numbered keyspaces for SELECT."),
    fixed!("appendonly", "yes", "Every write is logged."),
    fixed!(
        "save",
        "",
        "Snapshots are not scheduled by number of changes: see `snapshot-log-bytes`."
    ),
    // Constants: features that are always on, and features that do not exist here.
    fixed!(
        "stop-writes-on-bgsave-error",
        "yes",
        "A failed snapshot does not stop writes if `save` is empty, as it is here."
    ),
    fixed!("rdbcompression", "no", "Snapshots are not compressed."),
    fixed!("rdbchecksum", "yes", "Every block of a snapshot has a checksum."),
    fixed!("activerehashing", "yes", "Hash tables grow and shrink automatically."),
    fixed!("activedefrag", "no", "Memory is not defragmented."),
    fixed!(
        "maxmemory-clients",
        "0",
        "There is no separate limit for all clients: see `memory-limit`."
    ),
    with_aliases(
        &["min-slaves-max-lag"],
        fixed!(
            "min-replicas-max-lag",
            "10",
            "Seconds without acknowledgment after which a replica does not count for `min-replicas-to-write`."
        ),
    ),
    fixed!("repl-backlog-size", "1048576", REPLICATION),
    fixed!("repl-backlog-ttl", "3600", REPLICATION),
    fixed!("repl-diskless-sync", "yes", REPLICATION),
    fixed!("repl-diskless-sync-delay", "5", REPLICATION),
    with_aliases(
        &["repl-ping-slave-period"],
        fixed!("repl-ping-replica-period", "10", REPLICATION),
    ),
    fixed!("repl-timeout", "60", REPLICATION),
    fixed!("lazyfree-lazy-eviction", "yes", LAZY),
    fixed!("lazyfree-lazy-expire", "yes", LAZY),
    fixed!("lazyfree-lazy-server-del", "yes", LAZY),
    fixed!("lazyfree-lazy-user-del", "yes", LAZY),
    fixed!("lazyfree-lazy-user-flush", "yes", LAZY),
    fixed!("list-compress-depth", "0", "Blocks of lists are not compressed."),
    // Names that scripts and tools read or set to these values.
    fixed!("appenddirname", "", NO_AOF),
    fixed!("appendfilename", "", NO_AOF),
    fixed!("auto-aof-rewrite-percentage", "0", NO_AOF),
    fixed!("auto-aof-rewrite-min-size", "67108864", NO_AOF),
    fixed!("no-appendfsync-on-rewrite", "no", NO_AOF),
    fixed!("aof-use-rdb-preamble", "yes", "The log begins where a snapshot ends."),
    fixed!(
        "aof-load-truncated",
        "no",
        "A log that has lost its end is refused: see `myriad log repair`."
    ),
    fixed!("dbfilename", "", "Snapshots have names of their own in `dir`."),
    with_aliases(&["slave-read-only"], fixed!("replica-read-only", "yes", REPLICATION)),
    with_aliases(
        &["slave-serve-stale-data"],
        fixed!("replica-serve-stale-data", "yes", REPLICATION),
    ),
    with_aliases(
        &["slave-ignore-maxmemory"],
        fixed!("replica-ignore-maxmemory", "yes", REPLICATION),
    ),
    with_aliases(&["slave-announce-ip"], fixed!("replica-announce-ip", "", REPLICATION)),
    with_aliases(&["slave-announce-port"], fixed!("replica-announce-port", "0", REPLICATION)),
    fixed!("replica-announced", "yes", REPLICATION),
    fixed!("replica-ignore-disk-write-errors", "no", REPLICATION),
    fixed!("repl-disable-tcp-nodelay", "no", REPLICATION),
    fixed!("repl-diskless-load", "disabled", REPLICATION),
    fixed!("repl-diskless-sync-max-replicas", "0", REPLICATION),
    with_aliases(&["slave-lazy-flush"], fixed!("replica-lazy-flush", "yes", LAZY)),
    fixed!("cluster-node-timeout", "15000", ONE_SERVER),
    fixed!("cluster-require-full-coverage", "yes", ONE_SERVER),
    fixed!("cluster-allow-reads-when-down", "no", ONE_SERVER),
    fixed!("cluster-allow-pubsubshard-when-down", "yes", ONE_SERVER),
    fixed!("cluster-allow-replica-migration", "yes", ONE_SERVER),
    fixed!("cluster-migration-barrier", "1", ONE_SERVER),
    with_aliases(
        &["cluster-slave-validity-factor"],
        fixed!("cluster-replica-validity-factor", "10", ONE_SERVER),
    ),
    with_aliases(
        &["cluster-slave-no-failover"],
        fixed!("cluster-replica-no-failover", "no", ONE_SERVER),
    ),
    fixed!("cluster-announce-hostname", "", ONE_SERVER),
    fixed!("cluster-announce-port", "0", ONE_SERVER),
    fixed!("cluster-announce-tls-port", "0", ONE_SERVER),
    fixed!("cluster-announce-bus-port", "0", ONE_SERVER),
    fixed!("cluster-preferred-endpoint-type", "ip", ONE_SERVER),
    fixed!("cluster-slot-stats-enabled", "no", ONE_SERVER),
    fixed!("tls-cluster", "no", ONE_SERVER),
    fixed!(
        "io-threads",
        "1",
        "`reactors` read and write sockets; there are no other threads for that."
    ),
    fixed!("io-threads-do-reads", "no", "Reactors read their sockets: see `io-threads`."),
    fixed!("dynamic-hz", "no", "`hz` does not follow the number of clients."),
    fixed!("hll-sparse-max-bytes", "3000", "Size above which a sparse HyperLogLog becomes dense."),
    fixed!("sanitize-dump-payload", "yes", "RESTORE checks every value."),
    fixed!("enable-module-command", "no", "Modules are not supported."),
    fixed!(
        "enable-protected-configs",
        "no",
        "Options that depend on files change only by a restart."
    ),
    fixed!("daemonize", "no", PROCESS),
    fixed!("supervised", "no", PROCESS),
    fixed!("pidfile", "", PROCESS),
    fixed!("syslog-enabled", "no", PROCESS),
    fixed!("set-proc-title", "no", PROCESS),
    fixed!("oom-score-adj", "no", PROCESS),
    fixed!("jemalloc-bg-thread", "no", PROCESS),
    fixed!("crash-log-enabled", "no", PROCESS),
    fixed!("always-show-logo", "no", PROCESS),
];
