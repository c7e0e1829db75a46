//! Distinct byte strings: a sorted array of integers, one packed block, or a table.

use super::packed::Packed;
use super::table::Table;
use super::text::{INTEGER_TEXT_BYTES_MAX, Scalar, canonical_integer};
use super::{Compact, Encoding, Malformed, allocation_bytes};
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// An array of integers may have room for as many as it holds and these, before it is shrunk.
const INTEGERS_SPARE: usize = 8;

// First byte of an encoded set.
pub(crate) const ENCODED_BYTES: u8 = 0;
pub(crate) const ENCODED_INTEGERS: u8 = 1;

/// A set of byte strings.
///
/// Integers: lookup O(log members), change O(members). Packed: all O(members). Table: all O(1).
#[derive(Debug, Clone)]
pub struct Set {
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    /// Ascending.
    Integers(Vec<i64>),
    Packed(Packed),
    Table(Table<()>),
}

fn find(packed: &Packed, member: &[u8]) -> Option<std::ops::Range<usize>> {
    let element = packed.elements().find(|element| element.bytes == member)?;
    Some(element.at..element.next)
}

fn shrink(integers: &mut Vec<i64>) {
    if integers.capacity() > 2 * integers.len() + INTEGERS_SPARE {
        integers.shrink_to(integers.len() + integers.len() / 4);
    }
}

impl Default for Set {
    fn default() -> Set {
        Set::new()
    }
}

impl Set {
    /// No members, no allocation.
    pub fn new() -> Set {
        Set { form: Form::Integers(Vec::new()) }
    }

    pub(crate) fn of_packed(packed: Packed) -> Set {
        Set { form: Form::Packed(packed) }
    }

    /// The numbers must ascend.
    pub(crate) fn of_integers(integers: Vec<i64>) -> Set {
        debug_assert!(integers.is_sorted());
        Set { form: Form::Integers(integers) }
    }

    /// The block of a compact set of strings.
    pub(crate) fn packed(&self) -> Option<&Packed> {
        match &self.form {
            Form::Packed(packed) => Some(packed),
            _ => None,
        }
    }

    /// The members of a set of integers.
    pub(crate) fn integers(&self) -> Option<&[i64]> {
        match &self.form {
            Form::Integers(integers) => Some(integers),
            _ => None,
        }
    }

