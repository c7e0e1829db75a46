//! Command execution: from a decoded request to its reply, its log record, and its gate.
#![expect(
    clippy::inline_always,
    reason = "calls copy the context: a GET in a pipeline of 64 then costs 9 % more"
)]

use std::cell::Cell;

use base::time::Now;
use smallvec::SmallVec;
use store::{Key, Locked, PARTITIONS_DB};
use wire::resp::{Args, OwnedArgs, ReplyMark, ReplyWriter};

use super::client::{end_caching, stops};
use super::command::{Command, Flags};
use super::context::{CommandContext, QUEUED_COST, QUEUED_COST_WITH_EVENTS, check_elements};
use super::fail::{Fail, shown};
use super::registry::{Entry, REGISTRY};
use super::session::{Details, QUEUED_COMMANDS_MAX, ReplyMode, Session, Wait};
use super::{acl, audit};
use super::{pubsub, replication, scripting, transactions};
use crate::config::KeyEvents;
use crate::engine::command_log::Taken;
use crate::engine::commit::Unit;
use crate::engine::context::ReactorContext;
use crate::engine::expire::{expire_key, expire_some_fields, has_room_for, may_expire_at_reads};
use crate::engine::functions::stored_hash;
use crate::engine::gate::Gate;
use crate::engine::hot_keys::Space;
use crate::engine::key_usage::Sums;
use crate::engine::latency::LatencyEvent;
use crate::engine::monitor_feeds::RequestSource;
use crate::engine::reactor_state::{ReactorState, is_gated};
use crate::engine::refusal::{LOG_FAILED, STALE};
use crate::engine::replication::Role;
use crate::engine::reply_reservation::UnsentReply;
use crate::engine::requests::RequestId;
use crate::engine::running_scripts::FEW_KEYS;
use crate::engine::server_state::ServerState;

/// The command and key hash of a request, determined before it runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepared {
    pub(crate) entry: Option<&'static Entry>,
    /// Hash of the key if the command has exactly one.
    pub(crate) hash: Option<u64>,
}

impl Prepared {
    pub(crate) fn id(&self) -> Option<RequestId> {
        self.entry.map(|entry| entry.id)
    }
}

/// Why a request was not run, not even in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deferred {
    /// CLIENT PAUSE is in effect.
    Paused,
    /// It may write, and the log has no room.
    Room,
    /// Another reactor holds its data.
    Contended,
}

/// The request was not run, because another reactor holds its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contended;

/// Commands that clients in MONITOR mode do not see, or that they see from the command itself.
const UNMONITORED: Flags = Flags::ADMIN.and(Flags::SKIP_MONITOR);

/// Number of arguments up to which the limit of elements is not checked.
pub(super) const ARGUMENTS_FREE: usize = 1024;

