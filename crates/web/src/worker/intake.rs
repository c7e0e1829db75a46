//! How connections come to a worker: accepted by itself, or passed on by the master or another worker.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use base::time::MonoNs;
use reactor::{Trigger, Watcher};

use super::{CONNECTION, NOTICE, STATUS_CONNECTION, Source, TLS_CONNECTION, letter, trigger};
use crate::channel::{Channel, Received};
use crate::config::{Accept, WORKERS_MAX};
use crate::door::{Door, Entry, WAITING_MAX, refuse};
use crate::scheme::{Listener, Scheme};
use crate::table::{ABSENT, Slot, Table, least};

/// Messages taken from the mailbox before connections are served again.
const MESSAGES_MAX: usize = 256;
/// A worker keeps a connection unless it has this many more than the least loaded one: passing one on
/// costs two system calls here and two there.
const IMBALANCE_MAX: u64 = 2;

/// How many connections to take from a listening socket at once.
///
/// To find that nobody waits costs more than half of an accepted connection: the kernel makes a socket
/// and a file before it looks. So no more are taken than came the last time; who waits longer is
/// reported again. Now and then more are tried for.
#[derive(Debug)]
struct Burst {
    size: usize,
    /// How often in a row as many came as were asked for.
    filled: u32,
}

impl Burst {
    const FILLED_MAX: u32 = 8;

    fn new() -> Burst {
        Burst { size: 1, filled: 0 }
    }

    /// `taken` came of `most` that were asked for.
    fn learn(&mut self, taken: usize, most: usize) {
        if taken < most {
            *self = Burst { size: taken.max(1), filled: 0 };
            return;
        }
        self.filled += 1;
        if self.filled == Burst::FILLED_MAX {
            *self = Burst { size: most.saturating_mul(2), filled: 0 };
        }
    }
}

/// A connection for this worker.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) socket: OwnedFd,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) scheme: Scheme,
}

/// Addresses where no other worker takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finished {
    All,
    These(Vec<u32>),
}

impl Finished {
    fn has(&self, address: u32) -> bool {
        match self {
            Finished::All => true,
            Finished::These(addresses) => addresses.contains(&address),
        }
    }
}

/// How far a worker is with accepting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The master has not said that it may.
    Closed,
    Open,
    /// It never will again.
    Over,
}

#[derive(Debug)]
pub(crate) struct Intake {
    accept: Accept,
    accept_max: usize,
    slot: usize,
    workers: usize,
    listeners: Vec<Listener>,
    /// One per listening socket.
    bursts: Vec<Burst>,
    mailbox: Channel,
    mailboxes: Vec<Channel>,
    table: Table,
    door: Door,
    watcher: Watcher,
    is_watching: bool,
    /// The same of those of the operator, who is heard when no client is.
    is_watching_status: bool,
    stage: Stage,
    /// As last written to the table.
    published: u64,
}

/// What one round brought.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) arrivals: Vec<Arrival>,
    /// Accepting cannot go on now: rest.
    pub(crate) must_rest: bool,
}

impl Round {
    /// Connections that were passed on.
    fn take(&mut self, sockets: Vec<OwnedFd>, scheme: Scheme) {
        for socket in sockets {
            let remote = rustix::net::getpeername(&socket).ok();
            let remote = remote.and_then(|name| SocketAddr::try_from(name?).ok());
            self.arrivals.push(Arrival { socket, remote, scheme });
        }
    }
}

impl Intake {
    #[expect(clippy::too_many_arguments, reason = "everything that a worker is given")]
    pub(crate) fn new(
        accept: Accept,
        accept_max: usize,
        slot: usize,
        listeners: Vec<Listener>,
        mailbox: Channel,
        mailboxes: Vec<Channel>,
        table: Table,
        watcher: Watcher,
    ) -> Intake {
        let workers = mailboxes.len();
        Intake {
            accept,
            accept_max,
            slot,
            workers,
            bursts: listeners.iter().map(|_| Burst::new()).collect(),
            listeners,
            mailbox,
            mailboxes,
            table,
            door: Door::new(),
            watcher,
            is_watching: false,
            is_watching_status: false,
            stage: Stage::Closed,
            published: ABSENT,
        }
    }

