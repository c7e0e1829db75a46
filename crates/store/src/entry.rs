//! One key and its value or, for a large collection, the index of its value: a single heap block.
//!
//! ```text
//! offset 0  flags      u8    bit 0: has room for an expiry, bit 1: a collection with an index, bit 2: was
//!                           edited in place, bit 3: a number written as text, bits 4 to 6: form of
//!                           a small collection, 7 for a number, else 0, bit 7: elements expire
//! offset 1  key length u8 or, when 0xff, u32 after it
//! ...       expiry     u64   milliseconds since the epoch, 2^64-1: none; only with bit 0
//! ...       key bytes
//! ...       value bytes, or the u32 index of the collection in its stripe, or a small collection,
//!           or a number: 1 to 8 bytes, signed
//! ```
//!
//! A string that is a number in canonical decimal form is stored as a number if that is shorter.
//! A 16-byte key with an 80-byte value takes 8 + 2 + 16 + 80 = 106 bytes, in a size class of 112.

use base::time::UnixMs;

use crate::blob::{BLOB_BYTES_MAX, Blob, BlobRef, Slot};
use crate::small::{Block, Small, SmallKind};
use crate::types::text::{Scalar, canonical_integer};

const FLAG_EXPIRY: u8 = 1;
const FLAG_COLLECTION: u8 = 2;
const FLAG_EDITED: u8 = 4;
const FLAG_TEXT: u8 = 8;
/// The form of a small collection, its place in [`SMALL_KINDS`] plus one.
const SMALL_SHIFT: u32 = 4;
const SMALL_MASK: u8 = 7 << SMALL_SHIFT;
const SMALL_KINDS: [SmallKind; 6] = [
    SmallKind::Hash,
    SmallKind::List,
    SmallKind::EqualList,
    SmallKind::Set,
    SmallKind::Integers,
    SmallKind::ZSet,
];
/// The form of a string that is stored as a number.
const FORM_NUMBER: u8 = SMALL_MASK;
const _: () = assert!(SMALL_KINDS.len() < (FORM_NUMBER >> SMALL_SHIFT) as usize);
const FLAG_TIMES: u8 = 128;
const KEY_LEN_SHORT_MAX: usize = 0xfe;
const KEY_LEN_LONG: usize = 0xff;
const EXPIRY_BYTES: usize = 8;
/// The expiry of a block that has room for one, but does not expire.
const NEVER: UnixMs = UnixMs(u64::MAX);
/// Values from this size on have room for an expiry from the start, so that EXPIRE and PERSIST do
/// not copy them. Smaller ones are copied within 20 us, and take eight bytes less.
const ROOMY_VALUE_BYTES: usize = 64 * 1024;
/// Longest string value, as Redis's `proto-max-bulk-len` allows by default.
pub(crate) const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;
const HEADER_BYTES_MAX: usize = 6;

const FLAGS: u8 = FLAG_EXPIRY | FLAG_COLLECTION | FLAG_EDITED | FLAG_TEXT | FLAG_TIMES;
const _: () = assert!(FLAGS.count_ones() == 5 && FLAGS & SMALL_MASK == 0);
const _: () =
    assert!(KEY_LEN_SHORT_MAX < KEY_LEN_LONG, "the mark of a long key differs from all lengths");
const _: () = assert!(KEY_LEN_LONG == u8::MAX as usize, "a short length has one byte");
const _: () = assert!(EXPIRY_BYTES == size_of::<UnixMs>());
const _: () = assert!(
    HEADER_BYTES_MAX + EXPIRY_BYTES + 2 * STRING_BYTES_MAX <= BLOB_BYTES_MAX,
    "the longest key and value fit a block"
);

/// The layout of an entry's block, read from its first bytes.
struct Shape {
    flags: u8,
    expiry_at: usize,
    key_at: usize,
    value_at: usize,
}

impl Shape {
    #[inline]
    fn is_string(&self) -> bool {
        matches!(self.flags & (FLAG_COLLECTION | SMALL_MASK), 0 | FORM_NUMBER)
    }
}

pub(crate) struct Entry {
    blob: Blob,
}

/// A borrowed entry.
#[derive(Clone, Copy)]
pub(crate) struct EntryRef<'a> {
    blob: BlobRef<'a>,
}

