//! Load over sockets: the director, who opens connections, says when what is counted begins and ends,
//! and gathers the counts of the threads.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reactor::{Config, Control, Group, GroupError, GroupStopper, Limits, Links, Placement};

use super::arrivals::Share;
use super::client::{Client, Plan};
use super::draws::{Draws, KEYS_MAX, SharedDraws, filler, longest};
use super::shared::{Mail, Notice, STALL_NS, Shared, now_ns};
use super::spec::{
    Arrival, Distribution, LoadEvent, LoadReport, LoadSpec, Operation, Protocol, Sizes, SocketWork,
    Warmup,
};
use super::tally::Tally;
use super::template::Mix;
use crate::measure::threads::{ThreadSample, threads, uses_between};
use crate::stats::histogram::encode;
use crate::stats::is_steady;

/// Ports of one address that the system gives out are fewer.
const CONNECTIONS_MAX: usize = 60_000;
const THREADS_MAX: usize = 256;
const USERS_MAX: usize = 1_000_000;
const PIPELINE_MAX: usize = 100_000;
/// As in Redis, whose values are no longer.
const VALUE_BYTES_MAX: usize = 512 << 20;
/// What the users of one connection send at once must fit into memory many times over.
const BATCH_BYTES_MAX: usize = 1 << 30;
const PER_SECOND_MAX: f64 = 1e9;
/// A day: a run that forgets to end.
const DURATION_MS_MAX: u64 = 86_400_000;

/// Rates of a warm-up are compared by windows of this length, so many of them: a second.
const WARMUP_WINDOW_NS: u64 = 100_000_000;
const WARMUP_WINDOWS: usize = 10;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long replies are awaited that are on their way when what is counted ends.
const DRAIN_NS: u64 = 2_000_000_000;
/// Reports are made without waiting for anything.
const REPORT_NS: u64 = 10_000_000_000;
/// Schedules begin a little after all threads have been told, so that none begins late.
const START_DELAY_NS: u64 = 2_000_000;

type Say<'a> = &'a mut dyn FnMut(LoadEvent) -> Result<()>;

/// Makes the load and says what came of it.
pub(crate) fn run(spec: &LoadSpec, work: &SocketWork, say: Say<'_>) -> Result<()> {
    check(spec, work)?;
    let mut director = Director::start(spec, work)?;
    let report = director.direct(say);
    let ended = director.end();
    let report = report?;
    ended?;
    say(LoadEvent::Done(Box::new(report)))
}

struct Director<'a> {
    spec: &'a LoadSpec,
    shared: Arc<Shared>,
    links: Links<Mail>,
    notices: Receiver<Notice>,
    stopper: GroupStopper,
    group: JoinHandle<Result<(), GroupError>>,
    /// By thread: what it has told of itself.
    idle: Vec<bool>,
    stalled: Vec<bool>,
    ready: usize,
}

/// Why waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Time,
    /// All threads are idle.
    Idle,
    /// All connections have stalled.
    Stalled,
}

