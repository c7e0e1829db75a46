//! One generator's tasks at the collector: its ledger, its sample, and its outgoing messages.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base::causes::with_causes;
use binlog::Lsn;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::collector::Shared;
use crate::collector::ledger::{Accepted, StreamLedger};
use crate::collector::results::Results;
use crate::collector::sample::Reservoir;
use crate::collector::sink::{RecoveredStream, Sink};
use crate::collector::verify::{Verify, WindowReport, sample_dir};
use crate::frame::Header;
use crate::link::{Link, LinkError};
use crate::message::Account;
use crate::task::BatchTask;
use crate::task::Plan;

/// Maximum number of acknowledgements that wait for their generator, which has at most as many
/// batches in flight. More arise only from resending, and may be dropped: a reconnecting generator
/// receives the complete state.
const OUTBOX_MAX: usize = 1 << 17;

/// Maximum number of epochs that a generator may be ahead of its stream. It is ahead only if the
/// collector has lost its state, by the number of its earlier incarnations. Without a limit a single
/// message could use all epochs.
const EPOCH_JUMP_MAX: u32 = 1 << 10;

/// A generator that asks to begin or continue a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JoinRequest {
    pub(super) epoch: Option<u32>,
    pub(super) plan: Plan,
}

/// Reply to a generator that joins.
#[derive(Debug)]
pub(super) struct JoinReply {
    pub(super) epoch: u32,
    pub(super) collected: Vec<(u64, u64)>,
    /// All of `collected` is durable when the log is durable up to this position.
    pub(super) durable_at: Lsn,
    /// Identifies this connection among all connections of the stream.
    pub(super) connection: u64,
}

/// Messages waiting to be sent to the generator; one thread writes to its connection.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Batches to acknowledge, in the order of their log records: first and last sequence number,
    /// and the position up to which the log must be durable.
    pub(super) acks: VecDeque<(u64, u64, Lsn)>,
    pub(super) nacks: Vec<u64>,
    /// The final account, to be sent after all of the above.
    pub(super) account: Option<Account>,
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.acks.is_empty() && self.nacks.is_empty() && self.account.is_none()
    }
}

#[derive(Debug)]
pub(super) struct StreamState {
    ledger: StreamLedger,
    reservoir: Reservoir,
    pub(super) results: Option<Results>,
    /// Tasks collected before this window.
    window: u64,
    window_ends_ns: Option<u64>,
    pub(super) outbox: Outbox,
    /// The generator's connection, if any. Without one, nothing is added to the outbox.
    pub(super) connection: Option<u64>,
    connections_seen: u64,
    /// Largest batch size among the incarnations of the generator.
    batch: u32,
    generated: u64,
    end: End,
}

/// State of the end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Results are still expected.
    Open,
    /// The account was sent, but may not have been received.
    Accounted { at_ns: u64 },
    /// The generator has confirmed the account.
    Confirmed,
}

/// Maximum wait for a generator that has not confirmed its account and does not reconnect.
const CONFIRM_NS: u64 = 2_000_000_000;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u64,
    pub(super) plan: Plan,
    pub(super) task: Arc<dyn BatchTask>,
    pub(super) state: Mutex<StreamState>,
    pub(super) changed: Condvar,
}

impl Stream {
    pub(super) fn new(shared: &Shared, id: u64, plan: &Plan) -> Result<Self> {
        let task = shared.make_task.make(plan)?;
        let known = RecoveredStream { plan: plan.clone(), task, ledger: StreamLedger::default() };
        let stream = Self::recovered(shared, id, known);
        // Only the first stream can use the files.
        stream.state.lock().results = shared.results.lock().take();
        Ok(stream)
    }

    pub(super) fn recovered(shared: &Shared, id: u64, known: RecoveredStream) -> Self {
        let RecoveredStream { plan, task, ledger } = known;
        let size = match shared.verify {
            Verify::Sample { size, .. } if task.is_repeatable() => size,
            _ => 0,
        };
        let batch = plan.batch;
        Self {
            id,
            plan,
            task,
            state: Mutex::new(StreamState {
                ledger,
                results: None,
                reservoir: Reservoir::new(size, shared.seed ^ id),
                window: 0,
                window_ends_ns: None,
                outbox: Outbox::default(),
                connection: None,
                connections_seen: 0,
                batch,
                generated: 0,
                end: End::Open,
            }),
            changed: Condvar::new(),
        }
    }

