//! The servers that can be started, and their configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::web;

/// A server to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubjectSpec {
    pub kind: Kind,
    /// Display name in tables; otherwise without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its program; the default is the one built with the lab for Myriad, and the one found on PATH
    /// for others.
    pub binary: Option<PathBuf>,
    /// Cores that it may use; empty: all. Cores that this machine lacks are ignored.
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// Command-line options, as `--name value`.
    #[serde(default)]
    pub options: BTreeMap<String, OptionValue>,
    #[serde(default)]
    pub replicas: Replicas,
    /// Parent of its new directory; the default is the system's temporary directory.
    pub directory: Option<PathBuf>,
}

impl SubjectSpec {
    /// Returns the password that its options require.
    pub(crate) fn password(&self) -> Option<String> {
        self.options.get("requirepass").map(ToString::to_string)
    }

    /// Describes one of its replicas.
    pub(super) fn replica_of(&self, master: SocketAddr) -> Self {
        let mut options = self.options.clone();
        let master = OptionValue::Text(format!("{} {}", master.ip(), master.port()));
        options.insert("replicaof".into(), master);
        if let Some(password) = self.password() {
            options.insert("masterauth".into(), OptionValue::Text(password));
        }
        let cpus = self.replicas.cpus.clone();
        Self { cpus, options, replicas: Replicas::default(), ..self.clone() }
    }
}

/// Replicas that the server feeds while it is measured. They have its program and options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Replicas {
    pub count: usize,
    /// Cores that they may use, as those of the server.
    pub cpus: Vec<usize>,
}

/// Limit for the replicas of a server.
pub(crate) const REPLICAS_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Myriad,
    RedisServer,
    ValkeyServer,
    Memcached,
    /// With `scripts/peers/cassandra.sh`.
    Cassandra,
    /// `myriad web`, with files of several sizes: `/1k.bin`, `/4k.bin`, `/64k.bin`, `/1m.bin`.
    Web,
    /// With the same files and the same `/hello`, using a configuration that the lab writes. It
    /// supports the options `workers`, `backlog` and `root`.
    Nginx,
    /// `myriad-lab echo`: echoes its input, regardless of the protocol.
    Echo,
    /// A log without a server: the generator's own process is measured.
    Log,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.program())
    }
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    Switch(bool),
    Whole(i64),
    Real(f64),
    Text(String),
}

/// Formats switches as `yes` and `no`.
impl fmt::Display for OptionValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(true) => formatter.write_str("yes"),
            Self::Switch(false) => formatter.write_str("no"),
            Self::Whole(number) => number.fmt(formatter),
            Self::Real(number) => number.fmt(formatter),
            Self::Text(text) => text.fmt(formatter),
        }
    }
}

/// Parameters of a start that determine the command line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) directory: &'a str,
    pub(super) address: SocketAddr,
    /// memcached refuses to run as root unless a user is specified.
    pub(super) is_root: bool,
}

impl Kind {
    /// Returns the name of the program, which is that of the kind.
    pub fn program(self) -> &'static str {
        match self {
            Self::Myriad => "myriad",
            Self::RedisServer => "redis-server",
            Self::ValkeyServer => "valkey-server",
            Self::Memcached => "memcached",
            Self::Cassandra => "cassandra.sh",
            Self::Web => "web",
            Self::Nginx => "nginx",
            Self::Echo => "echo",
            Self::Log => "log",
        }
    }

    /// Whether the server chooses its own port and reports it.
    pub(super) fn announces(self) -> bool {
        matches!(self, Self::Myriad | Self::Web)
    }

    /// Returns the protocol used to check that the server responds.
    pub(super) fn first_protocol(self) -> &'static str {
        if self == Self::Web { "http" } else { "resp" }
    }

    /// Whether it is a web server: a master with worker processes.
    pub(super) fn is_web(self) -> bool {
        matches!(self, Self::Web | Self::Nginx)
    }

    /// Whether its default program is `myriad`.
    pub(super) fn is_of_myriad(self) -> bool {
        matches!(self, Self::Myriad | Self::Web)
    }

    /// Whether it has replicas, which its INFO lists.
    pub(crate) fn replicates(self) -> bool {
        matches!(self, Self::Myriad | Self::RedisServer | Self::ValkeyServer)
    }

    /// Parses the address of a protocol in the server's output: `ready resp=127.0.0.1:6379`.
    pub(super) fn announced(self, protocol: &str, output: &str) -> Option<SocketAddr> {
        if !self.announces() {
            return None;
        }
        // An incomplete line may lack digits.
        let complete = &output[..=output.rfind('\n')?];
        let words = complete.lines().find_map(|line| line.strip_prefix("ready "))?;
        let address = |word: &str| word.strip_prefix(protocol)?.strip_prefix('=')?.parse().ok();
        words.split(' ').find_map(address)
    }

    /// Returns the arguments: the address and directory, then defaults for a temporary server
    /// unless `options` override them, then `options`.
    pub(super) fn arguments(
        self,
        place: Place<'_>,
        options: &BTreeMap<String, OptionValue>,
    ) -> Vec<String> {
        let (host, port) = (place.address.ip().to_string(), place.address.port().to_string());
        let address = place.address.to_string();
        let root = format!("{}/{}", place.directory, web::ROOT);
        let configuration = format!("{}/{}", place.directory, web::CONFIGURATION);
        let mut words: Vec<&str> = Vec::new();
        let mut defaults: Vec<(&str, &str)> = Vec::new();
        match self {
            Self::Myriad => {
                words.push("serve");
                defaults.push(("dir", place.directory));
            }
            Self::RedisServer | Self::ValkeyServer => {
                words.extend(["--bind", &host, "--port", &port]);
                defaults.extend([("dir", place.directory), ("save", ""), ("appendonly", "no")]);
            }
            Self::Memcached => {
                words.extend(["-l", &host, "-p", &port, "-U", "0"]);
                if place.is_root {
                    words.extend(["-u", "root"]);
                }
            }
            Self::Cassandra => {
                words.extend(["run", "--port", &port, "--dir", place.directory]);
            }
            Self::Web => {
                words.extend(["web", "--listen", &address]);
                defaults.push(("root", root.as_str()));
            }
            Self::Nginx => words.extend(["-p", place.directory, "-c", &configuration]),
            Self::Echo => words.extend(["echo", "--port", &port]),
            Self::Log => {}
        }
        let mut words: Vec<String> = words.into_iter().map(String::from).collect();
        if self == Self::Myriad {
            words.extend(["--resp".to_owned(), place.address.to_string()]);
        }
        for (name, value) in defaults {
            if !options.contains_key(name) {
                words.extend([format!("--{name}"), value.to_owned()]);
            }
        }
        for (name, value) in options {
            match self {
                Self::Memcached => words.push(format!("--{name}={value}")),
                // They are in its configuration.
                Self::Nginx => {}
                Self::Web => words.extend([format!("--{name}"), web::option(value)]),
                // Each word is an argument of its own.
                Self::RedisServer | Self::ValkeyServer => {
                    words.push(format!("--{name}"));
                    words.extend(value.to_string().split(' ').map(String::from));
                }
                _ => words.extend([format!("--{name}"), value.to_string()]),
            }
        }
        words
    }
}

