//! Changes of small collections in place.

use smallvec::SmallVec;

use super::equal::common_width;
use super::score;
use super::{COUNT_MAX, EqualList, Needle, Small, SmallKind, is_at, needle, put_number};
use crate::change::{Change, End};
use crate::items::Items;
use crate::types::Compact;
use crate::types::element;
use crate::types::packed::Packed;
use crate::types::text::canonical_integer;
use crate::types::zset;

/// Bytes that hold a small collection.
pub(crate) trait Block {
    fn small(&self) -> Small<'_>;

    /// Replaces `removed` bytes at `at`, counted from the first element, and sets the count.
    fn splice(&mut self, at: usize, removed: usize, inserted: &[u8], count: usize);
}

/// The collection does not fit its form, or the change is not made in place. What was done remains;
/// the same change is made in the other form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rework;

/// A small collection that has no entry yet.
#[derive(Debug, Clone)]
pub(crate) struct Scratch {
    block: SmallVec<[u8; 512]>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { block: smallvec::smallvec![0] }
    }
}

impl Scratch {
    /// Count and elements.
    pub(crate) fn block(&self) -> &[u8] {
        &self.block
    }

    pub(super) fn set_count(&mut self, count: usize) {
        self.block[0] = u8::try_from(count).expect("at most COUNT_MAX");
    }

    fn fitting(&self, kind: SmallKind) -> Option<SmallKind> {
        (self.block.len() - 1 <= kind.bytes_max()).then_some(kind)
    }

    /// Appends the elements of a collection, if they fit.
    pub(super) fn extend(&mut self, kind: SmallKind, packed: &Packed) -> Option<SmallKind> {
        if packed.live_bytes() > 2 * kind.bytes_max() {
            return None; // more than the same elements could take here
        }
        packed.iter().for_each(|bytes| element::put(&mut self.block, bytes));
        self.fitting(kind)
    }

    /// Appends the elements of a list, if they fit, in the form that takes less.
    pub(super) fn extend_list(&mut self, packed: &Packed) -> Option<SmallKind> {
        if packed.live_bytes() > 2 * SmallKind::List.bytes_max() {
            return None; // as above
        }
        packed.iter().for_each(|bytes| element::put(&mut self.block, bytes));
        let Some(width) = common_width(packed.iter(), self.block.len() - 1) else {
            return self.fitting(SmallKind::List);
        };
        self.block.truncate(1);
        self.block.push(width);
        packed.iter().for_each(|bytes| self.block.extend_from_slice(bytes));
        Some(SmallKind::EqualList)
    }

    pub(super) fn extend_integers(&mut self, integers: &[i64]) -> Option<SmallKind> {
        let (mut bytes, mut previous) = (Vec::new(), None);
        for number in integers {
            put_number(&mut bytes, previous, *number);
            previous = Some(*number);
        }
        self.block.extend_from_slice(&bytes);
        self.fitting(SmallKind::Integers)
    }

    pub(super) fn extend_scored<'r>(
        &mut self,
        rows: impl Iterator<Item = (&'r [u8], f64)>,
    ) -> Option<SmallKind> {
        for (member, score) in rows {
            score::put(&mut self.block, score);
            element::put(&mut self.block, member);
            self.fitting(SmallKind::ZSet)?;
        }
        Some(SmallKind::ZSet)
    }
}

impl Block for Scratch {
    fn small(&self) -> Small<'_> {
        Small::new(&self.block)
    }

    fn splice(&mut self, at: usize, removed: usize, inserted: &[u8], count: usize) {
        let (at, end) = (1 + at, self.block.len());
        if inserted.len() > removed {
            self.block.resize(end + inserted.len() - removed, 0);
        }
        self.block.copy_within(at + removed..end, at + inserted.len());
        self.block.truncate(end + inserted.len() - removed);
        self.block[at..at + inserted.len()].copy_from_slice(inserted);
        self.set_count(count);
    }
}

