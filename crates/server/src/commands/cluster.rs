//! CLUSTER: the reactors as nodes of a cluster (`cluster-view`), for clients that choose a
//! connection by the slot of a key. The nodes are one server: each executes every command.

mod scan;
mod slots;
mod statistics;
mod view;

use std::fmt::Write as _;

use wire::resp::Args;

pub(super) use self::slots::{SLOTS, slot_of};
use self::view::{Node, check_enabled, nodes, own_id};
use super::command::{Command, Done, Flags, Group};
use super::context::{CommandContext, SCANNED_BYTES, integer, reply_has_room};
use super::fail::Fail;
use super::help;

pub(crate) use scan::CLUSTERSCAN;

const SHOWS: Flags = Flags::STALE;
const ADMIN: Flags = Flags::ADMIN.and(Flags::STALE);
const CHANGES: Flags = ADMIN.and(Flags::NO_ASYNC_LOADING);

const UNSTABLE: &[&str] = &["nondeterministic_output"];

pub(crate) const CLUSTER: Command = Command {
    name: "cluster",
    summary: "A container for commands about the reactors as nodes of a cluster.",
    since: "3.0.0",
    group: Group::Cluster,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[
        &ADDSLOTS,
        &ADDSLOTSRANGE,
        &BUMPEPOCH,
        &CANCELSLOTMIGRATIONS,
        &COUNT_FAILURE_REPORTS,
        &COUNTKEYSINSLOT,
        &DELSLOTS,
        &DELSLOTSRANGE,
        &FAILOVER,
        &statistics::FLUSHSLOT,
        &FLUSHSLOTS,
        &FORGET,
        &GETKEYSINSLOT,
        &GETSLOTMIGRATIONS,
        &HELP,
        &INFO,
        &KEYSLOT,
        &LINKS,
        &MEET,
        &MIGRATESLOTS,
        &MYID,
        &MYSHARDID,
        &NODES,
        &REPLICAS,
        &REPLICATE,
        &RESET,
        &SAVECONFIG,
        &SET_CONFIG_EPOCH,
        &SETSLOT,
        &SHARDS,
        &SLAVES,
        &statistics::SLOT_STATS,
        &SLOTS_COMMAND,
        &SYNCSLOTS,
    ],
    ..Command::EMPTY
};

const SLOTS_COMMAND: Command = Command {
    name: "slots",
    summary: "Lists the ranges of slots, each with the node that serves it.",
    complexity: "O(N) in the number of nodes",
    tips: UNSTABLE,
    run: slots,
    ..MYID
};

// Source: Redis 7.2 `cluster.c`, `clusterReplyMultiBulkSlots`
fn slots(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let nodes = nodes(cx)?;
    cx.reply.array(nodes.len());
    for node in &nodes {
        cx.reply.array(3);
        write_slots(cx, node);
        cx.reply.array(4);
        cx.reply.bulk(node.host.as_bytes());
        cx.reply.integer(i64::from(node.port));
        cx.reply.bulk(node.id.as_bytes());
        cx.reply.map(0);
    }
    Ok(())
}

fn write_slots(cx: &mut CommandContext<'_>, node: &Node) {
    cx.reply.integer(number(*node.slots.start()));
    cx.reply.integer(number(*node.slots.end()));
}

pub(super) fn number(slot: usize) -> i64 {
    i64::try_from(slot).expect("slots are small")
}

const SHARDS: Command = Command {
    name: "shards",
    summary: "Describes the nodes with their slots.",
    since: "7.0.0",
    complexity: "O(N) in the number of nodes",
    tips: UNSTABLE,
    run: shards,
    ..MYID
};

// Source: Redis 7.2 `cluster.c`, `addShardReplyForClusterShards`
fn shards(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let nodes = nodes(cx)?;
    let position = cx.shared.log.durable().0;
    cx.reply.array(nodes.len());
    for node in &nodes {
        cx.reply.map(2);
        cx.reply.bulk(b"slots");
        cx.reply.array(2);
        write_slots(cx, node);
        cx.reply.bulk(b"nodes");
        cx.reply.array(1);
        cx.reply.map(7);
        write_field(cx, "id", &node.id);
        cx.reply.bulk(if node.is_tls { b"tls-port" } else { b"port" });
        cx.reply.integer(i64::from(node.port));
        write_field(cx, "ip", &node.host);
        write_field(cx, "endpoint", &node.host);
        write_field(cx, "role", "master");
        cx.reply.bulk(b"replication-offset");
        cx.reply.count(position);
        write_field(cx, "health", "online");
    }
    Ok(())
}

