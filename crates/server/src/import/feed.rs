//! Commands and functions, sent to a server that runs for this purpose.

use std::io::{Read as _, Seek as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use anyhow::{Context as _, bail};
use store::DATABASES;
use wire::resp::{Reply, decode_reply, encode_request};

use super::aof::{AofError, AofReader, Command};
use super::report::Report;
use super::source::{Opened, Source};
use crate::commands::command::Flags;
use crate::commands::registry::REGISTRY;
use crate::config::Config;
use crate::serve;

/// Requests that are sent before their replies are read. Their replies are short, so that the
/// server never waits for them to be read.
const BATCH_REQUESTS: usize = 1000;
const BATCH_BYTES: usize = 256 << 10;
const REPLY_BYTES: usize = 64 << 10;
/// Keys that one step of a scan visits.
const SCAN_COUNT: &[u8] = b"1000";

/// What to send.
#[derive(Debug)]
pub(super) struct Commands {
    pub(super) functions: Vec<Vec<u8>>,
    /// The rest of a file that was opened, then other files.
    pub(super) first: Opened,
    pub(super) rest: Source,
}

/// Starts a server with the data in `work`, sends it the commands, and stops it.
pub(super) fn feed(
    work: &Path,
    commands: Commands,
    report: &mut Report,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let password = format!("{:032x}", rand::random::<u128>());
    let config = config(work, &password)?;
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            serve::run(config, |group, _| {
                let address = group.addresses()[0];
                sender.send((address, group.stopper())).context("the sending thread has ended")
            })
        });
        // Without a server its own error is reported below.
        let sent = receiver.recv().ok().map(|(address, stopper)| {
            let sent = send_all(address, &password, commands, report, out);
            stopper.stop();
            sent
        });
        let served = server.join().map_err(|_| anyhow::anyhow!("the server panicked"))?;
        served.context("could not run a server for the commands")?;
        sent.context("the server ended before it was ready")?
    })
}

/// A server for this purpose: one client, no limits, and a directory that counts only when it is
/// complete.
fn config(work: &Path, password: &str) -> anyhow::Result<Config> {
    let mut config = Config::default();
    let dir = work.to_str().context("the name of the directory is not UTF-8")?;
    for (name, value) in [
        ("dir", dir),
        ("resp", "127.0.0.1:0"),
        ("cql", ""),
        ("http", ""),
        ("requirepass", password),
        ("durability", "never"),
        ("elements-per-command-max", "0"),
        // The commands are the past of another server, in which nothing had expired that they use.
        ("import-mode", "yes"),
        ("reactors", "1"),
        ("log-level", "warn"),
    ] {
        config.take_argument(name, value)?;
    }
    Ok(config)
}

fn send_all(
    address: SocketAddr,
    password: &str,
    commands: Commands,
    report: &mut Report,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Commands { functions, first, mut rest } = commands;
    let stream = TcpStream::connect(address).context("could not connect to the server")?;
    let mut client =
        Client { stream, requests: Vec::new(), sent: Vec::new(), received: Vec::new() };
    client.expect_ok(&[b"AUTH", password.as_bytes()])?;
    for source in functions {
        client.load_function(&source, report)?;
    }
    let mut next = Some(first);
    while let Some(file) = next {
        let (name, is_last) = (file.name(), !rest.has_more());
        client
            .send_file(file, is_last, report, out)
            .with_context(|| format!("could not import {name}"))?;
        next = rest.open_next()?;
    }
    client.end(report)
}

/// A request whose reply was not read yet.
#[derive(Debug)]
struct Sent {
    name: String,
    start: u64,
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    requests: Vec<u8>,
    sent: Vec<Sent>,
    received: Vec<u8>,
}

impl Client {
    fn ask(&mut self, request: &[&[u8]]) -> anyhow::Result<Reply> {
        let mut bytes = Vec::new();
        encode_request(request, &mut bytes);
        self.stream.write_all(&bytes)?;
        self.reply()
    }

    fn reply(&mut self) -> anyhow::Result<Reply> {
        loop {
            if let Some((reply, used)) = decode_reply(&self.received)? {
                self.received.drain(..used);
                return Ok(reply);
            }
            let len = self.received.len();
            self.received.resize(len + REPLY_BYTES, 0);
            let count = self.stream.read(&mut self.received[len..])?;
            self.received.truncate(len + count);
            if count == 0 {
                bail!("the server has closed the connection");
            }
        }
    }

