//! Streams against a naive model: every change as a mutation, live, replayed, and from a snapshot.

use std::collections::BTreeMap;

use base::time::UnixMs;
use proptest::prelude::*;

use crate::types::{Compact, Stream, StreamEntry, StreamId, Trim};
use crate::{
    AccessClock, AccessRule, Assignment, Change, Deliveries, GroupRead, Ids, Items, Key, Keyspace,
    Mutation, Params, SnapshotBlock, StoreError, StreamChange, StreamChangeRef, load_block,
};

/// Small blocks, so that a few entries fill several.
fn params() -> Params {
    let compact = Compact::default().with_stream_node(100, 4);
    Params::new(UnixMs(0), AccessClock::new(AccessRule::Lru, UnixMs(0), 1), compact)
}

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug, Clone, Default, PartialEq)]
struct ModelGroup {
    last_id: StreamId,
    entries_read: Option<u64>,
    /// Consumers with the times at which they were seen and active.
    consumers: BTreeMap<Vec<u8>, (u64, Option<u64>)>,
    /// Consumer, time and number of deliveries.
    pending: BTreeMap<StreamId, (Vec<u8>, u64, u64)>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    entries: BTreeMap<StreamId, Fields>,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    groups: BTreeMap<Vec<u8>, ModelGroup>,
}

fn fields_of(entry: StreamEntry<'_>) -> Fields {
    let owned = |member: crate::types::Scalar<'_>| member.with_bytes(<[u8]>::to_vec);
    let fields: Fields = entry.fields().map(|(name, value)| (owned(name), owned(value))).collect();
    assert_eq!(fields.len(), entry.len());
    fields
}

impl Model {
    /// What a stream holds, read from both ends and by all lookups.
    fn of(stream: &Stream) -> Model {
        let all = |entry: StreamEntry<'_>| (entry.id, fields_of(entry));
        let entries: Vec<_> = stream.range(StreamId::MIN, StreamId::MAX).map(all).collect();
        let mut reversed: Vec<_> =
            stream.range_rev(StreamId::MIN, StreamId::MAX).map(all).collect();
        reversed.reverse();
        assert_eq!(entries, reversed);
        assert_eq!(stream.len(), entries.len());
        assert_eq!(stream.first_entry_id(), entries.first().map_or(StreamId::MIN, |it| it.0));
        assert_eq!(stream.last_entry_id(), entries.last().map_or(StreamId::MIN, |it| it.0));
        for (id, fields) in &entries {
            assert_eq!(stream.get(*id).map(fields_of).as_ref(), Some(fields));
        }
        let groups = stream.groups().map(|group| {
            let pending: BTreeMap<_, _> = group
                .pending_from(StreamId::MIN)
                .map(|it| {
                    assert_eq!(group.pending(it.id), Some(it));
                    let name = group.consumer_of(it).name().to_vec();
                    (it.id, (name, it.delivered_ms, it.deliveries))
                })
                .collect();
            assert_eq!(group.pending_len(), pending.len());
            assert_eq!(group.first_pending().map(|it| it.id), pending.keys().next().copied());
            assert_eq!(group.last_pending().map(|it| it.id), pending.keys().last().copied());
            let consumers = group.consumers().map(|consumer| {
                let own: Vec<StreamId> = consumer.pending_from(StreamId::MIN).collect();
                let expected = pending.iter().filter(|(_, it)| it.0 == consumer.name());
                assert!(expected.map(|(id, _)| id).eq(&own));
                assert_eq!(consumer.pending_len(), own.len());
                (consumer.name().to_vec(), (consumer.seen_ms, consumer.active_ms))
            });
            let consumers: BTreeMap<_, _> = consumers.collect();
            assert_eq!(group.consumers_len(), consumers.len());
            let (last_id, entries_read) = (group.last_id, group.entries_read);
            (group.name().to_vec(), ModelGroup { last_id, entries_read, consumers, pending })
        });
        Model {
            groups: groups.collect(),
            entries: entries.into_iter().collect(),
            last_id: stream.last_id(),
            max_deleted_id: stream.max_deleted_id(),
            entries_added: stream.entries_added(),
        }
    }

    fn delete(&mut self, ids: &[StreamId]) {
        for id in ids {
            if self.entries.remove(id).is_some() {
                self.max_deleted_id = self.max_deleted_id.max(*id);
            }
        }
    }

