//! Collections as commands read them, whichever form they have.
//!
//! A small collection is a part of its key's entry, so there is no `&Hash` to borrow.

use std::ops::{Bound, Range};

use base::time::UnixMs;

use crate::small::{EqualList, Rows, Small};
use crate::types::set::{ENCODED_BYTES, ENCODED_INTEGERS};
use crate::types::{Compact, Encoding, HashView, List, Scalar, Set, Text, ZSet, ZSetIter};
use crate::varint::{put_bytes, put_varint};

/// The fields of a hash that have not expired at a time, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct HashRef<'a> {
    form: HashForm<'a>,
}

#[derive(Debug, Clone, Copy)]
enum HashForm<'a> {
    Small(Small<'a>),
    Other(HashView<'a>),
}

impl<'a> From<HashView<'a>> for HashRef<'a> {
    fn from(hash: HashView<'a>) -> HashRef<'a> {
        HashRef { form: HashForm::Other(hash) }
    }
}

impl<'a> HashRef<'a> {
    pub(crate) fn small(small: Small<'a>) -> HashRef<'a> {
        HashRef { form: HashForm::Small(small) }
    }

    /// Number of fields. O(1), or O(expired fields).
    pub fn len(self) -> usize {
        match self.form {
            HashForm::Small(small) => small.len(),
            HashForm::Other(hash) => hash.len(),
        }
    }

    /// As [`HashRef::len`].
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// As [`Hash::get`].
    #[inline]
    pub fn get(self, field: &[u8]) -> Option<Text<'a>> {
        match self.form {
            HashForm::Small(small) => small.hash_get(field),
            HashForm::Other(hash) => hash.get(field).map(Text::from),
        }
    }

    /// As [`Hash::contains`].
    pub fn contains(self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// When a field expires. `None`: no such field. `Some(None)`: it never expires.
    pub fn expiry(self, field: &[u8]) -> Option<Option<UnixMs>> {
        match self.form {
            HashForm::Small(small) => small.hash_get(field).map(|_| None),
            HashForm::Other(hash) => hash.live(field).map(|(_, at)| at),
        }
    }

    /// Whether a field expires, one that has expired but is stored included. O(1).
    pub fn is_timed(self) -> bool {
        match self.form {
            HashForm::Small(_) => false,
            HashForm::Other(hash) => hash.is_timed(),
        }
    }

    /// Whether one of the fields expires.
    pub fn has_times(self) -> bool {
        match self.form {
            HashForm::Small(_) => false,
            HashForm::Other(hash) => hash.has_times(),
        }
    }

    /// As [`Hash::iter`].
    pub fn iter(self) -> impl Iterator<Item = (Text<'a>, Text<'a>)> {
        self.iter_timed().map(|(field, value, _)| (field, value))
    }

    /// The same, with the times at which they expire.
    pub fn iter_timed(self) -> impl Iterator<Item = (Text<'a>, Text<'a>, Option<UnixMs>)> {
        let (mut small, other) = match self.form {
            HashForm::Small(small) => (Some(small.forward()), None),
            HashForm::Other(hash) => (None, Some(hash)),
        };
        let mut other = other.into_iter().flat_map(HashView::iter_timed);
        std::iter::from_fn(move || {
            if let Some(rows) = &mut small {
                return rows.next().map(|(field, value)| (field, value, None));
            }
            let (field, value, at) = other.next()?;
            Some((Text::from(field), Text::from(value), at))
        })
    }

    /// Indexes for [`HashRef::get_index`]: of the fields that are stored, expired ones included.
    pub fn indexes(self) -> usize {
        match self.form {
            HashForm::Small(small) => small.len(),
            HashForm::Other(hash) => hash.indexes(),
        }
    }

    /// As [`Hash::get_index`]; `None` also if the field at this index has expired.
    pub fn get_index(self, index: usize) -> Option<(Text<'a>, Text<'a>)> {
        match self.form {
            HashForm::Small(small) => small.rows().nth(index),
            HashForm::Other(hash) => {
                hash.get_index(index).map(|(field, value)| (field.into(), value.into()))
            }
        }
    }

    /// As [`Hash::scan`].
    pub fn scan(self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], &[u8])) -> u64 {
        self.scan_timed(cursor, count, |field, value, _| visit(field, value))
    }

    /// The same, with the times at which fields expire.
    pub fn scan_timed(
        self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8], Option<UnixMs>),
    ) -> u64 {
        match self.form {
            HashForm::Small(_) => {
                self.iter().for_each(|(field, value)| visit(&field, &value, None));
                0
            }
            HashForm::Other(hash) => hash.scan_timed(cursor, count, visit),
        }
    }

    /// As [`Hash::encoding`].
    pub fn encoding(self) -> Encoding {
        match self.form {
            HashForm::Small(_) => Encoding::Listpack,
            HashForm::Other(hash) => hash.encoding(),
        }
    }

    /// As [`Hash::encode`], with the fields that have expired.
    pub fn encode(self, out: &mut Vec<u8>) {
        if let HashForm::Other(hash) = self.form {
            return hash.stored().encode(out);
        }
        put_varint(out, self.len() as u64);
        for (field, value) in self.iter() {
            put_bytes(out, &field);
            put_bytes(out, &value);
        }
    }

    /// Where the hash is in memory.
    pub fn address(self) -> usize {
        match self.form {
            HashForm::Small(small) => small.address(),
            HashForm::Other(hash) => hash.address(),
        }
    }
}

