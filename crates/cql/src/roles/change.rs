//! The effect of a statement on roles.
//!
//! [`change`] is pure: it takes all roles and returns new ones. Checks are made in Cassandra's
//! order: first permissions, then validity. Texts are Cassandra's.

use std::sync::Arc;

use super::access::Performer;
use super::password;
use super::permissions::Permissions;
use super::resource::Resource;
use super::role::Roles;
use crate::error::CqlError;
use crate::schema::{
    Catalog, DATA_CENTER, Event, Target, Verb, is_local_system, is_replicated_system,
};
use crate::statements::{
    AccessLimit, AlterRole, ChangePermission, CreateRole, Dropped, GrantRole, Permission,
    RoleOptions, Statement,
};

/// Maximum length of the name of a role, password and hash: they are stored in a record of the log
/// and sent in messages.
const TEXT_BYTES_MAX: usize = 1 << 16;

/// Maximum number of roles of one server: a change copies all of them.
const ROLES_MAX: usize = 100_000;

/// Inputs of a change other than the roles and the statement.
#[derive(Debug, Clone, Copy)]
pub struct ChangeContext<'a> {
    pub catalog: &'a Catalog,
    /// The keyspace in use, for unqualified names.
    pub keyspace: Option<&'a str>,
    /// The role that performs the statement; none: no login was required.
    pub performer: Option<&'a str>,
    /// Whether permissions are enforced.
    pub is_enforced: bool,
    /// The hash of the statement's password, if it specifies one.
    pub salted_hash: Option<&'a str>,
}

/// A change of roles that has not been written.
#[derive(Debug, Clone)]
pub struct RolesChange {
    pub roles: Roles,
    pub warning: Option<String>,
}

impl RolesChange {
    fn to(roles: Roles) -> RolesChange {
        RolesChange { roles, warning: None }
    }
}

type Outcome = Result<Option<RolesChange>, CqlError>;

/// Whether [`change`] executes the statement.
pub fn changes_roles(statement: &Statement) -> bool {
    match statement {
        Statement::CreateRole(_)
        | Statement::AlterRole(_)
        | Statement::GrantRole(_)
        | Statement::ChangePermission(_) => true,
        Statement::Drop(drop) => matches!(drop.what, Dropped::Role(_)),
        _ => false,
    }
}

/// Applies a statement to roles. None: IF (NOT) EXISTS makes it a no-op.
pub fn change(roles: &Roles, statement: &Statement, cx: &ChangeContext<'_>) -> Outcome {
    let performer = Performer { roles, name: cx.performer, is_enforced: cx.is_enforced };
    match statement {
        Statement::CreateRole(statement) => create(&performer, statement, cx),
        Statement::AlterRole(statement) => alter(&performer, statement, cx),
        Statement::GrantRole(statement) => change_members(&performer, statement),
        Statement::ChangePermission(statement) => change_permission(&performer, statement, cx),
        Statement::Drop(drop) => match &drop.what {
            Dropped::Role(name) => drop_role(&performer, name, drop.if_exists),
            _ => Err(no_change()),
        },
        _ => Err(no_change()),
    }
}

fn no_change() -> CqlError {
    CqlError::Server("the statement does not change roles".into())
}

fn unauthorized<T>(message: impl Into<String>) -> Result<T, CqlError> {
    Err(CqlError::Unauthorized(message.into()))
}

fn invalid<T>(message: impl Into<String>) -> Result<T, CqlError> {
    Err(CqlError::Invalid(message.into()))
}

fn missing(name: &str) -> CqlError {
    CqlError::Invalid(format!("{name} doesn't exist"))
}

/// Whether roles support these options.
// Source: Cassandra 5.0, RoleOptions.validate
fn check_options(options: &RoleOptions, cx: &ChangeContext<'_>) -> Result<(), CqlError> {
    let manager = "org.apache.cassandra.auth.CassandraRoleManager";
    let unsupported = if options.custom.is_some() {
        Some("OPTIONS")
    } else if cx.performer.is_some() {
        None
    } else if options.password.is_some() {
        Some("PASSWORD")
    } else {
        options.hashed_password.as_ref().map(|_| "HASHED_PASSWORD")
    };
    if let Some(option) = unsupported {
        return invalid(format!("{manager} doesn't support {option}"));
    }
    let texts = [&options.password, &options.hashed_password];
    if texts.into_iter().flatten().any(|text| text.len() > TEXT_BYTES_MAX) {
        return invalid(format!("A password has {TEXT_BYTES_MAX} bytes at most"));
    }
    if options.hashed_password.as_deref().is_some_and(|hash| !password::is_hash(hash)) {
        return invalid("Invalid hashed password value. Please use jBcrypt.");
    }
    options.access.iter().try_for_each(check_access_limit)
}

