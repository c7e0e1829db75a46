//! The table of options. All code that refers to an option by name uses it: the file, the command
//! line, CONFIG GET, SET and REWRITE, the help and `docs/reference/config.md`. Names that only Redis
//! tools read are in [`super::views`].
//!
//! To add an option, add a field to [`Settings`] and a row here.

use base::units::{GIB, KIB, MIB};
use options::Change::{Running, Start};
use options::{Unit, field, number, option, value, with_aliases, word};

use super::OptionSpec;
use super::accepted::ACCEPTED;
#[cfg(feature = "experiments")]
use super::experiments::{ProcessorSource, ReplyPath};
use super::settings::{
    AclPubsubDefault, CqlAuthenticator, CqlAuthorizer, DebugCommand, Durability, LogFormat,
    LogLevel, MaxmemoryPolicy, Placement, Settings, TlsAuthClients, TlsAuthClientsUser,
    TlsProtocols,
};
use super::values::{OUTPUT_LIMITS, PERCENTILES, addresses};
use super::views::VIEWS;

/// Redis stores many counts in an `int`.
pub(super) const INT_MAX: usize = i32::MAX as usize;
/// Maximum of the integer type in which byte limits are kept and compared.
pub(super) const BYTES_MAX: u64 = i64::MAX as u64;
const SECONDS_MAX: u64 = i32::MAX as u64;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

pub(super) const NUMBER: Unit = Unit::Of("number");
const MINUTES: Unit = Unit::Of("minutes");
pub(super) const SECONDS: Unit = Unit::Of("seconds");
pub(super) const MS: Unit = Unit::Of("milliseconds");
const US: Unit = Unit::Of("microseconds");

type Section = options::Section<Settings>;

/// All options and views, in the order of the documentation.
pub static OPTIONS: &[Section] = &[
    Section { title: "Server and connections", rows: SERVER },
    Section { title: "Durability", rows: DURABILITY },
    Section { title: "Memory", rows: MEMORY },
    Section { title: "Limits per connection and request", rows: LIMITS },
    Section { title: "Compact encodings", rows: ENCODINGS },
    Section { title: "Expiry", rows: EXPIRY },
    Section { title: "Logging and insight", rows: INSIGHT },
    Section { title: "Names that Redis tools read", rows: VIEWS },
    Section { title: "Names without effect that Redis tools set", rows: ACCEPTED },
    // Measures alternative designs and single layers.
    #[cfg(any(test, feature = "experiments"))]
    Section { title: EXPERIMENTS_TITLE, rows: EXPERIMENTS },
];

/// Title of the section that the reference omits.
pub(super) const EXPERIMENTS_TITLE: &str = "Experiments";

