//! The generator: assigns ids on schedule, keeps every batch until the collector has it, and checks
//! its counters against the collector's account.

mod control;
mod ledger;
mod pace;
mod session;
mod source;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::causes::with_causes;
use parking_lot::{Condvar, Mutex};

use crate::accept::accept;
use crate::clock::Clock;
use crate::link::Link;
use crate::message::{Account, NAMED_MAX};
use crate::meter::Meter;
use crate::slots::{HANDSHAKES_MAX, Slots};
use crate::status::{GeneratorStatus, Latency, Verdict};
use crate::task::{BatchTask, Plan, TaskNames, line_number};
use crate::uniform;
use source::LineSource;

pub use ledger::{
    Assignment, Counts, FAILURES_MAX, Ledger, LedgerError, LedgerOptions, WINDOW_MAX,
};
pub use pace::{Overload, Overloaded, Pace, PaceOptions, Rate};
pub use source::Input;

/// Maximum number of connected executor threads. Each uses two threads here.
pub const SESSIONS_MAX: usize = 256;
/// Maximum number of batches that one executor thread may request at once.
pub const CREDITS_MAX: u32 = 1024;

/// Interval at which leases are checked.
const LEASE_CHECK_NS: u64 = 100_000_000;
const STATUS_NS: u64 = 1_000_000_000;
/// Maximum interval between iterations of the main loop.
const TURN_MAX: Duration = Duration::from_millis(10);

/// Configuration of a generator.
#[derive(Debug)]
pub struct GeneratorOptions {
    pub stream: u64,
    pub plan: Plan,
    pub task: Arc<dyn BatchTask>,
    /// The items of commands. Inputs of other tasks are computed.
    pub input: Option<Arc<Input>>,
    pub pace: PaceOptions,
    pub ledger: LedgerOptions,
    /// Listens for executors.
    pub listener: TcpListener,
    pub collector: SocketAddr,
    /// How long to wait for a collector or for the first executor.
    pub patience: Duration,
    /// Time to reach a collector again whose connection was lost.
    pub collector_patience: Duration,
}

/// Outcome of a run.
#[derive(Debug, Clone)]
pub struct GeneratorSummary {
    pub epoch: u32,
    /// From the start of the schedule to the last acknowledgement.
    pub took: Duration,
    pub status: GeneratorStatus,
    pub account: Account,
    /// Reasons why the run failed; empty on success.
    pub faults: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// No executor has requested tasks yet: the schedule has not started.
    Waiting,
    Running,
    /// All is acknowledged, and the account was requested from the collector.
    Closing,
    Finished,
    Failed(String),
}

impl Phase {
    fn is_last(&self) -> bool {
        matches!(self, Self::Finished | Self::Failed(_))
    }
}

#[derive(Debug)]
struct Session {
    name: String,
    credits: u32,
    /// Number of tasks in a batch that the executor prefers.
    tasks_max: u32,
    link: Link,
}

#[derive(Debug)]
struct State {
    ledger: Ledger,
    pace: Pace,
    sessions: BTreeMap<u64, Session>,
    sessions_seen: u64,
    phase: Phase,
    /// When the schedule started, and when all was acknowledged.
    began_ns: u64,
    ended_ns: u64,
    /// The current connection to the collector.
    control: Option<Link>,
    account: Option<Account>,
    /// The caller ended the run early.
    was_stopped: bool,
}

impl State {
    /// Whether nothing is assigned any more: a command can take any time, and so can each further
    /// attempt. Tasks that are short are computed to the last one that was assigned.
    fn is_draining(&self, shared: &Shared) -> bool {
        self.was_stopped && shared.task.runs_commands()
    }
}

/// State shared by the threads of a generator.
#[derive(Debug)]
struct Shared {
    stream: u64,
    epoch: u32,
    plan: Plan,
    task: Arc<dyn BatchTask>,
    source: Option<LineSource>,
    /// Ids below this one were assigned by earlier incarnations.
    first_id: u64,
    collector: SocketAddr,
    patience: Duration,
    collector_patience: Duration,
    clock: Clock,
    meter: Meter,
    greetings: Slots,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn names(&self) -> TaskNames {
        if self.source.is_some() { TaskNames::Lines } else { TaskNames::Ids }
    }

