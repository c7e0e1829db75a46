//! The library `bit`: operations on 32-bit integers.
//!
//! Source: `BitOp` 1.0.2, as Redis contains it

use mlua::{Lua, MultiValue, Table, Value};

use super::native::{NativeError, guard, number};

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    type Function = fn(&Lua, &MultiValue) -> Result<MultiValue, NativeError>;
    let functions: [(&str, Function); 12] = [
        ("tobit", |lua, args| unary(lua, args, "tobit", |x| x)),
        ("bnot", |lua, args| unary(lua, args, "bnot", |x| !x)),
        ("bswap", |lua, args| unary(lua, args, "bswap", u32::swap_bytes)),
        ("band", |lua, args| fold(lua, args, "band", |x, y| x & y)),
        ("bor", |lua, args| fold(lua, args, "bor", |x, y| x | y)),
        ("bxor", |lua, args| fold(lua, args, "bxor", |x, y| x ^ y)),
        ("lshift", |lua, args| shift(lua, args, "lshift", |x, by| x << (by & 31))),
        ("rshift", |lua, args| shift(lua, args, "rshift", |x, by| x >> (by & 31))),
        ("arshift", |lua, args| {
            shift(lua, args, "arshift", |x, by| (x.cast_signed() >> (by & 31)).cast_unsigned())
        }),
        ("rol", |lua, args| shift(lua, args, "rol", |x, by| x.rotate_left(by & 31))),
        ("ror", |lua, args| shift(lua, args, "ror", |x, by| x.rotate_right(by & 31))),
        ("tohex", to_hex),
    ];
    let table = lua.create_table()?;
    for (name, function) in functions {
        table.raw_set(name, guard(lua, function)?)?;
    }
    Ok(table)
}

fn one(value: Value) -> MultiValue {
    MultiValue::from_vec(vec![value])
}

/// The low 32 bits of a number, rounded to the nearest integer.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are the result")]
fn bits(lua: &Lua, args: &MultiValue, nth: usize, function: &str) -> Result<u32, NativeError> {
    /// 2^52 + 2^51: adding it to a double rounds it, and leaves its low bits in the mantissa.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    Ok((number(lua, args, nth, function)? + MAGIC).to_bits() as u32)
}

fn result(bits: u32) -> MultiValue {
    one(Value::Integer(i64::from(bits.cast_signed())))
}

fn unary(
    lua: &Lua,
    args: &MultiValue,
    name: &str,
    operation: fn(u32) -> u32,
) -> Result<MultiValue, NativeError> {
    Ok(result(operation(bits(lua, args, 1, name)?)))
}

fn fold(
    lua: &Lua,
    args: &MultiValue,
    name: &str,
    operation: fn(u32, u32) -> u32,
) -> Result<MultiValue, NativeError> {
    let mut value = bits(lua, args, 1, name)?;
    for nth in 2..=args.len() {
        value = operation(value, bits(lua, args, nth, name)?);
    }
    Ok(result(value))
}

fn shift(
    lua: &Lua,
    args: &MultiValue,
    name: &str,
    operation: fn(u32, u32) -> u32,
) -> Result<MultiValue, NativeError> {
    let value = bits(lua, args, 1, name)?;
    Ok(result(operation(value, bits(lua, args, 2, name)?)))
}

fn to_hex(lua: &Lua, args: &MultiValue) -> Result<MultiValue, NativeError> {
    let value = bits(lua, args, 1, "tohex")?;
    let wanted = match args.get(1) {
        None | Some(Value::Nil) => 8,
        Some(_) => bits(lua, args, 2, "tohex")?.cast_signed(),
    };
    let digits = usize::try_from(wanted.unsigned_abs().min(8)).expect("at most 8");
    let text = if wanted < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    Ok(one(Value::String(lua.create_string(&text[8 - digits..])?)))
}
