//! LIST ROLES, USERS and PERMISSIONS.

use super::access::Performer;
use super::permissions::Permissions;
use super::resource::Resource;
use super::role::Roles;
use crate::error::CqlError;
use crate::schema::Catalog;
use crate::statements::{self, List, Permission};
use crate::type_name::Native;
use crate::types::CqlType;

/// The rows of a LIST statement, described as a table of `system_auth` with Cassandra's name.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub table: &'static str,
    pub columns: Vec<(&'static str, CqlType)>,
    pub rows: Vec<Vec<Vec<u8>>>,
}

/// The data centers where all roles may log in: there is only one.
const EVERYWHERE: &[u8] = b"ALL";

/// The result of a LIST. None: it is empty. Texts are Cassandra's.
pub fn list(
    performer: &Performer<'_>,
    statement: &List,
    catalog: &Catalog,
    keyspace: Option<&str>,
) -> Result<Option<Listed>, CqlError> {
    match statement {
        List::Roles { of, is_recursive } => {
            let names = role_names(performer, of.as_deref(), *is_recursive)?;
            Ok(list_roles(performer.roles, &names))
        }
        List::Users => {
            let names = role_names(performer, None, true)?;
            Ok(list_users(performer.roles, &names))
        }
        List::Permissions { permissions, on, of, is_recursive } => {
            let asked = Asked {
                permissions: permissions.as_deref(),
                on: on.as_ref(),
                of: of.as_deref(),
                is_recursive: *is_recursive,
            };
            list_permissions(performer, &asked, catalog, keyspace)
        }
    }
}

/// The roles to list, by name.
// Source: Cassandra 5.0, ListRolesStatement
fn role_names(
    performer: &Performer<'_>,
    of: Option<&str>,
    is_recursive: bool,
) -> Result<Vec<String>, CqlError> {
    let own = performer.known()?;
    let roles = performer.roles;
    if let Some(of) = of.filter(|of| roles.role(of).is_none()) {
        return Err(CqlError::invalid(format!("<role {of}> doesn't exist")));
    }
    let sees_all = performer.may(Permission::Describe, &Resource::Roles);
    let Some(of) = of.or((!sees_all).then_some(own)) else {
        return Ok(roles.iter().map(|(name, _)| name.to_owned()).collect());
    };
    if !sees_all && !performer.has_role(of) {
        return Err(CqlError::Unauthorized(format!(
            "You are not authorized to view roles granted to {of} "
        )));
    }
    if is_recursive {
        return Ok(roles.roles_of(of).into_iter().map(str::to_owned).collect());
    }
    let direct = roles.role(of).into_iter().flat_map(|role| role.member_of.iter().cloned());
    let mut names: Vec<String> = direct.chain([of.to_owned()]).collect();
    names.sort_unstable();
    Ok(names)
}

fn list_roles(roles: &Roles, names: &[String]) -> Option<Listed> {
    let rows = names.iter().filter_map(|name| {
        let role = roles.role(name)?;
        let no_options = 0_i32.to_be_bytes().to_vec();
        Some(vec![
            name.clone().into_bytes(),
            vec![u8::from(role.is_superuser)],
            vec![u8::from(role.can_login)],
            no_options,
            EVERYWHERE.to_vec(),
        ])
    });
    let boolean = CqlType::Native(Native::Boolean);
    let options = CqlType::Map(Box::new(CqlType::TEXT), Box::new(CqlType::TEXT));
    let columns = vec![
        ("role", CqlType::TEXT),
        ("super", boolean.clone()),
        ("login", boolean),
        ("options", options),
        ("datacenters", CqlType::TEXT),
    ];
    (!names.is_empty()).then(|| Listed { table: "roles", columns, rows: rows.collect() })
}

// Source: Cassandra 5.0, ListUsersStatement
fn list_users(roles: &Roles, names: &[String]) -> Option<Listed> {
    let users = names.iter().filter(|name| roles.role(name).is_some_and(|role| role.can_login));
    let rows = users.map(|name| {
        let is_superuser = vec![u8::from(roles.is_superuser(name))];
        vec![name.clone().into_bytes(), is_superuser, EVERYWHERE.to_vec()]
    });
    let columns = vec![
        ("name", CqlType::TEXT),
        ("super", CqlType::Native(Native::Boolean)),
        ("datacenters", CqlType::TEXT),
    ];
    (!names.is_empty()).then(|| Listed { table: "users", columns, rows: rows.collect() })
}

struct Asked<'a> {
    permissions: Option<&'a [Permission]>,
    on: Option<&'a statements::Resource>,
    of: Option<&'a str>,
    is_recursive: bool,
}

