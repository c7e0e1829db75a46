//! The meaningful configuration: plain typed fields, and the rules between them.
//!
//! Names, texts, ranges and defaults are in the table ([`super::OPTIONS`]); here is only what the
//! rest of the server reads. Units are the last word of a name.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use base::units::Limit;
use binlog::SyncPolicy;
use reactor::Limits;

use super::experiments::Experiments;
use super::internals::Internals;
use super::key_events::KeyEvents;
use crate::protocol::ClientProtocol;

/// Numbered keyspaces (`SELECT 0` to `SELECT 15`).
pub const DATABASES: usize = 16;

/// Segments of the log are written in whole blocks.
const LOG_BLOCK_BYTES: u64 = 4_096;

/// Declares an enum whose values have the words of the configuration, in order.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal $(if $feature:tt)?,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[cfg(feature = $feature)])? $(#[$variant_doc])* $variant,)+
        }

        impl $name {
            pub const ALL: &'static [Self] =
                &[$($(#[cfg(feature = $feature)])? Self::$variant,)+];
            pub const WORDS: &'static [&'static str] =
                &[$($(#[cfg(feature = $feature)])? $word,)+];

            /// The word in the configuration.
            pub fn word(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }
    };
}
#[cfg(feature = "experiments")]
pub(super) use choice;

choice! {
    /// When a write counts as safe, and so when its reply may leave.
    Durability {
        /// When it is on disk.
        Always = "always",
        /// At once; the log is synced every `durability-interval-ms`.
        Interval = "interval",
        /// At once; the kernel decides when the log reaches the disk.
        Never = "never",
    }
}

choice! {
    /// Which reactor gets a new connection.
    Placement {
        /// The one with the least measured busy time.
        LeastLoaded = "least-loaded",
        /// One after the other.
        RoundRobin = "round-robin",
        /// By the peer's port modulo the reactors: drivers that know shards choose theirs.
        SourcePort = "source-port",
        /// By hash of the peer and a counter modulo `num-connections-to-server`: for comparison.
        Hash = "hash" if "experiments",
    }
}

choice! {
    /// Who may use CQL.
    CqlAuthenticator {
        /// Who knows `requirepass`, under any name; everybody if it is empty.
        Requirepass = "requirepass",
        /// Everybody.
        AllowAll = "allow-all",
        /// Roles with a password of their own.
        Password = "password",
    }
}

choice! {
    /// What those who have logged in to CQL may do.
    CqlAuthorizer {
        /// What was granted to their roles.
        Roles = "roles",
        /// Everything.
        AllowAll = "allow-all",
    }
}

choice! {
    /// What goes when `maxmemory` is reached.
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
    /// The least important events that are logged.
    LogLevel {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

choice! {
    /// How an event is written.
    LogFormat {
        Text = "text",
        Json = "json",
    }
}

choice! {
    /// Who may use the DEBUG command.
    DebugCommand {
        Yes = "yes",
        No = "no",
        /// Connections from this machine.
        Local = "local",
    }
}

choice! {
    /// Whether clients with TLS have to show a certificate.
    TlsAuthClients {
        Yes = "yes",
        No = "no",
        /// They need not, but one that is shown must be good.
        Optional = "optional",
    }
}

choice! {
    /// Versions of TLS that are spoken.
    TlsProtocols {
        Both = "TLSv1.2 TLSv1.3",
        Tls12 = "TLSv1.2",
        Tls13 = "TLSv1.3",
    }
}

/// An address to listen on, and what is spoken there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The option that lists it, which is its name in the line that starts with `ready`.
    pub(crate) option: &'static str,
    pub(crate) protocol: ClientProtocol,
    pub(crate) is_tls: bool,
    pub(crate) address: SocketAddr,
}

/// The password of the default user; empty is none. Never shown by `{:?}`.
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

/// When a connection whose peer does not read its replies is closed. Zero is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// Closed at once above this.
    pub hard_bytes: u64,
    /// Closed when above this for `soft_seconds` without a break.
    pub soft_bytes: u64,
    pub soft_seconds: u64,
}

/// Output limits by what a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    pub normal: OutputLimit,
    pub replica: OutputLimit,
    pub pubsub: OutputLimit,
}

/// Declares [`Settings`] together with its blank form, which the table then fills with defaults.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)+) => {
        /// Every option's value, checked. Cheap to clone; a change makes a new one.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings { $($(#[$doc])* pub $name: $type,)+ }

        impl Settings {
    /// Sets the limits of connections, also after each CONFIG SET.
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

    /// When the log is synced.
        pub(crate) fn sync_policy(&self) -> SyncPolicy {
        match self.durability {
            Durability::Always => SyncPolicy::Always,
            Durability::Interval => {
                SyncPolicy::Interval(std::time::Duration::from_millis(self.durability_interval_ms))
            }
            Durability::Never => SyncPolicy::Never,
        }
    }

            fn blank() -> Self {
                Self { $($name: <$type>::default(),)+ }
            }
        }
    };
}

settings! {
    dir: PathBuf,
    resp: Vec<SocketAddr>,
    /// Empty: CQL is not spoken.
    cql: Vec<SocketAddr>,
    /// Empty: HTTP is not spoken.
    http: Vec<SocketAddr>,
    resp_tls: Vec<SocketAddr>,
    cql_tls: Vec<SocketAddr>,
    http_tls: Vec<SocketAddr>,
    tls_cert_file: PathBuf,
    tls_key_file: PathBuf,
    tls_ca_cert_file: PathBuf,
    tls_auth_clients: TlsAuthClients,
    tls_protocols: TlsProtocols,
    /// Zero: one per core.
    reactors: usize,
    placement: Placement,
    tcp_backlog: usize,
    tcp_keepalive_s: u64,
    /// Zero: idle connections stay.
    timeout_s: u64,
    maxclients: usize,
    protected_mode: bool,
    requirepass: Password,
    cql_authenticator: CqlAuthenticator,
    cql_authorizer: CqlAuthorizer,
    shutdown_timeout_ms: u64,
    enable_debug_command: DebugCommand,
    durability: Durability,
    durability_interval_ms: u64,
    /// Zero: never.
    log_spin_us: u64,
    log_segment_bytes: u64,
    /// Zero: only when asked.
    snapshot_log_bytes: u64,
    /// Zero: no limit.
    maxmemory_bytes: u64,
    maxmemory_policy: MaxmemoryPolicy,
    maxmemory_samples: usize,
    lfu_log_factor: u64,
    lfu_decay_time_minutes: u64,
    memory_limit: Limit,
    read_buffer_memory_limit: Limit,
    client_query_buffer_limit_bytes: u64,
    client_output_buffer_limit: OutputLimits,
    proto_max_bulk_len_bytes: u64,
    /// Zero: no limit.
    elements_per_command_max: usize,
    native_transport_max_frame_bytes: u64,
    throttle_cql_calls: bool,
    log_cql_requests: bool,
    http_body_bytes_max: u64,
    http_idle_timeout_ms: u64,
    cql_rpc_memory_limit: Limit,
    prepared_statements_bytes_max: u64,
    hash_max_listpack_entries: usize,
    hash_max_listpack_value_bytes: usize,
    /// Positive: entries per node. -1 to -5: 4, 8, 16, 32, 64 KiB per node.
    list_max_listpack_size: i64,
    set_max_intset_entries: usize,
    set_max_listpack_entries: usize,
    set_max_listpack_value_bytes: usize,
    zset_max_listpack_entries: usize,
    zset_max_listpack_value_bytes: usize,
    /// Rounds of background work per second.
    hz: usize,
    active_expire: bool,
    /// 1 to 10.
    active_expire_effort: usize,
    /// -1: no slow log. 0: every command.
    slowlog_log_slower_than_us: i64,
    slowlog_max_len: usize,
    /// Zero: no latency events.
    latency_monitor_threshold_ms: u64,
    latency_tracking: bool,
    /// Percentiles, 0 to 100.
    latency_tracking_info_percentiles: Vec<f64>,
    notify_keyspace_events: KeyEvents,
    log_level: LogLevel,
    log_format: LogFormat,
    /// Empty: standard error.
    log_file: PathBuf,
    internals: Internals,
    experiments: Experiments,
}

impl Default for Settings {
    /// The defaults of the table.
    fn default() -> Self {
        let mut settings = Self::blank();
        for option in super::OPTIONS.iter().filter(|option| option.owns_its_value()) {
            option
                .set(&mut settings, option.default)
                .expect("a test sets every default of the table");
        }
        settings
    }
}

/// Two options that do not go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The option to look at first.
    pub option: &'static str,
    pub reason: String,
}

