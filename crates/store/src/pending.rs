//! The writes of one stripe that may not be durable yet: what a read must wait for.
//!
//! A read waits for exactly the newest such write of the keys it looked at. The list is bounded:
//! when it is full of writes that are still not durable, the oldest is folded into `floor`, which
//! every read of the stripe then waits for (it waits too long, never too short).

#![expect(clippy::cast_possible_truncation, reason = "a tag is some bits of a hash")]

/// Writes remembered one by one. A write leaves the list when it is durable; at 4,096 stripes this
/// many are full only with 65,536 and more writes between two syncs.
const WRITES_MAX: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
struct Write {
    lsn: u64,
    tag: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    writes: Vec<Write>,
    floor: u64,
    newest: u64,
}

/// Two keys of one stripe with the same tag wait for each other, once in 2^32 pairs.
fn tag(db: u8, hash: u64) -> u32 {
    (hash as u32).rotate_left(7) ^ u32::from(db)
}

impl Pending {
    /// A write of this key went to the log and ends at `lsn`; `durable` is the position known now.
    pub(crate) fn note(&mut self, db: u8, hash: u64, lsn: u64, durable: u64) {
        if self.newest <= durable {
            self.writes.clear();
        } else if self.writes.len() >= WRITES_MAX {
            self.writes.retain(|write| write.lsn > durable);
        }
        self.newest = self.newest.max(lsn);
        let tag = tag(db, hash);
        if let Some(write) = self.writes.iter_mut().find(|write| write.tag == tag) {
            write.lsn = lsn;
            return;
        }
        if self.writes.len() >= WRITES_MAX {
            let oldest = self.writes.swap_remove(self.oldest());
            self.floor = self.floor.max(oldest.lsn);
        }
        self.writes.push(Write { lsn, tag });
    }

    fn oldest(&self) -> usize {
        let lsns = self.writes.iter().enumerate();
        lsns.min_by_key(|(_, write)| write.lsn).map_or(0, |(index, _)| index)
    }

    /// All keys of the stripe changed at once (FLUSHALL).
    pub(crate) fn note_all(&mut self, lsn: u64) {
        self.writes.clear();
        self.floor = self.floor.max(lsn);
        self.newest = self.newest.max(lsn);
    }

    /// Position that must be durable before a value of this key may be shown; 0: now.
    #[inline]
    pub(crate) fn gate(&self, db: u8, hash: u64) -> u64 {
        if self.newest == 0 {
            return 0;
        }
        let tag = tag(db, hash);
        let own = self.writes.iter().find(|write| write.tag == tag).map_or(0, |write| write.lsn);
        own.max(self.floor)
    }

    /// The same for a command that looks at the whole stripe.
    pub(crate) fn gate_all(&self) -> u64 {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_waits_for_its_own_key_only() {
        let mut pending = Pending::default();
        pending.note(0, 1, 100, 0);
        pending.note(0, 2, 200, 0);
        pending.note(0, 1, 300, 0);
        assert_eq!(pending.gate(0, 1), 300);
        assert_eq!(pending.gate(0, 2), 200);
        assert_eq!(pending.gate(0, 3), 0);
        assert_eq!(pending.gate(1, 1), 0);
        assert_eq!(pending.gate_all(), 300);
    }

    #[test]
    fn a_full_list_waits_too_long_but_never_too_short() {
        let mut pending = Pending::default();
        let writes = WRITES_MAX as u64 + 5;
        for n in 1..=writes {
            pending.note(0, n, n * 10, 0);
        }
        for n in 1..=writes {
            assert!(pending.gate(0, n) >= n * 10);
        }
        assert_eq!(pending.gate(0, 999), 50);
    }

    #[test]
    fn what_is_durable_is_forgotten() {
        let mut pending = Pending::default();
        for n in 0..1000u64 {
            pending.note(0, n, n + 1, n);
        }
        assert_eq!(pending.writes.len(), 1);
        assert_eq!(pending.floor, 0);
        pending.note_all(5000);
        assert_eq!(pending.gate(3, 17), 5000);
    }
}
