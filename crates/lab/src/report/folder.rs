//! Reads the files of a run: `rows.jsonl` and, if present, `machine.json`, `definition.toml`,
//! `settings.json`, `source.json` and `repeat.txt`. A run of several experiments has a folder for
//! each.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::report::grid::Parameters;
use crate::report::measurement::Measurement;
use crate::report::table::Table;
use crate::row::Row;
use crate::run::Settings;

/// The command that repeats a run, if it differs from `myriad-lab run`.
pub(crate) const REPEAT: &str = "repeat.txt";
/// Larger files are probably not rows.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of experiments in one folder.
const FOLDERS_MAX: usize = 1000;

/// One folder with rows.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) tables: Vec<Table>,
    pub(crate) machine: Option<Value>,
    /// The content of `definition.toml`.
    pub(crate) definition: Option<String>,
    pub(crate) source: Vec<SourceRow>,
    /// The command that repeats the run; `None` without a definition.
    pub(crate) repeat: Option<String>,
    /// Whether the last line is incomplete: a writer was interrupted, or is still active.
    pub(crate) is_torn: bool,
}

/// One row of a source document's table, for comparison.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct SourceRow {
    pub(crate) table: String,
    pub(crate) parameters: Parameters,
    /// Lowest and highest value by the name of a figure.
    pub(crate) columns: BTreeMap<String, [f64; 2]>,
}

/// The rows of a text, and whether its last line is incomplete.
pub(crate) struct Lines {
    pub(crate) rows: Vec<Row>,
    /// Size of the complete lines.
    pub(crate) bytes: usize,
}

/// Reads a folder and its subfolders. Fails if there are no rows, or if an existing file cannot be
/// read.
pub(crate) fn read(folder: &Path) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for path in folders(folder)? {
        runs.extend(read_run(&path)?);
    }
    if runs.iter().all(|run| run.tables.is_empty()) {
        bail!("{} contains no rows", folder.display());
    }
    Ok(runs)
}

/// Returns the folder itself, then its subfolders with rows, by name.
pub(crate) fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut inner = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        if path.join("rows.jsonl").is_file() {
            inner.push(path);
        }
        if inner.len() > FOLDERS_MAX {
            bail!("{} contains more than {FOLDERS_MAX} folders with rows", folder.display());
        }
    }
    inner.sort();
    if folder.join("rows.jsonl").is_file() {
        inner.insert(0, folder.to_owned());
    }
    Ok(inner)
}

/// Returns the stored command, or one built from the definition and its settings.
fn repeat(folder: &Path) -> Result<Option<String>> {
    if let Some(command) = read_if_there(&folder.join(REPEAT))? {
        return Ok(Some(command.trim().to_owned()));
    }
    let definition = folder.join("definition.toml");
    if !definition.is_file() {
        return Ok(None);
    }
    let settings: Option<Settings> = read_json(&folder.join("settings.json"))?;
    let flags = settings.map(|settings| settings.flags()).unwrap_or_default();
    Ok(Some(format!("myriad-lab run {}{flags}", definition.display())))
}

fn read_run(folder: &Path) -> Result<Option<Run>> {
    let path = folder.join("rows.jsonl");
    let Some(text) = read_if_there(&path)? else {
        return Ok(None);
    };
    let lines = parse_rows(&text).with_context(|| path.display().to_string())?;
    Ok(Some(Run {
        is_torn: lines.bytes < text.len(),
        tables: tables(lines.rows).with_context(|| path.display().to_string())?,
        machine: read_json(&folder.join("machine.json"))?,
        definition: read_if_there(&folder.join("definition.toml"))?,
        source: read_json(&folder.join("source.json"))?.unwrap_or_default(),
        repeat: repeat(folder)?,
    }))
}

/// Parses all complete lines. An incomplete line is still being written.
pub(crate) fn parse_rows(text: &str) -> Result<Lines> {
    let complete = text.rfind('\n').map_or(0, |end| end + 1);
    let mut rows = Vec::new();
    for (index, line) in text[..complete].lines().enumerate() {
        let row = serde_json::from_str(line);
        rows.push(row.with_context(|| format!("line {} is not a row", index + 1))?);
    }
    Ok(Lines { rows, bytes: complete })
}

/// Groups rows by experiment, in the order of first appearance.
pub(crate) fn tables(rows: Vec<Row>) -> Result<Vec<Table>> {
    let mut names: Vec<String> = Vec::new();
    let mut measurements: BTreeMap<String, Vec<Measurement>> = BTreeMap::new();
    for row in rows {
        let name = row.table.clone();
        let (cell, repeat) = (row.cell, row.repeat);
        let measurement = Measurement::of(row)
            .with_context(|| format!("{name}, cell {cell}, repeat {repeat}"))?;
        if !names.contains(&name) {
            names.push(name.clone());
        }
        measurements.entry(name).or_default().push(measurement);
    }
    let of = |name: String| {
        let found = measurements.remove(&name).unwrap_or_default();
        Table::of(name, found)
    };
    Ok(names.into_iter().map(of).collect())
}

/// Returns `None` if the file does not exist.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
            bail!("{} is larger than {FILE_BYTES_MAX} bytes", path.display())
        }
        Ok(_) => {}
    }
    fs::read_to_string(path).map(Some).with_context(|| format!("read {}", path.display()))
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>> {
    let Some(text) = read_if_there(path)? else {
        return Ok(None);
    };
    serde_json::from_str(&text).map(Some).with_context(|| format!("read {}", path.display()))
}
