//! The writes of the source, applied to the target.
//!
//! They are sent in transactions that also store the position after them. A transaction whose reply
//! was lost is sent again only if the stored position shows that it was not executed: so each write
//! is executed exactly once, also those that are not idempotent, such as INCR.

use anyhow::anyhow;
use store::DATABASES;
use wire::resp::{Reply, encode_request};

use super::Losses;
use super::failure::Failure;
use super::peer::shown;
use super::progress::Progress;
use super::stream::Position;
use super::target::{STATE_KEY, State, Target};
use crate::commands::registry::REGISTRY;
use crate::import::aof::Command;

/// Commands and bytes after which a transaction is sent. A transaction of the source is never cut.
const BATCH_COMMANDS: usize = 500;
const BATCH_BYTES: usize = 1 << 20;
/// A transaction of the source that is longer is refused: the target would refuse it, too.
const TRANSACTION_BYTES_MAX: usize = 1 << 30;

/// Writes that the target does not have yet.
#[derive(Debug)]
pub(super) struct Batch {
    /// Where the target is.
    pub(super) applied: Position,
    /// The position that the target has stored: signs of life are not.
    stored: Position,
    /// Where it is after the batch.
    next: Position,
    requests: Vec<u8>,
    names: Vec<String>,
    in_transaction: bool,
    /// The database of the source is one that the target does not have.
    is_elsewhere: bool,
}

impl Batch {
    pub(super) fn new(applied: Position) -> Batch {
        let (stored, next) = (applied.clone(), applied.clone());
        let is_elsewhere = applied.db >= DATABASES as u64;
        let (requests, names) = (Vec::new(), Vec::new());
        Batch { applied, stored, next, requests, names, in_transaction: false, is_elsewhere }
    }

    pub(super) fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    pub(super) fn is_full(&self) -> bool {
        let is_long = self.names.len() >= BATCH_COMMANDS || self.requests.len() >= BATCH_BYTES;
        is_long && !self.in_transaction
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
            "PING" | "REPLCONF" => return Ok(()),
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
            _ if REGISTRY.find(name.as_bytes()).is_none() => {
                let what = format!("the source sends the command {name}, which the target lacks");
                lose(&what, losses, progress)?;
            }
            "SWAPDB" => {
                // The key with the state would move to another database.
                self.put_words(&[b"SELECT", b"0"]);
                self.put_words(&[b"DEL", STATE_KEY]);
                self.put_words(&[b"SELECT", self.next.db.to_string().as_bytes()]);
                self.put(&name, request);
                progress.commands += 1;
            }
            _ => {
                self.put(&name, request);
                progress.commands += 1;
            }
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
        let db = self.applied.db.min(DATABASES as u64 - 1).to_string();
        encode_request(&[b"SELECT", db.as_bytes()], &mut self.requests);
        self.names.extend(["MULTI".to_owned(), "SELECT".to_owned()]);
    }

    /// Applies the writes. `reconnect` makes a new connection to the target.
    pub(super) fn apply(
        &mut self,
        target: &mut Target,
        reconnect: &mut dyn FnMut() -> Result<Target, Failure>,
    ) -> Result<(), Failure> {
        assert!(!self.in_transaction, "a transaction of the source is one of the target");
        if self.names.is_empty() {
            // Only signs of life.
            self.applied = self.next.clone();
            return Ok(());
        }
        let state = State::Following(self.next.clone()).encode();
        let mut requests = std::mem::take(&mut self.requests);
        encode_request(&[b"SELECT", b"0"], &mut requests);
        encode_request(&[b"SET", STATE_KEY, state.as_bytes()], &mut requests);
        encode_request(&[b"EXEC"], &mut requests);
        let mut names = std::mem::take(&mut self.names);
        names.extend(["SELECT".to_owned(), "SET".to_owned(), "EXEC".to_owned()]);
        loop {
            match send(target, &requests, &names) {
                Err(Failure::Target(_)) => {}
                Err(other) => return Err(other),
                Ok(()) => break,
            }
            *target = reconnect()?;
            match target.state()? {
                State::Following(position) if position == self.next => break,
                State::Following(position) if position == self.stored => {}
                // It has lost writes in a crash, as with `durability` other than `always`: the
                // stream must begin again where it is.
                _ => {
                    let text = "it has lost acknowledged writes";
                    return Err(Failure::Target(std::io::Error::other(text)));
                }
            }
        }
        self.stored = self.next.clone();
        self.applied = self.next.clone();
        requests.clear();
        requests.shrink_to(2 * BATCH_BYTES);
        self.requests = requests;
        Ok(())
    }
}

fn lose(what: &str, losses: Losses, progress: &mut Progress) -> Result<(), Failure> {
    if losses == Losses::Refuse {
        return Err(anyhow!("{what}; to leave it out, use --partial").into());
    }
    progress.lose(what);
    Ok(())
}

/// Sends a transaction, and reads its replies.
fn send(target: &mut Target, requests: &[u8], names: &[String]) -> Result<(), Failure> {
    let peer = &mut target.peer;
    peer.send_encoded(requests, names.len()).map_err(Failure::Target)?;
    let mut refused = None;
    let mut last = Reply::Null;
    for name in names {
        last = peer.read().map_err(Failure::Target)?;
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
    Ok(())
}
