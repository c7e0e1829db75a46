//! Modules of a crate must not import each other in a cycle, nor a module of a layer above their own.
//!
//! Checks the modules directly below the root of a crate, those of some folders, and the paths that
//! name a module.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, Span};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

use crate::tidy::{SourceFile, Violation};

/// Folders whose modules are checked like those below the root of a crate.
const FOLDERS: [(&str, &str); 1] = [("server", "engine")];

/// The layers of the modules of a crate. A module imports from layers below its own and, in layer 0, from
/// its own. Only the wiring at the start of the program is in no layer.
const LAYERS: [(&str, &str, usize); 28] = [
    ("server", "config", 0),
    ("server", "logging", 0),
    ("server", "data_directory", 0),
    ("server", "new_directory", 0),
    ("server", "service_manager", 0),
    ("server", "protocol", 0),
    ("server", "tls", 0),
    ("server", "engine", 1),
    ("server", "greeting", 2),
    ("server", "logtool", 2),
    // The languages, whatever protocol carries them.
    ("server", "commands", 2),
    ("server", "statements", 2),
    // The protocols, which do not import each other. RESP's own part is in the handler.
    ("server", "cql", 3),
    ("server", "http", 3),
    ("server", "recovery", 3),
    ("server", "handler", 4),
    ("server", "repair", 4),
    ("server", "replica", 5),
    ("server", "telemetry", 5),
    ("server", "export", 5),
    ("server", "upgrade", 5),
    ("server", "serve", 6),
    ("server", "backup", 6),
    ("server", "config_check", 7),
    ("server", "doctor", 1),
    ("server", "import", 7),
    ("server", "restore", 7),
    ("server", "simulation", 6),
];

/// A module below the root of its crate, and everything in it.
type Module = String;

/// The imports of one crate: from one module to another, and the position of the first import.
type Imports<'f> = BTreeMap<Module, BTreeMap<Module, Place<'f>>>;

#[derive(Debug, Clone, Copy)]
struct Place<'f> {
    path: &'f str,
    line: usize,
}

/// Fails if modules are in import cycles.
pub(crate) fn check_cycles(files: &[SourceFile]) -> Vec<Violation> {
    let rust = files.iter().filter(|file| file.is_a("rs"));
    let names: BTreeSet<&str> = rust.filter_map(|file| crate_of(&file.path)).collect();
    names.into_iter().flat_map(|name| check_crate(name, files)).collect()
}

/// The number of modules in import cycles, per crate; crates without cycles are omitted.
pub(crate) fn cycle_sizes(files: &[SourceFile]) -> BTreeMap<String, usize> {
    let rust = files.iter().filter(|file| file.is_a("rs"));
    let names: BTreeSet<&str> = rust.filter_map(|file| crate_of(&file.path)).collect();
    let size = |name: &str| -> usize {
        let of = |folder| cycles(&imports_of(name, folder, files));
        folders(name).flat_map(of).map(|cycle| cycle.len()).sum()
    };
    let sizes = names.into_iter().map(|name| (name.to_owned(), size(name)));
    sizes.filter(|(_, size)| *size > 0).collect()
}

/// The root of a crate, and its checked folders.
fn folders(name: &str) -> impl Iterator<Item = Option<&'static str>> {
    let folders = FOLDERS.iter().filter(move |(of, _)| *of == name);
    std::iter::once(None).chain(folders.map(|(_, folder)| Some(*folder)))
}

fn check_crate(name: &str, files: &[SourceFile]) -> Vec<Violation> {
    let in_cycles = folders(name).flat_map(|folder| {
        let imports = imports_of(name, folder, files);
        let cycles = cycles(&imports);
        cycles.iter().flat_map(|cycle| violations(name, cycle, &imports)).collect::<Vec<_>>()
    });
    let mut found: Vec<Violation> = in_cycles.collect();
    found.extend(upward(name, &imports_of(name, None, files)));
    found
}

