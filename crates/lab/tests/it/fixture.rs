//! Plausible rows, generated from a seed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use lab::load::{
    AppendWork, Arrival, Commit, Distribution, Keys, LoadReport, LoadSpec, LogMode, LogReport,
    Operation, Schedule, SocketWork, WaitFor, Warmup, Work,
};
use lab::measure::{Noise, ThreadUse};
use lab::row::{Row, SubjectRow, Verdict};
use lab::stats::histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::load;

const DURATION_MS: u64 = 3_000;
const WINDOW_MS: u64 = 100;
const REPEATS: usize = 3;

/// Parameters of a cell, from which everything else is derived.
pub(crate) struct Planned {
    pub(crate) parameters: Value,
    pub(crate) kind: &'static str,
    pub(crate) work: Work,
    pub(crate) per_second: f64,
    pub(crate) latency_us: f64,
    /// Share of a core of each reactor; empty for subjects without.
    pub(crate) reactors: Vec<f64>,
    pub(crate) client_share: f64,
}

pub(crate) struct Maker {
    random: SmallRng,
}

impl Maker {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed) }
    }

    /// A random number around 1.
    fn around(&mut self, spread: f64) -> f64 {
        1.0 + (self.random.random::<f64>() - 0.5) * 2.0 * spread
    }

    /// All repeats of all cells.
    pub(crate) fn rows(&mut self, table: &str, cells: &[Planned]) -> Vec<Row> {
        let mut rows = Vec::new();
        for repeat in 0..REPEATS {
            for (cell, planned) in cells.iter().enumerate() {
                rows.push(self.row(table, cell, repeat, planned));
            }
        }
        rows
    }

    fn row(&mut self, table: &str, cell: usize, repeat: usize, planned: &Planned) -> Row {
        let per_window = planned.per_second * self.around(0.04) * WINDOW_MS as f64 / 1e3;
        let windows: Vec<u64> =
            (0..DURATION_MS / WINDOW_MS).map(|_| (per_window * self.around(0.06)) as u64).collect();
        let operations = windows.iter().sum();
        let corrected = self.histogram(planned.latency_us, 14.0);
        let raw = self.histogram(planned.latency_us, 5.0);
        let is_log = matches!(planned.work, Work::Append(_));
        let threads = if is_log {
            Vec::new()
        } else if planned.reactors.is_empty() {
            vec![thread(planned.kind, 0.93)]
        } else {
            let shares = planned.reactors.iter().enumerate();
            let reactors = shares.map(|(index, share)| thread(&format!("r{index:02}"), *share));
            reactors.chain([thread("log-writer", 0.08)]).collect()
        };
        let (verdict, reasons) = verdict(cell, repeat, planned.client_share);
        Row {
            table: table.to_owned(),
            cell,
            repeat,
            parameters: serde_json::from_value(planned.parameters.clone()).unwrap(),
            subject: SubjectRow {
                kind: planned.kind.to_owned(),
                version: if planned.kind == "myriad" { "0.1.0" } else { "7.0.15" }.to_owned(),
                command_line: vec![
                    planned.kind.to_owned(),
                    "serve".into(),
                    "--dir".into(),
                    "D".into(),
                ],
                cpus: vec![0],
            },
            load: LoadSpec {
                work: planned.work.clone(),
                side_loads: BTreeMap::new(),
                warmup: Warmup::Steady { max_ms: 2_000 },
                duration_ms: DURATION_MS,
                operations_max: None,
                window_ms: WINDOW_MS,
                cpus: vec![1],
                seed: 7,
            },
            report: LoadReport {
                duration_ns: DURATION_MS * 1_000_000,
                operations,
                windows,
                latency_corrected: corrected,
                latency_raw: raw,
                lag_ns_p99: 4_200,
                threads: vec![thread("g00", planned.client_share)],
                sent_bytes: operations * 120,
                received_bytes: operations * 5,
                log: is_log.then(|| log_report(operations)),
                ..LoadReport::default()
            },
            definition: "f00d".into(),
            commit: "2eb770e".into(),
            machine: "cafe".into(),
            started_unix_ms: 1_795_000_000_000 + (repeat * 1_000 + cell) as u64 * 4_000,
            warmup_ms: 700,
            threads,
            resident_bytes: 180 << 20,
            counters: BTreeMap::from([("syscalls.read".to_owned(), 0.06 * self.around(0.1))]),
            tcp: BTreeMap::from([("ListenOverflows".to_owned(), 0)]),
            noise: Noise { steal: 0.002, foreign_cores: 0.03, ..Noise::default() },
            verdict,
            reasons,
        }
    }

    fn histogram(&mut self, middle_us: f64, tail: f64) -> String {
        let mut histogram = histogram::empty();
        for _ in 0..2_000 {
            let chance: f64 = self.random.random();
            let factor = 0.8 + 0.4 * chance + tail * chance.powi(60);
            histogram.record((middle_us * 1e3 * factor) as u64).unwrap();
        }
        histogram::encode(&histogram)
    }
}

