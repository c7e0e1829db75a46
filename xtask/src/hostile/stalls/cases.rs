//! Each command at its limits.

use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, getrlimit};

use super::super::ask::connect;
use super::super::subject::Subject;
use crate::resp::{Connection, Value};

/// `command | setup; setup | request; request`. Words are separated by blanks; words with an `@`
/// are expanded: see [`expand`]. `-` instead of the request: a measurement is pointless, with the
/// reason. Several requests are measured together if the second reverts the first.
///
/// Limits are counted in elements of `elements-per-command-max`, 1,048,576 in total; see
/// docs/reference/limits.md, "Time of a command".
const CASES: &str = include_str!("cases.txt");

/// Elements of a large collection: the maximum that may be read or copied at once.
const LARGE: usize = 1 << 20;
/// Elements of a collection that is too large for a reactor: long requests process it.
const LONG: usize = LARGE + LARGE / 16;
/// Members with the same score: each is compared and returned.
const LEX: usize = LARGE / 4 - 1;
/// Keys of database 1, for commands that process all keys.
const KEYS: usize = 1_000_000;
const PART: usize = 50_000;

/// One command in one situation.
#[derive(Debug)]
pub(super) struct Case {
    /// The name in COMMAND: `get`, `config|get`.
    pub(super) command: String,
    /// The displayed name.
    pub(super) name: String,
    pub(super) setup: Vec<Step>,
    /// Whether it prepares a transaction.
    pub(super) queues: bool,
    /// Empty: not measured.
    pub(super) requests: Vec<Step>,
}

/// A request, and how often it is sent.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) words: Vec<Vec<u8>>,
    pub(super) times: usize,
}

impl Step {
    /// The number of replies to the request.
    pub(super) fn replies(&self) -> usize {
        let (name, args) = self.words.split_first().expect("a request has words");
        if name.ends_with(b"SUBSCRIBE") { args.len() } else { 1 }
    }
}

pub(super) fn parse() -> Result<Vec<Case>> {
    let lines = CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| parse_line(line).with_context(|| line.to_owned())).collect()
}

fn parse_line(line: &str) -> Result<Case> {
    let mut parts = line.splitn(3, '|').map(str::trim);
    let (command, setup, request) = (parts.next(), parts.next(), parts.next());
    let command = command.context("no command")?.replace(' ', "|");
    let request = request.context("no request")?;
    let setup = setup.unwrap_or_default();
    // The commands of a transaction are queued before it runs.
    let queues = setup.contains("MULTI");
    let of_transaction = if queues { format!("{setup}; ") } else { String::new() };
    let requests = if request.starts_with('-') { "" } else { request };
    Ok(Case {
        command,
        name: format!("{of_transaction}{request}"),
        setup: parse_steps(setup)?,
        queues,
        requests: parse_steps(requests)?,
    })
}

fn parse_steps(text: &str) -> Result<Vec<Step>> {
    text.split(';').map(str::trim).filter(|it| !it.is_empty()).map(parse_step).collect()
}

/// `@times:N` before a request: sent N times.
fn parse_step(text: &str) -> Result<Step> {
    let mut step = Step { words: Vec::new(), times: 1 };
    for word in text.split_whitespace() {
        match word.strip_prefix("@times:") {
            Some(count) => step.times = number(count)?,
            None => expand(word, &mut step.words)?,
        }
    }
    ensure!(!step.words.is_empty(), "a request without words");
    Ok(step)
}

fn number(text: &str) -> Result<usize> {
    text.parse().with_context(|| format!("the number {text:?}"))
}

/// `@x:BYTES`: one word of that length. `@w:PREFIX:COUNT`: `PREFIX0`, `PREFIX1` and so on.
/// `@p:PREFIX:COUNT`: the same, each followed by `v`. `@s:PREFIX:COUNT`: each after a score.
/// `@r:WORD:COUNT`: one word repeated. `@f:NAME:COUNT`: one word, the code of a library with that
/// many functions, `NAME0`, `NAME1` and so on.
fn expand(word: &str, words: &mut Vec<Vec<u8>>) -> Result<()> {
    let Some(rest) = word.strip_prefix('@') else {
        words.push(word.as_bytes().to_vec());
        return Ok(());
    };
    let mut parts = rest.split(':');
    let kind = parts.next().unwrap_or_default();
    let first = parts.next().context("@ without an argument")?;
    if kind == "x" {
        words.push(vec![b'x'; number(first)?]);
        return Ok(());
    }
    let count = number(parts.next().context("@ without a number")?)?;
    if kind == "f" {
        words.push(library(first, count).into_bytes());
        return Ok(());
    }
    for at in 0..count {
        match kind {
            "w" => words.push(format!("{first}{at}").into_bytes()),
            "p" => words.extend([format!("{first}{at}").into_bytes(), b"v".to_vec()]),
            "s" => words.extend([at.to_string(), format!("{first}{at}")].map(String::into_bytes)),
            "r" => words.push(first.as_bytes().to_vec()),
            _ => anyhow::bail!("unknown word {word}"),
        }
    }
    Ok(())
}

