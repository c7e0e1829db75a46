//! RDB files for clients: what they contain, and clients that do not read them.

use reactor::SimClient;
use wire::rdb::{Entry, FileReader, Item, Value};

use super::cql_client::run_reactors;
use super::world::{Plan, World};
use crate::engine::rdb_file::Scratch;
use crate::engine::transfer_thread::serve;
use crate::engine::transfers::TRANSFERS_MAX;

const SECOND_NS: u64 = 1_000_000_000;
const REQUEST: &[u8] = b"REPLCONF rdb-only 1\r\nREPLCONF capa eof\r\nSYNC\r\n";
const ACCEPTED: &[u8] = b"+OK\r\n+OK\r\n";
const EXPIRES_MS: u64 = 100_000;
const MARK_BYTES: usize = 40;
const KEYS: usize = 64;
const VALUE_BYTES: usize = 256 * 1024;

fn run(world: &mut World) {
    while world.write_log() {
        run_reactors(world);
    }
    run_reactors(world);
}

fn make_parts(world: &mut World, scratch: &mut Scratch) {
    let now = world.sim().now();
    serve(world.shared(), now, scratch);
    run_reactors(world);
}

fn ask(world: &mut World, request: &str) -> String {
    String::from_utf8(world.ask(request.replace('|', "\r\n").as_bytes())).unwrap()
}

/// Sends a request for a file, and returns its connection.
fn sync(world: &mut World, request: &[u8]) -> SimClient {
    let client = world.sim().connect();
    client.send(request);
    run_reactors(world);
    client
}

/// Makes and receives a file to its end, and returns what the server sent after `accepted`.
fn receive(world: &mut World, client: &SimClient, accepted: &[u8]) -> Vec<u8> {
    let (mut scratch, mut received) = (Scratch::default(), Vec::new());
    while !client.is_ended() {
        make_parts(world, &mut scratch);
        run(world);
        received.extend(client.received());
        assert!(received.len() < 64 << 20, "the file does not end");
    }
    received.extend(client.received());
    received.strip_prefix(accepted).expect("the file follows the replies").to_vec()
}

/// The keys of a file with its header and mark, and the number of libraries.
fn items(sent: &[u8]) -> (Vec<Entry>, usize) {
    let head = sent.strip_prefix(b"$EOF:").unwrap();
    let (mark, rest) = head.split_at(MARK_BYTES);
    let file = rest.strip_prefix(b"\r\n").unwrap().strip_suffix(mark).unwrap();
    let mut reader = FileReader::new(file).unwrap();
    let (mut entries, mut libraries) = (Vec::new(), 0);
    while let Some(item) = reader.read_item().unwrap() {
        match item {
            Item::Entry(entry) => entries.push(*entry),
            Item::Function(_) => libraries += 1,
            Item::Fact { .. } | Item::ModuleData(_) => {}
        }
    }
    assert_eq!(reader.offset(), file.len() as u64);
    entries.sort_by(|one, other| (one.db, &one.key).cmp(&(other.db, &other.key)));
    (entries, libraries)
}

const LIBRARY: &str = "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', \
                       function() return 1 end)\"|";

