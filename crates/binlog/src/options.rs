//! Options that the operator sets for the log.

use std::time::Duration;

use thiserror::Error;

use crate::record::RECORD_HEADER_BYTES;
use crate::segment::SEGMENT_HEADER_BYTES;

/// When written groups are synced without a request.
///
/// Whatever the policy, a [`Log::request_sync`](crate::Log::request_sync) starts a synced group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Every group is synced. No timer: while one sync runs, the next group gathers.
    Always,
    /// Synced when this long has passed since the last sync and there is something new.
    Interval(Duration),
    /// Written within [`WRITE_TICK_NS`], synced by the kernel in its own time. While a follower reads
    /// only durable records, synced every [`FOLLOWED_SYNC_NS`].
    Never,
}

/// Longest time that bytes wait in a lane without a request to write them.
pub(crate) const WRITE_TICK_NS: u64 = 100_000_000;

/// Time between two syncs that only followers need: it delays replicas, and each sync costs the
/// disk.
pub(crate) const FOLLOWED_SYNC_NS: u64 = WRITE_TICK_NS;

/// Limits of one log. All are checked by [`Log::open`](crate::Log::open).
#[derive(Debug, Clone)]
pub struct Options {
    /// Size of a segment file. A record that is larger gets a larger segment of its own.
    pub segment_bytes: u64,
    /// A lane that holds this many bytes is full: its owner must stop reading from its sockets. The
    /// writer is woken when a lane is half full, and each write costs some 20 us of CPU time: with
    /// one lane, half of this limit shares that cost.
    pub lane_bytes_max: usize,
    /// Approximate size of all lanes together, so that a group stays inside the caches: a lane
    /// gets at most `group_bytes_max / lanes`, though never less than [`LANE_BYTES_MIN`].
    pub group_bytes_max: usize,
    /// May be changed later by [`Log::set_sync_policy`](crate::Log::set_sync_policy).
    pub sync: SyncPolicy,
    /// Truncated segments that are kept to be written again; others are removed. Between two
    /// truncations a fast log without syncs fills five, which are then free at once: with a smaller
    /// limit, the disk writes two bytes, one of them zero, for each byte of the others.
    pub recycled_segments_max: usize,
    /// A follower that lags by more than this when it keeps a segment from being truncated is
    /// disconnected: it gets an error and has to start again from a snapshot. So it cannot fill the
    /// disk.
    pub follower_lag_bytes_max: u64,
    /// Random number of a new log; an existing log keeps its own. It enters every checksum, so
    /// that no client can craft a value that looks like a record. 0 makes checksums predictable.
    pub salt: u64,
}

/// The owner of a smaller lane would have to stop after a few records.
pub(crate) const LANE_BYTES_MIN: usize = 4096;
/// Unused files together take no more than this of the disk: the default number of default segments.
const BLANK_BYTES_MAX: u64 = 512 << 20;
const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;
pub(crate) const RECYCLED_SEGMENTS_DEFAULT: usize = 8;
/// Most lanes that one writer serves: it locks each once per group.
pub(crate) const LANES_MAX: usize = 1024;

const _: () = assert!(BLANK_BYTES_MAX == SEGMENT_BYTES_DEFAULT * RECYCLED_SEGMENTS_DEFAULT as u64);
const _: () = assert!(SEGMENT_BYTES_DEFAULT.is_multiple_of(SEGMENT_HEADER_BYTES as u64));
const _: () = assert!(LANE_BYTES_MIN > RECORD_HEADER_BYTES, "an empty lane takes a record");

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            lane_bytes_max: 256 << 10,
            group_bytes_max: 1 << 20,
            sync: SyncPolicy::Always,
            recycled_segments_max: RECYCLED_SEGMENTS_DEFAULT,
            follower_lag_bytes_max: 1 << 30,
            salt: 0,
        }
    }
}

/// Options that no log can work with.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OptionsError {
    #[error("segment_bytes is {0}: it must be a multiple of 4096 and at least 8192")]
    SegmentBytes(u64),
    #[error("a log needs 1 to {LANES_MAX} lanes, not {0}")]
    Lanes(usize),
    #[error("lane_bytes_max and group_bytes_max must be at least {LANE_BYTES_MIN}")]
    LaneBytes,
    #[error("a sync interval of zero is written as `always`")]
    Interval,
}

impl Options {
    pub(crate) fn check(&self, lanes: usize) -> Result<(), OptionsError> {
        let header = SEGMENT_HEADER_BYTES as u64;
        if self.segment_bytes < 2 * header || !self.segment_bytes.is_multiple_of(header) {
            return Err(OptionsError::SegmentBytes(self.segment_bytes));
        }
        if lanes == 0 || lanes > LANES_MAX {
            return Err(OptionsError::Lanes(lanes));
        }
        if self.lane_bytes_max < LANE_BYTES_MIN || self.group_bytes_max < LANE_BYTES_MIN {
            return Err(OptionsError::LaneBytes);
        }
        if self.sync == SyncPolicy::Interval(Duration::ZERO) {
            return Err(OptionsError::Interval);
        }
        Ok(())
    }

    /// Files ready to become segments: bounded in number and in bytes, but at least one.
    pub(crate) fn blanks_max(&self) -> usize {
        let fitting = (BLANK_BYTES_MAX / self.segment_bytes).max(1);
        self.recycled_segments_max.min(usize::try_from(fitting).unwrap_or(usize::MAX))
    }

    /// Bytes one lane may hold before its owner is stopped.
    pub(crate) fn lane_cap(&self, lanes: usize) -> usize {
        (self.group_bytes_max / lanes).max(LANE_BYTES_MIN).min(self.lane_bytes_max)
    }
}
