//! The listening sockets of one address. They are bound once and kept for the lifetime of the
//! program and across upgrades, so that no waiting connection is lost.
//!
//! A socket that is bound for new options starts to listen only when the workers with these options
//! are ready: the kernel distributes clients over all listening sockets of an address, and closing
//! one loses its clients.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use rustix::net::sockopt;

use super::addresses::{RequestedAddress, Socket};
use crate::config::{Accept, Config};
use crate::scheme::Scheme;

static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub(crate) struct Listeners {
    /// Unique within the lifetime of the master.
    number: u32,
    /// As given in the options; port 0 is chosen by the kernel.
    requested: RequestedAddress,
    local: SocketAddr,
    sockets: Vec<OwnedFd>,
}

impl Listeners {
    /// Binds as many sockets as the workers need. Clients cannot connect before
    /// [`Listeners::open`].
    pub(crate) fn bind(requested: RequestedAddress, config: &Config) -> anyhow::Result<Listeners> {
        let address = requested.address;
        let doing = || format!("could not listen on {address}");
        if address.port() != 0 {
            // The sockets below share their port with any process of the same user. This one does
            // not, so that it detects other listeners.
            reactor::listen(address, 1, false).with_context(doing)?;
        }
        let first = reactor::bind(address, true).with_context(doing)?;
        prepare(&first).with_context(doing)?;
        let mut listeners = Listeners::inherited(requested, vec![first])?;
        listeners.adapt(config)?;
        Ok(listeners)
    }

    /// Wraps bound sockets, possibly from another master.
    pub(crate) fn inherited(
        requested: RequestedAddress,
        sockets: Vec<OwnedFd>,
    ) -> anyhow::Result<Listeners> {
        let first = sockets.first().context("no listening socket received")?;
        let local = SocketAddr::try_from(rustix::net::getsockname(first)?)?;
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Listeners { number, requested, local, sockets })
    }

    /// Whether these sockets are for this configured address.
    pub(crate) fn serves(&self, wanted: RequestedAddress) -> bool {
        wanted.scheme == self.requested.scheme
            && (wanted.address == self.requested.address || wanted.address == self.local)
    }

    /// Binds the missing sockets for these options, without listening. Closes nothing, because
    /// connections may be waiting.
    pub(crate) fn adapt(&mut self, config: &Config) -> anyhow::Result<()> {
        let is_shared = is_shared(self.scheme(), config.accept);
        let needed = if is_shared { 1 } else { config.worker_count() };
        while self.sockets.len() < needed {
            let socket = reactor::bind(self.local, true)
                .and_then(|socket| prepare(&socket).map(|()| socket));
            let doing = || format!("could not listen on {}", self.local);
            self.sockets.push(socket.with_context(doing)?);
        }
        Ok(())
    }

    /// Makes all sockets listen; applies the backlog of these options to listening ones.
    pub(crate) fn open(&self, config: &Config) -> anyhow::Result<()> {
        let doing = || format!("could not listen on {}", self.local);
        self.sockets
            .iter()
            .try_for_each(|socket| rustix::net::listen(socket, backlog(config)).with_context(doing))
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn requested(&self) -> RequestedAddress {
        self.requested
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.requested.scheme
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn count(&self) -> usize {
        self.sockets.len()
    }

    /// Returns the first `count` sockets, or all if there are fewer.
    pub(crate) fn sockets(&self, count: usize) -> impl Iterator<Item = Socket<'_>> {
        let (scheme, address) = (self.scheme(), self.number);
        let sockets = self.sockets.iter().take(count).enumerate();
        sockets.map(move |(index, fd)| Socket { scheme, address, index, fd })
    }

    /// Returns the sockets of one worker: its share, or all of them. `count` is the number of
    /// sockets for these options.
    pub(crate) fn of_slot(
        &self,
        config: &Config,
        slot: usize,
        count: usize,
    ) -> Vec<BorrowedFd<'_>> {
        let workers = config.worker_count();
        let is_accepted_by_master =
            config.accept == Accept::Fdpass && self.scheme() != Scheme::Status;
        let is_shared = is_shared(self.scheme(), config.accept);
        self.sockets(count)
            .filter(|socket| {
                !is_accepted_by_master && (is_shared || socket.index % workers == slot)
            })
            .map(|socket| socket.fd.as_fd())
            .collect()
    }

    /// Removes and returns the sockets after the first `count`.
    pub(crate) fn cut(&mut self, count: usize) -> Vec<OwnedFd> {
        self.sockets.split_off(count.min(self.sockets.len()))
    }
}

