//! The roles as commands.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lexopt::Parser;
use parking_lot::Mutex;

use super::arguments::{Arguments, Request, parse};
use super::console::{Console, latency_text, shares_text, short};
use super::memory::Memory;
use super::processes::{self, Listening, RoleOptions};
use super::{Job, log_to_stderr, print, printing, stop_on_signals};
use crate::collector::{self, CollectorOptions, percent};
use crate::executor::{self, ExecutorOptions};
use crate::generator::{self, GeneratorOptions, GeneratorSummary};
use crate::local::{self, LocalOptions, LocalSummary};
use crate::message::Account;
use crate::monitor::{self, MonitorOptions};
use crate::status::Status;
use crate::task::{Kernel, Maker};
use crate::uniform;

const TASK_HELP: &str = "\
      --task <NAME>          sha256x10-le (the default), sha256x10-be, sha256x10-ds, powmod, nop,
                             spin:NS, files:DIR
      --seed <N>             Seed of the inputs [1]
      --stream <N>           Identifies this generator's tasks at the collector [1]
      --rate <N|max>         Tasks per second, in open loop; or as fast as requested [max]
      --tick <TIME>          Interval at which tasks become due [10ms]
      --duration <TIME>      Ends after this time
      --tasks <N>            Ends after this many tasks
      --batch <N>            Maximum number of tasks in a frame [4096; files: 16]
      --window <N>           Maximum number of frames in flight [1024]
      --lease <TIME>         Reassigns a frame to another executor after this time, or 20 times the
                             median service time if that is longer [1s]
      --overload <POLICY>    When more is due than requested: queue, shed, fail [queue]
      --backlog <N>          Backlog at which shed or fail acts [a tenth of a second]
";

const CHECK_HELP: &str = "\
      --verify <WHICH>       Results to recompute: sample:N/TIME or all [sample:100/60s]
      --out <DIR>            Write each window's sample and the account there
      --log <DIR>            Keep a log, from which a restarted collector resumes
      --results <FILE>       Write each result as a line
      --order <ORDER>        Order of these lines: none, or input (by id) [none]
";

const COMMON_HELP: &str = "\
      --kernel <NAME>        auto, lanes or serial [auto: the fastest correct one]
      --patience <TIME>      How long to retry an unreachable part [10s]
      --monitor <HOST:PORT>  Report to this monitor once a second
      --json                 Print JSON lines even on a terminal
  -h, --help                 Print this
";

const COMMON: [&str; 4] = ["kernel", "patience", "json", "monitor"];
const TASK: [&str; 12] = [
    "task", "seed", "stream", "rate", "tick", "duration", "tasks", "batch", "window", "lease",
    "overload", "backlog",
];
const CHECK: [&str; 5] = ["verify", "out", "log", "results", "order"];

/// Parses the options of a role. The returned job logs to standard error and runs the role.
fn job(
    parser: &mut Parser,
    names: &[&[&str]],
    help: &str,
    run: fn(&Arguments) -> Result<()>,
) -> Result<Job> {
    let help = format!("{help}{COMMON_HELP}");
    job_of(parser, &[&COMMON, &names.concat()[..]].concat(), help, run)
}

fn job_of(
    parser: &mut Parser,
    names: &[&str],
    help: String,
    run: fn(&Arguments) -> Result<()>,
) -> Result<Job> {
    Ok(match parse(parser, names)? {
        Request::Help => printing(help),
        Request::Run(arguments) => Box::new(move || {
            log_to_stderr()?;
            run(&arguments)
        }),
    })
}

/// Returns the requested kernel, or the best one.
fn kernel(arguments: &Arguments) -> Kernel {
    arguments.kernel.unwrap_or_else(|| Kernel::calibrate().best)
}

