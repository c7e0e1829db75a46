//! INSERT, UPDATE, DELETE and batches of them, each applied atomically as one record.

use std::sync::Arc;

use cql::error::CqlError;
use cql::plan::{PartitionRestriction, Target, WritePlan};
use cql::schema::{Catalog, TableSource};
use cql::statements::BatchKind;
use smallvec::SmallVec;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use store::{
    Draft, Expiry, Keyspace, Locked, Mutation, PARTITIONS_DB, Params, Partition, PartitionKey,
    RowKey, Seconds, Timestamp, Write, Writes,
};
use wire::cql::Consistency;

use super::batch_limits;
use super::change::{Packed, RowChange, When};
use super::condition::{Current, is_one_partition, reply_applied, reply_refused};
use super::keys::{Key, partition_keys, table_id};
use super::ranges::{Rows, rows};
use super::redis::{self, Elements, KeyChange, KeyChanged};
use super::values::EvalContext;
use crate::config::KeyEvent;
use crate::engine::commit::{Refusal, Unit};
use crate::engine::gate::Gate;
use crate::engine::reactor_state::{ReactorState, is_gated};
use crate::engine::records::RECORD_BYTES_MAX;
use crate::engine::refusal::{NO_REPLICAS, READONLY, READONLY_HUB};
use crate::engine::running_scripts::FEW_KEYS;
use crate::engine::server_state::ServerState;
use crate::engine::write_clock::WriteClock;
use crate::statements::executor::{ClientState, CqlExecutor};
use crate::statements::result_sink::ResultSink;

pub(super) const SEVERAL_PARTITIONS: &str = "Batch with conditions cannot span multiple partitions";

/// Maximum TTL of a cell, in seconds: 20 years.
// Source: Cassandra 5.0, Attributes.MAX_TTL
const TTL_MAX: i64 = 630_720_000;

/// A write with bound keys and times. The remaining work depends on data or requires its lock.
pub(super) struct BoundWrite<'w> {
    pub(super) plan: &'w WritePlan,
    /// The schema that the write was planned against.
    catalog: &'w Arc<Catalog>,
    pub(super) cx: EvalContext<'w>,
    pub(super) keys: SmallVec<[Key; 1]>,
    rows: Rows,
    when: When,
    /// Whether the write gets its timestamp under the locks.
    takes_timestamp: bool,
}

impl<'w> BoundWrite<'w> {
    /// `timestamp`: for a write that specifies none; `None`: the server's, taken under the locks.
    pub(super) fn new(
        plan: &'w WritePlan,
        catalog: &'w Arc<Catalog>,
        cx: EvalContext<'w>,
        timestamp: Option<Timestamp>,
    ) -> Result<Self, CqlError> {
        let PartitionRestriction::Keys { keys, .. } = &plan.restrictions.partition else {
            unreachable!("writes name their partitions")
        };
        let timestamp = match &plan.timestamp {
            None => timestamp,
            Some(expression) => {
                let own = cx.integer(expression, "timestamp")?.or(timestamp);
                if own == Some(Timestamp::MIN) {
                    return Err(CqlError::invalid("Invalid timestamp value"));
                }
                own
            }
        };
        let keys = partition_keys(keys, &plan.table, &cx)?;
        let rows = match plan.target {
            Target::Statics | Target::Partition => Rows::All,
            Target::Cells | Target::Rows | Target::CellsOfRange => {
                rows(&plan.restrictions.clustering, &plan.table, &cx)?
            }
        };
        if plan.table.source == TableSource::Stored {
            rows.check_lengths(&plan.table)?;
        }
        let takes_timestamp = timestamp.is_none();
        let timestamp = timestamp.unwrap_or(Timestamp::MIN);
        let when = When { timestamp, expiry: expiry(plan, &cx)?, now: cx.now };
        Ok(BoundWrite { plan, catalog, cx, keys, rows, when, takes_timestamp })
    }

