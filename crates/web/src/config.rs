//! Options, from the command line or a file, and their transfer from the master to its workers.

mod table;

use std::path::PathBuf;

use base::usage::UsageError;
use options::{CommandLine, ConfigError, Conflict, Loaded, choice, settings};
use serde::{Deserialize, Serialize};

use crate::address::HostPort;
use crate::scheme::Scheme;
use table::OPTIONS;

pub(crate) use table::help;
pub use table::{notes, option_texts};

/// Each worker has a descriptor in every message to a worker, and a message carries at most 253.
pub(crate) const WORKERS_MAX: usize = 64;

/// Maximum number of addresses per option: each has a socket per worker.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// A day: larger values are probably in the wrong unit.
pub(crate) const TIME_MS_MAX: u64 = 86_400_000;

/// Workers are checked once per second, and one missed check is not conclusive.
const WORKER_TIMEOUT_MS_MIN: u64 = 2_000;

choice! {
    /// How workers are run.
    Mode {
        Process = "process",
        Thread = "thread",
    }
}

choice! {
    /// How connections are distributed to workers.
    Accept {
        /// One listening socket per worker. A worker with more connections than the least loaded
        /// one forwards new ones to it.
        LeastLoaded = "least-loaded",
        /// One listening socket per worker, without forwarding: the kernel's hash decides.
        Reuseport = "reuseport",
        /// One listening socket that all workers poll; the kernel wakes one or a few.
        Exclusive = "exclusive",
        /// The master accepts and passes each connection to the worker with the fewest
        /// connections.
        Fdpass = "fdpass",
        /// Historical: the master notifies workers in turn, repeatedly, while connections are
        /// waiting.
        NotifyLt = "notify-lt" if "experiments",
        /// Historical and broken: the master notifies a worker once, when connections begin to
        /// wait.
        NotifyEt = "notify-et" if "experiments",
        /// Historical: one connection at a time.
        Serial = "serial" if "experiments",
    }
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

choice! {
    /// Format of the access log.
    LogFormat {
        /// The common format with referrer and user agent.
        Combined = "combined",
        Common = "common",
        /// The combined format with host, id, and times.
        Extended = "extended",
        /// One JSON object per line.
        Json = "json",
    }
}

settings! {
    /// All options, with their defaults. Workers receive them as text.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(try_from = "Vec<(String, String)>", into = "Vec<(String, String)>")]
    pub(crate) struct Config {
        listen: Vec<HostPort> = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 8080)).into()],
        listen_tls: Vec<HostPort> = Vec::new(),
        /// Address at which counters are served.
        status: Option<HostPort> = None,
        tls_cert_file: Option<PathBuf> = None,
        tls_key_file: Option<PathBuf> = None,
        user: Option<String> = None,
        group: Option<String> = None,
        root: Option<PathBuf> = None,
        workers: usize = cores(),
        mode: Mode = Mode::Process,
        accept: Accept = Accept::LeastLoaded,
        backlog: u32 = 1024,
        accept_max: usize = 64,
        upstream: Option<HostPort> = None,
        upstream_connections_max: usize = 256,
        upstream_idle_max: usize = 32,
        upstream_queue_max: usize = 1024,
        upstream_queue_timeout_ms: u64 = 10_000,
        upstream_compress: bool = true,
        websockets_max: usize = 1024,
        websocket_idle_timeout_ms: u64 = 120_000,
        https_redirect_port: u16 = 0,
        worker_timeout_ms: u64 = 30_000,
        access_log: Option<PathBuf> = None,
        access_log_format: LogFormat = LogFormat::Combined,
        compress: bool = true,
        connections_max: usize = 20_000,
        connections_per_address_max: usize = 0,
        memory_max: usize = 128 << 20,
        head_bytes_max: usize = wire::http::Limits::DEFAULT.head_bytes_max,
        fields_max: usize = wire::http::Limits::DEFAULT.fields_max,
        target_bytes_max: usize = wire::http::Limits::DEFAULT.target_bytes_max,
        body_bytes_max: usize = wire::http::Limits::DEFAULT.body_bytes_max,
        head_timeout_ms: u64 = 10_000,
        body_rate_min: u64 = 512,
        idle_timeout_ms: u64 = 60_000,
        write_timeout_ms: u64 = 30_000,
        write_rate_min: u64 = 512,
        upstream_timeout_ms: u64 = 30_000,
        drain_timeout_ms: u64 = 10_000,
        /// Processor time to waste before each response, which only experiments can set.
        work_us: u64 = 0,
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX)
}

impl From<Config> for Vec<(String, String)> {
    fn from(config: Config) -> Self {
        options::rows(OPTIONS).map(|row| (row.name.to_owned(), row.text(&config))).collect()
    }
}

impl TryFrom<Vec<(String, String)>> for Config {
    type Error = ConfigError;

    fn try_from(pairs: Vec<(String, String)>) -> Result<Config, ConfigError> {
        let mut loaded = Loaded::new(OPTIONS);
        for (name, value) in &pairs {
            loaded.take_argument(name, value)?;
        }
        Ok(loaded.settings)
    }
}

/// Sources of options; re-read on reload.
#[derive(Debug, Clone)]
pub(crate) struct Source(CommandLine);

impl Source {
    /// Parses the command line after `myriad web`. Returns `None` if help was requested.
    pub(crate) fn parse(parser: &mut lexopt::Parser) -> Result<Option<Source>, UsageError> {
        let line = CommandLine::parse(OPTIONS, parser).map_err(UsageError::new)?;
        Ok(line.map(Source))
    }

