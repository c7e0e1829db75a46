//! Passes the commit and the compiler to the program, so that measurements record them.
//!
//! Without git, or outside a checkout, the commit is empty: the build must still succeed.

use std::env;
use std::process::Command;

fn main() {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    println!("cargo::rustc-env=LAB_RUSTC={}", said_by(&rustc, &["--version"]));
    println!("cargo::rustc-env=LAB_COMMIT={}", commit());
    // Anything that becomes part of the program may make the tree dirty.
    println!("cargo::rerun-if-changed=..");
    let head = said_by("git", &["rev-parse", "--git-path", "logs/HEAD"]);
    if !head.is_empty() {
        println!("cargo::rerun-if-changed={head}");
    }
}

/// The short hash, with `-dirty` if files differ from it.
fn commit() -> String {
    let hash = said_by("git", &["rev-parse", "--short=12", "HEAD"]);
    let changes = said_by("git", &["status", "--porcelain", "--untracked-files=no"]);
    if changes.is_empty() { hash } else { format!("{hash}-dirty") }
}

/// The first line that a program prints; empty if it fails.
fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.and_then(|text| text.lines().next().map(String::from)).unwrap_or_default()
}
