//! The operations that a reactor offers its handler.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use base::time::{MonoNs, Now};
use rustix::io::Errno;

use crate::balance::Load;
use crate::limits::Limits;
use crate::mailbox::{MAILS_MAX, Mailbox, Undelivered, Waker};
use crate::output::{Level, Levels};
use crate::peer::{ConnId, Peer};
use crate::stats::{AcceptorStats, Counters, ReactorStats};
use crate::timers::Timers;
use crate::tls::{Channel, Tls};

/// Duration of a turn from which new connections go to other reactors. Turns are shorter unless a
/// request is slow, or the machine is overloaded.
const STALLED_NS: u64 = 20_000_000;

/// State shared by all threads of a group.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) limits: Arc<Limits>,
    pub(crate) slots: Box<[ReactorSlot]>,
    /// The number of regular reactors. At most one slot follows theirs: that of the spare reactor.
    regular: usize,
    pub(crate) next_id: AtomicU64,
    /// Open connections of the process.
    pub(crate) connections: AtomicUsize,
    pub(crate) acceptor: AcceptorStats,
}

/// State of one reactor that other threads read.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ReactorSlot {
    pub(crate) waker: Waker,
    pub(crate) stats: ReactorStats,
    /// Start of the turn in progress; 0 while the reactor waits.
    turn_began: AtomicU64,
    /// [`Load`]
    busy_ppm: AtomicU32,
    used_ppm: AtomicU32,
    /// How often the load was published.
    pub(crate) windows: AtomicU64,
    /// Connections placed here, including those not delivered yet.
    pub(crate) connections: AtomicUsize,
}

impl ReactorSlot {
    /// Publishes the start of a turn, or its end: `None`.
    pub(crate) fn publish_turn(&self, began: Option<MonoNs>) {
        self.turn_began.store(began.map_or(0, |began| began.0.max(1)), Ordering::Relaxed);
    }

    fn turn_began(&self) -> Option<MonoNs> {
        let began = self.turn_began.load(Ordering::Relaxed);
        (began != 0).then_some(MonoNs(began))
    }

    /// Whether its turn has lasted for [`STALLED_NS`], so that its end is uncertain.
    pub(crate) fn is_stalled(&self, now: MonoNs) -> bool {
        self.turn_began().is_some_and(|began| now.since(began) >= STALLED_NS)
    }

    pub(crate) fn publish_load(&self, load: Load) {
        self.busy_ppm.store(load.busy_ppm, Ordering::Relaxed);
        self.used_ppm.store(load.used_ppm, Ordering::Relaxed);
    }

    /// Load over the last windows.
    pub(crate) fn load(&self) -> Load {
        Load {
            busy_ppm: self.busy_ppm.load(Ordering::Relaxed),
            used_ppm: self.used_ppm.load(Ordering::Relaxed),
        }
    }
}

impl GroupState {
    pub(crate) fn new(limits: Arc<Limits>, wakers: Vec<Waker>, has_spare: bool) -> GroupState {
        let regular = wakers.len() - usize::from(has_spare);
        assert!(regular > 0, "a group needs at least one regular reactor");
        let slot = |waker| ReactorSlot {
            waker,
            stats: ReactorStats::default(),
            turn_began: AtomicU64::new(0),
            busy_ppm: AtomicU32::new(0),
            used_ppm: AtomicU32::new(0),
            windows: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
        };
        GroupState {
            limits,
            slots: wakers.into_iter().map(slot).collect(),
            regular,
            next_id: AtomicU64::new(1),
            connections: AtomicUsize::new(0),
            acceptor: AcceptorStats::default(),
        }
    }

    /// The reactors that serve all connections.
    pub(crate) fn regular(&self) -> &[ReactorSlot] {
        &self.slots[..self.regular]
    }

