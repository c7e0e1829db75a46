//! Leader-based group commit: a thread that finds no leader writes the records of all threads that
//! arrived in the meantime.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::baseline::Draft;
use crate::baseline::sleeper::{Signal, Sleeper};
use crate::baseline::tail::Tail;
use crate::log::Poisoned;
use crate::record::Lsn;

#[derive(Debug)]
pub(super) struct Leader<S> {
    pending: Mutex<Pending<S>>,
    /// Taken by the leader, of whom there is one at a time.
    tail: Mutex<Tail>,
}

/// What has been appended and is not being written yet.
#[derive(Debug)]
struct Pending<S> {
    bytes: Vec<u8>,
    records: u64,
    /// Threads that wait for the leader, oldest first.
    sleepers: VecDeque<Arc<S>>,
    next: Lsn,
    /// A thread leads, or has been signalled to lead.
    led: bool,
    /// Memory of the group before.
    spare: Vec<u8>,
}

impl<S: Sleeper> Leader<S> {
    pub(super) fn new(tail: Tail) -> Self {
        let pending = Pending {
            bytes: Vec::new(),
            records: 0,
            sleepers: VecDeque::new(),
            next: tail.at(),
            led: false,
            spare: Vec::new(),
        };
        Self { pending: Mutex::new(pending), tail: Mutex::new(tail) }
    }

    pub(super) fn append(&self, draft: Draft<'_>) -> Result<Lsn, Poisoned> {
        S::with_current(|sleeper| {
            let (end, leads) = self.join(draft, sleeper);
            let signal = if leads { Signal::Lead } else { sleeper.sleep() };
            match signal {
                Signal::Lead => self.lead()?,
                Signal::Written => {}
                Signal::Failed => return Err(self.tail.lock().poisoned()),
            }
            Ok(end)
        })
    }

    /// Returns where the record ends, and whether it is the caller's turn to write.
    fn join(&self, draft: Draft<'_>, sleeper: &Arc<S>) -> (Lsn, bool) {
        let mut pending = self.pending.lock();
        let start = pending.next;
        pending.next = draft.encode(&mut pending.bytes, start);
        pending.records += 1;
        let leads = !mem::replace(&mut pending.led, true);
        if !leads {
            pending.sleepers.push_back(Arc::clone(sleeper));
        }
        (pending.next, leads)
    }

    /// Writes the records of all waiting threads and of the caller.
    fn lead(&self) -> Result<(), Poisoned> {
        let (mut bytes, records, sleepers) = {
            let mut pending = self.pending.lock();
            let spare = mem::take(&mut pending.spare);
            let bytes = mem::replace(&mut pending.bytes, spare);
            (bytes, mem::take(&mut pending.records), mem::take(&mut pending.sleepers))
        };
        let written = self.tail.lock().write(&bytes, records);
        bytes.clear();
        self.hand_over(bytes);
        let signal = if written.is_ok() { Signal::Written } else { Signal::Failed };
        for sleeper in sleepers {
            sleeper.signal(signal);
        }
        written
    }

    /// The next leader starts before those are woken who have been written for.
    fn hand_over(&self, spare: Vec<u8>) {
        let next = {
            let mut pending = self.pending.lock();
            pending.spare = spare;
            let next = pending.sleepers.pop_front();
            pending.led = next.is_some();
            next
        };
        if let Some(next) = next {
            next.signal(Signal::Lead);
        }
    }

    pub(super) fn with_tail<T>(&self, act: impl FnOnce(&mut Tail) -> T) -> T {
        act(&mut self.tail.lock())
    }
}
