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

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &Db)> {
        let others = self.others.iter().flat_map(|others| others.iter());
        (0..).zip(std::iter::once(&self.first).chain(others))
    }
}

impl Index<u8> for Databases {
    type Output = Db;

    #[inline]
    fn index(&self, db: u8) -> &Db {
        match db {
            0 => &self.first,
            _ => self.others.as_ref().map_or(&EMPTY, |others| &others[usize::from(db) - 1]),
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

    #[test]
    fn a_database_that_nobody_used_is_empty_and_takes_no_memory() {
        let mut databases = Databases::default();
        assert_eq!(databases[15].table.len(), 0);
        assert!(databases.others.is_none());
        databases[15].expires = 1;
        assert_eq!(databases[15].expires, 1);
        assert_eq!(databases[14].expires, 0);
        assert_eq!(databases.iter().count(), DATABASES);
    }
}
