//! The main thread's loop: new connections and signals.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use rustix::time::Timespec;

use crate::context::GroupState;
use crate::driver::{Socket, mono_now, std_address};
use crate::listener::{Listener, UseOfSpare};
use crate::peer::Peer;
use crate::placement::{Placement, Placer};
use crate::reactor::{Deliveries, Delivery};
use crate::signals::{Signal, Signals};
use crate::tls::Tls;

/// Response to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    Continue,
    /// Stop accepting, drain, end.
    Stop,
}

/// Connections taken from one listener before the others and the signals get their turn.
const ACCEPTS_MAX: usize = 64;
/// How long accepting pauses after a failure that would repeat at once.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const EVENTS_MAX: usize = 64;
/// Connections of listeners that use the spare reactor only. The descriptors that are reserved for
/// other purposes than connections suffice for them.
const SPARE_CONNECTIONS_MAX: usize = 64;
const SIGNALS: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// Ends the acceptor's loop from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Stopper {
    inner: Arc<(AtomicBool, OwnedFd)>,
}

impl Stopper {
    fn new() -> rustix::io::Result<Stopper> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Stopper { inner: Arc::new((AtomicBool::new(false), fd)) })
    }

    pub(crate) fn stop(&self) {
        self.inner.0.store(true, Ordering::Release);
        // Fails only if the counter is full; the loop is awake in that case.
        let _ = rustix::io::write(&self.inner.1, &1_u64.to_ne_bytes());
    }

    fn is_stopped(&self) -> bool {
        self.inner.0.load(Ordering::Acquire)
    }
}

/// Hands a new connection to a reactor.
pub(crate) trait Deliver: Send + Sync {
    fn deliver(&self, reactor: usize, socket: OwnedFd, peer: Peer, tls: Option<Arc<Tls>>);
}

/// Hides the type of sessions from the acceptor, which does not use it.
pub(crate) struct DeliverTo<S> {
    pub(crate) group_state: Arc<GroupState>,
    pub(crate) deliveries: Deliveries<S>,
}

impl<S: Send> Deliver for DeliverTo<S> {
    fn deliver(&self, reactor: usize, socket: OwnedFd, peer: Peer, tls: Option<Arc<Tls>>) {
        let id = self.group_state.next_id();
        self.group_state.connection_opened(reactor);
        let adopt = Delivery::Adopt { id, socket: Socket::Fd(socket), peer, tls };
        if self.deliveries[reactor].push(adopt, usize::MAX).is_err() {
            // The reactor has ended; dropping the socket closes the connection.
            self.group_state.connection_closed(reactor);
        }
    }
}

pub(crate) struct Acceptor {
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    signals: Signals,
    stopper: Stopper,
    group_state: Arc<GroupState>,
    deliver: Arc<dyn Deliver>,
    placement: Placement,
    placer: Placer,
    /// Connections that the descriptor limit allows; the rest is for the log and other files.
    connections_possible: u64,
    /// Released for a moment to accept and refuse a connection when descriptors run out; without it
    /// such a connection would stay in the queue and wake the loop indefinitely.
    spare: Option<OwnedFd>,
    keepalive_s: Option<u64>,
    is_resting: bool,
}

