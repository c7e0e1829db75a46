//! The functions of `redis`, and the globals that scripts see.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};
use wire::resp::{Args, OwnedArgs, Protocol};

use super::host::{CallError, HOST, check_end, is_stopping, stop, stopped};
use super::kept::KeptFunctions;
use super::native::{NativeError, check_bytes, guard, reply_error, to_visible};
use super::reply::IS_COUNTED;
use super::stack::{self, Argument, Arguments, Ending, StackFunction};
use super::{TEXT_BYTES_MAX, bits, cjson, cmsgpack, numbers, patterns, registration, structs};

/// What the prelude has made.
#[derive(Debug)]
pub(super) struct Prelude {
    /// Runs a script.
    pub(super) run: Function,
    /// Handles an error of a script.
    pub(super) on_error: Function,
    /// `KEYS` and `ARGV`.
    pub(super) input_names: (LuaString, LuaString),
    /// Runs a function.
    pub(super) run_function: Function,
    /// Runs the code of a library.
    pub(super) load_library: Function,
    /// The globals of scripts and functions, which the environments show.
    pub(super) globals: Table,
    /// The globals of a library's code while it is loaded.
    pub(super) load_globals: Table,
    /// The globals of all scripts, as they see them.
    pub(super) environment: Table,
    /// The globals of all libraries, as they see them, and the metatable.
    pub(super) library_environment: Table,
    pub(super) of_libraries: Table,
}

