//! Values of the collection types: [`Hash`], [`Set`], [`ZSet`], [`List`], [`Stream`] and
//! [`Series`].
//!
//! Each type but the last three has a compact form for small values (one block of packed bytes, or a
//! sorted array of integers) and a table form for large ones. A value starts compact and turns into a table for good
//! when it crosses a threshold in [`Compact`]; the names and defaults are those of Redis, so that
//! `OBJECT ENCODING` reports what its clients expect.
//!
//! Nothing here knows keys, time, or the log. `heap_bytes` is O(1) everywhere: the memory account
//! is kept while values change, not counted afterwards.

pub(crate) mod element;
mod hash;
mod list;
pub(crate) mod packed;
mod partition;
mod ranked;
mod records;
mod series;
pub(crate) mod set;
mod stream;
mod table;
pub(crate) mod text;
pub(crate) mod zset;

pub use crate::varint::Malformed;
pub use hash::Hash;
pub(crate) use hash::HashView;
pub(crate) use hash::{ENCODED_TIMED, put_time};
pub use list::List;
pub use partition::{
    CellValue, CellView, Expiry, Partition, RowKey, RowView, Seconds, Stamp, Timestamp, Write,
};
pub use series::{Point, Series};
pub(crate) use set::ENCODED_BYTES;
pub use set::Set;
pub use stream::{Consumer, Group, OutOfOrder, Pending, Stream, StreamEntry, StreamId, Trim};
pub use text::{Scalar, Text};
pub use zset::{AddResult, ZSet, ZSetIter};

/// Thresholds at which a compact value becomes a table, and the seed of the tables' hashes.
///
/// Each maximum is inclusive: a value of exactly this size is still compact.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct Compact {
    /// `hash-max-listpack-entries`: fields of a compact hash.
    pub hash_entries_max: usize,
    /// `hash-max-listpack-value`: bytes of one field or value of a compact hash.
    pub hash_value_bytes_max: usize,
    /// `set-max-intset-entries`: members of a set of integers.
    pub set_intset_entries_max: usize,
    /// `set-max-listpack-entries`: members of a compact set of strings.
    pub set_entries_max: usize,
    /// `set-max-listpack-value`: bytes of one member of a compact set of strings.
    pub set_value_bytes_max: usize,
    /// `zset-max-listpack-entries`: members of a compact sorted set.
    pub zset_entries_max: usize,
    /// `zset-max-listpack-value`: bytes of one member of a compact sorted set.
    pub zset_value_bytes_max: usize,
    /// `list-max-listpack-size` where negative: packed bytes of one chunk of a list; where positive 8 KiB,
    /// as in Redis. A longer element has a chunk of its own.
    pub list_chunk_bytes_max: usize,
    /// `list-max-listpack-size` where positive: elements of one chunk of a list; bounds the walk
    /// inside a chunk.
    pub list_chunk_entries_max: usize,
    /// `stream-node-max-bytes`: bytes of one block of a stream, as Redis would count them; a longer
    /// entry has a block of its own.
    pub stream_block_bytes_max: usize,
    /// `stream-node-max-entries`: entries of one block of a stream, removed ones included.
    pub stream_block_entries_max: usize,
    /// Seed of the hashes of new tables: one per process, unknown to clients, so that they cannot
    /// choose colliding members. The default, 0, is for tests.
    pub seed: u64,
}

impl Default for Compact {
    fn default() -> Compact {
        Compact {
            hash_entries_max: 128,
            hash_value_bytes_max: 64,
            set_intset_entries_max: 512,
            set_entries_max: 128,
            set_value_bytes_max: 64,
            zset_entries_max: 128,
            zset_value_bytes_max: 64,
            list_chunk_bytes_max: 8192,
            list_chunk_entries_max: 2048,
            stream_block_bytes_max: 4096,
            stream_block_entries_max: 100,
            seed: 0,
        }
    }
}

