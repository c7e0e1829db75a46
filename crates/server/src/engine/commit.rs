//! The only path by which data changes while the server runs.
//!
//! A [`Unit`] is a unit of work: locked stripes, and the log record of the changes to them.
//! Commands, CQL statements, schema changes, eviction, expiry and purge all follow these steps:
//!
//! 1. lock the stripes and create the unit;
//! 2. decide, and [`admit`](Unit::admit) the size of the changes; a refusal leaves the data
//!    unchanged;
//! 3. [`change`](Unit::change) the data, one mutation after another;
//! 4. [`commit`](Unit::commit): append the record, note what is not durable yet, unlock, and free.
//!
//! **Invariant**: every applied change is in the log, in the order of the changes, whatever the
//! caller does. A unit that is dropped without a commit, because its caller returned early, still
//! logs its changes. If the log rejects a record, it rejects all later ones: memory is ahead of the
//! log.

use std::ops::Deref;

use binlog::{AppendError, Lsn};
use reactor::ConnId;
use store::{
    Change, ChangedKeys, DATABASES, Due, Items, Key, Locked, Mutation, PARTITIONS_DB, Reader,
    StoreError, Ticket, Version, WatchFlag,
};

use crate::engine::gate::Gate;
use crate::engine::reactor_state::ReactorState;
use crate::engine::records::{RECORD_BYTES_MAX, finish};
use crate::engine::room::{COPIES, UNCHECKED_BYTES_MAX};
use crate::engine::server_state::ServerState;

/// Buffers of a unit's record, reused by their reactor.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Mutations, in the order of their application.
    bytes: Vec<u8>,
    /// The changed keys and partitions, for reads that must wait.
    written: Vec<Written>,
    /// True if a database or table was emptied, or databases swapped: every read must wait.
    is_flushed: bool,
    /// The newest timestamp that the server assigned to these writes, if any.
    newest_timestamp: Option<i64>,
    /// See [`Unit::follow`].
    stream_position: Option<u64>,
    /// Mutations that give versions, until they are added to the record. Empty between units.
    versions: Vec<u8>,
    /// See [`Unit::move_from`].
    moved_from: Option<(u8, Box<[u8]>)>,
    /// Changed keys that clients are blocked on or cache: see [`crate::engine::blocked`] and
    /// [`crate::engine::invalidations`].
    pub(crate) changed: ChangedKeys,
    /// Names of all changed keys, while there are broadcasting clients.
    pub(crate) changed_names: Vec<Box<[u8]>>,
    /// A database was emptied, or databases swapped, while clients track keys.
    pub(crate) flushes_readers: bool,
    /// CQL: rows of a result, or writes of a statement. Empty between requests.
    pub(crate) rows: Vec<u8>,
}

/// A change of a key or partition.
#[derive(Debug, Clone, Copy)]
struct Written {
    db: u8,
    hash: u64,
    /// Where its mutation begins in the record.
    start: u32,
}

const _: () = assert!(RECORD_BYTES_MAX <= u32::MAX as usize, "so that `start` fits");

/// Larger buffers are freed after use.
const RECORD_BYTES_KEPT_MAX: usize = 256 * 1024;

/// A record with the versions of its keys has at most this many times the bytes of its changes: a
/// key is named again, with 13 more bytes, and a change of a key has 3 bytes and the name. Shorter
/// names are few.
const VERSIONED_RATIO: usize = 4;

const _: () = assert!(2 * VERSIONED_RATIO * UNCHECKED_BYTES_MAX <= RECORD_BYTES_MAX);
const _: () = assert!(2 * UNCHECKED_BYTES_MAX <= RECORD_BYTES_MAX, "`admit` need not look further");
const _: () = assert!(RECORD_BYTES_KEPT_MAX <= RECORD_BYTES_MAX);

impl Record {
    /// Keeps a buffer for the next result unless it is large.
    pub(crate) fn reuse_rows(&mut self, mut rows: Vec<u8>) {
        if rows.capacity() <= RECORD_BYTES_KEPT_MAX {
            rows.clear();
            self.rows = rows;
        }
    }

