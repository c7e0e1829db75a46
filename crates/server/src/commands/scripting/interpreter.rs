//! The Lua interpreter of a thread.
//!
//! Each reactor runs scripts in its own interpreter, created at the first one. Functions of Lua
//! must not borrow, so the running command is reached through [`HOST`], which is set only while a
//! script runs.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use base::memory::Tracker;
use foldhash::fast::FixedState;
use mlua::chunk::ChunkMode;
use mlua::{
    Function, HookTriggers, IntoLua, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState,
};
use scoped_tls_hkt::scoped_thread_local;
use wire::resp::{Args, OwnedArgs, Protocol};

use super::native::{NativeError, guard, to_visible};
use super::{bits, cjson, cmsgpack, numbers, reply, structs};
use crate::engine::scripts::{Script, ScriptName, Scripts};

/// Instructions between two checks whether a script must end.
const CHECK_INSTRUCTIONS: u32 = 100_000;

/// Compiled scripts that one interpreter keeps; all are dropped above it.
const COMPILED_MAX: usize = 2_000;

/// Longer scripts are found by their SHA-1, so that the interpreter does not keep their text.
const KNOWN_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Memory above which an interpreter collects its garbage after a script.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Change of an interpreter's memory that is reported to the tracker.
const REPORTED_BYTES: usize = 64 * 1024;

scoped_thread_local!(static mut HOST: for<'a> &'a mut (dyn ScriptHost + 'a));

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

/// What a running script needs from the command that runs it.
pub(super) trait ScriptHost {
    /// Runs a command and passes its reply in RESP to `take`.
    fn call(
        &mut self,
        args: Args<'_>,
        take: &mut dyn FnMut(&[u8]) -> Result<Value, CallError>,
    ) -> Result<Value, CallError>;

    /// Whether the client of the script may run a command. `None`: there is no such command.
    fn may_run(&self, args: Args<'_>) -> Option<bool>;

    /// Selects the form of replies for the script.
    fn set_protocol(&mut self, protocol: Protocol);

    /// Returns 31 random bits.
    fn random(&mut self) -> u32;

    fn set_seed(&mut self, seed: i32);

    /// Called from time to time. False if the script must end.
    fn may_continue(&mut self, place: &dyn Fn() -> Place) -> bool;
}

/// Source and line of a script.
pub(super) type Place = (String, usize);

/// Why a script's command has no reply.
#[derive(Debug)]
pub(super) enum CallError {
    /// An error that the script can catch.
    Fail(Vec<u8>),
    Lua(mlua::Error),
    /// The script must end.
    Stop,
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

impl From<mlua::Error> for CallError {
    fn from(error: mlua::Error) -> CallError {
        CallError::Lua(error)
    }
}

/// The interpreter of one thread.
#[derive(Debug)]
pub(super) struct Interpreter {
    pub(super) lua: Lua,
    /// `run` of the prelude.
    run: Function,
    /// The globals of all scripts.
    environment: Table,
    /// Scripts by the SHA-1 of their text.
    by_name: HashMap<ScriptName, Compiled, FixedState>,
    /// The same scripts by their text.
    by_text: HashMap<Box<[u8]>, Compiled, FixedState>,
    /// [`Scripts::removed`] when the tables were last cleaned.
    removed: u64,
    memory: Arc<Tracker>,
    /// Memory that the tracker knows of.
    reported_bytes: usize,
}

/// Bytes that become a string of Lua.
struct LuaBytes<'a>(&'a [u8]);

impl IntoLua for LuaBytes<'_> {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        lua.create_string(self.0).map(Value::String)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Compiled {
    pub(super) script: Arc<Script>,
    function: Function,
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
        Ok(result)
    })
}

