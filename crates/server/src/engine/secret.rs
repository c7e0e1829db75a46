//! Passwords: constant-time comparison, and redaction.

use std::hint::black_box;

use wire::resp::Args;

/// Text shown in place of a password.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// Delay of the reply to a wrong password: guessing is slow, and the reactor is not blocked.
pub(crate) const FAILED_LOGIN_NS: u64 = 500_000_000;

/// Compares in a time that depends only on the length of `expected`, so that a password cannot be
/// guessed byte by byte.
pub(crate) fn is_same_secret(given: &[u8], expected: &[u8]) -> bool {
    let mut is_different = u8::from(given.len() != expected.len());
    for (at, byte) in expected.iter().enumerate() {
        let other = given.get(at).copied().unwrap_or(0);
        is_different |= black_box(byte ^ other);
    }
    black_box(is_different) == 0
}

/// A request for MONITOR and SLOWLOG, with its passwords redacted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a> {
    args: Args<'a>,
    is_secret: IsSecret,
}

/// Whether an argument of a request is a password.
pub(crate) type IsSecret = fn(Args<'_>, usize) -> bool;

impl<'a> Shown<'a> {
    pub(crate) fn new(args: Args<'a>, is_secret: IsSecret) -> Shown<'a> {
        Shown { args, is_secret }
    }

    /// A request that contains no passwords.
    pub(crate) fn whole(args: Args<'a>) -> Shown<'a> {
        Shown::new(args, |_, _| false)
    }

    pub(crate) fn len(self) -> usize {
        self.args.len()
    }

    pub(crate) fn get(self, at: usize) -> &'a [u8] {
        if (self.is_secret)(self.args, at) { REDACTED } else { self.args.get(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_the_same_or_not() {
        assert!(is_same_secret(b"secret", b"secret"));
        assert!(is_same_secret(b"", b""));
        for other in [&b""[..], b"secre", b"secret\0", b"secretsecret", b"sEcret", b"\0\0\0\0\0\0"]
        {
            assert!(!is_same_secret(other, b"secret"), "{other:?}");
        }
        assert!(!is_same_secret(b"", b"\0"));
    }
}
