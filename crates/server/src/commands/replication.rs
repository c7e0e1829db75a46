//! SYNC, PSYNC and REPLCONF: a client receives an RDB file, as `redis-cli --rdb` requests it, or,
//! if it is a server of this kind, the replication stream. REPLICAOF makes this server a replica.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base::time::MonoNs;
use reactor::ConnId;
use uuid::Uuid;
use wire::replication::{
    ARCHIVE_CAPABILITY, CAPABILITY, CHAIN_CAPABILITY, CqlEndpoint, EpochId, Format,
    MEMBERS_CAPABILITY, TIMES_CAPABILITY,
};
use wire::resp::{Args, ReplyWriter, parse_i64_strict};

use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, integer, is_option};
use super::fail::Fail;
use super::session::{Progress, Requests, Wait};
use crate::config::MasterAddress;
use crate::engine::gate::Gate;
use crate::engine::rdb_file::{FileContents, RdbFile};
use crate::engine::refusal::SYNC_INCOMPLETE;
use crate::engine::replication::{
    Failover, FailoverStage, Feeder, LinkState, ProgramVersion, REPLACED, Reader, Replaced,
    Replica, Request, Role, RunId, epoch_id, is_usable,
};
use crate::engine::role_change::{self, Promoter};
use crate::engine::transfers::Content;

/// Bytes of the mark that follows a file. Source: Redis 7.2 `replication.c`, `RDB_EOF_MARK_SIZE`.
const MARK_BYTES: usize = 40;

const SYNCS: Flags = Flags::ADMIN
    .and(Flags::NOSCRIPT)
    .and(Flags::NO_ASYNC_LOADING)
    .and(Flags::NO_MULTI)
    .and(Flags::NO_HTTP)
    .and(Flags::WAITS);

/// What a client has announced by REPLCONF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is announced on its own")]
pub(crate) struct ReplicaOptions {
    /// It requests a file without the changes that follow.
    rdb_only: bool,
    /// It finds the end of a file by the mark that follows it.
    knows_marks: bool,
    contents: FileContents,
    /// It reads the stream of this kind of server.
    reads_stream: bool,
    /// It reads frames of version 2.
    reads_chain: bool,
    /// It only stores the stream: it is not a replica.
    is_archive: bool,
    /// It reads when positions became durable.
    reads_times: bool,
    /// It reads the list of servers for drivers of CQL.
    reads_members: bool,
    /// Its identity and endpoint for clients of CQL.
    host: Option<[u8; 16]>,
    cql: CqlEndpoint,
    /// Its number in a group of masters, if it requests the states of keys; else 0.
    peer: u16,
    /// It knows the number of this server.
    knows_server: bool,
    /// The host at which clients reach it, instead of the address of the connection.
    announced_host: Option<Box<str>>,
    /// The port on which it serves clients; 0: unknown.
    port: u16,
    /// Names the process, in all its connections.
    run_id: Option<RunId>,
    program: ProgramVersion,
}

impl ReplicaOptions {
    /// `None`: it does not serve clients of CQL.
    fn cql(&self) -> Option<([u8; 16], CqlEndpoint)> {
        let is_served = self.cql.port != 0 || self.cql.tls_port != 0;
        self.host.filter(|_| is_served).map(|host| (host, self.cql))
    }

    fn reader(&self) -> Reader {
        match self.peer {
            0 if self.reads_times => Reader::Archive,
            0 => Reader::Replica,
            peer => Reader::Peer(peer),
        }
    }

    fn format(&self, is_local: bool) -> Format {
        match (self.reads_chain, is_local) {
            (false, _) => Format::Plain,
            // Memory is faster than compression.
            (true, true) => Format::Chained,
            (true, false) => Format::Compressed,
        }
    }
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
    check_pushes(cx)?;
    transfer(cx)
}

/// Refuses connections that receive other data than replies: it would be in the middle of the file
/// or the stream.
fn check_pushes(cx: &CommandContext<'_>) -> Done {
    let session = &cx.session;
    let tracks = session.details.tracking().is_some();
    if session.monitor || tracks || session.subscriptions.is_some() {
        return Err(Fail::text("ERR not after MONITOR, SUBSCRIBE or CLIENT TRACKING"));
    }
    Ok(())
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
    check_pushes(cx)?;
    let offset = integer(args.get(2))?;
    let options = announced(cx);
    if options.reads_stream {
        return psync_stream(cx, args, offset, &options);
    }
    transfer(cx)?;
    let position = cx.shared.log.durable().0;
    let line = format!("FULLRESYNC {} {position}", cx.shared.identity.run_id);
    cx.reply.simple(&line);
    Ok(())
}

