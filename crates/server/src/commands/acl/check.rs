//! Whether a user may run a command with its arguments.

use smallvec::SmallVec;
use wire::resp::Args;

use crate::commands::command::{ChannelAccess, Command, Flags, KeyAccess};
use crate::commands::fail::shown;
use crate::commands::registry::{Entry, REGISTRY};
use crate::engine::acl::{Selector, User};
use crate::engine::glob::Steps;
use crate::engine::requests::RequestId;

/// What a user may not do; in the order in which selectors' reasons take precedence.
// Source: Redis 7.2 `server.h`, `ACL_DENIED_CMD` and others
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denied {
    /// Run the command.
    Command,
    /// Access the key at this position of the arguments.
    Key(usize),
    /// Access the channel at this position of the arguments.
    Channel(usize),
}

impl Denied {
    /// The reason for the client: `NOPERM` and this text.
    // Source: Redis 7.2 `acl.c`, `getAclErrorMessage`
    pub(crate) fn text(self, user: &User, entry: &Entry) -> Vec<u8> {
        match self {
            Denied::Command => {
                let name = entry.full_name.as_bytes();
                let user = shown(&user.name);
                [b"User ", user, b" has no permissions to run the '", name, b"' command"].concat()
            }
            Denied::Key(_) => b"No permissions to access a key".to_vec(),
            Denied::Channel(_) => b"No permissions to access a channel".to_vec(),
        }
    }

    /// The reason for an administrator: it names the key or the channel.
    pub(crate) fn text_with_name(self, user: &User, entry: &Entry, args: Args<'_>) -> Vec<u8> {
        let (at, kind) = match self {
            Denied::Command => return self.text(user, entry),
            Denied::Key(at) => (at, "key"),
            Denied::Channel(at) => (at, "channel"),
        };
        let name = args.get(at);
        let user = &*user.name;
        let after = [b"' ", kind.as_bytes()].concat();
        [b"User ", user, b" has no permissions to access the '", name, &after].concat()
    }
}

/// Checks a command with its arguments, which begin with its name (or with its container's). The
/// first selector that permits it is enough; otherwise the reasons of one of them are returned.
///
/// If the keys cannot be determined, or arguments are missing, none are checked: the command itself
/// rejects its arguments.
// Source: Redis 7.2 `acl.c`, `ACLCheckAllUserCommandPerm`
pub(crate) fn check(user: &User, id: RequestId, args: Args<'_>) -> Result<(), Denied> {
    if user.is_unrestricted() {
        return Ok(());
    }
    let request = Request { id, command: REGISTRY.entry(id).command, args };
    let mut reason = Denied::Command;
    for selector in user.all_selectors() {
        match request.check(selector) {
            Ok(()) => return Ok(()),
            Err(denied) => reason = reason.max(denied),
        }
    }
    Err(reason)
}

#[derive(Debug, Clone, Copy)]
struct Request<'a> {
    id: RequestId,
    command: &'static Command,
    args: Args<'a>,
}