    /// Ends the run. The first failure is kept.
    fn fail(&self, reason: String) {
        let mut state = self.state.lock();
        if !state.phase.is_last() {
            tracing::error!(reason, "run failed");
            state.phase = Phase::Failed(reason);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Inputs of ids below this one are available.
    fn inputs_end(&self) -> u64 {
        self.source.as_ref().map_or(u64::MAX, LineSource::read_end)
    }

    /// Ends the schedule with the last line, and drops lines that are not needed.
    fn follow_source(&self, state: &mut State) -> Result<()> {
        let Some(source) = &self.source else { return Ok(()) };
        source.drop_below(state.ledger.first_open_id());
        if let Some(total) = source.total() {
            let assigned = state.ledger.next_id();
            if total < assigned {
                bail!("the input has {total} lines, but {assigned} were assigned before");
            }
            state.pace.limit(total.saturating_sub(self.first_id));
        }
        Ok(())
    }

    fn status(&self, state: &State) -> GeneratorStatus {
        let counts = state.ledger.counts();
        GeneratorStatus {
            stream: self.stream,
            epoch: self.epoch,
            next_id: state.ledger.next_id(),
            offered: state.pace.offered(),
            backlog: if state.pace.is_endless() { 0 } else { state.pace.backlog() },
            shed: state.pace.shed(),
            late_ticks: state.pace.late_ticks(),
            latest_tick_ns: state.pace.latest_ns(),
            expected: self.source.as_ref().and_then(LineSource::expected),
            generated: counts.generated,
            collected: counts.collected,
            in_flight: counts.in_flight,
            in_flight_frames: state.ledger.in_flight_frames(),
            resent_frames: counts.resent_frames,
            expired_frames: counts.expired_frames,
            nacked_frames: counts.nacked_frames,
            repeated_acks: counts.repeated_acks,
            executors: state.sessions.len(),
            credits: state.sessions.values().map(|session| u64::from(session.credits)).sum(),
            latency: Latency::of(state.ledger.latency_ns()),
            service: Latency::of(state.ledger.service_ns()),
            meter: self.meter.read(),
            verdict: None,
        }
    }
}

/// Runs until the schedule ends, `stop` is set, or an unrecoverable error occurs. Calls `report`
/// once a second, after checking the state equation.
pub fn run(
    options: GeneratorOptions,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&GeneratorStatus),
) -> Result<GeneratorSummary> {
    let clock = Clock::new();
    let (link, welcome, collected) = control::register(&options, stop)?;
    let mut pace_options = options.pace;
    if let Some(total) = options.task.total() {
        pace_options.tasks = Some(pace_options.tasks.map_or(total, |tasks| tasks.min(total)));
    }
    // Ids assigned by earlier incarnations count towards the requested number.
    pace_options.tasks = pace_options.tasks.map(|tasks| tasks.saturating_sub(collected.end()));
    let ledger = Ledger::new(options.ledger, &collected);
    let needed_from = ledger.first_open_id();
    let shared = Shared {
        stream: options.stream,
        epoch: welcome.epoch,
        plan: options.plan,
        task: options.task,
        source: options.input.map(|input| LineSource::new(input, needed_from)),
        first_id: collected.end(),
        collector: options.collector,
        patience: options.patience,
        collector_patience: options.collector_patience,
        clock,
        meter: Meter::default(),
        greetings: Slots::new(HANDSHAKES_MAX),
        state: Mutex::new(State {
            ledger,
            pace: Pace::new(pace_options, clock.now_ns()),
            sessions: BTreeMap::new(),
            sessions_seen: 0,
            phase: Phase::Waiting,
            began_ns: 0,
            was_stopped: false,
            ended_ns: 0,
            control: Some(link.try_clone().context("could not clone the collector's connection")?),
            account: None,
        }),
        changed: Condvar::new(),
    };
    options
        .listener
        .set_nonblocking(true)
        .context("could not configure the generator's listener")?;
    thread::scope(|scope| {
        let shared = &shared;
        scope.spawn(move || control::follow(shared, link));
        scope.spawn(move || read_source(shared));
        let listener = &options.listener;
        let is_over = || shared.state.lock().phase.is_last();
        scope.spawn(move || {
            accept(listener, &shared.greetings, is_over, |stream, slot| {
                scope.spawn(move || session::serve(scope, shared, stream, slot));
            });
        });
        let outcome = drive(shared, pace_options, stop, report);
        if let Err(error) = &outcome {
            shared.fail(with_causes(&**error));
        }
        end_sessions(shared);
        outcome
    })?;
    summary(&shared)
}

fn read_source(shared: &Shared) {
    let Some(source) = &shared.source else { return };
    let is_over = || shared.state.lock().phase.is_last();
    if let Err(error) = source.read(is_over, || _ = shared.changed.notify_all()) {
        shared.fail(with_causes(&*error));
    }
}

/// Body of the main thread: ticks, leases, status, and the end of the run.
fn drive(
    shared: &Shared,
    pace_options: PaceOptions,
    stop: &AtomicBool,
    report: &mut dyn FnMut(&GeneratorStatus),
) -> Result<()> {
    let started_ns = shared.clock.now_ns();
    let (mut leases_at_ns, mut status_at_ns) = (started_ns, started_ns + STATUS_NS);
    loop {
        let now_ns = shared.clock.now_ns();
        let mut state = shared.state.lock();
        match &state.phase {
            Phase::Finished => return Ok(()),
            Phase::Failed(reason) => bail!("{reason}"),
            // An executor without a connection to the collector requests nothing.
            Phase::Waiting if state.sessions.values().any(|session| session.credits > 0) => {
                state.pace = Pace::new(pace_options, now_ns);
                state.began_ns = now_ns;
                state.phase = Phase::Running;
            }
            Phase::Waiting => {
                let waited = Duration::from_nanos(now_ns - started_ns);
                if waited > shared.patience {
                    bail!("no executor requested tasks within {} s", shared.patience.as_secs());
                }
            }
            Phase::Running | Phase::Closing => {}
        }
        if stop.load(Ordering::Relaxed) {
            state.was_stopped = true;
            state.pace.stop();
            if state.phase == Phase::Waiting {
                state.began_ns = now_ns;
                state.phase = Phase::Running;
            }
        }
        shared.follow_source(&mut state)?;
        if state.phase == Phase::Running {
            state.pace.advance(now_ns)?;
        }
        if now_ns >= leases_at_ns {
            leases_at_ns = now_ns + LEASE_CHECK_NS;
            if state.control.is_some() {
                state.ledger.expire(now_ns);
            }
        }
        if now_ns >= status_at_ns {
            status_at_ns = now_ns + STATUS_NS;
            state.ledger.check()?;
            let status = shared.status(&state);
            drop(state);
            report(&status);
            state = shared.state.lock();
        }
        let is_collected = if state.is_draining(shared) {
            !state.ledger.has_sent()
        } else {
            state.ledger.is_empty()
        };
        let is_done = state.pace.is_finished() && is_collected;
        if state.phase == Phase::Running && is_done {
            state.phase = Phase::Closing;
            // A handshake may have delivered the last acknowledgements.
            if state.ended_ns == 0 {
                state.ended_ns = now_ns;
            }
            control::request_account(shared, &mut state);
        }
        // Outside the schedule no deadline applies.
        let is_running = state.phase == Phase::Running;
        let next_ns = if is_running { state.pace.next_tick_ns() } else { u64::MAX };
        drop(state);
        shared.changed.notify_all();
        let wait_ns = next_ns.saturating_sub(shared.clock.now_ns());
        thread::sleep(Duration::from_nanos(wait_ns).min(TURN_MAX));
    }
}

/// Notifies executors and closes all connections, so that every thread ends.
fn end_sessions(shared: &Shared) {
    shared.changed.notify_all();
    let mut state = shared.state.lock();
    if let Some(control) = state.control.take() {
        control.close();
    }
    // The sending threads send the end and close. Close connections that block in a write.
    let until_ns = shared.clock.now_ns() + FINISH_NS;
    while !state.sessions.is_empty() && shared.clock.now_ns() < until_ns {
        shared.changed.wait_for(&mut state, TURN_MAX);
    }
    for session in state.sessions.values() {
        session.link.close();
    }
}

/// Time for executors to receive the end of the run.
const FINISH_NS: u64 = 5_000_000_000;

fn summary(shared: &Shared) -> Result<GeneratorSummary> {
    let state = shared.state.lock();
    state.ledger.check()?;
    let mut status = shared.status(&state);
    let account = state.account.clone().context("the collector sent no account")?;
    let names = shared.names();
    let mut faults = faults(&status, &account, names, state.is_draining(shared));
    if let Some(source) = &shared.source
        && state.was_stopped
        && source.total() != Some(status.next_id)
    {
        faults.push(format!(
            "stopped: the lines from {} on have no result",
            line_number(status.next_id)
        ));
    }
    status.verdict = Some(Verdict {
        generated: status.next_id,
        collected: account.distinct,
        lost: status.next_id.saturating_sub(account.distinct),
        faults: faults.clone(),
    });
    let took = Duration::from_nanos(state.ended_ns.saturating_sub(state.began_ns));
    Ok(GeneratorSummary { epoch: shared.epoch, took, status, account, faults })
}

/// Returns all differences between the two ledgers. `is_drained`: assigned lines were given up.
fn faults(
    status: &GeneratorStatus,
    account: &Account,
    names: TaskNames,
    is_drained: bool,
) -> Vec<String> {
    let mut faults = Vec::new();
    if is_drained && account.distinct < status.next_id {
        let lines = match status.next_id - account.distinct {
            1 => "1 assigned line has".to_owned(),
            count => format!("{count} assigned lines have"),
        };
        let missing = name_ranges(names, &account.missing);
        faults.push(format!("stopped: {lines} no result: {missing}"));
    } else if status.in_flight > 0
        || account.distinct != status.next_id
        || !account.missing.is_empty()
    {
        faults.push(format!(
            "{} tasks generated, {} collected: lost {}",
            status.next_id,
            account.distinct,
            name_ranges(names, &account.missing)
        ));
    }
    if account.collected != account.distinct {
        let doubled = account.collected.saturating_sub(account.distinct);
        faults.push(format!("{doubled} tasks were counted twice"));
    }
    if account.failed > 0 {
        let items = if account.failed == 1 { "item" } else { "items" };
        let ids = name_ids(names, &account.failed_ids);
        faults.push(format!("{} {items} failed: {ids}", account.failed));
    }
    if account.verified_wrong > 0 {
        let checked = account.verified_right.saturating_add(account.verified_wrong);
        let ids = name_ids(names, &account.wrong_ids);
        let wrong = account.verified_wrong;
        faults.push(format!("{wrong} of {checked} checked results are wrong: {ids}"));
    }
    if let Some(found) = uniform::chi_square(&account.sample_positions)
        && found > uniform::CHI_SQUARE_MAX
    {
        faults.push(format!(
            "the samples are unevenly spread over their windows: chi-square {found:.1} exceeds {}",
            uniform::CHI_SQUARE_MAX
        ));
    }
    faults
}

fn name_ranges(names: TaskNames, ranges: &[(u64, u64)]) -> String {
    let ranges = ranges.iter().take(NAMED_MAX);
    ranges.map(|(start, end)| names.range(*start, *end)).collect::<Vec<_>>().join(", ")
}

/// Names some ids in order.
fn name_ids(names: TaskNames, ids: &[u64]) -> String {
    let mut ids: Vec<u64> = ids.iter().copied().take(NAMED_MAX).collect();
    ids.sort_unstable();
    names.list(&ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::STATUS_BYTES_MAX;
    use crate::message::NAME_BYTES_MAX;
    use crate::monitor::REASON_BYTES_MAX;
    use crate::status::{CollectorStatus, ExecutorStatus, PartState, Report, Status};
    use crate::task::TaskError;

    fn even() -> (GeneratorStatus, Account) {
        let status = GeneratorStatus { next_id: 100, generated: 100, ..Default::default() };
        (status, Account { collected: 100, distinct: 100, ..Default::default() })
    }

    #[test]
    fn equal_ledgers_have_no_fault() {
        let (status, account) = even();
        assert_eq!(faults(&status, &account, TaskNames::Ids, false), Vec::<String>::new());
    }

    #[test]
    fn lines_are_counted_from_one() {
        let (status, mut account) = even();
        (account.failed, account.failed_ids) = (3, vec![26, 6, 16]);
        let check = |names, expected: &str| {
            assert_eq!(faults(&status, &account, names, false), [expected]);
        };
        check(TaskNames::Lines, "3 items failed: lines 7, 17, 27");
        check(TaskNames::Ids, "3 items failed: ids 6, 16, 26");
        assert_eq!(TaskNames::Lines.list(&[6]), "line 7");
        assert_eq!(TaskNames::Lines.range(0, 3), "lines 1 to 3");
        let failed = TaskError::Failed { id: 6, reason: "exit status: 3".to_owned() };
        assert_eq!(failed.to_string(), "line 7: exit status: 3");
    }

    #[test]
    fn lost_doubled_and_wrong_tasks_are_named() {
        let (status, mut account) = even();
        account.distinct = 90;
        account.missing = vec![(10, 15), (20, 21)];
        account.verified_right = 5;
        account.verified_wrong = 2;
        account.wrong_ids = vec![9, 7];
        assert_eq!(
            faults(&status, &account, TaskNames::Ids, false),
            [
                "100 tasks generated, 90 collected: lost ids 10 to 14, id 20",
                "10 tasks were counted twice",
                "2 of 7 checked results are wrong: ids 7, 9",
            ]
        );
    }

    /// The longest status that this program sends.
    #[test]
    fn statuses_fit() {
        let account = Account {
            missing: vec![(u64::MAX, u64::MAX); NAMED_MAX],
            wrong_ids: vec![u64::MAX; NAMED_MAX],
            failed: u64::MAX,
            failed_ids: vec![u64::MAX; NAMED_MAX],
            sample_positions: vec![u64::MAX; uniform::CLASSES],
            ..Default::default()
        };
        let collector = CollectorStatus { account: account.clone(), ..Default::default() };
        let verdict = Verdict {
            faults: faults(&GeneratorStatus::default(), &account, TaskNames::Lines, false),
            ..Default::default()
        };
        let generator = GeneratorStatus { verdict: Some(verdict), ..Default::default() };
        let executor = ExecutorStatus { name: "\0".repeat(NAME_BYTES_MAX), ..Default::default() };
        for status in
            [Status::Collector(collector), Status::Generator(generator), Status::Executor(executor)]
        {
            let state = PartState::Failed { reason: "\0".repeat(REASON_BYTES_MAX) };
            let report = Report { state, status };
            let bytes = serde_json::to_vec(&report).unwrap().len();
            assert!(bytes <= STATUS_BYTES_MAX - 2_000, "{bytes}");
        }
    }

    /// All samples are from the first twentieth of each window, as if the sample kept the first
    /// arrivals.
    #[test]
    fn samples_that_are_not_uniform_are_a_fault() {
        let (status, mut account) = even();
        account.sample_positions = vec![500; uniform::CLASSES];
        assert_eq!(faults(&status, &account, TaskNames::Ids, false), Vec::<String>::new());
        account.sample_positions = vec![0; uniform::CLASSES];
        account.sample_positions[0] = 100;
        let found = faults(&status, &account, TaskNames::Ids, false);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("chi-square 1900.0 exceeds 63.7"), "{found:?}");
    }
}
