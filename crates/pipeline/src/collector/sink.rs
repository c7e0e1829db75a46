//! The durable sink: a log of the collected batches and the digest of each. A batch is acknowledged
//! when its record is durable, so a restarted collector resumes where the previous one stopped. If
//! the collector writes files of results, the log contains the results too: the files are written
//! again from it, so that each result is in them once.
//!
//! ```text
//! kind  payload, big-endian
//!    1  an epoch begins: stream u64, epoch u32, plan as JSON
//!    2  a batch: stream u64, epoch u32, sequence u64, first id u64, count u32, digest u64
//!    3  a batch and its results: as 2, then the payload of the result frame
//!    4  results are written to a file: its path
//! ```

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use binlog::{AppendError, FileDisk, Log, Lsn, Options, Record, SyncPolicy, WriterHandle};
use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::collector::ledger::{Accepted, StreamLedger};
use crate::collector::results::{Results, ResultsOptions};
use crate::frame::{Header, Kind};
use crate::task::{BatchTask, Ids, Maker, Plan};

const KIND_EPOCH: u8 = 1;
const KIND_BATCH: u8 = 2;
const KIND_RESULTS: u8 = 3;
const KIND_FILE: u8 = 4;
const BATCH_RECORD_BYTES: usize = 40;
/// Time to wait for the lock of the log.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Interval at which the log is polled for durability.
pub(super) const DURABLE_PAUSE: Duration = Duration::from_micros(200);
/// One lane: the threads of a stream append under one lock.
const LANE: usize = 0;

/// A stream as recovered from the log.
#[derive(Debug)]
pub struct RecoveredStream {
    pub plan: Plan,
    pub task: Arc<dyn BatchTask>,
    pub ledger: StreamLedger,
}

/// What a log contains besides its streams.
#[derive(Debug, Default)]
pub struct LogContents {
    /// The first stream, whose results are written to files.
    pub first: Option<u64>,
    /// A batch of it without results.
    incomplete: Option<Ids>,
    /// The files that results were written to.
    files: BTreeSet<PathBuf>,
}

/// All that is recovered from a log.
#[derive(Debug, Default)]
pub struct Recovered {
    pub streams: BTreeMap<u64, RecoveredStream>,
    pub contents: LogContents,
}

/// The log of a collector.
#[derive(Debug)]
pub struct Sink {
    disk: Arc<FileDisk>,
    log: Arc<Log>,
    writer: Mutex<Option<WriterHandle>>,
    room: Arc<(Mutex<()>, Condvar)>,
}

impl Sink {
    /// Opens the log in a directory and reads all of it. Fails if a batch occurs twice: no
    /// collector writes that.
    pub fn open(dir: &Path, clock: Clock, make_task: &Maker) -> Result<(Self, Recovered)> {
        let disk = open_disk(dir).with_context(|| format!("open {}", dir.display()))?;
        let disk = Arc::new(disk);
        let mut replayed = Replay { make_task, recovered: Recovered::default() };
        let options = Options { sync: SyncPolicy::Always, ..Options::default() };
        let mut replay = |record: Record<'_>| replayed.record(&record).map_err(Into::into);
        let on_disk = Arc::<FileDisk>::clone(&disk);
        let (log, recovered) = Log::open(on_disk, options, 1, Lsn(0), &mut replay)
            .with_context(|| format!("could not read the log in {}", dir.display()))?;
        tracing::info!(records = recovered.records, end = recovered.end.0, "log recovered");
        let room = Arc::new((Mutex::new(()), Condvar::new()));
        let waker = Arc::clone(&room);
        log.set_waker(
            LANE,
            Box::new(move || {
                drop(waker.0.lock());
                waker.1.notify_all();
            }),
        );
        let writer =
            log.spawn_writer(move || clock.now()).context("could not start the log writer")?;
        Ok((Self { disk, log, writer: Mutex::new(Some(writer)), room }, replayed.recovered))
    }

