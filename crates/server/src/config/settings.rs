//! The validated configuration: plain typed fields, and the rules between them.
//!
//! Names, texts and ranges are in the table ([`super::OPTIONS`]). The rest of the server uses only
//! this module. Each field name ends in its unit.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use base::units::{GIB, Limit, MIB};
use binlog::SyncPolicy;
use options::{Conflict, choice, settings};
use reactor::{Limits, SOCKET_PATH_BYTES_MAX};

use super::accepted::Accepted;
use super::experiments::Experiments;
use super::internals::Internals;
use super::key_events::KeyEvents;
use crate::protocol::ClientProtocol;

/// The option for addresses of administration.
const ADMIN: &str = "admin";

/// Numbered keyspaces (`SELECT 0` to `SELECT 15`).
pub const DATABASES: usize = 16;

/// Segments of the log are written in whole blocks.
const LOG_BLOCK_BYTES: u64 = 4_096;

choice! {
    /// When a write is considered safe, and therefore when its reply is sent.
    Durability {
        /// After it is on disk.
        Always = "always",
        /// After it is on disk here and on replicas.
        Replicated = "replicated",
        /// Immediately; the log is synced every `durability-interval-ms`.
        Interval = "interval",
        /// Immediately; the kernel decides when the log reaches the disk.
        Never = "never",
    }
}

choice! {
    /// Which reactor gets a new connection.
    Placement {
        /// The one with the least measured busy time.
        LeastLoaded = "least-loaded",
        /// Each in turn.
        RoundRobin = "round-robin",
        /// By the peer's port modulo the number of reactors: shard-aware drivers choose theirs.
        SourcePort = "source-port",
        /// By a hash of the peer and a counter modulo `num-connections-to-server`: for comparison.
        Hash = "hash" if "experiments",
    }
}

choice! {
    /// How CQL clients are authenticated.
    CqlAuthenticator {
        /// As the ACL user `default`, under any user name; not at all if it needs no password.
        Requirepass = "requirepass",
        /// Not at all.
        AllowAll = "allow-all",
        /// As roles that have their own passwords.
        Password = "password",
    }
}

choice! {
    /// What authenticated CQL clients may do.
    CqlAuthorizer {
        /// What their roles were granted.
        Roles = "roles",
        /// Everything.
        AllowAll = "allow-all",
    }
}

choice! {
    /// What to evict when `maxmemory` is reached.
    MaxmemoryPolicy {
        VolatileLru = "volatile-lru",
        VolatileLfu = "volatile-lfu",
        VolatileRandom = "volatile-random",
        VolatileTtl = "volatile-ttl",
        AllkeysLru = "allkeys-lru",
        AllkeysLfu = "allkeys-lfu",
        AllkeysRandom = "allkeys-random",
        Noeviction = "noeviction",
    }
}

choice! {
    /// Minimum severity of logged events.
    LogLevel {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

choice! {
    /// Format of a logged event.
    LogFormat {
        Text = "text",
        Json = "json",
    }
}

choice! {
    /// Which connections may use the DEBUG command.
    DebugCommand {
        Yes = "yes",
        No = "no",
        /// Connections from this machine.
        Local = "local",
    }
}

choice! {
    /// Whether TLS clients must present a certificate.
    TlsAuthClients {
        Yes = "yes",
        No = "no",
        /// Not required, but an invalid certificate is rejected.
        Optional = "optional",
    }
}

choice! {
    /// What in a client's certificate names its user.
    TlsAuthClientsUser {
        Off = "off",
        /// The common name of its subject.
        CommonName = "CN",
    }
}

choice! {
    /// TLS versions that the server accepts.
    TlsProtocols {
        Both = "TLSv1.2 TLSv1.3",
        Tls12 = "TLSv1.2",
        Tls13 = "TLSv1.3",
    }
}

choice! {
    /// Channels of a new user.
    AclPubsubDefault {
        Resetchannels = "resetchannels",
        Allchannels = "allchannels",
    }
}

/// The authority that decides whether a client of a protocol may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Authority {
    /// The ACL users. A client without a login is the user `default`.
    Users,
    /// The ACL user `default`, if it may do everything.
    DefaultUser,
    /// The roles of CQL.
    Roles,
    /// Every client may.
    None,
}

impl AclPubsubDefault {
    pub(crate) fn gives_all(self) -> bool {
        self == AclPubsubDefault::Allchannels
    }
}

/// An address to listen on, and the protocol that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Option that lists the address, which is its name in the line that starts with `ready`.
    pub(crate) option: &'static str,
    pub(crate) protocol: ClientProtocol,
    pub(crate) is_tls: bool,
    /// Whether it serves only administrators.
    pub(crate) is_admin: bool,
    pub(crate) place: Place,
    /// Set if one reactor serves all connections.
    pub(crate) node: Option<NodeOf>,
}

