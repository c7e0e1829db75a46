//! `myriad pipeline ...`: one row per subcommand.

mod ablation;
mod arguments;
mod calibrate;
mod carrier;
mod console;
mod memory;
mod processes;
mod roles;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use lexopt::Parser;
use tracing_subscriber::EnvFilter;

/// One subcommand.
struct Subcommand {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Parser) -> Result<()>,
}

#[rustfmt::skip]
const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "run", about: "All parts in one process, over loopback", run: roles::run },
    Subcommand { name: "generator", about: "Give out tasks on schedule", run: roles::generator },
    Subcommand { name: "executor", about: "Compute tasks", run: roles::executor },
    Subcommand { name: "collector", about: "Collect results, check them, keep the books", run: roles::collector },
    Subcommand { name: "monitor", about: "Show how all parts are doing, in a browser", run: roles::monitor },
    Subcommand { name: "carrier", about: "Carry connections by way of a message broker", run: carrier::run },
    Subcommand { name: "calibrate", about: "Check and time the kernels on this machine", run: calibrate::run },
    Subcommand { name: "ablation", about: "Measure steps of tuning, the naive way beside the right one", run: ablation::run },
];

/// The text of `myriad pipeline --help`.
pub fn help() -> String {
    let mut text = String::from(
        "Computes tasks at a paced rate, with none lost, whatever dies.\n\n\
         Usage: myriad pipeline <COMMAND> [OPTIONS]\n\n",
    );
    for subcommand in SUBCOMMANDS {
        text.push_str(&format_row(subcommand));
    }
    text.push_str("\nEvery command takes --help. docs/pipeline.md says how it works.\n");
    text
}

fn format_row(subcommand: &Subcommand) -> String {
    format!("  {:<12} {}\n", subcommand.name, subcommand.about)
}

/// Does what the rest of the command line asks for: the name of a subcommand, then its options.
pub fn run(parser: &mut Parser) -> Result<()> {
    use lexopt::prelude::*;
    match parser.next()? {
        None => bail!("a command is missing; see myriad pipeline --help"),
        Some(Short('h') | Long("help")) => print(&help()),
        Some(Value(name)) if name == "help" => print(&help()),
        Some(Value(name)) => {
            let wanted = SUBCOMMANDS.iter().find(|subcommand| name == subcommand.name);
            match wanted {
                Some(subcommand) => (subcommand.run)(parser),
                None => {
                    bail!("unknown command pipeline {}; see myriad pipeline --help", name.display())
                }
            }
        }
        Some(other) => Err(other.unexpected().into()),
    }
}

/// Writes to standard output; a reader that has gone away is an error that the program ignores.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Set by the first Ctrl-C, which ends a run in order. The second ends the process.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("listen for signals")?;
    }
    Ok(stop)
}

/// Warnings go to standard error; `MYRIAD_LOG` asks for more.
fn log_to_stderr() -> Result<()> {
    let filter = EnvFilter::try_from_env("MYRIAD_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init()
        .map_err(|error| anyhow!("install the logger: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_listed() {
        let text = help();
        for subcommand in SUBCOMMANDS {
            assert!(text.contains(&format!("\n  {:<12} ", subcommand.name)), "{text}");
        }
    }

    #[test]
    fn strange_commands_are_refused() {
        let refused =
            |arguments: &[&str]| run(&mut Parser::from_args(arguments)).unwrap_err().to_string();
        assert!(refused(&[]).contains("missing"));
        assert!(refused(&["fly"]).contains("unknown command pipeline fly"));
        assert!(refused(&["--fast"]).contains("--fast"));
    }
}
