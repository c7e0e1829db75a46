//! `cargo xtask transcripts`: golden dialogues of each command against a server.

pub(crate) mod compare;
pub(crate) mod coverage;
pub(crate) mod file;
pub(crate) mod notation;
pub(crate) mod run;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{Dialect, Server, Target};
use crate::tally::Tally;

/// Where the files are, below the repository's root: `<family>/<command>.txt`.
pub(crate) const FOLDER: &str = "tests/transcripts";

/// Options of a run.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) target: Target,
    /// Only files whose path contains this.
    pub(crate) filter: Option<String>,
    /// Whether to write the server's replies into the files.
    pub(crate) update: bool,
}

/// Runs every file selected by the filter and prints the differences.
pub(crate) fn run_all(root: &Path, options: &Options) -> Result<Tally> {
    let files = list(&root.join(FOLDER), options.filter.as_deref())?;
    if files.is_empty() {
        bail!("no transcript matches");
    }
    let mut server = Server::start(root, &options.target)?;
    let mut tally = Tally::default();
    for path in &files {
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let passed = run_file(path, &name, &server, options.update).unwrap_or_else(|error| {
            println!("{name}: {error:#}");
            Some(false)
        });
        match passed {
            Some(true) => tally.passed += 1,
            Some(false) => {
                tally.failed += 1;
                // State that a failed file left behind, such as a password, must not fail the next
                // ones.
                server = Server::start(root, &options.target)?;
            }
            None => println!("{name}: not for {}", server.dialect.name()),
        }
    }
    if server.dialect == Dialect::Myriad && options.filter.is_none() {
        for name in coverage::missing(&server.address, &files)? {
            println!("{name}: no transcript below {FOLDER}");
            tally.failed += 1;
        }
    }
    Ok(tally)
}

/// `None`: the file does not apply to this server.
fn run_file(path: &Path, name: &str, server: &Server, update: bool) -> Result<Option<bool>> {
    let text = fs::read_to_string(path)?;
    let transcript = file::parse(&text)?;
    if transcript.skip_redis && server.dialect == Dialect::Redis {
        return Ok(None);
    }
    let report = run::run(&transcript, server)?;
    if update && !report.edits.is_empty() {
        fs::write(path, run::apply_edits(&text, &report.edits))?;
        println!("{name}: {} replies written", report.edits.len());
        return Ok(Some(report.edits.len() == report.differences.len()));
    }
    for difference in &report.differences {
        println!("{name}:{}: {}", difference.line, difference.request);
        difference.expected.iter().for_each(|line| println!("  expected  {line}"));
        difference.actual.iter().for_each(|line| println!("  actual    {line}"));
    }
    Ok(Some(report.differences.is_empty()))
}

/// All transcripts, in the order of their names.
pub(crate) fn list(folder: &Path, filter: Option<&str>) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for family in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let family = family?.path();
        if family.is_dir() {
            found.extend(files(&family, "txt", filter)?);
        }
    }
    found.sort();
    Ok(found)
}

/// The files in a folder with this extension and `filter` in their path, in the order of their
/// names.
pub(crate) fn files(folder: &Path, extension: &str, filter: Option<&str>) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        let has_extension = path.extension().is_some_and(|own| own == extension);
        if has_extension && filter.is_none_or(|part| path.to_string_lossy().contains(part)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
