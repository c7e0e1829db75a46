//! Collections of few elements, in the heap block of their key's entry.
//!
//! ```text
//! count     u8   fields of a hash, else elements
//! elements
//! ```
//!
//! A hash: field, value, field, value ... A list or a set: its elements. An equal list, one of
//! elements of one length: this length in a byte, then their contents alone. A sorted set: score,
//! member, score, member ... in order. A set of integers: ascending, the first number zigzag v, then
//! the differences v (v = LEB128 varint). Fields, values and members are in the forms of [`element`],
//! equal contents in equal bytes, so that a search compares encoded bytes.
//!
//! The score of a member: the element of a number if it is integral; a byte that names a power of
//! ten and the element of a number if it is that number divided by the power; else a byte and the
//! eight bytes of the double.
//!
//! There are no back lengths: an iteration from the end first walks all elements.

mod change;
mod equal;
mod rows;
mod score;

pub(crate) use change::{Block, Rework, Scratch, change, create};
pub(crate) use equal::EqualList;
pub(crate) use rows::{Row, Rows};

use crate::change::Kind;
use crate::object::Object;
use crate::types::element;
use crate::types::packed::Packed;
use crate::types::text::{Scalar, canonical_integer};
use crate::types::{Hash, List, Set, Text, ZSet};
use crate::varint::{put_varint, take_varint};
use smallvec::SmallVec;

/// The count is one byte.
const COUNT_MAX: usize = u8::MAX as usize;
/// Bytes of the elements of a hash, a set or a sorted set, all of which are searched and moved as a
/// whole in their other compact form as well.
const BYTES_MAX: usize = 4096;
/// Bytes of the elements of a list: a pop walks them all.
const LIST_BYTES_MAX: usize = 512;

const _: () = assert!(LIST_BYTES_MAX <= BYTES_MAX);
const _: () = assert!(BYTES_MAX <= u16::MAX as usize, "positions fit u16");

/// The type of a small collection, and its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SmallKind {
    Hash,
    List,
    /// A list of elements of one length.
    EqualList,
    /// A set of any members.
    Set,
    /// A set of integers.
    Integers,
    ZSet,
}

impl SmallKind {
    pub(crate) fn kind(self) -> Kind {
        match self {
            SmallKind::Hash => Kind::Hash,
            SmallKind::List | SmallKind::EqualList => Kind::List,
            SmallKind::Set | SmallKind::Integers => Kind::Set,
            SmallKind::ZSet => Kind::ZSet,
        }
    }

    fn bytes_max(self) -> usize {
        if self.kind() == Kind::List { LIST_BYTES_MAX } else { BYTES_MAX }
    }
}

/// The bytes of an element that is searched for; a longer one is nowhere.
type Needle = SmallVec<[u8; 96]>;

fn needle(bytes: &[u8]) -> Option<Needle> {
    if bytes.len() > BYTES_MAX {
        return None;
    }
    let mut needle = Needle::new();
    element::put(&mut needle, bytes);
    Some(needle)
}

/// Whether an element is the one that is searched for. Those of a collection often begin alike.
#[inline]
fn is_at(element: &[u8], needle: &[u8]) -> bool {
    element.len() == needle.len() && has_same_end(element, needle) && element == needle
}

/// Whether the last four bytes are equal, or the last one of shorter elements of equal lengths.
#[inline]
fn has_same_end(element: &[u8], needle: &[u8]) -> bool {
    match (element.last_chunk::<4>(), needle.last_chunk::<4>()) {
        (Some(element), Some(needle)) => element == needle,
        _ => element.last() == needle.last(),
    }
}

/// Count and elements of a small collection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Small<'a> {
    count: usize,
    bytes: &'a [u8],
}

/// Positions of a field, of its value, and of what follows.
struct Pair {
    field_at: usize,
    value_at: usize,
    next: usize,
}

/// Positions of a score, of its member, and of what follows.
struct Scored {
    at: usize,
    member_at: usize,
    next: usize,
    score: f64,
}