impl Compact {
    /// Takes `list-max-listpack-size`: entries per chunk where positive, 0 as 1; -1 to -5 are 4, 8,
    /// 16, 32 and 64 KiB per chunk, and less is as -5.
    #[must_use]
    pub fn with_list_size(mut self, size: i64) -> Compact {
        match usize::try_from(size) {
            Ok(entries) => self.list_chunk_entries_max = entries.max(1),
            Err(_) => self.list_chunk_bytes_max = 4096 << (size.unsigned_abs() - 1).min(4),
        }
        self
    }

    /// Takes `stream-node-max-bytes` and `stream-node-max-entries`; 0 is as the largest block,
    /// within which a search is linear.
    #[must_use]
    pub fn with_stream_node(mut self, bytes: usize, entries: usize) -> Compact {
        const BYTES_MAX: usize = 64 * 1024;
        let limit = |value: usize| if value == 0 { usize::MAX } else { value };
        self.stream_block_bytes_max = limit(bytes).min(BYTES_MAX);
        self.stream_block_entries_max = limit(entries);
        self
    }
}

/// The current form of a value, as `OBJECT ENCODING` names it.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// One block of packed bytes.
    Listpack,
    /// A sorted array of integers.
    Intset,
    /// A hash table.
    Hashtable,
    /// A hash table and an ordered structure.
    Skiplist,
    /// Several blocks of packed bytes.
    Quicklist,
    /// Blocks of entries.
    Stream,
    /// Chunks of points.
    TimeSeries,
    /// A string that is a 64-bit integer in its shortest form.
    Int,
    /// A short string.
    Embstr,
    /// A long string, or one that was edited in place.
    Raw,
}

impl Encoding {
    /// The name that Redis gives it; it has no time series.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Listpack => "listpack",
            Encoding::Intset => "intset",
            Encoding::Hashtable => "hashtable",
            Encoding::Skiplist => "skiplist",
            Encoding::Quicklist => "quicklist",
            Encoding::Stream => "stream",
            Encoding::TimeSeries => "timeseries",
            Encoding::Int => "int",
            Encoding::Embstr => "embstr",
            Encoding::Raw => "raw",
        }
    }

    /// The encoding that Redis reports for a string that was written whole. Strings have one form
    /// here; the names are what clients of Redis expect.
    ///
    /// Source: Redis 7.2 `object.c`, `tryObjectEncoding`.
    pub fn of_string(value: &[u8]) -> Encoding {
        const EMBSTR_BYTES_MAX: usize = 44;
        if text::canonical_integer(value).is_some() {
            Encoding::Int
        } else if value.len() <= EMBSTR_BYTES_MAX {
            Encoding::Embstr
        } else {
            Encoding::Raw
        }
    }
}

const SMALL_ALLOCATION_BYTES: usize = 64;
/// Above this size an allocation has pages of its own.
const LARGE_ALLOCATION_BYTES: usize = 512 << 10;
const PAGE_BYTES: usize = 4096;

const _: () = assert!(SMALL_ALLOCATION_BYTES < LARGE_ALLOCATION_BYTES);
const _: () = assert!(LARGE_ALLOCATION_BYTES.is_multiple_of(PAGE_BYTES));

