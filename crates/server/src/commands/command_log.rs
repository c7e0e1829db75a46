//! SLOWLOG and COMMANDLOG: commands that took long, or whose request or reply was large.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, integer};
use super::fail::{Fail, too_many_arguments};
use super::help;
use crate::engine::command_log::LogKind;

const ADMIN: Flags = Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE);

pub(crate) const SLOWLOG: Command = Command {
    name: "slowlog",
    syntax: "subcommand",
    summary: "A container for commands about the slow log.",
    since: "2.2.12",
    group: Group::Server,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&SLOWLOG_GET, &SLOWLOG_LEN, &SLOWLOG_RESET, &SLOWLOG_HELP],
    ..Command::EMPTY
};

const SLOWLOG_GET: Command = Command {
    name: "get",
    syntax: "[count]",
    summary: "Returns the newest entries of the slow log: 10, the given count, or all with -1.",
    since: "2.2.12",
    complexity: "O(N) in the number of entries",
    group: Group::Server,
    arity: -2,
    flags: ADMIN,
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    run: |cx, args| {
        if args.len() > 3 {
            return Err(too_many_arguments("SLOWLOG", args));
        }
        let count = args.try_get(2).map_or(Ok(DEFAULT_ENTRIES), entry_count)?;
        reply_entries(cx, LogKind::Slow, count)
    },
    ..Command::EMPTY
};

/// Entries that SLOWLOG GET returns without a count.
const DEFAULT_ENTRIES: usize = 10;

/// The number of entries that an argument requests: all for -1.
fn entry_count(arg: &[u8]) -> Result<usize, Fail> {
    let refusal = || Fail::text("ERR count should be greater than or equal to -1");
    match integer(arg).map_err(|_| refusal())? {
        -1 => Ok(usize::MAX),
        count => usize::try_from(count).map_err(|_| refusal()),
    }
}

fn reply_entries(cx: &mut CommandContext<'_>, kind: LogKind, count: usize) -> Done {
    let log = cx.shared.command_logs.lock(kind);
    cx.reply.array(log.iter().len().min(count));
    for entry in log.iter().take(count) {
        cx.reply.array(6);
        cx.reply.integer(entry.id.cast_signed());
        cx.reply.integer((entry.at.0 / 1000).cast_signed());
        cx.reply.integer(entry.value.cast_signed());
        cx.reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| cx.reply.bulk(arg));
        cx.reply.bulk(entry.peer.as_bytes());
        cx.reply.bulk(entry.client_name.as_bytes());
    }
    Ok(())
}

const SLOWLOG_LEN: Command = Command {
    name: "len",
    summary: "Returns the number of entries of the slow log.",
    since: "2.2.12",
    group: Group::Server,
    arity: 2,
    flags: ADMIN,
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    run: |cx, _| reply_len(cx, LogKind::Slow),
    ..Command::EMPTY
};

fn reply_len(cx: &mut CommandContext<'_>, kind: LogKind) -> Done {
    let entries = cx.shared.command_logs.lock(kind).iter().len();
    cx.reply.count(entries);
    Ok(())
}

const SLOWLOG_RESET: Command = Command {
    name: "reset",
    summary: "Empties the slow log.",
    since: "2.2.12",
    complexity: "O(N) in the number of entries",
    group: Group::Server,
    arity: 2,
    flags: ADMIN,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: |cx, _| reset(cx, LogKind::Slow),
    ..Command::EMPTY
};

fn reset(cx: &mut CommandContext<'_>, kind: LogKind) -> Done {
    cx.shared.command_logs.lock(kind).clear();
    cx.reply.ok();
    Ok(())
}

const SLOWLOG_HELP: Command =
    help::subcommand("Lists the subcommands of SLOWLOG.", "6.2.0", Group::Server, |cx, _| {
        help::reply(cx, &SLOWLOG)
    });

pub(crate) const COMMANDLOG: Command = Command {
    name: "commandlog",
    syntax: "subcommand",
    summary: "A container for commands about the logs of slow commands, large requests and large replies.",
    since: "8.1.0",
    group: Group::Server,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&COMMANDLOG_GET, &COMMANDLOG_LEN, &COMMANDLOG_RESET, &COMMANDLOG_HELP],
    ..Command::EMPTY
};

const COMMANDLOG_GET: Command = Command {
    name: "get",
    syntax: "count <SLOW | LARGE-REQUEST | LARGE-REPLY>",
    summary: "Returns the newest entries of a log: the given count, or all with -1.",
    since: "8.1.0",
    arity: 4,
    run: |cx, args| {
        let count = entry_count(args.get(2))?;
        reply_entries(cx, log_kind(args.get(3))?, count)
    },
    ..SLOWLOG_GET
};

// Source: Valkey 8.1 `commandlog.c`, `commandlogGetTypeOrReply`
fn log_kind(arg: &[u8]) -> Result<LogKind, Fail> {
    let is_named = |kind: &LogKind| arg.eq_ignore_ascii_case(kind.name().as_bytes());
    LogKind::ALL.into_iter().find(is_named).ok_or(Fail::text(
        "ERR type should be one of the following: slow, large-request, large-reply",
    ))
}

const COMMANDLOG_LEN: Command = Command {
    name: "len",
    syntax: "<SLOW | LARGE-REQUEST | LARGE-REPLY>",
    summary: "Returns the number of entries of a log.",
    since: "8.1.0",
    arity: 3,
    run: |cx, args| reply_len(cx, log_kind(args.get(2))?),
    ..SLOWLOG_LEN
};

const COMMANDLOG_RESET: Command = Command {
    name: "reset",
    syntax: "<SLOW | LARGE-REQUEST | LARGE-REPLY>",
    summary: "Empties a log.",
    since: "8.1.0",
    arity: 3,
    run: |cx, args| reset(cx, log_kind(args.get(2))?),
    ..SLOWLOG_RESET
};

const COMMANDLOG_HELP: Command =
    help::subcommand("Lists the subcommands of COMMANDLOG.", "8.1.0", Group::Server, |cx, _| {
        help::reply(cx, &COMMANDLOG)
    });
