//! The data server: client sessions on reactors, one shared keyspace, one log.
//!
//! [`serve`] runs the server. The path of a Redis command: `handler` (bytes to requests, on one
//! reactor) -> `resp::execute` (locks, runs, logs, gates) -> the command's function in
//! `resp/<family>.rs` -> `store` through mutations -> `binlog`. The reply is sent when its gate
//! opens.
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
