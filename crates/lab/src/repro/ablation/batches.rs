//! A line that carries batches: a reader passes them to workers, and their results go to a
//! collector. Its options are the changes of the tuning steps.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use parking_lot::Mutex;

use crate::repro::ablation::line::Line;
use crate::repro::ablation::{core_count, cores, join, real, work};
use pipeline::task::{BatchTask as _, Codec, Exercise, INPUT_BYTES, Ids, Kernel, OUTPUT_BYTES};

/// Batches that wait for a worker, or for the sending thread.
const WAITING_MAX: usize = 64;
/// Buffer of connections that are not read by batch.
const BUFFER_BYTES: usize = 8 << 10;

/// Encoding of records in transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Records {
    /// `id x y DIGEST`, one line each.
    Text,
    Binary,
}

/// Where results are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Results {
    /// Each in its own allocation, then joined.
    Copied,
    /// In the send buffer, which is reused.
    InPlace,
}

/// How whole batches are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// One record at a time from a buffered connection.
    ByRecord,
    /// Waits until a whole batch is available.
    Whole,
    /// Takes the available bytes.
    Loop,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLine {
    /// Records per transfer of generator, executor and collector.
    pub(super) batches: [usize; 3],
    pub(super) records: Records,
    pub(super) results: Results,
    pub(super) reading: Reading,
    /// Whether a dedicated thread sends results.
    pub(super) has_sender: bool,
    pub(super) kernel: Kernel,
}

impl BatchLine {
    /// The line after all steps.
    pub(super) fn right(batch: usize, kernel: Kernel) -> Self {
        Self {
            batches: [batch; 3],
            records: Records::Binary,
            results: Results::InPlace,
            reading: Reading::Loop,
            has_sender: false,
            kernel,
        }
    }

    fn task(&self) -> Exercise {
        Exercise::new(Codec::Sha256Le, work::SEED, self.kernel)
    }

    /// Passes batches from the connection to the workers.
    fn read_tasks(
        &self,
        from: TcpStream,
        sender: &SyncSender<Vec<u8>>,
        spare: &Mutex<Vec<Vec<u8>>>,
    ) -> Result<()> {
        let hand_over = |batch: &[u8]| {
            let mut bytes = match self.results {
                Results::InPlace => spare.lock().pop().unwrap_or_default(),
                Results::Copied => Vec::new(),
            };
            bytes.clear();
            bytes.extend_from_slice(batch);
            sender.send(bytes).map_err(|_| anyhow!("all workers have ended"))
        };
        if self.records == Records::Text {
            let mut batch = Vec::new();
            for line in BufReader::new(from).lines() {
                push_task(&line?, &mut batch)?;
                if batch.len() == self.batches[1] * INPUT_BYTES {
                    hand_over(&batch)?;
                    batch.clear();
                }
            }
            return if batch.is_empty() { Ok(()) } else { hand_over(&batch) };
        }
        let bytes = self.batches[1] * INPUT_BYTES;
        match self.reading {
            Reading::ByRecord | Reading::Whole => read_whole(from, bytes, hand_over),
            Reading::Loop => read_available(from, bytes, INPUT_BYTES, hand_over),
        }
    }

