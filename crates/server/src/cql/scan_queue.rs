//! Long SELECTs that share their reactor: they run in parts, with other requests in between.
//!
//! A statement that has examined [`ROWS_PER_TURN`] rows pauses: it returns what it has so far, which waits
//! here with its request until the reactor resumes it in a later turn.

use std::collections::VecDeque;

use cql::error::CqlError;

/// Rows that a statement examines before others are served: about a millisecond. Few in unit tests, so
/// that they need not fill big tables.
pub(crate) const ROWS_PER_TURN: usize = if cfg!(test) { 256 } else { 4096 };

/// Paused statements of one reactor and protocol; one more is refused.
const STATEMENTS_MAX: usize = 512;

/// Paused statements of one connection: no further request of it is read until half of them are over. A
/// client that does not read can hold this many; the rest of [`STATEMENTS_MAX`] stays for others.
pub(crate) const OF_CONNECTION_MAX: u32 = 64;

const _: () = assert!((OF_CONNECTION_MAX as usize) < STATEMENTS_MAX);

/// The rows that paused statements of one reactor and protocol hold, and their requests; a single one
/// may hold more.
const HELD_BYTES_MAX: usize = 128 << 20;

/// A request whose statement is paused.
pub(crate) trait PausedRequest {
    /// What it holds in memory.
    fn bytes(&self) -> usize;
}

/// The paused requests of one reactor and protocol, in the order in which they are resumed.
#[derive(Debug)]
pub(crate) struct ScanQueue<R> {
    requests: VecDeque<R>,
    bytes: usize,
    /// How often a statement has paused.
    #[cfg(test)]
    pub(crate) pauses: usize,
}

impl<R> Default for ScanQueue<R> {
    fn default() -> Self {
        ScanQueue {
            requests: VecDeque::new(),
            bytes: 0,
            #[cfg(test)]
            pauses: 0,
        }
    }
}

impl<R: PausedRequest> ScanQueue<R> {
    /// Adds a request. One that is refused does not run to its end instead: others would wait for it.
    pub(crate) fn push(&mut self, request: R) -> Result<(), CqlError> {
        let bytes = request.bytes();
        let is_long = self.bytes > 0 && self.bytes.saturating_add(bytes) > HELD_BYTES_MAX;
        if self.requests.len() >= STATEMENTS_MAX || is_long {
            return Err(CqlError::Overloaded(
                "Too many statements are paused, or have gathered too many rows: try again"
                    .to_owned(),
            ));
        }
        #[cfg(test)]
        {
            self.pauses += 1;
        }
        self.restore(request);
        Ok(())
    }

    /// Adds a request that [`ScanQueue::pop`] returned and that has not been resumed.
    pub(crate) fn restore(&mut self, request: R) {
        self.bytes += request.bytes();
        self.requests.push_back(request);
    }

    /// The request that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<R> {
        let request = self.requests.pop_front()?;
        self.bytes -= request.bytes();
        Some(request)
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Held(usize);

    impl PausedRequest for Held {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn requests_beyond_the_limits_are_refused() {
        let mut queue = ScanQueue::default();
        queue.push(Held(HELD_BYTES_MAX + 1)).unwrap();
        assert!(queue.push(Held(1)).is_err(), "bytes");
        let first = queue.pop().unwrap();
        queue.push(Held(1)).unwrap();
        queue.restore(first);
        assert_eq!((queue.len(), queue.bytes), (2, HELD_BYTES_MAX + 2));
        while queue.pop().is_some() {}
        for _ in 0..STATEMENTS_MAX {
            queue.push(Held(0)).unwrap();
        }
        assert!(queue.push(Held(0)).is_err(), "statements");
    }
}
