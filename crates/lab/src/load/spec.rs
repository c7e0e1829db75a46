//! What a load generator is asked for, and what it answers: JSON, one [`LoadSpec`] on standard
//! input, one [`LoadEvent`] per line on standard output.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::measure::ThreadUse;

/// Everything that decides what load is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    pub work: Work,
    /// Loads that are made beside it, by name: over sockets only, by threads of their own on the
    /// same cores, from its start to its end. Phases and windows are those of the first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, SocketWork>,
    pub warmup: Warmup,
    /// Length of the measured phase.
    pub duration_ms: u64,
    /// The measured phase ends earlier when so many operations are done.
    pub operations_max: Option<u64>,
    /// Operations are counted per window of this length.
    pub window_ms: u64,
    /// Cores that the generator may use; empty: all.
    pub cpus: Vec<usize>,
    /// Same seed, same keys, sizes and arrivals.
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Requests over TCP.
    Socket(SocketWork),
    /// Appends to a log in the generator's own process.
    Append(AppendWork),
}

/// When measuring begins.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warmup {
    /// After so long.
    Fixed { ms: u64 },
    /// When the rate has become steady, after `max_ms` at the latest.
    Steady { max_ms: u64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketWork {
    pub protocol: Protocol,
    pub address: SocketAddr,
    /// Sent as AUTH first, if there is one.
    pub password: Option<String>,
    /// Generator threads, each a reactor.
    pub threads: usize,
    pub connections: usize,
    /// Callers that share the connections; 0: one per connection.
    pub users: usize,
    pub sharing: Sharing,
    /// Requests that a user sends at once, waiting for all their replies before the next.
    pub pipeline: usize,
    pub arrival: Arrival,
    /// Commands and how often each is chosen.
    pub mix: Vec<Operation>,
    pub keys: Keys,
    /// Length of what `{value}` stands for.
    pub value_bytes: Sizes,
    /// Sent once on each connection before the load.
    pub setup: Vec<Vec<String>>,
    /// With [`Protocol::Cql`], and only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cql: Option<Box<CqlWork>>,
    /// With [`Protocol::Http`], and only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Box<HttpWork>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Resp,
    /// Inline commands of RESP: the words with blanks between them, which none of them may hold.
    RespInline,
    /// The text protocol of memcached: mixes may use GET and SET only, in letters of any case.
    Memcached,
    /// Cassandra's native protocol, version 4: an operation is one word, a statement, which is prepared
    /// once on each connection; what stands in braces is bound.
    Cql,
    /// An operation is a method, a target, and a body where there is one: `["PUT", "/kv/{key}", "{value}"]`.
    Http,
}

/// What load over HTTP needs besides.
///
/// An answer counts when it is there whole, with a status of 2xx. Everything else is counted as an error,
/// by what happened, and never as an operation: `refused`, `reset`, `closed`, `cut short`, `timed out`,
/// `status 503`. What has neither been answered nor failed when the load ends is neither. A refusal that comes
/// later than the call that asked for the connection, as from another machine, is a `reset`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpWork {
    pub connection: HttpConnection,
    pub version: HttpVersion,
    pub host: String,
    /// Further lines of each head: name and value.
    pub headers: Vec<(String, String)>,
    /// Length of each body; another one is an error (`length`). Without, any will do.
    pub body_bytes: Option<u64>,
    /// From when a request is sent, or its connection begun, to its whole answer.
    pub timeout_ms: u64,
    /// Close without waiting for an answer: a request that has been sent counts.
    pub ignores_answers: bool,
}

impl Default for HttpWork {
    fn default() -> Self {
        HttpWork {
            connection: HttpConnection::KeepAlive,
            version: HttpVersion::V1_1,
            host: "localhost".to_owned(),
            headers: Vec::new(),
            body_bytes: None,
            timeout_ms: 5_000,
            ignores_answers: false,
        }
    }
}

/// How long a connection lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HttpConnection {
    KeepAlive,
    /// For one request. The server closes first; its caller goes on when that has been seen.
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpVersion {
    /// A request is a line, an answer all that comes until the end.
    #[serde(rename = "0.9")]
    V0_9,
    #[serde(rename = "1.0")]
    V1_0,
    #[serde(rename = "1.1")]
    V1_1,
}

/// What load over CQL needs besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CqlWork {
    /// Who logs in, where the server asks for a password.
    pub user: String,
    pub consistency: CqlConsistency,
    /// Statements that are run once, in their order, before any connection of the load is opened.
    pub schema: Vec<String>,
}