fn announced(cx: &mut CommandContext<'_>) -> ReplicaOptions {
    cx.session.details.rare_if_set().map(|rare| rare.replica.clone()).unwrap_or_default()
}

fn psync_stream(
    cx: &mut CommandContext<'_>,
    args: Args<'_>,
    offset: i64,
    options: &ReplicaOptions,
) -> Done {
    let id = EpochId::try_from(args.get(1)).ok();
    let is_hand_over = match args.try_get(3) {
        None => false,
        Some(word) if is_option(word, "FAILOVER") && args.len() == 4 => true,
        Some(_) => return Err(Fail::Syntax),
    };
    // Two servers may have one port, at different addresses of a machine.
    let own = cx.shared.identity.run_id.as_bytes();
    if options.run_id.is_some_and(|run_id| run_id[..] == *own) {
        return Err(Fail::text("ERR a server cannot be its own replica"));
    }
    // Promoted, it would write without the number, and no peer would read that.
    let is_replica = !options.is_archive && options.peer == 0;
    if is_replica && cx.shared.hub.server != 0 && !options.knows_server {
        return Err(another_server_id(cx.shared.hub.server));
    }
    if !is_hand_over {
        return stream(cx, id.zip(u64::try_from(offset).ok()), options, false);
    }
    take_over(cx, id)?;
    // An error would be taken for a refusal of the promotion.
    let begun = stream(cx, id.zip(u64::try_from(offset).ok()), options, true);
    cx.session.closing |= begun.is_err();
    Ok(())
}

/// Promotes this server, as its master has requested: this server has all records of it.
fn take_over(cx: &mut CommandContext<'_>, id: Option<EpochId>) -> Done {
    let replication = &cx.shared.replication;
    let is_known = {
        let history = replication.history();
        // Promoted by an earlier request, whose reply was lost, and perhaps restarted since: as a
        // replica, if its configuration is that of before.
        let is_promoted = replication.role() == Role::Master || history.own().is_some();
        let mut known =
            history.epochs().iter().rev().take(if is_promoted { usize::MAX } else { 1 });
        known.any(|epoch| Some(epoch.id) == id)
    };
    if !is_known {
        return Err(Fail::text("ERR PSYNC FAILOVER replid must match my replid."));
    }
    if promote(cx, Promoter::Master)? {
        tracing::info!(
            client = cx.session.id.0,
            "the server is a master, by FAILOVER of its master"
        );
    }
    Ok(())
}

/// Makes this server a master. False if it is one already.
fn promote(cx: &mut CommandContext<'_>, promoter: Promoter) -> Result<bool, Fail> {
    let id = epoch_id(|| cx.reactor.random());
    let params = cx.locked.params();
    let promoted = role_change::promote(cx.shared, cx.reactor, params, (id, promoter));
    let promoted = promoted.map_err(|error| Fail::owned(format!("ERR {error}")))?;
    cx.gate = cx.gate.max(promoted.unwrap_or(Gate::OPEN));
    Ok(promoted.is_some())
}

/// Makes the client a reader of the stream. The thread that makes its stream also sends the reply.
fn stream(
    cx: &mut CommandContext<'_>,
    request: Request,
    options: &ReplicaOptions,
    is_hand_over: bool,
) -> Done {
    let shared = cx.shared;
    if shared.replication.role() == Role::Copying {
        return Err(Fail::text(SYNC_INCOMPLETE));
    }
    let id = epoch_id(|| cx.reactor.random());
    role_change::ensure_epoch(shared, &mut cx.locked, id)?;
    // Before the thread that makes the stream notes that the replica is online.
    if !options.is_archive && options.peer == 0 {
        add_replica(cx, options);
    }
    let is_local = cx.session.details.remote.is_local();
    let (reader, format) = (options.reader(), options.format(is_local));
    let (client, program) = (cx.session.id.0, options.program);
    tracing::info!(client, %program, ?format, "a reader of the stream has connected");
    let reads_members = options.reads_members;
    let feeder = Feeder::new(cx.session.id, request, reader, format, reads_members, is_hand_over);
    if !shared.transfers.open(cx.session.id, cx.reactor.index, Content::Stream(feeder)) {
        change_replicas(cx, |all| {
            all.remove(&cx.session.id);
        });
        return Err(Fail::text("ERR too many clients receive RDB files or the stream"));
    }
    note_receiver(cx);
    cx.session.source_of_requests = Requests::Replica;
    Ok(())
}

