use super::*;
use crate::ZSetRef;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

type Oracle = BTreeMap<Vec<u8>, f64>;

const SMALL: Compact = Compact {
    hash_entries_max: 0,
    hash_value_bytes_max: 0,
    set_intset_entries_max: 0,
    set_entries_max: 0,
    set_value_bytes_max: 0,
    zset_entries_max: 6,
    zset_value_bytes_max: 8,
    list_chunk_bytes_max: 0,
    stream_block_bytes_max: 4096,
    stream_block_entries_max: 100,
    list_chunk_entries_max: 0,
    seed: 7,
};

fn member(number: u16) -> Vec<u8> {
    format!("m{number}").into_bytes()
}

/// Few distinct scores, so that many members tie; infinities and both zeros among them.
fn score(number: u16) -> f64 {
    match number % 23 {
        0 => f64::NEG_INFINITY,
        1 => f64::INFINITY,
        2 => -0.0,
        3 => 0.0,
        rest => f64::from(rest) - 11.5,
    }
}

fn in_order(oracle: &Oracle) -> Vec<(&[u8], f64)> {
    let mut rows: Vec<(&[u8], f64)> =
        oracle.iter().map(|(member, score)| (member.as_slice(), *score)).collect();
    rows.sort_by(|left, right| order((left.1, left.0), (right.1, right.0)));
    rows
}

fn check_account(zset: &ZSet) {
    if let Form::Large(large) = &zset.form {
        let (kept, counted) = large.order.recounted_chunk_heap_bytes();
        assert_eq!(kept, counted);
        large.scores.check();
    }
}

fn check_bounds(zset: ZSetRef<'_>, rows: &[(&[u8], f64)], at: f64) {
    let first_not = |before: &dyn Fn(f64) -> bool| rows.iter().filter(|row| before(row.1)).count();
    let less = first_not(&|score| score < at);
    let less_or_equal = first_not(&|score| score <= at);
    assert_eq!(zset.lower_bound_score(Bound::Included(at)), less);
    assert_eq!(zset.lower_bound_score(Bound::Excluded(at)), less_or_equal);
    assert_eq!(zset.upper_bound_score(Bound::Included(at)), less_or_equal);
    assert_eq!(zset.upper_bound_score(Bound::Excluded(at)), less);
    assert_eq!(zset.lower_bound_score(Bound::Unbounded), 0);
    assert_eq!(zset.upper_bound_score(Bound::Unbounded), rows.len());
}

fn check(zset: &ZSet, oracle: &Oracle, seed: u16) {
    let rows = in_order(oracle);
    assert_eq!(zset.len(), rows.len());
    assert!(zset.iter().eq(rows.iter().copied()));
    assert!(zset.iter().rev().eq(rows.iter().rev().copied()));
    check_bounds(zset.into(), &rows, score(seed));
    check_account(zset);
    let (start, end) = (usize::from(seed) % (rows.len() + 2), usize::from(seed / 7));
    let expected = rows.iter().copied().take(end).skip(start);
    assert!(zset.iter_range(start..end).eq(expected.clone()));
    let backwards: Vec<_> = zset.iter_range(start..end).rev().collect();
    assert!(backwards.into_iter().rev().eq(expected));
    if let Some(rank) = usize::from(seed).checked_rem(rows.len()) {
        assert_eq!(zset.get_index(rank), Some(rows[rank]));
        assert_eq!(zset.rank(rows[rank].0), Some(rank));
    }
    assert_eq!(zset.get_index(rows.len()), None);
    let absent = member(seed);
    assert_eq!(zset.score(&absent), oracle.get(&absent).copied());
    assert_eq!(zset.rank(&absent).is_some(), oracle.contains_key(&absent));
}

fn round_trip(zset: &ZSet, compact: &Compact) {
    let mut bytes = Vec::new();
    zset.encode(&mut bytes);
    let mut input = bytes.as_slice();
    assert_eq!(ZSet::decode(&mut input, compact).as_ref(), Ok(zset));
    assert!(input.is_empty());
    if let Some(cut) = bytes.len().checked_sub(1) {
        assert_eq!(ZSet::decode(&mut &bytes[..cut], compact), Err(Malformed));
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// `count` members from a number on, each with a score that depends on `salt`.
    Add {
        from: u16,
        count: u16,
        salt: u16,
    },
    Remove {
        from: u16,
        count: u16,
    },
    /// Ascending scores above all others: the load of a leaderboard.
    Append {
        from: u16,
        count: u16,
    },
    Clone,
}

fn steps(members: u16, run: u16) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..members, 1..run, any::<u16>())
            .prop_map(|(from, count, salt)| Step::Add { from, count, salt }),
        3 => (0..members, 1..run).prop_map(|(from, count)| Step::Remove { from, count }),
        1 => (0..members, 1..run).prop_map(|(from, count)| Step::Append { from, count }),
        1 => Just(Step::Clone),
    ];
    proptest::collection::vec(step, 1..40)
}

