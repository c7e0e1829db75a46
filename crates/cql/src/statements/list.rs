//! `LIST ROLES | USERS | PERMISSIONS ...`

use super::Statement;
use super::permissions::{Permission, Resource};
use super::roles::role_name;
use crate::parser::{Parser, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum List {
    Roles {
        of: Option<String>,
        is_recursive: bool,
    },
    Users,
    Permissions {
        /// None: all.
        permissions: Option<Vec<Permission>>,
        on: Option<Resource>,
        of: Option<String>,
        is_recursive: bool,
    },
}

pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Statement> {
    if parser.take_word("users") {
        return Ok(Statement::List(List::Users));
    }
    if parser.take_word("roles") {
        let of = parse_of(parser)?;
        let is_recursive = !parser.take_word("norecursive");
        return Ok(Statement::List(List::Roles { of, is_recursive }));
    }
    let permissions = Permission::parse_or_all(parser)?;
    let on = if parser.take_word("on") { Some(Resource::parse(parser)?) } else { None };
    let of = parse_of(parser)?;
    let is_recursive = !parser.take_word("norecursive");
    Ok(Statement::List(List::Permissions { permissions, on, of, is_recursive }))
}

fn parse_of(parser: &mut Parser<'_>) -> Result<Option<String>> {
    if parser.take_word("of") { Ok(Some(role_name(parser)?)) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    #[test]
    fn lists_are_of_roles_or_permissions() {
        let parsed = |text: &str| match parse(text).unwrap().statement {
            Statement::List(list) => list,
            other => panic!("{other:?}"),
        };
        assert_eq!(parsed("LIST USERS"), List::Users);
        assert_eq!(
            parsed("LIST ROLES OF r NORECURSIVE"),
            List::Roles { of: Some("r".into()), is_recursive: false }
        );
        assert_eq!(
            parsed("LIST ALL PERMISSIONS ON KEYSPACE k OF r"),
            List::Permissions {
                permissions: None,
                on: Some(Resource::Keyspace("k".into())),
                of: Some("r".into()),
                is_recursive: true,
            }
        );
    }
}
