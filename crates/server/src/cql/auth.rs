//! Client authentication: SASL PLAIN, with the password of the ACL user `default` or of a role.

use cql::error::CqlError;

use crate::engine::acl::{Acl, DEFAULT_USER, Identity};

/// The authenticator that makes drivers send a user name and password.
pub(crate) const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

/// Wrong passwords after which a connection is closed.
pub(crate) const FAILED_LOGINS_MAX: u8 = 3;

/// The reply to a client of the user `default` if that user may not do everything.
pub(crate) const NEEDS_ALL_RIGHTS: &str =
    "The ACL user default may not do everything, which CQL requires of it";

/// User and password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credentials<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a [u8],
}

impl<'a> Credentials<'a> {
    /// Decodes `[authorization id] NUL user NUL password`. The error texts are Cassandra's.
    // Source: RFC 4616 2; Cassandra 5.0, PlainTextSaslAuthenticator.decodeCredentials
    pub(crate) fn decode(token: &'a [u8]) -> Result<Credentials<'a>, &'static str> {
        let mut parts = token.rsplitn(3, |byte| *byte == 0);
        let password = parts.next().filter(|password| !password.is_empty());
        let user = parts.next().filter(|user| !user.is_empty());
        parts.next().ok_or("Authentication ID must not be null")?;
        let password = password.ok_or("Password must not be null")?;
        let user = user.ok_or("Authentication ID must not be null")?;
        let user = str::from_utf8(user).map_err(|_| "Authentication ID is not UTF-8")?;
        Ok(Credentials { user, password })
    }

    /// Logs in as the ACL user `default`, which must have all rights: CQL checks no others. Any
    /// user name is accepted.
    pub(crate) fn default_user(&self, acl: &Acl) -> Result<Identity, CqlError> {
        let identity = Identity::log_in(acl, DEFAULT_USER.as_bytes(), self.password);
        let identity = identity.ok_or_else(|| self.refusal())?;
        if identity.user().is_unrestricted() {
            return Ok(identity);
        }
        Err(CqlError::BadCredentials(NEEDS_ALL_RIGHTS.to_owned()))
    }

    /// The reply to a wrong password or an unknown user name.
    // Source: Cassandra 5.0, PasswordAuthenticator.authenticate
    pub(crate) fn refusal(&self) -> CqlError {
        let user = self.user;
        CqlError::BadCredentials(format!("Provided username {user} and/or password are incorrect"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::acl::{PasswordHash, User, Users};

    #[test]
    fn tokens_are_decoded() {
        let check = |token: &[u8], expected| assert_eq!(Credentials::decode(token), expected);
        check(b"\0user\0secret", Ok(Credentials { user: "user", password: b"secret" }));
        check(b"other\0user\0s", Ok(Credentials { user: "user", password: b"s" }));
        check(b"\0user\0", Err("Password must not be null"));
        check(b"\0\0secret", Err("Authentication ID must not be null"));
        check(b"user\0secret", Err("Authentication ID must not be null"));
        check(b"", Err("Authentication ID must not be null"));
        check(b"\0\xff\0secret", Err("Authentication ID is not UTF-8"));
    }

    #[test]
    fn only_the_password_is_checked() {
        let check = |rules: fn(&mut User), password: &[u8], expected: Result<(), &str>| {
            let mut default = User::new(DEFAULT_USER.as_bytes(), true);
            (default.root.has_all_keys, default.root.has_all_commands) = (true, true);
            default.is_on = true;
            rules(&mut default);
            let acl = Acl::new(Users::new(default));
            let found = Credentials { user: "u", password }.default_user(&acl);
            let found = found.map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        let two = |user: &mut User| {
            user.passwords = [&b"old"[..], b"new"].map(PasswordHash::of).to_vec();
        };
        let wrong = Err("Provided username u and/or password are incorrect");
        check(two, b"old", Ok(()));
        check(two, b"new", Ok(()));
        for password in [&b"ol"[..], b"old1", b"old,new"] {
            check(two, password, wrong);
        }
        check(|_| {}, b"any", wrong);
        check(|user| user.takes_any_password = true, b"any", Ok(()));
        let off = |user: &mut User| (user.takes_any_password, user.is_on) = (true, false);
        check(off, b"any", wrong);
        let restricted =
            |user: &mut User| (user.takes_any_password, user.root.has_all_keys) = (true, false);
        check(restricted, b"any", Err(NEEDS_ALL_RIGHTS));
    }
}
