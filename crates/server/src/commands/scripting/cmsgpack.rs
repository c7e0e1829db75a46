//! The library `cmsgpack`: `MessagePack`.
//!
//! Source: lua-cmsgpack 0.4.0, as Redis contains it: `lua_cmsgpack.c`

use mlua::{Lua, MultiValue, Table, Value};

use super::native::{
    ARRAY_GROWTH_BYTES, MAP_GROWTH_BYTES, NativeError, Text, check, check_bytes, check_growth,
    guard, new_string, number, string,
};

/// Deeper tables are packed as nil.
// Source: `lua_cmsgpack.c`, `LUACMSGPACK_MAX_NESTING`
const DEPTH_MAX: usize = 16;

/// Depth of unpacked values: the reader is recursive.
const UNPACK_DEPTH_MAX: usize = 1_000;

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    type Function = fn(&Lua, &MultiValue) -> Result<MultiValue, NativeError>;
    let functions: [(&str, Function); 4] = [
        ("pack", pack),
        ("unpack", |lua, args| unpack(lua, args, Limit { values: 0, offset: 0, tells: false })),
        ("unpack_one", unpack_one),
        ("unpack_limit", unpack_limit),
    ];
    let table = lua.create_table()?;
    for (name, function) in functions {
        table.raw_set(name, guard(lua, function)?)?;
    }
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd.")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(table)
}

fn pack(lua: &Lua, args: &MultiValue) -> Result<MultiValue, NativeError> {
    if args.is_empty() {
        return Err(NativeError::text("bad argument #0 to 'pack' (MessagePack pack needs input.)"));
    }
    let mut packer = Packer { lua, out: Text::new(lua), values: 0 };
    for value in args {
        packer.value(value, 0)?;
    }
    Ok(MultiValue::from_vec(vec![packer.out.into_value()?]))
}

struct Packer<'l> {
    lua: &'l Lua,
    out: Text<'l>,
    /// Values so far, and elements of tables that were counted.
    values: usize,
}

impl Packer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), NativeError> {
        self.values += 1;
        check(self.lua, self.values)?;
        let out = &mut self.out;
        match value {
            Value::String(text) => {
                check_bytes(self.lua, text.as_bytes().len())?;
                pack_string(&text.as_bytes(), out)
            }
            Value::Boolean(value) => out.push(if *value { 0xC3 } else { 0xC2 }),
            Value::Integer(value) => pack_integer(*value, out),
            Value::Number(0.0) => pack_integer(0, out), // -0, too
            Value::Number(value) => pack_double(*value, out),
            Value::Table(table) if depth < DEPTH_MAX => self.table(table, depth + 1),
            _ => out.push(0xC0),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), NativeError> {
        let (count, is_array) = self.measure(table)?;
        if is_array {
            container(0x90, 0xDC, count, &mut self.out)?;
            for index in 1..=count {
                self.value(&table.raw_get(index)?, depth)?;
            }
            return Ok(());
        }
        container(0x80, 0xDE, count, &mut self.out)?;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth)?;
            self.value(&value, depth)?;
        }
        Ok(())
    }

    /// Returns the number of elements, and whether their keys are the integers from 1 on.
    fn measure(&mut self, table: &Table) -> Result<(usize, bool), NativeError> {
        let (mut count, mut longest, mut is_array) = (0_usize, 0_i64, true);
        for pair in table.pairs::<Value, Value>() {
            self.values += 1;
            check(self.lua, self.values)?;
            match pair?.0 {
                Value::Integer(index) if index > 0 => longest = longest.max(index),
                _ => is_array = false,
            }
            count += 1;
        }
        Ok((count, is_array && usize::try_from(longest) == Ok(count)))
    }
}

fn pack_string(bytes: &[u8], out: &mut Text<'_>) -> Result<(), NativeError> {
    match bytes.len() {
        length @ 0..32 => out.push(0xA0 | length.to_le_bytes()[0])?,
        length @ 32..0x100 => out.extend(&[0xD9, length.to_le_bytes()[0]])?,
        length @ 0x100..0x1_0000 => sized(0xDA, length, 2, out)?,
        length => sized(0xDB, length, 4, out)?,
    }
    out.extend(bytes)
}

/// The head of an array or map: `short` with a count in its low four bits, or `long`, or the kind
/// after it.
fn container(short: u8, long: u8, count: usize, out: &mut Text<'_>) -> Result<(), NativeError> {
    match count {
        0..16 => out.push(short | count.to_le_bytes()[0]),
        16..0x1_0000 => sized(long, count, 2, out),
        _ => sized(long + 1, count, 4, out),
    }
}

