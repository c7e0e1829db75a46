//! `myriad lab repro`: runs the tables of the source documents again, and holds what is seen
//! against what they published.

pub mod definitions;
pub mod figure;
#[cfg(test)]
mod fixture;
pub mod outcome;
pub mod shape;
pub mod sheet;
pub mod source;

use anyhow::{Result, bail};
use lexopt::Parser;

use crate::cli;
use source::{Run, Table};

const HELP: &str = "\
Runs tables of the source documents again, beside what they published.

Usage: myriad lab repro (TABLE|DOCUMENT|all)... [OPTIONS]

  TABLE, DOCUMENT    s1.t6, or s1 for all of that document
  -l, --list         Print all tables, and how each is run
  -h, --help         Print this
";

/// `lab repro`.
pub(crate) fn run(parser: &mut Parser) -> Result<()> {
    use lexopt::prelude::*;
    let mut names = Vec::new();
    let mut only_list = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return cli::print(HELP),
            Short('l') | Long("list") => only_list = true,
            Value(name) => names.push(name.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let tables = chosen(&names)?;
    if only_list {
        return cli::print(&list(&tables));
    }
    bail!("say which table, or --list");
}

/// The tables of these names, each once, in the order of the documents; without names all.
fn chosen(names: &[String]) -> Result<Vec<&'static Table>> {
    if let Some(unknown) =
        names.iter().find(|name| !source::tables().any(|table| table.is_called(name)))
    {
        bail!("there is no table {unknown}: see myriad lab repro --list");
    }
    let wanted = |table: &Table| names.is_empty() || names.iter().any(|name| table.is_called(name));
    Ok(source::tables().filter(|table| wanted(table)).collect())
}

fn list(tables: &[&Table]) -> String {
    let line = |table: &&Table| format!("{:<17} {:<62} {}", table.id, table.title, how(table));
    let lines: Vec<String> = tables.iter().map(line).collect();
    lines.join("\n") + "\n"
}

/// How the table is run, or why it cannot be.
fn how(table: &Table) -> String {
    if let Some(missing) = table.system.missing() {
        return format!("not yet: {missing}");
    }
    match &table.run {
        Some(Run::Definition(name)) => format!("benchmarks/definitions/{name}.toml"),
        Some(Run::Tests(commands)) => commands.join(", "),
        Some(Run::Compatibility(program)) => format!("by {program}"),
        Some(Run::Profile(name)) => format!("profile of benchmarks/definitions/{name}.toml"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<&'static str> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        chosen(&names).unwrap().iter().map(|table| table.id.as_str()).collect()
    }

    #[test]
    fn tables_are_chosen_by_name_in_their_order() {
        assert_eq!(ids(&["s4.t1", "s1.t6", "s4.t1"]), ["s1.t6", "s4.t1"]);
        assert_eq!(ids(&["s4.prof"]), ["s4.r1"]);
        assert_eq!(ids(&["s0"]).len(), 11);
        assert_eq!(ids(&["redis"]).len(), 5);
        assert_eq!(ids(&["all"]).len() + 5, ids(&[]).len());
        assert!(chosen(&["s9".into()]).unwrap_err().to_string().contains("no table s9"));
    }

    #[test]
    fn the_list_says_of_each_table_how_it_is_run() {
        let list = list(&chosen(&[]).unwrap());
        assert!(list.contains("benchmarks/definitions/s1.t6.toml"), "{list}");
        assert!(list.contains("not yet: the server does not speak CQL yet"), "{list}");
        assert!(list.lines().all(|line| line.len() > 70), "{list}");
    }
}
