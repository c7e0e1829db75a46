//! Files of other servers, and files made by hand for encodings that no server writes any more.
//! `crates/wire/tests/rdb/make.sh` makes the former.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::checksum::Checksum;
use super::*;

const REDIS_7: &[u8] = include_bytes!("../../tests/rdb/redis-7.0.rdb");
const REDIS_7_LARGE: &[u8] = include_bytes!("../../tests/rdb/redis-7.0-large.rdb");
const REDIS_7_LFU: &[u8] = include_bytes!("../../tests/rdb/redis-7.0-lfu.rdb");
const VALKEY_9: &[u8] = include_bytes!("../../tests/rdb/valkey-9.1.rdb");

#[derive(Debug, Default)]
struct Content {
    facts: BTreeMap<String, String>,
    functions: Vec<String>,
    modules: Vec<String>,
    entries: BTreeMap<(u64, String), Entry>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn read(data: &[u8]) -> Result<Content, RdbError> {
    let mut reader = FileReader::new(data)?;
    let mut content = Content::default();
    while let Some(item) = reader.read_item()? {
        match item {
            Item::Fact { name, value } => {
                content.facts.insert(text(&name), text(&value));
            }
            Item::Function(source) => content.functions.push(text(&source)),
            Item::ModuleData(name) => content.modules.push(name),
            Item::Entry(entry) => {
                content.entries.insert((entry.db, text(&entry.key)), *entry);
            }
        }
    }
    assert_eq!(reader.offset(), data.len() as u64);
    Ok(content)
}

fn long() -> String {
    "long ".repeat(60)
}

fn strings(items: &[&str]) -> Strings {
    items.iter().map(|item| item.as_bytes()).collect()
}

fn sorted(items: &Strings) -> Vec<String> {
    let mut items: Vec<String> = items.iter().map(text).collect();
    items.sort();
    items
}

/// Pairs in the order of their fields.
fn map(pairs: &Strings) -> BTreeMap<String, String> {
    let items: Vec<String> = pairs.iter().map(text).collect();
    items.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// The values that the script writes on every server.
fn check_values(content: &Content) {
    let value = |key: &str| &content.entries[&(0, key.to_owned())].value;
    let string = |key: &str| match value(key) {
        Value::String(bytes) => text(bytes),
        other => panic!("{other:?}"),
    };
    for (key, expected) in [
        ("raw", "two words"),
        ("int8", "-7"),
        ("int16", "3000"),
        ("int32", "2000000"),
        ("int64", "9000000000"),
        ("compressed", &long()),
        ("expires", "later"),
    ] {
        assert_eq!(string(key), expected, "{key}");
    }
    assert_eq!(*value("list"), Value::List(strings(&["a", "1", "-70000", &long(), "b"])));
    let Value::Hash { pairs, .. } = value("hash") else { panic!("{:?}", value("hash")) };
    let pair = |field: &str, value: &str| (field.to_owned(), value.to_owned());
    let expected = BTreeMap::from([pair("f", "v"), pair("2", "3"), pair("g", &long())]);
    assert_eq!(map(pairs), expected);
    let Value::Hash { pairs, .. } = value("small") else { panic!("{:?}", value("small")) };
    assert_eq!(map(pairs), BTreeMap::from([pair("f", "v"), pair("2", "3")]));
    let Value::Set(members) = value("integers") else { panic!("{:?}", value("integers")) };
    assert_eq!(sorted(members), ["-5", "1", "70000"]);
    let Value::Set(members) = value("members") else { panic!("{:?}", value("members")) };
    assert_eq!(sorted(members), ["1", "a", "b"]);
    let Value::ZSet { members, scores } = value("zset") else { panic!("{:?}", value("zset")) };
    let mut scored: Vec<(f64, String)> =
        scores.iter().copied().zip(members.iter().map(text)).collect();
    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    let expected = [(f64::NEG_INFINITY, "b"), (1.0, "a"), (2.5, "d"), (f64::INFINITY, "c")];
    assert!(scored.iter().map(|(score, member)| (*score, member.as_str())).eq(expected));
    check_stream(value("stream"));
    assert_eq!(content.entries.len(), 15);
    let expiring: Vec<_> = content.entries.values().filter_map(|e| e.expires_unix_ms).collect();
    assert_eq!(expiring, [4_102_444_800_123]);
    let Entry { value, .. } = &content.entries[&(9, "elsewhere".to_owned())];
    assert_eq!(*value, Value::String(b"1".to_vec()));
}

fn check_stream(value: &Value) {
    let Value::Stream(stream) = value else { panic!("{value:?}") };
    let id = |ms, sequence| StreamId { ms, sequence };
    let entries: Vec<_> = stream
        .entries
        .iter()
        .map(|entry| {
            let pairs: Vec<_> =
                entry.pairs().map(|(f, v)| format!("{}={}", text(f), text(v))).collect();
            (entry.id, pairs.join(" "))
        })
        .collect();
    let expected = [(id(5, 1), "f=v g=w"), (id(5, 2), "f=v2 g=w2"), (id(7, 0), "f=v3 g=w3")];
    assert!(entries.iter().map(|(id, pairs)| (*id, pairs.as_str())).eq(expected), "{entries:?}");
    assert_eq!((stream.last_id, stream.max_deleted_id), (id(7, 0), id(6, 0)));
    assert_eq!(stream.entries_added, 4);
    let [idle, readers] = &stream.groups[..] else { panic!("{:?}", stream.groups) };
    assert_eq!((text(&idle.name).as_str(), idle.last_id), ("idle", id(5, 2)));
    assert!(idle.consumers.is_empty());
    assert_eq!((text(&readers.name).as_str(), readers.last_id), ("readers", id(7, 0)));
    let names: Vec<_> = readers.consumers.iter().map(|consumer| text(&consumer.name)).collect();
    assert_eq!(names, ["one", "two"]);
    let pending: Vec<_> = readers.pending.iter().map(|it| (it.id, it.consumer)).collect();
    assert_eq!(pending, [(id(5, 2), 0), (id(7, 0), 1)]);
    assert!(readers.pending.iter().all(|it| it.deliveries == 1));
}

#[test]
fn files_of_redis_and_valkey_are_read() {
    for (data, server, version) in [
        (REDIS_7, "redis-ver", 10),
        (REDIS_7_LARGE, "redis-ver", 10),
        (REDIS_7_LFU, "redis-ver", 10),
        (VALKEY_9, "valkey-ver", 80),
    ] {
        assert_eq!(FileReader::new(data).unwrap().version().number(), version);
        let content = read(data).unwrap();
        assert!(content.facts.contains_key(server), "{:?}", content.facts);
        check_values(&content);
    }
    let functions = read(REDIS_7).unwrap().functions;
    assert_eq!(functions.len(), 1);
    assert!(functions[0].starts_with("#!lua name=lib\n"), "{functions:?}");
}

#[test]
fn idle_times_frequencies_and_expiries_of_fields_are_read() {
    let lru = read(REDIS_7_LARGE).unwrap();
    assert!(lru.entries.values().all(|entry| entry.idle_s.is_some()));
    let lfu = read(REDIS_7_LFU).unwrap();
    assert!(lfu.entries.values().all(|entry| entry.frequency.is_some()));
    let valkey = read(VALKEY_9).unwrap();
    let hash = &valkey.entries[&(0, "hash".to_owned())].value;
    let Value::Hash { pairs, expiries } = hash else { panic!("{hash:?}") };
    let [(pair, at)] = expiries[..] else { panic!("{expiries:?}") };
    assert_eq!((pairs.get(2 * pair), at), (&b"f"[..], 4_102_444_800_000));
}

/// A file of one key, `k`.
fn file(magic: &str, kind: u8, value: &[u8]) -> Vec<u8> {
    let mut file = [magic.as_bytes(), &[kind], b"\x01k", value, b"\xff"].concat();
    let checksum = Checksum::of(&file);
    file.extend_from_slice(&checksum.to_le_bytes());
    file
}

fn string(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_string(&mut out, content);
    out
}

fn with_len(content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(4 + content.len()).unwrap();
    [&len.to_le_bytes(), content].concat()
}

#[track_caller]
fn check(magic: &str, kind: u8, value: &[u8], expected: &Value) {
    let data = file(magic, kind, value);
    let content = read(&data).unwrap();
    assert_eq!(content.entries[&(0, "k".to_owned())].value, *expected);
    for cut in 0..data.len() {
        assert!(read(&data[..cut]).is_err(), "cut at {cut}");
    }
    for at in 9..data.len() {
        let mut bad = data.clone();
        bad[at] ^= 0x20;
        assert!(read(&bad).is_err(), "byte {at}");
    }
}

fn hash(pairs: &[&str], expiries: &[(usize, u64)]) -> Value {
    Value::Hash { pairs: strings(pairs), expiries: expiries.to_vec() }
}

#[test]
fn encodings_of_older_servers_are_read() {
    let ziplist = with_len(b"\x0d\0\0\0\x02\0\x00\x01a\x03\xf3\xff");
    let packed = string(&ziplist);
    let list = Value::List(strings(&["a", "2"]));
    check("REDIS0006", 10, &packed, &list);
    check("REDIS0006", 13, &packed, &hash(&["a", "2"], &[]));
    let zset = Value::ZSet { members: strings(&["a"]), scores: vec![2.0] };
    check("REDIS0006", 12, &packed, &zset);
    let quicklist = [&b"\x02"[..], &packed, &packed].concat();
    check("REDIS0007", 14, &quicklist, &Value::List(strings(&["a", "2", "a", "2"])));
    let zipmap = string(b"\x01\x01a\x01\x00b\xff");
    check("REDIS0005", 9, &zipmap, &hash(&["a", "b"], &[]));
    let scores = b"\x03\x01a\x032.5\x01b\xfe\x01c\xff";
    let infinite = vec![2.5, f64::INFINITY, f64::NEG_INFINITY];
    let zset = Value::ZSet { members: strings(&["a", "b", "c"]), scores: infinite };
    check("REDIS0005", 3, scores, &zset);
}

#[test]
fn a_file_without_checksum_and_expiries_in_seconds_are_read() {
    let data = b"REDIS0003\xfe\x02\xfd\x05\0\0\0\x00\x01k\x01v\xff";
    let content = read(data).unwrap();
    let entry = &content.entries[&(2, "k".to_owned())];
    assert_eq!(entry.expires_unix_ms, Some(5_000));
}

#[test]
fn expiries_of_fields_of_redis_7_4_are_read() {
    let expected = hash(&["f", "v", "g", "w"], &[(1, 1_002)]);
    let earliest = 1_000u64.to_le_bytes();
    let plain = [&earliest[..], b"\x02\x00\x01f\x01v\x03\x01g\x01w"].concat();
    check("REDIS0012", 24, &plain, &expected);
    let listpack =
        with_len(b"\x06\0\x81f\x02\x81v\x02\x00\x01\x81g\x02\x81w\x02\xf1\xea\x03\x03\xff");
    let packed = [&earliest[..], &string(&listpack)].concat();
    check("REDIS0012", 25, &packed, &expected);
    check("REDIS0012", 23, &string(&listpack), &expected);
    check("REDIS0012", 22, b"\x02\x00\x01f\x01v\x43\xea\x01g\x01w", &expected);
}

#[test]
fn values_of_modules_are_skipped_and_named() {
    let mut id = Vec::new();
    // Nine letters `a`, version 1.
    let number = (0..9).fold(0u64, |id, _| id << 6 | 0b1_1010) << 10 | 1;
    id.push(0x81);
    id.extend_from_slice(&number.to_be_bytes());
    let parts = b"\x01\x05\x02\x06\x03\0\0\0\0\x04\0\0\0\0\0\0\0\0\x05\x02hi\x00";
    check("REDIS0009", 7, &[&id[..], parts].concat(), &Value::Module("aaaaaaaaa".to_owned()));
    let file = [b"REDIS0004\xf7", &id[..], b"\x02\x02", parts, b"\xff"].concat();
    assert_eq!(read(&file).unwrap().modules, ["aaaaaaaaa"]);
}

#[track_caller]
fn check_refused(data: &[u8], expected: &str) {
    assert_eq!(read(data).unwrap_err().to_string(), expected);
}

#[test]
fn refusals_say_what_is_wrong_and_where() {
    check_refused(b"", "the file does not begin with REDIS or VALKEY and a version");
    check_refused(
        b"*1\r\n$4\r\nPING",
        "the file does not begin with REDIS or VALKEY and a version",
    );
    check_refused(b"REDIS0013", "REDIS version 13 of the format is unknown");
    check_refused(b"REDIS0080", "REDIS version 80 of the format is unknown");
    check_refused(b"VALKEY011", "VALKEY version 11 of the format is unknown");
    check_refused(b"REDIS0011", "the data ends at offset 9, in the middle of a value");
    let newer = "unsupported at offset 12: a value of type 27, which a newer server wrote";
    check_refused(b"REDIS0011\x1b\x01k", newer);
    let other = "of a newer server, or of another product such as Redis Enterprise";
    check_refused(b"REDIS0011\xf2", &format!("unsupported at offset 10: operation 242 {other}"));
    check_refused(
        b"REDIS0011\x05\x01k\x01\x01m\x00\x00\x00\x00\x00\x00\xf8\x7f",
        "malformed at offset 23: a score that is NaN",
    );
    let mut damaged = REDIS_7.to_vec();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    check_refused(&damaged, "wrong checksum: the file is damaged");
}

#[test]
fn written_files_have_these_bytes() {
    let mut encoder = FileEncoder::new(Version::WRITTEN);
    encoder.put_fact("a", "b");
    put_string(encoder.put_key(0, b"k", None, Written::String), b"v");
    let expires = Some(0x0102);
    put_strings(encoder.put_key(3, b"l", expires, Written::List), 1, [&b"x"[..]].into_iter());
    put_scored(encoder.put_key(3, b"z", None, Written::ZSet), 1, [(1.5, &b"m"[..])].into_iter());
    let mut file = encoder.take();
    assert_eq!(encoder.pending_bytes(), 0);
    let expected = b"REDIS0010\xfa\x01a\x01b\xfe\x00\x00\x01k\x01v\
        \xfe\x03\xfc\x02\x01\0\0\0\0\0\0\x01\x01l\x01\x01x\
        \x05\x01z\x01\x01m\0\0\0\0\0\0\xf8\x3f";
    assert_eq!(file, expected);
    file.extend(encoder.finish());
    assert_eq!(read(&file).unwrap().entries.len(), 3);
}

#[test]
fn a_hash_with_times_has_these_bytes() {
    let fields = [(&b"f"[..], &b"v"[..], Some(0x0102)), (b"g", b"w", None)];
    let mut encoder = FileEncoder::new(Version::WRITTEN_WITH_TIMES);
    let out = encoder.put_key(0, b"k", None, Written::TimedHash);
    put_timed_pairs(out, 2, fields.into_iter());
    let mut file = encoder.take();
    let expected = b"VALKEY080\xfe\x00\x16\x01k\x02\x01f\x01v\x02\x01\0\0\0\0\0\0\
        \x01g\x01w\xff\xff\xff\xff\xff\xff\xff\xff";
    assert_eq!(file, expected);
    file.extend(encoder.finish());
    let value = &read(&file).unwrap().entries[&(0, "k".to_owned())].value;
    assert_eq!(value, &hash(&["f", "v", "g", "w"], &[(0, 0x0102)]));
    assert_eq!(Written::TimedHash.version().number(), 80);
}

#[test]
fn long_entries_of_streams_come_back() {
    let entries = (1..300).map(|number| {
        let fields = if number % 7 == 0 { strings(&["f"]) } else { strings(&["f", "g"]) };
        // Around the lengths at which a listpack has longer lengths.
        let len = [1, 60, 64, 4090, 4096, 16_376, 16_377, 16_378, 16_379][number % 9];
        let value = "x".repeat(len);
        let values = fields.iter().map(|_| value.as_bytes()).collect();
        let id = StreamId { ms: 1 << 40, sequence: number as u64 * 40_000 };
        StreamEntry { id, fields: fields.into(), values }
    });
    let last_id = StreamId { ms: u64::MAX, sequence: 0 };
    let stream = Stream {
        entries: entries.collect(),
        last_id,
        max_deleted_id: StreamId::default(),
        entries_added: 1000,
        groups: Vec::new(),
    };
    let mut bytes = vec![Written::Stream as u8];
    put_stream(&mut bytes, &stream);
    end_payload(&mut bytes, Version::WRITTEN);
    let decoded = decode_payload(&bytes, Limits::NONE).unwrap();
    assert_eq!(decoded, Value::Stream(Box::new(stream)));
}

#[test]
fn fields_that_entries_share_count_for_each_entry() {
    let fields = std::sync::Arc::new(strings(&["a field with a long name"]));
    let entries = (1..=100).map(|sequence| StreamEntry {
        id: StreamId { ms: 1, sequence },
        fields: std::sync::Arc::clone(&fields),
        values: strings(&["v"]),
    });
    let stream = Stream {
        entries: entries.collect(),
        last_id: StreamId { ms: 1, sequence: 100 },
        max_deleted_id: StreamId::default(),
        entries_added: 100,
        groups: Vec::new(),
    };
    let mut bytes = vec![Written::Stream as u8];
    put_stream(&mut bytes, &stream);
    end_payload(&mut bytes, Version::WRITTEN);
    assert!(bytes.len() < 1_500, "{}", bytes.len());
    let decode = |bytes_max| {
        decode_payload(&bytes, Limits { bytes_max, elements_max: 1000, ..Limits::NONE })
    };
    assert!(decode(32_000).is_ok());
    // Enough for the entries and their values.
    let error = decode(26_000).unwrap_err();
    assert!(matches!(error, PayloadError::Value(RdbError::TooLarge { .. })), "{error}");
}

fn group(name: &str, last_ms: u64, consumers: &[&str]) -> Group {
    let consumer = |name: &&str| Consumer {
        name: name.as_bytes().to_vec(),
        seen_unix_ms: 7,
        active_unix_ms: None,
    };
    Group {
        name: name.as_bytes().to_vec(),
        last_id: StreamId { ms: last_ms, sequence: 0 },
        entries_read: None,
        consumers: consumers.iter().map(consumer).collect(),
        pending: Vec::new(),
    }
}

/// Three entries, of the milliseconds 2, 3 and 4.
fn stream(groups: Vec<Group>) -> Stream {
    let entries = (2..5).map(|ms| StreamEntry {
        id: StreamId { ms, sequence: 0 },
        fields: strings(&["f"]).into(),
        values: strings(&["v"]),
    });
    Stream {
        entries: entries.collect(),
        last_id: StreamId { ms: 4, sequence: 0 },
        max_deleted_id: StreamId::default(),
        entries_added: 3,
        groups,
    }
}

fn whole(stream: &Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_stream(&mut bytes, stream);
    bytes
}

/// Redis before 7.0 did not write it.
#[test]
fn what_a_group_of_an_old_stream_has_read_is_estimated() {
    let mut bytes = whole(&stream(Vec::new()));
    // The first id, the greatest deleted one, the number of added entries and that of groups.
    bytes.truncate(bytes.len() - 6);
    bytes.push(5);
    for last_ms in [1, 2, 3, 4, 5] {
        let name = format!("g{last_ms}");
        put_string(&mut bytes, name.as_bytes());
        bytes.extend_from_slice(&[last_ms, 0, 0, 0]);
    }
    let content = read(&file("REDIS0009", 15, &bytes)).unwrap();
    let Value::Stream(stream) = &content.entries[&(0, "k".to_owned())].value else { panic!() };
    let read: Vec<_> = stream.groups.iter().map(|group| group.entries_read).collect();
    assert_eq!(read, [Some(0), Some(1), None, Some(3), None]);
}

#[test]
fn corrupt_values_that_redis_refuses_are_refused() {
    let twice = |groups: &[Group]| whole(&stream(groups.to_vec()));
    for (kind, value, expected) in [
        (Written::Stream as u8, twice(&[group("g", 4, &["c", "d", "c"])]), "two consumers"),
        (Written::Stream as u8, twice(&[group("g", 4, &[]), group("g", 4, &[])]), "two groups"),
        // A list with one part for one element, which is empty.
        (18, b"\x01\x01\x00".to_vec(), "an empty part"),
        // The elements a and b; the second one has another length of the one before.
        (
            14,
            b"\x01\x13\x13\0\0\0\x0e\0\0\0\x02\0\0\x02\x61\0\x02\x02\x62\0\xff".to_vec(),
            "other lengths",
        ),
    ] {
        let error = read(&file("REDIS0010", kind, &value)).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let sound = twice(&[group("g", 4, &["c", "d"]), group("h", 4, &["c"])]);
    assert!(read(&file("REDIS0010", Written::Stream as u8, &sound)).is_ok());
}

#[test]
fn files_of_other_servers_are_the_same_after_a_rewrite() {
    for data in [REDIS_7, REDIS_7_LARGE, REDIS_7_LFU, VALKEY_9] {
        check::check_file(data);
    }
}

/// Bytes that begin as a file does and have plausible types and operations.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop_oneof![4 => 0u8..26, 2 => any::<u8>(), 1 => 240u8..=255];
    proptest::collection::vec(byte(), 0..200)
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in content(), valkey in any::<bool>()) {
        let header: &[u8] = if valkey { b"VALKEY080" } else { b"REDIS0003" };
        check::check_file(&[header, &bytes].concat());
        check::check_payload(&bytes);
    }

    #[test]
    fn damaged_files_are_read_or_refused(
        at in 9usize..600, byte in any::<u8>(), which in 0usize..4,
    ) {
        let mut data = [REDIS_7, REDIS_7_LARGE, REDIS_7_LFU, VALKEY_9][which].to_vec();
        let at = at.min(data.len() - 9);
        data[at] = byte;
        // A checksum of zero is not checked, so the damage is found, or is another value.
        let end = data.len() - 8;
        data[end..].fill(0);
        check::check_file(&data);
    }

    #[test]
    fn values_come_back(
        items in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 0..50),
        long in 16_380usize..16_390,
    ) {
        let mut bytes = vec![Written::List as u8];
        let long = vec![7; long];
        let all: Vec<&[u8]> = items.iter().map(Vec::as_slice).chain([&long[..]]).collect();
        put_strings(&mut bytes, all.len(), all.iter().copied());
        end_payload(&mut bytes, Version::WRITTEN);
        let decoded = decode_payload(&bytes, Limits::NONE).unwrap();
        prop_assert_eq!(decoded, Value::List(all.into_iter().collect()));
    }
}
