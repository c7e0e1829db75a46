//! Content: files below the root, with HTTP conditions, ranges and codings.

pub(crate) mod conditions;
pub(crate) mod encoding;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod long;
pub(crate) mod media;
pub(crate) mod path;
