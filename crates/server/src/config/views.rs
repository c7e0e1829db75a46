//! Names that Redis tools read by CONFIG GET. Each shows a constant or a value computed from other
//! options. These names are not options: setting one is rejected unless it already has the value.
//! `appendfsync`, `loglevel` and `shutdown-timeout` set the option that they translate.
//! [`super::accepted`] has the names whose values are kept.

use options::{Change, Kind, Unit, option, with_aliases};

use super::OptionSpec;
use super::settings::{DATABASES, Durability, LogLevel, Settings};

/// A row that shows the result of `show`, and that Redis cannot set either.
const fn view(name: &'static str, show: fn(&Settings) -> String, doc: &'static str) -> OptionSpec {
    option(name, Kind::View { show }, Change::Never, doc)
}

/// A row that shows the result of `show`. Redis can set it: clients read `doc` as the reason why
/// this server cannot.
const fn refused(
    name: &'static str,
    show: fn(&Settings) -> String,
    doc: &'static str,
) -> OptionSpec {
    option(name, Kind::View { show }, Change::Fixed, doc)
}

/// A view that shows a constant.
macro_rules! constant {
    ($name:literal, $shown:literal, $doc:expr) => {
        view($name, |_| $shown.to_owned(), $doc)
    };
}

/// A constant that Redis can set.
macro_rules! fixed {
    ($name:literal, $shown:literal, $doc:expr) => {
        refused($name, |_| $shown.to_owned(), $doc)
    };
}

const NO_AOF: &str =
    "There is no append-only file of Redis: the log has files of its own in `dir`.";
const NODES: &str =
    "Nodes of `cluster-view` have the ports after those in `resp` and `resp-tls`, and no names.";
const DAY_S: i128 = 24 * 60 * 60;
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
    option(
        "shutdown-timeout",
        Kind::Number {
            unit: Unit::Of("seconds"),
            min: 0,
            max: DAY_S,
            get: |settings| Some(i128::from(settings.shutdown_timeout_ms / 1_000)),
            set: |settings, seconds| {
                settings.shutdown_timeout_ms = options::narrow(seconds * 1_000);
            },
        },
        Change::Through("shutdown-timeout-ms"),
        "`shutdown-timeout-ms` in seconds.",
    ),
    refused(
        "port",
        |settings| settings.resp.first().map_or(0, std::net::SocketAddr::port).to_string(),
        "The port of the first address in `resp`, which is set at the start.",
    ),
    refused(
        "tls-port",
        |settings| settings.resp_tls.first().map_or(0, std::net::SocketAddr::port).to_string(),
        "The port of the first address in `resp-tls`, which is set at the start; 0: none.",
    ),
    refused(
        "bind",
        |settings| {
            let hosts: Vec<_> = settings.resp.iter().map(|a| a.ip().to_string()).collect();
            hosts.join(" ")
        },
        "The hosts in `resp`, which is set at the start.",
    ),
    view(
        "cluster-enabled",
        |settings| if settings.cluster_view { "yes" } else { "no" }.to_owned(),
        "The value of `cluster-view`.",
    ),
    view("databases", |_| DATABASES.to_string(), "Numbered keyspaces for SELECT."),
    fixed!("appendonly", "yes", "Every write is logged: see `durability`."),
    fixed!("activedefrag", "no", "Memory is not defragmented."),
    fixed!(
        "maxmemory-clients",
        "0",
        "There is no separate limit for all clients: see `memory-limit`."
    ),
    fixed!(
        "aof-load-truncated",
        "no",
        "A torn end of the log is always accepted, as after a crash; a log that has lost more is refused: see `myriad log repair`."
    ),
    fixed!("dbfilename", "", "Snapshots have names of their own in `dir`."),
    with_aliases(
        &["slave-read-only"],
        fixed!("replica-read-only", "yes", "A replica applies the writes of its master only."),
    ),
    with_aliases(
        &["slave-ignore-maxmemory"],
        fixed!(
            "replica-ignore-maxmemory",
            "yes",
            "A replica does not evict: it has the keys of its master."
        ),
    ),
    fixed!(
        "replica-ignore-disk-write-errors",
        "no",
        "A replica that cannot write its log confirms nothing more to its master."
    ),
    fixed!("cluster-announce-hostname", "", NODES),
    fixed!("cluster-announce-port", "0", NODES),
    fixed!("cluster-announce-tls-port", "0", NODES),
    fixed!("cluster-announce-bus-port", "0", "Nodes of `cluster-view` have no bus."),
    fixed!("cluster-preferred-endpoint-type", "ip", NODES),
    fixed!("cluster-slot-stats-enabled", "no", "Slots are not counted one by one."),
    fixed!("tls-cluster", "no", "Nodes of `cluster-view` have no bus."),
    fixed!("oom-score-adj", "no", PROCESS),
    fixed!(
        "crash-log-enabled",
        "no",
        "A panic is logged with its place and ends the process; there is no report of it."
    ),
    // Names that Redis cannot set while it runs.
    constant!("rdbchecksum", "yes", "Every block of a snapshot has a checksum."),
    constant!("appenddirname", "", NO_AOF),
    constant!("appendfilename", "", NO_AOF),
    constant!("io-threads-do-reads", "no", "Reactors read their sockets: see `io-threads`."),
    constant!("enable-module-command", "no", "Modules are not supported."),
    constant!(
        "enable-protected-configs",
        "no",
        "Options that depend on files change only by a restart."
    ),
    constant!("daemonize", "no", PROCESS),
    constant!("supervised", "no", PROCESS),
    constant!("pidfile", "", PROCESS),
    constant!("syslog-enabled", "no", PROCESS),
    constant!("set-proc-title", "no", PROCESS),
    constant!("always-show-logo", "no", PROCESS),
];
