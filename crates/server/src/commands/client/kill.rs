//! CLIENT KILL: closes connections by address or by filters.

use std::net::SocketAddr;

use base::time::MonoNs;
use wire::resp::Args;

use super::ADMIN_FLAGS;
use super::rows::ClientType;
use crate::commands::command::{Command, Done, Flags, Group};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::Fail;
use crate::engine::acl::Users;
use crate::engine::client_row::ClientRow;
use crate::engine::mail::Mail;
use reactor::ConnId;

/// CLIENT KILL: closes one connection, or all that match the filters.
pub(super) const KILL: Command = Command {
    name: "kill",
    syntax: "<ip:port | [ID client-id] [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] \
             [USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME <YES | NO>] \
             [MAXAGE seconds]>",
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
        let filter = Filter { skips_me: false, ..Filter::default().with_remote(args.get(2)) };
        if kill_all(cx, &filter) == 0 {
            return Err(Fail::text("ERR No such client"));
        }
        cx.reply.ok();
        return Ok(());
    }
    let filter = Filter::parse(args.skip(2), &cx.shared.acl.users())?;
    let killed = kill_all(cx, &filter);
    cx.reply.integer(killed);
    Ok(())
}

/// Filters that a connection must match to be closed.
#[derive(Debug, PartialEq, Eq)]
struct Filter {
    id: Option<u64>,
    remote: Option<SocketAddr>,
    local: Option<SocketAddr>,
    kind: Option<ClientType>,
    user: Option<Box<[u8]>>,
    age_seconds_min: u64,
    /// True if no connection of this server can match.
    nobody: bool,
    skips_me: bool,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter {
            id: None,
            remote: None,
            local: None,
            kind: None,
            user: None,
            age_seconds_min: 0,
            nobody: false,
            skips_me: true,
        }
    }
}

impl Filter {
    // Source: Redis 7.2 `networking.c`, `clientCommand`; MAXAGE as in 7.4
    fn parse(options: Args<'_>, users: &Users) -> Result<Filter, Fail> {
        let mut filter = Filter::default();
        let mut at = 0;
        while let Some(option) = options.try_get(at) {
            let value = options.try_get(at + 1).ok_or(Fail::Syntax)?;
            filter = filter.with(option, value, users)?;
            at += 2;
        }
        Ok(filter)
    }

    fn with(mut self, option: &[u8], value: &[u8], users: &Users) -> Result<Filter, Fail> {
        if is_option(option, "ID") {
            let id = integer(value).ok().and_then(|id| u64::try_from(id).ok());
            let id = id.filter(|id| *id > 0);
            self.id = Some(id.ok_or(Fail::text("ERR client-id should be greater than 0"))?);
        } else if is_option(option, "TYPE") {
            self.kind = Some(ClientType::parse(value)?);
        } else if is_option(option, "ADDR") {
            self = self.with_remote(value);
        } else if is_option(option, "LADDR") {
            self.local = address(value);
            self.nobody |= self.local.is_none();
        } else if is_option(option, "USER") {
            let user = users.get(value).map(|user| user.name.clone());
            let unknown = || Fail::quoting("ERR No such user '", value, "'");
            self.user = Some(user.ok_or_else(unknown)?);
        } else if is_option(option, "SKIPME") {
            self.skips_me = is_option(value, "YES");
            if !self.skips_me && !is_option(value, "NO") {
                return Err(Fail::Syntax);
            }
        } else if is_option(option, "MAXAGE") {
            let seconds = u64::try_from(integer(value)?).unwrap_or(0);
            if seconds == 0 {
                return Err(Fail::text("ERR maxage should be greater than 0"));
            }
            self.age_seconds_min = seconds;
        } else {
            return Err(Fail::Syntax);
        }
        Ok(self)
    }

    /// An invalid address matches no connection.
    fn with_remote(mut self, text: &[u8]) -> Filter {
        self.remote = address(text);
        self.nobody |= self.remote.is_none();
        self
    }

    fn fits(&self, row: &ClientRow, now: MonoNs) -> bool {
        !self.nobody
            && self.id.is_none_or(|id| id == row.id)
            && self.remote.is_none_or(|remote| Some(remote) == row.remote)
            && self.local.is_none_or(|local| Some(local) == row.local)
            && self.kind.is_none_or(|kind| kind == ClientType::of(row))
            && self.user.as_ref().is_none_or(|user| **user == *row.user_name())
            && now.since(row.opened) / 1_000_000_000 >= self.age_seconds_min
    }
}

fn address(text: &[u8]) -> Option<SocketAddr> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// Closes the matching connections; this connection closes after its reply. Returns their number.
fn kill_all(cx: &mut CommandContext<'_>, filter: &Filter) -> i64 {
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
            if row.killed || (is_me && filter.skips_me) || !filter.fits(row, now) {
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

#[cfg(test)]
mod tests {
    use wire::resp::OwnedArgs;

    use super::*;
    use crate::commands::acl::default_user;
    use crate::commands::session::Session;
    use crate::config::Durability;
    use crate::engine::acl::Identity;
    use reactor::Peer;

    fn parse(text: &str) -> Result<Filter, Fail> {
        let args: OwnedArgs = text.split(' ').collect();
        Filter::parse(args.as_args(), &Users::new(default_user("")))
    }

    fn row() -> ClientRow {
        let peer = Peer {
            remote: Some("127.0.0.1:5001".parse().unwrap()),
            local: Some("[::1]:6379".parse().unwrap()),
            listener: 0,
        };
        let session =
            Session::new(ConnId(7), &peer, MonoNs(0), Identity::anyone(), Durability::Never);
        session.row(0, MonoNs(0))
    }

    #[test]
    fn all_filters_must_fit() {
        let now = MonoNs(10_999_999_999);
        for text in [
            "ID 7",
            "id 7 addr 127.0.0.1:5001 laddr [::1]:6379 type normal user default",
            "MAXAGE 10",
            "SKIPME no",
        ] {
            assert!(parse(text).unwrap().fits(&row(), now), "{text}");
        }
        for text in [
            "ID 8",
            "ADDR 127.0.0.1:5002",
            "ADDR here",
            "LADDR 127.0.0.1:5001",
            "TYPE pubsub",
            "MAXAGE 11",
            "ID 7 TYPE master",
        ] {
            assert!(!parse(text).unwrap().fits(&row(), now), "{text}");
        }
        assert!(parse("ID 7").unwrap().skips_me);
        assert!(!parse("ID 7 SKIPME NO").unwrap().skips_me);
    }

    #[test]
    fn refusals_are_in_redis_words() {
        for (text, expected) in [
            ("ID 0", "ERR client-id should be greater than 0"),
            ("ID x", "ERR client-id should be greater than 0"),
            ("TYPE x", "ERR Unknown client type 'x'"),
            ("USER x", "ERR No such user 'x'"),
            ("SKIPME x", "ERR syntax error"),
            ("MAXAGE 0", "ERR maxage should be greater than 0"),
            ("MAXAGE x", "ERR value is not an integer or out of range"),
            ("ID 1 ADDR", "ERR syntax error"),
            ("NONSENSE 1", "ERR syntax error"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