/// Where an endpoint listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Address(SocketAddr),
    /// The Unix socket at the path in `unixsocket`.
    Path,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Address(address) => address.fmt(f),
            Place::Path => f.write_str("the Unix socket"),
        }
    }
}

impl Place {
    pub(crate) fn address(self) -> Option<SocketAddr> {
        match self {
            Place::Address(address) => Some(address),
            Place::Path => None,
        }
    }

    /// Whether only processes of this machine can reach it.
    pub(crate) fn is_local(self) -> bool {
        self.address().is_none_or(|address| address.ip().is_loopback())
    }
}

/// A reactor that is announced as a node of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeOf {
    pub(crate) reactor: usize,
    /// Number of the listener to whose clients it is announced.
    pub(crate) source: usize,
}

/// Password of the default user; empty: none. Never shown by `{:?}`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Password(pub String);

impl Password {
    pub fn is_set(&self) -> bool {
        !self.0.is_empty()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { "Password(set)" } else { "Password(none)" })
    }
}

/// The server whose data this server replicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterAddress {
    /// A name or an IP address.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for MasterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.host, self.port)
    }
}

/// The master of this server; `None`: it is a master itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaOf(pub Option<MasterAddress>);

/// Where a collector of OpenTelemetry receives OTLP over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorUrl {
    /// A name or an IP address; one of IPv6 has no brackets.
    pub host: String,
    pub port: u16,
    /// Empty, or a path without a slash at its end.
    pub path: String,
}

