//! Resource usage of each thread of a process, from `/proc/PID/task/TID`.

use std::fs;
use std::io;
use std::path::Path;

use super::ThreadUse;

/// Totals of one thread since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadSample {
    pub tid: u32,
    pub name: String,
    /// Running on a processor.
    run_ns: u64,
    /// Ready to run, but not running.
    wait_ns: u64,
    /// User time, in hundredths of a second: too coarse except for the ratio to system time.
    user_ticks: u64,
    system_ticks: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

/// Returns all threads of process `pid`, in the order of their ids, except threads that exit during
/// the call. Reads three small files per thread, about 30 us.
pub fn threads(pid: u32) -> io::Result<Vec<ThreadSample>> {
    let mut samples = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match read_sample(tid, &entry.path()) {
            Ok(sample) => samples.push(sample),
            Err(error) if has_exited(&error) => {}
            Err(error) => return Err(error),
        }
    }
    samples.sort_by_key(|sample| sample.tid);
    Ok(samples)
}

/// Returns the usage of every thread of `later` since `earlier`; new threads count from their
/// start.
pub fn uses_between(earlier: &[ThreadSample], later: &[ThreadSample]) -> Vec<ThreadUse> {
    let new = ThreadSample::default();
    let before = |tid| earlier.iter().find(|sample| sample.tid == tid).unwrap_or(&new);
    later.iter().map(|sample| sample.since(before(sample.tid))).collect()
}

impl ThreadSample {
    #[must_use]
    pub fn since(&self, earlier: &ThreadSample) -> ThreadUse {
        let run_ns = self.run_ns.saturating_sub(earlier.run_ns);
        let user_ticks = self.user_ticks.saturating_sub(earlier.user_ticks);
        let system_ticks = self.system_ticks.saturating_sub(earlier.system_ticks);
        let system_ns = share(run_ns, system_ticks, user_ticks + system_ticks);
        ThreadUse {
            name: self.name.clone(),
            user_ns: run_ns - system_ns,
            system_ns,
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
        }
    }
}

/// Returns `amount * part / whole`; 0 if `whole` is 0.
fn share(amount: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(amount) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(scaled).expect("a part is at most the amount")
}

fn read_sample(tid: u32, folder: &Path) -> io::Result<ThreadSample> {
    let read = |name: &str| fs::read_to_string(folder.join(name));
    let mut sample = ThreadSample { tid, ..ThreadSample::default() };
    parse_schedstat(&read("schedstat")?, &mut sample)?;
    parse_stat(&read("stat")?, &mut sample)?;
    parse_status(&read("status")?, &mut sample)?;
    Ok(sample)
}

// Source: Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat"
fn parse_schedstat(text: &str, sample: &mut ThreadSample) -> io::Result<()> {
    let mut numbers = text.split_whitespace();
    sample.run_ns = number(numbers.next(), "schedstat")?;
    sample.wait_ns = number(numbers.next(), "schedstat")?;
    Ok(())
}

/// The name in brackets may contain blanks and brackets; fields are counted from its end.
// Source: proc_pid_stat(5), fields 14 (utime) and 15 (stime)
fn parse_stat(text: &str, sample: &mut ThreadSample) -> io::Result<()> {
    let (_, fields) = text.rsplit_once(')').ok_or_else(|| malformed("stat"))?;
    let mut fields = fields.split_whitespace().skip(11);
    sample.user_ticks = number(fields.next(), "stat")?;
    sample.system_ticks = number(fields.next(), "stat")?;
    Ok(())
}

fn parse_status(text: &str, sample: &mut ThreadSample) -> io::Result<()> {
    let field = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    field("Name").ok_or_else(|| malformed("status"))?.clone_into(&mut sample.name);
    sample.voluntary_switches = number(field("voluntary_ctxt_switches"), "status")?;
    sample.involuntary_switches = number(field("nonvoluntary_ctxt_switches"), "status")?;
    Ok(())
}

fn number(text: Option<&str>, file: &str) -> io::Result<u64> {
    text.and_then(|text| text.parse().ok()).ok_or_else(|| malformed(file))
}

pub(super) fn malformed(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc: {file} is not as expected"))
}

/// Reading an open file of a thread that has just exited fails with ESRCH.
fn has_exited(error: &io::Error) -> bool {
    const ESRCH: i32 = 3;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(run_ns: u64, user_ticks: u64, system_ticks: u64) -> ThreadSample {
        ThreadSample { tid: 7, run_ns, user_ticks, system_ticks, ..ThreadSample::default() }
    }

    #[test]
    fn processor_time_is_split_as_the_ticks_are() {
        let used = sample(5_000_000, 13, 7).since(&sample(1_000_000, 10, 6));
        assert_eq!(
            (used.user_ns, used.system_ns, used.cpu_ns()),
            (3_000_000, 1_000_000, 4_000_000)
        );
        let used = sample(5_000, 3, 3).since(&sample(1_000, 3, 3));
        assert_eq!((used.user_ns, used.system_ns), (4_000, 0));
    }

    #[test]
    fn fields_are_found_behind_any_name() {
        let mut sample = ThreadSample::default();
        let stat = "7 (a) b (c) R 1 7 7 0 -1 64 103 0 0 0 21 43 0 0 20 0 1 0 11 31 39";
        parse_stat(stat, &mut sample).unwrap();
        assert_eq!((sample.user_ticks, sample.system_ticks), (21, 43));
        assert!(parse_stat("7 no brackets", &mut sample).is_err());
        parse_schedstat("10 20 30\n", &mut sample).unwrap();
        assert_eq!((sample.run_ns, sample.wait_ns), (10, 20));
        assert!(parse_schedstat("10", &mut sample).is_err());
    }

    #[test]
    fn a_thread_that_works_is_seen_working() {
        let before = threads(std::process::id()).unwrap();
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        let (done, is_done) = std::sync::mpsc::channel();
        let work = move || {
            let mut sum = 0_u64;
            for number in 0..50_000_000_u64 {
                sum = std::hint::black_box(sum.wrapping_add(number));
            }
            done.send(sum).unwrap();
            goes_on.recv().unwrap();
        };
        let worker = std::thread::Builder::new().name("busy bee".to_owned()).spawn(work).unwrap();
        is_done.recv().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
        let bee = loop {
            let after = threads(std::process::id()).unwrap();
            let uses = uses_between(&before, &after);
            let bee = uses.into_iter().find(|one| one.name == "busy bee").unwrap();
            // It reports completion a moment before it waits.
            if bee.voluntary_switches + bee.involuntary_switches > 0 {
                break bee;
            }
            assert!(std::time::Instant::now() < until, "{bee:?}");
        };
        go_on.send(()).unwrap();
        worker.join().unwrap();
        assert!(bee.cpu_ns() > 1_000_000, "{bee:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert_eq!(threads(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