impl Settings {
    /// The rules that concern more than one option, or more than its range.
    pub fn validate(&self) -> Result<(), Conflict> {
        self.validate_addresses()?;
        self.validate_protection()?;
        self.validate_tls()?;
        self.validate_log()?;
        if !self.experiments.counts_memory() && self.maxmemory_bytes != 0 {
            let reason = "what is not counted cannot be limited: set maxmemory to 0".to_owned();
            return Err(conflict("memory-tracking", reason));
        }
        if self.dir.as_os_str().is_empty() {
            return Err(conflict("dir", "the data needs a directory".to_owned()));
        }
        Ok(())
    }

    fn validate_addresses(&self) -> Result<(), Conflict> {
        if self.endpoints().next().is_none() {
            let reason = "at least one address to listen on is needed: of this option, cql, http, or their \
                          options for TLS";
            return Err(conflict("resp", reason.to_owned()));
        }
        let mut listed = Vec::new();
        for Endpoint { option, address, .. } in self.endpoints() {
            // Port 0 asks the kernel for a free port, each time another one.
            if address.port() != 0 && listed.contains(&address) {
                return Err(conflict(option, format!("{address} is listed twice")));
            }
            listed.push(address);
        }
        Ok(())
    }

    /// Every address to listen on, in the order in which listeners are counted.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        let groups = [
            ("resp", ClientProtocol::Resp, false, &self.resp),
            ("resp-tls", ClientProtocol::Resp, true, &self.resp_tls),
            ("cql", ClientProtocol::Cql, false, &self.cql),
            ("cql-tls", ClientProtocol::Cql, true, &self.cql_tls),
            ("http", ClientProtocol::Http, false, &self.http),
            ("http-tls", ClientProtocol::Http, true, &self.http_tls),
        ];
        groups.into_iter().flat_map(|(option, protocol, is_tls, addresses)| {
            let endpoint = move |&address| Endpoint { option, protocol, is_tls, address };
            addresses.iter().map(endpoint)
        })
    }

    pub(crate) fn speaks_cql(&self) -> bool {
        !self.cql.is_empty() || !self.cql_tls.is_empty()
    }

    /// Whether any connection is to be encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.endpoints().any(|endpoint| endpoint.is_tls)
    }

    fn validate_tls(&self) -> Result<(), Conflict> {
        let Some(endpoint) = self.endpoints().find(|endpoint| endpoint.is_tls) else {
            return Ok(());
        };
        let missing = |name, what| {
            conflict(name, format!("{} {} needs {what}", endpoint.option, endpoint.address))
        };
        if self.tls_cert_file.as_os_str().is_empty() {
            return Err(missing("tls-cert-file", "a certificate"));
        }
        if self.tls_key_file.as_os_str().is_empty() {
            return Err(missing("tls-key-file", "the certificate's key"));
        }
        let checks_clients = self.tls_auth_clients != TlsAuthClients::No;
        if checks_clients && self.tls_ca_cert_file.as_os_str().is_empty() {
            let what = "the authorities of its clients' certificates, or tls-auth-clients no";
            return Err(missing("tls-ca-cert-file", what));
        }
        Ok(())
    }

    fn validate_protection(&self) -> Result<(), Conflict> {
        let open = self.endpoints().find(|endpoint| !endpoint.address.ip().is_loopback());
        match open {
            Some(Endpoint { option, address, .. })
                if self.protected_mode && !self.requirepass.is_set() =>
            {
                Err(conflict(
                    option,
                    format!(
                        "{address} can be reached from other machines and no password is set: set \
                     requirepass, listen on 127.0.0.1 only, or set protected-mode to no"
                    ),
                ))
            }
            _ => self.validate_cql_protection(),
        }
    }

    fn validate_cql_protection(&self) -> Result<(), Conflict> {
        let is_open = self.protected_mode && self.cql_authenticator == CqlAuthenticator::AllowAll;
        let reached = self.endpoints().find(|endpoint| {
            let is_cql = endpoint.protocol == ClientProtocol::Cql;
            is_open && is_cql && !endpoint.address.ip().is_loopback()
        });
        let Some(Endpoint { option, address, .. }) = reached else { return Ok(()) };
        let reason = format!(
            "{address} can be reached from other machines and everybody may use it: set \
             cql-authenticator to requirepass or password, listen on 127.0.0.1 only, or set \
             protected-mode to no"
        );
        Err(conflict(option, reason))
    }

    fn validate_log(&self) -> Result<(), Conflict> {
        if !self.log_segment_bytes.is_multiple_of(LOG_BLOCK_BYTES) {
            let reason = format!("{} is not a multiple of 4096", self.log_segment_bytes);
            return Err(conflict("log-segment-bytes", reason));
        }
        Ok(())
    }
}

