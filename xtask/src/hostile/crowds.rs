//! Too many connections, and connections that end abnormally.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, getrlimit};

use super::ask::{self, connect, expect_bytes, expect_simple, read_to_end};
use super::bystander::{Bystander, Habit};
use super::stage::Stage;
use super::subject::Subject;
use super::{Check, Outcome, Scene, until};
use crate::process::TempDir;
use crate::resp::request;

/// The number of connections that the server supports.
pub(super) const CROWD: usize = 10_000;
/// Descriptors that this process and the server need in addition to those of the connections.
const DESCRIPTORS_BESIDES: u64 = 200;
/// Maximum memory of a connection that has just been served.
const CONNECTION_BYTES_MAX: u64 = 8 << 10;
/// Rounds of the bystander that prove that it is served.
const ROUNDS: u64 = 50;
const CLIENTS_MAX: usize = 50;
const DESCRIPTORS_FEW: usize = 200;
const REFUSAL: &[u8] = b"-ERR max number of clients reached\r\n";
/// Time to wait for a refusal of a connection.
const LISTENED: Duration = Duration::from_millis(20);
/// Time over which the processor time of a refusing server is measured.
const WATCHED: Duration = Duration::from_millis(500);
/// Maximum share of that time: a loop that spins uses all of it.
const BUSY_PERCENT_MAX: u128 = 50;
const RESETS: usize = 2000;
const HALF_OPEN: usize = 200;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "10,000 connections at once", suits_any_server: false, run: crowd },
    Check { name: "maxclients", suits_any_server: false, run: clients_max },
    Check { name: "few descriptors", suits_any_server: false, run: few_descriptors },
    Check { name: "no descriptors left", suits_any_server: false, run: no_descriptors },
    Check { name: "half-open connections", suits_any_server: true, run: half_open },
    Check { name: "reset storm", suits_any_server: true, run: resets },
];

/// Skips a check with [`CROWD`] connections if this process may not open as many.
pub(super) fn skipped_crowd() -> Option<Outcome> {
    let needed = CROWD as u64 + DESCRIPTORS_BESIDES;
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (allowed < needed).then(|| {
        Outcome::Skipped(format!(
            "{needed} descriptors are needed and {allowed} allowed: ulimit -n"
        ))
    })
}

fn crowd(scene: &Scene<'_>) -> Result<Outcome> {
    if let Some(skipped) = skipped_crowd() {
        return Ok(skipped);
    }
    let stage = Stage::resp(scene.start(&["--maxclients", "10100"])?, Habit::Writes)?;
    let subject = &stage.subject;
    let mut streams = Vec::with_capacity(CROWD);
    for number in 0..CROWD {
        streams.push(connect(&stage.address).with_context(|| format!("connection {number}"))?);
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&request(&["ECHO", &number.to_string()]))?;
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let text = number.to_string();
        expect_bytes(stream, format!("${}\r\n{text}\r\n", text.len()).as_bytes())?;
    }
    stage.others_are_served()?;
    let grown_bytes = subject.resident_bytes()?.saturating_sub(stage.before_bytes);
    ensure!(
        grown_bytes <= CROWD as u64 * CONNECTION_BYTES_MAX,
        "{CROWD} connections cost {} KiB",
        grown_bytes >> 10
    );
    ensure!(subject.info_number("connected_clients")? >= CROWD as u64, "INFO counts fewer");
    // Resets leave no socket in the kernel, so that the next run can use all ports.
    streams.into_iter().try_for_each(ask::reset)?;
    stage.clear()
}

fn clients_max(scene: &Scene<'_>) -> Result<Outcome> {
    let options = ["--maxclients", &CLIENTS_MAX.to_string()];
    let stage = Stage::resp(scene.start(&options)?, Habit::Writes)?;
    let subject = &stage.subject;
    let mut streams: Vec<TcpStream> = Vec::new();
    for _ in 1..CLIENTS_MAX {
        let mut stream = connect(&stage.address)?;
        stream.write_all(b"PING\r\n")?;
        expect_bytes(&mut stream, b"+PONG\r\n")?;
        streams.push(stream);
    }
    for _ in 0..CLIENTS_MAX {
        let answer = read_to_end(&mut connect(&stage.address)?)?;
        ensure!(answer == REFUSAL, "over maxclients: {}", ask::shown(&answer));
    }
    stage.others_are_served()?;
    for stream in &mut streams {
        stream.write_all(b"PING\r\n")?;
        expect_bytes(stream, b"+PONG\r\n")?;
    }
    drop(streams);
    until_accepted(subject)?;
    let rejected = subject.info_number("rejected_connections")?;
    ensure!(rejected >= CLIENTS_MAX as u64, "INFO counts {rejected} rejected connections");
    stage.end()
}

/// Few descriptors at the start: connections leave enough for the log.
fn few_descriptors(scene: &Scene<'_>) -> Result<Outcome> {
    let directory = TempDir::new("hostile")?;
    let limit = format!("--nofile={DESCRIPTORS_FEW}");
    let options = ["--log-segment-bytes", "64kb"];
    let subject = Subject::start_on(scene.root, directory.path(), &options, &[&limit])?;
    let mut control = subject.connect()?;
    let stage = Stage::resp(subject, Habit::Writes)?;
    let subject = &stage.subject;
    let served = crowd_of(subject, 2 * DESCRIPTORS_FEW)?;
    ensure!((1..DESCRIPTORS_FEW).contains(&served.len()), "{} served", served.len());
    let value = vec![b'v'; 8 << 10];
    for round in 0..100 {
        let answer = control.call(&[b"SET".as_slice(), b"rolls", &value])?;
        expect_simple(&answer, "OK").with_context(|| format!("write {round}: segments roll"))?;
    }
    stage.others_are_served()?;
    drop((served, control));
    until_accepted(subject)?;
    stage.end()
}

