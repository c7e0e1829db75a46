//! The keyspace against a plain map: every change by mutation, live, replayed, and from a snapshot.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::time::UnixMs;
use proptest::prelude::*;

use crate::types::{Compact, Encoding};
use crate::{
    AccessClock, AccessRule, CellValue, Change, DATABASES, Due, End, EvictionPolicy, Given,
    HashRef, Items, Keyspace, LockWaits, Lookups, Mutation, PARTITIONS_DB, Params, PartitionKey,
    Points, Reach, RowKey, STRIPES, ScanCursor, Scored, Seen, SnapshotBlock, Stamp, StoreError,
    TableId, Timestamps, Value, Version, WatchFlag, Write, Writes, load_block,
};

fn params(now: u64) -> Params {
    let compact = Compact {
        hash_entries_max: 4,
        set_entries_max: 4,
        zset_entries_max: 4,
        ..Compact::default()
    };
    Params::new(UnixMs(now), AccessClock::new(AccessRule::Lru, UnixMs(now), 1), compact)
}

fn live(seen: Seen<'_>) -> Vec<u8> {
    let Seen::Live(key) = seen else { panic!("{seen:?} in a store where nothing expires") };
    key.to_vec()
}

fn apply(
    store: &Keyspace,
    now: u64,
    db: u8,
    key: &[u8],
    change: Change<'_>,
) -> Result<(), StoreError> {
    let params = params(now);
    let key = store.key(key);
    let mut locked = store.lock_one(key.hash, &params);
    locked.apply_mutation(&Mutation::Key { db, key, change })
}

fn string(store: &Keyspace, now: u64, db: u8, key: &[u8]) -> Option<Vec<u8>> {
    let params = params(now);
    let key = store.key(key);
    let locked = store.lock_one(key.hash, &params);
    match locked.get(db, key) {
        Some(Value::String(value)) => Some(value.to_vec()),
        _ => None,
    }
}

/// Everything in the store, in a form that two stores can be compared by.
fn contents(store: &Keyspace, now: u64) -> BTreeMap<(u8, Vec<u8>), (String, Option<UnixMs>)> {
    let params = params(now);
    let locked = store.lock_all(&params);
    let mut all = BTreeMap::new();
    for db in 0..16 {
        locked.for_each_key(db, |bytes| {
            let key = store.key(bytes);
            let text = match locked.peek(db, key).expect("listed") {
                Value::String(value) => format!("{value:?}"),
                Value::Hash(hash) => {
                    let rows = hash.iter_timed();
                    let mut rows: Vec<_> = rows
                        .map(|(field, value, at)| (field.to_vec(), value.to_vec(), at))
                        .collect();
                    rows.sort();
                    format!("{rows:?}")
                }
                Value::List(list) => format!("{:?}", list.iter().collect::<Vec<_>>()),
                Value::Set(set) => {
                    let mut members: Vec<Vec<u8>> =
                        set.iter().map(|member| member.with_bytes(<[u8]>::to_vec)).collect();
                    members.sort();
                    format!("{members:?}")
                }
                Value::Stream(stream) => {
                    let mut bytes = Vec::new();
                    stream.encode(&mut bytes);
                    format!("{bytes:?}")
                }
                Value::Series(series) => {
                    let points = series.range(i64::MIN, i64::MAX);
                    let points: Vec<_> = points
                        .filter(|point| point.expiry.is_none_or(|at| at.0 > now))
                        .map(|point| (point.timestamp, point.value.to_vec(), point.expiry))
                        .collect();
                    if points.is_empty() {
                        return; // until its points are purged
                    }
                    format!("{points:?}")
                }
                Value::ZSet(zset) => format!("{:?}", zset.iter().collect::<Vec<_>>()),
            };
            let expiry = locked.expiry(db, key).expect("listed");
            all.insert((db, bytes.to_vec()), (text, expiry));
        });
    }
    drop(locked);
    for stripe in 0..STRIPES {
        let locked = store.lock_stripe(stripe, &params);
        for key in 0..3 {
            for (token, bytes, partition) in locked.partitions(table(key), Bound::Unbounded) {
                let place = PartitionKey { table: table(key), token, bytes };
                assert_eq!(locked.partition(place), Some(partition));
                all.insert((PARTITIONS_DB, bytes.to_vec()), (format!("{partition:?}"), None));
            }
        }
    }
    all
}

fn accounted_bytes(store: &Keyspace) -> usize {
    store.stats(UnixMs(0)).1
}

