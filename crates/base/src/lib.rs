//! What every room of the house may use: units, time as a value, memory trackers, stage timers.
//! No word of the domain (key, log, connection) occurs here.
#![forbid(unsafe_code)]

pub mod memory;
pub mod stages;
pub mod time;
pub mod units;
