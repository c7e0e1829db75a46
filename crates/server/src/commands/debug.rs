//! DEBUG: for tests of clients and of the server. The option `enable-debug-command` restricts its
//! use.

mod digest;
mod populate;
mod protocol;

use std::sync::atomic::Ordering;

use base::time::{MonoNs, UnixMs};
use base::units::parse_bytes;
use store::Value;
use wire::rdb::put_length;
use wire::resp::Args;

use super::command::{Command, Done, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, float, integer, is_option};
use super::fail::Fail;
use super::help;
use super::session::{Session, Wait, WaitReply};
use crate::config::DebugCommand;
use crate::engine::glob::Steps;
use crate::engine::rdb::put_value;

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

pub(crate) const DEBUG: Command = Command {
    name: "debug",
    syntax: "subcommand",
    summary: "A container for test commands.",
    since: "1.0.0",
    group: Group::Server,
    arity: -2,
    flags: Flags::CONTAINER.and(ADMIN),
    subcommands: &[
        &CHANGE_REPL_ID,
        &digest::DIGEST,
        &digest::DIGEST_VALUE,
        &protocol::ERROR,
        &HELP,
        &JMAP,
        &LOADAOF,
        &LOG,
        &OBJECT,
        &populate::POPULATE,
        &protocol::PROTOCOL,
        &QUICKLIST_PACKED_THRESHOLD,
        &RELOAD,
        &REPLICATE,
        &SET_ACTIVE_EXPIRE,
        &SLEEP,
        &STRINGMATCH_LEN,
    ],
    ..Command::EMPTY
};

/// Source: Redis 7.2 `server.c`, `allowProtectedAction` and its error.
fn check_allowed(cx: &CommandContext<'_>) -> Done {
    if is_allowed(cx.reactor.settings.enable_debug_command, cx.session) {
        return Ok(());
    }
    Err(Fail::text(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.",
    ))
}

fn is_allowed(rule: DebugCommand, session: &Session) -> bool {
    match rule {
        DebugCommand::Yes => true,
        DebugCommand::No => false,
        DebugCommand::Local => session.details.remote.is_local(),
    }
}

const HELP: Command = Command {
    name: "help",
    summary: "Lists the subcommands of DEBUG.",
    since: "1.0.0",
    group: Group::Server,
    arity: 2,
    flags: ADMIN,
    run: |cx, _| {
        check_allowed(cx)?;
        help::reply(cx, &DEBUG)
    },
    ..Command::EMPTY
};

const JMAP: Command = Command {
    name: "jmap",
    summary: "Does nothing; old client tests call it.",
    since: "1.0.0",
    group: Group::Server,
    arity: 2,
    flags: ADMIN,
    run: do_nothing,
    ..Command::EMPTY
};

fn do_nothing(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    check_allowed(cx)?;
    cx.reply.ok();
    Ok(())
}

const CHANGE_REPL_ID: Command = Command {
    name: "change-repl-id",
    summary: "Does nothing: replicas cannot continue after a break, whatever the identifier.",
    ..JMAP
};

const REPLICATE: Command = Command {
    name: "replicate",
    syntax: "text",
    summary: "Does nothing: there are no replicas to send the text to.",
    arity: -3,
    ..JMAP
};

const QUICKLIST_PACKED_THRESHOLD: Command = Command {
    name: "quicklist-packed-threshold",
    syntax: "size",
    summary: "Does nothing: large elements of lists have no form of their own.",
    since: "7.0.0",
    arity: 3,
    run: |cx, args| {
        // Source: Redis 7.2 `debug.c`, `debugCommand`
        let size = str::from_utf8(args.get(2)).ok().and_then(|text| parse_bytes(text).ok());
        if size.is_none_or(|size| size > u64::from(u32::MAX)) {
            return Err(Fail::text(
                "ERR argument must be a memory value bigger than 1 and smaller than 4gb",
            ));
        }
        do_nothing(cx, args)
    },
    ..JMAP
};

