//! What a reactor does for a connection with TLS where others read and send plain bytes.

use base::time::MonoNs;

use crate::connection::{Connection, Phase};
use crate::driver::Io;
use crate::handler::Handler;
use crate::handshakes::Handshakes;
use crate::output::Output;
use crate::reactor::Reactor;
use crate::serve::{FILE_TURN_BYTES_MAX, READ_COST_BYTES, Source};
use crate::tls::{Channel, PARTIAL_BYTES_MAX, SEAL_BYTES_MAX};
use crate::token::Token;

/// Most that is read from a socket at once, beside what was kept of it.
const READ_BYTES: usize = 128 * 1024;
/// Most that is sealed and sent before other connections get their turn.
const SEND_TURN_BYTES_MAX: usize = 1024 * 1024;

/// Finished handshakes that may be listed without being looked for.
const OVER_MAX: usize = 64;

impl<H: Handler> Reactor<H> {
    /// A connection with TLS has come: its handshake is to be over soon.
    pub(crate) fn begin_handshake(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        let Some(channel) = &mut connection.channel else { return };
        channel.is_counted = true;
        self.handshakes.unfinished += 1;
        self.handshakes.began.push_back((connection.opened_at, token));
    }

    /// Ends handshakes that take too long, and the oldest when there are too many: somebody who means
    /// it is through in milliseconds, however many only begin. True if there were any.
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
        let Self { handshakes: Handshakes { began, unfinished }, table, .. } = self;
        if began.len() > 2 * *unfinished + OVER_MAX {
            // Those that are over, behind one that is not.
            began.retain(|(_, token)| {
                let channel = table.get_mut(*token).and_then(|one| one.channel.as_ref());
                channel.is_some_and(|channel| channel.is_counted)
            });
        }
        any
    }

    /// When the oldest handshake has taken too long.
    pub(crate) fn handshake_deadline(&self) -> Option<MonoNs> {
        let timeout_ms = self.core.limits().handshake_timeout_ms.get();
        let timeout_ns = timeout_ms.saturating_mul(1_000_000);
        let began = self.handshakes.oldest().filter(|_| timeout_ns != 0)?;
        Some(MonoNs(began.0.saturating_add(timeout_ns)))
    }

    /// Reads once, and shows the handler what whole records have brought.
    pub(crate) fn receive_sealed(&mut self, token: Token) {
        let bytes_max = self.core.limits().input_bytes_max.bytes();
        let Self { table, driver, input, sealed_input: sealed, core, handshakes, .. } = self;
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
        sealed.clear();
        sealed.reserve_exact(READ_BYTES + PARTIAL_BYTES_MAX);
        sealed.extend_from_slice(channel.partial());
        let io = driver.read(socket, sealed);
        core.counters.reads += 1;
        let count = match io {
            Io::Blocked => return,
            // Without a goodbye nobody knows whether this is all that the peer has sent.
            Io::Done(0) => {
                core.counters.tls_truncated += u64::from(channel.is_established());
                return self.remove(token);
            }
            Io::Broken => return self.remove(token),
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
            connection.input.with_room_for(sealed.len(), needed, bytes_max)
        };
        let before = plain.len();
        let opened = channel.open(sealed, plain);
        let brought = plain.len() - before;
        if let Err(error) = opened {
            return self.break_off(token, &error);
        }
        if channel.is_counted && channel.is_established() {
            core.counters.tls_handshakes += 1;
            handshakes.end(Some(channel));
        }
        if brought != 0 && kept + brought >= needed {
            self.call(token, if is_shared { Source::Shared } else { Source::Own });
        } else {
            if brought != 0 && is_shared {
                connection.input.keep(input);
            }
            self.flush_own(token);
        }
        self.heed_end(token);
    }

    /// Closes when the peer has said that nothing more comes, and what came before is done with.
    pub(crate) fn heed_end(&mut self, token: Token) {
        let Some(connection) = self.table.get_mut(token) else { return };
        let has_ended = connection
            .channel
            .as_ref()
            .is_some_and(|channel| channel.has_ended() || channel.is_worn_out());
        if has_ended && connection.phase == Phase::Open && connection.wants_read() {
            self.end_input(token);
        }
    }

    /// The peer has sent what is no TLS, or not ours: it is told so, and no more.
    fn break_off(&mut self, token: Token, error: &rustls::Error) {
        self.begin_closing(token);
        let Some(connection) = self.table.get_mut(token) else { return };
        self.core.counters.tls_failures += 1;
        tracing::debug!(id = connection.id.0, remote = ?connection.peer.remote, %error, "TLS fails");
        if let Some(channel) = &mut connection.channel {
            channel.give_up();
        }
        connection.output.discard();
        // So that the alert is not lost to what the peer is still sending.
        connection.must_linger = true;
        self.flush_own(token);
    }

    /// Seals and sends what may leave, piece by piece, until the kernel takes no more. False if the
    /// connection is gone.
    pub(crate) fn send_sealed(&mut self, token: Token) -> bool {
        let Self { table, driver, core, sealed_input: scratch, sealed_output, .. } = self;
        let Some(connection) = table.get_mut(token) else { return false };
        let is_closing = connection.phase == Phase::Closing;
        let Connection { socket, output, channel: Some(channel), .. } = connection else {
            return true;
        };
        let is_lent = channel.outbox.lend(sealed_output);
        let mut sent_bytes = 0;
        let sent = loop {
            if channel.outbox.unsent().is_empty() {
                match refill(channel, output, is_closing, scratch) {
                    Ok(true) => {}
                    Ok(false) => break Ok(false),
                    Err(Refused) => break Err(Refused),
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
                Io::Broken => break Err(Refused),
            };
            let is_blocked = count < bytes.len();
            sent_bytes += count;
            channel.outbox.advance(count);
            if is_blocked {
                break Ok(true);
            }
        };
        if is_lent {
            channel.outbox.settle(sealed_output);
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
            Err(Refused) => self.remove(token),
        }
        sent.is_ok()
    }
}

/// Nothing can be sent any more.
#[derive(Debug, Clone, Copy)]
struct Refused;

/// Seals the next piece of what may leave: bytes, then a file, then the goodbye. False if there is
/// nothing.
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
        let count = bytes.len().min(SEAL_BYTES_MAX);
        channel.seal(&bytes[..count]).map_err(|_| Refused)?;
        output.advance(count);
    } else if !output.is_empty() {
        return Ok(false);
    } else if output.tail().is_some() {
        seal_file(channel, output, scratch)?;
    } else if is_closing {
        channel.say_goodbye();
    }
    Ok(!channel.outbox.unsent().is_empty())
}

/// Seals the next piece of the attached file.
fn seal_file(
    channel: &mut Channel,
    output: &mut Output,
    scratch: &mut Vec<u8>,
) -> Result<(), Refused> {
    const { assert!(SEAL_BYTES_MAX <= FILE_TURN_BYTES_MAX) };
    let Some(tail) = output.tail() else { return Ok(()) };
    let left = usize::try_from(tail.bytes_left).unwrap_or(usize::MAX);
    scratch.clear();
    scratch.resize(left.min(SEAL_BYTES_MAX), 0);
    let read = rustix::io::pread(&tail.file, &mut scratch[..], tail.offset);
    // A file that ends before it should is as broken here as it is with sendfile.
    let count = read.ok().filter(|count| *count != 0).ok_or(Refused)?;
    channel.seal(&scratch[..count]).map_err(|_| Refused)?;
    output.advance_tail(count);
    Ok(())
}