/// There is one data center, and CIDR groups do not exist.
// Source: Cassandra 5.0, DCPermissions, CIDRPermissions, AllowAllNetworkAuthorizer
fn check_access_limit(limit: &AccessLimit) -> Result<(), CqlError> {
    match limit {
        AccessLimit::Everywhere => Ok(()),
        AccessLimit::Datacenters(names) => {
            let unknown = names.iter().filter(|name| *name != DATA_CENTER);
            let unknown: Vec<&str> = unknown.map(String::as_str).collect();
            if unknown.is_empty() {
                return invalid(
                    "ACCESS TO DATACENTERS operations not supported by AllowAllNetworkAuthorizer",
                );
            }
            invalid(format!(
                "Invalid value(s) for DATACENTERS '[{}]',All values must be valid datacenters",
                unknown.join(", ")
            ))
        }
        AccessLimit::Cidrs(names) => invalid(format!(
            "Invalid CIDR group(s): [{}]. Available CIDR Groups are: []",
            names.join(", ")
        )),
    }
}

// Source: Cassandra 5.0, CreateRoleStatement
fn create(performer: &Performer<'_>, statement: &CreateRole, cx: &ChangeContext<'_>) -> Outcome {
    let CreateRole { name, if_not_exists, options } = statement;
    performer.check_role_permission(Permission::Create, &Resource::Roles)?;
    if options.is_superuser == Some(true) && !performer.is_superuser() {
        return unauthorized("Only superusers can create a role with superuser status");
    }
    check_options(options, cx)?;
    if name.is_empty() {
        return invalid("Role name can't be an empty string");
    }
    let creator = performer.known()?;
    let roles = performer.roles;
    if roles.role(name).is_some() {
        return if *if_not_exists { Ok(None) } else { invalid(format!("{name} already exists")) };
    }
    if name.len() > TEXT_BYTES_MAX || roles.iter().count() >= ROLES_MAX {
        return invalid(format!(
            "There are {ROLES_MAX} roles at most, with names of {TEXT_BYTES_MAX} bytes at most"
        ));
    }
    let mut roles = roles.clone();
    apply_options(&mut roles, name, options, cx);
    if cx.is_enforced {
        let resource = Resource::Role(name.clone());
        let applicable = resource.applicable();
        roles.grant(creator, resource, applicable);
    }
    Ok(Some(RolesChange::to(roles)))
}

fn apply_options(roles: &mut Roles, name: &str, options: &RoleOptions, cx: &ChangeContext<'_>) {
    let role = roles.edit(name);
    role.is_superuser = options.is_superuser.unwrap_or(role.is_superuser);
    role.can_login = options.can_login.unwrap_or(role.can_login);
    let hash = options.hashed_password.as_deref();
    if let Some(hash) = hash.or(cx.salted_hash.filter(|_| options.password.is_some())) {
        role.salted_hash = Some(hash.to_owned());
    }
}

// Source: Cassandra 5.0, AlterRoleStatement
fn alter(performer: &Performer<'_>, statement: &AlterRole, cx: &ChangeContext<'_>) -> Outcome {
    let AlterRole { name, if_exists, options } = statement;
    may_alter(performer, name, options)?;
    check_options(options, cx)?;
    if options.is_empty() {
        return invalid("ALTER [ROLE|USER] can't be empty");
    }
    performer.known()?;
    if performer.roles.role(name).is_none() {
        return if *if_exists { Ok(None) } else { Err(missing(&format!("Role {name}"))) };
    }
    let mut roles = performer.roles.clone();
    apply_options(&mut roles, name, options, cx);
    Ok(Some(RolesChange::to(roles)))
}

