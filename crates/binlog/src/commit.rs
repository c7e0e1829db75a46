//! Threads that wait until their records are written or durable.
//!
//! A reactor never waits: it is told ([`Log::wake_when_durable`]). Programs with a thread per caller
//! do, and what costs them most is not the write but being put to sleep and woken. So whoever waits
//! first lets other threads run, which append meanwhile, and then writes for all of them, if nobody
//! else is at it; so do the others. As long as a write takes less time than a sleep, nobody sleeps.
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

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use base::time::MonoNs;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::log::{Log, Poisoned};
use crate::record::Lsn;

/// How often a thread lets others run while it waits for a write: longer than any write into the
/// page cache that does not have to wait for the disk.
const YIELDS_MAX: usize = 64;
/// Before a write that is synced, which takes much longer than to sleep and be woken.
const YIELDS_BEFORE_SYNC_MAX: usize = 1;

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Written(Lsn),
    Durable(Lsn),
}

/// Sleeping places of the threads that wait.
#[derive(Debug, Default)]
pub(crate) struct Committers {
    /// Groups begun so far.
    groups: AtomicU64,
    /// By the parity of the group that is waited for.
    places: [Place; 2],
}

/// On cache lines of its own: it is written to by everybody who sleeps.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place {
    /// Changes with each wake-up.
    wakes: AtomicU32,
    sleepers: AtomicU32,
}

impl Place {
    fn is_empty(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) == 0
    }

    fn wake_all(&self) {
        if !self.is_empty() {
            self.wakes.fetch_add(1, Ordering::SeqCst);
            futex::wake(&self.wakes, futex::Flags::PRIVATE, ALL)
                .expect("a futex in mapped memory can be woken");
        }
    }

    /// Sleeps until a wake-up after `seen`. May return early.
    fn sleep(&self, seen: u32) {
        match futex::wait(&self.wakes, futex::Flags::PRIVATE, seen, None) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => panic!("a futex in mapped memory can be waited for: {error}"),
        }
    }
}

/// What `FUTEX_WAKE` takes for "all".
const ALL: u32 = i32::MAX.unsigned_abs();

impl Committers {
    /// Says that a group begins; to be called with the writer's lock held. Returns its number.
    pub(crate) fn begin_group(&self) -> u64 {
        self.groups.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// To be called when the group is published and the writer's lock is free again. True if a
    /// thread sleeps that waits for the next group, which somebody has to begin.
    #[must_use]
    pub(crate) fn end_group(&self, group: u64) -> bool {
        self.place(group).wake_all();
        !self.place(group + 1).is_empty()
    }

    pub(crate) fn wake_all(&self) {
        for place in &self.places {
            place.wake_all();
        }
    }

    fn place(&self, group: u64) -> &Place {
        &self.places[usize::from(!group.is_multiple_of(2))]
    }

    /// Has the calling thread sleep until the group that follows the present one has ended, unless
    /// `awake` says that there is no need.
    fn sleep_unless(&self, awake: impl FnOnce() -> bool) {
        let place = self.place(self.groups.load(Ordering::SeqCst) + 1);
        place.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = place.wakes.load(Ordering::SeqCst);
        if !awake() {
            place.sleep(seen);
        }
        place.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Log {
    /// Blocks the calling thread until the log is written up to `lsn`, which [`Log::append`] has
    /// returned. The thread may do a round of the writer itself, at `clock()`. The writer's thread
    /// must be running.
    ///
    /// Errors: the log is or gets poisoned first.
    pub fn wait_written(&self, lsn: Lsn, clock: &dyn Fn() -> MonoNs) -> Result<(), Poisoned> {
        self.wait(Goal::Written(lsn), YIELDS_MAX, clock)
    }

    /// As [`Log::wait_written`], until the log is durable up to `lsn`, whatever the policy.
    pub fn wait_durable(&self, lsn: Lsn, clock: &dyn Fn() -> MonoNs) -> Result<(), Poisoned> {
        self.wait(Goal::Durable(lsn), YIELDS_BEFORE_SYNC_MAX, clock)
    }

    fn wait(
        &self,
        goal: Goal,
        yields_max: usize,
        clock: &dyn Fn() -> MonoNs,
    ) -> Result<(), Poisoned> {
        for _ in 0..yields_max {
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
        self.try_writer_step(clock).is_some()
    }
}
