//! No request keeps its reactor for long.
//!
//! Every command runs at its documented limits (`docs/reference/limits.md`), and so do statements
//! of CQL and requests of HTTP, on a server with one reactor, while another client of that reactor
//! sends PING. The delay of a PING is the smaller of two measures: its wall-clock time, and the
//! processor time that the reactor used meanwhile. Other load on the machine can only increase
//! both: it takes processors away, which the second measure excludes, and caches. So a request that
//! seems to take too long is tried again, and its shortest time is the most accurate.

mod cases;
mod statements;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::cases::{Case, Crowd, Step};
use super::ask::expect_simple;
use super::bystander::open_on_regular_reactor;
use super::subject::Subject;
use super::{Check, Outcome, Scene, until};
use crate::resp::{Connection, Value};
use crate::transcript::coverage;

/// A request that stalls others for longer fails. The slowest took 84 ms on one machine with two
/// cores, 125 ms on another, and 201 ms there on another day: benchmarks/record/diary.md, "Slowest
/// requests within the limits".
const STALL_MAX: Duration = Duration::from_millis(300);
/// Target for the delay of others by one request.
const STALL_TARGET: Duration = Duration::from_millis(20);
/// Maximum number of tries of a request: other load on the machine is not constant.
const TRIES: usize = 20;
/// Pause between two tries.
const TRY_PERIOD: Duration = Duration::from_millis(250);
/// How many of the slowest requests are shown.
const SHOWN: usize = 10;
/// Pause between two PINGs: they must not use much of the reactor's time themselves.
const PING_PERIOD: Duration = Duration::from_micros(500);
const REACTOR_THREAD: &str = "r00";

const OPTIONS: &[&str] = &[
    "--reactors",
    "1",
    "--durability",
    "never",
    "--cql",
    "127.0.0.1:0",
    "--http",
    "127.0.0.1:0",
    "--snapshot-log-bytes",
    "0",
    "--cluster-view",
    "yes",
];

pub(super) const CHECKS: &[Check] =
    &[Check { name: "stalls", suits_any_server: false, run: stalls }];

/// How long a request delayed others.
#[derive(Debug)]
struct Stall {
    name: String,
    time: Duration,
}

fn stalls(scene: &Scene<'_>) -> Result<Outcome> {
    let subject = scene.start(OPTIONS)?;
    let cases = cases::parse()?;
    every_command_has_a_case(&subject, &cases)?;
    let mut probe = Probe::start(&subject)?;
    let limit = ElementLimit::of(&subject)?;
    let crowd = limit.lifted(|| {
        cases::fill(&subject)?;
        Crowd::gather(&subject)
    })?;
    let mut stalls = Vec::new();
    for case in &cases {
        if case.requests.is_empty() {
            continue;
        }
        let time = probe.shortest(|probe| {
            let mut connection = subject.connect()?;
            let mut set_up = || case.setup.iter().try_for_each(|step| run(&mut connection, step));
            // The commands that a transaction queues count towards the limit.
            if case.queues { set_up() } else { limit.lifted(set_up) }?;
            probe.measure(|| case.requests.iter().try_for_each(|it| run(&mut connection, it)))
        });
        let time = time.with_context(|| case.name.clone())?;
        stalls.push(Stall { name: case.name.clone(), time });
    }
    statements::run(&subject, &mut probe, &mut stalls)?;
    drop(crowd);
    probe.stop()?;
    subject.stop()?;
    report(stalls)
}

/// Sends a request, once or several times, and reads the answers. None may be an error.
fn run(connection: &mut Connection, step: &Step) -> Result<()> {
    let bytes = crate::resp::request(&step.words);
    connection.send_raw(&bytes.repeat(step.times))?;
    for _ in 0..step.times * step.replies() {
        if let Value::Error(text) = connection.read()? {
            let words = step.words.iter().take(3).map(|word| String::from_utf8_lossy(word));
            let shown: String = words.collect::<Vec<_>>().join(" ").chars().take(60).collect();
            bail!("{shown}: {}", String::from_utf8_lossy(&text));
        }
    }
    Ok(())
}

const ELEMENTS_MAX: &str = "elements-per-command-max";

/// The option of this name, disabled while requests are prepared.
struct ElementLimit<'s> {
    subject: &'s Subject,
    /// The server's default.
    elements: String,
}

impl ElementLimit<'_> {
    fn of(subject: &Subject) -> Result<ElementLimit<'_>> {
        let reply = subject.connect()?.call(&["CONFIG", "GET", ELEMENTS_MAX])?;
        let Value::Array(Some(pair)) = &reply else { bail!("{reply:?}") };
        let [_, Value::Bulk(Some(elements))] = &pair[..] else { bail!("{reply:?}") };
        Ok(ElementLimit { subject, elements: String::from_utf8(elements.clone())? })
    }

    fn lifted<T>(&self, prepare: impl FnOnce() -> Result<T>) -> Result<T> {
        self.set("0")?;
        let prepared = prepare();
        self.set(&self.elements)?;
        prepared
    }

    fn set(&self, elements: &str) -> Result<()> {
        let set = self.subject.connect()?.call(&["CONFIG", "SET", ELEMENTS_MAX, elements])?;
        expect_simple(&set, "OK")
    }
}

