//! The library `struct`: numbers and strings in binary form.
//!
//! Source: struct 0.2 by Roberto Ierusalimschy, as Redis contains it: `lua_struct.c`

use mlua::{Lua, MultiValue, Table, Value};

use super::native::{NativeError, Text, check, guard, new_string, number, string};

/// Alignment of `!` without a number.
const NATIVE_ALIGNMENT: usize = 8;
/// Source: `lua_struct.c`, `MAXINTSIZE`
const INTEGER_BYTES_MAX: usize = 32;
/// Results of one call: they must fit on the stack of Lua.
const RESULTS_MAX: usize = 4_000;

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    type Function = fn(&Lua, &MultiValue) -> Result<MultiValue, NativeError>;
    let functions: [(&str, Function); 3] = [("pack", pack), ("unpack", unpack), ("size", size)];
    let table = lua.create_table()?;
    for (name, function) in functions {
        table.raw_set(name, guard(lua, function)?)?;
    }
    Ok(table)
}

/// One item of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    kind: Kind,
    bytes: usize,
    /// Bytes that align the item.
    padding: usize,
    is_big_endian: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Signed,
    Unsigned,
    Float,
    Double,
    Padding,
    /// `c`: characters; none: as many as there are.
    Characters,
    /// `s`: until a zero byte.
    Terminated,
}

/// The items of a format. Positions are given by the caller, because they determine the padding.
struct Format<'f> {
    text: &'f [u8],
    is_big_endian: bool,
    alignment: usize,
    function: &'static str,
}

impl<'f> Format<'f> {
    fn new(text: &'f [u8], function: &'static str) -> Format<'f> {
        Format { text, is_big_endian: false, alignment: 1, function }
    }

    fn number(&mut self, default: usize) -> usize {
        let digits = self.text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.text.split_at(digits);
        self.text = rest;
        if number.is_empty() {
            return default;
        }
        let text = std::str::from_utf8(number).unwrap_or_default();
        text.parse::<u32>().map_or(usize::MAX >> 1, |number| number as usize)
    }

    fn wrong(&self, reason: &str) -> NativeError {
        NativeError::text(format!("bad argument #1 to '{}' ({reason})", self.function))
    }

    fn next(&mut self, position: usize) -> Result<Option<Item>, NativeError> {
        loop {
            let Some((&code, rest)) = self.text.split_first() else { return Ok(None) };
            self.text = rest;
            let (kind, bytes) = match code {
                b'b' => (Kind::Signed, 1),
                b'B' => (Kind::Unsigned, 1),
                b'h' => (Kind::Signed, 2),
                b'H' => (Kind::Unsigned, 2),
                b'l' => (Kind::Signed, 8),
                b'L' | b'T' => (Kind::Unsigned, 8),
                b'f' => (Kind::Float, 4),
                b'd' => (Kind::Double, 8),
                b'x' => (Kind::Padding, 1),
                b'c' => (Kind::Characters, self.number(1)),
                b's' => (Kind::Terminated, 0),
                b'i' | b'I' => {
                    let bytes = self.number(4);
                    if bytes > INTEGER_BYTES_MAX {
                        let text = format!(
                            "integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"
                        );
                        return Err(NativeError::text(text));
                    }
                    (if code == b'i' { Kind::Signed } else { Kind::Unsigned }, bytes)
                }
                b' ' => continue,
                b'>' => {
                    self.is_big_endian = true;
                    continue;
                }
                b'<' => {
                    self.is_big_endian = false;
                    continue;
                }
                b'!' => {
                    let alignment = self.number(NATIVE_ALIGNMENT);
                    if !alignment.is_power_of_two() {
                        let text = format!("alignment {alignment} is not a power of 2");
                        return Err(NativeError::text(text));
                    }
                    self.alignment = alignment;
                    continue;
                }
                other => {
                    let text = format!("invalid format option '{}'", char::from(other));
                    return Err(self.wrong(&text));
                }
            };
            let padding = match kind {
                Kind::Characters => 0,
                _ => padding(position, bytes.min(self.alignment)),
            };
            return Ok(Some(Item { kind, bytes, padding, is_big_endian: self.is_big_endian }));
        }
    }
}

/// Bytes up to the next multiple. As in C, it is computed as for powers of two.
fn padding(position: usize, multiple: usize) -> usize {
    match multiple {
        0 => 0,
        multiple => (multiple - (position & (multiple - 1))) & (multiple - 1),
    }
}

fn pack(lua: &Lua, args: &MultiValue) -> Result<MultiValue, NativeError> {
    let text = string(lua, args, 1, "pack")?;
    let text = text.as_bytes();
    let args = &mut args.clone();
    args.push_back(Value::Nil); // what the C library finds after the last argument
    let mut format = Format::new(&text, "pack");
    let mut out = Text::new(lua);
    let (mut nth, mut items) = (2, 0);
    while let Some(item) = format.next(out.len())? {
        items += 1;
        check(lua, items)?;
        out.extend(&[0; INTEGER_BYTES_MAX][..item.padding])?;
        match item.kind {
            Kind::Padding => {
                out.push(0)?;
                continue;
            }
            Kind::Signed | Kind::Unsigned => {
                let bits = integer_bits(number(lua, args, nth, "pack")?);
                put(&bits.to_le_bytes(), item, &mut out)?;
            }
            #[expect(clippy::cast_possible_truncation, reason = "the format asks for it")]
            Kind::Float => {
                let value = number(lua, args, nth, "pack")? as f32;
                put(&value.to_le_bytes(), item, &mut out)?;
            }
            Kind::Double => {
                put(&number(lua, args, nth, "pack")?.to_le_bytes(), item, &mut out)?;
            }
            Kind::Characters | Kind::Terminated => {
                let value = string(lua, args, nth, "pack")?;
                let value = value.as_bytes();
                let bytes = if item.bytes == 0 { value.len() } else { item.bytes };
                let Some(value) = value.get(..bytes) else {
                    // The C library has already counted the argument.
                    let after = nth + 1;
                    let text = format!("bad argument #{after} to 'pack' (string too short)");
                    return Err(NativeError::text(text));
                };
                out.extend(value)?;
                if item.kind == Kind::Terminated {
                    out.push(0)?;
                }
            }
        }
        nth += 1;
    }
    Ok(MultiValue::from_vec(vec![out.into_value()?]))
}

