//! Runs one transcript against a server; prints differences; fills in missing replies.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{Dialect, Server};
use crate::resp::{Connection, Value};
use crate::transcript::compare;
use crate::transcript::file::{Action, Expectation, Expected, Reply, Step, Transcript};
use crate::transcript::notation::{Node, escape};

/// A state that is not reached within this time is a defect of the server, as a leaked client.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Fields of INFO while a server writes its data in the background.
const WRITING: [&str; 3] =
    ["rdb_bgsave_in_progress:1", "aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"];

/// The outcome of one step.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// No reply arrived, as expected.
    Silent,
    Closed,
    Answered(Node),
    /// The connection broke or the bytes were not RESP.
    Broken(String),
}

/// A step whose outcome differs from its transcript.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Line of the request, from 1.
    pub(crate) line: usize,
    pub(crate) request: String,
    pub(crate) expected: Vec<String>,
    pub(crate) actual: Vec<String>,
}

/// Results of `run`.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) differences: Vec<Difference>,
    /// For `--update`: the lines to replace (from 0, may be empty) and the reply.
    pub(crate) edits: Vec<Edit>,
}

#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) first_line: usize,
    pub(crate) line_count: usize,
    pub(crate) reply: Vec<String>,
}

/// Runs all steps on fresh connections, after a FLUSHALL.
pub(crate) fn run(transcript: &Transcript, server: &Server) -> Result<Report> {
    let dialect = server.dialect;
    let mut player = Player::start(&server.address)?;
    player.wait_until_idle(server.is_ours())?;
    let mut report = Report::default();
    for step in &transcript.steps {
        let expectation = match expectation_for(step, dialect) {
            Ok(expectation) => expectation,
            Err(error) => bail!("line {}: {error}", step.line + 1),
        };
        let outcome = player.play(step, expectation)?;
        let Some(outcome) = outcome else { continue };
        if let Some(difference) = difference(step, expectation, &outcome) {
            report.edits.extend(edit(step, expectation, &outcome));
            report.differences.push(difference);
        }
        if let Outcome::Broken(_) = outcome {
            break;
        }
    }
    Ok(report)
}

/// The expectation for this server. `None`: the file has none yet.
fn expectation_for(step: &Step, dialect: Dialect) -> Result<Option<&Expectation>> {
    let found =
        step.expectations.iter().find(|expectation| expectation.only.is_none_or(|d| d == dialect));
    if found.is_none() && !step.expectations.is_empty() {
        bail!("no reply is written for {}", dialect.name());
    }
    Ok(found)
}

/// The connections of a running transcript.
#[derive(Debug)]
struct Player<'a> {
    address: &'a str,
    connections: HashMap<u32, Connection>,
    current: u32,
}

impl<'a> Player<'a> {
    fn start(address: &'a str) -> Result<Self> {
        let mut player = Self { address, connections: HashMap::new(), current: 1 };
        match player.connection()?.call(&["FLUSHALL"])? {
            Value::Simple(_) => Ok(player),
            other => bail!("FLUSHALL answers {other:?}"),
        }
    }

    /// Waits until nothing of the last transcript is left: its clients, which this one might count,
    /// and the snapshot or log that it had the server write.
    fn wait_until_idle(&mut self, is_ours: bool) -> Result<()> {
        let connection = self.connection()?;
        if is_ours {
            wait_until(connection, &["CLIENT", "LIST"], "the last transcript's clients", |list| {
                list.lines().count() <= 1
            })?;
        }
        wait_until(connection, &["INFO", "persistence"], "a background save", |info| {
            !WRITING.iter().any(|field| info.contains(field))
        })
    }

