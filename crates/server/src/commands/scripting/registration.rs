//! `redis.register_function`: what a library does while its code is loaded.

use std::collections::HashSet;
use std::rc::Rc;

use base::stages::CycleClock;
use mlua::{Lua, MultiValue, Table, Value};
use scoped_tls_hkt::scoped_thread_local;

use super::kept::{KeptFunction, KeptFunctions};
use super::native::{NativeError, reply_error};
use crate::engine::functions::{BYTES_MAX, FUNCTIONS_MAX, FunctionFlags};
use crate::engine::running_scripts::RunningScripts;

/// Time that the code of a new library may take.
// Source: Redis 7.2 `functions.c`, `LOAD_TIMEOUT_MS`
pub(super) const LOAD_NS_MAX: u64 = 500_000_000;

scoped_thread_local!(pub(super) static mut LOADING: for<'a> &'a mut (dyn Loader + 'a));

/// The library that an interpreter loads.
pub(super) trait Loader {
    /// Called from time to time. False if the library has taken too long.
    fn may_continue(&mut self) -> bool;

    fn add(&mut self, function: Registered) -> Result<(), NativeError>;
}

/// A function that a library has registered.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) name: Box<[u8]>,
    pub(super) description: Option<Box<[u8]>>,
    pub(super) flags: FunctionFlags,
    pub(super) code: Rc<KeptFunction>,
}

/// Limits of the time in which a library is loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadTime<'l> {
    pub(super) clock: &'l CycleClock,
    pub(super) began: u64,
    pub(super) ns_max: u64,
    /// FUNCTION KILL ends what this reactor loads.
    pub(super) running: &'l RunningScripts,
    pub(super) reactor: usize,
}

/// A library that is being loaded.
#[derive(Debug)]
pub(super) struct Loading<'l> {
    /// `None`: at the start of the server.
    time: Option<LoadTime<'l>>,
    registered: Vec<Registered>,
    names: HashSet<Box<[u8]>>,
    bytes: usize,
    is_stopped: bool,
}

