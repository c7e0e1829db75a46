//! One load on one subject, with all observations.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::generator::{Generator, GeneratorError};
use crate::load::{LoadEvent, LoadReport, LoadSpec};
use crate::measure::threads::{ThreadSample, threads, uses_between};
use crate::measure::{Noise, NoiseSample, ThreadUse, added, resident_bytes, tcp_counters};
use crate::row::GROWN_BYTES;
use crate::subject::Subject;

/// Observations during the measured phase.
#[derive(Debug, Clone, Default)]
pub struct Measurement {
    pub report: LoadReport,
    pub warmup_ms: u64,
    /// The subject's threads in the measured phase.
    pub threads: Vec<ThreadUse>,
    /// Memory of the subject, at the end of the measured phase.
    pub resident_bytes: u64,
    /// Per operation of all loads together: `syscalls.read`, `lock_waits`, `lock_wait_ns`.
    pub counters: BTreeMap<String, f64>,
    /// Of the whole machine.
    pub tcp: BTreeMap<String, u64>,
    /// From the start of the load to its end, including the warm-up.
    pub noise: Noise,
}

/// Loads a running subject, and samples it at the start and the end of the measured phase. Without
/// a subject, samples the generator, which contains the log that it appends to.
///
/// Passes the operations per second of each window to `on_rate`. Setting `stop` ends the
/// measurement promptly with [`GeneratorError::Stopped`].
pub fn measure(
    program: &Path,
    subject: Option<&Subject>,
    load: &LoadSpec,
    stop: &AtomicBool,
    on_rate: &mut dyn FnMut(f64),
) -> Result<Measurement, GeneratorError> {
    let mut generator = Generator::start(program, load)?;
    // Of the subject, or of the generator with its log.
    let pids = subject.map_or_else(|| Ok(vec![generator.pid()]), Subject::processes)?;
    let replicas = subject.map(Subject::replica_pids).unwrap_or_default();
    let ours = [vec![generator.pid()], pids.clone(), replicas].concat();
    let noise = NoiseSample::take(&ours)?;
    let mut warmup = 0;
    let mut samples: [Option<SubjectSample>; 2] = [None, None];
    loop {
        match generator.next(stop)? {
            // After an interrupt, the next event is a failure.
            LoadEvent::Connected | LoadEvent::Interrupted(_) => {}
            LoadEvent::Measuring { warmup_ms } => {
                warmup = warmup_ms;
                samples[0] = Some(SubjectSample::take(&pids, subject)?);
            }
            LoadEvent::Window { operations } => on_rate(per_second(operations, load.window_ms)),
            LoadEvent::Measured => {
                samples[1] = Some(SubjectSample::take(&pids, subject)?);
                subject.map(Subject::check_replicas).transpose()?;
            }
            LoadEvent::Failed { reason } => return Err(GeneratorError::Failed(reason)),
            LoadEvent::Done(report) => {
                let [Some(first), Some(last)] = samples else {
                    let text = "a report without a measured phase";
                    return Err(GeneratorError::Unexpected(text.into()));
                };
                let operations = report.operations_of_all();
                let mut counters = per_operation(&first, &last, operations);
                counters.insert(GROWN_BYTES.into(), grown_bytes(&first, &last, operations));
                return Ok(Measurement {
                    warmup_ms: warmup,
                    threads: match subject {
                        Some(_) => uses_between(&first.threads, &last.threads),
                        None => own_use(&report),
                    },
                    resident_bytes: last.resident_bytes,
                    counters,
                    tcp: added(&last.tcp, &first.tcp),
                    noise: NoiseSample::take(&ours)?.since(&noise),
                    report: *report,
                });
            }
        }
    }
}

/// Resources used by a generator that contains its subject: the total as one thread, if it does not
/// list its threads.
fn own_use(report: &LoadReport) -> Vec<ThreadUse> {
    match &report.log {
        Some(log) if report.threads.is_empty() => vec![ThreadUse {
            name: "all".into(),
            user_ns: log.process_cpu_ns,
            ..ThreadUse::default()
        }],
        _ => report.threads.clone(),
    }
}

/// Growth of the resident memory per operation.
#[expect(clippy::cast_precision_loss, reason = "a figure of a few digits")]
fn grown_bytes(first: &SubjectSample, last: &SubjectSample, operations: u64) -> f64 {
    let grown = last.resident_bytes as f64 - first.resident_bytes as f64;
    grown / operations.max(1) as f64
}

/// A sample of the subject.
struct SubjectSample {
    threads: Vec<ThreadSample>,
    resident_bytes: u64,
    counters: BTreeMap<String, f64>,
    tcp: BTreeMap<String, u64>,
}

