//! Figures that only programs with protocols and options have.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Lit};

use crate::tidy::SourceFile;
use crate::tidy::cycles::modules_of;

const SERVER: &str = "crates/server/src/";
/// Where the sum of the protocols' sessions is defined.
const SESSION: &str = "crates/server/src/handler/session.rs";
const SESSION_VARIANTS: [&str; 3] = ["Session::Resp", "Session::Cql", "Session::Http"];

/// Crates with tables of options, and their folders.
const CRATES_WITH_OPTIONS: [(&str, &str); 3] = [
    ("pipeline", "crates/pipeline/src/cli"),
    ("server", "crates/server/src/config"),
    ("web", "crates/web/src/config"),
];
/// The server's table of names that only tools read.
const VIEWS: &str = "VIEWS";

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
    let count = |(name, folder): (&str, &'static str)| {
        let mut rows = Rows::default();
        of(folder).for_each(|file| rows.visit_file(&file));
        (name.to_owned(), rows.0.len())
    };
    CRATES_WITH_OPTIONS.map(count).into()
}

/// Collects the names in rows of tables that release builds have: `option("name", ...)`.
#[derive(Debug, Default)]
struct Rows(BTreeSet<String>);

fn is_unconditional(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

impl<'ast> Visit<'ast> for Rows {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if item.ident != VIEWS && is_unconditional(&item.attrs) {
            self.visit_expr(&item.expr);
        }
    }

    /// Rows are in constants only.
    fn visit_item_fn(&mut self, _: &'ast syn::ItemFn) {}

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if !is_unconditional(&call.attrs) {
            return;
        }
        let is_row = matches!(&*call.func, Expr::Path(path) if path.path.is_ident("option"));
        if let (true, Some(Expr::Lit(ExprLit { lit: Lit::Str(name), .. }))) =
            (is_row, call.args.first())
        {
            self.0.insert(name.value());
        }
        visit::visit_expr_call(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_rows_of_release_builds() {
        let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let files = [
            file(
                "crates/server/src/config/table.rs",
                "const A: &[A] = &[option(\"a\", b()), #[cfg(test)] option(\"c\"), \
                 with_aliases(&[\"d\"], option(\"b\"))];\n\
                 #[cfg(test)]\nconst EXPERIMENTS: &[A] = &[option(\"e\")];\n\
                 const VIEWS: &[A] = &[option(\"f\")];",
            ),
            file("crates/web/src/config/table.rs", "const B: &[A] = &[option(\"a\")];"),
            file(
                "crates/pipeline/src/cli/table.rs",
                "const C: S = S { rows: &[option(\"a\"), D] };\nconst D: A = option(\"b\");\n\
                 const E: S = S { rows: &[option(\"a\"), D] };",
            ),
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
