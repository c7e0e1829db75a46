//! Lines, functions and assertions of each part of the tree.

use std::collections::BTreeMap;

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, Item, ItemFn, Macro, Signature, TraitItemFn};

use crate::tidy::SourceFile;
use crate::tidy::cycles::{attributes, is_test};

const ASSERTIONS: [&str; 6] =
    ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// Folders with a row for each of their modules.
const SPLIT: [&str; 1] = ["server"];
/// Files with a row of their own.
const SINGLE: [&str; 1] = ["server/engine/commit.rs"];

/// Sorted.
#[derive(Debug, Default)]
pub(super) struct Lengths(Vec<usize>);

impl Lengths {
    /// 0 without any.
    pub(super) fn percentile(&self, percent: usize) -> usize {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

/// Figures of the Rust code of one part. Tests, examples and simulations count as tests.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) lines: usize,
    pub(super) test_lines: usize,
    /// Of functions outside of tests.
    pub(super) functions: Lengths,
    /// Of all files.
    pub(super) files: Lengths,
    /// Outside of tests.
    pub(super) assertions: usize,
}

impl Code {
    /// Crates by name, and the modules of [`SPLIT`] and [`SINGLE`].
    pub(super) fn by_part(files: &[SourceFile]) -> BTreeMap<String, Code> {
        let mut parts: BTreeMap<String, Code> = BTreeMap::new();
        for file in files.iter().filter(|file| file.is_a("rs")) {
            let figures = measure(file);
            for part in parts_of(&file.path) {
                parts.entry(part).or_default().add(&figures);
            }
        }
        for code in parts.values_mut() {
            code.functions.0.sort_unstable();
            code.files.0.sort_unstable();
        }
        parts
    }

    fn add(&mut self, other: &Code) {
        self.lines += other.lines;
        self.test_lines += other.test_lines;
        self.functions.0.extend(&other.functions.0);
        self.files.0.extend(&other.files.0);
        self.assertions += other.assertions;
    }

    #[allow(clippy::cast_precision_loss)] // a ratio for people
    pub(super) fn assertions_per_1000(&self) -> f64 {
        self.assertions as f64 * 1000.0 / self.lines.max(1) as f64
    }
}

/// `crates/server/src/engine/gate.rs` -> `server`, `server/engine`.
fn parts_of(path: &str) -> Vec<String> {
    let in_crate = path.strip_prefix("crates/").or(path.starts_with("xtask/").then_some(path));
    let Some((name, rest)) = in_crate.and_then(|path| path.split_once('/')) else {
        return Vec::new();
    };
    let mut parts = vec![name.to_owned()];
    if let Some(inner) = rest.strip_prefix("src/").filter(|_| SPLIT.contains(&name)) {
        let top = inner.split('/').next().unwrap_or(inner);
        parts.push(format!("{name}/{}", top.trim_end_matches(".rs")));
        parts.extend(
            SINGLE
                .iter()
                .filter(|one| **one == format!("{name}/{inner}"))
                .map(|one| (*one).to_owned()),
        );
    }
    parts
}

fn measure(file: &SourceFile) -> Code {
    let lines = file.text.lines().count();
    let files = Lengths(vec![lines]);
    if is_test_file(&file.path) {
        return Code { test_lines: lines, files, ..Code::default() };
    }
    let mut counter = Counter::default();
    // The compiler reports what cannot be parsed.
    if let Ok(parsed) = syn::parse_file(&file.text) {
        counter.visit_file(&parsed);
    }
    let Counter { functions, assertions, test_lines } = counter;
    let functions = Lengths(functions);
    Code { lines: lines - test_lines, test_lines, functions, files, assertions }
}

fn is_test_file(path: &str) -> bool {
    let folders = ["/tests/", "/simulation/", "/examples/", "/benches/"];
    path.ends_with("/tests.rs") || folders.iter().any(|folder| path.contains(folder))
}

#[derive(Debug, Default)]
struct Counter {
    functions: Vec<usize>,
    assertions: usize,
    test_lines: usize,
}

impl Counter {
    fn note(&mut self, signature: &Signature, block: &Block) {
        let start = signature.span().start().line;
        self.functions.push(block.span().end().line + 1 - start);
    }
}

impl<'ast> Visit<'ast> for Counter {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            self.test_lines += item.span().end().line + 1 - item.span().start().line;
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test(&function.attrs) {
            self.note(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.note(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_macro(&mut self, of: &'ast Macro) {
        self.assertions += usize::from(ASSERTIONS.iter().any(|name| of.path.is_ident(name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
const _: () = assert!(1 < 2, \"assert!\");

impl A {
    fn a() {
        debug_assert_eq!(a, b); // assert!(a)
    }
}

fn b() {}

#[cfg(test)]
mod tests {
    fn c() {
        assert!(a);
    }
}
";

    #[test]
    fn tests_are_counted_apart() {
        let file = SourceFile { path: "crates/store/src/a.rs".into(), text: TEXT.into() };
        let code = measure(&file);
        assert_eq!((code.lines, code.test_lines, code.assertions), (10, 6, 2));
        assert_eq!(code.functions.0, [3, 1]);
        let file = SourceFile { path: "crates/store/tests/it/a.rs".into(), text: TEXT.into() };
        let code = measure(&file);
        assert_eq!((code.lines, code.test_lines, code.assertions), (0, 16, 0));
    }

    #[test]
    fn files_belong_to_their_crate_and_module() {
        assert_eq!(parts_of("xtask/src/main.rs"), ["xtask"]);
        assert_eq!(parts_of("fuzz/a.rs"), [""; 0]);
        assert_eq!(parts_of("crates/server/src/serve.rs"), ["server", "server/serve"]);
        let commit = ["server", "server/engine", "server/engine/commit.rs"];
        assert_eq!(parts_of("crates/server/src/engine/commit.rs"), commit);
    }

    #[test]
    fn percentiles_are_values_that_occur() {
        let lengths = Lengths(vec![1, 2, 3, 40]);
        let percentiles = [50, 90, 100].map(|percent| lengths.percentile(percent));
        assert_eq!(percentiles, [2, 40, 40]);
        assert_eq!(Lengths::default().percentile(50), 0);
    }
}
