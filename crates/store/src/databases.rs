//! The sixteen databases of one stripe.
//!
//! Nearly all clients use only the first. It is in the stripe's first cache line, next to the lock;
//! the others are one more step away and take memory only once one of them is used.

use std::ops::{Index, IndexMut};
use std::sync::LazyLock;

use crate::DATABASES;
use crate::table::Table;

/// One database: its keys, and what is known about their expiries.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Db {
    pub(crate) table: Table,
    pub(crate) expires: u32,
    /// The number that the expiries of its keys carry, XOR the number of the database: not 0 once
    /// databases were swapped.
    moved: u8,
    /// Whether an element of a collection expires.
    pub(crate) has_times: bool,
    /// Sum of the expiry times, wrapping: for the average time to live.
    pub(crate) expiry_sum: u64,
}

static EMPTY: LazyLock<Db> = LazyLock::new(Db::default);

#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Databases {
    first: Db,
    others: Option<Box<[Db; DATABASES - 1]>>,
}

/// The stripe's lock and account, which precede its databases.
const LOCK_AND_BYTES: usize = 16;
const _: () = assert!(LOCK_AND_BYTES + size_of::<Databases>() == 64, "one cache line");

impl Databases {
    pub(crate) fn keys(&self) -> usize {
        self.iter().map(|(_, db)| db.table.len()).sum()
    }

    /// Exchanges the contents of two databases.
    pub(crate) fn swap(&mut self, first: u8, second: u8) {
        let keys = self[first].table.len() + self[second].table.len();
        if first == second || keys == 0 {
            return;
        }
        let moved = std::mem::take(&mut self[first]);
        let other = std::mem::replace(&mut self[second], moved);
        self[first] = other;
        let shift = first ^ second;
        self[first].moved ^= shift;
        self[second].moved ^= shift;
    }

    /// The number that expiries of keys of a database carry: it stays when databases are swapped.
    pub(crate) fn tag(&self, db: u8) -> u8 {
        db ^ self[db].moved
    }

    /// The database whose expiries carry a number.
    pub(crate) fn tagged(&self, tag: u8) -> Option<u8> {
        if self.tag(tag) == tag {
            return Some(tag);
        }
        self.iter().find(|(db, contents)| db ^ contents.moved == tag).map(|(db, _)| db)
    }

    /// Removes the contents of a database.
    pub(crate) fn take(&mut self, db: u8) -> Db {
        let moved = self[db].moved;
        std::mem::replace(&mut self[db], Db { moved, ..Db::default() })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &Db)> {
        let others = self.others.iter().flat_map(|others| others.iter());
        (0..).zip(std::iter::once(&self.first).chain(others))
    }
}

/// Any number may be read: a command can have partitions among its keys, which are in none of the
/// databases ([`PARTITIONS_DB`](crate::PARTITIONS_DB)).
impl Index<u8> for Databases {
    type Output = Db;

    #[inline]
    fn index(&self, db: u8) -> &Db {
        match usize::from(db).checked_sub(1) {
            None => &self.first,
            Some(at) => self.others.as_ref().and_then(|others| others.get(at)).unwrap_or(&EMPTY),
        }
    }
}

impl IndexMut<u8> for Databases {
    #[inline]
    fn index_mut(&mut self, db: u8) -> &mut Db {
        match db {
            0 => &mut self.first,
            _ => &mut self.others.get_or_insert_default()[usize::from(db) - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PARTITIONS_DB;
    use crate::entry::Entry;

    #[test]
    fn a_database_that_nobody_used_is_empty_and_takes_no_memory() {
        let mut databases = Databases::default();
        assert_eq!(databases[15].table.len(), 0);
        assert!(databases.others.is_none());
        databases[15].expires = 1;
        assert_eq!(databases[15].expires, 1);
        assert_eq!(databases[14].expires, 0);
        assert_eq!(databases[PARTITIONS_DB].expires, 0);
        assert_eq!(databases.iter().count(), DATABASES);
    }

    #[test]
    fn swapped_databases_keep_their_tags() {
        let mut databases = Databases::default();
        databases.swap(0, 9);
        assert!(databases.others.is_none(), "there is nothing to swap");
        let mut model: [u8; DATABASES] = std::array::from_fn(|db| u8::try_from(db).unwrap());
        for db in 0..16 {
            let entry = Entry::string(b"k", b"", None);
            databases[db].table.insert(7, entry, |_| 7);
            databases[db].expires = u32::from(db);
        }
        for (first, second) in [(0, 3), (3, 4), (4, 0), (5, 5), (3, 15), (15, 0)] {
            databases.swap(first, second);
            model.swap(usize::from(first), usize::from(second));
            for (db, tag) in (0..).zip(model) {
                assert_eq!(databases[db].expires, u32::from(tag));
                assert_eq!(databases.tag(db), tag);
                assert_eq!(databases.tagged(tag), Some(db));
            }
        }
        assert_eq!(databases.take(0).table.len(), 1);
        assert_eq!((databases[0].table.len(), databases.tag(0)), (0, model[0]));
    }
}
