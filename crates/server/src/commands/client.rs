//! CLIENT: the settings of a connection, and operations on other connections.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

mod filter;
mod kill;
mod pause;
mod rows;
mod tracking;

use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, integer, is_option};
use super::fail::{Fail, too_many_arguments};
use super::help;
use super::session::{Details, ReplyMode, Session};
use crate::config::Durability;
use crate::engine::mail::Mail;
use reactor::ConnId;

pub(super) use pause::stops;
pub(super) use rows::info_line;
pub(super) use tracking::end_caching;
pub(crate) use tracking::{end_tracking, records_reads};

/// Maximum bytes of a client name, a library name or a library version.
const NAME_BYTES_MAX: usize = 64 * 1024;

const OWN: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE);
const ADMIN_FLAGS: Flags = OWN.and(Flags::ADMIN);

pub(crate) const CLIENT: Command = Command {
    name: "client",
    summary: "A container for commands about connections.",
    since: "2.4.0",
    complexity: "Depends on the subcommand",
    group: Group::Connection,
    arity: -2,
    flags: Flags::CONTAINER.and(Flags::NO_HTTP),
    subcommands: &[
        &tracking::CACHING,
        &CAPA,
        &DURABILITY,
        &GETNAME,
        &tracking::GETREDIR,
        &HELP,
        &ID,
        &IMPORT_SOURCE,
        &rows::INFO,
        &kill::KILL,
        &rows::LIST,
        &NO_EVICT,
        &NO_TOUCH,
        &pause::PAUSE,
        &REPLY,
        &SETINFO,
        &SETNAME,
        &tracking::TRACKING,
        &tracking::TRACKINGINFO,
        &UNBLOCK,
        &pause::UNPAUSE,
    ],
    ..Command::EMPTY
};

/// Returns the client id, which is the connection's id in its reactor.
pub(super) fn id_of(session: &Session) -> i64 {
    i64::try_from(session.id.0).unwrap_or(i64::MAX)
}

/// CLIENT CAPA: what the client can handle. Nothing follows from it: no write is redirected.
const CAPA: Command = Command {
    name: "capa",
    syntax: "capability [capability ...]",
    summary: "Reports what the client can handle; unknown words are ignored.",
    since: "8.0.0",
    complexity: "O(N) in the number of capabilities",
    group: Group::Connection,
    arity: -3,
    flags: OWN,
    run: capa,
    ..Command::EMPTY
};

fn capa(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.skip(2).iter().any(|word| is_option(word, "REDIRECT")) {
        cx.session.details.rare().redirects = true;
    }
    cx.reply.ok();
    Ok(())
}

/// CLIENT DURABILITY: when writes of this connection are acknowledged. Specific to Myriad.
const DURABILITY: Command = Command {
    name: "durability",
    syntax: "[ALWAYS | REPLICATED | INTERVAL | NEVER]",
    summary: "Sets when writes of this connection are acknowledged, or returns the current setting.",
    since: "7.2.0",
    group: Group::Connection,
    arity: -2,
    flags: OWN,
    run: durability,
    ..Command::EMPTY
};

fn durability(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let Some(word) = args.try_get(2) else {
        cx.reply.bulk(cx.session.durability.word().as_bytes());
        return Ok(());
    };
    if args.len() > 3 {
        return Err(too_many_arguments("CLIENT", args));
    }
    let known = Durability::ALL.iter().find(|known| is_option(word, known.word()));
    cx.session.durability = *known.ok_or(Fail::text(
        "ERR CLIENT DURABILITY must be one of always, replicated, interval, never",
    ))?;
    cx.reply.ok();
    Ok(())
}

/// CLIENT GETNAME: the name of this connection.
const GETNAME: Command = Command {
    name: "getname",
    summary: "Returns the name of the connection.",
    since: "2.6.9",
    group: Group::Connection,
    arity: 2,
    flags: OWN,
    run: getname,
    ..Command::EMPTY
};

fn getname(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    match cx.session.details.name.as_str() {
        "" => cx.reply.null(),
        name => cx.reply.bulk(name.as_bytes()),
    }
    Ok(())
}

/// CLIENT HELP: the subcommands.
const HELP: Command =
    help::subcommand("Lists the subcommands of CLIENT.", "5.0.0", Group::Connection, |cx, _| {
        help::reply(cx, &CLIENT)
    });

