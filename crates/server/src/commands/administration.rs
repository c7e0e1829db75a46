//! Commands that the spare reactor serves: what operators need while the other reactors are stalled
//! or full, or overloaded.

use super::command::{Command, Done, Flags, Group};
use super::fail::Fail;
use super::registry::{Entry, REGISTRY};
use super::session::Session;
use crate::engine::context::ReactorContext;
use crate::engine::requests::RequestId;

/// The error of a request that has waited for too long. Clients retry errors with this prefix:
/// go-redis, and the cluster clients of other languages.
pub(crate) const OVERLOADED: &str = "TRYAGAIN the server is overloaded and the request has waited \
                                     for too long; it was not executed";

/// Whether the spare reactor runs the command: it needs no data, so that it waits for no lock of
/// another reactor, and ends soon.
pub(super) fn is_administrative(command: &Command) -> bool {
    let excluded = Flags::ALL_KEYS.and(Flags::RUNS_SCRIPT).and(Flags::WAITS).and(Flags::TRACKS);
    let is_of_group = match command.group {
        Group::Connection | Group::Server => true,
        Group::Scripting => command.flags.has(Flags::ALLOW_BUSY),
        _ => false,
    };
    is_of_group && command.keys.is_empty() && !command.flags.has(excluded)
}

impl ReactorContext<'_> {
    /// Whether a connection of the spare reactor must move to a regular one for this request.
    pub(crate) fn must_leave(&self, session: &Session, id: Option<RequestId>) -> bool {
        let may_leave = session.may_move() && !self.reactor.is_draining;
        let is_served = id.is_none_or(|id| REGISTRY.entry(id).is_administrative);
        may_leave && !is_served && !self.is_busy()
    }

    /// Refuses a request that has waited for too long in an overloaded reactor. Commands of
    /// administration, and commands that Redis serves while it is busy, are served: they are cheap,
    /// or end something.
    #[cold]
    pub(super) fn check_age(&mut self, session: &Session, entry: &Entry) -> Done {
        let exempt = Flags::ALLOW_BUSY.and(Flags::SUBSCRIBER);
        if entry.is_administrative || entry.command.flags.has(exempt) || session.is_rerun() {
            return Ok(());
        }
        self.reactor.tally.totals.refused_old += 1;
        Err(Fail::text(OVERLOADED))
    }

    /// Refuses a request that the spare reactor does not serve.
    #[cold]
    pub(super) fn check_spare(&self, session: &Session) -> Done {
        if session.is_pinned {
            return Err(Fail::text(
                "ERR this address serves only commands of administration, such as INFO, CONFIG, \
                 CLIENT, ACL and SCRIPT KILL",
            ));
        }
        if !self.is_busy() {
            return Ok(());
        }
        Err(Fail::text(self.shared.running_scripts.busy_error()))
    }

    fn is_busy(&self) -> bool {
        self.shared.running_scripts.is_busy(self.reactor.settings.busy_reply_threshold_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_administration_are_those_without_data() {
        let names = REGISTRY.entries().filter(|(_, entry)| entry.is_administrative);
        let names: Vec<&str> = names.map(|(_, entry)| entry.full_name.as_str()).collect();
        for name in [
            "acl|setuser",
            "auth",
            "client|kill",
            "client|list",
            "commandlog|get",
            "config|get",
            "config|set",
            "hello",
            "info",
            "latency|latest",
            "memory|stats",
            "ping",
            "script|kill",
            "shutdown",
            "slowlog|get",
        ] {
            assert!(names.contains(&name), "{name}");
        }
        for name in [
            "client|tracking",
            "dbsize",
            "debug|object",
            "debug|reload",
            "eval",
            "exec",
            "flushall",
            "get",
            "memory|usage",
            "multi",
            "publish",
            "script|load",
            "subscribe",
            "wait",
        ] {
            assert!(!names.contains(&name), "{name}");
        }
    }
}
