//! `myriad lab ...`: one row per subcommand.

use anyhow::{Result, bail};
use lexopt::Parser;

/// One subcommand.
pub(crate) struct Subcommand {
    pub(crate) name: &'static str,
    /// What it does, in a few words, for the list of all.
    pub(crate) about: &'static str,
    /// Reads its own arguments, `--help` included, and does it.
    pub(crate) run: fn(&mut Parser) -> Result<()>,
}

#[rustfmt::skip]
const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "cassandra-stress", about: "Load with that tool's options, reported in its form", run: crate::cassandra_stress::command },
    Subcommand { name: "compare", about: "Two servers under the same load, in turn", run: crate::compare::command },
    Subcommand { name: "echo", about: "Send back all that comes", run: crate::echo::command },
    Subcommand { name: "generate", about: "Make load: a specification in, events out, as JSON", run: crate::load::command },
    Subcommand { name: "max", about: "The highest rate that keeps bounds of latency", run: crate::max::command },
    Subcommand { name: "peel", about: "What each layer of the server costs a request of CQL", run: crate::peel::command },
    Subcommand { name: "redis-benchmark", about: "Load with that tool's options, reported in its form", run: crate::redis_benchmark::command },
    crate::profile::SUBCOMMAND,
    Subcommand { name: "report", about: "Make a page and a CSV file from the rows of a run", run: crate::report::run },
    Subcommand { name: "run", about: "Measure every cell of a definition", run: crate::run::command },
    Subcommand { name: "repro", about: "Run tables of the source documents again", run: crate::repro::command },
    Subcommand { name: "results", about: "Print what was measured beside the source documents", run: crate::repro::results_command },
    Subcommand { name: "serve", about: "Show a run in a browser while it goes on", run: crate::serve::run },
    Subcommand { name: "webbench", about: "Load a web server with that tool's options, reported in its form", run: crate::webbench::command },
];

/// The text of `myriad lab --help`.
pub fn help() -> String {
    let mut text = String::from(
        "Measures servers: Myriad or a peer.\n\nUsage: myriad lab <COMMAND> [ARGUMENTS]\n\n",
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

/// Does what the rest of the command line asks for: the name of a subcommand, then its arguments.
pub fn run(parser: &mut Parser) -> Result<()> {
    use lexopt::prelude::*;
    match parser.next()? {
        None => bail!("a command is missing; see myriad lab --help"),
        Some(Short('h') | Long("help")) => print(&help()),
        Some(Value(name)) if name == "help" => print(&help()),
        Some(Value(name)) => {
            let wanted = SUBCOMMANDS.iter().find(|subcommand| name == subcommand.name);
            match wanted {
                Some(subcommand) => (subcommand.run)(parser),
                None => bail!("unknown command lab {}; see myriad lab --help", name.display()),
            }
        }
        Some(other) => Err(other.unexpected().into()),
    }
}

/// Writes to standard output; a reader that has gone away is an error that the program ignores.
pub(crate) fn print(text: &str) -> Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
