//! The master's handle to one worker.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::WORKERS;
use super::addresses::Share;
use super::worker_group::WorkerGroup;
use crate::WORKER_FLAG;
use crate::channel::{Channel, Received};
use crate::config::Mode;
use crate::counters::Row;
use crate::worker::{self, FAILED, ListenerGroup, Order, READY, Start};

/// Setting of the allocator: how long pages are free before it returns them to the system, in ms. At
/// once would cost each large body its page faults, 440 for 900 KB; longer, the memory of many bodies
/// would be kept while others arrive. See also `return_free_memory`.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";
const PURGE_DELAY_MS: &str = "100";

/// How many checks a worker that closed its channel may take to exit.
const REAP_STEPS: u32 = 50;
const REAP_STEP: Duration = Duration::from_millis(2);

#[derive(Debug)]
enum Body {
    Process(Child),
    /// `None` after joining.
    Thread(Option<JoinHandle<()>>),
}

/// An event from a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerEvent {
    Nothing,
    Ready,
    Gone,
}

#[derive(Debug)]
pub(crate) struct WorkerHandle {
    /// Unique within the lifetime of the master.
    pub(crate) id: u64,
    pub(crate) slot: usize,
    pub(crate) started: Instant,
    pub(crate) is_ready: bool,
    /// The reason that it reported for its end.
    failure: Option<String>,
    /// Path of its access log.
    pub(crate) access_log: Option<PathBuf>,
    control: Channel,
    body: Body,
    /// Its counters. Dropped last, when it does not write them any longer.
    row: Row,
}

impl WorkerHandle {
    /// Starts a worker for `slot`, sends it its resources, and polls its channel.
    pub(crate) fn start(
        id: u64,
        slot: usize,
        group: &WorkerGroup,
        program: &Path,
        shares: &[Share<'_>],
        epoll: &OwnedFd,
    ) -> anyhow::Result<WorkerHandle> {
        let (control, far) = Channel::pair().context("could not create a channel")?;
        let row = Row::take(group.counters(), slot)?;
        let sockets = shares
            .iter()
            .map(|share| share.listeners.of_slot(&group.config, slot, share.count))
            .collect::<Vec<_>>();
        let listeners = shares
            .iter()
            .zip(&sockets)
            .map(|(share, sockets)| ListenerGroup {
                scheme: share.listeners.scheme(),
                address: share.listeners.number(),
                count: sockets.len(),
            })
            .collect();
        let order = Order {
            slot,
            config: group.config.clone(),
            listeners,
            has_identity: group.resources().identity.is_some(),
            has_root: group.resources().root.is_some(),
            has_log: group.resources().log.is_some(),
            user: group.resources().user,
            row: row.number,
        };
        let mut descriptors =
            vec![group.table().as_fd(), row.counters().as_fd(), group.mailbox(slot).as_fd()];
        descriptors.extend(group.resources().identity.as_ref().map(AsFd::as_fd));
        descriptors.extend(group.resources().root.as_ref().map(AsFd::as_fd));
        descriptors.extend(group.resources().log.as_ref().map(AsFd::as_fd));
        descriptors.extend(sockets.into_iter().flatten());
        descriptors.extend(group.senders().iter().map(AsFd::as_fd));
        let text = serde_json::to_vec(&order).context("could not encode the order")?;
        control.send_all(&text, &descriptors).context("could not send the order")?;
        let body = match group.config.mode {
            Mode::Process => {
                let mut command = Command::new(program);
                command.args(["web", WORKER_FLAG]).stdin(Stdio::from(far.into_fd()));
                if std::env::var_os(PURGE_DELAY).is_none() {
                    command.env(PURGE_DELAY, PURGE_DELAY_MS);
                }
                let doing = || format!("start {}", program.display());
                Body::Process(command.spawn().with_context(doing)?)
            }
            Mode::Thread => {
                let builder = std::thread::Builder::new().name(format!("w{slot:02}"));
                let failures = far.try_clone().context("could not create a channel")?;
                let run = move || {
                    let served = Start::receive(far).and_then(|start| worker::run(start, None));
                    if let Err(error) = served {
                        worker::report(&failures, &error);
                    }
                };
                Body::Thread(Some(builder.spawn(run).context("could not start a thread")?))
            }
        };
        let worker = WorkerHandle {
            id,
            slot,
            started: Instant::now(),
            is_ready: false,
            failure: None,
            access_log: group.config.access_log.clone(),
            control,
            body,
            row,
        };
        epoll::add(epoll, &worker.control, EventData::new_u64(WORKERS + id), EventFlags::IN)?;
        Ok(worker)
    }

    /// Reads one message.
    pub(crate) fn read_event(&mut self) -> WorkerEvent {
        match self.control.receive() {
            Ok(Received::Message(message)) if message.bytes == READY => {
                self.is_ready = true;
                WorkerEvent::Ready
            }
            Ok(Received::Message(message)) => {
                if let Some(words) = message.bytes.strip_prefix(FAILED) {
                    self.failure = Some(String::from_utf8_lossy(words).into_owned());
                }
                WorkerEvent::Nothing
            }
            Ok(Received::Empty) => WorkerEvent::Nothing,
            Ok(Received::Closed) | Err(_) => WorkerEvent::Gone,
        }
    }

    /// Sends an order. A dead worker is detected by its closed channel.
    pub(crate) fn send_order(&self, order: &[u8]) {
        self.send_order_with(order, &[]);
    }

    /// Sends an order with descriptors.
    pub(crate) fn send_order_with(&self, order: &[u8], descriptors: &[BorrowedFd<'_>]) {
        if let Err(error) = self.control.send(order, descriptors) {
            tracing::warn!(slot = self.slot, %error, "could not send an order to worker");
        }
    }

    pub(crate) fn is_thread(&self) -> bool {
        matches!(self.body, Body::Thread(_))
    }

    /// Kills a process. Threads continue until they end by themselves.
    pub(crate) fn kill(&mut self) {
        if let Body::Process(child) = &mut self.body
            && let Err(error) = child.kill()
        {
            tracing::warn!(slot = self.slot, %error, "could not kill worker");
        }
    }

    /// Reaps a worker that will be replaced.
    pub(crate) fn reap_and_replace(mut self) -> String {
        self.row.restarts = 1;
        self.reap()
    }

    /// Waits for a worker that has ended, and returns the reason.
    pub(crate) fn reap(mut self) -> String {
        let failure = self.failure.take();
        let status = self.wait();
        failure.unwrap_or(status)
    }

    fn wait(mut self) -> String {
        for _ in 0..REAP_STEPS {
            match &mut self.body {
                Body::Process(child) => match child.try_wait() {
                    Ok(Some(status)) => return status.to_string(),
                    Ok(None) => {}
                    Err(error) => return error.to_string(),
                },
                Body::Thread(thread) if thread.as_ref().is_some_and(JoinHandle::is_finished) => {
                    let joined = thread.take().map(JoinHandle::join);
                    let is_fine = joined.is_some_and(|joined| joined.is_ok());
                    return if is_fine { "it returned" } else { "it panicked" }.to_owned();
                }
                Body::Thread(_) => {}
            }
            std::thread::sleep(REAP_STEP);
        }
        // It closed its channel but runs: without a master it must not serve.
        self.kill();
        match &mut self.body {
            Body::Process(child) => {
                child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
            }
            Body::Thread(_) => "it did not end".to_owned(),
        }
    }
}

impl AsFd for WorkerHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}
