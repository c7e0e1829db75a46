//! Rows of a schema that lack what they belong to: a table without its keyspace, a column or index
//! without its table.
//!
//! In a group of masters, one server may drop a keyspace while another one creates a table in it,
//! and rows may arrive before the rows that they belong to. In the end all servers store the same
//! rows; the schema is without such rows, so the drop wins on all. They stay stored: when the
//! missing row arrives, what they describe appears. A statement that creates the keyspace or table
//! of their name deletes them, so that it begins empty.

use std::collections::BTreeSet;

use super::builtin::{builtin_table, is_system};
use super::row::{Damaged, RowId, RowReader, Rows};
use super::rows::{DESCRIBING, SCHEMA};

/// A row without its keyspace or table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    pub(super) id: RowId,
    pub keyspace: String,
    /// The table or type; empty if the row has neither.
    pub object: String,
}

/// Tables whose rows name the table that they belong to.
const OF_TABLES: [&str; 3] = ["columns", "dropped_columns", "indexes"];

/// The rows that lack what they belong to.
pub(super) fn find(rows: &Rows) -> Result<Vec<Orphan>, Damaged> {
    let keyspaces: BTreeSet<String> =
        visit(rows, "keyspaces", "")?.into_iter().map(|row| row.keyspace).collect();
    let mut orphans = Vec::new();
    let mut tables = BTreeSet::new();
    for row in visit(rows, "tables", "table_name")? {
        if keyspaces.contains(&row.keyspace) {
            tables.insert((row.keyspace, row.object));
        } else {
            orphans.push(row);
        }
    }
    let types = visit(rows, "types", "type_name")?;
    orphans.extend(types.into_iter().filter(|row| !keyspaces.contains(&row.keyspace)));
    for name in OF_TABLES {
        let parts = visit(rows, name, "table_name")?.into_iter();
        orphans.extend(parts.filter(|row| {
            let table = (row.keyspace.clone(), row.object.clone());
            !tables.contains(&table)
        }));
    }
    Ok(orphans)
}

/// The rows of one table of `system_schema` except those of built-in keyspaces. `object`: the
/// column with the name of what a row describes.
fn visit(rows: &Rows, name: &str, object: &str) -> Result<Vec<Orphan>, Damaged> {
    debug_assert!(DESCRIBING.contains(&name));
    let table = builtin_table(SCHEMA, name);
    let mut found = Vec::new();
    for (id, cells) in rows.iter().filter(|(id, _)| id.table == table.id) {
        let row = RowReader::stored(&table, id, cells)?;
        let keyspace = row.text("keyspace_name")?;
        if !is_system(&keyspace) {
            let object = if object.is_empty() { String::new() } else { row.text(object)? };
            found.push(Orphan { id: id.clone(), keyspace, object });
        }
    }
    Ok(found)
}
