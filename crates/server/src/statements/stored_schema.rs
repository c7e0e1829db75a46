//! Rows of system tables in the store and in the log.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use base::time::UnixMs;
use binlog::Log;
use cql::roles::{self, Roles, role_rows};
use cql::schema::{
    Catalog, Cells, DESCRIBING, Damaged, ItemCells, ItemRows, RowBuilder, RowId, RowReader, Rows,
    SCHEMA, Table, builtin_table, from_rows, is_system, keyspace_rows,
};
use cql::token::token;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};
use store::{
    CellValue, Keyspace, Locked, Mutation, Params, PartitionKey, RowKey, STRIPES, Seconds, Stamp,
    TableId, Write, Writes,
};
use uuid::Uuid;
use wire::replication::CqlEndpoint;

use crate::config::{CqlAuthenticator, Durability, Settings};
use crate::engine::commit::{Record, Unit};
use crate::engine::gate::Gate;
use crate::engine::reactor_state::{ReactorState, is_gated};
use crate::engine::server_state::{ServerState, params};
use crate::protocol::ClientProtocol;

/// The key of the only row of `system.local`. Its stored part identifies this server permanently.
const LOCAL: &str = "local";

/// The last schema change.
#[derive(Debug, Default)]
pub(crate) struct LastChange {
    /// Held while the schema changes, and taken before the locks of stripes.
    pub(super) last: Mutex<Last>,
    /// Published before the schema: each reply reads it after it has used the schema.
    gate: AtomicU64,
}

impl LastChange {
    fn new(last: Last) -> LastChange {
        LastChange { last: Mutex::new(last), gate: AtomicU64::new(Gate::OPEN.position()) }
    }

    /// The gate of replies that depend on the current schema.
    pub(crate) fn gate(&self) -> Gate {
        Gate::from_store(self.gate.load(Ordering::Acquire))
    }

    /// The gate of the response to any statement, errors included: names were looked up in the
    /// schema, which a crash could undo.
    ///
    /// After the log has failed, only responses that show the schema itself have its gate, which
    /// never opens: reads of rows continue.
    pub(crate) fn gate_of_response(&self, durability: Durability, log: &Log) -> Gate {
        let gate = self.gate();
        let applies = gate != Gate::OPEN && is_gated(durability) && log.poisoned().is_none();
        if applies { gate } else { Gate::OPEN }
    }

    pub(super) fn set_gate(&self, gate: Gate) {
        self.gate.store(gate.position(), Ordering::Release);
    }

    /// Replaces it after the schema was loaded again.
    pub(crate) fn replace(&self, loaded: LastChange) {
        let mut last = self.last.lock();
        *last = loaded.last.into_inner();
        self.set_gate(Gate::OPEN);
    }
}

#[derive(Debug, Default)]
pub(super) struct Last {
    pub(super) timestamp: i64,
}

impl Last {
    /// The timestamp of the next change. One number deletes a row's previous state and the next
    /// writes its new state.
    pub(super) fn next_timestamp(&self, now: UnixMs) -> i64 {
        let now_us = i64::try_from(now.0.saturating_mul(1000)).unwrap_or(i64::MAX);
        now_us.max(self.timestamp.saturating_add(2))
    }
}

/// What startup finds in the store.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) catalog: Catalog,
    pub(crate) roles: Roles,
    pub(crate) last_change: LastChange,
}

pub(super) fn table_id(id: Uuid) -> TableId {
    TableId(id.as_u128())
}

fn key_of(id: &RowId) -> PartitionKey<'_> {
    let token = token(&id.partition);
    PartitionKey { table: table_id(id.table), token, bytes: &id.partition }
}

fn seconds(now: UnixMs) -> Seconds {
    Seconds::try_from(now.0 / 1000).unwrap_or(Seconds::MAX)
}

/// Reads the schema from the store. O(stripes) in addition to the size of the schema.
pub(crate) fn load(keyspace: &Keyspace, params: &Params) -> Result<Loaded, Damaged> {
    let described = DESCRIBING.map(|name| builtin_table(SCHEMA, name));
    let of_roles = roles::TABLES.map(|name| builtin_table("system_auth", name));
    let local = builtin_table("system", LOCAL);
    let tables = described.iter().chain(&of_roles).chain([&local]);
    let tables: Vec<&Table> = tables.map(|table| &**table).collect();
    let mut newest = 0;
    let rows = read(keyspace, params, &tables, &mut newest);
    let last = Last { timestamp: newest };
    Ok(Loaded {
        catalog: from_rows(&plain(&rows))?,
        roles: roles::from_rows(&rows)?,
        last_change: LastChange::new(last),
    })
}

