//! One event loop: the order of work in a turn.

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::time::MonoNs;

use crate::balance::{Balance, Decision, LoadMeter};
use crate::connection::{Connection, Connections, INPUT_BYTES, Phase, Stops, Table, Touched};
use crate::context::{Action, Context, Core, Links, ReactorSlot};
use crate::driver::{Driver, Event, Socket};
use crate::handler::Handler;
use crate::handshakes::Handshakes;
use crate::mailbox::Inbox;
use crate::output::SCRATCH_BYTES;
use crate::peer::{ConnId, Peer};
use crate::tls::Tls;
use crate::token::Token;

/// Shortest and longest interval between two searches for idle connections.
const SWEEP_NS_MIN: u64 = 10_000_000;
const SWEEP_NS_MAX: u64 = 1_000_000_000;

/// Messages from the group and from other reactors. Bounded by the number of connections.
#[derive(Debug)]
pub(crate) enum Delivery<S> {
    /// A new connection.
    Adopt { id: ConnId, socket: Socket, peer: Peer, tls: Option<Arc<Tls>> },
    /// A connection from another reactor.
    Migrant(Box<Connection<S>>),
    /// Drain and end before this time.
    Drain { until: MonoNs },
}

pub(crate) type Deliveries<S> = Arc<[Inbox<Delivery<S>>]>;

/// Result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Whether the turn did any work.
    pub(crate) worked: bool,
    /// Whether the reactor is drained; if so, there is no next turn.
    pub(crate) ended: bool,
}

/// See [`Reactor`].
struct Spare<H: Handler> {
    again: Vec<Token>,
    resumed: Vec<ConnId>,
    holders: Vec<Token>,
    mails: Vec<H::Mail>,
    deliveries: Vec<Delivery<H::Session>>,
}

impl<H: Handler> Default for Spare<H> {
    fn default() -> Self {
        Spare {
            again: Vec::new(),
            resumed: Vec::new(),
            holders: Vec::new(),
            mails: Vec::new(),
            deliveries: Vec::new(),
        }
    }
}

pub(crate) struct Reactor<H: Handler> {
    pub(crate) handler: H,
    pub(crate) core: Core<H::Mail>,
    pub(crate) table: Table<H::Session>,
    pub(crate) driver: Driver,
    pub(crate) deliveries: Deliveries<H::Session>,
    /// The buffer that all plain sockets are read into.
    pub(crate) input: Vec<u8>,
    /// The buffer that connections without pending output append to; has no capacity while lent.
    pub(crate) output: Vec<u8>,
    /// Encrypted input; has no capacity until the first TLS connection.
    pub(crate) tls_input: Vec<u8>,
    /// Encrypted output; lent like `output`.
    pub(crate) tls_output: Vec<u8>,
    pub(crate) handshakes: Handshakes,
    /// Connections with complete requests for the next turn.
    pub(crate) again: Vec<Token>,
    /// Connections that move to a regular reactor at the end of the turn.
    pub(crate) leaving: Vec<Token>,
    /// Emptied lists, kept for the next turn so that turns do not allocate.
    spare: Spare<H>,
    /// Whether replies are sent only after all events of a turn are served.
    pub(crate) gathers: bool,
    /// Whether the turn's events are being served and their replies gathered.
    pub(crate) is_gathering: bool,
    /// Connections whose replies are sent after the events.
    pub(crate) gathered: Vec<Token>,
    /// Connections with held output.
    pub(crate) holders: Vec<Token>,
    /// Connections that are not read because too much output is held.
    pub(crate) stalled: Vec<Token>,
    pub(crate) lingering: VecDeque<(MonoNs, Token)>,
    pub(crate) touched: Touched,
    /// Held output of all connections.
    pub(crate) held_bytes: usize,
    /// When the last turn ended and waiting began.
    turn_ended: MonoNs,
    load: LoadMeter,
    /// None: connections never move.
    balance: Option<Balance>,
    next_sweep: MonoNs,
    pub(crate) drain_until: Option<MonoNs>,
}

