//! The accept loop of the generator, the collector and the carrier.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::slots::{Slot, Slots};

/// Interval at which the listener is polled.
const PAUSE: Duration = Duration::from_millis(5);

/// Accepts connections from a non-blocking listener until `is_over`, each with a slot. Without a
/// free slot, connections wait in the kernel's queue. `serve` must not block: it starts a thread.
pub(crate) fn accept<'s>(
    listener: &TcpListener,
    slots: &'s Slots,
    is_over: impl Fn() -> bool,
    mut serve: impl FnMut(TcpStream, Slot<'s>),
) {
    while !is_over() {
        match slots.take().map(|slot| (listener.accept(), slot)) {
            Some((Ok((stream, _)), slot)) => serve(stream, slot),
            Some((Err(error), _)) if error.kind() != io::ErrorKind::WouldBlock => {
                tracing::warn!(%error, "could not accept connection");
                thread::sleep(PAUSE);
            }
            Some(_) | None => thread::sleep(PAUSE),
        }
    }
}
