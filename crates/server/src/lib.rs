//! The data server: sessions of the Redis protocol on reactors, one shared keyspace, one log.
//!
//! [`serve`] runs it. The path of a request: `handler` (bytes to requests, one reactor) ->
//! `resp::execute` (locks, runs, logs, gates) -> a command's function in `resp/<family>.rs` ->
//! `store` by mutations -> `binlog`; the reply leaves when its gate opens.
#![forbid(unsafe_code)]

mod accounts;
mod baseline;
mod busiest_clients;
mod client_row;
mod clock;
mod commit;
pub mod config;
mod cql;
mod elements;
mod evict;
mod expire;
mod gate;
mod glob;
mod handler;
mod hot_keys;
mod http;
mod janitor;
mod latency;
mod line_writer;
mod logging;
pub mod logtool;
mod mail;
mod monitor_feeds;
mod pause;
mod prepared;
mod process;
mod protocol;
mod published;
mod pubsub;
mod purge;
mod records;
mod recovery;
pub mod repair;
mod requests;
mod resp;
mod room;
mod secret;
mod serve;
mod shared;
#[cfg(test)]
mod simulation;
mod slowlog;
mod snapshot_taker;
mod snapshots;
mod tls;
mod untracked;
mod worker;
mod write_clock;

pub use http::check as http_check;
pub use resp::commands_markdown;
pub use serve::serve;
