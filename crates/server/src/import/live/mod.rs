//! `myriad import redis://...`: copies a running Redis or Valkey into a running server.
//!
//! The import is a replica of the source: it receives all data (`copy`), then every write
//! (`follow`), until the operator ends it. So the target has what the source has when the clients
//! are moved. `stream` is the connection to the source, `peer` one for requests, `target` stores
//! how far the import is. `verify` compares both servers.

mod copy;
mod failure;
mod follow;
mod peer;
mod progress;
mod stream;
mod target;
mod verify;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

use super::Losses;
use super::aof::AofReader;
use super::place::Place;
use super::with_signals;
use copy::Copier;
use failure::Failure;
use follow::Writes;
use peer::Peer;
use progress::{Progress, note};
use stream::{Answer, Position, Stream};
use target::{State, Target, check_source, source_info, target_failure};

/// Longest time without a byte from a server.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// Time between two attempts to connect, and number of failures one after another, after which the
/// import ends: it can be continued later.
const RETRY: Duration = Duration::from_secs(1);
const RETRIES_MAX: u32 = 60;
/// Copies that are begun: a source that ends each of them will end the next one, too.
const COPIES_MAX: u32 = 5;

/// When an import from a running server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When the target has every write of the source.
    CaughtUp,
    /// At SIGTERM or SIGINT.
    Stopped,
}

/// Where an import may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto {
    /// In a target without keys.
    Empty,
    /// Also in one with keys; equal ones are replaced.
    Merge,
}

/// An import from a running server.
#[derive(Debug)]
pub struct LiveImport {
    pub source: Place,
    pub target: Place,
    pub losses: Losses,
    pub onto: Onto,
    pub until: Until,
}

/// Imports, and reports the progress on standard error, the outcome on `out`.
pub fn import(import: &LiveImport, out: &mut dyn Write) -> anyhow::Result<()> {
    with_signals(|is_stopped| {
        let mut source = Peer::connect(&import.source).context("could not use the source")?;
        check_source(&mut source, &import.source)?;
        let mut target = Target::connect(&import.target).context("could not use the target")?;
        let state = begin(import, &mut target)?;
        let progress = Progress::new();
        let mut importer = Importer {
            import,
            target,
            is_lost: false,
            state,
            progress,
            is_stopped,
            copies: 0,
            out,
        };
        importer.run()
    })
}

/// Compares the keys of two servers; fails if they differ.
pub fn verify(source: &Place, target: &Place, out: &mut dyn Write) -> anyhow::Result<()> {
    with_signals(|is_stopped| verify::verify(source, target, is_stopped, out))
}

/// Checks that the target may be changed. Returns the state with which the import begins.
fn begin(import: &LiveImport, target: &mut Target) -> anyhow::Result<State> {
    let shown = import.target.shown();
    let state = match target.state()? {
        // What an earlier import has copied stays, too: it looks like other data.
        State::None | State::Copying if import.onto == Onto::Merge => State::Merging,
        State::None if target.is_empty()? => State::Copying,
        State::None => bail!(
            "{shown} has keys or functions: empty it, or use --merge to keep them and replace those \
             of equal names"
        ),
        State::Failed => bail!(
            "an earlier import into {shown} failed, so that its data differs from that of the \
             source: empty it before the next one, or keep it and CONFIG SET import-mode no"
        ),
        other => other,
    };
    Ok(state)
}

/// Why a stream ended without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    CaughtUp,
    Stopped,
}

struct Importer<'a> {
    import: &'a LiveImport,
    target: Target,
    /// The connection to the target has ended.
    is_lost: bool,
    state: State,
    progress: Progress,
    is_stopped: &'a dyn Fn() -> bool,
    copies: u32,
    out: &'a mut dyn Write,
}

