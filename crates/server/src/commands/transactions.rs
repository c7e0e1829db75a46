//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC locks the stripes of all keys of all its commands at once, runs the commands in order, and
//! appends one record: the log contains the whole transaction or nothing of it.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use store::PARTITIONS_DB;
use wire::resp::Args;

use super::command::{Command, Done, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, integer};
use super::execute::Keys;
use super::fail::Fail;
use super::registry::REGISTRY;
use super::session::{Session, Transaction, Wait, WaitReply, Watched};
use super::{connection, session};
use crate::engine::functions::stored_hash;
use crate::engine::leftovers::Leftover;
use crate::engine::reactor_state::ReactorState;
use crate::engine::server_state::ServerState;

const ALWAYS: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::NO_HTTP);
const AT_ONCE: Flags = ALWAYS.and(Flags::FAST).and(Flags::ALLOW_BUSY);

pub(crate) const MULTI: Command = Command {
    name: "multi",
    summary: "Starts a transaction: the commands that follow are queued until EXEC.",
    since: "1.2.0",
    group: Group::Transactions,
    arity: 1,
    flags: AT_ONCE.and(Flags::UNQUEUED),
    run: multi,
    ..Command::EMPTY
};

fn multi(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    if cx.session.transaction.is_some() {
        return Err(Fail::text("ERR MULTI calls can not be nested"));
    }
    cx.session.transaction = Some(Box::default());
    cx.reply.ok();
    Ok(())
}

pub(crate) const EXEC: Command = Command {
    name: "exec",
    summary: "Runs the queued commands of the transaction atomically, unless a watched key changed.",
    since: "1.2.0",
    complexity: "Depends on the queued commands",
    group: Group::Transactions,
    arity: 1,
    flags: ALWAYS.and(Flags::SKIP_SLOWLOG).and(Flags::UNQUEUED).and(Flags::EXECUTES),
    run: exec,
    ..Command::EMPTY
};

fn exec(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let Some(transaction) = cx.session.transaction.take() else {
        return Err(Fail::text("ERR EXEC without MULTI"));
    };
    cx.reactor.accounts.resp().unqueue(&mut cx.session.charges);
    let changed = watched_key_changed(cx);
    unwatch_locked(cx);
    if transaction.aborted {
        return Err(Fail::text("EXECABORT Transaction discarded because of previous errors."));
    }
    if changed {
        cx.reply.null_array();
        return Ok(());
    }
    let start = cx.reply.out.len();
    cx.in_exec = true;
    cx.reactor.script_wait_ns = 0;
    cx.reply.array(transaction.queued.len());
    for (id, args) in &transaction.queued {
        let command = REGISTRY.entry(*id).command;
        cx.db = cx.session.db;
        cx.call_queued(*id, args.as_args());
        cx.feed_monitors(command, args.as_args());
    }
    // Also frees the memory of the messages, which may have been large.
    let mut late = std::mem::take(&mut cx.reactor.late_messages);
    cx.reply.out.append(&mut late);
    if let Some(Wait::Until { reply: WaitReply::Delayed, .. }) = cx.session.wait {
        cx.session.details.rare().delayed_reply = Some(cx.reply.out.split_off(start));
    }
    Ok(())
}

/// Whether a write has raised a flag, or a watched key, or a field of a watched hash, has expired
/// since the watch started.
fn watched_key_changed(cx: &CommandContext<'_>) -> bool {
    cx.session.watched.as_ref().is_some_and(|watched| {
        watched.flag.is_raised()
            || watched
                .keys
                .iter()
                .any(|((db, key), since)| cx.locked.has_expired_since(*db, cx.key(key), *since))
    })
}

pub(crate) const DISCARD: Command = Command {
    name: "discard",
    summary: "Discards the queued commands and unwatches all keys.",
    since: "2.0.0",
    complexity: "O(N) in the number of queued commands",
    group: Group::Transactions,
    arity: 1,
    flags: AT_ONCE.and(Flags::UNQUEUED).and(Flags::ABANDONS),
    run: discard,
    ..Command::EMPTY
};

fn discard(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    if cx.session.transaction.take().is_none() {
        return Err(Fail::text("ERR DISCARD without MULTI"));
    }
    cx.reactor.accounts.resp().unqueue(&mut cx.session.charges);
    forget_watches(cx);
    cx.reply.ok();
    Ok(())
}

/// WATCH: makes EXEC conditional on keys being unchanged.
pub(crate) const WATCH: Command = Command {
    name: "watch",
    syntax: "key [key ...]",
    summary: "Watches keys: EXEC does nothing if one of them has changed.",
    since: "2.2.0",
    complexity: "O(1) for every key",
    group: Group::Transactions,
    arity: -2,
    flags: AT_ONCE.and(Flags::UNQUEUED),
    keys: &[KeySpec::range(1, -1, 1, KeyAccess::Probe)],
    run: watch,
    ..Command::EMPTY
};

fn watch(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if cx.session.transaction.is_some() {
        return Err(Fail::text("ERR WATCH inside MULTI is not allowed"));
    }
    for bytes in args.iter().skip(1) {
        let key = cx.key(bytes);
        let watched = cx.session.watched.get_or_insert_with(Box::<Watched>::default);
        let name = (cx.db, Box::from(bytes));
        if watched.keys.contains_key(&name) {
            continue;
        }
        let is_full = watched.keys.len() >= session::WATCHED_KEYS_MAX;
        if is_full || watched.bytes + bytes.len() > session::WATCHED_BYTES_MAX {
            return Err(Fail::text("ERR too many watched keys"));
        }
        cx.reactor
            .accounts
            .resp()
            .watch(&mut watched.charged_bytes, watch_bytes(bytes))
            .map_err(|reached| Fail::owned(format!("OOM {reached}")))?;
        cx.locked.watch(cx.db, key, &watched.flag);
        watched.keys.insert(name, cx.now.unix);
        watched.bytes += bytes.len();
    }
    cx.reply.ok();
    Ok(())
}

