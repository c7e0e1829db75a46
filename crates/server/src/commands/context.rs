//! The context of a running command: its locked keys, its reply and its session.

use std::cell::Cell;

use base::time::{Now, UnixMs};
use store::{Change, Key, Mutation, StoreError, Value};
use wire::resp::{Args, ReplyWriter};

use super::command::{Command, Done, Events, Flags};
use super::fail::Fail;
use super::session::Session;
use crate::config::KeyEvent;
use crate::engine::commit::{Refusal, Unit};
pub(crate) use crate::engine::elements::{
    ARGUMENT_COST, CLAIM_COST, COMBINED_BYTES, DELIVERY_COST, ENTRY_COST, FIELD_TIME_COST,
    LARGE_ARGUMENT_COST, NOTED_ARGUMENT_COST, POINT_COST, QUEUED_COST, QUEUED_COST_WITH_EVENTS,
    REPEATED_BYTES, SCANNED_BYTES, SET_COST, SKETCH_CHANGE_COST, SKETCH_COST, TIMED_FIELD_COST,
    ZSET_COST, copy_cost, may_process,
};
use crate::engine::gate::Gate;
use crate::engine::named_databases;
use crate::engine::reactor_state::{ReactorState, is_gated};
use crate::engine::room::UNCHECKED_BYTES_MAX;
use crate::engine::server_state::ServerState;
use crate::engine::stored_rows;

/// The context of one command.
#[derive(Debug)]
pub(crate) struct CommandContext<'a> {
    /// The running command; inside EXEC, the current queued command.
    pub(crate) command: &'static Command,
    pub(crate) db: u8,
    /// The locked stripes (of the command's keys, all, or none), and the changes of the command or
    /// of the whole transaction.
    pub(crate) locked: Unit<'a>,
    pub(crate) reply: ReplyWriter<'a>,
    pub(crate) now: Now,
    pub(crate) shared: &'a ServerState,
    pub(crate) session: &'a mut Session,
    pub(crate) reactor: &'a mut ReactorState,
    /// Log position that the reply must wait for in addition to those of the command's keys (SCAN,
    /// WAITAOF).
    pub(crate) gate: Gate,
    /// Whether the command runs inside EXEC or a script, where no command may block.
    pub(crate) in_exec: bool,
    /// Elements processed by the command or the whole transaction: see [`CommandContext::spend`].
    pub(crate) elements: Cell<usize>,
    /// Delay of the reply by DEBUG SLEEP; counts as execution time of the command.
    pub(crate) slept_ns: u64,
    /// The command makes its client wait for keys.
    pub(crate) is_blocked: bool,
}

/// Log bytes of a command's changes beyond its arguments: kinds, lengths, a number as text.
const RECORD_SLACK_BYTES: usize = 8 * 1024;

/// Log bytes of an argument beyond its content: kind, database, length.
const RECORD_ARGUMENT_BYTES: usize = 16;

/// Error for a change that would exceed the memory limits while it is buffered for the log.
pub(crate) const NO_MEMORY: &str = "OOM command not allowed: its changes need more memory than 'maxmemory' or 'memory-limit' leave";

const RECORD_TOO_LONG: &str = "ERR the changes of this request are too long for one log record";

/// Memory of intermediate results per element that a long request processes: a member of a sorted
/// set that is added to a result counts 16 elements.
const BYTES_PER_ELEMENT: usize = 8;

/// Maximum bytes of one reply: a request of a few bytes can request a large value a million times.
/// Small in unit tests, so that they need not fill a gigabyte.
pub(crate) const REPLY_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Whether elements may still be added to a reply. If not, [`CommandContext::check_reply`] rejects
/// it.
#[inline]
pub(crate) fn reply_has_room(reply: &ReplyWriter<'_>) -> bool {
    reply.bytes() <= REPLY_BYTES_MAX && reply.has_room()
}

/// Replies with a set of names, as bulk strings.
pub(crate) fn reply_names(reply: &mut ReplyWriter<'_>, names: &[&str]) {
    reply.set(names.len());
    for name in names {
        reply.bulk(name.as_bytes());
    }
}

/// As [`CommandContext::check_reply`], while elements of the data are borrowed.
#[inline]
pub(crate) fn check_room(reply: &ReplyWriter<'_>) -> Done {
    if reply_has_room(reply) { Ok(()) } else { Err(refused_reply(reply)) }
}