impl<'a> Director<'a> {
    /// Starts the threads and connects. When this returns, all connections have had their setup.
    fn start(spec: &'a LoadSpec, work: &SocketWork) -> Result<Director<'a>> {
        let threads = work.threads.min(work.connections);
        let shared = Arc::new(Shared::new(threads, spec.operations_max));
        let (sender, notices) = channel();
        let limits = Limits::default();
        // What is on its way is bounded by the load. Not to read replies while requests cannot be
        // sent would let both sides wait for each other.
        limits.output_pause_bytes.set(u64::MAX);
        limits.output_bytes_max.set(u64::MAX);
        let config = Config {
            reactors: threads,
            // Connections stay where they are put.
            placement: Placement::RoundRobin,
            limits: Arc::new(limits),
            drain_timeout_ms: 100,
        };
        let mut clients = clients(spec, work, threads, &shared, &sender).into_iter();
        let group = Group::start(&config, Vec::new(), |_, _| {
            clients.next().expect("there is one for each reactor")
        })?;
        let possible = group.descriptors().connections_possible;
        let adopter = group.adopter();
        let (links, stopper) = (group.links().clone(), group.stopper());
        let run = move || {
            group.run(|_| {
                // When the director has ended there is nobody to tell.
                let _ = sender.send(Notice::Interrupted);
                Control::Continue
            })
        };
        let group = std::thread::Builder::new().name("signals".to_owned()).spawn(run)?;
        let (idle, stalled) = (vec![false; threads], vec![false; threads]);
        let mut director =
            Director { spec, shared, links, notices, stopper, group, idle, stalled, ready: 0 };
        let connected = (|| {
            ensure!(
                work.connections as u64 <= possible,
                "{} connections are more than the {possible} that open files allow",
                work.connections
            );
            for number in 0..work.connections {
                let stream = connect(work.address, number, work.connections)?;
                adopter.adopt(number % threads, stream)?;
            }
            director.wait_until_ready(work.connections)
        })();
        if let Err(error) = connected {
            director.end()?;
            return Err(error);
        }
        Ok(director)
    }

    fn wait_until_ready(&mut self, connections: usize) -> Result<()> {
        let until_ns = now_ns() + STALL_NS;
        while self.ready < connections {
            if !self.hear(until_ns)? {
                bail!(
                    "{} of {connections} connections had no reply to their setup within 5 s",
                    connections - self.ready
                );
            }
        }
        Ok(())
    }

    /// Warm-up, measured phase, and what is left of it.
    fn direct(&mut self, say: Say<'_>) -> Result<LoadReport> {
        let start_ns = now_ns() + START_DELAY_NS;
        let duration_ns = self.spec.duration_ms * 1_000_000;
        if let Warmup::Fixed { ms } = self.spec.warmup {
            self.set_phase(start_ns + ms * 1_000_000, duration_ns);
        }
        say(LoadEvent::Connected)?;
        self.tell(Mail::Begin { start_ns });
        if let Warmup::Steady { max_ms } = self.spec.warmup {
            self.wait_until_steady(start_ns + max_ms * 1_000_000)?;
            self.set_phase(now_ns(), duration_ns);
        }
        let mut from_ns = self.shared.from_ns.load(Ordering::Relaxed);
        let woken = self.wait_until(from_ns)?;
        if woken != Woken::Time && now_ns() < from_ns {
            // Nothing comes any more. The report shall say so.
            from_ns = now_ns();
            self.set_phase(from_ns, duration_ns);
        }
        let before = threads(std::process::id()).context("read the use of the own threads")?;
        say(LoadEvent::Measuring { warmup_ms: from_ns.saturating_sub(start_ns) / 1_000_000 })?;
        let is_stalled = self.measure(from_ns, say)?;
        let after = threads(std::process::id()).context("read the use of the own threads")?;
        say(LoadEvent::Measured)?;
        self.idle.fill(false);
        self.tell(Mail::Finish);
        if !is_stalled {
            self.wait_until(now_ns() + DRAIN_NS)?;
        }
        let tally = self.gather()?;
        let until_ns = self.shared.until_ns.load(Ordering::Relaxed);
        Ok(report(&tally, until_ns - from_ns, self.spec, &before, &after))
    }

    fn set_phase(&self, from_ns: u64, duration_ns: u64) {
        self.shared.until_ns.store(from_ns + duration_ns, Ordering::Relaxed);
        self.shared.from_ns.store(from_ns, Ordering::Relaxed);
    }

    /// Until the rate is level, or the time is over.
    fn wait_until_steady(&mut self, latest_ns: u64) -> Result<()> {
        let mut rates = Vec::new();
        let (mut at_ns, mut replies) = (now_ns(), 0);
        while at_ns < latest_ns {
            let woken = self.wait_until((at_ns + WARMUP_WINDOW_NS).min(latest_ns))?;
            let (now_ns, now_replies) = (now_ns(), self.shared.replies());
            rates.push(per_second(now_replies - replies, now_ns - at_ns));
            (at_ns, replies) = (now_ns, now_replies);
            let last = rates.len().checked_sub(WARMUP_WINDOWS).map(|first| &rates[first..]);
            if last.is_some_and(is_steady) || woken != Woken::Time {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Tells of each window, until the time is over or nothing more comes. True if the server has
    /// stalled.
    fn measure(&mut self, from_ns: u64, say: Say<'_>) -> Result<bool> {
        let window_ns = self.spec.window_ms * 1_000_000;
        let until_ns = self.shared.until_ns.load(Ordering::Relaxed);
        let (mut window_end_ns, mut replies) = (from_ns, self.shared.replies());
        loop {
            window_end_ns = (window_end_ns + window_ns).min(until_ns);
            let woken = self.wait_until(window_end_ns)?;
            let now_replies = self.shared.replies();
            say(LoadEvent::Window { operations: now_replies - replies })?;
            replies = now_replies;
            match woken {
                Woken::Time if window_end_ns < until_ns => {}
                Woken::Time => return Ok(false),
                Woken::Idle | Woken::Stalled => {
                    // Ends with the last reply, which the report knows.
                    self.shared.until_ns.store(now_ns().min(until_ns), Ordering::Relaxed);
                    return Ok(woken == Woken::Stalled);
                }
            }
        }
    }

    fn gather(&mut self) -> Result<Tally> {
        self.tell(Mail::Report);
        let mut total = Tally::new();
        let until_ns = now_ns() + REPORT_NS;
        let mut missing = self.links.reactors();
        while missing > 0 {
            match self.next_notice(until_ns)? {
                None => bail!("a thread of the generator does not answer"),
                Some(Notice::Report(tally)) => {
                    total.merge(&tally);
                    missing -= 1;
                }
                Some(notice) => self.heed(notice)?,
            }
        }
        // The work was done before its time: it took until the last reply.
        let until_ns = self.shared.until_ns.load(Ordering::Relaxed);
        let from_ns = self.shared.from_ns.load(Ordering::Relaxed);
        if self.shared.is_spent() && (from_ns..until_ns).contains(&total.heard_ns) {
            self.shared.until_ns.store(total.heard_ns + 1, Ordering::Relaxed);
        }
        Ok(total)
    }

    fn tell(&self, mail: Mail) {
        for mailbox in self.links.mailboxes() {
            // A handful of mails per run; a reactor that has ended has panicked, and that is told
            // when the group ends.
            let _ = mailbox.send(mail);
        }
    }

    /// Sleeps until then, or until all threads are idle or stalled.
    fn wait_until(&mut self, ns: u64) -> Result<Woken> {
        loop {
            if self.idle.iter().all(|&is_idle| is_idle) {
                return Ok(Woken::Idle);
            }
            let mut threads = self.idle.iter().zip(&self.stalled);
            if threads.all(|(&is_idle, &is_stalled)| is_idle || is_stalled) {
                return Ok(Woken::Stalled);
            }
            if !self.hear(ns)? {
                return Ok(Woken::Time);
            }
        }
    }

    /// Takes one notice. False if none came until then.
    fn hear(&mut self, until_ns: u64) -> Result<bool> {
        match self.next_notice(until_ns)? {
            None => Ok(false),
            Some(notice) => self.heed(notice).map(|()| true),
        }
    }

    fn next_notice(&mut self, until_ns: u64) -> Result<Option<Notice>> {
        let timeout = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        match self.notices.recv_timeout(timeout) {
            Ok(notice) => Ok(Some(notice)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the threads of the generator have ended"),
        }
    }

    fn heed(&mut self, notice: Notice) -> Result<()> {
        match notice {
            Notice::Ready => self.ready += 1,
            Notice::Idle { reactor } => self.idle[reactor] = true,
            Notice::Stalled { reactor } => self.stalled[reactor] = true,
            Notice::Failed(reason) => bail!(reason),
            Notice::Interrupted => bail!("interrupted by a signal"),
            Notice::Report(_) => bail!("a thread of the generator reports out of turn"),
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.stopper.stop();
        match self.group.join() {
            Ok(ended) => Ok(ended?),
            Err(_) => bail!("the thread that takes signals has panicked"),
        }
    }
}

fn connect(address: SocketAddr, number: usize, of: usize) -> Result<TcpStream> {
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
        .with_context(|| format!("connect to {address} (connection {} of {of})", number + 1))
}

fn clients(
    spec: &LoadSpec,
    work: &SocketWork,
    threads: usize,
    shared: &Arc<Shared>,
    notices: &Sender<Notice>,
) -> Vec<Client> {
    let filler = filler(work.value_bytes, spec.seed);
    let draws = Arc::new(SharedDraws::default());
    let (setup, setup_count) = setup(work);
    let users = if work.users == 0 { work.connections } else { work.users };
    let client = |index| {
        let plan = Plan {
            protocol: work.protocol,
            setup: Arc::clone(&setup),
            setup_count,
            users: users / threads + usize::from(index < users % threads),
            sharing: work.sharing,
            pipeline: u32::try_from(work.pipeline).expect("PIPELINE_MAX was checked"),
            arrival: work.arrival,
            share: Share { index, of: threads },
            window_ns: spec.window_ms * 1_000_000,
            // Arrivals must not follow the keys.
            seed: !spec.seed,
        };
        let filler = Arc::clone(&filler);
        let mix = Mix::new(work, &filler);
        let draws = Draws::new(work, Arc::clone(&draws), filler, spec.seed, index as u64);
        Client::new(plan, Arc::clone(shared), notices.clone(), mix, draws)
    };
    (0..threads).map(client).collect()
}

/// What every connection begins with, and how many requests that is.
fn setup(work: &SocketWork) -> (Arc<[u8]>, usize) {
    let mut bytes = Vec::new();
    let password = work.password.as_ref().map(|password| vec!["AUTH", password]);
    let others = work.setup.iter().map(|words| words.iter().map(String::as_str).collect());
    let requests: Vec<Vec<&str>> = password.into_iter().chain(others).collect();
    for words in &requests {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        wire::resp::encode_request(&words, &mut bytes);
    }
    (bytes.into(), requests.len())
}

fn report(
    tally: &Tally,
    duration_ns: u64,
    spec: &LoadSpec,
    before: &[ThreadSample],
    after: &[ThreadSample],
) -> LoadReport {
    let mut windows = tally.windows.clone();
    // Windows at the end without any reply belong to it; the last may be cut short.
    let count = duration_ns.div_ceil(spec.window_ms * 1_000_000);
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(super::tally::WINDOWS_MAX);
    windows.resize(count.max(windows.len()), 0);
    LoadReport {
        duration_ns,
        operations: tally.operations,
        errors: tally.errors.clone(),
        lost: tally.lost,
        unsent: tally.unsent,
        broken_connections: tally.broken,
        stalled_connections: tally.stalled,
        windows,
        latency_corrected: encode(&tally.corrected),
        latency_raw: encode(&tally.raw),
        lag_ns_p99: tally.lag.value_at_quantile(0.99),
        threads: uses_between(before, after),
        sent_bytes: tally.sent_bytes,
        received_bytes: tally.received_bytes,
        log: None,
    }
}

#[allow(clippy::cast_precision_loss)] // rates are rough
fn per_second(count: u64, ns: u64) -> f64 {
    count as f64 * 1e9 / ns.max(1) as f64
}

/// Refuses what makes no sense, before anything is started.
fn check(spec: &LoadSpec, work: &SocketWork) -> Result<()> {
    ensure!(spec.window_ms > 0, "window_ms must be at least 1");
    ensure!(
        (1..=DURATION_MS_MAX).contains(&spec.duration_ms),
        "duration_ms must be from 1 to {DURATION_MS_MAX}"
    );
    let (Warmup::Fixed { ms: warmup_ms } | Warmup::Steady { max_ms: warmup_ms }) = spec.warmup;
    ensure!(warmup_ms <= DURATION_MS_MAX, "the warm-up must be at most {DURATION_MS_MAX} ms");
    ensure!(spec.operations_max != Some(0), "operations_max must be at least 1");
    for (name, value, most) in [
        ("threads", work.threads, THREADS_MAX),
        ("connections", work.connections, CONNECTIONS_MAX),
        ("pipeline", work.pipeline, PIPELINE_MAX),
    ] {
        ensure!((1..=most).contains(&value), "{name} must be from 1 to {most}");
    }
    ensure!(work.users <= USERS_MAX, "users must be at most {USERS_MAX}");
    if let Arrival::Open { per_second, .. } = work.arrival {
        let is_rate = per_second > 0.0 && per_second <= PER_SECOND_MAX;
        ensure!(is_rate, "per_second must be above 0 and at most {PER_SECOND_MAX}");
    }
    ensure!((1..=KEYS_MAX).contains(&work.keys.count), "keys.count must be from 1 to {KEYS_MAX}");
    if let Distribution::Zipfian { exponent } | Distribution::Latest { exponent } =
        work.keys.distribution
    {
        ensure!((0.0..=100.0).contains(&exponent), "the exponent must be from 0 to 100");
    }
    if let Sizes::Between(least, most) = work.value_bytes {
        ensure!(least <= most, "value_bytes: {least} is more than {most}");
    }
    ensure!(
        longest(work.value_bytes) <= VALUE_BYTES_MAX,
        "value_bytes must be at most {VALUE_BYTES_MAX}"
    );
    check_mix(work)
}

fn check_mix(work: &SocketWork) -> Result<()> {
    ensure!(!work.mix.is_empty(), "the mix has no operation");
    let is_weight = |weight: f64| weight.is_finite() && weight >= 0.0;
    ensure!(
        work.mix.iter().all(|operation| is_weight(operation.weight)),
        "weights must be numbers from 0"
    );
    let sum: f64 = work.mix.iter().map(|operation| operation.weight).sum();
    ensure!(sum > 0.0 && sum.is_finite(), "the weights of the mix must have a sum above 0");
    let Operation { words, .. } =
        work.mix.iter().find(|one| one.words.is_empty()).unwrap_or(&work.mix[0]);
    ensure!(!words.is_empty(), "an operation of the mix has no words");
    match work.protocol {
        Protocol::Resp => {}
        Protocol::RespInline => ensure!(
            work.mix.iter().flat_map(|one| &one.words).all(|word| is_plain(word)),
            "inline commands cannot hold words with blanks or quotes"
        ),
        Protocol::Memcached => check_memcached(work)?,
    }
    let filler = vec![b'x'; longest(work.value_bytes)];
    let batch_bytes = Mix::new(work, &filler).bytes_max().saturating_mul(work.pipeline);
    ensure!(
        batch_bytes <= BATCH_BYTES_MAX,
        "{} requests at once are {batch_bytes} bytes, more than {BATCH_BYTES_MAX}",
        work.pipeline
    );
    Ok(())
}

fn check_memcached(work: &SocketWork) -> Result<()> {
    for operation in &work.mix {
        let words: Vec<&str> = operation.words.iter().map(String::as_str).collect();
        let is_known = matches!(words[..], ["get", _] | ["set", _, _]);
        ensure!(is_known, "for memcached, operations are get KEY or set KEY VALUE");
        ensure!(is_plain(words[1]), "keys of memcached have no blanks");
    }
    ensure!(work.password.is_none(), "memcached's text protocol knows no password");
    ensure!(work.setup.is_empty(), "memcached's connections need no setup");
    Ok(())
}

/// Neither empty nor in need of quotes.
fn is_plain(word: &str) -> bool {
    let is_special = |byte: u8| byte <= b' ' || byte == b'"' || byte == b'\'' || byte == 0x7f;
    !word.is_empty() && !word.bytes().any(is_special)
}

#[cfg(test)]
mod tests {
    use super::super::spec::tests::{spec, work};
    use super::*;

    #[track_caller]
    fn check_refused(change: impl Fn(&mut LoadSpec, &mut SocketWork), expected: &str) {
        let (mut spec, mut work) = (spec(), work());
        change(&mut spec, &mut work);
        let reason = check(&spec, &work).unwrap_err().to_string();
        assert!(reason.contains(expected), "{reason}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(check(&spec(), &work()).is_ok());
        check_refused(|spec, _| spec.window_ms = 0, "window_ms");
        check_refused(|spec, _| spec.duration_ms = 0, "duration_ms");
        check_refused(|spec, _| spec.operations_max = Some(0), "operations_max");
        check_refused(|_, work| work.threads = 0, "threads must be from 1");
        check_refused(|_, work| work.connections = 100_000, "connections must be from 1 to 60000");
        check_refused(|_, work| work.pipeline = 0, "pipeline");
        check_refused(|_, work| work.users = 2_000_000, "users");
        check_refused(|_, work| work.keys.count = 0, "keys.count");
        check_refused(|_, work| work.mix.clear(), "no operation");
        check_refused(|_, work| work.mix[0].words.clear(), "no words");
        check_refused(|_, work| work.mix[0].weight = f64::NAN, "weights");
        check_refused(|_, work| work.mix[0].weight = 0.0, "sum above 0");
        check_refused(|_, work| work.value_bytes = Sizes::Between(3, 2), "3 is more than 2");
        check_refused(|_, work| work.protocol = Protocol::Memcached, "get KEY");
        check_refused(
            |_, work| {
                work.pipeline = PIPELINE_MAX;
                work.value_bytes = Sizes::Fixed(1 << 20);
                work.mix[0].words.push("{value}".to_owned());
            },
            "requests at once",
        );
        check_refused(
            |_, work| {
                work.protocol = Protocol::RespInline;
                work.mix[0].words.push("two words".to_owned());
            },
            "blanks",
        );
        let open =
            |per_second| Arrival::Open { per_second, schedule: super::super::spec::Schedule::Even };
        check_refused(|_, work| work.arrival = open(0.0), "per_second");
        check_refused(|_, work| work.arrival = open(f64::NAN), "per_second");
        let zipfian = Distribution::Zipfian { exponent: -1.0 };
        check_refused(|_, work| work.keys.distribution = zipfian, "exponent");
    }

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
