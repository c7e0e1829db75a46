//! The `myriad` program: runs the command that the command line names.
//!
//! Exit status: 0 success, 1 failure, 2 wrong command line or configuration. It is not a failure if
//! the reader of the output closes it early (`myriad log dump DIR | head`).
#![forbid(unsafe_code)]

mod command_line;
mod commands;
mod completion;
mod manual;
mod storage;

use std::io::{self, Write};
use std::process::ExitCode;

use base::causes::with_causes;
use base::messages;
use base::usage::UsageError;
use lexopt::Parser;
use options::ConfigError;
use server::backup;
use server::config::Environment;
use server::import::{cassandra, live};
use server::{config_check, doctor, logtool, repair, restore, upgrade};
use storage::Access;

use crate::command_line::{Command, parse};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let status = status(&mut Parser::from_env(), Environment::of(std::env::vars_os()));
    messages::flush_all();
    ExitCode::from(status)
}

/// Runs the command on the command line. Returns the exit status.
fn status(parser: &mut Parser, environment: Environment) -> u8 {
    let command = match parse(parser, environment) {
        Ok(command) => command,
        Err(error) => {
            complain(&error.to_string());
            return 2;
        }
    };
    match run(command, parser) {
        Ok(()) => 0,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) if is_of_usage(&error) => {
            complain(&error.to_string());
            2
        }
        Err(error) => {
            complain(&with_causes(&*error));
            1
        }
    }
}

/// Whether the arguments or the configuration are wrong. Some options can be checked only with the
/// files that they name.
fn is_of_usage(error: &anyhow::Error) -> bool {
    error.is::<lexopt::Error>() || error.is::<UsageError>() || error.is::<ConfigError>()
}

fn run(command: Command, parser: &mut Parser) -> anyhow::Result<()> {
    match command {
        Command::Print(text) => {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            Ok(out.flush()?)
        }
        Command::Serve(config) => server::serve(*config),
        Command::Doctor(config) => doctor::examine(&config, &mut io::stdout().lock()),
        Command::ConfigCheck { file, environment } => {
            config_check::check(&file, &environment, &mut io::stdout().lock())
        }
        Command::LogDump { dir, from } => logtool::dump(&dir, from),
        Command::LogTail { dir, from, follow } => logtool::tail(&dir, from, follow),
        Command::LogVerify { dir } => logtool::verify(&dir),
        Command::LogRepair { dir, mode } => repair::repair(&dir, mode, &mut io::stdout().lock()),
        Command::Import { from, dir, losses } => {
            server::import::import(&from, &dir, losses, &mut io::stdout().lock())
        }
        Command::LiveImport(import) => {
            detach_progress()?;
            live::import(&import, &mut io::stdout().lock())
        }
        Command::LiveVerify { source, target } => {
            live::verify(&source, &target, &mut io::stdout().lock())
        }
        Command::CassandraImport(import) => {
            detach_progress()?;
            cassandra::import(&import, &mut io::stdout().lock())
        }
        Command::CassandraVerify(import) => cassandra::verify(&import, &mut io::stdout().lock()),
        Command::Export { dir, to } => server::export::export(&dir, &to, &mut io::stdout().lock()),
        Command::Backup { backup, place } => {
            detach_progress()?;
            let storage = place.open(Access::Write);
            storage.and_then(|storage| backup::take(&backup, &*storage, &mut io::stdout().lock()))
        }
        Command::Restore { place, to, target } => {
            place.open(Access::Read).and_then(|storage| match to {
                Some(to) => restore::restore(&*storage, &to, target, &mut io::stdout().lock()),
                None => restore::verify(&*storage, target, &mut io::stdout().lock()),
            })
        }
        Command::UpgradeCheck { dir } => upgrade::check(&dir, &mut io::stdout().lock()),
        Command::WriteManual { dir } => manual::write(&dir),
        Command::Web => web::run(parser),
        Command::Pipeline => pipeline::run(parser),
    }
}

/// Passes the progress of a long command to a thread of its own, so that the command does not wait
/// for a reader.
fn detach_progress() -> anyhow::Result<()> {
    messages::redirect_standard_error(|lines, _| {
        messages::print_error(&format!("myriad: {lines} lines of progress were lost"));
    })?;
    Ok(())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints an error. If standard error is closed, the message is lost.
fn complain(text: &str) {
    messages::print_error(&format!("myriad: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_of_a_repair_reports_whether_the_server_can_start() {
        let dir = std::env::temp_dir().join(format!("myriad-log-status-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        // The directory had a log, but neither copy of its manifest is valid.
        std::fs::write(dir.join("log.manifest"), [0; 8192]).unwrap();
        let path = dir.to_str().unwrap();
        for (arguments, expected) in [
            (&["log", "repair"][..], 2),
            (&["log", "verify", path], 1),
            (&["log", "repair", path], 1),
            (&["upgrade", "--check", path], 1),
            (&["log", "repair", path, "--apply"], 0),
            (&["upgrade", "--check", path], 0),
            (&["log", "repair", path], 0),
            (&["log", "verify", path], 0),
            (&["log", "repair", "no such directory", "--apply"], 1),
            (&["upgrade", "--check", "no such directory"], 1),
            (&["upgrade"], 2),
        ] {
            let found = status(&mut Parser::from_args(arguments), Environment::default());
            assert_eq!(found, expected, "{arguments:?}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_broken_pipe_is_found_under_its_context() {
        let broken = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&broken.context("dump the log")));
        assert!(!is_broken_pipe(&anyhow::anyhow!("disk on fire")));
    }
}
