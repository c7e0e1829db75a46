//! Data that does not fit, and data that is removed under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, ensure};

use super::ask::{connect, expect_bulk, expect_error, expect_integer, expect_simple, reset};
use super::bystander::Habit;
use super::stage::Stage;
use super::{Check, Outcome, Scene};
use crate::resp::{Connection, Value, request};

const LIMIT_BYTES: u64 = 32 << 20;
/// Permitted excess over the limit: memory that reactors have not published yet, and connections.
const OVER_BYTES_MAX: u64 = 4 << 20;
const VALUE_BYTES: usize = 16 << 10;
const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// Writes that are sent together.
const BATCH: u64 = 64;
const FLUSHES: usize = 100;
const WRITERS: usize = 4;
/// `read-buffer-memory-limit` of the check.
const READ_BUFFER_BYTES: u64 = 64 << 20;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "maxmemory with noeviction", suits_any_server: false, run: no_eviction },
    Check { name: "maxmemory with allkeys-lru", suits_any_server: false, run: eviction },
    Check { name: "memory-limit and small writes", suits_any_server: false, run: small_writes },
    Check { name: "maxmemory and large copies", suits_any_server: false, run: large_copies },
    Check { name: "FLUSHALL under load", suits_any_server: false, run: flush },
    Check { name: "read-buffer-memory-limit", suits_any_server: false, run: read_buffers },
];

fn no_eviction(scene: &Scene<'_>) -> Result<Outcome> {
    let options = ["--maxmemory", &LIMIT_BYTES.to_string()];
    let stage = Stage::resp(scene.start(&options)?, Habit::Talks)?;
    let subject = &stage.subject;
    let value = vec![b'v'; VALUE_BYTES];
    let mut connection = subject.connect()?;
    let mut written = 0_u64;
    let refusal = loop {
        let key = format!("key:{written}");
        match connection.call(&[b"SET".as_slice(), key.as_bytes(), &value])? {
            Value::Simple(_) => written += 1,
            other => break other,
        }
        ensure!(written * (VALUE_BYTES as u64) < 2 * LIMIT_BYTES, "maxmemory is not reached");
    };
    expect_error(&refusal, OOM)?;
    let used_bytes = subject.info_number("used_memory")?;
    ensure!(used_bytes <= LIMIT_BYTES + OVER_BYTES_MAX, "used_memory is {used_bytes}");
    expect_room(&mut connection, &value, written.min(200))?;
    drop(connection);
    stage.end()
}

/// Checks that reads and removals continue although memory is full, and that `removed` removals
/// make room.
fn expect_room(connection: &mut Connection, value: &[u8], removed: u64) -> Result<()> {
    expect_bulk(&connection.call(&["GET", "key:0"])?, value)?;
    for number in 0..removed {
        expect_integer(&connection.call(&["DEL", &format!("key:{number}")])?, 1)?;
    }
    super::until("there is room again", || {
        let answer = connection.call(&[b"SET".as_slice(), b"again", value])?;
        Ok(answer == Value::Simple(b"OK".to_vec()))
    })
}

fn eviction(scene: &Scene<'_>) -> Result<Outcome> {
    const LIMIT_BYTES: u64 = 256 << 20;
    const EXCESS: u64 = 2;
    let limit = LIMIT_BYTES.to_string();
    let options = ["--maxmemory", &limit, "--maxmemory-policy", "allkeys-lru"];
    let stage = Stage::resp(scene.start(&options)?, Habit::Talks)?;
    let subject = &stage.subject;
    let value = vec![b'v'; VALUE_BYTES];
    let mut connection = subject.connect()?;
    // The log's buffers are allocated by the first writes.
    for _ in 0..BATCH {
        for _ in 0..BATCH {
            connection.send(&[b"SET".as_slice(), b"key:0", &value])?;
        }
        for _ in 0..BATCH {
            expect_simple(&connection.read()?, "OK")?;
        }
    }
    let before_bytes = subject.resident_bytes()?;
    let keys = LIMIT_BYTES * EXCESS / VALUE_BYTES as u64;
    for first in (0..keys).step_by(usize::try_from(BATCH)?) {
        for number in first..first + BATCH {
            let key = format!("key:{number}");
            connection.send(&[b"SET".as_slice(), key.as_bytes(), &value])?;
        }
        for _ in 0..BATCH {
            expect_simple(&connection.read()?, "OK")?;
        }
        let used_bytes = subject.info_number("used_memory")?;
        ensure!(used_bytes <= LIMIT_BYTES + OVER_BYTES_MAX, "used_memory is {used_bytes}");
    }
    ensure!(subject.info_number("evicted_keys")? > 0, "nothing was evicted");
    let last = format!("key:{}", keys - 1);
    expect_bulk(&connection.call(&["GET", &last])?, &value)?;
    let grown_bytes = subject.peak_bytes()? - before_bytes;
    ensure!(grown_bytes <= with_tolerance(LIMIT_BYTES), "grown by {} MiB", grown_bytes >> 20);
    drop(connection);
    stage.end()
}

