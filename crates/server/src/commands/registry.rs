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
    /// Names of at most 16 bytes, packed by [`pack`].
    short: HashMap<u128, RequestId, foldhash::fast::FixedState>,
    long: HashMap<&'static str, RequestId>,
}

/// Names of up to this length are looked up by a single integer comparison.
const PACKED_BYTES_MAX: usize = 16;

/// Packs a name in lowercase into an integer. The cases of a letter differ only in bit 5, so
/// setting this bit everywhere also maps a few non-letters together; the name is compared again
/// after a hit.
#[inline]
fn pack(name: &[u8]) -> Option<u128> {
    if name.len() > PACKED_BYTES_MAX {
        return None;
    }
    let mut bytes = [0u8; PACKED_BYTES_MAX];
    bytes[..name.len()].copy_from_slice(name);
    Some(u128::from_le_bytes(bytes) | u128::from_le_bytes([0x20; PACKED_BYTES_MAX]))
}

pub(crate) static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::build);

impl Registry {
    fn build() -> Registry {
        let mut registry =
            Registry { entries: Vec::new(), short: HashMap::default(), long: HashMap::new() };
        for command in COMMANDS {
            let id = registry.push(command, command.name.to_owned(), None);
            for sub in command.subcommands {
                let child = registry.push(sub, format!("{}|{}", command.name, sub.name), Some(id));
                registry.entries[usize::from(id)].children.insert(sub.name, child);
            }
            match pack(command.name.as_bytes()) {
                Some(packed) => registry.short.insert(packed, id),
                None => registry.long.insert(command.name, id),
            };
        }
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
        let id = if let Some(packed) = pack(name) {
            *self.short.get(&packed)?
        } else {
            let name = name.to_ascii_lowercase();
            *self.long.get(std::str::from_utf8(&name).ok()?)?
        };
        let known = self.entry(id).command.name.as_bytes();
        known.eq_ignore_ascii_case(name).then_some(id)
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
        assert_eq!(REGISTRY.find(b"get\0"), None);
        assert_eq!(REGISTRY.find(b""), None);
        assert_eq!(REGISTRY.find(&[b'x'; 100]), None);
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
