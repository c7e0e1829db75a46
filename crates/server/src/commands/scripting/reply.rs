//! Replies as values of Lua, and values as replies.
//!
//! Source: Redis 7.2 `script_lua.c`, `redisProtocolToLuaType` and `luaReplyToRedisReply`

use memchr::memchr;
use mlua::{Lua, LuaString, Table, Value};
use wire::resp::{Protocol, ReplyWriter};

use super::stack::Stack;
use crate::commands::context::check_room;
use crate::commands::fail::Fail;

/// Depth of tables in a script's result. Deeper ones are an error, as in Redis at the limit of its
/// stack.
const DEPTH_MAX: usize = 1_000;

/// Field of the table of an error that the counters include already.
// Source: Redis 7.2 `script_lua.c`, `luaPushError`
pub(super) const IS_COUNTED: &str = "ignore_error_stats_update";

/// A table that stands for an error reply that no counter includes.
pub(super) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 4)?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}

/// Whether a converted reply is an error.
pub(super) fn is_error(table: &Table) -> mlua::Result<bool> {
    table.raw_get::<Value>(IS_COUNTED).map(|value| value == Value::Boolean(true))
}

/// Why a reply cannot be converted.
#[derive(Debug)]
enum ConversionError {
    /// Not a reply, which no command writes.
    Malformed,
    /// More elements or levels than Lua can hold.
    TooLarge,
}

fn line<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8], ConversionError> {
    let end = memchr(b'\r', bytes).ok_or(ConversionError::Malformed)?;
    let line = &bytes[..end];
    *bytes = bytes.get(end + 2..).ok_or(ConversionError::Malformed)?;
    Ok(line)
}

fn number(text: &[u8]) -> Result<i64, ConversionError> {
    wire::resp::parse_i64_strict(text).ok_or(ConversionError::Malformed)
}

fn blob<'b>(bytes: &mut &'b [u8], length: i64) -> Result<&'b [u8], ConversionError> {
    let length = usize::try_from(length).map_err(|_| ConversionError::Malformed)?;
    let blob = bytes.get(..length).ok_or(ConversionError::Malformed)?;
    *bytes = bytes.get(length + 2..).ok_or(ConversionError::Malformed)?;
    Ok(blob)
}

