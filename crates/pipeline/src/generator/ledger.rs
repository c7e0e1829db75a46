//! Which tasks are under way: every batch from the moment it is generated until the collector has
//! it. Time is an argument; nothing here knows a socket.
//!
//! The state equation: generated = in flight + collected. The three are counted apart: `generated`
//! when ids are given out, `collected` when acknowledgements come, `in flight` by walking over the
//! batches. [`Ledger::check`] compares them.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use thiserror::Error;

use crate::intervals::Intervals;
use crate::task::Ids;

/// Batches in flight: 64 bytes each here, and as many gaps at the collector.
pub const WINDOW_MAX: usize = 1 << 16;

/// A batch that one executor keeps for long holds nobody else up: so many windows of batches may lie
/// between the oldest in flight and the newest.
const SPAN_WINDOWS: usize = 4;

/// A batch is given to another executor after this many median service times, or after
/// [`LedgerOptions::lease_ns_min`] if that is longer.
const LEASE_MEDIANS: u64 = 20;

/// Each time that a batch's lease runs out its next one is twice as long, so often: a time that was
/// guessed too short (nothing has been acknowledged yet) does not have all computed again and again.
const LEASE_DOUBLINGS_MAX: u32 = 6;

/// Longer times are recorded as this: a day.
const TIME_NS_MAX: u64 = 86_400_000_000_000;

/// A batch that so many executors could not compute ends the run.
pub const FAILURES_MAX: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerOptions {
    /// Batches in flight at once.
    pub window: usize,
    pub batch: u32,
    pub lease_ns_min: u64,
}

/// The books do not balance, or the collector has lost what it had acknowledged.
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
    /// To be sent, for the first time or again.
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
    /// When it left for the first time: which of several answers comes is not known, and the longer
    /// time makes leases that are never too short.
    first_sent_ns: u64,
    failures: u32,
    /// Leases of it that ran out.
    expiries: u32,
    state: State,
}

/// A batch that a session shall send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    pub sequence: u64,
    pub ids: Ids,
    pub due_ns: u64,
}

/// Tasks by what became of them. All count tasks, but for those that say frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ids given out in this run; those that an earlier life of the generator had collected are
    /// in neither `generated` nor `collected`.
    pub generated: u64,
    pub collected: u64,
    pub in_flight: u64,
    pub resent_frames: u64,
    pub expired_frames: u64,
    pub nacked_frames: u64,
    /// Acknowledged again.
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
    /// Batches that are not collected.
    open: usize,
    queue: VecDeque<u64>,
    /// Ids that an earlier life generated but did not get collected; taken before new ones.
    holes: VecDeque<(u64, u64)>,
    counts: Counts,
    /// Of a batch that is sent now. Looking the median up takes as long as a hundred tasks, so it is
    /// done when leases are looked at and not for each batch.
    lease_ns: u64,
    /// From when a batch left first to its acknowledgement.
    service_ns: Histogram<u64>,
    latency_ns: Histogram<u64>,
}

