//! What one replica is sent: the beginning of the stream, a copy of the data if it needs one, and
//! the records of the log: the durable ones, or also the [unsynced](super::unsynced) ones.
//!
//! A copy is made as a snapshot is: each stripe is encoded under its lock, with its position, while
//! the data changes. The log is kept from the beginning of the copy on, so that the records after
//! each stripe's position follow. Memory: one stripe, or one batch of records.

use std::sync::Arc;

use base::time::MonoNs;
use binlog::{Batch, Disk, FollowError, Follower, Log, Lsn, Mark, Record as LogRecord, Scope};
use store::{Keyspace, Mutation, Params, STRIPES, SnapshotBlock};
use wire::replication::{
    Chain, Copied, EpochId, FRAME_BYTES, Format, FrameWriter, Kind, Opening, Record, Time,
    put_block, put_members, put_time,
};

use super::history::{History, Place};
use super::states::{States, put_stripe};
use super::{GIVEN_UP, Replication, Request, Role};
use crate::config::ReplicaRules;
use crate::engine::gate::Gate;
use crate::engine::hub::Hub;
use crate::engine::rdb_file::Part;
use crate::engine::records;
use crate::engine::refusal::{SYNC_INCOMPLETE, SYNC_UNLINKED};
use crate::engine::write_clock::WriteClock;
use reactor::ConnId;

/// Bytes of a part of the stream.
const PART_BYTES: usize = 512 << 10;

/// What a feeder reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Feed<'a> {
    pub(crate) keyspace: &'a Keyspace,
    pub(crate) log: &'a Arc<Log>,
    pub(crate) disk: &'a dyn Disk,
    pub(crate) replication: &'a Replication,
    pub(crate) write_clock: &'a WriteClock,
    pub(crate) hub: &'a Hub,
    pub(crate) params: &'a Params,
    pub(crate) now: MonoNs,
    pub(crate) rules: ReplicaRules,
}

/// Sends the stream to one replica.
#[derive(Debug)]
pub(crate) struct Feeder {
    id: ConnId,
    stage: Stage,
    writer: FrameWriter,
    /// Encoded frames, and how many bytes of them are parts already.
    bytes: Vec<u8>,
    taken: usize,
    gate: Gate,
    batch: Batch,
    /// The epoch that the replica knows as the newest.
    epoch: Option<EpochId>,
    /// Of the data that the stream is made of.
    data_number: u64,
    reader: Reader,
    /// The reader has handed over the role of the master by the same request.
    is_hand_over: bool,
    /// The last position that was sent with the present time.
    timed: Option<u64>,
    /// Where records end in the log and in the stream, from the newest mark on.
    ends: Vec<(Lsn, u64)>,
    /// The number of the list of servers that was sent last; `None`: the replica reads none.
    listed: Option<u64>,
}

/// Ends of records that are kept for the next mark: those of a second without syncs.
const ENDS_MAX: usize = 1 << 20;

/// What the reader is sent after a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Records.
    Replica,
    /// Records, and the times at which positions became durable.
    Archive,
    /// The states of keys: a server of a group of masters, with its number.
    Peer(u16),
}

#[derive(Debug)]
enum Stage {
    Begin(Request),
    /// Searches the log of a replica for the last record of the stream up to this position.
    Search(Search),
    Copy(Copy),
    Follow {
        follower: Box<Follower>,
        position: u64,
    },
    /// Sends states to a peer, up to `end`.
    Send {
        follower: Box<Follower>,
        position: u64,
        end: u64,
        states: States,
    },
    End,
}

/// A search of the log of a replica.
#[derive(Debug)]
struct Search {
    follower: Box<Follower>,
    position: u64,
    /// Where the log ended when this server had applied that position, on disk or not.
    until: Lsn,
    /// The end of the last record up to the position, of those read so far.
    found: Option<Lsn>,
}

/// A copy that is being made.
#[derive(Debug)]
struct Copy {
    /// Follows the log from the beginning of the copy on.
    follower: Box<Follower>,
    /// Position of the stream where it follows.
    base: u64,
    next_stripe: usize,
    reach: u64,
    keys: u64,
}

