//! Interface of the load generator, in JSON: one [`LoadSpec`] on standard input, one [`LoadEvent`]
//! per line on standard output.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::measure::ThreadUse;

/// The complete specification of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    pub work: Work,
    /// Additional concurrent loads, by name: only over sockets, by separate threads on the same
    /// cores, for the whole run. Phases and windows are those of the first load.
    #[serde(rename = "beside", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub side_loads: BTreeMap<String, SocketWork>,
    pub warmup: Warmup,
    /// Length of the measured phase.
    pub duration_ms: u64,
    /// The measured phase ends early after this many operations.
    pub operations_max: Option<u64>,
    /// Operations are counted per window of this length.
    pub window_ms: u64,
    /// Cores that the generator may use; empty: all.
    pub cpus: Vec<usize>,
    /// The same seed produces the same keys, sizes and arrivals.
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

/// Start of the measured phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warmup {
    /// After this time.
    Fixed { ms: u64 },
    /// When the rate has become steady, but no later than after `max_ms`.
    Steady { max_ms: u64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketWork {
    pub protocol: Protocol,
    pub address: SocketAddr,
    /// Sent as AUTH first, if set.
    pub password: Option<String>,
    /// Generator threads, each with a reactor.
    pub threads: usize,
    pub connections: usize,
    /// Callers that share the connections; 0: one per connection.
    pub users: usize,
    pub sharing: Sharing,
    /// Requests that a user sends at once; it waits for all their replies.
    pub pipeline: usize,
    pub arrival: Arrival,
    /// Commands with their weights.
    pub mix: Vec<Operation>,
    pub keys: Keys,
    /// Length of `{value}`.
    pub value_bytes: Sizes,
    /// Sent once on each connection before the load.
    pub setup: Vec<Vec<String>>,
    /// Required for [`Protocol::Cql`], invalid otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cql: Option<Box<CqlWork>>,
    /// Required for [`Protocol::Http`], invalid otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Box<HttpWork>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Resp,
    /// Inline commands of RESP: words separated by blanks, which they may not contain.
    RespInline,
    /// The text protocol of memcached: only GET and SET, case-insensitive.
    Memcached,
    /// Cassandra's native protocol, version 4. An operation is one word: a statement, which is
    /// prepared once on each connection. Placeholders in braces are bound.
    Cql,
    /// An operation is a method, a target, and optionally a body: `["PUT", "/kv/{key}",
    /// "{value}"]`.
    Http,
}

/// Options of a load over HTTP.
///
/// A response counts when it is complete and its status is 2xx. Everything else is counted as an
/// error by its cause, and never as an operation: `refused`, `reset`, `closed`, `cut short`, `timed
/// out`, `status 503`. A request that is pending when the load ends is neither. A connection
/// refused after the connect call has returned, as from another machine, is a `reset`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpWork {
    pub connection: HttpConnection,
    pub version: HttpVersion,
    pub host: String,
    /// Additional header lines: name and value.
    pub headers: Vec<(String, String)>,
    /// Expected length of each body; any other is an error (`length`). `None`: not checked.
    pub body_bytes: Option<u64>,
    /// From sending a request, or starting its connection, to its complete response.
    pub timeout_ms: u64,
    /// Close without waiting for a response: a request counts when it is sent.
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

/// Lifetime of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HttpConnection {
    KeepAlive,
    /// For one request. The server closes first; the caller continues when it observes that.
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpVersion {
    /// A request is a line; a response is everything until the end of the connection.
    #[serde(rename = "0.9")]
    V0_9,
    #[serde(rename = "1.0")]
    V1_0,
    #[serde(rename = "1.1")]
    V1_1,
}

/// Options of a load over CQL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CqlWork {
    /// User for the login, if the server requires one.
    pub user: String,
    pub consistency: CqlConsistency,
    /// Statements that are executed once, in order, before the load opens connections.
    pub schema: Vec<String>,
}

impl CqlWork {
    /// Writes a row of the default schema.
    pub const INSERT: &str = "INSERT INTO lab.rows (key, value) VALUES ({key}, {value})";
    /// Reads a row of the default schema.
    pub const SELECT: &str = "SELECT value FROM lab.rows WHERE key = {key}";
}

