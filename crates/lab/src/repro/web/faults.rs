//! Kills a worker and replaces the program under load, and counts the affected clients.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::clients::{Clients, Failure, Manner, Plan};
use super::host::{Host, signal};
use super::sockets::clients_of;
use super::talk::{GET, connect, receives_hello};
use super::{Bench, milliseconds, real};
use crate::repro::finding::{Finding, FindingRow, Number};

const WORKERS: &str = "2";
/// Clients that keep their connections, and clients that open a new one for each page.
const KEEP_ALIVE_CLIENTS: usize = 32;
const RECONNECTING_CLIENTS: usize = 4;
/// Time limit for a replacement worker to be running.
const RESPAWN_MAX: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Failures caused by a death appear within this time.
const AFTERMATH: Duration = Duration::from_millis(300);
/// A worker that ran this long is replaced immediately when it dies; earlier deaths count as
/// repeated startup failures.
const UPTIME_MIN: Duration = Duration::from_secs(11);
const REPLACEMENTS: usize = 10;

/// Consequences of a death.
#[derive(Debug, Clone, Default)]
struct WorkerDeath {
    /// Time until another process was running, and until it had a client.
    respawned: Duration,
    serving: Duration,
    /// Number of clients of the dead worker.
    clients: usize,
    /// Number of failed requests.
    failures: usize,
    /// Of these, requests to other workers.
    other_worker_failures: usize,
}

/// Results of ten replacements.
#[derive(Debug, Default)]
struct Replacements {
    took: Vec<Duration>,
    pages: u64,
    failures: u64,
    first_failure: String,
}

/// Both kinds of clients.
struct Load {
    keep_alive: Clients,
    reconnecting: Clients,
}

impl Load {
    fn start(host: &Host) -> Result<Self> {
        let address = host.address();
        let client_group = |clients, manner| Clients::start(Plan { address, clients, manner });
        Ok(Self {
            keep_alive: client_group(KEEP_ALIVE_CLIENTS, Manner::KeepAlive)?,
            reconnecting: client_group(RECONNECTING_CLIENTS, Manner::NewConnections)?,
        })
    }

    fn pages(&self) -> u64 {
        self.keep_alive.pages() + self.reconnecting.pages()
    }

    fn failure_count(&self) -> u64 {
        self.keep_alive.failure_count() + self.reconnecting.failure_count()
    }

    fn failures_since(&self, at: Instant) -> Vec<Failure> {
        [self.keep_alive.failures_since(at), self.reconnecting.failures_since(at)].concat()
    }

    /// Waits for `count` more pages.
    fn wait_for_pages(&self, bench: &Bench<'_>, count: u64) -> Result<()> {
        let target = self.pages() + count;
        let is_reached = || Ok((self.pages() >= target).then_some(()));
        bench.wait_for("pages are received", WAIT_MAX, is_reached)
    }

