//! A server, its clients, its disk and its crashes.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use base::stages::CycleClock;
use base::time::{Now, UnixMs};
use binlog::{Disk, FaultDisk};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use reactor::{
    ConnId, Connections, Context, Flow, Handler, Level, Limits, Links, Output, Peer, Sim, SimClient,
};
use wire::resp::{Reply, decode_reply};

use super::model::{Bytes, Command, Model, command};
use super::oracle::{Call, Oracle, Session};
use super::slow_disk::{SlowWriter, slow_disk};
use super::sync_disk::SyncDisk;
use crate::commands::long_requests;
use crate::config::{Config, Durability, Internals, Settings};
use crate::engine::mail::Mail;
use crate::engine::server_state::{ReactorCount, ServerState};
use crate::engine::snapshot_taker::{Progress, Taker};
use crate::engine::snapshots::Purpose;
use crate::handler::{ReactorHandler, State};
use crate::recovery::recover;
use crate::serve::{build_state, join_group};
use crate::statements::stored_schema::install;

/// More rounds than this without becoming idle are a livelock.
const ROUNDS_MAX: usize = 20_000;
/// Time that passes when there is no work: the log writes without a request, and reactors tick.
const IDLE_NS: u64 = 10_000_000;
const DRAIN_TIMEOUT_MS: u64 = 5_000;
/// Texts of injected disk faults, which may make a start fail.
const INJECTED: [&str; 2] = ["the power is off", "device error"];

/// A server that is broken on purpose, which the oracle must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Canary {
    /// Replies are sent before their data is durable.
    OpensGates,
    /// A reply overtakes earlier ones.
    Reorders,
    /// The disk reports syncs without performing them.
    LyingDisk,
}

/// The configuration of a server, unchanged across restarts.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) reactors: usize,
    /// Whether there is one more reactor, the spare.
    pub(super) has_spare: bool,
    pub(super) durability: Durability,
    pub(super) segment_bytes: u64,
    pub(super) lane_bytes: u64,
    /// Simulated time that each clock reading takes.
    pub(super) step_ns: u64,
    /// Duration of a log sync. 0: instantaneous, and this thread writes the log.
    pub(super) sync_ns: u64,
    pub(super) canary: Option<Canary>,
    /// More options, as on the command line.
    pub(super) options: Vec<(&'static str, String)>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            reactors: 2,
            has_spare: false,
            durability: Durability::Always,
            segment_bytes: 32 * 1024,
            lane_bytes: 16 * 1024,
            step_ns: 100,
            sync_ns: 0,
            canary: None,
            options: Vec::new(),
        }
    }
}

/// Counts of the interesting events in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Sum of the ends of recovered logs.
    pub(super) log_bytes: u64,
    pub(super) failed_logs: usize,
    pub(super) power_failures: usize,
    pub(super) failed_starts: usize,
    /// Recoveries from a snapshot.
    pub(super) snapshots: usize,
    /// Recoveries from several segments.
    pub(super) segments: usize,
    /// Recoveries that lost commands.
    pub(super) losses: usize,
    /// Connections that moved.
    pub(super) moves: usize,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Seen) {
        self.log_bytes += other.log_bytes;
        self.failed_logs += other.failed_logs;
        self.power_failures += other.power_failures;
        self.failed_starts += other.failed_starts;
        self.snapshots += other.snapshots;
        self.segments += other.segments;
        self.losses += other.losses;
        self.moves += other.moves;
    }
}

/// A part of a connection's input that a reactor has run.
#[derive(Debug)]
struct Noted {
    id: ConnId,
    consumed: usize,
    call: Call,
    /// When each command ran.
    times: Vec<UnixMs>,
}

type Journal = Rc<RefCell<VecDeque<Noted>>>;

/// The server's handler, with a journal of the order in which it runs input.
pub(super) struct Witness {
    server: ReactorHandler,
    shared: Arc<ServerState>,
    journal: Journal,
    canary: Option<Canary>,
}

impl Handler for Witness {
    type Session = crate::handler::Session;
    type Mail = Mail;

    fn open(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        peer: &Peer,
        out: &mut Output,
    ) -> Self::Session {
        self.server.open(cx, id, peer, out)
    }

