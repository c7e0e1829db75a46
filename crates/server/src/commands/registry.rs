//! Commands by name, numbered for the metrics.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use wire::resp::Args;

use super::command::{Command, Flags};
use super::introspection::{Argument, arguments};
use super::table::COMMANDS;
use super::{administration, audit};
use crate::engine::requests::RequestId;

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: RequestId,
    pub(crate) command: &'static Command,
    /// `get`, or `client|list`.
    pub(crate) full_name: String,
    /// Number of the container, for a subcommand.
    pub(crate) parent: Option<RequestId>,
    /// See [`super::audit`].
    pub(crate) is_audited: bool,
    /// See [`super::administration`].
    pub(crate) is_administrative: bool,
    children: HashMap<&'static str, RequestId>,
    /// Parsed at the first COMMAND DOCS that needs them.
    arguments: OnceLock<Vec<Argument>>,
}

#[derive(Debug)]
pub(crate) struct Registry {
    entries: Vec<Entry>,
    short: ShortNames,
    long: HashMap<&'static str, RequestId>,
}

/// Names of up to this length are looked up as integers.
const PACKED_BYTES_MAX: usize = 16;

/// Bit 5 of all bytes: the cases of a letter differ only there.
const CASE_BITS: u128 = u128::from_le_bytes([0x20; PACKED_BYTES_MAX]);

/// Packs a name of 1 to 16 bytes into an integer. The pieces of a name may overlap: they agree
/// where they do.
#[inline]
fn pack(name: &[u8]) -> Option<u128> {
    let len = name.len();
    let byte = |at: usize| u128::from(name[at]) << (8 * at);
    let four = |at: usize| {
        let bytes = name[at..].first_chunk().expect("the length was checked");
        u128::from(u32::from_le_bytes(*bytes)) << (8 * at)
    };
    let eight = |at: usize| {
        let bytes = name[at..].first_chunk().expect("the length was checked");
        u128::from(u64::from_le_bytes(*bytes)) << (8 * at)
    };
    match len {
        1..4 => Some(byte(0) | byte(len / 2) | byte(len - 1)),
        4..8 => Some(four(0) | four(len - 4)),
        8..=PACKED_BYTES_MAX => Some(eight(0) | eight(len - 8)),
        _ => None,
    }
}

/// A name of at most 16 bytes and its command.
#[derive(Debug, Clone, Copy, Default)]
struct ShortName {
    /// In lowercase.
    packed: u128,
    /// Bit 5 of each letter.
    letters: u128,
    /// 0 if the place is free.
    len: usize,
    id: RequestId,
}

/// A table of short names with open addressing, at most half full.
#[derive(Debug)]
struct ShortNames(Box<[ShortName]>);

impl ShortNames {
    fn new(names: &[(&[u8], RequestId)]) -> ShortNames {
        let places = (2 * names.len()).next_power_of_two();
        let mut table = ShortNames(vec![ShortName::default(); places].into());
        for (name, id) in names {
            let packed = pack(name).expect("a short name");
            let letter = |byte: &u8| if byte.is_ascii_lowercase() { 0x20 } else { 0 };
            let letters: Vec<u8> = name.iter().map(letter).collect();
            let letters = pack(&letters).expect("of the same length");
            let mut place = table.place(packed);
            while table.0[place].len > 0 {
                place = (place + 1) % places;
            }
            table.0[place] = ShortName { packed, letters, len: name.len(), id: *id };
        }
        table
    }