#[derive(Debug, Clone)]
enum Step {
    Set(u8, Vec<u8>, Option<u64>),
    Edit(u8, u64, Vec<u8>),
    Delete(u8),
    Expire(u8, Option<u64>),
    HashSet(u8, u8, Vec<u8>),
    HashUpdate(u8, u8, Vec<u8>),
    HashExpire(u8, u8, Option<u64>),
    HashRemove(u8, u8),
    Push(u8, bool, Vec<u8>),
    Pop(u8, bool, u64),
    Trim(u8, u64, u64),
    SetAdd(u8, u8),
    SetRemove(u8, u8),
    ZAdd(u8, i8, u8),
    ZRemove(u8, u8),
    SeriesAdd(u8, i8, Option<u64>),
    SeriesRemove(u8, i8),
    SeriesPurge(u8, u64),
    Flush(Option<u8>),
    Swap(u8, u8),
    Insert(u8, u8, i64, Vec<u8>),
    DeletePartition(u8, i64),
    Purge(u8),
    Truncate(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0u8..12;
    let bytes = proptest::collection::vec(any::<u8>(), 0..40);
    let step = prop_oneof![
        4 => (key.clone(), bytes.clone(), proptest::option::of(1u64..100)).prop_map(|(k, v, e)| Step::Set(k, v, e)),
        1 => (key.clone(), 0u64..50, bytes.clone()).prop_map(|(k, o, v)| Step::Edit(k, o, v)),
        2 => key.clone().prop_map(Step::Delete),
        2 => (key.clone(), proptest::option::of(1u64..100)).prop_map(|(k, e)| Step::Expire(k, e)),
        3 => (key.clone(), 0u8..8, bytes.clone()).prop_map(|(k, f, v)| Step::HashSet(k, f, v)),
        1 => (key.clone(), 0u8..8, bytes.clone()).prop_map(|(k, f, v)| Step::HashUpdate(k, f, v)),
        3 => (key.clone(), 0u8..8, proptest::option::weighted(0.8, 1u64..100))
            .prop_map(|(k, f, e)| Step::HashExpire(k, f, e)),
        2 => (key.clone(), 0u8..8).prop_map(|(k, f)| Step::HashRemove(k, f)),
        3 => (key.clone(), any::<bool>(), bytes).prop_map(|(k, e, v)| Step::Push(k, e, v)),
        2 => (key.clone(), any::<bool>(), 0u64..4).prop_map(|(k, e, n)| Step::Pop(k, e, n)),
        1 => (key.clone(), 0u64..4, 0u64..4).prop_map(|(k, s, n)| Step::Trim(k, s, n)),
        3 => (key.clone(), 0u8..12).prop_map(|(k, m)| Step::SetAdd(k, m)),
        2 => (key.clone(), 0u8..12).prop_map(|(k, m)| Step::SetRemove(k, m)),
        3 => (key.clone(), any::<i8>(), 0u8..12).prop_map(|(k, s, m)| Step::ZAdd(k, s, m)),
        2 => (key.clone(), 0u8..12).prop_map(|(k, m)| Step::ZRemove(k, m)),
        4 => (key.clone(), -5i8..5, proptest::option::of(1u64..100))
            .prop_map(|(k, at, e)| Step::SeriesAdd(k, at, e)),
        2 => (key.clone(), -5i8..5).prop_map(|(k, at)| Step::SeriesRemove(k, at)),
        1 => (key.clone(), 1u64..100).prop_map(|(k, at)| Step::SeriesPurge(k, at)),
        6 => (key.clone(), 0u8..4, 0i64..9, any::<Vec<u8>>())
            .prop_map(|(k, row, time, value)| Step::Insert(k, row, time, value)),
        2 => (key.clone(), 0i64..9).prop_map(|(k, time)| Step::DeletePartition(k, time)),
        1 => key.clone().prop_map(Step::Purge),
        1 => key.prop_map(Step::Truncate),
        1 => proptest::option::of(0u8..2).prop_map(Step::Flush),
        1 => (0u8..3, 0u8..3).prop_map(|(a, b)| Step::Swap(a, b)),
    ];
    proptest::collection::vec(step, 0..80)
}

/// Applies a step to `store`; returns its bytes in the log if it was taken.
fn take(store: &Keyspace, step: &Step) -> Option<Vec<u8>> {
    let at = |ms: Option<u64>| ms.map(|ms| UnixMs(1000 + ms));
    let end = |front: bool| if front { End::Front } else { End::Back };
    if let Some(logged) = take_of_table(store, step) {
        return Some(logged);
    }
    let mut logged = Vec::new();
    let params = params(0);
    let whole = match step {
        Step::Flush(db) => Some(Mutation::Flush { db: *db }),
        Step::Swap(first, second) => Some(Mutation::Swap { dbs: [*first, *second] }),
        _ => None,
    };
    if let Some(mutation) = whole {
        store.lock_all(&params).apply_mutation(&mutation).expect("always fits");
        mutation.encode(&mut logged);
        return Some(logged);
    }
    let (field, member, scored);
    let pair: [&[u8]; 2];
    let one: [&[u8]; 1];
    let (scores, points, timestamps);
    let (key, change) = match step {
        Step::Set(key, value, expiry) => (*key, Change::Set { value, expiry: at(*expiry) }),
        Step::Edit(key, offset, bytes) => (*key, Change::Edit { offset: *offset, bytes }),
        Step::Delete(key) => (*key, Change::Delete),
        Step::Expire(key, expiry) => (*key, Change::Expire { at: at(*expiry) }),
        Step::HashSet(key, name, value) => {
            field = [*name];
            pair = [&field, value];
            (*key, Change::HashSet { pairs: Items::Slice(&pair) })
        }
        Step::HashUpdate(key, name, value) => {
            field = [*name];
            pair = [&field, value];
            (*key, Change::HashUpdate { pairs: Items::Slice(&pair) })
        }
        Step::HashExpire(key, name, expiry) => {
            field = [*name];
            one = [&field];
            (*key, Change::HashExpire { at: at(*expiry), fields: Items::Slice(&one) })
        }
        Step::HashRemove(key, name) => {
            field = [*name];
            one = [&field];
            (*key, Change::HashRemove { fields: Items::Slice(&one) })
        }
        Step::Push(key, front, value) => {
            one = [value];
            (*key, Change::ListPush { end: end(*front), values: Items::Slice(&one) })
        }
        Step::Pop(key, front, count) => (*key, Change::ListPop { end: end(*front), count: *count }),
        Step::Trim(key, start, count) => (*key, Change::ListTrim { start: *start, count: *count }),
        Step::SetAdd(key, name) => {
            member = [*name];
            one = [&member];
            (*key, Change::SetAdd { members: Items::Slice(&one) })
        }
        Step::SetRemove(key, name) => {
            member = [*name];
            one = [&member];
            (*key, Change::SetRemove { members: Items::Slice(&one) })
        }
        Step::ZAdd(key, score, name) => {
            member = [*name];
            scored = (f64::from(*score), &member[..]);
            scores = [scored];
            (*key, Change::ZSetAdd { members: Scored::Slice(&scores) })
        }
        Step::ZRemove(key, name) => {
            member = [*name];
            one = [&member];
            (*key, Change::ZSetRemove { members: Items::Slice(&one) })
        }
        Step::SeriesAdd(key, timestamp, expiry) => {
            points = [(i64::from(*timestamp), &b"value"[..])];
            (*key, Change::SeriesAdd { points: Points::Slice(&points), expiry: at(*expiry) })
        }
        Step::SeriesRemove(key, timestamp) => {
            timestamps = [i64::from(*timestamp)];
            (*key, Change::SeriesRemove { timestamps: Timestamps::Slice(&timestamps) })
        }
        Step::SeriesPurge(key, ms) => {
            let at = UnixMs(1000 + ms);
            (*key, Change::SeriesPurge { at, first: i64::MIN, last: i64::MAX })
        }
        _ => return None,
    };
    let name = [b'k', key];
    let key = store.key(&name);
    let mutation = Mutation::Key { db: name[1] % 3, key, change };
    store.lock_one(key.hash, &params).apply_mutation(&mutation).ok()?;
    mutation.encode(&mut logged);
    Some(logged)
}

fn table(key: u8) -> TableId {
    TableId(u128::from(key % 3) + 1)
}

/// As [`take`]: the steps that are about tables.
fn take_of_table(store: &Keyspace, step: &Step) -> Option<Vec<u8>> {
    let (Step::Insert(key, ..)
    | Step::DeletePartition(key, _)
    | Step::Purge(key)
    | Step::Truncate(key)) = step
    else {
        return None;
    };
    let bytes = [*key];
    // Few tokens, far apart: keys share them, and meet in few stripes.
    let place =
        PartitionKey { table: table(*key), token: i64::from(*key % 4) << 61, bytes: &bytes };
    let row;
    let writes;
    let mutation = match step {
        Step::Insert(_, name, timestamp, value) => {
            row = [*name];
            let (timestamp, row) = (*timestamp, RowKey::Clustering(&row));
            let value = CellValue::Live { bytes: value, expiry: None };
            writes = [Write::Cell { row, column: 1, item: None, timestamp, value }];
            Mutation::Partition { key: place, writes: Writes::Slice(&writes) }
        }
        Step::DeletePartition(_, timestamp) => {
            writes = [Write::DeletePartition(Stamp { timestamp: *timestamp, at: 50 })];
            Mutation::Partition { key: place, writes: Writes::Slice(&writes) }
        }
        Step::Purge(_) => Mutation::Purge { key: place, now: 100, gc_before: 60 },
        _ => Mutation::Truncate { table: place.table },
    };
    let params = params(0);
    let mut locked = match mutation {
        Mutation::Truncate { .. } => store.lock_all(&params),
        _ => store.lock_one(place.hash(), &params),
    };
    locked.apply_mutation(&mutation).expect("always fits");
    let mut logged = Vec::new();
    mutation.encode(&mut logged);
    Some(logged)
}

/// Keys, expiries, mean time to live, and collections with elements that expire of each database.
fn counts(store: &Keyspace) -> Vec<(u64, u64, u64, u64)> {
    let (dbs, _) = store.stats(UnixMs(0));
    dbs.iter().map(|db| (db.keys, db.expires, db.ttl_ms_mean, db.timed_keys)).collect()
}

/// The same collections, counted one by one.
fn timed_keys(store: &Keyspace) -> Vec<u64> {
    let mut counts = vec![0; DATABASES];
    store.lock_all(&params(0)).for_each_value(|db, _, value, _| {
        counts[usize::from(db)] += u64::from(match value {
            Value::Hash(hash) => hash.has_times(),
            Value::Series(series) => series.soonest().is_some(),
            _ => false,
        });
    });
    counts
}

/// Expires what is due in the way of a server, a few fields at a time. Returns the number of steps.
fn expire_due(store: &Keyspace, now: u64) -> usize {
    let params = params(now);
    let mut steps = 0;
    for stripe in 0..STRIPES {
        while store.has_due(stripe, UnixMs(now)) {
            let mut locked = store.lock_stripe(stripe, &params);
            let Some((db, name, due)) = locked.next_expired() else { continue };
            let key = store.key(&name);
            let fields = locked.due_fields(db, key, 2, usize::MAX);
            let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
            let change = match due {
                Due::Key => Change::Delete,
                Due::Fields => Change::HashRemove { fields: Items::Slice(&fields) },
                Due::Points => {
                    let Some(Value::Series(series)) = locked.peek(db, key) else {
                        panic!("only series have points")
                    };
                    let (first, last) = series.due(UnixMs(now), 2).expect("some are due");
                    Change::SeriesPurge { at: UnixMs(now), first, last }
                }
            };
            assert_eq!(due == Due::Key, locked.is_overdue(db, key));
            locked.apply_mutation(&Mutation::Key { db, key, change }).expect("fits");
            steps += 1;
            assert!(steps < 10_000, "each step removes something");
        }
    }
    steps
}

fn replayed(log: &[Vec<u8>], seed: u64) -> Keyspace {
    let store = Keyspace::new(seed);
    for record in log {
        let mutation =
            Mutation::decode(&mut record.as_slice(), |key| store.hash(key)).expect("own bytes");
        store.replay(&mutation, &params(0), |_| false).expect("fits");
    }
    store
}

fn snapshot(store: &Keyspace) -> Vec<SnapshotBlock> {
    let mut block = SnapshotBlock { stripe: 0, lsn: 0, keys: 0, bytes: Vec::new() };
    (0..STRIPES)
        .map(|stripe| {
            store.snapshot_stripe(stripe, || 7, &mut block);
            block.clone()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn log_and_snapshot_give_the_same_data_back(steps in steps()) {
        let live = Keyspace::new(5);
        let log: Vec<Vec<u8>> = steps.iter().filter_map(|step| take(&live, step)).collect();
        let expected = contents(&live, 0);
        let again = replayed(&log, 99);
        prop_assert_eq!(&contents(&again, 0), &expected);
        let loaded = Keyspace::new(5);
        for block in snapshot(&live) {
            let keys = load_block(&loaded, &params(0), &block.bytes).expect("own bytes");
            prop_assert_eq!(keys, block.keys);
        }
        prop_assert_eq!(&contents(&loaded, 0), &expected);
        prop_assert_eq!(counts(&live), counts(&loaded));
        live.lock_all(&params(0)).reload().expect("own bytes");
        prop_assert_eq!(&contents(&live, 0), &expected);
        prop_assert_eq!(counts(&live), counts(&loaded));
        prop_assert_eq!(accounted_bytes(&live), accounted_bytes(&loaded));
        prop_assert_eq!(
            counts(&live).into_iter().map(|(.., timed)| timed).collect::<Vec<_>>(),
            timed_keys(&live)
        );
        // What no reader sees after some time, and what is removed at that time, are the same.
        let later = contents(&live, 1050);
        expire_due(&live, 1050);
        prop_assert_eq!(&contents(&live, 0), &later);
        // Deleting everything must bring the accounts to zero, tables and heaps aside.
        let keys = expected.into_keys().filter(|(db, _)| *db != PARTITIONS_DB);
        for (db, key) in keys {
            apply(&live, 0, db, &key, Change::Delete).expect("fits");
        }
        let params = params(0);
        let mut locked = live.lock_all(&params);
        locked.apply_mutation(&Mutation::Flush { db: None }).expect("fits");
        for key in 0..3 {
            locked.apply_mutation(&Mutation::Truncate { table: table(key) }).expect("fits");
        }
        drop(locked);
        prop_assert_eq!(accounted_bytes(&live), 0);
    }
}

#[test]
fn a_change_of_the_wrong_type_changes_nothing() {
    let store = Keyspace::new(1);
    apply(&store, 0, 0, b"k", Change::Set { value: b"v", expiry: None }).expect("fits");
    let one: [&[u8]; 1] = [b"m"];
    for change in [
        Change::SetAdd { members: Items::Slice(&one) },
        Change::ListPush { end: End::Back, values: Items::Slice(&one) },
        Change::ZSetRemove { members: Items::Slice(&one) },
    ] {
        assert_eq!(apply(&store, 0, 0, b"k", change), Err(StoreError::WrongType));
    }
    assert_eq!(string(&store, 0, 0, b"k"), Some(b"v".to_vec()));
    apply(&store, 0, 1, b"s", Change::SetAdd { members: Items::Slice(&one) }).expect("fits");
    assert_eq!(
        apply(&store, 0, 1, b"s", Change::Edit { offset: 0, bytes: b"x" }),
        Err(StoreError::WrongType)
    );
}

#[test]
fn an_expired_key_is_absent_and_found_in_order() {
    let store = Keyspace::new(1);
    for (name, at) in [(b"a", 30u64), (b"b", 10), (b"c", 20)] {
        let change = Change::Set { value: b"v", expiry: Some(UnixMs(at)) };
        apply(&store, 0, 7, name, change).expect("fits");
    }
    let swap = Mutation::Swap { dbs: [2, 7] };
    store.lock_all(&params(0)).apply_mutation(&swap).expect("always fits");
    apply(&store, 0, 2, b"a", Change::Expire { at: None }).expect("fits");
    assert_eq!(string(&store, 9, 2, b"b"), Some(b"v".to_vec()));
    assert_eq!(string(&store, 10, 2, b"b"), None);
    let params = params(25);
    let mut gone = Vec::new();
    for stripe in 0..STRIPES {
        assert!(!store.has_due(stripe, UnixMs(9)));
        let mut locked = store.lock_stripe(stripe, &params);
        while let Some((db, name, due)) = locked.next_expired() {
            assert_eq!(due, Due::Key);
            let key = store.key(&name);
            locked
                .apply_mutation(&Mutation::Key { db, key, change: Change::Delete })
                .expect("fits");
            gone.push(name);
        }
    }
    gone.sort();
    assert_eq!(gone, [b"b".to_vec(), b"c".to_vec()]);
    assert_eq!(store.stats(UnixMs(0)).0[2].keys, 1);
    assert_eq!(store.stats(UnixMs(0)).0[2].expires, 0);
}

#[test]
fn a_key_whose_fields_have_all_expired_is_not_seen() {
    let store = Keyspace::new(1);
    let pairs: [&[u8]; 4] = [b"f", b"1", b"g", b"2"];
    apply(&store, 0, 3, b"h", Change::HashSet { pairs: Items::Slice(&pairs) }).expect("fits");
    for (field, at) in [(&b"f"[..], 10), (b"g", 20)] {
        let fields = [field];
        let change = Change::HashExpire { at: Some(UnixMs(at)), fields: Items::Slice(&fields) };
        apply(&store, 0, 3, b"h", change).expect("fits");
    }
    let key = store.key(b"h");
    let state = |now| {
        let params = params(now);
        let locked = store.lock_one(key.hash, &params);
        let fields = locked.hash(3, key).expect("a hash").map(HashRef::len);
        assert_eq!(locked.contains(3, key), fields.is_some());
        assert_eq!(locked.is_overdue(3, key), fields.is_none());
        assert_eq!(locked.overdue_fields(3, key), fields.is_none().then_some(2));
        assert!(locked.may_expire(3, key.hash));
        assert!(!locked.may_expire(2, key.hash));
        (fields, locked.due_fields(3, key, 9, 9).len())
    };
    assert_eq!(state(9), (Some(2), 0));
    assert_eq!(state(10), (Some(1), 1));
    assert_eq!(state(20), (None, 2));
    // A swap moves the database with its times; watchers see no change of a key that has expired.
    let swap = Mutation::Swap { dbs: [3, 0] };
    store.lock_all(&params(0)).apply_mutation(&swap).expect("always fits");
    assert_eq!(store.stats(UnixMs(0)).0[0].timed_keys, 1);
    assert_eq!(expire_due(&store, 15), 1);
    assert_eq!(expire_due(&store, 20), 1);
    assert_eq!(
        store.stats(UnixMs(0)).0[0],
        crate::DbStats {
            table_bytes: store.stats(UnixMs(0)).0[0].table_bytes,
            ..Default::default()
        }
    );
    assert!(!store.lock_one(key.hash, &params(0)).may_expire(0, key.hash));
}

#[test]
fn times_that_change_to_and_fro_leave_no_garbage() {
    let store = Keyspace::new(1);
    let pairs: [&[u8]; 2] = [b"f", b"1"];
    apply(&store, 0, 0, b"h", Change::HashSet { pairs: Items::Slice(&pairs) }).expect("fits");
    let fields = Items::Slice(&[b"f"]);
    let expire = |at| {
        apply(&store, 0, 0, b"h", Change::HashExpire { at: Some(UnixMs(at)), fields })
            .expect("fits");
    };
    expire(1);
    (0..20_000).for_each(|round| expire(5 + round % 3));
    assert!(accounted_bytes(&store) < 4096, "{}", accounted_bytes(&store));
    assert_eq!(expire_due(&store, 9), 1);
}

#[test]
fn a_scan_sees_every_key_once_and_ends() {
    let store = Keyspace::new(3);
    for n in 0..5000u32 {
        apply(&store, 0, 0, &n.to_le_bytes(), Change::Set { value: b"", expiry: None })
            .expect("fits");
    }
    let (params, mut cursor, mut seen, mut calls) = (params(0), ScanCursor(0), Vec::new(), 0);
    loop {
        let (next, _) = store
            .scan(0, cursor, 10, &params, |_| false, |_, key| seen.push(live(key)))
            .expect("it is free");
        calls += 1;
        cursor = next;
        if cursor == ScanCursor(0) {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5000);
    assert!((250..=500).contains(&calls), "{calls} calls");
}

#[test]
fn a_scan_tells_overdue_keys_apart_and_counts_them() {
    let store = Keyspace::new(3);
    for n in 0..3000u32 {
        let change = Change::Set { value: b"", expiry: (n > 0).then_some(UnixMs(10)) };
        apply(&store, 0, 0, &n.to_le_bytes(), change).expect("fits");
    }
    let (params, mut cursor, mut overdue, mut alive) = (params(11), ScanCursor(0), 0, 0);
    loop {
        let mut visited = 0;
        let (next, _) = store
            .scan(
                0,
                cursor,
                10,
                &params,
                |_| false,
                |_, seen| {
                    visited += 1;
                    match seen {
                        Seen::Overdue(_) => overdue += 1,
                        Seen::Live(key) => alive += usize::from(key == [0; 4]),
                    }
                },
            )
            .expect("it is free");
        assert!(visited <= 50, "{visited}: one stripe's step beyond what was asked for");
        cursor = next;
        if cursor == ScanCursor(0) {
            break;
        }
    }
    assert_eq!((overdue, alive), (2999, 1));
}

#[test]
fn a_scan_under_all_locks_goes_the_same_way() {
    let store = Keyspace::new(3);
    for n in 0..3000u32 {
        let key = n.to_le_bytes();
        apply(&store, 0, 2, &key, Change::Set { value: b"", expiry: None }).expect("fits");
    }
    let (params, mut cursor) = (params(0), ScanCursor(0));
    loop {
        let (mut alone, mut locked) = (Vec::new(), Vec::new());
        let (next, _) = store
            .scan(2, cursor, 100, &params, |_| false, |_, key| alone.push(live(key)))
            .expect("it is free");
        let all = store.lock_all(&params);
        assert_eq!(all.scan(2, cursor, 100, |key| locked.push(live(key))), next);
        assert_eq!(locked, alone);
        cursor = next;
        if cursor == ScanCursor(0) {
            break;
        }
    }
    let all = store.lock_all(&params);
    assert_eq!(all.scan(2, ScanCursor(u64::MAX), 10, |_| ()), ScanCursor(0));
}

#[test]
fn eviction_takes_what_the_policy_says() {
    let store = Keyspace::new(3);
    let plain = Change::Set { value: b"", expiry: None };
    apply(&store, 1_000_000, 0, b"old", plain).expect("fits");
    apply(&store, 9_000_000, 0, b"new", plain).expect("fits");
    for (name, at) in [(b"soon", 90_000_000u64), (b"late", 99_000_000)] {
        let change = Change::Set { value: b"", expiry: Some(UnixMs(at)) };
        apply(&store, 9_000_000, 1, name, change).expect("fits");
    }
    let params = params(10_000_000);
    let mut number = 0u64;
    let mut pick = |policy, samples| {
        let random = || {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            number >> 20
        };
        store.eviction_candidate(policy, samples, &params, random).map(|found| found.key)
    };
    assert_eq!(pick(EvictionPolicy::NoEviction, 5), None);
    let volatile: [&[u8]; 2] = [b"soon", b"late"];
    for policy in
        [EvictionPolicy::VolatileRandom, EvictionPolicy::VolatileLru, EvictionPolicy::VolatileTtl]
    {
        let key = pick(policy, 5).expect("two keys expire");
        assert!(volatile.contains(&key.as_slice()));
    }
    assert!(pick(EvictionPolicy::AllKeysLru, 5).is_some());
}

#[test]
fn a_collection_is_moved_as_it_would_be_built_again() {
    let store = Keyspace::new(1);
    let add = |key: &[u8], count: i32| {
        for number in 0..count {
            let (score, member) = (f64::from(number), number.to_string());
            let members = [(score, member.as_bytes())];
            let change = Change::ZSetAdd { members: Scored::Slice(&members) };
            apply(&store, 0, 0, key, change).unwrap();
        }
    };
    add(b"to", 10);
    apply(&store, 0, 0, b"string", Change::Set { value: b"v", expiry: None }).unwrap();
    // Tables keep the place of a key that was there.
    add(b"from", 1);
    apply(&store, 0, 0, b"from", Change::Delete).unwrap();
    let before_bytes = accounted_bytes(&store);
    add(b"from", 1000);
    let (from, to) = (store.key(b"from"), store.key(b"to"));
    let params = params(0);
    let mut locked = store.lock_all(&params);
    let flag = WatchFlag::default();
    locked.watch(0, to, &flag);
    assert!(!locked.move_collection((0, store.key(b"string")), (0, to), None));
    assert!(!locked.move_collection((0, store.key(b"none")), (0, to), None));
    assert!(!flag.is_raised());
    assert!(locked.move_collection((0, from), (0, to), None));
    assert!(flag.is_raised());
    locked.apply_mutation(&Mutation::Key { db: 0, key: from, change: Change::Delete }).unwrap();
    assert_eq!(locked.zset(0, to).unwrap().map(crate::ZSetRef::len), Some(1000));
    assert!(!locked.contains(0, from));
    drop(locked);
    apply(&store, 0, 0, b"to", Change::Delete).unwrap();
    add(b"to", 10);
    assert_eq!(accounted_bytes(&store), before_bytes);
}

#[test]
fn a_reload_keeps_uses_watches_and_gates() {
    let store = Keyspace::new(1);
    apply(&store, 5_000, 1, b"k", Change::Set { value: b"v", expiry: None }).expect("fits");
    apply(&store, 5_000, 1, b"k", Change::Edit { offset: 0, bytes: b"w" }).expect("fits");
    let (params, flag, key) = (params(65_000), WatchFlag::default(), store.key(b"k"));
    let mut locked = store.lock_all(&params);
    locked.watch(1, key, &flag);
    locked.note_write(1, key.hash, 77, 0);
    assert_eq!(locked.encoding(1, key).map(Encoding::name), Some("raw"));
    locked.reload().expect("own bytes");
    assert_eq!(locked.encoding(1, key).map(Encoding::name), Some("embstr"));
    assert_eq!(locked.access(1, key).map(|(idle_seconds, _)| idle_seconds), Some(60));
    assert_eq!(locked.gate(1, key.hash), 77);
    assert!(!flag.is_raised());
    locked.apply_mutation(&Mutation::Key { db: 1, key, change: Change::Delete }).expect("fits");
    assert!(flag.is_raised());
}

#[test]
fn lookups_are_counted_until_they_are_taken() {
    let store = Keyspace::new(1);
    apply(&store, 0, 0, b"k", Change::Set { value: b"v", expiry: Some(UnixMs(9)) }).expect("fits");
    let (params, key) = (params(8), store.key(b"k"));
    let locked = store.lock_one(key.hash, &params);
    assert!(locked.get(0, key).is_some() && locked.contains(0, key));
    assert!(locked.get(1, key).is_none());
    assert_eq!(locked.take_lookups(), Lookups { hits: 2, misses: 1 });
    assert_eq!(locked.take_lookups(), Lookups::default());
}

#[test]
fn only_waiting_for_a_stripe_is_counted() {
    let (store, first) = (Keyspace::new(1), params(1));
    let hash = store.hash(b"k");
    drop(store.lock_one(hash, &first));
    assert_eq!(store.lock_waits(), LockWaits::default());
    let held = store.lock_one(hash, &first);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let second = params(1);
            drop(store.lock_one(hash, &second));
        });
        while store.lock_waits().count == 0 {
            std::thread::yield_now();
        }
        drop(held);
    });
    let waits = store.lock_waits();
    assert_eq!(waits.count, 1);
    assert!(waits.ns > 0);
}

