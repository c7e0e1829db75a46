//! Versions of keys, by which servers that all take writes agree on one value of each key: of two
//! values, the one with the greater version stays.
//!
//! Only a server with a number in such a group gives versions. A key without one has the version
//! [`Version::NONE`], which is less than every other. The version of a deleted key stays until it
//! is [forgotten](Version::NONE), so that an older value that arrives later does not bring the key
//! back.
//!
//! Memory: an entry of the same kind of table as the keys for each key, about 64 bytes for a name of
//! 16 bytes.

use smallvec::SmallVec;

use crate::DATABASES;
use crate::deferred_free::{DeferredFree, Garbage};
use crate::entry::{Entry, EntryRef};
use crate::key::Key;
use crate::table::Table;
use crate::types::{Malformed, Text};
use crate::varint::take_u64;

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

    pub(crate) fn bytes(self) -> [u8; VERSION_BYTES] {
        let mut bytes = [0; VERSION_BYTES];
        let (time, server) = bytes.split_at_mut(size_of::<u64>());
        time.copy_from_slice(&self.time.to_le_bytes());
        server.copy_from_slice(&self.server.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(input: &mut &[u8]) -> Result<Version, Malformed> {
        let time = take_u64(input)?;
        let (server, rest) = input.split_first_chunk().ok_or(Malformed)?;
        *input = rest;
        Ok(Version { time, server: u16::from_le_bytes(*server) })
    }
}

/// The bytes of a version: time u64, server u16.
const VERSION_BYTES: usize = 10;

/// The version of a value, and what the server that wrote it had of other servers by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Given {
    pub version: Version,
    /// The version of another server that the writer had for this key before its own latest writes
    /// of it, if it had one. The author of a later version that has not seen this one wrote its
    /// value without having it: the two are in [conflict](Given::is_concurrent).
    pub seen: Version,
}

impl Given {
    /// Of a key that no other server had written.
    pub fn first(version: Version) -> Given {
        Given { version, seen: Version::NONE }
    }

    /// The version of the next value of the key, which another or the same server writes.
    #[must_use]
    pub fn next(self, version: Version) -> Given {
        let seen = if self.version.server == version.server { self.seen } else { self.version };
        Given { version, seen }
    }

    /// Whether two servers wrote these values of one key, neither having that of the other.
    pub fn is_concurrent(self, other: Given) -> bool {
        let [older, newer] =
            if self.version < other.version { [self, other] } else { [other, self] };
        let are_written = older.version != Version::NONE;
        let differ = older.version.server != newer.version.server;
        are_written && differ && newer.seen < older.version
    }

    pub(crate) fn bytes(self) -> SmallVec<[u8; 2 * VERSION_BYTES]> {
        let mut bytes = SmallVec::from_slice(&self.version.bytes());
        if self.seen != Version::NONE {
            bytes.extend_from_slice(&self.seen.bytes());
        }
        bytes
    }
}

/// The versions of the keys of one database of a stripe: entries with the name of the key, and the
/// version as their value.
#[derive(Debug, Default)]
struct Names {
    table: Table,
    /// Heap bytes of the entries.
    entry_bytes: usize,
}

impl Names {
    fn heap_bytes(&self) -> usize {
        self.table.table_bytes() + self.entry_bytes
    }
}

/// The versions of the keys of one stripe.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    dbs: [Names; DATABASES],
}

fn given_of(entry: EntryRef<'_>) -> Given {
    let stored = Text::from(entry.string_value().expect("an entry of a version is a string"));
    let mut bytes = &*stored;
    let mut take = || Version::decode(&mut bytes).unwrap_or(Version::NONE);
    Given { version: take(), seen: take() }
}

impl Versions {
    pub(crate) fn heap_bytes(&self) -> usize {
        self.dbs.iter().map(Names::heap_bytes).sum()
    }

    #[inline]
    pub(crate) fn get(&self, db: u8, key: Key<'_>) -> Given {
        let table = &self.dbs[usize::from(db)].table;
        let found = table.find_key(key.hash, key.bytes);
        found.map_or_else(Given::default, |place| given_of(table.entry(place)))
    }

    /// Sets the version of a key. Returns the number of bytes by which the versions grew.
    pub(crate) fn set(
        &mut self,
        db: u8,
        key: Key<'_>,
        given: Given,
        hash_of: &dyn Fn(&[u8]) -> u64,
    ) -> isize {
        let names = &mut self.dbs[usize::from(db)];
        let before = names.heap_bytes().cast_signed();
        let bytes = given.bytes();
        match names.table.find_key(key.hash, key.bytes) {
            None if given.version == Version::NONE => {}
            Some(place) if given.version == Version::NONE => {
                let entry = names.table.remove(key.hash, place, hash_of);
                names.entry_bytes -= entry.as_ref().allocation_bytes();
            }
            Some(place) => {
                names.entry_bytes -= names.table.entry(place).allocation_bytes();
                names.table.update(place, |entry| entry.set_string(&bytes, None));
                names.entry_bytes += names.table.entry(place).allocation_bytes();
            }
            None => {
                let entry = Entry::string(key.bytes, &bytes, None);
                names.entry_bytes += entry.as_ref().allocation_bytes();
                names.table.insert(key.hash, entry, hash_of);
            }
        }
        names.heap_bytes().cast_signed() - before
    }

