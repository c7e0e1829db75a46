//! Communication between the director of a load and its threads.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::tally::Tally;

/// Timeouts for a server.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A connection without a reply for this long has stalled.
    pub reply: Duration,
    /// How long replies in flight are awaited at the end of the measured phase.
    pub drain: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { reply: Duration::from_secs(5), drain: Duration::from_secs(2) }
    }
}

/// Saturates at more than 500 years.
pub(crate) fn to_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The monotonic clock of the reactors.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// State shared by the director and all threads.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The measured phase; `u64::MAX` while a bound is not known.
    pub(crate) from_ns: AtomicU64,
    pub(crate) until_ns: AtomicU64,
    /// Requests that may still be sent in the measured phase.
    pub(crate) budget: Option<AtomicI64>,
    /// Replies so far by thread, including the warm-up.
    pub(crate) progress: Vec<Progress>,
    /// A connection without a reply for this long has stalled.
    pub(crate) stall_ns: u64,
}

/// On a separate cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Progress(pub(crate) AtomicU64);

impl Shared {
    pub(crate) fn new(threads: usize, operations_max: Option<u64>, stall_ns: u64) -> Shared {
        let budget =
            operations_max.map(|most| AtomicI64::new(i64::try_from(most).unwrap_or(i64::MAX)));
        Shared {
            from_ns: AtomicU64::new(u64::MAX),
            until_ns: AtomicU64::new(u64::MAX),
            budget,
            progress: (0..threads).map(|_| Progress::default()).collect(),
            stall_ns,
        }
    }

    pub(crate) fn replies(&self) -> u64 {
        self.progress.iter().map(|one| one.0.load(Ordering::Relaxed)).sum()
    }

    /// Takes up to `wanted` requests from the budget.
    pub(crate) fn grant(&self, wanted: u32, is_measuring: bool) -> u32 {
        let Some(budget) = self.budget.as_ref().filter(|_| is_measuring) else { return wanted };
        let before = budget.fetch_sub(i64::from(wanted), Ordering::Relaxed);
        u32::try_from(before.clamp(0, i64::from(wanted))).unwrap_or(0)
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.load(Ordering::Relaxed) <= 0)
    }
}

/// Message from the director to a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mail {
    /// Start the load at this time.
    Begin { start_ns: u64 },
    /// Send no more requests. Report when nothing is in flight.
    Finish,
    /// Report the results.
    Report,
}

/// Message from a thread to the director.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A connection has received the replies to its setup.
    Ready,
    /// Nothing is in flight, and nothing more is to be sent, or can be.
    Idle {
        reactor: usize,
    },
    /// No connection has received a reply for [`Patience::reply`].
    Stalled {
        reactor: usize,
    },
    /// The server violates its protocol.
    Failed(String),
    Report {
        reactor: usize,
        tally: Box<Tally>,
    },
    /// A termination signal was received.
    Interrupted,
}
