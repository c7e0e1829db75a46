//! The web server: a master that binds and supervises, and workers, processes or threads, that serve.
//!
//! The master never serves: it starts workers, hands them their listening sockets, replaces those that
//! die, and takes signals. Master and workers talk over socket pairs ([`channel`]), and each worker is
//! one reactor ([`worker`]). How connections come to workers is [`config::Accept`]; all but the
//! historical designs take part in the same code.
//!
//! A worker process is this program again, started with its end of the pair as standard input: all
//! descriptors come through it as messages, so nothing is inherited by chance.
#![forbid(unsafe_code)]

mod address;
mod channel;
pub mod check;
mod config;
mod content;
mod counters;
mod door;
mod identity;
mod logging;
mod master;
mod privileges;
mod scheme;
mod table;
mod worker;

pub use base::usage::UsageError;

use lexopt::{Arg, Parser};

/// The first word of a worker process.
const WORKER_FLAG: &str = "--worker";
/// Says that listening sockets come from a running master through standard input.
const INHERIT_FLAG: &str = "--inherit";

/// Reads what stands behind `myriad web` and does it. An error of type [`lexopt::Error`] or
/// [`UsageError`] is about the command line.
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

/// An argument that is not expected here.
fn unexpected(argument: Arg<'_>) -> anyhow::Error {
    argument.unexpected().into()
}
