//! The hash slots of Redis Cluster, and which reactor is announced for each.

use std::ops::RangeInclusive;

use crc::{CRC_16_XMODEM, Crc, Table};

/// Slots of a cluster.
pub(in crate::commands) const SLOTS: usize = 16_384;

static CRC: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_XMODEM);

/// The slot of a key: that of its hash tag, if it has one.
// Source: Redis Cluster specification, "Key distribution model" and "Hash tags"
pub(in crate::commands) fn slot_of(key: &[u8]) -> usize {
    usize::from(CRC.checksum(tag(key).unwrap_or(key))) % SLOTS
}

/// The bytes between the first `{` and the next `}`, unless there are none.
fn tag(key: &[u8]) -> Option<&[u8]> {
    let rest = &key[memchr::memchr(b'{', key)? + 1..];
    let end = memchr::memchr(b'}', rest)?;
    (end > 0).then(|| &rest[..end])
}

/// A tag of slot 0.
pub(super) const FIRST_TAG: &str = "06S";

/// The first tag of a slot, of at most three digits and letters. Tries 16,384 on average.
pub(super) fn tag_of(slot: usize) -> String {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let tags = DIGITS
        .iter()
        .flat_map(|a| DIGITS.iter().flat_map(move |b| DIGITS.iter().map(move |c| [*a, *b, *c])));
    let found = tags.into_iter().find(|tag| slot_of(tag) == slot);
    let tag = found.expect("every slot has one, as a test shows");
    tag.map(char::from).iter().collect()
}

/// The slots for which a node is announced. All nodes have the same number of slots, or one more.
pub(super) fn slots_of(node: usize, nodes: usize) -> RangeInclusive<usize> {
    node * SLOTS / nodes..=(node + 1) * SLOTS / nodes - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // Source: Redis Cluster specification, appendix A
        assert_eq!(CRC.checksum(b"123456789"), 0x31C3);
        // Replies of Redis 7.0 to CLUSTER KEYSLOT.
        for (key, slot) in [
            (&b""[..], 0),
            (b"a", 15_495),
            (b"foo", 12_182),
            (b"a{b}", 3300),
            (b"{b}", 3300),
            (b"b", 3300),
            (b"{}b", 6680),
            (b"a{}{b}", 15_033),
            (b"a{{b}}", 6215),
            (b"a{b", 13_340),
            (b"}{b}", 3300),
            (b"\x00\xff", 7920),
        ] {
            assert_eq!(slot_of(key), slot, "{key:?}");
        }
    }

    #[test]
    fn every_slot_has_a_tag() {
        assert_eq!(slot_of(FIRST_TAG.as_bytes()), 0);
        for slot in 0..SLOTS {
            let tag = tag_of(slot);
            assert_eq!(slot_of(format!("x{{{tag}}}y").as_bytes()), slot, "{tag}");
        }
    }

    #[test]
    fn every_slot_belongs_to_one_node() {
        for nodes in [1, 2, 3, 4, 7, 64, 1000] {
            let all: Vec<usize> = (0..nodes).flat_map(|node| slots_of(node, nodes)).collect();
            assert_eq!(all, (0..SLOTS).collect::<Vec<_>>(), "{nodes}");
            let counts = (0..nodes).map(|node| slots_of(node, nodes).count());
            let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
            assert!(most - least <= 1, "{nodes}");
        }
    }
}
