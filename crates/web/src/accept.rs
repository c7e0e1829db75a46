//! Accepts connections, even if descriptors are exhausted.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::scheme::Scheme;

/// Response to a connection that cannot be served, unless it uses TLS.
pub(crate) const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Input of a refused connection that is discarded: usually a request without a body.
const DISCARD_BYTES: usize = 8 * 1024;

/// Maximum number of connections waiting at one socket: the kernel's queues are shorter.
// Source: listen(2), net.core.somaxconn
pub(crate) const WAITING_MAX: usize = 65_536;

/// Result of one accept attempt.
#[derive(Debug)]
pub(crate) enum Accepted {
    Connection(OwnedFd, Option<SocketAddr>),
    /// No connection is waiting.
    Empty,
    /// The waiting connection was closed or refused.
    Gone,
    /// Accepting must pause.
    Rest,
}

/// Accepts connections. Holds a spare descriptor, so that it can refuse a connection when no others
/// are free.
#[derive(Debug)]
pub(crate) struct Acceptor {
    spare: Option<OwnedFd>,
    /// Since the last query.
    refused: u64,
}

impl Acceptor {
    pub(crate) fn new() -> Acceptor {
        Acceptor { spare: open_spare(), refused: 0 }
    }

    pub(crate) fn accept(&mut self, listener: &impl AsFd, scheme: Scheme) -> Accepted {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::acceptfrom_with(listener, flags) {
            Ok((socket, remote)) => {
                let remote = remote.and_then(|remote| SocketAddr::try_from(remote).ok());
                Accepted::Connection(socket, remote)
            }
            // INVAL: the socket is not listening yet.
            Err(Errno::AGAIN | Errno::INVAL) => Accepted::Empty,
            Err(Errno::MFILE | Errno::NFILE) => self.refuse_one(listener, scheme),
            Err(Errno::NOBUFS | Errno::NOMEM | Errno::PERM) => Accepted::Rest,
            // The other errors concern the accepted connection, not the listening socket.
            // Source: accept(2), "Error handling"
            Err(_) => Accepted::Gone,
        }
    }

    /// Returns the number of connections refused since the last call.
    pub(crate) fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Accepts one connection with the spare descriptor and refuses it.
    fn refuse_one(&mut self, listener: &impl AsFd, scheme: Scheme) -> Accepted {
        let Some(spare) = self.spare.take() else {
            self.spare = open_spare();
            return Accepted::Rest;
        };
        drop(spare);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = rustix::net::accept_with(listener, flags);
        let entry = match &accepted {
            Ok(socket) => {
                refuse(socket, scheme);
                self.refused += 1;
                Accepted::Gone
            }
            Err(Errno::AGAIN) => Accepted::Empty,
            Err(_) => Accepted::Rest,
        };
        drop(accepted);
        self.spare = open_spare();
        entry
    }
}

/// Sends the refusal. The caller closes the socket.
pub(crate) fn refuse(socket: &impl AsFd, scheme: Scheme) {
    if scheme == Scheme::Https {
        // No response is possible before the TLS handshake.
        return;
    }
    // The peer may have disconnected, and is refused either way.
    let _ = rustix::net::send(socket, REFUSAL, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    // Closing with unread input would reset the connection and discard the response.
    let _ = rustix::net::recv(socket, &mut [0_u8; DISCARD_BYTES], RecvFlags::DONTWAIT);
}

fn open_spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Raises the limit of open files to what the system allows this process.
pub(crate) fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}
