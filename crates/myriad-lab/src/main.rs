//! The `myriad-lab` program: measures servers. The crate `lab` does all of it.
//!
//! Exit status: 0 success, 1 failure, 2 wrong command line or definition. A reader that closes the
//! output early (`myriad-lab repro --list | head`) is not a failure.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use base::usage::UsageError;
use lab::measure::{Build, set_build};
use lexopt::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    set_build(Build { commit: env!("LAB_COMMIT").to_owned(), rustc: env!("LAB_RUSTC").to_owned() });
    match lab::run(&mut Parser::from_env()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed: then the message is lost.
            let _ = writeln!(io::stderr(), "myriad-lab: {error:#}");
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
