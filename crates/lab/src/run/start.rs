//! What every measurement begins and ends with: a load that is pointed at its subject, and a row that
//! is filled.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use super::measurement::Measurement;
use crate::load::{LoadReport, LoadSpec, SocketWork, Work};
use crate::measure::{Noise, build};
use crate::row::{Row, SubjectRow, Verdict};
use crate::subject::{Scratch, Subject, available_cpus};

/// What is known of a measurement before it is made.
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

/// The row of the first repeat of the first cell, begun now, without anything measured.
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

/// What has been started for a load.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    Server(&'a Subject),
    /// Where the generator may make a log of its own.
    Log(&'a Scratch),
}

/// Points a load, and those beside it, at what has been started for it.
pub(crate) fn aim(load: &mut LoadSpec, target: Target<'_>) {
    load.cpus = available_cpus(&load.cpus);
    match (&mut load.work, target) {
        (Work::Socket(work), Target::Server(subject)) => {
            aim_socket(work, subject);
            load.beside.values_mut().for_each(|work| aim_socket(work, subject));
        }
        (Work::Append(work), Target::Log(scratch)) => work.directory = scratch.path().join("log"),
        _ => unreachable!("a definition gives sockets to servers, and appends to logs"),
    }
}

fn aim_socket(work: &mut SocketWork, subject: &Subject) {
    work.address = subject.address();
    if work.password.is_none() {
        work.password = subject.password().map(String::from);
    }
}

/// Puts what was measured into its row; the verdict is left to [`judge`].
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
