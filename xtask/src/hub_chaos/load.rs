//! Writes to one master, from a seed: keys that all masters write, and a counter of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::resp::{Connection, Value};

/// Keys of each type.
const KEYS: u32 = 50;
/// Pause after a failure: the server is starting again.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause between writes, so that four servers fit on a small machine.
const INTERVAL: Duration = Duration::from_micros(500);

/// Increments of the counter.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) acknowledged: u64,
}

/// Writes until `is_over`.
pub(super) fn write(
    master: usize,
    address: &str,
    mut random: SmallRng,
    is_over: &AtomicBool,
) -> Counts {
    let mut counts = Counts::default();
    while !is_over.load(Ordering::Relaxed) {
        // The server was killed, or the reply of a write is lost: what it did is unknown.
        if write_some(master, address, &mut random, is_over, &mut counts).is_err() {
            std::thread::sleep(PAUSE);
        }
    }
    counts
}

fn write_some(
    master: usize,
    address: &str,
    random: &mut SmallRng,
    is_over: &AtomicBool,
    counts: &mut Counts,
) -> Result<()> {
    let mut connection = Connection::open(address)?;
    let mut db = 0;
    while !is_over.load(Ordering::Relaxed) {
        if random.random_bool(0.05) {
            db = 3 - db;
            call(&mut connection, &format!("SELECT {db}"))?;
        }
        if db == 0 && random.random_bool(0.2) {
            counts.sent += 1;
            call(&mut connection, &format!("INCR counter{master}"))?;
            counts.acknowledged += 1;
            continue;
        }
        // Only database 3 is emptied: database 0 has the counters.
        if db == 3 && random.random_bool(0.002) {
            call(&mut connection, "FLUSHDB")?;
        }
        call(&mut connection, &request(random, master))?;
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}

fn call(connection: &mut Connection, request: &str) -> Result<()> {
    let words: Vec<&str> = request.split_whitespace().collect();
    match connection.call(&words)? {
        Value::Error(text) => bail!("{request}: {}", String::from_utf8_lossy(&text)),
        _ => Ok(()),
    }
}

fn request(random: &mut SmallRng, master: usize) -> String {
    let (key, value) = (random.random_range(0..KEYS), random.random_range(0..1_000_000));
    match random.random_range(0..12) {
        0 | 1 => format!("SET s{key} {master}-{value}"),
        2 => format!("APPEND s{key} {value}"),
        3 => format!("SET s{key} {value} EX 1000000"),
        4 => format!("RPUSH l{key} {value}"),
        5 => format!("LTRIM l{key} -20 -1"),
        6 => format!("HSET h{key} f{} {value}", value % 50),
        7 => format!("ZADD z{key} {value} m{}", value % 50),
        8 => format!("SADD t{key} {}", value % 100),
        9 => format!("XADD x{key} MAXLEN 20 * f {value}"),
        10 => format!("DEL s{key} l{key} h{key}"),
        _ => format!("COPY l{key} l{} REPLACE", random.random_range(0..KEYS)),
    }
}