fn note_receiver(cx: &mut CommandContext<'_>) {
    let command = cx.session.last_command;
    let rare = cx.session.details.rare();
    // No number of sent bytes is this one, so that the time counts from now.
    rare.progress = Progress { sent_bytes: u64::MAX, at: cx.now.mono };
    rare.received_by = Some(command);
}

fn add_replica(cx: &CommandContext<'_>, options: &ReplicaOptions) {
    let replica = Replica {
        address: cx.session.details.remote,
        announced_host: options.announced_host.clone(),
        port: options.port,
        run_id: options.run_id,
        program: options.program,
        cql: options.cql(),
        is_online: false,
        durable: 0,
        heard: cx.now.mono,
    };
    change_replicas(cx, |all| {
        // An earlier connection of the same server must not count as another one.
        all.retain(|_, other| !replica.is_same_server(other));
        all.insert(cx.session.id, replica);
    });
}

fn change_replicas(cx: &CommandContext<'_>, change: impl FnOnce(&mut BTreeMap<ConnId, Replica>)) {
    let rules = cx.reactor.settings.replica_rules();
    cx.shared.replication.change_replicas(rules, cx.now.mono, change);
}

/// Notes up to where a replica has the stream on disk, and wakes the reactors that wait for it.
fn acknowledge(cx: &mut CommandContext<'_>, durable: u64) {
    if !cx.session.is_replica() {
        return;
    }
    if durable > cx.shared.replication.end(&cx.shared.log) {
        let replica = cx.session.id.0;
        tracing::warn!(replica, durable, "a replica acknowledges more than there is");
        cx.session.closing = true;
        return;
    }
    change_replicas(cx, |all| {
        if let Some(replica) = all.get_mut(&cx.session.id) {
            replica.durable = replica.durable.max(durable);
            replica.heard = cx.now.mono;
        }
    });
    for reactor in cx.shared.replication.replicas().take_waiting() {
        cx.shared.links().wake(reactor);
    }
}

/// Whether a replica that receives the stream may send this command.
pub(super) fn is_of_replicas(command: &Command) -> bool {
    std::ptr::eq(command.name, REPLCONF.name)
}

