//! Client authentication: SASL PLAIN, with the server's password or that of a role.

use cql::error::CqlError;

use crate::engine::secret::is_same_secret;

/// The authenticator that makes drivers send a user name and password.
pub(crate) const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

/// Wrong passwords after which a connection is closed.
pub(crate) const FAILED_LOGINS_MAX: u8 = 3;

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

    /// Whether the password is one of the server's, or the server has none. Any user name is
    /// accepted.
    pub(crate) fn are_right(&self, expected: &[&str]) -> bool {
        let is_right = |it: &&str| is_same_secret(self.password, it.as_bytes());
        expected.is_empty() || expected.iter().any(is_right)
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
        let right = |password: &[u8], expected: &[&str]| {
            Credentials { user: "u", password }.are_right(expected)
        };
        assert!(right(b"secret", &["secret"]));
        assert!(!right(b"secre", &["secret"]));
        assert!(!right(b"secret1", &["secret"]));
        assert!(right(b"new", &["old", "new"]) && right(b"old", &["old", "new"]));
        assert!(!right(b"old,new", &["old", "new"]));
        assert!(right(b"any", &[]));
    }
}
