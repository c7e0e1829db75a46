//! The task pipeline: a generator paces tasks, executors compute them, a collector accounts for
//! each, whatever dies in between.
//!
//! Threads block on sockets, one per direction of a connection: connections are few, frames large,
//! and a thread that computes for a third of a millisecond is no event loop. Nothing is queued but
//! by the kernel, and that only as far as credits allow.
//!
//! Reading order: [`task`], [`frame`], [`generator::Ledger`], [`generator`], [`executor`],
//! [`collector::StreamLedger`], [`collector`].
#![forbid(unsafe_code)]

mod ablation;
pub mod carrier;
pub mod check;
mod cli;
pub mod clock;
pub mod collector;
pub mod executor;
pub mod frame;
pub mod generator;
pub mod intervals;
pub mod link;
pub mod local;
pub mod message;
pub mod meter;
pub mod monitor;
mod slots;
pub mod status;
pub mod task;
pub mod uniform;

pub use cli::{help, run};
