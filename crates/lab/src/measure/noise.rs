//! Processor time taken by other programs and the hypervisor.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::Noise;
use super::process::{Process, processes};
use super::threads::malformed;

/// A program is named if it used at least this many cores.
const NAMED_CORES_MIN: f64 = 0.05;

/// One sample of the machine.
#[derive(Debug, Clone)]
pub struct NoiseSample {
    system: SystemTicks,
    /// Processes outside the measurement and the kernel, by process id.
    foreign: BTreeMap<u32, (String, u64)>,
    /// Processes of the measurement and the kernel.
    known_ticks: u64,
    cores: usize,
    /// Of each core that reports it.
    frequencies_khz: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SystemTicks {
    busy: u64,
    steal: u64,
    /// Including idle time.
    all: u64,
}

impl NoiseSample {
    /// Samples all processes. `ours` are the processes of the measurement, besides this one. Takes
    /// a few milliseconds: not for the measured phase.
    pub fn take(ours: &[u32]) -> io::Result<Self> {
        let system = parse_system(&fs::read_to_string("/proc/stat")?)?;
        let is_known = |process: &Process| {
            process.is_kernel_thread
                || process.pid == std::process::id()
                || ours.contains(&process.pid)
        };
        let (known, foreign): (Vec<_>, Vec<_>) = processes()?.into_iter().partition(is_known);
        Ok(Self {
            system,
            foreign: foreign.into_iter().map(|one| (one.pid, (one.name, one.ticks))).collect(),
            known_ticks: known.iter().map(|process| process.ticks).sum(),
            cores: std::thread::available_parallelism()?.get(),
            frequencies_khz: frequencies_khz(),
        })
    }

    /// Returns the activity since `earlier`, which was sampled with the same `ours`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Noise {
        let all = difference(self.system.all, earlier.system.all);
        if all == 0.0 {
            return Noise::default();
        }
        let cores = crate::stats::real(self.cores);
        let in_cores = |ticks: f64| ticks.max(0.0) / all * cores;
        let busy = difference(self.system.busy, earlier.system.busy);
        let known = difference(self.known_ticks, earlier.known_ticks);
        Noise {
            steal: difference(self.system.steal, earlier.system.steal) / all,
            // By subtraction, because exited programs are not listed any longer.
            foreign_cores: in_cores(busy - known),
            foreign_name: self.busiest_since(earlier, in_cores),
            frequency_change: self.frequency_change(earlier),
            waited_ms: 0,
        }
    }

    fn busiest_since(&self, earlier: &Self, in_cores: impl Fn(f64) -> f64) -> String {
        let used = self.foreign.iter().map(|(pid, (name, ticks))| {
            let before = earlier.foreign.get(pid).map_or(0, |(_, before)| *before);
            (in_cores(difference(*ticks, before)), name)
        });
        let busiest = used.max_by(|(first, _), (second, _)| first.total_cmp(second));
        match busiest {
            Some((used, name)) if used >= NAMED_CORES_MIN => name.clone(),
            _ => String::new(),
        }
    }

    /// 0 if cores do not report their frequency.
    fn frequency_change(&self, earlier: &Self) -> f64 {
        let pairs = earlier.frequencies_khz.iter().zip(&self.frequencies_khz);
        pairs
            .map(|(before, after)| (difference(*after, *before) / difference(*before, 0)).abs())
            .fold(0.0, f64::max)
    }
}

/// `later - earlier`: below 0 if processes of the measurement have exited.
#[allow(clippy::cast_precision_loss)]
fn difference(later: u64, earlier: u64) -> f64 {
    later as f64 - earlier as f64
}

// Source: proc_stat(5), line `cpu`: user nice system idle iowait irq softirq steal
fn parse_system(text: &str) -> io::Result<SystemTicks> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let numbers: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = numbers[..] else {
        return Err(malformed("stat"));
    };
    let busy = user + nice + system + irq + softirq;
    Ok(SystemTicks { busy, steal, all: busy + idle + iowait + steal })
}

/// Virtual machines have no such files, and cannot control the frequency.
fn frequencies_khz() -> Vec<u64> {
    let path = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
    (0..)
        .map_while(|cpu| fs::read_to_string(path(cpu)).ok()?.trim().parse().ok())
        .filter(|khz| *khz > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(busy: u64, steal: u64, known_ticks: u64, rustc: u64) -> NoiseSample {
        NoiseSample {
            system: SystemTicks { busy, steal, all: 2_000 + busy + steal },
            foreign: BTreeMap::from([(9, ("rustc".to_owned(), rustc)), (8, ("sh".to_owned(), 3))]),
            known_ticks,
            cores: 2,
            frequencies_khz: vec![3_000_000, 2_000_000 + 10_000 * rustc],
        }
    }

    #[test]
    fn foreign_is_what_is_not_ours() {
        let (before, mut after) = (sample(100, 0, 40, 10), sample(180, 4, 90, 30));
        after.system.all = before.system.all + 200;
        let noise = after.since(&before);
        assert!((noise.foreign_cores - 0.3).abs() < 1e-9, "{noise:?}");
        assert!((noise.steal - 0.02).abs() < 1e-9, "{noise:?}");
        assert_eq!(noise.foreign_name, "rustc");
        assert!((noise.frequency_change - 0.2 / 2.1).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_never_negative() {
        let (before, mut after) = (sample(100, 0, 40, 10), sample(110, 0, 90, 10));
        assert_eq!(before.since(&before), Noise::default());
        after.system.all = before.system.all + 200;
        assert_eq!(after.since(&before), Noise::default());
    }

    #[test]
    fn the_line_of_all_cores_is_read() {
        let found = parse_system("cpu  10 1 5 70 9 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1\n").unwrap();
        assert_eq!(found, SystemTicks { busy: 21, steal: 4, all: 104 });
        assert!(parse_system("cpu0 1 2 3 4 5 6 7 8\n").is_err());
        NoiseSample::take(&[]).unwrap();
    }
}