/// Bytes that an allocation of `len` bytes takes from the heap, by the size classes of mimalloc 3:
/// 8 bytes, multiples of 16 up to 64, then four classes per doubling up to 512 KiB, then whole
/// pages. 0 for an empty one.
///
/// Source: mimalloc 3.3, `src/page-queue.c`, `mi_bin` and `mi_good_size`
pub fn allocation_bytes(len: usize) -> usize {
    let step = if len <= 8 {
        8
    } else if len <= SMALL_ALLOCATION_BYTES {
        16
    } else if len <= LARGE_ALLOCATION_BYTES {
        1 << (len - 1).ilog2() >> 2
    } else {
        PAGE_BYTES
    };
    // Each step is a power of two: no division.
    len.checked_add(step - 1).map_or(len, |end| end & !(step - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::time::UnixMs;
    use proptest::prelude::*;

    /// Malformed bytes are rejected, and valid bytes decode to the same value again.
    macro_rules! check_decode {
        ($kind:ty, $bytes:expr, $compact:expr) => {
            if let Ok(value) = <$kind>::decode(&mut &$bytes[..], $compact) {
                let mut again = Vec::new();
                value.encode(&mut again);
                assert_eq!(<$kind>::decode(&mut again.as_slice(), $compact), Ok(value));
            }
        };
    }

    fn check_all(bytes: &[u8], compact: &Compact) {
        check_decode!(Hash, bytes, compact);
        check_decode!(Set, bytes, compact);
        check_decode!(ZSet, bytes, compact);
        check_decode!(List, bytes, compact);
        if let Ok(series) = Series::decode(&mut &bytes[..]) {
            let mut again = Vec::new();
            series.encode(&mut again);
            assert_eq!(Series::decode(&mut again.as_slice()), Ok(series));
        }
        if let Ok(stream) = Stream::decode(&mut &bytes[..]) {
            let mut again = Vec::new();
            stream.encode(&mut again);
            assert_eq!(Stream::decode(&mut again.as_slice()), Ok(stream));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            count in 0u8..6,
            bytes in proptest::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..120),
        ) {
            let compact = Compact { hash_entries_max: 2, zset_entries_max: 2, ..Compact::default() };
            check_all(&bytes, &compact);
            check_all(&[&[count], bytes.as_slice()].concat(), &compact);
            check_all(&[&[0, count], bytes.as_slice()].concat(), &compact);
        }
    }

    #[test]
    fn a_count_that_lies_allocates_nothing() {
        let compact = Compact::default();
        let count = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Hash::decode(&mut &count[..], &compact), Err(Malformed));
        assert_eq!(List::decode(&mut &count[..], &compact), Err(Malformed));
        assert_eq!(ZSet::decode(&mut &count[..], &compact), Err(Malformed));
        for form in [0, 1] {
            let bytes = [&[form][..], &count].concat();
            assert_eq!(Set::decode(&mut bytes.as_slice(), &compact), Err(Malformed));
        }
    }

    fn bytes_of(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        bytes
    }

    /// Logs and snapshots hold these bytes: a change needs a new version of both formats.
    #[test]
    fn encoded_values_have_these_bytes() {
        let compact = Compact::default();
        let (mut hash, mut list, mut zset) = (Hash::new(), List::new(), ZSet::new());
        hash.set(b"f", b"vv", &compact);
        assert_eq!(bytes_of(|out| hash.encode(out)), b"\x01\x01f\x02vv");
        list.push_back(b"a", &compact);
        list.push_back(b"", &compact);
        assert_eq!(bytes_of(|out| list.encode(out)), b"\x02\x01a\x00");
        zset.add(b"m", 1.5, &compact);
        assert_eq!(bytes_of(|out| zset.encode(out)), b"\x01\0\0\0\0\0\0\xf8\x3f\x01m");
        let mut set = Set::new();
        set.add(b"-1", &compact);
        set.add(b"299", &compact);
        assert_eq!(bytes_of(|out| set.encode(out)), b"\x01\x02\x01\xac\x02");
        set.add(b"x", &compact);
        assert_eq!(bytes_of(|out| set.encode(out)), b"\x00\x03\x02-1\x03299\x01x");
        let mut series = Series::new();
        series.add(Point { timestamp: 5, value: b"v", expiry: None });
        series.add(Point { timestamp: 305, value: b"", expiry: Some(UnixMs(200)) });
        let bytes = b"\x02\x05\x00\x01v\xac\x02\xc8\x01\x00";
        assert_eq!(bytes_of(|out| series.encode(out)), bytes);
    }

    #[test]
    fn allocations_round_up_to_size_classes() {
        for (len, bytes) in
            [(0, 0), (1, 8), (9, 16), (64, 64), (65, 80), (1025, 1280), (524_289, 528_384)]
        {
            assert_eq!(allocation_bytes(len), bytes, "{len}");
        }
        assert_eq!(allocation_bytes(usize::MAX), usize::MAX);
    }
}