#[test]
fn partitions_are_asked_for_ahead_without_a_wait() {
    let (store, params) = (Keyspace::new(1), params(1));
    let key = PartitionKey { table: TableId(7), token: -5, bytes: b"k" };
    let ask = || {
        for reach in Reach::ALL {
            for (table, token) in [(7, -5), (7, 6), (8, -5)] {
                store.prefetch_partition(TableId(table), token, reach);
            }
        }
    };
    ask();
    for row in 0..40_u8 {
        let write = [Write::InsertRow { row: &[row], timestamp: 1, expiry: None }];
        let mut locked = store.lock_one(key.hash(), &params);
        locked.apply_mutation(&Mutation::Partition { key, writes: Writes::Slice(&write) }).unwrap();
        // Another thread holds the stripe.
        ask();
        drop(locked);
        ask();
    }
    let locked = store.lock_one(key.hash(), &params);
    assert_eq!(locked.partition(key).map(crate::Partition::len), Some(40));
}

/// The hashes of three keys in different stripes, in the order of their stripes.
fn hashes_in_order(store: &Keyspace) -> [u64; 3] {
    let mut hashes = ["a", "b", "c"].map(|name| store.hash(name.as_bytes()));
    hashes.sort_by_key(|hash| crate::key::stripe_of(*hash));
    let [low, middle, high] = hashes.map(crate::key::stripe_of);
    assert!(low < middle);
    assert!(middle < high);
    hashes
}