/// Limits are accurate within a tenth.
fn with_tolerance(bytes: u64) -> u64 {
    bytes + bytes / 10
}

/// Many small writes, each of which is insignificant, also reach the limit of the whole server.
fn small_writes(scene: &Scene<'_>) -> Result<Outcome> {
    const LIMIT_BYTES: u64 = 128 << 20;
    const VALUE_BYTES: u64 = 300;
    // Larger pipelines are closed at the limit.
    const BATCH: u64 = 40;
    const REMOVED: u64 = 50_000;
    let limit = LIMIT_BYTES.to_string();
    let options = ["--memory-limit", &limit, "--durability", "never"];
    let stage = Stage::resp(scene.start(&options)?, Habit::Talks)?;
    let subject = &stage.subject;
    let value = vec![b'v'; usize::try_from(VALUE_BYTES)?];
    let mut connection = subject.connect()?;
    let mut sent = 0;
    let mut refused = 0;
    while refused < BATCH {
        ensure!(sent * VALUE_BYTES < 2 * LIMIT_BYTES, "memory-limit is not reached");
        for number in sent..sent + BATCH {
            let key = format!("key:{number}");
            connection.send(&[b"SET".as_slice(), key.as_bytes(), &value])?;
        }
        sent += BATCH;
        for _ in 0..BATCH {
            match connection.read()? {
                Value::Simple(_) => {}
                Value::Error(text) => {
                    ensure!(text.starts_with(b"OOM "), "refused by {}", text.escape_ascii());
                    refused += 1;
                }
                other => anyhow::bail!("SET is answered {other:?}"),
            }
        }
    }
    let peak_bytes = subject.peak_bytes()?;
    ensure!(peak_bytes <= with_tolerance(LIMIT_BYTES), "{} MiB resident", peak_bytes >> 20);
    expect_room(&mut connection, &value, REMOVED)?;
    drop(connection);
    stage.end()
}

/// A transaction of a few hundred bytes that requests copies of a large value: each takes memory in
/// the data, in the record, and on its way to the disk.
fn large_copies(scene: &Scene<'_>) -> Result<Outcome> {
    const LIMIT_BYTES: u64 = 256 << 20;
    const LARGE_BYTES: usize = 48 << 20;
    let options = ["--maxmemory", &LIMIT_BYTES.to_string()];
    let stage = Stage::resp(scene.start(&options)?, Habit::Talks)?;
    let subject = &stage.subject;
    let mut connection = subject.connect()?;
    connection.call(&["SETRANGE", "large", &(LARGE_BYTES - 1).to_string(), "x"])?;
    let mut refused = 0;
    for round in 0..4 {
        expect_simple(&connection.call(&["MULTI"])?, "OK")?;
        for copy in 0..4 {
            let name = format!("copy:{round}:{copy}");
            expect_simple(&connection.call(&["COPY", "large", &name, "REPLACE"])?, "QUEUED")?;
        }
        let answers = match connection.call(&["EXEC"])? {
            Value::Array(Some(answers)) => answers,
            refusal => vec![refusal],
        };
        for answer in answers {
            match answer {
                Value::Scalar(one) if one == ":1" => {}
                Value::Error(text) => {
                    ensure!(text.starts_with(b"OOM "), "refused by {}", text.escape_ascii());
                    refused += 1;
                }
                other => anyhow::bail!("COPY is answered {other:?}"),
            }
        }
    }
    ensure!(refused > 0, "16 copies of {} MiB were made", LARGE_BYTES >> 20);
    let grown_bytes = subject.peak_bytes()? - stage.before_bytes;
    // On a busy machine one more freed copy may still be resident.
    let most_bytes = LIMIT_BYTES + LARGE_BYTES as u64;
    ensure!(grown_bytes <= with_tolerance(most_bytes), "grown by {} MiB", grown_bytes >> 20);
    drop(connection);
    stage.end()
}

