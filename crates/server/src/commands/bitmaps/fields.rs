//! BITFIELD: integers of any width at any bit of a string.

use smallvec::SmallVec;
use store::Change;
use wire::resp::{Args, parse_i64_strict};

use super::{BAD_OFFSET, CHANGED, string_len_max};
use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::Fail;

/// Bytes that a field of 64 bits can touch.
const WINDOW_BYTES_MAX: usize = 9;

/// Log bytes of one change beyond key and value.
const RECORD_CHANGE_BYTES: usize = 32;

/// The type of an integer, such as `i16` or `u63`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldType {
    is_signed: bool,
    /// 1 to 64; to 63 without a sign.
    bits: u8,
}

impl FieldType {
    fn parse(text: &[u8]) -> Result<FieldType, Fail> {
        const BAD_TYPE: Fail = Fail::text(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        );
        let (is_signed, bits_max) = match text.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(BAD_TYPE),
        };
        let bits = parse_i64_strict(&text[1..]).and_then(|bits| u8::try_from(bits).ok());
        let bits = bits.filter(|bits| (1..=bits_max).contains(bits)).ok_or(BAD_TYPE)?;
        Ok(FieldType { is_signed, bits })
    }

    fn mask(self) -> u128 {
        (1 << self.bits) - 1
    }

    fn max(self) -> i128 {
        (1 << (self.bits - u8::from(self.is_signed))) - 1
    }

    fn min(self) -> i128 {
        if self.is_signed { -1 << (self.bits - 1) } else { 0 }
    }

    /// The number that SET stores: a negative one is a large one in a field without a sign.
    fn widened(self, value: i64) -> i128 {
        if self.is_signed { value.into() } else { value.cast_unsigned().into() }
    }

    /// The value whose lowest bits these are.
    fn value_of(self, bits: u128) -> i64 {
        let unused = 128 - u32::from(self.bits);
        let top = bits << unused;
        let value = if self.is_signed {
            top.cast_signed() >> unused
        } else {
            (top >> unused).cast_signed()
        };
        i64::try_from(value).expect("at most 64 bits with a sign, or 63 without")
    }
}

