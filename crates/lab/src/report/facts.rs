//! The properties that all rows of a table have in common, as text.

use std::fmt::Write as _;

use crate::load::{
    AppendWork, Arrival, Commit, Distribution, HttpConnection, LogMode, Protocol, Schedule,
    Sharing, Sizes, SocketWork, WaitFor, Warmup, Work,
};
use crate::report::grid;
use crate::report::measurement::exact;
use crate::report::number::Unit;
use crate::report::table::Table;
use crate::row::Row;

/// Maximum number of texts for one fact; the table of cells contains all of them.
const TEXTS_MAX: usize = 3;

/// A fact's name and text.
pub(crate) type Fact = (&'static str, String);

/// Returns the facts of a table; those with more texts are reported as varying.
pub(crate) fn facts(table: &Table) -> Vec<Fact> {
    let mut found: Vec<(&'static str, Vec<String>)> = Vec::new();
    for measurement in table.measurements() {
        for (name, text) in of_row(&measurement.row) {
            match found.iter_mut().find(|(known, _)| *known == name) {
                None => found.push((name, vec![text])),
                Some((_, texts)) if texts.contains(&text) => {}
                Some((_, texts)) => texts.push(text),
            }
        }
    }
    let common = found.into_iter().map(|(name, texts)| {
        let is_many = texts.len() > TEXTS_MAX;
        (name, if is_many { "varies".to_owned() } else { texts.join(", ") })
    });
    common.filter(|(_, text)| !text.is_empty()).collect()
}

fn of_row(row: &Row) -> Vec<Fact> {
    let subject = format!("{} {}", row.subject.kind, row.subject.version);
    let mut facts = vec![
        ("Subject", subject.trim().to_owned()),
        ("Its cores", cores(&row.subject.cpus)),
        ("The load's cores", cores(&row.load.cpus)),
    ];
    match &row.load.work {
        Work::Socket(work) => facts.extend(of_socket(work)),
        Work::Append(work) => facts.extend(of_append(work)),
    }
    let side_loads = row.load.side_loads.iter().map(|(name, work)| describe_side_load(name, work));
    facts.push(("Additional loads", side_loads.collect::<Vec<_>>().join("; ")));
    facts.push(("Measured", milliseconds(row.load.duration_ms)));
    facts.push(("Warm-up", warmup(row.load.warmup)));
    facts
}

/// Formats an additional load: `writers: SET {key} {value}, 64 connections`.
fn describe_side_load(name: &str, work: &SocketWork) -> String {
    let mut text = format!("{name}: {}, {} connections", mix(work), work.connections);
    if work.pipeline > 1 {
        let _ = write!(text, ", pipeline {}", work.pipeline);
    }
    if work.arrival != Arrival::Closed {
        let _ = write!(text, ", {}", arrival(work.arrival));
    }
    text
}

fn mix(work: &SocketWork) -> String {
    let mix = work.mix.iter().map(|operation| {
        let words = operation.words.join(" ");
        if work.mix.len() == 1 { words } else { format!("{words} ({})", operation.weight) }
    });
    mix.collect::<Vec<_>>().join(", ")
}

fn of_socket(work: &SocketWork) -> Vec<Fact> {
    let protocol = match work.protocol {
        Protocol::Resp => "RESP",
        Protocol::RespInline => "RESP, inline requests",
        Protocol::Memcached => "memcached, text",
        Protocol::Cql => "CQL, version 4",
        Protocol::Http => "HTTP",
    };
    let closes = work.http.as_ref().is_some_and(|http| http.connection == HttpConnection::Close);
    let protocol =
        if closes { format!("{protocol}, a connection per request") } else { protocol.to_owned() };
    vec![
        ("Protocol", protocol),
        ("Requests", mix(work)),
        ("Connections", work.connections.to_string()),
        ("Callers", callers(work)),
        ("Pipeline", work.pipeline.to_string()),
        ("Arrival", arrival(work.arrival)),
        ("Keys", {
            let count = Unit::Count.show_tick(exact(work.keys.count));
            format!("{count}, {}", distribution(work.keys.distribution))
        }),
        ("Values", sizes(work.value_bytes)),
    ]
}

fn of_append(work: &AppendWork) -> Vec<Fact> {
    let mode = match work.mode {
        LogMode::Lanes => "lanes and one writer",
        LogMode::Mutex => "one lock, a write per record",
        LogMode::LeaderCondvar => "a leader writes for all, condition variable",
        LogMode::LeaderFutex => "a leader writes for all, futex",
    };
    let wait = match work.wait {
        WaitFor::Ticket => "its position in the order",
        WaitFor::Commit => "its record's write",
    };
    let commit = match work.commit {
        Commit::Written => "written, never synced".to_owned(),
        Commit::Synced => "each write is synced".to_owned(),
        Commit::Interval { ms } => format!("synced every {ms} ms"),
    };
    vec![
        ("Log", mode.to_owned()),
        ("Threads", work.threads.to_string()),
        ("Record", format!("{} B", work.record_bytes)),
        ("A thread awaits", wait.to_owned()),
        ("Durability", commit),
    ]
}

fn callers(work: &SocketWork) -> String {
    let sharing = match work.sharing {
        Sharing::Blocking => "borrowing connections",
        Sharing::Multiplexed => "sharing connections",
    };
    match work.users {
        0 => "one per connection".to_owned(),
        users => format!("{users} {sharing}"),
    }
}

fn arrival(arrival: Arrival) -> String {
    match arrival {
        Arrival::Closed => "closed loop: after the last reply".to_owned(),
        Arrival::Open { per_second, schedule } => {
            let schedule = match schedule {
                Schedule::Even => "evenly",
                Schedule::Poisson => "at random (Poisson)",
            };
            format!("open loop: {} {schedule}", Unit::PerSecond.show(per_second))
        }
    }
}

fn distribution(distribution: Distribution) -> String {
    match distribution {
        Distribution::Uniform => "uniform".to_owned(),
        Distribution::Zipfian { exponent } => format!("zipfian {exponent}"),
        Distribution::Latest { exponent } => format!("latest {exponent}"),
        Distribution::Gaussian => "Gaussian around the middle".to_owned(),
        Distribution::Sequential => "one after the other".to_owned(),
    }
}

fn sizes(sizes: Sizes) -> String {
    match sizes {
        Sizes::Fixed(bytes) => format!("{bytes} B"),
        Sizes::Between(least, most) => format!("{least} to {most} B"),
    }
}

fn warmup(warmup: Warmup) -> String {
    match warmup {
        Warmup::Fixed { ms } => milliseconds(ms),
        Warmup::Steady { max_ms } => format!("until steady, at most {}", milliseconds(max_ms)),
    }
}

fn milliseconds(ms: u64) -> String {
    Unit::Nanoseconds.show_tick(exact(ms) * 1e6)
}

fn cores(cpus: &[usize]) -> String {
    if cpus.is_empty() {
        return "not pinned".to_owned();
    }
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Parameters of a row displayed alone: `load.connections = 64`.
pub(crate) fn parameters(row: &Row) -> String {
    let texts =
        row.parameters.iter().map(|(name, value)| format!("{name} = {}", grid::show(value)));
    texts.collect::<Vec<_>>().join(", ")
}
