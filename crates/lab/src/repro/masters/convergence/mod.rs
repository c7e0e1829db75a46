//! Experiment s4.r7: three masters and their hub, all written at once. The hub is halted for a
//! while, so that no master receives from another one; later a master is killed and started again.
//! It shows whether all become equal, when, and whether a write is lost or returns to its author.

mod comparison;
mod lag;
mod load;

use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use wire::resp::{Reply, encode_request};

use super::group::{Counts, Group};
use super::real;
use crate::report::{self, Curve};
use crate::repro::finding::{Finding, FindingRow, Number};
use crate::repro::web::Bench;
use comparison::Comparison;
use lag::Sample;
use load::Written;

/// The name of the experiment, and of its table.
pub(in crate::repro) const NAME: &str = "s4.r7";
const TITLE: &str = "Three masters: convergence, loss, lag";

const MASTERS: usize = 3;
/// An answered write survives the kill of its master.
const DURABILITY: &str = "always";
/// The place of the master that is killed.
const KILLED: usize = 1;
/// Limit until all servers have what was written.
const PATIENCE: Duration = Duration::from_mins(2);
/// Shares of the time of the writes.
const HALT: f64 = 0.2;
const CONTINUE: f64 = 0.4;
const KILL: f64 = 0.65;
/// Values that would return to their author have arrived after that: peers are sent heartbeats in
/// less time.
const ECHO_TIME: Duration = Duration::from_millis(1_500);

/// The outcome of the experiment.
#[derive(Debug)]
pub(in crate::repro) struct Convergence {
    /// Of each master: writes that were answered, and others.
    writes: [(u64, u64); MASTERS],
    /// What the hub has counted.
    counts: Counts,
    /// From the last answer to a write until all servers have the same data.
    equal_after: Duration,
    comparison: Comparison,
    echoes: Echoes,
    events: Events,
    samples: Vec<Sample>,
    length: Duration,
}

/// When the group was disturbed, since the begin of the writes.
#[derive(Debug, Clone, Copy, Default)]
struct Events {
    halted: Duration,
    continued: Duration,
    killed: Duration,
    ready: Duration,
}

/// Values that one master after the other was written, and how many of them returned to it.
#[derive(Debug, Clone, Copy, Default)]
struct Echoes {
    values: u64,
    returned: u64,
}

pub(in crate::repro) fn measure(bench: &Bench<'_>) -> Result<Convergence> {
    let mut group = Group::start(bench, MASTERS, DURABILITY)?;
    (0..MASTERS).try_for_each(|at| group.follow_master(at))?;
    group.follow_hub()?;
    for at in 0..MASTERS {
        group.master(at)?.ask(&format!("SET ready:{at} 1"))?;
    }
    wait_until_equal(bench, &group)?;
    let length = Duration::from_secs(bench.pick(4, 30));
    let Run { written, samples, events } = run(bench, &mut group, length)?;
    wait_until_equal(bench, &group)?;
    let ended = written.iter().map(|written| written.ended).max().unwrap_or_else(Instant::now);
    let equal_after = ended.elapsed();
    let counts = group.counts()?;
    let comparison = comparison::compare(&group, &written)?;
    let mut writes = [(0, 0); MASTERS];
    for written in &written {
        let (all, answered) = (written.writes.len(), written.answered());
        writes[written.at] = (u64::try_from(answered)?, u64::try_from(all - answered)?);
    }
    let echoes = find_echoes(bench, &group)?;
    Ok(Convergence { writes, counts, equal_after, comparison, echoes, events, samples, length })
}

/// What was written and observed.
struct Run {
    written: Vec<Written>,
    samples: Vec<Sample>,
    events: Events,
}