/// Logs each object of which a row is not used, with the first reason. `may_follow`: a copy of a
/// peer's data is not complete, and may bring what the rows lack.
pub(crate) fn report_unusable(catalog: &Catalog, may_follow: bool) {
    let mut objects = BTreeMap::new();
    for row in &catalog.unusable {
        objects.entry((&row.keyspace, &row.object)).or_insert(row.reason);
    }
    for ((keyspace, object), reason) in objects {
        if may_follow {
            tracing::warn!(keyspace, %object, %reason, "stored rows of the schema are not used yet");
        } else {
            tracing::error!(keyspace, %object, %reason, "stored rows of the schema are not used");
        }
    }
}

/// Drops the items of sets.
fn plain(rows: &ItemRows) -> Rows {
    let plain = |cells: &ItemCells| {
        let cells = cells.iter().filter(|((_, item), _)| item.is_none());
        cells.map(|((column, _), bytes)| (*column, bytes.clone())).collect()
    };
    rows.iter().map(|(id, cells)| (id.clone(), plain(cells))).collect()
}

/// Reads all rows of the given tables, and updates `newest` with the newest timestamp of a cell or
/// row.
fn read(keyspace: &Keyspace, params: &Params, tables: &[&Table], newest: &mut i64) -> ItemRows {
    let mut rows = ItemRows::new();
    for stripe in 0..STRIPES {
        let locked = keyspace.lock_stripe(stripe, params);
        if locked.has_no_tables() {
            continue;
        }
        for table in tables {
            read_stripe(&locked, table, &mut rows, newest);
        }
    }
    rows
}

fn read_stripe(locked: &Locked<'_>, table: &Table, rows: &mut ItemRows, newest: &mut i64) {
    let now = seconds(locked.params().now());
    for (_, key, partition) in locked.partitions(table_id(table.id), Bound::Unbounded) {
        for row in partition.rows(Bound::Unbounded, Bound::Unbounded, now) {
            let (partition, clustering) = (key.to_vec(), Some(row.key.to_vec()));
            let mut cells = ItemCells::new();
            for cell in row.cells() {
                *newest = cell.timestamp.max(*newest);
                cells.insert((cell.column, cell.item.map(<[u8]>::to_vec)), cell.bytes.to_vec());
            }
            rows.insert(RowId { table: table.id, partition, clustering }, cells);
        }
    }
}

/// Row changes, collected as the writes of each partition.
pub(super) struct Batch<'a> {
    timestamp: i64,
    now: Seconds,
    partitions: BTreeMap<(Uuid, &'a [u8]), Vec<Write<'a>>>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(timestamp: i64, now: UnixMs) -> Batch<'a> {
        Batch { timestamp, now: seconds(now), partitions: BTreeMap::new() }
    }

    pub(super) fn writes(&mut self, id: &'a RowId) -> &mut Vec<Write<'a>> {
        self.partitions.entry((id.table, &id.partition)).or_default()
    }

    /// Replaces a row, whatever its previous state.
    pub(super) fn put(&mut self, id: &'a RowId, cells: &'a Cells) {
        let cells = cells.iter().map(|(column, bytes)| (*column, None, &**bytes));
        self.replace(id, cells);
    }

    /// Like [`Batch::put`], with items of sets.
    pub(super) fn put_items(&mut self, id: &'a RowId, cells: &'a ItemCells) {
        let cells =
            cells.iter().map(|((column, item), bytes)| (*column, item.as_deref(), &**bytes));
        self.replace(id, cells);
    }

    fn replace(
        &mut self,
        id: &'a RowId,
        cells: impl Iterator<Item = (u32, Option<&'a [u8]>, &'a [u8])>,
    ) {
        let (timestamp, at) = (self.timestamp, self.now);
        let row = id.clustering.as_deref().unwrap_or_default();
        let writes = self.writes(id);
        writes.push(Write::DeleteRow { row, stamp: Stamp { timestamp: timestamp - 1, at } });
        writes.push(Write::InsertRow { row, timestamp, expiry: None });
        writes.extend(cells.map(|(column, item, bytes)| Write::Cell {
            row: RowKey::Clustering(row),
            column,
            item,
            timestamp,
            value: CellValue::Live { bytes, expiry: None },
        }));
    }

    pub(super) fn delete(&mut self, id: &'a RowId) {
        let stamp = Stamp { timestamp: self.timestamp, at: self.now };
        let writes = self.writes(id);
        writes.push(match &id.clustering {
            Some(row) => Write::DeleteRow { row, stamp },
            None => Write::DeletePartition(stamp),
        });
    }

    pub(super) fn mutations(&self) -> impl Iterator<Item = Mutation<'_>> {
        self.partitions.iter().map(|((table, bytes), writes)| {
            let key = PartitionKey { table: table_id(*table), token: token(bytes), bytes };
            Mutation::Partition { key, writes: Writes::Slice(writes) }
        })
    }
}

