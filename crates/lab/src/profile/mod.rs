//! Profiles of running processes: samples of every thread's stack at regular intervals of its
//! processor time, as a flame graph, as folded stacks, and as a table.
//!
//! The kernel takes the samples (software event `cpu-clock`: works in virtual machines without
//! hardware counters). Known weaknesses: callers are found by frame pointers only, so a program
//! without them shows only its innermost functions; and time with interrupts disabled is attributed
//! to the instruction that enables them again.

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

pub(crate) use cell::{CellProfile, record_cell};
pub(crate) use command::SUBCOMMAND;
pub(crate) use graph::{Labels, difference, flame_graph};
pub(crate) use sampler::Place;
pub(crate) use shares::{Change, Share, changes, shares};

/// Sampling parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Samples per second of each thread's processor time. Not a round number by default, to avoid
    /// synchronizing with timers.
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
pub(crate) struct Profile {
    /// Number of samples of each stack. A stack consists of its functions from the outermost on,
    /// joined by `;`, after the name of its thread without trailing digits, so that the threads of
    /// a pool are combined. Functions of the kernel end with `_[k]`, inlined ones with `_[i]`.
    pub stacks: BTreeMap<String, u64>,
    pub samples: u64,
    /// Samples that were dropped because a buffer was full. If whole cores are sampled, this
    /// includes samples of other processes.
    pub lost: u64,
    /// Processor time of the sampled threads in this time.
    pub cpu_ns: u64,
    pub elapsed_ns: u64,
    pub threads: usize,
    /// Limitations of the profile: parts that could not be sampled, unresolved names.
    pub notes: Vec<String>,
}

/// Error of a profile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    #[error("process {pid} does not exist")]
    NoProcess { pid: u32 },
    #[error("process {pid} ended before a sample was taken")]
    Ended { pid: u32 },
    #[error("process {pid} has no thread named {wanted}; it has {names}")]
    NoThread { pid: u32, wanted: String, names: String },
    #[error(
        "cannot profile process {pid}: this requires the process's owner or root, with \
         /proc/sys/kernel/perf_event_paranoid at 2 or less (it is {paranoid})"
    )]
    Forbidden { pid: u32, paranoid: String },
    #[error(
        "the kernel does not support {frequency} samples per second; \
         /proc/sys/kernel/perf_event_max_sample_rate is {frequency_max}"
    )]
    TooOften { frequency: u64, frequency_max: String },
    #[error("this kernel does not support perf events")]
    Unsupported,
    #[error(
        "could not map the sample buffer of {place}; for other users than root the limit is \
         /proc/sys/kernel/perf_event_mlock_kb"
    )]
    Map { place: Place, source: io::Error },
    #[error("sample {place}")]
    Sample { place: Place, source: io::Error },
    #[error("read {path}")]
    Read { path: String, source: io::Error },
    #[error("malformed sample from the kernel: {reason}")]
    Malformed { reason: String },
}

/// Samples process `pid` for `duration`, or until it exits. Blocks for this time; takes well below
/// 1 % of a core at 999 samples per second, and memory for at most [`sampler::STACKS_MAX`] distinct
/// stacks.
pub(crate) fn record(
    pid: u32,
    duration: Duration,
    options: &Options,
) -> Result<Profile, ProfileError> {
    let mut symbols = symbols::Symbols::of(pid)?;
    let recording = sampler::record(pid, duration, options)?;
    symbols.refresh(pid);
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

/// Returns the name of a thread without trailing digits.
fn pool(thread: &str) -> &str {
    let name = thread.trim_end_matches(|last: char| last.is_ascii_digit());
    let name = name.trim_end_matches(['-', '_', '.', ':', '#', ' ']);
    if name.is_empty() { thread } else { name }
}

impl Profile {
    /// Formats one line per stack: its functions, a space, its samples. Other tools read this
    /// format too.
    pub(crate) fn folded(&self) -> String {
        let mut text = String::new();
        for (stack, count) in &self.stacks {
            let _ = writeln!(text, "{stack} {count}"); // writing to a String cannot fail
        }
        text
    }

    /// Formats the number of samples and their duration in one line.
    pub(crate) fn summary(&self) -> String {
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

#[allow(clippy::cast_precision_loss)] // for display
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
