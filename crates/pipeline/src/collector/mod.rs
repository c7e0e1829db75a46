//! The collector: accepts each result once, checks it, records it and acknowledges it.

mod control;
mod ledger;
mod results;
mod sample;
mod session;
mod sink;
mod stream;
mod verify;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::causes::with_causes;
use parking_lot::Mutex;

use crate::accept::accept;
use crate::clock::Clock;
use crate::frame::PAYLOAD_BYTES_MAX;
use crate::link::{Link, LinkError};
use crate::message::{Account, Hello};
use crate::meter::Meter;
use crate::slots::{HANDSHAKES_MAX, Slot, Slots};
use crate::status::CollectorStatus;
use crate::task::{BatchTask, Maker, Plan};
use crate::uniform;
use stream::Stream;

pub use ledger::{Accepted, StreamLedger};
pub use results::{Existing, Order, Results, ResultsOptions};
pub use sample::{Reservoir, SAMPLE_MAX};
pub use sink::{LogContents, Recovered, RecoveredStream, Sink};
pub use verify::{Verify, WindowReport, check_all, percent, sample_dir};

/// Maximum number of streams.
pub const STREAMS_MAX: usize = 64;
/// Maximum number of connections from executors and generators.
pub const CONNECTIONS_MAX: usize = 512;
/// Total size limit of the result buffers: each executor connection buffers one batch, up to
/// [`BATCH_BYTES_RESERVED`] at any time.
pub const RESULTS_BYTES_MAX: usize = 4 << 30;
/// A larger batch waits until it fits into [`LARGE_BATCHES_BYTES_MAX`].
const BATCH_BYTES_RESERVED: usize = 16 << 20;
/// Limit for what exceeds the reserved part of all buffers.
const LARGE_BATCHES_BYTES_MAX: usize = 1 << 30;

const _: () = assert!(PAYLOAD_BYTES_MAX <= LARGE_BATCHES_BYTES_MAX);
/// Batches of results that an executor may have in flight.
pub const CREDITS: u32 = 16;

const TURN: Duration = Duration::from_millis(20);
const STATUS_NS: u64 = 1_000_000_000;

/// Configuration of a collector.
#[derive(Debug)]
pub struct CollectorOptions {
    pub listener: TcpListener,
    pub make_task: Maker,
    pub verify: Verify,
    /// Seed of the sampling.
    pub seed: u64,
    /// Directory for samples and accounts.
    pub out: Option<PathBuf>,
    /// Directory of the durable sink.
    pub log: Option<PathBuf>,
    /// Files of results. At each start of a collector they are written again from the log, or empty
    /// without one.
    pub results: Option<ResultsOptions>,
    /// The id and the plan of the only generator, if they are known: a log with other tasks is
    /// refused before the files of results are changed.
    pub plan: Option<(u64, Plan)>,
    /// Whether to keep running after all generators have finished.
    pub stay: bool,
}

/// State shared by the threads of a collector.
#[derive(Debug)]
struct Shared {
    make_task: Maker,
    verify: Verify,
    seed: u64,
    out: Option<PathBuf>,
    /// The files of results, until the first stream takes them.
    results: Mutex<Option<Results>>,
    sink: Option<Sink>,
    /// The directory of the sink.
    log: Option<PathBuf>,
    clock: Clock,
    meter: Meter,
    greetings: Slots,
    /// Unused part of [`RESULTS_BYTES_MAX`].
    results_bytes: Slots,
    /// Unused part of [`LARGE_BATCHES_BYTES_MAX`].
    large_batches_bytes: Slots,
    /// Tasks recovered from the log at startup.
    recovered: u64,
    /// Held while a stream is created, which may take long and opens files: each is created once.
    making: Mutex<()>,
    state: Mutex<State>,
    is_over: AtomicBool,
}

#[derive(Debug)]
struct State {
    streams: BTreeMap<u64, Arc<Stream>>,
    /// All connections, so that they can be closed.
    links: BTreeMap<u64, Link>,
    links_seen: u64,
    executors: usize,
    failure: Option<String>,
}

