//! SYNC, PSYNC and REPLCONF: a client receives an RDB file, as `redis-cli --rdb` requests it.
//!
//! A replica would receive the changes after the file as well, which this server does not send.

use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, integer, is_option};
use super::fail::Fail;
use super::session::{Progress, Wait};
use crate::engine::rdb_file::{FileContents, RdbFile};

/// Bytes of the mark that follows a file. Source: Redis 7.2 `replication.c`, `RDB_EOF_MARK_SIZE`.
const MARK_BYTES: usize = 40;

const SYNCS: Flags = Flags::ADMIN
    .and(Flags::NOSCRIPT)
    .and(Flags::NO_ASYNC_LOADING)
    .and(Flags::NO_MULTI)
    .and(Flags::NO_HTTP)
    .and(Flags::WAITS);

/// What a client has announced by REPLCONF.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReplicaOptions {
    /// It requests a file without the changes that follow.
    rdb_only: bool,
    /// It finds the end of a file by the mark that follows it.
    knows_marks: bool,
    contents: FileContents,
}

pub(crate) const SYNC: Command = Command {
    name: "sync",
    summary: "Sends an RDB file to a client that has set REPLCONF rdb-only 1, and disconnects it.",
    since: "1.0.0",
    complexity: "O(N) in the number of keys, outside of the threads that serve clients",
    group: Group::Server,
    arity: 1,
    flags: SYNCS,
    run: sync,
    ..Command::EMPTY
};

fn sync(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    transfer(cx)
}

pub(crate) const PSYNC: Command = Command {
    name: "psync",
    syntax: "replicationid offset",
    summary: "Like SYNC; the file follows a line with the position in the log.",
    since: "2.8.0",
    complexity: "O(N) in the number of keys, outside of the threads that serve clients",
    group: Group::Server,
    arity: -3,
    flags: SYNCS,
    run: psync,
    ..Command::EMPTY
};

// Source: Redis 7.2 `replication.c`, `syncCommand` and `masterTryPartialResync`
fn psync(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    integer(args.get(2))?;
    transfer(cx)?;
    let position = cx.shared.log.durable().0;
    let line = format!("FULLRESYNC {} {position}", cx.shared.identity.run_id);
    cx.reply.simple(&line);
    Ok(())
}

/// Starts the file. The thread that makes it also sends the header in front of it.
fn transfer(cx: &mut CommandContext<'_>) -> Done {
    let options = cx.session.details.rare_if_set().map(|rare| rare.replica).unwrap_or_default();
    if !options.rdb_only {
        return Err(Fail::text(
            "ERR replication is not supported; a client that sends REPLCONF rdb-only 1 before \
             receives one RDB file",
        ));
    }
    if !options.knows_marks {
        return Err(Fail::text(
            "ERR the size of the file is not known in advance; send REPLCONF capa eof before",
        ));
    }
    let mark = format!("{:020x}{:020x}", cx.reactor.random(), cx.reactor.random());
    debug_assert_eq!(mark.len(), MARK_BYTES);
    let file = RdbFile::new(options.contents, mark.as_bytes());
    if !cx.shared.rdb_transfers.open(cx.session.id, cx.reactor.index, file) {
        return Err(Fail::text("ERR too many clients receive RDB files"));
    }
    // No number of sent bytes is this one, so that the time counts from now.
    let progress = Progress { sent_bytes: u64::MAX, at: cx.now.mono };
    cx.session.details.rare().progress = progress;
    cx.session.wait = Some(Wait::Transfer);
    Ok(())
}

pub(crate) const REPLCONF: Command = Command {
    name: "replconf",
    syntax: "[option value [option value ...]]",
    summary: "Sets what SYNC sends: rdb-only, rdb-filter-only, capa. Other options of replicas have \
              no effect.",
    since: "3.0.0",
    complexity: "O(1)",
    group: Group::Server,
    arity: -1,
    flags: Flags::ADMIN
        .and(Flags::NOSCRIPT)
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::ALLOW_BUSY)
        .and(Flags::NO_HTTP),
    run: replconf,
    ..Command::EMPTY
};

// Source: Redis 7.2 `replication.c`, `replconfCommand`; `version` as in Valkey 8.0
fn replconf(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if args.len().is_multiple_of(2) {
        return Err(Fail::Syntax);
    }
    let mut at = 1;
    while at < args.len() {
        let (option, value) = (args.get(at), args.get(at + 1));
        let replica = &mut cx.session.details.rare().replica;
        if is_option(option, "rdb-only") {
            replica.rdb_only = match integer(value)? {
                number @ 0..=1 => number == 1,
                _ => {
                    return Err(Fail::text(
                        "ERR value is out of range, value must between 0 and 1",
                    ));
                }
            };
        } else if is_option(option, "rdb-filter-only") {
            replica.contents = filter(value)?;
        } else if is_option(option, "capa") {
            // Unknown ones are of newer versions.
            replica.knows_marks |= is_option(value, "eof");
        } else if is_option(option, "listening-port") {
            integer(value)?;
        } else if is_option(option, "ack") || is_option(option, "getack") {
            // Without replication they have no meaning, and as in Redis no reply.
            return Ok(());
        } else if !is_option(option, "ip-address") && !is_option(option, "version") {
            return Err(Fail::quoting("ERR Unrecognized REPLCONF option: ", option, ""));
        }
        at += 2;
    }
    cx.reply.ok();
    Ok(())
}

/// The parts of a file that a client lists.
fn filter(value: &[u8]) -> Result<FileContents, Fail> {
    let words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut contents = FileContents::Nothing;
    for word in words {
        if !is_option(word, "functions") {
            return Err(Fail::quoting("ERR Unsupported rdb-filter-only option: ", word, ""));
        }
        contents = FileContents::Functions;
    }
    Ok(contents)
}
