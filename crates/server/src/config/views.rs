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

pub(super) const VIEWS: &[OptionSpec] = &[
    option(
        "appendfsync",
        Kind::Choice {
            words: &["everysec", "always", "no"],
            get: |settings| match settings.durability {
                Durability::Interval => 0,
                Durability::Always => 1,
                Durability::Never => 2,
            },
            set: |settings, place| {
                settings.durability =
                    [Durability::Interval, Durability::Always, Durability::Never][place];
            },
        },
        Change::Through("durability"),
        "`durability` in Redis terms: always, everysec (interval), no (never).",
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
        &["min-slaves-to-write"],
        fixed!(
            "min-replicas-to-write",
            "0",
            "Replication is not supported, so writes never wait for replicas."
        ),
    ),
    with_aliases(
        &["min-slaves-max-lag"],
        fixed!(
            "min-replicas-max-lag",
            "10",
            "Replication is not supported, so writes never wait for replicas."
        ),
    ),
    fixed!("repl-backlog-size", "1048576", "Replication is not supported."),
    fixed!("repl-backlog-ttl", "3600", "Replication is not supported."),
    fixed!("repl-diskless-sync", "yes", "Replication is not supported."),
    fixed!("repl-diskless-sync-delay", "5", "Replication is not supported."),
    with_aliases(
        &["repl-ping-slave-period"],
        fixed!("repl-ping-replica-period", "10", "Replication is not supported."),
    ),
    fixed!("repl-timeout", "60", "Replication is not supported."),
    fixed!("unixsocket", "", "Unix sockets are not supported."),
    fixed!("lazyfree-lazy-eviction", "yes", LAZY),
    fixed!("lazyfree-lazy-expire", "yes", LAZY),
    fixed!("lazyfree-lazy-server-del", "yes", LAZY),
    fixed!("lazyfree-lazy-user-del", "yes", LAZY),
    fixed!("lazyfree-lazy-user-flush", "yes", LAZY),
    fixed!("list-compress-depth", "0", "Blocks of lists are not compressed."),
];
