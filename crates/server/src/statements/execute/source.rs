//! Rows that are computed on request, in the form of ordinary partitions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cql::schema::{ColumnKind, Table};
use cql::value::comparable;
use store::{CellValue, Partition, RowKey, Write};

use super::keys::Key;

/// Partitions by token and key.
pub(super) type Partitions = BTreeMap<(i64, Vec<u8>), Partition>;

/// Builds partitions from rows whose values are in the order of the table's columns. Rows without a
/// complete key are omitted.
pub(super) fn partitions(table: &Table, rows: Vec<Vec<Option<Vec<u8>>>>) -> Partitions {
    let mut found = Partitions::new();
    for values in rows {
        add(table, &values, &mut found);
    }
    found
}

fn add(table: &Table, values: &[Option<Vec<u8>>], found: &mut Partitions) -> Option<()> {
    let keys = table.partition_key().len();
    let parts = values[..keys].iter().map(|part| part.as_deref().map(Cow::Borrowed));
    let key = Key::new(&parts.collect::<Option<Vec<_>>>()?).ok()?;
    let mut row = Vec::new();
    for (column, value) in table.clustering().iter().zip(&values[keys..]) {
        let value = value.as_deref()?;
        comparable::encode(value, &column.column_type, column.is_descending(), &mut row);
    }
    let partition = found.entry((key.token, key.bytes.to_vec())).or_default();
    partition.write(Write::InsertRow { row: &row, timestamp: 0, expiry: None });
    for (column, value) in table.columns.iter().zip(values) {
        let place = match column.kind {
            ColumnKind::Static => RowKey::Static,
            ColumnKind::Regular => RowKey::Clustering(&row),
            ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. } => continue,
        };
        let Some(bytes) = value else { continue };
        partition.write(Write::Cell {
            row: place,
            column: column.number,
            item: None,
            timestamp: 0,
            value: CellValue::Live { bytes, expiry: None },
        });
    }
    Some(())
}
