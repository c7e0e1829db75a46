//! Options, from the command line or a file, and their transfer from the master to its workers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use anyhow::Context as _;
use lexopt::{Arg, Parser};
use serde::{Deserialize, Serialize};
use toml::de::DeTable;

use crate::address::HostPort;
use crate::scheme::Scheme;
use crate::{UsageError, unexpected};

/// Each worker has a descriptor in every message to a worker, and a message carries at most 253.
pub(crate) const WORKERS_MAX: usize = 64;

/// Maximum number of addresses per option: each has a socket per worker.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// A worker that computes for longer is indistinguishable from one that hangs.
#[cfg(feature = "experiments")]
const WORK_US_MAX: u64 = 1_000_000;

/// Workers are checked once per second, and one missed check is not conclusive.
const WORKER_TIMEOUT_MS_MIN: u64 = 2_000;

/// A day: larger values are probably in the wrong unit.
const TIME_MS_MAX: u64 = 86_400_000;

/// How workers are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    Process,
    Thread,
}

/// How connections are distributed to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accept {
    /// One listening socket per worker. A worker with more connections than the least loaded one
    /// forwards new ones to it.
    LeastLoaded,
    /// One listening socket per worker, without forwarding: the kernel's hash decides.
    Reuseport,
    /// One listening socket that all workers poll; the kernel wakes one or a few.
    Exclusive,
    /// The master accepts and passes each connection to the worker with the fewest connections.
    Fdpass,
    /// Historical: the master notifies workers in turn, repeatedly, while connections are waiting.
    #[cfg(feature = "experiments")]
    NotifyLt,
    /// Historical and broken: the master notifies a worker once, when connections begin to wait.
    #[cfg(feature = "experiments")]
    NotifyEt,
    /// Historical: one connection at a time.
    #[cfg(feature = "experiments")]
    Serial,
}

#[cfg(feature = "experiments")]
impl Accept {
    const HISTORICAL: &[Accept] = &[Accept::NotifyLt, Accept::NotifyEt, Accept::Serial];
    const SERIAL: Option<Accept> = Some(Accept::Serial);
}

#[cfg(not(feature = "experiments"))]
impl Accept {
    const HISTORICAL: &[Accept] = &[];
    const SERIAL: Option<Accept> = None;
}

impl Accept {
    /// Whether it is a faulty design that is kept to measure against.
    pub(crate) fn is_historical(self) -> bool {
        Self::HISTORICAL.contains(&self)
    }

    /// Whether one worker serves one connection at a time.
    pub(crate) fn is_serial(self) -> bool {
        Self::SERIAL == Some(self)
    }

    /// Whether each worker has its own listening socket.
    pub(crate) fn has_own_listeners(self) -> bool {
        matches!(self, Accept::LeastLoaded | Accept::Reuseport)
    }

    /// Whether the master polls the listening sockets.
    pub(crate) fn is_accepted_by_master(self) -> bool {
        self == Accept::Fdpass || self.is_historical() && !self.is_serial()
    }
}

/// Format of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// The common format with referrer and user agent.
    Combined,
    Common,
    /// The combined format with host, id, and times.
    Extended,
    /// One JSON object per line.
    Json,
}