#[cold]
fn refused_reply(reply: &ReplyWriter<'_>) -> Fail {
    match reply.refusal() {
        Some(reason) => Fail::owned(format!("OOM {reason}")),
        None => Fail::text("ERR reply is too large"),
    }
}

/// Fails if a command would process more elements than allowed.
#[inline]
pub(crate) fn check_elements(elements: usize, elements_max: usize) -> Done {
    if may_process(elements, elements_max) {
        return Ok(());
    }
    Err(Fail::TooManyElements)
}

impl CommandContext<'_> {
    /// Fails if the reply is too large. Needed by commands that can return a value many times.
    #[inline]
    pub(crate) fn check_reply(&self) -> Done {
        check_room(&self.reply)
    }

    /// Fails if there is no memory for `more` bytes of the reply, or of what it is made from.
    pub(crate) fn check_more(&self, more: usize) -> Done {
        if self.reply.has_room_for(more) { Ok(()) } else { self.check_reply() }
    }

    /// Bytes of the value of each key.
    pub(crate) fn values_bytes(&self, keys: Args<'_>) -> impl Iterator<Item = usize> {
        let bytes = |key| self.locked.memory_bytes(self.db, self.key(key)).unwrap_or(0);
        keys.iter().map(bytes)
    }

    /// Fails if a part of the reply was refused: a command removes nothing that its client does not
    /// receive.
    #[inline]
    fn check_refusal(&self) -> Done {
        if self.reply.has_room() { Ok(()) } else { self.check_reply() }
    }

    /// Counts `elements` before a command visits them, and fails above the limit, because no
    /// command may occupy its reactor for long. An element that costs more than a copy counts
    /// several times: see [`SET_COST`] and others.
    #[inline]
    pub(crate) fn spend(&self, elements: usize) -> Done {
        let spent = self.elements.get().saturating_add(elements);
        self.elements.set(spent);
        if may_process(spent, self.reactor.settings.elements_max()) {
            return Ok(());
        }
        self.spend_long(spent)
    }

    /// A long request is limited by the memory that its intermediate results may need.
    #[cold]
    fn spend_long(&self, spent: usize) -> Done {
        if !self.reactor.runs_long_requests {
            return Err(Fail::TooManyElements);
        }
        self.check_more(spent.saturating_mul(BYTES_PER_ELEMENT).min(usize::MAX / 2))
    }

    /// Like [`CommandContext::spend`], for elements of which a command keeps nothing.
    pub(crate) fn spend_time(&self, elements: usize) -> Done {
        if self.reactor.runs_long_requests { Ok(()) } else { self.spend(elements) }
    }

    /// Counts the bytes of a string that a command copies, if a thread can run the command in place
    /// of this reactor. Elsewhere only the length of strings limits their copies.
    #[inline]
    pub(crate) fn spend_copied(&self, bytes: usize) -> Done {
        if bytes < REPEATED_BYTES || !self.may_hand_over() {
            return Ok(());
        }
        self.spend(bytes / REPEATED_BYTES)
    }

    /// Elements that the command may still process.
    pub(crate) fn elements_left(&self) -> usize {
        match self.reactor.settings.elements_max() {
            0 => usize::MAX,
            _ if self.reactor.runs_long_requests => usize::MAX,
            count => count.saturating_sub(self.elements.get()),
        }
    }

    /// Makes the reply wait for data that the command has read or changed besides that of its keys.
    pub(crate) fn note_gate(&mut self, gate: Gate) {
        if is_gated(self.session.durability) {
            self.gate = self.gate.max(gate);
        }
    }

    #[inline]
    pub(crate) fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.shared.keyspace.key(bytes)
    }

    pub(crate) fn unix(&self) -> UnixMs {
        self.now.unix
    }

    /// The time up to which keys have expired: none has while data is imported.
    pub(crate) fn expiry_now(&self) -> UnixMs {
        self.locked.params().expiry_now()
    }

    /// Changes one key of the selected database, adds the change to the log record, and publishes
    /// the command's event.
    #[inline]
    pub(crate) fn change(&mut self, key: Key<'_>, change: Change<'_>) -> Done {
        debug_assert!(matches!(self.command.events, Events::Each(_)), "{}", self.command.name);
        self.check_refusal()?;
        // Made before the branch: a copy of the change would wait for its parts to leave the store
        // buffer.
        let mutation = Mutation::Key { db: self.db, key, change };
        if self.publishes_events() {
            return self.change_and_publish(self.command.events.each(), key, &mutation);
        }
        self.locked.change(&mutation).map_err(Fail::from)
    }

    /// Like [`CommandContext::change`], but publishes `event`.
    #[inline]
    pub(crate) fn change_as(&mut self, event: KeyEvent, key: Key<'_>, change: Change<'_>) -> Done {
        self.check_refusal()?;
        let mutation = Mutation::Key { db: self.db, key, change };
        if self.publishes_events() {
            return self.change_and_publish(Some(event), key, &mutation);
        }
        self.locked.change(&mutation).map_err(Fail::from)
    }

    /// Deletes a key, and publishes only the event `del`.
    pub(crate) fn delete(&mut self, key: Key<'_>) -> Done {
        self.check_refusal()?;
        let mutation = Mutation::Key { db: self.db, key, change: Change::Delete };
        if self.publishes_events() {
            return self.change_and_publish(None, key, &mutation);
        }
        self.locked.change(&mutation).map_err(Fail::from)
    }

    /// Publishes one more event about a key.
    #[inline]
    pub(crate) fn announce(&mut self, event: KeyEvent, db: u8, key: Key<'_>) {
        if self.publishes_events() {
            self.reactor.publish_event(self.shared, event, db, key.bytes);
        }
    }

    #[inline]
    fn publishes_events(&self) -> bool {
        self.reactor.settings.notify_keyspace_events.is_on()
    }

    /// Changes a key of any database without publishing an event, for a command that publishes its
    /// events after all changes.
    pub(crate) fn apply(&mut self, db: u8, key: Key<'_>, change: Change<'_>) -> Done {
        self.check_refusal()?;
        self.locked.change(&Mutation::Key { db, key, change }).map_err(Fail::from)
    }

    /// Deletes all keys of one database or of all. Requires [`super::command::Flags::ALL_KEYS`].
    pub(crate) fn flush(&mut self, db: Option<u8>) -> Done {
        self.locked.change(&Mutation::Flush { db }).map_err(Fail::from)
    }

    /// Gives a database a name. Requires [`super::command::Flags::ALL_KEYS`].
    pub(crate) fn name_database(&mut self, name: &[u8], db: u8) -> Done {
        let timestamp = stored_rows::next_timestamp(&self.locked, named_databases::STORED);
        named_databases::add(timestamp, name, db, |mutation| self.locked.change(mutation))?;
        Ok(())
    }

    /// Removes the name of a database. Requires [`super::command::Flags::ALL_KEYS`].
    pub(crate) fn unname_database(&mut self, name: &[u8]) -> Done {
        let timestamp = stored_rows::next_timestamp(&self.locked, named_databases::STORED);
        named_databases::remove(timestamp, name, |mutation| self.locked.change(mutation))?;
        Ok(())
    }

    /// Exchanges two databases. Requires [`super::command::Flags::ALL_KEYS`].
    pub(crate) fn swap(&mut self, dbs: [u8; 2]) -> Done {
        self.locked.change(&Mutation::Swap { dbs }).map_err(Fail::from)
    }

    /// Rejects a write before it changes anything if its record may exceed the maximum length or
    /// the available memory. O(1) for small requests.
    #[inline]
    pub(crate) fn admit_write(&mut self, command: &Command, args: Args<'_>) -> Done {
        let quick_bytes = args.bytes_max() + args_bytes_max(args);
        if quick_bytes <= UNCHECKED_BYTES_MAX
            && self.locked.record_bytes() <= UNCHECKED_BYTES_MAX
            && !command.flags.has(Flags::COPIES)
        {
            return Ok(());
        }
        self.admit_large_write(command, args)
    }

    /// Rejects a change that lists the given number of stream entries if its record may exceed the
    /// maximum length or the available memory.
    pub(crate) fn admit_entries(&self, entries: usize) -> Done {
        /// An identifier and a number.
        const ENTRY_BYTES_MAX: usize = 30;
        self.admit_record(self.command, entries.saturating_mul(ENTRY_BYTES_MAX))
    }

    #[cold]
    fn admit_large_write(&mut self, command: &Command, args: Args<'_>) -> Done {
        let heap_bytes = |key: Key<'_>| self.locked.memory_bytes(self.db, key).unwrap_or(0);
        let admitted = self.admit_record(command, self.record_bytes_max(command, args, heap_bytes));
        if admitted.is_ok() || !self.reactor.runs_long_requests {
            return admitted;
        }
        // Small elements have less than half as many bytes in a record. O(elements).
        let encoded_bytes = |key: Key<'_>| {
            let mut bytes = Vec::new();
            let kind = self.locked.encode_collection(self.db, key, &mut bytes);
            if kind.is_some() { bytes.len() } else { heap_bytes(key) }
        };
        self.admit_record(command, self.record_bytes_max(command, args, encoded_bytes))
    }

    /// Rejects changes whose record of up to `bytes` would exceed the maximum length or the
    /// available memory, for a command whose changes may be longer than its arguments.
    pub(crate) fn admit_record(&self, command: &Command, bytes: usize) -> Done {
        let grows = command.flags.has(Flags::DENYOOM);
        let memory_bytes_max = if grows { self.reactor.room.used_bytes_max } else { u64::MAX };
        self.locked.admit(bytes, memory_bytes_max).map_err(Fail::from)
    }

    /// Rejects a change that makes a string of `len` bytes longer, so that it ends at `end`, if it
    /// would be too long or needs too much memory.
    #[inline]
    pub(crate) fn admit_string_end(&self, len: usize, end: u64) -> Done {
        let gap = end.saturating_sub(len as u64);
        if gap == 0 {
            return Ok(());
        }
        if end > self.reactor.settings.proto_max_bulk_len_bytes {
            return Err(Fail::from(StoreError::TooLong));
        }
        let gap = usize::try_from(gap).unwrap_or(usize::MAX);
        self.spend(gap / SCANNED_BYTES)?;
        self.locked.admit_zeros(gap, self.reactor.room.used_bytes_max).map_err(Fail::from)
    }

    /// Returns an upper bound of the size of a command's log record: its arguments, the deletion of
    /// its expired keys, and for [`Flags::COPIES`] the values of its keys, once at the source and
    /// once at the destination. O(keys). `value_bytes`: the bytes of a key's value at most.
    fn record_bytes_max(
        &self,
        command: &Command,
        args: Args<'_>,
        value_bytes: impl Fn(Key<'_>) -> usize,
    ) -> usize {
        /// Bytes of one collection item beyond its heap bytes: lengths, and numbers as text.
        const ITEM_BYTES: usize = 24;
        let mut bytes = args_bytes_max(args);
        let listed = command.key_positions(args, |at, _| {
            let key = self.key(args.get(at));
            bytes = bytes.saturating_add(key.bytes.len() + RECORD_ARGUMENT_BYTES);
            if !command.flags.has(Flags::COPIES) {
                return;
            }
            let items = match self.locked.peek(self.db, key) {
                None | Some(Value::String(_)) => 1,
                Some(value) => value.len(),
            };
            let copied_bytes = value_bytes(key).saturating_add(items.saturating_mul(ITEM_BYTES));
            bytes = bytes.saturating_add(copied_bytes);
        });
        // The command itself rejects arguments whose keys cannot be determined.
        if listed.is_err() { RECORD_SLACK_BYTES } else { bytes }
    }
}

