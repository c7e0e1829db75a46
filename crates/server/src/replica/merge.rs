//! Merges what a peer of a group of masters has written: of two values of a key, the one with the
//! greater version stays. Nothing depends on the order or the number of deliveries.
//!
//! Each value is a unit of work, with the version that its author gave it. Rows of tables are
//! written as they are: their cells are resolved by their own timestamps.

use base::time::Now;
use binlog::Lsn;
use smallvec::SmallVec;
use store::{Change, Given, Key, Mutation, Params, STRIPES, Version};
use wire::replication::{Copied, EpochId, Frame, Kind, Opening, StreamError};

use super::apply::{ApplyError, changes_cache, decode, lock};
use super::reload::reload;
use crate::engine::commit::{Record, Unit};
use crate::engine::gate::Gate;
use crate::engine::hub::{self, Conflict};
use crate::engine::local_tables::is_local;
use crate::engine::reactor_state::ReactorState;
use crate::engine::records::RECORD_BYTES_MAX;
use crate::engine::replication::{LinkState, Request, Role};
use crate::engine::server_state::ServerState;
use crate::handler::State;

/// Keys of an emptied database that are deleted under one lock.
const DELETIONS_PER_LOCK_MAX: usize = 256;

/// Mutations that are decoded at a time, so that the memory of their keys is loaded together.
const AHEAD: usize = 32;

/// Growth of the peer's log without news for this server after which its position is stored again.
/// Storing grows the log of this server, which its peer may follow.
const SILENT_BYTES_MAX: u64 = 1 << 20;

/// How far the clock of a peer may be ahead: a day.
const LEAD_US_MAX: i64 = 24 * 3_600_000_000;

/// What has been decoded of a value without its version, or of rows without their author.
#[derive(Debug, Default)]
struct Open<'a> {
    value: Option<(u8, Key<'a>, Change<'a>)>,
    rows: SmallVec<[Mutation<'a>; 4]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Copying,
    Following,
}

#[derive(Debug)]
pub(crate) struct Merger<'s> {
    state: &'s State,
    shared: &'s ServerState,
    reactor: ReactorState,
    record: Record,
    server: u16,
    generation: u64,
    stage: Stage,
    epoch: Option<EpochId>,
    /// Where the next frame begins.
    position: u64,
    /// The position in the log of this server.
    stored: u64,
    log_end: Lsn,
    received: u64,
    lost: u64,
    conflicts: u64,
    is_cache_stale: bool,
}

