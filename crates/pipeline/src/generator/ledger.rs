//! Tracks every batch from its generation until the collector has it. Time is an argument, and this
//! module does no I/O.
//!
//! The state equation: generated = in flight + collected. The three are counted independently:
//! `generated` when ids are assigned, `collected` when acknowledgements arrive, and `in flight` by
//! iterating over the batches. [`Ledger::check`] compares them.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use thiserror::Error;

use crate::intervals::Intervals;
use crate::task::Ids;

/// Maximum number of batches in flight: 64 bytes each here, and as many gaps at the collector.
pub const WINDOW_MAX: usize = 1 << 16;

/// Maximum distance, in windows of batches, between the oldest batch in flight and the newest. A
/// batch that one executor keeps for long thus does not block the others.
const SPAN_WINDOWS: usize = 4;

/// A batch is reassigned to another executor after this multiple of the median service time, or
/// after [`LedgerOptions::lease_ns_min`] if that is longer.
const LEASE_MEDIANS: u64 = 20;

/// Each expiry of a batch's lease doubles the next one, up to this many times. Otherwise a lease
/// that is too short (nothing has been acknowledged yet) would cause endless recomputation.
const LEASE_DOUBLINGS_MAX: u32 = 6;

/// Upper limit for recorded times: a day.
const TIME_NS_MAX: u64 = 86_400_000_000_000;

/// Number of executors that may fail to compute a batch before the run ends.
pub const FAILURES_MAX: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerOptions {
    /// Maximum number of batches in flight.
    pub window: usize,
    pub batch: u32,
    pub lease_ns_min: u64,
}

/// The counters are inconsistent, or the collector has lost acknowledged tasks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LedgerError {
    #[error("{generated} tasks generated, but {in_flight} in flight and {collected} collected")]
    Unbalanced { generated: u64, in_flight: u64, collected: u64 },
    #[error("the collector has lost tasks that it had acknowledged: {0:?}")]
    Forgotten(Vec<(u64, u64)>),
    #[error("the collector has tasks that were never generated: {0:?}")]
    Unknown(Vec<(u64, u64)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waiting to be sent, for the first time or again.
    Queued,
    Sent {
        session: u64,
        expires_ns: u64,
    },
    Collected,
}

#[derive(Debug, Clone, Copy)]
struct Batch {
    ids: Ids,
    due_ns: u64,
    /// Time of the first transmission. Which transmission a result belongs to is unknown, and the
    /// longer time ensures that leases are not too short.
    first_sent_ns: u64,
    failures: u32,
    /// Number of expired leases.
    expiries: u32,
    state: State,
}

/// A batch for a session to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    pub sequence: u64,
    pub ids: Ids,
    pub due_ns: u64,
}

/// Task counts by state. All count tasks, except those whose name contains `frames`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ids assigned in this run. Ids that an earlier incarnation of the generator had collected are
    /// in neither `generated` nor `collected`.
    pub generated: u64,
    pub collected: u64,
    pub in_flight: u64,
    pub resent_frames: u64,
    pub expired_frames: u64,
    pub nacked_frames: u64,
    /// Duplicate acknowledgements.
    pub repeated_acks: u64,
}

/// The batches of one epoch, by sequence number.
#[derive(Debug)]
pub struct Ledger {
    options: LedgerOptions,
    next_id: u64,
    /// Sequence number of the first batch in `batches`.
    first: u64,
    batches: VecDeque<Batch>,
    /// Number of batches that are not collected.
    open: usize,
    queue: VecDeque<u64>,
    /// Ids that an earlier incarnation generated but that were not collected; assigned before new
    /// ones.
    holes: VecDeque<(u64, u64)>,
    counts: Counts,
    /// Lease of the batches sent now. Computing the median takes as long as a hundred tasks, so it
    /// is updated when leases are checked, not for each batch.
    lease_ns: u64,
    /// Time from first transmission to acknowledgement.
    service_ns: Histogram<u64>,
    latency_ns: Histogram<u64>,
}

