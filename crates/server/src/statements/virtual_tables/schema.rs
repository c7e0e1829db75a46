//! `system_virtual_schema`: the tables that `system_schema` does not describe.

use std::sync::Arc;

use cql::schema::{Keyspace, RowBuilder, Table, Values, described_column, is_virtual_system};

use super::VirtualTableContext;

fn virtual_keyspaces(cx: &VirtualTableContext<'_>) -> Vec<Arc<Keyspace>> {
    let catalog = cx.shared.catalog.load();
    let keyspaces = catalog.keyspaces.values();
    keyspaces.filter(|keyspace| is_virtual_system(&keyspace.name)).map(Arc::clone).collect()
}

pub(super) fn keyspaces(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let keyspaces = virtual_keyspaces(cx);
    let row = |keyspace: &Arc<Keyspace>| {
        RowBuilder::new(table).text("keyspace_name", &keyspace.name).values()
    };
    keyspaces.iter().map(row).collect()
}

pub(super) fn tables(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let mut rows = Vec::new();
    for keyspace in virtual_keyspaces(cx) {
        for described in keyspace.tables.values() {
            let row = RowBuilder::new(table)
                .text("keyspace_name", &keyspace.name)
                .text("table_name", &described.name)
                .text("comment", &described.options.comment);
            rows.push(row.values());
        }
    }
    rows
}

pub(super) fn columns(table: &Table, cx: &VirtualTableContext<'_>) -> Vec<Values> {
    let mut rows = Vec::new();
    for keyspace in virtual_keyspaces(cx) {
        for described in keyspace.tables.values() {
            let mut columns: Vec<_> = described.columns.iter().collect();
            columns.sort_by(|one, other| one.name.cmp(&other.name));
            rows.extend(columns.into_iter().map(|column| {
                let row = RowBuilder::new(table).text("keyspace_name", &keyspace.name);
                described_column(row, described, column).values()
            }));
        }
    }
    rows
}