/// All options, with their defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Config {
    pub(crate) listen: Vec<HostPort>,
    pub(crate) listen_tls: Vec<HostPort>,
    /// Address at which counters are served.
    pub(crate) status: Option<HostPort>,
    pub(crate) tls_cert_file: Option<PathBuf>,
    pub(crate) tls_key_file: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) root: Option<PathBuf>,
    pub(crate) workers: usize,
    pub(crate) mode: Mode,
    pub(crate) accept: Accept,
    pub(crate) backlog: u32,
    pub(crate) accept_max: usize,
    pub(crate) upstream: Option<HostPort>,
    pub(crate) upstream_connections_max: usize,
    pub(crate) upstream_idle_max: usize,
    pub(crate) upstream_queue_max: usize,
    pub(crate) upstream_queue_timeout_ms: u64,
    pub(crate) websockets_max: usize,
    pub(crate) websocket_idle_timeout_ms: u64,
    pub(crate) https_redirect_port: u16,
    pub(crate) worker_timeout_ms: u64,
    pub(crate) access_log: Option<PathBuf>,
    pub(crate) access_log_format: LogFormat,
    pub(crate) compress: bool,
    pub(crate) connections_max: usize,
    pub(crate) connections_per_address_max: usize,
    pub(crate) head_bytes_max: usize,
    pub(crate) fields_max: usize,
    pub(crate) target_bytes_max: usize,
    pub(crate) body_bytes_max: usize,
    pub(crate) head_timeout_ms: u64,
    pub(crate) body_rate_min: u64,
    pub(crate) idle_timeout_ms: u64,
    pub(crate) write_timeout_ms: u64,
    pub(crate) write_rate_min: u64,
    pub(crate) upstream_timeout_ms: u64,
    pub(crate) drain_timeout_ms: u64,
    #[cfg(feature = "experiments")]
    pub(crate) work_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        let wire = wire::http::Limits::DEFAULT;
        Config {
            listen: vec![std::net::SocketAddr::from(([127, 0, 0, 1], 8080)).into()],
            listen_tls: Vec::new(),
            status: None,
            tls_cert_file: None,
            tls_key_file: None,
            user: None,
            group: None,
            root: None,
            workers: std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
            mode: Mode::Process,
            accept: Accept::LeastLoaded,
            backlog: 1024,
            accept_max: 64,
            upstream: None,
            upstream_connections_max: 256,
            upstream_idle_max: 32,
            upstream_queue_max: 1024,
            upstream_queue_timeout_ms: 10_000,
            websockets_max: 1024,
            websocket_idle_timeout_ms: 120_000,
            https_redirect_port: 0,
            worker_timeout_ms: 30_000,
            access_log: None,
            access_log_format: LogFormat::Combined,
            compress: true,
            connections_max: 20_000,
            connections_per_address_max: 0,
            head_bytes_max: wire.head_bytes_max,
            fields_max: wire.fields_max,
            target_bytes_max: wire.target_bytes_max,
            body_bytes_max: wire.body_bytes_max,
            head_timeout_ms: 10_000,
            body_rate_min: 512,
            idle_timeout_ms: 60_000,
            write_timeout_ms: 30_000,
            write_rate_min: 512,
            upstream_timeout_ms: 30_000,
            drain_timeout_ms: 10_000,
            #[cfg(feature = "experiments")]
            work_us: 0,
        }
    }
}

/// Type of an option's value, for the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// Several strings: an array in the file, a repeated option on the command line.
    List,
    Number,
    Switch,
}

