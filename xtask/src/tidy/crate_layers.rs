//! The permitted imports between crates, and the reason for each dependency.

use crate::tidy::{SourceFile, Violation};

/// The layers: a crate, and the crates of the workspace that it may import. A new crate needs a
/// row; arrows point down only.
const IMPORTS: [(&str, &[&str]); 15] = [
    ("base", &[]),
    ("options", &["base"]),
    ("reactor", &["base"]),
    ("wire", &["base"]),
    ("store", &["base"]),
    ("binlog", &["base"]),
    ("cql", &["base", "wire", "store"]),
    ("server", &["base", "options", "reactor", "wire", "store", "binlog", "cql"]),
    ("web", &["base", "options", "reactor", "wire"]),
    ("pipeline", &["base", "options", "reactor", "wire", "store", "binlog"]),
    ("lab", &["base", "reactor", "wire", "store", "binlog", "pipeline"]),
    // Implements the storage of the server's backups, with libraries that the server lacks.
    ("objects", &["server"]),
    ("myriad", &["base", "options", "cql", "server", "objects", "web", "pipeline"]),
    ("myriad-lab", &["base", "lab"]),
    // A client of servers' protocols; contains no part of the server.
    ("xtask", &["wire"]),
];

/// Each crate's `Cargo.toml` names only crates of lower layers.
pub(crate) fn check_imports(files: &[SourceFile]) -> Vec<Violation> {
    let manifests = files.iter().filter_map(|file| Some((crate_name(&file.path)?, file)));
    manifests.flat_map(|(name, file)| check_manifest(name, file)).collect()
}

fn check_manifest(name: &str, file: &SourceFile) -> Vec<Violation> {
    let Some((_, allowed)) = IMPORTS.iter().find(|(known, _)| *known == name) else {
        return vec![Violation {
            path: file.path.clone(),
            line: 1,
            what: format!("crate {name} has no layer: add a row to IMPORTS in crate_layers.rs"),
        }];
    };
    let ours = |import: &str| IMPORTS.iter().any(|(known, _)| *known == import);
    dependencies(file)
        .filter(|(_, import)| ours(import) && !allowed.contains(import))
        .map(|(line, import)| Violation {
            path: file.path.clone(),
            line,
            what: format!(
                "{name} imports {import}, which is not below it: return a value or an event \
                 instead, or move the code to a lower layer"
            ),
        })
        .collect()
}

/// `crates/base/Cargo.toml` -> `base`; `xtask/Cargo.toml` -> `xtask`.
fn crate_name(path: &str) -> Option<&str> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    match folder.strip_prefix("crates/") {
        Some(name) if !name.contains('/') => Some(name),
        _ if folder == "xtask" => Some(folder),
        _ => None,
    }
}

/// Names in all tables whose name ends in `dependencies`, with their lines.
fn dependencies(file: &SourceFile) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    file.lines().filter_map(move |(number, line)| {
        let line = line.trim();
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            inside = table.ends_with("dependencies");
            // `[dependencies.base]` is one dependency as a table.
            let (_, name) = table.split_once("dependencies.")?;
            return Some((number, name));
        }
        let name_end = line.find(['.', '=', ' '])?;
        (inside && !line.starts_with('#')).then(|| (number, &line[..name_end]))
    })
}

/// Each external dependency has a comment with its reason in the root's `Cargo.toml`.
pub(crate) fn check_reasons(files: &[SourceFile]) -> Vec<Violation> {
    let Some(manifest) = files.iter().find(|file| file.path == "Cargo.toml") else {
        return Vec::new();
    };
    let lines: Vec<&str> = manifest.text.lines().collect();
    dependencies(manifest)
        .filter(|(number, _)| !lines[number - 1].contains("path ="))
        .filter(|(number, _)| !has_reason(lines[number - 1]))
        .map(|(line, name)| Violation {
            path: manifest.path.clone(),
            line,
            what: format!("{name} has no reason: append `# reason` to the line"),
        })
        .collect()
}

fn has_reason(line: &str) -> bool {
    line.rsplit_once('#').is_some_and(|(_, reason)| !reason.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn all_forms_of_a_dependency_are_seen() {
        let text = "[dependencies]\na.workspace = true\nb = \"1\"\n# c = \"1\"\n[dev-dependencies]\n\
                    d = { version = \"1\" }\n[dependencies.e]\nversion = \"1\"\n[lints]\nf = \"1\"\n";
        let manifest = file("crates/x/Cargo.toml", text);
        let names: Vec<&str> = dependencies(&manifest).map(|(_, name)| name).collect();
        assert_eq!(names, ["a", "b", "d", "e"]);
    }

    #[test]
    fn layers_have_no_cycle() {
        for (name, allowed) in IMPORTS {
            for import in allowed {
                let (_, below) = IMPORTS.iter().find(|(known, _)| known == import).unwrap();
                assert!(!below.contains(&name), "{name} and {import} import each other");
            }
        }
    }

    #[test]
    fn development_dependencies_count_too() {
        let manifest =
            file("crates/wire/Cargo.toml", "[dev-dependencies]\nserver.workspace = true\n");
        assert_eq!(check_imports(&[manifest]).len(), 1);
    }
}
