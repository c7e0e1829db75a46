//! Commands about keys of any type: deleting, finding, renaming, copying.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

mod dump;
mod expire;
mod migrate;
mod object;
mod wait;

use base::time::UnixMs;
use store::{Change, DATABASES, Key, Kind, Locked, ScanCursor, Seen, Value, ValueKind};
use wire::resp::{Args, ReplyWriter};

use super::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use super::context::{CommandContext, copy_cost, integer, is_option, reply_has_room};
use super::fail::Fail;
use super::scan::{ScanOptions, parse_cursor};
use crate::config::KeyEvent;
use crate::engine::commit::Record;
use crate::engine::context::ReactorContext;
use crate::engine::expire::{has_room_for, may_expire_at_reads};
use crate::engine::gate::Gate;
use crate::engine::glob::Steps;

pub(crate) use dump::{DUMP, RESTORE, RESTORE_ASKING};
pub(crate) use expire::{
    Base, Condition, EXPIRE, EXPIREAT, EXPIRETIME, PERSIST, PERSISTS, PEXPIRE, PEXPIREAT,
    PEXPIRETIME, PTTL, TTL, Unit, absolute_ms, in_unit, signed,
};
pub(crate) use migrate::MIGRATE;
pub(crate) use object::OBJECT;
pub(crate) use wait::{WAIT, WAITAOF};

/// Error for a database number that is not a 32-bit integer.
pub(super) const INDEX_TOO_LARGE: Fail =
    Fail::text("ERR value is out of range, value must between -2147483648 and 2147483647");
const SAME_KEY: Fail = Fail::text("ERR source and destination objects are the same");

pub(crate) const DEL: Command = Command {
    name: "del",
    syntax: "key [key ...]",
    summary: "Deletes keys and returns the number of deleted keys.",
    since: "1.0.0",
    complexity: "O(1) for every key; the memory of large values is freed in the background",
    group: Group::Generic,
    arity: -2,
    flags: Flags::WRITE,
    events: Events::Chosen,
    keys: &[KeySpec::range(1, -1, 1, KeyAccess::Remove)],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    run: del,
    ..Command::EMPTY
};

/// UNLINK: like DEL; neither waits for memory to be freed.
pub(crate) const UNLINK: Command = Command {
    name: "unlink",
    summary: "Deletes keys like DEL, which also frees their memory in the background.",
    since: "4.0.0",
    flags: Flags::WRITE.and(Flags::FAST),
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    ..DEL
};

fn del(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let mut deleted = 0;
    for bytes in args.iter().skip(1) {
        let key = cx.key(bytes);
        if cx.locked.contains(cx.db, key) {
            cx.delete(key)?;
            deleted += 1;
        }
    }
    cx.reply.integer(deleted);
    Ok(())
}

pub(crate) const EXISTS: Command = Command {
    name: "exists",
    syntax: "key [key ...]",
    summary: "Counts how many of the given keys exist; one given twice counts twice.",
    since: "1.0.0",
    complexity: "O(1) for every key",
    group: Group::Generic,
    arity: -2,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::range(1, -1, 1, KeyAccess::Probe)],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    run: exists,
    ..Command::EMPTY
};

fn exists(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    count_keys(cx, args, |cx, key| cx.locked.contains(cx.db, key));
    Ok(())
}

pub(crate) const TOUCH: Command = Command {
    name: "touch",
    summary: "Counts how many of the given keys exist and updates their access time.",
    since: "3.2.1",
    flags: EXISTS.flags.and(Flags::TOUCHES),
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    run: touch,
    ..EXISTS
};

fn touch(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    count_keys(cx, args, |cx, key| cx.locked.get(cx.db, key).is_some());
    Ok(())
}

fn count_keys(
    cx: &mut CommandContext<'_>,
    args: Args<'_>,
    counts: impl Fn(&CommandContext<'_>, Key<'_>) -> bool,
) {
    let found = args.skip(1).iter().filter(|bytes| counts(cx, cx.key(bytes)));
    let found = found.map(|_| 1i64).sum();
    cx.reply.integer(found);
}

pub(crate) const TYPE: Command = Command {
    name: "type",
    syntax: "key",
    summary: "Returns the type of a key's value, or none if the key does not exist.",
    since: "1.0.0",
    group: Group::Generic,
    arity: 2,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Probe)],
    run: type_of,
    ..Command::EMPTY
};

fn type_of(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let value = cx.locked.peek(cx.db, cx.key(args.get(1)));
    cx.reply.simple(value.map_or("none", |value| value.kind().name()));
    Ok(())
}

/// A value with its expiry, copied out of the store to be written to another key.
struct Copied {
    /// `None`: a string.
    kind: Option<Kind>,
    bytes: Vec<u8>,
    expiry: Option<UnixMs>,
}