fn run(bench: &Bench<'_>, group: &mut Group, length: Duration) -> Result<Run> {
    let addresses: Vec<_> = (0..MASTERS).map(|at| group.address(at)).collect();
    let started = Instant::now();
    let until = started + length;
    thread::scope(|scope| {
        let writing = addresses.iter().enumerate().map(|(at, address)| {
            let address = *address;
            scope.spawn(move || load::write(address, at, until))
        });
        let writing: Vec<_> = writing.collect();
        let sampling = scope.spawn(|| lag::sample(&addresses, started, until));
        // By this thread: the servers end with the thread that has started them.
        let events = disturb(bench, group, started, length)?;
        let written = writing.into_iter().map(join).collect::<Result<_>>()?;
        Ok(Run { written, samples: join(sampling)?, events })
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread of the load panicked"))?
}

fn disturb(
    bench: &Bench<'_>,
    group: &mut Group,
    started: Instant,
    length: Duration,
) -> Result<Events> {
    let pause_until = |share| {
        let at = started + length.mul_f64(share);
        bench.pause(at.saturating_duration_since(Instant::now()))
    };
    let mut events = Events::default();
    pause_until(HALT)?;
    let halt = group.halt_hub()?;
    events.halted = started.elapsed();
    pause_until(CONTINUE)?;
    drop(halt);
    events.continued = started.elapsed();
    pause_until(KILL)?;
    events.killed = started.elapsed();
    group.kill_and_restart(bench, KILLED).context("could not restart the killed master")?;
    events.ready = started.elapsed();
    Ok(events)
}

/// Waits until all servers have the same keys, values and expiry times.
fn wait_until_equal(bench: &Bench<'_>, group: &Group) -> Result<()> {
    let mut servers = group.connections()?;
    bench.wait_for("all servers have the same data", PATIENCE, || {
        let digests = servers.iter_mut().map(|server| server.ask("DEBUG DIGEST"));
        let digests = digests.collect::<Result<Vec<Reply>>>()?;
        Ok(digests.iter().all(|digest| *digest == digests[0]).then_some(()))
    })
}

/// Writes to one master after the other, and counts what the hub sends it meanwhile.
fn find_echoes(bench: &Bench<'_>, group: &Group) -> Result<Echoes> {
    let values = bench.pick(500, 5_000);
    let mut found = Echoes::default();
    for at in 0..MASTERS {
        let before = group.received(at)?;
        let mut requests = Vec::new();
        for number in 0..values {
            let key = format!("echo:{at}:{number}");
            encode_request(&[b"SET", key.as_bytes(), b"v"], &mut requests);
        }
        group.master(at)?.send(&requests, usize::try_from(values)?)?;
        wait_until_equal(bench, group)?;
        bench.pause(ECHO_TIME)?;
        found.values += values;
        found.returned += group.received(at)? - before;
    }
    Ok(found)
}

/// In milliseconds.
fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Convergence {
    /// Time until all masters have all probes again: after the halt, and after the restart.
    fn recoveries(&self) -> [Option<Duration>; 2] {
        [self.events.continued, self.events.ready].map(|from| lag::caught_up(&self.samples, from))
    }

    fn is_whole(&self) -> bool {
        self.comparison.lost == 0 && self.comparison.differing == 0 && self.echoes.returned == 0
    }

    /// Whether the experiment had something to decide, and all servers have caught up.
    fn agrees(&self) -> bool {
        let has_caught_up = self.recoveries().iter().all(Option::is_some);
        self.is_whole() && self.counts.conflicts > 0 && has_caught_up
    }

    pub(in crate::repro) fn finding(&self) -> Finding {
        let Self { counts, comparison, echoes, equal_after, .. } = self;
        let answered: u64 = self.writes.iter().map(|(answered, _)| answered).sum();
        let agrees = self.agrees();
        Finding {
            name: NAME.into(),
            title: TITLE.into(),
            numbers: vec![
                Number::new("writes", real(answered), ""),
                Number::new("conflicts", real(counts.conflicts), ""),
                Number::new("lost writes", real(comparison.lost), ""),
                Number::new("keys that differ", real(comparison.differing), ""),
                Number::new("echoes", real(echoes.returned), ""),
                Number::new("equal after", ms(*equal_after), "ms"),
            ],
            source: "the hub sends each write to every master but its author, and the newer write \
                     of a key stays; no figures"
                .into(),
            agrees,
            conclusion: CONCLUSION.into(),
            deviation_reason: if agrees { String::new() } else { DEVIATION_REASON.into() },
            rows: self.rows(answered),
        }
    }

    fn rows(&self, answered: u64) -> Vec<FindingRow> {
        let Self { counts, comparison, echoes, events, length, .. } = self;
        let once = FindingRow::once;
        let mut rows = Vec::new();
        for (at, (answered, others)) in self.writes.iter().enumerate() {
            let variant = format!("writes of master {}", at + 1);
            let note = format!("{others} without a reply: the master may have them or not");
            rows.push(once(&variant, "answered", real(*answered), "writes", note));
        }
        let note = format!("{} older values dropped by the hub", counts.lost);
        rows.push(once("conflicts", "counted by the hub", real(counts.conflicts), "values", note));
        let phases = [
            ("before", Duration::ZERO, events.halted),
            ("hub halted", events.halted, events.continued),
            ("after the halt", events.continued, events.killed),
            ("master 2 killed and after", events.killed, *length),
        ];
        for (role, from, to) in phases {
            let lags: Vec<f64> =
                lag::greatest(&self.samples, from, to).into_iter().map(ms).collect();
            let note = format!("{:.1} to {:.1} s", from.as_secs_f64(), to.as_secs_f64());
            rows.push(FindingRow::over("greatest lag of a master", role, &lags, "ms", note));
        }
        let causes = [
            ("after the halt", events.continued.saturating_sub(events.halted)),
            ("after the restart", events.ready.saturating_sub(events.killed)),
        ];
        for (taken, (role, cause)) in self.recoveries().into_iter().zip(causes) {
            let caught_up = if taken.is_some() { "" } else { "; not within the experiment" };
            let note = format!("it lasted {:.0} ms{caught_up}", ms(cause));
            let taken = ms(taken.unwrap_or_default());
            rows.push(once("no master lags any more", role, taken, "ms", note));
        }
        let note = "of keys, values and expiry times, at all four servers".into();
        let equal = ms(self.equal_after);
        rows.push(once("equal digests", "after the last write", equal, "ms", note));
        let Comparison { keys, differing, lost } = *comparison;
        let note = format!("of {answered} answered writes; required: 0");
        rows.push(once("lost writes", "on any server", real(lost), "keys", note));
        let note = format!("of {keys} keys on four servers; required: 0");
        rows.push(once("keys that differ", "between servers", real(differing), "keys", note));
        let note =
            format!("of {} values, written when nothing else was; required: 0", echoes.values);
        rows.push(once("echoes", "returned to the author", real(echoes.returned), "values", note));
        rows
    }

    /// The page with the lag of each master over time.
    pub(in crate::repro) fn page(&self) -> Result<String> {
        let curve = |at: usize| {
            let point = |sample: &Sample| {
                Some((sample.at.as_secs_f64() * 1e9, sample.lags[at]?.as_secs_f64() * 1e9))
            };
            let points = self.samples.iter().filter_map(point).collect();
            Curve { label: format!("master {}", at + 1), points }
        };
        let curves: Vec<Curve> = (0..MASTERS).map(curve).collect();
        let Events { halted, continued, killed, ready } = self.events;
        let about = format!(
            "hub halted from {:.1} to {:.1} s, master 2 killed at {:.1} s and ready at {:.1} s",
            halted.as_secs_f64(),
            continued.as_secs_f64(),
            killed.as_secs_f64(),
            ready.as_secs_f64()
        );
        let found = self.finding();
        report::experiment(
            &format!("{NAME}: {TITLE}"),
            &found.remark(),
            &found.sheet().html(),
            ("Age of the oldest write that a master lacks", &about),
            &curves,
        )
    }
}

const CONCLUSION: &str = "\
Three masters that are written at once become equal, also after their hub was halted and a master was killed: of each key \
all servers keep the value with the greatest version, whatever the order of arrival. A lost write is one that was answered, \
and is neither there nor replaced by a newer one. Each value is sent to every master but its author. The lag is the age of \
the oldest probe that a master has not received from the others, sampled every 50 ms.";
const DEVIATION_REASON: &str = "\
a lost write, a key that differs or an echo is an error; without any conflict, or if the masters did not catch up before the \
writes ended, the machine was too slow for this experiment.";

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn convergence() -> Convergence {
        let sample = |second: u32, ms: u64| Sample {
            at: second * SECOND,
            lags: vec![Some(Duration::ZERO), Some(Duration::from_millis(ms)), Some(Duration::ZERO)],
        };
        Convergence {
            writes: [(100, 0), (90, 16), (110, 0)],
            counts: Counts { received: 300, lost: 4, conflicts: 9 },
            equal_after: Duration::from_millis(12),
            comparison: Comparison { keys: 200, differing: 0, lost: 0 },
            echoes: Echoes { values: 30, returned: 0 },
            events: Events {
                halted: 2 * SECOND,
                continued: 4 * SECOND,
                killed: 6 * SECOND,
                ready: 7 * SECOND,
            },
            samples: vec![sample(1, 0), sample(3, 900), sample(5, 0), sample(8, 0)],
            length: 10 * SECOND,
        }
    }

    #[test]
    fn it_agrees_if_nothing_is_lost_and_all_are_equal() {
        let found = convergence().finding();
        assert!(found.agrees && found.deviation_reason.is_empty(), "{found:?}");
        let numbers = found.numbers();
        assert!(numbers.starts_with("writes 300, conflicts 9, lost writes 0, "), "{numbers}");
        assert!(numbers.ends_with("echoes 0, equal after 12 ms"), "{numbers}");
        let text = found.sheet().text();
        for part in ["master 2", "16 without a reply", "900", "of 300 answered writes"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let no_conflict = Counts { conflicts: 0, ..convergence().counts };
        for one in [
            Convergence {
                comparison: Comparison { keys: 9, differing: 1, lost: 0 },
                ..convergence()
            },
            Convergence {
                comparison: Comparison { keys: 9, differing: 0, lost: 1 },
                ..convergence()
            },
            Convergence { echoes: Echoes { values: 9, returned: 1 }, ..convergence() },
            Convergence { counts: no_conflict, ..convergence() },
            Convergence { samples: Vec::new(), ..convergence() },
        ] {
            let found = one.finding();
            assert!(!found.agrees && !found.deviation_reason.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn the_page_has_the_table_and_a_line_for_each_master() {
        let page = convergence().page().unwrap();
        assert!(page.contains("hub halted from 2.0 to 4.0 s, master 2 killed at 6.0 s"));
        assert!(page.contains("<svg") && page.contains("keys that differ"));
        assert!((1..=MASTERS).all(|number| page.contains(&format!("master {number}"))));
    }
}
