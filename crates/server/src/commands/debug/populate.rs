//! DEBUG POPULATE: many keys at once, for tests.

use store::Change;
use wire::resp::{Args, parse_i64_strict};

use super::{ADMIN, check_allowed};
use crate::commands::command::{Command, Done, Events, Flags, Group};
use crate::commands::context::{ARGUMENT_COST, CommandContext};
use crate::commands::fail::{Fail, too_many_arguments};

pub(super) const POPULATE: Command = Command {
    name: "populate",
    syntax: "count [prefix [size]]",
    summary: "Creates strings with the keys prefix:0, prefix:1 ... that do not exist yet.",
    since: "1.0.0",
    complexity: "O(N) in the count and the bytes of the values",
    group: Group::Server,
    arity: -3,
    flags: ADMIN.and(Flags::WRITE).and(Flags::DENYOOM).and(Flags::ALL_KEYS),
    events: Events::Chosen,
    run: populate,
    ..Command::EMPTY
};

/// Log bytes of a change beyond key and value.
const CHANGE_BYTES: usize = 32;
/// Digits of a number.
const DIGITS_MAX: usize = 20;

fn not_negative(text: &[u8]) -> Result<usize, Fail> {
    let number = parse_i64_strict(text).and_then(|number| usize::try_from(number).ok());
    number.ok_or(Fail::text("ERR value is out of range, must be positive"))
}

/// As with Redis, there are no events.
// Source: Redis 7.2 `debug.c`, `debugCommand`
fn populate(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_allowed(cx)?;
    if args.len() > 5 {
        return Err(too_many_arguments("DEBUG", args));
    }
    let count = not_negative(args.get(2))?;
    let prefix = args.try_get(3).unwrap_or(b"key");
    let size = args.try_get(4).map(not_negative).transpose()?;
    let value_bytes = size.unwrap_or(b"value:".len() + DIGITS_MAX);
    let bytes = CHANGE_BYTES + prefix.len() + DIGITS_MAX + value_bytes;
    cx.spend(count.saturating_mul(ARGUMENT_COST))?;
    cx.admit_record(cx.command, count.saturating_mul(bytes))?;
    for number in 0..count {
        let mut name = prefix.to_vec();
        name.extend_from_slice(format!(":{number}").as_bytes());
        let key = cx.key(&name);
        if cx.locked.contains(cx.db, key) {
            continue;
        }
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = size {
            value.resize(size, 0);
        }
        cx.apply(cx.db, key, Change::Set { value: &value, expiry: None })?;
    }
    cx.reply.ok();
    Ok(())
}