impl CollectorUrl {
    /// Parses `http://HOST:PORT` or `http://HOST:PORT/PATH`.
    // Source: RFC 3986 3.2.2 (hosts), 3.3 (characters of a path)
    fn parse(text: &str) -> Option<CollectorUrl> {
        let rest = text.strip_prefix("http://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = authority.rsplit_once(':')?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(host) => host.parse::<Ipv6Addr>().ok().map(|_| host)?,
            None => host,
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || (bracketed.is_none() && !host.bytes().all(is_name)) {
            return None;
        }
        let is_of_path = |byte: u8| byte.is_ascii_graphic() && !b"?#".contains(&byte);
        let digits = port.bytes().all(|byte| byte.is_ascii_digit()).then_some(port)?;
        let port = digits.parse().ok().filter(|port| *port > 0)?;
        let path = path.trim_end_matches('/');
        path.bytes().all(is_of_path).then(|| CollectorUrl {
            host: host.to_owned(),
            port,
            path: path.to_owned(),
        })
    }

    /// Host and port, as in a URL.
    pub(crate) fn authority(&self) -> String {
        let CollectorUrl { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl FromStr for CollectorUrl {
    type Err = ();

    fn from_str(text: &str) -> Result<CollectorUrl, ()> {
        CollectorUrl::parse(text).ok_or(())
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

/// The collector of this server; `None`: there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtlpEndpoint(pub Option<CollectorUrl>);

/// Permissions of a file, written as an octal number; 0: whatever the process's mask leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileMode(pub u32);

impl FileMode {
    pub(crate) fn bits(self) -> Option<u32> {
        (self.0 != 0).then_some(self.0)
    }
}

/// How the replicas of a master count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicaRules {
    /// Confirmations that a write needs.
    pub(crate) needed: usize,
    /// A replica that has been silent for longer does not count as available.
    pub(crate) silence_ns_max: u64,
}

/// When to take a snapshot: after `seconds` since the last one, if there were `changes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePoint {
    pub seconds: u64,
    pub changes: u64,
}

/// Pairs, any of which is enough. Empty: see `snapshot-log-bytes`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SavePoints(pub Vec<SavePoint>);

impl SavePoints {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    // Source: Redis 7.2 `server.c`, `serverCron`
    pub(crate) fn is_due(&self, age_s: u64, changes: u64) -> bool {
        self.0.iter().any(|point| changes >= point.changes && age_s > point.seconds)
    }
}

/// When to close a connection whose peer does not read its replies. Zero: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// The connection is closed at once above this.
    pub hard_bytes: u64,
    /// The connection is closed after `soft_seconds` without interruption above this.
    pub soft_bytes: u64,
    pub soft_seconds: u64,
}

/// Output limits by connection class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    pub normal: OutputLimit,
    pub replica: OutputLimit,
    pub pubsub: OutputLimit,
}

impl OutputLimits {
    /// Those of Redis.
    const DEFAULT: OutputLimits = OutputLimits {
        normal: OutputLimit { hard_bytes: 0, soft_bytes: 0, soft_seconds: 0 },
        replica: OutputLimit { hard_bytes: 256 * MIB, soft_bytes: 64 * MIB, soft_seconds: 60 },
        pubsub: OutputLimit { hard_bytes: 32 * MIB, soft_bytes: 8 * MIB, soft_seconds: 60 },
    };
}

settings! {
    /// Validated value of every option. Cheap to clone; a change creates a new one.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Settings {
        dir: PathBuf = PathBuf::from("data"),
        resp: Vec<SocketAddr> = vec![SocketAddr::from(([127, 0, 0, 1], 6_379))],
        /// Empty: CQL is disabled.
        cql: Vec<SocketAddr> = Vec::new(),
        /// Empty: HTTP is disabled.
        http: Vec<SocketAddr> = Vec::new(),
        resp_tls: Vec<SocketAddr> = Vec::new(),
        admin: Vec<SocketAddr> = Vec::new(),
        /// Empty: no Unix socket.
        unixsocket: PathBuf = PathBuf::new(),
        unixsocketperm: FileMode = FileMode(0),
        cql_tls: Vec<SocketAddr> = Vec::new(),
        http_tls: Vec<SocketAddr> = Vec::new(),
        tls_cert_file: PathBuf = PathBuf::new(),
        tls_key_file: PathBuf = PathBuf::new(),
        tls_ca_cert_file: PathBuf = PathBuf::new(),
        tls_auth_clients: TlsAuthClients = TlsAuthClients::Yes,
        tls_auth_clients_user: TlsAuthClientsUser = TlsAuthClientsUser::Off,
        tls_protocols: TlsProtocols = TlsProtocols::Both,
        tls_replication: bool = false,
        /// Zero: one per core.
        reactors: usize = 0,
        placement: Placement = Placement::LeastLoaded,
        /// Whether reactors are announced as nodes of a cluster.
        cluster_view: bool = false,
        /// Empty: the address to which the client has connected.
        cluster_announce_ip: String = String::new(),
        tcp_backlog: usize = 511,
        tcp_keepalive_s: u64 = 300,
        /// Zero: idle connections are never closed.
        timeout_s: u64 = 0,
        maxclients: usize = 10_000,
        protected_mode: bool = true,
        requirepass: Password = Password::default(),
        /// Empty: `requirepass` is one password.
        requirepass_separator: String = String::new(),
        /// Empty: users are not stored.
        aclfile: PathBuf = PathBuf::new(),
        acl_pubsub_default: AclPubsubDefault = AclPubsubDefault::Resetchannels,
        acllog_max_len: usize = 128,
        cql_authenticator: CqlAuthenticator = CqlAuthenticator::Requirepass,
        cql_authorizer: CqlAuthorizer = CqlAuthorizer::Roles,
        shutdown_timeout_ms: u64 = 10_000,
        enable_debug_command: DebugCommand = DebugCommand::Local,
        replicaof: ReplicaOf = ReplicaOf(None),
        masteruser: String = String::new(),
        masterauth: Password = Password::default(),
        /// Read by Sentinel: the lowest is promoted first; zero: never.
        replica_priority: usize = 100,
        /// Read by Sentinel.
        replica_announced: bool = true,
        /// Empty: the address from which the replica connects.
        replica_announce_ip: String = String::new(),
        /// Zero: that of the first address for the Redis protocol.
        replica_announce_port: u16 = 0,
        replica_serve_stale_data: bool = true,
        repl_timeout_s: u64 = 60,
        /// Zero: none.
        server_id: u16 = 0,
        hub: bool = false,
        durability: Durability = Durability::Always,
        durability_interval_ms: u64 = 1_000,
        min_replicas_to_write: usize = 0,
        /// Zero: no limit.
        min_replicas_max_lag_s: u64 = 10,
        repl_backlog_bytes: u64 = MIB,
        /// Zero: never.
        log_spin_us: u64 = 250,
        log_segment_bytes: u64 = 64 * MIB,
        /// Zero: only on request.
        snapshot_log_bytes: u64 = GIB,
        save: SavePoints = SavePoints::default(),
        /// Zero: no limit.
        maxmemory_bytes: u64 = 0,
        maxmemory_policy: MaxmemoryPolicy = MaxmemoryPolicy::Noeviction,
        maxmemory_samples: usize = 5,
        lfu_log_factor: u64 = 10,
        lfu_decay_time_minutes: u64 = 1,
        memory_limit: Limit = Limit::Percent(90),
        read_buffer_memory_limit: Limit = Limit::Percent(5),
        client_query_buffer_limit_bytes: u64 = GIB,
        client_output_buffer_limit: OutputLimits = OutputLimits::DEFAULT,
        proto_max_bulk_len_bytes: u64 = 512 * MIB,
        /// Zero: no limit.
        elements_per_command_max: usize = 1_048_576,
        /// Zero: longer requests are refused.
        long_request_threads: usize = 2,
        /// Zero: no limit.
        busy_reply_threshold_ms: u64 = 5000,
        script_memory_bytes_max: u64 = 256 * MIB,
        native_transport_max_frame_bytes: u64 = 16 * MIB,
        throttle_cql_calls: bool = true,
        log_cql_requests: bool = false,
        http_body_bytes_max: u64 = 16 * MIB,
        http_idle_timeout_ms: u64 = 60_000,
        cql_rpc_memory_limit: Limit = Limit::None,
        prepared_statements_bytes_max: u64 = 128 * MIB,
        hash_max_listpack_entries: usize = 128,
        hash_max_listpack_value_bytes: usize = 64,
        /// Positive: entries per node. -1 to -5: 4, 8, 16, 32, 64 KiB per node.
        list_max_listpack_size: i64 = -2,
        /// HyperLogLogs.
        hll_sparse_bytes_max: usize = 3_000,
        set_max_intset_entries: usize = 512,
        set_max_listpack_entries: usize = 128,
        set_max_listpack_value_bytes: usize = 64,
        stream_node_max_bytes: u64 = 4096,
        stream_node_max_entries: usize = 100,
        zset_max_listpack_entries: usize = 128,
        zset_max_listpack_value_bytes: usize = 64,
        /// Rounds of background work per second.
        hz: usize = 10,
        active_expire: bool = true,
        import_mode: bool = false,
        /// 1 to 10.
        active_expire_effort: usize = 1,
        /// -1: no slow log. 0: every command.
        slowlog_log_slower_than_us: i64 = 10_000,
        slowlog_max_len: usize = 128,
        /// Zero: no request is refused because of its age.
        overload_queue_age_ms: u64 = 500,
        /// Zero: stalls are not detected.
        stall_threshold_ms: u64 = 500,
        /// -1: no log of large requests. 0: every command.
        commandlog_request_larger_than_bytes: i64 = 1 << 20,
        commandlog_large_request_max_len: usize = 128,
        /// -1: no log of large replies. 0: every command.
        commandlog_reply_larger_than_bytes: i64 = 1 << 20,
        commandlog_large_reply_max_len: usize = 128,
        /// CLIENT TRACKING: maximum keys with readers; 0: no limit.
        tracking_table_max_keys: usize = 1_000_000,
        /// Zero: no latency events.
        latency_monitor_threshold_ms: u64 = 0,
        latency_tracking: bool = true,
        /// Percentiles, 0 to 100.
        latency_tracking_info_percentiles: Vec<f64> = vec![50.0, 99.0, 99.9],
        notify_keyspace_events: KeyEvents = KeyEvents::default(),
        audit_log: bool = false,
        log_level: LogLevel = LogLevel::Info,
        log_format: LogFormat = LogFormat::Text,
        otlp_endpoint: OtlpEndpoint = OtlpEndpoint::default(),
        /// Empty: standard error.
        log_file: PathBuf = PathBuf::new(),
        accepted: Accepted = Accepted::default(),
        internals: Internals = Internals::default(),
        experiments: Experiments = Experiments::default(),
    }
}

impl Settings {
    /// Sets the limits of connections; called again after each CONFIG SET.
    pub(crate) fn apply_to(&self, limits: &Limits) {
        limits.connections_max.set(self.maxclients as u64);
        limits.input_bytes_max.set(self.client_query_buffer_limit_bytes);
        limits.output_pause_bytes.set(self.internals.output_pause_bytes());
        limits.output_bytes_max.set(match self.client_output_buffer_limit.normal.hard_bytes {
            0 => u64::MAX,
            bytes => bytes,
        });
        limits.idle_timeout_ms.set(self.timeout_s.saturating_mul(1000));
        limits.tcp_keepalive_s.set(self.tcp_keepalive_s);
        limits.handshake_timeout_ms.set(self.internals.tls_handshake_timeout_ms());
        limits.handshakes_max.set(self.internals.tls_handshakes_max());
    }

