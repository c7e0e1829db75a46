//! State of one reactor that its commands use: settings, clocks, counters, random numbers.

use crate::config::{Durability, Settings};
use crate::engine::accounts::Accounts;
use crate::engine::client_row::ClientRow;
use crate::engine::command_log::{Taken, Thresholds};
use crate::engine::functions::Libraries;
use crate::engine::gate::Gate;
use crate::engine::hot_keys::Sampler;
use crate::engine::leftovers::Leftovers;
use crate::engine::monitor_feeds::{RequestSource, monitor_line};
use crate::engine::pause::{InEffect, Pause};
use crate::engine::published::LocalCounters;
use crate::engine::pubsub::{
    Backlog, Kind, MatchedSubscription, Message, Publication, Refusal, SubscriberTable,
    Subscriptions,
};
use crate::engine::queue_age::{Change, QueueAge};
use crate::engine::refusal::NO_REPLICAS;
use crate::engine::replication::Role;
use crate::engine::requests::RequestId;
use crate::engine::room::Room;
use crate::engine::running_scripts::RunningScripts;
use crate::engine::secret::Shown;
use crate::engine::server_state::{ServerState, params};
use base::stages::CycleClock;
use base::time::{MonoNs, Now};
use binlog::{Lsn, SyncPolicy};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use reactor::{ConnId, Level};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::sync::Arc;
use store::{Params, ReadyKey};
use wire::resp::SMALL_REPLY_BYTES;

/// Time after which requests that gave up a wait for data run again.
pub(crate) const RETRY_NS: u64 = 2_000_000;

/// Share of the free memory that the replies of all connections may take before they wait.
const OUTPUT_SHARE: u64 = 2;

/// State of a reactor that commands use.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub(crate) struct ReactorState {
    pub(crate) index: usize,
    /// The lane of the log that its records go to.
    pub(crate) lane: usize,
    /// Whether writes wait for room in that lane, as of the last [check](ReactorState::check_room).
    is_lane_full: bool,
    /// Whether this is the spare reactor.
    pub(crate) is_spare: bool,
    /// The request that is served next must run on a regular reactor.
    pub(crate) is_leaving: bool,
    /// True for the state of a thread outside the reactors, whose actions its reactor does not see.
    pub(crate) is_off_reactor: bool,
    /// True for a thread that runs long requests: they may process any number of elements.
    pub(crate) runs_long_requests: bool,
    pub(crate) settings: Arc<Settings>,
    /// The server is stopping: requests in flight are served, and no others.
    pub(crate) is_draining: bool,
    /// Values derived from the settings are out of date.
    pub(crate) has_new_settings: bool,
    pub(crate) clock: CycleClock,
    /// Cycle counter at the end of the last command, so that one reading serves two commands.
    pub(crate) stamp: u64,
    /// Start of the turn: by the clocks, and by the cycle counter.
    turn_began: (Now, u64),
    /// Execution time of each request of this turn.
    #[cfg(test)]
    pub(crate) times: Vec<base::time::UnixMs>,
    /// The log's durable position as known to this turn.
    pub(crate) durable: Lsn,
    /// The position that enough replicas have confirmed as well.
    pub(crate) replicated: Lsn,
    /// Number of replicas that count for `min-replicas-to-write`, as known to this turn.
    available_replicas: usize,
    /// Reads need not wait for writes up to this position, whatever their durability.
    pub(crate) settled: Lsn,
    pub(crate) tally: LocalCounters,
    /// Growth of the data since last reported to the tracker.
    pub(crate) store_bytes: isize,
    pub(crate) accounts: Accounts,
    /// Values from which a command is recorded in a log.
    pub(crate) thresholds: Thresholds,
    pub(crate) latency_ns: u64,
    /// The lowest values from which a command is recorded anywhere.
    noted: Thresholds,
    queue_age: QueueAge,
    /// Requests of the current read are refused because of their age.
    pub(crate) refuses_old: bool,
    /// Memory available to writes.
    pub(crate) room: Room,
    /// See [`ReactorState::limit_output`].
    output_pause_bytes: usize,
    /// Whether there was no memory for writes when the running script was admitted.
    pub(crate) has_no_room: bool,
    /// Time that the scripts of the running request have waited for others.
    pub(crate) script_wait_ns: u64,
    /// The running command is one of a script.
    pub(crate) runs_script: bool,
    /// A command could not run, because another reactor holds what it needs.
    pub(crate) is_contended: bool,
    /// Time that this turn has waited for data that other reactors hold.
    lock_wait_ns: Cell<u64>,
    /// Keys whose blocked clients could not be served for the same reason, by database and bytes: a key
    /// that changes often meanwhile is here once.
    contended_keys: BTreeMap<(u8, Box<[u8]>), ReadyKey>,
    /// What clients have left in stripes.
    pub(crate) leftovers: Leftovers,
    /// Libraries of functions as the running command or transaction has changed them.
    pub(crate) new_libraries: Option<Arc<Libraries>>,
    pub(crate) random: SmallRng,
    /// Chooses the commands to sample for [`HotKeys`](crate::engine::hot_keys::HotKeys).
    pub(crate) key_sampler: Sampler,
    /// Highest gate of all replies; a sync is requested while it is ahead of the log.
    pub(crate) gate_max: Gate,
    /// Highest gate of the replies that wait for replicas.
    pub(crate) replicated_gate_max: Gate,
    pub(crate) monitor_feed: Vec<u8>,
    /// Messages, and the subscriptions of this reactor's connections.
    pub(crate) pubsub: SubscriberTable,
    /// Messages, as RESP, that a connection in a transaction receives after its reply.
    pub(crate) late_messages: Vec<u8>,
    /// Reason why the connection that published since this was last taken must wait.
    pub(crate) backlog: Option<Backlog>,
    /// Replies that wait for the log, oldest first: gate, command, count, start of the wait.
    pub(crate) log_waits: VecDeque<LogWait>,
    /// Write time of this reactor that is already recorded.
    pub(crate) write_ns: u64,
}

