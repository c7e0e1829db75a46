//! Random types and values of them.
//!
//! Values are drawn from short lists, so that keys are found again and values are equal.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::term::Term;

/// A native type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Native {
    pub(super) name: &'static str,
    /// Constants of CQL, including the smallest and the largest.
    values: &'static [&'static str],
    pub(super) is_number: bool,
    /// Whether values have an order, so that they can be keys.
    is_key: bool,
}

const fn number(name: &'static str, values: &'static [&'static str]) -> Native {
    Native { name, values, is_number: true, is_key: true }
}

const fn other(name: &'static str, values: &'static [&'static str]) -> Native {
    Native { name, values, is_number: false, is_key: true }
}

impl Native {
    fn term(&self, random: &mut StdRng) -> Term {
        let constant = self.values.choose(random).expect("every type has values");
        Term::native(self.name, constant)
    }
}

const UUIDS: &[&str] = &[
    "00000000-0000-0000-0000-000000000000",
    "50554d6e-29bb-11e5-b345-feff819cdc9f",
    "ffffffff-29bb-11e6-b345-feff819cdc9f",
    "11111111-2222-4333-8444-555555555555",
    "99999999-2222-4333-8444-555555555555",
];
const TIMEUUIDS: &[&str] = &[
    "50554d6e-29bb-11e5-b345-feff819cdc9f",
    "00000000-29bb-11e6-b345-feff819cdc9f",
    "ffffffff-29bb-11e4-b345-feff819cdc9f",
    "50554d6e-29bb-11e5-8080-808080808080",
];

static NATIVES: [Native; 21] = [
    number("int", &["0", "1", "-1", "7", "2147483647", "-2147483648"]),
    other("text", &["''", "'a'", "'b'", "'ab'", "'B'", "'ä'", "'it''s'", "$$dollar$$"]),
    number("bigint", &["0", "1", "-1", "9223372036854775807", "-9223372036854775808"]),
    number("smallint", &["0", "1", "-1", "32767", "-32768"]),
    number("tinyint", &["0", "1", "-1", "127", "-128"]),
    number("varint", &["0", "1", "-1", "128", "-129", "123456789012345678901234567890"]),
    // The form in which keys are read back: without trailing zeros of a fraction.
    number("decimal", &["0", "1", "100", "-1.5", "0.001", "-70000"]),
    Native {
        name: "decimal",
        values: &["1.0", "1.50", "1E+10", "-7", "0.00"],
        is_number: true,
        is_key: false,
    },
    number("float", &["0.0", "-0.0", "1.5", "-1.5", "1e10", "NaN", "Infinity", "-Infinity"]),
    number("double", &["0.0", "-0.0", "1.5", "-2.5", "1e300", "NaN", "Infinity", "-Infinity"]),
    other("boolean", &["true", "false"]),
    other("ascii", &["''", "'a'", "'b'", "'Ab'", "'~'"]),
    other("blob", &["0x", "0x00", "0x01", "0xff", "0x00ff", "0xFF00"]),
    other(
        "timestamp",
        &["0", "1", "-1", "'2020-02-29T12:34:56.789Z'", "'1969-12-31'", "'2030-01-01 00:00+0100'"],
    ),
    other("date", &["'1970-01-01'", "'1969-12-31'", "'2020-02-29'", "0"]),
    other("time", &["'00:00:00'", "'23:59:59.999999999'", "'08:12:54.1234'", "1"]),
    other("uuid", UUIDS),
    other("timeuuid", TIMEUUIDS),
    other("inet", &["'127.0.0.1'", "'10.0.0.2'", "'9.0.0.1'", "'::1'", "'fe80::1:2'"]),
    Native {
        name: "duration",
        values: &["1h", "-2d", "1y2mo3w4d", "P1Y2M3DT4H", "0s", "5ms6us7ns"],
        is_number: false,
        is_key: false,
    },
    Native { name: "counter", values: &["1", "-1", "5"], is_number: false, is_key: false },
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    Native(&'static Native),
    List(Box<Type>),
    Set(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Tuple(Vec<Type>),
    Vector(usize),
    /// The schema's own type, with the names of its fields.
    User(Vec<(String, Type)>),
    Frozen(Box<Type>),
}

/// Placeholder of the user-defined type's name.
pub(super) const USER_TYPE: &str = "$U";

impl Type {
    pub(super) fn native(name: &str) -> Type {
        let found = NATIVES.iter().find(|native| native.name == name);
        Type::Native(found.expect("named by this module's callers"))
    }

    fn any_native(random: &mut StdRng, is_key: bool) -> Type {
        let natives: Vec<&'static Native> = NATIVES
            .iter()
            .filter(|native| native.name != "counter" && (native.is_key || !is_key))
            .collect();
        Type::Native(natives.choose(random).expect("there are some"))
    }

    /// For a column of a primary key.
    pub(super) fn key(random: &mut StdRng, user: &[(String, Type)]) -> Type {
        match random.random_range(0..12) {
            0..5 => Type::native(["int", "text"].choose(random).expect("two")),
            5..10 => Type::any_native(random, true),
            _ => Type::frozen(Self::inner(random, user, 1, true)),
        }
    }

    /// For a column outside the key.
    pub(super) fn value(random: &mut StdRng, user: &[(String, Type)]) -> Type {
        match random.random_range(0..12) {
            0..3 => Type::native(["int", "text", "bigint"].choose(random).expect("three")),
            3..6 => Type::any_native(random, false),
            6 => Type::List(Box::new(Self::element(random, user, false))),
            7 => Type::Set(Box::new(Self::element(random, user, true))),
            8 => {
                let key = Self::element(random, user, true);
                Type::Map(Box::new(key), Box::new(Self::element(random, user, false)))
            }
            9 if !user.is_empty() => Type::User(user.to_vec()),
            10 => Type::Tuple(Self::parts(random, user, 2, false)),
            _ => Type::frozen(Self::inner(random, user, 2, false)),
        }
    }

    fn frozen(of: Type) -> Type {
        match of {
            // Not freezable, or always frozen.
            Type::Native(_) | Type::Tuple(_) | Type::Vector(_) | Type::Frozen(_) => of,
            other => Type::Frozen(Box::new(other)),
        }
    }

    fn element(random: &mut StdRng, user: &[(String, Type)], is_key: bool) -> Type {
        if random.random_bool(0.75) {
            return Type::any_native(random, is_key);
        }
        Type::frozen(Self::inner(random, user, 1, is_key))
    }

    fn inner(random: &mut StdRng, user: &[(String, Type)], depth: u32, is_key: bool) -> Type {
        let part = |random: &mut StdRng, is_key| {
            if depth == 0 || random.random_bool(0.7) {
                Box::new(Type::any_native(random, is_key))
            } else {
                Box::new(Type::frozen(Self::inner(random, user, depth - 1, is_key)))
            }
        };
        match random.random_range(0..6) {
            0 => Type::List(part(random, is_key)),
            1 => Type::Set(part(random, true)),
            2 => Type::Map(part(random, true), part(random, is_key)),
            3 if !user.is_empty() => Type::User(user.to_vec()),
            4 => Type::Vector(random.random_range(1..4)),
            _ => Type::Tuple(Self::parts(random, user, depth, is_key)),
        }
    }

    fn parts(random: &mut StdRng, user: &[(String, Type)], depth: u32, is_key: bool) -> Vec<Type> {
        let count = random.random_range(1..4);
        let mut part = || {
            if depth == 0 || random.random_bool(0.8) {
                Type::any_native(random, is_key)
            } else {
                Type::frozen(Self::inner(random, user, depth - 1, is_key))
            }
        };
        (0..count).map(|_| part()).collect()
    }

    /// The fields of a user-defined type, usable in keys.
    pub(super) fn fields(random: &mut StdRng) -> Vec<(String, Type)> {
        let count = random.random_range(1..4);
        (0..count).map(|at| (format!("f{at}"), Type::any_native(random, true))).collect()
    }

    /// As in CREATE TABLE.
    pub(super) fn name(&self) -> String {
        match self {
            Type::Native(native) => native.name.to_owned(),
            Type::List(of) => format!("list<{}>", of.name()),
            Type::Set(of) => format!("set<{}>", of.name()),
            Type::Map(key, of) => format!("map<{}, {}>", key.name(), of.name()),
            Type::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(Type::name).collect();
                format!("tuple<{}>", parts.join(", "))
            }
            Type::Vector(length) => format!("vector<float, {length}>"),
            Type::User(_) => USER_TYPE.to_owned(),
            Type::Frozen(of) => format!("frozen<{}>", of.name()),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Type::Native(native) if native.is_number)
    }

    /// A term for a key. None contains `{}`, which Cassandra parses as a set in WHERE, and then
    /// fails if it is a map.
    pub(super) fn key_term(&self, random: &mut StdRng) -> Term {
        loop {
            let term = self.term(random);
            if !self.has(&|of| matches!(of, Type::Map(..))) || !term.text.contains("{}") {
                return term;
            }
        }
    }

    /// Whether it is such a type, or contains one.
    pub(super) fn has(&self, is_such: &dyn Fn(&Type) -> bool) -> bool {
        is_such(self)
            || match self {
                Type::Native(_) | Type::Vector(_) => false,
                Type::List(of) | Type::Set(of) | Type::Frozen(of) => of.has(is_such),
                Type::Map(key, of) => key.has(is_such) || of.has(is_such),
                Type::Tuple(parts) => parts.iter().any(|part| part.has(is_such)),
                Type::User(fields) => fields.iter().any(|(_, of)| of.has(is_such)),
            }
    }

    pub(super) fn is_native(&self, name: &str) -> bool {
        matches!(self, Type::Native(native) if native.name == name)
    }

    /// A term of CQL that is never sent as a value.
    pub(super) fn literal(&self, random: &mut StdRng) -> String {
        self.term(random).text
    }

    /// A term of CQL that may be sent as a value.
    pub(super) fn marked(&self, random: &mut StdRng) -> String {
        self.term(random).marked()
    }

    pub(super) fn term(&self, random: &mut StdRng) -> Term {
        match self {
            Type::Native(native) => native.term(random),
            Type::List(of) => {
                Term::items(['[', ']'], &Self::some(random, |random| of.term(random)))
            }
            Type::Set(of) => Term::items(['{', '}'], &Self::some(random, |random| of.term(random))),
            Type::Map(key, of) => {
                let pair = |random: &mut StdRng| (key.term(random), of.term(random));
                Term::pairs(&Self::pairs(random, pair))
            }
            Type::Tuple(parts) => {
                let parts: Vec<Option<Term>> =
                    parts.iter().map(|part| part.term_or_null(random)).collect();
                Term::tuple(&parts, sent(random, &parts))
            }
            Type::Vector(length) => {
                let part = |_| {
                    let number = *["0.0", "1.5", "-2"].choose(random).expect("three");
                    Term::native("float", number)
                };
                let parts: Vec<Term> = (0..*length).map(part).collect();
                // For parts of fixed length only their bytes are sent.
                let bytes = parts.iter().flat_map(|part| part.bytes.clone()).collect();
                Term { bytes, ..Term::items(['[', ']'], &parts) }
            }
            Type::User(fields) => Self::user_term(random, fields),
            Type::Frozen(of) => of.term(random),
        }
    }

    fn user_term(random: &mut StdRng, fields: &[(String, Type)]) -> Term {
        let (mut texts, mut parts) = (Vec::new(), Vec::new());
        for (name, of) in fields {
            // The first one is kept: `{}` would be a map.
            let is_named = texts.is_empty() || random.random_bool(0.8);
            let part = if is_named { of.term_or_null(random) } else { None };
            if is_named {
                texts.push(format!("{name}: {}", Term::text_or_null(part.as_ref())));
            }
            parts.push(part);
        }
        let sent = sent(random, &parts);
        Term { text: format!("{{{}}}", texts.join(", ")), bytes: Term::fields(&parts[..sent]) }
    }

    fn term_or_null(&self, random: &mut StdRng) -> Option<Term> {
        if random.random_bool(0.15) { None } else { Some(self.term(random)) }
    }

    fn some<T>(random: &mut StdRng, part: impl Fn(&mut StdRng) -> T) -> Vec<T> {
        let count = random.random_range(0..4);
        (0..count).map(|_| part(random)).collect()
    }

    /// Keys are distinct: of two pairs with equal keys Cassandra keeps an arbitrary one.
    fn pairs<K: Ord, V>(random: &mut StdRng, pair: impl Fn(&mut StdRng) -> (K, V)) -> Vec<(K, V)> {
        let count = random.random_range(0..4);
        let pairs: BTreeMap<K, V> = (0..count).map(|_| pair(random)).collect();
        pairs.into_iter().collect()
    }

    /// A value in JSON.
    pub(super) fn json(&self, random: &mut StdRng) -> String {
        match self {
            Type::Native(native) => {
                json_scalar(native, native.values.choose(random).expect("some"))
            }
            Type::List(of) | Type::Set(of) => {
                format!("[{}]", Self::some(random, |random| of.json(random)).join(", "))
            }
            Type::Map(key, of) => {
                let pair = |random: &mut StdRng| {
                    let key = key.json(random);
                    // Keys of objects are texts; a key that is not a text contains JSON.
                    let key = if key.starts_with('"') { key } else { quoted(&key) };
                    (key, of.json(random))
                };
                let pairs = Self::pairs(random, pair).into_iter();
                let pairs = pairs.map(|(key, value)| format!("{key}: {value}"));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
            Type::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| part.json(random)).collect();
                format!("[{}]", parts.join(", "))
            }
            Type::Vector(length) => format!("[{}]", vec!["0.5"; *length].join(", ")),
            Type::User(fields) => {
                let parts: Vec<String> = fields
                    .iter()
                    .map(|(name, of)| format!("{}: {}", quoted(name), of.json(random)))
                    .collect();
                format!("{{{}}}", parts.join(", "))
            }
            Type::Frozen(of) => of.json(random),
        }
    }
}

/// How many parts of a tuple are sent: nulls at its end may be omitted, but not all parts.
fn sent(random: &mut StdRng, parts: &[Option<Term>]) -> usize {
    let least = parts.iter().rposition(Option::is_some).map_or(1, |last| last + 1);
    random.random_range(least..=parts.len())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn json_scalar(native: &Native, constant: &str) -> String {
    if let Some(text) = constant.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        return quoted(text);
    }
    let is_plain = constant.parse::<f64>().is_ok_and(f64::is_finite) && !constant.contains('+');
    if is_plain || native.name == "boolean" {
        return constant.to_owned();
    }
    quoted(constant.trim_matches('$'))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::super::encode;
    use super::*;

    #[test]
    fn every_constant_can_be_sent() {
        for native in &NATIVES {
            for constant in native.values {
                let bytes = encode::native(native.name, constant);
                let may_be_empty = ["text", "ascii", "blob"].contains(&native.name);
                assert!(may_be_empty || !bytes.is_empty(), "{} {constant}", native.name);
            }
        }
    }

    #[test]
    fn a_value_is_the_same_as_text_and_as_bytes() {
        let int = || Type::native("int");
        let fields = vec![("f0".to_owned(), int()), ("f1".to_owned(), int())];
        let numbers = |text: &str| text.matches(|it: char| it.is_ascii_digit()).count();
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..100 {
            let vector = Type::Vector(2).term(&mut random);
            assert_eq!(vector.bytes.len(), 8);
            let list = Type::List(Box::new(int())).term(&mut random);
            let count = if numbers(&list.text) == 0 { 0 } else { list.text.split(", ").count() };
            assert_eq!(list.bytes.len(), 4 + 8 * count, "{}", list.text);
            let user = Type::User(fields.clone()).term(&mut random);
            let values = user.text.matches(": ").count() - user.text.matches("null").count();
            let bytes = 4 * values + 4 * values.max(1)..=4 * values + 8;
            assert!(bytes.contains(&user.bytes.len()), "{}", user.text);
        }
    }
}
