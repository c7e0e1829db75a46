//! The options of all roles: one table of names, parsed in one place.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use lexopt::{Arg, Parser, ValueExt};

use crate::collector::{Order, ResultsOptions, SAMPLE_MAX, Verify};
use crate::executor::THREADS_MAX;
use crate::generator::{LedgerOptions, Overload, PaceOptions, Rate, WINDOW_MAX};
use crate::monitor::Layout;
use crate::task::BATCH_MAX;
use crate::task::Plan;
use crate::task::{FileSums, Kernel, TaskSpec};

/// Default ports, the same as the original's.
const EXECUTOR_PORT: u16 = 25_522;
const COLLECTOR_PORT: u16 = 25_523;
const MONITOR_PORT: u16 = 25_524;
const PAGES_PORT: u16 = 25_580;

const TICK_NS_MIN: u64 = 100_000;
const TICK_NS_MAX: u64 = 10_000_000_000;
/// A lease of zero would resend every batch again and again.
const LEASE_NS_MIN: u64 = 1_000_000;
const LEASE_NS_MAX: u64 = 86_400_000_000_000;

/// All command-line options, with their defaults.
#[derive(Debug, Clone)]
pub(super) struct Arguments {
    pub(super) task: TaskSpec,
    pub(super) kernel: Option<Kernel>,
    pub(super) stream: u64,
    pub(super) seed: u64,
    pub(super) rate: Rate,
    pub(super) tick: Duration,
    pub(super) duration: Option<Duration>,
    pub(super) tasks: Option<u64>,
    pub(super) batch: Option<u32>,
    pub(super) window: usize,
    pub(super) lease: Duration,
    pub(super) overload: Overload,
    pub(super) backlog: Option<u64>,
    pub(super) executors: usize,
    /// Runs each role as a separate process.
    pub(super) processes: bool,
    pub(super) threads: Option<usize>,
    pub(super) verify: Verify,
    pub(super) corrupt: f64,
    /// Maximum growth of memory during a run, as a fraction.
    pub(super) growth_max: Option<f64>,
    pub(super) out: Option<PathBuf>,
    pub(super) log: Option<PathBuf>,
    pub(super) results: Option<PathBuf>,
    pub(super) order: Order,
    pub(super) stay: bool,
    pub(super) listen: Option<SocketAddr>,
    pub(super) generator: SocketAddr,
    pub(super) collector: SocketAddr,
    pub(super) patience: Duration,
    pub(super) json: bool,
    /// Where statuses are reported.
    pub(super) monitor: Option<SocketAddr>,
    pub(super) http: SocketAddr,
    /// Layout of the monitor's files.
    pub(super) layout: Layout,
    /// Options that have a value, as given.
    pub(super) given: Vec<(String, String)>,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            task: TaskSpec::Exercise(crate::task::Codec::Sha256Le),
            kernel: None,
            stream: 1,
            seed: 1,
            rate: Rate::Max,
            tick: Duration::from_millis(10),
            duration: None,
            tasks: None,
            batch: None,
            window: 1024,
            lease: Duration::from_secs(1),
            overload: Overload::Queue,
            backlog: None,
            executors: 1,
            processes: false,
            threads: None,
            verify: Verify::Sample { size: 100, window_ns: 60_000_000_000 },
            corrupt: 0.0,
            growth_max: None,
            out: None,
            log: None,
            results: None,
            order: Order::None,
            stay: false,
            listen: None,
            generator: SocketAddr::from(([127, 0, 0, 1], EXECUTOR_PORT)),
            collector: SocketAddr::from(([127, 0, 0, 1], COLLECTOR_PORT)),
            patience: Duration::from_secs(10),
            json: false,
            monitor: None,
            http: SocketAddr::from(([127, 0, 0, 1], PAGES_PORT)),
            layout: Layout::Early,
            given: Vec::new(),
        }
    }
}

/// The request in a command line.
#[derive(Debug)]
pub(super) enum Request {
    Help,
    Run(Box<Arguments>),
}