impl Default for CqlWork {
    /// One table in one keyspace with one replica.
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

/// Required number of replica responses. A single server satisfies all levels.
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

/// Formats the name used by Cassandra: `LOCAL_ONE`.
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
    /// Requests of all users are in flight at the same time.
    Multiplexed,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// A user sends its next request after the last reply.
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

/// A command as its words. In a word, the placeholders `{key}`, `{value}`, `{number}` (uniform,
/// below the number of keys) and `{operation}` (a counter) are replaced.
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
    /// Keys consist of the prefix and a number below this, with 12 digits.
    pub count: u64,
    pub distribution: Distribution,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    Uniform,
    /// Few keys are popular: the k-th most popular has a weight of `1 / k^exponent`.
    Zipfian {
        exponent: f64,
    },
    /// Zipfian, counted back from the last written key. Operations with `{value}` write the next
    /// key, and wrap around after the last.
    Latest {
        exponent: f64,
    },
    /// Gaussian around the middle, with the first and the last key three deviations away.
    Gaussian,
    /// One after the other, shared by all connections.
    Sequential,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    Fixed(usize),
    /// Uniform, including both ends.
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

/// Implementation of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogMode {
    /// Lanes and one writer, as in the server.
    Lanes,
    /// One lock, held while each record is written (source document 4: Pika).
    Mutex,
    /// The first thread writes for all waiting ones, which sleep on a condition variable.
    LeaderCondvar,
    /// The same, with one futex per thread.
    LeaderFutex,
}

/// What a thread waits for before its next append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitFor {
    /// Its position in the order.
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
    /// Synced periodically.
    Interval { ms: u64 },
}

/// Events of the generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum LoadEvent {
    /// All connections are open and the load begins.
    Connected,
    /// The warm-up has ended: the measured phase begins.
    Measuring {
        warmup_ms: u64,
    },
    /// A window of the measured phase has ended.
    Window {
        operations: u64,
    },
    /// The measured phase has ended; replies in flight are still awaited.
    Measured,
    Done(Box<LoadReport>),
    /// A termination signal was received: the results until then. A failure follows.
    Interrupted(Box<LoadReport>),
    /// There is no result, for this reason.
    Failed {
        reason: String,
    },
}

/// Results of the measured phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    pub duration_ns: u64,
    pub operations: u64,
    /// Error replies by their first word.
    pub errors: BTreeMap<String, u64>,
    /// Requests without a reply, over the whole run.
    pub lost: u64,
    /// HTTP requests in flight when the load ended: neither completed nor lost. Many of them are
    /// connection attempts that the kernel retries after seconds.
    #[serde(default)]
    pub unfinished: u64,
    /// Requests that were due in the measured phase but could not be sent before its end, because
    /// no connection was free.
    pub unsent: u64,
    /// CQL reads without a row.
    #[serde(default)]
    pub rows_missing: u64,
    /// How often a CQL statement that the server had evicted was prepared again. Its requests were
    /// repeated and are not errors.
    #[serde(default)]
    pub prepared_again: u64,
    /// Connections closed by the server.
    pub broken_connections: u64,
    /// Connections that waited 5 seconds for a reply.
    pub stalled_connections: u64,
    /// Operations per window.
    pub windows: Vec<u64>,
    /// From the due time of a request, as a histogram in nanoseconds (HDR V2, base64).
    pub latency_corrected: String,
    /// From the time of sending: excludes requests that a stalled server prevented from being sent.
    pub latency_raw: String,
    /// Delay of sending (99th percentile) that the generator itself caused.
    pub lag_ns_p99: u64,
    /// The generator's threads, including those of the loads in `beside`.
    pub threads: Vec<ThreadUse>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub log: Option<LogReport>,
    /// Results of the loads in `beside` in the same phase, by name; without threads.
    #[serde(rename = "beside", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub side_loads: BTreeMap<String, LoadReport>,
}

impl LoadReport {
    /// Operations of this load and of those in `beside`: the work of the subject.
    pub fn operations_of_all(&self) -> u64 {
        self.operations + self.side_loads.values().map(Self::operations_of_all).sum::<u64>()
    }
}

/// Activity of a log in the measured phase.
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

    /// GET of `/hello` over one kept connection.
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

    /// Reads of rows of a million keys over one connection.
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
            side_loads: BTreeMap::new(),
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
