//! `myriad-lab ...`: one row per subcommand.

use anyhow::{Result, bail};
use base::usage::UsageError;
use lexopt::Parser;

use crate::command_line::{CommandLine, Job, Subcommand, printing};

const VERSION: &str = concat!("myriad-lab ", env!("CARGO_PKG_VERSION"), "\n");

#[rustfmt::skip]
const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "ablation", about: "Measure a tuning step of the pipeline: a finding out, as JSON", read: crate::repro::ablation_command },
    Subcommand { name: "cassandra-stress", about: "Generate load with that tool's options and output format", read: crate::cassandra_stress::command },
    Subcommand { name: "compare", about: "Compare two servers under the same load", read: crate::compare::command },
    Subcommand { name: "echo", about: "Echo all input", read: crate::echo::command },
    Subcommand { name: "generate", about: "Generate load: a specification in, events out, as JSON", read: crate::load::command },
    Subcommand { name: "layers", about: "Measure the cost of each server layer for a CQL request", read: crate::layers::command },
    Subcommand { name: "max", about: "Find the highest rate within latency limits", read: crate::max::command },
    Subcommand { name: "redis-benchmark", about: "Generate load with that tool's options and output format", read: crate::redis_benchmark::command },
    crate::profile::SUBCOMMAND,
    Subcommand { name: "report", about: "Make a page and a CSV file from the rows of a run", read: crate::report::command },
    Subcommand { name: "run", about: "Measure every cell of a definition", read: crate::run::command },
    Subcommand { name: "repro", about: "Re-run tables of the source documents", read: crate::repro::command },
    Subcommand { name: "results", about: "Print measurements next to those of the source documents", read: crate::repro::results_command },
    Subcommand { name: "serve", about: "Show a run in a browser while it is in progress", read: crate::serve::command },
    Subcommand { name: "webbench", about: "Load a web server with that tool's options and output format", read: crate::webbench::command },
];

/// Returns the text of `myriad-lab --help`.
pub fn help() -> String {
    let mut text = String::from(
        "Measures servers: Myriad or a peer.\n\nUsage: myriad-lab <COMMAND> [ARGUMENTS]\n\n",
    );
    for subcommand in SUBCOMMANDS {
        text.push_str(&row(subcommand));
    }
    text.push_str("\nEvery command takes --help.\n");
    text
}

fn row(subcommand: &Subcommand) -> String {
    format!("  {:<18} {}\n", subcommand.name, subcommand.about)
}

/// Executes the rest of the command line: the name of a subcommand, then its arguments. A
/// [`UsageError`] concerns the command line or a definition; any other error is a failure.
pub fn run(parser: &mut Parser) -> Result<()> {
    let job = read(parser).map_err(|error| match error.downcast::<lexopt::Error>() {
        // Its text already contains its cause.
        Ok(error) => UsageError::new(error),
        Err(error) => UsageError::new(format_args!("{error:#}")),
    })?;
    job()
}

fn read(parser: &mut Parser) -> Result<Job> {
    use lexopt::prelude::*;
    match parser.next()? {
        None => bail!("missing command; see myriad-lab --help"),
        Some(Short('h') | Long("help")) => Ok(printing(help())),
        Some(Value(name)) if name == "help" => Ok(printing(help())),
        Some(Short('V') | Long("version")) => Ok(printing(VERSION)),
        Some(Value(name)) if name == "version" => Ok(printing(VERSION)),
        Some(Value(name)) => match SUBCOMMANDS.iter().find(|subcommand| name == subcommand.name) {
            Some(subcommand) => (subcommand.read)(&mut CommandLine::new(parser)),
            None => bail!("unknown command {}; see myriad-lab --help", name.display()),
        },
        Some(other) => Err(other.unexpected().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_is_a_usage_error_that_names_the_option() {
        let number = "invalid digit found in string";
        for (arguments, expected) in [
            (&[][..], "missing command; see myriad-lab --help".to_owned()),
            (&["fly"], "unknown command fly; see myriad-lab --help".to_owned()),
            (&["run", "--fast"], "invalid option '--fast'".to_owned()),
            (&["run", "--seed"], "missing argument for option '--seed'".to_owned()),
            (&["run", "--seed", "x"], format!("--seed \"x\": {number}")),
            (&["redis-benchmark", "-c", "x"], format!("-c \"x\": {number}")),
            (&["redis-benchmark", "-c", "0"], "-c must be 1 to 60000".to_owned()),
            (&["redis-benchmark", "-P", "9999999999"], "-P must be 1 to 100000".to_owned()),
            (
                &["max", "this", "--cpus-load", "99999999"],
                "--cpus-load: \"99999999\" is not a list of cores such as 0 or 0,2-3".to_owned(),
            ),
            (&["webbench", "-t", "x"], format!("-t \"x\": {number}")),
            (&["max", "this", "--keys", "x"], format!("--keys \"x\": {number}")),
            (
                &["serve", "--listen", "8080", "."],
                "--listen: \"8080\" is not HOST:PORT, such as \
              127.0.0.1:8080 or [::1]:8080"
                    .to_owned(),
            ),
            (
                &["run", "/nosuch.toml"],
                "could not read /nosuch.toml: No such file or directory (os \
              error 2)"
                    .to_owned(),
            ),
        ] {
            let error = run(&mut Parser::from_args(arguments)).unwrap_err();
            assert!(error.is::<UsageError>(), "{arguments:?}");
            assert_eq!(error.to_string(), expected, "{arguments:?}");
        }
    }
}
