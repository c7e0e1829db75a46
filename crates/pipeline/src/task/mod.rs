//! The computation: the trait for batches of tasks, and the built-in tasks.

mod command;
mod exercise;
mod files;
mod input;
mod items;
mod kernel;
mod line_worker;
mod power;
mod process;
mod spec;

use std::fmt::{self, Debug};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use command::{COMMAND_BATCH_MAX, CommandLimits, CommandMode, Commands};
pub use exercise::{Codec, Exercise, INPUT_BYTES, OUTPUT_BYTES};
pub use files::{FILES_MAX, FileSums};
pub use input::Inputs;
pub use items::ITEM_BYTES_MAX;
pub use kernel::{Calibration, Kernel};
pub use spec::{SpecError, TaskSpec};

pub(crate) use exercise::is_chosen;
pub(crate) use items::append_item;

/// Maximum number of tasks in one batch.
pub const BATCH_MAX: u32 = 1 << 20;

/// Everything that defines the tasks of a stream: with it, every party can recompute each input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub task: String,
    pub seed: u64,
    pub batch: u32,
    /// Only for commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<CommandLimits>,
}

impl Plan {
    /// Checks that a peer with this plan can be served.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return Err(format!("batch of {} tasks is out of range: 1 to {BATCH_MAX}", self.batch));
        }
        Ok(())
    }

    /// Whether each id denotes the same task in both plans, regardless of the batch size.
    pub fn has_same_tasks(&self, other: &Self) -> bool {
        self.task == other.task && self.seed == other.seed
    }
}

/// Tasks with consecutive ids, as carried by one frame. Never empty, and never past the last id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub first: u64,
    pub count: u32,
}

impl Ids {
    /// Returns the last id plus one.
    pub fn end(self) -> u64 {
        self.first.saturating_add(u64::from(self.count))
    }

    pub fn iter(self) -> Range<u64> {
        self.first..self.end()
    }

    pub fn len(self) -> usize {
        usize::try_from(self.count).expect("32 bits fit")
    }

    pub fn is_empty(self) -> bool {
        self.count == 0
    }
}

/// How messages name tasks. Ids count from 0; people and their tools count lines from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskNames {
    Ids,
    Lines,
}

impl TaskNames {
    fn number(self, id: u64) -> u64 {
        match self {
            Self::Ids => id,
            Self::Lines => line_number(id),
        }
    }

    /// Names all tasks of a range, which is not empty.
    pub fn range(self, start: u64, end: u64) -> String {
        let (one, many) = match self {
            Self::Ids => ("id", "ids"),
            Self::Lines => ("line", "lines"),
        };
        match end.saturating_sub(1) {
            last if last == start => format!("{one} {}", self.number(start)),
            last => format!("{many} {} to {}", self.number(start), self.number(last)),
        }
    }

    /// Names these tasks.
    pub fn list(self, ids: &[u64]) -> String {
        if let [id] = ids {
            return self.range(*id, id.saturating_add(1));
        }
        let names: Vec<String> = ids.iter().map(|id| self.number(*id).to_string()).collect();
        let many = if self == Self::Ids { "ids" } else { "lines" };
        format!("{many} {}", names.join(", "))
    }
}

/// Returns the number of the line whose task has this id.
pub fn line_number(id: u64) -> u64 {
    id.saturating_add(1)
}

fn line_name(id: u64) -> String {
    TaskNames::Lines.range(id, id.saturating_add(1))
}

/// Reason why a batch cannot be computed, or is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TaskError {
    #[error("{bytes} bytes do not contain {count} records")]
    Shape { count: u32, bytes: usize },
    #[error("task {id} does not match its generated input")]
    Input { id: u64 },
    #[error("{}: {reason}", line_name(*.id))]
    Failed { id: u64, reason: String },
    #[error("at the end of the run: {reason}")]
    Ended { reason: String },
    /// The batch has no results, because its run is being stopped.
    #[error("the run was stopped")]
    Stopped,
}

/// An item that a command could not compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetter<'a> {
    pub id: u64,
    pub item: &'a [u8],
    pub attempts: u32,
    pub reason: &'a [u8],
}

/// A task that is computed in batches: the interface between the pipeline and its application.
///
/// All results must depend only on the id and on the task's parameters. A batch is generated again
/// when its executor dies, computed twice when a reply is late, and checked by a party that has
/// seen neither. All threads of a process share one value.
pub trait BatchTask: Send + Sync + Debug {
    /// Returns the number of tasks; `None` if it is unlimited.
    fn total(&self) -> Option<u64> {
        None
    }

