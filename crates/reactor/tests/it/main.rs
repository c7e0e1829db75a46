//! Reactors from outside: simulated with faults from seeds, and live on loopback sockets. One
//! binary, because linking several costs more than running them.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod echo;
mod live;
mod simulated;
mod solo;
mod tls;