    /// Removes the versions of one database, or all, in constant time: they are freed with `trash`.
    /// Returns their heap bytes.
    pub(crate) fn clear(&mut self, db: Option<u8>, trash: &mut DeferredFree) -> usize {
        let mut bytes = 0;
        for (number, names) in (0..).zip(&mut self.dbs) {
            if db.is_none_or(|db| db == number) && names.table.table_bytes() > 0 {
                bytes += names.heap_bytes();
                trash.push(Garbage::Table(std::mem::take(names).table));
            }
        }
        bytes
    }

    /// Exchanges two databases.
    pub(crate) fn swap(&mut self, dbs: [u8; 2]) {
        let [first, second] = dbs.map(usize::from);
        self.dbs.swap(first, second);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &[u8], Given)> {
        (0..).zip(&self.dbs).flat_map(|(db, names)| {
            names.table.iter().map(move |entry| (db, entry.key(), given_of(entry)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

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

    fn hash_of(name: &[u8]) -> u64 {
        u64::from(name[0]) | (name.len() as u64) << 44
    }

    /// Sets a version, and checks the account of bytes.
    fn set(versions: &mut Versions, db: u8, name: &[u8], given: Given) {
        let before = versions.heap_bytes().cast_signed();
        let key = Key { bytes: name, hash: hash_of(name) };
        let grown_bytes = versions.set(db, key, given, &hash_of);
        assert_eq!(versions.heap_bytes().cast_signed(), before + grown_bytes);
        assert_eq!(get(versions, db, name), given);
    }

    fn get(versions: &Versions, db: u8, name: &[u8]) -> Given {
        versions.get(db, Key { bytes: name, hash: hash_of(name) })
    }

    #[test]
    fn the_account_of_bytes_follows_the_versions() {
        let mut versions = Versions::default();
        let first = |time| Given::first(version(time));
        set(&mut versions, 0, b"one", first(1));
        let one = versions.heap_bytes();
        let after = Given { version: version(9), seen: Version { time: 4, server: 2 } };
        set(&mut versions, 0, b"one", after);
        set(&mut versions, 0, b"one", first(u64::MAX));
        assert_eq!(versions.heap_bytes(), one);
        set(&mut versions, 3, b"a longer name than the first", after);
        assert!(versions.heap_bytes() > 2 * one);
        versions.swap([3, 0]);
        assert_eq!(get(&versions, 3, b"one"), first(u64::MAX));
        assert_eq!(get(&versions, 0, b"one"), Given::default());
        let (before, mut trash) = (versions.heap_bytes(), DeferredFree::default());
        assert_eq!(versions.clear(Some(0), &mut trash), before - one);
        assert_eq!((versions.heap_bytes(), versions.iter().count()), (one, 1));
        assert!(!trash.is_empty());
        set(&mut versions, 3, b"none", Given::default());
        set(&mut versions, 3, b"one", Given::default());
        assert_eq!(versions.iter().count(), 0);
        let bytes = versions.heap_bytes();
        assert_eq!((versions.clear(None, &mut trash), versions.heap_bytes()), (bytes, 0));
    }

    /// Two servers write a key; `is_concurrent` of what they have must be that of what they knew.
    #[test]
    fn values_are_concurrent_if_neither_writer_had_the_other() {
        let at = |time, server| Version { time, server };
        let one = Given::first(at(10, 1));
        let unseen = Given::first(at(15, 2));
        let after = one.next(at(20, 2));
        for (first, second, is_concurrent) in [
            (one, unseen, true),
            (one, after, false),
            (one, Given::default(), false),
            (one, one, false),
            // Later writes of one server: it still had nothing of the other before them.
            (one.next(at(30, 1)), unseen, true),
            (one, one.next(at(11, 1)), false),
            (after.next(at(25, 2)), one, false),
            // The other one wrote again, without what follows its first value.
            (after, one.next(at(18, 1)), true),
            (after.next(at(30, 1)), after, false),
            (after.next(at(30, 3)), one, false),
            (after.next(at(30, 3)), after.next(at(40, 2)), true),
        ] {
            assert_eq!(first.is_concurrent(second), is_concurrent, "{first:?} {second:?}");
            assert_eq!(second.is_concurrent(first), is_concurrent);
        }
    }

    #[test]
    fn many_versions_are_found_and_take_about_as_much_memory_as_documented() {
        const COUNT: u64 = 10_000;
        let name = |number: u64| format!("user:{number:011}");
        let mut versions = Versions::default();
        let hash_of = |name: &[u8]| foldhash::quality::FixedState::with_seed(1).hash_one(name);
        for number in 0..COUNT {
            let name = name(number);
            let key = Key { bytes: name.as_bytes(), hash: hash_of(name.as_bytes()) };
            versions.set(0, key, Given::first(version(number + 1)), &hash_of);
        }
        for number in 0..COUNT {
            let name = name(number);
            let key = Key { bytes: name.as_bytes(), hash: hash_of(name.as_bytes()) };
            assert_eq!(versions.get(0, key).version, version(number + 1));
        }
        let bytes = versions.heap_bytes() as u64 / COUNT;
        assert!((48..80).contains(&bytes), "{bytes} bytes for each key");
    }
}
