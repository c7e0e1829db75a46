//! Threads that wait until their records are written or durable.
//!
//! A reactor never waits: it is told ([`Log::wake_when_durable`]). Programs with a thread per caller
//! do, and what costs them most is not the write but being put to sleep and woken, or letting
//! another thread run: 1.3 us of processor time where a small write costs 0.5 us. So a thread that
//! waits goes on looking for a while. The first that comes waits until all are there who are
//! expected, and writes for all; expected are those of the group before, and those who came while
//! it was written. Who does not come within a microsecond or two has been put off its core, and is
//! written for later. As the first that comes is mostly the one that has just written, all that
//! writing touches stays in the cache of one core.
//!
//! If a thread is put off its core while it writes, the others let it run at once: the first that
//! has waited in vain marks the group as stalled.
//!
//! Who does have to sleep (the disk is syncing, or there is more to do than cores to do it) sleeps
//! with all who wait for the same group, on one futex: one system call wakes them all. A record
//! that was appended while group `g` ran is in group `g + 1` at the latest, so two futexes, by the
//! parity of the group's number, are enough.
//!
//! No thread sleeps for ever: it notes what it wants, counts itself, and then sees that somebody
//! leads a group. Whoever leads first stops leading and then looks at the count; if anybody waits for
//! the next group, the writer's own thread is woken to lead it. A futex's word changes before each
//! wake-up, so a thread that is about to sleep does not.

use std::{hint, thread};

use base::time::MonoNs;

use crate::log::{Log, Poisoned};
use crate::record::Lsn;

/// How long a thread is patient, in looks of some 20 ns.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For others to come before the group.
    gather: usize,
    /// For the group that is being written.
    write: usize,
    /// Then it lets other threads run so often, before it sleeps.
    yields: usize,
}

const FOR_WRITE: Patience = Patience { gather: 64, write: 128, yields: 64 };
/// A sync takes much longer than to sleep and be woken, and than to wait for all who were woken.
const FOR_SYNC: Patience = Patience { gather: 1000, write: 1, yields: 0 };

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Written(Lsn),
    Durable(Lsn),
}

impl Log {
    /// Blocks the calling thread until the log is written up to `lsn`, which [`Log::append`] has
    /// returned. The thread may do a round of the writer itself, at `clock()`. The writer's thread
    /// must be running.
    ///
    /// Errors: the log is or gets poisoned first.
    pub fn wait_written(&self, lsn: Lsn, clock: &dyn Fn() -> MonoNs) -> Result<(), Poisoned> {
        self.wait(Goal::Written(lsn), FOR_WRITE, clock)
    }

    /// As [`Log::wait_written`], until the log is durable up to `lsn`, whatever the policy.
    pub fn wait_durable(&self, lsn: Lsn, clock: &dyn Fn() -> MonoNs) -> Result<(), Poisoned> {
        self.wait(Goal::Durable(lsn), FOR_SYNC, clock)
    }

    fn wait(
        &self,
        goal: Goal,
        patience: Patience,
        clock: &dyn Fn() -> MonoNs,
    ) -> Result<(), Poisoned> {
        if self.reached(goal) {
            return Ok(());
        }
        let arrivals = &self.committers.arrivals;
        // Before all that only reads the same cache line.
        let first = arrivals.arrive();
        let group = arrivals.group();
        if first {
            self.gather(patience.gather);
        } else if !arrivals.is_stalled() && self.look(goal, patience.gather) {
            return Ok(());
        }
        if self.settled(goal)? || (self.lead(goal, clock) && self.settled(goal)?) {
            return Ok(());
        }
        if !arrivals.is_stalled() {
            if self.look(goal, patience.write) {
                return Ok(());
            }
            arrivals.note_stalled(group);
        }
        for _ in 0..patience.yields {
            thread::yield_now();
            if self.settled(goal)? || (self.lead(goal, clock) && self.settled(goal)?) {
                return Ok(());
            }
        }
        while !self.settled(goal)? {
            self.committers.sleep_unless(|| {
                self.reached(goal) || self.is_poisoned() || self.lead(goal, clock)
            });
        }
        Ok(())
    }

    /// Waits until all are there who are expected.
    fn gather(&self, looks_max: usize) {
        for _ in 0..looks_max {
            if self.committers.arrivals.are_complete() {
                return;
            }
            hint::spin_loop();
        }
    }

    /// Whether it is reached before so many looks are over.
    fn look(&self, goal: Goal, looks_max: usize) -> bool {
        for _ in 0..looks_max {
            if self.reached(goal) {
                return true;
            }
            hint::spin_loop();
        }
        false
    }

    fn reached(&self, goal: Goal) -> bool {
        match goal {
            Goal::Written(lsn) => self.written() >= lsn,
            Goal::Durable(lsn) => self.durable() >= lsn,
        }
    }

    fn settled(&self, goal: Goal) -> Result<bool, Poisoned> {
        if self.reached(goal) {
            return Ok(true);
        }
        if self.is_poisoned() {
            Err(self.poisoned().expect("set before the flag"))
        } else {
            Ok(false)
        }
    }

    /// Runs a group for all who wait; false if somebody else is at it.
    fn lead(&self, goal: Goal, clock: &dyn Fn() -> MonoNs) -> bool {
        self.note_request(match goal {
            Goal::Written(_) => None,
            Goal::Durable(lsn) => Some(lsn),
        });
        self.try_writer_step(clock)
    }
}
