//! How many crates are in the program of operators: each is built, loaded, licensed and reviewed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::steps::cargo;
use crate::tidy::Violation;

const PROGRAM: &str = "myriad";
/// Crates of ours and libraries together.
const LINKED_MAX: usize = 125;

/// Crates that are linked into the program, one per line, as cargo knows them from its lock file.
/// Procedural macros run in the compiler and are not linked.
pub(crate) fn list(root: &Path) -> Result<String> {
    let mut command = cargo(root, &["tree", "--locked", "--package", PROGRAM]);
    command.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe"]);
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{complaint}", output.status);
    String::from_utf8(output.stdout).context("read the list of crates")
}

/// The number of different ones.
pub(crate) fn count(list: &str) -> usize {
    list.lines().filter(|line| !line.is_empty()).collect::<BTreeSet<_>>().len()
}

/// No more than [`LINKED_MAX`] different ones.
pub(crate) fn check_count(list: &str) -> Vec<Violation> {
    let count = count(list);
    if (1..=LINKED_MAX).contains(&count) {
        return Vec::new();
    }
    let what = format!(
        "{count} crates are linked, at most {LINKED_MAX} may be: turn off features of dependencies, \
         or move what only measurements need to the lab"
    );
    vec![Violation { path: format!("crates/{PROGRAM}/Cargo.toml"), line: 0, what }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_of(count: usize) -> String {
        let lines: Vec<String> = (0..count).map(|number| format!("crate{number} v1.0.0")).collect();
        lines.join("\n")
    }

    #[test]
    fn crates_are_counted_once() {
        let list = list_of(LINKED_MAX);
        assert_eq!(check_count(&format!("{list}\n{list}")), []);
    }

    #[test]
    fn too_many_crates_are_a_violation_and_so_is_an_empty_list() {
        for list in [list_of(LINKED_MAX + 1), String::new()] {
            let violations = check_count(&list);
            assert_eq!(violations.len(), 1);
            assert!(violations[0].what.contains("crates are linked"), "{violations:?}");
        }
    }
}
