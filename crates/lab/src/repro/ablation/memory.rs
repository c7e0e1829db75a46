//! Step 8: the memory cost of a sample.

use std::hint::black_box;

use anyhow::Result;

use crate::repro::ablation::{Ablation, Expects, Role, Sample, Variant, real, work};
use pipeline::collector::Reservoir;
use pipeline::meter::resident_bytes;
use pipeline::task::{BatchTask as _, Codec, Exercise, INPUT_BYTES, Ids, Kernel, OUTPUT_BYTES};

/// Tasks of one window, and of one batch.
const TASKS: u64 = 500_000;
const BATCH: u32 = 1_000;
const SAMPLE: usize = 100;
/// Tasks per minute at the source's rate.
const MINUTE_TASKS: f64 = 300_000.0 * 60.0;

pub(super) const D08: Ablation = Ablation {
    name: "d08",
    title: "Keeping all tasks to sample a few",
    unit: "MiB per million tasks",
    expects: Expects::Less,
    source: "at 300,000 per second the collector ran out of memory",
    conclusion: "A hundred of a minute's tasks can be chosen as they arrive, each with the same \
              probability, without keeping the others: memory does not grow with the rate. Keeping \
              the first hundred that pass a random test would need no memory either, but samples \
              only the first moments of the minute.",
    deviation_reason: "the kernel had not allocated the memory yet, or accounts for it differently.",
    variants: || {
        vec![
            Variant::new(Role::Naive, "all are kept", |_| {
                let before = resident_bytes()?;
                let mut kept: Vec<Vec<u8>> = Vec::new();
                offer(|batch| kept.extend(batch.chunks(OUTPUT_BYTES).map(<[u8]>::to_vec)))?;
                let grown = resident_bytes()?.saturating_sub(before);
                black_box(&kept);
                Ok(grew(grown))
            })
            .once(),
            Variant::new(Role::Right, "100 are kept", |_| {
                let before = resident_bytes()?;
                let mut reservoir = Reservoir::new(SAMPLE, 1);
                offer(|batch| {
                    reservoir.offer(BATCH, |index| {
                        let at = usize::try_from(index).ok()? * OUTPUT_BYTES;
                        batch.get(at..at + OUTPUT_BYTES)
                    });
                })?;
                let grown = resident_bytes()?.saturating_sub(before);
                anyhow::ensure!(reservoir.take().0.len() == SAMPLE, "the sample is not full");
                Ok(grew(grown))
            })
            .once(),
        ]
    },
};

fn grew(bytes: u64) -> Sample {
    let mib = real(bytes) / real(1 << 20) / (real(TASKS) / 1e6);
    let minute = mib * MINUTE_TASKS / 1e6;
    Sample::with_note(mib, format!("{minute:.0} MiB in a minute at 300,000 per second"))
}

/// Offers all results of a window, batch by batch.
fn offer(mut take: impl FnMut(&[u8])) -> Result<()> {
    let task = Exercise::new(Codec::Powmod, work::SEED, Kernel::Serial);
    let ids = Ids { first: 0, count: BATCH };
    let mut inputs = vec![0; ids.len() * INPUT_BYTES];
    let mut outputs = vec![0; ids.len() * OUTPUT_BYTES];
    for first in (0..TASKS).step_by(ids.len()) {
        let ids = Ids { first, count: BATCH };
        task.generate(ids, &mut inputs)?;
        task.run(ids, &inputs, &mut outputs)?;
        take(&outputs);
    }
    Ok(())
}
