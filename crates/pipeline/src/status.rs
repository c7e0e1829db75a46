//! Status of each part of a pipeline, printed once a second and sent to a monitor.

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

/// Outcome of a run, according to the collector's account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub generated: u64,
    /// Distinct collected tasks.
    pub collected: u64,
    pub lost: u64,
    /// Reasons why the run failed; empty on success.
    pub faults: Vec<String>,
}

/// Status of a generator. Counts are tasks since the start of the run, unless the name contains
/// `frames`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorStatus {
    pub stream: u64,
    pub epoch: u32,
    /// All ids below this one have been assigned, including earlier incarnations.
    pub next_id: u64,
    pub offered: u64,
    pub backlog: u64,
    pub shed: u64,
    pub late_ticks: u64,
    pub latest_tick_ns: u64,
    /// Number of lines of the input, estimated until all are read; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
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
    /// Time from the due time of a task to its acknowledgement.
    pub latency: Latency,
    /// Time from sending a batch to its acknowledgement; each batch counts once.
    pub service: Latency,
    pub meter: Reading,
    /// Set at the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// Status of one executor process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorStatus {
    pub name: String,
    pub kernel: String,
    pub reconnects: u64,
    pub damaged_frames: u64,
    pub failed_frames: u64,
    pub meter: Reading,
}

/// Status of a collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorStatus {
    pub executors: usize,
    /// Tasks of the account that were recovered from the log at startup.
    pub recovered: u64,
    /// Sum over all streams.
    pub account: Account,
    pub meter: Reading,
}

/// Status of one part of the pipeline.
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

/// State of a part.
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
