//! Events about keys: what becomes of a key is published to `__keyspace@0__:KEY` and
//! `__keyevent@0__:EVENT`, as `notify-keyspace-events` asks for it.
//!
//! They are messages like those of transactions: kept while the command runs, put in the order of the log
//! under its locks when its place there is known, published behind them, and told when that is on the disk.

// Source: Redis documentation, "Keyspace notifications"; Redis 7.2 `notify.c`, and the calls of
// `notifyKeyspaceEvent` in the commands

use smallvec::SmallVec;
use store::{Change, End, Key};
use wire::resp::Args;

use super::command::{Command, Done, Flags};
use super::cx::Cx;
use crate::config::KeyEvents;
use crate::gate::Gate;
use crate::shared::Shared;
use crate::worker::{Worker, is_gated};

/// What the deletion of a key is told as whose time has come.
pub(crate) const EXPIRED: &str = "expired";

/// What SET is told as that leaves the expiry of its key alone.
pub(crate) const KEEPING_EXPIRY: &str = "set keepttl";

/// Commands that read, and tell nothing of keys that are not there.
const SILENT: [&str; 5] = ["encoding", "refcount", "idletime", "freq", "usage"];

/// Commands that write, and look for their keys as readers do.
const READERS: [&str; 2] = ["getdel", "getex"];

impl Cx<'_> {
    /// Changes a key, and tells what became of it.
    #[cold]
    #[inline(never)]
    pub(super) fn change_and_tell(&mut self, db: u8, key: Key<'_>, change: Change<'_>) -> Done {
        let existed = self.locked.contains(db, key);
        self.apply(db, key, change)?;
        let exists = self.locked.contains(db, key);
        let command = self.worker.told_as;
        if exists && (!existed || makes_anew(command)) {
            self.tell(KeyEvents::NEW, "new", db, key.bytes);
        }
        if let Some((left, came)) = journey(command) {
            self.tell_journey(left, came, db, key, change);
            return Ok(());
        }
        if let Some((class, event)) = event_of(command, change) {
            self.tell(class, event, db, key.bytes);
        }
        if let Change::Set { expiry: Some(_), .. } = change
            && sets_expiry(command)
        {
            self.tell(KeyEvents::GENERIC, "expire", db, key.bytes);
        }
        if existed && !exists && takes_away(change) {
            self.tell(KeyEvents::GENERIC, "del", db, key.bytes);
        }
        Ok(())
    }

    /// Of a key that gets another name or database: first it is there, then it is not here.
    fn tell_journey(
        &mut self,
        left: &'static str,
        came: &'static str,
        db: u8,
        key: Key<'_>,
        change: Change<'_>,
    ) {
        if !matches!(change, Change::Delete) {
            self.worker.arrived = Some((db, key.bytes.into()));
            return;
        }
        self.tell(KeyEvents::GENERIC, left, db, key.bytes);
        if let Some((db, name)) = self.worker.arrived.take() {
            self.tell(KeyEvents::GENERIC, came, db, &name);
        }
    }

    fn tell(&mut self, class: KeyEvents, event: &str, db: u8, key: &[u8]) {
        self.worker.tell(self.shared, class, event, db, key);
    }

    /// Tells of keys that a command has looked for in vain.
    #[cold]
    pub(super) fn tell_misses(&mut self, command: &Command, args: Args<'_>) {
        let reads = command.flags.has(Flags::READONLY) || READERS.contains(&command.name);
        if !reads || SILENT.contains(&command.name) {
            return;
        }
        let mut places: SmallVec<[usize; 2]> = SmallVec::new();
        if command.key_positions(args, |at, _| places.push(at)).is_err() {
            return; // it has looked for nothing
        }
        for at in places {
            let key = self.key(args.get(at));
            if !self.locked.contains(self.db, key) {
                self.tell(KeyEvents::MISS, "keymiss", self.db, key.bytes);
            }
        }
    }
}

impl Worker {
    /// Puts an event off that somebody listens to, until its place in the log is known.
    pub(crate) fn tell(
        &mut self,
        shared: &Shared,
        class: KeyEvents,
        event: &str,
        db: u8,
        key: &[u8],
    ) {
        let wanted = self.settings.notify_keyspace_events;
        if !wanted.has(class) || shared.pubsub.clients() == 0 {
            return;
        }
        for (channels, of, about, payload) in [
            (KeyEvents::KEYSPACE, "keyspace", key, event.as_bytes()),
            (KeyEvents::KEYEVENT, "keyevent", event.as_bytes(), key),
        ] {
            if !wanted.has(channels) {
                continue;
            }
            let space = format!("__{of}@{db}__:");
            self.pubsub.defer_if_heard(&shared.pubsub, [space.as_bytes(), about], payload);
        }
    }

