//! The master's part in accepting, for the strategies that involve it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::worker_group::WorkerGroup;
use crate::accept::{Accepted, Acceptor, WAITING_MAX, refuse};
use crate::config::Accept;
use crate::scheme::Scheme;
use crate::table::{ABSENT, least};
#[cfg(feature = "experiments")]
use crate::worker::NOTICE;
use crate::worker::letter;

/// Pause of accepting after a failure that would repeat immediately.
const REST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Dispatch {
    acceptor: Acceptor,
    /// Next worker to notify.
    #[cfg(feature = "experiments")]
    turn: usize,
    pub(crate) is_watching: bool,
    pub(crate) rests_until: Option<Instant>,
}

impl Dispatch {
    pub(crate) fn new() -> Dispatch {
        Dispatch {
            acceptor: Acceptor::new(),
            #[cfg(feature = "experiments")]
            turn: 0,
            is_watching: false,
            rests_until: None,
        }
    }

    pub(crate) fn rest(&mut self) {
        self.rests_until = Some(Instant::now() + REST);
    }

    /// Handles connections waiting at `listener`. Returns false if accepting must pause.
    pub(crate) fn pass_on(
        &mut self,
        group: &mut WorkerGroup,
        listener: &OwnedFd,
        scheme: Scheme,
    ) -> bool {
        match group.config.accept {
            Accept::Fdpass => self.accept(group, listener, scheme),
            #[cfg(feature = "experiments")]
            Accept::NotifyLt | Accept::NotifyEt => {
                self.notify(group);
                true
            }
            _ => true,
        }
    }

    /// Accepts connections, and passes each to the worker with the fewest.
    fn accept(&mut self, group: &WorkerGroup, listener: &OwnedFd, scheme: Scheme) -> bool {
        let mut numbers = group.table().read();
        for _ in 0..group.config.accept_max {
            match self.acceptor.accept(listener, scheme) {
                Accepted::Connection(socket, _) => pass(group, &mut numbers, &socket, scheme),
                Accepted::Gone => {}
                Accepted::Empty => break,
                Accepted::Rest => return false,
            }
        }
        true
    }

    /// Passes on all connections that wait at a socket from which no worker will accept again.
    pub(crate) fn evacuate(&mut self, group: &WorkerGroup, listener: &OwnedFd, scheme: Scheme) {
        let mut numbers = group.table().read();
        for _ in 0..WAITING_MAX {
            match self.acceptor.accept(listener, scheme) {
                // The serial worker has no mailbox.
                Accepted::Connection(socket, _) if group.config.accept.is_serial() => {
                    refuse(&socket, scheme);
                }
                Accepted::Connection(socket, _) => pass(group, &mut numbers, &socket, scheme),
                Accepted::Gone => {}
                Accepted::Empty | Accepted::Rest => return,
            }
        }
    }

    /// Notifies the next worker, as in the historical design: regardless of earlier notifications
    /// and of its load. Drops the notification if its mailbox is full.
    #[cfg(feature = "experiments")]
    fn notify(&mut self, group: &WorkerGroup) {
        let mailboxes = group.senders();
        self.turn = (self.turn + 1) % mailboxes.len().max(1);
        if let Some(mailbox) = mailboxes.get(self.turn) {
            // Full: enough notifications are pending.
            let _ = mailbox.send(NOTICE, &[]);
        }
    }
}

/// Passes a connection to the least loaded worker that accepts it; otherwise refuses it with 503.
fn pass(group: &WorkerGroup, numbers: &mut [u64], socket: &OwnedFd, scheme: Scheme) {
    while let Some((slot, _)) = least(numbers) {
        if group.senders()[slot].send(letter(scheme), &[socket.as_fd()]).is_ok() {
            numbers[slot] += 1;
            return;
        }
        numbers[slot] = ABSENT;
    }
    refuse(socket, scheme);
}
