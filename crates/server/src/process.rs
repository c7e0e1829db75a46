//! What the kernel says about this process: its memory and the time it took of the processors.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// The memory fields of `/proc/self/status`. Source: proc(5).
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory {
    fields: Vec<(String, u64)>,
}

impl ProcessMemory {
    /// Empty where the kernel does not tell. Costs about 20 us.
    pub(crate) fn read() -> ProcessMemory {
        ProcessMemory::parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    /// Takes the lines of the form `VmRSS:     1234 kB`.
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

    /// Memory that is in use now, shared pages included.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        self.bytes("VmRSS")
    }

    /// The most that ever was.
    pub(crate) fn resident_peak_bytes(&self) -> Option<u64> {
        self.bytes("VmHWM")
    }

    /// Memory without a file behind it: what the allocator holds, and the stacks.
    pub(crate) fn anonymous_bytes(&self) -> Option<u64> {
        self.bytes("RssAnon")
    }

    /// All fields, by the kernel's names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.fields.iter().map(|(name, bytes)| (name.as_str(), *bytes))
    }
}

/// Time on processors, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) system_us: i64,
    pub(crate) user_us: i64,
}

/// Of all threads of this process. `None` where the kernel does not tell.
pub(crate) fn cpu_time() -> Option<CpuTime> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    Some(CpuTime {
        system_us: usage.system_time().num_microseconds(),
        user_us: usage.user_time().num_microseconds(),
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
    fn this_process_uses_memory_and_time() {
        assert!(ProcessMemory::read().resident_bytes().is_some_and(|bytes| bytes > 4096));
        assert!(cpu_time().is_some_and(|time| time.user_us >= 0 && time.system_us >= 0));
    }
}
