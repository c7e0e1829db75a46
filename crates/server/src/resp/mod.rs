//! The Redis protocol's side of the server: commands as values in a table, sessions, execution.

pub(crate) mod command;
mod connection;
pub(crate) mod cx;
pub(crate) mod execute;
pub(crate) mod fail;
mod generic;
mod glob;
mod hashes;
mod lists;
pub(crate) mod registry;
mod scan;
pub(crate) mod session;
mod sets;
mod strings;
mod table;
pub(crate) mod transactions;
mod zset_algebra;
mod zset_range;
mod zsets;

pub(crate) use registry::CommandId;
pub(crate) use session::Session;
