//! The command language of Redis: commands as values in a table, sessions, execution.
//!
//! It serves every protocol that runs commands. `handler` decodes RESP and sends the replies.

pub(crate) mod acl;
pub(crate) mod administration;
mod audit;
mod bitmaps;
mod blocking;
pub(crate) mod client;
mod cluster;
pub(crate) mod command;
mod command_log;
mod config;
mod connection;
pub(crate) mod context;
mod databases;
mod debug;
mod diagnosis;
pub(crate) mod execute;
pub(crate) mod fail;
mod generic;
mod geo;
mod hashes;
mod help;
mod hot_keys;
mod hub;
mod hyperloglog;
mod info;
mod introspection;
mod lists;
pub(crate) mod long_requests;
mod memory;
mod monitor;
pub(crate) mod notices;
mod pika_hub;
mod probes;
mod pubsub;
pub(crate) mod registry;
mod replication;
mod scan;
pub(crate) mod scripting;
mod server;
pub(crate) mod session;
mod sets;
mod sort;
mod streams;
mod strings;
mod table;
mod timeseries;
pub(crate) mod transactions;
mod zset_algebra;
mod zset_range;
mod zsets;

#[cfg(test)]
pub(crate) use config::change_options;
pub(crate) use config::reload;
pub(crate) use connection::{SELECT, database};
#[cfg(test)]
pub(crate) use context::REPLY_BYTES_MAX;
pub(crate) use generic::DEL;
pub(crate) use info::INFO;
pub use introspection::markdown as commands_markdown;
pub(crate) use pubsub::{PSUBSCRIBE, SUBSCRIBE};
pub(crate) use session::Session;
pub(crate) use strings::{GET, SET};