#[derive(Debug)]
pub(crate) struct LogWait {
    pub(crate) gate: Gate,
    pub(crate) command: RequestId,
    pub(crate) count: u32,
    pub(crate) since: u64,
}

impl ReactorState {
    pub(crate) fn new(shared: &ServerState, index: usize) -> ReactorState {
        let clock = shared.cycles.clone();
        let settings = shared.settings.load_full();
        let mut reactor = ReactorState {
            index,
            lane: index,
            is_lane_full: false,
            is_spare: shared.reactors.is_spare(index),
            is_leaving: false,
            is_off_reactor: false,
            runs_long_requests: false,
            settings: Arc::clone(&settings),
            is_draining: false,
            has_new_settings: false,
            stamp: clock.now(),
            turn_began: (Now::default(), clock.now()),
            #[cfg(test)]
            times: Vec::new(),
            clock,
            durable: Lsn::default(),
            replicated: Lsn::default(),
            available_replicas: 0,
            settled: Lsn::default(),
            tally: LocalCounters::default(),
            store_bytes: 0,
            accounts: Accounts::new(&shared.memory, settings.experiments.counts_memory()),
            thresholds: Thresholds::NEVER,
            latency_ns: u64::MAX,
            noted: Thresholds::NEVER,
            queue_age: QueueAge::default(),
            refuses_old: false,
            room: Room::new(&settings, &shared.memory),
            output_pause_bytes: usize::MAX,
            has_no_room: false,
            script_wait_ns: 0,
            runs_script: false,
            is_contended: false,
            lock_wait_ns: Cell::new(0),
            contended_keys: BTreeMap::new(),
            leftovers: Leftovers::default(),
            new_libraries: None,
            random: SmallRng::seed_from_u64(shared.keyspace.seed() ^ (index as u64 + 1)),
            key_sampler: Sampler::new(!shared.keyspace.seed() ^ (index as u64 + 1)),
            gate_max: Gate::OPEN,
            replicated_gate_max: Gate::OPEN,
            monitor_feed: Vec::new(),
            pubsub: SubscriberTable::new(index),
            late_messages: Vec::new(),
            backlog: None,
            log_waits: VecDeque::new(),
            write_ns: 0,
        };
        reactor.take_settings(shared, settings);
        reactor
    }