fn may_alter(performer: &Performer<'_>, name: &str, options: &RoleOptions) -> Result<(), CqlError> {
    if options.is_superuser.is_some() {
        if performer.has_role(name) {
            return unauthorized(
                "You aren't allowed to alter your own superuser status or that of a role granted to \
                 you",
            );
        }
        if !performer.is_superuser() {
            return unauthorized("Only superusers are allowed to alter superuser status");
        }
    }
    if performer.is_superuser() {
        return Ok(());
    }
    if performer.name != Some(name) {
        return performer
            .check_role_permission(Permission::Alter, &Resource::Role(name.to_owned()));
    }
    // A role may change its own password.
    if options.can_login.is_some() {
        return unauthorized("You aren't allowed to alter LOGIN");
    }
    Ok(())
}

// Source: Cassandra 5.0, DropRoleStatement
fn drop_role(performer: &Performer<'_>, name: &str, if_exists: bool) -> Outcome {
    let roles = performer.roles;
    performer.check_role_permission(Permission::Drop, &Resource::Role(name.to_owned()))?;
    // Only if login is required.
    if performer.name.is_some() && roles.is_superuser(name) && !performer.is_superuser() {
        return unauthorized("Only superusers can drop a role with superuser status");
    }
    let dropper = performer.known()?;
    if roles.role(name).is_none() {
        return if if_exists { Ok(None) } else { Err(missing(name)) };
    }
    if dropper == name {
        return invalid("Cannot DROP primary role for current login");
    }
    let mut roles = roles.clone();
    roles.remove(name);
    Ok(Some(RolesChange::to(roles)))
}

// Source: Cassandra 5.0, RoleManagementStatement and CassandraRoleManager.grantRole, revokeRole
fn change_members(performer: &Performer<'_>, statement: &GrantRole) -> Outcome {
    let GrantRole { role, grantee, is_revoked } = statement;
    let roles = performer.roles;
    performer.check_role_permission(Permission::Authorize, &Resource::Role(role.clone()))?;
    performer.known()?;
    for name in [role, grantee] {
        if roles.role(name).is_none() {
            return Err(missing(name));
        }
    }
    let mut changed = roles.clone();
    if *is_revoked {
        if !changed.edit(grantee).member_of.remove(role) {
            return invalid(format!("{grantee} is not a member of {role}"));
        }
        return Ok(Some(RolesChange::to(changed)));
    }
    if roles.roles_of(grantee).contains(role.as_str()) {
        return invalid(format!("{grantee} is a member of {role}"));
    }
    if roles.roles_of(role).contains(grantee.as_str()) {
        return invalid(format!("{role} is a member of {grantee}"));
    }
    changed.edit(grantee).member_of.insert(role.clone());
    Ok(Some(RolesChange::to(changed)))
}

/// Permissions that may be granted on the system's own keyspaces.
// Source: Cassandra 5.0, Permission.INVALID_FOR_SYSTEM_KEYSPACES
const OF_SYSTEM: Permissions =
    Permissions::of(&[Permission::Select, Permission::Describe, Permission::Alter]);