impl Copied {
    /// Copies a value. O(N) in its size. `element_cost`: cost of one element of a collection.
    fn of(
        cx: &CommandContext<'_>,
        key: Key<'_>,
        element_cost: fn(ValueKind) -> usize,
    ) -> Result<Option<Copied>, Fail> {
        let Some(expiry) = cx.locked.expiry(cx.db, key) else { return Ok(None) };
        let mut bytes = Vec::new();
        let kind = match cx.locked.get(cx.db, key) {
            None => return Ok(None),
            Some(Value::String(value)) => {
                cx.spend_copied(value.len())?;
                bytes.extend_from_slice(&value);
                None
            }
            Some(collection) => {
                cx.spend(collection.len().saturating_mul(element_cost(collection.kind())))?;
                cx.locked.encode_collection(cx.db, key, &mut bytes)
            }
        };
        Ok(Some(Copied { kind, bytes, expiry }))
    }

    /// Announces that the next change gives this value to another key, and the one after it deletes
    /// this key.
    fn moves_from(&self, cx: &mut CommandContext<'_>, key: Key<'_>) {
        if self.kind.is_some() {
            cx.locked.move_from(cx.db, key);
        }
    }

    fn change(&self) -> Change<'_> {
        let expiry = self.expiry;
        match self.kind {
            None => Change::Set { value: &self.bytes, expiry },
            Some(kind) => Change::Put { kind, encoded: &self.bytes, expiry },
        }
    }
}

pub(crate) const RENAME: Command = Command {
    name: "rename",
    syntax: "key newkey",
    summary: "Renames a key and overwrites any value of the new name.",
    since: "1.0.0",
    complexity: "O(N) in the size of the value, which is logged as a whole",
    group: Group::Generic,
    arity: 3,
    flags: Flags::WRITE.and(Flags::COPIES),
    events: Events::Chosen,
    keys: &[
        KeySpec::range(1, 1, 1, KeyAccess::ReadDelete),
        KeySpec::range(2, 2, 1, KeyAccess::Overwrite),
    ],
    run: rename,
    ..Command::EMPTY
};

fn rename(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (from, to) = (cx.key(args.get(1)), cx.key(args.get(2)));
    if !cx.locked.contains(cx.db, from) {
        return Err(Fail::NoSuchKey);
    }
    if from.bytes != to.bytes {
        move_value(cx, from, to)?;
    }
    cx.reply.ok();
    Ok(())
}

pub(crate) const RENAMENX: Command = Command {
    name: "renamenx",
    summary: "Renames a key unless the new name exists.",
    flags: Flags::WRITE.and(Flags::FAST).and(Flags::COPIES),
    keys: &[
        KeySpec::range(1, 1, 1, KeyAccess::ReadDelete),
        KeySpec::range(2, 2, 1, KeyAccess::Create),
    ],
    run: renamenx,
    ..RENAME
};

fn renamenx(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (from, to) = (cx.key(args.get(1)), cx.key(args.get(2)));
    if !cx.locked.contains(cx.db, from) {
        return Err(Fail::NoSuchKey);
    }
    let is_free = !cx.locked.contains(cx.db, to);
    if is_free {
        move_value(cx, from, to)?;
    }
    cx.reply.integer(i64::from(is_free));
    Ok(())
}

/// Moves a value. Both changes are in one record. The new key is written first, so that a failed
/// change leaves everything unchanged.
fn move_value(cx: &mut CommandContext<'_>, from: Key<'_>, to: Key<'_>) -> Done {
    let value = Copied::of(cx, from, |_| 1)?.ok_or(Fail::NoSuchKey)?;
    value.moves_from(cx, from);
    cx.apply(cx.db, to, value.change())?;
    cx.apply(cx.db, from, Change::Delete)?;
    cx.announce(KeyEvent::NEW, cx.db, to);
    cx.announce(Group::Generic.event("rename_from"), cx.db, from);
    cx.announce(Group::Generic.event("rename_to"), cx.db, to);
    Ok(())
}

pub(crate) const COPY: Command = Command {
    name: "copy",
    syntax: "source destination [DB destination-db] [REPLACE]",
    summary: "Copies the value of a key, with its expiry, to another key or database.",
    since: "6.2.0",
    complexity: "O(N) in the size of the value",
    group: Group::Generic,
    arity: -3,
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::COPIES),
    events: Events::Chosen,
    keys: &[
        KeySpec::range(1, 1, 1, KeyAccess::Read),
        KeySpec::range(2, 2, 1, KeyAccess::Overwrite),
    ],
    run: copy,
    ..Command::EMPTY
};