/// The small collection that a change of an absent key creates. [`Rework`]: it is not small.
pub(crate) fn create(
    change: &Change<'_>,
    compact: &Compact,
) -> Result<(SmallKind, Scratch), Rework> {
    let kind = match change {
        Change::HashSet { .. } | Change::HashUpdate { .. } => SmallKind::Hash,
        Change::ListPush { end, values } => return create_list(*end, *values, compact),
        Change::ZSetAdd { .. } => SmallKind::ZSet,
        Change::SetAdd { members } => {
            let first = members.iter().next().ok_or(Rework)?;
            let is_integer = canonical_integer(first).is_some();
            if is_integer { SmallKind::Integers } else { SmallKind::Set }
        }
        _ => return Err(Rework),
    };
    let mut scratch = Scratch::default();
    self::change(&mut scratch, kind, change, compact)?;
    if scratch.small().len() == 0 { Err(Rework) } else { Ok((kind, scratch)) }
}

fn create_list(
    end: End,
    values: Items<'_>,
    compact: &Compact,
) -> Result<(SmallKind, Scratch), Rework> {
    let mut scratch = Scratch::default();
    push(&mut scratch, end, values, compact)?;
    let small = scratch.small();
    let Some(width) = common_width(values.iter(), small.byte_len()) else {
        return if small.len() == 0 { Err(Rework) } else { Ok((SmallKind::List, scratch)) };
    };
    let mut scratch = Scratch::default();
    scratch.splice(0, 0, &[width], 0);
    push_equal(&mut scratch, end, values, compact)?;
    Ok((SmallKind::EqualList, scratch))
}

/// Changes a collection of the type that the change concerns.
pub(crate) fn change(
    block: &mut impl Block,
    kind: SmallKind,
    change: &Change<'_>,
    compact: &Compact,
) -> Result<(), Rework> {
    match (kind, *change) {
        (SmallKind::Hash, Change::HashSet { pairs } | Change::HashUpdate { pairs }) => {
            let mut items = pairs.iter();
            while let (Some(field), Some(value)) = (items.next(), items.next()) {
                set_field(block, field, value, compact)?;
            }
        }
        (SmallKind::Hash, Change::HashExpire { at: None, .. }) => {} // none expires
        (SmallKind::Hash, Change::HashRemove { fields }) => {
            fields.iter().for_each(|field| remove_field(block, field));
        }
        (SmallKind::List, Change::ListPush { end, values }) => {
            return push(block, end, values, compact);
        }
        (SmallKind::List, Change::ListPop { end, count }) => pop(block, end, count),
        (SmallKind::EqualList, Change::ListPush { end, values }) => {
            return push_equal(block, end, values, compact);
        }
        (SmallKind::EqualList, Change::ListPop { end, count }) => pop_equal(block, end, count),
        (SmallKind::Set, Change::SetAdd { members }) => {
            members.iter().try_for_each(|member| add_member(block, member, compact))?;
        }
        (SmallKind::Set, Change::SetRemove { members }) => {
            members.iter().for_each(|member| remove_member(block, member));
        }
        (SmallKind::Integers, Change::SetAdd { members }) => {
            members.iter().try_for_each(|member| add_integer(block, member, compact))?;
        }
        (SmallKind::Integers, Change::SetRemove { members }) => {
            members.iter().for_each(|member| remove_integer(block, member));
        }
        (SmallKind::ZSet, Change::ZSetAdd { members }) => {
            members
                .iter()
                .try_for_each(|(score, member)| add_scored(block, score, member, compact))?;
        }
        (SmallKind::ZSet, Change::ZSetRemove { members }) => {
            members.iter().for_each(|member| remove_scored(block, member));
        }
        _ => return Err(Rework),
    }
    Ok(())
}

/// Refuses a change after which the elements would not fit.
fn check(small: Small<'_>, kind: SmallKind, removed: usize, inserted: usize) -> Result<(), Rework> {
    let bytes = small.bytes.len() - removed + inserted;
    if bytes <= kind.bytes_max() { Ok(()) } else { Err(Rework) }
}

fn set_field(
    block: &mut impl Block,
    field: &[u8],
    value: &[u8],
    compact: &Compact,
) -> Result<(), Rework> {
    if field.len().max(value.len()) > compact.hash_value_bytes_max {
        return Err(Rework);
    }
    let mut pair: SmallVec<[u8; 256]> = SmallVec::new();
    element::put(&mut pair, field);
    let field_bytes = pair.len();
    element::put(&mut pair, value);
    let (field, value) = pair.split_at(field_bytes);
    let small = block.small();
    if let Some(found) = small.find_pair(field) {
        let old = found.value_at..found.next;
        check(small, SmallKind::Hash, old.len(), value.len())?;
        let count = small.count;
        block.splice(old.start, old.len(), value, count);
        return Ok(());
    }
    if small.count >= compact.hash_entries_max.min(COUNT_MAX) {
        return Err(Rework);
    }
    check(small, SmallKind::Hash, 0, pair.len())?;
    let (at, count) = (small.bytes.len(), small.count);
    block.splice(at, 0, &pair, count + 1);
    Ok(())
}

