//! Valid requests that are huge or endless.

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};

use super::ask::{
    connect, expect_bytes, expect_closed, expect_error, expect_integer, expect_silence,
    expect_simple, reset,
};
use super::bystander::Habit;
use super::stage::Stage;
use super::subject::Subject;
use super::{Check, Outcome, Scene, until};
use crate::resp::{Connection, Value, request};

const KEYS: usize = 1_000_000;
/// How often all keys are listed.
const LISTINGS: u64 = 2;
/// Commands that one transaction queues.
const QUEUED_MAX: usize = 1 << 20;
/// Keys that one connection watches.
const WATCHED_MAX: usize = 1 << 16;
/// `proto-max-bulk-len`.
const VALUE_BYTES_MAX: usize = 512 << 20;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "DEBUG SLEEP", suits_any_server: true, run: sleep },
    Check { name: "KEYS * of a million keys", suits_any_server: false, run: keys },
    Check { name: "MULTI with a million commands", suits_any_server: false, run: transaction },
    Check { name: "WATCH floods", suits_any_server: false, run: watches },
    Check { name: "a value of 512 MB", suits_any_server: false, run: large_value },
    Check { name: "a reply larger than memory", suits_any_server: false, run: large_reply },
];

/// One client sleeps, the others do not. Disconnecting ends its sleep.
fn sleep(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let mut sleepers = Vec::new();
    for _ in 0..8 {
        let mut stream = connect(&stage.address)?;
        stream.write_all(&request(&["DEBUG", "SLEEP", "100000"]))?;
        sleepers.push(stream);
    }
    stage.others_are_served()?;
    sleepers.iter_mut().try_for_each(expect_silence)?;
    drop(sleepers);
    stage.clear()
}

fn fill(subject: &Subject, keys: usize) -> Result<()> {
    const KEYS_PER_REQUEST: usize = 1000;
    let mut connection = subject.connect()?;
    for first in (0..keys).step_by(KEYS_PER_REQUEST) {
        let mut args = vec!["MSET".to_owned()];
        for number in first..(first + KEYS_PER_REQUEST).min(keys) {
            args.push(format!("key:{number}"));
            args.push(number.to_string());
        }
        expect_simple(&connection.call(&args)?, "OK")?;
    }
    Ok(())
}

fn keys(scene: &Scene<'_>) -> Result<Outcome> {
    let subject = scene.start(&["--durability", "never"])?;
    fill(&subject, KEYS)?;
    let stage = Stage::resp(subject, Habit::Writes)?;
    let mut greedy = stage.subject.connect()?;
    // Listed once more if the machine has halted the bystander meanwhile.
    until("the bystander completes a round during each listing", || {
        let served_before = stage.completed();
        for _ in 0..LISTINGS {
            match greedy.call(&["KEYS", "*"])? {
                Value::Array(Some(keys)) => ensure!(keys.len() == KEYS + 1, "{} keys", keys.len()),
                other => bail!("KEYS answers {other:?}"),
            }
        }
        Ok(stage.completed() - served_before >= LISTINGS)
    })?;
    drop(greedy);
    stage.clear()
}

fn transaction(scene: &Scene<'_>) -> Result<Outcome> {
    let options = ["--durability", "never", "--elements-per-command-max", "0"];
    let stage = Stage::resp(scene.start(&options)?, Habit::Writes)?;
    let subject = &stage.subject;
    let mut connection = queue(subject, QUEUED_MAX)?;
    stage.others_complete(1).context("during the transaction")?;
    let Value::Array(Some(replies)) = connection.call(&["EXEC"])? else { bail!("EXEC fails") };
    ensure!(replies.len() == QUEUED_MAX, "{} replies", replies.len());
    expect_integer(replies.last().context("many")?, QUEUED_MAX as u64)?;
    drop((replies, connection));
    let mut connection = queue(subject, QUEUED_MAX)?;
    let one_more = connection.call(&["INCR", "n"])?;
    expect_error(&one_more, "ERR transaction is too large")?;
    let text = "EXECABORT Transaction discarded because of previous errors.";
    expect_error(&connection.call(&["EXEC"])?, text)?;
    expect_simple(&connection.call(&["PING"])?, "PONG")?;
    drop(connection);
    stage.clear()
}

/// A connection with `count` commands in its transaction.
fn queue(subject: &Subject, count: usize) -> Result<Connection> {
    let mut connection = subject.connect()?;
    expect_simple(&connection.call(&["MULTI"])?, "OK")?;
    let incr = request(&["INCR", "n"]);
    for first in (0..count).step_by(4096) {
        let batch = 4096.min(count - first);
        connection.send_raw(&incr.repeat(batch))?;
        for _ in 0..batch {
            expect_simple(&connection.read()?, "QUEUED")?;
        }
    }
    Ok(connection)
}