impl Ledger {
    /// Creates a ledger. `collected` contains what the collector has of this stream's earlier
    /// epochs: this incarnation fills the gaps first and continues after them.
    pub fn new(options: LedgerOptions, collected: &Intervals) -> Self {
        assert!(options.batch > 0);
        assert!((1..=WINDOW_MAX).contains(&options.window));
        let next_id = collected.end();
        let histogram = || {
            let mut times =
                Histogram::new_with_bounds(1, TIME_NS_MAX, 3).expect("bounds in order, 3 digits");
            // Touches all of its memory now: otherwise recording a new duration hours later would
            // make more of it resident.
            times.clear();
            times
        };
        Self {
            options,
            next_id,
            first: 0,
            batches: VecDeque::with_capacity(options.window * SPAN_WINDOWS),
            open: 0,
            queue: VecDeque::with_capacity(options.window),
            holes: collected.gaps(next_id).collect(),
            counts: Counts::default(),
            lease_ns: options.lease_ns_min,
            service_ns: histogram(),
            latency_ns: histogram(),
        }
    }

    /// All ids below this one have been assigned.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Whether a new batch can be added.
    pub fn has_space(&self) -> bool {
        let span_max = self.options.window * SPAN_WINDOWS;
        self.open < self.options.window && self.batches.len() < span_max
    }

    pub fn in_flight_frames(&self) -> usize {
        self.open
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.holes.is_empty()
    }

    /// Whether an executor may still compute a batch. O(window).
    pub fn has_sent(&self) -> bool {
        self.batches.iter().any(|batch| matches!(batch.state, State::Sent { .. }))
    }

    /// Takes a batch that waits to be resent.
    pub fn take_queued(&mut self, session: u64, now_ns: u64) -> Option<Assignment> {
        while let Some(sequence) = self.queue.pop_front() {
            // It may have been acknowledged while it waited.
            let Some(batch) = self.batch(sequence).copied() else { continue };
            if batch.state == State::Queued {
                self.counts.resent_frames += 1;
                return Some(self.send(sequence, session, now_ns));
            }
        }
        None
    }

    /// Takes tasks that an earlier incarnation assigned: at most `count_max`, and with ids below
    /// `inputs_end`.
    pub fn take_hole(
        &mut self,
        (count_max, inputs_end): (u32, u64),
        session: u64,
        now_ns: u64,
    ) -> Option<Assignment> {
        let (start, end) = *self.holes.front().filter(|_| self.has_space())?;
        let cut = end.min(start + u64::from(count_max)).min(inputs_end);
        if cut <= start {
            return None;
        }
        self.holes.pop_front();
        if cut < end {
            self.holes.push_front((cut, end));
        }
        let count = u32::try_from(cut - start).expect("cut to a batch");
        Some(self.push(Ids { first: start, count }, now_ns, session, now_ns))
    }

    /// Takes `count` new tasks. The window must have space.
    pub fn take_new(&mut self, count: u32, due_ns: u64, session: u64, now_ns: u64) -> Assignment {
        assert!(self.has_space());
        let ids = Ids { first: self.next_id, count };
        self.next_id += u64::from(count);
        self.push(ids, due_ns, session, now_ns)
    }

    fn push(&mut self, ids: Ids, due_ns: u64, session: u64, now_ns: u64) -> Assignment {
        self.counts.generated += u64::from(ids.count);
        let sequence = self.first + u64::try_from(self.batches.len()).expect("64 bits");
        self.open += 1;
        self.batches.push_back(Batch {
            ids,
            due_ns,
            first_sent_ns: now_ns,
            failures: 0,
            expiries: 0,
            state: State::Queued,
        });
        self.send(sequence, session, now_ns)
    }

    fn send(&mut self, sequence: u64, session: u64, now_ns: u64) -> Assignment {
        let lease_ns = self.lease_ns;
        let batch = self.batch_mut(sequence).expect("the caller has looked it up");
        let factor = 1 << batch.expiries.min(LEASE_DOUBLINGS_MAX);
        let expires_ns = now_ns.saturating_add(lease_ns.saturating_mul(factor));
        batch.state = State::Sent { session, expires_ns };
        Assignment { sequence, ids: batch.ids, due_ns: batch.due_ns }
    }

    /// Returns how long an executor may keep a batch, based on the current statistics.
    pub fn lease_ns(&self) -> u64 {
        let median_ns = self.service_ns.value_at_quantile(0.5);
        self.options.lease_ns_min.max(median_ns.saturating_mul(LEASE_MEDIANS))
    }

    /// Records that the collector has the batches `first` to `last`.
    pub fn acknowledge(&mut self, first: u64, last: u64, now_ns: u64) {
        let end = self.first + u64::try_from(self.batches.len()).expect("64 bits");
        self.counts.repeated_acks += self.first.min(last.saturating_add(1)).saturating_sub(first);
        for sequence in first.max(self.first)..last.saturating_add(1).min(end) {
            self.collect(sequence, now_ns);
        }
        self.forget_collected();
    }

