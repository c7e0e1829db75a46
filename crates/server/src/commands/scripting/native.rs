//! Functions in Rust that scripts call: their arguments and errors.

use std::cell::Cell;

use mlua::{Function, IntoLuaMulti, Lua, LuaString, MultiValue, Value};

use super::host::check_end;

/// Why a function of Rust fails.
#[derive(Debug)]
pub(super) enum NativeError {
    /// A text that follows the place of the call.
    Text(Vec<u8>),
    /// An error reply.
    Reply(Vec<u8>),
    Lua(mlua::Error),
}

impl From<mlua::Error> for NativeError {
    fn from(error: mlua::Error) -> NativeError {
        NativeError::Lua(error)
    }
}

impl NativeError {
    pub(super) fn text(text: impl Into<String>) -> NativeError {
        NativeError::Text(text.into().into_bytes())
    }

    /// The error that the interpreter raises. Scripts do not see it: the prelude replaces it.
    #[cold]
    fn raise(self, lua: &Lua) -> mlua::Error {
        let raised = match self {
            NativeError::Lua(error) => return error,
            NativeError::Text(text) => {
                RaisedError::Text([place(lua).unwrap_or_default().as_bytes(), &text].concat())
            }
            NativeError::Reply(text) => RaisedError::Reply(text),
        };
        mlua::Error::external(raised)
    }
}

/// Where the running function was called, as Lua writes it before an error. `None`: in C.
// Source: Lua 5.1 `lauxlib.c`, `luaL_where`
fn place(lua: &Lua) -> Option<String> {
    lua.inspect_stack(1, |frame| {
        let line = frame.current_line()?;
        let source = frame.source();
        Some(format!("{}:{line}: ", source.short_src.as_deref().unwrap_or_default()))
    })
    .flatten()
}

/// An error that a function of Rust raised.
#[derive(Debug)]
enum RaisedError {
    Text(Vec<u8>),
    Reply(Vec<u8>),
}

impl std::fmt::Display for RaisedError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (RaisedError::Text(text) | RaisedError::Reply(text)) = self;
        formatter.write_str(&String::from_utf8_lossy(text))
    }
}

impl std::error::Error for RaisedError {}

/// Replaces an error of Rust by the value that a script sees: a string, or a table for an error
/// reply. Other values stay as they are.
pub(super) fn to_visible(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = value else { return Ok(value) };
    let mut cause = &*error;
    while let mlua::Error::CallbackError { cause: inner, .. } = cause {
        cause = inner;
    }
    let raised = match cause {
        mlua::Error::ExternalError(error) => error.downcast_ref::<RaisedError>(),
        _ => None,
    };
    Ok(match raised {
        Some(RaisedError::Text(text)) => Value::String(lua.create_string(text)?),
        Some(RaisedError::Reply(text)) => Value::Table(super::reply::error_table(lua, text)?),
        None => Value::String(lua.create_string(cause.to_string())?),
    })
}

/// Removes the memory limit while a function of Rust runs: conversions would be slower with it.
/// Functions that create many values check the memory themselves.
struct Unlimited<'l> {
    lua: &'l Lua,
    bytes_max: usize,
}

impl<'l> Unlimited<'l> {
    fn begin(lua: &'l Lua) -> mlua::Result<Unlimited<'l>> {
        let bytes_max = lua.set_memory_limit(0)?;
        BYTES_MAX.set(bytes_max);
        Ok(Unlimited { lua, bytes_max })
    }
}

impl Drop for Unlimited<'_> {
    fn drop(&mut self) {
        let restored = self.lua.set_memory_limit(self.bytes_max);
        debug_assert!(restored.is_ok(), "the allocator is that of the library");
    }
}

pub(super) fn reply_error(text: &str) -> NativeError {
    NativeError::Reply(text.as_bytes().to_vec())
}

/// Makes a function that scripts can call.
pub(super) fn guard<R: IntoLuaMulti>(
    lua: &Lua,
    function: impl Fn(&Lua, &MultiValue) -> Result<R, NativeError> + 'static,
) -> mlua::Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let _unlimited = Unlimited::begin(lua)?;
        function(lua, &values).map_err(|error| error.raise(lua))
    })
}

/// Name of a value's type in errors.
pub(super) fn type_name(values: &MultiValue, nth: usize) -> &'static str {
    match values.get(nth - 1) {
        None => "no value",
        Some(Value::Integer(_)) => "number",
        Some(Value::LightUserData(_)) => "userdata",
        Some(value) => value.type_name(),
    }
}

fn bad_type(values: &MultiValue, nth: usize, function: &str, expected: &str) -> NativeError {
    let found = type_name(values, nth);
    let text = format!("bad argument #{nth} to '{function}' ({expected} expected, got {found})");
    NativeError::text(text)
}

/// A number, or a string that contains one. `nth` counts from 1.
pub(super) fn number(
    lua: &Lua,
    values: &MultiValue,
    nth: usize,
    function: &str,
) -> Result<f64, NativeError> {
    let value = values.get(nth - 1).cloned().unwrap_or(Value::Nil);
    lua.coerce_number(value)?.ok_or_else(|| bad_type(values, nth, function, "number"))
}

