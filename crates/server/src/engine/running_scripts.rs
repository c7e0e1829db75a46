//! Scripts that run at this moment: on which reactors, since when, and whether they must end. And
//! long requests, which hold stripes for as long.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use base::stages::CycleClock;
use parking_lot::Mutex;

/// The script of one reactor. On its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Running {
    /// Cycle counter at the start; 0: no script.
    began: AtomicU64,
    state: AtomicU8,
    is_function: AtomicBool,
    /// Set once it has run for some time.
    request: Mutex<Option<RunningRequest>>,
}

/// Kind of what runs. Each has its own command that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoutineKind {
    /// Of EVAL and EVALSHA.
    Script,
    /// Of FCALL, or a library that is being loaded.
    Function,
}

/// The request that runs a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningRequest {
    pub(crate) function: Vec<u8>,
    pub(crate) arguments: Vec<Vec<u8>>,
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

/// Time that one turn may wait for data that other reactors hold. The reactor's other clients wait that
/// long, too.
const LOCK_WAITS_NS_MAX: u64 = 2_000_000;

/// A shorter wait, for a key of many clients, is not counted: it is not a reason to delay requests.
const LOCK_WAIT_NS_MIN: u64 = 400_000;

/// Keys up to which a request gives up its wait for one of them. With more it might never find all of
/// them free: it waits for each, and its reactor with it.
pub(crate) const FEW_KEYS: usize = 8;

/// Time after which a request that began is refused instead of waiting for a script.
const TOO_SLOW_NS: u64 = 50_000_000;

/// Errors of requests that wait for a script or function for too long.
// Source: Redis 7.2 `server.c`, `shared.slowevalerr` and `shared.slowscripterr`
const BUSY_SCRIPT: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or \
                           SHUTDOWN NOSAVE.";
const BUSY_FUNCTION: &str = "BUSY Redis is busy running a script. You can only call FUNCTION KILL \
                             or SHUTDOWN NOSAVE.";

/// The scripts of all reactors.
#[derive(Debug)]
pub(crate) struct RunningScripts {
    clock: CycleClock,
    reactors: Box<[Running]>,
    /// Cycle counter at the start of the [long request](crate::engine::long_requests) of each
    /// thread; 0: none.
    long_requests: Box<[AtomicU64]>,
}

