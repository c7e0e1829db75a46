//! WAIT and WAITAOF: wait for the log. Replicas are not counted yet.

use base::time::MonoNs;
use wire::resp::Args;

use crate::commands::command::{Command, Done, Flags, Group};
use crate::commands::context::{CommandContext, integer};
use crate::commands::fail::Fail;
use crate::commands::session::{Wait, WaitReply};

/// WAIT: waits until its timeout, as replicas are not counted.
pub(crate) const WAIT: Command = Command {
    name: "wait",
    syntax: "numreplicas timeout",
    summary: "Waits until replicas have this connection's writes, or the timeout elapses.",
    since: "3.0.0",
    group: Group::Generic,
    arity: 3,
    flags: Flags::WAITS,
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    run: wait,
    ..Command::EMPTY
};

fn wait(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let replicas = integer(args.get(1))?;
    let until = deadline(cx, args.get(2))?;
    if replicas <= 0 || cx.in_exec {
        cx.reply.integer(0);
    } else {
        cx.session.wait = Some(Wait::Until { at: until, reply: WaitReply::Integer(0) });
    }
    Ok(())
}

/// WAITAOF: waits for the log of this server; replicas are not counted.
pub(crate) const WAITAOF: Command = Command {
    name: "waitaof",
    syntax: "numlocal numreplicas timeout",
    summary: "Waits until this connection's writes are on disk, or the timeout elapses.",
    since: "7.2.0",
    group: Group::Generic,
    arity: 4,
    flags: Flags::WAITS,
    tips: WAIT.tips,
    run: waitaof,
    ..Command::EMPTY
};

fn waitaof(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let local = integer(args.get(1))?;
    if !(0..=1).contains(&local) {
        return Err(Fail::text("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = integer(args.get(2)).ok().filter(|count| *count >= 0);
    let replicas = replicas.ok_or(Fail::text("ERR value is out of range, must be positive"))?;
    let until = deadline(cx, args.get(3))?;
    let is_durable = cx.session.last_write.is_open_at(cx.reactor.durable);
    if cx.in_exec || (local == 0 && replicas == 0) {
        write_pair(cx, i64::from(is_durable));
    } else {
        // The reply waits for the sync even if the writes did not. That takes milliseconds whatever
        // the timeout is, and a log that can no longer sync sends no reply.
        cx.gate = cx.gate.max(cx.session.last_write);
        if replicas == 0 {
            write_pair(cx, 1);
        } else {
            cx.session.wait = Some(Wait::Until { at: until, reply: WaitReply::Pair(1, 0) });
        }
    }
    Ok(())
}

/// Writes the reply of WAITAOF: the local log, and the number of replicas.
fn write_pair(cx: &mut CommandContext<'_>, local: i64) {
    cx.reply.array(2);
    cx.reply.integer(local);
    cx.reply.integer(0);
}

/// Deadline of a timeout in milliseconds from now; 0 means never.
// Source: Redis 7.2 `timeout.c`, `getTimeoutFromObjectOrReply`
fn deadline(cx: &CommandContext<'_>, text: &[u8]) -> Result<MonoNs, Fail> {
    const NS_PER_MS: u64 = 1_000_000;
    let bad = Fail::text("ERR timeout is not an integer or out of range");
    let timeout_ms = integer(text).map_err(|_| bad)?;
    let timeout_ms =
        u64::try_from(timeout_ms).map_err(|_| Fail::text("ERR timeout is negative"))?;
    if timeout_ms > i64::MAX.unsigned_abs().saturating_sub(cx.unix().0) {
        return Err(Fail::text("ERR timeout is out of range"));
    }
    if timeout_ms == 0 {
        return Ok(MonoNs(u64::MAX));
    }
    Ok(MonoNs(cx.now.mono.0.saturating_add(timeout_ms.saturating_mul(NS_PER_MS))))
}