    /// Reads how far the log is durable, here and on replicas.
    pub(crate) fn refresh_positions(&mut self, shared: &ServerState) {
        self.durable = shared.log.durable();
        let replicas = shared.replication.replicas();
        // The writes of a replica are those of its master, which waits for their replicas.
        let is_master = shared.replication.role() == Role::Master;
        self.available_replicas = if is_master { replicas.available() } else { 0 };
        let confirmed = Lsn(replicas.confirmed());
        self.replicated = confirmed.min(self.durable);
        // Before there is a replica, no write is accepted that waits for one.
        let had_replica = confirmed > Lsn(0) || self.available_replicas > 0;
        self.settled = if had_replica { self.replicated } else { self.durable };
    }

    /// Requests a write of the log if replicas are sent records as soon as they are written: without
    /// a request they would wait in memory.
    pub(crate) fn write_for_replicas(&self, shared: &ServerState) {
        let log = &shared.log;
        if self.available_replicas > 0
            && shared.replication.unsynced.is_active()
            && log.sync_policy() != SyncPolicy::Always
            && log.next() > log.written()
        {
            log.request_write();
        }
    }

    /// The state of a thread outside the reactors, whose log records go to the lane of `index`.
    pub(crate) fn off_reactor(shared: &ServerState, index: usize) -> ReactorState {
        ReactorState { is_off_reactor: true, ..ReactorState::new(shared, index) }
    }

    /// The state of a thread that applies what another server sends. Its log records go to the lane
    /// of the links: a full one must delay no client.
    pub(crate) fn of_link(shared: &ServerState) -> ReactorState {
        ReactorState { lane: shared.reactors.all(), ..ReactorState::off_reactor(shared, 0) }
    }

    /// The state of a thread that runs long requests: their large records must delay no client, and
    /// their counts are published with those of the reactor that serves the fewest requests.
    pub(crate) fn of_long_requests(shared: &ServerState) -> ReactorState {
        let lane = shared.reactors.all();
        let of_thread = ReactorState::off_reactor(shared, shared.reactors.all() - 1);
        ReactorState { lane, runs_long_requests: true, ..of_thread }
    }

    /// Reads whether the log has room for the records of the next requests.
    #[inline]
    pub(crate) fn check_room(&mut self, shared: &ServerState) {
        self.is_lane_full = shared.is_lane_full(self.lane);
    }

    /// The pause in effect: of clients, or of writes until the log has room for them.
    #[inline]
    pub(crate) fn pause(&self, pause: &Pause, now: MonoNs) -> Option<InEffect> {
        pause.at(now).or(self.is_lane_full.then_some(InEffect::FULL_LANE))
    }

    /// Prepares for the changes of one request or frame on such a thread.
    pub(crate) fn begin_off_reactor(&mut self, shared: &ServerState, now: Now) -> Params {
        let settings = shared.settings.load_full();
        if !Arc::ptr_eq(&settings, &self.settings) {
            self.take_settings(shared, settings);
        }
        self.refresh_positions(shared);
        self.stamp = self.clock.now();
        self.lock_wait_ns.set(0);
        self.begin_turn(now);
        let (seed, random) = (shared.keyspace.seed(), self.random());
        params(&self.settings, now.unix, seed, random)
    }

    /// Adds the growth of the data to what the server counts.
    pub(crate) fn count_growth(&mut self) {
        let grown_bytes = std::mem::take(&mut self.store_bytes);
        self.accounts.store_grew(grown_bytes);
    }

    /// Accounts for these changes.
    pub(crate) fn end_off_reactor(&mut self, shared: &ServerState) {
        self.count_growth();
        let mut published = shared.published[self.index].lock();
        self.tally.publish(&mut published, self.settings.latency_tracking);
    }

    /// Starts a turn.
    pub(crate) fn begin_turn(&mut self, now: Now) {
        self.turn_began = (now, self.clock.now());
    }

    /// Decides whether the requests of a read that begins at this cycle counter are refused because
    /// of their age.
    #[inline]
    pub(crate) fn begin_read(&mut self, started: u64) {
        self.refuses_old = self.queue_age.is_overloaded() && {
            let (_, began) = self.turn_began;
            self.queue_age.refuses(self.clock.delta_ns(began, started))
        };
    }

