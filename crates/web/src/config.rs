//! Options: from the command line, from a file, and from the master to its workers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr as _;

use anyhow::Context as _;
use lexopt::{Arg, Parser};
use serde::{Deserialize, Serialize};

use crate::scheme::Scheme;
use crate::{UsageError, unexpected};

/// Each has a descriptor in every message to a worker, and a message carries 253.
pub(crate) const WORKERS_MAX: usize = 64;

/// A worker that computes for longer looks like one that hangs.
const WORK_US_MAX: u64 = 1_000_000;

/// What a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    Process,
    Thread,
}

/// How connections come to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accept {
    /// A listening socket per worker; who has more connections than the least loaded one passes new
    /// ones on to it.
    LeastLoaded,
    /// A listening socket per worker and nothing else: the kernel's hash decides.
    Reuseport,
    /// One listening socket that all workers watch; the kernel wakes one or a few.
    Exclusive,
    /// The master accepts and passes connections to the worker with the fewest.
    Fdpass,
    /// Historical: the master tells workers in turn that something waits, again and again while it does.
    NotifyLt,
    /// Historical and broken: the master tells a worker once, when something begins to wait.
    NotifyEt,
    /// Historical: one connection at a time.
    Serial,
}

impl Accept {
    /// Each worker has a listening socket of its own.
    pub(crate) fn has_own_listeners(self) -> bool {
        matches!(self, Accept::LeastLoaded | Accept::Reuseport)
    }

    /// The master watches the listening sockets.
    pub(crate) fn is_masters(self) -> bool {
        matches!(self, Accept::Fdpass | Accept::NotifyLt | Accept::NotifyEt)
    }
}

/// What a line of the access log looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// The common one with referer and user agent.
    Combined,
    Common,
    /// An object per line.
    Json,
}

/// All options, with their defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) listen_tls: Option<SocketAddr>,
    pub(crate) tls_cert_file: Option<PathBuf>,
    pub(crate) tls_key_file: Option<PathBuf>,
    pub(crate) root: Option<PathBuf>,
    pub(crate) workers: usize,
    pub(crate) mode: Mode,
    pub(crate) accept: Accept,
    pub(crate) backlog: u32,
    pub(crate) accept_max: usize,
    pub(crate) upstream: Option<SocketAddr>,
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
    pub(crate) work_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        let wire = wire::http::Limits::DEFAULT;
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            listen_tls: None,
            tls_cert_file: None,
            tls_key_file: None,
            root: None,
            workers: std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
            mode: Mode::Process,
            accept: Accept::LeastLoaded,
            backlog: 1024,
            accept_max: 64,
            upstream: None,
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
            work_us: 0,
        }
    }
}

/// The kind of an option's value, for the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Switch,
}

