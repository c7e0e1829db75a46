//! Fields with values: one packed block of field, value, field, value ..., or a table. While a field
//! expires, the table is together with the times of its fields.

mod timed;
mod times;
mod view;

use base::time::UnixMs;

use self::timed::TimedTable;
use self::times::FieldTimes;
pub(crate) use self::view::HashView;
use super::packed::Packed;
use super::table::Table;
use super::{Compact, Encoding, Malformed, allocation_bytes};
use crate::varint::{put_bytes, put_varint, take_bytes, take_varint};

/// Begins the encoded form of a hash with fields that expire. No other begins with it: a hash
/// without fields is not stored.
pub(crate) const ENCODED_TIMED: u64 = 0;

/// A map from field to value, both byte strings. A field may have a time at which it expires.
/// Readers use a [`HashRef`](crate::HashRef), which hides the fields that have expired.
///
/// Compact: every operation is O(fields), at most `hash_entries_max` of them. Table: O(1), or
/// O(log(fields that expire)) if the field expires.
#[derive(Debug, Clone)]
pub struct Hash {
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    Packed(Packed),
    Table(Table<()>),
    Timed(Box<TimedTable>),
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

impl Default for Form {
    fn default() -> Form {
        Form::Packed(Packed::default())
    }
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::new()
    }
}

