//! The rows of a partition, by clustering key.

use std::collections::{BTreeMap, btree_map};
use std::ops::{Bound, RangeBounds};

use super::row::Row;
use crate::blob::prefetch_block;

/// Rows up to which an array holds them: a node of a map takes the room of eleven, also for one.
const FEW_MAX: usize = 16;

/// Cost of an entry of a map in addition to key and value: nodes are two thirds full.
pub(super) const NODE_BYTES: usize = 16;

type Slot = (Box<[u8]>, Row);

/// See the module. Costs O(log n) in a map; an array is at most [`FEW_MAX`] long.
#[derive(Debug, Clone)]
pub(super) enum Rows {
    /// Sorted.
    Few(Vec<Slot>),
    Many(BTreeMap<Box<[u8]>, Row>),
}

impl Default for Rows {
    fn default() -> Rows {
        Rows::Few(Vec::new())
    }
}

/// The form does not matter.
impl PartialEq for Rows {
    fn eq(&self, other: &Rows) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Rows {}

fn find(few: &[Slot], key: &[u8]) -> Result<usize, usize> {
    few.binary_search_by(|(own, _)| (**own).cmp(key))
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        match self {
            Rows::Few(few) => few.len(),
            Rows::Many(many) => many.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks the processor to load an array; the nodes of a map can only be walked.
    pub(super) fn prefetch(&self) {
        if let Rows::Few(few) = self {
            prefetch_block(few.as_ptr(), size_of_val(&few[..]));
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<(&[u8], &Row)> {
        match self {
            Rows::Few(few) => find(few, key).ok().map(|at| (&*few[at].0, &few[at].1)),
            Rows::Many(many) => many.get_key_value(key).map(|(key, row)| (&**key, row)),
        }
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Row> {
        match self {
            Rows::Few(few) => find(few, key).ok().map(|at| &mut few[at].1),
            Rows::Many(many) => many.get_mut(key),
        }
    }

    /// Puts a row in that is not there.
    pub(super) fn insert(&mut self, key: &[u8], row: Row) {
        debug_assert!(self.get(key).is_none(), "a row is in its partition once");
        if let Rows::Few(few) = self
            && few.len() == FEW_MAX
        {
            *self = Rows::Many(std::mem::take(few).into_iter().collect());
        }
        match self {
            Rows::Few(few) => {
                let at = find(few, key).unwrap_or_else(|at| at);
                // One more, not twice as many: most partitions of this size stay as they are.
                few.reserve_exact(1);
                few.insert(at, (key.into(), row));
            }
            Rows::Many(many) => {
                many.insert(key.into(), row);
            }
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        match self {
            Rows::Few(few) => {
                if let Ok(at) = find(few, key) {
                    few.remove(at);
                    few.shrink_to_fit();
                }
            }
            Rows::Many(many) => {
                many.remove(key);
            }
        }
        self.settle();
    }

    /// Passes each row within the bounds to `stays`, which may change it, and drops the rows for
    /// which it returns false. The bounds must not be reversed. O(log n), and the rows within.
    pub(super) fn retain(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        mut stays: impl FnMut(&[u8], &mut Row) -> bool,
    ) {
        match self {
            Rows::Few(few) => {
                few.retain_mut(|(key, row)| !bounds.contains(&**key) || stays(key, row));
                few.shrink_to_fit();
            }
            Rows::Many(many) => {
                let mut gone = Vec::new();
                for (key, row) in many.range_mut::<[u8], _>(bounds) {
                    if !stays(key, row) {
                        gone.push(key.clone());
                    }
                }
                for key in &gone {
                    many.remove(key);
                }
            }
        }
        self.settle();
    }

    /// Turns a map that has lost most of its rows into an array: at half of the length that made it
    /// a map, so that adding and removing one row does not change the form each time.
    fn settle(&mut self) {
        if let Rows::Many(many) = self
            && many.len() <= FEW_MAX / 2
        {
            *self = Rows::Few(std::mem::take(many).into_iter().collect());
        }
    }

    pub(super) fn iter(&self) -> Range<'_> {
        self.range(Bound::Unbounded, Bound::Unbounded)
    }

    /// Rows within the bounds, which must not be the wrong way round.
    pub(super) fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Range<'_> {
        match self {
            Rows::Few(few) => {
                let (first, after) = positions(few, start, end);
                Range::Few(few[first..after].iter())
            }
            Rows::Many(many) => Range::Many(many.range::<[u8], _>((start, end))),
        }
    }

    /// What the place of a row costs.
    pub(super) fn slot_bytes(&self) -> usize {
        match self {
            Rows::Few(_) => size_of::<Slot>(),
            Rows::Many(_) => size_of::<Slot>() + NODE_BYTES,
        }
    }
}

/// The first row within the bounds, and the first after them.
fn positions(few: &[Slot], start: Bound<&[u8]>, end: Bound<&[u8]>) -> (usize, usize) {
    let first = few.partition_point(|(key, _)| !(start, Bound::Unbounded).contains(&**key));
    let after = few.partition_point(|(key, _)| (Bound::Unbounded, end).contains(&**key));
    (first, after.max(first))
}

/// Rows in their order, from either end.
#[derive(Debug)]
pub(super) enum Range<'a> {
    Few(std::slice::Iter<'a, Slot>),
    Many(btree_map::Range<'a, Box<[u8]>, Row>),
}

impl<'a> Iterator for Range<'a> {
    type Item = (&'a [u8], &'a Row);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Range::Few(few) => few.next().map(|(key, row)| (&**key, row)),
            Range::Many(many) => many.next().map(|(key, row)| (&**key, row)),
        }
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Range::Few(few) => few.next_back().map(|(key, row)| (&**key, row)),
            Range::Many(many) => many.next_back().map(|(key, row)| (&**key, row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::partition::row::Liveness;
    use proptest::prelude::*;

    fn row(timestamp: i64) -> Row {
        Row { liveness: Some(Liveness { timestamp, expiry: None }), ..Row::default() }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u8),
        Remove(u8),
        /// Drops every second row of a range.
        Thin(u8, u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0u8..40).prop_map(Step::Insert),
            2 => (0u8..40).prop_map(Step::Remove),
            1 => (0u8..40, 0u8..40).prop_map(|(a, b)| Step::Thin(a.min(b), a.max(b))),
        ];
        prop::collection::vec(step, 0..120)
    }

    proptest! {
        /// Against a map, over the lengths at which the form changes.
        #[test]
        fn both_forms_hold_the_same(steps in steps(), from in 0u8..40, to in 0u8..40) {
            let mut rows = Rows::default();
            let mut model = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert(key) if rows.get(&[key]).is_none() => {
                        rows.insert(&[key], row(i64::from(key)));
                        model.insert([key], row(i64::from(key)));
                    }
                    Step::Insert(key) => {
                        *rows.get_mut(&[key]).expect("is there") = row(99);
                        model.insert([key], row(99));
                    }
                    Step::Remove(key) => {
                        rows.remove(&[key]);
                        model.remove(&[key]);
                    }
                    Step::Thin(from, to) => {
                        let bounds = (Bound::Included(&[from][..]), Bound::Excluded(&[to][..]));
                        rows.retain(bounds, |key, _| key[0] % 2 == 0);
                        model.retain(|[key], _| !(from..to).contains(key) || key % 2 == 0);
                    }
                }
                prop_assert_eq!(rows.len(), model.len());
                let lengths = match rows {
                    Rows::Few(_) => 0..=FEW_MAX,
                    Rows::Many(_) => FEW_MAX / 2 + 1..=usize::MAX,
                };
                prop_assert!(lengths.contains(&rows.len()));
            }
            let (from, to) = (from.min(to), from.max(to));
            let (low, high) = ([from], [to]);
            for (start, end) in [
                (Bound::Included(&low), Bound::Included(&high)),
                (Bound::Excluded(&low), Bound::Unbounded),
                (Bound::Unbounded, Bound::Excluded(&high)),
            ] {
                let expected: Vec<_> = model.range::<[u8; 1], _>((start, end)).map(|(key, row)| (&key[..], row)).collect();
                let (start, end) = (start.map(|key| &key[..]), end.map(|key| &key[..]));
                prop_assert_eq!(rows.range(start, end).collect::<Vec<_>>(), expected.clone());
                let back: Vec<_> = rows.range(start, end).rev().collect();
                prop_assert_eq!(back, expected.into_iter().rev().collect::<Vec<_>>());
            }
        }
    }
}
