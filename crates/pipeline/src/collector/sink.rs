//! The durable sink: a log of the collected batches and the digest of each. A batch is acknowledged
//! when its record is durable, so a restarted collector resumes where the previous one stopped.
//!
//! ```text
//! kind  payload, big-endian
//!    1  an epoch begins: stream u64, epoch u32, plan as JSON
//!    2  a batch: stream u64, epoch u32, sequence u64, first id u64, count u32, digest u64
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use binlog::{AppendError, FileDisk, Log, Lsn, Options, Record, SyncPolicy, WriterHandle};
use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::collector::ledger::{Accepted, StreamLedger};
use crate::frame::{Header, Kind};
use crate::task::Plan;

const KIND_EPOCH: u8 = 1;
const KIND_BATCH: u8 = 2;
const BATCH_RECORD_BYTES: usize = 40;
/// One lane: the threads of a stream append under one lock.
const LANE: usize = 0;

/// A stream as recovered from the log.
#[derive(Debug, Clone)]
pub struct RecoveredStream {
    pub plan: Plan,
    pub ledger: StreamLedger,
}

/// The log of a collector.
#[derive(Debug)]
pub struct Sink {
    log: Arc<Log>,
    writer: Mutex<Option<WriterHandle>>,
    room: Arc<(Mutex<()>, Condvar)>,
}

impl Sink {
    /// Opens the log in a directory and reads all of it. Fails if a batch occurs twice: no
    /// collector writes that.
    pub fn open(dir: &Path, clock: Clock) -> Result<(Self, BTreeMap<u64, RecoveredStream>)> {
        let disk = FileDisk::open(dir).with_context(|| format!("open {}", dir.display()))?;
        let mut streams = BTreeMap::new();
        let options = Options { sync: SyncPolicy::Always, ..Options::default() };
        let mut replay = |record: Record<'_>| replay(&mut streams, &record).map_err(Into::into);
        let (log, recovered) = Log::open(Arc::new(disk), options, 1, Lsn(0), &mut replay)
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
        Ok((Self { log, writer: Mutex::new(Some(writer)), room }, streams))
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

    /// Waits while the log is full: the disk is slower than the incoming results.
    pub fn wait_for_space(&self) {
        while !self.log.has_room(LANE) {
            let mut guard = self.room.0.lock();
            self.room.1.wait_for(&mut guard, std::time::Duration::from_millis(1));
        }
    }

    /// Waits until everything up to `lsn` is durable. Fails if it never will be.
    pub fn wait_until_durable(&self, lsn: Lsn) -> Result<()> {
        while !self.is_durable(lsn)? {
            let mut guard = self.room.0.lock();
            self.log.wake_when_durable(LANE, lsn);
            self.room.1.wait_for(&mut guard, std::time::Duration::from_millis(1));
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

fn replay(streams: &mut BTreeMap<u64, RecoveredStream>, record: &Record<'_>) -> Result<()> {
    match record.kind {
        KIND_EPOCH => replay_epoch(streams, record.payload),
        KIND_BATCH => replay_batch(streams, record.payload),
        kind => bail!("unknown record kind {kind}"),
    }
}

fn replay_epoch(streams: &mut BTreeMap<u64, RecoveredStream>, payload: &[u8]) -> Result<()> {
    let (stream, rest) = payload.split_first_chunk::<8>().context("truncated record")?;
    let (epoch, plan) = rest.split_first_chunk::<4>().context("truncated record")?;
    let (stream, epoch) = (u64::from_be_bytes(*stream), u32::from_be_bytes(*epoch));
    let plan: Plan = serde_json::from_slice(plan).context("malformed plan")?;
    let known = streams
        .entry(stream)
        .or_insert_with(|| RecoveredStream { plan: plan.clone(), ledger: StreamLedger::default() });
    if !known.plan.has_same_tasks(&plan) || epoch <= known.ledger.epoch() {
        bail!("epoch {epoch} of stream {stream:016x} does not follow the previous one");
    }
    known.ledger.begin_epoch(epoch);
    Ok(())
}

fn replay_batch(streams: &mut BTreeMap<u64, RecoveredStream>, payload: &[u8]) -> Result<()> {
    let (header, digest) = decode_batch(payload).context("batch record with a wrong length")?;
    let stream = header.stream;
    let known = streams.get_mut(&stream).context("batch of an unknown stream")?;
    let accepted = known.ledger.accept(&header, digest);
    if accepted != Accepted::New {
        let (first, last) = (header.first_id, header.ids().end().saturating_sub(1));
        bail!("ids {first} to {last} of stream {stream:016x} are {accepted:?}: collected twice");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan() -> Plan {
        Plan { task: "nop".into(), seed: 1, batch: 10 }
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

    #[test]
    fn durable_records_are_recovered() {
        let dir = scratch("read");
        let (sink, streams) = Sink::open(&dir, Clock::new()).unwrap();
        assert!(streams.is_empty());
        sink.append_epoch(5, 1, &plan()).unwrap();
        sink.append_batch(&batch(1, 20), 3).unwrap();
        let end = sink.append_batch(&batch(1, 0), 4).unwrap();
        sink.wait_until_durable(end).unwrap();
        assert!(sink.is_durable(end).unwrap());
        sink.close().unwrap();
        drop(sink);
        let (sink, streams) = Sink::open(&dir, Clock::new()).unwrap();
        let stream = &streams[&5];
        assert_eq!((stream.ledger.epoch(), &stream.plan), (1, &plan()));
        assert_eq!(stream.ledger.ids().ranges(), [(0, 10), (20, 30)]);
        assert_eq!(stream.ledger.account(30).digest, 7);
        sink.append_batch(&batch(1, 0), 4).unwrap();
        sink.close().unwrap();
        drop(sink);
        let doubled = format!("{:#}", Sink::open(&dir, Clock::new()).unwrap_err());
        assert!(doubled.contains("ids 0 to 9 of stream 0000000000000005"), "{doubled}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn malformed_records_are_refused() {
        let mut streams = BTreeMap::new();
        let mut check = |kind, payload: &[u8], expected: &str| {
            let record = Record { start: Lsn(0), end: Lsn(1), kind, payload };
            let found = format!("{:#}", super::replay(&mut streams, &record).unwrap_err());
            assert!(found.contains(expected), "{found}");
        };
        check(9, &[], "kind 9");
        check(KIND_EPOCH, &[0; 11], "truncated");
        check(KIND_EPOCH, &[0; 13], "plan");
        check(KIND_BATCH, &[0; 39], "wrong length");
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
