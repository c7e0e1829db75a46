//! FCALL and `FCALL_RO`: run a function of a library.

use wire::resp::Args;

use super::interpreter::{Callee, with_interpreter};
use super::{READ_KEYS, RUNS_SCRIPT, SCRIPT_FLAGS, UPDATED_KEYS, library, no_interpreter, run};
use crate::commands::command::{Command, Done, Flags};
use crate::commands::context::CommandContext;
use crate::commands::fail::Fail;
use crate::engine::reactor_state::is_gated;
use crate::engine::running_scripts::RoutineKind;

pub(crate) const FCALL: Command = Command {
    name: "fcall",
    syntax: "function numkeys [key [key ...]] [arg [arg ...]]",
    summary: "Runs a function of a library atomically.",
    since: "7.0.0",
    complexity: "Depends on the function",
    keys: UPDATED_KEYS,
    script_options: |shared, name| {
        let libraries = shared.functions.current();
        libraries.function(name).map(|(_, function)| function.routine.options)
    },
    run: |cx, args| fcall(cx, args, false),
    ..RUNS_SCRIPT
};

pub(crate) const FCALL_RO: Command = Command {
    name: "fcall_ro",
    syntax: FCALL.syntax,
    summary: "Runs a function of a library atomically; it cannot change data.",
    since: "7.0.0",
    complexity: FCALL.complexity,
    flags: SCRIPT_FLAGS.and(Flags::READONLY),
    keys: READ_KEYS,
    run: |cx, args| fcall(cx, args, true),
    ..RUNS_SCRIPT
};

// Source: Redis 7.2 `functions.c`, `fcallCommandGeneric`
fn fcall(cx: &mut CommandContext<'_>, args: Args<'_>, read_only: bool) -> Done {
    if cx.shared.is_monitored() {
        cx.feed_request(cx.command, args);
    }
    let shared = cx.shared;
    let ran = with_interpreter(&shared.memory.scripts, |interpreter| {
        let found = library::find(cx, interpreter, args.get(1))?;
        let count = wire::resp::parse_i64_strict(args.get(2))
            .ok_or(Fail::text("ERR Bad number of keys provided"))?;
        if count > i64::try_from(args.len() - 3).unwrap_or(i64::MAX) {
            return Err(Fail::text("ERR Number of keys can't be greater than number of args"));
        }
        let count = usize::try_from(count)
            .map_err(|_| Fail::text("ERR Number of keys can't be negative"))?;
        wait_for_libraries(cx);
        let callee = Callee {
            kind: RoutineKind::Function,
            name: std::str::from_utf8(&found.function.name).unwrap_or_default(),
            routine: &found.function.routine,
            code: &found.code,
        };
        run::run(cx, interpreter, &callee, args, count, read_only)
    });
    ran.map_err(|error| no_interpreter(&error))?
}

/// Makes the reply wait until the libraries that the command has read are durable.
pub(super) fn wait_for_libraries(cx: &mut CommandContext<'_>) {
    if is_gated(cx.session.durability) {
        cx.gate = cx.gate.max(cx.shared.functions.gate());
    }
}
