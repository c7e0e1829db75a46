//! A request in two segments, split at each of its bytes, for each accept strategy; and the time
//! that other clients wait in between.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::host::Host;
use super::talk::{GET, connect, receives_hello};
use super::{Bench, milliseconds, real};
use crate::repro::finding::{Finding, FindingRow, Number};

/// With their chart marks.
const STRATEGIES: [(&str, &str); 7] = [
    ("least-loaded", ""),
    ("reuseport", ""),
    ("exclusive", ""),
    ("fdpass", ""),
    ("notify-lt", "historical"),
    ("notify-et", "historical"),
    ("serial", "historical"),
];
/// Delay between the two parts: the server has read the first one by then.
const BETWEEN: Duration = Duration::from_millis(3);
/// Limit for a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit for another client: it is answered immediately, or only after the split request is
/// complete.
const OTHER_TIMEOUT: Duration = Duration::from_millis(300);

/// Observations for one strategy.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Observation {
    accept: &'static str,
    role: &'static str,
    tried: u64,
    answered: u64,
    /// Time until another client was answered while half a request was pending; `None` if only
    /// after its completion.
    other: Option<Duration>,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Finding> {
    let mut observed = Vec::new();
    for (accept, role) in STRATEGIES {
        let host = Host::start(bench, &["--accept", accept, "--workers", "1"])?;
        let address = host.address();
        let mut one = Observation { accept, role, tried: 0, answered: 0, other: None };
        for at in 1..GET.len() {
            bench.check_not_stopped()?;
            let answered = is_answered(bench, address, at);
            one.tried += 1;
            one.answered +=
                u64::from(answered.with_context(|| format!("{accept}, split at {at}"))?);
        }
        one.other =
            other_waits(bench, address).with_context(|| format!("{accept}, two clients"))?;
        observed.push(one);
    }
    Ok(finding(&observed))
}

/// Whether a request with a first part of `at` bytes is answered.
fn is_answered(bench: &Bench<'_>, address: SocketAddr, at: usize) -> Result<bool> {
    let mut stream = connect(address, ANSWER_TIMEOUT)?;
    stream.write_all(&GET[..at]).context("could not send the first part")?;
    bench.pause(BETWEEN)?;
    stream.write_all(&GET[at..]).context("could not send the second part")?;
    receives_hello(&mut stream)
}

/// Measures how long a complete request waits while half of another one is pending.
fn other_waits(bench: &Bench<'_>, address: SocketAddr) -> Result<Option<Duration>> {
    let mut half = connect(address, ANSWER_TIMEOUT)?;
    half.write_all(&GET[..GET.len() / 2]).context("could not send half a request")?;
    bench.pause(BETWEEN)?;
    let mut other = connect(address, OTHER_TIMEOUT)?;
    let started = Instant::now();
    other.write_all(GET).context("could not send a whole request")?;
    let is_answered = receives_hello(&mut other)?;
    Ok(is_answered.then(|| started.elapsed()))
}

fn finding(observed: &[Observation]) -> Finding {
    let row = |one: &Observation| {
        let note = match one.other {
            Some(waited) => {
                format!("another client: answered after {:.2} ms", milliseconds(waited))
            }
            None => "another client: waits for the rest".to_owned(),
        };
        let unit = format!("of {}", one.tried);
        FindingRow::once(one.accept, one.role, real(one.answered), &unit, note)
    };
    let sum = |count: fn(&Observation) -> u64| real(observed.iter().map(count).sum());
    let held_up = observed.iter().filter(|one| one.other.is_none()).count();
    let agrees = observed.iter().all(|one| one.answered == one.tried && one.tried > 0);
    Finding {
        name: "s2.r6".into(),
        title: "A request in two segments".into(),
        numbers: vec![
            Number::new("requests in two segments", sum(|one| one.tried), ""),
            Number::new("answered", sum(|one| one.answered), ""),
            Number::new("strategies in which other clients wait", real(held_up as u64), ""),
        ],
        source: "a request in several segments is never answered: its parser abandons the socket"
            .into(),
        agrees,
        conclusion: CONCLUSION.into(),
        deviation_reason: if agrees {
            String::new()
        } else {
            "an accept strategy does not answer all of them, which is a defect.".into()
        },
        rows: observed.iter().map(row).collect(),
    }
}

const CONCLUSION: &str = "\
A segment is not a request: a parser keeps its state and continues. All accept strategies share our parser, including the \
historical ones, so they do not have the fault of the source; what remains is that the serial server serves no other client \
while it waits for the rest.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_must_be_answered() {
        let one =
            |accept, answered, other| Observation { accept, role: "", tried: 30, answered, other };
        let waited = Some(Duration::from_micros(250));
        let found = finding(&[one("exclusive", 30, waited), one("serial", 30, None)]);
        assert!(found.agrees);
        let expected =
            "requests in two segments 60, answered 60, strategies in which other clients wait 1";
        assert_eq!(found.numbers(), expected);
        assert!(found.rows[0].note.ends_with("answered after 0.25 ms"), "{found:?}");
        assert!(found.rows[1].note.ends_with("waits for the rest"), "{found:?}");
        assert!(!finding(&[one("exclusive", 29, None)]).agrees);
    }
}
