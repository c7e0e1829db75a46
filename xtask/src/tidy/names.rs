//! Commands are distinguished by the fields and flags of their values: no code compares a command's
//! name, or a text with the names of commands, except in the file of the command's family.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    BinOp, Expr, ExprArray, ExprBinary, ExprLet, ExprMatch, ExprMethodCall, Item, Lit, Macro,
};
use syn::{Member, Pat, Token};

use super::cycles::{attributes, is_test, modules_of};
use super::rows::{family, named_in_table};
use crate::tidy::{SourceFile, Violation};

const SERVER: &str = "crates/server/src/";

/// Files with words of another meaning that are also names of commands: the classes of
/// `client-output-buffer-limit`, such as `pubsub`, the categories of ACL, such as `set`, and the
/// commands that another server sends or receives.
const OTHER_WORDS: [&str; 5] = [
    "crates/server/src/commands/acl/categories.rs",
    "crates/server/src/config/values.rs",
    "crates/server/src/import/feed.rs",
    "crates/server/src/import/live/follow.rs",
    "crates/server/src/import/live/target.rs",
];

/// Methods that compare a text with their argument.
const COMPARISONS: [&str; 5] =
    ["eq_ignore_ascii_case", "eq", "contains", "starts_with", "ends_with"];

/// Families by the names of their commands.
type Families<'f> = BTreeMap<&'f str, BTreeSet<&'f str>>;

/// No list of commands exists outside of their values.
pub(crate) fn check_names(files: &[SourceFile]) -> Vec<Violation> {
    let mut families = Families::new();
    for (name, family) in named_in_table(files) {
        families.entry(name).or_default().insert(family);
    }
    let is_checked = |file: &&SourceFile| {
        file.path.starts_with(SERVER) && file.is_a("rs") && modules_of(&file.path).is_some()
    };
    files.iter().filter(is_checked).flat_map(|file| check_file(file, &families)).collect()
}

fn check_file(file: &SourceFile, families: &Families<'_>) -> Vec<Violation> {
    // The compiler reports syntax errors.
    let Ok(parsed) = syn::parse_file(&file.text) else { return Vec::new() };
    let mut finder = Finder { path: &file.path, families, found: Vec::new() };
    finder.visit_file(&parsed);
    let violation = |(span, what): (Span, String)| Violation {
        path: file.path.clone(),
        line: span.start().line,
        what: format!("{what}: make the difference a field or a flag of `Command`"),
    };
    finder.found.into_iter().map(violation).collect()
}

struct Finder<'f> {
    path: &'f str,
    families: &'f Families<'f>,
    found: Vec<(Span, String)>,
}

impl Finder<'_> {
    /// The name of a command that belongs to another file.
    fn foreign_name(&self, lit: &Lit) -> Option<String> {
        let text = match lit {
            Lit::Str(text) => text.value(),
            Lit::ByteStr(bytes) => String::from_utf8(bytes.value()).ok()?,
            _ => return None,
        };
        let name = text.to_ascii_lowercase();
        let families = self.families.get(name.as_str())?;
        let is_other_word = OTHER_WORDS.contains(&self.path);
        (!families.contains(family(self.path)) && !is_other_word).then_some(name)
    }

    fn note_literal(&mut self, lit: &Lit) {
        if let Some(name) = self.foreign_name(lit) {
            self.found.push((lit.span(), format!("compares with the name of the command {name}")));
        }
    }

    /// Checks one side of a comparison.
    fn note_compared(&mut self, side: &Expr) {
        match side {
            Expr::Lit(literal) => self.note_literal(&literal.lit),
            Expr::Field(field) if is_named(&field.member, "name") => {
                let is_command = match &*field.base {
                    Expr::Path(path) => path.path.is_ident("command"),
                    Expr::Field(base) => is_named(&base.member, "command"),
                    _ => false,
                };
                if let (true, Member::Named(name)) = (is_command, &field.member) {
                    self.found.push((name.span(), "compares the name of a command".to_owned()));
                }
            }
            Expr::Reference(inner) => self.note_compared(&inner.expr),
            Expr::Paren(inner) => self.note_compared(&inner.expr),
            // `command.name.as_bytes()`
            Expr::MethodCall(call) if call.args.is_empty() => self.note_compared(&call.receiver),
            _ => {}
        }
    }
}

fn is_named(member: &Member, name: &str) -> bool {
    matches!(member, Member::Named(ident) if ident == name)
}