    fn work(
        &self,
        receiver: &Mutex<Receiver<Vec<u8>>>,
        spare: &Mutex<Vec<Vec<u8>>>,
        to: &Mutex<TcpStream>,
        send: Option<&SyncSender<Vec<u8>>>,
    ) -> Result<()> {
        let task = self.task();
        let mut outputs = Vec::new();
        loop {
            let Ok(inputs) = receiver.lock().recv() else { return Ok(()) };
            if self.results == Results::Copied {
                outputs = Vec::new();
            }
            let count = inputs.len() / INPUT_BYTES;
            if outputs.len() < count * OUTPUT_BYTES {
                outputs.resize(count * OUTPUT_BYTES, 0);
            }
            let ids = Ids { first: 0, count: u32::try_from(count)? };
            let used = task.run(ids, &inputs, &mut outputs)?;
            let copied = match (self.records, self.results) {
                (Records::Text, _) => Some(texts_of_results(&task, &outputs[..used]).into_bytes()),
                (Records::Binary, Results::Copied) => {
                    let records: Vec<Vec<u8>> =
                        outputs[..used].chunks(OUTPUT_BYTES).map(<[u8]>::to_vec).collect();
                    Some(records.concat())
                }
                (Records::Binary, Results::InPlace) => None,
            };
            match (send, copied) {
                (Some(send), copied) => {
                    let bytes = copied.unwrap_or_else(|| outputs[..used].to_vec());
                    send.send(bytes).map_err(|_| anyhow!("the sender has ended"))?;
                }
                (None, Some(bytes)) => to.lock().write_all(&bytes)?,
                (None, None) => to.lock().write_all(&outputs[..used])?,
            }
            if self.results == Results::InPlace {
                spare.lock().push(inputs);
            }
        }
    }
}

impl Line for BatchLine {
    fn generate(&self, mut to: TcpStream, until: Instant) -> Result<u64> {
        let task = self.task();
        let count = u32::try_from(self.batches[0])?;
        let mut first = 0;
        let mut bytes = vec![0; self.batches[0] * INPUT_BYTES];
        while Instant::now() < until {
            let used = task.generate(Ids { first, count }, &mut bytes)?;
            match self.records {
                Records::Binary => to.write_all(&bytes[..used])?,
                Records::Text => to.write_all(texts(&bytes[..used])?.as_bytes())?,
            }
            first += u64::from(count);
        }
        to.shutdown(Shutdown::Write)?;
        Ok(first)
    }

    fn execute(&self, from: TcpStream, to: TcpStream) -> Result<()> {
        let end = to.try_clone()?;
        let to = Mutex::new(to);
        let (sender, receiver) = sync_channel::<Vec<u8>>(WAITING_MAX);
        let (receiver, spare) = (Mutex::new(receiver), Mutex::new(Vec::new()));
        let (send, sent) = sync_channel::<Vec<u8>>(WAITING_MAX);
        let send = self.has_sender.then_some(send);
        thread::scope(|scope| {
            let (to, receiver, spare) = (&to, &receiver, &spare);
            let workers: Vec<_> = (0..cores())
                .map(|_| {
                    let send = send.clone();
                    scope.spawn(move || {
                        let outcome = self.work(receiver, spare, to, send.as_ref());
                        if outcome.is_err() {
                            // Drain the queue, so that no sender waits for a failed worker.
                            while receiver.lock().recv().is_ok() {}
                        }
                        outcome
                    })
                })
                .collect();
            drop(send);
            let writer = scope.spawn(move || -> Result<()> {
                for bytes in sent {
                    to.lock().write_all(&bytes)?;
                }
                Ok(())
            });
            let read = self.read_tasks(from, &sender, spare);
            drop(sender);
            for worker in workers {
                join(worker)?;
            }
            join(writer)?;
            end.shutdown(Shutdown::Write)?;
            read
        })
    }

    /// Counts results, and recomputes the last one of each batch.
    fn collect(&self, from: TcpStream) -> Result<u64> {
        let task = self.task();
        let mut collected = 0;
        if self.records == Records::Text {
            let mut last = String::new();
            for line in BufReader::new(from).lines() {
                last = line?;
                collected += 1;
            }
            ensure!(collected == 0 || last.len() > 2 * work::DIGEST_BYTES, "no result: {last}");
            return Ok(collected);
        }
        let mut count = |batch: &[u8]| {
            if let Some(last) = batch.chunks_exact(OUTPUT_BYTES).last() {
                ensure!(task.verify(last)?, "wrong result");
            }
            collected += u64::try_from(batch.len() / OUTPUT_BYTES)?;
            Ok(())
        };
        let bytes = self.batches[2] * OUTPUT_BYTES;
        match self.reading {
            Reading::ByRecord => {
                let mut from = BufReader::with_capacity(BUFFER_BYTES, from);
                let mut number = 0_u64;
                loop {
                    let mut record = vec![0; OUTPUT_BYTES];
                    if !fill(&mut from, &mut record)?.eq(&OUTPUT_BYTES) {
                        break;
                    }
                    number += 1;
                }
                collected = number;
            }
            Reading::Whole => read_whole(from, bytes, &mut count)?,
            Reading::Loop => read_available(from, bytes, OUTPUT_BYTES, &mut count)?,
        }
        Ok(collected)
    }
}

