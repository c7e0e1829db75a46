//! What each reactor lets others see of itself: counters, stage timers and its clients.
//!
//! A reactor collects while it serves one read of one connection and hands the result over at its
//! end, under its own lock, which nobody else holds but a command like INFO for microseconds: one lock
//! per read of a socket, and one for each command in 64 whose key is looked at.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use base::stages::{Stage, StageTimers};
use base::time::MonoNs;

use crate::busiest_clients::BusiestClients;
use crate::config::Durability;
use crate::handler::CLIENT_BYTES;
use crate::hot_keys::HotKeys;
use crate::protocol::ClientProtocol;
use crate::pubsub::{Kind, Subscriptions};
use crate::resp::session::{ConnId, Wait};
use crate::resp::{CommandId, Session};

/// Error prefixes told apart in `errorstats`; more are counted as one. As Redis has it.
const ERROR_KINDS_MAX: usize = 128;
const ERROR_KINDS_OTHER: &str = "ERRORSTATS_OVERFLOW";

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommandCounts {
    pub(crate) calls: u64,
    pub(crate) ns: u64,
    /// Refused before it ran: arity, memory, authentication.
    pub(crate) rejected: u64,
    /// Ran and answered with an error.
    pub(crate) failed: u64,
}

impl std::ops::AddAssign for CommandCounts {
    fn add_assign(&mut self, other: CommandCounts) {
        self.calls += other.calls;
        self.ns += other.ns;
        self.rejected += other.rejected;
        self.failed += other.failed;
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) commands: u64,
    pub(crate) expired_keys: u64,
    pub(crate) evicted_keys: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) error_replies: u64,
    /// By SELECT of CQL, shown or not.
    pub(crate) rows_examined: u64,
    /// Keys and partitions that were changed, each change counted. CONFIG RESETSTAT leaves it alone: INFO
    /// shows the growth since a snapshot.
    pub(crate) changes: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.commands += other.commands;
        self.expired_keys += other.expired_keys;
        self.evicted_keys += other.evicted_keys;
        self.hits += other.hits;
        self.misses += other.misses;
        self.error_replies += other.error_replies;
        self.rows_examined += other.rows_examined;
        self.changes += other.changes;
    }
}

/// How much a client has subscribed to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SubscriptionCounts {
    pub(crate) channels: u32,
    pub(crate) patterns: u32,
    pub(crate) shard_channels: u32,
}

impl SubscriptionCounts {
    pub(crate) fn of(subscriptions: Option<&Subscriptions>) -> SubscriptionCounts {
        let Some(all) = subscriptions else { return SubscriptionCounts::default() };
        let count = |kind| u32::try_from(all.count(kind)).unwrap_or(u32::MAX);
        SubscriptionCounts {
            channels: count(Kind::Channel),
            patterns: count(Kind::Pattern),
            shard_channels: count(Kind::ShardChannel),
        }
    }

    pub(crate) fn is_none(self) -> bool {
        self == SubscriptionCounts::default()
    }
}

