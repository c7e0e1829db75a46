//! EVAL, EVALSHA, SCRIPT, FCALL and FUNCTION: scripts and functions in Lua 5.1.
//!
//! A script runs under the locks of its keys and is one log record, like EXEC. Its commands run
//! like those of a transaction, and their replies are written into the connection's output, read
//! by the script, and removed again.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

mod api;
mod bits;
#[doc(hidden)]
pub mod check;
mod cjson;
mod cmsgpack;
mod fcall;
mod function;
mod host;
mod interpreter;
mod kept;
mod library;
mod native;
mod numbers;
mod patterns;
mod registration;
mod reply;
mod run;
mod shebang;
#[allow(unsafe_code)]
mod stack;
mod structs;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use wire::resp::Args;

pub(crate) use self::fcall::{FCALL, FCALL_RO};
pub(crate) use self::function::FUNCTION;
use self::interpreter::{Callee, Compiled, Interpreter, with_interpreter};
use self::kept::KeptFunction;
pub(crate) use self::library::load_stored;
use super::command::{Command, Done, Flags, Group, KeyAccess, KeySpec};
use super::connection::REDIS_VERSION;
use super::context::{CommandContext, integer, is_option};
use super::fail::Fail;
use super::help;
use crate::engine::running_scripts::RoutineKind;
use crate::engine::scripts::{Script, ScriptName, Scripts};
use crate::engine::server_state::ServerState;

/// [`REDIS_VERSION`] as 0x00MMmmpp.
const REDIS_VERSION_NUMBER: u32 = 0x0007_0204;

/// Arguments of a script's commands beyond which their buffer is freed.
const ARGUMENT_BYTES_KEPT_MAX: usize = 64 * 1024;

/// Longer scripts and libraries are refused: nothing else runs while one is compiled.
const TEXT_BYTES_MAX: usize = 4 << 20;

const TOO_LONG: Fail = Fail::text("ERR the script is too long");

const NO_SCRIPT: Fail = Fail::text("NOSCRIPT No matching script. Please use EVAL.");

const SCRIPT_FLAGS: Flags = Flags::NOSCRIPT
    .and(Flags::STALE)
    .and(Flags::SKIP_MONITOR)
    .and(Flags::NO_MANDATORY_KEYS)
    .and(Flags::MOVABLEKEYS)
    .and(Flags::RUNS_SCRIPT);

const UPDATED_KEYS: &[KeySpec] = &[KeySpec::counted(2, KeyAccess::ReadUpdate)
    .noted("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE")];

const READ_KEYS: &[KeySpec] = &[KeySpec::counted(2, KeyAccess::Read)
    .noted("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS")];

const RUNS_SCRIPT: Command = Command {
    complexity: "Depends on the script",
    group: Group::Scripting,
    arity: -3,
    flags: SCRIPT_FLAGS,
    keys: UPDATED_KEYS,
    ..Command::EMPTY
};

pub(crate) const EVAL: Command = Command {
    name: "eval",
    syntax: "script numkeys [key [key ...]] [arg [arg ...]]",
    summary: "Runs a Lua script atomically.",
    since: "2.6.0",
    script_options: |_, text| shebang::parse(text).ok().map(|(options, _)| options),
    run: |cx, args| eval(cx, args, by_text, false),
    ..RUNS_SCRIPT
};

pub(crate) const EVAL_RO: Command = Command {
    name: "eval_ro",
    syntax: EVAL.syntax,
    summary: "Runs a Lua script atomically; it cannot change data.",
    since: "7.0.0",
    flags: SCRIPT_FLAGS.and(Flags::READONLY),
    keys: READ_KEYS,
    run: |cx, args| eval(cx, args, by_text, true),
    ..RUNS_SCRIPT
};

pub(crate) const EVALSHA: Command = Command {
    name: "evalsha",
    syntax: "sha1 numkeys [key [key ...]] [arg [arg ...]]",
    summary: "Runs a Lua script that the server knows, by the SHA-1 of its text.",
    since: "2.6.0",
    keys: &[KeySpec::counted(2, KeyAccess::ReadUpdate)],
    script_options: |shared, name| {
        let script = shared.scripts.find(&known_name(name)?)?;
        Some(script.routine.options)
    },
    run: |cx, args| eval(cx, args, by_name, false),
    ..RUNS_SCRIPT
};

pub(crate) const EVALSHA_RO: Command = Command {
    name: "evalsha_ro",
    syntax: EVALSHA.syntax,
    summary: "Runs a Lua script by the SHA-1 of its text; it cannot change data.",
    since: "7.0.0",
    flags: SCRIPT_FLAGS.and(Flags::READONLY),
    keys: &[KeySpec::counted(2, KeyAccess::Read)],
    run: |cx, args| eval(cx, args, by_name, true),
    ..RUNS_SCRIPT
};

