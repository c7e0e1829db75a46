//! What is read from a row for a column.

use serde::Deserialize;

/// A figure of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    OperationsPerSecond,
    /// Of the subject.
    CpuNsPerOperation,
    /// Of the subject; 100 is one core.
    CpuPercent,
    /// How long so many operations take at the rate of the row.
    DurationMs(u64),
    LatencyMsP50,
    LatencyUsP99,
    /// Reactors that used more than 5 % of a core.
    BusyReactors,
    /// The busiest reactor over the mean of all.
    Imbalance,
    RecordsPerWrite,
    BytesPerWrite,
    OperationsPerSync,
}