#[test]
fn a_file_has_all_keys_and_functions() {
    let mut world = World::new(1, Plan::default());
    ask(&mut world, LIBRARY);
    let request =
        format!("SET text v|RPUSH list a b|SELECT 9|SET late v PX 50|SET key w PX {EXPIRES_MS}|");
    let replies = ask(&mut world, &request);
    assert_eq!(replies, "+OK\r\n:2\r\n+OK\r\n+OK\r\n+OK\r\n");
    world.advance(SECOND_NS);
    let client = sync(&mut world, REQUEST);
    let (entries, libraries) = items(&receive(&mut world, &client, ACCEPTED));
    assert_eq!(libraries, 1);
    let [list, text, key] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((list.db, &*list.key, list.expires_unix_ms), (0, &b"list"[..], None));
    assert_eq!(list.value, Value::List([&b"a"[..], b"b"].into_iter().collect()));
    assert_eq!((&*text.key, &text.value), (&b"text"[..], &Value::String(b"v".to_vec())));
    assert_eq!((key.db, &*key.key), (9, &b"key"[..]));
    assert!(key.expires_unix_ms.is_some_and(|at| at >= EXPIRES_MS), "{key:?}");

    let only_functions =
        b"REPLCONF rdb-filter-only functions rdb-only 1 capa eof\r\nPSYNC ? -1\r\n";
    let client = sync(&mut world, only_functions);
    let sent = receive(&mut world, &client, b"+OK\r\n+FULLRESYNC ");
    let start = sent.iter().position(|byte| *byte == b'$').unwrap();
    let (entries, libraries) = items(&sent[start..]);
    assert_eq!((entries.len(), libraries), (0, 1));
    let nothing = b"REPLCONF rdb-filter-only \"\" rdb-only 1 capa eof\r\nSYNC\r\n";
    let client = sync(&mut world, nothing);
    let (entries, libraries) = items(&receive(&mut world, &client, b"+OK\r\n"));
    assert_eq!((entries.len(), libraries), (0, 0));
}

#[test]
fn what_a_crash_could_undo_is_not_sent() {
    let mut world = World::new(2, Plan::default());
    run(&mut world);
    let writer = sync(&mut world, b"SET k v\r\n");
    let client = sync(&mut world, REQUEST);
    make_parts(&mut world, &mut Scratch::default());
    assert_eq!(client.received(), ACCEPTED, "the write is not on disk");
    run(&mut world);
    assert_eq!(writer.received(), b"+OK\r\n");
    let (entries, _) = items(&receive(&mut world, &client, b""));
    assert_eq!(entries.len(), 1);
}

/// Adds keys for a file of several parts.
fn fill(world: &mut World) {
    for number in 0..KEYS {
        let reply = ask(world, &format!("SETRANGE key{number} {} x|", VALUE_BYTES - 1));
        assert_eq!(reply, format!(":{VALUE_BYTES}\r\n"));
    }
}

#[test]
fn the_end_of_the_server_does_not_wait_for_a_file() {
    let mut world = World::new(4, Plan::default());
    fill(&mut world);
    let client = sync(&mut world, REQUEST);
    client.set_window(0);
    make_parts(&mut world, &mut Scratch::default());
    world.sim().drain();
    run_reactors(&mut world);
    assert!(client.is_closed());
}

#[test]
fn a_client_that_does_not_read_holds_little_memory_and_is_disconnected() {
    const OUTPUT_BYTES_MAX: usize = 2 << 20;
    let mut world = World::new(3, Plan::default());
    fill(&mut world);
    let mut scratch = Scratch::default();
    let clients: Vec<SimClient> = (0..TRANSFERS_MAX)
        .map(|_| {
            let client = sync(&mut world, REQUEST);
            client.set_window(0);
            client
        })
        .collect();
    for _ in 0..20 {
        make_parts(&mut world, &mut scratch);
    }
    for client in &clients {
        let info = world.sim().info(client.id()).unwrap();
        assert!(info.output_bytes > 0 && info.output_bytes <= OUTPUT_BYTES_MAX, "{info:?}");
    }
    let listed = ask(&mut world, "CLIENT LIST TYPE replica|");
    assert_eq!(listed.matches(" flags=S ").count(), TRANSFERS_MAX, "{listed}");
    let refused = sync(&mut world, REQUEST).received();
    assert!(refused.ends_with(b"-ERR too many clients receive RDB files\r\n"));
    // One reads, and gets the whole file; the others are disconnected.
    clients[0].set_window(usize::MAX);
    let (entries, _) = items(&receive(&mut world, &clients[0], b"+OK\r\n+OK\r\n"));
    assert_eq!(entries.len(), KEYS);
    for _ in 0..70 {
        world.advance(SECOND_NS);
        run(&mut world);
    }
    assert!(clients.iter().all(SimClient::is_closed));
    let client = sync(&mut world, REQUEST);
    let (entries, _) = items(&receive(&mut world, &client, ACCEPTED));
    assert_eq!(entries.len(), KEYS);
}

