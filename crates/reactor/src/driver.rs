//! What a reactor needs from the system: readiness, reads, writes and a clock.
//!
//! A closed enum, so that no layer above is generic over it: the real driver is epoll
//! (level-triggered), the other an in-memory network.

mod epoll;
mod network;

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use base::time::{MonoNs, Now};
use rustix::io::Errno;

use crate::mailbox::Waker;
use crate::output::Tail;
use crate::token::Token;

pub(crate) use epoll::{EpollDriver, mono_now};
pub use epoll::{Trigger, Watcher};
pub use network::Faults;
pub(crate) use network::{Network, SharedNetwork, SimDriver};

/// One end of a connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Fd(OwnedFd),
    /// 32 bits, so that it is no larger than a descriptor.
    Sim(u32),
}

impl Socket {
    pub(crate) fn number(&self) -> u64 {
        match self {
            Socket::Fd(fd) => u64::try_from(fd.as_raw_fd()).unwrap_or(0),
            Socket::Sim(number) => u64::from(*number),
        }
    }
}

/// The events that the driver reports about a socket. Errors and full hangups are always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interest(u8);

impl Interest {
    pub(crate) const NONE: Interest = Interest(0);
    /// Input, and the end of input.
    pub(crate) const READ: Interest = Interest(1);
    pub(crate) const WRITE: Interest = Interest(2);
    /// The end of input only.
    pub(crate) const HANGUP: Interest = Interest(4);

    pub(crate) fn has(self, other: Interest) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn with(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }
}

/// An event of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Another thread called the waker.
    Wake,
    /// A descriptor of the handler is ready.
    Source(u32),
    Ready(Ready),
}

/// Readiness of a socket.
#[expect(clippy::struct_excessive_bools, reason = "the independent flags of an epoll event")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) token: Token,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has shut down its sending side.
    pub(crate) hangup: bool,
    /// Output is impossible: an error, or both sides are shut down.
    pub(crate) dead: bool,
}

/// Result of a read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Io {
    /// Bytes moved; 0 from a read is the end of input.
    Done(usize),
    /// Not possible now.
    Blocked,
    /// The connection is broken.
    Broken(Errno),
}

#[derive(Debug)]
pub(crate) enum Driver {
    Epoll(EpollDriver),
    Sim(SimDriver),
}

const MIXED: &str = "sockets stay with the kind of driver that made them";

impl Driver {
    /// Waits for events; `None`: without a limit. Returns how many there are.
    pub(crate) fn wait(&mut self, timeout_ns: Option<u64>) -> usize {
        match self {
            Driver::Epoll(driver) => driver.wait(timeout_ns),
            Driver::Sim(driver) => driver.wait(),
        }
    }

    /// Polls until there are events, `waker` is called, or `until` is reached. Returns how many
    /// there are. In the simulator time does not advance meanwhile, so it polls once.
    pub(crate) fn spin(&mut self, until: MonoNs, waker: &Waker) -> usize {
        match self {
            Driver::Epoll(driver) => driver.spin(until, waker),
            Driver::Sim(driver) => driver.wait(),
        }
    }

    /// The event at `position` of the last wait.
    pub(crate) fn event(&self, position: usize) -> Event {
        match self {
            Driver::Epoll(driver) => driver.event(position),
            Driver::Sim(driver) => driver.event(position),
        }
    }

    pub(crate) fn now(&mut self) -> Now {
        match self {
            Driver::Epoll(driver) => driver.now(),
            Driver::Sim(driver) => driver.now(),
        }
    }