/// Parses all options of a role; `names` lists them.
pub(super) fn parse(parser: &mut Parser, names: &[&str]) -> Result<Request> {
    let mut arguments = Arguments::default();
    while let Some(argument) = parser.next()? {
        let name = match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Request::Help),
            Arg::Long(name) if names.contains(&name) => name.to_owned(),
            other => return Err(other.unexpected().into()),
        };
        arguments.set(&name, parser)?;
    }
    if arguments.processes && arguments.growth_max.is_some() {
        bail!("--growth-max cannot be used with --processes");
    }
    Ok(Request::Run(Box::new(arguments)))
}

impl Arguments {
    fn set(&mut self, name: &str, parser: &mut Parser) -> Result<()> {
        match name {
            "json" => self.json = true,
            "stay" => self.stay = true,
            "processes" => self.processes = true,
            _ => {
                let value = parser.value()?.string()?;
                self.set_value(name, &value).with_context(|| format!("--{name}"))?;
                self.given.push((name.to_owned(), value));
            }
        }
        Ok(())
    }

    fn set_value(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "task" => self.task = value.parse()?,
            "kernel" if value == "auto" => self.kernel = None,
            "kernel" => self.kernel = Some(value.parse()?),
            "stream" => self.stream = value.parse()?,
            "seed" => self.seed = value.parse()?,
            "rate" if value == "max" => self.rate = Rate::Max,
            "rate" => self.rate = Rate::PerSecond(parse_count(value)?.max(1)),
            "tick" => self.tick = between(value, TICK_NS_MIN, TICK_NS_MAX)?,
            "duration" => self.duration = Some(humantime::parse_duration(value)?),
            "tasks" => self.tasks = Some(parse_count(value)?),
            "batch" => self.batch = Some(whole(value, 1, u64::from(BATCH_MAX))?),
            "window" => self.window = whole(value, 1, u64::try_from(WINDOW_MAX)?)?,
            "lease" => self.lease = between(value, LEASE_NS_MIN, LEASE_NS_MAX)?,
            "overload" => self.overload = parse_overload(value)?,
            "backlog" => self.backlog = Some(parse_count(value)?),
            "executors" => self.executors = whole(value, 1, 64)?,
            "threads" => self.threads = Some(whole(value, 1, u64::try_from(THREADS_MAX)?)?),
            "verify" => self.verify = parse_verify(value)?,
            "corrupt" => self.corrupt = parse_share(value)?,
            "growth-max" => self.growth_max = Some(parse_share(value)?),
            "out" => self.out = Some(value.into()),
            "log" => self.log = Some(value.into()),
            "results" => self.results = Some(value.into()),
            "order" => self.order = parse_order(value)?,
            "listen" => self.listen = Some(parse_address(value)?),
            "generator" => self.generator = parse_address(value)?,
            "collector" => self.collector = parse_address(value)?,
            "monitor" => self.monitor = Some(parse_address(value)?),
            "http" => self.http = parse_address(value)?,
            "layout" => self.layout = parse_layout(value)?,
            "patience" => self.patience = humantime::parse_duration(value)?,
            _ => bail!("unknown option"),
        }
        Ok(())
    }

    /// Returns the given options that another command with these names also accepts.
    pub(super) fn options_of(&self, names: &[&str]) -> Vec<String> {
        let given = self.given.iter().filter(|(name, _)| names.contains(&name.as_str()));
        given.flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
    }

    /// Fails if the files of a directory cannot be listed.
    pub(super) fn plan(&self) -> Result<Plan> {
        let seed = match &self.task {
            TaskSpec::Exercise(_) => self.seed,
            TaskSpec::Files(dir) => FileSums::list(dir.as_ref())?.fingerprint(),
        };
        Ok(Plan { task: self.task.to_string(), seed, batch: self.batch() })
    }

    /// Files take longer than numbers, so their batches are smaller.
    fn batch(&self) -> u32 {
        self.batch.unwrap_or(match self.task {
            TaskSpec::Exercise(_) => 4096,
            TaskSpec::Files(_) => 16,
        })
    }

    pub(super) fn results(&self) -> Option<ResultsOptions> {
        let path = self.results.clone()?;
        Some(ResultsOptions { path, order: self.order })
    }

    pub(super) fn pace(&self) -> PaceOptions {
        let tenth_of_a_second = match self.rate {
            Rate::Max => 0,
            Rate::PerSecond(rate) => rate / 10,
        };
        let backlog_max = tenth_of_a_second.max(4 * u64::from(self.batch()));
        PaceOptions {
            rate: self.rate,
            tick_ns: nanoseconds(self.tick),
            duration_ns: self.duration.map(nanoseconds),
            tasks: self.tasks,
            overload: self.overload,
            backlog_max: self.backlog.unwrap_or(backlog_max),
        }
    }

    pub(super) fn ledger(&self) -> LedgerOptions {
        LedgerOptions {
            window: self.window,
            batch: self.batch(),
            lease_ns_min: nanoseconds(self.lease),
        }
    }

    pub(super) fn listen_for_executors(&self) -> SocketAddr {
        self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], EXECUTOR_PORT)))
    }

    pub(super) fn listen_for_reports(&self) -> SocketAddr {
        self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], MONITOR_PORT)))
    }

    pub(super) fn listen_for_results(&self) -> SocketAddr {
        self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], COLLECTOR_PORT)))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses `2000000`, `2M`, `2_000k`: decimal multiples.
