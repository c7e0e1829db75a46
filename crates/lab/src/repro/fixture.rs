//! Rows for tests.

use std::collections::BTreeMap;

use crate::definition::Definition;
use crate::load::{LoadReport, LogReport};
use crate::measure::{Noise, ThreadUse};
use crate::row::{Row, SubjectRow, Verdict};

/// 2 s with 100,000 operations on a server with two reactors, one of which was busy.
pub(super) fn server_row() -> Row {
    let text = "name = \"a\"\ntitle = \"t\"\n[subject]\nkind = \"myriad\"\n[load]\n\
                keys = { count = 1000 }\n";
    let thread =
        |name: &str, user_ns| ThreadUse { name: name.into(), user_ns, ..ThreadUse::default() };
    Row {
        threads: vec![
            thread("r00", 1_000_000_000),
            thread("r01", 50_000_000),
            thread("log", 150_000_000),
        ],
        resident_bytes: 4_000,
        ..row(text)
    }
}

/// 2 s with 100,000 appends in 10,000 writes.
pub(super) fn log_row(mode: &str, threads: u64) -> Row {
    let text = format!(
        "name = \"a\"\ntitle = \"t\"\n[subject]\nkind = \"log\"\n[load]\nmode = \"{mode}\"\n\
         threads = {threads}\n"
    );
    let mut row = row(&text);
    row.report.log = Some(LogReport {
        writes: 10_000,
        bytes: 2_000_000,
        process_cpu_ns: 3_000_000_000,
        ..LogReport::default()
    });
    row
}

/// Sets the rate of a row.
pub(super) fn set_rate(row: &mut Row, per_second: f64) {
    row.report.windows.clear();
    row.report.operations = 1_000_000;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let duration_ns = (1e15 / per_second) as u64;
    row.report.duration_ns = duration_ns;
}

#[allow(clippy::cast_precision_loss)]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

fn row(text: &str) -> Row {
    let definition = Definition::parse(text, "a.toml".as_ref()).unwrap();
    let cell = &definition.cells[0];
    Row {
        table: "a".into(),
        cell: 0,
        repeat: 0,
        parameters: BTreeMap::new(),
        subject: SubjectRow {
            kind: cell.subject.kind.to_string(),
            version: String::new(),
            command_line: Vec::new(),
            cpus: Vec::new(),
        },
        load: cell.load.clone(),
        report: LoadReport {
            duration_ns: 2_000_000_000,
            operations: 100_000,
            ..LoadReport::default()
        },
        definition: String::new(),
        commit: String::new(),
        machine: String::new(),
        started_unix_ms: 0,
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
