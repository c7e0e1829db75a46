//! Lines of MONITOR on their way to the reactors whose clients get them.
//!
//! A reactor that runs one request for long does not read its mail. What waits for it is bounded; where lines
//! were lost, the reactor closes its clients in MONITOR, as it does with those that do not read.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of lines that wait for one reactor. All reactors share the lines. Small in unit tests, so that they
/// need not fill it.
const PENDING_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// What waits for one reactor. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Feed {
    pending_bytes: AtomicUsize,
    has_lost: AtomicBool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct MonitorFeeds(Box<[Feed]>);

impl MonitorFeeds {
    pub(crate) fn new(reactors: usize) -> MonitorFeeds {
        MonitorFeeds((0..reactors).map(|_| Feed::default()).collect())
    }

    /// Accounts for lines to a reactor. False if they must not be sent: too many wait already.
    pub(crate) fn add(&self, reactor: usize, bytes: usize) -> bool {
        let feed = &self.0[reactor];
        let before = feed.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        // A single turn's lines are sent whatever their size: their clients' own limits judge them.
        let may_wait = before == 0 || before + bytes <= PENDING_BYTES_MAX;
        if !may_wait {
            self.lose(reactor, bytes);
        }
        may_wait
    }

    /// Bytes of lines on their way to a reactor.
    pub(crate) fn pending_bytes(&self, reactor: usize) -> usize {
        self.0[reactor].pending_bytes.load(Ordering::Relaxed)
    }

    /// Lines that were added were not sent.
    pub(crate) fn lose(&self, reactor: usize, bytes: usize) {
        let feed = &self.0[reactor];
        feed.has_lost.store(true, Ordering::Relaxed);
        feed.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A reactor has received lines. True if lines to it were lost since the last ones.
    pub(crate) fn taken(&self, reactor: usize, bytes: usize) -> bool {
        let feed = &self.0[reactor];
        feed.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
        feed.has_lost.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_wait_are_bounded_for_each_reactor() {
        let feeds = MonitorFeeds::new(2);
        let half = PENDING_BYTES_MAX / 2;
        assert!(feeds.add(0, half) && feeds.add(0, half));
        assert!(!feeds.add(0, 1));
        assert!(feeds.add(1, 1));
        assert!(!feeds.taken(1, 1), "only the other reactor has lost lines");
        assert!(feeds.taken(0, half));
        assert!(!feeds.taken(0, half));
        assert!(feeds.add(0, 2 * PENDING_BYTES_MAX), "lines of one turn");
        assert!(!feeds.add(0, 1));
    }
}
