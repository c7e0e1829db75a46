//! The page: one self-contained file.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;

use crate::report::figure::{CORRECTED_P99, Figure, SERVER_CPU, THROUGHPUT};
use crate::report::folder::Run;
use crate::report::table::{Cell, Table};
use crate::report::{cells, facts, plots, source};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Longer texts of the machine's description are collapsed.
const MACHINE_TEXT_CHARS_MAX: usize = 160;

/// Level of detail of a page: the rows contain everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Full,
    /// Without throughput over time.
    WithoutWindows,
    /// Also without individual measurements.
    CellsOnly,
}

/// Renders the whole page of a report.
pub(crate) fn report(runs: &[Run], detail: Detail) -> Result<Markup> {
    let sections = sections(runs, detail)?;
    let title = match sections.as_slice() {
        [only] => only.title.clone(),
        all => format!("{} experiments", all.len()),
    };
    let content = html! {
        (masthead(&title, &about(runs)))
        @if sections.len() > 1 { (contents(&sections)) }
        main {
            @for section in &sections { (section.content) }
            (how_to_read())
        }
        footer {
            @for machine in machines(runs) { (machine) }
            @if detail != Detail::Full {
                p { "To limit its size, this page omits some measurements: see rows.csv and rows.jsonl." }
            }
        }
    };
    Ok(document(&title, &content))
}

/// Renders a page of the lab around some content, with inline style and script.
pub(crate) fn document(title: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – Myriad lab" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                (content)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

pub(crate) fn masthead(title: &str, about: &str) -> Markup {
    html! {
        header.masthead {
            p.kicker { "Myriad lab" }
            h1 { (title) }
            p.standfirst { (about) }
            // Displayed by the script; without it, the theme follows the browser.
            button.theme type="button" hidden { "Light or dark" }
        }
    }
}

/// One table of the page.
struct Section {
    id: String,
    name: String,
    title: String,
    about: String,
    content: Markup,
}

fn sections(runs: &[Run], detail: Detail) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for run in runs {
        for table in &run.tables {
            let id = format!("table-{}", sections.len() + 1);
            sections.push(section(run, table, id, detail)?);
        }
    }
    Ok(sections)
}

fn section(run: &Run, table: &Table, id: String, detail: Detail) -> Result<Section> {
    let title = title(run, table);
    let highlights = highlights(table);
    let about = match highlights.first() {
        Some(best) => format!("{}; {} {}", size(table), best.name, best.value),
        None => size(table),
    };
    let lines = plots::lines_over_axis(table)?;
    let curves = plots::latency_by_rate(table)?;
    let maps = plots::heat_maps(table);
    let windows = if detail == Detail::Full { plots::windows(table)? } else { Vec::new() };
    let reactors = cells::reactors(table)?;
    let side_loads = cells::side_loads(table);
    let comparison = source::comparison(table, &run.source)?;
    let content = html! {
        section.table id=(id) {
            header {
                p.kicker { (table.name) }
                h2 { (title) }
                p.standfirst { (size(table)) "." }
                (cells::verdicts(table))
                dl.highlights {
                    @for highlight in &highlights {
                        div {
                            dt { (highlight.name) }
                            dd { b { (highlight.value) } span { (highlight.place) } }
                        }
                    }
                }
            }
            (setup(table))
            @if let Some(comparison) = comparison {
                h3 { "Comparison with the source document" }
                (comparison)
            }
            @if !curves.is_empty() {
                h3 { "Latency against rate" }
                div.charts { @for chart in &curves { (chart) } }
            }
            @if !lines.is_empty() {
                h3 { "Over " (swept(table)) }
                div.charts { @for chart in &lines { (chart) } }
            }
            @if !maps.is_empty() {
                h3 { "Every cell at a glance" }
                div.maps { @for map in &maps { (map) } }
            }
            h3 { "Cells" }
            (cells::cells(table))
            @if let Some(side_loads) = side_loads {
                h3 { "Additional loads" }
                (side_loads)
            }
            @if let Some(reactors) = reactors {
                h3 { "Reactors" }
                (reactors)
            }
            @if !windows.is_empty() {
                details {
                    summary { "Throughput over time" }
                    div.charts { @for chart in &windows { (chart) } }
                    @if plots::windows_left_out(table) > 0 {
                        p.note { (plots::windows_left_out(table)) " more cells are in rows.jsonl." }
                    }
                }
            }
            @if detail != Detail::CellsOnly {
                details {
                    summary { "Every measurement" }
                    (cells::measurements(table))
                }
            }
            (rerun(run, table))
        }
    };
    Ok(Section { id, name: table.name.clone(), title, about, content })
}

fn swept(table: &Table) -> String {
    crate::report::grid::layout(&table.axes).map_or(String::new(), |layout| layout.x.label.clone())
}

/// Returns the title of the run's definition, if the definition belongs to this table.
fn title(run: &Run, table: &Table) -> String {
    let definition = run.definition.as_deref().and_then(|text| text.parse::<toml::Table>().ok());
    let text = |name: &str| -> Option<String> {
        Some(definition.as_ref()?.get(name)?.as_str()?.to_owned())
    };
    let is_its_own = text("name").is_none_or(|name| name == table.name);
    text("title").filter(|_| is_its_own).unwrap_or_else(|| table.name.clone())
}

/// A figure of a table that is displayed prominently.
struct Highlight {
    name: &'static str,
    value: String,
    place: String,
}

/// Returns the best values of the table among valid measurements.
fn highlights(table: &Table) -> Vec<Highlight> {
    let wanted: [(&str, &Figure, bool); 3] = [
        ("fastest", &THROUGHPUT, true),
        ("least server CPU per operation", &SERVER_CPU, false),
        ("lowest p99", &CORRECTED_P99, false),
    ];
    let found = wanted.into_iter().filter_map(|(name, figure, most)| {
        let (cell, median) = best(table, figure, most)?;
        Some(Highlight { name, value: figure.unit.show(median), place: table.describe_fully(cell) })
    });
    found.collect()
}