    /// The row key of a conditional write.
    pub(super) fn row_key(&self) -> RowKey<'_> {
        match &self.rows {
            Rows::Points(points) if !points.is_empty() => RowKey::Clustering(&points[0]),
            _ => RowKey::Static,
        }
    }

    /// The highest timestamp that decides whether this write takes effect.
    pub(super) fn newest(&self, partition: &Partition) -> Option<Timestamp> {
        match &self.rows {
            Rows::Points(points) if !points.is_empty() => {
                points.iter().filter_map(|row| partition.newest(RowKey::Clustering(row))).max()
            }
            Rows::Points(_) => None,
            Rows::All if self.plan.target == Target::Statics => partition.newest(RowKey::Static),
            Rows::All | Rows::Ranges(_) => partition.newest_of_all(),
        }
    }

    fn is_redis(&self) -> bool {
        self.plan.table.source == TableSource::Redis
    }

    /// Database and hash of each partition: identifies the locks, and what reads wait for.
    fn places<'p>(&'p self, keyspace: &'p Keyspace) -> impl Iterator<Item = (u8, u64)> + 'p {
        let table = table_id(&self.plan.table);
        let is_redis = self.is_redis();
        self.keys.iter().map(move |key| {
            if is_redis {
                return (redis::DB, keyspace.hash(&key.bytes));
            }
            (PARTITIONS_DB, key.place(table).hash())
        })
    }

    /// Refuses a write whose table was dropped or altered after planning. Called under the locks: a
    /// drop holds all of them, so any write admitted here is applied before the drop and removed by
    /// it.
    fn check_table(&self, current: &Arc<Catalog>) -> Result<(), CqlError> {
        if Arc::ptr_eq(self.catalog, current) {
            return Ok(());
        }
        let table = &self.plan.table;
        let found = current.table(&table.keyspace, &table.name);
        match found.filter(|found| found.id == table.id) {
            Some(found) if Arc::ptr_eq(found, table) => Ok(()),
            Some(_) => Err(CqlError::TableAltered),
            None => Err(CqlError::invalid(format!("table {} does not exist", table.name))),
        }
    }

    /// Produces the writes of one partition.
    fn produce(
        &self,
        partition: Option<&Partition>,
        clock: &WriteClock,
        out: &mut Packed,
    ) -> Result<(), CqlError> {
        match self.plan.target {
            Target::Partition => out.put(Write::DeletePartition(self.when.stamp())),
            Target::Rows => {
                let before = out.work_bytes();
                self.delete_rows(out);
                self.cx.moment.spend(out.work_bytes() - before)?;
            }
            // Reported this late because other errors take precedence.
            Target::CellsOfRange if self.rows.is_empty() => {}
            Target::CellsOfRange => {
                return Err(CqlError::invalid(
                    "Range deletions are not supported for specific columns",
                ));
            }
            Target::Statics => self.change_row(RowKey::Static, partition, clock, out)?,
            Target::Cells => {
                if self.plan.table.has_statics() {
                    self.change_row(RowKey::Static, partition, clock, out)?;
                }
                let Rows::Points(points) = &self.rows else {
                    unreachable!("the plan names whole rows")
                };
                for row in points {
                    if self.plan.inserts_row {
                        let When { timestamp, expiry, .. } = self.when;
                        out.put(Write::InsertRow { row, timestamp, expiry });
                    }
                    self.change_row(RowKey::Clustering(row), partition, clock, out)?;
                }
            }
        }
        Ok(())
    }

    fn change_row(
        &self,
        row: RowKey<'_>,
        partition: Option<&Partition>,
        clock: &WriteClock,
        out: &mut Packed,
    ) -> Result<(), CqlError> {
        let (plan, cx, when) = (self.plan, self.cx, self.when);
        RowChange { plan, cx, when, clock, partition, row, out }.apply()
    }

    fn delete_rows(&self, out: &mut Packed) {
        let stamp = self.when.stamp();
        match &self.rows {
            Rows::All => out.put(Write::DeletePartition(stamp)),
            Rows::Points(points) => {
                points.iter().for_each(|row| out.put(Write::DeleteRow { row, stamp }));
            }
            Rows::Ranges(ranges) => ranges.iter().for_each(|range| {
                let (start, end) = (&range.start, range.end.as_deref());
                out.put(Write::DeleteRange { start, end, stamp });
            }),
        }
    }
}