    /// Reads the current options. An error names the option and its location.
    pub(crate) fn read(&self) -> Result<Config, UsageError> {
        let loaded = self.0.load(OPTIONS).map_err(UsageError::new)?;
        let checked = loaded.settings.check();
        checked.map_err(|conflict| UsageError::new(loaded.conflict(conflict)))?;
        Ok(loaded.settings)
    }
}

impl Config {
    fn check(&self) -> Result<(), Conflict> {
        self.check_addresses()?;
        self.check_tls()?;
        self.check_user()?;
        if self.https_redirect_port != 0 && self.accept.is_serial() {
            return Err(Conflict::new("https-redirect-port", "accept = serial does not redirect"));
        }
        let worker_ms = self.worker_timeout_ms;
        if worker_ms != 0 && worker_ms < WORKER_TIMEOUT_MS_MIN {
            let bounds = format!("0 or {WORKER_TIMEOUT_MS_MIN} to {TIME_MS_MAX}");
            let reason = format!("{worker_ms} is out of range: {bounds}");
            return Err(Conflict::new("worker-timeout-ms", reason));
        }
        Ok(())
    }

    /// Checks that address, certificate and key are given together.
    fn check_tls(&self) -> Result<(), Conflict> {
        let parts = [
            ("listen-tls", !self.listen_tls.is_empty()),
            ("tls-cert-file", self.tls_cert_file.is_some()),
            ("tls-key-file", self.tls_key_file.is_some()),
        ];
        let missing = parts.iter().find(|(_, is_given)| !is_given);
        if let (Some((given, _)), Some((missing, _))) =
            (parts.iter().find(|(_, is_given)| *is_given), missing)
        {
            return Err(Conflict::new(given, format!("requires {missing}")));
        }
        if !self.listen_tls.is_empty() && self.accept.is_serial() {
            return Err(Conflict::new("listen-tls", "accept = serial does not support TLS"));
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), Conflict> {
        if self.listen.is_empty() && self.listen_tls.is_empty() {
            return Err(Conflict::new(
                "listen",
                "at least one address is required, here or in listen-tls",
            ));
        }
        if self.status.is_some() && self.accept.is_serial() {
            return Err(Conflict::new("status", "accept = serial has no status page"));
        }
        let mut seen: Vec<&HostPort> = Vec::new();
        for scheme in Scheme::ALL {
            let (option, addresses) = (Config::address_option(scheme), self.addresses(scheme));
            if addresses.len() > ADDRESSES_MAX {
                return Err(Conflict::new(option, format!("more than {ADDRESSES_MAX} addresses")));
            }
            for address in addresses {
                if address.port() != 0 && seen.contains(&address) {
                    return Err(Conflict::new(option, format!("{address} is given twice")));
                }
                seen.push(address);
            }
        }
        Ok(())
    }

    fn check_user(&self) -> Result<(), Conflict> {
        if self.group.is_some() && self.user.is_none() {
            return Err(Conflict::new("group", "requires user"));
        }
        if self.user.is_some() && self.mode == Mode::Thread {
            let reason = "worker threads must run as the master's user";
            return Err(Conflict::new("user", reason));
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
        let mut parser = lexopt::Parser::from_args(words);
        let source = Source::parse(&mut parser).map_err(|error| error.to_string())?;
        source.unwrap().read().map_err(|error| error.to_string())
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
            (
                "\nworkers = \"x\"",
                ":2: workers: argument couldn't be parsed into an integer (number, 1 to 64)",
            ),
            ("workers = -1", ":1: workers: argument must be between 1 and 64 inclusive"),
            (
                "workers = 1\ncompress = 1",
                ":2: compress: argument must be 'yes' or 'no' (yes or no)",
            ),
            ("listen = [1]", ":1: listen: \"1\" is not HOST:PORT"),
            ("\nlisten = [\"a:1\",\n\"25005\"]", ":2: listen: \"25005\" is not HOST:PORT"),
            ("upstream = \"localhost\"", ":1: upstream: \"localhost\" is not HOST:PORT"),
            (
                "mode = \"fast\"",
                ":1: mode: argument(s) must be one of the following: process, thread",
            ),
            ("workers = 1\nworkers = 2", ":2: "),
            ("workers = 1\n= 2", ":2: "),
            ("backlog = 5000000000", ":1: backlog: "),
            // Errors that depend on other options or on the value.
            ("\n\nworkers = 0", ":3: workers: argument must be between 1 and 64 inclusive"),
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
            (
                &["--workers", "x"][..],
                "--workers: argument couldn't be parsed into an integer (number, 1 to 64)",
            ),
            (&["--workers", "0"], "--workers: argument must be between 1 and 64 inclusive"),
            (&["--wrokers", "0"], "--wrokers: unknown option; did you mean workers?"),
            (
                &["--accept", "best"],
                "--accept: argument(s) must be one of the following: least-loaded",
            ),
            (&["--access-log-format", "xml"], "--access-log-format: argument(s) must be one of"),
            (&["--fast", "1"], "--fast: unknown option"),
            (&["--listen", "25005"], "--listen: \"25005\" is not HOST:PORT"),
            (&["--upstream", "http://a:1"], "--upstream: \"http://a:1\" is not HOST:PORT"),
            (
                &["--idle-timeout-ms", "0"],
                "--idle-timeout-ms: argument must be between 1 and 86400000 inclusive",
            ),
            #[cfg(feature = "experiments")]
            (
                &["--work-us", "1000001"],
                "--work-us: argument must be between 0 and 1000000 inclusive",
            ),
            (
                &["--config", "/nonexistent/web.toml"],
                "could not read configuration file /nonexistent/web.toml: ",
            ),
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
