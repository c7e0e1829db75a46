//! Kernel samples of one process.
//!
//! For root, one event per core samples everything that runs there, and only the samples of the
//! process are kept: this costs the process only the samples themselves. Otherwise there is one
//! event per thread. The kernel then sets and clears a timer at every context switch: a server that
//! sleeps between requests needed 1.6 times its processor time.

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

/// Interval at which new threads are detected.
pub(super) const RESCAN_MS: u64 = 250;
/// Maximum number of distinct stacks; further samples are counted as lost. A server has some
/// thousands.
pub(super) const STACKS_MAX: usize = 1 << 18;
/// Ring buffers of one core and of one thread. They are read so often that they are at most a
/// quarter full.
const CORE_RING_BYTES: usize = 256 << 10;
const THREAD_RING_BYTES: usize = 64 << 10;
/// A sample is a header and at most 127 addresses (`perf_event_max_stack`) of 8 bytes, with some
/// markers between them.
const SAMPLE_BYTES_MAX: usize = 1_100;
/// Denotes the process itself in place of a thread id.
const UNKNOWN: i32 = 0;

/// A sampled code address, in the kernel or in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Address {
    Kernel(u64),
    User(u64),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stack {
    /// A key of [`Recording::threads`].
    pub(super) thread: i32,
    /// Innermost first.
    pub(super) addresses: Vec<Address>,
}

#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) stacks: BTreeMap<Stack, u64>,
    /// Names by id.
    pub(super) threads: BTreeMap<i32, String>,
    pub(super) lost: u64,
    pub(super) cpu_ns: u64,
    pub(super) elapsed_ns: u64,
    pub(super) notes: Vec<String>,
}

/// The scope of a kernel event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Core(usize),
    Thread(i32),
}

impl Place {
    fn ring_bytes(self) -> usize {
        match self {
            Self::Core(_) => CORE_RING_BYTES,
            Self::Thread(_) => THREAD_RING_BYTES,
        }
    }

    /// So short that a buffer is at most a quarter full.
    fn drain_interval(self, frequency: u64) -> Duration {
        let samples = u64::try_from(self.ring_bytes() / 4 / SAMPLE_BYTES_MAX).expect("a few");
        Duration::from_nanos(samples * 1_000_000_000 / frequency.max(1))
            .min(Duration::from_millis(RESCAN_MS))
    }
}

struct Thread {
    name: String,
    /// Processor time at the first and the last observation.
    cpu_ns: (u64, u64),
}

struct Recorder {
    pid: u32,
    frequency: u64,
    samplers: Vec<(Place, Sampler)>,
    /// Whether kernel code may be sampled.
    kernel: bool,
    threads: BTreeMap<i32, Thread>,
    stacks: BTreeMap<Stack, u64>,
    lost: u64,
}

/// Samples until `duration` has elapsed or the process has exited.
pub(super) fn record(
    pid: u32,
    duration: Duration,
    options: &Options,
) -> Result<Recording, ProfileError> {
    let name = thread_name(pid, i32::try_from(pid).unwrap_or(UNKNOWN));
    let process = Thread { name: name.unwrap_or_default(), cpu_ns: (0, 0) };
    let mut recorder = Recorder {
        pid,
        frequency: options.frequency,
        samplers: Vec::new(),
        kernel: true,
        threads: BTreeMap::from([(UNKNOWN, process)]),
        stacks: BTreeMap::new(),
        lost: 0,
    };
    if !recorder.scan()? {
        return Err(ProfileError::Ended { pid });
    }
    for thread in recorder.threads.values_mut() {
        thread.cpu_ns.0 = thread.cpu_ns.1;
    }
    recorder.check_thread(options)?;
    recorder.open()?;
    let Some((place, _)) = recorder.samplers.first() else {
        return Err(ProfileError::Ended { pid });
    };
    let step = place.drain_interval(options.frequency);
    let started = Instant::now();
    let mut scanned = started;
    let mut is_running = true;
    while is_running && started.elapsed() < duration {
        thread::sleep(step.min(duration.saturating_sub(started.elapsed())));
        recorder.drain()?;
        if scanned.elapsed() >= Duration::from_millis(RESCAN_MS) {
            is_running = recorder.scan()?;
            recorder.open_threads()?;
            scanned = Instant::now();
        }
    }
    recorder.finish(started.elapsed(), is_running, options)
}