// Source: Cassandra 5.0, PermissionsManagementStatement, GrantPermissionsStatement
fn change_permission(
    performer: &Performer<'_>,
    statement: &ChangePermission,
    cx: &ChangeContext<'_>,
) -> Outcome {
    let ChangePermission { permissions, role, is_revoked, .. } = statement;
    let resource = Resource::resolve(&statement.resource, cx.keyspace)?;
    let applicable = resource.applicable();
    let permissions = match permissions {
        None => applicable,
        Some(some) => applicable & Permissions::of(some),
    };
    if permissions.is_empty() {
        return Err(CqlError::Syntax(format!(
            "Resource type {} does not support any of the requested permissions",
            resource.kind()
        )));
    }
    performer.check(Permission::Authorize, &resource)?;
    permissions.iter().try_for_each(|permission| performer.check(permission, &resource))?;
    performer.known()?;
    let roles = performer.roles;
    if roles.role(role).is_none() {
        return invalid(format!("Role {role} doesn't exist"));
    }
    if matches!(&resource, Resource::Function { keyspace, .. } if keyspace == "system") {
        return invalid("Altering permissions on builtin functions is not supported");
    }
    if !resource.exists(cx.catalog, roles) {
        return invalid(format!("Resource {resource} doesn't exist"));
    }
    let is_system = |keyspace: &str| is_local_system(keyspace) || is_replicated_system(keyspace);
    let is_limited = !is_revoked && resource.data_keyspace().is_some_and(is_system);
    if is_limited && !(permissions - OF_SYSTEM).is_empty() {
        return unauthorized(
            "Granting permissions on system keyspaces is strictly limited, this operation is not \
             permitted",
        );
    }
    if !cx.is_enforced {
        let verb = if *is_revoked { "REVOKE" } else { "GRANT" };
        return invalid(format!("{verb} operation is not supported by AllowAllAuthorizer"));
    }
    let own = roles.role(role).and_then(|role| role.grants.get(&resource)).copied();
    let own = own.unwrap_or_default();
    let mut changed = roles.clone();
    let (idle, what) = if *is_revoked {
        changed.revoke(role, &resource, permissions);
        (permissions - own, "was not granted")
    } else {
        changed.grant(role, resource.clone(), permissions);
        (permissions & own, "was already granted")
    };
    let warning = (!idle.is_empty()).then(|| format!("Role '{role}' {what} {idle} on {resource}"));
    Ok(Some(RolesChange { roles: changed, warning }))
}