pub(crate) const UNWATCH: Command = Command {
    name: "unwatch",
    summary: "Unwatches all keys.",
    since: "2.2.0",
    group: Group::Transactions,
    arity: 1,
    flags: AT_ONCE,
    run: unwatch,
    ..Command::EMPTY
};

fn unwatch(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    forget_watches(cx);
    cx.reply.ok();
    Ok(())
}

/// Memory of a watched key: its name in the session and in its stripe, and their maps.
fn watch_bytes(name: &[u8]) -> u64 {
    const OVERHEAD_BYTES: usize = 192;
    (2 * name.len() + OVERHEAD_BYTES) as u64
}

/// Ends the watches of a session whose command holds no stripe.
pub(crate) fn forget_watches(cx: &mut CommandContext<'_>) {
    end_watches(cx.shared, cx.reactor, cx.session);
}

/// Ends the watches of a session while no stripe is locked. One lookup per key.
pub(crate) fn end_watches(shared: &ServerState, reactor: &mut ReactorState, session: &mut Session) {
    let Some(watched) = session.watched.take() else { return };
    reactor.accounts.resp().unwatch(watched.charged_bytes);
    for (db, key) in watched.keys.keys() {
        let watch = Leftover::Watch { db: *db, flag: watched.flag.clone() };
        reactor.leftovers.leave(&shared.keyspace, key, watch);
    }
}

/// Ends the watches of a session in EXEC, which holds the stripes of all watched keys.
fn unwatch_locked(cx: &mut CommandContext<'_>) {
    let Some(watched) = cx.session.watched.take() else { return };
    cx.reactor.accounts.resp().unwatch(watched.charged_bytes);
    for (db, key) in watched.keys.keys() {
        let key = cx.key(key);
        cx.locked.unwatch(*db, key, &watched.flag);
    }
}

pub(crate) fn is_exec(command: &Command) -> bool {
    command.flags.has(Flags::EXECUTES)
}

/// Ends the transaction of a session that has no watches.
pub(super) fn discard_queue(reactor: &mut ReactorState, session: &mut Session) {
    session.transaction = None;
    reactor.accounts.resp().unqueue(&mut session.charges);
}

/// Ends the transaction of a session whose EXEC is rejected. Returns the error for the client.
// Source: Redis 7.2 `multi.c`, `execCommandAbort`
pub(crate) fn abort(
    shared: &ServerState,
    reactor: &mut ReactorState,
    session: &mut Session,
    reason: &[u8],
) -> Vec<u8> {
    discard_queue(reactor, session);
    end_watches(shared, reactor, session);
    let reason = reason.strip_prefix(b"ERR ").unwrap_or(reason);
    [b"EXECABORT Transaction discarded because of: ", reason].concat()
}

/// Whether a transaction makes an otherwise exempt command subject to the memory limits: queuing
/// takes memory whatever the command does, and EXEC runs the queued commands.
// Source: Redis 7.2 `server.c`, `processCommand`
#[inline]
pub(crate) fn needs_room(session: &Session, command: &Command) -> bool {
    session.transaction.as_deref().is_some_and(|open| {
        if is_exec(command) {
            return any_queued(open, Flags::DENYOOM);
        }
        !session.is_lent() && !command.flags.has(Flags::ABANDONS)
    })
}

/// Whether the command is the EXEC of a transaction that may change data.
// Source: Redis 7.2 `server.c`, `processCommand`
#[inline]
pub(crate) fn writes(session: &Session, command: &Command) -> bool {
    let open = session.transaction.as_deref();
    open.is_some_and(|open| is_exec(command) && any_queued(open, Flags::WRITE))
}

fn any_queued(open: &Transaction, flag: Flags) -> bool {
    open.queued.iter().any(|(id, _)| REGISTRY.entry(*id).command.flags.has(flag))
}

/// Lists database and hash of every key that EXEC accesses. True if it needs all stripes.
pub(crate) fn list_keys(
    session: &Session,
    hash_of: impl Fn(&[u8]) -> u64,
    keys: &mut Keys,
) -> bool {
    let watched = session.watched.iter().flat_map(|watched| &watched.keys);
    keys.extend(watched.map(|((db, key), _)| (*db, hash_of(key))));
    let queued = session.transaction.as_deref().map_or(&[][..], |t: &Transaction| &t.queued);
    let mut db = session.db;
    for (id, args) in queued {
        let command = REGISTRY.entry(*id).command;
        let args = args.as_args();
        if command.flags.has(Flags::ALL_KEYS.and(Flags::LOCKS_STRIPES))
            || command.reads_other_keys(args)
        {
            return true;
        }
        if command.flags.has(Flags::SELECTS) {
            let index = args.try_get(1).and_then(|text| integer(text).ok());
            db = index.and_then(connection::database).unwrap_or(db);
        }
        if command.flags.has(Flags::LIBRARIES) {
            keys.push((PARTITIONS_DB, stored_hash()));
        }
        let before = keys.len();
        let listed = command.key_positions(args, |at, _| keys.push((db, hash_of(args.get(at)))));
        if listed.is_err() {
            keys.truncate(before);
        }
    }
    false
}