// Source: Cassandra 5.0, Attributes.getTimeToLive
fn expiry<'v>(plan: &'v WritePlan, cx: &EvalContext<'v>) -> Result<Option<Expiry>, CqlError> {
    let default = i64::from(plan.table.options.default_time_to_live);
    let ttl = match &plan.ttl {
        None => default,
        // Null means no TTL, whatever the table's default is.
        Some(expression) => cx.integer_or(expression, "TTL", || Ok(Some(0)))?.unwrap_or(default),
    };
    if ttl < 0 {
        return Err(CqlError::invalid(format!(
            "A TTL must be greater or equal to 0, but was {ttl}"
        )));
    }
    if ttl > TTL_MAX {
        return Err(CqlError::invalid(format!(
            "ttl is too large. requested ({ttl}) maximum ({TTL_MAX})"
        )));
    }
    let ttl = Seconds::try_from(ttl).expect("checked against TTL_MAX");
    Ok((ttl > 0).then(|| Expiry { at: cx.now.saturating_add(ttl), ttl }))
}

/// Checks that the server takes writes.
pub(crate) fn check_writes(shared: &ServerState) -> Result<(), CqlError> {
    shared.check_writes().map_err(refused)
}

fn refused(text: &'static str) -> CqlError {
    match text {
        READONLY => CqlError::Invalid(READONLY_CQL.to_owned()),
        READONLY_HUB => CqlError::Invalid(READONLY_HUB_CQL.to_owned()),
        _ => CqlError::Server(text.to_owned()),
    }
}

const READONLY_HUB_CQL: &str =
    "This server is a hub and takes no writes: write to one of its masters";
const READONLY_CQL: &str = "This server is a replica and takes no writes: write to its master";

impl CqlExecutor<'_> {
    /// Checks that the server can accept a write: memory has room, the log is writable, and enough
    /// replicas are connected.
    pub(super) fn admit_write(&mut self, client: &ClientState) -> Result<(), CqlError> {
        self.admit_change(client, false)
    }

    /// Like [`CqlExecutor::admit_write`]: what only deletes makes room, and needs none.
    pub(super) fn admit_change(
        &mut self,
        client: &ClientState,
        only_deletes: bool,
    ) -> Result<(), CqlError> {
        self.admit_deletion(client)?;
        if only_deletes { Ok(()) } else { self.check_room() }
    }

    pub(super) fn check_room(&mut self) -> Result<(), CqlError> {
        self.make_room(0)
            .map_err(|no_room| CqlError::Overloaded(format!("Memory is full: {no_room}")))
    }

    /// Checks that the log is writable, and enough replicas are connected.
    pub(super) fn admit_deletion(&mut self, client: &ClientState) -> Result<(), CqlError> {
        let (shared, settings) = (self.context.shared, &self.context.reactor.settings);
        self.context.reactor.check_writes(shared, client.durability).map_err(|text| match text {
            NO_REPLICAS => {
                let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
                CqlError::Unavailable {
                    consistency: Consistency::All,
                    required: 1 + count(settings.replicas_needed(client.durability)),
                    alive: 1 + count(shared.replication.replicas().available()),
                }
            }
            _ => refused(text),
        })
    }

    /// Applies writes atomically. Returns the gate of the response.
    pub(super) fn write(
        &mut self,
        client: &ClientState,
        writes: &mut [BoundWrite<'_>],
        batch: Option<BatchKind>,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        if writes.is_empty() {
            reply.void(&[])?;
            return Ok(Gate::OPEN);
        }
        self.sample_writes(writes);
        let mut packed = Packed { count: 0, bytes: std::mem::take(&mut self.context.record.rows) };
        let outcome = self.write_packed(client, writes, batch, reply, &mut packed);
        self.context.record.reuse_rows(packed.bytes);
        outcome
    }

    /// Locks the partitions of these writes.
    fn lock_writes<'l>(
        &self,
        keyspace: &'l Keyspace,
        params: &'l Params,
        writes: &[BoundWrite<'_>],
    ) -> Result<Locked<'l>, CqlError> {
        if let [write] = writes
            && write.keys.len() == 1
        {
            let (_, hash) = write.places(keyspace).next().expect("there is one");
            return self.lock_with(1, |gives_up| keyspace.lock_one_unless(hash, params, gives_up));
        }
        let hashes = || {
            let places = writes.iter().flat_map(|write| write.places(keyspace));
            places.map(|(_, hash)| hash)
        };
        self.lock_with(count_distinct(hashes(), FEW_KEYS), |gives_up| {
            keyspace.lock_unless(hashes(), params, gives_up)
        })
    }

    fn write_packed(
        &mut self,
        client: &ClientState,
        writes: &mut [BoundWrite<'_>],
        batch: Option<BatchKind>,
        reply: &mut dyn ResultSink,
        packed: &mut Packed,
    ) -> Result<Gate, CqlError> {
        let shared = self.context.shared;
        let locked = self.lock_writes(&shared.keyspace, self.context.params, writes)?;
        let newest_before = shared.write_clock.newest();
        let mut unit = Unit::of_client(shared, self.context.reactor, self.context.record, locked);
        let current = shared.catalog.load();
        writes.iter().try_for_each(|write| write.check_table(&current))?;
        drop(current);
        let is_conditional = writes.iter().any(|write| write.plan.is_conditional());
        let mut seen = Gate::OPEN;
        let mut newest = Timestamp::MIN;
        if is_conditional {
            check_conditional(writes)?;
            if is_gated(client.durability) {
                seen = newest_gate(writes, &unit);
            }
            let Some(found) = check_conditions(writes, &unit, batch.is_some(), reply)? else {
                return Ok(seen);
            };
            newest = found;
        }
        // Under the locks: the later of two writes to a partition has the higher timestamp.
        if writes.iter().any(|write| write.takes_timestamp) {
            let timestamp = shared.write_clock.take_above(newest, self.context.now.unix_us());
            let own = writes.iter_mut().filter(|write| write.takes_timestamp);
            own.for_each(|write| write.when.timestamp = timestamp);
        }
        let clock = &shared.write_clock;
        let room = self.context.reactor.room.used_bytes_max;
        let mut changed = Vec::new();
        if writes.iter().any(|write| write.plan.is_counter) {
            count(writes, &mut unit, clock, packed, room)?;
        } else {
            let elements = Elements::new(&self.context.reactor.settings);
            changed = change(writes, &mut unit, clock, packed, (room, elements))?;
        }
        // The stamp may also be another reactor's, which is harmless.
        if clock.newest() > newest_before {
            unit.stamp(clock.newest());
        }
        let warnings = batch.map(|kind| batch_limits::warnings(writes, kind, unit.record_bytes()));
        if !unit.has_written() {
            // Data to delete may already have been removed by a write that a crash could undo.
            seen = newest_gate(writes, &unit);
        }
        let mut gate = Gate::OPEN;
        unit.commit_then(self.context.reactor, |reactor, written| {
            if is_gated(client.durability) {
                gate = written.max(seen);
            }
            publish(reactor, shared, &changed, gate);
        });
        if !changed.is_empty() {
            self.context.reactor.publish_some(shared);
        }
        if is_conditional {
            reply_applied(&writes[0].plan.table, reply)?;
        } else {
            let warnings = warnings.unwrap_or_default();
            let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
            reply.void(&warnings)?;
        }
        Ok(gate)
    }
}

