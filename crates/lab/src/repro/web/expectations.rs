//! Expectations of web server users: a list of checks, and the impact of many slow clients on
//! others.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::clients::{Clients, Manner, Plan};
use super::exchanges::{self, Exchange, judge};
use super::fixture::{ABSENT, ELSEWHERE, Fixture, TRIALS, Trial};
use super::host::Host;
use super::slow_clients::SlowClients;
use super::talk::ask;
use super::{Bench, real};
use crate::repro::finding::{Finding, FindingRow, Number, median};

/// Clients whose latency is measured, and their request interval.
const GOOD_CLIENTS: usize = 20;
const GOOD_PERIOD: Duration = Duration::from_millis(20);
const DRIBBLERS: usize = 10_000;
const QUICK_DRIBBLERS: usize = 1_000;
/// Maximum factor that slow clients may add to the p99 of others at their server, compared with
/// slow clients at any server on that core: they share a core with the other clients, and their
/// bytes cross the server's core.
const RATIO_MAX: f64 = 1.2;
/// Limit until all slow clients are active.
const OPENING_MAX: Duration = Duration::from_secs(30);

/// A check and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Checked {
    row: &'static str,
    what: &'static str,
    /// Empty: as expected.
    complaint: String,
}

/// p99 of normal clients, for each repeat, in milliseconds.
#[derive(Debug, Default)]
struct Slowed {
    slow_clients: usize,
    /// Without slow clients.
    without_ms: Vec<f64>,
    /// With as many slow clients at another server on the same core: the cost of clients, sockets
    /// and core that is independent of the server.
    elsewhere_ms: Vec<f64>,
    with_ms: Vec<f64>,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Finding> {
    let fixture = Fixture::new()?;
    let host = fixture.host(bench, &[])?;
    let mut checked = Vec::new();
    for exchange in exchanges::ALL {
        bench.check_not_stopped()?;
        checked.push(try_exchange(&host, exchange)?);
    }
    drop(host);
    for trial in TRIALS {
        bench.check_not_stopped()?;
        checked.push(try_trial(bench, &fixture, trial));
    }
    let slowed = measure_slow(bench).context("could not measure slow clients")?;
    Ok(finding(&checked, &slowed))
}

fn try_exchange(host: &Host, exchange: &Exchange) -> Result<Checked> {
    let answer = ask(host.address(), exchange.request.as_bytes());
    let answer = answer.with_context(|| exchange.what.to_owned())?;
    let complaint = judge(exchange, &answer).unwrap_or_default();
    Ok(Checked { row: exchange.row, what: exchange.what, complaint })
}

/// Runs a check. One that cannot be completed counts as failed.
fn try_trial(bench: &Bench<'_>, fixture: &Fixture, trial: &Trial) -> Checked {
    let complaint = (trial.run)(bench, fixture).err().map(|error| format!("{error:#}"));
    Checked { row: trial.row, what: trial.what, complaint: complaint.unwrap_or_default() }
}

fn measure_slow(bench: &Bench<'_>) -> Result<Slowed> {
    let mut slowed = Slowed::default();
    let host = Host::start(bench, &["--workers", "1"])?;
    let other = Host::start(bench, &["--workers", "1"])?;
    let (address, manner) = (host.address(), Manner::Paced(GOOD_PERIOD));
    let client_group = Clients::start(Plan { address, clients: GOOD_CLIENTS, manner })?;
    bench.pause(Duration::from_millis(500))?;
    for repeat in 0..bench.pick(3, 11) {
        slowed.without_ms.push(p99_ms(bench, &client_group)?);
        // Each of the two is first equally often.
        for is_ours in [repeat % 2 == 0, repeat % 2 != 0] {
            let target = if is_ours { address } else { other.address() };
            let (active, p99_ms) = with_slow_clients(bench, &client_group, target)?;
            if is_ours {
                slowed.slow_clients = active;
                slowed.with_ms.push(p99_ms);
            } else {
                slowed.elsewhere_ms.push(p99_ms);
            }
        }
    }
    ensure!(
        client_group.failure_count() == 0,
        "{} requests of normal clients failed",
        client_group.failure_count()
    );
    client_group.stop()?;
    Ok(slowed)
}

/// Returns the number of slow clients at `target`, and the p99 of the normal clients with them.
fn with_slow_clients(
    bench: &Bench<'_>,
    client_group: &Clients,
    target: SocketAddr,
) -> Result<(usize, f64)> {
    let slow_clients = SlowClients::start(target, bench.pick(QUICK_DRIBBLERS, DRIBBLERS))?;
    let is_there = || slow_clients.active() * 10 >= slow_clients.count() * 9;
    let is_active = || Ok(is_there().then(|| slow_clients.active()));
    let active = bench.wait_for("the slow clients are active", OPENING_MAX, is_active)?;
    let p99_ms = p99_ms(bench, client_group)?;
    drop(slow_clients);
    // The server closes their connections.
    bench.pause(Duration::from_millis(bench.pick(300, 2_000)))?;
    Ok((active, p99_ms))
}

/// Measures the p99 over the next interval.
fn p99_ms(bench: &Bench<'_>, client_group: &Clients) -> Result<f64> {
    client_group.take_latencies_ns();
    bench.pause(Duration::from_millis(bench.pick(1_500, 4_000)))?;
    let mut latencies = client_group.take_latencies_ns();
    ensure!(!latencies.is_empty(), "no request of normal clients was answered");
    latencies.sort_unstable();
    let at = (latencies.len() * 99).div_ceil(100).saturating_sub(1);
    Ok(real(latencies[at]) / 1e6)
}

fn finding(checked: &[Checked], slowed: &Slowed) -> Finding {
    let passed = checked.iter().filter(|one| one.complaint.is_empty()).count();
    let over_without = ratios(&slowed.with_ms, &slowed.without_ms);
    let over_elsewhere = ratios(&slowed.with_ms, &slowed.elsewhere_ms);
    let ratio = median(&over_elsewhere);
    let is_all = passed == checked.len();
    let agrees = is_all && ratio <= RATIO_MAX;
    let mut rows: Vec<FindingRow> = groups(checked);
    for (role, list) in [("tried elsewhere", ELSEWHERE), ("not available", ABSENT)] {
        rows.extend(list.iter().map(|(row, what, instead)| {
            FindingRow::once(row, role, 0.0, "checks", format!("{what}: {instead}"))
        }));
    }
    let slow = format!("with {} slow clients", slowed.slow_clients);
    rows.push(FindingRow::over(
        "p99",
        "without slow clients",
        &slowed.without_ms,
        "ms",
        String::new(),
    ));
    rows.push(FindingRow::over("p99", &slow, &slowed.with_ms, "ms", String::new()));
    let elsewhere = "with slow clients at another server on that core";
    rows.push(FindingRow::over("p99", elsewhere, &slowed.elsewhere_ms, "ms", String::new()));
    rows.push(FindingRow::over("p99", "with over without", &over_without, "x", String::new()));
    rows.push(FindingRow::over("p99", "with over elsewhere", &over_elsewhere, "x", String::new()));
    Finding {
        name: "s2.r8".into(),
        title: "What users of a web server expect".into(),
        numbers: vec![
            Number::new("checks", real(checked.len() as u64), ""),
            Number::new("as expected", real(passed as u64), ""),
            Number::new("p99 with slow clients over without", median(&over_without), "x"),
            Number::new("over the same with slow clients at another server", ratio, "x"),
            Number::new("slow clients", real(slowed.slow_clients as u64), ""),
        ],
        source: "the source's server has no limits, no timeouts and no files".into(),
        agrees,
        conclusion: CONCLUSION.into(),
        deviation_reason: deviation_reason(is_all, ratio),
        rows,
    }
}

/// Divides element by element.
fn ratios(of: &[f64], over: &[f64]) -> Vec<f64> {
    of.iter().zip(over).map(|(of, over)| of / over.max(1e-6)).collect()
}

/// Returns a line for each row of the list, with the failed checks.
fn groups(checked: &[Checked]) -> Vec<FindingRow> {
    let mut names: Vec<&str> = checked.iter().map(|one| one.row).collect();
    names.sort_by_key(|name| (name.len(), *name));
    names.dedup();
    let group = |name: &str| {
        let of_row = || checked.iter().filter(|one| one.row == name);
        let passed = of_row().filter(|one| one.complaint.is_empty()).count();
        let complaints: Vec<String> = of_row()
            .filter(|one| !one.complaint.is_empty())
            .map(|one| format!("{}: {}", one.what, one.complaint))
            .collect();
        let unit = format!("of {}", of_row().count());
        FindingRow::once(name, "as expected", real(passed as u64), &unit, complaints.join("; "))
    };
    names.into_iter().map(group).collect()
}

fn deviation_reason(is_all: bool, ratio: f64) -> String {
    let mut parts = Vec::new();
    if !is_all {
        parts.push("checks failed, see the rows");
    }
    if ratio > RATIO_MAX {
        parts.push(
            "slow clients increase the latency of others at their server by more than a fifth",
        );
    }
    parts.join("; ")
}

const CONCLUSION: &str = "\
A web server mostly consists of limits and timeouts. A slow client costs a buffer and a check per second, not a worker; a \
client that tries to leave the root is stopped by the kernel during path resolution, not by an earlier check of the name.";

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(row: &'static str, complaint: &str) -> Checked {
        Checked { row, what: "a thing", complaint: complaint.into() }
    }

