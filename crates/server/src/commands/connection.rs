//! Connection state: AUTH, ECHO, HELLO, PING, QUIT, RESET, SELECT.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use std::sync::atomic::Ordering;

use base::time::MonoNs;
use store::{DATABASES, PARTITIONS_DB};
use wire::resp::{Args, Protocol, ReplyWriter};

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, integer, is_option};
use super::fail::Fail;
use super::generic::INDEX_TOO_LARGE;
use super::session::{ReplyMode, Wait, WaitReply};
use super::transactions::forget_watches;
use super::{acl, client, pubsub};
use crate::engine::acl::{DEFAULT_USER, Identity};
use crate::engine::gate::Gate;
use crate::engine::named_databases;
use crate::engine::secret::FAILED_LOGIN_NS;

/// Redis version whose commands and replies this server implements: clients choose features by it.
pub(crate) const REDIS_VERSION: &str = "7.2.4";

const FAST: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::FAST);

/// Commands that establish or end a connection.
const ALWAYS: Flags =
    FAST.and(Flags::NO_HTTP).and(Flags::NOSCRIPT).and(Flags::NO_AUTH).and(Flags::ALLOW_BUSY);

/// QUIT and RESET, which also abandon a transaction.
const ENDS: Flags = ALWAYS.and(Flags::UNQUEUED).and(Flags::ABANDONS);

pub(crate) const AUTH: Command = Command {
    name: "auth",
    syntax: "[username] password",
    summary: "Authenticates the connection.",
    since: "1.0.0",
    complexity: "O(N) in the length of the password",
    group: Group::Connection,
    arity: -2,
    flags: ALWAYS,
    is_secret: |_, at| at >= 1,
    run: auth,
    ..Command::EMPTY
};

