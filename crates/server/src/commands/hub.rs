//! HUB: the servers whose writes this server receives.

use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, is_option};
use super::fail::Fail;
use super::replication::{address, number_of_server};
use crate::config::MasterAddress;
use crate::engine::hub::{self, ITSELF, PEERS_MAX};
use crate::engine::replication::{LinkState, Request, Role};

pub(crate) const HUB: Command = Command {
    name: "hub",
    syntax: "<ADD server-id host port | REMOVE server-id | LIST | CONFLICTS>",
    summary: "Sets or lists the servers whose writes this server receives and merges with its own.",
    since: "1.0.0",
    complexity: "O(N) in the number of peers",
    group: Group::Server,
    arity: -2,
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_MULTI),
    run: hub,
    ..Command::EMPTY
};

fn hub(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_number(cx)?;
    let name = args.get(1);
    if is_option(name, "LIST") && args.len() == 2 {
        list(cx);
        return Ok(());
    }
    if is_option(name, "CONFLICTS") && args.len() == 2 {
        show_conflicts(cx);
        return Ok(());
    }
    check_member(cx)?;
    if is_option(name, "ADD") && args.len() == 5 {
        let server = number_of_server(args.get(2))?;
        set_peer(cx, server, address(args.get(3), args.get(4))?)?;
    } else if is_option(name, "REMOVE") && args.len() == 3 {
        remove_peer(cx, number_of_server(args.get(2))?)?;
    } else {
        return Err(Fail::Syntax);
    }
    cx.reply.ok();
    Ok(())
}

fn remove_peer(cx: &mut CommandContext<'_>, server: u16) -> Done {
    if !cx.shared.hub.peers().all().contains_key(&server) {
        return Err(Fail::text("ERR no such peer"));
    }
    store(cx, server, None)?;
    cx.shared.hub.peers().remove(server);
    cx.shared.hub.signal.raise();
    Ok(())
}

fn check_number(cx: &CommandContext<'_>) -> Done {
    if cx.shared.hub.server == 0 {
        return Err(Fail::text("ERR this server is in no group of masters: set server-id"));
    }
    Ok(())
}

/// Checks that this server may follow others.
pub(super) fn check_member(cx: &CommandContext<'_>) -> Done {
    check_number(cx)?;
    if cx.shared.replication.role() != Role::Master {
        return Err(Fail::text("READONLY a replica follows no other server than its master"));
    }
    Ok(())
}

/// Adds a peer, or gives it another address.
pub(super) fn set_peer(cx: &mut CommandContext<'_>, server: u16, address: MasterAddress) -> Done {
    let own = cx.shared.hub.server;
    if server == own {
        return Err(Fail::text("ERR this is the server-id of this server"));
    }
    let peers = cx.shared.hub.peers().all().clone();
    if !peers.contains_key(&server) && peers.len() >= PEERS_MAX {
        return Err(Fail::text("ERR too many peers"));
    }
    // A server keeps its log when it moves to another address.
    let place = peers.get(&server).and_then(|peer| peer.place);
    store(cx, own, Some((&ITSELF, None)))?;
    store(cx, server, Some((&address, place)))?;
    cx.shared.hub.peers().put(server, address, place);
    cx.shared.hub.signal.raise();
    Ok(())
}

fn store(
    cx: &mut CommandContext<'_>,
    server: u16,
    peer: Option<(&MasterAddress, Request)>,
) -> Done {
    let is_locked = cx.locked.add_unless(hub::STORED.hash(), |_| false);
    assert!(is_locked, "it never gives up");
    let mut encoded = Vec::new();
    hub::put(&cx.locked, server, peer, |mutation| {
        mutation.encode(&mut encoded);
        Ok(())
    })?;
    cx.locked.change_encoded(&encoded)?;
    Ok(())
}

/// One line for each peer, as in INFO.
fn list(cx: &mut CommandContext<'_>) {
    let peers = cx.shared.hub.peers().all().clone();
    cx.reply.array(peers.len());
    for (server, peer) in peers {
        let state = state_name(peer.state);
        let line = format!("{server} {} {} {state}", peer.address.host, peer.address.port);
        cx.reply.bulk(line.as_bytes());
    }
}

/// The latest conflicts, newest first.
fn show_conflicts(cx: &mut CommandContext<'_>) {
    let conflicts = cx.shared.hub.conflicts();
    let reply = &mut cx.reply;
    reply.array(conflicts.len());
    for conflict in conflicts {
        reply.map(5);
        reply.bulk(b"key");
        reply.bulk(&conflict.name);
        reply.bulk(b"database");
        reply.integer(i64::from(conflict.db));
        for (name, version) in [("winner", conflict.winner), ("loser", conflict.loser)] {
            reply.bulk(name.as_bytes());
            reply.map(2);
            reply.bulk(b"server-id");
            reply.integer(i64::from(version.server));
            reply.bulk(b"time-us");
            reply.integer(version.time.cast_signed());
        }
        reply.bulk(b"found-ms");
        reply.integer(conflict.found.0.cast_signed());
    }
}

pub(super) fn state_name(state: LinkState) -> &'static str {
    match state {
        LinkState::Connecting => "down",
        LinkState::Copying => "copying",
        LinkState::Connected => "up",
    }
}
