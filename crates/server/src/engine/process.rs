//! Memory and processor time of this process, as reported by the kernel.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// The memory fields of `/proc/self/status`. Source: proc(5).
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory {
    fields: Vec<(String, u64)>,
}

impl ProcessMemory {
    /// Reads the fields. Empty if the kernel does not report them. Costs about 20 us.
    pub(crate) fn read() -> ProcessMemory {
        ProcessMemory::parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    /// Parses the lines of the form `VmRSS:     1234 kB`.
    fn parse(text: &str) -> ProcessMemory {
        let field = |line: &str| {
            let (name, amount) = line.split_once(':')?;
            let kib: u64 = amount.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
            Some((name.to_owned(), kib.checked_mul(1024)?))
        };
        ProcessMemory { fields: text.lines().filter_map(field).collect() }
    }

    fn bytes(&self, name: &str) -> Option<u64> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, bytes)| *bytes)
    }

    /// Memory in use, including shared pages.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        self.bytes("VmRSS")
    }

    /// Peak of the memory in use.
    pub(crate) fn resident_peak_bytes(&self) -> Option<u64> {
        self.bytes("VmHWM")
    }

    /// Memory not backed by files: the allocator's heap, and the stacks.
    pub(crate) fn anonymous_bytes(&self) -> Option<u64> {
        self.bytes("RssAnon")
    }

    /// All fields, by the kernel's names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.fields.iter().map(|(name, bytes)| (name.as_str(), *bytes))
    }
}

/// Processor time in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) system_us: i64,
    pub(crate) user_us: i64,
}

/// Time of all threads of this process. `None` if the kernel does not report it.
pub(crate) fn cpu_time() -> Option<CpuTime> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    Some(CpuTime {
        system_us: usage.system_time().num_microseconds(),
        user_us: usage.user_time().num_microseconds(),
    })
}

/// Kernel statistics of one thread of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// R: running, S: sleeping, D: waiting for a disk.
    pub(crate) state: char,
    pub(crate) user_ms: u64,
    pub(crate) system_ms: u64,
    /// Processor on which the thread last ran.
    pub(crate) processor: u64,
}

/// Returns all threads, by their numbers. Empty if the kernel does not report them. Costs about 20
/// us per thread.
pub(crate) fn threads() -> Vec<Thread> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    let ticks = ticks.and_then(|ticks| u64::try_from(ticks).ok()).filter(|t| *t > 0).unwrap_or(100);
    let read = |task: std::fs::DirEntry| {
        // Skips a thread that has exited meanwhile.
        parse_thread(&std::fs::read_to_string(task.path().join("stat")).ok()?, ticks)
    };
    let mut threads: Vec<_> = tasks.filter_map(Result::ok).filter_map(read).collect();
    threads.sort_unstable_by_key(|thread| thread.id);
    threads
}

/// `7 (name with ) inside) S 1 ...`. Source: `proc_pid_stat(5)`.
fn parse_thread(text: &str, ticks_per_second: u64) -> Option<Thread> {
    let (before, after) = text.rsplit_once(')')?;
    let (id, name) = before.split_once('(')?;
    // Fields from number 3, the state, on.
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ms = |ticks: u64| ticks.saturating_mul(1000) / ticks_per_second;
    Some(Thread {
        id: id.trim().parse().ok()?,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        user_ms: ms(number(14)?),
        system_ms: ms(number(15)?),
        processor: number(39)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_fields_are_read_and_others_are_not() {
        let text = "Name:\tmyriad\nVmHWM:\t   20 kB\nVmRSS:\t      16 kB\nThreads:\t8\n\
                    VmLck:\t99999999999999999999 kB\nVmPin: kB\n";
        let memory = ProcessMemory::parse(text);
        assert_eq!(memory.iter().collect::<Vec<_>>(), [("VmHWM", 20_480), ("VmRSS", 16_384)]);
        assert_eq!(memory.resident_bytes(), Some(16_384));
        assert_eq!(memory.resident_peak_bytes(), Some(20_480));
        assert_eq!(memory.anonymous_bytes(), None);
    }

    #[test]
    fn threads_are_read() {
        let rest = "1 2 3 4 5 6 7 8 9 10 250 30 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 \
                    30 31 32 33 34 35 5 37 38";
        let thread = parse_thread(&format!("77 (a) b) S {rest}\n"), 100).unwrap();
        let expected = Thread {
            id: 77,
            name: "a) b".to_owned(),
            state: 'S',
            user_ms: 2500,
            system_ms: 300,
            processor: 5,
        };
        assert_eq!(thread, expected);
        assert_eq!(parse_thread("77 (a", 100), None);
        assert!(threads().iter().any(|thread| thread.state == 'R'), "this one runs");
    }

    #[test]
    fn this_process_uses_memory_and_time() {
        assert!(ProcessMemory::read().resident_bytes().is_some_and(|bytes| bytes > 4096));
        assert!(cpu_time().is_some_and(|time| time.user_us >= 0 && time.system_us >= 0));
    }
}
