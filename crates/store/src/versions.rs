//! Versions of keys, by which servers that all take writes agree on one value of each key: of two
//! values, the one with the greater version stays.
//!
//! Only a server with a number in such a group gives versions. A key without one has the version
//! [`Version::NONE`], which is less than every other. The version of a deleted key stays until it
//! is [forgotten](Version::NONE), so that an older value that arrives later does not bring the key
//! back.
//!
//! Memory: [`ITEM_BYTES`] and the bytes of the name for each key, about 64 for a name of 16 bytes.

use std::collections::BTreeMap;

use crate::types::{Malformed, allocation_bytes};
use crate::varint::{put_u64, take_u64};

/// When, and by which server, the present value of a key was written. Versions are in total order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Version {
    /// Microseconds since the Unix epoch, by a clock that never gives a time twice, and passes
    /// every time that it has received.
    pub time: u64,
    /// The server that wrote the value; no server has the number 0.
    pub server: u16,
}

impl Version {
    /// Less than every version. Set as that of a key, it removes the key's version.
    pub const NONE: Version = Version { time: 0, server: 0 };

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_u64(out, self.time);
        out.extend_from_slice(&self.server.to_le_bytes());
    }

    pub(crate) fn decode(input: &mut &[u8]) -> Result<Version, Malformed> {
        let time = take_u64(input)?;
        let (server, rest) = input.split_first_chunk().ok_or(Malformed)?;
        *input = rest;
        Ok(Version { time, server: u16::from_le_bytes(*server) })
    }
}

/// A slot of the tree: name and version, in nodes that are two thirds full.
const ITEM_BYTES: usize = 48;

/// The versions of the keys of one stripe. A tree: its order depends on no random seed, and no
/// choice of names makes it slow.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    dbs: BTreeMap<u8, BTreeMap<Box<[u8]>, Version>>,
    heap_bytes: usize,
}

fn item_bytes(name: &[u8]) -> usize {
    ITEM_BYTES + allocation_bytes(name.len())
}

impl Versions {
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    pub(crate) fn get(&self, db: u8, name: &[u8]) -> Version {
        self.dbs.get(&db).and_then(|keys| keys.get(name)).copied().unwrap_or(Version::NONE)
    }

    pub(crate) fn set(&mut self, db: u8, name: &[u8], version: Version) {
        if version == Version::NONE {
            let removed = self.dbs.get_mut(&db).and_then(|keys| keys.remove(name));
            self.heap_bytes -= removed.map_or(0, |_| item_bytes(name));
            return;
        }
        let keys = self.dbs.entry(db).or_default();
        if let Some(stored) = keys.get_mut(name) {
            *stored = version;
            return;
        }
        keys.insert(name.into(), version);
        self.heap_bytes += item_bytes(name);
    }

    /// Removes the versions of one database, or all.
    pub(crate) fn clear(&mut self, db: Option<u8>) {
        self.dbs.retain(|number, _| db.is_some_and(|db| db != *number));
        self.heap_bytes = self.iter().map(|(_, name, _)| item_bytes(name)).sum();
    }

    /// Exchanges two databases.
    pub(crate) fn swap(&mut self, [first, second]: [u8; 2]) {
        let moved = self.dbs.remove(&first);
        if let Some(other) = self.dbs.remove(&second) {
            self.dbs.insert(first, other);
        }
        if let Some(moved) = moved {
            self.dbs.insert(second, moved);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &[u8], Version)> {
        self.dbs
            .iter()
            .flat_map(|(db, keys)| keys.iter().map(|(name, version)| (*db, &**name, *version)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(time: u64) -> Version {
        Version { time, server: 1 }
    }

    #[test]
    fn versions_are_ordered_by_time_then_by_server() {
        let sorted = [
            Version::NONE,
            Version { time: 0, server: 1 },
            Version { time: 0, server: 2 },
            Version { time: 1, server: 0 },
        ];
        assert!(sorted.is_sorted());
        assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn the_account_of_bytes_follows_the_versions() {
        let mut versions = Versions::default();
        versions.set(0, b"one", version(1));
        let one = versions.heap_bytes();
        versions.set(0, b"one", version(2));
        assert_eq!(versions.heap_bytes(), one);
        versions.set(3, b"a longer name than the first", version(3));
        assert!(versions.heap_bytes() > 2 * one);
        versions.swap([3, 0]);
        assert_eq!(versions.get(3, b"one"), version(2));
        assert_eq!(versions.get(0, b"one"), Version::NONE);
        versions.clear(Some(0));
        assert_eq!((versions.heap_bytes(), versions.iter().count()), (one, 1));
        versions.set(3, b"none", Version::NONE);
        versions.set(3, b"one", Version::NONE);
        assert_eq!((versions.heap_bytes(), versions.iter().count()), (0, 0));
    }
}