impl<H: Handler> Reactor<H> {
    pub(crate) fn new(
        index: usize,
        handler: H,
        driver: Driver,
        links: Links<H::Mail>,
        deliveries: Deliveries<H::Session>,
        rebalances: bool,
    ) -> Self {
        let mut reactor = Reactor {
            handler,
            core: Core::new(index, links),
            table: Table::new(),
            driver,
            deliveries,
            input: Vec::with_capacity(INPUT_BYTES),
            output: Vec::with_capacity(SCRATCH_BYTES),
            tls_input: Vec::new(),
            tls_output: Vec::new(),
            handshakes: Handshakes::default(),
            again: Vec::new(),
            leaving: Vec::new(),
            spare: Spare::default(),
            gathers: false,
            is_gathering: false,
            gathered: Vec::new(),
            holders: Vec::new(),
            stalled: Vec::new(),
            lingering: VecDeque::new(),
            touched: Touched::default(),
            held_bytes: 0,
            turn_ended: MonoNs(0),
            load: LoadMeter::default(),
            balance: rebalances.then(Balance::default),
            next_sweep: MonoNs(0),
            drain_until: None,
        };
        reactor.core.now = reactor.driver.now();
        reactor.turn_ended = reactor.core.now.mono;
        reactor
    }

    /// Runs until drained.
    pub(crate) fn run(mut self) {
        while !self.turn().ended {}
        self.end();
    }

    /// Waits for something to do and does it.
    pub(crate) fn turn(&mut self) -> Turn {
        let (events, called) = self.wait();
        let again = replace(&mut self.again, take(&mut self.spare.again));
        let resumed = replace(&mut self.core.resumed, take(&mut self.spare.resumed));
        let mut worked = events > 0 || called || !again.is_empty() || !resumed.is_empty();
        self.is_gathering = self.gathers && events > 1;
        for position in 0..events {
            match self.driver.event(position) {
                // The wake has served its purpose: the turn runs, and before_wait follows.
                Event::Wake => {}
                Event::Ready(ready) => self.ready(ready),
                Event::Source(source) => {
                    self.with_connections(|handler, cx, connections| {
                        handler.source(cx, connections, source);
                    });
                    self.take_arrivals();
                }
            }
        }
        self.send_gathered();
        worked |= self.take_deliveries();
        worked |= self.take_mail();
        worked |= self.fire_timers();
        self.serve_again(again);
        self.resume(resumed);
        self.with_connections(H::before_wait);
        worked |= self.take_arrivals();
        worked |= self.settle_turn();
        self.core.post();
        self.end_turn();
        Turn { worked, ended: self.is_drained() }
    }

    /// Sends what was gathered while events were served.
    fn send_gathered(&mut self) {
        self.is_gathering = false;
        let mut tokens = take(&mut self.gathered);
        for token in tokens.drain(..) {
            self.flush_own(token);
        }
        self.gathered = tokens;
    }

    /// Opens the connections that the handler has adopted.
    fn take_arrivals(&mut self) -> bool {
        if self.core.arrivals.is_empty() {
            return false;
        }
        let mut arrivals = take(&mut self.core.arrivals);
        for arrival in arrivals.drain(..) {
            self.take_arrival(arrival);
        }
        // Connections adopted while these are opened wait for the next call.
        if self.core.arrivals.is_empty() {
            self.core.arrivals = arrivals;
        }
        true
    }

    /// The work of a turn after its event callbacks. True if there was any.
    fn settle_turn(&mut self) -> bool {
        let mut worked = self.flush_touched();
        worked |= self.release_held();
        worked |= self.run_actions();
        self.move_leaving();
        self.end_stalls();
        worked |= self.sweep();
        worked |= self.end_handshakes();
        worked |= self.end_lingering();
        if let Some(until) = self.core.ends_until.take() {
            self.drain(until);
        }
        if self.core.is_draining {
            self.close_drained();
        }
        worked
    }

    fn wait(&mut self) -> (usize, bool) {
        let before = self.turn_ended;
        let polls = take(&mut self.core.polls);
        let spin_ns = take(&mut self.core.spin_ns);
        let is_idle = !polls && !self.has_work();
        let spun = if is_idle && spin_ns != 0 { self.spin(spin_ns) } else { 0 };
        let may_block = is_idle && spun == 0 && self.slot().waker.fall_asleep();
        let timeout_ns = if may_block {
            self.deadline().map(|deadline| deadline.since(before))
        } else {
            Some(0)
        };
        let events = if spun == 0 { self.driver.wait(timeout_ns) } else { spun };
        let called = self.slot().waker.wake_up();
        self.core.now = self.driver.now();
        self.slot().publish_turn(Some(self.core.now.mono));
        self.handshakes.reads = 0;
        self.core.counters.wait_ns += self.core.now.mono.since(before);
        self.core.counters.turns += 1;
        (events, called)
    }

