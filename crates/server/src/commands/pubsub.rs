//! PUBLISH, SUBSCRIBE and related commands, and PUBSUB.
//!
//! The replies to subscriptions are messages, one for each name. In RESP2 clients cannot
//! distinguish messages from other replies, so a subscribed connection may run only a few commands.
#![expect(clippy::unnecessary_wraps, reason = "every command returns Done")]

use wire::resp::{Args, Protocol};

use super::command::{ChannelAccess, Command, Done, Flags, Group, KeyAccess, KeySpec};
use super::context::CommandContext;
use super::fail::{Fail, too_many_arguments};
use super::help;
use super::registry::REGISTRY;
use super::session::Session;
use crate::engine::glob::TooLong;
use crate::engine::pubsub::{Kind, Name, Publication};
use crate::engine::refusal::LOG_FAILED;
use crate::engine::requests::RequestId;

const PUBSUB_FLAGS: Flags = Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE);
const SHARD_CHANNEL: &[KeySpec] = &[KeySpec::one(KeyAccess::Channel)];
const SHARD_CHANNELS: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyAccess::Channel)];
const SUBSCRIBE_FLAGS: Flags =
    PUBSUB_FLAGS.and(Flags::NOSCRIPT).and(Flags::SUBSCRIBER).and(Flags::NO_HTTP);
const PUBLISH_FLAGS: Flags = PUBSUB_FLAGS.and(Flags::FAST).and(Flags::MAY_REPLICATE);

pub(crate) const PUBLISH: Command = Command {
    name: "publish",
    syntax: "channel message",
    summary: "Publishes a message to a channel and returns the number of receivers.",
    since: "2.0.0",
    complexity: "O(N+M) in the subscribers of the channel and the patterns of all connections",
    group: Group::PubSub,
    arity: 3,
    flags: PUBLISH_FLAGS,
    channel_access: ChannelAccess::First,
    run: |cx, args| publish(cx, args, Kind::Channel),
    ..Command::EMPTY
};

pub(crate) const SPUBLISH: Command = Command {
    name: "spublish",
    syntax: "shardchannel message",
    summary: "Publishes a message to a shard channel and returns the number of receivers.",
    since: "7.0.0",
    complexity: "O(N) in the subscribers of the channel",
    channels: SHARD_CHANNEL,
    run: |cx, args| publish(cx, args, Kind::ShardChannel),
    ..PUBLISH
};

/// Comparison steps that take as long as copying one element.
const STEPS_PER_ELEMENT: u64 = 32;

fn publish(cx: &mut CommandContext<'_>, args: Args<'_>, kind: Kind) -> Done {
    let post = Publication { channel: args.get(1), payload: args.get(2), kind };
    if cx.reactor.is_lost(cx.shared, cx.session.last_gate) {
        // The message would report changes that are not in the log, and never will be.
        return Err(Fail::text(LOG_FAILED));
    }
    let receivers = if cx.in_exec {
        // The message may report changes of a transaction that is not in the log yet.
        cx.spend(0)?; // fails if earlier commands used up the transaction's limit
        let counted = cx.shared.pubsub.count(&post);
        cx.spend(usize::try_from(counted.steps / STEPS_PER_ELEMENT).unwrap_or(usize::MAX))?;
        if counted.receivers > 0 {
            cx.reactor.pubsub.defer(&post);
        }
        counted.receivers
    } else {
        cx.reactor.publish_message(cx.shared, &post, cx.session.last_gate)
    };
    cx.reply.count(receivers);
    Ok(())
}

pub(crate) const SUBSCRIBE: Command = Command {
    name: "subscribe",
    syntax: "channel [channel ...]",
    summary: "Subscribes to channels.",
    since: "2.0.0",
    complexity: "O(N) in the number of channels",
    group: Group::PubSub,
    arity: -2,
    flags: SUBSCRIBE_FLAGS,
    channel_access: ChannelAccess::All,
    run: |cx, args| subscribe(cx, args, Kind::Channel),
    ..Command::EMPTY
};

pub(crate) const PSUBSCRIBE: Command = Command {
    name: "psubscribe",
    syntax: "pattern [pattern ...]",
    summary: "Subscribes to the channels that match patterns.",
    complexity: "O(N) in the number of patterns",
    channel_access: ChannelAccess::Patterns,
    run: |cx, args| subscribe(cx, args, Kind::Pattern),
    ..SUBSCRIBE
};

pub(crate) const SSUBSCRIBE: Command = Command {
    name: "ssubscribe",
    syntax: "shardchannel [shardchannel ...]",
    summary: "Subscribes to shard channels.",
    since: "7.0.0",
    channels: SHARD_CHANNELS,
    run: ssubscribe,
    ..SUBSCRIBE
};

