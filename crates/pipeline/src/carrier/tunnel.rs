//! Carries one pipeline connection through a broker: its input is published under one subject, and
//! messages from another subject are its output.
//!
//! A message is a number, counted from 0 in each direction, a kind byte, and bytes of the
//! connection. A broker may drop messages under load; then a number is missing, and the connection
//! ends. The pipeline's credits bound the amount of data in flight.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use super::nats::{BrokerError, NatsReceiver, NatsSender};

/// Limit for one message's payload: more than a frame of 4,096 results.
pub(super) const CHUNK_BYTES_MAX: usize = 256 << 10;
const HEAD_BYTES: usize = 9;
pub(super) const MESSAGE_BYTES_MAX: usize = HEAD_BYTES + CHUNK_BYTES_MAX;

/// An idle end sends a keepalive at this interval.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// A silent peer is considered dead after this time: the broker does not report it.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// If no carrier serves a name, the connection is closed after this time, and the client retries.
const OPENING_TIMEOUT: Duration = Duration::from_secs(1);

const OPENED: u8 = 0;
const DATA: u8 = 1;
const ALIVE: u8 = 2;
const END: u8 = 3;

/// Sends messages with consecutive numbers.
struct NumberedSender<'a> {
    sender: &'a NatsSender,
    subject: &'a str,
    number: u64,
}

impl NumberedSender<'_> {
    fn send(&mut self, kind: u8, bytes: &[u8]) -> Result<(), BrokerError> {
        let number = self.number.to_be_bytes();
        self.number += 1;
        self.sender.publish(self.subject, &[&number, &[kind], bytes])
    }
}

/// Receives messages and checks their order.
struct NumberedReceiver {
    receiver: NatsReceiver,
    message: Vec<u8>,
    number: u64,
}

impl NumberedReceiver {
    fn next(&mut self) -> Result<(u8, &[u8]), BrokerError> {
        self.receiver.next(&mut self.message)?;
        let (number, rest) = split(&self.message)?;
        if number != self.number {
            let (expected, found) = (self.number, number);
            return Err(BrokerError::Missing { expected, found });
        }
        self.number += 1;
        let (kind, bytes) = rest.split_first().ok_or(BrokerError::Short)?;
        Ok((*kind, bytes))
    }
}

fn split(message: &[u8]) -> Result<(u64, &[u8]), BrokerError> {
    let (number, rest) = message.split_first_chunk().ok_or(BrokerError::Short)?;
    Ok((u64::from_be_bytes(*number), rest))
}

/// Runs the end that accepted a connection: waits until the other end has connected too.
pub(super) fn run_near(
    peer: &TcpStream,
    (sender, receiver): (NatsSender, NatsReceiver),
    subject: &str,
) -> Result<(), BrokerError> {
    receiver.wait_at_most(Some(OPENING_TIMEOUT))?;
    let mut numbered_receiver = NumberedReceiver { receiver, message: Vec::new(), number: 0 };
    match numbered_receiver.next()? {
        (OPENED, _) => {}
        // The service is unavailable.
        (END, _) => return Ok(()),
        (kind, _) => return Err(BrokerError::Kind(kind)),
    }
    numbered_receiver.receiver.wait_at_most(Some(SILENCE_TIMEOUT))?;
    run(peer, &sender, numbered_receiver, NumberedSender { sender: &sender, subject, number: 0 })
}

/// Notifies the other end that no connection could be established.
pub(super) fn refuse(sender: &NatsSender, subject: &str) -> Result<(), BrokerError> {
    let outcome = NumberedSender { sender, subject, number: 0 }.send(END, &[]);
    sender.end();
    outcome
}

/// Runs the end that connected to the service.
pub(super) fn run_far(
    peer: &TcpStream,
    (sender, receiver): (NatsSender, NatsReceiver),
    subject: &str,
) -> Result<(), BrokerError> {
    receiver.wait_at_most(Some(SILENCE_TIMEOUT))?;
    let numbered_receiver = NumberedReceiver { receiver, message: Vec::new(), number: 0 };
    let mut numbered_sender = NumberedSender { sender: &sender, subject, number: 0 };
    numbered_sender.send(OPENED, &[])?;
    run(peer, &sender, numbered_receiver, numbered_sender)
}

/// Runs both directions until either ends; then ends the other.
fn run(
    peer: &TcpStream,
    sender: &NatsSender,
    mut numbered_receiver: NumberedReceiver,
    numbered_sender: NumberedSender<'_>,
) -> Result<(), BrokerError> {
    peer.set_nodelay(true)?;
    peer.set_read_timeout(Some(ALIVE_INTERVAL))?;
    thread::scope(|scope| {
        let sent = scope.spawn(move || {
            let outcome = send_all(peer, numbered_sender);
            // The broker reads everything up to the end, then closes, so the receiving side ends
            // too.
            sender.end();
            outcome
        });
        let received = receive_all(peer, &mut numbered_receiver);
        // Unblocks the other thread, which may be reading from this connection.
        let _ = peer.shutdown(Shutdown::Both);
        let sent = sent.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        received.and(sent)
    })
}

fn send_all(
    mut peer: &TcpStream,
    mut numbered_sender: NumberedSender<'_>,
) -> Result<(), BrokerError> {
    let bytes_max = numbered_sender.sender.message_bytes_max.saturating_sub(HEAD_BYTES);
    let mut chunk = vec![0; CHUNK_BYTES_MAX.min(bytes_max).max(1)];
    loop {
        match peer.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => numbered_sender.send(DATA, &chunk[..count])?,
            Err(error) if is_timeout(&error) => numbered_sender.send(ALIVE, &[])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A connection that breaks ends like one that is closed.
            Err(_) => break,
        }
    }
    numbered_sender.send(END, &[])
}

fn receive_all(
    mut peer: &TcpStream,
    numbered_receiver: &mut NumberedReceiver,
) -> Result<(), BrokerError> {
    loop {
        match numbered_receiver.next() {
            Ok((DATA, bytes)) => peer.write_all(bytes)?,
            Ok((ALIVE, _)) => {}
            // Ended by the other end, or by this one, after which the broker closes.
            Ok((END, _)) | Err(BrokerError::Closed) => return Ok(()),
            Ok((kind, _)) => return Err(BrokerError::Kind(kind)),
            Err(error) => return Err(error),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
