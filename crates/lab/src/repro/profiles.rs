//! Profiles of cells: a flame graph of each, the difference from the first to the second, and the
//! shares of the parts named by the source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definitions;
use super::shape::matches;
use super::sheet::Sheet;
use crate::definition::set_duration;
use crate::load::{LoadEvent, LoadSpec, Warmup, Work};
use crate::profile::{self, Labels, Profile};
use crate::run::{Generator, read_json};
use crate::subject::Scratch;

/// File next to the folders of runs.
pub(super) const FILE: &str = "profiles.json";
/// The source's name of a part, and substrings of the functions that belong to it.
const PARTS: [(&str, &[&str]); 3] = [
    ("write", &["sys_write", "sys_pwrite"]),
    ("waiting and waking (futex)", &["sys_futex"]),
    ("checksum", &["crc32c"]),
];
const WARMUP_MS: u64 = 300;
const DURATION_MS: u64 = 4_000;
const QUICK_DURATION_MS: u64 = 1_000;
/// The load lasts slightly longer than the sampling.
const MARGIN_MS: u64 = 500;

/// A cell of a definition to be profiled.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfiledCell {
    /// Also the name of its files.
    pub name: String,
    pub definition: String,
    /// The parameters that identify the cell.
    pub cell: BTreeMap<String, Value>,
}

/// Results of all profiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Profiles {
    pub cells: Vec<CellProfile>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CellProfile {
    pub name: String,
    /// Number of samples, lost ones, and limitations.
    pub summary: String,
    /// Percent of the samples, by part.
    pub shares: BTreeMap<String, f64>,
}

impl Profiles {
    /// Profiles the load of each cell and writes flame graphs and folded stacks to `folder`.
    pub(crate) fn measure(
        program: &Path,
        cells: &[ProfiledCell],
        folder: &Path,
        is_quick: bool,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let duration_ms = if is_quick { QUICK_DURATION_MS } else { DURATION_MS };
        let mut profiles = Vec::new();
        let mut folded: Vec<(&str, String)> = Vec::new();
        for cell in cells {
            let profile = record(program, load(cell, duration_ms)?, duration_ms, stop)
                .with_context(|| format!("profile {}", cell.name))?;
            let labels = Labels { title: cell.name.clone(), subtitle: profile.summary() };
            let stacks = profile.folded();
            write(&folder.join(format!("{}.folded", cell.name)), &stacks)?;
            let graph = profile::flame_graph(&stacks, &labels)?;
            write(&folder.join(format!("{}.svg", cell.name)), &graph)?;
            profiles.push(CellProfile {
                name: cell.name.clone(),
                summary: profile.summary(),
                shares: shares(&stacks),
            });
            folded.push((&cell.name, stacks));
        }
        if let [(before, old), (after, new), ..] = folded.as_slice() {
            let title = format!("From {before} to {after}");
            let labels =
                Labels { title, subtitle: "red: a greater share; blue: a smaller one".into() };
            write(&folder.join("difference.svg"), &profile::difference(old, new, &labels)?)?;
        }
        let profiles = Self { cells: profiles };
        write(&folder.join(FILE), &serde_json::to_string_pretty(&profiles)?)?;
        Ok(profiles)
    }

    pub(crate) fn read(folder: &Path) -> Result<Self> {
        read_json(&folder.join(FILE))
    }

    /// Formats a column of percentages per part.
    pub(crate) fn sheet(&self) -> Sheet {
        let [write, futex, checksum] = PARTS.map(|(part, _)| part);
        let row = |cell: &CellProfile| {
            let share = |part: &str| {
                cell.shares.get(part).map_or("-".to_owned(), |share| format!("{share:.1}"))
            };
            [cell.name.clone(), share(write), share(futex), share(checksum), cell.summary.clone()]
        };
        let head = ["cell", "write (%)", "futex (%)", "checksum (%)", "samples"];
        Sheet::new(head, self.cells.iter().map(row).collect())
    }
}

/// Returns the load of the cell, long enough for sampling.
fn load(wanted: &ProfiledCell, duration_ms: u64) -> Result<LoadSpec> {
    let definition = definitions::find(&wanted.definition)?;
    let mut cells = definition.cells.into_iter();
    let cell = cells.find(|cell| matches(&wanted.cell, &cell.parameters));
    let cell =
        cell.with_context(|| format!("{} has no cell {:?}", wanted.definition, wanted.cell))?;
    let mut load = cell.load;
    set_duration(&mut load, duration_ms + MARGIN_MS);
    load.warmup = Warmup::Fixed { ms: WARMUP_MS };
    Ok(load)
}

fn record(
    program: &Path,
    mut load: LoadSpec,
    duration_ms: u64,
    stop: &AtomicBool,
) -> Result<Profile> {
    let scratch =
        Scratch::new(&std::env::temp_dir()).context("could not create a directory for the log")?;
    let Work::Append(work) = &mut load.work else {
        bail!("only appends to a log can be profiled here")
    };
    work.directory = PathBuf::from(scratch.path()).join("log");
    let mut generator = Generator::start(program, &load)?;
    while !matches!(generator.next(stop)?, LoadEvent::Measuring { .. }) {}
    let duration = Duration::from_millis(duration_ms);
    Ok(profile::record(generator.pid(), duration, &profile::Options::default())?)
}

/// Percent of the samples in which a function of the part was running or a caller.
fn shares(folded: &str) -> BTreeMap<String, f64> {
    let stacks = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let stacks: Vec<(&str, u64)> =
        stacks.filter_map(|(stack, count)| Some((stack, count.parse().ok()?))).collect();
    let all: u64 = stacks.iter().map(|(_, count)| count).sum();
    #[allow(clippy::cast_precision_loss)]
    let share = |words: &[&str]| {
        let is_part = |stack: &str| words.iter().any(|word| stack.contains(word));
        let part: u64 =
            stacks.iter().filter(|(stack, _)| is_part(stack)).map(|(_, count)| count).sum();
        part as f64 / all.max(1) as f64 * 100.0
    };
    PARTS.iter().map(|(part, words)| ((*part).to_owned(), share(words))).collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::source::{self, Run};

    #[test]
    fn shares_count_whole_stacks() {
        let folded = "log;append;ksys_write_[k];copy_[k] 60\nlog;append;__x64_sys_futex_[k] 30\n\
                      log;append 10\n";
        let shares = shares(folded);
        assert_eq!(shares["write"].to_string(), "60");
        assert_eq!(shares["waiting and waking (futex)"].to_string(), "30");
        assert_eq!(shares["checksum"].to_string(), "0");
    }

    #[test]
    fn every_profiled_cell_is_there() {
        let cells = source::tables().filter_map(|table| match &table.run {
            Run::Profile(cells) => Some(cells),
            _ => None,
        });
        let cells: Vec<&ProfiledCell> = cells.flatten().collect();
        assert!(!cells.is_empty());
        for cell in cells {
            let load = load(cell, 1_000).unwrap();
            assert_eq!(load.duration_ms, 1_500);
            assert!(matches!(load.work, Work::Append(_)), "{cell:?}");
        }
    }
}