// Source: Redis 7.2 `pubsub.c`, `ssubscribeCommand`; the others are allowed in a transaction
fn ssubscribe(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    if cx.in_exec {
        return Err(Fail::text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    subscribe(cx, args, Kind::ShardChannel)
}

fn subscribe(cx: &mut CommandContext<'_>, args: Args<'_>, kind: Kind) -> Done {
    for name in args.iter().skip(1) {
        let id = cx.session.id;
        let mine = cx.session.subscriptions.get_or_insert_default();
        if let Err(refusal) = cx.reactor.subscribe(cx.shared, id, mine, kind, name) {
            // The preceding names are subscribed to, and their replies are written.
            let text = refusal.to_string();
            cx.reply.error(&text);
            cx.reactor.tally.error(None, &text);
            break;
        }
        confirm(cx, Some(name), kind);
    }
    end_if_none(cx);
    Ok(())
}

pub(crate) const UNSUBSCRIBE: Command = Command {
    name: "unsubscribe",
    syntax: "[channel [channel ...]]",
    summary: "Unsubscribes from the given channels, or from all of them.",
    since: "2.0.0",
    complexity: "O(N) in the number of channels",
    group: Group::PubSub,
    arity: -1,
    flags: SUBSCRIBE_FLAGS,
    run: |cx, args| unsubscribe(cx, args, Kind::Channel),
    ..Command::EMPTY
};

pub(crate) const PUNSUBSCRIBE: Command = Command {
    name: "punsubscribe",
    syntax: "[pattern [pattern ...]]",
    summary: "Unsubscribes from the given patterns, or from all of them.",
    complexity: "O(N) in the number of patterns",
    run: |cx, args| unsubscribe(cx, args, Kind::Pattern),
    ..UNSUBSCRIBE
};

pub(crate) const SUNSUBSCRIBE: Command = Command {
    name: "sunsubscribe",
    syntax: "[shardchannel [shardchannel ...]]",
    summary: "Unsubscribes from the given shard channels, or from all of them.",
    since: "7.0.0",
    channels: SHARD_CHANNELS,
    run: |cx, args| unsubscribe(cx, args, Kind::ShardChannel),
    ..UNSUBSCRIBE
};

// Source: Redis 7.2 `pubsub.c`, `pubsubUnsubscribeChannel` and `pubsubUnsubscribeAllChannelsInternal`
fn unsubscribe(cx: &mut CommandContext<'_>, args: Args<'_>, kind: Kind) -> Done {
    if args.len() > 1 {
        for name in args.iter().skip(1) {
            leave(cx, kind, name);
            confirm(cx, Some(name), kind);
        }
    } else {
        let names = names(cx, kind);
        if names.is_empty() {
            confirm(cx, None, kind);
        }
        for name in names {
            leave(cx, kind, &name);
            confirm(cx, Some(&name), kind);
        }
    }
    end_if_none(cx);
    Ok(())
}

/// Ends one subscription. Messages published to it before are delivered before the confirmation.
fn leave(cx: &mut CommandContext<'_>, kind: Kind, name: &[u8]) {
    let CommandContext { session, reactor, shared, reply, gate, in_exec, .. } = cx;
    let (id, protocol) = (session.id, session.protocol);
    let Some(mine) = session.subscriptions.as_deref_mut() else { return };
    let mut late = std::mem::take(&mut reactor.late_messages);
    // The replies of a transaction are one reply: messages follow it.
    let out = if *in_exec { &mut late } else { &mut *reply.out };
    reactor.unsubscribe(shared, id, mine, kind, name, |message, matched| {
        message.write(protocol, matched, out);
        *gate = (*gate).max(message.gate());
    });
    reactor.late_messages = late;
}

/// Confirms a change, with the number of subscriptions of this kind.
fn confirm(cx: &mut CommandContext<'_>, name: Option<&[u8]>, kind: Kind) {
    let count = cx.session.subscriptions.as_deref().map_or(0, |all| all.reported_count(kind));
    cx.reply.push(3);
    cx.reply.bulk(cx.command.name.as_bytes());
    match name {
        Some(name) => cx.reply.bulk(name),
        None => cx.reply.null(),
    }
    cx.reply.count(count);
}

/// Without subscriptions the connection is an ordinary one again.
fn end_if_none(cx: &mut CommandContext<'_>) {
    cx.session.subscriptions.take_if(|all| all.total() == 0);
}

/// Ends all subscriptions without confirmation; for RESET.
pub(super) fn forget_all(cx: &mut CommandContext<'_>) {
    for kind in Kind::ALL {
        for name in names(cx, kind) {
            leave(cx, kind, &name);
        }
    }
    cx.session.subscriptions = None;
}

fn names(cx: &CommandContext<'_>, kind: Kind) -> Vec<Name> {
    let mine = cx.session.subscriptions.as_deref();
    mine.map_or_else(Vec::new, |all| all.names(kind).cloned().collect())
}

/// Whether a connection has subscriptions in RESP2, where it may run only a few commands.
#[inline]
pub(super) fn only_listens(session: &Session) -> bool {
    session.subscriptions.is_some() && session.protocol == Protocol::Resp2
}

/// Rejects commands that a RESP2 connection with subscriptions may not run.
// Source: Redis 7.2 `server.c`, `processCommand`
#[cold]
pub(super) fn check_listener(command: &Command, full_name: &str) -> Done {
    if command.flags.has(Flags::SUBSCRIBER) {
        return Ok(());
    }
    Err(Fail::owned(format!(
        "ERR Can't execute '{full_name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
         RESET are allowed in this context"
    )))
}

/// Whether a reply consists of messages, which are sent even if replies are turned off.
// Source: Redis 7.2 `pubsub.c`, `addReplyPubsubSubscribed` (CLIENT_PUSHING)
#[cold]
pub(super) fn is_message(id: Option<RequestId>, answer: &[u8]) -> bool {
    let command = id.map(|id| REGISTRY.entry(id).command);
    // Scripts may call PUBLISH and PUBSUB.
    let listens =
        |command: &Command| command.group == Group::PubSub && command.flags.has(Flags::NOSCRIPT);
    command.is_some_and(listens) && matches!(answer.first(), Some(b'*' | b'>'))
}

pub(crate) const PUBSUB: Command = Command {
    name: "pubsub",
    summary: "A container for commands about channels and patterns.",
    since: "2.8.0",
    complexity: "Depends on the subcommand",
    group: Group::PubSub,
    arity: -2,
    flags: Flags::CONTAINER,
    subcommands: &[&CHANNELS, &HELP, &NUMPAT, &NUMSUB, &SHARDCHANNELS, &SHARDNUMSUB],
    ..Command::EMPTY
};

/// PUBSUB CHANNELS: channels with subscribers.
const CHANNELS: Command = Command {
    name: "channels",
    syntax: "[pattern]",
    summary: "Lists the channels with subscribers, optionally filtered by a pattern.",
    since: "2.8.0",
    complexity: "O(N log N) in the number of channels",
    group: Group::PubSub,
    arity: -2,
    flags: PUBSUB_FLAGS,
    run: |cx, args| list_channels(cx, args, Kind::Channel),
    ..Command::EMPTY
};

/// PUBSUB SHARDCHANNELS: shard channels with subscribers.
const SHARDCHANNELS: Command = Command {
    name: "shardchannels",
    summary: "Lists the shard channels with subscribers, optionally filtered by a pattern.",
    since: "7.0.0",
    complexity: "O(N log N) in the number of shard channels",
    run: |cx, args| list_channels(cx, args, Kind::ShardChannel),
    ..CHANNELS
};

/// Cost of listing one channel: the names are sorted.
const CHANNEL_COST: usize = 4;

fn list_channels(cx: &mut CommandContext<'_>, args: Args<'_>, kind: Kind) -> Done {
    if args.len() > 3 {
        return Err(too_many_arguments("PUBSUB", args));
    }
    cx.spend(cx.shared.pubsub.names(kind).saturating_mul(CHANNEL_COST))?;
    let names = cx.shared.pubsub.channels(kind, args.try_get(2)).ok_or(TooLong)?;
    cx.reply.array(names.len());
    for name in names {
        cx.reply.bulk(&name);
    }
    Ok(())
}

/// PUBSUB HELP: the subcommands.
const HELP: Command =
    help::subcommand("Lists the subcommands of PUBSUB.", "6.2.0", Group::PubSub, |cx, _| {
        help::reply(cx, &PUBSUB)
    });

/// PUBSUB NUMPAT: the number of patterns.
const NUMPAT: Command = Command {
    name: "numpat",
    summary: "Counts the distinct patterns that clients are subscribed to.",
    since: "2.8.0",
    group: Group::PubSub,
    arity: 2,
    flags: PUBSUB_FLAGS,
    run: count_patterns,
    ..Command::EMPTY
};

fn count_patterns(cx: &mut CommandContext<'_>, _: Args<'_>) -> Done {
    cx.reply.count(cx.shared.pubsub.names(Kind::Pattern));
    Ok(())
}

/// PUBSUB NUMSUB: the number of subscribers of each channel.
const NUMSUB: Command = Command {
    name: "numsub",
    syntax: "[channel [channel ...]]",
    summary: "Counts the subscribers of channels, not including pattern subscribers.",
    since: "2.8.0",
    complexity: "O(N) in the number of channels",
    group: Group::PubSub,
    arity: -2,
    flags: PUBSUB_FLAGS,
    run: |cx, args| count_subscribers(cx, args, Kind::Channel),
    ..Command::EMPTY
};

/// PUBSUB SHARDNUMSUB: the number of subscribers of each shard channel.
const SHARDNUMSUB: Command = Command {
    name: "shardnumsub",
    syntax: "[shardchannel [shardchannel ...]]",
    summary: "Counts the subscribers of shard channels.",
    since: "7.0.0",
    run: |cx, args| count_subscribers(cx, args, Kind::ShardChannel),
    ..NUMSUB
};

fn count_subscribers(cx: &mut CommandContext<'_>, args: Args<'_>, kind: Kind) -> Done {
    let channels = args.skip(2);
    cx.reply.array(2 * channels.len());
    for channel in channels {
        let count = cx.shared.pubsub.subscribers(kind, channel);
        cx.reply.bulk(channel);
        cx.reply.count(count);
    }
    Ok(())
}
