//! Threads that wait until their records are written or durable.
//!
//! A reactor never waits; the log notifies it ([`Log::wake_when_durable`]). Programs with one
//! thread per caller do wait, and their largest cost is not the write but putting a thread to sleep
//! and waking it, or yielding to another thread: 1.3 us of processor time, where a small write
//! takes 0.5 us. So a waiting thread first polls for a while. The first thread to arrive waits for
//! all expected threads and then writes for all of them. Expected are the threads of the previous
//! group and the threads that arrived while it was written. A thread that does not arrive within a
//! microsecond or two has lost its core, and a later group writes its record. The first thread to
//! arrive is usually the one that has just written, so all memory that writing touches stays in the
//! cache of one core.
//!
//! If the writing thread loses its core, the others yield to it at once: the first thread whose
//! polling times out marks the group as stalled.
//!
//! A thread that has to sleep (the disk is syncing, or there are more threads than cores) shares
//! one futex with all threads that wait for the same group: one system call wakes them all. A
//! record appended while group `g` runs is in group `g + 1` at the latest, so two futexes suffice,
//! selected by the parity of the group's number.
//!
//! No thread sleeps forever. It stores its goal, counts itself, and then observes that another
//! thread leads a group. The leader stops leading and then reads the count; if a thread waits for
//! the next group, the leader wakes the writer's own thread to lead it. The word of a futex changes
//! before each wake-up, so a thread that is about to sleep does not.

use std::{hint, thread};

use base::time::MonoNs;

use crate::log::{Log, Poisoned};
use crate::record::Lsn;

/// How long a thread waits before it sleeps, in polls of some 20 ns.
#[derive(Debug, Clone, Copy)]
struct AdaptiveSpin {
    /// Polls for the other expected threads, before the group.
    gather: usize,
    /// Polls for the group that another thread is writing.
    write: usize,
    /// Times that the thread then yields to others.
    yields: usize,
}

const FOR_WRITE: AdaptiveSpin = AdaptiveSpin { gather: 64, write: 128, yields: 64 };
/// A sync takes much longer than a sleep and a wake-up, or the arrival of all woken threads.
const FOR_SYNC: AdaptiveSpin = AdaptiveSpin { gather: 1000, write: 1, yields: 0 };

/// The goal of a waiting thread.
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
    /// Errors: the log is poisoned, or becomes so first.
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
        spin: AdaptiveSpin,
        clock: &dyn Fn() -> MonoNs,
    ) -> Result<(), Poisoned> {
        if self.reached(goal) {
            return Ok(());
        }
        let arrivals = &self.committers.arrivals;
        // First, because what follows only reads the same cache line.
        let first = arrivals.arrive();
        let group = arrivals.group();
        if first {
            self.gather(spin.gather);
        } else if !arrivals.is_stalled() && self.look(goal, spin.gather) {
            return Ok(());
        }
        if self.settled(goal)? || (self.lead(goal, clock) && self.settled(goal)?) {
            return Ok(());
        }
        if !arrivals.is_stalled() {
            if self.look(goal, spin.write) {
                return Ok(());
            }
            arrivals.note_stalled(group);
        }
        for _ in 0..spin.yields {
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

    /// Polls until all expected threads have arrived.
    fn gather(&self, looks_max: usize) {
        for _ in 0..looks_max {
            if self.committers.arrivals.are_complete() {
                return;
            }
            hint::spin_loop();
        }
    }

    /// Polls up to `looks_max` times. Returns whether the goal was reached.
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

    /// Runs a group for all waiting threads; false if another thread is already running one.
    fn lead(&self, goal: Goal, clock: &dyn Fn() -> MonoNs) -> bool {
        self.note_request(match goal {
            Goal::Written(_) => None,
            Goal::Durable(lsn) => Some(lsn),
        });
        self.try_writer_step(clock)
    }
}