/// What happens to a value that does not fit its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    fn parse(text: &[u8]) -> Result<Overflow, Fail> {
        let known =
            [("WRAP", Overflow::Wrap), ("SAT", Overflow::Saturate), ("FAIL", Overflow::Fail)];
        let found = known.into_iter().find(|(name, _)| is_option(text, name));
        found.map(|(_, overflow)| overflow).ok_or(Fail::text("ERR Invalid OVERFLOW type specified"))
    }

    /// Returns the value to store; `None` if there is none.
    fn fit(self, value: i128, field: FieldType) -> Option<i64> {
        let (min, max) = (field.min(), field.max());
        let fitted = match self {
            _ if (min..=max).contains(&value) => value,
            Overflow::Wrap => return Some(field.value_of(value.cast_unsigned() & field.mask())),
            Overflow::Saturate => value.clamp(min, max),
            Overflow::Fail => return None,
        };
        Some(i64::try_from(fitted).expect("within the type"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    Increment(i64),
}

/// One subcommand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    action: Action,
    field: FieldType,
    /// The first bit.
    offset: u64,
    overflow: Overflow,
}

impl Step {
    /// The byte after the field.
    fn end(&self) -> u64 {
        (self.offset + u64::from(self.field.bits)).div_ceil(8)
    }

    /// Reads the field.
    fn read(&self, string: &[u8]) -> i64 {
        self.field.value_of(self.window(string) >> self.shift())
    }

    /// The bytes that contain the field, as the highest ones of a number; beyond the end of the
    /// string they are zeros.
    fn window(&self, string: &[u8]) -> u128 {
        let mut window = [0; 16];
        let start = usize::try_from(self.offset / 8).unwrap_or(usize::MAX);
        let found = string.get(start..).unwrap_or_default();
        let len = found.len().min(WINDOW_BYTES_MAX);
        window[..len].copy_from_slice(&found[..len]);
        u128::from_be_bytes(window)
    }

    /// Bits below the field in its window.
    fn shift(&self) -> u64 {
        128 - self.offset % 8 - u64::from(self.field.bits)
    }

    /// Returns the bytes that contain the field with another value.
    fn written(&self, string: &[u8], value: i64) -> SmallVec<[u8; 16]> {
        let mask = self.field.mask() << self.shift();
        let bits = (i128::from(value).cast_unsigned() << self.shift()) & mask;
        let window = (self.window(string) & !mask) | bits;
        let len = usize::try_from(self.end() - self.offset / 8).expect("at most nine");
        SmallVec::from_slice(&window.to_be_bytes()[..len])
    }
}

type Steps = SmallVec<[Step; 4]>;

/// Parses the subcommands, for a string of at most `len_max` bytes.
// Source: Redis 7.2 `bitops.c`, `bitfieldGeneric`
fn parse(args: Args<'_>, len_max: u64) -> Result<Steps, Fail> {
    let mut steps = Steps::new();
    let mut overflow = Overflow::Wrap;
    let mut rest = args.skip(2);
    while !rest.is_empty() {
        if is_option(rest.get(0), "OVERFLOW") && rest.len() > 1 {
            overflow = Overflow::parse(rest.get(1))?;
            rest = rest.skip(2);
            continue;
        }
        let (step, words) = parse_step(rest, overflow, len_max)?;
        steps.push(step);
        rest = rest.skip(words);
    }
    Ok(steps)
}

/// Parses a step, and counts its words.
fn parse_step(rest: Args<'_>, overflow: Overflow, len_max: u64) -> Result<(Step, usize), Fail> {
    let (name, following) = (rest.get(0), rest.len() - 1);
    let is_get = is_option(name, "GET") && following >= 2;
    let is_set = is_option(name, "SET") && following >= 3;
    let is_increment = is_option(name, "INCRBY") && following >= 3;
    if !(is_get || is_set || is_increment) {
        return Err(Fail::Syntax);
    }
    let field = FieldType::parse(rest.get(1))?;
    let offset = field_offset(rest.get(2), field, len_max)?;
    let action = if is_get {
        Action::Get
    } else if is_set {
        Action::Set(integer(rest.get(3))?)
    } else {
        Action::Increment(integer(rest.get(3))?)
    };
    Ok((Step { action, field, offset, overflow }, if is_get { 3 } else { 4 }))
}

/// Parses the offset of a field: a bit, or with `#` a number of fields.
fn field_offset(text: &[u8], field: FieldType, len_max: u64) -> Result<u64, Fail> {
    let (digits, unit) = match text.strip_prefix(b"#") {
        Some(digits) => (digits, u64::from(field.bits)),
        None => (text, 1),
    };
    let number = parse_i64_strict(digits).and_then(|number| u64::try_from(number).ok());
    let offset = number.and_then(|number| number.checked_mul(unit));
    offset.filter(|offset| offset / 8 < len_max).ok_or(BAD_OFFSET)
}

/// Whether a BITFIELD may change its key.
pub(crate) fn writes_fields(request: Args<'_>) -> bool {
    let steps = parse(request, u64::MAX);
    steps.map_or(true, |steps| steps.iter().any(|step| step.action != Action::Get))
}

pub(crate) const BITFIELD: Command = Command {
    name: "bitfield",
    syntax: "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] \
             <SET encoding offset value | INCRBY encoding offset increment> ...]",
    summary: "Reads and changes integers of any width at any bit of a string value.",
    since: "3.2.0",
    complexity: "O(1) for each integer",
    group: Group::Bitmap,
    arity: -2,
    flags: Flags::WRITE.and(Flags::DENYOOM),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::ReadOrUpdate)
        .noted("This command allows both access and modification of the key")],
    run: bitfield,
    ..Command::EMPTY
};

fn bitfield(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let steps = parse(args, string_len_max(cx))?;
    let key = cx.key(args.get(1));
    let len = cx.locked.string(cx.db, key)?.map_or(0, |value| value.len());
    let writes = steps.iter().filter(|step| step.action != Action::Get);
    let end = writes.clone().map(Step::end).max().unwrap_or(0);
    let change_bytes = key.bytes.len() + RECORD_CHANGE_BYTES + WINDOW_BYTES_MAX;
    cx.admit_record(cx.command, change_bytes.saturating_mul(writes.count() + 1))?;
    cx.admit_string_end(len, end)?;
    let grows = end > len as u64;
    if grows {
        cx.apply(cx.db, key, Change::Edit { offset: end - 1, bytes: &[0] })?;
    }
    cx.reply.array(steps.len());
    let mut has_changed = false;
    for step in &steps {
        let string = cx.locked.string(cx.db, key)?.unwrap_or_default();
        let old = step.read(&string);
        let (new, reply) = match step.action {
            Action::Get => (None, Some(old)),
            Action::Set(value) => {
                let new = step.overflow.fit(step.field.widened(value), step.field);
                (new, new.map(|_| old))
            }
            Action::Increment(by) => {
                let new = step.overflow.fit(i128::from(old) + i128::from(by), step.field);
                (new, new)
            }
        };
        let change = new.filter(|new| *new != old).map(|new| step.written(&string, new));
        has_changed |= change.is_some() || (grows && new.is_some());
        if let Some(bytes) = change {
            cx.apply(cx.db, key, Change::Edit { offset: step.offset / 8, bytes: &bytes })?;
        }
        match reply {
            Some(value) => cx.reply.integer(value),
            None => cx.reply.null(),
        }
    }
    if has_changed {
        cx.announce(CHANGED, cx.db, key);
    }
    Ok(())
}

