//! What clients leave behind in stripes that another thread holds: a script may for long, and the
//! reactor that closes such a client does not wait. It is harmless, and removed at a later tick.

use store::{Keyspace, WatchFlag};

/// Something that concerns one key.
#[derive(Debug)]
pub(crate) enum Leftover {
    /// Of a session that has watched the key.
    Watch { db: u8, flag: WatchFlag },
    /// Of a client that was blocked on the key.
    Ticket { db: u8, number: u64 },
}

impl Leftover {
    fn try_remove(&self, keyspace: &Keyspace, key: &[u8]) -> bool {
        let key = keyspace.key(key);
        match self {
            Leftover::Watch { db, flag } => keyspace.try_unwatch(*db, key, flag),
            Leftover::Ticket { db, number } => keyspace.try_stop_waiting(*db, key, *number),
        }
    }
}

/// Those of one reactor.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Vec<(Vec<u8>, Leftover)>);

impl Leftovers {
    /// Removes it from the stripe of the key, now or later.
    pub(crate) fn leave(&mut self, keyspace: &Keyspace, key: &[u8], leftover: Leftover) {
        if !leftover.try_remove(keyspace, key) {
            self.0.push((key.to_vec(), leftover));
        }
    }

    /// Removes those whose stripes are free.
    pub(crate) fn remove(&mut self, keyspace: &Keyspace) {
        self.0.retain(|(key, leftover)| !leftover.try_remove(keyspace, key));
    }
}

#[cfg(test)]
mod tests {
    use base::time::UnixMs;
    use store::types::Compact;
    use store::{AccessClock, AccessRule, Params};

    use super::*;

    #[test]
    fn a_watch_outlasts_the_lock_of_its_stripe_only() {
        let keyspace = Keyspace::new(1);
        let access = AccessClock::new(AccessRule::Lru, UnixMs(0), 1);
        let params = Params::new(UnixMs(0), access, Compact::default());
        let (key, flag) = (keyspace.key(b"k"), WatchFlag::default());
        let mut leftovers = Leftovers::default();
        let mut locked = keyspace.lock_one(key.hash, &params);
        locked.watch(0, key, &flag);
        leftovers.leave(&keyspace, b"k", Leftover::Watch { db: 0, flag });
        leftovers.remove(&keyspace);
        drop(locked);
        assert_eq!((leftovers.0.len(), keyspace.watched_keys()), (1, 1));
        leftovers.remove(&keyspace);
        assert_eq!((leftovers.0.len(), keyspace.watched_keys()), (0, 0));
    }
}
