//! Changes to the schema and to roles, each as one log record.

use std::sync::Arc;

use cql::error::CqlError;
use cql::roles::{self, Access, Roles, follow_schema, role_rows};
use cql::schema::{ChangeContext, Event, ItemRows, RowId, change};
use cql::statements::Statement;
use store::Mutation;
use uuid::Uuid;

use super::execute::check_writes;
use super::executor::{CqlExecutor, held_by_script};
use super::stored_schema::{self, Batch, Last, cells_of, local_row, table_id};
use crate::engine::commit::Unit;
use crate::engine::context::ReactorContext;
use crate::engine::gate::Gate;
use crate::engine::mail::Mail;
use crate::engine::server_state::ServerState;
use crate::statements::execute::install_indexes;

/// Returns a version 1 UUID. No two changes have the same timestamp, even across restarts of the
/// server. A reused id would expose leftover rows of the old table in the new one.
fn table_id_at(timestamp: i64, seed: u64) -> Uuid {
    /// From the start of the Gregorian calendar to 1970, in the unit of version 1 UUIDs.
    const EPOCH: u64 = 0x01B2_1DD2_1381_4000;
    let ticks = timestamp.cast_unsigned().wrapping_mul(10).wrapping_add(EPOCH);
    let [high, low, node @ ..] = seed.to_be_bytes();
    let counter = u16::from_be_bytes([high, low]);
    uuid::Builder::from_gregorian_timestamp(ticks, counter, &node).into_uuid()
}

/// Sends a schema change to the reactors, which notify their clients once its gate opens.
pub(crate) fn announce(shared: &ServerState, event: Event, gate: Gate) {
    shared.broadcast(&Mail::SchemaChanged { event: Arc::new(event), gate });
}

/// A change to roles: rows to write, and rows to delete.
#[derive(Debug, Default)]
struct RolesDifference {
    written: ItemRows,
    deleted: Vec<RowId>,
}

impl RolesDifference {
    /// The cost is proportional to the roles that differ: equal ones are shared.
    fn between(before: &Roles, after: &Roles) -> RolesDifference {
        let mut found = RolesDifference::default();
        let changed = |of: &Roles, other: &Roles| -> ItemRows {
            let changed = of.iter().filter(|(name, role)| {
                !other.role(name).is_some_and(|other| Arc::ptr_eq(other, role))
            });
            changed.flat_map(|(name, role)| role_rows(name, role)).collect()
        };
        let (old, new) = (changed(before, after), changed(after, before));
        found.deleted.extend(old.keys().filter(|id| !new.contains_key(*id)).cloned());
        found.written.extend(new.into_iter().filter(|(id, cells)| old.get(id) != Some(cells)));
        found
    }

    fn put_into<'b>(&'b self, batch: &mut Batch<'b>) {
        self.written.iter().for_each(|(id, cells)| batch.put_items(id, cells));
        self.deleted.iter().for_each(|id| batch.delete(id));
    }
}

