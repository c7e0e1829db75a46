//! CLIENT KILL: closes connections by address or by filters.

use wire::resp::Args;

use super::ADMIN_FLAGS;
use super::filter::{Filter, IdWords};
use crate::commands::command::{Command, Done, Flags, Group};
use crate::commands::context::CommandContext;
use crate::commands::fail::Fail;
use crate::engine::mail::Mail;
use reactor::ConnId;

/// CLIENT KILL: closes one connection, or all that match the filters.
pub(super) const KILL: Command = Command {
    name: "kill",
    syntax: "<ip:port | [ID client-id [client-id ...]] [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] \
             [USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME <YES | NO>] \
             [MAXAGE seconds] [IDLE seconds] [FLAGS flags] [NAME connection-name] \
             [LIB-NAME libname] [LIB-VER libver] [DB index] [IP ip] [CAPA capa]>",
    summary: "Closes the connections that match all given filters.",
    since: "2.4.0",
    complexity: "O(N) in the number of connections",
    group: Group::Connection,
    arity: -3,
    flags: ADMIN_FLAGS.and(Flags::SEES_STATS),
    run: kill,
    ..Command::EMPTY
};

fn kill(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() == 3 {
        let filter = Filter::of_remote(args.get(2), &cx.reactor.settings);
        if kill_all(cx, &filter, false) == 0 {
            return Err(Fail::text("ERR No such client"));
        }
        cx.reply.ok();
        return Ok(());
    }
    let (users, settings) = (cx.shared.acl.users(), &cx.reactor.settings);
    let filter = Filter::parse(args.skip(2), &users, settings, IdWords::NotPositive)?;
    let killed = kill_all(cx, &filter, filter.skips_me.unwrap_or(true));
    cx.reply.integer(killed);
    Ok(())
}

/// Closes the matching connections; this connection closes after its reply. Returns their number.
fn kill_all(cx: &mut CommandContext<'_>, filter: &Filter, skips_me: bool) -> i64 {
    let (now, own) = (cx.now.mono, cx.session.id.0);
    let mut killed = 0;
    // The reactor that receives a moving connection closes it.
    let mut moving = cx.shared.moving.lock();
    for row in moving.values_mut().filter(|row| !row.killed && filter.fits(row, now)) {
        row.killed = true;
        killed += 1;
    }
    for (published, mailbox) in cx.shared.published.iter().zip(cx.shared.links().mailboxes()) {
        let mut published = published.lock();
        for row in published.clients.values_mut() {
            let is_me = row.id == own;
            if row.killed || (is_me && skips_me) || !filter.fits(row, now) {
                continue;
            }
            if is_me {
                cx.session.closing = true;
            } else if mailbox.send(Mail::Kill(ConnId(row.id))).is_err() {
                tracing::warn!(client = row.id, "could not deliver a kill request to a reactor");
                continue;
            }
            row.killed = true;
            killed += 1;
        }
    }
    killed
}
