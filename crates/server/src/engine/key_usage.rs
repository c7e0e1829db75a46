//! What HOTKEYS measures between its start and its end: the processor time and the bytes of
//! commands, by key.
//!
//! Each reactor keeps the keys with the largest sums; a new key replaces the smallest one and
//! inherits its sum, so that a hot key stays regardless of the others. Without a measurement a
//! command pays one load.
// Source: Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::time::{MonoNs, Now, UnixMs};
use parking_lot::Mutex;

use super::process::{CpuTime, cpu_time};

/// Maximum keys of a result.
pub(crate) const COUNT_MAX: usize = 64;
/// Keys that are kept for each key of the result: more of them, because some inherit their sums.
const KEPT_PER_KEY: usize = 10;
/// Bytes of a key that are kept; the hash of all bytes identifies a key.
const KEY_BYTES_MAX: usize = 1024;

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) has_time: bool,
    pub(crate) has_bytes: bool,
    /// Keys of the result.
    pub(crate) count: usize,
    /// Commands per sample.
    pub(crate) ratio: u64,
    /// The slots of keys, in ascending order; empty: all.
    pub(crate) slots: Vec<usize>,
}

impl Plan {
    pub(crate) fn has_slot(&self, slot: usize) -> bool {
        self.slots.is_empty() || self.slots.binary_search(&slot).is_ok()
    }
}

