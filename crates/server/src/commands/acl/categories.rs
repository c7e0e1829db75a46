//! Categories of commands, derived from the values of the commands.

use std::sync::LazyLock;

use crate::commands::registry::{Entry, REGISTRY};
use crate::engine::acl::CommandSet;
use crate::engine::requests::RequestId;

/// All categories of Redis, also those without a command of this server, in the order of ACL CAT.
// Source: Redis 7.2 `acl.c`, `ACLDefaultCommandCategories`
pub(super) const NAMES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Commands that a rule about each category concerns: those of the category, and all subcommands of
/// its containers.
static CONCERNED: LazyLock<Vec<CommandSet>> = LazyLock::new(|| {
    let mut sets = vec![CommandSet::default(); NAMES.len()];
    for (id, entry) in REGISTRY.entries() {
        for category in entry.command.categories() {
            let at = position(&category.as_bytes()[1..]).expect("a category of Redis");
            insert_with_children(&mut sets[at], id, entry);
        }
    }
    sets
});

/// Adds a command and its subcommands.
pub(super) fn insert_with_children(set: &mut CommandSet, id: RequestId, entry: &Entry) {
    set.insert(id);
    entry.children().for_each(|child| set.insert(child));
}

fn position(name: &[u8]) -> Option<usize> {
    NAMES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the commands that a rule about the category concerns.
pub(super) fn find(name: &[u8]) -> Option<&'static CommandSet> {
    position(name).map(|at| &CONCERNED[at])
}

/// Returns the commands and subcommands of a category.
pub(super) fn members(name: &[u8]) -> Option<impl Iterator<Item = &'static str>> {
    let known = NAMES[position(name)?];
    let is_member = |(_, entry): &(RequestId, &Entry)| {
        entry.command.categories().iter().any(|category| category[1..] == *known)
    };
    let members = REGISTRY.entries().filter(is_member);
    Some(members.map(|(_, entry)| entry.full_name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_found_in_any_case() {
        let get = REGISTRY.find(b"get").unwrap();
        assert!(find(b"ReAd").unwrap().contains(get));
        assert!(!find(b"write").unwrap().contains(get));
        assert!(find(b"all").is_none() && find(b"").is_none() && find(b"@read").is_none());
        assert!(members(b"string").unwrap().any(|name| name == "get"));
        assert!(members(b"admin").unwrap().any(|name| name == "config|set"));
        assert!(members(b"admin").unwrap().all(|name| name != "config"));
    }

    /// A container is slow, so a rule about `@slow` concerns all its subcommands.
    #[test]
    fn a_container_brings_its_subcommands() {
        let slow = find(b"slow").unwrap();
        let config = REGISTRY.find(b"config").unwrap();
        assert!(slow.contains(config));
        assert!(REGISTRY.entry(config).children().all(|child| slow.contains(child)));
    }
}
