//! Random words of requests: keys, values, numbers, ranges.
//!
//! The pools are small, so that commands meet the data of earlier ones. Numbers with fractions are
//! multiples of a power of two: sums are exact in any order, and all versions of Redis print them
//! alike.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

/// The share of keys that belong to another type than the command expects.
const WRONG_TYPE: f64 = 0.03;
/// Timeout of blocking commands, in seconds.
pub(super) const SHORT_WAIT: &str = "0.001";
/// The year 2100, in seconds.
const FAR_SECONDS: u64 = 4_102_444_800;

/// One word of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) bytes: Vec<u8>,
    pub(super) is_key: bool,
}

impl Word {
    pub(super) fn plain(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), is_key: false }
    }

    /// Whether it is a sorted set of `EQUAL_SCORES`.
    pub(super) fn has_equal_scores(&self) -> bool {
        self.bytes.first().is_some_and(|first| char::from(*first) == EQUAL_SCORES)
    }

    fn key(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), is_key: true }
    }
}

/// Keys by type. The first letter is the name of their kind.
pub(super) const KEYS: [&str; 30] = [
    "y1",
    "y2",
    "s1",
    "s2",
    "s3",
    "b1",
    "b2",
    "h1",
    "h2",
    "h3",
    "l1",
    "l2",
    "l3",
    "q1",
    "q2",
    "t1",
    "t2",
    "t3",
    "z1",
    "z2",
    "z3",
    "x1",
    "x2",
    "g1",
    "g2",
    "p1",
    "p2",
    "p3",
    "none",
    "empty key",
];

/// Members of sorted sets of this kind have equal scores: for others Redis defines no order by
/// members.
const EQUAL_SCORES: char = 'y';

/// Values of logs (`PFADD`) hold a count that the servers compute at different times: strings of
/// this kind are read only by commands on them.
const LOGS: char = 'p';

const VALUES: [&[u8]; 20] = [
    b"",
    b"a",
    b"abc",
    b"10",
    b"-7",
    b"3.5",
    b"007",
    b"1",
    b"2",
    b"100",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"hello world",
    b"\xff\x00\x80bin\r\n",
    b" 12",
    b"1e3",
    b"12345678901234567890",
    b"the quick brown fox jumps over the lazy dog!!",
    &[b'y'; 70],
    &[b'z'; 600],
];
const FIELDS: [&[u8]; 16] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"1",
    b"2",
    b"3",
    b"40",
    b"-5",
    b"70000",
    b"12345678901",
    b"",
    b"1.5",
    b"\xfe\x01",
    b"a member that is longer than the sixty-four bytes of a small encoding",
];
const SCORES: [&str; 22] = [
    "0", "1", "2", "3", "-1", "1.5", "-2.25", "0.125", "100", "1024", "65536.5", "inf", "-inf",
    "+inf", "3e2", "1e15", "7", "8", "9", "10", "nan", "1x",
];
const PLACES: [&[u8]; 8] =
    [b"Palermo", b"Catania", b"Rome", b"Oslo", b"Cairo", b"Lima", b"Quito", b"Pole"];
const PATTERNS: [&str; 14] =
    ["*", "?", "a*", "*1", "[a-c]", "[^a]*", "h?", "\\*", "s[12]", "", "[", "*b*", "t*", "[z-x]1"];
const INTEGERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "2",
    "10",
    "-10",
    "100",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "4294967296",
    "x",
    "",
    "1.0",
    "+1",
    " 1",
];
const TYPES: [&str; 12] =
    ["u8", "i8", "u1", "i64", "u63", "i5", "u16", "i32", "u4", "i1", "u64", "i65"];