const LOG: Command = Command {
    name: "log",
    syntax: "message",
    summary: "Writes a message to the log of the server.",
    arity: 3,
    run: |cx, args| {
        check_allowed(cx)?;
        let message = String::from_utf8_lossy(args.get(2));
        tracing::warn!(%message, "DEBUG LOG");
        cx.reply.ok();
        Ok(())
    },
    ..JMAP
};

const STRINGMATCH_LEN: Command = Command {
    name: "stringmatch-len",
    syntax: "pattern string",
    summary: "Returns whether a string matches a pattern.",
    complexity: "O(N*M) in the lengths of the pattern and the string",
    arity: 4,
    run: |cx, args| {
        check_allowed(cx)?;
        let steps = Steps::default();
        let matches = steps.matches(args.get(2), args.get(3));
        steps.check()?;
        cx.reply.integer(i64::from(matches));
        Ok(())
    },
    ..JMAP
};

const LOADAOF: Command = Command {
    name: "loadaof",
    summary: "Rebuilds all data from its form on disk.",
    complexity: "O(N) in the number of keys",
    flags: ADMIN.and(Flags::ALL_KEYS),
    run: |cx, _| {
        check_allowed(cx)?;
        cx.locked.reload()?;
        cx.reply.ok();
        Ok(())
    },
    ..JMAP
};

const OBJECT: Command = Command {
    name: "object",
    syntax: "key",
    summary: "Describes in one line how a value is stored and when it was last accessed.",
    since: "1.0.0",
    complexity: "O(N) in the size of the value",
    group: Group::Server,
    arity: 3,
    flags: ADMIN,
    keys: &[KeySpec::range(2, 2, 1, KeyAccess::Probe)],
    run: object,
    ..Command::EMPTY
};

fn object(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_allowed(cx)?;
    let key = cx.key(args.get(2));
    let locked = &cx.locked;
    let value = locked.peek(cx.db, key).ok_or(Fail::NoSuchKey)?;
    let encoding = locked.encoding(cx.db, key).ok_or(Fail::NoSuchKey)?;
    let (idle_seconds, _) = locked.access(cx.db, key).ok_or(Fail::NoSuchKey)?;
    if !matches!(value, Value::String(_)) {
        cx.spend(value.len())?;
        cx.check_more(locked.memory_bytes(cx.db, key).unwrap_or(0))?;
    }
    let (address, serialized_bytes) = (address(&value), serialized_bytes(&value));
    let lru = lru_clock(cx.unix(), idle_seconds);
    let line = format!(
        "Value at:{address:#x} refcount:1 encoding:{} serializedlength:{serialized_bytes} \
         lru:{lru} lru_seconds_idle:{idle_seconds}",
        encoding.name()
    );
    cx.reply.simple(&line);
    Ok(())
}

/// Bytes of a value in the file that SYNC sends. A time series has no form there, so 0.
fn serialized_bytes(value: &Value<'_>) -> usize {
    let mut out = Vec::new();
    match value {
        // Without a copy of the string.
        Value::String(bytes) => {
            put_length(&mut out, bytes.len() as u64);
            out.len() + bytes.len()
        }
        Value::Series(_) => 0,
        collection => {
            put_value(&mut out, collection);
            out.len()
        }
    }
}

fn address(value: &Value<'_>) -> usize {
    match value {
        Value::String(bytes) => bytes.as_ptr().addr(),
        Value::Hash(hash) => hash.address(),
        Value::List(list) => list.address(),
        Value::Set(set) => set.address(),
        Value::ZSet(zset) => zset.address(),
        Value::Stream(stream) => std::ptr::from_ref::<store::types::Stream>(stream).addr(),
        Value::Series(series) => std::ptr::from_ref::<store::types::Series>(series).addr(),
    }
}