    fn connection(&mut self) -> Result<&mut Connection> {
        match self.connections.entry(self.current) {
            std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                Ok(entry.insert(Connection::open(self.address)?))
            }
        }
    }

    /// Runs one step. `None`: the step has no reply to compare.
    fn play(&mut self, step: &Step, expectation: Option<&Expectation>) -> Result<Option<Outcome>> {
        let sent = match &step.action {
            Action::Connection(id) => {
                self.current = *id;
                return Ok(None);
            }
            Action::Protocol(version) => {
                self.switch_protocol(*version)
                    .with_context(|| format!("line {}", step.line + 1))?;
                return Ok(None);
            }
            Action::AwaitBlocked(clients) => {
                self.wait_until_blocked(*clients)
                    .with_context(|| format!("line {}", step.line + 1))?;
                return Ok(None);
            }
            Action::Request(arguments) => self.connection()?.send(arguments),
            Action::Raw(bytes) => self.connection()?.send_raw(bytes),
            Action::AwaitEnd | Action::AwaitNext => Ok(()),
        };
        if let Err(error) = sent {
            return Ok(Some(Outcome::Broken(format!("{error:#}"))));
        }
        match expectation.map(|expectation| &expectation.reply) {
            Some(Reply::None) => return Ok(Some(Outcome::Silent)),
            Some(Reply::Closed) if self.connection()?.is_closed()? => {
                self.connections.remove(&self.current);
                return Ok(Some(Outcome::Closed));
            }
            _ => {}
        }
        Ok(Some(match self.connection()?.read() {
            Ok(value) => Outcome::Answered(Node::of(&value)),
            Err(error) => Outcome::Broken(format!("{error:#}")),
        }))
    }

    /// Waits until a number of clients are blocked, as seen by a connection of its own.
    fn wait_until_blocked(&mut self, clients: u32) -> Result<()> {
        let mut observer = Connection::open(self.address)?;
        let expected = format!("blocked_clients:{clients}\r\n");
        let what = format!("not {clients} blocked clients");
        wait_until(&mut observer, &["INFO", "clients"], &what, |info| info.contains(&expected))
    }

    fn switch_protocol(&mut self, version: u8) -> Result<()> {
        match self.connection()?.call(&["HELLO", &version.to_string()])? {
            Value::Map(_) if version == 3 => Ok(()),
            Value::Array(Some(_)) if version == 2 => Ok(()),
            other => bail!("HELLO {version} answers {other:?}"),
        }
    }
}

fn difference(
    step: &Step,
    expectation: Option<&Expectation>,
    outcome: &Outcome,
) -> Option<Difference> {
    let is_equal = match (expectation.map(|expectation| &expectation.reply), outcome) {
        (Some(Reply::None), Outcome::Silent) | (Some(Reply::Closed), Outcome::Closed) => true,
        (Some(Reply::Tree(expected)), Outcome::Answered(actual)) => {
            compare::matches(expected, actual)
        }
        _ => false,
    };
    (!is_equal).then(|| Difference {
        line: step.line + 1,
        request: show_request(&step.action),
        expected: expectation
            .map_or_else(|| vec!["(nothing is written)".into()], |e| show_reply(&e.reply)),
        actual: match outcome {
            Outcome::Silent => vec!["(no reply)".into()],
            Outcome::Closed => vec!["(connection closed)".into()],
            Outcome::Answered(node) => node.lines(),
            Outcome::Broken(error) => vec![format!("(broken: {error})")],
        },
    })
}

/// The edit of `--update`: only where no handwritten part is lost.
fn edit(step: &Step, expectation: Option<&Expectation>, outcome: &Outcome) -> Option<Edit> {
    let Outcome::Answered(node) = outcome else { return None };
    let reply = node.lines();
    match expectation {
        None => Some(Edit { first_line: step.line + 1, line_count: 0, reply }),
        Some(Expectation { reply: Reply::Empty(_), line, .. }) => {
            Some(Edit { first_line: line + 1, line_count: 0, reply })
        }
        Some(Expectation { has_directive: false, reply: Reply::Tree(tree), line, .. }) => {
            // The line of a plain expectation is that of its first reply line, or of the
            // `@unordered` before it, which is kept.
            let has_order = tree.order != crate::transcript::file::Order::AsWritten;
            let first_line = line + usize::from(has_order);
            Some(Edit { first_line, line_count: count_lines(tree), reply })
        }
        Some(_) => None,
    }
}

fn count_lines(tree: &Expected) -> usize {
    1 + tree.children.iter().map(count_lines).sum::<usize>()
}

fn show_request(action: &Action) -> String {
    match action {
        Action::Request(arguments) => {
            let shown: Vec<String> =
                arguments.iter().map(|argument| show_argument(argument)).collect();
            format!("> {}", shown.join(" "))
        }
        Action::Raw(bytes) => format!(">> {}", escape(bytes)),
        Action::Protocol(version) => format!("@resp{version}"),
        Action::Connection(id) => format!("@conn {id}"),
        Action::AwaitBlocked(clients) => format!("@blocked {clients}"),
        Action::AwaitEnd => "@ended".into(),
        Action::AwaitNext => "@next".into(),
    }
}

