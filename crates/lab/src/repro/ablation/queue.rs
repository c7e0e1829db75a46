//! Steps 7 and 15: a queue of tasks in front of the workers, the fate of refused tasks, and the
//! behavior of a line under overload.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use parking_lot::{Condvar, Mutex};

use crate::repro::ablation::batches::{BatchLine, Reading};
use crate::repro::ablation::line::Line as _;
use crate::repro::ablation::whole::Whole;
use crate::repro::ablation::wire::pair;
use crate::repro::ablation::{
    Ablation, Expects, Role, Sample, Variant, cores, join, per_second, real, whole_rate, work,
};
use pipeline::generator::{Overload, Rate};
use pipeline::task::{BatchTask as _, Codec, Exercise, INPUT_BYTES, Ids, Kernel};

/// Tasks of one transfer.
const BATCH: u32 = 1_024;
const TICK: Duration = Duration::from_millis(10);
const SMALL_QUEUE: usize = 1_000;
const LARGE_QUEUE: usize = 1_000_000;
/// Queue size of step 15, as the source once had it.
const MIDDLE_QUEUE: usize = 50_000;
/// Ratio of offered load to capacity.
pub(super) const OVERLOAD: f64 = 2.0;
/// Load that matches the capacity on average, and exceeds it in bursts.
const OFFERED_PER_S: u64 = 200_000;
const BURST_TICK: Duration = Duration::from_millis(100);

pub(super) const D07: Ablation = Ablation {
    name: "d07",
    title: "A queue that refuses, or one that blocks the sender",
    unit: "% lost",
    expects: Expects::Less,
    source: "a longer queue refused nothing in 16 hours; the counters show 4.6 % fewer collected \
             than generated",
    conclusion: "A queue that refuses loses tasks at the first burst that exceeds its length; a \
              longer one only shifts that point, and costs memory and waiting time. With credits, \
              a task stays at its source until a worker has capacity for it: nothing is lost at \
              any length.",
    deviation_reason: "the workers were faster than the bursts.",
    variants: || {
        let row = |role, name: &str, length, policy| {
            Variant::new(role, name, move |time: Duration| {
                let line = QueueLine {
                    length,
                    policy,
                    rate: Some(OFFERED_PER_S),
                    tick: BURST_TICK.min(time / 2),
                };
                let found = line.run(time.max(BURST_TICK))?;
                Ok(Sample::with_note(
                    real(found.refused) / real(found.offered.max(1)) * 100.0,
                    format!("{} done, up to {} waited", found.done, found.longest),
                ))
            })
        };
        vec![
            row(Role::Naive, "1,000 places, refuses", SMALL_QUEUE, Policy::Refuse),
            row(Role::Other, "1,000,000 places, refuses", LARGE_QUEUE, Policy::Refuse),
            row(Role::Other, "1,000 places, makes wait", SMALL_QUEUE, Policy::Wait),
            Variant::new(Role::Right, "credits: the pipeline", |time| {
                let whole = Whole {
                    rate: Rate::PerSecond(OFFERED_PER_S),
                    tick: BURST_TICK,
                    ..Whole::new("sha256x10-le")
                };
                let report = whole.run(time.max(BURST_TICK * 2))?;
                let status = &report.summary.generator.status;
                let lost = status.offered.saturating_sub(status.collected);
                Ok(Sample::with_note(
                    real(lost) / real(status.offered.max(1)) * 100.0,
                    format!("{} generated, {} collected", status.generated, status.collected),
                ))
            }),
        ]
    },
};

pub(super) const D15: Ablation = Ablation {
    name: "d15",
    title: "Offered twice the capacity",
    unit: "% of what is done otherwise",
    expects: Expects::More,
    source: "3,000,000 per second offered left 1,000,000; then 4,150,000 with equal batches and reads \
             in a loop",
    conclusion: "A line that accepts tasks and then refuses them spends time on them that the others \
              lack. With credits, no task is generated before it is requested, so excess load \
              costs nothing. Batches of different sizes are split and joined at each step.",
    deviation_reason: "refusing was cheap enough here: one core receives tasks while others hash.",
    variants: || {
        let right = |rate, overload| Whole { rate, overload, ..Whole::new("sha256x10-le") };
        let lines = |batches, reading| BatchLine {
            batches,
            reading,
            ..BatchLine::right(4_096, Kernel::Lanes)
        };
        let line = |name: &str, batches, reading| {
            Variant::new(Role::Other, name, move |time| {
                Ok(Sample::new(lines(batches, reading).run(time)?.per_second()))
            })
            .in_unit("tasks/s")
        };
        vec![
            refusing(),
            Variant::new(Role::Right, "credits, and shedding at the source", move |time| {
                let able = right(Rate::Max, Overload::Queue).run(time)?.per_second();
                let rate = Rate::PerSecond(whole_rate(able * OVERLOAD));
                let found = right(rate, Overload::Shed).run(time)?;
                let shed = found.summary.generator.status.shed;
                Ok(goodput(able, found.per_second(), &format!("{shed} shed")))
            }),
            line("batches of 1000, 2000, 4096, read whole", [1_000, 2_000, 4_096], Reading::Whole),
            line("batches of 4096, read whole", [4_096; 3], Reading::Whole),
            line("batches of 4096, read in a loop", [4_096; 3], Reading::Loop),
        ]
    },
};

/// The naive line at twice its own throughput with a blocking sender.
pub(super) fn refusing() -> Variant {
    let line = |policy, rate| QueueLine { length: MIDDLE_QUEUE, policy, rate, tick: TICK };
    Variant::new(Role::Naive, "a queue of 50,000 that refuses", move |time| {
        let able = line(Policy::Wait, None).run(time)?.per_second();
        let found = line(Policy::Refuse, Some(whole_rate(able * OVERLOAD))).run(time)?;
        Ok(goodput(able, found.per_second(), &format!("{} refused", found.refused)))
    })
}

