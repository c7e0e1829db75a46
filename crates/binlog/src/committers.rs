//! Futexes of threads that wait for a group, and the number of threads expected in it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;

/// Futexes of the waiting threads.
#[derive(Debug, Default)]
pub(crate) struct Committers {
    pub(crate) arrivals: Arrivals,
    /// By the parity of the group that is waited for.
    places: [SleepQueue; 2],
}

/// Threads that have arrived for the next group. On cache lines of its own, because every thread
/// writes to it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Arrivals {
    /// Threads that have arrived since the last group began.
    present: AtomicU32,
    /// Threads whose records the last group wrote.
    written_for: AtomicU32,
    /// Threads for which the next group waits.
    expected: AtomicU32,
    /// Groups begun so far.
    groups: AtomicU64,
    /// The group for which a thread has waited longer than a write takes.
    stalled: AtomicU64,
}

impl Arrivals {
    /// True for the first thread to arrive.
    pub(crate) fn arrive(&self) -> bool {
        self.present.fetch_add(1, Ordering::SeqCst) == 0
    }

    pub(crate) fn are_complete(&self) -> bool {
        self.present.load(Ordering::Relaxed) >= self.expected.load(Ordering::Relaxed)
    }

    /// Returns the number of the group.
    fn begin_group(&self) -> u64 {
        self.written_for.store(self.present.swap(0, Ordering::SeqCst), Ordering::Relaxed);
        self.groups.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn end_group(&self) {
        let arrived = self.present.load(Ordering::Relaxed);
        let expected = self.written_for.load(Ordering::Relaxed).saturating_add(arrived);
        self.expected.store(expected, Ordering::Relaxed);
    }

    pub(crate) fn group(&self) -> u64 {
        self.groups.load(Ordering::SeqCst)
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed) == self.groups.load(Ordering::Relaxed)
    }

    pub(crate) fn note_stalled(&self, group: u64) {
        self.stalled.store(group, Ordering::Relaxed);
    }
}

/// On cache lines of its own, because every sleeping thread writes to it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SleepQueue {
    /// Changes with each wake-up.
    wakes: AtomicU32,
    sleepers: AtomicU32,
}

impl SleepQueue {
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
    /// Begins a group and returns its number. The caller holds the writer's lock.
    pub(crate) fn begin_group(&self) -> u64 {
        self.arrivals.begin_group()
    }

    /// Ends the publication of a group. The caller holds the writer's lock.
    pub(crate) fn publish_group(&self) {
        self.arrivals.end_group();
    }

    /// Wakes the threads of a group. To be called after the group is published and the writer's lock
    /// is released. True if a thread sleeps until the next group: the caller must begin that group,
    /// or wake the writer for it.
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

    fn place(&self, group: u64) -> &SleepQueue {
        &self.places[usize::from(!group.is_multiple_of(2))]
    }

    /// Puts the calling thread to sleep until the group after the current one has ended, unless
    /// `awake` returns true.
    pub(crate) fn sleep_unless(&self, awake: impl FnOnce() -> bool) {
        let place = self.place(self.arrivals.group() + 1);
        place.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = place.wakes.load(Ordering::SeqCst);
        if !awake() {
            place.sleep(seen);
        }
        let sleepers = place.sleepers.fetch_sub(1, Ordering::SeqCst);
        assert!(sleepers > 0, "each thread that sleeps is counted once");
    }
}
