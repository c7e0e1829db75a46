//! Writes to one master: half of them to keys that all masters write, half to new keys of its own.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use wire::resp::encode_request;

use crate::repro::masters::connection::{Connection, is_lost};

/// Keys that all masters write.
pub(super) const SHARED_KEYS: u32 = 1_000;
/// Requests per write to the socket.
const BATCH: usize = 16;
/// Time between two attempts to connect to a master that was killed.
const RETRY: Duration = Duration::from_millis(5);

/// What one master was sent, in order.
#[derive(Debug)]
pub(super) struct Written {
    /// Place of the master.
    pub(super) at: usize,
    pub(super) writes: Vec<Write>,
    /// When the last reply arrived.
    pub(super) ended: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Write {
    /// The number of the key, if all masters write it.
    pub(super) shared: Option<u32>,
    /// Otherwise the connection was lost: the master may have the write or not.
    pub(super) is_answered: bool,
}

pub(super) fn shared_key(number: u32) -> String {
    format!("shared:{number}")
}

pub(super) fn own_key(at: usize, index: usize) -> String {
    format!("own:{at}:{index}")
}

/// The value of the write at this index.
pub(super) fn value(at: usize, index: usize) -> String {
    format!("{at}:{index}")
}

/// The place of the master, and the index of the write.
pub(super) fn parsed(value: &[u8]) -> Option<(usize, usize)> {
    let (at, index) = str::from_utf8(value).ok()?.split_once(':')?;
    Some((at.parse().ok()?, index.parse().ok()?))
}

/// Runs `run` on the connection of a slot, which is opened if there is none. `None`: the connection
/// was lost.
pub(super) fn attempt<T>(
    slot: &mut Option<Connection>,
    address: SocketAddr,
    run: impl FnOnce(&mut Connection) -> Result<T>,
) -> Result<Option<T>> {
    let opened = slot.take().map_or_else(|| Connection::open(address), Ok);
    match opened.and_then(|mut connection| Ok((run(&mut connection)?, connection))) {
        Ok((result, connection)) => {
            *slot = Some(connection);
            Ok(Some(result))
        }
        Err(error) if is_lost(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes to a master until a time.
pub(super) fn write(address: SocketAddr, at: usize, until: Instant) -> Result<Written> {
    let mut written = Written { at, writes: Vec::new(), ended: Instant::now() };
    let mut random = SmallRng::seed_from_u64(u64::try_from(at)?);
    let mut connection = None;
    while Instant::now() < until {
        let sent = attempt(&mut connection, address, |connection| {
            let first = written.writes.len();
            connection.send(&written.plan(&mut random), BATCH)?;
            written.writes[first..].iter_mut().for_each(|write| write.is_answered = true);
            written.ended = Instant::now();
            Ok(())
        })?;
        if sent.is_none() {
            thread::sleep(RETRY);
        }
    }
    Ok(written)
}

impl Written {
    /// Adds the next writes, without answers. Returns their requests.
    fn plan(&mut self, random: &mut SmallRng) -> Vec<u8> {
        let mut requests = Vec::new();
        for index in self.writes.len()..self.writes.len() + BATCH {
            let shared = (index % 2 == 0).then(|| random.random_range(0..SHARED_KEYS));
            let key = shared.map_or_else(|| own_key(self.at, index), shared_key);
            let value = value(self.at, index);
            encode_request(&[b"SET", key.as_bytes(), value.as_bytes()], &mut requests);
            self.writes.push(Write { shared, is_answered: false });
        }
        requests
    }

    pub(super) fn answered(&self) -> usize {
        self.writes.iter().filter(|write| write.is_answered).count()
    }

    /// Whether a write to a shared key was answered, at this index or later.
    pub(super) fn has_later(&self, shared: u32, index: usize) -> bool {
        let writes = self.writes.iter().skip(index);
        writes.into_iter().any(|write| write.is_answered && write.shared == Some(shared))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_value_names_its_write() {
        assert_eq!(parsed(value(2, 17).as_bytes()), Some((2, 17)));
        assert_eq!(parsed(b"2:"), None);
        assert_eq!(parsed(b"17"), None);
    }

    /// A server that answers one batch, and closes the next connection without a reply.
    #[test]
    fn writes_without_a_reply_are_undecided() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            let (mut first, _) = listener.accept().unwrap();
            assert!(first.read(&mut bytes).unwrap() > 0);
            first.write_all(&b"+OK\r\n".repeat(BATCH)).unwrap();
            // The second batch of this connection.
            assert!(first.read(&mut bytes).unwrap() > 0);
            drop(first);
            // Until the load has ended.
            while let Ok((mut next, _)) = listener.accept() {
                if next.read(&mut bytes).unwrap_or(0) == 0 {
                    return;
                }
            }
        });
        let written = write(address, 1, Instant::now() + Duration::from_millis(200)).unwrap();
        drop(std::net::TcpStream::connect(address).unwrap());
        server.join().unwrap();
        assert_eq!(written.answered(), BATCH);
        assert!(written.writes.len() >= 2 * BATCH);
        let at = |index: usize| written.writes[index].shared;
        assert!(at(0).is_some() && at(1).is_none());
        assert!(written.has_later(at(0).unwrap(), 0));
        assert!(!written.has_later(at(0).unwrap(), BATCH));
    }
}