    /// Maximum size of one task's input.
    fn input_bytes_max(&self) -> usize;

    /// Maximum size of one task's result.
    fn output_bytes_max(&self) -> usize;

    /// Writes the inputs of `ids` into `inputs`, which has space for all of them, and returns the
    /// number of bytes used. Must not depend on the previous content of `inputs`.
    fn generate(&self, ids: Ids, inputs: &mut [u8]) -> Result<usize, TaskError>;

    /// Computes a batch: `inputs` is what [`BatchTask::generate`] wrote. Returns the bytes used.
    fn run(&self, ids: Ids, inputs: &[u8], outputs: &mut [u8]) -> Result<usize, TaskError>;

    /// Checks that a batch of results is well formed and belongs to these ids and their inputs.
    /// Returns the wrapping sum of a 64-bit hash of each record, including its id. It is equal for
    /// equal results, regardless of batch boundaries and arrival order.
    fn inspect(&self, ids: Ids, outputs: &[u8]) -> Result<u64, TaskError>;

    /// Returns the range of the `index`-th record in a batch that passed [`BatchTask::inspect`].
    fn record(&self, outputs: &[u8], index: u32) -> Option<Range<usize>>;

    /// Recomputes one record, if possible with code independent of [`BatchTask::run`], and returns
    /// whether it is correct.
    fn verify(&self, record: &[u8]) -> Result<bool, TaskError>;

    /// Formats a record as a line of text, without the line terminator.
    fn describe(&self, record: &[u8]) -> String;

    /// Whether results can be computed again to verify them.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// Whether a task can execute anything and take any time. An executor must allow the first, and
    /// finds the size of batches by the second.
    fn runs_commands(&self) -> bool {
        false
    }

    /// Writes the result of a record that has one to the file of results.
    fn write(&self, record: &[u8], out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.describe(record))
    }

    /// Returns the item of a record that has no result.
    fn dead_letter<'a>(&self, _record: &'a [u8]) -> Option<DeadLetter<'a>> {
        None
    }

    /// Returns the ids without a result in a batch that passed [`BatchTask::inspect`].
    fn failed_ids(&self, _outputs: &[u8]) -> Vec<u64> {
        Vec::new()
    }

    /// Starts no further attempt to compute a task that can take any time: [`BatchTask::run`] ends
    /// with the attempt under way, and if a task then has no result, with [`TaskError::Stopped`].
    fn stop_attempts(&self) {}

    /// Called by a thread after its last batch.
    fn finish(&self) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Creates the task that a plan names. A program uses it to define the tasks that it supports.
#[derive(Clone)]
pub struct Maker {
    make: Arc<Make>,
    is_cancelled: Arc<AtomicBool>,
}

type Make = dyn Fn(&Plan) -> Result<Arc<dyn BatchTask>> + Send + Sync;

impl Maker {
    pub fn new<M>(make: M) -> Self
    where
        M: Fn(&Plan) -> Result<Arc<dyn BatchTask>> + Send + Sync + 'static,
    {
        Self { make: Arc::new(make), is_cancelled: Arc::new(AtomicBool::new(false)) }
    }

    /// The built-in tasks.
    pub fn built_in(kernel: Kernel) -> Self {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancel = Arc::clone(&is_cancelled);
        let make = move |plan: &Plan| -> Result<Arc<dyn BatchTask>> {
            match plan.task.parse()? {
                TaskSpec::Exercise(codec) => Ok(Arc::new(Exercise::new(codec, plan.seed, kernel))),
                TaskSpec::Files(dir) => {
                    let files = FileSums::list(dir.as_ref())?;
                    if files.fingerprint() != plan.seed {
                        bail!("{dir} contains different files from those at the start of the run");
                    }
                    Ok(Arc::new(files))
                }
                TaskSpec::Command(mode, command) => {
                    let limits = plan.limits.unwrap_or(CommandLimits::DEFAULT);
                    Ok(Arc::new(Commands::new(mode, &command, limits, Arc::clone(&cancel))))
                }
            }
        };
        Self { make: Arc::new(make), is_cancelled }
    }

    /// Fails if this program does not support the task, or cannot create it on this host.
    pub fn make(&self, plan: &Plan) -> Result<Arc<dyn BatchTask>> {
        (self.make)(plan)
    }

    /// Ends the commands of all tasks that this has made.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }
}

impl Debug for Maker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Maker")
    }
}
