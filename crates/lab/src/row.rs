//! One measurement: a line of JSON in `rows.jsonl`, the basis of all evaluations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::load::{LoadReport, LoadSpec, Work};
use crate::measure::{Noise, ThreadUse};

/// The counter of the growth of the resident memory.
pub const GROWN_BYTES: &str = "resident_bytes";

/// One repeat of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The experiment's name, as in its definition: `s1.t6`.
    pub table: String,
    /// Index of the cell in the grid, and of the repeat, both from 0.
    pub cell: usize,
    pub repeat: usize,
    /// The parameters set by the grid, by name: `server.reactors`, `load.connections`.
    pub parameters: BTreeMap<String, serde_json::Value>,
    pub subject: SubjectRow,
    pub load: LoadSpec,
    pub report: LoadReport,
    /// Hash of the definition: rows of other definitions are never resumed.
    pub definition: String,
    /// Commit of the lab, with `-dirty` if the tree had changes; empty if unknown.
    pub commit: String,
    /// Hash of the machine's description, which is stored next to the rows in `machine.json`.
    pub machine: String,
    pub started_unix_ms: u64,
    pub warmup_ms: u64,
    /// The subject's threads during the measured phase.
    pub threads: Vec<ThreadUse>,
    pub resident_bytes: u64,
    /// Per operation of all loads together, from the subject's own counters: `syscalls.read`,
    /// `lock_waits`, `lock_wait_ns`.
    pub counters: BTreeMap<String, f64>,
    /// Changes of the kernel's TCP counters: `ListenOverflows`, `TCPRetransSegs`.
    pub tcp: BTreeMap<String, u64>,
    pub noise: Noise,
    pub verdict: Verdict,
    /// Reasons for the verdict; empty if it is `ok`.
    pub reasons: Vec<String>,
}

/// The measured subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubjectRow {
    /// `myriad`, `redis-server`, ...; `log` for appends in the generator's own process.
    pub kind: String,
    pub version: String,
    pub command_line: Vec<String>,
    /// Cores that it was pinned to; empty: not pinned.
    pub cpus: Vec<usize>,
}

/// Validity of a row. Only `ok` rows are used for headline figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Ok,
    /// The generator was the bottleneck, not the server.
    ClientBound,
    /// The rate varied too much within the row or between repeats.
    Noisy,
    /// Other programs, the hypervisor or the clock frequency disturbed the measurement.
    EnvChanged,
    /// No reply for a long time.
    Stalled,
    /// Requests without a reply, or with an incorrect one.
    Lossy,
    /// No result: the subject or the generator failed.
    Failed,
    /// No result: the subject is not installed.
    Skipped,
}

impl Verdict {
    /// The name in rows and on pages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientBound => "client-bound",
            Self::Noisy => "noisy",
            Self::EnvChanged => "env-changed",
            Self::Stalled => "stalled",
            Self::Lossy => "lossy",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl Row {
    /// Processor time of the subject, in nanoseconds per operation of all loads together.
    pub fn cpu_ns_per_operation(&self) -> f64 {
        per(self.threads.iter().map(ThreadUse::cpu_ns).sum(), self.report.operations_of_all())
    }

    pub fn operations_per_second(&self) -> f64 {
        per(self.report.operations, self.report.duration_ns) * 1e9
    }

    /// Returns the measurement from the perspective of the additional load with this name, without
    /// the subject's resource usage, which both loads share.
    pub fn side_load(&self, name: &str) -> Option<Row> {
        let mut row = self.clone();
        row.load.work = Work::Socket(row.load.side_loads.remove(name)?);
        row.report = row.report.side_loads.remove(name)?;
        row.load.side_loads.clear();
        row.threads.clear();
        row.counters.clear();
        row.resident_bytes = 0;
        Some(row)
    }
}

#[allow(clippy::cast_precision_loss)]
fn per(amount: u64, count: u64) -> f64 {
    amount as f64 / count.max(1) as f64
}