    /// Where the search for a name begins.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a hash may lose bits")]
    fn place(&self, packed: u128) -> usize {
        let folded = packed | CASE_BITS;
        let mixed = (folded as u64 ^ (folded >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize & (self.0.len() - 1)
    }

    #[inline]
    fn find(&self, packed: u128, len: usize) -> Option<RequestId> {
        let mut place = self.place(packed);
        loop {
            let known = &self.0[place];
            if known.len == len && (packed ^ known.packed) & !known.letters == 0 {
                return Some(known.id);
            }
            if known.len == 0 {
                return None;
            }
            place = (place + 1) & (self.0.len() - 1);
        }
    }
}

pub(crate) static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::build);

impl Registry {
    fn build() -> Registry {
        let mut registry = Registry {
            entries: Vec::new(),
            short: ShortNames(Box::default()),
            long: HashMap::new(),
        };
        let mut short = Vec::new();
        for command in COMMANDS {
            let id = registry.push(command, command.name.to_owned(), None);
            for sub in command.subcommands {
                let child = registry.push(sub, format!("{}|{}", command.name, sub.name), Some(id));
                registry.entries[usize::from(id)].children.insert(sub.name, child);
            }
            if command.name.len() <= PACKED_BYTES_MAX {
                short.push((command.name.as_bytes(), id));
            } else {
                registry.long.insert(command.name, id);
            }
        }
        registry.short = ShortNames::new(&short);
        registry
    }

    fn push(
        &mut self,
        command: &'static Command,
        full_name: String,
        parent: Option<RequestId>,
    ) -> RequestId {
        let id = RequestId::try_from(self.entries.len()).expect("fewer than 65,536 commands");
        self.entries.push(Entry {
            id,
            command,
            full_name,
            parent,
            is_audited: audit::is_audited(command),
            is_administrative: administration::is_administrative(command),
            children: HashMap::new(),
            arguments: OnceLock::new(),
        });
        id
    }

    /// Returns the names of all commands and subcommands, in numeric order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.full_name.as_str())
    }

    #[inline]
    pub(crate) fn entry(&self, id: RequestId) -> &Entry {
        &self.entries[usize::from(id)]
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (RequestId, &Entry)> {
        (0..).zip(&self.entries)
    }

    /// Finds the top-level command with this name, in any case.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<RequestId> {
        if let Some(packed) = pack(name) {
            return self.short.find(packed, name.len());
        }
        let name = name.to_ascii_lowercase();
        self.long.get(std::str::from_utf8(&name).ok()?).copied()
    }

    /// Finds a subcommand of a container.
    pub(crate) fn find_child(&self, id: RequestId, name: &[u8]) -> Option<RequestId> {
        let name = name.to_ascii_lowercase();
        self.entry(id).children.get(std::str::from_utf8(&name).ok()?).copied()
    }

    /// Finds a command by `get` or `client|list`, the notation of COMMAND INFO and ACL.
    pub(crate) fn find_full(&self, name: &[u8]) -> Option<RequestId> {
        match name.iter().position(|byte| *byte == b'|') {
            None => self.find(name),
            Some(at) => self.find_child(self.find(&name[..at])?, &name[at + 1..]),
        }
    }
}

impl Registry {
    /// Finds the command that a request names, or the subcommand if it is a container.
    pub(crate) fn find_request(&self, request: Args<'_>) -> Option<RequestId> {
        let id = self.find(request.get(0))?;
        match request.try_get(1) {
            Some(name) if self.entry(id).is_container() => self.find_child(id, name),
            _ => Some(id),
        }
    }
}

/// Whether an argument is a password of the request that begins at `first`. Of a request within
/// that one nothing is shown.
pub(super) fn is_secret_of_inner(args: Args<'_>, first: usize, at: usize) -> bool {
    if at < first {
        return false;
    }
    let inner = args.skip(first);
    let Some(id) = REGISTRY.find_request(inner) else { return false };
    let command = REGISTRY.entry(id).command;
    command.has_inner_request() || (command.is_secret)(inner, at - first)
}

impl Entry {
    pub(super) fn arguments(&self) -> &[Argument] {
        self.arguments
            .get_or_init(|| arguments(self.command, 1 + usize::from(self.parent.is_some())))
    }

