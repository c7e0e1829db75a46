//! A reactor's operations on one connection: read, call the handler, send, close.

use base::time::MonoNs;
use rustix::io::Errno;

use crate::connection::{Connection, Phase, Stops};
use crate::context::Context;
use crate::driver::{Interest, Io, Ready};
use crate::handler::{Handler, Next};
use crate::output::SCRATCH_BYTES;
use crate::reactor::Reactor;
use crate::token::Token;

/// Maximum sent of a file before other connections get their turn.
pub(crate) const FILE_TURN_BYTES_MAX: usize = 1024 * 1024;
/// How long late input of a closed connection is discarded.
const LINGER_NS: u64 = 1_000_000_000;
/// Cost of a read and its reply apart from their bytes, expressed in bytes: several microseconds of
/// system calls against less than one per KiB.
pub(crate) const READ_COST_BYTES: u64 = 8 * 1024;

/// Where the bytes for the handler are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the reactor's buffer.
    Shared,
    /// In the connection's own buffer.
    Own,
}

impl<H: Handler> Reactor<H> {
    pub(crate) fn ready(&mut self, ready: Ready) {
        let token = ready.token;
        if ready.writable {
            self.writable(token);
        }
        if !(ready.readable || ready.hangup || ready.dead) {
            return;
        }
        let Some(connection) = self.table.get_mut(token) else { return };
        if connection.phase == Phase::Lingering {
            self.discard(token);
        } else if !connection.wants_read() {
            self.note_unread(ready);
        } else if self.is_over_held() {
            self.stall(token);
        } else if self.must_wait_for_handshakes(token) {
            // The driver reports it again in the next turn.
            self.core.counters.tls_deferred += 1;
        } else {
            self.receive(token);
        }
    }

    /// Reads once and passes the unread input to the handler.
    pub(crate) fn receive(&mut self, token: Token) {
        let bytes_max = self.core.limits().input_bytes_max.bytes();
        let Self { table, driver, input, core, .. } = self;
        let Some(connection) = table.get_mut(token) else { return };
        if connection.channel.is_some() {
            return self.receive_tls(token);
        }
        let kept = connection.input.unread().len();
        if kept >= bytes_max {
            return self.overflow(token);
        }
        let is_shared = connection.reads_shared();
        let io = if is_shared {
            input.clear();
            input.extend_from_slice(connection.input.unread());
            driver.read(&connection.socket, input)
        } else {
            let buffer = connection.input.with_room(connection.needed, bytes_max);
            driver.read(&connection.socket, buffer)
        };
        core.counters.reads += 1;
        match io {
            Io::Done(0) => self.end_input(token),
            Io::Blocked => {}
            Io::Broken(error) => self.break_off(token, Some(error)),
            Io::Done(count) => {
                core.counters.input_bytes += count as u64;
                connection.last_activity = core.now.mono;
                connection.recent_cost += READ_COST_BYTES + count as u64;
                if kept + count >= connection.needed {
                    self.call(token, if is_shared { Source::Shared } else { Source::Own });
                } else if is_shared {
                    connection.input.keep(input);
                }
            }
        }
    }

    /// Calls the handler with its input, carries out its decision, and sends permitted output at
    /// once.
    pub(crate) fn call(&mut self, token: Token, source: Source) {
        let Self { handler, core, table, input, output, .. } = self;
        let Some(connection) = table.get_mut(token) else { return };
        let is_lent = connection.output.lend(output, core.levels);
        let Connection { id, session, output: out, input: own, .. } = connection;
        let bytes = if source == Source::Shared { input.as_slice() } else { own.unread() };
        let flow = handler.data(&mut Context::new(core), *id, session, bytes, out);
        let consumed = flow.consumed.min(bytes.len());
        match source {
            Source::Shared => own.keep(&input[consumed..]),
            Source::Own => own.consume(consumed),
        }
        self.follow(token, flow.next);
        if self.is_gathering {
            self.gathered.push(token);
        } else {
            self.flush(token);
        }
        if is_lent {
            self.return_output(token);
        } else if !self.is_gathering
            && let Some(connection) = self.table.get_mut(token)
        {
            connection.output.free_if_empty();
        }
    }

    /// Ends the loan of the reactor's output buffer.
    fn return_output(&mut self, token: Token) {
        match self.table.get_mut(token) {
            Some(connection) => connection.output.settle(&mut self.output),
            // The connection is gone and `remove` returned the buffer.
            None => debug_assert_ne!(self.output.capacity(), 0),
        }
    }