/// Records a command in the logs of slow and large commands, and as a latency event, if it reached
/// their thresholds.
pub(super) fn note(
    shared: &ServerState,
    reactor: &ReactorState,
    now: Now,
    details: &Details,
    (command, args): (&Command, Args<'_>),
    taken: Taken,
) {
    if reactor.thresholds.are_reached(taken) && !command.flags.has(Flags::SKIP_SLOWLOG) {
        let taken = Taken { request_bytes: args.wire_bytes() as u64, ..taken };
        let client = (details.remote, &*details.name);
        shared.note_command(client, now, taken, command.shown(args));
    }
    if reactor.is_latency_event(taken.ns) {
        let fast = command.flags.has(Flags::FAST);
        let event = if fast { LatencyEvent::FastCommand } else { LatencyEvent::Command };
        shared.latency.lock().note(event, now.unix, taken.ns / 1_000_000);
    }
}

/// Finds the command of a request, and the hash of its key if it has exactly one.
#[inline]
pub(crate) fn prepare(shared: &ServerState, args: Args<'_>) -> Prepared {
    let Some(id) = REGISTRY.find(args.get(0)) else { return Prepared { entry: None, hash: None } };
    let mut entry = REGISTRY.entry(id);
    if entry.command.flags.has(Flags::CONTAINER)
        && let Some(child) = args.try_get(1).and_then(|name| REGISTRY.find_child(entry.id, name))
    {
        entry = REGISTRY.entry(child);
    }
    let key = entry.command.single_key().and_then(|at| args.try_get(at));
    Prepared { entry: Some(entry), hash: key.map(|key| shared.keyspace.hash(key)) }
}

/// Whether a request is a line of an HTTP request that a browser sends to this port on behalf of a
/// web page (cross-protocol scripting). The request body, which may contain commands, must not run.
// Source: Redis 7.2 `server.c`, `processCommand`
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Whether a request names a subcommand that does not exist. COMMAND is also a command without a
/// subcommand.
#[inline]
pub(super) fn names_no_child(command: &Command, args: Args<'_>) -> bool {
    command.flags.has(Flags::CONTAINER) && args.len() > 1
}

/// Returns the error for a command or subcommand that does not exist.
// Source: Redis 7.2 `server.c`, `commandCheckExistence`
fn unknown(id: Option<RequestId>, args: Args<'_>) -> Fail {
    const SHOWN_BYTES_MAX: usize = 128;
    let cut = |bytes| {
        let shown = shown(bytes);
        &shown[..shown.len().min(SHOWN_BYTES_MAX)]
    };
    if let Some(id) = id {
        let name = REGISTRY.entry(id).full_name.to_ascii_uppercase();
        let sub = cut(args.try_get(1).unwrap_or_default());
        return Fail::quoting("ERR unknown subcommand '", sub, &format!("'. Try {name} HELP."));
    }
    let name = cut(args.get(0));
    let mut text = [b"ERR unknown command '", name, b"', with args beginning with: "].concat();
    let mut room = SHOWN_BYTES_MAX;
    for arg in args.iter().skip(1) {
        if room == 0 {
            break;
        }
        let arg = &shown(arg)[..shown(arg).len().min(room)];
        text.extend_from_slice(&[b"'", arg, b"' "].concat());
        room = room.saturating_sub(arg.len() + 3);
    }
    Fail::Quoting(text)
}

impl<'a> ReactorContext<'a> {
    /// Runs one request and appends its reply. Returns the log position that must be durable before
    /// the reply is sent. A request that CLIENT PAUSE defers, or whose keys another reactor holds, is
    /// not run; the session then waits.
    #[inline]
    pub(crate) fn request(
        &mut self,
        session: &mut Session,
        prepared: Prepared,
        args: Args<'_>,
        mut reply: ReplyWriter<'_>,
    ) -> Gate {
        let mark = reply.mark();
        let is_answered = session.reply_mode == ReplyMode::On && session.transaction.is_some();
        self.begin(session);
        let gate = match self.admit(session, prepared, args) {
            Ok(Admitted::Run(entry)) => {
                match self.run(session, entry, prepared.hash, args, reply.reborrow()) {
                    Ok(gate) => gate,
                    Err(Contended) => return self.defer(session, prepared, args, reply),
                }
            }
            Ok(Admitted::Queued) => {
                reply.simple("QUEUED");
                Gate::OPEN
            }
            Ok(Admitted::Later) => {
                session.wait = Some(match self.reason_of_pause() {
                    Deferred::Room => Wait::Room,
                    _ => Wait::Pause,
                });
                session.commands -= 1; // it will be served again
                #[cfg(test)]
                self.reactor.times.pop();
                return Gate::OPEN;
            }
            Err(fail) => {
                self.reject(session, prepared.id(), args, &fail, reply.reborrow());
                Gate::OPEN
            }
        };
        if self.record.has_news() {
            let tracking = session.details.tracking();
            let except = tracking.filter(|tracking| tracking.no_loop).map(|_| session.id);
            // Replies to other clients are made while this one is not charged yet.
            let _charge = UnsentReply::new(&self.shared.memory, reply.bytes());
            self.serve_blocked();
            self.send_invalidations(except);
        }
        if session.tracks {
            end_caching(session);
        }
        session.last_gate = session.last_gate.max(gate);
        if session.reply_mode != ReplyMode::On {
            session.reply_mode = match session.reply_mode {
                ReplyMode::Off => ReplyMode::Off,
                ReplyMode::SkipNext => ReplyMode::Skip,
                ReplyMode::Skip if session.awaits_reply() => ReplyMode::Skip,
                ReplyMode::Skip | ReplyMode::On => ReplyMode::On,
            };
            if !is_answered && !pubsub::is_message(prepared.id(), reply.since(mark)) {
                reply.rewind(mark);
            }
        }
        gate
    }

    /// Makes a request wait for its keys, which another reactor holds, or refuses it if a script has
    /// been running for too long.
    #[cold]
    fn defer(
        &mut self,
        session: &mut Session,
        prepared: Prepared,
        args: Args<'_>,
        reply: ReplyWriter<'_>,
    ) -> Gate {
        if self.shared.running_scripts.is_busy(self.reactor.settings.busy_reply_threshold_ms) {
            let fail = Fail::text(self.shared.running_scripts.busy_error());
            self.reject(session, prepared.id(), args, &fail, reply);
        } else {
            session.wait = Some(Wait::Keys);
            session.commands -= 1; // it will be served again
        }
        Gate::OPEN
    }

    /// Why a [pause](ReactorState::pause) in effect stops a request.
    #[cold]
    pub(crate) fn reason_of_pause(&self) -> Deferred {
        let is_paused = self.shared.pause.at(self.now.mono).is_some();
        if is_paused { Deferred::Paused } else { Deferred::Room }
    }

    fn begin(&mut self, session: &mut Session) {
        self.now = self.reactor.time(self.params);
        #[cfg(test)]
        self.reactor.times.push(self.now.unix);
        session.commands += 1;
    }

    /// Runs `body` in place of a command's function, with the admission, locks, log record and
    /// counters of the command that `args` names. Returns the result, and the log position that
    /// must be durable before the result is sent.
    pub(crate) fn run_as<T>(
        &mut self,
        session: &mut Session,
        args: Args<'_>,
        reply: ReplyWriter<'_>,
        body: impl FnOnce(&mut CommandContext<'_>, Args<'_>) -> Result<T, Fail>,
    ) -> Result<(Result<T, Fail>, Gate), Deferred> {
        debug_assert!(session.transaction.is_none(), "its commands are run by EXEC");
        let prepared = prepare(self.shared, args);
        self.begin(session);
        let entry = match self.admit(session, prepared, args) {
            Ok(Admitted::Run(entry)) => entry,
            Ok(Admitted::Queued) => unreachable!("there is no transaction"),
            Ok(Admitted::Later) => return Err(self.reason_of_pause()),
            Err(fail) => {
                self.count_rejected(session, prepared.id(), args, &fail);
                return Ok((Err(fail), Gate::OPEN));
            }
        };
        let ran = self.run_with(session, entry, prepared.hash, args, reply, |cx, keys| {
            cx.call_with(entry, args, Some(keys), body)
        });
        let (result, gate) = ran.map_err(|Contended| Deferred::Contended)?;
        if self.is_lost(gate) {
            self.reactor.tally.error(None, LOG_FAILED);
            return Ok((Err(Fail::text(LOG_FAILED)), Gate::OPEN));
        }
        session.last_gate = session.last_gate.max(gate);
        Ok((result, gate))
    }

    /// Runs commands as a transaction, and appends the reply of EXEC. If a command is rejected,
    /// none runs, and the reply is its error.
    pub(crate) fn transaction(
        &mut self,
        session: &mut Session,
        commands: &[OwnedArgs],
        mut reply: ReplyWriter<'_>,
    ) -> Gate {
        session.transaction = Some(Box::default());
        for args in commands {
            let args = args.as_args();
            let mark = reply.mark();
            let prepared = prepare(self.shared, args);
            self.request(session, prepared, args, reply.reborrow());
            if session.wait.is_some() || session.transaction.as_ref().is_none_or(|it| it.aborted) {
                transactions::discard_queue(self.reactor, session);
                return Gate::OPEN;
            }
            reply.rewind(mark);
        }
        let mut exec = OwnedArgs::new();
        exec.push(transactions::EXEC.name.as_bytes());
        let prepared = prepare(self.shared, exec.as_args());
        let gate = self.request(session, prepared, exec.as_args(), reply);
        if session.wait.is_some() {
            transactions::discard_queue(self.reactor, session);
        }
        gate
    }

    fn reject(
        &mut self,
        session: &mut Session,
        id: Option<RequestId>,
        args: Args<'_>,
        fail: &Fail,
        mut reply: ReplyWriter<'_>,
    ) {
        if id.is_none() && !session.is_lent() && is_http(args.get(0)) {
            self.shared.warn_of_http(self.now.mono);
            session.closing = true;
            return;
        }
        if id.is_some_and(|id| transactions::is_exec(REGISTRY.entry(id).command)) {
            let text = transactions::abort(self.shared, self.reactor, session, &fail.bytes());
            self.count_rejected(session, id, args, &Fail::Quoting(text.clone()));
            return reply.error_bytes(&text);
        }
        self.count_rejected(session, id, args, fail);
        if let Some(transaction) = &mut session.transaction {
            transaction.aborted = true;
        }
        reply.error_bytes(&fail.bytes());
    }

    pub(super) fn count_rejected(
        &mut self,
        session: &Session,
        id: Option<RequestId>,
        args: Args<'_>,
        fail: &Fail,
    ) {
        // An unknown subcommand has no counters of its own.
        if let Some(id) = id.filter(|id| !names_no_child(REGISTRY.entry(*id).command, args)) {
            self.reactor.tally.rejected(id);
            if REGISTRY.entry(id).is_audited && self.reactor.settings.audit_log {
                audit::log(&self.reactor.settings, session, id, args, Some(fail));
            }
        }
        self.reactor.tally.error(None, &String::from_utf8_lossy(&fail.bytes()));
    }

    /// Checks whether a command may run, in the order of Redis.
    #[inline(always)]
    fn admit(
        &mut self,
        session: &mut Session,
        prepared: Prepared,
        args: Args<'_>,
    ) -> Result<Admitted, Fail> {
        let Some(entry) = prepared.entry else { return Err(unknown(None, args)) };
        let Entry { id, command, .. } = *entry;
        if !command.arity_fits(args.len()) {
            return Err(Fail::arity(&entry.full_name));
        }
        if names_no_child(command, args) {
            return Err(unknown(Some(id), args));
        }
        if args.len() > ARGUMENTS_FREE {
            let elements_max = self.reactor.settings.elements_max();
            check_elements(args.len().saturating_mul(self.argument_cost(command)), elements_max)?;
        }
        session.last_command = id;
        if !session.identity.is_free_at(self.shared.acl.generation()) {
            self.check_access(session, id, args)?;
        }
        if self.reactor.is_spare && !entry.is_administrative {
            self.check_spare(session)?;
        }
        if self.reactor.refuses_old {
            self.check_age(session, entry)?;
        }
        if self.shared.replication.role() != Role::Master {
            self.check_data(command)?;
        }
        if session.is_replica() && !replication::is_of_replicas(command) {
            session.closing = true; // a reply would damage the stream
            return Err(Fail::text("ERR a replica sends only REPLCONF"));
        }
        if pubsub::only_listens(session) {
            pubsub::check_listener(command, &entry.full_name)?;
        }
        let (shared, now) = (self.shared, self.now.mono);
        let may_write =
            |command: &Command, args: Args<'_>| scripting::may_write(shared, command, args);
        let pause = self.reactor.pause(&shared.pause, now);
        if stops(pause, session, (command, args), may_write) {
            return Ok(Admitted::Later);
        }
        if command.flags.has(Flags::WRITE) || transactions::writes(session, command) {
            let checked = self.reactor.check_writes(self.shared, session.durability);
            checked.map_err(Fail::text)?;
        }
        if command.flags.has(Flags::DENYOOM) || transactions::needs_room(session, command) {
            let made = self.make_room(args.bytes_max());
            made.map_err(|no_room| Fail::owned(format!("OOM {no_room}")))?;
        }
        if command.flags.has(Flags::RUNS_SCRIPT) {
            // The script itself is refused, or its first write: see `scripting`.
            self.reactor.has_no_room = self.make_room(args.bytes_max()).is_err();
        }
        if session.transaction.is_some() {
            return self.queue(session, entry, args);
        }
        Ok(Admitted::Run(entry))
    }

    /// Refuses requests for data that is incomplete or, with `replica-serve-stale-data no`, stale.
    fn check_data(&self, command: &Command) -> Result<(), Fail> {
        let replication = &self.shared.replication;
        if replication.role() == Role::Copying && !command.flags.has(Flags::LOADING) {
            return Err(Fail::text(replication.incomplete()));
        }
        // Of a script it is not known what it reads.
        let may_be_stale =
            command.flags.has(Flags::STALE) && !command.flags.has(Flags::RUNS_SCRIPT);
        if !may_be_stale && replication.is_stale(&self.reactor.settings) {
            return Err(Fail::text(STALE));
        }
        Ok(())
    }

    fn publishes_key_events(&self) -> bool {
        self.reactor.settings.notify_keyspace_events.is_on()
    }

    fn argument_cost(&self, command: &Command) -> usize {
        command.argument_cost(self.publishes_key_events())
    }

    fn queue(
        &mut self,
        session: &mut Session,
        entry: &'static Entry,
        args: Args<'_>,
    ) -> Result<Admitted, Fail> {
        let command = entry.command;
        if command.flags.has(Flags::UNQUEUED) {
            return Ok(Admitted::Run(entry));
        }
        if command.flags.has(Flags::NO_MULTI) {
            return Err(Fail::text("ERR Command not allowed inside a transaction"));
        }
        let argument_cost = self.argument_cost(command);
        let may_publish = command.flags.has(Flags::WRITE) && self.publishes_key_events();
        let queued_cost = if may_publish { QUEUED_COST_WITH_EVENTS } else { QUEUED_COST };
        let transaction = session.transaction.as_mut().expect("checked by the caller");
        let bytes: usize = args.iter().map(<[u8]>::len).sum();
        let limit = self.reactor.settings.client_query_buffer_limit_bytes;
        let work = transaction.queued_work + queued_cost + args.len() * argument_cost;
        let work_max = self.reactor.settings.elements_max();
        let too_many = transaction.queued.len() >= QUEUED_COMMANDS_MAX
            || check_elements(work, work_max).is_err();
        if too_many || (transaction.queued_bytes + bytes) as u64 > limit {
            return Err(Fail::text("ERR transaction is too large"));
        }
        self.reactor
            .accounts
            .resp()
            .queue(&mut session.charges, bytes as u64)
            .map_err(|reached| Fail::owned(format!("OOM {reached}")))?;
        transaction.queued_bytes += bytes;
        transaction.queued_work = work;
        if !transaction.aborted {
            transaction.queued.push((entry.id, args.to_owned()));
        }
        Ok(Admitted::Queued)
    }

    /// Replaces a reply whose gate never opens with an error, because its writes may be lost in a
    /// restart. Later messages of the connection wait for `gate_before` only, because the error has
    /// reported the loss.
    #[cold]
    pub(crate) fn reply_lost(
        &mut self,
        session: &mut Session,
        gate_before: Gate,
        start: ReplyMark,
        reply: &mut ReplyWriter<'_>,
    ) {
        session.last_gate = gate_before;
        if let Some(rare) = session.details.rare_if_set() {
            rare.delayed_reply = None;
        }
        reply.rewind(start);
        self.reactor.tally.error(None, LOG_FAILED);
        if session.reply_mode == ReplyMode::On {
            reply.error(LOG_FAILED);
        }
    }

    /// Runs an admitted request. Returns the same gate as [`ReactorContext::request`]. A request
    /// whose keys another reactor holds is not run.
    #[inline]
    pub(crate) fn run(
        &mut self,
        session: &mut Session,
        entry: &'static Entry,
        hash: Option<u64>,
        args: Args<'_>,
        reply: ReplyWriter<'_>,
    ) -> Result<Gate, Contended> {
        let call = |cx: &mut CommandContext<'_>, keys: &Keys| cx.call(entry, args, keys);
        let ran = self.run_with(session, entry, hash, args, reply, call);
        ran.map(|((), gate)| gate)
    }

    #[inline]
    fn run_with<T>(
        &mut self,
        session: &mut Session,
        entry: &'static Entry,
        hash: Option<u64>,
        args: Args<'_>,
        reply: ReplyWriter<'_>,
        call: impl FnOnce(&mut CommandContext<'_>, &Keys) -> T,
    ) -> Result<(T, Gate), Contended> {
        let command = entry.command;
        self.shared.activities.begin(self.reactor.index, entry.id);
        if command.flags.has(Flags::SEES_STATS) {
            let now = self.now.mono;
            self.reactor.publish(self.shared, session.id, |row| session.update_row(row, now));
        }
        let mut keys = Keys::new();
        let locked = self.lock(session, command, hash, args, &mut keys).ok_or(Contended)?;
        let mut cx = CommandContext {
            command,
            db: session.db,
            locked: Unit::of_client(self.shared, self.reactor, self.record, locked),
            reply,
            now: self.now,
            shared: self.shared,
            session: &mut *session,
            reactor: self.reactor,
            gate: Gate::OPEN,
            in_exec: false,
            elements: Cell::new(0),
            slept_ns: 0,
            is_blocked: false,
        };
        let result = call(&mut cx, &keys);
        if !cx.reactor.is_contended {
            cx.feed_monitors(command, args);
        }
        let gate = cx.commit(command, &keys);
        if std::mem::take(&mut cx.reactor.is_contended) {
            return Err(Contended);
        }
        Ok((result, gate))
    }

    /// Locks the stripes of the command's keys, and lists the keys. `None` if another reactor holds
    /// one of them.
    #[inline(always)]
    fn lock(
        &self,
        session: &Session,
        command: &Command,
        hash: Option<u64>,
        args: Args<'_>,
        keys: &mut Keys,
    ) -> Option<Locked<'a>> {
        let keyspace = &self.shared.keyspace;
        let scripts = &self.shared.running_scripts;
        if let Some(hash) = hash {
            keys.push((session.db, hash));
            return keyspace.lock_one_unless(hash, self.params, self.reactor.patience(scripts));
        }
        if command.flags.has(Flags::ALL_KEYS) {
            return keyspace.lock_all_unless(self.params, scripts.until_slow());
        }
        if transactions::is_exec(command) {
            return self.lock_transaction(session, keys);
        }
        if command.flags.has(Flags::LIBRARIES) {
            let patience = self.reactor.patience(scripts);
            keys.push((PARTITIONS_DB, stored_hash()));
            return keyspace.lock_one_unless(stored_hash(), self.params, patience);
        }
        // If the keys cannot be determined, lock nothing: the command itself reports the error.
        let db = session.db;
        let listed = command.key_positions(args, |at, _| {
            keys.push((db, keyspace.hash(args.get(at))));
        });
        if listed.is_err() {
            keys.clear();
        }
        if command.reads_other_keys(args) {
            return keyspace.lock_all_unless(self.params, scripts.until_slow());
        }
        self.lock_listed(keys)
    }

    fn lock_transaction(&self, session: &Session, keys: &mut Keys) -> Option<Locked<'a>> {
        let keyspace = &self.shared.keyspace;
        if transactions::list_keys(session, |key| keyspace.hash(key), keys) {
            let give_up = self.shared.running_scripts.until_slow();
            return keyspace.lock_all_unless(self.params, give_up);
        }
        self.lock_listed(keys)
    }

    fn lock_listed(&self, keys: &Keys) -> Option<Locked<'a>> {
        let (keyspace, scripts) = (&self.shared.keyspace, &self.shared.running_scripts);
        let hashes = keys.iter().map(|(_, hash)| *hash);
        if keys.len() > FEW_KEYS {
            keyspace.lock_unless(hashes, self.params, scripts.until_slow())
        } else {
            keyspace.lock_unless(hashes, self.params, self.reactor.patience(scripts))
        }
    }
}

