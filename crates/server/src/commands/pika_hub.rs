//! The commands by which `pika_hub` is administrated, as far as they have a meaning here; the
//! others name the command of this server.
// Source: pika_hub `pika_hub_command.cc`, `pika_hub_admin.cc`, `pika_hub_server.cc`

use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::CommandContext;
use super::fail::Fail;
use super::hub::{check_member, set_peer};
use super::replication::{address, number_of_server};
use crate::engine::replication::LinkState;

const FLAGS: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_MULTI);

pub(crate) const TRANSFER: Command = Command {
    name: "transfer",
    syntax: "server-id host port",
    summary: "As in pika_hub, gives a peer that is not connected another address: HUB ADD.",
    since: "1.0.0",
    complexity: "O(1)",
    group: Group::Server,
    arity: 4,
    flags: FLAGS,
    run: transfer,
    ..Command::EMPTY
};

fn transfer(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_member(cx)?;
    let server = number_of_server(args.get(1))?;
    let address = address(args.get(2), args.get(3))?;
    let state = cx.shared.hub.peers().all().get(&server).map(|peer| peer.state);
    match state {
        None => {
            return Err(Fail::owned(format!(
                "ERR server_id {server} is not found in pika_servers"
            )));
        }
        Some(LinkState::Copying | LinkState::Connected) => {
            return Err(Fail::owned(format!(
                "ERR server_id {server} is online, could not transfer"
            )));
        }
        Some(LinkState::Connecting) => {}
    }
    set_peer(cx, server, address)?;
    cx.reply.ok();
    Ok(())
}

pub(crate) const ADD: Command = Command {
    name: "add",
    syntax: "hub",
    summary: "Adds a hub to the group of hubs in pika_hub; here an error that names HUB ADD.",
    since: "1.0.0",
    complexity: "O(1)",
    group: Group::Server,
    arity: 2,
    flags: FLAGS,
    run: add,
    ..Command::EMPTY
};

fn add(_: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    Err(Fail::text(
        "ERR hubs are not members of a group of hubs: send HUB ADD server-id host port to each \
         master for each hub, and to each hub for each master",
    ))
}

pub(crate) const REMOVE: Command = Command {
    name: "remove",
    summary: "Removes a hub from the group of hubs in pika_hub; here an error that names HUB REMOVE.",
    run: remove,
    ..ADD
};

fn remove(_: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    Err(Fail::text(
        "ERR hubs are not members of a group of hubs: send HUB REMOVE server-id to the masters of \
         the hub",
    ))
}
