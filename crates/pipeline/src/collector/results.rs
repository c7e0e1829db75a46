//! Writes results as lines of a file, in order of arrival or of their ids, and failed items as lines
//! of another.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::hex::hex;
use serde::Serialize;

use crate::collector::waiting::{MEMORY_BYTES_MAX, Waiting};
use crate::task::{BatchTask, DeadLetter, Ids, line_number};

options::choice! {
    /// What to do with a file of results that has content, unless the log names it.
    Existing {
        Refuse = "refuse",
        Replace = "replace",
    }
}

options::choice! {
    /// Order in which results leave the collector.
    Order {
        /// Order of arrival.
        None = "none",
        /// Order of ids: a batch waits until all earlier ones have arrived.
        Input = "input",
    }
}

/// Destination of a collector's results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultsOptions {
    pub path: Option<PathBuf>,
    /// File of items whose command failed, as JSON lines.
    pub dead_letters: Option<PathBuf>,
    pub order: Order,
    pub existing: Existing,
}

impl ResultsOptions {
    /// Fails if a file has content that this run would delete: it is not one of `known`, to which the
    /// runs of the log have written.
    pub(crate) fn check_existing(&self, known: &BTreeSet<PathBuf>) -> Result<()> {
        for path in [&self.path, &self.dead_letters].into_iter().flatten() {
            // A file that does not exist, or a pipe, has nothing to lose.
            let has_content = fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() != 0);
            if has_content
                && self.existing == Existing::Refuse
                && !known.contains(&canonical(path)?)
            {
                bail!(
                    "{} has content: to continue its run, use the --log of that run; to replace \
                     it, --existing replace",
                    path.display()
                );
            }
        }
        Ok(())
    }
}

/// Returns the path of an existing file, without symbolic links.
fn canonical(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).with_context(|| format!("could not resolve {}", path.display()))
}

#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Output {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file) })
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush().with_context(|| format!("write {}", self.path.display()))
    }
}

/// A line of the file of dead letters.
#[derive(Debug, Serialize)]
struct DeadLetterLine<'a> {
    line: u64,
    item: Cow<'a, str>,
    /// All bytes of an item that is not text, as hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    item_hex: Option<String>,
    attempts: u32,
    reason: Cow<'a, str>,
}

impl<'a> DeadLetterLine<'a> {
    fn new(letter: &DeadLetter<'a>) -> Self {
        let item = String::from_utf8_lossy(letter.item);
        let item_hex = matches!(item, Cow::Owned(_)).then(|| hex(letter.item));
        let reason = String::from_utf8_lossy(letter.reason);
        Self { line: line_number(letter.id), item, item_hex, attempts: letter.attempts, reason }
    }
}

/// The files of results of one stream.
#[derive(Debug)]
pub struct Results {
    lines: Option<Output>,
    dead_letters: Option<Output>,
    order: Order,
    /// In order of input: the first id that has not been written, and the batches that wait for it.
    next_id: u64,
    waiting: Waiting,
}

impl Results {
    /// Creates empty files. A collector that was restarted writes all results of its log again.
    pub fn create(options: &ResultsOptions) -> Result<Self> {
        let path = options.path.as_deref().or(options.dead_letters.as_deref());
        let folder = path.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
        Ok(Self {
            lines: options.path.as_deref().map(Output::create).transpose()?,
            dead_letters: options.dead_letters.as_deref().map(Output::create).transpose()?,
            order: options.order,
            next_id: 0,
            waiting: Waiting::new(folder.unwrap_or(Path::new(".")), MEMORY_BYTES_MAX),
        })
    }

    /// Returns the files on a disk, which outlive the run.
    pub(crate) fn files(&self) -> Result<BTreeSet<PathBuf>> {
        let outputs = [&self.lines, &self.dead_letters].into_iter().flatten();
        let files = outputs.filter(|it| fs::metadata(&it.path).is_ok_and(|found| found.is_file()));
        files.map(|it| canonical(&it.path)).collect()
    }

    /// Writes an accepted batch; each batch is passed once.
    pub fn take(&mut self, task: &dyn BatchTask, ids: Ids, outputs: &[u8]) -> Result<()> {
        if self.order == Order::Input && ids.first > self.next_id {
            return self.waiting.add(ids, outputs);
        }
        self.write(task, ids, outputs)?;
        while let Some((ids, outputs)) = self.waiting.remove(self.next_id)? {
            self.write(task, ids, &outputs)?;
        }
        Ok(())
    }

