//! `cargo xtask ci`: all checks that must pass before a change is merged.

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::process::Target;
use crate::steps::cargo;
use crate::tally::Tally;
use crate::{
    chaos, clients, console, cql, crash, differential, hostile, lab_smoke, linearizable,
    redis_differential, report, rust_tests, states, steps, tidy, transcript,
};

/// Rounds of kill -9 under load, recovery and comparison.
const CRASH_ROUNDS: u64 = 20;
/// Number of power cuts of the disk under load, each with recovery and comparison.
const POWER_CUTS: u64 = 8;
const POWER_CUT_SEED: u64 = 1;
/// Seed of the garbage that hostile clients send.
const HOSTILE_SEED: u64 = 1;
/// Seed of the statements for the server and for its twin that is killed repeatedly, and the number
/// of tables.
const DIFFERENTIAL_SEED: u64 = 1;
const DIFFERENTIAL_SCHEMAS: u64 = 8;
const DIFFERENTIAL_STATEMENTS: usize = 40;

/// Seed of the commands for Myriad and Redis, and their number. `cargo xtask redis-differential`
/// runs a million, with another seed each time.
const REDIS_DIFFERENTIAL_SEED: u64 = 1;
const REDIS_DIFFERENTIAL_COMMANDS: u64 = 40_000;

/// Rounds of concurrent clients for each number of reactors, and for a server that loses writes.
const LINEARIZABLE_ROUNDS: u64 = 8;
const LINEARIZABLE_SEED: u64 = 1;
const LINEARIZABLE_REACTORS: [u32; 2] = [1, 4];

/// Time in which random commands meet extreme states, and the seed of the first round.
/// `cargo xtask states` takes another seed each time.
const STATES_SECONDS: u64 = 60;
const STATES_ROUND_SECONDS: u64 = 2;
const STATES_SEED: u64 = 0;

/// Time under disturbances of servers in network namespaces, and a seed whose disturbances include
/// failovers and promotions.
const CHAOS_SECONDS: u64 = 15;
const CHAOS_SEED: u64 = 17;

/// Result of a step; `None`: the step does not apply here, and the reason was printed.
type StepResult = Result<Option<Tally>>;

/// One step and its name for `--only`.
struct Step {
    name: &'static str,
    run: fn(&Path) -> StepResult,
    /// Whether it runs at the same time as neighbours that share, too: it judges no time.
    shares: bool,
}

/// Number of steps that run at the same time, each in a process of its own.
const LANES: usize = 2;

/// A step that takes longer than this on any machine waits for something that never happens.
const STEP_TIME_MAX: Duration = Duration::from_mins(25);

/// The build of the program that later steps start, with the features of the packages.
const BUILD: &[&str] = &["build", "--release", "-p", "myriad", "--features", "s3"];

/// After this step, the Rust tests are built during the next steps, which mostly wait for clients.
const BUILD_STEP: &str = "build";
/// The first step that waits for the build of the Rust tests.
const TEST_STEP: &str = "test";

/// Cheap steps first, so that mistakes are reported early. Of steps that share, the longest first.
const STEPS: [Step; 23] = [
    shared("fmt", |root| plain(cargo(root, &["fmt", "--all", "--check"]))),
    shared("tidy", |root| tidy::run(root).map(Some)),
    shared("clippy", run_clippy),
    alone(BUILD_STEP, |root| plain(steps::cargo_as_configured(root, BUILD))),
    alone("transcripts-redis", |root| run_transcripts(root, Target::Redis)),
    alone("transcripts-myriad", |root| run_transcripts(root, Target::Myriad)),
    alone("redis-differential", run_redis_differential),
    alone("cql", run_cql),
    alone("cql-differential", run_differential),
    alone("clients-redis", |root| run_clients(root, &Target::Redis)),
    alone("clients-myriad", |root| run_clients(root, &Target::Myriad)),
    alone(TEST_STEP, |root| rust_tests::run(root).map(Some)),
    shared("hostile", |root| run_hostile(root, hostile::Selection::WithoutStalls)),
    shared("states", run_states),
    shared("report", |root| report::run(root).map(Some)),
    shared("console", |root| console::run(root).map(Some)),
    shared("chaos", run_chaos),
    shared("deb", run_deb),
    shared("lab-smoke", |root| lab_smoke::run(root).map(Some)),
    shared("crash", run_crash),
    shared("linearizable", run_linearizable),
    alone("stalls", |root| run_hostile(root, hostile::Selection::Stalls)),
    alone("deny", run_deny),
];

const fn alone(name: &'static str, run: fn(&Path) -> StepResult) -> Step {
    Step { name, run, shares: false }
}

