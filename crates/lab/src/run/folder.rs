//! The folder of a run: `definition.toml`, `settings.json`, `machine.json`, `rows.jsonl`, and,
//! while it runs, `progress.json`.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::progress::{News, Step};
use crate::definition::Definition;
use crate::measure::Machine;
use crate::row::Row;

const DEFINITION: &str = "definition.toml";
const SETTINGS: &str = "settings.json";
const MACHINE: &str = "machine.json";
const ROWS: &str = "rows.jsonl";
const PROGRESS: &str = "progress.json";
/// Default parent folder for results.
const PARENT: &str = "target/lab";
/// Seed of the order of cells, and of the random choices of each load.
pub(super) const SEED_DEFAULT: u64 = 1;
/// Readers of a running experiment poll at about this interval.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
const NAMES_MAX: usize = 1_000;

/// Settings other than the definition. Stored with the rows: a resumed run uses its original
/// settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub quick: bool,
    pub repeats: Option<usize>,
    pub cell_ms: Option<u64>,
    pub seed: u64,
}

impl Settings {
    /// The original settings; `now` may only change the number of repeats.
    #[must_use]
    pub(super) fn with(&self, now: &Self) -> Self {
        Self { repeats: now.repeats.or(self.repeats), ..self.clone() }
    }

    /// As arguments of `myriad-lab run`, each after a blank; empty for defaults.
    pub(crate) fn flags(&self) -> String {
        let mut flags = String::new();
        if self.quick {
            flags += " --quick";
        }
        for (name, value) in [
            ("--repeats", self.repeats.map(|repeats| repeats.to_string())),
            ("--cell-ms", self.cell_ms.map(|cell_ms| cell_ms.to_string())),
            ("--seed", (self.seed != SEED_DEFAULT).then(|| self.seed.to_string())),
        ] {
            if let Some(value) = value {
                let _ = write!(flags, " {name} {value}");
            }
        }
        flags
    }

    pub(super) fn applied(&self, definition: &Definition) -> Definition {
        let mut definition = definition.clone();
        if self.quick {
            definition.make_quick();
        }
        if let Some(cell_ms) = self.cell_ms {
            definition.set_cell_ms(cell_ms);
        }
        if let Some(repeats) = self.repeats {
            definition.repeats = repeats;
        }
        definition
    }
}

/// Results of a run, complete or not.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    rows: File,
    /// Whether every requested measurement has its row.
    pub is_complete: bool,
    progress: RefCell<Option<Progress>>,
}

/// Content of `progress.json`.
#[derive(Debug, Clone, Serialize)]
struct Progress {
    #[serde(flatten)]
    step: Step,
    started_unix_ms: u64,
    eta_s: u64,
    /// Recent operations per second.
    last_rate: f64,
    #[serde(skip)]
    written: Option<Instant>,
}

impl RunFolder {
    /// Creates a new folder: `out`, or one with a new name below `target/lab`.
    pub(crate) fn create(
        definition: &Definition,
        settings: &Settings,
        out: Option<&Path>,
    ) -> Result<Self> {
        let path = match out {
            Some(path) => path.to_owned(),
            None => new_path(&definition.name)?,
        };
        fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        ensure!(
            !path.join(ROWS).exists(),
            "{} already contains a run: continue it with --resume, or specify another --out",
            path.display()
        );
        write(&path.join(DEFINITION), definition.text.as_bytes())?;
        write(&path.join(SETTINGS), &serde_json::to_vec_pretty(settings)?)?;
        Self::with_rows(path)
    }

    /// Opens the folder of an existing run. Truncates a partial row at the end, which a crash may
    /// leave.
    pub fn open(path: &Path) -> Result<Self> {
        ensure!(path.join(ROWS).exists(), "{} contains no run", path.display());
        let folder = Self::with_rows(path.to_owned())?;
        let text = fs::read(path.join(ROWS)).context("could not read the rows")?;
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if complete < text.len() {
            folder.rows.set_len(complete as u64).context("could not truncate a partial row")?;
        }
        Ok(folder)
    }

