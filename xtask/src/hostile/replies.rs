//! Peers that request more than they read, and endless pipelines.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use anyhow::{Context, Result, ensure};

use super::ask::{self, connect, expect_simple, read_to_end};
use super::bystander::Habit;
use super::stage::Stage;
use super::subject::Subject;
use super::{Check, Outcome, Scene, until};
use crate::resp::request;

const LARGE_BYTES: usize = 1 << 20;
const NON_READERS: usize = 20;
/// Requests of a peer that does not read: their replies would be 4 GiB in total.
const UNREAD_REPLIES: usize = 200;
/// Maximum memory for a peer that does not read: the bytes at which it is paused, one reply, and as
/// much again for the growth of its buffer.
const UNREAD_BYTES_MAX: u64 = 2 * (LARGE_BYTES as u64 + (1 << 20));
const PINGS: usize = 1_000_000;
/// Maximum number of rounds, of a thousand lines each. A monitor that does not read is closed after
/// a hundred; many more pass if the machine halts the thread that would close it.
const MONITORED_ROUNDS_MAX: u64 = 20_000;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "unread replies", suits_any_server: true, run: unread },
    Check { name: "client-output-buffer-limit", suits_any_server: false, run: output_limit },
    Check { name: "MONITOR that nobody reads", suits_any_server: false, run: monitors },
    Check { name: "a pipeline of a million", suits_any_server: true, run: pipeline },
    Check { name: "SIGTERM in the middle of pipelines", suits_any_server: false, run: terminate },
];

fn store_large(subject: &Subject) -> Result<()> {
    let value = vec![b'v'; LARGE_BYTES];
    expect_simple(&subject.connect()?.call(&[b"SET".as_slice(), b"large", &value])?, "OK")
}

fn unread(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let subject = &stage.subject;
    store_large(subject)?;
    let mut streams = Vec::new();
    for _ in 0..NON_READERS {
        let mut stream = connect(&stage.address)?;
        stream.write_all(&request(&["GET", "large"]).repeat(UNREAD_REPLIES))?;
        streams.push(stream);
    }
    stage.others_are_served()?;
    let grown_bytes = subject.resident_bytes()?.saturating_sub(stage.before_bytes);
    let allowed_bytes = NON_READERS as u64 * UNREAD_BYTES_MAX + (32 << 20);
    ensure!(
        grown_bytes <= allowed_bytes,
        "{NON_READERS} peers that do not read cost {} MiB",
        grown_bytes >> 20
    );
    // A client that reads late gets everything.
    let mut late = streams.pop().context("there are many")?;
    late.shutdown(std::net::Shutdown::Write)?;
    let reply_bytes = format!("${LARGE_BYTES}\r\n").len() + LARGE_BYTES + 2;
    let got_bytes = drain(&mut late)?;
    ensure!(got_bytes == reply_bytes * UNREAD_REPLIES, "read late: {got_bytes} bytes");
    streams.into_iter().try_for_each(ask::reset)?;
    stage.clear()
}

/// Reads to the end, and counts the bytes.
fn drain(stream: &mut TcpStream) -> Result<usize> {
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer).context("read late")? {
            0 => return Ok(bytes),
            count => bytes += count,
        }
    }
}

/// Above the limit the connection is closed; below it, it only waits.
fn output_limit(scene: &Scene<'_>) -> Result<Outcome> {
    // Below 1 MB, at which a connection is paused. Replies are small, so that the limit is reached
    // first.
    for limit in ["normal 512kb 0 0", "normal 0 512kb 1"] {
        let options = ["--client-output-buffer-limit", limit];
        let stage = Stage::resp(scene.start(&options)?, Habit::Writes)?;
        let subject = &stage.subject;
        store_large(subject)?;
        let mut stream = connect(&stage.address)?;
        stream.write_all(&request(&["GETRANGE", "large", "0", "131071"]).repeat(UNREAD_REPLIES))?;
        subject.until_connections(1).with_context(|| format!("{limit}: the peer stays"))?;
        let got_bytes = read_to_end(&mut stream)?.len();
        ensure!(got_bytes < UNREAD_REPLIES * (128 << 10), "{limit}: it got everything");
        stage.end()?;
    }
    Ok(Outcome::Passed)
}

