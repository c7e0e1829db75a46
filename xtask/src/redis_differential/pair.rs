//! The two servers, and what they answer to a sequence.

use anyhow::{Context, Result, bail};

use super::agree::{Rule, agree};
use super::known;
use super::sequence::{CONNECTIONS, Step};
use crate::resp::{Connection, Value};

/// The two servers.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) myriad: String,
    pub(super) other: String,
    /// Commands so far.
    pub(super) commands: u64,
}

/// Where the replay of a sequence ends.
enum End {
    Different(Difference),
    /// The versions of the servers differ, and from here on their data.
    Known,
}

/// Different answers of two servers to one step.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) at: usize,
    /// What differs, without values: differences of one kind are shown once.
    pub(super) kind: String,
    pub(super) myriad: Value,
    pub(super) other: Value,
}

/// One connection to each server.
struct Lines {
    myriad: Connection,
    other: Connection,
    /// Steps that were sent and are not yet answered.
    sent: Vec<usize>,
    /// The rules of the commands of a transaction.
    queued: Vec<Rule>,
}

impl Pair {
    /// Runs all steps on empty servers, up to the first difference.
    pub(super) fn replay(&mut self, steps: &[Step]) -> Result<Option<Difference>> {
        Ok(match self.replay_to_end(steps)? {
            Some(End::Different(difference)) => Some(difference),
            Some(End::Known) | None => None,
        })
    }

    fn replay_to_end(&mut self, steps: &[Step]) -> Result<Option<End>> {
        let mut lines = Vec::new();
        for _ in 0..CONNECTIONS {
            lines.push(Lines {
                myriad: Connection::open(&self.myriad)?,
                other: Connection::open(&self.other)?,
                sent: Vec::new(),
                queued: Vec::new(),
            });
        }
        let first = &mut lines[0];
        for connection in [&mut first.myriad, &mut first.other] {
            if connection.call(&["FLUSHALL"])? != Value::Simple(b"OK".to_vec()) {
                bail!("FLUSHALL failed");
            }
        }
        let mut active = 0;
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Ask { connection, words, .. } => {
                    if *connection != active {
                        if let Some(found) = lines[active].answers(steps)? {
                            return Ok(Some(found));
                        }
                        active = *connection;
                    }
                    lines[active].myriad.send(words).context("myriad")?;
                    lines[active].other.send(words).context("the other server")?;
                    lines[active].sent.push(at);
                    self.commands += 1;
                }
                Step::Exchange { from, to } => {
                    if let Some(found) = lines[active].answers(steps)? {
                        return Ok(Some(found));
                    }
                    active = 0;
                    self.commands += 2;
                    if let Some(found) = lines[0].exchange(at, from, to)? {
                        return Ok(Some(found));
                    }
                }
            }
        }
        lines[active].answers(steps)
    }
}

impl Lines {
    /// Reads and compares the answers to all requests.
    fn answers(&mut self, steps: &[Step]) -> Result<Option<End>> {
        for at in std::mem::take(&mut self.sent) {
            let Step::Ask { words, rule, .. } = &steps[at] else { continue };
            let shown = || show(words);
            let myriad = self.myriad.read().with_context(|| format!("myriad: {}", shown()))?;
            let other =
                self.other.read().with_context(|| format!("the other server: {}", shown()))?;
            if known::is_end(&myriad) {
                return Ok(Some(End::Known));
            }
            if !self.agree(words, *rule, &myriad, &other) {
                let kind = format!("{} {} {}", name(words), sort(&myriad), sort(&other));
                return Ok(Some(End::Different(Difference { at, kind, myriad, other })));
            }
        }
        Ok(None)
    }

    /// Compares the answers to a command, or to all commands of a transaction.
    fn agree(&mut self, words: &[Vec<u8>], rule: Rule, myriad: &Value, other: &Value) -> bool {
        match (myriad, other) {
            (Value::Simple(text), _) if text == b"QUEUED" => {
                self.queued.push(rule);
                myriad == other
            }
            (Value::Array(Some(one)), Value::Array(Some(two))) if words[0] == b"EXEC" => {
                let rules = std::mem::take(&mut self.queued);
                let mut all = rules.iter().zip(one.iter().zip(two));
                one.len() == two.len() && all.all(|(rule, (one, two))| agree(*rule, one, two))
            }
            _ => {
                if [&b"EXEC"[..], b"DISCARD"].contains(&&words[0][..]) {
                    self.queued.clear();
                }
                agree(rule, myriad, other)
            }
        }
    }

    /// Moves a value from each server to the other one.
    fn exchange(&mut self, at: usize, from: &[u8], to: &[u8]) -> Result<Option<End>> {
        let difference = |what: &str, myriad, other| {
            let kind = format!("exchange: {what}");
            Ok(Some(End::Different(Difference { at, kind, myriad, other })))
        };
        let dumps = [&mut self.myriad, &mut self.other].map(|one| one.call(&[b"DUMP", from]));
        let [myriad, other] = dumps;
        let (myriad, other) = (myriad?, other?);
        let (Value::Bulk(Some(of_myriad)), Value::Bulk(Some(of_other))) = (&myriad, &other) else {
            let is_same = sort(&myriad) == sort(&other);
            return if is_same { Ok(None) } else { difference("DUMP", myriad, other) };
        };
        let restore = |one: &mut Connection, payload: &[u8]| {
            one.call(&[b"RESTORE", to, b"0", payload, b"REPLACE"])
        };
        let one = restore(&mut self.myriad, of_other)?;
        let two = restore(&mut self.other, of_myriad)?;
        if one == two { Ok(None) } else { difference("RESTORE", one, two) }
    }
}

/// The name of a command, also within a script.
pub(super) fn name(words: &[Vec<u8>]) -> String {
    let text =
        |at: usize| String::from_utf8_lossy(words.get(at).map_or(b"", |it| it)).to_uppercase();
    if words[0] != b"EVAL" {
        return text(0);
    }
    let keys: usize = text(2).parse().unwrap_or(0);
    format!("EVAL {}", text(3 + keys))
}

pub(super) fn show(words: &[Vec<u8>]) -> String {
    let shown = words.iter().map(|word| crate::transcript::notation::quoted(word));
    shown.collect::<Vec<_>>().join(" ")
}

/// The type of a reply; of an error, the words of its text.
fn sort(value: &Value) -> String {
    match value {
        Value::Error(text) => {
            let text = String::from_utf8_lossy(text);
            let words = text.split_whitespace();
            let words = words.filter(|word| word.chars().all(|it| it.is_ascii_alphabetic()));
            words.take(12).collect::<Vec<_>>().join(" ")
        }
        Value::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Scalar(_) => "number".to_owned(),
        Value::Bulk(None) | Value::Array(None) | Value::Null => "null".to_owned(),
        Value::Bulk(_) | Value::Verbatim(_) => "text".to_owned(),
        Value::Array(_) | Value::Map(_) | Value::Set(_) | Value::Push(_) => "array".to_owned(),
    }
}
