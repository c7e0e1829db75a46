//! FUNCTION: libraries of functions, which are data of the server.

use std::sync::Arc;

use wire::rdb::{FunctionsError, Limits};
use wire::resp::{Args, ReplyWriter};

use super::fcall::wait_for_libraries;
use super::interpreter::{Interpreter, with_interpreter};
use super::library::{self, Loaded, Replace, refused};
use super::no_interpreter;
use crate::commands::command::{Command, Done, Events, Flags, Group};
use crate::commands::context::{CommandContext, is_option, reply_has_room};
use crate::commands::fail::{Fail, too_many_arguments};
use crate::commands::help;
use crate::engine::functions::{
    BYTES_MAX, Function, Functions, LIBRARIES_MAX, Libraries, Library, STORED,
};
use crate::engine::glob::Steps;
use crate::engine::running_scripts::{RoutineKind, RunningRequest};
use crate::engine::stored_rows;

pub(crate) const FUNCTION: Command = Command {
    name: "function",
    syntax: "subcommand",
    summary: "A container for commands about functions.",
    since: "7.0.0",
    group: Group::Scripting,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&DELETE, &DUMP, &FLUSH, &HELP, &KILL, &LIST, &LOAD, &RESTORE, &STATS],
    ..Command::EMPTY
};

const CHANGES: Flags = Flags::WRITE.and(Flags::NOSCRIPT).and(Flags::LIBRARIES);
const CHANGE_TIPS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

/// The libraries that the command sees: inside EXEC, with the changes of earlier commands.
fn libraries(cx: &CommandContext<'_>) -> Arc<Libraries> {
    match &cx.reactor.new_libraries {
        Some(changed) => Arc::clone(changed),
        None => cx.shared.functions.current(),
    }
}

/// Logs a change, which others see once it has its place in the log.
fn change(cx: &mut CommandContext<'_>, new: Libraries) -> Done {
    let old = libraries(cx);
    cx.admit_record(cx.command, old.record_bytes(&new))?;
    let timestamp = stored_rows::next_timestamp(&cx.locked, STORED);
    old.store(&new, timestamp, |mutation| cx.locked.change(mutation))?;
    if cx.locked.has_written() {
        cx.reactor.new_libraries = Some(Arc::new(new));
    }
    Ok(())
}

const LOAD: Command = Command {
    name: "load",
    syntax: "[REPLACE] function-code",
    summary: "Adds a library, and returns its name.",
    since: "7.0.0",
    complexity: "O(N) in the number of libraries and functions",
    group: Group::Scripting,
    arity: -3,
    flags: CHANGES.and(Flags::DENYOOM),
    events: Events::Chosen,
    tips: CHANGE_TIPS,
    run: load,
    ..Command::EMPTY
};

// Source: Redis 7.2 `functions.c`, `functionLoadCommand`
fn load(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let options = args.range(2..args.len() - 1);
    let mut replace = Replace::No;
    for option in options {
        if !is_option(option, "REPLACE") {
            return Err(Fail::quoting("ERR Unknown option given: ", option, ""));
        }
        replace = Replace::Yes;
    }
    let text = args.get(args.len() - 1);
    let mut new = Functions::copy_of(&libraries(cx));
    let shared = cx.shared;
    let loaded = with_interpreter(&shared.memory.scripts, |interpreter| {
        let loaded = library::add(cx, interpreter, &mut new, text, replace)?;
        let name = loaded.library.name.clone();
        change(cx, new)?;
        keep(cx, interpreter, &[loaded]);
        Ok::<_, Fail>(name)
    });
    let name = loaded.map_err(|error| no_interpreter(&error))??;
    cx.reply.bulk(&name);
    Ok(())
}

/// Keeps the functions of new libraries in this thread's interpreter, which has compiled them.
fn keep(cx: &CommandContext<'_>, interpreter: &mut Interpreter, loaded: &[Loaded]) {
    let Some(libraries) = &cx.reactor.new_libraries else { return };
    interpreter.refresh_functions(libraries);
    for Loaded { library, registered } in loaded {
        interpreter.keep_functions(library, registered);
    }
}

const DELETE: Command = Command {
    name: "delete",
    syntax: "library-name",
    summary: "Removes a library.",
    since: "7.0.0",
    complexity: LOAD.complexity,
    group: Group::Scripting,
    arity: 3,
    flags: CHANGES,
    events: Events::Chosen,
    tips: CHANGE_TIPS,
    run: delete,
    ..Command::EMPTY
};

