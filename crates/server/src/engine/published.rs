//! State that each reactor publishes to the others: counters, stage timers and clients.
//!
//! A reactor collects counts while it serves one read of one connection, and publishes them at the
//! end under its own lock. Only commands like INFO contend for that lock, for microseconds. The
//! cost is one lock per socket read, and one for each sampled command, 1 in 64.

use std::collections::{BTreeMap, HashMap};

use base::stages::{Stage, StageTimers};

use crate::engine::busiest_clients::BusiestClients;
use crate::engine::client_row::ClientRow;
use crate::engine::hot_keys::HotKeys;
use crate::engine::latency_counts::LatencyCounts;
use crate::engine::requests::RequestId;

/// Maximum error prefixes counted separately in `errorstats`; all others share one count. Same
/// limit as Redis.
const ERROR_KINDS_MAX: usize = 128;
const ERROR_KINDS_OTHER: &str = "ERRORSTATS_OVERFLOW";

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommandCounts {
    pub(crate) calls: u64,
    pub(crate) ns: u64,
    /// Requests rejected before execution: arity, memory, authentication.
    pub(crate) rejected: u64,
    /// Requests that ran and returned an error.
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
    /// Fields of hashes.
    pub(crate) expired_fields: u64,
    /// Ticks of active expiry that ended although keys had expired.
    pub(crate) expiry_ticks_cut: u64,
    pub(crate) evicted_keys: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) error_replies: u64,
    /// Rows that CQL SELECT read, returned or not.
    pub(crate) rows_examined: u64,
    /// Times a reactor was overloaded, and requests refused then because of their age.
    pub(crate) overloads: u64,
    pub(crate) refused_old: u64,
    /// Connections closed because too many had not authenticated.
    pub(crate) closed_newcomers: u64,
    /// Changes to keys and partitions. CONFIG RESETSTAT does not reset it: INFO shows its growth
    /// since the last snapshot.
    pub(crate) changes: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.commands += other.commands;
        self.expired_keys += other.expired_keys;
        self.expired_fields += other.expired_fields;
        self.expiry_ticks_cut += other.expiry_ticks_cut;
        self.evicted_keys += other.evicted_keys;
        self.hits += other.hits;
        self.misses += other.misses;
        self.error_replies += other.error_replies;
        self.rows_examined += other.rows_examined;
        self.overloads += other.overloads;
        self.refused_old += other.refused_old;
        self.closed_newcomers += other.closed_newcomers;
        self.changes += other.changes;
    }
}

/// All published state of one reactor.
#[derive(Debug)]
pub(crate) struct PublishedStats {
    pub(crate) commands: Vec<CommandCounts>,
    pub(crate) timers: StageTimers,
    /// The timers' counts at the last survey, by protocol.
    pub(crate) latency: LatencyCounts,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) totals: Totals,
    pub(crate) clients: HashMap<u64, ClientRow, foldhash::fast::FixedState>,
    pub(crate) hot_keys: HotKeys,
    pub(crate) busiest_clients: BusiestClients,
}

impl PublishedStats {
    pub(crate) fn new(commands: usize) -> PublishedStats {
        PublishedStats {
            commands: vec![CommandCounts::default(); commands],
            timers: StageTimers::new(commands),
            latency: LatencyCounts::default(),
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

    /// Resets the statistics that CONFIG RESETSTAT covers.
    pub(crate) fn reset(&mut self) {
        self.commands.fill(CommandCounts::default());
        self.timers.reset();
        self.errors.clear();
        self.totals = Totals { changes: self.totals.changes, ..Totals::default() };
    }
}

/// Counts of one read of one connection, or of one turn without reads, published by [`LocalCounters::publish`].
#[derive(Debug, Default)]
pub(crate) struct LocalCounters {
    /// Commands with their nanoseconds.
    executed: Vec<(RequestId, u64)>,
    parse_ns_each: u64,
    /// Commands since write time was last recorded, with their count.
    unwritten: Vec<(RequestId, u32)>,
    rejected: Vec<RequestId>,
    failed: Vec<(Option<RequestId>, String)>,
    pub(crate) totals: Totals,
}

impl LocalCounters {
    #[inline]
    pub(crate) fn executed(&mut self, command: RequestId, ns: u64) {
        self.executed.push((command, ns));
    }

    /// Records the parse time of each request decoded next.
    pub(crate) fn parsed(&mut self, ns_each: u64) {
        self.parse_ns_each = ns_each;
    }

    /// Whether requests were counted since the last call of [`LocalCounters::publish`].
    pub(crate) fn has_unpublished(&self) -> bool {
        !(self.executed.is_empty() && self.rejected.is_empty() && self.failed.is_empty())
    }

    pub(crate) fn rejected(&mut self, command: RequestId) {
        self.rejected.push(command);
    }

    /// Records an error reply; `command` if the command ran and failed.
    pub(crate) fn error(&mut self, command: Option<RequestId>, text: &str) {
        let prefix = text.split(' ').next().unwrap_or("ERR");
        self.failed.push((command, prefix.to_owned()));
    }

    /// Distributes the time of writes evenly over the commands that ran since the previous writes,
    /// because most of the sent replies are theirs.
    pub(crate) fn written(&mut self, to: &mut PublishedStats, ns: u64) {
        let count: u64 = self.unwritten.iter().map(|(_, count)| u64::from(*count)).sum();
        let ns_each = ns.checked_div(count).unwrap_or(0);
        for (id, count) in self.unwritten.drain(..) {
            to.timers.record_n(usize::from(id), Stage::Write, ns_each, count);
        }
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Publishes consecutive executions of one command.
    fn publish_run(&mut self, to: &mut PublishedStats, id: RequestId, count: u32) {
        to.timers.record_n(usize::from(id), Stage::Parse, self.parse_ns_each, count);
        match self.unwritten.iter_mut().find(|(known, _)| *known == id) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => self.unwritten.push((id, count)),
        }
    }

    pub(crate) fn publish(&mut self, to: &mut PublishedStats, timed: bool) {
        let mut run: (RequestId, u32) = (0, 0);
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

    /// Returns count and sum of the recorded samples.
    fn recorded(published: &PublishedStats, command: usize, stage: Stage) -> (u64, u64) {
        let summary = published.timers.cell(command, stage).map(StageCell::summary);
        summary.map_or((0, 0), |summary| (summary.count, summary.sum_ns))
    }

    #[test]
    fn times_go_to_the_commands_that_took_them() {
        let (mut tally, mut published) = (LocalCounters::default(), PublishedStats::new(3));
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
        let (mut tally, mut published) = (LocalCounters::default(), PublishedStats::new(2));
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
