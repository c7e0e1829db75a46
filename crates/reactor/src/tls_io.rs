//! The TLS variants of a reactor's reads and writes.

use base::time::MonoNs;
use rustix::io::Errno;

use crate::connection::{Connection, Phase};
use crate::driver::Io;
use crate::handler::Handler;
use crate::handshakes::Handshakes;
use crate::output::Output;
use crate::reactor::Reactor;
use crate::serve::{FILE_TURN_BYTES_MAX, READ_COST_BYTES, Source};
use crate::tls::{Channel, ENCRYPT_BYTES_MAX, PARTIAL_BYTES_MAX};
use crate::token::Token;

/// Maximum read from a socket at once, in addition to the incomplete record kept from before.
const READ_BYTES: usize = 128 * 1024;
/// Maximum encrypted and sent before other connections get their turn.
const SEND_TURN_BYTES_MAX: usize = 1024 * 1024;

/// Finished handshakes that may stay in the list before it is searched for them.
const FINISHED_MAX: usize = 64;

impl<H: Handler> Reactor<H> {
    /// Registers a new TLS connection, whose handshake has a deadline.
    pub(crate) fn begin_handshake(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        let Some(channel) = &mut connection.channel else { return };
        channel.is_counted = true;
        self.handshakes.unfinished += 1;
        self.handshakes.began.push_back((connection.opened_at, token));
    }

    /// Whether a connection is in its handshake, and this turn has continued enough of them.
    pub(crate) fn must_wait_for_handshakes(&mut self, token: Token) -> bool {
        let channel = self.table.get_mut(token).and_then(|one| one.channel.as_ref());
        let is_in_handshake = channel.is_some_and(|channel| !channel.is_established());
        is_in_handshake && !self.handshakes.may_read()
    }

    /// Ends handshakes that take too long, and the oldest when there are too many: a genuine client
    /// completes its handshake in milliseconds, however many others only begin one. True if there
    /// were any.
    pub(crate) fn end_handshakes(&mut self) -> bool {
        let limits = self.core.limits();
        let timeout_ns = limits.handshake_timeout_ms.get().saturating_mul(1_000_000);
        let reactors = self.core.links.reactors() as u64;
        let unfinished_max = limits.handshakes_max.get().div_ceil(reactors);
        let mut any = false;
        while let Some((began, token)) = self.handshakes.began.front().copied() {
            let channel = self.table.get_mut(token).and_then(|one| one.channel.as_ref());
            if channel.is_some_and(|channel| channel.is_counted) {
                let is_late = timeout_ns != 0 && self.core.now.mono.since(began) >= timeout_ns;
                if is_late {
                    self.core.counters.tls_timeouts += 1;
                } else if self.handshakes.unfinished as u64 > unfinished_max {
                    self.core.counters.tls_crowded_out += 1;
                } else {
                    break;
                }
                any = true;
                self.remove(token);
            }
            self.handshakes.began.pop_front();
        }
        let Self { handshakes: Handshakes { began, unfinished, .. }, table, .. } = self;
        if began.len() > 2 * *unfinished + FINISHED_MAX {
            // Removes finished ones that follow an unfinished one.
            began.retain(|(_, token)| {
                let channel = table.get_mut(*token).and_then(|one| one.channel.as_ref());
                channel.is_some_and(|channel| channel.is_counted)
            });
        }
        any
    }

    /// The deadline of the oldest handshake.
    pub(crate) fn handshake_deadline(&self) -> Option<MonoNs> {
        let timeout_ms = self.core.limits().handshake_timeout_ms.get();
        let timeout_ns = timeout_ms.saturating_mul(1_000_000);
        let began = self.handshakes.oldest().filter(|_| timeout_ns != 0)?;
        Some(MonoNs(began.0.saturating_add(timeout_ns)))
    }

    /// Reads once, and passes the content of complete records to the handler.
    pub(crate) fn receive_tls(&mut self, token: Token) {
        let bytes_max = self.core.limits().input_bytes_max.bytes();
        let Self { table, driver, input, tls_input: encrypted, core, handshakes, handler, .. } =
            self;
        let Some(connection) = table.get_mut(token) else { return };
        let kept = connection.input.unread().len();
        if kept >= bytes_max {
            return self.overflow(token);
        }
        let is_shared = connection.reads_shared();
        let needed = connection.needed;
        let Connection { socket, channel: Some(channel), .. } = connection else { return };
        if channel.has_ended() {
            return self.end_input(token);
        }
        encrypted.clear();
        encrypted.reserve_exact(READ_BYTES + PARTIAL_BYTES_MAX);
        encrypted.extend_from_slice(channel.partial());
        let io = driver.read(socket, encrypted);
        core.counters.reads += 1;
        let count = match io {
            Io::Blocked => return,
            // Without a close_notify alert, the input may be truncated.
            Io::Done(0) => {
                core.counters.tls_truncated += u64::from(channel.is_established());
                return self.remove(token);
            }
            Io::Broken(error) => return self.break_off(token, Some(error)),
            Io::Done(count) => count,
        };
        core.counters.input_bytes += count as u64;
        connection.last_activity = core.now.mono;
        connection.recent_cost += READ_COST_BYTES + count as u64;
        let plain = if is_shared {
            input.clear();
            input.extend_from_slice(connection.input.unread());
            &mut *input
        } else {
            connection.input.with_room_for(encrypted.len(), needed, bytes_max)
        };
        let before = plain.len();
        let decrypted = channel.decrypt(encrypted, plain);
        let brought = plain.len() - before;
        if let Err(error) = decrypted {
            return self.fail_tls(token, &error);
        }
        if channel.is_counted && channel.is_established() {
            core.counters.tls_handshakes += 1;
            handshakes.end(Some(channel));
            handler.secured(connection.id, &mut connection.session, channel.peer_certificate());
        }
        if brought != 0 && kept + brought >= needed {
            self.call(token, if is_shared { Source::Shared } else { Source::Own });
        } else {
            if brought != 0 && is_shared {
                connection.input.keep(input);
            }
            self.flush_own(token);
        }
        self.close_if_ended(token);
    }

