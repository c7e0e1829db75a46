//! Resolves addresses to function names.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};

use super::ProfileError;
use super::sampler::Address;

const KERNEL_SYMBOLS: &str = "/proc/kallsyms";

/// Executable memory that a process has mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    /// Of `start`, in the file.
    offset: u64,
    /// Empty for anonymous memory.
    path: String,
}

/// Sources of a process's function names.
pub(super) struct Symbols {
    mappings: Vec<Mapping>,
    executable: Option<Executable>,
}

/// The program itself, held open: it may be rebuilt during the profile.
struct Executable {
    path: String,
    file: File,
}

/// Resolved addresses.
pub(super) struct Names {
    /// The functions at an address: the compiled one, then the functions inlined there, from the
    /// outermost on. Never empty.
    pub(super) functions: BTreeMap<Address, Vec<String>>,
    pub(super) notes: Vec<String>,
}

impl Symbols {
    pub(super) fn of(pid: u32) -> Result<Self, ProfileError> {
        let path = format!("/proc/{pid}/maps");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ProfileError::NoProcess { pid });
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let paranoid = super::sampler::kernel_setting("perf_event_paranoid");
                return Err(ProfileError::Forbidden { pid, paranoid });
            }
            Err(source) => return Err(ProfileError::Read { path, source }),
        };
        let link = format!("/proc/{pid}/exe");
        let executable = match (fs::read_link(&link), File::open(&link)) {
            (Ok(path), Ok(file)) => {
                Some(Executable { path: path.to_string_lossy().into_owned(), file })
            }
            _ => None, // kernel threads have none
        };
        Ok(Self { mappings: parse_mappings(&text), executable })
    }

    /// Adds newly loaded code; does nothing if the process has exited.
    pub(super) fn refresh(&mut self, pid: u32) {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return };
        let mappings = parse_mappings(&text);
        if !mappings.is_empty() {
            self.mappings = mappings;
        }
    }

    /// Returns names for all addresses; unknown ones have a name in brackets.
    pub(super) fn names<'a>(&self, addresses: impl Iterator<Item = &'a Address>) -> Names {
        let mut names = Names { functions: BTreeMap::new(), notes: Vec::new() };
        let mut kernel = BTreeSet::new();
        let mut files: BTreeMap<&str, BTreeSet<(u64, u64)>> = BTreeMap::new();
        for address in addresses {
            match *address {
                Address::Kernel(at) => {
                    kernel.insert(at);
                }
                Address::User(at) => match self.mapping(at) {
                    Some(mapping) => {
                        let offset = at - mapping.start + mapping.offset;
                        files.entry(&mapping.path).or_default().insert((at, offset));
                    }
                    None => names.put(Address::User(at), vec!["[unknown]".to_owned()]),
                },
            }
        }
        let symbolizer = Symbolizer::new();
        names.add_kernel(&symbolizer, &kernel);
        for (path, places) in files {
            names.add_file(&symbolizer, path, &self.file(path), &places);
        }
        names
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings[..after].last()?;
        (address < mapping.end).then_some(mapping)
    }

    /// Returns the path at which the content of a mapped file is readable.
    fn file(&self, path: &str) -> PathBuf {
        match &self.executable {
            Some(executable) if executable.path == path => {
                PathBuf::from(format!("/proc/self/fd/{}", executable.file.as_raw_fd()))
            }
            _ => PathBuf::from(path),
        }
    }
}

impl Names {
    fn put(&mut self, address: Address, functions: Vec<String>) {
        self.functions.insert(address, functions);
    }