#[test]
fn a_thread_that_waits_for_a_stripe_holds_no_other() {
    let store = Keyspace::new(3);
    let [low, middle, high] = hashes_in_order(&store);
    let params = params(1);
    std::thread::scope(|scope| {
        let mut script = store.lock_one(middle, &params);
        // It gets the first stripe, but neither it nor the last one while it waits.
        let waiting = scope.spawn(|| {
            let params = self::params(1);
            store.lock([high, middle, low].into_iter(), &params).stripes().count()
        });
        while store.lock_waits().count == 0 {
            std::thread::yield_now();
        }
        assert!(script.try_add(low));
        assert!(script.try_add(high));
        assert!(script.holds(low));
        drop(script);
        assert_eq!(waiting.join().unwrap(), 3);
    });
}

#[test]
fn a_lock_is_given_up_when_the_caller_wants() {
    let store = Keyspace::new(3);
    let [low, middle, high] = hashes_in_order(&store);
    let params = params(1);
    let held = store.lock_one(middle, &params);
    assert!(store.lock_one_unless(middle, &params, |_| true).is_none());
    assert!(store.lock_unless([low, middle].into_iter(), &params, |_| true).is_none());
    assert!(store.lock_all_unless(&params, |_| true).is_none());
    let mut other = store.lock_one(low, &params);
    assert!(!other.try_add(middle));
    assert!(!other.add_unless(middle, |_| true));
    assert!(!other.try_add_all());
    assert!(!other.relock_with(&[middle], |_| true));
    assert!(other.is_unlocked());
    drop(held);
    assert!(other.relock_with(&[middle, high], |_| false));
    assert!(!other.holds(low));
    assert!(other.add_unless(low, |_| false));
    assert!(other.relock_all(|_| false));
    assert!(other.is_all());
}