/// Options with what stands in the help.
const OPTIONS: [(&str, Kind, &str); 28] = [
    ("listen", Kind::Text, "Address and port to listen on; port 0 is any free one"),
    ("listen-tls", Kind::Text, "The same for HTTPS, beside --listen; none without it"),
    ("tls-cert-file", Kind::Text, "Certificates in PEM: the server's, then those above it"),
    ("tls-key-file", Kind::Text, "Key of the server's certificate in PEM, without a password"),
    ("root", Kind::Text, "Directory whose files are served; none without it"),
    ("workers", Kind::Number, "How many workers, up to 64 [cores]"),
    ("mode", Kind::Text, "What a worker is: process or thread"),
    ("accept", Kind::Text, "How connections come to workers, see below"),
    ("backlog", Kind::Number, "Connections that wait to be accepted, per listening socket"),
    ("accept-max", Kind::Number, "Connections that are accepted before others are served"),
    ("upstream", Kind::Text, "Address that requests below /api/ are passed on to"),
    ("access-log", Kind::Text, "File with a line per request"),
    ("access-log-format", Kind::Text, "Lines of that file: combined, common or json"),
    ("compress", Kind::Switch, "Compress small files for clients that take it: true or false"),
    ("connections-max", Kind::Number, "Connections per worker; more wait to be accepted"),
    (
        "connections-per-address-max",
        Kind::Number,
        "Connections per worker and client address; 0: any",
    ),
    ("head-bytes-max", Kind::Number, "Longest head of a request; longer: 431"),
    ("fields-max", Kind::Number, "Most header lines of a request, up to 128; more: 431"),
    ("target-bytes-max", Kind::Number, "Longest target of a request; longer: 414"),
    ("body-bytes-max", Kind::Number, "Longest body of a request; longer: 413"),
    ("head-timeout-ms", Kind::Number, "Time for a whole head from its first byte on; later: 408"),
    ("body-rate-min", Kind::Number, "Bytes per second that a body must come with; slower: 408"),
    ("idle-timeout-ms", Kind::Number, "Time between two requests of a connection"),
    (
        "write-timeout-ms",
        Kind::Number,
        "Time over which a client must have taken its answer with --write-rate-min; else it is cut off",
    ),
    ("write-rate-min", Kind::Number, "Bytes per second that an answer must be taken with"),
    (
        "upstream-timeout-ms",
        Kind::Number,
        "Silence of the upstream after which it is given up: 504",
    ),
    ("drain-timeout-ms", Kind::Number, "Time for requests under way when a worker ends"),
    ("work-us", Kind::Number, "Processor time wasted before each answer, to be measured with"),
];

/// Text of `myriad web --help`.
pub(crate) fn help() -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "Usage: myriad web [--config FILE] [--NAME VALUE]...\n\n\
         Serves files, /hello and an upstream over HTTP/1.1 and HTTPS with a group of workers.\n\n\
         \x20 -c, --config FILE\n        Read options from FILE: flat TOML, name = value; the command line wins\n\
         \x20 -h, --help\n        Print this\n",
    );
    let defaults = toml::Table::try_from(Config::default()).unwrap_or_default();
    for (name, _, words) in OPTIONS {
        let default = defaults.get(name).filter(|_| name != "workers");
        let default = default.map_or(String::new(), |value| format!(" [{value}]"));
        let _ = writeln!(text, "      --{name} VALUE\n        {words}{}", default.replace('"', ""));
    }
    text.push_str(
        "\nHow connections come to workers (--accept):\n\
         \x20 least-loaded  A socket per worker; new connections move to the least loaded worker\n\
         \x20 reuseport     A socket per worker; the kernel's hash decides, evenly or not\n\
         \x20 exclusive     One socket watched by all; the kernel wakes mostly the same worker\n\
         \x20 fdpass        The master accepts and passes on; it is the bottleneck\n\
         Historical designs, to be compared with. Their faults are real; do not use them:\n\
         \x20 notify-lt     The master tells workers in turn, over and over, that somebody waits\n\
         \x20 notify-et     The master tells once: connections above --accept-max wait until another comes\n\
         \x20 serial        One worker, one connection at a time: a slow client stops all others\n\n\
         Signals to the master: TERM and INT finish requests and end; HUP reads the options again, and\n\
         certificate and key, with new workers; USR1 reopens the access log; USR2 starts the program anew on the same sockets.\n",
    );
    text
}

/// Where options come from; read again on reload.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    file: Option<PathBuf>,
    overrides: toml::Table,
}