impl Recorder {
    /// Scans all threads. Returns false if the process has exited.
    fn scan(&mut self) -> Result<bool, ProfileError> {
        let Some(ids) = thread_ids(self.pid)? else { return Ok(false) };
        for id in &ids {
            // Either is missing if the thread has exited.
            let Some(now_ns) = thread_cpu_ns(self.pid, *id) else { continue };
            if let Some(thread) = self.threads.get_mut(id) {
                thread.cpu_ns.1 = now_ns;
            } else if let Some(name) = thread_name(self.pid, *id) {
                self.threads.insert(*id, Thread { name, cpu_ns: (0, now_ns) });
            }
        }
        Ok(ids.len() > 1 || !is_zombie(self.pid))
    }

    fn check_thread(&self, options: &Options) -> Result<(), ProfileError> {
        let Some(wanted) = options.thread.clone() else { return Ok(()) };
        let mut names: Vec<&str> = self.threads.values().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.contains(&wanted.as_str()) {
            return Ok(());
        }
        Err(ProfileError::NoThread { pid: self.pid, wanted, names: names.join(", ") })
    }

    /// Starts sampling: cores if permitted, else threads; kernel code too, if permitted.
    fn open(&mut self) -> Result<(), ProfileError> {
        for core in online_cores()? {
            match self.open_one(Place::Core(core)) {
                Err(ProfileError::Forbidden { .. }) => {
                    self.samplers.clear();
                    break;
                }
                result => result?,
            }
        }
        if self.samplers.is_empty() {
            self.open_first_threads()?;
        }
        Ok(())
    }

