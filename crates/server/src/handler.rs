//! The server's side of one reactor: it turns bytes into replies.

mod gates;
mod housekeeping;
mod patience;
mod waits;

use crate::published::ClientRow;
use crate::resp::CommandId;
use crate::resp::cx::Record;
use crate::resp::execute::{Executor, Prepared, prepare};
use crate::resp::registry::REGISTRY;
use crate::resp::session::{Session, Wait};
use crate::shared::{Mail, Shared, params};
use crate::worker::Worker;
use base::time::{MonoNs, Now};
use patience::Patience;
use reactor::{ConnId, Connections, Context, Flow, Handler, Next, Output, Peer};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::Params;
use waits::write_wait_reply;
use wire::resp::{Limits, ReplyWriter, RequestBatch};

/// Requests decoded at a time. More do not fit the first-level cache together with their keys.
const BATCH_REQUESTS_MAX: usize = 64;

/// A connection that has run requests for this long lets others go first.
const SERVED_NS_MAX: u64 = 1_000_000;

/// Timer of the housekeeping.
const TICK: u64 = 0;
/// Timer of the end of CLIENT PAUSE. It wants nothing but a turn: see `end_pause`.
const PAUSE_OVER: u64 = 1;
/// Tokens from here on are connections that wait.
const WAIT_TOKENS: u64 = 2;

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
    /// How long the log takes to do as asked.
    log_patience: Patience,
    /// How long it takes after that until a request comes.
    peer_patience: Patience,
    /// Reads of connections since the log last did as asked.
    served_since_group: u32,
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
            log_patience: Patience::default(),
            peer_patience: Patience::default(),
            served_since_group: 0,
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
        self.served_since_group = self.served_since_group.saturating_add(1);
        self.peer_patience.end(self.now.mono, self.awake_ns_max());
        let started = self.worker.clock.now();
        let mut decode_start = started;
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
            decode_start = self.worker.stamp;
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
