//! Full disks, and limits on file sizes.

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::ask::{connect, expect_bulk, expect_error, expect_simple};
use super::bystander::{Bystander, Habit};
use super::subject::Subject;
use super::{Check, Outcome, Scene, until};
use crate::process::TempDir;
use crate::resp::{Connection, Value, request};

/// Rounds of the bystander that prove that it is served.
const ROUNDS: u64 = 100;
const MISCONF: &str = "MISCONF Errors writing to the log: writes are refused. Check the server's \
                       log; repair the disk or make room.";
const SMALL_SEGMENTS: [&str; 2] = ["--log-segment-bytes", "1mb"];
const VALUE_BYTES: usize = 16 << 10;
/// After waiting this long for an answer to a write, INFO is queried for whether the log refuses
/// writes.
const WAIT_MAX: Duration = Duration::from_secs(2);
const ATTEMPTS_MAX: usize = 30;
/// Pause between two attempts of a client whose writes are refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);

pub(super) const CHECKS: &[Check] = &[
    Check { name: "a full disk", suits_any_server: false, run: full },
    Check { name: "files that may not grow", suits_any_server: false, run: file_limit },
];

/// A file system in memory, unmounted when the value is dropped.
#[derive(Debug)]
pub(super) struct Mounted {
    path: PathBuf,
    _directory: TempDir,
}

