//! The lab's integration tests: one binary.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "helpers of tests are tests; figures of fixtures are small"
)]

mod cql;
mod fixture;
mod http;
mod load;
mod report;
mod serve;
mod server;
mod truth;
