//! SYNC, PSYNC and REPLCONF: a client receives an RDB file, as `redis-cli --rdb` requests it, or,
//! if it is a server of this kind, the replication stream. REPLICAOF makes this server a replica.

use std::sync::Arc;

use wire::replication::{CAPABILITY, EpochId};
use wire::resp::Args;

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, integer, is_option};
use super::fail::Fail;
use super::session::{Progress, Requests, Wait};
use crate::config::{MasterAddress, ReplicaOf};
use crate::engine::rdb_file::{FileContents, RdbFile};
use crate::engine::rdb_transfers::Content;
use crate::engine::replication::{Feeder, LinkState, Replica, Request, Role, epoch_id};
use crate::engine::role_change;

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
    /// It reads the stream of this kind of server.
    reads_stream: bool,
    /// The port on which it serves clients; 0: unknown.
    port: u16,
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
    summary: "Like SYNC; the file follows a line with the position in the log. A replica is sent the replication stream.",
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
    let offset = integer(args.get(2))?;
    let options = cx.session.details.rare_if_set().map(|rare| rare.replica).unwrap_or_default();
    if options.reads_stream {
        let id = EpochId::try_from(args.get(1)).ok();
        return stream(cx, id.zip(u64::try_from(offset).ok()), options.port);
    }
    transfer(cx)?;
    let position = cx.shared.log.durable().0;
    let line = format!("FULLRESYNC {} {position}", cx.shared.identity.run_id);
    cx.reply.simple(&line);
    Ok(())
}

/// Makes the client a replica. The thread that makes its stream also sends the reply.
fn stream(cx: &mut CommandContext<'_>, request: Request, port: u16) -> Done {
    let shared = cx.shared;
    if shared.replication.role() == Role::Copying {
        return Err(Fail::text("NOMASTERLINK Can't SYNC while the data is incomplete"));
    }
    let id = epoch_id(|| cx.reactor.random());
    role_change::ensure_history(shared, &mut cx.locked, id)?;
    let feeder = Feeder::new(cx.session.id, request);
    if !shared.rdb_transfers.open(cx.session.id, cx.reactor.index, Content::Stream(feeder)) {
        return Err(Fail::text("ERR too many clients receive RDB files or the stream"));
    }
    let replica = Replica {
        address: cx.session.details.remote,
        port,
        is_online: false,
        durable: request.map_or(0, |(_, position)| position),
        heard: cx.now.mono,
    };
    shared.replication.attach(cx.session.id, replica);
    cx.session.details.rare().progress = Progress { sent_bytes: u64::MAX, at: cx.now.mono };
    cx.session.source_of_requests = Requests::Replica;
    Ok(())
}

/// Whether a replica that receives the stream may send this command.
pub(super) fn is_of_replicas(command: &Command) -> bool {
    std::ptr::eq(command.name, REPLCONF.name)
}