fn kernel_text(kernel: Kernel) -> String {
    format!("{kernel} ({})", kernel.instructions())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn run(parser: &mut Parser) -> Result<Job> {
    let help = format!(
        "Usage: myriad pipeline run [OPTIONS]\n\n\
         All parts in one process, each with its own threads and sockets. Without --tasks or\n\
         --duration it runs until Ctrl-C.\n\n\
         \x20     --executors <N>        Executors [1]\n\
         \x20     --threads <N>          Threads of each executor [cores]\n\
         \x20     --corrupt <SHARE>      Corrupt this share of the results [0]\n\
         \x20     --processes            Run each part as a separate process\n\
         \x20     --growth-max <SHARE>   Fail if resident memory is larger at the end than after a\n\
         \x20                            twentieth of the run (5s to 90s) by more than this, e.g. 1%\n\
         {TASK_HELP}{CHECK_HELP}"
    );
    let own = ["executors", "threads", "corrupt", "processes", "growth-max"];
    job(parser, &[&TASK, &CHECK, &own], &help, run_all)
}

fn run_all(arguments: &Arguments) -> Result<()> {
    if arguments.processes {
        return run_processes(arguments);
    }
    let kernel = kernel(arguments);
    let options = LocalOptions {
        stream: arguments.stream,
        plan: arguments.plan()?,
        make_task: Maker::built_in(kernel),
        kernel: kernel_text(kernel),
        pace: arguments.pace(),
        ledger: arguments.ledger(),
        executors: arguments.executors,
        threads: arguments.threads.unwrap_or_else(cores),
        corrupt: arguments.corrupt,
        verify: arguments.verify,
        out: arguments.out.clone(),
        log: arguments.log.clone(),
        results: arguments.results(),
        patience: arguments.patience,
    };
    let console = Console::new(arguments);
    let by_tasks = arguments.tasks.is_some();
    let stop = stop_on_signals()?;
    let started = Instant::now();
    let memory = Mutex::new(Memory::of_run(arguments.duration));
    let outcome = local::run(&options, &stop, &|status| {
        console.show(&status, by_tasks);
        memory.lock().look(started.elapsed(), &status);
    });
    console.end(outcome.as_ref().map(LocalSummary::statuses));
    let summary = outcome?;
    let mut text = generator_text(&summary.generator);
    let memory = memory.into_inner();
    text += &memory.text();
    let mut stages = vec![shares_text("generator", &summary.generator.status.meter)];
    for executor in &summary.executors {
        stages.push(shares_text("executor", &executor.meter));
    }
    stages.push(shares_text("collector", &summary.collector.meter));
    writeln!(text, "stages     {}; kernel {}", stages.join("; "), options.kernel)?;
    print(&text)?;
    judge(&summary.generator)?;
    arguments.growth_max.map_or(Ok(()), |share| memory.judge(share))
}

/// Forwards the options of each role that `run` also has.
fn run_processes(arguments: &Arguments) -> Result<()> {
    let of = |names: &[&[&str]]| arguments.options_of(&[&COMMON, &names.concat()[..]].concat());
    let given = RoleOptions {
        generator: of(&[&TASK]),
        executor: of(&[&["threads", "corrupt"]]),
        collector: of(&[&CHECK, &["seed"]]),
    };
    processes::run(arguments, &given, &stop_on_signals()?)
}

pub(super) fn generator(parser: &mut Parser) -> Result<Job> {
    let help = format!(
        "Usage: myriad pipeline generator [OPTIONS]\n\n\
         \x20     --listen <HOST:PORT>   Where executors connect [127.0.0.1:25522]\n\
         \x20     --collector <HOST:PORT>  [127.0.0.1:25523]\n\
         {TASK_HELP}"
    );
    job(parser, &[&TASK, &["listen", "collector"]], &help, run_generator)
}

fn run_generator(arguments: &Arguments) -> Result<()> {
    let plan = arguments.plan()?;
    let options = GeneratorOptions {
        stream: arguments.stream,
        task: Maker::built_in(kernel(arguments)).make(&plan)?,
        plan,
        pace: arguments.pace(),
        ledger: arguments.ledger(),
        listener: listen_and_report(arguments.listen_for_executors(), arguments)?,
        collector: arguments.collector,
        patience: arguments.patience,
    };
    let console = Console::new(arguments);
    let by_tasks = arguments.tasks.is_some();
    let stop = stop_on_signals()?;
    let outcome = generator::run(options, &stop, &mut |status| {
        console.show(&Status::Generator(status.clone()), by_tasks);
    });
    console.end(outcome.as_ref().map(|summary| vec![Status::Generator(summary.status.clone())]));
    let summary = outcome?;
    print(&generator_text(&summary))?;
    judge(&summary)
}

pub(super) fn executor(parser: &mut Parser) -> Result<Job> {
    let help = "\
Usage: myriad pipeline executor [OPTIONS]

      --generator <HOST:PORT>  [127.0.0.1:25522]
      --collector <HOST:PORT>  [127.0.0.1:25523]
      --threads <N>          [cores]
      --corrupt <SHARE>      Corrupt this share of the results, to test verification [0]
";
    job(parser, &[&["generator", "collector", "threads", "corrupt"]], help, run_executor)
}

fn run_executor(arguments: &Arguments) -> Result<()> {
    let kernel = kernel(arguments);
    let options = ExecutorOptions {
        name: format!("executor-{}", std::process::id()),
        generator: arguments.generator,
        collector: arguments.collector,
        threads: arguments.threads.unwrap_or_else(cores),
        make_task: Maker::built_in(kernel),
        kernel: kernel_text(kernel),
        corrupt: arguments.corrupt,
        patience: arguments.patience,
    };
    let console = Console::new(arguments);
    let stop = stop_on_signals()?;
    let outcome = executor::run(options, &stop, &mut |status| {
        console.show(&Status::Executor(status.clone()), false);
    });
    console.end(outcome.as_ref().map(|status| vec![Status::Executor(status.clone())]));
    let status = outcome?;
    let meter = &status.meter;
    print(&format!(
        "executed {} tasks in {} frames; {}; kernel {}; {} reconnects\n",
        meter.tasks,
        meter.frames,
        shares_text("time", meter),
        status.kernel,
        status.reconnects
    ))
}

pub(super) fn collector(parser: &mut Parser) -> Result<Job> {
    let help = format!(
        "Usage: myriad pipeline collector [OPTIONS]\n\n\
         Ends when the last generator has received its account.\n\n\
         \x20     --listen <HOST:PORT>   Where generators and executors connect [127.0.0.1:25523]\n\
         \x20     --seed <N>             Seed of the sampling [1]\n\
         \x20     --stay                 Keep running after all generators have ended\n\
         {CHECK_HELP}"
    );
    job(parser, &[&["listen", "stay", "seed"], &CHECK], &help, run_collector)
}

fn run_collector(arguments: &Arguments) -> Result<()> {
    let options = CollectorOptions {
        listener: listen_and_report(arguments.listen_for_results(), arguments)?,
        make_task: Maker::built_in(kernel(arguments)),
        verify: arguments.verify,
        seed: arguments.seed,
        out: arguments.out.clone(),
        log: arguments.log.clone(),
        results: arguments.results(),
        stay: arguments.stay,
    };
    let console = Console::new(arguments);
    let stop = stop_on_signals()?;
    let outcome = collector::run(options, &stop, &mut |status| {
        console.show(&Status::Collector(status.clone()), false);
    });
    console.end(outcome.as_ref().map(|status| vec![Status::Collector(status.clone())]));
    let status = outcome?;
    print(&account_text(&status.account))
}

pub(super) fn monitor(parser: &mut Parser) -> Result<Job> {
    let help = "\
Usage: myriad pipeline monitor [OPTIONS]

Shows the reports of all parts that are started with --monitor: a page at /, Prometheus' text at
/metrics, JSON at /status.json.

      --listen <HOST:PORT>   Address for reports of parts [127.0.0.1:25524]
      --http <HOST:PORT>     Address for browsers [127.0.0.1:25580]
      --out <DIR>            Write generator, executor and collector there, one block per minute
      --layout <NAME>        Layout of these blocks: early, or late (with time and backlog) [early]
  -h, --help                 Print this
";
    job_of(parser, &["listen", "http", "out", "layout"], help.to_owned(), run_monitor)
}

fn run_monitor(arguments: &Arguments) -> Result<()> {
    let pages = listen(arguments.http)?;
    let listener = listen(arguments.listen_for_reports())?;
    print(&format!(
        "http://{}/\nreports to {}\n",
        pages.local_addr().context("could not read the address of the HTTP listener")?,
        listener.local_addr().context("could not read the address of the monitor's listener")?
    ))?;
    let out = arguments.out.clone().map(|dir| (dir, arguments.layout));
    let options = MonitorOptions { listener, pages, out };
    let stop = stop_on_signals()?;
    monitor::run(options, &stop)
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("could not listen on {address}"))
}