    /// Number of members. O(1).
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => integers.len(),
            Form::Packed(packed) => packed.len(),
            Form::Table(table) => table.len(),
        }
    }

    /// O(1).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the member is there. O(1), integers O(log members), packed O(members).
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.form {
            Form::Integers(integers) => canonical_integer(member)
                .is_some_and(|number| integers.binary_search(&number).is_ok()),
            Form::Packed(packed) => find(packed, member).is_some(),
            Form::Table(table) => table.find(member).is_some(),
        }
    }

    /// Adds a member; true if it is new. O(1), compact O(members); O(members) the one time when
    /// the set changes its form.
    pub fn add(&mut self, member: &[u8], compact: &Compact) -> bool {
        if matches!(self.form, Form::Integers(_)) {
            match canonical_integer(member) {
                Some(number) => return self.add_integer(number, compact),
                None => self.leave_integers(compact),
            }
        }
        if let Form::Packed(packed) = &mut self.form {
            if find(packed, member).is_some() {
                return false;
            }
            if member.len() <= compact.set_value_bytes_max && packed.len() < compact.set_entries_max
            {
                packed.push_back(member);
                return true;
            }
            self.become_table(compact.seed);
        }
        match &mut self.form {
            Form::Table(table) => {
                let is_new = table.find(member).is_none();
                if is_new {
                    table.insert(member, &[], ());
                }
                is_new
            }
            _ => unreachable!("the set has just become a table"),
        }
    }

    fn add_integer(&mut self, number: i64, compact: &Compact) -> bool {
        let Form::Integers(integers) = &mut self.form else {
            unreachable!("the caller has checked the form")
        };
        let Err(index) = integers.binary_search(&number) else { return false };
        integers.insert(index, number);
        if integers.len() > compact.set_intset_entries_max {
            self.become_table(compact.seed);
        }
        true
    }

    /// From integers to packed if they fit there, else to a table.
    fn leave_integers(&mut self, compact: &Compact) {
        let fits = self.len() <= compact.set_entries_max
            && compact.set_value_bytes_max >= INTEGER_TEXT_BYTES_MAX;
        if !self.is_empty() && !fits {
            return self.become_table(compact.seed);
        }
        let mut packed = Packed::default();
        self.iter().for_each(|member| member.with_bytes(|bytes| packed.push_back(bytes)));
        self.form = Form::Packed(packed);
    }

    fn become_table(&mut self, seed: u64) {
        let mut table = Table::new(seed);
        for member in self.iter() {
            member.with_bytes(|bytes| table.insert(bytes, &[], ()));
        }
        self.form = Form::Table(table);
    }

    /// Removes a member; false if it is not there. O(1), compact O(members).
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.form {
            Form::Integers(integers) => {
                let index = canonical_integer(member)
                    .and_then(|number| integers.binary_search(&number).ok());
                let Some(index) = index else { return false };
                integers.remove(index);
                shrink(integers);
                true
            }
            Form::Packed(packed) => {
                let Some(range) = find(packed, member) else { return false };
                packed.remove(range, 1);
                true
            }
            Form::Table(table) => table.remove(member),
        }
    }

    /// All members: integers in ascending order, others in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = Scalar<'_>> {
        let (integers, packed, table) = match &self.form {
            Form::Integers(integers) => (Some(integers), None, None),
            Form::Packed(packed) => (None, Some(packed), None),
            Form::Table(table) => (None, None, Some(table)),
        };
        let integers = integers.into_iter().flatten().map(|number| Scalar::Int(*number));
        let packed = packed.into_iter().flat_map(Packed::iter);
        let rows = table.into_iter().flat_map(Table::iter).map(|(member, _, ())| member);
        integers.chain(packed.chain(rows).map(Scalar::Bytes))
    }

    /// The member at an index below `len`, for uniform random choice; indexes change with every
    /// change of the set. O(1), packed O(members).
    pub fn get_index(&self, index: usize) -> Option<Scalar<'_>> {
        match &self.form {
            Form::Integers(integers) => integers.get(index).copied().map(Scalar::Int),
            Form::Packed(packed) => packed.get(index).map(Scalar::Bytes),
            Form::Table(table) => {
                table.get_index(index).map(|(member, _, ())| Scalar::Bytes(member))
            }
        }
    }

    /// Visits about `count` members from `cursor` on (0 at first) and returns the next cursor, 0 at
    /// the end. A member that is there from the first call to the last is visited at least once.
    /// A compact set is visited whole.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Scalar<'_>)) -> u64 {
        if let Form::Table(table) = &self.form {
            return table.scan(cursor, count, |member, _, ()| visit(Scalar::Bytes(member)));
        }
        self.iter().for_each(visit);
        0
    }

    /// Prefetches the elements of a compact form.
    pub(crate) fn prefetch(&self) {
        if let Form::Packed(packed) = &self.form {
            packed.prefetch();
        }
    }

    /// Bytes of heap, without the value itself. O(1).
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => allocation_bytes(integers.capacity() * size_of::<i64>()),
            Form::Packed(packed) => packed.heap_bytes(),
            Form::Table(table) => table.heap_bytes(),
        }
    }

    /// `Intset`, `Listpack` or `Hashtable`.
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Form::Integers(_) => Encoding::Intset,
            Form::Packed(_) => Encoding::Listpack,
            Form::Table(_) => Encoding::Hashtable,
        }
    }

    /// Appends a form byte, the number of members v, and the members (v = LEB128 varint): form 0
    /// each as length v and bytes; form 1 as the first number zigzag v, then the differences v from
    /// one to the next. O(bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Form::Integers(integers) = &self.form {
            return encode_integers(integers, out);
        }
        out.push(ENCODED_BYTES);
        put_varint(out, self.len() as u64);
        self.iter().for_each(|member| member.with_bytes(|bytes| put_bytes(out, bytes)));
    }

    /// Takes what `encode` wrote off the front of `input`. A duplicate member is malformed.
    pub fn decode(input: &mut &[u8], compact: &Compact) -> Result<Set, Malformed> {
        let (form, rest) = input.split_first().ok_or(Malformed)?;
        *input = rest;
        let count = take_varint(input)?;
        match *form {
            ENCODED_BYTES => decode_bytes(count, input, compact),
            ENCODED_INTEGERS => decode_integers(count, input, compact),
            _ => Err(Malformed),
        }
    }
}

fn encode_integers(integers: &[i64], out: &mut Vec<u8>) {
    out.push(ENCODED_INTEGERS);
    put_varint(out, integers.len() as u64);
    if let Some(first) = integers.first() {
        put_varint(out, ((first << 1) ^ (first >> 63)).cast_unsigned());
    }
    for pair in integers.windows(2) {
        put_varint(out, pair[1].abs_diff(pair[0]));
    }
}

fn decode_bytes(count: u64, input: &mut &[u8], compact: &Compact) -> Result<Set, Malformed> {
    let mut set = Set::new();
    for _ in 0..count {
        if !set.add(take_bytes(input)?, compact) {
            return Err(Malformed);
        }
    }
    Ok(set)
}

fn decode_integers(count: u64, input: &mut &[u8], compact: &Compact) -> Result<Set, Malformed> {
    let mut set = Set::new();
    let mut previous = None;
    for _ in 0..count {
        let bits = take_varint(input)?;
        let number = match previous {
            None => (bits >> 1).cast_signed() ^ -(bits & 1).cast_signed(),
            Some(number) => i64::checked_add_unsigned(number, bits).ok_or(Malformed)?,
        };
        let is_new = Scalar::Int(number).with_bytes(|bytes| set.add(bytes, compact));
        if !is_new {
            return Err(Malformed);
        }
        previous = Some(number);
    }
    Ok(set)
}