    /// Processor time of the calling thread, by a system call. `None` in the simulator, where no
    /// thread waits for a core.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        match self {
            Driver::Epoll(driver) => Some(driver.cpu_ns()),
            Driver::Sim(_) => None,
        }
    }

    /// A reading for differences only, finer and cheaper than the clock.
    pub(crate) fn stamp_ns(&mut self) -> u64 {
        match self {
            Driver::Epoll(driver) => driver.stamp_ns(),
            Driver::Sim(driver) => driver.now().mono.0,
        }
    }

    pub(crate) fn register(
        &mut self,
        socket: &Socket,
        token: Token,
        interest: Interest,
    ) -> rustix::io::Result<()> {
        match (self, socket) {
            (Driver::Epoll(driver), Socket::Fd(fd)) => driver.register(fd, token, interest),
            (Driver::Sim(driver), Socket::Sim(number)) => {
                driver.register(u64::from(*number), token, interest);
                Ok(())
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    pub(crate) fn set_interest(&mut self, socket: &Socket, token: Token, interest: Interest) {
        match (self, socket) {
            (Driver::Epoll(driver), Socket::Fd(fd)) => driver.set_interest(fd, token, interest),
            (Driver::Sim(driver), Socket::Sim(number)) => {
                driver.register(u64::from(*number), token, interest);
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Stops watching a socket that moves to another reactor.
    pub(crate) fn deregister(&mut self, socket: &Socket) {
        match (self, socket) {
            (Driver::Epoll(driver), Socket::Fd(fd)) => driver.deregister(fd),
            (Driver::Sim(driver), Socket::Sim(number)) => driver.deregister(u64::from(*number)),
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Makes closing the socket drop the kernel's unsent bytes and reset the connection. In the
    /// simulator the peer sees every close at once.
    pub(crate) fn reset_on_close(&self, socket: &Socket) {
        match (self, socket) {
            (Driver::Epoll(_), Socket::Fd(fd)) => {
                // If this fails, the connection ends like any other.
                let _ = rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO));
            }
            (Driver::Sim(_), Socket::Sim(_)) => {}
            _ => unreachable!("{MIXED}"),
        }
    }

    pub(crate) fn close(&mut self, socket: Socket) {
        match (self, socket) {
            // Closing the last descriptor ends the watch as well.
            (Driver::Epoll(_), Socket::Fd(fd)) => drop(fd),
            (Driver::Sim(driver), Socket::Sim(number)) => driver.close(u64::from(number)),
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Reads once into the spare capacity of `buffer`, which must have some.
    pub(crate) fn read(&mut self, socket: &Socket, buffer: &mut Vec<u8>) -> Io {
        match (self, socket) {
            (Driver::Epoll(_), Socket::Fd(fd)) => EpollDriver::read(fd, buffer),
            (Driver::Sim(driver), Socket::Sim(number)) => driver.read(u64::from(*number), buffer),
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Writes once. `has_more`: a file or the end of the connection follows at once, so the kernel
    /// may wait for it.
    pub(crate) fn write(&mut self, socket: &Socket, bytes: &[u8], has_more: bool) -> Io {
        match (self, socket) {
            (Driver::Epoll(_), Socket::Fd(fd)) => EpollDriver::write(fd, bytes, has_more),
            (Driver::Sim(driver), Socket::Sim(number)) => driver.write(u64::from(*number), bytes),
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Sends from a file once, at most `bytes_max`. `Done(0)`: the file ends before.
    pub(crate) fn send_file(&mut self, socket: &Socket, tail: &Tail, bytes_max: usize) -> Io {
        let count = usize::try_from(tail.bytes_left).unwrap_or(usize::MAX).min(bytes_max);
        match (self, socket) {
            (Driver::Epoll(_), Socket::Fd(fd)) => {
                EpollDriver::send_file(fd, &tail.file, tail.offset, count)
            }
            (Driver::Sim(driver), Socket::Sim(number)) => {
                let mut bytes = vec![0; count];
                match rustix::io::pread(&tail.file, &mut bytes, tail.offset) {
                    Ok(count) if count != 0 => driver.write(u64::from(*number), &bytes[..count]),
                    Ok(_) => Io::Done(0),
                    Err(error) => Io::Broken(error),
                }
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Takes the error that an event has reported, if any. The simulator reports none.
    pub(crate) fn take_error(&self, socket: &Socket) -> Option<Errno> {
        match (self, socket) {
            (Driver::Epoll(_), Socket::Fd(fd)) => {
                rustix::net::sockopt::socket_error(fd).ok().and_then(Result::err)
            }
            (Driver::Sim(_), Socket::Sim(_)) => None,
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Whether input waits in the kernel; closing now would reset the connection.
    pub(crate) fn has_unread(&self, socket: &Socket) -> bool {
        match (self, socket) {
            (Driver::Epoll(_), Socket::Fd(fd)) => EpollDriver::has_unread(fd),
            (Driver::Sim(driver), Socket::Sim(number)) => driver.has_unread(u64::from(*number)),
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Shuts down the sending side.
    pub(crate) fn shutdown_write(&mut self, socket: &Socket) {
        match (self, socket) {
            (Driver::Epoll(_), Socket::Fd(fd)) => EpollDriver::shutdown_write(fd),
            (Driver::Sim(driver), Socket::Sim(number)) => driver.shutdown_write(u64::from(*number)),
            _ => unreachable!("{MIXED}"),
        }
    }
}

/// Converts a kernel address to one of the standard library; `None` for other families.
pub(crate) fn std_address(address: rustix::net::SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}