/// A saturated client, one noisy repeat, and one cell that never started.
fn verdict(cell: usize, repeat: usize, client_share: f64) -> (Verdict, Vec<String>) {
    if client_share > 0.85 {
        return (Verdict::ClientBound, vec!["the generator used 91 % of its core".into()]);
    }
    match (cell, repeat) {
        (2, 1) => (Verdict::Noisy, vec!["windows vary by 12 %".into()]),
        (5, _) => (Verdict::EnvChanged, vec!["<script>alert(1)</script> used 0.8 cores".into()]),
        (7, 2) => (Verdict::Failed, vec!["the subject ended: \"exit status: 1\"".into()]),
        _ => (Verdict::Ok, Vec::new()),
    }
}

fn thread(name: &str, share: f64) -> ThreadUse {
    let cpu_ns = (share * DURATION_MS as f64 * 1e6) as u64;
    ThreadUse {
        name: name.to_owned(),
        user_ns: cpu_ns * 4 / 10,
        system_ns: cpu_ns * 6 / 10,
        wait_ns: cpu_ns / 50,
        voluntary_switches: 900,
        involuntary_switches: 12,
    }
}

fn log_report(operations: u64) -> LogReport {
    let mut records = histogram::empty();
    records.record_n(16, 100).unwrap();
    let mut bytes = histogram::empty();
    bytes.record_n(480, 100).unwrap();
    LogReport {
        writes: operations / 16,
        syncs: operations / 64,
        bytes: operations * 30,
        records_per_write: histogram::encode(&records),
        bytes_per_write: histogram::encode(&bytes),
        process_cpu_ns: DURATION_MS * 1_500_000,
    }
}

pub(crate) fn socket(connections: usize, users: usize, words: &[&str], arrival: Arrival) -> Work {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Work::Socket(SocketWork {
        connections,
        users,
        arrival,
        mix: vec![Operation { weight: 1.0, words }],
        keys: Keys { prefix: "key:".into(), count: 1_000_000, distribution: Distribution::Uniform },
        ..load::work("127.0.0.1:6379".parse().unwrap())
    })
}

fn append(mode: LogMode, threads: usize) -> Work {
    Work::Append(AppendWork {
        mode,
        threads,
        record_bytes: 5,
        wait: WaitFor::Commit,
        commit: Commit::Written,
        directory: "log".into(),
    })
}

/// One reactor, instances of a load tool by connections: 28 cells.
pub(crate) fn instances() -> Vec<Planned> {
    let mut cells = Vec::new();
    for instances in [1, 2, 4] {
        for connections in [1, 2, 4, 8, 16, 32, 64, 128, 256, 384] {
            if instances > 1 && connections == 384 {
                continue;
            }
            let total = f64::from(instances * connections);
            let per_second = 128_000.0 * total / (total + 6.0);
            cells.push(Planned {
                parameters: json!({"load.threads": instances, "load.connections": connections}),
                kind: "myriad",
                work: socket(
                    connections as usize,
                    0,
                    &["SET", "{key}", "{value}"],
                    Arrival::Closed,
                ),
                per_second,
                latency_us: total / per_second * 1e6,
                reactors: vec![per_second / 130_000.0],
                client_share: if connections >= 256 { 0.91 } else { 0.6 },
            });
        }
    }
    cells
}

/// Reads with concurrent, slower writes.
pub(crate) fn side_loads(maker: &mut Maker) -> Vec<Row> {
    let cell = |words: &[&str], connections, per_second: f64| Planned {
        parameters: json!({}),
        kind: "myriad",
        work: socket(connections, 0, words, Arrival::Closed),
        per_second,
        latency_us: connections as f64 / per_second * 1e6,
        reactors: vec![0.9],
        client_share: 0.5,
    };
    let writes = maker.rows("reads", &[cell(&["SET", "{key}", "{value}"], 64, 20_000.0)]);
    let mut reads = maker.rows("reads", &[cell(&["GET", "{key}"], 50, 100_000.0)]);
    for (read, write) in reads.iter_mut().zip(writes) {
        let Work::Socket(work) = write.load.work else { unreachable!("constructed above") };
        let work = SocketWork { pipeline: 4, ..work };
        read.load.side_loads.insert("writers".into(), work);
        let report = LoadReport { threads: Vec::new(), ..write.report };
        read.report.side_loads.insert("writers".into(), report);
    }
    reads
}

/// Reactors by connections: with few connections some reactors are idle.
pub(crate) fn reactors() -> Vec<Planned> {
    let mut cells = Vec::new();
    for reactors in [1usize, 2, 4, 8, 16] {
        for connections in [1usize, 4, 16, 64, 128] {
            let busy = reactors.min(connections);
            let per_second = 90_000.0 * (busy as f64).powf(0.85);
            let share =
                |index: usize| if index < busy { 0.9 - 0.02 * (index % 5) as f64 } else { 0.003 };
            cells.push(Planned {
                parameters: json!({"subject.options.reactors": reactors, "load.connections": connections}),
                kind: "myriad",
                work: socket(connections, 0, &["GET", "{key}"], Arrival::Closed),
                per_second,
                latency_us: connections as f64 / per_second * 1e6,
                reactors: (0..reactors).map(share).collect(),
                client_share: 0.5,
            });
        }
    }
    cells
}