pub(crate) const BITFIELD_RO: Command = Command {
    name: "bitfield_ro",
    syntax: "key [GET encoding offset [GET encoding offset ...]]",
    summary: "Reads integers of any width at any bit of a string value.",
    since: "6.0.0",
    flags: Flags::READONLY.and(Flags::FAST),
    events: Events::None,
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: bitfield_ro,
    ..BITFIELD
};

fn bitfield_ro(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let steps = parse(args, string_len_max(cx))?;
    if steps.iter().any(|step| step.action != Action::Get) {
        return Err(Fail::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let string = cx.locked.string(cx.db, cx.key(args.get(1)))?.unwrap_or_default();
    cx.reply.array(steps.len());
    for step in &steps {
        cx.reply.integer(step.read(&string));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(text: &str) -> FieldType {
        FieldType::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn types() {
        assert_eq!(field("i64"), FieldType { is_signed: true, bits: 64 });
        assert_eq!(field("u1"), FieldType { is_signed: false, bits: 1 });
        for text in ["", "i", "u", "u64", "i65", "u0", "i-1", "x8", "I8", "u08", "u8 "] {
            assert!(FieldType::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn offsets() {
        let check = |text: &str, expected| {
            assert_eq!(field_offset(text.as_bytes(), field("u5"), 16).ok(), expected, "{text}");
        };
        check("0", Some(0));
        check("127", Some(127));
        check("128", None);
        check("#2", Some(10));
        check("#25", Some(125));
        check("#26", None);
        check("#9223372036854775807", None);
        check("-1", None);
        check("#", None);
        check("#-1", None);
    }

    #[test]
    fn values_that_do_not_fit() {
        let check = |overflow: Overflow, value, text, expected| {
            assert_eq!(overflow.fit(value, field(text)), expected, "{overflow:?} {value} {text}");
        };
        check(Overflow::Wrap, 128, "i8", Some(-128));
        check(Overflow::Wrap, -129, "i8", Some(127));
        check(Overflow::Wrap, 256, "u8", Some(0));
        check(Overflow::Wrap, -1, "u8", Some(255));
        check(Overflow::Wrap, i128::from(i64::MAX) + 1, "i64", Some(i64::MIN));
        check(Overflow::Saturate, 128, "i8", Some(127));
        check(Overflow::Saturate, -129, "i8", Some(-128));
        check(Overflow::Saturate, -1, "u63", Some(0));
        check(Overflow::Saturate, i128::from(i64::MIN) * 2, "i64", Some(i64::MIN));
        check(Overflow::Fail, 2, "u1", None);
        check(Overflow::Fail, 1, "u1", Some(1));
    }

    proptest! {
        #[test]
        fn a_written_field_is_read_again_and_nothing_else_changes(
            string in proptest::collection::vec(any::<u8>(), 20),
            offset in 0_u64..80,
            is_signed in any::<bool>(),
            bits in 1_u8..=63,
            value in any::<i64>(),
        ) {
            let field = FieldType { is_signed, bits };
            let step = Step { action: Action::Get, field, offset, overflow: Overflow::Wrap };
            let value = Overflow::Wrap.fit(value.into(), field).unwrap();
            let written = step.written(&string, value);
            let mut changed = string.clone();
            let start = usize::try_from(offset / 8).unwrap();
            changed[start..start + written.len()].copy_from_slice(&written);
            prop_assert_eq!(step.read(&changed), value);
            let bit = |bytes: &[u8], at: u64| {
                bytes[usize::try_from(at / 8).unwrap()] & (0x80 >> (at % 8))
            };
            for at in (0..160).filter(|at| !(offset..offset + u64::from(bits)).contains(at)) {
                prop_assert_eq!(bit(&string, at), bit(&changed, at));
            }
        }
    }
}
