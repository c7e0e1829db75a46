//! `cargo xtask hostile`: a malicious client, against a server that must tolerate it.
//!
//! Every check starts its own server, runs one kind of attack, and verifies three things: the
//! answers are the documented ones (`docs/reference/limits.md`), memory use returns to its earlier
//! level, and another, well-behaved client was served all the time. The last is judged by the
//! number of completed requests, never by the clock: timeouts only detect hangs. Then the server is
//! stopped by SIGTERM: it must end with 0 and must not have panicked.

mod ask;
mod bystander;
mod bytes;
mod cql;
mod cql_bytes;
mod cql_requests;
mod cql_schemas;
mod crowds;
mod disk;
mod http;
mod memory;
mod refusals;
mod replies;
mod requests;
mod stage;
mod stalls;
mod subject;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::subject::Subject;
use crate::process::Target;
use crate::tally::Tally;

/// An event that has not occurred after this time counts as missing: a busy machine may halt a
/// process for seconds.
const HANG_TIMEOUT: Duration = Duration::from_mins(1);
/// Polling interval for conditions without a notification.
const POLL: Duration = Duration::from_millis(1);
/// Options of every server, unless a check overrides them. Later ones win.
const OPTIONS: &[&str] = &["--resp", "127.0.0.1:0", "--reactors", "2", "--log-level", "warn"];

/// Command line options.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) target: Target,
    pub(crate) seed: u64,
    pub(crate) selection: Selection,
}

/// Which checks run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Checks whose name contains this: all, if it is empty.
    Named(String),
    /// Checks that judge no time.
    WithoutStalls,
    Stalls,
}

impl Selection {
    fn includes(&self, check: &Check) -> bool {
        let is_stalls = stalls::CHECKS.iter().any(|stalls| stalls.name == check.name);
        match self {
            Selection::Named(part) => check.name.contains(part.as_str()),
            Selection::WithoutStalls => !is_stalls,
            Selection::Stalls => is_stalls,
        }
    }
}

/// The parameters of every check.
#[derive(Debug)]
struct Scene<'a> {
    root: &'a Path,
    target: &'a Target,
    seed: u64,
}

/// The outcome of a check that did not fail.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// The check is impossible on this machine, with the reason.
    Skipped(String),
}

/// One kind of attack.
struct Check {
    name: &'static str,
    /// False: the server must be started with other options, or must end.
    suits_any_server: bool,
    run: fn(&Scene<'_>) -> Result<Outcome>,
}

impl Scene<'_> {
    /// A server with `options` in addition to the usual ones.
    fn start(&self, options: &[&str]) -> Result<Subject> {
        match self.target {
            Target::Address(address) => Ok(Subject::at(address)),
            Target::Myriad | Target::Redis => Subject::start(self.root, options),
        }
    }
}

/// Counts of a run. Skipped checks are not part of a [`Tally`], but are shown with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    pub(crate) tally: Tally,
    pub(crate) skipped: u64,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {} skipped", self.tally, self.skipped)
    }
}

fn checks() -> impl Iterator<Item = &'static Check> {
    let lists: [&[Check]; 12] = [
        bytes::CHECKS,
        crowds::CHECKS,
        replies::CHECKS,
        requests::CHECKS,
        memory::CHECKS,
        disk::CHECKS,
        refusals::CHECKS,
        http::CHECKS,
        cql_bytes::CHECKS,
        cql_requests::CHECKS,
        cql_schemas::CHECKS,
        stalls::CHECKS,
    ];
    lists.into_iter().flatten()
}

/// Runs all selected checks; continues after a failure.
pub(crate) fn run(root: &Path, options: &Options) -> Result<Verdict> {
    raise_descriptors();
    println!("hostile: seed {}", options.seed);
    let scene = Scene { root, target: &options.target, seed: options.seed };
    let mut verdict = Verdict::default();
    for check in checks().filter(|check| options.selection.includes(check)) {
        let started = Instant::now();
        let result = if check.suits_any_server || !matches!(options.target, Target::Address(_)) {
            (check.run)(&scene)
        } else {
            Ok(Outcome::Skipped("it needs a server of its own".into()))
        };
        let took_s = started.elapsed().as_secs_f64();
        match result {
            Ok(Outcome::Passed) => {
                println!("ok      {} ({took_s:.1} s)", check.name);
                verdict.tally.passed += 1;
            }
            Ok(Outcome::Skipped(reason)) => {
                println!("SKIPPED {}: {reason}", check.name);
                verdict.skipped += 1;
            }
            Err(error) => {
                println!("FAILED  {} ({took_s:.1} s): {error:#}", check.name);
                verdict.tally.failed += 1;
            }
        }
    }
    if verdict == Verdict::default() {
        bail!("no check is selected: {:?}", options.selection);
    }
    Ok(verdict)
}

/// Ten thousand connections need as many descriptors, here and in the servers that inherit them.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the check that needs them reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Waits until `condition` holds.
fn until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !condition()? {
        if started.elapsed() > HANG_TIMEOUT {
            bail!("{what}: still not so after {HANG_TIMEOUT:?}");
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        assert!(checks().all(|check| seen.insert(check.name)));
    }

    #[test]
    fn the_verdict_is_a_tally_and_the_skipped() {
        let verdict = Verdict { tally: Tally { passed: 3, failed: 1 }, skipped: 2 };
        assert_eq!(verdict.to_string(), "3 passed, 1 failed, 2 skipped");
    }
}