    /// Ends a turn. `has_begun`: [`ReactorState::begin_turn`] was called in this turn.
    pub(crate) fn end_turn(&mut self, has_begun: bool) {
        let (now, began) = self.turn_began;
        // The limit is in milliseconds, so a shorter turn need not be measured.
        let ended = self.clock.now();
        let is_long = has_begun && self.clock.has_passed_ms(began, ended);
        let lasted_ns = if is_long { self.clock.delta_ns(began, ended) } else { 0 };
        self.refuses_old = false;
        self.lock_wait_ns.set(0);
        match self.queue_age.end_turn(now.mono, lasted_ns) {
            None => {}
            Some(Change::Overloaded) => {
                self.tally.totals.overloads += 1;
                tracing::warn!(reactor = self.index, "overload: refusing old requests");
            }
            Some(Change::Recovered) => {
                tracing::info!(reactor = self.index, "overload has ended");
            }
        }
    }

    /// Returns the check of locks whether a request gives up its wait for data of other reactors.
    #[inline]
    pub(crate) fn patience<'a>(&'a self, scripts: &'a RunningScripts) -> impl Fn(u64) -> bool + 'a {
        scripts.patience(&self.lock_wait_ns)
    }

    pub(crate) fn add_contended_key(&mut self, key: ReadyKey) {
        let first = key.first_ticket;
        let kept = self.contended_keys.entry((key.db, key.bytes.clone())).or_insert(key);
        kept.first_ticket = kept.first_ticket.min(first);
    }

    pub(crate) fn has_contended_keys(&self) -> bool {
        !self.contended_keys.is_empty()
    }

    pub(crate) fn take_contended_keys(&mut self) -> impl Iterator<Item = ReadyKey> {
        std::mem::take(&mut self.contended_keys).into_values()
    }

    /// Time that this turn has waited for data that other reactors hold.
    pub(crate) fn lock_waits_ns(&self) -> u64 {
        self.lock_wait_ns.get()
    }

    /// Returns the time of the next command: the time of the turn, advanced once the turn has
    /// lasted a millisecond, since times are stored in milliseconds. Costs no system call: it uses
    /// the cycle counter as of the end of the last command.
    #[inline]
    pub(crate) fn time(&self, params: &Params) -> Now {
        let (now, began) = self.turn_began;
        if self.clock.has_passed_ms(began, self.stamp) { self.later_time(params) } else { now }
    }

    #[cold]
    fn later_time(&self, params: &Params) -> Now {
        let (began, stamp) = self.turn_began;
        let now = began.after(self.clock.delta_ns(stamp, self.stamp));
        params.set_now(now.unix);
        now
    }

    /// Whether one client has used up its share of the turn, a millisecond since `started` (a cycle
    /// counter reading).
    #[inline]
    pub(crate) fn has_served_its_share(&self, started: u64) -> bool {
        self.clock.has_passed_ms(started, self.stamp)
    }

    /// Pending output of a connection above which its next request waits: a batch of short requests
    /// can request gigabytes.
    #[inline]
    pub(crate) fn output_pause_bytes(&self) -> usize {
        self.output_pause_bytes
    }

    /// Sets the pending output of a connection above which its next request waits: less than the
    /// option if all connections together could exceed what `memory-limit` leaves.
    pub(crate) fn limit_output(&mut self, shared: &ServerState) {
        let most = self.settings.internals.output_pause_bytes();
        let connections = shared.links().connections().max(1) as u64;
        let share = shared.memory.output.all.headroom_bytes() / OUTPUT_SHARE / connections;
        let pause_bytes = most.min(share.max(SMALL_REPLY_BYTES as u64));
        self.output_pause_bytes = usize::try_from(pause_bytes).unwrap_or(usize::MAX);
        if self.index == 0 {
            shared.links().limits().output_pause_bytes.set(pause_bytes);
        }
    }

