//! The single table of options. All code that refers to an option by name uses it: the file, the
//! command line, CONFIG GET, SET and REWRITE, the help and `docs/reference/config.md`. Names that
//! only Redis tools read are in [`super::views`].
//!
//! To add an option, add a field to [`Settings`](super::Settings) and a row here.

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

/// Redis stores many counts in an `int`.
const INT_MAX: usize = i32::MAX as usize;
/// Maximum of the integer type in which byte limits are kept and compared.
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

/// A row with its own value and no aliases.
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

/// All options and views, in the order of the documentation. Values and their sources are indexed
/// like this table.
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

/// Options that an operator can set, in the order of the documentation; experiments too in builds
/// that have them.
pub(super) const OWN: &[OptionSpec] = &[
    // --- Server and connections
    option(
        Section::Server,
        "dir",
        Kind::Path { field: field!(dir) },
        "data",
        Change::Start,
        "Directory of the log and the snapshots; created if it does not exist. Only its owner can access the directory and its files. Only one server at a time can use it.",
    ),
    option(
        Section::Server,
        "resp",
        Kind::Addresses { field: field!(resp) },
        "127.0.0.1:6379",
        Change::Start,
        "Addresses on which the server accepts the Redis protocol. Port 0 selects any free port.",
    ),
    option(
        Section::Server,
        "cql",
        Kind::Addresses { field: field!(cql) },
        "",
        Change::Start,
        "Addresses on which the server accepts Cassandra's protocol, usually 127.0.0.1:9042; empty: none. Port 0 selects any free port.",
    ),
    option(
        Section::Server,
        "http",
        Kind::Addresses { field: field!(http) },
        "",
        Change::Start,
        "Addresses on which the server accepts HTTP: the REST API, health checks, metrics and the console; empty: none. Port 0 selects any free port.",
    ),
    option(
        Section::Server,
        "resp-tls",
        Kind::Addresses { field: field!(resp_tls) },
        "",
        Change::Start,
        "Like `resp`, but with TLS: see the `tls-` options.",
    ),
    option(
        Section::Server,
        "cql-tls",
        Kind::Addresses { field: field!(cql_tls) },
        "",
        Change::Start,
        "Like `cql`, but with TLS: see the `tls-` options.",
    ),
    option(
        Section::Server,
        "http-tls",
        Kind::Addresses { field: field!(http_tls) },
        "",
        Change::Start,
        "Like `http`, but with TLS: see the `tls-` options.",
    ),
    option(
        Section::Server,
        "tls-cert-file",
        Kind::Path { field: field!(tls_cert_file) },
        "",
        Change::Running,
        "The server's certificate in PEM, followed by any intermediate certificates. Setting the option again by CONFIG SET, or sending SIGHUP, reloads this and the other `tls-` files for new connections, but only if all of them are valid.",
    ),
    option(
        Section::Server,
        "tls-key-file",
        Kind::Path { field: field!(tls_key_file) },
        "",
        Change::Running,
        "The private key of the certificate in PEM, without a password.",
    ),
    option(
        Section::Server,
        "tls-ca-cert-file",
        Kind::Path { field: field!(tls_ca_cert_file) },
        "",
        Change::Running,
        "PEM certificates of the authorities that client certificates are verified against, if `tls-auth-clients` is yes or optional.",
    ),
    option(
        Section::Server,
        "tls-auth-clients",
        choice!(tls_auth_clients: TlsAuthClients),
        "yes",
        Change::Running,
        "Whether a TLS client must present a certificate signed by an authority in `tls-ca-cert-file`. With optional, a client may omit its certificate, but an invalid one is rejected.",
    ),
    option(
        Section::Server,
        "tls-protocols",
        choice!(tls_protocols: TlsProtocols),
        "TLSv1.2 TLSv1.3",
        Change::Running,
        "TLS versions that the server accepts.",
    ),
    option(
        Section::Server,
        "reactors",
        count!(reactors, 0, 1_000),
        "0",
        Change::Start,
        "Threads that serve connections; 0: one per core.",
    ),
    option(
        Section::Server,
        "placement",
        choice!(placement: Placement),
        "least-loaded",
        Change::Start,
        "Which reactor gets a new connection: the least busy one, with ties broken by the fewest connections (least-loaded); the next in turn (round-robin); or the one determined by the peer's port (source-port), which the server announces to CQL clients in the same way as ScyllaDB announces shards.",
    ),
    option(
        Section::Server,
        "tcp-backlog",
        count!(tcp_backlog, 1, INT_MAX),
        "511",
        Change::Start,
        "Maximum number of connections that the kernel queues until the server accepts them; the kernel caps it at net.core.somaxconn.",
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
        "Seconds of inactivity after which the kernel sends TCP keepalive probes to a peer; 0: never. A change applies to new connections.",
    ),
    option(
        Section::Server,
        "timeout",
        Kind::Duration { unit: "seconds", min: 0, max: SECONDS_MAX, field: field!(timeout_s) },
        "0",
        Change::Running,
        "Seconds after which an idle connection is closed; 0: never. Blocked and subscribed connections are not idle.",
    ),
    option(
        Section::Server,
        "maxclients",
        count!(maxclients, 1, u32::MAX as usize),
        "10000",
        Change::Running,
        "Maximum number of open connections; any further connection receives an error and is closed.",
    ),
    option(
        Section::Server,
        "protected-mode",
        Kind::YesNo { field: field!(protected_mode) },
        "yes",
        Change::Running,
        "Refuse to listen on addresses that other machines can reach while `requirepass` is empty.",
    ),
    option(
        Section::Server,
        "requirepass",
        Kind::Password { field: field!(requirepass) },
        "",
        Change::Running,
        "Password that a connection must send with AUTH or HELLO before any other command; empty: none.",
    ),
    option(
        Section::Server,
        "cql-authenticator",
        choice!(cql_authenticator: CqlAuthenticator),
        "requirepass",
        Change::Start,
        "How CQL clients are authenticated: by `requirepass` under any user name, or not at all if it is empty (requirepass); not at all (allow-all); or as roles that have their own passwords (password). At the first start with password, `requirepass` becomes the password of the superuser cassandra.",
    ),
    option(
        Section::Server,
        "cql-authorizer",
        choice!(cql_authorizer: CqlAuthorizer),
        "roles",
        Change::Start,
        "If `cql-authenticator` is password: whether a role needs granted permissions (roles) or may do everything (allow-all).",
    ),
    option(
        Section::Server,
        "enable-debug-command",
        choice!(enable_debug_command: DebugCommand),
        "local",
        Change::Start,
        "Which connections may use DEBUG: all, none, or those from this machine.",
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
        "Milliseconds that the server waits at shutdown for replies to be sent before it closes their connections. The log is always synced.",
    ),
    // --- Durability
    option(
        Section::Durability,
        "durability",
        choice!(durability: Durability),
        "always",
        Change::Running,
        "When the server replies to a write: after the write is on disk (always), or immediately, with the log synced every `durability-interval-ms` (interval) or whenever the kernel writes it back (never).",
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
        "If `durability` is interval: milliseconds between two syncs. A machine crash can lose the writes of that period.",
    ),
    option(
        Section::Durability,
        "log-spin-us",
        Kind::Duration { unit: "microseconds", min: 0, max: 10_000, field: field!(log_spin_us) },
        "250",
        Change::Running,
        "Microseconds for which a reactor whose replies wait for the log polls instead of sleeping, as long as the disk usually completes a sync within that time. On an idle machine this reduces latency at the cost of CPU time. 0: never.",
    ),
    option(
        Section::Durability,
        "log-segment-bytes",
        bytes!(log_segment_bytes, 64 * KIB, 4 * GIB),
        "64mb",
        Change::Start,
        "Size of one file of the log, a multiple of 4096. Files are preallocated, and recycled after a snapshot. A larger record gets a separate file.",
    ),
    option(
        Section::Durability,
        "snapshot-log-bytes",
        bytes!(snapshot_log_bytes, 0, BYTES_MAX),
        "1gb",
        Change::Running,
        "Log growth since the last snapshot that triggers the next one. It bounds the disk space of the log and the time of a restart. 0: snapshots are taken only on request.",
    ),
    // --- Memory
    option(
        Section::Memory,
        "maxmemory",
        bytes!(maxmemory_bytes, 0, u64::MAX),
        "0",
        Change::Running,
        "Memory that the data may use before `maxmemory-policy` applies; 0: no limit.",
    ),
    option(
        Section::Memory,
        "maxmemory-policy",
        choice!(maxmemory_policy: MaxmemoryPolicy),
        "noeviction",
        Change::Running,
        "What happens at `maxmemory`: either the server evicts the least recently used (lru), least frequently used (lfu), random, or shortest-TTL (ttl) keys, among all keys or only keys with a TTL (volatile); or it rejects writes (noeviction).",
    ),
    option(
        Section::Memory,
        "maxmemory-samples",
        count!(maxmemory_samples, 1, 64),
        "5",
        Change::Running,
        "Keys that are sampled to choose the one to evict: larger samples are more accurate, but slower.",
    ),
    option(
        Section::Memory,
        "lfu-log-factor",
        Kind::Duration { unit: "number", min: 0, max: SECONDS_MAX, field: field!(lfu_log_factor) },
        "10",
        Change::Running,
        "How slowly the access counter of a key grows: at 10 it saturates after a million accesses.",
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
        "Minutes without access after which the access counter of a key is decremented; 0: never.",
    ),
    option(
        Section::Memory,
        "memory-limit",
        Kind::Limit { field: field!(memory_limit) },
        "-90",
        Change::Running,
        "Resident memory of the whole server: the tracked memory plus the untracked memory of the process, which is measured 10 times a second. A negative number is a percentage of the machine's memory (or of the control group's, if that is less). At the limit the server rejects requests that need memory with -OOM.",
    ),
    option(
        Section::Memory,
        "read-buffer-memory-limit",
        Kind::Limit { field: field!(read_buffer_memory_limit) },
        "-5",
        Change::Running,
        "Memory for requests that were received but not yet executed. A negative number is a percentage of `memory-limit`. At the limit the server stops reading from sockets until memory is free.",
    ),
    option(
        Section::Memory,
        "cql-rpc-memory-limit",
        Kind::Limit { field: field!(cql_rpc_memory_limit) },
        "0",
        Change::Running,
        "Part of `read-buffer-memory-limit` that CQL connections may use. A negative number is a percentage of it. At the limit a connection receives an error (overloaded) and is closed.",
    ),
    option(
        Section::Memory,
        "throttle-cql-calls-on-soft-memory-limit",
        Kind::YesNo { field: field!(throttle_cql_calls) },
        "yes",
        Change::Running,
        "When pending requests take more than 85% of `cql-rpc-memory-limit` or of `read-buffer-memory-limit`, the server rejects a growing share of CQL statements with an error (overloaded) as usage approaches the limit.",
    ),
    // --- Limits
    option(
        Section::Limits,
        "client-query-buffer-limit",
        bytes!(client_query_buffer_limit_bytes, MIB, BYTES_MAX),
        "1gb",
        Change::Running,
        "Maximum size of one unfinished request in bytes; a connection that sends more is closed.",
    ),
    option(
        Section::Limits,
        "client-output-buffer-limit",
        Kind::OutputLimits { field: field!(client_output_buffer_limit) },
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        Change::Running,
        "Bytes of unread replies at which a connection is closed, by class (normal, replica, and pubsub for subscribers and MONITOR): immediately above HARD, or after SECONDS above SOFT, checked once a second. 0: no limit. Classes that are not named keep their limits.",
    ),
    option(
        Section::Limits,
        "proto-max-bulk-len",
        bytes!(proto_max_bulk_len_bytes, MIB, BYTES_MAX),
        "512mb",
        Change::Running,
        "Maximum size in bytes of one argument of a request, and therefore of one string value.",
    ),
    option(
        Section::Limits,
        "elements-per-command-max",
        count!(elements_per_command_max, 0, INT_MAX),
        "1048576",
        Change::Running,
        "Elements that one command or EXEC may process, counting all elements of collections that it reads or removes as a whole; expensive elements count more than once (see limits.md). Commands that need more are rejected, so that they do not delay other clients of the same reactor; 0: no limit.",
    ),
    with_aliases(
        option(
            Section::Limits,
            "native-transport-max-frame-size",
            bytes!(native_transport_max_frame_bytes, 64 * KIB, 256 * MIB),
            "16mb",
            Change::Running,
            "Maximum size of one CQL request in bytes, compressed or not. A connection that announces a larger one is closed before the request is read.",
        ),
        &["max-message-length"],
    ),
    option(
        Section::Limits,
        "http-body-bytes-max",
        bytes!(http_body_bytes_max, KIB, GIB),
        "16mb",
        Change::Running,
        "Maximum size in bytes of the body of one HTTP request. If the body is longer, the server responds with 413 and closes the connection.",
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
        "Milliseconds that an HTTP connection may be idle: between two requests it is then closed; in the middle of a body the server responds with 408.",
    ),
    with_aliases(
        option(
            Section::Limits,
            "prepared-statements-memory",
            bytes!(prepared_statements_bytes_max, 64 * KIB, BYTES_MAX),
            "128mb",
            Change::Running,
            "Estimated memory of all prepared CQL statements, in bytes.",
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
            "Maximum number of fields of a hash that is stored in one compact block.",
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
            "Maximum bytes of a field or value of a hash that is stored in one compact block.",
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
            "Size of one block of a list: a number of elements that take at most 8 KiB, or -1 to -5 for 4, 8, 16, 32, 64 KiB. A larger element gets a separate block. 0 means 1; values below -5 mean -5.",
        ),
        &["list-max-ziplist-size"],
    ),
    option(
        Section::Encodings,
        "set-max-intset-entries",
        count!(set_max_intset_entries, 0, INT_MAX),
        "512",
        Change::Running,
        "Maximum number of members of a set of integers that is stored as a sorted array.",
    ),
    option(
        Section::Encodings,
        "set-max-listpack-entries",
        count!(set_max_listpack_entries, 0, INT_MAX),
        "128",
        Change::Running,
        "Maximum number of members of a set that is stored in one compact block.",
    ),
    option(
        Section::Encodings,
        "set-max-listpack-value",
        count!(set_max_listpack_value_bytes, 0, INT_MAX),
        "64",
        Change::Running,
        "Maximum bytes of a member of a set that is stored in one compact block.",
    ),
    with_aliases(
        option(
            Section::Encodings,
            "zset-max-listpack-entries",
            count!(zset_max_listpack_entries, 0, INT_MAX),
            "128",
            Change::Running,
            "Maximum number of members of a sorted set that is stored in one compact block.",
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
            "Maximum bytes of a member of a sorted set that is stored in one compact block.",
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
        "Remove expired keys in the background. Clients never see expired keys in either case. With no, an expired key is removed and its memory freed when a Redis command names it (GET, DEL), when SCAN reaches it, when CQL writes it, or by eviction; KEYS, DBSIZE, RANDOMKEY and CQL SELECT do not remove it.",
    ),
    option(
        Section::Expiry,
        "active-expire-effort",
        count!(active_expire_effort, 1, 10),
        "1",
        Change::Running,
        "CPU time that background expiry may use, from 1 (little) to 10 (much).",
    ),
    // --- Insight
    option(
        Section::Insight,
        "log-level",
        choice!(log_level: LogLevel),
        "info",
        Change::Running,
        "Minimum severity of the server events that are logged.",
    ),
    option(
        Section::Insight,
        "log-format",
        choice!(log_format: LogFormat),
        "text",
        Change::Start,
        "Format of a logged event: a line of text or a JSON object.",
    ),
    with_aliases(
        option(
            Section::Insight,
            "log-file",
            Kind::Path { field: field!(log_file) },
            "",
            Change::Start,
            "File to which events are appended; empty: standard error.",
        ),
        &["logfile"],
    ),
    option(
        Section::Insight,
        "slowlog-log-slower-than",
        Kind::Signed { min: -1, max: i64::MAX, field: field!(slowlog_log_slower_than_us) },
        "10000",
        Change::Running,
        "Execution time in microseconds above which a command is recorded in the slow log; 0: every command, -1: none.",
    ),
    option(
        Section::Insight,
        "slowlog-max-len",
        count!(slowlog_max_len, 0, 1_000_000),
        "128",
        Change::Running,
        "Maximum number of commands in the slow log; the oldest are removed.",
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
        "Milliseconds above which an event is recorded for LATENCY; 0: none.",
    ),
    option(
        Section::Insight,
        "latency-tracking",
        Kind::YesNo { field: field!(latency_tracking) },
        "yes",
        Change::Running,
        "Keep latency histograms by command and stage (parse, execute, wait for log, write) for INFO latencystats and LATENCY HISTOGRAM.",
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
        "Log a line for each CQL request, delayed by at most one tick (`hz`): time of day (UTC), reactor, connection/stream, kind. If the log is too slow, lines are dropped and the number of dropped lines is logged.",
    ),
    option(
        Section::Insight,
        "notify-keyspace-events",
        Kind::KeyEvents { field: field!(notify_keyspace_events) },
        "",
        Change::Running,
        "Which key events are published, and where: K to channels named after keys, E to channels named after events; g generic, $ strings, l lists, s sets, h hashes, z sorted sets, x expired, e evicted, n new keys, m reads of missing keys, A all classes but n and m. Without K or E nothing is published.",
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
        "Maximum number of unfinished TLS handshakes, divided evenly among the reactors. Above it the oldest is closed, so that many incomplete handshakes do not block new clients.",
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
        "Milliseconds within which a TLS handshake must complete before its connection is closed. 0: no limit.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "socket-receive-buffer-size",
        bytes!(internals.socket_receive_buffer_bytes, 0, INT_MAX as u64),
        "0",
        Change::Start,
        "Size in bytes of the kernel's receive buffer per connection; the kernel doubles it, and caps it at net.core.rmem_max. 0: the kernel adjusts it automatically.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "log-lane-bytes-max",
        bytes!(internals.log_lane_bytes_max, 4 * KIB, 64 * MIB),
        "256kb",
        Change::Start,
        "Bytes of log records that one reactor collects for the next group, or its share of `log-group-bytes-max` if that is less. At the limit the reactor stops reading requests until the group is written.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "log-group-bytes-max",
        bytes!(internals.log_group_bytes_max, 4 * KIB, GIB),
        "1mb",
        Change::Start,
        "Bytes of log records of all reactors that are written and synced together. Groups larger than the processor's cache are slower.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "output-pause-bytes",
        bytes!(internals.output_pause_bytes, 4 * KIB, GIB),
        "1mb",
        Change::Running,
        "Bytes of pending replies on one connection above which the server stops reading its requests until the replies are sent.",
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
        "Milliseconds within which the head of an HTTP request must arrive, from its first byte or from the start of the connection; then the server responds with 408. Checked once a second.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "http-body-rate-min",
        bytes!(internals.http_body_rate_min, 1, GIB),
        "1kb",
        Change::Running,
        "Minimum bytes per second of an HTTP request body after `http-head-timeout-ms` has elapsed; the server responds to slower requests with 408.",
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
        "Milliseconds within which an HTTP client must read some of its response before it is disconnected.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "cql-requests-in-flight-max",
        count!(internals.cql_requests_in_flight_max, 1, 32_768),
        "4096",
        Change::Running,
        "CQL requests of one connection whose replies wait for the log; at the limit no more requests are read until half of the replies are sent.",
    ),
    #[cfg(any(test, feature = "experiments"))]
    option(
        Section::Experiments,
        "prepared-statements-max",
        count!(internals.prepared_statements_max, 1, INT_MAX),
        "100000",
        Change::Running,
        "Maximum number of prepared CQL statements; above it the least recently used ones are evicted, and clients prepare them again.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "num-connections-to-server",
        count!(experiments.num_connections_to_server, 1, INT_MAX),
        "8",
        Change::Start,
        "If `placement` is hash, which selects a reactor by a hash of the peer's address and port: the connection counter modulo this number is added to the hash. It changes which reactors are selected, not how many.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "memory-tracking",
        Kind::YesNo { field: field!(experiments.memory_tracking) },
        "yes",
        Change::Start,
        "Track memory by purpose. Without it INFO and MEMORY show little, and no memory limit is enforced.",
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
        "What runs CQL statements: the reactor that read them, or a pool of threads with one queue. With pool, requests that are running when their connection closes or the server stops get no reply.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "reply-pool-threads",
        count!(experiments.reply_pool_threads, 0, 1_024),
        "0",
        Change::Start,
        "If `reply` is pool: number of threads; 0: one per core.",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "cql-service-queue-length",
        count!(experiments.cql_service_queue_length, 1, 50_000),
        "10000",
        Change::Running,
        "If `reply` is pool: maximum number of requests that wait for a thread; further requests receive an error (overloaded).",
    ),
    #[cfg(feature = "experiments")]
    option(
        Section::Experiments,
        "stub",
        count!(experiments.stub, 0, 5),
        "0",
        Change::Start,
        "Reply early to prepared CQL statements and batches, to measure the cost of each layer; queries run normally. 1: run without waiting for the log. 2: look up, but do not run. 3: decode only. 4: read only the header. 5: echo the received bytes. NOTHING IS STORED at 2 and above: never use it with real data.",
    ),
];

/// Returns the option with this name or alias, in any case.
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|option| option.names().any(|known| known.eq_ignore_ascii_case(name)))
}

/// Index of the row that stores an option's value: its own, or that of the option it sets.
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

/// Returns the name that the operator probably meant, if one is similar enough.
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

    /// Operators see few options: neither names for tools nor experiments count.
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

    /// Returns a valid value that is not the default.
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