    /// The loads of all regular reactors, as reactor `own` sees them. `None`: the reactor stays in a
    /// turn, so its load is not known.
    pub(crate) fn loads(&self, own: usize, now: MonoNs) -> Vec<Option<Load>> {
        let slots = self.regular().iter().enumerate();
        let load_of = |(index, slot): (usize, &ReactorSlot)| {
            (index == own || !slot.is_stalled(now)).then(|| slot.load())
        };
        slots.map(load_of).collect()
    }

    /// The position of the spare reactor.
    pub(crate) fn spare(&self) -> Option<usize> {
        (self.regular < self.slots.len()).then_some(self.regular)
    }

    pub(crate) fn next_id(&self) -> ConnId {
        ConnId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Counts a connection placed on reactor `index`.
    pub(crate) fn connection_opened(&self, index: usize) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.slots[index].connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self, index: usize) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.slots[index].connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_moved(&self, from: usize, to: usize) {
        self.slots[from].connections.fetch_sub(1, Ordering::Relaxed);
        self.slots[to].connections.fetch_add(1, Ordering::Relaxed);
    }
}

/// Access to a group from outside its reactors; passed to the function that makes the handlers.
#[derive(Debug)]
pub struct Links<M> {
    pub(crate) group_state: Arc<GroupState>,
    pub(crate) mailboxes: Arc<[Mailbox<M>]>,
}

impl<M> Clone for Links<M> {
    fn clone(&self) -> Self {
        Links { group_state: Arc::clone(&self.group_state), mailboxes: Arc::clone(&self.mailboxes) }
    }
}

impl<M> Links<M> {
    pub(crate) fn new(limits: Arc<Limits>, wakers: Vec<Waker>, has_spare: bool) -> Links<M> {
        let mailboxes = wakers.iter().cloned().map(Mailbox::new).collect();
        Links { group_state: Arc::new(GroupState::new(limits, wakers, has_spare)), mailboxes }
    }

    /// The number of reactors, including the spare one.
    pub fn reactors(&self) -> usize {
        self.mailboxes.len()
    }

    pub fn mailboxes(&self) -> &[Mailbox<M>] {
        &self.mailboxes
    }

    pub fn wakers(&self) -> impl Iterator<Item = Waker> {
        self.group_state.slots.iter().map(|slot| slot.waker.clone())
    }

    /// Makes one reactor run a turn; see [`Waker::wake`].
    pub fn wake(&self, reactor: usize) {
        self.group_state.slots[reactor].waker.wake();
    }

    pub fn limits(&self) -> &Arc<Limits> {
        &self.group_state.limits
    }

    /// The start of a reactor's turn, by the monotonic clock; `None` while the reactor waits.
    pub fn turn_began(&self, reactor: usize) -> Option<MonoNs> {
        self.group_state.slots[reactor].turn_began()
    }

    /// Counters of one reactor.
    pub fn stats(&self, reactor: usize) -> Counters {
        self.group_state.slots[reactor].stats.read()
    }

    /// Counters summed over all reactors.
    pub fn stats_sum(&self) -> Counters {
        let mut sum = Counters::default();
        for slot in &self.group_state.slots {
            sum += slot.stats.read();
        }
        sum
    }

    pub fn acceptor_stats(&self) -> &AcceptorStats {
        &self.group_state.acceptor
    }

    /// Busy share of a reactor over about the last half second, in parts per million.
    pub fn load_ppm(&self, reactor: usize) -> u32 {
        self.group_state.slots[reactor].load().busy_ppm
    }

    /// Open connections of the process.
    pub fn connections(&self) -> usize {
        self.group_state.connections.load(Ordering::Relaxed)
    }
}

/// A handler's request about a connection, carried out before the loop waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Close(ConnId),
    Abort(ConnId),
    Reset(ConnId),
}

/// A connection that the handler adopts.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) id: ConnId,
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    pub(crate) channel: Option<Box<Channel>>,
    /// Whether its first bytes may have arrived already.
    pub(crate) reads: bool,
}