    /// Polls for events and returns how many there are. Ends early at a wake-up call or a deadline.
    fn spin(&mut self, spin_ns: u64) -> usize {
        let until = MonoNs(self.turn_ended.0.saturating_add(spin_ns));
        let until = self.deadline().map_or(until, |deadline| deadline.min(until));
        let waker = &self.core.links.group_state.slots[self.core.index].waker;
        self.driver.spin(until, waker)
    }

    /// Whether the reactor's count of held bytes is the sum of its connections'. O(connections).
    fn counts_held_bytes(&mut self) -> bool {
        let counted: usize = self.table.iter_mut().map(|(_, one)| one.held_counted).sum();
        let held: usize = self.table.iter_mut().map(|(_, one)| one.output.held_bytes()).sum();
        counted == self.held_bytes && held == counted
    }

    fn end_turn(&mut self) {
        debug_assert!(self.counts_held_bytes(), "each held byte is counted once");
        self.turn_ended = self.driver.now().mono;
        let busy_ns = self.turn_ended.since(self.core.now.mono);
        self.core.counters.busy_ns += busy_ns;
        self.load.add_busy(busy_ns);
        self.end_window(self.turn_ended);
        self.publish();
        self.slot().publish_turn(None);
    }

    /// Whether a live reactor would begin its next turn now instead of waiting. Only for the
    /// simulated driver, whose events can be queried without side effects.
    pub(crate) fn is_due(&mut self) -> bool {
        self.core.polls
            || self.has_work()
            || self.slot().waker.is_called()
            || self.deadline().is_some_and(|at| at <= self.driver.now().mono)
            || self.driver.wait(Some(0)) > 0
    }

    /// Whether the next turn has work even without events.
    pub(crate) fn has_work(&self) -> bool {
        !self.again.is_empty()
            || !self.core.resumed.is_empty()
            || !self.core.actions.is_empty()
            || !self.core.arrivals.is_empty()
            || (self.core.level_rose && !self.holders.is_empty())
    }

    fn deadline(&self) -> Option<MonoNs> {
        let sweeps = self.core.limits().idle_timeout_ms.get() != 0 && self.table.len() != 0;
        let candidates = [
            self.core.timers.next_at(),
            self.lingering.front().map(|(until, _)| *until),
            self.load.deadline(),
            self.drain_until,
            sweeps.then_some(self.next_sweep),
            self.handshake_deadline(),
        ];
        candidates.into_iter().flatten().min()
    }

    fn slot(&self) -> &ReactorSlot {
        &self.core.links.group_state.slots[self.core.index]
    }

    pub(crate) fn with_connections(
        &mut self,
        call: impl FnOnce(&mut H, &mut Context<'_, H::Mail>, &mut Connections<'_, H::Session>),
    ) {
        let Self { handler, core, table, touched, .. } = self;
        call(handler, &mut Context::new(core), &mut Connections { table, touched });
    }

    fn take_deliveries(&mut self) -> bool {
        let mut items = take(&mut self.spare.deliveries);
        self.deliveries[self.core.index].take(&mut items);
        let any = !items.is_empty();
        for item in items.drain(..) {
            match item {
                Delivery::Adopt { id, socket, peer, tls } => self.adopt(id, socket, peer, tls),
                Delivery::Migrant(connection) => {
                    self.core.counters.migrated_in += 1;
                    self.welcome(*connection);
                }
                Delivery::Drain { until } => self.drain(until),
            }
        }
        self.spare.deliveries = items;
        any
    }

    fn take_mail(&mut self) -> bool {
        let mut mails = take(&mut self.spare.mails);
        self.core.links.mailboxes[self.core.index].inbox.take(&mut mails);
        let any = !mails.is_empty();
        for mail in mails.drain(..) {
            self.with_connections(|handler, cx, connections| handler.mail(cx, connections, mail));
        }
        self.spare.mails = mails;
        any
    }

    fn fire_timers(&mut self) -> bool {
        let set_before = self.core.timers.set_count();
        let mut any = false;
        while let Some(token) = self.core.timers.take_due(self.core.now.mono, set_before) {
            any = true;
            self.with_connections(|handler, cx, connections| handler.timer(cx, connections, token));
        }
        any
    }

    /// Serves connections that had more requests than their share of the last turn.
    fn serve_again(&mut self, mut again: Vec<Token>) {
        for token in again.drain(..) {
            self.serve_pending(token);
        }
        self.spare.again = again;
    }

    /// Ends pauses; connections resumed meanwhile wait for the next turn.
    fn resume(&mut self, mut resumed: Vec<ConnId>) {
        resumed.append(&mut self.core.resumed);
        for id in resumed.drain(..) {
            if let Some(token) = self.table.token(id) {
                self.resume_one(token);
            }
        }
        self.spare.resumed = resumed;
    }

