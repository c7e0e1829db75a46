//! The order of values of a type, and searches in collections.
//!
//! All bytes passed here must be checked values of their types.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::collection::{items, put_count, put_part};
use super::comparable::encode;
use crate::type_name::Native;
use crate::types::CqlType;

/// Compares two values of a type, in the order of clustering keys.
pub(crate) fn compare(left: &[u8], right: &[u8], of: &CqlType) -> Ordering {
    if let CqlType::Native(native) = of.unfrozen() {
        match native {
            Native::Text | Native::Ascii | Native::Blob | Native::Inet | Native::Duration => {
                return left.cmp(right);
            }
            Native::Tinyint
            | Native::Smallint
            | Native::Int
            | Native::Bigint
            | Native::Counter
            | Native::Timestamp
                if left.len() == right.len() && !left.is_empty() =>
            {
                // The sign bit makes the first byte of negative numbers the larger one.
                let key = |bytes: &[u8]| bytes[0] ^ 0x80;
                return key(left).cmp(&key(right)).then_with(|| left[1..].cmp(&right[1..]));
            }
            _ => {}
        }
    }
    let key = |bytes: &[u8]| {
        let mut key = Vec::new();
        encode(bytes, of, false, &mut key);
        key
    };
    key(left).cmp(&key(right))
}

/// Whether a list or set contains the value, or a map contains it as a value. False for other
/// types.
pub fn contains(collection: &[u8], value: &[u8], of: &CqlType) -> bool {
    match of.unfrozen() {
        CqlType::List(element) | CqlType::Set(element) => items(collection, 1)
            .is_ok_and(|items| items.iter().any(|item| compare(item, value, element).is_eq())),
        CqlType::Map(_, element) => items(collection, 2).is_ok_and(|items| {
            items.iter().skip(1).step_by(2).any(|item| compare(item, value, element).is_eq())
        }),
        _ => false,
    }
}

/// Whether a map contains the key. False for other types.
pub fn contains_key(map: &[u8], key: &[u8], of: &CqlType) -> bool {
    element(map, key, of).is_some_and(|_| matches!(of.unfrozen(), CqlType::Map(..)))
}

/// The value of a key in a map, or the item of a set itself.
pub(crate) fn element<'a>(collection: &'a [u8], key: &[u8], of: &CqlType) -> Option<&'a [u8]> {
    match of.unfrozen() {
        CqlType::Map(key_type, _) => {
            let items = items(collection, 2).ok()?;
            let (pairs, _) = items.as_chunks::<2>();
            let found = pairs.iter().find(|[name, _]| compare(name, key, key_type).is_eq());
            found.map(|[_, value]| *value)
        }
        CqlType::Set(item_type) => {
            let items = items(collection, 1).ok()?;
            items.into_iter().find(|item| compare(item, key, item_type).is_eq())
        }
        _ => None,
    }
}

/// The pairs of a map, or the items of a set, from one key to another, both inclusive; an end may
/// be open.
pub(crate) fn slice(
    collection: &[u8],
    from: Option<&[u8]>,
    to: Option<&[u8]>,
    of: &CqlType,
) -> Vec<u8> {
    let (key_type, per_item) = match of.unfrozen() {
        CqlType::Map(key, _) => (key, 2),
        CqlType::Set(item) => (item, 1),
        _ => return collection.to_vec(),
    };
    let items = items(collection, per_item).unwrap_or_default();
    let is_within = |key: &[u8]| {
        from.is_none_or(|from| compare(from, key, key_type).is_le())
            && to.is_none_or(|to| compare(key, to, key_type).is_le())
    };
    joined(items.chunks(per_item).filter(|item| is_within(item[0])))
}

/// The same set or map with its items sorted and deduplicated, keeping the last of equal keys: a
/// client may send them in any order. Other values are returned unchanged.
pub(crate) fn sorted<'a>(bytes: &'a [u8], of: &CqlType) -> Cow<'a, [u8]> {
    let (key_type, per_item) = match of.unfrozen() {
        CqlType::Map(key, _) => (key, 2),
        CqlType::Set(item) => (item, 1),
        _ => return Cow::Borrowed(bytes),
    };
    let Ok(items) = items(bytes, per_item) else { return Cow::Borrowed(bytes) };
    let mut pairs: Vec<&[&[u8]]> = items.chunks(per_item).collect();
    if pairs.is_sorted_by(|a, b| compare(a[0], b[0], key_type).is_lt()) {
        return Cow::Borrowed(bytes);
    }
    // A stable sort: the last of equal keys is first in the reversed order, and is kept.
    pairs.reverse();
    pairs.sort_by(|a, b| compare(a[0], b[0], key_type));
    pairs.dedup_by(|a, b| compare(a[0], b[0], key_type).is_eq());
    Cow::Owned(joined(pairs.into_iter()))
}