/// Two subjects at offered rates: latency rises before the limit.
pub(crate) fn rates() -> Vec<Planned> {
    let mut cells = Vec::new();
    for (kind, limit) in [("myriad", 150_000.0), ("redis-server", 118_000.0)] {
        for rate in [10_000.0, 30_000.0, 50_000.0, 70_000.0, 90_000.0, 105_000.0, 115_000.0] {
            let used: f64 = rate / limit;
            cells.push(Planned {
                parameters: json!({"subject.kind": kind, "load.arrival.open.per_second": rate}),
                kind,
                work: socket(
                    64,
                    0,
                    &["GET", "{key}"],
                    Arrival::Open { per_second: rate, schedule: Schedule::Poisson },
                ),
                per_second: rate,
                latency_us: 60.0 / (1.0 - used),
                reactors: if kind == "myriad" { vec![used] } else { Vec::new() },
                client_share: 0.4,
            });
        }
    }
    cells
}

/// Appends to a log: three variants, by threads.
pub(crate) fn appends() -> Vec<Planned> {
    let mut cells = Vec::new();
    let modes = [
        ("lanes", LogMode::Lanes, 3_000_000.0, 0.9),
        ("mutex", LogMode::Mutex, 1_500_000.0, -0.1),
        ("leader-futex", LogMode::LeaderFutex, 600_000.0, 0.1),
    ];
    for (name, mode, one, growth) in modes {
        for threads in [1usize, 2, 15, 120, 480] {
            let per_second = one * (threads as f64).powf(growth / 3.0);
            cells.push(Planned {
                parameters: json!({"load.mode": name, "load.threads": threads}),
                kind: "log",
                work: append(mode, threads),
                per_second,
                latency_us: threads as f64 / per_second * 1e6,
                reactors: Vec::new(),
                client_share: 0.0,
            });
        }
    }
    cells
}

/// Threads that share connections, two commands: 90 cells.
pub(crate) fn pools() -> Vec<Planned> {
    let mut cells = Vec::new();
    for command in ["SADD", "SET"] {
        for threads in (0..=8).map(|power| 1usize << power) {
            for connections in
                (0..=8).map(|power| 1usize << power).filter(|count| *count <= threads)
            {
                let total = connections as f64;
                let per_second = 90_000.0 * total / (total + 3.0);
                cells.push(Planned {
                    parameters: json!({"load.users": threads, "load.connections": connections,
                                       "load.mix": [{"weight": 1.0, "words": [command, "{key}"]}]}),
                    kind: "myriad",
                    work: socket(
                        connections,
                        threads,
                        &[command, "{key}", "{value}"],
                        Arrival::Closed,
                    ),
                    per_second,
                    latency_us: threads as f64 / per_second * 1e6,
                    reactors: vec![0.8],
                    client_share: 0.7,
                });
            }
        }
    }
    cells
}

/// Creates an empty folder below `target/tmp`.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        fs::remove_dir_all(&path).unwrap();
    }
    fs::create_dir_all(&path).unwrap();
    path
}

/// Writes a run folder with all files of a run.
pub(crate) fn write_run(folder: &Path, name: &str, title: &str, rows: &[Row]) {
    fs::create_dir_all(folder).unwrap();
    write_rows(folder, rows);
    let definition = format!("name = \"{name}\"\ntitle = \"{title}\"\nrepeats = {REPEATS}\n");
    fs::write(folder.join("definition.toml"), definition).unwrap();
    let machine = json!({
        "cpu": {"model": "AMD EPYC 9V74 80-Core Processor", "cores": 2, "flags": "fpu vme ".repeat(60)},
        "kernel": "6.1.0-28-amd64",
        "memory_total_bytes": 25_282_211_840u64,
        "sysctl": {"net.core.somaxconn": 4096},
        "mitigations": ["meltdown: Not affected", "spectre_v2: Retpolines"],
    });
    fs::write(folder.join("machine.json"), machine.to_string()).unwrap();
}

pub(crate) fn write_rows(folder: &Path, rows: &[Row]) {
    let mut lines = String::new();
    for row in rows {
        writeln!(lines, "{}", serde_json::to_string(row).unwrap()).unwrap();
    }
    fs::write(folder.join("rows.jsonl"), lines).unwrap();
}

/// Values of a source document for [`instances`].
pub(crate) fn write_source(folder: &Path, table: &str, cells: &[Planned]) {
    let rows: Vec<Value> = cells
        .iter()
        .enumerate()
        .map(|(index, cell)| {
            let theirs = cell.per_second * (0.35 + 0.01 * index as f64);
            json!({"table": table, "parameters": cell.parameters,
                   "columns": {"operations_per_second": [theirs * 0.9, theirs * 1.1],
                               "remark": [1.0, 1.0]}})
        })
        .collect();
    fs::write(folder.join("source.json"), Value::from(rows).to_string()).unwrap();
}
