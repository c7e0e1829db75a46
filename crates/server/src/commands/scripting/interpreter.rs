//! The Lua interpreter of a thread.
//!
//! Each reactor runs scripts in its own interpreter, created at the first one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use base::memory::Tracker;
use foldhash::fast::FixedState;
use mlua::chunk::ChunkMode;
use mlua::{Function, IntoLua, Lua, LuaOptions, StdLib, Table, Value};
use wire::resp::Args;

use super::api::{Prelude, prelude};
use super::cjson;
use super::host::{HOST, ScriptHost, set_hook_if_changed};
use super::kept::{KeptFunction, KeptFunctions};
use super::native::to_visible;
use super::registration::{LOADING, Loading, Registered};
use super::stack::{Checks, RUNNING, Running, set_hook};
use crate::engine::functions::{self, Libraries, Library};
use crate::engine::running_scripts::RoutineKind;
use crate::engine::scripts::{Routine, Script, ScriptName, Scripts};

/// Compiled scripts that one interpreter keeps; all are dropped above it.
const COMPILED_MAX: usize = 2_000;

/// Longer scripts are found by their SHA-1, so that the interpreter does not keep their text.
const KNOWN_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Memory beyond that of live values above which an interpreter collects its garbage after a
/// script.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Change of an interpreter's memory that is reported to the tracker.
const REPORTED_BYTES: usize = 64 * 1024;

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

/// What runs: a script or a function.
#[derive(Debug)]
pub(super) struct Callee<'c> {
    pub(super) kind: RoutineKind,
    /// The SHA-1 of a script, or the name of a function.
    pub(super) name: &'c str,
    pub(super) routine: &'c Routine,
    pub(super) code: &'c KeptFunction,
}

/// The result of a script.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The value that the script returned.
    Returned(Value),
    /// A raised error: a table with its text and place, or any other value.
    Raised(Value),
    /// An error outside the script, such as missing memory.
    Failed(mlua::Error),
}

/// The interpreter of one thread.
#[derive(Debug)]
pub(super) struct Interpreter {
    pub(super) lua: Lua,
    pub(super) kept: Rc<KeptFunctions>,
    prelude: Prelude,
    /// Scripts by the SHA-1 of their text.
    by_name: HashMap<ScriptName, Rc<Compiled>, FixedState>,
    /// The same scripts by their text.
    by_text: HashMap<Box<[u8]>, Rc<Compiled>, FixedState>,
    /// Functions of the libraries that this interpreter has loaded, by their names.
    functions: HashMap<Box<[u8]>, LoadedFunction, FixedState>,
    /// [`Libraries::generation`] when `functions` was last cleaned.
    generation: u64,
    /// [`Scripts::removed`] when the tables were last cleaned.
    removed: u64,
    memory: Arc<Tracker>,
    /// Memory that the tracker knows of.
    reported_bytes: usize,
    /// Memory of live values after the last collection.
    live_bytes: usize,
    /// Memory that the last script was allowed.
    bytes_max: usize,
}

/// Bytes that become a string of Lua.
struct LuaBytes<'a>(&'a [u8]);

impl IntoLua for LuaBytes<'_> {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        lua.create_string(self.0).map(Value::String)
    }
}

#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) script: Arc<Script>,
    pub(super) code: KeptFunction,
}

/// A function of a library that this interpreter has loaded.
#[derive(Debug, Clone)]
pub(super) struct LoadedFunction {
    library: Arc<Library>,
    pub(super) function: Arc<functions::Function>,
    pub(super) code: Rc<KeptFunction>,
}

/// Why a library cannot be loaded.
#[derive(Debug)]
pub(super) enum LoadError {
    Syntax(mlua::Error),
    /// A raised error: a string, or a table with the text.
    Raised(Value),
    /// The library ran for too long.
    Stopped,
    Failed(mlua::Error),
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        self.memory.release(self.reported_bytes as u64);
    }
}

/// Runs `body` with the interpreter of this thread.
pub(super) fn with_interpreter<T>(
    memory: &Arc<Tracker>,
    body: impl FnOnce(&mut Interpreter) -> T,
) -> mlua::Result<T> {
    INTERPRETER.with_borrow_mut(|slot| {
        // Tests run several servers in one thread.
        if slot.as_ref().is_some_and(|known| !Arc::ptr_eq(&known.memory, memory)) {
            *slot = None;
        }
        if slot.is_none() {
            *slot = Some(Interpreter::new(Arc::clone(memory))?);
        }
        let interpreter = slot.as_mut().expect("created above");
        let result = body(interpreter);
        interpreter.report_memory();
        if interpreter.is_full() {
            *slot = None;
        }
        Ok(result)
    })
}

