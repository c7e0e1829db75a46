//! Threads of a part of the server.

use std::io;
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;

/// The running threads of a part of the server.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    pub(crate) fn start(
        &self,
        name: impl Into<String>,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let thread = Builder::new().name(name.into()).spawn(run)?;
        self.0.lock().push(thread);
        Ok(())
    }

    /// Waits until all have ended.
    pub(crate) fn join(&self) {
        for thread in self.0.lock().drain(..) {
            let name = thread.thread().name().map(str::to_owned);
            if thread.join().is_err() {
                tracing::error!(thread = name, "a thread panicked");
            }
        }
    }
}