    fn follow(&mut self, token: Token, next: Next) {
        let bytes_max = self.core.limits().input_bytes_max.bytes();
        let Some(connection) = self.table.get_mut(token) else { return };
        connection.needed = 0;
        match next {
            Next::Read { needed } if needed > bytes_max => self.overflow(token),
            Next::Read { needed } => connection.needed = needed,
            Next::Again => {
                connection.stops.set(Stops::AGAIN);
                self.again.push(token);
            }
            Next::Leave => {
                connection.stops.set(Stops::AGAIN);
                self.leaving.push(token);
            }
            Next::Pause => {
                connection.stops.set(Stops::PAUSED);
                connection.peer_left_reported = false;
            }
            Next::Close => self.begin_closing(token),
            Next::Abort => self.remove(token),
        }
    }

    /// Serves input that an earlier turn left in the connection's own buffer.
    pub(crate) fn serve_pending(&mut self, token: Token) {
        let is_over_held = self.is_over_held();
        let Some(connection) = self.table.get_mut(token) else { return };
        // Without AGAIN the entry is outdated. A full connection is served again when it has
        // drained.
        let must_drain = connection.stops.has(Stops::FULL) || connection.stops.has(Stops::SENDING);
        if !connection.stops.has(Stops::AGAIN) || must_drain {
            return;
        }
        if is_over_held {
            return self.stall(token);
        }
        connection.stops.clear(Stops::AGAIN);
        if connection.phase != Phase::Open {
            return;
        }
        if connection.input.is_empty() {
            self.watch(token);
        } else {
            self.call(token, Source::Own);
        }
        self.close_if_ended(token);
    }

    pub(crate) fn resume_one(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        if !connection.stops.has(Stops::PAUSED) {
            return;
        }
        connection.stops.clear(Stops::PAUSED);
        connection.last_activity = self.core.now.mono;
        connection.stops.set(Stops::AGAIN);
        self.serve_pending(token);
        self.watch(token);
    }

    /// Handles an event of a connection that is not read now.
    fn note_unread(&mut self, ready: Ready) {
        let token = ready.token;
        let Some(connection) = self.table.get_mut(token) else { return };
        if ready.dead {
            let error = self.driver.take_error(&connection.socket);
            return self.break_off(token, error);
        }
        if ready.hangup && connection.stops.has(Stops::PAUSED) && !connection.peer_left_reported {
            connection.peer_left_reported = true;
            if !self.handler.peer_left(connection.id, &mut connection.session) {
                return self.remove(token);
            }
        }
        self.watch(token);
    }

    /// Updates the driver's interest, if it has changed.
    fn watch(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        let interest = connection.required_interest(connection.interest.has(Interest::WRITE));
        if interest != connection.interest {
            connection.interest = interest;
            if connection.is_watched {
                self.driver.set_interest(&connection.socket, token, interest);
                self.core.counters.interest_changes += 1;
            }
        }
    }

    fn writable(&mut self, token: Token) {
        if self.send(token) {
            self.after_sending(token);
        }
        if let Some(connection) = self.table.get_mut(token) {
            connection.output.free_if_empty();
        }
    }

    /// Sends permitted output from the connection's own buffer.
    pub(crate) fn flush_own(&mut self, token: Token) {
        self.flush(token);
        if let Some(connection) = self.table.get_mut(token) {
            connection.output.free_if_empty();
        }
    }

    /// Ends a callback's output and sends the permitted part, unless the peer is known not to read.
    fn flush(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        connection.output.end_callback();
        connection.output.release(self.core.levels);
        let before = connection.output.take_appended();
        let is_blocked = connection.interest.has(Interest::WRITE);
        if before.is_some_and(|bytes| bytes > self.core.limits().output_bytes_max.bytes()) {
            self.core.counters.output_overflows += 1;
            return self.remove(token);
        }
        if is_blocked || self.send(token) {
            self.after_sending(token);
        }
    }

