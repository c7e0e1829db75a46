//! Values of Lua as JSON.

use std::cell::RefCell;

use mlua::{Lua, MultiValue, Table, Value};

use super::{ARRAY_MARK, InvalidNumbers, Options};
use crate::commands::scripting::native::{NativeError, check, check_bytes, text_bytes_max};
use crate::commands::scripting::numbers::general;

pub(super) fn encode(
    lua: &Lua,
    args: &MultiValue,
    options: &RefCell<Options>,
) -> Result<MultiValue, NativeError> {
    if args.len() != 1 {
        return Err(NativeError::text("bad argument #1 to 'encode' (expected 1 argument)"));
    }
    let options = options.borrow().clone();
    let bytes_max = text_bytes_max();
    let mut writer = Writer { lua, options: &options, out: Vec::new(), bytes_max, values: 0 };
    writer.value(&args[0], 0)?;
    Ok(super::one(Value::String(lua.create_string(&writer.out)?)))
}

struct Writer<'o> {
    lua: &'o Lua,
    options: &'o Options,
    out: Vec<u8>,
    /// A table that contains itself at every level grows exponentially.
    bytes_max: usize,
    /// Values so far, and elements of tables that were counted.
    values: usize,
}

fn cannot(kind: &str, reason: &str) -> NativeError {
    NativeError::text(format!("Cannot serialise {kind}: {reason}"))
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), NativeError> {
        self.values += 1;
        check(self.lua, self.values)?;
        if self.out.len() > self.bytes_max {
            return Err(NativeError::text("not enough memory"));
        }
        match value {
            Value::String(text) => {
                check_bytes(self.lua, text.as_bytes().len())?;
                self.string(&text.as_bytes());
            }
            #[expect(clippy::cast_precision_loss, reason = "it was a double")]
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Table(table) => self.table(table, depth + 1)?,
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => {
                self.out.extend_from_slice(b"null");
            }
            Value::LightUserData(_) => return Err(cannot("userdata", "type not supported")),
            other => return Err(cannot(other.type_name(), "type not supported")),
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<(), NativeError> {
        if number.is_finite() {
            let text = general(number, self.options.number_precision);
            self.out.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        match self.options.invalid_numbers {
            InvalidNumbers::Refuse => {
                return Err(cannot("number", "must not be NaN or Inf"));
            }
            InvalidNumbers::Null => self.out.extend_from_slice(b"null"),
            InvalidNumbers::Write if number.is_nan() => self.out.extend_from_slice(b"nan"),
            InvalidNumbers::Write => {
                self.out.extend_from_slice(general(number, 14).as_bytes());
            }
        }
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        self.out.reserve(bytes.len() + 2);
        self.out.push(b'"');
        for byte in bytes {
            let short = match byte {
                b'"' | b'\\' | b'/' => *byte,
                8 => b'b',
                9 => b't',
                10 => b'n',
                12 => b'f',
                13 => b'r',
                0..=31 | 127 => {
                    self.out.extend_from_slice(b"\\u00");
                    self.out.push(HEX[usize::from(byte >> 4)]);
                    self.out.push(HEX[usize::from(byte & 15)]);
                    continue;
                }
                _ => {
                    self.out.push(*byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', short]);
        }
        self.out.push(b'"');
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), NativeError> {
        if depth > self.options.encode_depth_max {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(NativeError::text(text));
        }
        match self.array_length(table)? {
            Some(length) if length > 0 || is_marked(table)? => self.array(table, length, depth),
            _ => self.object(table, depth),
        }
    }

    /// Length of a table whose keys are all positive integers; `None` for others.
    // Source: lua-cjson 2.1.0 `lua_cjson.c`, `lua_array_length`
    fn array_length(&mut self, table: &Table) -> Result<Option<i64>, NativeError> {
        let options = self.options;
        let (mut longest, mut items) = (0, 0);
        for pair in table.pairs::<Value, Value>() {
            self.values += 1;
            check(self.lua, self.values)?;
            match pair?.0 {
                Value::Integer(index) if index > 0 => longest = longest.max(index),
                _ => return Ok(None),
            }
            items += 1;
        }
        let is_sparse = options.sparse_ratio > 0
            && longest > items * options.sparse_ratio
            && longest > options.sparse_safe;
        if !is_sparse {
            return Ok(Some(longest));
        }
        if options.sparse_convert {
            return Ok(None);
        }
        Err(cannot("table", "excessively sparse array"))
    }

    fn array(&mut self, table: &Table, length: i64, depth: usize) -> Result<(), NativeError> {
        self.out.push(b'[');
        for index in 1..=length {
            if index > 1 {
                self.out.push(b',');
            }
            self.value(&table.raw_get(index)?, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: usize) -> Result<(), NativeError> {
        self.out.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match &key {
                Value::String(text) => self.string(&text.as_bytes()),
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    self.value(&key, depth)?;
                    self.out.push(b'"');
                }
                other => {
                    let reason = "table key must be a number or string";
                    return Err(cannot(other.type_name(), reason));
                }
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// Whether the decoder made this table of an array.
fn is_marked(table: &Table) -> mlua::Result<bool> {
    let Some(metatable) = table.metatable() else { return Ok(false) };
    Ok(metatable.raw_get::<Value>(ARRAY_MARK)? == Value::Boolean(true))
}
