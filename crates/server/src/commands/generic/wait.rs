//! WAIT and WAITAOF: wait for the log of this server and of its replicas.

use base::time::MonoNs;
use wire::resp::Args;

use crate::commands::command::{Command, Done, Flags, Group};
use crate::commands::context::{CommandContext, integer};
use crate::commands::fail::Fail;
use crate::commands::session::{ReplicaWait, Wait, WaitReply};
use crate::engine::replication::Role;

/// WAIT: a replica counts when the writes are on its disk, not only in its memory.
pub(crate) const WAIT: Command = Command {
    name: "wait",
    syntax: "numreplicas timeout",
    summary: "Waits until this connection's writes are on the disks of replicas, or the timeout elapses.",
    since: "3.0.0",
    group: Group::Generic,
    arity: 3,
    flags: Flags::WAITS,
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    run: wait,
    ..Command::EMPTY
};

fn wait(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_master(
        cx,
        "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a \
         replica is configured to be writable (which is not the default) writes to replicas are \
         just local and are not propagated.",
    )?;
    let wanted = integer(args.get(1))?;
    let until = deadline(cx, args.get(2))?;
    let written = cx.session.last_write;
    wait_for_replicas(cx, ReplicaWait { written, wanted, local: None }, until);
    Ok(())
}

fn check_master(cx: &CommandContext<'_>, error: &'static str) -> Done {
    let is_master = cx.shared.replication.role() == Role::Master;
    if is_master { Ok(()) } else { Err(Fail::text(error)) }
}

/// Replies now or later.
fn wait_for_replicas(cx: &mut CommandContext<'_>, wait: ReplicaWait, until: MonoNs) {
    let replication = &cx.shared.replication;
    if cx.in_exec || wait.is_over(replication) {
        wait.write(&mut cx.reply, replication);
    } else {
        cx.session.wait = Some(Wait::Until { at: until, reply: WaitReply::Replicas(wait) });
    }
}

/// WAITAOF: waits for the logs of this server and of replicas.
pub(crate) const WAITAOF: Command = Command {
    name: "waitaof",
    syntax: "numlocal numreplicas timeout",
    summary: "Waits until this connection's writes are on disk, here and on replicas, or the timeout elapses.",
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
    let wanted = integer(args.get(2)).ok().filter(|count| *count >= 0);
    let wanted = wanted.ok_or(Fail::text("ERR value is out of range, must be positive"))?;
    let until = deadline(cx, args.get(3))?;
    check_master(
        cx,
        "ERR WAITAOF cannot be used with replica instances. Please also note that writes to \
         replicas are just local and are not propagated.",
    )?;
    let written = cx.session.last_write;
    let mut is_local = written.is_open_at(cx.reactor.durable);
    if !cx.in_exec && (local > 0 || wanted > 0) {
        // The reply waits for the sync even if the writes did not. That takes milliseconds whatever
        // the timeout is, and a log that can no longer sync sends no reply.
        cx.gate = cx.gate.max(written);
        is_local = true;
    }
    wait_for_replicas(cx, ReplicaWait { written, wanted, local: Some(is_local) }, until);
    Ok(())
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
