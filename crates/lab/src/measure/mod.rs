//! What the system knows about processes, the network and the machine.

use serde::{Deserialize, Serialize};

/// What one thread has used between two looks at it.
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
    /// Processor time.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }
}