    fn write(&mut self, task: &dyn BatchTask, ids: Ids, outputs: &[u8]) -> Result<()> {
        for index in 0..ids.count {
            let range = task.record(outputs, index).context("incomplete batch")?;
            self.write_record(task, &outputs[range])?;
        }
        self.next_id = self.next_id.max(ids.end());
        Ok(())
    }

    fn write_record(&mut self, task: &dyn BatchTask, record: &[u8]) -> Result<()> {
        let letter = task.dead_letter(record);
        let output = if letter.is_some() { &mut self.dead_letters } else { &mut self.lines };
        let Some(output) = output else { return Ok(()) };
        let written = match letter {
            None => task.write(record, &mut output.file),
            Some(letter) => {
                let line = serde_json::to_string(&DeadLetterLine::new(&letter))?;
                writeln!(output.file, "{line}")
            }
        };
        written.with_context(|| format!("write {}", output.path.display()))
    }

    /// Passes all lines to the kernel.
    pub fn flush(&mut self) -> Result<()> {
        [&mut self.lines, &mut self.dead_letters].into_iter().flatten().try_for_each(Output::flush)
    }

    /// Writes the batches that wait for an earlier one, which a stopped run did not compute and its
    /// account names, and flushes all lines. If the run continues, that one is written at its arrival.
    pub fn finish(&mut self, task: &dyn BatchTask) -> Result<()> {
        while let Some((ids, outputs)) = self.waiting.remove_first()? {
            self.write(task, ids, &outputs)?;
        }
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Codec, Exercise, Kernel, OUTPUT_BYTES};

    fn to(path: &Path, order: Order) -> ResultsOptions {
        let existing = Existing::Refuse;
        ResultsOptions { path: Some(path.to_owned()), dead_letters: None, order, existing }
    }

    /// `None`: the end of the run, which continues afterwards.
    fn check(order: Order, batches: &[Option<(u64, u32)>], expected: &[u64]) {
        let name = format!("pipeline-results-{order:?}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut results = Results::create(&to(&path, order)).unwrap();
        let task = Exercise::new(Codec::Nop, 1, Kernel::Serial);
        for batch in batches {
            let Some((first, count)) = batch else {
                results.finish(&task).unwrap();
                continue;
            };
            let ids = Ids { first: *first, count: *count };
            let (mut inputs, mut outputs) =
                (vec![0; ids.len() * 12], vec![0; ids.len() * OUTPUT_BYTES]);
            task.generate(ids, &mut inputs).unwrap();
            task.run(ids, &inputs, &mut outputs).unwrap();
            results.take(&task, ids, &outputs).unwrap();
        }
        results.finish(&task).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let id = |line: &str| line.split(' ').next().unwrap().parse::<u64>().unwrap();
        assert_eq!(text.lines().map(id).collect::<Vec<_>>(), expected);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn lines_are_in_order() {
        let batches = [(2, 2), (5, 1), (0, 2), (4, 1)].map(Some);
        check(Order::None, &batches, &[2, 3, 5, 0, 1, 4]);
        check(Order::Input, &batches, &[0, 1, 2, 3, 4, 5]);
        let stopped = [(9, 1), (5, 2), (0, 1), (3, 1)].map(Some);
        check(Order::Input, &stopped, &[0, 3, 5, 6, 9]);
        let continued = [&stopped[..], &[None], &[(1, 2), (10, 1), (12, 1), (4, 1)].map(Some)];
        check(Order::Input, &continued.concat(), &[0, 3, 5, 6, 9, 1, 2, 10, 4, 12]);
    }

    #[test]
    fn dead_letters_are_json_lines() {
        let letter = DeadLetter { id: 5, item: b"a\"b", attempts: 3, reason: b"no answer" };
        let text = serde_json::to_string(&DeadLetterLine::new(&letter)).unwrap();
        assert_eq!(text, r#"{"line":6,"item":"a\"b","attempts":3,"reason":"no answer"}"#);
        let bytes = DeadLetter { item: b"a\xff", ..letter };
        let text = serde_json::to_string(&DeadLetterLine::new(&bytes)).unwrap();
        assert!(text.contains("\"item\":\"a\u{fffd}\",\"item_hex\":\"61ff\""), "{text}");
    }
}
