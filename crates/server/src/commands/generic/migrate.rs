//! MIGRATE: moves keys to another server.

use std::time::Duration;

use smallvec::SmallVec;
use store::{Key, WatchFlag};
use wire::resp::Args;

use crate::commands::command::{
    Command, Done, Events, Flags, Group, KeyAccess, KeyPlaces, KeySpec,
};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::Fail;
use crate::commands::session::Wait;
use crate::engine::migrations::{MigratedKey, Migration, Target};
use crate::engine::rdb::written_type;
use crate::engine::reactor_state::is_gated;

/// Options with the number of their values.
const OPTIONS: &[(&str, usize)] = &[("COPY", 0), ("REPLACE", 0), ("AUTH", 1), ("AUTH2", 2)];

/// Options that are read to find passwords. More are a mistake, and are not shown.
const SHOWN_OPTIONS_MAX: usize = 16;

/// The arguments of AUTH and AUTH2, and what follows an unknown option, until KEYS.
fn is_secret(args: Args<'_>, at: usize) -> bool {
    let mut next = 6;
    for _ in 0..SHOWN_OPTIONS_MAX {
        let Some(word) = args.try_get(next).filter(|_| next < at) else { break };
        if is_option(word, "KEYS") {
            return false;
        }
        let Some((_, values)) = OPTIONS.iter().find(|(name, _)| is_option(word, name)) else {
            return true;
        };
        if at <= next + values {
            return true;
        }
        next += values + 1;
    }
    next < at
}

pub(crate) const MIGRATE: Command = Command {
    name: "migrate",
    syntax: "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] [AUTH password | \
             AUTH2 username password] [KEYS key [key ...]]",
    summary: "Moves keys to another server. Other clients are served meanwhile; a key that changes \
              before it has arrived stays, with an error.",
    since: "2.6.0",
    complexity: "O(N) in the sizes of the values",
    group: Group::Generic,
    arity: -6,
    flags: Flags::WRITE
        .and(Flags::MOVABLEKEYS)
        .and(Flags::NO_MULTI)
        .and(Flags::NOSCRIPT)
        .and(Flags::NO_HTTP),
    events: Events::Chosen,
    keys: &[KeySpec {
        places: KeyPlaces::Tail { keyword: "KEYS", first: 6, options: OPTIONS, instead: 3 },
        access: KeyAccess::ReadDelete,
        notes: None,
    }],
    more_categories: &["@dangerous"],
    is_secret,
    run: migrate,
    ..Command::EMPTY
};

/// The time that Redis takes if the request has none.
const TIMEOUT_MS: i64 = 1000;

// Source: Redis 7.2 `cluster.c`, `migrateCommand`
fn migrate(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let (target, names) = parse(args)?;
    let keys = stored_keys(cx, names)?;
    if keys.is_empty() {
        cx.reply.simple("NOKEY");
        return Ok(());
    }
    let migrated = keys.iter().map(|key| {
        let changed = WatchFlag::default();
        cx.locked.watch(cx.db, *key, &changed);
        MigratedKey { name: key.bytes.into(), changed }
    });
    let (id, is_gated) = (cx.session.id, is_gated(cx.session.durability));
    let migration = Migration { id, db: cx.db, keys: migrated.collect(), target, is_gated };
    if let Err(migration) = cx.shared.migrations.push(Box::new(migration)) {
        for (key, migrated) in keys.iter().zip(&migration.keys) {
            cx.locked.unwatch(cx.db, *key, &migrated.changed);
        }
        return Err(Fail::text("ERR too many MIGRATE requests are waiting"));
    }
    cx.await_end(Wait::Migration, args);
    Ok(())
}

/// Returns the keys that exist. Fails if one has a value without a form in RDB files.
fn stored_keys<'n>(
    cx: &CommandContext<'_>,
    names: Args<'n>,
) -> Result<SmallVec<[Key<'n>; 4]>, Fail> {
    let mut keys = SmallVec::new();
    for name in names {
        let key = cx.key(name);
        let Some(value) = cx.locked.get(cx.db, key) else { continue };
        written_type(&value).ok_or(super::dump::NO_FORM)?;
        keys.push(key);
    }
    Ok(keys)
}

/// The target, and the keys of a request.
fn parse(args: Args<'_>) -> Result<(Target, Args<'_>), Fail> {
    let mut target = Target {
        host: String::from_utf8_lossy(args.get(1)).into_owned(),
        port: 0,
        db: Vec::new(),
        timeout: Duration::ZERO,
        login: Vec::new(),
        keeps_keys: false,
        replaces: false,
    };
    let mut names = args.range(3..4);
    let mut at = 6;
    while let Some(option) = args.try_get(at) {
        let known = OPTIONS.iter().find(|(name, _)| is_option(option, name));
        if is_option(option, "KEYS") {
            if !args.get(3).is_empty() {
                return Err(Fail::text(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty \
                     string",
                ));
            }
            names = args.skip(at + 1);
            break;
        }
        let Some((name, values)) = known else { return Err(Fail::Syntax) };
        if at + values >= args.len() {
            return Err(Fail::Syntax);
        }
        match *name {
            "COPY" => target.keeps_keys = true,
            "REPLACE" => target.replaces = true,
            _ => target.login = args.range(at + 1..at + 1 + values).iter().map(Vec::from).collect(),
        }
        at += 1 + values;
    }
    let timeout_ms = integer(args.get(5))?;
    let db = integer(args.get(4))?;
    target.db = db.to_string().into_bytes();
    let timeout_ms = if timeout_ms <= 0 { TIMEOUT_MS } else { timeout_ms };
    target.timeout = Duration::from_millis(timeout_ms.unsigned_abs());
    let port = integer(args.get(2))?;
    target.port = u16::try_from(port).map_err(|_| Fail::text("ERR Invalid TCP port specified"))?;
    Ok((target, names))
}