    /// One write. False if the connection is gone.
    fn send(&mut self, token: Token) -> bool {
        let Self { table, driver, core, .. } = self;
        let Some(connection) = table.get_mut(token) else { return false };
        if connection.channel.is_some() {
            return self.send_tls(token);
        }
        let bytes = connection.output.releasable();
        let mut is_blocked = false;
        let is_all = bytes.len() == connection.output.pending_bytes();
        let has_file = connection.output.tail().is_some() && is_all;
        // The end follows: it travels in one segment with the last reply, which saves a fifth of
        // the cost of a short connection.
        let has_end = connection.phase == Phase::Closing && is_all;
        if !bytes.is_empty() {
            core.counters.writes += 1;
            // Two readings of the cycle counter: 20 ns, compared with a system call of
            // microseconds.
            let started = driver.stamp_ns();
            let written = driver.write(&connection.socket, bytes, has_file || has_end);
            core.counters.write_ns += driver.stamp_ns().saturating_sub(started);
            let count = match written {
                Io::Done(count) => count,
                Io::Blocked => 0,
                Io::Broken(error) => {
                    self.break_off(token, Some(error));
                    return false;
                }
            };
            is_blocked = count < bytes.len();
            core.counters.output_bytes += count as u64;
            connection.output.advance(count);
            if count != 0 {
                connection.last_activity = core.now.mono;
            }
        }
        if has_file && !is_blocked {
            return self.send_file(token);
        }
        self.note_blocked(token, is_blocked);
        true
    }

    /// Writes once from an attached file, after all bytes. False if the connection is gone.
    fn send_file(&mut self, token: Token) -> bool {
        let Self { table, driver, core, .. } = self;
        let Some(connection) = table.get_mut(token) else { return false };
        let Some(tail) = connection.output.tail() else { return true };
        core.counters.writes += 1;
        let count = match driver.send_file(&connection.socket, tail, FILE_TURN_BYTES_MAX) {
            // The file has been truncated.
            Io::Done(0) => {
                self.remove(token);
                return false;
            }
            Io::Broken(error) => {
                self.break_off(token, Some(error));
                return false;
            }
            Io::Done(count) => count,
            Io::Blocked => 0,
        };
        core.counters.output_bytes += count as u64;
        if count != 0 {
            connection.output.advance_tail(count);
            connection.last_activity = core.now.mono;
        }
        let is_blocked = connection.output.tail().is_some();
        self.note_blocked(token, is_blocked);
        true
    }

    /// Starts or stops waiting until the peer takes more.
    pub(crate) fn note_blocked(&mut self, token: Token, is_blocked: bool) {
        let Self { table, driver, core, .. } = self;
        let Some(connection) = table.get_mut(token) else { return };
        if is_blocked != connection.interest.has(Interest::WRITE) {
            connection.interest = connection.required_interest(is_blocked);
            if connection.is_watched {
                driver.set_interest(&connection.socket, token, connection.interest);
                core.counters.interest_changes += 1;
            }
        }
    }

    /// Accounts for held output, stops or restarts reading, and ends a closing connection.
    fn after_sending(&mut self, token: Token) {
        let pause_bytes = self.core.limits().output_pause_bytes.bytes();
        let Some(connection) = self.table.get_mut(token) else { return };
        let held = connection.output.held_bytes();
        self.held_bytes = self.held_bytes - connection.held_counted + held;
        connection.held_counted = held;
        if held != 0 && !connection.is_holder {
            connection.is_holder = true;
            self.holders.push(token);
        }
        let pending = connection.output.pending_bytes();
        let is_sending = connection.output.tail().is_some();
        if pending == 0 && !is_sending && connection.phase == Phase::Closing {
            return self.finish(token);
        }
        if pending > pause_bytes {
            if !connection.stops.has(Stops::FULL) {
                connection.stops.set(Stops::FULL);
                let Connection { id, session, .. } = connection;
                self.handler.no_room(&mut Context::new(&mut self.core), *id, session);
            }
        } else if connection.stops.has(Stops::FULL) && pending <= pause_bytes / 2 {
            connection.stops.clear(Stops::FULL);
            let Connection { id, session, .. } = connection;
            self.handler.has_room(&mut Context::new(&mut self.core), *id, session);
            self.restart(token);
        }
        self.note_sending(token, is_sending);
    }

    /// A connection is not read while a file is being sent.
    fn note_sending(&mut self, token: Token, is_sending: bool) {
        let Some(connection) = self.table.get_mut(token) else { return };
        if is_sending {
            connection.stops.set(Stops::SENDING);
        } else if connection.stops.has(Stops::SENDING) {
            connection.stops.clear(Stops::SENDING);
            self.restart(token);
        }
    }

    /// Called when a reason not to read has ended.
    fn restart(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        if connection.stops.has(Stops::AGAIN) {
            self.again.push(token);
        }
        self.watch(token);
        self.close_if_ended(token);
    }

