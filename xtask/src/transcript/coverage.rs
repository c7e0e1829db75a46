//! Checks that every command of a server has a transcript.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::resp::{Connection, Value};

/// Index of the subcommands in an entry of COMMAND.
const SUBCOMMANDS_INDEX: usize = 9;

/// Names of commands without a transcript, in order: `getdel`, `config|get`. A command that has
/// subcommands is covered by theirs.
pub(crate) fn missing(address: &str, files: &[PathBuf]) -> Result<Vec<String>> {
    Ok(uncovered(names(address)?, files))
}

/// Names of all commands in order; a command with subcommands is replaced by them.
pub(crate) fn names(address: &str) -> Result<Vec<String>> {
    let reply = Connection::open(address)?.call(&["COMMAND"])?;
    let Value::Array(Some(entries)) = reply else {
        bail!("COMMAND does not answer with an array");
    };
    let mut names = Vec::new();
    for entry in &entries {
        collect_names(entry, &mut names)?;
    }
    names.sort();
    Ok(names)
}

/// The names of one entry: those of its subcommands, if it has any, otherwise its own.
fn collect_names(entry: &Value, names: &mut Vec<String>) -> Result<()> {
    let Value::Array(Some(fields)) = entry else {
        bail!("an entry of COMMAND is not an array");
    };
    if let Some(Value::Array(Some(subcommands))) = fields.get(SUBCOMMANDS_INDEX)
        && !subcommands.is_empty()
    {
        return subcommands.iter().try_for_each(|subcommand| collect_names(subcommand, names));
    }
    let Some(Value::Bulk(Some(name))) = fields.first() else {
        bail!("an entry of COMMAND has no name");
    };
    names.push(String::from_utf8_lossy(name).into_owned());
    Ok(())
}

fn uncovered(names: Vec<String>, files: &[PathBuf]) -> Vec<String> {
    let stems: BTreeSet<String> = files
        .iter()
        .filter_map(|path| Path::new(path).file_stem())
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect();
    names.into_iter().filter(|name| !stems.contains(&name.replace('|', "-"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, subcommands: Vec<Value>) -> Value {
        let mut fields = vec![Value::Bulk(Some(name.as_bytes().to_vec()))];
        fields.resize(SUBCOMMANDS_INDEX, Value::Scalar(":1".into()));
        fields.push(Value::Array(Some(subcommands)));
        Value::Array(Some(fields))
    }

    #[test]
    fn subcommands_stand_for_their_command() {
        let config =
            entry("config", vec![entry("config|get", vec![]), entry("config|set", vec![])]);
        let mut names = Vec::new();
        collect_names(&config, &mut names).unwrap();
        collect_names(&entry("get", vec![]), &mut names).unwrap();
        assert_eq!(names, ["config|get", "config|set", "get"]);
        let files = [PathBuf::from("string/get.txt"), PathBuf::from("server/config-get.txt")];
        assert_eq!(uncovered(names, &files), ["config|set"]);
    }
}