    fn flush_touched(&mut self) -> bool {
        if take(&mut self.touched.all) {
            self.touched.tokens.clear();
            let touched = self.table.iter_mut().filter(|(_, one)| one.output.is_touched());
            self.touched.tokens.extend(touched.map(|(token, _)| token));
        }
        let mut tokens = take(&mut self.touched.tokens);
        let any = !tokens.is_empty();
        for token in tokens.drain(..) {
            self.flush_own(token);
        }
        self.touched.tokens = tokens;
        any
    }

    /// Sends the output whose gates the risen levels have opened. Free when nothing is held.
    fn release_held(&mut self) -> bool {
        if !take(&mut self.core.level_rose) || self.holders.is_empty() {
            return false;
        }
        let levels = self.core.levels;
        let mut holders = replace(&mut self.holders, take(&mut self.spare.holders));
        for token in holders.drain(..) {
            let Some(connection) = self.table.get_mut(token) else { continue };
            if connection.output.is_closed(levels) {
                self.holders.push(token);
                continue;
            }
            connection.is_holder = false;
            self.flush_own(token);
        }
        self.spare.holders = holders;
        true
    }

    fn run_actions(&mut self) -> bool {
        let any = !self.core.actions.is_empty();
        while let Some(action) = self.core.actions.pop() {
            let (Action::Close(id) | Action::Abort(id) | Action::Reset(id)) = action;
            let Some(token) = self.table.token(id) else { continue };
            match action {
                Action::Close(_) => self.close(token),
                Action::Abort(_) => self.remove(token),
                Action::Reset(_) => {
                    if let Some(connection) = self.table.get_mut(token) {
                        self.driver.reset_on_close(&connection.socket);
                    }
                    self.remove(token);
                }
            }
        }
        any
    }

    pub(crate) fn publish(&mut self) {
        self.core.counters.connections = self.table.len() as u64;
        self.core.counters.held_bytes = self.held_bytes as u64;
        self.core.counters.wakes = self.slot().waker.writes();
        self.slot().stats.publish(&self.core.counters);
    }

    /// Closes connections that were idle too long. Costs nothing per request: the time of the last
    /// byte is compared once per sweep.
    fn sweep(&mut self) -> bool {
        let timeout_ns = self.core.limits().idle_timeout_ms.get().saturating_mul(1_000_000);
        let now = self.core.now.mono;
        if timeout_ns == 0 || now < self.next_sweep {
            return false;
        }
        self.next_sweep = MonoNs(now.0 + (timeout_ns / 4).clamp(SWEEP_NS_MIN, SWEEP_NS_MAX));
        let mut idle = Vec::new();
        for (token, connection) in self.table.iter_mut() {
            let may_expire = match connection.phase {
                Phase::Open => {
                    !connection.stops.has(Stops::PAUSED)
                        && self.handler.may_expire(&connection.session)
                }
                // A closing connection is idle if its peer does not take the output; not if the
                // output is held.
                Phase::Closing => connection.output.held_bytes() == 0,
                Phase::Lingering => false,
            };
            if may_expire && now.since(connection.last_activity) > timeout_ns {
                idle.push(token);
            }
        }
        self.core.counters.idle_timeouts += idle.len() as u64;
        let any = !idle.is_empty();
        for token in idle {
            self.remove(token);
        }
        any
    }

    fn end_lingering(&mut self) -> bool {
        let mut any = false;
        while let Some((until, token)) = self.lingering.front().copied()
            && until <= self.core.now.mono
        {
            any = true;
            self.lingering.pop_front();
            self.remove(token);
        }
        any
    }

    /// Publishes the load and, after a long enough overload, gives connections away.
    fn end_window(&mut self, now: MonoNs) {
        let driver = &self.driver;
        let Some(load) = self.load.end_window(now, || driver.cpu_ns()) else { return };
        self.core.counters.cpu_ns = self.load.cpu_ns();
        let slot = self.slot();
        slot.publish_load(load);
        slot.windows.fetch_add(1, Ordering::Relaxed);
        let Some(balance) = &mut self.balance else { return };
        let loads = self.core.links.group_state.loads(self.core.index, now);
        match balance.decide(self.core.index, &loads) {
            Decision::Nothing => {}
            Decision::Measure => {
                self.table.iter_mut().for_each(|(_, connection)| connection.recent_cost = 0);
            }
            Decision::Give(transfer) => self.move_load(u64::from(load.used_ppm), transfer),
        }
    }
}
