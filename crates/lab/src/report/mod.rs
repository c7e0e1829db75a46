//! Reports: one page and one CSV file from the rows of a run.

mod cells;
mod chart;
mod csv;
mod experiment;
mod facts;
mod figure;
mod folder;
mod grid;
mod measurement;
mod number;
mod page;
mod plots;
mod source;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use maud::{Markup, html};

use crate::command_line::{self, CommandLine, Job};
use number::Unit;
use page::Detail;
use table::Table;

pub(crate) use cells::last_rows;
pub(crate) use experiment::{Curve, experiment};
pub(crate) use folder::{REPEAT, folders as run_folders, read_if_there};
pub(crate) use measurement::Measurement;
pub(crate) use page::{document, masthead};

/// The name of a page in its folder.
pub(crate) const PAGE: &str = "report.html";

/// Small enough for mail attachments and phones.
pub const PAGE_BYTES_MAX: usize = 2 << 20;

const HELP: &str = "\
Usage: myriad-lab report DIR

Makes DIR/report.html and DIR/rows.csv from the rows of a run. DIR is the folder of a run, or a
folder of such folders, which become one page.
";

/// Writes `report.html` and `rows.csv` in `folder` from its rows and those of its subfolders, and
/// returns the path of the page.
///
/// Reads `rows.jsonl` and, if present, `machine.json`, `definition.toml` and `source.json`. Fails
/// without writing anything if there are no rows or a file is damaged.
pub fn write(folder: &Path) -> Result<PathBuf> {
    let runs = folder::read(folder)?;
    let page = fitting_page(&runs)?;
    let csv = csv::csv(&runs)?;
    let path = folder.join(PAGE);
    put(&path, &page)?;
    put(&folder.join("rows.csv"), &csv)?;
    Ok(path)
}

/// Returns the page that [`write`] would write.
pub(crate) fn page(folder: &Path) -> Result<String> {
    fitting_page(&folder::read(folder)?)
}

/// Returns the CSV file that [`write`] would write.
pub(crate) fn csv_text(folder: &Path) -> Result<String> {
    csv::csv(&folder::read(folder)?)
}

/// Returns the charts of an unfinished experiment, with all its `measurements`.
pub(crate) fn live_charts(measurements: Vec<Measurement>) -> Result<Markup> {
    let Some(name) = measurements.first().map(|one| one.row.table.clone()) else {
        return Ok(html! {});
    };
    let table = Table::of(name, measurements);
    let reactors = cells::reactors(&table)?;
    let curves = plots::latency_by_rate(&table)?;
    let lines = plots::lines_over_axis(&table)?;
    Ok(html! {
        h2 { (table.name) " so far" }
        (cells::verdicts(&table))
        div.charts { @for chart in curves.iter().chain(&lines) { (chart) } }
        div.maps { @for map in plots::heat_maps(&table) { (map) } }
        @if let Some(reactors) = reactors { h3 { "Reactors" } (reactors) }
    })
}

/// Parses measurements from JSON lines.
pub(crate) fn parse_measurements(lines: &str) -> Result<Vec<Measurement>> {
    folder::parse_rows(lines)?.rows.into_iter().map(Measurement::of).collect()
}

/// Formats `81.2 k/s`.
pub(crate) fn rate(per_second: f64) -> String {
    Unit::PerSecond.show(per_second)
}

/// Returns the page with as much detail as fits.
fn fitting_page(runs: &[folder::Run]) -> Result<String> {
    for detail in [Detail::Full, Detail::WithoutWindows] {
        let page = page::report(runs, detail)?.into_string();
        if page.len() <= PAGE_BYTES_MAX {
            return Ok(page);
        }
    }
    Ok(page::report(runs, Detail::CellsOnly)?.into_string())
}

/// Writes atomically: a reader never sees a partial file.
fn put(path: &Path, text: &str) -> Result<()> {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, text).with_context(|| format!("write {}", temporary.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("write {}", path.display()))
}

/// `myriad-lab report DIR`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    use lexopt::prelude::*;
    let mut folder = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(command_line::printing(HELP)),
            Value(path) if folder.is_none() => folder = Some(PathBuf::from(path)),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(folder) = folder else {
        bail!("missing folder of a run; see myriad-lab report --help");
    };
    Ok(Box::new(move || {
        let page = write(&folder)?;
        command_line::print(&format!("{}\n{}\n", page.display(), folder.join("rows.csv").display()))
    }))
}
