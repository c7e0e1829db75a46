//! Points of a grid: which values are set at which paths of the file.

use std::collections::BTreeMap;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::CELLS_MAX;
use super::file::{Fault, read};

/// A value of the file with its position.
pub(super) type Node<'text> = Spanned<DeValue<'text>>;
/// The values that one cell sets, by path.
pub(super) type Point<'text> = Vec<(String, Node<'text>)>;

/// Roots of the paths that a grid may set.
const ROOTS: [&str; 5] = ["subject", "load", "beside", "warmup", "cell_ms"];
/// The grid's only key that is not a path.
const ZIP: &str = "zip";

/// Returns every combination of `[[cell]]` tables and lists of `[grid]`; without both, one point
/// that sets nothing.
pub(super) fn points<'text>(
    cells: Option<&Node<'text>>,
    grid: Option<&Node<'text>>,
) -> Result<Vec<Point<'text>>, Fault> {
    let mut axes = Vec::new();
    if let Some(cells) = cells {
        axes.push(written_out(cells)?);
    }
    if let Some(grid) = grid {
        axes.extend(lists(grid)?);
    }
    let count = axes.iter().try_fold(1_usize, |count, axis| count.checked_mul(axis.len()));
    let at = grid.or(cells).map_or(0, |node| node.span().start);
    match count {
        Some(count) if count <= CELLS_MAX => Ok(product(&axes)),
        Some(count) => {
            Err(Fault::at(at, format!("{count} cells; at most {CELLS_MAX} are allowed")))
        }
        None => Err(Fault::at(at, format!("more than {CELLS_MAX} cells"))),
    }
}

/// Returns all combinations. The last axis varies fastest.
fn product<'text>(axes: &[Vec<Point<'text>>]) -> Vec<Point<'text>> {
    let mut points = vec![Point::new()];
    for axis in axes {
        points = points
            .iter()
            .flat_map(|point| axis.iter().map(move |more| [&point[..], &more[..]].concat()))
            .collect();
    }
    points
}

/// Returns the points of `[[cell]]` tables.
fn written_out<'text>(cells: &Node<'text>) -> Result<Vec<Point<'text>>, Fault> {
    let wanted =
        || Fault::at(cells.span().start, "cell must be an array of tables: [[cell]]".into());
    let tables = cells.get_ref().as_array().ok_or_else(wanted)?;
    let point = |node: &Node<'text>| {
        let table = node.get_ref().as_table().ok_or_else(wanted)?;
        Ok(paths(table)?.into_iter().map(|entry| (entry.path, entry.node)).collect())
    };
    tables.iter().map(point).collect()
}

struct Entry<'text> {
    path: String,
    at: usize,
    node: Node<'text>,
}

/// Returns the paths of a table with their values, in the order of the text. `load.users = 1` and
/// `"load.users" = 1` are equivalent; a table at any other position is a value.
fn paths<'text>(table: &DeTable<'text>) -> Result<Vec<Entry<'text>>, Fault> {
    let mut entries = Vec::new();
    for (key, node) in table {
        let at = key.span().start;
        let root = key.get_ref().as_ref();
        match (root, node.get_ref()) {
            ("subject" | "load" | "beside", DeValue::Table(inner)) => {
                entries.extend(inner_paths(root, inner));
            }
            _ => entries.push(Entry { path: root.to_owned(), at, node: node.clone() }),
        }
    }
    for entry in &entries {
        let root = entry.path.split('.').next().unwrap_or_default();
        if !ROOTS.contains(&root) {
            let reason = format!(
                "a grid cannot set {}: it sets subject, load, `beside`, warmup and cell_ms",
                entry.path
            );
            return Err(Fault::at(entry.at, reason));
        }
    }
    entries.sort_by_key(|entry| entry.at);
    Ok(entries)
}

/// Handles paths below `subject`, `load` and `beside`, whose tables `options`, `keys` and named
/// loads are not values either.
fn inner_paths<'text>(prefix: &str, table: &DeTable<'text>) -> Vec<Entry<'text>> {
    let mut entries = Vec::new();
    for (key, node) in table {
        let path = format!("{prefix}.{}", key.get_ref());
        match node.get_ref() {
            DeValue::Table(inner) if is_no_value(&path) => {
                entries.extend(inner_paths(&path, inner));
            }
            _ => entries.push(Entry { path, at: key.span().start, node: node.clone() }),
        }
    }
    entries
}