    /// Returns when to sync the log.
    pub(crate) fn sync_policy(&self) -> SyncPolicy {
        match self.durability {
            Durability::Always | Durability::Replicated => SyncPolicy::Always,
            Durability::Interval => {
                SyncPolicy::Interval(Duration::from_millis(self.durability_interval_ms))
            }
            Durability::Never => SyncPolicy::Never,
        }
    }

    /// How replicas count.
    pub(crate) fn replica_rules(&self) -> ReplicaRules {
        const S: u64 = 1_000_000_000;
        ReplicaRules {
            needed: self.min_replicas_to_write,
            silence_ns_max: match self.min_replicas_max_lag_s {
                0 => u64::MAX,
                lag_s => lag_s.saturating_mul(S),
            },
        }
    }

    /// Silence after which one end of a replication connection takes the other one for dead.
    pub(crate) fn repl_timeout(&self) -> Duration {
        Duration::from_secs(self.repl_timeout_s)
    }

    /// Number of replicas that must be connected for a write of this durability.
    #[inline]
    pub(crate) fn replicas_needed(&self, durability: Durability) -> usize {
        self.min_replicas_to_write.max(usize::from(durability == Durability::Replicated))
    }

    /// Validates the rules that involve several options, or more than the range of one.
    pub fn validate(&self) -> Result<(), Conflict> {
        self.conflicts().into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns a violation of each kind of rule.
    pub(crate) fn conflicts(&self) -> Vec<Conflict> {
        let checks = [
            self.validate_addresses(),
            self.validate_passwords(),
            self.validate_tls(),
            self.validate_log(),
            self.validate_group(),
            self.validate_memory(),
            self.validate_dir(),
        ];
        checks.into_iter().filter_map(Result::err).collect()
    }

    fn validate_memory(&self) -> Result<(), Conflict> {
        if !self.experiments.counts_memory() && self.maxmemory_bytes != 0 {
            let reason = "maxmemory requires memory tracking: set maxmemory to 0".to_owned();
            return Err(Conflict::new("memory-tracking", reason));
        }
        Ok(())
    }

    fn validate_dir(&self) -> Result<(), Conflict> {
        if self.dir.as_os_str().is_empty() {
            return Err(Conflict::new("dir", "a data directory is required"));
        }
        Ok(())
    }

    fn validate_addresses(&self) -> Result<(), Conflict> {
        if self.endpoints().next().is_none() {
            let reason = "at least one address to listen on is required: set this option, cql, http, or \
                          one of their TLS variants";
            return Err(Conflict::new("resp", reason));
        }
        self.validate_nodes()?;
        if self.unixsocket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            let reason = format!("the path is longer than {SOCKET_PATH_BYTES_MAX} bytes");
            return Err(Conflict::new("unixsocket", reason));
        }
        let mut listed = Vec::new();
        let addresses = self.endpoints().filter_map(|one| Some((one.option, one.place.address()?)));
        for (option, address) in addresses {
            // With port 0 the kernel selects a different free port each time.
            if address.port() != 0 && listed.contains(&address) {
                return Err(Conflict::new(option, format!("{address} is listed twice")));
            }
            listed.push(address);
        }
        Ok(())
    }

