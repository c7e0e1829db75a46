//! What a running command may touch: its locked keys, its reply, its connection.

use std::cell::Cell;

use base::time::{Now, UnixMs};
use store::{Change, Key, Locked, Mutation};
use wire::resp::ReplyWriter;

use super::command::Done;
use super::fail::Fail;
use super::session::Session;
use crate::records::RECORD_BYTES_MAX;
use crate::shared::Shared;
use crate::worker::Worker;

/// The keys that a record changed, so that reads of them wait for it. Reused by its reactor.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Mutations in the order in which they were applied.
    pub(crate) bytes: Vec<u8>,
    pub(crate) written: Vec<(u8, u64)>,
    pub(crate) flushed: bool,
    /// CQL: rows of a result, kept for the next one. Empty between requests.
    pub(crate) rows: Vec<u8>,
}

/// A record of a big value must not hold its memory for ever.
const RECORD_BYTES_KEPT_MAX: usize = 256 * 1024;

impl Record {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.written.clear();
        self.flushed = false;
    }

    /// Takes a buffer back for the next result, unless it is a big one.
    pub(crate) fn keep_rows(&mut self, mut rows: Vec<u8>) {
        if rows.capacity() <= RECORD_BYTES_KEPT_MAX {
            rows.clear();
            self.rows = rows;
        }
    }

    /// Gives the memory of a big record back. At once: this reactor's next command may be far away.
    #[inline]
    pub(crate) fn trim(&mut self) {
        if self.bytes.capacity() > RECORD_BYTES_KEPT_MAX {
            self.bytes = Vec::new();
        }
        if self.written.capacity() > RECORD_BYTES_KEPT_MAX / size_of::<(u8, u64)>() {
            self.written = Vec::new();
        }
    }
}

/// The context of one command.
#[derive(Debug)]
pub(crate) struct Cx<'a> {
    pub(crate) db: u8,
    /// The stripes of the command's keys, or all, or none.
    pub(crate) locked: Locked<'a>,
    pub(crate) reply: ReplyWriter<'a>,
    pub(crate) now: Now,
    pub(crate) shared: &'a Shared,
    pub(crate) session: &'a mut Session,
    pub(crate) worker: &'a mut Worker,
    /// Changes so far: of this command, or of the whole transaction.
    pub(crate) record: &'a mut Record,
    /// Log position that the reply must wait for, beyond the command's own keys (SCAN, WAITAOF).
    pub(crate) gate: u64,
    /// True inside EXEC: nothing may wait.
    pub(crate) in_exec: bool,
    /// Elements that the command, or the whole transaction, has processed: [`Cx::spend`].
    pub(crate) elements: Cell<usize>,
    /// How long DEBUG SLEEP delays the reply: counted as time of the command.
    pub(crate) slept_ns: u64,
}

/// Bytes of one reply: a request of a few bytes can ask for a large value a million times. Small in
/// unit tests, so that they need not fill a gigabyte.
pub(crate) const REPLY_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Whether elements may still be added to a reply; if not, [`Cx::check_reply`] refuses it.
#[inline]
pub(crate) fn reply_has_room(out: &[u8]) -> bool {
    out.len() <= REPLY_BYTES_MAX
}

/// A member that is looked up in a set, or added to one.
pub(crate) const SET_COST: usize = 4;
/// The same of a sorted set.
pub(crate) const ZSET_COST: usize = 8;
/// An argument: it may be a key, whose stripe is locked, whose entry is found and changed.
pub(crate) const ARGUMENT_COST: usize = 4;
/// A queued command.
pub(crate) const QUEUED_COST: usize = 8;

/// Fails if a command would process more elements than it may.
#[inline]
pub(crate) fn check_elements(elements: usize, elements_max: usize) -> Done {
    if elements <= elements_max || elements_max == 0 {
        return Ok(());
    }
    Err(Fail::text(
        "ERR the command would process more elements than elements-per-command-max allows",
    ))
}

impl Cx<'_> {
    /// For commands that show a value as often as they are asked to.
    #[inline]
    pub(crate) fn check_reply(&self) -> Done {
        if self.reply.out.len() <= REPLY_BYTES_MAX {
            return Ok(());
        }
        Err(Fail::text("ERR reply is too large"))
    }

    /// Called before a command visits `elements`: none may occupy its reactor for long. Where an
    /// element costs more than to be copied, it counts several times: [`SET_COST`] and others.
    #[inline]
    pub(crate) fn spend(&self, elements: usize) -> Done {
        let spent = self.elements.get().saturating_add(elements);
        self.elements.set(spent);
        check_elements(spent, self.worker.settings.elements_per_command_max)
    }

    #[inline]
    pub(crate) fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.shared.keyspace.key(bytes)
    }

    pub(crate) fn unix(&self) -> UnixMs {
        self.now.unix
    }

    /// Changes one key of the selected database and puts the change on the record.
    #[inline]
    pub(crate) fn change(&mut self, key: Key<'_>, change: Change<'_>) -> Done {
        self.change_in(self.db, key, change)
    }

    /// The same in another database (COPY, MOVE). Fails, and changes nothing, when the record of all
    /// changes would become too long for the log.
    #[inline]
    pub(crate) fn change_in(&mut self, db: u8, key: Key<'_>, change: Change<'_>) -> Done {
        if self.worker.settings.notify_keyspace_events.is_on() {
            return self.change_and_tell(db, key, change);
        }
        self.apply(db, key, change)
    }

    pub(super) fn apply(&mut self, db: u8, key: Key<'_>, change: Change<'_>) -> Done {
        let mutation = Mutation::Key { db, key, change };
        let start = self.record.bytes.len();
        mutation.encode(&mut self.record.bytes);
        // A deletion always fits: the margin is for those that end a command's other changes.
        let fits = self.record.bytes.len() <= RECORD_BYTES_MAX;
        let applied = if fits || matches!(change, Change::Delete) {
            self.locked.apply(&mutation).map_err(Fail::from)
        } else {
            Err(Fail::text("ERR the changes of this request are too long for one log record"))
        };
        if applied.is_err() {
            self.record.bytes.truncate(start);
            return applied;
        }
        self.record.written.push((db, key.hash));
        Ok(())
    }

    /// Empties one database or all. Needs [`super::command::Flags::ALL_KEYS`].
    pub(crate) fn flush(&mut self, db: Option<u8>) -> Done {
        let mutation = Mutation::Flush { db };
        self.locked.apply(&mutation)?;
        mutation.encode(&mut self.record.bytes);
        self.record.flushed = true;
        Ok(())
    }
}

/// An integer argument, by Redis's strict rules.
pub(crate) fn integer(text: &[u8]) -> Result<i64, Fail> {
    wire::resp::parse_i64_strict(text).ok_or(Fail::NotInteger)
}

/// A floating-point argument; NaN is refused.
pub(crate) fn float(text: &[u8]) -> Result<f64, Fail> {
    wire::resp::parse_f64(text).ok_or(Fail::NotFloat)
}

/// Is this argument the option `name` (given in upper case)?
pub(crate) fn is_option(text: &[u8], name: &str) -> bool {
    text.eq_ignore_ascii_case(name.as_bytes())
}