/// Finds the script of a request, and compiles it if this thread has not run it before.
type FindScript = fn(&mut Interpreter, &Scripts, &[u8]) -> Result<Rc<Compiled>, Fail>;

fn eval(cx: &mut CommandContext<'_>, args: Args<'_>, find: FindScript, read_only: bool) -> Done {
    // MONITOR shows a script before the commands that it runs.
    // Source: Redis 7.2 `eval.c`, `evalCommand`
    if cx.shared.is_monitored() {
        cx.feed_request(cx.command, args);
    }
    let count = integer(args.get(2))?;
    let Ok(count) = usize::try_from(count) else {
        return Err(Fail::text("ERR Number of keys can't be negative"));
    };
    if count > args.len() - 3 {
        return Err(Fail::text("ERR Number of keys can't be greater than number of args"));
    }
    let shared = cx.shared;
    let ran = with_interpreter(&shared.memory.scripts, |interpreter| {
        interpreter.refresh(&shared.scripts);
        let compiled = find(interpreter, &shared.scripts, args.get(1))?;
        shared.scripts.note_use(&compiled.script);
        let callee = Callee {
            kind: RoutineKind::Script,
            name: std::str::from_utf8(&compiled.script.name).unwrap_or_default(),
            routine: &compiled.script.routine,
            code: &compiled.code,
        };
        run::run(cx, interpreter, &callee, args, count, read_only)
    });
    ran.map_err(|error| no_interpreter(&error))?
}

fn no_interpreter(error: &mlua::Error) -> Fail {
    Fail::owned(format!("ERR could not start the interpreter: {error}"))
}

fn script_name(text: &[u8]) -> ScriptName {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text);
    let mut name = [0; 40];
    for (pair, byte) in name.chunks_exact_mut(2).zip(digest.as_ref()) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    name
}

/// The name that a client wrote, in lowercase digits. `None`: it has another length.
fn known_name(name: &[u8]) -> Option<ScriptName> {
    let mut name = ScriptName::try_from(name).ok()?;
    name.make_ascii_lowercase();
    Some(name)
}

/// Whether the request may change data, as far as the script or function has declared it.
// Source: Redis 7.0 `eval.c`, `evalGetCommandFlags`, and `functions.c`, `fcallGetCommandFlags`
pub(crate) fn may_write(shared: &ServerState, command: &Command, args: Args<'_>) -> bool {
    if command.flags.has(Flags::READONLY) {
        return false;
    }
    let options = args.try_get(1).and_then(|name| (command.script_options)(shared, name));
    options.is_none_or(|options| !options.no_writes)
}

fn by_text(
    interpreter: &mut Interpreter,
    scripts: &Scripts,
    text: &[u8],
) -> Result<Rc<Compiled>, Fail> {
    match interpreter.find_text(text) {
        Some(known) => Ok(known),
        None => load(interpreter, scripts, text, false),
    }
}

fn by_name(
    interpreter: &mut Interpreter,
    scripts: &Scripts,
    name: &[u8],
) -> Result<Rc<Compiled>, Fail> {
    let name = known_name(name).ok_or(NO_SCRIPT)?;
    if let Some(known) = interpreter.find_name(&name) {
        return Ok(known);
    }
    let script = scripts.find(&name).ok_or(NO_SCRIPT)?;
    compile(interpreter, script)
}

/// Adds a script to the table of all reactors. `is_kept`: see [`Scripts::add`].
fn load(
    interpreter: &mut Interpreter,
    scripts: &Scripts,
    text: &[u8],
    is_kept: bool,
) -> Result<Rc<Compiled>, Fail> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let (options, _) = shebang::parse(text)?;
    let name = script_name(text);
    if let Some(known) = interpreter.find_name(&name) {
        scripts.add(name, text, options, is_kept);
        return Ok(known);
    }
    let code = compile_text(interpreter, text)?;
    let script = scripts.add(name, text, options, is_kept);
    Ok(interpreter.keep(script, code))
}

fn compile(interpreter: &mut Interpreter, script: Arc<Script>) -> Result<Rc<Compiled>, Fail> {
    let code = compile_text(interpreter, &script.text)?;
    Ok(interpreter.keep(script, code))
}

fn compile_text(interpreter: &Interpreter, text: &[u8]) -> Result<KeptFunction, Fail> {
    let (_, body) = shebang::parse(text)?;
    interpreter.compile(body, "@user_script").map_err(|error| {
        Fail::owned(format!("ERR Error compiling script (new function): {}", syntax_error(&error)))
    })
}