/// Sums of commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) ns: u64,
    pub(crate) bytes: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: Sums) {
        self.ns = self.ns.saturating_add(other.ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

#[derive(Debug, Clone)]
struct Key {
    hash: u64,
    name: Box<[u8]>,
    sum: u64,
    /// Upper bound on the part of the sum that is of replaced keys.
    inherited: u64,
}

/// The keys with the largest sums.
#[derive(Debug, Clone, Default)]
struct Largest(Vec<Key>);

impl Largest {
    fn add(&mut self, hash: u64, name: &[u8], amount: u64, kept_max: usize) {
        if let Some(known) = self.0.iter_mut().find(|known| known.hash == hash) {
            known.sum = known.sum.saturating_add(amount);
            return;
        }
        let name = name[..name.len().min(KEY_BYTES_MAX)].into();
        let mut new = Key { hash, name, sum: amount, inherited: 0 };
        if self.0.len() < kept_max {
            self.0.push(new);
            return;
        }
        let smallest = self.0.iter_mut().min_by_key(|known| known.sum).expect("it is full");
        new.inherited = smallest.sum;
        new.sum = new.sum.saturating_add(smallest.sum);
        *smallest = new;
    }

    /// Adds the sums of another reactor.
    fn merge(&mut self, other: &Largest) {
        for key in &other.0 {
            match self.0.iter_mut().find(|known| known.hash == key.hash) {
                None => self.0.push(key.clone()),
                Some(known) => {
                    known.sum = known.sum.saturating_add(key.sum);
                    known.inherited = known.inherited.saturating_add(key.inherited);
                }
            }
        }
    }

    /// Names with the sums that are certainly theirs, the largest first.
    fn top(mut self, count: usize) -> Vec<(Box<[u8]>, u64)> {
        let certain = |key: &Key| key.sum - key.inherited;
        self.0.sort_by_key(|key| Reverse(certain(key)));
        self.0.retain(|key| certain(key) > 0);
        self.0.truncate(count);
        self.0.into_iter().map(|key| (key.name.clone(), certain(&key))).collect()
    }
}

/// The measurement of one reactor.
#[derive(Debug, Default)]
struct Part {
    plan: Option<Arc<Plan>>,
    until: MonoNs,
    all: Sums,
    /// Commands with keys in the selected slots.
    selected: Sums,
    /// Those of them that were sampled.
    sampled: Sums,
    /// Bytes of the sampled keys.
    key_bytes: u64,
    by_time: Largest,
    by_bytes: Largest,
}

/// A started or ended measurement.
#[derive(Debug, Clone)]
struct Measurement {
    plan: Arc<Plan>,
    began: Now,
    cpu: Option<CpuTime>,
    until: MonoNs,
    /// When it was stopped, by a command or by its time.
    ended: Option<MonoNs>,
}

/// What HOTKEYS GET shows.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) plan: Arc<Plan>,
    pub(crate) is_active: bool,
    pub(crate) began: UnixMs,
    pub(crate) duration_ms: u64,
    /// Since the start.
    pub(crate) cpu: CpuTime,
    pub(crate) all: Sums,
    pub(crate) selected: Sums,
    pub(crate) sampled: Sums,
    pub(crate) key_bytes: u64,
    /// In nanoseconds.
    pub(crate) by_time: Vec<(Box<[u8]>, u64)>,
    pub(crate) by_bytes: Vec<(Box<[u8]>, u64)>,
}

#[derive(Debug)]
pub(crate) struct KeyUsage {
    is_active: AtomicBool,
    measurement: Mutex<Option<Measurement>>,
    parts: Box<[Mutex<Part>]>,
}

impl KeyUsage {
    pub(crate) fn new(reactors: usize) -> KeyUsage {
        KeyUsage {
            is_active: AtomicBool::new(false),
            measurement: Mutex::default(),
            parts: (0..reactors).map(|_| Mutex::default()).collect(),
        }
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Begins a measurement that ends at `until`. False: another one is in progress.
    pub(crate) fn start(&self, plan: Plan, now: Now, until: MonoNs) -> bool {
        let mut measurement = self.measurement.lock();
        self.end_if_due(&mut measurement, now.mono);
        if measurement.as_ref().is_some_and(|it| it.ended.is_none()) {
            return false;
        }
        let plan = Arc::new(plan);
        for part in &self.parts {
            *part.lock() = Part { plan: Some(Arc::clone(&plan)), until, ..Part::default() };
        }
        *measurement = Some(Measurement { plan, began: now, cpu: cpu_time(), until, ended: None });
        self.is_active.store(true, Ordering::Relaxed);
        true
    }

    fn end_if_due(&self, measurement: &mut Option<Measurement>, now: MonoNs) {
        if let Some(one) = measurement.as_mut().filter(|it| it.ended.is_none() && it.until <= now) {
            one.ended = Some(one.until);
            self.is_active.store(false, Ordering::Relaxed);
        }
    }

    /// Ends the measurement. False: there is none in progress.
    pub(crate) fn stop(&self, now: MonoNs) -> bool {
        let mut measurement = self.measurement.lock();
        self.end_if_due(&mut measurement, now);
        let running = measurement.as_mut().filter(|it| it.ended.is_none());
        let Some(running) = running else { return false };
        running.ended = Some(now);
        self.is_active.store(false, Ordering::Relaxed);
        true
    }

    /// Frees the result. False: the measurement has not ended.
    pub(crate) fn reset(&self, now: MonoNs) -> bool {
        let mut measurement = self.measurement.lock();
        self.end_if_due(&mut measurement, now);
        if measurement.as_ref().is_some_and(|it| it.ended.is_none()) {
            return false;
        }
        *measurement = None;
        self.parts.iter().for_each(|part| *part.lock() = Part::default());
        true
    }

    /// Adds a command with its keys: hash, name, slot. `random` decides whether it is sampled.
    pub(crate) fn note(
        &self,
        reactor: usize,
        now: MonoNs,
        random: u64,
        spent: Sums,
        keys: &[(u64, &[u8], usize)],
    ) {
        let mut part = self.parts[reactor].lock();
        let Some(plan) = part.plan.clone().filter(|_| now < part.until) else { return };
        part.all.add(spent);
        if !keys.iter().any(|(_, _, slot)| plan.has_slot(*slot)) {
            return;
        }
        part.selected.add(spent);
        if !random.is_multiple_of(plan.ratio) {
            return;
        }
        part.sampled.add(spent);
        let kept_max = plan.count * KEPT_PER_KEY;
        let count = keys.len() as u64;
        for (hash, name, _) in keys.iter().filter(|(_, _, slot)| plan.has_slot(*slot)) {
            if plan.has_time {
                part.by_time.add(*hash, name, spent.ns / count, kept_max);
            }
            if plan.has_bytes {
                part.by_bytes.add(*hash, name, spent.bytes / count, kept_max);
                part.key_bytes = part.key_bytes.saturating_add(spent.bytes / count);
            }
        }
    }

    pub(crate) fn report(&self, now: MonoNs) -> Option<Report> {
        let mut measurement = self.measurement.lock();
        self.end_if_due(&mut measurement, now);
        let Measurement { plan, began, cpu, ended, .. } = measurement.clone()?;
        let (mut all, mut selected, mut sampled) = <(Sums, Sums, Sums)>::default();
        let (mut by_time, mut by_bytes, mut key_bytes) = <(Largest, Largest, u64)>::default();
        for part in &self.parts {
            let part = part.lock();
            all.add(part.all);
            selected.add(part.selected);
            sampled.add(part.sampled);
            key_bytes = key_bytes.saturating_add(part.key_bytes);
            by_time.merge(&part.by_time);
            by_bytes.merge(&part.by_bytes);
        }
        let cpu = match (cpu, cpu_time()) {
            (Some(before), Some(after)) => CpuTime {
                system_us: after.system_us - before.system_us,
                user_us: after.user_us - before.user_us,
            },
            _ => CpuTime { system_us: 0, user_us: 0 },
        };
        Some(Report {
            is_active: ended.is_none(),
            began: began.unix,
            duration_ms: ended.unwrap_or(now).since(began.mono) / 1_000_000,
            cpu,
            all,
            selected,
            sampled,
            key_bytes,
            by_time: by_time.top(plan.count),
            by_bytes: by_bytes.top(plan.count),
            plan,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { has_time: true, has_bytes: true, count: 2, ratio: 1, slots: Vec::new() }
    }

    fn at(seconds: u64) -> Now {
        Now {
            mono: MonoNs(seconds * 1_000_000_000),
            unix: UnixMs(seconds * 1000),
            ..Now::default()
        }
    }

    #[test]
    fn a_hot_key_is_found_among_many_others() {
        let usage = KeyUsage::new(2);
        assert!(usage.start(plan(), at(1), MonoNs(u64::MAX)));
        for n in 0..1000u64 {
            let name = n.to_string();
            let reactor = usize::from(n % 2 == 0);
            let one = Sums { ns: 10, bytes: 1 };
            usage.note(reactor, at(2).mono, 0, one, &[(n, name.as_bytes(), 0)]);
            usage.note(reactor, at(2).mono, 0, one, &[(u64::MAX, b"hot", 0)]);
        }
        let report = usage.report(at(3).mono).unwrap();
        assert!(report.is_active);
        assert_eq!((report.began, report.duration_ms), (UnixMs(1000), 2000));
        assert_eq!(report.all, Sums { ns: 20_000, bytes: 2000 });
        assert_eq!(report.by_time[0], (b"hot"[..].into(), 10_000));
        assert_eq!(report.by_bytes[0], (b"hot"[..].into(), 1000));
        assert_eq!(report.by_time.len(), 2);
        let kept = usage.parts[0].lock().by_time.0.len();
        assert_eq!(kept, 2 * KEPT_PER_KEY, "other keys need no more memory");
    }

    #[test]
    fn a_measurement_ends_by_a_command_or_by_its_time() {
        let usage = KeyUsage::new(1);
        assert!(usage.report(at(0).mono).is_none());
        assert!(!usage.stop(at(0).mono));
        assert!(usage.start(plan(), at(1), at(5).mono));
        assert!(!usage.start(plan(), at(2), at(5).mono), "one is in progress");
        assert!(!usage.reset(at(2).mono));
        assert!(usage.stop(at(3).mono));
        assert!(!usage.is_active());
        assert_eq!(usage.report(at(9).mono).unwrap().duration_ms, 2000);
        assert!(usage.start(plan(), at(10), at(15).mono));
        usage.note(0, at(16).mono, 0, Sums { ns: 1, bytes: 1 }, &[(1, b"late", 0)]);
        let report = usage.report(at(20).mono).unwrap();
        assert_eq!((report.is_active, report.duration_ms), (false, 5000));
        assert_eq!(report.all, Sums::default());
        assert!(usage.reset(at(20).mono));
        assert!(usage.report(at(20).mono).is_none());
    }

    #[test]
    fn slots_and_samples_are_chosen() {
        let usage = KeyUsage::new(1);
        let plan = Plan { ratio: 4, slots: vec![3, 7], ..plan() };
        assert!(usage.start(plan, at(1), MonoNs(u64::MAX)));
        let spent = Sums { ns: 100, bytes: 10 };
        usage.note(0, at(2).mono, 0, spent, &[(1, b"a", 3), (2, b"b", 4)]);
        usage.note(0, at(2).mono, 1, spent, &[(1, b"a", 3)]);
        usage.note(0, at(2).mono, 0, spent, &[(2, b"b", 4)]);
        let report = usage.report(at(3).mono).unwrap();
        assert_eq!((report.all.ns, report.selected.ns, report.sampled.ns), (300, 200, 100));
        assert_eq!(report.by_time, [(b"a"[..].into(), 50)]);
        assert_eq!(report.key_bytes, 5);
    }
}