    fn stop(self) -> Result<()> {
        self.keep_alive.stop()?;
        self.reconnecting.stop()
    }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Finding> {
    let deaths = kill_workers(bench).context("could not kill workers")?;
    let mut replaced = Vec::new();
    for accept in ["least-loaded", "fdpass"] {
        if bench.is_quick && accept != "least-loaded" {
            continue;
        }
        let found = replace(bench, accept).with_context(|| format!("replace, {accept}"))?;
        replaced.push((accept, found));
    }
    Ok(finding(&deaths, &replaced))
}

fn kill_workers(bench: &Bench<'_>) -> Result<Vec<WorkerDeath>> {
    let host = Host::start(bench, &["--workers", WORKERS])?;
    let load = Load::start(&host)?;
    let mut deaths = Vec::new();
    for round in 0..bench.pick(1, 3) {
        if round > 0 {
            bench.pause(UPTIME_MIN)?;
        }
        for index in 0..2 {
            deaths.push(kill_one(bench, &host, &load, index)?);
        }
    }
    load.stop()?;
    Ok(deaths)
}

fn kill_one(bench: &Bench<'_>, host: &Host, load: &Load, index: usize) -> Result<WorkerDeath> {
    load.wait_for_pages(bench, 1_000)?;
    let port = host.address().port();
    let workers = host.workers()?;
    ensure!(workers.len() == 2, "found {} workers", workers.len());
    let (victim, other) = (workers[index], workers[1 - index]);
    let others = clients_of(other, port)?;
    let clients = clients_of(victim, port)?.len();
    let killed = Instant::now();
    signal(victim, Signal::KILL)?;
    let next = bench.wait_for("another worker is running", WAIT_MAX, || {
        Ok(host.workers()?.into_iter().find(|pid| !workers.contains(pid)))
    })?;
    let respawned = killed.elapsed();
    // Kept open, so that the new worker is the least loaded one as soon as it serves.
    let mut kept = Vec::new();
    let mut serving = Duration::ZERO;
    bench.wait_for("it has a client", WAIT_MAX, || {
        let mut stream = connect(host.address(), WAIT_MAX)?;
        stream.write_all(GET).context("could not send a request")?;
        ensure!(receives_hello(&mut stream)?, "a new client got no response");
        serving = killed.elapsed();
        let own = stream.local_addr()?.port();
        kept.push(stream);
        Ok(clients_of(next, port)?.contains(&own).then_some(()))
    })?;
    bench.pause(AFTERMATH)?;
    let failures = load.failures_since(killed);
    let other_worker_failures = other_worker_failures(&failures, &others);
    Ok(WorkerDeath { respawned, serving, clients, failures: failures.len(), other_worker_failures })
}

/// Counts the failures of clients whose worker has not died.
fn other_worker_failures(failures: &[Failure], others: &BTreeSet<u16>) -> usize {
    failures.iter().filter(|failure| others.contains(&failure.port)).count()
}

fn replace(bench: &Bench<'_>, accept: &str) -> Result<Replacements> {
    let mut host = Host::start(bench, &["--workers", WORKERS, "--accept", accept])?;
    let load = Load::start(&host)?;
    let started = Instant::now();
    load.wait_for_pages(bench, 1_000)?;
    let mut replaced = Replacements::default();
    for _ in 0..REPLACEMENTS {
        replaced.took.push(host.replace(bench)?);
        load.wait_for_pages(bench, 500)?;
    }
    replaced.pages = load.pages();
    replaced.failures = load.failure_count();
    let first = load.failures_since(started).into_iter().next();
    replaced.first_failure = first.map(|failure| failure.what).unwrap_or_default();
    load.stop()?;
    Ok(replaced)
}

fn finding(deaths: &[WorkerDeath], replaced: &[(&str, Replacements)]) -> Finding {
    let slowest = deaths.iter().map(|death| death.serving).max().unwrap_or_default();
    let failed: usize = deaths.iter().map(|death| death.failures).sum();
    let other_worker_failures: usize = deaths.iter().map(|death| death.other_worker_failures).sum();
    let broken: u64 = replaced.iter().map(|(_, found)| found.failures).sum();
    let agrees = slowest <= RESPAWN_MAX && other_worker_failures == 0 && broken == 0;
    let mut rows: Vec<FindingRow> = Vec::new();
    for (at, death) in deaths.iter().enumerate() {
        let note = format!(
            "running after {:.0} ms; {} connections closed, {} requests failed, {} of other workers' clients",
            milliseconds(death.respawned),
            death.clients,
            death.failures,
            death.other_worker_failures
        );
        let serving = milliseconds(death.serving);
        rows.push(FindingRow::once(
            &format!("kill -9, death {}", at + 1),
            "serves again",
            serving,
            "ms",
            note,
        ));
    }
    for (accept, found) in replaced {
        let took: Vec<f64> = found.took.iter().map(|took| milliseconds(*took)).collect();
        let mut note = format!("{} pages meanwhile, {} failed", found.pages, found.failures);
        if !found.first_failure.is_empty() {
            note = format!("{note}, the first: {}", found.first_failure);
        }
        let variant = format!("{} replacements, {accept}", found.took.len());
        rows.push(FindingRow::over(&variant, "new program serves", &took, "ms", note));
    }
    Finding {
        name: "s2.r7".into(),
        title: "Death of a worker".into(),
        numbers: vec![
            Number::new("served again after at most", milliseconds(slowest), "ms"),
            Number::new(
                "failed requests of the dead",
                real((failed - other_worker_failures) as u64),
                "",
            ),
            Number::new("of others", real(other_worker_failures as u64), ""),
            Number::new("in replacements", real(broken), ""),
        ],
        source: "a dead worker is not replaced, and a new program requires a restart".into(),
        agrees,
        conclusion: CONCLUSION.into(),
        deviation_reason: if agrees { String::new() } else { DEVIATION_REASON.into() },
        rows,
    }
}

const CONCLUSION: &str = "\
A worker only owns its connections: they die with it, and nothing else does. Listening sockets and waiting connections \
belong to the master, so the next worker accepts them. A program is replaced the same way: the sockets stay open, new \
workers serve, and old ones end after announcing it to their clients.";
const DEVIATION_REASON: &str = "\
a worker was not replaced within a second, or other clients were affected; the rows contain details.";

#[cfg(test)]
mod tests {
    use super::*;

    fn death(serving_ms: u64, other_worker_failures: usize) -> WorkerDeath {
        let serving = Duration::from_millis(serving_ms);
        WorkerDeath {
            serving,
            clients: 16,
            failures: 9 + other_worker_failures,
            other_worker_failures,
            ..WorkerDeath::default()
        }
    }

    fn replacements(failures: u64) -> Replacements {
        let took = vec![Duration::from_millis(50); 10];
        let first_failure = if failures == 0 { String::new() } else { "read: reset".into() };
        Replacements { took, pages: 9_000, failures, first_failure }
    }

    #[test]
    fn only_clients_of_the_dead_may_notice() {
        let found = finding(&[death(40, 0), death(60, 0)], &[("fdpass", replacements(0))]);
        assert!(found.agrees);
        let expected = "served again after at most 60 ms, failed requests of the dead 18, of others 0, \
                        in replacements 0";
        assert_eq!(found.numbers(), expected);
        assert_eq!(found.rows.len(), 3);
        assert_eq!(found.rows[2].note, "9000 pages meanwhile, 0 failed");
        assert!(!finding(&[death(1_500, 0)], &[]).agrees);
        assert!(!finding(&[death(40, 1)], &[]).agrees);
        let broken = finding(&[], &[("fdpass", replacements(2))]);
        assert!(
            !broken.agrees && broken.rows[0].note.ends_with("2 failed, the first: read: reset")
        );
    }

    #[test]
    fn failures_belong_to_ports() {
        let at = Instant::now();
        let failure = |port| Failure { at, port, what: String::new() };
        let failures = [failure(0), failure(1), failure(2)];
        assert_eq!(other_worker_failures(&failures, &BTreeSet::from([2, 3])), 1);
    }
}
