//! The encoded form of a collection, from its elements.

use base::time::UnixMs;

use crate::change::Kind;
use crate::items::{Items, Scored};
use crate::types::{ENCODED_BYTES, ENCODED_TIMED, put_time};
use crate::varint::{put_bytes, put_varint};

/// The elements of a collection that is not in the store, such as one of a file.
#[derive(Debug, Clone, Copy)]
pub enum Elements<'a> {
    /// Field, value, field, value ...
    Hash(Items<'a>),
    /// Likewise, with the time at which each field expires.
    TimedHash(Items<'a>, &'a [Option<UnixMs>]),
    List(Items<'a>),
    Set(Items<'a>),
    ZSet(Scored<'a>),
}

impl Elements<'_> {
    pub fn kind(self) -> Kind {
        match self {
            Elements::Hash(_) | Elements::TimedHash(..) => Kind::Hash,
            Elements::List(_) => Kind::List,
            Elements::Set(_) => Kind::Set,
            Elements::ZSet(_) => Kind::ZSet,
        }
    }

    /// Appends the bytes for a [`Change::Put`](crate::Change::Put). It is refused if there are no
    /// elements, or two members or fields are equal.
    pub fn encode(self, out: &mut Vec<u8>) {
        match self {
            Elements::Hash(pairs) => {
                debug_assert!(pairs.len().is_multiple_of(2), "a value for each field");
                put_varint(out, pairs.len() as u64 / 2);
                pairs.iter().for_each(|part| put_bytes(out, part));
            }
            Elements::TimedHash(pairs, times) => {
                debug_assert!(pairs.len() == 2 * times.len(), "a value and a time for each field");
                put_varint(out, ENCODED_TIMED);
                put_varint(out, times.len() as u64);
                let mut parts = pairs.iter();
                for at in times {
                    parts.by_ref().take(2).for_each(|part| put_bytes(out, part));
                    put_time(out, *at);
                }
            }
            Elements::List(values) => values.encode(out),
            Elements::Set(members) => {
                out.push(ENCODED_BYTES);
                members.encode(out);
            }
            Elements::ZSet(members) => members.encode(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Compact, Hash, List, Set, ZSet};

    #[track_caller]
    fn encoded(elements: Elements<'_>, kind: Kind) -> Vec<u8> {
        assert_eq!(elements.kind(), kind);
        let mut out = Vec::new();
        elements.encode(&mut out);
        out
    }

    #[test]
    fn elements_are_encoded_as_collections_of_them() {
        let compact = Compact::default();
        let items: [&[u8]; 4] = [b"a", b"1", b"b", b""];
        let items = Items::Slice(&items);
        let (mut hash, mut list, mut set) = (Hash::new(), List::new(), Set::new());
        hash.set(b"a", b"1", &compact);
        hash.set(b"b", b"", &compact);
        for item in items.iter() {
            list.push_back(item, &compact);
            set.add(item, &compact);
        }
        let bytes = encoded(Elements::Hash(items), Kind::Hash);
        assert_eq!(Hash::decode(&mut &bytes[..], &compact).as_ref(), Ok(&hash));
        hash.expire(b"b", Some(UnixMs(7)), &compact);
        let bytes = encoded(Elements::TimedHash(items, &[None, Some(UnixMs(7))]), Kind::Hash);
        assert_eq!(Hash::decode(&mut &bytes[..], &compact), Ok(hash));
        let bytes = encoded(Elements::List(items), Kind::List);
        assert_eq!(List::decode(&mut &bytes[..], &compact), Ok(list));
        let bytes = encoded(Elements::Set(items), Kind::Set);
        assert_eq!(Set::decode(&mut &bytes[..], &compact), Ok(set));
        let scored: [(f64, &[u8]); 2] = [(1.5, b"m"), (-1.0, b"n")];
        let mut zset = ZSet::new();
        for (score, member) in scored {
            zset.add(member, score, &compact);
        }
        let bytes = encoded(Elements::ZSet(Scored::Slice(&scored)), Kind::ZSet);
        assert_eq!(ZSet::decode(&mut &bytes[..], &compact), Ok(zset));
    }
}
