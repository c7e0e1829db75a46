//! The Rust tests of the workspace: all test programs, two at a time.
//!
//! `cargo test` runs one program after the other, and many of them mostly wait for processes.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::steps::{self, cargo};
use crate::tally::Tally;

/// Number of programs that run at the same time; each has threads for all processors.
const LANES: usize = 2;

/// A program that runs longer than this on any machine waits for something that never happens. It is
/// then killed; its output names the tests that were running.
const SECONDS_MAX: &str = "600";

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
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let log = env::temp_dir().join(format!("xtask-{}-{name}.log", process::id()));
        // A file ends with the program: a pipe is open as long as what the program has left behind.
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let status = Command::new("timeout")
            .args(["--foreground", "--verbose", "--signal=KILL", seconds_max])
            .arg(&self.path)
            .arg("--quiet")
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()
            .context("start timeout")?;
        let text = fs::read(&log)?;
        fs::remove_file(&log)?;
        let mut output = format!("  {}\n", self.path.display()).into_bytes();
        let mut counted = Tally::default();
        for line in String::from_utf8_lossy(&text).lines() {
            output.extend(format!("  {line}\n").bytes());
            counted += Tally::parse(line).unwrap_or_default();
        }
        if !status.success() && counted.failed == 0 {
            output.extend(format!("  {status}\n").bytes());
            counted.failed += 1;
        }
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

    /// A program that never ends is a failure, too, also if it has started a process that has its
    /// output.
    #[test]
    fn a_program_that_hangs_has_failed() {
        let path = env::temp_dir().join(format!("xtask-hangs-{}", process::id()));
        // Another process writes it: a program cannot be executed while a file of this one is open,
        // which a child of another thread may have inherited.
        let script = "#!/bin/sh\necho begun\nsleep 30 &\nwait\n";
        let write = "printf '%s' \"$1\" >\"$0\" && chmod 700 \"$0\"";
        let written = Command::new("sh").args(["-c", write]).arg(&path).arg(script).status();
        assert!(written.unwrap().success());
        let program = Program { path: path.clone(), folder: "/".into() };
        let (output, counted) = program.run("2").unwrap();
        assert_eq!(counted, Tally { passed: 0, failed: 1 });
        let output = String::from_utf8(output).unwrap();
        assert!(output.contains("begun") && output.contains("KILL"), "{output}");
        fs::remove_file(&path).unwrap();
    }
}