    fn load_function(&mut self, source: &[u8], report: &mut Report) -> anyhow::Result<()> {
        match self.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", source])? {
            Reply::Error(error) => {
                let first = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let first = first.escape_ascii().to_string();
                report.lose(format!("library of functions: {}", shown(&error)), || first);
            }
            _ => report.add_function(),
        }
        Ok(())
    }

    /// Sends the commands of a file.
    fn send_file(
        &mut self,
        mut file: Opened,
        is_last: bool,
        report: &mut Report,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let (name, before_bytes, total_bytes) = (file.name(), file.before_bytes, file.total_bytes);
        let offset = file.reader.stream_position()?;
        let mut reader = AofReader::new(file.reader, offset);
        let mut is_selected = true;
        loop {
            let end = self.requests.len();
            let command = match reader.read(&mut self.requests) {
                Ok(Some(command)) => command,
                Ok(None) => break,
                Err(AofError::Truncated { start }) if is_last => {
                    self.requests.truncate(end);
                    let text = "ends within this command, which was left out";
                    report.add_note(format!("{name}: offset {start}: the file {text}"));
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            if selects(&command.name) {
                is_selected = is_database(&command.first_argument);
            }
            if !is_selected {
                self.requests.truncate(end);
                let what = format!("command for a database above {}", DATABASES - 1);
                report.lose(what, || at(&name, command.start));
                continue;
            }
            let Command { name: command, start, .. } = command;
            self.sent.push(Sent { name: command, start });
            if self.sent.len() >= BATCH_REQUESTS || self.requests.len() >= BATCH_BYTES {
                self.flush(&name, report)?;
                report.show_progress(before_bytes + reader.offset(), total_bytes, out)?;
            }
        }
        self.flush(&name, report)?;
        // An error: there is no transaction that has begun.
        if let Reply::Simple(_) = self.ask(&[b"DISCARD"])? {
            report.add_note(format!("{name}: a transaction without an end was left out"));
        }
        Ok(())
    }

    /// Sends the requests, and reads their replies.
    fn flush(&mut self, file: &str, report: &mut Report) -> anyhow::Result<()> {
        self.stream.write_all(&self.requests)?;
        self.requests.clear();
        for Sent { name, start } in std::mem::take(&mut self.sent) {
            let reply = self.reply()?;
            report.add_command();
            note_errors(&reply, &mut |error| {
                report.lose(format!("{name}: {}", shown(error)), || at(file, start));
            });
        }
        Ok(())
    }

    /// Removes what has expired, now that no command can extend it, and adds the number of keys of
    /// each database to the report.
    fn end(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let before = self.count_keys()?;
        self.expect_ok(&[b"CONFIG", b"SET", b"import-mode", b"no"])?;
        for db in 0..DATABASES {
            self.select(db)?;
            self.remove_expired()?;
        }
        let after = self.count_keys()?;
        for (db, keys) in after.iter().enumerate().filter(|(_, keys)| **keys > 0) {
            report.set_total(db, *keys);
        }
        report.set_expired(before.iter().sum::<u64>() - after.iter().sum::<u64>());
        Ok(())
    }

    /// A scan removes the expired keys that it finds.
    fn remove_expired(&mut self) -> anyhow::Result<()> {
        let mut cursor = b"0".to_vec();
        loop {
            let reply = self.ask(&[b"SCAN", &cursor, b"COUNT", SCAN_COUNT])?;
            cursor = match reply {
                Reply::Array(mut parts) if parts.len() == 2 => match parts.swap_remove(0) {
                    Reply::Bulk(next) => next,
                    other => bail!("the server answers SCAN with {other:?}"),
                },
                other => bail!("the server answers SCAN with {other:.100?}"),
            };
            if cursor == b"0" {
                return Ok(());
            }
        }
    }

    fn count_keys(&mut self) -> anyhow::Result<[u64; DATABASES]> {
        let mut counts = [0; DATABASES];
        for (db, count) in counts.iter_mut().enumerate() {
            self.select(db)?;
            match self.ask(&[b"DBSIZE"])? {
                Reply::Integer(keys) => *count = u64::try_from(keys)?,
                other => bail!("the server answers DBSIZE with {other:?}"),
            }
        }
        Ok(counts)
    }

    fn select(&mut self, db: usize) -> anyhow::Result<()> {
        self.expect_ok(&[b"SELECT", db.to_string().as_bytes()])
    }

    fn expect_ok(&mut self, request: &[&[u8]]) -> anyhow::Result<()> {
        match self.ask(request)? {
            Reply::Simple(_) => Ok(()),
            other => bail!("the server answers {} with {other:?}", request[0].escape_ascii()),
        }
    }
}

fn at(file: &str, offset: u64) -> String {
    format!("offset {offset} of {file}")
}

fn selects(name: &str) -> bool {
    let found = REGISTRY.find(name.as_bytes());
    found.is_some_and(|id| REGISTRY.entry(id).command.flags.has(Flags::SELECTS))
}

fn is_database(number: &[u8]) -> bool {
    let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    number.is_some_and(|number: usize| number < DATABASES)
}

/// Calls `note` with each error, also with those of a transaction's commands.
fn note_errors(reply: &Reply, note: &mut impl FnMut(&[u8])) {
    match reply {
        Reply::Error(error) => note(error),
        Reply::Array(replies) => replies.iter().for_each(|reply| note_errors(reply, note)),
        _ => {}
    }
}

/// An error without the arguments that it quotes, so that equal ones are counted together.
fn shown(error: &[u8]) -> String {
    let text = String::from_utf8_lossy(error).into_owned();
    match text.split_once(", with args beginning with:") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}