/// A kind, and the low bytes of a length in the order of the network.
fn sized(kind: u8, length: usize, bytes: usize, out: &mut Text<'_>) -> Result<(), NativeError> {
    out.push(kind)?;
    let length = (length as u64).to_be_bytes();
    out.extend(&length[8 - bytes..])
}

fn pack_integer(value: i64, out: &mut Text<'_>) -> Result<(), NativeError> {
    let bytes = value.to_be_bytes();
    let (kind, width) = match value {
        -32..=127 => return out.push(bytes[7]),
        128..=0xFF => (0xCC, 1),
        0x100..=0xFFFF => (0xCD, 2),
        0x1_0000..=0xFFFF_FFFF => (0xCE, 4),
        0x1_0000_0000.. => (0xCF, 8),
        -128..=-33 => (0xD0, 1),
        -32_768..=-129 => (0xD1, 2),
        -2_147_483_648..=-32_769 => (0xD2, 4),
        _ => (0xD3, 8),
    };
    out.push(kind)?;
    out.extend(&bytes[8 - width..])
}

#[expect(clippy::cast_possible_truncation, reason = "compared with the value")]
fn pack_double(value: f64, out: &mut Text<'_>) -> Result<(), NativeError> {
    let short = value as f32;
    if f64::from(short).to_bits() == value.to_bits() {
        out.push(0xCA)?;
        return out.extend(&short.to_be_bytes());
    }
    out.push(0xCB)?;
    out.extend(&value.to_be_bytes())
}

/// What part of the input is unpacked.
#[derive(Debug, Clone, Copy)]
struct Limit {
    /// Number of values; 0: all.
    values: usize,
    offset: usize,
    /// Whether the first result is the offset of the rest, or -1.
    tells: bool,
}

fn unpack_one(lua: &Lua, args: &MultiValue) -> Result<MultiValue, NativeError> {
    let offset = optional(lua, args, 2, "unpack_one")?;
    unpack_part(lua, args, 1, offset)
}

fn unpack_limit(lua: &Lua, args: &MultiValue) -> Result<MultiValue, NativeError> {
    string(lua, args, 1, "unpack_limit")?;
    let values = number(lua, args, 2, "unpack_limit")?;
    let offset = optional(lua, args, 3, "unpack_limit")?;
    #[expect(clippy::cast_possible_truncation, reason = "as in C, but saturating")]
    unpack_part(lua, args, values as i64, offset)
}

#[expect(clippy::cast_possible_truncation, reason = "as in C, but saturating")]
fn optional(lua: &Lua, args: &MultiValue, nth: usize, name: &str) -> Result<i64, NativeError> {
    match args.get(nth - 1) {
        None | Some(Value::Nil) => Ok(0),
        Some(_) => Ok(number(lua, args, nth, name)? as i64),
    }
}

fn unpack_part(
    lua: &Lua,
    args: &MultiValue,
    values: i64,
    offset: i64,
) -> Result<MultiValue, NativeError> {
    let (Ok(count), Ok(start)) = (usize::try_from(values), usize::try_from(offset)) else {
        let text =
            format!("Invalid request to unpack with offset of {offset} and limit of {values}.");
        return Err(NativeError::text(text));
    };
    unpack(lua, args, Limit { values: count, offset: start, tells: count > 0 })
}

fn unpack(lua: &Lua, args: &MultiValue, limit: Limit) -> Result<MultiValue, NativeError> {
    let text = string(lua, args, 1, "unpack")?;
    let bytes = text.as_bytes();
    let Some(rest) = bytes.get(limit.offset..) else {
        let (offset, length) = (limit.offset, bytes.len());
        let text = format!("Start offset {offset} greater than input length {length}.");
        return Err(NativeError::text(text));
    };
    let mut reader = Reader { lua, rest, values: 0 };
    let mut results = MultiValue::new();
    while !reader.rest.is_empty() && (limit.values == 0 || results.len() < limit.values) {
        if results.len() >= RESULTS_MAX {
            return Err(NativeError::text("too many values to unpack"));
        }
        results.push_back(reader.value(0)?);
    }
    if limit.tells {
        let at = bytes.len() - reader.rest.len();
        let next = if reader.rest.is_empty() { -1 } else { i64::try_from(at).unwrap_or(-1) };
        results.push_front(Value::Integer(next));
    }
    Ok(results)
}