impl Interpreter {
    pub(super) fn new(memory: Arc<Tracker>) -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let kept = KeptFunctions::new(&lua)?;
        let prelude = prelude(&lua, &kept)?;
        set_hook(&lua, Checks::Sometimes)?;
        Ok(Interpreter {
            lua,
            kept,
            prelude,
            by_name: HashMap::default(),
            by_text: HashMap::default(),
            functions: HashMap::default(),
            generation: 0,
            removed: 0,
            memory,
            reported_bytes: 0,
            live_bytes: 0,
            bytes_max: usize::MAX,
        })
    }

    /// Drops compiled scripts that other reactors have removed.
    #[inline]
    pub(super) fn refresh(&mut self, scripts: &Scripts) {
        let removed = scripts.removed();
        if removed != self.removed {
            self.removed = removed;
            self.by_name.retain(|_, compiled| !compiled.script.is_removed());
            self.by_text.retain(|_, compiled| !compiled.script.is_removed());
        }
    }

    #[inline]
    pub(super) fn find_text(&self, text: &[u8]) -> Option<Rc<Compiled>> {
        self.by_text.get(text).cloned()
    }

    #[inline]
    pub(super) fn find_name(&self, name: &ScriptName) -> Option<Rc<Compiled>> {
        self.by_name.get(name).cloned()
    }

    /// Drops the functions of libraries that have been removed or replaced.
    #[inline]
    pub(super) fn refresh_functions(&mut self, libraries: &Libraries) {
        if self.generation != libraries.generation() {
            self.generation = libraries.generation();
            self.functions.retain(|_, loaded| libraries.contains(&loaded.library));
        }
    }

    /// Whether this interpreter has only functions of libraries of this generation.
    #[inline]
    pub(super) fn is_of(&self, generation: u64) -> bool {
        self.generation == generation
    }

    #[inline]
    pub(super) fn find_function(&self, name: &[u8]) -> Option<LoadedFunction> {
        self.functions.get(name).cloned()
    }

    /// Keeps the functions of a loaded library.
    pub(super) fn keep_functions(&mut self, library: &Arc<Library>, registered: &[Registered]) {
        let codes: HashMap<&[u8], &Rc<KeptFunction>> =
            registered.iter().map(|found| (&*found.name, &found.code)).collect();
        for function in &library.functions {
            let Some(code) = codes.get(&*function.name) else { continue };
            let code = Rc::clone(code);
            let (library, function) = (Arc::clone(library), Arc::clone(function));
            let name = function.name.clone();
            self.functions.insert(name, LoadedFunction { library, function, code });
        }
    }

    /// Runs the code of a library, which registers its functions.
    pub(super) fn load_library(
        &self,
        text: &[u8],
        bytes_max: usize,
        loading: &mut Loading<'_>,
    ) -> Result<Vec<Registered>, LoadError> {
        let prelude = &self.prelude;
        let code = self.chunk(text, "@user_function", &prelude.library_environment);
        let code = code.map_err(LoadError::Syntax)?;
        let begin = || {
            prelude.of_libraries.raw_set("__index", &prelude.load_globals)?;
            self.lua.set_memory_limit(bytes_max)
        };
        begin().map_err(LoadError::Failed)?;
        let result = LOADING.set(loading, || prelude.load_library.call::<(bool, Value)>(code));
        let end = || {
            self.lua.set_memory_limit(0)?;
            set_hook_if_changed(&self.lua)?;
            prelude.of_libraries.raw_set("__index", &prelude.globals)
        };
        end().map_err(LoadError::Failed)?;
        match result {
            _ if loading.is_stopped() => Err(LoadError::Stopped),
            Ok((true, _)) => Ok(loading.take_registered()),
            Ok((false, error)) => {
                Err(to_visible(&self.lua, error).map_or_else(LoadError::Failed, LoadError::Raised))
            }
            Err(error) => Err(LoadError::Failed(error)),
        }
    }

    /// Compiles the text of a script.
    pub(super) fn compile(&self, text: &[u8], chunk_name: &str) -> mlua::Result<KeptFunction> {
        self.kept.keep(&self.chunk(text, chunk_name, &self.prelude.environment)?)
    }

    fn chunk(&self, text: &[u8], name: &str, environment: &Table) -> mlua::Result<Function> {
        let chunk = self.lua.load(text).set_name(name).set_mode(ChunkMode::Text);
        chunk.set_environment(environment.clone()).into_function()
    }

    /// Keeps a compiled script.
    pub(super) fn keep(&mut self, script: Arc<Script>, code: KeptFunction) -> Rc<Compiled> {
        if self.by_name.len() >= COMPILED_MAX {
            self.by_name.clear();
            self.by_text.clear();
        }
        let compiled = Rc::new(Compiled { script, code });
        let script = &compiled.script;
        self.by_name.insert(script.name, Rc::clone(&compiled));
        if script.text.len() <= KNOWN_TEXT_BYTES_MAX {
            self.by_text.insert(script.text.clone(), Rc::clone(&compiled));
        }
        compiled
    }

    /// Runs a script or function. `bytes_max`: memory of the interpreter.
    pub(super) fn run(
        &mut self,
        callee: &Callee<'_>,
        keys: Args<'_>,
        arguments: Args<'_>,
        bytes_max: usize,
        host: &mut dyn ScriptHost,
    ) -> Outcome {
        let inputs = match callee.kind {
            RoutineKind::Script => Ok(None),
            RoutineKind::Function => self.tables(keys, arguments).map(Some),
        };
        cjson::reset();
        self.bytes_max = bytes_max;
        let running = Running { lua: &self.lua, keys, arguments, bytes_max };
        let result = inputs.and_then(|inputs| {
            RUNNING.set(&running, || HOST.set(host, || self.call(callee.code, inputs, bytes_max)))
        });
        let unlimited = self.lua.set_memory_limit(0);
        let restored = unlimited.and_then(|_| set_hook_if_changed(&self.lua));
        match (result, restored) {
            (Err(error), _) | (_, Err(error)) => Outcome::Failed(error),
            (Ok((true, value)), _) => Outcome::Returned(value),
            (Ok((false, error)), _) => Outcome::Raised(error),
        }
    }

    /// `inputs`: keys and arguments of a function; those of a script are in [`RUNNING`].
    fn call(
        &self,
        code: &KeptFunction,
        inputs: Option<(Table, Table)>,
        bytes_max: usize,
    ) -> mlua::Result<(bool, Value)> {
        let Prelude { run, run_function, on_error, globals, input_names, .. } = &self.prelude;
        match inputs {
            None => {
                let (functions, (keys, argv)) = (&self.kept.table, input_names);
                run.call((functions, code.index, on_error, globals, keys, argv))
            }
            Some((keys, arguments)) => {
                // A limit makes every conversion slower, so functions of Rust remove it and check
                // the memory themselves: see `native::Unlimited`.
                self.lua.set_memory_limit(bytes_max)?;
                run_function.call((code.index, keys, arguments))
            }
        }
    }

    fn tables(&self, keys: Args<'_>, arguments: Args<'_>) -> mlua::Result<(Table, Table)> {
        let table = |texts: Args<'_>| self.lua.create_sequence_from(texts.iter().map(LuaBytes));
        Ok((table(keys)?, table(arguments)?))
    }

    /// Whether variables of libraries leave too little memory for other scripts. The interpreter is
    /// then replaced, which loads the libraries again.
    fn is_full(&self) -> bool {
        self.live_bytes > self.bytes_max / 4 * 3
    }

    /// Reports the interpreter's memory, and frees garbage if it is much.
    fn report_memory(&mut self) {
        let mut used_bytes = self.lua.used_memory();
        let is_much = used_bytes.saturating_sub(self.live_bytes) > KEPT_BYTES_MAX;
        if is_much && self.lua.gc_collect().is_ok() {
            used_bytes = self.lua.used_memory();
            self.live_bytes = used_bytes;
        }
        if used_bytes.abs_diff(self.reported_bytes) < REPORTED_BYTES {
            return;
        }
        let before = std::mem::replace(&mut self.reported_bytes, used_bytes);
        if used_bytes > before {
            self.memory.consume((used_bytes - before) as u64);
        } else {
            self.memory.release((before - used_bytes) as u64);
        }
    }
}
