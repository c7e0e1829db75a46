//! A process that answers each line with a line, and is replaced when it fails to.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use crate::task::command::{Failure, Watch};
use crate::task::items::ITEM_BYTES_MAX;
use crate::task::process::Process;

/// Lines are copied in pieces of this size, at most as much as a pipe holds.
const WRITE_BYTES: usize = 64 << 10;
/// After its first answer a worker has this long to show that it writes more than one line each.
/// Until then it has one item only, so no answer can be taken for that of another item.
const PROBATION: Duration = Duration::from_millis(10);
/// Time for the exit of a worker whose output has ended.
const EXIT_WAIT: Duration = Duration::from_secs(1);
/// Exit statuses of a shell that cannot find or execute the command.
const CANNOT_EXECUTE: std::ops::RangeInclusive<i32> = 126..=127;

const EXTRA_LINE: &str =
    "the worker wrote a line that no item asked for; it must write exactly one line for each item";

#[derive(Debug)]
pub(super) struct LineWorker {
    process: Process,
    /// Output that is not processed, and its processed part.
    output: Vec<u8>,
    output_start: usize,
    has_answered: bool,
}

/// The input of a batch: the lines that have not been written.
struct Input<'a> {
    lines: VecDeque<&'a [u8]>,
    buffer: Vec<u8>,
    written: usize,
    /// Lines that are in the buffer or written.
    taken: usize,
    is_open: bool,
}

impl Input<'_> {
    /// Fills the buffer with lines; only one until the worker has answered.
    fn fill(&mut self, is_probation: bool) {
        if self.written < self.buffer.len() || (is_probation && self.taken > 0) {
            return;
        }
        self.buffer.clear();
        self.written = 0;
        while self.buffer.len() < WRITE_BYTES
            && let Some(line) = self.lines.pop_front()
        {
            self.buffer.extend_from_slice(line);
            self.buffer.push(b'\n');
            self.taken += 1;
            if is_probation {
                return;
            }
        }
    }

    fn wants_write(&self) -> bool {
        self.is_open && self.written < self.buffer.len()
    }
}

impl LineWorker {
    pub(super) fn start(command: &str) -> io::Result<Self> {
        let process = Process::start(command, None)?;
        Ok(Self { process, output: Vec::new(), output_start: 0, has_answered: false })
    }

    /// Whether the worker can take items. One that exited after all its answers is replaced.
    pub(super) fn is_ready(&mut self) -> Result<bool, Failure> {
        if self.process.read(&mut self.output)? == Some(0) {
            return Ok(false);
        }
        self.refuse_extra_output()?;
        Ok(true)
    }

    /// Sends lines and passes their answers on, in order. After a failure the worker must be
    /// dropped; the first line without an answer is the cause.
    pub(super) fn answer(
        &mut self,
        lines: &[&[u8]],
        watch: &Watch<'_>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let mut input = Input {
            lines: lines.iter().copied().collect(),
            buffer: Vec::with_capacity(WRITE_BYTES),
            written: 0,
            taken: 0,
            is_open: true,
        };
        let mut answered = 0;
        let mut last_answer = Instant::now();
        while answered < lines.len() {
            input.fill(!self.has_answered);
            let slice = watch.check(last_answer.elapsed()).map_err(|failure| self.hint(failure))?;
            let ready = self.process.wait_ready(input.wants_write(), slice)?;
            if ready.writes {
                let rest = &input.buffer[input.written..];
                let (count, is_open) = self.process.write(rest)?;
                input.written += count;
                input.is_open = is_open;
            }
            // What a worker has left behind may keep its output open.
            let has_exited = !ready.reads && !ready.writes && self.process.has_exited()?;
            if !ready.reads && !has_exited {
                continue;
            }
            let read = self.process.read(&mut self.output)?;
            let is_end = read == Some(0) || has_exited && read.is_none();
            while let Some(answer) = self.next_answer()? {
                if answered == input.taken {
                    return Err(Failure::Fatal(EXTRA_LINE.to_owned()));
                }
                take(&self.output[answer]);
                answered += 1;
                last_answer = Instant::now();
            }
            if !self.has_answered && answered > 0 {
                self.end_probation()?;
            }
            if answered == lines.len() {
                break;
            }
            if is_end {
                return Err(self.ended());
            }
            if !input.is_open && answered == input.taken {
                return Err(Failure::Item("the worker closed its standard input".to_owned()));
            }
        }
        self.refuse_extra_output()
    }

    fn end_probation(&mut self) -> Result<(), Failure> {
        self.refuse_extra_output()?;
        if self.process.wait_ready(false, PROBATION)?.reads {
            // The end of its output is handled with the next item.
            self.process.read(&mut self.output)?;
            self.refuse_extra_output()?;
        }
        self.has_answered = true;
        Ok(())
    }

    /// Returns the range of the next complete answer.
    fn next_answer(&mut self) -> Result<Option<std::ops::Range<usize>>, Failure> {
        let start = self.output_start;
        let found = self.output[start..].iter().position(|byte| *byte == b'\n');
        let length = found.unwrap_or(self.output.len() - start);
        if length > ITEM_BYTES_MAX {
            return Err(Failure::Item(format!("an answer of more than {ITEM_BYTES_MAX} bytes")));
        }
        if found.is_none() {
            self.output.drain(..start);
            self.output_start = 0;
            return Ok(None);
        }
        self.output_start = start + length + 1;
        Ok(Some(start..start + length))
    }

    fn refuse_extra_output(&self) -> Result<(), Failure> {
        if self.output.len() > self.output_start {
            return Err(Failure::Fatal(EXTRA_LINE.to_owned()));
        }
        Ok(())
    }

    /// Adds to a timeout what is known about its cause.
    fn hint(&self, failure: Failure) -> Failure {
        match (failure, self.output.len() - self.output_start) {
            (Failure::Item(reason), 0) if !self.has_answered => Failure::Item(format!(
                "{reason}; the worker may keep its output in a buffer (see stdbuf -oL)"
            )),
            (Failure::Item(reason), bytes @ 1..) => {
                Failure::Item(format!("{reason}, only {bytes} bytes without a line end"))
            }
            (failure, _) => failure,
        }
    }

    /// The output has ended before an answer.
    fn ended(&mut self) -> Failure {
        let middle = match self.output.len() - self.output_start {
            0 => "before its answer".to_owned(),
            bytes => format!("after {bytes} bytes without a line end"),
        };
        match self.process.exit_status(EXIT_WAIT) {
            Ok(Some(status)) if is_unusable(status) && !self.has_answered => Failure::Fatal(
                format!("the shell cannot execute the command: {status}; see its error output"),
            ),
            Ok(Some(status)) => Failure::Item(format!("the worker ended {middle}: {status}")),
            Ok(None) => Failure::Item(format!("the worker closed its standard output {middle}")),
            Err(error) => error.into(),
        }
    }

    /// Ends the worker in an orderly way. Fails if it has written more than its answers.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.output = self.process.finish(0)?;
        self.output_start = 0;
        self.refuse_extra_output()
    }
}

/// Whether the shell could not start the command.
pub(super) fn is_unusable(status: std::process::ExitStatus) -> bool {
    status.code().is_some_and(|code| CANNOT_EXECUTE.contains(&code))
}
