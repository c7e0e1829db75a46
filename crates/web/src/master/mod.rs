//! The master: binds, starts workers, replaces those that die, and takes signals.

mod addresses;
mod dispatch;
mod listeners;
mod resources;
mod seat;
mod team;
mod upgrade;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Write as _;
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
use crate::{door, logging, privileges};

use addresses::{Addresses, Counts, Place, Socket};
use dispatch::Dispatch;
use seat::Worker;
use team::{CHECK, Team};
use upgrade::{Parent, Upgrade};

const EVENTS_MAX: usize = 64;
const SIGNALS: u64 = 0;
const UPGRADE: u64 = 1;
/// Listening sockets by the number of their address and their position there.
const LISTENERS: u64 = 1 << 32;
/// Positions have so many bits.
const LISTENER_BITS: u32 = 16;
const WORKERS: u64 = 1 << 62;
/// Time for workers with new options to become ready.
const RELOAD_PATIENCE: Duration = Duration::from_secs(30);
/// Workers that do not end in their time get this much more before they are killed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs a master until it is told to end. `words` is the command line behind `myriad web`.
pub(crate) fn run(source: Source, words: &[OsString], inherits: bool) -> anyhow::Result<()> {
    logging::install();
    let config = source.read()?;
    // Before any thread starts, so that all of them leave signals to the master.
    let signals = Signals::open().context("open signals")?;
    door::raise_descriptors();
    let parent = inherits.then(upgrade::inherit).transpose()?;
    Master::start(source, words.to_vec(), config, signals, parent)?.run()
}

/// What the master is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first workers are not ready yet.
    Starting,
    Serving,
    /// Ends when all workers have.
    Ending,
}

/// A worker that was told to end.
#[derive(Debug)]
struct Retired {
    worker: Worker,
    /// None when it was killed already.
    until: Option<Instant>,
}

/// A team with other options, which takes over when all of it is ready.
#[derive(Debug)]
struct Reload {
    team: Team,
    /// What it serves.
    places: Vec<Place>,
    /// Sockets of other addresses.
    moved: Addresses,
    /// How many sockets there were before.
    sockets_before: Counts,
    until: Instant,
}

/// Workers accept at the operator's address whatever the way of accepting is.
fn is_of_site(socket: &Socket<'_>) -> bool {
    socket.scheme != Scheme::Status
}

struct Master {
    source: Source,
    words: Vec<OsString>,
    /// This program's file as it was called: another version may lie there by the time of an upgrade.
    program: PathBuf,
    signals: Signals,
    epoll: OwnedFd,
    addresses: Addresses,
    team: Team,
    next: Option<Reload>,
    retired: Vec<Retired>,
    dispatch: Dispatch,
    /// What is said to the master that this one replaces, when this one serves.
    parent: Option<(Channel, Vec<u8>)>,
    upgrade: Option<Upgrade>,
    phase: Phase,
    /// When it is looked whether workers run.
    check_at: Instant,
}

