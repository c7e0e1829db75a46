//! Memory accounting of one reactor: what its connections hold, and how much its data has grown.
//!
//! Small buffers are not counted per request; the fixed charge of each connection covers them.
//! Larger buffers, from [`CHARGED_BYTES_MIN`] on, are charged when their connection is served.

use std::sync::Arc;

use base::memory::{LimitReached, LocalTracker, Tracker};

use crate::config::MemoryTrackers;
use crate::engine::reply_reservation::ANSWER_COPIES;
use crate::protocol::ClientProtocol;

/// Smaller buffers are not charged.
const CHARGED_BYTES_MIN: usize = 16 * 1024;

/// Charges of one connection on top of its fixed cost. Moves with the connection between reactors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Charges {
    /// An unfinished request, in bytes.
    input: u64,
    /// Replies that the peer has not read.
    output: u64,
    /// Commands queued by MULTI.
    queued: u64,
}

impl Charges {
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.output != 0
    }

    /// Adds the bytes of keys watched by WATCH, which are charged like commands queued by MULTI.
    pub(crate) fn with_watched(self, bytes: u64) -> Charges {
        Charges { queued: self.queued + bytes, ..self }
    }
}

/// Memory held by the connections of one protocol.
#[derive(Debug)]
pub(crate) struct Buffers {
    input: LocalTracker,
    output: LocalTracker,
    queued: LocalTracker,
    is_on: bool,
}

#[derive(Debug)]
pub(crate) struct Accounts {
    /// In the order of [`ClientProtocol::ALL`].
    buffers: [Buffers; ClientProtocol::ALL.len()],
    store: LocalTracker,
    clients: LocalTracker,
    messages: LocalTracker,
    log: LocalTracker,
    /// The option `memory-tracking`: nothing is counted if it is off.
    is_on: bool,
    /// Bytes of the log's lanes when last read; only the first reactor reads them.
    log_bytes: u64,
    /// Bytes of messages on their way to this reactor when last read.
    message_bytes: u64,
}

impl Accounts {
    pub(crate) fn new(memory: &MemoryTrackers, is_on: bool) -> Accounts {
        let local = |tracker: &Arc<Tracker>| LocalTracker::new(Arc::clone(tracker));
        Accounts {
            buffers: ClientProtocol::ALL.map(|protocol| Buffers {
                input: local(memory.read_buffer.of(protocol)),
                output: local(memory.output.of(protocol)),
                queued: local(memory.call.of(protocol)),
                is_on,
            }),
            store: local(&memory.store),
            clients: local(&memory.clients),
            messages: local(&memory.messages),
            log: local(&memory.log),
            is_on,
            log_bytes: 0,
            message_bytes: 0,
        }
    }

    /// Memory held by the connections of one protocol.
    pub(crate) fn buffers(&mut self, protocol: ClientProtocol) -> &mut Buffers {
        &mut self.buffers[protocol as usize]
    }

    /// Those of RESP, which hold what commands queue whatever their protocol.
    pub(crate) fn resp(&mut self) -> &mut Buffers {
        self.buffers(ClientProtocol::Resp)
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

    /// Charges a new connection that takes this many bytes when idle.
    pub(crate) fn add_client(&mut self, bytes: u64) {
        if self.is_on {
            self.clients.consume(bytes);
        }
    }

    pub(crate) fn remove_client(&mut self, bytes: u64) {
        if self.is_on {
            self.clients.release(bytes);
        }
    }

    /// Charges a change in the memory of subscriptions, which may be negative.
    pub(crate) fn subscriptions_grew(&mut self, bytes: isize) {
        match bytes {
            0.. => self.add_client(bytes.unsigned_abs() as u64),
            _ => self.remove_client(bytes.unsigned_abs() as u64),
        }
    }

    /// Updates the bytes that the log's lanes hold.
    pub(crate) fn log_holds(&mut self, bytes: u64) {
        if self.is_on {
            self.log.consume(bytes);
            self.log.release(std::mem::replace(&mut self.log_bytes, bytes));
        }
    }

    /// Updates the bytes of messages on their way to this reactor.
    pub(crate) fn messages_hold(&mut self, bytes: u64) {
        if self.is_on && bytes != self.message_bytes {
            self.messages.consume(bytes);
            self.messages.release(std::mem::replace(&mut self.message_bytes, bytes));
        }
    }

    /// Reports the collected changes to the trackers.
    pub(crate) fn flush(&mut self) {
        let Accounts { buffers, store, clients, messages, log, .. } = self;
        for tracker in [store, clients, messages, log] {
            tracker.flush();
        }
        buffers.iter_mut().for_each(Buffers::flush);
    }
}

impl Buffers {
    /// Charges a connection that moved here from another reactor.
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