impl Request<'_> {
    // Source: Redis 7.2 `acl.c`, `ACLSelectorCheckCmd`
    fn check(self, selector: &Selector) -> Result<(), Denied> {
        if !self.is_command_permitted(selector) {
            return Err(Denied::Command);
        }
        let steps = Steps::default();
        if !selector.has_all_keys {
            self.check_keys(selector, &steps)?;
        }
        if !selector.has_all_channels {
            self.check_channels(selector, &steps)?;
        }
        Ok(())
    }

    fn is_command_permitted(self, selector: &Selector) -> bool {
        if selector.allowed.contains(self.id) || self.command.flags.has(Flags::NO_AUTH) {
            return true;
        }
        let Some(known) = selector.first_arguments.get(&self.id) else { return false };
        let first = self.args.try_get(1);
        first.is_some_and(|first| known.iter().any(|known| known.eq_ignore_ascii_case(first)))
    }

    fn check_keys(self, selector: &Selector, steps: &Steps) -> Result<(), Denied> {
        if self.command.reads_other_keys(self.args) {
            return Err(Denied::Key(1));
        }
        let mut denied: SmallVec<[usize; 1]> = SmallVec::new();
        // An error means that there are no keys to check.
        let _ = self.command.key_positions(self.args, |at, access| {
            if denied.is_empty() && !self.permits_key(selector, at, access, steps) {
                denied.push(at);
            }
        });
        denied.first().map_or(Ok(()), |at| Err(Denied::Key(*at)))
    }

    fn permits_key(self, selector: &Selector, at: usize, access: KeyAccess, steps: &Steps) -> bool {
        let flags = access.of_request(self.args).flag_names();
        let reads = flags.contains(&"access");
        let writes = ["insert", "delete", "update"].iter().any(|flag| flags.contains(flag));
        selector.permits_key(self.args.get(at), reads, writes, steps)
    }

    fn check_channels(self, selector: &Selector, steps: &Steps) -> Result<(), Denied> {
        let (last, is_pattern) = match self.command.channel_access {
            ChannelAccess::None => return Ok(()),
            ChannelAccess::First => (1, false),
            ChannelAccess::All => (self.args.len() - 1, false),
            ChannelAccess::Patterns => (self.args.len() - 1, true),
        };
        for at in 1..=last {
            // A script may ask about a request without its arguments.
            let Some(name) = self.args.try_get(at) else { break };
            let is_permitted = if is_pattern {
                selector.permits_channel_pattern(name)
            } else {
                selector.permits_channel(name, steps)
            };
            if !is_permitted {
                return Err(Denied::Channel(at));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wire::resp::OwnedArgs;

    use super::*;
    use crate::commands::acl::rules;

    fn user(text: &str) -> User {
        let mut user = User::new(b"app", false);
        rules::apply_all(&mut user, text.split(' ').map(str::as_bytes), false).unwrap();
        user
    }

    #[track_caller]
    fn check_request(rules: &str, request: &str, expected: Result<(), Denied>) {
        let args: OwnedArgs = request.split(' ').collect();
        let args = args.as_args();
        let mut id = REGISTRY.find(args.get(0)).unwrap();
        if let Some(child) = args.try_get(1).and_then(|name| REGISTRY.find_child(id, name)) {
            id = child;
        }
        assert_eq!(check(&user(rules), id, args), expected, "{rules}: {request}");
    }

    #[test]
    fn commands_are_permitted_one_by_one() {
        check_request("+get ~*", "get k", Ok(()));
        check_request("+get ~*", "set k v", Err(Denied::Command));
        check_request("+@all -get ~*", "get k", Err(Denied::Command));
        check_request("+@all -@write +set ~*", "set k v", Ok(()));
        check_request("+@all +set -@write ~*", "set k v", Err(Denied::Command));
        check_request("+config|get", "config get a", Ok(()));
        check_request("+config|get", "config set a b", Err(Denied::Command));
        check_request("+config -config|set", "config set a b", Err(Denied::Command));
        check_request("-@all", "auth a b", Ok(()));
    }

    #[test]
    fn a_first_argument_can_be_required() {
        check_request("-select +select|0", "select 0", Ok(()));
        check_request("-select +select|0", "select 1", Err(Denied::Command));
        check_request("+select|0 -select", "select 0", Err(Denied::Command));
        check_request("+select|0 -@connection", "select 0", Err(Denied::Command));
        check_request("+select|0 +@all -select", "select 0", Err(Denied::Command));
    }

    #[test]
    fn keys_need_patterns_for_their_access() {
        check_request("+@all ~a*", "mget a1 a2", Ok(()));
        check_request("+@all ~a*", "mget a1 b a2", Err(Denied::Key(2)));
        check_request("+@all %R~a*", "get a", Ok(()));
        check_request("+@all %R~a*", "set a v", Err(Denied::Key(1)));
        check_request("+@all %W~a*", "set a v", Ok(()));
        check_request("+@all %W~a*", "set a v get", Err(Denied::Key(1)));
        check_request("+@all %W~a*", "exists a", Ok(()));
        check_request("+@all %R~src %W~dst", "copy src dst", Ok(()));
        check_request("+@all %R~src %W~dst", "copy dst src", Err(Denied::Key(1)));
        check_request("+@all", "ping", Ok(()));
        check_request("+@all ~a", "zunion 1 b", Err(Denied::Key(2)));
        check_request("+@all ~a", "zunion x b", Ok(()));
    }

    #[test]
    fn channels_are_matched_but_patterns_are_not() {
        check_request("+@all &n.*", "publish n.a m", Ok(()));
        check_request("+@all &n.*", "publish m n.a", Err(Denied::Channel(1)));
        check_request("+@all &n.*", "subscribe n.a n.b x", Err(Denied::Channel(3)));
        check_request("+@all &n.*", "psubscribe n.*", Ok(()));
        check_request("+@all &n.*", "psubscribe n.a", Err(Denied::Channel(1)));
        check_request("+@all &n.*", "ssubscribe n.a", Ok(()));
        check_request("+@all &n.*", "spublish x m", Err(Denied::Channel(1)));
        check_request("+@all", "unsubscribe x", Ok(()));
        check_request("+@all", "pubsub channels", Ok(()));
    }

    #[test]
    fn one_selector_must_permit_everything() {
        check_request("+get ~a (+set ~b)", "set b v", Ok(()));
        check_request("+get ~a (+set ~b)", "set a v", Err(Denied::Key(1)));
        check_request("+get ~a (+set ~b)", "get b", Err(Denied::Key(1)));
        check_request("+get ~a (+set ~b)", "del b", Err(Denied::Command));
        check_request("+mget ~a (+mget ~a ~b)", "mget a b c", Err(Denied::Key(3)));
        check_request("+get (allkeys +@all &c)", "publish x m", Err(Denied::Channel(1)));
    }

    #[test]
    fn requests_without_arguments_can_be_checked() {
        let user = user("+@all ~a &x");
        for (id, entry) in REGISTRY.entries() {
            let args: OwnedArgs = entry.full_name.split('|').collect();
            // Whether it is permitted differs; there is an answer.
            let _ = check(&user, id, args.as_args());
        }
        check_request("+@all ~a &x", "publish", Ok(()));
    }

    #[test]
    fn reasons_are_in_redis_words() {
        let user = user("+get");
        let args: OwnedArgs = ["get", "k1"].into_iter().collect();
        let entry = REGISTRY.entry(REGISTRY.find(b"get").unwrap());
        let text = |denied: Denied| String::from_utf8(denied.text(&user, entry)).unwrap();
        let named = Denied::Key(1).text_with_name(&user, entry, args.as_args());
        assert_eq!(text(Denied::Command), "User app has no permissions to run the 'get' command");
        assert_eq!(text(Denied::Key(1)), "No permissions to access a key");
        assert_eq!(text(Denied::Channel(1)), "No permissions to access a channel");
        assert_eq!(named, b"User app has no permissions to access the 'k1' key");
    }
}