/// One client as CLIENT LIST shows it.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags, each a letter of the list")]
pub(crate) struct ClientRow {
    pub(crate) id: u64,
    pub(crate) reactor: usize,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) name: String,
    pub(crate) library_name: String,
    pub(crate) library_version: String,
    pub(crate) opened: MonoNs,
    pub(crate) active: MonoNs,
    pub(crate) db: u8,
    pub(crate) protocol: ClientProtocol,
    /// Version of RESP; 0: the client speaks another protocol.
    pub(crate) resp: u8,
    pub(crate) durability: Durability,
    /// Queued commands, or -1 outside MULTI.
    pub(crate) queued: i64,
    pub(crate) queued_bytes: usize,
    pub(crate) watched: usize,
    pub(crate) subscriptions: SubscriptionCounts,
    pub(crate) monitor: bool,
    pub(crate) is_tls: bool,
    pub(crate) no_evict: bool,
    pub(crate) no_touch: bool,
    pub(crate) blocked: bool,
    /// Its wait is one that CLIENT UNBLOCK ends.
    pub(crate) unblockable: bool,
    pub(crate) closing: bool,
    /// CLIENT KILL was told to close it, and its reactor will.
    pub(crate) killed: bool,
    /// Known once its reactor has looked at its buffers.
    pub(crate) fd: Option<u32>,
    pub(crate) query_bytes: usize,
    pub(crate) output_bytes: usize,
    /// Heap memory of all buffers.
    pub(crate) buffer_bytes: usize,
    /// What the input and the output have of it, cut to 4 GiB: so short that a row is no longer for it.
    pub(crate) query_heap_bytes: u32,
    pub(crate) reply_heap_bytes: u32,
    pub(crate) commands: u64,
    pub(crate) last_command: CommandId,
    /// The low bits of `commands` when they were last taken: so short that a row is no longer for it.
    pub(crate) commands_taken: u32,
}

impl ClientRow {
    pub(crate) fn of(session: &Session, reactor: usize, now: MonoNs) -> ClientRow {
        let details = &session.details;
        let mut row = ClientRow::new(session.id, reactor, details.opened, session.durability);
        row.remote = details.remote;
        row.local = details.local;
        row.rename(session);
        row.update(session, now);
        row
    }

    /// A client that has not done anything.
    pub(crate) fn new(
        id: ConnId,
        reactor: usize,
        opened: MonoNs,
        durability: Durability,
    ) -> ClientRow {
        ClientRow {
            id: id.0,
            reactor,
            remote: None,
            local: None,
            name: String::new(),
            library_name: String::new(),
            library_version: String::new(),
            opened,
            active: opened,
            db: 0,
            protocol: ClientProtocol::Resp,
            resp: 2,
            durability,
            queued: -1,
            queued_bytes: 0,
            watched: 0,
            subscriptions: SubscriptionCounts::default(),
            monitor: false,
            is_tls: false,
            no_evict: false,
            no_touch: false,
            blocked: false,
            unblockable: false,
            closing: false,
            killed: false,
            fd: None,
            query_bytes: 0,
            output_bytes: 0,
            buffer_bytes: 0,
            query_heap_bytes: 0,
            reply_heap_bytes: 0,
            commands: 0,
            last_command: 0,
            commands_taken: 0,
        }
    }

    /// Requests since they were last taken, of which there are fewer than 2^32.
    pub(crate) fn take_requests(&mut self) -> u32 {
        let commands = u32::try_from(self.commands & u64::from(u32::MAX)).expect("it is masked");
        commands.wrapping_sub(std::mem::replace(&mut self.commands_taken, commands))
    }

    /// The fields that change with every request.
    pub(crate) fn update(&mut self, session: &Session, now: MonoNs) {
        self.active = now;
        self.db = session.db;
        self.resp = match session.protocol {
            wire::resp::Protocol::Resp2 => 2,
            wire::resp::Protocol::Resp3 => 3,
        };
        self.durability = session.durability;
        let transaction = session.transaction.as_deref();
        self.queued = transaction.map_or(-1, |t| i64::try_from(t.queued.len()).unwrap_or(i64::MAX));
        self.queued_bytes = transaction.map_or(0, |t| t.queued_bytes);
        self.watched = session.watched.as_ref().map_or(0, |watched| watched.keys.len());
        self.subscriptions = SubscriptionCounts::of(session.subscriptions.as_deref());
        self.monitor = session.monitor;
        self.no_evict = session.no_evict;
        self.no_touch = session.no_touch;
        self.blocked = session.wait.is_some();
        self.unblockable = matches!(session.wait, Some(Wait::Until { .. }));
        self.closing = session.closing;
        self.commands = session.commands;
        self.last_command = session.last_command;
    }