    fn data(
        &mut self,
        cx: &mut Context<'_, Mail>,
        id: ConnId,
        session: &mut Self::Session,
        input: &[u8],
        out: &mut Output,
    ) -> Flow {
        let log = &self.shared.log;
        let (before, log_failed) = (log.next().0, !log.takes_writes());
        let start = out.buffer().len();
        let flow = self.server.data(cx, id, session, input, out);
        if self.canary == Some(Canary::Reorders) {
            out.buffer()[start..].reverse();
        }
        let now_ms = cx.now().unix.0;
        let call = Call { now_ms, before, after: self.shared.log.next().0, log_failed };
        let times = self.server.take_times();
        self.journal.borrow_mut().push_back(Noted { id, consumed: flow.consumed, call, times });
        flow
    }

    fn closed(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, session: Self::Session) {
        self.server.closed(cx, id, session);
    }

    fn peer_left(&mut self, id: ConnId, session: &mut Self::Session) -> bool {
        self.server.peer_left(id, session)
    }

    fn input_ended(&mut self, id: ConnId, session: &mut Self::Session) -> bool {
        self.server.input_ended(id, session)
    }

    fn closing(&mut self, id: ConnId, session: &mut Self::Session, out: &mut Output) {
        self.server.closing(id, session, out);
    }

    fn depart(&mut self, id: ConnId, session: &mut Self::Session) {
        self.server.depart(id, session);
    }

    fn arrive(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, session: &mut Self::Session) {
        self.server.arrive(cx, id, session);
    }

    fn may_migrate(&self, session: &Self::Session) -> bool {
        self.server.may_migrate(session)
    }

    fn may_expire(&self, session: &Self::Session) -> bool {
        self.server.may_expire(session)
    }

    fn mail(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Self::Session>,
        mail: Mail,
    ) {
        self.server.mail(cx, connections, mail);
    }

    fn timer(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Self::Session>,
        token: u64,
    ) {
        self.server.timer(cx, connections, token);
    }

    fn no_room(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, session: &mut Self::Session) {
        self.server.no_room(cx, id, session);
    }

    fn has_room(&mut self, cx: &mut Context<'_, Mail>, id: ConnId, session: &mut Self::Session) {
        self.server.has_room(cx, id, session);
    }

    fn before_wait(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Self::Session>,
    ) {
        self.server.before_wait(cx, connections);
        if self.canary == Some(Canary::OpensGates) {
            cx.set_level(Level::Local, self.shared.log.next().0);
        }
    }

    fn draining(
        &mut self,
        cx: &mut Context<'_, Mail>,
        connections: &mut Connections<'_, Self::Session>,
    ) {
        self.server.draining(cx, connections);
    }
}

/// The client's end of a connection, and its oracle state.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) sim: SimClient,
    pub(super) session: Session,
    /// Commands that the server has not run, with their encoded length.
    sent: VecDeque<(Command, usize)>,
    /// Whether the client broke the connection or disconnected.
    pub(super) is_removed: bool,
    /// Whether it has sent MULTI, but no EXEC since.
    pub(super) is_in_multi: bool,
}

impl Client {
    /// Whether all requests have been answered.
    pub(super) fn is_served(&self) -> bool {
        self.sent.is_empty() && self.session.outstanding() == 0
    }

    /// Commands that the server has not run.
    pub(super) fn waiting(&self) -> usize {
        self.sent.len()
    }

    /// Whether nothing more can be sent or received.
    pub(super) fn is_over(&self) -> bool {
        self.is_removed || self.sim.is_closed()
    }
}

/// The server from one start to its end.
struct Life {
    sim: Sim<Witness>,
    state: State,
    taker: Taker,
    /// The cycle counter after a reactor's last turn.
    stepped: u64,
    /// Writes the log if syncs take time.
    slow_writer: Option<SlowWriter>,
}

pub(super) struct World {
    pub(super) random: SmallRng,
    pub(super) disk: Arc<FaultDisk>,
    pub(super) plan: Plan,
    pub(super) clients: Vec<Client>,
    /// Clients that were replaced; the server may still run their requests.
    departed: Vec<Client>,
    pub(super) oracle: Oracle,
    pub(super) seen: Seen,
    life: Life,
    journal: Journal,
    /// Run times of requests from clients without oracle state.
    asked: Vec<UnixMs>,
    /// The log could not grow at some time since the start: it refused writes then, and accepts
    /// later ones.
    pub(super) log_stalled: bool,
    /// How far the wall clock has been set back.
    lag_ns: u64,
}

