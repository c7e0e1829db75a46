//! Request handling of one reactor: turns input bytes into replies.

mod adaptive_spin;
mod contended;
mod cql;
mod deadlines;
mod gates;
pub(crate) mod history;
mod housekeeping;
mod http;
mod members;
mod newcomers;
mod protocol;
mod pubsub;
mod rdb;
mod replica_waits;
mod resp;
mod serve;
mod session;
mod tracking;
mod waits;

use crate::commands::execute::Prepared;
use crate::commands::session::Wait;
use crate::config::{Endpoint, Place, TlsAuthClientsUser};
use crate::cql::CqlState;
use crate::cql::request_lines::RequestLines;
use crate::engine::acl::{Identity, Standing};
use crate::engine::client_address::ClientAddress;
use crate::engine::client_row::{CLIENT_BYTES, ClientRow};
use crate::engine::commit::Record;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::mail::Mail;
use crate::engine::pubsub::Backlog;
use crate::engine::reactor_state::ReactorState;
use crate::engine::reply_reservation::reply_room;
use crate::engine::server_state::{ServerState, params};
use crate::http::feeds::Feeds;
use crate::protocol::ClientProtocol;
use crate::statements::StatementState;
use crate::tls::common_name;
use adaptive_spin::AdaptiveSpin;
use base::time::{MonoNs, Now};
use contended::Contended;
use deadlines::Deadlines;
use newcomers::Newcomers;
use protocol::{Opened, Protocol};
use reactor::{ConnId, Connections, Context, Flow, Handler, Level, Output, Peer};
use replica_waits::ReplicaWaits;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{Params, STRIPES};
use wire::resp::{ReplyRoom, RequestBatch};

pub(crate) use session::Session;

/// Timer token of periodic housekeeping.
const TICK: u64 = 0;
/// Timer token for the end of CLIENT PAUSE. The timer only triggers a turn: see `end_pause`.
const PAUSE_TIMER: u64 = 1;
/// Timer token for the deadlines of waiting connections.
const DEADLINE_TIMER: u64 = 2;
/// Timer token for contended requests. The timer only triggers a turn: see `retry_contended`.
const CONTENDED_TIMER: u64 = 3;

/// State shared by all reactors of a server: data, log, and the state of each protocol.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) shared: Arc<ServerState>,
    pub(crate) statements: Arc<StatementState>,
    pub(crate) cql: Arc<CqlState>,
    pub(crate) feeds: Arc<Feeds>,
}

/// The handler of one reactor.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub(crate) struct ReactorHandler {
    shared: Arc<ServerState>,
    statements: Arc<StatementState>,
    cql_state: Arc<CqlState>,
    feeds: Arc<Feeds>,
    reactor: ReactorState,
    params: Params,
    record: Record,
    batch: RequestBatch,
    prepared: Vec<Prepared>,
    /// Hashes of the keys that the batch will probably access.
    prefetched: Vec<u64>,
    /// Those of them that are keys of collections.
    collections: Vec<u64>,
    now: Now,
    /// Generation of the users that all sessions here have followed.
    acl_generation: u64,
    /// Connections that wait for log space.
    waiting_for_log_space: Vec<ConnId>,
    replica_waits: ReplicaWaits,
    newcomers: Newcomers,
    /// Publishers that wait until their messages are matched, or until a full queue is half empty.
    publishers: Vec<(ConnId, Backlog)>,
    /// Clients that have not read enough of their RDB files to be sent the next part.
    unread_parts: Vec<ConnId>,
    /// Connections that wait for the end of CLIENT PAUSE.
    postponed: BTreeSet<ConnId>,
    /// The end of CLIENT PAUSE for which a timer is set.
    pause_timer: MonoNs,
    contended: Contended,
    surveyed: MonoNs,
    /// Used by reactor 0.
    history: history::Sampler,
    /// Start of the window in which keys and clients are counted.
    window_began: MonoNs,
    is_ticking: bool,
    /// Of the connections that wait for a point in time.
    deadlines: Deadlines,
    /// When the next tick is due.
    next_tick: MonoNs,
    next_expiry_stripe: usize,
    next_purge_stripe: usize,
    /// Generation of the indexes being built, and the next stripe of this reactor to build them in.
    index_generation: u64,
    next_index_stripe: usize,
    /// Memory was above its limit when keys were last evicted without a write.
    has_surplus: bool,
    log_failed: bool,
    /// Log syncs at the last sample.
    log_syncs: u64,
    /// Whether requests were served in this turn.
    served: bool,
    /// When replies began to wait for a group that has not been requested yet.
    gathering_since: Option<MonoNs>,
    /// The position up to which a log sync was requested.
    requested_gate: Gate,
    /// Duration of waits from a sync request to its completion.
    log_spin: AdaptiveSpin,
    /// Duration of waits from the completion of a sync to the next request.
    peer_spin: AdaptiveSpin,
    /// Connection reads since the last requested sync completed.
    served_since_group: u32,
    /// Endpoints by listener number.
    endpoints: Vec<Endpoint>,
    cql: cql::CqlReactorState,
    http: http::HttpReactorState,
    resp_replies: ReplyRoom,
    http_replies: ReplyRoom,
}