fn header(flags: u8, key_len: usize) -> ([u8; HEADER_BYTES_MAX], usize) {
    let mut bytes = [0u8; HEADER_BYTES_MAX];
    bytes[0] = flags;
    if key_len <= KEY_LEN_SHORT_MAX {
        bytes[1] = u8::try_from(key_len).expect("a short key length");
        (bytes, 2)
    } else {
        bytes[1] = u8::MAX;
        let len = u32::try_from(key_len).expect("a key is shorter than 4 GiB").to_le_bytes();
        bytes[2..6].copy_from_slice(&len);
        (bytes, 6)
    }
}

/// The value of a string as it is stored.
enum Stored<'a> {
    Bytes(&'a [u8]),
    Number { bytes: [u8; size_of::<i64>()], len: usize },
}

impl<'a> Stored<'a> {
    #[inline]
    fn of(value: &'a [u8]) -> Stored<'a> {
        let number = if value.len() > 1 { canonical_integer(value) } else { None };
        let Some(number) = number else { return Stored::Bytes(value) };
        let bits = i64::BITS - (number ^ (number >> (i64::BITS - 1))).leading_zeros() + 1;
        let len = bits.div_ceil(u8::BITS) as usize;
        if len >= value.len() {
            return Stored::Bytes(value);
        }
        Stored::Number { bytes: number.to_le_bytes(), len }
    }

    #[inline]
    fn form(&self) -> u8 {
        match self {
            Stored::Bytes(_) => 0,
            Stored::Number { .. } => FORM_NUMBER,
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Stored::Bytes(bytes) => bytes,
            Stored::Number { bytes, len } => &bytes[..*len],
        }
    }
}

#[inline]
fn number_of(stored: &[u8]) -> i64 {
    let mut bytes = [0; size_of::<i64>()];
    bytes[..stored.len()].copy_from_slice(stored);
    let unused = i64::BITS - u8::BITS * u32::try_from(stored.len()).expect("at most eight bytes");
    (i64::from_le_bytes(bytes) << unused) >> unused
}

/// Whether a value of this size has room for an expiry whether it expires or not.
#[inline]
fn has_room(value_bytes: usize) -> bool {
    value_bytes >= ROOMY_VALUE_BYTES
}

impl Entry {
    pub(crate) fn string(key: &[u8], value: &[u8], expiry: Option<UnixMs>) -> Entry {
        let value = Stored::of(value);
        Entry::build(value.form(), key, value.bytes(), expiry)
    }

    pub(crate) fn collection(key: &[u8], index: u32, expiry: Option<UnixMs>) -> Entry {
        Entry::build(FLAG_COLLECTION, key, &index.to_le_bytes(), expiry)
    }

    /// `block`: count and elements.
    pub(crate) fn of_small(
        key: &[u8],
        kind: SmallKind,
        block: &[u8],
        expiry: Option<UnixMs>,
    ) -> Entry {
        let place = SMALL_KINDS.iter().position(|other| *other == kind).expect("all are listed");
        let form = u8::try_from(place + 1).expect("fits the mask") << SMALL_SHIFT;
        Entry::build(form, key, block, expiry)
    }

    fn build(flags: u8, key: &[u8], value: &[u8], expiry: Option<UnixMs>) -> Entry {
        debug_assert_ne!(expiry, Some(NEVER), "a time that no command computes");
        let never = has_room(value.len()).then_some(NEVER);
        let blob = match expiry.or(never) {
            None => {
                let (head, head_len) = header(flags, key.len());
                Blob::concat(&[&head[..head_len], key, value])
            }
            Some(at) => {
                let (head, head_len) = header(flags | FLAG_EXPIRY, key.len());
                Blob::concat(&[&head[..head_len], &at.0.to_le_bytes(), key, value])
            }
        };
        let entry = Entry { blob };
        debug_assert_eq!(entry.as_ref().key(), key, "lookups find the key that was written");
        debug_assert_eq!(entry.as_ref().expiry(), expiry);
        entry
    }

    #[inline]
    pub(crate) fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { blob: self.blob.as_ref() }
    }

    #[inline]
    pub(crate) fn take(slot: &mut Slot) -> Option<Entry> {
        slot.take().map(|blob| Entry { blob })
    }

