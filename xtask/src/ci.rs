//! `cargo xtask ci`: everything that must hold before a change is kept.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::Target;
use crate::tally::Tally;
use crate::{
    clients, console, cql, crash, differential, hostile, lab_smoke, report, steps, tidy, transcript,
};

/// Kill -9 under load, recover, compare: how often.
const CRASH_ROUNDS: &str = "20";
/// Cut the power of the disk under load, recover, compare: how often, and which cuts.
const POWER_CUTS: u64 = 8;
const POWER_CUT_SEED: u64 = 1;
/// Which garbage hostile clients send.
const HOSTILE_SEED: u64 = 1;
/// Which statements the server and its twin that is killed all the time are asked, and of how many tables.
const DIFFERENTIAL_SEED: u64 = 1;
const DIFFERENTIAL_SCHEMAS: u64 = 8;
const DIFFERENTIAL_STATEMENTS: usize = 40;

/// What a step found; `None`: it does not apply here, and why was printed.
type StepResult = Result<Option<Tally>>;

/// One step and its name for `--only`.
struct Step {
    name: &'static str,
    run: fn(&Path) -> StepResult,
}

/// What later steps start.
const BUILD: &[&str] = &["build", "--release", "-p", "myriad", "-p", "myriad-lab"];

/// In this order: cheap ones first, so that a mistake shows early.
const STEPS: [Step; 17] = [
    Step { name: "fmt", run: |root| plain(cargo(root, &["fmt", "--all", "--check"])) },
    Step { name: "tidy", run: |root| tidy::run(root).map(Some) },
    Step { name: "clippy", run: run_clippy },
    Step { name: "test", run: run_tests },
    Step { name: "build", run: |root| plain(cargo(root, BUILD)) },
    Step { name: "transcripts-redis", run: |root| run_transcripts(root, Target::Redis) },
    Step { name: "transcripts-myriad", run: |root| run_transcripts(root, Target::Myriad) },
    Step { name: "cql", run: run_cql },
    Step { name: "cql-differential", run: run_differential },
    Step { name: "clients-redis", run: |root| run_clients(root, &Target::Redis) },
    Step { name: "clients-myriad", run: |root| run_clients(root, &Target::Myriad) },
    Step { name: "crash", run: run_crash },
    Step { name: "hostile", run: run_hostile },
    Step { name: "lab-smoke", run: |root| lab_smoke::run(root).map(Some) },
    Step { name: "report", run: |root| report::run(root).map(Some) },
    Step { name: "console", run: |root| console::run(root).map(Some) },
    Step { name: "deny", run: run_deny },
];

/// The names of all steps, in their order.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|step| step.name)
}

/// Runs all steps, or those that `only` names; goes on after a failure, to show all of them.
pub(crate) fn run(root: &Path, only: &[String]) -> Result<Tally> {
    if let Some(unknown) = only.iter().find(|wanted| names().all(|name| name != wanted.as_str())) {
        bail!("no step {unknown:?}: cargo xtask ci --list");
    }
    let mut total = Tally::default();
    let mut summary = Vec::new();
    for step in &STEPS {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == step.name) {
            continue;
        }
        println!("=== {}", step.name);
        let started = Instant::now();
        let result = (step.run)(root);
        let (line, counted) = describe(step.name, &result, started.elapsed());
        println!("{line}");
        summary.push(line);
        total += counted;
    }
    println!("=== summary");
    for line in &summary {
        println!("{line}");
    }
    Ok(total)
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

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(arguments);
    command
}

/// A command without counts of its own counts as one.
fn plain(mut command: Command) -> StepResult {
    steps::run_plain(&mut command)?;
    Ok(Some(Tally { passed: 1, failed: 0 }))
}

fn run_clippy(root: &Path) -> StepResult {
    plain(cargo(
        root,
        &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"],
    ))
}

fn run_tests(root: &Path) -> StepResult {
    let arguments = ["test", "--quiet", "--workspace", "--no-fail-fast"];
    steps::run_counted(&mut cargo(root, &arguments)).map(Some)
}

fn run_transcripts(root: &Path, target: Target) -> StepResult {
    let options = transcript::Options { target, filter: None, update: false };
    transcript::run_all(root, &options).map(Some)
}

fn run_cql(root: &Path) -> StepResult {
    let options = cql::Options { peer: cql::Peer::Myriad, filter: None, update: false };
    cql::run_all(root, &options).map(Some)
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
    if !root.join("xtask/src/crash.rs").exists() {
        println!("there is no crash test yet");
        return Ok(None);
    }
    let mut tally =
        steps::run_counted(&mut cargo(root, &["xtask", "crash", "--rounds", CRASH_ROUNDS]))?;
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

/// The seed is fixed, so that a failure is not hidden by the next run.
fn run_hostile(root: &Path) -> StepResult {
    let options = hostile::Options { target: Target::Myriad, seed: HOSTILE_SEED, filter: None };
    let verdict = hostile::run(root, &options)?;
    if verdict.skipped > 0 {
        println!("{} hostile checks were SKIPPED: see above", verdict.skipped);
    }
    Ok(Some(verdict.tally))
}

/// Without the advisories: their database is fetched, and a change of the world must not fail an
/// unchanged tree. `cargo deny check` looks at them too.
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
    fn an_unknown_step_is_refused() {
        assert!(run(Path::new("."), &["nonsense".into()]).is_err());
    }
}
