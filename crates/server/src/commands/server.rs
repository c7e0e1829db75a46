//! Commands about the server as a whole: databases, snapshots, time, shutdown.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use wire::resp::Args;

use super::command::{Command, Done, Events, Flags, Group};
use super::connection::database;
use super::context::{CommandContext, integer, is_option};
use super::fail::Fail;
use super::session::Wait;
use crate::engine::snapshots::{Begun, Purpose};

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);

pub(crate) const DBSIZE: Command = Command {
    name: "dbsize",
    summary: "Returns the number of keys of the selected database.",
    since: "1.0.0",
    complexity: "O(S) in the number of stripes, a constant",
    group: Group::Server,
    arity: 1,
    flags: Flags::READONLY.and(Flags::FAST).and(Flags::ALL_KEYS),
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    more_categories: &["@keyspace"],
    run: dbsize,
    ..Command::EMPTY
};

fn dbsize(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let keys = cx.locked.len(cx.db);
    cx.reply.count(keys);
    Ok(())
}

pub(crate) const FLUSHDB: Command = Command {
    name: "flushdb",
    syntax: "[ASYNC | SYNC]",
    summary: "Removes all keys of the selected database. Memory is freed in the background.",
    since: "1.0.0",
    complexity: "O(N) in the number of keys",
    group: Group::Server,
    arity: -1,
    flags: Flags::WRITE.and(Flags::ALL_KEYS),
    events: Events::Chosen,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    more_categories: &["@keyspace", "@dangerous"],
    run: flushdb,
    ..Command::EMPTY
};

fn flushdb(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let db = cx.db;
    flush(cx, args, Some(db))
}

pub(crate) const FLUSHALL: Command = Command {
    name: "flushall",
    summary: "Removes all keys of all databases. Memory is freed in the background.",
    run: |cx, args| flush(cx, args, None),
    ..FLUSHDB
};

/// ASYNC and SYNC are accepted and equivalent: memory is freed outside the locks either way.
fn flush(cx: &mut CommandContext<'_>, args: Args<'_>, db: Option<u8>) -> Done {
    match args.try_get(1) {
        None => {}
        Some(mode) if args.len() == 2 && (is_option(mode, "ASYNC") || is_option(mode, "SYNC")) => {}
        Some(_) => return Err(Fail::Syntax),
    }
    cx.flush(db)?;
    cx.reply.ok();
    Ok(())
}

pub(crate) const SWAPDB: Command = Command {
    name: "swapdb",
    syntax: "index1 index2",
    summary: "Exchanges two databases, so that clients of one see the keys of the other.",
    since: "4.0.0",
    complexity: "O(N) in the number of keys that are watched or waited for; keys are not visited",
    group: Group::Server,
    arity: 3,
    flags: Flags::WRITE.and(Flags::FAST).and(Flags::ALL_KEYS),
    events: Events::Chosen,
    more_categories: &["@keyspace", "@dangerous"],
    run: swapdb,
    ..Command::EMPTY
};

// Source: Redis 7.2 `db.c`, `swapdbCommand` and `dbSwapDatabases`
fn swapdb(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let number = |at, error| {
        let number = integer(args.get(at)).ok().filter(|number| i32::try_from(*number).is_ok());
        number.ok_or(Fail::text(error))
    };
    let first = number(1, "ERR invalid first DB index")?;
    let second = number(2, "ERR invalid second DB index")?;
    let (Some(first), Some(second)) = (database(first), database(second)) else {
        return Err(Fail::text("ERR DB index is out of range"));
    };
    if cx.shared.hub.server != 0 {
        return Err(Fail::text("ERR SWAPDB is not possible on a server with a server-id"));
    }
    if first != second {
        cx.swap([first, second])?;
    }
    cx.reply.ok();
    Ok(())
}

pub(crate) const SAVE: Command = Command {
    name: "save",
    summary: "Takes a snapshot and replies when it is on disk. Other clients are served meanwhile.",
    since: "1.0.0",
    complexity: "O(N) in the number of keys",
    group: Group::Server,
    arity: 1,
    flags: ADMIN.and(Flags::NO_MULTI).and(Flags::NO_ASYNC_LOADING).and(Flags::NO_HTTP),
    run: save,
    ..Command::EMPTY
};

const RUNNING: Fail = Fail::text("ERR Background save already in progress");

fn save(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let position = cx.shared.log.next().0;
    let begun = cx.shared.snapshots.begin(Purpose::Save, position, cx.now.mono);
    let number = begun.map_err(|_| RUNNING)?;
    cx.await_end(Wait::Snapshot { number }, args);
    Ok(())
}

pub(crate) const BGSAVE: Command = Command {
    name: "bgsave",
    syntax: "[SCHEDULE]",
    summary: "Takes a snapshot in the background, without a fork, while clients are served.",
    since: "1.0.0",
    complexity: "O(1); the snapshot itself is O(N)",
    group: Group::Server,
    arity: -1,
    flags: ADMIN.and(Flags::NO_ASYNC_LOADING),
    run: bgsave,
    ..Command::EMPTY
};