    /// Puts off what was told of keys that no command has changed, with the position of its record; as
    /// [`Worker::put_off_deferred`].
    pub(crate) fn put_off_told(&mut self, shared: &Shared, written: Gate) {
        if self.pubsub.has_deferred() {
            let gate = if is_gated(self.settings.durability) { written } else { Gate::OPEN };
            self.put_off_deferred(shared, gate);
        }
    }
}

/// What a command that takes a key elsewhere tells: of the one that left, and of the one that came.
fn journey(command: &str) -> Option<(&'static str, &'static str)> {
    match command {
        "rename" | "renamenx" => Some(("rename_from", "rename_to")),
        "move" => Some(("move_from", "move_to")),
        _ => None,
    }
}

/// Whether a command takes the key that was there away before it puts another one there.
fn makes_anew(command: &str) -> bool {
    matches!(command, "rename" | "renamenx" | "copy")
}

/// Whether a command may give a string a time to live.
fn sets_expiry(command: &str) -> bool {
    matches!(command, "set" | "setex" | "psetex")
}

/// Whether a change may leave nothing behind.
fn takes_away(change: Change<'_>) -> bool {
    matches!(
        change,
        Change::Delete
            | Change::HashRemove { .. }
            | Change::ListPop { .. }
            | Change::ListRemove { .. }
            | Change::ListTrim { .. }
            | Change::SetRemove { .. }
            | Change::ZSetRemove { .. }
    )
}

/// The class and the name of what a command has done to a key; none of a mere deletion.
fn event_of(command: &'static str, change: Change<'_>) -> Option<(KeyEvents, &'static str)> {
    // Those that are called after their command, whatever it does to the key.
    let by_command = match command {
        "copy" => Some((KeyEvents::GENERIC, "copy_to")),
        "append" | "setrange" | "incrbyfloat" => Some((KeyEvents::STRING, command)),
        "incr" | "incrby" | "decr" | "decrby" => Some((KeyEvents::STRING, "incrby")),
        "hincrby" | "hincrbyfloat" => Some((KeyEvents::HASH, command)),
        "spop" => Some((KeyEvents::SET, command)),
        "zpopmin" | "zpopmax" | "zremrangebyrank" | "zremrangebyscore" | "zremrangebylex" => {
            Some((KeyEvents::ZSET, command))
        }
        "zincrby" => Some((KeyEvents::ZSET, "zincr")),
        _ => None,
    };
    by_command.or_else(|| event_of_change(command, change))
}

fn event_of_change(command: &'static str, change: Change<'_>) -> Option<(KeyEvents, &'static str)> {
    let event = match change {
        Change::Delete => return None,
        Change::Set { .. } | Change::Edit { .. } => (KeyEvents::STRING, "set"),
        Change::Expire { at: Some(_) } => (KeyEvents::GENERIC, "expire"),
        Change::Expire { at: None } => (KeyEvents::GENERIC, "persist"),
        Change::HashSet { .. } => (KeyEvents::HASH, "hset"),
        Change::HashRemove { .. } => (KeyEvents::HASH, "hdel"),
        Change::ListPush { end: End::Front, .. } => (KeyEvents::LIST, "lpush"),
        Change::ListPush { end: End::Back, .. } => (KeyEvents::LIST, "rpush"),
        Change::ListPop { end: End::Front, .. } => (KeyEvents::LIST, "lpop"),
        Change::ListPop { end: End::Back, .. } => (KeyEvents::LIST, "rpop"),
        Change::ListSet { .. } => (KeyEvents::LIST, "lset"),
        Change::ListInsert { .. } => (KeyEvents::LIST, "linsert"),
        Change::ListRemove { .. } => (KeyEvents::LIST, "lrem"),
        Change::ListTrim { .. } => (KeyEvents::LIST, "ltrim"),
        Change::SetAdd { .. } => (KeyEvents::SET, "sadd"),
        Change::SetRemove { .. } => (KeyEvents::SET, "srem"),
        Change::ZSetAdd { .. } => (KeyEvents::ZSET, "zadd"),
        Change::ZSetRemove { .. } => (KeyEvents::ZSET, "zrem"),
        // The results of SINTERSTORE, ZUNIONSTORE and the like.
        Change::Put { .. } if command.starts_with('s') => (KeyEvents::SET, command),
        Change::Put { .. } => (KeyEvents::ZSET, command),
    };
    Some(event)
}