pub(super) fn goodput(able: f64, found: f64, note: &str) -> Sample {
    Sample::with_note(
        found / able.max(1.0) * 100.0,
        format!("{found:.0} of {able:.0} tasks/s; {note}"),
    )
}

/// Behavior of a full queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Refuse,
    Wait,
}

/// A line with a queue of single tasks in front of its workers.
#[derive(Debug, Clone, Copy)]
struct QueueLine {
    length: usize,
    policy: Policy,
    /// Offered tasks per second; unlimited if `None`.
    rate: Option<u64>,
    tick: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Found {
    offered: u64,
    refused: u64,
    done: u64,
    /// Tasks completed while tasks were offered.
    done_in_time: u64,
    took: Duration,
    longest: usize,
}

impl Found {
    fn per_second(&self) -> f64 {
        per_second(self.done_in_time, self.took)
    }
}

#[derive(Debug, Clone, Copy)]
struct Task {
    x: u16,
    y: u16,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: VecDeque<Task>,
    longest: usize,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    is_there: Condvar,
    has_space: Condvar,
}

impl Queue {
    /// Returns false if the task was refused.
    fn put(&self, task: Task, line: &QueueLine) -> bool {
        let mut waiting = self.waiting.lock();
        while waiting.tasks.len() >= line.length {
            if line.policy == Policy::Refuse {
                return false;
            }
            self.has_space.wait(&mut waiting);
        }
        waiting.tasks.push_back(task);
        waiting.longest = waiting.longest.max(waiting.tasks.len());
        drop(waiting);
        self.is_there.notify_one();
        true
    }

    fn take(&self) -> Option<Task> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(task) = waiting.tasks.pop_front() {
                drop(waiting);
                self.has_space.notify_one();
                return Some(task);
            }
            if waiting.is_over {
                return None;
            }
            self.is_there.wait(&mut waiting);
        }
    }

    fn end(&self) {
        self.waiting.lock().is_over = true;
        self.is_there.notify_all();
    }
}

impl QueueLine {
    fn run(&self, time: Duration) -> Result<Found> {
        let (to, from) = pair()?;
        let queue = Queue::default();
        let done = AtomicU64::new(0);
        let started = Instant::now();
        let (offered, refused, done_in_time, took) = thread::scope(|scope| {
            let (queue, done) = (&queue, &done);
            let generating = scope.spawn(move || self.generate(to, started, time));
            for _ in 0..cores() {
                scope.spawn(move || {
                    while let Some(task) = queue.take() {
                        std::hint::black_box(work::digest(task.x, task.y));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let refused = self.take_in(from, queue);
            // The tasks that still wait are completed without new input, and do not count for the
            // rate.
            let (done_in_time, took) = (done.load(Ordering::Relaxed), started.elapsed());
            queue.end();
            Ok::<_, anyhow::Error>((join(generating)?, refused?, done_in_time, took))
        })?;
        let longest = queue.waiting.lock().longest;
        let done = done.into_inner();
        Ok(Found { offered, refused, done, done_in_time, took, longest })
    }

    fn generate(&self, mut to: TcpStream, started: Instant, time: Duration) -> Result<u64> {
        let task = Exercise::new(Codec::Sha256Le, work::SEED, Kernel::Serial);
        let mut bytes = vec![0; Ids { first: 0, count: BATCH }.len() * INPUT_BYTES];
        let mut offered = 0;
        let mut ticks = 0;
        while started.elapsed() < time {
            let due = match self.rate {
                Some(rate) => {
                    ticks += 1;
                    let due_in = self.tick * ticks;
                    thread::sleep(due_in.saturating_sub(started.elapsed()));
                    let due_ns = u128::from(rate) * due_in.as_nanos();
                    u64::try_from(due_ns / 1_000_000_000).unwrap_or(u64::MAX)
                }
                None => offered + u64::from(BATCH),
            };
            while offered < due {
                let count = u32::try_from((due - offered).min(u64::from(BATCH)))?;
                let used = task.generate(Ids { first: offered, count }, &mut bytes)?;
                to.write_all(&bytes[..used])?;
                offered += u64::from(count);
            }
        }
        to.shutdown(Shutdown::Write)?;
        Ok(offered)
    }

    fn take_in(&self, mut from: TcpStream, queue: &Queue) -> Result<u64> {
        let mut refused = 0;
        let mut buffer = vec![0; 64 << 10];
        let mut filled = 0;
        loop {
            let count = from.read(&mut buffer[filled..])?;
            if count == 0 {
                return Ok(refused);
            }
            filled += count;
            let (tasks, rest) = buffer[..filled].as_chunks::<INPUT_BYTES>();
            for task in tasks {
                let half = |at: usize| u16::from_be_bytes([task[at], task[at + 1]]);
                if !queue.put(Task { x: half(8), y: half(10) }, self) {
                    refused += 1;
                }
            }
            let left = rest.len();
            buffer.copy_within(filled - left..filled, 0);
            filled = left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_or_refused() {
        for policy in [Policy::Refuse, Policy::Wait] {
            let line = QueueLine {
                length: 10,
                policy,
                rate: Some(100_000),
                tick: Duration::from_millis(5),
            };
            let found = line.run(Duration::from_millis(20)).unwrap();
            assert_eq!(found.offered, found.done + found.refused, "{found:?}");
            assert!(found.longest <= 10, "{found:?}");
            assert!(policy == Policy::Refuse || found.refused == 0, "{found:?}");
        }
    }
}