    /// Puts the entry into an empty slot.
    #[inline]
    pub(crate) fn fill(self, slot: &mut Slot) {
        slot.fill(self.blob);
    }

    #[inline]
    fn shape(&self) -> Shape {
        self.as_ref().shape()
    }

    /// Leaves a small collection without elements.
    pub(crate) fn clear_small(&mut self) {
        let len = self.small().byte_len();
        self.splice(0, len, &[], 0);
    }

    pub(crate) fn note_times(&mut self, has_times: bool) {
        if has_times != self.as_ref().has_times() {
            self.blob.bytes_mut()[0] ^= FLAG_TIMES;
        }
    }

    pub(crate) fn mark_text(&mut self) {
        self.blob.bytes_mut()[0] |= FLAG_TEXT;
    }

    /// Replaces the whole value of a string. In place when the block's shape allows it.
    pub(crate) fn set_string(&mut self, value: &[u8], expiry: Option<UnixMs>) {
        let shape = self.shape();
        let value = Stored::of(value);
        let needs_room = expiry.is_some() || has_room(value.bytes().len());
        let same_shape = shape.is_string() && (shape.flags & FLAG_EXPIRY != 0) == needs_room;
        let needed = shape.value_at + value.bytes().len();
        if !same_shape || needed > self.blob.capacity() || needed < self.blob.capacity() / 2 {
            let access = self.as_ref().access();
            *self = Entry::build(value.form(), self.as_ref().key(), value.bytes(), expiry);
            self.as_ref().set_access(access);
            return;
        }
        if needed != self.blob.len() {
            self.blob.resize(needed, false);
        }
        let bytes = self.blob.bytes_mut();
        bytes[0] = bytes[0] & !(FLAG_EDITED | FLAG_TEXT | SMALL_MASK) | value.form();
        if needs_room {
            let at = expiry.unwrap_or(NEVER).0.to_le_bytes();
            bytes[shape.expiry_at..shape.key_at].copy_from_slice(&at);
        }
        bytes[shape.value_at..].copy_from_slice(value.bytes());
    }

    /// Writes `patch` at `offset` of a string's value, zero-filling a gap.
    pub(crate) fn edit_string(&mut self, offset: usize, patch: &[u8]) {
        let shape = self.shape();
        debug_assert!(shape.is_string(), "a collection has no bytes to edit");
        if shape.flags & SMALL_MASK == FORM_NUMBER {
            self.write_number_as_text(shape.value_at);
        }
        let shape = if shape.flags & FLAG_EXPIRY == 0 && has_room(offset + patch.len()) {
            self.make_room();
            self.shape()
        } else {
            shape
        };
        let end = shape.value_at + offset + patch.len();
        if end > self.blob.len() {
            self.blob.resize(end, true);
        }
        let bytes = self.blob.bytes_mut();
        bytes[0] |= FLAG_EDITED;
        bytes[shape.value_at + offset..end].copy_from_slice(patch);
    }

    fn write_number_as_text(&mut self, value_at: usize) {
        let mut text = itoa::Buffer::new();
        let text = text.format(number_of(&self.blob.bytes()[value_at..])).as_bytes();
        self.blob.resize(value_at + text.len(), false);
        let bytes = self.blob.bytes_mut();
        bytes[0] &= !SMALL_MASK;
        bytes[value_at..].copy_from_slice(text);
    }

    /// O(1) for a value with room for an expiry.
    pub(crate) fn set_expiry(&mut self, expiry: Option<UnixMs>) {
        let shape = self.shape();
        let is_roomy = shape.flags & FLAG_EXPIRY != 0;
        let keeps_room = expiry.is_some() || has_room(self.blob.len() - shape.value_at);
        if is_roomy && keeps_room {
            self.set_expiry_bytes(expiry.unwrap_or(NEVER));
        } else if is_roomy || expiry.is_some() {
            self.rebuild(expiry);
        }
    }

    /// Makes room for an expiry in the block of a value that becomes large.
    #[cold]
    fn make_room(&mut self) {
        self.rebuild(Some(UnixMs(0)));
        self.set_expiry_bytes(NEVER);
    }

