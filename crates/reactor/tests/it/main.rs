//! Reactors from outside: simulated with faults from seeds, and live on loopback sockets. One
//! binary, because linking several costs more than running them.

mod echo;
mod live;
mod simulated;
