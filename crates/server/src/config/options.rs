//! The one table of options. Everything that knows an option by name reads it here: the file, the
//! command line, CONFIG GET, SET and REWRITE, the help and `docs/reference/config.md`. Names that
//! only tools of Redis read are in [`super::views`].
//!
//! To add an option: a field in [`Settings`](super::Settings) and a row here.

use base::nearest::nearest;
use base::units::{GIB, KIB, MIB};

#[cfg(feature = "experiments")]
use super::experiments::{ProcessorSource, ReplyPath};
use super::option::{Change, Field, Kind, OptionSpec, Section};
use super::settings::{
    CqlAuthenticator, CqlAuthorizer, DebugCommand, Durability, LogFormat, LogLevel,
    MaxmemoryPolicy, Placement, TlsAuthClients, TlsProtocols,
};
use super::views::VIEWS;

/// Redis counts many things in an `int`.
const INT_MAX: usize = i32::MAX as usize;
/// The largest number of the integer type in which limits in bytes are kept and compared.
const BYTES_MAX: u64 = i64::MAX as u64;
const SECONDS_MAX: u64 = i32::MAX as u64;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

macro_rules! field {
    ($($name:ident).+) => {
        Field { get: |settings| &settings.$($name).+, get_mut: |settings| &mut settings.$($name).+ }
    };
}

macro_rules! choice {
    ($($name:ident).+: $type:ty) => {
        Kind::Choice {
            words: <$type>::WORDS,
            get: |settings| settings.$($name).+ as usize,
            set: |settings, place| settings.$($name).+ = <$type>::ALL[place],
        }
    };
}

macro_rules! bytes {
    ($($name:ident).+, $min:expr, $max:expr) => {
        Kind::Bytes { min: $min, max: $max, field: field!($($name).+) }
    };
}

macro_rules! count {
    ($($name:ident).+, $min:expr, $max:expr) => {
        Kind::Count { min: $min, max: $max, field: field!($($name).+) }
    };
}

/// A row of the usual form: own value, no aliases.
pub(super) const fn option(
    section: Section,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    change: Change,
    doc: &'static str,
) -> OptionSpec {
    OptionSpec { name, aliases: &[], section, kind, default, change, doc }
}

pub(super) const fn with_aliases(
    mut option: OptionSpec,
    aliases: &'static [&'static str],
) -> OptionSpec {
    option.aliases = aliases;
    option
}

/// All options and views, in the order of the documentation. Values and their sources are kept by
/// place in this table.
pub static OPTIONS: &[OptionSpec] = &{
    const COUNT: usize = OWN.len() + VIEWS.len();
    let mut rows = [OWN[0]; COUNT];
    let mut place = 1;
    while place < COUNT {
        rows[place] = if place < OWN.len() { OWN[place] } else { VIEWS[place - OWN.len()] };
        place += 1;
    }
    rows
};