impl<'l> Loading<'l> {
    pub(super) fn new(time: Option<LoadTime<'l>>) -> Loading<'l> {
        let (registered, names) = (Vec::new(), HashSet::new());
        Loading { time, registered, names, bytes: 0, is_stopped: false }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    pub(super) fn take_registered(&mut self) -> Vec<Registered> {
        std::mem::take(&mut self.registered)
    }
}

impl Loader for Loading<'_> {
    fn may_continue(&mut self) -> bool {
        if let Some(time) = self.time {
            let ns = time.clock.delta_ns(time.began, time.clock.now());
            self.is_stopped |= ns > time.ns_max || time.running.is_killed(time.reactor);
        }
        !self.is_stopped
    }

    // Source: Redis 7.0 `functions.c`, `functionLibCreateFunction`
    fn add(&mut self, function: Registered) -> Result<(), NativeError> {
        if !is_name(&function.name) {
            return Err(reply_error(&format!("ERR {WRONG_NAME}")));
        }
        self.bytes += function.name.len() + function.description.as_ref().map_or(0, |it| it.len());
        if self.registered.len() >= FUNCTIONS_MAX || self.bytes > BYTES_MAX {
            return Err(reply_error("ERR too many functions, or too long descriptions"));
        }
        if !self.names.insert(function.name.clone()) {
            return Err(reply_error("ERR Function already exists in the library"));
        }
        self.registered.push(function);
        Ok(())
    }
}

pub(super) const WRONG_NAME: &str = "Library names can only contain letters, numbers, or \
                                     underscores(_) and must be at least one character long";

/// Whether a library or function may have this name.
// Source: Redis 7.2 `functions.c`, `functionsVerifyName`
pub(super) fn is_name(name: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(fits)
}

/// `table`: the name by which the library calls it, redis or server as in Valkey 8. Errors have it.
pub(super) fn register(
    lua: &Lua,
    values: &MultiValue,
    kept: &Rc<KeptFunctions>,
    table: &str,
) -> Result<Value, NativeError> {
    registered(lua, values, kept).map_err(|error| match error {
        NativeError::Reply(text) => {
            let name = format!("{table}.register_function");
            reply_error(&String::from_utf8_lossy(&text).replace(FUNCTION, &name))
        }
        other => other,
    })
}

/// How the texts below name the function.
const FUNCTION: &str = "redis.register_function";

// Source: Redis 7.2 `function_lua.c`, `luaRegisterFunction`
fn registered(
    lua: &Lua,
    values: &MultiValue,
    kept: &Rc<KeptFunctions>,
) -> Result<Value, NativeError> {
    if !LOADING.is_set() {
        let text = "ERR redis.register_function can only be called on FUNCTION LOAD command";
        return Err(reply_error(text));
    }
    let function = match values.len() {
        1 => named_arguments(lua, &values[0], kept)?,
        2 => positional_arguments(lua, values, kept)?,
        _ => return Err(reply_error("ERR wrong number of arguments to redis.register_function")),
    };
    LOADING.with(|loading| loading.add(function))?;
    Ok(Value::Nil)
}

/// A string, or a number as text.
fn text(lua: &Lua, value: &Value, error: &str) -> Result<Box<[u8]>, NativeError> {
    let text = lua.coerce_string(value.clone())?.ok_or_else(|| reply_error(error))?;
    Ok((*text.as_bytes()).into())
}

// Source: Redis 7.2 `function_lua.c`, `luaRegisterFunctionReadPositionalArgs`
fn positional_arguments(
    lua: &Lua,
    values: &MultiValue,
    kept: &Rc<KeptFunctions>,
) -> Result<Registered, NativeError> {
    let error = "ERR first argument to redis.register_function must be a string";
    let name = text(lua, &values[0], error)?;
    let Value::Function(code) = &values[1] else {
        return Err(reply_error(
            "ERR second argument to redis.register_function must be a function",
        ));
    };
    let (flags, code) = (FunctionFlags::default(), Rc::new(kept.keep(code)?));
    Ok(Registered { name, description: None, flags, code })
}

// Source: Redis 7.2 `function_lua.c`, `luaRegisterFunctionReadNamedArgs`
fn named_arguments(
    lua: &Lua,
    value: &Value,
    kept: &Rc<KeptFunctions>,
) -> Result<Registered, NativeError> {
    let Value::Table(arguments) = value else {
        return Err(reply_error(
            "ERR calling redis.register_function with a single argument is only applicable to Lua \
             table (representing named arguments).",
        ));
    };
    let (mut name, mut description, mut code) = (None, None, None);
    let mut flags = FunctionFlags::default();
    for pair in arguments.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let error = "ERR named argument key given to redis.register_function is not a string";
        match &*text(lua, &key, error)?.to_ascii_lowercase() {
            b"function_name" => {
                let error = "ERR function_name argument given to redis.register_function must be a \
                             string";
                name = Some(text(lua, &value, error)?);
            }
            b"description" => {
                let error = "ERR description argument given to redis.register_function must be a \
                             string";
                description = Some(text(lua, &value, error)?);
            }
            b"callback" => match value {
                Value::Function(function) => code = Some(Rc::new(kept.keep(&function)?)),
                _ => {
                    return Err(reply_error(
                        "ERR callback argument given to redis.register_function must be a function",
                    ));
                }
            },
            b"flags" => match &value {
                Value::Table(names) => flags = read_flags(lua, names)?,
                _ => {
                    return Err(reply_error(
                        "ERR flags argument to redis.register_function must be a table \
                         representing function flags",
                    ));
                }
            },
            _ => {
                let text = "ERR unknown argument given to redis.register_function";
                return Err(reply_error(text));
            }
        }
    }
    let name = name.ok_or_else(|| {
        reply_error("ERR redis.register_function must get a function name argument")
    })?;
    let code = code
        .ok_or_else(|| reply_error("ERR redis.register_function must get a callback argument"))?;
    Ok(Registered { name, description, flags, code })
}

/// Flags up to the first hole of the table.
// Source: Redis 7.2 `function_lua.c`, `luaRegisterFunctionReadFlags`
fn read_flags(lua: &Lua, names: &Table) -> Result<FunctionFlags, NativeError> {
    const FLAGS_MAX: usize = 1_000;
    let mut flags = FunctionFlags::default();
    for index in 1..=FLAGS_MAX {
        let value = names.raw_get::<Value>(index)?;
        if value == Value::Nil {
            break;
        }
        if !flags.add(&text(lua, &value, "ERR unknown flag given")?) {
            return Err(reply_error("ERR unknown flag given"));
        }
    }
    Ok(flags)
}