    fn set_expiry_bytes(&mut self, at: UnixMs) {
        let shape = self.shape();
        self.blob.bytes_mut()[shape.expiry_at..shape.key_at].copy_from_slice(&at.0.to_le_bytes());
    }

    /// Copies the entry to a block with or without an expiry.
    fn rebuild(&mut self, expiry: Option<UnixMs>) {
        let shape = self.shape();
        let bytes = self.blob.bytes();
        let (key, value) = (&bytes[shape.key_at..shape.value_at], &bytes[shape.value_at..]);
        let rebuilt = Entry::build(shape.flags & !FLAG_EXPIRY, key, value, expiry);
        rebuilt.as_ref().set_access(self.as_ref().access());
        *self = rebuilt;
    }
}

impl<'a> EntryRef<'a> {
    #[inline]
    pub(crate) fn in_slot(slot: &'a Slot) -> Option<EntryRef<'a>> {
        slot.get().map(|blob| EntryRef { blob })
    }

    #[inline]
    fn shape(self) -> Shape {
        let bytes = self.blob.bytes();
        let flags = bytes[0];
        let short = usize::from(bytes[1]);
        let (head_len, key_len) = if short == KEY_LEN_LONG {
            (6, u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]) as usize)
        } else {
            (2, short)
        };
        let expiry_len = if flags & FLAG_EXPIRY == 0 { 0 } else { EXPIRY_BYTES };
        let key_at = head_len + expiry_len;
        Shape { flags, expiry_at: head_len, key_at, value_at: key_at + key_len }
    }

    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        let shape = self.shape();
        &self.blob.bytes()[shape.key_at..shape.value_at]
    }

    #[inline]
    fn has(self, flag: u8) -> bool {
        self.blob.bytes()[0] & flag != 0
    }

    #[inline]
    pub(crate) fn expiry(self) -> Option<UnixMs> {
        if !self.has(FLAG_EXPIRY) {
            return None;
        }
        let shape = self.shape();
        let bytes = &self.blob.bytes()[shape.expiry_at..shape.expiry_at + EXPIRY_BYTES];
        let at = UnixMs(u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        Some(at).filter(|at| *at != NEVER)
    }

    #[inline]
    pub(crate) fn is_expired(self, now: UnixMs) -> bool {
        self.expiry().is_some_and(|at| at <= now)
    }

    /// The value of a string; `None` for a collection.
    #[inline]
    pub(crate) fn string_value(self) -> Option<Scalar<'a>> {
        let shape = self.shape();
        if !shape.is_string() {
            return None;
        }
        let bytes = &self.blob.bytes()[shape.value_at..];
        if shape.flags & SMALL_MASK == FORM_NUMBER {
            return Some(Scalar::Int(number_of(bytes)));
        }
        Some(Scalar::Bytes(bytes))
    }

    /// The form of a small collection; `None` for other values.
    #[inline]
    pub(crate) fn small_kind(self) -> Option<SmallKind> {
        let form = usize::from((self.blob.bytes()[0] & SMALL_MASK) >> SMALL_SHIFT);
        form.checked_sub(1).and_then(|place| SMALL_KINDS.get(place).copied())
    }

    /// The contents of a small collection.
    #[inline]
    pub(crate) fn small(self) -> Small<'a> {
        debug_assert!(self.small_kind().is_some(), "other values have no such contents");
        Small::new(&self.blob.bytes()[self.shape().value_at..])
    }

    /// The index of a collection in its stripe; `None` for a string and for a small collection.
    #[inline]
    pub(crate) fn collection_index(self) -> Option<u32> {
        if !self.has(FLAG_COLLECTION) {
            return None;
        }
        let bytes = &self.blob.bytes()[self.shape().value_at..];
        Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    /// True when APPEND or SETRANGE made the value: OBJECT ENCODING then reports `raw`.
    pub(crate) fn is_edited(self) -> bool {
        self.has(FLAG_EDITED)
    }

    /// True when INCRBYFLOAT made the value: OBJECT ENCODING then reports `embstr` for an integer.
    pub(crate) fn is_text(self) -> bool {
        self.has(FLAG_TEXT)
    }

    /// Whether a field of the hash expires.
    #[inline]
    pub(crate) fn has_times(self) -> bool {
        self.has(FLAG_TIMES)
    }

    /// The access word; its meaning depends on the eviction policy (see `evict`).
    #[inline]
    pub(crate) fn access(self) -> u32 {
        self.blob.word()
    }

    /// Written through a shared reference, under the stripe's lock; only when it differs, so that a
    /// read does not dirty the cache line each time.
    #[inline]
    pub(crate) fn set_access(self, access: u32) {
        if self.blob.word() != access {
            self.blob.set_word(access);
        }
    }

    pub(crate) fn allocation_bytes(self) -> usize {
        self.blob.allocation_bytes()
    }

    #[inline]
    pub(crate) fn prefetch(self) {
        self.blob.prefetch();
    }

    /// Prefetches a small collection, of which [`EntryRef::prefetch`] knows no length.
    #[inline]
    pub(crate) fn prefetch_all(self) {
        self.blob.prefetch_all();
    }
}

