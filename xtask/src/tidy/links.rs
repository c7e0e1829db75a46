//! Links between documents.

use std::collections::BTreeSet;

use crate::tidy::docs::prose_lines;
use crate::tidy::{SourceFile, Violation};

/// Each relative link of a Markdown file points to a file or folder of the repository, and to a
/// heading if it has an anchor.
pub(crate) fn check_links(files: &[SourceFile]) -> Vec<Violation> {
    let documents = files.iter().filter(|file| file.is_a("md"));
    documents.flat_map(|document| check_document(files, document)).collect()
}

fn check_document(files: &[SourceFile], document: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (line, text) in prose_lines(document) {
        for target in link_targets(&text) {
            if let Err(what) = resolve(files, document, target) {
                violations.push(Violation { path: document.path.clone(), line, what });
            }
        }
    }
    violations
}

/// Targets of the links in a line: `path#anchor` of `[text](path#anchor)` and `[text]: path#anchor`.
fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    let definition = text.starts_with('[').then(|| text.split_once("]: ")).flatten();
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    inline.map(|(target, _)| target).chain(definition.map(|(_, target)| target))
}

fn resolve(files: &[SourceFile], document: &SourceFile, target: &str) -> Result<(), String> {
    if target.contains("://") {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { document.path.clone() } else { join(&document.path, path) };
    let folder = format!("{path}/");
    let Some(file) = files.iter().find(|file| file.path == path) else {
        let is_folder = files.iter().any(|file| file.path.starts_with(&folder));
        if is_folder && anchor.is_empty() {
            return Ok(());
        }
        return Err(format!("link to {target}: {path} does not exist"));
    };
    if anchor.is_empty() || anchors(file).contains(anchor) {
        return Ok(());
    }
    Err(format!("link to {target}: {path} has no heading with this anchor"))
}

/// A path relative to the folder of `from`, relative to the root.
fn join(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

// Source: github/cmark-gfm and html-pipeline, TableOfContentsFilter: lower case, no punctuation,
// blanks as hyphens, repeated headings numbered.
fn anchors(file: &SourceFile) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, text) in prose_lines(file) {
        let title = text.trim_start_matches('#');
        if title.len() == text.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let free = (1..).map(|count| format!("{anchor}-{count}"));
        let anchor = std::iter::once(anchor.clone()).chain(free).find(|a| !anchors.contains(a));
        anchors.extend(anchor);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_become_anchors() {
        let text = "# One `two`, three\n## A-b_c\n```sh\n# code\n```\n#tag\n## A-b_c\n";
        let file = SourceFile { path: "a.md".into(), text: text.into() };
        let anchors: Vec<String> = anchors(&file).into_iter().collect();
        assert_eq!(anchors, ["a-b_c", "a-b_c-1", "one-two-three"]);
    }

    #[test]
    fn both_forms_of_links_are_found() {
        let targets = |text| link_targets(text).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(targets("see [a](b.md#c), [d](e.md)"), ["b.md#c", "e.md"]);
        assert_eq!(targets("[a]: b.md"), ["b.md"]);
        assert_eq!(targets("a [b] c"), [""; 0]);
    }

    #[test]
    fn paths_are_relative_to_the_document() {
        assert_eq!(join("README.md", "docs/a.md"), "docs/a.md");
        assert_eq!(join("docs/internals/a.md", "../b.md"), "docs/b.md");
        assert_eq!(join("docs/a.md", "decisions/"), "docs/decisions");
    }
}