    /// Whether the units since the last call changed keys that concern other clients.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.changed.is_empty() || !self.changed_names.is_empty() || self.flushes_readers
    }

    /// Moves what concerns other clients from a record of the same reactor, which serves them.
    #[inline]
    pub(crate) fn take_news(&mut self, of: &mut Record) {
        if of.has_news() {
            self.changed.append(&mut of.changed);
            self.changed_names.append(&mut of.changed_names);
            self.flushes_readers |= std::mem::take(&mut of.flushes_readers);
        }
    }

    /// Queues the invalidations of the changed keys, but none for `except`.
    pub(crate) fn send_invalidations(&mut self, shared: &ServerState, except: Option<ConnId>) {
        let wake = |reactor| shared.links().wake(reactor);
        let Record { changed, changed_names, flushes_readers, .. } = self;
        shared.invalidations.send_changed(changed, changed_names, except, wake);
        if std::mem::take(flushes_readers) {
            shared.invalidations.flush();
            shared.links().wakers().for_each(|waker| waker.wake());
        }
    }

    /// Empties the record. Frees a large buffer at once, since this reactor's next command may not
    /// arrive for a long time.
    #[inline]
    fn clear(&mut self) {
        self.bytes.clear();
        self.written.clear();
        self.is_flushed = false;
        self.newest_timestamp = None;
        self.stream_position = None;
        if self.bytes.capacity() > RECORD_BYTES_KEPT_MAX {
            self.bytes = Vec::new();
        }
        if self.written.capacity() > RECORD_BYTES_KEPT_MAX / size_of::<Written>() {
            self.written = Vec::new();
        }
    }
}

/// Reason why a change is refused before any part of it is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The record would exceed the log's maximum.
    TooLong,
    /// The change and its log record would exceed the memory limits.
    NoMemory,
}

/// A unit of work. See the module documentation.
#[derive(Debug)]
pub(crate) struct Unit<'a> {
    /// Unlocked by the commit.
    locked: Locked<'a>,
    record: &'a mut Record,
    shared: &'a ServerState,
    lane: usize,
    durable: Lsn,
    settled: Lsn,
    /// Whether each key that [`Unit::change`] changes gets a new version of this server: only in a
    /// group of masters, and only if a client is the author of the changes.
    gives_versions: bool,
}

/// Gives read access to the unit's stripes; only [`Unit::change`] changes them.
impl<'a> Deref for Unit<'a> {
    type Target = Locked<'a>;

    #[inline]
    fn deref(&self) -> &Locked<'a> {
        &self.locked
    }
}