/// Imports of a module from its own layer or one above.
fn upward(name: &str, imports: &Imports<'_>) -> Vec<Violation> {
    let layers: Vec<_> = LAYERS.iter().filter(|(of, _, _)| *of == name).collect();
    if layers.is_empty() {
        return Vec::new();
    }
    let layer = |module: &str| layers.iter().find(|(_, of, _)| *of == module).map(|layer| layer.2);
    let mut found = Vec::new();
    for (from, to) in imports {
        for (to, place) in to {
            let what = match (layer(from), layer(to)) {
                (Some(0), Some(0)) => continue,
                (Some(from), Some(to)) if to < from => continue,
                (Some(_), Some(_)) => format!(
                    "{from} imports {to}, which is in the same layer or above: move what both \
                     need into a layer below"
                ),
                _ => format!("{from} imports {to}: give both a layer in xtask/src/tidy/cycles.rs"),
            };
            found.push(Violation { path: place.path.to_owned(), line: place.line, what });
        }
    }
    found
}

fn violations(name: &str, cycle: &BTreeSet<Module>, imports: &Imports<'_>) -> Vec<Violation> {
    let names: Vec<&str> = cycle.iter().map(String::as_str).collect();
    let inside = cycle.iter().flat_map(|from| imports[from].iter().map(move |to| (from, to)));
    let inside = inside.filter(|(_, (to, _))| cycle.contains(*to));
    inside
        .map(|(from, (to, place))| Violation {
            path: place.path.to_owned(),
            line: place.line,
            what: format!(
                "{from} imports {to}, and {to} leads back to {from}: {} of crate {name} import each \
                 other; move what both need into a module below them",
                names.join(", ")
            ),
        })
        .collect()
}

/// `crates/store/src/keyspace.rs` -> `store`.
fn crate_of(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    rest.starts_with("src/").then_some(name)
}

/// `crates/store/src/types/hash.rs` -> `types`, `hash`. None: the root, a program, or a test.
pub(crate) fn modules_of(path: &str) -> Option<Vec<String>> {
    let (_, path) = path.split_once("/src/")?;
    let path = path.strip_suffix(".rs")?;
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    let is_test = parts.iter().any(|part| part == "tests" || part == "simulation");
    let is_root = parts == ["lib"] || parts == ["main"] || parts[0] == "bin";
    (!is_test && !is_root).then_some(parts)
}

/// The imports between the modules of a crate, or of one of its folders.
fn imports_of<'f>(name: &str, folder: Option<&str>, files: &'f [SourceFile]) -> Imports<'f> {
    let depth = usize::from(folder.is_some());
    let is_inside = |modules: &Vec<String>| {
        folder.is_none_or(|folder| modules[0] == folder) && modules.len() > depth
    };
    let of_crate: Vec<(Vec<String>, &SourceFile)> = files
        .iter()
        .filter(|file| crate_of(&file.path) == Some(name))
        .filter_map(|file| Some((modules_of(&file.path)?, file)))
        .filter(|(modules, _)| is_inside(modules))
        .collect();
    let tops: BTreeSet<&str> =
        of_crate.iter().map(|(modules, _)| modules[depth].as_str()).collect();
    let mut imports = Imports::new();
    for (modules, file) in &of_crate {
        // The compiler reports syntax errors.
        let Ok(parsed) = syn::parse_file(&file.text) else { continue };
        let mut visitor = Paths { modules: modules.clone(), found: Vec::new() };
        visitor.visit_file(&parsed);
        for (path, line) in visitor.found {
            let Some(top) = path.get(depth).filter(|_| is_inside(&path)) else { continue };
            if *top != modules[depth] && tops.contains(top.as_str()) {
                let place = Place { path: &file.path, line };
                let from = imports.entry(modules[depth].clone()).or_default();
                from.entry(top.clone()).or_insert(place);
            }
        }
    }
    imports
}

/// Finds the paths in a file that begin at the root of its crate.
#[derive(Debug)]
struct Paths {
    /// The module at the visitor's position.
    modules: Vec<String>,
    found: Vec<(Vec<Module>, usize)>,
}

impl Paths {
    fn note(&mut self, segments: &[String], span: Span) {
        let mut at: Vec<&str> = match segments.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super" | "self") => self.modules.iter().map(String::as_str).collect(),
            _ => return,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                name => at.push(name),
            }
        }
        if !at.is_empty() {
            let path = at.into_iter().map(str::to_owned).collect();
            self.found.push((path, span.start().line));
        }
    }

    fn note_tree(&mut self, tree: &UseTree, path: &mut Vec<String>) {
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.note_tree(&part.tree, path);
                path.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.note_tree(item, path));
            }
            UseTree::Name(name) => self.note_leaf(path, &name.ident),
            UseTree::Rename(name) => self.note_leaf(path, &name.ident),
            UseTree::Glob(glob) => self.note(path, glob.star_token.spans[0]),
        }
    }

    fn note_leaf(&mut self, path: &mut Vec<String>, name: &Ident) {
        path.push(name.to_string());
        self.note(path, name.span());
        path.pop();
    }
}

pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    let is_cfg_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    attributes.iter().any(is_cfg_test)
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.modules.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.modules.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.note_tree(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.note(&segments, path.segments[0].ident.span());
        visit::visit_path(self, path);
    }
}

/// The strongly connected sets of modules; sets of one module are omitted.
fn cycles(imports: &Imports<'_>) -> Vec<BTreeSet<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|from| (from, reach(from, imports))).collect();
    let leads = |from: &Module, to: &Module| reached.get(from).is_some_and(|all| all.contains(to));
    let mut cycles: Vec<BTreeSet<Module>> = Vec::new();
    for module in imports.keys().filter(|module| leads(module, module)) {
        if cycles.iter().any(|cycle| cycle.contains(module)) {
            continue;
        }
        let others = imports.keys().filter(|other| leads(module, other) && leads(other, module));
        cycles.push(others.cloned().collect());
    }
    cycles
}

fn reach<'i>(from: &Module, imports: &'i Imports<'_>) -> BTreeSet<&'i Module> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Module> = imports.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(imports.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> = files.iter().map(|(path, text)| file(path, text)).collect();
        let imports = imports_of("x", None, &files);
        cycles(&imports).iter().map(|it| it.iter().cloned().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn cycles_are_found_in_uses_paths_and_folders() {
        let a = ("crates/x/src/a.rs", "use crate::{b::{self, B}, d};");
        let b = ("crates/x/src/b/mod.rs", "mod c;");
        let c = ("crates/x/src/b/c.rs", "fn f() { let _ = super::super::a::A; }");
        let d = ("crates/x/src/d.rs", "use std::fmt; fn f(x: crate::d::D) {}");
        assert_eq!(found(&[a, b, c, d]), ["a b"]);
        let longer = ("crates/x/src/d.rs", "fn f() -> Vec<super::e::E> { vec![] }");
        let back = ("crates/x/src/e.rs", "mod inner { use super::super::a::A; }");
        assert_eq!(found(&[a, b, d]), [""; 0]);
        assert_eq!(found(&[a, b, longer, back]), ["a d e"]);
        assert_eq!(found(&[a, b, c, longer, back]), ["a b d e"]);
    }

    #[test]
    fn tests_may_import_everything() {
        let a = ("crates/x/src/a.rs", "use crate::b::B;");
        let b = ("crates/x/src/b.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }");
        let tests = ("crates/x/src/b/tests.rs", "use crate::a::A;");
        assert_eq!(found(&[a, b, tests]), [""; 0]);
        let no_test = ("crates/x/src/b.rs", "#[cfg(unix)]\nmod inner { use crate::a::A; }");
        assert_eq!(found(&[a, no_test]), ["a b"]);
    }

    #[test]
    fn folders_are_checked_like_crates() {
        let a = ("crates/server/src/engine/a.rs", "use crate::engine::b::B;");
        let b = ("crates/server/src/engine/b.rs", "use super::a::A;");
        let files = [a, b].map(|(path, text)| file(path, text));
        assert_eq!(check_crate("server", &files).len(), 2);
        assert!(check_crate("server", &files[..1]).is_empty());
    }

    #[test]
    fn layers_import_downward() {
        let check = |from: &str, to: &str| {
            let from =
                file(&format!("crates/server/src/{from}.rs"), &format!("use crate::{to}::X;"));
            let files = [from, file(&format!("crates/server/src/{to}.rs"), "")];
            check_crate("server", &files).len()
        };
        assert_eq!(check("http", "commands"), 0);
        assert_eq!(check("http", "statements"), 0);
        assert_eq!(check("commands", "http"), 1);
        assert_eq!(check("commands", "statements"), 1, "the same layer");
        assert_eq!(check("http", "cql"), 1, "the same layer");
        assert_eq!(check("cql", "http"), 1, "the same layer");
        assert_eq!(check("engine", "commands"), 1);
        assert_eq!(check("engine", "unheard_of"), 1);
        assert_eq!(check("config", "protocol"), 0);
    }
}