/// The same members, in whatever form.
impl PartialEq for Set {
    fn eq(&self, other: &Set) -> bool {
        self.len() == other.len()
            && self.iter().all(|member| member.with_bytes(|bytes| other.contains(bytes)))
    }
}

impl Eq for Set {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    type Oracle = BTreeSet<Vec<u8>>;

    fn small() -> Compact {
        Compact {
            set_intset_entries_max: 6,
            set_entries_max: 4,
            set_value_bytes_max: 24,
            ..Compact::default()
        }
    }

    fn bytes(member: Scalar<'_>) -> Vec<u8> {
        member.with_bytes(<[u8]>::to_vec)
    }

    fn check(set: &Set, oracle: &Oracle) {
        assert_eq!(set.len(), oracle.len());
        assert!(oracle.iter().all(|member| set.contains(member)));
        assert_eq!(&set.iter().map(bytes).collect::<Oracle>(), oracle);
        let by_index = (0..set.len()).filter_map(|index| set.get_index(index));
        assert_eq!(&by_index.map(bytes).collect::<Oracle>(), oracle);
        assert_eq!(set.get_index(set.len()), None);
        let mut scanned = Oracle::new();
        let mut cursor = 0;
        loop {
            cursor = set.scan(cursor, 3, |member| {
                scanned.insert(bytes(member));
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(&scanned, oracle);
        if let Form::Table(table) = &set.form {
            table.check();
        }
    }

    fn round_trip(set: &Set, compact: &Compact) {
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        let mut input = bytes.as_slice();
        assert_eq!(Set::decode(&mut input, compact).as_ref(), Ok(set));
        assert!(input.is_empty());
        assert_eq!(Set::decode(&mut &bytes[..bytes.len() - 1], compact), Err(Malformed));
        assert_eq!(&set.clone(), set);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Add(Vec<u8>),
        Remove(Vec<u8>),
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            30 => (-12i64..12).prop_map(|number| number.to_string().into_bytes()),
            3 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            1 => Just(i64::MIN.to_string().into_bytes()),
            1 => Just(i64::MAX.to_string().into_bytes()),
            1 => "[+-]?0?[0-9]{0,20}".prop_map(String::into_bytes),
            1 => "[a-c]{0,2}".prop_map(String::into_bytes),
            1 => "[a-c]{25}".prop_map(String::into_bytes),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => member().prop_map(Step::Add),
            2 => member().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn a_set_is_as_the_oracle(steps in proptest::collection::vec(step(), 1..60)) {
            let (mut set, mut oracle, compact) = (Set::new(), Oracle::new(), small());
            for step in steps {
                match step {
                    Step::Add(member) => {
                        assert_eq!(set.add(&member, &compact), oracle.insert(member));
                    }
                    Step::Remove(member) => {
                        assert_eq!(set.remove(&member), oracle.remove(&member));
                    }
                }
                check(&set, &oracle);
            }
            round_trip(&set, &compact);
        }

        #[test]
        fn only_the_canonical_text_of_a_number_is_a_number(text in "[+-]?[0-9]{0,21}") {
            let number: Option<i64> = text.parse().ok();
            let expected = number.filter(|number| number.to_string() == text);
            prop_assert_eq!(canonical_integer(text.as_bytes()), expected);
        }
    }

    #[test]
    fn changes_its_form_at_the_thresholds_of_redis() {
        let compact = Compact::default();
        let mut set = Set::new();
        for number in 0..128 {
            set.add(number.to_string().as_bytes(), &compact);
        }
        let mut strings = set.clone();
        strings.remove(b"5");
        strings.add(b"x", &compact);
        assert_eq!(strings.encoding(), Encoding::Listpack);
        strings.add(b"y", &compact);
        assert_eq!(strings.encoding(), Encoding::Hashtable);
        for number in 128..512 {
            set.add(number.to_string().as_bytes(), &compact);
        }
        assert_eq!(set.encoding(), Encoding::Intset);
        set.add(b"512", &compact);
        assert_eq!(set.encoding(), Encoding::Hashtable);
    }

    #[test]
    fn integers_that_do_not_ascend_are_malformed() {
        let compact = Compact::default();
        for bytes in [&[ENCODED_INTEGERS, 2, 8, 0][..], &[2, 0][..], &[][..]] {
            assert_eq!(Set::decode(&mut &*bytes, &compact), Err(Malformed));
        }
        let mut overflow = vec![ENCODED_INTEGERS, 2];
        put_varint(&mut overflow, u64::MAX - 1); // i64::MAX in zigzag
        put_varint(&mut overflow, 1);
        assert_eq!(Set::decode(&mut overflow.as_slice(), &compact), Err(Malformed));
    }
}