    /// Elements that a command may process; 0: no limit. Commands that another server has executed
    /// are not refused, and neither are many of them in one transaction.
    pub(crate) fn elements_max(&self) -> usize {
        if self.import_mode { 0 } else { self.elements_per_command_max }
    }

    fn validate_group(&self) -> Result<(), Conflict> {
        if self.hub && self.server_id == 0 {
            return Err(Conflict::new("hub", "a server-id is required".to_owned()));
        }
        if self.server_id != 0 && self.maxmemory_policy != MaxmemoryPolicy::Noeviction {
            let reason = "a server with a server-id does not evict: set maxmemory-policy to \
                          noeviction"
                .to_owned();
            return Err(Conflict::new("server-id", reason));
        }
        Ok(())
    }

    fn validate_nodes(&self) -> Result<(), Conflict> {
        for (option, host) in [
            ("cluster-announce-ip", &self.cluster_announce_ip),
            ("replica-announce-ip", &self.replica_announce_ip),
        ] {
            if !is_host(host) {
                return Err(Conflict::new(option, "an address or a host name is required"));
            }
        }
        if !self.cluster_view {
            return Ok(());
        }
        let mut redis = self.resp.iter().chain(&self.resp_tls).peekable();
        if redis.peek().is_none() {
            return Err(Conflict::new(
                "cluster-view",
                "an address in resp or resp-tls is required",
            ));
        }
        let reactors = self.reactor_count();
        match redis.find(|address| usize::from(u16::MAX - address.port()) < reactors) {
            Some(address) => {
                let reason = format!("{address} is not followed by {reactors} higher ports");
                Err(Conflict::new("cluster-view", reason))
            }
            None => Ok(()),
        }
    }

