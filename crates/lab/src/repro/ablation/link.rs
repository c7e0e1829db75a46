//! Step 14 and the limits: the capacity of a link, and the share of it that the pipeline reaches.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use parking_lot::Mutex;

use crate::repro::ablation::whole::Whole;
use crate::repro::ablation::wire::{SlowLink, records_per_second};
use crate::repro::ablation::{
    Ablation, Expects, Role, Sample, Variant, core_count, cores, real, stretched,
};
use pipeline::local::Changes;
use pipeline::task::{INPUT_BYTES, Kernel, OUTPUT_BYTES};

/// Bits per second, and the display name.
const LINKS: [(u64, &str); 3] =
    [(100_000_000, "100 Mb/s"), (1_000_000_000, "1 Gb/s"), (10_000_000_000, "10 Gb/s")];
/// Long enough to exclude start and end.
const LINK_TIME: Duration = Duration::from_millis(3_200);
/// Small compared with what a slow link carries in a second.
const LINK_BATCH: u32 = 512;
/// Size of memory copies: larger than any cache.
const COPY_BYTES: usize = 64 << 20;

pub(super) const D14: Ablation = Ablation {
    name: "d14",
    title: "A rate that three people measured identically",
    unit: "tasks/s",
    expects: Expects::Less,
    source: "297,900 calculated, 267,333 measured by all three: one card of 100 Mb/s",
    conclusion: "The limit of a link is exact once framing is counted: of 1,538 bytes on an Ethernet \
              link, 1,448 are TCP payload. A constant rate indicates a saturated link; dividing \
              its bits by the bits of a record overestimates it by a tenth.",
    deviation_reason: "the machine could not saturate a slow link.",
    variants: || {
        let calculated = |role, name: &str, rate: f64| {
            Variant::new(role, name, move |_| Ok(Sample::new(rate))).once()
        };
        let (slow, fast) = (LINKS[0].0, LINKS[1].0);
        vec![
            calculated(Role::Naive, "100 Mb/s, without framing", 297_900.0),
            calculated(Role::Other, "100 Mb/s, exact", real(exact(slow))),
            measured(Role::Right, "100 Mb/s, measured over a simulated link", slow),
            calculated(Role::Other, "1 Gb/s, exact", real(exact(fast))),
            measured(Role::Other, "1 Gb/s, measured over a simulated link", fast),
        ]
    },
};

pub(super) const LIMITS: Ablation = Ablation {
    name: "limits",
    title: "Limits of processors, memory and links, and the rates reached",
    unit: "tasks/s",
    expects: Expects::Less,
    source: "297,900 per 100 Mb/s, framing left out",
    conclusion: "Below 10 Gb/s the link of the results is the bottleneck and is saturated; above, the \
              processors are. Memory never is. The link is simulated by a proxy on the same cores, \
              whose cost the pipeline loses at 10 Gb/s.",
    deviation_reason: "the machine could not saturate a slow link.",
    variants: || {
        let calculated = |role, name: String, rate: f64| {
            Variant::new(role, name, move |_| Ok(Sample::new(rate))).once()
        };
        let mut variants = vec![
            Variant::new(Role::Other, "hashing on one core", |_| Ok(one_core())).once(),
            Variant::new(Role::Other, format!("hashing on {} cores", cores()), |_| {
                let one = one_core();
                Ok(Sample::with_note(one.value * real(core_count()), one.note))
            })
            .once(),
            Variant::new(Role::Other, "copying in memory", |time| Ok(copying(time))).once(),
            Variant::new(Role::Other, "the pipeline over loopback", |time| {
                let time = time.max(Duration::from_millis(100));
                Ok(Sample::new(Whole::new("sha256x10-le").run(time)?.per_second()))
            })
            .once(),
            Variant::new(Role::Other, "the pipeline over loopback, task nop", |time| {
                let time = time.max(Duration::from_millis(100));
                Ok(Sample::new(Whole::new("nop").run(time)?.per_second()))
            })
            .once(),
        ];
        for (at, (bits, name)) in LINKS.into_iter().enumerate() {
            let (naive, right) =
                if at == 0 { (Role::Naive, Role::Right) } else { (Role::Other, Role::Other) };
            // Calculated as in the source: 1 Mb is 2^20 bits, and the link carries only records.
            let without = real(bits) / 1e6 * real(1 << 20) / real(record_bits());
            variants.push(calculated(naive, format!("{name}, without framing"), without));
            variants.push(calculated(Role::Other, format!("{name}, exact"), real(exact(bits))));
            variants.push(measured(right, format!("{name}, reached over a simulated link"), bits));
        }
        variants
    },
};