/// Starts the file. The thread that makes it also sends the header in front of it.
fn transfer(cx: &mut CommandContext<'_>) -> Done {
    let options = announced(cx);
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
    // In this order: the number changes before the role, and that before the data.
    let data_number = cx.shared.replication.data_number();
    if cx.shared.replication.role() == Role::Copying {
        return Err(Fail::text(SYNC_INCOMPLETE));
    }
    let mark = format!("{:020x}{:020x}", cx.reactor.random(), cx.reactor.random());
    debug_assert_eq!(mark.len(), MARK_BYTES);
    let file = RdbFile::new(options.contents, data_number, mark.as_bytes());
    if !cx.shared.transfers.open(cx.session.id, cx.reactor.index, Content::File(file)) {
        return Err(Fail::text("ERR too many clients receive RDB files"));
    }
    note_receiver(cx);
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
        .and(Flags::NO_MULTI)
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
            replica.reads_chain |= is_option(value, CHAIN_CAPABILITY);
            replica.is_archive |= is_option(value, ARCHIVE_CAPABILITY);
            replica.reads_times |= is_option(value, TIMES_CAPABILITY);
            replica.reads_members |= is_option(value, MEMBERS_CAPABILITY);
        } else if is_option(option, "server-id") {
            let peer = number_of_server(value)?;
            match cx.shared.hub.server {
                0 => return Err(Fail::text("ERR this server has no server-id")),
                own if own == peer => {
                    return Err(Fail::text("ERR this server has the same server-id"));
                }
                _ => replica.peer = peer,
            }
        } else if is_option(option, "to-server-id") {
            replica.knows_server = number_of_server(value)? == cx.shared.hub.server;
            if !replica.knows_server {
                return Err(another_server_id(cx.shared.hub.server));
            }
        } else if is_option(option, "run-id") {
            replica.run_id = Some(RunId::try_from(value).map_err(|_| Fail::Syntax)?);
        } else if is_option(option, "listening-port") {
            replica.port = u16::try_from(integer(value)?).map_err(|_| Fail::NotInteger)?;
        } else if is_option(option, "cql-host-id") {
            replica.host = Some(host(value)?);
        } else if is_option(option, "cql-address") {
            replica.cql.ip = Some(ip(value)?);
        } else if is_option(option, "cql-port") {
            replica.cql.port = cql_port(value)?;
        } else if is_option(option, "cql-tls-port") {
            replica.cql.tls_port = cql_port(value)?;
        } else if is_option(option, "ack") {
            // As in Redis, without a reply.
            if let Ok(durable) = u64::try_from(integer(value)?) {
                acknowledge(cx, durable);
            }
            return Ok(());
        } else if is_option(option, REPLACED) {
            return replace(cx, value);
        } else if is_option(option, "getack") {
            return Ok(()); // a master sends it to its replicas, in the stream of Redis
        } else if is_option(option, "version") {
            // Other text is of a program of another kind, and only shown.
            replica.program = ProgramVersion::parse(value).unwrap_or_default();
        } else if is_option(option, "ip-address") {
            replica.announced_host = announced_host(value)?;
        } else {
            return Err(Fail::quoting("ERR Unrecognized REPLCONF option: ", option, ""));
        }
        at += 2;
    }
    cx.reply.ok();
    Ok(())
}

fn another_server_id(own: u16) -> Fail {
    Fail::owned(format!("ERR this server has another server-id, {own}"))
}

pub(super) fn number_of_server(word: &[u8]) -> Result<u16, Fail> {
    let number = parse_i64_strict(word).and_then(|number| u16::try_from(number).ok());
    let number = number.filter(|number| *number != 0);
    number.ok_or(Fail::text("ERR invalid server-id: a number from 1 to 65535 is required"))
}

/// `None`: the address of the connection.
fn announced_host(word: &[u8]) -> Result<Option<Box<str>>, Fail> {
    if word.is_empty() {
        return Ok(None);
    }
    let host = std::str::from_utf8(word).ok().filter(|host| is_host(host));
    let error = Fail::text("ERR invalid ip-address: an address or the name of a host is required");
    host.map(|host| Some(host.into())).ok_or(error)
}

/// The permanent identity of a replica.
fn host(word: &[u8]) -> Result<[u8; 16], Fail> {
    let host = Uuid::try_parse_ascii(word).ok().filter(|host| !host.is_nil());
    let host = host.ok_or(Fail::text("ERR invalid cql-host-id: a UUID is required"))?;
    Ok(host.into_bytes())
}

fn ip(word: &[u8]) -> Result<IpAddr, Fail> {
    let ip = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    let ip = ip.map(|ip: IpAddr| ip.to_canonical()).filter(|ip| is_usable(*ip));
    ip.ok_or(Fail::text("ERR invalid cql-address: the IP address of a host is required"))
}

fn cql_port(word: &[u8]) -> Result<u16, Fail> {
    let port = parse_i64_strict(word).and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port > 0).ok_or(Fail::text("ERR invalid port of CQL"))
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
    let position = i64::try_from(replication.shown_position(&cx.shared.log)).unwrap_or(i64::MAX);
    let link = replication.link().clone();
    match link.source {
        Some(master) => role_of_replica(&mut cx.reply, &master, link.state, position),
        None => role_of_master(&mut cx.reply, &replication.replicas().list(), position),
    }
    Ok(())
}

fn role_of_replica(
    reply: &mut ReplyWriter<'_>,
    master: &MasterAddress,
    state: LinkState,
    position: i64,
) {
    reply.array(5);
    reply.bulk(b"slave");
    reply.bulk(master.host.as_bytes());
    reply.integer(master.port.into());
    reply.bulk(match state {
        LinkState::Connecting => b"connect",
        LinkState::Copying => b"sync",
        LinkState::Connected => b"connected",
    });
    reply.integer(position);
}

