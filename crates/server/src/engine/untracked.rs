//! Untracked memory of the process: the program, stacks, and the allocator's overhead. It counts
//! toward `memory-limit`.

use base::memory::Tracker;

use crate::engine::process::ProcessMemory;

/// Last measured values. Freed memory that was tracked before does not count, although the
/// allocator may keep it: it serves later allocations.
#[derive(Debug, Default)]
pub(crate) struct Untracked {
    bytes: u64,
    resident_bytes: u64,
}

impl Untracked {
    /// Reduces the limit of `server` by the untracked memory. Costs about 20 us.
    pub(crate) fn measure(&mut self, server: &Tracker) {
        let Some(resident_bytes) = ProcessMemory::read().resident_bytes() else { return };
        server.set_reserved(self.update(resident_bytes, server.current_bytes()));
    }

    /// Counts only memory that became resident beyond all known memory.
    fn update(&mut self, resident_bytes: u64, tracked_bytes: u64) -> u64 {
        let known_bytes = self.resident_bytes.max(tracked_bytes.saturating_add(self.bytes));
        let grown_bytes = resident_bytes.saturating_sub(known_bytes);
        self.bytes = resident_bytes.saturating_sub(tracked_bytes).min(self.bytes + grown_bytes);
        self.resident_bytes = resident_bytes;
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn freed_memory_is_not_counted_until_it_cannot_be_used_again() {
        let mut untracked = Untracked::default();
        assert_eq!(untracked.update(1_030, 1_000), 30, "data that was loaded at the start");
        assert_eq!(untracked.update(2_050, 2_000), 50);
        assert_eq!(untracked.update(2_050, 1_200), 50, "deleted, but kept by the allocator");
        assert_eq!(untracked.update(2_050, 1_900), 50, "used again");
        assert_eq!(untracked.update(2_350, 2_000), 350, "could not be used again");
        assert_eq!(untracked.update(2_150, 2_000), 150, "given back");
        assert_eq!(untracked.update(2_450, 2_000), 450, "something that is not tracked");
        assert_eq!(untracked.update(90, 100), 0, "the trackers are ahead");
    }

    proptest! {
        #[test]
        fn trackers_and_the_rest_are_never_more_than_what_is_resident(
            seen in prop::collection::vec((0_u64..1_000, 0_u64..1_000), 1..50),
        ) {
            let mut untracked = Untracked::default();
            let mut resident_max = 0;
            let mut tracked_max = 0;
            for (resident, tracked) in seen {
                let bytes = untracked.update(resident, tracked);
                resident_max = resident_max.max(resident);
                tracked_max = tracked_max.max(tracked);
                prop_assert!(bytes + tracked <= resident.max(tracked));
                prop_assert!(bytes + tracked_max >= resident, "freed memory is at most what was tracked");
                prop_assert!(bytes <= resident_max);
            }
        }
    }
}
