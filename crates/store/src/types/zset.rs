//! Members with scores, ordered by score and then by the members' bytes.
//!
//! Compact: one packed block in that order; an element is the score's eight bytes (little-endian)
//! and the member. Large: a table from member to score, and the order in a [`Ranked`].

use std::cmp::Ordering;
use std::iter::{Skip, Take};
use std::ops::Range;

use super::packed::{self, Element, Packed};
use super::ranked::{self, Entry, Place, Ranked};
use super::table::Table;
use super::text::Text;
use super::{Compact, Encoding, Malformed, allocation_bytes};
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

const SCORE_BYTES: usize = 8;
const _: () = assert!(SCORE_BYTES == size_of::<f64>());

/// Members with scores, ordered by score and then by the members' bytes. -0.0 equals 0.0; a score
/// is never NaN.
///
/// Compact: every operation is O(members), at most `zset_entries_max` of them. Large with n
/// members: score O(1), all else O(log n). Rank 0 is the lowest.
#[derive(Debug, Clone)]
pub struct ZSet {
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    Packed(Packed),
    Large(Box<Large>),
}

#[derive(Debug, Clone)]
struct Large {
    scores: Table<f64>,
    order: Ranked,
}

/// Result of [`ZSet::add`].
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub enum AddResult {
    /// The member is new.
    Added,
    /// The member has another score than before.
    Updated,
    /// The member had this score already.
    Same,
}

/// The order of a sorted set.
fn order(left: (f64, &[u8]), right: (f64, &[u8])) -> Ordering {
    left.0.partial_cmp(&right.0).unwrap_or(Ordering::Equal).then_with(|| left.1.cmp(right.1))
}

/// Scores are compared exactly: two that print differently are different.
#[allow(clippy::float_cmp)]
pub(crate) fn is_same_score(left: f64, right: f64) -> bool {
    left == right
}

/// Score and member of a packed element.
fn split(bytes: &[u8]) -> (f64, &[u8]) {
    let (score, member) =
        bytes.split_first_chunk::<SCORE_BYTES>().expect("an element begins with its score");
    (f64::from_le_bytes(*score), member)
}

/// Member and score of a packed element, as iterators yield them.
fn row(bytes: &[u8]) -> (&[u8], f64) {
    let (score, member) = split(bytes);
    (member, score)
}

fn find<'a>(packed: &'a Packed, member: &[u8]) -> Option<(Element<'a>, f64)> {
    packed.elements().find_map(|element| {
        let (score, found) = split(element.bytes);
        (found == member).then_some((element, score))
    })
}

fn insert_packed(packed: &mut Packed, member: &[u8], score: f64) {
    let at = packed
        .elements()
        .find(|element| order(split(element.bytes), (score, member)).is_gt())
        .map_or(packed.live_bytes(), |element| element.at);
    packed.insert_joined(at, &score.to_le_bytes(), member);
}

impl Large {
    fn new(seed: u64) -> Large {
        Large { scores: Table::new(seed), order: Ranked::default() }
    }

    fn member(&self, entry: Entry) -> &[u8] {
        self.scores.get_index(entry.index as usize).expect("entries point into the table").0
    }

    /// Where a member with this score is or would be.
    fn place(&self, score: f64, member: &[u8]) -> Place {
        self.order.partition(|entry| self.is_less(entry, score, member))
    }

    fn is_less(&self, entry: Entry, score: f64, member: &[u8]) -> bool {
        entry.score < score || (is_same_score(entry.score, score) && self.member(entry) < member)
    }

    fn add(&mut self, member: &[u8], score: f64) -> AddResult {
        match self.scores.find(member).map(|index| (index, self.scores.value(index))) {
            Some((_, old)) if is_same_score(old, score) => AddResult::Same,
            Some((index, old)) => {
                self.update(member, index, old, score);
                AddResult::Updated
            }
            None => {
                let index = u32::try_from(self.scores.len())
                    .expect("memory ends long before 2^32 members of one sorted set");
                self.order.insert(self.place(score, member), Entry { score, index });
                self.scores.insert(member, &[], score);
                debug_assert_eq!(self.scores.len(), self.order.len());
                AddResult::Added
            }
        }
    }

    fn update(&mut self, member: &[u8], index: usize, old: f64, score: f64) {
        let place = self.place(old, member);
        let entry =
            Entry { score, index: self.order.get(place).expect("each member has a place").index };
        if self.belongs(place, member, score) {
            self.order.replace(place, entry);
        } else {
            self.order.remove(place);
            self.order.insert(self.place(score, member), entry);
        }
        *self.scores.value_mut(index) = score;
    }

    /// Whether a score keeps the member between its neighbours. Small steps of a counter mostly do.
    fn belongs(&self, place: Place, member: &[u8], score: f64) -> bool {
        self.order.neighbours(place).is_some_and(|(before, after)| {
            self.is_less(before, score, member) && !self.is_less(after, score, member)
        })
    }