#[rustfmt::skip]
const SERVER: &[OptionSpec] = &[
    option("dir", value!(Text, "path", dir), Start,
        "Directory of the log and the snapshots; created if it does not exist. Only its owner can access the directory and its files. Only one server at a time can use it."),
    option("resp", addresses!(resp), Start,
        "Addresses on which the server accepts the Redis protocol. Port 0 selects any free port."),
    option("cql", addresses!(cql), Start,
        "Addresses on which the server accepts Cassandra's protocol, usually 127.0.0.1:9042; empty: none. Port 0 selects any free port."),
    option("http", addresses!(http), Start,
        "Addresses on which the server accepts HTTP: the REST API, health checks, metrics and the console; empty: none. Port 0 selects any free port."),
    option("resp-tls", addresses!(resp_tls), Start,
        "Like `resp`, but with TLS: see the `tls-` options."),
    option("cql-tls", addresses!(cql_tls), Start,
        "Like `cql`, but with TLS: see the `tls-` options."),
    option("http-tls", addresses!(http_tls), Start,
        "Like `http`, but with TLS: see the `tls-` options."),
    option("admin", addresses!(admin), Start,
        "Addresses on which the server accepts the Redis protocol for administration only, also while all reactors are stalled or `maxclients` is reached; empty: none. Up to 64 connections; commands that need data are refused."),
    option("unixsocket", value!(Text, "path", unixsocket), Start,
        "Path of a Unix socket on which the server accepts the Redis protocol, without TLS; empty: none. A file that another process listens on is not replaced, but one that was left behind is. It is removed when the server ends."),
    option("unixsocketperm", value!(Text, "octal number", unixsocketperm), Start,
        "Permissions of the Unix socket, such as 700; 0: whatever the mask of the process leaves. A client needs the permission to write to it."),
    option("tls-cert-file", value!(Text, "path", tls_cert_file), Running,
        "The server's certificate in PEM, followed by any intermediate certificates. Setting the option again by CONFIG SET, or sending SIGHUP, reloads this and the other `tls-` files for new connections, but only if all of them are valid."),
    option("tls-key-file", value!(Text, "path", tls_key_file), Running,
        "The private key of the certificate in PEM, without a password."),
    option("tls-ca-cert-file", value!(Text, "path", tls_ca_cert_file), Running,
        "PEM certificates of the authorities that client certificates are verified against, if `tls-auth-clients` is yes or optional."),
    option("tls-auth-clients", word!(TlsAuthClients, tls_auth_clients), Running,
        "Whether a TLS client must present a certificate signed by an authority in `tls-ca-cert-file`. With optional, a client may omit its certificate, but an invalid one is rejected."),
    option("tls-auth-clients-user", word!(TlsAuthClientsUser, tls_auth_clients_user), Running,
        "What in the verified certificate of a client of the Redis protocol names its ACL user, so that it needs no AUTH: nothing (off), or the common name of the subject (CN). If no enabled user has this name, the client is the default user."),
    option("tls-replication", field!(YesNo, tls_replication), Running,
        "Connects to the master with TLS: checks its certificate by tls-ca-cert-file, and presents tls-cert-file if that is set."),
    option("tls-protocols", word!(TlsProtocols, tls_protocols), Running,
        "TLS versions that the server accepts."),
    option("reactors", number!(NUMBER, 0, 1_000, reactors), Start,
        "Threads that serve connections; 0: one per core."),
    option("placement", word!(Placement, placement), Start,
        "Which reactor gets a new connection: the least busy one, with ties broken by the fewest connections (least-loaded); the next in turn (round-robin); or the one determined by the peer's port (source-port), which the server announces to CQL clients in the same way as ScyllaDB announces shards."),
    option("cluster-view", field!(YesNo, cluster_view), Start,
        "Announce each reactor as a node of a Redis cluster, with its own port: reactor n listens on n + 1 above the port of each address in `resp` and `resp-tls` (any free port for 0). Every connection still accepts every key."),
    option("cluster-announce-ip", value!(Text, "text", cluster_announce_ip), Running,
        "Host that `cluster-view` announces, for clients that use address translation or are outside its container; empty: the address to which the client has connected."),
    option("tcp-backlog", number!(NUMBER, 1, INT_MAX, tcp_backlog), Start,
        "Maximum number of connections that the kernel queues until the server accepts them; the kernel caps it at net.core.somaxconn."),
    option("tcp-keepalive", number!(SECONDS, 0, SECONDS_MAX, tcp_keepalive_s), Running,
        "Seconds of inactivity after which the kernel sends TCP keepalive probes to a peer; 0: never. A change applies to new connections."),
    option("timeout", number!(SECONDS, 0, SECONDS_MAX, timeout_s), Running,
        "Seconds after which an idle connection is closed; 0: never. Blocked and subscribed connections are not idle."),
    option("maxclients", number!(NUMBER, 1, u32::MAX as usize, maxclients), Running,
        "Maximum number of open connections; any further connection receives an error and is closed."),
    option("protected-mode", field!(YesNo, protected_mode), Running,
        "Refuse addresses that other machines can reach while the ACL user `default` needs no password, or CQL asks for none: at the start, and for every change of options or users that would cause it."),
    option("requirepass", value!(Secret, "text", requirepass), Running,
        "Password of the default user, which a connection must send with AUTH or HELLO before any other command; empty: none."),
    option("requirepass-separator", value!(Text, "text", requirepass_separator), Running,
        "Character between two passwords in `requirepass`, of which each is right, so that clients can change from one to the other; empty: `requirepass` is one password. YEDIS has a comma."),
    option("aclfile", value!(Text, "path", aclfile), Start,
        "File of users for the Redis protocol and HTTP, in the format of Redis; empty: ACL SETUSER creates users that are lost at a restart. ACL SAVE writes it, ACL LOAD reads it again. It must exist."),
    option("acl-pubsub-default", word!(AclPubsubDefault, acl_pubsub_default), Running,
        "Channels that a new user may access: none (resetchannels) or all (allchannels)."),
    option("acllog-max-len", number!(NUMBER, 0, 1_000_000, acllog_max_len), Running,
        "Maximum number of entries in ACL LOG; the oldest are removed."),
    with_aliases(&["slaveof"], option("replicaof", value!(Text, "HOST:PORT or host port", replicaof), Start,
        "Host and port of the Redis protocol of the server whose data this server replicates; its own data is replaced. Empty: this server is a master. REPLICAOF changes it while the server runs.")),
    option("masteruser", value!(Text, "text", masteruser), Running,
        "User name by which a replica logs in to its master; empty: `default`. The user needs the commands PSYNC, REPLCONF and PING."),
    option("masterauth", value!(Secret, "text", masterauth), Running,
        "Password by which a replica logs in to its master; empty: it does not log in."),
    with_aliases(&["slave-priority"], option("replica-priority", number!(NUMBER, 0, INT_MAX, replica_priority), Running,
        "Rank of this server when Sentinel chooses a new master among replicas: the lowest is preferred. 0: never.")),
    option("replica-announced", field!(YesNo, replica_announced), Running,
        "Whether Sentinel shows this replica to clients; it reads `replica_announced` in INFO."),
    with_aliases(&["slave-announce-ip"], option("replica-announce-ip", value!(Text, "text", replica_announce_ip), Running,
        "Host that a replica announces to its master for INFO, ROLE, Sentinel and FAILOVER, if there is address translation between them; empty: the address from which it connects. A change applies to the next connection.")),
    with_aliases(&["slave-announce-port"], option("replica-announce-port", number!(NUMBER, 0, u16::MAX, replica_announce_port), Running,
        "Port that a replica announces in the same way; 0: that of the first address in `resp`, or in `resp-tls` with `tls-replication`.")),
    with_aliases(&["slave-serve-stale-data"], option("replica-serve-stale-data", field!(YesNo, replica_serve_stale_data), Running,
        "Whether a replica without a connection to its master answers requests for data. With no they get MASTERDOWN (CQL: Overloaded), also scripts that have the flag allow-stale.")),
    option("repl-timeout", number!(SECONDS, 1, INT_MAX as u64, repl_timeout_s), Running,
        "Seconds of silence after which a replica connects again, and in which a replica or another receiver of RDB files must read something. A replica uses a change for its next connection."),
    option("server-id", number!(NUMBER, 0, u16::MAX as usize, server_id), Start,
        "Number of this server among masters that receive each other's writes (HUB), different in each; 0: it is in no such group, and keys have no versions. A data directory keeps its number."),
    option("hub", field!(YesNo, hub), Start,
        "This server relays what its peers write to the other peers, and takes no writes of clients. `myriad hub` sets it."),
    option("cql-authenticator", word!(CqlAuthenticator, cql_authenticator), Start,
        "How CQL clients log in: as the ACL user `default` under any name, without a login if it needs no password, and only if it has all rights (requirepass); not at all (allow-all); or as roles with passwords of their own (password). At the first start with password, `requirepass` becomes that of the superuser cassandra."),
    option("cql-authorizer", word!(CqlAuthorizer, cql_authorizer), Start,
        "If `cql-authenticator` is password: whether a role needs granted permissions (roles) or may do everything (allow-all)."),
    option("enable-debug-command", word!(DebugCommand, enable_debug_command), Start,
        "Which connections may use DEBUG: all, none, or those from this machine."),
    option("shutdown-timeout-ms", number!(MS, 0, DAY_MS, shutdown_timeout_ms), Running,
        "Milliseconds that the server waits at shutdown for replies to be sent before it closes their connections. The log is always synced."),
];

