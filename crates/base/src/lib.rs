//! Foundations that every crate may use: addresses, units, time as a value, memory trackers, stage
//! timers, near names, hexadecimal digits, the text of errors, the error of a wrong command line,
//! and messages to the operator.
//! No domain term (key, record, connection) occurs here.
#![forbid(unsafe_code)]

pub mod address;
pub mod causes;
pub mod hex;
pub mod memory;
pub mod messages;
pub mod nearest;
pub mod planted;
pub mod stages;
pub mod time;
pub mod units;
pub mod usage;
