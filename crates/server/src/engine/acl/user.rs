//! A user: passwords and permissions.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::selector::{KeyPattern, Selector};
use crate::engine::secret::is_same_secret;

/// Maximum rules of one user: passwords, commands, patterns, and selectors. Each request of a
/// restricted user may compare its keys with all patterns.
const RULES_MAX: usize = 4_096;

/// Maximum bytes of the name and the rules of one user.
const RULE_BYTES_MAX: usize = 64 * 1024;

/// Maximum bytes of a password; a longer one is wrong. Hashing takes a few milliseconds.
const PASSWORD_BYTES_MAX: usize = 1 << 20;

/// Rules that a selector counts as, apart from its own.
const SELECTOR_RULES: usize = 4;

/// SHA-256 of a password; the password itself is not stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PasswordHash([u8; 32]);

impl PasswordHash {
    pub(crate) fn of(password: &[u8]) -> PasswordHash {
        PasswordHash(Sha256::digest(password).into())
    }

    /// Parses 64 hexadecimal digits in lowercase.
    // Source: Redis 7.2 `acl.c`, `ACLCheckPasswordHash`
    pub(crate) fn parse(text: &[u8]) -> Option<PasswordHash> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        let (pairs, rest) = text.as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(PasswordHash(bytes))
    }

    pub(crate) fn hex(self) -> String {
        base::hex::hex(&self.0)
    }
}

/// Not even the hash appears in a log.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

/// One user. Immutable once it is among the [`Users`](super::Users).
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags, as in Redis")]
pub(crate) struct User {
    /// Distinguishes users of the same name: a user that was deleted and created again is another
    /// one.
    pub(crate) number: u64,
    pub(crate) name: Box<[u8]>,
    pub(crate) is_on: bool,
    /// `nopass`: any password is right.
    pub(crate) takes_any_password: bool,
    /// `skip-sanitize-payload`. Payloads are checked for every user; the flag is only kept.
    pub(crate) skips_sanitizing: bool,
    pub(crate) passwords: Vec<PasswordHash>,
    /// The permissions of the user itself.
    pub(crate) root: Selector,
    /// Additional permissions.
    pub(crate) selectors: Vec<Selector>,
    is_unrestricted: bool,
}

impl User {
    /// Creates a user without permissions.
    // Source: Redis 7.2 `acl.c`, `ACLCreateUser`
    pub(crate) fn new(name: &[u8], has_all_channels: bool) -> User {
        User {
            number: 0,
            name: name.into(),
            is_on: false,
            takes_any_password: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            root: Selector::new(has_all_channels),
            selectors: Vec::new(),
            is_unrestricted: false,
        }
    }

    /// Completes a user whose permissions were changed. Called by
    /// [`Users::insert`](super::Users::insert).
    pub(super) fn seal(&mut self, number: u64) {
        self.number = number;
        let is_unrestricted = self.all_selectors().any(Selector::is_unrestricted);
        self.is_unrestricted = is_unrestricted;
    }

    /// The permissions of the user itself, then the additional ones.
    pub(crate) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether the user may run every command with any keys and channels.
    #[inline]
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Whether a connection is this user's without a password, if it is the default user.
    pub(super) fn is_open(&self) -> bool {
        self.is_on && self.takes_any_password
    }

