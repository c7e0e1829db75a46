//! Values, whatever their encoding.

use std::io::Read;

use super::error::RdbError;
use super::input::Input;
use super::packed::{
    ELEMENT_BYTES, Listpack, Sink, read_intset, read_listpack, read_ziplist, read_zipmap,
};
use super::stream::{Stream, read_stream};
use super::strings::Strings;
use super::version::Version;
use crate::resp::parse_f64;

/// A value as plain data. Members and fields may occur twice, and collections may be empty: it is
/// the caller who knows what that means.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    String(Vec<u8>),
    List(Strings),
    Set(Strings),
    Hash {
        /// Field, value, field, value ...
        pairs: Strings,
        /// Those pairs that expire: number of the pair, and Unix time in milliseconds.
        expiries: Vec<(usize, u64)>,
    },
    /// No score is NaN. As many scores as members.
    ZSet {
        members: Strings,
        scores: Vec<f64>,
    },
    Stream(Box<Stream>),
    /// A value of a module, which was skipped.
    Module(String),
}

impl Value {
    /// Elements of a collection; 1 for a string.
    pub fn len(&self) -> usize {
        match self {
            Value::String(_) | Value::Module(_) => 1,
            Value::List(items) | Value::Set(items) => items.len(),
            Value::Hash { pairs, .. } => pairs.len() / 2,
            Value::ZSet { members, .. } => members.len(),
            Value::Stream(stream) => stream.entries.len(),
        }
    }

    /// What storing it costs, in elements: for a stream also its groups, consumers and pending
    /// entries, of which it may have more than entries.
    pub fn parts(&self) -> usize {
        let Value::Stream(stream) = self else { return self.len() };
        let groups = stream.groups.iter();
        stream.entries.len()
            + groups.map(|group| 1 + group.consumers.len() + group.pending.len()).sum::<usize>()
    }

    /// Whether it is a collection without elements. A stream may be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && !matches!(self, Value::Stream(_))
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::Hash { .. } => "hash",
            Value::ZSet { .. } => "zset",
            Value::Stream(_) => "stream",
            Value::Module(_) => "module",
        }
    }
}

// Source: Redis 7.2 `rdb.h`, `RDB_TYPE_*`
pub(super) const STRING: u8 = 0;
pub(super) const LIST: u8 = 1;
pub(super) const SET: u8 = 2;
const ZSET: u8 = 3;
pub(super) const HASH: u8 = 4;
pub(super) const ZSET_2: u8 = 5;
const MODULE_PRE_GA: u8 = 6;
const MODULE_2: u8 = 7;
const HASH_ZIPMAP: u8 = 9;
const LIST_ZIPLIST: u8 = 10;
const SET_INTSET: u8 = 11;
const ZSET_ZIPLIST: u8 = 12;
const HASH_ZIPLIST: u8 = 13;
const LIST_QUICKLIST: u8 = 14;
const STREAM_LISTPACKS: u8 = 15;
const HASH_LISTPACK: u8 = 16;
const ZSET_LISTPACK: u8 = 17;
const LIST_QUICKLIST_2: u8 = 18;
pub(super) const STREAM_LISTPACKS_2: u8 = 19;
const SET_LISTPACK: u8 = 20;
const STREAM_LISTPACKS_3: u8 = 21;
// Source: Valkey 9.0 `rdb.h`
pub(super) const VALKEY_HASH_2: u8 = 22;
// Source: Redis 7.4 `rdb.h`; the first two are those of its release candidates
const HASH_METADATA_PRE_GA: u8 = 22;
const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
const HASH_METADATA: u8 = 24;
const HASH_LISTPACK_EX: u8 = 25;

const SCORE_BYTES: u64 = size_of::<f64>() as u64;
const EXPIRY_BYTES: u64 = size_of::<(usize, u64)>() as u64;

