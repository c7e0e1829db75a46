//! How each part of a pipeline is doing: what is printed once a second and sent to a monitor.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::message::Account;
use crate::meter::Reading;

/// Percentiles in nanoseconds, weighted by tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub p9999_ns: u64,
    pub max_ns: u64,
}

impl Latency {
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: histogram.max(),
        }
    }
}

/// How a run ended, by the collector's account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub generated: u64,
    /// Different tasks among the collected ones.
    pub collected: u64,
    pub lost: u64,
    /// Why the run is not a success; empty if it is one.
    pub faults: Vec<String>,
}

/// A generator. Counts are tasks, from the start of the run, unless they say frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorStatus {
    pub stream: u64,
    pub epoch: u32,
    /// Ids below this one have been given out, earlier lives included.
    pub next_id: u64,
    pub offered: u64,
    pub backlog: u64,
    pub shed: u64,
    pub late_ticks: u64,
    pub latest_tick_ns: u64,
    pub generated: u64,
    pub collected: u64,
    pub in_flight: u64,
    pub in_flight_frames: usize,
    pub resent_frames: u64,
    pub expired_frames: u64,
    pub nacked_frames: u64,
    pub repeated_acks: u64,
    pub executors: usize,
    pub credits: u64,
    /// From when a task was due to its acknowledgement.
    pub latency: Latency,
    /// From when a batch was sent to its acknowledgement; each batch counts once.
    pub service: Latency,
    pub meter: Reading,
    /// At the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// One executor process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorStatus {
    pub name: String,
    pub kernel: String,
    pub reconnects: u64,
    pub damaged_frames: u64,
    pub failed_frames: u64,
    pub meter: Reading,
}

/// A collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorStatus {
    pub executors: usize,
    /// Tasks of the account that were read from the log at the start.
    pub recovered: u64,
    /// All its streams together.
    pub account: Account,
    pub meter: Reading,
}

/// One part of the pipeline, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Status {
    Generator(GeneratorStatus),
    Executor(ExecutorStatus),
    Collector(CollectorStatus),
}

/// Identifies a part within its process: the stage, and the executor's name.
pub type PartKey = (usize, String);

impl Status {
    pub fn key(&self) -> PartKey {
        match self {
            Self::Generator(_) => (0, String::new()),
            Self::Executor(status) => (1, status.name.clone()),
            Self::Collector(_) => (2, String::new()),
        }
    }

    pub fn meter(&self) -> &Reading {
        match self {
            Self::Generator(status) => &status.meter,
            Self::Executor(status) => &status.meter,
            Self::Collector(status) => &status.meter,
        }
    }
}

/// How far a part has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum PartState {
    Running,
    /// The status is the final one.
    Finished,
    /// The status is the newest one before the failure.
    Failed {
        reason: String,
    },
    /// The connection ended without a final report. Set by the monitor.
    Disconnected,
}

/// The message to a monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    #[serde(flatten)]
    pub state: PartState,
    pub status: Status,
}