impl Shared {
    /// Stops the collector after a failure of its disk or its bookkeeping. Keeps the first reason.
    fn fail(&self, reason: String) {
        tracing::error!(reason, "collector failed");
        self.state.lock().failure.get_or_insert(reason);
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn stream(&self, id: u64) -> Option<Arc<Stream>> {
        self.state.lock().streams.get(&id).cloned()
    }

    fn streams(&self) -> Vec<Arc<Stream>> {
        self.state.lock().streams.values().cloned().collect()
    }

    /// Creates the files of results, with the results of the log, for the first stream.
    fn open_results(&self, options: &ResultsOptions, contents: &LogContents) -> Result<()> {
        let first = contents.first.and_then(|id| self.stream(id));
        let task: Option<&dyn BatchTask> = first.as_ref().map(|stream| &*stream.task);
        let results = if let Some(sink) = &self.sink {
            sink.restore(contents, task, options)?
        } else {
            options.check_existing(&BTreeSet::new())?;
            Results::create(options)?
        };
        match &first {
            Some(stream) => stream.state.lock().results = Some(results),
            None => *self.results.lock() = Some(results),
        }
        Ok(())
    }

    fn status(&self) -> CollectorStatus {
        let mut account = Account::default();
        for stream in self.streams() {
            add(&mut account, &stream.account());
        }
        let executors = self.state.lock().executors;
        let (recovered, meter) = (self.recovered, self.meter.read());
        CollectorStatus { executors, recovered, account, meter }
    }
}

fn add(sum: &mut Account, one: &Account) {
    sum.collected += one.collected;
    sum.distinct += one.distinct;
    sum.duplicate += one.duplicate;
    sum.stale += one.stale;
    sum.damaged_frames += one.damaged_frames;
    sum.digest = sum.digest.wrapping_add(one.digest);
    sum.verified_right += one.verified_right;
    sum.verified_wrong += one.verified_wrong;
    sum.failed += one.failed;
    sum.sample_positions.resize(uniform::CLASSES, 0);
    for (sum, one) in sum.sample_positions.iter_mut().zip(&one.sample_positions) {
        *sum += one;
    }
}

/// A collector that has read its log and created its files.
#[derive(Debug)]
pub struct Collector {
    shared: Shared,
    listener: TcpListener,
    stay: bool,
}

impl Collector {
    pub fn open(options: CollectorOptions) -> Result<Self> {
        let clock = Clock::new();
        let (sink, Recovered { streams, contents }) = match &options.log {
            None => (None, Recovered::default()),
            Some(dir) => {
                let (sink, recovered) = Sink::open(dir, clock, &options.make_task)?;
                (Some(sink), recovered)
            }
        };
        let shared = Shared {
            make_task: options.make_task,
            verify: options.verify,
            seed: options.seed,
            out: options.out,
            results: Mutex::new(None),
            sink,
            log: options.log,
            clock,
            meter: Meter::default(),
            greetings: Slots::new(HANDSHAKES_MAX),
            results_bytes: Slots::new(RESULTS_BYTES_MAX),
            large_batches_bytes: Slots::new(LARGE_BATCHES_BYTES_MAX),
            recovered: streams.values().map(|known| known.ledger.collected()).sum(),
            making: Mutex::new(()),
            state: Mutex::new(State {
                streams: BTreeMap::new(),
                links: BTreeMap::new(),
                links_seen: 0,
                executors: 0,
                failure: None,
            }),
            is_over: AtomicBool::new(false),
        };
        for (id, known) in streams {
            let stream = Stream::recovered(&shared, id, known);
            shared.state.lock().streams.insert(id, Arc::new(stream));
        }
        if let Some((id, plan)) = &options.plan
            && let Some(stream) = shared.stream(*id)
            && !stream.plan.has_same_tasks(plan)
        {
            bail!("{}", stream.owner_text(&shared, plan));
        }
        if let Some(options) = &options.results {
            shared.open_results(options, &contents)?;
        }
        options
            .listener
            .set_nonblocking(true)
            .context("could not configure the collector's listener")?;
        Ok(Self { shared, listener: options.listener, stay: options.stay })
    }

