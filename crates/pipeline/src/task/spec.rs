//! The name of a task, as used on the command line and in the protocol.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::task::Codec;

/// Maximum spin time of one task, so that a batch of them ends in reasonable time.
pub(crate) const SPIN_NS_MAX: u64 = 1_000_000_000;

/// Error for an invalid task name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    #[error(
        "there is no task {0:?}: sha256x10-le, sha256x10-be, sha256x10-ds, powmod, nop, spin:NS \
         or files:DIR"
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
    match text.split_once(':') {
        Some(("spin", ns)) => match ns.parse() {
            Ok(ns) if ns <= SPIN_NS_MAX => Ok(TaskSpec::Exercise(Codec::Spin { ns })),
            _ => Err(SpecError::Spin(ns.to_owned())),
        },
        Some(("files", dir)) if !dir.is_empty() => Ok(TaskSpec::Files(dir.to_owned())),
        _ => Err(SpecError::Task(text.to_owned())),
    }
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
        ] {
            assert_eq!(name.parse::<TaskSpec>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "sha256", "spin", "spin:", "spin:1000000001", "spin:-1", "files:"] {
            assert!(name.parse::<TaskSpec>().is_err(), "{name}");
        }
    }
}