    /// Begins to take connections that are passed on.
    pub(crate) fn begin(&mut self) -> std::io::Result<()> {
        self.watcher.add(&self.mailbox, Source::Mailbox.number(), Trigger::Level)?;
        self.publish(0);
        Ok(())
    }

    /// Begins to accept connections.
    pub(crate) fn open(&mut self) -> std::io::Result<()> {
        if self.stage == Stage::Closed {
            self.stage = Stage::Open;
        }
        self.resume()
    }

    /// Watches the listening sockets, where this worker does.
    pub(crate) fn resume(&mut self) -> std::io::Result<()> {
        if self.stage != Stage::Open {
            return Ok(());
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            if let Some(trigger) = trigger(self.accept, listener.scheme)
                && !self.watches(listener.scheme)
            {
                self.watcher.add(listener, Source::Listener(index).number(), trigger)?;
            }
        }
        (self.is_watching, self.is_watching_status) = (true, true);
        Ok(())
    }

    /// Whether the listening sockets of a scheme are watched.
    fn watches(&self, scheme: Scheme) -> bool {
        if scheme == Scheme::Status { self.is_watching_status } else { self.is_watching }
    }

    /// Lets connections of clients wait in the kernel.
    pub(crate) fn pause(&mut self) {
        self.ignore(|scheme| scheme != Scheme::Status);
        self.is_watching = false;
    }

    /// The same with those of the operator.
    pub(crate) fn pause_all(&mut self) {
        self.ignore(|_| true);
        (self.is_watching, self.is_watching_status) = (false, false);
    }

    fn ignore(&self, is_meant: impl Fn(Scheme) -> bool) {
        for listener in &self.listeners {
            let scheme = listener.scheme;
            let is_watched = trigger(self.accept, scheme).is_some() && self.watches(scheme);
            if is_watched
                && is_meant(scheme)
                && let Err(error) = self.watcher.remove(listener)
            {
                tracing::warn!(%error, "a listening socket cannot be left");
            }
        }
    }

    /// Takes no more connections from the listening sockets. Those that wait at an address that is
    /// finished are taken first, because no other worker will.
    pub(crate) fn end(&mut self, finished: &Finished) -> Vec<Arrival> {
        self.pause_all();
        self.stage = Stage::Over;
        let mut arrivals = Vec::new();
        for index in 0..self.listeners.len() {
            if finished.has(self.listeners[index].address) {
                self.accept_all(index, WAITING_MAX, &mut arrivals);
            }
        }
        self.listeners.clear();
        arrivals
    }

    /// Makes the number of connections known to master and workers.
    pub(crate) fn publish(&mut self, connections: u64) {
        let is_read =
            self.workers > 1 && matches!(self.accept, Accept::LeastLoaded | Accept::Fdpass);
        let number = if self.stage == Stage::Over { ABSENT } else { connections };
        if number != self.published && (is_read || self.published == ABSENT) {
            self.published = number;
            if let Err(error) = self.table.set(self.slot, number) {
                tracing::warn!(%error, "the table of workers cannot be written");
            }
        }
    }

    /// All workers as they show themselves.
    pub(crate) fn slots(&self) -> [Slot; WORKERS_MAX] {
        self.table.slots()
    }

    /// Shows that the loop runs.
    pub(crate) fn beat(&mut self, now: MonoNs) {
        if let Err(error) = self.table.beat(self.slot, now) {
            tracing::warn!(%error, "the table of workers cannot be written");
        }
    }

