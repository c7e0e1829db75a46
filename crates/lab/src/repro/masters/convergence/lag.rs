//! How far each master lags, over the time of the experiment: every master is written a new probe
//! at each tick, and the others are asked for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use wire::resp::Reply;

use super::load::attempt;
use crate::repro::masters::connection::Connection;

const TICK: Duration = Duration::from_millis(50);

/// The lags at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample {
    /// Since the begin of the experiment.
    pub(super) at: Duration,
    /// For each master, the age of the oldest probe that it lacks; zero if it has all. `None`: it
    /// did not answer.
    pub(super) lags: Vec<Option<Duration>>,
}

/// The probes that one master has confirmed, by number.
type Probes = BTreeMap<u64, Instant>;

/// Samples until a time.
pub(super) fn sample(
    addresses: &[SocketAddr],
    started: Instant,
    until: Instant,
) -> Result<Vec<Sample>> {
    let mut connections: Vec<Option<Connection>> = addresses.iter().map(|_| None).collect();
    let mut probes = vec![Probes::new(); addresses.len()];
    let mut samples = Vec::new();
    for number in 1.. {
        let now = Instant::now();
        if now >= until {
            break;
        }
        let mut lags = Vec::new();
        for (at, address) in addresses.iter().enumerate() {
            lags.push(attempt(&mut connections[at], *address, |connection| {
                lag(connection, at, &probes)
            })?);
        }
        samples.push(Sample { at: now - started, lags });
        for (at, address) in addresses.iter().enumerate() {
            let request = format!("SET probe:{at} {number}");
            let set = attempt(&mut connections[at], *address, |master| master.ask(&request))?;
            if set.is_some() {
                probes[at].insert(number, Instant::now());
            }
        }
        thread::sleep((now + TICK).min(until).saturating_duration_since(Instant::now()));
    }
    Ok(samples)
}

/// The lag of the master at this place.
fn lag(connection: &mut Connection, at: usize, probes: &[Probes]) -> Result<Duration> {
    let mut lag = Duration::ZERO;
    for (other, probes) in probes.iter().enumerate().filter(|(other, _)| *other != at) {
        let seen = match connection.ask(&format!("GET probe:{other}"))? {
            Reply::Bulk(number) => {
                let number = str::from_utf8(&number).ok().and_then(|number| number.parse().ok());
                number.context("a probe is not a number")?
            }
            _ => 0,
        };
        lag = lag.max(age_of_oldest(probes, seen, Instant::now()));
    }
    Ok(lag)
}

/// The age of the oldest probe after the one that was seen.
fn age_of_oldest(probes: &Probes, seen: u64, now: Instant) -> Duration {
    let missing = probes.range(seen + 1..).next();
    missing.map_or(Duration::ZERO, |(_, at)| now.saturating_duration_since(*at))
}

/// The greatest lag of all masters at each time in this range.
pub(super) fn greatest(samples: &[Sample], from: Duration, to: Duration) -> Vec<Duration> {
    let is_inside = |sample: &&Sample| (from..to).contains(&sample.at);
    let greatest = |sample: &Sample| sample.lags.iter().flatten().max().copied();
    samples.iter().filter(is_inside).filter_map(greatest).collect()
}

/// Time from `from` until every master has all probes.
pub(super) fn caught_up(samples: &[Sample], from: Duration) -> Option<Duration> {
    let has_all = |sample: &&Sample| sample.lags.iter().all(|lag| *lag == Some(Duration::ZERO));
    let mut later = samples.iter().filter(|sample| sample.at >= from);
    later.find(has_all).map(|sample| sample.at.saturating_sub(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_lag_is_the_age_of_the_oldest_missing_probe() {
        let begin = Instant::now();
        // The third probe was not confirmed.
        let probes = Probes::from([(1, begin), (2, begin + 50 * MS), (4, begin + 150 * MS)]);
        let lag = |seen| age_of_oldest(&probes, seen, begin + 160 * MS);
        assert_eq!([lag(0), lag(1)], [160 * MS, 110 * MS]);
        assert_eq!([lag(2), lag(3)], [10 * MS; 2]);
        assert_eq!(lag(4), Duration::ZERO);
    }

    #[test]
    fn a_group_has_caught_up_when_no_master_lags_or_is_absent() {
        let sample =
            |at: u32, lags: [Option<Duration>; 2]| Sample { at: at * MS, lags: lags.into() };
        let samples = [
            sample(0, [Some(Duration::ZERO); 2]),
            sample(50, [Some(7 * MS), Some(9 * MS)]),
            sample(100, [Some(Duration::ZERO), None]),
            sample(150, [Some(Duration::ZERO); 2]),
        ];
        assert_eq!(caught_up(&samples, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(caught_up(&samples, 10 * MS), Some(140 * MS));
        assert_eq!(caught_up(&samples, 151 * MS), None);
        assert_eq!(greatest(&samples, 50 * MS, 150 * MS), [9 * MS, Duration::ZERO]);
    }
}
