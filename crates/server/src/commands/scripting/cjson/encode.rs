//! Values of Lua as JSON.

use std::cell::RefCell;

use mlua::{Lua, MultiValue, Table, Value};

use super::{ARRAY_MARK, InvalidNumbers, Options};
use crate::commands::scripting::native::{NativeError, Text, check, check_bytes};
use crate::commands::scripting::numbers::general;
use crate::commands::scripting::stack::has_mark;

pub(super) fn encode(
    lua: &Lua,
    args: &MultiValue,
    options: &RefCell<Options>,
) -> Result<MultiValue, NativeError> {
    if args.len() != 1 {
        return Err(NativeError::text("bad argument #1 to 'encode' (expected 1 argument)"));
    }
    let options = options.borrow().clone();
    let mut writer = Writer { lua, options: &options, out: Text::new(lua), values: 0 };
    writer.value(&args[0], 0)?;
    Ok(super::one(writer.out.into_value()?))
}

struct Writer<'o> {
    lua: &'o Lua,
    options: &'o Options,
    /// A table that contains itself at every level grows exponentially.
    out: Text<'o>,
    /// Values so far, and elements of tables that were counted.
    values: usize,
}

fn cannot(kind: &str, reason: &str) -> NativeError {
    NativeError::text(format!("Cannot serialise {kind}: {reason}"))
}

/// Whether a byte of a string is written as itself.
const IS_PLAIN: [bool; 256] = {
    let mut is_plain = [true; 256];
    let mut byte = 0;
    while byte < 256 {
        is_plain[byte] = byte >= 32 && !matches!(byte, 34 | 47 | 92 | 127); // " / \ DEL
        byte += 1;
    }
    is_plain
};

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), NativeError> {
        self.values += 1;
        check(self.lua, self.values)?;
        match value {
            Value::String(text) => self.string(&text.as_bytes()),
            #[expect(clippy::cast_precision_loss, reason = "it was a double")]
            Value::Integer(number) => self.number(*number as f64),
            Value::Number(number) => self.number(*number),
            Value::Boolean(true) => self.out.extend(b"true"),
            Value::Boolean(false) => self.out.extend(b"false"),
            Value::Table(table) => self.table(table, depth + 1),
            Value::Nil => self.out.extend(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.extend(b"null"),
            Value::LightUserData(_) => Err(cannot("userdata", "type not supported")),
            other => Err(cannot(other.type_name(), "type not supported")),
        }
    }

    fn number(&mut self, number: f64) -> Result<(), NativeError> {
        if number.is_finite() {
            let text = general(number, self.options.number_precision);
            return self.out.extend(text.as_bytes());
        }
        match self.options.invalid_numbers {
            InvalidNumbers::Refuse => Err(cannot("number", "must not be NaN or Inf")),
            InvalidNumbers::Null => self.out.extend(b"null"),
            InvalidNumbers::Write if number.is_nan() => self.out.extend(b"nan"),
            InvalidNumbers::Write => self.out.extend(general(number, 14).as_bytes()),
        }
    }

    fn string(&mut self, bytes: &[u8]) -> Result<(), NativeError> {
        check_bytes(self.lua, bytes.len())?;
        self.out.push(b'"')?;
        let mut rest = bytes;
        loop {
            let plain = rest.iter().take_while(|byte| IS_PLAIN[usize::from(**byte)]).count();
            let (plain, after) = rest.split_at(plain);
            self.out.extend(plain)?;
            let Some((byte, after)) = after.split_first() else { break };
            self.escaped(*byte)?;
            rest = after;
        }
        self.out.push(b'"')
    }

    fn escaped(&mut self, byte: u8) -> Result<(), NativeError> {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let short = match byte {
            b'"' | b'\\' | b'/' => byte,
            8 => b'b',
            9 => b't',
            10 => b'n',
            12 => b'f',
            13 => b'r',
            _ => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                self.out.extend(b"\\u00")?;
                return self.out.extend(&digits);
            }
        };
        self.out.extend(&[b'\\', short])
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), NativeError> {
        if depth > self.options.encode_depth_max {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(NativeError::text(text));
        }
        match self.array_length(table)? {
            Some(length) if length > 0 || has_mark(self.lua, table, ARRAY_MARK)? => {
                self.array(table, length, depth)
            }
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
        self.out.push(b'[')?;
        for index in 1..=length {
            if index > 1 {
                self.out.push(b',')?;
            }
            self.value(&table.raw_get(index)?, depth)?;
        }
        self.out.push(b']')
    }

    fn object(&mut self, table: &Table, depth: usize) -> Result<(), NativeError> {
        self.out.push(b'{')?;
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',')?;
            }
            match &key {
                Value::String(text) => self.string(&text.as_bytes())?,
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"')?;
                    self.value(&key, depth)?;
                    self.out.push(b'"')?;
                }
                other => {
                    let reason = "table key must be a number or string";
                    return Err(cannot(other.type_name(), reason));
                }
            }
            self.out.push(b':')?;
            self.value(&value, depth)?;
        }
        self.out.push(b'}')
    }
}
