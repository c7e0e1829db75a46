//! All parts in one process, each with its own threads and sockets, as if they ran on three hosts.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::collector::{Collector, CollectorOptions, ResultsOptions, Verify};
use crate::executor::{self, ExecutorOptions};
use crate::generator::{
    self, GeneratorOptions, GeneratorSummary, Input, LedgerOptions, PaceOptions,
};
use crate::status::{CollectorStatus, ExecutorStatus, Status};
use crate::task::Maker;
use crate::task::Plan;

/// Configuration of a whole pipeline.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    pub stream: u64,
    pub plan: Plan,
    /// The items of commands.
    pub input: Option<Arc<Input>>,
    pub make_task: Maker,
    pub kernel: String,
    pub pace: PaceOptions,
    pub ledger: LedgerOptions,
    pub executors: usize,
    /// Threads of each executor.
    pub threads: usize,
    pub corrupt: f64,
    pub verify: Verify,
    pub out: Option<PathBuf>,
    pub log: Option<PathBuf>,
    pub results: Option<ResultsOptions>,
    pub patience: Duration,
}

impl LocalOptions {
    fn collector(&self, listener: TcpListener) -> CollectorOptions {
        CollectorOptions {
            listener,
            make_task: self.make_task.clone(),
            verify: self.verify,
            seed: self.plan.seed,
            out: self.out.clone(),
            log: self.log.clone(),
            results: self.results.clone(),
            plan: Some((self.stream, self.plan.clone())),
            stay: false,
        }
    }

    /// The options of all executors, without a name.
    fn executor(&self, generator: SocketAddr, collector: SocketAddr) -> ExecutorOptions {
        ExecutorOptions {
            name: String::new(),
            generator,
            collector,
            threads: self.threads,
            make_task: self.make_task.clone(),
            kernel: self.kernel.clone(),
            allows_commands: true,
            corrupt: self.corrupt,
            patience: self.patience,
        }
    }
}

/// Outcome of a whole pipeline.
#[derive(Debug, Clone)]
pub struct LocalSummary {
    pub generator: GeneratorSummary,
    pub executors: Vec<ExecutorStatus>,
    pub collector: CollectorStatus,
}

impl LocalSummary {
    /// Returns the final status of every part.
    pub fn statuses(&self) -> Vec<Status> {
        let executors = self.executors.iter().cloned().map(Status::Executor);
        let generator = Status::Generator(self.generator.status.clone());
        let collector = Status::Collector(self.collector.clone());
        [generator].into_iter().chain(executors).chain([collector]).collect()
    }
}

/// Maps the collector's listening address to the address that executors connect to, for example
/// that of a simulated link.
pub type AddressMap<'a> = &'a (dyn Fn(SocketAddr) -> Result<SocketAddr> + Sync);

/// Deviations of a pipeline from its options, for tests and measurements.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "closures have none")]
pub struct Changes<'a> {
    pub address_map: AddressMap<'a>,
    /// Task makers of the first executors; the others use the default.
    pub makers: &'a [Maker],
}

impl Changes<'_> {
    pub const NONE: Self = Self { address_map: &Ok, makers: &[] };
}

/// Runs a pipeline to its end. Calls `report` once a second for each part, from the part's thread.
/// The first failure of a part ends the whole run.
pub fn run(
    options: &LocalOptions,
    stop: &AtomicBool,
    report: &(dyn Fn(Status) + Sync),
) -> Result<LocalSummary> {
    run_with(options, stop, Changes::NONE, report)
}