/// Whether a server's output indicates that its port is in use.
pub(super) fn is_port_taken(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    reason.contains("address already in use") || reason.contains("failed listening on port")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, options: &[(&str, OptionValue)], expected: &str) {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let port = if kind.announces() { 0 } else { 7_000 };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let place = Place { directory: "/d", address, is_root: true };
        assert_eq!(kind.arguments(place, &options.collect()).join(" "), expected);
    }

    #[test]
    fn every_kind_has_its_command_line() {
        let threads = [("threads", OptionValue::Whole(2))];
        check(
            Kind::Myriad,
            &[
                ("reactors", OptionValue::Whole(1)),
                ("durability", OptionValue::Text("never".into())),
            ],
            "serve --resp 127.0.0.1:0 --dir /d --durability never --reactors 1",
        );
        check(
            Kind::RedisServer,
            &[],
            "--bind 127.0.0.1 --port 7000 --dir /d --save  --appendonly no",
        );
        check(
            Kind::RedisServer,
            &[("save", OptionValue::Text("60 1000".into()))],
            "--bind 127.0.0.1 --port 7000 --dir /d --appendonly no --save 60 1000",
        );
        check(
            Kind::ValkeyServer,
            &[("appendonly", OptionValue::Switch(true))],
            "--bind 127.0.0.1 --port 7000 --dir /d --save  --appendonly yes",
        );
        let sync = [("commitlog-sync", OptionValue::Text("batch".into()))];
        check(Kind::Cassandra, &sync, "run --port 7000 --dir /d --commitlog-sync batch");
        check(Kind::Echo, &threads, "echo --port 7000 --threads 2");
        let web = [
            ("compress", OptionValue::Switch(false)),
            ("accept", OptionValue::Text("serial".into())),
        ];
        check(
            Kind::Web,
            &web,
            "web --listen 127.0.0.1:0 --root /d/root --accept serial --compress false",
        );
        let workers = [("workers", OptionValue::Whole(2))];
        check(Kind::Nginx, &workers, "-p /d -c /d/nginx.conf");
        check(Kind::Memcached, &threads, "-l 127.0.0.1 -p 7000 -U 0 -u root --threads=2");
    }

    #[test]
    fn a_replica_has_the_options_of_its_master() {
        let spec: SubjectSpec = toml::from_str(
            "kind = \"myriad\"\ncpus = [0]\noptions = { reactors = 1 }\n\
             replicas = { count = 2, cpus = [1] }",
        )
        .unwrap();
        let replica = spec.replica_of(([127, 0, 0, 1], 7_001).into());
        let options: Vec<String> =
            replica.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(options, ["reactors=1", "replicaof=127.0.0.1 7001"]);
        assert_eq!((replica.cpus, replica.replicas.count), (vec![1], 0));
    }

    #[test]
    fn the_address_is_read_from_a_whole_line_only() {
        let check = |output: &str, expected: Option<&str>| {
            let found = Kind::Myriad.announced("resp", output).map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{output:?}");
        };
        check("", None);
        check("ready resp=127.0.0.1:63", None);
        check("noise\nready resp=127.0.0.1:6379\nmore", Some("127.0.0.1:6379"));
        check("ready cql=127.0.0.1:1 resp=[::1]:2\n", Some("[::1]:2"));
        let both = "ready cql=127.0.0.1:1 resp=[::1]:2\n";
        assert_eq!(Kind::Myriad.announced("cql", both), Some(([127, 0, 0, 1], 1).into()));
        assert_eq!(Kind::RedisServer.announced("resp", "ready resp=127.0.0.1:1\n"), None);
        let web = Kind::Web.announced("http", "ready http=127.0.0.1:3\n");
        assert_eq!(web, Some(([127, 0, 0, 1], 3).into()));
    }

    #[test]
    fn options_read_as_in_files() {
        let spec: SubjectSpec = toml::from_str(
            "kind = \"redis-server\"\noptions = { a = true, b = 3, c = \"x y\", d = 0.5 }",
        )
        .unwrap();
        let values: Vec<String> = spec.options.values().map(ToString::to_string).collect();
        assert_eq!(values, ["yes", "3", "x y", "0.5"]);
    }
}
