//! Tests of the `myriad` binary, run as its users run it.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod backup;
mod cluster;
mod command_line;
mod commands;
mod cql;
mod diagnostics;
mod environment;
mod failover;
mod hub;
mod long_requests;
mod migrate;
mod options;
mod pipeline;
mod process;
mod replication;
mod request_lines;
mod resp;
mod secure;
mod service_manager;
mod tls;
mod web;
