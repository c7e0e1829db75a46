//! JSON messages, used where frequency is low: handshakes and the account.

use serde::{Deserialize, Serialize};

use crate::task::Plan;

/// Maximum length of a part's name in bytes. Names are displayed and logged, and a monitor stores
/// them.
pub const NAME_BYTES_MAX: usize = 128;

/// First message from a connecting peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Hello {
    /// Sent to a collector.
    Generator {
        stream: u64,
        /// The epoch assigned before the connection was lost; `None` at the start.
        epoch: Option<u32>,
        plan: Plan,
    },
    /// Sent to a generator, and then to the collector.
    Executor { stream: Option<u64>, name: String },
    /// Sent to a monitor. Reports with the same `instance` belong to one process, on any
    /// connection.
    Reporter { stage: String, name: String, instance: u64 },
}

impl Hello {
    /// Checks that this peer can be served.
    pub fn check(&self) -> Result<(), String> {
        let name = match self {
            Self::Generator { .. } => return Ok(()),
            Self::Executor { name, .. } | Self::Reporter { name, .. } => name,
        };
        if name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "name of {} bytes exceeds the limit of {NAME_BYTES_MAX}",
                name.len()
            ));
        }
        Ok(())
    }
}

/// Reply of a collector to a generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorWelcome {
    pub epoch: u32,
    /// Ranges of collected ids as (start, end), durable if the collector keeps a log.
    pub collected: Vec<(u64, u64)>,
}

/// Reply of a generator to an executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorWelcome {
    pub stream: u64,
    pub epoch: u32,
    pub plan: Plan,
}

/// Reply of a collector to an executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorWelcome {
    /// Batches of results that may be in flight before the first credit arrives.
    pub credits: u32,
}

/// The collector's record of a stream when it ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Accepted tasks, including repeats.
    pub collected: u64,
    /// Distinct ids among them. Less than `collected` if some tasks were accepted twice.
    pub distinct: u64,
    /// Duplicate tasks, which were dropped.
    pub duplicate: u64,
    /// Tasks of an earlier epoch, which were dropped.
    pub stale: u64,
    /// Result frames that were damaged or did not match their tasks.
    pub damaged_frames: u64,
    /// First ranges of missing ids below the largest collected one.
    pub missing: Vec<(u64, u64)>,
    /// Sum of a hash of each record: equal for equal results.
    pub digest: u64,
    pub verified_right: u64,
    pub verified_wrong: u64,
    /// Sampled records by their position in the window, in twentieths.
    #[serde(default)]
    pub sample_positions: Vec<u64>,
    /// First ids with wrong results.
    pub wrong_ids: Vec<u64>,
    /// Collected items whose command failed.
    #[serde(default)]
    pub failed: u64,
    /// First ids of them.
    #[serde(default)]
    pub failed_ids: Vec<u64>,
}

/// Maximum number of missing ranges, and of ids of wrong results, in an account.
pub const NAMED_MAX: usize = 64;