fn copy(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (mut db, mut replace) = (cx.db, false);
    let mut options = args.skip(3).iter();
    while let Some(option) = options.next() {
        if is_option(option, "REPLACE") {
            replace = true;
        } else if is_option(option, "DB") {
            db = database(options.next().ok_or(Fail::Syntax)?)?;
        } else {
            return Err(Fail::Syntax);
        }
    }
    let (from, to) = (cx.key(args.get(1)), cx.key(args.get(2)));
    if db == cx.db && from.bytes == to.bytes {
        return Err(SAME_KEY);
    }
    let may_copy = cx.locked.contains(cx.db, from) && (replace || is_free_in(cx, db, to));
    if may_copy && let Some(value) = Copied::of(cx, from, copy_cost)? {
        cx.apply(db, to, value.change())?;
        cx.announce(KeyEvent::NEW, db, to);
        cx.announce(Group::Generic.event("copy_to"), db, to);
    }
    cx.reply.integer(i64::from(may_copy));
    Ok(())
}

pub(crate) const MOVE: Command = Command {
    name: "move",
    syntax: "key db",
    summary: "Moves a key to another database unless it exists there.",
    since: "1.0.0",
    complexity: "O(N) in the size of the value, which is logged as a whole",
    group: Group::Generic,
    arity: 3,
    flags: Flags::WRITE.and(Flags::FAST).and(Flags::COPIES),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::ReadUpdate)],
    run: move_key,
    ..Command::EMPTY
};

fn move_key(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let db = database(args.get(2))?;
    if db == cx.db {
        return Err(SAME_KEY);
    }
    let key = cx.key(args.get(1));
    let may_move = cx.locked.contains(cx.db, key) && is_free_in(cx, db, key);
    if may_move && let Some(value) = Copied::of(cx, key, |_| 1)? {
        value.moves_from(cx, key);
        cx.apply(db, key, value.change())?;
        cx.apply(cx.db, key, Change::Delete)?;
        cx.announce(KeyEvent::NEW, db, key);
        cx.announce(Group::Generic.event("move_from"), cx.db, key);
        cx.announce(Group::Generic.event("move_to"), db, key);
    }
    cx.reply.integer(i64::from(may_move));
    Ok(())
}

/// Parses the number of a database.
fn database(text: &[u8]) -> Result<u8, Fail> {
    let number = i32::try_from(integer(text)?).map_err(|_| INDEX_TOO_LARGE)?;
    let known = u8::try_from(number).ok().filter(|db| usize::from(*db) < DATABASES);
    known.ok_or(Fail::text("ERR DB index is out of range"))
}

/// Whether the database has no such key. The reply reveals the result, so it waits for that key's
/// last write. A key's stripe covers it in every database.
fn is_free_in(cx: &mut CommandContext<'_>, db: u8, key: Key<'_>) -> bool {
    let gate = Gate::of(&cx.locked, db, key.hash);
    cx.note_gate(gate);
    cx.expire_key(db, key);
    !cx.locked.contains(db, key)
}

/// Records that the reply depends on data that waits for `gate`.
pub(crate) const KEYS: Command = Command {
    name: "keys",
    syntax: "pattern",
    summary: "Lists all keys that match a pattern and blocks other commands; SCAN does not.",
    since: "1.0.0",
    complexity: "O(N) in the number of keys of the database",
    group: Group::Generic,
    arity: 2,
    flags: Flags::READONLY.and(Flags::ALL_KEYS),
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    more_categories: &["@dangerous"],
    run: keys,
    ..Command::EMPTY
};

fn keys(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let pattern = Some(args.get(1)).filter(|pattern| *pattern != b"*");
    cx.spend(cx.locked.len(cx.db))?;
    let counted = cx.reply.begin_counted();
    let steps = Steps::default();
    let mut found = 0;
    cx.locked.for_each_key(cx.db, |key| {
        if reply_has_room(&cx.reply) && pattern.is_none_or(|it| steps.matches(it, key)) {
            cx.reply.bulk(key);
            found += 1;
        }
    });
    steps.check()?;
    cx.reply.end_counted(counted, found, |_| ());
    Ok(())
}

pub(crate) const RANDOMKEY: Command = Command {
    name: "randomkey",
    summary: "Returns a key chosen at random, or null if the database is empty.",
    since: "1.0.0",
    group: Group::Generic,
    arity: 1,
    flags: Flags::READONLY.and(Flags::ALL_KEYS),
    tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
    run: randomkey,
    ..Command::EMPTY
};

fn randomkey(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let reactor = &mut *cx.reactor;
    match cx.locked.random_key(cx.db, || reactor.random()) {
        Some(key) => cx.reply.bulk(&key),
        None => cx.reply.null(),
    }
    Ok(())
}

