//! Permissions of a connection.

use std::sync::Arc;

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::resource::Resource;
use super::role::Roles;
use crate::error::CqlError;
use crate::parser::QualifiedName;
use crate::plan::Plan;
use crate::schema::{Catalog, Table, is_local_system, is_replicated_system, is_virtual_system};
use crate::statements::{Dropped, Permission, Statement};

/// The role that performs a statement.
#[derive(Debug, Clone, Copy)]
pub struct Performer<'a> {
    pub roles: &'a Roles,
    /// None: no login was required.
    pub name: Option<&'a str>,
    /// Whether permissions are enforced.
    pub is_enforced: bool,
}

impl<'a> Performer<'a> {
    // Source: Cassandra 5.0, ClientState.ensureNotAnonymous
    pub(super) fn known(&self) -> Result<&'a str, CqlError> {
        self.name.ok_or_else(|| {
            let text = "You have to be logged in and not anonymous to perform this request";
            CqlError::Unauthorized(text.to_owned())
        })
    }

    pub(super) fn is_superuser(&self) -> bool {
        self.name.is_some_and(|name| self.roles.is_superuser(name))
    }

    /// Whether it is the role, or a member of it.
    pub(super) fn has_role(&self, role: &str) -> bool {
        self.name.is_some_and(|name| self.roles.roles_of(name).contains(role))
    }

    /// Whether a permission was granted on the resource or on one that contains it.
    pub(super) fn may(&self, permission: Permission, resource: &Resource) -> bool {
        if !self.is_enforced || self.is_superuser() {
            return true;
        }
        let Some(name) = self.name else { return false };
        resource.chain().any(|resource| self.roles.granted(name, &resource).has(permission))
    }

    // Source: Cassandra 5.0, ClientState.ensurePermissionOnResourceChain
    pub(super) fn check(
        &self,
        permission: Permission,
        resource: &Resource,
    ) -> Result<(), CqlError> {
        if self.may(permission, resource) {
            return Ok(());
        }
        Err(CqlError::Unauthorized(format!(
            "User {} has no {} permission on {resource} or any of its parents",
            self.name.unwrap_or("anonymous"),
            permission.name()
        )))
    }

    /// Like [`Performer::check`], with the error texts of statements on roles.
    // Source: Cassandra 5.0, AuthenticationStatement.checkPermission
    pub(super) fn check_role_permission(
        &self,
        permission: Permission,
        resource: &Resource,
    ) -> Result<(), CqlError> {
        if self.may(permission, resource) {
            return Ok(());
        }
        Err(CqlError::Unauthorized(format!(
            "User {} does not have sufficient privileges to perform the requested operation",
            self.name.unwrap_or("anonymous")
        )))
    }
}

/// Maximum number of cached permissions; one more clears the cache.
const ALLOWED_MAX: usize = 64;

/// The role of a connection, and its permissions: looked up once, and again after each change of
/// roles.
#[derive(Debug, Clone)]
pub struct Access {
    name: Arc<str>,
    is_enforced: bool,
    /// The roles from which the rest was computed.
    roles: Arc<Roles>,
    may_all: bool,
    /// Permissions on tables, by their ids.
    allowed: SmallVec<[(u128, Permission); 4]>,
}