    fn slowed(with_ms: f64) -> Slowed {
        Slowed {
            slow_clients: 1_000,
            without_ms: vec![0.5; 3],
            elsewhere_ms: vec![1.0; 3],
            with_ms: vec![with_ms; 3],
        }
    }

    #[test]
    fn all_checks_and_the_bound_of_slow_clients_decide() {
        let good = [checked("W10", ""), checked("W2", ""), checked("W2", "")];
        let found = finding(&good, &slowed(1.1));
        assert!(found.agrees && found.deviation_reason.is_empty());
        let numbers = found.numbers();
        assert!(
            numbers.starts_with("checks 3, as expected 3, p99 with slow clients over without 2.2")
        );
        assert!(numbers.contains("at another server 1.1"), "{numbers}");
        let names: Vec<&str> = found.rows.iter().map(|way| way.variant.as_str()).collect();
        assert_eq!(names[..3], ["W2", "W10", "W9"]);
        let found = finding(&[checked("W2", ""), checked("W2", "it is not")], &slowed(1.0));
        assert!(!found.agrees);
        assert_eq!(
            (found.rows[0].unit.as_str(), found.rows[0].note.as_str()),
            ("of 2", "a thing: it is not")
        );
        let found = finding(&good, &slowed(1.5));
        assert!(!found.agrees && found.deviation_reason.contains("more than a fifth"));
    }
}
