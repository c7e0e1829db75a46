//! The options of all roles, and their values.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use base::units::parse_count;
use options::{Loaded, Section, Source, Value, ValueError, settings};

use crate::collector::{Existing, Order, ResultsOptions, SAMPLE_MAX, Verify};
use crate::generator::{Input, LedgerOptions, Overload, PaceOptions, Rate};
use crate::monitor::Layout;
use crate::task::{COMMAND_BATCH_MAX, Codec, CommandLimits, FileSums, Kernel, Plan, TaskSpec};

/// Default ports, the same as the original's.
const EXECUTOR_PORT: u16 = 25_522;
const COLLECTOR_PORT: u16 = 25_523;
const MONITOR_PORT: u16 = 25_524;
const PAGES_PORT: u16 = 25_580;

settings! {
    /// All command-line options, with their defaults.
    #[derive(Debug, Clone)]
    pub(super) struct Arguments {
        task: TaskSpec = TaskSpec::Exercise(Codec::Sha256Le),
        /// File of the items of a command; `-` is standard input.
        input: Option<PathBuf> = None,
        retries: u32 = CommandLimits::DEFAULT.retries,
        item_timeout: Duration = Duration::from_millis(CommandLimits::DEFAULT.item_timeout_ms),
        /// Whether an executor executes the commands of its generator.
        allow_commands: bool = false,
        /// `None`: the fastest.
        kernel: Option<Kernel> = None,
        stream: u64 = 1,
        seed: u64 = 1,
        rate: Rate = Rate::Max,
        tick: Duration = Duration::from_millis(10),
        duration: Option<Duration> = None,
        tasks: Option<u64> = None,
        batch: Option<u32> = None,
        window: usize = 1024,
        lease: Option<Duration> = None,
        overload: Overload = Overload::Queue,
        backlog: Option<u64> = None,
        executors: usize = 1,
        /// Runs each role as a separate process.
        processes: bool = false,
        threads: Option<usize> = None,
        verify: Verify = Verify::Sample { size: 100, window_ns: 60_000_000_000 },
        corrupt: Share = Share(0.0),
        /// Maximum growth of memory during a run.
        growth_max: Option<Share> = None,
        out: Option<PathBuf> = None,
        log: Option<PathBuf> = None,
        results: Option<PathBuf> = None,
        dead_letters: Option<PathBuf> = None,
        order: Order = Order::None,
        existing: Existing = Existing::Refuse,
        stay: bool = false,
        listen: Option<SocketAddr> = None,
        generator: SocketAddr = local(EXECUTOR_PORT),
        collector: SocketAddr = local(COLLECTOR_PORT),
        patience: Duration = Duration::from_secs(10),
        json: bool = false,
        /// Where statuses are reported.
        monitor: Option<SocketAddr> = None,
        http: SocketAddr = local(PAGES_PORT),
        /// Layout of the monitor's files.
        layout: Layout = Layout::Early,
    }
}

/// A fraction from 0 to 1, as text `0.01` or `1%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Share(pub(super) f64);