/// A string, or a number as text.
pub(super) fn string(
    lua: &Lua,
    values: &MultiValue,
    nth: usize,
    function: &str,
) -> Result<LuaString, NativeError> {
    let value = values.get(nth - 1).cloned().unwrap_or(Value::Nil);
    lua.coerce_string(value)?.ok_or_else(|| bad_type(values, nth, function, "string"))
}

thread_local! {
    /// The limit that is removed at present; 0: none.
    static BYTES_MAX: Cell<usize> = const { Cell::new(0) };
}

fn bytes_max() -> usize {
    match BYTES_MAX.get() {
        0 => usize::MAX,
        limit => limit,
    }
}

fn no_memory() -> NativeError {
    NativeError::text("not enough memory")
}

/// Fails if the script has no memory left for this many bytes, without its garbage.
pub(super) fn check_room(lua: &Lua, bytes: usize) -> Result<(), NativeError> {
    let has_room = || lua.used_memory().saturating_add(bytes) <= bytes_max();
    if has_room() {
        return Ok(());
    }
    lua.gc_collect()?;
    if has_room() { Ok(()) } else { Err(no_memory()) }
}

/// Bytes that a table of twice the size takes for each element of an array, and of a map.
pub(super) const ARRAY_GROWTH_BYTES: usize = 2 * 16;
pub(super) const MAP_GROWTH_BYTES: usize = 2 * 40;

/// Called with the number of elements of a table before one is added: Lua doubles the table at some
/// of them, and needs the old one and the new one at once.
#[inline]
pub(super) fn check_growth(
    lua: &Lua,
    elements: usize,
    growth_bytes: usize,
) -> Result<(), NativeError> {
    /// Smaller tables take a fraction of what the checks for values leave open.
    const CHECKED_MIN: usize = 1024;
    if elements < CHECKED_MIN || !elements.is_power_of_two() {
        return Ok(());
    }
    check_room(lua, elements.saturating_mul(growth_bytes))
}

/// Makes a string, if the script has the memory.
pub(super) fn new_string(lua: &Lua, bytes: &[u8]) -> Result<LuaString, NativeError> {
    if bytes.len() > BYTES_PER_CHECK {
        check_room(lua, bytes.len())?;
    }
    Ok(lua.create_string(bytes)?)
}

/// Bytes of a text for which, and for the string that it becomes, the script has the memory.
fn text_bytes_max(lua: &Lua) -> usize {
    const TEXT_BYTES_MAX: usize = 512 << 20;
    TEXT_BYTES_MAX.min(bytes_max().saturating_sub(lua.used_memory()) / 2)
}

/// A text that a function of Rust makes of values. It fails before it exceeds the memory that the
/// script has left for it and for the string that it becomes.
#[derive(Debug)]
pub(super) struct Text<'l> {
    lua: &'l Lua,
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl<'l> Text<'l> {
    pub(super) fn new(lua: &'l Lua) -> Text<'l> {
        Text { lua, bytes: Vec::new(), bytes_max: text_bytes_max(lua) }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn push(&mut self, byte: u8) -> Result<(), NativeError> {
        self.extend(&[byte])
    }

    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) -> Result<(), NativeError> {
        if self.bytes.capacity() - self.bytes.len() < bytes.len() {
            self.grow(bytes.len())?;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<(), NativeError> {
        const CAPACITY_MIN: usize = 64;
        let needed = self.bytes.len().saturating_add(more);
        if needed > self.bytes_max {
            self.lua.gc_collect()?;
            self.bytes_max = text_bytes_max(self.lua);
            if needed > self.bytes_max {
                return Err(no_memory());
            }
        }
        let doubled = self.bytes.capacity().saturating_mul(2).max(CAPACITY_MIN);
        let capacity = doubled.max(needed).min(self.bytes_max);
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    pub(super) fn into_value(self) -> Result<Value, NativeError> {
        Ok(Value::String(self.lua.create_string(&self.bytes)?))
    }
}

/// Bytes whose conversion takes a fraction of a millisecond.
const BYTES_PER_CHECK: usize = 64 * 1024;

/// Values that a function of Rust converts between two calls of [`check`].
const VALUES_PER_CHECK: usize = 1024;

/// Called with the number of each converted value. From time to time, fails if the script must end
/// or uses too much memory.
#[inline]
pub(super) fn check(lua: &Lua, values: usize) -> Result<(), NativeError> {
    if values.is_multiple_of(VALUES_PER_CHECK) { check_now(lua) } else { Ok(()) }
}

/// Called before work on the bytes of a text: fails like [`check`] if they are many.
pub(super) fn check_bytes(lua: &Lua, bytes: usize) -> Result<(), NativeError> {
    if bytes > BYTES_PER_CHECK { check_now(lua) } else { Ok(()) }
}

#[cold]
fn check_now(lua: &Lua) -> Result<(), NativeError> {
    check_room(lua, 0)?;
    Ok(check_end(lua)?)
}