/// Roles after a change of the schema: the creator of an object gets all permissions on it, and
/// permissions on dropped objects are revoked. None: no change. `before`: the schema before the
/// change.
// Source: Cassandra 5.0, AlterSchemaStatement.createdResources, AuthSchemaChangeListener
pub fn follow_schema(
    roles: &Arc<Roles>,
    before: &Catalog,
    event: &Event,
    creator: Option<&str>,
) -> Option<Arc<Roles>> {
    let keyspace = &event.keyspace;
    let of_table =
        |name: &str| Resource::Table { keyspace: keyspace.clone(), name: name.to_owned() };
    let mut resources = match &event.target {
        Target::Keyspace => {
            vec![Resource::Keyspace(keyspace.clone()), Resource::FunctionsOf(keyspace.clone())]
        }
        Target::Table(name) => vec![of_table(name)],
        Target::Type(_) => return None,
    };
    let mut changed = Roles::clone(roles);
    match (event.verb, creator) {
        (Verb::Created, Some(creator)) if roles.role(creator).is_some() => {
            for resource in resources {
                let applicable = resource.applicable();
                changed.grant(creator, resource, applicable);
            }
        }
        (Verb::Dropped, _) => {
            if event.target == Target::Keyspace {
                let tables = before.keyspace(keyspace).into_iter();
                let tables = tables.flat_map(|keyspace| keyspace.tables.keys());
                resources.extend(tables.map(|name| of_table(name)));
                resources.push(Resource::Tables(keyspace.clone()));
            }
            for resource in &resources {
                changed.revoke_all_on(resource);
            }
        }
        _ => return None,
    }
    (changed != **roles).then(|| Arc::new(changed))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{as_role, roles, try_change};
    use super::*;
    use crate::schema::testing::{catalog, try_change as change_schema};

    const START: [&str; 6] = [
        "CREATE ROLE a WITH LOGIN = true",
        "CREATE ROLE b",
        "CREATE ROLE root WITH SUPERUSER = true",
        "CREATE ROLE member",
        "GRANT a TO member",
        "GRANT SELECT ON k.t TO b",
    ];

    /// Executes the statement and checks its outcome: "done", "nothing", "done: warning", or an
    /// error.
    fn check(performer: Option<&str>, statement: &str, expected: &str) {
        let found = match as_role(&roles(&START), performer, statement) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(RolesChange { warning: None, .. })) => "done".to_owned(),
            Ok(Some(RolesChange { warning: Some(warning), .. })) => format!("done: {warning}"),
            Err(CqlError::Unauthorized(text)) => format!("Unauthorized: {text}"),
            Err(CqlError::Syntax(text)) => format!("Syntax: {text}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{statement}");
    }

    const ANONYMOUS: &str =
        "Unauthorized: You have to be logged in and not anonymous to perform this request";
    const PRIVILEGES: &str = "Unauthorized: User a does not have sufficient privileges to perform \
                              the requested operation";

    #[test]
    fn superusers_make_change_and_drop_roles() {
        for (statement, expected) in [
            ("CREATE ROLE n WITH SUPERUSER = true AND PASSWORD = 'p'", "done"),
            ("CREATE ROLE a", "a already exists"),
            ("CREATE ROLE IF NOT EXISTS a", "nothing"),
            ("CREATE ROLE ''", "Role name can't be an empty string"),
            (
                "CREATE ROLE n WITH OPTIONS = {'x': 'y'}",
                "org.apache.cassandra.auth.CassandraRoleManager doesn't support OPTIONS",
            ),
            (
                "CREATE ROLE n WITH HASHED PASSWORD = 'x'",
                "Invalid hashed password value. Please use jBcrypt.",
            ),
            ("CREATE ROLE n WITH ACCESS TO ALL DATACENTERS", "done"),
            (
                "CREATE ROLE n WITH ACCESS TO DATACENTERS {'x'}",
                "Invalid value(s) for DATACENTERS '[x]',All values must be valid datacenters",
            ),
            (
                "CREATE ROLE n WITH ACCESS FROM CIDRS {'x'}",
                "Invalid CIDR group(s): [x]. Available CIDR Groups are: []",
            ),
            ("ALTER ROLE a WITH SUPERUSER = true", "done"),
            ("ALTER ROLE n WITH LOGIN = true", "Role n doesn't exist"),
            ("ALTER ROLE IF EXISTS n WITH LOGIN = true", "nothing"),
            ("ALTER ROLE a", "ALTER [ROLE|USER] can't be empty"),
            (
                "ALTER ROLE cassandra WITH SUPERUSER = false",
                "Unauthorized: You aren't allowed to alter your own superuser status or that of a \
                 role granted to you",
            ),
            ("DROP ROLE a", "done"),
            ("DROP ROLE n", "n doesn't exist"),
            ("DROP ROLE IF EXISTS n", "nothing"),
            ("DROP ROLE cassandra", "Cannot DROP primary role for current login"),
            ("GRANT a TO b", "done"),
            ("GRANT a TO member", "member is a member of a"),
            ("GRANT member TO a", "member is a member of a"),
            ("GRANT a TO a", "a is a member of a"),
            ("GRANT n TO a", "n doesn't exist"),
            ("REVOKE a FROM member", "done"),
            ("REVOKE a FROM b", "b is not a member of a"),
        ] {
            check(Some("cassandra"), statement, expected);
        }
    }

    #[test]
    fn permissions_are_granted_and_revoked() {
        for (statement, expected) in [
            ("GRANT ALL ON KEYSPACE k TO a", "done"),
            (
                "GRANT SELECT, MODIFY ON k.t TO b",
                "done: Role 'b' was already granted SELECT on <table k.t>",
            ),
            ("REVOKE MODIFY ON k.t FROM b", "done: Role 'b' was not granted MODIFY on <table k.t>"),
            ("REVOKE SELECT ON t FROM b", "done"),
            ("GRANT SELECT ON k.t TO n", "Role n doesn't exist"),
            ("GRANT SELECT ON k.x TO a", "Resource <table k.x> doesn't exist"),
            (
                "GRANT EXECUTE ON k.t TO a",
                "Syntax: Resource type DataResource does not support any of the requested \
                 permissions",
            ),
            ("GRANT DESCRIBE ON ALL ROLES TO a", "done"),
            (
                "GRANT EXECUTE ON FUNCTION k.f(int, text) TO a",
                "Resource <function k.f(int, text)> doesn't exist",
            ),
            (
                "GRANT EXECUTE ON FUNCTION system.now() TO a",
                "Altering permissions on builtin functions is not supported",
            ),
            (
                "GRANT MODIFY ON system_auth.roles TO a",
                "Unauthorized: Granting permissions on system keyspaces is strictly limited, this \
                 operation is not permitted",
            ),
            ("GRANT SELECT ON system_auth.roles TO a", "done"),
            ("GRANT ALL ON ALL MBEANS TO a", "done"),
        ] {
            check(Some("cassandra"), statement, expected);
        }
    }

    #[test]
    fn other_roles_may_use_granted_permissions() {
        for (statement, expected) in [
            ("CREATE ROLE n", PRIVILEGES),
            ("ALTER ROLE b WITH LOGIN = true", PRIVILEGES),
            ("ALTER ROLE a WITH PASSWORD = 'p'", "done"),
            ("ALTER ROLE a WITH LOGIN = false", "Unauthorized: You aren't allowed to alter LOGIN"),
            (
                "ALTER ROLE b WITH SUPERUSER = true",
                "Unauthorized: Only superusers are allowed to alter superuser status",
            ),
            ("DROP ROLE b", PRIVILEGES),
            ("GRANT a TO b", PRIVILEGES),
            (
                "GRANT SELECT ON k.t TO a",
                "Unauthorized: User a has no AUTHORIZE permission on <table k.t> or any of its \
                 parents",
            ),
        ] {
            check(Some("a"), statement, expected);
        }
        let granted = [
            &START[..],
            &[
                "GRANT AUTHORIZE ON KEYSPACE k TO a",
                "GRANT CREATE ON ALL ROLES TO a",
                "GRANT DROP ON ROLE root TO a",
            ],
        ];
        let granted = roles(&granted.concat());
        for (statement, expected) in [
            ("CREATE ROLE n", None),
            (
                "CREATE ROLE n WITH SUPERUSER = true",
                Some("Only superusers can create a role with superuser status"),
            ),
            ("DROP ROLE root", Some("Only superusers can drop a role with superuser status")),
            (
                "GRANT SELECT ON k.t TO b",
                Some("User a has no SELECT permission on <table k.t> or any of its parents"),
            ),
            ("GRANT AUTHORIZE ON k.t TO b", None),
        ] {
            let error = as_role(&granted, Some("a"), statement).err();
            let error = error.map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected, "{statement}");
        }
    }

    #[test]
    fn a_client_without_a_login_changes_nothing() {
        for statement in [
            "CREATE ROLE n",
            "ALTER ROLE a WITH LOGIN = true",
            "DROP ROLE a",
            "GRANT a TO b",
            "GRANT SELECT ON k.t TO a",
        ] {
            check(None, statement, ANONYMOUS);
        }
        check(
            None,
            "CREATE ROLE n WITH PASSWORD = 'p'",
            "org.apache.cassandra.auth.CassandraRoleManager doesn't support PASSWORD",
        );
    }

    #[test]
    fn creators_get_all_permissions_and_drops_take_them() {
        let before = catalog(&["CREATE TABLE t (a int PRIMARY KEY)"]);
        let start = Arc::new(roles(&START));
        let follow = |roles: &Arc<Roles>, statement: &str, creator| {
            let change = change_schema(&before, statement).unwrap().unwrap();
            follow_schema(roles, &before, &change.event, creator)
        };
        let made = follow(&start, "CREATE TABLE n (a int PRIMARY KEY)", Some("a")).unwrap();
        let n = Resource::Table { keyspace: "k".into(), name: "n".into() };
        assert_eq!(made.granted("a", &n), n.applicable());
        assert!(follow(&start, "CREATE TABLE n (a int PRIMARY KEY)", None).is_none());
        assert!(follow(&start, "ALTER TABLE t ADD b int", Some("a")).is_none());
        for drop in ["DROP TABLE t", "DROP KEYSPACE k"] {
            let dropped = follow(&start, drop, Some("a")).unwrap();
            assert!(dropped.role("b").unwrap().grants.is_empty(), "{drop}");
        }
        let keyspace = "CREATE KEYSPACE n WITH replication = {'class': 'SimpleStrategy'}";
        let made = follow(&start, keyspace, Some("a")).unwrap();
        assert_eq!(made.role("a").unwrap().grants.len(), 2);
    }

    #[test]
    fn creators_of_roles_may_change_them() {
        let start = roles(&[&START[..], &["GRANT CREATE ON ALL ROLES TO a"]].concat());
        let made = as_role(&start, Some("a"), "CREATE ROLE n").unwrap().unwrap().roles;
        assert!(as_role(&made, Some("a"), "DROP ROLE n").is_ok());
        assert!(try_change(&made, "DROP ROLE n").unwrap().is_some());
    }
}
