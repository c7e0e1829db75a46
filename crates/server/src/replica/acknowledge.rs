//! Reports to the master how far the stream is on the disk of this server: after each sync, and
//! once a second.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use binlog::{Log, Lsn};
use parking_lot::{Condvar, Mutex};
use wire::resp::encode_request;

use super::apply::Applied;
use super::channel::Channel;
use super::mono_now;
use crate::engine::server_state::ServerState;

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct State {
    applied: Applied,
    is_new: bool,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The thread that writes to the master.
#[derive(Debug)]
pub(super) struct Acknowledger {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Acknowledger {
    pub(super) fn start(server: &ServerState, writer: Channel) -> io::Result<Acknowledger> {
        let shared = Arc::new(Shared::default());
        let (of_thread, log) = (Arc::clone(&shared), Arc::clone(&server.log));
        let timeout = server.settings.load().repl_timeout();
        let run = move || {
            let mut writer = writer;
            if let Err(error) = acknowledge(&of_thread, &log, &mut writer, timeout) {
                tracing::debug!(%error, "could not acknowledge the stream");
                // Part of a request may have been sent: the reader of the connection ends, too.
                writer.end();
            }
        };
        let thread = std::thread::Builder::new().name("replica-ack".to_owned()).spawn(run)?;
        Ok(Acknowledger { shared, thread: Some(thread) })
    }

    /// Notes what has been applied.
    pub(super) fn note(&self, applied: Applied) {
        let mut state = self.shared.state.lock();
        state.is_new |= state.applied != applied;
        state.applied = applied;
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl Drop for Acknowledger {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that acknowledges the stream panicked");
        }
    }
}

fn acknowledge(
    shared: &Shared,
    log: &Log,
    writer: &mut Channel,
    timeout: Duration,
) -> io::Result<()> {
    let is_over = || shared.state.lock().is_over;
    let mut request = Vec::new();
    loop {
        let mut state = shared.state.lock();
        if !state.is_new && !state.is_over {
            shared.changed.wait_for(&mut state, INTERVAL);
        }
        if state.is_over {
            return Ok(());
        }
        let Applied { position, log: end } = state.applied;
        state.is_new = false;
        drop(state);
        if end > Lsn(0) {
            log.wait_durable(end, &mono_now).map_err(io::Error::other)?;
        }
        if let Some(position) = position {
            request.clear();
            let position = position.to_string();
            encode_request(&[b"REPLCONF", b"ACK", position.as_bytes()], &mut request);
            writer.write_all(&request, timeout, &is_over)?;
        }
    }
}