/// Creates what scripts see.
pub(super) fn prelude(lua: &Lua, kept: &Rc<KeptFunctions>) -> mlua::Result<Prelude> {
    let native = lua.create_table()?;
    native.raw_set("call", stack::function::<Call>(lua)?)?;
    native.raw_set("pcall", stack::function::<ProtectedCall>(lua)?)?;
    stack::set_stop(lua, lua.create_function(|lua, ()| stop(lua).and(Err::<(), _>(stopped())))?)?;
    native.raw_set("visible", lua.create_function(to_visible)?)?;
    native.raw_set("sha1hex", guard(lua, sha1hex)?)?;
    native.raw_set("log", guard(lua, log)?)?;
    native.raw_set("setresp", guard(lua, set_protocol)?)?;
    native.raw_set("set_repl", guard(lua, set_replication)?)?;
    native.raw_set("acl_check_cmd", stack::function::<MayRun>(lua)?)?;
    native.raw_set("random", guard(lua, random)?)?;
    native.raw_set("randomseed", guard(lua, set_seed)?)?;
    native.raw_set("functions", &kept.table)?;
    for table in ["redis", "server"] {
        let kept = Rc::clone(kept);
        let register =
            guard(lua, move |lua, values| registration::register(lua, values, &kept, table))?;
        native.raw_set(format!("register_function_of_{table}"), register)?;
    }
    native.raw_set("is_stopping", lua.create_function(|_, ()| Ok(is_stopping()))?)?;
    native.raw_set("check_end", lua.create_function(|lua, ()| check_end(lua))?)?;
    native.raw_set("text_bytes_max", TEXT_BYTES_MAX)?;
    native.raw_set("pattern_cost", lua.create_function(patterns::cost)?)?;
    native.raw_set("find_plain", lua.create_function(patterns::find_plain)?)?;
    native.raw_set("search", lua.create_function(patterns::search)?)?;
    let on_error = lua.create_function(describe)?;
    native.raw_set("on_error", &on_error)?;
    native.raw_set("version", super::REDIS_VERSION)?;
    native.raw_set("version_number", super::REDIS_VERSION_NUMBER)?;
    let libraries = lua.create_table()?;
    libraries.raw_set("bit", bits::library(lua)?)?;
    libraries.raw_set("cjson", cjson::library(lua)?)?;
    libraries.raw_set("cmsgpack", cmsgpack::library(lua)?)?;
    libraries.raw_set("struct", structs::library(lua)?)?;
    native.raw_set("libraries", libraries)?;
    #[expect(clippy::disallowed_methods, reason = "the interpreter is new")]
    let std = lua.globals();
    std.raw_set("clock", lua.create_function(|_, ()| Ok(processor_seconds()))?)?;
    let environment = lua.create_table()?;
    let chunk = lua.load(include_str!("prelude.lua")).set_name("=prelude");
    let made: Table = chunk.set_environment(environment).call((native, std))?;
    Ok(Prelude {
        run: stack::runner(lua)?,
        on_error,
        input_names: (lua.create_string("KEYS")?, lua.create_string("ARGV")?),
        run_function: made.raw_get("run_function")?,
        load_library: made.raw_get("load_library")?,
        globals: made.raw_get("globals")?,
        load_globals: made.raw_get("load_globals")?,
        environment: made.raw_get("environment")?,
        library_environment: made.raw_get("library_environment")?,
        of_libraries: made.raw_get("of_libraries")?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "microseconds since the start")]
fn processor_seconds() -> f64 {
    crate::engine::process::cpu_time()
        .map_or(0.0, |time| (time.system_us + time.user_us) as f64 / 1e6)
}

const OUTSIDE: &str = "can only be called inside a script invocation";

fn outside_text(function: &str) -> String {
    format!("ERR {function} {OUTSIDE}")
}

fn outside(function: &str) -> NativeError {
    NativeError::Reply(outside_text(function).into_bytes())
}

/// Bytes of the arguments of one command, as those of one bulk string: they are copied.
const ARGUMENT_BYTES_MAX: usize = 512 << 20;

thread_local! {
    /// Arguments of the command that a script runs; kept for the next one.
    static ARGUMENTS: RefCell<OwnedArgs> = RefCell::new(OwnedArgs::new());
}

/// Runs `body` with the arguments of a command. Fails with the text of an error reply.
fn with_arguments<T>(
    arguments: &Arguments<'_>,
    body: impl FnOnce(Args<'_>) -> T,
) -> Result<T, &'static str> {
    ARGUMENTS.with_borrow_mut(|args| {
        args.clear();
        let mut bytes_left = ARGUMENT_BYTES_MAX;
        for argument in arguments.iter() {
            match argument {
                Argument::Text(text) => {
                    bytes_left = bytes_left
                        .checked_sub(text.len())
                        .ok_or("ERR the arguments of the command are too large")?;
                    args.push(text);
                }
                Argument::Number(number) => push_number(args, number),
                Argument::Other => {
                    return Err("ERR Lua redis lib command arguments must be strings or integers");
                }
            }
        }
        if args.as_args().is_empty() {
            return Err("ERR Please specify at least one argument for this redis lib call");
        }
        let result = body(args.as_args());
        if args.memory_bytes() > super::ARGUMENT_BYTES_KEPT_MAX {
            *args = OwnedArgs::new();
        }
        Ok(result)
    })
}

#[expect(clippy::cast_possible_truncation, reason = "checked")]
fn push_number(args: &mut OwnedArgs, number: f64) {
    /// 2^63.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if number.fract() == 0.0 && (-LIMIT..LIMIT).contains(&number) {
        args.push(itoa::Buffer::new().format(number as i64).as_bytes());
    } else {
        args.push(numbers::argument_text(number).as_bytes());
    }
}

/// `redis.call`: raises an error reply.
struct Call;

impl StackFunction for Call {
    const RAISES: bool = true;

    fn call(arguments: &Arguments<'_>, result: &mut Vec<u8>) -> Ending {
        run_command(arguments, result)
    }
}

/// `redis.pcall`: returns an error reply as a table.
struct ProtectedCall;

impl StackFunction for ProtectedCall {
    const RAISES: bool = false;

    fn call(arguments: &Arguments<'_>, result: &mut Vec<u8>) -> Ending {
        run_command(arguments, result)
    }
}