impl Master {
    fn start(
        source: Source,
        words: Vec<OsString>,
        config: Config,
        signals: Signals,
        parent: Option<Parent>,
    ) -> anyhow::Result<Master> {
        let program = std::env::current_exe().context("find this program's file")?;
        // Before any client can connect: what the options name may be missing or wrong.
        let counters = Arc::new(Counters::new().context("make room for counters")?);
        let mut team = Team::new(config, &counters)?;
        let places = addresses::places(&team.config)?;
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
        let addresses = Addresses::begin(inherited, &places, &team.config)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signals, EventData::new_u64(SIGNALS), EventFlags::IN)?;
        team.start_all(&program, &addresses.shares(&Counts::new()), &epoll)?;
        let dispatch = Dispatch::new();
        Ok(Master {
            source,
            words,
            program,
            signals,
            epoll,
            addresses,
            team,
            next: None,
            retired: Vec::new(),
            dispatch,
            parent,
            upgrade: None,
            phase: Phase::Starting,
            check_at: Instant::now(),
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
                Err(error) => return Err(error).context("wait for events"),
            }
            for event in &events {
                match event.data.u64() {
                    SIGNALS => self.take_signals()?,
                    UPGRADE => self.hear_upgrade(),
                    token if token >= WORKERS => self.hear_worker(token - WORKERS)?,
                    token => self.somebody_waits(token - LISTENERS),
                }
            }
            self.act_in_time()?;
        }
        tracing::info!("ended");
        Ok(())
    }

    /// When something is to be done without an event.
    fn deadline(&self) -> Option<Instant> {
        let retired = self.retired.iter().filter_map(|retired| retired.until);
        let upgrade = self.upgrade.iter().map(|upgrade| upgrade.until);
        let upgrade = upgrade.chain(self.next.iter().map(|next| next.until));
        let dispatch = self.dispatch.rests_until;
        let check = (self.phase == Phase::Serving).then_some(self.check_at);
        let others = self.team.next_start().into_iter().chain(dispatch).chain(check);
        retired.chain(upgrade).chain(others).min()
    }

    fn act_in_time(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for retired in &mut self.retired {
            if retired.until.is_some_and(|until| until <= now) {
                tracing::warn!(slot = retired.worker.slot, "a worker does not end in its time");
                retired.worker.kill();
                retired.until = None;
            }
        }
        self.forget_threads();
        if self.upgrade.as_ref().is_some_and(|upgrade| upgrade.until <= now) {
            self.end_upgrade("it does not become ready");
        }
        if self.next.as_ref().is_some_and(|next| next.until <= now) {
            self.end_reload("it does not become ready");
        }
        if self.phase == Phase::Serving && self.check_at <= now {
            self.check_at = now + CHECK;
            self.team.check_beats();
        }
        if self.phase != Phase::Ending {
            let shares = self.addresses.shares(&self.listening());
            self.team.start_due(&self.program, &shares, &self.epoll, now);
            if self.dispatch.rests_until.is_some_and(|until| until <= now) {
                self.dispatch.rests_until = None;
                self.watch_listeners()?;
            }
        }
        Ok(())
    }

    /// Threads cannot be killed: when the program ends, it ends without those whose time is over.
    fn forget_threads(&mut self) {
        if self.phase == Phase::Ending {
            self.retired.retain(|one| !(one.worker.is_thread() && one.until.is_none()));
        }
    }

    fn take_signals(&mut self) -> anyhow::Result<()> {
        while let Some(signal) = self.signals.take() {
            match signal {
                Signal::Terminate | Signal::Interrupt if self.phase == Phase::Ending => {
                    tracing::warn!("told to end twice: not waiting for connections");
                    for retired in &mut self.retired {
                        retired.worker.kill();
                        retired.until = None;
                    }
                    self.forget_threads();
                    self.end_upgrade("told to end twice");
                }
                Signal::Terminate | Signal::Interrupt => self.end(&self.addresses.numbers()),
                _ if self.phase != Phase::Serving => {
                    tracing::warn!(?signal, "ignored: not serving yet, or no more");
                }
                Signal::Hangup => self.reload(),
                Signal::User1 => self.reopen_logs(),
                Signal::User2 => self.begin_upgrade()?,
            }
        }
        Ok(())
    }

    /// Opens the access logs again. Workers that end still write to theirs, and those that are about to
    /// begin have it open.
    fn reopen_logs(&mut self) {
        let mut opened: HashMap<PathBuf, OwnedFd> = HashMap::new();
        let retired = self.retired.iter().filter_map(|one| one.worker.access_log.as_ref());
        let teams = std::iter::once(&self.team).chain(self.next.as_ref().map(|next| &next.team));
        for path in teams.filter_map(|team| team.config.access_log.as_ref()).chain(retired) {
            if !opened.contains_key(path) {
                match log::open(path) {
                    Ok(file) => drop(opened.insert(path.clone(), file)),
                    Err(error) => tracing::error!("the access log stays as it was: {error:#}"),
                }
            }
        }
        let teams = std::iter::once(&mut self.team);
        for team in teams.chain(self.next.as_mut().map(|next| &mut next.team)) {
            let file = team.config.access_log.as_ref().and_then(|path| opened.get(path));
            if let Some(Err(error)) = file.map(|file| team.replace_log(file)) {
                tracing::error!(%error, "the access log stays as it was");
            }
        }
        // The others were killed.
        for retired in self.retired.iter().filter(|retired| retired.until.is_some()) {
            let file = retired.worker.access_log.as_ref().and_then(|path| opened.get(path));
            if let Some(file) = file {
                retired.worker.tell_with(REOPEN, &[file.as_fd()]);
            }
        }
    }

    /// Something came from a worker, or its end.
    fn hear_worker(&mut self, id: u64) -> anyhow::Result<()> {
        if let Some(index) = self.retired.iter().position(|retired| retired.worker.id == id) {
            if self.retired[index].worker.hear() == seat::Heard::Gone {
                self.retired.swap_remove(index).worker.reap();
            }
            return Ok(());
        }
        if let Some(heard) = self.team.hear(id) {
            match heard {
                seat::Heard::Ready if self.phase == Phase::Starting && self.team.is_ready() => {
                    self.begin_serving()?;
                }
                seat::Heard::Ready if self.phase == Phase::Serving => self.team.tell(id, ACCEPT),
                seat::Heard::Gone if self.phase == Phase::Starting => {
                    bail!("a worker could not start: {}", self.team.lose(id));
                }
                seat::Heard::Gone => {
                    let how = self.team.lose(id);
                    tracing::error!(how, "a worker is gone; another takes its place");
                }
                seat::Heard::Ready | seat::Heard::Nothing => {}
            }
            return Ok(());
        }
        if let Some(Reload { team, .. }) = &mut self.next {
            match team.hear(id) {
                Some(seat::Heard::Ready) if team.is_ready() => self.change_teams()?,
                Some(seat::Heard::Gone) => {
                    let how = team.lose(id);
                    self.end_reload(&how);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn begin_serving(&mut self) -> anyhow::Result<()> {
        self.addresses.open(&self.team.config)?;
        self.phase = Phase::Serving;
        self.team.tell_all(ACCEPT);
        self.watch_listeners()?;
        // Who has started it may have stopped listening long ago when a new program takes over.
        if let Err(error) = self.announce() {
            tracing::warn!(%error, "nobody can be told that this server is ready");
        }
        let config = &self.team.config;
        tracing::info!(
            addresses = %self.listening_at(),
            workers = config.worker_count(),
            mode = ?config.mode,
            accept = ?config.accept,
            "accepting connections"
        );
        if config.user.is_none() && privileges::is_root() {
            tracing::warn!("workers run as root: set user");
        }
        if matches!(config.accept, Accept::NotifyLt | Accept::NotifyEt | Accept::Serial) {
            tracing::warn!("this way of accepting is historical and has real faults");
        }
        if let Some((parent, words)) = self.parent.take()
            && let Err(error) = parent.send(&words, &[])
        {
            tracing::warn!(%error, "the master before this one cannot be told");
        }
        Ok(())
    }

    fn announce(&self) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "ready {}", self.listening_at())?;
        out.flush()
    }

    /// Where this server is found, each address behind its scheme.
    fn listening_at(&self) -> String {
        let listeners = self.addresses.each();
        let words = listeners.map(|one| format!("{}={}", one.scheme().name(), one.local()));
        words.collect::<Vec<_>>().join(" ")
    }

    /// How many sockets listen: those behind were bound for other options and do not yet.
    fn listening(&self) -> Counts {
        self.next.as_ref().map_or_else(Counts::new, |next| next.sockets_before.clone())
    }

    /// Watches the listening sockets, if that is the master's part and it does not rest.
    fn watch_listeners(&mut self) -> anyhow::Result<()> {
        if self.dispatch.is_watching || self.dispatch.rests_until.is_some() {
            return Ok(());
        }
        let flags = match self.team.config.accept {
            Accept::NotifyEt => EventFlags::IN | EventFlags::ET,
            accept if accept.is_masters() => EventFlags::IN,
            _ => return Ok(()),
        };
        let listening = self.listening();
        for socket in self.addresses.counted(&listening).filter(is_of_site) {
            let place = u64::from(socket.address) << LISTENER_BITS | socket.index as u64;
            let token = EventData::new_u64(LISTENERS + place);
            epoll::add(&self.epoll, socket.fd, token, flags).context("watch a listening socket")?;
        }
        self.dispatch.is_watching = true;
        Ok(())
    }

    fn leave_listeners(&mut self) {
        if std::mem::take(&mut self.dispatch.is_watching) {
            for socket in self.addresses.sockets().filter(is_of_site) {
                match epoll::delete(&self.epoll, socket.fd) {
                    // One that was bound for a change of options is not watched yet.
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => tracing::warn!(%error, "a listening socket cannot be left"),
                }
            }
        }
    }

    fn somebody_waits(&mut self, place: u64) {
        let address = u32::try_from(place >> LISTENER_BITS).unwrap_or(u32::MAX);
        let index = usize::try_from(place & ((1 << LISTENER_BITS) - 1)).unwrap_or(usize::MAX);
        let socket = self.addresses.socket(address, index);
        let Some(socket) = socket.filter(|_| self.dispatch.is_watching) else { return };
        if !self.dispatch.pass_on(&mut self.team, socket.fd, socket.scheme) {
            self.leave_listeners();
            self.dispatch.rest();
        }
    }

    /// Reads the options again, and starts a team with them.
    fn reload(&mut self) {
        if self.next.is_some() || self.upgrade.is_some() {
            return tracing::warn!("the last change is still under way");
        }
        let sockets_before = self.addresses.counts();
        match self.start_next(sockets_before.clone()) {
            Ok(next) => self.next = Some(next),
            Err(error) => {
                tracing::error!("the options stay as they were: {error:#}");
                self.give_up_sockets(&sockets_before);
            }
        }
    }

    fn start_next(&mut self, sockets_before: Counts) -> anyhow::Result<Reload> {
        let mut team = Team::new(self.source.read()?, self.team.counters())?;
        let places = addresses::places(&team.config)?;
        let moved = self.addresses.adapt(&places, &team.config)?;
        let planned = self.addresses.planned(&moved, &places);
        if let Err(error) = team.start_all(&self.program, &planned, &self.epoll) {
            Self::retire(&mut self.retired, &mut team, LEAVE);
            return Err(error);
        }
        Ok(Reload { team, places, moved, sockets_before, until: Instant::now() + RELOAD_PATIENCE })
    }

    /// Stays with the old options. Workers that started with the new ones have not accepted anybody.
    fn end_reload(&mut self, why: &str) {
        let Some(mut next) = self.next.take() else { return };
        Self::retire(&mut self.retired, &mut next.team, LEAVE);
        self.give_up_sockets(&next.sockets_before);
        tracing::error!(why, "a worker with the new options failed; the old ones stay");
    }

    /// Closes the sockets that were bound for options that did not come. Nobody waits there: they did
    /// not listen, unless another one of them could not.
    fn give_up_sockets(&mut self, counts: &Counts) {
        for (scheme, socket) in self.addresses.cut(counts) {
            self.dispatch.evacuate(&self.team, &socket, scheme);
        }
        if let Err(error) = self.addresses.open(&self.team.config) {
            tracing::warn!("the backlog is that of the new options: {error:#}");
        }
    }

    fn change_teams(&mut self) -> anyhow::Result<()> {
        let Some(next) = self.next.take() else { return Ok(()) };
        // Those that are there listen already, and get the backlog of these options.
        let planned = self.addresses.planned(&next.moved, &next.places);
        let config = &next.team.config;
        let opened = planned.iter().try_for_each(|share| share.listeners.open(config));
        if let Err(error) = opened {
            self.next = Some(next);
            self.end_reload(&format!("{error:#}"));
            return Ok(());
        }
        let Reload { team, places, moved, .. } = next;
        self.leave_listeners();
        self.dispatch.rests_until = None;
        team.tell_all(ACCEPT);
        let mut before = std::mem::replace(&mut self.team, team);
        // Nobody will look at these sockets again when the old workers are gone.
        let gone = self.addresses.replace(moved, &places);
        if before.config.accept == Accept::Fdpass {
            for socket in gone.sockets().filter(is_of_site) {
                self.dispatch.evacuate(&before, socket.fd, socket.scheme);
            }
        }
        Self::retire(&mut self.retired, &mut before, &finish_at(&gone.numbers()));
        self.watch_listeners()?;
        tracing::info!(addresses = %self.listening_at(), "serving with the new options");
        Ok(())
    }

    /// Has the workers of a team end.
    fn retire(retired: &mut Vec<Retired>, team: &mut Team, order: &[u8]) {
        let patience = Duration::from_millis(team.config.drain_timeout_ms) + PATIENCE;
        for worker in team.take_workers() {
            worker.tell(order);
            retired.push(Retired { worker, until: Some(Instant::now() + patience) });
        }
    }

    /// Has all workers end. No other program takes the connections that wait at these addresses.
    fn end(&mut self, finished: &[u32]) {
        tracing::info!("ending");
        // Elsewhere workers take those who wait.
        if self.team.config.accept == Accept::Fdpass {
            let sockets = self.addresses.sockets().filter(is_of_site);
            for socket in sockets.filter(|socket| finished.contains(&socket.address)) {
                self.dispatch.evacuate(&self.team, socket.fd, socket.scheme);
            }
        }
        self.leave_listeners();
        self.dispatch.rests_until = None;
        self.phase = Phase::Ending;
        if let Some(mut next) = self.next.take() {
            Self::retire(&mut self.retired, &mut next.team, LEAVE);
        }
        // Told to end is not told to be replaced.
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.tell_to_end();
            let patience = Duration::from_millis(self.team.config.drain_timeout_ms) + PATIENCE;
            upgrade.until = Instant::now() + patience;
        }
        Self::retire(&mut self.retired, &mut self.team, &finish_at(finished));
        // Who comes now is refused by the kernel, or served by the next master.
        self.addresses.close();
    }

    fn begin_upgrade(&mut self) -> anyhow::Result<()> {
        if self.next.is_some() || self.upgrade.is_some() {
            tracing::warn!("the last change is still under way");
            return Ok(());
        }
        match Upgrade::start(&self.program, &self.words, &self.addresses) {
            Ok(upgrade) => {
                let token = EventData::new_u64(UPGRADE);
                epoll::add(&self.epoll, &upgrade.channel, token, EventFlags::IN)?;
                self.upgrade = Some(upgrade);
            }
            Err(error) => tracing::error!("the program cannot be started anew: {error:#}"),
        }
        Ok(())
    }

    fn hear_upgrade(&mut self) {
        let Some(upgrade) = &self.upgrade else { return };
        match upgrade.channel.receive() {
            Ok(Received::Message(message)) => {
                let Some(left) = upgrade::left(&message.bytes) else { return };
                self.upgrade = None;
                // While this one ends, the new one has been told to end as well.
                if self.phase != Phase::Ending {
                    tracing::info!("the new master serves");
                    let numbers = self.addresses.numbers();
                    let left = left.iter().filter_map(|at| numbers.get(*at).copied());
                    self.end(&left.collect::<Vec<_>>());
                }
            }
            Ok(Received::Empty) => {}
            Ok(Received::Closed) => self.end_upgrade("it ended"),
            Err(error) => self.end_upgrade(&error.to_string()),
        }
    }

    fn end_upgrade(&mut self, why: &str) {
        if let Some(upgrade) = self.upgrade.take() {
            if self.phase != Phase::Ending {
                tracing::error!(why, "the new master failed; this one stays");
            }
            upgrade.kill();
        }
    }
}