impl ReactorHandler {
    pub(crate) fn new(state: State, index: usize) -> ReactorHandler {
        let State { shared, statements, cql: cql_state, feeds } = state;
        let reactor = ReactorState::new(&shared, index);
        let seed = shared.keyspace.seed();
        let now = Now::default();
        ReactorHandler {
            params: params(&reactor.settings, now.unix, seed, seed),
            record: Record::default(),
            batch: RequestBatch::new(),
            prepared: Vec::new(),
            prefetched: Vec::new(),
            collections: Vec::new(),
            now,
            acl_generation: shared.acl.generation(),
            waiting_for_log_space: Vec::new(),
            replica_waits: ReplicaWaits::default(),
            newcomers: Newcomers::default(),
            publishers: Vec::new(),
            unread_parts: Vec::new(),
            postponed: BTreeSet::new(),
            pause_timer: MonoNs::default(),
            contended: Contended::default(),
            surveyed: MonoNs::default(),
            history: history::Sampler::default(),
            window_began: MonoNs::default(),
            is_ticking: false,
            deadlines: Deadlines::default(),
            next_tick: MonoNs::default(),
            next_expiry_stripe: 0,
            next_purge_stripe: 0,
            index_generation: 0,
            next_index_stripe: STRIPES,
            has_surplus: false,
            log_failed: false,
            log_syncs: 0,
            served: false,
            gathering_since: None,
            requested_gate: Gate::OPEN,
            log_spin: AdaptiveSpin::default(),
            peer_spin: AdaptiveSpin::default(),
            served_since_group: 0,
            endpoints: reactor.settings.endpoints().collect(),
            cql: cql::CqlReactorState::new(RequestLines::new(
                reactor.settings.log_format,
                index,
                Arc::clone(&shared.lines),
            )),
            http: http::HttpReactorState::default(),
            resp_replies: reply_room(&shared.memory, ClientProtocol::Resp),
            http_replies: reply_room(&shared.memory, ClientProtocol::Http),
            reactor,
            shared,
            statements,
            cql_state,
            feeds,
        }
    }

    /// Execution times of the requests since the previous call.
    #[cfg(test)]
    pub(crate) fn take_times(&mut self) -> Vec<base::time::UnixMs> {
        std::mem::take(&mut self.reactor.times)
    }

    /// Updates the time, the settings and the durable log position once per turn.
    fn refresh(&mut self, now: Now) {
        if now == self.now {
            return;
        }
        self.now = now;
        self.reactor.begin_turn(now);
        let settings = self.shared.settings.load();
        if !Arc::ptr_eq(&settings, &self.reactor.settings) {
            self.reactor.take_settings(&self.shared, Arc::clone(&settings));
        }
        self.derive_params();
        self.reactor.refresh_positions(&self.shared);
    }

    fn derive_params(&mut self) {
        self.reactor.has_new_settings = false;
        let random = self.reactor.random();
        let seed = self.shared.keyspace.seed();
        let now = self.reactor.time(&self.params);
        self.params = params(&self.reactor.settings, now.unix, seed, random);
    }

    /// Borrows the reactor's state for one operation.
    fn context(&mut self) -> ReactorContext<'_> {
        ReactorContext {
            shared: &self.shared,
            params: &self.params,
            reactor: &mut self.reactor,
            record: &mut self.record,
            now: self.now,
            replies: Some(&self.resp_replies),
        }
    }

    /// Starts a read of a connection. Returns the cycle counter.
    fn begin_read(&mut self, cx: &Context<'_, Mail>) -> u64 {
        self.refresh(cx.now());
        self.served = true;
        self.served_since_group = self.served_since_group.saturating_add(1);
        self.peer_spin.end(self.now.mono, self.awake_ns_max());
        let started = self.reactor.clock.now();
        self.reactor.begin_read(started);
        started
    }
}

