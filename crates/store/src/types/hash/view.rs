//! A hash with a form of its own as commands see it: without the fields that have expired.

use base::time::UnixMs;

use super::timed::is_due;
use super::{Form, Hash};
use crate::types::Encoding;

/// The fields of a hash that have not expired at a time. Expired fields stay stored until they are
/// removed, but no reader sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HashView<'a> {
    hash: &'a Hash,
    now: UnixMs,
}

impl Hash {
    /// The fields that have not expired.
    #[inline]
    pub(crate) fn at(&self, now: UnixMs) -> HashView<'_> {
        HashView { hash: self, now }
    }
}

impl<'a> HashView<'a> {
    /// Number of fields. O(1), or O(expired fields).
    pub(crate) fn len(self) -> usize {
        match &self.hash.form {
            Form::Timed(timed) => timed.table.len() - timed.times.due(self.now),
            _ => self.hash.len(),
        }
    }

    /// See [`Hash::get`].
    #[inline]
    pub(crate) fn get(self, field: &[u8]) -> Option<&'a [u8]> {
        match &self.hash.form {
            Form::Timed(_) => self.live(field).map(|(value, _)| value),
            _ => self.hash.get(field),
        }
    }

    /// The value of a field, and when it expires.
    pub(crate) fn live(self, field: &[u8]) -> Option<(&'a [u8], Option<UnixMs>)> {
        self.hash.stored(field).filter(|(_, at)| !is_due(*at, self.now))
    }

    /// Whether a field expires, one that has expired but is stored included. O(1).
    pub(crate) fn is_timed(self) -> bool {
        matches!(self.hash.form, Form::Timed(_))
    }

    /// Whether one of the fields expires.
    pub(crate) fn has_times(self) -> bool {
        matches!(&self.hash.form, Form::Timed(timed) if !timed.times.are_all_due(self.now))
    }

    /// All fields with their values and the times at which they expire, in no order that means
    /// anything.
    pub(crate) fn iter_timed(
        self,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8], Option<UnixMs>)> + use<'a> {
        let now = self.now;
        self.hash.iter_timed().filter(move |(_, _, at)| !is_due(*at, now))
    }

    /// Indexes for [`HashView::get_index`]: of the fields that are stored, expired ones included.
    pub(crate) fn indexes(self) -> usize {
        self.hash.len()
    }

    /// See [`Hash::get_index`]; `None` also if the field at this index has expired.
    pub(crate) fn get_index(self, index: usize) -> Option<(&'a [u8], &'a [u8])> {
        match &self.hash.form {
            Form::Timed(timed) => timed.live_index(index, self.now),
            _ => self.hash.get_index(index),
        }
    }

    /// See [`Hash::scan`]; with the times at which fields expire.
    pub(crate) fn scan_timed(
        self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8], Option<UnixMs>),
    ) -> u64 {
        match &self.hash.form {
            Form::Timed(timed) => timed.table.scan_indexes(cursor, count, |index| {
                if let Some((field, value)) = timed.live_index(index, self.now) {
                    visit(field, value, timed.times.get(index));
                }
            }),
            _ => self.hash.scan(cursor, count, |field, value| visit(field, value, None)),
        }
    }

    pub(crate) fn encoding(self) -> Encoding {
        self.hash.encoding()
    }

    /// All fields that are stored, expired ones too.
    pub(crate) fn stored(self) -> &'a Hash {
        self.hash
    }

    /// The address of the hash, for DEBUG OBJECT.
    pub(crate) fn address(self) -> usize {
        std::ptr::from_ref(self.hash).addr()
    }
}

#[cfg(test)]
mod tests {
    use super::super::timed::TimedTable;
    use super::*;
    use crate::types::{Compact, Malformed, allocation_bytes};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Value and time of each field.
    type Oracle = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

    #[derive(Debug, Clone)]
    enum Step {
        Set(u8, u8),
        SetValue(u8, u8),
        Expire(u8, Option<u64>),
        Remove(u8),
    }

    fn compact() -> Compact {
        Compact { hash_entries_max: 3, ..Compact::default() }
    }

    fn step() -> impl Strategy<Value = Step> {
        let field = 0u8..7;
        prop_oneof![
            2 => (field.clone(), any::<u8>()).prop_map(|(f, v)| Step::Set(f, v)),
            2 => (field.clone(), any::<u8>()).prop_map(|(f, v)| Step::SetValue(f, v)),
            4 => (field.clone(), proptest::option::weighted(0.8, 0u64..9))
                .prop_map(|(f, at)| Step::Expire(f, at)),
            2 => field.prop_map(Step::Remove),
        ]
    }

    fn apply(hash: &mut Hash, oracle: &mut Oracle, step: &Step) {
        match *step {
            Step::Set(field, value) => {
                let old = oracle.insert(vec![field], (vec![value; 3], None));
                assert_eq!(hash.set(&[field], &[value; 3], &compact()), old.is_none());
            }
            Step::SetValue(field, value) => {
                let at = oracle.get(&[field][..]).and_then(|(_, at)| *at);
                let old = oracle.insert(vec![field], (vec![value], at));
                assert_eq!(hash.set_value(&[field], &[value], &compact()), old.is_none());
            }
            Step::Expire(field, at) => {
                let own = oracle.get_mut(&[field][..]);
                let is_there = hash.expire(&[field], at.map(UnixMs), &compact());
                assert_eq!(is_there, own.is_some());
                if let Some((_, own)) = own {
                    *own = at;
                }
            }
            Step::Remove(field) => {
                assert_eq!(hash.remove(&[field]), oracle.remove(&[field][..]).is_some());
            }
        }
    }

