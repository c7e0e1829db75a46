//! What keys and elements take: a limit for each shape of `benchmarks/record/diary.md`.

use base::time::UnixMs;

use crate::types::Compact;
use crate::{AccessClock, AccessRule, Change, End, Items, Keyspace, Mutation, Params};

/// Bytes by which the store grows for each of `keys` keys of 16 bytes.
fn bytes_per_key(keys: u32, change_of: impl Fn(&mut dyn FnMut(Change<'_>))) -> f64 {
    let store = Keyspace::new(7);
    let access = AccessClock::new(AccessRule::Lru, UnixMs(0), 1);
    let params = Params::new(UnixMs(0), access, Compact::default());
    let before = store.stats(UnixMs(0)).1;
    for number in 0..keys {
        let name = format!("key:{number:012}");
        let key = store.key(name.as_bytes());
        change_of(&mut |change| {
            let mutation = Mutation::Key { db: 0, key, change };
            store.lock_one(key.hash, &params).apply_mutation(&mutation).expect("a valid change");
        });
    }
    let grown = store.stats(UnixMs(0)).1 - before;
    f64::from(u32::try_from(grown).expect("less than 4 GiB")) / f64::from(keys)
}

fn elements(count: u32, element: impl Fn(u32) -> String) -> Vec<String> {
    (0..count).map(element).collect()
}

fn slices(elements: &[String]) -> Vec<&[u8]> {
    elements.iter().map(String::as_bytes).collect()
}

fn set(value: &[u8]) -> f64 {
    bytes_per_key(100_000, |change| change(Change::Set { value, expiry: None }))
}

fn hash(pairs: &[String]) -> f64 {
    let pairs = slices(pairs);
    bytes_per_key(20_000, |change| change(Change::HashSet { pairs: Items::Slice(&pairs) }))
}

fn list(values: &[String]) -> f64 {
    let values = slices(values);
    let values = Items::Slice(&values);
    bytes_per_key(20_000, |change| change(Change::ListPush { end: End::Back, values }))
}

/// Lists to which elements are added one at a time: bytes of each.
fn long_list(end: End, values: &[String]) -> f64 {
    let per_key = bytes_per_key(400, |change| {
        for value in values {
            change(Change::ListPush { end, values: Items::Slice(&[value.as_bytes()]) });
        }
    });
    per_key / f64::from(u32::try_from(values.len()).expect("few"))
}

/// A golden-ratio sequence: eight hexadecimal digits without order.
fn digits(number: u32) -> String {
    format!("{:08x}", number.wrapping_mul(0x9e37_79b1))
}

#[test]
fn keys_and_elements_take_at_most_as_much_as_documented() {
    let field = |number: u32| match number % 2 {
        0 => format!("field:{}", number / 2),
        _ => format!("value-{}", number / 2),
    };
    let integers = elements(20, |number| (number * 4001).to_string());
    let mixed = elements(1000, |number| format!("element:{number}"));
    for (shape, bytes, limit) in [
        ("string of 16 bytes", set(&[b'v'; 16]), 59.5),
        ("string of 80 bytes", set(&[b'v'; 80]), 123.5),
        ("number of 6 digits", set(b"123456"), 43.5),
        ("number of 7 digits", set(b"1234567"), 43.5),
        ("number of 14 digits", set(b"17643784761234"), 43.5),
        ("hash of 20 texts", hash(&elements(40, field)), 399.0),
        ("list of 20 integers", list(&integers), 126.5),
        ("list of 20 texts of 8 bytes", list(&elements(20, digits)), 207.0),
        ("of 1,000 x 8 bytes", long_list(End::Back, &elements(1000, digits)), 8.65),
        ("the same from the front", long_list(End::Front, &elements(1000, digits)), 8.65),
        ("of 1,000 x 9 to 11 bytes", long_list(End::Back, &mixed), 13.4),
    ] {
        println!("{shape}: {bytes:.2}");
        assert!(bytes <= limit, "{shape}: {bytes:.2} bytes");
    }
}
