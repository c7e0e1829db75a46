//! System information about processes, the network and the machine.

mod machine;
mod network;
mod noise;
mod process;
pub mod threads;

use serde::{Deserialize, Serialize};

pub use machine::{Build, Machine, build, set_build};
pub use network::{added, tcp_counters};
pub use noise::NoiseSample;
pub use process::{process_tree, resident_bytes};

/// Resources that one thread used between two samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadUse {
    pub name: String,
    pub user_ns: u64,
    pub system_ns: u64,
    /// Ready to run, but not running.
    pub wait_ns: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

impl ThreadUse {
    /// Total processor time.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }
}

/// Disturbances in the measured phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Share of all processor time that the hypervisor gave to others, 0 to 1.
    pub steal: f64,
    /// Cores used by other programs: excludes the lab, its generator, the subject, and kernel
    /// threads.
    pub foreign_cores: f64,
    /// The program that used most of it; empty if none used much.
    pub foreign_name: String,
    /// Largest relative change of a core's clock frequency.
    #[serde(default)]
    pub frequency_change: f64,
    /// Time for which the measurement was delayed until the machine was quiet.
    pub waited_ms: u64,
}

/// Formats the first 8 bytes of a digest as 16 hexadecimal digits: sufficient to distinguish
/// experiments and machines.
pub(crate) fn short_hash(digest: &[u8]) -> String {
    use std::fmt::Write;
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}
