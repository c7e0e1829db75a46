//! Requests that wait for keys: see [`crate::engine::blocked`].

use std::sync::Arc;

use base::time::{MonoNs, Now};
use reactor::Peer;
use store::{Key, Kind, ReadyKey, Ticket};
use wire::resp::{Args, ReplyRoom, ReplyWriter};

use super::client::records_reads;
use super::command::{Done, Flags};
use super::context::CommandContext;
use super::execute::{Contended, note};
use super::fail::Fail;
use super::registry::REGISTRY;
use super::session::{Pending, Requests, Session, Tracking, Wait, WaitReply};
use crate::engine::blocked::{
    BlockedClient, BlockedConnection, BlockedReply, BlockedRequest, Claim,
};
use crate::engine::command_log::Taken;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::leftovers::Leftover;
use crate::engine::reactor_state::{RETRY_NS, ReactorState};
use crate::engine::refusal::LOG_FAILED;
use crate::engine::replication::Role;
use crate::engine::reply_reservation::UnsentReply;
use crate::engine::server_state::ServerState;

/// Requests that are run again at a time; the rest follow in the next turn.
const RERUNS_MAX: usize = 128;

/// Memory of a blocked client beyond its arguments: its entry, and for each key the name in the
/// client, in the stripe and the maps.
const CLIENT_OVERHEAD_BYTES: usize = 512;
const KEY_OVERHEAD_BYTES: usize = 192;

/// Parses a timeout in seconds. Returns its end; the maximum time for 0, which means never.
// Source: Redis 7.2 `timeout.c`, `getTimeoutFromObjectOrReply`
pub(super) fn timeout_seconds(cx: &CommandContext<'_>, text: &[u8]) -> Result<MonoNs, Fail> {
    let seconds = wire::resp::parse_f64(text)
        .filter(|seconds| seconds.is_finite() || *seconds > 0.0)
        .ok_or(Fail::text("ERR timeout is not a float or out of range"))?;
    timeout_ms(cx, (seconds * 1e3).ceil())
}

/// Returns the end of a timeout in milliseconds that is not negative; the maximum time for 0.
pub(super) fn timeout_milliseconds(cx: &CommandContext<'_>, ms: u64) -> Result<MonoNs, Fail> {
    const NS_PER_MS: u64 = 1_000_000;
    if ms > i64::MAX.unsigned_abs() - cx.unix().0 {
        return Err(Fail::text("ERR timeout is out of range"));
    }
    if ms == 0 {
        return Ok(MonoNs(u64::MAX));
    }
    Ok(MonoNs(cx.now.mono.0.saturating_add(ms.saturating_mul(NS_PER_MS))))
}

