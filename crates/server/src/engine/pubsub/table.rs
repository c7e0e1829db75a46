//! Hash tables of names that shrink when they are mostly empty, and memory estimates for names.

use std::collections::HashMap;

use super::message::Name;

/// Slots that a table keeps: it need not shrink for a few names.
const SLOTS_KEPT_MAX: usize = 16;

/// Maximum entries of a node of the standard library's trees.
const NODE_ENTRIES: usize = 11;
/// Entries of a node if a tree was filled in order: half of a full one.
const NODE_ENTRIES_FILLED: usize = 6;
/// Bytes of a node apart from its entries: links and lengths.
const NODE_BYTES: usize = 24;

/// Estimated memory of a heap block: allocators round up.
pub(super) fn block_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}

/// Memory of a shared name: its bytes and two reference counts.
pub(super) fn name_bytes(name: &[u8]) -> usize {
    block_bytes(2 * size_of::<usize>() + name.len())
}

/// Estimated memory of a tree with the given number of entries.
pub(super) fn tree_bytes(entries: usize, entry_bytes: usize) -> usize {
    let nodes = match entries {
        0 => 0,
        1..=NODE_ENTRIES => 1,
        _ => entries.div_ceil(NODE_ENTRIES_FILLED),
    };
    nodes * block_bytes(NODE_BYTES + NODE_ENTRIES * entry_bytes)
}

/// A hash table that shrinks when most of its names are removed. The standard one never does, so a
/// client that keeps subscribing to new names would leave it at its maximum size.
#[derive(Debug)]
pub(super) struct Table<V> {
    names: HashMap<Name, V>,
    /// Capacity in entries. The table itself reports less if slots of removed entries are unused.
    capacity: usize,
}

impl<V> Default for Table<V> {
    fn default() -> Table<V> {
        Table { names: HashMap::new(), capacity: 0 }
    }
}

impl<V> Table<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&V> {
        self.names.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &[u8]) -> Option<&mut V> {
        self.names.get_mut(name)
    }

    /// Returns the value of the name, or inserts a default one.
    pub(super) fn get_or_default(&mut self, name: &Name) -> &mut V
    where
        V: Default,
    {
        self.names.reserve(1);
        self.capacity = self.capacity.max(self.names.capacity());
        self.names.entry(Name::clone(name)).or_default()
    }

    /// Returns the shared name and its value.
    pub(super) fn entry_mut(&mut self, name: &[u8]) -> Option<(Name, &mut V)> {
        let spelled = self.names.get_key_value(name).map(|(known, _)| Name::clone(known))?;
        self.names.get_mut(name).map(|value| (spelled, value))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.keys()
    }

    /// Inserts a new name.
    pub(super) fn insert(&mut self, name: Name, value: V) {
        let old = self.names.insert(name, value);
        debug_assert!(old.is_none(), "a name is stored once");
        self.capacity = self.capacity.max(self.names.capacity());
    }

    /// Removes a name. Amortized O(1): the table shrinks to a half when a quarter is used.
    pub(super) fn remove(&mut self, name: &[u8]) -> Option<V> {
        let removed = self.names.remove(name);
        if self.names.is_empty() || self.capacity > self.wanted().max(SLOTS_KEPT_MAX) {
            self.names.shrink_to(2 * self.names.len());
            self.capacity = self.names.capacity();
        }
        removed
    }

    fn wanted(&self) -> usize {
        4 * self.names.len()
    }

    /// Estimated memory of the table, without the memory that its names and values point to.
    // Source: the standard library's table is `hashbrown`: a power of two of slots, of which up to
    // 7/8 are used, and one control byte per slot
    pub(super) fn memory_bytes(&self) -> usize {
        let slots = match self.capacity {
            0 => return 0,
            capacity => (capacity + 1).max(capacity * 8 / 7).next_power_of_two(),
        };
        block_bytes(slots * (size_of::<(Name, V)>() + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        Name::from(number.to_string().as_bytes())
    }

    #[test]
    fn removed_names_use_no_memory() {
        const NAMES: usize = 10_000;
        let mut table = Table::default();
        assert_eq!(table.memory_bytes(), 0);
        for number in 0..NAMES {
            table.insert(name(number), number);
        }
        let full_bytes = table.memory_bytes();
        assert!(full_bytes >= NAMES * size_of::<(Name, usize)>());
        assert!(full_bytes <= 3 * NAMES * size_of::<(Name, usize)>());
        for number in 10..NAMES {
            assert_eq!(table.remove(&name(number)), Some(number));
            assert_eq!(table.remove(&name(number)), None);
        }
        assert!(table.memory_bytes() <= full_bytes / 200, "{}", table.memory_bytes());
        assert!((0..10).all(|number| table.get(&name(number)) == Some(&number)));
        (0..10).for_each(|number| assert!(table.remove(&name(number)).is_some()));
        assert!(table.is_empty());
        assert_eq!(table.memory_bytes(), 0);
    }

    #[test]
    fn names_that_come_and_go_take_no_more_with_time() {
        let mut table = Table::default();
        let mut peak_bytes = 0;
        for number in 0..20_000 {
            table.insert(name(number), ());
            if let Some(old) = number.checked_sub(100) {
                table.remove(&name(old));
            }
            peak_bytes = peak_bytes.max(table.memory_bytes());
        }
        assert!(peak_bytes <= 512 * size_of::<(Name, usize)>(), "{peak_bytes}");
    }

    #[test]
    fn nodes_of_trees_are_counted() {
        assert_eq!(tree_bytes(0, 16), 0);
        assert_eq!(tree_bytes(1, 16), tree_bytes(11, 16));
        assert!((190..=210).contains(&tree_bytes(1, 16)));
        assert_eq!(tree_bytes(600, 16), 100 * tree_bytes(1, 16));
        assert_eq!(name_bytes(b""), 16);
        assert_eq!(name_bytes(b"x"), 32);
    }
}
