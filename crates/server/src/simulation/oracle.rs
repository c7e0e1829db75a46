//! Checks replies: records the order in which commands ran, the reply that each must get, and what
//! a reply promises.
//!
//! Commands are numbered from 1 in the order of their execution, which is the order of the log. A
//! reply to a connection with durability `always` *promises* the newest command that had changed
//! one of its keys: a crash may undo only commands after every promised one.

use std::collections::{BTreeMap, VecDeque};

use wire::resp::{Protocol, ReplyWriter};

use super::model::{Bytes, Command, Model, is_write, keys_of};
use crate::engine::refusal::LOG_FAILED;

/// The prefix that distinguishes [`LOG_FAILED`] from other errors.
const REFUSAL: &[u8] = b"-M";

/// A part of a connection's input that the server ran at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) now_ms: u64,
    /// The end of the log before and after.
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) log_failed: bool,
}

/// The oracle's state of one connection.
#[derive(Debug)]
pub(super) struct Session {
    is_always: bool,
    transaction: Option<Transaction>,
    /// Replies that have not arrived.
    expected: VecDeque<Expected>,
    /// Bytes of the first of them that have arrived.
    arrived: usize,
    /// Bytes that have arrived, but are too few to classify.
    unjudged: Bytes,
}

#[derive(Debug, Default)]
struct Transaction {
    queued: Vec<Command>,
    is_aborted: bool,
}

#[derive(Debug)]
struct Expected {
    command: Command,
    reply: Bytes,
    /// Number of the command that this reply promises; 0: none.
    promise: usize,
    /// The log had failed: if the keys have writes that are not durable, the reply may be an error.
    may_be_refused: bool,
}

/// The commands of one number, which were run atomically.
#[derive(Debug)]
struct Executed {
    commands: Vec<Command>,
    call: Call,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// The data when the server last started.
    base: Model,
    model: Model,
    history: Vec<Executed>,
    /// Number of the command that last changed a key.
    changed: BTreeMap<Bytes, usize>,
    /// Number of the command that last could have changed a key, whether or not it did.
    written: BTreeMap<Bytes, usize>,
    /// Highest command number that any client may rely on.
    promised: usize,
    /// Number of replies that were errors because their data is not durable and never will be.
    pub(super) refused: usize,
}

impl Session {
    pub(super) fn new(is_always: bool) -> Session {
        Session {
            is_always,
            transaction: None,
            expected: VecDeque::new(),
            arrived: 0,
            unjudged: Vec::new(),
        }
    }

    /// Replies to executed commands that have not arrived completely.
    pub(super) fn outstanding(&self) -> usize {
        self.expected.len()
    }
}

impl Oracle {
    /// Records that the server has run a command of this connection.
    pub(super) fn ran(&mut self, session: &mut Session, command: Command, call: Call) {
        let mut reply = Vec::new();
        let promise = self.perform(session, &command, call, &mut reply);
        let promise = if session.is_always { promise } else { 0 };
        let may_be_refused = call.log_failed && session.is_always;
        session.expected.push_back(Expected { command, reply, promise, may_be_refused });
    }

    fn perform(
        &mut self,
        session: &mut Session,
        command: &Command,
        call: Call,
        out: &mut Bytes,
    ) -> usize {
        let mut reply = ReplyWriter::new(out, Protocol::Resp2);
        match command[0].as_slice() {
            b"CLIENT" => {
                session.is_always = command[2] == b"always";
                reply.ok();
                0
            }
            b"MULTI" => {
                session.transaction = Some(Transaction::default());
                reply.ok();
                0
            }
            b"EXEC" => {
                let transaction = session.transaction.take().expect("only after MULTI");
                self.execute(transaction, call, out)
            }
            _ if call.log_failed && is_write(command) => {
                reply.error(LOG_FAILED);
                if let Some(transaction) = &mut session.transaction {
                    transaction.is_aborted = true;
                }
                0
            }
            _ => match &mut session.transaction {
                Some(transaction) => {
                    transaction.queued.push(command.clone());
                    reply.simple("QUEUED");
                    0
                }
                None => self.apply(vec![command.clone()], call, out),
            },
        }
    }

    fn execute(&mut self, transaction: Transaction, call: Call, out: &mut Bytes) -> usize {
        let mut reply = ReplyWriter::new(out, Protocol::Resp2);
        if call.log_failed && transaction.queued.iter().any(is_write) {
            let text = format!("EXECABORT Transaction discarded because of: {LOG_FAILED}");
            reply.error(&text);
            return 0;
        }
        if transaction.is_aborted {
            reply.error("EXECABORT Transaction discarded because of previous errors.");
            return 0;
        }
        reply.array(transaction.queued.len());
        self.apply(transaction.queued, call, out)
    }