impl World {
    pub(super) fn new(seed: u64, plan: Plan) -> World {
        let mut random = SmallRng::seed_from_u64(seed);
        let disk = Arc::new(FaultDisk::new(random.next_u64()));
        let journal = Journal::default();
        let life = begin_life(&plan, &disk, &journal, Now::default(), 0, &mut random).unwrap();
        let (clients, departed, oracle) = (Vec::new(), Vec::new(), Oracle::default());
        let seen = Seen::default();
        World {
            random,
            disk,
            plan,
            clients,
            departed,
            oracle,
            seen,
            life,
            journal,
            asked: Vec::new(),
            log_stalled: false,
            lag_ns: 0,
        }
    }

    pub(super) fn sim(&mut self) -> &mut Sim<Witness> {
        &mut self.life.sim
    }

    pub(super) fn shared(&self) -> &Arc<ServerState> {
        &self.life.state.shared
    }

    /// What a thread outside the reactors locks stripes with.
    pub(super) fn params(&self) -> store::Params {
        let shared = self.shared();
        let (settings, seed) = (shared.settings.load(), shared.keyspace.seed());
        crate::engine::server_state::params(&settings, base::time::UnixMs(0), seed, 1)
    }

    pub(super) fn state(&self) -> &State {
        &self.life.state
    }

    /// The handler of a reactor.
    pub(super) fn server(&mut self, reactor: usize) -> &ReactorHandler {
        &self.life.sim.handler(reactor).server
    }

    pub(super) fn log_failed(&self) -> bool {
        self.life.state.shared.log.poisoned().is_some()
    }

    /// Connects a new client and returns its number.
    pub(super) fn connect(&mut self) -> usize {
        let session = Session::new(self.plan.durability == Durability::Always);
        let sim = self.life.sim.connect();
        let sent = VecDeque::new();
        self.clients.push(Client { sim, session, sent, is_removed: false, is_in_multi: false });
        self.clients.len() - 1
    }

    /// Replaces a disconnected client with a new one.
    pub(super) fn reconnect(&mut self, client: usize) {
        self.connect();
        let old = self.clients.swap_remove(client);
        self.departed.push(old);
    }

    pub(super) fn send(&mut self, client: usize, command: Command) {
        let mut bytes = Vec::new();
        encode(&command, &mut bytes);
        let client = &mut self.clients[client];
        match command[0].as_slice() {
            b"MULTI" => client.is_in_multi = true,
            b"EXEC" => client.is_in_multi = false,
            _ => {}
        }
        client.sim.send(&bytes);
        client.sent.push_back((command, bytes.len()));
    }

    /// Runs a turn of a reactor if it is due, and returns whether it was. Time passes as the turn
    /// reads the clock.
    pub(super) fn step(&mut self, reactor: usize) -> bool {
        let worked = self.life.sim.step(reactor);
        let cycles = &self.life.state.shared.cycles;
        let began = std::mem::replace(&mut self.life.stepped, cycles.now());
        let ns = cycles.delta_ns(began, self.life.stepped);
        self.life.sim.advance(ns);
        self.read_journal();
        worked
    }

    fn read_journal(&mut self) {
        while let Some(noted) = self.journal.borrow_mut().pop_front() {
            let Noted { id, consumed, call, times } = noted;
            let mut clients = self.clients.iter_mut().chain(&mut self.departed);
            let Some(client) = clients.find(|client| client.sim.id() == id) else {
                // The client that queries after a crash has no oracle state.
                self.asked.extend(times);
                continue;
            };
            let mut left = consumed;
            for now in times {
                let (command, bytes) = client.sent.pop_front().expect("only what was sent is run");
                left = left.checked_sub(bytes).expect("requests are run whole");
                let call = Call { now_ms: now.0, ..call };
                self.oracle.ran(&mut client.session, command, call);
            }
            assert_eq!(left, 0, "all input belongs to whole requests");
        }
    }

    /// Receives and checks the bytes that have arrived at a client.
    pub(super) fn receive(&mut self, client: usize) {
        let durable = self.life.state.shared.log.durable().0;
        let client = &mut self.clients[client];
        let bytes = client.sim.received();
        self.oracle.arrived(&mut client.session, &bytes, durable);
    }