/// The part of a reactor that handlers reach through [`Context`].
#[derive(Debug)]
pub(crate) struct Core<M> {
    pub(crate) index: usize,
    pub(crate) now: Now,
    pub(crate) levels: Levels,
    pub(crate) level_rose: bool,
    pub(crate) is_draining: bool,
    pub(crate) timers: Timers,
    pub(crate) resumed: Vec<ConnId>,
    pub(crate) actions: Vec<Action>,
    pub(crate) arrivals: Vec<Arrival>,
    /// Set when the handler asked the reactor to end: the time by which connections are closed.
    pub(crate) ends_until: Option<MonoNs>,
    /// Whether the next turn begins at once.
    pub(crate) polls: bool,
    /// Time that the next wait polls before it sleeps.
    pub(crate) spin_ns: u64,
    /// Mail of this turn by receiver, delivered at the end of the turn with one lock each.
    pub(crate) outbox: Vec<Vec<M>>,
    pub(crate) counters: Counters,
    /// Why the connection being removed has failed.
    pub(crate) failure: Option<Errno>,
    pub(crate) links: Links<M>,
}

impl<M> Core<M> {
    pub(crate) fn new(index: usize, links: Links<M>) -> Core<M> {
        Core {
            index,
            now: Now::default(),
            levels: [0; 2],
            level_rose: false,
            is_draining: false,
            timers: Timers::default(),
            resumed: Vec::new(),
            actions: Vec::new(),
            arrivals: Vec::new(),
            ends_until: None,
            polls: false,
            spin_ns: 0,
            outbox: links.mailboxes.iter().map(|_| Vec::new()).collect(),
            counters: Counters::default(),
            failure: None,
            links,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.links.group_state.limits
    }

    /// Delivers the mail of this turn.
    pub(crate) fn post(&mut self) {
        for (mails, mailbox) in self.outbox.iter_mut().zip(self.links.mailboxes.iter()) {
            if !mails.is_empty() {
                mailbox.inbox.push_all(mails);
            }
        }
    }
}

/// The reactor, as its handler sees it during a callback.
#[derive(Debug)]
pub struct Context<'a, M> {
    core: &'a mut Core<M>,
}

impl<'a, M> Context<'a, M> {
    pub(crate) fn new(core: &'a mut Core<M>) -> Self {
        Context { core }
    }

    /// Both clocks as read at the start of the turn.
    pub fn now(&self) -> Now {
        self.core.now
    }

    /// The error of the system by which the connection has failed, while
    /// [`Handler::closed`](crate::Handler::closed) runs. `None` if one of the sides has closed it, or
    /// the peer has violated TLS, or a limit of this program has ended it.
    pub fn failure(&self) -> Option<std::io::Error> {
        self.core.failure.map(std::io::Error::from)
    }

    /// Number of this reactor, from 0.
    pub fn index(&self) -> usize {
        self.core.index
    }

    /// The number of reactors in the group.
    pub fn reactors(&self) -> usize {
        self.core.links.reactors()
    }

    /// A level: gates of it are open up to this value.
    pub fn level(&self, level: Level) -> u64 {
        self.core.levels[level as usize]
    }

    /// Opens the gates of a level up to `value` on all connections of this reactor; the released
    /// output is sent before the loop waits. A level only rises. Free when nothing is held.
    pub fn set_level(&mut self, level: Level, value: u64) {
        let current = &mut self.core.levels[level as usize];
        if value > *current {
            *current = value;
            self.core.level_rose = true;
        }
    }

    /// Begins the next turn at once, whether a socket is ready or not: for a handler that checks
    /// for more work before it acts on what it has.
    pub fn poll(&mut self) {
        self.core.polls = true;
    }

    /// Makes the next wait poll for events for up to `ns` before it sleeps: for a handler that
    /// expects an event soon. A core that does not sleep in between reacts faster, to the disk as
    /// well; other runnable threads of this core run first.
    pub fn spin(&mut self, ns: u64) {
        self.core.spin_ns = ns;
    }

