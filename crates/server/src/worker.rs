//! The server's side of one reactor: it turns bytes into replies and keeps the reactor's own state.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::stages::{CycleClock, Stage};
use base::time::{MonoNs, Now};
use binlog::Lsn;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use reactor::{ConnId, Connections, Context, Flow, Handler, Next, Output, Peer};
use store::Params;
use wire::resp::{Args, Limits, ReplyWriter, RequestBatch};

use crate::accounts::Accounts;
use crate::config::{Durability, Settings};
use crate::latency::LatencyEvent;
use crate::published::{ClientRow, Tally};
use crate::records;
use crate::resp::cx::Record;
use crate::resp::execute::{Executor, Prepared, prepare};
use crate::resp::registry::REGISTRY;
use crate::resp::session::{Session, Wait, WaitReply};
use crate::resp::{CommandId, monitor_line};
use crate::shared::{Mail, Shared, params};

/// Requests decoded at a time. More do not fit the first-level cache together with their keys.
const BATCH_REQUESTS_MAX: usize = 64;

/// A connection that has run requests for this long lets others go first.
const SERVED_NS_MAX: u64 = 1_000_000;

/// Longest time for which a busy reactor gathers requests before it asks the log for a group. An idle
/// reactor asks at once. See `docs/decisions/0001-gather-before-a-group.md`.
const GATHER_NS_MAX: u64 = 1_000_000;

/// How often CLIENT LIST is told of the connections' buffers.
const SURVEY_NS: u64 = 1_000_000_000;

/// Timer of the housekeeping.
const TICK: u64 = 0;
/// Timer of the end of CLIENT PAUSE. It wants nothing but a turn: see `end_pause`.
const PAUSE_OVER: u64 = 1;
/// Tokens from here on are connections that wait.
const WAIT_TOKENS: u64 = 2;

/// State of a reactor that commands may use.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) settings: Arc<Settings>,
    /// What was derived from the settings is out of date.
    has_new_settings: bool,
    pub(crate) clock: CycleClock,
    /// The cycle counter when the last command ended, so that one reading serves two commands.
    pub(crate) stamp: u64,
    /// The log's durable position as this turn knows it.
    pub(crate) durable: u64,
    pub(crate) tally: Tally,
    /// Growth of the data since the tracker was told.
    pub(crate) store_bytes: isize,
    pub(crate) accounts: Accounts,
    slow_ns: u64,
    latency_ns: u64,
    random: SmallRng,
    /// Highest gate handed out; a group is asked for while it is ahead of the log.
    gate_max: u64,
    monitor_feed: Vec<u8>,
    /// Replies that wait for the log, oldest first: gate, command, how many, since when.
    log_waits: VecDeque<LogWait>,
    /// Time of this reactor's writes that has been recorded.
    write_ns: u64,
}

#[derive(Debug)]
struct LogWait {
    gate: u64,
    command: CommandId,
    count: u32,
    since: u64,
}

