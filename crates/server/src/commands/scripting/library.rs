//! Libraries of functions: their first line, and loading.

use std::sync::Arc;

use base::time::UnixMs;
use mlua::Value;

use super::interpreter::{Interpreter, LoadError, LoadedFunction};
use super::registration::{LOAD_NS_MAX, LoadTime, Loading, Registered, WRONG_NAME, is_name};
use super::shebang::{FirstLine, first_line};
use super::{TEXT_BYTES_MAX, TOO_LONG, syntax_error};
use crate::commands::context::CommandContext;
use crate::commands::fail::Fail;
use crate::engine::functions::{
    AddError, Function, Functions, Libraries, Library, stored, stored_hash,
};
use crate::engine::gate::Gate;
use crate::engine::running_scripts::RoutineKind;
use crate::engine::scripts::Routine;
use crate::engine::server_state::{ServerState, params};

/// Time that a reactor has to load a library that another one has loaded.
const RELOAD_NS_MAX: u64 = 10 * LOAD_NS_MAX;

/// The only engine.
const ENGINE: &str = "lua";

/// The first line of a library: `#!lua name=lib`. `text` follows it, with its end, so that lines
/// keep their numbers.
#[derive(Debug, PartialEq, Eq)]
struct Header<'t> {
    name: Vec<u8>,
    engine: Vec<u8>,
    text: &'t [u8],
}

// Source: Redis 7.2 `functions.c`, `functionExtractLibMetaData`
fn header(text: &[u8]) -> Result<Header<'_>, Fail> {
    const INVALID: Fail = Fail::text("ERR Invalid library metadata");
    let line = first_line(text).ok_or(Fail::text("ERR Missing library metadata"))?;
    let FirstLine { words, body } = line.map_err(|_| INVALID)?;
    let mut words = words.into_iter();
    let engine = words.next().ok_or(INVALID)?;
    let engine = engine.get(2..).unwrap_or_default().to_vec();
    let mut name: Option<Vec<u8>> = None;
    for word in words {
        let value = word.split_at_checked(5).filter(|(key, _)| key.eq_ignore_ascii_case(b"name="));
        let Some((_, value)) = value else {
            return Err(Fail::quoting("ERR Invalid metadata value given: ", &word, ""));
        };
        if name.replace(value.to_vec()).is_some() {
            return Err(Fail::text(
                "ERR Invalid metadata value, name argument was given multiple times",
            ));
        }
    }
    let name = name.ok_or(Fail::text("ERR Library name was not given"))?;
    Ok(Header { name, engine, text: body })
}

/// The error of a library or function that exists.
pub(super) fn refused(error: AddError) -> Fail {
    match error {
        AddError::KnownLibrary(name) => Fail::quoting("ERR Library '", &name, "' already exists"),
        AddError::KnownFunction(name) => Fail::quoting("ERR Function ", &name, " already exists"),
        AddError::TooMany => Fail::text(
            "ERR too many libraries or functions, or too long: see docs/reference/scripting.md",
        ),
    }
}

/// A library that was loaded, with the functions that it registered in this interpreter.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) library: Arc<Library>,
    pub(super) registered: Vec<Registered>,
}

/// Whether a library replaces one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replace {
    Yes,
    No,
}

/// Loads a library and adds it to `libraries`.
// Source: Redis 7.2 `functions.c`, `functionsCreateWithLibraryCtx`
pub(super) fn add(
    cx: &CommandContext<'_>,
    interpreter: &Interpreter,
    libraries: &mut Libraries,
    text: &[u8],
    replace: Replace,
) -> Result<Loaded, Fail> {
    let header = checked_header(text)?;
    if libraries.get(&header.name).is_some() && replace == Replace::No {
        return Err(refused(AddError::KnownLibrary(header.name.into())));
    }
    let registered = load_for(cx, interpreter, header.text, LOAD_NS_MAX)?;
    if registered.is_empty() {
        return Err(Fail::text("ERR No functions registered"));
    }
    let functions = registered.iter().map(function).collect();
    let library = Arc::new(Library::new(&header.name, text, functions));
    libraries.remove(&header.name);
    libraries.add(Arc::clone(&library)).map_err(refused)?;
    Ok(Loaded { library, registered })
}

fn checked_header(text: &[u8]) -> Result<Header<'_>, Fail> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let header = header(text)?;
    if !is_name(&header.name) {
        return Err(Fail::owned(format!("ERR {WRONG_NAME}")));
    }
    if !header.engine.eq_ignore_ascii_case(ENGINE.as_bytes()) {
        return Err(Fail::quoting("ERR Engine '", &header.engine, "' not found"));
    }
    Ok(header)
}

fn function(registered: &Registered) -> Arc<Function> {
    Arc::new(Function {
        name: registered.name.clone(),
        description: registered.description.clone(),
        flags: registered.flags,
        routine: Routine::new(registered.flags.options()),
    })
}

/// Loads a library on behalf of a request, which FUNCTION KILL can end.
fn load_for(
    cx: &CommandContext<'_>,
    interpreter: &Interpreter,
    text: &[u8],
    ns_max: u64,
) -> Result<Vec<Registered>, Fail> {
    let (running, reactor) = (&cx.shared.running_scripts, cx.reactor.index);
    let clock = &cx.reactor.clock;
    let began = clock.now();
    running.begin(reactor, began, RoutineKind::Function);
    let time = LoadTime { clock, began, ns_max, running, reactor };
    let bytes_max = cx.reactor.settings.script_memory_bytes_max;
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let registered = interpreter.load_library(text, bytes_max, &mut Loading::new(Some(time)));
    running.end(reactor);
    registered.map_err(|error| failed(&error))
}