/// Why the stream of a replica ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedError {
    #[error(transparent)]
    Follow(#[from] FollowError),
    #[error("the log has failed")]
    Poisoned,
    #[error("this server has begun an epoch that the replica does not know")]
    Epoch,
    #[error("this server has no complete data")]
    Incomplete,
    #[error("{GIVEN_UP}")]
    GivenUp,
    #[error("this server is to be a replica, and does not follow its master yet")]
    NoMaster,
    #[error("a record of the log has an unknown kind, {0}")]
    Kind(u8),
    #[error("a record of the log is malformed")]
    Malformed,
}

impl Feeder {
    pub(crate) fn new(
        id: ConnId,
        request: Request,
        reader: Reader,
        format: Format,
        reads_members: bool,
        is_hand_over: bool,
    ) -> Feeder {
        let stage = Stage::Begin(request);
        let (bytes, batch) = (Vec::new(), Batch::new());
        Feeder {
            id,
            stage,
            writer: FrameWriter::new(format, Chain::default()),
            bytes,
            taken: 0,
            gate: Gate::OPEN,
            batch,
            epoch: None,
            data_number: 0,
            reader,
            is_hand_over,
            timed: None,
            ends: Vec::new(),
            listed: reads_members.then_some(0),
        }
    }

    /// The next bytes for the replica; `None` if there is nothing to send. `wake` is called when
    /// there is something after that. `is_idle`: a heartbeat is due.
    pub(crate) fn next_part(
        &mut self,
        feed: &Feed<'_>,
        block: &mut SnapshotBlock,
        is_idle: bool,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Option<Part> {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(PART_BYTES);
            self.taken = 0;
            if let Err(error) = self.fill_part(feed, block, is_idle) {
                tracing::warn!(replica = self.id.0, %error, "could not feed a replica");
                self.stage = Stage::End;
                let reply = match error {
                    // It would be taken for a refusal of the promotion, which has happened.
                    _ if self.is_hand_over => String::new(),
                    FeedError::Incomplete => format!("-{SYNC_INCOMPLETE}\r\n"),
                    FeedError::NoMaster => format!("-{SYNC_UNLINKED}\r\n"),
                    _ => String::new(),
                };
                let bytes = reply.into_bytes();
                return Some(Part { bytes, gate: Gate::OPEN, is_last: true });
            }
        }
        if self.bytes.is_empty() {
            match &self.stage {
                Stage::Follow { follower, .. } | Stage::Search(Search { follower, .. }) => {
                    follower.set_waker(Box::new(wake));
                    follower.wake_when_readable();
                }
                Stage::Begin(_) | Stage::Copy(_) | Stage::Send { .. } | Stage::End => {}
            }
            return None;
        }
        let end = self.bytes.len().min(self.taken + PART_BYTES);
        let bytes = if self.taken == 0 && end == self.bytes.len() {
            std::mem::take(&mut self.bytes)
        } else {
            self.bytes[self.taken..end].to_vec()
        };
        self.taken = end.min(self.bytes.len());
        Some(Part { bytes, gate: self.gate, is_last: false })
    }

    /// Encodes frames until there are enough for a part, or nothing more to send now.
    fn fill_part(
        &mut self,
        feed: &Feed<'_>,
        block: &mut SnapshotBlock,
        is_idle: bool,
    ) -> Result<(), FeedError> {
        loop {
            self.stage = match std::mem::replace(&mut self.stage, Stage::End) {
                Stage::Begin(request) => self.begin(feed, request)?,
                Stage::Search(search) => self.search(feed, search)?,
                Stage::Copy(copy) => self.copy(feed, copy, block)?,
                Stage::Follow { follower, position } if self.peer().is_some() => {
                    self.follow_states(feed, follower, position, is_idle)?
                }
                Stage::Send { follower, position, end, states } => {
                    self.send_states(feed, follower, (position, end), states)
                }
                Stage::Follow { mut follower, position } => {
                    self.put_members(feed, position);
                    let position = self.follow(feed, &mut follower, position, is_idle)?;
                    Stage::Follow { follower, position }
                }
                Stage::End => Stage::End,
            };
            // Stripes may be empty.
            let is_going_on = matches!(self.stage, Stage::Copy(_) | Stage::Send { .. });
            if !is_going_on || self.bytes.len() >= PART_BYTES {
                return Ok(());
            }
        }
    }

