//! A group of reactors on threads, with the acceptor on the caller's thread.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use base::time::MonoNs;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::acceptor::{Acceptor, Control, Deliver, DeliverTo, Stopper};
use crate::context::Links;
use crate::driver::{Driver, EpollDriver, mono_now};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::mailbox::{Inbox, Waker};
use crate::peer::Peer;
use crate::placement::Placement;
use crate::reactor::{Deliveries, Delivery, Reactor};
use crate::signals::{Signal, Signals};

/// Descriptors that are not connections: log files, listeners and standard streams. An epoll and an
/// eventfd per reactor are counted in addition.
const DESCRIPTORS_RESERVED: u64 = 128;

/// Settings of a group.
#[derive(Debug, Clone)]
pub struct Config {
    /// Number of reactors, at least 1.
    pub reactors: usize,
    /// Whether one more reactor, the spare, accepts connections while all others are stalled, and
    /// those of [`Listener::with_spare_only`].
    pub has_spare: bool,
    pub placement: Placement,
    pub limits: Arc<Limits>,
    /// Time that connections have to take their last output when the group ends.
    pub drain_timeout_ms: u64,
}

impl Default for Config {
    /// One reactor per core that this process may use.
    fn default() -> Self {
        Config {
            reactors: std::thread::available_parallelism().map_or(1, usize::from),
            has_spare: false,
            placement: Placement::default(),
            limits: Arc::new(Limits::default()),
            drain_timeout_ms: 5_000,
        }
    }
}

impl Config {
    /// The number of reactors, including the spare one.
    pub(crate) fn loops(&self) -> usize {
        self.reactors + usize::from(self.has_spare)
    }

    /// Whether connections move between reactors.
    pub(crate) fn rebalances(&self) -> bool {
        self.placement == Placement::LeastLoaded && self.reactors > 1
    }
}

/// Why a group could not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error("could not start the reactors: {0}")]
    Start(#[from] std::io::Error),
    #[error("could not accept connections: {0}")]
    Accept(#[source] std::io::Error),
    #[error("reactor {0} panicked")]
    Panicked(usize),
}

/// The limit of open files, after raising it as far as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Files that the process may have open; `None` is unlimited.
    pub files_max: Option<u64>,
    /// How many of them can be connections.
    pub connections_possible: u64,
}

/// Reactors on their threads. Dropping a group without [`Group::run`] or [`Group::shutdown`]
/// leaves the threads running.
pub struct Group<M> {
    links: Links<M>,
    acceptor: Acceptor,
    deliver: Arc<dyn Deliver>,
    threads: Vec<JoinHandle<()>>,
    drain: Box<dyn Fn(MonoNs) + Send>,
    drain_timeout_ms: u64,
    descriptors: Descriptors,
}

impl<M> std::fmt::Debug for Group<M> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Group")
            .field("reactors", &self.threads.len())
            .finish_non_exhaustive()
    }
}

/// Ends a running group from another thread.
#[derive(Debug, Clone)]
pub struct GroupStopper {
    stopper: Stopper,
}

impl GroupStopper {
    /// Makes [`Group::run`] drain and return.
    pub fn stop(&self) {
        self.stopper.stop();
    }
}

/// Gives connections to the reactors of a group: for outgoing connections.
#[derive(Clone)]
pub struct Adopter {
    deliver: Arc<dyn Deliver>,
    reactors: usize,
}

impl std::fmt::Debug for Adopter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Adopter").field("reactors", &self.reactors).finish_non_exhaustive()
    }
}

impl Adopter {
    /// Gives a connected stream to `reactor`, which opens it as if it had been accepted; its peer's
    /// `listener` is [`Peer::ADOPTED`]. The caller enforces `connections_max`. When the reactor has
    /// ended, the connection is closed.
    pub fn adopt(&self, reactor: usize, stream: TcpStream) -> std::io::Result<()> {
        assert!(reactor < self.reactors, "the group has {} reactors", self.reactors);
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let (remote, local) = (Some(stream.peer_addr()?), Some(stream.local_addr()?));
        let peer = Peer { remote, local, listener: Peer::ADOPTED };
        self.deliver.deliver(reactor, OwnedFd::from(stream), peer, None);
        Ok(())
    }
}

/// Time that reactors have to end after the time for draining, and how often that is checked.
const END_NS: u64 = 1_000_000_000;
const END_POLL: Duration = Duration::from_millis(1);

/// Stack of a reactor, of which the kernel backs what is used: requests may contain nested data.
const STACK_BYTES: usize = 16 << 20;

