//! Every change of a collection of a store, against the same change of the same type in its other
//! form.

use base::time::UnixMs;
use proptest::prelude::*;

use super::*;
use crate::change::{Change, End};
use crate::items::{Items, Scored as ScoredItems};
use crate::types::Compact;
use crate::{
    AccessClock, AccessRule, HashRef, Keyspace, ListRef, Mutation, Params, SetRef, Value, ZSetRef,
};

const KEY: &[u8] = b"key";

#[derive(Debug, Clone)]
enum Step {
    Add(Vec<(i16, Vec<u8>)>),
    Remove(Vec<Vec<u8>>),
    Push(End, Vec<Vec<u8>>),
    Pop(End, u64),
    ListSet(u64, Vec<u8>),
    Insert(u64, Vec<u8>),
    RemoveMatching(i64, Vec<u8>),
    Trim(u64, u64),
}

/// Numbers of every size, texts of every header, and numbers that are not canonical.
fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (-3i64..20).prop_map(|number| number.to_string().into_bytes()),
        4 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        4 => any::<i16>().prop_map(|number| number.to_string().into_bytes()),
        4 => (0usize..4).prop_map(|len| vec![b'x'; len]),
        2 => (60usize..70).prop_map(|len| vec![b'y'; len]),
        1 => Just(vec![b'z'; 600]),
        1 => Just(b"007".to_vec()),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Front), Just(End::Back)]
}

fn step() -> impl Strategy<Value = Step> {
    step_of(element)
}

/// A step with elements of two bytes, some of them numbers.
fn equal_step() -> impl Strategy<Value = Step> {
    step_of(|| {
        prop_oneof![
            (10u8..100).prop_map(|number| number.to_string().into_bytes()),
            any::<[u8; 2]>().prop_map(Vec::from),
        ]
    })
}

fn step_of<S: Strategy<Value = Vec<u8>>>(element: impl Fn() -> S) -> impl Strategy<Value = Step> {
    let several = || proptest::collection::vec(element(), 1..4);
    prop_oneof![
        6 => proptest::collection::vec((any::<i16>(), element()), 1..6).prop_map(Step::Add),
        3 => several().prop_map(Step::Remove),
        6 => (end(), several()).prop_map(|(end, values)| Step::Push(end, values)),
        3 => (end(), 0u64..4).prop_map(|(end, count)| Step::Pop(end, count)),
        1 => (0u64..9, element()).prop_map(|(index, value)| Step::ListSet(index, value)),
        1 => (0u64..9, element()).prop_map(|(index, value)| Step::Insert(index, value)),
        1 => (-2i64..3, element()).prop_map(|(count, value)| Step::RemoveMatching(count, value)),
        1 => (0u64..4, 0u64..20).prop_map(|(start, count)| Step::Trim(start, count)),
    ]
}

fn few() -> Compact {
    Compact {
        hash_entries_max: 6,
        hash_value_bytes_max: 10,
        set_intset_entries_max: 6,
        set_entries_max: 5,
        zset_entries_max: 6,
        list_chunk_entries_max: 5,
        ..Compact::default()
    }
}

struct Fixture {
    store: Keyspace,
    params: Params,
}

impl Fixture {
    fn new(compact: Compact) -> Fixture {
        let now = UnixMs(1);
        let clock = AccessClock::new(AccessRule::Lru, now, 1);
        Fixture { store: Keyspace::new(7), params: Params::new(now, clock, compact) }
    }

    fn change(&self, change: Change<'_>) {
        let key = self.store.key(KEY);
        let mut locked = self.store.lock_one(key.hash, &self.params);
        // A change of a list may name an index that the list does not have.
        let _ = locked.apply_mutation(&Mutation::Key { db: 0, key, change });
        let bytes = locked.memory_bytes(0, key);
        drop(locked);
        let accounted = self.store.stats(UnixMs(1)).1;
        assert!(bytes.unwrap_or(0) <= accounted);
    }

