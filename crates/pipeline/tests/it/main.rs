//! The pipeline as its users have it, on loopback: faults on the way, and strange bytes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod broker;
mod carrier;
mod corpus;
mod faults;
mod proxy;
mod strangers;