/// The canonical form in which Cassandra stores a bound value: sets and maps are sorted, including
/// those inside collections. Those inside tuples, user-defined types and vectors stay as the client
/// sent them.
// Source: Cassandra 5.0, Sets.Value.fromSerialized (and of lists and maps), SetSerializer, MapSerializer
pub(crate) fn canonical<'a>(bytes: &'a [u8], of: &CqlType) -> Cow<'a, [u8]> {
    let is_collection = |of: &CqlType| {
        matches!(of.unfrozen(), CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..))
    };
    let is_nested = match of.unfrozen() {
        CqlType::List(item) | CqlType::Set(item) => is_collection(item),
        CqlType::Map(key, value) => is_collection(key) || is_collection(value),
        _ => false,
    };
    let rewritten = if is_nested { rewritten_items(bytes, of) } else { None };
    let Some((items, per_item)) = rewritten else { return sorted(bytes, of) };
    let joined = joined(items.chunks(per_item));
    Cow::Owned(sorted(&joined, of).into_owned())
}

/// The items of a collection (of a map, alternating keys and values), each rewritten, and the
/// number of values per item.
fn rewritten_items<'a>(bytes: &'a [u8], of: &CqlType) -> Option<(Vec<Cow<'a, [u8]>>, usize)> {
    let types: &[&CqlType] = match of.unfrozen() {
        CqlType::List(item) | CqlType::Set(item) => &[item],
        CqlType::Map(key, value) => &[key, value],
        _ => return None,
    };
    let items = items(bytes, types.len()).ok()?;
    let rewrite = |(nth, item)| rewritten(item, types[nth % types.len()]);
    Some((items.into_iter().enumerate().map(rewrite).collect(), types.len()))
}

/// An item in the form that Cassandra writes after reading it: a collection is sorted, keeping the
/// last of identical keys. Keys that differ but compare as equal are both kept.
fn rewritten<'a>(item: &'a [u8], of: &CqlType) -> Cow<'a, [u8]> {
    let Some((items, per_item)) = rewritten_items(item, of) else { return Cow::Borrowed(item) };
    let mut entries: Vec<&[Cow<'_, [u8]>]> = items.chunks(per_item).collect();
    if let CqlType::Set(key) | CqlType::Map(key, _) = of.unfrozen() {
        entries.sort_by(|a, b| compare(&a[0], &b[0], key));
        entries.dedup_by(|later, earlier| {
            let is_same = later[0] == earlier[0];
            if is_same {
                *earlier = *later;
            }
            is_same
        });
    }
    Cow::Owned(joined(entries.into_iter()))
}