impl Access {
    pub fn new(name: &str, roles: Arc<Roles>, is_enforced: bool) -> Access {
        let may_all = !is_enforced || roles.is_superuser(name);
        Access { name: name.into(), is_enforced, roles, may_all, allowed: SmallVec::new() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// Clears the cache after a change of roles. One comparison if there was none.
    pub fn refresh(&mut self, roles: &ArcSwap<Roles>) {
        let now = roles.load();
        if !Arc::ptr_eq(&now, &self.roles) {
            *self = Access::new(&self.name, Arc::clone(&now), self.is_enforced);
        }
    }

    fn performer(&self) -> Performer<'_> {
        let Access { name, is_enforced, roles, .. } = self;
        Performer { roles, name: Some(name), is_enforced: *is_enforced }
    }

    /// Whether the connection may execute this plan. `keyspace`: for unqualified names.
    pub fn check(
        &mut self,
        plan: &Plan,
        catalog: &Catalog,
        keyspace: Option<&str>,
    ) -> Result<(), CqlError> {
        if self.may_all {
            return Ok(());
        }
        match plan {
            Plan::Use(_) => Ok(()),
            Plan::Select(plan) => self.check_table(&plan.table, Permission::Select),
            Plan::Write(plan) => self.check_write(&plan.table, plan.is_conditional()),
            Plan::Batch(plan) => plan
                .writes
                .iter()
                .try_for_each(|write| self.check_write(&write.table, write.is_conditional())),
            Plan::Truncate(table) => self.check_table(table, Permission::Modify),
            Plan::Other(statement) => self.check_statement(statement, catalog, keyspace),
        }
    }

    /// Conditions reveal existing data, so they require SELECT as well.
    fn check_write(&mut self, table: &Table, is_conditional: bool) -> Result<(), CqlError> {
        self.check_table(table, Permission::Modify)?;
        if is_conditional {
            self.check_table(table, Permission::Select)?;
        }
        Ok(())
    }

    fn check_table(&mut self, table: &Table, permission: Permission) -> Result<(), CqlError> {
        let key = (table.id.as_u128(), permission);
        if self.allowed.contains(&key) {
            return Ok(());
        }
        self.find_table(table, permission)?;
        if self.allowed.len() >= ALLOWED_MAX {
            self.allowed.clear();
        }
        self.allowed.push(key);
        Ok(())
    }

    #[cold]
    fn find_table(&self, table: &Table, permission: Permission) -> Result<(), CqlError> {
        if permission == Permission::Select && is_read_by_all(table) {
            return Ok(());
        }
        let (keyspace, name) = (table.keyspace.clone(), table.name.clone());
        self.performer().check(permission, &Resource::Table { keyspace, name })
    }

    /// Checks definitions; statements on roles are checked at execution.
    fn check_statement(
        &self,
        statement: &Statement,
        catalog: &Catalog,
        keyspace: Option<&str>,
    ) -> Result<(), CqlError> {
        let Some((permission, resource)) = needed(statement, catalog, keyspace) else {
            return Ok(());
        };
        let system = resource.data_keyspace().unwrap_or_default();
        let is_guarded = is_local_system(system)
            || is_virtual_system(system)
            || (is_replicated_system(system) && !matches!(resource, Resource::Keyspace(_)));
        // These keyspaces cannot be changed at all, which has its own error.
        if is_guarded { Ok(()) } else { self.performer().check(permission, &resource) }
    }
}

/// Tables that drivers and tools read when they connect.
// Source: Cassandra 5.0, ClientState.READABLE_SYSTEM_RESOURCES
fn is_read_by_all(table: &Table) -> bool {
    match table.keyspace.as_str() {
        "system" => matches!(table.name.as_str(), "local" | "peers" | "peers_v2"),
        "system_schema" | "system_traces" | "system_virtual_schema" => true,
        _ => false,
    }
}

/// The permission that a definition requires. None: none, or the names in it do not exist.
// Source: Cassandra 5.0, authorize() of each AlterSchemaStatement
fn needed(
    statement: &Statement,
    catalog: &Catalog,
    keyspace: Option<&str>,
) -> Option<(Permission, Resource)> {
    let keyspace_of =
        |name: &QualifiedName| name.keyspace.clone().or_else(|| keyspace.map(str::to_owned));
    let table = |name: &QualifiedName| {
        Some(Resource::Table { keyspace: keyspace_of(name)?, name: name.name.clone() })
    };
    let tables = |name: &QualifiedName| keyspace_of(name).map(Resource::Tables);
    Some(match statement {
        Statement::CreateKeyspace(_) => (Permission::Create, Resource::Data),
        Statement::AlterKeyspace(alter) => {
            (Permission::Alter, Resource::Keyspace(alter.name.clone()))
        }
        Statement::CreateTable(create) => (Permission::Create, tables(&create.name)?),
        Statement::AlterTable(alter) => (Permission::Alter, table(&alter.name)?),
        Statement::CreateIndex(create) => {
            // As in `schema::indexes::create`, the index may name the keyspace of an unqualified
            // table.
            let of_index = create.name.as_ref().and_then(|name| name.keyspace.clone());
            let keyspace = create.table.keyspace.clone().or(of_index);
            let keyspace = keyspace.or_else(|| keyspace_of(&create.table))?;
            (Permission::Alter, Resource::Table { keyspace, name: create.table.name.clone() })
        }
        Statement::CreateType(create) => (Permission::Create, tables(&create.name)?),
        Statement::AlterType(alter) => (Permission::Alter, tables(&alter.name)?),
        Statement::Drop(drop) => match &drop.what {
            Dropped::Keyspace(name) => (Permission::Drop, Resource::Keyspace(name.clone())),
            Dropped::Table(name) => (Permission::Drop, table(name)?),
            Dropped::Type(name) => (Permission::Drop, tables(name)?),
            Dropped::Index(name) => {
                let indexed = catalog.keyspace(&keyspace_of(name)?)?.indexed_table(&name.name)?;
                let (keyspace, name) = (indexed.keyspace.clone(), indexed.name.clone());
                (Permission::Alter, Resource::Table { keyspace, name })
            }
            Dropped::Role(_) => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::roles;
    use super::*;
    use crate::plan::prepared::PreparedStatement;
    use crate::schema::testing::catalog;

    const TABLES: [&str; 3] = [
        "CREATE TABLE t (a int PRIMARY KEY, v int)",
        "CREATE TABLE u (a int PRIMARY KEY, v int)",
        "CREATE INDEX by_v ON t (v)",
    ];

    fn check(access: &mut Access, statement: &str, expected: Option<&str>) {
        let catalog = catalog(&TABLES);
        let statement = PreparedStatement::new(statement, Some("k"), Arc::clone(&catalog)).unwrap();
        let found = access.check(&statement.plan, &catalog, Some("k"));
        let found = found.err().map(|error| error.to_string());
        let expected = expected.map(|text| format!("User r has no {text} or any of its parents"));
        assert_eq!(found, expected, "{}", statement.text);
    }

    #[test]
    fn each_statement_needs_its_permission() {
        let needs = [
            ("SELECT * FROM t", Some("SELECT permission on <table k.t>")),
            ("SELECT * FROM system.local", None),
            ("SELECT * FROM system_schema.tables", None),
            (
                "SELECT * FROM system_auth.roles",
                Some("SELECT permission on <table system_auth.roles>"),
            ),
            (
                "SELECT * FROM system_views.memory",
                Some("SELECT permission on <table system_views.memory>"),
            ),
            ("INSERT INTO t (a) VALUES (1)", Some("MODIFY permission on <table k.t>")),
            ("UPDATE t SET v = 1 WHERE a = 1", Some("MODIFY permission on <table k.t>")),
            ("DELETE FROM t WHERE a = 1", Some("MODIFY permission on <table k.t>")),
            ("TRUNCATE t", Some("MODIFY permission on <table k.t>")),
            (
                "BEGIN BATCH INSERT INTO u (a) VALUES (1) APPLY BATCH",
                Some("MODIFY permission on <table k.u>"),
            ),
            ("USE k", None),
            ("DESCRIBE KEYSPACES", None),
            (
                "CREATE KEYSPACE n WITH replication = {'class': 'SimpleStrategy'}",
                Some("CREATE permission on <all keyspaces>"),
            ),
            (
                "ALTER KEYSPACE k WITH durable_writes = true",
                Some("ALTER permission on <keyspace k>"),
            ),
            ("DROP KEYSPACE k", Some("DROP permission on <keyspace k>")),
            ("CREATE TABLE n (a int PRIMARY KEY)", Some("CREATE permission on <all tables in k>")),
            ("ALTER TABLE t ADD n int", Some("ALTER permission on <table k.t>")),
            ("DROP TABLE k.t", Some("DROP permission on <table k.t>")),
            ("CREATE INDEX ON t (v)", Some("ALTER permission on <table k.t>")),
            ("DROP INDEX by_v", Some("ALTER permission on <table k.t>")),
            ("CREATE TYPE n (a int)", Some("CREATE permission on <all tables in k>")),
            ("ALTER TYPE n ADD b int", Some("ALTER permission on <all tables in k>")),
            ("DROP TYPE n", Some("DROP permission on <all tables in k>")),
            ("DROP KEYSPACE system", None),
            ("CREATE ROLE n", None),
        ];
        let without = Arc::new(roles(&["CREATE ROLE r"]));
        let with = Arc::new(roles(&["CREATE ROLE r", "GRANT ALL ON ALL KEYSPACES TO r"]));
        for (statement, needed) in needs {
            check(&mut Access::new("r", Arc::clone(&without), true), statement, needed);
            check(&mut Access::new("r", Arc::clone(&with), true), statement, None);
            check(&mut Access::new("cassandra", Arc::clone(&without), true), statement, None);
            check(&mut Access::new("r", Arc::clone(&without), false), statement, None);
        }
    }

    #[test]
    fn conditions_need_to_read() {
        let roles = roles(&["CREATE ROLE r", "GRANT MODIFY ON k.t TO r"]);
        let mut access = Access::new("r", Arc::new(roles), true);
        check(&mut access, "INSERT INTO t (a) VALUES (1)", None);
        check(
            &mut access,
            "INSERT INTO t (a) VALUES (1) IF NOT EXISTS",
            Some("SELECT permission on <table k.t>"),
        );
    }

    #[test]
    fn revoked_permissions_leave_the_cache() {
        let granted = roles(&["CREATE ROLE r", "GRANT SELECT ON KEYSPACE k TO r"]);
        let shared = ArcSwap::from_pointee(granted);
        let mut access = Access::new("r", shared.load_full(), true);
        for table in ["t", "u", "t"] {
            check(&mut access, &format!("SELECT * FROM {table}"), None);
        }
        assert_eq!(access.allowed.len(), 2);
        access.refresh(&shared);
        assert_eq!(access.allowed.len(), 2);
        shared.store(Arc::new(roles(&["CREATE ROLE r"])));
        access.refresh(&shared);
        check(&mut access, "SELECT * FROM t", Some("SELECT permission on <table k.t>"));
        // The role is dropped.
        shared.store(Arc::new(roles(&[])));
        access.refresh(&shared);
        check(&mut access, "SELECT * FROM u", Some("SELECT permission on <table k.u>"));
    }
}