// Source: Redis 7.2 `function_lua.c`, `luaEngineCreate`
fn failed(error: &LoadError) -> Fail {
    let raised = |text: &[u8]| Fail::Quoting([b"ERR Error registering functions: ", text].concat());
    match error {
        LoadError::Syntax(error) => {
            Fail::owned(format!("ERR Error compiling function: {}", syntax_error(error)))
        }
        LoadError::Stopped => raised(b"ERR FUNCTION LOAD timeout"),
        LoadError::Raised(Value::Table(table)) => match table.raw_get::<Value>("err") {
            Ok(Value::String(text)) => raised(&text.as_bytes()),
            _ => raised(b"ERR unknown error"),
        },
        LoadError::Raised(Value::String(text)) => raised(&[b"ERR ", &*text.as_bytes()].concat()),
        LoadError::Raised(_) => raised(b"ERR unknown error"),
        LoadError::Failed(error) => raised(format!("ERR {error}").as_bytes()),
    }
}

/// Finds a function, whose library is loaded if this thread has not run any of its functions.
pub(super) fn find(
    cx: &CommandContext<'_>,
    interpreter: &mut Interpreter,
    name: &[u8],
) -> Result<LoadedFunction, Fail> {
    const NOT_FOUND: Fail = Fail::text("ERR Function not found");
    let functions = &cx.shared.functions;
    let changed = cx.reactor.new_libraries.as_ref();
    let generation = changed.map_or_else(|| functions.generation(), |it| it.generation());
    if interpreter.is_of(generation)
        && let Some(known) = interpreter.find_function(name)
    {
        return Ok(known);
    }
    let libraries = changed.map_or_else(|| functions.current(), Arc::clone);
    interpreter.refresh_functions(&libraries);
    let (library, function) = libraries.function(name).ok_or(NOT_FOUND)?;
    if let Some(known) = interpreter.find_function(&function.name) {
        return Ok(known);
    }
    let header = header(&library.text)?;
    let registered = load_for(cx, interpreter, header.text, RELOAD_NS_MAX)?;
    interpreter.keep_functions(library, &registered);
    interpreter.find_function(&function.name).ok_or(NOT_FOUND)
}

/// Loads the libraries of the data, when the server starts or has received some of another server.
pub(crate) fn load_stored(shared: &ServerState, now: UnixMs) {
    let settings = shared.settings.load();
    let params = params(&settings, now, shared.keyspace.seed(), 0);
    loop {
        let generation = shared.functions.generation();
        let stored = stored(&shared.keyspace, &params);
        if stored.is_empty() && shared.functions.is_empty() {
            return;
        }
        // Without the lock: the libraries run.
        let libraries = compile(shared, stored);
        let _locked = shared.keyspace.lock_one(stored_hash(), &params);
        // Otherwise a client has changed them meanwhile: what was read is outdated.
        if shared.functions.generation() == generation {
            let (count, functions) = (libraries.iter().len(), libraries.functions());
            tracing::info!(libraries = count, functions, "functions loaded");
            shared.functions.publish(Arc::new(libraries), Gate::OPEN);
            return;
        }
    }
}

fn compile(shared: &ServerState, stored: Vec<(Vec<u8>, Vec<u8>)>) -> Libraries {
    let settings = shared.settings.load();
    let mut libraries = Functions::copy_of(&Libraries::default());
    let interpreter = Interpreter::new(Arc::clone(&shared.memory.scripts));
    for (name, text) in stored {
        let bytes_max = usize::try_from(settings.script_memory_bytes_max).unwrap_or(usize::MAX);
        let loaded = match &interpreter {
            Ok(interpreter) => header(&text).and_then(|header| {
                let loaded =
                    interpreter.load_library(header.text, bytes_max, &mut Loading::new(None));
                loaded.map_err(|error| failed(&error))
            }),
            Err(error) => Err(super::no_interpreter(error)),
        };
        let functions = loaded.unwrap_or_else(|error| {
            let library = String::from_utf8_lossy(&name);
            tracing::warn!(%library, %error, "could not load a library: its functions do not exist");
            Vec::new()
        });
        let functions = functions.iter().map(function).collect();
        let library = Arc::new(Library::new(&name, &text, functions));
        if let Err(error) = libraries.add(library) {
            let (library, error) = (String::from_utf8_lossy(&name), refused(error));
            tracing::warn!(%library, %error, "could not add a stored library");
        }
    }
    libraries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(&str, &str, &str), &str>) {
        let found = header(text.as_bytes()).map(|Header { name, engine, text }| {
            let plain = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (plain(&name), plain(&engine), plain(text))
        });
        let own = |(name, engine, text): (&str, &str, &str)| {
            (name.to_owned(), engine.to_owned(), text.to_owned())
        };
        let found = found.map_err(|fail| fail.to_string());
        assert_eq!(found, expected.map(own).map_err(|text| format!("ERR {text}")));
    }

    #[test]
    fn first_lines() {
        check("#!lua name=a\nx", Ok(("a", "lua", "\nx")));
        check("#!LUA  NAME=\"a\" \r\nx", Ok(("a", "LUA", "\nx")));
        check("return 1", Err("Missing library metadata"));
        check("#!lua name=a", Err("Invalid library metadata"));
        check("#!lua name=a\0\n", Err("Invalid library metadata"));
        check("#!lua name=\"a\nx", Err("Invalid library metadata"));
        check("#!\nx", Err("Library name was not given"));
        check("#! lua name=a\nx", Err("Invalid metadata value given: lua"));
        check("#!lua name=a foo=1\nx", Err("Invalid metadata value given: foo=1"));
        let twice = "Invalid metadata value, name argument was given multiple times";
        check("#!lua name=a name=b\nx", Err(twice));
    }
}
