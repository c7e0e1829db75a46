//! Statements on a real server's data, in process: a script says what is asked and what comes back.

mod harness;
mod model;
mod purging;
mod reads;
mod refusals;
mod writes;