    /// Updates the charges of a connection for an unfinished request and for replies. Fails if
    /// there is no memory for the request: the caller must then close the connection. Replies are
    /// always charged; they are bounded because requests of their connection are not read
    /// meanwhile.
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

    /// Updates the charge of a connection for output that its peer has not read.
    #[inline]
    pub(crate) fn charge_output(&mut self, charges: &mut Charges, output_bytes: usize) {
        let output = self.charged(output_bytes);
        if output != charges.output {
            self.output.consume(output);
            self.output.release(std::mem::replace(&mut charges.output, output));
        }
    }

    /// Checks for the memory of a response of this size, including the copies that exist while it
    /// is built. The response is charged once it exists.
    pub(crate) fn check_answer(&mut self, bytes: usize) -> Result<(), LimitReached> {
        let bytes = ANSWER_COPIES * self.charged(bytes);
        self.output.try_consume(bytes)?;
        self.output.release(bytes);
        Ok(())
    }

    fn charged(&self, bytes: usize) -> u64 {
        if bytes < CHARGED_BYTES_MIN || !self.is_on { 0 } else { bytes as u64 }
    }

    /// Charges a queued command of this many bytes.
    pub(crate) fn queue(&mut self, charges: &mut Charges, bytes: u64) -> Result<(), LimitReached> {
        if self.is_on {
            self.queued.try_consume(bytes)?;
            charges.queued += bytes;
        }
        Ok(())
    }

    /// Releases the charges of a transaction that has ended.
    pub(crate) fn unqueue(&mut self, charges: &mut Charges) {
        self.queued.release(std::mem::take(&mut charges.queued));
    }

    /// Charges a watched key that takes this many bytes. `charged_bytes`: the connection's charge
    /// for watched keys.
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

    /// Releases the charge for watched keys.
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
    fn the_memory_of_a_closed_connection_is_released() {
        let settings =
            Settings { read_buffer_memory_limit: Limit::Bytes(1 << 20), ..Settings::default() };
        let memory = MemoryTrackers::new(&settings, None);
        let mut accounts = Accounts::new(&memory, true);
        let mut charges = Charges::default();
        accounts.add_client(500);
        accounts.resp().charge(&mut charges, 100, 100).expect("not even charged");
        assert_eq!(charges, Charges::default());
        accounts.resp().charge(&mut charges, 200_000, 50_000).expect("below the limit");
        accounts.resp().queue(&mut charges, 77).expect("no limit");
        let mut watched_bytes = 0;
        accounts.resp().watch(&mut watched_bytes, 13).expect("no limit");
        accounts.subscriptions_grew(30);
        accounts.subscriptions_grew(-30);
        accounts.messages_hold(1_000);
        accounts.flush();
        assert_eq!(memory.messages.current_bytes(), 1_000);
        accounts.messages_hold(0);
        accounts.flush();
        assert_eq!(memory.read_buffer.all.current_bytes(), 200_000);
        assert_eq!(memory.output.all.current_bytes(), 50_000);
        assert!(accounts.resp().charge(&mut charges, 2 << 20, 0).is_err());
        accounts.remove_client(500);
        accounts.resp().left(charges.with_watched(watched_bytes));
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
        let reached =
            accounts.buffers(ClientProtocol::Cql).charge(&mut charges, 200_000, 0).unwrap_err();
        assert_eq!(reached.path, "server/read-buffer/cql");
        accounts.resp().charge(&mut charges, 200_000, 0).expect("another tracker");
    }

    #[test]
    fn nothing_is_counted_without_tracking() {
        let settings =
            Settings { read_buffer_memory_limit: Limit::Bytes(1), ..Settings::default() };
        let memory = MemoryTrackers::new(&settings, None);
        let mut accounts = Accounts::new(&memory, false);
        let mut charges = Charges::default();
        accounts.add_client(500);
        accounts.store_grew(500);
        accounts.log_holds(500);
        accounts.resp().charge(&mut charges, 200_000, 50_000).expect("no limit counts");
        accounts.resp().queue(&mut charges, 77).expect("no limit counts");
        accounts.flush();
        assert_eq!(memory.server.current_bytes(), 0);
        assert_eq!(charges, Charges::default());
    }
}
