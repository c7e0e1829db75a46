//! INSERT, UPDATE, DELETE and batches of them: one record, all or nothing.

use std::sync::Arc;

use smallvec::SmallVec;
use store::{
    Expiry, Keyspace, Locked, Mutation, PARTITIONS_DB, Partition, RowKey, Seconds, Timestamp, Write,
};

use super::batch_limits;
use super::change::{Packed, RowChange, When};
use super::clock::WriteClock;
use super::condition::{Current, is_one_partition, reply_applied, reply_refused};
use super::keys::{Key, partition_keys, table_id};
use super::ranges::{Rows, rows};
use super::redis::{self, KeyChange, Undo};
use super::roles::warned;
use super::values::Cx;
use crate::cql::engine::{ClientState, Engine, Reply};
use crate::cql::error::CqlError;
use crate::cql::plan::{PartitionRestriction, Target, WritePlan};
use crate::cql::schema::{Catalog, TableSource};
use crate::cql::statements::BatchKind;
use crate::evict::{Eviction, NoRoom};
use crate::records::RECORD_BYTES_MAX;
use crate::resp::LOG_FAILED;
use crate::resp::cx::Record;
use crate::worker::is_gated;

pub(super) const SEVERAL_PARTITIONS: &str = "Batch with conditions cannot span multiple partitions";

/// Longest life of a cell, in seconds: 20 years.
// Source: Cassandra 5.0, Attributes.MAX_TTL
const TTL_MAX: i64 = 630_720_000;

/// A write whose keys and times are known: what is left depends on data, or needs its lock.
pub(super) struct Ready<'w> {
    pub(super) plan: &'w WritePlan,
    /// The schema that it was planned against.
    catalog: &'w Arc<Catalog>,
    pub(super) cx: Cx<'w>,
    pub(super) keys: SmallVec<[Key; 1]>,
    rows: Rows,
    when: When,
}

