//! DUMP and RESTORE: values in the form of Redis, from one server to another.

use base::time::UnixMs;
use store::{Mutation, StoreError, Value, ValueKind};
use wire::rdb::{self, Limits, PayloadError, RdbError, decode_payload, end_payload};
use wire::resp::Args;

use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{
    CommandContext, NO_MEMORY, SCANNED_BYTES, copy_cost, integer, is_option,
};
use crate::commands::fail::Fail;
use crate::config::KeyEvent;
use crate::engine::rdb::{Storable, Unsupported, put_value, written_type};
use crate::engine::records::RECORD_BYTES_MAX;
use crate::engine::room::COPIES;

const BUSY_KEY: Fail = Fail::text("BUSYKEY Target key name already exists.");
const BAD_FOOTER: Fail = Fail::text("ERR DUMP payload version or checksum are wrong");
pub(super) const NO_FORM: Fail = Fail::text("ERR a time series has no form that RESTORE reads");
const BAD_FORMAT: Fail = Fail::text("ERR Bad data format");

pub(crate) const DUMP: Command = Command {
    name: "dump",
    syntax: "key",
    summary: "Returns a value in a form that RESTORE reads, also that of Redis 7.0 and later; a \
              hash with fields that expire in the form of Valkey 9.",
    since: "2.6.0",
    complexity: "O(N) in the size of the value",
    group: Group::Generic,
    arity: 2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::Read)],
    tips: &["nondeterministic_output"],
    run: dump,
    ..Command::EMPTY
};

fn dump(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let Some(value) = cx.locked.get(cx.db, cx.key(args.get(1))) else {
        cx.reply.null();
        return Ok(());
    };
    let written = written_type(&value).ok_or(NO_FORM)?;
    match &value {
        Value::String(bytes) => cx.spend_copied(bytes.len())?,
        collection => cx.spend(collection.len())?,
    }
    // The payload, and its copy in the reply.
    let bytes = cx.locked.memory_bytes(cx.db, cx.key(args.get(1))).unwrap_or(0);
    cx.check_more(bytes.saturating_mul(2))?;
    let mut payload = vec![written as u8];
    put_value(&mut payload, &value);
    end_payload(&mut payload, written.version());
    cx.reply.bulk(&payload);
    cx.check_reply()
}

pub(crate) const RESTORE: Command = Command {
    name: "restore",
    syntax: "key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
    summary: "Creates a key from a value in the form of DUMP, also that of Redis.",
    since: "2.6.0",
    complexity: "O(N) in the size of the value",
    group: Group::Generic,
    arity: -4,
    flags: Flags::WRITE.and(Flags::DENYOOM),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Overwrite)],
    more_categories: &["@dangerous"],
    run: restore,
    ..Command::EMPTY
};

/// RESTORE as a cluster client sends it after ASKING.
pub(crate) const RESTORE_ASKING: Command = Command {
    name: "restore-asking",
    since: "3.0.0",
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::ASKING),
    ..RESTORE
};

/// Options of RESTORE.
#[derive(Debug, Default)]
struct Options {
    replace: bool,
    is_absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    // Source: Redis 7.2 `cluster.c`, `restoreCommand`
    fn parse(args: Args<'_>) -> Result<Options, Fail> {
        let mut options = Options::default();
        let mut rest = args.skip(4).iter();
        while let Some(option) = rest.next() {
            if is_option(option, "REPLACE") {
                options.replace = true;
            } else if is_option(option, "ABSTTL") {
                options.is_absolute = true;
            } else if is_option(option, "IDLETIME") && options.frequency.is_none() {
                let seconds = integer(rest.next().ok_or(Fail::Syntax)?)?;
                let invalid = || Fail::text("ERR Invalid IDLETIME value, must be >= 0");
                options.idle_s = Some(u64::try_from(seconds).map_err(|_| invalid())?);
            } else if is_option(option, "FREQ") && options.idle_s.is_none() {
                let counter = integer(rest.next().ok_or(Fail::Syntax)?)?;
                let invalid = || Fail::text("ERR Invalid FREQ value, must be >= 0 and <= 255");
                options.frequency = Some(u8::try_from(counter).map_err(|_| invalid())?);
            } else {
                return Err(Fail::Syntax);
            }
        }
        Ok(options)
    }
}

