//! Where a thread sleeps until its record is written, or until it is its turn to write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::thread::futex;

/// What a sleeper is woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Write the records of all waiting threads.
    Lead,
    /// Its record is written.
    Written,
    /// Writing its record has failed.
    Failed,
}

/// One place per thread: a thread waits for one append at a time.
pub(super) trait Sleeper: Default + Send + Sync + 'static {
    fn with_current<T>(act: impl FnOnce(&Arc<Self>) -> T) -> T;
    /// Sleeps until signalled; each signal is for one call.
    fn sleep(&self) -> Signal;
    fn signal(&self, signal: Signal);
}

#[derive(Debug, Default)]
pub(super) struct CondvarSleeper {
    signal: Mutex<Option<Signal>>,
    changed: Condvar,
}

thread_local! {
    static CONDVAR_SLEEPER: Arc<CondvarSleeper> = Arc::default();
    static FUTEX_SLEEPER: Arc<FutexSleeper> = Arc::default();
}

impl Sleeper for CondvarSleeper {
    fn with_current<T>(act: impl FnOnce(&Arc<Self>) -> T) -> T {
        CONDVAR_SLEEPER.with(act)
    }

    fn sleep(&self) -> Signal {
        let mut signal = self.signal.lock();
        loop {
            match signal.take() {
                Some(signal) => return signal,
                None => self.changed.wait(&mut signal),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        *self.signal.lock() = Some(signal);
        self.changed.notify_one();
    }
}

#[derive(Debug, Default)]
pub(super) struct FutexSleeper {
    word: AtomicU32,
}

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const LEAD: u32 = 2;
const WRITTEN: u32 = 3;
const FAILED: u32 = 4;

impl Sleeper for FutexSleeper {
    fn with_current<T>(act: impl FnOnce(&Arc<Self>) -> T) -> T {
        FUTEX_SLEEPER.with(act)
    }

    fn sleep(&self) -> Signal {
        // Fails if the signal has already arrived.
        self.word.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).ok();
        loop {
            let signal = match self.word.load(Ordering::Acquire) {
                LEAD => Signal::Lead,
                WRITTEN => Signal::Written,
                FAILED => Signal::Failed,
                _ => {
                    match futex::wait(&self.word, futex::Flags::PRIVATE, ASLEEP, None) {
                        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                        Err(error) => panic!("a futex in mapped memory can be waited for: {error}"),
                    }
                    continue;
                }
            };
            self.word.store(AWAKE, Ordering::Relaxed);
            return signal;
        }
    }

    fn signal(&self, signal: Signal) {
        let word = match signal {
            Signal::Lead => LEAD,
            Signal::Written => WRITTEN,
            Signal::Failed => FAILED,
        };
        if self.word.swap(word, Ordering::AcqRel) == ASLEEP {
            futex::wake(&self.word, futex::Flags::PRIVATE, 1)
                .expect("a futex in mapped memory can be woken");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Two threads, each of which sleeps until the other one signals, many times.
    fn check<S: Sleeper>() {
        let (sleeper, other) = (Arc::new(S::default()), Arc::new(S::default()));
        let signals = [Signal::Lead, Signal::Written, Signal::Failed];
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3000 {
                    sleeper.signal(other.sleep());
                }
            });
            for signal in signals.into_iter().cycle().take(3000) {
                other.signal(signal);
                assert_eq!(sleeper.sleep(), signal);
            }
        });
    }

    #[test]
    fn each_signal_wakes_once() {
        check::<CondvarSleeper>();
        check::<FutexSleeper>();
    }

    #[test]
    fn a_signal_before_the_sleep_is_not_lost() {
        FutexSleeper::with_current(|sleeper| {
            sleeper.signal(Signal::Lead);
            assert_eq!(sleeper.sleep(), Signal::Lead);
        });
        CondvarSleeper::with_current(|sleeper| {
            sleeper.signal(Signal::Failed);
            assert_eq!(sleeper.sleep(), Signal::Failed);
        });
    }
}
