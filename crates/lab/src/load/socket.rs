//! Load over sockets. The director opens connections, determines the measured phase, and collects
//! the results of the threads.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use reactor::{Config, Control, Group, GroupError, GroupStopper, Limits, Links, Placement};

use super::arrivals::Share;
use super::check::check;
use super::client::{Client, HttpPlan, Plan, Requests};
use super::cql::{self, Statements};
use super::draws::{Draws, SharedDraws, filler};
use super::shared::{Mail, Notice, Patience, Shared, now_ns, to_ns};
use super::spec::{
    HttpConnection, HttpVersion, LoadEvent, LoadReport, LoadSpec, Protocol, SocketWork, Warmup,
};
use super::tally::Tally;
use super::template::Mix;
use crate::measure::threads::{ThreadSample, threads, uses_between};
use crate::stats::histogram::encode;
use crate::stats::is_steady;

/// Rates of a warm-up are compared in windows of this length, for one second.
const WARMUP_WINDOW_NS: u64 = 100_000_000;
const WARMUP_WINDOWS: usize = 10;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Reports are made without waiting.
const REPORT_NS: u64 = 10_000_000_000;
/// Schedules begin shortly after all threads have been notified, so that none starts late.
const START_DELAY_NS: u64 = 2_000_000;

type EventSink<'a> = &'a mut dyn FnMut(LoadEvent) -> Result<()>;

/// Generates the load and reports the result.
pub(crate) fn run(
    spec: &LoadSpec,
    work: &SocketWork,
    patience: Patience,
    emit: EventSink<'_>,
) -> Result<()> {
    check(spec, work)?;
    let mut director = Director::start(spec, work, patience)?;
    let report = director.direct(emit);
    let is_interrupted = director.is_interrupted;
    let ended = director.end();
    let report = Box::new(report?);
    ended?;
    if is_interrupted {
        emit(LoadEvent::Interrupted(report))?;
        return Err(interrupted());
    }
    emit(LoadEvent::Done(report))
}

fn interrupted() -> anyhow::Error {
    anyhow!("interrupted by a signal")
}

/// One of the loads, with its threads.
struct Part {
    shared: Arc<Shared>,
    reactors: Range<usize>,
}

struct Director<'a> {
    spec: &'a LoadSpec,
    patience: Patience,
    /// The first load, which leads, then those of `beside` in the order of their names.
    parts: Vec<Part>,
    links: Links<Mail>,
    notices: Receiver<Notice>,
    stopper: GroupStopper,
    group: JoinHandle<Result<(), GroupError>>,
    /// Whether each thread has reported that it is idle.
    idle: Vec<bool>,
    stalled: Vec<bool>,
    ready: usize,
    /// A termination signal was received in the measured phase.
    is_interrupted: bool,
}

/// Reason why waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Time,
    /// All threads are idle.
    Idle,
    /// All connections have stalled.
    Stalled,
    /// A termination signal was received.
    Interrupted,
}

