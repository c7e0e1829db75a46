//! ACL LOG: refused requests and logins.

use wire::resp::Args;

use super::ADMIN_FLAGS;
use crate::commands::command::{Command, Done, Group};
use crate::commands::context::{CommandContext, integer, is_option};
use crate::commands::fail::too_many_arguments;
use crate::engine::acl::LogEntry;

pub(super) const LOG: Command = Command {
    name: "log",
    syntax: "[count | RESET]",
    summary: "Returns the newest refusals of requests and logins, or removes all of them.",
    since: "6.0.0",
    complexity: "O(N) in the number of entries returned",
    group: Group::Server,
    arity: -2,
    flags: ADMIN_FLAGS,
    run: log,
    ..Command::EMPTY
};

/// Entries that ACL LOG returns without an argument.
const ENTRIES_DEFAULT: i64 = 10;

fn log(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let count = match args.try_get(2) {
        _ if args.len() > 3 => return Err(too_many_arguments("ACL", args)),
        None => ENTRIES_DEFAULT,
        Some(word) if is_option(word, "RESET") => {
            cx.shared.refusals.lock().clear();
            cx.reply.ok();
            return Ok(());
        }
        Some(count) => integer(count)?,
    };
    // Copied, so that other reactors do not wait for the reply.
    let log = cx.shared.refusals.lock();
    let count = usize::try_from(count).unwrap_or(0).min(log.iter().len());
    let entries: Vec<LogEntry> = log.iter().take(count).cloned().collect();
    drop(log);
    cx.reply.array(entries.len());
    for entry in &entries {
        write_entry(cx, entry);
    }
    Ok(())
}

fn write_entry(cx: &mut CommandContext<'_>, entry: &LogEntry) {
    let now = cx.unix();
    let reply = &mut cx.reply;
    reply.map(10);
    reply.bulk(b"count");
    reply.count(entry.count);
    for (name, text) in [
        (&b"reason"[..], entry.reason.word().as_bytes()),
        (b"context", entry.place.word().as_bytes()),
        (b"object", &entry.object),
        (b"username", &entry.user),
    ] {
        reply.bulk(name);
        reply.bulk(text);
    }
    reply.bulk(b"age-seconds");
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of far less than 2^53")]
    reply.double(now.0.saturating_sub(entry.updated.0) as f64 / 1000.0);
    reply.bulk(b"client-info");
    reply.bulk(entry.client.as_bytes());
    for (name, number) in [
        (&b"entry-id"[..], entry.number),
        (b"timestamp-created", entry.created.0),
        (b"timestamp-last-updated", entry.updated.0),
    ] {
        reply.bulk(name);
        reply.count(number);
    }
}