/// Last access time of a key, as the 24 bits of seconds that Redis keeps.
pub(super) fn lru_clock(now: UnixMs, idle_seconds: u64) -> u64 {
    const MASK: u64 = (1 << 24) - 1;
    (now.0 / 1000).wrapping_sub(idle_seconds) & MASK
}

const RELOAD: Command = Command {
    name: "reload",
    syntax: "[MERGE] [NOFLUSH] [NOSAVE]",
    summary: "Rebuilds all data from its form on disk; the options have no effect.",
    since: "1.0.0",
    complexity: "O(N) in the number of keys",
    group: Group::Server,
    arity: -2,
    flags: ADMIN.and(Flags::ALL_KEYS),
    run: reload,
    ..Command::EMPTY
};

/// The data is the same before and after, so nothing is logged.
fn reload(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    const OPTIONS: [&str; 3] = ["MERGE", "NOFLUSH", "NOSAVE"];
    check_allowed(cx)?;
    let is_known = |word: &[u8]| OPTIONS.iter().any(|option| is_option(word, option));
    if !args.iter().skip(2).all(is_known) {
        return Err(Fail::text(
            "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
        ));
    }
    cx.locked.reload()?;
    cx.reply.ok();
    Ok(())
}

const SET_ACTIVE_EXPIRE: Command = Command {
    name: "set-active-expire",
    syntax: "<0 | 1>",
    summary: "Turns background expiry off or on.",
    since: "1.0.0",
    group: Group::Server,
    arity: 3,
    flags: ADMIN,
    run: set_active_expire,
    ..Command::EMPTY
};

fn set_active_expire(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_allowed(cx)?;
    let is_on = integer(args.get(2))? != 0;
    cx.shared.active_expire.store(is_on, Ordering::Relaxed);
    cx.reply.ok();
    Ok(())
}

const SLEEP: Command = Command {
    name: "sleep",
    syntax: "seconds",
    summary: "Replies after the given time; other connections are served meanwhile.",
    since: "1.0.0",
    group: Group::Server,
    arity: 3,
    flags: ADMIN,
    run: sleep,
    ..Command::EMPTY
};

fn sleep(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_allowed(cx)?;
    let (begins, reply) = match cx.session.wait {
        // A second DEBUG SLEEP in the same transaction.
        Some(Wait::Until { at, reply }) => (at, reply),
        _ if cx.in_exec => (cx.now.mono, WaitReply::Delayed),
        _ => (cx.now.mono, WaitReply::Ok),
    };
    let at = after_seconds(begins, float(args.get(2))?)?;
    if cx.in_exec {
        if cx.session.is_lent() {
            return Err(Fail::text("ERR blocking commands are not supported over HTTP"));
        }
        cx.reply.ok();
    }
    cx.session.wait = Some(Wait::Until { at, reply });
    cx.slept_ns = at.since(begins);
    Ok(())
}

fn after_seconds(now: MonoNs, seconds: f64) -> Result<MonoNs, Fail> {
    let time = std::time::Duration::try_from_secs_f64(seconds).map_err(|_| Fail::NotFloat)?;
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ok(MonoNs(now.0.saturating_add(ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_sleep() {
        assert_eq!(after_seconds(MonoNs(5), 0.0), Ok(MonoNs(5)));
        assert_eq!(after_seconds(MonoNs(5), 1.5), Ok(MonoNs(1_500_000_005)));
        assert_eq!(after_seconds(MonoNs(5), 1e15), Ok(MonoNs(u64::MAX)));
        for seconds in [-1.0, f64::INFINITY, f64::NAN, 1e300] {
            assert_eq!(after_seconds(MonoNs(5), seconds), Err(Fail::NotFloat));
        }
    }

    #[test]
    fn the_clock_of_uses_has_24_bits() {
        assert_eq!(lru_clock(UnixMs(60_000), 10), 50);
        assert_eq!(lru_clock(UnixMs(((1 << 24) + 7) * 1000), 10), (1 << 24) - 3);
    }
}