fn syntax_error(error: &mlua::Error) -> String {
    match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

// --- SCRIPT

pub(crate) const SCRIPT: Command = Command {
    name: "script",
    syntax: "subcommand",
    summary: "A container for commands about scripts.",
    since: "2.6.0",
    group: Group::Scripting,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&DEBUG, &EXISTS, &FLUSH, &HELP, &KILL, &LOAD, &SHOW],
    ..Command::EMPTY
};

const DEBUG: Command = Command {
    name: "debug",
    syntax: "<YES | SYNC | NO>",
    summary: "Turns the debugger of scripts off; there is none to turn on.",
    since: "3.2.0",
    group: Group::Scripting,
    arity: 3,
    flags: Flags::NOSCRIPT,
    run: debug,
    ..Command::EMPTY
};

fn debug(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let mode = args.get(2);
    if is_option(mode, "NO") {
        cx.reply.ok();
        return Ok(());
    }
    if is_option(mode, "YES") || is_option(mode, "SYNC") {
        return Err(Fail::text("ERR the debugger of scripts is not supported"));
    }
    Err(Fail::text("ERR Use SCRIPT DEBUG YES/SYNC/NO"))
}

const EXISTS: Command = Command {
    name: "exists",
    syntax: "sha1 [sha1 ...]",
    summary: "Returns 1 for each SHA-1 whose script the server knows, and 0 for others.",
    since: "2.6.0",
    complexity: "O(N) in the number of names",
    group: Group::Scripting,
    arity: -3,
    flags: Flags::NOSCRIPT,
    tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
    run: exists,
    ..Command::EMPTY
};

fn exists(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    cx.reply.array(args.len() - 2);
    for name in args.iter().skip(2) {
        let known = known_name(name).and_then(|name| cx.shared.scripts.find(&name));
        cx.reply.integer(i64::from(known.is_some()));
    }
    Ok(())
}

const FLUSH: Command = Command {
    name: "flush",
    syntax: "[ASYNC | SYNC]",
    summary: "Removes all scripts.",
    since: "2.6.0",
    complexity: "O(N) in the number of scripts",
    group: Group::Scripting,
    arity: -2,
    flags: Flags::NOSCRIPT,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: flush,
    ..Command::EMPTY
};

fn flush(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let is_mode = |mode| is_option(mode, "ASYNC") || is_option(mode, "SYNC");
    if args.len() > 3 || args.try_get(2).is_some_and(|mode| !is_mode(mode)) {
        return Err(Fail::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    cx.shared.scripts.flush();
    cx.reply.ok();
    Ok(())
}

const HELP: Command =
    help::subcommand("Lists the subcommands.", "5.0.0", Group::Scripting, |cx, _| {
        help::reply(cx, &SCRIPT)
    });

const KILL: Command = Command {
    name: "kill",
    summary: "Ends a script that runs for too long, unless it has changed data.",
    since: "2.6.0",
    group: Group::Scripting,
    arity: 2,
    flags: Flags::NOSCRIPT.and(Flags::ALLOW_BUSY),
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    run: |cx, _| kill(cx, RoutineKind::Script),
    ..Command::EMPTY
};

fn kill(cx: &mut CommandContext<'_>, kind: RoutineKind) -> Done {
    cx.shared.running_scripts.kill(kind).map_err(Fail::text)?;
    cx.reply.ok();
    Ok(())
}

const LOAD: Command = Command {
    name: "load",
    syntax: "script",
    summary: "Adds a script, and returns the SHA-1 of its text.",
    since: "2.6.0",
    complexity: "O(N) in the length of the script",
    group: Group::Scripting,
    arity: 3,
    flags: Flags::NOSCRIPT.and(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: load_command,
    ..Command::EMPTY
};

fn load_command(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let shared = cx.shared;
    let has_room = cx.reactor.room.has(shared.used_bytes(), args.get(2).len());
    if !has_room {
        return Err(Fail::text("OOM command not allowed when used memory > 'maxmemory'."));
    }
    let loaded = with_interpreter(&shared.memory.scripts, |interpreter| {
        interpreter.refresh(&shared.scripts);
        load(interpreter, &shared.scripts, args.get(2), true)
    });
    let compiled = loaded.map_err(|error| no_interpreter(&error))??;
    cx.reply.bulk(&compiled.script.name);
    Ok(())
}

/// SCRIPT SHOW, of Valkey.
const SHOW: Command = Command {
    name: "show",
    syntax: "sha1",
    summary: "Returns the text of a script.",
    since: "8.0.0",
    group: Group::Scripting,
    arity: 3,
    flags: Flags::NOSCRIPT.and(Flags::STALE),
    run: show,
    ..Command::EMPTY
};

fn show(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let name = known_name(args.get(2)).ok_or(NO_SCRIPT)?;
    let script = cx.shared.scripts.find(&name).ok_or(NO_SCRIPT)?;
    cx.reply.bulk(&script.text);
    Ok(())
}
