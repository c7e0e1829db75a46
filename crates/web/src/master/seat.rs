//! One worker as its master sees it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::WORKERS;
use super::addresses::Share;
use super::team::Team;
use crate::WORKER_FLAG;
use crate::channel::{Channel, Received};
use crate::config::Mode;
use crate::counters::Row;
use crate::worker::{self, FAILED, ListenerGroup, Order, READY, Start};

/// How long a worker that has let go of its master may take to be gone.
const REAP_STEPS: u32 = 50;
const REAP_STEP: Duration = Duration::from_millis(2);

#[derive(Debug)]
enum Body {
    Process(Child),
    /// None when joined.
    Thread(Option<JoinHandle<()>>),
}

/// What came from a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    Nothing,
    Ready,
    Gone,
}

#[derive(Debug)]
pub(crate) struct Worker {
    /// Unique in the life of the master.
    pub(crate) id: u64,
    pub(crate) slot: usize,
    pub(crate) started: Instant,
    pub(crate) is_ready: bool,
    /// What it has said of its end.
    failure: Option<String>,
    /// Where its access log is.
    pub(crate) access_log: Option<PathBuf>,
    control: Channel,
    body: Body,
    /// Its counters. The last to be dropped: it writes there no more.
    row: Row,
}

impl Worker {
    /// Starts a worker for `slot`, gives it all it needs, and watches it.
    pub(crate) fn start(
        id: u64,
        slot: usize,
        team: &Team,
        program: &Path,
        shares: &[Share<'_>],
        epoll: &OwnedFd,
    ) -> anyhow::Result<Worker> {
        let (control, far) = Channel::pair().context("make a channel")?;
        let row = Row::take(team.counters(), slot)?;
        let sockets = shares
            .iter()
            .map(|share| share.listeners.of_slot(&team.config, slot, share.count))
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
            config: team.config.clone(),
            listeners,
            has_identity: team.resources().identity.is_some(),
            has_root: team.resources().root.is_some(),
            has_log: team.resources().log.is_some(),
            user: team.resources().user,
            row: row.number,
        };
        let mut descriptors =
            vec![team.table().as_fd(), row.counters().as_fd(), team.mailbox(slot).as_fd()];
        descriptors.extend(team.resources().identity.as_ref().map(AsFd::as_fd));
        descriptors.extend(team.resources().root.as_ref().map(AsFd::as_fd));
        descriptors.extend(team.resources().log.as_ref().map(AsFd::as_fd));
        descriptors.extend(sockets.into_iter().flatten());
        descriptors.extend(team.senders().iter().map(AsFd::as_fd));
        let text = serde_json::to_vec(&order).context("write the order")?;
        control.send_all(&text, &descriptors).context("send the order")?;
        let body = match team.config.mode {
            Mode::Process => {
                let mut command = Command::new(program);
                command.args(["web", WORKER_FLAG]).stdin(Stdio::from(far.into_fd()));
                let doing = || format!("start {}", program.display());
                Body::Process(command.spawn().with_context(doing)?)
            }
            Mode::Thread => {
                let builder = std::thread::Builder::new().name(format!("w{slot:02}"));
                let failures = far.try_clone().context("make a channel")?;
                let run = move || {
                    let served = Start::receive(far).and_then(|start| worker::run(start, None));
                    if let Err(error) = served {
                        worker::report(&failures, &error);
                    }
                };
                Body::Thread(Some(builder.spawn(run).context("start a thread")?))
            }
        };
        let worker = Worker {
            id,
            slot,
            started: Instant::now(),
            is_ready: false,
            failure: None,
            access_log: team.config.access_log.clone(),
            control,
            body,
            row,
        };
        epoll::add(epoll, &worker.control, EventData::new_u64(WORKERS + id), EventFlags::IN)?;
        Ok(worker)
    }

    /// Reads one message.
    pub(crate) fn hear(&mut self) -> Heard {
        match self.control.receive() {
            Ok(Received::Message(message)) if message.bytes == READY => {
                self.is_ready = true;
                Heard::Ready
            }
            Ok(Received::Message(message)) => {
                if let Some(words) = message.bytes.strip_prefix(FAILED) {
                    self.failure = Some(String::from_utf8_lossy(words).into_owned());
                }
                Heard::Nothing
            }
            Ok(Received::Empty) => Heard::Nothing,
            Ok(Received::Closed) | Err(_) => Heard::Gone,
        }
    }

    /// Gives an order. One that is gone is found out by its silence.
    pub(crate) fn tell(&self, order: &[u8]) {
        self.tell_with(order, &[]);
    }

    /// The same with descriptors.
    pub(crate) fn tell_with(&self, order: &[u8], descriptors: &[BorrowedFd<'_>]) {
        if let Err(error) = self.control.send(order, descriptors) {
            tracing::warn!(slot = self.slot, %error, "a worker cannot be told");
        }
    }

    pub(crate) fn is_thread(&self) -> bool {
        matches!(self.body, Body::Thread(_))
    }

    /// Ends a process at once. Threads go on until they end.
    pub(crate) fn kill(&mut self) {
        if let Body::Process(child) = &mut self.body
            && let Err(error) = child.kill()
        {
            tracing::warn!(slot = self.slot, %error, "a worker cannot be killed");
        }
    }

    /// The same, and another takes its place.
    pub(crate) fn reap_and_replace(mut self) -> String {
        self.row.restarts = 1;
        self.reap()
    }

    /// Takes leave of a worker that is gone, and returns why it ended.
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
        // It has closed its channel and goes on: it would serve without a master.
        self.kill();
        match &mut self.body {
            Body::Process(child) => {
                child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
            }
            Body::Thread(_) => "it does not end".to_owned(),
        }
    }
}

impl AsFd for Worker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}
