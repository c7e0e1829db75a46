//! Protocol-independent part of the server: data, and the operations on it.
//!
//! Reading order: `server_state` (state of all reactors) and `reactor_state` (state of one); `gate` and
//! `commit` (the only path by which data changes), `room`, `elements` and `queue_age` (limits of a
//! request), `expire`, `evict` and `purge` (changes in the background), `blocked` (clients that wait
//! for keys), `invalidations` (clients that cache keys), `snapshots` and `snapshot_taker`,
//! `replication` and `role_change` (masters and replicas), `protection` (addresses without a password), `refusal` (texts of errors), `rdb_file`,
//! `transfers` and `transfer_thread` (RDB files and streams to replicas), `migrations` and
//! `migration_threads` (MIGRATE), `pubsub`, `prepared` (statements); `contents` (what tools count);
//! `requests`, `published`, `client_address`, `client_row`, `hot_keys`, `key_usage`, `command_log`,
//! `latency`, `activity`, `stall_detector` and others (observability).

pub(crate) mod accounts;
pub(crate) mod acl;
pub(crate) mod activity;
pub(crate) mod baseline;
pub(crate) mod blocked;
pub(crate) mod busiest_clients;
pub(crate) mod change_json;
pub(crate) mod client_address;
pub(crate) mod client_row;
pub(crate) mod clock;
pub(crate) mod command_log;
pub(crate) mod commit;
pub(crate) mod contents;
pub(crate) mod context;
pub(crate) mod elements;
pub(crate) mod evict;
pub(crate) mod expire;
pub(crate) mod free_thread;
pub(crate) mod functions;
pub(crate) mod gate;
pub(crate) mod glob;
pub(crate) mod history;
pub(crate) mod hot_keys;
pub(crate) mod hub;
pub(crate) mod import_mode;
pub(crate) mod inbox;
pub(crate) mod invalidations;
pub(crate) mod key_usage;
pub(crate) mod latency;
pub(crate) mod latency_counts;
pub(crate) mod leftovers;
pub(crate) mod line_writer;
pub(crate) mod link_state;
pub(crate) mod local_tables;
pub(crate) mod long_requests;
pub(crate) mod mail;
pub(crate) mod migration_threads;
pub(crate) mod migrations;
pub(crate) mod monitor_feeds;
pub(crate) mod named_databases;
pub(crate) mod pause;
pub(crate) mod prepared;
pub(crate) mod process;
pub(crate) mod protection;
pub(crate) mod published;
pub(crate) mod pubsub;
pub(crate) mod purge;
pub(crate) mod queue_age;
pub(crate) mod rdb;
pub(crate) mod rdb_file;
pub(crate) mod reactor_state;
pub(crate) mod records;
pub(crate) mod refusal;
pub(crate) mod replay;
pub(crate) mod replication;
pub(crate) mod reply_reservation;
pub(crate) mod requests;
pub(crate) mod role_change;
pub(crate) mod room;
pub(crate) mod running_scripts;
pub(crate) mod scripts;
pub(crate) mod secret;
pub(crate) mod server_state;
pub(crate) mod signal;
pub(crate) mod snapshot_taker;
pub(crate) mod snapshots;
pub(crate) mod stall_detector;
pub(crate) mod stalls;
pub(crate) mod stored_rows;
pub(crate) mod threads;
pub(crate) mod transfer_thread;
pub(crate) mod transfers;
pub(crate) mod untracked;
pub(crate) mod write_clock;