/// Publishes what statements did to Redis keys.
fn publish(reactor: &mut ReactorState, shared: &ServerState, changed: &[KeyChanged], gate: Gate) {
    for KeyChanged { key, events } in changed {
        for event in events {
            reactor.tally.totals.expired_keys += u64::from(*event == KeyEvent::EXPIRED);
            reactor.publish_event(shared, *event, redis::DB, key);
        }
    }
    if reactor.pubsub.has_deferred() {
        reactor.queue_deferred(shared, gate);
    }
}

/// The gate of the newest write to these partitions that is not yet durable.
fn newest_gate(writes: &[BoundWrite<'_>], unit: &Unit<'_>) -> Gate {
    let places = writes.iter().flat_map(|write| write.places(unit.keyspace()));
    places.map(|(db, hash)| Gate::of(unit, db, hash)).max().unwrap_or_default()
}

/// Refuses conditions on several partitions, and on rows named by IN.
fn check_conditional(writes: &[BoundWrite<'_>]) -> Result<(), CqlError> {
    if !is_one_partition(writes) {
        return Err(CqlError::invalid(SEVERAL_PARTITIONS));
    }
    match writes.iter().find(|write| write.plan.names_rows_by_in()) {
        None => Ok(()),
        Some(write) => Err(CqlError::invalid(format!(
            "IN on the clustering key columns is not supported with conditional {}",
            if write.plan.is_deletion() { "deletions" } else { "updates" }
        ))),
    }
}

/// Returns the newest timestamp of the data that conditional writes replace. `None` if a condition
/// does not hold; the response is then written.
fn check_conditions(
    writes: &[BoundWrite<'_>],
    locked: &Locked<'_>,
    is_batch: bool,
    reply: &mut dyn ResultSink,
) -> Result<Option<Timestamp>, CqlError> {
    let first = &writes[0];
    let table = &first.plan.table;
    let made;
    let partition = if first.is_redis() {
        let key = locked.key(&first.keys[0].bytes);
        let rows = writes.iter().filter_map(|write| match write.row_key() {
            RowKey::Clustering(row) => Some(row.to_vec()),
            RowKey::Static => None,
        });
        // Reads only the rows that writes name: a Redis value may have many others.
        let rows: BTreeSet<Vec<u8>> = rows.collect();
        made = redis::partition(locked, table, key, &Rows::Points(rows.into_iter().collect()));
        made.as_ref()
    } else {
        locked.partition(first.keys[0].place(table_id(table)))
    };
    let current = Current::new(writes, partition)?;
    if !current.holds()? {
        reply_refused(&current, is_batch, reply)?;
        return Ok(None);
    }
    Ok(Some(current.newest().unwrap_or(Timestamp::MIN)))
}

/// Writes of one partition, as a range of [`Packed`] bytes.
struct Part<'w> {
    key: PartitionKey<'w>,
    count: usize,
    range: Range<usize>,
}

impl Part<'_> {
    fn mutation<'p>(&'p self, packed: &'p Packed) -> Mutation<'p> {
        let bytes = &packed.bytes[self.range.clone()];
        Mutation::Partition { key: self.key, writes: Writes::Packed { count: self.count, bytes } }
    }
}

/// Log bytes of a partition's mutation in addition to its key and its writes.
const PART_BYTES: usize = 64;

/// Computes the effects of all writes, and then applies them. On an error nothing is changed. Returns
/// the events of Redis keys.
fn change(
    writes: &[BoundWrite<'_>],
    unit: &mut Unit<'_>,
    clock: &WriteClock,
    packed: &mut Packed,
    (memory_bytes_max, elements): (u64, Elements),
) -> Result<Vec<KeyChanged>, CqlError> {
    let parts = produce_all(writes, unit, clock, packed)?;
    let (mut encoded, mut changed) = (Vec::new(), Vec::new());
    if writes.iter().any(BoundWrite::is_redis) {
        let (encoded, changed) = (&mut encoded, &mut changed);
        let mut keys = Keys { clock, elements, encoded, changed };
        keys.encode_all(writes, unit)?;
    }
    admit(&parts, packed, encoded.len(), unit, memory_bytes_max)?;
    for part in &parts {
        unit.change(&part.mutation(packed)).map_err(failed)?;
    }
    unit.change_encoded(&encoded).map_err(failed)?;
    Ok(changed)
}

fn failed(error: store::StoreError) -> CqlError {
    CqlError::Server(error.to_string())
}

/// Computes the effects of all writes to stored partitions.
fn produce_all<'w>(
    writes: &'w [BoundWrite<'_>],
    locked: &Locked<'_>,
    clock: &WriteClock,
    packed: &mut Packed,
) -> Result<SmallVec<[Part<'w>; 1]>, CqlError> {
    let mut parts = SmallVec::new();
    for write in writes.iter().filter(|write| !write.is_redis()) {
        let table = table_id(&write.plan.table);
        for key in &write.keys {
            let key = key.place(table);
            let start = packed.bytes.len();
            packed.count = 0;
            write.produce(locked.partition(key), clock, packed)?;
            check_length(packed.bytes.len())?;
            if packed.count > 0 {
                parts.push(Part { key, count: packed.count, range: start..packed.bytes.len() });
            }
        }
    }
    batch_limits::check_bytes(writes, bytes_of(&parts, packed))?;
    Ok(parts)
}