    fn remove(&mut self, member: &[u8]) -> bool {
        let Some(index) = self.scores.find(member) else { return false };
        let score = self.scores.value(index);
        let place = self.place(score, member);
        let ordered = self.order.get(place).map(|entry| entry.index as usize);
        debug_assert_eq!(ordered, Some(index), "the order and the table agree");
        self.order.remove(place);
        self.move_last_to(index);
        self.scores.swap_remove(index);
        debug_assert_eq!(self.scores.len(), self.order.len());
        true
    }

    /// Updates the order before the table moves its last entry to `index`.
    fn move_last_to(&mut self, index: usize) {
        let last = self.scores.len() - 1;
        if index == last {
            return;
        }
        let (member, _, &score) = self.scores.get_index(last).expect("the table is not empty");
        let place = self.place(score, member);
        let index = u32::try_from(index).expect("indexes were u32 when they were given");
        self.order.replace(place, Entry { score, index });
    }

    fn row(&self, entry: Entry) -> (&[u8], f64) {
        (self.member(entry), entry.score)
    }
}

impl Default for ZSet {
    fn default() -> ZSet {
        ZSet::new()
    }
}

impl ZSet {
    /// No members, no allocation.
    pub fn new() -> ZSet {
        ZSet { form: Form::Packed(Packed::default()) }
    }

    /// The rows must be in order.
    pub(crate) fn of_rows<'a>(rows: impl Iterator<Item = (Text<'a>, f64)>) -> ZSet {
        let mut packed = Packed::default();
        for (member, score) in rows {
            packed.insert_joined(packed.live_bytes(), &score.to_le_bytes(), &member);
        }
        ZSet { form: Form::Packed(packed) }
    }

    /// The rows of a compact sorted set.
    pub(crate) fn packed_rows(&self) -> Option<impl Iterator<Item = (&[u8], f64)>> {
        match &self.form {
            Form::Packed(packed) => Some(packed.iter().map(row)),
            Form::Large(_) => None,
        }
    }

    /// Number of members. O(1).
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len(),
            Form::Large(large) => large.order.len(),
        }
    }

    /// O(1).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a member or changes its score, which must not be NaN. O(log n); O(n) the one time when
    /// the set becomes large.
    pub fn add(&mut self, member: &[u8], score: f64, compact: &Compact) -> AddResult {
        debug_assert!(!score.is_nan(), "commands and decoders refuse NaN");
        if let Form::Packed(packed) = &mut self.form {
            let found = find(packed, member).map(|(element, old)| (element.at..element.next, old));
            match found {
                Some((_, old)) if is_same_score(old, score) => return AddResult::Same,
                Some((range, _)) => {
                    packed.remove(range, 1);
                    insert_packed(packed, member, score);
                    return AddResult::Updated;
                }
                None if member.len() <= compact.zset_value_bytes_max
                    && packed.len() < compact.zset_entries_max =>
                {
                    insert_packed(packed, member, score);
                    return AddResult::Added;
                }
                None => self.become_large(compact.seed),
            }
        }
        match &mut self.form {
            Form::Large(large) => large.add(member, score),
            Form::Packed(_) => unreachable!("the set has just become large"),
        }
    }

    fn become_large(&mut self, seed: u64) {
        let mut large = Large::new(seed);
        for (member, score) in &*self {
            large.add(member, score);
        }
        self.form = Form::Large(Box::new(large));
    }

    /// Removes a member; false if it is not there. O(log n).
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.form {
            Form::Packed(packed) => {
                let found = find(packed, member).map(|(element, _)| element.at..element.next);
                let Some(range) = found else { return false };
                packed.remove(range, 1);
                true
            }
            Form::Large(large) => large.remove(member),
        }
    }

    /// The score of a member. O(1), compact O(n).
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.form {
            Form::Packed(packed) => find(packed, member).map(|(_, score)| score),
            Form::Large(large) => large.scores.get(member).copied(),
        }
    }

    /// How many members are before this one. O(log n).
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match &self.form {
            Form::Packed(packed) => packed.iter().position(|bytes| split(bytes).1 == member),
            Form::Large(large) => {
                let score = *large.scores.get(member)?;
                Some(large.order.rank(large.place(score, member)))
            }
        }
    }

    /// The member at a rank. O(log n).
    pub fn get_index(&self, rank: usize) -> Option<(&[u8], f64)> {
        match &self.form {
            Form::Packed(packed) => packed.get(rank).map(row),
            Form::Large(large) => {
                large.order.get(large.order.place(rank)).map(|entry| large.row(entry))
            }
        }
    }

    /// All members with their scores in order; from either end.
    pub fn iter(&self) -> ZSetIter<'_> {
        self.iter_range(0..self.len())
    }

    /// The members whose ranks are in `ranks`, as far as there are any; from either end.
    /// O(log n) and then O(1) each.
    pub fn iter_range(&self, ranks: Range<usize>) -> ZSetIter<'_> {
        let end = ranks.end.min(self.len());
        let start = ranks.start.min(end);
        let form = match &self.form {
            Form::Packed(packed) => IterForm::Packed(packed.iter().skip(start).take(end - start)),
            Form::Large(large) => IterForm::Large(large, large.order.range(start, end)),
        };
        ZSetIter { form }
    }

    /// The first rank whose score is not `before`, which must be true for a prefix of all.
    pub(crate) fn partition_scores(&self, before: impl Fn(f64) -> bool) -> usize {
        match &self.form {
            Form::Packed(packed) => {
                packed.iter().take_while(|bytes| before(split(bytes).0)).count()
            }
            Form::Large(large) => {
                large.order.rank(large.order.partition(|entry| before(entry.score)))
            }
        }
    }

    /// The first rank whose member is not `before`, which must be true for a prefix of all.
    pub(crate) fn partition_members(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        match &self.form {
            Form::Packed(packed) => {
                packed.iter().take_while(|bytes| before(split(bytes).1)).count()
            }
            Form::Large(large) => {
                large.order.rank(large.order.partition(|entry| before(large.member(entry))))
            }
        }
    }

    /// Visits about `count` members from `cursor` on (0 at first) and returns the next cursor, 0 at
    /// the end. A member that is there from the first call to the last is visited at least once.
    /// A compact set is visited whole.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        match &self.form {
            Form::Packed(_) => {
                self.iter().for_each(|(member, score)| visit(member, score));
                0
            }
            Form::Large(large) => {
                large.scores.scan(cursor, count, |member, _, score| visit(member, *score))
            }
        }
    }

    /// Prefetches the members of the compact form.
    pub(crate) fn prefetch(&self) {
        if let Form::Packed(packed) = &self.form {
            packed.prefetch();
        }
    }

    /// Bytes of heap, without the value itself. O(1).
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.heap_bytes(),
            Form::Large(large) => {
                allocation_bytes(size_of::<Large>())
                    + large.scores.heap_bytes()
                    + large.order.heap_bytes()
            }
        }
    }

    /// `Listpack` or `Skiplist`.
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Form::Packed(_) => Encoding::Listpack,
            Form::Large(_) => Encoding::Skiplist,
        }
    }

    /// Appends: number of members v, then for each in order its score as eight bytes of an IEEE 754
    /// double, little-endian, and the member as length v and bytes (v = LEB128 varint). O(bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (member, score) in self {
            out.extend_from_slice(&score.to_le_bytes());
            put_bytes(out, member);
        }
    }

    /// Takes what `encode` wrote off the front of `input`. A duplicate member and a score that is
    /// NaN are malformed.
    pub fn decode(input: &mut &[u8], compact: &Compact) -> Result<ZSet, Malformed> {
        let mut zset = ZSet::new();
        for _ in 0..take_varint(input)? {
            let (score, rest) = input.split_first_chunk::<SCORE_BYTES>().ok_or(Malformed)?;
            *input = rest;
            let score = f64::from_le_bytes(*score);
            let member = take_bytes(input)?;
            if score.is_nan() || zset.add(member, score, compact) != AddResult::Added {
                return Err(Malformed);
            }
        }
        Ok(zset)
    }
}

