//! Applies the stream: each record as a unit of work, which goes to the log of this server with the
//! position of the record in the stream.

use base::time::Now;
use binlog::Lsn;
use smallvec::SmallVec;
use store::{
    DATABASES, Keyspace, Mutation, Params, PartitionKey, STRIPES, Scope, StoreError, Version,
};
use wire::replication::{
    Chain, Copied, Frame, Header, Kind, Opening, Record as StreamRecord, StreamError, take_block,
    take_record,
};

use super::reload::{is_cached, reload};
use crate::engine::commit::{Record, Unit};
use crate::engine::gate::Gate;
use crate::engine::local_tables::{PEERS, is_local};
use crate::engine::reactor_state::ReactorState;
use crate::engine::records::{self, RECORD_BYTES_MAX};
use crate::engine::replication::{History, LinkState, Request, Role};
use crate::engine::role_change;
use crate::engine::server_state::ServerState;
use crate::handler::State;

/// How far the stream is applied, and where the last record ends in the log of this server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// `None`: the copy is incomplete.
    pub(crate) position: Option<u64>,
    pub(crate) log: Lsn,
}

/// Why the stream cannot be applied: the next link begins with a copy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("the stream continues at {found}, and this server is at {at}")]
    Gap { at: u64, found: u64 },
    #[error("the clock of the peer is more than a day ahead of the clock of this server")]
    Clock,
    #[error("a frame of kind {0:?} is out of order")]
    Order(Kind),
    #[error("a record of {0} bytes is too long for the log")]
    TooLong(usize),
    #[error("the data differs from the master's: {0}")]
    Differs(StoreError),
    #[error("a database or table was emptied during the copy, which begins again")]
    Emptied,
    #[error("could not load the copied schema: {0}")]
    Schema(String),
    #[error("this server is no longer a replica of that master")]
    Superseded,
    #[error(
        "the master has only what this server has written, so it follows this server or another of \
         its replicas: promote one of them"
    )]
    Circle,
    #[error("the log has failed")]
    Poisoned,
    #[error(
        "this server has not logged what the master has sent before position {0}: its data may \
         differ from the master's and is copied again; please report this, with both logs"
    )]
    Diverged(u64),
}

/// A copy that is being received.
#[derive(Debug)]
struct Copy {
    opening: Opening,
    /// Computes the stripes of the source.
    hasher: Keyspace,
    /// The position of each of its stripes.
    floors: Vec<u64>,
    keys: u64,
    /// Known when all blocks have arrived.
    reach: Option<u64>,
}

#[derive(Debug)]
enum Stage {
    Begin,
    Copying(Box<Copy>),
    Following,
}

#[derive(Debug)]
pub(crate) struct Applier<'s> {
    state: &'s State,
    shared: &'s ServerState,
    reactor: ReactorState,
    record: Record,
    generation: u64,
    stage: Stage,
    /// Where the next frame begins.
    position: u64,
    /// The last position that this link has logged.
    logged: u64,
    /// Of what this server has applied and logged.
    chain: Chain,
    /// End of the last record of this server's log.
    log_end: Lsn,
    /// What other parts of the server keep a copy of has changed.
    is_cache_stale: bool,
}

