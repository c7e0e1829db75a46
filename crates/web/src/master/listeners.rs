//! The listening sockets of one address: bound once, kept for the life of the program and over upgrades,
//! so that no connection that waits in one is ever lost.
//!
//! A socket that is bound for new options does not listen before workers with them are ready: the kernel
//! spreads clients over all sockets of an address that listen, and those at one that is closed are lost.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::Context as _;
use rustix::net::sockopt;

use crate::config::{Accept, Config};

#[derive(Debug)]
pub(crate) struct Listeners {
    /// As it stands in the options; port 0 is one that the kernel chose.
    requested: SocketAddr,
    local: SocketAddr,
    sockets: Vec<OwnedFd>,
}

impl Listeners {
    /// Binds as many sockets as the workers need. Nobody can connect before [`Listeners::open`].
    pub(crate) fn bind(requested: SocketAddr, config: &Config) -> anyhow::Result<Listeners> {
        let doing = || format!("listen on {requested}");
        if requested.port() != 0 {
            // The sockets below share their port with everybody of the same user; this one does not,
            // and so finds out who is there already.
            reactor::listen(requested, 1, false).with_context(doing)?;
        }
        let first = reactor::bind(requested, true).with_context(doing)?;
        prepare(&first).with_context(doing)?;
        let local = SocketAddr::try_from(rustix::net::getsockname(&first)?)?;
        let mut listeners = Listeners { requested, local, sockets: vec![first] };
        listeners.adapt(config)?;
        Ok(listeners)
    }

    /// Sockets of another master.
    pub(crate) fn inherited(
        requested: SocketAddr,
        sockets: Vec<OwnedFd>,
    ) -> anyhow::Result<Listeners> {
        let first = sockets.first().context("no listening socket came")?;
        let local = SocketAddr::try_from(rustix::net::getsockname(first)?)?;
        Ok(Listeners { requested, local, sockets })
    }

    /// Whether these are for this address of the options.
    pub(crate) fn serves(&self, wanted: SocketAddr) -> bool {
        wanted == self.requested || wanted == self.local
    }

    /// Binds what is missing for these options, without listening. Nothing is closed: connections may
    /// wait in it.
    pub(crate) fn adapt(&mut self, config: &Config) -> anyhow::Result<()> {
        let needed = if config.accept.has_own_listeners() { config.worker_count() } else { 1 };
        while self.sockets.len() < needed {
            let socket = reactor::bind(self.local, true)
                .and_then(|socket| prepare(&socket).map(|()| socket));
            self.sockets.push(socket.with_context(|| format!("listen on {}", self.local))?);
        }
        Ok(())
    }

    /// Has all sockets listen, those that do already with the backlog of these options.
    pub(crate) fn open(&self, config: &Config) -> anyhow::Result<()> {
        let doing = || format!("listen on {}", self.local);
        self.sockets
            .iter()
            .try_for_each(|socket| rustix::net::listen(socket, backlog(config)).with_context(doing))
    }

    pub(crate) fn requested(&self) -> SocketAddr {
        self.requested
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn all(&self) -> &[OwnedFd] {
        &self.sockets
    }

    /// The first `count`; all of them if there are fewer.
    pub(crate) fn first(&self, count: usize) -> &[OwnedFd] {
        &self.sockets[..count.min(self.sockets.len())]
    }

    /// Takes out the sockets behind the first `count`.
    pub(crate) fn cut(&mut self, count: usize) -> Vec<OwnedFd> {
        self.sockets.split_off(count.min(self.sockets.len()))
    }

    pub(crate) fn close(&mut self) {
        self.sockets.clear();
    }
}

/// Those of one worker: its share of what is there, or all of them.
pub(crate) fn of_slot(
    sockets: &[OwnedFd],
    accept: Accept,
    slot: usize,
    workers: usize,
) -> Vec<BorrowedFd<'_>> {
    if accept == Accept::Fdpass {
        return Vec::new();
    }
    let is_own = |index: usize| !accept.has_own_listeners() || index % workers == slot;
    let sockets = sockets.iter().enumerate().filter(|(index, _)| is_own(*index));
    sockets.map(|(_, socket)| socket.as_fd()).collect()
}

fn backlog(config: &Config) -> i32 {
    i32::try_from(config.backlog).unwrap_or(i32::MAX)
}

/// What accepted sockets inherit, so that none has to be set up.
fn prepare(socket: &OwnedFd) -> std::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    use super::*;
    use crate::door::{Door, Entry};
    use crate::scheme::Scheme;

    fn config(accept: Accept, workers: usize) -> Config {
        Config { workers, accept, ..Config::default() }
    }

    fn bind(config: &Config) -> Listeners {
        Listeners::bind(SocketAddr::from(([127, 0, 0, 1], 0)), config).unwrap()
    }

    #[test]
    fn workers_share_out_all_sockets() {
        let mut listeners = bind(&config(Accept::Reuseport, 4));
        assert_eq!(listeners.all().len(), 4);
        listeners.adapt(&config(Accept::LeastLoaded, 3)).unwrap();
        assert_eq!(listeners.all().len(), 4, "nothing is closed");
        let count = |accept, slot| of_slot(listeners.all(), accept, slot, 3).len();
        assert_eq!([0, 1, 2].map(|slot| count(Accept::LeastLoaded, slot)), [2, 1, 1]);
        assert_eq!(count(Accept::Exclusive, 1), 4);
        assert_eq!(count(Accept::Fdpass, 1), 0);
        assert_eq!(listeners.first(3).len(), 3);
        assert_eq!(listeners.first(usize::MAX).len(), 4);
        assert_eq!(listeners.cut(1).len(), 3);
        assert_eq!((listeners.all().len(), listeners.cut(9).len()), (1, 0));
    }

    #[test]
    fn an_address_that_is_taken_is_refused() {
        let one = config(Accept::Reuseport, 1);
        let listeners = bind(&one);
        listeners.open(&one).unwrap();
        let error = format!("{:#}", Listeners::bind(listeners.local(), &one).unwrap_err());
        assert!(error.contains("in use"), "{error}");
    }

    /// What is bound for options that may never come takes no client from the sockets that are there.
    #[test]
    fn sockets_that_are_not_open_get_no_connection() {
        let one = config(Accept::Reuseport, 1);
        let mut listeners = bind(&one);
        listeners.open(&one).unwrap();
        listeners.adapt(&config(Accept::Reuseport, 8)).unwrap();
        let mut door = Door::new();
        for _ in 0..32 {
            let _client = std::net::TcpStream::connect(listeners.local()).unwrap();
            let mut polled = [PollFd::new(&listeners.all()[0], PollFlags::IN)];
            let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
            assert_eq!(poll(&mut polled, Some(&patience)), Ok(1), "it waits elsewhere");
            let entry = door.accept(&listeners.all()[0], Scheme::Http);
            assert!(matches!(entry, Entry::Connection(..)));
        }
        // To ask one that does not listen is no fault, and finds nobody.
        assert!(matches!(door.accept(&listeners.all()[7], Scheme::Http), Entry::Empty));
    }
}
