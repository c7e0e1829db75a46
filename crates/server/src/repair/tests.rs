//! Repairs of directories that the tests damage.

use std::path::PathBuf;

use base::time::MonoNs;
use binlog::{FileDisk, Log, Options};
use store::{Change, End, Items, Key, Mutation, PartitionKey, TableId, Write, Writes};

use super::*;
use crate::engine::records::MUTATIONS;
use crate::recovery::recover;

const KEYS: usize = 120;

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn set(key: &str) -> Vec<u8> {
    let change = Change::Set { value: &[b'x'; 150], expiry: None };
    encoded(key, change)
}

fn encoded(key: &str, change: Change<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let key = Key { bytes: key.as_bytes(), hash: 0 };
    Mutation::Key { db: 0, key, change }.encode(&mut bytes);
    bytes
}

fn open(dir: &Path) -> Arc<Log> {
    let disk = Arc::new(FileDisk::open_buffered(dir).unwrap());
    let options = Options { segment_bytes: 8192, salt: 7, ..Options::default() };
    Log::open(disk, options, 1, Lsn(0), &mut |_| Ok(())).unwrap().0
}

fn append(log: &Log, payload: &[u8]) {
    let end = log.append(0, MUTATIONS, payload).unwrap();
    log.request_sync(end);
    log.writer_step(&|| MonoNs(1));
    assert_eq!(log.durable(), end.max(log.durable()));
}

/// Returns a directory with a closed log of several segments.
fn directory(name: &str) -> Directory {
    let dir = std::env::temp_dir().join(format!("myriad-repair-{name}-{}", std::process::id()));
    let log = open(&dir);
    for number in 0..KEYS {
        append(&log, &set(&format!("key{number}")));
    }
    log.close(&|| MonoNs(1)).unwrap();
    Directory(dir)
}

fn segments(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("log-"));
    names.sort_unstable();
    names
}

/// Starts from the directory. Returns the number of keys, or the reason why the start failed.
fn start(dir: &Path) -> anyhow::Result<u64> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open_buffered(dir).unwrap());
    let now = clock::unix_now();
    let recovered = recover(&disk, &Settings::default(), 1, now, 1)?;
    let (stats, _) = recovered.keyspace.stats(now);
    Ok(stats.iter().map(|db| db.keys).sum())
}

fn run(dir: &Path, mode: Mode) -> (String, anyhow::Result<()>) {
    let mut out = Vec::new();
    let ended = repair(dir, mode, &mut out);
    (String::from_utf8(out).unwrap(), ended)
}

/// Checks that a refused directory is repaired and that the server can then start twice. Returns
/// the number of keys.
#[track_caller]
fn check_repaired(dir: &Path, fault: &str) -> u64 {
    let before = segments(dir);
    let refused = format!("{:#}", start(dir).unwrap_err());
    assert!(refused.contains(fault) && refused.contains("myriad log repair"), "{refused}");
    let (said, tried) = run(dir, Mode::Try);
    assert!(said.contains(fault), "{said}");
    assert!(tried.unwrap_err().to_string().contains("--apply"));
    assert_eq!(segments(dir), before, "nothing was changed");
    start(dir).unwrap_err();
    let (said, applied) = run(dir, Mode::Apply);
    applied.unwrap();
    assert!(said.contains("repaired: a new snapshot holds "), "{said}");
    let aside = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let aside: Vec<_> = aside.filter(|path| path.is_dir()).collect();
    assert_eq!(segments(&aside[0]), before, "no file was deleted");
    let keys = start(dir).unwrap();
    assert_eq!(start(dir).unwrap(), keys);
    let (said, again) = run(dir, Mode::Apply);
    assert!(said.starts_with("nothing to repair") && again.is_ok(), "{said}");
    keys
}

#[test]
fn records_before_the_damage_are_kept() {
    let dir = directory("damage");
    let names = segments(&dir.0);
    assert!(names.len() > 3);
    let path = dir.0.join(&names[1]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[6000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let keys = check_repaired(&dir.0, "is damaged at offset ");
    assert!((20..80).contains(&keys), "{keys}");
}

#[test]
fn a_log_with_missing_files_is_repaired() {
    for (what, fault) in [
        ("last", "is missing"),
        ("first", "starts at position"),
        ("all", "is missing"),
        ("manifest", "log.manifest is damaged"),
    ] {
        let dir = directory(what);
        let names = segments(&dir.0);
        let remove = |name: &str| fs::remove_file(dir.0.join(name)).unwrap();
        match what {
            "last" => remove(names.last().unwrap()),
            "first" => remove(&names[0]),
            "all" => names.iter().for_each(|name| remove(name)),
            _ => fs::write(dir.0.join("log.manifest"), [0; 8192]).unwrap(),
        }
        let keys = check_repaired(&dir.0, fault);
        let expected = match what {
            "all" => 0..1,
            "manifest" => 120..121,
            _ => 60..119,
        };
        assert!(expected.contains(&keys), "{what}: {keys}");
    }
}

#[test]
fn records_from_one_that_cannot_be_applied_are_dropped() {
    let dir = directory("replay");
    let log = open(&dir.0);
    let values: [&[u8]; 1] = [b"v"];
    let push = Change::ListPush { end: End::Back, values: Items::Slice(&values) };
    // A record is applied completely or not at all.
    append(&log, &[set("half"), encoded("key1", push)].concat());
    append(&log, &set("behind"));
    log.close(&|| MonoNs(1)).unwrap();
    drop(log);
    assert_eq!(check_repaired(&dir.0, "could not replay the record at offset "), 120);
}

/// The report counts what users have stored, and not the server's own rows.
#[test]
fn rows_of_the_server_are_not_counted() {
    let dir = directory("rows");
    let log = open(&dir.0);
    let row = |table: u128, key: &str, row: &str| {
        let writes = [Write::InsertRow { row: row.as_bytes(), timestamp: 1, expiry: None }];
        let key = PartitionKey { table: TableId(table), token: 1, bytes: key.as_bytes() };
        let mut bytes = Vec::new();
        Mutation::Partition { key, writes: Writes::Slice(&writes) }.encode(&mut bytes);
        bytes
    };
    let builtin = |name| cql::schema::builtin_table("system_schema", name).id.as_u128();
    for (table, key, name) in [
        (builtin("keyspaces"), "k", ""),
        (builtin("tables"), "k", "t"),
        (crate::engine::local_tables::HISTORY.0, "h", ""),
        (1 << 100, "one", "a"),
        (1 << 100, "one", "b"),
        (1 << 100, "two", "a"),
    ] {
        append(&log, &row(table, key, name));
    }
    log.close(&|| MonoNs(1)).unwrap();
    drop(log);
    fs::write(dir.0.join("log.manifest"), [0; 8192]).unwrap();
    let (said, applied) = run(&dir.0, Mode::Apply);
    applied.unwrap();
    let expected = format!("repaired: a new snapshot holds {KEYS} keys and 3 rows of tables;");
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn directories_that_are_in_use_or_missing_are_refused() {
    let dir = directory("running");
    let log = open(&dir.0);
    let error = run(&dir.0, Mode::Apply).1.unwrap_err();
    assert!(format!("{error:#}").contains("is in use by another process"), "{error:#}");
    drop(log);
    let missing = dir.0.join("missing");
    run(&missing, Mode::Apply).1.unwrap_err();
    assert!(!missing.exists());
}