pub(super) fn parse_count(text: &str) -> Result<u64> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let digits = digits.replace('_', "");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        bail!("{text:?} is not a count such as 2000000, 2M or 500k");
    }
    let number: Option<u64> = digits.parse().ok();
    let number = number.and_then(|number| number.checked_mul(factor));
    number.ok_or_else(|| anyhow!("{text} does not fit in 64 bits"))
}

fn whole<T: TryFrom<u64>>(text: &str, min: u64, max: u64) -> Result<T> {
    let number = parse_count(text)?;
    if !(min..=max).contains(&number) {
        bail!("{number} is out of range: {min} to {max}");
    }
    T::try_from(number).map_err(|_| anyhow!("{number} is too large"))
}

fn between(text: &str, min_ns: u64, max_ns: u64) -> Result<Duration> {
    let duration = humantime::parse_duration(text)?;
    if !(min_ns..=max_ns).contains(&nanoseconds(duration)) {
        let (min, max) = (Duration::from_nanos(min_ns), Duration::from_nanos(max_ns));
        bail!("{duration:?} is out of range: {min:?} to {max:?}");
    }
    Ok(duration)
}

fn parse_overload(text: &str) -> Result<Overload> {
    Ok(match text {
        "queue" => Overload::Queue,
        "shed" => Overload::Shed,
        "fail" => Overload::Fail,
        _ => bail!("{text:?} is not one of queue, shed, fail"),
    })
}

fn parse_order(text: &str) -> Result<Order> {
    Ok(match text {
        "none" => Order::None,
        "input" => Order::Input,
        _ => bail!("{text:?} is not one of none, input"),
    })
}

fn parse_layout(text: &str) -> Result<Layout> {
    Ok(match text {
        "early" => Layout::Early,
        "late" => Layout::Late,
        _ => bail!("{text:?} is not one of early, late"),
    })
}

/// `all`, or `sample:100/60s`.
fn parse_verify(text: &str) -> Result<Verify> {
    if text == "all" {
        return Ok(Verify::All);
    }
    let parts = text.strip_prefix("sample:").and_then(|rest| rest.split_once('/'));
    let (size, window) = parts.ok_or_else(|| anyhow!("{text:?} is not all or sample:N/TIME"))?;
    let window = between(window, 10_000_000, 86_400_000_000_000)?;
    let size = whole(size, 1, u64::try_from(SAMPLE_MAX)?)?;
    Ok(Verify::Sample { size, window_ns: nanoseconds(window) })
}