// Source: Cassandra 5.0, ListPermissionsStatement, CassandraAuthorizer.list
fn list_permissions(
    performer: &Performer<'_>,
    asked: &Asked<'_>,
    catalog: &Catalog,
    keyspace: Option<&str>,
) -> Result<Option<Listed>, CqlError> {
    performer.known()?;
    let roles = performer.roles;
    let resource = asked.on.map(|on| Resource::resolve(on, keyspace)).transpose()?;
    if let Some(resource) = resource.as_ref().filter(|one| !one.exists(catalog, roles)) {
        return Err(CqlError::invalid(format!("{resource} doesn't exist")));
    }
    if let Some(of) = asked.of.filter(|of| roles.role(of).is_none()) {
        return Err(CqlError::invalid(format!("<role {of}> doesn't exist")));
    }
    if !performer.is_enforced {
        return Err(CqlError::invalid(
            "LIST PERMISSIONS operation is not supported by AllowAllAuthorizer",
        ));
    }
    if !performer.is_superuser() && !asked.of.is_some_and(|of| performer.has_role(of)) {
        return Err(CqlError::Unauthorized(format!(
            "You are not authorized to view {}'s permissions",
            asked.of.unwrap_or("everyone")
        )));
    }
    let wanted = Permissions::of(asked.permissions.unwrap_or(&Permission::ALL));
    let resources: Option<Vec<Resource>> =
        resource.map(
            |resource| {
                if asked.is_recursive { resource.chain().collect() } else { vec![resource] }
            },
        );
    let of = asked.of.map(|of| roles.roles_of(of));
    let mut found = Vec::new();
    for (name, role) in roles.iter() {
        if of.as_ref().is_some_and(|of| !of.contains(name)) {
            continue;
        }
        for (resource, granted) in &role.grants {
            if resources.as_ref().is_some_and(|some| !some.contains(resource)) {
                continue;
            }
            let shown = (*granted & wanted).iter();
            found.extend(shown.map(|permission| (name, resource.name(), permission, resource)));
        }
    }
    found.sort_by(|a, b| (a.0, &a.1, a.2).cmp(&(b.0, &b.1, b.2)));
    let rows = found.iter().map(|(name, _, permission, resource)| {
        let name = name.as_bytes().to_vec();
        vec![
            name.clone(),
            name,
            resource.to_string().into_bytes(),
            permission.name().as_bytes().to_vec(),
        ]
    });
    let columns = ["role", "username", "resource", "permission"];
    let columns = columns.into_iter().map(|name| (name, CqlType::TEXT)).collect();
    let rows: Vec<_> = rows.collect();
    Ok((!rows.is_empty()).then_some(Listed { table: "permissions", columns, rows }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::roles;
    use super::*;
    use crate::schema::testing::catalog;
    use crate::statements::{Statement, parse};

    /// Rows with their texts separated by blanks, or the error.
    fn listed(performer: &str, statement: &str) -> Vec<String> {
        let roles = roles(&[
            "CREATE ROLE ann WITH LOGIN = true",
            "CREATE ROLE staff",
            "CREATE ROLE root WITH SUPERUSER = true",
            "GRANT staff TO ann",
            "GRANT SELECT ON KEYSPACE k TO staff",
            "GRANT MODIFY, SELECT ON k.t TO ann",
        ]);
        let catalog = catalog(&["CREATE TABLE t (a int PRIMARY KEY)"]);
        let Statement::List(list) = parse(statement).unwrap().statement else { panic!() };
        let performer = Performer { roles: &roles, name: Some(performer), is_enforced: true };
        let text = |cell: &Vec<u8>| match cell.as_slice() {
            [0] => "no".to_owned(),
            [1] => "yes".to_owned(),
            text => String::from_utf8_lossy(text).replace('\0', ""),
        };
        match super::list(&performer, &list, &catalog, Some("k")) {
            Err(error) => vec![format!("! {error}")],
            Ok(None) => Vec::new(),
            Ok(Some(listed)) => {
                let row = |row: &Vec<Vec<u8>>| row.iter().map(text).collect::<Vec<_>>().join(" ");
                listed.rows.iter().map(row).collect()
            }
        }
    }

    #[test]
    fn roles_are_listed_to_their_members() {
        let all =
            ["ann no yes  ALL", "cassandra yes no  ALL", "root yes no  ALL", "staff no no  ALL"];
        assert_eq!(listed("cassandra", "LIST ROLES"), all);
        assert_eq!(listed("cassandra", "LIST ROLES OF ann"), [all[0], all[3]]);
        assert_eq!(listed("cassandra", "LIST ROLES OF staff NORECURSIVE"), [all[3]]);
        assert_eq!(listed("ann", "LIST ROLES"), [all[0], all[3]]);
        assert_eq!(listed("cassandra", "LIST ROLES OF x"), ["! <role x> doesn't exist"]);
        assert_eq!(
            listed("ann", "LIST ROLES OF root"),
            ["! You are not authorized to view roles granted to root "]
        );
        assert_eq!(listed("cassandra", "LIST USERS"), ["ann no ALL"]);
    }

    #[test]
    fn permissions_of_granted_roles_are_listed() {
        let staff = "staff staff <keyspace k> SELECT";
        let ann = ["ann ann <table k.t> SELECT", "ann ann <table k.t> MODIFY"];
        assert_eq!(listed("cassandra", "LIST ALL PERMISSIONS OF ann"), [ann[0], ann[1], staff]);
        assert_eq!(listed("cassandra", "LIST ALL ON k.t OF ann NORECURSIVE"), ann);
        assert_eq!(listed("cassandra", "LIST SELECT ON t OF ann"), [ann[0], staff]);
        assert_eq!(listed("ann", "LIST ALL OF staff"), [staff]);
        assert!(listed("cassandra", "LIST DROP PERMISSION OF ann").is_empty());
        for (statement, error) in [
            ("LIST ALL", "! You are not authorized to view everyone's permissions"),
            ("LIST ALL OF root", "! You are not authorized to view root's permissions"),
            ("LIST ALL ON k.x OF ann", "! <table k.x> doesn't exist"),
            ("LIST ALL OF x", "! <role x> doesn't exist"),
        ] {
            assert_eq!(listed("ann", statement), [error]);
        }
    }
}