impl CqlExecutor<'_> {
    /// The timestamp of the next change. In a group of masters it exceeds those of all changes that
    /// were received, also of deletions, of which no row is left.
    fn next_timestamp(&self, last: &Last) -> i64 {
        let ReactorContext { shared, params, .. } = &self.context;
        let timestamp = last.next_timestamp(params.now());
        if shared.hub.server == 0 {
            return timestamp;
        }
        let least = timestamp.max(shared.write_clock.newest().saturating_add(2));
        // No two servers of a group give the same one: rows of different changes would mix.
        let place = 2 * i64::from(shared.hub.server % 500);
        let found = least - least.rem_euclid(1000) + place;
        if found < least { found + 1000 } else { found }
    }

    /// Executes a schema statement: see [`cql::schema::changes_schema`]. Returns the event for clients
    /// and the log position that must be durable before it is sent; no event if nothing changed.
    /// `access`: the login, if one was required.
    pub(crate) fn commit_schema_change(
        &mut self,
        statement: &Statement,
        keyspace: Option<&str>,
        access: Option<&Access>,
    ) -> Result<(Option<Event>, Gate), CqlError> {
        let (event, gate) = self.commit_unannounced(statement, keyspace, access)?;
        if let Some(event) = &event {
            announce(self.context.shared, event.clone(), gate);
        }
        Ok((event, gate))
    }

    /// Like [`CqlExecutor::commit_schema_change`], but notifies no clients.
    pub(crate) fn commit_unannounced(
        &mut self,
        statement: &Statement,
        keyspace: Option<&str>,
        access: Option<&Access>,
    ) -> Result<(Option<Event>, Gate), CqlError> {
        let (shared, params) = (self.context.shared, self.context.params);
        // A server that becomes a replica notes its position under this lock.
        let _applied = shared.replication.applied();
        check_writes(shared)?;
        let mut last = self.statements.schema.last.lock();
        let catalog = shared.catalog.load_full();
        let timestamp = self.next_timestamp(&last);
        let new_table = table_id_at(timestamp, shared.keyspace.seed());
        let is_in_group = shared.hub.server != 0;
        let cx = ChangeContext { keyspace, table_id: new_table, timestamp, is_in_group };
        let Some(change) = change(&catalog, statement, &cx)? else {
            // The existing schema may not be durable yet, and the client will rely on this reply.
            return Ok((None, self.statements.schema.gate()));
        };
        let before = shared.roles.load_full();
        let creator = access.filter(|access| access.is_enforced()).map(Access::name);
        let roles = follow_schema(&before, &catalog, &change.event, creator);
        let difference = roles
            .as_ref()
            .map(|after| RolesDifference::between(&before, after))
            .unwrap_or_default();
        let mut batch = Batch::new(timestamp, params.now());
        change.written.iter().for_each(|(id, cells)| batch.put(id, cells));
        change.deleted.iter().for_each(|id| batch.delete(id));
        difference.put_into(&mut batch);
        let (local_id, local) = local_row(|row| row.uuid("schema_version", change.catalog.version));
        batch.writes(&local_id).extend(cells_of(&local_id, &local, timestamp));
        let truncated = change.truncated.iter();
        let truncated = truncated.map(|id| Mutation::Truncate { table: table_id(*id) });
        let mutations: Vec<Mutation<'_>> = batch.mutations().chain(truncated).collect();
        let truncates = !change.truncated.is_empty();
        let statements = self.statements;
        let gate = self.commit_mutations(&mutations, timestamp, truncates, |gate| {
            statements.schema.set_gate(gate);
            shared.catalog.store(Arc::clone(&change.catalog));
            install_indexes(&change.catalog, &shared.keyspace);
            if let Some(roles) = roles {
                shared.roles.store(roles);
            }
        })?;
        *last = Last { timestamp };
        if !change.catalog.unusable.is_empty() {
            // The change may have created what other rows lack.
            let loaded = stored_schema::load(&shared.keyspace, params)
                .map_err(|error| CqlError::Server(error.to_string()))?;
            stored_schema::report_unusable(&loaded.catalog, shared.hub.is_copying());
            install_indexes(&loaded.catalog, &shared.keyspace);
            shared.catalog.store(Arc::new(loaded.catalog));
        }
        Ok((Some(change.event), gate))
    }

    /// Executes a role statement: see [`roles::changes_roles`]. Returns warnings for the client,
    /// and the log position that must be durable before the reply is sent. `salted_hash`: of the
    /// statement's password. `access`: the login, if one was required.
    pub(crate) fn commit_roles_change(
        &mut self,
        statement: &Statement,
        keyspace: Option<&str>,
        access: Option<&Access>,
        salted_hash: Option<&str>,
    ) -> Result<(Option<String>, Gate), CqlError> {
        let (shared, params) = (self.context.shared, self.context.params);
        // A server that becomes a replica notes its position under this lock.
        let _applied = shared.replication.applied();
        check_writes(shared)?;
        let mut last = self.statements.schema.last.lock();
        let catalog = shared.catalog.load_full();
        let before = shared.roles.load_full();
        let cx = roles::ChangeContext {
            catalog: &catalog,
            keyspace,
            performer: access.map(Access::name),
            is_enforced: access.is_some_and(Access::is_enforced),
            salted_hash,
        };
        let Some(change) = roles::change(&before, statement, &cx)? else {
            return Ok((None, self.statements.schema.gate()));
        };
        let timestamp = self.next_timestamp(&last);
        let difference = RolesDifference::between(&before, &change.roles);
        let mut batch = Batch::new(timestamp, params.now());
        difference.put_into(&mut batch);
        // The newest timestamp stays readable even if all rows of a change are deletions.
        let (local_id, local) = local_row(|row| row.uuid("schema_version", catalog.version));
        batch.writes(&local_id).extend(cells_of(&local_id, &local, timestamp));
        let mutations: Vec<Mutation<'_>> = batch.mutations().collect();
        let statements = self.statements;
        let gate = self.commit_mutations(&mutations, timestamp, false, |gate| {
            statements.schema.set_gate(gate);
            shared.roles.store(Arc::new(change.roles));
        })?;
        *last = Last { timestamp };
        Ok((change.warning, gate))
    }

    /// Appends mutations to the log and applies them to the store as one record, then publishes the
    /// resulting schema under the same locks. A write that was planned for a dropped table is
    /// therefore either ordered before the drop or refused. `truncates`: a table of any stripe.
    fn commit_mutations(
        &mut self,
        mutations: &[Mutation<'_>],
        timestamp: i64,
        truncates: bool,
        publish: impl FnOnce(Gate),
    ) -> Result<Gate, CqlError> {
        let ReactorContext { shared, params, reactor, record, .. } = self.context.reborrow();
        let mut bytes = Vec::new();
        for mutation in mutations {
            mutation.encode(&mut bytes);
        }
        let hashes = mutations.iter().filter_map(|mutation| match mutation {
            Mutation::Partition { key, .. } => Some(key.hash()),
            _ => None,
        });
        let is_too_slow = shared.running_scripts.until_too_slow();
        let locked = if truncates {
            shared.keyspace.lock_all_unless(params, is_too_slow)
        } else {
            shared.keyspace.lock_unless(hashes, params, is_too_slow)
        };
        let locked = locked.ok_or_else(held_by_script)?;
        let mut unit = Unit::of_client(shared, reactor, record, locked);
        unit.admit(bytes.len(), u64::MAX)
            .map_err(|_| CqlError::invalid("The change is too long for one record of the log"))?;
        for mutation in mutations {
            unit.change(mutation).map_err(|error| CqlError::Server(error.to_string()))?;
        }
        if unit.server() != 0 {
            unit.stamp(timestamp);
            shared.write_clock.pass(timestamp);
        }
        Ok(unit.commit_then(reactor, |_, gate| publish(gate)))
    }
}