/// CLIENT ID: the id of this connection.
const ID: Command = Command {
    name: "id",
    summary: "Returns the id of the connection, which is never reused.",
    since: "5.0.0",
    group: Group::Connection,
    arity: 2,
    flags: OWN,
    run: id,
    ..Command::EMPTY
};

fn id(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    cx.reply.integer(id_of(cx.session));
    Ok(())
}

/// CLIENT IMPORT-SOURCE: a connection that copies data from another server.
const IMPORT_SOURCE: Command = Command {
    name: "import-source",
    syntax: "<ON | OFF>",
    summary: "Is refused, as by a Valkey server that is not in import mode.",
    since: "8.1.0",
    group: Group::Connection,
    arity: 3,
    flags: OWN,
    run: |_, _| Err(Fail::text("ERR Server is not in import mode")),
    ..Command::EMPTY
};

/// CLIENT NO-EVICT: excludes this connection when clients are closed to free memory.
const NO_EVICT: Command = Command {
    name: "no-evict",
    syntax: "<ON | OFF>",
    summary: "Excludes the connection when clients are closed to free memory.",
    since: "7.0.0",
    group: Group::Connection,
    arity: 3,
    flags: ADMIN_FLAGS,
    run: no_evict,
    ..Command::EMPTY
};

fn no_evict(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    cx.session.no_evict = on_or_off(args.get(2))?;
    cx.reply.ok();
    Ok(())
}

/// CLIENT NO-TOUCH: reads of this connection do not keep keys from being evicted.
const NO_TOUCH: Command = Command {
    name: "no-touch",
    syntax: "<ON | OFF>",
    summary: "Sets whether commands of the connection update the access time of their keys.",
    since: "7.2.0",
    group: Group::Connection,
    arity: 3,
    flags: OWN,
    run: no_touch,
    ..Command::EMPTY
};

fn no_touch(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    cx.session.no_touch = on_or_off(args.get(2))?;
    cx.reply.ok();
    Ok(())
}

fn on_or_off(text: &[u8]) -> Result<bool, Fail> {
    match text {
        on if is_option(on, "ON") => Ok(true),
        off if is_option(off, "OFF") => Ok(false),
        _ => Err(Fail::Syntax),
    }
}

/// CLIENT REPLY: turns replies to this connection on or off.
const REPLY: Command = Command {
    name: "reply",
    syntax: "<ON | OFF | SKIP>",
    summary: "Turns replies on, off, or off for the next command only.",
    since: "3.2.0",
    group: Group::Connection,
    arity: 3,
    flags: OWN,
    run: reply,
    ..Command::EMPTY
};

fn reply(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let mode = args.get(2);
    if is_option(mode, "ON") {
        cx.session.reply_mode = ReplyMode::On;
    } else if is_option(mode, "OFF") {
        cx.session.reply_mode = ReplyMode::Off;
    } else if !is_option(mode, "SKIP") {
        return Err(Fail::Syntax);
    } else if cx.session.reply_mode != ReplyMode::Off {
        cx.session.reply_mode = ReplyMode::SkipNext;
    }
    // Outside EXEC the reply is dropped together with the others of its request.
    if !cx.in_exec || cx.session.reply_mode == ReplyMode::On {
        cx.reply.ok();
    }
    Ok(())
}

/// CLIENT SETINFO: name and version of the client library.
const SETINFO: Command = Command {
    name: "setinfo",
    syntax: "<LIB-NAME libname | LIB-VER libver>",
    summary: "Sets the name or the version of the client library.",
    since: "7.2.0",
    group: Group::Connection,
    arity: 4,
    flags: OWN,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: setinfo,
    ..Command::EMPTY
};

fn setinfo(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (option, text) = (args.get(2), args.get(3));
    if is_option(option, "LIB-NAME") {
        let name = printable(text, option)?;
        rename(cx, |details| name.clone_into(&mut details.library_name));
    } else if is_option(option, "LIB-VER") {
        let version = printable(text, option)?;
        rename(cx, |details| version.clone_into(&mut details.library_version));
    } else {
        return Err(Fail::quoting("ERR Unrecognized option '", option, "'"));
    }
    cx.reply.ok();
    Ok(())
}