/// `0.01` or `1%`.
fn parse_share(text: &str) -> Result<f64> {
    let share: f64 = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>()? / 100.0,
        None => text.parse()?,
    };
    if !(0.0..=1.0).contains(&share) {
        bail!("{text} is not a fraction from 0 to 1");
    }
    Ok(share)
}

pub(super) fn parse_address(text: &str) -> Result<SocketAddr> {
    Ok(base::address::resolve(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, value: &str) -> Result<Arguments> {
        let mut parser = Parser::from_args([format!("--{name}"), value.to_owned()]);
        match parse(&mut parser, &[name])? {
            Request::Run(arguments) => Ok(*arguments),
            Request::Help => bail!("asked for help"),
        }
    }

    #[test]
    fn values_are_read() {
        assert_eq!(parsed("rate", "2M").unwrap().rate, Rate::PerSecond(2_000_000));
        assert_eq!(parsed("rate", "max").unwrap().rate, Rate::Max);
        assert_eq!(parsed("tick", "1ms").unwrap().tick, Duration::from_millis(1));
        assert_eq!(parsed("verify", "all").unwrap().verify, Verify::All);
        let window_ns = 60_000_000_000;
        assert_eq!(
            parsed("verify", "sample:100/60s").unwrap().verify,
            Verify::Sample { size: 100, window_ns }
        );
        assert_eq!(parsed("overload", "shed").unwrap().overload, Overload::Shed);
        assert_eq!(parsed("growth-max", "1%").unwrap().growth_max, Some(0.01));
        assert_eq!(parsed("tasks", "1_000k").unwrap().tasks, Some(1_000_000));
        assert_eq!(parsed("listen", "127.0.0.1:7").unwrap().listen_for_results().port(), 7);
    }

    #[test]
    fn the_backlog_is_a_tenth_of_a_second() {
        assert_eq!(parsed("rate", "2M").unwrap().pace().backlog_max, 200_000);
        assert_eq!(parsed("rate", "100").unwrap().pace().backlog_max, 4 * 4096);
        assert_eq!(parsed("backlog", "5").unwrap().pace().backlog_max, 5);
    }

    #[test]
    fn malformed_values_are_refused_with_their_option() {
        for (name, value) in [
            ("rate", "fast"),
            ("rate", "99999999999999G"),
            ("tick", "0ms"),
            ("tick", "1h"),
            ("lease", "0s"),
            ("lease", "500years"),
            ("batch", "0"),
            ("batch", "1048577"),
            ("verify", "sample:0/60s"),
            ("verify", "some"),
            ("overload", "drop"),
            ("order", "by-name"),
            ("layout", "new"),
            ("growth-max", "2"),
            ("growth-max", "101%"),
            ("growth-max", "%"),
            ("corrupt", "1.5"),
            ("corrupt", "NaN"),
            ("task", "fly"),
            ("kernel", "gpu"),
            ("listen", "here"),
            ("window", "65537"),
        ] {
            let error = format!("{:#}", parsed(name, value).unwrap_err());
            assert!(error.starts_with(&format!("--{name}: ")), "{error}");
        }
    }

    #[test]
    fn options_are_passed_on() {
        let words = ["--rate", "5k", "--processes", "--verify", "all", "--rate=6k"];
        let mut parser = Parser::from_args(words);
        let Request::Run(found) = parse(&mut parser, &["rate", "processes", "verify"]).unwrap()
        else {
            panic!("no help was asked for");
        };
        assert!(found.processes);
        assert_eq!(found.options_of(&["rate", "tick"]), ["--rate", "5k", "--rate", "6k"]);
        assert_eq!(found.options_of(&["verify"]), ["--verify", "all"]);
    }

    #[test]
    fn a_role_has_only_its_options() {
        let mut parser = Parser::from_args(["--rate", "5"]);
        assert!(parse(&mut parser, &["tick"]).is_err());
    }
}
