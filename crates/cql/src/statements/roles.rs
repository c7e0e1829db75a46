//! `CREATE | ALTER ROLE name [WITH options]`, and the older forms with USER

use super::Statement;
use super::options::{OptionValue, parse_option};
use crate::lexer::Kind;
use crate::parser::{Parser, Result};

#[derive(Debug, Clone, PartialEq)]
pub struct CreateRole {
    pub(crate) name: String,
    pub(crate) if_not_exists: bool,
    pub(crate) options: RoleOptions,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AlterRole {
    pub(crate) name: String,
    pub(crate) if_exists: bool,
    pub(crate) options: RoleOptions,
}

/// `GRANT role TO role` and `REVOKE role FROM role`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRole {
    pub(crate) role: String,
    pub(crate) grantee: String,
    pub(crate) is_revoked: bool,
}

/// Options of a role; missing options keep their values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RoleOptions {
    pub(crate) password: Option<String>,
    pub(crate) hashed_password: Option<String>,
    pub(crate) is_superuser: Option<bool>,
    pub(crate) can_login: Option<bool>,
    /// OPTIONS = {..}
    pub(crate) custom: Option<OptionValue>,
    /// ACCESS TO DATACENTERS, ACCESS FROM CIDRS.
    pub(crate) access: Vec<AccessLimit>,
}

/// Where a role may log in from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessLimit {
    Everywhere,
    Datacenters(Vec<String>),
    Cidrs(Vec<String>),
}

/// A name, or a string: quoted names of roles keep their case.
pub(super) fn role_name(parser: &mut Parser<'_>) -> Result<String> {
    match parser.peek().kind {
        Kind::String => parser.string(),
        Kind::Symbol if parser.is_at_symbol("?") => {
            parser.peek().fault("Bind variables cannot be used for role names")
        }
        _ => parser.name(),
    }
}

/// The name as written: user names keep their case even without quotes.
// Source: Cassandra 5.0, Parser.g, username
pub(super) fn user_name(parser: &mut Parser<'_>) -> Result<String> {
    let token = parser.peek();
    match token.kind {
        Kind::String => parser.string(),
        Kind::QuotedName => token.fault("Quoted strings are are not supported for user names and USER is deprecated, please use \
             ROLE",
        ),
        _ => {
            parser.name()?;
            Ok(token.text.to_owned())
        }
    }
}

pub(super) fn parse_create(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_not_exists = parser.if_not_exists();
    let name = role_name(parser)?;
    let options = RoleOptions::of_role(parser)?;
    Ok(Statement::CreateRole(CreateRole { name, if_not_exists, options }))
}

pub(super) fn parse_create_user(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_not_exists = parser.if_not_exists();
    let name = user_name(parser)?;
    let mut options = RoleOptions::of_user(parser)?;
    options.can_login = Some(true);
    Ok(Statement::CreateRole(CreateRole { name, if_not_exists, options }))
}

pub(super) fn parse_alter(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_exists = parser.if_exists();
    let name = role_name(parser)?;
    let options = RoleOptions::of_role(parser)?;
    Ok(Statement::AlterRole(AlterRole { name, if_exists, options }))
}

pub(super) fn parse_alter_user(parser: &mut Parser<'_>) -> Result<Statement> {
    let if_exists = parser.if_exists();
    let name = user_name(parser)?;
    let options = RoleOptions::of_user(parser)?;
    Ok(Statement::AlterRole(AlterRole { name, if_exists, options }))
}

