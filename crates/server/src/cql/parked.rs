//! Replies that wait for the log, held apart from a connection's output so that later replies need
//! not wait.

use reactor::Level;

use crate::engine::gate::{Gate, Lsn};

/// The end of one reply in the bytes, and the log position that the reply waits for.
#[derive(Debug, Clone, Copy)]
struct Mark {
    end: usize,
    level: Level,
    gate: Gate,
}

impl Mark {
    /// `reached`: the local and the remote level.
    fn is_open(&self, (local, remote): (Lsn, Lsn)) -> bool {
        self.gate.is_open_at(match self.level {
            Level::Local => local,
            Level::Remote => remote,
        })
    }
}

/// Replies of one connection whose gates are closed, oldest first. Uses no heap memory when empty.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    bytes: Vec<u8>,
    marks: Vec<Mark>,
    gate_min: Gate,
    gate_max: Gate,
}

impl Parked {
    /// Adds a whole reply, which may be sent when a level has reached `gate`.
    pub(crate) fn push(&mut self, level: Level, gate: Gate, reply: &[u8]) {
        if self.marks.is_empty() {
            (self.gate_min, self.gate_max) = (gate, gate);
        }
        self.gate_min = self.gate_min.min(gate);
        self.gate_max = self.gate_max.max(gate);
        self.bytes.extend_from_slice(reply);
        self.marks.push(Mark { end: self.bytes.len(), level, gate });
    }

    pub(crate) fn len(&self) -> usize {
        self.marks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The highest gate that a reply waits for.
    pub(crate) fn gate_max(&self) -> Gate {
        if self.is_empty() { Gate::OPEN } else { self.gate_max }
    }

    /// Whether a reply may be sent when the local level is `durable`. The remote one is not higher.
    pub(crate) fn has_open(&self, durable: Lsn) -> bool {
        !self.is_empty() && self.gate_min.is_open_at(durable)
    }

    pub(crate) fn waits_for_remote(&self) -> bool {
        self.marks.iter().any(|mark| mark.level == Level::Remote)
    }

    /// Appends the replies whose gates are open to `out`, in the order in which they were added.
    /// O(replies), unless all or none are released.
    pub(crate) fn release(&mut self, reached: (Lsn, Lsn), out: &mut Vec<u8>) {
        if !self.has_open(reached.0) {
            return;
        }
        if self.marks.iter().all(|mark| mark.is_open(reached)) {
            out.extend_from_slice(&self.bytes);
            *self = Parked::default();
            return;
        }
        let mut stay = Parked::default();
        let before = out.len();
        let mut start = 0;
        for mark in &self.marks {
            let reply = &self.bytes[start..mark.end];
            if mark.is_open(reached) {
                out.extend_from_slice(reply);
            } else {
                stay.push(mark.level, mark.gate, reply);
            }
            start = mark.end;
        }
        let released = out.len() - before;
        assert_eq!(released + stay.bytes.len(), self.bytes.len(), "each reply leaves or stays");
        *self = stay;
    }

    /// Passes all replies to `take`, lowest gate first. Nothing is parked afterwards.
    pub(crate) fn take_by_gate(&mut self, mut take: impl FnMut(Level, Gate, &[u8])) {
        let Parked { bytes, marks, .. } = std::mem::take(self);
        let mut start = 0;
        let mut replies: Vec<(Mark, &[u8])> = Vec::with_capacity(marks.len());
        for mark in marks {
            replies.push((mark, &bytes[start..mark.end]));
            start = mark.end;
        }
        replies.sort_by_key(|(mark, _)| mark.gate);
        for (mark, reply) in replies {
            take(mark.level, mark.gate, reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(position: u64) -> Gate {
        Gate::at(Lsn(position))
    }

    #[test]
    fn open_replies_overtake_closed_ones() {
        let mut parked = Parked::default();
        parked.push(Level::Local, at(10), b"write");
        parked.push(Level::Local, at(3), b"read");
        parked.push(Level::Local, at(20), b"later");
        let mut out = Vec::new();
        parked.release((Lsn(2), Lsn(2)), &mut out);
        assert_eq!(out, b"");
        parked.release((Lsn(10), Lsn(10)), &mut out);
        assert_eq!(out, b"writeread");
        assert_eq!((parked.len(), parked.bytes(), parked.gate_max()), (1, 5, at(20)));
        parked.release((Lsn(20), Lsn(20)), &mut out);
        assert_eq!(out, b"writereadlater");
        assert!(parked.is_empty());
        assert_eq!(parked.gate_max(), Gate::OPEN);
    }

    #[test]
    fn remaining_replies_are_taken_in_gate_order() {
        let mut parked = Parked::default();
        for (gate, reply) in [(5, "b"), (9, "d"), (1, "a"), (5, "c")] {
            parked.push(Level::Local, at(gate), reply.as_bytes());
        }
        let mut taken = Vec::new();
        parked.take_by_gate(|_, gate, reply| taken.push((gate, reply.to_vec())));
        let expected = [(1, "a"), (5, "b"), (5, "c"), (9, "d")];
        assert_eq!(taken, expected.map(|(gate, reply)| (at(gate), reply.as_bytes().to_vec())));
        assert!(parked.is_empty());
    }

    #[test]
    fn a_reply_may_wait_for_the_remote_level() {
        let mut parked = Parked::default();
        parked.push(Level::Remote, at(5), b"far");
        parked.push(Level::Local, at(7), b"near");
        assert!(parked.waits_for_remote());
        let mut out = Vec::new();
        parked.release((Lsn(9), Lsn(4)), &mut out);
        assert_eq!(out, b"near");
        parked.release((Lsn(9), Lsn(5)), &mut out);
        assert_eq!(out, b"nearfar");
        assert!(!parked.waits_for_remote());
    }

    proptest! {
        /// Checks against a list that each durable position releases exactly the open replies, in
        /// order.
        #[test]
        fn releases_what_is_open(
            steps in prop::collection::vec((0_u64..20, 0_usize..5, 0_u64..25), 1..40),
        ) {
            let mut parked = Parked::default();
            let mut model: Vec<(u64, Vec<u8>)> = Vec::new();
            for (number, (gate, length, durable)) in steps.into_iter().enumerate() {
                let reply = vec![u8::try_from(number).unwrap(); length];
                parked.push(Level::Local, at(gate), &reply);
                model.push((gate, reply));
                let mut out = Vec::new();
                parked.release((Lsn(durable), Lsn(durable)), &mut out);
                let open = model.iter().filter(|(gate, _)| *gate <= durable);
                let expected: Vec<u8> = open.flat_map(|(_, reply)| reply.clone()).collect();
                prop_assert_eq!(out, expected);
                model.retain(|(gate, _)| *gate > durable);
                prop_assert_eq!(parked.len(), model.len());
                let gate_max = model.iter().map(|(gate, _)| *gate).max().unwrap_or(0);
                prop_assert_eq!(parked.gate_max(), at(gate_max));
            }
        }
    }
}