fn conflict(option: &'static str, reason: String) -> Conflict {
    Conflict { option, reason }
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
    fn an_open_address_needs_a_password() {
        let open = addresses(&["127.0.0.1:6379", "0.0.0.0:6379"]);
        check(|s| s.resp.clone_from(&open), Some(("resp", "0.0.0.0:6379 can be reached")));
        check(
            |s| {
                s.resp.clone_from(&open);
                s.requirepass = Password("secret".to_owned());
            },
            None,
        );
        check(
            |s| {
                s.resp.clone_from(&open);
                s.protected_mode = false;
            },
            None,
        );
        check(
            |s| s.cql = addresses(&["0.0.0.0:9042"]),
            Some(("cql", "0.0.0.0:9042 can be reached")),
        );
        check(
            |s| {
                s.cql = addresses(&["0.0.0.0:9042"]);
                s.requirepass = Password("secret".to_owned());
                s.cql_authenticator = CqlAuthenticator::AllowAll;
            },
            Some(("cql", "0.0.0.0:9042 can be reached from other machines and everybody may")),
        );
        check(|s| s.resp = addresses(&["[::1]:6379", "127.3.2.1:6379"]), None);
        check(|s| s.resp = addresses(&["[::]:6379"]), Some(("resp", "[::]:6379")));
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
    fn tls_needs_its_files() {
        let tls = || addresses(&["127.0.0.1:6380"]);
        check(|s| s.cql_tls = tls(), Some(("tls-cert-file", "cql-tls 127.0.0.1:6380 needs")));
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