/// A word of this kind; after `=`, a key that has this type. `ids` is the number of stream entries so far.
pub(super) fn random(random: &mut StdRng, kind: &str, ids: &mut u64) -> Word {
    if let Some(kind) = kind.strip_prefix('=') {
        return any_key(random, |key| key.starts_with(kind));
    }
    let text = match kind {
        "k" => return any_key(random, |_| true),
        "s" | "b" | "h" | "l" | "q" | "t" | "z" | "y" | "x" | "g" | "p" => {
            return key(random, kind);
        }
        "v" => return Word::plain(VALUES.choose(random).expect("some")),
        "f" => return Word::plain(FIELDS.choose(random).expect("some")),
        "place" => return Word::plain(PLACES.choose(random).expect("some")),
        "element" => format!("e{}", random.random_range(0..300)),
        "number" => random.random_range(-20..100).to_string(),
        "i" => one(random, &INTEGERS),
        // Redis adds to the smallest integer in 64 bits.
        "step" => one(random, &["0", "1", "-1", "100", "-300", "9223372036854775807", "x", ""]),
        "n" => random.random_range(-7..9).to_string(),
        "count" => random.random_range(0..7).to_string(),
        "d" => one(random, &SCORES),
        "w" => one(random, &["1", "2", "0", "-1", "0.5", "inf", "x"]),
        "lo" => bound(random),
        "lex" => lex(random),
        "far" => (FAR_SECONDS + random.random_range(0..3) * 1000).to_string(),
        "farms" => (FAR_SECONDS * 1000 + random.random_range(0..3) * 1000).to_string(),
        "xid" => new_id(random, ids),
        "id" => id(random, *ids),
        "rid" => range_id(random, *ids),
        "gr" => one(random, &["g1", "g2", "g3"]),
        "co" => one(random, &["alice", "bob"]),
        "pat" => one(random, &PATTERNS),
        "bit" => one(random, &["0", "1", "0", "1", "0", "1", "2"]),
        "off" => offset(random),
        "type" => one(random, &TYPES),
        "ioff" => {
            let is_counted = random.random_bool(0.4);
            let number = random.random_range(0..40);
            if is_counted { format!("#{number}") } else { number.to_string() }
        }
        // Distances are different, so that their order is defined.
        "lon" => format!("{:.6}", random.random_range(-181.0..181.0)),
        "lat" => format!("{:.6}", random.random_range(-86.0..86.0)),
        "sec" => {
            one(random, &["100000", "100000", "100001", "0", "-1", "9223372036854775807", "x"])
        }
        "rad" => one(random, &["1", "200", "1000", "5000000", "0", "-1", "20000"]),
        "unit" => one(random, &["m", "km", "mi", "ft", "km", "KM", "yd"]),
        "db" => one(random, &["0", "1", "0", "1", "0", "99", "x"]),
        "by" => one(random, &["s*", "h1->*", "none*", "h*->a"]),
        "get" => one(random, &["#", "s*", "h1->*", "*", "h*->1"]),
        other => panic!("no kind of word {other:?}"),
    };
    Word::plain(text.as_bytes())
}

fn one(random: &mut StdRng, texts: &[&str]) -> String {
    (*texts.choose(random).expect("some")).to_owned()
}

fn key(random: &mut StdRng, kind: &str) -> Word {
    if random.random_bool(WRONG_TYPE) {
        let has_scores = kind == "z" || kind == "g" || kind.starts_with(EQUAL_SCORES);
        let kept = |key: &str| has_scores && key.starts_with(['z', 'g', EQUAL_SCORES]);
        let is_string = |key: &str| kind.starts_with(LOGS) && key.starts_with(['s', 'b', 'n', 'e']);
        return any_key(random, |key| !key.starts_with(LOGS) && !kept(key) && !is_string(key));
    }
    any_key(random, |key| key.starts_with(kind))
}

fn any_key(random: &mut StdRng, is_wanted: impl Fn(&str) -> bool) -> Word {
    let keys: Vec<&str> = KEYS.into_iter().filter(|key| is_wanted(key)).collect();
    Word::key(keys.choose(random).expect("every kind has keys"))
}

/// A bound of scores.
fn bound(random: &mut StdRng) -> String {
    let open = if random.random_bool(0.2) { "(" } else { "" };
    format!("{open}{}", one(random, &SCORES))
}

/// A bound of members.
fn lex(random: &mut StdRng) -> String {
    let ends = ["-", "+", "x", "(", "["];
    if random.random_bool(0.4) {
        return one(random, &ends);
    }
    format!("{}{}", one(random, &["[", "("]), one(random, &["a", "b", "c", "d", "1", "40", "zz"]))
}

/// The ID of a new entry, usually greater than all earlier ones.
fn new_id(random: &mut StdRng, ids: &mut u64) -> String {
    if random.random_bool(0.15) {
        return id(random, *ids);
    }
    *ids += 1;
    match random.random_range(0..10) {
        0 => format!("{}-*", *ids / 3 + 1),
        1 => format!("{}", *ids / 3 + 1),
        _ => format!("{}-{}", *ids / 3 + 1, *ids % 3 + 1),
    }
}

fn id(random: &mut StdRng, ids: u64) -> String {
    let near = ids.saturating_sub(random.random_range(0..20));
    match random.random_range(0..12) {
        0 => "0".to_owned(),
        1 => "0-0".to_owned(),
        2 => "18446744073709551615-18446744073709551615".to_owned(),
        3 => one(random, &["x", "1-x", "-1", "1-1-1", ""]),
        4 => format!("{}", near / 3 + 1),
        _ => format!("{}-{}", near / 3 + 1, near % 3 + 1),
    }
}

fn range_id(random: &mut StdRng, ids: u64) -> String {
    match random.random_range(0..6) {
        0 => "-".to_owned(),
        1 => "+".to_owned(),
        2 => format!("({}", id(random, ids)),
        _ => id(random, ids),
    }
}

fn offset(random: &mut StdRng) -> String {
    match random.random_range(0..12) {
        0 => one(random, &["-1", "4294967296", "x", "3000"]),
        _ => random.random_range(0..70).to_string(),
    }
}