fn remove_field(block: &mut impl Block, field: &[u8]) {
    let Some(needle) = needle(field) else { return };
    let small = block.small();
    let Some(found) = small.find_pair(&needle) else { return };
    let count = small.count - 1;
    block.splice(found.field_at, found.next - found.field_at, &[], count);
}

fn push(
    block: &mut impl Block,
    end: End,
    values: Items<'_>,
    compact: &Compact,
) -> Result<(), Rework> {
    let small = block.small();
    let count = small.count + values.len();
    if count > compact.list_chunk_entries_max.min(COUNT_MAX) {
        return Err(Rework);
    }
    let mut pushed: SmallVec<[u8; 256]> = SmallVec::new();
    for value in values.iter() {
        check(small, SmallKind::List, 0, pushed.len() + value.len().min(8))?;
        element::put(&mut pushed, value);
    }
    check(small, SmallKind::List, 0, pushed.len())?;
    if end == End::Back {
        let at = small.bytes.len();
        block.splice(at, 0, &pushed, count);
        return Ok(());
    }
    let (mut rest, mut before) = (&pushed[..], small.count);
    while !rest.is_empty() {
        let (element, after) = rest.split_at(element::len(rest));
        before += 1;
        block.splice(0, 0, element, before);
        rest = after;
    }
    Ok(())
}

fn pop(block: &mut impl Block, end: End, count: u64) {
    let small = block.small();
    let popped = usize::try_from(count).unwrap_or(usize::MAX).min(small.count);
    let left = small.count - popped;
    let walked = if end == End::Front { popped } else { left };
    let at = (0..walked).fold(0, |at, _| at + element::len(&small.bytes[at..]));
    let range = if end == End::Front { 0..at } else { at..small.bytes.len() };
    block.splice(range.start, range.len(), &[], left);
}

fn push_equal(
    block: &mut impl Block,
    end: End,
    values: Items<'_>,
    compact: &Compact,
) -> Result<(), Rework> {
    let small = block.small();
    let (width, count) = (EqualList::new(small).width(), small.count + values.len());
    if count > compact.list_chunk_entries_max.min(COUNT_MAX)
        || values.iter().any(|value| value.len() != width)
    {
        return Err(Rework);
    }
    check(small, SmallKind::EqualList, 0, values.len() * width)?;
    let mut pushed: SmallVec<[u8; 256]> = SmallVec::new();
    values.iter().for_each(|value| pushed.extend_from_slice(value));
    if end == End::Back {
        let at = small.bytes.len();
        block.splice(at, 0, &pushed, count);
        return Ok(());
    }
    // The last value becomes the first element.
    pushed.reverse();
    pushed.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    block.splice(1, 0, &pushed, count);
    Ok(())
}

fn pop_equal(block: &mut impl Block, end: End, count: u64) {
    let small = block.small();
    let width = EqualList::new(small).width();
    let popped = usize::try_from(count).unwrap_or(usize::MAX).min(small.count);
    let (left, bytes) = (small.count - popped, popped * width);
    let at = if end == End::Front { 1 } else { 1 + left * width };
    block.splice(at, bytes, &[], left);
}

fn add_member(block: &mut impl Block, member: &[u8], compact: &Compact) -> Result<(), Rework> {
    let needle: Needle = needle(member).ok_or(Rework)?;
    let small = block.small();
    if small.find_element(&needle).is_some() {
        return Ok(());
    }
    if member.len() > compact.set_value_bytes_max
        || small.count >= compact.set_entries_max.min(COUNT_MAX)
    {
        return Err(Rework);
    }
    check(small, SmallKind::Set, 0, needle.len())?;
    let (at, count) = (small.bytes.len(), small.count);
    block.splice(at, 0, &needle, count + 1);
    Ok(())
}

fn remove_member(block: &mut impl Block, member: &[u8]) {
    let Some(needle) = needle(member) else { return };
    let small = block.small();
    let Some((at, next)) = small.find_element(&needle) else { return };
    let count = small.count - 1;
    block.splice(at, next - at, &[], count);
}

