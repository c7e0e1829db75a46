//! Scripts that run at this moment: on which reactors, since when, and whether they must end.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use base::stages::CycleClock;

/// The script of one reactor. On its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Running {
    /// Cycle counter at the start; 0: no script.
    began: AtomicU64,
    state: AtomicU8,
}

/// No script runs.
const IDLE: u8 = 0;
/// A script runs that has not changed data.
const READING: u8 = 1;
/// A script runs that has changed data.
const WRITING: u8 = 2;
/// A script must end.
const KILLED: u8 = 3;

/// Time after which a script is slow: reactors do not wait for it.
const SLOW_NS: u64 = 2_000_000;

/// Error of requests that wait for a script for too long.
pub(crate) const BUSY: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL \
                               or SHUTDOWN NOSAVE.";

/// The scripts of all reactors.
#[derive(Debug)]
pub(crate) struct RunningScripts {
    clock: CycleClock,
    reactors: Box<[Running]>,
}

impl RunningScripts {
    pub(crate) fn new(reactors: usize, clock: CycleClock) -> RunningScripts {
        RunningScripts { clock, reactors: (0..reactors).map(|_| Running::default()).collect() }
    }

    /// Records that a reactor begins to run a script. `now`: cycle counter.
    #[inline]
    pub(crate) fn begin(&self, reactor: usize, now: u64) {
        let running = &self.reactors[reactor];
        running.state.store(READING, Ordering::Relaxed);
        running.began.store(now.max(1), Ordering::Relaxed);
    }

    /// Records that the script of a reactor changes data. False if it must end instead.
    #[inline]
    pub(crate) fn write(&self, reactor: usize) -> bool {
        let state = &self.reactors[reactor].state;
        state
            .compare_exchange(READING, WRITING, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|state| state == WRITING, |_| true)
    }

    #[inline]
    pub(crate) fn end(&self, reactor: usize) {
        let running = &self.reactors[reactor];
        running.began.store(0, Ordering::Relaxed);
        running.state.store(IDLE, Ordering::Relaxed);
    }

    /// Whether the script of a reactor must end.
    pub(crate) fn is_killed(&self, reactor: usize) -> bool {
        self.reactors[reactor].state.load(Ordering::Relaxed) == KILLED
    }

    fn ran_ns(&self, running: &Running) -> u64 {
        match running.began.load(Ordering::Relaxed) {
            0 => 0,
            began => self.clock.delta_ns(began, self.clock.now()),
        }
    }

    /// How long the script has been running that began first, if it is slow.
    pub(crate) fn slow_ns(&self) -> Option<u64> {
        let longest = self.reactors.iter().map(|running| self.ran_ns(running)).max();
        longest.filter(|ns| *ns >= SLOW_NS)
    }

    /// Whether a script is slow, so that a reactor should serve others instead of waiting.
    #[cold]
    pub(crate) fn is_slow(&self) -> bool {
        self.slow_ns().is_some()
    }

    /// Whether requests that wait for a script receive [`BUSY`]. `threshold_ms`: 0 is never.
    pub(crate) fn is_busy(&self, threshold_ms: u64) -> bool {
        threshold_ms > 0 && self.slow_ns().is_some_and(|ns| ns / 1_000_000 >= threshold_ms)
    }

    /// Makes all slow scripts end that have not changed data.
    // Source: Redis 7.2 `script.c`, `scriptKill`
    pub(crate) fn kill(&self) -> Result<(), &'static str> {
        let (mut killed, mut unkillable) = (false, false);
        for running in &self.reactors {
            if self.ran_ns(running) < SLOW_NS {
                continue;
            }
            let (old, new) = (READING, KILLED);
            match running.state.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) | Err(KILLED) => killed = true,
                Err(WRITING) => unkillable = true,
                Err(_) => {}
            }
        }
        if killed {
            Ok(())
        } else if unkillable {
            Err("UNKILLABLE Sorry the script already executed write commands against the dataset. \
                 You can either wait the script termination or kill the server in a hard way using \
                 the SHUTDOWN NOSAVE command.")
        } else {
            Err("NOTBUSY No scripts in execution right now.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_scripts_that_only_read_are_killed() {
        let clock = CycleClock::new();
        let scripts = RunningScripts::new(2, clock.clone());
        scripts.begin(0, clock.now());
        assert!(scripts.kill().unwrap_err().starts_with("NOTBUSY"));
        scripts.begin(0, 1); // long ago
        assert!(scripts.is_slow());
        scripts.begin(1, 1);
        assert!(scripts.write(1));
        assert!(!scripts.is_killed(0));
        assert_eq!(scripts.kill(), Ok(()));
        assert!(scripts.is_killed(0));
        assert!(!scripts.write(0), "it must end");
        assert!(scripts.write(1));
        scripts.end(0);
        assert!(scripts.kill().unwrap_err().starts_with("UNKILLABLE"));
        assert!(scripts.is_busy(1));
        assert!(!scripts.is_busy(0));
        scripts.end(1);
        assert!(!scripts.is_slow());
        assert!(scripts.kill().unwrap_err().starts_with("NOTBUSY"));
    }
}
