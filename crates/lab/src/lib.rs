//! The lab: loads a server, Myriad or another one, and measures the cost of each operation and
//! where the time is spent. It treats servers as black boxes: sockets, `/proc`, and the counters
//! that they report.
//!
//! A *cell* is one point of a grid over settings of the server and of the load. It is measured
//! several times, each time on a fresh server. A separate process generates the load (`myriad-lab
//! generate`: a [`load::LoadSpec`] in, [`load::LoadEvent`]s out), so that the processor time of
//! load and server can be distinguished. Each measurement is one [`Row`]; everything else (medians,
//! verdicts, comparisons, reports) is computed from rows.
#![forbid(unsafe_code)]

mod cassandra_stress;
mod cli;
mod command_line;
mod compare;
mod definition;
mod echo;
mod layers;
pub mod load;
mod max;
pub mod measure;
mod profile;
mod redis_benchmark;
pub mod report;
mod repro;
pub mod row;
pub mod run;
pub mod serve;
pub mod stats;
mod subject;
mod trial;
mod webbench;

pub use cli::{help, run};
pub use row::{Row, Verdict};
