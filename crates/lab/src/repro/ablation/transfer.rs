//! Steps 5, 6, 10, 11 and 13: transferring tasks from one program to the next.

use std::time::Duration;

use crate::repro::ablation::batches::{BatchLine, Processor, Reading, Records, Results};
use crate::repro::ablation::fields::{FieldLine, Flush};
use crate::repro::ablation::line::Line as _;
use crate::repro::ablation::whole::Whole;
use crate::repro::ablation::{Ablation, Expects, Role, Sample, Variant, stretched};
use pipeline::generator::Rate;
use pipeline::task::Kernel;

const BUFFER_BYTES: usize = 64 << 10;
const BATCH: usize = 4_096;
/// Rate of the rows that show the effect of a tick.
const TICK_RATE: u64 = 200_000;

pub(super) const D05: Ablation = Ablation {
    name: "d05",
    title: "A system call per field, or buffered sockets",
    unit: "tasks/s",
    expects: Expects::More,
    source: "40,000 to 70,000 per second",
    conclusion: "A system call costs as much as a task. Buffers of a few KiB are enough: beyond that, \
              a call is amortized over so many records that no further gain is possible.",
    deviation_reason: "the cost of system calls is negligible next to a task here.",
    variants: || {
        let line = |buffer_bytes| FieldLine { buffer_bytes, flush: Flush::WhenFull, rate: None };
        let row = |role, name: &str, buffer_bytes| {
            Variant::new(role, name, move |time| {
                Ok(Sample::new(line(buffer_bytes).run(time)?.per_second()))
            })
        };
        vec![
            row(Role::Naive, "no buffers: 7 writes, 7 reads a task", 0),
            row(Role::Other, "buffers of 512 bytes", 512),
            row(Role::Other, "buffers of 4 KiB", 4 << 10),
            row(Role::Right, "buffers of 64 KiB", BUFFER_BYTES),
            row(Role::Other, "buffers of 1 MiB", 1 << 20),
        ]
    },
};

pub(super) const D06: Ablation = Ablation {
    name: "d06",
    title: "Flushing after each task, or by time",
    unit: "tasks/s",
    expects: Expects::More,
    source: "70,000 to 150,000 per second, and tasks lost by a queue that refuses (d07)",
    conclusion: "A buffer that is flushed after each record has no effect. A periodic flush bounds \
              how long a record waits, and costs a call per period instead of one per record.",
    deviation_reason: "the cost of system calls is negligible next to a task here.",
    variants: || {
        let row = |role, name: &str, flush| {
            Variant::new(role, name, move |time| {
                let line = FieldLine { buffer_bytes: BUFFER_BYTES, flush, rate: None };
                Ok(Sample::new(line.run(time)?.per_second()))
            })
        };
        let every = |ms| Flush::Every(Duration::from_millis(ms));
        vec![
            row(Role::Naive, "after each task", Flush::PerTask),
            row(Role::Other, "every 1 ms", every(1)),
            row(Role::Right, "every 10 ms", every(10)),
            row(Role::Other, "every 100 ms", every(100)),
        ]
    },
};

pub(super) const D10: Ablation = Ablation {
    name: "d10",
    title: "Batches",
    unit: "tasks/s",
    expects: Expects::More,
    source: "processors 30 % busy at 500,000 per second; 100 % and 600,000 with batches",
    conclusion: "A handover costs the same for one task and for thousands: a lock, a wake-up, two \
              system calls. From about a hundred tasks on, the processors only hash; much larger \
              batches gain nothing and wait longer.",
    deviation_reason: "the cost of a handover is negligible next to a task here.",
    variants: || {
        let row = |role, batch: usize| {
            Variant::new(role, format!("{batch} tasks"), move |time| {
                let before = Processor::read()?;
                let line = BatchLine::right(batch, Kernel::Serial);
                let through = BatchLine { reading: Reading::Whole, ..line }.run(time)?;
                let busy = Processor::read()?.percent_since(before);
                let rate = through.per_second();
                #[expect(clippy::cast_precision_loss, reason = "at most thousands")]
                let frame_us = batch as f64 / rate * 1e6;
                Ok(Sample::with_note(
                    rate,
                    format!("processors {busy:.0} % busy, {frame_us:.1} us per batch"),
                ))
            })
        };
        vec![
            row(Role::Naive, 1),
            row(Role::Other, 16),
            row(Role::Other, 256),
            row(Role::Right, BATCH),
            row(Role::Other, 4 * BATCH),
        ]
    },
};

pub(super) const D11: Ablation = Ablation {
    name: "d11",
    title: "Text or bytes, new or reused memory, and ticks",
    unit: "tasks/s",
    expects: Expects::More,
    source: "600,000 to 1,300,000 per second",
    conclusion: "Text is formatted, sent and parsed again, digit by digit; bytes are only copied. \
              Reused memory is in the cache. A dedicated sending thread helps if writes wait for \
              the network, and is one more handover otherwise. Short ticks do not increase \
              throughput but shorten waiting: the last rows.",
    deviation_reason: "hashing is so slow here that text and memory make no difference.",
    variants: || {
        let binary = BatchLine::right(BATCH, Kernel::Lanes);
        let text = BatchLine { records: Records::Text, results: Results::Copied, ..binary };
        let row = |role, name: &str, line: BatchLine| {
            Variant::new(role, name, move |time| Ok(Sample::new(line.run(time)?.per_second())))
        };
        let tick = |ms| {
            let name = format!("{TICK_RATE} per second, in ticks of {ms} ms");
            let run = move |time: Duration| {
                let whole = Whole {
                    rate: Rate::PerSecond(TICK_RATE),
                    tick: Duration::from_millis(ms),
                    ..Whole::new("sha256x10-le")
                };
                // The effect of a tick needs time to appear.
                let report = whole.run(stretched(time, Duration::from_millis(1_100)))?;
                Ok(Sample::new(report.p99_ms()))
            };
            Variant::new(Role::Other, name, run).in_unit("ms p99").once()
        };
        vec![
            row(Role::Naive, "text, new memory", text),
            row(Role::Other, "bytes, new memory", BatchLine { results: Results::Copied, ..binary }),
            row(Role::Right, "bytes, reused memory", binary),
            row(
                Role::Other,
                "the same, with a sending thread",
                BatchLine { has_sender: true, ..binary },
            ),
            tick(1_000),
            tick(100),
            tick(10),
            tick(1),
        ]
    },
};

pub(super) const D13: Ablation = Ablation {
    name: "d13",
    title: "Results copied one by one, or written in place",
    unit: "tasks/s",
    expects: Expects::More,
    source: "1,500,000 to 2,000,000 per second",
    conclusion: "A result that is written directly into the send buffer is touched once. An \
              allocation and two copies per task, and a read per record at the other end, cost as \
              much as hashing with a good kernel.",
    deviation_reason: "hashing is so slow here that copies make no difference.",
    variants: || {
        let right = BatchLine { reading: Reading::Whole, ..BatchLine::right(BATCH, Kernel::Lanes) };
        let row = |role, name: &str, line: BatchLine| {
            Variant::new(role, name, move |time| Ok(Sample::new(line.run(time)?.per_second())))
        };
        vec![
            row(
                Role::Naive,
                "copied, collected one by one",
                BatchLine { results: Results::Copied, reading: Reading::ByRecord, ..right },
            ),
            row(
                Role::Other,
                "copied, collected by batch",
                BatchLine { results: Results::Copied, ..right },
            ),
            row(Role::Right, "in place, collected by batch", right),
        ]
    },
};
