//! The master: binds, starts workers, replaces dead workers, and handles signals.

mod addresses;
mod dispatch;
mod listeners;
mod resources;
mod upgrade;
mod worker_group;
mod worker_handle;

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use reactor::{Signal, Signals};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::channel::{Channel, Received};
use crate::config::{Accept, Config, Source};
use crate::counters::Counters;
use crate::scheme::Scheme;
use crate::worker::{ACCEPT, LEAVE, REOPEN, finish_at, log};
use crate::{accept, logging, privileges};

use addresses::{Addresses, Counts, RequestedAddress, Socket};
use dispatch::Dispatch;
use upgrade::{Parent, Upgrade};
use worker_group::{CHECK, WorkerGroup};
use worker_handle::WorkerHandle;

const EVENTS_MAX: usize = 64;
const SIGNALS: u64 = 0;
const UPGRADE: u64 = 1;
/// Event tokens of listening sockets: the number of their address and their position within it.
const LISTENERS: u64 = 1 << 32;
/// Width of the position in bits.
const LISTENER_BITS: u32 = 16;
const WORKERS: u64 = 1 << 62;
/// Limit for workers with new options to become ready.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Grace period for workers that exceed their time limit, before they are killed.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Runs a master until a termination signal. `words` is the command line after `myriad web`.
pub(crate) fn run(source: Source, words: &[OsString], inherits: bool) -> anyhow::Result<()> {
    // Before any thread starts, so that all threads leave signals to the master.
    let signals = Signals::open().context("could not set up signal handling")?;
    logging::install()?;
    let config = source.read()?;
    accept::raise_descriptors();
    let parent = inherits.then(upgrade::inherit).transpose()?;
    Master::start(source, words.to_vec(), config, signals, parent)?.run()
}

/// Phase of the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first workers are not ready yet.
    Starting,
    Serving,
    /// Exits when all workers have ended.
    Ending,
}

/// A worker that was ordered to end.
#[derive(Debug)]
struct Retired {
    worker: WorkerHandle,
    /// `None` if it was already killed.
    until: Option<Instant>,
}

/// A worker group with new options, which takes over when all of it is ready.
#[derive(Debug)]
struct Reload {
    group: WorkerGroup,
    /// The addresses that it serves.
    places: Vec<RequestedAddress>,
    /// Sockets of added or moved addresses.
    moved: Addresses,
    /// Numbers of sockets before the reload.
    sockets_before: Counts,
    until: Instant,
}

/// Whether a socket belongs to the site. Workers accept at the operator's address under every
/// strategy.
fn is_of_site(socket: &Socket<'_>) -> bool {
    socket.scheme != Scheme::Status
}

struct Master {
    source: Source,
    words: Vec<OsString>,
    /// Path of this program at startup: it may contain another version by the time of an upgrade.
    program: PathBuf,
    signals: Signals,
    epoll: OwnedFd,
    addresses: Addresses,
    group: WorkerGroup,
    next: Option<Reload>,
    retired: Vec<Retired>,
    dispatch: Dispatch,
    /// The previous master, and the message that notifies it when this one is serving.
    parent: Option<(Channel, Vec<u8>)>,
    upgrade: Option<Upgrade>,
    phase: Phase,
    /// When workers are checked next.
    check_at: Instant,
    /// Lines lost by this process, as far as they are published.
    messages_lost: u64,
}