/// The place of a number among ascending ones.
struct NumberPlace {
    /// The number before it.
    previous: Option<i64>,
    at: usize,
    /// The first number that is not less, and the position after it.
    next: Option<(i64, usize)>,
}

fn place_of(small: Small<'_>, number: i64) -> NumberPlace {
    let mut numbers = small.integers();
    let (mut previous, mut at) = (None, 0);
    while let Some(next) = numbers.next() {
        let end = small.bytes.len() - numbers.rest.len();
        if next >= number {
            return NumberPlace { previous, at, next: Some((next, end)) };
        }
        (previous, at) = (Some(next), end);
    }
    NumberPlace { previous, at, next: None }
}

fn add_integer(block: &mut impl Block, member: &[u8], compact: &Compact) -> Result<(), Rework> {
    let number = canonical_integer(member).ok_or(Rework)?;
    let small = block.small();
    let place = place_of(small, number);
    if place.next.is_some_and(|(next, _)| next == number) {
        return Ok(());
    }
    if small.count >= compact.set_intset_entries_max.min(COUNT_MAX) {
        return Err(Rework);
    }
    let mut bytes = Vec::with_capacity(20);
    put_number(&mut bytes, place.previous, number);
    let mut end = place.at;
    if let Some((next, next_end)) = place.next {
        put_number(&mut bytes, Some(number), next);
        end = next_end;
    }
    check(small, SmallKind::Integers, end - place.at, bytes.len())?;
    let count = small.count + 1;
    block.splice(place.at, end - place.at, &bytes, count);
    Ok(())
}

fn remove_integer(block: &mut impl Block, member: &[u8]) {
    let Some(number) = canonical_integer(member) else { return };
    let small = block.small();
    let place = place_of(small, number);
    let Some((_, mut end)) = place.next.filter(|(next, _)| *next == number) else { return };
    let mut bytes = Vec::with_capacity(10);
    let mut after = super::Integers { rest: &small.bytes[end..], previous: Some(number) };
    if let Some(next) = after.next() {
        put_number(&mut bytes, place.previous, next);
        end = small.bytes.len() - after.rest.len();
    }
    let count = small.count - 1;
    block.splice(place.at, end - place.at, &bytes, count);
}

fn add_scored(
    block: &mut impl Block,
    score: f64,
    member: &[u8],
    compact: &Compact,
) -> Result<(), Rework> {
    let needle: Needle = needle(member).ok_or(Rework)?;
    let small = block.small();
    let (mut found, mut place) = (None, None);
    for row in small.scored() {
        if found.is_none() && is_at(&small.bytes[row.member_at..row.next], &needle) {
            if zset::is_same_score(row.score, score) {
                return Ok(());
            }
            found = Some(row.at..row.next);
        } else if place.is_none() {
            let is_after = row.score > score
                || (zset::is_same_score(row.score, score)
                    && small.element(row.member_at).with_bytes(|other| other > member));
            if is_after {
                place = Some(row.at);
            }
        } else if found.is_some() {
            break;
        }
    }
    let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
    score::put(&mut bytes, score);
    bytes.extend_from_slice(&needle);
    let place = place.unwrap_or(small.bytes.len());
    let count = small.count;
    if let Some(old) = found {
        check(small, SmallKind::ZSet, old.len(), bytes.len())?;
        if place == old.end || place == old.start {
            block.splice(old.start, old.len(), &bytes, count);
        } else {
            block.splice(old.start, old.len(), &[], count);
            let place = if place > old.start { place - old.len() } else { place };
            block.splice(place, 0, &bytes, count);
        }
        return Ok(());
    }
    if member.len() > compact.zset_value_bytes_max
        || count >= compact.zset_entries_max.min(COUNT_MAX)
    {
        return Err(Rework);
    }
    check(small, SmallKind::ZSet, 0, bytes.len())?;
    block.splice(place, 0, &bytes, count + 1);
    Ok(())
}

fn remove_scored(block: &mut impl Block, member: &[u8]) {
    let Some(needle) = needle(member) else { return };
    let small = block.small();
    let Some((_, row)) = small.find_scored(&needle) else { return };
    let count = small.count - 1;
    block.splice(row.at, row.next - row.at, &[], count);
}