/// CLIENT SETNAME: names this connection.
const SETNAME: Command = Command {
    name: "setname",
    syntax: "connection-name",
    summary: "Sets the name of the connection; an empty name removes it.",
    since: "2.6.9",
    group: Group::Connection,
    arity: 3,
    flags: OWN,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: setname,
    ..Command::EMPTY
};

fn setname(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let name = client_name(args.get(2))?;
    rename(cx, |details| name.clone_into(&mut details.name));
    cx.reply.ok();
    Ok(())
}

/// Checks the argument of SETNAME: it may not break the word list of CLIENT LIST.
pub(super) fn client_name(text: &[u8]) -> Result<&str, Fail> {
    printable(text, b"Client names")
}

// Source: Redis 7.2 `networking.c`, `validateClientAttr`
fn printable<'t>(text: &'t [u8], what: &[u8]) -> Result<&'t str, Fail> {
    if text.len() > NAME_BYTES_MAX {
        let why = format!(" cannot be longer than {NAME_BYTES_MAX} bytes.");
        return Err(Fail::quoting("ERR ", what, &why));
    }
    let is_plain = text.iter().all(u8::is_ascii_graphic);
    str::from_utf8(text).ok().filter(|_| is_plain).ok_or_else(|| {
        Fail::quoting("ERR ", what, " cannot contain spaces, newlines or special characters.")
    })
}

/// Changes names of the connection in its session and in CLIENT LIST.
pub(super) fn rename(cx: &mut CommandContext<'_>, change: impl FnOnce(&mut Details)) {
    change(&mut cx.session.details);
    let mut published = cx.shared.published[cx.reactor.index].lock();
    if let Some(row) = published.clients.get_mut(&cx.session.id.0) {
        cx.session.rename_row(row);
    }
}

/// CLIENT UNBLOCK: ends the wait of another connection.
const UNBLOCK: Command = Command {
    name: "unblock",
    syntax: "client-id [TIMEOUT | ERROR]",
    summary: "Unblocks a blocked connection, as if by a timeout or with an error.",
    since: "5.0.0",
    complexity: "O(N) in the number of reactors",
    group: Group::Connection,
    arity: -3,
    flags: ADMIN_FLAGS,
    run: unblock,
    ..Command::EMPTY
};

fn unblock(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() > 4 {
        return Err(too_many_arguments("CLIENT", args));
    }
    let error = match args.try_get(3) {
        None => false,
        Some(reason) if is_option(reason, "TIMEOUT") => false,
        Some(reason) if is_option(reason, "ERROR") => true,
        Some(_) => {
            return Err(Fail::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let id = u64::try_from(integer(args.get(2))?).unwrap_or(0);
    let is_unblocked = send_unblock(cx, id, error);
    cx.reply.integer(i64::from(is_unblocked));
    Ok(())
}

/// Returns true if the client is blocked and the mail to its reactor was sent.
fn send_unblock(cx: &CommandContext<'_>, id: u64, error: bool) -> bool {
    let error = error.then_some("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    let mailboxes = cx.shared.links().mailboxes();
    cx.shared.published.iter().zip(mailboxes).any(|(published, mailbox)| {
        let mut published = published.lock();
        let Some(row) = published.clients.get_mut(&id).filter(|row| row.unblockable) else {
            return false;
        };
        let sent = mailbox.send(Mail::Unblock { id: ConnId(id), error }).is_ok();
        row.unblockable = !sent;
        sent
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printable_ascii_without_spaces() {
        assert_eq!(client_name(b""), Ok(""));
        assert_eq!(client_name(b"worker:1/~!"), Ok("worker:1/~!"));
        for text in [&b" "[..], b"a b", b"a\n", b"\x7f", b"\xc3\xa4", b"a\0"] {
            let fail = client_name(text).unwrap_err().to_string();
            let expected =
                "ERR Client names cannot contain spaces, newlines or special characters.";
            assert_eq!(fail, expected, "{text:?}");
        }
        assert!(client_name("x".repeat(NAME_BYTES_MAX).as_bytes()).is_ok());
        assert!(client_name("x".repeat(NAME_BYTES_MAX + 1).as_bytes()).is_err());
    }
}