impl Worker {
    fn new(shared: &Shared, index: usize) -> Worker {
        let clock = shared.cycles.clone();
        let settings = shared.settings.load_full();
        let mut worker = Worker {
            index,
            settings: Arc::clone(&settings),
            has_new_settings: false,
            stamp: clock.now(),
            clock,
            durable: 0,
            tally: Tally::default(),
            store_bytes: 0,
            accounts: Accounts::new(&shared.memory),
            slow_ns: u64::MAX,
            latency_ns: u64::MAX,
            random: SmallRng::seed_from_u64(shared.keyspace.seed() ^ (index as u64 + 1)),
            gate_max: 0,
            monitor_feed: Vec::new(),
            log_waits: VecDeque::new(),
            write_ns: 0,
        };
        worker.take_settings(settings);
        worker
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// Appends one record of mutations. Called under the stripes' locks. The position that must be
    /// durable for it; never reached when the log is poisoned.
    #[inline]
    pub(crate) fn append(&mut self, shared: &Shared, mutations: &[u8]) -> u64 {
        shared.log.append(self.index, records::MUTATIONS, mutations).map_or(u64::MAX, |lsn| lsn.0)
    }

    #[inline]
    pub(crate) fn is_slow(&self, ns: u64) -> bool {
        ns >= self.slow_ns
    }

    #[inline]
    pub(crate) fn is_latency_event(&self, ns: u64) -> bool {
        ns >= self.latency_ns
    }

    /// Hands over what was counted, and this client's row.
    pub(crate) fn publish(&mut self, shared: &Shared, session: &Session, now: Now) {
        let mut published = shared.published[self.index].lock();
        self.tally.publish(&mut published, self.settings.latency_tracking);
        if let Some(row) = published.clients.get_mut(&session.id.0) {
            row.update(session, now.mono);
        }
    }

    /// Remembers a request for the clients that run MONITOR.
    pub(crate) fn feed_monitors(&mut self, session: &Session, now: Now, args: Args<'_>) {
        monitor_line(session, now.unix, args, &mut self.monitor_feed);
    }

    /// From now on these settings count here; other reactors take them at their next turn.
    pub(crate) fn take_settings(&mut self, settings: Arc<Settings>) {
        self.has_new_settings = true;
        let us = settings.slowlog_log_slower_than_us;
        self.slow_ns = u64::try_from(us).map_or(u64::MAX, |us| us.saturating_mul(1000));
        self.latency_ns = match settings.latency_monitor_threshold_ms {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.settings = settings;
    }

    fn note_gate(&mut self, gate: u64, command: CommandId) {
        self.gate_max = self.gate_max.max(gate);
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

/// The handler of one reactor.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    worker: Worker,
    params: Params,
    record: Record,
    batch: RequestBatch,
    prepared: Vec<Prepared>,
    now: Now,
    /// Connections that wait for room in the log.
    roomless: Vec<ConnId>,
    /// Connections that wait for the end of CLIENT PAUSE.
    postponed: BTreeSet<ConnId>,
    /// The end for which a timer is set.
    pause_timer: MonoNs,
    surveyed: MonoNs,
    is_ticking: bool,
    /// Connections that wait for a time, by timer token.
    timed: HashMap<u64, ConnId>,
    next_token: u64,
    next_expiry_stripe: usize,
    log_failed: bool,
    /// Syncs of the log when it was last looked at.
    log_syncs: u64,
    /// Requests were served in this turn.
    served: bool,
    /// Since when replies wait for a group that was not asked for yet.
    gathering_since: Option<MonoNs>,
    /// The log has been asked to sync up to here.
    asked_gate: u64,
}

impl Server {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Server {
        let worker = Worker::new(&shared, index);
        let seed = shared.keyspace.seed();
        let now = Now::default();
        Server {
            params: params(&worker.settings, now.unix, seed, seed),
            worker,
            record: Record::default(),
            batch: RequestBatch::new(),
            prepared: Vec::new(),
            now,
            roomless: Vec::new(),
            postponed: BTreeSet::new(),
            pause_timer: MonoNs::default(),
            surveyed: MonoNs::default(),
            is_ticking: false,
            timed: HashMap::new(),
            next_token: WAIT_TOKENS,
            next_expiry_stripe: 0,
            log_failed: false,
            log_syncs: 0,
            served: false,
            gathering_since: None,
            asked_gate: 0,
            shared,
        }
    }

    /// Once per turn: the time, the settings, the log's position.
    fn refresh(&mut self, now: Now) {
        if now == self.now {
            return;
        }
        self.now = now;
        let settings = self.shared.settings.load();
        if !Arc::ptr_eq(&settings, &self.worker.settings) {
            self.worker.take_settings(Arc::clone(&settings));
        }
        self.derive_params();
        self.worker.durable = self.shared.log.durable().0;
    }

    fn derive_params(&mut self) {
        self.worker.has_new_settings = false;
        let random = self.worker.random();
        let seed = self.shared.keyspace.seed();
        self.params = params(&self.worker.settings, self.now.unix, seed, random);
    }

    fn limits(&self, session: &Session) -> Limits {
        if session.authenticated {
            let bulk_bytes_max = self.worker.settings.proto_max_bulk_len_bytes;
            let bulk_bytes_max = usize::try_from(bulk_bytes_max).unwrap_or(usize::MAX);
            Limits { bulk_bytes_max, ..Limits::DEFAULT }
        } else {
            Limits::UNAUTHENTICATED
        }
    }

    /// Finds commands and keys of the batch, and has the keys' memory loaded while it does so: three
    /// passes, because each address is known only when the one before has arrived.
    fn prepare(&mut self, session: &Session, input: &[u8]) {
        self.prepared.clear();
        let keyspace = &self.shared.keyspace;
        let mut known = None;
        for index in 0..self.batch.len() {
            let args = self.batch.get(index, input);
            let prepared = prepare(&self.shared, args, known);
            // A subcommand has its container's name, which says nothing of the next one.
            let is_whole = |id: &CommandId| REGISTRY.entry(*id).parent.is_none();
            known = prepared.id.filter(is_whole).map(|id| (args.get(0), id));
            if let Some(hash) = prepared.hash {
                keyspace.prefetch_stripe(hash);
            }
            self.prepared.push(prepared);
        }
        if self.prepared.len() < 2 {
            return;
        }
        let hashes = || self.prepared.iter().filter_map(|prepared| prepared.hash);
        hashes().for_each(|hash| keyspace.prefetch_bucket(session.db, hash));
        hashes().for_each(|hash| keyspace.prefetch_entry(session.db, hash));
    }

    /// Pending output above which the next request waits: a batch of short requests can ask for
    /// gigabytes.
    fn output_pause_bytes(&self) -> usize {
        usize::try_from(self.worker.settings.output_pause_bytes).unwrap_or(usize::MAX)
    }

    /// Runs the decoded batch. Returns how many requests were run, if the rest has to wait or must
    /// be prepared anew.
    fn run_batch(
        &mut self,
        session: &mut Session,
        input: &[u8],
        out: &mut Output,
    ) -> Option<usize> {
        let pause_bytes = self.output_pause_bytes();
        let mut executor = Executor {
            shared: &self.shared,
            params: &self.params,
            worker: &mut self.worker,
            record: &mut self.record,
            now: self.now,
        };
        for (index, prepared) in self.prepared.iter().enumerate() {
            let args = self.batch.get(index, input);
            let start = out.buffer().len();
            let gate = executor.request(session, *prepared, args, out.buffer());
            if executor.is_lost(gate) {
                executor.reply_lost(session, start, out.buffer());
                out.hold(0);
            } else if gate > executor.worker.durable {
                executor.worker.note_gate(gate, session.last_command);
                out.hold(gate);
            } else {
                out.hold(0);
            }
            if session.wait == Some(Wait::Pause) {
                return Some(index);
            }
            let goes_on = !session.closing && session.wait.is_none();
            let is_full = out.pending_bytes() > pause_bytes;
            if !goes_on || is_full || executor.worker.has_new_settings {
                return Some(index + 1);
            }
        }
        None
    }

    fn begin_wait(&mut self, cx: &mut Context<'_, Mail>, session: &mut Session) {
        self.shared.blocked_clients.fetch_add(1, Ordering::Relaxed);
        match session.wait {
            // The end of time is "for ever": only CLIENT UNBLOCK or the peer's leaving end it.
            Some(Wait::Until { at, .. }) if at != MonoNs(u64::MAX) => {
                let token = self.next_token;
                self.next_token += 1;
                self.timed.insert(token, session.id);
                cx.set_timer(at, token);
            }
            Some(Wait::Pause) => {
                self.postponed.insert(session.id);
            }
            Some(Wait::Until { .. } | Wait::Snapshot { .. } | Wait::Room) | None => {}
        }
    }

    /// Lets connections go on that CLIENT PAUSE stopped, or asks for a turn when it is over.
    fn end_pause(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if self.postponed.is_empty() {
            return;
        }
        if let Some(until) = self.shared.pause.until(cx.now().mono) {
            if until != self.pause_timer {
                self.pause_timer = until;
                cx.set_timer(until, PAUSE_OVER);
            }
            return;
        }
        for id in std::mem::take(&mut self.postponed) {
            if let Some((session, _)) = connections.get_mut(id) {
                session.wait = None;
                self.shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
                cx.resume(id);
            }
        }
    }

    /// Looks at the connections' buffers for CLIENT LIST.
    fn survey(&mut self, cx: &mut Context<'_, Mail>, connections: &mut Connections<'_, Session>) {
        if self.now.mono.since(self.surveyed) < SURVEY_NS {
            return;
        }
        self.surveyed = self.now.mono;
        let mut published = self.shared.published[self.worker.index].lock();
        for (info, session) in connections.list() {
            if let Some(row) = published.clients.get_mut(&info.id.0) {
                row.measure(&info);
            }
            if is_output_over(&self.worker.settings, session, info.output_bytes, self.now.mono) {
                cx.abort(info.id);
            }
        }
    }

    /// Ends a connection's wait and lets it go on.
    fn end_wait(
        shared: &Shared,
        cx: &mut Context<'_, Mail>,
        session: &mut Session,
        write: impl FnOnce(&mut ReplyWriter<'_>),
        out: &mut Output,
    ) {
        session.wait = None;
        shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
        write(&mut ReplyWriter::new(out.buffer(), session.protocol));
        out.hold(session.last_gate);
        cx.resume(session.id);
        let mut published = shared.published[cx.index()].lock();
        if let Some(row) = published.clients.get_mut(&session.id.0) {
            row.update(session, cx.now().mono);
        }
    }

    fn deliver_monitor_feed(&mut self) {
        if !self.worker.monitor_feed.is_empty() {
            let lines = std::mem::take(&mut self.worker.monitor_feed);
            self.shared.broadcast(&Mail::Monitor(lines.into()));
        }
    }

    /// Tells the log what this turn wants of it, and opens the gates that it has reached.
    fn settle_with_log(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let durable = self.shared.log.durable();
        self.worker.durable = durable.0;
        cx.set_level(durable.0);
        self.record_log_waits(durable.0);
        if self.worker.gate_max > durable.0 && !self.gathers(cx) {
            let log = &self.shared.log;
            log.request_sync(Lsn(self.worker.gate_max));
            log.wake_when_durable(self.worker.index, Lsn(durable.0 + 1));
            if log.poisoned().is_some() {
                self.give_up_held_replies(cx, connections);
            }
        }
        if !self.roomless.is_empty() && self.shared.log.has_room(self.worker.index) {
            for id in std::mem::take(&mut self.roomless) {
                if let Some((session, _)) = connections.get_mut(id) {
                    session.wait = None;
                    cx.resume(id);
                }
            }
        }
    }

    /// Whether a group should wait for requests that are ready on this reactor right now. A group
    /// costs its core about 20 us, so while there is work it is worth more members: the reactor
    /// looks once more, and asks for the group when nothing was ready, or after a moment.
    fn gathers(&mut self, cx: &mut Context<'_, Mail>) -> bool {
        let gate_max = self.worker.gate_max;
        if gate_max <= self.asked_gate {
            return false;
        }
        let since = *self.gathering_since.get_or_insert(self.now.mono);
        if std::mem::take(&mut self.served) && self.now.mono.since(since) < GATHER_NS_MAX {
            cx.poll();
            return true;
        }
        self.gathering_since = None;
        self.asked_gate = gate_max;
        false
    }

    /// The log will never reach some gates: nobody can say whether those writes will be found after
    /// a restart, so their connections are closed without an answer.
    fn give_up_held_replies(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if !self.log_failed {
            self.log_failed = true;
            tracing::error!("the log has failed: writes are refused from now on");
        }
        let held: Vec<ConnId> = connections
            .iter()
            .filter(|(_, _, _, out)| out.held_bytes() > 0)
            .map(|(id, ..)| id)
            .collect();
        for id in held {
            cx.abort(id);
        }
        self.worker.gate_max = self.worker.durable;
    }

    fn record_log_waits(&mut self, durable: u64) {
        let waits = &mut self.worker.log_waits;
        if waits.front().is_none_or(|wait| wait.gate > durable) {
            return;
        }
        let stamp = self.worker.clock.now();
        let mut longest_ns = 0;
        let mut published = self.shared.published[self.worker.index].lock();
        while let Some(wait) = waits.front().filter(|wait| wait.gate <= durable) {
            let ns = self.worker.clock.delta_ns(wait.since, stamp);
            published.timers.record_n(usize::from(wait.command), Stage::WaitForLog, ns, wait.count);
            longest_ns = longest_ns.max(ns);
            waits.pop_front();
        }
        drop(published);
        if self.worker.is_latency_event(longest_ns) {
            let ms = longest_ns / 1_000_000;
            self.shared.latency.lock().note(LatencyEvent::LogSync, self.now.unix, ms);
        }
    }

    fn record_writes(&mut self, cx: &Context<'_, Mail>) {
        let write_ns = cx.stats().write_ns;
        let ns = write_ns - std::mem::replace(&mut self.worker.write_ns, write_ns);
        if ns > 0 && self.worker.tally.has_unwritten() {
            let mut published = self.shared.published[self.worker.index].lock();
            self.worker.tally.written(&mut published, ns);
        }
    }

    fn account_memory(&mut self) {
        let grown_bytes = std::mem::take(&mut self.worker.store_bytes);
        self.worker.accounts.store_grew(grown_bytes);
    }

    /// Background work of this reactor, `hz` times a second.
    fn tick(&mut self, cx: &mut Context<'_, Mail>, connections: &mut Connections<'_, Session>) {
        let hz = self.worker.settings.hz.max(1) as u64;
        cx.set_timer(MonoNs(self.now.mono.0 + 1_000_000_000 / hz), TICK);
        self.expire_due();
        self.survey(cx, connections);
        self.account_memory();
        self.worker.accounts.flush();
        if self.worker.index == 0 {
            self.sample_rates();
        }
    }

    fn sample_rates(&mut self) {
        let counters = self.shared.links().stats_sum();
        let commands = self.shared.totals().commands;
        let totals = [commands, counters.input_bytes, counters.output_bytes];
        self.shared.rates.sample(self.now.mono, totals);
        let log = self.shared.log.stats();
        let lane_bytes: usize = log.lane_bytes.iter().sum();
        self.worker.accounts.log_holds(lane_bytes as u64);
        if log.syncs > self.log_syncs && self.worker.is_latency_event(log.sync_ns_last) {
            let took_ms = log.sync_ns_last / 1_000_000;
            self.shared.latency.lock().note(LatencyEvent::LogSync, self.now.unix, took_ms);
        }
        self.log_syncs = log.syncs;
        self.shared.snapshots.consider(&self.shared, &self.worker.settings);
    }

    /// Deletes keys whose time has come in this reactor's share of the stripes.
    fn expire_due(&mut self) {
        let is_on = self.worker.settings.active_expire
            && self.shared.active_expire.load(Ordering::Relaxed)
            && self.shared.pause.until(self.now.mono).is_none();
        if !is_on {
            return;
        }
        let reactors = self.shared.published.len();
        let mut cycle = crate::expire::Cycle {
            shared: &self.shared,
            params: &self.params,
            worker: &mut self.worker,
            record: &mut self.record,
        };
        self.next_expiry_stripe = cycle.run(self.next_expiry_stripe, reactors);
    }
}

impl Handler for Server {
    type Session = Session;
    type Mail = Mail;

    fn open(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        peer: &Peer,
        _: &mut Output,
    ) -> Session {
        self.refresh(cx.now());
        let authenticated = !self.worker.settings.requirepass.is_set();
        let durability = self.worker.settings.durability;
        let session = Session::new(id, peer, self.now.mono, authenticated, durability);
        let row = ClientRow::of(&session, self.worker.index, self.now.mono);
        self.register(&session, row);
        session
    }

    fn data(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        session: &mut Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        debug_assert_eq!(id, session.id);
        self.refresh(cx.now());
        self.served = true;
        let started = self.worker.clock.now();
        let mut consumed = 0;
        let next = loop {
            if !self.shared.log.has_room(self.worker.index) {
                session.wait = Some(Wait::Room);
                self.roomless.push(session.id);
                self.shared.log.request_write();
                break Next::Pause;
            }
            let rest = &input[consumed..];
            let limits = self.limits(session);
            // One by one before AUTH, as the limits change with it.
            let requests_max = if session.authenticated { BATCH_REQUESTS_MAX } else { 1 };
            let decode_start = self.worker.clock.now();
            let taken = session.decoder.decode(rest, &limits, requests_max, &mut self.batch);
            self.prepare(session, rest);
            self.worker.stamp = self.worker.clock.now();
            let parse_ns = self.worker.clock.delta_ns(decode_start, self.worker.stamp);
            self.worker.tally.parsed(parse_ns / (self.batch.len().max(1) as u64));
            let left_at = self
                .run_batch(session, rest, out)
                .filter(|count| *count < self.batch.len())
                .map(|count| count.checked_sub(1).map_or(0, |last| self.batch.end(last)));
            if left_at.is_some() {
                session.decoder.restart();
            }
            consumed += left_at.unwrap_or(taken);
            if session.closing {
                break Next::Close;
            }
            if session.wait.is_some() {
                self.begin_wait(cx, session);
                break Next::Pause;
            }
            if self.worker.has_new_settings {
                self.derive_params();
            }
            // The peer has to take its replies before it gets more.
            let is_full = out.pending_bytes() > self.output_pause_bytes();
            if left_at.is_some() {
                if is_full {
                    break Next::Again;
                }
                continue;
            }
            if let Some(error) = self.batch.error() {
                let text = format!("ERR {error}");
                ReplyWriter::new(out.buffer(), session.protocol).error(&text);
                self.worker.tally.error(None, &text);
                session.closing = true;
                break Next::Close;
            }
            if self.batch.len() < requests_max || consumed == input.len() {
                break Next::Read { needed: unread_needed(session, input.len() - consumed) };
            }
            if is_full || self.worker.clock.delta_ns(started, self.worker.stamp) > SERVED_NS_MAX {
                break Next::Again;
            }
        };
        let next = self.charge(session, input.len() - consumed, out).unwrap_or(next);
        self.worker.publish(&self.shared, session, self.now);
        Flow { consumed, next }
    }

    fn closed(&mut self, _: &mut Context<'_, Mail>, id: ConnId, session: Session) {
        if session.wait.is_some_and(|wait| wait != Wait::Room) {
            self.shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
        }
        if session.wait == Some(Wait::Pause) {
            self.postponed.remove(&id);
        }
        if matches!(session.wait, Some(Wait::Until { .. })) {
            self.timed.retain(|_, waiting| *waiting != id);
        }
        if session.monitor {
            self.shared.monitors.fetch_sub(1, Ordering::Relaxed);
        }
        self.unregister(&session);
    }

    fn peer_left(&mut self, _: ConnId, session: &mut Session) -> bool {
        // A pipeline that waits for room in the log is still to be executed: it was sent.
        session.wait == Some(Wait::Room)
    }

    fn depart(&mut self, id: ConnId, session: &mut Session) {
        let shared = Arc::clone(&self.shared);
        let mut moving = shared.moving.lock();
        let row = self.unregister(session);
        let now = self.now.mono;
        moving.insert(id.0, row.unwrap_or_else(|| ClientRow::of(session, self.worker.index, now)));
    }

    fn arrive(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, session: &mut Session) {
        self.refresh(cx.now());
        let shared = Arc::clone(&self.shared);
        let mut moving = shared.moving.lock();
        let row = moving.remove(&id.0).expect("put there by `depart`");
        if row.killed {
            // The order went to the reactor that it left, or to nobody.
            cx.abort(id);
        }
        self.register(session, ClientRow { reactor: self.worker.index, ..row });
        // Held replies came along; this reactor must ask for their gates.
        self.worker.gate_max = self.worker.gate_max.max(session.last_gate);
    }

    fn may_expire(&self, session: &Session) -> bool {
        !session.monitor
    }

    fn mail(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        mail: Mail,
    ) {
        match mail {
            Mail::Monitor(lines) => {
                let hard_bytes = self.worker.settings.client_output_buffer_limit.pubsub.hard_bytes;
                for (id, _, _, out) in connections.iter().filter(|(_, _, s, _)| s.monitor) {
                    out.buffer().extend_from_slice(&lines);
                    if hard_bytes != 0 && out.pending_bytes() as u64 > hard_bytes {
                        cx.abort(id); // what others do must not fill the memory until the next survey
                    }
                }
            }
            // Not after its output is sent: who does not read is killed for just that.
            Mail::Kill(id) => cx.abort(id),
            Mail::Unblock { id, error } => {
                let Some((session, out)) = connections.get_mut(id) else { return };
                let Some(Wait::Until { reply, .. }) = session.wait else { return };
                Self::end_wait(
                    &self.shared,
                    cx,
                    session,
                    |writer| {
                        if error {
                            writer.error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
                        } else {
                            write_wait_reply(writer, reply);
                        }
                    },
                    out,
                );
            }
            Mail::SnapshotDone { number, ok } => {
                let waiting = Some(Wait::Snapshot { number });
                for (_, _, session, out) in
                    connections.iter().filter(|(_, _, s, _)| s.wait == waiting)
                {
                    Self::end_wait(
                        &self.shared,
                        cx,
                        session,
                        |writer| if ok { writer.ok() } else { writer.error("ERR snapshot failed") },
                        out,
                    );
                }
            }
        }
    }

    fn timer(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        token: u64,
    ) {
        self.refresh(cx.now());
        if token == TICK {
            return self.tick(cx, connections);
        }
        let Some(id) = self.timed.remove(&token) else { return };
        let Some((session, out)) = connections.get_mut(id) else { return };
        let Some(Wait::Until { at, reply }) = session.wait else { return };
        if at <= self.now.mono {
            Self::end_wait(&self.shared, cx, session, |w| write_wait_reply(w, reply), out);
        }
    }

    fn before_wait(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if !std::mem::replace(&mut self.is_ticking, true) {
            // The first turn: from here on the ticks keep themselves going.
            self.refresh(cx.now());
            self.tick(cx, connections);
        }
        self.end_pause(cx, connections);
        self.deliver_monitor_feed();
        self.settle_with_log(cx, connections);
        self.record_writes(cx);
        self.account_memory();
    }

    /// Requests that CLIENT PAUSE put off are not run any more: the end would come in the middle of
    /// the pause.
    fn draining(&mut self, cx: &mut Context<'_, Mail>, _: &mut Connections<'_, Session>) {
        for id in &self.postponed {
            cx.close(*id);
        }
    }
}

impl Server {
    fn register(&mut self, session: &Session, row: ClientRow) {
        self.shared.published[self.worker.index].lock().clients.insert(row.id, row);
        self.worker.accounts.client_came(CLIENT_BYTES, session.charges);
    }

    fn unregister(&mut self, session: &Session) -> Option<ClientRow> {
        self.worker.accounts.client_left(CLIENT_BYTES, session.charges);
        self.shared.published[self.worker.index].lock().clients.remove(&session.id.0)
    }

    /// Charges the connection for what it keeps. Closes it when there is no memory for its input.
    fn charge(&mut self, session: &mut Session, unread: usize, out: &mut Output) -> Option<Next> {
        let pending = out.pending_bytes();
        let reached = self.worker.accounts.buffers(&mut session.charges, unread, pending).err()?;
        let text = format!("OOM {reached}");
        ReplyWriter::new(out.buffer(), session.protocol).error(&text);
        self.worker.tally.error(None, &text);
        session.closing = true;
        Some(Next::Close)
    }
}

/// Whether the peer has left more of its replies unread than `client-output-buffer-limit` allows.
/// A connection in MONITOR gets what it did not ask for, and so counts to class pubsub.
fn is_output_over(
    settings: &Settings,
    session: &mut Session,
    pending_bytes: usize,
    now: MonoNs,
) -> bool {
    let limits = &settings.client_output_buffer_limit;
    let limit = if session.monitor { limits.pubsub } else { limits.normal };
    let pending_bytes = pending_bytes as u64;
    let since = &mut session.details.above_soft_since;
    if limit.soft_bytes == 0 || pending_bytes <= limit.soft_bytes {
        *since = None;
    } else if since.is_none() {
        *since = Some(now);
    }
    let soft_ns = limit.soft_seconds.saturating_mul(1_000_000_000);
    let is_over_soft = since.is_some_and(|since| now.since(since) >= soft_ns);
    is_over_soft || (limit.hard_bytes != 0 && pending_bytes > limit.hard_bytes)
}

/// Unread bytes that must be there before the unfinished request can be complete; 0: unknown.
fn unread_needed(session: &Session, unread: usize) -> usize {
    match session.decoder.needed() {
        0 => 0,
        more => unread + more,
    }
}

/// What an idle connection costs: its session, its row in CLIENT LIST, its slot in the reactor.
pub(crate) const CLIENT_BYTES: u64 = (size_of::<Session>()
    + size_of::<crate::resp::session::Details>()
    + size_of::<ClientRow>()
    + reactor::CONNECTION_BYTES) as u64;

/// The promise of the server: ten thousand idle connections cost less than 10 MB.
const _: () = assert!(CLIENT_BYTES < 1024);

fn write_wait_reply(writer: &mut ReplyWriter<'_>, reply: WaitReply) {
    match reply {
        WaitReply::Ok => writer.ok(),
        WaitReply::Integer(number) => writer.integer(number),
        WaitReply::Pair(local, replicas) => {
            writer.array(2);
            writer.integer(local);
            writer.integer(replicas);
        }
    }
}

/// Whether a durability asks for replies that wait.
pub(crate) fn is_gated(durability: Durability) -> bool {
    durability == Durability::Always
}
