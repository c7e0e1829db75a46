//! Directories of earlier and later versions.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use base::time::MonoNs;
use binlog::{Log, Options};
use store::{Change, Key, Mutation};

use super::*;
use crate::engine::records::MUTATIONS;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let name = format!("myriad-upgrade-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        Directory(dir)
    }

    fn with_log(self) -> Directory {
        self.append();
        self
    }

    /// Appends one record to the log, as a server does between its start and its stop.
    fn append(&self) {
        let mut bytes = Vec::new();
        let key = Key { bytes: b"key", hash: 0 };
        let change = Change::Set { value: b"value", expiry: None };
        Mutation::Key { db: 0, key, change }.encode(&mut bytes);
        let log = self.open();
        let end = log.append(0, MUTATIONS, &bytes).unwrap();
        log.request_sync(end);
        log.writer_step(&|| MonoNs(1));
        log.close(&|| MonoNs(1)).unwrap();
    }

    fn open(&self) -> Arc<Log> {
        let disk = Arc::new(FileDisk::open_buffered(&self.0).unwrap());
        let options = Options { segment_bytes: 8192, salt: 7, ..Options::default() };
        Log::open(disk, options, 1, Lsn(0), &mut |_| Ok(())).unwrap().0
    }

    fn with_snapshot(self, fixture: &str, name: &str) -> Directory {
        let path = format!("{}/tests/fixtures/{fixture}", env!("CARGO_MANIFEST_DIR"));
        fs::copy(path, self.0.join(name)).unwrap();
        self
    }

    /// Replaces the version in the header at `offset` of a file, whose checksum is at `crc_at`.
    fn set_version(&self, name: &str, offset: usize, crc_at: usize, version: u8) {
        let path = self.0.join(name);
        let mut bytes = fs::read(&path).unwrap();
        let header = &mut bytes[offset..];
        header[if crc_at == 32 { 7 } else { 8 }] = version;
        let crc = crc32c::crc32c(&header[..crc_at]).to_le_bytes();
        header[crc_at..crc_at + 4].copy_from_slice(&crc);
        fs::write(path, bytes).unwrap();
    }

    /// Gives all files of the log an earlier or later version.
    fn set_log_version(&self, version: u8) {
        for copy in [0, 4096] {
            self.set_version("log.manifest", copy, 60, version);
        }
        self.set_version("log-00000000000000000001.seg", 0, 60, version);
    }

    fn files(&self) -> Vec<(PathBuf, SystemTime, Vec<u8>)> {
        let files = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let mut files: Vec<_> = files
            .map(|entry| {
                let modified = entry.metadata().unwrap().modified().unwrap();
                (entry.path(), modified, fs::read(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    /// Returns the report without the place of the directory, then the error if there is one.
    fn report(&self) -> (Vec<String>, Option<String>) {
        let before = self.files();
        let mut out = Vec::new();
        let outcome = check(&self.0, &mut out);
        assert_eq!(self.files(), before, "the check changed a file");
        let place = self.0.display().to_string();
        let lines = String::from_utf8(out).unwrap();
        let lines = lines.lines().map(|line| line.replace(&place, "DIR")).collect();
        (lines, outcome.err().map(|error| format!("{error:#}").replace(&place, "DIR")))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_directory_of_this_version_keeps_its_formats() {
    let dir = Directory::new("same").with_log();
    let (lines, error) = dir.report();
    assert_eq!(error, None);
    assert!(lines[2].starts_with("a start replays 1 log records, up to position "), "{lines:?}");
    assert_eq!(
        [&lines[..2], &lines[3..]].concat(),
        [
            "log.manifest: version 3; this program reads 1 to 3",
            "1 log segments: version 3; this program reads 1 to 3",
            "a start changes no format",
            "downgrade possible until the first snapshot, which has version 4, or to a program \
             that reads it; take a backup first",
        ]
    );
}

#[test]
fn earlier_logs_and_snapshots_are_read() {
    let dir = Directory::new("log-v2").with_log();
    dir.set_log_version(2);
    let (lines, error) = dir.report();
    assert_eq!(error, None);
    assert_eq!(lines[0], "log.manifest: version 2; this program reads 1 to 3");
    assert_eq!(lines[3], "a start continues the log in version 3");
    assert!(
        lines[4].starts_with("no downgrade after a start: a program that writes log version 2")
    );
    // What the report promises is what a start does.
    dir.append();
    assert_eq!(dir.report().0[0], "log.manifest: version 3; this program reads 1 to 3");

    for (version, fixture, name) in [
        (1, "snapshot-v1.myr", "snapshot-00000000000000001748.myr"),
        (3, "snapshot-v3.myr", "snapshot-00000000000000000555.myr"),
    ] {
        let dir = Directory::new(fixture).with_snapshot(fixture, name);
        let (lines, error) = dir.report();
        assert_eq!(error, None);
        assert_eq!(lines[0], format!("{name}: version {version}; this program reads 1 to 4"));
        assert!(lines[1].starts_with("a start loads "), "{lines:?}");
        assert!(!lines[1].starts_with("a start loads 0 keys"), "{lines:?}");
        assert_eq!(lines[3], "a start begins a log of version 3");
        assert!(lines[4].starts_with("downgrade possible only to"), "{lines:?}");
    }
}

#[test]
fn an_earlier_snapshot_is_replaced_by_the_next_one() {
    let log = Formats { manifest: Some(3), segments: [(3, 1)].into() };
    let lines = downgrade(&log, Some(3));
    assert_eq!(lines[0], "the next snapshot has version 4");
    assert!(lines[1].starts_with("downgrade possible until the next snapshot"), "{lines:?}");
    assert_eq!(downgrade(&log, Some(4))[0], "a start changes no format");
}

#[test]
fn later_versions_are_refused() {
    let dir = Directory::new("log-v4").with_log();
    dir.set_log_version(4);
    let (lines, error) = dir.report();
    let refused = "version 4; this program does not read this: it reads 1 to 3";
    assert_eq!(lines, [format!("log.manifest: {refused}"), format!("1 log segments: {refused}")]);
    assert_eq!(error.unwrap(), "this program cannot start with DIR: use a newer one");

    let name = "snapshot-00000000000000001748.myr";
    let dir = Directory::new("snapshot-v5").with_snapshot("snapshot-v1.myr", name);
    dir.set_version(name, 0, 32, 5);
    let (lines, error) = dir.report();
    assert_eq!(
        lines,
        [format!("{name}: version 5; this program does not read this: it reads 1 to 4")]
    );
    assert_eq!(error.unwrap(), "this program cannot start with DIR: use a newer one");
}

#[test]
fn damage_a_running_server_and_a_missing_directory_are_refused() {
    let name = "snapshot-00000000000000001748.myr";
    let dir = Directory::new("damaged").with_snapshot("snapshot-v1.myr", name);
    let path = dir.0.join(name);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = dir.report().1.unwrap();
    assert!(error.contains("is damaged at offset"), "{error}");
    fs::write(&path, &bytes[..10]).unwrap();
    assert_eq!(dir.report().1.unwrap(), format!("{name} has no valid header"));

    let dir = Directory::new("manifest").with_log();
    fs::write(dir.0.join("log.manifest"), [0; 8192]).unwrap();
    assert!(dir.report().1.unwrap().contains("neither of its copies is valid"));

    let dir = Directory::new("lost-segment").with_log();
    fs::remove_file(dir.0.join("log-00000000000000000001.seg")).unwrap();
    assert!(dir.report().1.unwrap().starts_with("a start fails: "));

    let dir = Directory::new("held").with_log();
    let server = FileDisk::open_buffered(&dir.0).unwrap();
    assert_eq!(dir.report().1.unwrap(), "DIR is in use: the server must be stopped");
    drop(server);
    assert_eq!(dir.report().1, None);

    let dir = Directory::new("empty");
    let (lines, error) = dir.report();
    assert_eq!(lines, Vec::<String>::new());
    assert_eq!(error.unwrap(), "DIR is not a data directory: it has no log and no snapshot");
    let missing = dir.0.join("missing");
    let error = check(&missing, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.starts_with("could not open "), "{error}");
    assert!(!missing.exists());
}
