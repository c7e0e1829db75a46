//! The kernel's samples of one process: one event and one ring buffer per thread.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use rustix::io::Errno;

use super::{Options, ProfileError};

/// How often new threads are looked for.
pub(super) const RESCAN_MS: u64 = 100;
/// Different stacks that are kept; samples of further ones are counted as lost. A server has some
/// thousands.
pub(super) const STACKS_MAX: usize = 1 << 18;
/// Ring buffer of one thread. Read so often that it is at most a quarter full.
const RING_BYTES: usize = 64 << 10;
/// A sample is its header and at most 127 addresses (`perf_event_max_stack`) of 8 bytes, with a few
/// marks between them.
const SAMPLE_BYTES_MAX: usize = 1_100;

/// An address at which a processor was: code of the kernel or of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Address {
    Kernel(u64),
    User(u64),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stack {
    /// Position in [`Recording::threads`].
    pub(super) thread: usize,
    /// Innermost first.
    pub(super) addresses: Vec<Address>,
}

#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) stacks: BTreeMap<Stack, u64>,
    /// Names.
    pub(super) threads: Vec<String>,
    pub(super) lost: u64,
    pub(super) cpu_ns: u64,
    pub(super) elapsed_ns: u64,
    pub(super) notes: Vec<String>,
}

struct Thread {
    id: i32,
    name: String,
    sampler: Sampler,
}

struct Recorder<'a> {
    pid: u32,
    options: &'a Options,
    /// Whether the kernel's own code may be sampled; known after the first thread.
    kernel: bool,
    threads: Vec<Thread>,
    stacks: BTreeMap<Stack, u64>,
    lost: u64,
}

/// Samples until `duration` is over or the process has ended.
pub(super) fn record(
    pid: u32,
    duration: Duration,
    options: &Options,
) -> Result<Recording, ProfileError> {
    let mut recorder = Recorder {
        pid,
        options,
        kernel: true,
        threads: Vec::new(),
        stacks: BTreeMap::new(),
        lost: 0,
    };
    recorder.scan()?;
    if recorder.threads.is_empty() {
        return Err(recorder.nothing_to_sample());
    }
    let started = Instant::now();
    let step = drain_interval(options.frequency);
    let mut scanned = started;
    let mut ended = false;
    while !ended && started.elapsed() < duration {
        thread::sleep(step.min(duration.saturating_sub(started.elapsed())));
        recorder.drain()?;
        if scanned.elapsed() >= Duration::from_millis(RESCAN_MS) {
            ended = !recorder.scan()?;
            scanned = Instant::now();
        }
    }
    recorder.finish(started.elapsed(), ended)
}

/// So short that a thread fills at most a quarter of its buffer.
fn drain_interval(frequency: u64) -> Duration {
    let samples = u64::try_from(RING_BYTES / 4 / SAMPLE_BYTES_MAX).expect("a few");
    Duration::from_nanos(samples * 1_000_000_000 / frequency.max(1))
        .min(Duration::from_millis(RESCAN_MS))
}