/// Reads the value of a type.
// Source: Redis 7.2 `rdb.c`, `rdbLoadObject`
pub(super) fn read_value<R: Read>(
    input: &mut Input<R>,
    kind: u8,
    version: Version,
) -> Result<Value, RdbError> {
    match kind {
        STRING => input.owned_string().map(Value::String),
        LIST => strings(input, 1).map(Value::List),
        SET => strings(input, 1).map(Value::Set),
        ZSET => zset(input, text_score),
        ZSET_2 => zset(input, |input| Ok(f64::from_le_bytes(input.array()?))),
        HASH => strings(input, 2).map(hash),
        HASH_ZIPMAP => packed_pairs(input, read_zipmap).map(hash),
        HASH_ZIPLIST => packed_pairs(input, read_ziplist).map(hash),
        HASH_LISTPACK => packed_pairs(input, read_listpack).map(hash),
        LIST_ZIPLIST => packed(input, read_ziplist).map(Value::List),
        SET_INTSET => packed(input, read_intset).map(Value::Set),
        SET_LISTPACK => packed(input, read_listpack).map(Value::Set),
        ZSET_ZIPLIST => packed_zset(input, read_ziplist),
        ZSET_LISTPACK => packed_zset(input, read_listpack),
        LIST_QUICKLIST => quicklist(input, false),
        LIST_QUICKLIST_2 => quicklist(input, true),
        STREAM_LISTPACKS => stream(input, 1),
        STREAM_LISTPACKS_2 => stream(input, 2),
        STREAM_LISTPACKS_3 => stream(input, 3),
        VALKEY_HASH_2 if version.is_valkey() => valkey_hash(input),
        _ if version.is_valkey() => Err(unknown_type(input, kind)),
        HASH_METADATA_PRE_GA | HASH_METADATA => hash_with_expiries(input, kind == HASH_METADATA),
        HASH_LISTPACK_EX_PRE_GA | HASH_LISTPACK_EX => {
            if kind == HASH_LISTPACK_EX {
                // The earliest expiry.
                input.time_ms()?;
            }
            packed_hash_with_expiries(input)
        }
        MODULE_2 => {
            let id = input.number()?;
            skip_module(input)?;
            Ok(Value::Module(module_name(id)))
        }
        MODULE_PRE_GA => Err(input.unsupported("a value of a module of Redis 4.0 RC".to_owned())),
        _ => Err(unknown_type(input, kind)),
    }
}

fn unknown_type<R: Read>(input: &Input<R>, kind: u8) -> RdbError {
    input.unsupported(format!("a value of type {kind}, which a newer server wrote"))
}

fn hash(pairs: Strings) -> Value {
    Value::Hash { pairs, expiries: Vec::new() }
}

/// A count, and that many elements of `parts` strings each.
fn strings<R: Read>(input: &mut Input<R>, parts: u64) -> Result<Strings, RdbError> {
    let count = input.number()?.checked_mul(parts);
    let count = count.ok_or_else(|| input.malformed("a count beyond every file"))?;
    let mut out = Strings::default();
    input.strings(count, &mut out)?;
    Ok(out)
}