    fn collect(&mut self, sequence: u64, now_ns: u64) {
        let batch = self.batch_mut(sequence).expect("inside the window");
        let Batch { ids, due_ns, first_sent_ns, .. } = *batch;
        if batch.state == State::Collected {
            self.counts.repeated_acks += 1;
            return;
        }
        batch.state = State::Collected;
        self.open -= 1;
        // Includes batches whose lease expired: the lease must adapt to long service times.
        self.service_ns.saturating_record(now_ns.saturating_sub(first_sent_ns));
        self.counts.collected += u64::from(ids.count);
        let latency_ns = now_ns.saturating_sub(due_ns);
        self.latency_ns.saturating_record_n(latency_ns, u64::from(ids.count));
    }

    fn forget_collected(&mut self) {
        while self.batches.front().is_some_and(|batch| batch.state == State::Collected) {
            self.batches.pop_front();
            self.first += 1;
        }
    }

    /// Queues a batch for resending after it was damaged or its executor gave it up.
    pub fn refuse(&mut self, sequence: u64) {
        if self.requeue(sequence) {
            self.counts.nacked_frames += 1;
        }
    }

    /// Handles a computation failure. Returns false if the number of failed executors has reached
    /// the limit, so that the run must end.
    pub fn fail(&mut self, sequence: u64) -> bool {
        let Some(batch) = self.batch_mut(sequence) else { return true };
        if batch.state == State::Collected {
            // Another executor succeeded.
            return true;
        }
        batch.failures += 1;
        let may_try = batch.failures < FAILURES_MAX;
        self.refuse(sequence);
        may_try
    }

    fn requeue(&mut self, sequence: u64) -> bool {
        let Some(batch) = self.batch_mut(sequence) else { return false };
        let is_sent = matches!(batch.state, State::Sent { .. });
        if is_sent {
            batch.state = State::Queued;
            self.queue.push_back(sequence);
        }
        is_sent
    }

    /// Requeues the batches of a lost executor. Results that it had already sent arrive twice; the
    /// collector drops the second copy.
    pub fn session_lost(&mut self, session: u64) {
        self.requeue_where(
            |batch| matches!(batch.state, State::Sent { session: of, .. } if of == session),
        );
    }

    /// Keeps the batches of an executor that has ended until this time at most: the acknowledgement
    /// of its last results may arrive after the end.
    pub fn session_ended(&mut self, session: u64, until_ns: u64) {
        for batch in &mut self.batches {
            if let State::Sent { session: of, expires_ns } = &mut batch.state
                && *of == session
            {
                *expires_ns = until_ns.min(*expires_ns);
            }
        }
    }

    /// Requeues batches whose leases have expired.
    pub fn expire(&mut self, now_ns: u64) {
        self.lease_ns = self.lease_ns();
        let expired = self.requeue_where(|batch| {
            let is_expired =
                matches!(batch.state, State::Sent { expires_ns, .. } if expires_ns <= now_ns);
            batch.expiries += u32::from(is_expired);
            is_expired
        });
        self.counts.expired_frames += expired;
    }

    /// Restarts all leases, because nothing could be acknowledged for a while.
    pub fn renew_leases(&mut self, now_ns: u64) {
        self.lease_ns = self.lease_ns();
        let until_ns = now_ns.saturating_add(self.lease_ns);
        for batch in &mut self.batches {
            if let State::Sent { expires_ns, .. } = &mut batch.state {
                *expires_ns = until_ns;
            }
        }
    }

    /// O(window). Called ten times a second and when a connection breaks.
    fn requeue_where(&mut self, is_meant: impl Fn(&mut Batch) -> bool) -> u64 {
        let mut count = 0;
        for (sequence, batch) in (self.first..).zip(&mut self.batches) {
            if is_meant(batch) {
                batch.state = State::Queued;
                self.queue.push_back(sequence);
                count += 1;
            }
        }
        count
    }