/// No descriptors later: connections wait in the kernel and cannot be accepted.
fn no_descriptors(scene: &Scene<'_>) -> Result<Outcome> {
    const LEFT: usize = 20;
    let subject = scene.start(&[])?;
    let bystander = Bystander::start(&subject.address, Habit::Writes)?;
    subject.limit_descriptors(LEFT as u64)?;
    let served = crowd_of(&subject, 200)?;
    ensure!((1..=LEFT).contains(&served.len()), "{} served", served.len());
    bystander.completes(ROUNDS)?;
    bystander.stop()?;
    // The bystander's descriptor is free again; after one more connection none is.
    let mut waiting = Vec::new();
    until("one of the second crowd is served", || {
        waiting = crowd_of(&subject, 50)?;
        Ok(!waiting.is_empty())
    })?;
    // Earlier work may not be finished, and some machines account stolen time to the process; a
    // loop that spins never becomes idle.
    until("the server rests while connections wait", || {
        let (started, before_ms) = (Instant::now(), subject.cpu_ms()?);
        std::thread::sleep(WATCHED);
        let used_ms = u128::from(subject.cpu_ms()? - before_ms);
        Ok(used_ms <= started.elapsed().as_millis() * BUSY_PERCENT_MAX / 100)
    })?;
    waiting.extend(served);
    for stream in &mut waiting {
        stream.write_all(b"PING\r\n")?;
        expect_bytes(stream, b"+PONG\r\n")?;
    }
    drop(waiting);
    until_accepted(&subject)?;
    subject.stop()?;
    Ok(Outcome::Passed)
}

/// Opens `count` connections at once. Returns the served ones; the others must get the documented
/// refusal, or a reset if they sent bytes first.
fn crowd_of(subject: &Subject, count: usize) -> Result<Vec<TcpStream>> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(connect(&subject.address)?);
    }
    let (mut served, mut listening, mut told) = (Vec::new(), Vec::new(), 0);
    for (number, mut stream) in streams.into_iter().enumerate() {
        // Every other connection only reads, and must get the refusal.
        if number % 2 == 1 {
            listening.push(stream);
            continue;
        }
        let mut first = [0; 1];
        // It may be refused already: the answer shows that.
        let _ = stream.write_all(b"PING\r\n");
        if stream.read(&mut first).is_ok_and(|count| count == 1) && first == *b"+" {
            expect_bytes(&mut stream, b"PONG\r\n")?;
            served.push(stream);
        }
    }
    // Connections are accepted in order: the ones before an answered connection have been refused
    // by now.
    for mut stream in listening {
        stream.set_read_timeout(Some(LISTENED))?;
        let mut answer = Vec::new();
        // An accepted connection is silent until the timeout.
        if stream.read_to_end(&mut answer).is_ok() {
            ensure!(answer == REFUSAL, "refused by {}", ask::shown(&answer));
            told += 1;
        }
    }
    ensure!(told > 0, "{} served, and none got the refusal", served.len());
    Ok(served)
}

/// Waits until connections are accepted again.
fn until_accepted(subject: &Subject) -> Result<()> {
    until("a new connection is served", || {
        let mut stream = connect(&subject.address)?;
        // It may be refused once more, which this function waits out.
        let _ = stream.write_all(b"PING\r\n");
        let _ = stream.shutdown(Shutdown::Write);
        Ok(read_to_end(&mut stream)? == b"+PONG\r\n")
    })
}

/// Peers that send nothing, and peers that shut down their side before they are answered.
fn half_open(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let mut silent = Vec::new();
    for _ in 0..HALF_OPEN {
        silent.push(connect(&stage.address)?);
        let answer = ask::say_and_leave(&stage.address, &request(&["SET", "half", "open"]))?;
        ensure!(answer == b"+OK\r\n", "half-open: {}", ask::shown(&answer));
    }
    stage.others_are_served()?;
    for stream in &mut silent {
        ask::expect_silence(stream)?;
    }
    drop(silent);
    stage.clear()
}

/// Resets during requests, replies, transactions and blocking commands.
fn resets(scene: &Scene<'_>) -> Result<Outcome> {
    let stage = Stage::resp(scene.start(&[])?, Habit::Writes)?;
    let subject = &stage.subject;
    let value = vec![b'v'; 256 << 10];
    let set = request(&[b"SET".as_slice(), b"large", &value]);
    ensure!(ask::say_and_leave(&stage.address, &set)? == b"+OK\r\n", "SET");
    let mischief: [Vec<u8>; 6] = [
        Vec::new(),
        b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1000\r\nhalf".to_vec(),
        request(&["GET", "large"]).repeat(20),
        [request(&["WATCH", "a", "b"]), request(&["MULTI"]), request(&["GET", "large"])].concat(),
        request(&["DEBUG", "SLEEP", "1000"]),
        request(&["SET", "reset", "storm"]).repeat(100),
    ];
    for bytes in mischief.iter().cycle().take(RESETS) {
        let mut stream = connect(&stage.address)?;
        stream.write_all(bytes)?;
        ask::reset(stream)?;
    }
    subject.until_connections(1)?;
    // The server counts a connection as closed a moment before it removes what the connection
    // waited for.
    until("no client is blocked", || Ok(subject.info_number("blocked_clients")? == 0))?;
    stage.clear()
}