impl<'a> Unit<'a> {
    /// A unit whose changes a client has requested. In a group of masters they get versions, by
    /// which they replace what other servers have of these keys.
    #[inline]
    pub(crate) fn of_client(
        shared: &'a ServerState,
        reactor: &ReactorState,
        record: &'a mut Record,
        locked: Locked<'a>,
    ) -> Unit<'a> {
        let mut unit = Unit::of_server(shared, reactor, record, locked);
        unit.gives_versions = shared.hub.server != 0;
        unit
    }

    /// A unit of a link or of background work. No key gets a version from it, whatever it changes:
    /// a version of this server would win against writes that their author has acknowledged and
    /// this server has not received yet. A link sets the versions of the other server.
    #[inline]
    pub(crate) fn of_server(
        shared: &'a ServerState,
        reactor: &ReactorState,
        record: &'a mut Record,
        locked: Locked<'a>,
    ) -> Unit<'a> {
        debug_assert!(record.bytes.is_empty(), "the last unit has logged its record");
        debug_assert!(record.moved_from.is_none(), "a change follows at once");
        debug_assert!(record.newest_timestamp.is_none(), "a write locks its stripes first");
        let ReactorState { lane, durable, settled, .. } = *reactor;
        Unit { locked, record, shared, lane, durable, settled, gives_versions: false }
    }

    /// Bytes of the record so far.
    #[inline]
    pub(crate) fn record_bytes(&self) -> usize {
        self.record.bytes.len()
    }

    /// The record so far: the encoded changes.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.record.bytes
    }

    /// Whether the unit made a change that replies wait for: false if keys only
    /// [expired](Unit::expire).
    #[inline]
    pub(crate) fn has_written(&self) -> bool {
        !self.record.written.is_empty() || self.record.is_flushed
    }

    /// Checks that changes of up to `bytes` in the log may follow. `memory_bytes_max`: limit on the
    /// server's total memory.
    #[inline]
    pub(crate) fn admit(&self, bytes: usize, memory_bytes_max: u64) -> Result<(), Refusal> {
        if bytes <= UNCHECKED_BYTES_MAX && self.record_bytes() <= UNCHECKED_BYTES_MAX {
            return Ok(());
        }
        self.admit_large(bytes, memory_bytes_max)
    }

    #[cold]
    fn admit_large(&self, bytes: usize, memory_bytes_max: u64) -> Result<(), Refusal> {
        if self.record_bytes().saturating_add(bytes) > self.record_bytes_max() {
            return Err(Refusal::TooLong);
        }
        let needed = self.used_bytes().saturating_add(COPIES * bytes as u64);
        if needed > memory_bytes_max { Err(Refusal::NoMemory) } else { Ok(()) }
    }

    /// Versions of keys follow the changes in the record of a server that gives them.
    fn record_bytes_max(&self) -> usize {
        if self.server() == 0 { RECORD_BYTES_MAX } else { RECORD_BYTES_MAX / VERSIONED_RATIO }
    }

    /// The number of this server in a group of masters; 0: none.
    #[inline]
    pub(crate) fn server(&self) -> u16 {
        self.shared.hub.server
    }

    /// Checks that the data may grow by bytes that are not in the record: zeros in a string.
    #[inline]
    pub(crate) fn admit_zeros(&self, bytes: usize, memory_bytes_max: u64) -> Result<(), Refusal> {
        if bytes <= UNCHECKED_BYTES_MAX {
            return Ok(());
        }
        let needed = self.used_bytes().saturating_add(bytes as u64);
        if needed > memory_bytes_max { Err(Refusal::NoMemory) } else { Ok(()) }
    }

    /// Returns the memory of the server with this unit's changes and their copies.
    fn used_bytes(&self) -> u64 {
        // The trackers do not include this unit's changes yet, and pending log records only at
        // times.
        let own = self.grown_bytes() as i64;
        let log = &self.shared.log;
        let waiting = log.next().0.saturating_sub(log.written().0);
        let untold = waiting.saturating_sub(self.shared.memory.log.current_bytes());
        let used = self.shared.used_bytes().saturating_add_signed(own).saturating_add(untold);
        used.saturating_add((COPIES - 1) * self.record_bytes() as u64)
    }

    /// Applies one change and adds it to the record. On an error nothing has changed.
    #[inline]
    pub(crate) fn change(&mut self, mutation: &Mutation<'_>) -> Result<(), StoreError> {
        let start = self.record.bytes.len();
        mutation.encode(&mut self.record.bytes);
        if let Err(error) = self.apply(mutation) {
            self.record.bytes.truncate(start);
            return Err(error);
        }
        debug_assert!(self.recovers_from(start), "recovery reads the mutation that was applied");
        match mutation {
            Mutation::Key { db, key, .. } => self.note_written(*db, key.hash, start),
            Mutation::Partition { key, .. } => {
                self.note_written(PARTITIONS_DB, key.hash(), start);
            }
            Mutation::Flush { .. } | Mutation::Swap { .. } | Mutation::Truncate { .. } => {
                self.record.is_flushed = true;
            }
            // A purge removes only data that no read returns, and no client reads versions.
            Mutation::Purge { .. }
            | Mutation::Version { .. }
            | Mutation::Floor { .. }
            | Mutation::Origin { .. } => {}
        }
        Ok(())
    }

    #[inline]
    fn note_written(&mut self, db: u8, hash: u64, start: usize) {
        // A longer record is refused by the log, whatever it names.
        let start = u32::try_from(start).unwrap_or(u32::MAX);
        self.record.written.push(Written { db, hash, start });
    }

    /// Whether the record contains exactly one complete mutation from `start` on.
    fn recovers_from(&self, start: usize) -> bool {
        let mut bytes = &self.record.bytes[start..];
        let decoded = Mutation::decode(&mut bytes, |key| self.keyspace().hash(key));
        decoded.is_ok() && bytes.is_empty()
    }

    /// Deletes a key whose TTL has expired. No reply waits for the deletion: if the log loses it,
    /// recovery restores the key with its expiry, so it remains invisible.
    pub(crate) fn expire(&mut self, db: u8, key: Key<'_>) -> Result<(), StoreError> {
        debug_assert!(self.is_overdue(db, key));
        self.remove_expired(db, key, Change::Delete)
    }

    /// Removes fields of a hash whose TTL has expired. As with [`Unit::expire`], no reply waits for
    /// it.
    pub(crate) fn expire_fields(
        &mut self,
        db: u8,
        key: Key<'_>,
        fields: &[&[u8]],
    ) -> Result<(), StoreError> {
        self.remove_expired(db, key, Change::HashRemove { fields: Items::Slice(fields) })
    }

    /// Removes points of a time series from `first` to `last` whose TTL has expired. As with
    /// [`Unit::expire`], no reply waits for it.
    pub(crate) fn expire_points(
        &mut self,
        db: u8,
        key: Key<'_>,
        (first, last): (i64, i64),
    ) -> Result<(), StoreError> {
        let at = self.params().now();
        self.remove_expired(db, key, Change::SeriesPurge { at, first, last })
    }

    /// The key keeps its version: the time at which data expires is part of its value.
    fn remove_expired(
        &mut self,
        db: u8,
        key: Key<'_>,
        change: Change<'_>,
    ) -> Result<(), StoreError> {
        let written = self.record.written.len();
        let result = self.change(&Mutation::Key { db, key, change });
        self.record.written.truncate(written);
        self.locked.take_changed(&mut self.record.changed);
        result
    }

    /// Adds a timestamp to the record if the unit changes anything, so that the server assigns
    /// greater ones after a restart. To be called when a write has taken a timestamp from the
    /// clock.
    pub(crate) fn stamp(&mut self, newest_timestamp: i64) {
        self.record.newest_timestamp = Some(newest_timestamp);
    }

    /// Makes the unit the record of the replication stream that ends at this position: recovery
    /// finds how far the data follows the stream.
    pub(crate) fn follow(&mut self, position: u64) {
        self.record.stream_position = Some(position);
    }

    /// Gives a version to each key that the unit has changed, under the locks. Keys of which
    /// the unit only removed expired data keep theirs.
    #[inline(never)]
    fn give_versions(&mut self) {
        let Record { bytes, written, versions, is_flushed, newest_timestamp, .. } =
            &mut *self.record;
        let is_key = |written: &Written| written.db != PARTITIONS_DB;
        if !*is_flushed && !written.iter().any(is_key) {
            return;
        }
        let now_us = i64::try_from(self.locked.params().now().0.saturating_mul(1000));
        let time = self.shared.write_clock.take(now_us.unwrap_or(i64::MAX), 1);
        let version = Version { time: time.cast_unsigned(), server: self.shared.hub.server };
        for Written { db, hash, start } in written.iter().copied().filter(is_key) {
            let encoded = bytes.get(start as usize..).unwrap_or_default();
            let name = Mutation::name_of_key(encoded).expect("the unit has encoded it");
            let key = Key { bytes: name, hash };
            let stored = self.locked.given(db, key);
            // No other record has this version: the unit has changed this key before.
            if stored.version == version {
                continue;
            }
            let mutation = Mutation::Version { db, key, given: stored.next(version) };
            self.locked.apply_mutation(&mutation).expect("a version fits any key");
            mutation.encode(versions);
        }
        if *is_flushed {
            raise_floors(&mut self.locked, bytes, version, versions);
        }
        bytes.append(versions);
        if versions.capacity() > RECORD_BYTES_KEPT_MAX {
            *versions = Vec::new();
        }
        *newest_timestamp = (*newest_timestamp).max(Some(time));
    }

    /// Announces that the next change is a [`Change::Put`] of this key's collection to another key,
    /// and that this key is deleted after it (RENAME, MOVE). In memory the collection is moved in
    /// constant time.
    pub(crate) fn move_from(&mut self, db: u8, key: Key<'_>) {
        self.record.moved_from = Some((db, key.bytes.into()));
    }

    #[inline]
    fn apply(&mut self, mutation: &Mutation<'_>) -> Result<(), StoreError> {
        if let Some((from_db, name)) = self.record.moved_from.take()
            && let Mutation::Key { db, key, change: Change::Put { expiry, .. } } = mutation
        {
            let from = self.key(&name);
            if self.locked.move_collection((from_db, from), (*db, *key), *expiry) {
                return Ok(());
            }
        }
        self.locked.apply_mutation(mutation)
    }

    /// Applies changes that were encoded by [`Mutation::encode`].
    pub(crate) fn change_encoded(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        let keyspace = self.keyspace();
        while !bytes.is_empty() {
            let mutation = Mutation::decode(&mut bytes, |key| keyspace.hash(key))
                .map_err(|_| StoreError::Malformed)?;
            self.change(&mutation)?;
        }
        Ok(())
    }

    /// See [`Locked::wait_for`].
    pub(crate) fn wait_for(&mut self, db: u8, key: Key<'_>, ticket: Ticket) {
        self.locked.wait_for(db, key, ticket);
    }

    /// See [`Locked::try_add`].
    pub(crate) fn try_add(&mut self, hash: u64) -> bool {
        self.locked.try_add(hash)
    }

    /// See [`Locked::try_add_all`].
    pub(crate) fn try_add_all(&mut self) -> bool {
        self.locked.try_add_all()
    }

    /// Whether the unit has changed nothing, not even removed an expired key.
    pub(crate) fn is_untouched(&self) -> bool {
        self.record.bytes.is_empty()
    }

    /// See [`Locked::add_unless`].
    pub(crate) fn add_unless(&mut self, hash: u64, give_up: impl Fn(u64) -> bool) -> bool {
        self.locked.add_unless(hash, give_up)
    }

    /// See [`Locked::relock_with`].
    pub(crate) fn relock_with(&mut self, hashes: &[u64], give_up: impl Fn(u64) -> bool) -> bool {
        assert!(self.is_untouched(), "changes are logged under the locks of their keys");
        self.locked.relock_with(hashes, give_up)
    }

    /// Unlocks the stripes of a unit that has changed nothing. Returns their numbers.
    pub(crate) fn release(&mut self) -> Vec<usize> {
        assert!(self.is_untouched(), "changes are logged under the locks of their keys");
        let held = self.locked.stripes().collect();
        self.locked.unlock();
        held
    }

    /// Locks the stripes of a unit that was [released](Unit::release).
    pub(crate) fn relock_stripes(
        &mut self,
        held: Vec<usize>,
        give_up: impl Fn(u64) -> bool,
    ) -> bool {
        assert!(self.is_untouched(), "changes are logged under the locks of their keys");
        self.locked.relock(held.into(), give_up)
    }

    /// See [`Locked::relock_all`].
    pub(crate) fn relock_all(&mut self, give_up: impl Fn(u64) -> bool) -> bool {
        assert!(self.is_untouched(), "changes are logged under the locks of their keys");
        self.locked.relock_all(give_up)
    }

    /// See [`Locked::add_reader`].
    pub(crate) fn add_reader(&mut self, db: u8, key: Key<'_>, reader: Reader) {
        self.locked.add_reader(db, key, reader);
    }

    /// See [`Locked::watch`].
    pub(crate) fn watch(&mut self, db: u8, key: Key<'_>, flag: &WatchFlag) {
        self.locked.watch(db, key, flag);
    }

    /// See [`Locked::unwatch`].
    pub(crate) fn unwatch(&mut self, db: u8, key: Key<'_>, flag: &WatchFlag) {
        self.locked.unwatch(db, key, flag);
    }

    /// See [`Locked::reload`]: the data stays the same, so nothing is logged.
    pub(crate) fn reload(&mut self) -> Result<(), StoreError> {
        self.locked.reload()
    }

    /// See [`Locked::mark_text`].
    pub(crate) fn mark_text(&mut self, db: u8, key: Key<'_>) {
        self.locked.mark_text(db, key);
    }

    /// See [`Locked::note_seen`].
    pub(crate) fn note_seen(
        &mut self,
        db: u8,
        key: Key<'_>,
        consumer: (&[u8], &[u8]),
        seen_ms: u64,
    ) {
        self.locked.note_seen(db, key, consumer, seen_ms);
    }

    /// See [`Locked::next_expired`].
    pub(crate) fn next_expired(&mut self) -> Option<(u8, Vec<u8>, Due)> {
        self.locked.next_expired()
    }

    /// Logs the changes and unlocks the stripes. Returns the gate that replies about the changes
    /// wait for.
    #[inline]
    pub(crate) fn commit(mut self, reactor: &mut ReactorState) -> Gate {
        self.commit_then(reactor, |_, _| ())
    }

    /// Like [`Unit::commit`], and calls `publish` under the locks once the changes have their
    /// position in the log: messages are published in log order.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "each request that runs commits its unit")]
    pub(crate) fn commit_then(
        &mut self,
        reactor: &mut ReactorState,
        publish: impl FnOnce(&mut ReactorState, Gate),
    ) -> Gate {
        let changes = self.record.written.len() + usize::from(self.record.is_flushed);
        reactor.tally.totals.changes += changes as u64;
        let gate = self.append();
        publish(reactor, gate);
        reactor.store_bytes += self.locked.unlock();
        debug_assert!(self.locked.is_unlocked(), "the drop that follows logs nothing");
        if reactor.is_off_reactor && self.record.has_news() {
            self.record.send_invalidations(self.shared, None);
            self.shared.blocked.add_changed_elsewhere(&mut self.record.changed.ready);
            self.shared.links().wake(0);
        }
        if let Some(trash) = self.locked.take_trash() {
            self.shared.free_thread.free(trash);
        }
        gate
    }

    /// Appends the record to the log, under the locks, and records which reads wait for it.
    #[inline]
    fn append(&mut self) -> Gate {
        debug_assert!(self.record.moved_from.is_none(), "the change of a move was made");
        debug_assert!(!self.has_written() || !self.record.bytes.is_empty());
        // A position of the stream is logged without changes, too: those of the record may concern
        // the source alone.
        if self.record.bytes.is_empty() && self.record.stream_position.is_none() {
            self.record.newest_timestamp = None;
            return Gate::OPEN;
        }
        self.append_record()
    }

    fn append_record(&mut self) -> Gate {
        if self.gives_versions {
            self.give_versions();
        }
        if self.shared.invalidations.clients() > 0 {
            self.note_for_readers();
        }
        let Record { newest_timestamp, stream_position, bytes, .. } = &mut *self.record;
        let kind = finish(*newest_timestamp, *stream_position, bytes);
        let lsn = self.shared.log.append(self.lane, kind, &self.record.bytes);
        let gate = lsn.map_or_else(|error| self.lose(&error), Gate::at);
        assert!(!gate.is_open_at(self.durable), "replies wait for a sync that covers the record");
        let position = gate.position();
        if self.record.is_flushed {
            self.locked.note_flush(position);
        }
        let mut is_awaited = self.record.is_flushed;
        for Written { db, hash, .. } in &self.record.written {
            is_awaited |= self.locked.note_write(*db, *hash, position, self.settled.0);
        }
        if is_awaited {
            self.locked.take_changed(&mut self.record.changed);
        }
        self.record.clear();
        gate
    }

    /// Notes the changes about which clients that track keys must be notified.
    #[cold]
    fn note_for_readers(&mut self) {
        self.record.flushes_readers |= self.record.is_flushed;
        if !self.shared.invalidations.has_broadcasts() {
            return;
        }
        let mut bytes = self.record.bytes.as_slice();
        while let Ok(mutation) = Mutation::decode(&mut bytes, |_| 0) {
            if let Mutation::Key { key, .. } = mutation {
                self.record.changed_names.push(key.bytes.into());
            }
        }
    }

    /// The data is ahead of the log, so no later record may follow.
    #[cold]
    fn lose(&self, error: &AppendError) -> Gate {
        self.shared.log.poison(error);
        Gate::NEVER
    }
}