    fn read<R>(&self, read: impl FnOnce(Option<Value<'_>>) -> R) -> R {
        let key = self.store.key(KEY);
        let locked = self.store.lock_one(key.hash, &self.params);
        read(locked.get(0, key))
    }

    /// As a restart does.
    fn reload(&self) {
        self.store.lock_all(&self.params).reload().expect("own bytes");
    }
}

fn slices(elements: &[Vec<u8>]) -> Vec<&[u8]> {
    elements.iter().map(Vec::as_slice).collect()
}

fn bytes_of(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn check_hash(fixture: &Fixture, oracle: &Hash) {
    fixture.read(|value| {
        let hash = match value {
            Some(Value::Hash(hash)) => hash,
            other => return assert!(other.is_none() && oracle.is_empty(), "{other:?}"),
        };
        let other = HashRef::from(oracle.at(UnixMs(0)));
        assert!(hash.iter().eq(other.iter()));
        assert_eq!((hash.len(), hash.encoding()), (other.len(), other.encoding()));
        assert_eq!(bytes_of(|out| hash.encode(out)), bytes_of(|out| other.encode(out)));
        for index in 0..=hash.len() {
            assert_eq!(hash.get_index(index), other.get_index(index));
        }
        assert!(other.iter().all(|(field, value)| hash.get(&field) == Some(value)));
        assert!(hash.get(&[b'q'; 5000]).is_none() && hash.get(b"q").is_none());
    });
}

fn check_list(fixture: &Fixture, oracle: &List, compact: &Compact) {
    fixture.read(|value| {
        let list = match value {
            Some(Value::List(list)) => list,
            other => return assert!(other.is_none() && oracle.is_empty(), "{other:?}"),
        };
        let other = ListRef::from(oracle);
        assert!(list.iter().eq(other.iter()));
        assert!(list.iter_rev().eq(other.iter_rev()));
        assert_eq!(list.encoding(compact), other.encoding(compact));
        for index in 0..list.len() + 2 {
            assert!(list.iter_from(index).eq(other.iter_from(index)));
            assert_eq!(list.get(index), other.get(index));
        }
    });
}

fn check_set(fixture: &Fixture, oracle: &Set) {
    fixture.read(|value| {
        let set = match value {
            Some(Value::Set(set)) => set,
            other => return assert!(other.is_none() && oracle.is_empty(), "{other:?}"),
        };
        let other = SetRef::from(oracle);
        assert!(set.iter().map(Text::from).eq(other.iter().map(Text::from)));
        assert_eq!((set.len(), set.encoding()), (other.len(), other.encoding()));
        assert_eq!(bytes_of(|out| set.encode(out)), bytes_of(|out| other.encode(out)));
        for index in 0..=set.len() {
            let text = |set: SetRef<'_>| set.get_index(index).map(|it| Text::from(it).to_vec());
            assert_eq!(text(set), text(other));
        }
        assert!(other.iter().all(|member| member.with_bytes(|bytes| set.contains(bytes))));
        for member in [&b"q"[..], b"77", b"-77", &[b'q'; 5000]] {
            assert_eq!(set.contains(member), other.contains(member));
        }
        assert_eq!(&set.to_set(&Compact::default()), oracle);
    });
}

fn check_zset(fixture: &Fixture, oracle: &ZSet) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    fixture.read(|value| {
        let zset = match value {
            Some(Value::ZSet(zset)) => zset,
            other => return assert!(other.is_none() && oracle.is_empty(), "{other:?}"),
        };
        let other = ZSetRef::from(oracle);
        assert!(zset.iter().eq(other.iter()));
        assert!(zset.iter().rev().eq(other.iter().rev()));
        assert_eq!((zset.len(), zset.encoding()), (other.len(), other.encoding()));
        assert_eq!(bytes_of(|out| zset.encode(out)), bytes_of(|out| other.encode(out)));
        for (rank, (member, score)) in other.iter().enumerate() {
            assert_eq!(zset.rank(&member), Some(rank));
            assert_eq!(zset.score(&member), Some(score));
            assert_eq!(zset.get_index(rank), Some((member, score)));
            for bound in [Included(score), Excluded(score), Unbounded] {
                assert_eq!(zset.lower_bound_score(bound), other.lower_bound_score(bound));
                assert_eq!(zset.upper_bound_score(bound), other.upper_bound_score(bound));
            }
            let ranks = rank / 2..rank;
            assert!(zset.iter_range(ranks.clone()).rev().eq(other.iter_range(ranks).rev()));
        }
        let both_ends = |zset: ZSetRef<'_>| {
            let mut rows = zset.iter();
            let mut seen = Vec::new();
            while let (Some((first, _)), last) = (rows.next(), rows.next_back()) {
                seen.push((first.to_vec(), last.map(|(last, _)| last.to_vec())));
            }
            seen
        };
        assert_eq!(both_ends(zset), both_ends(other));
    });
}