/// Returns the options that are set and that another role has too. Flags are not passed on.
pub(super) fn options_of(
    given: &Loaded<Arguments>,
    role: &'static [Section<Arguments>],
) -> Vec<String> {
    let is_given = |source: Source| source != Source::Default;
    options::rows(role)
        .filter(|row| !row.is_flag() && given.source(row.name).is_some_and(is_given))
        .flat_map(|row| [format!("--{}", row.name), row.text(&given.settings)])
        .collect()
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

impl Arguments {
    pub(super) fn check(&self) -> Result<()> {
        if self.processes && self.growth_max.is_some() {
            bail!("--growth-max cannot be used with --processes");
        }
        if self.is_command() != self.input.is_some() {
            bail!("exec: and each: require --input, and other tasks have none");
        }
        if !self.is_command() {
            return Ok(());
        }
        if self.overload == Overload::Shed {
            bail!("--overload shed cannot be used with --input: no line is dropped");
        }
        if self.corrupt.0 > 0.0 {
            bail!("--corrupt cannot be used with commands, whose results are not verified");
        }
        if self.processes && self.input.as_deref() == Some(Path::new("-")) {
            bail!("--input - cannot be used with --processes");
        }
        let outputs = [&self.results, &self.dead_letters];
        if is_same_file(self.results.as_deref(), self.dead_letters.as_deref()) {
            bail!("--results and --dead-letters name the same file");
        }
        if outputs.into_iter().any(|output| is_same_file(output.as_deref(), self.input.as_deref()))
        {
            bail!("the input would be overwritten by the results");
        }
        if self.batch() > COMMAND_BATCH_MAX {
            bail!("--batch is at most {COMMAND_BATCH_MAX} for exec: and each:");
        }
        Ok(())
    }

    pub(super) fn is_command(&self) -> bool {
        matches!(self.task, TaskSpec::Command(..))
    }

    pub(super) fn open_input(&self) -> Result<Option<Arc<Input>>> {
        self.input.as_deref().map(|path| Input::open(path).map(Arc::new)).transpose()
    }

    /// Fails if the files of a directory cannot be listed.
    pub(super) fn plan(&self, input: Option<&Input>) -> Result<Plan> {
        let seed = match &self.task {
            TaskSpec::Exercise(_) => self.seed,
            TaskSpec::Files(dir) => FileSums::list(dir.as_ref())?.fingerprint(),
            TaskSpec::Command(..) => input.map_or(self.seed, Input::fingerprint),
        };
        let item_timeout_ms = nanoseconds(self.item_timeout) / 1_000_000;
        let limits = CommandLimits { retries: self.retries, item_timeout_ms };
        let limits = self.is_command().then_some(limits);
        Ok(Plan { task: self.task.to_string(), seed, batch: self.batch(), limits })
    }

    /// Files take longer than numbers, so their batches are smaller.
    fn batch(&self) -> u32 {
        self.batch.unwrap_or(match self.task {
            TaskSpec::Exercise(_) => 4096,
            TaskSpec::Files(_) => 16,
            // Each batch costs two context switches between the thread and its worker.
            TaskSpec::Command(..) => COMMAND_BATCH_MAX,
        })
    }

    pub(super) fn results(&self) -> Option<ResultsOptions> {
        let (path, dead_letters) = (self.results.clone(), self.dead_letters.clone());
        let is_any = path.is_some() || dead_letters.is_some();
        is_any.then_some(ResultsOptions {
            path,
            dead_letters,
            order: self.order,
            existing: self.existing,
        })
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
            lease_ns_min: nanoseconds(self.lease()),
        }
    }

    /// A command may take long, and another one in parallel would repeat its effects. Its batch is
    /// sent again at once if the connection of its executor ends.
    fn lease(&self) -> Duration {
        let lease =
            if self.is_command() { Duration::from_hours(24) } else { Duration::from_secs(1) };
        self.lease.unwrap_or(lease)
    }

    pub(super) fn listen_for_executors(&self) -> SocketAddr {
        self.listen.unwrap_or(local(EXECUTOR_PORT))
    }

    pub(super) fn listen_for_reports(&self) -> SocketAddr {
        self.listen.unwrap_or(local(MONITOR_PORT))
    }

    pub(super) fn listen_for_results(&self) -> SocketAddr {
        self.listen.unwrap_or(local(COLLECTOR_PORT))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn between(text: &str, min: Duration, max: Duration) -> Result<Duration, ValueError> {
    let duration = Duration::read(text)?;
    if !(min..=max).contains(&duration) {
        let reason = format!("{duration:?} is out of range: {min:?} to {max:?}");
        return Err(ValueError::Explained(reason));
    }
    Ok(duration)
}

fn count(text: &str) -> Result<u64, ValueError> {
    parse_count(text).map_err(|error| ValueError::Explained(format!("{text:?} is {error}")))
}

impl Value for TaskSpec {
    fn read(text: &str) -> Result<TaskSpec, ValueError> {
        text.parse().map_err(ValueError::explained)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for Rate {
    fn read(text: &str) -> Result<Rate, ValueError> {
        Ok(if text == "max" { Rate::Max } else { Rate::PerSecond(count(text)?.max(1)) })
    }

    fn text(&self) -> String {
        match self {
            Rate::Max => "max".to_owned(),
            Rate::PerSecond(rate) => rate.to_string(),
        }
    }
}

/// `all`, or `sample:100/60s`.
impl Value for Verify {
    fn read(text: &str) -> Result<Verify, ValueError> {
        if text == "all" {
            return Ok(Verify::All);
        }
        let wrong = || ValueError::Explained(format!("{text:?} is not all or sample:N/TIME"));
        let parts = text.strip_prefix("sample:").and_then(|rest| rest.split_once('/'));
        let (size, window) = parts.ok_or_else(wrong)?;
        let window = between(window, Duration::from_millis(10), Duration::from_hours(24))?;
        match usize::try_from(count(size)?) {
            Ok(size @ 1..=SAMPLE_MAX) => {
                Ok(Verify::Sample { size, window_ns: nanoseconds(window) })
            }
            _ => Err(ValueError::Explained(format!("{size} is out of range: 1 to {SAMPLE_MAX}"))),
        }
    }

    fn text(&self) -> String {
        match self {
            Verify::All => "all".to_owned(),
            Verify::Sample { size, window_ns } => {
                format!("sample:{size}/{}", Duration::from_nanos(*window_ns).text())
            }
        }
    }
}

impl Value for Share {
    fn read(text: &str) -> Result<Share, ValueError> {
        let share = match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
            None => text.parse(),
        };
        match share {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Share(share)),
            _ => Err(ValueError::Explained(format!("{text} is not a fraction from 0 to 1"))),
        }
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// Whether two options name the same file, also by a link. `-` is standard input.
fn is_same_file(one: Option<&Path>, other: Option<&Path>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    let place = |path: &Path| {
        let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
        let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((file.dev(), file.ino()))
    };
    one == other || place(one).is_some_and(|found| Some(found) == place(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cli::table::{COLLECTOR, GENERATOR, MONITOR, RUN};
    use lexopt::Parser;
    use options::CommandLine;

    fn load(
        table: &'static [Section<Arguments>],
        words: &[&str],
    ) -> Result<Loaded<Arguments>, String> {
        let line = CommandLine::parse(table, &mut Parser::from_args(words));
        let line = line.map_err(|error| error.to_string())?.expect("no help is asked for");
        line.load(table).map_err(|error| error.to_string())
    }

    fn parsed(name: &str, value: &str) -> Result<Arguments, String> {
        let tables = [RUN, COLLECTOR, MONITOR];
        let table = tables.into_iter().find(|table| options::find(table, name).is_some());
        load(table.unwrap(), &[&format!("--{name}"), value]).map(|loaded| loaded.settings)
    }

    #[test]
    fn every_default_is_read_as_it_is_shown() {
        for row in [RUN, GENERATOR, COLLECTOR, MONITOR].into_iter().flat_map(options::rows) {
            let shown = row.text(&Arguments::default());
            let mut read = Arguments::default();
            if !shown.is_empty() {
                row.set(&mut read, &shown).unwrap();
            }
            assert_eq!(row.text(&read), shown, "{}", row.name);
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
        assert_eq!(parsed("growth-max", "1%").unwrap().growth_max, Some(Share(0.01)));
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
            ("retries", "1001"),
            ("item-timeout", "0s"),
            ("task", "exec:"),
            ("window", "65537"),
        ] {
            let error = parsed(name, value).unwrap_err();
            assert!(error.starts_with(&format!("--{name}: ")), "{error}");
        }
    }

    #[test]
    fn options_are_passed_on() {
        let words = ["--rate", "5k", "--processes", "--verify", "all", "--rate=6k"];
        let found = load(RUN, &words).unwrap();
        assert!(found.settings.processes);
        assert_eq!(options_of(&found, GENERATOR), ["--rate", "6000"]);
        assert_eq!(options_of(&found, COLLECTOR), ["--verify", "all"]);
    }

    #[test]
    fn a_role_has_only_its_options() {
        assert_eq!(load(MONITOR, &["--rate", "5"]).unwrap_err(), "--rate: unknown option");
    }
}