/// What an operator can set, in the order of the documentation; in builds for it, experiments.
pub(super) const OWN: &[OptionSpec] = &[
    // --- Server and connections
    option(
        Section::Server,
        "dir",
        Kind::Path { field: field!(dir) },
        "data",
        Change::Start,
        "Directory of the log and the snapshots; made if it does not exist, for its owner only. So are its files. One server at a time may use it.",
    ),
    option(
        Section::Server,
        "resp",
        Kind::Addresses { field: field!(resp) },
        "127.0.0.1:6379",
        Change::Start,
        "Addresses on which the Redis protocol is spoken. Port 0 takes any free port.",
    ),
    option(
        Section::Server,
        "cql",
        Kind::Addresses { field: field!(cql) },
        "",
        Change::Start,
        "Addresses on which Cassandra's protocol is spoken, usually 127.0.0.1:9042; empty is none. Port 0 takes any free port.",
    ),
    option(
        Section::Server,
        "http",
        Kind::Addresses { field: field!(http) },
        "",
        Change::Start,
        "Addresses on which HTTP is spoken: the data by REST, health, metrics and the console; empty is none. Port 0 takes any free port.",
    ),
    option(
        Section::Server,
        "resp-tls",
        Kind::Addresses { field: field!(resp_tls) },
        "",
        Change::Start,
        "As `resp`, but with TLS: see the `tls-` options.",
    ),
    option(
        Section::Server,
        "cql-tls",
        Kind::Addresses { field: field!(cql_tls) },
        "",
        Change::Start,
        "As `cql`, but with TLS: see the `tls-` options.",
    ),
    option(
        Section::Server,
        "http-tls",
        Kind::Addresses { field: field!(http_tls) },
        "",
        Change::Start,
        "As `http`, but with TLS: see the `tls-` options.",
    ),
    option(
        Section::Server,
        "tls-cert-file",
        Kind::Path { field: field!(tls_cert_file) },
        "",
        Change::Running,
        "The server's certificate in PEM, with those between it and its authority behind it. Giving it again by CONFIG SET, or SIGHUP, reads it and the other `tls-` files anew: for new connections, and only if all are good.",
    ),
    option(
        Section::Server,
        "tls-key-file",
        Kind::Path { field: field!(tls_key_file) },
        "",
        Change::Running,
        "The key of the certificate in PEM, without a password.",
    ),
    option(
        Section::Server,
        "tls-ca-cert-file",
        Kind::Path { field: field!(tls_ca_cert_file) },
        "",
        Change::Running,
        "Certificates in PEM of the authorities whose clients are let in, with `tls-auth-clients` yes or optional.",
    ),
    option(
        Section::Server,
        "tls-auth-clients",
        choice!(tls_auth_clients: TlsAuthClients),
        "yes",
        Change::Running,
        "Whether a client with TLS must show a certificate of an authority in `tls-ca-cert-file`; with optional it may come without one, but not with a bad one.",
    ),
    option(
        Section::Server,
        "tls-protocols",
        choice!(tls_protocols: TlsProtocols),
        "TLSv1.2 TLSv1.3",
        Change::Running,
        "Versions of TLS that are spoken.",
    ),
    option(
        Section::Server,
        "reactors",
        count!(reactors, 0, 1_000),
        "0",
        Change::Start,
        "Threads that serve connections; 0 is one per core.",
    ),
    option(
        Section::Server,
        "placement",
        choice!(placement: Placement),
        "least-loaded",
        Change::Start,
        "Which reactor gets a new connection: the least busy one, and of equally busy ones that with the fewest connections; the next in turn; or one by the peer's port, which is announced to clients of CQL as ScyllaDB announces shards.",
    ),
    option(
        Section::Server,
        "tcp-backlog",
        count!(tcp_backlog, 1, INT_MAX),
        "511",
        Change::Start,
        "Connections that the kernel keeps waiting to be accepted; it caps this at net.core.somaxconn.",
    ),
    option(
        Section::Server,
        "tcp-keepalive",
        Kind::Duration {
            unit: "seconds",
            min: 0,
            max: SECONDS_MAX,
            field: field!(tcp_keepalive_s),
        },
        "300",
        Change::Running,
        "Seconds of silence after which the kernel asks a peer whether it is still there; 0 is never. New connections take a change.",
    ),
    option(
        Section::Server,
        "timeout",
        Kind::Duration { unit: "seconds", min: 0, max: SECONDS_MAX, field: field!(timeout_s) },
        "0",
        Change::Running,
        "Seconds after which an idle connection is closed; 0 is never. Blocked and subscribed connections are not idle.",
    ),
    option(
        Section::Server,
        "maxclients",
        count!(maxclients, 1, u32::MAX as usize),
        "10000",
        Change::Running,
        "Connections that are served at once; one more is answered with an error and closed.",
    ),
    option(
        Section::Server,
        "protected-mode",
        Kind::YesNo { field: field!(protected_mode) },
        "yes",
        Change::Running,
        "Refuse to listen where other machines can connect as long as `requirepass` is empty.",
    ),
    option(
        Section::Server,
        "requirepass",
        Kind::Password { field: field!(requirepass) },
        "",
        Change::Running,
        "Password that a connection must give by AUTH or HELLO before anything else; empty is none.",
    ),
    option(
        Section::Server,
        "cql-authenticator",
        choice!(cql_authenticator: CqlAuthenticator),
        "requirepass",
        Change::Start,
        "Who may use CQL: whoever knows `requirepass`, under any name (everybody if it is empty); everybody; or roles with passwords of their own. At the first start with password, `requirepass` becomes the password of the superuser cassandra.",
    ),
    option(
        Section::Server,
        "cql-authorizer",
        choice!(cql_authorizer: CqlAuthorizer),
        "roles",
        Change::Start,
        "With `cql-authenticator` password: what a role may do, what was granted to it or everything.",
    ),
    option(
        Section::Server,
        "enable-debug-command",
        choice!(enable_debug_command: DebugCommand),
        "local",
        Change::Start,
        "Who may use DEBUG: everyone, no one, or connections from this machine.",
    ),
    option(
        Section::Server,
        "shutdown-timeout-ms",
        Kind::Duration {
            unit: "milliseconds",
            min: 0,
            max: DAY_MS,
            field: field!(shutdown_timeout_ms),
        },
        "10000",
        Change::Running,
        "Milliseconds that a stopping server gives replies to leave before it closes their connections. The log is synced in any case.",
    ),
    // --- Durability
    option(
        Section::Durability,
        "durability",
        choice!(durability: Durability),
        "always",
        Change::Running,
        "When the reply to a write leaves: when the write is on disk (always), or at once, with the log synced every `durability-interval-ms` (interval) or when the kernel likes (never).",
    ),
    option(
        Section::Durability,
        "durability-interval-ms",
        Kind::Duration {
            unit: "milliseconds",
            min: 1,
            max: DAY_MS,
            field: field!(durability_interval_ms),
        },
        "1000",
        Change::Running,
        "With `durability` interval: milliseconds between two syncs, which is what a crash of the machine can lose.",
    ),
    option(
        Section::Durability,
        "log-spin-us",
        Kind::Duration { unit: "microseconds", min: 0, max: 10_000, field: field!(log_spin_us) },
        "250",
        Change::Running,
        "A reactor whose replies wait for the log stays awake for up to so many microseconds, as long as the disk tends to answer within them: on an idle machine replies leave sooner, at the price of CPU time. 0 is never.",
    ),
    option(
        Section::Durability,
        "log-segment-bytes",
        bytes!(log_segment_bytes, 64 * KIB, 4 * GIB),
        "64mb",
        Change::Start,
        "Size of one file of the log, a multiple of 4096. Files are preallocated, and recycled after a snapshot; a record that is larger gets a file of its own.",
    ),
    option(
        Section::Durability,
        "snapshot-log-bytes",
        bytes!(snapshot_log_bytes, 0, BYTES_MAX),
        "1gb",
        Change::Running,
        "A snapshot is taken when the log has grown by this much since the last one: it bounds the disk space of the log and the time of a restart. 0 is only when asked.",
    ),
    // --- Memory
    option(
        Section::Memory,
        "maxmemory",
        bytes!(maxmemory_bytes, 0, u64::MAX),
        "0",
        Change::Running,
        "Memory that the data may take before `maxmemory-policy` acts; 0 is no limit.",
    ),
    option(
        Section::Memory,
        "maxmemory-policy",
        choice!(maxmemory_policy: MaxmemoryPolicy),
        "noeviction",
        Change::Running,
        "What happens at `maxmemory`: keys go by least recent or least frequent use, at random, or by shortest time to live, among all keys or those that expire (volatile); or writes are refused.",
    ),
    option(
        Section::Memory,
        "maxmemory-samples",
        count!(maxmemory_samples, 1, 64),
        "5",
        Change::Running,
        "Keys that are compared to find the one to evict: more is more exact and slower.",
    ),
    option(
        Section::Memory,
        "lfu-log-factor",
        Kind::Duration { unit: "number", min: 0, max: SECONDS_MAX, field: field!(lfu_log_factor) },
        "10",
        Change::Running,
        "How many hits the use counter of a key needs to rise: at 10 it is full after a million.",
    ),
    option(
        Section::Memory,
        "lfu-decay-time",
        Kind::Duration {
            unit: "minutes",
            min: 0,
            max: SECONDS_MAX,
            field: field!(lfu_decay_time_minutes),
        },
        "1",
        Change::Running,
        "Minutes without use after which the use counter of a key falls by one; 0 is never.",
    ),
    option(
        Section::Memory,
        "memory-limit",
        Kind::Limit { field: field!(memory_limit) },
        "-90",
        Change::Running,
        "Resident memory of the whole server: what the trackers count, and what the process takes besides, which is measured 10 times a second. A negative number is a percentage of the machine's memory (of the control group's, if that is less). At the limit requests that need memory are refused with -OOM.",
    ),
    option(
        Section::Memory,
        "read-buffer-memory-limit",
        Kind::Limit { field: field!(read_buffer_memory_limit) },
        "-5",
        Change::Running,
        "Memory for bytes that were received and not yet executed. A negative number is a percentage of `memory-limit`. At the limit sockets are not read until there is room.",
    ),
    option(
        Section::Memory,
        "cql-rpc-memory-limit",
        Kind::Limit { field: field!(cql_rpc_memory_limit) },
        "0",
        Change::Running,
        "Part of `read-buffer-memory-limit` that CQL connections may take. A negative number is a percentage of it. At the limit a connection gets an error (overloaded) and is closed.",
    ),
    option(
        Section::Memory,
        "throttle-cql-calls-on-soft-memory-limit",
        Kind::YesNo { field: field!(throttle_cql_calls) },
        "yes",
        Change::Running,
        "When unread requests take more than 85 % of `cql-rpc-memory-limit` or of `read-buffer-memory-limit`, CQL statements are answered with an error (overloaded), the more of them the closer the limit is.",
    ),
    // --- Limits
    option(
        Section::Limits,
        "client-query-buffer-limit",
        bytes!(client_query_buffer_limit_bytes, MIB, BYTES_MAX),
        "1gb",
        Change::Running,
        "Bytes of one unfinished request; a connection that sends more is closed.",
    ),
    option(
        Section::Limits,
        "client-output-buffer-limit",
        Kind::OutputLimits { field: field!(client_output_buffer_limit) },
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        Change::Running,
        "Bytes of replies that a peer has not read before its connection is closed, by class (normal, replica, and pubsub: subscribers and MONITOR): above HARD, or after SECONDS above SOFT, looked at once a second. 0 is no limit; classes that are not named keep theirs.",
    ),
    option(
        Section::Limits,
        "proto-max-bulk-len",
        bytes!(proto_max_bulk_len_bytes, MIB, BYTES_MAX),
        "512mb",
        Change::Running,
        "Bytes of one argument of a request, and so of one string value.",
    ),
    option(
        Section::Limits,
        "elements-per-command-max",
        count!(elements_per_command_max, 0, INT_MAX),
        "1048576",
        Change::Running,
        "Elements that one command, or one EXEC, may process: of collections that it reads or removes whole, and more of those that cost more (limits.md). A command that needs more is refused, so that others of its reactor do not wait for it; 0 is no limit.",
    ),
    with_aliases(
        option(
            Section::Limits,
            "native-transport-max-frame-size",
            bytes!(native_transport_max_frame_bytes, 64 * KIB, 256 * MIB),
            "16mb",
            Change::Running,
            "Bytes of one CQL request, compressed or not; a connection that announces more is closed before they have come.",
        ),
        &["max-message-length"],
    ),
    option(
        Section::Limits,
        "http-body-bytes-max",
        bytes!(http_body_bytes_max, KIB, GIB),
        "16mb",
        Change::Running,
        "Bytes of the body of one HTTP request; a longer one is answered with 413 and its connection closed.",
    ),
    option(
        Section::Limits,
        "http-idle-timeout-ms",
        Kind::Duration {
            unit: "milliseconds",
            min: 1,
            max: DAY_MS,
            field: field!(http_idle_timeout_ms),
        },
        "60000",
        Change::Running,
        "Milliseconds that an HTTP connection may wait between two requests before it is closed, or be silent in the middle of a body before it is answered with 408.",
    ),
    with_aliases(
        option(
            Section::Limits,
            "prepared-statements-memory",
            bytes!(prepared_statements_bytes_max, 64 * KIB, BYTES_MAX),
            "128mb",
            Change::Running,
            "Bytes of all CQL statements that are kept prepared, by estimate.",
        ),
        &["cql-service-max-prepared-statement-size-bytes"],
    ),
    // --- Encodings
    with_aliases(
        option(
            Section::Encodings,
            "hash-max-listpack-entries",
            count!(hash_max_listpack_entries, 0, INT_MAX),
            "128",
            Change::Running,
            "Fields up to which a hash is kept in one compact block.",
        ),
        &["hash-max-ziplist-entries"],
    ),
    with_aliases(
        option(
            Section::Encodings,
            "hash-max-listpack-value",
            count!(hash_max_listpack_value_bytes, 0, INT_MAX),
            "64",
            Change::Running,
            "Bytes of a field or value up to which a hash is kept in one compact block.",
        ),
        &["hash-max-ziplist-value"],
    ),
    with_aliases(
        option(
            Section::Encodings,
            "list-max-listpack-size",
            Kind::Signed {
                min: i32::MIN as i64,
                max: i32::MAX as i64,
                field: field!(list_max_listpack_size),
            },
            "-2",
            Change::Running,
            "Size of one block of a list: a number of elements, which take at most 8 KiB, or -1 to -5 for 4, 8, 16, 32, 64 KiB. A larger element has a block of its own. 0 is 1, less than -5 is -5.",
        ),
        &["list-max-ziplist-size"],
    ),
    option(
        Section::Encodings,
        "set-max-intset-entries",
        count!(set_max_intset_entries, 0, INT_MAX),
        "512",
        Change::Running,
        "Members up to which a set of integers is kept as a sorted array.",
    ),
    option(
        Section::Encodings,
        "set-max-listpack-entries",
        count!(set_max_listpack_entries, 0, INT_MAX),
        "128",
        Change::Running,
        "Members up to which a set is kept in one compact block.",
    ),
    option(
        Section::Encodings,
        "set-max-listpack-value",
        count!(set_max_listpack_value_bytes, 0, INT_MAX),
        "64",
        Change::Running,
        "Bytes of a member up to which a set is kept in one compact block.",
    ),
    with_aliases(
        option(
            Section::Encodings,
            "zset-max-listpack-entries",
            count!(zset_max_listpack_entries, 0, INT_MAX),
            "128",
            Change::Running,
            "Members up to which a sorted set is kept in one compact block.",
        ),
        &["zset-max-ziplist-entries"],
    ),
    with_aliases(
        option(
            Section::Encodings,
            "zset-max-listpack-value",
            count!(zset_max_listpack_value_bytes, 0, INT_MAX),
            "64",
            Change::Running,
            "Bytes of a member up to which a sorted set is kept in one compact block.",
        ),
        &["zset-max-ziplist-value"],
    ),
    // --- Expiry
    option(
        Section::Expiry,
        "hz",
        count!(hz, 1, 500),
        "10",
        Change::Running,
        "Rounds per second of background work: expiry, timeouts, statistics.",
    ),
    option(
        Section::Expiry,
        "active-expire",
        Kind::YesNo { field: field!(active_expire) },
        "yes",
        Change::Running,
        "Remove expired keys in the background. An expired key is never seen in either case. With no it is removed, and its memory freed, when a Redis command names it (GET, DEL) or SCAN meets it, when CQL writes it, and by eviction; KEYS, DBSIZE, RANDOMKEY and SELECT of CQL leave it there.",
    ),
    option(
        Section::Expiry,
        "active-expire-effort",
        count!(active_expire_effort, 1, 10),
        "1",
        Change::Running,
        "How much time background expiry may take, from 1 (little) to 10.",
    ),
    // --- Insight
    option(
        Section::Insight,
        "log-level",
        choice!(log_level: LogLevel),
        "info",
        Change::Running,
        "The least important events of the server that are logged.",
    ),
    option(
        Section::Insight,
        "log-format",
        choice!(log_format: LogFormat),
        "text",
        Change::Start,
        "How an event is logged: a line of text or a JSON object.",
    ),
    with_aliases(
        option(
            Section::Insight,
            "log-file",
            Kind::Path { field: field!(log_file) },
            "",
            Change::Start,
            "File to which events are appended; empty is standard error.",
        ),
        &["logfile"],
    ),
    option(
        Section::Insight,
        "slowlog-log-slower-than",
        Kind::Signed { min: -1, max: i64::MAX, field: field!(slowlog_log_slower_than_us) },
        "10000",
        Change::Running,
        "Microseconds of execution above which a command is kept in the slow log; 0 is every command, -1 none.",
    ),
    option(
        Section::Insight,
        "slowlog-max-len",
        count!(slowlog_max_len, 0, 1_000_000),
        "128",
        Change::Running,
        "Commands that the slow log keeps; the oldest go.",
    ),
    option(
        Section::Insight,
        "latency-monitor-threshold",
        Kind::Duration {
            unit: "milliseconds",
            min: 0,
            max: i64::MAX as u64,
            field: field!(latency_monitor_threshold_ms),
        },
        "0",
        Change::Running,
        "Milliseconds above which an event is kept for LATENCY; 0 is none.",
    ),
    option(
        Section::Insight,
        "latency-tracking",
        Kind::YesNo { field: field!(latency_tracking) },
        "yes",
        Change::Running,
        "Keep a histogram of times by command and stage (parse, execute, wait for log, write), for INFO latencystats and LATENCY HISTOGRAM.",
    ),
    option(
        Section::Insight,
        "latency-tracking-info-percentiles",
        Kind::Percentiles { field: field!(latency_tracking_info_percentiles) },
        "50 99 99.9",
        Change::Running,
        "Percentiles that INFO latencystats shows.",
    ),
    option(
        Section::Insight,
        "log-cql-requests",
        Kind::YesNo { field: field!(log_cql_requests) },
        "no",
        Change::Running,
        "Log a line for each CQL request, up to a tick (`hz`) late: time of day (UTC), reactor, connection/stream, kind. Lines that the log does not take fast enough are dropped, and their number is logged.",
    ),
    option(
        Section::Insight,
        "notify-keyspace-events",
        Kind::KeyEvents { field: field!(notify_keyspace_events) },
        "",
        Change::Running,
        "Events about keys that are published: K to channels named after keys, E to channels named after events, and which: g generic, $ strings, l lists, s sets, h hashes, z sorted sets, x expired, e evicted, n new keys, m reads of missing keys, A all of these but n and m. Nothing without K or E.",
    ),
    // --- Experiments
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "tls-handshakes-max",
        Kind::Duration {
            unit: "number",
            min: 1,
            max: u32::MAX as u64,
            field: field!(internals.tls_handshakes_max),
        },
        "1000",
        Change::Running,
        "TLS handshakes that are not over, of all reactors, which share it evenly. For one more the oldest is closed, so that a crowd of half handshakes does not keep others out.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "tls-handshake-timeout-ms",
        Kind::Duration {
            unit: "milliseconds",
            min: 0,
            max: DAY_MS,
            field: field!(internals.tls_handshake_timeout_ms),
        },
        "10000",
        Change::Running,
        "Milliseconds in which a TLS handshake has to be over; the connection is closed after that. 0 is never.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "socket-receive-buffer-size",
        bytes!(internals.socket_receive_buffer_bytes, 0, INT_MAX as u64),
        "0",
        Change::Start,
        "Bytes that the kernel keeps of what a peer has sent and the server has not read; the kernel doubles it, and caps it at net.core.rmem_max. 0 leaves it to the kernel, which adapts it.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "log-lane-bytes-max",
        bytes!(internals.log_lane_bytes_max, 4 * KIB, 64 * MIB),
        "256kb",
        Change::Start,
        "Log records that one reactor gathers for the next group, or its share of `log-group-bytes-max` if that is less; at the cap it stops reading requests until the group is written.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "log-group-bytes-max",
        bytes!(internals.log_group_bytes_max, 4 * KIB, GIB),
        "1mb",
        Change::Start,
        "Log records of all reactors that are written and synced at once. Groups larger than the processor's cache are slower.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "output-pause-bytes",
        bytes!(internals.output_pause_bytes, 4 * KIB, GIB),
        "1mb",
        Change::Running,
        "Bytes of replies waiting on one connection above which no more requests are read from it until they have left.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "http-head-timeout-ms",
        Kind::Duration {
            unit: "milliseconds",
            min: 1,
            max: DAY_MS,
            field: field!(internals.http_head_timeout_ms),
        },
        "15000",
        Change::Running,
        "Milliseconds in which the head of an HTTP request has to come, from its first byte or the connection's begin on; answered with 408 after that. Looked at once a second.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "http-body-rate-min",
        bytes!(internals.http_body_rate_min, 1, GIB),
        "1kb",
        Change::Running,
        "Bytes per second that the body of an HTTP request has to come with, beyond `http-head-timeout-ms`; answered with 408 if it is slower.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "http-write-timeout-ms",
        Kind::Duration {
            unit: "milliseconds",
            min: 1,
            max: DAY_MS,
            field: field!(internals.http_write_timeout_ms),
        },
        "30000",
        Change::Running,
        "Milliseconds in which an HTTP client has to take some of its answers; one that takes nothing is cut off.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "cql-requests-in-flight-max",
        count!(internals.cql_requests_in_flight_max, 1, 32_768),
        "4096",
        Change::Running,
        "CQL requests of one connection whose replies wait for the log; at the bound no more are read until half of the replies have left.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "prepared-statements-max",
        count!(internals.prepared_statements_max, 1, INT_MAX),
        "100000",
        Change::Running,
        "CQL statements that are kept prepared; one more and those that were not used for the longest time go, and clients prepare them anew.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "num-connections-to-server",
        count!(experiments.num_connections_to_server, 1, INT_MAX),
        "8",
        Change::Start,
        "With `placement` hash, which takes a reactor by hash of the peer's address and port: the counter of connections modulo this number is added to the hash. It changes which reactors are reached, not how many.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "memory-tracking",
        Kind::YesNo { field: field!(experiments.memory_tracking) },
        "yes",
        Change::Start,
        "Count memory by purpose. Without it INFO and MEMORY show little, and no memory limit holds.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "processor",
        choice!(experiments.processor: ProcessorSource),
        "per-reactor",
        Change::Start,
        "Source of a CQL request's scratch space and prepared statements: its reactor, one of 256 in turn, or a list protected by one lock.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "reply",
        choice!(experiments.reply: ReplyPath),
        "direct",
        Change::Start,
        "What runs CQL statements: the reactor that has read them, or a pool of threads with one queue. With pool, requests that are running when their connection or the server ends get no answer.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "reply-pool-threads",
        count!(experiments.reply_pool_threads, 0, 1_024),
        "0",
        Change::Start,
        "With `reply` pool: its threads; 0 is one per core.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "cql-service-queue-length",
        count!(experiments.cql_service_queue_length, 1, 50_000),
        "10000",
        Change::Running,
        "With `reply` pool: requests that may wait for a thread; one more is answered with an error (overloaded).",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "stub",
        count!(experiments.stub, 0, 5),
        "0",
        Change::Start,
        "Answer prepared CQL statements and batches early, to see what each layer costs; queries run. 1: run, and not waited for the log. 2: found, not run. 3: decoded. 4: only the header is read. 5: the bytes of a connection come back as they are. NOTHING IS KEPT from 2 on: never for data.",
    ),
];