    /// Somebody waits at a listening socket.
    pub(crate) fn accept(&mut self, listener: usize, connections: usize) -> Round {
        let mut round = Round::default();
        let scheme = self.listeners.get(listener).map(|listener| listener.scheme);
        if !scheme.is_some_and(|scheme| self.watches(scheme)) {
            return round;
        }
        let most = self.bursts[listener].size.min(self.accept_max);
        round.must_rest = !self.accept_all(listener, most, &mut round.arrivals);
        self.bursts[listener].learn(round.arrivals.len(), most);
        let is_site = self.listeners[listener].scheme != Scheme::Status;
        if self.accept == Accept::LeastLoaded && self.workers > 1 && is_site {
            self.share(connections as u64, &mut round.arrivals);
        }
        round
    }

    /// False if accepting has to rest.
    fn accept_all(&mut self, listener: usize, most: usize, arrivals: &mut Vec<Arrival>) -> bool {
        let listener = &self.listeners[listener];
        let scheme = listener.scheme;
        for _ in 0..most {
            match self.door.accept(listener, scheme) {
                Entry::Connection(socket, remote) => {
                    arrivals.push(Arrival { socket, remote, scheme });
                }
                Entry::Gone => {}
                Entry::Empty => break,
                Entry::Rest => return false,
            }
        }
        true
    }

    /// Passes new connections on while this worker has more than others.
    fn share(&mut self, connections: u64, arrivals: &mut Vec<Arrival>) {
        let mut numbers = self.table.read();
        let mut own = connections + arrivals.len() as u64;
        numbers[self.slot] = ABSENT;
        while let Some((slot, fewest)) = least(&numbers)
            && own >= fewest + IMBALANCE_MAX
            && let Some(arrival) = arrivals.pop()
        {
            if self.mailboxes[slot].send(letter(arrival.scheme), &[arrival.socket.as_fd()]).is_ok()
            {
                numbers[slot] += 1;
                own -= 1;
            } else {
                // Its mailbox is full: what is here is served here.
                arrivals.push(arrival);
                numbers[slot] = ABSENT;
            }
        }
    }

    /// Something is in the mailbox.
    pub(crate) fn open_mail(&mut self) -> Round {
        let mut round = Round::default();
        for _ in 0..MESSAGES_MAX {
            match self.mailbox.receive_letter() {
                Ok(Received::Message(message)) => match message.bytes.as_slice() {
                    CONNECTION => round.take(message.descriptors, Scheme::Http),
                    TLS_CONNECTION => round.take(message.descriptors, Scheme::Https),
                    STATUS_CONNECTION => round.take(message.descriptors, Scheme::Status),
                    NOTICE => {
                        for index in 0..self.listeners.len() {
                            let most = self.accept_max;
                            round.must_rest |= !self.accept_all(index, most, &mut round.arrivals);
                        }
                    }
                    other => tracing::warn!(bytes = other.len(), "a message that is none came"),
                },
                Ok(Received::Empty | Received::Closed) => break,
                Err(error) => {
                    tracing::warn!(%error, "a passed connection is lost");
                    round.must_rest = true;
                    break;
                }
            }
        }
        round
    }

    /// Connections that were refused for want of descriptors since the last call.
    pub(crate) fn take_refused(&mut self) -> u64 {
        self.door.take_refused()
    }

    /// A connection over a limit.
    pub(crate) fn refuse(arrival: &Arrival) {
        refuse(&arrival.socket, arrival.scheme);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_follows_those_who_come() {
        let check = |waiting: &[usize], sizes: &[usize]| {
            let mut burst = Burst::new();
            let asked: Vec<usize> = waiting
                .iter()
                .map(|waiting| {
                    let size = burst.size;
                    burst.learn(size.min(*waiting), size);
                    size
                })
                .collect();
            assert_eq!(asked, sizes);
        };
        check(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1], &[1, 1, 1, 1, 1, 1, 1, 1, 2, 1]);
        check(&[0, 0], &[1, 1]);
        check(&[9; 18], &[1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 4, 4]);
    }
}