/// SCAN: iterates over all keys, a few per call.
pub(crate) const SCAN: Command = Command {
    name: "scan",
    syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
    summary: "Iterates over the keys of the database, some with each call.",
    since: "2.8.0",
    complexity: "O(1) for every call and key, O(N) for a complete iteration",
    group: Group::Generic,
    arity: -2,
    flags: Flags::READONLY.and(Flags::LOCKS_STRIPES),
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    run: scan,
    ..Command::EMPTY
};

fn scan(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let cursor = ScanCursor(parse_cursor(args.get(1))?);
    let options = ScanOptions::parse(args, 2)?;
    options.refuse_no_values()?;
    scan_keys(
        cx,
        cursor,
        &options,
        |_| true,
        |reply, next| {
            reply.bulk(itoa::Buffer::new().format(next).as_bytes());
        },
    )
}

/// Replies with some keys that `accepts` takes. `reply_cursor` writes the cursor at which to
/// continue; 0: there are no more keys.
pub(super) fn scan_keys(
    cx: &mut CommandContext<'_>,
    cursor: ScanCursor,
    options: &ScanOptions<'_>,
    accepts: impl Fn(&[u8]) -> bool,
    reply_cursor: impl FnOnce(&mut ReplyWriter<'_>, u64),
) -> Done {
    let mark = cx.reply.mark();
    let counted = cx.reply.begin_counted();
    let (db, reply) = (cx.db, &mut cx.reply);
    let mut found = 0;
    // Expired keys that SCAN found: at most as many as it may visit.
    let mut overdue = Vec::new();
    let mut visit = |locked: &Locked<'_>, seen: Seen<'_>| match seen {
        Seen::Overdue(key) if accepts(key) && options.accepts(key) => overdue.push(key.to_vec()),
        Seen::Live(key)
            if accepts(key) && reply_has_room(reply) && is_wanted(locked, db, key, options) =>
        {
            reply.bulk(key);
            found += 1;
        }
        Seen::Overdue(_) | Seen::Live(_) => {}
    };
    let (next, gate) = if cx.locked.is_all() {
        let locked = &cx.locked;
        // A command that locked everything waits for everything.
        (locked.scan(db, cursor, options.count, |seen| visit(locked, seen)), Gate::OPEN)
    } else {
        let keyspace = &cx.shared.keyspace;
        debug_assert!(!cx.in_exec, "scripts and transactions lock all keys for it");
        let gives_up = cx.reactor.patience(&cx.shared.running_scripts);
        let params = cx.locked.params();
        let found = keyspace.scan(db, cursor, options.count, params, gives_up, visit);
        let Some((next, position)) = found else {
            cx.reply.rewind(mark);
            cx.reactor.is_contended = true;
            return Ok(());
        };
        (next, Gate::from_store(position))
    };
    options.steps.check()?;
    cx.reply.end_counted(counted, found, |reply| {
        reply.array(2);
        reply_cursor(reply, next.0);
    });
    cx.note_gate(gate);
    expire_found(cx, &overdue);
    Ok(())
}

/// Deletes the expired keys that a scan found. Outside EXEC no stripe is locked here, so each is
/// locked again.
fn expire_found(cx: &mut CommandContext<'_>, names: &[Vec<u8>]) {
    if names.is_empty() || !may_expire_at_reads(cx.shared, cx.reactor, cx.now.mono) {
        return;
    }
    if !cx.locked.is_all() {
        let params = cx.locked.params();
        let (shared, reactor, now) = (cx.shared, &mut *cx.reactor, cx.now);
        let record = &mut Record::default();
        let replies = cx.reply.room();
        let mut context = ReactorContext { shared, params, reactor, record, now, replies };
        return context.expire_found(cx.db, names);
    }
    for name in names {
        let key = cx.key(name);
        if has_room_for(&cx.locked, key) {
            cx.expire_key(cx.db, key);
        }
    }
}

fn is_wanted(locked: &Locked<'_>, db: u8, key: &[u8], options: &ScanOptions<'_>) -> bool {
    let is_type = |name: &[u8]| {
        let value = locked.peek(db, locked.key(key));
        value.is_some_and(|value| name.eq_ignore_ascii_case(value.kind().name().as_bytes()))
    };
    options.accepts(key) && options.type_name.is_none_or(is_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_numbered_from_0_to_15() {
        assert_eq!(database(b"0"), Ok(0));
        assert_eq!(database(b"15"), Ok(15));
        for text in [&b"16"[..], b"-1", b"256", b"2147483647"] {
            assert_eq!(database(text), Err(Fail::text("ERR DB index is out of range")));
        }
        for text in [&b"abc"[..], b"", b"9223372036854775808"] {
            assert_eq!(database(text), Err(Fail::NotInteger));
        }
        assert_eq!(database(b"2147483648"), Err(INDEX_TOO_LARGE));
    }
}