fn size(table: &Table) -> String {
    let measurements = counted(table.measurements().count(), "measurement");
    format!("{measurements} of {}", counted(table.cells.len(), "cell"))
}

fn best<'a>(table: &'a Table, figure: &Figure, most: bool) -> Option<(&'a Cell, f64)> {
    let trusted = table.cells.iter().filter(|cell| cell.is_trusted());
    let values = trusted.filter_map(|cell| Some((cell, cell.estimate(figure)?.median)));
    if most {
        return values.max_by(|(_, a), (_, b)| a.total_cmp(b));
    }
    values.min_by(|(_, a), (_, b)| a.total_cmp(b))
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("{count} {noun}") } else { format!("{count} {noun}s") }
}

fn setup(table: &Table) -> Markup {
    html! {
        dl.facts {
            @for (name, text) in facts::facts(table) {
                div { dt { (name) } dd { (text) } }
            }
        }
    }
}

fn contents(sections: &[Section]) -> Markup {
    html! {
        nav.contents aria-label="Contents" {
            h2 { "Contents" }
            ol {
                @for section in sections {
                    li {
                        a href=(format!("#{}", section.id)) {
                            span.name { (section.name) } " " (section.title)
                        }
                        p { (section.about) }
                    }
                }
            }
        }
    }
}

/// Formats time, commit and machine: `28 measurements, 2026-11-21, commit 2eb770e`.
fn about(runs: &[Run]) -> String {
    let rows = || runs.iter().flat_map(|run| &run.tables).flat_map(Table::measurements);
    let mut parts = vec![counted(rows().count(), "measurement")];
    let first = rows().map(|one| one.row.started_unix_ms).min();
    let last = rows().map(|one| one.row.started_unix_ms).max();
    if let (Some(first), Some(last)) = (first, last) {
        let (first, last) = (date(first), date(last));
        parts.push(if first == last { first } else { format!("{first} to {last}") });
    }
    let mut commits: Vec<&str> = rows().map(|one| one.row.commit.as_str()).collect();
    commits.sort_unstable();
    commits.dedup();
    commits.retain(|commit| !commit.is_empty());
    if !commits.is_empty() {
        parts.push(format!("commit {}", commits.join(", ")));
    }
    let mut machines: Vec<&str> = rows().map(|one| one.row.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    if machines.len() > 1 {
        parts.push(format!("{} machines: their figures are not comparable", machines.len()));
    }
    if runs.iter().any(|run| run.is_torn) {
        parts.push("the last row is incomplete and was ignored".to_owned());
    }
    format!("{}.", parts.join("; "))
}

fn date(unix_ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(unix_ms);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.get(..10).unwrap_or(&text).to_owned()
}

/// Renders the command that repeats the measurement, the definition, and the subjects' command
/// lines.
fn rerun(run: &Run, table: &Table) -> Markup {
    let mut lines: Vec<String> = table
        .measurements()
        .map(|one| one.row.subject.command_line.join(" "))
        .filter(|line| !line.is_empty())
        .collect();
    lines.sort();
    lines.dedup();
    html! {
        details {
            summary { "How to repeat the measurement" }
            @if let Some(command) = &run.repeat { (listing(command)) }
            @if let Some(text) = &run.definition { (listing(text)) }
            @if !lines.is_empty() {
                p { "Command lines of the subjects:" }
                (listing(&lines.join("\n")))
            }
        }
    }
}

/// Renders text whose long lines scroll, also by the keyboard.
fn listing(text: &str) -> Markup {
    html! { pre tabindex="0" { code { (text) } } }
}

fn how_to_read() -> Markup {
    html! {
        section.reading {
            h2 { "How to read this" }
            p {
                "A number is the median of a cell's repeats, followed by the confidence interval of "
                "the median and the number of repeats. Only measurements with the verdict ok count; "
                "if there are none, the numbers are struck through and the dots in charts are hollow."
            }
            p {
                "Corrected latency is measured from the due time of a request, raw latency from "
                "the time of sending. If a server stalls, raw latency does not include requests that "
                "could not be sent in that time. Server CPU per operation is the most comparable figure "
                "between machines with shared cores."
            }
        }
    }
}

/// The distinct descriptions of the machines.
fn machines(runs: &[Run]) -> Vec<Markup> {
    let mut seen: Vec<&Value> = Vec::new();
    for machine in runs.iter().filter_map(|run| run.machine.as_ref()) {
        if !seen.contains(&machine) {
            seen.push(machine);
        }
    }
    seen.into_iter().map(machine).collect()
}

fn machine(machine: &Value) -> Markup {
    let mut facts = Vec::new();
    flatten("", machine, &mut facts);
    html! {
        details.machine open {
            summary { "Machine" }
            dl.facts {
                @for (name, text) in &facts {
                    div {
                        dt { (name) }
                        @if text.chars().count() > MACHINE_TEXT_CHARS_MAX {
                            dd { details { summary { (text.split(' ').count()) " words" } (text) } }
                        } @else {
                            dd { (text) }
                        }
                    }
                }
            }
        }
    }
}

/// Collects the leaves of a description with their paths: `memory total bytes`.
fn flatten(path: &str, value: &Value, facts: &mut Vec<(String, String)>) {
    let text = match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(&format!("{path} {name}"), value, facts);
            }
            return;
        }
        Value::Null => return,
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let texts = items.iter().map(|item| match item {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            texts.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    };
    if !text.is_empty() {
        facts.push((path.trim().replace('_', " "), text));
    }
}
