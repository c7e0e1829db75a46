//! Fields with values: one packed block of field, value, field, value ..., or a table.

use super::packed::Packed;
use super::table::Table;
use super::{Compact, Encoding, Malformed};
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// A map from field to value, both byte strings.
///
/// Compact: every operation is O(fields), at most `hash_entries_max` of them. Table: O(1).
#[derive(Debug, Clone)]
pub struct Hash {
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    Packed(Packed),
    Table(Table<()>),
}

/// Positions of a field, of its value, and of what follows.
struct Pair {
    field_at: usize,
    value_at: usize,
    next: usize,
}

fn find(packed: &Packed, field: &[u8]) -> Option<Pair> {
    let mut at = 0;
    while let Some(name) = packed.element(at) {
        let value = packed.element(name.next)?;
        if name.bytes == field {
            return Some(Pair { field_at: at, value_at: value.at, next: value.next });
        }
        at = value.next;
    }
    None
}

fn pairs(packed: &Packed) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut elements = packed.iter();
    std::iter::from_fn(move || Some((elements.next()?, elements.next()?)))
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::new()
    }
}

impl Hash {
    /// No fields, no allocation.
    pub fn new() -> Hash {
        Hash { form: Form::Packed(Packed::default()) }
    }

    /// Field, value, field, value ...
    pub(crate) fn of_packed(packed: Packed) -> Hash {
        debug_assert!(packed.len().is_multiple_of(2), "a value for each field");
        Hash { form: Form::Packed(packed) }
    }

    /// The block of a compact hash.
    pub(crate) fn packed(&self) -> Option<&Packed> {
        match &self.form {
            Form::Packed(packed) => Some(packed),
            Form::Table(_) => None,
        }
    }

    /// Number of fields. O(1).
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len() / 2,
            Form::Table(table) => table.len(),
        }
    }

    /// O(1).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a field. O(1), compact O(fields).
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.form {
            Form::Packed(packed) => {
                let pair = find(packed, field)?;
                packed.element(pair.value_at).map(|value| value.bytes)
            }
            Form::Table(table) => table.content(field),
        }
    }

    /// Whether the field is there. O(1), compact O(fields).
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Sets a field; true if it is new. O(1), compact O(bytes of the hash); O(fields) the one time
    /// when the hash becomes a table.
    pub fn set(&mut self, field: &[u8], value: &[u8], compact: &Compact) -> bool {
        if let Form::Packed(packed) = &mut self.form {
            if field.len().max(value.len()) <= compact.hash_value_bytes_max {
                if let Some(pair) = find(packed, field) {
                    packed.replace(pair.value_at, value);
                    return false;
                }
                if packed.len() / 2 < compact.hash_entries_max {
                    packed.push_back(field);
                    packed.push_back(value);
                    return true;
                }
            }
            self.become_table(compact.seed);
        }
        match &mut self.form {
            Form::Table(table) => set_in_table(table, field, value),
            Form::Packed(_) => unreachable!("the hash has just become a table"),
        }
    }

    fn become_table(&mut self, seed: u64) {
        if let Form::Packed(packed) = &self.form {
            let mut table = Table::new(seed);
            pairs(packed).for_each(|(field, value)| {
                table.insert(field, value, ());
            });
            self.form = Form::Table(table);
        }
    }

    /// Removes a field; false if it is not there. O(1), compact O(bytes of the hash).
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.form {
            Form::Packed(packed) => {
                let Some(pair) = find(packed, field) else { return false };
                packed.remove(pair.field_at..pair.next, 2);
                true
            }
            Form::Table(table) => table.remove(field),
        }
    }

    /// All fields with their values, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (packed, table) = match &self.form {
            Form::Packed(packed) => (Some(packed), None),
            Form::Table(table) => (None, Some(table)),
        };
        let rows = table.into_iter().flat_map(Table::iter);
        packed.into_iter().flat_map(pairs).chain(rows.map(|(field, value, ())| (field, value)))
    }

    /// The field at an index below `len`, for uniform random choice; indexes change with every
    /// change of the hash. O(1), compact O(fields).
    pub fn get_index(&self, index: usize) -> Option<(&[u8], &[u8])> {
        match &self.form {
            Form::Packed(packed) => {
                let field = packed.element(packed.position(index.checked_mul(2)?))?;
                let value = packed.element(field.next)?;
                Some((field.bytes, value.bytes))
            }
            Form::Table(table) => table.get_index(index).map(|(field, value, ())| (field, value)),
        }
    }

    /// Visits about `count` fields from `cursor` on (0 at first) and returns the next cursor, 0 at
    /// the end. A field that is there from the first call to the last is visited at least once.
    /// A compact hash is visited whole.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8], &[u8])) -> u64 {
        match &self.form {
            Form::Packed(packed) => {
                pairs(packed).for_each(|(field, value)| visit(field, value));
                0
            }
            Form::Table(table) => table.scan(cursor, count, |field, value, ()| visit(field, value)),
        }
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
            Form::Packed(packed) => packed.heap_bytes(),
            Form::Table(table) => table.heap_bytes(),
        }
    }

    /// `Listpack` or `Hashtable`.
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Form::Packed(_) => Encoding::Listpack,
            Form::Table(_) => Encoding::Hashtable,
        }
    }

    /// Appends: number of fields v, then for each the field and the value as length v and bytes
    /// (v = LEB128 varint). O(bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (field, value) in self.iter() {
            put_bytes(out, field);
            put_bytes(out, value);
        }
    }

    /// Takes what `encode` wrote off the front of `input`. A duplicate field is malformed.
    pub fn decode(input: &mut &[u8], compact: &Compact) -> Result<Hash, Malformed> {
        let mut hash = Hash::new();
        for _ in 0..take_varint(input)? {
            let field = take_bytes(input)?;
            if !hash.set(field, take_bytes(input)?, compact) {
                return Err(Malformed);
            }
        }
        Ok(hash)
    }
}

