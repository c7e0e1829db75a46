//! DEBUG POPULATE: many keys at once, for tests.

use std::ops::Range;

use store::{Change, Mutation};
use wire::resp::{Args, parse_i64_strict};

use super::{ADMIN, check_allowed};
use crate::commands::command::{Command, Done, Events, Flags, Group};
use crate::commands::context::{ARGUMENT_COST, CommandContext};
use crate::commands::fail::{Fail, too_many_arguments};
use crate::engine::commit::{Record, Unit};
use crate::engine::gate::Gate;

pub(super) const POPULATE: Command = Command {
    name: "populate",
    syntax: "count [prefix [size]]",
    summary: "Creates strings with the keys prefix:0, prefix:1 ... that do not exist yet. \
              Other clients are served meanwhile.",
    since: "1.0.0",
    complexity: "O(N) in the count and the bytes of the values",
    group: Group::Server,
    arity: -3,
    flags: ADMIN.and(Flags::WRITE).and(Flags::DENYOOM).and(Flags::LOCKS_STRIPES),
    events: Events::Chosen,
    run: populate,
    ..Command::EMPTY
};

/// Log bytes of a change beyond key and value.
const CHANGE_BYTES: usize = 32;
/// Digits of a number.
const DIGITS_MAX: usize = 20;
/// Keys of one record.
const KEYS_PER_RECORD_MAX: usize = 1024;
/// Bytes of one record, if it has several keys.
const RECORD_BYTES: usize = 1 << 20;

fn not_negative(text: &[u8]) -> Result<usize, Fail> {
    let number = parse_i64_strict(text).and_then(|number| usize::try_from(number).ok());
    number.ok_or(Fail::text("ERR value is out of range, must be positive"))
}

/// The strings that a request creates.
struct Strings<'a> {
    prefix: &'a [u8],
    size: Option<usize>,
}

impl Strings<'_> {
    fn name(&self, number: usize) -> Vec<u8> {
        [self.prefix, format!(":{number}").as_bytes()].concat()
    }

    fn value(&self, number: usize) -> Vec<u8> {
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = self.size {
            value.resize(size, 0);
        }
        value
    }

    /// Bytes of one of them in the log.
    fn record_bytes(&self) -> usize {
        let value_bytes = self.size.unwrap_or(b"value:".len() + DIGITS_MAX);
        CHANGE_BYTES + self.prefix.len() + DIGITS_MAX + value_bytes
    }

    /// Creates those of a range that do not exist.
    fn create(&self, unit: &mut Unit<'_>, db: u8, numbers: Range<usize>) -> Done {
        for number in numbers {
            let name = self.name(number);
            let key = unit.key(&name);
            if !unit.contains(db, key) {
                let value = self.value(number);
                let change = Change::Set { value: &value, expiry: None };
                unit.change(&Mutation::Key { db, key, change })?;
            }
        }
        Ok(())
    }
}

/// As with Redis, there are no events.
// Source: Redis 7.2 `debug.c`, `debugCommand`
fn populate(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_allowed(cx)?;
    if args.len() > 5 {
        return Err(too_many_arguments("DEBUG", args));
    }
    let count = not_negative(args.get(2))?;
    let size = args.try_get(4).map(not_negative).transpose()?;
    let strings = Strings { prefix: args.try_get(3).unwrap_or(b"key"), size };
    cx.spend_time(count.saturating_mul(ARGUMENT_COST))?;
    if cx.locked.is_all() {
        cx.admit_record(cx.command, count.saturating_mul(strings.record_bytes()))?;
        strings.create(&mut cx.locked, cx.db, 0..count)?;
    } else {
        let keys_per_record = (RECORD_BYTES / strings.record_bytes()).clamp(1, KEYS_PER_RECORD_MAX);
        let mut from = 0;
        while from < count && !cx.reactor.is_contended && !cx.shared.long_requests.is_over() {
            let numbers = from..count.min(from + keys_per_record);
            from = numbers.end;
            create_some(cx, &strings, numbers)?;
        }
    }
    cx.reply.ok();
    Ok(())
}

/// Creates the strings of a range with one record of the log. Other requests may run before the
/// next range. If another reactor holds their keys, the whole request runs again later, and finds
/// what it has created.
fn create_some(cx: &mut CommandContext<'_>, strings: &Strings<'_>, numbers: Range<usize>) -> Done {
    debug_assert!(!cx.in_exec, "transactions lock all keys for it");
    cx.await_room();
    let (shared, params) = (cx.shared, cx.locked.params());
    let hashes = numbers.clone().map(|number| shared.keyspace.hash(&strings.name(number)));
    let give_up = shared.running_scripts.until_slow();
    let Some(locked) = shared.keyspace.lock_unless(hashes, params, give_up) else {
        cx.reactor.is_contended = true;
        return Ok(());
    };
    let mut record = Record::default();
    let mut unit = Unit::of_client(shared, cx.reactor, &mut record, locked);
    let bytes = numbers.len().saturating_mul(strings.record_bytes());
    unit.admit(bytes, cx.reactor.room.used_bytes_max).map_err(Fail::from)?;
    strings.create(&mut unit, cx.db, numbers)?;
    let gate = unit.commit(cx.reactor);
    record.send_invalidations(shared, None);
    if gate != Gate::OPEN {
        cx.session.last_write = gate;
        cx.note_gate(gate);
    }
    cx.reactor.count_growth();
    Ok(())
}