impl Master {
    fn start(
        source: Source,
        words: Vec<OsString>,
        config: Config,
        signals: Signals,
        parent: Option<Parent>,
    ) -> anyhow::Result<Master> {
        let program =
            std::env::current_exe().context("could not find this program's executable")?;
        // Before any client can connect, because configured resources may be missing or invalid.
        let counters = Arc::new(Counters::new().context("could not allocate the counters")?);
        let mut group = WorkerGroup::new(config, &counters)?;
        let places = addresses::places(&group.config)?;
        let (parent, inherited) = match parent {
            None => (None, Addresses::default()),
            Some(Parent { channel, dialect, addresses }) => {
                let left = addresses.left_by(&places);
                let schemes = addresses.each().enumerate();
                let schemes = schemes.filter(|(at, _)| left.contains(at));
                let schemes: Vec<Scheme> = schemes.map(|(_, one)| one.scheme()).collect();
                let words = upgrade::serving(&left, &schemes, dialect);
                (Some((channel, words)), addresses)
            }
        };
        let addresses = Addresses::begin(inherited, &places, &group.config)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signals, EventData::new_u64(SIGNALS), EventFlags::IN)?;
        group.start_all(&program, &addresses.shares(&Counts::new()), &epoll)?;
        let dispatch = Dispatch::new();
        Ok(Master {
            source,
            words,
            program,
            signals,
            epoll,
            addresses,
            group,
            next: None,
            retired: Vec::new(),
            dispatch,
            parent,
            upgrade: None,
            phase: Phase::Starting,
            check_at: Instant::now(),
            messages_lost: 0,
        })
    }

    fn run(mut self) -> anyhow::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while self.phase != Phase::Ending || !self.retired.is_empty() || self.upgrade.is_some() {
            events.clear();
            let timeout = self.deadline().map(|at| at.saturating_duration_since(Instant::now()));
            let timeout = timeout.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("could not wait for events"),
            }
            for event in &events {
                match event.data.u64() {
                    SIGNALS => self.take_signals()?,
                    UPGRADE => self.handle_upgrade(),
                    token if token >= WORKERS => self.handle_worker(token - WORKERS)?,
                    token => self.accept_waiting(token - LISTENERS),
                }
            }
            self.run_timed_actions()?;
        }
        tracing::info!("ended");
        Ok(())
    }

    /// Returns the time of the next timed action.
    fn deadline(&self) -> Option<Instant> {
        let retired = self.retired.iter().filter_map(|retired| retired.until);
        let upgrade = self.upgrade.iter().map(|upgrade| upgrade.until);
        let upgrade = upgrade.chain(self.next.iter().map(|next| next.until));
        let dispatch = self.dispatch.rests_until;
        let check = (self.phase == Phase::Serving).then_some(self.check_at);
        let others = self.group.next_start().into_iter().chain(dispatch).chain(check);
        retired.chain(upgrade).chain(others).min()
    }

    fn run_timed_actions(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for retired in &mut self.retired {
            if retired.until.is_some_and(|until| until <= now) {
                tracing::warn!(
                    slot = retired.worker.slot,
                    "worker did not end in time; killing it"
                );
                retired.worker.kill();
                retired.until = None;
            }
        }
        self.forget_threads();
        if self.upgrade.as_ref().is_some_and(|upgrade| upgrade.until <= now) {
            self.end_upgrade("it did not become ready");
        }
        if self.next.as_ref().is_some_and(|next| next.until <= now) {
            self.end_reload("it did not become ready");
        }
        if self.phase == Phase::Serving && self.check_at <= now {
            self.check_at = now + CHECK;
            self.group.check_beats();
            self.publish_lost_messages();
        }
        if self.phase != Phase::Ending {
            let shares = self.addresses.shares(&self.listening());
            self.group.start_due(&self.program, &shares, &self.epoll, now);
            if self.dispatch.rests_until.is_some_and(|until| until <= now) {
                self.dispatch.rests_until = None;
                self.watch_listeners()?;
            }
        }
        Ok(())
    }

    /// Counts the lines that this process has lost.
    fn publish_lost_messages(&mut self) {
        let lost = base::messages::lost_lines();
        let more = lost - self.messages_lost;
        if more == 0 {
            return;
        }
        match self.group.counters().add_lost_messages(more) {
            Ok(()) => self.messages_lost = lost,
            Err(error) => tracing::warn!(%error, "could not write the counters"),
        }
    }

    /// Threads cannot be killed: the program exits without waiting for threads that exceeded
    /// their time.
    fn forget_threads(&mut self) {
        if self.phase == Phase::Ending {
            self.retired.retain(|one| !(one.worker.is_thread() && one.until.is_none()));
        }
    }

    fn take_signals(&mut self) -> anyhow::Result<()> {
        while let Some(signal) = self.signals.take() {
            match signal {
                Signal::Terminate | Signal::Interrupt if self.phase == Phase::Ending => {
                    tracing::warn!("second termination signal: not waiting for connections");
                    for retired in &mut self.retired {
                        retired.worker.kill();
                        retired.until = None;
                    }
                    self.forget_threads();
                    self.end_upgrade("second termination signal");
                }
                Signal::Terminate | Signal::Interrupt => self.end(&self.addresses.numbers()),
                _ if self.phase != Phase::Serving => {
                    tracing::warn!(?signal, "signal ignored: not serving");
                }
                Signal::Hangup => self.reload(),
                Signal::User1 => self.reopen_logs(),
                Signal::User2 => self.begin_upgrade()?,
            }
        }
        Ok(())
    }

    /// Reopens the access logs. Ending workers still write to theirs, and starting ones have it
    /// open.
    fn reopen_logs(&mut self) {
        let mut opened: HashMap<PathBuf, OwnedFd> = HashMap::new();
        let retired = self.retired.iter().filter_map(|one| one.worker.access_log.as_ref());
        let groups = std::iter::once(&self.group).chain(self.next.as_ref().map(|next| &next.group));
        for path in groups.filter_map(|group| group.config.access_log.as_ref()).chain(retired) {
            if !opened.contains_key(path) {
                match log::open(path) {
                    Ok(file) => drop(opened.insert(path.clone(), file)),
                    Err(error) => tracing::error!("could not reopen the access log: {error:#}"),
                }
            }
        }
        let groups = std::iter::once(&mut self.group);
        for group in groups.chain(self.next.as_mut().map(|next| &mut next.group)) {
            let file = group.config.access_log.as_ref().and_then(|path| opened.get(path));
            if let Some(Err(error)) = file.map(|file| group.replace_log(file)) {
                tracing::error!(%error, "could not pass the access log to workers");
            }
        }
        // The others were killed.
        for retired in self.retired.iter().filter(|retired| retired.until.is_some()) {
            let file = retired.worker.access_log.as_ref().and_then(|path| opened.get(path));
            if let Some(file) = file {
                retired.worker.send_order_with(REOPEN, &[file.as_fd()]);
            }
        }
    }

    /// Handles a message from a worker, or its end.
    fn handle_worker(&mut self, id: u64) -> anyhow::Result<()> {
        if let Some(index) = self.retired.iter().position(|retired| retired.worker.id == id) {
            if self.retired[index].worker.read_event() == worker_handle::WorkerEvent::Gone {
                self.retired.swap_remove(index).worker.reap();
            }
            return Ok(());
        }
        if let Some(event) = self.group.read_event(id) {
            match event {
                worker_handle::WorkerEvent::Ready
                    if self.phase == Phase::Starting && self.group.is_ready() =>
                {
                    self.begin_serving()?;
                }
                worker_handle::WorkerEvent::Ready if self.phase == Phase::Serving => {
                    self.group.send_order(id, ACCEPT);
                }
                worker_handle::WorkerEvent::Gone if self.phase == Phase::Starting => {
                    bail!("could not start a worker: {}", self.group.remove(id));
                }
                worker_handle::WorkerEvent::Gone => {
                    let how = self.group.remove(id);
                    tracing::error!(how, "worker died; replacing it");
                }
                worker_handle::WorkerEvent::Ready | worker_handle::WorkerEvent::Nothing => {}
            }
            return Ok(());
        }
        if let Some(Reload { group, .. }) = &mut self.next {
            match group.read_event(id) {
                Some(worker_handle::WorkerEvent::Ready) if group.is_ready() => {
                    self.change_groups()?;
                }
                Some(worker_handle::WorkerEvent::Gone) => {
                    let how = group.remove(id);
                    self.end_reload(&how);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn begin_serving(&mut self) -> anyhow::Result<()> {
        self.addresses.open(&self.group.config)?;
        self.phase = Phase::Serving;
        self.group.send_order_to_all(ACCEPT);
        self.watch_listeners()?;
        // After an upgrade, the process that reads the announcements may have exited long ago.
        self.announce();
        let config = &self.group.config;
        tracing::info!(
            addresses = %self.listening_at(),
            workers = config.worker_count(),
            mode = ?config.mode,
            accept = ?config.accept,
            "accepting connections"
        );
        if config.user.is_none() && privileges::is_root() {
            tracing::warn!("workers run as root; set the option user");
        }
        if config.accept.is_historical() {
            tracing::warn!("accept strategy is historical and faulty");
        }
        if let Some((parent, words)) = self.parent.take()
            && let Err(error) = parent.send(&words, &[])
        {
            tracing::warn!(%error, "could not notify the previous master");
        }
        Ok(())
    }

    fn announce(&self) {
        base::messages::print(&format!("ready {}\n", self.listening_at()));
    }

    /// Formats the addresses of this server as URLs.
    fn listening_at(&self) -> String {
        let listeners = self.addresses.each();
        let words = listeners.map(|one| format!("{}={}", one.scheme().name(), one.local()));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Returns how many sockets listen: the others were bound for new options.
    fn listening(&self) -> Counts {
        self.next.as_ref().map_or_else(Counts::new, |next| next.sockets_before.clone())
    }

    /// Polls the listening sockets, unless accepting is the workers' task or paused.
    fn watch_listeners(&mut self) -> anyhow::Result<()> {
        if self.dispatch.is_watching || self.dispatch.rests_until.is_some() {
            return Ok(());
        }
        let flags = match self.group.config.accept {
            #[cfg(feature = "experiments")]
            Accept::NotifyEt => EventFlags::IN | EventFlags::ET,
            accept if accept.is_accepted_by_master() => EventFlags::IN,
            _ => return Ok(()),
        };
        let listening = self.listening();
        for socket in self.addresses.counted(&listening).filter(is_of_site) {
            let place = u64::from(socket.address) << LISTENER_BITS | socket.index as u64;
            let token = EventData::new_u64(LISTENERS + place);
            epoll::add(&self.epoll, socket.fd, token, flags)
                .context("could not poll a listening socket")?;
        }
        self.dispatch.is_watching = true;
        Ok(())
    }

    fn leave_listeners(&mut self) {
        if std::mem::take(&mut self.dispatch.is_watching) {
            for socket in self.addresses.sockets().filter(is_of_site) {
                match epoll::delete(&self.epoll, socket.fd) {
                    // A socket that was bound for a reload is not polled yet.
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => {
                        tracing::warn!(%error, "could not stop polling a listening socket");
                    }
                }
            }
        }
    }

    fn accept_waiting(&mut self, place: u64) {
        let address = u32::try_from(place >> LISTENER_BITS).unwrap_or(u32::MAX);
        let index = usize::try_from(place & ((1 << LISTENER_BITS) - 1)).unwrap_or(usize::MAX);
        let socket = self.addresses.socket(address, index);
        let Some(socket) = socket.filter(|_| self.dispatch.is_watching) else { return };
        if !self.dispatch.pass_on(&mut self.group, socket.fd, socket.scheme) {
            self.leave_listeners();
            self.dispatch.rest();
        }
    }

    /// Re-reads the options, and starts a worker group with them.
    fn reload(&mut self) {
        if self.next.is_some() || self.upgrade.is_some() {
            return tracing::warn!("reload ignored: another change is in progress");
        }
        let sockets_before = self.addresses.counts();
        match self.start_next(sockets_before.clone()) {
            Ok(next) => self.next = Some(next),
            Err(error) => {
                tracing::error!("reload failed; keeping the old options: {error:#}");
                self.give_up_sockets(&sockets_before);
            }
        }
    }

    fn start_next(&mut self, sockets_before: Counts) -> anyhow::Result<Reload> {
        let mut group = WorkerGroup::new(self.source.read()?, self.group.counters())?;
        let places = addresses::places(&group.config)?;
        let moved = self.addresses.adapt(&places, &group.config)?;
        let planned = self.addresses.planned(&moved, &places);
        if let Err(error) = group.start_all(&self.program, &planned, &self.epoll) {
            Self::retire(&mut self.retired, &mut group, LEAVE);
            return Err(error);
        }
        Ok(Reload { group, places, moved, sockets_before, until: Instant::now() + RELOAD_TIMEOUT })
    }

    /// Keeps the old options. Workers with the new ones have not accepted any connection.
    fn end_reload(&mut self, why: &str) {
        let Some(mut next) = self.next.take() else { return };
        Self::retire(&mut self.retired, &mut next.group, LEAVE);
        self.give_up_sockets(&next.sockets_before);
        tracing::error!(why, "worker with new options failed; keeping the old options");
    }

    /// Closes the sockets that were bound for the abandoned options. No connections wait there: the
    /// sockets did not listen, unless opening failed halfway.
    fn give_up_sockets(&mut self, counts: &Counts) {
        for (scheme, socket) in self.addresses.cut(counts) {
            self.dispatch.evacuate(&self.group, &socket, scheme);
        }
        if let Err(error) = self.addresses.open(&self.group.config) {
            tracing::warn!("could not restore the backlog: {error:#}");
        }
    }

    fn change_groups(&mut self) -> anyhow::Result<()> {
        let Some(next) = self.next.take() else { return Ok(()) };
        // Existing sockets already listen, and get the backlog of these options.
        let planned = self.addresses.planned(&next.moved, &next.places);
        let config = &next.group.config;
        let opened = planned.iter().try_for_each(|share| share.listeners.open(config));
        if let Err(error) = opened {
            self.next = Some(next);
            self.end_reload(&format!("{error:#}"));
            return Ok(());
        }
        let Reload { group, places, moved, .. } = next;
        self.leave_listeners();
        self.dispatch.rests_until = None;
        group.send_order_to_all(ACCEPT);
        let mut before = std::mem::replace(&mut self.group, group);
        // No worker polls these sockets after the old workers end.
        let gone = self.addresses.replace(moved, &places);
        if before.config.accept == Accept::Fdpass {
            for socket in gone.sockets().filter(is_of_site) {
                self.dispatch.evacuate(&before, socket.fd, socket.scheme);
            }
        }
        Self::retire(&mut self.retired, &mut before, &finish_at(&gone.numbers()));
        self.watch_listeners()?;
        tracing::info!(addresses = %self.listening_at(), "serving with new options");
        Ok(())
    }

    /// Orders the workers of a group to end.
    fn retire(retired: &mut Vec<Retired>, group: &mut WorkerGroup, order: &[u8]) {
        let patience = Duration::from_millis(group.config.drain_timeout_ms) + GRACE_PERIOD;
        for worker in group.take_workers() {
            worker.send_order(order);
            retired.push(Retired { worker, until: Some(Instant::now() + patience) });
        }
    }

    /// Orders all workers to end. No other program takes the connections that wait at these
    /// addresses.
    fn end(&mut self, finished: &[u32]) {
        tracing::info!("ending");
        // With the other strategies, workers accept the waiting connections.
        if self.group.config.accept == Accept::Fdpass {
            let sockets = self.addresses.sockets().filter(is_of_site);
            for socket in sockets.filter(|socket| finished.contains(&socket.address)) {
                self.dispatch.evacuate(&self.group, socket.fd, socket.scheme);
            }
        }
        self.leave_listeners();
        self.dispatch.rests_until = None;
        self.phase = Phase::Ending;
        if let Some(mut next) = self.next.take() {
            Self::retire(&mut self.retired, &mut next.group, LEAVE);
        }
        // A termination signal cancels the upgrade too.
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.send_end();
            let patience = Duration::from_millis(self.group.config.drain_timeout_ms) + GRACE_PERIOD;
            upgrade.until = Instant::now() + patience;
        }
        Self::retire(&mut self.retired, &mut self.group, &finish_at(finished));
        // The kernel refuses new clients from now on, or the next master serves them.
        self.addresses.close();
    }

    fn begin_upgrade(&mut self) -> anyhow::Result<()> {
        if self.next.is_some() || self.upgrade.is_some() {
            tracing::warn!("upgrade ignored: another change is in progress");
            return Ok(());
        }
        match Upgrade::start(&self.program, &self.words, &self.addresses) {
            Ok(upgrade) => {
                let token = EventData::new_u64(UPGRADE);
                epoll::add(&self.epoll, &upgrade.channel, token, EventFlags::IN)?;
                self.upgrade = Some(upgrade);
            }
            Err(error) => tracing::error!("could not start the new master: {error:#}"),
        }
        Ok(())
    }

    fn handle_upgrade(&mut self) {
        let Some(upgrade) = &self.upgrade else { return };
        match upgrade.channel.receive() {
            Ok(Received::Message(message)) => {
                let Some(left) = upgrade::left(&message.bytes) else { return };
                self.upgrade = None;
                // While this master is ending, the new one was ordered to end too.
                if self.phase != Phase::Ending {
                    tracing::info!("new master is serving");
                    let numbers = self.addresses.numbers();
                    let left = left.iter().filter_map(|at| numbers.get(*at).copied());
                    self.end(&left.collect::<Vec<_>>());
                }
            }
            Ok(Received::Empty) => {}
            Ok(Received::Closed) => self.end_upgrade("it exited"),
            Err(error) => self.end_upgrade(&error.to_string()),
        }
    }

    fn end_upgrade(&mut self, why: &str) {
        if let Some(upgrade) = self.upgrade.take() {
            if self.phase != Phase::Ending {
                tracing::error!(why, "new master failed; keeping this one");
            }
            upgrade.kill();
        }
    }
}
