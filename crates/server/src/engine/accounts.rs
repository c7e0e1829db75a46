//! One reactor's hand on the memory trackers: what its connections hold, and what its data grew by.
//!
//! Small buffers are not worth counting per request; they are part of what every connection is
//! charged for. A buffer is charged from [`CHARGED_BYTES_MIN`] on, when its connection is served.

use std::sync::Arc;

use base::memory::{LimitReached, LocalTracker, Tracker};

use crate::config::MemoryTrackers;
use crate::protocol::ClientProtocol;

/// Smaller buffers are not charged.
const CHARGED_BYTES_MIN: usize = 16 * 1024;

/// Copies of an answer of HTTP while it is made: the reply of the command, the content, the output.
const ANSWER_COPIES: u64 = 3;

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

impl Charges {
    /// The same with keys watched by WATCH, which are charged as commands queued by MULTI are.
    pub(crate) fn with_watched(self, bytes: u64) -> Charges {
        Charges { queued: self.queued + bytes, ..self }
    }
}

/// What the connections of one protocol hold.
#[derive(Debug)]
pub(crate) struct Buffers {
    input: LocalTracker,
    output: LocalTracker,
    queued: LocalTracker,
    is_on: bool,
}

#[derive(Debug)]
pub(crate) struct Accounts {
    pub(crate) resp: Buffers,
    pub(crate) cql: Buffers,
    pub(crate) http: Buffers,
    store: LocalTracker,
    clients: LocalTracker,
    messages: LocalTracker,
    log: LocalTracker,
    /// `memory-tracking`: without it nothing is counted.
    is_on: bool,
    /// What the log's lanes held when it was last looked at; the first reactor looks.
    log_bytes: u64,
    /// What was on its way to this reactor when it was last looked at.
    message_bytes: u64,
}

impl Accounts {
    pub(crate) fn new(memory: &MemoryTrackers, is_on: bool) -> Accounts {
        let local = |tracker: &Arc<Tracker>| LocalTracker::new(Arc::clone(tracker));
        Accounts {
            resp: Buffers {
                input: local(&memory.read_buffer_resp),
                output: local(&memory.output_resp),
                queued: local(&memory.call_resp),
                is_on,
            },
            cql: Buffers {
                input: local(&memory.read_buffer_cql),
                output: local(&memory.output_cql),
                queued: local(&memory.call_cql),
                is_on,
            },
            http: Buffers {
                input: local(&memory.read_buffer_http),
                output: local(&memory.output_http),
                queued: local(&memory.call_http),
                is_on,
            },
            store: local(&memory.store),
            clients: local(&memory.clients),
            messages: local(&memory.messages),
            log: local(&memory.log),
            is_on,
            log_bytes: 0,
            message_bytes: 0,
        }
    }

    /// What the connections of one protocol hold.
    pub(crate) fn buffers(&mut self, protocol: ClientProtocol) -> &mut Buffers {
        match protocol {
            ClientProtocol::Resp => &mut self.resp,
            ClientProtocol::Cql => &mut self.cql,
            ClientProtocol::Http => &mut self.http,
        }
    }

    pub(crate) fn store_grew(&mut self, bytes: isize) {
        if !self.is_on {
            return;
        }
        match bytes {
            0 => {}
            1.. => self.store.consume(bytes.unsigned_abs() as u64),
            _ => self.store.release(bytes.unsigned_abs() as u64),
        }
    }

    /// A connection has come that costs so much while it does nothing.
    pub(crate) fn client_came(&mut self, bytes: u64) {
        if self.is_on {
            self.clients.consume(bytes);
        }
    }

    pub(crate) fn client_left(&mut self, bytes: u64) {
        if self.is_on {
            self.clients.release(bytes);
        }
    }

    /// What connections have subscribed to takes so much more than before, or less.
    pub(crate) fn subscriptions_grew(&mut self, bytes: isize) {
        match bytes {
            0.. => self.client_came(bytes.unsigned_abs() as u64),
            _ => self.client_left(bytes.unsigned_abs() as u64),
        }
    }

    /// The log's lanes hold this much now.
    pub(crate) fn log_holds(&mut self, bytes: u64) {
        if self.is_on {
            self.log.consume(bytes);
            self.log.release(std::mem::replace(&mut self.log_bytes, bytes));
        }
    }

    /// Messages of this size are on their way to this reactor now.
    pub(crate) fn messages_hold(&mut self, bytes: u64) {
        if self.is_on && bytes != self.message_bytes {
            self.messages.consume(bytes);
            self.messages.release(std::mem::replace(&mut self.message_bytes, bytes));
        }
    }

    /// Tells the trees what was gathered.
    pub(crate) fn flush(&mut self) {
        let Accounts { resp, cql, http, store, clients, messages, log, .. } = self;
        for tracker in [store, clients, messages, log] {
            tracker.flush();
        }
        resp.flush();
        cql.flush();
        http.flush();
    }
}

impl Buffers {
    /// A connection has come from another reactor, with what it holds.
    pub(crate) fn came(&mut self, charges: Charges) {
        self.input.consume(charges.input);
        self.output.consume(charges.output);
        self.queued.consume(charges.queued);
    }

    pub(crate) fn left(&mut self, charges: Charges) {
        self.input.release(charges.input);
        self.output.release(charges.output);
        self.queued.release(charges.queued);
    }