    fn add_kernel(&mut self, symbolizer: &Symbolizer, addresses: &BTreeSet<u64>) {
        if addresses.is_empty() {
            return;
        }
        let input: Vec<u64> = addresses.iter().copied().collect();
        let source = Kernel {
            kallsyms: MaybeDefault::Some(PathBuf::from(KERNEL_SYMBOLS)),
            vmlinux: MaybeDefault::None,
            ..Kernel::default()
        };
        let found = if kernel_symbols_are_hidden() {
            Err("its addresses are hidden from this user".to_owned())
        } else {
            symbolizer
                .symbolize(&Source::Kernel(source), Input::AbsAddr(&input))
                .map_err(|error| error.to_string())
        };
        match found {
            Ok(found) => {
                for (at, symbol) in input.iter().zip(found) {
                    let name = functions(&symbol).pop().unwrap_or_else(|| "[kernel]".to_owned());
                    self.put(Address::Kernel(*at), vec![name + "_[k]"]);
                }
            }
            Err(reason) => {
                self.notes.push(format!("no names from {KERNEL_SYMBOLS}: {reason}"));
                for at in addresses {
                    self.put(Address::Kernel(*at), vec!["[kernel]_[k]".to_owned()]);
                }
            }
        }
    }

    /// `path` is the path in the mapping, `file` the path to read; `places` are addresses with
    /// their offsets in the file.
    fn add_file(
        &mut self,
        symbolizer: &Symbolizer,
        path: &str,
        file: &Path,
        places: &BTreeSet<(u64, u64)>,
    ) {
        let unknown = match path.rsplit('/').next() {
            _ if path.starts_with('[') => path.to_owned(),
            Some(name) if !name.is_empty() => format!("[{name}]"),
            _ => "[no file]".to_owned(),
        };
        let offsets: Vec<u64> = places.iter().map(|(_, offset)| *offset).collect();
        let found = if path.starts_with('/') {
            let source = Source::Elf(Elf::new(file));
            symbolizer.symbolize(&source, Input::FileOffset(&offsets)).unwrap_or_else(|error| {
                self.notes.push(format!("no names from {path}: {error}"));
                Vec::new()
            })
        } else {
            Vec::new()
        };
        let mut found = found.iter();
        for (at, _) in places {
            let mut functions = found.next().map(functions).unwrap_or_default();
            if functions.is_empty() {
                functions.push(unknown.clone());
            }
            self.put(Address::User(*at), functions);
        }
    }
}

/// Returns the compiled function, then the inlined ones; empty if unknown.
fn functions(symbol: &Symbolized<'_>) -> Vec<String> {
    let Some(symbol) = symbol.as_sym() else { return Vec::new() };
    let mut names = vec![full_name(&symbol.name, symbol.code_info.as_deref())];
    for inlined in &symbol.inlined {
        names.push(full_name(&inlined.name, inlined.code_info.as_ref()) + "_[i]");
    }
    names
}

/// Debug information reduced to line tables has names without modules; the source file of a Rust
/// function determines its module.
fn full_name(name: &str, place: Option<&CodeInfo<'_>>) -> String {
    let name = clean(name);
    if name.contains("::") {
        return name;
    }
    match place.and_then(|place| module(&place.to_path())) {
        Some(module) => format!("{module}::{name}"),
        None => name,
    }
}

/// Returns `store::table` for `/anywhere/store-1.2/src/table.rs`. Returns `None` if it is not the
/// source of a Rust crate.
fn module(file: &Path) -> Option<String> {
    if file.extension()? != "rs" {
        return None;
    }
    let parts: Vec<&str> = file.iter().map(OsStr::to_str).collect::<Option<_>>()?;
    let source = parts.iter().rposition(|part| *part == "src")?;
    let package = parts.get(source.checked_sub(1)?)?;
    let version = package
        .match_indices('-')
        .find(|(at, _)| package.as_bytes().get(at + 1).is_some_and(u8::is_ascii_digit));
    let package = version.map_or(*package, |(at, _)| &package[..at]).replace('-', "_");
    let mut modules = vec![package];
    modules.extend(parts[source + 1..].iter().map(|part| part.trim_end_matches(".rs").to_owned()));
    if matches!(modules.last()?.as_str(), "lib" | "main" | "mod") {
        modules.pop();
    }
    Some(modules.join("::"))
}

