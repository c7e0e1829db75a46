//! The whole server on one thread, from a seed: reactors, log, snapshots and recovery are the real
//! ones, the network and the disk are in memory and fail.
//!
//! `world` runs the server and its clients, `model` is what the data must be, `oracle` judges what
//! clients are told and what a crash has left, `chaos` decides what happens next. `behaviour` tries single
//! parts of it, `cql` those of CQL connections and `cql_statements` and `cql_notes` those of their statements, with the
//! clients of `cql_client`; `cql_chaos` is `chaos` for statements, judged by `cql_model`;
//! `histories` has clients of both protocols at the same values, which `registers` knows, judged by `linear`; `http`,
//! `http_pipelines` and `http_routes` those of HTTP, `http_hottest` what its console says of keys and clients; `schema` the schema of CQL, `roles` who may do what in it; `pubsub` messages
//! of channels, `pubsub_log` what these have to do with the log and `pubsub_keys` those about keys, with the
//! clients of `pubsub_client`; `groups` those of a log on a slow disk; `busy` those of a reactor that takes no
//! turns; `hostile` those that keep clients from harming others; `restore` starts from copied or missing
//! files, `restart` with the clock set back, and takes snapshots on a full disk.

mod behaviour;
mod busy;
mod chaos;
mod cql;
mod cql_chaos;
mod cql_client;
#[cfg(feature = "experiments")]
mod cql_experiments;
mod cql_model;
mod cql_notes;
mod cql_statements;
mod groups;
mod histories;
mod hostile;
mod http;
mod http_client;
mod http_hottest;
mod http_pipelines;
mod http_routes;
mod linear;
mod model;
mod options;
mod oracle;
mod pubsub;
mod pubsub_client;
mod pubsub_keys;
mod pubsub_log;
mod registers;
mod restart;
mod restore;
mod roles;
mod schema;
mod slow_disk;
mod sync_disk;
mod tests;
mod world;

// For tests of modules that do not know the log.
pub(crate) use binlog::{Disk, FaultDisk};
