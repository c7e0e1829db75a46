//! Long SELECTs share their reactor: they run in parts, interleaved with other requests.
//!
//! A statement that has examined [`ROWS_PER_TURN`] rows pauses. Its request and its rows so far
//! wait in this queue until the reactor resumes it in a later turn.

use std::collections::VecDeque;

use cql::error::CqlError;

/// Rows that a statement examines before it yields: about a millisecond. Small in unit tests, which
/// then need no large tables.
pub(crate) const ROWS_PER_TURN: usize = if cfg!(test) { 256 } else { 4096 };

/// Limit of paused statements of one reactor and protocol; further ones are refused.
const STATEMENTS_MAX: usize = 512;

/// Limit of paused statements of one connection: its next request is not read until half of them
/// have finished. A client that does not read can hold this many; the rest of [`STATEMENTS_MAX`] is
/// left for other clients.
pub(crate) const OF_CONNECTION_MAX: u32 = 64;

const _: () = assert!((OF_CONNECTION_MAX as usize) < STATEMENTS_MAX);

/// Limit of the bytes that paused statements of one reactor and protocol hold, including their
/// requests. A single statement may exceed it.
const HELD_BYTES_MAX: usize = 128 << 20;

/// A request whose statement is paused.
pub(crate) trait PausedRequest {
    /// Bytes that it holds in memory.
    fn bytes(&self) -> usize;
}

/// The paused requests of one reactor and protocol, in the order in which they are resumed.
#[derive(Debug)]
pub(crate) struct ScanQueue<R> {
    requests: VecDeque<R>,
    bytes: usize,
    /// The number of pauses so far.
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
    /// Adds a request. A refused statement is not run to its end instead, because other requests
    /// would wait for it.
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

    /// Removes the request that has waited longest.
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
