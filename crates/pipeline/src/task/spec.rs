//! The name of a task, as used on the command line and in the protocol.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::task::{Codec, CommandMode};

/// Maximum spin time of one task, so that a batch of them ends in reasonable time.
pub(crate) const SPIN_NS_MAX: u64 = 1_000_000_000;

/// Maximum length of a command. Each of its bytes takes up to six in a Hello.
const COMMAND_BYTES_MAX: usize = 2_000;

const _: () = assert!(6 * COMMAND_BYTES_MAX + 1_000 <= crate::frame::HELLO_BYTES_MAX);

/// Error for an invalid task name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    #[error(
        "there is no task {0:?}: sha256x10-le, sha256x10-be, sha256x10-ds, powmod, nop, spin:NS, \
         files:DIR, exec:COMMAND or each:COMMAND"
    )]
    Task(String),
    #[error("spin requires nanoseconds up to {SPIN_NS_MAX}, not {0:?}")]
    Spin(String),
    #[error("unknown kernel {0:?}; expected auto, lanes or serial")]
    Kernel(String),
}

/// A task and its parameters. [`TaskSpec::to_string`] returns text that parses to the same value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskSpec {
    Exercise(Codec),
    /// Checksums of the files below a directory.
    Files(String),
    /// A shell command, for each line of the input.
    Command(CommandMode, String),
}

impl fmt::Display for TaskSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exercise(Codec::Sha256Le) => out.write_str("sha256x10-le"),
            Self::Exercise(Codec::Sha256Be) => out.write_str("sha256x10-be"),
            Self::Exercise(Codec::Sha256Ds) => out.write_str("sha256x10-ds"),
            Self::Exercise(Codec::Powmod) => out.write_str("powmod"),
            Self::Exercise(Codec::Nop) => out.write_str("nop"),
            Self::Exercise(Codec::Spin { ns }) => write!(out, "spin:{ns}"),
            Self::Files(dir) => write!(out, "files:{dir}"),
            Self::Command(CommandMode::Exec, command) => write!(out, "exec:{command}"),
            Self::Command(CommandMode::Each, command) => write!(out, "each:{command}"),
        }
    }
}

impl FromStr for TaskSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Ok(Self::Exercise(match text {
            "sha256x10-le" => Codec::Sha256Le,
            "sha256x10-be" => Codec::Sha256Be,
            "sha256x10-ds" => Codec::Sha256Ds,
            "powmod" => Codec::Powmod,
            "nop" => Codec::Nop,
            _ => return parse_with_argument(text),
        }))
    }
}

fn parse_with_argument(text: &str) -> Result<TaskSpec, SpecError> {
    let command = |mode, command: &str| Ok(TaskSpec::Command(mode, command.to_owned()));
    match text.split_once(':') {
        Some(("spin", ns)) => match ns.parse() {
            Ok(ns) if ns <= SPIN_NS_MAX => Ok(TaskSpec::Exercise(Codec::Spin { ns })),
            _ => Err(SpecError::Spin(ns.to_owned())),
        },
        Some(("files", dir)) if !dir.is_empty() => Ok(TaskSpec::Files(dir.to_owned())),
        Some(("exec", text)) if is_command(text) => command(CommandMode::Exec, text),
        Some(("each", text)) if is_command(text) => command(CommandMode::Each, text),
        _ => Err(SpecError::Task(text.to_owned())),
    }
}

/// The plan of a command must fit in a Hello.
fn is_command(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= COMMAND_BYTES_MAX && !text.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in [
            "sha256x10-le",
            "sha256x10-be",
            "sha256x10-ds",
            "powmod",
            "nop",
            "spin:250",
            "files:/usr/share:x",
            "exec:grep -c :",
            "each:gzip < {} | wc -c",
        ] {
            assert_eq!(name.parse::<TaskSpec>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "sha256",
            "spin",
            "spin:",
            "spin:1000000001",
            "spin:-1",
            "files:",
            "exec:",
            "each: ",
        ] {
            assert!(name.parse::<TaskSpec>().is_err(), "{name}");
        }
    }
}