impl From<Refusal> for Fail {
    fn from(refusal: Refusal) -> Fail {
        match refusal {
            Refusal::TooLong => Fail::text(RECORD_TOO_LONG),
            Refusal::NoMemory => Fail::text(NO_MEMORY),
        }
    }
}

/// Returns the maximum log bytes of a request's arguments if each is logged once.
#[inline]
fn args_bytes_max(args: Args<'_>) -> usize {
    args.bytes_max() + args.len() * RECORD_ARGUMENT_BYTES + RECORD_SLACK_BYTES
}

/// Parses an integer argument by Redis's strict rules.
pub(crate) fn integer(text: &[u8]) -> Result<i64, Fail> {
    wire::resp::parse_i64_strict(text).ok_or(Fail::NotInteger)
}

/// Parses a floating-point argument; rejects NaN.
pub(crate) fn float(text: &[u8]) -> Result<f64, Fail> {
    wire::resp::parse_f64(text).ok_or(Fail::NotFloat)
}

/// Parses `YES` or `NO`.
pub(crate) fn yes_or_no(text: &[u8]) -> Result<bool, Fail> {
    if is_option(text, "YES") {
        return Ok(true);
    }
    if is_option(text, "NO") { Ok(false) } else { Err(Fail::Syntax) }
}

/// Whether this argument is the option `name` (in upper case).
pub(crate) fn is_option(text: &[u8], name: &str) -> bool {
    text.eq_ignore_ascii_case(name.as_bytes())
}