impl Interpreter {
    pub(super) fn new(memory: Arc<Tracker>) -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let (run, environment) = prelude(&lua)?;
        set_hook(&lua, CHECK_INSTRUCTIONS)?;
        Ok(Interpreter {
            lua,
            run,
            environment,
            by_name: HashMap::default(),
            by_text: HashMap::default(),
            removed: 0,
            memory,
            reported_bytes: 0,
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
    pub(super) fn find_text(&self, text: &[u8]) -> Option<Compiled> {
        self.by_text.get(text).cloned()
    }

    #[inline]
    pub(super) fn find_name(&self, name: &ScriptName) -> Option<Compiled> {
        self.by_name.get(name).cloned()
    }

    /// Compiles the text of a script.
    pub(super) fn compile(&self, text: &[u8], chunk_name: &str) -> mlua::Result<Function> {
        let chunk = self.lua.load(text).set_name(chunk_name).set_mode(ChunkMode::Text);
        chunk.set_environment(self.environment.clone()).into_function()
    }

    /// Keeps a compiled script.
    pub(super) fn keep(&mut self, script: Arc<Script>, function: Function) -> Compiled {
        if self.by_name.len() >= COMPILED_MAX {
            self.by_name.clear();
            self.by_text.clear();
        }
        let compiled = Compiled { script, function };
        let script = &compiled.script;
        self.by_name.insert(script.name, compiled.clone());
        if script.text.len() <= KNOWN_TEXT_BYTES_MAX {
            self.by_text.insert(script.text.clone(), compiled.clone());
        }
        compiled
    }

    /// Runs a script. `bytes_max`: memory of the interpreter.
    pub(super) fn run(
        &mut self,
        compiled: &Compiled,
        keys: Args<'_>,
        arguments: Args<'_>,
        bytes_max: usize,
        host: &mut dyn ScriptHost,
    ) -> Outcome {
        let (keys, arguments) = match (self.strings(keys), self.strings(arguments)) {
            (Ok(keys), Ok(arguments)) => (keys, arguments),
            (Err(error), _) | (_, Err(error)) => return Outcome::Failed(error),
        };
        cjson::reset();
        // A limit makes every conversion slower, so functions of Rust remove it and check the
        // memory themselves: see `native::Unlimited`.
        let limited = self.lua.set_memory_limit(bytes_max);
        let result = limited.and_then(|_| {
            HOST.set(host, || self.run.call::<(bool, Value)>((&compiled.function, keys, arguments)))
        });
        let unlimited = self.lua.set_memory_limit(0);
        let restored = unlimited.and_then(|_| set_hook_if_changed(&self.lua));
        match (result, restored) {
            (Err(error), _) | (_, Err(error)) => Outcome::Failed(error),
            (Ok((true, value)), _) => Outcome::Returned(value),
            (Ok((false, error)), _) => Outcome::Raised(error),
        }
    }

    fn strings(&self, strings: Args<'_>) -> mlua::Result<Table> {
        self.lua.create_sequence_from(strings.iter().map(LuaBytes))
    }

    /// Reports the interpreter's memory, and frees garbage if it is much.
    fn report_memory(&mut self) {
        let mut used_bytes = self.lua.used_memory();
        if used_bytes > KEPT_BYTES_MAX && self.lua.gc_collect().is_ok() {
            used_bytes = self.lua.used_memory();
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

thread_local! {
    /// Whether the running script is being ended: the hook is called at every instruction.
    static IS_STOPPING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn set_hook(lua: &Lua, instructions: u32) -> mlua::Result<()> {
    let triggers = HookTriggers::new().every_nth_instruction(instructions);
    lua.set_global_hook(triggers, |lua, frame| {
        if !HOST.is_set() {
            return Ok(VmState::Continue);
        }
        let place = || {
            let source = frame.source().source.as_deref().unwrap_or_default().to_owned();
            (source, frame.current_line().unwrap_or(0))
        };
        if HOST.with(|host| host.may_continue(&place)) {
            return Ok(VmState::Continue);
        }
        stop(lua)?;
        Err(stopped())
    })
}

fn stopped() -> mlua::Error {
    mlua::Error::runtime("the script was stopped")
}

/// Makes every further instruction of the script fail, so that it cannot catch the error and
/// continue.
fn stop(lua: &Lua) -> mlua::Result<()> {
    if IS_STOPPING.replace(true) {
        return Ok(());
    }
    set_hook(lua, 1)
}

fn set_hook_if_changed(lua: &Lua) -> mlua::Result<()> {
    if IS_STOPPING.replace(false) { set_hook(lua, CHECK_INSTRUCTIONS) } else { Ok(()) }
}

/// Creates what scripts see. Returns the function that runs a script with its keys and arguments,
/// and the environment of scripts.
fn prelude(lua: &Lua) -> mlua::Result<(Function, Table)> {
    let native = lua.create_table()?;
    native.raw_set("call", guard(lua, call)?)?;
    native.raw_set("pcall", guard(lua, protected_call)?)?;
    native.raw_set("visible", lua.create_function(to_visible)?)?;
    native.raw_set("sha1hex", guard(lua, sha1hex)?)?;
    native.raw_set("log", guard(lua, log)?)?;
    native.raw_set("setresp", guard(lua, set_protocol)?)?;
    native.raw_set("set_repl", guard(lua, set_replication)?)?;
    native.raw_set("acl_check_cmd", guard(lua, may_run)?)?;
    native.raw_set("random", guard(lua, random)?)?;
    native.raw_set("randomseed", guard(lua, set_seed)?)?;
    native.raw_set("on_error", lua.create_function(describe)?)?;
    native.raw_set("version", super::REDIS_VERSION)?;
    native.raw_set("version_number", super::REDIS_VERSION_NUMBER)?;
    let libraries = lua.create_table()?;
    libraries.raw_set("bit", bits::library(lua)?)?;
    libraries.raw_set("cjson", cjson::library(lua)?)?;
    libraries.raw_set("cmsgpack", cmsgpack::library(lua)?)?;
    libraries.raw_set("struct", structs::library(lua)?)?;
    native.raw_set("libraries", libraries)?;
    let std = lua.globals();
    std.raw_set("clock", lua.create_function(|_, ()| Ok(processor_seconds()))?)?;
    let environment = lua.create_table()?;
    let chunk = lua.load(include_str!("prelude.lua")).set_name("=prelude");
    chunk.set_environment(environment).call((native, std))
}

#[expect(clippy::cast_precision_loss, reason = "microseconds since the start")]
fn processor_seconds() -> f64 {
    crate::engine::process::cpu_time()
        .map_or(0.0, |time| (time.system_us + time.user_us) as f64 / 1e6)
}

// --- Functions of `redis`

const OUTSIDE: &str = "can only be called inside a script invocation";

fn outside(function: &str) -> NativeError {
    NativeError::Reply(format!("ERR {function} {OUTSIDE}").into_bytes())
}

fn reply_error(text: &str) -> NativeError {
    NativeError::Reply(text.as_bytes().to_vec())
}

thread_local! {
    /// Arguments of the command that a script runs; kept for the next one.
    static ARGUMENTS: RefCell<OwnedArgs> = RefCell::new(OwnedArgs::new());
}

/// Runs `body` with the arguments of a command.
fn with_arguments<T>(
    values: &MultiValue,
    body: impl FnOnce(Args<'_>) -> T,
) -> Result<T, NativeError> {
    if values.is_empty() {
        let text = "ERR Please specify at least one argument for this redis lib call";
        return Err(reply_error(text));
    }
    ARGUMENTS.with_borrow_mut(|args| {
        args.clear();
        for value in values {
            match value {
                Value::String(text) => args.push(&text.as_bytes()),
                Value::Integer(number) => args.push(itoa::Buffer::new().format(*number).as_bytes()),
                Value::Number(number) => args.push(numbers::argument_text(*number).as_bytes()),
                _ => {
                    let text = "ERR Lua redis lib command arguments must be strings or integers";
                    return Err(reply_error(text));
                }
            }
        }
        let result = body(args.as_args());
        if args.memory_bytes() > super::ARGUMENT_BYTES_KEPT_MAX {
            *args = OwnedArgs::new();
        }
        Ok(result)
    })
}

/// `redis.call`: raises an error reply.
fn call(lua: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    run_command(lua, values, |line| {
        Err(CallError::Fail(line.strip_suffix(b"\r\n").unwrap_or(line).to_vec()))
    })
}

/// `redis.pcall`: returns an error reply as a table.
fn protected_call(lua: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    let result = run_command(lua, values, |line| Ok(reply::to_lua(lua, &[b"-", line].concat())?));
    match result {
        Err(NativeError::Counted(text)) => Ok(Value::Table(reply::error_table(lua, &text, true)?)),
        Err(NativeError::Reply(text)) => Ok(Value::Table(reply::error_table(lua, &text, false)?)),
        other => other,
    }
}

/// Runs a command of the script. `failed` handles an error reply.
fn run_command(
    lua: &Lua,
    values: &MultiValue,
    failed: impl Fn(&[u8]) -> Result<Value, CallError>,
) -> Result<Value, NativeError> {
    if !HOST.is_set() {
        return Err(outside("redis.call/pcall"));
    }
    let ran = with_arguments(values, |args| {
        HOST.with(|host| {
            host.call(args, &mut |bytes| match bytes.strip_prefix(b"-") {
                Some(line) => failed(line),
                None => Ok(reply::to_lua(lua, bytes)?),
            })
        })
    })?;
    match ran {
        Ok(value) => Ok(value),
        Err(CallError::Fail(text)) => Err(NativeError::Counted(text)),
        Err(CallError::Lua(error)) => Err(NativeError::Lua(error)),
        Err(CallError::Stop) => {
            stop(lua)?;
            Err(NativeError::Lua(stopped()))
        }
    }
}

fn may_run(_: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    if !HOST.is_set() {
        return Err(outside("redis.acl_check_cmd"));
    }
    match with_arguments(values, |args| HOST.with(|host| host.may_run(args)))? {
        Some(allowed) => Ok(Value::Boolean(allowed)),
        None => Err(reply_error("ERR Invalid command passed to redis.acl_check_cmd()")),
    }
}

fn sha1hex(lua: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    if values.len() != 1 {
        return Err(reply_error("ERR wrong number of arguments"));
    }
    let text = lua.coerce_string(values[0].clone())?;
    let name = match &text {
        Some(text) => super::script_name(&text.as_bytes()),
        None => super::script_name(b""),
    };
    Ok(Value::String(lua.create_string(name)?))
}

/// The integer that a C function reads from an argument: 0 if it is not a number.
#[expect(clippy::cast_possible_truncation, reason = "as in C, but saturating")]
fn number_or_zero(lua: &Lua, value: &Value) -> i64 {
    lua.coerce_number(value.clone()).ok().flatten().map_or(0, |number| number as i64)
}

fn log(lua: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    if values.len() < 2 {
        return Err(reply_error("ERR redis.log() requires two arguments or more."));
    }
    if lua.coerce_number(values[0].clone())?.is_none() {
        return Err(reply_error("ERR First argument must be a number (log level)."));
    }
    let level = number_or_zero(lua, &values[0]);
    if !(0..=3).contains(&level) {
        return Err(reply_error("ERR Invalid debug level."));
    }
    let mut message = Vec::new();
    for value in values.iter().skip(1) {
        if let Some(text) = lua.coerce_string(value.clone())? {
            if !message.is_empty() {
                message.push(b' ');
            }
            message.extend_from_slice(&text.as_bytes());
            message.truncate(LOGGED_BYTES_MAX);
        }
    }
    let message = String::from_utf8_lossy(&message);
    match level {
        0 => tracing::debug!(%message, "message of a script"),
        1 | 2 => tracing::info!(%message, "message of a script"),
        _ => tracing::warn!(%message, "message of a script"),
    }
    Ok(Value::Nil)
}

/// Longer messages of `redis.log` are cut.
// Source: Redis 7.2 `server.h`, `LOG_MAX_LEN`
const LOGGED_BYTES_MAX: usize = 1024;

fn set_protocol(lua: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    if !HOST.is_set() {
        return Err(outside("redis.setresp"));
    }
    if values.len() != 1 {
        return Err(reply_error("ERR redis.setresp() requires one argument."));
    }
    let protocol = match number_or_zero(lua, &values[0]) {
        2 => Protocol::Resp2,
        3 => Protocol::Resp3,
        _ => return Err(reply_error("ERR RESP version must be 2 or 3.")),
    };
    HOST.with(|host| host.set_protocol(protocol));
    Ok(Value::Nil)
}

/// Accepted without effect: the log contains changes, not scripts.
fn set_replication(lua: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    if !HOST.is_set() {
        return Err(outside("redis.set_repl"));
    }
    if values.len() != 1 {
        return Err(reply_error("ERR redis.set_repl() requires two arguments."));
    }
    if number_or_zero(lua, &values[0]) & !3 != 0 {
        let text =
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(reply_error(text));
    }
    Ok(Value::Nil)
}

/// Highest value of `lrand48`.
const RANDOM_MAX: u32 = 0x7FFF_FFFF;

// Source: Redis 7.2 `script_lua.c`, `redis_math_random`
fn random(lua: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    if !HOST.is_set() {
        return Err(NativeError::text(format!("math.random {OUTSIDE}")));
    }
    let bound = |nth: usize| integer_argument(lua, values, nth, "random");
    let (low, high) = match values.len() {
        0 => (0.0, None),
        1 => (1.0, Some((bound(1)?, 1))),
        2 => (bound(1)?, Some((bound(2)?, 2))),
        _ => return Err(NativeError::text("wrong number of arguments")),
    };
    let bits = HOST.with(|host| host.random()) % RANDOM_MAX;
    let part = f64::from(bits) / f64::from(RANDOM_MAX);
    let Some((high, nth)) = high else { return Ok(Value::Number(part)) };
    if low > high {
        let text = format!("bad argument #{nth} to 'random' (interval is empty)");
        return Err(NativeError::text(text));
    }
    Ok(Value::Number((part * (high - low + 1.0)).floor() + low))
}

/// An argument as C's `int`.
#[expect(clippy::cast_possible_truncation, reason = "as in C")]
fn integer_argument(
    lua: &Lua,
    values: &MultiValue,
    nth: usize,
    function: &str,
) -> Result<f64, NativeError> {
    let value = super::native::number(lua, values, nth, function)?;
    Ok(f64::from(value as i32))
}

fn set_seed(lua: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    if !HOST.is_set() {
        return Err(NativeError::text(format!("math.randomseed {OUTSIDE}")));
    }
    let seed = integer_argument(lua, values, 1, "randomseed")?;
    #[expect(clippy::cast_possible_truncation, reason = "it is an `i32`")]
    HOST.with(|host| host.set_seed(seed as i32));
    Ok(Value::Nil)
}

/// Makes the error that a script raised a table with its place.
// Source: Redis 7.2 `eval.c`, `__redis__err__handler`
fn describe(lua: &Lua, error: Value) -> mlua::Result<Table> {
    let table = match to_visible(lua, error)? {
        Value::Table(table) => table,
        other => {
            let table = lua.create_table()?;
            let text = match &other {
                Value::String(text) => text.as_bytes().to_vec(),
                other => other.to_string()?.into_bytes(),
            };
            table.raw_set("err", lua.create_string([b"ERR ", &text[..]].concat())?)?;
            table
        }
    };
    // Level 0 is this function. The error was raised by a script or by a function that it called.
    for level in 1..8 {
        let place = lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let name = source.source.as_deref().unwrap_or_default().to_owned();
            (source.what != "C" && name != "=prelude").then(|| (name, frame.current_line()))
        });
        match place {
            None => break,
            Some(None) => {}
            Some(Some((name, line))) => {
                table.raw_set("source", name)?;
                if let Some(line) = line {
                    table.raw_set("line", line)?;
                }
                break;
            }
        }
    }
    Ok(table)
}
