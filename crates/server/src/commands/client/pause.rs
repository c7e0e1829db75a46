//! CLIENT PAUSE: suspends all commands, or all writes, for some time.
//!
//! A paused request is neither run nor consumed: its connection waits and parses it again later.

use base::time::MonoNs;
use wire::resp::{Args, OwnedArgs};

use super::{ADMIN_FLAGS, too_many_arguments};
use crate::commands::command::{Command, Done, Flags, Group};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::Fail;
use crate::commands::registry::REGISTRY;
use crate::commands::session::Session;
use crate::commands::transactions::is_exec;
use crate::engine::pause::InEffect;
use crate::engine::requests::RequestId;

/// Whether this request has to wait. `script_may_write`: whether one that runs a script may change
/// data.
#[inline]
pub(in crate::commands) fn stops(
    pause: Option<InEffect>,
    session: &Session,
    (command, args): (&Command, Args<'_>),
    script_may_write: impl Fn(&Command, Args<'_>) -> bool,
) -> bool {
    pause.is_some_and(|pause| stops_while_on(pause, session, (command, args), &script_may_write))
}

// Source: Redis 7.2 `server.c`, `processCommand`; there, too, UNPAUSE waits like all other commands
#[cold]
fn stops_while_on(
    pause: InEffect,
    session: &Session,
    (command, args): (&Command, Args<'_>),
    script_may_write: &dyn Fn(&Command, Args<'_>) -> bool,
) -> bool {
    if session.is_replica() {
        return false; // an acknowledgment
    }
    if !pause.writes_only {
        return !command.flags.has(Flags::UNPAUSABLE);
    }
    let may_write = |command: &Command, args: Args<'_>| {
        command.flags.has(Flags::WRITE.and(Flags::MAY_REPLICATE))
            || (command.flags.has(Flags::RUNS_SCRIPT) && script_may_write(command, args))
    };
    let is_write = |(id, args): &(RequestId, OwnedArgs)| {
        may_write(REGISTRY.entry(*id).command, args.as_args())
    };
    let open = session.transaction.as_deref().filter(|_| is_exec(command));
    may_write(command, args) || open.is_some_and(|open| open.queued.iter().any(is_write))
}

/// CLIENT PAUSE: stops serving clients for some time.
pub(super) const PAUSE: Command = Command {
    name: "pause",
    syntax: "timeout [WRITE | ALL]",
    summary: "Suspends the commands of all clients, or only writes, for the given milliseconds.",
    since: "3.0.0",
    group: Group::Connection,
    arity: -3,
    flags: ADMIN_FLAGS,
    run: pause,
    ..Command::EMPTY
};

fn pause(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let writes_only = match args.try_get(3) {
        _ if args.len() > 4 => return Err(too_many_arguments("CLIENT", args)),
        None => false,
        Some(mode) if is_option(mode, "ALL") => false,
        Some(mode) if is_option(mode, "WRITE") => true,
        Some(_) => return Err(Fail::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout_ms = integer(args.get(2))
        .map_err(|_| Fail::text("ERR timeout is not an integer or out of range"))?;
    let timeout_ms =
        u64::try_from(timeout_ms).map_err(|_| Fail::text("ERR timeout is negative"))?;
    let now = cx.now.mono;
    // Cap an end beyond the clock's range of 584 years at its last nanosecond.
    let until = MonoNs(now.0.saturating_add(timeout_ms.saturating_mul(1_000_000)));
    cx.shared.pause.begin(now, until, writes_only);
    cx.reply.ok();
    Ok(())
}

/// CLIENT UNPAUSE: ends a pause.
pub(super) const UNPAUSE: Command = Command {
    name: "unpause",
    summary: "Ends a pause: deferred requests run now.",
    since: "6.2.0",
    complexity: "O(N) in the number of paused clients",
    group: Group::Connection,
    arity: 2,
    flags: ADMIN_FLAGS.and(Flags::UNPAUSABLE),
    run: unpause,
    ..Command::EMPTY
};

fn unpause(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    cx.shared.pause.end();
    // Each reactor resumes the connections that were paused.
    cx.shared.links().wakers().for_each(|waker| waker.wake());
    cx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{connection, hyperloglog, pubsub, strings};
    use crate::config::Durability;
    use crate::engine::acl::Identity;
    use crate::engine::pause::Pause;
    use reactor::{ConnId, Peer};

    const ALL: bool = false;
    const WRITE: bool = true;

    fn session() -> Session {
        let peer = Peer { remote: None, local: None, listener: 0 };
        Session::new(ConnId(1), &peer, MonoNs(0), Identity::anyone(), Durability::Never)
    }

    /// Whether a request without arguments has to wait.
    fn stops(pause: &Pause, now: MonoNs, session: &Session, command: &Command) -> bool {
        let none = OwnedArgs::new();
        super::stops(pause.at(now), session, (command, none.as_args()), |_, _| true)
    }

    #[test]
    fn a_pause_is_extended_and_never_shortened() {
        let pause = Pause::default();
        let until = |now| pause.at(now).map(|pause| pause.until);
        assert_eq!(pause.at(MonoNs(0)), None);
        pause.begin(MonoNs(10), MonoNs(100), WRITE);
        assert_eq!(until(MonoNs(99)), Some(MonoNs(100)));
        assert_eq!(pause.at(MonoNs(100)), None);
        pause.begin(MonoNs(20), MonoNs(50), WRITE);
        assert_eq!(until(MonoNs(20)), Some(MonoNs(100)));
        pause.begin(MonoNs(20), MonoNs(200), WRITE);
        assert_eq!(until(MonoNs(199)), Some(MonoNs(200)));
        pause.begin(MonoNs(300), MonoNs(301), WRITE);
        assert_eq!(pause.at(MonoNs(300)), None, "ends are multiples of four");
        pause.end();
        assert_eq!(pause.at(MonoNs(20)), None);
    }

    #[test]
    fn a_pause_of_no_time_is_none() {
        let pause = Pause::default();
        pause.begin(MonoNs(10), MonoNs(10), ALL);
        assert_eq!(pause.at(MonoNs(10)), None);
        pause.begin(MonoNs(11), MonoNs(11), WRITE);
        assert_eq!(pause.at(MonoNs(11)), None);
    }

    #[test]
    fn a_pause_of_all_commands_lasts_until_it_ends() {
        let (pause, session) = (Pause::default(), session());
        let stops = |now, command: &Command| stops(&pause, MonoNs(now), &session, command);
        pause.begin(MonoNs(0), MonoNs(100), ALL);
        pause.begin(MonoNs(0), MonoNs(200), WRITE);
        assert!(stops(150, &connection::PING));
        assert!(!stops(150, &UNPAUSE), "a pause can be ended");
        assert!(!stops(200, &connection::PING));
        pause.begin(MonoNs(200), MonoNs(300), WRITE);
        assert!(!stops(250, &connection::PING));
        assert!(!stops(250, &strings::GET));
        assert!(stops(250, &strings::SET));
        for command in [&pubsub::PUBLISH, &pubsub::SPUBLISH, &hyperloglog::PFCOUNT] {
            assert!(stops(250, command), "{}", command.name);
        }
        assert!(!stops(250, &pubsub::SUBSCRIBE));
    }

    #[test]
    fn a_failover_and_client_pause_do_not_end_each_other() {
        let (pause, session) = (Pause::default(), session());
        let stops = |now, command: &Command| stops(&pause, MonoNs(now), &session, command);
        pause.begin_failover();
        assert!(stops(u64::MAX - 1, &strings::SET) && !stops(0, &strings::GET));
        pause.begin(MonoNs(0), MonoNs(100), ALL);
        assert!(stops(99, &strings::GET), "all commands");
        assert!(!stops(100, &strings::GET) && stops(100, &strings::SET), "only writes after it");
        pause.end();
        assert!(!stops(50, &strings::GET) && stops(50, &strings::SET), "the failover continues");
        pause.begin(MonoNs(0), MonoNs(100), WRITE);
        pause.end_failover();
        assert!(stops(99, &strings::SET) && !stops(100, &strings::SET));
    }

    #[test]
    fn a_transaction_with_a_write_waits_while_writes_do() {
        let (pause, mut session) = (Pause::default(), session());
        let exec = &crate::commands::transactions::EXEC;
        pause.begin(MonoNs(0), MonoNs(100), WRITE);
        let queued = |name: &[u8]| (REGISTRY.find(name).unwrap(), [name].into_iter().collect());
        session.transaction = Some(Box::default());
        session.transaction.as_mut().unwrap().queued.push(queued(b"get"));
        assert!(!stops(&pause, MonoNs(1), &session, exec));
        session.transaction.as_mut().unwrap().queued.push(queued(b"set"));
        assert!(stops(&pause, MonoNs(1), &session, exec));
        assert!(!stops(&pause, MonoNs(1), &session, &strings::GET));
    }
}
