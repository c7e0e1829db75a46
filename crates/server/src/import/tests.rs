//! Imports of files into temporary directories.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use base::time::UnixMs;
use store::{Keyspace, Value};
use wire::rdb::{FileEncoder, Item, Version, Written, put_string, put_timed_pairs};

use super::*;
use crate::engine::server_state::params;
use crate::recovery;

const REDIS_7: &[u8] = include_bytes!("../../../wire/tests/rdb/redis-7.0.rdb");

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder =
            std::env::temp_dir().join(format!("myriad-import-{}-{name}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn import(&self, from: &Path, losses: Losses) -> (anyhow::Result<()>, String) {
        let mut out = Vec::new();
        let outcome = run(from, &self.0.join("data"), losses, &mut out);
        (outcome, String::from_utf8(out).unwrap())
    }

    /// What a server finds in the new directory.
    fn recover(&self) -> Keyspace {
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::open_buffered(self.0.join("data")).unwrap());
        recovery::recover(&disk, &Settings::default(), 1, UnixMs(1), 5).unwrap().keyspace
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Strings as they are, collections as numbers of elements.
fn shown(keyspace: &Keyspace, db: u8, name: &str) -> String {
    let params = params(&Settings::default(), UnixMs(1), 5, 5);
    let key = keyspace.key(name.as_bytes());
    match keyspace.lock_one(key.hash, &params).get(db, key) {
        None => "nothing".to_owned(),
        Some(Value::String(bytes)) => bytes.escape_ascii().to_string(),
        Some(other) => format!("{} of {}", other.kind().name(), other.len()),
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut bytes = Vec::new();
    wire::resp::encode_request(&words, &mut bytes);
    bytes
}

/// One string key, with what a server would do with it.
fn rdb(key: &str, expires_unix_ms: Option<u64>) -> Vec<u8> {
    let mut encoder = FileEncoder::new(Version::WRITTEN);
    put_string(encoder.put_key(3, key.as_bytes(), expires_unix_ms, Written::String), b"value");
    encoder.finish()
}

#[test]
fn an_rdb_file_becomes_a_data_directory_without_what_cannot_be_held() {
    let folder = Folder::new("rdb");
    let mut lossy = FileEncoder::new(Version::WRITTEN);
    put_string(lossy.put_key(20, b"k", None, Written::String), b"value");
    let lossy = folder.file("lossy.rdb", &lossy.finish());
    let (outcome, text) = folder.import(&lossy, Losses::Refuse);
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("no directory was made"), "{error}");
    assert!(text.contains("key of a database above 15"), "{text}");
    assert_eq!(folder.names(), ["lossy.rdb"]);
    fs::remove_file(lossy).unwrap();

    let from = folder.file("dump.rdb", REDIS_7);
    let (outcome, text) = folder.import(&from, Losses::Refuse);
    outcome.unwrap();
    assert!(text.contains("hash 2"), "{text}");
    assert!(text.contains("1 libraries of functions were loaded"), "{text}");
    assert!(text.contains("database 9: 1 keys (string 1)"), "{text}");
    assert_eq!(folder.names(), ["data", "dump.rdb"]);
    assert_eq!(fs::metadata(folder.0.join("data")).unwrap().mode() & 0o777, 0o700);
    let data = folder.recover();
    for (db, key, expected) in [
        (0, "int8", "-7"),
        (0, "expires", "later"),
        (0, "list", "list of 5"),
        (0, "hash", "hash of 3"),
        (0, "integers", "set of 3"),
        (0, "zset", "zset of 4"),
        (9, "elsewhere", "1"),
        (0, "elsewhere", "nothing"),
    ] {
        assert_eq!(shown(&data, db, key), expected, "{key}");
    }
    let params = params(&Settings::default(), UnixMs(1), 5, 5);
    let key = data.key(b"expires");
    let expiry = data.lock_one(key.hash, &params).expiry(0, key);
    assert_eq!(expiry, Some(Some(UnixMs(4_102_444_800_123))));
}

fn libraries(file: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = wire::rdb::FileReader::new(file).unwrap();
    let items = std::iter::from_fn(|| reader.read_item().unwrap());
    let sources = items.filter_map(|item| match item {
        Item::Function(source) => Some(source),
        _ => None,
    });
    sources.collect()
}

#[test]
fn an_export_of_an_import_has_the_same_keys_and_functions() {
    let folder = Folder::new("export");
    let from = folder.file("dump.rdb", REDIS_7);
    folder.import(&from, Losses::Accept).0.unwrap();
    let (data, to) = (folder.0.join("data"), folder.0.join("out.rdb"));
    let mut out = Vec::new();
    crate::export::export(&data, &to, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("database 9: 1 keys of type string"), "{text}");
    let exported = fs::read(&to).unwrap();
    let entries = |file: &[u8]| {
        let mut reader = wire::rdb::FileReader::new(file).unwrap();
        let mut entries = std::collections::BTreeMap::new();
        while let Some(item) = reader.read_item().unwrap() {
            if let wire::rdb::Item::Entry(entry) = item {
                let value = match &entry.value {
                    // Without their order, which differs.
                    wire::rdb::Value::Set(members) => {
                        let mut members: Vec<Vec<u8>> =
                            members.iter().map(<[u8]>::to_vec).collect();
                        members.sort();
                        format!("{members:?}")
                    }
                    wire::rdb::Value::Hash { pairs, .. } => format!("hash of {}", pairs.len()),
                    other => format!("{other:?}"),
                };
                entries.insert((entry.db, entry.key), (value, entry.expires_unix_ms));
            }
        }
        entries
    };
    assert_eq!(entries(&exported), entries(REDIS_7));
    assert_eq!(libraries(&exported), libraries(REDIS_7));
    assert_eq!(libraries(&exported).len(), 1);
    let error = crate::export::export(&data, &to, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("could not write"), "{error}");
    assert_eq!(fs::read(&to).unwrap(), exported, "an existing file stays");
}

#[test]
fn expired_keys_are_left_out() {
    let folder = Folder::new("expired");
    let from = folder.file("dump.rdb", &rdb("k", Some(1000)));
    let (outcome, text) = folder.import(&from, Losses::Refuse);
    outcome.unwrap();
    assert!(text.contains("1 keys had expired"), "{text}");
    assert_eq!(shown(&folder.recover(), 3, "k"), "nothing");
}

/// The past of a server in which nothing had expired that its commands use, and what it has then.
fn extended_commands() -> Vec<u8> {
    let later = "4102444800123";
    let commands: &[&[&str]] = &[
        &["SELECT", "3"],
        &["HSET", "session", "user", "ann", "cart", "3"],
        &["PEXPIREAT", "session", "1000"],
        &["HSET", "session", "page", "/x"],
        &["PEXPIREAT", "session", later],
        &["SET", "count", "5", "PXAT", "1000"],
        &["INCR", "count"],
        &["PEXPIREAT", "count", later],
        &["SET", "kept", "v", "PXAT", "1000"],
        &["PERSIST", "kept"],
        &["SET", "old", "v", "PXAT", "1000"],
        &["RENAME", "old", "new"],
        &["COPY", "new", "copied"],
        &["PERSIST", "copied"],
        &["HSET", "fields", "a", "1", "b", "2", "c", "3"],
        &["HPEXPIREAT", "fields", "1000", "FIELDS", "2", "a", "b"],
        &["HPERSIST", "fields", "FIELDS", "1", "a"],
        &["SET", "gone", "v", "PXAT", "1000"],
        &["APPEND", "base", "2"],
        &["PEXPIREAT", "base", later],
    ];
    commands.iter().flat_map(|words| command(words)).collect()
}

#[track_caller]
fn check_extended(folder: &Folder, from: &Path, base: &str) {
    let (outcome, text) = folder.import(from, Losses::Refuse);
    outcome.unwrap();
    // `new`, `gone`
    assert!(text.contains("2 keys had expired"), "{text}");
    assert!(text.contains("database 3: 6 keys at the end"), "{text}");
    let data = folder.recover();
    for (key, expected) in [
        ("session", "hash of 3"),
        ("count", "6"),
        ("kept", "v"),
        ("copied", "v"),
        ("base", base),
        ("new", "nothing"),
        ("gone", "nothing"),
    ] {
        assert_eq!(shown(&data, 3, key), expected, "{key}");
    }
    let params = params(&Settings::default(), UnixMs(2000), 5, 5);
    let key = data.key(b"fields");
    let locked = data.lock_one(key.hash, &params);
    let hash = locked.hash(3, key).unwrap().unwrap();
    let found = [b"a", b"b", b"c"].map(|field| hash.get(field).is_some());
    assert_eq!(found, [true, false, true]);
}

/// Commands may extend, persist, rename and copy what has expired since: in each form of a file.
#[test]
fn nothing_expires_before_the_end_of_a_history() {
    let folder = Folder::new("pure");
    let from = folder.file("appendonly.aof", &extended_commands());
    check_extended(&folder, &from, "2");

    let folder = Folder::new("preamble");
    let file = [rdb("base", Some(1000)), extended_commands()].concat();
    let from = folder.file("appendonly.aof", &file);
    check_extended(&folder, &from, "value2");

    let folder = Folder::new("base");
    folder.file("dir/a.manifest", b"file base.rdb seq 1 type b\nfile a.aof seq 1 type i\n");
    folder.file("dir/base.rdb", &rdb("base", Some(1000)));
    folder.file("dir/a.aof", &extended_commands());
    check_extended(&folder, &folder.0.join("dir"), "value2");

    let folder = Folder::new("base-of-commands");
    folder.file("dir/a.manifest", b"file base.aof seq 1 type b\nfile a.aof seq 1 type i\n");
    let base = [&["SELECT", "3"][..], &["SET", "base", "value", "PXAT", "1000"]];
    folder.file("dir/base.aof", &base.map(command).concat());
    folder.file("dir/a.aof", &extended_commands());
    check_extended(&folder, &folder.0.join("dir"), "value2");
}

#[test]
fn what_follows_a_complete_file_is_reported() {
    for (index, after) in
        [&b"\n"[..], b"\r\n", &[0; 100], &[b'f'; 40], b"REDIS0010", b"$5\r\nhello\r\n"]
            .into_iter()
            .enumerate()
    {
        let folder = Folder::new(&format!("after-{index}"));
        let from = folder.file("dump.rdb", &[&rdb("k", None), after].concat());
        let (outcome, text) = folder.import(&from, Losses::Refuse);
        outcome.unwrap();
        let expected = format!("dump.rdb: {} bytes after its end were left out", after.len());
        assert!(text.contains(&expected), "{text}");
        assert_eq!(shown(&folder.recover(), 3, "k"), "value");
    }
}

/// An append-only file whose RDB part is followed by what a power cut has left.
#[test]
fn commands_after_damaged_bytes_are_reported_as_lost() {
    let command = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nnew\r\n";
    let long = [vec![0; 200_000], command.to_vec()].concat();
    for (index, after) in [[&b"\n"[..], command].concat(), [&[0; 100][..], command].concat(), long]
        .into_iter()
        .enumerate()
    {
        let folder = Folder::new(&format!("damaged-{index}"));
        let from = folder.file("appendonly.aof", &[rdb("k", None), after.clone()].concat());
        let (outcome, text) = folder.import(&from, Losses::Refuse);
        assert!(outcome.is_err(), "{text}");
        let expected = format!("appendonly.aof: {} bytes after its RDB part", after.len());
        assert!(text.contains(&expected), "{text}");
        let (outcome, _) = folder.import(&from, Losses::Accept);
        outcome.unwrap();
        assert_eq!(shown(&folder.recover(), 3, "k"), "value");
    }
}

#[test]
fn fields_keep_their_expiry_in_an_import_and_an_export() {
    let folder = Folder::new("fields");
    let mut encoder = FileEncoder::new(Version::WRITTEN_WITH_TIMES);
    let later = 4_102_444_800_000;
    let fields = [
        (&b"gone"[..], &b"v"[..], Some(1000)),
        (b"later", b"v", Some(later)),
        (b"never", b"v", None),
    ];
    let hash = encoder.put_key(0, b"h", None, Written::TimedHash);
    put_timed_pairs(hash, 3, fields.into_iter());
    let dead = encoder.put_key(0, b"dead", None, Written::TimedHash);
    put_timed_pairs(dead, 1, fields.into_iter().take(1));
    let from = folder.file("valkey.rdb", &encoder.finish());
    let (outcome, text) = folder.import(&from, Losses::Refuse);
    outcome.unwrap();
    assert!(text.contains("1 keys had expired"), "{text}");
    let data = folder.recover();
    let params = params(&Settings::default(), UnixMs(1), 5, 5);
    let key = data.key(b"h");
    let expiries = {
        let locked = data.lock_one(key.hash, &params);
        let hash = locked.hash(0, key).unwrap().unwrap();
        fields.map(|(field, ..)| hash.expiry(field))
    };
    assert_eq!(expiries, [None, Some(Some(UnixMs(later))), Some(None)]);
    let to = folder.0.join("out.rdb");
    crate::export::export(&folder.0.join("data"), &to, &mut Vec::new()).unwrap();
    let exported = fs::read(&to).unwrap();
    assert!(exported.starts_with(b"VALKEY080"));
    let mut reader = wire::rdb::FileReader::new(&exported[..]).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.read_item().unwrap() {
        if let wire::rdb::Item::Entry(entry) = item
            && let wire::rdb::Value::Hash { pairs, expiries } = entry.value
        {
            found.push((entry.key, pairs.len(), expiries.into_iter().map(|(_, at)| at).collect()));
        }
    }
    assert_eq!(found, [(b"h".to_vec(), 4, vec![later])]);
}

#[test]
fn the_files_of_a_manifest_are_executed_in_order() {
    let folder = Folder::new("manifest");
    let manifest = b"file \"a base.rdb\" seq 2 type b\nfile a.2.aof seq 2 type i\n\
                     file a.1.aof seq 1 type i\nfile old.rdb seq 1 type h\n";
    folder.file("dir/a.manifest", manifest);
    folder.file("dir/a base.rdb", &rdb("base", None));
    let first = [command(&["SELECT", "3"]), command(&["APPEND", "base", "1"])].concat();
    folder.file("dir/a.1.aof", &first);
    let last = [
        command(&["SELECT", "3"]),
        command(&["APPEND", "base", "2"]),
        command(&["MULTI"]),
        command(&["RPUSH", "l", "a", "b"]),
        command(&["EXEC"]),
        command(&["SELECT", "99"]),
        command(&["SET", "lost", "1"]),
        command(&["SELECT", "0"]),
        command(&["GRAPH.QUERY", "x", "y"]),
        command(&["LPUSH", "s", "a"]),
        command(&["INCR", "s"]),
        command(&["MULTI"]),
        command(&["SET", "half", "1"]),
        command(&["EXEC"])[..10].to_vec(),
    ];
    folder.file("dir/a.2.aof", &last.concat());
    let (outcome, text) = folder.import(&folder.0.join("dir"), Losses::Accept);
    outcome.unwrap();
    for part in [
        "which was left out",
        "a transaction without an end was left out",
        "database 3: 2 keys at the end",
        "1 x GRAPH.QUERY: ERR unknown command 'GRAPH.QUERY'; first: offset",
        "1 x INCR: WRONGTYPE",
        "2 x command for a database above 15",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let data = folder.recover();
    for (db, key, expected) in [
        (3, "base", "value12"),
        (3, "l", "list of 2"),
        (0, "s", "list of 1"),
        (0, "lost", "nothing"),
        (0, "half", "nothing"),
    ] {
        assert_eq!(shown(&data, db, key), expected, "{key}");
    }
}

#[track_caller]
fn check_refused(name: &str, content: &[u8], expected: &str) {
    let folder = Folder::new(name);
    let from = folder.file(name, content);
    let (outcome, _) = folder.import(&from, Losses::Accept);
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(error.contains(expected), "{error}");
    assert_eq!(folder.names(), [name]);
}

#[test]
fn damaged_files_leave_no_directory() {
    check_refused("cut.rdb", &REDIS_7[..300], "in the middle of a value");
    let mut flipped = REDIS_7.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    check_refused("flipped.rdb", &flipped, "wrong checksum");
    check_refused("text", b"SET k v\r\n", "malformed command at offset 0");
    check_refused("word", b"hello", "malformed command at offset 0");
    check_refused("empty", b"", "is empty");
    let damaged = [command(&["SET", "k", "v"]), b"*x\r\n".to_vec()].concat();
    check_refused("damaged.aof", &damaged, "malformed command at offset 27");
    check_refused("a.manifest", b"file x", "malformed line 1");
}

/// A file with the string `k`, which is encoded as `value`.
fn string_file(value: &[&[u8]]) -> Vec<u8> {
    [b"REDIS0010\x00\x01k".to_vec(), value.concat()].concat()
}

#[test]
fn files_that_claim_more_than_they_have_are_refused_before_it_is_read() {
    let pebibyte = [vec![0x81], (1_u64 << 50).to_be_bytes().to_vec()].concat();
    let long = string_file(&[&pebibyte, b"x"]);
    check_refused("long.rdb", &long, "more bytes than allowed");
    let bomb = string_file(&[b"\xc3\x01", &pebibyte, b"x"]);
    check_refused("bomb.rdb", &bomb, "more bytes than allowed");
    let packed = string_file(&[b"\xc3", &pebibyte, b"\x01x"]);
    check_refused("packed.rdb", &packed, "longer than the string");
}

#[test]
fn no_existing_directory_is_changed() {
    let folder = Folder::new("existing");
    let from = folder.file("dump.rdb", &rdb("k", None));
    folder.file("data/file", b"");
    let (outcome, _) = folder.import(&from, Losses::Accept);
    assert!(outcome.unwrap_err().to_string().contains("is not empty"));
    fs::remove_file(folder.0.join("data/file")).unwrap();
    folder.import(&from, Losses::Accept).0.unwrap();
    assert_eq!(shown(&folder.recover(), 3, "k"), "value");
}