    fn open_first_threads(&mut self) -> Result<(), ProfileError> {
        for id in self.thread_numbers() {
            match self.open_one(Place::Thread(id)) {
                Err(ProfileError::Forbidden { .. }) if self.kernel => {
                    self.kernel = false;
                    self.open_one(Place::Thread(id))?;
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Starts sampling new threads, if threads are sampled.
    fn open_threads(&mut self) -> Result<(), ProfileError> {
        if matches!(self.samplers.first(), Some((Place::Core(_), _))) {
            return Ok(());
        }
        for id in self.thread_numbers() {
            if !self.samplers.iter().any(|(place, _)| *place == Place::Thread(id)) {
                self.open_one(Place::Thread(id))?;
            }
        }
        Ok(())
    }

    fn thread_numbers(&self) -> Vec<i32> {
        self.threads.keys().copied().filter(|id| *id != UNKNOWN).collect()
    }

    /// Does nothing if the thread has exited or the core is offline.
    fn open_one(&mut self, place: Place) -> Result<(), ProfileError> {
        let mut builder = Builder::new(Software::CPU_CLOCK);
        match place {
            Place::Core(core) => builder.any_pid().one_cpu(core).exclude_idle(true),
            Place::Thread(id) => builder.observe_pid(id).any_cpu(),
        };
        builder.sample(SampleFlag::TID).sample(SampleFlag::CALLCHAIN);
        builder.sample_frequency(self.frequency).exclude_kernel(!self.kernel);
        let counter = match builder.build() {
            Ok(counter) => counter,
            Err(error) => return self.judge(place, error),
        };
        let mut sampler = counter
            .sampled(place.ring_bytes())
            .map_err(|source| ProfileError::Map { place, source })?;
        sampler.enable().map_err(|source| ProfileError::Sample { place, source })?;
        self.samplers.push((place, sampler));
        Ok(())
    }

    fn judge(&self, place: Place, error: io::Error) -> Result<(), ProfileError> {
        match Errno::from_io_error(&error) {
            Some(Errno::SRCH | Errno::NODEV) => Ok(()),
            Some(Errno::ACCESS | Errno::PERM) => Err(ProfileError::Forbidden {
                pid: self.pid,
                paranoid: kernel_setting("perf_event_paranoid"),
            }),
            Some(Errno::INVAL) => Err(ProfileError::TooOften {
                frequency: self.frequency,
                frequency_max: kernel_setting("perf_event_max_sample_rate"),
            }),
            Some(Errno::NOSYS | Errno::NOENT | Errno::OPNOTSUPP) => Err(ProfileError::Unsupported),
            _ => Err(ProfileError::Sample { place, source: error }),
        }
    }

    fn drain(&mut self) -> Result<(), ProfileError> {
        for (_, sampler) in &mut self.samplers {
            while let Some(record) = sampler.next_record() {
                let record = record
                    .parse_record()
                    .map_err(|error| ProfileError::Malformed { reason: error.to_string() })?;
                match record {
                    Record::Sample(sample) if sample.pid() == Some(self.pid) => {
                        let thread = sample.tid().and_then(|id| i32::try_from(id).ok());
                        let addresses = addresses(sample.callchain().unwrap_or_default());
                        let stack = Stack { thread: thread.unwrap_or(UNKNOWN), addresses };
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

    fn finish(
        mut self,
        elapsed: Duration,
        is_running: bool,
        options: &Options,
    ) -> Result<Recording, ProfileError> {
        for (place, sampler) in &mut self.samplers {
            let place = *place;
            sampler.disable().map_err(|source| ProfileError::Sample { place, source })?;
        }
        self.drain()?;
        self.scan()?;
        if !is_running && self.stacks.is_empty() {
            return Err(ProfileError::Ended { pid: self.pid });
        }
        let mut recording = Recording {
            lost: self.lost,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            notes: self.notes(elapsed, is_running),
            ..Recording::default()
        };
        for (id, thread) in &self.threads {
            // A thread may be found before it has set its name.
            let name = thread_name(self.pid, *id).unwrap_or_else(|| thread.name.clone());
            if *id != UNKNOWN && options.thread.as_ref().is_none_or(|wanted| *wanted == name) {
                recording.cpu_ns += thread.cpu_ns.1.saturating_sub(thread.cpu_ns.0);
                recording.threads.insert(*id, name);
            }
        }
        for (mut stack, count) in self.stacks {
            // Threads with very short lifetimes were never scanned.
            if !self.threads.contains_key(&stack.thread) && options.thread.is_none() {
                stack.thread = UNKNOWN;
                recording.threads.insert(UNKNOWN, self.threads[&UNKNOWN].name.clone());
            }
            if recording.threads.contains_key(&stack.thread) {
                *recording.stacks.entry(stack).or_default() += count;
            }
        }
        Ok(recording)
    }

    fn notes(&self, elapsed: Duration, is_running: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if !is_running {
            notes.push(format!("the process exited after {:.1} s", elapsed.as_secs_f64()));
        }
        if !self.kernel {
            notes.push("this user cannot sample kernel code".to_owned());
        }
        if !matches!(self.samplers.first(), Some((Place::Core(_), _))) {
            notes.push("not root: profiling makes context switches expensive".to_owned());
        }
        notes
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Core(core) => write!(formatter, "core {core}"),
            Self::Thread(id) => write!(formatter, "thread {id}"),
        }
    }
}

// Source: linux/perf_event.h, enum perf_callchain_context: marks the start of kernel or program
// addresses; all values from the last one on are such markers.
const CONTEXT_KERNEL: u64 = u64::MAX - 127;
const CONTEXT_USER: u64 = u64::MAX - 511;
const CONTEXT_FIRST: u64 = u64::MAX - 4094;

/// Returns the addresses of a call chain. All but the innermost on each side are return addresses;
/// subtracting one gives an address within the call.
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

/// Returns `None` if the process has exited.
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

/// Returns `None` if the thread has exited.
fn thread_name(pid: u32, id: i32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{id}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Processor time of a thread since its start. Returns `None` if it has exited.
fn thread_cpu_ns(pid: u32, id: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{id}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn online_cores() -> Result<Vec<usize>, ProfileError> {
    let path = "/sys/devices/system/cpu/online";
    let failed = |source| ProfileError::Read { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    parse_cores(text.trim_end()).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
}

/// Parses `0-3,8`. Returns `None` for a malformed list.
fn parse_cores(text: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cores.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(cores)
}

/// Whether the process has exited, but was not reaped.
fn is_zombie(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The name, in parentheses, may contain anything.
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
        for place in [Place::Core(0), Place::Thread(1)] {
            for frequency in [1, 99, 999, 4_999, 100_000] {
                let interval_ns = place.drain_interval(frequency).as_nanos();
                let samples = interval_ns * u128::from(frequency) / 1_000_000_000;
                assert!(samples * SAMPLE_BYTES_MAX as u128 <= place.ring_bytes() as u128 / 4);
                assert!(interval_ns > 0);
            }
        }
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(parse_cores("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cores("0"), Some(vec![0]));
        assert_eq!(parse_cores(""), None);
        assert_eq!(parse_cores("0-"), None);
    }
}
