//! Members with scores, ordered by score and then by the members' bytes.
//!
//! Compact: one packed block in that order; an element is the score's eight bytes (little-endian)
//! and the member. Large: a table from member to score, and the order beside it ([`Ranked`]).

use std::cmp::Ordering;
use std::iter::{Skip, Take};
use std::ops::{Bound, Range};

use super::packed::{self, Element, Packed};
use super::ranked::{self, Entry, Place, Ranked};
use super::table::Table;
use super::{Compact, Encoding, Malformed, allocation_bytes};
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

const SCORE_BYTES: usize = 8;

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

/// What [`ZSet::add`] did.
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
fn is_same_score(left: f64, right: f64) -> bool {
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
        match self.scores.get_full(member).map(|(index, old)| (index, *old)) {
            Some((_, old)) if is_same_score(old, score) => AddResult::Same,
            Some((index, old)) => {
                self.update(member, index, old, score);
                AddResult::Updated
            }
            None => {
                let index = u32::try_from(self.scores.len())
                    .expect("memory ends long before 2^32 members of one sorted set");
                self.order.insert(self.place(score, member), Entry { score, index });
                self.scores.set(member, score);
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
        *self.scores.get_index_mut(index).expect("the index was just found") = score;
    }

    /// Whether a score keeps the member between its neighbours. Small steps of a counter mostly do.
    fn belongs(&self, place: Place, member: &[u8], score: f64) -> bool {
        self.order.neighbours(place).is_some_and(|(before, after)| {
            self.is_less(before, score, member) && !self.is_less(after, score, member)
        })
    }

    fn remove(&mut self, member: &[u8]) -> bool {
        let Some((index, &score)) = self.scores.get_full(member) else { return false };
        self.order.remove(self.place(score, member));
        self.move_last_to(index);
        self.scores.swap_remove(index).is_some()
    }

    /// The table is about to move its last entry to `index`: the order must know.
    fn move_last_to(&mut self, index: usize) {
        let last = self.scores.len() - 1;
        if index == last {
            return;
        }
        let (member, &score) = self.scores.get_index(last).expect("the table is not empty");
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
    fn partition_scores(&self, before: impl Fn(f64) -> bool) -> usize {
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
    fn partition_members(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        match &self.form {
            Form::Packed(packed) => {
                packed.iter().take_while(|bytes| before(split(bytes).1)).count()
            }
            Form::Large(large) => {
                large.order.rank(large.order.partition(|entry| before(large.member(entry))))
            }
        }
    }

    /// The first rank within a lower bound of scores; `len` if there is none. O(log n).
    pub fn lower_bound_score(&self, bound: Bound<f64>) -> usize {
        match bound {
            Bound::Included(min) => self.partition_scores(|score| score < min),
            Bound::Excluded(min) => self.partition_scores(|score| score <= min),
            Bound::Unbounded => 0,
        }
    }

    /// The rank just behind the last within an upper bound of scores, so that
    /// `lower_bound_score(min)..upper_bound_score(max)` are the ranks between two bounds (none if
    /// its start is greater than its end). O(log n).
    pub fn upper_bound_score(&self, bound: Bound<f64>) -> usize {
        match bound {
            Bound::Included(max) => self.partition_scores(|score| score <= max),
            Bound::Excluded(max) => self.partition_scores(|score| score < max),
            Bound::Unbounded => self.len(),
        }
    }

    /// As [`ZSet::lower_bound_score`], by members. Means something only where all scores are equal,
    /// as with ZRANGEBYLEX; otherwise it is some rank.
    pub fn lower_bound_lex(&self, bound: Bound<&[u8]>) -> usize {
        match bound {
            Bound::Included(min) => self.partition_members(|member| member < min),
            Bound::Excluded(min) => self.partition_members(|member| member <= min),
            Bound::Unbounded => 0,
        }
    }

    /// As [`ZSet::upper_bound_score`], by members; see [`ZSet::lower_bound_lex`].
    pub fn upper_bound_lex(&self, bound: Bound<&[u8]>) -> usize {
        match bound {
            Bound::Included(max) => self.partition_members(|member| member <= max),
            Bound::Excluded(max) => self.partition_members(|member| member < max),
            Bound::Unbounded => self.len(),
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
                large.scores.scan(cursor, count, |member, score| visit(member, *score))
            }
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

    /// Takes what `encode` wrote off the front of `input`. A member that comes twice and a score
    /// that is NaN are malformed.
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Oracle = BTreeMap<Vec<u8>, f64>;

    const SMALL: Compact = Compact {
        hash_entries_max: 0,
        hash_value_bytes_max: 0,
        set_intset_entries_max: 0,
        set_entries_max: 0,
        set_value_bytes_max: 0,
        zset_entries_max: 6,
        zset_value_bytes_max: 8,
        list_chunk_bytes_max: 0,
        list_chunk_entries_max: 0,
        seed: 7,
    };

    fn member(number: u16) -> Vec<u8> {
        format!("m{number}").into_bytes()
    }

    /// Few distinct scores, so that many members tie; infinities and both zeros among them.
    fn score(number: u16) -> f64 {
        match number % 23 {
            0 => f64::NEG_INFINITY,
            1 => f64::INFINITY,
            2 => -0.0,
            3 => 0.0,
            rest => f64::from(rest) - 11.5,
        }
    }

    fn in_order(oracle: &Oracle) -> Vec<(&[u8], f64)> {
        let mut rows: Vec<(&[u8], f64)> =
            oracle.iter().map(|(member, score)| (member.as_slice(), *score)).collect();
        rows.sort_by(|left, right| order((left.1, left.0), (right.1, right.0)));
        rows
    }

    fn check_account(zset: &ZSet) {
        if let Form::Large(large) = &zset.form {
            let (kept, counted) = large.order.recounted_chunk_heap_bytes();
            assert_eq!(kept, counted);
            let (kept, counted) = large.scores.recounted_owned_bytes();
            assert_eq!(kept, counted);
        }
    }

    fn check_bounds(zset: &ZSet, rows: &[(&[u8], f64)], at: f64) {
        let first_not =
            |before: &dyn Fn(f64) -> bool| rows.iter().filter(|row| before(row.1)).count();
        let less = first_not(&|score| score < at);
        let less_or_equal = first_not(&|score| score <= at);
        assert_eq!(zset.lower_bound_score(Bound::Included(at)), less);
        assert_eq!(zset.lower_bound_score(Bound::Excluded(at)), less_or_equal);
        assert_eq!(zset.upper_bound_score(Bound::Included(at)), less_or_equal);
        assert_eq!(zset.upper_bound_score(Bound::Excluded(at)), less);
        assert_eq!(zset.lower_bound_score(Bound::Unbounded), 0);
        assert_eq!(zset.upper_bound_score(Bound::Unbounded), rows.len());
    }

    fn check(zset: &ZSet, oracle: &Oracle, seed: u16) {
        let rows = in_order(oracle);
        assert_eq!(zset.len(), rows.len());
        assert!(zset.iter().eq(rows.iter().copied()));
        assert!(zset.iter().rev().eq(rows.iter().rev().copied()));
        check_bounds(zset, &rows, score(seed));
        check_account(zset);
        let (start, end) = (usize::from(seed) % (rows.len() + 2), usize::from(seed / 7));
        let expected = rows.iter().copied().take(end).skip(start);
        assert!(zset.iter_range(start..end).eq(expected.clone()));
        let backwards: Vec<_> = zset.iter_range(start..end).rev().collect();
        assert!(backwards.into_iter().rev().eq(expected));
        if let Some(rank) = usize::from(seed).checked_rem(rows.len()) {
            assert_eq!(zset.get_index(rank), Some(rows[rank]));
            assert_eq!(zset.rank(rows[rank].0), Some(rank));
        }
        assert_eq!(zset.get_index(rows.len()), None);
        let absent = member(seed);
        assert_eq!(zset.score(&absent), oracle.get(&absent).copied());
        assert_eq!(zset.rank(&absent).is_some(), oracle.contains_key(&absent));
    }

    fn round_trip(zset: &ZSet, compact: &Compact) {
        let mut bytes = Vec::new();
        zset.encode(&mut bytes);
        let mut input = bytes.as_slice();
        assert_eq!(ZSet::decode(&mut input, compact).as_ref(), Ok(zset));
        assert!(input.is_empty());
        if let Some(cut) = bytes.len().checked_sub(1) {
            assert_eq!(ZSet::decode(&mut &bytes[..cut], compact), Err(Malformed));
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// `count` members from a number on, each with a score that depends on `salt`.
        Add {
            from: u16,
            count: u16,
            salt: u16,
        },
        Remove {
            from: u16,
            count: u16,
        },
        /// Ascending scores above all others: the load of a leaderboard.
        Append {
            from: u16,
            count: u16,
        },
        Clone,
    }

    fn steps(members: u16, run: u16) -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..members, 1..run, any::<u16>())
                .prop_map(|(from, count, salt)| Step::Add { from, count, salt }),
            3 => (0..members, 1..run).prop_map(|(from, count)| Step::Remove { from, count }),
            1 => (0..members, 1..run).prop_map(|(from, count)| Step::Append { from, count }),
            1 => Just(Step::Clone),
        ];
        proptest::collection::vec(step, 1..40)
    }

    fn add(zset: &mut ZSet, oracle: &mut Oracle, name: Vec<u8>, score: f64, compact: &Compact) {
        let expected = match oracle.get(&name) {
            None => AddResult::Added,
            Some(old) if is_same_score(*old, score) => AddResult::Same,
            Some(_) => AddResult::Updated,
        };
        assert_eq!(zset.add(&name, score, compact), expected);
        if expected != AddResult::Same {
            oracle.insert(name, score);
        }
    }

    fn run(steps: Vec<Step>, members: u16, compact: &Compact) {
        let (mut zset, mut oracle) = (ZSet::new(), Oracle::new());
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Step::Add { from, count, salt } => {
                    for number in from..from + count {
                        let score = score(number.wrapping_mul(salt | 1));
                        add(&mut zset, &mut oracle, member(number % members), score, compact);
                    }
                }
                Step::Append { from, count } => {
                    for number in from..from + count {
                        let score = 100.0 + f64::from(number);
                        add(&mut zset, &mut oracle, member(number % members), score, compact);
                    }
                }
                Step::Remove { from, count } => {
                    for number in from..from + count {
                        let name = member(number % members);
                        assert_eq!(zset.remove(&name), oracle.remove(&name).is_some());
                    }
                }
                Step::Clone => zset = zset.clone(),
            }
            check(&zset, &oracle, u16::try_from(index * 37).unwrap());
        }
        round_trip(&zset, compact);
        for name in oracle.keys() {
            assert!(zset.remove(name));
            check_account(&zset);
        }
        assert!(zset.is_empty());
    }

    proptest! {
        #[test]
        fn small_sets_are_ordered_as_the_oracle(steps in steps(16, 5)) {
            run(steps, 16, &SMALL);
        }

        /// Enough members for many chunks, so that they are cut and merged.
        #[test]
        fn large_sets_are_ordered_as_the_oracle(steps in steps(1500, 600)) {
            run(steps, 1500, &SMALL);
        }

        #[test]
        fn members_of_one_score_are_found_by_their_bytes(
            members in proptest::collection::btree_set("[a-d]{0,4}", 0..40),
            at in "[a-d]{0,4}",
        ) {
            let mut zset = ZSet::new();
            for member in &members {
                zset.add(member.as_bytes(), 0.0, &SMALL);
            }
            let less = members.range(..at.clone()).count();
            let less_or_equal = members.range(..=at.clone()).count();
            let at = at.as_bytes();
            prop_assert_eq!(zset.lower_bound_lex(Bound::Included(at)), less);
            prop_assert_eq!(zset.lower_bound_lex(Bound::Excluded(at)), less_or_equal);
            prop_assert_eq!(zset.upper_bound_lex(Bound::Included(at)), less_or_equal);
            prop_assert_eq!(zset.upper_bound_lex(Bound::Excluded(at)), less);
            prop_assert_eq!(zset.lower_bound_lex(Bound::Unbounded), 0);
            prop_assert_eq!(zset.upper_bound_lex(Bound::Unbounded), members.len());
        }
    }

    #[test]
    fn becomes_large_at_the_thresholds_of_redis() {
        let compact = Compact::default();
        let mut zset = ZSet::new();
        for number in 0..128 {
            zset.add(&member(number), 1.0, &compact);
        }
        assert_eq!(zset.encoding(), Encoding::Listpack);
        zset.add(b"one more", 1.0, &compact);
        assert_eq!(zset.encoding(), Encoding::Skiplist);
        let mut zset = ZSet::new();
        zset.add(&[b'x'; 64], 1.0, &compact);
        assert_eq!(zset.encoding(), Encoding::Listpack);
        zset.add(&[b'x'; 65], 1.0, &compact);
        assert_eq!(zset.encoding(), Encoding::Skiplist);
        assert_eq!(zset.len(), 2);
    }

    #[test]
    fn an_encoded_score_that_is_no_number_is_malformed() {
        let mut bytes = vec![1];
        bytes.extend_from_slice(&f64::NAN.to_le_bytes());
        bytes.extend_from_slice(&[1, b'm']);
        assert_eq!(ZSet::decode(&mut bytes.as_slice(), &SMALL), Err(Malformed));
    }

    #[test]
    fn the_order_costs_at_most_24_bytes_a_member() {
        let mut zset = ZSet::new();
        let mut state = 1u32;
        for number in 0..50_000u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            zset.add(&number.to_le_bytes(), f64::from(state), &SMALL);
        }
        let Form::Large(large) = &zset.form else { panic!("a large set") };
        assert!(large.order.heap_bytes() <= 24 * zset.len(), "{}", large.order.heap_bytes());
    }
}
