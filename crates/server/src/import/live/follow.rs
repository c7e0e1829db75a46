//! The writes of the source, applied to the target.
//!
//! They are sent in transactions that also store the position after them. A transaction whose reply
//! was lost is sent again only if the stored position shows that it was not executed: so each write
//! is executed exactly once, also writes that are not idempotent, such as INCR.
//!
//! No transaction is sent before the one before has succeeded, so that none is left out.

use std::collections::VecDeque;

use anyhow::anyhow;
use store::DATABASES;
use wire::resp::{Reply, encode_request};

use super::Losses;
use super::failure::Failure;
use super::peer::shown;
use super::progress::Progress;
use super::stream::Position;
use super::target::{State, Target, target_failure};
use crate::commands::command::Flags;
use crate::commands::registry::REGISTRY;
use crate::engine::import_mode::STATE_KEY;
use crate::engine::requests::RequestId;
use crate::import::aof::Command;

/// Commands and bytes after which a transaction is sent. A transaction of the source is never cut.
const BATCH_COMMANDS: usize = 1000;
const BATCH_BYTES: usize = 1 << 20;
/// A transaction of the source that is longer is refused: the target would refuse it, too.
const TRANSACTION_BYTES_MAX: usize = 1 << 30;

/// Bytes of the latest transactions that are kept: a target that does not sync each write forgets
/// some of them in a crash. If it forgot more, the source is asked for them.
const RECENT_BYTES_MAX: usize = 64 << 20;

/// A transaction of the target.
#[derive(Debug)]
struct Transaction {
    /// The positions that the target has stored before and after it.
    before: Position,
    after: Position,
    requests: Vec<u8>,
    names: Vec<String>,
}

/// Whether the replies of the latest transaction were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Latest {
    Settled,
    Sent,
    /// The connection failed.
    Unsent,
}

/// Writes on their way to the target: one transaction is executed there while the next one is made.
#[derive(Debug)]
pub(super) struct Writes {
    /// Where the target is.
    pub(super) applied: Position,
    /// Where it is after the latest transaction; signs of life are not stored.
    stored: Position,
    /// The latest transactions, oldest first.
    recent: VecDeque<Transaction>,
    recent_bytes: usize,
    latest: Latest,
    /// The next transaction: the database in which it begins, and the position after it.
    from_db: u64,
    next: Position,
    requests: Vec<u8>,
    names: Vec<String>,
    in_transaction: bool,
    /// The database of the source is one that the target does not have.
    is_elsewhere: bool,
    /// Signs of life since the latest transaction.
    signs: usize,
}

impl Writes {
    pub(super) fn new(applied: Position) -> Writes {
        Writes {
            stored: applied.clone(),
            recent: VecDeque::new(),
            recent_bytes: 0,
            latest: Latest::Settled,
            from_db: applied.db,
            next: applied.clone(),
            requests: Vec::new(),
            names: Vec::new(),
            in_transaction: false,
            is_elsewhere: applied.db >= DATABASES as u64,
            signs: 0,
            applied,
        }
    }

    pub(super) fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    pub(super) fn is_full(&self) -> bool {
        let is_long = self.names.len() >= BATCH_COMMANDS || self.requests.len() >= BATCH_BYTES;
        (is_long || self.signs >= BATCH_COMMANDS) && !self.in_transaction
    }

    /// Adds a command of the source, after which its offset is `offset`.
    pub(super) fn add(
        &mut self,
        command: Command,
        request: &[u8],
        offset: u64,
        losses: Losses,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        self.next.offset = offset;
        let Command { name, first_argument, .. } = command;
        match name.as_str() {
            "PING" | "REPLCONF" => self.signs += 1,
            "MULTI" => self.in_transaction = true,
            "EXEC" => self.in_transaction = false,
            "SELECT" => {
                let db = std::str::from_utf8(&first_argument).ok().and_then(|db| db.parse().ok());
                self.next.db = db.ok_or_else(|| anyhow!("the source sends a malformed SELECT"))?;
                self.is_elsewhere = self.next.db >= DATABASES as u64;
                if !self.is_elsewhere {
                    self.put(&name, request);
                }
            }
            _ if self.is_elsewhere => {
                let db = self.next.db;
                let what = format!("{name} in database {db}: the target has {DATABASES} databases");
                lose(&what, losses, progress)?;
            }
            _ => match REGISTRY.find(name.as_bytes()) {
                None => {
                    let what =
                        format!("the source sends the command {name}, which the target lacks");
                    lose(&what, losses, progress)?;
                }
                // The account of the import may do more than write keys.
                Some(id) if !is_replicated(&name, id, &first_argument) => {
                    return Err(anyhow!("the source sends {name}, which no replica gets").into());
                }
                Some(_) => {
                    if name == "SWAPDB" {
                        // The key with the state would move to another database.
                        self.put_words(&[b"SELECT", b"0"]);
                        self.put_words(&[b"DEL", STATE_KEY]);
                        self.put_words(&[b"SELECT", self.next.db.to_string().as_bytes()]);
                    }
                    self.put(&name, request);
                    progress.commands += 1;
                }
            },
        }
        if self.requests.len() > TRANSACTION_BYTES_MAX {
            return Err(anyhow!("the source sends a transaction of more than 1 GiB").into());
        }
        Ok(())
    }

    fn put(&mut self, name: &str, request: &[u8]) {
        if self.names.is_empty() {
            self.begin();
        }
        self.requests.extend_from_slice(request);
        self.names.push(name.to_owned());
    }

    fn put_words(&mut self, words: &[&[u8]]) {
        let mut request = Vec::new();
        encode_request(words, &mut request);
        self.put("of the import", &request);
    }