    fn assign(&mut self, to: &Assign) {
        let Some(group) = self.groups.get_mut(&to.group) else { return };
        if let Some(read) = to.read {
            (group.last_id, group.entries_read) = (read.last_id, read.entries_read);
        }
        let consumer = group.consumers.entry(to.consumer.clone()).or_default();
        consumer.0 = to.now;
        if to.is_active {
            consumer.1 = Some(to.now);
        }
        for (id, count) in &to.entries {
            group.pending.insert(*id, (to.consumer.clone(), to.now + 1, *count));
        }
    }
}

#[derive(Debug, Clone)]
struct Assign {
    group: Vec<u8>,
    consumer: Vec<u8>,
    now: u64,
    is_active: bool,
    read: Option<GroupRead>,
    entries: Vec<(StreamId, u64)>,
}

#[derive(Debug, Clone)]
enum Step {
    /// After the last identifier by these differences.
    Add(u64, u64, Fields),
    Trim(u64),
    TrimTo(Trim, Option<u64>),
    Delete(Vec<StreamId>),
    SetIds(u64, Option<u64>, Option<StreamId>),
    SetGroup(Vec<u8>, GroupRead),
    DeleteGroup(Vec<u8>),
    SetConsumer(Vec<u8>, Vec<u8>, u64),
    DeleteConsumer(Vec<u8>, Vec<u8>),
    Assign(Assign),
    Acknowledge(Vec<u8>, Vec<StreamId>),
    Reload,
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (-3i64..200).prop_map(|number| number.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        4 => proptest::collection::vec(any::<u8>(), 0..6),
        1 => (60usize..70).prop_map(|len| vec![b'x'; len]),
        1 => (4090usize..4100).prop_map(|len| vec![b'y'; len]),
    ]
}

fn fields() -> impl Strategy<Value = Fields> {
    prop_oneof![
        3 => content().prop_map(|value| vec![(b"name".to_vec(), value)]),
        2 => (content(), content())
            .prop_map(|(one, two)| vec![(b"a".to_vec(), one), (b"1".to_vec(), two)]),
        1 => proptest::collection::vec((content(), content()), 1..4),
    ]
}

fn id() -> impl Strategy<Value = StreamId> {
    prop_oneof![
        20 => (0u64..30, 0u64..4).prop_map(|(ms, seq)| StreamId { ms, seq }),
        1 => Just(StreamId::MAX),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || (0u8..3).prop_map(|byte| vec![b'n'; usize::from(byte)]);
    let ids = || proptest::collection::vec(id(), 1..5);
    let read = || {
        let read = (id(), proptest::option::of(0u64..9));
        read.prop_map(|(last_id, entries_read)| GroupRead { last_id, entries_read })
    };
    let entries = proptest::collection::vec((id(), 0u64..9), 0..5);
    let times = (0u64..99, any::<bool>());
    let assign = (name(), name(), times, proptest::option::of(read()), entries).prop_map(
        |(group, consumer, (now, is_active), read, entries)| Assign {
            group,
            consumer,
            now,
            is_active,
            read,
            entries,
        },
    );
    let trim = prop_oneof![(0u64..12).prop_map(Trim::MaxLen), id().prop_map(Trim::MinId)];
    let step = prop_oneof![
        12 => (0u64..3, 0u64..3, fields()).prop_map(|(ms, seq, it)| Step::Add(ms, seq, it)),
        1 => (0u64..8).prop_map(Step::Trim),
        2 => (trim, proptest::option::of(0u64..9))
            .prop_map(|(trim, limit)| Step::TrimTo(trim, limit)),
        3 => ids().prop_map(Step::Delete),
        1 => (0u64..3, proptest::option::of(0u64..99), proptest::option::of(id()))
            .prop_map(|(more, added, deleted)| Step::SetIds(more, added, deleted)),
        3 => (name(), read()).prop_map(|(name, read)| Step::SetGroup(name, read)),
        1 => name().prop_map(Step::DeleteGroup),
        2 => (name(), name(), 0u64..99).prop_map(|(g, c, ms)| Step::SetConsumer(g, c, ms)),
        1 => (name(), name()).prop_map(|(group, name)| Step::DeleteConsumer(group, name)),
        6 => assign.prop_map(Step::Assign),
        3 => (name(), ids()).prop_map(|(group, ids)| Step::Acknowledge(group, ids)),
        1 => Just(Step::Reload),
    ];
    proptest::collection::vec(step, 0..80)
}

/// A keyspace, the log of its changes, and the model of its only stream.
struct Fixture {
    store: Keyspace,
    log: Vec<u8>,
    model: Option<Model>,
}

fn key(store: &Keyspace) -> Key<'static> {
    store.key(b"stream")
}