    /// Returns the number of reactors, which is constant while the process runs.
    pub(crate) fn reactor_count(&self) -> usize {
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if self.reactors == 0 { *CORES.get_or_init(cores) } else { self.reactors }
    }

    /// Returns every address to listen on, in the order in which listeners are numbered.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        let groups = [
            ("resp", ClientProtocol::Resp, false, &self.resp),
            ("resp-tls", ClientProtocol::Resp, true, &self.resp_tls),
            ("cql", ClientProtocol::Cql, false, &self.cql),
            ("cql-tls", ClientProtocol::Cql, true, &self.cql_tls),
            ("http", ClientProtocol::Http, false, &self.http),
            ("http-tls", ClientProtocol::Http, true, &self.http_tls),
            (ADMIN, ClientProtocol::Resp, false, &self.admin),
        ];
        let plain = groups.into_iter().flat_map(|(option, protocol, is_tls, addresses)| {
            let is_admin = option == ADMIN;
            let endpoint = move |&address| Endpoint {
                option,
                protocol,
                is_tls,
                is_admin,
                place: Place::Address(address),
                node: None,
            };
            addresses.iter().map(endpoint)
        });
        plain.chain(self.node_endpoints()).chain(self.socket_endpoint())
    }

    /// The Unix socket. Its listener has the highest number: it is the only one without an address.
    fn socket_endpoint(&self) -> Option<Endpoint> {
        let is_set = !self.unixsocket.as_os_str().is_empty();
        is_set.then_some(Endpoint {
            option: "unixsocket",
            protocol: ClientProtocol::Resp,
            is_tls: false,
            is_admin: false,
            place: Place::Path,
            node: None,
        })
    }

    /// Returns the addresses of single reactors: with `cluster-view`, for each listener of the
    /// Redis protocol one per reactor.
    fn node_endpoints(&self) -> impl Iterator<Item = Endpoint> {
        let reactors = if self.cluster_view { self.reactor_count() } else { 0 };
        let open = self.resp.iter().map(|address| (address, false));
        let listeners = open.chain(self.resp_tls.iter().map(|address| (address, true)));
        listeners.enumerate().flat_map(move |(source, (&address, is_tls))| {
            (0..reactors).map(move |reactor| Endpoint {
                option: "cluster-view",
                protocol: ClientProtocol::Resp,
                is_tls,
                is_admin: false,
                place: Place::Address(node_address(address, reactor)),
                node: Some(NodeOf { reactor, source }),
            })
        })
    }

    /// Returns the number of the listener of a reactor's own port, for clients of listener
    /// `source`. Requires `cluster-view`.
    pub(crate) fn node_listener(&self, source: usize, reactor: usize) -> usize {
        let first = self.endpoints().take_while(|endpoint| endpoint.node.is_none()).count();
        first + source * self.reactor_count() + reactor
    }

    /// Returns the authority that decides whether a client of the protocol may act.
    pub(crate) fn authority(&self, protocol: ClientProtocol) -> Authority {
        match (protocol, self.cql_authenticator) {
            (ClientProtocol::Resp | ClientProtocol::Http, _) => Authority::Users,
            (ClientProtocol::Cql, CqlAuthenticator::Requirepass) => Authority::DefaultUser,
            (ClientProtocol::Cql, CqlAuthenticator::Password) => Authority::Roles,
            (ClientProtocol::Cql, CqlAuthenticator::AllowAll) => Authority::None,
        }
    }

    pub(crate) fn speaks_cql(&self) -> bool {
        !self.cql.is_empty() || !self.cql_tls.is_empty()
    }

    /// Whether any listener uses TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.endpoints().any(|endpoint| endpoint.is_tls)
    }

    fn validate_tls(&self) -> Result<(), Conflict> {
        if self.tls_replication && self.tls_ca_cert_file.as_os_str().is_empty() {
            let what = "tls-replication requires the authorities of the master's certificate";
            return Err(Conflict::new("tls-ca-cert-file", what));
        }
        let Some(endpoint) = self.endpoints().find(|endpoint| endpoint.is_tls) else {
            return Ok(());
        };
        let missing = |name, what| {
            Conflict::new(name, format!("{} {} requires {what}", endpoint.option, endpoint.place))
        };
        if self.tls_cert_file.as_os_str().is_empty() {
            return Err(missing("tls-cert-file", "a certificate"));
        }
        if self.tls_key_file.as_os_str().is_empty() {
            return Err(missing("tls-key-file", "the certificate's key"));
        }
        let checks_clients = self.tls_auth_clients != TlsAuthClients::No;
        if checks_clients && self.tls_ca_cert_file.as_os_str().is_empty() {
            let what = "the authorities of client certificates, or tls-auth-clients no";
            return Err(missing("tls-ca-cert-file", what));
        }
        Ok(())
    }

    /// The passwords of the default user: none, one, or with a separator two.
    pub fn passwords(&self) -> Vec<&str> {
        let whole = self.requirepass.0.as_str();
        match self.requirepass_separator.as_str() {
            _ if whole.is_empty() => Vec::new(),
            "" => vec![whole],
            separator => {
                let mut passwords: Vec<&str> = whole.split(separator).collect();
                passwords.dedup();
                passwords
            }
        }
    }

    /// As YEDIS, at most two passwords, so that one replaces the other.
    fn validate_passwords(&self) -> Result<(), Conflict> {
        const PASSWORDS_MAX: usize = 2;
        if self.requirepass_separator.chars().count() > 1 {
            let reason = "the separator of two passwords is one character, or empty".to_owned();
            return Err(Conflict::new("requirepass-separator", reason));
        }
        let passwords = self.passwords();
        if passwords.len() > PASSWORDS_MAX || passwords.contains(&"") {
            let reason = "with requirepass-separator it has one or two passwords, none of them \
                          empty"
                .to_owned();
            return Err(Conflict::new("requirepass", reason));
        }
        Ok(())
    }

    fn validate_log(&self) -> Result<(), Conflict> {
        if !self.log_segment_bytes.is_multiple_of(LOG_BLOCK_BYTES) {
            let reason = format!("{} is not a multiple of 4096", self.log_segment_bytes);
            return Err(Conflict::new("log-segment-bytes", reason));
        }
        Ok(())
    }
}

