//! Simulates the whole server on one thread, from a seed. Reactors, log, snapshots and recovery are
//! the real ones; the network and the disk are in memory and inject failures.
//!
//! `world` runs the server and its clients, `model` is the expected data, `oracle` checks replies
//! and the state after a crash, `chaos` chooses the next event. `behaviour` checks single
//! behaviors, `cql` those of CQL connections, and `cql_statements` and `cql_notes` those of their
//! statements, with the clients of `cql_client`; `cql_chaos` is `chaos` for statements, checked
//! against `cql_model`; in `histories`, clients of both protocols use the values that `registers`
//! defines, and `linear` checks the result; `http`, `http_pipelines` and `http_routes` check HTTP,
//! `http_hottest` the keys and clients that its console lists, `http_users` permissions; `schema` checks the CQL schema,
//! `roles` permissions; `pubsub` checks channels, `pubsub_log` their relation to the log and
//! `pubsub_keys` keyspace events, with the clients of `pubsub_client`; `groups` checks group commit
//! on a slow disk; `blocking` checks clients that wait for keys, `tracking` clients that cache keys;
//! `replication` checks two servers of which one replicates the other, and `promotions` three of which any becomes the master; `hub` several that all take writes, and `hub_merge` how they merge;
//! `timeseries` checks time series and named databases over crashes;
//! `users` checks permissions on several reactors; `overload` checks which requests an overloaded reactor refuses; `busy` checks a reactor that takes no turns, and `spare` the one that serves administrators;
//! `hostile` checks limits that
//! protect clients from each other; `restore` starts from copied or missing files, `restart`
//! restarts with the clock set back, and takes snapshots on a full disk.

mod behaviour;
mod blocking;
mod busy;
mod chaos;
mod cluster;
mod contended;
mod cql;
mod cql_chaos;
mod cql_client;
#[cfg(feature = "experiments")]
mod cql_experiments;
mod cql_model;
mod cql_neighbours;
mod cql_notes;
mod cql_statements;
mod field_expiry;
mod full_disk;
mod functions;
mod groups;
mod histories;
mod hostile;
mod http;
mod http_client;
mod http_hottest;
mod http_pipelines;
mod http_routes;
mod http_users;
mod hub;
mod hub_background;
mod hub_merge;
mod lasting;
mod linear;
mod long_requests;
mod members;
mod model;
mod options;
mod oracle;
mod overload;
mod promotions;
mod pubsub;
mod pubsub_client;
mod pubsub_keys;
mod pubsub_log;
mod rdb;
mod registers;
mod replication;
mod restart;
mod restore;
mod roles;
mod schema;
mod secrets;
mod slow_disk;
mod spare;
mod sync_disk;
mod tests;
mod timeseries;
mod tracking;
mod users;
mod ways_in;
mod world;

// For tests of modules that do not depend on the log.
pub(crate) use binlog::{Disk, FaultDisk};
