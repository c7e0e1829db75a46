//! The web server: a master that binds and supervises, and workers, processes or threads, that
//! serve.
//!
//! The master starts workers, passes them their listening sockets, replaces dead workers, and
//! handles signals. Master and workers communicate over socket pairs ([`channel`]), and each worker
//! is one reactor ([`worker`]). [`config::Accept`] determines how connections are distributed to
//! workers; all strategies but the historical ones share the same code.
//!
//! A worker process is this program, started with its end of the pair as standard input: it
//! receives all descriptors as messages, so it inherits nothing by accident.
#![forbid(unsafe_code)]

mod accept;
mod address;
mod channel;
pub mod check;
mod config;
mod content;
mod counters;
mod identity;
mod logging;
mod master;
mod privileges;
mod scheme;
mod table;
mod worker;

pub use base::usage::UsageError;
pub use config::{notes, option_texts};

use lexopt::Parser;

/// First argument of a worker process.
const WORKER_FLAG: &str = "--worker";
/// Indicates that a running master passes listening sockets through standard input.
const INHERIT_FLAG: &str = "--inherit";

/// Parses the arguments after `myriad web` and runs the server. An error of type [`lexopt::Error`]
/// or [`UsageError`] concerns the command line.
pub fn run(parser: &mut Parser) -> anyhow::Result<()> {
    let words: Vec<std::ffi::OsString> = parser.raw_args()?.collect();
    if words.first().is_some_and(|word| word == WORKER_FLAG) {
        return worker::run_process();
    }
    let (inherits, words) = match words.split_first() {
        Some((first, rest)) if first == INHERIT_FLAG => (true, rest.to_vec()),
        _ => (false, words),
    };
    match config::Source::parse(&mut Parser::from_args(&words))? {
        None => {
            use std::io::Write as _;
            let mut out = std::io::stdout().lock();
            out.write_all(config::help().as_bytes())?;
            Ok(out.flush()?)
        }
        Some(source) => master::run(source, &words, inherits),
    }
}