impl<'s> Applier<'s> {
    pub(crate) fn new(state: &'s State, generation: u64) -> Applier<'s> {
        let shared = &*state.shared;
        Applier {
            state,
            shared,
            reactor: ReactorState::of_link(shared),
            record: Record::default(),
            generation,
            stage: Stage::Begin,
            position: 0,
            logged: 0,
            chain: Chain::default(),
            log_end: Lsn(0),
            is_cache_stale: false,
        }
    }

    /// Where the stream should continue; `None`: this server needs a copy. The reactors no longer
    /// write.
    pub(crate) fn request(&mut self) -> Request {
        let replication = &self.shared.replication;
        let mut applied = replication.applied();
        let history = replication.history();
        // The first acknowledgment waits for the disk, too.
        self.log_end = self.shared.log.next();
        if let Some(position) = history.position(self.log_end) {
            *applied = position;
            replication.publish_applied(position);
        }
        self.position = *applied;
        let epoch = history.epoch_at(*applied).filter(|_| replication.role() != Role::Copying)?;
        Some((epoch.id, *applied))
    }

    /// Whether the log takes the records of a frame now.
    pub(crate) fn has_room(&self) -> bool {
        self.shared.log.has_room(self.reactor.lane)
    }

    pub(crate) fn is_copying(&self) -> bool {
        matches!(self.stage, Stage::Copying(_))
    }

    pub(crate) fn link_state(&self) -> LinkState {
        match self.stage {
            Stage::Begin => LinkState::Connecting,
            Stage::Copying(_) => LinkState::Copying,
            Stage::Following => LinkState::Connected,
        }
    }

    /// Applies one frame.
    pub(crate) fn apply(&mut self, now: Now, frame: &Frame<'_>) -> Result<Applied, ApplyError> {
        let params = self.reactor.begin_off_reactor(self.shared, now);
        let applied = self.apply_frame(&params, frame);
        if matches!(applied, Err(ApplyError::Diverged(_) | ApplyError::Differs(_))) {
            self.give_up(&params)?;
            self.shared.log.request_sync(self.log_end);
        }
        applied?;
        self.reactor.end_off_reactor(self.shared);
        self.reactor.accounts.flush();
        let position = (!self.is_copying()).then_some(self.position);
        Ok(Applied { position, log: self.log_end })
    }

    fn apply_frame(&mut self, params: &Params, frame: &Frame<'_>) -> Result<(), ApplyError> {
        let Frame { header, contents, .. } = frame;
        match header.kind {
            Kind::Resume => self.resume(params, frame)?,
            Kind::Copy => self.begin_copy(params, frame)?,
            Kind::Block => self.apply_block(params, header, contents)?,
            Kind::Copied => self.end_blocks(contents)?,
            Kind::Records => self.apply_records(params, header, contents)?,
            Kind::Heartbeat => self.check_place(header)?,
            // For archives, for the peers of a group of masters, and not a part of the data.
            Kind::Times | Kind::States | Kind::Members => {
                return Err(ApplyError::Order(header.kind));
            }
        }
        if header.kind != Kind::Records {
            self.chain.add_contents(header.kind, header.end, contents);
        }
        if self.chain != frame.chain {
            return Err(ApplyError::Diverged(header.end));
        }
        if matches!(header.kind, Kind::Records | Kind::Heartbeat) {
            self.advance(header.end)?;
        }
        self.end_copy(params)?;
        if header.kind == Kind::Heartbeat && header.base == header.end {
            self.log_position(params)?;
        }
        if std::mem::take(&mut self.is_cache_stale) && !self.is_copying() {
            reload(self.state, params).map_err(ApplyError::Schema)?;
        }
        Ok(())
    }

    /// Ends the link: logs the position that it has reached.
    pub(super) fn leave(&mut self, now: Now) -> Result<(), ApplyError> {
        let params = self.reactor.begin_off_reactor(self.shared, now);
        self.log_position(&params)?;
        self.reactor.end_off_reactor(self.shared);
        self.reactor.accounts.flush();
        self.shared.log.request_sync(self.log_end);
        Ok(())
    }

    /// Logs the position if no record ends there: the log of the source has marks after its last
    /// record. The servers that follow this one, and this one after a restart, come as far. Not for
    /// each mark: that would be a second record for each one of a busy source.
    fn log_position(&mut self, params: &Params) -> Result<(), ApplyError> {
        let position = self.position;
        // A frame that failed may have logged more.
        if !matches!(self.stage, Stage::Following) || self.logged >= position {
            return Ok(());
        }
        self.commit(params, |unit, _| {
            unit.follow(position);
            Ok(())
        })?;
        self.logged = position;
        Ok(())
    }

    /// Makes the data incomplete, until the next link has copied it: it must not be served.
    fn give_up(&mut self, params: &Params) -> Result<(), ApplyError> {
        let shared = self.shared;
        self.commit(params, |unit, applied| {
            let none = History::default();
            role_change::follow(shared, unit, none, applied, 0).map_err(ApplyError::Differs)
        })?;
        // The servers that follow this one have the same data.
        shared.transfers.end_streams();
        Ok(())
    }

    fn check_place(&self, header: &Header) -> Result<(), ApplyError> {
        if matches!(self.stage, Stage::Begin) {
            return Err(ApplyError::Order(header.kind));
        }
        let (at, found) = (self.position, header.base);
        if at == found { Ok(()) } else { Err(ApplyError::Gap { at, found }) }
    }

    /// Runs `change` on a unit of work that has locked no stripe, while this server is a replica of
    /// the same master, and logs the unit.
    fn commit(
        &mut self,
        params: &Params,
        change: impl FnOnce(&mut Unit<'_>, &mut u64) -> Result<(), ApplyError>,
    ) -> Result<(), ApplyError> {
        let mut applied = self.shared.replication.applied();
        if self.shared.replication.link().generation != self.generation {
            return Err(ApplyError::Superseded);
        }
        let locked = self.shared.keyspace.lock(std::iter::empty(), params);
        let mut unit = Unit::of_server(self.shared, &self.reactor, &mut self.record, locked);
        change(&mut unit, &mut applied)?;
        let gate = unit.commit(&mut self.reactor);
        self.shared.replication.publish_applied(*applied);
        drop(applied);
        if gate == Gate::NEVER {
            return Err(ApplyError::Poisoned);
        }
        self.log_end = gate.lsn().unwrap_or(self.log_end).max(self.log_end);
        Ok(())
    }

    fn resume(&mut self, params: &Params, frame: &Frame<'_>) -> Result<(), ApplyError> {
        let header = &frame.header;
        if !matches!(self.stage, Stage::Begin) {
            return Err(ApplyError::Order(header.kind));
        }
        let (at, found) = (self.position, header.base);
        if at != found {
            return Err(ApplyError::Gap { at, found });
        }
        let opening = Opening::decode(frame)?;
        let is_circle = {
            // Only this server has assigned positions of its own newest epoch.
            let history = self.shared.replication.history();
            let newest = opening.epochs.last().map(|epoch| epoch.id);
            history.own().is_some() && history.epoch().map(|epoch| epoch.id) == newest
        };
        if is_circle {
            return Err(ApplyError::Circle);
        }
        self.follow_epochs(params, opening, at)?;
        tracing::info!(position = at, "following the master");
        self.stage = Stage::Following;
        Ok(())
    }

    /// Stores that this server follows these epochs from now on.
    fn follow_epochs(
        &mut self,
        params: &Params,
        opening: Opening,
        position: u64,
    ) -> Result<(), ApplyError> {
        let shared = self.shared;
        let mut history = shared.replication.history().clone();
        let before = history.clone();
        history.follow(opening.epochs, shared.log.next(), position);
        if history == before {
            return Ok(());
        }
        self.commit(params, |unit, applied| {
            role_change::follow(shared, unit, history, applied, position)
                .map_err(ApplyError::Differs)
        })?;
        shared.transfers.end_streams();
        Ok(())
    }

    /// Empties this server for a copy.
    fn begin_copy(&mut self, params: &Params, frame: &Frame<'_>) -> Result<(), ApplyError> {
        let header = &frame.header;
        if !matches!(self.stage, Stage::Begin) {
            return Err(ApplyError::Order(header.kind));
        }
        let opening = Opening::decode(frame)?;
        let shared = self.shared;
        tracing::info!(
            position = header.base,
            own_position = self.position,
            "copying the data of the master; this server's own data is removed"
        );
        self.give_up(params)?;
        let tables = shared.keyspace.tables();
        // The peers of a group of masters, too: where they are followed does not fit the new data.
        shared.hub.peers().clear();
        let tables = tables.into_iter().filter(|table| *table == PEERS || !is_local(*table));
        self.commit(params, |unit, _| {
            lock_all(unit);
            let emptied = tables.map(|table| Mutation::Truncate { table });
            // Those of its own group do not hold for the data of the master.
            let floors =
                (0..).take(DATABASES).map(|db| Mutation::Floor { db, version: Version::NONE });
            for mutation in emptied.chain([Mutation::Flush { db: None }]).chain(floors) {
                unit.change(&mutation).map_err(ApplyError::Differs)?;
            }
            Ok(())
        })?;
        self.position = header.base;
        let hasher = Keyspace::new(opening.seed);
        let floors = vec![0; STRIPES];
        self.stage =
            Stage::Copying(Box::new(Copy { opening, hasher, floors, keys: 0, reach: None }));
        Ok(())
    }

    fn apply_block(
        &mut self,
        params: &Params,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), ApplyError> {
        let Stage::Copying(copy) = &mut self.stage else {
            return Err(ApplyError::Order(header.kind));
        };
        let (stripe, mutations) = take_block(payload)?;
        let floor = usize::try_from(stripe).ok().and_then(|stripe| copy.floors.get_mut(stripe));
        *floor.ok_or(StreamError::Malformed("block"))? = header.end;
        if mutations.len() > RECORD_BYTES_MAX {
            return Err(ApplyError::TooLong(mutations.len()));
        }
        let shared = self.shared;
        let mut keys = 0;
        self.commit(params, |unit, _| {
            lock_all(unit);
            let (mut input, mut is_whole) = (mutations, true);
            while !input.is_empty() {
                let mutation = decode(&mut input, shared)?;
                keys += 1;
                if is_of_source_alone(&mutation) {
                    is_whole = false;
                    continue;
                }
                unit.change(&mutation).map_err(ApplyError::Differs)?;
            }
            let is_same = !is_whole || is_logged(unit, mutations, shared)?;
            if is_same { Ok(()) } else { Err(ApplyError::Diverged(header.end)) }
        })?;
        if let Stage::Copying(copy) = &mut self.stage {
            copy.keys += keys;
        }
        Ok(())
    }

    fn end_blocks(&mut self, payload: &[u8]) -> Result<(), ApplyError> {
        let Stage::Copying(copy) = &mut self.stage else {
            return Err(ApplyError::Order(Kind::Copied));
        };
        let copied = Copied::decode(payload)?;
        if copied.keys != copy.keys {
            return Err(StreamError::Malformed("wrong number of keys").into());
        }
        copy.reach = Some(copied.reach);
        self.shared.write_clock.pass(copied.newest_timestamp);
        Ok(())
    }

    /// Ends the copy if the data is consistent now.
    fn end_copy(&mut self, params: &Params) -> Result<(), ApplyError> {
        let Stage::Copying(copy) = &self.stage else { return Ok(()) };
        if copy.reach.is_none_or(|reach| self.position < reach) {
            return Ok(());
        }
        let (opening, keys, position) = (copy.opening.clone(), copy.keys, self.position);
        reload(self.state, params).map_err(ApplyError::Schema)?;
        self.follow_epochs(params, opening, position)?;
        self.stage = Stage::Following;
        tracing::info!(keys, position, "the copy is complete; following the master");
        Ok(())
    }

    fn apply_records(
        &mut self,
        params: &Params,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), ApplyError> {
        self.check_place(header)?;
        let (mut input, mut last) = (payload, header.base);
        while let Some(record) = take_record(header, &mut input)? {
            if record.end < last {
                return Err(StreamError::Malformed("the ends of its records shrink").into());
            }
            last = record.end;
            self.apply_record(params, &record)?;
        }
        Ok(())
    }

    /// Notes that there are no more records up to a position.
    fn advance(&mut self, end: u64) -> Result<(), ApplyError> {
        let mut applied = self.shared.replication.applied();
        if self.shared.replication.link().generation != self.generation {
            return Err(ApplyError::Superseded);
        }
        (*applied, self.position) = (end, end);
        self.shared.replication.publish_applied(end);
        Ok(())
    }

    fn apply_record(
        &mut self,
        params: &Params,
        record: &StreamRecord<'_>,
    ) -> Result<(), ApplyError> {
        let shared = self.shared;
        let contents = records::parse(record.kind, record.payload)
            .ok_or(StreamError::Malformed("unknown kind of record"))?;
        let bytes = contents.mutations;
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(ApplyError::TooLong(bytes.len()));
        }
        let copy = match &self.stage {
            Stage::Copying(copy) => Some(&**copy),
            Stage::Begin | Stage::Following => None,
        };
        let mut mutations: SmallVec<[Mutation<'_>; 2]> = SmallVec::new();
        let (mut input, mut count) = (bytes, 0);
        while !input.is_empty() {
            let mutation = decode(&mut input, shared)?;
            count += 1;
            if !is_of_source_alone(&mutation) && !is_copied(copy, &mutation, record.end)? {
                self.is_cache_stale |= changes_cache(&mutation);
                mutations.push(mutation);
            }
        }
        let is_following = copy.is_none();
        self.commit(params, |unit, applied| {
            lock(unit, &mutations);
            for mutation in &mutations {
                unit.change(mutation).map_err(ApplyError::Differs)?;
            }
            if mutations.len() == count && !is_logged(unit, bytes, shared)? {
                return Err(ApplyError::Diverged(record.end));
            }
            if let Some(stamp) = contents.stamp {
                unit.stamp(stamp);
                shared.write_clock.pass(stamp);
            }
            if is_following || !mutations.is_empty() {
                unit.follow(record.end);
            }
            *applied = record.end;
            Ok(())
        })?;
        self.logged = record.end;
        // Only now: the checksum states what is in the log of this server.
        self.chain.add_record(record);
        Ok(())
    }
}

pub(super) fn decode<'a>(
    input: &mut &'a [u8],
    shared: &ServerState,
) -> Result<Mutation<'a>, ApplyError> {
    let decoded = Mutation::decode(input, |key| shared.keyspace.hash(key));
    decoded.map_err(|_| StreamError::Malformed("mutation").into())
}

