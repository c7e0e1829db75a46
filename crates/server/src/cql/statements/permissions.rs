//! `GRANT | REVOKE permission ON resource TO | FROM role`

use super::Statement;
use super::roles::{GrantRole, role_name};
use crate::cql::parser::{Parser, QualifiedName, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePermission {
    /// None: all that the resource has.
    pub permission: Option<Permission>,
    pub resource: Resource,
    pub role: String,
    pub is_revoked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    Create,
    Alter,
    Drop,
    Select,
    Modify,
    Authorize,
    Describe,
    Execute,
}

const PERMISSIONS: [(&str, Permission); 8] = [
    ("create", Permission::Create),
    ("alter", Permission::Alter),
    ("drop", Permission::Drop),
    ("select", Permission::Select),
    ("modify", Permission::Modify),
    ("authorize", Permission::Authorize),
    ("describe", Permission::Describe),
    ("execute", Permission::Execute),
];

/// What a permission is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    AllKeyspaces,
    Keyspace(String),
    Table(QualifiedName),
    AllRoles,
    Role(String),
}

pub(super) fn parse_grant(parser: &mut Parser<'_>) -> Result<Statement> {
    parse(parser, false, "to")
}

pub(super) fn parse_revoke(parser: &mut Parser<'_>) -> Result<Statement> {
    parse(parser, true, "from")
}

fn parse(parser: &mut Parser<'_>, is_revoked: bool, direction: &str) -> Result<Statement> {
    let is_about_role = parser.peek_at(1).is_word(direction);
    if is_about_role {
        let role = role_name(parser)?;
        parser.expect_word(direction)?;
        let grantee = role_name(parser)?;
        return Ok(Statement::GrantRole(GrantRole { role, grantee, is_revoked }));
    }
    let permission = Permission::parse_or_all(parser)?;
    parser.expect_word("on")?;
    let resource = Resource::parse(parser)?;
    parser.expect_word(direction)?;
    let role = role_name(parser)?;
    let change = ChangePermission { permission, resource, role, is_revoked };
    Ok(Statement::ChangePermission(change))
}

impl Permission {
    /// One permission, or none for ALL.
    pub(super) fn parse_or_all(parser: &mut Parser<'_>) -> Result<Option<Permission>> {
        if parser.take_word("all") {
            parser.take_word("permissions");
            return Ok(None);
        }
        let found = PERMISSIONS.iter().find(|(word, _)| parser.is_at_word(word));
        let Some((_, permission)) = found else { return parser.unexpected("a permission") };
        parser.take();
        parser.take_word("permission");
        Ok(Some(*permission))
    }

    pub fn name(self) -> String {
        let row = PERMISSIONS.iter().find(|(_, permission)| *permission == self);
        row.map(|(name, _)| name.to_uppercase()).expect("every permission has a row")
    }
}

impl Resource {
    pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Resource> {
        if parser.take_words(&["all", "keyspaces"]) {
            return Ok(Resource::AllKeyspaces);
        }
        if parser.take_words(&["all", "roles"]) {
            return Ok(Resource::AllRoles);
        }
        if parser.take_word("keyspace") {
            return Ok(Resource::Keyspace(parser.name()?));
        }
        if parser.take_word("role") {
            return Ok(Resource::Role(role_name(parser)?));
        }
        if !parser.take_word("table") {
            parser.take_word("columnfamily");
        }
        Ok(Resource::Table(parser.qualified_name()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cql::statements::parse;

    #[test]
    fn permissions_and_roles_are_told_apart() {
        let Statement::GrantRole(grant) = parse("GRANT a TO b").unwrap().statement else {
            panic!()
        };
        assert_eq!((grant.role.as_str(), grant.grantee.as_str()), ("a", "b"));
        let parsed = parse("REVOKE ALL PERMISSIONS ON KEYSPACE k FROM r").unwrap().statement;
        let Statement::ChangePermission(change) = parsed else { panic!() };
        assert_eq!((change.permission, change.is_revoked), (None, true));
        assert_eq!(change.resource, Resource::Keyspace("k".into()));
        let parsed = parse("GRANT SELECT PERMISSION ON k.t TO 'R'").unwrap().statement;
        let Statement::ChangePermission(change) = parsed else { panic!() };
        assert_eq!(change.permission, Some(Permission::Select));
        assert_eq!((change.role.as_str(), change.is_revoked), ("R", false));
        assert!(parse("GRANT fly ON t TO r").is_err());
        assert_eq!(Permission::Modify.name(), "MODIFY");
    }
}