impl CqlWork {
    /// Writes a row of the schema that is there without another.
    pub const INSERT: &str = "INSERT INTO lab.rows (key, value) VALUES ({key}, {value})";
    /// Reads one.
    pub const SELECT: &str = "SELECT value FROM lab.rows WHERE key = {key}";
}

impl Default for CqlWork {
    /// One table of one keyspace, kept once.
    fn default() -> Self {
        let schema = [
            "CREATE KEYSPACE IF NOT EXISTS lab WITH replication = {'class': 'SimpleStrategy', \
             'replication_factor': 1}",
            "CREATE TABLE IF NOT EXISTS lab.rows (key text PRIMARY KEY, value blob)",
        ];
        CqlWork {
            user: "cassandra".to_owned(),
            consistency: CqlConsistency::LocalOne,
            schema: schema.map(str::to_owned).to_vec(),
        }
    }
}

/// How many replicas must have answered. A single server always is enough of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CqlConsistency {
    Any,
    One,
    Two,
    Three,
    Quorum,
    All,
    LocalQuorum,
    EachQuorum,
    LocalOne,
}

/// As Cassandra writes it: `LOCAL_ONE`.
impl fmt::Display for CqlConsistency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            CqlConsistency::Any => "ANY",
            CqlConsistency::One => "ONE",
            CqlConsistency::Two => "TWO",
            CqlConsistency::Three => "THREE",
            CqlConsistency::Quorum => "QUORUM",
            CqlConsistency::All => "ALL",
            CqlConsistency::LocalQuorum => "LOCAL_QUORUM",
            CqlConsistency::EachQuorum => "EACH_QUORUM",
            CqlConsistency::LocalOne => "LOCAL_ONE",
        })
    }
}

/// How users share connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// A user borrows a connection for one round trip; others wait for it.
    Blocking,
    /// Requests of all users are on their way at the same time.
    Multiplexed,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// A user sends its next request when the last reply has come.
    Closed,
    /// Requests are due at times that do not depend on replies.
    Open { per_second: f64, schedule: Schedule },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    Even,
    Poisson,
}

/// A command as its words. In a word, `{key}`, `{value}`, `{number}` (uniform, below the number of
/// keys) and `{operation}` (counts up) stand for what they name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    pub weight: f64,
    pub words: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    pub prefix: String,
    /// Keys are the prefix and a number below this, with 12 digits.
    pub count: u64,
    pub distribution: Distribution,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    Uniform,
    /// Few keys are asked for often: the k-th most popular with a weight of `1 / k^exponent`.
    Zipfian {
        exponent: f64,
    },
    /// Zipfian, counted back from the key written last. Operations with `{value}` write: they take
    /// the next key, and begin anew behind the last.
    Latest {
        exponent: f64,
    },
    /// A bell around the middle, which has the first and the last key three deviations away.
    Gaussian,
    /// One after the other, shared by all connections.
    Sequential,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    Fixed(usize),
    /// Uniform, both ends included.
    Between(usize, usize),
}

/// Appends to a log by threads of the generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendWork {
    pub mode: LogMode,
    pub threads: usize,
    pub record_bytes: usize,
    pub wait: WaitFor,
    pub commit: Commit,
    /// A new directory for the log; removed afterwards.
    pub directory: PathBuf,
}

/// Which log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogMode {
    /// Lanes and one writer: the server's.
    Lanes,
    /// One lock, held while each record is written (source document 4: Pika).
    Mutex,
    /// Whoever comes first writes for all who wait; they sleep on a condition variable.
    LeaderCondvar,
    /// The same; they sleep on a futex of their own.
    LeaderFutex,
}

/// What a thread waits for before its next append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitFor {
    /// Its place in the order.
    Ticket,
    /// Its record is written, and synced if groups are.
    Commit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Commit {
    /// Written, never synced.
    Written,
    /// Each write is synced.
    Synced,
    /// Synced every so often.
    Interval { ms: u64 },
}

/// What the generator says while it works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum LoadEvent {
    /// All connections are open and load begins.
    Connected,
    /// The warm-up is over: what is counted begins now.
    Measuring {
        warmup_ms: u64,
    },
    /// A window of the measured phase has ended.
    Window {
        operations: u64,
    },
    /// What is counted has ended; replies that are on their way are still awaited.
    Measured,
    Done(Box<LoadReport>),
    /// The process was told to end: what was counted until then. A failure follows.
    Interrupted(Box<LoadReport>),
    /// There is no result, and this is why.
    Failed {
        reason: String,
    },
}