type ReadPacked = fn(&[u8], &mut Sink<'_>) -> Result<(), &'static str>;

fn add_packed<R: Read>(
    input: &mut Input<R>,
    read: ReadPacked,
    out: &mut Strings,
) -> Result<(), RdbError> {
    input.unpack(out, read)
}

fn packed<R: Read>(input: &mut Input<R>, read: ReadPacked) -> Result<Strings, RdbError> {
    let mut out = Strings::default();
    add_packed(input, read, &mut out)?;
    Ok(out)
}

fn packed_pairs<R: Read>(input: &mut Input<R>, read: ReadPacked) -> Result<Strings, RdbError> {
    let pairs = packed(input, read)?;
    if pairs.len().is_multiple_of(2) { Ok(pairs) } else { Err(input.malformed("an odd element")) }
}

// Source: Redis 7.2 `rdb.h`, `QUICKLIST_NODE_CONTAINER_*` in `quicklist.h`
const PLAIN_NODE: u64 = 1;
const PACKED_NODE: u64 = 2;

fn quicklist<R: Read>(input: &mut Input<R>, has_containers: bool) -> Result<Value, RdbError> {
    let mut items = Strings::default();
    for _ in 0..input.number()? {
        let container = if has_containers { input.number()? } else { PACKED_NODE };
        match container {
            PACKED_NODE if has_containers => add_packed(input, read_listpack, &mut items)?,
            PACKED_NODE => add_packed(input, read_ziplist, &mut items)?,
            PLAIN_NODE => {
                input.strings(1, &mut items)?;
                // Only long elements have a part of their own.
                if items.get(items.len() - 1).is_empty() {
                    return Err(input.malformed("an empty part of a list"));
                }
            }
            _ => return Err(input.malformed("unknown container of a part of a list")),
        }
    }
    Ok(Value::List(items))
}

/// A score as text with its length; three lengths stand for what is not finite.
// Source: Redis 7.2 `rdb.c`, `rdbLoadDoubleValue`
fn text_score<R: Read>(input: &mut Input<R>) -> Result<f64, RdbError> {
    let mut text = [0; 252];
    let len = match input.byte()? {
        255 => return Ok(f64::NEG_INFINITY),
        254 => return Ok(f64::INFINITY),
        253 => return Ok(f64::NAN),
        len => usize::from(len),
    };
    for byte in &mut text[..len] {
        *byte = input.byte()?;
    }
    parse_f64(&text[..len]).ok_or_else(|| input.malformed("a malformed score"))
}

fn zset<R: Read>(
    input: &mut Input<R>,
    score: fn(&mut Input<R>) -> Result<f64, RdbError>,
) -> Result<Value, RdbError> {
    let (mut members, mut scores) = (Strings::default(), Vec::new());
    for _ in 0..input.number()? {
        input.strings(1, &mut members)?;
        let score = score(input)?;
        if score.is_nan() {
            return Err(input.malformed("a score that is NaN"));
        }
        input.take_room(SCORE_BYTES)?;
        scores.push(score);
    }
    Ok(Value::ZSet { members, scores })
}

fn packed_zset<R: Read>(input: &mut Input<R>, read: ReadPacked) -> Result<Value, RdbError> {
    let pairs = packed_pairs(input, read)?;
    let (mut members, mut scores) = (Strings::default(), Vec::new());
    let mut parts = pairs.iter();
    while let (Some(member), Some(score)) = (parts.next(), parts.next()) {
        input.take_room(member.len() as u64 + ELEMENT_BYTES + SCORE_BYTES)?;
        members.push(member);
        let score = parse_f64(score).filter(|score| !score.is_nan());
        scores.push(score.ok_or_else(|| input.malformed("a malformed score"))?);
    }
    Ok(Value::ZSet { members, scores })
}

// Source: Valkey 9.0 `rdb.c`, `rdbLoadObject`: after each value its expiry, -1 for none
fn valkey_hash<R: Read>(input: &mut Input<R>) -> Result<Value, RdbError> {
    let (mut pairs, mut expiries) = (Strings::default(), Vec::new());
    for _ in 0..input.number()? {
        input.strings(2, &mut pairs)?;
        let at = input.time_ms()?;
        if at.cast_signed() >= 0 {
            input.take_room(EXPIRY_BYTES)?;
            expiries.push((pairs.len() / 2 - 1, at));
        }
    }
    Ok(Value::Hash { pairs, expiries })
}

// Source: Redis 7.4 `rdb.c`, `rdbLoadObject`: before each field its expiry, 0 for none, else 1 more
// than its distance from the earliest; in release candidates the expiry itself
fn hash_with_expiries<R: Read>(input: &mut Input<R>, is_relative: bool) -> Result<Value, RdbError> {
    let earliest = if is_relative { Some(input.time_ms()?) } else { None };
    let (mut pairs, mut expiries) = (Strings::default(), Vec::new());
    for pair in 0..input.number()? {
        let number = input.number()?;
        input.strings(2, &mut pairs)?;
        if number > 0 {
            let at = earliest.map_or(number, |from| from.saturating_add(number - 1));
            let pair = usize::try_from(pair).expect("no more than strings in memory");
            input.take_room(EXPIRY_BYTES)?;
            expiries.push((pair, at));
        }
    }
    Ok(Value::Hash { pairs, expiries })
}

// Source: Redis 7.4 `t_hash.c`, `OBJ_ENCODING_LISTPACK_EX`: field, value, expiry or 0
fn packed_hash_with_expiries<R: Read>(input: &mut Input<R>) -> Result<Value, RdbError> {
    let (mut pairs, mut expiries) = (Strings::default(), Vec::new());
    input.unpack(&mut pairs, |bytes, sink| {
        let mut listpack = Listpack::new(bytes)?;
        while let Some(element) = listpack.element()? {
            element.push_to(sink)?;
            listpack.push_to(sink)?;
            let at = u64::try_from(listpack.number()?).map_err(|_| "a negative expiry")?;
            if at > 0 {
                sink.room.take(EXPIRY_BYTES)?;
                expiries.push((sink.out.len() / 2 - 1, at));
            }
        }
        Ok(())
    })?;
    Ok(Value::Hash { pairs, expiries })
}

fn stream<R: Read>(input: &mut Input<R>, form: u8) -> Result<Value, RdbError> {
    Ok(Value::Stream(Box::new(read_stream(input, form)?)))
}

/// Skips what a module wrote: numbers and strings with their kinds, up to an end.
// Source: Redis 7.2 `rdb.c`, `rdbLoadCheckModuleValue`
pub(super) fn skip_module<R: Read>(input: &mut Input<R>) -> Result<(), RdbError> {
    loop {
        match input.number()? {
            0 => return Ok(()),
            1 | 2 => drop(input.number()?),
            3 => drop(input.array::<4>()?),
            4 => drop(input.array::<8>()?),
            5 => drop(input.owned_string()?),
            _ => return Err(input.malformed("unknown part of a module's data")),
        }
    }
}

/// The name of a module, of which the id has nine characters of six bits.
// Source: Redis 7.2 `module.c`, `moduleTypeNameByID`
pub(super) fn module_name(id: u64) -> String {
    const CHARACTERS: &[u8; 64] =
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let place = |index: u32| (id >> (58 - 6 * index) & 63) as usize;
    (0..9).map(|index| char::from(CHARACTERS[place(index)])).collect()
}
