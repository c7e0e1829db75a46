//! The Rust tests of the workspace: all test programs, two at a time.
//!
//! `cargo test` runs one program after the other, and many of them mostly wait for processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::steps::{self, cargo};
use crate::tally::Tally;

/// Number of programs that run at the same time; each has threads for all processors.
const LANES: usize = 2;

/// A program that runs longer than this on any machine waits for something that never happens. All
/// its processes are then killed; its output names the tests that were running.
const SECONDS_MAX: &str = "900";

/// Without `--tests`, every library is also built as examples in comments need it.
const BUILD: &[&str] = &["test", "--quiet", "--workspace", "--tests", "--no-run"];

/// Starts a build of the test programs at the lowest priority, during steps that mostly wait. Its
/// errors are not shown: [`run`] builds again what failed.
pub(crate) fn start_build(root: &Path) -> Result<Child> {
    steps::cargo_in_background(root, BUILD)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start nice")
}

/// Builds and runs all test programs.
pub(crate) fn run(root: &Path) -> Result<Tally> {
    steps::run_lanes(LANES, build(root)?, |program| program.run(SECONDS_MAX))
}

/// The program of a crate's tests and the folder that it runs in.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    path: PathBuf,
    folder: PathBuf,
}

impl Program {
    /// Parses a message of cargo. `None`: it is not about a test program.
    fn parse(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if !message["profile"]["test"].as_bool()? {
            return None;
        }
        let manifest = Path::new(message["manifest_path"].as_str()?);
        Some(Self {
            path: message["executable"].as_str()?.into(),
            folder: manifest.parent()?.to_owned(),
        })
    }

    /// Runs the program to its end. Returns its output and its counts.
    fn run(&self, seconds_max: &str) -> Result<(Vec<u8>, Tally)> {
        let mut output = format!("  {}\n", self.path.display()).into_bytes();
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec timeout --verbose --signal=KILL \"$1\" \"$0\" --quiet 2>&1"])
            .arg(&self.path)
            .arg(seconds_max)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        let counted = steps::run_counted_to(&mut command, &mut output)?;
        Ok((output, counted))
    }
}

/// Builds the test programs. The largest is the first: it usually takes the longest.
fn build(root: &Path) -> Result<Vec<Program>> {
    let output = cargo(root, BUILD)
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo")?;
    if !output.status.success() {
        bail!("the tests cannot be built: {}", output.status);
    }
    let mut programs: Vec<Program> =
        String::from_utf8(output.stdout)?.lines().filter_map(Program::parse).collect();
    if programs.is_empty() {
        bail!("cargo has built no test programs");
    }
    programs.sort_by_cached_key(|program| {
        std::cmp::Reverse(program.path.metadata().map_or(0, |metadata| metadata.len()))
    });
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn messages_about_test_programs_are_found() {
        let test = r#"{"reason":"compiler-artifact","manifest_path":"/tree/crates/base/Cargo.toml",
            "profile":{"test":true},"executable":"/tree/target/debug/deps/base-1"}"#;
        let expected = Program {
            path: "/tree/target/debug/deps/base-1".into(),
            folder: "/tree/crates/base".into(),
        };
        assert_eq!(Program::parse(test), Some(expected));
        let other = test.replace("true", "false");
        for line in [&other, r#"{"reason":"build-finished","success":true}"#, "", "no message"] {
            assert_eq!(Program::parse(line), None, "{line}");
        }
    }

    /// A program that crashes counts as a failure, and its output is shown.
    #[test]
    fn a_program_that_counts_nothing_has_failed() {
        let program = Program { path: "/bin/false".into(), folder: "/".into() };
        let (output, counted) = program.run(SECONDS_MAX).unwrap();
        assert_eq!(counted, Tally { passed: 0, failed: 1 });
        let output = String::from_utf8(output).unwrap();
        assert!(output.contains("/bin/false"), "{output}");
    }

    /// A program that never ends is a failure, too: it ends with the processes that it has started.
    #[test]
    fn a_program_that_hangs_has_failed() {
        let path = std::env::temp_dir().join(format!("xtask-hangs-{}", std::process::id()));
        std::fs::write(&path, "#!/bin/sh\necho begun\nsleep 1000 &\nwait\n").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        let program = Program { path: path.clone(), folder: "/".into() };
        let (output, counted) = program.run("0.5").unwrap();
        assert_eq!(counted, Tally { passed: 0, failed: 1 });
        let output = String::from_utf8(output).unwrap();
        assert!(output.contains("begun") && output.contains("KILL"), "{output}");
        std::fs::remove_file(&path).unwrap();
    }
}
