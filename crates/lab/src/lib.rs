//! The lab: drives a server, Myriad or a peer, and says what each operation costs it and where
//! its time goes. It knows servers only from outside: sockets, `/proc`, and the counters that they
//! report themselves.
//!
//! A *cell* is one point of a grid over settings of the server and of the load; it is measured
//! several times, each time on a fresh server. The load is made by a process of its own (`myriad-lab
//! generate`: a [`load::LoadSpec`] in, [`load::LoadEvent`]s out), so that the processor time of load
//! and server are apart. Each measurement is one [`Row`]; everything else (medians, verdicts,
//! comparisons, reports) is computed from rows.
#![forbid(unsafe_code)]

mod cassandra_stress;
mod cli;
mod command_line;
mod compare;
pub mod definition;
mod echo;
pub mod load;
mod max;
pub mod measure;
mod peel;
pub mod profile;
mod redis_benchmark;
pub mod report;
pub mod repro;
pub mod row;
pub mod run;
pub mod serve;
pub mod stats;
pub mod subject;
mod trial;
mod webbench;

pub use cli::{help, run};
pub use row::{Row, Verdict};