fn joined<'a, P: AsRef<[u8]> + 'a>(items: impl Iterator<Item = &'a [P]>) -> Vec<u8> {
    let mut count = 0;
    let mut parts = Vec::new();
    for item in items {
        count += 1;
        for part in item {
            put_part(Some(part.as_ref()), &mut parts);
        }
    }
    let mut out = Vec::with_capacity(4 + parts.len());
    put_count(count, &mut out);
    out.extend_from_slice(&parts);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::tests::type_of;
    use crate::term::Constant;
    use crate::value::constant;
    use proptest::prelude::*;

    fn bytes(text: &str, native: Native) -> Vec<u8> {
        let constant = match native {
            Native::Boolean => Constant::Boolean(text == "true"),
            Native::Uuid | Native::Timeuuid => Constant::Uuid(text.into()),
            Native::Float | Native::Double | Native::Decimal => Constant::Float(text.into()),
            Native::Text | Native::Inet | Native::Date | Native::Time => {
                Constant::String(text.into())
            }
            Native::Blob => Constant::Blob(text.into()),
            _ => Constant::Integer(text.into()),
        };
        constant::encode(&constant, native).unwrap()
    }

    fn list(items: &[i32], per_item: usize) -> Vec<u8> {
        let mut out = Vec::new();
        put_count(items.len() / per_item, &mut out);
        for item in items {
            put_part(Some(&item.to_be_bytes()), &mut out);
        }
        out
    }

    fn map() -> CqlType {
        CqlType::Map(Box::new(CqlType::INT), Box::new(CqlType::INT))
    }

    #[test]
    fn values_of_every_type_have_an_order() {
        for (native, ascending) in [
            (Native::Tinyint, &["-128", "-1", "0", "127"][..]),
            (Native::Smallint, &["-300", "-1", "0", "300"]),
            (Native::Int, &["-70000", "-1", "0", "70000"]),
            (Native::Bigint, &["-5000000000", "-1", "0", "5000000000"]),
            (Native::Counter, &["-1", "0", "1"]),
            (Native::Timestamp, &["-1", "0", "1"]),
            (Native::Varint, &["-70000", "-1", "0", "128", "70000"]),
            (Native::Decimal, &["-1e10", "-1.5", "0", "0.10", "1e10"]),
            (Native::Float, &["-1e10", "-1.5", "0", "1e10"]),
            (Native::Double, &["-1e10", "-1.5", "0", "1e10"]),
            (Native::Boolean, &["false", "true"]),
            (Native::Text, &["", "a", "aa", "b"]),
            (Native::Blob, &["", "00", "0000", "ff"]),
            (Native::Inet, &["10.0.0.1", "127.0.0.1"]),
            (Native::Date, &["-0001-01-01", "1969-12-31", "1970-01-01"]),
            (Native::Time, &["00:00:00", "23:59:59"]),
            (
                Native::Timeuuid,
                &["00000001-0000-1000-8000-000000000000", "00000000-0001-1000-8000-000000000000"],
            ),
        ] {
            let of = CqlType::Native(native);
            let values: Vec<Vec<u8>> = ascending.iter().map(|text| bytes(text, native)).collect();
            for (a, left) in values.iter().enumerate() {
                for (b, right) in values.iter().enumerate() {
                    assert_eq!(compare(left, right, &of), a.cmp(&b), "{native:?} {a} {b}");
                }
            }
        }
        let same = compare(
            &bytes("1.0", Native::Decimal),
            &bytes("1.00", Native::Decimal),
            &CqlType::Native(Native::Decimal),
        );
        assert_eq!(same, Ordering::Equal);
    }

    #[test]
    fn searches_in_collections() {
        let one = 1_i32.to_be_bytes();
        let two = 2_i32.to_be_bytes();
        let set = CqlType::Set(Box::new(CqlType::INT));
        assert!(contains(&list(&[1, 3], 1), &one, &set));
        assert!(!contains(&list(&[1, 3], 1), &two, &set));
        assert!(contains(&list(&[1, 2], 2), &two, &map()));
        assert!(!contains(&list(&[1, 2], 2), &one, &map()));
        assert!(contains_key(&list(&[1, 2], 2), &one, &map()));
        assert!(!contains_key(&list(&[1, 3], 1), &one, &set));
        assert_eq!(element(&list(&[1, 2], 2), &one, &map()), Some(&two[..]));
        assert!(!contains(b"a", b"a", &CqlType::TEXT));
    }

    #[test]
    fn sets_and_maps_are_brought_in_order() {
        let set = CqlType::Set(Box::new(CqlType::INT));
        assert_eq!(*sorted(&list(&[3, -1, 3, 2], 1), &set), list(&[-1, 2, 3], 1));
        assert_eq!(*sorted(&list(&[2, 1, 1, 5, 2, 7], 2), &map()), list(&[1, 5, 2, 7], 2));
        assert!(matches!(sorted(&list(&[1, 2], 1), &set), Cow::Borrowed(_)));
        let from = 2_i32.to_be_bytes();
        let cut = slice(&list(&[1, 10, 2, 20, 3, 30], 2), Some(&from), None, &map());
        assert_eq!(cut, list(&[2, 20, 3, 30], 2));
        assert_eq!(slice(&list(&[1, 2, 3], 1), None, Some(&from), &set), list(&[1, 2], 1));
    }

    #[test]
    fn bound_collections_are_in_order_at_every_depth() {
        let nested = |items: &[Vec<u8>], per_item: usize| {
            let mut out = Vec::new();
            put_count(items.len() / per_item, &mut out);
            for item in items {
                put_part(Some(item), &mut out);
            }
            out
        };
        let (one, two) = (list(&[1], 1), list(&[2, 1, 2], 1));
        let sets = type_of("set<frozen<set<int>>>");
        let expected = nested(&[one.clone(), list(&[1, 2], 1)], 1);
        assert_eq!(*canonical(&nested(&[two.clone(), one.clone()], 1), &sets), expected);
        let maps = type_of("map<frozen<list<int>>, frozen<map<int, int>>>");
        let bytes = nested(&[two.clone(), list(&[3, 1, 1, 5, 3, 9], 2)], 2);
        let expected = nested(&[two.clone(), list(&[1, 5, 3, 9], 2)], 2);
        assert_eq!(*canonical(&bytes, &maps), expected);
        // Collections inside a tuple stay unchanged.
        let tuples = type_of("list<frozen<tuple<frozen<set<int>>>>>");
        let mut tuple = Vec::new();
        put_part(Some(&two), &mut tuple);
        let bytes = nested(&[tuple], 1);
        assert_eq!(*canonical(&bytes, &tuples), bytes);
        assert!(matches!(canonical(&list(&[1, 2], 1), &type_of("set<int>")), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn the_fast_path_gives_the_same_order(left: i64, right: i64) {
            let (left, right) = (left.to_be_bytes(), right.to_be_bytes());
            let mut keys = [Vec::new(), Vec::new()];
            encode(&left, &CqlType::BIGINT, false, &mut keys[0]);
            encode(&right, &CqlType::BIGINT, false, &mut keys[1]);
            prop_assert_eq!(compare(&left, &right, &CqlType::BIGINT), keys[0].cmp(&keys[1]));
        }
    }
}