impl<'a> Small<'a> {
    /// `block` begins with the count.
    #[inline]
    pub(crate) fn new(block: &'a [u8]) -> Small<'a> {
        Small { count: usize::from(block[0]), bytes: &block[1..] }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.count
    }

    /// Bytes of all elements.
    pub(crate) fn byte_len(self) -> usize {
        self.bytes.len()
    }

    /// The address of the elements, for DEBUG OBJECT.
    pub(crate) fn address(self) -> usize {
        self.bytes.as_ptr().addr()
    }

    #[inline]
    pub(crate) fn rows<R: Row<'a>>(self) -> Rows<'a, R> {
        Rows::new(self.bytes, self.count)
    }

    /// The rows from the front only: cheaper than [`Small::rows`].
    #[inline]
    pub(crate) fn forward<R: Row<'a>>(self) -> impl Iterator<Item = R> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || (!rest.is_empty()).then(|| R::take(&mut rest)))
    }

    /// Elements of a list or a set, fields and values of a hash.
    fn members(self) -> impl Iterator<Item = Scalar<'a>> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| element::take(&mut rest).expect("made by `put`"))
        })
    }

    /// Position of a member of a set, and of what follows.
    fn find_element(self, needle: &[u8]) -> Option<(usize, usize)> {
        let mut at = 0;
        while at < self.bytes.len() {
            let next = at + element::len(&self.bytes[at..]);
            if is_at(&self.bytes[at..next], needle) {
                return Some((at, next));
            }
            at = next;
        }
        None
    }

    #[inline]
    fn find_pair(self, needle: &[u8]) -> Option<Pair> {
        let mut at = 0;
        while at < self.bytes.len() {
            let value_at = at + element::len(&self.bytes[at..]);
            let next = value_at + element::len(&self.bytes[value_at..]);
            if is_at(&self.bytes[at..value_at], needle) {
                return Some(Pair { field_at: at, value_at, next });
            }
            at = next;
        }
        None
    }

    /// Positions of the members of a sorted set.
    fn scored(self) -> impl Iterator<Item = Scored> + 'a {
        let bytes = self.bytes;
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= bytes.len() {
                return None;
            }
            let mut rest = &bytes[at..];
            let score = score::take(&mut rest);
            let member_at = bytes.len() - rest.len();
            let next = member_at + element::len(rest);
            let found = Scored { at, member_at, next, score };
            at = next;
            Some(found)
        })
    }

    /// Rank and positions of a member of a sorted set.
    fn find_scored(self, needle: &[u8]) -> Option<(usize, Scored)> {
        let (mut at, mut rank) = (0, 0);
        while at < self.bytes.len() {
            let member_at = at + score::len(&self.bytes[at..]);
            let next = member_at + element::len(&self.bytes[member_at..]);
            if is_at(&self.bytes[member_at..next], needle) {
                let score = score::take(&mut &self.bytes[at..]);
                return Some((rank, Scored { at, member_at, next, score }));
            }
            (at, rank) = (next, rank + 1);
        }
        None
    }

    pub(crate) fn hash_get(self, field: &[u8]) -> Option<Text<'a>> {
        let pair = self.find_pair(&needle(field)?)?;
        Some(self.element(pair.value_at).into())
    }

    fn element(self, at: usize) -> Scalar<'a> {
        element::take(&mut &self.bytes[at..]).expect("made by `put`")
    }

    pub(crate) fn set_contains(self, member: &[u8]) -> bool {
        needle(member).is_some_and(|needle| self.find_element(&needle).is_some())
    }

    pub(crate) fn set_members(self) -> impl Iterator<Item = Scalar<'a>> {
        self.members()
    }

    pub(crate) fn integers(self) -> Integers<'a> {
        Integers { rest: self.bytes, previous: None }
    }

    pub(crate) fn integers_contain(self, member: &[u8]) -> bool {
        canonical_integer(member)
            .is_some_and(|wanted| self.integers().find(|number| *number >= wanted) == Some(wanted))
    }

    /// Appends what [`Set::encode`] appends for the same integers, without the form.
    pub(crate) fn encode_integers(self, out: &mut Vec<u8>) {
        put_varint(out, self.count as u64);
        out.extend_from_slice(self.bytes);
    }

    /// Rank and score of a member.
    pub(crate) fn zset_find(self, member: &[u8]) -> Option<(usize, f64)> {
        self.find_scored(&needle(member)?).map(|(rank, row)| (rank, row.score))
    }

    /// Number of members before the first whose score is not `before`.
    pub(crate) fn partition_scores(self, before: impl Fn(f64) -> bool) -> usize {
        self.scored().take_while(|row| before(row.score)).count()
    }

    /// Likewise by members.
    pub(crate) fn partition_members(self, before: impl Fn(&[u8]) -> bool) -> usize {
        self.rows::<(Text<'_>, f64)>().take_while(|(member, _)| before(member)).count()
    }

    /// The same collection in its other form.
    pub(crate) fn to_object(self, kind: SmallKind) -> Object {
        let packed = |elements: &mut dyn Iterator<Item = Scalar<'a>>| {
            let mut packed = Packed::default();
            elements.for_each(|member| member.with_bytes(|bytes| packed.push_back(bytes)));
            packed
        };
        match kind {
            SmallKind::Hash => Object::Hash(Hash::of_packed(packed(&mut self.members()))),
            SmallKind::Set => Object::Set(Set::of_packed(packed(&mut self.members()))),
            SmallKind::Integers => Object::Set(Set::of_integers(self.integers().collect())),
            SmallKind::List => Object::List(list_of(self.members())),
            SmallKind::EqualList => {
                Object::List(list_of(EqualList::new(self).iter().map(Scalar::Bytes)))
            }
            SmallKind::ZSet => Object::ZSet(ZSet::of_rows(self.rows())),
        }
    }

    /// Bytes of the block of a collection as a small one, if it is one of few elements in its
    /// compact form.
    pub(crate) fn of_object(object: &Object) -> Option<(SmallKind, Scratch)> {
        if object.len() > COUNT_MAX || object.len() == 0 {
            return None;
        }
        let mut scratch = Scratch::default();
        let kind = match object {
            Object::Hash(hash) => scratch.extend(SmallKind::Hash, hash.packed()?)?,
            Object::List(list) => scratch.extend_list(list.packed()?)?,
            Object::Set(set) => match set.integers() {
                Some(integers) => scratch.extend_integers(integers)?,
                None => scratch.extend(SmallKind::Set, set.packed()?)?,
            },
            Object::ZSet(zset) => scratch.extend_scored(zset.packed_rows()?)?,
            Object::Stream(_) | Object::Series(_) => return None,
        };
        scratch.set_count(object.len());
        Some((kind, scratch))
    }
}