fn set_in_table(table: &mut Table<()>, field: &[u8], value: &[u8]) -> bool {
    let found = table.find(field);
    match found {
        Some(index) => table.set_content(index, value),
        None => table.insert(field, value, ()),
    }
    found.is_none()
}

/// The same fields with the same values, in whatever form.
impl PartialEq for Hash {
    fn eq(&self, other: &Hash) -> bool {
        self.len() == other.len()
            && self.iter().all(|(field, value)| other.get(field) == Some(value))
    }
}

impl Eq for Hash {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

    fn small() -> Compact {
        Compact { hash_entries_max: 4, hash_value_bytes_max: 10, ..Compact::default() }
    }

    fn check(hash: &Hash, oracle: &Oracle, absent: &[u8]) {
        assert_eq!(hash.len(), oracle.len());
        for (field, value) in oracle {
            assert_eq!(hash.get(field), Some(value.as_slice()));
        }
        assert_eq!(hash.contains(absent), oracle.contains_key(absent));
        let rows = |(field, value): (&[u8], &[u8])| (field.to_vec(), value.to_vec());
        assert_eq!(&hash.iter().map(rows).collect::<Oracle>(), oracle);
        let by_index = (0..hash.len()).filter_map(|index| hash.get_index(index));
        assert_eq!(&by_index.map(rows).collect::<Oracle>(), oracle);
        assert_eq!(hash.get_index(hash.len()), None);
        let mut scanned = Oracle::new();
        let mut cursor = 0;
        loop {
            cursor = hash.scan(cursor, 3, |field, value| {
                scanned.insert(field.to_vec(), value.to_vec());
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(&scanned, oracle);
        if let Form::Table(table) = &hash.form {
            table.check();
        }
    }

    fn round_trip(hash: &Hash, compact: &Compact) {
        let mut bytes = Vec::new();
        hash.encode(&mut bytes);
        let mut input = bytes.as_slice();
        assert_eq!(Hash::decode(&mut input, compact).as_ref(), Ok(hash));
        assert!(input.is_empty());
        assert_eq!(Hash::decode(&mut &bytes[..bytes.len() - 1], compact), Err(Malformed));
        assert_eq!(&hash.clone(), hash);
    }

    fn field() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0u8..3, 0..3)
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            20 => proptest::collection::vec(any::<u8>(), 0..10),
            1 => proptest::collection::vec(any::<u8>(), 10..40),
        ]
    }

    proptest! {
        #[test]
        fn a_hash_is_as_the_oracle(
            steps in proptest::collection::vec((field(), proptest::option::of(value())), 1..60),
        ) {
            let (mut hash, mut oracle, compact) = (Hash::new(), Oracle::new(), small());
            for (field, value) in steps {
                match value {
                    Some(value) => {
                        let is_new = hash.set(&field, &value, &compact);
                        assert_eq!(is_new, oracle.insert(field.clone(), value).is_none());
                    }
                    None => assert_eq!(hash.remove(&field), oracle.remove(&field).is_some()),
                }
                check(&hash, &oracle, &field);
            }
            round_trip(&hash, &compact);
        }
    }

    #[test]
    fn becomes_a_table_at_the_thresholds_of_redis() {
        let compact = Compact::default();
        let mut hash = Hash::new();
        for number in 0..128u8 {
            hash.set(&[number], b"value", &compact);
        }
        hash.set(&[0], &[b'x'; 64], &compact);
        assert_eq!(hash.encoding(), Encoding::Listpack);
        hash.set(&[128], b"value", &compact);
        assert_eq!(hash.encoding(), Encoding::Hashtable);
        let mut hash = Hash::new();
        hash.set(b"field", &[b'x'; 65], &compact);
        assert_eq!(hash.encoding(), Encoding::Hashtable);
    }
}