    /// Describes the tasks of this stream to a generator of others.
    pub(super) fn owner_text(&self, shared: &Shared, other: &Plan) -> String {
        let task = &self.plan.task;
        let owner = match (self.task.runs_commands(), *task == other.task) {
            (true, false) => format!("the command {task}"),
            (true, true) => format!("the command {task} with another input"),
            (false, _) => format!("the task {task} with seed {}", self.plan.seed),
        };
        match &shared.log {
            Some(log) => format!("{} belongs to {owner}; use another directory", log.display()),
            None => format!("stream {:x} belongs to {owner}; use another stream", self.id),
        }
    }

    /// Registers a generator. A new one gets a new epoch; one that reconnects keeps its epoch.
    pub(super) fn join(
        &self,
        shared: &Shared,
        link: &Link,
        request: &JoinRequest,
    ) -> Result<JoinReply, LinkError> {
        let refused = |reason: String| Err(LinkError::Refused(reason));
        if !self.plan.has_same_tasks(&request.plan) {
            return refused(self.owner_text(shared, &request.plan));
        }
        let mut state = self.state.lock();
        // A generator that was killed must not supersede the one that was started after it.
        if link.has_peer_ended()? {
            return Err(LinkError::Closed);
        }
        let current = state.ledger.epoch();
        let epoch = match request.epoch {
            None => match current.checked_add(1) {
                Some(next) => next,
                None => return refused("this stream has used all its epochs".to_owned()),
            },
            Some(epoch) if epoch < current => return refused(superseded(epoch, current)),
            Some(epoch) if epoch - current > EPOCH_JUMP_MAX => {
                return refused(format!("epoch {epoch} is too far from {current}, the last one"));
            }
            Some(epoch) => epoch,
        };
        if epoch > current {
            // The log must contain the epoch before any batch refers to it.
            if let Some(sink) = &shared.sink
                && let Err(error) = sink.append_epoch(self.id, epoch, &request.plan)
            {
                return refused(with_causes(&*error));
            }
            state.ledger.begin_epoch(epoch);
        }
        state.batch = state.batch.max(request.plan.batch);
        state.end = End::Open;
        state.outbox = Outbox::default();
        state.connections_seen += 1;
        let connection = state.connections_seen;
        state.connection = Some(connection);
        if let Verify::Sample { window_ns, .. } = shared.verify {
            state.window_ends_ns.get_or_insert(shared.clock.now_ns().saturating_add(window_ns));
        }
        self.changed.notify_all();
        Ok(JoinReply {
            epoch,
            collected: state.ledger.ids().ranges().to_vec(),
            durable_at: shared.sink.as_ref().map_or(Lsn(0), Sink::end),
            connection,
        })
    }