/// Starts the file. The thread that makes it also sends the header in front of it.
fn transfer(cx: &mut CommandContext<'_>) -> Done {
    let options = cx.session.details.rare_if_set().map(|rare| rare.replica).unwrap_or_default();
    if !options.rdb_only {
        return Err(Fail::text(
            "ERR the changes after an RDB file are sent only to servers of this kind; a client that \
             sends REPLCONF rdb-only 1 before receives the file",
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
    if !cx.shared.rdb_transfers.open(cx.session.id, cx.reactor.index, Content::File(file)) {
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
    summary: "Sets what SYNC and PSYNC send: rdb-only, rdb-filter-only, capa; a replica acknowledges \
              the stream with ack.",
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
            replica.reads_stream |= is_option(value, CAPABILITY);
        } else if is_option(option, "listening-port") {
            replica.port = u16::try_from(integer(value)?).map_err(|_| Fail::NotInteger)?;
        } else if is_option(option, "ack") {
            // As in Redis, without a reply.
            if let Ok(durable) = u64::try_from(integer(value)?) {
                cx.shared.replication.acknowledged(cx.session.id, durable, cx.now.mono);
            }
            return Ok(());
        } else if is_option(option, "getack") {
            return Ok(()); // a master sends it to its replicas, in the stream of Redis
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

pub(crate) const ROLE: Command = Command {
    name: "role",
    summary: "Returns the role of the server: a master with its replicas, or a replica with its master.",
    since: "2.8.12",
    group: Group::Server,
    arity: 1,
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST),
    more_categories: &["@admin", "@dangerous"],
    run: role,
    ..Command::EMPTY
};

// Source: Redis 7.2 `replication.c`, `roleCommand`
#[expect(clippy::unnecessary_wraps, reason = "every command returns Done")]
fn role(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let replication = &cx.shared.replication;
    let position = i64::try_from(replication.position(&cx.shared.log)).unwrap_or(i64::MAX);
    let link = replication.link().clone();
    if let Some(MasterAddress { host, port }) = link.source {
        cx.reply.array(5);
        cx.reply.bulk(b"slave");
        cx.reply.bulk(host.as_bytes());
        cx.reply.integer(port.into());
        cx.reply.bulk(match link.state {
            LinkState::Connecting => b"connect",
            LinkState::Copying => b"sync",
            LinkState::Connected => b"connected",
        });
        cx.reply.integer(position);
        return Ok(());
    }
    let mut replicas = replication.replicas();
    replicas.retain(|replica| replica.is_online);
    cx.reply.array(3);
    cx.reply.bulk(b"master");
    cx.reply.integer(position);
    cx.reply.array(replicas.len());
    for replica in replicas {
        cx.reply.array(3);
        cx.reply.bulk(replica.host().as_bytes());
        cx.reply.bulk(replica.port.to_string().as_bytes());
        cx.reply.bulk(replica.durable.to_string().as_bytes());
    }
    Ok(())
}

pub(crate) const REPLICAOF: Command = Command {
    name: "replicaof",
    syntax: "<host port | NO ONE>",
    summary: "Makes the server a replica of another one, whose data replaces its own, or a master.",
    since: "5.0.0",
    group: Group::Server,
    arity: 3,
    flags: Flags::ADMIN
        .and(Flags::NOSCRIPT)
        .and(Flags::STALE)
        .and(Flags::NO_ASYNC_LOADING)
        .and(Flags::LOADING),
    run: replicaof,
    ..Command::EMPTY
};

pub(crate) const SLAVEOF: Command = Command { name: "slaveof", since: "1.0.0", ..REPLICAOF };

// Source: Redis 7.2 `replication.c`, `replicaofCommand`
fn replicaof(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if is_option(args.get(1), "NO") && is_option(args.get(2), "ONE") {
        if cx.locked.stripes().next().is_some() {
            return Err(Fail::text("ERR a transaction with REPLICAOF NO ONE must not have keys"));
        }
        let id = epoch_id(|| cx.reactor.random());
        let params = cx.locked.params();
        let promoted = role_change::promote(cx.shared, cx.reactor, params, id);
        if let Some(gate) = promoted.map_err(|error| Fail::owned(format!("ERR {error}")))? {
            cx.gate = cx.gate.max(gate);
            set_option(cx, None);
            tracing::info!(client = cx.session.id.0, "the server is a master, by REPLICAOF NO ONE");
        }
        cx.reply.ok();
        return Ok(());
    }
    let port = wire::resp::parse_i64_strict(args.get(2)).and_then(|port| u16::try_from(port).ok());
    let port = port.filter(|port| *port > 0).ok_or(Fail::text("ERR Invalid master port"))?;
    let host = std::str::from_utf8(args.get(1)).ok().filter(|host| is_host(host));
    let host = host.ok_or(Fail::text("ERR Invalid master host"))?;
    let master = MasterAddress { host: host.to_owned(), port };
    if cx.shared.replication.set_source(master.clone()) {
        tracing::info!(client = cx.session.id.0, %master, "the server is a replica, by REPLICAOF");
        set_option(cx, Some(master));
        cx.reply.ok();
    } else {
        cx.reply.simple("OK Already connected to specified master");
    }
    Ok(())
}

/// Whether a text can be the name or address of a host.
fn is_host(text: &str) -> bool {
    // Source: RFC 1035 2.3.4 (names of at most 255 bytes)
    const BYTES_MAX: usize = 255;
    let is_part = |letter: char| !letter.is_whitespace() && !letter.is_control();
    (1..=BYTES_MAX).contains(&text.len()) && text.chars().all(is_part)
}

/// Sets the option `replicaof`, so that CONFIG REWRITE stores it.
fn set_option(cx: &CommandContext<'_>, master: Option<MasterAddress>) {
    let mut config = cx.shared.config.lock();
    config.set_master(ReplicaOf(master));
    cx.shared.settings.store(Arc::new(config.settings().clone()));
}