impl<'s> Merger<'s> {
    /// `generation`: of the peer with this number.
    pub(crate) fn new(state: &'s State, server: u16, generation: u64) -> Merger<'s> {
        let shared = &*state.shared;
        Merger {
            state,
            shared,
            reactor: ReactorState::of_link(shared),
            record: Record::default(),
            server,
            generation,
            stage: Stage::Begin,
            epoch: None,
            position: 0,
            stored: 0,
            log_end: Lsn(0),
            received: 0,
            lost: 0,
            conflicts: 0,
            // An earlier link may have ended between the rows and the cache.
            is_cache_stale: true,
        }
    }

    /// Where the stream should continue; `None`: at its beginning, with a copy.
    pub(crate) fn request(&mut self) -> Request {
        let mut peers = self.shared.hub.peers();
        let peer = peers.get_mut(self.server, self.generation)?;
        let place = peer.place?;
        (self.position, self.stored) = (place.1, peer.stored);
        Some(place)
    }

    /// Notes a frame that was received and is to be merged.
    pub(crate) fn note_received(&self, frame: &Frame<'_>) {
        if let Some(peer) = self.shared.hub.peers().get_mut(self.server, self.generation) {
            peer.source_position = frame.header.end;
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.shared.log.has_room(self.reactor.lane)
    }

    pub(crate) fn link_state(&self) -> LinkState {
        match self.stage {
            Stage::Begin => LinkState::Connecting,
            Stage::Copying => LinkState::Copying,
            Stage::Following => LinkState::Connected,
        }
    }

    /// Merges one frame. Returns where the last record ends in the log of this server.
    pub(crate) fn apply(&mut self, now: Now, frame: &Frame<'_>) -> Result<Lsn, ApplyError> {
        let Frame { header, contents: payload, .. } = frame;
        let params = self.reactor.begin_off_reactor(self.shared, now);
        let is_first = matches!(header.kind, Kind::Resume | Kind::Copy);
        if is_first != (self.stage == Stage::Begin) {
            return Err(ApplyError::Order(header.kind));
        }
        if header.kind == Kind::Copy {
            (self.position, self.stored) = (header.base, header.base);
        }
        if self.position != header.base {
            return Err(ApplyError::Gap { at: self.position, found: header.base });
        }
        match header.kind {
            Kind::Resume | Kind::Copy => self.open(frame)?,
            Kind::States => self.merge(&params, payload)?,
            Kind::Copied if self.stage == Stage::Copying => {
                let newest = Copied::decode(payload)?.newest_timestamp;
                self.shared.write_clock.pass(newest.min(latest(&params)));
                self.stage = Stage::Following;
                self.store_place(&params)?;
            }
            Kind::Heartbeat => {}
            kind => return Err(ApplyError::Order(kind)),
        }
        self.position = header.end;
        let silent_bytes = self.position.saturating_sub(self.stored);
        let has_news = header.kind == Kind::States && silent_bytes > 0;
        if self.stage == Stage::Following && (has_news || silent_bytes > SILENT_BYTES_MAX) {
            self.store_place(&params)?;
        }
        // During a copy, rows of the schema may lack the rows that they belong to.
        if self.stage == Stage::Following && std::mem::take(&mut self.is_cache_stale) {
            // A client's change of the schema is not lost in between.
            let _applied = self.shared.replication.applied();
            // What a row lacks may arrive later, also from another peer, and is then loaded.
            if let Err(error) = reload(self.state, &params) {
                let server = self.server;
                tracing::error!(server, error, "could not load the received schema");
            }
        }
        self.reactor.end_off_reactor(self.shared);
        self.reactor.accounts.flush();
        // No reactor does it for this thread, and the peers of this server read what is durable.
        self.shared.log.request_sync(self.log_end);
        self.publish(now)?;
        Ok(self.log_end)
    }

    fn open(&mut self, frame: &Frame<'_>) -> Result<(), ApplyError> {
        let opening = Opening::decode(frame)?;
        self.epoch = opening.epochs.last().map(|epoch| epoch.id);
        let (server, position, program) = (self.server, self.position, opening.program);
        if frame.header.kind == Kind::Copy {
            self.stage = Stage::Copying;
            tracing::info!(server, position, program, "merging all data of a peer");
        } else {
            self.stage = Stage::Following;
            tracing::info!(server, position, program, "following a peer");
        }
        Ok(())
    }

    fn publish(&mut self, now: Now) -> Result<(), ApplyError> {
        let place = self.epoch.map(|epoch| (epoch, self.position));
        let mut peers = self.shared.hub.peers();
        let peer = peers.get_mut(self.server, self.generation).ok_or(ApplyError::Superseded)?;
        peer.heard = now.mono;
        peer.state = self.link_state();
        if self.stage == Stage::Following {
            // The end of the log of an idle peer may be marks, and writes that are not for this
            // server. To log each such position would make the log of this server grow, which the
            // peer may follow: two servers would never be idle.
            (peer.place, peer.stored) = (place, self.stored);
        }
        peer.received += std::mem::take(&mut self.received);
        peer.lost += std::mem::take(&mut self.lost);
        peer.conflicts += std::mem::take(&mut self.conflicts);
        Ok(())
    }

    /// Runs `change` on a unit of work that has locked no stripe and keeps the versions of others,
    /// while this server is a master and follows the peer.
    fn commit<T>(
        &mut self,
        params: &Params,
        change: impl FnOnce(&mut Unit<'_>) -> Result<T, ApplyError>,
    ) -> Result<T, ApplyError> {
        // The role changes only while this is not locked.
        let _applied = self.shared.replication.applied();
        let is_current = self.shared.replication.role() == Role::Master
            && self.shared.hub.peers().get_mut(self.server, self.generation).is_some();
        if !is_current {
            return Err(ApplyError::Superseded);
        }
        let locked = self.shared.keyspace.lock(std::iter::empty(), params);
        let mut unit = Unit::of_server(self.shared, &self.reactor, &mut self.record, locked);
        let result = change(&mut unit)?;
        let gate = unit.commit(&mut self.reactor);
        if gate == Gate::NEVER {
            return Err(ApplyError::Poisoned);
        }
        self.log_end = gate.lsn().unwrap_or(self.log_end).max(self.log_end);
        Ok(result)
    }

    /// Stores how far the peer is followed.
    fn store_place(&mut self, params: &Params) -> Result<(), ApplyError> {
        let (shared, server, generation) = (self.shared, self.server, self.generation);
        let place = self.epoch.map(|epoch| (epoch, self.position));
        self.commit(params, |unit| {
            assert!(unit.relock_with(&[hub::STORED.hash()], |_| false), "it never gives up");
            let mut encoded = Vec::new();
            let mut peers = shared.hub.peers();
            let peer = peers.get_mut(server, generation).ok_or(ApplyError::Superseded)?;
            hub::put(unit, server, Some((&peer.address, place)), |mutation| {
                mutation.encode(&mut encoded);
                Ok(())
            })
            .and_then(|()| unit.change_encoded(&encoded))
            .map_err(ApplyError::Differs)
        })?;
        self.stored = self.position;
        Ok(())
    }

    fn merge(&mut self, params: &Params, payload: &[u8]) -> Result<(), ApplyError> {
        let mut input = payload;
        let mut open = Open::default();
        let mut ahead: SmallVec<[Mutation<'_>; AHEAD]> = SmallVec::new();
        while !input.is_empty() {
            while ahead.len() < AHEAD && !input.is_empty() {
                let before = input.len();
                ahead.push(decode(&mut input, self.shared)?);
                let bytes = before - input.len();
                if bytes > RECORD_BYTES_MAX / 2 {
                    return Err(ApplyError::TooLong(bytes));
                }
            }
            self.shared.keyspace.prefetch_keys(ahead.iter().filter_map(
                |mutation| match mutation {
                    Mutation::Version { db, key, .. } => Some((*db, key.hash)),
                    _ => None,
                },
            ));
            for mutation in ahead.drain(..) {
                self.merge_next(params, &mut open, mutation)?;
            }
        }
        if open.value.is_some() || !open.rows.is_empty() { Err(malformed()) } else { Ok(()) }
    }

    fn merge_next<'a>(
        &mut self,
        params: &Params,
        open: &mut Open<'a>,
        mutation: Mutation<'a>,
    ) -> Result<(), ApplyError> {
        match mutation {
            Mutation::Key { db, key, change } if open.value.is_none() => {
                if !matches!(change, Change::Set { .. } | Change::Put { .. } | Change::Delete) {
                    return Err(malformed());
                }
                open.value = Some((db, key, change));
            }
            Mutation::Version { db, key, given } => {
                check_time(params, given.version)?;
                let is_ordered = given.seen < given.version && is_given(given.version);
                let state = open
                    .value
                    .take()
                    .filter(|(at, name, _)| (*at, name.bytes) == (db, key.bytes) && is_ordered);
                let (_, _, change) = state.ok_or_else(malformed)?;
                self.merge_key(params, (db, key), change, given)?;
            }
            Mutation::Floor { db, version } if is_given(version) => {
                check_time(params, version)?;
                self.merge_floor(params, db, version)?;
            }
            Mutation::Partition { key, .. } if !is_local(key.table) => open.rows.push(mutation),
            Mutation::Truncate { table } if !is_local(table) => open.rows.push(mutation),
            Mutation::Origin { server, .. } if server != 0 => {
                self.write_rows(params, &open.rows, mutation)?;
                open.rows.clear();
            }
            _ => return Err(malformed()),
        }
        Ok(())
    }

    fn merge_key(
        &mut self,
        params: &Params,
        (db, key): (u8, Key<'_>),
        change: Change<'_>,
        given: Given,
    ) -> Result<(), ApplyError> {
        let (shared, version) = (self.shared, given.version);
        shared.write_clock.pass(version.time.cast_signed());
        let (own, is_stored) = self.commit(params, |unit| {
            assert!(unit.relock_with(&[key.hash], |_| false), "it never gives up");
            let own = stored_version(unit, db, key);
            if version <= own.version || version < shared.keyspace.floor(db) {
                return Ok((own, false));
            }
            unit.change(&Mutation::Key { db, key, change }).map_err(ApplyError::Differs)?;
            unit.change(&Mutation::Version { db, key, given }).map_err(ApplyError::Differs)?;
            unit.stamp(version.time.cast_signed());
            Ok((own, true))
        })?;
        self.received += 1;
        self.lost += u64::from(!is_stored && version != own.version);
        if given.is_concurrent(own) {
            let conflict = Conflict::new((db, key.bytes), [own.version, version], params.now());
            self.conflicts += u64::from(shared.hub.note_conflict(conflict));
        }
        Ok(())
    }

    /// Notes that a database was emptied, and deletes what is older. Other clients see the keys
    /// disappear stripe by stripe.
    fn merge_floor(&mut self, params: &Params, db: u8, version: Version) -> Result<(), ApplyError> {
        let shared = self.shared;
        shared.write_clock.pass(version.time.cast_signed());
        if version < shared.keyspace.floor(db) {
            return Ok(());
        }
        let floor = Mutation::Floor { db, version };
        // Before the keys are deleted, so that no older value is stored after its stripe was
        // emptied. An interrupted deletion is repeated with the frame.
        if version > shared.keyspace.floor(db) {
            self.commit(params, |unit| {
                lock(unit, &[floor]);
                unit.stamp(version.time.cast_signed());
                unit.change(&floor).map_err(ApplyError::Differs)
            })?;
        }
        for stripe in 0..STRIPES {
            while self.delete_older(params, stripe, db, version)? {}
        }
        Ok(())
    }

    /// Deletes some keys of a stripe that are older than the emptying of their database. False if
    /// none is left.
    fn delete_older(
        &mut self,
        params: &Params,
        stripe: usize,
        db: u8,
        version: Version,
    ) -> Result<bool, ApplyError> {
        let shared = self.shared;
        self.commit(params, |unit| {
            assert!(unit.relock_stripes(vec![stripe], |_| false), "it never gives up");
            let names = unit.older_keys(db, version, DELETIONS_PER_LOCK_MAX);
            for name in &names {
                let key = shared.keyspace.key(name);
                let delete = Mutation::Key { db, key, change: Change::Delete };
                unit.change(&delete).map_err(ApplyError::Differs)?;
                // The floor is in place of their versions.
                let forgotten = Mutation::Version { db, key, given: Given::default() };
                unit.change(&forgotten).map_err(ApplyError::Differs)?;
            }
            Ok(names.len() == DELETIONS_PER_LOCK_MAX)
        })
    }

    /// `origin`: names the author of the rows.
    fn write_rows(
        &mut self,
        params: &Params,
        rows: &[Mutation<'_>],
        origin: Mutation<'_>,
    ) -> Result<(), ApplyError> {
        self.is_cache_stale |= rows.iter().any(changes_cache);
        // A later write here exceeds the timestamps of the rows, as one of a key its version.
        // Timestamps that clients have chosen do not count.
        let newest = match origin {
            Mutation::Origin { newest_timestamp, .. } => newest_timestamp.min(latest(params)),
            _ => i64::MIN,
        };
        self.shared.write_clock.pass(newest);
        self.commit(params, |unit| {
            lock(unit, rows);
            for row in rows {
                unit.change(row).map_err(ApplyError::Differs)?;
            }
            unit.stamp(newest);
            unit.change(&origin).map_err(ApplyError::Differs)
        })?;
        self.received += rows.len() as u64;
        Ok(())
    }
}

/// The latest time that is taken from a peer, in microseconds: one wrong clock must not move those
/// of all others for good.
fn latest(params: &Params) -> i64 {
    let now_us = i64::try_from(params.now().0.saturating_mul(1000)).unwrap_or(i64::MAX);
    now_us.saturating_add(LEAD_US_MAX)
}

fn check_time(params: &Params, version: Version) -> Result<(), ApplyError> {
    let is_late = version.time > latest(params).cast_unsigned();
    if is_late { Err(ApplyError::Clock) } else { Ok(()) }
}

fn malformed() -> ApplyError {
    ApplyError::Stream(StreamError::Malformed("state"))
}

/// Whether a server has given this version.
fn is_given(version: Version) -> bool {
    version.server != 0 && i64::try_from(version.time).is_ok()
}

/// The version of a key in this server. A value that is older than the number of this server has
/// the least version of the server.
fn stored_version(unit: &Unit<'_>, db: u8, key: Key<'_>) -> Given {
    let given = unit.given(db, key);
    if given.version == Version::NONE && unit.is_stored(db, key) {
        return Given::first(Version { server: unit.server(), ..Version::NONE });
    }
    given
}