/// The option of a name or alias, in any case.
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|option| option.names().any(|known| known.eq_ignore_ascii_case(name)))
}

/// The row that holds an option's value: its own, or the one it passes on to.
pub(super) fn owner_index(option: &OptionSpec) -> usize {
    let owner = match option.change {
        Change::Through(owner) => owner,
        _ => option.name,
    };
    OPTIONS
        .iter()
        .position(|row| row.name == owner)
        .expect("a test looks up the owner of every row")
}

/// The name that the writer probably meant, if one is near.
pub fn nearest_name(name: &str) -> Option<&'static str> {
    nearest(name, OPTIONS.iter().flat_map(OptionSpec::names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_kebab_case() {
        let mut seen = HashSet::new();
        for name in OPTIONS.iter().flat_map(OptionSpec::names) {
            assert!(seen.insert(name), "{name} occurs twice");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{name} is not kebab-case"
            );
            assert_eq!(
                find(&name.to_uppercase()).map(|o| o.names().any(|n| n == name)),
                Some(true)
            );
        }
    }

    #[test]
    fn every_default_is_read_and_shown_by_every_row() {
        for option in OPTIONS {
            let mut settings = Settings::default();
            let before = settings.clone();
            option.set(&mut settings, option.default).unwrap();
            assert_eq!(settings, before, "{}", option.name);
            assert_eq!(OPTIONS[owner_index(option)].text(&settings), {
                let mut blank = Settings::default();
                let owner = &OPTIONS[owner_index(option)];
                owner.set(&mut blank, owner.default).unwrap();
                owner.text(&blank)
            });
        }
    }

    /// What an operator has to know: neither names for tools nor experiments.
    #[test]
    fn there_are_few_options() {
        let is_plain = |row: &&OptionSpec| row.section != Section::Experiments;
        assert_eq!(OWN.iter().filter(is_plain).count(), 67);
        assert!(VIEWS.iter().all(|row| row.section == Section::Compatibility));
        assert!(VIEWS.iter().all(|row| !matches!(row.change, Change::Running | Change::Start)));
    }

    #[test]
    fn every_row_has_a_doc_of_one_to_three_sentences() {
        for option in OPTIONS {
            assert!(option.doc.ends_with('.'), "{}", option.name);
            assert!((20..320).contains(&option.doc.len()), "{}", option.name);
        }
    }

    #[test]
    fn every_row_has_its_own_field() {
        for option in OPTIONS.iter().filter(|option| option.owns_its_value()) {
            let Some(other) = other_value(option) else { continue };
            let mut settings = Settings::default();
            option.set(&mut settings, &other).unwrap();
            for row in OPTIONS.iter().filter(|row| row.owns_its_value()) {
                let changed = row.text(&settings) != row.text(&Settings::default());
                assert_eq!(changed, row.name == option.name, "{} moves {}", option.name, row.name);
            }
        }
    }

    /// A valid value that is not the default.
    fn other_value(option: &OptionSpec) -> Option<String> {
        let candidates = [
            "1",
            "2",
            "5",
            "10",
            "7mb",
            "200kb",
            "no",
            "yes",
            "json",
            "error",
            "127.0.0.1:1",
            "pubsub 1 1 1",
            "Kg",
        ];
        let words = match &option.kind {
            Kind::Choice { words, .. } => words,
            _ => &candidates[..],
        };
        words.iter().map(|&word| word.to_owned()).find(|word| {
            let mut settings = Settings::default();
            option.set(&mut settings, word).is_ok() && settings != Settings::default()
        })
    }

    #[test]
    fn every_option_can_differ_from_its_default() {
        for option in OPTIONS.iter().filter(|option| option.owns_its_value()) {
            assert!(other_value(option).is_some(), "{}", option.name);
        }
    }

    #[test]
    fn typos_are_understood() {
        for (typo, meant) in [
            ("maxmemroy", Some("maxmemory")),
            ("max-memory", Some("maxmemory")),
            ("log_segment_bytes", Some("log-segment-bytes")),
            ("Durablity", Some("durability")),
            ("cluster-enabled", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest_name(typo), meant, "{typo}");
        }
    }
}