/// With `--json`, prints the address as the first line, because the kernel may have chosen the
/// port.
fn listen_and_report(address: SocketAddr, arguments: &Arguments) -> Result<TcpListener> {
    let listener = listen(address)?;
    if arguments.json {
        let listening =
            listener.local_addr().context("could not read the address of the listener")?;
        print(&(serde_json::to_string(&Listening { listening })? + "\n"))?;
    }
    Ok(listener)
}

fn generator_text(summary: &GeneratorSummary) -> String {
    let (status, took) = (&summary.status, summary.took);
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    let per_second = u128::from(status.collected) * 1_000_000 / u128::from(took_us);
    let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
    format!(
        "generated  {} tasks ({} offered, {} shed) in {:.2} s: {}/s\n\
         in flight  {}\n\
         {}\
         resent     {} frames ({} leases expired, {} damaged)\n\
         late       {} ticks, the latest by {:.2} ms\n\
         latency    {}\n",
        status.generated,
        status.offered,
        status.shed,
        took.as_secs_f64(),
        short(per_second),
        status.in_flight,
        account_text(&summary.account),
        status.resent_frames,
        status.expired_frames,
        status.nacked_frames,
        status.late_ticks,
        Duration::from_nanos(status.latest_tick_ns).as_secs_f64() * 1e3,
        latency_text(&status.latency),
    )
}

fn account_text(account: &Account) -> String {
    let checked = account.verified_right.saturating_add(account.verified_wrong);
    let spread = uniform::chi_square(&account.sample_positions)
        .map_or(String::new(), |found| format!("; chi-square of their positions {found:.1}"));
    format!(
        "collected  {} tasks, {} distinct; {} duplicate, {} stale, {} frames damaged\n\
         verified   {} of {checked} correct: accuracy {}%{spread}; digest {:016x}\n",
        account.collected,
        account.distinct,
        account.duplicate,
        account.stale,
        account.damaged_frames,
        account.verified_right,
        percent(account.verified_right, checked),
        account.digest,
    )
}

/// Fails if tasks were lost, duplicated or corrupted.
fn judge(summary: &GeneratorSummary) -> Result<()> {
    if summary.faults.is_empty() {
        return Ok(());
    }
    bail!("{}", summary.faults.join("; "))
}