fn bgsave(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() > 2 || args.try_get(1).is_some_and(|word| !is_option(word, "SCHEDULE")) {
        return Err(Fail::Syntax);
    }
    let (snapshots, position) = (&cx.shared.snapshots, cx.shared.log.next().0);
    if args.len() == 1 {
        let begun = snapshots.begin(Purpose::Save, position, cx.now.mono);
        begun.map_err(|_| save_refusal(cx))?;
        cx.reply.simple("Background saving started");
        return Ok(());
    }
    let begun = snapshots.begin_or_schedule(Purpose::Save, position, cx.now.mono);
    cx.reply.simple(match begun.map_err(|_| RUNNING)? {
        Begun::Now => "Background saving started",
        Begun::Scheduled => "Background saving scheduled",
    });
    Ok(())
}

// Source: Redis 7.2 `rdb.c`, `bgsaveCommand`
fn save_refusal(cx: &CommandContext<'_>) -> Fail {
    match cx.shared.snapshots.status().purpose {
        Purpose::Save => RUNNING,
        Purpose::Rewrite => Fail::text(
            "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE \
             SCHEDULE in order to schedule a BGSAVE whenever possible.",
        ),
    }
}

pub(crate) const BGREWRITEAOF: Command = Command {
    name: "bgrewriteaof",
    summary: "Takes a snapshot in the background, after which the log before it is freed.",
    since: "1.0.0",
    complexity: "O(1); the snapshot itself is O(N)",
    group: Group::Server,
    arity: 1,
    flags: ADMIN.and(Flags::NO_ASYNC_LOADING),
    run: bgrewriteaof,
    ..Command::EMPTY
};

fn bgrewriteaof(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let position = cx.shared.log.next().0;
    let begun = cx.shared.snapshots.begin_or_schedule(Purpose::Rewrite, position, cx.now.mono);
    let begun = begun
        .map_err(|_| Fail::text("ERR Background append only file rewriting already in progress"))?;
    cx.reply.simple(match begun {
        Begun::Now => "Background append only file rewriting started",
        Begun::Scheduled => "Background append only file rewriting scheduled",
    });
    Ok(())
}

pub(crate) const LASTSAVE: Command = Command {
    name: "lastsave",
    summary: "Returns the Unix time, in seconds, of the last completed snapshot.",
    since: "1.0.0",
    group: Group::Server,
    arity: 1,
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    tips: &["nondeterministic_output"],
    more_categories: &["@admin", "@dangerous"],
    run: lastsave,
    ..Command::EMPTY
};

fn lastsave(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let seconds = cx.shared.snapshots.status().last_unix_ms / 1000;
    cx.reply.count(seconds);
    Ok(())
}

pub(crate) const TIME: Command = Command {
    name: "time",
    summary: "Returns the server's time: Unix seconds, and microseconds within the second.",
    since: "2.6.0",
    group: Group::Server,
    arity: 1,
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    tips: &["nondeterministic_output"],
    run: time,
    ..Command::EMPTY
};

fn time(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let micros = crate::engine::clock::unix_micros();
    cx.reply.array(2);
    cx.reply.bulk(itoa::Buffer::new().format(micros / 1_000_000).as_bytes());
    cx.reply.bulk(itoa::Buffer::new().format(micros % 1_000_000).as_bytes());
    Ok(())
}

/// SHUTDOWN: stops the server after in-flight requests.
pub(crate) const SHUTDOWN: Command = Command {
    name: "shutdown",
    syntax: "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
    summary: "Stops the server. All writes are already in the log, so none is lost without SAVE.",
    since: "1.0.0",
    group: Group::Server,
    arity: -1,
    flags: ADMIN.and(Flags::LOADING).and(Flags::STALE).and(Flags::NO_MULTI).and(Flags::ALLOW_BUSY),
    run: shutdown,
    ..Command::EMPTY
};

fn shutdown(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let has = |name| args.iter().skip(1).any(|word| is_option(word, name));
    let known = ["SAVE", "NOSAVE", "NOW", "FORCE", "ABORT"];
    let unknown = |word| known.iter().all(|name| !is_option(word, name));
    if args.iter().skip(1).any(unknown) || (has("SAVE") && has("NOSAVE")) {
        return Err(Fail::Syntax);
    }
    if has("ABORT") {
        let alone = args.iter().skip(1).all(|word| is_option(word, "ABORT"));
        return Err(if alone { Fail::text("ERR No shutdown in progress.") } else { Fail::Syntax });
    }
    if has("SAVE") {
        let position = cx.shared.log.next().0;
        // A snapshot in progress is sufficient: the log contains all later writes.
        if cx.shared.snapshots.begin(Purpose::Save, position, cx.now.mono).is_err() {
            tracing::info!("SHUTDOWN SAVE: a snapshot is running already");
        }
        cx.shared.snapshots.await_at_end();
    }
    tracing::info!("SHUTDOWN received");
    cx.shared.stopper.get().expect("set before the first connection").stop();
    cx.session.closing = true;
    Ok(())
}