impl Handler for ReactorHandler {
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
        let endpoint = self.endpoints[peer.listener];
        let remote = match endpoint.place {
            Place::Address(_) => peer.remote.into(),
            Place::Path => ClientAddress::UnixSocket,
        };
        let at = self.now.mono;
        let mut session = Session::open(&Opened {
            id,
            peer,
            remote,
            at,
            endpoint,
            acl: &self.shared.acl,
            durability: self.reactor.settings.durability,
        });
        let connection = session.protocol();
        let mut row = connection.row(self.reactor.index, at, &self.shared.request_kinds);
        row.remote = remote;
        row.is_tls = endpoint.is_tls;
        let must_authenticate =
            connection.must_authenticate(&self.reactor.settings, &self.shared.acl);
        if must_authenticate && !connection.is_authenticated() {
            self.newcomers.push(id, at);
        }
        self.register(&session, row);
        session
    }

    fn secured(&mut self, _: ConnId, session: &mut Session, certificate: Option<&[u8]>) {
        if self.reactor.settings.tls_auth_clients_user == TlsAuthClientsUser::Off {
            return;
        }
        let Some(session) = session.as_resp() else { return };
        let name = certificate.and_then(common_name);
        if let Some(identity) = name.and_then(|name| Identity::certified(&self.shared.acl, name)) {
            session.identity = identity;
        }
    }

    fn data(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        session: &mut Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        let session = session.protocol();
        debug_assert_eq!(id, session.id());
        self.serve(cx, session, input, out)
    }

    fn closed(&mut self, _: &mut Context<'_, Mail>, _: ConnId, mut session: Session) {
        let connection = session.protocol();
        self.remove_contended(connection.id());
        if self.postponed.remove(&connection.id()) {
            self.shared.blocked_clients.fetch_sub(1, Ordering::Relaxed);
        }
        connection.closed(self);
        self.forget_subscriptions(connection);
        self.unregister(&session);
    }

    fn peer_left(&mut self, id: ConnId, session: &mut Session) -> bool {
        if self.publishers.iter().any(|(waiting, _)| *waiting == id) {
            return true;
        }
        session.as_protocol().outlives_peer()
    }

    fn input_ended(&mut self, _: ConnId, session: &mut Session) -> bool {
        session.protocol().end_input()
    }

    fn closing(&mut self, _: ConnId, session: &mut Session, out: &mut Output) {
        let session = session.protocol();
        self.forget_subscriptions(session);
        session.closing(self, out);
    }

    fn depart(&mut self, id: ConnId, session: &mut Session) {
        // It may be moved between the end of its wait and its next turn.
        self.remove_contended(id);
        let shared = Arc::clone(&self.shared);
        let mut moving = shared.moving.lock();
        let row = self.unregister(session);
        let now = self.now.mono;
        let session = session.protocol();
        moving.insert(
            id.0,
            row.unwrap_or_else(|| session.row(self.reactor.index, now, &shared.request_kinds)),
        );
        session.depart(self);
    }

    fn arrive(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, session: &mut Session) {
        self.refresh(cx.now());
        let shared = Arc::clone(&self.shared);
        let mut moving = shared.moving.lock();
        let row = moving.remove(&id.0).expect("put there by `depart`");
        let is_ended = session.protocol().follow_users(&shared.acl) == Standing::Ended;
        if row.killed || is_ended {
            // CLIENT KILL or ACL DELUSER during the move does not reach this reactor.
            cx.abort(id);
        }
        self.register(session, ClientRow { reactor: self.reactor.index, ..row });
        // The session brought held replies: this reactor must request their gates.
        let (level, gate) = session.protocol().arrive(self);
        self.reactor.gate_max = self.reactor.gate_max.max(gate);
        if level == Level::Remote {
            self.reactor.replicated_gate_max = self.reactor.replicated_gate_max.max(gate);
        }
    }

    fn may_migrate(&self, session: &Session) -> bool {
        session.as_protocol().may_migrate()
    }

    fn may_expire(&self, session: &Session) -> bool {
        session.as_protocol().may_expire()
    }

    fn mail(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
        mail: Mail,
    ) {
        match mail {
            Mail::Monitor(lines) => self.deliver_monitor_lines(cx, connections, &lines),
            // Do not wait for pending output: a client may be killed because it does not read.
            Mail::Kill(id) => cx.abort(id),
            Mail::Unblock { id, error } => self.unblock(cx, connections, id, error),
            Mail::SnapshotDone { number, error } => {
                let error = error.map(|error| format!("ERR snapshot failed: {error}"));
                let result = (error.as_deref(), Gate::OPEN);
                self.end_waits(cx, connections, Wait::Snapshot { number }, result);
            }
            Mail::Changes { id, part, is_last } => {
                self.deliver_changes(cx, connections, id, &part, is_last);
            }
            Mail::RdbPart { id, bytes, gate, is_last } => {
                self.deliver_rdb_part(cx, connections, id, (bytes, gate), is_last);
            }
            Mail::Migrated { id, error, gate } => {
                self.end_migration(cx, connections, id, error.as_deref(), gate);
            }
            Mail::SchemaChanged { event, gate } => {
                self.send_schema_event(connections, &event, gate);
            }
            Mail::MembersChanged(update) => self.send_node_events(cx, connections, &update),
            Mail::Fence(fence) => fence.pass(),
            Mail::Demoted => self.leave_mastership(cx, connections),
            Mail::Promoted { error, gate } => {
                self.end_waits(cx, connections, Wait::Promotion, (error, gate));
            }
            Mail::CqlReply(reply) => self.take_reply(cx, connections, *reply),
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
        debug_assert!([DEADLINE_TIMER, PAUSE_TIMER, CONTENDED_TIMER].contains(&token));
        self.meet_deadlines(cx, connections);
    }

    fn no_room(&mut self, _: &mut Context<'_, Mail>, _: ConnId, session: &mut Session) {
        if let Some(session) = session.as_cql() {
            session.is_full = true;
        }
    }

    fn has_room(&mut self, cx: &mut Context<'_, Mail>, _: ConnId, session: &mut Session) {
        if let Some(session) = session.as_cql() {
            session.is_full = false;
            if session.paused_scans > 0 {
                cx.poll();
            }
        }
    }

    fn before_wait(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        if !std::mem::replace(&mut self.is_ticking, true) {
            // First turn: start the periodic tick, which re-arms its own timer.
            self.refresh(cx.now());
            self.tick(cx, connections);
        }
        self.follow_users(cx, connections);
        self.limit_newcomers(cx, connections);
        self.end_pause(cx, connections);
        self.retry_contended(cx, connections);
        self.record.take_news(self.cql.record());
        self.serve_blocked(cx, connections);
        self.deliver_invalidations(cx, connections);
        self.deliver_monitor_feed();
        self.deliver_messages(cx, connections);
        self.resume_publishers(cx);
        self.note_delivered(connections);
        self.request_rdb_parts(connections);
        if !self.reactor.is_spare {
            self.settle_indexes(cx);
            if self.has_surplus {
                self.evict_surplus(cx);
            }
        }
        if self.has_scans() {
            self.refresh(cx.now());
            self.resume_scans(cx, connections);
        }
        self.settle_with_log(cx, connections);
        self.publish_counts();
        self.record_writes(cx);
        self.account_memory();
        self.shared.activities.end(self.reactor.index);
        self.reactor.end_turn(self.now == cx.now());
    }

    /// Closes connections with requests deferred by CLIENT PAUSE without running these requests:
    /// the server would stop in the middle of the pause.
    fn draining(&mut self, cx: &mut Context<'_, Mail>, connections: &mut Connections<'_, Session>) {
        self.reactor.is_draining = true;
        for id in &self.postponed {
            cx.close(*id);
        }
        // A change feed or a subscription never ends by itself.
        for (info, session) in connections.list() {
            if self.shared.transfers.is_open(info.id) {
                cx.abort(info.id); // the file remains without its end, which the client detects
            } else if session.as_protocol().is_endless() {
                cx.close(info.id);
            }
        }
    }
}