impl Acceptor {
    pub(crate) fn new(
        listeners: Vec<Listener>,
        signals: Signals,
        group_state: Arc<GroupState>,
        deliver: Arc<dyn Deliver>,
        placement: Placement,
        connections_possible: u64,
    ) -> std::io::Result<Acceptor> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let stopper = Stopper::new()?;
        epoll::add(&epoll, &signals, EventData::new_u64(SIGNALS), EventFlags::IN)?;
        epoll::add(&epoll, &stopper.inner.1, EventData::new_u64(STOP), EventFlags::IN)?;
        for (index, listener) in listeners.iter().enumerate() {
            epoll::add(&epoll, listener, EventData::new_u64(index as u64), EventFlags::IN)?;
        }
        Ok(Acceptor {
            epoll,
            listeners,
            signals,
            stopper,
            group_state,
            deliver,
            placement,
            placer: Placer::default(),
            connections_possible,
            spare: open_spare(),
            keepalive_s: None,
            is_resting: false,
        })
    }

    pub(crate) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    pub(crate) fn listeners(&self) -> &[Listener] {
        &self.listeners
    }

    /// Accepts until stopped or until `on_signal` returns a stop.
    pub(crate) fn run(
        &mut self,
        mut on_signal: impl FnMut(Signal) -> Control,
    ) -> std::io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.stopper.is_stopped() {
            self.apply_keepalive()?;
            events.clear();
            let timeout = self.is_resting.then_some(&REST);
            self.group_state.acceptor.count_wait();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout) {
                Ok(0) => self.rest(false)?,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    STOP => {}
                    SIGNALS => {
                        while let Some(signal) = self.signals.take() {
                            if on_signal(signal) == Control::Stop {
                                return Ok(());
                            }
                        }
                    }
                    listener => {
                        let index = usize::try_from(listener);
                        self.accept(index.expect("made from the position of a listener"))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn apply_keepalive(&mut self) -> std::io::Result<()> {
        let seconds = self.group_state.limits.tcp_keepalive_s.get();
        if self.keepalive_s != Some(seconds) {
            self.keepalive_s = Some(seconds);
            for listener in &self.listeners {
                listener.set_keepalive(seconds)?;
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> std::io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..ACCEPTS_MAX {
            self.group_state.acceptor.count_call();
            match rustix::net::acceptfrom_with(&self.listeners[listener], flags) {
                Ok((socket, remote)) => {
                    let remote = remote.and_then(std_address);
                    self.take(listener, socket, remote);
                }
                Err(Errno::AGAIN) => break,
                Err(error) if is_of_connection(error) => {}
                Err(Errno::MFILE | Errno::NFILE) => {
                    // The kernel allocates a descriptor before it checks for a connection.
                    if !is_readable(&self.listeners[listener])? {
                        break;
                    }
                    if !self.refuse_with_spare(listener) {
                        return self.rest(true);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "could not accept a connection");
                    self.group_state.acceptor.count_error();
                    return self.rest(true);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, listener: usize, socket: OwnedFd, remote: Option<std::net::SocketAddr>) {
        let source = &self.listeners[listener];
        let spare = self.group_state.spare().filter(|_| source.use_of_spare() != UseOfSpare::Never);
        let is_over_limit = match spare {
            Some(spare) if source.use_of_spare() == UseOfSpare::Always => {
                let slot = &self.group_state.slots[spare];
                slot.connections.load(Ordering::Relaxed) >= SPARE_CONNECTIONS_MAX
            }
            _ => {
                let limit = self.group_state.limits.connections_max.get();
                let open = self.group_state.connections.load(Ordering::Relaxed) as u64;
                open >= limit.min(self.connections_possible)
            }
        };
        if is_over_limit {
            self.group_state.acceptor.count_over_limit();
            refuse(&socket, source.refusal());
            return;
        }
        let local = if source.is_wildcard() {
            rustix::net::getsockname(&socket).ok().and_then(std_address)
        } else {
            source.local()
        };
        self.group_state.acceptor.count_accepted();
        let now = mono_now();
        let is_stalled = || self.group_state.regular().iter().all(|slot| slot.is_stalled(now));
        let reactor = match spare {
            Some(spare) if source.use_of_spare() == UseOfSpare::Always || is_stalled() => spare,
            _ => source.reactor().unwrap_or_else(|| {
                self.placer.place(self.placement, &self.group_state, remote, now)
            }),
        };
        let tls = source.tls().cloned();
        self.deliver.deliver(reactor, socket, Peer { remote, local, listener }, tls);
    }

    /// Frees the spare descriptor, accepts one connection with it and refuses it. False if even
    /// this is impossible now.
    fn refuse_with_spare(&mut self, listener: usize) -> bool {
        let Some(spare) = self.spare.take() else {
            self.spare = open_spare();
            self.group_state.acceptor.count_error();
            return false;
        };
        drop(spare);
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        self.group_state.acceptor.count_call();
        let accepted = rustix::net::accept_with(&self.listeners[listener], flags);
        let is_done = match &accepted {
            Ok(socket) => {
                self.group_state.acceptor.count_no_descriptor();
                refuse(socket, self.listeners[listener].refusal());
                true
            }
            Err(Errno::AGAIN) => true,
            Err(_) => false,
        };
        drop(accepted);
        self.spare = open_spare();
        is_done && self.spare.is_some()
    }

    /// Pauses or resumes all listeners.
    fn rest(&mut self, rests: bool) -> std::io::Result<()> {
        if rests == self.is_resting {
            return Ok(());
        }
        self.is_resting = rests;
        let flags = if rests { EventFlags::empty() } else { EventFlags::IN };
        for (index, listener) in self.listeners.iter().enumerate() {
            epoll::modify(&self.epoll, listener, EventData::new_u64(index as u64), flags)?;
        }
        Ok(())
    }
}

/// Whether a connection waits.
fn is_readable(listener: &Listener) -> std::io::Result<bool> {
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    Ok(poll(&mut polled, Some(&Timespec::default()))? != 0)
}

/// Whether the failure belongs to the waiting connection, which is gone, and not to accepting.
// Source: accept(2), "Error handling"
fn is_of_connection(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNABORTED
            | Errno::INTR
            | Errno::NETDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
    )
}

/// Sends as much of `refusal` as fits at once; the owner closes the socket.
fn refuse(socket: &OwnedFd, refusal: &[u8]) {
    if !refusal.is_empty() {
        // The peer may have disconnected; it is refused either way.
        let _ = rustix::net::send(socket, refusal, SendFlags::NOSIGNAL);
    }
}

fn open_spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}