/// Prints the slowest requests. Fails if one is too slow.
fn report(mut stalls: Vec<Stall>) -> Result<Outcome> {
    stalls.sort_by_key(|stall| std::cmp::Reverse(stall.time));
    let above = stalls.iter().filter(|stall| stall.time > STALL_TARGET).count();
    println!("        {} requests, {above} above {STALL_TARGET:?}; the slowest:", stalls.len());
    for stall in stalls.iter().take(SHOWN) {
        println!("        {:6.1} ms  {}", stall.time.as_secs_f64() * 1e3, stall.name);
    }
    let too_slow: Vec<&str> = stalls
        .iter()
        .filter(|stall| stall.time > STALL_MAX)
        .map(|stall| stall.name.as_str())
        .collect();
    ensure!(too_slow.is_empty(), "these stall other clients: {}", too_slow.join("; "));
    Ok(Outcome::Passed)
}

fn every_command_has_a_case(subject: &Subject, cases: &[Case]) -> Result<()> {
    let names = coverage::names(&subject.address)?;
    for name in &names {
        ensure!(cases.iter().any(|case| case.command == *name), "no case of the command {name}");
    }
    for case in cases {
        let container = format!("{}|", case.command);
        let is_known = names.iter().any(|it| *it == case.command || it.starts_with(&container));
        ensure!(is_known, "there is no command {}", case.command);
    }
    Ok(())
}

/// A client that sends PING repeatedly.
#[derive(Debug)]
struct Probe {
    state: Arc<State>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct State {
    rounds: AtomicU64,
    longest_ns: AtomicU64,
    stopping: AtomicBool,
}

impl Probe {
    fn start(subject: &Subject) -> Result<Probe> {
        let schedule = subject.thread(REACTOR_THREAD)?.join("schedstat");
        let mut connection = open_on_regular_reactor(&subject.address)?;
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            while !shared.stopping.load(Ordering::Relaxed) {
                let (sent, used_before_ns) = (Instant::now(), processor_ns(&schedule)?);
                expect_simple(&connection.call(&["PING"])?, "PONG")?;
                let used_ns = processor_ns(&schedule)? - used_before_ns;
                let waited_ns = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX);
                shared.longest_ns.fetch_max(used_ns.min(waited_ns), Ordering::Relaxed);
                shared.rounds.fetch_add(1, Ordering::Release);
                thread::sleep(PING_PERIOD);
            }
            Ok(())
        });
        Ok(Probe { state, thread: Some(thread) })
    }

    /// The shortest of several tries, or the first that is short enough.
    fn shortest(
        &mut self,
        mut attempt: impl FnMut(&mut Probe) -> Result<Duration>,
    ) -> Result<Duration> {
        let mut shortest = Duration::MAX;
        for _ in 0..TRIES {
            shortest = shortest.min(attempt(self)?);
            if shortest <= STALL_MAX {
                break;
            }
            thread::sleep(TRY_PERIOD);
        }
        Ok(shortest)
    }

    /// How long `request` stalls other clients.
    fn measure(&mut self, request: impl FnOnce() -> Result<()>) -> Result<Duration> {
        self.settle()?;
        self.state.longest_ns.store(0, Ordering::Relaxed);
        request()?;
        self.settle()?;
        Ok(Duration::from_nanos(self.state.longest_ns.load(Ordering::Relaxed)))
    }

    /// Waits until a PING was sent and answered.
    fn settle(&self) -> Result<()> {
        let rounds = self.state.rounds.load(Ordering::Acquire);
        until("PING is answered", || {
            ensure!(self.thread.as_ref().is_some_and(|it| !it.is_finished()), "PING has failed");
            Ok(self.state.rounds.load(Ordering::Acquire) >= rounds + 2)
        })
    }

    fn stop(&mut self) -> Result<()> {
        self.state.stopping.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("stopped once")?;
        thread.join().ok().context("the thread that sends PING panicked")?
    }
}

/// The processor time of a thread. While it runs, the value lags by a few milliseconds.
// Source: the kernel's `Documentation/scheduler/sched-stats.rst`: the first field is the time on the
// processor in nanoseconds
fn processor_ns(schedule: &Path) -> Result<u64> {
    let text = fs::read_to_string(schedule).context("read the reactor's time")?;
    let first = text.split_whitespace().next().context("schedstat is empty")?;
    first.parse().context("schedstat")
}
