//! Rows of system tables in the store and in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use anyhow::Context as _;
use base::time::UnixMs;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};
use store::{
    CellValue, Keyspace, Locked, Mutation, PARTITIONS_DB, Params, PartitionKey, RowKey, STRIPES,
    Seconds, Stamp, TableId, Write, Writes,
};
use uuid::Uuid;

use super::builtin::{builtin_table, is_system};
use super::change::{Change, ChangeContext, Event, change};
use super::load::{LoadError, from_rows};
use super::row::{Cells, RowBuilder, RowId, RowReader, Rows};
use super::rows::{DESCRIBING, SCHEMA, keyspace_rows};
use super::{Catalog, Table};
use crate::cql::error::CqlError;
use crate::cql::events::SchemaEvent;
use crate::cql::statements::Statement;
use crate::cql::token::token;
use crate::records::{MUTATIONS, RECORD_BYTES_MAX};
use crate::resp::cx::Record;
use crate::shared::{Shared, params};
use crate::worker::Worker;

/// The key of the one row of `system.local`; what of it is stored is this server's for ever.
const LOCAL: &str = "local";

/// The last change of the schema. Its lock is held while the schema is changed, and taken before
/// those of stripes.
#[derive(Debug, Default)]
pub(crate) struct LastChange(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    timestamp: i64,
    /// Of the log.
    position: u64,
}

/// What a start finds in the store.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) catalog: Catalog,
    pub(crate) last_change: LastChange,
}

fn table_id(id: Uuid) -> TableId {
    TableId(id.as_u128())
}

fn key_of(id: &RowId) -> PartitionKey<'_> {
    let token = token(&id.partition);
    PartitionKey { table: table_id(id.table), token, bytes: &id.partition }
}

fn seconds(now: UnixMs) -> Seconds {
    Seconds::try_from(now.0 / 1000).unwrap_or(Seconds::MAX)
}

/// Reads the schema back. O(stripes) beside the schema itself.
pub(crate) fn load(keyspace: &Keyspace, params: &Params) -> Result<Loaded, LoadError> {
    let tables = DESCRIBING.map(|name| builtin_table(SCHEMA, name));
    let tables: Vec<&Table> = tables.iter().map(|table| &**table).collect();
    let mut newest = 0;
    let rows = read(keyspace, params, &tables, &mut newest);
    let local = builtin_table("system", LOCAL);
    read(keyspace, params, &[&local], &mut newest);
    let last = Last { timestamp: newest, position: 0 };
    Ok(Loaded { catalog: from_rows(&rows)?, last_change: LastChange(Mutex::new(last)) })
}

/// All rows of some tables, and the newest timestamp of a cell.
fn read(keyspace: &Keyspace, params: &Params, tables: &[&Table], newest: &mut i64) -> Rows {
    let mut rows = Rows::new();
    for stripe in 0..STRIPES {
        let locked = keyspace.lock_stripe(stripe, params);
        for table in tables {
            read_stripe(&locked, table, &mut rows, newest);
        }
    }
    rows
}

fn read_stripe(locked: &Locked<'_>, table: &Table, rows: &mut Rows, newest: &mut i64) {
    let now = seconds(locked.params().now);
    for (_, key, partition) in locked.partitions(table_id(table.id), Bound::Unbounded) {
        for row in partition.rows(Bound::Unbounded, Bound::Unbounded, now) {
            let (partition, clustering) = (key.to_vec(), Some(row.key.to_vec()));
            let mut cells = Cells::new();
            for cell in row.cells() {
                *newest = cell.timestamp.max(*newest);
                cells.insert(cell.column, cell.bytes.to_vec());
            }
            rows.insert(RowId { table: table.id, partition, clustering }, cells);
        }
    }
}

/// Changes of rows, as the writes of each partition.
struct Batch<'a> {
    timestamp: i64,
    now: Seconds,
    partitions: BTreeMap<(Uuid, &'a [u8]), Vec<Write<'a>>>,
}

impl<'a> Batch<'a> {
    fn new(timestamp: i64, now: UnixMs) -> Batch<'a> {
        Batch { timestamp, now: seconds(now), partitions: BTreeMap::new() }
    }

    fn writes(&mut self, id: &'a RowId) -> &mut Vec<Write<'a>> {
        self.partitions.entry((id.table, &id.partition)).or_default()
    }

    /// The row is this from now on, whatever it was.
    fn put(&mut self, id: &'a RowId, cells: &'a Cells) {
        let (timestamp, at) = (self.timestamp, self.now);
        let row = id.clustering.as_deref().unwrap_or_default();
        let writes = self.writes(id);
        writes.push(Write::DeleteRow { row, stamp: Stamp { timestamp: timestamp - 1, at } });
        writes.push(Write::InsertRow { row, timestamp, expiry: None });
        writes.extend(cells.iter().map(|(column, bytes)| Write::Cell {
            row: RowKey::Clustering(row),
            column: *column,
            item: None,
            timestamp,
            value: CellValue::Live { bytes, expiry: None },
        }));
    }

    fn delete(&mut self, id: &'a RowId) {
        let stamp = Stamp { timestamp: self.timestamp, at: self.now };
        let writes = self.writes(id);
        writes.push(match &id.clustering {
            Some(row) => Write::DeleteRow { row, stamp },
            None => Write::DeletePartition(stamp),
        });
    }

    fn mutations(&self) -> impl Iterator<Item = Mutation<'_>> {
        self.partitions.iter().map(|((table, bytes), writes)| {
            let key = PartitionKey { table: table_id(*table), token: token(bytes), bytes };
            Mutation::Partition { key, writes: Writes::Slice(writes) }
        })
    }
}