    fn is_over_held(&self) -> bool {
        self.held_bytes > self.core.limits().held_bytes_max.bytes()
    }

    /// Stops reading this connection until less output is held.
    fn stall(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        if !connection.stops.has(Stops::STALLED) {
            connection.stops.set(Stops::STALLED);
            self.core.counters.stalls += 1;
            self.stalled.push(token);
        }
        self.watch(token);
    }

    pub(crate) fn end_stalls(&mut self) {
        let is_open = self.held_bytes <= self.core.limits().held_bytes_max.bytes() / 2;
        if self.stalled.is_empty() || !is_open {
            return;
        }
        for token in std::mem::take(&mut self.stalled) {
            if let Some(connection) = self.table.get_mut(token) {
                connection.stops.clear(Stops::STALLED);
                self.restart(token);
            }
        }
    }

    /// Called when no more input will arrive: closes when everything is sent, including answers
    /// still being computed.
    pub(crate) fn end_input(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        if connection.phase != Phase::Open
            || !self.handler.input_ended(connection.id, &mut connection.session)
        {
            return self.close(token);
        }
        connection.stops.set(Stops::PAUSED);
        connection.peer_left_reported = true;
        self.watch(token);
    }

    /// Closes when everything is sent.
    pub(crate) fn close(&mut self, token: Token) {
        if let Some(connection) = self.table.get_mut(token)
            && connection.phase == Phase::Open
        {
            self.begin_closing(token);
            self.flush_own(token);
        }
    }

    /// Remaining input will never be served; the peer may still be sending.
    pub(crate) fn begin_closing(&mut self, token: Token) {
        let Self { handler, table, handshakes, .. } = self;
        let Some(connection) = table.get_mut(token) else { return };
        handler.closing(connection.id, &mut connection.session, &mut connection.output);
        connection.phase = Phase::Closing;
        // The rest of an incomplete record is on its way, too.
        let has_part = connection.channel.as_ref().is_some_and(|one| !one.partial().is_empty());
        connection.must_linger = has_part || !connection.input.is_empty();
        connection.input.free();
        if let Some(channel) = &mut connection.channel
            && !channel.is_established()
        {
            // A report to the peer is impossible.
            connection.output.discard();
            handshakes.end(Some(channel));
        }
    }

    /// Everything is sent: ends our side of the connection.
    fn finish(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        // Flushes what the kernel held back. Closing alone would do so too, but not if input
        // arrived meanwhile: then the kernel discards its buffers and resets the connection.
        self.driver.shutdown_write(&connection.socket);
        if !connection.must_linger && !self.driver.has_unread(&connection.socket) {
            return self.remove(token);
        }
        connection.phase = Phase::Lingering;
        self.lingering.push_back((MonoNs(self.core.now.mono.0 + LINGER_NS), token));
        self.watch(token);
    }

    /// Discards input that arrives after the last output.
    fn discard(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        self.input.clear();
        self.core.counters.reads += 1;
        if matches!(
            self.driver.read(&connection.socket, &mut self.input),
            Io::Done(0) | Io::Broken(_)
        ) {
            self.remove(token);
        }
    }

    pub(crate) fn overflow(&mut self, token: Token) {
        self.core.counters.input_overflows += 1;
        self.remove(token);
    }

    /// Removes a connection that has failed, with the error of the system if there is one.
    pub(crate) fn break_off(&mut self, token: Token, error: Option<Errno>) {
        self.core.failure = error;
        self.remove(token);
        self.core.failure = None;
    }

    pub(crate) fn remove(&mut self, token: Token) {
        let Some(connection) = self.table.remove(token) else { return };
        let Connection { id, socket, session, output, held_counted, mut channel, .. } = connection;
        self.handshakes.end(channel.as_mut());
        self.held_bytes -= held_counted;
        self.core.links.group_state.connection_closed(self.core.index);
        if self.output.capacity() == 0 {
            // The connection ends while it has the reactor's buffer.
            self.output = output.into_buffer();
            self.output.reserve(SCRATCH_BYTES);
        }
        self.handler.closed(&mut Context::new(&mut self.core), id, session);
        // A peer that is cut off sees the end only after the handler has processed it, so other
        // clients that the peer contacts next see the processed state as well. Other peers saw the
        // end in `finish`, after `Handler::closing`.
        self.driver.close(socket);
    }
}