impl Importer<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let mut failures = 0;
        loop {
            let before = self.state.clone();
            let error = match self.receive() {
                Ok(ended) => return self.end(ended),
                Err(Failure::Final(error)) => return Err(self.with_advice(error)),
                Err(Failure::Stopped) => return self.end(Ended::Stopped),
                Err(_) if (self.is_stopped)() => return self.end(Ended::Stopped),
                Err(error) => error,
            };
            // What was sent, but not answered, is on its way to the target: the next attempt begins
            // with what that has then.
            self.target.peer.shut_down();
            self.is_lost = true;
            failures = if self.state == before { failures + 1 } else { 1 };
            let copies = self.copies;
            if failures > RETRIES_MAX || (copies >= COPIES_MAX && self.is_copying()) {
                return Err(self.with_advice(anyhow!("{error}; {copies} copies were begun")));
            }
            if failures == 1 {
                note(&format!("{error}; trying again every second"));
            }
            if self.pause() {
                return self.end(Ended::Stopped);
            }
        }
    }

    /// Connects to the target again. After a crash it may be at an earlier position.
    fn find_target(&mut self) -> Result<(), Failure> {
        let connected = Target::connect(&self.import.target);
        // Also an error reply may pass: the target may still be loading its data.
        self.target = connected.map_err(|error| Failure::Target(io::Error::other(error)))?;
        self.is_lost = false;
        self.state = begin(self.import, &mut self.target).map_err(target_failure)?;
        Ok(())
    }

    /// Waits until the next attempt. True: a signal arrived.
    fn pause(&self) -> bool {
        let until = Instant::now() + RETRY;
        while Instant::now() < until {
            if (self.is_stopped)() {
                return true;
            }
            std::thread::sleep(RETRY / 10);
        }
        false
    }

    fn is_copying(&self) -> bool {
        !matches!(self.state, State::Following(_))
    }

    fn with_advice(&self, error: anyhow::Error) -> anyhow::Error {
        match self.state {
            State::Following(_) => {
                error.context("the import ended; run it again to continue where it is")
            }
            _ => error.context("the import ended before the copy was complete"),
        }
    }

    /// Reports the end, and removes the state from a target that has everything.
    fn end(&mut self, ended: Ended) -> anyhow::Result<()> {
        let State::Following(position) = &self.state else {
            bail!("interrupted before the copy was complete; run the import again to begin again");
        };
        let position = position.offset;
        let lag = match Peer::connect(&self.import.source).and_then(|mut it| source_info(&mut it)) {
            Ok(info) => Some(info.offset.saturating_sub(position)),
            Err(_) if ended == Ended::Stopped => None,
            Err(error) => return Err(error),
        };
        let Progress { keys, functions, commands, losses, .. } = self.progress;
        writeln!(self.out, "{keys} keys and {functions} libraries of functions were copied")?;
        writeln!(self.out, "{commands} commands were executed")?;
        if losses > 0 {
            writeln!(self.out, "{losses} keys or commands were not imported")?;
        }
        if ended == Ended::CaughtUp || lag == Some(0) {
            self.target.finish().context("could not end the import: run it again")?;
            writeln!(self.out, "the import is complete")?;
            return Ok(());
        }
        let lag = lag.map_or("an unknown number of".to_owned(), |lag| lag.to_string());
        bail!("{lag} bytes of writes are missing: run the import again to continue")
    }

    /// Receives the stream over one connection.
    fn receive(&mut self) -> Result<Ended, Failure> {
        if self.is_lost {
            self.find_target()?;
        }
        let known = match &self.state {
            State::Following(position) => Some(position.clone()),
            _ => None,
        };
        let is_stopped = self.is_stopped;
        let (mut stream, answer) = Stream::open(&self.import.source, known.as_ref(), is_stopped)?;
        let position = match (answer, known) {
            (Answer::Continues { history }, Some(known)) => self.resume(&known, history)?,
            (Answer::Full(position), None) => self.copy(&mut stream, position)?,
            (_, known) => {
                let offset = known.map_or(0, |known| known.offset);
                return Err(anyhow!(
                    "the source cannot continue at offset {offset}: it no longer has the writes \
                     after it, or its history is another. The target has everything before it. To \
                     copy again, empty the target, and raise repl-backlog-size of the source"
                )
                .into());
            }
        };
        let outcome = self.follow(&mut stream, position);
        if is_stopped() && matches!(outcome, Err(Failure::Source(_))) {
            return Ok(Ended::Stopped);
        }
        outcome
    }

    fn resume(&mut self, known: &Position, history: Option<String>) -> Result<Position, Failure> {
        let history = history.unwrap_or_else(|| known.history.clone());
        let position = Position { history, ..known.clone() };
        note(&format!("continuing after offset {}", position.offset));
        self.target.keep_expired().map_err(target_failure)?;
        self.set_state(State::Following(position.clone()))?;
        Ok(position)
    }

    fn set_state(&mut self, state: State) -> Result<(), Failure> {
        // A lost connection is noticed by the next request of the copy or of the writes.
        self.target.set_state(&state).map_err(target_failure)?;
        self.state = state;
        Ok(())
    }

    /// Copies all data. The position is that of the source when it began to send.
    fn copy(&mut self, stream: &mut Stream<'_>, mut at: Position) -> Result<Position, Failure> {
        self.copies += 1;
        if self.copies > 1 {
            let advice = match self.state {
                State::Merging => "; keys that the source deletes meanwhile stay: use --verify",
                _ => "",
            };
            note(&format!("copying everything again{advice}"));
        }
        // What an earlier attempt has copied may have been deleted in the source since.
        if self.state == State::Copying {
            self.target.empty().map_err(target_failure)?;
        }
        self.target.keep_expired().map_err(target_failure)?;
        self.set_state(self.state.clone())?;
        self.progress.begin_copy();
        let end = stream.read_end()?;
        let mut copier = Copier::new(&mut self.target, &mut self.progress, self.import.losses);
        let is_stopped = self.is_stopped;
        let (db, read_bytes) = copier.copy(&mut *stream, &mut |progress| {
            progress.report_copy();
            if is_stopped() { Err(Failure::Stopped) } else { Ok(()) }
        })?;
        stream.check_end(&end, read_bytes)?;
        at.db = db;
        self.set_state(State::Following(at.clone()))?;
        let (keys, offset) = (self.progress.keys, at.offset);
        note(&format!("{keys} keys were copied, as of offset {offset}"));
        Ok(at)
    }

    /// Applies the writes after a position.
    fn follow(&mut self, stream: &mut Stream<'_>, at: Position) -> Result<Ended, Failure> {
        let base = at.offset;
        let mut writes = Writes::new(at);
        let mut control = Peer::connect(&self.import.source).map_err(source_failure)?;
        let mut is_caught_up = false;
        stream.acknowledge(base);
        let mut reader = AofReader::new(stream, 0);
        let mut request = Vec::new();
        loop {
            while writes.is_full() || (!reader.source().has_bytes() && !writes.in_transaction()) {
                let is_idle = !writes.is_full();
                self.apply(&mut writes, is_idle)?;
                let offset = writes.applied.offset;
                reader.source().acknowledge(offset);
                if self.progress.is_due() {
                    let end = source_info(&mut control).map_err(source_failure)?.offset;
                    let lag = end.saturating_sub(offset);
                    self.progress.report_writes(lag);
                    if lag == 0 && !std::mem::replace(&mut is_caught_up, true) {
                        writeln!(self.out, "caught up: lag 0 bytes")
                            .map_err(anyhow::Error::from)?;
                        self.out.flush().map_err(anyhow::Error::from)?;
                    }
                    if lag == 0 && self.import.until == Until::CaughtUp {
                        return Ok(Ended::CaughtUp);
                    }
                }
                if (self.is_stopped)() {
                    self.apply(&mut writes, true)?;
                    return Ok(Ended::Stopped);
                }
                if reader.source().has_bytes() || reader.source().poll()? {
                    break;
                }
            }
            request.clear();
            let command = reader.read(&mut request)?;
            let command = command.context("the stream of the source has ended")?;
            let offset = base + reader.offset();
            writes.add(command, &request, offset, self.import.losses, &mut self.progress)?;
        }
    }

    /// Sends the writes, and waits until the target has those before them, or all if there is
    /// nothing else to do.
    fn apply(&mut self, writes: &mut Writes, is_idle: bool) -> Result<(), Failure> {
        let (place, is_stopped) = (&self.import.target, self.is_stopped);
        let reconnect = &mut || reconnect(place, is_stopped);
        writes.send(&mut self.target, reconnect)?;
        if is_idle {
            writes.settle(&mut self.target, reconnect)?;
        }
        self.state = State::Following(writes.applied.clone());
        Ok(())
    }
}

/// Connects to a target that was lost.
fn reconnect(place: &Place, is_stopped: &dyn Fn() -> bool) -> Result<Target, Failure> {
    let mut attempts = 0;
    loop {
        let connected = Target::connect(place).and_then(|mut target| {
            // Another server may have taken the address.
            target.keep_expired()?;
            Ok(target)
        });
        match connected {
            Ok(target) => return Ok(target),
            Err(_) if is_stopped() => return Err(Failure::Stopped),
            Err(error) if attempts >= RETRIES_MAX => {
                return Err(error.context("the target was lost").into());
            }
            Err(_) => std::thread::sleep(RETRY),
        }
        attempts += 1;
    }
}

fn source_failure(error: anyhow::Error) -> Failure {
    error.downcast::<std::io::Error>().map_or_else(Failure::Final, Failure::Source)
}
