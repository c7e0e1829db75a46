//! The merge of a group of masters as a property: the same states, in any order, in frames of any
//! size, and repeated, give the same data.

use base::time::UnixMs;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng, SeedableRng};
use store::{
    CellValue, Change, Expiry, Given, Key, Mutation, PartitionKey, RowKey, STRIPES, Seconds, Stamp,
    TableId, Version, Write, Writes,
};
use wire::replication::{
    Chain, Epoch, Format, FrameReader, FrameWriter, HEADER_BYTES, Header, Kind, Opening,
};

use super::cql_client::with_options;
use super::replication::ask;
use super::tests::{Announce, seeds};
use super::world::World;
use crate::engine::server_state::params;
use crate::replica::Merger;

/// Seeds per `cargo test`.
const SEEDS: u64 = 60;
const STATES: usize = 60;
const KEYS: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];
const DATABASES: [u8; 2] = [0, 3];
const TABLE: TableId = TableId(1 << 100);
/// The server whose states are merged; they have several authors.
const PEER: u16 = 7;

/// Values of all kinds, as the states of the keys of a server.
fn values(source: &mut World) -> Vec<Vec<u8>> {
    ask(
        source,
        "SET a 1|SET b x PX 900000|RPUSH l x y 1|HSET h f 1 g 2|HPEXPIRE h 900000 FIELDS 1 f|\
         SADD s 1 2 3|ZADD z 1 m 2 n|XADD x 1-1 f v|TSADD r 5 v|",
    );
    let params = params(&source.shared().settings.load(), UnixMs(0), 0, 0);
    let keyspace = &source.shared().keyspace;
    let state = |name: &[u8]| {
        let key = keyspace.key(name);
        let mut out = Vec::new();
        keyspace.lock_one(key.hash, &params).encode_state(0, key, &mut out);
        out
    };
    let names: [&[u8]; 9] = [b"a", b"b", b"l", b"h", b"s", b"z", b"x", b"r", b"absent"];
    names.map(state).to_vec()
}

/// A value of a key with a version that no other state of the key has, so that both have one
/// author.
fn key_state(random: &mut SmallRng, values: &[Vec<u8>], number: u64) -> Vec<u8> {
    let db = DATABASES[random.random_range(0..DATABASES.len())];
    let key = Key { bytes: KEYS[random.random_range(0..KEYS.len())], hash: 0 };
    let value = &values[random.random_range(0..values.len())];
    let Ok(Mutation::Key { change, .. }) = Mutation::decode(&mut value.as_slice(), |_| 0) else {
        panic!("the state of a key")
    };
    // Times are often equal: then the number of the server decides.
    let time = random.random_range(10..20);
    let version = Version { time, server: u16::try_from(number + 1).unwrap() };
    let seen = Version { time: random.random_range(0..10), server: 1 };
    let mut out = Vec::new();
    Mutation::Key { db, key, change }.encode(&mut out);
    Mutation::Version { db, key, given: Given { version, seen } }.encode(&mut out);
    out
}

fn floor(random: &mut SmallRng) -> Vec<u8> {
    let db = DATABASES[random.random_range(0..DATABASES.len())];
    let version = Version { time: random.random_range(10..16), server: random.random_range(1..9) };
    let mut out = Vec::new();
    Mutation::Floor { db, version }.encode(&mut out);
    out
}