    /// Runs commands atomically. Returns the command number that the reply promises.
    fn apply(&mut self, commands: Vec<Command>, call: Call, out: &mut Bytes) -> usize {
        let before = self.model.clone();
        for command in &commands {
            self.model.run(command, call.now_ms, out);
        }
        let number = self.history.len() + 1;
        let names: Option<Vec<Vec<Bytes>>> = commands.iter().map(keys_of).collect();
        let keys: Vec<Bytes> = if let Some(names) = names {
            names.concat()
        } else {
            // A transaction may write keys after its FLUSHDB.
            let names = before.names(0).into_iter().chain(self.model.names(0));
            names.chain(self.changed.keys().cloned()).collect()
        };
        let writes = commands.iter().any(is_write);
        for key in &keys {
            if writes {
                self.written.insert(key.clone(), number);
            }
            if before.entry(key, call.now_ms) != self.model.entry(key, call.now_ms) {
                self.changed.insert(key.clone(), number);
            }
        }
        self.history.push(Executed { commands, call });
        keys.iter().filter_map(|key| self.changed.get(key)).max().copied().unwrap_or(0)
    }

    /// Checks bytes that arrived at a client while the log was durable up to `durable`. They must
    /// equal the expected replies, in order, and must not arrive too early.
    pub(super) fn arrived(&mut self, session: &mut Session, bytes: &[u8], durable: u64) {
        session.unjudged.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut session.unjudged);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let Some(first) = session.expected.front_mut() else {
                panic!("unexpected bytes: {}", show(rest));
            };
            if session.arrived == 0 && first.may_be_refused && rest.len() < REFUSAL.len() {
                session.unjudged = rest.to_vec();
                return;
            }
            if session.arrived == 0 {
                self.begin_reply(first, rest, durable);
            }
            let expected = &first.reply[session.arrived..];
            let count = expected.len().min(rest.len());
            assert!(
                expected[..count] == rest[..count],
                "{} was answered {}, not {}",
                show_command(&first.command),
                show(rest),
                show(expected)
            );
            rest = &rest[count..];
            session.arrived += count;
            if session.arrived == first.reply.len() {
                session.expected.pop_front();
                session.arrived = 0;
            }
        }
    }

    /// Handles the first bytes of a reply.
    fn begin_reply(&mut self, expected: &mut Expected, bytes: &[u8], durable: u64) {
        let is_refusal = expected.may_be_refused
            && bytes.starts_with(REFUSAL)
            && !expected.reply.starts_with(REFUSAL);
        if is_refusal {
            expected.promise = 0;
            expected.reply.clear();
            ReplyWriter::new(&mut expected.reply, Protocol::Resp2).error(LOG_FAILED);
            self.refused += 1;
        }
        if expected.promise > 0 {
            let call = &self.history[expected.promise - 1].call;
            // The record is somewhere between the two, and is not empty.
            assert!(
                durable > call.before,
                "the reply to {} was sent before its data was durable",
                show_command(&expected.command)
            );
        }
        self.promised = self.promised.max(expected.promise);
    }

    /// The keys whose every write is durable and that do not expire: reads of them must succeed
    /// even if the log has failed.
    pub(super) fn durable_keys(&self, durable: u64) -> Vec<Bytes> {
        let is_durable = |key: &&Bytes| {
            let number = self.written.get(*key).copied().unwrap_or(0);
            number == 0 || self.history[number - 1].call.after <= durable
        };
        let names = self.model.names(0);
        names.iter().filter(|key| self.model.is_lasting(key)).filter(is_durable).cloned().collect()
    }

    /// Continues after a crash and recovery. `end`: the end of the recovered log. `fits`: whether
    /// the recovered data equal a model. Returns the number of lost commands.
    pub(super) fn recovered(&mut self, end: u64, fits: impl Fn(&Model) -> bool) -> usize {
        let kept = self.history.iter().take_while(|one| one.call.after <= end).count();
        let possible =
            self.history.iter().take_while(|one| one.call.before < end).count().max(kept);
        assert!(
            possible >= self.promised,
            "command {} was promised, but the log ends before it at {end}: {:?}",
            self.promised,
            self.history[self.promised - 1]
        );
        // The end may be inside a unit that was run at once: then any of its commands may be the
        // last one.
        let mut model = self.base.clone();
        let mut fitting = (kept == 0 && fits(&model)).then(|| (0, model.clone()));
        for (index, one) in self.history[..possible].iter().enumerate() {
            for command in &one.commands {
                model.run(command, one.call.now_ms, &mut Vec::new());
            }
            if index + 1 >= kept && fits(&model) {
                fitting = Some((index + 1, model.clone()));
            }
        }
        let Some((number, model)) = fitting else {
            panic!(
                "the data are not those after any of the commands {kept} to {possible} of {}",
                self.history.len()
            );
        };
        assert!(
            number >= self.promised,
            "command {} was promised, but the data end after command {number}: {:?}",
            self.promised,
            self.history[self.promised - 1]
        );
        let lost = self.history.len() - number;
        *self = Oracle { base: model.clone(), model, ..Oracle::default() };
        lost
    }
}

pub(super) fn show(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 200;
    let shown = bytes[..bytes.len().min(SHOWN_BYTES_MAX)].escape_ascii();
    format!("\"{shown}\" ({} bytes)", bytes.len())
}

fn show_command(command: &Command) -> String {
    let words: Vec<String> = command.iter().map(|word| show(word)).collect();
    words.join(" ")
}