fn add(zset: &mut ZSet, oracle: &mut Oracle, name: Vec<u8>, score: f64, compact: &Compact) {
    let expected = match oracle.get(&name) {
        None => AddResult::Added,
        Some(old) if is_same_score(*old, score) => AddResult::Same,
        Some(_) => AddResult::Updated,
    };
    assert_eq!(zset.add(&name, score, compact), expected);
    if expected != AddResult::Same {
        oracle.insert(name, score);
    }
}

fn run(steps: Vec<Step>, members: u16, compact: &Compact) {
    let (mut zset, mut oracle) = (ZSet::new(), Oracle::new());
    for (index, step) in steps.into_iter().enumerate() {
        match step {
            Step::Add { from, count, salt } => {
                for number in from..from + count {
                    let score = score(number.wrapping_mul(salt | 1));
                    add(&mut zset, &mut oracle, member(number % members), score, compact);
                }
            }
            Step::Append { from, count } => {
                for number in from..from + count {
                    let score = 100.0 + f64::from(number);
                    add(&mut zset, &mut oracle, member(number % members), score, compact);
                }
            }
            Step::Remove { from, count } => {
                for number in from..from + count {
                    let name = member(number % members);
                    assert_eq!(zset.remove(&name), oracle.remove(&name).is_some());
                }
            }
            Step::Clone => zset = zset.clone(),
        }
        check(&zset, &oracle, u16::try_from(index * 37).unwrap());
    }
    round_trip(&zset, compact);
    for name in oracle.keys() {
        assert!(zset.remove(name));
        check_account(&zset);
    }
    assert!(zset.is_empty());
}

proptest! {
    #[test]
    fn small_sets_are_ordered_as_the_oracle(steps in steps(16, 5)) {
        run(steps, 16, &SMALL);
    }

    /// Enough members for many chunks, so that they are cut and merged.
    #[test]
    fn large_sets_are_ordered_as_the_oracle(steps in steps(1500, 600)) {
        run(steps, 1500, &SMALL);
    }

    #[test]
    fn members_of_one_score_are_found_by_their_bytes(
        members in proptest::collection::btree_set("[a-d]{0,4}", 0..40),
        at in "[a-d]{0,4}",
    ) {
        let mut zset = ZSet::new();
        for member in &members {
            zset.add(member.as_bytes(), 0.0, &SMALL);
        }
        let less = members.range(..at.clone()).count();
        let less_or_equal = members.range(..=at.clone()).count();
        let at = at.as_bytes();
        let zset = ZSetRef::from(&zset);
        prop_assert_eq!(zset.lower_bound_lex(Bound::Included(at)), less);
        prop_assert_eq!(zset.lower_bound_lex(Bound::Excluded(at)), less_or_equal);
        prop_assert_eq!(zset.upper_bound_lex(Bound::Included(at)), less_or_equal);
        prop_assert_eq!(zset.upper_bound_lex(Bound::Excluded(at)), less);
        prop_assert_eq!(zset.lower_bound_lex(Bound::Unbounded), 0);
        prop_assert_eq!(zset.upper_bound_lex(Bound::Unbounded), members.len());
    }
}

#[test]
fn becomes_large_at_the_thresholds_of_redis() {
    let compact = Compact::default();
    let mut zset = ZSet::new();
    for number in 0..128 {
        zset.add(&member(number), 1.0, &compact);
    }
    assert_eq!(zset.encoding(), Encoding::Listpack);
    zset.add(b"one more", 1.0, &compact);
    assert_eq!(zset.encoding(), Encoding::Skiplist);
    let mut zset = ZSet::new();
    zset.add(&[b'x'; 64], 1.0, &compact);
    assert_eq!(zset.encoding(), Encoding::Listpack);
    zset.add(&[b'x'; 65], 1.0, &compact);
    assert_eq!(zset.encoding(), Encoding::Skiplist);
    assert_eq!(zset.len(), 2);
}

#[test]
fn an_encoded_score_that_is_no_number_is_malformed() {
    let mut bytes = vec![1];
    bytes.extend_from_slice(&f64::NAN.to_le_bytes());
    bytes.extend_from_slice(&[1, b'm']);
    assert_eq!(ZSet::decode(&mut bytes.as_slice(), &SMALL), Err(Malformed));
}

#[test]
fn the_order_costs_at_most_24_bytes_a_member() {
    let mut zset = ZSet::new();
    let mut state = 1u32;
    for number in 0..50_000u32 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        zset.add(&number.to_le_bytes(), f64::from(state), &SMALL);
    }
    let Form::Large(large) = &zset.form else { panic!("a large set") };
    assert!(large.order.heap_bytes() <= 24 * zset.len(), "{}", large.order.heap_bytes());
}