    /// Whether to serve a connection's next requests in a later turn, because its peer must read
    /// its replies first or because other connections are waiting.
    #[inline]
    pub(crate) fn must_yield(&self, started: u64, pending_bytes: usize) -> bool {
        pending_bytes > self.output_pause_bytes()
            || self.has_served_its_share(started)
            || self.backlog.is_some()
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// Whether a command is recorded in a log or as a latency event.
    #[inline]
    pub(crate) fn is_noted(&self, taken: Taken) -> bool {
        self.noted.are_reached(taken)
    }

    #[inline]
    pub(crate) fn is_latency_event(&self, ns: u64) -> bool {
        ns >= self.latency_ns
    }

    /// Publishes the counts and this client's row.
    pub(crate) fn publish(
        &mut self,
        shared: &ServerState,
        id: ConnId,
        update_row: impl FnOnce(&mut ClientRow),
    ) {
        let mut published = shared.published[self.index].lock();
        self.tally.publish(&mut published, self.settings.latency_tracking);
        published.clients.get_mut(&id.0).map(update_row);
    }

    /// Records a request for the clients in MONITOR mode.
    pub(crate) fn feed_monitors(
        &mut self,
        place: &dyn Display,
        source: RequestSource,
        now: Now,
        request: Shown<'_>,
    ) {
        let socket = &self.settings.unixsocket;
        monitor_line(place, source, socket, now.unix, request, &mut self.monitor_feed);
    }

    /// Subscribes a connection of this reactor. False if it was already subscribed.
    pub(crate) fn subscribe(
        &mut self,
        shared: &ServerState,
        id: ConnId,
        subscriptions: &mut Subscriptions,
        kind: Kind,
        name: &[u8],
    ) -> Result<bool, Refusal> {
        let is_new = self.pubsub.subscribe(&shared.pubsub, id, subscriptions, kind, name)?;
        self.accounts.subscriptions_grew(self.pubsub.take_grown_bytes());
        Ok(is_new)
    }

    /// Ends one subscription, if it exists. `give` first receives the messages published to the
    /// connection, whatever its unread output: few messages can arrive while a command runs.
    pub(crate) fn unsubscribe(
        &mut self,
        shared: &ServerState,
        id: ConnId,
        subscriptions: &mut Subscriptions,
        kind: Kind,
        name: &[u8],
        mut give: impl FnMut(&Message, MatchedSubscription<'_>),
    ) {
        let ReactorState { pubsub, accounts, durable, .. } = self;
        pubsub.unsubscribe(&shared.pubsub, id, subscriptions, kind, name, |message, matched| {
            if !is_lost(shared, *durable, message.gate()) {
                give(message, matched);
            }
            true
        });
        accounts.subscriptions_grew(pubsub.take_grown_bytes());
    }

    /// Ends all subscriptions of a connection.
    pub(crate) fn forget_subscriptions(
        &mut self,
        shared: &ServerState,
        id: ConnId,
        subscriptions: &Subscriptions,
    ) {
        self.pubsub.forget(&shared.pubsub, id, subscriptions);
        self.accounts.subscriptions_grew(self.pubsub.take_grown_bytes());
    }

    /// Publishes a message to be delivered once the log is durable up to `gate`, which covers
    /// everything that its sender has written or read. Returns the number of receivers. If the log
    /// has failed meanwhile, the reactors deliver it to no client.
    pub(crate) fn publish_message(
        &mut self,
        shared: &ServerState,
        post: &Publication<'_>,
        gate: Gate,
    ) -> usize {
        let gate = gate.unless_open_at(self.durable);
        let sent = shared.pubsub.publish(post, gate, |reactor| {
            // This reactor checks for messages at the end of its turn anyway.
            if reactor != self.index {
                shared.links().wake(reactor);
            }
        });
        self.backlog = sent.full.map(Backlog::Full).or(self.backlog);
        sent.receivers
    }

    /// Queues the deferred messages of a command or transaction for publication, now that its log
    /// position is known. Drops them if the log rejected the record, because the command then
    /// returns an error. Called under the stripe locks; [`ReactorState::publish_some`] is called after
    /// they are released.
    #[cold]
    pub(crate) fn queue_deferred(&mut self, shared: &ServerState, gate: Gate) {
        if self.is_lost(shared, gate) {
            return self.pubsub.drop_deferred();
        }
        self.pubsub.queue_deferred(&shared.pubsub, gate.unless_open_at(self.durable));
    }

    /// Publishes queued messages within this turn's limit. A connection that caused some of the
    /// remaining ones waits.
    pub(crate) fn publish_some(&mut self, shared: &ServerState) {
        if !shared.pubsub.has_unmatched() {
            return;
        }
        if self.is_off_reactor {
            // Threads outside the reactors have no turns.
            return shared.links().wake(0);
        }
        let ReactorState { pubsub, index, .. } = self;
        pubsub.match_some(&shared.pubsub, |reactor| {
            if reactor != *index {
                shared.links().wake(reactor);
            }
        });
        if shared.pubsub.has_unmatched() {
            self.backlog = Some(Backlog::Unmatched);
        }
    }

    /// Whether this log position will never become durable.
    #[inline]
    pub(crate) fn is_lost(&self, shared: &ServerState, gate: Gate) -> bool {
        is_lost(shared, self.durable, gate)
    }

    /// Applies these settings here; other reactors apply them in their next turn.
    pub(crate) fn take_settings(&mut self, shared: &ServerState, settings: Arc<Settings>) {
        self.has_new_settings = true;
        self.thresholds = Thresholds::of(&settings);
        self.queue_age.set_limit_ms(settings.overload_queue_age_ms);
        self.latency_ns = match settings.latency_monitor_threshold_ms {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.noted = self.thresholds.or_slower_than(self.latency_ns);
        self.output_pause_bytes =
            usize::try_from(settings.internals.output_pause_bytes()).unwrap_or(usize::MAX);
        self.settings = settings;
        self.refresh_room(shared);
    }

    /// Updates the available memory.
    pub(crate) fn refresh_room(&mut self, shared: &ServerState) {
        self.room = Room::new(&self.settings, &shared.memory);
    }

    /// The level that gated replies at this durability wait for. Without enough replicas, writes
    /// that wait for them are refused, and reads wait for the local disk alone.
    #[inline]
    pub(crate) fn level(&self, durability: Durability) -> Level {
        if durability == Durability::Replicated && self.has_replicas(durability) {
            Level::Remote
        } else {
            Level::Local
        }
    }

    /// Why writes of a client with this durability are refused now, as the text of an error reply.
    #[inline]
    pub(crate) fn check_writes(
        &self,
        shared: &ServerState,
        durability: Durability,
    ) -> Result<(), &'static str> {
        shared.check_writes()?;
        if self.has_replicas(durability) { Ok(()) } else { Err(NO_REPLICAS) }
    }

    /// Whether enough replicas are connected for writes of this durability.
    #[inline]
    pub(crate) fn has_replicas(&self, durability: Durability) -> bool {
        self.available_replicas >= self.settings.replicas_needed(durability)
    }

    /// Whether a reply that waits for this level may be sent now.
    #[inline]
    pub(crate) fn is_open(&self, gate: Gate, level: Level) -> bool {
        gate.is_open_at(self.reached(level))
    }

    #[inline]
    pub(crate) fn reached(&self, level: Level) -> Lsn {
        match level {
            Level::Local => self.durable,
            Level::Remote => self.replicated,
        }
    }

    /// Notes that a reply waits for a level.
    pub(crate) fn note_gate(&mut self, gate: Gate, level: Level, command: RequestId) {
        self.gate_max = self.gate_max.max(gate);
        if level == Level::Remote {
            self.replicated_gate_max = self.replicated_gate_max.max(gate);
        }
        if !self.settings.latency_tracking {
            return;
        }
        match self.log_waits.back_mut() {
            Some(last) if last.command == command && last.since == self.stamp => {
                last.gate = gate;
                last.count += 1;
            }
            Some(last) if last.command == command && last.gate >= gate => last.count += 1,
            _ => self.log_waits.push_back(LogWait { gate, command, count: 1, since: self.stamp }),
        }
    }
}

/// Like [`ReactorState::is_lost`], with the durable position known to the reactor.
#[inline]
pub(crate) fn is_lost(shared: &ServerState, durable: Lsn, gate: Gate) -> bool {
    !gate.is_open_at(durable)
        && shared.log.poisoned().is_some()
        && !gate.is_open_at(shared.log.durable())
}

/// The level that the reply of a write waits for. The write was admitted with enough replicas, so
/// this does not depend on how many are connected now.
pub(crate) fn level_of_write(durability: Durability) -> Level {
    if durability == Durability::Replicated { Level::Remote } else { Level::Local }
}

/// Whether replies wait for the log at this durability.
pub(crate) fn is_gated(durability: Durability) -> bool {
    matches!(durability, Durability::Always | Durability::Replicated)
}