    /// Creates the files of results and writes the results of the log to them. `task` is that of the
    /// log's first stream. Fails before a file is changed if its content would be lost.
    pub fn restore(
        &self,
        contents: &LogContents,
        task: Option<&dyn BatchTask>,
        options: &ResultsOptions,
    ) -> Result<Results> {
        if let Some(ids) = contents.incomplete {
            bail!(
                "the log does not contain the results of ids {} to {}, because it was written \
                 without --results and --dead-letters: continue without them, or with another \
                 directory",
                ids.first,
                ids.end().saturating_sub(1)
            );
        }
        options.check_existing(&contents.files)?;
        let mut results = Results::create(options)?;
        // Before a file has content: after a crash, the next run must know that it may replace it.
        let mut durable_at = Lsn(0);
        for file in results.files()?.difference(&contents.files) {
            durable_at = self.log.append(LANE, KIND_FILE, file.as_os_str().as_bytes())?;
        }
        self.wait_until_durable(durable_at)?;
        if let (Some(first), Some(task)) = (contents.first, task) {
            self.write_results(first, task, &mut results)?;
        }
        Ok(results)
    }

    fn write_results(
        &self,
        stream: u64,
        task: &dyn BatchTask,
        results: &mut Results,
    ) -> Result<()> {
        let mut write = |record: Record<'_>| {
            if record.kind != KIND_RESULTS {
                return Ok(());
            }
            let (header, _, outputs) = decode_results(record.payload)?;
            if header.stream != stream {
                return Ok(());
            }
            results.take(task, header.ids(), outputs)
        };
        binlog::dump(&*self.disk, Lsn(0), &mut |record| write(record).map_err(io::Error::other))
            .context("could not restore the results from the log")?;
        Ok(())
    }

    pub fn append_epoch(&self, stream: u64, epoch: u32, plan: &Plan) -> Result<Lsn> {
        let mut payload = Vec::with_capacity(64);
        payload.extend_from_slice(&stream.to_be_bytes());
        payload.extend_from_slice(&epoch.to_be_bytes());
        payload.extend_from_slice(&serde_json::to_vec(plan)?);
        Ok(self.log.append(LANE, KIND_EPOCH, &payload)?)
    }

    /// Must be called under the stream's lock, so that the log has the order of acceptance.
    pub fn append_batch(&self, header: &Header, digest: u64) -> Result<Lsn, AppendError> {
        self.log.append(LANE, KIND_BATCH, &encode_batch(header, digest))
    }

    /// Does the same with the results.
    pub fn append_results(
        &self,
        header: &Header,
        digest: u64,
        outputs: &[u8],
    ) -> Result<Lsn, AppendError> {
        let payload = [&encode_batch(header, digest), outputs].concat();
        self.log.append(LANE, KIND_RESULTS, &payload)
    }

    /// Waits while the log is full: the disk is slower than the incoming results.
    pub fn wait_for_space(&self) {
        while !self.log.has_room(LANE) {
            let mut guard = self.room.0.lock();
            self.room.1.wait_for(&mut guard, Duration::from_millis(1));
        }
    }

    /// Waits until everything up to `lsn` is durable. Fails if it never will be.
    pub fn wait_until_durable(&self, lsn: Lsn) -> Result<()> {
        while !self.is_durable(lsn)? {
            std::thread::sleep(DURABLE_PAUSE);
        }
        Ok(())
    }

    /// Starts a group commit if none is running.
    pub fn is_durable(&self, lsn: Lsn) -> Result<bool> {
        if self.log.durable() >= lsn {
            return Ok(true);
        }
        if let Some(poisoned) = self.log.poisoned() {
            return Err(anyhow!(poisoned).context("the collector's log"));
        }
        self.log.request_sync(lsn);
        Ok(false)
    }

    /// Returns the position of the next record. All earlier records end before it.
    pub fn end(&self) -> Lsn {
        self.log.next()
    }

    /// Syncs and closes.
    pub fn close(&self) -> Result<()> {
        match self.writer.lock().take() {
            Some(writer) => Ok(writer.stop().context("close the collector's log")?),
            None => Ok(()),
        }
    }
}

