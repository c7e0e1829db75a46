//! The data server: client sessions on reactors, one shared keyspace, one log.
//!
//! [`serve()`] runs the server. The path of a Redis command: `handler` (bytes to requests, on one
//! reactor) -> `commands::execute` (locks, runs, logs, gates) -> the command's function in
//! `commands/<family>.rs` -> `store` through mutations -> `binlog`. The reply is sent when its gate
//! opens.
#![deny(unsafe_code)]

pub mod backup;
mod commands;
pub mod config;
pub mod config_check;
mod cql;
mod data_directory;
pub mod doctor;
mod engine;
pub mod export;
mod greeting;
mod handler;
mod http;
pub mod import;
mod logging;
pub mod logtool;
mod new_directory;
mod protocol;
mod recovery;
pub mod repair;
mod replica;
pub mod restore;
mod serve;
mod service_manager;
#[cfg(test)]
mod simulation;
mod statements;
mod telemetry;
mod tls;
pub mod upgrade;

pub use commands::commands_markdown;
pub use commands::scripting::check as script_check;
pub use http::check as http_check;
pub use serve::serve;
