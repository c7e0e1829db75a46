//! Tests of the program as its users start it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

mod command_line;
mod options;
mod pipeline;
mod request_lines;
mod secure;
mod tls;
mod web;
