//! Folded stacks as self-contained SVG images.

use std::io::{self, Cursor};

use inferno::differential;
use inferno::flamegraph::color::{MultiPalette, Palette};
use inferno::flamegraph::{self, Options};

/// Titles of a flame graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    pub title: String,
    pub subtitle: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum GraphError {
    #[error("there are no samples to draw")]
    Empty,
    #[error("these are not folded stacks: a line must be functions joined by ; then a number")]
    NotFolded,
    #[error("could not draw the flame graph")]
    Draw(#[from] io::Error),
}

/// Returns a flame graph of folded stacks, as SVG. The width of each function is its share of the
/// samples; kernel functions are orange, inlined ones blue.
pub(crate) fn flame_graph(folded: &str, labels: &Labels) -> Result<String, GraphError> {
    check(folded)?;
    let mut options = options(labels);
    options.colors = Palette::Multi(MultiPalette::Java); // knows the marks _[k] and _[i]
    draw(&mut options, folded)
}

/// Returns the difference of two profiles, as SVG: widths as in `after`, red for functions with a
/// greater share than in `before`, blue for those with a smaller one. The two may have different
/// numbers of samples.
pub(crate) fn difference(before: &str, after: &str, labels: &Labels) -> Result<String, GraphError> {
    check(before)?;
    check(after)?;
    let scaled = differential::Options { normalize: true, strip_hex: false };
    let mut both = Vec::new();
    differential::from_readers(scaled, Cursor::new(before), Cursor::new(after), &mut both)?;
    let both = String::from_utf8(both).map_err(io::Error::other)?;
    draw(&mut options(labels), &both)
}

fn options(labels: &Labels) -> Options<'static> {
    let mut options = Options::default();
    options.title.clone_from(&labels.title);
    options.subtitle = (!labels.subtitle.is_empty()).then(|| labels.subtitle.clone());
    options.deterministic = true;
    options
}

fn draw(options: &mut Options<'_>, folded: &str) -> Result<String, GraphError> {
    let mut svg = Vec::new();
    flamegraph::from_lines(options, folded.lines(), &mut svg)?;
    Ok(String::from_utf8(svg).map_err(io::Error::other)?)
}

/// The library would skip malformed lines.
fn check(folded: &str) -> Result<(), GraphError> {
    let mut empty = true;
    for line in folded.lines() {
        super::shares::parse(line).ok_or(GraphError::NotFolded)?;
        empty = false;
    }
    if empty { Err(GraphError::Empty) } else { Ok(()) }
}
