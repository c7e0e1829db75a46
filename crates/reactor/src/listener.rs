//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::driver::std_address;
use crate::tls::Tls;
use crate::unix_socket::SocketFile;

/// Connections that the kernel completes before they are accepted; the usual limit of servers. The
/// system's `net.core.somaxconn` limits it as well.
pub const BACKLOG: i32 = 511;
/// Unanswered probes after which the kernel closes the connection of a silent peer.
const KEEPALIVE_PROBES: u32 = 3;

/// A listening socket and the message for connections that it must refuse.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    local: Option<SocketAddr>,
    refusal: Vec<u8>,
    tls: Option<Arc<Tls>>,
    reactor: Option<usize>,
    use_of_spare: UseOfSpare,
    /// Set for a Unix socket, whose peers have no addresses. Removed with the listener.
    file: Option<SocketFile>,
}

/// When connections of a listener are placed on the spare reactor of their group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UseOfSpare {
    Never,
    /// While all regular reactors are stalled.
    WhileStalled,
    Always,
}

impl Listener {
    /// Listens on `address` (port 0: any free one). `refusal` is sent, as far as it fits into
    /// the socket at once, to connections over the limit before they are closed.
    pub fn bind(address: SocketAddr, refusal: &[u8]) -> io::Result<Listener> {
        Listener::from_fd(listen(address, BACKLOG, false)?, refusal)
    }

    /// Sets how many unread bytes the kernel buffers per peer (`SO_RCVBUF`); accepted sockets
    /// inherit it.
    pub fn set_receive_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        sockopt::set_socket_recv_buffer_size(&self.fd, bytes)?;
        Ok(())
    }

    /// Makes a socket from [`bind`] listen, unless it already does.
    pub fn from_bound(socket: OwnedFd, backlog: usize, refusal: &[u8]) -> io::Result<Listener> {
        begin_listening(&socket, backlog)?;
        Listener::from_fd(socket, refusal)
    }

    /// Listens on a Unix socket at `path`, in place of a stale one. `mode`: permissions of its
    /// file, which is removed with the listener.
    pub fn unix(
        path: &Path,
        mode: Option<u32>,
        backlog: usize,
        refusal: &[u8],
    ) -> io::Result<Listener> {
        let (fd, file) =
            SocketFile::listen(path, mode, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(Listener { file: Some(file), ..Listener::new(fd, None, refusal) })
    }

    fn from_fd(fd: OwnedFd, refusal: &[u8]) -> io::Result<Listener> {
        // Accepted sockets inherit this and the keep-alive options: no call per connection.
        sockopt::set_tcp_nodelay(&fd, true)?;
        let local = std_address(rustix::net::getsockname(&fd)?);
        Ok(Listener::new(fd, local, refusal))
    }

    fn new(fd: OwnedFd, local: Option<SocketAddr>, refusal: &[u8]) -> Listener {
        Listener {
            fd,
            local,
            refusal: refusal.to_vec(),
            tls: None,
            reactor: None,
            use_of_spare: UseOfSpare::Never,
            file: None,
        }
    }

    /// Makes its connections speak TLS. Refused ones are closed without a message: none can be sent
    /// before the handshake.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<Tls>) -> Listener {
        self.refusal.clear();
        self.tls = Some(tls);
        self
    }

    /// Makes one reactor serve all its connections, whatever the placement.
    #[must_use]
    pub fn with_reactor(mut self, reactor: usize) -> Listener {
        self.reactor = Some(reactor);
        self
    }

    pub(crate) fn reactor(&self) -> Option<usize> {
        self.reactor
    }

    /// Places its connections on the spare reactor of the group while all others are stalled. The
    /// handler moves them on by [`Next::Leave`](crate::Next::Leave).
    #[must_use]
    pub fn with_spare(mut self) -> Listener {
        self.use_of_spare = UseOfSpare::WhileStalled;
        self
    }

    /// Places its connections on the spare reactor of the group. [`Limits::connections_max`] does
    /// not count for them; there may be 64 of them.
    ///
    /// [`Limits::connections_max`]: crate::Limits::connections_max
    #[must_use]
    pub fn with_spare_only(mut self) -> Listener {
        self.use_of_spare = UseOfSpare::Always;
        self
    }

    pub(crate) fn use_of_spare(&self) -> UseOfSpare {
        self.use_of_spare
    }

    pub(crate) fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// The address it listens on, with the actual port if port 0 was requested. `None` for a Unix
    /// socket.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    pub(crate) fn refusal(&self) -> &[u8] {
        &self.refusal
    }

    /// Whether a connection's local address has to be queried.
    pub(crate) fn is_wildcard(&self) -> bool {
        self.file.is_none() && self.local.is_none_or(|local| local.ip().is_unspecified())
    }

    /// Probes silent peers of future connections after `seconds`, or never for 0. The peers of a
    /// Unix socket cannot disappear without notice.
    pub(crate) fn set_keepalive(&self, seconds: u64) -> rustix::io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        sockopt::set_socket_keepalive(&self.fd, seconds != 0)?;
        if seconds != 0 {
            // The kernel's limit of these options.
            let seconds = seconds.min(32_767);
            sockopt::set_tcp_keepidle(&self.fd, Duration::from_secs(seconds))?;
            let interval = Duration::from_secs((seconds / u64::from(KEEPALIVE_PROBES)).max(1));
            sockopt::set_tcp_keepintvl(&self.fd, interval)?;
            sockopt::set_tcp_keepcnt(&self.fd, KEEPALIVE_PROBES)?;
        }
        Ok(())
    }
}

/// A non-blocking socket that listens on `address`. With `shares_port` other sockets may listen on
/// the same port, and the kernel spreads new connections over all of them.
pub fn listen(address: SocketAddr, backlog: i32, shares_port: bool) -> io::Result<OwnedFd> {
    let fd = bind(address, shares_port)?;
    rustix::net::listen(&fd, backlog)?;
    Ok(fd)
}

/// Makes a socket from [`bind`] listen: the kernel completes up to `backlog` connections before
/// they are accepted. For a listening socket it changes the backlog.
pub fn begin_listening(socket: &OwnedFd, backlog: usize) -> io::Result<()> {
    rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(())
}

/// Binds a socket that does not listen yet: the address is taken, but the kernel assigns no
/// connection to the socket.
pub fn bind(address: SocketAddr, shares_port: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if shares_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if address.is_ipv6() {
        // One listener per family, so that 0.0.0.0 and :: can both be listed.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    rustix::net::bind(&fd, &address)?;
    Ok(fd)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