impl Ledger {
    /// `collected` is what the collector has of this stream's earlier epochs: this life fills the
    /// gaps first and goes on behind them.
    pub fn new(options: LedgerOptions, collected: &Intervals) -> Self {
        assert!(options.batch > 0);
        assert!((1..=WINDOW_MAX).contains(&options.window));
        let next_id = collected.end();
        let histogram = || {
            let mut times =
                Histogram::new_with_bounds(1, TIME_NS_MAX, 3).expect("bounds in order, 3 digits");
            // Writes all of it: otherwise each time of a new length takes some more memory, hours
            // later.
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

    /// Ids below this one have been given out.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Tasks of an earlier life that must be done again.
    pub fn hole_tasks(&self) -> u64 {
        self.holes.iter().map(|(start, end)| end - start).sum()
    }

    /// Whether a new batch can be added.
    pub fn has_room(&self) -> bool {
        let span_max = self.options.window * SPAN_WINDOWS;
        self.open < self.options.window && self.batches.len() < span_max
    }

    pub fn in_flight_frames(&self) -> usize {
        self.open
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.holes.is_empty()
    }

    /// A batch that waits to be sent again, or one of an earlier life.
    pub fn take_queued(&mut self, session: u64, now_ns: u64) -> Option<Assignment> {
        while let Some(sequence) = self.queue.pop_front() {
            // It may have been acknowledged while it waited.
            let Some(batch) = self.batch(sequence).copied() else { continue };
            if batch.state == State::Queued {
                self.counts.resent_frames += 1;
                return Some(self.send(sequence, session, now_ns));
            }
        }
        if !self.has_room() {
            return None;
        }
        let (start, end) = self.holes.pop_front()?;
        let cut = end.min(start + u64::from(self.options.batch));
        if cut < end {
            self.holes.push_front((cut, end));
        }
        let count = u32::try_from(cut - start).expect("cut to a batch");
        Some(self.push(Ids { first: start, count }, now_ns, session, now_ns))
    }

    /// `count` new tasks. There must be room.
    pub fn take_new(&mut self, count: u32, due_ns: u64, session: u64, now_ns: u64) -> Assignment {
        assert!(self.has_room());
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

    /// How long an executor may keep a batch, by what is known now.
    pub fn lease_ns(&self) -> u64 {
        let median_ns = self.service_ns.value_at_quantile(0.5);
        self.options.lease_ns_min.max(median_ns.saturating_mul(LEASE_MEDIANS))
    }

    /// The collector has the batches `first` to `last`.
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
        // Also of one whose lease has run out: that it takes so long is what must be learned.
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

    /// A batch came damaged, or its executor gave it up: it is sent again.
    pub fn refuse(&mut self, sequence: u64) {
        if self.requeue(sequence) {
            self.counts.nacked_frames += 1;
        }
    }

    /// An executor could not compute it. False: so many have tried that the run shall end.
    pub fn fail(&mut self, sequence: u64) -> bool {
        let Some(batch) = self.batch_mut(sequence) else { return true };
        if batch.state == State::Collected {
            // Another executor could.
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

    /// The executor of this session is gone. What it had done and sent comes twice then; the
    /// collector drops the second.
    pub fn session_lost(&mut self, session: u64) {
        self.requeue_where(
            |batch| matches!(batch.state, State::Sent { session: of, .. } if of == session),
        );
    }

    /// Leases that have run out.
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

    /// All leases start again: nothing could be acknowledged for a while.
    pub fn renew_leases(&mut self, now_ns: u64) {
        self.lease_ns = self.lease_ns();
        let until_ns = now_ns.saturating_add(self.lease_ns);
        for batch in &mut self.batches {
            if let State::Sent { expires_ns, .. } = &mut batch.state {
                *expires_ns = until_ns;
            }
        }
    }

    /// O(window); called ten times a second and when a connection breaks.
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

    /// The connection to the collector is back. What it has is acknowledged; that it still has all
    /// that was acknowledged before is checked.
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
        let forgotten = self.forgotten(collected);
        if !forgotten.is_empty() {
            return Err(LedgerError::Forgotten(forgotten));
        }
        self.forget_collected();
        self.renew_leases(now_ns);
        Ok(())
    }

    /// Ids that must be collected and are not: neither in flight nor a hole.
    fn forgotten(&self, collected: &Intervals) -> Vec<(u64, u64)> {
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

    /// Ids that are not collected yet, as ranges, in no order.
    pub fn open(&self) -> Vec<(u64, u64)> {
        let in_flight = self.batches.iter().filter(|batch| batch.state != State::Collected);
        let in_flight = in_flight.map(|batch| (batch.ids.first, batch.ids.end()));
        in_flight.chain(self.holes.iter().copied()).collect()
    }

    /// All counters; in flight by walking over the batches. O(window).
    pub fn counts(&self) -> Counts {
        let open = self.batches.iter().filter(|batch| batch.state != State::Collected);
        let in_flight = open.map(|batch| u64::from(batch.ids.count)).sum();
        Counts { in_flight, ..self.counts }
    }

    /// The state equation.
    pub fn check(&self) -> Result<Counts, LedgerError> {
        let counts = self.counts();
        let Counts { generated, collected, in_flight, .. } = counts;
        if generated == collected.saturating_add(in_flight) {
            return Ok(counts);
        }
        Err(LedgerError::Unbalanced { generated, in_flight, collected })
    }

    /// From when a task was due to its acknowledgement; a batch counts by its oldest task.
    pub fn latency_ns(&self) -> &Histogram<u64> {
        &self.latency_ns
    }

    /// From when a batch left first to its acknowledgement.
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
        assert!(!ledger.has_room());
        ledger.acknowledge(2, 3, 10);
        assert!(ledger.has_room());
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

    /// One batch that stays with its executor: the others go on for some windows, not for ever.
    #[test]
    fn a_batch_that_is_kept_does_not_hold_up_the_others() {
        let mut ledger = ledger();
        ledger.take_new(10, 0, 1, 0);
        let mut others = 0;
        while ledger.has_room() {
            let next = ledger.take_new(10, 0, 2, 0);
            ledger.acknowledge(next.sequence, next.sequence, 10);
            others += 1;
        }
        assert_eq!(others, OPTIONS.window * SPAN_WINDOWS - 1);
        assert_eq!(ledger.in_flight_frames(), 1);
        ledger.check().unwrap();
        ledger.acknowledge(0, 0, 10);
        assert!(ledger.is_empty() && ledger.has_room());
    }

    /// Batches take much longer than the shortest lease, and nothing has been acknowledged yet:
    /// each is given out again ever more rarely, and the first answer ends it.
    #[test]
    fn leases_that_were_guessed_too_short_are_mended() {
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
        // It waits to be sent again when the first answer comes.
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
        // Where another executor could, it does not matter how many could not.
        ledger.take_new(10, 0, 1, 0);
        ledger.take_new(10, 0, 1, 0);
        ledger.acknowledge(2, 2, 0);
        assert!((0..2 * FAILURES_MAX).all(|_| ledger.fail(2)));
    }

    #[test]
    fn a_second_life_fills_the_gaps_first() {
        let mut ledger = Ledger::new(OPTIONS, &collected(&[(10, 20), (35, 40)]));
        assert_eq!((ledger.next_id(), ledger.hole_tasks()), (40, 25));
        let ids = |first, count| Ids { first, count };
        for expected in [ids(0, 10), ids(20, 10), ids(30, 5)] {
            assert_eq!(ledger.take_queued(1, 7).unwrap().ids, expected);
        }
        assert_eq!(ledger.take_queued(1, 7), None);
        assert_eq!(ledger.take_new(3, 7, 1, 7).ids, ids(40, 3));
        assert_eq!(ledger.check().unwrap().generated, 28);
    }

    #[test]
    fn a_collector_that_comes_back_is_compared() {
        let mut ledger = ledger();
        for _ in 0..4 {
            ledger.take_new(10, 0, 1, 0);
        }
        ledger.acknowledge(1, 1, 0);
        // It has what it acknowledged, and a batch whose acknowledgement was lost.
        ledger.resume(&collected(&[(10, 20), (30, 40)]), 100).unwrap();
        assert_eq!(ledger.check().unwrap().collected, 20);
        let forgotten = ledger.resume(&collected(&[(30, 40)]), 100);
        assert_eq!(forgotten, Err(LedgerError::Forgotten(vec![(10, 20)])));
        let forgotten = ledger.resume(&collected(&[]), 100);
        assert_eq!(forgotten, Err(LedgerError::Forgotten(vec![(10, 20), (30, 40)])));
        let unknown = ledger.resume(&collected(&[(10, 50)]), 100);
        assert_eq!(unknown, Err(LedgerError::Unknown(vec![(40, 50)])));
    }

    #[test]
    fn books_that_do_not_balance_are_found() {
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
        /// Whatever happens in whatever order: the books balance, and when all that is queued is
        /// sent and acknowledged, every id has been collected once.
        #[test]
        fn books_balance(steps in proptest::collection::vec(step(), 0..120)) {
            let mut ledger = ledger();
            let mut sent = Vec::<Assignment>::new();
            let mut known = Intervals::default();
            let mut now_ns = 0;
            for step in steps {
                match step {
                    Step::New(count) if ledger.has_room() => {
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