/// Whether all workers share one socket. The operator's socket is always shared, so that a hanging
/// worker does not block requests to it.
pub(crate) fn is_shared(scheme: Scheme, accept: Accept) -> bool {
    scheme == Scheme::Status || !accept.has_own_listeners()
}

fn backlog(config: &Config) -> i32 {
    i32::try_from(config.backlog).unwrap_or(i32::MAX)
}

/// Sets the options that accepted sockets inherit, so that none must be configured separately.
fn prepare(socket: &OwnedFd) -> std::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    use super::*;
    use crate::accept::{Accepted, Acceptor};

    fn config(accept: Accept, workers: usize) -> Config {
        Config { workers, accept, ..Config::default() }
    }

    fn bind(config: &Config) -> Listeners {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Listeners::bind(RequestedAddress { scheme: Scheme::Http, address }, config).unwrap()
    }

    #[test]
    fn workers_divide_all_sockets() {
        let mut listeners = bind(&config(Accept::Reuseport, 4));
        assert_eq!(listeners.count(), 4);
        listeners.adapt(&config(Accept::LeastLoaded, 3)).unwrap();
        assert_eq!(listeners.count(), 4, "no socket is closed");
        let count = |accept, slot| listeners.of_slot(&config(accept, 3), slot, usize::MAX).len();
        assert_eq!([0, 1, 2].map(|slot| count(Accept::LeastLoaded, slot)), [2, 1, 1]);
        assert_eq!(count(Accept::Exclusive, 1), 4);
        assert_eq!(count(Accept::Fdpass, 1), 0);
        assert_eq!(listeners.sockets(3).count(), 3);
        assert_eq!(listeners.sockets(usize::MAX).count(), 4);
        assert_eq!(listeners.cut(1).len(), 3);
        assert_eq!((listeners.count(), listeners.cut(9).len()), (1, 0));
    }

    #[test]
    fn an_address_that_is_taken_is_refused() {
        let one = config(Accept::Reuseport, 1);
        let listeners = bind(&one);
        listeners.open(&one).unwrap();
        let taken = RequestedAddress { scheme: Scheme::Http, address: listeners.local() };
        let error = format!("{:#}", Listeners::bind(taken, &one).unwrap_err());
        assert!(error.contains("in use"), "{error}");
    }

    /// A socket that was bound for options that may never apply receives no client.
    #[test]
    fn sockets_that_are_not_open_get_no_connection() {
        let one = config(Accept::Reuseport, 1);
        let mut listeners = bind(&one);
        listeners.open(&one).unwrap();
        listeners.adapt(&config(Accept::Reuseport, 8)).unwrap();
        let mut acceptor = Acceptor::new();
        for _ in 0..32 {
            let _client = std::net::TcpStream::connect(listeners.local()).unwrap();
            let mut polled = [PollFd::new(&listeners.sockets[0], PollFlags::IN)];
            let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
            assert_eq!(
                poll(&mut polled, Some(&patience)),
                Ok(1),
                "the connection waits at a listening socket"
            );
            let entry = acceptor.accept(&listeners.sockets[0], Scheme::Http);
            assert!(matches!(entry, Accepted::Connection(..)));
        }
        // Accepting from a socket that does not listen returns nothing, without an error.
        assert!(matches!(acceptor.accept(&listeners.sockets[7], Scheme::Http), Accepted::Empty));
    }
}
