//! Memory that a request may use.

use std::fmt;

use crate::config::{MemoryTrackers, Settings};

/// Changes up to this size are accepted without checking the memory: together with the input of one
/// reactor turn they are small compared with any sensible limit.
pub(crate) const UNCHECKED_BYTES_MAX: usize = 64 * 1024;

/// Copies of a change's bytes in memory until it is written: in the data, in the record, in the
/// log's lane, and in a freed buffer, since the allocator returns large ones after a second.
pub(crate) const COPIES: u64 = 4;

/// Memory available to writes, from `maxmemory`, `memory-limit` and the untracked memory of the
/// process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// `maxmemory`; `u64::MAX`: no limit.
    pub(crate) maxmemory_bytes: u64,
    /// Limit above which keys are evicted or writes rejected: the lower of the two. A large change
    /// may reach it together with its copies on their way to the log.
    pub(crate) used_bytes_max: u64,
}

impl Room {
    pub(crate) fn new(settings: &Settings, memory: &MemoryTrackers) -> Room {
        let maxmemory_bytes = match settings.maxmemory_bytes {
            0 => u64::MAX,
            bytes => bytes,
        };
        let memory_limit = memory.server.limit_bytes().unwrap_or(u64::MAX);
        Room { maxmemory_bytes, used_bytes_max: maxmemory_bytes.min(memory_limit) }
    }

    /// Whether a request of this many bytes may run at the given memory usage.
    #[inline]
    pub(crate) fn has(&self, used_bytes: u64, request_bytes: usize) -> bool {
        used_bytes <= self.used_bytes_max
            && (request_bytes <= UNCHECKED_BYTES_MAX || used_bytes <= self.target(request_bytes))
    }

    /// Maximum memory usage before a request of this many bytes runs.
    pub(crate) fn target(&self, request_bytes: usize) -> u64 {
        if request_bytes <= UNCHECKED_BYTES_MAX {
            return self.used_bytes_max;
        }
        self.used_bytes_max.saturating_sub(COPIES * request_bytes as u64)
    }
}

/// Memory is full, and no more keys can be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom {
    /// The option that sets the limit.
    pub(crate) option: &'static str,
}

impl fmt::Display for NoRoom {
    // Source: Redis 7.2 `server.c`, `shared.oomerr`
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "command not allowed when used memory > '{}'.", self.option)
    }
}