impl SubjectSample {
    /// Times first: they change while the rest is read.
    fn take(pids: &[u32], subject: Option<&Subject>) -> Result<Self, GeneratorError> {
        Ok(Self {
            // The hundreds of threads of a log are not sampled during the measurement: the
            // generator reports their usage.
            threads: subject.map(|_| threads_of(pids)).transpose()?.unwrap_or_default(),
            counters: subject.map(Subject::counters).transpose()?.unwrap_or_default(),
            tcp: tcp_counters()?,
            resident_bytes: resident_bytes_of(pids)?,
        })
    }
}

/// Returns the threads of a server and of its workers, if any: the first thread of each worker is
/// named `w00`, `w01`, ... in order. Exited workers are omitted.
fn threads_of(pids: &[u32]) -> io::Result<Vec<ThreadSample>> {
    let Some((first, workers)) = pids.split_first() else { return Ok(Vec::new()) };
    let mut all = threads(*first)?;
    for (number, worker) in workers.iter().enumerate() {
        let mut samples = match threads(*worker) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            samples => samples?,
        };
        if let Some(main) = samples.iter_mut().find(|sample| sample.tid == *worker) {
            main.name = format!("w{number:02}");
        }
        all.append(&mut samples);
    }
    Ok(all)
}

/// Shared pages count for each process.
fn resident_bytes_of(pids: &[u32]) -> io::Result<u64> {
    let mut sum = 0;
    for (index, pid) in pids.iter().enumerate() {
        sum += match resident_bytes(*pid) {
            Err(error) if index > 0 && error.kind() == io::ErrorKind::NotFound => 0,
            bytes => bytes?,
        };
    }
    Ok(sum)
}

/// Uses the names of rows: `syscalls_read` is `syscalls.read`.
#[allow(clippy::cast_precision_loss)]
fn per_operation(
    first: &SubjectSample,
    last: &SubjectSample,
    operations: u64,
) -> BTreeMap<String, f64> {
    let before = |name| first.counters.get(name).copied().unwrap_or_default();
    let rates = last.counters.iter().map(|(name, total)| {
        let added = (total - before(name)).max(0.0);
        (name.replacen("syscalls_", "syscalls.", 1), added / operations.max(1) as f64)
    });
    rates.collect()
}

#[allow(clippy::cast_precision_loss)]
fn per_second(operations: u64, window_ms: u64) -> f64 {
    operations as f64 * 1_000.0 / window_ms.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LogReport;

    fn sample(counters: &[(&str, f64)]) -> SubjectSample {
        SubjectSample {
            threads: Vec::new(),
            resident_bytes: 0,
            counters: counters.iter().map(|(name, total)| ((*name).into(), *total)).collect(),
            tcp: BTreeMap::new(),
        }
    }

    #[test]
    fn a_log_has_used_what_its_process_has() {
        let log = LogReport { process_cpu_ns: 70, ..LogReport::default() };
        let mut report = LoadReport { log: Some(log), ..LoadReport::default() };
        assert_eq!(own_use(&report).iter().map(ThreadUse::cpu_ns).sum::<u64>(), 70);
        let known = ThreadUse { name: "append-0".into(), system_ns: 50, ..ThreadUse::default() };
        report.threads = vec![known.clone()];
        assert_eq!(own_use(&report), [known]);
    }

    #[test]
    fn workers_are_distinguished_by_their_numbers() {
        let us = std::process::id();
        // Held by this test, regardless of concurrent tests in the process.
        let held = vec![1_u8; 32 << 20];
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = threads_of(&[us, child.id(), u32::MAX]);
        let resident = resident_bytes_of(&[us, child.id(), u32::MAX]);
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        let worker = found.iter().find(|thread| thread.tid == child.id()).unwrap();
        assert_eq!(worker.name, "w00");
        assert!(found.iter().any(|thread| thread.tid == us && thread.name != "w00"));
        assert!(resident.unwrap() > std::hint::black_box(held).len() as u64);
        assert!(threads_of(&[u32::MAX]).is_err());
    }

    #[test]
    fn counters_are_per_operation() {
        let first = sample(&[("syscalls_read", 100.0), ("lock_waits", 9.0)]);
        let last =
            sample(&[("syscalls_read", 150.0), ("lock_waits", 9.0), ("syscalls_new", 200.0)]);
        let found = per_operation(&first, &last, 100);
        let expected = [("lock_waits", 0.0), ("syscalls.new", 2.0), ("syscalls.read", 0.5)];
        assert_eq!(found, expected.map(|(name, rate)| (name.to_owned(), rate)).into());
        assert!((per_second(50, 100) - 500.0).abs() < 1e-9);
    }
}
