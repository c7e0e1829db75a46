//! One connection of the pipeline by way of a broker: what comes on it is said under one subject, and
//! what is heard under another one goes out on it.
//!
//! A message is a number, counted from 0 in each direction, a byte that says what it is, and bytes of
//! the connection. A broker may drop what is too much for it; then a number is missing, and the
//! connection ends. How much is under way is bounded by the credits of whoever speaks here.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use super::nats::{BrokerError, Hearer, Speaker};

/// Of a connection, in one message: more than a frame of 4,096 results.
pub(super) const CHUNK_BYTES_MAX: usize = 256 << 10;
const HEAD_BYTES: usize = 9;
pub(super) const MESSAGE_BYTES_MAX: usize = HEAD_BYTES + CHUNK_BYTES_MAX;

/// Who has nothing to say says so once in this time.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// Who has not been heard for so long is gone: a broker does not tell.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Nor that nobody serves a place; whoever asked is let go, and asks again.
const OPENING_MAX: Duration = Duration::from_secs(1);

const OPENED: u8 = 0;
const DATA: u8 = 1;
const ALIVE: u8 = 2;
const END: u8 = 3;

/// A number of its own for each direction.
struct Saying<'a> {
    speaker: &'a Speaker,
    subject: &'a str,
    number: u64,
}

impl Saying<'_> {
    fn say(&mut self, kind: u8, bytes: &[u8]) -> Result<(), BrokerError> {
        let number = self.number.to_be_bytes();
        self.number += 1;
        self.speaker.publish(self.subject, &[&number, &[kind], bytes])
    }
}

/// What has been heard, in its order.
struct Hearing {
    hearer: Hearer,
    message: Vec<u8>,
    number: u64,
}

impl Hearing {
    fn next(&mut self) -> Result<(u8, &[u8]), BrokerError> {
        self.hearer.next(&mut self.message)?;
        let (number, rest) = split(&self.message)?;
        if number != self.number {
            let (expected, found) = (self.number, number);
            return Err(BrokerError::Missing { expected, found });
        }
        self.number += 1;
        let (kind, bytes) = rest.split_first().ok_or(BrokerError::Short)?;
        Ok((*kind, bytes))
    }
}

fn split(message: &[u8]) -> Result<(u64, &[u8]), BrokerError> {
    let (number, rest) = message.split_first_chunk().ok_or(BrokerError::Short)?;
    Ok((u64::from_be_bytes(*number), rest))
}

/// The end at which a connection came in: waits until the other end has one too.
pub(super) fn run_near(
    peer: &TcpStream,
    (speaker, hearer): (Speaker, Hearer),
    says: &str,
) -> Result<(), BrokerError> {
    hearer.wait_at_most(Some(OPENING_MAX))?;
    let mut hearing = Hearing { hearer, message: Vec::new(), number: 0 };
    match hearing.next()? {
        (OPENED, _) => {}
        // Nobody is there at the place.
        (END, _) => return Ok(()),
        (kind, _) => return Err(BrokerError::Kind(kind)),
    }
    hearing.hearer.wait_at_most(Some(SILENCE_MAX))?;
    run(peer, &speaker, hearing, Saying { speaker: &speaker, subject: says, number: 0 })
}

/// The end that could not make a connection.
pub(super) fn refuse(speaker: &Speaker, says: &str) -> Result<(), BrokerError> {
    let outcome = Saying { speaker, subject: says, number: 0 }.say(END, &[]);
    speaker.end();
    outcome
}

/// The end that has made a connection.
pub(super) fn run_far(
    peer: &TcpStream,
    (speaker, hearer): (Speaker, Hearer),
    says: &str,
) -> Result<(), BrokerError> {
    hearer.wait_at_most(Some(SILENCE_MAX))?;
    let hearing = Hearing { hearer, message: Vec::new(), number: 0 };
    let mut saying = Saying { speaker: &speaker, subject: says, number: 0 };
    saying.say(OPENED, &[])?;
    run(peer, &speaker, hearing, saying)
}

/// Both directions, until either ends; then both have ended.
fn run(
    peer: &TcpStream,
    speaker: &Speaker,
    mut hearing: Hearing,
    saying: Saying<'_>,
) -> Result<(), BrokerError> {
    peer.set_nodelay(true)?;
    peer.set_read_timeout(Some(ALIVE_EVERY))?;
    thread::scope(|scope| {
        let said = scope.spawn(move || {
            let outcome = say_all(peer, saying);
            // The broker reads what was said to its end, then it closes: so the end is heard too.
            speaker.end();
            outcome
        });
        let heard = hear_all(peer, &mut hearing);
        // The other thread waits for this connection, if it has not ended it.
        let _ = peer.shutdown(Shutdown::Both);
        let said = said.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        heard.and(said)
    })
}

fn say_all(mut peer: &TcpStream, mut saying: Saying<'_>) -> Result<(), BrokerError> {
    let bytes_max = saying.speaker.message_bytes_max.saturating_sub(HEAD_BYTES);
    let mut chunk = vec![0; CHUNK_BYTES_MAX.min(bytes_max).max(1)];
    loop {
        match peer.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => saying.say(DATA, &chunk[..count])?,
            Err(error) if is_timeout(&error) => saying.say(ALIVE, &[])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A connection that breaks off ends like one that is closed.
            Err(_) => break,
        }
    }
    saying.say(END, &[])
}

fn hear_all(mut peer: &TcpStream, hearing: &mut Hearing) -> Result<(), BrokerError> {
    loop {
        match hearing.next() {
            Ok((DATA, bytes)) => peer.write_all(bytes)?,
            Ok((ALIVE, _)) => {}
            // By the other end, or by our own, after which the broker closes.
            Ok((END, _)) | Err(BrokerError::Closed) => return Ok(()),
            Ok((kind, _)) => return Err(BrokerError::Kind(kind)),
            Err(error) => return Err(error),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
