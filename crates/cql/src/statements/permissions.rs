//! `GRANT | REVOKE permission ON resource TO | FROM role`

use super::Statement;
use super::roles::{GrantRole, role_name};
use crate::parser::{Parser, QualifiedName, Result};
use crate::type_name::TypeName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePermission {
    /// None: all that apply to the resource.
    pub(crate) permissions: Option<Vec<Permission>>,
    pub(crate) resource: Resource,
    pub(crate) role: String,
    pub(crate) is_revoked: bool,
}

/// In the order in which Cassandra lists them.
// Source: Cassandra 5.0, auth.Permission
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
    Unmask,
    SelectMasked,
}

impl Permission {
    pub(crate) const ALL: [Permission; 10] = [
        Permission::Create,
        Permission::Alter,
        Permission::Drop,
        Permission::Select,
        Permission::Modify,
        Permission::Authorize,
        Permission::Describe,
        Permission::Execute,
        Permission::Unmask,
        Permission::SelectMasked,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Permission::Create => "CREATE",
            Permission::Alter => "ALTER",
            Permission::Drop => "DROP",
            Permission::Select => "SELECT",
            Permission::Modify => "MODIFY",
            Permission::Authorize => "AUTHORIZE",
            Permission::Describe => "DESCRIBE",
            Permission::Execute => "EXECUTE",
            Permission::Unmask => "UNMASK",
            Permission::SelectMasked => "SELECT_MASKED",
        }
    }

    fn parse(parser: &mut Parser<'_>) -> Result<Permission> {
        let found = Permission::ALL.into_iter().find(|one| parser.is_at_word(one.name()));
        let Some(permission) = found else { return parser.unexpected("a permission") };
        parser.take();
        parser.take_word("permission");
        Ok(permission)
    }

    /// Some permissions, or none for ALL.
    pub(super) fn parse_or_all(parser: &mut Parser<'_>) -> Result<Option<Vec<Permission>>> {
        if parser.take_word("all") {
            parser.take_word("permissions");
            return Ok(None);
        }
        parser.list(Permission::parse).map(Some)
    }
}

/// The object of a permission, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    AllKeyspaces,
    Keyspace(String),
    /// `ALL TABLES IN KEYSPACE`
    AllTables(String),
    Table(QualifiedName),
    AllRoles,
    Role(String),
    AllFunctions,
    /// `ALL FUNCTIONS IN KEYSPACE`
    FunctionsOf(String),
    Function(QualifiedName, Vec<TypeName>),
    AllMbeans,
    Mbean(String),
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
    let permissions = Permission::parse_or_all(parser)?;
    parser.expect_word("on")?;
    let resource = Resource::parse(parser)?;
    parser.expect_word(direction)?;
    let role = role_name(parser)?;
    let change = ChangePermission { permissions, resource, role, is_revoked };
    Ok(Statement::ChangePermission(change))
}

impl Resource {
    pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Resource> {
        for (words, resource) in [
            (["all", "keyspaces"], Resource::AllKeyspaces),
            (["all", "roles"], Resource::AllRoles),
            (["all", "mbeans"], Resource::AllMbeans),
        ] {
            if parser.take_words(&words) {
                return Ok(resource);
            }
        }
        if parser.take_words(&["all", "tables", "in", "keyspace"]) {
            return Ok(Resource::AllTables(parser.name()?));
        }
        if parser.take_words(&["all", "functions", "in", "keyspace"]) {
            return Ok(Resource::FunctionsOf(parser.name()?));
        }
        if parser.take_words(&["all", "functions"]) {
            return Ok(Resource::AllFunctions);
        }
        if parser.take_word("keyspace") {
            return Ok(Resource::Keyspace(parser.name()?));
        }
        if parser.take_word("role") {
            return Ok(Resource::Role(role_name(parser)?));
        }
        if parser.take_word("mbean") || parser.take_word("mbeans") {
            return Ok(Resource::Mbean(parser.string()?));
        }
        if parser.take_word("function") {
            let name = parser.qualified_name()?;
            let arguments = parser.bracketed("(", ")", TypeName::parse)?;
            return Ok(Resource::Function(name, arguments));
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
    use crate::statements::parse;

    fn change(text: &str) -> ChangePermission {
        match parse(text).unwrap().statement {
            Statement::ChangePermission(change) => change,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn permissions_and_roles_are_distinguished() {
        let Statement::GrantRole(grant) = parse("GRANT a TO b").unwrap().statement else {
            panic!()
        };
        assert_eq!((grant.role.as_str(), grant.grantee.as_str()), ("a", "b"));
        let all = change("REVOKE ALL PERMISSIONS ON KEYSPACE k FROM r");
        assert_eq!((all.permissions, all.is_revoked), (None, true));
        let one = change("GRANT SELECT PERMISSION ON k.t TO 'R'");
        assert_eq!(one.permissions, Some(vec![Permission::Select]));
        assert_eq!((one.role.as_str(), one.is_revoked), ("R", false));
        let two = change("GRANT SELECT, MODIFY PERMISSION ON k.t TO r");
        assert_eq!(two.permissions, Some(vec![Permission::Select, Permission::Modify]));
        assert!(parse("GRANT fly ON t TO r").is_err());
    }

    #[test]
    fn resources_are_of_four_kinds() {
        let resource = |words: &str| change(&format!("GRANT ALL ON {words} TO r")).resource;
        let name = |name: &str| QualifiedName { keyspace: None, name: name.to_owned() };
        for (words, expected) in [
            ("ALL KEYSPACES", Resource::AllKeyspaces),
            ("KEYSPACE k", Resource::Keyspace("k".into())),
            ("ALL TABLES IN KEYSPACE k", Resource::AllTables("k".into())),
            ("t", Resource::Table(name("t"))),
            ("TABLE t", Resource::Table(name("t"))),
            ("ALL ROLES", Resource::AllRoles),
            ("ROLE 'R'", Resource::Role("R".into())),
            ("ALL FUNCTIONS", Resource::AllFunctions),
            ("ALL FUNCTIONS IN KEYSPACE k", Resource::FunctionsOf("k".into())),
            ("FUNCTION f()", Resource::Function(name("f"), Vec::new())),
            ("ALL MBEANS", Resource::AllMbeans),
            ("MBEANS 'a:*'", Resource::Mbean("a:*".into())),
        ] {
            assert_eq!(resource(words), expected);
        }
    }
}