/// Results of one call: they must fit on the stack of Lua.
const RESULTS_MAX: usize = 4_000;

struct Reader<'r> {
    lua: &'r Lua,
    rest: &'r [u8],
    values: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], NativeError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or_else(missing)?;
        self.rest = rest;
        Ok(*head)
    }

    fn length(&mut self, width: usize) -> Result<usize, NativeError> {
        Ok(match width {
            1 => usize::from(self.take::<1>()?[0]),
            2 => usize::from(u16::from_be_bytes(self.take()?)),
            _ => u32::from_be_bytes(self.take()?) as usize,
        })
    }

    fn text(&mut self, length: usize) -> Result<Value, NativeError> {
        let (text, rest) = self.rest.split_at_checked(length).ok_or_else(missing)?;
        self.rest = rest;
        Ok(Value::String(new_string(self.lua, text)?))
    }

    fn value(&mut self, depth: usize) -> Result<Value, NativeError> {
        self.values += 1;
        check(self.lua, self.values)?;
        if depth > UNPACK_DEPTH_MAX {
            return Err(NativeError::text("Bad data format in input."));
        }
        let [kind] = self.take::<1>()?;
        Ok(match kind {
            0x00..=0x7F => Value::Integer(i64::from(kind)),
            0xE0..=0xFF => Value::Integer(i64::from(kind.cast_signed())),
            0x80..=0x8F => self.map(usize::from(kind & 15), depth)?,
            0x90..=0x9F => self.array(usize::from(kind & 15), depth)?,
            0xA0..=0xBF => self.text(usize::from(kind & 31))?,
            0xC0 => Value::Nil,
            0xC2 => Value::Boolean(false),
            0xC3 => Value::Boolean(true),
            0xC4 | 0xD9 => self.sized_text(1)?,
            0xC5 | 0xDA => self.sized_text(2)?,
            0xC6 | 0xDB => self.sized_text(4)?,
            0xCA => Value::Number(f64::from(f32::from_be_bytes(self.take()?))),
            0xCB => Value::Number(f64::from_be_bytes(self.take()?)),
            0xCC => Value::Integer(i64::from(self.take::<1>()?[0])),
            0xCD => Value::Integer(i64::from(u16::from_be_bytes(self.take()?))),
            0xCE => Value::Integer(i64::from(u32::from_be_bytes(self.take()?))),
            #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
            0xCF => Value::Number(u64::from_be_bytes(self.take()?) as f64),
            0xD0 => Value::Integer(i64::from(i8::from_be_bytes(self.take()?))),
            0xD1 => Value::Integer(i64::from(i16::from_be_bytes(self.take()?))),
            0xD2 => Value::Integer(i64::from(i32::from_be_bytes(self.take()?))),
            0xD3 => Value::Integer(i64::from_be_bytes(self.take()?)),
            0xDC => self.sized(2, depth, Self::array)?,
            0xDD => self.sized(4, depth, Self::array)?,
            0xDE => self.sized(2, depth, Self::map)?,
            0xDF => self.sized(4, depth, Self::map)?,
            _ => return Err(NativeError::text("Bad data format in input.")),
        })
    }

    fn sized_text(&mut self, width: usize) -> Result<Value, NativeError> {
        let length = self.length(width)?;
        self.text(length)
    }

    fn sized(
        &mut self,
        width: usize,
        depth: usize,
        read: fn(&mut Self, usize, usize) -> Result<Value, NativeError>,
    ) -> Result<Value, NativeError> {
        let length = self.length(width)?;
        read(self, length, depth)
    }

    fn array(&mut self, length: usize, depth: usize) -> Result<Value, NativeError> {
        let table = self.lua.create_table()?;
        for index in 1..=length {
            check_growth(self.lua, index, ARRAY_GROWTH_BYTES)?;
            table.raw_seti(index, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: usize, depth: usize) -> Result<Value, NativeError> {
        let table = self.lua.create_table()?;
        for index in 1..=length {
            check_growth(self.lua, index, MAP_GROWTH_BYTES)?;
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            if matches!(&key, Value::Nil) || matches!(&key, Value::Number(n) if n.is_nan()) {
                return Err(NativeError::text("Bad data format in input."));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}

fn missing() -> NativeError {
    NativeError::text("Missing bytes in input.")
}