fn role_of_master(reply: &mut ReplyWriter<'_>, replicas: &[Replica], position: i64) {
    let online = replicas.iter().filter(|replica| replica.is_online);
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(position);
    reply.array(online.clone().count());
    for replica in online {
        reply.array(3);
        reply.bulk(replica.host().as_bytes());
        reply.bulk(replica.port.to_string().as_bytes());
        reply.bulk(replica.durable.to_string().as_bytes());
    }
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
    let stage = cx.shared.replication.failover().as_ref().map(|failover| failover.stage);
    match stage {
        // In the last case, the sender knows the state of the replica.
        None | Some(FailoverStage::Uncertain) => {}
        Some(_) => return Err(Fail::text("ERR REPLICAOF not allowed while failing over.")),
    }
    if is_option(args.get(1), "NO") && is_option(args.get(2), "ONE") {
        return replicaof_no_one(cx);
    }
    let master = address(args.get(1), args.get(2))?;
    if role_change::set_source(cx.shared, master.clone()) {
        cx.shared.replication.end_failover(&cx.shared.pause);
        tracing::info!(client = cx.session.id.0, %master, "the server is a replica, by REPLICAOF");
        cx.reply.ok();
    } else {
        cx.reply.simple("OK Already connected to specified master");
    }
    Ok(())
}

fn replicaof_no_one(cx: &mut CommandContext<'_>) -> Done {
    if cx.locked.stripes().next().is_some() {
        return Err(Fail::text("ERR a transaction with REPLICAOF NO ONE must not have keys"));
    }
    let replication = &cx.shared.replication;
    if replication.begin_promotion(cx.now.mono, &cx.shared.pause) {
        role_change::forget_source_option(cx.shared);
        if !cx.in_exec && !cx.session.is_lent() {
            cx.session.wait = Some(Wait::Promotion);
            return Ok(());
        }
    } else if promote(cx, Promoter::Operator)? {
        tracing::info!(client = cx.session.id.0, "the server is a master, by REPLICAOF NO ONE");
        cx.shared.replication.end_failover(&cx.shared.pause);
    } else {
        reinstate(cx);
    }
    cx.reply.ok();
    Ok(())
}

/// Makes a master that another server has replaced confirm writes again.
fn reinstate(cx: &CommandContext<'_>) {
    if role_change::reinstate(cx.shared) {
        tracing::warn!(
            client = cx.session.id.0,
            "this server confirms writes by its replicas again, by REPLICAOF NO ONE"
        );
    }
}

/// A replica, whose newest epoch is `id`, replaces this server as the master. The reply is the
/// position up to which writes were confirmed.
fn replace(cx: &mut CommandContext<'_>, id: &[u8]) -> Done {
    let options = announced(cx);
    let own = cx.shared.identity.run_id.as_bytes();
    if options.run_id.is_some_and(|run_id| run_id[..] == *own) {
        return Err(Fail::text("ERR a server cannot replace itself"));
    }
    let id = EpochId::try_from(id).map_err(|_| Fail::Syntax)?;
    let replaced = role_change::replace(cx.shared, &id, Replaced::ByReplica);
    let confirmed = replaced.map_err(|error| Fail::owned(format!("ERR {error}")))?;
    cx.reactor.refresh_positions(cx.shared);
    let client = cx.session.id.0;
    tracing::warn!(
        client,
        confirmed,
        "another server replaces this one as the master: writes that need replicas are refused \
         until REPLICAOF decides"
    );
    cx.reply.integer(i64::try_from(confirmed).unwrap_or(i64::MAX));
    Ok(())
}

/// The address of another server.
pub(super) fn address(host: &[u8], port: &[u8]) -> Result<MasterAddress, Fail> {
    let port = parse_i64_strict(port).and_then(|port| u16::try_from(port).ok());
    let port = port.filter(|port| *port > 0).ok_or(Fail::text("ERR Invalid master port"))?;
    let host = std::str::from_utf8(host).ok().filter(|host| is_host(host));
    let host = host.ok_or(Fail::text("ERR Invalid master host"))?;
    Ok(MasterAddress { host: host.to_owned(), port })
}