/// Every expiry of a point is found at its time, also after a snapshot.
#[test]
fn series_with_expired_points_are_found() {
    let store = Keyspace::new(5);
    let add = |timestamp: i64, ms: u64| {
        let points: [(i64, &[u8]); 1] = [(timestamp, b"v")];
        let change = Change::SeriesAdd { points: Points::Slice(&points), expiry: Some(UnixMs(ms)) };
        apply(&store, 0, 0, b"ts", change).unwrap();
    };
    add(1, 50);
    add(2, 40);
    add(3, 60);
    let stripe = store.stripe_of_key(b"ts");
    let purgeable = |store: &Keyspace, ms: u64| {
        let has_due = store.has_due(stripe, UnixMs(ms));
        let found = store.lock_stripe(stripe, &self::params(ms)).next_expired();
        assert!(has_due || found.is_none());
        assert_eq!(store.has_due(stripe, UnixMs(ms)), found.is_some(), "outdated items are gone");
        found
    };
    let found = Some((0, b"ts".to_vec(), Due::Points));
    let purge = |store: &Keyspace, ms: u64, last: i64| {
        let change = Change::SeriesPurge { at: UnixMs(ms), first: i64::MIN, last };
        apply(store, ms, 0, b"ts", change).unwrap();
    };
    assert_eq!(purgeable(&store, 39), None);
    let params = params(0);
    let loaded = Keyspace::new(5);
    for block in snapshot(&store) {
        load_block(&loaded, &params, &block.bytes).unwrap();
    }
    for store in [&store, &loaded] {
        assert_eq!(purgeable(store, 40), found);
        purge(store, 40, i64::MAX);
        assert_eq!(purgeable(store, 40), None);
        assert_eq!(purgeable(store, 60), found);
        // A purge of a part leaves the rest for the next one.
        purge(store, 60, 1);
        assert_eq!(purgeable(store, 60), found);
        purge(store, 60, i64::MAX);
        assert_eq!(purgeable(store, 60), None);
        assert!(store.lock_stripe(stripe, &params).is_empty(0), "its last point has expired");
    }
}

