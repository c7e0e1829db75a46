//! Heaps of times at which something in a stripe expires.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::time::UnixMs;

use crate::DATABASES;

/// Minimum length at which a heap is rebuilt when more than half of it is outdated.
const STALE_EXPIRIES_MIN: usize = 64;

/// When a key, or the first element of a collection, expires, in heap order. Outdated if it has
/// another time now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expiry {
    pub(crate) at: UnixMs,
    /// The key's hash with the [tag of the database](crate::databases::Databases::tag) in the bits
    /// that name the stripe.
    pub(crate) tagged_hash: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Expiries(BinaryHeap<Reverse<Expiry>>);

impl Expiries {
    /// Bytes of one item.
    pub(crate) const ITEM_BYTES: usize = size_of::<Reverse<Expiry>>();

    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.capacity() * Self::ITEM_BYTES
    }

    /// Whether more than half of the items are outdated, if `live` are not.
    pub(crate) fn is_stale(&self, live: usize) -> bool {
        self.0.len() > STALE_EXPIRIES_MIN && self.0.len() > 2 * live
    }

    /// Keeps one of equal items if it is current.
    pub(crate) fn rebuild(&mut self, is_current: impl Fn(Expiry) -> bool) {
        let mut items = std::mem::take(&mut self.0).into_sorted_vec();
        items.dedup();
        items.retain(|Reverse(expiry)| is_current(*expiry));
        items.shrink_to(2 * items.len());
        self.0 = BinaryHeap::from(items);
    }

    pub(crate) fn push(&mut self, expiry: Expiry) {
        self.0.push(Reverse(expiry));
    }

    /// The earliest item, which may be outdated.
    pub(crate) fn first(&self) -> Option<Expiry> {
        self.0.peek().map(|Reverse(expiry)| *expiry)
    }

    pub(crate) fn pop(&mut self) -> Option<Expiry> {
        self.0.pop().map(|Reverse(expiry)| expiry)
    }

    /// All items, those near the beginning early ones.
    pub(crate) fn as_slice(&self) -> &[Reverse<Expiry>] {
        self.0.as_slice()
    }

    /// Whether the earliest item is not after `now`. One comparison.
    pub(crate) fn has_due(&self, now: UnixMs) -> bool {
        self.first().is_some_and(|next| next.at <= now)
    }
}

/// Collections of a stripe with elements that expire, fields or points, each with the time of the
/// first one.
#[derive(Debug, Default)]
pub(crate) struct ElementExpiries {
    pub(crate) first: Expiries,
    /// Number of these collections, by the tag of their database.
    pub(crate) keys: [u32; DATABASES],
}

impl ElementExpiries {
    pub(crate) fn live(&self) -> usize {
        self.keys.iter().map(|count| *count as usize).sum()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        crate::types::allocation_bytes(size_of::<ElementExpiries>()) + self.first.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_keeps_one_of_each_current_item() {
        let mut expiries = Expiries::default();
        let item = |at: u64, tagged_hash| Expiry { at: UnixMs(at), tagged_hash };
        for round in 0..100 {
            expiries.push(item(9, 1));
            expiries.push(item(5, 2));
            expiries.push(item(round % 4, 3));
        }
        assert!(expiries.is_stale(3));
        expiries.rebuild(|expiry| expiry.at != UnixMs(1));
        let found: Vec<_> = std::iter::from_fn(|| expiries.pop()).collect();
        assert_eq!(found, [item(0, 3), item(2, 3), item(3, 3), item(5, 2), item(9, 1)]);
        assert!(expiries.heap_bytes() <= 10 * Expiries::ITEM_BYTES);
    }
}