/// What was counted in the measured phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    pub duration_ns: u64,
    pub operations: u64,
    /// Error replies by their first word.
    pub errors: BTreeMap<String, u64>,
    /// Requests without a reply, the whole run through.
    pub lost: u64,
    /// Requests of HTTP that were under way when the load ended: neither done nor lost. Many of them are
    /// connections whose beginning the kernel tries again after seconds.
    #[serde(default)]
    pub unfinished: u64,
    /// Requests that were due in the measured phase and could not be sent before its end, because
    /// no connection was free.
    pub unsent: u64,
    /// Reads of CQL that found no row.
    #[serde(default)]
    pub rows_missing: u64,
    /// How often a statement of CQL that the server had forgotten was prepared again. Its requests were
    /// repeated and are no errors.
    #[serde(default)]
    pub prepared_again: u64,
    /// Connections that the server closed.
    pub broken_connections: u64,
    /// Connections that waited 5 seconds for a reply.
    pub stalled_connections: u64,
    /// Operations per window.
    pub windows: Vec<u64>,
    /// From the time at which a request was due, as a histogram in nanoseconds (HDR V2, base64).
    pub latency_corrected: String,
    /// From the time at which it was sent: blind for what a stalled server kept from being sent.
    pub latency_raw: String,
    /// How late requests left (99th percentile), for reasons that are the generator's own.
    pub lag_ns_p99: u64,
    /// The generator's threads, those of the loads beside this one included.
    pub threads: Vec<ThreadUse>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub log: Option<LogReport>,
    /// What the loads beside this one have counted in the same phase, by name; without threads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, LoadReport>,
}

impl LoadReport {
    /// Operations of this load and of those beside it: what the subject has done.
    pub fn operations_of_all(&self) -> u64 {
        self.operations + self.beside.values().map(Self::operations_of_all).sum::<u64>()
    }
}

/// What a log did in the measured phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogReport {
    pub writes: u64,
    pub syncs: u64,
    pub bytes: u64,
    /// Records per write, as a histogram (HDR V2, base64); likewise bytes per write.
    pub records_per_write: String,
    pub bytes_per_write: String,
    pub process_cpu_ns: u64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// GET of a million keys over one connection.
    pub(crate) fn work() -> SocketWork {
        SocketWork {
            protocol: Protocol::Resp,
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            password: None,
            threads: 1,
            connections: 1,
            users: 0,
            sharing: Sharing::Blocking,
            pipeline: 1,
            arrival: Arrival::Closed,
            mix: vec![Operation { weight: 1.0, words: vec!["GET".to_owned(), "{key}".to_owned()] }],
            keys: Keys {
                prefix: "key:".to_owned(),
                count: 1_000_000,
                distribution: Distribution::Uniform,
            },
            value_bytes: Sizes::Fixed(80),
            setup: Vec::new(),
            cql: None,
            http: None,
        }
    }

    /// GET of `/hello` over one connection that is kept.
    pub(crate) fn http_work() -> SocketWork {
        SocketWork {
            protocol: Protocol::Http,
            mix: vec![Operation {
                weight: 1.0,
                words: vec!["GET".to_owned(), "/hello".to_owned()],
            }],
            http: Some(Box::default()),
            ..work()
        }
    }

    /// Reads rows of a million keys over one connection.
    pub(crate) fn cql_work() -> SocketWork {
        SocketWork {
            protocol: Protocol::Cql,
            mix: vec![Operation { weight: 1.0, words: vec![CqlWork::SELECT.to_owned()] }],
            cql: Some(Box::default()),
            ..work()
        }
    }

    pub(crate) fn spec() -> LoadSpec {
        LoadSpec {
            work: Work::Socket(work()),
            beside: BTreeMap::new(),
            warmup: Warmup::Fixed { ms: 0 },
            duration_ms: 100,
            operations_max: None,
            window_ms: 10,
            cpus: Vec::new(),
            seed: 1,
        }
    }

    #[test]
    fn a_spec_survives_its_text() {
        let text = serde_json::to_string(&spec()).unwrap();
        assert_eq!(serde_json::from_str::<LoadSpec>(&text).unwrap(), spec());
        assert!(serde_json::from_str::<LoadSpec>(&text.replace("seed", "sead")).is_err());
    }
}
