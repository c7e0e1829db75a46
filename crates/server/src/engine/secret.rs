//! Passwords: compared without a hint, and not shown.

use std::hint::black_box;

use wire::resp::Args;

/// What is shown in place of a password.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// How long the answer to a wrong password takes: guessing is slow, and the reactor goes on.
pub(crate) const FAILED_LOGIN_NS: u64 = 500_000_000;

/// Compares in a time that depends on the length of `expected` alone, so that a password cannot be
/// found byte by byte.
pub(crate) fn is_same_secret(given: &[u8], expected: &[u8]) -> bool {
    let mut is_different = u8::from(given.len() != expected.len());
    for (at, byte) in expected.iter().enumerate() {
        let other = given.get(at).copied().unwrap_or(0);
        is_different |= black_box(byte ^ other);
    }
    black_box(is_different) == 0
}

/// Whether this argument is a password, which MONITOR and SLOWLOG must not show.
pub(crate) fn is_secret(args: Args<'_>, at: usize) -> bool {
    let name = args.get(0);
    if name.eq_ignore_ascii_case(b"AUTH") {
        return at >= 1;
    }
    if name.eq_ignore_ascii_case(b"HELLO") {
        let follows =
            |back: usize| at >= 2 + back && args.get(at - back).eq_ignore_ascii_case(b"AUTH");
        return follows(1) || follows(2);
    }
    let sets = name.eq_ignore_ascii_case(b"CONFIG")
        && args.try_get(1).is_some_and(|s| s.eq_ignore_ascii_case(b"SET"));
    sets && at >= 3 && args.get(at - 1).eq_ignore_ascii_case(b"REQUIREPASS")
}

#[cfg(test)]
mod tests {
    use wire::resp::OwnedArgs;

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

    #[track_caller]
    fn check_secret(request: &str, secrets: &[usize]) {
        let args: OwnedArgs = request.split(' ').collect();
        let args = args.as_args();
        let found: Vec<usize> = (0..args.len()).filter(|at| is_secret(args, *at)).collect();
        assert_eq!(found, secrets, "{request}");
    }

    #[test]
    fn passwords_are_not_shown() {
        check_secret("auth p", &[1]);
        check_secret("AUTH u p", &[1, 2]);
        check_secret("HELLO 3 SETNAME n auth u p", &[5, 6]);
        check_secret("HELLO 3 AUTH p", &[3]);
        check_secret("HELLO 3", &[]);
        check_secret("HELLO AUTH x", &[]);
        check_secret("CONFIG SET hz 10 requirepass p", &[5]);
        check_secret("CONFIG GET requirepass", &[]);
        check_secret("SET requirepass auth x", &[]);
    }
}