    /// The fields that only the reactor knows.
    pub(crate) fn measure(&mut self, info: &reactor::ConnInfo) {
        self.fd = u32::try_from(info.fd).ok();
        self.query_bytes = info.input_bytes;
        self.output_bytes = info.output_bytes;
        self.buffer_bytes = info.buffer_bytes;
        self.query_heap_bytes = u32::try_from(info.input_heap_bytes).unwrap_or(u32::MAX);
        self.reply_heap_bytes = u32::try_from(info.output_heap_bytes).unwrap_or(u32::MAX);
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        CLIENT_BYTES + (self.buffer_bytes + self.queued_bytes) as u64
    }

    /// The fields that CLIENT SETNAME and SETINFO change.
    pub(crate) fn rename(&mut self, session: &Session) {
        self.name.clone_from(&session.details.name);
        self.library_name.clone_from(&session.details.library_name);
        self.library_version.clone_from(&session.details.library_version);
    }
}

/// Everything one reactor publishes.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) commands: Vec<CommandCounts>,
    pub(crate) timers: StageTimers,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) totals: Totals,
    pub(crate) clients: HashMap<u64, ClientRow, foldhash::fast::FixedState>,
    pub(crate) hot_keys: HotKeys,
    pub(crate) busiest_clients: BusiestClients,
}

impl Published {
    pub(crate) fn new(commands: usize) -> Published {
        Published {
            commands: vec![CommandCounts::default(); commands],
            timers: StageTimers::new(commands),
            errors: BTreeMap::new(),
            totals: Totals::default(),
            clients: HashMap::default(),
            hot_keys: HotKeys::default(),
            busiest_clients: BusiestClients::default(),
        }
    }

    /// Ends the window in which keys and clients are counted. O(n) in clients.
    pub(crate) fn end_window(&mut self, window_ns: u64) {
        self.hot_keys.end_window();
        self.busiest_clients.end_window(self.clients.values_mut(), window_ns);
    }

    /// CONFIG RESETSTAT.
    pub(crate) fn reset(&mut self) {
        self.commands.fill(CommandCounts::default());
        self.timers.reset();
        self.errors.clear();
        self.totals = Totals { changes: self.totals.changes, ..Totals::default() };
    }
}

/// What one read of one connection did; handed over by [`Tally::publish`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Command, nanoseconds.
    executed: Vec<(CommandId, u64)>,
    parse_ns_each: u64,
    /// Commands since time was last spent on writing, by number.
    unwritten: Vec<(CommandId, u32)>,
    rejected: Vec<CommandId>,
    failed: Vec<(Option<CommandId>, String)>,
    pub(crate) totals: Totals,
}

impl Tally {
    #[inline]
    pub(crate) fn executed(&mut self, command: CommandId, ns: u64) {
        self.executed.push((command, ns));
    }

    /// The requests decoded next took this long each.
    pub(crate) fn parsed(&mut self, ns_each: u64) {
        self.parse_ns_each = ns_each;
    }

    pub(crate) fn rejected(&mut self, command: CommandId) {
        self.rejected.push(command);
    }

    /// An error reply; `command` when it ran and failed.
    pub(crate) fn error(&mut self, command: Option<CommandId>, text: &str) {
        let prefix = text.split(' ').next().unwrap_or("ERR");
        self.failed.push((command, prefix.to_owned()));
    }

    /// Spreads the time of writes over the commands whose replies they are likely to have taken:
    /// those that ran since the last writes.
    pub(crate) fn written(&mut self, to: &mut Published, ns: u64) {
        let count: u64 = self.unwritten.iter().map(|(_, count)| u64::from(*count)).sum();
        let ns_each = ns.checked_div(count).unwrap_or(0);
        for (id, count) in self.unwritten.drain(..) {
            to.timers.record_n(usize::from(id), Stage::Write, ns_each, count);
        }
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Some of the same command, one after the other.
    fn publish_run(&mut self, to: &mut Published, id: CommandId, count: u32) {
        to.timers.record_n(usize::from(id), Stage::Parse, self.parse_ns_each, count);
        match self.unwritten.iter_mut().find(|(known, _)| *known == id) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => self.unwritten.push((id, count)),
        }
    }

