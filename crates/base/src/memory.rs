//! A tree of memory trackers: how many bytes each part of the program holds, its limit, and its
//! peak.
//!
//! A tracker's bytes are its own and those of everything below it. [`Tracker::consume`] therefore
//! walks up to the root: one atomic addition per level, on cache lines that every thread shares.
//! Reactors do not pay that per request: each owns a [`LocalTracker`] per node it uses, which
//! gathers changes and reports them to the tree only when they exceed its slack or when the turn
//! ends.
//!
//! Within a turn, the tree therefore lags by at most `slack x reactors` per node; between turns it
//! is exact. A limit can be exceeded by the same amount.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::units::{Limit, percent_of};

/// A tracker is above its soft limit when it holds more than this share of its limit.
const SOFT_LIMIT_PERCENT: u8 = 85;

/// Bytes by which a [`LocalTracker`] may drift from the shared counters: large enough that
/// thousands of small requests cost one update, small enough that 64 reactors hide only 4 MiB per
/// node.
pub const LOCAL_SLACK_BYTES: u32 = 64 * 1024;

/// One node. Shared; every method may be called from any thread.
///
/// Invariant: bytes held = bytes consumed here - bytes released here + bytes held by the children.
/// The counter is signed because a release may be counted before the matching consumption when a
/// connection moves between reactors.
#[derive(Debug)]
pub struct Tracker {
    path: String,
    parent: Option<Arc<Tracker>>,
    /// Capacity that percentages at the root refer to, bytes. Zero: unknown.
    capacity_bytes: u64,
    limit: AtomicU64,
    /// See [`Tracker::set_reserved`].
    reserved_bytes: AtomicU64,
    current_bytes: AtomicI64,
    peak_bytes: AtomicI64,
    children: Mutex<Vec<Weak<Tracker>>>,
}

/// Consumption was refused: this tracker is full. It is the tracker of the call or one above it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "memory limit of {path} reached: {requested_bytes} bytes asked, {current_bytes} of \
     {limit_bytes} in use"
)]
pub struct LimitReached {
    pub path: String,
    pub requested_bytes: u64,
    pub current_bytes: u64,
    pub limit_bytes: u64,
}

/// One line of [`Tracker::tree`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackerState {
    /// Names from the root, joined by `/`.
    pub path: String,
    /// Zero for the tracker on which the method was called.
    pub depth: usize,
    pub current_bytes: u64,
    pub peak_bytes: u64,
    pub limit: Limit,
    /// The limit in bytes, percentages resolved.
    pub limit_bytes: Option<u64>,
    pub soft_limit_bytes: Option<u64>,
}

impl Tracker {
    /// Creates the root of a tree. `capacity_bytes` is what its percentages refer to: the memory of
    /// the machine.
    pub fn root(name: &str, limit: Limit, capacity_bytes: Option<u64>) -> Arc<Self> {
        Arc::new(Self::new(name.to_owned(), None, limit, capacity_bytes.unwrap_or(0)))
    }