    fn with_rows(path: PathBuf) -> Result<Self> {
        let rows = path.join(ROWS);
        let file = OpenOptions::new().create(true).append(true).open(&rows);
        let rows = file.with_context(|| format!("open {}", rows.display()))?;
        Ok(Self { path, rows, is_complete: false, progress: RefCell::new(None) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the definition as given.
    pub fn definition(&self) -> Result<Definition> {
        Ok(Definition::read(&self.path.join(DEFINITION))?)
    }

    pub(super) fn settings(&self) -> Result<Settings> {
        read_json(&self.path.join(SETTINGS))
    }

    /// Returns all rows, in the order of measurement.
    pub fn rows(&self) -> Result<Vec<Row>> {
        let path = self.path.join(ROWS);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let lines = text.lines().enumerate();
        lines
            .map(|(index, line)| {
                serde_json::from_str(line)
                    .with_context(|| format!("{}:{}: not a row", path.display(), index + 1))
            })
            .collect()
    }

    pub(crate) fn append(&mut self, row: &Row) -> Result<()> {
        let mut line = serde_json::to_vec(row)?;
        line.push(b'\n');
        // A single write: a reader sees at most the last row partially.
        self.rows.write_all(&line).context("could not write a row")
    }

    /// A resumed run may continue on another machine: each row records its machine.
    pub(crate) fn write_machine(&self, machine: &Machine) -> Result<()> {
        write(&self.path.join(MACHINE), &serde_json::to_vec_pretty(machine)?)
    }

    /// Publishes the state of the run for other processes; removed at the end.
    pub(super) fn write_progress(&self, news: &News<'_>) -> Result<()> {
        let path = self.path.join(PROGRESS);
        let now = Instant::now();
        let before = self.progress.take();
        let mut progress = match (news, before) {
            (News::Phase(step), before) => Progress {
                step: (*step).clone(),
                started_unix_ms: super::start::unix_ms(SystemTime::now()),
                eta_s: step.left_s,
                last_rate: before.map_or(0.0, |before| before.last_rate),
                written: None,
            },
            (News::Rate { operations_per_second }, Some(before)) => {
                Progress { last_rate: *operations_per_second, ..before }
            }
            (News::Ended { .. }, _) => return remove(&path),
            (_, before) => {
                self.progress.replace(before);
                return Ok(());
            }
        };
        let is_due = progress.written.is_none_or(|at| now - at >= PROGRESS_INTERVAL);
        if is_due {
            progress.written = Some(now);
            replace(&path, &serde_json::to_vec(&progress)?)?;
        }
        self.progress.replace(Some(progress));
        Ok(())
    }
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
}

/// Returns `target/lab/<name>-20261121T080556Z`, with a number appended if it exists.
fn new_path(name: &str) -> Result<PathBuf> {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let time = now.replace(['-', ':'], "");
    let parent = Path::new(PARENT);
    fs::create_dir_all(parent).with_context(|| format!("make {PARENT}"))?;
    for number in 0..NAMES_MAX {
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let path = parent.join(format!("{name}-{time}{suffix}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("make {}", path.display())),
        }
    }
    bail!("no unused name for {name} in {PARENT}")
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// Replaces a file atomically: a reader sees the old content or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    write(&new, bytes)?;
    fs::rename(&new, path).with_context(|| format!("write {}", path.display()))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Scratch;

    #[test]
    fn settings_are_arguments() {
        let check = |settings: Settings, expected: &str| assert_eq!(settings.flags(), expected);
        let seed = SEED_DEFAULT;
        check(Settings { seed, ..Settings::default() }, "");
        check(Settings { seed, quick: true, ..Settings::default() }, " --quick");
        let all = Settings { quick: false, repeats: Some(2), cell_ms: Some(400), seed: 9 };
        check(all, " --repeats 2 --cell-ms 400 --seed 9");
    }

    #[test]
    fn half_a_row_is_cut_off_and_a_whole_one_is_not() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let path = scratch.path();
        assert_eq!(
            RunFolder::open(path).unwrap_err().to_string(),
            format!("{} contains no run", path.display())
        );
        fs::write(path.join(ROWS), "{}\n{\"table\": \"x").unwrap();
        let folder = RunFolder::open(path).unwrap();
        assert_eq!(fs::read_to_string(path.join(ROWS)).unwrap(), "{}\n");
        let error = format!("{:#}", folder.rows().unwrap_err());
        assert!(error.contains("rows.jsonl:1: not a row"), "{error}");
    }
}