/// Options with their help texts.
const OPTIONS: &[(&str, Kind, &str)] = &[
    ("listen", Kind::List, "Host and port to listen on; repeatable; port 0 is any free one"),
    ("listen-tls", Kind::List, "The same for HTTPS [off]"),
    ("status", Kind::Text, "Host and port of the status page and /metrics [off]"),
    ("tls-cert-file", Kind::Text, "Certificates in PEM: the server's, then its issuers'"),
    ("tls-key-file", Kind::Text, "Key of the server's certificate in PEM, without a password"),
    ("user", Kind::Text, "User of the workers, by name or number; the master stays root"),
    ("group", Kind::Text, "Group of the workers, by name or number [the user's]"),
    ("root", Kind::Text, "Directory whose files are served [none]"),
    ("workers", Kind::Number, "How many workers, up to 64 [cores]"),
    ("worker-timeout-ms", Kind::Number, "Replace a worker process that hangs for longer; 0: never"),
    ("mode", Kind::Text, "Run workers as: process or thread"),
    ("accept", Kind::Text, "How connections are distributed to workers, see below"),
    ("backlog", Kind::Number, "Connections that wait to be accepted, per listening socket"),
    ("accept-max", Kind::Number, "Connections accepted in a row before others are served"),
    ("upstream", Kind::Text, "Address that requests below /api/ are passed on to"),
    (
        "upstream-connections-max",
        Kind::Number,
        "Concurrent requests at the upstream, per worker; more wait",
    ),
    (
        "upstream-idle-max",
        Kind::Number,
        "Idle connections to the upstream that are kept open, per worker",
    ),
    (
        "upstream-queue-max",
        Kind::Number,
        "Requests that wait for the upstream, per worker; more: 503",
    ),
    (
        "upstream-queue-timeout-ms",
        Kind::Number,
        "Longest wait for a connection to the upstream; longer: 503",
    ),
    ("websockets-max", Kind::Number, "WebSockets to the upstream, per worker; more: 503"),
    ("websocket-idle-timeout-ms", Kind::Number, "Silence on a WebSocket after which it is closed"),
    ("access-log", Kind::Text, "File with a line per request"),
    ("access-log-format", Kind::Text, "Lines of that file: combined, common, extended or json"),
    ("https-redirect-port", Kind::Number, "HTTPS port that plain HTTP is redirected to; 0: none"),
    ("compress", Kind::Switch, "Compress small files for clients that accept it: true or false"),
    ("connections-max", Kind::Number, "Connections per worker; more wait to be accepted"),
    (
        "connections-per-address-max",
        Kind::Number,
        "Connections per worker and client address; 0: unlimited",
    ),
    ("head-bytes-max", Kind::Number, "Longest head of a request; longer: 431"),
    ("fields-max", Kind::Number, "Most header lines of a request, up to 128; more: 431"),
    ("target-bytes-max", Kind::Number, "Longest target of a request; longer: 414"),
    ("body-bytes-max", Kind::Number, "Longest body of a request; longer: 413"),
    ("head-timeout-ms", Kind::Number, "Time for a whole head from its first byte; later: 408"),
    ("body-rate-min", Kind::Number, "Minimum bytes per second of a request body; slower: 408"),
    ("idle-timeout-ms", Kind::Number, "Time between two requests of a connection"),
    (
        "write-timeout-ms",
        Kind::Number,
        "Period over which --write-rate-min is enforced; slower clients are disconnected",
    ),
    (
        "write-rate-min",
        Kind::Number,
        "Minimum bytes per second at which a client must read a response",
    ),
    (
        "upstream-timeout-ms",
        Kind::Number,
        "Silence of the upstream after which the request fails: 504",
    ),
    ("drain-timeout-ms", Kind::Number, "Time for requests in progress when a worker ends"),
    #[cfg(feature = "experiments")]
    ("work-us", Kind::Number, "Processor time spent before each response, for benchmarks"),
];

/// Returns the text of `myriad web --help`.
pub(crate) fn help() -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "Usage: myriad web [--config FILE] [--NAME VALUE]...\n\n\
         Serves files, /hello and an upstream over HTTP/1.1 and HTTPS with a group of workers.\n\n\
         \x20 -c, --config FILE\n        Read options from FILE: flat TOML, name = value; the command line wins\n\
         \x20 -h, --help\n        Print this\n",
    );
    let defaults = toml::Table::try_from(Config::default()).unwrap_or_default();
    for &(name, _, words) in OPTIONS {
        let default = defaults.get(name).filter(|_| name != "workers");
        let default = default.filter(|value| value.as_array().is_none_or(|list| !list.is_empty()));
        let default = default.map_or(String::new(), |value| format!(" [{}]", plain(value)));
        let _ = writeln!(text, "      --{name} VALUE\n        {words}{default}");
    }
    text.push_str(
        "\nHow connections are distributed to workers (--accept):\n\
         \x20 least-loaded  A socket per worker; new connections move to the least loaded worker\n\
         \x20 reuseport     A socket per worker; the kernel's hash decides, evenly or not\n\
         \x20 exclusive     One socket polled by all; the kernel mostly wakes the same worker\n\
         \x20 fdpass        The master accepts and distributes; it is the bottleneck\n",
    );
    if cfg!(feature = "experiments") {
        text.push_str(
            "\
         Historical designs, for comparison. Their faults are real; do not use them:\n\
         \x20 notify-lt     The master notifies workers in turn, repeatedly, while connections wait\n\
         \x20 notify-et     The master notifies once: connections above --accept-max wait for another one\n\
         \x20 serial        One worker, one connection at a time: a slow client blocks all others\n",
        );
    }
    text.push_str(
        "\n\
         Signals to the master: TERM and INT finish requests and exit; HUP re-reads the options, and\n\
         certificate and key, with new workers; USR1 reopens the access log; USR2 restarts the program on the same sockets.\n",
    );
    text
}

