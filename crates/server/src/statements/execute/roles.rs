//! Statements on roles and permissions.

use cql::error::CqlError;
use cql::roles::{self, Access, ChangeContext, Listed, Performer, password};
use cql::statements::hashes_password;
use cql::statements::{List, Statement};
use wire::cql::{Column, Columns, Encoded};

use crate::engine::gate::Gate;
use crate::engine::reactor_state::is_gated;
use crate::statements::executor::{ClientState, CqlExecutor};
use crate::statements::result_sink::{ResultSink, Rows};

impl CqlExecutor<'_> {
    /// Takes tens of milliseconds if there is a password: see `PreparedStatement::is_expensive`.
    pub(super) fn change_roles(
        &mut self,
        client: &ClientState,
        statement: &Statement,
        keyspace: Option<&str>,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        self.admit_write(client)?;
        let access = client.access.as_deref();
        let salted_hash = match hashes_password(statement) {
            None => None,
            Some(text) => {
                // Checks the permission before the work. The lock is not held during the work.
                let cx = ChangeContext {
                    catalog: &self.context.shared.catalog.load(),
                    keyspace,
                    performer: access.map(Access::name),
                    is_enforced: access.is_some_and(Access::is_enforced),
                    salted_hash: None,
                };
                roles::change(&self.context.shared.roles.load(), statement, &cx)?;
                Some(password::hash(text))
            }
        };
        let salted_hash = salted_hash.as_deref();
        let (warning, gate) = self.commit_roles_change(statement, keyspace, access, salted_hash)?;
        let warning: Vec<&str> = warning.as_deref().into_iter().collect();
        reply.void(&warning)?;
        Ok(if is_gated(client.durability) { gate } else { Gate::OPEN })
    }

    /// Waits for the gate, as DESCRIBE does: it shows no role that a crash could undo.
    pub(super) fn list_roles(
        &self,
        client: &ClientState,
        statement: &List,
        keyspace: Option<&str>,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        let access = client.access.as_deref();
        let roles = self.context.shared.roles.load();
        let performer = Performer {
            roles: &roles,
            name: access.map(Access::name),
            is_enforced: access.is_some_and(Access::is_enforced),
        };
        let catalog = self.context.shared.catalog.load();
        match roles::list(&performer, statement, &catalog, keyspace)? {
            None => reply.void(&[])?,
            Some(listed) => put_rows(&listed, reply)?,
        }
        Ok(self.schema_gate(client))
    }
}

/// Returns all rows at once: roles are bounded.
fn put_rows(listed: &Listed, reply: &mut dyn ResultSink) -> Encoded {
    let columns = listed.columns.iter();
    let columns: Vec<Column> = columns
        .map(|(name, of)| Column { name: (*name).to_owned(), column_type: of.wire() })
        .collect();
    let mut rows = Rows::default();
    for row in &listed.rows {
        row.iter().try_for_each(|cell| rows.cell(Some(cell)))?;
        rows.end_row();
    }
    let columns = Columns { keyspace: "system_auth", table: listed.table, columns: &columns };
    rows.reply(columns, reply)
}