/// Pushes a table with one field.
fn push_single(
    stack: &mut Stack<'_>,
    name: &str,
    push: impl FnOnce(&mut Stack<'_>) -> Result<(), ConversionError>,
) -> Result<(), ConversionError> {
    stack.push_table(0, 1);
    stack.push_text(name.as_bytes());
    push(stack)?;
    stack.set_field();
    Ok(())
}

fn push_single_text(stack: &mut Stack<'_>, name: &str, text: &[u8]) {
    stack.push_table(0, 1);
    stack.push_text(name.as_bytes());
    stack.push_text(text);
    stack.set_field();
}

/// Pushes the table of an error reply.
pub(super) fn push_error(stack: &mut Stack<'_>, text: &[u8], is_counted: bool) {
    stack.push_table(0, 4);
    stack.push_text(b"err");
    stack.push_text(text);
    stack.set_field();
    if is_counted {
        stack.push_text(IS_COUNTED.as_bytes());
        stack.push_boolean(true);
        stack.set_field();
    }
}

/// Converts a complete reply and pushes it. Returns whether it is an error.
pub(super) fn push_or_error(stack: &mut Stack<'_>, bytes: &[u8]) -> bool {
    let text = match push(stack, &mut &*bytes) {
        Ok(()) => return bytes.starts_with(b"-"),
        Err(ConversionError::Malformed) => "ERR malformed reply of a command",
        Err(ConversionError::TooLarge) => "ERR reply is too large",
    };
    stack.clear();
    push_error(stack, text.as_bytes(), false);
    true
}

/// Converts the next reply of `bytes` and pushes it. Has nothing to drop: see `stack`.
fn push(stack: &mut Stack<'_>, bytes: &mut &[u8]) -> Result<(), ConversionError> {
    if !stack.reserve() {
        return Err(ConversionError::TooLarge);
    }
    let kind = *bytes.first().ok_or(ConversionError::Malformed)?;
    *bytes = &bytes[1..];
    let head = line(bytes)?;
    match kind {
        b'+' => push_single_text(stack, "ok", head),
        b'-' => push_error(stack, head, true),
        b':' => stack.push_integer(number(head)?),
        b'$' => match number(head)? {
            -1 => stack.push_boolean(false),
            length => stack.push_text(blob(bytes, length)?),
        },
        b'*' | b'>' => match number(head)? {
            -1 => stack.push_boolean(false),
            count => push_array(stack, count, bytes)?,
        },
        b'_' => stack.push_nil(),
        b'#' => stack.push_boolean(head == b"t"),
        b',' => {
            let value = wire::resp::parse_f64(head).ok_or(ConversionError::Malformed)?;
            push_single(stack, "double", |stack| {
                stack.push_number(value);
                Ok(())
            })?;
        }
        b'(' => push_single_text(stack, "big_number", head),
        b'=' => {
            let text = blob(bytes, number(head)?)?;
            let (format, text) = text.split_at_checked(4).ok_or(ConversionError::Malformed)?;
            push_single(stack, "verbatim_string", |stack| {
                push_single_text(stack, "format", &format[..3]);
                stack.push_text(b"string");
                stack.push_text(text);
                stack.set_field();
                Ok(())
            })?;
        }
        b'%' => push_single(stack, "map", |stack| {
            stack.push_table(0, 0);
            for _ in 0..number(head)? {
                push(stack, bytes)?;
                push(stack, bytes)?;
                stack.set_field();
            }
            Ok(())
        })?,
        b'~' => push_single(stack, "set", |stack| {
            stack.push_table(0, 0);
            for _ in 0..number(head)? {
                push(stack, bytes)?;
                stack.push_boolean(true);
                stack.set_field();
            }
            Ok(())
        })?,
        _ => return Err(ConversionError::Malformed),
    }
    Ok(())
}

fn push_array(stack: &mut Stack<'_>, count: i64, bytes: &mut &[u8]) -> Result<(), ConversionError> {
    let count = i32::try_from(count).map_err(|_| ConversionError::TooLarge)?;
    stack.push_table(usize::try_from(count).map_err(|_| ConversionError::Malformed)?, 0);
    for index in 1..=count {
        push(stack, bytes)?;
        stack.set_element(index);
    }
    Ok(())
}

/// Writes the result of a script.
#[derive(Debug)]
pub(super) struct ResultWriter<'w, 'r> {
    pub(super) reply: &'w mut ReplyWriter<'r>,
    /// The protocol that the script selected, which determines the form of booleans.
    pub(super) script_protocol: Protocol,
    /// Values that may still be written.
    pub(super) values_left: usize,
    /// Errors in the result that no counter includes yet.
    pub(super) uncounted: Vec<Vec<u8>>,
}

/// Why a result cannot be written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// There is no room for the reply.
    Refused(Fail),
    TooLarge,
    Lua(mlua::Error),
}

impl From<mlua::Error> for WriteError {
    fn from(error: mlua::Error) -> WriteError {
        WriteError::Lua(error)
    }
}

impl From<WriteError> for Fail {
    fn from(error: WriteError) -> Fail {
        match error {
            WriteError::Refused(fail) => fail,
            WriteError::TooLarge => Fail::text("ERR reply is too large"),
            WriteError::Lua(error) => Fail::owned(format!("ERR {error}")),
        }
    }
}