    /// Handles the reconnection to the collector: acknowledges what it has, and checks that it
    /// still has everything that was acknowledged before.
    pub fn resume(&mut self, collected: &Intervals, now_ns: u64) -> Result<(), LedgerError> {
        if collected.end() > self.next_id {
            return Err(LedgerError::Unknown(vec![(self.next_id, collected.end())]));
        }
        let end = self.first + u64::try_from(self.batches.len()).expect("64 bits");
        for sequence in self.first..end {
            let batch = *self.batch(sequence).expect("inside the window");
            let is_there = collected.contains(batch.ids.iter());
            if is_there && batch.state != State::Collected {
                self.collect(sequence, now_ns);
            }
        }
        let lost_ids = self.lost_ids(collected);
        if !lost_ids.is_empty() {
            return Err(LedgerError::Forgotten(lost_ids));
        }
        self.forget_collected();
        self.renew_leases(now_ns);
        Ok(())
    }

    /// Returns the ids that must be collected but are not: neither in flight nor a hole.
    fn lost_ids(&self, collected: &Intervals) -> Vec<(u64, u64)> {
        let mut expected = self.open();
        let mut all = collected.ranges().to_vec();
        all.append(&mut expected);
        all.sort_unstable();
        let mut end = 0;
        let mut missing = Vec::new();
        for (start, stop) in all.into_iter().chain([(self.next_id, self.next_id)]) {
            if start > end {
                missing.push((end, start));
            }
            end = end.max(stop);
        }
        missing
    }

    /// Returns the first id that is not collected. O(window).
    pub fn first_open_id(&self) -> u64 {
        self.open().into_iter().map(|(start, _)| start).min().unwrap_or(self.next_id)
    }

    /// Returns the ids that are not collected yet, as unordered ranges.
    pub fn open(&self) -> Vec<(u64, u64)> {
        let in_flight = self.batches.iter().filter(|batch| batch.state != State::Collected);
        let in_flight = in_flight.map(|batch| (batch.ids.first, batch.ids.end()));
        in_flight.chain(self.holes.iter().copied()).collect()
    }

    /// Returns all counters; counts the batches in flight by iteration. O(window).
    pub fn counts(&self) -> Counts {
        let open = self.batches.iter().filter(|batch| batch.state != State::Collected);
        let in_flight = open.map(|batch| u64::from(batch.ids.count)).sum();
        Counts { in_flight, ..self.counts }
    }

    /// Checks the state equation.
    pub fn check(&self) -> Result<Counts, LedgerError> {
        let counts = self.counts();
        let Counts { generated, collected, in_flight, .. } = counts;
        if generated == collected.saturating_add(in_flight) {
            return Ok(counts);
        }
        Err(LedgerError::Unbalanced { generated, in_flight, collected })
    }

    /// Time from due time to acknowledgement; a batch is measured from its oldest task.
    pub fn latency_ns(&self) -> &Histogram<u64> {
        &self.latency_ns
    }

    /// Time from the first transmission of a batch to its acknowledgement.
    pub fn service_ns(&self) -> &Histogram<u64> {
        &self.service_ns
    }