fn run_hash(steps: &[Step], compact: Compact) {
    let (fixture, mut oracle) = (Fixture::new(compact), Hash::new());
    for step in steps {
        match step {
            Step::Add(rows) => {
                let values: Vec<Vec<u8>> =
                    rows.iter().map(|(score, _)| score.to_string().into_bytes()).collect();
                let mut pairs: Vec<&[u8]> = Vec::new();
                for ((_, field), value) in rows.iter().zip(&values) {
                    oracle.set(field, value, &compact);
                    pairs.extend([field.as_slice(), value.as_slice()]);
                }
                fixture.change(Change::HashSet { pairs: Items::Slice(&pairs) });
            }
            Step::Remove(fields) => {
                for field in fields {
                    oracle.remove(field);
                }
                let fields = slices(fields);
                fixture.change(Change::HashRemove { fields: Items::Slice(&fields) });
                if oracle.is_empty() {
                    oracle = Hash::new();
                }
            }
            _ => continue,
        }
        check_hash(&fixture, &oracle);
    }
    fixture.reload();
    fixture.read(|value| {
        let Some(Value::Hash(hash)) = value else { return assert!(oracle.is_empty()) };
        assert!(oracle.iter().all(|(field, value)| hash.get(field) == Some(value.into())));
        assert_eq!(hash.len(), oracle.len());
    });
}

fn run_list(steps: &[Step], compact: Compact) {
    let (fixture, mut oracle) = (Fixture::new(compact), List::new());
    for step in steps {
        let len = oracle.len();
        match step {
            Step::Push(end, values) => {
                for value in values {
                    match end {
                        End::Front => oracle.push_front(value, &compact),
                        End::Back => oracle.push_back(value, &compact),
                    }
                }
                let values = slices(values);
                fixture.change(Change::ListPush { end: *end, values: Items::Slice(&values) });
            }
            Step::Pop(end, count) => {
                let count_in_list = usize::try_from(*count).expect("small").min(len);
                match end {
                    End::Front => oracle.remove_range(0, count_in_list),
                    End::Back => oracle.remove_range(len - count_in_list, len),
                }
                fixture.change(Change::ListPop { end: *end, count: *count });
            }
            Step::ListSet(index, value) => {
                oracle.set(usize::try_from(*index).expect("small"), value, &compact);
                fixture.change(Change::ListSet { index: *index, value });
            }
            Step::Insert(index, value) if !oracle.is_empty() => {
                oracle.insert(usize::try_from(*index).expect("small"), value, &compact);
                fixture.change(Change::ListInsert { index: *index, value });
            }
            Step::RemoveMatching(count, value) => {
                oracle.remove_matching(*count, value);
                fixture.change(Change::ListRemove { count: *count, value });
            }
            Step::Trim(start, count) => {
                let start_in_list = usize::try_from(*start).expect("small").min(len);
                let count_in_list = usize::try_from(*count).expect("small");
                oracle.trim(start_in_list, (start_in_list + count_in_list).min(len));
                fixture.change(Change::ListTrim { start: *start, count: *count });
            }
            _ => continue,
        }
        if oracle.is_empty() {
            oracle = List::new();
        }
        check_list(&fixture, &oracle, &compact);
    }
}

fn run_set(steps: &[Step], compact: Compact) {
    let (fixture, mut oracle) = (Fixture::new(compact), Set::new());
    for step in steps {
        match step {
            Step::Add(rows) => {
                let members: Vec<&[u8]> = rows.iter().map(|(_, member)| &member[..]).collect();
                for member in &members {
                    oracle.add(member, &compact);
                }
                fixture.change(Change::SetAdd { members: Items::Slice(&members) });
            }
            Step::Remove(members) => {
                for member in members {
                    oracle.remove(member);
                }
                let members = slices(members);
                fixture.change(Change::SetRemove { members: Items::Slice(&members) });
                if oracle.is_empty() {
                    oracle = Set::new();
                }
            }
            _ => continue,
        }
        check_set(&fixture, &oracle);
    }
}