    /// Whether the password is right and the user may log in. Takes the same time for every wrong
    /// password.
    // Source: Redis 7.2 `acl.c`, `ACLCheckUserCredentials`
    pub(crate) fn accepts(&self, password: &[u8]) -> bool {
        if !self.is_on || self.takes_any_password {
            return self.is_on;
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let given = PasswordHash::of(password);
        self.passwords
            .iter()
            .fold(false, |is_right, known| is_same_secret(&given.0, &known.0) | is_right)
    }

    /// Whether `other`, with the rules of this user before a change, had channels that this user
    /// does not have.
    // Source: Redis 7.2 `acl.c`, `ACLKillPubsubClientsIfNeeded`
    pub(crate) fn has_fewer_channels_than(&self, other: &User) -> bool {
        if self.all_selectors().any(|selector| selector.has_all_channels) {
            return false;
        }
        let has = |channel: &[u8]| {
            self.all_selectors().any(|selector| selector.permits_channel_pattern(channel))
        };
        other.all_selectors().any(|selector| {
            selector.has_all_channels || selector.channels.iter().any(|channel| !has(channel))
        })
    }

    /// Like [`User::has_fewer_channels_than`], for keys that the user may read.
    pub(crate) fn has_fewer_keys_than(&self, other: &User) -> bool {
        if self.all_selectors().any(|selector| selector.has_all_keys) {
            return false;
        }
        let reads = |key: &KeyPattern| {
            self.all_selectors()
                .flat_map(|selector| &selector.keys)
                .any(|own| own.reads && own.pattern == key.pattern)
        };
        other.all_selectors().any(|selector| {
            selector.has_all_keys || selector.keys.iter().any(|key| key.reads && !reads(key))
        })
    }

    /// Whether one pattern lets the user read all keys with this prefix.
    pub(crate) fn may_read_all_below(&self, prefix: &[u8]) -> bool {
        self.all_selectors().any(|selector| selector.may_read_all_below(prefix))
    }

    /// Whether the user has more rules than a user may have.
    pub(crate) fn has_too_many_rules(&self) -> bool {
        let selectors = self.selectors.iter();
        let rules = self.passwords.len()
            + self.root.rule_count()
            + selectors.map(|selector| SELECTOR_RULES + selector.rule_count()).sum::<usize>();
        rules > RULES_MAX || self.rule_bytes() > RULE_BYTES_MAX
    }

    /// Bytes of the name and the rules.
    pub(super) fn rule_bytes(&self) -> usize {
        let rules = self.all_selectors().map(Selector::rule_bytes).sum::<usize>();
        self.name.len() + self.passwords.len() * size_of::<PasswordHash>() + rules
    }

    /// The flags as ACL GETUSER and ACL LIST show them.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static str> {
        let sanitize =
            if self.skips_sanitizing { "skip-sanitize-payload" } else { "sanitize-payload" };
        [
            Some(if self.is_on { "on" } else { "off" }),
            self.takes_any_password.then_some("nopass"),
            Some(sanitize),
        ]
        .into_iter()
        .flatten()
    }

    /// Appends the rules that create the user, as in ACL LIST and the ACL file.
    // Source: Redis 7.2 `acl.c`, `ACLDescribeUser`
    pub(crate) fn describe(&self, out: &mut Vec<u8>) {
        for flag in self.flags() {
            out.extend_from_slice(flag.as_bytes());
            out.push(b' ');
        }
        for password in &self.passwords {
            out.push(b'#');
            out.extend_from_slice(password.hex().as_bytes());
            out.push(b' ');
        }
        self.root.describe(out);
        for selector in &self.selectors {
            out.extend_from_slice(b" (");
            selector.describe(out);
            out.push(b')');
        }
    }

    /// The line of the user in ACL LIST and in the ACL file.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut line = [b"user ", &*self.name, b" "].concat();
        self.describe(&mut line);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_64_digits_in_lowercase() {
        let hash = PasswordHash::of(b"secret");
        assert_eq!(PasswordHash::parse(hash.hex().as_bytes()), Some(hash));
        assert_eq!(hash.hex().len(), 64);
        for text in ["", "ab", &"A".repeat(64), &"g".repeat(64), &"a".repeat(63), &"a".repeat(65)] {
            assert_eq!(PasswordHash::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(format!("{hash:?}"), "PasswordHash");
    }

    #[test]
    fn only_a_user_that_is_on_accepts_passwords() {
        let mut user = User::new(b"a", false);
        assert!(!user.accepts(b""));
        user.is_on = true;
        assert!(!user.accepts(b"") && !user.is_open());
        user.passwords = vec![PasswordHash::of(b"one"), PasswordHash::of(b"two")];
        assert!(user.accepts(b"one") && user.accepts(b"two") && !user.accepts(b"three"));
        user.takes_any_password = true;
        assert!(user.accepts(b"three") && user.is_open());
        user.is_on = false;
        assert!(!user.accepts(b"three") && !user.is_open());
    }

    #[test]
    fn channels_are_compared_as_a_whole() {
        let with = |channels: &[&str], has_all: bool| {
            let mut user = User::new(b"a", has_all);
            user.root.channels = channels.iter().map(|name| name.as_bytes().into()).collect();
            user
        };
        assert!(!with(&[], true).has_fewer_channels_than(&with(&["a"], false)));
        assert!(with(&["a"], false).has_fewer_channels_than(&with(&[], true)));
        assert!(with(&["a"], false).has_fewer_channels_than(&with(&["a", "b"], false)));
        assert!(!with(&["b", "a"], false).has_fewer_channels_than(&with(&["a"], false)));
        // A pattern that matches more is not the same pattern.
        assert!(with(&["*"], false).has_fewer_channels_than(&with(&["a"], false)));
    }
}