#[rustfmt::skip]
const DURABILITY: &[OptionSpec] = &[
    option("durability", word!(Durability, durability), Running,
        "When the server replies to a write: after the write is on disk here and on `min-replicas-to-write` replicas (replicated), after it is on disk here (always), or immediately, with the log synced every `durability-interval-ms` (interval) or whenever the kernel writes it back (never)."),
    option("durability-interval-ms", number!(MS, 1, DAY_MS, durability_interval_ms), Running,
        "If `durability` is interval: milliseconds between two syncs. A machine crash can lose the writes of that period."),
    with_aliases(&["min-slaves-to-write"], option("min-replicas-to-write", number!(NUMBER, 0, 64, min_replicas_to_write), Running,
        "Replicas that must be connected, or writes are refused. With `durability` replicated, also the number of replicas on whose disks a write must be before the reply is sent: at least 1.")),
    with_aliases(&["min-slaves-max-lag"], option("min-replicas-max-lag", number!(SECONDS, 0, INT_MAX as u64, min_replicas_max_lag_s), Running,
        "Seconds without acknowledgment after which a replica does not count as connected for `min-replicas-to-write`; replicas acknowledge each second. 0: no limit.")),
    option("repl-backlog-size", number!(Unit::Bytes, 1, BYTES_MAX, repl_backlog_bytes), Running,
        "Bytes of the log that a server with replicas keeps after a snapshot, so that a replica that was disconnected continues without a copy. Whole files of `log-segment-bytes` are kept."),
    option("log-spin-us", number!(US, 0, 10_000, log_spin_us), Running,
        "Microseconds for which a reactor whose replies wait for the log polls instead of sleeping, as long as the disk usually completes a sync within that time. On an idle machine this reduces latency at the cost of CPU time. 0: never."),
    option("log-segment-bytes", number!(Unit::Bytes, 64 * KIB, 4 * GIB, log_segment_bytes), Start,
        "Size of one file of the log, a multiple of 4096. Files are preallocated, and recycled after a snapshot. A larger record gets a separate file."),
    option("save", value!(Text, "SECONDS CHANGES ...", save), Running,
        "Takes a snapshot when SECONDS have passed since the last one and there were at least CHANGES; several pairs are possible. Empty: only by `snapshot-log-bytes`. Writes are on disk by `durability` in either case."),
    option("snapshot-log-bytes", number!(Unit::Bytes, 0, BYTES_MAX, snapshot_log_bytes), Running,
        "Log growth since the last snapshot that triggers the next one. It bounds the disk space of the log and the time of a restart. 0: snapshots are taken only on request."),
];