impl RoleOptions {
    /// Whether no option is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == RoleOptions::default()
    }

    fn of_role(parser: &mut Parser<'_>) -> Result<RoleOptions> {
        let mut options = RoleOptions::default();
        let start = parser.peek();
        if parser.take_word("with") {
            options.parse_one(parser)?;
            while parser.take_word("and") {
                options.parse_one(parser)?;
            }
        }
        if options.password.is_some() && options.hashed_password.is_some() {
            let reason = "Options 'password' and 'hashed password' are mutually exclusive";
            return start.fault(reason);
        }
        Ok(options)
    }

    /// `[WITH [HASHED] PASSWORD 'x'] [SUPERUSER | NOSUPERUSER]`
    fn of_user(parser: &mut Parser<'_>) -> Result<RoleOptions> {
        let mut options = RoleOptions::default();
        if parser.take_word("with") {
            if parser.take_words(&["hashed", "password"]) {
                options.hashed_password = Some(parser.string()?);
            } else {
                parser.expect_word("password")?;
                options.password = Some(parser.string()?);
            }
        }
        if parser.take_word("superuser") {
            options.is_superuser = Some(true);
        } else if parser.take_word("nosuperuser") {
            options.is_superuser = Some(false);
        }
        Ok(options)
    }

    fn parse_one(&mut self, parser: &mut Parser<'_>) -> Result<()> {
        let token = parser.peek();
        if parser.take_word("access") {
            self.access.push(parse_access(parser)?);
            return Ok(());
        }
        let is_new = if parser.take_words(&["hashed", "password"]) {
            parser.expect_symbol("=")?;
            self.hashed_password.replace(parser.string()?).is_none()
        } else if parser.take_word("password") {
            parser.expect_symbol("=")?;
            self.password.replace(parser.string()?).is_none()
        } else if parser.take_word("superuser") {
            parser.expect_symbol("=")?;
            self.is_superuser.replace(parser.boolean()?).is_none()
        } else if parser.take_word("login") {
            parser.expect_symbol("=")?;
            self.can_login.replace(parser.boolean()?).is_none()
        } else if parser.is_at_word("options") {
            let (_, map) = parse_option(parser)?;
            self.custom.replace(map).is_none()
        } else {
            let (name, _) = parse_option(parser)?;
            return token.fault(format!("unknown option {name} of a role"));
        };
        if is_new {
            return Ok(());
        }
        let name = token.text.to_ascii_uppercase();
        token.fault(format!("Multiple definition for property '{name}'"))
    }
}

/// `TO ALL DATACENTERS`, `TO DATACENTERS {..}`, `FROM ALL CIDRS`, `FROM CIDRS {..}`
fn parse_access(parser: &mut Parser<'_>) -> Result<AccessLimit> {
    let (word, limit): (_, fn(Vec<String>) -> AccessLimit) = if parser.take_word("to") {
        ("datacenters", AccessLimit::Datacenters)
    } else {
        parser.expect_word("from")?;
        ("cidrs", AccessLimit::Cidrs)
    };
    if parser.take_word("all") {
        parser.expect_word(word)?;
        return Ok(AccessLimit::Everywhere);
    }
    parser.expect_word(word)?;
    Ok(limit(parser.bracketed("{", "}", Parser::string)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::parse;

    fn options(text: &str) -> RoleOptions {
        match parse(text).unwrap().statement {
            Statement::CreateRole(role) => role.options,
            Statement::AlterRole(role) => role.options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn roles_have_their_options() {
        let parsed = parse("CREATE ROLE IF NOT EXISTS 'Ann' WITH PASSWORD = 'p' AND LOGIN = true");
        let Statement::CreateRole(role) = parsed.unwrap().statement else { panic!() };
        assert_eq!((role.name.as_str(), role.if_not_exists), ("Ann", true));
        assert_eq!(role.options.password.as_deref(), Some("p"));
        assert_eq!((role.options.can_login, role.options.is_superuser), (Some(true), None));
        let found = options("ALTER ROLE r WITH ACCESS TO DATACENTERS {'a', 'b'}");
        let limit = AccessLimit::Datacenters(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!((found.is_empty(), found.access), (false, vec![limit]));
        let found = options("ALTER ROLE r WITH ACCESS FROM ALL CIDRS");
        assert_eq!(found.access, [AccessLimit::Everywhere]);
        assert!(options("CREATE ROLE r").is_empty());
        assert!(!options("CREATE ROLE r WITH OPTIONS = {'a': 'b'}").is_empty());
        for (text, reason) in [
            ("CREATE ROLE r WITH x = 1", "unknown option x of a role"),
            (
                "CREATE ROLE r WITH LOGIN = true AND LOGIN = true",
                "Multiple definition for property 'LOGIN'",
            ),
            (
                "CREATE ROLE r WITH PASSWORD = 'a' AND HASHED PASSWORD = 'b'",
                "Options 'password' and 'hashed password' are mutually exclusive",
            ),
            ("CREATE ROLE ?", "Bind variables cannot be used for role names"),
        ] {
            assert_eq!(parse(text).unwrap_err().reason, reason);
        }
    }

    #[test]
    fn users_are_roles_that_log_in() {
        let parsed = parse("CREATE USER Ann WITH PASSWORD 'p' SUPERUSER").unwrap().statement;
        let Statement::CreateRole(role) = parsed else { panic!() };
        assert_eq!(role.name, "Ann");
        assert_eq!((role.options.can_login, role.options.is_superuser), (Some(true), Some(true)));
        assert_eq!(options("ALTER USER ann NOSUPERUSER").is_superuser, Some(false));
        assert!(parse("CREATE USER \"Ann\"").is_err());
        assert!(parse("CREATE USER a WITH PASSWORD = 'p'").is_err());
    }
}
