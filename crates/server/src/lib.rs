//! The data server: sessions of the Redis protocol on reactors, one shared keyspace, one log.
//!
//! [`serve`] runs it. The path of a request: `handler` (bytes to requests, one reactor) ->
//! `resp::execute` (locks, runs, logs, gates) -> a command's function in `resp/<family>.rs` ->
//! `store` by mutations -> `binlog`; the reply leaves when its gate opens.
#![forbid(unsafe_code)]

pub mod config;
mod cql;
mod engine;
mod handler;
mod http;
mod logging;
pub mod logtool;
mod protocol;
mod recovery;
pub mod repair;
mod resp;
mod serve;
#[cfg(test)]
mod simulation;
mod tls;

pub use http::check as http_check;
pub use resp::commands_markdown;
pub use serve::serve;
