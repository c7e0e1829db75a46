//! What is served: files below the root, and what HTTP says about parts, versions and encodings.

pub(crate) mod conditions;
pub(crate) mod encoding;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod long;
pub(crate) mod media;
pub(crate) mod path;