#[rustfmt::skip]
const MEMORY: &[OptionSpec] = &[
    option("maxmemory", number!(Unit::Bytes, 0, u64::MAX, maxmemory_bytes), Running,
        "Memory that the data may use before `maxmemory-policy` applies; 0: no limit."),
    option("maxmemory-policy", word!(MaxmemoryPolicy, maxmemory_policy), Running,
        "What happens at `maxmemory`: either the server evicts the least recently used (lru), least frequently used (lfu), random, or shortest-TTL (ttl) keys, among all keys or only keys with a TTL (volatile); or it rejects writes (noeviction)."),
    option("maxmemory-samples", number!(NUMBER, 1, 64, maxmemory_samples), Running,
        "Keys that are sampled to choose the one to evict: larger samples are more accurate, but slower."),
    option("lfu-log-factor", number!(NUMBER, 0, SECONDS_MAX, lfu_log_factor), Running,
        "How slowly the access counter of a key grows: at 10 it saturates after a million accesses."),
    option("lfu-decay-time", number!(MINUTES, 0, SECONDS_MAX, lfu_decay_time_minutes), Running,
        "Minutes without access after which the access counter of a key is decremented; 0: never."),
    option("memory-limit", field!(Limit, memory_limit), Running,
        "Resident memory of the whole server: the tracked memory plus the untracked memory of the process, which is measured 10 times a second. A negative number is a percentage of the machine's memory (or of the control group's, if that is less). At the limit the server rejects requests that need memory with -OOM."),
    option("read-buffer-memory-limit", field!(Limit, read_buffer_memory_limit), Running,
        "Memory for requests that were received but not yet executed. A negative number is a percentage of `memory-limit`. At the limit the server stops reading from sockets until memory is free."),
    option("cql-rpc-memory-limit", field!(Limit, cql_rpc_memory_limit), Running,
        "Part of `read-buffer-memory-limit` that CQL connections may use. A negative number is a percentage of it. At the limit a connection receives an error (overloaded) and is closed."),
    option("throttle-cql-calls-on-soft-memory-limit", field!(YesNo, throttle_cql_calls), Running,
        "When pending requests take more than 85% of `cql-rpc-memory-limit` or of `read-buffer-memory-limit`, the server rejects a growing share of CQL statements with an error (overloaded) as usage approaches the limit."),
];