#[test]
fn a_file_has_the_form_that_its_fields_need() {
    let mut world = World::new(5, Plan::default());
    let file = |world: &mut World| {
        let client = sync(world, REQUEST);
        let sent = receive(world, &client, ACCEPTED);
        let header = sent[b"$EOF:".len() + MARK_BYTES + 2..][..9].to_vec();
        (header, items(&sent).0)
    };
    ask(&mut world, "HSET h a 1 b 2|TSADD series 1 a EXPIRE_IN 1000|");
    assert_eq!(file(&mut world).0, b"REDIS0010");
    assert_eq!(ask(&mut world, "HPEXPIRE h 1500 FIELDS 1 a|"), "*1\r\n:1\r\n");
    let (header, entries) = file(&mut world);
    assert_eq!(header, b"VALKEY080");
    let Value::Hash { expiries, .. } = &entries[0].value else { panic!("{entries:?}") };
    assert_eq!(expiries.len(), 1);
    // The field has expired.
    world.advance(2 * SECOND_NS);
    let (header, entries) = file(&mut world);
    assert_eq!(header, b"REDIS0010");
    let pairs = [&b"b"[..], b"2"].into_iter().collect();
    assert_eq!(entries[0].value, Value::Hash { pairs, expiries: Vec::new() });
}

#[test]
fn a_file_without_a_form_for_a_late_ttl_is_not_completed() {
    let mut world = World::new(6, Plan::default());
    fill(&mut world);
    let stripe = |key: &str| world.shared().keyspace.stripe_of_key(key.as_bytes());
    let names = (0..100).map(|number| format!("hash{number}"));
    let late = names.max_by_key(|name| stripe(name)).unwrap();
    ask(&mut world, &format!("HSET {late} f v|"));
    let client = sync(&mut world, REQUEST);
    make_parts(&mut world, &mut Scratch::default());
    let reply = ask(&mut world, &format!("HEXPIRE {late} 1000 FIELDS 1 f|"));
    assert_eq!(reply, "*1\r\n:1\r\n");
    let sent = receive(&mut world, &client, ACCEPTED);
    let mark = &sent[b"$EOF:".len()..][..MARK_BYTES];
    assert!(sent.len() > VALUE_BYTES, "it was given up in the middle");
    assert!(!sent.ends_with(mark));
    let client = sync(&mut world, REQUEST);
    let (entries, _) = items(&receive(&mut world, &client, ACCEPTED));
    assert_eq!(entries.len(), KEYS + 1);
}

#[test]
fn packed_and_large_collections_are_sent_and_time_series_left_out() {
    const LARGE: usize = 3_000;
    let mut world = World::new(4, Plan::default());
    let numbers = |word: &str| {
        (0..LARGE).fold(String::new(), |words, at| words + &format!(" {word}{at} {at}"))
    };
    for request in [
        "TSADD series 1 a 2 b|TSADD other 1 a|HSET hash f v|SADD set 1 2|ZADD zset 1 a|".to_owned(),
        "XADD stream 1-1 f v|".to_owned(),
        format!("HSET hash2{}|", numbers("f")),
        format!("SADD set2{}|", numbers("m")),
        format!("RPUSH list2{}|", numbers("v")),
    ] {
        let reply = ask(&mut world, &request);
        assert!(!reply.contains("-ERR"), "{reply}");
    }
    run(&mut world);
    let client = sync(&mut world, REQUEST);
    let (entries, _) = items(&receive(&mut world, &client, ACCEPTED));
    let keys: Vec<&[u8]> = entries.iter().map(|entry| &*entry.key).collect();
    let wanted: [&[u8]; 7] = [b"hash", b"hash2", b"list2", b"set", b"set2", b"stream", b"zset"];
    assert_eq!(keys, wanted);
    let lengths = entries.iter().map(|entry| match &entry.value {
        Value::Hash { pairs, .. } => pairs.len(),
        Value::List(items) | Value::Set(items) => items.len(),
        Value::ZSet { members, .. } => members.len(),
        Value::String(_) | Value::Stream(_) | Value::Module(_) => 0,
    });
    let pair = 2 * LARGE;
    assert_eq!(lengths.collect::<Vec<_>>(), [2, pair, pair, 2, pair, 0, 1]);
}