    pub(super) fn receive_all(&mut self) {
        (0..self.clients.len()).for_each(|client| self.receive(client));
    }

    /// Runs one round of the log's writer, or everything that it has completed by now if syncs take
    /// time.
    pub(super) fn write_log(&mut self) -> bool {
        let has_run = self.run_long_requests();
        let now = self.life.sim.now().mono;
        if let Some(writer) = &mut self.life.slow_writer {
            return writer.run_until(now) | has_run;
        }
        let outcome = self.life.state.shared.log.writer_step(&|| now);
        self.log_stalled |= self.life.state.shared.log.stall().is_some();
        outcome.bytes_written > 0 || outcome.synced || has_run
    }

    /// Runs what threads outside the reactors would run. Returns whether there was anything.
    pub(super) fn run_long_requests(&mut self) -> bool {
        let now = self.life.sim.now();
        long_requests::run_waiting(&self.life.state.shared, now)
    }

    /// Whether the log's writer waits for the disk.
    pub(super) fn is_syncing(&self) -> bool {
        self.life.slow_writer.as_ref().is_some_and(SlowWriter::is_syncing)
    }

    /// Sets the wall clock back before the server starts again.
    pub(super) fn set_clock_back(&mut self, ns: u64) {
        self.lag_ns += ns;
        self.life.sim.set_clock_back(ns);
    }

    pub(super) fn advance(&mut self, ns: u64) {
        self.life.sim.advance(ns);
    }

    /// Starts a snapshot, unless one is in progress.
    pub(super) fn begin_snapshot(&mut self) {
        let now = self.life.sim.now().mono;
        let Life { state: State { shared, .. }, taker, .. } = &mut self.life;
        let next = shared.log.next().0;
        if shared.snapshots.begin(Purpose::Save, next, now).is_ok() {
            taker.take_request(shared);
        }
    }

    /// Starts a snapshot if the server has requested one.
    pub(super) fn take_snapshot_request(&mut self) {
        let Life { state: State { shared, .. }, taker, .. } = &mut self.life;
        taker.take_request(shared);
    }

    /// Takes the next parts of a snapshot in progress.
    pub(super) fn go_on_with_snapshot(&mut self, steps: usize) -> Progress {
        let Life { state: State { shared, .. }, taker, .. } = &mut self.life;
        let mut progress = Progress::More;
        for _ in 0..steps {
            if progress == Progress::More {
                progress = taker.step(shared);
            }
        }
        progress
    }