    pub(crate) fn publish(&mut self, to: &mut Published, timed: bool) {
        let mut run: (CommandId, u32) = (0, 0);
        let mut executed = std::mem::take(&mut self.executed);
        for (id, ns) in executed.drain(..) {
            let counts = &mut to.commands[usize::from(id)];
            counts.calls += 1;
            counts.ns += ns;
            if !timed {
                continue;
            }
            to.timers.record(usize::from(id), Stage::Execute, ns);
            if run.0 != id && run.1 > 0 {
                self.publish_run(to, run.0, run.1);
                run.1 = 0;
            }
            run = (id, run.1 + 1);
        }
        self.executed = executed;
        if run.1 > 0 {
            self.publish_run(to, run.0, run.1);
        }
        for id in self.rejected.drain(..) {
            to.commands[usize::from(id)].rejected += 1;
        }
        for (id, prefix) in self.failed.drain(..) {
            if let Some(id) = id {
                to.commands[usize::from(id)].failed += 1;
            }
            self.totals.error_replies += 1;
            let known = to.errors.contains_key(&prefix) || to.errors.len() < ERROR_KINDS_MAX;
            let prefix = if known { prefix } else { ERROR_KINDS_OTHER.to_owned() };
            *to.errors.entry(prefix).or_default() += 1;
        }
        to.totals += std::mem::take(&mut self.totals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::stages::StageCell;

    /// Count and sum of what was recorded.
    fn recorded(published: &Published, command: usize, stage: Stage) -> (u64, u64) {
        let summary = published.timers.cell(command, stage).map(StageCell::summary);
        summary.map_or((0, 0), |summary| (summary.count, summary.sum_ns))
    }

    #[test]
    fn times_go_to_the_commands_that_took_them() {
        let (mut tally, mut published) = (Tally::default(), Published::new(3));
        tally.parsed(7);
        for (id, ns) in [(1, 10), (2, 40), (1, 20)] {
            tally.executed(id, ns);
        }
        tally.publish(&mut published, true);
        assert_eq!((published.commands[1].calls, published.commands[1].ns), (2, 30));
        assert_eq!(recorded(&published, 1, Stage::Execute), (2, 30));
        assert_eq!(recorded(&published, 1, Stage::Parse), (2, 14));
        assert_eq!(recorded(&published, 2, Stage::Parse), (1, 7));
        assert_eq!(recorded(&published, 1, Stage::Write), (0, 0));

        assert!(tally.has_unwritten());
        tally.written(&mut published, 300);
        assert_eq!(recorded(&published, 1, Stage::Write), (2, 200));
        assert_eq!(recorded(&published, 2, Stage::Write), (1, 100));
        assert!(!tally.has_unwritten());
        tally.written(&mut published, 300);
        assert_eq!(recorded(&published, 1, Stage::Write), (2, 200));
    }

    #[test]
    fn nothing_is_timed_when_that_is_off() {
        let (mut tally, mut published) = (Tally::default(), Published::new(2));
        tally.executed(1, 10);
        tally.rejected(1);
        tally.error(Some(1), "WRONGTYPE of value");
        tally.error(None, "ERR unknown");
        tally.publish(&mut published, false);
        let counts = published.commands[1];
        assert_eq!((counts.calls, counts.rejected, counts.failed), (1, 1, 1));
        assert_eq!(published.totals.error_replies, 2);
        assert_eq!(published.errors.keys().collect::<Vec<_>>(), ["ERR", "WRONGTYPE"]);
        assert_eq!(published.timers.cells().count(), 0);
        assert!(!tally.has_unwritten());
    }
}
