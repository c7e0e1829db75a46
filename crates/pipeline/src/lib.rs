//! The task pipeline: a generator paces tasks, executors compute them, and a collector accounts for
//! each, even when processes die in between.
//!
//! Threads block on sockets, one per direction of a connection: there are few connections, the
//! frames are large, and computing a batch would block an event loop for a third of a millisecond.
//! Only the kernel queues frames, up to the limit that the credits set.
//!
//! Reading order: [`task`], [`frame`], [`generator::Ledger`], [`generator`], [`executor`],
//! [`collector::StreamLedger`], [`collector`].
#![forbid(unsafe_code)]

mod accept;
pub mod carrier;
pub mod check;
mod cli;
mod clock;
pub mod collector;
pub mod executor;
pub mod frame;
pub mod generator;
mod intervals;
pub mod link;
pub mod local;
pub mod message;
pub mod meter;
pub mod monitor;
mod parent;
mod slots;
pub mod status;
pub mod task;
mod uniform;

pub use cli::{help, run, subcommands};
