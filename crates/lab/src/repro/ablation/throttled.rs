//! Two executors, one of which is four times slower: the cost if batches are dealt in turn, and if
//! executors request them.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::repro::ablation::whole::Whole;
use crate::repro::ablation::{
    Ablation, Expects, Role, Sample, Variant, join, per_second, stretched, work,
};
use pipeline::local::Changes;
use pipeline::task::{
    BatchTask, Codec, Exercise, INPUT_BYTES, Ids, Kernel, Maker, OUTPUT_BYTES, TaskError,
};

/// Time per batch. Executors sleep instead of computing, so that they do not compete for a few
/// cores: the test measures how work is distributed.
const QUICK: Duration = Duration::from_millis(4);
const THROTTLED_TIME: Duration = Duration::from_millis(16);
const BATCH: u32 = 64;
/// About a hundred batches: at the end, one executor is idle for only a few.
const TIME: Duration = Duration::from_millis(800);
/// Target, in percent of the sum of both.
const SHARE_PERCENT_MIN: f64 = 95.0;
/// Batches that wait for the executor whose turn it is.
const WAITING_MAX: usize = 4;

pub(super) const THROTTLED: Ablation = Ablation {
    name: "throttled",
    title: "One throttled executor of two",
    unit: "% of the sum of both",
    expects: Expects::More,
    source: "the first program had one executor; the target is 95 % of the sum",
    conclusion: "If batches are dealt in turn, all executors are as slow as the slowest: the dealer \
              blocks on a full queue while the other executor starves. If executors request \
              batches, a throttled one costs only its own share; and because each requests as much \
              as it completes in a short time, all end together.",
    deviation_reason: "the machine was so busy that sleeps took longer than requested.",
    variants: || {
        let alone_per_s = || Rc::new(Cell::new(0.0_f64));
        let (quick, slow) = (alone_per_s(), alone_per_s());
        let alone = |name: &str, wait, found: &Rc<Cell<f64>>| {
            let found = Rc::clone(found);
            let row = Variant::new(Role::Other, name, move |time| {
                let rate = pipeline(&[wait], time)?;
                found.set(rate);
                Ok(Sample::new(rate))
            });
            row.in_unit("tasks/s")
        };
        let both = |role, name: &str, measure: fn(Duration) -> Result<f64>| {
            let (quick, slow) = (Rc::clone(&quick), Rc::clone(&slow));
            Variant::new(role, name, move |time| {
                let (rate, sum) = (measure(time)?, quick.get() + slow.get());
                let note = format!("{rate:.0} of {sum:.0} tasks/s");
                Ok(Sample::with_note(rate / sum.max(1.0) * 100.0, note))
            })
        };
        vec![
            alone("the fast one alone", QUICK, &quick),
            alone("the throttled one alone, a quarter as fast", THROTTLED_TIME, &slow),
            both(Role::Naive, "both, batches dealt in turn", dealt),
            both(Role::Right, "both, batches by credits: the pipeline", |time| {
                pipeline(&[QUICK, THROTTLED_TIME], time)
            })
            .at_least(SHARE_PERCENT_MIN),
        ]
    },
};

/// Sleeps for each batch.
#[derive(Debug)]
struct Waiting {
    task: Arc<dyn BatchTask>,
    per_batch: Duration,
}

impl Waiting {
    fn maker(per_batch: Duration) -> Maker {
        Maker::new(move |plan| {
            let task = Maker::built_in(Kernel::Serial).make(plan)?;
            Ok(Arc::new(Self { task, per_batch }))
        })
    }
}

impl BatchTask for Waiting {
    fn input_bytes_max(&self) -> usize {
        self.task.input_bytes_max()
    }

    fn output_bytes_max(&self) -> usize {
        self.task.output_bytes_max()
    }

    fn generate(&self, ids: Ids, inputs: &mut [u8]) -> Result<usize, TaskError> {
        self.task.generate(ids, inputs)
    }

    fn run(&self, ids: Ids, inputs: &[u8], outputs: &mut [u8]) -> Result<usize, TaskError> {
        thread::sleep(self.per_batch);
        self.task.run(ids, inputs, outputs)
    }

    fn inspect(&self, ids: Ids, outputs: &[u8]) -> Result<u64, TaskError> {
        self.task.inspect(ids, outputs)
    }

    fn record(&self, outputs: &[u8], index: u32) -> Option<Range<usize>> {
        self.task.record(outputs, index)
    }

    fn verify(&self, record: &[u8]) -> Result<bool, TaskError> {
        self.task.verify(record)
    }

    fn describe(&self, record: &[u8]) -> String {
        self.task.describe(record)
    }
}

/// Runs the pipeline with a single-threaded executor for each of these times. Returns tasks per
/// second.
fn pipeline(waits: &[Duration], time: Duration) -> Result<f64> {
    let makers: Vec<Maker> = waits.iter().copied().map(Waiting::maker).collect();
    let whole = Whole { batch: BATCH, executors: waits.len(), threads: 1, ..Whole::new("nop") };
    let changes = Changes { makers: &makers, ..Changes::NONE };
    Ok(whole.run_with(stretched(time, TIME), changes)?.per_second())
}

/// Sends batches to each executor in turn, blocking while its queue is full. Returns tasks per
/// second.
fn dealt(time: Duration) -> Result<f64> {
    let task = Exercise::new(Codec::Nop, work::SEED, Kernel::Serial);
    let done = AtomicU64::new(0);
    let (started, time) = (Instant::now(), stretched(time, TIME));
    thread::scope(|scope| {
        let (task, done) = (&task, &done);
        let (mut places, mut workers) = (Vec::new(), Vec::new());
        for wait in [QUICK, THROTTLED_TIME] {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            places.push(sender);
            workers.push(scope.spawn(move || execute(task, wait, &receiver, done)));
        }
        let outcome = deal(task, &places, || started.elapsed() < time);
        drop(places);
        for worker in workers {
            join(worker)?;
        }
        outcome
    })?;
    Ok(per_second(done.into_inner(), started.elapsed()))
}

fn deal(task: &Exercise, places: &[SyncSender<Vec<u8>>], goes_on: impl Fn() -> bool) -> Result<()> {
    let mut first = 0;
    while goes_on() {
        for place in places {
            let ids = Ids { first, count: BATCH };
            let mut inputs = vec![0; ids.len() * INPUT_BYTES];
            task.generate(ids, &mut inputs)?;
            place.send(inputs).map_err(|_| anyhow!("an executor has ended"))?;
            first = ids.end();
        }
    }
    Ok(())
}

fn execute(
    task: &Exercise,
    wait: Duration,
    batches: &Receiver<Vec<u8>>,
    done: &AtomicU64,
) -> Result<()> {
    let ids = Ids { first: 0, count: BATCH };
    let mut outputs = vec![0; ids.len() * OUTPUT_BYTES];
    for inputs in batches {
        thread::sleep(wait);
        task.run(ids, &inputs, &mut outputs)?;
        done.fetch_add(u64::from(ids.count), Ordering::Relaxed);
    }
    Ok(())
}