/// Writes of rows; a deletion has one time for each timestamp, as its author gave it.
fn rows(random: &mut SmallRng) -> Vec<u8> {
    let keys: [&[u8]; 3] = [b"r1", b"r2", b"r3"];
    let (row, end) = (keys[random.random_range(0..3)], keys[random.random_range(0..3)]);
    let timestamp = random.random_range(1..8);
    let at = Seconds::try_from(timestamp).unwrap() * 10;
    let stamp = Stamp { timestamp, at };
    let value = [random.random_range(0..4)];
    let live = CellValue::Live { bytes: &value, expiry: None };
    let expiry = Some(Expiry { at: 4_000_000_000, ttl: 60 });
    let cell = |column, item, value| Write::Cell {
        row: RowKey::Clustering(row),
        column,
        item,
        timestamp,
        value,
    };
    let column = random.random_range(0..2);
    let write = match random.random_range(0..12) {
        0 => Write::DeletePartition(Stamp { timestamp: timestamp / 3, at: 5 }),
        1 => Write::DeleteRange { start: row, end: Some(end).filter(|end| row < *end), stamp },
        2 => Write::DeleteRow { row, stamp },
        3 => Write::InsertRow { row, timestamp, expiry: None },
        4 => Write::DeleteItems { row: RowKey::Clustering(row), column: 2, stamp },
        5 => cell(2, Some(b"i"), live),
        6 => cell(column, None, CellValue::Live { bytes: b"e", expiry }),
        7 => cell(column, None, CellValue::Deleted { at }),
        8 => Write::Cell { row: RowKey::Static, column: 4, item: None, timestamp, value: live },
        _ => cell(column, None, live),
    };
    let token = random.random_range(0..2);
    let key = PartitionKey { table: TABLE, token, bytes: b"partition" };
    let mut out = Vec::new();
    Mutation::Partition { key, writes: Writes::Slice(&[write]) }.encode(&mut out);
    Mutation::Origin { server: 3, newest_timestamp: timestamp }.encode(&mut out);
    out
}

/// Merges the states into an empty server: shuffled, some of them repeatedly, in some frames.
fn merge(states: &[Vec<u8>], random: &mut SmallRng) -> World {
    let mut world = World::new(1, with_options(&[("server-id", "2")]));
    ask(&mut world, &format!("HUB ADD {PEER} peer 1|"));
    let generation = world.shared().hub.peers().all()[&PEER].generation;
    let state = world.state().clone();
    let mut merger = Merger::new(&state, PEER, generation);
    assert_eq!(merger.request(), None);
    let mut writer = FrameWriter::new(Format::Compressed, Chain::default());
    let mut frames = FrameReader::default();
    let mut frame = |world: &mut World, put: &dyn Fn(&mut FrameWriter, &mut Vec<u8>)| {
        let mut bytes = Vec::new();
        put(&mut writer, &mut bytes);
        let header = Header::decode(bytes.first_chunk::<HEADER_BYTES>().unwrap()).unwrap();
        let frame = frames.open(&header, &bytes[HEADER_BYTES..]).unwrap();
        merger.apply(world.sim().now(), &frame).expect("a valid stream");
    };
    let epochs = vec![Epoch { id: [b'a'; 40], start: 0 }];
    let opening = Opening { seed: 0, program: String::new(), epochs };
    frame(&mut world, &|writer, out| writer.put_opening(Kind::Copy, 0, &opening, out));
    let mut sent: Vec<&[u8]> = Vec::new();
    for state in states {
        (0..random.random_range(1..4)).for_each(|_| sent.push(state));
    }
    sent.shuffle(random);
    while !sent.is_empty() {
        let count = random.random_range(1..=sent.len().min(9));
        let payload = sent.split_off(sent.len() - count).concat();
        frame(&mut world, &|writer, out| {
            writer.put(Kind::States, (0, 0), out, |out| out.extend_from_slice(&payload));
        });
    }
    world
}

/// All data. A version that is less than the floor of its database decides nothing any more.
fn data(world: &World) -> Vec<String> {
    let keyspace = &world.shared().keyspace;
    let params = params(&world.shared().settings.load(), UnixMs(0), 0, 0);
    let mut data = Vec::new();
    for db in DATABASES {
        data.push(format!("{:?}", keyspace.floor(db)));
        for name in KEYS {
            let key = keyspace.key(name);
            let locked = keyspace.lock_one(key.hash, &params);
            let (mut value, given) = (Vec::new(), locked.given(db, key));
            locked.encode_state(db, key, &mut value);
            let decides = given.version >= keyspace.floor(db);
            data.push(format!("{value:?} {:?}", decides.then_some(given)));
            assert!(decides || !locked.is_stored(db, key), "an older value stays");
        }
    }
    for stripe in 0..STRIPES {
        let locked = keyspace.lock_stripe(stripe, &params);
        for (token, _, partition) in locked.partitions(TABLE, std::ops::Bound::Unbounded) {
            data.push(format!("{token} {partition:?}"));
        }
    }
    data
}

