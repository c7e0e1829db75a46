//! Where the processor time of a running process goes: a sample of every thread's stack at even
//! steps of its processor time, as a flame graph, as folded stacks, and as a table.
//!
//! The kernel takes the samples (software event `cpu-clock`: works in virtual machines, which have
//! no hardware counters). Known weaknesses: a caller is found by frame pointers only, so a program
//! without them shows its innermost functions and not who called them; and time in which the kernel
//! has interrupts switched off is put down to the instruction that switches them on again.

mod cell;
mod command;
mod graph;
mod sampler;
mod shares;
mod symbols;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

pub use cell::{CellProfile, record_cell};
pub(crate) use command::SUBCOMMAND;
pub use graph::{GraphError, Labels, difference, flame_graph};
pub use sampler::Place;
pub use shares::{Change, Share, changes, shares};

/// What is sampled, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Samples per second of each thread's processor time. Not a round number by default, so that
    /// it does not walk in step with timers.
    pub frequency: u64,
    /// Only threads of this name.
    pub thread: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { frequency: 999, thread: None }
    }
}

/// The samples of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// How often each stack was found. A stack is its functions from the outermost on, joined by
    /// `;`, beneath the name of its thread without the number at its end: what the threads of a
    /// pool do is added up. Functions of the kernel end with `_[k]`, inlined ones with `_[i]`.
    pub stacks: BTreeMap<String, u64>,
    pub samples: u64,
    /// Samples that were taken, but not kept: a buffer was full. Where whole cores are sampled,
    /// other processes' samples are among them.
    pub lost: u64,
    /// Processor time of the sampled threads meanwhile.
    pub cpu_ns: u64,
    pub elapsed_ns: u64,
    pub threads: usize,
    /// What a reader must know to judge it: parts that could not be seen, names not found.
    pub notes: Vec<String>,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("there is no process {pid}")]
    NoProcess { pid: u32 },
    #[error("process {pid} ended before a sample was taken")]
    Ended { pid: u32 },
    #[error("process {pid} has no thread called {wanted}; it has {names}")]
    NoThread { pid: u32, wanted: String, names: String },
    #[error(
        "this user may not profile process {pid}: do it as the process's owner or as root, with \
         /proc/sys/kernel/perf_event_paranoid at 2 or less (it is {paranoid})"
    )]
    Forbidden { pid: u32, paranoid: String },
    #[error(
        "the kernel does not take {frequency} samples per second; \
         /proc/sys/kernel/perf_event_max_sample_rate says {frequency_max}"
    )]
    TooOften { frequency: u64, frequency_max: String },
    #[error("this kernel has no perf events, so it cannot take samples")]
    Unsupported,
    #[error(
        "map the sample buffer of {place}; a user who is not root may map as much as \
         /proc/sys/kernel/perf_event_mlock_kb says"
    )]
    Map { place: Place, source: io::Error },
    #[error("sample {place}")]
    Sample { place: Place, source: io::Error },
    #[error("read {path}")]
    Read { path: String, source: io::Error },
    #[error("the kernel wrote a sample that makes no sense: {reason}")]
    Malformed { reason: String },
}

/// Samples process `pid` for `duration`, or until it ends. Blocks that long; needs well below 1 %
/// of a core at 999 samples per second, and memory for at most [`sampler::STACKS_MAX`] different
/// stacks.
pub fn record(pid: u32, duration: Duration, options: &Options) -> Result<Profile, ProfileError> {
    let mut symbols = symbols::Symbols::of(pid)?;
    let recording = sampler::record(pid, duration, options)?;
    symbols.look_again(pid);
    let mut notes = recording.notes;
    let names = symbols.names(recording.stacks.keys().flat_map(|stack| &stack.addresses));
    notes.extend(names.notes);
    let mut profile = Profile {
        stacks: BTreeMap::new(),
        samples: recording.stacks.values().sum(),
        lost: recording.lost,
        cpu_ns: recording.cpu_ns,
        elapsed_ns: recording.elapsed_ns,
        threads: recording.threads.len(),
        notes,
    };
    for (stack, count) in &recording.stacks {
        let mut line = pool(&recording.threads[&stack.thread]).replace(';', ",");
        for address in stack.addresses.iter().rev() {
            for function in &names.functions[address] {
                line.push(';');
                line.push_str(function);
            }
        }
        *profile.stacks.entry(line).or_default() += count;
    }
    Ok(profile)
}

/// The name of a thread without the number at its end.
fn pool(thread: &str) -> &str {
    let name = thread.trim_end_matches(|last: char| last.is_ascii_digit());
    let name = name.trim_end_matches(['-', '_', '.', ':', '#', ' ']);
    if name.is_empty() { thread } else { name }
}

impl Profile {
    /// One line per stack: its functions, a space, its samples. Other tools read this, too.
    pub fn folded(&self) -> String {
        let mut text = String::new();
        for (stack, count) in &self.stacks {
            let _ = writeln!(text, "{stack} {count}"); // a String takes all
        }
        text
    }

    /// What it was made of, in one line.
    pub fn summary(&self) -> String {
        let mut text = format!(
            "{} samples of {:.2} s processor time in {:.2} s, {} threads, {} samples lost",
            self.samples,
            seconds(self.cpu_ns),
            seconds(self.elapsed_ns),
            self.threads,
            self.lost
        );
        for note in &self.notes {
            text.push_str("; ");
            text.push_str(note);
        }
        text
    }
}

#[allow(clippy::cast_precision_loss)] // for people to read
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