#[rustfmt::skip]
const LIMITS: &[OptionSpec] = &[
    option("client-query-buffer-limit", number!(Unit::Bytes, MIB, BYTES_MAX, client_query_buffer_limit_bytes), Running,
        "Maximum size of one unfinished request in bytes; a connection that sends more is closed."),
    option("client-output-buffer-limit", OUTPUT_LIMITS, Running,
        "Bytes of unread replies at which a connection is closed, by class (normal, replica, and pubsub for subscribers and MONITOR): immediately above HARD, or after SECONDS above SOFT, checked once a second. 0: no limit. Classes that are not named keep their limits."),
    option("proto-max-bulk-len", number!(Unit::Bytes, MIB, BYTES_MAX, proto_max_bulk_len_bytes), Running,
        "Maximum size in bytes of one argument of a request, and therefore of one string value."),
    option("elements-per-command-max", number!(NUMBER, 0, INT_MAX, elements_per_command_max), Running,
        "Elements that one command or EXEC may process on its reactor, so that it does not delay other clients for long; expensive elements count more than once (see limits.md). A single request that needs more runs on a thread (see `long-request-threads`), others are rejected; 0: no limit."),
    option("long-request-threads", number!(NUMBER, 0, 64, long_request_threads), Start,
        "Threads that run requests of the Redis protocol that process more than `elements-per-command-max` elements; meanwhile only requests for the same stripes wait. 0: such requests are rejected."),
    with_aliases(&["lua-time-limit"], option("busy-reply-threshold", number!(MS, 0, INT_MAX, busy_reply_threshold_ms), Running,
        "Milliseconds that a script may run before requests that it delays receive -BUSY and SCRIPT KILL may end it; 0: requests wait for the script.")),
    option("script-memory-limit", number!(Unit::Bytes, MIB, BYTES_MAX, script_memory_bytes_max), Running,
        "Maximum memory in bytes of a running script and of its reactor's interpreter. A script that needs more ends with an error."),
    with_aliases(&["max-message-length"], option("native-transport-max-frame-size", number!(Unit::Bytes, 64 * KIB, 256 * MIB, native_transport_max_frame_bytes), Running,
        "Maximum size of one CQL request in bytes, compressed or not. A connection that announces a larger one is closed before the request is read.")),
    option("overload-queue-age-ms", number!(MS, 0, DAY_MS, overload_queue_age_ms), Running,
        "Milliseconds that requests may wait in an overloaded reactor. While all its turns have lasted longer for four times as long, older requests are refused: -TRYAGAIN, overloaded in CQL, 503 in HTTP; 0: they are served."),
    option("http-body-bytes-max", number!(Unit::Bytes, KIB, GIB, http_body_bytes_max), Running,
        "Maximum size in bytes of the body of one HTTP request. If the body is longer, the server responds with 413 and closes the connection."),
    option("http-idle-timeout-ms", number!(MS, 1, DAY_MS, http_idle_timeout_ms), Running,
        "Milliseconds that an HTTP connection may be idle: between two requests it is then closed; in the middle of a body the server responds with 408."),
    with_aliases(&["cql-service-max-prepared-statement-size-bytes"], option("prepared-statements-memory", number!(Unit::Bytes, 64 * KIB, BYTES_MAX, prepared_statements_bytes_max), Running,
        "Estimated memory of all prepared CQL statements, in bytes.")),
];

#[rustfmt::skip]
const ENCODINGS: &[OptionSpec] = &[
    option("hll-sparse-max-bytes", number!(Unit::Bytes, 0, BYTES_MAX, hll_sparse_bytes_max), Running,
        "Size in bytes above which a sparse HyperLogLog becomes dense (12 KiB). Above 16000 nothing is saved, and PFADD is slower."),
    with_aliases(&["hash-max-ziplist-entries"], option("hash-max-listpack-entries", number!(NUMBER, 0, INT_MAX, hash_max_listpack_entries), Running,
        "Maximum number of fields of a hash that is stored in one compact block.")),
    with_aliases(&["hash-max-ziplist-value"], option("hash-max-listpack-value", number!(NUMBER, 0, INT_MAX, hash_max_listpack_value_bytes), Running,
        "Maximum bytes of a field or value of a hash that is stored in one compact block.")),
    with_aliases(&["list-max-ziplist-size"], option("list-max-listpack-size", number!(NUMBER, i32::MIN as i64, i32::MAX as i64, list_max_listpack_size), Running,
        "Size of one block of a list: a number of elements that take at most 8 KiB, or -1 to -5 for 4, 8, 16, 32, 64 KiB. A larger element gets a separate block. 0 means 1; values below -5 mean -5.")),
    option("set-max-intset-entries", number!(NUMBER, 0, INT_MAX, set_max_intset_entries), Running,
        "Maximum number of members of a set of integers that is stored as a sorted array."),
    option("set-max-listpack-entries", number!(NUMBER, 0, INT_MAX, set_max_listpack_entries), Running,
        "Maximum number of members of a set that is stored in one compact block."),
    option("set-max-listpack-value", number!(NUMBER, 0, INT_MAX, set_max_listpack_value_bytes), Running,
        "Maximum bytes of a member of a set that is stored in one compact block."),
    option("stream-node-max-bytes", number!(Unit::Bytes, 0, BYTES_MAX, stream_node_max_bytes), Running,
        "Maximum bytes of one block of a stream, as Redis counts them. Trimming with ~ removes whole blocks. A larger entry gets a separate block. 0 and values above 64 KiB mean 64 KiB."),
    option("stream-node-max-entries", number!(NUMBER, 0, INT_MAX, stream_node_max_entries), Running,
        "Maximum number of entries of one block of a stream, including deleted ones. 0: no limit."),
    with_aliases(&["zset-max-ziplist-entries"], option("zset-max-listpack-entries", number!(NUMBER, 0, INT_MAX, zset_max_listpack_entries), Running,
        "Maximum number of members of a sorted set that is stored in one compact block.")),
    with_aliases(&["zset-max-ziplist-value"], option("zset-max-listpack-value", number!(NUMBER, 0, INT_MAX, zset_max_listpack_value_bytes), Running,
        "Maximum bytes of a member of a sorted set that is stored in one compact block.")),
];

