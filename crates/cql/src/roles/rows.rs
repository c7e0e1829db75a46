//! Roles as rows of `system_auth`.

use std::collections::{BTreeMap, BTreeSet};

use super::permissions::Permissions;
use super::resource::Resource;
use super::role::{Role, Roles};
use crate::schema::{
    Cells, Damaged, ItemCells, ItemRows, RowBuilder, RowId, RowReader, Table, builtin_table,
};
use crate::statements::Permission;
use crate::value::comparable;

const KEYSPACE: &str = "system_auth";

/// Tables with rows of roles. `role_members` and the index by resource are redundant and not read
/// back.
pub const TABLES: [&str; 4] = ["roles", "role_members", "role_permissions", INDEX];

/// Whether the table with this id contains roles, and therefore hashes of passwords.
pub fn is_table_of_roles(id: u128) -> bool {
    TABLES.iter().any(|name| builtin_table(KEYSPACE, name).id.as_u128() == id)
}

/// The name is Cassandra's.
const INDEX: &str = "resource_role_permissons_index";

/// All rows of one role.
pub fn role_rows(name: &str, role: &Role) -> ItemRows {
    let mut rows = ItemRows::new();
    let table = builtin_table(KEYSPACE, "roles");
    let row = RowBuilder::new(&table)
        .text("role", name)
        .boolean("is_superuser", role.is_superuser)
        .boolean("can_login", role.can_login);
    let row = match &role.salted_hash {
        None => row,
        Some(hash) => row.text("salted_hash", hash),
    };
    put(row, "member_of", role.member_of.iter().map(String::as_str), &table, &mut rows);
    let members = builtin_table(KEYSPACE, "role_members");
    for group in &role.member_of {
        let row = RowBuilder::new(&members).text("role", group).text("member", name);
        put_plain(row, &mut rows);
    }
    let granted = builtin_table(KEYSPACE, "role_permissions");
    let index = builtin_table(KEYSPACE, INDEX);
    for (resource, permissions) in &role.grants {
        let resource = resource.name();
        let row = RowBuilder::new(&granted).text("role", name).text("resource", &resource);
        let names = permissions.iter().map(Permission::name);
        put(row, "permissions", names, &granted, &mut rows);
        put_plain(
            RowBuilder::new(&index).text("resource", &resource).text("role", name),
            &mut rows,
        );
    }
    rows
}

fn put_plain(row: RowBuilder<'_>, rows: &mut ItemRows) {
    let (id, cells) = row.stored();
    rows.insert(id, items_of(cells));
}

fn items_of(cells: Cells) -> ItemCells {
    cells.into_iter().map(|(column, bytes)| ((column, None), bytes)).collect()
}

/// A row with the items of a set.
fn put<'t>(
    row: RowBuilder<'_>,
    set: &str,
    items: impl Iterator<Item = &'t str>,
    table: &Table,
    rows: &mut ItemRows,
) {
    let (id, cells) = row.stored();
    let mut cells = items_of(cells);
    let column = column_number(table, set);
    let text = crate::types::CqlType::TEXT;
    for item in items {
        let mut key = Vec::new();
        comparable::encode(item.as_bytes(), &text, false, &mut key);
        cells.insert((column, Some(key)), Vec::new());
    }
    rows.insert(id, cells);
}

fn column_number(table: &Table, name: &str) -> u32 {
    let column = table.column(name);
    column.unwrap_or_else(|| panic!("{} has a column {name}", table.name)).number
}

/// The roles described by rows.
pub fn from_rows(rows: &ItemRows) -> Result<Roles, Damaged> {
    let mut roles = Roles::default();
    let table = builtin_table(KEYSPACE, "roles");
    for (id, cells) in rows.iter().filter(|(id, _)| id.table == table.id) {
        let row = reader(&table, id, cells)?;
        let salted_hash = row.bytes("salted_hash").map(|_| row.text("salted_hash")).transpose()?;
        let role = Role {
            is_superuser: row.boolean("is_superuser")?.unwrap_or(false),
            can_login: row.boolean("can_login")?.unwrap_or(false),
            salted_hash,
            member_of: items(&row, &table, "member_of", cells)?,
            grants: BTreeMap::new(),
        };
        *roles.edit(&row.text("role")?) = role;
    }
    let table = builtin_table(KEYSPACE, "role_permissions");
    for (id, cells) in rows.iter().filter(|(id, _)| id.table == table.id) {
        let row = reader(&table, id, cells)?;
        let (name, resource) = (row.text("role")?, row.text("resource")?);
        let resource = Resource::from_name(&resource)
            .ok_or_else(|| row.damaged("resource", "is not a resource"))?;
        let names = items(&row, &table, "permissions", cells)?;
        let permissions = names.iter().map(|name| Permissions::from_name(name));
        let permissions = permissions.collect::<Option<Vec<_>>>();
        let permissions =
            permissions.ok_or_else(|| row.damaged("permissions", "has one that is unknown"))?;
        if roles.role(&name).is_some() {
            roles.grant(&name, resource, Permissions::of(&permissions));
        }
    }
    Ok(roles)
}

fn reader<'a>(table: &'a Table, id: &RowId, cells: &ItemCells) -> Result<RowReader<'a>, Damaged> {
    let plain = cells.iter().filter(|((_, item), _)| item.is_none());
    let plain: Cells = plain.map(|((column, _), bytes)| (*column, bytes.clone())).collect();
    RowReader::stored(table, id, &plain)
}

fn items(
    row: &RowReader<'_>,
    table: &Table,
    column: &str,
    cells: &ItemCells,
) -> Result<BTreeSet<String>, Damaged> {
    let number = column_number(table, column);
    let keys = cells.keys().filter(|(column, _)| *column == number);
    let texts = keys.filter_map(|(_, item)| item.as_deref()).map(|mut item| {
        let text = comparable::decode(&mut item, &crate::types::CqlType::TEXT, false);
        let text = text.and_then(|text| String::from_utf8(text).ok());
        text.ok_or_else(|| row.damaged(column, "has a damaged item"))
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::roles;
    use super::*;

    #[test]
    fn rows_describe_roles() {
        let roles = roles(&[
            "CREATE ROLE a WITH LOGIN = true AND PASSWORD = 'p'",
            "CREATE ROLE b WITH SUPERUSER = true",
            "GRANT b TO a",
            "GRANT SELECT, MODIFY ON KEYSPACE k TO a",
            "GRANT ALL ON ALL ROLES TO b",
        ]);
        let rows: ItemRows = roles.iter().flat_map(|(name, role)| role_rows(name, role)).collect();
        assert_eq!(from_rows(&rows).unwrap(), roles);
        let count = |name: &str| {
            let table = builtin_table(KEYSPACE, name);
            rows.keys().filter(|id| id.table == table.id).count()
        };
        // The superuser has permissions on both roles that it created.
        assert_eq!(TABLES.map(count), [3, 1, 4, 4]);
    }
}