/// The stored part of `system.local`.
pub(super) fn local_row(fill: impl FnOnce(RowBuilder<'_>) -> RowBuilder<'_>) -> (RowId, Cells) {
    let table = builtin_table("system", LOCAL);
    fill(RowBuilder::new(&table).text("key", LOCAL)).stored()
}

/// Selects some cells of a row, which leaves the others unchanged.
pub(super) fn cells_of<'a>(
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

/// The server's identity, which survives restarts. `None` before it has served CQL.
pub(crate) fn host_id(keyspace: &Keyspace, params: &Params) -> Option<Uuid> {
    let (id, _) = local_row(|row| row);
    let key = key_of(&id);
    let locked = keyspace.lock_one(key.hash(), params);
    let row = locked.partition(key)?.row(&[], seconds(params.now()))?;
    let cells = row.cells().map(|cell| (cell.column, cell.bytes.to_vec())).collect();
    let table = builtin_table("system", LOCAL);
    RowReader::stored(&table, &id, &cells).ok()?.uuid("host_id").ok()?
}

/// The server's permanent identity, and where it serves CQL; `None`: it does not.
pub(crate) fn cql_identity(
    shared: &ServerState,
    params: &Params,
) -> Option<([u8; 16], CqlEndpoint)> {
    let settings = shared.settings.load();
    let endpoints = settings.endpoints().zip(shared.identity.addresses.get()?);
    let endpoints = endpoints.filter(|(one, _)| one.protocol == ClientProtocol::Cql);
    let cql = cql_endpoint(endpoints.map(|(one, address)| (one.is_tls, *address)).collect())?;
    let host = shared.replication.members.host(|| host_id(&shared.keyspace, params))?;
    Some((host, cql))
}

/// What the server announces of the addresses on which it serves CQL, each with whether it uses
/// TLS; `None`: there are none.
fn cql_endpoint(mut addresses: Vec<(bool, SocketAddr)>) -> Option<CqlEndpoint> {
    // Other machines cannot use a loopback address.
    if addresses.iter().any(|(_, address)| !address.ip().to_canonical().is_loopback()) {
        addresses.retain(|(_, address)| !address.ip().to_canonical().is_loopback());
    }
    let first = |is_tls: bool| {
        let mut of_kind = addresses.iter().filter(|(one, _)| *one == is_tls);
        of_kind.next().map(|(_, address)| *address)
    };
    let (plain, tls) = (first(false), first(true));
    let ip = plain.or(tls)?.ip().to_canonical();
    let port = |address: Option<SocketAddr>| address.map_or(0, |address| address.port());
    Some(CqlEndpoint {
        ip: Some(ip).filter(|ip| !ip.is_unspecified()),
        port: port(plain),
        tls_port: port(tls),
    })
}

/// Updates the rows that describe the server's own keyspaces to this program's definitions, and
/// creates the server's identity if there is none. Runs at start, before clients are served; writes
/// nothing if CQL is disabled. `random` seeds the identity.
pub(crate) fn install(
    shared: &ServerState,
    last_change: &LastChange,
    now: UnixMs,
    random: u64,
) -> anyhow::Result<()> {
    let settings = shared.settings.load_full();
    if !settings.speaks_cql() {
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
    let mut last = last_change.last.lock();
    let mut stored = plain(&read(&shared.keyspace, params, &tables, &mut last.timestamp));
    stored.retain(|id, _| std::str::from_utf8(&id.partition).is_ok_and(is_system));
    last.timestamp = last.next_timestamp(now);
    let first = first_roles(shared, &settings)?;
    let first_rows: ItemRows =
        first.iter().flat_map(Roles::iter).flat_map(|(name, role)| role_rows(name, role)).collect();
    let mut batch = Batch::new(last.timestamp, params.now());
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
    // A new member of a group has not received the roles of the others yet: those stay.
    let is_member = shared.hub.server != 0;
    let timestamp = if is_member { FIRST_ROLES_TIMESTAMP } else { last.timestamp };
    let mut roles = Batch::new(timestamp, params.now());
    for (id, cells) in &first_rows {
        roles.put_items(id, cells);
    }
    let mut reactor = ReactorState::new(shared, 0);
    let mut record = Record::default();
    // One record per mutation: after a crash, the next start writes the missing ones.
    for mutation in batch.mutations().chain(roles.mutations()) {
        let Mutation::Partition { key, .. } = &mutation else {
            unreachable!("a batch writes partitions")
        };
        let locked = shared.keyspace.lock_one(key.hash(), params);
        let mut unit = Unit::of_server(shared, &reactor, &mut record, locked);
        unit.change(&mutation)?;
        last_change.set_gate(unit.commit(&mut reactor));
    }
    if let Some(cause) = shared.log.poisoned() {
        return Err(cause).context("writing to the log");
    }
    shared.memory.store.consume(u64::try_from(reactor.store_bytes).unwrap_or(0));
    if let Some(roles) = first {
        shared.roles.store(Arc::new(roles));
    }
    Ok(())
}

/// Less than every timestamp that a server gives; what the new row replaces has one less.
// Source: Cassandra 5.0, CassandraRoleManager.createDefaultRoleQuery
const FIRST_ROLES_TIMESTAMP: i64 = 1;

/// Creates the superuser with the server's password, if logins are required and there are no roles.
// Source: Cassandra 5.0, CassandraRoleManager.setupDefaultRole
fn first_roles(shared: &ServerState, settings: &Settings) -> anyhow::Result<Option<Roles>> {
    if settings.cql_authenticator != CqlAuthenticator::Password {
        return Ok(None);
    }
    let roles = shared.roles.load();
    if roles.iter().any(|(_, role)| role.can_login && role.salted_hash.is_some()) {
        return Ok(None);
    }
    anyhow::ensure!(
        settings.requirepass.is_set(),
        "cql-authenticator is password, and there is no role that can log in: set requirepass, which \
         becomes the password of the superuser {}",
        roles::SUPERUSER
    );
    tracing::info!(role = roles::SUPERUSER, "created a superuser with the password of requirepass");
    Ok(Some(
        roles.with_superuser(roles::password::hash(settings.passwords().first().unwrap_or(&""))),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_announced_only_if_there_are_no_others() {
        let check = |addresses: &[(bool, &str)], expected: Option<(Option<&str>, u16, u16)>| {
            let parsed = addresses.iter().map(|(is_tls, text)| (*is_tls, text.parse().unwrap()));
            let found = cql_endpoint(parsed.collect());
            let expected = expected.map(|(ip, port, tls_port)| CqlEndpoint {
                ip: ip.map(|ip| ip.parse().unwrap()),
                port,
                tls_port,
            });
            assert_eq!(found, expected, "{addresses:?}");
        };
        check(&[], None);
        check(&[(false, "127.0.0.1:1")], Some((Some("127.0.0.1"), 1, 0)));
        check(&[(false, "127.0.0.1:1"), (true, "127.0.0.1:2")], Some((Some("127.0.0.1"), 1, 2)));
        check(&[(false, "127.0.0.1:1"), (true, "0.0.0.0:2")], Some((None, 0, 2)));
        check(&[(false, "[::ffff:127.0.0.1]:1"), (true, "[::]:2")], Some((None, 0, 2)));
        check(&[(false, "[::1]:1"), (false, "10.0.0.1:3")], Some((Some("10.0.0.1"), 3, 0)));
        check(&[(false, "10.0.0.1:3"), (true, "10.0.0.1:4")], Some((Some("10.0.0.1"), 3, 4)));
    }
}