/// Formats a value as on the command line.
fn plain(value: &toml::Value) -> String {
    value.to_string().replace(['"', '[', ']'], "")
}

/// Sources of options; re-read on reload.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    file: Option<PathBuf>,
    overrides: toml::Table,
}

/// The given options, each with its location for error messages.
#[derive(Debug, Default)]
struct GivenOptions {
    values: toml::Table,
    places: BTreeMap<String, String>,
}

/// An option with an invalid value, or in an invalid combination.
#[derive(Debug)]
struct OptionError {
    option: &'static str,
    reason: String,
}

fn option_error(option: &'static str, reason: impl Into<String>) -> OptionError {
    OptionError { option, reason: reason.into() }
}

impl Source {
    /// Parses the command line after `myriad web`. Returns `None` if help was requested.
    pub(crate) fn parse(parser: &mut Parser) -> anyhow::Result<Option<Source>> {
        let mut source = Source { file: None, overrides: toml::Table::new() };
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Short('c') | Arg::Long("config") => {
                    source.file = Some(PathBuf::from(parser.value()?));
                }
                Arg::Long(name) => {
                    let name = name.to_owned();
                    let place = format!("--{name}");
                    let kind = kind_of(&name).map_err(|reason| usage(&place, &reason))?;
                    let value = parser.value()?;
                    let text = value.to_str().ok_or_else(|| usage(&place, "not UTF-8"))?;
                    let value = kind.read(text).map_err(|reason| usage(&place, &reason))?;
                    source.add(name, value);
                }
                other => return Err(unexpected(other)),
            }
        }
        Ok(Some(source))
    }

    /// Adds a value from the command line: it replaces an earlier one, or is appended to a list.
    fn add(&mut self, name: String, value: toml::Value) {
        match (self.overrides.get_mut(&name), value) {
            (Some(toml::Value::Array(list)), toml::Value::Array(more)) => list.extend(more),
            (_, value) => drop(self.overrides.insert(name, value)),
        }
    }

    /// Reads the current options. An error names the option and its location.
    pub(crate) fn read(&self) -> anyhow::Result<Config> {
        let mut given = GivenOptions::default();
        if let Some(path) = &self.file {
            given.read_file(path)?;
        }
        for (name, value) in &self.overrides {
            given.take(name, value.clone(), format!("--{name}"))?;
        }
        let config: Config =
            given.values.clone().try_into().context("could not convert the options")?;
        config.check().map_err(|OptionError { option, reason }| {
            let place = given.places.get(option).map_or(option, String::as_str);
            usage(place, &reason)
        })?;
        Ok(config)
    }
}

impl GivenOptions {
    fn read_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| UsageError(format!("could not read {}: {error}", path.display())))?;
        let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let place_of = |at: usize| format!("{}:{}", path.display(), line_of(at));
        let broken = |error: toml::de::Error| {
            usage(&place_of(error.span().map_or(0, |span| span.start)), error.message())
        };
        let values = toml::Table::from_str(&text).map_err(broken)?;
        let parsed = DeTable::parse(&text).map_err(broken)?;
        let mut starts: Vec<(usize, String)> = parsed
            .get_ref()
            .keys()
            .map(|key| (key.span().start, key.get_ref().to_string()))
            .collect();
        starts.sort();
        for (start, name) in starts {
            let place = format!("{}: {name}", place_of(start));
            let value =
                values.get(&name).cloned().context("could not read an option of the file")?;
            self.take(&name, value, place)?;
        }
        Ok(())
    }

    /// Takes one option, which replaces an earlier one of the same name. Each is validated
    /// separately first, so that an error names it and its location.
    fn take(&mut self, name: &str, value: toml::Value, place: String) -> anyhow::Result<()> {
        let kind = kind_of(name).map_err(|reason| usage(&place, &reason))?;
        let value = kind.accept(value).map_err(|reason| usage(&place, &reason))?;
        let alone = toml::Table::from_iter([(name.to_owned(), value.clone())]);
        if let Err(error) = alone.try_into::<Config>() {
            return Err(usage(&place, error.message().trim_end()));
        }
        self.values.insert(name.to_owned(), value);
        self.places.insert(name.to_owned(), place);
        Ok(())
    }
}