impl Recorder<'_> {
    /// Begins to sample threads that are new. False: the process has ended.
    fn scan(&mut self) -> Result<bool, ProfileError> {
        let Some(ids) = thread_ids(self.pid)? else { return Ok(false) };
        for id in &ids {
            if self.threads.iter().any(|thread| thread.id == *id) {
                continue;
            }
            let Some(name) = thread_name(self.pid, *id) else { continue };
            if self.options.thread.as_ref().is_some_and(|wanted| *wanted != name) {
                continue;
            }
            if let Some(sampler) = self.open(*id)? {
                self.threads.push(Thread { id: *id, name, sampler });
            }
        }
        Ok(ids.len() > 1 || !is_zombie(self.pid))
    }

    /// None: the thread has ended meanwhile.
    fn open(&mut self, id: i32) -> Result<Option<Sampler>, ProfileError> {
        let mut builder = Builder::new(Software::CPU_CLOCK);
        builder.observe_pid(id).any_cpu().exclude_kernel(!self.kernel);
        builder.sample(SampleFlag::CALLCHAIN).sample_frequency(self.options.frequency);
        let counter = match builder.build() {
            Ok(counter) => counter,
            Err(error) => return self.open_otherwise(id, error),
        };
        let mut sampler = counter
            .sampled(RING_BYTES)
            .map_err(|source| ProfileError::Map { thread: id, source })?;
        match sampler.enable() {
            Ok(()) => Ok(Some(sampler)),
            Err(source) => Err(ProfileError::Sample { thread: id, source }),
        }
    }

    fn open_otherwise(
        &mut self,
        id: i32,
        error: io::Error,
    ) -> Result<Option<Sampler>, ProfileError> {
        match Errno::from_io_error(&error) {
            Some(Errno::SRCH) => Ok(None),
            Some(Errno::ACCESS | Errno::PERM) if self.kernel => {
                self.kernel = false;
                self.open(id)
            }
            Some(Errno::ACCESS | Errno::PERM) => Err(ProfileError::Forbidden {
                pid: self.pid,
                paranoid: kernel_setting("perf_event_paranoid"),
            }),
            Some(Errno::INVAL) => Err(ProfileError::TooOften {
                frequency: self.options.frequency,
                frequency_max: kernel_setting("perf_event_max_sample_rate"),
            }),
            Some(Errno::NOSYS | Errno::NOENT | Errno::OPNOTSUPP) => Err(ProfileError::Unsupported),
            _ => Err(ProfileError::Sample { thread: id, source: error }),
        }
    }

    fn nothing_to_sample(&self) -> ProfileError {
        let pid = self.pid;
        let Some(wanted) = self.options.thread.clone() else { return ProfileError::Ended { pid } };
        let ids = thread_ids(pid).ok().flatten().unwrap_or_default();
        let mut names: Vec<_> = ids.iter().filter_map(|id| thread_name(pid, *id)).collect();
        names.sort();
        names.dedup();
        ProfileError::NoThread { pid, wanted, names: names.join(", ") }
    }

    fn drain(&mut self) -> Result<(), ProfileError> {
        for (index, thread) in self.threads.iter_mut().enumerate() {
            while let Some(record) = thread.sampler.next_record() {
                let record = record
                    .parse_record()
                    .map_err(|error| ProfileError::Malformed { reason: error.to_string() })?;
                match record {
                    Record::Sample(sample) => {
                        let addresses = addresses(sample.callchain().unwrap_or_default());
                        let stack = Stack { thread: index, addresses };
                        if self.stacks.len() < STACKS_MAX || self.stacks.contains_key(&stack) {
                            *self.stacks.entry(stack).or_default() += 1;
                        } else {
                            self.lost += 1;
                        }
                    }
                    Record::Lost(lost) => self.lost += lost.lost,
                    Record::LostSamples(lost) => self.lost += lost.lost,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn finish(mut self, elapsed: Duration, ended: bool) -> Result<Recording, ProfileError> {
        let mut cpu_ns = 0;
        for thread in &mut self.threads {
            let failed = |source| ProfileError::Sample { thread: thread.id, source };
            thread.sampler.disable().map_err(failed)?;
            cpu_ns += thread.sampler.read().map_err(failed)?;
            // A thread is found before it has given itself a name.
            if let Some(name) = thread_name(self.pid, thread.id) {
                thread.name = name;
            }
        }
        self.drain()?;
        if ended && self.stacks.is_empty() {
            return Err(ProfileError::Ended { pid: self.pid });
        }
        let mut notes = Vec::new();
        if ended {
            notes.push(format!("the process ended after {:.1} s", elapsed.as_secs_f64()));
        }
        if !self.kernel {
            notes.push("this user may not see the kernel's part".to_owned());
        }
        Ok(Recording {
            stacks: self.stacks,
            threads: self.threads.into_iter().map(|thread| thread.name).collect(),
            lost: self.lost,
            cpu_ns,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            notes,
        })
    }
}

// Source: linux/perf_event.h, enum perf_callchain_context: what follows is of the kernel, of the
// program; anything from the last on is such a mark and no address.
const CONTEXT_KERNEL: u64 = u64::MAX - 127;
const CONTEXT_USER: u64 = u64::MAX - 511;
const CONTEXT_FIRST: u64 = u64::MAX - 4094;

/// The addresses of a call chain. All but the innermost of each side are return addresses: one
/// less lies within the call.
fn addresses(chain: &[u64]) -> Vec<Address> {
    let mut addresses = Vec::with_capacity(chain.len());
    let mut side: Option<fn(u64) -> Address> = None;
    let mut innermost = true;
    for word in chain {
        if *word >= CONTEXT_FIRST {
            side = match *word {
                CONTEXT_KERNEL => Some(Address::Kernel),
                CONTEXT_USER => Some(Address::User),
                _ => None, // of a guest or a hypervisor
            };
            innermost = true;
            continue;
        }
        let Some(side) = side else { continue };
        addresses.push(side(if innermost { *word } else { word.saturating_sub(1) }));
        innermost = false;
    }
    addresses
}

/// None: the process has ended.
fn thread_ids(pid: u32) -> Result<Option<Vec<i32>>, ProfileError> {
    let path = format!("/proc/{pid}/task");
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ProfileError::Read { path, source }),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(Some(names.filter_map(|name| name.parse().ok()).collect()))
}

/// None: the thread has ended.
fn thread_name(pid: u32, id: i32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{id}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Ended, but its parent has not asked for its exit code yet.
fn is_zombie(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The name, in parentheses, may hold anything.
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X']))
}

pub(super) fn kernel_setting(name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    text.map_or_else(|_| "unknown".to_owned(), |text| text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_found_at_their_call_and_marks_are_no_addresses() {
        let chain = [CONTEXT_KERNEL, 100, 200, CONTEXT_USER, 300, 400, u64::MAX - 2047, 500];
        assert_eq!(
            addresses(&chain),
            [Address::Kernel(100), Address::Kernel(199), Address::User(300), Address::User(399)]
        );
        assert_eq!(addresses(&[]), []);
    }

    #[test]
    fn buffers_are_read_before_they_are_full() {
        for frequency in [1, 99, 999, 4_999, 100_000] {
            let interval_ns = drain_interval(frequency).as_nanos();
            let samples = interval_ns * u128::from(frequency) / 1_000_000_000;
            assert!(samples * SAMPLE_BYTES_MAX as u128 <= RING_BYTES as u128 / 4);
            assert!(interval_ns > 0);
        }
    }
}