/// A UUID of version 1: no two changes have the same timestamp, also in another life of the server.
/// An id that came again would show the new table what is left of the old one.
fn table_id_at(timestamp: i64, seed: u64) -> Uuid {
    /// From the beginning of the Gregorian calendar to 1970, in the unit of such UUIDs.
    const EPOCH: u64 = 0x01B2_1DD2_1381_4000;
    let ticks = timestamp.cast_unsigned().wrapping_mul(10).wrapping_add(EPOCH);
    let [high, low, node @ ..] = seed.to_be_bytes();
    let counter = u16::from_be_bytes([high, low]);
    uuid::Builder::from_gregorian_timestamp(ticks, counter, &node).into_uuid()
}

/// What is known of the one who changes the schema.
#[derive(Debug)]
pub(crate) struct Changer<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) params: &'a Params,
    pub(crate) worker: &'a mut Worker,
    pub(crate) record: &'a mut Record,
}

impl Changer<'_> {
    /// Carries out a statement on the schema: see [`super::changes_schema`]. Returns what clients are
    /// told, and the position of the log that must be durable before; no event: nothing was to be
    /// done.
    pub(crate) fn change(
        &mut self,
        statement: &Statement,
        keyspace: Option<&str>,
    ) -> Result<(Option<Event>, u64), CqlError> {
        let (event, gate) = self.carry_out(statement, keyspace)?;
        if let Some(event) = &event {
            SchemaEvent::announce(self.shared, event.clone(), gate);
        }
        Ok((event, gate))
    }

    /// The same, and no client is told.
    pub(crate) fn carry_out(
        &mut self,
        statement: &Statement,
        keyspace: Option<&str>,
    ) -> Result<(Option<Event>, u64), CqlError> {
        let mut last = self.shared.schema.0.lock();
        let catalog = self.shared.catalog.load_full();
        let now = i64::try_from(self.params.now.0.saturating_mul(1000)).unwrap_or(i64::MAX);
        // One number for what a row was before, one for what it is.
        let timestamp = now.max(last.timestamp.saturating_add(2));
        let table_id = table_id_at(timestamp, self.shared.keyspace.seed());
        let cx = ChangeContext { keyspace, table_id, timestamp };
        let Some(change) = change(&catalog, statement, &cx)? else {
            // What is there already may not be durable yet: whoever is told so builds on it.
            return Ok((None, last.position));
        };
        let gate = self.commit(&change, timestamp)?;
        *last = Last { timestamp, position: gate };
        Ok((Some(change.event), gate))
    }

    /// Puts a change on the log and into the store, as one record, and makes it the schema: under the
    /// same locks, so that a write that was planned for a table that is dropped comes before, or is
    /// refused.
    fn commit(&mut self, change: &Change, timestamp: i64) -> Result<u64, CqlError> {
        let (local_id, local) = local_row(|row| row.uuid("schema_version", change.catalog.version));
        let mut batch = Batch::new(timestamp, self.params.now);
        change.written.iter().for_each(|(id, cells)| batch.put(id, cells));
        change.deleted.iter().for_each(|id| batch.delete(id));
        batch.writes(&local_id).extend(cells_of(&local_id, &local, timestamp));
        let truncated = change.truncated.iter();
        let truncated = truncated.map(|id| Mutation::Truncate { table: table_id(*id) });
        let mutations: Vec<Mutation<'_>> = batch.mutations().chain(truncated).collect();
        self.record.clear();
        for mutation in &mutations {
            mutation.encode(&mut self.record.bytes);
        }
        if self.record.bytes.len() > RECORD_BYTES_MAX {
            return Err(CqlError::invalid("The change is too long for one record of the log"));
        }
        let hashes: BTreeSet<u64> = mutations
            .iter()
            .filter_map(|mutation| match mutation {
                Mutation::Partition { key, .. } => Some(key.hash()),
                _ => None,
            })
            .collect();
        let keyspace = &self.shared.keyspace;
        let mut locked = if change.truncated.is_empty() {
            keyspace.lock(hashes.iter().copied(), self.params)
        } else {
            keyspace.lock_all(self.params)
        };
        for mutation in &mutations {
            locked.apply(mutation).map_err(|error| CqlError::Server(error.to_string()))?;
        }
        let gate = self.worker.append(self.shared, &self.record.bytes);
        self.shared.catalog.store(Arc::clone(&change.catalog));
        if change.truncated.is_empty() {
            for hash in hashes {
                locked.note_write(PARTITIONS_DB, hash, gate, self.worker.durable);
            }
        } else {
            locked.note_flush(gate);
        }
        let (trash, grown_bytes) = locked.unlock();
        self.worker.store_bytes += grown_bytes;
        self.shared.janitor.free(trash);
        self.record.trim();
        Ok(gate)
    }
}

