//! A cell, and the rule which of two cells is kept.

use crate::types::allocation_bytes;

/// Microseconds since the epoch, as clients give them; the highest wins.
pub type Timestamp = i64;

/// Seconds since the epoch.
pub type Seconds = u32;

/// When something was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The deletion covers what was written at this time or before.
    pub timestamp: Timestamp,
    /// When the server received the deletion, which it remembers for some time after that.
    pub at: Seconds,
}

impl Stamp {
    /// Nothing was deleted.
    pub const NONE: Stamp = Stamp { timestamp: Timestamp::MIN, at: 0 };

    /// The later of two; of the same timestamp, the one received later.
    pub(super) fn merge(&mut self, other: Stamp) {
        *self = (*self).max(other);
    }

    pub(super) fn covers(self, timestamp: Timestamp) -> bool {
        timestamp <= self.timestamp && self != Stamp::NONE
    }

    /// Whether the grace period of the deletion has ended.
    pub(super) fn is_old(self, gc_before: Seconds) -> bool {
        self != Stamp::NONE && self.at < gc_before
    }
}

/// The expiry of a cell or row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    pub at: Seconds,
    /// The requested TTL, as `ttl()` returns it.
    pub ttl: Seconds,
}

/// The value of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellValue<'a> {
    Live { bytes: &'a [u8], expiry: Option<Expiry> },
    Deleted { at: Seconds },
}

/// A stored cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) timestamp: Timestamp,
    /// Of a deleted cell: when the server received the deletion.
    pub(super) at: Seconds,
    pub(super) ttl: Seconds,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Lasting,
    Expiring,
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Lasting(Box<[u8]>),
    Expiring(Box<[u8]>),
    Deleted,
}

impl Cell {
    pub(super) fn new(timestamp: Timestamp, value: CellValue<'_>) -> Cell {
        match value {
            CellValue::Live { bytes, expiry: None } => {
                Cell { timestamp, at: 0, ttl: 0, state: State::Lasting(bytes.into()) }
            }
            CellValue::Live { bytes, expiry: Some(Expiry { at, ttl }) } => {
                Cell { timestamp, at, ttl, state: State::Expiring(bytes.into()) }
            }
            CellValue::Deleted { at } => Cell { timestamp, at, ttl: 0, state: State::Deleted },
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.state {
            State::Lasting(bytes) | State::Expiring(bytes) => bytes,
            State::Deleted => &[],
        }
    }

    pub(super) fn mark(&self) -> Mark {
        match self.state {
            State::Lasting(_) => Mark::Lasting,
            State::Expiring(_) => Mark::Expiring,
            State::Deleted => Mark::Deleted,
        }
    }

    /// Whether this cell wins over another: the later one wins; of the same timestamp, a deletion
    /// before a cell that expires before one that does not, then the one with the later deletion or
    /// expiry, then the larger value.
    // Source: Cassandra 5.0, org.apache.cassandra.db.rows.Cells, resolveRegular
    pub(super) fn wins_over(&self, other: &Cell) -> bool {
        let rank = |cell: &Cell| (cell.timestamp, cell.mark(), cell.at);
        (rank(self), self.bytes(), self.ttl) > (rank(other), other.bytes(), other.ttl)
    }

    pub(super) fn is_live(&self, now: Seconds) -> bool {
        match self.mark() {
            Mark::Lasting => true,
            Mark::Expiring => self.at > now,
            Mark::Deleted => false,
        }
    }

    pub(super) fn value(&self) -> CellValue<'_> {
        match &self.state {
            State::Lasting(bytes) => CellValue::Live { bytes, expiry: None },
            State::Expiring(bytes) => {
                let expiry = Some(Expiry { at: self.at, ttl: self.ttl });
                CellValue::Live { bytes, expiry }
            }
            State::Deleted => CellValue::Deleted { at: self.at },
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        allocation_bytes(self.bytes().len())
    }

    /// Whether a purge would drop it, or its value.
    pub(super) fn is_garbage(&self, now: Seconds, gc_before: Seconds) -> bool {
        match self.mark() {
            Mark::Lasting => false,
            Mark::Expiring => self.at <= now,
            Mark::Deleted => self.at < gc_before,
        }
    }

    /// Whether it is kept by a purge; what has expired is turned into a deletion first.
    pub(super) fn survives(&mut self, now: Seconds, gc_before: Seconds) -> bool {
        if !self.is_live(now) {
            self.state = State::Deleted;
            self.ttl = 0;
        }
        self.mark() != Mark::Deleted || self.at >= gc_before
    }
}