/// The partition that a mutation changes.
fn partition<'a>(mutation: &Mutation<'a>) -> Option<PartitionKey<'a>> {
    match mutation {
        Mutation::Partition { key, .. } | Mutation::Purge { key, .. } => Some(*key),
        _ => None,
    }
}

/// Whether the unit logs exactly these mutations.
fn is_logged(unit: &Unit<'_>, mutations: &[u8], shared: &ServerState) -> Result<bool, ApplyError> {
    if unit.encoded() == mutations {
        return Ok(true);
    }
    // A master of another version may have other bytes for the same mutation.
    let (mut input, mut encoded) = (mutations, Vec::new());
    while !input.is_empty() {
        decode(&mut input, shared)?.encode(&mut encoded);
    }
    Ok(unit.encoded() == encoded)
}

/// Whether a mutation changes data that describes the source alone.
pub(crate) fn is_of_source_alone(mutation: &Mutation<'_>) -> bool {
    partition(mutation).is_some_and(|key| is_local(key.table))
}

/// Whether a mutation changes data that other parts of the server keep a copy of.
pub(super) fn changes_cache(mutation: &Mutation<'_>) -> bool {
    match mutation {
        Mutation::Truncate { table } => is_cached(*table),
        other => partition(other).is_some_and(|key| is_cached(key.table)),
    }
}