impl<'a> Director<'a> {
    /// Starts the threads and connects. On return, all connections are set up.
    fn start(spec: &'a LoadSpec, work: &SocketWork, patience: Patience) -> Result<Director<'a>> {
        let works: Vec<&SocketWork> =
            std::iter::once(work).chain(spec.side_loads.values()).collect();
        works.iter().try_for_each(|work| cql::prepare_schema(work))?;
        let parts = parts(spec, &works, patience);
        let threads = parts.iter().map(|part| part.reactors.len()).sum();
        let (sender, notices) = channel();
        let limits = Limits::default();
        // The load bounds the data in flight. Pausing reads while requests cannot be sent could
        // make both sides wait for each other.
        limits.output_pause_bytes.set(u64::MAX);
        limits.output_bytes_max.set(u64::MAX);
        let config = Config {
            reactors: threads,
            has_spare: false,
            // Connections stay on their thread.
            placement: Placement::RoundRobin,
            limits: Arc::new(limits),
            drain_timeout_ms: 100,
        };
        let clients = works.iter().zip(&parts);
        let mut clients = clients.flat_map(|(work, part)| clients_of(spec, work, part, &sender));
        let group = Group::start(&config, Vec::new(), |_, _| {
            clients.next().expect("there is one for each reactor")
        })?;
        let possible = group.descriptors().connections_possible;
        let adopter = group.adopter();
        let (links, stopper) = (group.links().clone(), group.stopper());
        let run = move || {
            group.run(|_| {
                // After the director has ended, the notice is not needed.
                let _ = sender.send(Notice::Interrupted);
                Control::Continue
            })
        };
        let group = std::thread::Builder::new().name("signals".to_owned()).spawn(run)?;
        let mut director = Director {
            spec,
            patience,
            parts,
            links,
            notices,
            stopper,
            group,
            idle: vec![false; threads],
            stalled: vec![false; threads],
            ready: 0,
            is_interrupted: false,
        };
        let connected = (|| {
            let connections: usize = works.iter().map(|work| work.connections).sum();
            ensure!(
                connections as u64 <= possible,
                "{connections} connections exceed the {possible} that the limit of open files allows"
            );
            let mut opened = 0;
            for (work, part) in works.iter().zip(&director.parts) {
                // HTTP connections are opened together with the load.
                let count = if work.http.is_some() { 0 } else { work.connections };
                let reactors = part.reactors.clone().cycle().take(count);
                for (number, reactor) in reactors.enumerate() {
                    let stream = connect(work.address, number, work.connections)?;
                    adopter.adopt(reactor, stream)?;
                }
                opened += count;
            }
            director.wait_until_ready(opened)
        })();
        if let Err(error) = connected {
            director.end()?;
            return Err(error);
        }
        Ok(director)
    }

    fn wait_until_ready(&mut self, connections: usize) -> Result<()> {
        let until_ns = now_ns() + to_ns(self.patience.reply);
        while self.ready < connections {
            if self.is_interrupted {
                return Err(interrupted());
            }
            if !self.receive_notice(until_ns)? {
                bail!(
                    "{} of {connections} connections had no reply to their setup within {:?}",
                    connections - self.ready,
                    self.patience.reply
                );
            }
        }
        Ok(())
    }

    /// The leading load: it determines the warm-up and the measured phase.
    fn lead(&self) -> &Part {
        &self.parts[0]
    }

    /// Runs the warm-up, the measured phase, and the drain.
    fn direct(&mut self, emit: EventSink<'_>) -> Result<LoadReport> {
        let start_ns = now_ns() + START_DELAY_NS;
        let duration_ns = self.spec.duration_ms * 1_000_000;
        if let Warmup::Fixed { ms } = self.spec.warmup {
            self.set_phase(start_ns + ms * 1_000_000, duration_ns);
        }
        emit(LoadEvent::Connected)?;
        self.broadcast(Mail::Begin { start_ns });
        if let Warmup::Steady { max_ms } = self.spec.warmup {
            self.wait_until_steady(start_ns + max_ms * 1_000_000)?;
            self.set_phase(now_ns(), duration_ns);
        }
        let mut from_ns = self.lead().shared.from_ns.load(Ordering::Relaxed);
        let woken = self.wait_until(from_ns)?;
        if woken != Woken::Time && now_ns() < from_ns {
            // The server has stalled. The report must show it.
            from_ns = now_ns();
            self.set_phase(from_ns, duration_ns);
        }
        if self.is_interrupted {
            return Err(interrupted());
        }
        let before = threads(std::process::id())
            .context("could not read the usage of this process's threads")?;
        emit(LoadEvent::Measuring { warmup_ms: from_ns.saturating_sub(start_ns) / 1_000_000 })?;
        let is_stalled = self.measure(from_ns, emit)?;
        let after = threads(std::process::id())
            .context("could not read the usage of this process's threads")?;
        emit(LoadEvent::Measured)?;
        self.idle.fill(false);
        self.broadcast(Mail::Finish);
        if !is_stalled {
            self.drain()?;
        }
        let tallies = self.gather()?;
        Ok(self.report(&tallies, &before, &after))
    }

    fn set_phase(&self, from_ns: u64, duration_ns: u64) {
        for part in &self.parts {
            part.shared.until_ns.store(from_ns + duration_ns, Ordering::Relaxed);
            part.shared.from_ns.store(from_ns, Ordering::Relaxed);
        }
    }

    /// Waits until the rate is steady, or the time has elapsed.
    fn wait_until_steady(&mut self, latest_ns: u64) -> Result<()> {
        let mut rates = Vec::new();
        let (mut at_ns, mut replies) = (now_ns(), 0);
        while at_ns < latest_ns {
            let woken = self.wait_until((at_ns + WARMUP_WINDOW_NS).min(latest_ns))?;
            let (now_ns, now_replies) = (now_ns(), self.lead().shared.replies());
            rates.push(per_second(now_replies - replies, now_ns - at_ns));
            (at_ns, replies) = (now_ns, now_replies);
            let last = rates.len().checked_sub(WARMUP_WINDOWS).map(|first| &rates[first..]);
            if last.is_some_and(is_steady) || woken != Woken::Time {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reports each window, until the time has elapsed or no more replies arrive. Returns true if
    /// the server has stalled.
    fn measure(&mut self, from_ns: u64, emit: EventSink<'_>) -> Result<bool> {
        let window_ns = self.spec.window_ms * 1_000_000;
        let shared = Arc::clone(&self.lead().shared);
        let until_ns = shared.until_ns.load(Ordering::Relaxed);
        let (mut window_end_ns, mut replies) = (from_ns, shared.replies());
        loop {
            window_end_ns = (window_end_ns + window_ns).min(until_ns);
            let woken = self.wait_until(window_end_ns)?;
            let now_replies = shared.replies();
            emit(LoadEvent::Window { operations: now_replies - replies })?;
            replies = now_replies;
            match woken {
                Woken::Time if window_end_ns < until_ns => {}
                Woken::Time => return Ok(false),
                Woken::Idle | Woken::Stalled | Woken::Interrupted => {
                    // Ends with the last reply, whose time is in the report.
                    let until_ns = now_ns().min(until_ns);
                    for part in &self.parts {
                        part.shared.until_ns.store(until_ns, Ordering::Relaxed);
                    }
                    return Ok(woken == Woken::Stalled);
                }
            }
        }
    }

    /// Waits a limited time for replies in flight.
    fn drain(&mut self) -> Result<()> {
        let until_ns = now_ns() + to_ns(self.patience.drain);
        let all = 0..self.idle.len();
        while !self.is_idle(&all) && self.receive_notice(until_ns)? {}
        Ok(())
    }

    /// Collects the results of each load, in the order of the parts.
    fn gather(&mut self) -> Result<Vec<Tally>> {
        self.broadcast(Mail::Report);
        let mut tallies: Vec<Tally> = self.parts.iter().map(|_| Tally::new()).collect();
        let until_ns = now_ns() + REPORT_NS;
        let mut missing = self.links.reactors();
        while missing > 0 {
            match self.next_notice(until_ns)? {
                None => bail!("a generator thread does not respond"),
                Some(Notice::Report { reactor, tally }) => {
                    let part = self.parts.iter().position(|part| part.reactors.contains(&reactor));
                    tallies[part.expect("every reactor is of a part")].merge(&tally);
                    missing -= 1;
                }
                Some(notice) => self.handle_notice(notice)?,
            }
        }
        // The work was completed early: the duration ends with the last reply.
        let (lead, last_reply_ns) = (&self.lead().shared, tallies[0].last_reply_ns);
        let until_ns = lead.until_ns.load(Ordering::Relaxed);
        let from_ns = lead.from_ns.load(Ordering::Relaxed);
        if lead.is_spent() && (from_ns..until_ns).contains(&last_reply_ns) {
            lead.until_ns.store(last_reply_ns + 1, Ordering::Relaxed);
        }
        Ok(tallies)
    }

    /// Builds the report of the first load, including those of the others.
    fn report(
        &self,
        tallies: &[Tally],
        before: &[ThreadSample],
        after: &[ThreadSample],
    ) -> LoadReport {
        let window_ns = self.spec.window_ms * 1_000_000;
        let reports = self.parts.iter().zip(tallies);
        let mut reports = reports.map(|(part, tally)| report(tally, &part.shared, window_ns));
        let first = reports.next().expect("there is a first load");
        let side_loads: BTreeMap<String, LoadReport> =
            self.spec.side_loads.keys().cloned().zip(reports).collect();
        LoadReport { threads: uses_between(before, after), side_loads, ..first }
    }

    fn broadcast(&self, mail: Mail) {
        for mailbox in self.links.mailboxes() {
            // A few messages per run. A reactor that has ended has panicked, which is reported when
            // the group ends.
            let _ = mailbox.send(mail);
        }
    }

    fn is_idle(&self, reactors: &Range<usize>) -> bool {
        self.idle[reactors.clone()].iter().all(|&is_idle| is_idle)
    }

    /// Sleeps until then, or until the threads of the first load are all idle or stalled, or a
    /// termination signal is received.
    fn wait_until(&mut self, ns: u64) -> Result<Woken> {
        let lead = self.lead().reactors.clone();
        loop {
            if self.is_interrupted {
                return Ok(Woken::Interrupted);
            }
            if self.is_idle(&lead) {
                return Ok(Woken::Idle);
            }
            if lead.clone().all(|reactor| self.idle[reactor] || self.stalled[reactor]) {
                return Ok(Woken::Stalled);
            }
            if !self.receive_notice(ns)? {
                return Ok(Woken::Time);
            }
        }
    }

    /// Receives one notice. Returns false if none arrives in time.
    fn receive_notice(&mut self, until_ns: u64) -> Result<bool> {
        match self.next_notice(until_ns)? {
            None => Ok(false),
            Some(notice) => self.handle_notice(notice).map(|()| true),
        }
    }

    fn next_notice(&mut self, until_ns: u64) -> Result<Option<Notice>> {
        let timeout = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        match self.notices.recv_timeout(timeout) {
            Ok(notice) => Ok(Some(notice)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the generator threads exited"),
        }
    }

    fn handle_notice(&mut self, notice: Notice) -> Result<()> {
        match notice {
            Notice::Ready => self.ready += 1,
            Notice::Idle { reactor } => self.idle[reactor] = true,
            Notice::Stalled { reactor } => self.stalled[reactor] = true,
            Notice::Failed(reason) => bail!(reason),
            Notice::Interrupted => self.is_interrupted = true,
            Notice::Report { .. } => bail!("unexpected report of a generator thread"),
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.stopper.stop();
        match self.group.join() {
            Ok(ended) => Ok(ended?),
            Err(_) => bail!("the signal thread panicked"),
        }
    }
}

fn connect(address: SocketAddr, number: usize, of: usize) -> Result<TcpStream> {
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).with_context(|| {
        format!("could not connect to {address} (connection {} of {of})", number + 1)
    })
}

/// Assigns threads to loads: reactors are numbered over all of them.
fn parts(spec: &LoadSpec, works: &[&SocketWork], patience: Patience) -> Vec<Part> {
    let mut first = 0;
    let part = |(index, work): (usize, &&SocketWork)| {
        let threads = work.threads.min(work.connections);
        let reactors = first..first + threads;
        first = reactors.end;
        let operations_max = spec.operations_max.filter(|_| index == 0);
        let shared = Shared::new(threads, operations_max, to_ns(patience.reply));
        Part { shared: Arc::new(shared), reactors }
    };
    works.iter().enumerate().map(part).collect()
}

fn clients_of(
    spec: &LoadSpec,
    work: &SocketWork,
    part: &Part,
    notices: &Sender<Notice>,
) -> Vec<Client> {
    let threads = part.reactors.len();
    let filler = filler(work.value_bytes, spec.seed);
    let draws = Arc::new(SharedDraws::default());
    let (setup, setup_count) = setup(work);
    let users = if work.users == 0 { work.connections } else { work.users };
    let client = |(index, reactor): (usize, usize)| {
        let plan = Plan {
            protocol: work.protocol,
            setup: Arc::clone(&setup),
            setup_count,
            login: work.cql.as_ref().map(|cql| {
                let password = work.password.as_deref().unwrap_or_default();
                cql::login_token(&cql.user, password)
            }),
            http: http_plan(work, share(work.connections, threads, index)),
            users: share(users, threads, index),
            sharing: work.sharing,
            pipeline: u32::try_from(work.pipeline).expect("PIPELINE_MAX was checked"),
            arrival: work.arrival,
            share: Share { index, of: threads },
            window_ns: spec.window_ms * 1_000_000,
            // Arrivals must be independent of the keys, and of other loads.
            seed: !spec.seed.wrapping_add(part.reactors.start as u64),
        };
        let filler = Arc::clone(&filler);
        let requests = match &work.cql {
            None => Requests::Words(Mix::new(work, &filler)),
            Some(cql) => Requests::Statements(Statements::new(work, cql, &filler)),
        };
        // The loads must not draw the same keys in the same order: one would request what another
        // has just written.
        let draws = Draws::new(work, Arc::clone(&draws), filler, spec.seed, reactor as u64);
        Client::new(plan, Arc::clone(&part.shared), notices.clone(), requests, draws)
    };
    part.reactors.clone().enumerate().map(client).collect()
}

/// Divides a total among threads.
fn share(all: usize, threads: usize, index: usize) -> usize {
    all / threads + usize::from(index < all % threads)
}

/// Returns the HTTP configuration of a thread with this many connections; `None` for other
/// protocols.
fn http_plan(work: &SocketWork, connections: usize) -> Option<HttpPlan> {
    let http = work.http.as_deref()?;
    Some(HttpPlan {
        address: work.address,
        connections,
        is_kept: http.connection == HttpConnection::KeepAlive,
        is_headless: http.version == HttpVersion::V0_9,
        is_to_head: work.mix.iter().all(|operation| operation.words[0] == "HEAD"),
        ignores_answers: http.ignores_answers,
        body_bytes: http.body_bytes,
        timeout_ns: http.timeout_ms * 1_000_000,
    })
}

/// Returns the first requests of every connection, and their number.
fn setup(work: &SocketWork) -> (Arc<[u8]>, usize) {
    let mut bytes = Vec::new();
    if work.protocol == Protocol::Cql {
        cql::ENCODER.startup(0, &cql::STARTUP, &mut bytes);
        return (bytes.into(), 1);
    }
    if work.protocol == Protocol::Http {
        return (bytes.into(), 0);
    }
    let password = work.password.as_ref().map(|password| vec!["AUTH", password]);
    let others = work.setup.iter().map(|words| words.iter().map(String::as_str).collect());
    let requests: Vec<Vec<&str>> = password.into_iter().chain(others).collect();
    for words in &requests {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        wire::resp::encode_request(&words, &mut bytes);
    }
    (bytes.into(), requests.len())
}

/// Builds the report of one load, without its threads.
fn report(tally: &Tally, shared: &Shared, window_ns: u64) -> LoadReport {
    let from_ns = shared.from_ns.load(Ordering::Relaxed);
    let duration_ns = shared.until_ns.load(Ordering::Relaxed) - from_ns;
    let mut windows = tally.windows.clone();
    // Windows at the end without replies are included; the last may be shorter.
    let count = duration_ns.div_ceil(window_ns);
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(super::tally::WINDOWS_MAX);
    windows.resize(count.max(windows.len()), 0);
    LoadReport {
        duration_ns,
        operations: tally.operations,
        errors: tally.errors.clone(),
        lost: tally.lost,
        unfinished: tally.unfinished,
        unsent: tally.unsent,
        rows_missing: tally.rows_missing,
        prepared_again: tally.prepared_again,
        broken_connections: tally.broken,
        stalled_connections: tally.stalled,
        windows,
        latency_corrected: encode(&tally.corrected),
        latency_raw: encode(&tally.raw),
        lag_ns_p99: tally.lag.value_at_quantile(0.99),
        sent_bytes: tally.sent_bytes,
        received_bytes: tally.received_bytes,
        ..LoadReport::default()
    }
}

#[allow(clippy::cast_precision_loss)] // rates need little precision
fn per_second(count: u64, ns: u64) -> f64 {
    count as f64 * 1e9 / ns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::spec::tests::work;
    use super::*;

    #[test]
    fn a_password_comes_before_the_rest_of_the_setup() {
        let mut work = work();
        work.password = Some("p".to_owned());
        work.setup = vec![vec!["SELECT".to_owned(), "1".to_owned()]];
        let (bytes, count) = setup(&work);
        assert_eq!(count, 2);
        assert_eq!(&*bytes, b"*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n");
    }
}
