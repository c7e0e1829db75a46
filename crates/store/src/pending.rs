//! The writes of one stripe that may not be durable yet: what a read must wait for.
//!
//! A read waits for exactly the newest such write of the keys that it reads. The list is bounded:
//! when it is full of writes that are not durable yet, the oldest is folded into `floor`, and every
//! read of the stripe waits for `floor` (possibly longer than necessary, never too short).

#![expect(clippy::cast_possible_truncation, reason = "a tag is some bits of a hash")]

/// Writes tracked individually. A write leaves the list when it is durable; 4,096 stripes full of
/// writes that are not durable track 32,768 of them between two syncs.
const WRITES_MAX: usize = 8;
const _: () = assert!(WRITES_MAX <= u8::MAX as usize, "`len` counts them");
const _: () = assert!(WRITES_MAX.is_power_of_two(), "`next` wraps at a multiple");

/// The head and the tags fill the stripe's second cache line, the positions the third.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Pending {
    newest: u64,
    floor: u64,
    tags: [u32; WRITES_MAX],
    len: u8,
    /// The slot to overwrite when all are in use: the one written longest ago.
    next: u8,
    lsns: [u64; WRITES_MAX],
}

/// Hash of a key in its stripe. Two keys with the same tag wait for each other, once in 2^32 pairs.
fn tag(db: u8, hash: u64) -> u32 {
    (hash as u32).rotate_left(7) ^ u32::from(db)
}

impl Pending {
    /// Records a write of this key that ends at `lsn` in the log; `durable` is the log's durable
    /// position as known to the caller.
    #[inline]
    pub(crate) fn note(&mut self, db: u8, hash: u64, lsn: u64, durable: u64) {
        debug_assert!(lsn > durable, "a new record is not durable yet");
        debug_assert!(lsn >= self.newest, "the stripe's lock orders its records");
        if self.newest <= durable {
            self.len = 0;
        }
        self.newest = self.newest.max(lsn);
        let tag = tag(db, hash);
        let place = match self.find(tag) {
            Some(place) => place,
            None => self.free_place(durable),
        };
        self.tags[place] = tag;
        self.lsns[place] = lsn;
        debug_assert!(self.gate(db, hash) >= lsn, "a read of the key waits for this write");
    }

    #[inline]
    fn find(&self, tag: u32) -> Option<usize> {
        self.tags[..usize::from(self.len)].iter().position(|known| *known == tag)
    }

    fn free_place(&mut self, durable: u64) -> usize {
        if usize::from(self.len) < WRITES_MAX {
            self.len += 1;
            return usize::from(self.len) - 1;
        }
        let place = usize::from(self.next) % WRITES_MAX;
        self.next = self.next.wrapping_add(1);
        if self.lsns[place] > durable {
            self.floor = self.floor.max(self.lsns[place]);
        }
        place
    }

    /// Records a change of all keys of the stripe (FLUSHALL).
    pub(crate) fn note_all(&mut self, lsn: u64) {
        self.len = 0;
        self.floor = self.floor.max(lsn);
        self.newest = self.newest.max(lsn);
        debug_assert!(self.gate_all() >= self.floor, "a read of the stripe waits for all");
    }

    /// The position that must be durable before a value of this key may be shown; 0: none.
    #[inline]
    pub(crate) fn gate(&self, db: u8, hash: u64) -> u64 {
        if self.newest == 0 {
            return 0;
        }
        let own = self.find(tag(db, hash)).map_or(0, |place| self.lsns[place]);
        own.max(self.floor)
    }

    /// The same for a command that reads the whole stripe.
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
    fn durable_entries_are_removed() {
        let mut pending = Pending::default();
        for n in 0..1000u64 {
            pending.note(0, n, n + 1, n);
        }
        assert_eq!(pending.len, 1);
        assert_eq!(pending.floor, 0);
        pending.note_all(5000);
        assert_eq!(pending.gate(3, 17), 5000);
    }
}