/// Returns the type of an option, or the reason why it is unknown.
fn kind_of(name: &str) -> Result<Kind, String> {
    let names = || OPTIONS.iter().map(|(option, ..)| *option);
    match OPTIONS.iter().find(|(option, ..)| *option == name) {
        Some((_, kind, _)) => Ok(*kind),
        None => Err(match base::nearest::nearest(name, names()) {
            Some(nearest) => format!("unknown option; did you mean {nearest}?"),
            None => "unknown option".to_owned(),
        }),
    }
}

impl Kind {
    /// Parses a value from the command line.
    fn read(self, text: &str) -> Result<toml::Value, String> {
        let wrong = || self.wrong(&format!("{text:?}"));
        Ok(match self {
            Kind::Text => toml::Value::String(text.to_owned()),
            Kind::List => list_of(text),
            Kind::Number => toml::Value::Integer(text.parse().map_err(|_| wrong())?),
            Kind::Switch => toml::Value::Boolean(text.parse().map_err(|_| wrong())?),
        })
    }

    /// Checks a value from the file.
    fn accept(self, value: toml::Value) -> Result<toml::Value, String> {
        match (self, value) {
            (Kind::Text, value @ toml::Value::String(_))
            | (Kind::Number, value @ toml::Value::Integer(0..))
            | (Kind::Switch, value @ toml::Value::Boolean(_)) => Ok(value),
            (Kind::List, toml::Value::String(text)) => Ok(list_of(&text)),
            (Kind::List, toml::Value::Array(list)) if list.iter().all(toml::Value::is_str) => {
                Ok(toml::Value::Array(list))
            }
            (_, value) => Err(self.wrong(&value.to_string())),
        }
    }

    fn wrong(self, found: &str) -> String {
        let expected = match self {
            Kind::Text => "a quoted string",
            Kind::List => "a quoted string, or a list of them",
            Kind::Number => "a whole number",
            Kind::Switch => "true or false",
        };
        format!("{found} is not {expected}")
    }
}

/// Returns a list with one element, or an empty one if the text is empty.
fn list_of(text: &str) -> toml::Value {
    let item = (!text.is_empty()).then(|| toml::Value::String(text.to_owned()));
    toml::Value::Array(item.into_iter().collect())
}

fn usage(place: &str, reason: &str) -> anyhow::Error {
    UsageError(format!("{place}: {reason}")).into()
}