/// The stored part of `system.local`.
fn local_row(fill: impl FnOnce(RowBuilder<'_>) -> RowBuilder<'_>) -> (RowId, Cells) {
    let table = builtin_table("system", LOCAL);
    fill(RowBuilder::new(&table).text("key", LOCAL)).stored()
}

/// Some cells of a row; others stay.
fn cells_of<'a>(
    id: &'a RowId,
    cells: &'a Cells,
    timestamp: i64,
) -> impl Iterator<Item = Write<'a>> {
    let row = RowKey::Clustering(id.clustering.as_deref().unwrap_or_default());
    cells.iter().map(move |(column, bytes)| Write::Cell {
        row,
        column: *column,
        item: None,
        timestamp,
        value: CellValue::Live { bytes, expiry: None },
    })
}

/// Who this server is, the same in all of its lives. None before it has served CQL.
pub(crate) fn host_id(keyspace: &Keyspace, params: &Params) -> Option<Uuid> {
    let (id, _) = local_row(|row| row);
    let key = key_of(&id);
    let locked = keyspace.lock_one(key.hash(), params);
    let row = locked.partition(key)?.row(&[], seconds(params.now))?;
    let cells = row.cells().map(|cell| (cell.column, cell.bytes.to_vec())).collect();
    let table = builtin_table("system", LOCAL);
    RowReader::stored(&table, &id, &cells).ok()?.uuid("host_id").ok()?
}

/// Makes the rows that describe the server's own keyspaces what this program has, and gives the
/// server an identity if it has none. At start, before anybody is served; nothing is written if
/// nobody can ask. `random` seeds the identity.
pub(crate) fn install(shared: &Shared, now: UnixMs, random: u64) -> anyhow::Result<()> {
    let settings = shared.settings.load_full();
    if settings.cql.is_empty() {
        return Ok(());
    }
    let params = &params(&settings, now, shared.keyspace.seed(), random);
    let catalog = shared.catalog.load_full();
    let mut expected = Rows::new();
    for keyspace in catalog.keyspaces.values().filter(|keyspace| is_system(&keyspace.name)) {
        expected.extend(keyspace_rows(keyspace));
    }
    let tables = DESCRIBING.map(|name| builtin_table(SCHEMA, name));
    let tables: Vec<&Table> = tables.iter().map(|table| &**table).collect();
    let mut last = shared.schema.0.lock();
    let mut stored = read(&shared.keyspace, params, &tables, &mut last.timestamp);
    stored.retain(|id, _| std::str::from_utf8(&id.partition).is_ok_and(is_system));
    let now_us = i64::try_from(now.0.saturating_mul(1000)).unwrap_or(i64::MAX);
    last.timestamp = now_us.max(last.timestamp.saturating_add(2));
    let mut batch = Batch::new(last.timestamp, params.now);
    expected.iter().filter(|(id, cells)| stored.get(*id) != Some(*cells)).for_each(
        |(id, cells)| {
            batch.put(id, cells);
        },
    );
    stored.keys().filter(|id| !expected.contains_key(*id)).for_each(|id| batch.delete(id));
    let mut host = [0; 16];
    SmallRng::seed_from_u64(random).fill_bytes(&mut host);
    let host = uuid::Builder::from_random_bytes(host).into_uuid();
    let (local_id, local) = local_row(|row| row.uuid("host_id", host));
    if host_id(&shared.keyspace, params).is_none() {
        batch.put(&local_id, &local);
    }
    let mut locked = shared.keyspace.lock_all(params);
    // A record for each: the next start finds what a crash has left out.
    for mutation in batch.mutations() {
        let mut bytes = Vec::new();
        mutation.encode(&mut bytes);
        locked.apply(&mutation)?;
        last.position = shared.log.append(0, MUTATIONS, &bytes).context("writing to the log")?.0;
    }
    locked.note_flush(last.position);
    let (trash, grown_bytes) = locked.unlock();
    shared.memory.store.consume(u64::try_from(grown_bytes).unwrap_or(0));
    shared.janitor.free(trash);
    Ok(())
}