    /// Runs everything until it is idle, with time passing in between.
    pub(super) fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            let mut worked = self.write_log();
            for reactor in 0..self.plan.reactors {
                worked |= self.step(reactor);
            }
            self.receive_all();
            if worked {
                quiet = 0;
            } else {
                self.advance(IDLE_NS);
                quiet += 1;
            }
            // Longer than a tick of the reactors and of the log.
            let everybody_served = self.clients.iter().all(|one| one.is_over() || one.is_served());
            if quiet > 30 || (everybody_served && quiet > 2) {
                return;
            }
        }
        panic!("the server does not become idle");
    }

    /// Checks that every client is served, after [`World::settle`] without log faults.
    pub(super) fn check_served(&self) {
        for (number, client) in self.clients.iter().enumerate().filter(|(_, one)| !one.is_removed) {
            assert!(!client.sim.is_closed(), "client {number} was closed for no reason");
            assert!(
                client.is_served(),
                "client {number} waits for {} replies, and {} commands were not run",
                client.session.outstanding(),
                client.sent.len()
            );
        }
    }

    /// Kills the server, and with `power_cut` the machine, and starts it again, repeatedly if it
    /// crashes during recovery. It must have kept what it promised.
    pub(super) fn crash(&mut self, power_cut: bool, recovery_faults: binlog::Faults) {
        self.die(power_cut, recovery_faults);
        self.compare();
    }

    /// Like [`World::crash`], but the caller checks the remaining data.
    pub(super) fn die(&mut self, power_cut: bool, recovery_faults: binlog::Faults) {
        self.receive_all();
        self.clients.clear();
        self.departed.clear();
        self.journal.borrow_mut().clear();
        self.log_stalled = false;
        let now = self.life.sim.now();
        self.life.slow_writer = None;
        self.disk.set_faults(binlog::Faults::default());
        if power_cut {
            self.disk.power_cut();
        }
        self.disk.set_faults(recovery_faults);
        let lag_ns = self.lag_ns;
        let World { plan, disk, journal, random, seen, .. } = self;
        let begun = begin_life(plan, disk, journal, now, lag_ns, random);
        self.life = begun
            .or_else(|error| {
                let text = format!("{error:#}");
                let is_injected = INJECTED.iter().any(|cause| text.contains(cause));
                assert!(is_injected, "the server does not start again: {text}");
                seen.failed_starts += 1;
                disk.set_faults(binlog::Faults::default());
                if recovery_faults.power_off_after.is_some() {
                    disk.power_cut();
                }
                begin_life(plan, disk, journal, now, lag_ns, random)
            })
            .unwrap_or_else(|error| panic!("the server does not start again: {error:#}"));
        self.disk.set_faults(binlog::Faults::default());
        let names = self.disk.list().unwrap();
        let snapshots = names.iter().filter(|name| name.starts_with("snapshot")).count();
        let segments = names.iter().filter(|name| name.starts_with("log-")).count();
        self.seen.snapshots += snapshots;
        self.seen.segments += usize::from(segments > 1);
    }

    /// Kills the process and starts it again, without disk faults.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        self.clients.clear();
        self.departed.clear();
        self.journal.borrow_mut().clear();
        let now = self.life.sim.now();
        self.life.slow_writer = None;
        let World { plan, disk, journal, random, lag_ns, .. } = self;
        self.life = begin_life(plan, disk, journal, now, *lag_ns, random)?;
        Ok(())
    }

    /// Compares the recovered data with the model, and continues from there.
    fn compare(&mut self) {
        let end = self.life.state.shared.log.next().0;
        self.seen.log_bytes += end;
        let questions = super::chaos::questions();
        let mut bytes = Vec::new();
        for question in questions.iter().chain([&command(&["KEYS", "*"])]) {
            encode(question, &mut bytes);
        }
        self.asked.clear();
        let client = self.life.sim.connect();
        client.send(&bytes);
        for _ in 0..ROUNDS_MAX {
            let mut worked = self.write_log();
            for reactor in 0..self.plan.reactors {
                worked |= self.step(reactor);
            }
            if !worked {
                break;
            }
        }
        let answers = client.received();
        client.close();
        let times = std::mem::take(&mut self.asked);
        assert_eq!(times.len(), questions.len() + 1, "not all questions were answered");
        let lost = self.oracle.recovered(end, |model| fits(model, &questions, &answers, &times));
        self.seen.losses += usize::from(lost > 0);
    }

    /// Replaces the machine by one with only a copy of the newest snapshot. The caller checks the
    /// data, and the oracle restarts with no data.
    pub(super) fn restore_snapshot_alone(&mut self) {
        let names = self.disk.list().unwrap();
        let name = names.into_iter().filter(|name| name.starts_with("snapshot-")).max().unwrap();
        let bytes = self.disk.contents(&name).unwrap();
        self.restore_snapshot(&name, &bytes);
    }

    /// Like [`World::restore_snapshot_alone`], with any snapshot.
    pub(super) fn restore_snapshot(&mut self, name: &str, bytes: &[u8]) {
        self.oracle = Oracle::default();
        self.disk = Arc::new(FaultDisk::new(self.random.next_u64()));
        self.disk.put(name, bytes);
        self.restart().unwrap();
    }

    /// Returns the replies to raw Redis requests.
    pub(super) fn ask(&mut self, requests: &[u8]) -> Bytes {
        let client = self.life.sim.connect();
        client.send(requests);
        let mut answers = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let mut worked = self.write_log();
            for reactor in 0..self.plan.reactors {
                worked |= self.step(reactor);
            }
            answers.extend(client.received());
            if !worked {
                break;
            }
        }
        client.close();
        answers
    }

    /// False after a power failure during a disk write.
    pub(super) fn is_powered(&self) -> bool {
        self.disk.list().is_ok()
    }

    /// Runs the log's helper thread. The writer uses the same disk, and reports errors for both.
    pub(super) fn prepare_segment(&mut self) {
        let _ = self.life.state.shared.log.prepare_segment();
    }

    /// Moves a connection to another reactor.
    pub(super) fn migrate(&mut self, client: usize, reactor: usize) -> bool {
        let id = self.clients[client].sim.id();
        let moves = self.life.sim.migrate(id, reactor);
        self.seen.moves += usize::from(moves);
        moves
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.random.random_bool(probability)
    }
}

