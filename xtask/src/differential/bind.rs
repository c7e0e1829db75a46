//! Ways of sending statements: terms are literals, or markers with separate values.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use wire::cql::BatchKind;

use super::Way;
use super::encode;
use super::term::MARKS;
use crate::cql::bound::{Batch, Bound, Named, Part};

/// The share of statements with markers.
const BOUND: f64 = 0.4;
/// The share of prepared statements, with markers or without.
const PREPARED: f64 = 0.4;
/// The share of BATCH messages among the batches that allow it.
const BATCHED: f64 = 0.5;
/// The share of statements in which every term is a marker; in others, the probability for each
/// term.
const WHOLE: f64 = 0.5;
const TERMS: f64 = 0.6;
/// The probability that one value of a statement is null, unset or empty instead of the term's
/// value. At most one, because servers may report either of two errors.
const ODD: f64 = 0.15;
/// The words of a batch after BEGIN.
const KINDS: [(&str, BatchKind); 3] = [
    ("BATCH ", BatchKind::Logged),
    ("UNLOGGED BATCH ", BatchKind::Unlogged),
    ("COUNTER BATCH ", BatchKind::Counter),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Markers {
    /// `?`
    Nameless,
    /// `:name`, with values in the order of the markers.
    Named,
    /// `:name`, with named values, in any order.
    WithNames,
}

/// A text with marked terms, in the form in which it is sent.
pub(super) fn sent(random: &mut StdRng, marked: &str) -> (String, Way) {
    if let Some(batch) = batch(random, marked) {
        return (plain(marked), Way::Batch(batch));
    }
    let (text, values) = if random.random_bool(BOUND) {
        let markers = match random.random_range(0..4) {
            0 | 1 => Markers::Nameless,
            2 => Markers::Named,
            _ => Markers::WithNames,
        };
        bind(random, marked, markers)
    } else {
        (plain(marked), Vec::new())
    };
    let is_prepared = random.random_bool(PREPARED);
    (text, if is_prepared { Way::Prepared(values) } else { Way::Direct(values) })
}

/// The statement without marks, with all its terms.
fn plain(marked: &str) -> String {
    let parts = marked.split(MARKS).enumerate();
    parts.filter(|(at, _)| at % 3 != 2).map(|(_, part)| part).collect()
}

/// Replaces some terms by markers, and returns their values.
fn bind(random: &mut StdRng, marked: &str, markers: Markers) -> (String, Vec<Named>) {
    let parts: Vec<&str> = marked.split(MARKS).collect();
    let (terms, rest) = parts.as_chunks::<3>();
    let is_whole = random.random_bool(WHOLE);
    let has_odd = !terms.is_empty() && random.random_bool(ODD);
    let odd = has_odd.then(|| random.random_range(0..terms.len()));
    let (mut text, mut values) = (String::new(), Vec::new());
    for (at, [before, term, digits]) in terms.iter().enumerate() {
        text.push_str(before);
        if !is_whole && !random.random_bool(TERMS) {
            text.push_str(term);
            continue;
        }
        let bound = if odd == Some(at) && !is_judged(&text) {
            odd_value(random)
        } else {
            Bound::Bytes(encode::unhex(digits))
        };
        let name = format!("n{}", values.len());
        match markers {
            Markers::Nameless => text.push('?'),
            Markers::Named | Markers::WithNames => {
                text.push(':');
                text.push_str(&name);
            }
        }
        values.push(((markers == Markers::WithNames).then_some(name), bound));
    }
    text.push_str(&rest.concat());
    if markers == Markers::WithNames {
        values.shuffle(random);
    }
    (text, values)
}

/// Whether the rest belongs to a condition: comparisons with null are rejected there, but in
/// Cassandra only if a hash map iterates over them first.
fn is_judged(text: &str) -> bool {
    let statement = text.rsplit("; ").next();
    statement.is_some_and(|statement| statement.contains(" IF "))
}

fn odd_value(random: &mut StdRng) -> Bound {
    match random.random_range(0..3) {
        0 => Bound::Null,
        1 => Bound::Unset,
        _ => Bound::Bytes(Vec::new()),
    }
}

/// The statements of a batch that is to be sent as a BATCH message. A batch with a timestamp is
/// excluded, because the message has a timestamp of its own.
fn batch(random: &mut StdRng, marked: &str) -> Option<Batch> {
    let inner = marked.strip_prefix("BEGIN ")?.strip_suffix("; APPLY BATCH")?;
    let found = KINDS.iter().find_map(|(word, kind)| Some((*kind, inner.strip_prefix(word)?)));
    let (kind, statements) = found?;
    if statements.starts_with("USING ") || !random.random_bool(BATCHED) {
        return None;
    }
    let parts = statements.split("; ").map(|statement| part(random, statement)).collect();
    Some(Batch { kind, parts })
}

fn part(random: &mut StdRng, marked: &str) -> Part {
    let (text, values) = match random.random_range(0..4) {
        0 => (plain(marked), Vec::new()),
        1 => bind(random, marked, Markers::Named),
        _ => bind(random, marked, Markers::Nameless),
    };
    Part { text, values, is_prepared: random.random_bool(0.5) }
}

/// A description of how a statement was sent.
pub(super) fn way_of(way: &Way) -> String {
    match way {
        Way::Direct(values) => shown(values),
        Way::Prepared(values) => format!(" prepared{}", shown(values)),
        Way::Batch(_) => " as BATCH of".to_owned(),
    }
}

pub(super) fn part_of(part: &Part) -> String {
    let word = if part.is_prepared { " prepared" } else { "" };
    format!("{word}{}", shown(&part.values))
}

fn shown(values: &[Named]) -> String {
    if values.is_empty() {
        return String::new();
    }
    let parts = values.iter().map(|(name, bound)| {
        let value = match bound {
            Bound::Null => "null".to_owned(),
            Bound::Unset => "unset".to_owned(),
            Bound::Bytes(bytes) => format!("0x{}", encode::hex(bytes)),
        };
        name.as_ref().map_or_else(|| value.clone(), |name| format!("{name}: {value}"))
    });
    format!(" with ({})", parts.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::super::term::Term;
    use super::*;

    fn marked() -> String {
        let [one, two] = [Term::int(1).marked(), Term::native("text", "'a'").marked()];
        format!("SELECT v FROM t WHERE p = {one} AND c > {two} LIMIT 2")
    }

    #[test]
    fn without_values_the_terms_stand_in_the_text() {
        assert_eq!(plain(&marked()), "SELECT v FROM t WHERE p = 1 AND c > 'a' LIMIT 2");
        assert_eq!(plain("TRUNCATE t"), "TRUNCATE t");
    }

    /// Checks that text and values together are equal to the terms, except for one odd value.
    fn check(markers: Markers, marker: impl Fn(usize) -> String) {
        let terms = [("1", "00000001"), ("'a'", "61")];
        let mut all = 0;
        for seed in 0..100 {
            let mut random = StdRng::seed_from_u64(seed);
            let (text, values) = bind(&mut random, &marked(), markers);
            let mut expected = plain(&marked());
            let mut odd = 0;
            for (at, placed) in values.iter().enumerate() {
                assert!(text.contains(&marker(at)), "{text}");
                let name = Some(format!("n{at}"));
                let told = values.iter().find(|(found, _)| *found == name);
                let (name, bound) = told.unwrap_or(placed);
                assert_eq!(name.is_some(), markers == Markers::WithNames);
                let bytes = match bound {
                    Bound::Bytes(bytes) => encode::hex(bytes),
                    _ => String::new(),
                };
                match terms.iter().find(|(_, digits)| *digits == bytes) {
                    Some((term, _)) => expected = expected.replacen(term, &marker(at), 1),
                    None => odd += 1,
                }
            }
            assert!(odd <= 1, "{text}");
            if odd == 0 {
                assert_eq!(text, expected);
                all += usize::from(values.len() == terms.len());
            }
        }
        assert!(all > 10, "{all}");
    }

    #[test]
    fn markers_stand_for_values_in_every_way() {
        check(Markers::Nameless, |_| "?".to_owned());
        check(Markers::Named, |at| format!(":n{at}"));
        check(Markers::WithNames, |at| format!(":n{at}"));
    }

    #[test]
    fn a_batch_is_cut_into_its_statements() {
        let one = Term::int(1).marked();
        let texts = format!(
            "BEGIN UNLOGGED BATCH INSERT INTO t (p) VALUES ({one}); DELETE FROM t WHERE p = {one}; \
             APPLY BATCH"
        );
        let timed =
            format!("BEGIN BATCH USING TIMESTAMP {one} DELETE FROM t WHERE p = 1; APPLY BATCH");
        let mut found = 0;
        for seed in 0..50 {
            let mut random = StdRng::seed_from_u64(seed);
            assert_eq!(batch(&mut random, &timed), None);
            assert_eq!(batch(&mut random, &marked()), None);
            let Some(batch) = batch(&mut random, &texts) else { continue };
            found += 1;
            assert_eq!(batch.kind, BatchKind::Unlogged);
            let [insert, delete] = &batch.parts[..] else { panic!("{batch:?}") };
            assert!(insert.text.starts_with("INSERT INTO t (p) VALUES ("), "{}", insert.text);
            assert!(delete.text.starts_with("DELETE FROM t WHERE p = "), "{}", delete.text);
        }
        assert!(found > 10, "{found}");
    }

    #[test]
    fn operands_of_conditions_have_valid_types() {
        let one = Term::int(1).marked();
        let text = format!("UPDATE t SET v = {one} WHERE p = {one} IF v = {one}");
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let (text, values) = bind(&mut random, &text, Markers::Nameless);
            if text.ends_with('?') {
                let last = &values.last().expect("a marker").1;
                assert_eq!(*last, Bound::Bytes(vec![0, 0, 0, 1]), "{text}");
            }
        }
    }
}
