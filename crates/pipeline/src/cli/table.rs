//! The tables of options of the roles.

use std::time::Duration;

use options::Change::Start;
use options::{Form, Kind, OptionSpec, Section, Unit, ValueError};
use options::{field, number, option, optional_number, value, word};

use super::arguments::{Arguments, between};
use crate::collector::{Existing, Order};
use crate::executor::THREADS_MAX;
use crate::generator::{Overload, WINDOW_MAX};
use crate::monitor::Layout;
use crate::task::BATCH_MAX;

const TICK_MIN: Duration = Duration::from_micros(100);
const TICK_MAX: Duration = Duration::from_secs(10);
/// A lease of zero would resend every batch again and again.
const LEASE_MIN: Duration = Duration::from_millis(1);
const LEASE_MAX: Duration = Duration::from_hours(24);
const ITEM_TIMEOUT_MIN: Duration = Duration::from_millis(1);
const ITEM_TIMEOUT_MAX: Duration = Duration::from_hours(7 * 24);

pub(super) const RUN: &[Section<Arguments>] = &[OF_RUN, TASK, CHECK, COMMON];
pub(super) const GENERATOR: &[Section<Arguments>] = &[OF_GENERATOR, TASK, COMMON];
pub(super) const EXECUTOR: &[Section<Arguments>] = &[OF_EXECUTOR, COMMON];
pub(super) const COLLECTOR: &[Section<Arguments>] = &[OF_COLLECTOR, CHECK, COMMON];
pub(super) const MONITOR: &[Section<Arguments>] = &[OF_MONITOR];

/// A duration in a range.
macro_rules! time {
    ($expected:literal, $min:expr, $max:expr, $field:ident) => {
        Kind::Value {
            form: Form::Text,
            expected: $expected,
            get: |arguments| options::Value::text(&arguments.$field),
            set: |arguments, text| {
                arguments.$field = between(text, $min, $max)?;
                Ok(())
            },
        }
    };
}

const LEASE: Kind<Arguments> = Kind::Value {
    form: Form::Text,
    expected: "TIME, 1ms to 1day",
    get: |arguments| options::Value::text(&arguments.lease),
    set: |arguments, text| {
        arguments.lease = Some(between(text, LEASE_MIN, LEASE_MAX)?);
        Ok(())
    },
};

const KERNEL: Kind<Arguments> = Kind::Value {
    form: Form::Text,
    expected: "auto, lanes or serial",
    get: |arguments| arguments.kernel.map_or("auto".to_owned(), |kernel| kernel.to_string()),
    set: |arguments, text| {
        let kernel = (text != "auto").then(|| text.parse()).transpose();
        arguments.kernel = kernel.map_err(ValueError::explained)?;
        Ok(())
    },
};

#[rustfmt::skip]
const OF_RUN: Section<Arguments> = Section { title: "The run", rows: &[
    option("executors", number!(Unit::Count, 1, 64, executors), Start,
        "Executors."),
    THREADS,
    CORRUPT,
    option("processes", field!(Flag, processes), Start,
        "Run each part as a separate process."),
    option("growth-max", value!(Text, "SHARE", growth_max), Start,
        "Fail if resident memory is larger at the end than after a twentieth of the run (5s to 90s) by more than this, e.g. 1%."),
] };

#[rustfmt::skip]
const OF_GENERATOR: Section<Arguments> = Section { title: "The generator", rows: &[
    option("listen", value!(Text, "HOST:PORT", listen), Start,
        "Where executors connect; by default 127.0.0.1:25522."),
    COLLECTOR_ADDRESS,
] };

#[rustfmt::skip]
const OF_EXECUTOR: Section<Arguments> = Section { title: "The executor", rows: &[
    option("generator", value!(Text, "HOST:PORT", generator), Start,
        "Where the generator listens."),
    COLLECTOR_ADDRESS,
    option("allow-commands", field!(Flag, allow_commands), Start,
        "Execute the commands of the generator (exec:, each:), whichever they are."),
    THREADS,
    CORRUPT,
] };

#[rustfmt::skip]
const OF_COLLECTOR: Section<Arguments> = Section { title: "The collector", rows: &[
    option("listen", value!(Text, "HOST:PORT", listen), Start,
        "Where generators and executors connect; by default 127.0.0.1:25523."),
    option("seed", number!(Unit::Count, 0, u64::MAX, seed), Start,
        "Seed of the sampling."),
    option("stay", field!(Flag, stay), Start,
        "Keep running after all generators have ended."),
] };