#[test]
fn versions_are_in_the_log_and_in_snapshots_and_stay_in_a_reload() {
    let live = Keyspace::new(5);
    let version = |time| Version { time, server: 3 };
    let mut log = Vec::new();
    let mut write = |mutation: &Mutation<'_>| {
        live.replay(mutation, &params(0), |_| false).expect("fits");
        let mut bytes = Vec::new();
        mutation.encode(&mut bytes);
        log.push(bytes);
    };
    let (kept, deleted, flushed) = (live.key(b"kept"), live.key(b"deleted"), live.key(b"flushed"));
    for (db, key, time) in [(0, kept, 5), (0, deleted, 6), (2, flushed, 7)] {
        write(&Mutation::Key { db, key, change: Change::Set { value: b"v", expiry: None } });
        write(&Mutation::Version { db, key, given: Given::first(version(time)) });
    }
    write(&Mutation::Key { db: 0, key: deleted, change: Change::Delete });
    write(&Mutation::Version { db: 0, key: deleted, given: Given::first(version(8)) });
    write(&Mutation::Flush { db: Some(2) });
    write(&Mutation::Floor { db: 2, version: version(9) });
    write(&Mutation::Floor { db: 2, version: version(4) });
    write(&Mutation::Floor { db: 3, version: version(9) });
    write(&Mutation::Floor { db: 3, version: Version::NONE });
    let loaded = Keyspace::new(5);
    for block in snapshot(&live) {
        assert_eq!(load_block(&loaded, &params(0), &block.bytes).expect("own bytes"), block.keys);
    }
    live.lock_all(&params(0)).reload().expect("own bytes");
    for store in [&live, &loaded, &replayed(&log, 99)] {
        let params = params(0);
        let locked = store.lock_all(&params);
        let of = |db, name| locked.version(db, store.key(name));
        assert_eq!((of(0, b"kept"), of(0, b"deleted")), (version(5), version(8)));
        assert_eq!((of(2, b"flushed"), of(0, b"flushed")), (Version::NONE, Version::NONE));
        assert_eq!((store.floor(2), store.floor(3)), (version(9), Version::NONE));
        drop(locked);
        let stripe = store.stripe_of_key(b"deleted");
        let locked = store.lock_stripe(stripe, &params);
        assert_eq!(locked.old_deletions(9, 9), [(0, b"deleted".to_vec())]);
        assert_eq!(locked.old_deletions(8, 9), []);
        drop(locked);
        let locked = store.lock_stripe(store.stripe_of_key(b"kept"), &params);
        assert_eq!(locked.older_keys(0, version(6), 9), [b"kept".to_vec()]);
        assert!(locked.older_keys(0, version(5), 9).is_empty());
    }
    assert_eq!(accounted_bytes(&live), accounted_bytes(&loaded));
}
