//! Steps 1 and 4: what counting costs, and what it costs to count wrongly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::repro::ablation::{
    Ablation, Expects, Role, Sample, Variant, cores, join, per_second, real, work,
};

/// Additions between two clock reads.
const CHUNK: u64 = 1_024;
/// Hashed tasks between two clock reads: about 30 us.
const HASHED_CHUNK: u64 = 64;
/// Distance at which counters do not share a cache line.
const COUNTER_STRIDE: usize = 16;

pub(super) const D01: Ablation = Ablation {
    name: "d01",
    title: "Counters that are not atomic",
    unit: "% lost",
    expects: Expects::Less,
    source: "counts were lost at 100 tasks per second, until counters were atomic",
    conclusion: "Reading, adding and writing are three steps, and another thread's write in between \
              is lost. A counter per thread, summed on demand, is correct and faster than a shared \
              one.",
    deviation_reason: "the threads never collided: one core, or a machine that runs them one after the \
                other.",
    variants: || {
        vec![
            Variant::new(Role::Naive, "read, add one, write", |time| {
                let counter = AtomicU64::new(0);
                Ok(lost(
                    time,
                    |_| {
                        let before = counter.load(Ordering::Relaxed);
                        counter.store(before + 1, Ordering::Relaxed);
                    },
                    || counter.load(Ordering::Relaxed),
                ))
            }),
            Variant::new(Role::Right, "one atomic addition", |time| {
                let counter = AtomicU64::new(0);
                Ok(lost(
                    time,
                    |_| {
                        counter.fetch_add(1, Ordering::Relaxed);
                    },
                    || counter.load(Ordering::Relaxed),
                ))
            }),
            Variant::new(Role::Other, "an atomic counter per thread", |time| {
                let counters: Vec<AtomicU64> =
                    (0..thread_count() * COUNTER_STRIDE).map(|_| AtomicU64::new(0)).collect();
                let sum = || counters.iter().map(|own| own.load(Ordering::Relaxed)).sum();
                Ok(lost(
                    time,
                    |thread| {
                        counters[thread * COUNTER_STRIDE].fetch_add(1, Ordering::Relaxed);
                    },
                    sum,
                ))
            }),
        ]
    },
};

pub(super) const D04: Ablation = Ablation {
    name: "d04",
    title: "Counting by batch instead of by task",
    unit: "tasks/s",
    expects: Expects::Same,
    source: "50,000 per second required, 40,000 reached before and after",
    conclusion: "Counting was not the bottleneck, so changing it gains nothing: a shared counter \
              costs about ten nanoseconds of a task of several hundred. For short tasks it \
              dominates, as the last two rows show. Measure before changing.",
    deviation_reason: "hashing is so fast here that a counter shared by many cores is a significant part \
                of a task.",
    variants: || {
        let hash = |id| u64::from(work::digest(work::input(id).0, work::input(id).1)[0]);
        let nothing = |id| u64::from(work::input(id).0);
        vec![
            Variant::new(Role::Naive, "a shared counter, per task", move |time| {
                Ok(counted(time, HASHED_CHUNK, 1, hash))
            }),
            Variant::new(Role::Right, "a shared counter, per batch", move |time| {
                Ok(counted(time, HASHED_CHUNK, HASHED_CHUNK, hash))
            }),
            Variant::new(Role::Other, "tasks without work, per task", move |time| {
                Ok(counted(time, CHUNK, 1, nothing))
            }),
            Variant::new(Role::Other, "tasks without work, per batch", move |time| {
                Ok(counted(time, CHUNK, CHUNK, nothing))
            }),
        ]
    },
};

/// At least two; otherwise nothing can be lost.
fn thread_count() -> usize {
    cores().max(2)
}

/// Adds from all threads. Returns the share of the additions that `total` lacks.
fn lost(time: Duration, add: impl Fn(usize) + Sync, total: impl Fn() -> u64) -> Sample {
    let started = Instant::now();
    let added: u64 = thread::scope(|scope| {
        let add = &add;
        let count = move |thread: usize| {
            let mut own = 0;
            while started.elapsed() < time {
                for _ in 0..CHUNK {
                    add(thread);
                }
                own += CHUNK;
            }
            own
        };
        let threads: Vec<_> =
            (0..thread_count()).map(|thread| scope.spawn(move || count(thread))).collect();
        threads.into_iter().map(join).sum()
    });
    let rate = per_second(added, started.elapsed()) / 1e6;
    let missing = added.saturating_sub(total());
    Sample::with_note(
        real(missing) / real(added.max(1)) * 100.0,
        format!("{rate:.0} M additions/s by {} threads", thread_count()),
    )
}

/// Computes tasks on all cores and adds every `step` of them to a shared counter.
fn counted(time: Duration, chunk: u64, step: u64, work: impl Fn(u64) -> u64 + Sync) -> Sample {
    let counter = AtomicU64::new(0);
    let started = Instant::now();
    thread::scope(|scope| {
        for thread in 0..cores() {
            let (counter, work) = (&counter, &work);
            scope.spawn(move || {
                let mut id = u64::try_from(thread).expect("64 bits") << 40;
                while started.elapsed() < time {
                    for _ in 0..chunk / step {
                        for _ in 0..step {
                            std::hint::black_box(work(id));
                            id += 1;
                        }
                        counter.fetch_add(step, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    Sample::new(per_second(counter.into_inner(), started.elapsed()))
}