fn is_no_value(path: &str) -> bool {
    match path.split('.').collect::<Vec<&str>>()[..] {
        ["subject", name] => name == "options",
        ["load", name] | ["beside", _, name] => name == "keys",
        ["beside", _] => true,
        _ => false,
    }
}

/// Values that vary together: one list, or several.
struct Axis<'text> {
    paths: Vec<String>,
    points: Vec<Point<'text>>,
}

/// Returns the axes of `[grid]`.
fn lists<'text>(grid: &Node<'text>) -> Result<Vec<Vec<Point<'text>>>, Fault> {
    let at = grid.span().start;
    let table = grid.get_ref().as_table();
    let mut table =
        table.ok_or_else(|| Fault::at(at, "grid must be a table: [grid]".into()))?.clone();
    let zip = table.remove(ZIP);
    let mut axes = Vec::new();
    for entry in paths(&table)? {
        axes.push(Axis { points: list(&entry)?, paths: vec![entry.path] });
    }
    for group in zip.map(groups).transpose()?.unwrap_or_default() {
        join(&mut axes, &group)?;
    }
    Ok(axes.into_iter().map(|axis| axis.points).collect())
}

fn list<'text>(entry: &Entry<'text>) -> Result<Vec<Point<'text>>, Fault> {
    let path = &entry.path;
    let Some(values) = entry.node.get_ref().as_array() else {
        return Err(Fault::at(entry.at, format!("{path} must be a list of values")));
    };
    if values.is_empty() {
        return Err(Fault::at(entry.at, format!("{path} has no values")));
    }
    Ok(values.iter().map(|value| vec![(path.clone(), value.clone())]).collect())
}

/// Parses the value of `zip`: lists of paths.
fn groups(zip: Node<'_>) -> Result<Vec<Spanned<Vec<String>>>, Fault> {
    read(zip).map_err(|fault| Fault {
        reason: "zip must contain lists of paths: [[\"load.users\", \"load.connections\"]]".into(),
        ..fault
    })
}

/// Joins the axes named in `group` into one, at the position of the first.
fn join(axes: &mut Vec<Axis<'_>>, group: &Spanned<Vec<String>>) -> Result<(), Fault> {
    let fault = |reason| Fault::at(group.span().start, reason);
    let mut joined: Option<Axis<'_>> = None;
    let mut index = axes.len();
    for path in group.get_ref() {
        let found = axes.iter().position(|axis| axis.paths == [path.as_str()]);
        let Some(found) = found else {
            return Err(fault(format!("zip names {path}, which has no list in the grid")));
        };
        index = index.min(found);
        let axis = axes.remove(found);
        match &mut joined {
            None => joined = Some(axis),
            Some(joined) => join_two(joined, axis).map_err(fault)?,
        }
    }
    axes.splice(index..index, joined);
    Ok(())
}

fn join_two<'text>(target: &mut Axis<'text>, source: Axis<'text>) -> Result<(), String> {
    if target.points.len() != source.points.len() {
        return Err(format!(
            "lists in zip differ in length: {} has {} values, {} has {}",
            target.paths[0],
            target.points.len(),
            source.paths[0],
            source.points.len()
        ));
    }
    target.paths.extend(source.paths);
    for (point, more) in target.points.iter_mut().zip(source.points) {
        point.extend(more);
    }
    Ok(())
}

/// Sets the values of a point in the file. Replaces values that block a path.
pub(super) fn set_all<'text>(file: &mut DeTable<'text>, point: &Point<'text>) {
    for (path, node) in point {
        let words: Vec<&str> = path.split('.').collect();
        set(file, &words, node);
    }
}

fn set<'text>(table: &mut DeTable<'text>, words: &[&str], node: &Node<'text>) {
    let [word, rest @ ..] = words else { return };
    let key = || Spanned::new(node.span(), word.to_string().into());
    if rest.is_empty() {
        table.remove(*word);
        table.insert(key(), node.clone());
        return;
    }
    let is_table = table.get(*word).is_some_and(|found| found.get_ref().is_table());
    if !is_table {
        table.remove(*word);
        table.insert(key(), Spanned::new(node.span(), DeValue::Table(DeTable::new())));
    }
    let inner = table.get_mut(*word).map(Spanned::get_mut);
    if let Some(DeValue::Table(inner)) = inner {
        set(inner, rest, node);
    }
}

/// Returns the values of a point by path, in the form used in rows.
pub(super) fn parameters(point: &Point<'_>) -> Result<BTreeMap<String, Value>, Fault> {
    point.iter().map(|(path, node)| Ok((path.clone(), read(node.clone())?))).collect()
}