pub(crate) const FAILOVER: Command = Command {
    name: "failover",
    syntax: "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
    summary: "Makes a replica the master when it has all writes, and this server its replica.",
    since: "6.2.0",
    group: Group::Server,
    arity: -1,
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::STALE),
    run: failover,
    ..Command::EMPTY
};

const FAILING_OVER: &str = "ERR FAILOVER already in progress.";

// Source: Redis 7.2 `replication.c`, `failoverCommand`
fn failover(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let request = parse_failover(args, cx.now.mono)?;
    let replication = &cx.shared.replication;
    let Some(failover) = request else {
        replication.abort_failover().map_err(Fail::text)?;
        cx.reply.ok();
        return Ok(());
    };
    if replication.failover().is_some() {
        return Err(Fail::text(FAILING_OVER));
    }
    if replication.role() != Role::Master {
        return Err(Fail::text("ERR FAILOVER is not valid when server is a replica."));
    }
    if replication.replicas().is_fenced() {
        return Err(Fail::text(
            "ERR FAILOVER is not valid when another server has replaced this master.",
        ));
    }
    check_target(failover.target.as_ref(), &replication.replicas().list())?;
    // Before the reply: a write that follows it waits.
    if !replication.begin_failover(failover, &cx.shared.pause) {
        return Err(Fail::text(FAILING_OVER));
    }
    tracing::info!(client = cx.session.id.0, "a failover has begun");
    cx.reply.ok();
    Ok(())
}

/// Checks that a replica can take over, or the given one.
fn check_target(target: Option<&MasterAddress>, replicas: &[Replica]) -> Done {
    if replicas.is_empty() {
        return Err(Fail::text("ERR FAILOVER requires connected replicas."));
    }
    let Some(target) = target else { return Ok(()) };
    let found = replicas.iter().find(|replica| replica.place() == *target);
    let found = found.ok_or(Fail::text("ERR FAILOVER target HOST and PORT is not a replica."))?;
    if !found.is_online {
        return Err(Fail::text("ERR FAILOVER target replica is not online."));
    }
    Ok(())
}

/// `None`: ABORT.
fn parse_failover(args: Args<'_>, now: MonoNs) -> Result<Option<Failover>, Fail> {
    let (mut target, mut deadline, mut is_forced, mut is_abort) = (None, None, false, false);
    let mut at = 1;
    while let Some(word) = args.try_get(at) {
        at += 1;
        if is_option(word, "ABORT") && !is_abort {
            is_abort = true;
        } else if is_option(word, "TIMEOUT") && deadline.is_none() && at < args.len() {
            let ms = u64::try_from(integer(args.get(at))?).ok().filter(|ms| *ms > 0);
            let ms = ms.ok_or(Fail::text("ERR FAILOVER timeout must be greater than 0"))?;
            deadline = Some(MonoNs(now.0.saturating_add(ms.saturating_mul(1_000_000))));
            at += 1;
        } else if is_option(word, "TO") && target.is_none() && at + 1 < args.len() {
            let host = String::from_utf8_lossy(args.get(at)).into_owned();
            // No replica has the port 0.
            let port = u16::try_from(integer(args.get(at + 1))?).unwrap_or(0);
            target = Some(MasterAddress { host, port });
            at += 2;
        } else if is_option(word, "FORCE") && !is_forced {
            is_forced = true;
        } else {
            return Err(Fail::Syntax);
        }
    }
    if is_abort {
        return if args.len() > 2 { Err(Fail::Syntax) } else { Ok(None) };
    }
    if is_forced && (target.is_none() || deadline.is_none()) {
        return Err(Fail::text(
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
        ));
    }
    let deadline = deadline.unwrap_or(MonoNs(u64::MAX));
    Ok(Some(Failover { target, deadline, is_forced, stage: FailoverStage::Waiting }))
}

/// Whether a text can be the name or address of a host.
fn is_host(text: &str) -> bool {
    // Source: RFC 1035 2.3.4 (names of at most 255 bytes)
    const BYTES_MAX: usize = 255;
    // No host has these, and they separate the parts of a row of INFO.
    const SEPARATORS: [char; 3] = [',', '=', '"'];
    let is_part = |letter: char| {
        !letter.is_whitespace() && !letter.is_control() && !SEPARATORS.contains(&letter)
    };
    (1..=BYTES_MAX).contains(&text.len()) && text.chars().all(is_part)
}