impl RunningScripts {
    /// `threads`: those of long requests.
    pub(crate) fn new(reactors: usize, threads: usize, clock: CycleClock) -> RunningScripts {
        RunningScripts {
            clock,
            reactors: (0..reactors).map(|_| Running::default()).collect(),
            long_requests: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Records that a thread begins to run a long request. `now`: cycle counter.
    pub(crate) fn begin_long(&self, thread: usize, now: u64) {
        self.long_requests[thread].store(now.max(1), Ordering::Relaxed);
    }

    pub(crate) fn end_long(&self, thread: usize) {
        self.long_requests[thread].store(0, Ordering::Relaxed);
    }

    /// Records that a reactor begins to run a script. `now`: cycle counter.
    #[inline]
    pub(crate) fn begin(&self, reactor: usize, now: u64, kind: RoutineKind) {
        let running = &self.reactors[reactor];
        running.is_function.store(kind == RoutineKind::Function, Ordering::Relaxed);
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

    /// Shows the request of a reactor that has been running a function for some time.
    #[cold]
    pub(crate) fn show(&self, reactor: usize, request: RunningRequest) {
        *self.reactors[reactor].request.lock() = Some(request);
    }

    /// Ends what [`RunningScripts::show`] began.
    #[cold]
    pub(crate) fn hide(&self, reactor: usize) {
        *self.reactors[reactor].request.lock() = None;
    }

    /// The shown request that began first, and its time in nanoseconds.
    pub(crate) fn shown(&self) -> Option<(RunningRequest, u64)> {
        let shown = self.reactors.iter().filter_map(|running| {
            let request = running.request.lock().clone()?;
            Some((request, self.ran_ns(running)))
        });
        shown.max_by_key(|(_, ns)| *ns)
    }

    /// Whether the script of a reactor must end.
    pub(crate) fn is_killed(&self, reactor: usize) -> bool {
        self.reactors[reactor].state.load(Ordering::Relaxed) == KILLED
    }

    fn ran_ns(&self, running: &Running) -> u64 {
        self.since(&running.began)
    }

    fn since(&self, began: &AtomicU64) -> u64 {
        match began.load(Ordering::Relaxed) {
            0 => 0,
            began => self.clock.delta_ns(began, self.clock.now()),
        }
    }

    /// How long the script or long request has been running that began first.
    fn longest_ns(&self) -> u64 {
        let scripts = self.reactors.iter().map(|running| &running.began);
        scripts.chain(&self.long_requests).map(|began| self.since(began)).max().unwrap_or(0)
    }

    /// How long the script has been running that began first, if it is slow.
    pub(crate) fn slow_ns(&self) -> Option<u64> {
        let longest = self.reactors.iter().map(|running| self.ran_ns(running)).max();
        longest.filter(|ns| *ns >= SLOW_NS)
    }

    /// Whether a script or long request is slow, so that a reactor should serve others instead of
    /// waiting.
    #[cold]
    pub(crate) fn is_slow(&self) -> bool {
        self.longest_ns() >= SLOW_NS
    }

    /// Whether a script or long request is too slow for a request that has begun: it fails instead of waiting, so
    /// that its reactor serves others.
    #[cold]
    fn are_too_slow(&self) -> bool {
        self.longest_ns() >= TOO_SLOW_NS
    }

    /// Returns the check of locks whether a request that waits for data of other reactors gives up,
    /// so that its reactor serves others. `spent_ns`: the time that it has waited in this turn.
    #[inline]
    pub(crate) fn patience<'a>(&'a self, spent_ns: &'a Cell<u64>) -> impl Fn(u64) -> bool + 'a {
        move |waited_ns| self.gives_up(spent_ns, waited_ns)
    }

    #[cold]
    fn gives_up(&self, spent_ns: &Cell<u64>, waited_ns: u64) -> bool {
        if waited_ns >= LOCK_WAIT_NS_MIN {
            // No more: the rest is time for which the kernel ran other threads.
            spent_ns.set(spent_ns.get().saturating_add(waited_ns).min(LOCK_WAITS_NS_MAX));
        }
        spent_ns.get() >= LOCK_WAITS_NS_MAX || waited_ns > 0 && self.is_slow()
    }

    /// Returns the check of locks whether a request that needs many keys gives up after a wait.
    pub(crate) fn until_slow(&self) -> impl Fn(u64) -> bool {
        |waited_ns| waited_ns > 0 && self.is_slow()
    }

    /// Returns the check of locks whether a statement of CQL gives up after a wait.
    pub(crate) fn until_too_slow(&self) -> impl Fn(u64) -> bool {
        |waited_ns| waited_ns > 0 && self.are_too_slow()
    }

    /// Whether the script of a reactor is slow.
    pub(crate) fn is_slow_on(&self, reactor: usize) -> bool {
        self.ran_ns(&self.reactors[reactor]) >= SLOW_NS
    }

    /// The error of requests that wait for scripts for too long.
    #[cold]
    pub(crate) fn busy_error(&self) -> &'static str {
        let longest = self.reactors.iter().max_by_key(|running| self.ran_ns(running));
        let is_function = longest.is_some_and(|it| it.is_function.load(Ordering::Relaxed));
        if is_function { BUSY_FUNCTION } else { BUSY_SCRIPT }
    }

    /// Whether requests that wait for a script receive [`RunningScripts::busy_error`].
    /// `threshold_ms`: 0 is never.
    pub(crate) fn is_busy(&self, threshold_ms: u64) -> bool {
        threshold_ms > 0 && self.slow_ns().is_some_and(|ns| ns / 1_000_000 >= threshold_ms)
    }

    /// Makes all slow scripts, or all slow functions, end that have not changed data.
    // Source: Redis 7.2 `script.c`, `scriptKill`
    pub(crate) fn kill(&self, kind: RoutineKind) -> Result<(), &'static str> {
        let (mut killed, mut unkillable, mut others) = (false, false, false);
        for running in &self.reactors {
            if self.ran_ns(running) < SLOW_NS {
                continue;
            }
            let is_function = running.is_function.load(Ordering::Relaxed);
            if is_function != (kind == RoutineKind::Function) {
                let is_writing = running.state.load(Ordering::Relaxed) == WRITING;
                unkillable |= is_writing;
                others |= !is_writing;
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
        } else if others {
            Err(match kind {
                RoutineKind::Script => BUSY_FUNCTION,
                RoutineKind::Function => BUSY_SCRIPT,
            })
        } else {
            Err("NOTBUSY No scripts in execution right now.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: RoutineKind = RoutineKind::Script;
    const FUNCTION: RoutineKind = RoutineKind::Function;

    #[test]
    fn slow_scripts_that_only_read_are_killed() {
        let clock = CycleClock::new();
        let scripts = RunningScripts::new(2, 1, clock.clone());
        scripts.begin(0, clock.now(), SCRIPT);
        assert!(scripts.kill(SCRIPT).unwrap_err().starts_with("NOTBUSY"));
        scripts.begin(0, 1, SCRIPT); // long ago
        assert!(scripts.is_slow());
        scripts.begin(1, 1, SCRIPT);
        assert!(scripts.write(1));
        assert!(!scripts.is_killed(0));
        assert_eq!(scripts.kill(SCRIPT), Ok(()));
        assert!(scripts.is_killed(0));
        assert!(!scripts.write(0), "it must end");
        assert!(scripts.write(1));
        scripts.end(0);
        assert!(scripts.kill(SCRIPT).unwrap_err().starts_with("UNKILLABLE"));
        assert!(scripts.kill(FUNCTION).unwrap_err().starts_with("UNKILLABLE"));
        assert!(scripts.is_busy(1));
        assert!(!scripts.is_busy(0));
        scripts.end(1);
        assert!(!scripts.is_slow());
        assert!(scripts.kill(SCRIPT).unwrap_err().starts_with("NOTBUSY"));
        // A long request delays others like a script, but is not one.
        scripts.begin_long(0, 1);
        assert!(scripts.is_slow() && !scripts.is_busy(1));
        assert!(scripts.kill(SCRIPT).unwrap_err().starts_with("NOTBUSY"));
        scripts.end_long(0);
        assert!(!scripts.is_slow());
    }

    #[test]
    fn scripts_and_functions_have_commands_of_their_own() {
        let scripts = RunningScripts::new(2, 0, CycleClock::new());
        scripts.begin(0, 1, FUNCTION);
        assert_eq!(scripts.kill(SCRIPT), Err(BUSY_FUNCTION));
        assert_eq!(scripts.busy_error(), BUSY_FUNCTION);
        assert!(!scripts.is_killed(0));
        assert_eq!(scripts.kill(FUNCTION), Ok(()));
        assert!(scripts.is_killed(0));
        scripts.end(0);
        scripts.begin(1, 1, SCRIPT);
        assert_eq!(scripts.kill(FUNCTION), Err(BUSY_SCRIPT));
        assert_eq!(scripts.busy_error(), BUSY_SCRIPT);
        assert_eq!(scripts.shown(), None);
        let request = RunningRequest { function: b"f".to_vec(), arguments: Vec::new() };
        scripts.show(1, request.clone());
        assert_eq!(scripts.shown().map(|(shown, _)| shown), Some(request));
        scripts.hide(1);
        assert_eq!(scripts.shown(), None);
    }
}
