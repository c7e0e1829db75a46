//! Named databases, as those of YEDIS: CREATEDB, LISTDB, DELETEDB; SELECT takes their names.
//!
//! A name stands for one of the numbered databases, which always exist.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

// Source: YugabyteDB, `redis_commands.cc`, `HandleCreateDB` and its neighbours

use store::DATABASES;
use wire::resp::{Args, parse_i64_strict};

use super::command::{Command, Done, Events, Flags, Group};
use super::connection::database;
use super::context::CommandContext;
use super::fail::Fail;
use crate::engine::named_databases;

/// Bytes of a name: it is stored in memory, and listed as a whole.
const NAME_BYTES_MAX: usize = 256;

const CHANGES: Flags =
    Flags::WRITE.and(Flags::ADMIN).and(Flags::ALL_KEYS).and(Flags::NO_MULTI).and(Flags::NOSCRIPT);

/// A database as a client writes it.
enum Place<'n> {
    Number(u8),
    Name(&'n [u8]),
}

fn place(text: &[u8]) -> Result<Place<'_>, Fail> {
    if let Some(number) = parse_i64_strict(text) {
        let db = database(number).ok_or(Fail::text("ERR DB index is out of range"))?;
        return Ok(Place::Number(db));
    }
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(Fail::text("ERR a name of a database has 1 to 256 bytes"));
    }
    Ok(Place::Name(text))
}

pub(crate) const CREATEDB: Command = Command {
    name: "createdb",
    syntax: "name",
    summary: "Gives a name, which SELECT takes, to an empty database; numbered ones always exist.",
    since: "YEDIS",
    complexity: "O(S) in the number of stripes, a constant",
    group: Group::Server,
    arity: 2,
    flags: CHANGES.and(Flags::DENYOOM),
    events: Events::Chosen,
    more_categories: &["@keyspace"],
    run: createdb,
    ..Command::EMPTY
};

fn createdb(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if let Place::Name(name) = place(args.get(1))? {
        let names = named_databases::names(&cx.locked);
        if names.iter().all(|(known, _)| known != name) {
            let is_free =
                |db: &u8| cx.locked.is_empty(*db) && names.iter().all(|(_, named)| named != db);
            // The last one first: applications that use numbers begin at the first ones.
            let free = (1..DATABASES).rev().filter_map(|db| u8::try_from(db).ok()).find(is_free);
            let full = Fail::text("ERR no database is free: all have names or keys");
            cx.name_database(name, free.ok_or(full)?)?;
        }
    }
    cx.reply.ok();
    Ok(())
}

pub(crate) const DELETEDB: Command = Command {
    name: "deletedb",
    summary: "Removes all keys of a database, and its name. Memory is freed in the background.",
    complexity: "O(N) in the number of keys",
    flags: CHANGES,
    run: deletedb,
    ..CREATEDB
};

fn deletedb(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    match place(args.get(1))? {
        Place::Number(db) => cx.flush(Some(db))?,
        Place::Name(name) => {
            if let Some(db) = named_databases::find(&cx.locked, name) {
                cx.flush(Some(db))?;
                cx.unname_database(name)?;
            }
        }
    }
    cx.reply.ok();
    Ok(())
}

pub(crate) const LISTDB: Command = Command {
    name: "listdb",
    summary: "Lists names of databases, database 0, and numbers of others with keys but no name.",
    since: "YEDIS",
    complexity: "O(S) in the number of stripes, a constant",
    group: Group::Server,
    arity: 1,
    flags: Flags::READONLY.and(Flags::ADMIN).and(Flags::ALL_KEYS).and(Flags::NOSCRIPT),
    more_categories: &["@keyspace"],
    run: listdb,
    ..Command::EMPTY
};

fn listdb(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let named = named_databases::names(&cx.locked);
    let is_shown = |db: &u8| *db == 0 || !cx.locked.is_empty(*db);
    let unnamed = (0..DATABASES)
        .filter_map(|db| u8::try_from(db).ok())
        .filter(is_shown)
        .filter(|db| named.iter().all(|(_, number)| number != db))
        .map(|db| db.to_string().into_bytes());
    let mut names: Vec<Vec<u8>> = unnamed.collect();
    names.extend(named.iter().map(|(name, _)| name.clone()));
    names.sort_unstable();
    cx.reply.array(names.len());
    for name in &names {
        cx.reply.bulk(name);
    }
    Ok(())
}