/// Writers that run until stopped.
fn writers(address: &str, stopping: &Arc<AtomicBool>) -> Result<Vec<JoinHandle<Result<()>>>> {
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let mut connection = Connection::open(address)?;
        let stopping = Arc::clone(stopping);
        writers.push(thread::spawn(move || -> Result<()> {
            let mut batch = Vec::new();
            for number in 0..100 {
                let key = format!("key:{writer}:{number}");
                batch.extend(request(&["SET", &key, "value"]));
                batch.extend(request(&["RPUSH", &format!("list:{writer}"), "element"]));
            }
            while !stopping.load(Ordering::Relaxed) {
                connection.send_raw(&batch)?;
                for _ in 0..200 {
                    if let Value::Error(text) = connection.read()? {
                        anyhow::bail!("a write is answered {}", text.escape_ascii());
                    }
                }
            }
            Ok(())
        }));
    }
    Ok(writers)
}

fn flush(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Talks)?;
    let stopping = Arc::new(AtomicBool::new(false));
    let writers = writers(&stage.address, &stopping)?;
    let mut control = stage.subject.connect()?;
    for number in 0..FLUSHES {
        let how = if number % 2 == 0 { "SYNC" } else { "ASYNC" };
        expect_simple(&control.call(&["FLUSHALL", how])?, "OK")?;
    }
    stopping.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().ok().context("a writer panicked")??;
    }
    expect_simple(&control.call(&["FLUSHALL"])?, "OK")?;
    expect_integer(&control.call(&["DBSIZE"])?, 0)?;
    drop(control);
    stage.clear()
}

/// Many large requests that are never completed: the excess ones are refused.
fn read_buffers(scene: &Scene<'_>) -> Result<Outcome> {
    use std::io::{Read, Write};
    const HALVES: usize = 64;
    const HALF_BYTES: usize = 4 << 20;
    let limit = READ_BUFFER_BYTES.to_string();
    let stage = Stage::resp(scene.start(&["--read-buffer-memory-limit", &limit])?, Habit::Writes)?;
    let subject = &stage.subject;
    let mut half = b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$8388608\r\n".to_vec();
    half.resize(HALF_BYTES, b'v');
    let mut streams = Vec::new();
    for _ in 0..HALVES {
        let mut stream = connect(&stage.address)?;
        // It may be refused half-way, as the answer shows.
        let _ = stream.write_all(&half);
        streams.push(stream);
    }
    stage.others_are_served()?;
    // A buffer that grows may have room for as much again.
    subject
        .until_held(stage.before_bytes, 2 * READ_BUFFER_BYTES)
        .context("unfinished requests cost too much")?;
    for stream in &streams {
        stream.set_nonblocking(true)?;
    }
    // The kernel holds much of what was sent: a reactor may still have all of it to read.
    super::until("a request is refused", || {
        let mut refused = 0;
        for stream in &mut streams {
            let mut buffer = [0; 128];
            if let Ok(count @ 1..) = stream.read(&mut buffer) {
                let answer = &buffer[..count];
                ensure!(answer.starts_with(b"-OOM "), "refused by {}", answer.escape_ascii());
                refused += 1;
            }
        }
        Ok(refused > 0)
    })?;
    streams.into_iter().try_for_each(reset)?;
    subject.until_connections(1)?;
    // And there is room again.
    let value = vec![b'v'; HALF_BYTES];
    expect_simple(&subject.connect()?.call(&[b"SET".as_slice(), b"x", &value])?, "OK")?;
    stage.clear()
}