fn with_stream<R>(store: &Keyspace, read: impl FnOnce(Option<&Stream>) -> R) -> R {
    let params = params();
    let locked = store.lock_one(key(store).hash, &params);
    read(locked.stream(0, key(store)).expect("a stream"))
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { store: Keyspace::new(1), log: Vec::new(), model: None }
    }

    fn apply(&mut self, change: &StreamChange<'_>) -> Result<(), StoreError> {
        let (params, key) = (params(), key(&self.store));
        let change = Change::Stream(StreamChangeRef::Given(change));
        let mutation = Mutation::Key { db: 0, key, change };
        self.store.lock_one(key.hash, &params).apply_mutation(&mutation)?;
        let mut bytes = Vec::new();
        mutation.encode(&mut bytes);
        for cut in 0..bytes.len().min(200) {
            assert!(Mutation::decode(&mut &bytes[..cut], |_| 0).is_err(), "{mutation} cut {cut}");
        }
        let decoded = Mutation::decode(&mut bytes.as_slice(), |_| 0).expect("own bytes");
        assert_eq!(decoded.to_string(), mutation.to_string());
        self.log.extend_from_slice(&bytes);
        Ok(())
    }

    fn step(&mut self, step: Step) {
        let mut model = self.model.clone().unwrap_or_default();
        let exists = self.model.is_some();
        match step {
            Step::Add(ms, seq, fields) => {
                let last = model.last_id;
                let id = match ms {
                    0 => StreamId { ms: last.ms, seq: last.seq.saturating_add(seq) },
                    _ => StreamId { ms: last.ms.saturating_add(ms), seq },
                };
                let items: Vec<&[u8]> =
                    fields.iter().flat_map(|(name, value)| [&name[..], value]).collect();
                let added = self.apply(&StreamChange::Add { id, fields: Items::Slice(&items) });
                assert_eq!(added, if id > last { Ok(()) } else { Err(StoreError::Malformed) });
                if added.is_err() {
                    return;
                }
                model.last_id = id;
                model.entries_added += 1;
                model.entries.insert(id, fields);
                self.model = Some(model);
                return;
            }
            Step::Trim(count) => {
                self.apply(&StreamChange::Trim { count }).expect("fits");
                (0..count).for_each(|_| drop(model.entries.pop_first()));
            }
            Step::TrimTo(trim, limit) => return self.trim(trim, limit),
            Step::Delete(ids) => {
                self.apply(&StreamChange::Delete { ids: Ids::Slice(&ids) }).expect("fits");
                model.delete(&ids);
            }
            Step::SetIds(more, entries_added, max_deleted_id) => {
                let last_id = StreamId { ms: model.last_id.ms.saturating_add(more), seq: 9 };
                let last_id = last_id.max(model.last_id);
                let change = StreamChange::SetIds { last_id, entries_added, max_deleted_id };
                self.apply(&change).expect("fits");
                model.last_id = last_id;
                model.entries_added = entries_added.unwrap_or(model.entries_added);
                model.max_deleted_id = max_deleted_id.unwrap_or(model.max_deleted_id);
            }
            Step::SetGroup(name, read) => {
                self.apply(&StreamChange::SetGroup { group: &name, read }).expect("fits");
                let group = model.groups.entry(name).or_default();
                (group.last_id, group.entries_read) = (read.last_id, read.entries_read);
                self.model = Some(model);
                return;
            }
            Step::DeleteGroup(group) => {
                self.apply(&StreamChange::DeleteGroup { group: &group }).expect("fits");
                model.groups.remove(&group);
            }
            Step::SetConsumer(group, consumer, seen_ms) => {
                let change =
                    StreamChange::SetConsumer { group: &group, consumer: &consumer, seen_ms };
                self.apply(&change).expect("fits");
                if let Some(group) = model.groups.get_mut(&group) {
                    group.consumers.entry(consumer).or_default().0 = seen_ms;
                }
            }
            Step::DeleteConsumer(group, consumer) => {
                let change = StreamChange::DeleteConsumer { group: &group, consumer: &consumer };
                self.apply(&change).expect("fits");
                if let Some(group) = model.groups.get_mut(&group) {
                    group.consumers.remove(&consumer);
                    group.pending.retain(|_, it| it.0 != consumer);
                }
            }
            Step::Assign(to) => {
                let assignment = Assignment {
                    group: &to.group,
                    consumer: &to.consumer,
                    seen_ms: to.now,
                    is_active: to.is_active,
                    delivered_ms: to.now + 1,
                    read: to.read,
                    entries: Deliveries::Slice(&to.entries),
                };
                self.apply(&StreamChange::Assign(assignment)).expect("fits");
                model.assign(&to);
            }
            Step::Acknowledge(group, ids) => {
                let change = StreamChange::Acknowledge { group: &group, ids: Ids::Slice(&ids) };
                self.apply(&change).expect("fits");
                if let Some(group) = model.groups.get_mut(&group) {
                    group.pending.retain(|id, _| !ids.contains(id));
                }
            }
            Step::Reload => {
                self.store.lock_all(&params()).reload().expect("own bytes");
            }
        }
        if exists {
            self.model = Some(model);
        }
    }

    /// Removes what a trim removes; whole blocks are at least a part of what must be removed.
    fn trim(&mut self, trim: Trim, blocks_only: Option<u64>) {
        let Some(model) = &mut self.model else { return };
        let exact = match trim {
            Trim::MaxLen(max) => (model.entries.len() as u64).saturating_sub(max),
            Trim::MinId(min) => model.entries.range(..min).count() as u64,
        };
        let count = with_stream(&self.store, |stream| {
            let stream = stream.expect("the model has it");
            let trimmed = stream.trimmed(trim, blocks_only);
            match blocks_only {
                None => assert_eq!(trimmed, exact),
                Some(0) => assert!(trimmed <= exact && trimmed + 4 > exact),
                Some(limit) => assert!(trimmed <= exact.min(limit)),
            }
            trimmed
        });
        (0..count).for_each(|_| drop(model.entries.pop_first()));
        self.apply(&StreamChange::Trim { count }).expect("fits");
    }

    fn check(&self) {
        with_stream(&self.store, |stream| {
            assert_eq!(stream.map(Model::of), self.model);
            let Some(stream) = stream else { return };
            for from in 0..10 {
                let first = StreamId { ms: from * 3, seq: from % 2 };
                let last = StreamId { ms: from * 3 + from, seq: 1 };
                let expected: Vec<StreamId> = match &self.model {
                    Some(model) => model.entries.range(first..=last).map(|it| *it.0).collect(),
                    None => Vec::new(),
                };
                let found: Vec<_> = stream.range(first, last).map(|entry| entry.id).collect();
                assert_eq!(found, expected);
                let found = stream.range_rev(first, last).map(|entry| entry.id);
                assert!(found.eq(expected.iter().rev().copied()));
                assert_eq!(stream.contains(first), expected.first() == Some(&first));
            }
            let mut bytes = Vec::new();
            stream.encode(&mut bytes);
            let mut input = bytes.as_slice();
            let decoded = Stream::decode(&mut input).expect("own bytes");
            assert!(input.is_empty());
            assert_eq!(&decoded, stream);
            for cut in [0, bytes.len() / 2, bytes.len() - 1] {
                assert!(Stream::decode(&mut &bytes[..cut]).is_err());
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_stream_is_as_the_model_live_replayed_and_from_a_snapshot(steps in steps()) {
        let mut fixture = Fixture::new();
        for step in steps {
            fixture.step(step);
            fixture.check();
        }
        let replayed = Keyspace::new(9);
        let mut input = fixture.log.as_slice();
        while !input.is_empty() {
            let mutation = Mutation::decode(&mut input, |key| replayed.hash(key)).expect("own");
            replayed.replay(&mutation, &params(), |_| false).expect("fits");
        }
        let loaded = Keyspace::new(1);
        let mut block = SnapshotBlock { stripe: 0, lsn: 0, keys: 0, bytes: Vec::new() };
        for stripe in 0..crate::STRIPES {
            fixture.store.snapshot_stripe(stripe, || 7, &mut block);
            load_block(&loaded, &params(), &block.bytes).expect("own bytes");
        }
        for store in [&replayed, &loaded] {
            with_stream(store, |stream| assert_eq!(stream.map(Model::of), fixture.model));
        }
        // The account of an emptied keyspace is zero.
        let params = params();
        let mut locked = fixture.store.lock_all(&params);
        let key = key(&fixture.store);
        locked.apply_mutation(&Mutation::Key { db: 0, key, change: Change::Delete }).expect("fits");
        locked.apply_mutation(&Mutation::Flush { db: None }).expect("fits");
        drop(locked);
        prop_assert_eq!(fixture.store.stats(UnixMs(0)).1, 0);
    }

    #[test]
    fn changed_bytes_of_a_stream_never_panic(
        steps in steps(),
        places in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..4),
    ) {
        let mut fixture = Fixture::new();
        for step in steps {
            fixture.step(step);
        }
        let mut bytes = Vec::new();
        with_stream(&fixture.store, |stream| stream.map(|stream| stream.encode(&mut bytes)));
        for (place, byte) in places {
            let place = usize::from(place) % bytes.len().max(1);
            if let Some(slot) = bytes.get_mut(place) {
                *slot = byte;
            }
        }
        if let Ok(mut stream) = Stream::decode(&mut bytes.as_slice()) {
            let _checked = Model::of(&stream);
            let first = stream.first_entry_id();
            stream.remove(first);
            stream.remove_front(2);
            stream.acknowledge(b"n", [first].into_iter());
            stream.remove_consumer(b"n", b"n");
            let _checked = Model::of(&stream);
        }
    }
}

fn filled(entries: u64, fields: &[&[u8]]) -> Stream {
    let mut stream = Stream::new();
    for number in 0..entries {
        let id = StreamId { ms: 1_700_000_000_000 + number, seq: 0 };
        stream.add(id, fields.iter().copied(), &Compact::default()).expect("ascending");
    }
    stream
}

#[test]
fn an_entry_takes_little_more_than_its_values() {
    let stream = filled(100_000, &[b"sensor-id", b"1234", b"temperature", b"19.8"]);
    // Two values of 3 and 5 bytes, and five bytes of numbers.
    assert!(stream.heap_bytes() < 100_000 * 15, "{}", stream.heap_bytes());
    let mut counted = 0;
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        let (name, value) = entry.fields().nth(1).expect("two fields");
        name.with_bytes(|name| assert_eq!(name, b"temperature"));
        value.with_bytes(|value| assert_eq!(value, b"19.8"));
        counted += 1;
    }
    assert_eq!(counted, 100_000);
}

#[test]
fn a_queue_does_not_grow_with_what_went_through_it() {
    let mut stream = Stream::new();
    for number in 1..50_000 {
        let id = StreamId { ms: number, seq: 0 };
        stream.add(id, [&b"f"[..], b"value"].into_iter(), &Compact::default()).expect("ascending");
        let count = stream.trimmed(Trim::MaxLen(50), None);
        stream.remove_front(count);
    }
    assert_eq!(stream.len(), 50);
    assert!(stream.heap_bytes() < 10_000, "{}", stream.heap_bytes());
}

/// Numbers of nodes and entries as redis-server 7.0 reports them (XINFO STREAM) and trims.
#[test]
fn blocks_are_as_large_as_the_nodes_of_redis() {
    let stream = filled(1000, &[b"f", b"v"]);
    assert_eq!((stream.blocks_len(), stream.trimmed(Trim::MaxLen(450), Some(0))), (10, 500));
    assert_eq!(stream.trimmed(Trim::MaxLen(450), Some(250)), 200);
    assert_eq!(stream.trimmed(Trim::MaxLen(450), None), 550);
}

/// Logs and snapshots hold these bytes: a change needs a new version of both formats.
#[test]
fn an_encoded_stream_has_these_bytes() {
    let mut stream = Stream::new();
    let id = StreamId { ms: 5, seq: 1 };
    stream.add(id, [&b"f"[..], b"7"].into_iter(), &Compact::default()).expect("ascending");
    stream.set_group(b"g", id, Some(1));
    stream.assign(b"g", b"c", 8, [(id, 1)].into_iter());
    let mut bytes = Vec::new();
    stream.encode(&mut bytes);
    let expected: &[&[u8]] = &[
        b"\x05\x01\0\0\x01",
        b"\x01\x05\x01\x05\x01\x01\x01\0\x18\x02\x81f\x05\0\0\0\x07\x04",
        b"\x01\x01g\x05\x01\x02\x01\x01c\0\0\x01\x05\x01\0\x08\x01",
    ];
    assert_eq!(bytes, expected.concat());
}
