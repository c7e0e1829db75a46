//! The library `cjson`: JSON.
//!
//! Source: lua-cjson 2.1.0, as Redis contains it: `lua_cjson.c`, for results, options and errors

mod decode;
mod encode;

use std::cell::RefCell;
use std::ffi::CStr;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use super::native::{NativeError, guard, number, type_name};

/// Options of the library. Each script begins with the defaults.
#[derive(Debug, Clone)]
struct Options {
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_depth_max: usize,
    decode_depth_max: usize,
    number_precision: usize,
    invalid_numbers: InvalidNumbers,
    decode_invalid_numbers: bool,
    mark_arrays: bool,
}

/// What `encode` writes for infinity and NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InvalidNumbers {
    Refuse,
    Write,
    Null,
}

const DEFAULTS: Options = Options {
    sparse_convert: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_depth_max: 1000,
    decode_depth_max: 1000,
    number_precision: 14,
    invalid_numbers: InvalidNumbers::Refuse,
    decode_invalid_numbers: true,
    mark_arrays: false,
};

/// Maximum of both depths: the parser and the writer are recursive.
const DEPTH_MAX: f64 = 1000.0;

thread_local! {
    /// Options of the library that all scripts have; those of `new` have their own.
    static OPTIONS: Rc<RefCell<Options>> = Rc::new(RefCell::new(DEFAULTS));
}

/// Restores the defaults, before a script.
pub(super) fn reset() {
    OPTIONS.with(|options| options.replace(DEFAULTS));
}

/// Name of the metatable of decoded arrays in the registry.
const ARRAY_METATABLE: &str = "array";

/// Field of the metatable of tables that are arrays even if they are empty.
const ARRAY_MARK: &CStr = c"__is_cjson_array";

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let array_metatable = lua.create_table()?;
    array_metatable.raw_set(ARRAY_MARK, true)?;
    lua.set_named_registry_value(ARRAY_METATABLE, array_metatable)?;
    with_options(lua, &OPTIONS.with(Rc::clone))
}