/// Whether the text is an IP address, a host name, or empty.
fn is_host(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte))
}

/// The address of a reactor's own port: the ports after that of the listener, in order.
fn node_address(mut listener: SocketAddr, reactor: usize) -> SocketAddr {
    if listener.port() != 0 {
        let port = u16::try_from(usize::from(listener.port()) + 1 + reactor);
        listener.set_port(port.unwrap_or(u16::MAX));
    }
    listener
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Settings), expected: Option<(&str, &str)>) {
        let mut settings = Settings::default();
        change(&mut settings);
        match (settings.validate(), expected) {
            (Ok(()), None) => {}
            (Err(found), Some((option, part))) => {
                assert_eq!(found.option, option);
                assert!(found.reason.contains(part), "{}", found.reason);
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn the_defaults_go_together() {
        check(|_| {}, None);
    }

    #[test]
    fn addresses_are_there_and_distinct() {
        check(|s| s.resp.clear(), Some(("resp", "at least one")));
        check(|s| s.http = std::mem::take(&mut s.resp), None);
        check(|s| s.cql = std::mem::take(&mut s.resp), None);
        check(
            |s| s.resp = addresses(&["127.0.0.1:1", "127.0.0.1:1"]),
            Some(("resp", "127.0.0.1:1 is listed twice")),
        );
        check(|s| s.resp = addresses(&["127.0.0.1:0", "127.0.0.1:0"]), None);
        check(|s| s.cql.clone_from(&s.resp), Some(("cql", "127.0.0.1:6379 is listed twice")));
    }

    #[test]
    fn nodes_have_the_ports_after_the_one_that_announces_them() {
        let with_nodes = |s: &mut Settings| {
            s.resp = addresses(&["127.0.0.1:7000", "[::1]:7100"]);
            (s.cluster_view, s.reactors) = (true, 2);
        };
        let mut settings = Settings::default();
        with_nodes(&mut settings);
        let all: Vec<Endpoint> = settings.endpoints().collect();
        let named: Vec<String> = all.iter().map(|one| one.place.to_string()).collect();
        let nodes = ["127.0.0.1:7001", "127.0.0.1:7002", "[::1]:7101", "[::1]:7102"];
        assert_eq!(named, [&["127.0.0.1:7000", "[::1]:7100"][..], &nodes].concat());
        for (source, reactor) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let found = all[settings.node_listener(source, reactor)].node;
            assert_eq!(found, Some(NodeOf { reactor, source }));
        }
        check(with_nodes, None);
        check(
            |s| {
                with_nodes(s);
                s.http = addresses(&["127.0.0.1:7002"]);
            },
            Some(("cluster-view", "127.0.0.1:7002 is listed twice")),
        );
        check(
            |s| {
                with_nodes(s);
                s.resp = addresses(&["127.0.0.1:65534"]);
            },
            Some(("cluster-view", "127.0.0.1:65534 is not followed by 2 higher ports")),
        );
        check(
            |s| {
                with_nodes(s);
                s.cql = std::mem::take(&mut s.resp);
            },
            Some(("cluster-view", "an address in resp")),
        );
        check(
            |s| s.cluster_announce_ip = "a b".to_owned(),
            Some(("cluster-announce-ip", "a host name")),
        );
    }

    #[test]
    fn tls_needs_its_files() {
        let tls = || addresses(&["127.0.0.1:6380"]);
        check(|s| s.cql_tls = tls(), Some(("tls-cert-file", "cql-tls 127.0.0.1:6380 requires")));
        let with_files = |s: &mut Settings| {
            s.resp.clear();
            s.resp_tls = tls();
            s.tls_cert_file = PathBuf::from("cert.pem");
            s.tls_key_file = PathBuf::from("key.pem");
        };
        check(with_files, Some(("tls-ca-cert-file", "or tls-auth-clients no")));
        check(
            |s| {
                with_files(s);
                s.tls_auth_clients = TlsAuthClients::No;
            },
            None,
        );
        check(
            |s| {
                with_files(s);
                s.tls_ca_cert_file = PathBuf::from("ca.pem");
            },
            None,
        );
        check(
            |s| {
                with_files(s);
                s.tls_auth_clients = TlsAuthClients::No;
                s.resp = tls();
            },
            Some(("resp-tls", "127.0.0.1:6380 is listed twice")),
        );
    }

    #[test]
    fn sizes_and_directories_are_checked() {
        check(|s| s.log_segment_bytes += 1, Some(("log-segment-bytes", "multiple of 4096")));
        check(|s| s.dir = PathBuf::new(), Some(("dir", "directory")));
        #[cfg(feature = "experiments")]
        check(
            |s| (s.experiments.memory_tracking, s.maxmemory_bytes) = (false, 1),
            Some(("memory-tracking", "maxmemory")),
        );
    }

    #[test]
    fn a_password_is_never_printed() {
        let settings =
            Settings { requirepass: Password("hunter2".to_owned()), ..Settings::default() };
        let text = format!("{settings:?}");
        assert!(text.contains("Password(set)"));
        assert!(!text.contains("hunter2"));
    }
}