/// Whether the copy of the changed data contains the record that ends at `end`.
fn is_copied(copy: Option<&Copy>, mutation: &Mutation<'_>, end: u64) -> Result<bool, ApplyError> {
    let Some(copy) = copy else { return Ok(false) };
    let stripe = match mutation {
        Mutation::Key { key, .. } | Mutation::Version { key, .. } => {
            copy.hasher.stripe_of_key(key.bytes)
        }
        Mutation::Floor { .. } | Mutation::Origin { .. } => return Ok(false),
        Mutation::Partition { key, .. } | Mutation::Purge { key, .. } => {
            Keyspace::stripe_of_partition(*key)
        }
        // Some of the keys may be newer, and this server cannot tell which.
        Mutation::Flush { .. } | Mutation::Swap { .. } | Mutation::Truncate { .. } => {
            return Err(ApplyError::Emptied);
        }
    };
    Ok(end <= copy.floors[stripe])
}

/// Locks what the mutations change.
pub(super) fn lock(unit: &mut Unit<'_>, mutations: &[Mutation<'_>]) {
    let hash = |mutation: &Mutation<'_>| match mutation.scope() {
        Scope::One(hash) => Some(Some(hash)),
        Scope::All => Some(None),
        Scope::Nothing => None,
    };
    let hashes: Option<SmallVec<[u64; 4]>> = mutations.iter().filter_map(hash).collect();
    match hashes {
        Some(hashes) => assert!(unit.relock_with(&hashes, |_| false), "it never gives up"),
        None => lock_all(unit),
    }
}

fn lock_all(unit: &mut Unit<'_>) {
    assert!(unit.relock_all(|_| false), "it never gives up");
}