/// `matches!(expression, pattern if guard)`
fn parse_matches(input: ParseStream<'_>) -> syn::Result<(Expr, Pat, Option<Expr>)> {
    let expression = input.parse()?;
    input.parse::<Token![,]>()?;
    let pattern = Pat::parse_multi_with_leading_vert(input)?;
    let has_guard = input.parse::<Option<Token![if]>>()?.is_some();
    let guard = if has_guard { Some(input.parse()?) } else { None };
    input.parse::<Option<Token![,]>>()?;
    Ok((expression, pattern, guard))
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_pat(&mut self, pattern: &'ast Pat) {
        if let Pat::Lit(literal) = pattern {
            self.note_literal(&literal.lit);
        }
        visit::visit_pat(self, pattern);
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        if matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)) {
            self.note_compared(&binary.left);
            self.note_compared(&binary.right);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_match(&mut self, of: &'ast ExprMatch) {
        self.note_compared(&of.expr);
        visit::visit_expr_match(self, of);
    }

    fn visit_expr_let(&mut self, of: &'ast ExprLet) {
        self.note_compared(&of.expr);
        visit::visit_expr_let(self, of);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if COMPARISONS.iter().any(|name| call.method == name) {
            self.note_compared(&call.receiver);
            for argument in &call.args {
                self.note_compared(argument);
            }
        }
        visit::visit_expr_method_call(self, call);
    }

    /// A list of names; a single one among other words is an option or a key.
    fn visit_expr_array(&mut self, array: &'ast ExprArray) {
        let names = array.elems.iter().filter_map(|element| match element {
            Expr::Lit(literal) => self.foreign_name(&literal.lit).map(|_| &literal.lit),
            _ => None,
        });
        let names: Vec<&Lit> = names.collect();
        if names.len() > 1 {
            for name in names {
                self.note_literal(name);
            }
        }
        visit::visit_expr_array(self, array);
    }

    fn visit_macro(&mut self, of: &'ast Macro) {
        let tokens = of.tokens.clone();
        if of.path.is_ident("matches") {
            if let Ok((expression, pattern, guard)) = parse_matches.parse2(tokens) {
                // The parsed expression does not outlive this block.
                let mut inner = Finder { path: self.path, families: self.families, found: vec![] };
                inner.note_compared(&expression);
                inner.visit_expr(&expression);
                inner.visit_pat(&pattern);
                if let Some(guard) = &guard {
                    inner.visit_expr(guard);
                }
                self.found.append(&mut inner.found);
            }
            return;
        }
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        // Macros with another syntax contain no comparisons.
        for expression in parser.parse2(tokens).into_iter().flatten() {
            let mut inner = Finder { path: self.path, families: self.families, found: vec![] };
            inner.visit_expr(&expression);
            self.found.append(&mut inner.found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of violations in a file, where `get` and `exists` are commands of `strings`.
    fn check(path: &str, text: &str) -> Vec<usize> {
        let families = Families::from([
            ("get", BTreeSet::from(["strings"])),
            ("exists", BTreeSet::from(["strings"])),
            ("config", BTreeSet::from(["config"])),
        ]);
        let file = SourceFile { path: format!("{SERVER}{path}"), text: text.to_owned() };
        check_file(&file, &families).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn comparisons_with_names_are_found() {
        for line in [
            "match x { \"get\" | \"other\" => 1, _ => 2 }",
            "match x { Some((\"get\", _)) => 1, _ => 2 }",
            "matches!(x, \"a\" | \"GET\")",
            "matches!(x, a if a == \"get\")",
            "x == \"get\"",
            "assert!(b\"get\" != x)",
            "x.eq_ignore_ascii_case(b\"GET\")",
            "if let \"get\" = x {}",
            "[\"exists\", \"get\"].contains(&x)",
            "command.name == x",
            "matches!(entry.command.name, \"a\")",
            "match command.name.as_bytes() { _ => 1 }",
            "LIST.contains(&command.name)",
            "command.name.starts_with('s')",
        ] {
            let text = format!("fn f() {{\n    {line};\n}}\n");
            let found = check("http/command.rs", &text);
            assert!(!found.is_empty() && found.iter().all(|at| *at == 2), "{line}: {found:?}");
        }
    }

    #[test]
    fn other_uses_of_names_are_not() {
        for line in [
            "run(&[b\"GET\", key])",
            "json!({ \"get\": 1 })",
            "x == \"getting\"",
            "format!(\"{}\", command.name)",
            "option.name == x",
            "is_option(x, \"GET\")",
        ] {
            let text = format!("fn f() {{\n    {line};\n}}\n");
            assert_eq!(check("http/command.rs", &text), [0; 0], "{line}");
        }
        let own = "fn f() { x == \"get\"; }";
        assert_eq!(check("commands/strings/lcs.rs", own), [0; 0]);
        assert_eq!(check("commands/generic.rs", own), [1]);
        assert_eq!(check("config/values.rs", "fn f() { x == \"config\"; }"), [0; 0]);
    }

    #[test]
    fn tests_may_compare_names() {
        assert_eq!(check("a.rs", "#[cfg(test)]\nmod tests { fn f() { x == \"get\"; } }"), [0; 0]);
        assert_eq!(check("a.rs", "mod inner { fn f() { x == \"get\"; } }"), [1]);
    }
}
