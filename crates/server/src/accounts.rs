//! One reactor's hand on the memory trackers: what its connections hold, and what its data grew by.
//!
//! Small buffers are not worth counting per request; they are part of what every connection is
//! charged for. A buffer is charged from [`CHARGED_BYTES_MIN`] on, when its connection is served.

use std::sync::Arc;

use base::memory::{LimitReached, LocalTracker};

use crate::config::MemoryTrackers;

/// Smaller buffers are not charged.
const CHARGED_BYTES_MIN: usize = 16 * 1024;

/// What one connection is charged for, beyond being there. Moves with it between reactors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Charges {
    /// Bytes of an unfinished request.
    input: u64,
    /// Replies that the peer has not taken.
    output: u64,
    /// Commands queued by MULTI.
    queued: u64,
}

#[derive(Debug)]
pub(crate) struct Accounts {
    store: LocalTracker,
    clients: LocalTracker,
    input: LocalTracker,
    output: LocalTracker,
    queued: LocalTracker,
    log: LocalTracker,
    /// What the log's lanes held when it was last looked at; the first reactor looks.
    log_bytes: u64,
}

impl Accounts {
    pub(crate) fn new(memory: &MemoryTrackers) -> Accounts {
        Accounts {
            store: LocalTracker::new(Arc::clone(&memory.store)),
            clients: LocalTracker::new(Arc::clone(&memory.clients)),
            input: LocalTracker::new(Arc::clone(&memory.read_buffer_resp)),
            output: LocalTracker::new(Arc::clone(&memory.output_resp)),
            queued: LocalTracker::new(Arc::clone(&memory.call_resp)),
            log: LocalTracker::new(Arc::clone(&memory.log)),
            log_bytes: 0,
        }
    }

    pub(crate) fn store_grew(&mut self, bytes: isize) {
        match bytes {
            0 => {}
            1.. => self.store.consume(bytes.unsigned_abs() as u64),
            _ => self.store.release(bytes.unsigned_abs() as u64),
        }
    }

    pub(crate) fn client_came(&mut self, bytes: u64, charges: Charges) {
        self.clients.consume(bytes);
        self.input.consume(charges.input);
        self.output.consume(charges.output);
        self.queued.consume(charges.queued);
    }

    pub(crate) fn client_left(&mut self, bytes: u64, charges: Charges) {
        self.clients.release(bytes);
        self.input.release(charges.input);
        self.output.release(charges.output);
        self.queued.release(charges.queued);
    }

    /// The connection now keeps this much of an unfinished request and of replies. Fails when there
    /// is no memory for the input: the connection is to be closed then. Replies are always charged;
    /// what bounds them is that their connection is not read.
    #[inline]
    pub(crate) fn buffers(
        &mut self,
        charges: &mut Charges,
        input_bytes: usize,
        output_bytes: usize,
    ) -> Result<(), LimitReached> {
        let charged = |bytes: usize| if bytes < CHARGED_BYTES_MIN { 0 } else { bytes as u64 };
        let (input, output) = (charged(input_bytes), charged(output_bytes));
        if output != charges.output {
            self.output.consume(output);
            self.output.release(std::mem::replace(&mut charges.output, output));
        }
        if input > charges.input {
            self.input.try_consume(input - charges.input)?;
            charges.input = input;
        } else if input < charges.input {
            self.input.release(charges.input - input);
            charges.input = input;
        }
        Ok(())
    }

    /// A command of this many bytes is queued.
    pub(crate) fn queue(&mut self, charges: &mut Charges, bytes: u64) -> Result<(), LimitReached> {
        self.queued.try_consume(bytes)?;
        charges.queued += bytes;
        Ok(())
    }

    /// The transaction is over.
    pub(crate) fn unqueue(&mut self, charges: &mut Charges) {
        self.queued.release(std::mem::take(&mut charges.queued));
    }

    /// The log's lanes hold this much now.
    pub(crate) fn log_holds(&mut self, bytes: u64) {
        self.log.consume(bytes);
        self.log.release(std::mem::replace(&mut self.log_bytes, bytes));
    }

    /// Tells the trees what was gathered.
    pub(crate) fn flush(&mut self) {
        for tracker in [
            &mut self.store,
            &mut self.clients,
            &mut self.input,
            &mut self.output,
            &mut self.queued,
            &mut self.log,
        ] {
            tracker.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use base::units::Limit;

    use super::*;
    use crate::config::Settings;

    #[test]
    fn what_a_connection_held_is_given_back() {
        let settings =
            Settings { read_buffer_memory_limit: Limit::Bytes(1 << 20), ..Settings::default() };
        let memory = MemoryTrackers::new(&settings, None);
        let mut accounts = Accounts::new(&memory);
        let mut charges = Charges::default();
        accounts.client_came(500, charges);
        accounts.buffers(&mut charges, 100, 100).expect("not even charged");
        assert_eq!(charges, Charges::default());
        accounts.buffers(&mut charges, 200_000, 50_000).expect("below the limit");
        accounts.queue(&mut charges, 77).expect("no limit");
        accounts.flush();
        assert_eq!(memory.read_buffer.current_bytes(), 200_000);
        assert_eq!(memory.output.current_bytes(), 50_000);
        assert!(accounts.buffers(&mut charges, 2 << 20, 0).is_err());
        accounts.client_left(500, charges);
        accounts.flush();
        assert_eq!(memory.server.current_bytes(), 0);
    }
}