/// Runs a command of the script.
fn run_command(arguments: &Arguments<'_>, result: &mut Vec<u8>) -> Ending {
    if !HOST.is_set() {
        return error(result, outside_text("redis.call/pcall").as_bytes());
    }
    let called = with_arguments(arguments, |args| HOST.with(|host| host.call(args, result)));
    match called {
        Ok(Ok(())) => Ending::Reply,
        Ok(Err(CallError::Stop)) => Ending::Stop,
        Ok(Err(CallError::Fail(text))) => {
            result.extend_from_slice(&text);
            Ending::Error { is_counted: true }
        }
        Err(text) => error(result, text.as_bytes()),
    }
}

/// An error reply that no counter includes.
fn error(result: &mut Vec<u8>, text: &[u8]) -> Ending {
    result.extend_from_slice(text);
    Ending::Error { is_counted: false }
}

/// `redis.acl_check_cmd`.
struct MayRun;

impl StackFunction for MayRun {
    const RAISES: bool = true;

    fn call(arguments: &Arguments<'_>, result: &mut Vec<u8>) -> Ending {
        if !HOST.is_set() {
            return error(result, outside_text("redis.acl_check_cmd").as_bytes());
        }
        let allowed = with_arguments(arguments, |args| HOST.with(|host| host.may_run(args)));
        match allowed {
            Ok(Some(allowed)) => Ending::Boolean(allowed),
            Ok(None) => error(result, b"ERR Invalid command passed to redis.acl_check_cmd()"),
            Err(text) => error(result, text.as_bytes()),
        }
    }
}

fn sha1hex(lua: &Lua, values: &MultiValue) -> Result<Value, NativeError> {
    if values.len() != 1 {
        return Err(reply_error("ERR wrong number of arguments"));
    }
    let text = lua.coerce_string(values[0].clone())?;
    let name = match &text {
        Some(text) => {
            check_bytes(lua, text.as_bytes().len())?;
            super::script_name(&text.as_bytes())
        }
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
    let message = joined(lua, values.iter().skip(1))?;
    let message = String::from_utf8_lossy(&message);
    match level {
        0 => tracing::debug!(%message, "message of a script"),
        1 | 2 => tracing::info!(%message, "message of a script"),
        _ => tracing::warn!(%message, "message of a script"),
    }
    Ok(Value::Nil)
}

/// Joins texts and numbers by spaces, up to [`LOGGED_BYTES_MAX`].
fn joined<'v>(lua: &Lua, values: impl Iterator<Item = &'v Value>) -> mlua::Result<Vec<u8>> {
    let mut message = Vec::new();
    for value in values {
        if let Some(text) = lua.coerce_string(value.clone())? {
            if !message.is_empty() {
                message.push(b' ');
            }
            let room = LOGGED_BYTES_MAX.saturating_sub(message.len());
            message.extend(text.as_bytes().iter().take(room));
        }
    }
    Ok(message)
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
    let table = lua.create_table()?;
    match to_visible(lua, error)? {
        // A copy, because scripts can raise tables that are read-only for them.
        Value::Table(raised) => {
            for field in ["err", "source", "line", IS_COUNTED] {
                table.raw_set(field, raised.raw_get::<Value>(field)?)?;
            }
        }
        other => {
            let text = match &other {
                Value::String(text) => [b"ERR ", &*text.as_bytes()].concat(),
                other => [b"ERR ", other.to_string()?.as_bytes()].concat(),
            };
            table.raw_set("err", lua.create_string(text)?)?;
        }
    }
    if let Some((name, line)) = raising_line(lua) {
        table.raw_set("source", name)?;
        if let Some(line) = line {
            table.raw_set("line", line)?;
        }
    }
    Ok(table)
}

/// The chunk and the line that raised an error: of a script, or of a function that it called.
fn raising_line(lua: &Lua) -> Option<(String, Option<usize>)> {
    // Level 0 is the handler of the error. After the last level there is no further one.
    let frames = (1..8).map_while(|level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let name = source.source.as_deref().unwrap_or_default().to_owned();
            (source.what != "C" && name != "=prelude").then(|| (name, frame.current_line()))
        })
    });
    frames.flatten().next()
}
