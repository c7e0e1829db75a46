//! The master's part in accepting, for the strategies that give it one.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::team::Team;
use crate::config::Accept;
use crate::door::{Door, Entry, WAITING_MAX, refuse};
use crate::scheme::Scheme;
use crate::table::{ABSENT, least};
use crate::worker::{NOTICE, letter};

/// How long accepting rests after a failure that would only repeat.
const REST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Dispatch {
    door: Door,
    /// The worker whose turn it is to be told.
    turn: usize,
    pub(crate) is_watching: bool,
    pub(crate) rests_until: Option<Instant>,
}

impl Dispatch {
    pub(crate) fn new() -> Dispatch {
        Dispatch { door: Door::new(), turn: 0, is_watching: false, rests_until: None }
    }

    pub(crate) fn rest(&mut self) {
        self.rests_until = Some(Instant::now() + REST);
    }

    /// Somebody waits at `listener`. False if accepting has to rest.
    pub(crate) fn pass_on(&mut self, team: &mut Team, listener: &OwnedFd, scheme: Scheme) -> bool {
        match team.config.accept {
            Accept::Fdpass => self.accept(team, listener, scheme),
            Accept::NotifyLt | Accept::NotifyEt => {
                self.notify(team);
                true
            }
            Accept::LeastLoaded | Accept::Reuseport | Accept::Exclusive | Accept::Serial => true,
        }
    }

    /// Accepts, and passes each connection to the worker with the fewest.
    fn accept(&mut self, team: &Team, listener: &OwnedFd, scheme: Scheme) -> bool {
        let mut numbers = team.table().read();
        for _ in 0..team.config.accept_max {
            match self.door.accept(listener, scheme) {
                Entry::Connection(socket, _) => pass(team, &mut numbers, &socket, scheme),
                Entry::Gone => {}
                Entry::Empty => break,
                Entry::Rest => return false,
            }
        }
        true
    }

    /// Passes on all who wait at a socket that nobody will accept from any more.
    pub(crate) fn evacuate(&mut self, team: &Team, listener: &OwnedFd, scheme: Scheme) {
        let mut numbers = team.table().read();
        for _ in 0..WAITING_MAX {
            match self.door.accept(listener, scheme) {
                // The serial worker has no mailbox.
                Entry::Connection(socket, _) if team.config.accept == Accept::Serial => {
                    refuse(&socket, scheme);
                }
                Entry::Connection(socket, _) => pass(team, &mut numbers, &socket, scheme),
                Entry::Gone => {}
                Entry::Empty | Entry::Rest => return,
            }
        }
    }

    /// Tells the next worker, as the historical design does: whether it has been told already, and
    /// whether it is busy, is not asked. What does not fit into its mailbox is not said.
    fn notify(&mut self, team: &Team) {
        let mailboxes = team.senders();
        self.turn = (self.turn + 1) % mailboxes.len().max(1);
        if let Some(mailbox) = mailboxes.get(self.turn) {
            // Full: it has been told often enough.
            let _ = mailbox.send(NOTICE, &[]);
        }
    }
}

/// To the least loaded worker that takes it, or away with 503.
fn pass(team: &Team, numbers: &mut [u64], socket: &OwnedFd, scheme: Scheme) {
    while let Some((slot, _)) = least(numbers) {
        if team.senders()[slot].send(letter(scheme), &[socket.as_fd()]).is_ok() {
            numbers[slot] += 1;
            return;
        }
        numbers[slot] = ABSENT;
    }
    refuse(socket, scheme);
}
