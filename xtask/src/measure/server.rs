//! Figures that only programs with protocols and options have.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{Expr, Ident, LitStr};

use crate::tidy::SourceFile;
use crate::tidy::cycles::modules_of;

const SERVER: &str = "crates/server/src/";
/// Where the sum of the protocols' sessions is defined.
const SESSION: &str = "crates/server/src/handler/session.rs";
const SESSION_VARIANTS: [&str; 3] = ["Session::Resp", "Session::Cql", "Session::Http"];

/// The names of a crate's table of options: `OWN` is the server's without views.
const TABLES: [&str; 2] = ["OPTIONS", "OWN"];
const CRATES_WITH_TABLE: [(&str, &str); 2] =
    [("server", "crates/server/src/config"), ("web", "crates/web/src/config")];
/// Without a table: each option is named in the help.
const CRATE_WITH_HELP: (&str, &str) = ("pipeline", "crates/pipeline/src/cli");

/// Lines of the server that name the session of one protocol, outside of the type that holds it.
pub(super) fn protocol_matches(files: &[SourceFile]) -> usize {
    let is_code = |file: &&SourceFile| {
        file.path.starts_with(SERVER) && file.path != SESSION && modules_of(&file.path).is_some()
    };
    let names = |line: &str| SESSION_VARIANTS.iter().any(|name| line.contains(name));
    let lines = files.iter().filter(is_code).flat_map(SourceFile::lines);
    lines.filter(|(_, line)| names(line)).count()
}

/// What limits the items that are public without need.
pub(super) fn unreachable_items(files: &[SourceFile]) -> &'static str {
    let manifest = files.iter().find(|file| file.path == "Cargo.toml");
    let is_denied = manifest.is_some_and(|file| file.text.contains("unreachable_pub = \"warn\""));
    if is_denied { "0, by lint" } else { "not checked" }
}

/// Options by crate.
pub(super) fn options(files: &[SourceFile]) -> BTreeMap<String, usize> {
    let of = |folder: &'static str| {
        let inside = files.iter().filter(move |file| file.path.starts_with(folder));
        inside.filter_map(|file| syn::parse_file(&file.text).ok())
    };
    let mut counts = BTreeMap::new();
    for (name, folder) in CRATES_WITH_TABLE {
        let mut rows = Rows::default();
        of(folder).for_each(|file| rows.visit_file(&file));
        counts.insert(name.to_owned(), rows.0);
    }
    let (name, folder) = CRATE_WITH_HELP;
    let mut flags = Flags::default();
    of(folder).for_each(|file| flags.visit_file(&file));
    counts.insert(name.to_owned(), flags.0.len());
    counts
}

/// Counts the rows of tables of options.
#[derive(Debug, Default)]
struct Rows(usize);

impl Rows {
    fn note(&mut self, name: &Ident, value: &Expr) {
        let value = match value {
            Expr::Reference(reference) => &reference.expr,
            value => value,
        };
        if let (true, Expr::Array(array)) = (TABLES.iter().any(|table| name == table), value) {
            self.0 += array.elems.iter().filter(|row| is_unconditional(row)).count();
        }
    }
}

/// Whether release builds have a row.
fn is_unconditional(row: &Expr) -> bool {
    let attributes = match row {
        Expr::Call(call) => &call.attrs,
        Expr::Struct(literal) => &literal.attrs,
        _ => return true,
    };
    !attributes.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

impl<'ast> Visit<'ast> for Rows {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.note(&item.ident, &item.expr);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.note(&item.ident, &item.expr);
    }
}

/// Collects the flags that texts name: `--flag`.
#[derive(Debug, Default)]
struct Flags(BTreeSet<String>);

impl<'ast> Visit<'ast> for Flags {
    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        let text = text.value();
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        for (at, _) in text.match_indices("--") {
            let flag: String = text[at + 2..].chars().take_while(|c| is_name(*c)).collect();
            if flag.starts_with(|c: char| c.is_ascii_lowercase()) {
                self.0.insert(flag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_rows_or_flags() {
        let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let files = [
            file(
                "crates/server/src/config/options.rs",
                "pub const OWN: &[A] = &[a(), #[cfg(test)] c(), b()];",
            ),
            file("crates/web/src/config.rs", "const OPTIONS: [A; 1] = [(1, 2)];"),
            file("crates/pipeline/src/cli/mod.rs", "const H: &str = \"--a-b N --c --c --\";"),
        ];
        let expected = [("pipeline", 2), ("server", 2), ("web", 1)];
        assert_eq!(options(&files), expected.map(|(name, n)| (name.to_owned(), n)).into());
    }

    #[test]
    fn the_session_itself_is_not_counted() {
        let file = |path: &str| SourceFile {
            path: path.into(),
            text: "AnySession::Cql(a) => 1,\nSession::Other => 2,\n".into(),
        };
        assert_eq!(protocol_matches(&[file(SESSION), file("crates/server/src/handler.rs")]), 1);
    }
}