fn watches(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let names: Vec<String> = (0..WATCHED_MAX).map(|number| format!("watched:{number}")).collect();
    let watch = |names: &[String]| request(&[&["WATCH".to_owned()][..], names].concat());
    let watch: Vec<u8> = names.chunks(WATCHED_MAX / 4).flat_map(watch).collect();
    let mut watchers = Vec::new();
    for _ in 0..8 {
        let mut stream = connect(&stage.address)?;
        stream.write_all(&watch)?;
        // The same keys again cost nothing.
        stream.write_all(&watch)?;
        stream.write_all(&request(&["WATCH", "one more"]))?;
        watchers.push(stream);
    }
    for stream in &mut watchers {
        expect_bytes(
            stream,
            &[&b"+OK\r\n".repeat(8)[..], b"-ERR too many watched keys\r\n"].concat(),
        )?;
    }
    stage.others_are_served()?;
    // One of many keys is enough.
    expect_simple(&stage.subject.connect()?.call(&["SET", "watched:40000", "x"])?, "OK")?;
    for stream in &mut watchers {
        stream.write_all(&[request(&["MULTI"]), request(&["EXEC"])].concat())?;
        expect_bytes(stream, b"+OK\r\n*-1\r\n")?;
    }
    drop(watchers);
    stage.clear()
}

fn large_value(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&["--durability", "never"])?, Habit::Writes)?;
    let mut connection = connect(&stage.address)?;
    let announced = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${VALUE_BYTES_MAX}\r\n");
    connection.write_all(announced.as_bytes())?;
    let chunk = vec![b'v'; 1 << 20];
    let chunks = VALUE_BYTES_MAX / chunk.len();
    for number in 0..chunks {
        connection.write_all(&chunk)?;
        if number == chunks / 2 {
            stage.others_complete(1).context("during the large value")?;
        }
    }
    connection.write_all(b"\r\n")?;
    expect_bytes(&mut connection, b"+OK\r\n")?;
    let mut control = stage.subject.connect()?;
    expect_integer(&control.call(&["STRLEN", "large"])?, VALUE_BYTES_MAX as u64)?;
    let too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    expect_error(&control.call(&["APPEND", "large", "x"])?, too_long)?;
    let end = VALUE_BYTES_MAX.to_string();
    expect_error(&control.call(&["SETRANGE", "large", &end, "x"])?, too_long)?;
    let longer = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${}\r\n", VALUE_BYTES_MAX + 1);
    let refusal = b"-ERR Protocol error: invalid bulk length\r\n";
    expect_closed(&stage.address, longer.as_bytes(), refusal)?;
    stage.others_are_served()?;
    expect_integer(&control.call(&["DEL", "large"])?, 1)?;
    drop((connection, control));
    stage.clear()
}

/// Error replies since the start.
fn errors(subject: &Subject) -> Result<u64> {
    subject.info_number("total_error_replies")
}

/// One small transaction whose reply would be 64 GiB: the excess is refused before it is generated,
/// and earlier replies are kept.
fn large_reply(scene: &Scene<'_>) -> Result<Outcome> {
    const VALUE_BYTES: usize = 64 << 20;
    const TIMES: usize = 1024;
    const GETS: usize = 4;
    let stage = Stage::resp(scene.start(&["--durability", "never"])?, Habit::Writes)?;
    let subject = &stage.subject;
    let mut control = subject.connect()?;
    let value = vec![b'v'; VALUE_BYTES];
    expect_simple(&control.call(&[b"SET".as_slice(), b"large", &value])?, "OK")?;
    let errors_before = errors(subject)?;
    let mut queued = connect(&stage.address)?;
    queued.write_all(&request(&["MULTI"]))?;
    queued.write_all(&request(&["GET", "large"]).repeat(GETS))?;
    queued.write_all(&request(&[&["MGET"][..], &["large"; TIMES]].concat()))?;
    queued.write_all(&request(&["EXEC"]))?;
    let begin = format!("+OK\r\n{}*{}\r\n", "+QUEUED\r\n".repeat(GETS + 1), GETS + 1);
    expect_bytes(&mut queued, begin.as_bytes())?;
    // The end of the reply need not be read to detect that it is an error.
    until("the last reply is refused", || Ok(errors(subject)? > errors_before))?;
    stage.others_are_served()?;
    reset(queued)?;
    expect_integer(&control.call(&["DEL", "large"])?, 1)?;
    drop(control);
    stage.clear()
}