/// Waits for a collector that is about to end, for example because its parent was killed.
fn open_disk(dir: &Path) -> io::Result<FileDisk> {
    let started = Instant::now();
    loop {
        match FileDisk::open(dir) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if started.elapsed() > LOCK_WAIT_MAX {
                    return Err(error);
                }
                std::thread::sleep(LOCK_PAUSE);
            }
            opened => return opened,
        }
    }
}

fn encode_batch(header: &Header, digest: u64) -> [u8; BATCH_RECORD_BYTES] {
    let mut payload = [0; BATCH_RECORD_BYTES];
    let mut put = |at: usize, field: &[u8]| payload[at..at + field.len()].copy_from_slice(field);
    put(0, &header.stream.to_be_bytes());
    put(8, &header.epoch.to_be_bytes());
    put(12, &header.sequence.to_be_bytes());
    put(20, &header.first_id.to_be_bytes());
    put(28, &header.count.to_be_bytes());
    put(32, &digest.to_be_bytes());
    payload
}

fn decode_batch(payload: &[u8]) -> Option<(Header, u64)> {
    let payload: &[u8; BATCH_RECORD_BYTES] = payload.try_into().ok()?;
    let be32 = |at: usize| u32::from_be_bytes(*payload[at..].first_chunk().expect("inside"));
    let be64 = |at: usize| u64::from_be_bytes(*payload[at..].first_chunk().expect("inside"));
    let mut header = Header::control(Kind::Result, be64(0), be32(8));
    header.sequence = be64(12);
    header.first_id = be64(20);
    header.count = be32(28);
    Some((header, be64(32)))
}

fn decode_results(payload: &[u8]) -> Result<(Header, u64, &[u8])> {
    let parts = payload.split_at_checked(BATCH_RECORD_BYTES);
    let (batch, outputs) = parts.context("truncated record")?;
    let (header, digest) = decode_batch(batch).context("batch record with a wrong length")?;
    Ok((header, digest, outputs))
}

/// What is recovered while the log is read.
struct Replay<'a> {
    make_task: &'a Maker,
    recovered: Recovered,
}

