//! The roles as commands.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lexopt::Parser;
use options::{Loaded, Section};
use parking_lot::Mutex;

use super::arguments::{Arguments, options_of};
use super::console::{Console, latency_text, shares_text, short};
use super::memory::Memory;
use super::processes::{self, Listening, RoleOptions};
use super::table::{COLLECTOR, EXECUTOR, GENERATOR, MONITOR, RUN};
use super::{Job, job, log_to_stderr, print, stop_on_signals};
use crate::collector::{Collector, CollectorOptions, percent};
use crate::executor::{self, ExecutorOptions};
use crate::generator::{self, GeneratorOptions, GeneratorSummary};
use crate::local::{self, LocalOptions, LocalSummary};
use crate::message::Account;
use crate::monitor::{self, MonitorOptions};
use crate::parent::end_with_parent;
use crate::status::Status;
use crate::task::{Kernel, Maker, TaskSpec};
use crate::uniform;

/// Returns a job that logs to standard error and runs a role.
fn role(
    parser: &mut Parser,
    name: &str,
    about: &str,
    table: &'static [Section<Arguments>],
    run: fn(&Loaded<Arguments>) -> Result<()>,
) -> Result<Job> {
    job(parser, name, about, table, Arguments::check, move |loaded| {
        log_to_stderr()?;
        end_with_parent()?;
        run(&loaded)
    })
}

/// Returns the requested kernel, or the best one, which is found by measurement.
fn kernel(arguments: &Arguments) -> Kernel {
    arguments.kernel.unwrap_or_else(|| Kernel::calibrate().best)
}

/// Returns the kernel for the task of the options: any one if it does not need the best.
fn kernel_of_task(arguments: &Arguments) -> Kernel {
    match arguments.task {
        TaskSpec::Exercise(_) => kernel(arguments),
        TaskSpec::Files(_) | TaskSpec::Command(..) => arguments.kernel.unwrap_or(Kernel::Serial),
    }
}

fn kernel_text(kernel: Kernel) -> String {
    format!("{kernel} ({})", kernel.instructions())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn run(parser: &mut Parser) -> Result<Job> {
    let about = "All parts in one process, each with its own threads and sockets. Without --tasks,\n\
         --duration or --input it runs until Ctrl-C.";
    role(parser, "run", about, RUN, run_all)
}

fn run_all(loaded: &Loaded<Arguments>) -> Result<()> {
    let arguments = &loaded.settings;
    if arguments.processes {
        return run_processes(loaded);
    }
    let kernel = kernel_of_task(arguments);
    let input = arguments.open_input()?;
    let options = LocalOptions {
        stream: arguments.stream,
        plan: arguments.plan(input.as_deref())?,
        input,
        make_task: Maker::built_in(kernel),
        kernel: kernel_text(kernel),
        pace: arguments.pace(),
        ledger: arguments.ledger(),
        executors: arguments.executors,
        threads: arguments.threads.unwrap_or_else(cores),
        corrupt: arguments.corrupt.0,
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
    arguments.growth_max.map_or(Ok(()), |share| memory.judge(share.0))
}

/// Forwards the options of each role that `run` also has.
fn run_processes(loaded: &Loaded<Arguments>) -> Result<()> {
    let mut executor = options_of(loaded, EXECUTOR);
    if loaded.settings.is_command() {
        executor.push("--allow-commands".to_owned());
    }
    let given = RoleOptions {
        generator: options_of(loaded, GENERATOR),
        executor,
        collector: options_of(loaded, COLLECTOR),
    };
    processes::run(&loaded.settings, &given, &stop_on_signals()?)
}

pub(super) fn generator(parser: &mut Parser) -> Result<Job> {
    let about = "Assigns tasks on schedule.";
    role(parser, "generator", about, GENERATOR, |loaded| run_generator(&loaded.settings))
}

fn run_generator(arguments: &Arguments) -> Result<()> {
    let input = arguments.open_input()?;
    let plan = arguments.plan(input.as_deref())?;
    let options = GeneratorOptions {
        input,
        stream: arguments.stream,
        task: Maker::built_in(kernel_of_task(arguments)).make(&plan)?,
        plan,
        pace: arguments.pace(),
        ledger: arguments.ledger(),
        listener: listen_and_report(arguments.listen_for_executors(), arguments)?,
        collector: arguments.collector,
        patience: arguments.patience,
        collector_patience: arguments.patience,
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
    let about = "Computes tasks.";
    role(parser, "executor", about, EXECUTOR, |loaded| run_executor(&loaded.settings))
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
        allows_commands: arguments.allow_commands,
        corrupt: arguments.corrupt.0,
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
    let about = "Ends when the last generator has received its account.";
    role(parser, "collector", about, COLLECTOR, |loaded| run_collector(&loaded.settings))
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
        plan: None,
        stay: arguments.stay,
    };
    let console = Console::new(arguments);
    let stop = stop_on_signals()?;
    let outcome = Collector::open(options)?.run(&stop, &mut |status| {
        console.show(&Status::Collector(status.clone()), false);
    });
    console.end(outcome.as_ref().map(|status| vec![Status::Collector(status.clone())]));
    let status = outcome?;
    print(&account_text(&status.account))
}

pub(super) fn monitor(parser: &mut Parser) -> Result<Job> {
    let about = "Shows the reports of all parts that are started with --monitor: a page at /, Prometheus' \
         text\nat /metrics, JSON at /status.json.";
    role(parser, "monitor", about, MONITOR, |loaded| run_monitor(&loaded.settings))
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
    let failed = match account.failed {
        0 => String::new(),
        failed => format!("; {failed} failed"),
    };
    format!(
        "collected  {} tasks, {} distinct{failed}; {} duplicate, {} stale, {} frames damaged\n\
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