const fn shared(name: &'static str, run: fn(&Path) -> StepResult) -> Step {
    Step { name, run, shares: true }
}

/// The names of all steps, in order.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|step| step.name)
}

/// Runs all steps, or those named by `only`; continues after a failure, to report all of them.
pub(crate) fn run(root: &Path, only: &[String]) -> Result<Tally> {
    if let Some(unknown) = only.iter().find(|wanted| names().all(|name| name != wanted.as_str())) {
        bail!("no step {unknown:?}: cargo xtask ci --list");
    }
    if only.is_empty() { run_all(root) } else { Ok(run_some(root, only)) }
}

/// Runs the named steps one after the other, in this process.
fn run_some(root: &Path, only: &[String]) -> Tally {
    let mut total = Tally::default();
    for step in STEPS.iter().filter(|step| only.iter().any(|wanted| wanted == step.name)) {
        total += step.run_here(root);
    }
    total
}

/// Runs all steps, each in a process of its own, and prints a summary with the reasons of failures:
/// they may be thousands of lines above the end of the output.
fn run_all(root: &Path) -> Result<Tally> {
    let mut total = Tally::default();
    let outcomes = Mutex::new(Vec::new());
    let mut tests = None;
    for steps in STEPS.chunk_by(|one, next| one.shares && next.shares) {
        if steps[0].name == TEST_STEP {
            tests.take().map(|mut build: Child| build.wait()).transpose()?;
        }
        total += steps::run_lanes(LANES, steps.iter().collect(), |step: &Step| {
            let (output, outcome) = step.run_apart(root)?;
            let counted = outcome.counted;
            outcomes.lock().push(outcome);
            Ok((output, counted))
        })?;
        if steps[0].name == BUILD_STEP {
            tests = Some(rust_tests::start_build(root)?);
        }
    }
    let outcomes = outcomes.into_inner();
    println!("=== summary");
    let lines = outcomes.iter().map(|outcome| &outcome.line);
    for line in lines.chain(outcomes.iter().flat_map(|outcome| &outcome.reasons)) {
        println!("{line}");
    }
    Ok(total)
}

/// What a step has printed of itself.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// The line of the summary.
    line: String,
    counted: Tally,
    /// The lines of the output that name what failed.
    reasons: Vec<String>,
}

impl Step {
    fn run_here(&self, root: &Path) -> Tally {
        println!("=== {}", self.name);
        let started = Instant::now();
        let result = with_limit(self.name, STEP_TIME_MAX, || (self.run)(root));
        let (line, counted) = describe(self.name, &result, started.elapsed());
        println!("{line}");
        counted
    }

    /// Runs the step as `cargo xtask ci --only`. Returns its output, which is also kept in a file,
    /// with what it contains.
    fn run_apart(&self, root: &Path) -> Result<(Vec<u8>, Outcome)> {
        let folder = root.join("target/ci");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.log", self.name));
        println!("=== {} begins: target/ci/{}.log", self.name, self.name);
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let status = Command::new(env::current_exe()?)
            .args(["ci", "--only", self.name])
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()?;
        let output = fs::read(&path)?;
        let outcome = self.outcome(&String::from_utf8_lossy(&output), status.success());
        Ok((output, outcome))
    }

    /// Finds the line of the summary and the counts in the output of a step. A step that ends
    /// without them has failed.
    fn outcome(&self, output: &str, is_success: bool) -> Outcome {
        let start = format!("--- {}: ", self.name);
        let line = output.lines().rfind(|line| line.starts_with(&start));
        let counted = output.lines().next_back().and_then(Tally::parse);
        let (line, counted) = match (line, counted) {
            (Some(line), Some(counted)) if is_success || counted.failed > 0 => {
                (line.to_owned(), counted)
            }
            _ => (format!("{start}FAILED, ended early"), Tally { passed: 0, failed: 1 }),
        };
        let reasons = if counted.failed > 0 { reasons(self.name, output) } else { Vec::new() };
        Outcome { line, counted, reasons }
    }
}

/// Lines that are shown again of a step that failed, and characters of each.
const REASONS_MAX: usize = 12;
const REASON_LENGTH_MAX: usize = 200;

