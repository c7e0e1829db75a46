//! Start and end of every measurement: assigning a load to its subject, and filling a row.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::measurement::Measurement;
use crate::load::{LoadReport, LoadSpec, Protocol, SocketWork, Work};
use crate::measure::{Noise, build};
use crate::row::{Row, SubjectRow, Verdict};
use crate::subject::{Scratch, Subject, available_cpus};

/// Information known before a measurement.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) table: &'a str,
    /// Hash of the definition.
    pub(crate) definition: &'a str,
    /// Hash of the machine.
    pub(crate) machine: &'a str,
    pub(crate) subject: SubjectRow,
    pub(crate) load: LoadSpec,
}

/// Returns an empty row for the first repeat of the first cell, starting now.
pub(crate) fn empty_row(plan: Plan<'_>) -> Row {
    Row {
        table: plan.table.to_owned(),
        cell: 0,
        repeat: 0,
        parameters: BTreeMap::new(),
        subject: plan.subject,
        load: plan.load,
        report: LoadReport::default(),
        definition: plan.definition.to_owned(),
        commit: build().commit,
        machine: plan.machine.to_owned(),
        started_unix_ms: unix_ms(SystemTime::now()),
        warmup_ms: 0,
        threads: Vec::new(),
        resident_bytes: 0,
        counters: BTreeMap::new(),
        tcp: BTreeMap::new(),
        noise: Noise::default(),
        verdict: Verdict::Ok,
        reasons: Vec::new(),
    }
}

/// The started target of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    Server(&'a Subject),
    /// Directory in which the generator may create its log.
    Log(&'a Scratch),
}

/// Sets the addresses of a load and its additional loads to the started target.
///
/// A generator with one thread per core gets fewer threads if the machine has fewer cores.
pub(crate) fn aim(load: &mut LoadSpec, target: Target<'_>) {
    take_cores(load);
    match (&mut load.work, target) {
        (Work::Socket(work), Target::Server(subject)) => {
            aim_socket(work, subject);
            load.side_loads.values_mut().for_each(|work| aim_socket(work, subject));
        }
        (Work::Append(work), Target::Log(scratch)) => work.directory = scratch.path().join("log"),
        _ => unreachable!("definitions use sockets for servers, and appends for logs"),
    }
}

/// Removes missing cores, and the threads assigned to them.
fn take_cores(load: &mut LoadSpec) {
    let wanted = std::mem::take(&mut load.cpus);
    load.cpus = available_cpus(&wanted);
    let first = match &mut load.work {
        Work::Socket(work) => Some(work),
        Work::Append(_) => None,
    };
    for work in first.into_iter().chain(load.side_loads.values_mut()) {
        if work.threads == wanted.len() {
            work.threads = load.cpus.len().max(1);
        }
    }
}

fn aim_socket(work: &mut SocketWork, subject: &Subject) {
    // A server without CQL reports that in its response.
    work.address = match work.protocol {
        Protocol::Cql => subject.cql_address().unwrap_or(subject.address()),
        Protocol::Http => subject.http_address().unwrap_or(subject.address()),
        _ => subject.address(),
    };
    if work.password.is_none() && work.protocol != Protocol::Http {
        work.password = subject.password().map(String::from);
    }
}

/// Copies a measurement into its row, except for the verdict, which [`judge`] determines.
pub(crate) fn take(row: &mut Row, measurement: Measurement) {
    row.warmup_ms = measurement.warmup_ms;
    row.threads = measurement.threads;
    row.resident_bytes = measurement.resident_bytes;
    row.counters = measurement.counters;
    row.tcp = measurement.tcp;
    row.noise = measurement.noise;
    row.report = measurement.report;
}

pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Definition;

    /// Returns the available cores of `wanted`, and the number of threads, if `threads` were
    /// requested.
    fn aimed(wanted: &[usize], threads: usize) -> (usize, usize) {
        let text = format!(
            "name = \"a\"\ntitle = \"t\"\n[subject]\nkind = \"echo\"\n[load]\n\
             cpus = {wanted:?}\nthreads = {threads}\n"
        );
        let mut definition = Definition::parse(&text, "a.toml".as_ref()).unwrap();
        let cell = definition.cells.remove(0);
        let mut load = cell.load;
        take_cores(&mut load);
        let Work::Socket(work) = load.work else { panic!("sockets") };
        (load.cpus.len(), work.threads)
    }

    #[test]
    fn threads_follow_the_cores_that_are_there() {
        let here = available_cpus(&(0..1024).collect::<Vec<usize>>())[0];
        assert_eq!(aimed(&[here, 2000, 2001], 3), (1, 1));
        assert_eq!(aimed(&[here, 2000, 2001], 2), (1, 2));
        assert_eq!(aimed(&[here], 1), (1, 1));
        assert_eq!(aimed(&[], 1), (0, 1));
    }
}
