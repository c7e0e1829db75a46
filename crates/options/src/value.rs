//! Values that parse themselves, and the reasons why a text is not a value.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use base::address::resolve;

/// Reason why a text is not a valid value. Error texts match those of Redis where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("argument must be a memory value")]
    NotBytes,
    #[error("argument couldn't be parsed into an integer")]
    NotInteger,
    #[error("argument must be between {min} and {max} inclusive")]
    OutOfRange { min: i128, max: i128 },
    #[error("argument must be 'yes' or 'no'")]
    NotYesNo,
    #[error("argument(s) must be one of the following: {words}")]
    NotAWord { words: String },
    #[error("argument must be a memory value or a percent value")]
    NotLimit,
    #[error("argument must be UTF-8 text without control characters")]
    ControlCharacter,
    #[error("can't set immutable config")]
    Immutable,
    #[error("only '{value}' is possible here. {reason}")]
    Fixed { value: String, reason: String },
    /// The error of a kind that only one program has.
    #[error("{0}")]
    Invalid(&'static str),
    /// Like `Invalid`, but the text also describes what is expected.
    #[error("{0}")]
    Explained(String),
}

impl ValueError {
    pub fn explained(error: impl std::fmt::Display) -> ValueError {
        ValueError::Explained(error.to_string())
    }
}

/// The value of a kind that is not built in. [`Value::read`] accepts what [`Value::text`] returns.
pub trait Value: Sized {
    fn read(text: &str) -> Result<Self, ValueError>;
    fn text(&self) -> String;
}

impl Value for String {
    fn read(text: &str) -> Result<String, ValueError> {
        Ok(text.to_owned())
    }

    fn text(&self) -> String {
        self.clone()
    }
}

impl Value for PathBuf {
    fn read(text: &str) -> Result<PathBuf, ValueError> {
        Ok(PathBuf::from(text))
    }

    fn text(&self) -> String {
        self.display().to_string()
    }
}

/// `HOST:PORT`. A name is looked up, which may block.
impl Value for SocketAddr {
    fn read(text: &str) -> Result<SocketAddr, ValueError> {
        resolve(text).map_err(ValueError::explained)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// `10ms`, `1h 30m`.
impl Value for Duration {
    fn read(text: &str) -> Result<Duration, ValueError> {
        humantime::parse_duration(text).map_err(ValueError::explained)
    }

    fn text(&self) -> String {
        humantime::format_duration(*self).to_string()
    }
}

/// Empty: none.
impl<T: Value> Value for Option<T> {
    fn read(text: &str) -> Result<Option<T>, ValueError> {
        (!text.is_empty()).then(|| T::read(text)).transpose()
    }

    fn text(&self) -> String {
        self.as_ref().map_or(String::new(), T::text)
    }
}

/// Separated by blanks or commas.
impl<T: Value> Value for Vec<T> {
    fn read(text: &str) -> Result<Vec<T>, ValueError> {
        text.split([' ', ',']).filter(|part| !part.is_empty()).map(T::read).collect()
    }

    fn text(&self) -> String {
        self.iter().map(T::text).collect::<Vec<_>>().join(" ")
    }
}