fn record_bits() -> u64 {
    u64::try_from(OUTPUT_BYTES * 8).expect("64 bits")
}

/// Returns the results per second that the link carries.
fn exact(bits_per_second: u64) -> u64 {
    records_per_second(bits_per_second, record_bits() / 8)
}

/// Measures the pipeline with a link between executor and collector. Short runs are inconclusive.
fn measured(role: Role, name: impl Into<String>, bits_per_second: u64) -> Variant {
    Variant::new(role, name, move |time| {
        let link = Mutex::new(None);
        let address_map = |collector: SocketAddr| -> Result<SocketAddr> {
            let slow = SlowLink::start(collector, bits_per_second)?;
            let address = slow.address;
            *link.lock() = Some(slow);
            Ok(address)
        };
        let whole = Whole { batch: LINK_BATCH, ..Whole::new("sha256x10-le") };
        let changes = Changes { address_map: &address_map, ..Changes::NONE };
        let report = whole.run_with(stretched(time, LINK_TIME), changes)?;
        let rate = report.steady_per_second();
        let share = rate / real(exact(bits_per_second)) * 100.0;
        Ok(Sample::with_note(rate, format!("{share:.1} % of the exact limit")))
    })
    .once()
}

fn one_core() -> Sample {
    let found = Kernel::calibrate();
    let best = found.ns_per_task.iter().find(|(kernel, _)| *kernel == found.best);
    let ns = best.and_then(|(_, ns)| *ns).unwrap_or(f64::INFINITY);
    Sample::with_note(
        1e9 / ns,
        format!("{} ({}), {ns:.1} ns", found.best, found.best.instructions()),
    )
}

/// Copies tasks and results: each is written once and read once.
fn copying(time: Duration) -> Sample {
    let from = vec![7_u8; COPY_BYTES];
    let mut to = vec![1_u8; COPY_BYTES];
    // The kernel allocates memory on first touch.
    black_box(&mut to).copy_from_slice(black_box(&from));
    let started = Instant::now();
    let mut copies = 0_u64;
    while copies == 0 || started.elapsed() < time {
        black_box(&mut to).copy_from_slice(black_box(&from));
        copies += 1;
    }
    let bytes = real(copies) * real(u64::try_from(COPY_BYTES).expect("64 bits"));
    let per_s = bytes / started.elapsed().as_secs_f64();
    let per_task = real(u64::try_from(INPUT_BYTES + OUTPUT_BYTES).expect("64 bits"));
    Sample::with_note(per_s / per_task, format!("{:.1} GB/s on one core", per_s / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_that_were_calculated() {
        assert_eq!(exact(100_000_000), 267_467);
        assert_eq!(exact(1_000_000_000), 2_674_666);
    }

    /// The rate never exceeds the link's, except for one burst.
    #[test]
    fn no_link_is_exceeded() {
        let Variant { mut run, .. } = measured(Role::Other, "link", 20_000_000);
        let most = real(exact(20_000_000)) * (0.09 + 0.01) / 0.09;
        // If the generator stalls after its first batches, the run is shorter than the schedule, so
        // that one burst has a larger share. Without a limit, every run would be far faster.
        let mut found = (0..5).map(|_| run(Duration::from_millis(90)).unwrap().value);
        assert!(found.any(|value| value <= most), "more than {most}");
    }
}