impl Mounted {
    /// None if this user may not mount.
    pub(super) fn new(options: &str) -> Result<Option<Mounted>> {
        let directory = TempDir::new("mount")?;
        let path = directory.path().to_owned();
        let is_mounted = mount(&["-t", "tmpfs", "-o", options, "tmpfs"], &path);
        Ok(is_mounted.then_some(Mounted { path, _directory: directory }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn remount(&self, options: &str) -> Result<()> {
        ensure!(mount(&["-o", &format!("remount,{options}")], &self.path), "remount {options}");
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A lazy unmount: a killed server may still have open files. A remaining mount is visible
        // by its path.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn mount(arguments: &[&str], path: &Path) -> bool {
    let mut command = Command::new("mount");
    command.args(arguments).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Writes until stopped, refused, or disconnected. Returns the number of acknowledged writes; one
/// more may have been made.
fn write_on(subject_address: &str, value: &[u8], is_over: &AtomicBool) -> Result<u64> {
    let mut connection = Connection::open(subject_address)?;
    let mut number = 0;
    while !is_over.load(Ordering::SeqCst) {
        let key = format!("key:{number}");
        match connection.call(&[b"SET".as_slice(), key.as_bytes(), value]) {
            Ok(Value::Simple(_)) => number += 1,
            Ok(other) => {
                expect_error(&other, MISCONF)?;
                thread::sleep(REFUSED_PAUSE);
            }
            // Undecided: the server ended while the write waited.
            Err(_) => break,
        }
    }
    Ok(number)
}

/// Whether the server accepts a write of another connection. A write that was sent when the log ran
/// out of room is answered only when there is room again.
fn takes_writes(subject: &Subject) -> Result<bool> {
    let mut stream = connect(&subject.address)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.write_all(&request(&["SET", "late", "x"]))?;
    let mut answer = [0; 256];
    let mut attempts = 0;
    let count = loop {
        match stream.read(&mut answer) {
            // On a slow machine an answer may also take this long although the log accepts writes.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let info = subject.info()?;
                if info.get("aof_last_write_status").is_some_and(|status| status == "err") {
                    return Ok(false);
                }
                attempts += 1;
                ensure!(attempts < ATTEMPTS_MAX, "a write has no answer although the log takes it");
            }
            read => break read?,
        }
    };
    if answer[..count] == *b"+OK\r\n" {
        return Ok(true);
    }
    let text = String::from_utf8_lossy(&answer[..count]);
    ensure!(text.trim_end() == format!("-{MISCONF}"), "a write is answered {text}");
    Ok(false)
}

/// Checks that writes are refused and reads are answered on every connection.
fn expect_read_only(subject: &Subject, acknowledged: u64, value: &[u8]) -> Result<()> {
    let mut connection = subject.connect()?;
    until("writes are refused", || {
        let answer = connection.call(&["SET", "late", "x"])?;
        expect_error(&answer, MISCONF).map(|()| true)
    })?;
    expect_error(&connection.call(&["FLUSHALL"])?, MISCONF)?;
    for number in 0..acknowledged {
        let key = format!("key:{number}");
        expect_bulk(&connection.call(&["GET", &key])?, value).context(key)?;
    }
    expect_bulk(&connection.call(&["ECHO", "still here"])?, b"still here")?;
    // Data that may be lost is not returned, and the client gets the reason.
    let undecided = format!("key:{acknowledged}");
    for request in [&["GET", &undecided][..], &["DBSIZE"], &["KEYS", "*"], &["SCAN", "0"]] {
        answered(&mut connection, request)?;
    }
    Ok(())
}

fn answered(connection: &mut Connection, request: &[&str]) -> Result<()> {
    connection.call(request).map(drop).with_context(|| format!("{request:?} after the failure"))
}

/// SIGTERM of a server whose log has failed: it reports the reason, and a failure by its exit code.
fn end_with_reason(mut subject: Subject) -> Result<()> {
    subject.terminate()?;
    let ended = subject.wait()?;
    ensure!(ended.status.code() == Some(1), "{}: {}", ended.status, ended.stderr);
    ensure!(ended.stderr.contains("could not close log"), "no reason in {}", ended.stderr);
    Ok(())
}

fn full(scene: &Scene<'_>) -> Result<Outcome> {
    let Some(mounted) = Mounted::new("size=12m")? else {
        return Ok(Outcome::Skipped("this user may not mount a small file system".into()));
    };
    let data = mounted.path().join("data");
    let value = vec![b'v'; VALUE_BYTES];
    let subject = Subject::start_on(scene.root, &data, &SMALL_SEGMENTS, &[])?;
    let bystander = Bystander::start(&subject.address, Habit::Talks)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (address, is_over) = (subject.address.clone(), Arc::clone(&is_over));
        let value = value.clone();
        thread::spawn(move || write_on(&address, &value, &is_over))
    };
    // The write that ran out of room waits, later ones are refused. With room, both continue by
    // themselves.
    for size in ["size=24m", "size=32m"] {
        until("writes are refused", || takes_writes(&subject).map(|takes| !takes))?;
        let mut connection = subject.connect()?;
        expect_bulk(&connection.call(&["GET", "key:0"])?, &value)?;
        expect_bulk(&connection.call(&["ECHO", "still here"])?, b"still here")?;
        mounted.remount(size)?;
        until("writes are taken again", || takes_writes(&subject))?;
    }
    until("writes are refused", || takes_writes(&subject).map(|takes| !takes))?;
    bystander.completes(ROUNDS)?;
    bystander.stop()?;
    end_with_reason(subject)?;
    is_over.store(true, Ordering::SeqCst);
    let acknowledged = writer.join().map_err(|_| anyhow!("the writing thread panicked"))??;
    ensure!(acknowledged > 100, "{acknowledged} writes");
    // With more room the server starts again, with all acknowledged data.
    mounted.remount("size=64m")?;
    let subject = Subject::start_on(scene.root, &data, &SMALL_SEGMENTS, &[])?;
    let mut connection = subject.connect()?;
    for number in 0..acknowledged {
        let key = format!("key:{number}");
        expect_bulk(&connection.call(&["GET", &key])?, &value).context(key)?;
    }
    expect_simple(&connection.call(&["SET", "late", "x"])?, "OK")?;
    drop(connection);
    subject.stop()?;
    Ok(Outcome::Passed)
}

/// `RLIMIT_FSIZE`: the kernel refuses the write, and sends a signal that would end the process.
fn file_limit(scene: &Scene<'_>) -> Result<Outcome> {
    let directory = TempDir::new("hostile")?;
    let limits = ["--fsize=2097152"];
    let value = vec![b'v'; VALUE_BYTES];
    let subject = Subject::start_on(scene.root, directory.path(), &SMALL_SEGMENTS, &limits)?;
    let bystander = Bystander::start(&subject.address, Habit::Talks)?;
    let mut connection = subject.connect()?;
    for number in 0..10 {
        let key = format!("key:{number}");
        expect_simple(&connection.call(&[b"SET".as_slice(), key.as_bytes(), &value])?, "OK")?;
    }
    // A record larger than a segment gets its own file, which exceeds the limit.
    let large = vec![b'v'; 3 << 20];
    // An undecided write has no answer.
    if let Ok(answer) = connection.call(&[b"SET".as_slice(), b"large", &large]) {
        expect_error(&answer, MISCONF)?;
    }
    expect_read_only(&subject, 10, &value)?;
    bystander.completes(ROUNDS)?;
    bystander.stop()?;
    end_with_reason(subject)?;
    Ok(Outcome::Passed)
}