/// Returns the end of a timeout in whole milliseconds.
fn timeout_ms(cx: &CommandContext<'_>, ms: f64) -> Result<MonoNs, Fail> {
    #[expect(clippy::cast_precision_loss, reason = "compared as Redis compares it")]
    let ms_max = i64::MAX as f64;
    if ms < 0.0 {
        return Err(Fail::text("ERR timeout is negative"));
    }
    if ms >= ms_max {
        return Err(Fail::text("ERR timeout is out of range"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let ms = ms as u64;
    timeout_milliseconds(cx, ms)
}

pub(super) const NEVER: MonoNs = MonoNs(u64::MAX);

/// A request that found nothing and is to wait.
#[derive(Debug)]
pub(super) struct Blocking<'a> {
    /// The request to run again; often the arguments of the command.
    pub(super) args: Args<'a>,
    /// Which of them are keys. The stripes of all are locked.
    pub(super) keys: std::ops::Range<usize>,
    /// The type for which the request waits.
    pub(super) kind: Kind,
    /// See [`Ticket::ends_without_key`].
    pub(super) ends_without_key: bool,
    /// When the client gets a null array instead. The maximum means never.
    pub(super) until: MonoNs,
    /// When the request is run again although no key has changed. The maximum means never.
    pub(super) retry_at: MonoNs,
}

impl CommandContext<'_> {
    /// Whether the command may wait. If not, it replies as if its timeout had elapsed: inside
    /// transactions and scripts, over HTTP, and outside the reactors.
    pub(super) fn may_block(&self) -> bool {
        !self.in_exec && !self.session.is_lent() && !self.reactor.is_off_reactor
    }

    /// Makes the client wait until one of the keys changes such that the request, run again, writes
    /// a reply. The caller then returns without a reply.
    pub(super) fn block(&mut self, blocking: Blocking<'_>) -> Done {
        debug_assert!(self.may_block());
        self.is_blocked = true;
        let Blocking { args, keys, kind, ends_without_key, until, retry_at } = blocking;
        if self.session.is_rerun() {
            // The client keeps its own deadline.
            self.session.wait = Some(Wait::Until { at: retry_at, reply: WaitReply::NullArray });
            return Ok(());
        }
        let keys: Vec<Box<[u8]>> = args.range(keys).iter().map(Box::from).collect();
        self.charge_wait(args, &keys)?;
        self.session.wait = Some(Wait::Until { at: until, reply: WaitReply::NullArray });
        let connection = self.blocked_connection();
        let id = REGISTRY.find(self.command.name.as_bytes()).expect("a running command exists");
        let request = BlockedRequest { id, args: args.to_owned(), keys };
        let client = self.shared.blocked.add(connection, request, retry_at);
        let ticket = Ticket { number: client.ticket, kind, ends_without_key };
        for bytes in &client.request.keys {
            self.locked.wait_for(self.db, self.shared.keyspace.key(bytes), ticket);
        }
        self.session.details.rare().blocked = Some(client);
        Ok(())
    }

    /// Makes the client wait for the end of an operation that takes the time of the command. The
    /// caller then returns without a reply.
    pub(super) fn await_end(&mut self, wait: Wait, args: Args<'_>) {
        self.is_blocked = true;
        self.session.wait = Some(wait);
        let pending = Pending { args: args.to_owned(), began: self.now.mono };
        self.session.details.rare().pending = Some(pending);
    }

    /// Makes the client wait for a value of one of the keys. A command that may not wait replies with
    /// a null array.
    pub(super) fn block_or_reply_null(
        &mut self,
        args: Args<'_>,
        keys: std::ops::Range<usize>,
        kind: Kind,
        until: MonoNs,
    ) -> Done {
        if !self.may_block() {
            self.reply.null_array();
            return Ok(());
        }
        self.block(Blocking { args, keys, kind, ends_without_key: false, until, retry_at: NEVER })
    }

    /// Accounts for a request that waits, and for its keys.
    pub(super) fn charge_wait(&mut self, args: Args<'_>, keys: &[Box<[u8]>]) -> Done {
        let key_bytes: usize = keys.iter().map(|key| 2 * key.len() + KEY_OVERHEAD_BYTES).sum();
        let bytes = args.bytes_max() + key_bytes + CLIENT_OVERHEAD_BYTES;
        let accounts = self.reactor.accounts.resp();
        accounts
            .queue(&mut self.session.charges, bytes as u64)
            .map_err(|reached| Fail::owned(format!("OOM {reached}")))
    }

    pub(super) fn blocked_connection(&self) -> BlockedConnection {
        let details = &self.session.details;
        BlockedConnection {
            id: self.session.id,
            reactor: self.reactor.index,
            remote: details.remote,
            local: details.local,
            name: details.name.clone(),
            db: self.db,
            protocol: self.session.protocol,
            durability: self.session.durability,
            identity: self.session.identity.clone(),
            no_touch: self.session.no_touch,
            tracks_reads: details.tracking().is_some_and(records_reads),
        }
    }

    /// Whether this is a command that waits, and an older client is about to be served from the key.
    /// The command then waits for its turn, it, although the key has elements.
    pub(super) fn is_reserved(&self, key: Key<'_>, kind: Kind) -> bool {
        if !self.command.flags.has(Flags::BLOCKING) || !self.may_block() || self.session.is_rerun()
        {
            return false;
        }
        self.locked.tickets(self.db, key).filter(|ticket| ticket.kind == kind).any(|ticket| {
            self.shared.blocked.get(ticket.number).is_some_and(|client| client.is_waiting())
        })
    }
}

impl Session {
    /// Ends the wait for keys, if there is one, and counts its request, which is not run again.
    /// False while the request is running again or its reply is on the way.
    pub(crate) fn stop_waiting(
        &mut self,
        shared: &ServerState,
        reactor: &mut ReactorState,
        now: Now,
    ) -> bool {
        let Some(client) = self.details.blocked().cloned() else { return true };
        if !client.cancel() {
            return false;
        }
        // As in Redis, its time does not include the wait.
        // Source: Redis 7.2 `blocked.c`, `updateStatsOnUnblock`
        let ns = self.details.rare().attempt_ns;
        self.count_waited(shared, reactor, now, client.request.args.as_args(), ns);
        self.leave_keys(shared, reactor);
        true
    }

    /// Counts a request whose operation has ended, successfully or not.
    pub(crate) fn count_pending(
        &mut self,
        shared: &ServerState,
        reactor: &mut ReactorState,
        now: Now,
    ) {
        let pending = self.details.rare_if_set().and_then(|rare| rare.pending.take());
        if let Some(Pending { args, began }) = pending {
            self.count_waited(shared, reactor, now, args.as_args(), now.mono.since(began));
        }
    }

    /// Counts and logs the last request, whose wait has ended.
    fn count_waited(
        &self,
        shared: &ServerState,
        reactor: &mut ReactorState,
        now: Now,
        args: Args<'_>,
        ns: u64,
    ) {
        reactor.tally.executed(self.last_command, ns);
        reactor.tally.totals.commands += 1;
        let request_bytes = args.wire_bytes_max() as u64;
        let taken = Taken { ns, request_bytes, reply_bytes: 0 };
        if reactor.is_noted(taken) {
            let command = REGISTRY.entry(self.last_command).command;
            note(shared, reactor, now, &self.details, (command, args), taken);
        }
    }

    /// Removes the client from the keys that it waited for. One lookup per key.
    pub(crate) fn leave_keys(&mut self, shared: &ServerState, reactor: &mut ReactorState) {
        let taken = self.details.rare_if_set().and_then(|rare| rare.blocked.take());
        let Some(client) = taken else { return };
        client.cancel();
        shared.blocked.remove(client.ticket);
        for bytes in &client.request.keys {
            let ticket = Leftover::Ticket { db: client.connection.db, number: client.ticket };
            reactor.leftovers.leave(&shared.keyspace, bytes, ticket);
        }
        reactor.accounts.resp().unqueue(&mut self.charges);
    }

    /// A session in which a request of a blocked client is run again.
    fn for_rerun(connection: &BlockedConnection, now: MonoNs) -> Session {
        let BlockedConnection { id, remote, local, durability, identity, .. } = connection;
        let peer = Peer { remote: remote.internet(), local: *local, listener: 0 };
        let mut session = Session::new(*id, &peer, now, identity.clone(), *durability);
        session.details.remote = *remote;
        session.db = connection.db;
        session.protocol = connection.protocol;
        session.no_touch = connection.no_touch;
        session.details.rare().reactor = Some(connection.reactor);
        if connection.tracks_reads {
            session.tracks = true;
            session.details.rare().tracking = Some(Tracking::default());
        }
        session.details.name.clone_from(&connection.name);
        session.source_of_requests = Requests::Rerun;
        session
    }
}

/// How far the clients of a key were served.
enum Served {
    /// No client is left that the key can serve now.
    All,
    /// The client with this ticket is next, in a later turn.
    UpTo(u64),
    /// The client with this ticket is next, once another reactor has released the data.
    Contended(u64),
}

impl ReactorContext<'_> {
    /// Runs the requests of clients that are blocked on changed keys, the oldest first. The caller
    /// holds no stripe.
    #[inline]
    pub(crate) fn serve_blocked(&mut self) {
        if !self.record.changed.ready.is_empty() {
            self.serve_ready();
        }
    }

    #[cold]
    fn serve_ready(&mut self) {
        let mut left = RERUNS_MAX;
        let mut later = Vec::new();
        while let Some(mut key) = self.record.changed.ready.pop_front() {
            match self.serve_clients(&key, &mut left) {
                Served::All => {}
                Served::UpTo(ticket) => {
                    key.first_ticket = ticket;
                    later.push(key);
                }
                Served::Contended(ticket) => {
                    key.first_ticket = ticket;
                    self.reactor.add_contended_key(key);
                }
            }
        }
        self.record.changed.ready.extend(later);
    }

    fn serve_clients(&mut self, ready: &ReadyKey, left: &mut usize) -> Served {
        let mut first = ready.first_ticket;
        loop {
            let ticket = match self.next_ticket(ready, first) {
                Ok(Some(ticket)) => ticket,
                Ok(None) => return Served::All,
                Err(Contended) => return Served::Contended(first),
            };
            first = ticket + 1;
            let Some(client) = self.shared.blocked.get(ticket) else { continue };
            if *left == 0 {
                return Served::UpTo(ticket);
            }
            match client.claim() {
                Claim::Granted => {
                    *left -= 1;
                    let retry_at = client.retry_at();
                    if self.run_again(client, retry_at).is_err() {
                        return Served::Contended(ticket);
                    }
                }
                Claim::Running => return Served::UpTo(ticket),
                Claim::Ended => {}
            }
        }
    }

    /// The next client that waits for the key, from a ticket on. An error: another reactor holds it.
    fn next_ticket(&self, ready: &ReadyKey, first: u64) -> Result<Option<u64>, Contended> {
        let gives_up = self.reactor.patience(&self.shared.running_scripts);
        let locked = self.shared.keyspace.lock_one_unless(ready.hash, self.params, gives_up);
        Ok(locked.ok_or(Contended)?.next_ticket(ready.db, ready.key(), first))
    }

    /// Runs the request of a client again at the time that it has set. Returns when it is to
    /// be run the next time.
    pub(crate) fn retry(&mut self, client: &Arc<BlockedClient>) -> MonoNs {
        if client.claim() == Claim::Granted {
            let now = self.now.mono.0 + self.reactor.lock_waits_ns();
            let retry_at = MonoNs(now + RETRY_NS);
            if let Err(Contended) = self.run_again(Arc::clone(client), retry_at) {
                return retry_at;
            }
        }
        client.retry_at()
    }

    /// Runs the request of a claimed client again, and hands over its reply if it has one. An
    /// error: another reactor holds the keys, and the client waits on, until `retry_at` at most.
    pub(super) fn run_again(
        &mut self,
        client: Arc<BlockedClient>,
        retry_at: MonoNs,
    ) -> Result<(), Contended> {
        let (connection, request) = (&client.connection, &client.request);
        let entry = REGISTRY.entry(request.id);
        let args = request.args.as_args();
        let mut session = Session::for_rerun(connection, self.now.mono);
        session.last_command = request.id;
        let mut bytes = Vec::new();
        let mut reply = ReplyWriter::new(&mut bytes, connection.protocol).within(self.replies);
        let mut gate = match self.admit_rerun(&mut session, entry.command.flags, args) {
            Ok(()) => {
                let ran = self.run(&mut session, entry, None, args, reply.reborrow());
                ran.inspect_err(|_| client.wait_on(retry_at))?
            }
            Err(fail) => {
                self.count_rejected(&session, Some(request.id), args, &fail);
                reply.error_bytes(&fail.bytes());
                Gate::OPEN
            }
        };
        if let Some(Wait::Until { at, .. }) = session.wait {
            client.wait_on(at);
            return Ok(());
        }
        if self.is_lost(gate) {
            bytes.clear();
            ReplyWriter::new(&mut bytes, connection.protocol).error(LOG_FAILED);
            gate = Gate::OPEN;
        }
        let written = Some(session.last_write).filter(|written| *written != Gate::OPEN);
        let reactor = connection.reactor;
        let charge = UnsentReply::new(&self.shared.memory, bytes.len());
        self.shared.blocked.reply(client, BlockedReply { bytes, gate, written, charge });
        self.replies.map(ReplyRoom::release);
        // This reactor sends its replies at the end of its turn anyway.
        if reactor != self.reactor.index || self.reactor.is_off_reactor {
            self.shared.links().wake(reactor);
        }
        Ok(())
    }

    /// Checks that may fail although the request was admitted when it arrived.
    fn admit_rerun(&mut self, session: &mut Session, flags: Flags, args: Args<'_>) -> Done {
        if !session.identity.is_free_at(self.shared.acl.generation()) {
            self.check_access(session, session.last_command, args)?;
        }
        let replication = &self.shared.replication;
        if replication.role() == Role::Copying && !flags.has(Flags::LOADING) {
            return Err(Fail::text(replication.incomplete()));
        }
        if flags.has(Flags::DENYOOM) {
            let made = self.make_room(args.bytes_max());
            made.map_err(|no_room| Fail::owned(format!("OOM {no_room}")))?;
        }
        if !flags.has(Flags::WRITE) {
            return Ok(());
        }
        let checked = self.reactor.check_writes(self.shared, session.durability);
        checked.map_err(Fail::text)
    }
}