/// The same members with equal scores, in whatever form.
impl PartialEq for ZSet {
    fn eq(&self, other: &ZSet) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a> IntoIterator for &'a ZSet {
    type Item = (&'a [u8], f64);
    type IntoIter = ZSetIter<'a>;

    fn into_iter(self) -> ZSetIter<'a> {
        self.iter()
    }
}

/// Members with their scores, in order, from both ends.
#[derive(Debug, Clone)]
pub struct ZSetIter<'a> {
    form: IterForm<'a>,
}

#[derive(Debug, Clone)]
enum IterForm<'a> {
    Packed(Take<Skip<packed::Iter<'a>>>),
    Large(&'a Large, ranked::Iter<'a>),
}

impl<'a> Iterator for ZSetIter<'a> {
    type Item = (&'a [u8], f64);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.form {
            IterForm::Packed(elements) => elements.next().map(row),
            IterForm::Large(large, entries) => entries.next().map(|entry| large.row(entry)),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.form {
            IterForm::Packed(elements) => elements.size_hint(),
            IterForm::Large(_, entries) => entries.size_hint(),
        }
    }
}

impl DoubleEndedIterator for ZSetIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.form {
            IterForm::Packed(elements) => elements.next_back().map(row),
            IterForm::Large(large, entries) => entries.next_back().map(|entry| large.row(entry)),
        }
    }
}

impl ExactSizeIterator for ZSetIter<'_> {}

#[cfg(test)]
mod tests;