    type Row = (Vec<u8>, Vec<u8>, Option<u64>);

    fn row((field, value, at): (&[u8], &[u8], Option<UnixMs>)) -> Row {
        (field.to_vec(), value.to_vec(), at.map(|at| at.0))
    }

    fn sorted(rows: impl Iterator<Item = Row>) -> Vec<Row> {
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_unstable();
        rows
    }

    /// The hash at a time, against a filter over all rows.
    fn check(hash: &Hash, oracle: &Oracle, now: u64) {
        let view = hash.at(UnixMs(now));
        let is_live = |at: Option<u64>| at.is_none_or(|at| at > now);
        let rows = oracle.iter().map(|(field, (value, at))| (field.clone(), value.clone(), *at));
        let (expected, due): (Vec<Row>, Vec<Row>) = rows.partition(|(_, _, at)| is_live(*at));
        assert_eq!(sorted(view.iter_timed().map(row)), expected);
        assert_eq!(view.len(), expected.len());
        let mut scanned = Vec::new();
        let mut cursor = 0;
        loop {
            cursor = view.scan_timed(cursor, 2, |field, value, at| {
                scanned.push(row((field, value, at)));
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(sorted(scanned.into_iter()), expected);
        let indexed = (0..view.indexes()).filter_map(|index| view.get_index(index));
        assert_eq!(indexed.count(), expected.len());
        for (field, (value, at)) in oracle {
            let live = is_live(*at);
            assert_eq!(view.get(field), live.then_some(value.as_slice()));
            assert_eq!(view.live(field), live.then_some((&value[..], at.map(UnixMs))));
        }
        let mut found = Vec::new();
        hash.visit_due(UnixMs(now), |field| {
            found.push(field.to_vec());
            true
        });
        found.sort_unstable();
        assert_eq!(found, due.iter().map(|(field, ..)| field.clone()).collect::<Vec<_>>());
        assert_eq!(hash.is_overdue(UnixMs(now)), !oracle.is_empty() && expected.is_empty());
        let earliest = oracle.values().filter_map(|(_, at)| *at).min();
        assert_eq!(hash.earliest_expiry(), earliest.map(UnixMs));
        assert_eq!(view.has_times(), expected.iter().any(|(_, _, at)| at.is_some()));
        for from in 0..9 {
            let since = due.iter().any(|(_, _, at)| at.is_some_and(|at| at > from));
            assert_eq!(hash.has_expired_since(UnixMs(from), UnixMs(now)), since);
        }
    }

    proptest! {
        #[test]
        fn a_view_is_as_the_oracle(
            steps in proptest::collection::vec((step(), 0u64..10), 1..60),
        ) {
            let (mut hash, mut oracle) = (Hash::new(), Oracle::new());
            for (step, now) in steps {
                apply(&mut hash, &mut oracle, &step);
                check(&hash, &oracle, now);
            }
            let mut bytes = Vec::new();
            hash.encode(&mut bytes);
            let decoded = Hash::decode(&mut bytes.as_slice(), &compact());
            prop_assert_eq!(decoded.as_ref(), Ok(&hash));
            check(&decoded.unwrap(), &oracle, 5);
            prop_assert_eq!(
                Hash::decode(&mut &bytes[..bytes.len() - 1], &compact()),
                Err(Malformed)
            );
            prop_assert_eq!(&hash.clone(), &hash);
        }
    }

    /// Logs and snapshots hold these bytes: a change needs a new version of both formats.
    #[test]
    fn a_hash_with_times_has_these_bytes() {
        let mut hash = Hash::new();
        hash.set(b"f", b"vv", &Compact::default());
        hash.set(b"g", b"", &Compact::default());
        assert!(hash.expire(b"g", Some(UnixMs(299)), &Compact::default()));
        let mut bytes = Vec::new();
        hash.encode(&mut bytes);
        assert_eq!(bytes, b"\x00\x02\x01f\x02vv\x00\x01g\x00\xac\x02");
    }

    #[test]
    fn hashes_without_times_pay_nothing_for_them() {
        #[expect(dead_code, reason = "only its size is used")]
        enum Plain {
            Packed(crate::types::packed::Packed),
            Table(crate::types::table::Table<()>),
        }
        assert_eq!(size_of::<Form>(), size_of::<Plain>());
        let mut hash = Hash::new();
        (0..200u8).for_each(|field| {
            hash.set(&[field], b"value", &Compact::default());
        });
        let plain_bytes = hash.heap_bytes();
        (0..200u8).for_each(|field| {
            hash.expire(&[field], Some(UnixMs(u64::from(field))), &Compact::default());
        });
        let timed_bytes = hash.heap_bytes();
        let times_bytes = allocation_bytes(256 * 16) + allocation_bytes(256 * 4);
        let form_bytes = allocation_bytes(size_of::<TimedTable>());
        assert!(
            timed_bytes - plain_bytes <= times_bytes + form_bytes,
            "{plain_bytes} {timed_bytes}"
        );
        (0..200u8).for_each(|field| {
            hash.expire(&[field], None, &Compact::default());
        });
        assert_eq!(hash.heap_bytes(), plain_bytes);
    }
}
