//! Scripts that run at this moment: which reactors run one, since when, and whether it must end.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use base::time::MonoNs;

/// The script of one reactor. On its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Running {
    /// When it began to be slow; 0: no script that is slow.
    slow_since: AtomicU64,
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

/// Time after which a script counts as slow: other reactors do not wait for it.
const SLOW_NS: u64 = 1_000_000;

/// The scripts of all reactors.
#[derive(Debug)]
pub(crate) struct RunningScripts(Box<[Running]>);

impl RunningScripts {
    pub(crate) fn new(reactors: usize) -> RunningScripts {
        RunningScripts((0..reactors).map(|_| Running::default()).collect())
    }

    /// Records that a reactor begins to run a script.
    #[inline]
    pub(crate) fn begin(&self, reactor: usize) {
        self.0[reactor].state.store(READING, Ordering::Relaxed);
    }

    /// Records that the script of a reactor changes data. False if it must end instead.
    #[inline]
    pub(crate) fn write(&self, reactor: usize) -> bool {
        let state = &self.0[reactor].state;
        state.load(Ordering::Relaxed) == WRITING
            || state
                .compare_exchange(READING, WRITING, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    #[inline]
    pub(crate) fn end(&self, reactor: usize) {
        let running = &self.0[reactor];
        running.state.store(IDLE, Ordering::Relaxed);
        if running.slow_since.load(Ordering::Relaxed) != 0 {
            running.slow_since.store(0, Ordering::Relaxed);
        }
    }

    /// Records that the script of a reactor began at `began` and still runs. True if it must end.
    pub(crate) fn check(&self, reactor: usize, began: MonoNs, now: MonoNs) -> bool {
        let running = &self.0[reactor];
        if now.since(began) >= SLOW_NS {
            running.slow_since.store(began.0.max(1), Ordering::Relaxed);
        }
        running.state.load(Ordering::Relaxed) == KILLED
    }

    /// Makes all slow scripts end that have not changed data.
    // Source: Redis 7.2 `script.c`, `scriptKill`
    pub(crate) fn kill(&self) -> Result<(), &'static str> {
        let (mut killed, mut unkillable) = (false, false);
        for running in &self.0 {
            if running.slow_since.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let kill = running.state.compare_exchange(
                READING,
                KILLED,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match kill {
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
        let scripts = RunningScripts::new(2);
        let (began, soon, late) = (MonoNs(5), MonoNs(6), MonoNs(5 + SLOW_NS));
        scripts.begin(0);
        assert!(!scripts.check(0, began, soon));
        assert!(scripts.kill().unwrap_err().starts_with("NOTBUSY"));
        assert!(!scripts.check(0, began, late));
        scripts.begin(1);
        assert!(scripts.write(1));
        assert_eq!(scripts.kill(), Ok(()));
        assert!(!scripts.write(0), "it must end");
        assert!(scripts.check(0, began, late));
        scripts.end(0);
        scripts.check(1, began, late);
        assert!(scripts.kill().unwrap_err().starts_with("UNKILLABLE"));
        scripts.end(1);
        assert!(scripts.kill().unwrap_err().starts_with("NOTBUSY"));
    }
}