fn library(name: &str, functions: usize) -> String {
    let head = format!("#!lua name={name}\n");
    let function = |at| {
        format!(
            "redis.register_function{{function_name='{name}{at}', \
             callback=function() return 0 end, flags={{'no-writes'}}}}\n"
        )
    };
    (0..functions).map(function).fold(head, |code, function| code + &function)
}

/// Connections to the server: the maximum, if the descriptors of this process suffice.
const CONNECTIONS: usize = 9_900;
/// Channels that one connection may subscribe to.
const CHANNELS: usize = 1 << 16;
/// Patterns of all connections.
const PATTERNS: usize = 10_000;
/// Bytes of a pattern.
const PATTERN_BYTES: usize = 1024;

/// Clients that are always connected: idle ones, and one with the maximum number of subscriptions.
#[derive(Debug)]
pub(super) struct Crowd {
    _idle: Vec<TcpStream>,
    _subscriber: Connection,
}

impl Crowd {
    pub(super) fn gather(subject: &Subject) -> Result<Crowd> {
        /// Descriptors for other purposes.
        const SPARE: u64 = 200;
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let count = CONNECTIONS.min(usize::try_from(descriptors.saturating_sub(SPARE))?);
        let idle = (0..count).map(|_| connect(&subject.address)).collect::<Result<_>>()?;
        let mut subscriber = subject.connect()?;
        let channels =
            (0..CHANNELS - PATTERNS).map(|at| format!("channel-{}-{at}", "a".repeat(30)));
        let patterns = (0..PATTERNS).map(|at| {
            let tail = at.to_string();
            format!("*{}{tail}", "x".repeat(PATTERN_BYTES - 1 - tail.len()))
        });
        subscribe(&mut subscriber, "SUBSCRIBE", channels.collect())?;
        subscribe(&mut subscriber, "PSUBSCRIBE", patterns.collect())?;
        Ok(Crowd { _idle: idle, _subscriber: subscriber })
    }
}

fn subscribe(connection: &mut Connection, command: &str, names: Vec<String>) -> Result<()> {
    let count = names.len();
    let words = [vec![command.to_owned()], names].concat();
    connection.send(&words)?;
    for _ in 0..count {
        if let Value::Error(text) = connection.read()? {
            anyhow::bail!("{}", String::from_utf8_lossy(&text));
        }
    }
    Ok(())
}

/// Collections of several sizes, strings, and a database of many keys.
pub(super) fn fill(subject: &Subject) -> Result<()> {
    let mut connection = subject.connect()?;
    let mut send = |words: &[Vec<u8>]| match connection.call(words)? {
        Value::Error(text) => anyhow::bail!("{}", String::from_utf8_lossy(&text)),
        _ => Ok(()),
    };
    let command = |name: &str, key: &str| vec![name.as_bytes().to_vec(), key.as_bytes().to_vec()];
    // The number is the cost of an element where as many are processed. `b` has other members, and
    // `x` more of them.
    for (suffix, element, count) in [
        ("", "e", LARGE),
        ("x", "e", LONG),
        ("2", "e", LARGE / 2 - 1),
        ("4", "e", LARGE / 4 - 1),
        ("8", "e", LARGE / 8 - 1),
        ("8b", "n", LARGE / 8 - 1),
        ("16", "e", LARGE / 16 - 1),
        ("16b", "n", LARGE / 16 - 1),
        ("32", "e", LARGE / 32 - 1),
        ("32b", "n", LARGE / 32 - 1),
    ] {
        for (name, kind) in [("RPUSH", "list"), ("SADD", "set"), ("HSET", "hash"), ("ZADD", "zset")]
        {
            for first in (0..count).step_by(PART) {
                let mut words = command(name, &format!("{kind}{suffix}"));
                for at in first..(first + PART).min(count) {
                    let element = format!("{element}{at}").into_bytes();
                    match kind {
                        "hash" => words.extend([element, b"v".to_vec()]),
                        "zset" => words.extend([at.to_string().into_bytes(), element]),
                        _ => words.push(element),
                    }
                }
                send(&words)?;
            }
        }
    }
    for first in (0..LEX).step_by(PART) {
        let mut words = command("ZADD", "lex");
        for at in first..(first + PART).min(LEX) {
            words.extend([b"0".to_vec(), format!("e{at}").into_bytes()]);
        }
        send(&words)?;
    }
    send(&[command("SET", "string"), vec![vec![b'x'; 32 << 20]]].concat())?;
    send(&[command("SET", "lcs"), vec![vec![b'x'; 4_090]]].concat())?;
    send(&[command("SET", "lcs2"), vec![b"xy".repeat(2_045)]].concat())?;
    let select = command("SELECT", "1");
    send(&select)?;
    for first in (0..KEYS).step_by(PART) {
        let mut words = vec![b"MSET".to_vec()];
        for at in first..(first + PART).min(KEYS) {
            words.extend([format!("k{at}").into_bytes(), b"v".to_vec()]);
        }
        send(&words)?;
    }
    Ok(())
}