fn run_zset(steps: &[Step], compact: Compact) {
    let (fixture, mut oracle) = (Fixture::new(compact), ZSet::new());
    for step in steps {
        match step {
            Step::Add(rows) => {
                let rows: Vec<(f64, &[u8])> = rows
                    .iter()
                    .map(|(score, member)| (f64::from(score % 8) / 4.0, &member[..]))
                    .collect();
                for (score, member) in &rows {
                    oracle.add(member, *score, &compact);
                }
                fixture.change(Change::ZSetAdd { members: ScoredItems::Slice(&rows) });
            }
            Step::Remove(members) => {
                for member in members {
                    oracle.remove(member);
                }
                let members = slices(members);
                fixture.change(Change::ZSetRemove { members: Items::Slice(&members) });
                if oracle.is_empty() {
                    oracle = ZSet::new();
                }
            }
            _ => continue,
        }
        check_zset(&fixture, &oracle);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn small_collections_are_as_the_others(
        steps in proptest::collection::vec(step(), 1..60),
        is_few: bool,
    ) {
        let compact = if is_few { few() } else { Compact::default() };
        run_hash(&steps, compact);
        run_list(&steps, compact);
        run_set(&steps, compact);
        run_zset(&steps, compact);
    }

    #[test]
    fn lists_of_elements_of_one_length_are_as_the_others(
        equal in proptest::collection::vec(equal_step(), 1..60),
        steps in proptest::collection::vec(step(), 0..10),
        is_few: bool,
    ) {
        let compact = if is_few { few() } else { Compact::default() };
        run_list(&[equal, steps].concat(), compact);
    }
}

#[test]
fn a_list_of_elements_of_one_length_takes_little_more_than_their_contents() {
    let fixture = Fixture::new(Compact::default());
    let bytes = || {
        let key = fixture.store.key(KEY);
        fixture.store.lock_one(key.hash, &fixture.params).memory_bytes(0, key).expect("stored")
    };
    let values = vec![&b"a text of 18 bytes"[..]; 5];
    fixture.change(Change::ListPush { end: End::Back, values: Items::Slice(&values) });
    assert_eq!(bytes(), 112, "header of 8 and 2, key of 3, count and length, contents of 90");
    fixture.change(Change::ListPush { end: End::Back, values: Items::Slice(&[b"another"]) });
    let other = bytes();
    fixture.reload();
    assert_eq!(bytes(), other, "a loaded list has the form of one that was pushed");
}

#[test]
fn collections_grow_through_every_form() {
    let compact = Compact { hash_entries_max: 1000, set_entries_max: 1000, ..Compact::default() };
    let numbers: Vec<Vec<u8>> = (0..700).map(|n: u32| n.to_string().into_bytes()).collect();
    let add = |member: &Vec<u8>| Step::Add(vec![(7, member.clone())]);
    let steps: Vec<Step> = numbers.iter().map(add).collect();
    run_hash(&steps, compact);
    run_set(&steps, compact);
    run_zset(&steps, compact);
    let push = |value: &Vec<u8>| Step::Push(End::Back, vec![value.clone()]);
    run_list(&numbers.iter().map(push).collect::<Vec<_>>(), compact);
}

#[test]
fn a_renamed_small_collection_stays_what_it_is() {
    let fixture = Fixture::new(Compact::default());
    let members: [&[u8]; 3] = [b"3", b"x", b"1"];
    fixture.change(Change::SetAdd { members: Items::Slice(&members) });
    fixture.change(Change::SetRemove { members: Items::Slice(&[&b"x"[..]]) });
    let (from, to) = (fixture.store.key(KEY), fixture.store.key(b"to"));
    let mut locked = fixture.store.lock_all(&fixture.params);
    assert!(locked.move_collection((0, from), (1, to), None));
    let set = locked.set(1, to).expect("a set").expect("moved");
    assert_eq!(set.encoding(), crate::types::Encoding::Listpack);
    assert!(set.contains(b"1") && set.contains(b"3") && set.len() == 2);
    let delete = Mutation::Key { db: 0, key: from, change: Change::Delete };
    locked.apply_mutation(&delete).expect("a deletion");
    assert!(!locked.contains(0, from));
}
