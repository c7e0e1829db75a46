//! DESCRIBE: what the schema is, as statements.

use cql::error::CqlError;
use cql::schema::{DescribeContext, describe};
use cql::statements::Describe;
use wire::cql::{Column, Columns, RowsMetadata};

use crate::cql::engine::{ClientState, Engine, Reply};
use crate::cql::virtual_tables::{CLUSTER_NAME, TOKEN, VirtualCx};
use crate::gate::Gate;
use crate::worker::is_gated;

impl Engine<'_> {
    pub(super) fn virtual_cx(&self, client: &ClientState) -> VirtualCx<'_> {
        VirtualCx { shared: self.shared, params: self.params, now: self.now, local: client.local }
    }

    /// What waits for it shows no schema that a crash could take back.
    pub(super) fn schema_gate(&self, client: &ClientState) -> Gate {
        if is_gated(client.durability) { self.cql.schema.gate() } else { Gate::OPEN }
    }

    /// All rows at once: a schema is bounded.
    pub(super) fn describe(
        &self,
        client: &ClientState,
        keyspace: Option<&str>,
        statement: &Describe,
        reply: &mut Reply<'_>,
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
        let metadata = RowsMetadata {
            columns: Columns { keyspace: "system", table: "describe", columns: &columns },
            skip_columns: false,
            paging_state: None,
            new_metadata_id: None,
        };
        let mut rows = reply.encoder.rows(reply.stream, &metadata, reply.out);
        for row in &found.rows {
            for cell in row {
                rows.cell(cell.as_deref());
            }
            rows.end_row();
        }
        rows.finish()?;
        Ok(self.schema_gate(client))
    }
}