/// A small collection.
impl Block for Entry {
    #[inline]
    fn small(&self) -> Small<'_> {
        self.as_ref().small()
    }

    fn splice(&mut self, at: usize, removed: usize, inserted: &[u8], count: usize) {
        let count_at = self.shape().value_at;
        let (at, end) = (count_at + 1 + at, self.blob.len());
        let len = end - removed + inserted.len();
        if len > end {
            self.blob.resize(len, false);
        }
        let bytes = self.blob.bytes_mut();
        bytes.copy_within(at + removed..end, at + inserted.len());
        bytes[at..at + inserted.len()].copy_from_slice(inserted);
        bytes[count_at] = u8::try_from(count).expect("the changes keep the limit");
        if len < end {
            self.blob.resize(len, false);
        }
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, expiry) = (self.as_ref().key(), self.as_ref().expiry());
        f.debug_struct("Entry").field("key", &key).field("expiry", &expiry).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Text;
    use proptest::prelude::*;

    #[test]
    fn an_entry_of_16_and_80_bytes_takes_112() {
        let entry = Entry::string(&[b'k'; 16], &[b'v'; 80], None);
        assert_eq!(entry.as_ref().allocation_bytes(), 112);
    }

    #[test]
    fn a_block_is_filled_to_its_size_if_that_is_a_power_of_two() {
        for (value_len, bytes) in [(6, 32), (7, 48), (38, 64), (39, 80), (102, 128), (103, 160)] {
            let entry = Entry::string(&[b'k'; 16], &vec![b'v'; value_len], None);
            assert_eq!(entry.as_ref().allocation_bytes(), bytes, "value of {value_len}");
        }
    }

    #[test]
    fn a_string_changes_value_and_expiry_in_any_order() {
        for key in [&b""[..], b"k", &[7; 300]] {
            let mut entry = Entry::string(key, b"one", None);
            entry.as_ref().set_access(9);
            entry.set_expiry(Some(UnixMs(50)));
            assert_eq!(entry.as_ref().expiry(), Some(UnixMs(50)));
            assert_eq!(entry.as_ref().string_value(), Some(Scalar::Bytes(b"one")));
            entry.set_string(b"three", Some(UnixMs(60)));
            assert_eq!((entry.as_ref().key(), entry.as_ref().expiry()), (key, Some(UnixMs(60))));
            entry.edit_string(7, b"xy");
            assert_eq!(entry.as_ref().string_value(), Some(Scalar::Bytes(b"three\0\0xy")));
            assert!(entry.as_ref().is_edited());
            entry.set_string(b"", None);
            assert_eq!(entry.as_ref().string_value(), Some(Scalar::Bytes(b"")));
            assert!(!entry.as_ref().is_edited());
            assert_eq!(entry.as_ref().access(), 9);
            assert!(!entry.as_ref().is_expired(UnixMs(u64::MAX)));
        }
    }

    #[test]
    fn the_expiry_of_a_large_string_changes_in_place() {
        let value = vec![b'v'; ROOMY_VALUE_BYTES];
        let mut entries = [b"".as_slice(), b"k", &[7; 300]].map(|key| {
            let set = Entry::string(key, &value, None);
            let mut grown = Entry::string(key, b"12345", None);
            grown.edit_string(0, &value);
            [set, grown]
        });
        for entry in entries.iter_mut().flatten() {
            let block = entry.blob.bytes().as_ptr();
            for expiry in [None, Some(UnixMs(50)), Some(UnixMs(60)), None, Some(UnixMs(70))] {
                entry.set_expiry(expiry);
                assert_eq!(entry.as_ref().expiry(), expiry);
                assert_eq!(entry.as_ref().is_expired(UnixMs(u64::MAX)), expiry.is_some());
                assert_eq!(string_of(entry), value);
            }
            assert_eq!(entry.blob.bytes().as_ptr(), block, "it was not copied");
            entry.set_string(b"small", None);
            assert_eq!(
                entry.blob.len() - entry.as_ref().key().len(),
                "small".len() + entry_head(entry)
            );
        }
    }

    fn entry_head(entry: &Entry) -> usize {
        entry.shape().expiry_at
    }

    #[test]
    fn a_number_takes_as_many_bytes_as_it_needs() {
        for (value, bytes) in [
            ("0", 1),
            ("7", 1),
            ("10", 1),
            ("-1", 1),
            ("127", 1),
            ("-128", 1),
            ("128", 2),
            ("-129", 2),
            ("32768", 3),
            ("1234567", 3),
            ("8388608", 4),
            ("-8388609", 4),
            ("1764378476123", 6),
            ("9223372036854775807", 8),
            ("-9223372036854775808", 8),
            ("9223372036854775808", 19),
            ("007", 3),
            ("-0", 2),
            ("+1", 2),
            ("1 ", 2),
            ("", 0),
        ] {
            let entry = Entry::string(b"key", value.as_bytes(), None);
            assert_eq!(entry.blob.len(), 2 + 3 + bytes, "{value}");
            assert_eq!(string_of(&entry), value.as_bytes());
        }
    }

    proptest! {
        /// Strings, numbers among them, are set and edited in any order.
        #[test]
        fn a_string_reads_as_it_was_written(
            steps in proptest::collection::vec((any::<bool>(), text(), 0..30usize, expiry()), 1..20),
        ) {
            let mut entry = Entry::string(b"key", b"12345", None);
            let mut model = b"12345".to_vec();
            for (is_edit, text, offset, expiry) in steps {
                if is_edit {
                    entry.edit_string(offset, &text);
                    model.resize(model.len().max(offset + text.len()), 0);
                    model[offset..offset + text.len()].copy_from_slice(&text);
                } else {
                    entry.set_string(&text, expiry);
                    model = text;
                }
                prop_assert_eq!(string_of(&entry), &*model);
                entry.set_expiry(expiry);
                prop_assert_eq!(string_of(&entry), &*model);
                prop_assert_eq!(entry.as_ref().key(), b"key");
                prop_assert_eq!(entry.as_ref().expiry(), expiry);
                prop_assert!(entry.as_ref().small_kind().is_none());
                prop_assert!(entry.as_ref().collection_index().is_none());
            }
        }
    }

    fn string_of(entry: &Entry) -> Vec<u8> {
        entry.as_ref().string_value().map(Text::from).expect("a string").to_vec()
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            (-300..300i64).prop_map(|number| number.to_string().into_bytes()),
            "-?[0-9]{1,21}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 1..40),
            (ROOMY_VALUE_BYTES - 20..ROOMY_VALUE_BYTES + 20).prop_map(|len| vec![b'v'; len]),
        ]
    }

    fn expiry() -> impl Strategy<Value = Option<UnixMs>> {
        proptest::option::of(any::<u64>().prop_map(UnixMs))
    }

    #[test]
    fn a_long_key_has_a_long_header() {
        for len in [KEY_LEN_SHORT_MAX, KEY_LEN_LONG, KEY_LEN_LONG + 1, 1 << 24] {
            let key = vec![1u8; len];
            let entry = Entry::collection(&key, 0xdead_beef, Some(UnixMs(5)));
            assert_eq!(entry.as_ref().key(), key);
            assert_eq!(entry.as_ref().collection_index(), Some(0xdead_beef));
            assert_eq!(entry.as_ref().string_value(), None);
            assert!(entry.as_ref().is_expired(UnixMs(5)));
            assert!(!entry.as_ref().is_expired(UnixMs(4)));
        }
    }
}