#[rustfmt::skip]
const EXPIRY: &[OptionSpec] = &[
    option("hz", number!(NUMBER, 1, 500, hz), Running,
        "Rounds per second of background work: expiry, timeouts, statistics."),
    option("active-expire", field!(YesNo, active_expire), Running,
        "Remove expired keys, fields of hashes and points of time series in the background. Clients never see them in either case. With no, a key is removed when a Redis command names it, SCAN reaches it, CQL writes it, or by eviction; a field when its hash is written; points stay until their key is deleted."),
    option("active-expire-effort", number!(NUMBER, 1, 10, active_expire_effort), Running,
        "CPU time that background expiry may use, from 1 (little) to 10 (much)."),
    option("import-mode", field!(YesNo, import_mode), Running,
        "Keep expired keys and fields of hashes, also for clients: their source deletes them. `myriad import` sets it while it copies a running server, and a server with an unfinished import starts with yes."),
];

#[rustfmt::skip]
const INSIGHT: &[OptionSpec] = &[
    option("log-level", word!(LogLevel, log_level), Running,
        "Minimum severity of the server events that are logged."),
    option("log-format", word!(LogFormat, log_format), Start,
        "Format of a logged event: a line of text or a JSON object."),
    with_aliases(&["logfile"], option("log-file", value!(Text, "path", log_file), Start,
        "File to which events are appended; empty: standard error. SIGUSR1 opens it again, after a rotation.")),
    option("otlp-endpoint", value!(Text, "URL", otlp_endpoint), Start,
        "Collector of OpenTelemetry that is sent the metrics every 10 seconds, and the requests of the slow log as spans, as OTLP over HTTP: http://HOST:PORT; empty: none."),
    option("audit-log", field!(YesNo, audit_log), Running,
        "Log an event for each command of the categories admin and dangerous, whether it ran or was refused: user, address, command, arguments without passwords, outcome. Needs `log-level` info."),
    with_aliases(&["commandlog-execution-slower-than"], option("slowlog-log-slower-than", number!(NUMBER, -1, i64::MAX, slowlog_log_slower_than_us), Running,
        "Execution time in microseconds above which a command is recorded in the slow log; 0: every command, -1: none.")),
    with_aliases(&["commandlog-slow-execution-max-len"], option("slowlog-max-len", number!(NUMBER, 0, 1_000_000, slowlog_max_len), Running,
        "Maximum number of commands in the slow log; the oldest are removed.")),
    option("commandlog-request-larger-than", number!(NUMBER, -1, i64::MAX, commandlog_request_larger_than_bytes), Running,
        "Size of a request in bytes from which its command is recorded for COMMANDLOG GET large-request; 0: every command, -1: none."),
    option("commandlog-large-request-max-len", number!(NUMBER, 0, 1_000_000, commandlog_large_request_max_len), Running,
        "Maximum number of commands in the log of large requests; the oldest are removed."),
    option("commandlog-reply-larger-than", number!(NUMBER, -1, i64::MAX, commandlog_reply_larger_than_bytes), Running,
        "Size of a reply in bytes from which its command is recorded for COMMANDLOG GET large-reply; 0: every command, -1: none."),
    option("commandlog-large-reply-max-len", number!(NUMBER, 0, 1_000_000, commandlog_large_reply_max_len), Running,
        "Maximum number of commands in the log of large replies; the oldest are removed."),
    with_aliases(&["watchdog-period"], option("stall-threshold-ms", number!(MS, 0, INT_MAX as u64, stall_threshold_ms), Running,
        "Milliseconds for which a reactor may not return to its loop before a warning names the command or script that it runs, and INFO counts a stall; 0: never.")),
    option("tracking-table-max-keys", number!(NUMBER, 0, INT_MAX, tracking_table_max_keys), Running,
        "Maximum number of keys that CLIENT TRACKING remembers (0: no limit). A client that reads another key is notified at once that it changed."),
    option("latency-monitor-threshold", number!(MS, 0, i64::MAX as u64, latency_monitor_threshold_ms), Running,
        "Milliseconds above which an event is recorded for LATENCY; 0: none."),
    option("latency-tracking", field!(YesNo, latency_tracking), Running,
        "Keep latency histograms by command and stage (parse, execute, wait for log, write) for INFO latencystats and LATENCY HISTOGRAM."),
    option("latency-tracking-info-percentiles", PERCENTILES, Running,
        "Percentiles that INFO latencystats shows."),
    option("log-cql-requests", field!(YesNo, log_cql_requests), Running,
        "Log a line for each CQL request, delayed by at most one tick (`hz`): time of day (UTC), reactor, connection/stream, kind. If the log is too slow, lines are dropped and the number of dropped lines is logged."),
    option("notify-keyspace-events", value!(Text, "letters of Ag$lshzxeKEtmdn", notify_keyspace_events), Running,
        "Key events to publish, and where: K to channels named after keys, E to channels named after events; g generic, $ strings, l lists, s sets, h hashes, z sorted sets, t streams, d time series, x expired, e evicted, n new keys, m reads of missing keys, A all classes but n and m. Without K or E nothing is published."),
];

