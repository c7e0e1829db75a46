//! The thread that takes snapshots, stripe by stripe.

mod draft;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use base::time::MonoNs;

use crate::engine::clock::mono_now;
use crate::engine::mail::Mail;
use crate::engine::server_state::ServerState;
use crate::engine::snapshots::{Purpose, Rewrite, Snapshots, remove_leftover};
pub(crate) use draft::write_whole;
use draft::{Draft, Step, Written};

/// Starts the thread.
pub(crate) fn start(shared: &Arc<ServerState>) -> io::Result<()> {
    let taker = Taker::new(&shared.snapshots);
    let of_thread = Arc::clone(shared);
    shared.snapshots.thread.start("snapshot", move || run(&of_thread, taker))
}

/// Time between two readings of the free space of the disk.
const FREE_SPACE_PERIOD: Duration = Duration::from_secs(5);

fn run(shared: &ServerState, mut taker: Taker) {
    const PAUSE: Duration = Duration::from_millis(1);
    let mut free_space = FreeSpace::read(shared);
    loop {
        match taker.requests.recv_timeout(FREE_SPACE_PERIOD) {
            Ok(number) => taker.begin(shared, number),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        loop {
            free_space.refresh(shared);
            match taker.step(shared) {
                Progress::More => {}
                Progress::WaitsForLog => std::thread::sleep(PAUSE),
                Progress::Idle => break,
            }
        }
    }
}

/// When the free space of the disk was last read. This thread does it because it may wait for the
/// disk, and because a snapshot is what takes the most space.
#[derive(Debug)]
struct FreeSpace {
    read_at: MonoNs,
}

impl FreeSpace {
    fn read(shared: &ServerState) -> FreeSpace {
        shared.snapshots.read_free_bytes();
        FreeSpace { read_at: mono_now() }
    }

    fn refresh(&mut self, shared: &ServerState) {
        if u128::from(mono_now().since(self.read_at)) >= FREE_SPACE_PERIOD.as_nanos() {
            *self = FreeSpace::read(shared);
        }
    }
}

/// Takes requested snapshots in small steps: the work of the thread, without the thread.
#[derive(Debug)]
pub(crate) struct Taker {
    requests: Receiver<u64>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    number: u64,
    began: MonoNs,
    changes_before: u64,
    /// `None` before the first step.
    file: Option<Draft>,
}

/// Next action of [`Taker::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No snapshot is in progress.
    Idle,
    More,
    /// Nothing to do until the log is durable up to the snapshot's position.
    WaitsForLog,
}

impl Taker {
    /// Enables snapshot requests. One per server.
    pub(crate) fn new(snapshots: &Snapshots) -> Taker {
        Taker { requests: snapshots.requests(), running: None }
    }

    /// Starts the requested snapshot, if there is one.
    #[cfg(test)]
    pub(crate) fn take_request(&mut self, shared: &ServerState) {
        if self.running.is_none()
            && let Ok(number) = self.requests.try_recv()
        {
            self.begin(shared, number);
        }
    }

    fn begin(&mut self, shared: &ServerState, number: u64) {
        let began = shared.snapshots.status.lock().began;
        let changes_before = shared.totals().changes;
        self.running = Some(Running { number, began, changes_before, file: None });
    }

    /// Writes the next part of the snapshot in progress.
    pub(crate) fn step(&mut self, shared: &ServerState) -> Progress {
        let Some(running) = &mut self.running else { return Progress::Idle };
        let ended = match running.step(shared) {
            Ok(Step::More) => return Progress::More,
            Ok(Step::WaitsForLog) => return Progress::WaitsForLog,
            Ok(Step::Done(written)) => Ok(written),
            Err(error) => Err(error),
        };
        running.end(shared, ended);
        self.running = None;
        Progress::Idle
    }
}

impl Running {
    fn step(&mut self, shared: &ServerState) -> io::Result<Step> {
        match &mut self.file {
            Some(draft) => draft.step(shared),
            empty => {
                *empty = Some(Draft::create(shared)?);
                Ok(Step::More)
            }
        }
    }

    fn end(&self, shared: &ServerState, ended: io::Result<Written>) {
        let number = self.number;
        let took_ms = mono_now().since(self.began) / 1_000_000;
        let error = ended.as_ref().err().map(|error| Arc::from(error.to_string()));
        if ended.is_err()
            && let Err(error) = remove_leftover(&*shared.snapshots.disk)
        {
            tracing::warn!(number, %error, "could not remove the leftover of a failed snapshot");
        }
        let mut status = shared.snapshots.status.lock();
        status.running = None;
        status.last_ok = ended.is_ok();
        status.last_error.clone_from(&error);
        status.last_took_ms = took_ms;
        status.finished += 1;
        if status.purpose == Purpose::Rewrite {
            status.last_rewrite = Some(Rewrite { is_ok: ended.is_ok(), took_ms });
            status.rewrites += 1;
        }
        match ended {
            Ok(written) => {
                status.succeeded += 1;
                status.log_position = status.running_position;
                status.changes_before = self.changes_before;
                status.last_unix_ms = crate::engine::clock::unix_now().0;
                status.last_bytes = written.bytes;
                status.last_keys = written.keys;
                let (keys, bytes) = (written.keys, written.bytes);
                tracing::info!(number, keys, bytes, took_ms, "snapshot taken");
            }
            Err(_) if shared.snapshots.stop.load(Ordering::SeqCst) => {
                tracing::info!(number, "snapshot abandoned: the server is stopping");
            }
            Err(error) => tracing::error!(number, %error, "snapshot failed"),
        }
        drop(status);
        // At shutdown the reactors have already exited.
        if shared.snapshots.requests.lock().is_some() {
            shared.broadcast(&Mail::SnapshotDone { number, error });
        }
    }
}
