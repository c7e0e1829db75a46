//! What is computed: the trait of a batch of tasks, and the tasks that come with the program.

mod exercise;
mod files;
mod input;
mod kernel;
mod power;
mod spec;

use std::fmt::{self, Debug};
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use exercise::{Codec, Exercise, INPUT_BYTES, OUTPUT_BYTES};
pub use files::{FILES_MAX, FileSums};
pub use input::Inputs;
pub use kernel::{Calibration, Kernel};
pub use spec::{SpecError, TaskSpec};

pub(crate) use exercise::is_chosen;

/// Tasks of one batch.
pub const BATCH_MAX: u32 = 1 << 20;

/// All that defines the tasks of a stream: whoever knows it can compute each input again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub task: String,
    pub seed: u64,
    pub batch: u32,
}

impl Plan {
    /// Whether a peer that sends it can be served.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return Err(format!("batches of {} tasks: 1 to {BATCH_MAX} are possible", self.batch));
        }
        Ok(())
    }

    /// Whether the same id means the same task in both, however they are cut into batches.
    pub fn has_same_tasks(&self, other: &Self) -> bool {
        self.task == other.task && self.seed == other.seed
    }
}

/// Tasks with consecutive ids: what one frame carries. Never empty, and never past the last id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub first: u64,
    pub count: u32,
}

impl Ids {
    /// The first id that does not belong to it.
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

/// Why a batch cannot be computed or is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TaskError {
    #[error("{bytes} bytes are not {count} records")]
    Shape { count: u32, bytes: usize },
    #[error("task {id} is not what was generated for it")]
    Input { id: u64 },
    #[error("task {id}: {reason}")]
    Failed { id: u64, reason: String },
}

/// A task that is done in batches by whoever has time: the seam between the pipeline and its use.
///
/// All of it must depend on the id alone, and on what the task was made with: a batch is generated
/// again when an executor dies with it, computed twice when an answer is late, and checked by a
/// party that saw neither. One value serves all threads of a process.
pub trait BatchTask: Send + Sync + Debug {
    /// How many tasks there are; `None`: as many as are asked for.
    fn total(&self) -> Option<u64> {
        None
    }

    /// Most bytes of one task on the way to an executor.
    fn input_bytes_max(&self) -> usize;

    /// Most bytes of one task's result.
    fn output_bytes_max(&self) -> usize;

    /// Writes the inputs of `ids` into `inputs`, which has room for them all, and returns how many
    /// bytes it used. What was in `inputs` before means nothing.
    fn generate(&self, ids: Ids, inputs: &mut [u8]) -> Result<usize, TaskError>;

    /// Computes a batch: `inputs` is what [`BatchTask::generate`] wrote. Returns the bytes used.
    fn run(&self, ids: Ids, inputs: &[u8], outputs: &mut [u8]) -> Result<usize, TaskError>;

    /// Checks the form of a batch of results, and that they belong to these ids and their inputs.
    /// Returns the sum (wrapping) of a 64-bit hash of each record, id included: equal for the same
    /// results, however they were cut into batches and in whatever order they came.
    fn inspect(&self, ids: Ids, outputs: &[u8]) -> Result<u64, TaskError>;

    /// Where the record of the `index`-th task is in a batch that passed [`BatchTask::inspect`].
    fn record(&self, outputs: &[u8], index: u32) -> Option<Range<usize>>;

    /// Computes one record again, by other code than [`BatchTask::run`] where there is any, and
    /// says whether it is right.
    fn verify(&self, record: &[u8]) -> Result<bool, TaskError>;

    /// A record as a line of text, without its end.
    fn describe(&self, record: &[u8]) -> String;
}

/// Makes the task that a plan names: how a program says which tasks it knows.
#[derive(Clone)]
pub struct Maker(Arc<Make>);

type Make = dyn Fn(&Plan) -> Result<Arc<dyn BatchTask>> + Send + Sync;

impl Maker {
    pub fn new<M>(make: M) -> Self
    where
        M: Fn(&Plan) -> Result<Arc<dyn BatchTask>> + Send + Sync + 'static,
    {
        Self(Arc::new(make))
    }

    /// The tasks that come with the program.
    pub fn built_in(kernel: Kernel) -> Self {
        Self::new(move |plan| match plan.task.parse()? {
            TaskSpec::Exercise(codec) => Ok(Arc::new(Exercise::new(codec, plan.seed, kernel))),
            TaskSpec::Files(dir) => {
                let files = FileSums::list(dir.as_ref())?;
                if files.fingerprint() != plan.seed {
                    bail!("{dir} has other files here than the run began with");
                }
                Ok(Arc::new(files))
            }
        })
    }

    /// Errors: this program has no such task, or it cannot be made here.
    pub fn make(&self, plan: &Plan) -> Result<Arc<dyn BatchTask>> {
        (self.0)(plan)
    }
}

impl Debug for Maker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Maker")
    }
}