    /// Decides whether the replica can continue where it is.
    fn begin(&mut self, feed: &Feed<'_>, request: Request) -> Result<Stage, FeedError> {
        let replication = feed.replication;
        {
            let _applied = replication.applied();
            if replication.role() == Role::Copying {
                return Err(FeedError::Incomplete);
            }
            self.data_number = replication.data_number();
            // A master whose epoch has not begun, and which is about to follow another one.
            if replication.unsynced.lost_from().is_some() {
                return Err(FeedError::NoMaster);
            }
        }
        let end = replication.end(feed.log);
        let history = replication.history().clone();
        let known = request.filter(|(id, position)| history.includes(id, *position, end));
        let Some((_, position)) = known else { return self.begin_copy(feed) };
        let until = {
            let applied = replication.applied();
            let next = feed.log.next();
            // The log need not have a record of it: this server may have copied the data.
            if replication.role() == Role::Replica && *applied == position {
                drop(applied);
                let follower = Box::new(feed.log.follow(next, Scope::Durable)?);
                return self.resume(feed, follower, position);
            }
            next
        };
        match history.find(position) {
            Some(Place::At(at)) if self.is_readable(feed, at) => {
                let follower = Box::new(feed.log.follow(at, Scope::Durable)?);
                self.resume(feed, follower, position)
            }
            Some(Place::After(from)) => {
                // The beginning of the era may have been truncated.
                let follower = match feed.log.follow(from, Scope::Durable) {
                    Err(FollowError::Truncated { first, .. }) => {
                        feed.log.follow(first, Scope::Durable)?
                    }
                    other => other?,
                };
                let follower = Box::new(follower);
                Ok(Stage::Search(Search { follower, position, until, found: None }))
            }
            Some(Place::At(_)) | None => self.begin_copy(feed),
        }
    }

    /// Whether the log has this position, and a record starts there.
    fn is_readable(&mut self, feed: &Feed<'_>, at: Lsn) -> bool {
        let follower = feed.log.follow(at, Scope::Durable);
        follower.is_ok_and(|mut follower| follower.next_batch(&mut self.batch).is_ok())
    }

    /// Searches one batch of records.
    fn search(&mut self, feed: &Feed<'_>, mut search: Search) -> Result<Stage, FeedError> {
        let is_over = if search.follower.next_batch(&mut self.batch)? {
            let history = feed.replication.history();
            let (found, is_over) = locate(&self.batch, &history, search.position);
            search.found = found.or(search.found);
            is_over
        } else if feed.log.poisoned().is_some() {
            return Err(FeedError::Poisoned);
        } else {
            search.follower.position() >= search.until
        };
        match search.found {
            Some(end) if is_over => {
                let follower = Box::new(feed.log.follow(end, Scope::Durable)?);
                self.resume(feed, follower, search.position)
            }
            None if is_over => self.begin_copy(feed),
            _ => Ok(Stage::Search(search)),
        }
    }

    fn resume(
        &mut self,
        feed: &Feed<'_>,
        follower: Box<Follower>,
        position: u64,
    ) -> Result<Stage, FeedError> {
        tracing::info!(replica = self.id.0, position, "a replica continues");
        self.open(feed, Kind::Resume, position)?;
        self.set_online(feed);
        Ok(Stage::Follow { follower, position })
    }

    fn begin_copy(&mut self, feed: &Feed<'_>) -> Result<Stage, FeedError> {
        // The replica gives up its own data. Of two servers that are made replicas of each other
        // at once, both would.
        if self.reader == Reader::Replica && feed.replication.lacks_master() {
            return Err(FeedError::NoMaster);
        }
        let (base, from) = {
            let applied = feed.replication.applied();
            let from = feed.log.next();
            (feed.replication.history().position(from).unwrap_or(*applied), from)
        };
        let follower = Box::new(feed.log.follow(from, Scope::Durable)?);
        tracing::info!(replica = self.id.0, position = base, "copying the data to a replica");
        self.open(feed, Kind::Copy, base)?;
        Ok(Stage::Copy(Copy { follower, base, next_stripe: 0, reach: base, keys: 0 }))
    }