/// The first lines that name a failure, each with its neighbours; without any, lines that begin with an
/// error, or the last lines.
fn reasons(step: &str, output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let names_failure = |line: &str| line.starts_with("FAILED") || line.contains("panicked at");
    let names_error = |line: &str| {
        let first = line.split(' ').next().unwrap_or_default();
        first.ends_with("Error:") || first.ends_with("Exception:") || line.starts_with("error")
    };
    let near = |is_reason: &dyn Fn(&str) -> bool| -> Vec<usize> {
        let is_near = |&index: &usize| {
            let neighbours = index.saturating_sub(1)..lines.len().min(index + 2);
            lines[neighbours].iter().any(|line| is_reason(line.trim_start()))
        };
        (0..lines.len()).filter(is_near).take(REASONS_MAX).collect()
    };
    let mut found = near(&names_failure);
    if found.is_empty() {
        found = near(&names_error);
    }
    if found.is_empty() {
        found = (lines.len().saturating_sub(REASONS_MAX)..lines.len()).collect();
    }
    let cut = |line: &str| line.chars().take(REASON_LENGTH_MAX).collect::<String>();
    found.into_iter().map(|index| format!("{step}: {}", cut(lines[index].trim()))).collect()
}

/// Ends this process if the step does not end in time. Processes that the step has started are left
/// as they are, to be examined.
fn with_limit<T>(name: &str, limit: Duration, run: impl FnOnce() -> T) -> T {
    let (sender, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                println!("--- {name}: FAILED, still running after {limit:?}");
                println!("{}", Tally { passed: 0, failed: 1 });
                process::exit(1);
            }
        });
        let result = run();
        drop(sender);
        result
    })
}

fn describe(name: &str, result: &StepResult, took: Duration) -> (String, Tally) {
    let took_s = took.as_secs_f64();
    match result {
        Ok(None) => (format!("--- {name}: skipped"), Tally::default()),
        Ok(Some(counted)) if counted.failed == 0 => {
            (format!("--- {name}: ok, {counted} ({took_s:.1} s)"), *counted)
        }
        Ok(Some(counted)) => (format!("--- {name}: FAILED, {counted} ({took_s:.1} s)"), *counted),
        Err(error) => {
            let counted = Tally { passed: 0, failed: 1 };
            (format!("--- {name}: FAILED, {error:#} ({took_s:.1} s)"), counted)
        }
    }
}

/// A command that prints no counts is counted as a single check.
fn plain(mut command: Command) -> StepResult {
    steps::run_plain(&mut command)?;
    Ok(Some(Tally { passed: 1, failed: 0 }))
}

fn run_clippy(root: &Path) -> StepResult {
    const CLIPPY: &[&str] = &["clippy", "--quiet", "--workspace", "--all-targets"];
    let mut command = cargo(root, CLIPPY);
    command.args(["--features", "myriad/s3", "--", "-D", "warnings"]);
    plain(command)
}

fn run_transcripts(root: &Path, target: Target) -> StepResult {
    let options = transcript::Options { target, filter: None, update: false };
    transcript::run_all(root, &options).map(Some)
}

fn run_cql(root: &Path) -> StepResult {
    let options = cql::Options { peer: cql::Peer::Myriad, filter: None, update: false };
    cql::run_all(root, &options).map(Some)
}

fn run_redis_differential(root: &Path) -> StepResult {
    let options = redis_differential::Options {
        seed: REDIS_DIFFERENTIAL_SEED,
        commands: REDIS_DIFFERENTIAL_COMMANDS,
        against: Target::Redis,
        myriad: Target::Myriad,
    };
    redis_differential::run(root, &options).map(Some)
}

fn run_differential(root: &Path) -> StepResult {
    let options = differential::Options {
        seed: DIFFERENTIAL_SEED,
        schemas: DIFFERENTIAL_SCHEMAS,
        statements: DIFFERENTIAL_STATEMENTS,
        against: differential::Against::Itself,
    };
    differential::run(root, &options).map(Some)
}

fn run_clients(root: &Path, target: &Target) -> StepResult {
    clients::run(root, target, &[]).map(Some)
}

fn run_crash(root: &Path) -> StepResult {
    let kills = crash::Options {
        subject: crash::Subject::Myriad,
        disaster: crash::Disaster::Kill,
        rounds: CRASH_ROUNDS,
        seed: u64::from(rand::random::<u32>()),
    };
    let mut tally = crash::run(root, &kills)?;
    let power_cuts = crash::Options {
        subject: crash::Subject::Myriad,
        disaster: crash::Disaster::PowerCut,
        rounds: POWER_CUTS,
        seed: POWER_CUT_SEED,
    };
    if let Some(counted) = crash::run_power_cuts(root, &power_cuts)? {
        tally += counted;
    }
    Ok(Some(tally))
}

fn run_linearizable(root: &Path) -> StepResult {
    let mut tally = Tally::default();
    for reactors in LINEARIZABLE_REACTORS {
        let options = linearizable::Options {
            subject: crash::Subject::Myriad,
            reactors,
            rounds: LINEARIZABLE_ROUNDS,
            seed: LINEARIZABLE_SEED,
        };
        tally += linearizable::run(root, &options)?;
        tally += linearizable::canary(root, &options)?;
    }
    Ok(Some(tally))
}

