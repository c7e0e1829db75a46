//! Wakes a thread that works for clients, and ends it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    is_raised: bool,
    is_over: bool,
}

impl Signal {
    pub(crate) fn raise(&self) {
        self.state.lock().is_raised = true;
        self.changed.notify_all();
    }

    /// Makes every wait return false from now on.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until the signal is raised. Returns false if it has ended.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_raised && !state.is_over {
            self.changed.wait(&mut state);
        }
        state.is_raised = false;
        !state.is_over
    }

    /// Waits until the signal is raised or the time has elapsed. Returns false if it has ended.
    pub(crate) fn wait_for(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_raised && !state.is_over {
            self.changed.wait_for(&mut state, timeout);
        }
        state.is_raised = false;
        !state.is_over
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }
}