impl Replay<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<()> {
        match record.kind {
            KIND_EPOCH => self.epoch(record.payload),
            KIND_BATCH => {
                let batch = decode_batch(record.payload);
                let (header, digest) = batch.context("batch record with a wrong length")?;
                self.batch(&header, digest, None)
            }
            KIND_RESULTS => {
                let (header, digest, outputs) = decode_results(record.payload)?;
                self.batch(&header, digest, Some(outputs))
            }
            KIND_FILE => {
                let path = PathBuf::from(OsStr::from_bytes(record.payload));
                self.recovered.contents.files.insert(path);
                Ok(())
            }
            kind => bail!("unknown record kind {kind}"),
        }
    }

    fn epoch(&mut self, payload: &[u8]) -> Result<()> {
        let (stream, rest) = payload.split_first_chunk::<8>().context("truncated record")?;
        let (epoch, plan) = rest.split_first_chunk::<4>().context("truncated record")?;
        let (stream, epoch) = (u64::from_be_bytes(*stream), u32::from_be_bytes(*epoch));
        let plan: Plan = serde_json::from_slice(plan).context("malformed plan")?;
        let Recovered { streams, contents } = &mut self.recovered;
        contents.first.get_or_insert(stream);
        let known = match streams.entry(stream) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let task = self.make_task.make(&plan);
                let task =
                    task.with_context(|| format!("could not restore stream {stream:016x}"))?;
                let ledger = StreamLedger::default();
                place.insert(RecoveredStream { plan: plan.clone(), task, ledger })
            }
        };
        if !known.plan.has_same_tasks(&plan) || epoch <= known.ledger.epoch() {
            bail!("epoch {epoch} of stream {stream:016x} does not follow the previous one");
        }
        known.ledger.begin_epoch(epoch);
        Ok(())
    }

    fn batch(&mut self, header: &Header, digest: u64, outputs: Option<&[u8]>) -> Result<()> {
        let (stream, ids) = (header.stream, header.ids());
        let (first, last) = (ids.first, ids.end().saturating_sub(1));
        let Recovered { streams, contents } = &mut self.recovered;
        let known = streams.get_mut(&stream).context("batch of an unknown stream")?;
        let accepted = known.ledger.accept(header, digest);
        if accepted != Accepted::New {
            bail!(
                "ids {first} to {last} of stream {stream:016x} are {accepted:?}: collected twice"
            );
        }
        if let Some(outputs) = outputs {
            if known.task.inspect(ids, outputs) != Ok(digest) {
                bail!("the results of ids {first} to {last} do not match their digest");
            }
            known.ledger.count_failed(&known.task.failed_ids(outputs));
        } else if contents.first == Some(stream) {
            contents.incomplete.get_or_insert(ids);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Codec, Exercise, Kernel, OUTPUT_BYTES};
    use proptest::prelude::*;

    fn plan() -> Plan {
        Plan { task: "nop".into(), seed: 1, batch: 10, limits: None }
    }

    fn batch(epoch: u32, first_id: u64) -> Header {
        let mut header = Header::control(Kind::Result, 5, epoch);
        (header.first_id, header.count, header.sequence) = (first_id, 10, first_id / 10);
        header
    }

    fn scratch(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("pipeline-sink-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn open(dir: &Path) -> Result<(Sink, Recovered)> {
        Sink::open(dir, Clock::new(), &Maker::built_in(Kernel::Serial))
    }

    /// Opens a log and writes its results to `path`. Returns the lines, or the reason to refuse.
    fn restore(dir: &Path, path: &Path) -> Result<String> {
        let order = crate::collector::Order::Input;
        let existing = crate::collector::Existing::Refuse;
        let path = Some(path.to_owned());
        let options = ResultsOptions { path, dead_letters: None, order, existing };
        let (sink, recovered) = open(dir)?;
        let task = recovered.streams.values().next().map(|stream| &*stream.task);
        let restored = sink.restore(&recovered.contents, task, &options);
        sink.close()?;
        restored?.flush()?;
        Ok(std::fs::read_to_string(options.path.unwrap())?)
    }

    /// Appends the results of ids 0 to 19 of stream 5.
    fn append_results(sink: &Sink) {
        sink.append_epoch(5, 1, &plan()).unwrap();
        let task = Exercise::new(Codec::Nop, 1, Kernel::Serial);
        for first in [10, 0] {
            let header = batch(1, first);
            let (mut inputs, mut outputs) = (vec![0; 120], vec![0; 10 * OUTPUT_BYTES]);
            task.generate(header.ids(), &mut inputs).unwrap();
            task.run(header.ids(), &inputs, &mut outputs).unwrap();
            let digest = task.inspect(header.ids(), &outputs).unwrap();
            sink.append_results(&header, digest, &outputs).unwrap();
        }
    }

    /// The files are written again, without the lines whose records were not durable. A log without
    /// results, as earlier versions write it, cannot fill them.
    #[test]
    fn files_of_results_are_restored() {
        let dir = scratch("results");
        let path = dir.join("lines");
        assert_eq!(restore(&dir, &path).unwrap(), "");
        let (sink, _) = open(&dir).unwrap();
        append_results(&sink);
        sink.close().unwrap();
        drop(sink);
        std::fs::write(&path, "not durable\n").unwrap();
        let text = restore(&dir, &path).unwrap();
        let ids = text.lines().map(|line| line.split(' ').next().unwrap().parse::<u64>().unwrap());
        assert!(ids.eq(0..20_u64), "{text}");
        let (sink, _) = open(&dir).unwrap();
        sink.append_batch(&batch(1, 20), 3).unwrap();
        sink.close().unwrap();
        drop(sink);
        let error = format!("{:#}", restore(&dir, &path).unwrap_err());
        assert!(error.contains("does not contain the results of ids 20 to 29"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A log does not permit to replace files that are not its own.
    #[test]
    fn other_files_are_kept() {
        let dir = scratch("other-files");
        let (sink, _) = open(&dir).unwrap();
        append_results(&sink);
        sink.close().unwrap();
        drop(sink);
        let notes = dir.join("notes");
        std::fs::write(&notes, "keep\n").unwrap();
        let error = format!("{:#}", restore(&dir, &notes).unwrap_err());
        assert!(error.contains("notes has content"), "{error}");
        assert_eq!(std::fs::read_to_string(&notes).unwrap(), "keep\n");
        // A new file becomes one of the log, also by another path.
        let new = dir.join("new");
        assert_eq!(restore(&dir, &new).unwrap().lines().count(), 20);
        let link = dir.join("link");
        std::os::unix::fs::symlink(&new, &link).unwrap();
        assert_eq!(restore(&dir, &link).unwrap().lines().count(), 20);
        assert!(restore(&dir, &notes).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn durable_records_are_recovered() {
        let dir = scratch("read");
        let (sink, recovered) = open(&dir).unwrap();
        assert!(recovered.streams.is_empty());
        sink.append_epoch(5, 1, &plan()).unwrap();
        sink.append_batch(&batch(1, 20), 3).unwrap();
        let end = sink.append_batch(&batch(1, 0), 4).unwrap();
        sink.wait_until_durable(end).unwrap();
        assert!(sink.is_durable(end).unwrap());
        sink.close().unwrap();
        drop(sink);
        let (sink, recovered) = open(&dir).unwrap();
        let stream = &recovered.streams[&5];
        assert_eq!((stream.ledger.epoch(), &stream.plan), (1, &plan()));
        assert_eq!(stream.ledger.ids().ranges(), [(0, 10), (20, 30)]);
        assert_eq!(stream.ledger.account(30).digest, 7);
        sink.append_batch(&batch(1, 0), 4).unwrap();
        sink.close().unwrap();
        drop(sink);
        let doubled = format!("{:#}", open(&dir).unwrap_err());
        assert!(doubled.contains("ids 0 to 9 of stream 0000000000000005"), "{doubled}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A position becomes durable at any point of a wait for it, also just before the wait.
    #[test]
    fn waits_end_whenever_the_log_syncs() {
        let dir = scratch("waits");
        let (sink, _) = open(&dir).unwrap();
        sink.append_epoch(5, 1, &plan()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let sink = &sink;
                scope.spawn(move || {
                    for number in 0..500 {
                        let header = batch(1, 10 * (4 * number + thread));
                        let end = sink.append_batch(&header, 1).unwrap();
                        sink.wait_until_durable(end).unwrap();
                        assert!(sink.is_durable(end).unwrap());
                    }
                });
            }
        });
        sink.close().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn malformed_records_are_refused() {
        let make_task = Maker::built_in(Kernel::Serial);
        let mut replay = Replay { make_task: &make_task, recovered: Recovered::default() };
        let mut check = |kind, payload: &[u8], expected: &str| {
            let record = Record { start: Lsn(0), end: Lsn(1), kind, payload };
            let found = format!("{:#}", replay.record(&record).unwrap_err());
            assert!(found.contains(expected), "{found}");
        };
        check(9, &[], "kind 9");
        check(KIND_EPOCH, &[0; 11], "truncated");
        check(KIND_EPOCH, &[0; 13], "plan");
        check(KIND_BATCH, &[0; 39], "wrong length");
        check(KIND_RESULTS, &[0; 39], "truncated");
        check(KIND_BATCH, &encode_batch(&batch(1, 0), 1), "unknown stream");
    }

    proptest! {
        #[test]
        fn batches_are_read_back(epoch: u32, sequence: u64, count: u32, digest: u64) {
            let mut header = Header::control(Kind::Result, 5, epoch);
            (header.sequence, header.count) = (sequence, count);
            prop_assert_eq!(decode_batch(&encode_batch(&header, digest)), Some((header, digest)));
        }
    }
}
