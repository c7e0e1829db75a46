//! MONITOR: a client that sees every request of the server.

use std::sync::atomic::Ordering;

use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::cx::Cx;
use super::fail::Fail;

/// MONITOR: shows all requests of all clients from now on.
pub(crate) const MONITOR: Command = Command {
    name: "monitor",
    summary: "Sends every request that the server executes to this connection.",
    since: "1.0.0",
    group: Group::Server,
    arity: 1,
    flags: Flags::ADMIN
        .and(Flags::NOSCRIPT)
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::NO_HTTP),
    run: monitor,
    ..Command::EMPTY
};

// Source: Redis 7.2 `replication.c`, `monitorCommand`; a second one gets no reply there, too
fn monitor(cx: &mut Cx<'_>, _: Args<'_>) -> Done {
    if cx.in_exec {
        return Err(Fail::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !cx.session.monitor {
        cx.session.monitor = true;
        cx.shared.monitors.fetch_add(1, Ordering::Relaxed);
        cx.reply.ok();
    }
    Ok(())
}