impl<M: Send + 'static> Group<M> {
    /// Starts the reactors. `make` is called here, once per reactor in order, with the links of the
    /// whole group. Signals are blocked from now on in the calling thread, so call this before
    /// other threads are started.
    pub fn start<H>(
        config: &Config,
        listeners: Vec<Listener>,
        mut make: impl FnMut(usize, &Links<M>) -> H,
    ) -> Result<Group<M>, GroupError>
    where
        H: Handler<Mail = M> + Send + 'static,
    {
        assert!(config.reactors > 0, "a group needs at least one reactor");
        assert!(
            listeners.iter().filter_map(Listener::reactor).all(|index| index < config.reactors),
            "a listener names a reactor of the group"
        );
        let loops = config.loops();
        let descriptors = raise_descriptors(loops);
        let signals = Signals::open()?;
        let wakers = (0..loops)
            .map(|_| Waker::live())
            .collect::<rustix::io::Result<Vec<Waker>>>()
            .map_err(std::io::Error::from)?;
        let inboxes = wakers.iter().cloned().map(Inbox::<Delivery<H::Session>>::new);
        let deliveries: Deliveries<H::Session> = inboxes.collect();
        let links = Links::new(Arc::clone(&config.limits), wakers, config.has_spare);
        let deliver: Arc<dyn Deliver> = Arc::new(DeliverTo {
            group_state: Arc::clone(&links.group_state),
            deliveries: Arc::clone(&deliveries),
        });
        let acceptor = Acceptor::new(
            listeners,
            signals,
            Arc::clone(&links.group_state),
            Arc::clone(&deliver),
            config.placement,
            descriptors.connections_possible,
        )?;
        let epolls = links.wakers().map(|waker| EpollDriver::open(&waker));
        let epolls: Vec<OwnedFd> =
            epolls.collect::<rustix::io::Result<_>>().map_err(std::io::Error::from)?;
        let drain = {
            let deliveries = Arc::clone(&deliveries);
            move |until| {
                for inbox in deliveries.iter() {
                    // A reactor that has ended has nothing to drain.
                    let _ = inbox.push(Delivery::Drain { until }, usize::MAX);
                }
            }
        };
        let mut threads = Vec::with_capacity(loops);
        for (index, epoll) in epolls.into_iter().enumerate() {
            let handler = make(index, &links);
            let is_spare = index >= config.reactors;
            let rebalances = config.rebalances() && !is_spare;
            let (links, deliveries) = (links.clone(), Arc::clone(&deliveries));
            let run = move || {
                let driver = Driver::Epoll(EpollDriver::new(epoll));
                Reactor::new(index, handler, driver, links, deliveries, rebalances).run();
            };
            let thread = std::thread::Builder::new()
                .name(if is_spare { "spare".to_owned() } else { format!("r{index:02}") })
                .stack_size(STACK_BYTES)
                .spawn(run);
            // If this one cannot start, the ones already started end.
            threads.push(thread.inspect_err(|_| drain(MonoNs(0)))?);
        }
        Ok(Group {
            links,
            acceptor,
            deliver,
            threads,
            drain: Box::new(drain),
            drain_timeout_ms: config.drain_timeout_ms,
            descriptors,
        })
    }

    /// Accepts connections and handles signals, on the calling thread, until `on_signal` or a
    /// [`GroupStopper`] stops the group; then drains the reactors and waits for their threads.
    pub fn run(mut self, on_signal: impl FnMut(Signal) -> Control) -> Result<(), GroupError> {
        let accepted = self.acceptor.run(on_signal).map_err(GroupError::Accept);
        let ended = self.shutdown();
        accepted.and(ended)
    }

    /// Stops accepting, drains the reactors and waits for their threads, but not for one that does
    /// not return from its handler.
    pub fn shutdown(self) -> Result<(), GroupError> {
        let Group { acceptor, threads, drain, drain_timeout_ms, .. } = self;
        // Closes the listeners.
        drop(acceptor);
        let mut until = mono_now();
        until.0 = until.0.saturating_add(drain_timeout_ms.saturating_mul(1_000_000));
        drain(until);
        until.0 = until.0.saturating_add(END_NS);
        while !threads.iter().all(JoinHandle::is_finished) && mono_now() < until {
            std::thread::sleep(END_POLL);
        }
        let mut result = Ok(());
        for (index, thread) in threads.into_iter().enumerate() {
            if !thread.is_finished() {
                // Its handler does not return: a script without an end.
                tracing::warn!(reactor = index, "reactor did not end in time; abandoning it");
            } else if thread.join().is_err() {
                result = Err(GroupError::Panicked(index));
            }
        }
        result
    }

    pub fn stopper(&self) -> GroupStopper {
        GroupStopper { stopper: self.acceptor.stopper() }
    }

    /// A handle that gives reactors connections that were made elsewhere.
    pub fn adopter(&self) -> Adopter {
        Adopter { deliver: Arc::clone(&self.deliver), reactors: self.threads.len() }
    }

    /// Mailboxes, wakers, limits and counters.
    pub fn links(&self) -> &Links<M> {
        &self.links
    }

    /// Addresses of the listeners.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.acceptor.listeners().iter().filter_map(Listener::local).collect()
    }

    /// The limit of open files found at the start.
    pub fn descriptors(&self) -> Descriptors {
        self.descriptors
    }
}

/// Raises the limit of open files to the maximum that the system allows this process.
fn raise_descriptors(reactors: usize) -> Descriptors {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "could not raise the limit of open files");
        limit.current = before;
    }
    let reserved = DESCRIPTORS_RESERVED + 2 * reactors as u64;
    Descriptors {
        files_max: limit.current,
        // At least one, so that an operator can connect and diagnose the problem.
        connections_possible: limit.current.unwrap_or(u64::MAX).saturating_sub(reserved).max(1),
    }
}