/// Requests of others are sent to a monitor that does not read: it is closed before it costs much
/// memory.
fn monitors(scene: &Scene<'_>) -> Result<Outcome> {
    let options = ["--client-output-buffer-limit", "pubsub 4mb 0 0"];
    let stage = Stage::resp(scene.start(&options)?, Habit::Writes)?;
    let subject = &stage.subject;
    let mut stream = connect(&stage.address)?;
    stream.write_all(b"MONITOR\r\n")?;
    let mut ok = [0; 5];
    stream.read_exact(&mut ok)?;
    let mut talker = subject.connect()?;
    let text = "x".repeat(100);
    let batch = request(&["ECHO", &text]).repeat(1000);
    let mut rounds = 0_u64;
    until("the monitor is closed", || {
        talker.send_raw(&batch)?;
        for _ in 0..1000 {
            talker.read()?;
        }
        rounds += 1;
        ensure!(rounds < MONITORED_ROUNDS_MAX, "a monitor that does not read is kept");
        Ok(subject.info_number("connected_clients")? <= 3)
    })?;
    drop(talker);
    stage.clear()
}

fn pipeline(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let mut stream = connect(&stage.address)?;
    let mut writing = stream.try_clone()?;
    let writer = thread::spawn(move || -> Result<()> {
        let batch = b"PING\r\n".repeat(1000);
        (0..PINGS / 1000).try_for_each(|_| writing.write_all(&batch))?;
        Ok(writing.shutdown(std::net::Shutdown::Write)?)
    });
    // The server must stop reading, or hold the replies: both are harmless.
    stage.others_are_served()?;
    let answers = read_to_end(&mut stream)?;
    writer.join().ok().context("the writer panicked")??;
    ensure!(answers == b"+PONG\r\n".repeat(PINGS), "{} bytes of answers", answers.len());
    stage.clear()
}

/// Data acknowledged before the end must be there afterwards.
fn terminate(scene: &Scene<'_>) -> Result<Outcome> {
    const CLIENTS: usize = 8;
    let directory = crate::process::TempDir::new("hostile")?;
    let mut subject = Subject::start_on(scene.root, directory.path(), &[], &[])?;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut stream = connect(&subject.address)?;
        let mut reading = stream.try_clone()?;
        let batch = request(&["INCR", &format!("counter{number}")]).repeat(100);
        // Writes until the server has ended.
        thread::spawn(move || while stream.write_all(&batch).is_ok() {});
        let (sender, started) = std::sync::mpsc::channel();
        let reader = thread::spawn(move || -> Result<u64> {
            let (mut last, mut line) = (0, Vec::new());
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reading.read(&mut buffer) {
                for byte in &buffer[..count] {
                    match byte {
                        b'\n' => {
                            let text = String::from_utf8_lossy(&line).trim().to_owned();
                            let number = text.strip_prefix(':').with_context(|| text.clone())?;
                            ensure!(number.parse::<u64>()? == last + 1, "{text} after {last}");
                            last += 1;
                            line.clear();
                        }
                        byte => line.push(*byte),
                    }
                }
                // The receiver only waits for the first one.
                let _ = sender.send(());
            }
            Ok(last)
        });
        clients.push((reader, started));
    }
    for (_, started) in &clients {
        started.recv_timeout(super::HANG_TIMEOUT).context("a pipeline does not start")?;
    }
    subject.terminate()?;
    let ended = subject.wait()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.stderr);
    let again = Subject::start_on(scene.root, directory.path(), &[], &[])?;
    let mut control = again.connect()?;
    for (number, (reader, _)) in clients.into_iter().enumerate() {
        let answered = reader.join().ok().context("a reader panicked")??;
        let answer = control.call(&["INCRBY", &format!("counter{number}"), "0"])?;
        let crate::resp::Value::Scalar(text) = &answer else { anyhow::bail!("{answer:?}") };
        let stored: u64 = text[1..].parse()?;
        ensure!(stored >= answered, "counter{number}: {answered} answered, {stored} stored");
    }
    drop(control);
    again.stop()?;
    Ok(Outcome::Passed)
}