impl Source {
    /// Reads the command line behind `myriad web`; `None`: help was asked for.
    pub(crate) fn parse(parser: &mut Parser) -> anyhow::Result<Option<Source>> {
        let mut source = Source { file: None, overrides: toml::Table::new() };
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Short('c') | Arg::Long("config") => {
                    source.file = Some(PathBuf::from(parser.value()?));
                }
                Arg::Long(name) => {
                    let found = OPTIONS.iter().find(|(option, ..)| *option == name);
                    let Some((name, kind, _)) = found else { return Err(unexpected(argument)) };
                    let value = parser.value()?;
                    let text = value.to_str().with_context(|| format!("--{name}: not UTF-8"))?;
                    source.overrides.insert((*name).to_owned(), typed(name, *kind, text)?);
                }
                other => return Err(unexpected(other)),
            }
        }
        Ok(Some(source))
    }

    /// The options as they are now.
    pub(crate) fn read(&self) -> anyhow::Result<Config> {
        let mut table = match &self.file {
            None => toml::Table::new(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("read {}", path.display()))?;
                let parsed = toml::Table::from_str(&text);
                parsed.map_err(|error| usage(format!("{}: {error}", path.display())))?
            }
        };
        table.extend(self.overrides.clone());
        let config: Config =
            table.try_into().map_err(|error: toml::de::Error| usage(error.message().to_owned()))?;
        config.check()?;
        Ok(config)
    }
}

fn typed(name: &str, kind: Kind, text: &str) -> anyhow::Result<toml::Value> {
    let wrong = |what: &str| usage(format!("--{name}: {text:?} is not {what}"));
    Ok(match kind {
        Kind::Text => toml::Value::String(text.to_owned()),
        Kind::Number => toml::Value::Integer(text.parse().map_err(|_| wrong("a whole number"))?),
        Kind::Switch => toml::Value::Boolean(text.parse().map_err(|_| wrong("true or false"))?),
    })
}

fn usage(text: String) -> anyhow::Error {
    UsageError(text).into()
}

impl Config {
    fn check(&self) -> anyhow::Result<()> {
        let bounds = [
            ("workers", self.workers, 1, WORKERS_MAX),
            ("accept-max", self.accept_max, 1, 100_000),
            ("connections-max", self.connections_max, 1, 10_000_000),
            ("fields-max", self.fields_max, 1, wire::http::FIELDS_MAX),
            ("head-bytes-max", self.head_bytes_max, 256, 1 << 20),
            ("target-bytes-max", self.target_bytes_max, 16, 1 << 20),
            ("body-bytes-max", self.body_bytes_max, 0, 1 << 30),
        ];
        for (name, value, least, most) in bounds {
            if value < least || value > most {
                return Err(usage(format!("{name}: {value} is not from {least} to {most}")));
            }
        }
        self.check_tls()?;
        if self.work_us > WORK_US_MAX {
            return Err(usage(format!("work-us: {} is not from 0 to {WORK_US_MAX}", self.work_us)));
        }
        let times = [
            ("head-timeout-ms", self.head_timeout_ms),
            ("body-rate-min", self.body_rate_min),
            ("idle-timeout-ms", self.idle_timeout_ms),
            ("write-timeout-ms", self.write_timeout_ms),
            ("write-rate-min", self.write_rate_min),
            ("upstream-timeout-ms", self.upstream_timeout_ms),
            ("drain-timeout-ms", self.drain_timeout_ms),
        ];
        match times.iter().find(|(_, value)| *value == 0 || *value > 86_400_000) {
            None => Ok(()),
            Some((name, value)) => Err(usage(format!("{name}: {value} is not from 1 to 86400000"))),
        }
    }

    /// Address, certificate and key are of use together.
    fn check_tls(&self) -> anyhow::Result<()> {
        let parts = [
            ("listen-tls", self.listen_tls.is_some()),
            ("tls-cert-file", self.tls_cert_file.is_some()),
            ("tls-key-file", self.tls_key_file.is_some()),
        ];
        let missing = parts.iter().find(|(_, is_given)| !is_given);
        if let (Some((given, _)), Some((missing, _))) =
            (parts.iter().find(|(_, is_given)| *is_given), missing)
        {
            return Err(usage(format!("{given} needs {missing} beside it")));
        }
        let Some(address) = self.listen_tls else { return Ok(()) };
        if self.accept == Accept::Serial {
            return Err(usage("listen-tls: accept = serial speaks no TLS".to_owned()));
        }
        if address == self.listen && address.port() != 0 {
            return Err(usage(format!("listen-tls: {address} is the address of listen")));
        }
        Ok(())
    }