#[rustfmt::skip]
const OF_MONITOR: Section<Arguments> = Section { title: "The monitor", rows: &[
    option("listen", value!(Text, "HOST:PORT", listen), Start,
        "Address for reports of parts; by default 127.0.0.1:25524."),
    option("http", value!(Text, "HOST:PORT", http), Start,
        "Address for browsers."),
    option("out", value!(Text, "DIR", out), Start,
        "Write generator, executor and collector there, one block per minute."),
    option("layout", word!(Layout, layout), Start,
        "Layout of these blocks; late has time and backlog."),
] };

#[rustfmt::skip]
const THREADS: OptionSpec<Arguments> =
    option("threads", optional_number!(Unit::Count, 1, THREADS_MAX, threads), Start,
        "Threads of each executor; by default one per core.");

#[rustfmt::skip]
const CORRUPT: OptionSpec<Arguments> =
    option("corrupt", value!(Text, "SHARE", corrupt), Start,
        "Corrupt this share of the results, to test verification.");

#[rustfmt::skip]
const COLLECTOR_ADDRESS: OptionSpec<Arguments> =
    option("collector", value!(Text, "HOST:PORT", collector), Start,
        "Where the collector listens.");

#[rustfmt::skip]
const TASK: Section<Arguments> = Section { title: "Tasks", rows: &[
    option("task", value!(Text, "NAME", task), Start,
        "sha256x10-le, sha256x10-be, sha256x10-ds, powmod, nop, spin:NS, files:DIR; or a shell command for each line of --input: exec:COMMAND answers line by line, each:COMMAND is started for each line, {} in it."),
    option("input", value!(Text, "FILE or -", input), Start,
        "Lines for a command; -: standard input."),
    option("retries", number!(Unit::Count, 0, 1000, retries), Start,
        "Further attempts for a line whose command failed."),
    option("item-timeout", time!("TIME, 1ms to 7days", ITEM_TIMEOUT_MIN, ITEM_TIMEOUT_MAX, item_timeout), Start,
        "A command without a result for a line after this time has failed."),
    option("seed", number!(Unit::Count, 0, u64::MAX, seed), Start,
        "Seed of the inputs."),
    option("stream", number!(Unit::Count, 0, u64::MAX, stream), Start,
        "Identifies this generator's tasks at the collector."),
    option("rate", value!(Text, "N or max", rate), Start,
        "Tasks per second, in open loop; or as fast as requested."),
    option("tick", time!("TIME, 100us to 10s", TICK_MIN, TICK_MAX, tick), Start,
        "Interval at which tasks become due."),
    option("duration", value!(Text, "TIME", duration), Start,
        "Ends after this time."),
    option("tasks", optional_number!(Unit::Count, 0, u64::MAX, tasks), Start,
        "Ends after this many tasks."),
    option("batch", optional_number!(Unit::Count, 1, BATCH_MAX, batch), Start,
        "Maximum number of tasks in a frame; by default 4096, of files 16, of lines 64, which is their maximum."),
    option("window", number!(Unit::Count, 1, WINDOW_MAX, window), Start,
        "Maximum number of frames in flight."),
    option("lease", LEASE, Start,
        "Reassigns a frame to another executor after this time, or 20 times the median service time if that is longer; by default 1s, for a command 1day."),
    option("overload", word!(Overload, overload), Start,
        "When more is due than requested."),
    option("backlog", optional_number!(Unit::Count, 0, u64::MAX, backlog), Start,
        "Backlog at which shed or fail acts; by default a tenth of a second."),
] };

#[rustfmt::skip]
const CHECK: Section<Arguments> = Section { title: "Results", rows: &[
    option("verify", value!(Text, "sample:N/TIME or all", verify), Start,
        "Results to recompute."),
    option("out", value!(Text, "DIR", out), Start,
        "Write each window's sample and the account there."),
    option("log", value!(Text, "DIR", log), Start,
        "Keep a log, from which a restarted collector resumes."),
    option("results", value!(Text, "FILE", results), Start,
        "Write each result as a line."),
    option("dead-letters", value!(Text, "FILE", dead_letters), Start,
        "Write each line whose command failed as JSON."),
    option("order", word!(Order, order), Start,
        "Order of these lines; input: by id."),
    option("existing", word!(Existing, existing), Start,
        "If these files have content and are not those of the log: refuse to start, or replace them."),
] };

#[rustfmt::skip]
const COMMON: Section<Arguments> = Section { title: "Every part", rows: &[
    option("kernel", KERNEL, Start,
        "How tasks are computed; auto: the fastest correct one."),
    option("patience", value!(Text, "TIME", patience), Start,
        "How long to retry an unreachable part."),
    option("monitor", value!(Text, "HOST:PORT", monitor), Start,
        "Report to this monitor once a second."),
    option("json", field!(Flag, json), Start,
        "Print JSON lines even on a terminal."),
] };