impl Config {
    fn check(&self) -> Result<(), OptionError> {
        let bounds = [
            ("workers", self.workers, 1, WORKERS_MAX),
            ("accept-max", self.accept_max, 1, 100_000),
            ("connections-max", self.connections_max, 1, 10_000_000),
            ("fields-max", self.fields_max, 1, wire::http::FIELDS_MAX),
            ("head-bytes-max", self.head_bytes_max, 256, 1 << 20),
            ("target-bytes-max", self.target_bytes_max, 16, 1 << 20),
            ("body-bytes-max", self.body_bytes_max, 0, 1 << 30),
            ("upstream-connections-max", self.upstream_connections_max, 1, 100_000),
            ("upstream-idle-max", self.upstream_idle_max, 0, 100_000),
            ("upstream-queue-max", self.upstream_queue_max, 0, 1_000_000),
            ("websockets-max", self.websockets_max, 0, 1_000_000),
        ];
        for (name, value, least, most) in bounds {
            if value < least || value > most {
                return Err(option_error(
                    name,
                    format!("{value} is out of range: {least} to {most}"),
                ));
            }
        }
        self.check_addresses()?;
        self.check_tls()?;
        self.check_user()?;
        if self.https_redirect_port != 0 && self.accept.is_serial() {
            return Err(option_error("https-redirect-port", "accept = serial does not redirect"));
        }
        let worker_ms = self.worker_timeout_ms;
        if worker_ms != 0 && !(WORKER_TIMEOUT_MS_MIN..=TIME_MS_MAX).contains(&worker_ms) {
            let bounds = format!("0 or {WORKER_TIMEOUT_MS_MIN} to {TIME_MS_MAX}");
            return Err(option_error(
                "worker-timeout-ms",
                format!("{worker_ms} is out of range: {bounds}"),
            ));
        }
        #[cfg(feature = "experiments")]
        if self.work_us > WORK_US_MAX {
            let reason = format!("{} is out of range: 0 to {WORK_US_MAX}", self.work_us);
            return Err(option_error("work-us", reason));
        }
        let times = [
            ("head-timeout-ms", self.head_timeout_ms),
            ("body-rate-min", self.body_rate_min),
            ("idle-timeout-ms", self.idle_timeout_ms),
            ("write-timeout-ms", self.write_timeout_ms),
            ("write-rate-min", self.write_rate_min),
            ("upstream-timeout-ms", self.upstream_timeout_ms),
            ("drain-timeout-ms", self.drain_timeout_ms),
            ("upstream-queue-timeout-ms", self.upstream_queue_timeout_ms),
            ("websocket-idle-timeout-ms", self.websocket_idle_timeout_ms),
        ];
        match times.iter().find(|(_, value)| *value == 0 || *value > TIME_MS_MAX) {
            None => Ok(()),
            Some((name, value)) => {
                Err(option_error(name, format!("{value} is out of range: 1 to {TIME_MS_MAX}")))
            }
        }
    }

    /// Checks that address, certificate and key are given together.
    fn check_tls(&self) -> Result<(), OptionError> {
        let parts = [
            ("listen-tls", !self.listen_tls.is_empty()),
            ("tls-cert-file", self.tls_cert_file.is_some()),
            ("tls-key-file", self.tls_key_file.is_some()),
        ];
        let missing = parts.iter().find(|(_, is_given)| !is_given);
        if let (Some((given, _)), Some((missing, _))) =
            (parts.iter().find(|(_, is_given)| *is_given), missing)
        {
            return Err(option_error(given, format!("requires {missing}")));
        }
        if !self.listen_tls.is_empty() && self.accept.is_serial() {
            return Err(option_error("listen-tls", "accept = serial does not support TLS"));
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), OptionError> {
        if self.listen.is_empty() && self.listen_tls.is_empty() {
            return Err(option_error(
                "listen",
                "at least one address is required, here or in listen-tls",
            ));
        }
        if self.status.is_some() && self.accept.is_serial() {
            return Err(option_error("status", "accept = serial has no status page"));
        }
        let mut seen: Vec<&HostPort> = Vec::new();
        for scheme in Scheme::ALL {
            let (option, addresses) = (Config::address_option(scheme), self.addresses(scheme));
            if addresses.len() > ADDRESSES_MAX {
                return Err(option_error(option, format!("more than {ADDRESSES_MAX} addresses")));
            }
            for address in addresses {
                if address.port() != 0 && seen.contains(&address) {
                    return Err(option_error(option, format!("{address} is given twice")));
                }
                seen.push(address);
            }
        }
        Ok(())
    }

    fn check_user(&self) -> Result<(), OptionError> {
        if self.group.is_some() && self.user.is_none() {
            return Err(option_error("group", "requires user"));
        }
        if self.user.is_some() && self.mode == Mode::Thread {
            let reason = "worker threads must run as the master's user";
            return Err(option_error("user", reason));
        }
        Ok(())
    }

    /// Returns the addresses to listen on.
    pub(crate) fn addresses(&self, scheme: Scheme) -> &[HostPort] {
        match scheme {
            Scheme::Http => &self.listen,
            Scheme::Https => &self.listen_tls,
            Scheme::Status => self.status.as_slice(),
        }
    }

    /// Returns the name of the option for these addresses.
    pub(crate) fn address_option(scheme: Scheme) -> &'static str {
        match scheme {
            Scheme::Http => "listen",
            Scheme::Https => "listen-tls",
            Scheme::Status => "status",
        }
    }

