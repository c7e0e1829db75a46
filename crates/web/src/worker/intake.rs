//! Incoming connections of a worker: accepted by itself, or passed on by the master or another
//! worker.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use base::time::MonoNs;
use reactor::{Trigger, Watcher};

use super::{CONNECTION, NOTICE, STATUS_CONNECTION, Source, TLS_CONNECTION, letter, trigger};
use crate::accept::{Accepted, Acceptor, WAITING_MAX, refuse};
use crate::channel::{Channel, Received};
use crate::config::{Accept, WORKERS_MAX};
use crate::scheme::{Listener, Scheme};
use crate::table::{ABSENT, Slot, Table, least};

/// Messages taken from the mailbox in one turn.
const MESSAGES_MAX: usize = 256;
/// A worker keeps a connection unless it has this many more than the least loaded one: passing one
/// on costs two system calls on each side.
const IMBALANCE_MAX: u64 = 2;

/// How many connections to accept from a listening socket at once.
///
/// An accept call on an empty queue costs more than half of a successful one, because the kernel
/// allocates a socket and a file first. Therefore a worker accepts no more connections than arrived
/// the last time; the poll reports the rest again. Occasionally it tries more.
#[derive(Debug)]
struct Burst {
    size: usize,
    /// Number of consecutive full bursts.
    filled: u32,
}

impl Burst {
    const FILLED_MAX: u32 = 8;

    fn new() -> Burst {
        Burst { size: 1, filled: 0 }
    }

    /// Adapts to a burst in which `taken` of `most` connections arrived.
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

/// Addresses at which no other worker takes over.
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

/// State of accepting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The master has not allowed it yet.
    Closed,
    Open,
    /// Ended for good.
    Ended,
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
    acceptor: Acceptor,
    watcher: Watcher,
    is_watching: bool,
    /// Same for the operator's sockets, which remain polled while clients are paused.
    is_watching_status: bool,
    stage: Stage,
    /// Last value written to the table.
    published: u64,
}

/// Result of one round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) arrivals: Vec<Arrival>,
    /// Accepting must pause after a failure.
    pub(crate) must_rest: bool,
}

impl Round {
    /// Adds connections that were passed on.
    fn take(&mut self, sockets: Vec<OwnedFd>, scheme: Scheme) {
        for socket in sockets {
            let remote = rustix::net::getpeername(&socket).ok();
            let remote = remote.and_then(|name| SocketAddr::try_from(name?).ok());
            self.arrivals.push(Arrival { socket, remote, scheme });
        }
    }
}

impl Intake {
    #[expect(clippy::too_many_arguments, reason = "all resources of a worker")]
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
            acceptor: Acceptor::new(),
            watcher,
            is_watching: false,
            is_watching_status: false,
            stage: Stage::Closed,
            published: ABSENT,
        }
    }

    /// Starts to poll the mailbox.
    pub(crate) fn begin(&mut self) -> std::io::Result<()> {
        self.watcher.add(&self.mailbox, Source::Mailbox.number(), Trigger::Level)?;
        self.publish(0);
        Ok(())
    }

    /// Starts to accept connections.
    pub(crate) fn open(&mut self) -> std::io::Result<()> {
        if self.stage == Stage::Closed {
            self.stage = Stage::Open;
        }
        self.resume()
    }

    /// Polls the listening sockets, if the strategy requires it.
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

    /// Whether the listening sockets of a scheme are polled.
    fn watches(&self, scheme: Scheme) -> bool {
        if scheme == Scheme::Status { self.is_watching_status } else { self.is_watching }
    }

    /// Stops accepting clients, which wait in the kernel's queue.
    pub(crate) fn pause(&mut self) {
        self.ignore(|scheme| scheme != Scheme::Status);
        self.is_watching = false;
    }

    /// Stops accepting the operator's connections too.
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
                tracing::warn!(%error, "could not stop polling a listening socket");
            }
        }
    }

    /// Stops accepting for good. First accepts the connections waiting at finished addresses,
    /// because no other worker will.
    pub(crate) fn end(&mut self, finished: &Finished) -> Vec<Arrival> {
        self.pause_all();
        self.stage = Stage::Ended;
        let mut arrivals = Vec::new();
        for index in 0..self.listeners.len() {
            if finished.has(self.listeners[index].address) {
                self.accept_all(index, WAITING_MAX, &mut arrivals);
            }
        }
        self.listeners.clear();
        arrivals
    }

    /// Publishes the number of connections to master and workers.
    pub(crate) fn publish(&mut self, connections: u64) {
        let is_read =
            self.workers > 1 && matches!(self.accept, Accept::LeastLoaded | Accept::Fdpass);
        let number = if self.stage == Stage::Ended { ABSENT } else { connections };
        if number != self.published && (is_read || self.published == ABSENT) {
            self.published = number;
            if let Err(error) = self.table.set(self.slot, number) {
                tracing::warn!(%error, "could not write the table of workers");
            }
        }
    }

    /// Returns the published states of all workers.
    pub(crate) fn slots(&self) -> [Slot; WORKERS_MAX] {
        self.table.slots()
    }

    /// Publishes a heartbeat.
    pub(crate) fn beat(&mut self, now: MonoNs) {
        if let Err(error) = self.table.beat(self.slot, now) {
            tracing::warn!(%error, "could not write the table of workers");
        }
    }

    /// Accepts connections waiting at a listening socket.
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

    /// Returns false if accepting must pause.
    fn accept_all(&mut self, listener: usize, most: usize, arrivals: &mut Vec<Arrival>) -> bool {
        let listener = &self.listeners[listener];
        let scheme = listener.scheme;
        for _ in 0..most {
            match self.acceptor.accept(listener, scheme) {
                Accepted::Connection(socket, remote) => {
                    arrivals.push(Arrival { socket, remote, scheme });
                }
                Accepted::Gone => {}
                Accepted::Empty => break,
                Accepted::Rest => return false,
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
                // The mailbox of the target is full, so serve the connection here.
                arrivals.push(arrival);
                numbers[slot] = ABSENT;
            }
        }
    }

    /// Handles messages in the mailbox.
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
                    other => tracing::warn!(bytes = other.len(), "malformed message in mailbox"),
                },
                Ok(Received::Empty | Received::Closed) => break,
                Err(error) => {
                    tracing::warn!(%error, "connection in transfer lost");
                    round.must_rest = true;
                    break;
                }
            }
        }
        round
    }

    /// Returns the number of connections refused for lack of descriptors since the last call.
    pub(crate) fn take_refused(&mut self) -> u64 {
        self.acceptor.take_refused()
    }

    /// Refuses a connection that exceeds a limit.
    pub(crate) fn refuse(arrival: &Arrival) {
        refuse(&arrival.socket, arrival.scheme);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_follows_the_arrivals() {
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