    /// Runs until all generators have received their accounts, or `stop` is set. Calls `report` once
    /// a second. Returns the totals of all streams.
    pub fn run(
        self,
        stop: &AtomicBool,
        report: &mut dyn FnMut(&CollectorStatus),
    ) -> Result<CollectorStatus> {
        let Self { shared, listener, stay } = &self;
        thread::scope(|scope| {
            scope.spawn(move || {
                accept(
                    listener,
                    &shared.greetings,
                    || shared.is_over(),
                    |stream, slot| {
                        scope.spawn(move || serve(scope, shared, stream, slot));
                    },
                );
            });
            watch(shared, *stay, stop, report);
            shared.is_over.store(true, Ordering::SeqCst);
            for link in shared.state.lock().links.values() {
                link.close();
            }
            for stream in shared.streams() {
                stream.wake();
            }
        });
        if let Some(sink) = &shared.sink {
            sink.close()?;
        }
        let failure = shared.state.lock().failure.take();
        if let Some(reason) = failure {
            bail!("{reason}");
        }
        Ok(shared.status())
    }
}

/// Body of the main thread: ends windows, reports the status, and detects the end of the run.
fn watch(shared: &Shared, stay: bool, stop: &AtomicBool, report: &mut dyn FnMut(&CollectorStatus)) {
    let mut status_at_ns = shared.clock.now_ns() + STATUS_NS;
    // Reused, so that no iteration allocates.
    let mut streams: Vec<Arc<Stream>> = Vec::with_capacity(STREAMS_MAX);
    while !shared.is_over() && !stop.load(Ordering::Relaxed) {
        let now_ns = shared.clock.now_ns();
        streams.clear();
        streams.extend(shared.state.lock().streams.values().cloned());
        for stream in &streams {
            if let Err(error) = stream.end_window_if_due(shared, now_ns) {
                shared.fail(with_causes(&*error));
            }
        }
        if now_ns >= status_at_ns {
            status_at_ns = now_ns + STATUS_NS;
            for stream in &streams {
                if let Err(error) = stream.flush() {
                    shared.fail(with_causes(&*error));
                }
            }
            report(&shared.status());
        }
        // A stream that was only recovered from the log waits for its generator.
        let mut began = streams.iter().filter(|stream| stream.has_begun()).peekable();
        if !stay && began.peek().is_some() && began.all(|stream| stream.is_finished(now_ns)) {
            return;
        }
        thread::sleep(TURN);
    }
}

/// Serves one connection from the handshake to its end.
fn serve<'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'scope Shared,
    stream: TcpStream,
    slot: Slot<'_>,
) {
    let greeted = greet(shared, stream);
    drop(slot);
    let outcome = greeted.and_then(|(id, link, hello)| {
        let outcome = match hello {
            Hello::Generator { stream, epoch, plan } => {
                control::serve(scope, shared, link, (stream, epoch, plan))
            }
            Hello::Executor { stream, name } => session::serve(shared, link, stream, &name),
            Hello::Reporter { .. } => refuse(link, "this is a collector, not a monitor"),
        };
        if let Some(link) = shared.state.lock().links.remove(&id) {
            link.close();
        }
        outcome
    });
    match outcome {
        Ok(()) | Err(LinkError::Closed) => {}
        Err(error) if shared.is_over() => tracing::debug!(%error, "connection ended"),
        Err(error) => tracing::warn!(%error, "connection ended"),
    }
}

fn greet(shared: &Shared, stream: TcpStream) -> Result<(u64, Link, Hello), LinkError> {
    let mut link = Link::new(stream)?;
    let hello = link.receive_hello()?;
    let mut state = shared.state.lock();
    if state.links.len() >= CONNECTIONS_MAX {
        drop(state);
        refuse(link, "too many connections")?;
        return Err(LinkError::Closed);
    }
    let id = state.links_seen;
    state.links_seen += 1;
    state.links.insert(id, link.try_clone()?);
    drop(state);
    // The thread that closes all connections may have run just before.
    if shared.is_over() {
        link.close();
    }
    Ok((id, link, hello))
}

fn refuse(mut link: Link, reason: &str) -> Result<(), LinkError> {
    link.refuse(reason);
    Err(LinkError::Refused(reason.to_owned()))
}