fn write_field(cx: &mut CommandContext<'_>, name: &str, value: &str) {
    cx.reply.bulk(name.as_bytes());
    cx.reply.bulk(value.as_bytes());
}

const NODES: Command = Command {
    name: "nodes",
    summary: "Describes the nodes, one line each.",
    complexity: "O(N) in the number of nodes",
    tips: UNSTABLE,
    run: list,
    ..MYID
};

/// Nodes have no bus, so its port is 0, and every other node has just been heard from.
// Source: Redis 7.2 `cluster.c`, `clusterGenNodeDescription`
fn list(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    let nodes = nodes(cx)?;
    let mut text = String::new();
    for (reactor, Node { id, host, port, slots, .. }) in nodes.iter().enumerate() {
        let is_own = reactor == cx.reactor.index;
        let flags = if is_own { "myself,master" } else { "master" };
        let heard_ms = if is_own { 0 } else { cx.unix().0 };
        let (epoch, first, last) = (reactor + 1, slots.start(), slots.end());
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{id} {host}:{port}@0 {flags} - 0 {heard_ms} {epoch} connected ");
        let _ = if first == last {
            writeln!(text, "{first}")
        } else {
            writeln!(text, "{first}-{last}")
        };
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

const MYID: Command = Command {
    name: "myid",
    summary: "Returns the identifier of the connection's node, which restarts do not change.",
    since: "3.0.0",
    group: Group::Cluster,
    arity: 2,
    flags: SHOWS,
    run: |cx, _| write_own_id(cx, "node"),
    ..Command::EMPTY
};

const MYSHARDID: Command = Command {
    name: "myshardid",
    summary: "Returns the identifier of the connection's shard, which restarts do not change.",
    since: "7.2.0",
    tips: UNSTABLE,
    run: |cx, _| write_own_id(cx, "shard"),
    ..MYID
};

fn write_own_id(cx: &mut CommandContext<'_>, kind: &str) -> Done {
    check_enabled(cx)?;
    let id = own_id(cx, kind);
    cx.reply.bulk(id.as_bytes());
    Ok(())
}

const INFO: Command = Command {
    name: "info",
    summary: "Returns the state of the cluster, which is always ok.",
    tips: UNSTABLE,
    run: info,
    ..MYID
};

// Source: Redis 7.2 `cluster.c`, `clusterCommand`
fn info(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    check_enabled(cx)?;
    let nodes = cx.shared.reactors.regular;
    let fields = [
        ("cluster_slots_assigned", SLOTS),
        ("cluster_slots_ok", SLOTS),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", 0),
        ("cluster_known_nodes", nodes),
        ("cluster_size", nodes),
        ("cluster_current_epoch", nodes),
        ("cluster_my_epoch", cx.reactor.index + 1),
        ("cluster_stats_messages_sent", 0),
        ("cluster_stats_messages_received", 0),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ];
    let lines = fields.map(|(name, value)| format!("{name}:{value}\r\n"));
    let text = format!("cluster_state:ok\r\n{}", lines.concat());
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

const KEYSLOT: Command = Command {
    name: "keyslot",
    syntax: "key",
    summary: "Returns the slot of a key.",
    complexity: "O(N) in the length of the key",
    arity: 3,
    run: keyslot,
    ..MYID
};

fn keyslot(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_enabled(cx)?;
    let key = args.get(2);
    cx.spend(key.len() / SCANNED_BYTES)?;
    cx.reply.integer(number(slot_of(key)));
    Ok(())
}

const COUNTKEYSINSLOT: Command = Command {
    name: "countkeysinslot",
    syntax: "slot",
    summary: "Returns the number of keys of the database in a slot.",
    complexity: "O(N) in the number of keys of the database",
    arity: 3,
    flags: SHOWS.and(Flags::ALL_KEYS),
    run: countkeysinslot,
    ..MYID
};

fn countkeysinslot(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_enabled(cx)?;
    let slot = known_slot(args.get(2))?.ok_or(Fail::text("ERR Invalid slot"))?;
    let mut count = 0;
    visit_slot(cx, slot, |_| count += 1)?;
    cx.reply.integer(count);
    Ok(())
}

/// `None`: not a slot.
fn known_slot(text: &[u8]) -> Result<Option<usize>, Fail> {
    Ok(usize::try_from(integer(text)?).ok().filter(|slot| *slot < SLOTS))
}

// Source: Redis 7.2 `cluster.c`, `getSlotOrReply`
pub(super) fn parse_slot(text: &[u8]) -> Result<usize, Fail> {
    let slot = wire::resp::parse_i64_strict(text).and_then(|slot| usize::try_from(slot).ok());
    let slot = slot.filter(|slot| *slot < SLOTS);
    slot.ok_or(Fail::text("ERR Invalid or out of range slot"))
}

/// Keys are not sorted by slot, so this visits all keys of the database.
fn visit_slot(cx: &CommandContext<'_>, slot: usize, mut visit: impl FnMut(&[u8])) -> Done {
    visit_keys(cx, |key| {
        if slot_of(key) == slot {
            visit(key);
        }
    })
}

/// Visits all keys of the database to compute their slots.
fn visit_keys(cx: &CommandContext<'_>, mut visit: impl FnMut(&[u8])) -> Done {
    cx.spend(cx.locked.len(cx.db))?;
    let mut scanned = Ok(());
    cx.locked.for_each_key(cx.db, |key| {
        if scanned.is_ok() {
            scanned = cx.spend(key.len() / SCANNED_BYTES);
        }
        if scanned.is_ok() {
            visit(key);
        }
    });
    scanned
}

const GETKEYSINSLOT: Command = Command {
    name: "getkeysinslot",
    syntax: "slot count",
    summary: "Returns some keys of the database in a slot.",
    complexity: "O(N) in the number of keys of the database",
    arity: 4,
    flags: SHOWS.and(Flags::ALL_KEYS),
    tips: UNSTABLE,
    run: getkeysinslot,
    ..MYID
};

fn getkeysinslot(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    check_enabled(cx)?;
    let slot = known_slot(args.get(2))?;
    let count_max = usize::try_from(integer(args.get(3))?).ok();
    let invalid = Fail::text("ERR Invalid slot or number of keys");
    let (Some(slot), Some(count_max)) = (slot, count_max) else { return Err(invalid) };
    let (mut found, mut bytes) = (Vec::new(), 0);
    visit_slot(cx, slot, |key| {
        if found.len() < count_max && cx.reply.has_room_for(bytes) {
            bytes += key.len();
            found.push(key.to_vec());
        }
    })?;
    cx.reply.array(found.len());
    for key in &found {
        if reply_has_room(&cx.reply) {
            cx.reply.bulk(key);
        }
    }
    cx.check_reply()
}

const LINKS: Command = Command {
    name: "links",
    summary: "Lists the links between nodes: none.",
    since: "7.0.0",
    tips: UNSTABLE,
    run: |cx, _| {
        check_enabled(cx)?;
        cx.reply.array(0);
        Ok(())
    },
    ..MYID
};

const REPLICAS: Command = Command {
    name: "replicas",
    syntax: "node-id",
    summary: "Lists the replicas of a node: none.",
    since: "5.0.0",
    arity: 3,
    flags: ADMIN,
    tips: UNSTABLE,
    run: |cx, args| {
        check_known(cx, args.get(2))?;
        cx.reply.array(0);
        Ok(())
    },
    ..MYID
};

const SLAVES: Command = Command { name: "slaves", since: "3.0.0", ..REPLICAS };

const COUNT_FAILURE_REPORTS: Command = Command {
    name: "count-failure-reports",
    syntax: "node-id",
    summary: "Returns the number of failure reports about a node: 0.",
    arity: 3,
    flags: ADMIN,
    tips: UNSTABLE,
    run: |cx, args| {
        check_known(cx, args.get(2))?;
        cx.reply.integer(0);
        Ok(())
    },
    ..MYID
};

fn check_known(cx: &CommandContext<'_>, id: &[u8]) -> Done {
    if nodes(cx)?.iter().any(|node| node.id.as_bytes() == id) {
        return Ok(());
    }
    Err(Fail::quoting("ERR Unknown node ", id, ""))
}

const HELP: Command = Command {
    name: "help",
    summary: "Lists the subcommands of CLUSTER.",
    since: "5.0.0",
    flags: Flags::LOADING.and(Flags::STALE),
    run: |cx, _| {
        check_enabled(cx)?;
        help::reply(cx, &CLUSTER)
    },
    ..MYID
};

const FLUSHSLOTS: Command = Command {
    name: "flushslots",
    summary: "Is refused: the option `reactors` defines the nodes, and they share all data.",
    flags: CHANGES,
    run: refuse,
    ..MYID
};

fn refuse(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    check_enabled(cx)?;
    Err(Fail::owned(format!(
        "ERR CLUSTER {} is not possible: the nodes are the reactors of one server (cluster-view), \
         and all of them serve all slots",
        cx.command.name.to_ascii_uppercase()
    )))
}

const ADDSLOTS: Command =
    Command { name: "addslots", syntax: "slot [slot ...]", arity: -3, ..FLUSHSLOTS };
const ADDSLOTSRANGE: Command = Command {
    name: "addslotsrange",
    syntax: "start-slot end-slot [start-slot end-slot ...]",
    since: "7.0.0",
    arity: -4,
    ..FLUSHSLOTS
};
const CANCELSLOTMIGRATIONS: Command = Command {
    name: "cancelslotmigrations",
    summary: "Is refused: there are no migrations of slots.",
    since: "9.0.0",
    run: |cx, _| {
        check_enabled(cx)?;
        Err(Fail::text("ERR No migrations ongoing"))
    },
    ..FLUSHSLOTS
};
const GETSLOTMIGRATIONS: Command = Command {
    name: "getslotmigrations",
    summary: "Lists the migrations of slots: none.",
    since: "9.0.0",
    run: |cx, _| {
        check_enabled(cx)?;
        cx.reply.array(0);
        Ok(())
    },
    ..FLUSHSLOTS
};
const MIGRATESLOTS: Command = Command {
    name: "migrateslots",
    syntax: "SLOTSRANGE start-slot end-slot [start-slot end-slot ...] NODE node-id",
    since: "9.0.0",
    arity: -4,
    ..FLUSHSLOTS
};
const SYNCSLOTS: Command = Command {
    name: "syncslots",
    syntax: "[arg [arg ...]]",
    since: "9.0.0",
    arity: -3,
    ..FLUSHSLOTS
};
const BUMPEPOCH: Command = Command { name: "bumpepoch", tips: UNSTABLE, ..FLUSHSLOTS };
const DELSLOTS: Command = Command { name: "delslots", ..ADDSLOTS };
const DELSLOTSRANGE: Command = Command { name: "delslotsrange", ..ADDSLOTSRANGE };
const FAILOVER: Command =
    Command { name: "failover", syntax: "[FORCE | TAKEOVER]", arity: -2, ..FLUSHSLOTS };
const FORGET: Command = Command { name: "forget", syntax: "node-id", arity: 3, ..FLUSHSLOTS };
const MEET: Command =
    Command { name: "meet", syntax: "ip port [cluster-bus-port]", arity: -4, ..FLUSHSLOTS };
const REPLICATE: Command = Command { name: "replicate", syntax: "node-id", arity: 3, ..FLUSHSLOTS };
const RESET: Command = Command {
    name: "reset",
    syntax: "[HARD | SOFT]",
    arity: -2,
    flags: ADMIN.and(Flags::NOSCRIPT),
    ..FLUSHSLOTS
};
const SAVECONFIG: Command = Command { name: "saveconfig", ..FLUSHSLOTS };
const SET_CONFIG_EPOCH: Command =
    Command { name: "set-config-epoch", syntax: "config-epoch", arity: 3, ..FLUSHSLOTS };
const SETSLOT: Command = Command {
    name: "setslot",
    syntax: "slot <IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE>",
    arity: -4,
    ..FLUSHSLOTS
};

const FAST: Flags = Flags::LOADING.and(Flags::STALE).and(Flags::FAST);

pub(crate) const ASKING: Command = Command {
    name: "asking",
    summary: "Does nothing: slots do not move between nodes.",
    arity: 1,
    flags: Flags::FAST,
    ..READONLY
};

pub(crate) const READONLY: Command = Command {
    name: "readonly",
    summary: "Does nothing: every server answers reads.",
    arity: 1,
    flags: FAST,
    more_categories: &["@connection"],
    run: |cx, _| {
        check_enabled(cx)?;
        cx.reply.ok();
        Ok(())
    },
    ..MYID
};

pub(crate) const READWRITE: Command = Command { name: "readwrite", ..READONLY };
