//! Takes connections from listening sockets, also when descriptors run out.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::scheme::Scheme;

/// What a connection gets that cannot be served, unless it speaks TLS.
pub(crate) const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Input of a refused connection that is thrown away: a request without a body, mostly.
const DISCARD_BYTES: usize = 8 * 1024;

/// Most that wait at one socket: the kernel's queues are shorter.
// Source: listen(2), net.core.somaxconn
pub(crate) const WAITING_MAX: usize = 65_536;

/// What one try to accept brought.
#[derive(Debug)]
pub(crate) enum Entry {
    Connection(OwnedFd, Option<SocketAddr>),
    /// Nobody waits.
    Empty,
    /// The one that waited is gone, or was refused.
    Gone,
    /// Accepting cannot go on now.
    Rest,
}

/// Accepts. Keeps a descriptor to give up, so that somebody can be told when there are no more.
#[derive(Debug)]
pub(crate) struct Door {
    spare: Option<OwnedFd>,
    /// Since somebody asked.
    refused: u64,
}

impl Door {
    pub(crate) fn new() -> Door {
        Door { spare: open_spare(), refused: 0 }
    }

    pub(crate) fn accept(&mut self, listener: &impl AsFd, scheme: Scheme) -> Entry {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::acceptfrom_with(listener, flags) {
            Ok((socket, remote)) => {
                let remote = remote.and_then(|remote| SocketAddr::try_from(remote).ok());
                Entry::Connection(socket, remote)
            }
            // INVAL: the socket does not listen yet.
            Err(Errno::AGAIN | Errno::INVAL) => Entry::Empty,
            Err(Errno::MFILE | Errno::NFILE) => self.refuse_one(listener, scheme),
            Err(Errno::NOBUFS | Errno::NOMEM | Errno::PERM) => Entry::Rest,
            // The others are of the connection that waited, not of the socket.
            // Source: accept(2), "Error handling"
            Err(_) => Entry::Gone,
        }
    }

    /// Connections that were refused since the last call.
    pub(crate) fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Accepts one connection with the spare descriptor and refuses it.
    fn refuse_one(&mut self, listener: &impl AsFd, scheme: Scheme) -> Entry {
        let Some(spare) = self.spare.take() else {
            self.spare = open_spare();
            return Entry::Rest;
        };
        drop(spare);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = rustix::net::accept_with(listener, flags);
        let entry = match &accepted {
            Ok(socket) => {
                refuse(socket, scheme);
                self.refused += 1;
                Entry::Gone
            }
            Err(Errno::AGAIN) => Entry::Empty,
            Err(_) => Entry::Rest,
        };
        drop(accepted);
        self.spare = open_spare();
        entry
    }
}

/// Says that there is no room. The socket is closed by its owner.
pub(crate) fn refuse(socket: &impl AsFd, scheme: Scheme) {
    if scheme == Scheme::Https {
        // Before the handshake there is no way to say it.
        return;
    }
    // The peer may be gone already, and it is refused either way.
    let _ = rustix::net::send(socket, REFUSAL, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    // Closed with unread input, the connection would be reset, and the words with it.
    let _ = rustix::net::recv(socket, &mut [0_u8; DISCARD_BYTES], RecvFlags::DONTWAIT);
}

fn open_spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Raises the bound of open files to what the system allows this process.
pub(crate) fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}
