//! The built-in definitions: `benchmarks/definitions/*.toml`.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::definition::Definition;

macro_rules! definitions {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../benchmarks/definitions/", $name, ".toml")))),*]
    };
}

/// Texts by name.
const TEXTS: [(&str, &str); 46] = definitions![
    "cassandra.cpu",
    "durability.cost",
    "redis.collections",
    "redis.connections",
    "redis.cpu",
    "redis.memory",
    "redis.reads",
    "redis.replicas",
    "redis.sync",
    "redis.types",
    "s0.r11",
    "s0.r12",
    "s0.r8",
    "s0.r9",
    "s0.t1",
    "s0.t2",
    "s0.t3",
    "s0.t4",
    "s0.t5",
    "s0.t6",
    "s0.t7",
    "s1.r10",
    "s1.r12",
    "s1.r8",
    "s1.r9",
    "s1.t1",
    "s1.t2",
    "s1.t3",
    "s1.t4",
    "s1.t5",
    "s1.t6",
    "s1.t7",
    "s2.p2",
    "s2.r1",
    "s2.r2",
    "s2.r3",
    "s2.t1",
    "s2.t2",
    "s2.t3",
    "s2.t4",
    "s4.r2",
    "s4.r3",
    "s4.t1",
    "s4.t2",
    "s4.t3",
    "web.cpu",
];

/// Returns the definition of this name.
pub(crate) fn find(name: &str) -> Result<Definition> {
    let text = TEXTS.iter().find(|(known, _)| *known == name);
    let (_, text) = text.with_context(|| format!("unknown definition {name}"))?;
    let path = PathBuf::from(format!("benchmarks/definitions/{name}.toml"));
    Ok(Definition::parse(text, &path)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::repro::source::{self, Run};

    #[test]
    fn all_of_them_are_understood_and_called_like_their_files() {
        for (name, _) in TEXTS {
            assert_eq!(find(name).unwrap().name, name);
        }
    }

    #[test]
    fn none_is_forgotten() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/definitions");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let found: BTreeSet<String> =
            files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        let known: BTreeSet<String> = TEXTS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(found, known);
    }

    #[test]
    fn every_one_is_run_for_a_table_and_names_it() {
        for (name, _) in TEXTS {
            let wanted = Run::Definition(name.to_owned());
            let tables = source::tables().filter(|table| table.run == wanted);
            let ids: Vec<&str> = tables.map(|table| table.id.as_str()).collect();
            assert!(!ids.is_empty(), "{name}");
            let definition = find(name).unwrap();
            assert!(
                definition.source.is_none_or(|source| ids.contains(&source.as_str())),
                "{name} is run for {ids:?}"
            );
        }
    }
}
