//! Log position that a reply waits for.

pub(crate) use binlog::Lsn;
use store::Locked;

/// The log position that must be durable before a reply may leave the server.
///
/// Either [`Gate::OPEN`] (nothing to wait for), a position ([`Gate::at`]), or [`Gate::NEVER`]: the
/// log refused the record, so the reply must not be sent. Since `OPEN < at(lsn) < NEVER`, the
/// maximum of several gates waits for all of them. A single word, because every reply carries one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gate(u64);

impl Gate {
    pub(crate) const OPEN: Gate = Gate(0);
    pub(crate) const NEVER: Gate = Gate(u64::MAX);

    /// Opens when the log is durable up to `lsn`.
    #[inline]
    pub(crate) fn at(lsn: Lsn) -> Gate {
        Gate(lsn.0)
    }

    /// Gate of a value that was read: the newest write to its key that may not be durable.
    #[inline]
    pub(crate) fn of(locked: &Locked<'_>, db: u8, hash: u64) -> Gate {
        Gate(locked.gate(db, hash))
    }

    /// Gate of a read that covers all locked stripes.
    pub(crate) fn of_all(locked: &Locked<'_>) -> Gate {
        Gate(locked.gate_all())
    }

    /// Converts the store's position: 0 is open, `u64::MAX` is never.
    pub(crate) fn from_store(position: u64) -> Gate {
        Gate(position)
    }

    /// Returns the position for the store and the reactor's output queue: 0 is open, `u64::MAX` is
    /// never.
    #[inline]
    pub(crate) fn position(self) -> u64 {
        self.0
    }

    /// Position to request from the log. `None`: nothing to wait for, or a position that is never
    /// reached.
    pub(crate) fn lsn(self) -> Option<Lsn> {
        (self != Gate::OPEN && self != Gate::NEVER).then_some(Lsn(self.0))
    }

    /// Whether a reply may be sent when the log is durable up to `durable`.
    #[inline]
    pub(crate) fn is_open_at(self, durable: Lsn) -> bool {
        self.0 <= durable.0
    }

    /// Returns this gate, or [`Gate::OPEN`] if it is already open: later comparisons need no
    /// position.
    #[inline]
    pub(crate) fn unless_open_at(self, durable: Lsn) -> Gate {
        if self.is_open_at(durable) { Gate::OPEN } else { self }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Gate::OPEN => formatter.write_str("Open"),
            Gate::NEVER => formatter.write_str("Never"),
            Gate(position) => write!(formatter, "At({position})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_of_several_things_is_their_maximum() {
        let (early, late) = (Gate::at(Lsn(7)), Gate::at(Lsn(8)));
        assert_eq!(Gate::OPEN.max(early), early);
        assert_eq!(early.max(late), late);
        assert_eq!(late.max(Gate::NEVER), Gate::NEVER);
        assert!(late.is_open_at(Lsn(8)));
        assert!(!late.is_open_at(Lsn(7)));
        assert!(!Gate::NEVER.is_open_at(Lsn(u64::MAX - 1)));
        assert_eq!(format!("{:?} {early:?} {:?}", Gate::OPEN, Gate::NEVER), "Open At(7) Never");
    }
}
