//! The generator's process: a specification in, events out.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{LoadEvent, LoadSpec};
use crate::subject::{ending_with_us, spawn_pinned, stop};

/// A generator reports every window; one that is silent for longer hangs. Opening many connections
/// is its longest silent operation.
const SILENCE_MAX: Duration = Duration::from_mins(1);
/// Polling interval of the stop flag.
const STOP_POLL: Duration = Duration::from_millis(50);
/// A report with its histograms has at most a few hundred KiB.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of unread events; beyond it the generator's reports wait, not its load.
const EVENTS_MAX: usize = 1_024;

/// Reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    #[error("could not start the generator: {0}")]
    NotStarted(std::io::Error),
    #[error("{0}")]
    Failed(String),
    #[error("malformed output of the generator: {0}")]
    Unexpected(String),
    #[error("the generator exited without a report")]
    Ended,
    #[error("the generator has been silent for {SILENCE_MAX:?}")]
    Silent,
    #[error("could not read process information: {0}")]
    System(#[from] std::io::Error),
    #[error(transparent)]
    Counters(#[from] crate::subject::SubjectError),
    #[error("stopped")]
    Stopped,
}

/// A running generator. The process is killed on drop.
#[derive(Debug)]
pub struct Generator {
    child: Child,
    events: Receiver<Result<LoadEvent, GeneratorError>>,
}

impl Generator {
    /// Starts `program generate` on the cores of the load, and sends it the specification.
    pub fn start(program: &Path, load: &LoadSpec) -> Result<Self, GeneratorError> {
        let words = ["generate".to_owned()];
        let mut command = ending_with_us(program, &words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            spawn_pinned(&mut command, &load.cpus).map_err(GeneratorError::NotStarted)?;
        let output = child.stdout.take().expect("it is piped");
        let (sender, events) = sync_channel(EVENTS_MAX);
        thread::spawn(move || {
            for event in read_events(output) {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        let text = serde_json::to_vec(load).expect("a specification is text and numbers");
        let mut input = child.stdin.take().expect("it is piped");
        let mut generator = Self { child, events };
        // A generator that exited immediately has reported the reason on its output.
        if input.write_all(&text).is_err() {
            drop(input);
            return Err(generator.exit_error());
        }
        Ok(generator)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next event; `Done` is the last.
    pub fn next(&mut self, stop: &AtomicBool) -> Result<LoadEvent, GeneratorError> {
        let deadline = Instant::now() + SILENCE_MAX;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(GeneratorError::Stopped);
            }
            match self.events.recv_timeout(STOP_POLL) {
                Ok(Ok(LoadEvent::Failed { reason })) => return Err(GeneratorError::Failed(reason)),
                Ok(event) => return event,
                Err(RecvTimeoutError::Disconnected) => return Err(GeneratorError::Ended),
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    return Err(GeneratorError::Silent);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn exit_error(&mut self) -> GeneratorError {
        match self.events.recv_timeout(SILENCE_MAX) {
            Ok(Ok(LoadEvent::Failed { reason })) => GeneratorError::Failed(reason),
            Ok(Err(error)) => error,
            _ => GeneratorError::Ended,
        }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Reads events line by line, until the output ends or is malformed.
fn read_events(output: ChildStdout) -> impl Iterator<Item = Result<LoadEvent, GeneratorError>> {
    let mut reader = BufReader::new(output);
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let mut line = String::new();
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        let event = match read {
            Ok(0) => return None,
            Ok(_) => serde_json::from_str(&line).map_err(|error| {
                let start: String = line.chars().take(200).collect();
                GeneratorError::Unexpected(format!("{error}: {start}"))
            }),
            Err(error) => Err(GeneratorError::System(error)),
        };
        is_over = event.is_err();
        Some(event)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Scratch, write_program};

    /// Returns the events of a program that is this shell script.
    fn events_of(script: &str) -> Vec<Result<LoadEvent, String>> {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let script = format!("#!/bin/sh\ncat >/dev/null\n{script}\n");
        let program = write_program(&scratch, "generator", &script);
        let load = crate::definition::Definition::parse(
            "name = \"a\"\ntitle = \"t\"\n[subject]\nkind = \"myriad\"\n",
            Path::new("a.toml"),
        );
        let load = load.unwrap().cells.remove(0).load;
        let mut generator = Generator::start(&program, &load).unwrap();
        let mut events = Vec::new();
        loop {
            let event = generator.next(&AtomicBool::new(false)).map_err(|error| error.to_string());
            let is_last = event.is_err();
            events.push(event);
            if is_last {
                return events;
            }
        }
    }

    #[test]
    fn events_are_lines() {
        let events = events_of(
            "echo '{\"event\":\"connected\"}'; echo '{\"event\":\"window\",\"operations\":7}'",
        );
        assert_eq!(
            events,
            [
                Ok(LoadEvent::Connected),
                Ok(LoadEvent::Window { operations: 7 }),
                Err("the generator exited without a report".to_owned())
            ]
        );
    }

    #[test]
    fn reasons_and_nonsense_are_passed_on() {
        let failed = events_of("echo '{\"event\":\"failed\",\"reason\":\"no server\"}'");
        assert_eq!(failed, [Err("no server".to_owned())]);
        let [Err(error)] = &events_of("echo hello; echo hello")[..] else { panic!("one") };
        assert!(error.starts_with("malformed output of the generator: "), "{error}");
        assert!(error.ends_with(": hello\n"), "{error}");
    }

    #[test]
    fn a_wish_to_stop_is_obeyed() {
        let load = crate::definition::Definition::parse(
            "name = \"a\"\ntitle = \"t\"\n[subject]\nkind = \"myriad\"\n",
            Path::new("a.toml"),
        );
        let load = load.unwrap().cells.remove(0).load;
        let cat = crate::subject::command::find_program("sleep").unwrap();
        // `sleep generate` exits immediately; the stop flag must take precedence.
        if let Ok(mut generator) = Generator::start(&cat, &load) {
            let error = generator.next(&AtomicBool::new(true)).unwrap_err();
            assert!(matches!(error, GeneratorError::Stopped), "{error}");
        }
    }
}