/// Memory of an idle client.
fn client_bytes(row: &ClientRow) -> u64 {
    CLIENT_BYTES + if row.is_tls { reactor::TLS_BYTES as u64 } else { 0 }
}

impl ReactorHandler {
    /// Ends the sessions that a change of users ends.
    fn follow_users(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Session>,
    ) {
        let generation = self.shared.acl.generation();
        if std::mem::replace(&mut self.acl_generation, generation) == generation {
            return;
        }
        for (id, _, session, _) in connections.iter() {
            if session.protocol().follow_users(&self.shared.acl) == Standing::Ended {
                cx.abort(id);
            }
        }
    }

    /// Ends the subscriptions of a connection, which receives no further messages.
    fn forget_subscriptions(&mut self, session: &mut dyn Protocol) {
        let id = session.id();
        if let Some(subscriptions) = session.subscriptions() {
            let gone = std::mem::take(subscriptions);
            self.reactor.forget_subscriptions(&self.shared, id, &gone);
        }
    }

    fn register(&mut self, session: &Session, row: ClientRow) {
        self.reactor.accounts.add_client(client_bytes(&row));
        self.shared.published[self.reactor.index].lock().clients.insert(row.id, row);
        let session = session.as_protocol();
        self.reactor.accounts.buffers(session.kind()).came(session.charges());
    }

    fn unregister(&mut self, session: &Session) -> Option<ClientRow> {
        let session = session.as_protocol();
        self.reactor.accounts.buffers(session.kind()).left(session.charges());
        let mut published = self.shared.published[self.reactor.index].lock();
        let mut row = published.clients.remove(&session.id().0);
        if let Some(row) = &mut row {
            published.busiest_clients.depart(row);
        }
        drop(published);
        self.reactor.accounts.remove_client(row.as_ref().map_or(CLIENT_BYTES, client_bytes));
        row
    }
}