fn auth(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    match args.len() {
        2 => {
            if cx.shared.acl.users().default_user().takes_any_password {
                return Err(Fail::text(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            let login = log_in(cx, args.get(0), DEFAULT_USER.as_bytes(), args.get(1));
            end_auth(cx, login)
        }
        3 => {
            let login = log_in(cx, args.get(0), args.get(1), args.get(2));
            end_auth(cx, login)
        }
        _ => Err(Fail::Syntax),
    }
}

fn end_auth(cx: &mut CommandContext<'_>, login: Login) -> Done {
    match login {
        Login::Granted => cx.reply.ok(),
        Login::Refused => refuse_login(cx)?,
    }
    Ok(())
}

/// Outcome of a password check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Login {
    Granted,
    Refused,
}

/// Authenticates the connection as a user. `command`: the name of the command.
fn log_in(cx: &mut CommandContext<'_>, command: &[u8], user: &[u8], password: &[u8]) -> Login {
    if let Some(identity) = Identity::log_in(&cx.shared.acl, user, password) {
        cx.session.identity = identity;
        Login::Granted
    } else {
        acl::note_failed_login(cx, command, user);
        Login::Refused
    }
}

/// Replies to a wrong password. An unauthenticated connection waits for the reply, as in CQL, so
/// that guessing is slow.
fn refuse_login(cx: &mut CommandContext<'_>) -> Done {
    const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
    if cx.session.identity.is_authenticated() || cx.in_exec {
        return Err(Fail::text(WRONG));
    }
    cx.reactor.tally.error(Some(cx.session.last_command), WRONG);
    let mut delayed = Vec::new();
    ReplyWriter::new(&mut delayed, cx.session.protocol).error(WRONG);
    cx.session.details.rare().delayed_reply = Some(delayed);
    let at = MonoNs(cx.now.mono.0.saturating_add(FAILED_LOGIN_NS));
    cx.session.wait = Some(Wait::Until { at, reply: WaitReply::Delayed });
    Ok(())
}

pub(crate) const ECHO: Command = Command {
    name: "echo",
    syntax: "message",
    summary: "Returns the given string.",
    since: "1.0.0",
    group: Group::Connection,
    arity: 2,
    flags: FAST,
    run: echo,
    ..Command::EMPTY
};

fn echo(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    cx.reply.bulk(args.get(1));
    Ok(())
}

pub(crate) const HELLO: Command = Command {
    name: "hello",
    syntax: "[protover [AUTH username password] [SETNAME clientname]]",
    summary: "Switches the protocol version and describes the server.",
    since: "6.0.0",
    group: Group::Connection,
    arity: -1,
    flags: ALWAYS,
    is_secret: |args, at| {
        let follows = |back| at >= 2 + back && is_option(args.get(at - back), "AUTH");
        follows(1) || follows(2)
    },
    run: hello,
    ..Command::EMPTY
};

// Source: Redis 7.2 `networking.c`, `helloCommand`
fn hello(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let protocol = args.try_get(1).map(protocol_version).transpose()?;
    let HelloOptions { login, name } = HelloOptions::parse(args.skip(2))?;
    if let Some((user, password)) = login
        && log_in(cx, args.get(0), user, password) == Login::Refused
    {
        return refuse_login(cx);
    }
    if !cx.session.identity.is_authenticated() {
        return Err(Fail::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and select the \
             RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        client::rename(cx, |details| name.clone_into(&mut details.name));
    }
    if let Some(protocol) = protocol {
        speak(cx, protocol);
    }
    introduce(cx);
    Ok(())
}

#[derive(Debug, Default)]
struct HelloOptions<'a> {
    /// User and password.
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a str>,
}

impl<'a> HelloOptions<'a> {
    fn parse(mut rest: Args<'a>) -> Result<HelloOptions<'a>, Fail> {
        let mut options = HelloOptions::default();
        while let Some(option) = rest.try_get(0) {
            match (rest.try_get(1), rest.try_get(2)) {
                (Some(user), Some(password)) if is_option(option, "AUTH") => {
                    options.login = Some((user, password));
                    rest = rest.skip(3);
                }
                (Some(text), _) if is_option(option, "SETNAME") => {
                    options.name = Some(client::client_name(text)?);
                    rest = rest.skip(2);
                }
                _ => {
                    return Err(Fail::quoting("ERR Syntax error in HELLO option '", option, "'"));
                }
            }
        }
        Ok(options)
    }
}

fn protocol_version(text: &[u8]) -> Result<Protocol, Fail> {
    match integer(text) {
        Ok(2) => Ok(Protocol::Resp2),
        Ok(3) => Ok(Protocol::Resp3),
        Ok(_) => Err(Fail::text("NOPROTO unsupported protocol version")),
        Err(_) => Err(Fail::text("ERR Protocol version is not an integer or out of range")),
    }
}

/// Switches the protocol, starting with this reply.
fn speak(cx: &mut CommandContext<'_>, protocol: Protocol) {
    cx.session.protocol = protocol;
    cx.reply.protocol = protocol;
}

fn introduce(cx: &mut CommandContext<'_>) {
    let version = match cx.session.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    let mode = if cx.reactor.settings.cluster_view { "cluster" } else { "standalone" };
    let reply = &mut cx.reply;
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(version);
    reply.bulk(b"id");
    reply.integer(client::id_of(cx.session));
    for (field, value) in [("mode", mode), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

pub(crate) const PING: Command = Command {
    name: "ping",
    syntax: "[message]",
    summary: "Returns PONG or the given string.",
    since: "1.0.0",
    group: Group::Connection,
    arity: -1,
    flags: Flags::FAST.and(Flags::SUBSCRIBER),
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    run: ping,
    ..Command::EMPTY
};

// Source: Redis 7.2 `server.c`, `pingCommand`
fn ping(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    match args.len() {
        // Formatted as a message: a subscribed RESP2 connection receives nothing else.
        1 | 2 if pubsub::only_listens(cx.session) => {
            cx.reply.array(2);
            cx.reply.bulk(b"pong");
            cx.reply.bulk(args.try_get(1).unwrap_or_default());
        }
        1 => cx.reply.simple("PONG"),
        2 => cx.reply.bulk(args.get(1)),
        _ => return Err(Fail::arity(PING.name)),
    }
    Ok(())
}

pub(crate) const QUIT: Command = Command {
    name: "quit",
    summary: "Closes the connection after all replies are sent.",
    since: "1.0.0",
    group: Group::Connection,
    arity: -1,
    flags: ENDS.and(Flags::SUBSCRIBER),
    run: quit,
    ..Command::EMPTY
};

fn quit(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    cx.reply.ok();
    cx.session.closing = true;
    Ok(())
}

pub(crate) const RESET: Command = Command {
    name: "reset",
    summary: "Resets the connection to its initial state.",
    since: "6.2.0",
    group: Group::Connection,
    arity: 1,
    flags: ENDS.and(Flags::SUBSCRIBER),
    run: reset,
    ..Command::EMPTY
};

/// Preserves the library's name and version: the client program is still the same.
// Source: Redis 7.2 `networking.c`, `clearClientConnectionState`
fn reset(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    if std::mem::take(&mut cx.session.monitor) {
        cx.shared.monitors.fetch_sub(1, Ordering::Relaxed);
    }
    cx.session.transaction = None;
    cx.reactor.accounts.resp().unqueue(&mut cx.session.charges);
    forget_watches(cx);
    pubsub::forget_all(cx);
    client::end_tracking(cx.shared, cx.session);
    let settings = cx.shared.settings.load();
    let session = &mut *cx.session;
    session.db = 0;
    session.reply_mode = ReplyMode::On;
    session.no_evict = false;
    session.no_touch = false;
    session.identity = Identity::newcomer(&cx.shared.acl);
    session.durability = settings.durability;
    client::rename(cx, |details| details.name.clear());
    speak(cx, Protocol::Resp2);
    cx.reply.simple("RESET");
    Ok(())
}

pub(crate) const SELECT: Command = Command {
    name: "select",
    syntax: "index",
    summary: "Selects the database of the connection, by its number or a name of CREATEDB.",
    since: "1.0.0",
    group: Group::Connection,
    arity: 2,
    flags: FAST.and(Flags::SELECTS).and(Flags::NO_HTTP),
    run: select,
    ..Command::EMPTY
};

fn select(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let Ok(index) = integer(args.get(1)) else { return select_by_name(cx, args.get(1)) };
    if i32::try_from(index).is_err() {
        return Err(INDEX_TOO_LARGE);
    }
    cx.session.db = database(index).ok_or(Fail::text("ERR DB index is out of range"))?;
    cx.reply.ok();
    Ok(())
}

fn select_by_name(cx: &mut CommandContext<'_>, name: &[u8]) -> Done {
    // The keys of a transaction are locked before it runs, by the numbers that SELECT names.
    if cx.in_exec {
        return Err(Fail::NotInteger);
    }
    let hash = named_databases::stored_hash();
    let (shared, params) = (cx.shared, cx.locked.params());
    let gives_up = cx.reactor.patience(&shared.running_scripts);
    let Some(names) = shared.keyspace.lock_one_unless(hash, params, gives_up) else {
        cx.reactor.is_contended = true;
        return Ok(());
    };
    cx.session.db = named_databases::find(&names, name).ok_or(Fail::NotInteger)?;
    cx.gate = cx.gate.max(Gate::of(&names, PARTITIONS_DB, hash));
    drop(names);
    cx.reply.ok();
    Ok(())
}

/// Returns the database with this number.
pub(crate) fn database(index: i64) -> Option<u8> {
    u8::try_from(index).ok().filter(|db| usize::from(*db) < DATABASES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_2_and_3() {
        assert_eq!(protocol_version(b"2"), Ok(Protocol::Resp2));
        assert_eq!(protocol_version(b"3"), Ok(Protocol::Resp3));
        for text in ["1", "4", "-3", "9223372036854775807"] {
            let fail = protocol_version(text.as_bytes()).unwrap_err().to_string();
            assert_eq!(fail, "NOPROTO unsupported protocol version");
        }
        for text in ["", "x", "03", "3.0"] {
            let fail = protocol_version(text.as_bytes()).unwrap_err().to_string();
            assert_eq!(fail, "ERR Protocol version is not an integer or out of range");
        }
    }
}
