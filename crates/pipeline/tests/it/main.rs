//! End-to-end tests of the pipeline over loopback: transmission faults and malformed input.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

mod broker;
mod carrier;
mod corpus;
mod faults;
mod hostile_peers;
mod proxy;
