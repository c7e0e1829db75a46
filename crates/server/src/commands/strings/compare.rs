//! Comparisons with the present value of a string: options of SET, DELEX, DELIFEQ and DIGEST.

use twox_hash::XxHash3_64;
use wire::resp::Args;

use crate::commands::command::{Command, Done, Events, Flags, Group, KeyAccess, KeySpec};
use crate::commands::context::{CommandContext, SCANNED_BYTES, is_option};
use crate::commands::fail::Fail;

/// A condition on the value of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison<'a> {
    Equal(&'a [u8]),
    Different(&'a [u8]),
    /// Compares digests, so that the client need not send the value.
    EqualDigest(&'a [u8]),
    DifferentDigest(&'a [u8]),
}

type MakeComparison<'a> = fn(&'a [u8]) -> Comparison<'a>;

impl<'a> Comparison<'a> {
    pub(super) fn of_option(name: &[u8]) -> Option<MakeComparison<'a>> {
        let known: [(&str, MakeComparison<'a>); 4] = [
            ("IFEQ", Comparison::Equal),
            ("IFNE", Comparison::Different),
            ("IFDEQ", Comparison::EqualDigest),
            ("IFDNE", Comparison::DifferentDigest),
        ];
        known.into_iter().find(|(option, _)| is_option(name, option)).map(|(_, make)| make)
    }

    /// Fails if the operand is not a digest where one is required.
    pub(super) fn check(self) -> Done {
        let (Comparison::EqualDigest(digest) | Comparison::DifferentDigest(digest)) = self else {
            return Ok(());
        };
        if digest.len() == DIGEST_LEN && digest.iter().all(u8::is_ascii_hexdigit) {
            return Ok(());
        }
        Err(Fail::text("ERR digest must be exactly 16 hexadecimal characters"))
    }

    pub(super) fn allows_absent(self) -> bool {
        matches!(self, Comparison::Different(_) | Comparison::DifferentDigest(_))
    }

    pub(super) fn holds(self, cx: &CommandContext<'_>, value: &[u8]) -> Result<bool, Fail> {
        Ok(match self {
            Comparison::Equal(other) => value == other,
            Comparison::Different(other) => value != other,
            Comparison::EqualDigest(other) => digest(cx, value)?.eq_ignore_ascii_case(other),
            Comparison::DifferentDigest(other) => !digest(cx, value)?.eq_ignore_ascii_case(other),
        })
    }
}

/// Whether a request of SET returns or compares the present value.
pub(crate) fn reads_old_value(request: Args<'_>) -> bool {
    let reads = |option| is_option(option, "GET") || Comparison::of_option(option).is_some();
    request.iter().skip(3).any(reads)
}

/// Hexadecimal digits of a digest.
const DIGEST_LEN: usize = 16;

/// Returns the digest of a value, which applications compute with the same function.
// Source: Redis 8.4 documentation, "DIGEST": XXH3 with 64 bits, without a seed
fn digest(cx: &CommandContext<'_>, value: &[u8]) -> Result<[u8; DIGEST_LEN], Fail> {
    cx.spend(value.len() / SCANNED_BYTES)?;
    let text = format!("{:016x}", XxHash3_64::oneshot(value));
    Ok(text.as_bytes().try_into().expect("16 digits"))
}

pub(crate) const DIGEST: Command = Command {
    name: "digest",
    syntax: "key",
    summary: "Returns the XXH3 hash of a string value as 16 hexadecimal digits.",
    since: "8.4.0",
    complexity: "O(N) in the length of the value",
    group: Group::String,
    arity: 2,
    flags: Flags::READONLY.and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::Read)],
    run: reply_digest,
    ..Command::EMPTY
};

fn reply_digest(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let Some(value) = cx.locked.string(cx.db, cx.key(args.get(1)))? else {
        cx.reply.null();
        return Ok(());
    };
    let digest = digest(cx, &value)?;
    cx.reply.bulk(&digest);
    Ok(())
}

pub(crate) const DELEX: Command = Command {
    name: "delex",
    syntax: "key [IFEQ value | IFNE value | IFDEQ comparison-digest | IFDNE comparison-digest]",
    summary: "Deletes a key if its string value fulfils a condition, or without one any key.",
    since: "8.4.0",
    complexity: "O(1) for IFEQ and IFNE, O(N) in the length of the value for IFDEQ and IFDNE",
    group: Group::String,
    arity: -2,
    flags: Flags::WRITE.and(Flags::FAST),
    events: Events::Chosen,
    keys: &[KeySpec::one(KeyAccess::Delete)],
    run: delex,
    ..Command::EMPTY
};

fn delex(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let comparison = match args.len() {
        2 => None,
        4 => {
            let make = Comparison::of_option(args.get(2))
                .ok_or(Fail::text("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
            Some(make(args.get(3)))
        }
        _ => return Err(Fail::arity(DELEX.name)),
    };
    let is_deleted = match comparison {
        None => cx.locked.contains(cx.db, key),
        Some(comparison) => {
            comparison.check()?;
            let value = cx.locked.string(cx.db, key).map_err(|_| {
                Fail::text("ERR Key should be of string type if conditions are specified")
            })?;
            value.map_or(Ok(false), |value| comparison.holds(cx, &value))?
        }
    };
    if is_deleted {
        cx.delete(key)?;
    }
    cx.reply.integer(i64::from(is_deleted));
    Ok(())
}

/// DELIFEQ, of Valkey.
pub(crate) const DELIFEQ: Command = Command {
    name: "delifeq",
    syntax: "key value",
    summary: "Deletes a key if its string value equals the given one.",
    since: "9.0.0",
    complexity: "O(1)",
    arity: 3,
    keys: &[KeySpec::one(KeyAccess::Remove)],
    run: delifeq,
    ..DELEX
};

fn delifeq(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let is_deleted = cx.locked.string(cx.db, key)?.is_some_and(|value| value == args.get(2));
    if is_deleted {
        cx.delete(key)?;
    }
    cx.reply.integer(i64::from(is_deleted));
    Ok(())
}

/// DELVX, of Pika.
pub(crate) const DELVX: Command = Command {
    name: "delvx",
    syntax: "key value",
    summary: "Deletes a key if its string value equals the given one: 1; 0: no such key; -1: it differs.",
    since: "Pika",
    run: delvx,
    ..DELIFEQ
};

// Source: Pika 4.0, `redis_strings.cc`, `Delvx`
fn delvx(cx: &mut CommandContext<'_>, args: Args<'_>) -> Done {
    let key = cx.key(args.get(1));
    let is_equal = cx.locked.string(cx.db, key)?.map(|value| value == args.get(2));
    if is_equal == Some(true) {
        cx.delete(key)?;
    }
    cx.reply.integer(is_equal.map_or(0, |is_equal| if is_equal { 1 } else { -1 }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_redis() {
        // Source: xxHash, `XXH3_64bits` without a seed.
        assert_eq!(format!("{:016x}", XxHash3_64::oneshot(b"")), "2d06800538d394c2");
    }

    #[test]
    fn a_digest_has_sixteen_digits() {
        let check = |digest: &'static [u8]| Comparison::EqualDigest(digest).check();
        assert_eq!(check(b"0123456789abcDEF"), Ok(()));
        for digest in [&b"0123456789abcde"[..], b"0123456789abcdefg", b"0123456789abcdeg", b""] {
            assert!(check(digest).is_err());
        }
        assert_eq!(Comparison::Equal(b"x").check(), Ok(()));
    }
}