impl<'w> Ready<'w> {
    /// `timestamp`: of writes that say none.
    pub(super) fn new(
        plan: &'w WritePlan,
        catalog: &'w Arc<Catalog>,
        cx: Cx<'w>,
        timestamp: Timestamp,
    ) -> Result<Self, CqlError> {
        let PartitionRestriction::Keys { keys, .. } = &plan.restrictions.partition else {
            unreachable!("writes name their partitions")
        };
        let timestamp = match &plan.timestamp {
            None => timestamp,
            Some(expression) => {
                let own = cx.integer(expression, "timestamp")?.unwrap_or(timestamp);
                if own == Timestamp::MIN {
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
        let when = When { timestamp, expiry: expiry(plan, &cx)?, now: cx.now };
        Ok(Ready { plan, catalog, cx, keys, rows, when })
    }

    /// The row of a conditional write.
    pub(super) fn row_key(&self) -> RowKey<'_> {
        match &self.rows {
            Rows::Points(points) if !points.is_empty() => RowKey::Clustering(&points[0]),
            _ => RowKey::Static,
        }
    }

    fn is_redis(&self) -> bool {
        self.plan.table.source == TableSource::Redis
    }

    /// Database and hash of its partitions: what is locked, and what reads wait for.
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

    /// Refuses what was planned before its table was dropped. Asked under the locks: a table is dropped
    /// under all of them, so what gets through is there to be dropped with it.
    fn check_table(&self, current: &Arc<Catalog>) -> Result<(), CqlError> {
        if Arc::ptr_eq(self.catalog, current) {
            return Ok(());
        }
        let table = &self.plan.table;
        let found = current.table(&table.keyspace, &table.name);
        if found.is_some_and(|found| found.id == table.id) {
            return Ok(());
        }
        Err(CqlError::invalid(format!("table {} does not exist", table.name)))
    }

    /// What becomes of one of its partitions.
    fn produce(
        &self,
        partition: Option<&Partition>,
        clock: &WriteClock,
        out: &mut Packed,
    ) -> Result<(), CqlError> {
        match self.plan.target {
            Target::Partition => out.put(Write::DeletePartition(self.when.stamp())),
            Target::Rows => self.delete_rows(out),
            // Said this late, as other mistakes come first.
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
fn expiry<'v>(plan: &'v WritePlan, cx: &Cx<'v>) -> Result<Option<Expiry>, CqlError> {
    let default = i64::from(plan.table.options.default_time_to_live);
    let ttl = match &plan.ttl {
        None => default,
        Some(expression) => cx.integer(expression, "TTL")?.unwrap_or(default),
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
    let ttl = Seconds::try_from(ttl).expect("was checked");
    Ok((ttl > 0).then(|| Expiry { at: cx.now.saturating_add(ttl), ttl }))
}

impl Engine<'_> {
    /// Whether the server may take writes: there is room, and a log.
    pub(super) fn admit_write(&mut self) -> Result<(), CqlError> {
        if !self.shared.log.takes_writes() {
            return Err(CqlError::Server(LOG_FAILED.to_owned()));
        }
        let limit_bytes = self.worker.settings.maxmemory_bytes;
        if limit_bytes == 0 || self.shared.used_bytes() <= limit_bytes {
            return Ok(());
        }
        let mut eviction = Eviction {
            shared: self.shared,
            params: self.params,
            worker: self.worker,
            record: self.record,
            now: self.now,
        };
        eviction.make_room(limit_bytes).map_err(|NoRoom| {
            CqlError::Overloaded("The server's memory is full: see maxmemory".to_owned())
        })
    }

    /// Carries writes out as one. Returns the log position that the response waits for.
    pub(super) fn write(
        &mut self,
        client: &ClientState,
        writes: &mut [Ready<'_>],
        batch: Option<BatchKind>,
        reply: &mut Reply<'_>,
    ) -> Result<u64, CqlError> {
        if writes.is_empty() {
            reply.encoder.void(reply.stream, reply.out);
            return Ok(0);
        }
        self.sample_writes(writes);
        self.record.clear();
        let keyspace = &self.shared.keyspace;
        let mut locked = match writes {
            [write] if write.keys.len() == 1 => {
                let (_, hash) = write.places(keyspace).next().expect("there is one");
                keyspace.lock_one(hash, self.params)
            }
            _ => {
                let places = writes.iter().flat_map(|write| write.places(keyspace));
                keyspace.lock(places.map(|(_, hash)| hash), self.params)
            }
        };
        let current = self.shared.catalog.load();
        writes.iter().try_for_each(|write| write.check_table(&current))?;
        drop(current);
        let is_conditional = writes.iter().any(|write| write.plan.is_conditional());
        let mut seen = 0;
        if is_conditional {
            if !is_one_partition(writes) {
                return Err(CqlError::invalid(SEVERAL_PARTITIONS));
            }
            if let Some(write) = writes.iter().find(|write| write.plan.names_rows_by_in()) {
                return Err(CqlError::invalid(format!(
                    "IN on the clustering key columns is not supported with conditional {}",
                    if write.plan.is_deletion() { "deletions" } else { "updates" }
                )));
            }
            let places = writes[0].places(keyspace);
            let gates = places.map(|(db, hash)| locked.gate(db, hash));
            seen = gates.max().filter(|_| is_gated(client.durability)).unwrap_or(0);
            let Some(newest) = check_conditions(writes, &locked, batch.is_some(), reply)? else {
                return Ok(seen);
            };
            for write in &mut *writes {
                write.when.timestamp = write.when.timestamp.max(newest.saturating_add(1));
            }
        }
        let clock = &self.shared.write_clock;
        if writes.iter().any(|write| write.plan.is_counter) {
            count(writes, &mut locked, clock, self.record)?;
        } else {
            encode(writes, &locked, clock, self.record)?;
            let stored = self.record.bytes.len();
            if writes.iter().any(Ready::is_redis) {
                change_keys(writes, &mut locked, clock, self.record)?;
            }
            apply(&self.record.bytes[..stored], &mut locked)?;
        }
        if !self.record.bytes.is_empty() {
            let places = writes.iter().flat_map(|write| write.places(keyspace));
            self.record.written.extend(places);
        }
        let bytes = self.record.bytes.len();
        let warnings = batch.map(|kind| batch_limits::warnings(writes, kind, bytes));
        let lsn = self.seal(locked);
        if is_conditional {
            reply_applied(&writes[0].plan.table, reply);
        } else {
            let warnings = warnings.unwrap_or_default();
            let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
            warned(reply.encoder, &warnings).void(reply.stream, reply.out);
        }
        Ok(if is_gated(client.durability) { lsn.max(seen) } else { 0 })
    }

    /// Puts the record into the log, still under the locks, and releases them.
    pub(super) fn seal(&mut self, mut locked: Locked<'_>) -> u64 {
        let mut lsn = 0;
        if !self.record.bytes.is_empty() {
            lsn = self.worker.append(self.shared, &self.record.bytes);
            if self.record.flushed {
                locked.note_flush(lsn);
            }
            for (db, hash) in &self.record.written {
                locked.note_write(*db, *hash, lsn, self.worker.durable);
            }
        }
        let (trash, grown_bytes) = locked.unlock();
        self.worker.store_bytes += grown_bytes;
        if !trash.is_empty() {
            self.shared.janitor.free(trash);
        }
        self.record.trim();
        lsn
    }
}

/// None if a condition does not hold, and the client was told so; otherwise the newest timestamp of
/// what conditional writes replace.
fn check_conditions(
    writes: &[Ready<'_>],
    locked: &Locked<'_>,
    is_batch: bool,
    reply: &mut Reply<'_>,
) -> Result<Option<Timestamp>, CqlError> {
    let first = &writes[0];
    let table = &first.plan.table;
    let made;
    let partition = if first.is_redis() {
        let key = locked.key(&first.keys[0].bytes);
        made = redis::partition(locked, table, key, &Rows::All);
        made.as_ref()
    } else {
        locked.partition(first.keys[0].place(table_id(table)))
    };
    let current = Current::new(writes, partition)?;
    if !current.holds()? {
        reply_refused(&current, is_batch, reply);
        return Ok(None);
    }
    Ok(Some(current.newest().unwrap_or(Timestamp::MIN)))
}

/// Appends what all writes of stored partitions do, without doing it.
fn encode(
    writes: &[Ready<'_>],
    locked: &Locked<'_>,
    clock: &WriteClock,
    record: &mut Record,
) -> Result<(), CqlError> {
    let mut packed = Packed { count: 0, bytes: std::mem::take(&mut record.rows) };
    for write in writes.iter().filter(|write| !write.is_redis()) {
        let table = table_id(&write.plan.table);
        for key in &write.keys {
            let place = key.place(table);
            packed.clear();
            write.produce(locked.partition(place), clock, &mut packed)?;
            put_mutation(&packed, place, &mut record.bytes)?;
        }
    }
    record.keep_rows(packed.bytes);
    batch_limits::check_bytes(writes, record.bytes.len())
}

/// Changes keys of the Redis protocol, one after the other, so that a write of a batch sees those before
/// it, and appends it. On an error nothing has changed.
fn change_keys(
    writes: &[Ready<'_>],
    locked: &mut Locked<'_>,
    clock: &WriteClock,
    record: &mut Record,
) -> Result<(), CqlError> {
    let changes = writes.iter().filter(|write| write.is_redis());
    let changes = changes.flat_map(|write| write.keys.iter().map(move |key| (write, key)));
    let has_several = changes.clone().nth(1).is_some();
    let mut undo = Undo::default();
    for (write, key) in changes {
        let start = record.bytes.len();
        let outcome = change_key(write, key, locked, clock, &mut record.bytes).and_then(|()| {
            if has_several {
                undo.save(locked, locked.key(&key.bytes));
            }
            apply(&record.bytes[start..], locked)
        });
        if let Err(error) = outcome {
            undo.restore(locked);
            return Err(error);
        }
    }
    Ok(())
}

/// Appends what a write does to one key.
fn change_key(
    write: &Ready<'_>,
    key: &Key,
    locked: &Locked<'_>,
    clock: &WriteClock,
    record: &mut Vec<u8>,
) -> Result<(), CqlError> {
    let mut packed = Packed::default();
    write.produce(None, clock, &mut packed)?;
    let key = locked.key(&key.bytes);
    KeyChange { table: &write.plan.table, key, locked, record }.encode(packed.writes().iter())
}

fn put_mutation(
    packed: &Packed,
    key: store::PartitionKey<'_>,
    record: &mut Vec<u8>,
) -> Result<(), CqlError> {
    if packed.count > 0 {
        Mutation::Partition { key, writes: packed.writes() }.encode(record);
    }
    if record.len() <= RECORD_BYTES_MAX {
        return Ok(());
    }
    Err(CqlError::invalid(format!(
        "Mutation of {} bytes is too large for the maximum size of {RECORD_BYTES_MAX}",
        record.len()
    )))
}

/// Does what a record says.
pub(super) fn apply(mut record: &[u8], locked: &mut Locked<'_>) -> Result<(), CqlError> {
    while !record.is_empty() {
        let keyspace = locked.keyspace();
        let mutation = Mutation::decode(&mut record, |key| keyspace.hash(key));
        let mutation = mutation.expect("encoded just now");
        locked.apply(&mutation).map_err(|error| CqlError::Server(error.to_string()))?;
    }
    Ok(())
}

/// Counters are added up one after the other, so that one batch may count the same cell twice. What
/// can fail is tried first.
fn count(
    writes: &[Ready<'_>],
    locked: &mut Locked<'_>,
    clock: &WriteClock,
    record: &mut Record,
) -> Result<(), CqlError> {
    encode(writes, locked, clock, record)?;
    record.bytes.clear();
    let mut packed = Packed::default();
    for write in writes {
        let table = table_id(&write.plan.table);
        for key in &write.keys {
            let place = key.place(table);
            packed.clear();
            write.produce(locked.partition(place), clock, &mut packed)?;
            let start = record.bytes.len();
            put_mutation(&packed, place, &mut record.bytes)?;
            apply(&record.bytes[start..], locked)?;
        }
    }
    Ok(())
}