    fn begin(&mut self) {
        encode_request(&[b"MULTI"], &mut self.requests);
        // The commands before the first SELECT to a database that the target lacks are left out.
        let db = self.from_db.min(DATABASES as u64 - 1).to_string();
        encode_request(&[b"SELECT", db.as_bytes()], &mut self.requests);
        self.names.extend(["MULTI".to_owned(), "SELECT".to_owned()]);
    }

    /// Sends what was added as one transaction, after the one before has succeeded. `reconnect`
    /// makes a new connection to the target.
    pub(super) fn send(
        &mut self,
        target: &mut Target,
        reconnect: &mut dyn FnMut() -> Result<Target, Failure>,
    ) -> Result<(), Failure> {
        assert!(!self.in_transaction, "a transaction of the source is one of the target");
        self.settle(target, reconnect)?;
        self.from_db = self.next.db;
        self.signs = 0;
        if self.names.is_empty() {
            // Only signs of life, and writes that are left out.
            self.applied = self.next.clone();
            return Ok(());
        }
        let (before, after) = (self.stored.clone(), self.next.clone());
        let state = State::Following(after.clone()).encode();
        let mut requests = std::mem::take(&mut self.requests);
        encode_request(&[b"SELECT", b"0"], &mut requests);
        encode_request(&[b"SET", STATE_KEY, state.as_bytes()], &mut requests);
        encode_request(&[b"EXEC"], &mut requests);
        let mut names = std::mem::take(&mut self.names);
        names.extend(["SELECT".to_owned(), "SET".to_owned(), "EXEC".to_owned()]);
        let sent = target.peer.send_encoded(&requests, names.len());
        self.latest = if sent.is_ok() { Latest::Sent } else { Latest::Unsent };
        self.recent_bytes += requests.len();
        self.recent.push_back(Transaction { before, after, requests, names });
        while self.recent_bytes > RECENT_BYTES_MAX && self.recent.len() > 1 {
            let oldest = self.recent.pop_front().map_or(0, |oldest| oldest.requests.len());
            self.recent_bytes -= oldest;
        }
        Ok(())
    }

    /// Reads the replies of the latest transaction.
    pub(super) fn settle(
        &mut self,
        target: &mut Target,
        reconnect: &mut dyn FnMut() -> Result<Target, Failure>,
    ) -> Result<(), Failure> {
        let Some(latest) = self.recent.back().filter(|_| self.latest != Latest::Settled) else {
            return Ok(());
        };
        let after = latest.after.clone();
        let mut outcome = match self.latest {
            Latest::Unsent => Ok(false),
            _ => has_succeeded(target, latest),
        };
        while !outcome? {
            target.peer.shut_down();
            *target = reconnect()?;
            outcome = self.repeat(target);
        }
        self.latest = Latest::Settled;
        (self.stored, self.applied) = (after.clone(), after);
        Ok(())
    }

    /// Executes the transactions that the target does not have. False: the connection failed.
    fn repeat(&self, target: &mut Target) -> Result<bool, Failure> {
        let state = match target.state().map_err(target_failure) {
            Ok(state) => state,
            Err(Failure::Target(_)) => return Ok(false),
            Err(other) => return Err(other),
        };
        let has = |at: &Position| state == State::Following(at.clone());
        if self.recent.back().is_some_and(|latest| has(&latest.after)) {
            return Ok(true);
        }
        let Some(first) = self.recent.iter().position(|it| has(&it.before)) else {
            let text = "it has lost more writes than this import still has";
            return Err(Failure::Target(std::io::Error::other(text)));
        };
        for transaction in self.recent.range(first..) {
            let Transaction { requests, names, .. } = transaction;
            if target.peer.send_encoded(requests, names.len()).is_err()
                || !has_succeeded(target, transaction)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Other commands that a source sends to its replicas than writes of keys.
const ALSO_REPLICATED: [&str; 7] =
    ["PUBLISH", "SPUBLISH", "PFCOUNT", "EVAL", "EVALSHA", "FCALL", "SCRIPT"];

fn is_replicated(name: &str, id: RequestId, first_argument: &[u8]) -> bool {
    let id = REGISTRY.find_child(id, first_argument).unwrap_or(id);
    REGISTRY.entry(id).command.flags.has(Flags::WRITE) || ALSO_REPLICATED.contains(&name)
}

fn lose(what: &str, losses: Losses, progress: &mut Progress) -> Result<(), Failure> {
    if losses == Losses::Refuse {
        return Err(anyhow!("{what}; to leave it out, use --partial").into());
    }
    progress.lose(what);
    Ok(())
}

/// Reads the replies of a transaction. False: the connection failed, and the state of the target
/// shows whether it was executed.
fn has_succeeded(target: &mut Target, transaction: &Transaction) -> Result<bool, Failure> {
    let names = &transaction.names;
    let mut refused = None;
    let mut last = Reply::Null;
    for name in names {
        last = match target.peer.read() {
            Ok(reply) => reply,
            Err(_) => return Ok(false),
        };
        if let Reply::Error(_) = last {
            refused.get_or_insert_with(|| format!("{name}: {}", shown(&last)));
        }
    }
    if let Some(refused) = refused {
        return Err(anyhow!("the target refused a write of the source: {refused}").into());
    }
    let Reply::Array(results) = last else {
        return Err(anyhow!("EXEC: {}", shown(&last)).into());
    };
    // The replies after MULTI belong to the commands after it.
    for (result, name) in results.iter().zip(&names[1..]) {
        if let Reply::Error(_) = result {
            let text = "a write of the source failed in the target, whose data differs";
            // The position has moved: it must not be continued from.
            target.set_state(&State::Failed)?;
            return Err(anyhow!("{text}: {name}: {}", shown(result)).into());
        }
    }
    Ok(true)
}
