//! `cargo xtask measure`: figures about the code of a tree, to compare two of them.
//!
//! Figures are not rules: `tidy` rejects violations, the figures show trends. Both use the same
//! tables.

mod code;
mod server;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use self::code::{Code, Lengths};
use crate::tidy::{self, SourceFile, cycles, idioms, linked, names};

/// Prints all figures of the tree at `root`.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = tidy::read_tree(root)?;
    print_parts(&files);
    println!();
    let cycles = cycles::cycle_sizes(&files);
    println!("modules in import cycles          {}", list(&cycles));
    println!("comparisons with command names    {}", names::check_names(&files).len());
    println!("banned idioms                     {}", idioms::check_idioms(&files).len());
    println!("lines that match on the protocol  {}", server::protocol_matches(&files));
    println!("unreachable public items          {}", server::unreachable_items(&files));
    println!("options                           {}", list(&server::options(&files)));
    println!("crates linked into myriad         {}", linked::count(&linked::list(root)?));
    Ok(())
}

/// `a 1, b 2`, or `none`.
fn list(counts: &BTreeMap<String, usize>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    let each = counts.iter().map(|(name, count)| format!("{name} {count}"));
    each.collect::<Vec<_>>().join(", ")
}

fn print_parts(files: &[SourceFile]) {
    println!(
        "{:<24} {:>7} {:>7}   {:<14} {:<15} {:>10} {:>9}",
        "part", "lines", "tests", "functions", "files", "assertions", "per 1,000"
    );
    for (part, code) in Code::by_part(files) {
        println!(
            "{part:<24} {:>7} {:>7}   {:<14} {:<15} {:>10} {:>9.1}",
            code.lines,
            code.test_lines,
            shown(&code.functions),
            shown(&code.files),
            code.assertions,
            code.assertions_per_1000(),
        );
    }
    println!("functions, files: lines, as median/90th percentile/maximum");
}

fn shown(lengths: &Lengths) -> String {
    format!("{}/{}/{}", lengths.percentile(50), lengths.percentile(90), lengths.percentile(100))
}