fn bytes_of(parts: &[Part<'_>], packed: &Packed) -> usize {
    let keys: usize = parts.iter().map(|part| part.key.bytes.len() + PART_BYTES).sum();
    keys + packed.bytes.len()
}

/// Refuses a change that exceeds the log's or the memory's limits.
fn admit(
    parts: &[Part<'_>],
    packed: &Packed,
    other_bytes: usize,
    unit: &Unit<'_>,
    memory_bytes_max: u64,
) -> Result<(), CqlError> {
    let bytes = bytes_of(parts, packed) + other_bytes;
    unit.admit(bytes, memory_bytes_max).map_err(|refusal| match refusal {
        Refusal::TooLong => too_long(bytes),
        Refusal::NoMemory => CqlError::Overloaded(
            "Memory is full: there is no room for a change of this size".to_owned(),
        ),
    })
}

fn check_length(bytes: usize) -> Result<(), CqlError> {
    if bytes <= RECORD_BYTES_MAX { Ok(()) } else { Err(too_long(bytes)) }
}

// Source: Cassandra 5.0, CommitLog.add
fn too_long(bytes: usize) -> CqlError {
    CqlError::invalid(format!(
        "Mutation of {bytes} bytes is too large for the maximum size of {RECORD_BYTES_MAX}"
    ))
}

/// Encodes the effects of a statement on Redis keys for the log.
struct Keys<'k> {
    clock: &'k WriteClock,
    elements: Elements,
    encoded: &'k mut Vec<u8>,
    changed: &'k mut Vec<KeyChanged>,
}

impl Keys<'_> {
    /// Appends the effects of writes on keys, and applies them to drafts only where a later write
    /// of the batch must see them.
    fn encode_all(
        &mut self,
        writes: &[BoundWrite<'_>],
        locked: &Locked<'_>,
    ) -> Result<(), CqlError> {
        let changes = writes.iter().filter(|write| write.is_redis());
        let changes = changes.flat_map(|write| write.keys.iter().map(move |key| (write, key)));
        let mut uses: BTreeMap<&[u8], usize> = BTreeMap::new();
        changes.clone().for_each(|(_, key)| *uses.entry(&key.bytes).or_default() += 1);
        let mut drafts: BTreeMap<&[u8], Draft> = BTreeMap::new();
        for (write, key) in changes {
            if uses[&key.bytes[..]] == 1 {
                self.encode_one(write, key, locked)?;
            } else {
                let draft = match drafts.entry(&key.bytes) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let key = locked.key(&key.bytes);
                        self.elements.copy(locked.peek(redis::DB, key))?;
                        new.insert(locked.draft(redis::DB, key).map_err(failed)?)
                    }
                };
                let start = self.encoded.len();
                let (keyspace, params) = (locked.keyspace(), locked.params());
                self.encode_one(write, key, &draft.lock(keyspace, params))?;
                draft.change(keyspace, params, &self.encoded[start..]).map_err(failed)?;
            }
            check_length(self.encoded.len())?;
        }
        Ok(())
    }

    fn encode_one(
        &mut self,
        write: &BoundWrite<'_>,
        key: &Key,
        locked: &Locked<'_>,
    ) -> Result<(), CqlError> {
        let mut packed = Packed::default();
        write.produce(None, self.clock, &mut packed)?;
        let (table, key) = (&*write.plan.table, locked.key(&key.bytes));
        let (elements, record, changed) =
            (&mut self.elements, &mut *self.encoded, &mut *self.changed);
        let start = record.len();
        KeyChange { table, key, locked, elements, record, start, changed }
            .encode(packed.writes().iter())
    }
}

/// Applies counter increments one after the other, so that one batch may increment the same cell
/// twice. Possible errors do not depend on counter values and are checked before the first change.
fn count(
    writes: &[BoundWrite<'_>],
    unit: &mut Unit<'_>,
    clock: &WriteClock,
    packed: &mut Packed,
    memory_bytes_max: u64,
) -> Result<(), CqlError> {
    let parts = produce_all(writes, unit, clock, packed)?;
    admit(&parts, packed, 0, unit, memory_bytes_max)?;
    drop(parts);
    for write in writes {
        let table = table_id(&write.plan.table);
        for key in &write.keys {
            let key = key.place(table);
            packed.clear();
            write.produce(unit.partition(key), clock, packed)?;
            if packed.count > 0 {
                unit.change(&Mutation::Partition { key, writes: packed.writes() })
                    .map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Returns the number of different hashes; of more than `max` only that there are more.
fn count_distinct(hashes: impl Iterator<Item = u64>, max: usize) -> usize {
    let mut found: SmallVec<[u64; FEW_KEYS + 1]> = SmallVec::new();
    for hash in hashes {
        if !found.contains(&hash) {
            found.push(hash);
        }
        if found.len() > max {
            break;
        }
    }
    found.len()
}