/// An integer in two's complement.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as in C")]
fn integer_bits(value: f64) -> u64 {
    if value < 0.0 { (value as i64).cast_unsigned() } else { value as u64 }
}

/// Appends the low bytes of a number, or the number and zeros.
fn put(little_endian: &[u8], item: Item, out: &mut Text<'_>) -> Result<(), NativeError> {
    let mut bytes = [0; INTEGER_BYTES_MAX];
    let copied = little_endian.len().min(item.bytes);
    bytes[..copied].copy_from_slice(&little_endian[..copied]);
    let bytes = &mut bytes[..item.bytes];
    if item.is_big_endian {
        bytes.reverse();
    }
    out.extend(bytes)
}

/// The low eight bytes of a number.
fn get(bytes: &[u8], item: Item) -> [u8; 8] {
    let mut low = [0; 8];
    for (nth, to) in low.iter_mut().enumerate().take(bytes.len()) {
        *to = if item.is_big_endian { bytes[bytes.len() - 1 - nth] } else { bytes[nth] };
    }
    low
}

fn unpack(lua: &Lua, args: &MultiValue) -> Result<MultiValue, NativeError> {
    let text = string(lua, args, 1, "unpack")?;
    let data = string(lua, args, 2, "unpack")?;
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let first = match args.get(2) {
        None | Some(Value::Nil) => 1.0,
        Some(_) => number(lua, args, 3, "unpack")?.trunc(),
    };
    if first.is_nan() || first < 1.0 {
        return Err(NativeError::text("bad argument #3 to 'unpack' (offset must be 1 or greater)"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let mut at = (first - 1.0) as usize;
    let mut format = Format::new(&text, "unpack");
    let mut results = MultiValue::new();
    while let Some(item) = format.next(at)? {
        at = at.saturating_add(item.padding);
        let bytes = part(&data, at, item.bytes)?;
        let mut taken = item.bytes;
        let value = match item.kind {
            Kind::Padding => None,
            Kind::Signed => Some(signed(bytes, item)),
            #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are doubles")]
            Kind::Unsigned => Some(Value::Number(u64::from_le_bytes(get(bytes, item)) as f64)),
            Kind::Float => {
                let [a, b, c, d, ..] = get(bytes, item);
                Some(Value::Number(f64::from(f32::from_le_bytes([a, b, c, d]))))
            }
            Kind::Double => Some(Value::Number(f64::from_le_bytes(get(bytes, item)))),
            Kind::Characters if item.bytes == 0 => {
                let length = results.pop_back();
                let Some(length) = length.and_then(|length| lua.coerce_number(length).ok()?) else {
                    return Err(NativeError::text("format 'c0' needs a previous size"));
                };
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "saturates"
                )]
                let length = length as usize;
                taken = length;
                Some(Value::String(new_string(lua, part(&data, at, length)?)?))
            }
            Kind::Characters => Some(Value::String(new_string(lua, bytes)?)),
            Kind::Terminated => {
                let rest = part(&data, at, 0).map(|_| &data[at..])?;
                let Some(end) = memchr::memchr(0, rest) else {
                    return Err(NativeError::text("unfinished string in data"));
                };
                taken = end + 1;
                Some(Value::String(new_string(lua, &rest[..end])?))
            }
        };
        at += taken;
        results.extend(value);
        if results.len() > RESULTS_MAX {
            return Err(NativeError::text("too many results to unpack"));
        }
    }
    results.push_back(Value::Integer(i64::try_from(at).unwrap_or(i64::MAX - 1) + 1));
    Ok(results)
}

fn part(data: &[u8], at: usize, bytes: usize) -> Result<&[u8], NativeError> {
    let part = at.checked_add(bytes).and_then(|end| data.get(at..end));
    part.ok_or_else(|| NativeError::text("bad argument #2 to 'unpack' (data string too short)"))
}

fn signed(bytes: &[u8], item: Item) -> Value {
    let value = u64::from_le_bytes(get(bytes, item));
    let value = match item.bytes {
        bytes @ 1..8 => {
            let unused = 64 - 8 * bytes;
            (value << unused).cast_signed() >> unused
        }
        _ => value.cast_signed(),
    };
    Value::Integer(value)
}

fn size(lua: &Lua, args: &MultiValue) -> Result<MultiValue, NativeError> {
    let text = string(lua, args, 1, "size")?;
    let text = text.as_bytes();
    let mut format = Format::new(&text, "size");
    let mut at = 0_usize;
    while let Some(item) = format.next(at)? {
        match item.kind {
            Kind::Terminated => return Err(format.wrong("option 's' has no fixed size")),
            Kind::Characters if item.bytes == 0 => {
                return Err(format.wrong("option 'c0' has no fixed size"));
            }
            _ => at = at.saturating_add(item.padding).saturating_add(item.bytes),
        }
    }
    Ok(MultiValue::from_vec(vec![Value::Integer(i64::try_from(at).unwrap_or(i64::MAX))]))
}
