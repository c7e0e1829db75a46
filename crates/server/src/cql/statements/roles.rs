//! `CREATE | ALTER ROLE name [WITH options]`, and the older forms with USER

use super::Statement;
use super::options::parse_option;
use crate::cql::lexer::Kind;
use crate::cql::parser::{Parser, Result};

#[derive(Debug, Clone, PartialEq)]
pub struct CreateRole {
    pub name: String,
    pub if_not_exists: bool,
    pub options: RoleOptions,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AlterRole {
    pub name: String,
    pub if_exists: bool,
    pub options: RoleOptions,
}

/// `GRANT role TO role` and `REVOKE role FROM role`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRole {
    pub role: String,
    pub grantee: String,
    pub is_revoked: bool,
}

/// What is said of a role; what is not said stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RoleOptions {
    pub password: Option<String>,
    pub hashed_password: Option<String>,
    pub is_superuser: Option<bool>,
    pub can_login: Option<bool>,
}

/// A name, or a string: names of roles in quotes keep their case.
pub(super) fn role_name(parser: &mut Parser<'_>) -> Result<String> {
    if parser.peek().kind == Kind::String { parser.string() } else { parser.name() }
}

pub(super) fn parse_create(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_not_exists = parser.if_not_exists();
    let name = role_name(parser)?;
    let options = RoleOptions::parse(parser)?;
    Ok(Statement::CreateRole(CreateRole { name, if_not_exists, options }))
}

pub(super) fn parse_alter(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_exists = parser.if_exists();
    let name = role_name(parser)?;
    let options = RoleOptions::parse(parser)?;
    Ok(Statement::AlterRole(AlterRole { name, if_exists, options }))
}

impl RoleOptions {
    fn parse(parser: &mut Parser<'_>) -> Result<RoleOptions> {
        let mut options = RoleOptions::default();
        if parser.take_word("with") {
            options.parse_one(parser)?;
            while parser.take_word("and") {
                options.parse_one(parser)?;
            }
        }
        // The forms of USER: `WITH PASSWORD 'x' SUPERUSER`.
        if parser.take_word("superuser") {
            options.is_superuser = Some(true);
        } else if parser.take_word("nosuperuser") {
            options.is_superuser = Some(false);
        }
        Ok(options)
    }

    fn parse_one(&mut self, parser: &mut Parser<'_>) -> Result<()> {
        let token = parser.peek();
        if parser.take_words(&["hashed", "password"]) {
            parser.expect_symbol("=")?;
            self.hashed_password = Some(parser.string()?);
        } else if parser.take_word("password") {
            // USER says it without the sign.
            parser.take_symbol("=");
            self.password = Some(parser.string()?);
        } else if parser.take_word("superuser") {
            parser.expect_symbol("=")?;
            self.is_superuser = Some(parser.boolean()?);
        } else if parser.take_word("login") {
            parser.expect_symbol("=")?;
            self.can_login = Some(parser.boolean()?);
        } else {
            let (name, _) = parse_option(parser)?;
            return parser.fault(token, format!("roles have no option {name}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cql::statements::parse;

    #[test]
    fn roles_have_their_options() {
        let parsed = parse("CREATE ROLE IF NOT EXISTS 'Ann' WITH PASSWORD = 'p' AND LOGIN = true");
        let Statement::CreateRole(role) = parsed.unwrap().statement else { panic!() };
        assert_eq!((role.name.as_str(), role.if_not_exists), ("Ann", true));
        assert_eq!(role.options.password.as_deref(), Some("p"));
        assert_eq!((role.options.can_login, role.options.is_superuser), (Some(true), None));
        let parsed = parse("ALTER USER ann WITH PASSWORD 'p' SUPERUSER").unwrap();
        let Statement::AlterRole(role) = parsed.statement else { panic!() };
        assert_eq!(role.options.is_superuser, Some(true));
        let error = parse("CREATE ROLE r WITH x = 1").unwrap_err();
        assert_eq!(error.reason, "roles have no option x");
    }
}