impl ResultWriter<'_, '_> {
    pub(super) fn write(&mut self, value: &Value, depth: usize) -> Result<(), WriteError> {
        check_room(self.reply).map_err(WriteError::Refused)?;
        if self.values_left == 0 {
            return Err(WriteError::TooLarge);
        }
        self.values_left -= 1;
        match value {
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Boolean(value) => match (self.script_protocol, value) {
                (Protocol::Resp3, value) => self.reply.boolean(*value),
                (Protocol::Resp2, true) => self.reply.integer(1),
                (Protocol::Resp2, false) => self.reply.null(),
            },
            Value::Integer(number) => self.reply.integer(*number),
            Value::Number(number) => self.reply.integer(truncated(*number)),
            Value::Table(_) if depth >= DEPTH_MAX => {
                self.reply.error("ERR reached lua stack limit");
            }
            Value::Table(table) => self.table(table, depth)?,
            _ => self.reply.null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), WriteError> {
        // Most tables are arrays: one lookup finds that there are no names.
        if table.raw_get::<Value>(1)?.is_nil() && self.named(table, depth)? {
            return Ok(());
        }
        self.array(table, depth)
    }

    /// Writes a table that stands for another type. False if it is an array.
    fn named(&mut self, table: &Table, depth: usize) -> Result<bool, WriteError> {
        if let Value::String(text) = table.raw_get::<Value>("err")? {
            if !is_error(table)? {
                self.uncounted.push(text.as_bytes().to_vec());
            }
            self.reply.error_bytes(&text.as_bytes());
            return Ok(true);
        }
        if let Value::String(text) = table.raw_get::<Value>("ok")? {
            self.status(&text);
            return Ok(true);
        }
        match table.raw_get::<Value>("double")? {
            Value::Number(number) => {
                self.reply.double(number);
                return Ok(true);
            }
            #[expect(clippy::cast_precision_loss, reason = "it was a double")]
            Value::Integer(number) => {
                self.reply.double(number as f64);
                return Ok(true);
            }
            _ => {}
        }
        if let Value::String(digits) = table.raw_get::<Value>("big_number")? {
            self.reply.big_number(&digits.to_string_lossy());
            return Ok(true);
        }
        if let Value::Table(parts) = table.raw_get::<Value>("verbatim_string")?
            && let Value::String(format) = parts.raw_get::<Value>("format")?
            && let Value::String(text) = parts.raw_get::<Value>("string")?
        {
            let format = format.to_string_lossy();
            // Source: Redis 7.2 `networking.c`, `addReplyVerbatim`: three bytes, filled with blanks
            let ascii = format.bytes().chain(*b"   ").take(3);
            let format: String =
                ascii.map(|byte| if byte.is_ascii() { char::from(byte) } else { '?' }).collect();
            self.reply.verbatim(&format, &text.as_bytes());
            return Ok(true);
        }
        if let Value::Table(map) = table.raw_get::<Value>("map")? {
            self.reply.map(map.pairs::<Value, Value>().count());
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.write(&key, depth + 1)?;
                self.write(&value, depth + 1)?;
            }
            return Ok(true);
        }
        if let Value::Table(set) = table.raw_get::<Value>("set")? {
            self.reply.set(set.pairs::<Value, Value>().count());
            for pair in set.pairs::<Value, Value>() {
                self.write(&pair?.0, depth + 1)?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn status(&mut self, text: &LuaString) {
        self.reply.simple(&text.to_string_lossy());
    }

    /// Writes the elements up to the first nil.
    fn array(&mut self, table: &Table, depth: usize) -> Result<(), WriteError> {
        // The length of a table may count elements after a hole.
        let mut length = 0;
        while table.raw_get::<Option<bool>>(length + 1)?.is_some() {
            length += 1;
        }
        self.reply.array(length);
        for index in 1..=length {
            self.write(&table.raw_get(index)?, depth + 1)?;
        }
        Ok(())
    }
}

/// A number without its fraction, as C converts it on x86-64.
#[expect(clippy::cast_possible_truncation, reason = "checked")]
fn truncated(number: f64) -> i64 {
    /// 2^63.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if number.abs() < LIMIT { number as i64 } else { i64::MIN }
}