impl Hash {
    /// No fields, no allocation.
    pub fn new() -> Hash {
        Hash { form: Form::default() }
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
            Form::Table(_) | Form::Timed(_) => None,
        }
    }

    /// Number of fields. O(1).
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len() / 2,
            Form::Table(table) => table.len(),
            Form::Timed(timed) => timed.table.len(),
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
            Form::Timed(timed) => timed.table.content(field),
        }
    }

    /// The value of a field, and when it expires.
    fn stored(&self, field: &[u8]) -> Option<(&[u8], Option<UnixMs>)> {
        match &self.form {
            Form::Timed(timed) => timed.stored(field),
            _ => self.get(field).map(|value| (value, None)),
        }
    }

    /// Whether the field is there. O(1), compact O(fields).
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Sets a field, which then does not expire; true if it is new. O(1), compact O(bytes of the
    /// hash); O(fields) the one time when the hash becomes a table.
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
            Form::Timed(timed) => {
                let is_new = timed.set(field, value);
                self.drop_times_if_empty();
                is_new
            }
            Form::Packed(_) => unreachable!("the hash has just become a table"),
        }
    }

    /// Like [`Hash::set`], but a field that expires keeps its time.
    pub fn set_value(&mut self, field: &[u8], value: &[u8], compact: &Compact) -> bool {
        match &mut self.form {
            Form::Timed(timed) => set_in_table(&mut timed.table, field, value),
            _ => self.set(field, value, compact),
        }
    }

    /// Sets when a field expires; `None`: never. False if it is not there. O(fields) if the hash is
    /// compact, which then becomes a table.
    pub fn expire(&mut self, field: &[u8], at: Option<UnixMs>, compact: &Compact) -> bool {
        if !self.contains(field) {
            return false;
        }
        if at.is_some() {
            self.become_timed(compact.seed);
        }
        if let Form::Timed(timed) = &mut self.form {
            timed.expire(field, at);
            self.drop_times_if_empty();
        }
        true
    }

    fn become_timed(&mut self, seed: u64) {
        self.become_table(seed);
        if matches!(self.form, Form::Table(_))
            && let Form::Table(table) = std::mem::take(&mut self.form)
        {
            self.form = Form::Timed(Box::new(TimedTable { table, times: FieldTimes::default() }));
        }
    }

    /// Returns to the form without times when no field expires any more.
    fn drop_times_if_empty(&mut self) {
        if let Form::Timed(timed) = &self.form
            && timed.times.len() == 0
            && let Form::Timed(timed) = std::mem::take(&mut self.form)
        {
            self.form = Form::Table(timed.table);
        }
    }

    /// When the first field expires; `None`: none does. O(1).
    pub fn earliest_expiry(&self) -> Option<UnixMs> {
        match &self.form {
            Form::Timed(timed) => timed.times.earliest(),
            _ => None,
        }
    }

    /// Whether every field has expired: then no reader sees the key.
    pub fn is_overdue(&self, now: UnixMs) -> bool {
        match &self.form {
            Form::Timed(timed) => {
                timed.times.len() == timed.table.len() && timed.times.are_all_due(now)
            }
            _ => false,
        }
    }

    /// Calls `visit` with fields that have expired, until it returns false.
    pub fn visit_due(&self, now: UnixMs, mut visit: impl FnMut(&[u8]) -> bool) {
        let Form::Timed(timed) = &self.form else { return };
        timed.times.visit_due(now, |index, _| {
            let (field, ..) = timed.table.get_index(index).expect("times are of fields");
            visit(field)
        });
    }

    /// Whether a field that had not expired at `from` has expired at `now`. O(expired fields).
    pub fn has_expired_since(&self, from: UnixMs, now: UnixMs) -> bool {
        let Form::Timed(timed) = &self.form else { return false };
        let mut has_expired = false;
        timed.times.visit_due(now, |_, at| {
            has_expired |= at > from;
            !has_expired
        });
        has_expired
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
            Form::Timed(timed) => {
                let is_removed = timed.remove(field);
                self.drop_times_if_empty();
                is_removed
            }
        }
    }

    /// All fields with their values, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter_timed().map(|(field, value, _)| (field, value))
    }

    /// The same, with the times at which they expire.
    fn iter_timed(&self) -> impl Iterator<Item = (&[u8], &[u8], Option<UnixMs>)> {
        let (packed, table, timed) = match &self.form {
            Form::Packed(packed) => (Some(packed), None, None),
            Form::Table(table) => (None, Some(table), None),
            Form::Timed(timed) => (None, None, Some(&**timed)),
        };
        let packed = packed.into_iter().flat_map(pairs).map(|(field, value)| (field, value, None));
        let rows = table.into_iter().flat_map(Table::iter);
        let rows = rows.map(|(field, value, ())| (field, value, None));
        packed.chain(rows).chain(timed.into_iter().flat_map(TimedTable::iter))
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
            Form::Timed(timed) => {
                timed.table.get_index(index).map(|(field, value, ())| (field, value))
            }
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
            Form::Timed(timed) => {
                timed.table.scan(cursor, count, |field, value, ()| visit(field, value))
            }
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
            Form::Timed(timed) => allocation_bytes(size_of::<TimedTable>()) + timed.heap_bytes(),
        }
    }

    /// `Listpack` or `Hashtable`.
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Form::Packed(_) => Encoding::Listpack,
            Form::Table(_) | Form::Timed(_) => Encoding::Hashtable,
        }
    }

    /// Appends: number of fields v, then for each the field and the value as length v and bytes
    /// (v = LEB128 varint). If a field expires: 0 v before the number, and after each value when
    /// the field expires v, 0 for never, otherwise 1 + Unix milliseconds. O(bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        let is_timed = matches!(self.form, Form::Timed(_));
        if is_timed {
            put_varint(out, ENCODED_TIMED);
        }
        put_varint(out, self.len() as u64);
        for (field, value, at) in self.iter_timed() {
            put_bytes(out, field);
            put_bytes(out, value);
            if is_timed {
                put_time(out, at);
            }
        }
    }

    /// Takes what `encode` wrote off the front of `input`. A duplicate field is malformed.
    pub fn decode(input: &mut &[u8], compact: &Compact) -> Result<Hash, Malformed> {
        let mut hash = Hash::new();
        let mut count = take_varint(input)?;
        let is_timed = count == ENCODED_TIMED && !input.is_empty();
        if is_timed {
            count = take_varint(input)?;
        }
        for _ in 0..count {
            let field = take_bytes(input)?;
            if !hash.set_value(field, take_bytes(input)?, compact) {
                return Err(Malformed);
            }
            if is_timed && let Some(at) = take_time(input)? {
                hash.expire(field, Some(at), compact);
            }
        }
        Ok(hash)
    }
}

/// Appends when a field expires, in the encoded form of a hash.
pub(crate) fn put_time(out: &mut Vec<u8>, at: Option<UnixMs>) {
    put_varint(out, at.map_or(0, |at| at.0.saturating_add(1)));
}

fn take_time(input: &mut &[u8]) -> Result<Option<UnixMs>, Malformed> {
    Ok(take_varint(input)?.checked_sub(1).map(UnixMs))
}

fn set_in_table(table: &mut Table<()>, field: &[u8], value: &[u8]) -> bool {
    let found = table.find(field);
    match found {
        Some(index) => table.set_content(index, value),
        None => table.insert(field, value, ()),
    }
    found.is_none()
}

/// The same fields with the same values and times, in whatever form.
impl PartialEq for Hash {
    fn eq(&self, other: &Hash) -> bool {
        self.len() == other.len()
            && self.iter_timed().all(|(field, value, at)| other.stored(field) == Some((value, at)))
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