    /// Where to listen, if it is wanted.
    pub(crate) fn address(&self, scheme: Scheme) -> Option<SocketAddr> {
        match scheme {
            Scheme::Http => Some(self.listen),
            Scheme::Https => self.listen_tls,
        }
    }

    /// How many workers there are: one at a time is one.
    pub(crate) fn worker_count(&self) -> usize {
        if self.accept == Accept::Serial { 1 } else { self.workers }
    }

    /// Limits of the codec.
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
        source.unwrap().read().map_err(|error| error.to_string())
    }

    #[test]
    fn every_option_has_a_help_line_and_a_field() {
        let table = toml::Table::try_from(Config::default()).unwrap();
        let optional =
            ["root", "upstream", "access-log", "listen-tls", "tls-cert-file", "tls-key-file"];
        for (name, ..) in OPTIONS {
            assert!(table.contains_key(name) || optional.contains(&name), "{name}");
        }
        assert_eq!(table.len() + optional.len(), OPTIONS.len());
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let path = std::env::temp_dir().join(format!("myriad-web-{}.toml", std::process::id()));
        std::fs::write(&path, "workers = 3\naccept = \"fdpass\"\ncompress = false\n").unwrap();
        let file = path.to_str().unwrap();
        let config = read(&["--config", file, "--workers", "5", "--mode", "thread"]).unwrap();
        assert_eq!((config.workers, config.accept), (5, Accept::Fdpass));
        assert_eq!((config.mode, config.compress), (Mode::Thread, false));
        std::fs::write(&path, "wrokers = 3\n").unwrap();
        assert!(read(&["--config", file]).unwrap_err().contains("unknown field"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn faults_are_in_the_operators_words() {
        for (words, part) in [
            (&["--workers", "x"][..], "--workers: \"x\" is not a whole number"),
            (&["--workers", "0"], "workers: 0 is not from 1 to 64"),
            (&["--accept", "best"], "unknown variant `best`"),
            (&["--access-log-format", "xml"], "unknown variant `xml`"),
            (&["--fast", "1"], "invalid option '--fast'"),
            (&["--listen", "here"], "invalid socket address"),
            (&["--idle-timeout-ms", "0"], "idle-timeout-ms: 0 is not from 1 to 86400000"),
            (&["--work-us", "1000001"], "work-us: 1000001 is not from 0 to 1000000"),
            (&["--config", "/nonexistent/web.toml"], "read /nonexistent/web.toml"),
            (&["--listen-tls", "127.0.0.1:1"], "listen-tls needs tls-cert-file beside it"),
            (&["--tls-key-file", "k"], "tls-key-file needs listen-tls beside it"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(part), "{words:?}: {error}");
        }
    }

    #[test]
    fn tls_needs_all_of_its_parts() {
        let parts =
            ["--listen-tls", "127.0.0.1:443", "--tls-cert-file", "c", "--tls-key-file", "k"];
        let config = read(&parts).unwrap();
        assert_eq!(config.address(Scheme::Https).unwrap().port(), 443);
        let check = |words: &[&str], expected: &str| {
            assert_eq!(read(words).unwrap_err(), expected);
        };
        check(&parts[2..], "tls-cert-file needs listen-tls beside it");
        check(&parts[..4], "listen-tls needs tls-key-file beside it");
        let with = |more: &[&'static str]| [&parts[..], more].concat();
        check(&with(&["--accept", "serial"]), "listen-tls: accept = serial speaks no TLS");
        let same = "listen-tls: 127.0.0.1:443 is the address of listen";
        check(&with(&["--listen", "127.0.0.1:443"]), same);
    }

    #[test]
    fn options_pass_from_master_to_worker() {
        let config = read(&["--root", "/srv", "--upstream", "127.0.0.1:1"]).unwrap();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
    }
}