/// Fills the buffer, or less at the end of the input.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

fn read_whole(
    mut from: TcpStream,
    bytes: usize,
    mut sink: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut batch = vec![0; bytes];
    loop {
        let filled = fill(&mut from, &mut batch)?;
        if filled > 0 {
            sink(&batch[..filled])?;
        }
        if filled < bytes {
            return Ok(());
        }
    }
}

/// Each read takes the complete records that have arrived.
fn read_available(
    mut from: TcpStream,
    bytes: usize,
    record_bytes: usize,
    mut sink: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; bytes];
    let mut filled = 0;
    loop {
        let count = from.read(&mut buffer[filled..])?;
        if count == 0 {
            ensure!(filled == 0, "the connection ended within a record");
            return Ok(());
        }
        filled += count;
        let whole = filled - filled % record_bytes;
        if whole > 0 {
            sink(&buffer[..whole])?;
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
        }
    }
}

/// Formats tasks as lines.
fn texts(bytes: &[u8]) -> Result<String> {
    let mut text = String::new();
    for task in bytes.as_chunks::<INPUT_BYTES>().0 {
        let [id, xy] = [task[..8].first_chunk(), task[4..].first_chunk()];
        let id = u64::from_be_bytes(*id.context("truncated task")?);
        let xy = u64::from_be_bytes(*xy.context("truncated task")?);
        writeln!(text, "{id} {} {}", xy >> 16 & 0xffff, xy & 0xffff)?;
    }
    Ok(text)
}

fn push_task(line: &str, batch: &mut Vec<u8>) -> Result<()> {
    let mut words = line.split(' ');
    let mut next = || words.next().with_context(|| format!("malformed task: {line}"));
    let (id, x, y) = (next()?.parse::<u64>()?, next()?.parse::<u16>()?, next()?.parse::<u16>()?);
    batch.extend_from_slice(&id.to_be_bytes());
    batch.extend_from_slice(&x.to_be_bytes());
    batch.extend_from_slice(&y.to_be_bytes());
    Ok(())
}

fn texts_of_results(task: &Exercise, outputs: &[u8]) -> String {
    let mut text = String::new();
    for record in outputs.chunks(OUTPUT_BYTES) {
        text.push_str(&task.describe(record));
        text.push('\n');
    }
    text
}

/// Processor time of this process, in percent of one core, since `before`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Processor {
    ticks: u64,
    at: Instant,
}

/// Tick length of the counters in `/proc`.
const TICKS_PER_S: f64 = 100.0;

impl Processor {
    pub(super) fn read() -> Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat").context("read /proc/self/stat")?;
        // Source: proc(5), /proc/pid/stat: utime and stime are fields 14 and 15, the name may have blanks
        let (_, rest) = stat.rsplit_once(')').context("a strange /proc/self/stat")?;
        let fields = rest.split_whitespace().skip(11).take(2);
        let ticks =
            fields.map(|field| field.parse::<u64>().context("ticks")).sum::<Result<u64>>()?;
        Ok(Self { ticks, at: Instant::now() })
    }

    /// Percent of all cores.
    pub(super) fn percent_since(self, before: Self) -> f64 {
        let busy_s = real(self.ticks.saturating_sub(before.ticks)) / TICKS_PER_S;
        let all_s = self.at.duration_since(before.at).as_secs_f64() * real(core_count());
        busy_s / all_s.max(1e-9) * 100.0
    }
}
