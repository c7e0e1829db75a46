//! MONITOR: a stream of all requests of the server.

use std::sync::atomic::Ordering;

use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::CommandContext;
use super::fail::Fail;

/// MONITOR: sends all later requests of all clients to this connection.
pub(crate) const MONITOR: Command = Command {
    name: "monitor",
    summary: "Sends every request that the server executes to this connection.",
    since: "1.0.0",
    group: Group::Server,
    arity: 1,
    flags: Flags::ADMIN
        .and(Flags::NOSCRIPT)
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::NO_HTTP),
    run: monitor,
    ..Command::EMPTY
};

// Source: Redis 7.2 `replication.c`, `monitorCommand`; there, too, a second one gets no reply
fn monitor(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    if cx.in_exec {
        return Err(Fail::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !cx.session.monitor {
        cx.session.monitor = true;
        cx.shared.monitors.fetch_add(1, Ordering::Relaxed);
        cx.reply.ok();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wire::resp::OwnedArgs;

    use crate::commands::registry::REGISTRY;

    #[track_caller]
    fn check_secrets(request: &str, expected: &str) {
        let args: OwnedArgs = request.split(' ').collect();
        let args = args.as_args();
        let mut id = REGISTRY.find(args.get(0)).unwrap();
        if let Some(child) = args.try_get(1).and_then(|name| REGISTRY.find_child(id, name)) {
            id = child;
        }
        let shown = REGISTRY.entry(id).command.shown(args);
        let words: Vec<_> = (0..shown.len()).map(|at| shown.get(at)).collect();
        assert_eq!(String::from_utf8_lossy(&words.join(&b' ')), expected);
    }

    #[test]
    fn passwords_are_not_shown() {
        check_secrets("auth p", "auth (redacted)");
        check_secrets("AUTH u p", "AUTH (redacted) (redacted)");
        check_secrets("HELLO 3 SETNAME n auth u p", "HELLO 3 SETNAME n auth (redacted) (redacted)");
        check_secrets("HELLO 3 AUTH p", "HELLO 3 AUTH (redacted)");
        check_secrets("CONFIG SET hz 10 requirepass p", "CONFIG SET hz 10 requirepass (redacted)");
        for request in
            ["HELLO 3", "HELLO AUTH x", "CONFIG GET requirepass", "SET requirepass auth x"]
        {
            check_secrets(request, request);
        }
    }
}
