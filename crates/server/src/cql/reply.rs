//! Statement results in CQL's protocol.

use wire::cql::{
    Columns, Encoded, Notation as _, Notes, ResponseEncoder, RowsMetadata, SchemaChange, Value,
    Version,
};

/// The rows of a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResultRows<'a> {
    pub(crate) columns: Columns<'a>,
    /// The start of the next page, if there is one.
    pub(crate) paging_state: Option<&'a [u8]>,
    /// The cells of all rows, each encoded as a CQL protocol value.
    pub(crate) cells: &'a [u8],
    /// The number of rows.
    pub(crate) count: usize,
    pub(crate) warnings: &'a [&'a str],
}

/// Rows built cell by cell.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    cells: Vec<u8>,
    count: usize,
}

impl Rows {
    pub(crate) fn cell(&mut self, bytes: Option<&[u8]>) -> Encoded {
        self.cells.put_value(bytes.map_or(Value::Null, Value::Bytes))
    }

    /// Ends a row after all its cells were added.
    pub(crate) fn end_row(&mut self) {
        self.count += 1;
    }

    pub(crate) fn reply(&self, columns: Columns<'_>, reply: &mut dyn ResultSink) -> Encoded {
        let (cells, count) = (&self.cells[..], self.count);
        reply.rows(&ResultRows { columns, paging_state: None, cells, count, warnings: &[] })
    }
}

/// The destination of a statement's result, with one implementation per format.
pub(crate) trait ResultSink {
    /// A result without rows.
    fn void(&mut self, warnings: &[&str]) -> Encoded;
    /// The result of USE.
    fn set_keyspace(&mut self, keyspace: &str) -> Encoded;
    fn schema_changed(&mut self, change: &SchemaChange<'_>, warnings: &[&str]) -> Encoded;
    fn rows(&mut self, rows: &ResultRows<'_>) -> Encoded;
}

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
