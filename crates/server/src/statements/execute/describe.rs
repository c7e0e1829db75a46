//! DESCRIBE: returns the schema as statements.

use cql::error::CqlError;
use cql::schema::{DescribeContext, describe};
use cql::statements::Describe;
use wire::cql::{Column, Columns};

use crate::engine::gate::Gate;
use crate::engine::reactor_state::is_gated;
use crate::statements::executor::{ClientState, CqlExecutor};
use crate::statements::result_sink::{ResultSink, Rows};
use crate::statements::virtual_tables::{CLUSTER_NAME, TOKEN, VirtualTableContext};

impl CqlExecutor<'_> {
    pub(super) fn virtual_cx(&self, client: &ClientState) -> VirtualTableContext<'_> {
        VirtualTableContext {
            shared: self.shared,
            params: self.params,
            now: self.now,
            schema: self.statements.schema.gate(),
            local: client.local,
        }
    }

    /// The gate for a schema response: once it is open, no crash can undo the schema shown.
    pub(super) fn schema_gate(&self, client: &ClientState) -> Gate {
        if is_gated(client.durability) { self.statements.schema.gate() } else { Gate::OPEN }
    }

    /// Returns all rows at once: a schema is bounded.
    pub(super) fn describe(
        &self,
        client: &ClientState,
        keyspace: Option<&str>,
        statement: &Describe,
        reply: &mut dyn ResultSink,
    ) -> Result<Gate, CqlError> {
        let endpoint = self.virtual_cx(client).endpoint();
        let catalog = self.shared.catalog.load();
        let found = describe(
            statement,
            &DescribeContext {
                catalog: &catalog,
                keyspace,
                cluster: CLUSTER_NAME,
                token: TOKEN,
                endpoint: &endpoint,
            },
        )?;
        let columns = found.columns.iter();
        let columns: Vec<Column> = columns
            .map(|(name, of)| Column { name: (*name).to_owned(), column_type: of.wire() })
            .collect();
        let mut rows = Rows::default();
        for row in &found.rows {
            row.iter().try_for_each(|cell| rows.cell(cell.as_deref()))?;
            rows.end_row();
        }
        rows.reply(Columns { keyspace: "system", table: "describe", columns: &columns }, reply)?;
        Ok(self.schema_gate(client))
    }
}
