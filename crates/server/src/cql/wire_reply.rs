//! Statement results in CQL's protocol.

use wire::cql::{Encoded, Notes, ResponseEncoder, RowsMetadata, SchemaChange, Version};

use crate::statements::result_sink::{ResultRows, ResultSink};

/// Appends a RESULT message.
#[derive(Debug)]
pub(crate) struct WireReply<'a> {
    pub(crate) encoder: ResponseEncoder<'a>,
    pub(crate) stream: i16,
    pub(crate) out: &'a mut Vec<u8>,
    /// Whether the client already has the result's columns.
    pub(crate) skip_columns: bool,
    /// Version 5: the client has the columns of an earlier table version; this is the id of the new
    /// ones.
    pub(crate) new_metadata_id: Option<&'a [u8]>,
}

/// Adds warnings to an encoder. Versions before 4 have none.
// Source: native_protocol_v4.spec 9 "Changes from v3"
fn warned<'e>(encoder: ResponseEncoder<'e>, warnings: &'e [&'e str]) -> ResponseEncoder<'e> {
    let warnings = if encoder.version >= Version::V4 { warnings } else { &[] };
    ResponseEncoder { notes: Notes { warnings, ..encoder.notes }, ..encoder }
}

impl ResultSink for WireReply<'_> {
    fn void(&mut self, warnings: &[&str]) -> Encoded {
        warned(self.encoder, warnings).void(self.stream, self.out)
    }

    fn set_keyspace(&mut self, keyspace: &str) -> Encoded {
        self.encoder.set_keyspace(self.stream, keyspace, self.out)
    }

    fn schema_changed(&mut self, change: &SchemaChange<'_>, warnings: &[&str]) -> Encoded {
        warned(self.encoder, warnings).schema_changed(self.stream, change, self.out)
    }

    fn rows(&mut self, rows: &ResultRows<'_>) -> Encoded {
        let metadata = RowsMetadata {
            columns: rows.columns,
            skip_columns: self.skip_columns,
            paging_state: rows.paging_state,
            new_metadata_id: self.new_metadata_id,
        };
        let encoder = warned(self.encoder, rows.warnings);
        let mut encoded = encoder.rows(self.stream, &metadata, self.out);
        encoded.encoded(rows.cells, rows.count);
        encoded.finish()
    }
}
