//! Error replies to clients, with the texts of Redis.

use std::borrow::Cow;
use std::fmt;

use store::StoreError;
use wire::resp::Args;

use crate::engine::glob::TooLong;

/// Reason why a command failed. `Display` is the text after the `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fail {
    WrongType,
    Syntax,
    NotInteger,
    NotFloat,
    OutOfRange,
    NoSuchKey,
    Overflow,
    /// The command would occupy its reactor for too long.
    TooManyElements,
    /// A text with its prefix (`ERR ...`, `NOPROTO ...`).
    Text(Cow<'static, str>),
    /// A text that quotes bytes of the request, which may not be UTF-8.
    Quoting(Vec<u8>),
}

/// Returns the part of an argument that an error quotes: all before its first zero byte, as in C.
pub(crate) fn shown(argument: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, argument).unwrap_or(argument.len());
    &argument[..end]
}

impl From<TooLong> for Fail {
    fn from(error: TooLong) -> Fail {
        Fail::owned(format!("ERR {error}"))
    }
}

impl Fail {
    /// Creates an error from a text with its prefix.
    pub(crate) const fn text(text: &'static str) -> Fail {
        Fail::Text(Cow::Borrowed(text))
    }

    pub(crate) fn owned(text: String) -> Fail {
        Fail::Text(Cow::Owned(text))
    }

    /// An argument between two texts; see [`shown`].
    pub(crate) fn quoting(before: &str, argument: &[u8], after: &str) -> Fail {
        Fail::Quoting([before.as_bytes(), shown(argument), after.as_bytes()].concat())
    }

    /// The reply after the `-`.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Fail::Quoting(bytes) => Cow::Borrowed(bytes),
            Fail::Text(text) => Cow::Borrowed(text.as_bytes()),
            other => Cow::Owned(other.to_string().into_bytes()),
        }
    }

    /// A wrong number of arguments for a command, or for `container|subcommand`.
    pub(crate) fn arity(name: &str) -> Fail {
        Fail::owned(format!("ERR wrong number of arguments for '{name}' command"))
    }
}

/// Redis's error for a subcommand with an optional argument that receives too many.
// Source: Redis 7.2 `networking.c`, `addReplySubcommandSyntaxError`
pub(crate) fn too_many_arguments(container: &str, args: Args<'_>) -> Fail {
    let after = format!("'. Try {container} HELP.");
    Fail::quoting("ERR unknown subcommand or wrong number of arguments for '", args.get(1), &after)
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fail::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Fail::Syntax => "ERR syntax error",
            Fail::NotInteger => "ERR value is not an integer or out of range",
            Fail::NotFloat => "ERR value is not a valid float",
            Fail::OutOfRange => "ERR index out of range",
            Fail::NoSuchKey => "ERR no such key",
            Fail::Overflow => "ERR increment or decrement would overflow",
            Fail::TooManyElements => {
                "ERR the command would process more elements than elements-per-command-max allows"
            }
            Fail::Text(text) => text,
            Fail::Quoting(bytes) => return f.write_str(&String::from_utf8_lossy(bytes)),
        })
    }
}

impl From<StoreError> for Fail {
    fn from(error: StoreError) -> Fail {
        match error {
            StoreError::WrongType => Fail::WrongType,
            StoreError::TooLong => {
                Fail::text("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
            }
            StoreError::Malformed => Fail::text("ERR internal error: malformed change"),
        }
    }
}