/// A list of one block, an equal one if it can be.
fn list_of<'a>(elements: impl Iterator<Item = Scalar<'a>>) -> List {
    let mut packed = Packed::default();
    for element in elements {
        element.with_bytes(|bytes| {
            if packed.is_empty() {
                packed = Packed::equal(bytes.len());
            }
            packed.push_back(bytes);
        });
    }
    List::of_packed(packed)
}

/// The members of a set of integers, ascending.
#[derive(Debug, Clone)]
pub(crate) struct Integers<'a> {
    rest: &'a [u8],
    previous: Option<i64>,
}

impl Iterator for Integers<'_> {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        if self.rest.is_empty() {
            return None;
        }
        let bits = take_varint(&mut self.rest).expect("made by `put_number`");
        let number = match self.previous {
            None => (bits >> 1).cast_signed() ^ -(bits & 1).cast_signed(),
            Some(previous) => previous.wrapping_add_unsigned(bits),
        };
        self.previous = Some(number);
        Some(number)
    }
}

/// Appends a number of a set of integers, given the one before it.
fn put_number(out: &mut Vec<u8>, previous: Option<i64>, number: i64) {
    let bits = match previous {
        None => ((number << 1) ^ (number >> 63)).cast_unsigned(),
        Some(previous) => number.abs_diff(previous),
    };
    put_varint(out, bits);
}

#[cfg(test)]
mod tests;
