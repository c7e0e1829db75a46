//! ACL SETUSER, GETUSER, DELUSER, LIST and USERS.

use wire::resp::Args;

use super::rules::{self, Refusal, TOO_MANY_RULES};
use super::{ADMIN_FLAGS, access};
use crate::commands::command::{Command, Done, Group};
use crate::commands::context::{CommandContext, reply_names};
use crate::commands::fail::Fail;
use crate::engine::acl::{DEFAULT_USER, Selector, TooManyUsers, User};

/// ACL SETUSER: creates a user, or changes its rules.
pub(super) const SETUSER: Command = Command {
    name: "setuser",
    syntax: "username [rule [rule ...]]",
    summary: "Creates a user with the given rules, or applies them to an existing user.",
    since: "6.0.0",
    complexity: "O(N) in the number of rules given and of all users",
    group: Group::Server,
    arity: -3,
    flags: ADMIN_FLAGS,
    is_secret: |_, at| at >= 2,
    run: set_user,
    ..Command::EMPTY
};

fn set_user(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let name = args.get(2);
    if rules::has_spaces(name) {
        return Err(Fail::text("ERR Usernames can't contain spaces or null characters"));
    }
    access::change_users(cx, |users, settings| {
        let channels_by_default = settings.acl_pubsub_default.gives_all();
        let mut user = match users.get(name) {
            Some(known) => User::clone(known),
            None => User::new(name, channels_by_default),
        };
        rules::apply_all(&mut user, args.iter().skip(3), channels_by_default).map_err(refused)?;
        users.insert(user).map_err(too_many)
    })?;
    cx.reply.ok();
    Ok(())
}

pub(super) fn too_many(error: TooManyUsers) -> Fail {
    Fail::owned(format!("ERR {error}"))
}

fn refused(refusal: Refusal) -> Fail {
    match refusal {
        Refusal::OpenSelector(start) => {
            Fail::quoting("ERR Unmatched parenthesis in acl selector starting at '", &start, "'.")
        }
        Refusal::Rule { modifier, error } => {
            Fail::quoting("ERR Error in ACL SETUSER modifier '", &modifier, &format!("': {error}"))
        }
        Refusal::TooMany => Fail::owned(format!("ERR {TOO_MANY_RULES}")),
    }
}

/// ACL DELUSER: removes users, and closes their connections.
pub(super) const DELUSER: Command = Command {
    name: "deluser",
    syntax: "username [username ...]",
    summary: "Removes users and closes their connections; returns the number of users removed.",
    since: "6.0.0",
    complexity: "O(N) in the number of users",
    group: Group::Server,
    arity: -3,
    flags: ADMIN_FLAGS,
    run: delete_users,
    ..Command::EMPTY
};

fn delete_users(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let names = args.skip(2);
    if names.iter().any(|name| name == DEFAULT_USER.as_bytes()) {
        return Err(Fail::text("ERR The 'default' user cannot be removed"));
    }
    let removed = access::change_users(cx, |users, _| {
        Ok(names.iter().filter(|name| users.remove(name)).count())
    })?;
    cx.reply.count(removed);
    Ok(())
}

/// ACL GETUSER: the rules of one user.
pub(super) const GETUSER: Command = Command {
    name: "getuser",
    syntax: "username",
    summary: "Returns the rules of a user.",
    since: "6.0.0",
    complexity: "O(N) in the number of the user's rules",
    group: Group::Server,
    arity: 3,
    flags: ADMIN_FLAGS,
    run: get_user,
    ..Command::EMPTY
};

fn get_user(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let users = cx.shared.acl.users();
    let Some(user) = users.get(args.get(2)) else {
        cx.reply.null();
        return Ok(());
    };
    let flags: Vec<&str> = user.flags().collect();
    cx.reply.map(6);
    cx.reply.bulk(b"flags");
    reply_names(&mut cx.reply, &flags);
    cx.reply.bulk(b"passwords");
    cx.reply.array(user.passwords.len());
    for password in &user.passwords {
        cx.reply.bulk(password.hex().as_bytes());
    }
    write_selector(cx, &user.root);
    cx.reply.bulk(b"selectors");
    cx.reply.array(user.selectors.len());
    for selector in &user.selectors {
        cx.reply.map(3);
        write_selector(cx, selector);
    }
    Ok(())
}

/// Writes three fields of a map.
// Source: Redis 7.2 `acl.c`, `aclAddReplySelectorDescription`
fn write_selector(cx: &mut CommandContext<'_>, selector: &Selector) {
    type Describe = fn(&Selector, &mut Vec<u8>);
    let fields: [(&[u8], Describe); 3] = [
        (b"commands", Selector::describe_commands),
        (b"keys", Selector::describe_keys),
        (b"channels", Selector::describe_channels),
    ];
    for (name, describe) in fields {
        let mut text = Vec::new();
        describe(selector, &mut text);
        cx.reply.bulk(name);
        cx.reply.bulk(&text);
    }
}

/// ACL LIST: the rules of all users.
pub(super) const LIST: Command = Command {
    name: "list",
    summary: "Lists all users with their rules, as lines of the ACL file.",
    since: "6.0.0",
    complexity: "O(N) in the number of users and rules",
    group: Group::Server,
    arity: 2,
    flags: ADMIN_FLAGS,
    run: |cx, _| write_users(cx, User::line),
    ..Command::EMPTY
};

/// ACL USERS: the names of all users.
pub(super) const USERS: Command = Command {
    name: "users",
    summary: "Lists the names of all users.",
    complexity: "O(N) in the number of users",
    run: |cx, _| write_users(cx, |user| user.name.to_vec()),
    ..LIST
};

fn write_users(cx: &mut CommandContext<'_>, text: fn(&User) -> Vec<u8>) -> Done {
    let users = cx.shared.acl.users();
    cx.reply.array(users.iter().len());
    for user in users.iter() {
        cx.reply.bulk(&text(user));
    }
    Ok(())
}