/// A list, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct ListRef<'a> {
    form: ListForm<'a>,
}

#[derive(Debug, Clone, Copy)]
enum ListForm<'a> {
    Small(Small<'a>),
    Equal(EqualList<'a>),
    Other(&'a List),
}

impl<'a> From<&'a List> for ListRef<'a> {
    fn from(list: &'a List) -> ListRef<'a> {
        ListRef { form: ListForm::Other(list) }
    }
}

impl<'a> ListRef<'a> {
    pub(crate) fn small(small: Small<'a>) -> ListRef<'a> {
        ListRef { form: ListForm::Small(small) }
    }

    pub(crate) fn equal(list: EqualList<'a>) -> ListRef<'a> {
        ListRef { form: ListForm::Equal(list) }
    }

    /// As [`List::len`].
    pub fn len(self) -> usize {
        match self.form {
            ListForm::Small(small) => small.len(),
            ListForm::Equal(list) => list.len(),
            ListForm::Other(list) => list.len(),
        }
    }

    /// O(1).
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// As [`List::get`].
    pub fn get(self, index: usize) -> Option<Text<'a>> {
        match self.form {
            ListForm::Small(small) => small.rows().nth(index),
            ListForm::Equal(list) => list.get(index).map(Text::from),
            ListForm::Other(list) => list.get(index).map(Text::from),
        }
    }

    /// As [`List::iter`].
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Text<'a>> {
        let (small, equal, other) = self.parts();
        let small = small.into_iter().flat_map(Small::rows);
        let equal = equal.into_iter().flat_map(EqualList::iter);
        small.chain(equal.chain(other.into_iter().flat_map(List::iter)).map(Text::from))
    }

    /// As [`List::iter_rev`].
    pub fn iter_rev(self) -> impl Iterator<Item = Text<'a>> {
        self.iter().rev()
    }

    /// As [`List::iter_from`].
    pub fn iter_from(self, index: usize) -> impl Iterator<Item = Text<'a>> {
        let (small, equal, other) = self.parts();
        let small = small
            .into_iter()
            .flat_map(move |small| small.rows().between(index.min(small.len()), small.len()));
        let equal = equal.into_iter().flat_map(move |list| list.iter_from(index.min(list.len())));
        let other = other.into_iter().flat_map(move |list| list.iter_from(index));
        small.chain(equal.chain(other).map(Text::from))
    }

    fn parts(self) -> (Option<Small<'a>>, Option<EqualList<'a>>, Option<&'a List>) {
        match self.form {
            ListForm::Small(small) => (Some(small), None, None),
            ListForm::Equal(list) => (None, Some(list), None),
            ListForm::Other(list) => (None, None, Some(list)),
        }
    }

    /// As [`List::encoding`].
    pub fn encoding(self, compact: &Compact) -> Encoding {
        match self.form {
            ListForm::Small(_) | ListForm::Equal(_) => Encoding::Listpack,
            ListForm::Other(list) => list.encoding(compact),
        }
    }

    /// As [`List::encode`].
    pub fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|element| put_bytes(out, &element));
    }

    /// Where the list is in memory.
    pub fn address(self) -> usize {
        match self.form {
            ListForm::Small(small) => small.address(),
            ListForm::Equal(list) => list.address(),
            ListForm::Other(list) => std::ptr::from_ref(list).addr(),
        }
    }
}

