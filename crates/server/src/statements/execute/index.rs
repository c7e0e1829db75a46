//! Index terms: translates tables' cells and keys into the store's terms.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::analysis::Analysis;
use cql::schema::{Catalog, ColumnKind, Index, IndexTarget, Table, TableSource};
use cql::types::CqlType;
use cql::value::comparable;
use store::{CellView, Definitions, IndexId, Indexing, Keyspace, RowView, TableId};

use super::filter::ordered;
use super::item::map_value;
use super::keys::{split, table_id};

/// An index of a table.
#[derive(Debug)]
struct Terms {
    id: IndexId,
    table: Arc<Table>,
    /// The index of the column in the table.
    column: usize,
    target: IndexTarget,
    analysis: Analysis,
}

/// Passes the current index definitions of all tables to the store.
pub(crate) fn install_indexes(catalog: &Catalog, keyspace: &Keyspace) {
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let indexed =
        tables.filter(|table| table.source == TableSource::Stored && !table.indexes.is_empty());
    let all: BTreeMap<TableId, Definitions> =
        indexed.map(|table| (table_id(table), definitions(table))).collect();
    keyspace.set_indexes(all);
}

/// One definition for each column and target: indexes that differ only in other respects have the
/// same terms.
fn definitions(table: &Arc<Table>) -> Definitions {
    let mut found: BTreeMap<IndexId, Arc<dyn Indexing>> = BTreeMap::new();
    for index in &table.indexes {
        if let Some(terms) = Terms::new(table, index) {
            found.insert(terms.id, Arc::new(terms));
        }
    }
    found.into_values().collect()
}

impl Terms {
    fn new(table: &Arc<Table>, index: &Index) -> Option<Terms> {
        let column = table.columns.iter().position(|column| column.name == index.column)?;
        let (id, analysis) = (table.index_id(index)?, table.analysis(index)?);
        Some(Terms { id, table: Arc::clone(table), column, target: index.target, analysis })
    }

    fn term(&self, value: &[u8], of: &CqlType) -> Vec<u8> {
        ordered(&self.analysis.apply(value), of)
    }

    /// Adds the term of an element of a set or the key of a map, which is stored in order.
    fn add_item(&self, mut item: &[u8], of: &CqlType, add: &mut dyn FnMut(&[u8])) {
        if self.analysis.is_none() {
            add(item);
        } else if let Some(value) = comparable::decode(&mut item, of, false) {
            add(&self.term(&value, of));
        }
    }

    fn of_cell(&self, cell: CellView<'_>, of: &CqlType, add: &mut dyn FnMut(&[u8])) {
        match (cell.item, of) {
            (Some(item), CqlType::Map(key, of_value)) => {
                let Some(value) = map_value(cell, key) else { return };
                match self.target {
                    IndexTarget::Keys => self.add_item(item, key, add),
                    IndexTarget::Entries => {
                        let mut entry = item.to_vec();
                        comparable::encode(value, of_value, false, &mut entry);
                        add(&entry);
                    }
                    IndexTarget::Values | IndexTarget::Full => add(&self.term(value, of_value)),
                }
            }
            (Some(item), CqlType::Set(of_item)) => self.add_item(item, of_item, add),
            (Some(_), CqlType::List(item)) => add(&self.term(cell.bytes, item)),
            _ => add(&self.term(cell.bytes, of)),
        }
    }
}

impl Indexing for Terms {
    fn id(&self) -> IndexId {
        self.id
    }

    fn is_of_partitions(&self) -> bool {
        let kind = self.table.columns[self.column].kind;
        matches!(kind, ColumnKind::PartitionKey { .. } | ColumnKind::Static)
    }

    fn terms(&self, key: &[u8], row: RowView<'_>, add: &mut dyn FnMut(&[u8])) {
        let column = &self.table.columns[self.column];
        let of = column.column_type.unfrozen();
        match column.kind {
            ColumnKind::PartitionKey { position } => {
                if let Some(part) = split(key, &self.table).get(position) {
                    add(&ordered(part, of));
                }
            }
            ColumnKind::Clustering { position, .. } => {
                let mut rest = row.key;
                let columns = self.table.clustering()[..=position].iter();
                let value = columns.map_while(|column| {
                    comparable::decode(&mut rest, &column.column_type, column.is_descending())
                });
                if let Some(value) = value.last() {
                    add(&ordered(&value, of));
                }
            }
            ColumnKind::Static | ColumnKind::Regular => {
                column.cells(row).for_each(|cell| self.of_cell(cell, of, add));
            }
        }
    }
}