fn begin_life(
    plan: &Plan,
    disk: &Arc<FaultDisk>,
    journal: &Journal,
    now: Now,
    lag_ns: u64,
    random: &mut SmallRng,
) -> anyhow::Result<Life> {
    let mut config = Config::default();
    config.take_argument("durability", plan.durability.word())?;
    for (name, value) in &plan.options {
        config.take_argument(name, value)?;
    }
    let settings = Settings {
        // Smaller than the options allow, so that few commands fill segments and lanes.
        log_segment_bytes: plan.segment_bytes,
        internals: Internals {
            log_lane_bytes_max: plan.lane_bytes,
            log_group_bytes_max: plan.lane_bytes * (plan.reactors as u64 + 1),
            ..config.settings().internals.clone()
        },
        ..config.settings().clone()
    };
    let disk: Arc<dyn Disk> = match plan.canary {
        Some(Canary::LyingDisk) => Arc::new(SyncDisk::lying(disk)),
        _ if plan.sync_ns != 0 => Arc::new(slow_disk(disk)),
        _ => Arc::<FaultDisk>::clone(disk),
    };
    let reactors = ReactorCount { regular: plan.reactors, has_spare: plan.has_spare };
    let recovered = recover(&disk, &settings, reactors.all(), now.unix, random.next_u64())?;
    let limits = Arc::new(Limits::default());
    settings.apply_to(&limits);
    let clock = CycleClock::stepping(plan.step_ns);
    let state = build_state(config, &disk, recovered, reactors, now, clock);
    let shared = Arc::clone(&state.shared);
    install(&shared, &state.statements.schema, now.unix, random.next_u64())?;
    // The log's thread does the same during a snapshot.
    shared.log.request_write();
    while shared.log.writer_step(&|| now.mono).bytes_written > 0 {}
    let group = reactor::Config {
        reactors: plan.reactors,
        has_spare: plan.has_spare,
        placement: reactor::Placement::RoundRobin,
        limits,
        drain_timeout_ms: DRAIN_TIMEOUT_MS,
    };
    let witness = |index, links: &Links<Mail>| Witness {
        server: join_group(&state, index, links),
        shared: Arc::clone(&shared),
        journal: Rc::clone(journal),
        canary: plan.canary,
    };
    let mut sim = Sim::new(&group, reactor::Faults::default(), random.next_u64(), witness);
    sim.advance(now.mono.since(sim.now().mono));
    sim.set_clock_back(lag_ns);
    sim.links().wakers().for_each(|waker| waker.wake());
    let taker = Taker::new(&shared.snapshots);
    let slow_writer = (plan.sync_ns != 0).then(|| SlowWriter::start(&shared.log, plan.sync_ns));
    let stepped = shared.cycles.now();
    Ok(Life { sim, state, taker, stepped, slow_writer })
}

fn encode(command: &Command, bytes: &mut Bytes) {
    let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
    wire::resp::encode_request(&words, bytes);
}

/// Whether a server with the model's data would have sent these replies. The last reply lists all
/// keys, in any order. `times`: when each request was run, including the last.
fn fits(model: &Model, questions: &[Command], answers: &[u8], times: &[UnixMs]) -> bool {
    let mut expected = Vec::new();
    let mut model = model.clone();
    for (question, now) in questions.iter().zip(times) {
        model.run(question, now.0, &mut expected);
    }
    let Some(rest) = answers.strip_prefix(expected.as_slice()) else { return false };
    let Ok(Some((Reply::Array(items), _))) = decode_reply(rest) else { return false };
    let names = items.into_iter().map(|item| match item {
        Reply::Bulk(name) => name,
        other => panic!("KEYS answered {other:?}"),
    });
    let asked = times.last().expect("for KEYS");
    names.collect::<BTreeSet<Bytes>>() == model.names(asked.0)
}