    fn batch(&self, sequence: u64) -> Option<&Batch> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.batches.get(at)
    }

    fn batch_mut(&mut self, sequence: u64) -> Option<&mut Batch> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.batches.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPTIONS: LedgerOptions = LedgerOptions { window: 4, batch: 10, lease_ns_min: 1_000 };

    fn ledger() -> Ledger {
        Ledger::new(OPTIONS, &Intervals::default())
    }

    fn collected(ranges: &[(u64, u64)]) -> Intervals {
        Intervals::from_ranges(ranges.to_vec()).unwrap()
    }

    #[test]
    fn batches_are_collected_in_any_order() {
        let mut ledger = ledger();
        for due_ns in 0..4 {
            ledger.take_new(10, due_ns, 1, 5);
        }
        assert!(!ledger.has_space());
        ledger.acknowledge(2, 3, 10);
        assert!(ledger.has_space());
        ledger.acknowledge(0, 0, 10);
        assert_eq!(ledger.in_flight_frames(), 1);
        let counts = ledger.check().unwrap();
        assert_eq!((counts.generated, counts.collected, counts.in_flight), (40, 30, 10));
        ledger.acknowledge(0, 3, 10);
        assert!(ledger.is_empty());
        assert_eq!(ledger.check().unwrap().repeated_acks, 3);
        ledger.acknowledge(0, u64::MAX, 10);
        assert_eq!(ledger.check().unwrap().collected, 40);
    }

    /// If one batch stays with its executor, the others continue for some windows, not
    /// indefinitely.
    #[test]
    fn a_delayed_batch_does_not_block_the_others() {
        let mut ledger = ledger();
        ledger.take_new(10, 0, 1, 0);
        let mut others = 0;
        while ledger.has_space() {
            let next = ledger.take_new(10, 0, 2, 0);
            ledger.acknowledge(next.sequence, next.sequence, 10);
            others += 1;
        }
        assert_eq!(others, OPTIONS.window * SPAN_WINDOWS - 1);
        assert_eq!(ledger.in_flight_frames(), 1);
        ledger.check().unwrap();
        ledger.acknowledge(0, 0, 10);
        assert!(ledger.is_empty() && ledger.has_space());
    }

    /// Batches take much longer than the shortest lease, and nothing has been acknowledged yet.
    /// Each is reassigned at growing intervals, and the first result ends that.
    #[test]
    fn leases_that_are_too_short_grow() {
        let mut ledger = ledger();
        ledger.take_new(10, 0, 1, 0);
        let mut sent_ns = Vec::new();
        for now_ns in (0..100_000).step_by(1_000) {
            ledger.expire(now_ns);
            if ledger.take_queued(1, now_ns).is_some() {
                sent_ns.push(now_ns);
            }
        }
        assert_eq!(sent_ns, [1_000, 3_000, 7_000, 15_000, 31_000, 63_000]);
        // It waits to be resent when the first result arrives.
        ledger.expire(200_000);
        ledger.acknowledge(0, 0, 200_000);
        ledger.expire(200_000);
        let lease_ns = ledger.lease_ns();
        assert!((20 * 200_000..20 * 201_000).contains(&lease_ns), "{lease_ns}");
        ledger.take_new(10, 0, 1, 200_000);
        ledger.expire(200_000 + lease_ns - 1);
        assert_eq!(ledger.take_queued(1, 200_000), None);
    }

    #[test]
    fn lost_batches_are_sent_again() {
        let mut ledger = ledger();
        let first = ledger.take_new(10, 0, 1, 0);
        let second = ledger.take_new(10, 0, 2, 500);
        assert_eq!(ledger.take_queued(3, 0), None);
        ledger.session_lost(1);
        assert_eq!(ledger.take_queued(3, 600), Some(first));
        ledger.expire(1_499);
        assert_eq!(ledger.take_queued(3, 1_499), None);
        ledger.expire(1_500);
        assert_eq!(ledger.take_queued(3, 1_500), Some(second));
        ledger.refuse(0);
        ledger.refuse(0);
        ledger.acknowledge(0, 0, 1_600);
        assert_eq!(ledger.take_queued(3, 1_600), None);
        let counts = ledger.check().unwrap();
        assert_eq!((counts.resent_frames, counts.expired_frames, counts.nacked_frames), (2, 1, 1));
    }

    #[test]
    fn leases_follow_the_service_time_and_latency_counts_tasks() {
        let mut ledger = ledger();
        ledger.take_new(10, 500, 1, 1_000);
        assert_eq!(ledger.lease_ns(), 1_000);
        ledger.acknowledge(0, 0, 11_000);
        assert!((200_000..201_000).contains(&ledger.lease_ns()), "{}", ledger.lease_ns());
        assert_eq!(ledger.latency_ns().len(), 10);
        assert!(ledger.latency_ns().equivalent(ledger.latency_ns().max(), 10_500));
    }

    #[test]
    fn a_batch_that_always_fails_ends_the_run() {
        let mut ledger = ledger();
        ledger.take_new(10, 0, 1, 0);
        for _ in 1..FAILURES_MAX {
            assert!(ledger.fail(0));
            ledger.take_queued(1, 0).unwrap();
        }
        assert!(!ledger.fail(0));
        assert!(ledger.fail(99));
        // If another executor succeeds, earlier failures do not matter.
        ledger.take_new(10, 0, 1, 0);
        ledger.take_new(10, 0, 1, 0);
        ledger.acknowledge(2, 2, 0);
        assert!((0..2 * FAILURES_MAX).all(|_| ledger.fail(2)));
    }

    #[test]
    fn a_second_incarnation_fills_the_gaps_first() {
        let mut ledger = Ledger::new(OPTIONS, &collected(&[(10, 20), (35, 40)]));
        assert_eq!(ledger.next_id(), 40);
        let ids = |first, count| Ids { first, count };
        for expected in [ids(0, 10), ids(20, 10), ids(30, 5)] {
            assert_eq!(ledger.take_hole((10, expected.first), 1, 7), None);
            assert_eq!(ledger.first_open_id(), 0);
            assert_eq!(ledger.take_hole((10, expected.end()), 1, 7).unwrap().ids, expected);
        }
        assert_eq!(ledger.take_hole((10, u64::MAX), 1, 7), None);
        assert_eq!(ledger.take_new(3, 7, 1, 7).ids, ids(40, 3));
        assert_eq!(ledger.check().unwrap().generated, 28);
        ledger.acknowledge(0, 1, 8);
        assert_eq!(ledger.first_open_id(), 30);
    }

    #[test]
    fn a_reconnected_collector_is_checked() {
        let mut ledger = ledger();
        for _ in 0..4 {
            ledger.take_new(10, 0, 1, 0);
        }
        ledger.acknowledge(1, 1, 0);
        // It has what it acknowledged, and a batch whose acknowledgement was lost.
        ledger.resume(&collected(&[(10, 20), (30, 40)]), 100).unwrap();
        assert_eq!(ledger.check().unwrap().collected, 20);
        let lost_ids = ledger.resume(&collected(&[(30, 40)]), 100);
        assert_eq!(lost_ids, Err(LedgerError::Forgotten(vec![(10, 20)])));
        let lost_ids = ledger.resume(&collected(&[]), 100);
        assert_eq!(lost_ids, Err(LedgerError::Forgotten(vec![(10, 20), (30, 40)])));
        let unknown = ledger.resume(&collected(&[(10, 50)]), 100);
        assert_eq!(unknown, Err(LedgerError::Unknown(vec![(40, 50)])));
    }

    #[test]
    fn inconsistent_counters_are_detected() {
        let mut ledger = ledger();
        ledger.take_new(10, 0, 1, 0);
        ledger.counts.collected += 1;
        let expected = LedgerError::Unbalanced { generated: 10, in_flight: 10, collected: 1 };
        assert_eq!(ledger.check(), Err(expected));
    }

    #[derive(Debug, Clone)]
    enum Step {
        New(u32),
        Again,
        Acknowledge(u64, u64),
        Refuse(u64),
        Lost(u64),
        Wait(u64),
        Resume,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1..10_u32).prop_map(Step::New),
            3 => Just(Step::Again),
            3 => (0..40_u64, 0..3_u64).prop_map(|(first, more)| Step::Acknowledge(first, first + more)),
            1 => (0..40_u64).prop_map(Step::Refuse),
            1 => (0..3_u64).prop_map(Step::Lost),
            1 => (0..2_000_u64).prop_map(Step::Wait),
            1 => Just(Step::Resume),
        ]
    }

    proptest! {
        /// After any sequence of events the counters are consistent, and once everything queued is
        /// sent and acknowledged, every id has been collected once.
        #[test]
        fn counters_are_consistent(steps in proptest::collection::vec(step(), 0..120)) {
            let mut ledger = ledger();
            let mut sent = Vec::<Assignment>::new();
            let mut known = Intervals::default();
            let mut now_ns = 0;
            for step in steps {
                match step {
                    Step::New(count) if ledger.has_space() => {
                        sent.push(ledger.take_new(count, now_ns, now_ns % 3, now_ns));
                    }
                    Step::New(_) => {}
                    Step::Again => sent.extend(ledger.take_queued(now_ns % 3, now_ns)),
                    Step::Acknowledge(first, last) => {
                        let of = |one: &&Assignment| (first..=last).contains(&one.sequence);
                        for one in sent.iter().filter(of) {
                            known.add(one.ids.iter());
                        }
                        let last_sent = sent.iter().map(|one| one.sequence).max();
                        if let Some(last_sent) = last_sent && first <= last_sent {
                            ledger.acknowledge(first, last.min(last_sent), now_ns);
                        }
                    }
                    Step::Refuse(sequence) => ledger.refuse(sequence),
                    Step::Lost(session) => ledger.session_lost(session),
                    Step::Wait(ns) => {
                        now_ns += ns;
                        ledger.expire(now_ns);
                    }
                    Step::Resume => prop_assert_eq!(ledger.resume(&known, now_ns), Ok(())),
                }
                let counts = ledger.check();
                prop_assert!(counts.is_ok(), "{:?}", counts);
                prop_assert_eq!(counts.unwrap().collected, known.total());
            }
            ledger.expire(u64::MAX);
            while let Some(one) = ledger.take_queued(9, now_ns) {
                ledger.acknowledge(one.sequence, one.sequence, now_ns);
                known.add(one.ids.iter());
            }
            prop_assert!(ledger.is_empty());
            prop_assert_eq!(known.total(), ledger.next_id());
        }
    }
}
