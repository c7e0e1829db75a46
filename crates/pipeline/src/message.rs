//! The messages that are rare enough to be JSON: handshakes and the account.

use serde::{Deserialize, Serialize};

use crate::task::Plan;

/// Bytes of a part's name. Names are shown and logged, and a monitor keeps them.
pub const NAME_BYTES_MAX: usize = 128;

/// The first message of whoever connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Hello {
    /// To a collector.
    Generator {
        stream: u64,
        /// The epoch that it was given before its connection broke; none at its start.
        epoch: Option<u32>,
        plan: Plan,
    },
    /// To a generator, and then to the collector.
    Executor { stream: Option<u64>, name: String },
    /// To a monitor. Reports with the same `instance` are of one process, on any connection.
    Reporter { stage: String, name: String, instance: u64 },
}

impl Hello {
    /// Whether a peer that sends it can be served.
    pub fn check(&self) -> Result<(), String> {
        let name = match self {
            Self::Generator { .. } => return Ok(()),
            Self::Executor { name, .. } | Self::Reporter { name, .. } => name,
        };
        if name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "a name of {} bytes: at most {NAME_BYTES_MAX} are possible",
                name.len()
            ));
        }
        Ok(())
    }
}

/// A collector's answer to a generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorWelcome {
    pub epoch: u32,
    /// Ids that are collected, and durable if the collector keeps a log: start and end of each
    /// range.
    pub collected: Vec<(u64, u64)>,
}

/// A generator's answer to an executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorWelcome {
    pub stream: u64,
    pub epoch: u32,
    pub plan: Plan,
}

/// A collector's answer to an executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorWelcome {
    /// Results that may be under way before the first credit comes.
    pub credits: u32,
}

/// What a collector has of a stream, at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Tasks accepted, each counted when it came.
    pub collected: u64,
    /// Different ids among them. Less than `collected`: some were accepted twice.
    pub distinct: u64,
    /// Tasks that came again and were dropped.
    pub duplicate: u64,
    /// Tasks of an earlier epoch that came late and were dropped.
    pub stale: u64,
    /// Results that came damaged, or were not of their tasks.
    pub damaged_frames: u64,
    /// Ids below the largest one that are not there: the first of them.
    pub missing: Vec<(u64, u64)>,
    /// Sum of a hash of each record: the same for the same results.
    pub digest: u64,
    pub verified_right: u64,
    pub verified_wrong: u64,
    /// Sampled records by where they came in their window, in twentieths of it.
    #[serde(default)]
    pub sample_positions: Vec<u64>,
    /// The first ids of wrong results.
    pub wrong_ids: Vec<u64>,
}

/// The largest number of ranges of missing ids, and of ids of wrong results, in an account.
pub const NAMED_MAX: usize = 64;