#[test]
fn states_give_the_same_data_in_any_order() {
    let mut source = World::new(1, with_options(&[]));
    let values = values(&mut source);
    let mut deleted = 0;
    for seed in seeds(SEEDS) {
        let _announce = Announce(seed);
        let mut random = SmallRng::seed_from_u64(seed);
        let states: Vec<Vec<u8>> = (0..STATES as u64)
            .map(|number| match random.random_range(0..20) {
                0 => floor(&mut random),
                1..=10 => key_state(&mut random, &values, number),
                _ => rows(&mut random),
            })
            .collect();
        let [one, other] = [0, 1].map(|_| data(&merge(&states, &mut random)));
        assert_eq!(one, other);
        deleted += one.iter().filter(|line| line.contains("None")).count();
    }
    assert!(deleted > 0, "some keys are older than the emptying of their database");
}

#[test]
fn states_that_no_server_sends_end_the_link() {
    let mut world = World::new(1, with_options(&[("server-id", "2")]));
    ask(&mut world, &format!("HUB ADD {PEER} peer 1|"));
    let key = Key { bytes: b"k", hash: 0 };
    let set = Mutation::Key { db: 0, key, change: Change::Set { value: b"v", expiry: None } };
    let version = Version { time: 5, server: 3 };
    let given = |given| Mutation::Version { db: 0, key, given };
    let unordered = Given { version, seen: Version { time: 6, server: 4 } };
    let local = PartitionKey { table: crate::engine::hub::STORED.table, token: 0, bytes: b"peers" };
    let cases: [&[Mutation<'_>]; 8] = [
        &[set],
        &[given(Given::first(version))],
        &[set, given(unordered)],
        &[set, given(Given::first(Version { time: 5, server: 0 }))],
        &[set, given(Given::first(Version { time: u64::MAX, server: 3 }))],
        &[Mutation::Floor { db: 0, version: Version::NONE }],
        &[Mutation::Flush { db: None }],
        &[Mutation::Partition { key: local, writes: Writes::Slice(&[]) }],
    ];
    for case in cases {
        let generation = world.shared().hub.peers().all()[&PEER].generation;
        let state = world.state().clone();
        let mut merger = Merger::new(&state, PEER, generation);
        let mut writer = FrameWriter::new(Format::Chained, Chain::default());
        let mut frames = FrameReader::default();
        let mut apply = |world: &mut World, put: &dyn Fn(&mut FrameWriter, &mut Vec<u8>)| {
            let mut bytes = Vec::new();
            put(&mut writer, &mut bytes);
            let header = Header::decode(bytes.first_chunk::<HEADER_BYTES>().unwrap()).unwrap();
            let frame = frames.open(&header, &bytes[HEADER_BYTES..]).unwrap();
            merger.apply(world.sim().now(), &frame)
        };
        let epochs = vec![Epoch { id: [b'a'; 40], start: 0 }];
        let opening = Opening { seed: 0, program: String::new(), epochs };
        let begun =
            apply(&mut world, &|writer, out| writer.put_opening(Kind::Copy, 0, &opening, out));
        begun.unwrap();
        let mut payload = Vec::new();
        for mutation in case {
            mutation.encode(&mut payload);
        }
        let merged = apply(&mut world, &|writer, out| {
            writer.put(Kind::States, (0, 0), out, |out| out.extend_from_slice(&payload));
        });
        assert!(merged.is_err(), "{case:?}");
    }
    assert_eq!(ask(&mut world, "EXISTS k|"), ":0\r\n");
}
