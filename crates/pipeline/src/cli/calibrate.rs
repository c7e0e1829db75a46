//! `myriad pipeline calibrate`: checks which kernels are correct and which is fastest on this
//! machine.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Result, bail};
use lexopt::Parser;
use options::{Change, OptionText, Section, Unit, number, option, settings, texts};

use super::{Job, job, print};
use crate::collector::check_all;
use crate::task::{BatchTask, Codec, Exercise, Ids, Kernel};

const ABOUT: &str = "\
Computes random tasks of each encoding with each kernel, and again with the standard library and
`sha2`; then prints the time per task of each kernel. Fails if a digest differs.";

settings! {
    struct Calibration {
        tasks: u64 = 100_000,
    }
}

const TABLE: &[Section<Calibration>] = &[Section {
    title: "Options",
    rows: &[option(
        "tasks",
        number!(Unit::Count, 0, u64::MAX, tasks),
        Change::Start,
        "Tasks of each encoding.",
    )],
}];

const BATCH: u32 = 4096;

pub(super) fn options() -> Vec<OptionText> {
    texts(TABLE)
}

pub(super) fn read(parser: &mut Parser) -> Result<Job> {
    job(parser, "calibrate", ABOUT, TABLE, |_| Ok(()), |loaded| run(loaded.settings.tasks))
}

fn run(tasks: u64) -> Result<()> {
    let mut text = String::new();
    for kernel in Kernel::ALL {
        for codec in [Codec::Sha256Le, Codec::Sha256Be, Codec::Sha256Ds] {
            let task: Arc<dyn BatchTask> = Arc::new(Exercise::new(codec, 1, kernel));
            check(&*task, tasks)?;
        }
        writeln!(text, "{kernel:<7} {tasks} tasks of each encoding are correct")?;
    }
    let found = Kernel::calibrate();
    for (kernel, ns) in &found.ns_per_task {
        match ns {
            Some(ns) => {
                writeln!(text, "{kernel:<7} {ns:>6.1} ns per task ({})", kernel.instructions())?;
            }
            None => writeln!(text, "{kernel:<7} wrong")?,
        }
    }
    writeln!(text, "best    {}", found.best)?;
    print(&text)
}

fn check(task: &dyn BatchTask, tasks: u64) -> Result<()> {
    let mut first = 0;
    let batch = usize::try_from(BATCH)?;
    let mut inputs = vec![0; batch * task.input_bytes_max()];
    let mut outputs = vec![0; batch * task.output_bytes_max()];
    while first < tasks {
        let count = u32::try_from((tasks - first).min(u64::from(BATCH)))?;
        let ids = Ids { first, count };
        let given = task.generate(ids, &mut inputs)?;
        let used = task.run(ids, &inputs[..given], &mut outputs)?;
        let (_, wrong) = check_all(task, &outputs[..used], count)?;
        if !wrong.is_empty() {
            bail!("{task:?} has wrong results for ids {wrong:?}");
        }
        first = ids.end();
    }
    Ok(())
}
