//! The page of a run in progress: its state, its last rows, and the current charts.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::Result;
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;

use crate::report::{self, Measurement};
use crate::serve::follow::Follower;

/// Number of newest rows that the page shows.
const ROWS_SHOWN: usize = 12;

/// Polls for updates once a second, and replaces the displayed content.
const SCRIPT: &str = include_str!("live.js");

/// Content of `progress.json`; missing fields are not displayed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Progress {
    number: Option<usize>,
    count: Option<usize>,
    cell: Option<usize>,
    cells: Option<usize>,
    repeat: Option<usize>,
    phase: Option<String>,
    eta_s: Option<u64>,
    last_rate: Option<f64>,
}

/// A run folder at the last poll.
#[derive(Debug)]
pub(crate) struct Live {
    folder: PathBuf,
    followers: Vec<Follower>,
    version: String,
    content: String,
}

impl Live {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            followers: Vec::new(),
            version: String::new(),
            content: String::new(),
        }
    }

    /// Polls the folder; renders only after a change. Returns the version of the content, for an
    /// `ETag`, and the content.
    pub(crate) fn poll(&mut self) -> Result<(&str, &str)> {
        for folder in report::run_folders(&self.folder)? {
            if !self.followers.iter().any(|follower| follower.is_of(&folder)) {
                self.followers.push(Follower::new(&folder));
            }
        }
        for follower in &mut self.followers {
            follower.poll()?;
        }
        let progress = newest_progress(&self.folder)?;
        let count: usize = self.followers.iter().map(|follower| follower.measurements.len()).sum();
        let mut hasher = DefaultHasher::new();
        (count, &progress).hash(&mut hasher);
        let version = format!("\"{:016x}\"", hasher.finish());
        if version != self.version {
            self.content = self.draw(progress.as_deref())?.into_string();
            self.version = version;
        }
        Ok((&self.version, &self.content))
    }

    /// Renders the whole page, from the last poll.
    pub(crate) fn page(&self) -> String {
        let title = self.folder.file_name().map_or_else(
            || self.folder.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        );
        let content = html! {
            (report::masthead(&title, "Live: this page follows the rows of a run as they are written."))
            nav aria-label="Results" {
                p { a href="report.html" { "Current report" } " · " a href="rows.csv" { "rows.csv" } }
            }
            p #state role="status" {}
            noscript { p { "This page updates itself with JavaScript; reload it to see more." } }
            main #live data-version=(self.version) { (PreEscaped(&self.content)) }
            script { (PreEscaped(SCRIPT)) }
        };
        report::document(&title, &content).into_string()
    }

    fn draw(&self, progress: Option<&str>) -> Result<Markup> {
        let all = || self.followers.iter().flat_map(|follower| &follower.measurements);
        let mut newest: Vec<&Measurement> = all().collect();
        newest.sort_by_key(|one| std::cmp::Reverse(one.row.started_unix_ms));
        let current = newest.first().map(|one| one.row.table.clone());
        let shown: Vec<Measurement> =
            all().filter(|one| Some(&one.row.table) == current.as_ref()).cloned().collect();
        newest.truncate(ROWS_SHOWN);
        Ok(html! {
            (running(progress))
            @if newest.is_empty() {
                p { "Nothing has been measured yet." }
            } @else {
                h2 { "Last rows" }
                (report::last_rows(&newest))
                (report::live_charts(shown)?)
            }
        })
    }
}

/// Renders the state of the run. A partially written progress file is shown at the next poll.
fn running(progress: Option<&str>) -> Markup {
    let Some(progress) = progress else {
        return html! { p.standfirst { "No run is in progress in this folder." } };
    };
    let progress: Progress = serde_json::from_str(progress).unwrap_or_default();
    let one_of = |number: Option<usize>, count: Option<usize>| {
        Some(format!("{} of {}", number? + 1, count?))
    };
    let facts = [
        ("Cell", one_of(progress.cell, progress.cells)),
        ("Repeat", progress.repeat.map(|repeat| (repeat + 1).to_string())),
        ("Phase", progress.phase.clone()),
        ("Rate", progress.last_rate.filter(|rate| *rate > 0.0).map(report::rate)),
        ("Time left", progress.eta_s.map(duration)),
    ];
    html! {
        dl.highlights {
            @for (name, text) in facts {
                @if let Some(text) = text { div { dt { (name) } dd { b { (text) } } } }
            }
        }
        @if let (Some(number), Some(count)) = (progress.number, progress.count) {
            progress.progress value=(number) max=(count) aria-label="Measurements done" {}
            p.note { (number) " of " (count) " measurements are done." }
        }
    }
}

fn duration(seconds: u64) -> String {
    if seconds < 60 {
        return format!("{seconds} s");
    }
    format!("{} min {:02} s", seconds / 60, seconds % 60)
}

/// Returns the newest `progress.json` of the folder and its subfolders.
fn newest_progress(folder: &Path) -> Result<Option<String>> {
    let mut paths = vec![folder.join("progress.json")];
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path().join("progress.json"));
    }
    let written = |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
    let newest = paths.into_iter().filter_map(|path| Some((written(&path)?, path))).max();
    match newest {
        Some((_, path)) => report::read_if_there(&path),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_shown_as_far_as_it_is_there() {
        let text = running(Some(
            r#"{"number": 3, "count": 84, "cell": 4, "cells": 28, "repeat": 0, "phase": "measuring",
                "eta_s": 125, "last_rate": 81234.0, "parameters": {"load.connections": 8}}"#,
        ))
        .into_string();
        for part in ["5 of 28", "measuring", "81.2 k/s", "2 min 05 s", "value=\"3\"", "max=\"84\""]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(running(None).into_string().contains("No run is in progress"));
        assert!(!running(Some("{")).into_string().contains("<dt>"));
    }
}