/// Removes uninformative parts: the hash that older compilers append, and the type arguments of
/// generic functions, which may have thousands of characters. Also removes the separator of stacks.
fn clean(name: &str) -> String {
    let name = match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name
        }
        _ => name,
    };
    let name = name
        .find('<')
        .filter(|at| *at > 0 && types_end(&name[*at..]))
        .map_or(name, |at| &name[..at]);
    name.replace(';', ",").replace('\n', " ")
}

/// Whether the `<` at the beginning is closed by the last character.
fn types_end(text: &str) -> bool {
    let mut depth = 0;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1, // the arrow of a function's type
            _ => {}
        }
        if depth == 0 {
            return at + 1 == text.len();
        }
        before = letter;
    }
    false
}

/// For other users than root, the file may contain zeros instead of addresses.
fn kernel_symbols_are_hidden() -> bool {
    use std::io::Read;
    let mut start = [0; 16];
    let read = File::open(KERNEL_SYMBOLS).and_then(|mut file| file.read_exact(&mut start));
    read.is_err() || start == [b'0'; 16]
}

/// Returns the mappings with code, in the order of their addresses.
fn parse_mappings(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_mapping).collect()
}

/// Returns `None` for mappings without code. Source: `proc_pid_maps(5)`.
fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let path = fields.nth(2).unwrap_or_default().trim_start();
    if !permissions.contains('x') {
        return None;
    }
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_the_list_of_mappings() {
        let mappings = parse_mappings(
            "55d0-55e0 r--p 00000000 fe:00 12    /opt/a b\n\
             55e0-55f0 r-xp 00000010 fe:00 12    /opt/a b\n\
             7f00-7f10 r-xp 00000000 00:00 0 \n\
             7ff0-7fff r-xp 00000000 00:00 0     [vdso]\n",
        );
        let symbols = Symbols { mappings, executable: None };
        let expected =
            Mapping { start: 0x55e0, end: 0x55f0, offset: 0x10, path: "/opt/a b".to_owned() };
        assert_eq!(symbols.mapping(0x55ef), Some(&expected));
        assert_eq!(symbols.mapping(0x55f0), None);
        assert_eq!(symbols.mapping(0x55d0), None);
        assert_eq!(symbols.mapping(0x7f00).map(|mapping| mapping.path.as_str()), Some(""));
        assert_eq!(symbols.mapping(0x7ff1).map(|mapping| mapping.path.as_str()), Some("[vdso]"));
    }

    #[test]
    fn the_file_of_a_rust_function_is_its_module() {
        let check = |file: &str, expected: Option<&str>| {
            assert_eq!(module(Path::new(file)).as_deref(), expected, "{file}");
        };
        check("/a/crates/store/src/table.rs", Some("store::table"));
        check("crates/store/src/types/mod.rs", Some("store::types"));
        check("/r/index-1a2b/parking_lot-0.12.3/src/raw_mutex.rs", Some("parking_lot::raw_mutex"));
        check("/r/lexical-core-1.0/src/lib.rs", Some("lexical_core"));
        check("/rustc/0123/library/core/src/ptr/mod.rs", Some("core::ptr"));
        check("/usr/src/memcpy.c", None);
        check("build.rs", None);
        check("src/main.rs", None);
    }

    #[test]
    fn names_lose_what_says_nothing() {
        assert_eq!(clean("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(clean("a::hash"), "a::hash");
        assert_eq!(clean("<[u8; 4]>::len"), "<[u8, 4]>::len");
        assert_eq!(clean("find<&u8, fn(u8) -> Option<u8>>"), "find");
        assert_eq!(clean("Vec<u8>::len"), "Vec<u8>::len");
        assert_eq!(clean("<a::B as c::D<E>>"), "<a::B as c::D<E>>");
        assert_eq!(clean("operator<(int)"), "operator<(int)");
    }
}
