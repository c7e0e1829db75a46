//! Writes results as lines of a file, in order of arrival or of their ids.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::intervals::Intervals;
use crate::task::{BatchTask, Ids};

/// Limit for results that wait for an earlier one. A generator's window is a further limit.
const WAITING_BYTES_MAX: usize = 1 << 30;

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
    pub path: PathBuf,
    pub order: Order,
}

/// The result file of one stream.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    file: BufWriter<File>,
    order: Order,
    /// In order of input: the first id that has not been written, and the batches that wait for it.
    next_id: u64,
    /// Ids collected by an earlier collector process.
    collected: Intervals,
    waiting: BTreeMap<u64, (u32, Vec<u8>)>,
    waiting_bytes: usize,
}

impl Results {
    /// Opens the file. `collected` contains the ids that an earlier collector with this log
    /// collected; if it is not empty, the file is continued. Lines of results that were not durable
    /// when that collector died occur twice.
    pub fn open(path: &Path, order: Order, collected: &Intervals) -> Result<Self> {
        let mut options = OpenOptions::new();
        let is_new = collected.ranges().is_empty();
        options.create(true).write(true).truncate(is_new).append(!is_new);
        let file = options.open(path).with_context(|| format!("open {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            order,
            next_id: collected.contiguous_from(0),
            collected: collected.clone(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
        })
    }

    /// Writes an accepted batch; each batch is passed once.
    pub fn take(&mut self, task: &dyn BatchTask, ids: Ids, outputs: &[u8]) -> Result<()> {
        if self.order == Order::Input && ids.first != self.next_id {
            self.waiting_bytes += outputs.len();
            if self.waiting_bytes > WAITING_BYTES_MAX {
                bail!("too many results wait for those before id {}", ids.first);
            }
            self.waiting.insert(ids.first, (ids.count, outputs.to_vec()));
            return Ok(());
        }
        self.write(task, ids, outputs)?;
        while let Some((count, outputs)) = self.waiting.remove(&self.next_id) {
            self.waiting_bytes -= outputs.len();
            self.write(task, Ids { first: self.next_id, count }, &outputs)?;
        }
        Ok(())
    }

    fn write(&mut self, task: &dyn BatchTask, ids: Ids, outputs: &[u8]) -> Result<()> {
        for index in 0..ids.count {
            let range = task.record(outputs, index).context("incomplete batch")?;
            writeln!(self.file, "{}", task.describe(&outputs[range]))
                .with_context(|| format!("write {}", self.path.display()))?;
        }
        self.next_id = self.collected.contiguous_from(ids.end());
        Ok(())
    }

    /// Flushes all lines to the kernel. Fails if a batch is still waiting.
    pub fn finish(&mut self) -> Result<()> {
        if let Some(first) = self.waiting.keys().next() {
            bail!("results from id {} to {first} are missing", self.next_id);
        }
        self.file.flush().with_context(|| format!("write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Codec, Exercise, Kernel, OUTPUT_BYTES};

    fn check(order: Order, batches: &[(u64, u32)], expected: &[u64]) {
        let name = format!("pipeline-results-{order:?}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut results = Results::open(&path, order, &Intervals::default()).unwrap();
        let task = Exercise::new(Codec::Nop, 1, Kernel::Serial);
        for (first, count) in batches {
            let ids = Ids { first: *first, count: *count };
            let (mut inputs, mut outputs) =
                (vec![0; ids.len() * 12], vec![0; ids.len() * OUTPUT_BYTES]);
            task.generate(ids, &mut inputs).unwrap();
            task.run(ids, &inputs, &mut outputs).unwrap();
            results.take(&task, ids, &outputs).unwrap();
        }
        results.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let id = |line: &str| line.split(' ').next().unwrap().parse::<u64>().unwrap();
        assert_eq!(text.lines().map(id).collect::<Vec<_>>(), expected);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn lines_are_in_order() {
        let batches = [(2, 2), (5, 1), (0, 2), (4, 1)];
        check(Order::None, &batches, &[2, 3, 5, 0, 1, 4]);
        check(Order::Input, &batches, &[0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_second_collector_appends_the_missing_results() {
        let path = std::env::temp_dir().join(format!("pipeline-append-{}", std::process::id()));
        std::fs::write(&path, "first\n").unwrap();
        let collected = Intervals::from_ranges(vec![(0, 1), (2, 3)]).unwrap();
        let mut results = Results::open(&path, Order::Input, &collected).unwrap();
        let task = Exercise::new(Codec::Nop, 1, Kernel::Serial);
        for first in [3, 1] {
            results.take(&task, Ids { first, count: 1 }, &[0; OUTPUT_BYTES]).unwrap();
        }
        results.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("first\n"));
        assert_eq!(text.lines().count(), 3);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_gap_at_the_end_is_an_error() {
        let path = std::env::temp_dir().join(format!("pipeline-gap-{}", std::process::id()));
        let mut results = Results::open(&path, Order::Input, &Intervals::default()).unwrap();
        let task = Exercise::new(Codec::Nop, 1, Kernel::Serial);
        results.take(&task, Ids { first: 1, count: 1 }, &[0; OUTPUT_BYTES]).unwrap();
        assert!(results.finish().is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