    pub(crate) fn is_container(&self) -> bool {
        self.command.flags.has(Flags::CONTAINER)
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = RequestId> {
        let mut ids: Vec<RequestId> = self.children.values().copied().collect();
        ids.sort_unstable();
        ids.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::command::Events;

    #[test]
    fn names_are_found_in_any_case_and_nothing_else() {
        let get = REGISTRY.find(b"GeT").expect("known");
        assert_eq!(REGISTRY.entry(get).command.name, "get");
        assert_eq!(REGISTRY.find(b"g\x45t"), Some(get));
        for other in [&b"get\0"[..], b"\0get", b"ge", b"g\x05t", b"ge\x14", b"G\xc5T", b"get "] {
            assert_eq!(REGISTRY.find(other), None, "{}", other.escape_ascii());
        }
        assert_eq!(REGISTRY.find(b""), None);
        assert_eq!(REGISTRY.find(&[b'x'; 100]), None);
        for (id, entry) in REGISTRY.entries().filter(|(_, entry)| entry.parent.is_none()) {
            let name = entry.command.name;
            assert_eq!(REGISTRY.find(name.as_bytes()), Some(id), "{name}");
            assert_eq!(REGISTRY.find(name.to_ascii_uppercase().as_bytes()), Some(id), "{name}");
            for at in 0..name.len() {
                // The same byte with another bit 5 is another name, unless it is a letter.
                let mut other = name.as_bytes().to_vec();
                other[at] ^= 0x20;
                let expected = Some(id).filter(|_| other[at].is_ascii_alphabetic());
                assert_eq!(REGISTRY.find(&other), expected, "{}", other.escape_ascii());
                assert_eq!(REGISTRY.find(&name.as_bytes()[..at]).filter(|it| *it == id), None);
            }
        }
        let list = REGISTRY.find_full(b"CLIENT|LIST").expect("known");
        assert_eq!(REGISTRY.entry(list).full_name, "client|list");
    }

    #[test]
    fn every_value_is_complete() {
        for (_, entry) in REGISTRY.entries() {
            let command = entry.command;
            assert!(!command.summary.is_empty(), "{} has no summary", entry.full_name);
            assert!(
                command.summary.ends_with('.'),
                "{}: summary ends with a stop",
                entry.full_name
            );
            assert!(command.arity != 0, "{} has no arity", entry.full_name);
            assert_eq!(command.name, command.name.to_ascii_lowercase());
            let writes = command.flags.has(Flags::WRITE);
            assert!(!(writes && command.flags.has(Flags::READONLY)), "{}", entry.full_name);
            let name = &entry.full_name;
            assert_eq!(writes, command.events != Events::None, "{name}: events of a write");
        }
    }

    /// A subcommand may have the same name as a specially treated command, such as RESET, GET or
    /// HELP.
    #[test]
    fn special_treatment_is_given_to_exactly_these() {
        let with = |flag: Flags| {
            let entries = REGISTRY.entries().filter(|(_, entry)| entry.command.flags.has(flag));
            entries.map(|(_, entry)| entry.full_name.as_str()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(with(Flags::UNQUEUED), "discard exec multi quit reset watch");
        assert_eq!(with(Flags::ABANDONS), "discard quit reset");
        assert_eq!(with(Flags::EXECUTES), "exec");
        assert_eq!(with(Flags::SELECTS), "select");
        assert_eq!(with(Flags::UNPAUSABLE), "client|unpause");
        assert_eq!(with(Flags::TOUCHES), "touch");
        assert_eq!(
            with(Flags::NO_HTTP),
            "auth client discard exec hello migrate monitor multi psubscribe psync quit reset select \
             punsubscribe replconf save ssubscribe subscribe sunsubscribe sync unsubscribe unwatch \
             watch"
        );
        assert_eq!(with(Flags::MISSES), "getdel getex hgetex");
        assert_eq!(
            with(Flags::NO_MISSES),
            "memory|usage object|encoding object|freq object|idletime object|refcount"
        );
        assert_eq!(
            with(Flags::SUBSCRIBER),
            "ping psubscribe quit reset punsubscribe ssubscribe subscribe sunsubscribe unsubscribe"
        );
    }
}