fn delete(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let mut new = Functions::copy_of(&libraries(cx));
    if new.remove(args.get(2)).is_none() {
        return Err(Fail::text("ERR Library not found"));
    }
    change(cx, new)?;
    cx.reply.ok();
    Ok(())
}

const FLUSH: Command = Command {
    name: "flush",
    syntax: "[ASYNC | SYNC]",
    summary: "Removes all libraries.",
    arity: -2,
    run: flush,
    ..DELETE
};

fn flush(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() > 3 {
        return Err(too_many_arguments("FUNCTION", args));
    }
    let is_mode = |mode| is_option(mode, "ASYNC") || is_option(mode, "SYNC");
    if args.try_get(2).is_some_and(|mode| !is_mode(mode)) {
        return Err(Fail::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    change(cx, Functions::copy_of(&Libraries::default()))?;
    cx.reply.ok();
    Ok(())
}

const DUMP: Command = Command {
    name: "dump",
    summary: "Returns all libraries in the form that FUNCTION RESTORE takes.",
    since: "7.0.0",
    complexity: "O(N) in the bytes of all libraries",
    group: Group::Scripting,
    arity: 2,
    flags: Flags::NOSCRIPT,
    run: dump,
    ..Command::EMPTY
};

fn dump(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let libraries = libraries(cx);
    wait_for_libraries(cx);
    let mut payload = Vec::new();
    libraries.iter().for_each(|library| wire::rdb::put_function(&mut payload, &library.text));
    wire::rdb::end_payload(&mut payload, wire::rdb::Version::WRITTEN);
    cx.reply.bulk(&payload);
    Ok(())
}

const RESTORE: Command = Command {
    name: "restore",
    syntax: "serialized-value [FLUSH | APPEND | REPLACE]",
    summary: "Adds the libraries that FUNCTION DUMP returned.",
    complexity: "O(N) in the bytes of the libraries",
    run: restore,
    ..LOAD
};

// Source: Redis 7.2 `functions.c`, `functionRestoreCommand`
fn restore(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len() > 4 {
        return Err(too_many_arguments("FUNCTION", args));
    }
    let old = libraries(cx);
    let (mut new, replace) = begin_restore(&old, args.try_get(3))?;
    let limits =
        Limits { bytes_max: BYTES_MAX as u64, elements_max: LIBRARIES_MAX, ..Limits::NONE };
    let texts = wire::rdb::decode_functions(args.get(2), limits);
    let texts = texts.map_err(|error| refused_payload(&error))?;
    let shared = cx.shared;
    let restored = with_interpreter(&shared.memory.scripts, |interpreter| {
        let mut added = Libraries::default();
        let mut loaded = Vec::with_capacity(texts.len());
        for text in &texts {
            loaded.push(library::add(cx, interpreter, &mut added, text, Replace::No)?);
        }
        join(&mut new, &added, replace)?;
        change(cx, new)?;
        keep(cx, interpreter, &loaded);
        Ok::<_, Fail>(())
    });
    restored.map_err(|error| no_interpreter(&error))??;
    cx.reply.ok();
    Ok(())
}

/// The libraries that remain, and whether they are replaced by restored ones of the same name.
fn begin_restore(old: &Libraries, policy: Option<&[u8]>) -> Result<(Libraries, Replace), Fail> {
    let is = |name| policy.is_some_and(|policy| is_option(policy, name));
    if policy.is_none() || is("APPEND") {
        return Ok((Functions::copy_of(old), Replace::No));
    }
    if is("REPLACE") {
        return Ok((Functions::copy_of(old), Replace::Yes));
    }
    if is("FLUSH") {
        return Ok((Functions::copy_of(&Libraries::default()), Replace::No));
    }
    Err(Fail::text(
        "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
    ))
}

fn refused_payload(error: &FunctionsError) -> Fail {
    match error {
        FunctionsError::Footer => Fail::text("ERR DUMP payload version or checksum are wrong"),
        FunctionsError::PreRelease => Fail::text("ERR Pre-GA function format not supported"),
        FunctionsError::OtherType => Fail::text("ERR given type is not a function"),
        FunctionsError::Text(_) => Fail::text("ERR Failed loading library payload"),
    }
}

/// Adds libraries to others.
// Source: Redis 7.2 `functions.c`, `libraryJoin`
fn join(libraries: &mut Libraries, added: &Libraries, replace: Replace) -> Done {
    for library in added.iter() {
        if replace == Replace::Yes {
            libraries.remove(&library.name);
        } else if libraries.get(&library.name).is_some() {
            return Err(Fail::quoting("ERR Library ", &library.name, " already exists"));
        }
    }
    added.iter().try_for_each(|library| libraries.add(Arc::clone(library)).map_err(refused))
}

const HELP: Command =
    help::subcommand("Lists the subcommands.", "7.0.0", Group::Scripting, |cx, _| {
        help::reply(cx, &FUNCTION)
    });

const KILL: Command = Command {
    name: "kill",
    summary: "Ends a function that runs for too long, unless it has changed data.",
    since: "7.0.0",
    group: Group::Scripting,
    arity: 2,
    flags: Flags::NOSCRIPT.and(Flags::ALLOW_BUSY),
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    run: |cx, _| super::kill(cx, RoutineKind::Function),
    ..Command::EMPTY
};

const LIST: Command = Command {
    name: "list",
    syntax: "[LIBRARYNAME library-name-pattern] [WITHCODE]",
    summary: "Lists libraries and their functions.",
    since: "7.0.0",
    complexity: "O(N) in the number of functions",
    group: Group::Scripting,
    arity: -2,
    flags: Flags::NOSCRIPT,
    tips: &["nondeterministic_output_order"],
    run: list,
    ..Command::EMPTY
};

// Source: Redis 7.2 `functions.c`, `functionListCommand`
fn list(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (pattern, with_code) = parse_list(args)?;
    let libraries = libraries(cx);
    wait_for_libraries(cx);
    let steps = Steps::default();
    let is_listed = |library: &&Arc<Library>| {
        pattern.is_none_or(|pattern| steps.matches_ignoring_case(pattern, &library.name))
    };
    let listed: Vec<_> = libraries.iter().filter(is_listed).collect();
    steps.check()?;
    cx.spend(listed.iter().map(|library| 1 + library.functions.len()).sum())?;
    cx.reply.array(listed.len());
    for library in listed {
        write_library(cx, library, with_code);
        if !reply_has_room(&cx.reply) {
            break; // `check_reply` refuses it
        }
    }
    Ok(())
}

/// The pattern of names, and whether the code is shown.
fn parse_list(args: Args<'_>) -> Result<(Option<&[u8]>, bool), Fail> {
    let (mut pattern, mut with_code) = (None, false);
    let mut rest = args.iter().skip(2);
    while let Some(option) = rest.next() {
        if !with_code && is_option(option, "WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && is_option(option, "LIBRARYNAME") {
            let text = "ERR library name argument was not given";
            pattern = Some(rest.next().ok_or(Fail::text(text))?);
        } else {
            return Err(Fail::quoting("ERR Unknown argument ", option, ""));
        }
    }
    Ok((pattern, with_code))
}

fn write_library(cx: &mut CommandContext<'_>, library: &Library, with_code: bool) {
    let reply = &mut cx.reply;
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(&library.name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    library.functions.iter().for_each(|function| write_function(reply, function));
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.text);
    }
}

fn write_function(reply: &mut ReplyWriter<'_>, function: &Function) {
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(&function.name);
    reply.bulk(b"description");
    match &function.description {
        Some(description) => reply.bulk(description),
        None => reply.null(),
    }
    reply.bulk(b"flags");
    reply.set(function.flags.names().count());
    function.flags.names().for_each(|name| reply.simple(name));
}

const STATS: Command = Command {
    name: "stats",
    summary: "Returns the function that runs, and the numbers of libraries and functions.",
    since: "7.0.0",
    group: Group::Scripting,
    arity: 2,
    flags: Flags::NOSCRIPT.and(Flags::ALLOW_BUSY),
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: stats,
    ..Command::EMPTY
};

// Source: Redis 7.2 `functions.c`, `functionStatsCommand`
fn stats(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let libraries = libraries(cx);
    wait_for_libraries(cx);
    let running = cx.shared.running_scripts.shown();
    let reply = &mut cx.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        None => reply.null(),
        Some((request, ns)) => write_running(reply, &request, ns),
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.count(libraries.iter().len());
    reply.bulk(b"functions_count");
    reply.count(libraries.functions());
    Ok(())
}

fn write_running(reply: &mut ReplyWriter<'_>, request: &RunningRequest, ns: u64) {
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(&request.function);
    reply.bulk(b"command");
    reply.array(request.arguments.len());
    request.arguments.iter().for_each(|argument| reply.bulk(argument));
    reply.bulk(b"duration_ms");
    reply.count(ns / 1_000_000);
}