fn run_states(root: &Path) -> StepResult {
    let options = states::Options {
        program: None,
        seed: STATES_SEED,
        seconds: STATES_SECONDS,
        round_seconds: STATES_ROUND_SECONDS,
        only: None,
    };
    states::run(root, &options).map(Some)
}

fn run_chaos(root: &Path) -> StepResult {
    if let Some(obstacle) = chaos::obstacle() {
        println!("NOT TESTED: {obstacle}");
        return Ok(None);
    }
    let mut tally = Tally::default();
    for subject in [chaos::Subject::Replicas, chaos::Subject::Hub] {
        let options = chaos::Options { subject, seconds: CHAOS_SECONDS, seed: CHAOS_SEED };
        tally += chaos::run(root, &options)?;
    }
    Ok(Some(tally))
}

/// The seed is fixed, so that a failure is not hidden by the next run.
fn run_hostile(root: &Path, selection: hostile::Selection) -> StepResult {
    let options = hostile::Options { target: Target::Myriad, seed: HOSTILE_SEED, selection };
    let verdict = hostile::run(root, &options)?;
    if verdict.skipped > 0 {
        println!("{} hostile checks were SKIPPED: see above", verdict.skipped);
    }
    Ok(Some(verdict.tally))
}

/// Without the advisories: their database is downloaded, and a change of it must not fail an
/// unchanged tree. `cargo deny check` includes them.
/// Installs, upgrades and purges the Debian package in a copy of this system.
fn run_deb(root: &Path) -> StepResult {
    /// The script prints why it can not.
    const NOT_ALLOWED: i32 = 77;
    let mut command = Command::new(root.join("scripts/check_deb.sh"));
    let status = command.stdin(Stdio::null()).status().context("start scripts/check_deb.sh")?;
    match status.code() {
        Some(0) => Ok(Some(Tally { passed: 1, failed: 0 })),
        Some(NOT_ALLOWED) => Ok(None),
        _ => bail!("scripts/check_deb.sh: {status}"),
    }
}

fn run_deny(root: &Path) -> StepResult {
    let installed =
        cargo(root, &["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !installed {
        println!("cargo-deny is not installed: cargo install --locked cargo-deny");
        return Ok(None);
    }
    plain(cargo(root, &["deny", "--workspace", "check", "licenses", "bans", "sources"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_breaks_is_a_failure_with_its_reason() {
        let result = Err(anyhow::anyhow!("no such binary"));
        let (line, counted) = describe("build", &result, Duration::from_millis(1500));
        assert_eq!(line, "--- build: FAILED, no such binary (1.5 s)");
        assert_eq!(counted.failed, 1);
    }

    #[test]
    fn the_outcome_of_a_process_is_at_its_end() {
        let step = shared("crash", run_crash);
        let output = "=== crash\n  29 passed, 1 failed\n--- crash: FAILED, 29 (9.0 s)\n29 passed, 1 failed\n";
        let outcome = step.outcome(output, false);
        assert_eq!(outcome.line, "--- crash: FAILED, 29 (9.0 s)");
        assert_eq!(outcome.counted, Tally { passed: 29, failed: 1 });
        let whole = output.replace("1 failed", "0 failed");
        let outcome = step.outcome(&whole, true);
        assert_eq!(outcome.counted, Tally { passed: 29, failed: 0 });
        assert!(outcome.reasons.is_empty());
        for (output, is_success) in [(&*whole, false), ("=== crash\n  29 passed, 0 failed\n", true)]
        {
            assert_eq!(step.outcome(output, is_success).counted, Tally { passed: 0, failed: 1 });
        }
    }

    #[test]
    fn the_reasons_of_a_failure_are_shown_again() {
        let suite =
            "=== s\n  ok one\n  FAILED two\n  Traceback\n  ValueError: 3\n  5 passed, 1 failed\n";
        assert_eq!(reasons("s", suite), ["s: ok one", "s: FAILED two", "s: Traceback"]);
        let test = "  test a ... ok\n\n  thread 'b' panicked at c.rs:1:\n  reason\n";
        assert_eq!(
            reasons("t", test),
            ["t: test a ... ok", "t: thread 'b' panicked at c.rs:1:", "t: reason"]
        );
        assert_eq!(reasons("u", "one\ntwo\n"), ["u: one", "u: two"]);
        assert_eq!(reasons("v", &"error: x\n".repeat(100)).len(), REASONS_MAX);
    }

    #[test]
    fn an_unknown_step_is_refused() {
        assert!(run(Path::new("."), &["nonsense".into()]).is_err());
    }
}