// Source: Redis 7.2 `cluster.c`, `restoreCommand`
fn restore(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let options = Options::parse(args)?;
    let key = cx.key(args.get(1));
    let exists = cx.locked.contains(cx.db, key);
    if exists && !options.replace {
        return Err(BUSY_KEY);
    }
    let ttl_ms = u64::try_from(integer(args.get(2))?)
        .map_err(|_| Fail::text("ERR Invalid TTL value, must be >= 0"))?;
    let value = decode(cx, args.get(3))?;
    let from_ms = if options.is_absolute { 0 } else { cx.unix().0 };
    let expiry = (ttl_ms > 0).then(|| UnixMs(from_ms.saturating_add(ttl_ms)));
    if expiry.is_some_and(|at| at <= cx.expiry_now()) {
        if exists {
            cx.delete(key)?;
        }
        cx.reply.ok();
        return Ok(());
    }
    let mutation = Mutation::Key { db: cx.db, key, change: value.change(expiry) };
    cx.locked.change(&mutation).map_err(|error| match error {
        // An empty collection, or one with equal members.
        StoreError::Malformed => BAD_FORMAT,
        other => Fail::from(other),
    })?;
    cx.locked.set_access(cx.db, key, options.idle_s, options.frequency);
    cx.announce(KeyEvent::NEW, cx.db, key);
    cx.announce(Group::Generic.event("restore"), cx.db, key);
    cx.reply.ok();
    Ok(())
}

/// Decodes a payload whose value may be stored.
fn decode(cx: &CommandContext<'_>, payload: &[u8]) -> Result<Storable, Fail> {
    let free_bytes = cx.reactor.room.used_bytes_max.saturating_sub(cx.shared.used_bytes());
    let memory_bytes_max = (free_bytes / COPIES).min(RECORD_BYTES_MAX as u64);
    let elements_max = cx.elements_left();
    // A compressed string may be 88 times as long as its payload.
    let work_bytes_max = elements_max.saturating_mul(SCANNED_BYTES) as u64;
    let limits = Limits {
        bytes_max: memory_bytes_max.min(work_bytes_max),
        string_bytes_max: cx.reactor.settings.proto_max_bulk_len_bytes,
        elements_max,
    };
    let is_long = work_bytes_max < memory_bytes_max;
    let too_large = if is_long { Fail::TooManyElements } else { Fail::text(NO_MEMORY) };
    let value = decode_payload(payload, limits).map_err(|error| match error {
        PayloadError::Footer => BAD_FOOTER,
        PayloadError::Value(RdbError::TooLarge { .. }) => too_large,
        PayloadError::Value(RdbError::TooMany { .. }) => Fail::TooManyElements,
        PayloadError::Value(RdbError::TooLong { .. }) => Fail::from(StoreError::TooLong),
        PayloadError::Value(_) => BAD_FORMAT,
    })?;
    cx.spend(value.parts().saturating_mul(kind_of(&value).map_or(1, copy_cost)))?;
    let value = Storable::new(value).map_err(|error| match error {
        Unsupported::MalformedStream => BAD_FORMAT,
        module @ Unsupported::Module(_) => {
            Fail::owned(format!("ERR the payload is {module}: not supported"))
        }
    })?;
    cx.admit_record(cx.command, value.record_bytes().saturating_add(payload.len()))?;
    Ok(value)
}

fn kind_of(value: &rdb::Value) -> Option<ValueKind> {
    match value {
        rdb::Value::String(_) => Some(ValueKind::String),
        rdb::Value::List(_) => Some(ValueKind::List),
        rdb::Value::Set(_) => Some(ValueKind::Set),
        rdb::Value::Hash { .. } => Some(ValueKind::Hash),
        rdb::Value::ZSet { .. } => Some(ValueKind::ZSet),
        rdb::Value::Stream(_) => Some(ValueKind::Stream),
        rdb::Value::Module(_) => None,
    }
}