    /// Processor time to waste before each response, which only experiments do.
    #[cfg(feature = "experiments")]
    pub(crate) fn work_us(&self) -> u64 {
        self.work_us
    }

    #[cfg(not(feature = "experiments"))]
    #[expect(clippy::unused_self, reason = "called in the same way with the feature")]
    pub(crate) fn work_us(&self) -> u64 {
        0
    }

    /// Returns the number of workers; 1 for the serial strategy.
    pub(crate) fn worker_count(&self) -> usize {
        if self.accept.is_serial() { 1 } else { self.workers }
    }

    /// Returns the limits of the codec.
    pub(crate) fn wire_limits(&self) -> wire::http::Limits {
        wire::http::Limits {
            head_bytes_max: self.head_bytes_max,
            fields_max: self.fields_max,
            target_bytes_max: self.target_bytes_max,
            body_bytes_max: self.body_bytes_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Config, String> {
        let source = Source::parse(&mut Parser::from_args(words)).map_err(|e| e.to_string())?;
        source.unwrap().read().map_err(|error| format!("{error:#}"))
    }

    /// A file of options, removed on drop.
    struct File(PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> File {
            let name = format!("myriad-web-{name}-{}.toml", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).unwrap();
            File(path)
        }

        fn path(&self) -> &str {
            self.0.to_str().unwrap()
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).unwrap();
        }
    }

    #[test]
    fn every_option_has_a_help_line_and_a_field() {
        let table = toml::Table::try_from(Config::default()).unwrap();
        let optional = [
            "root",
            "upstream",
            "access-log",
            "status",
            "tls-cert-file",
            "tls-key-file",
            "user",
            "group",
        ];
        for &(name, ..) in OPTIONS {
            assert!(table.contains_key(name) || optional.contains(&name), "{name}");
        }
        assert_eq!(table.len() + optional.len(), OPTIONS.len());
        let help = help();
        assert!(help.contains("free one [127.0.0.1:8080]\n"), "{help}");
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let text = "workers = 3\naccept = \"fdpass\"\ncompress = false\nlisten = \"a:1\"\n";
        let file = File::new("wins", text);
        let words = ["--config", file.path(), "--workers", "5", "--mode", "thread"];
        let config = read(&words).unwrap();
        assert_eq!((config.workers, config.accept), (5, Accept::Fdpass));
        assert_eq!((config.mode, config.compress), (Mode::Thread, false));
        let listen = |words: &[&str]| {
            read(words).unwrap().listen.iter().map(HostPort::to_string).collect::<Vec<_>>()
        };
        assert_eq!(listen(&words), ["a:1"]);
        assert_eq!(
            listen(&[&words[..], &["--listen", "b:1", "--listen", "[::]:2"]].concat()),
            ["b:1", "[::]:2"]
        );
    }

    #[test]
    fn errors_in_a_file_name_the_line() {
        for (text, expected) in [
            ("wrokers = 3", ":1: wrokers: unknown option; did you mean workers?"),
            ("\n# c\nzzz = 3", ":3: zzz: unknown option"),
            ("listen_tls = \"a:1\"", ":1: listen_tls: unknown option; did you mean listen-tls?"),
            ("\nworkers = \"x\"", ":2: workers: \"x\" is not a whole number"),
            ("workers = -1", ":1: workers: -1 is not a whole number"),
            ("workers = 1\ncompress = 1", ":2: compress: 1 is not true or false"),
            ("root = 1", ":1: root: 1 is not a quoted string"),
            ("listen = [1]", ":1: listen: [1] is not a quoted string, or a list of them"),
            ("\nlisten = [\"a:1\",\n\"25005\"]", ":2: listen: \"25005\" is not HOST:PORT"),
            ("upstream = \"localhost\"", ":1: upstream: \"localhost\" is not HOST:PORT"),
            ("mode = \"fast\"", ":1: mode: unknown variant `fast`, expected `process` or `thread`"),
            ("workers = 1\nworkers = 2", ":2: "),
            ("workers = 1\n= 2", ":2: "),
            ("backlog = 5000000000", ":1: backlog: "),
            // Errors that depend on other options or on the value.
            ("\n\nworkers = 0", ":3: workers: 0 is out of range: 1 to 64"),
            ("listen-tls = \"a:1\"", ":1: listen-tls: requires tls-cert-file"),
            ("listen = []", ":1: listen: at least one address is required, here or in listen-tls"),
        ] {
            let file = File::new("wrong", text);
            let error = read(&["--config", file.path()]).unwrap_err();
            let found = error.strip_prefix(file.path()).unwrap_or(&error);
            assert!(found.starts_with(expected) && found.lines().count() == 1, "{text:?}: {error}");
        }
    }

    #[test]
    fn errors_name_the_option() {
        for (words, expected) in [
            (&["--workers", "x"][..], "--workers: \"x\" is not a whole number"),
            (&["--workers", "0"], "--workers: 0 is out of range: 1 to 64"),
            (&["--wrokers", "0"], "--wrokers: unknown option; did you mean workers?"),
            (&["--accept", "best"], "--accept: unknown variant `best`"),
            (&["--access-log-format", "xml"], "--access-log-format: unknown variant `xml`"),
            (&["--fast", "1"], "--fast: unknown option"),
            (&["--listen", "25005"], "--listen: \"25005\" is not HOST:PORT"),
            (&["--upstream", "http://a:1"], "--upstream: \"http://a:1\" is not HOST:PORT"),
            (&["--idle-timeout-ms", "0"], "--idle-timeout-ms: 0 is out of range: 1 to 86400000"),
            #[cfg(feature = "experiments")]
            (&["--work-us", "1000001"], "--work-us: 1000001 is out of range: 0 to 1000000"),
            (&["--config", "/nonexistent/web.toml"], "could not read /nonexistent/web.toml: "),
            (&["--listen-tls", "127.0.0.1:1"], "--listen-tls: requires tls-cert-file"),
            (&["--tls-key-file", "k"], "--tls-key-file: requires listen-tls"),
            (&["--listen", "a:1", "--listen", "a:1"], "--listen: a:1 is given twice"),
            (&["--listen", "a:1", "--status", "a:1"], "--status: a:1 is given twice"),
            #[cfg(feature = "experiments")]
            (&["--status", "a:1", "--accept", "serial"], "--status: accept = serial has no status"),
            (
                &["--worker-timeout-ms", "1999"],
                "--worker-timeout-ms: 1999 is out of range: 0 or 2000",
            ),
            (&["--listen", ""], "--listen: at least one address is required"),
            (&["--group", "g"], "--group: requires user"),
            (&["--user", "u", "--mode", "thread"], "--user: worker threads must"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.starts_with(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn tls_needs_all_of_its_parts() {
        let parts =
            ["--listen-tls", "127.0.0.1:443", "--tls-cert-file", "c", "--tls-key-file", "k"];
        let config = read(&parts).unwrap();
        assert_eq!(config.addresses(Scheme::Https)[0].port(), 443);
        let check = |words: &[&str], expected: &str| {
            assert_eq!(read(words).unwrap_err(), expected);
        };
        check(&parts[2..], "--tls-cert-file: requires listen-tls");
        check(&parts[..4], "--listen-tls: requires tls-key-file");
        let with = |more: &[&'static str]| [&parts[..], more].concat();
        #[cfg(feature = "experiments")]
        check(&with(&["--accept", "serial"]), "--listen-tls: accept = serial does not support TLS");
        let same = "--listen-tls: 127.0.0.1:443 is given twice";
        check(&with(&["--listen", "127.0.0.1:443"]), same);
        assert!(read(&with(&["--listen", ""])).unwrap().listen.is_empty());
    }

    #[test]
    fn options_pass_from_master_to_worker() {
        let config =
            read(&["--root", "/srv", "--upstream", "app:1", "--listen", "[::1]:1"]).unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
    }
}