    /// Handles the end of a generator's connection.
    pub(super) fn leave(&self, connection: u64) {
        let mut state = self.state.lock();
        if state.connection == Some(connection) {
            state.connection = None;
            state.outbox = Outbox::default();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the largest batch size whose results may arrive.
    pub(super) fn batch(&self) -> u32 {
        self.state.lock().batch
    }

    /// Returns why this connection no longer belongs to the generator; `None` if it still does.
    pub(super) fn superseded_reason(&self, epoch: u32) -> Option<String> {
        let current = self.state.lock().ledger.epoch();
        (epoch < current).then(|| superseded(epoch, current))
    }

    /// Accepts results that passed all checks that need no lock. Counts them, samples them, and
    /// queues their acknowledgement until their record is durable.
    pub(super) fn accept(
        &self,
        shared: &Shared,
        header: &Header,
        outputs: &[u8],
        digest: u64,
        verified: Option<(u64, Vec<u64>)>,
    ) -> Result<Accepted> {
        let mut state = self.state.lock();
        let accepted = state.ledger.accept(header, digest);
        let mut durable_at = shared.sink.as_ref().map_or(Lsn(0), Sink::end);
        if accepted == Accepted::New {
            if let Some(sink) = &shared.sink {
                // Which commands have failed is only in their results.
                durable_at = if state.results.is_some() || self.task.runs_commands() {
                    sink.append_results(header, digest, outputs)?
                } else {
                    sink.append_batch(header, digest)?
                };
            }
            state.ledger.count_failed(&self.task.failed_ids(outputs));
            state.reservoir.offer(header.count, |index| {
                self.task.record(outputs, index).and_then(|range| outputs.get(range))
            });
            if let Some(results) = &mut state.results {
                results.take(&*self.task, header.ids(), outputs)?;
            }
            if let Some((right, wrong)) = verified {
                state.ledger.count_verified(right, &wrong);
            }
        }
        if matches!(accepted, Accepted::New | Accepted::Duplicate) {
            state.acknowledge(header.sequence, durable_at);
            drop(state);
            self.changed.notify_all();
        }
        Ok(accepted)
    }

    /// Handles damaged or invalid results.
    pub(super) fn refuse(&self, header: &Header) {
        let mut state = self.state.lock();
        state.ledger.count_damaged();
        if header.epoch == state.ledger.epoch()
            && state.connection.is_some()
            && state.outbox.nacks.len() < OUTBOX_MAX
        {
            state.outbox.nacks.push(header.sequence);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Passes the lines of results to the kernel, for readers of the file during the run.
    pub(super) fn flush(&self) -> Result<()> {
        self.state.lock().results.as_mut().map_or(Ok(()), Results::flush)
    }

    pub(super) fn account(&self) -> Account {
        let state = self.state.lock();
        state.ledger.account(state.generated)
    }

    /// Ends the last window and closes the account, after all tasks are acknowledged. Returns the
    /// account again if the generator did not receive it the first time.
    pub(super) fn finish(&self, shared: &Shared, generated: u64) -> Result<Account> {
        let is_new_window = {
            let mut state = self.state.lock();
            state.generated = generated;
            if let Some(results) = &mut state.results {
                results.finish(&*self.task)?;
            }
            state.window == 0 || !state.reservoir.is_empty()
        };
        if is_new_window {
            self.end_window(shared)?;
        }
        let account = self.account();
        if let Some(out) = &shared.out {
            let dir = sample_dir(out, self.id, self.state.lock().ledger.epoch());
            fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
            let path = dir.join("account.json");
            let mut text = serde_json::to_string_pretty(&account)?;
            text.push('\n');
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(account)
    }

    /// Queues the account for the generator, if this is still its connection.
    pub(super) fn queue_account(&self, connection: u64, account: Account, now_ns: u64) {
        let mut state = self.state.lock();
        if state.connection == Some(connection) {
            state.end = End::Accounted { at_ns: now_ns };
            state.outbox.account = Some(account);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Records that the generator has confirmed its account.
    pub(super) fn set_confirmed(&self) {
        self.state.lock().end = End::Confirmed;
    }

    pub(super) fn is_finished(&self, now_ns: u64) -> bool {
        let state = self.state.lock();
        match state.end {
            End::Open => false,
            End::Accounted { at_ns } => {
                state.connection.is_none() && now_ns.saturating_sub(at_ns) > CONFIRM_NS
            }
            End::Confirmed => true,
        }
    }

    /// Whether a generator has connected to this collector process.
    pub(super) fn has_begun(&self) -> bool {
        self.state.lock().connections_seen > 0
    }

    pub(super) fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    pub(super) fn end_window_if_due(&self, shared: &Shared, now_ns: u64) -> Result<()> {
        let Verify::Sample { window_ns, .. } = shared.verify else { return Ok(()) };
        {
            let mut state = self.state.lock();
            match state.window_ends_ns {
                Some(ends_ns) if ends_ns <= now_ns => {
                    state.window_ends_ns = Some(ends_ns.saturating_add(window_ns));
                }
                _ => return Ok(()),
            }
        }
        self.end_window(shared)
    }

    /// Recomputes the window's sample, without holding the lock.
    fn end_window(&self, shared: &Shared) -> Result<()> {
        if shared.verify == Verify::All {
            return Ok(());
        }
        let (sample, tasks, window, epoch) = {
            let mut state = self.state.lock();
            if let Some(classes) = state.reservoir.classes() {
                state.ledger.count_positions(&classes);
            }
            let (sample, tasks) = state.reservoir.take();
            state.window += 1;
            (sample, tasks, state.window, state.ledger.epoch())
        };
        let report = WindowReport::check(&*self.task, window, tasks, &sample)?;
        self.state.lock().ledger.count_verified(report.right, &report.wrong_ids);
        tracing::info!(
            window,
            tasks,
            right = report.right,
            accuracy = report.accuracy_percent(),
            "window verified"
        );
        match &shared.out {
            Some(out) => report.write(&sample_dir(out, self.id, epoch)),
            None => Ok(()),
        }
    }

    /// Waits until the outbox has messages, then a moment longer, so that one frame carries many of
    /// them. Returns `None` if this connection no longer belongs to the generator.
    pub(super) fn wait_for_outbox(
        &self,
        shared: &Shared,
        connection: u64,
    ) -> Option<MutexGuard<'_, StreamState>> {
        let mut state = self.state.lock();
        loop {
            if state.connection != Some(connection) || shared.is_over() {
                return None;
            }
            if !state.outbox.is_empty() {
                break;
            }
            self.changed.wait(&mut state);
        }
        MutexGuard::unlocked(&mut state, || std::thread::sleep(OUTBOX_PAUSE));
        (state.connection == Some(connection)).then_some(state)
    }
}

fn superseded(epoch: u32, current: u32) -> String {
    format!("epoch {epoch} was superseded by {current}")
}

/// Time for which acknowledgements accumulate: about five batches at full speed.
const OUTBOX_PAUSE: Duration = Duration::from_micros(500);

impl StreamState {
    fn acknowledge(&mut self, sequence: u64, durable_at: Lsn) {
        if self.connection.is_none() || self.outbox.acks.len() >= OUTBOX_MAX {
            return;
        }
        // Merge adjacent batches, but only at the same log position: a range that grew with each
        // result would not become durable while results arrive.
        if let Some((_, last, at)) = self.outbox.acks.back_mut()
            && last.checked_add(1) == Some(sequence)
            && *at >= durable_at
        {
            *last = sequence;
            return;
        }
        self.outbox.acks.push_back((sequence, sequence, durable_at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> StreamState {
        StreamState {
            ledger: StreamLedger::default(),
            results: None,
            reservoir: Reservoir::new(0, 1),
            window: 0,
            window_ends_ns: None,
            outbox: Outbox::default(),
            connection: Some(1),
            connections_seen: 1,
            batch: 1,
            generated: 0,
            end: End::Open,
        }
    }

    fn check(acks: &[(u64, u64)], expected: &[(u64, u64, u64)]) {
        let mut state = state();
        for (sequence, durable_at) in acks {
            state.acknowledge(*sequence, Lsn(*durable_at));
        }
        let found: Vec<_> =
            state.outbox.acks.iter().map(|(first, last, at)| (*first, *last, at.0)).collect();
        assert_eq!(found, expected);
    }

    /// Durable batches are acknowledged, regardless of how many results follow.
    #[test]
    fn acknowledgements_wait_for_their_own_records_only() {
        check(&[(0, 0), (1, 0), (2, 0), (7, 0)], &[(0, 2, 0), (7, 7, 0)]);
        check(&[(0, 40), (1, 80), (2, 120)], &[(0, 0, 40), (1, 1, 80), (2, 2, 120)]);
        check(&[(0, 80), (1, 80), (2, 40)], &[(0, 2, 80)]);
    }

    #[test]
    fn the_outbox_is_unused_without_a_generator() {
        let mut state = state();
        state.connection = None;
        state.acknowledge(1, Lsn(0));
        assert!(state.outbox.is_empty());
    }
}