    /// Closes when the peer has sent its `close_notify` alert and all earlier input is served.
    pub(crate) fn close_if_ended(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        let has_ended = connection
            .channel
            .as_ref()
            .is_some_and(|channel| channel.has_ended() || channel.is_nearly_used_up());
        if has_ended && connection.phase == Phase::Open && connection.wants_read() {
            self.end_input(token);
        }
    }

    /// Handles input that is not valid TLS, or not acceptable: sends an alert and closes.
    fn fail_tls(&mut self, token: Token, error: &rustls::Error) {
        self.begin_closing(token);
        let Some(connection) = self.table.get_mut(token) else { return };
        self.core.counters.tls_failures += 1;
        tracing::debug!(id = connection.id.0, remote = ?connection.peer.remote, %error, "TLS error");
        if let Some(channel) = &mut connection.channel {
            channel.queue_alert();
        }
        connection.output.discard();
        // So that the alert is not lost to input that the peer is still sending.
        connection.must_linger = true;
        self.flush_own(token);
    }

    /// Encrypts and sends permitted output, piece by piece, until the kernel takes no more. False
    /// if the connection is gone.
    pub(crate) fn send_tls(&mut self, token: Token) -> bool {
        let Self { table, driver, core, tls_input: scratch, tls_output, .. } = self;
        let Some(connection) = table.get_mut(token) else { return false };
        let is_closing = connection.phase == Phase::Closing;
        let Connection { socket, output, channel: Some(channel), .. } = connection else {
            return true;
        };
        let is_lent = channel.outbox.lend(tls_output);
        let mut sent_bytes = 0;
        let sent = loop {
            if channel.outbox.unsent().is_empty() {
                match refill(channel, output, is_closing, scratch) {
                    Ok(true) => {}
                    Ok(false) => break Ok(false),
                    Err(refused) => break Err(refused),
                }
            }
            if sent_bytes >= SEND_TURN_BYTES_MAX {
                break Ok(true);
            }
            let bytes = channel.outbox.unsent();
            core.counters.writes += 1;
            let started = driver.stamp_ns();
            let written = driver.write(socket, bytes, false);
            core.counters.write_ns += driver.stamp_ns().saturating_sub(started);
            let count = match written {
                Io::Done(count) => count,
                Io::Blocked => 0,
                Io::Broken(error) => break Err(Refused(Some(error))),
            };
            let is_blocked = count < bytes.len();
            sent_bytes += count;
            channel.outbox.advance(count);
            if is_blocked {
                break Ok(true);
            }
        };
        if is_lent {
            channel.outbox.settle(tls_output);
        } else {
            channel.outbox.free_if_empty();
        }
        output.note_encrypted(channel.outbox.unsent().len());
        core.counters.output_bytes += sent_bytes as u64;
        if sent_bytes != 0 {
            connection.last_activity = core.now.mono;
        }
        match sent {
            Ok(is_blocked) => self.note_blocked(token, is_blocked),
            Err(Refused(error)) => self.break_off(token, error),
        }
        sent.is_ok()
    }
}

/// Sending is impossible from now on, after this error of the system, if any.
#[derive(Debug, Clone, Copy)]
struct Refused(Option<Errno>);

/// Encrypts the next piece of permitted output: bytes, then a file, then the `close_notify` alert.
/// False if there is none.
fn refill(
    channel: &mut Channel,
    output: &mut Output,
    is_closing: bool,
    scratch: &mut Vec<u8>,
) -> Result<bool, Refused> {
    if !channel.is_established() {
        return Ok(false);
    }
    let bytes = output.releasable();
    if !bytes.is_empty() {
        let count = bytes.len().min(ENCRYPT_BYTES_MAX);
        channel.encrypt(&bytes[..count]).map_err(|_| Refused(None))?;
        output.advance(count);
    } else if !output.is_empty() {
        return Ok(false);
    } else if output.tail().is_some() {
        encrypt_file(channel, output, scratch)?;
    } else if is_closing {
        channel.queue_close_notify();
    }
    Ok(!channel.outbox.unsent().is_empty())
}

/// Encrypts the next piece of the attached file.
fn encrypt_file(
    channel: &mut Channel,
    output: &mut Output,
    scratch: &mut Vec<u8>,
) -> Result<(), Refused> {
    const { assert!(ENCRYPT_BYTES_MAX <= FILE_TURN_BYTES_MAX) };
    let Some(tail) = output.tail() else { return Ok(()) };
    let left = usize::try_from(tail.bytes_left).unwrap_or(usize::MAX);
    scratch.clear();
    scratch.resize(left.min(ENCRYPT_BYTES_MAX), 0);
    let read = rustix::io::pread(&tail.file, &mut scratch[..], tail.offset);
    // A truncated file breaks the connection, as it does with sendfile.
    let count = read.map_err(|error| Refused(Some(error)))?;
    if count == 0 {
        return Err(Refused(None));
    }
    channel.encrypt(&scratch[..count]).map_err(|_| Refused(None))?;
    output.advance_tail(count);
    Ok(())
}