/// Database and hash of each key of a command.
pub(crate) type Keys = SmallVec<[(u8, u64); 2]>;

impl CommandContext<'_> {
    /// Runs the only command of a request and appends its reply.
    #[inline(always)]
    fn call(&mut self, entry: &'static Entry, args: Args<'_>, keys: &Keys) {
        let mark = self.reply.mark();
        let run = |cx: &mut CommandContext<'_>, args: Args<'_>| match (entry.command.run)(cx, args)
        {
            Err(Fail::TooManyElements) => {
                cx.reply.rewind(mark);
                cx.hand_over(entry, args)
            }
            done => done,
        };
        if let Err(fail) = self.call_with(entry, args, Some(keys), run) {
            self.reply.rewind(mark);
            self.reply.error_bytes(&fail.bytes());
        }
    }

    /// Runs one command of a transaction and appends its reply, unless its user may no longer run
    /// it.
    pub(super) fn call_queued(&mut self, id: RequestId, args: Args<'_>) {
        let entry = REGISTRY.entry(id);
        if let Err(fail) = acl::recheck(self, id, args) {
            self.reactor.tally.error(Some(id), &fail.to_string());
            if entry.is_audited && self.reactor.settings.audit_log {
                audit::log(&self.reactor.settings, self.session, id, args, Some(&fail));
            }
            return self.reply.error_bytes(&fail.bytes());
        }
        self.shared.activities.begin(self.reactor.index, id);
        let mark = self.reply.mark();
        match self.call_with(entry, args, None, entry.command.run) {
            // The transaction has turned replies off: discard the replies from here on.
            _ if self.session.reply_mode == ReplyMode::Off => self.reply.rewind(mark),
            Ok(()) => {}
            Err(fail) => {
                self.reply.rewind(mark);
                self.reply.error_bytes(&fail.bytes());
            }
        }
    }

    /// Runs `body` as a command: the only one of a request, or one of a transaction or script.
    /// `keys`: the command's keys, if they are known.
    #[inline(always)]
    pub(super) fn call_with<T>(
        &mut self,
        entry: &'static Entry,
        args: Args<'_>,
        keys: Option<&Keys>,
        body: impl FnOnce(&mut CommandContext<'_>, Args<'_>) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let clock_start = self.reactor.stamp;
        let reply_start = self.reply.bytes();
        let Entry { id, command, .. } = *entry;
        self.command = command;
        let is_held = self.session.no_touch && !command.flags.has(Flags::TOUCHES);
        self.locked.params().access.hold(is_held);
        // The check of the reply size includes earlier replies of the transaction. If it fails, the
        // changes of the command remain.
        let result = self.run_command(command, args, keys, body);
        if let Err(fail) = &result {
            self.reactor.tally.error(Some(id), &fail.to_string());
        }
        let lookups = self.locked.take_lookups();
        if command.flags.has(Flags::READONLY) {
            // The keys that were not found may have expired.
            if lookups.misses > 0 {
                self.delete_overdue(command, args, keys);
            }
            // A script tracks what its commands read.
            if self.session.tracks && !command.flags.has(Flags::RUNS_SCRIPT) {
                self.track_keys(command, args);
            }
            self.reactor.tally.totals.hits += u64::from(lookups.hits);
            self.reactor.tally.totals.misses += u64::from(lookups.misses);
        }
        // A write that found its key may have deleted it before a later lookup.
        if lookups.misses > 0
            && self.reactor.settings.notify_keyspace_events.has(KeyEvents::MISS)
            && (command.flags.has(Flags::READONLY) || lookups.hits == 0)
        {
            self.publish_misses(command, args);
            self.locked.take_lookups(); // discard the lookups of `publish_misses`
        }
        let stamp = self.reactor.clock.now();
        let ran_ns = self.reactor.clock.delta_ns(clock_start, stamp);
        let ns = ran_ns.saturating_add(std::mem::take(&mut self.slept_ns));
        self.reactor.stamp = stamp;
        // A command that waits for keys is counted when its wait ends, and one that waits for data
        // when it has run.
        if std::mem::take(&mut self.is_blocked) {
            self.session.details.rare().attempt_ns = ns;
            return result;
        }
        if self.reactor.is_contended {
            return result;
        }
        self.reactor.tally.executed(id, ns);
        self.reactor.tally.totals.commands += 1;
        let request_bytes = args.wire_bytes_max() as u64;
        // The bytes of the whole reply are at least those of this command's.
        let taken_max = Taken { ns, request_bytes, reply_bytes: self.reply.bytes() as u64 };
        let is_noted = self.reactor.is_noted(taken_max) || self.shared.key_usage.is_active();
        if is_noted || result.is_err() {
            let reply_bytes = match &result {
                Ok(_) => self.reply.bytes().saturating_sub(reply_start),
                Err(fail) => fail.bytes().len(),
            };
            self.note(command, args, Taken { reply_bytes: reply_bytes as u64, ..taken_max });
        }
        if self.reactor.key_sampler.is_due() {
            self.sample_key(command, args);
        }
        if entry.is_audited && self.reactor.settings.audit_log {
            let fail = result.as_ref().err();
            audit::log(&self.reactor.settings, self.session, id, args, fail);
        }
        result
    }

    /// Records a command that may be slow or large, or one while the usage of keys is measured.
    #[cold]
    fn note(&mut self, command: &Command, args: Args<'_>, taken: Taken) {
        note(self.shared, self.reactor, self.now, &self.session.details, (command, args), taken);
        if self.shared.key_usage.is_active() {
            let Taken { ns, request_bytes, reply_bytes } = taken;
            let bytes = request_bytes.saturating_add(reply_bytes);
            self.note_usage(command, args, Sums { ns, bytes });
        }
    }

    /// Samples one of the command's keys.
    #[cold]
    fn sample_key(&mut self, command: &Command, args: Args<'_>) {
        let mut places: SmallVec<[usize; 2]> = SmallVec::new();
        if command.key_positions(args, |at, _| places.push(at)).is_err() {
            places.clear(); // the keys cannot be determined
        }
        let chosen = self.reactor.key_sampler.choose(places.len());
        let mut published = self.shared.published[self.reactor.index].lock();
        match chosen.map(|nth| args.get(places[nth])) {
            None => published.hot_keys.note_keyless(),
            Some(key) => {
                let hash = self.shared.keyspace.hash(key);
                published.hot_keys.note(Space::Database(self.db), hash, key);
            }
        }
    }

    /// Sends an executed command to the clients in MONITOR mode.
    #[inline]
    pub(crate) fn feed_monitors(&mut self, command: &Command, args: Args<'_>) {
        if self.shared.is_monitored() && !command.flags.has(UNMONITORED) && !self.session.is_rerun()
        {
            self.feed_request(command, args);
        }
    }

    #[cold]
    pub(crate) fn feed_request(&mut self, command: &Command, args: Args<'_>) {
        let client = RequestSource::Client(self.session.details.remote);
        self.reactor.feed_monitors(&self.session.db, client, self.now, command.shown(args));
    }

    #[inline(always)]
    fn run_command<T>(
        &mut self,
        command: &Command,
        args: Args<'_>,
        keys: Option<&Keys>,
        body: impl FnOnce(&mut CommandContext<'_>, Args<'_>) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        if command.flags.has(Flags::WRITE) {
            self.admit_write(command, args)?;
            self.delete_overdue(command, args, keys);
        }
        let result = body(self, args)?;
        self.check_reply()?;
        Ok(result)
    }

    /// Deletes the command's expired keys: before a write, so that the log records their expiry,
    /// and after a read that did not find them. Before a write, also expired fields.
    #[inline]
    fn delete_overdue(&mut self, command: &Command, args: Args<'_>, keys: Option<&Keys>) {
        let may_expire = |(db, hash): &(u8, u64)| self.locked.may_expire(*db, *hash);
        if keys.is_none_or(|keys| keys.iter().any(may_expire)) {
            self.delete_overdue_keys(command, args);
        }
    }

    fn delete_overdue_keys(&mut self, command: &Command, args: Args<'_>) {
        let mut overdue: SmallVec<[usize; 2]> = SmallVec::new();
        let listed = command.key_positions(args, |at, _| overdue.push(at));
        if listed.is_err() {
            return; // the command itself rejects its arguments
        }
        let is_write = command.flags.has(Flags::WRITE);
        if !is_write && !may_expire_at_reads(self.shared, self.reactor, self.now.mono) {
            return;
        }
        for at in overdue {
            let key = self.key(args.get(at));
            // The size of a write's log record was admitted together with its keys.
            if is_write || has_room_for(&self.locked, key) {
                self.expire_key(self.db, key);
            }
            if is_write {
                expire_some_fields(&mut self.locked, self.shared, self.reactor, self.db, key);
            }
        }
    }

    /// Deletes a key if it has expired.
    pub(crate) fn expire_key(&mut self, db: u8, key: Key<'_>) {
        if self.locked.is_overdue(db, key) {
            expire_key(&mut self.locked, self.shared, self.reactor, db, key);
        }
    }

    /// Logs the changes, queues the deferred messages under the same locks, and unlocks. Returns
    /// the gate of the reply: the position of the changes, or of the newest write to the keys that
    /// were read.
    #[inline(always)]
    fn commit(&mut self, command: &Command, keys: &Keys) -> Gate {
        let is_gated = is_gated(self.session.durability);
        let seen = if is_gated && !self.locked.has_written() {
            self.seen(command, keys)
        } else {
            Gate::OPEN
        };
        let other = seen.max(self.gate);
        let CommandContext { locked: unit, session, reactor, shared, .. } = self;
        let shared = *shared;
        let has_written = unit.has_written();
        let publishes = reactor.pubsub.has_deferred();
        let written = unit.commit_then(reactor, |reactor, written| {
            if publishes {
                // The keys are still locked, so messages are queued in log order.
                let own = if is_gated { written.max(other) } else { other };
                reactor.queue_deferred(shared, own.max(session.last_gate));
            }
            if has_written && let Some(libraries) = reactor.new_libraries.take() {
                shared.functions.publish(libraries, written);
            }
        });
        if publishes {
            reactor.publish_some(shared);
        }
        if has_written {
            session.last_write = written;
        }
        if is_gated && has_written { written.max(other) } else { other }
    }

    /// Returns the position of the newest write to the keys of a command that changed nothing.
    #[inline]
    fn seen(&self, command: &Command, keys: &Keys) -> Gate {
        if command.flags.has(Flags::ALL_KEYS) || self.locked.is_all() {
            return Gate::of_all(&self.locked);
        }
        let gates = keys.iter().map(|(db, hash)| Gate::of(&self.locked, *db, *hash));
        gates.max().unwrap_or_default()
    }
}

enum Admitted {
    Run(&'static Entry),
    Queued,
    /// Deferred: the server is paused, or its log has no room for a write.
    Later,
}
