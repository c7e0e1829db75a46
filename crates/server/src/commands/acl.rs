//! ACL: users and their permissions.
//!
//! `rules` parses the rules of users, `check` compares a command with them, `access` is the check of
//! every request. The users themselves are in [`crate::engine::acl`].
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

mod access;
mod categories;
mod check;
mod file;
mod lasting;
mod log;
mod rules;
mod users;

use rand::Rng as _;
use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, integer};
use super::fail::{Fail, too_many_arguments};
use super::help;
use super::registry::{REGISTRY, is_secret_of_inner};
use crate::engine::acl::User;

pub(super) use access::{check_in_script, may_run, note_failed_login, recheck};
pub(crate) use check::check;
pub(crate) use file::load_at_start;
pub(crate) use lasting::{follow_users_of_subscriber, may_run as may_run_command};

const OWN: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE);
const ADMIN_FLAGS: Flags = OWN.and(Flags::ADMIN);

pub(crate) const ACL: Command = Command {
    name: "acl",
    summary: "A container for commands about users and their permissions.",
    since: "6.0.0",
    complexity: "Depends on the subcommand",
    group: Group::Server,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[
        &CAT,
        &users::DELUSER,
        &DRYRUN,
        &GENPASS,
        &users::GETUSER,
        &HELP,
        &users::LIST,
        &file::LOAD,
        &log::LOG,
        &file::SAVE,
        &users::SETUSER,
        &users::USERS,
        &WHOAMI,
    ],
    ..Command::EMPTY
};

/// A default user that may do everything, with any of the passwords. Without one it needs none.
// Source: Redis 7.2 `acl.c`, `ACLCreateDefaultUser`
pub(crate) fn default_user(passwords: &[&str]) -> User {
    let mut user = User::new(crate::engine::acl::DEFAULT_USER.as_bytes(), true);
    let mut apply = |rule: &str| {
        rules::apply(&mut user, rule.as_bytes(), true).expect("the rules are valid");
    };
    ["on", "+@all", "~*", "&*"].into_iter().for_each(&mut apply);
    if passwords.is_empty() {
        apply("nopass");
    }
    for password in passwords {
        apply(&format!(">{password}"));
    }
    user
}

/// ACL CAT: categories, or the commands of one.
const CAT: Command = Command {
    name: "cat",
    syntax: "[category]",
    summary: "Lists the categories of commands, or the commands of a category.",
    since: "6.0.0",
    complexity: "O(N) in the number of commands",
    group: Group::Server,
    arity: -2,
    flags: OWN,
    run: cat,
    ..Command::EMPTY
};

// Source: Redis 7.2 `acl.c`, `aclCommand`; this and the following ones
fn cat(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() > 3 {
        return Err(too_many_arguments("ACL", args));
    }
    let names: Vec<&str> = match args.try_get(2) {
        None => categories::NAMES.to_vec(),
        Some(name) => {
            const SHOWN_BYTES_MAX: usize = 128;
            let shown = &name[..name.len().min(SHOWN_BYTES_MAX)];
            let unknown = || Fail::quoting("ERR Unknown category '", shown, "'");
            categories::members(name).ok_or_else(unknown)?.collect()
        }
    };
    cx.reply.array(names.len());
    for name in names {
        cx.reply.bulk(name.as_bytes());
    }
    Ok(())
}

/// ACL DRYRUN: whether a user may run a command.
const DRYRUN: Command = Command {
    name: "dryrun",
    syntax: "username command [arg [arg ...]]",
    summary: "Checks whether a user may run a command with these arguments, without running it.",
    since: "7.0.0",
    group: Group::Server,
    arity: -4,
    flags: ADMIN_FLAGS,
    run: dryrun,
    is_secret: |args, at| is_secret_of_inner(args, 3, at),
    ..Command::EMPTY
};

fn dryrun(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let users = cx.shared.acl.users();
    let Some(user) = users.get(args.get(2)) else {
        return Err(Fail::quoting("ERR User '", args.get(2), "' not found"));
    };
    let request = args.skip(3);
    let found = REGISTRY.find_request(request);
    let Some(id) = found else {
        return Err(Fail::quoting("ERR Command '", request.get(0), "' not found"));
    };
    let entry = REGISTRY.entry(id);
    if !entry.command.arity_fits(request.len()) {
        return Err(Fail::arity(&entry.full_name));
    }
    match check(user, id, request) {
        Ok(()) => cx.reply.ok(),
        Err(denied) => cx.reply.bulk(&denied.text_with_name(user, entry, request)),
    }
    Ok(())
}

/// ACL GENPASS: a random password.
const GENPASS: Command = Command {
    name: "genpass",
    syntax: "[bits]",
    summary: "Returns a random password in hexadecimal digits.",
    since: "6.0.0",
    group: Group::Server,
    arity: -2,
    flags: OWN,
    run: genpass,
    ..Command::EMPTY
};

fn genpass(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    const BITS_MAX: usize = 4_096;
    if args.len() > 3 {
        return Err(too_many_arguments("ACL", args));
    }
    let bits = args.try_get(2).map_or(Ok(256), integer)?;
    let digits = usize::try_from(bits).ok().filter(|bits| (1..=BITS_MAX).contains(bits));
    let digits = digits.map(|bits| bits.div_ceil(4)).ok_or(Fail::text(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
         number up to 4096",
    ))?;
    // Not the reactor's generator: the next password must not follow from this one.
    let mut random = rand::rng();
    let digit = |_| b"0123456789abcdef"[random.random_range(0..16)];
    let password: Vec<u8> = (0..digits).map(digit).collect();
    cx.reply.bulk(&password);
    Ok(())
}

/// ACL HELP: the subcommands.
const HELP: Command =
    help::subcommand("Lists the subcommands of ACL.", "6.0.0", Group::Server, |cx, _| {
        help::reply(cx, &ACL)
    });

/// ACL WHOAMI: the user of this connection.
const WHOAMI: Command = Command {
    name: "whoami",
    summary: "Returns the name of the connection's user.",
    since: "6.0.0",
    group: Group::Server,
    arity: 2,
    flags: OWN,
    run: whoami,
    ..Command::EMPTY
};

fn whoami(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    cx.reply.bulk(&cx.session.identity.user().name);
    Ok(())
}
