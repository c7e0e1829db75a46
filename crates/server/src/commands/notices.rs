//! Key events: changes to a key are published to `__keyspace@0__:KEY` and `__keyevent@0__:EVENT` as
//! configured by `notify-keyspace-events`.
//!
//! They are handled like messages of transactions: kept while the command runs, queued in log order
//! under its locks, published after the locks are released, and delivered when the change is on
//! disk.

// Source: Redis documentation, "Keyspace notifications"; Redis 7.2 `notify.c`, and the calls of
// `notifyKeyspaceEvent` in the commands

use smallvec::SmallVec;
use store::{Key, Mutation};
use wire::resp::Args;

use super::command::{Command, Done, Flags};
use super::context::CommandContext;
use crate::config::{KeyEvent, KeyEvents};
use crate::engine::gate::Gate;
use crate::engine::reactor_state::{ReactorState, is_gated};
use crate::engine::server_state::ServerState;

const MISS: KeyEvent = KeyEvent { class: KeyEvents::MISS, name: "keymiss" };

impl CommandContext<'_> {
    /// Changes a key, and publishes `new` if it did not exist, the event of the change, and `del`
    /// if the key was removed.
    #[cold]
    #[inline(never)]
    pub(super) fn change_and_publish(
        &mut self,
        event: Option<KeyEvent>,
        key: Key<'_>,
        mutation: &Mutation<'_>,
    ) -> Done {
        let db = self.db;
        let existed = self.is_stored(db, key);
        self.locked.change(mutation)?;
        let exists = self.is_stored(db, key);
        if exists && !existed {
            self.announce(KeyEvent::NEW, db, key);
        }
        if let Some(event) = event {
            self.announce(event, db, key);
        }
        if existed && !exists {
            self.announce(KeyEvent::DELETED, db, key);
        }
        Ok(())
    }

    /// Whether a key is stored, including one that SET has given an expiry in the past.
    fn is_stored(&self, db: u8, key: Key<'_>) -> bool {
        self.locked.contains(db, key) || self.locked.is_overdue(db, key)
    }

    /// Publishes events for the keys that a command did not find.
    #[cold]
    pub(super) fn publish_misses(&mut self, command: &Command, args: Args<'_>) {
        if !command.flags.has(Flags::READONLY.and(Flags::MISSES))
            || command.flags.has(Flags::NO_MISSES)
        {
            return;
        }
        let mut places: SmallVec<[usize; 2]> = SmallVec::new();
        if command.key_positions(args, |at, _| places.push(at)).is_err() {
            return; // it has not looked up any key
        }
        for at in places {
            let key = self.key(args.get(at));
            if !self.locked.contains(self.db, key) {
                self.announce(MISS, self.db, key);
            }
        }
    }
}

impl ReactorState {
    /// Defers an event that may have subscribers until its log position is known.
    pub(crate) fn publish_event(
        &mut self,
        shared: &ServerState,
        event: KeyEvent,
        db: u8,
        key: &[u8],
    ) {
        let wanted = self.settings.notify_keyspace_events;
        if !wanted.has(event.class) || shared.pubsub.clients() == 0 {
            return;
        }
        let name = event.name.as_bytes();
        for (channels, of, about, payload) in [
            (KeyEvents::KEYSPACE, "keyspace", key, name),
            (KeyEvents::KEYEVENT, "keyevent", name, key),
        ] {
            if !wanted.has(channels) {
                continue;
            }
            let space = format!("__{of}@{db}__:");
            self.pubsub.defer_if_subscribed(&shared.pubsub, [space.as_bytes(), about], payload);
        }
    }

    /// Queues the events of keys that no command has changed, with the position of their record;
    /// see [`ReactorState::queue_deferred`].
    pub(crate) fn queue_events(&mut self, shared: &ServerState, written: Gate) {
        if self.pubsub.has_deferred() {
            let gate = if is_gated(self.settings.durability) { written } else { Gate::OPEN };
            self.queue_deferred(shared, gate);
        }
    }
}