/// A set, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct SetRef<'a> {
    form: SetForm<'a>,
}

#[derive(Debug, Clone, Copy)]
enum SetForm<'a> {
    Small(Small<'a>),
    Integers(Small<'a>),
    Other(&'a Set),
}

impl<'a> From<&'a Set> for SetRef<'a> {
    fn from(set: &'a Set) -> SetRef<'a> {
        SetRef { form: SetForm::Other(set) }
    }
}

impl<'a> SetRef<'a> {
    pub(crate) fn small(small: Small<'a>) -> SetRef<'a> {
        SetRef { form: SetForm::Small(small) }
    }

    pub(crate) fn integers(small: Small<'a>) -> SetRef<'a> {
        SetRef { form: SetForm::Integers(small) }
    }

    /// As [`Set::len`].
    pub fn len(self) -> usize {
        match self.form {
            SetForm::Small(small) | SetForm::Integers(small) => small.len(),
            SetForm::Other(set) => set.len(),
        }
    }

    /// O(1).
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// As [`Set::contains`].
    pub fn contains(self, member: &[u8]) -> bool {
        match self.form {
            SetForm::Small(small) => small.set_contains(member),
            SetForm::Integers(small) => small.integers_contain(member),
            SetForm::Other(set) => set.contains(member),
        }
    }

    /// As [`Set::iter`].
    pub fn iter(self) -> impl Iterator<Item = Scalar<'a>> {
        let (small, integers, other) = match self.form {
            SetForm::Small(small) => (Some(small), None, None),
            SetForm::Integers(small) => (None, Some(small), None),
            SetForm::Other(set) => (None, None, Some(set)),
        };
        let integers = integers.into_iter().flat_map(Small::integers).map(Scalar::Int);
        let small = small.into_iter().flat_map(Small::set_members);
        small.chain(integers).chain(other.into_iter().flat_map(Set::iter))
    }

    /// As [`Set::get_index`].
    pub fn get_index(self, index: usize) -> Option<Scalar<'a>> {
        match self.form {
            SetForm::Other(set) => set.get_index(index),
            _ => self.iter().nth(index),
        }
    }

    /// As [`Set::scan`].
    pub fn scan(self, cursor: u64, count: usize, visit: impl FnMut(Scalar<'_>)) -> u64 {
        if let SetForm::Other(set) = self.form {
            return set.scan(cursor, count, visit);
        }
        self.iter().for_each(visit);
        0
    }

    /// As [`Set::encoding`].
    pub fn encoding(self) -> Encoding {
        match self.form {
            SetForm::Small(_) => Encoding::Listpack,
            SetForm::Integers(_) => Encoding::Intset,
            SetForm::Other(set) => set.encoding(),
        }
    }

    /// As [`Set::encode`].
    pub fn encode(self, out: &mut Vec<u8>) {
        match self.form {
            SetForm::Small(small) => {
                out.push(ENCODED_BYTES);
                put_varint(out, small.len() as u64);
                self.iter().for_each(|member| member.with_bytes(|bytes| put_bytes(out, bytes)));
            }
            SetForm::Integers(small) => {
                out.push(ENCODED_INTEGERS);
                small.encode_integers(out);
            }
            SetForm::Other(set) => set.encode(out),
        }
    }

    /// The same members as a value of their own. O(bytes).
    pub fn to_set(self, compact: &Compact) -> Set {
        if let SetForm::Other(set) = self.form {
            return set.clone();
        }
        let mut set = Set::new();
        self.iter().for_each(|member| {
            member.with_bytes(|bytes| set.add(bytes, compact));
        });
        set
    }

    /// Where the set is in memory.
    pub fn address(self) -> usize {
        match self.form {
            SetForm::Small(small) | SetForm::Integers(small) => small.address(),
            SetForm::Other(set) => std::ptr::from_ref(set).addr(),
        }
    }
}

/// A sorted set, borrowed.
#[derive(Debug, Clone, Copy)]
pub struct ZSetRef<'a> {
    form: ZSetForm<'a>,
}

#[derive(Debug, Clone, Copy)]
enum ZSetForm<'a> {
    Small(Small<'a>),
    Other(&'a ZSet),
}

impl<'a> From<&'a ZSet> for ZSetRef<'a> {
    fn from(zset: &'a ZSet) -> ZSetRef<'a> {
        ZSetRef { form: ZSetForm::Other(zset) }
    }
}

impl<'a> ZSetRef<'a> {
    pub(crate) fn small(small: Small<'a>) -> ZSetRef<'a> {
        ZSetRef { form: ZSetForm::Small(small) }
    }

    /// As [`ZSet::len`].
    pub fn len(self) -> usize {
        match self.form {
            ZSetForm::Small(small) => small.len(),
            ZSetForm::Other(zset) => zset.len(),
        }
    }

    /// O(1).
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// As [`ZSet::score`].
    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self.form {
            ZSetForm::Small(small) => small.zset_find(member).map(|(_, score)| score),
            ZSetForm::Other(zset) => zset.score(member),
        }
    }

    /// As [`ZSet::rank`].
    pub fn rank(self, member: &[u8]) -> Option<usize> {
        match self.form {
            ZSetForm::Small(small) => small.zset_find(member).map(|(rank, _)| rank),
            ZSetForm::Other(zset) => zset.rank(member),
        }
    }

    /// As [`ZSet::get_index`].
    pub fn get_index(self, rank: usize) -> Option<(Text<'a>, f64)> {
        match self.form {
            ZSetForm::Small(small) => small.rows().nth(rank),
            ZSetForm::Other(zset) => zset.get_index(rank).map(text_row),
        }
    }

    /// As [`ZSet::iter`].
    pub fn iter(self) -> RowsRef<'a> {
        self.iter_range(0..self.len())
    }

    /// As [`ZSet::iter_range`].
    pub fn iter_range(self, ranks: Range<usize>) -> RowsRef<'a> {
        let form = match self.form {
            ZSetForm::Small(small) => {
                let end = ranks.end.min(small.len());
                RowsForm::Small(small.rows().between(ranks.start.min(end), end))
            }
            ZSetForm::Other(zset) => RowsForm::Other(zset.iter_range(ranks)),
        };
        RowsRef { form }
    }

    /// As [`ZSet::partition_scores`].
    fn partition_scores(self, before: impl Fn(f64) -> bool) -> usize {
        match self.form {
            ZSetForm::Small(small) => small.partition_scores(before),
            ZSetForm::Other(zset) => zset.partition_scores(before),
        }
    }

    /// As [`ZSet::partition_members`].
    fn partition_members(self, before: impl Fn(&[u8]) -> bool) -> usize {
        match self.form {
            ZSetForm::Small(small) => small.partition_members(before),
            ZSetForm::Other(zset) => zset.partition_members(before),
        }
    }

    /// The first rank within a lower bound of scores; `len` if there is none. O(log n).
    pub fn lower_bound_score(self, bound: Bound<f64>) -> usize {
        match bound {
            Bound::Included(min) => self.partition_scores(|score| score < min),
            Bound::Excluded(min) => self.partition_scores(|score| score <= min),
            Bound::Unbounded => 0,
        }
    }

    /// The rank just after the last one within an upper bound of scores, so that
    /// `lower_bound_score(min)..upper_bound_score(max)` are the ranks between two bounds (none if
    /// its start is greater than its end). O(log n).
    pub fn upper_bound_score(self, bound: Bound<f64>) -> usize {
        match bound {
            Bound::Included(max) => self.partition_scores(|score| score <= max),
            Bound::Excluded(max) => self.partition_scores(|score| score < max),
            Bound::Unbounded => self.len(),
        }
    }

    /// As [`ZSetRef::lower_bound_score`], by members. Means something only where all scores are
    /// equal, as with ZRANGEBYLEX; otherwise it is some rank.
    pub fn lower_bound_lex(self, bound: Bound<&[u8]>) -> usize {
        match bound {
            Bound::Included(min) => self.partition_members(|member| member < min),
            Bound::Excluded(min) => self.partition_members(|member| member <= min),
            Bound::Unbounded => 0,
        }
    }

    /// As [`ZSetRef::upper_bound_score`], by members; see [`ZSetRef::lower_bound_lex`].
    pub fn upper_bound_lex(self, bound: Bound<&[u8]>) -> usize {
        match bound {
            Bound::Included(max) => self.partition_members(|member| member <= max),
            Bound::Excluded(max) => self.partition_members(|member| member < max),
            Bound::Unbounded => self.len(),
        }
    }

    /// As [`ZSet::scan`].
    pub fn scan(self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        match self.form {
            ZSetForm::Small(_) => {
                self.iter().for_each(|(member, score)| visit(&member, score));
                0
            }
            ZSetForm::Other(zset) => zset.scan(cursor, count, visit),
        }
    }

    /// As [`ZSet::encoding`].
    pub fn encoding(self) -> Encoding {
        match self.form {
            ZSetForm::Small(_) => Encoding::Listpack,
            ZSetForm::Other(zset) => zset.encoding(),
        }
    }

    /// As [`ZSet::encode`].
    pub fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (member, score) in self.iter() {
            out.extend_from_slice(&score.to_le_bytes());
            put_bytes(out, &member);
        }
    }

    /// Where the sorted set is in memory.
    pub fn address(self) -> usize {
        match self.form {
            ZSetForm::Small(small) => small.address(),
            ZSetForm::Other(zset) => std::ptr::from_ref(zset).addr(),
        }
    }
}

fn text_row((member, score): (&[u8], f64)) -> (Text<'_>, f64) {
    (member.into(), score)
}

/// Members of a sorted set with their scores, in order, from both ends.
#[derive(Debug, Clone)]
pub struct RowsRef<'a> {
    form: RowsForm<'a>,
}

#[derive(Debug, Clone)]
enum RowsForm<'a> {
    Small(Rows<'a, (Text<'a>, f64)>),
    Other(ZSetIter<'a>),
}

impl<'a> Iterator for RowsRef<'a> {
    type Item = (Text<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.form {
            RowsForm::Small(rows) => rows.next(),
            RowsForm::Other(rows) => rows.next().map(text_row),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.form {
            RowsForm::Small(rows) => rows.size_hint(),
            RowsForm::Other(rows) => rows.size_hint(),
        }
    }
}

impl DoubleEndedIterator for RowsRef<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.form {
            RowsForm::Small(rows) => rows.next_back(),
            RowsForm::Other(rows) => rows.next_back().map(text_row),
        }
    }
}

impl ExactSizeIterator for RowsRef<'_> {}