    /// Appends the reply to PSYNC, and the first frame.
    fn open(&mut self, feed: &Feed<'_>, kind: Kind, base: u64) -> Result<(), FeedError> {
        let history = feed.replication.history();
        self.check_data(feed)?;
        let id = history.epoch().ok_or(FeedError::Incomplete)?.id;
        let name = String::from_utf8_lossy(&id);
        let reply = match kind {
            Kind::Resume => format!("+CONTINUE {name}\r\n"),
            _ => format!("+FULLRESYNC {name} {base}\r\n"),
        };
        self.bytes.extend_from_slice(reply.as_bytes());
        let opening = Opening {
            seed: feed.keyspace.seed(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            epochs: history.epochs().to_vec(),
        };
        self.writer.put_opening(kind, base, &opening, &mut self.bytes);
        self.epoch = Some(id);
        Ok(())
    }

    /// Notes that the replica has what precedes the records that follow. It acknowledges that when
    /// it is on its disk.
    fn set_online(&self, feed: &Feed<'_>) {
        feed.replication.change_replicas(feed.rules, feed.now, |all| {
            if let Some(replica) = all.get_mut(&self.id) {
                replica.is_online = true;
                // It acknowledges nothing during the copy, however long that takes.
                replica.heard = feed.now;
            }
        });
    }

    /// Encodes the next stripe, or the end of the copy.
    fn copy(
        &mut self,
        feed: &Feed<'_>,
        mut copy: Copy,
        block: &mut SnapshotBlock,
    ) -> Result<Stage, FeedError> {
        if copy.next_stripe == STRIPES {
            let Copy { base, reach, keys, .. } = copy;
            let newest_timestamp = feed.write_clock.newest();
            self.writer.put(Kind::Copied, (base, base), &mut self.bytes, |out| {
                Copied { reach, keys, newest_timestamp }.encode(out);
            });
            self.set_online(feed);
            return Ok(Stage::Follow { follower: copy.follower, position: copy.base });
        }
        let stripe = u32::try_from(copy.next_stripe).expect("STRIPES fits u32");
        let floor = self.encode_stripe(feed, copy.next_stripe, block)?;
        self.gate = self.gate.max(Gate::from_store(block.lsn));
        copy.reach = copy.reach.max(floor);
        copy.keys += block.keys;
        copy.next_stripe += 1;
        if self.peer().is_some() {
            put_stripe(feed, block, copy.base, &mut self.writer, &mut self.bytes)?;
            block.bytes.clear();
        }
        let mut rest = block.bytes.as_slice();
        while !rest.is_empty() {
            let length = whole_mutations(rest);
            let (some, more) = rest.split_at(length);
            self.writer.put(Kind::Block, (floor, floor), &mut self.bytes, |out| {
                put_block(stripe, some, out);
            });
            rest = more;
        }
        block.bytes.clear();
        block.bytes.shrink_to(PART_BYTES);
        Ok(Stage::Copy(copy))
    }

    /// The number of a peer.
    fn peer(&self) -> Option<u16> {
        if let Reader::Peer(number) = self.reader { Some(number) } else { None }
    }

    /// Reads the next records for a peer.
    fn follow_states(
        &mut self,
        feed: &Feed<'_>,
        mut follower: Box<Follower>,
        position: u64,
        is_idle: bool,
    ) -> Result<Stage, FeedError> {
        let peer = self.peer().unwrap_or_default();
        let has_more = follower.next_batch(&mut self.batch)?;
        if !has_more && feed.log.poisoned().is_some() {
            return Err(FeedError::Poisoned);
        }
        let history = feed.replication.history();
        self.check_epoch(feed, &history)?;
        let end = position_at(&history, follower.position()).unwrap_or(position).max(position);
        drop(history);
        let states =
            if has_more { States::of_batch(feed, peer, &self.batch)? } else { States::default() };
        self.batch.shrink();
        self.gate = Gate::OPEN;
        if !states.is_empty() {
            return Ok(Stage::Send { follower, position, end, states });
        }
        if is_idle || end > position {
            self.writer.put(Kind::Heartbeat, (position, end), &mut self.bytes, |_| {});
        }
        Ok(Stage::Follow { follower, position: end })
    }

    /// Encodes the next states for a peer as a frame.
    fn send_states(
        &mut self,
        feed: &Feed<'_>,
        follower: Box<Follower>,
        (position, end): (u64, u64),
        mut states: States,
    ) -> Stage {
        let peer = self.peer().unwrap_or_default();
        let place = (position, end);
        let (at, gate) = states.put_next(feed, peer, place, &mut self.writer, &mut self.bytes);
        self.gate = self.gate.max(gate);
        if states.is_empty() {
            return Stage::Follow { follower, position: at };
        }
        Stage::Send { follower, position: at, end, states }
    }

    /// Encodes the next records as a frame. Returns its end.
    fn follow(
        &mut self,
        feed: &Feed<'_>,
        follower: &mut Follower,
        position: u64,
        is_idle: bool,
    ) -> Result<u64, FeedError> {
        self.set_scope(feed, follower)?;
        if !follower.next_batch(&mut self.batch)? {
            if feed.log.poisoned().is_some() {
                return Err(FeedError::Poisoned);
            }
            // Marks of the log have positions, too.
            let history = feed.replication.history();
            self.check_epoch(feed, &history)?;
            let end = position_at(&history, follower.position()).unwrap_or(position);
            if is_idle || end > position {
                self.writer.put(Kind::Heartbeat, (position, end), &mut self.bytes, |_| {});
            }
            if is_idle || self.timed != Some(end) {
                self.put_present(feed, follower, end);
            }
            return Ok(end);
        }
        let history = feed.replication.history();
        self.check_epoch(feed, &history)?;
        let end =
            encode_records(&self.batch, &history, position, &mut self.writer, &mut self.bytes)?;
        if self.reader == Reader::Archive {
            let times = times_of(&self.batch, &history, position, &mut self.ends);
            put_times(&times, end, &mut self.writer, &mut self.bytes);
        }
        drop(history);
        self.batch.shrink();
        Ok(end)
    }

    /// Makes the follower read unsynced records, or only durable ones, as the setting is now.
    fn set_scope(&self, feed: &Feed<'_>, follower: &mut Follower) -> Result<(), FeedError> {
        let Some(epoch) = self.epoch.filter(|_| self.reader == Reader::Replica) else {
            return Ok(());
        };
        let (log, storage) = (feed.log, (feed.disk, &**feed.log));
        let is_unsynced =
            feed.replication.may_send_unsynced(&epoch, storage, (feed.keyspace, feed.params));
        let scope = if is_unsynced { Scope::Written } else { Scope::Durable };
        if scope != follower.scope() {
            *follower = log.follow(follower.position(), scope)?;
        }
        Ok(())
    }

    /// Appends the list of servers for drivers of CQL, if it has changed.
    fn put_members(&mut self, feed: &Feed<'_>, position: u64) {
        let Some(listed) = self.listed.filter(|_| self.reader == Reader::Replica) else { return };
        let view = feed.replication.members.view();
        if view.number == listed {
            return;
        }
        self.listed = Some(view.number);
        self.writer.put(Kind::Members, (position, position), &mut self.bytes, |out| {
            put_members(&view.list(), out);
        });
    }

    /// Appends the present time, at which everything durable has been sent, up to `end`.
    fn put_present(&mut self, feed: &Feed<'_>, follower: &Follower, end: u64) {
        if self.reader != Reader::Archive {
            return;
        }
        self.timed = Some(end);
        let unix_us = feed.log.unix_us();
        // Read after the clock: if nothing has become durable since, nothing was at that time.
        if let Some(unix_us) = unix_us
            && feed.log.durable() == follower.position()
        {
            let times = [Time { position: end, unix_us }];
            put_times(&times, end, &mut self.writer, &mut self.bytes);
        }
    }

    /// Checks that the records that have been read are of the epoch that the replica knows: those
    /// of a later one are written after the history has changed.
    fn check_epoch(&self, feed: &Feed<'_>, history: &History) -> Result<(), FeedError> {
        self.check_data(feed)?;
        let is_known = history.epoch().map(|epoch| epoch.id) == self.epoch;
        if is_known { Ok(()) } else { Err(FeedError::Epoch) }
    }

    fn check_data(&self, feed: &Feed<'_>) -> Result<(), FeedError> {
        let is_same = feed.replication.data_number() == self.data_number;
        if is_same { Ok(()) } else { Err(FeedError::GivenUp) }
    }

    /// Encodes a stripe. Returns the position of the stream up to which it contains all records.
    fn encode_stripe(
        &self,
        feed: &Feed<'_>,
        stripe: usize,
        block: &mut SnapshotBlock,
    ) -> Result<u64, FeedError> {
        let Replication { applied, history, .. } = feed.replication;
        // The data is not given up while this is locked.
        let applied = applied.lock();
        self.check_data(feed)?;
        feed.keyspace.snapshot_stripe(stripe, || feed.log.next().0, block);
        Ok(history.lock().position(Lsn(block.lsn)).unwrap_or(*applied))
    }
}

/// Bytes of the first mutations of a block: as many as fit into a frame, and at least one.
fn whole_mutations(block: &[u8]) -> usize {
    let mut rest = block;
    while block.len() - rest.len() < FRAME_BYTES && !rest.is_empty() {
        Mutation::decode(&mut rest, |_| 0).expect("a stripe encodes itself as mutations");
    }
    block.len() - rest.len()
}

/// Appends the records of a batch as a frame. Returns its end.
fn encode_records(
    batch: &Batch,
    history: &History,
    position: u64,
    writer: &mut FrameWriter,
    out: &mut Vec<u8>,
) -> Result<u64, FeedError> {
    let mut found = Vec::new();
    let mut end = position;
    for record in batch.records() {
        let contents = records::contents(&record).ok_or(FeedError::Kind(record.kind))?;
        // Records that name no position are of a time before this server was in a stream, and no
        // replica continues there.
        let named = position_at(history, record.end).or(contents.position);
        let Some(named) = named else { continue };
        end = named.max(end);
        found.push(Record { kind: contents.kind(), payload: contents.plain(), end });
    }
    end = end.max(position_at(history, batch.end()).unwrap_or(end));
    if end > position || !found.is_empty() {
        writer.put_records((position, end), &found, out);
    }
    Ok(end)
}

/// The marks of a batch as times of the stream. `position`: where the batch starts. `ends`: those of
/// earlier batches.
fn times_of(
    batch: &Batch,
    history: &History,
    position: u64,
    ends: &mut Vec<(Lsn, u64)>,
) -> Vec<Time> {
    // Of a replica: only the records name positions of the stream, and marks describe records
    // before them, possibly of an earlier batch.
    ends.push((batch.start(), position));
    ends.extend(batch.records().filter_map(|record| {
        let position = records::contents(&record)?.position?;
        Some((record.end, position))
    }));
    let last_at = |durable: Lsn| ends.partition_point(|(end, _)| *end <= durable).checked_sub(1);
    let time = |mark: Mark| {
        let named = || last_at(mark.durable).map(|at| ends[at].1);
        let position = position_at(history, mark.durable).or_else(named)?;
        Some(Time { position, unix_us: mark.unix_us? })
    };
    let mut times: Vec<Time> = batch.marks().filter_map(time).collect();
    times.sort_by_key(|time| time.position);
    let newest = batch.marks().last().and_then(|mark| last_at(mark.durable)).unwrap_or(0);
    let surplus = ends.len().saturating_sub(ENDS_MAX);
    ends.drain(..newest.max(surplus));
    times
}

fn put_times(times: &[Time], end: u64, writer: &mut FrameWriter, out: &mut Vec<u8>) {
    if !times.is_empty() {
        writer.put(Kind::Times, (end, end), out, |out| {
            for time in times {
                put_time(*time, out);
            }
        });
    }
}

/// The position of the stream at a position of the log where this server assigned them.
fn position_at(history: &History, end: Lsn) -> Option<u64> {
    let own = history.own_at(end)?;
    Some(own.stream + end.0 - own.log.0)
}

/// The end of the last record of a batch up to a position of the stream, and whether a record of
/// the batch ends after it. A replica may be at a position where no record ends: those of its
/// source's log include marks.
fn locate(batch: &Batch, history: &History, position: u64) -> (Option<Lsn>, bool) {
    let named = |record: LogRecord<'_>| {
        let named = || records::contents(&record)?.position;
        Some((position_at(history, record.end).or_else(named)?, record.end))
    };
    let mut found = None;
    for (named, end) in batch.records().filter_map(named) {
        if named > position {
            return (found, true);
        }
        found = Some(end);
    }
    (found, false)
}
