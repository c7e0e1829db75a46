//! The process that makes load.

pub mod append;
mod spec;

pub use spec::{
    AppendWork, Arrival, Commit, Distribution, Keys, LoadEvent, LoadReport, LoadSpec, LogMode,
    LogReport, Operation, Protocol, Schedule, Sharing, Sizes, SocketWork, WaitFor, Warmup, Work,
};