/// Creates a library with these options.
fn with_options(lua: &Lua, options: &Rc<RefCell<Options>>) -> mlua::Result<Table> {
    type Function = fn(&Lua, &MultiValue, &RefCell<Options>) -> Result<MultiValue, NativeError>;
    let functions: [(&str, Function); 11] = [
        ("new", |lua, _, _| {
            let library = with_options(lua, &Rc::new(RefCell::new(DEFAULTS)))?;
            Ok(one(Value::Table(library)))
        }),
        ("encode", encode::encode),
        ("decode", decode::decode),
        ("encode_sparse_array", sparse_array),
        ("encode_max_depth", |lua, args, options| {
            depth(lua, args, "encode_max_depth", &mut options.borrow_mut().encode_depth_max)
        }),
        ("decode_max_depth", |lua, args, options| {
            depth(lua, args, "decode_max_depth", &mut options.borrow_mut().decode_depth_max)
        }),
        ("encode_number_precision", precision),
        ("encode_keep_buffer", |_, args, _| {
            let kept = args.front().is_none_or(|value| *value == Value::Boolean(true));
            Ok(one(Value::Boolean(kept)))
        }),
        ("encode_invalid_numbers", encode_invalid_numbers),
        ("decode_invalid_numbers", |_, args, options| {
            let option = &mut options.borrow_mut().decode_invalid_numbers;
            switch(args, "decode_invalid_numbers", option)
        }),
        ("decode_array_with_array_mt", |_, args, options| {
            switch(args, "decode_array_with_array_mt", &mut options.borrow_mut().mark_arrays)
        }),
    ];
    let table = lua.create_table()?;
    for (name, function) in functions {
        let options = Rc::clone(options);
        table.raw_set(name, guard(lua, move |lua, args| function(lua, args, &options))?)?;
    }
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

fn one(value: Value) -> MultiValue {
    MultiValue::from_vec(vec![value])
}

fn integer_value(value: usize) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

fn integer(
    lua: &Lua,
    args: &MultiValue,
    nth: usize,
    name: &str,
    range: std::ops::RangeInclusive<f64>,
) -> Result<Option<f64>, NativeError> {
    if matches!(args.get(nth - 1), None | Some(Value::Nil)) {
        return Ok(None);
    }
    let value = number(lua, args, nth, name)?.trunc();
    if range.contains(&value) {
        return Ok(Some(value));
    }
    let (low, high) = (range.start(), range.end());
    let text =
        format!("bad argument #{nth} to '{name}' (expected integer between {low} and {high})");
    Err(NativeError::text(text))
}

fn boolean(args: &MultiValue, nth: usize, name: &str) -> Result<Option<bool>, NativeError> {
    match args.get(nth - 1) {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Boolean(value)) => Ok(Some(*value)),
        Some(Value::String(text)) if text == "on" => Ok(Some(true)),
        Some(Value::String(text)) if text == "off" => Ok(Some(false)),
        Some(value @ (Value::String(_) | Value::Integer(_) | Value::Number(_))) => {
            let option = value.to_string()?;
            let text = format!("bad argument #{nth} to '{name}' (invalid option '{option}')");
            Err(NativeError::text(text))
        }
        Some(_) => Err(NativeError::text(format!(
            "bad argument #{nth} to '{name}' (string expected, got {})",
            type_name(args, nth)
        ))),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
fn depth(
    lua: &Lua,
    args: &MultiValue,
    name: &str,
    option: &mut usize,
) -> Result<MultiValue, NativeError> {
    let value = integer(lua, args, 1, name, 1.0..=f64::from(i32::MAX))?;
    *option = value.map_or(*option, |value| value.min(DEPTH_MAX) as usize);
    Ok(one(integer_value(*option)))
}

fn switch(args: &MultiValue, name: &str, option: &mut bool) -> Result<MultiValue, NativeError> {
    *option = boolean(args, 1, name)?.unwrap_or(*option);
    Ok(one(Value::Boolean(*option)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
fn precision(
    lua: &Lua,
    args: &MultiValue,
    options: &RefCell<Options>,
) -> Result<MultiValue, NativeError> {
    let value = integer(lua, args, 1, "encode_number_precision", 1.0..=16.0)?;
    let precision = &mut options.borrow_mut().number_precision;
    *precision = value.map_or(*precision, |value| value as usize);
    Ok(one(integer_value(*precision)))
}

fn encode_invalid_numbers(
    _: &Lua,
    args: &MultiValue,
    options: &RefCell<Options>,
) -> Result<MultiValue, NativeError> {
    let value = match args.front() {
        Some(Value::String(text)) if text == "null" => Some(InvalidNumbers::Null),
        _ => boolean(args, 1, "encode_invalid_numbers")?
            .map(|write| if write { InvalidNumbers::Write } else { InvalidNumbers::Refuse }),
    };
    let current = &mut options.borrow_mut().invalid_numbers;
    *current = value.unwrap_or(*current);
    Ok(one(Value::Boolean(*current != InvalidNumbers::Refuse)))
}

#[expect(clippy::cast_possible_truncation, reason = "in range")]
fn sparse_array(
    lua: &Lua,
    args: &MultiValue,
    options: &RefCell<Options>,
) -> Result<MultiValue, NativeError> {
    const NAME: &str = "encode_sparse_array";
    let convert = boolean(args, 1, NAME)?;
    let ratio = integer(lua, args, 2, NAME, 0.0..=f64::from(i32::MAX))?;
    let safe = integer(lua, args, 3, NAME, 0.0..=f64::from(i32::MAX))?;
    let mut options = options.borrow_mut();
    options.sparse_convert = convert.unwrap_or(options.sparse_convert);
    options.sparse_ratio = ratio.map_or(options.sparse_ratio, |ratio| ratio as i64);
    options.sparse_safe = safe.map_or(options.sparse_safe, |safe| safe as i64);
    Ok(MultiValue::from_vec(vec![
        Value::Boolean(options.sparse_convert),
        Value::Integer(options.sparse_ratio),
        Value::Integer(options.sparse_safe),
    ]))
}