fn show_argument(argument: &[u8]) -> String {
    let text = escape(argument);
    if text.is_empty() || text.contains([' ', '\\', '"', '\'']) {
        format!("\"{}\"", text.replace('"', "\\\""))
    } else {
        text
    }
}

fn show_reply(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Empty(_) => vec!["(nothing is written)".into()],
        Reply::None => vec!["(no reply)".into()],
        Reply::Closed => vec!["(connection closed)".into()],
        Reply::Tree(tree) => {
            let mut lines = Vec::new();
            push_expected(tree, 0, &mut lines);
            lines
        }
    }
}

fn push_expected(tree: &Expected, depth: usize, lines: &mut Vec<String>) {
    let mark = if tree.is_pattern { "@match " } else { "" };
    lines.push(format!("{:indent$}{mark}{}", "", tree.head, indent = depth * 2));
    for child in &tree.children {
        push_expected(child, depth + 1, lines);
    }
}

/// The file's text with the edits applied.
pub(crate) fn apply_edits(text: &str, edits: &[Edit]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for edit in edits.iter().rev() {
        let reply = edit.reply.iter().map(|line| format!("< {line}"));
        lines.splice(edit.first_line..edit.first_line + edit.line_count, reply);
    }
    lines.join("\n") + "\n"
}

/// Repeats a request until its text satisfies the condition; `what` is there until then.
fn wait_until(
    connection: &mut Connection,
    request: &[&str],
    what: &str,
    is_satisfied: impl Fn(&str) -> bool,
) -> Result<()> {
    let started = Instant::now();
    loop {
        let Value::Bulk(Some(text)) = connection.call(request)? else {
            bail!("{} answers something else than a text", request.join(" "));
        };
        let text = String::from_utf8_lossy(&text);
        if is_satisfied(&text) {
            return Ok(());
        }
        if started.elapsed() > WAIT_TIMEOUT {
            bail!("still there: {what}: {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::file::parse;

    fn answered(head: &str) -> Outcome {
        Outcome::Answered(Node { head: head.into(), children: Vec::new() })
    }

    fn update(text: &str, heads: &[&str]) -> String {
        let transcript = parse(text).unwrap();
        let edits: Vec<Edit> = transcript
            .steps
            .iter()
            .zip(heads)
            .filter_map(|(step, head)| {
                let expectation = expectation_for(step, Dialect::Redis).unwrap();
                let outcome = answered(head);
                difference(step, expectation, &outcome)?;
                edit(step, expectation, &outcome)
            })
            .collect();
        apply_edits(text, &edits)
    }

    #[test]
    fn update_fills_in_and_replaces() {
        assert_eq!(update("> A\n> B\n< :1\n# c\n", &["+OK", ":2"]), "> A\n< +OK\n> B\n< :2\n# c\n");
        assert_eq!(update("> A\n@unordered\n", &["*0"]), "> A\n@unordered\n< *0\n");
        assert_eq!(update("> A\n@unordered\n< *1\n<   :1\n", &["*0"]), "> A\n@unordered\n< *0\n");
    }

    #[test]
    fn update_keeps_what_a_hand_wrote() {
        for text in ["> A\n@match :{1..3}\n", "> A\n@only redis: r\n< +A\n", "> A\n@none\n"] {
            assert_eq!(update(text, &[":9"]), text);
        }
    }

    #[test]
    fn a_difference_shows_both_sides() {
        let transcript = parse("> SET k \"a b\"\n< *1\n<   :1\n").unwrap();
        let step = &transcript.steps[0];
        let found = difference(step, step.expectations.first(), &answered("+OK")).unwrap();
        assert_eq!(found.request, "> SET k \"a b\"");
        assert_eq!(
            (found.line, found.expected, found.actual),
            (1, vec!["*1".to_owned(), "  :1".to_owned()], vec!["+OK".to_owned()])
        );
    }

    #[test]
    fn a_server_without_a_reply_is_a_mistake_of_the_file() {
        let transcript = parse("> A\n@only redis: r\n< +OK\n").unwrap();
        assert!(expectation_for(&transcript.steps[0], Dialect::Myriad).is_err());
    }
}
