//! Statements on a real server's data, in process: a script contains requests and the expected
//! results.

mod ahead;
mod conditional;
mod dropping;
mod growing;
mod harness;
mod indexes;
pub(crate) mod model;
mod options;
mod pausing;
mod purging;
mod reads;
mod redis;
mod redis_pieces;
mod refusals;
mod units;
mod writes;