#[cfg(any(test, feature = "experiments"))]
#[rustfmt::skip]
const EXPERIMENTS: &[OptionSpec] = &[
    option("tls-handshakes-max", number!(NUMBER, 1, u32::MAX as u64, internals.tls_handshakes_max), Running,
        "Maximum number of unfinished TLS handshakes, divided evenly among the reactors. Above it the oldest is closed, so that many incomplete handshakes do not block new clients."),
    option("tls-handshake-timeout-ms", number!(MS, 0, DAY_MS, internals.tls_handshake_timeout_ms), Running,
        "Milliseconds within which a TLS handshake must complete before its connection is closed. 0: no limit."),
    option("socket-receive-buffer-size", number!(Unit::Bytes, 0, INT_MAX as u64, internals.socket_receive_buffer_bytes), Start,
        "Size in bytes of the kernel's receive buffer per connection; the kernel doubles it, and caps it at net.core.rmem_max. 0: the kernel adjusts it automatically."),
    option("log-lane-bytes-max", number!(Unit::Bytes, 4 * KIB, 64 * MIB, internals.log_lane_bytes_max), Start,
        "Bytes of log records that one reactor collects for the next group, or its share of `log-group-bytes-max` if that is less. At the limit the reactor stops reading requests until the group is written."),
    option("log-group-bytes-max", number!(Unit::Bytes, 4 * KIB, GIB, internals.log_group_bytes_max), Start,
        "Bytes of log records of all reactors that are written and synced together. Groups larger than the processor's cache are slower."),
    option("output-pause-bytes", number!(Unit::Bytes, 4 * KIB, GIB, internals.output_pause_bytes), Running,
        "Bytes of pending replies on one connection above which the server stops reading its requests until the replies are sent."),
    option("http-head-timeout-ms", number!(MS, 1, DAY_MS, internals.http_head_timeout_ms), Running,
        "Milliseconds within which the head of an HTTP request must arrive, from its first byte or from the start of the connection; then the server responds with 408. Checked once a second."),
    option("http-body-rate-min", number!(Unit::Bytes, 1, GIB, internals.http_body_rate_min), Running,
        "Minimum bytes per second of an HTTP request body after `http-head-timeout-ms` has elapsed; the server responds to slower requests with 408."),
    option("http-write-timeout-ms", number!(MS, 1, DAY_MS, internals.http_write_timeout_ms), Running,
        "Milliseconds within which an HTTP client must read some of its response before it is disconnected."),
    option("cql-requests-in-flight-max", number!(NUMBER, 1, 32_768, internals.cql_requests_in_flight_max), Running,
        "CQL requests of one connection whose replies wait for the log; at the limit no more requests are read until half of the replies are sent."),
    option("prepared-statements-max", number!(NUMBER, 1, INT_MAX, internals.prepared_statements_max), Running,
        "Maximum number of prepared CQL statements; above it the least recently used ones are evicted, and clients prepare them again."),
    #[cfg(feature = "experiments")]
    option("num-connections-to-server", number!(NUMBER, 1, INT_MAX, experiments.num_connections_to_server), Start,
        "If `placement` is hash, which selects a reactor by a hash of the peer's address and port: the connection counter modulo this number is added to the hash. It changes which reactors are selected, not how many."),
    #[cfg(feature = "experiments")]
    option("memory-tracking", field!(YesNo, experiments.memory_tracking), Start,
        "Track memory by purpose. Without it INFO and MEMORY show little, and no memory limit is enforced."),
    #[cfg(feature = "experiments")]
    option("processor", word!(ProcessorSource, experiments.processor), Start,
        "Source of a CQL request's scratch space and prepared statements: its reactor, one of 256 in turn, or a list protected by one lock."),
    #[cfg(feature = "experiments")]
    option("reply", word!(ReplyPath, experiments.reply), Start,
        "What runs CQL statements: the reactor that read them, or a pool of threads with one queue. With pool, requests that are running when their connection closes or the server stops get no reply."),
    #[cfg(feature = "experiments")]
    option("reply-pool-threads", number!(NUMBER, 0, 1_024, experiments.reply_pool_threads), Start,
        "If `reply` is pool: number of threads; 0: one per core."),
    #[cfg(feature = "experiments")]
    option("cql-service-queue-length", number!(NUMBER, 1, 50_000, experiments.cql_service_queue_length), Running,
        "If `reply` is pool: maximum number of requests that wait for a thread; further requests receive an error (overloaded)."),
    #[cfg(feature = "experiments")]
    option("stub", number!(NUMBER, 0, 5, experiments.stub), Start,
        "Reply early to prepared CQL statements and batches, to measure the cost of each layer; queries run normally. 1: run without waiting for the log. 2: look up, but do not run. 3: decode only. 4: read only the header. 5: echo the received bytes. NOTHING IS STORED at 2 and above: never use it with real data."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OPTIONS, Place, find, owner, rows};
    use base::nearest::nearest;
    use options::{Change, Form, Kind};
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_kebab_case() {
        let mut seen = HashSet::new();
        for name in rows().flat_map(OptionSpec::names) {
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
    fn every_default_is_read_as_it_is_shown() {
        for option in rows() {
            let mut settings = Settings::default();
            for text in [option.text(&settings), option.shown(&settings)] {
                option.set(&mut settings, &text).unwrap();
                assert_eq!(settings, Settings::default(), "{}", option.name);
            }
            let is_view = matches!(option.change, Change::Never | Change::Fixed);
            assert!(owner(option).owns_its_value() || is_view, "{}", option.name);
        }
    }

    /// Operators see few options: neither names for tools nor experiments count.
    #[test]
    fn there_are_few_options() {
        let is_plain = |section: &&Section| section.title != EXPERIMENTS_TITLE;
        let plain = OPTIONS.iter().filter(is_plain).map(|section| section.rows.len());
        assert_eq!(plain.sum::<usize>() - VIEWS.len() - ACCEPTED.len(), 109);
        assert!(VIEWS.iter().all(|row| !row.owns_its_value()));
        assert!(ACCEPTED.iter().all(|row| row.change == Change::WithoutEffect));
    }

    #[test]
    fn every_option_for_addresses_opens_a_listener() {
        for option in rows() {
            let mut settings = Settings::default();
            let is_list = matches!(option.kind, Kind::Value { form: Form::List, .. });
            if is_list && option.set(&mut settings, "127.0.0.1:1").is_ok() {
                let mut opened = settings.endpoints().filter(|one| one.option == option.name);
                let expected = Place::Address("127.0.0.1:1".parse().unwrap());
                assert!(opened.any(|one| one.place == expected), "{}", option.name);
            }
        }
    }

    #[test]
    fn every_row_has_a_doc_of_one_to_three_sentences() {
        for option in rows() {
            assert!(option.doc.ends_with('.'), "{}", option.name);
            assert!((20..320).contains(&option.doc.len()), "{}", option.name);
        }
    }

    #[test]
    fn every_row_has_its_own_field() {
        for option in rows().filter(|option| option.owns_its_value()) {
            let Some(other) = other_value(option) else { continue };
            let mut settings = Settings::default();
            option.set(&mut settings, &other).unwrap();
            for row in rows().filter(|row| row.owns_its_value()) {
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
            "host 1",
            "http://host:1",
            "900 1",
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
        for option in rows().filter(|option| option.owns_its_value()) {
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
            ("sentinel-monitor", None),
            ("x", None),
            ("", None),
        ] {
            let names = rows().flat_map(OptionSpec::names);
            assert_eq!(nearest(typo, names), meant, "{typo}");
        }
    }
}