    /// The connection now keeps this much of an unfinished request and of replies. Fails when there
    /// is no memory for the input: the connection is to be closed then. Replies are always charged;
    /// what bounds them is that their connection is not read.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        charges: &mut Charges,
        input_bytes: usize,
        output_bytes: usize,
    ) -> Result<(), LimitReached> {
        self.charge_output(charges, output_bytes);
        let input = self.charged(input_bytes);
        if input > charges.input {
            self.input.try_consume(input - charges.input)?;
            charges.input = input;
        } else if input < charges.input {
            self.input.release(charges.input - input);
            charges.input = input;
        }
        Ok(())
    }

    /// The connection now keeps this much of what its peer has not taken.
    #[inline]
    pub(crate) fn charge_output(&mut self, charges: &mut Charges, output_bytes: usize) {
        let output = self.charged(output_bytes);
        if output != charges.output {
            self.output.consume(output);
            self.output.release(std::mem::replace(&mut charges.output, output));
        }
    }

    /// Whether there is memory for an answer of this size, copies included that exist while it is made. It is
    /// charged when it is there.
    pub(crate) fn check_answer(&mut self, bytes: usize) -> Result<(), LimitReached> {
        let bytes = ANSWER_COPIES * self.charged(bytes);
        self.output.try_consume(bytes)?;
        self.output.release(bytes);
        Ok(())
    }

    fn charged(&self, bytes: usize) -> u64 {
        if bytes < CHARGED_BYTES_MIN || !self.is_on { 0 } else { bytes as u64 }
    }

    /// A command of this many bytes is queued.
    pub(crate) fn queue(&mut self, charges: &mut Charges, bytes: u64) -> Result<(), LimitReached> {
        if self.is_on {
            self.queued.try_consume(bytes)?;
            charges.queued += bytes;
        }
        Ok(())
    }

    /// The transaction has ended.
    pub(crate) fn unqueue(&mut self, charges: &mut Charges) {
        self.queued.release(std::mem::take(&mut charges.queued));
    }

    /// A key is watched that takes this many bytes.
    /// `charged_bytes`: what the connection is charged for its watches.
    pub(crate) fn watch(
        &mut self,
        charged_bytes: &mut u64,
        bytes: u64,
    ) -> Result<(), LimitReached> {
        if self.is_on {
            self.queued.try_consume(bytes)?;
            *charged_bytes += bytes;
        }
        Ok(())
    }

    /// No key is watched anymore.
    pub(crate) fn unwatch(&mut self, charged_bytes: u64) {
        self.queued.release(charged_bytes);
    }

    fn flush(&mut self) {
        for tracker in [&mut self.input, &mut self.output, &mut self.queued] {
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
        let mut accounts = Accounts::new(&memory, true);
        let mut charges = Charges::default();
        accounts.client_came(500);
        accounts.resp.charge(&mut charges, 100, 100).expect("not even charged");
        assert_eq!(charges, Charges::default());
        accounts.resp.charge(&mut charges, 200_000, 50_000).expect("below the limit");
        accounts.resp.queue(&mut charges, 77).expect("no limit");
        let mut watched_bytes = 0;
        accounts.resp.watch(&mut watched_bytes, 13).expect("no limit");
        accounts.subscriptions_grew(30);
        accounts.subscriptions_grew(-30);
        accounts.messages_hold(1_000);
        accounts.flush();
        assert_eq!(memory.messages.current_bytes(), 1_000);
        accounts.messages_hold(0);
        accounts.flush();
        assert_eq!(memory.read_buffer.current_bytes(), 200_000);
        assert_eq!(memory.output.current_bytes(), 50_000);
        assert!(accounts.resp.charge(&mut charges, 2 << 20, 0).is_err());
        accounts.client_left(500);
        accounts.resp.left(charges.with_watched(watched_bytes));
        accounts.flush();
        assert_eq!(memory.server.current_bytes(), 0);
    }

    #[test]
    fn a_protocol_has_a_limit_of_its_own() {
        let settings =
            Settings { cql_rpc_memory_limit: Limit::Bytes(100_000), ..Settings::default() };
        let memory = MemoryTrackers::new(&settings, None);
        let mut accounts = Accounts::new(&memory, true);
        let mut charges = Charges::default();
        let reached = accounts.cql.charge(&mut charges, 200_000, 0).unwrap_err();
        assert_eq!(reached.path, "server/read-buffer/cql");
        accounts.resp.charge(&mut charges, 200_000, 0).expect("another tracker");
    }

    #[test]
    fn nothing_is_counted_without_tracking() {
        let settings =
            Settings { read_buffer_memory_limit: Limit::Bytes(1), ..Settings::default() };
        let memory = MemoryTrackers::new(&settings, None);
        let mut accounts = Accounts::new(&memory, false);
        let mut charges = Charges::default();
        accounts.client_came(500);
        accounts.store_grew(500);
        accounts.log_holds(500);
        accounts.resp.charge(&mut charges, 200_000, 50_000).expect("no limit counts");
        accounts.resp.queue(&mut charges, 77).expect("no limit counts");
        accounts.flush();
        assert_eq!(memory.server.current_bytes(), 0);
        assert_eq!(charges, Charges::default());
    }
}