    /// Creates a tracker below this one; a percentage is a share of this one's limit.
    pub fn child(self: &Arc<Self>, name: &str, limit: Limit) -> Arc<Self> {
        let path = format!("{}/{name}", self.path);
        let child = Arc::new(Self::new(path, Some(Arc::clone(self)), limit, 0));
        let mut children = self.children.lock();
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(&child));
        child
    }

    fn new(path: String, parent: Option<Arc<Self>>, limit: Limit, capacity_bytes: u64) -> Self {
        Self {
            path,
            parent,
            capacity_bytes,
            limit: AtomicU64::new(pack(limit)),
            reserved_bytes: AtomicU64::new(0),
            current_bytes: AtomicI64::new(0),
            peak_bytes: AtomicI64::new(0),
            children: Mutex::new(Vec::new()),
        }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    pub fn limit(&self) -> Limit {
        unpack(self.limit.load(Ordering::Relaxed))
    }

    /// Takes effect with the next consumption; bytes already held are kept.
    pub fn set_limit(&self, limit: Limit) {
        self.limit.store(pack(limit), Ordering::Relaxed);
    }

    /// Part of the limit that is in use without being consumed here. [`Tracker::limit_bytes`] is
    /// the rest.
    pub fn set_reserved(&self, bytes: u64) {
        self.reserved_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes.load(Ordering::Relaxed)
    }

    /// The limit in bytes, percentages resolved along the chain, less what is reserved. O(depth).
    pub fn limit_bytes(&self) -> Option<u64> {
        let limit_bytes = match &self.parent {
            Some(parent) if matches!(self.limit(), Limit::Percent(_)) => {
                self.limit().resolve(parent.limit_bytes())
            }
            Some(_) => self.limit().resolve(None),
            None => self.limit().resolve((self.capacity_bytes > 0).then_some(self.capacity_bytes)),
        };
        limit_bytes.map(|bytes| bytes.saturating_sub(self.reserved_bytes()))
    }

    pub fn soft_limit_bytes(&self) -> Option<u64> {
        self.limit_bytes().map(|limit| percent_of(limit, SOFT_LIMIT_PERCENT))
    }

    pub fn current_bytes(&self) -> u64 {
        non_negative(self.current_bytes.load(Ordering::Relaxed))
    }

    /// The largest number of bytes held at once, since the start or [`Tracker::reset_peak`].
    pub fn peak_bytes(&self) -> u64 {
        non_negative(self.peak_bytes.load(Ordering::Relaxed))
    }

    /// Sets the peak to the bytes held now, here and below.
    pub fn reset_peak(&self) {
        self.peak_bytes.store(self.current_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        for child in self.live_children() {
            child.reset_peak();
        }
    }

    /// Bytes until the first limit from here to the root; `u64::MAX` without limits.
    pub fn headroom_bytes(&self) -> u64 {
        let room = |tracker: &Tracker| {
            tracker.limit_bytes().map(|limit| limit.saturating_sub(tracker.current_bytes()))
        };
        self.chain().filter_map(room).min().unwrap_or(u64::MAX)
    }

    /// Adds bytes here and to every tracker above, whatever the limits: for memory that is already
    /// in use.
    pub fn consume(&self, bytes: u64) {
        let bytes = signed(bytes);
        for tracker in self.chain() {
            let before = tracker.current_bytes.fetch_add(bytes, Ordering::Relaxed);
            tracker.raise_peak(before.saturating_add(bytes));
        }
    }

    /// Reverts [`Tracker::consume`].
    pub fn release(&self, bytes: u64) {
        let bytes = signed(bytes);
        for tracker in self.chain() {
            tracker.current_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Consumes if every limit from here to the root allows it; otherwise changes nothing and names
    /// the tracker that is full. Other threads may observe a failing attempt for a moment.
    pub fn try_consume(&self, bytes: u64) -> Result<(), LimitReached> {
        for (level, tracker) in self.chain().enumerate() {
            if let Err(refusal) = tracker.add_within_limit(bytes) {
                for taken in self.chain().take(level) {
                    taken.current_bytes.fetch_sub(signed(bytes), Ordering::Relaxed);
                }
                return Err(refusal);
            }
        }
        for tracker in self.chain() {
            tracker.raise_peak(tracker.current_bytes.load(Ordering::Relaxed));
        }
        Ok(())
    }

    fn add_within_limit(&self, bytes: u64) -> Result<(), LimitReached> {
        let limit_bytes = self.limit_bytes().unwrap_or(u64::MAX);
        self.current_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |current| {
                let after = current.checked_add(i64::try_from(bytes).ok()?)?;
                (non_negative(after) <= limit_bytes).then_some(after)
            })
            .map(|_| ())
            .map_err(|current| LimitReached {
                path: self.path.clone(),
                requested_bytes: bytes,
                current_bytes: non_negative(current),
                limit_bytes,
            })
    }

    /// This tracker and all below, parents first, children in order of creation.
    pub fn tree(&self) -> Vec<TrackerState> {
        let mut states = Vec::new();
        self.append_tree(0, &mut states);
        states
    }

    fn append_tree(&self, depth: usize, states: &mut Vec<TrackerState>) {
        states.push(TrackerState {
            path: self.path.clone(),
            depth,
            current_bytes: self.current_bytes(),
            peak_bytes: self.peak_bytes(),
            limit: self.limit(),
            limit_bytes: self.limit_bytes(),
            soft_limit_bytes: self.soft_limit_bytes(),
        });
        for child in self.live_children() {
            child.append_tree(depth + 1, states);
        }
    }

    fn live_children(&self) -> Vec<Arc<Tracker>> {
        self.children.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// This tracker, its parent, and so on to the root.
    fn chain(&self) -> impl Iterator<Item = &Tracker> {
        std::iter::successors(Some(self), |tracker| tracker.parent.as_deref())
    }

    /// Reads before it writes: at a steady level the cache line stays shared.
    fn raise_peak(&self, bytes: i64) {
        if bytes > self.peak_bytes.load(Ordering::Relaxed) {
            self.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Tracker {
    /// Removes the bytes that a dropped tracker still held from the trackers above it.
    fn drop(&mut self) {
        let remaining = *self.current_bytes.get_mut();
        for tracker in self.chain().skip(1) {
            tracker.current_bytes.fetch_sub(remaining, Ordering::Relaxed);
        }
    }
}

/// One thread's handle on a [`Tracker`]: gathers changes and reports them to the tree in batches.
#[derive(Debug)]
pub struct LocalTracker {
    shared: Arc<Tracker>,
    slack_bytes: i64,
    /// Consumed minus released since the shared counters were last updated.
    drift_bytes: i64,
    /// Room up to the first limit when the shared counters were last read.
    headroom_bytes: i64,
}

impl LocalTracker {
    /// With the usual slack, [`LOCAL_SLACK_BYTES`].
    pub fn new(shared: Arc<Tracker>) -> Self {
        Self::with_slack(shared, LOCAL_SLACK_BYTES)
    }

    /// A slack of zero reports every change to the tree.
    pub fn with_slack(shared: Arc<Tracker>, slack_bytes: u32) -> Self {
        let headroom_bytes = signed(shared.headroom_bytes());
        Self { shared, slack_bytes: i64::from(slack_bytes), drift_bytes: 0, headroom_bytes }
    }

    pub fn shared(&self) -> &Arc<Tracker> {
        &self.shared
    }

    /// Adds bytes regardless of the limits. No atomic operation while the drift is within the
    /// slack.
    pub fn consume(&mut self, bytes: u64) {
        self.drift_bytes = self.drift_bytes.saturating_add(signed(bytes));
        if self.drift_bytes > self.slack_bytes {
            self.flush();
        }
    }

    pub fn release(&mut self, bytes: u64) {
        self.drift_bytes = self.drift_bytes.saturating_sub(signed(bytes));
        if self.drift_bytes < -self.slack_bytes {
            self.flush();
        }
    }

    /// Consumes if the limits allow it. Does not touch the shared counters while the drift fits
    /// both the slack and the room that was last read; otherwise the tree decides.
    pub fn try_consume(&mut self, bytes: u64) -> Result<(), LimitReached> {
        let drift_bytes = self.drift_bytes.saturating_add(signed(bytes));
        if drift_bytes <= self.slack_bytes.min(self.headroom_bytes) {
            self.drift_bytes = drift_bytes;
            return Ok(());
        }
        self.flush();
        let outcome = self.shared.try_consume(bytes);
        self.headroom_bytes = signed(self.shared.headroom_bytes());
        outcome
    }

    /// Reports everything gathered so far to the tree. Called at the end of a turn; free when
    /// nothing changed.
    pub fn flush(&mut self) {
        match std::mem::take(&mut self.drift_bytes) {
            0 => return,
            drift if drift > 0 => self.shared.consume(drift.unsigned_abs()),
            drift => self.shared.release(drift.unsigned_abs()),
        }
        self.headroom_bytes = signed(self.shared.headroom_bytes());
    }
}

impl Drop for LocalTracker {
    fn drop(&mut self) {
        self.flush();
    }
}

/// No machine has 2^63 bytes; a larger number is clamped to that.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn non_negative(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

/// A limit in one atomic word: zero means no limit, the top bit marks a percentage.
const PERCENT_BIT: u64 = 1 << 63;

fn pack(limit: Limit) -> u64 {
    match limit {
        Limit::None => 0,
        Limit::Bytes(bytes) => bytes.clamp(1, PERCENT_BIT - 1),
        Limit::Percent(percent) => PERCENT_BIT | u64::from(percent),
    }
}

fn unpack(word: u64) -> Limit {
    match word {
        0 => Limit::None,
        word if word & PERCENT_BIT == 0 => Limit::Bytes(word),
        word => Limit::Percent(u8::try_from(word & 0xff).unwrap_or(100)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn family() -> (Arc<Tracker>, Arc<Tracker>, Arc<Tracker>) {
        let server = Tracker::root("server", Limit::Bytes(1_000), None);
        let buffers = server.child("read-buffer", Limit::Percent(50));
        let resp = buffers.child("resp", Limit::None);
        (server, buffers, resp)
    }

    #[test]
    fn bytes_count_all_the_way_up() {
        let (server, buffers, resp) = family();
        resp.consume(100);
        buffers.consume(20);
        assert_eq!(resp.current_bytes(), 100);
        assert_eq!(buffers.current_bytes(), 120);
        assert_eq!(server.current_bytes(), 120);
        resp.release(100);
        assert_eq!(server.current_bytes(), 20);
        assert_eq!(server.peak_bytes(), 120);
        server.reset_peak();
        assert_eq!(server.peak_bytes(), 20);
        assert_eq!(resp.peak_bytes(), 0);
    }

    #[test]
    fn reserved_bytes_lower_the_limit_and_limits_relative_to_it() {
        let (server, buffers, resp) = family();
        server.set_reserved(600);
        assert_eq!((server.limit_bytes(), buffers.limit_bytes()), (Some(400), Some(200)));
        assert_eq!(resp.try_consume(201).unwrap_err().path, "server/read-buffer");
        assert_eq!(server.try_consume(401).unwrap_err().limit_bytes, 400);
        assert_eq!(server.current_bytes(), 0);
        server.set_reserved(2_000);
        assert_eq!(server.limit_bytes(), Some(0));
        server.try_consume(1).unwrap_err();
    }

    #[test]
    fn the_tracker_that_blocks_is_named_and_nothing_is_kept() {
        let (server, buffers, resp) = family();
        resp.try_consume(500).unwrap();
        let refusal = resp.try_consume(1).unwrap_err();
        assert_eq!(refusal.path, "server/read-buffer");
        assert_eq!((refusal.current_bytes, refusal.limit_bytes), (500, 500));
        assert_eq!((resp.current_bytes(), buffers.current_bytes()), (500, 500));

        server.consume(600);
        resp.release(400);
        let refusal = resp.try_consume(301).unwrap_err();
        assert_eq!(refusal.path, "server");
        assert_eq!((resp.current_bytes(), server.current_bytes()), (100, 700));
        assert_eq!(buffers.peak_bytes(), 500);
        resp.try_consume(300).unwrap();
    }

    #[test]
    fn limits_change_at_run_time_and_percent_follows_the_parent() {
        let (server, buffers, resp) = family();
        assert_eq!(buffers.limit_bytes(), Some(500));
        assert_eq!(resp.limit_bytes(), None);
        server.set_limit(Limit::Bytes(100));
        assert_eq!(buffers.limit_bytes(), Some(50));
        assert!(resp.try_consume(51).is_err());
        server.set_limit(Limit::None);
        assert_eq!(buffers.limit_bytes(), None);
        resp.try_consume(1 << 40).unwrap();
    }

    #[test]
    fn a_percentage_at_the_root_is_of_the_machine() {
        let known = Tracker::root("server", Limit::Percent(90), Some(1_000));
        assert_eq!(known.limit_bytes(), Some(900));
        let unknown = Tracker::root("server", Limit::Percent(90), None);
        assert_eq!(unknown.limit_bytes(), None);
    }

    #[test]
    fn asking_for_more_than_exists_is_refused() {
        let root = Tracker::root("server", Limit::None, None);
        root.consume(1);
        assert!(root.try_consume(u64::MAX).is_err());
        assert_eq!(root.current_bytes(), 1);
    }

    #[test]
    fn a_dropped_tracker_releases_its_bytes() {
        let (server, buffers, resp) = family();
        resp.consume(100);
        drop(resp);
        assert_eq!((buffers.current_bytes(), server.current_bytes()), (0, 0));
        assert_eq!(server.tree().len(), 2);
    }

    #[test]
    fn the_tree_lists_parents_first() {
        let (server, _buffers, resp) = family();
        resp.consume(30);
        let log = server.child("log", Limit::Bytes(64));
        let rows: Vec<_> = server.tree().into_iter().map(|s| (s.depth, s.path)).collect();
        let expected = [
            (0, "server"),
            (1, "server/read-buffer"),
            (2, "server/read-buffer/resp"),
            (1, "server/log"),
        ];
        assert_eq!(rows, expected.map(|(depth, path)| (depth, path.to_owned())));
        assert_eq!(log.tree()[0].soft_limit_bytes, Some(54));
    }

    #[test]
    fn a_local_tracker_updates_the_tree_late_but_exactly() {
        let (server, _buffers, resp) = family();
        server.set_limit(Limit::None);
        let mut local = LocalTracker::with_slack(Arc::clone(&resp), 100);
        local.consume(60);
        local.consume(40);
        assert_eq!(server.current_bytes(), 0);
        local.consume(1);
        assert_eq!(server.current_bytes(), 101);
        local.release(100);
        assert_eq!(server.current_bytes(), 101);
        local.flush();
        assert_eq!(server.current_bytes(), 1);
        local.release(1);
        drop(local);
        assert_eq!((server.current_bytes(), server.peak_bytes()), (0, 101));
    }

    #[test]
    fn a_local_tracker_sees_the_limit_within_its_slack() {
        let (_server, _buffers, resp) = family();
        let mut local = LocalTracker::new(Arc::clone(&resp));
        local.try_consume(500).unwrap();
        assert_eq!(local.try_consume(1).unwrap_err().path, "server/read-buffer");
        local.release(1);
        local.try_consume(1).unwrap();
        assert!(local.try_consume(1).is_err());
        assert_eq!(resp.current_bytes(), 500);
    }

    #[test]
    fn bytes_may_be_released_by_another_thread_first() {
        let (server, _buffers, resp) = family();
        let mut first = LocalTracker::new(Arc::clone(&resp));
        let mut second = LocalTracker::new(Arc::clone(&resp));
        first.consume(10);
        second.release(10);
        second.flush();
        assert_eq!(server.current_bytes(), 0);
        first.flush();
        assert_eq!((server.current_bytes(), resp.current_bytes()), (0, 0));
        resp.consume(3);
        assert_eq!(server.current_bytes(), 3);
    }

    #[test]
    fn threads_agree_on_the_total() {
        let (server, _buffers, resp) = family();
        server.set_limit(Limit::None);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut local = LocalTracker::with_slack(Arc::clone(&resp), 64);
                    for step in 0..10_000_u64 {
                        local.consume(step % 7);
                        local.release(step % 5);
                    }
                });
            }
        });
        let consumed: u64 = (0..10_000).map(|step| step % 7).sum();
        let released: u64 = (0..10_000).map(|step| step % 5).sum();
        assert_eq!(server.current_bytes(), 4 * (consumed - released));
    }

    proptest! {
        /// Against plain numbers: leaf and parent totals, no wrap-around, limits never exceeded.
        #[test]
        fn the_tree_agrees_with_plain_numbers(
            steps in prop::collection::vec((0_usize..3, any::<bool>(), 0_u64..400), 1..200)
        ) {
            let root = Tracker::root("server", Limit::Bytes(1_000), None);
            let leaves: Vec<_> =
                ["a", "b", "c"].iter().map(|name| root.child(name, Limit::Percent(50))).collect();
            let mut held = [0_u64; 3];
            for (leaf, consume, bytes) in steps {
                if consume {
                    let fits = held[leaf] + bytes <= 500 && held.iter().sum::<u64>() + bytes <= 1_000;
                    prop_assert_eq!(leaves[leaf].try_consume(bytes).is_ok(), fits);
                    held[leaf] += if fits { bytes } else { 0 };
                } else {
                    let bytes = bytes.min(held[leaf]);
                    leaves[leaf].release(bytes);
                    held[leaf] -= bytes;
                }
                for (leaf, held) in leaves.iter().zip(held) {
                    prop_assert_eq!(leaf.current_bytes(), held);
                }
                prop_assert_eq!(root.current_bytes(), held.iter().sum::<u64>());
                prop_assert!(root.peak_bytes() >= root.current_bytes());
                prop_assert!(root.peak_bytes() <= 1_000);
            }
        }

        #[test]
        fn limits_survive_packing(bytes in 1_u64..(1 << 63), percent in 1_u8..=100) {
            for limit in [Limit::None, Limit::Bytes(bytes), Limit::Percent(percent)] {
                prop_assert_eq!(unpack(pack(limit)), limit);
            }
        }
    }
}