/// Notes for each database that the changes empty that values of lesser versions are gone.
#[cold]
fn raise_floors(locked: &mut Locked<'_>, changes: &[u8], version: Version, out: &mut Vec<u8>) {
    let mut input = changes;
    while !input.is_empty() {
        // No hash: the keys are not looked up.
        let mutation = Mutation::decode(&mut input, |_| 0).expect("the unit has encoded it");
        let Mutation::Flush { db } = mutation else { continue };
        let all = 0..u8::try_from(DATABASES).expect("16 fits u8");
        for db in all.filter(|number| db.is_none_or(|db| db == *number)) {
            let floor = Mutation::Floor { db, version };
            locked.apply_mutation(&floor).expect("a floor fits any database");
            floor.encode(out);
        }
    }
}

impl Drop for Unit<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.locked.is_unlocked() {
            self.abandon();
        }
    }
}

impl Unit<'_> {
    /// Ends a unit whose caller returned early.
    #[cold]
    fn abandon(&mut self) {
        self.append();
        let grown_bytes = self.locked.unlock();
        if self.shared.settings.load().experiments.counts_memory() {
            let bytes = grown_bytes.unsigned_abs() as u64;
            let store = &self.shared.memory.store;
            if grown_bytes < 0 { store.release(bytes) } else { store.consume(bytes) }
        }
        if let Some(trash) = self.locked.take_trash() {
            self.shared.free_thread.free(trash);
        }
    }
}
