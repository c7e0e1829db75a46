//! Subscriptions of one connection.

use std::collections::BTreeSet;

use super::message::{Kind, Name};
use super::table::{block_bytes, tree_bytes};

/// Maximum number of channels and patterns of one connection.
pub(super) const SUBSCRIPTIONS_MAX: usize = 1 << 16;

/// Maximum total bytes of their names.
pub(super) const NAMES_BYTES_MAX: usize = 64 << 20;

/// Subscribed names, and the connection's delivery position. Kept in the connection's session;
/// changed only by its reactor's table.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    names: [BTreeSet<Name>; Kind::COUNT],
    name_bytes: usize,
    /// Messages with lower numbers were already delivered or skipped.
    pub(crate) seen: u64,
    /// The connection left too much output unread, and receives nothing more until it is closed.
    pub(crate) is_cut: bool,
}

impl Subscriptions {
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.names[kind.index()].len()
    }

    pub(crate) fn total(&self) -> usize {
        self.names.iter().map(BTreeSet::len).sum()
    }

    /// Number of subscriptions reported to the client after it subscribes or unsubscribes.
    // Source: Redis 7.2 `pubsub.c`, `clientSubscriptionsCount` and `clientShardSubscriptionsCount`
    pub(crate) fn reported_count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.count(Kind::Channel) + self.count(Kind::Pattern),
            Kind::ShardChannel => self.count(Kind::ShardChannel),
        }
    }

    /// Estimated memory; the names themselves belong to the directory.
    pub(super) fn memory_bytes(&self) -> usize {
        if self.total() == 0 {
            return 0;
        }
        let trees = self.names.iter().map(|names| tree_bytes(names.len(), size_of::<Name>()));
        block_bytes(size_of::<Subscriptions>()) + trees.sum::<usize>()
    }

    pub(crate) fn names(&self, kind: Kind) -> impl Iterator<Item = &Name> {
        self.names[kind.index()].iter()
    }

    pub(super) fn contains(&self, kind: Kind, name: &[u8]) -> bool {
        self.names[kind.index()].contains(name)
    }

    /// Whether another name of this length fits within the limits.
    pub(super) fn has_room(&self, name_bytes: usize) -> bool {
        self.total() < SUBSCRIPTIONS_MAX && self.name_bytes + name_bytes <= NAMES_BYTES_MAX
    }

    pub(super) fn insert(&mut self, kind: Kind, name: Name) {
        let name_bytes = name.len();
        if self.names[kind.index()].insert(name) {
            self.name_bytes += name_bytes;
        }
    }

    /// Returns false if there was no such subscription.
    pub(super) fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        let is_removed = self.names[kind.index()].remove(name);
        if is_removed {
            self.name_bytes -= name.len();
        }
        is_removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_by_kind_and_bytes() {
        let mut all = Subscriptions::default();
        for (kind, name) in [
            (Kind::Channel, "a"),
            (Kind::Channel, "bb"),
            (Kind::Channel, "a"),
            (Kind::Pattern, "a"),
            (Kind::ShardChannel, "ccc"),
        ] {
            all.insert(kind, Name::from(name.as_bytes()));
        }
        assert_eq!(Kind::ALL.map(|kind| all.count(kind)), [2, 1, 1]);
        assert_eq!(Kind::ALL.map(|kind| all.reported_count(kind)), [3, 3, 1]);
        assert_eq!((all.total(), all.name_bytes), (4, 7));
        assert!(all.has_room(NAMES_BYTES_MAX - 7));
        assert!(!all.has_room(NAMES_BYTES_MAX - 6));
        assert!(all.contains(Kind::Pattern, b"a") && !all.contains(Kind::ShardChannel, b"a"));
        assert!(all.remove(Kind::Channel, b"bb"));
        assert!(!all.remove(Kind::Channel, b"bb"));
        assert_eq!((all.total(), all.name_bytes), (3, 5));
    }
}