/// Does the same as [`run`], with these changes.
pub fn run_with(
    options: &LocalOptions,
    stop: &AtomicBool,
    changes: Changes<'_>,
    report: &(dyn Fn(Status) + Sync),
) -> Result<LocalSummary> {
    let (for_executors, generator) = listen()?;
    let (for_results, collector) = listen()?;
    let results_to = (changes.address_map)(collector)?;
    let task = options.make_task.make(&options.plan)?;
    let collecting = Collector::open(options.collector(for_results))?;
    let (failed, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let fault = Mutex::new(None);
    let note = |error: anyhow::Error| {
        fault.lock().get_or_insert(error);
        failed.store(true, Ordering::SeqCst);
    };
    // Executors that reconnect at the end do not find the address closed before `over` is set.
    let still_listening = for_executors.try_clone().context("clone a listener")?;
    let outcome = thread::scope(|scope| {
        let (failed, over, note) = (&failed, &over, &note);
        let collecting = scope.spawn(move || {
            let report = &mut |status: &_| report(Status::Collector(Clone::clone(status)));
            collecting.run(failed, report).map_err(note).ok()
        });
        let start_executor = |number: usize| {
            let make_task = changes.makers.get(number).unwrap_or(&options.make_task).clone();
            scope.spawn(move || {
                let options = ExecutorOptions {
                    name: format!("executor-{number}"),
                    make_task,
                    ..options.executor(generator, results_to)
                };
                let report = &mut |status: &_| report(Status::Executor(Clone::clone(status)));
                executor::run(options, over, report).map_err(note).ok()
            })
        };
        let executing: Vec<_> = (0..options.executors).map(start_executor).collect();
        let generating = GeneratorOptions {
            stream: options.stream,
            plan: options.plan.clone(),
            task: Arc::clone(&task),
            input: options.input.clone(),
            pace: options.pace,
            ledger: options.ledger,
            listener: for_executors,
            collector,
            patience: options.patience,
            // It does not come back; its error is the reason.
            collector_patience: Duration::from_secs(1),
        };
        let report = &mut |status: &_| report(Status::Generator(Clone::clone(status)));
        let generated = generator::run(generating, stop, report);
        // Without a generator the others would wait forever.
        let generated = generated.map_err(note).ok();
        // Everything is collected. An executor that is reconnecting would not find the collector.
        over.store(true, Ordering::SeqCst);
        drop(still_listening);
        let executors: Vec<_> = executing.into_iter().map(join).collect();
        if executors.iter().any(Option::is_none) {
            failed.store(true, Ordering::SeqCst);
        }
        let collected = join(collecting);
        Some(LocalSummary {
            generator: generated?,
            executors: executors.into_iter().collect::<Option<_>>()?,
            collector: collected?,
        })
    });
    match (outcome, fault.into_inner()) {
        (_, Some(error)) => Err(error),
        (Some(summary), None) => Ok(summary),
        (None, None) => unreachable!("a part without an outcome has recorded its error"),
    }
}

fn listen() -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on loopback")?;
    let address = listener.local_addr().context("a listener's address")?;
    Ok((listener, address))
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::{Existing, Order};
    use crate::generator::{Overload, Rate};
    use crate::task::Kernel;

    fn options(task: &str, tasks: u64) -> LocalOptions {
        LocalOptions {
            stream: 1,
            plan: Plan { task: task.into(), seed: 7, batch: 64, limits: None },
            input: None,
            make_task: Maker::built_in(Kernel::Lanes),
            kernel: "lanes".into(),
            pace: PaceOptions {
                rate: Rate::Max,
                tick_ns: 1_000_000,
                duration_ns: None,
                tasks: Some(tasks),
                overload: Overload::Queue,
                backlog_max: 0,
            },
            ledger: LedgerOptions { window: 32, batch: 64, lease_ns_min: 1_000_000_000 },
            executors: 2,
            threads: 2,
            corrupt: 0.0,
            verify: Verify::All,
            out: None,
            log: None,
            results: None,
            patience: Duration::from_secs(20),
        }
    }

    fn run_quietly(options: &LocalOptions) -> LocalSummary {
        run(options, &AtomicBool::new(false), &|_| {}).unwrap()
    }

    #[test]
    fn all_generated_tasks_are_collected() {
        for task in ["sha256x10-le", "sha256x10-be", "sha256x10-ds", "powmod", "nop", "spin:10"] {
            let summary = run_quietly(&options(task, 10_007));
            assert_eq!(summary.generator.faults, Vec::<String>::new());
            let account = &summary.generator.account;
            assert_eq!((account.collected, account.verified_right), (10_007, 10_007), "{task}");
            // Duplicates that arrive after the account was sent are counted, but not in that
            // account.
            let last = &summary.collector.account;
            assert_eq!((last.distinct, last.digest), (account.distinct, account.digest));
        }
    }

    #[test]
    fn results_do_not_depend_on_the_options() {
        let wide = run_quietly(&options("sha256x10-le", 5_000));
        let mut narrow = options("sha256x10-le", 5_000);
        narrow.plan.batch = 37;
        narrow.ledger = LedgerOptions { window: 3, batch: 37, lease_ns_min: 1_000_000_000 };
        (narrow.executors, narrow.threads) = (1, 1);
        narrow.pace.rate = Rate::PerSecond(100_000);
        narrow.make_task = Maker::built_in(Kernel::Serial);
        narrow.verify = Verify::Sample { size: 100, window_ns: 60_000_000_000 };
        let narrow = run_quietly(&narrow);
        let (wide, narrow) = (wide.generator.account, narrow.generator.account);
        assert_eq!(wide.digest, narrow.digest);
        assert_eq!((narrow.verified_right, narrow.verified_wrong), (100, 0));
    }

    /// Under overload each policy behaves as documented, and no task is lost.
    #[test]
    fn overload_policies_are_followed() {
        let overloaded = |overload| {
            let mut options = options("nop", u64::MAX);
            options.pace = PaceOptions {
                rate: Rate::PerSecond(200_000_000),
                duration_ns: Some(5_000_000),
                tasks: None,
                overload,
                backlog_max: 1_000,
                ..options.pace
            };
            options.verify = Verify::Sample { size: 100, window_ns: 60_000_000_000 };
            options.plan.batch = 4_096;
            options.ledger = LedgerOptions { batch: 4_096, ..options.ledger };
            options
        };
        let queued = run_quietly(&overloaded(Overload::Queue)).generator;
        assert_eq!((queued.status.offered, queued.status.shed), (1_000_000, 0));
        assert_eq!(queued.account.collected, 1_000_000);
        assert_eq!(queued.status.backlog, 0);

        let shed = run_quietly(&overloaded(Overload::Shed)).generator;
        assert_eq!(shed.faults, Vec::<String>::new());
        assert!(shed.status.shed > 0);
        assert_eq!(shed.status.offered, shed.account.collected + shed.status.shed);

        let never = AtomicBool::new(false);
        let error = run(&overloaded(Overload::Fail), &never, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("tasks are waiting; the limit is 1000"), "{error}");
    }

    /// All samples of a window are counted by their position.
    #[test]
    fn samples_are_counted_by_position() {
        let mut sampling = options("nop", 50_000);
        sampling.verify = Verify::Sample { size: 200, window_ns: 60_000_000_000 };
        let account = run_quietly(&sampling).generator.account;
        assert_eq!(account.sample_positions.iter().sum::<u64>(), 200);
        assert_eq!((account.verified_right, account.verified_wrong), (200, 0));
        assert!(crate::uniform::chi_square(&account.sample_positions).is_some());
    }

    /// Exactly the corrupted results are reported as wrong.
    #[test]
    fn corrupted_results_are_detected() {
        let spoiled = LocalOptions { corrupt: 0.01, ..options("sha256x10-ds", 10_000) };
        let summary = run_quietly(&spoiled).generator;
        let expected: Vec<u64> =
            (0..10_000).filter(|id| crate::task::is_chosen(*id, 0.01)).collect();
        let account = &summary.account;
        assert_eq!(account.verified_wrong, u64::try_from(expected.len()).unwrap());
        assert!(account.wrong_ids.iter().all(|id| expected.contains(id)));
        assert_eq!(summary.faults.len(), 1);
        assert!(summary.faults[0].contains("checked results are wrong"), "{:?}", summary.faults);
    }

    /// A directory tree as in real use: batches of two files, lines in order.
    #[test]
    fn files_are_summed() {
        let dir = std::env::temp_dir().join(format!("pipeline-tree-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("tree/deep")).unwrap();
        for number in 0..25 {
            let name = format!("tree/deep/{number:02}");
            std::fs::write(dir.join(name), [number; 3]).unwrap();
        }
        let tree = dir.join("tree");
        let task = format!("files:{}", tree.display());
        let seed = crate::task::FileSums::list(&tree).unwrap().fingerprint();
        let mut summing = options(&task, u64::MAX);
        summing.plan = Plan { task, seed, batch: 2, limits: None };
        let path = dir.join("sums");
        summing.results = Some(ResultsOptions {
            path: Some(path.clone()),
            dead_letters: None,
            order: Order::Input,
            existing: Existing::Replace,
        });
        let summary = run_quietly(&summing);
        assert_eq!(summary.generator.account.verified_right, 25);
        let text = std::fs::read_to_string(&path).unwrap();
        let names: Vec<&str> = text.lines().map(|line| &line[64..]).collect();
        let expected: Vec<String> = (0..25).map(|number| format!("  deep/{number:02}")).collect();
        assert_eq!(names, expected);
        summing.plan.seed ^= 1;
        let error = run(&summing, &AtomicBool::new(false), &|_| {}).unwrap_err();
        assert!(error.to_string().contains("contains different files"), "{error:#}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_run_without_executors_fails() {
        let mut alone = options("nop", 10);
        (alone.executors, alone.patience) = (0, Duration::ZERO);
        let error = run(&alone, &AtomicBool::new(false), &|_| {}).unwrap_err();
        assert!(error.to_string().contains("no executor"), "{error:#}");
    }
}
