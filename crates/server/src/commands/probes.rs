//! Commands by which clients and tools find out what kind of server they talk to.

use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, integer, is_option};
use super::fail::Fail;
use super::help;

pub(crate) const LOLWUT: Command = Command {
    name: "lolwut",
    syntax: "[VERSION version]",
    summary: "Returns the name and version of the server.",
    since: "5.0.0",
    group: Group::Server,
    arity: -1,
    flags: Flags::READONLY.and(Flags::FAST),
    run: lolwut,
    ..Command::EMPTY
};

// Source: Redis 7.2 `lolwut.c`, `lolwutCommand`; further arguments belong to the drawings
fn lolwut(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() > 2 && is_option(args.get(1), "VERSION") {
        integer(args.get(2))?;
    }
    let text = concat!("Myriad ver. ", env!("CARGO_PKG_VERSION"), "\n");
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);

pub(crate) const MODULE: Command = Command {
    name: "module",
    summary: "A container for commands about modules, which are not supported.",
    since: "4.0.0",
    group: Group::Server,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&HELP, &LIST, &LOAD, &LOADEX, &UNLOAD],
    ..Command::EMPTY
};

const HELP: Command =
    help::subcommand("Lists the subcommands of MODULE.", "5.0.0", Group::Server, |cx, _| {
        help::reply(cx, &MODULE)
    });

const LIST: Command = Command {
    name: "list",
    summary: "Lists the loaded modules: none.",
    since: "4.0.0",
    group: Group::Server,
    arity: 2,
    flags: ADMIN,
    tips: &["nondeterministic_output_order"],
    run: |cx, _| {
        cx.reply.array(0);
        Ok(())
    },
    ..Command::EMPTY
};

const LOAD: Command = Command {
    name: "load",
    syntax: "path [arg [arg ...]]",
    summary: "Is refused, as by a Redis server that does not allow modules.",
    since: "4.0.0",
    group: Group::Server,
    arity: -3,
    flags: ADMIN.and(Flags::NO_ASYNC_LOADING),
    run: refuse,
    ..Command::EMPTY
};

const LOADEX: Command = Command {
    name: "loadex",
    syntax: "path [CONFIG name value [CONFIG name value ...]] [ARGS arg [arg ...]]",
    since: "7.0.0",
    ..LOAD
};

const UNLOAD: Command = Command { name: "unload", syntax: "name", arity: 3, ..LOAD };

// Source: Redis 7.2 `server.c`, `processCommand`
fn refuse(_: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    Err(Fail::text(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.",
    ))
}
