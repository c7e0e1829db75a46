//! Where statements write their results.

use wire::cql::{Columns, Encoded, Notation as _, SchemaChange, Value};

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