    /// Sends mail to any reactor, including this one, delivered at the end of the turn.
    pub fn send(&mut self, reactor: usize, mail: M) -> Result<(), Undelivered<M>> {
        let waiting = self.core.links.mailboxes[reactor].inbox.len();
        let outbox = &mut self.core.outbox[reactor];
        if waiting + outbox.len() >= MAILS_MAX {
            return Err(Undelivered(mail));
        }
        outbox.push(mail);
        Ok(())
    }

    /// Sends mail to all other reactors. Returns how many could not take it.
    pub fn broadcast(&mut self, mail: &M) -> usize
    where
        M: Clone,
    {
        let own = self.core.index;
        let others = (0..self.reactors()).filter(|&reactor| reactor != own);
        others.filter(|&reactor| self.send(reactor, mail.clone()).is_err()).count()
    }

    /// Ends a [`crate::Next::Pause`]. Ignored if the connection is gone or not paused.
    pub fn resume(&mut self, id: ConnId) {
        self.core.resumed.push(id);
    }

    /// Closes a connection of this reactor when its output is sent.
    pub fn close(&mut self, id: ConnId) {
        self.core.actions.push(Action::Close(id));
    }

    /// Closes a connection of this reactor and drops its output.
    pub fn abort(&mut self, id: ConnId) {
        self.core.actions.push(Action::Abort(id));
    }

    /// Like [`Context::abort`], and the kernel drops its unsent bytes and resets the connection:
    /// for a peer that does not read its replies, or that must not mistake a part of an answer for
    /// the whole.
    pub fn reset(&mut self, id: ConnId) {
        self.core.actions.push(Action::Reset(id));
    }

    /// Takes a connection that the handler has accepted or is connecting: a non-blocking stream
    /// socket. It is opened after the callback has returned. `reads`: its first bytes may have
    /// arrived already, so it is read at once, before the kernel is asked to report any. The
    /// handler must bound the number of such connections.
    pub fn adopt(&mut self, socket: OwnedFd, peer: Peer, reads: bool) -> ConnId {
        self.take(socket, peer, None, reads)
    }

    /// Like [`Context::adopt`], for an accepted connection that speaks TLS: its handler sees plain
    /// bytes. It is read at once.
    pub fn adopt_tls(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        tls: &Tls,
    ) -> Result<ConnId, rustls::Error> {
        Ok(self.take(socket, peer, Some(tls.channel()?), true))
    }

    fn take(
        &mut self,
        socket: OwnedFd,
        peer: Peer,
        channel: Option<Box<Channel>>,
        reads: bool,
    ) -> ConnId {
        let id = self.core.links.group_state.next_id();
        self.core.links.group_state.connection_opened(self.core.index);
        self.core.arrivals.push(Arrival { id, socket, peer, channel, reads });
        id
    }

    /// Whether adopted connections are not open yet.
    pub fn has_arrivals(&self) -> bool {
        !self.core.arrivals.is_empty()
    }

    /// Ends this reactor as [`crate::Group::shutdown`] does; connections are closed by `until`.
    pub fn end(&mut self, until: MonoNs) {
        self.core.ends_until = Some(until);
    }

    /// Calls [`crate::Handler::timer`] with `token` in the first turn at or after `at`. Timers
    /// cannot be cancelled.
    pub fn set_timer(&mut self, at: MonoNs, token: u64) {
        self.core.timers.set(at, token);
    }

    /// Current counters of this reactor.
    pub fn stats(&self) -> &Counters {
        &self.core.counters
    }

    /// Mailboxes, wakers, limits and counters of the whole group.
    pub fn links(&self) -> &Links<M> {
        &self.core.links
    }

    pub fn is_draining(&self) -> bool {
        self.core.is_draining
    }
}
