//! What all naive lines have in common: three threads and two connections, and what must come out.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::ablation::wire::pair;
use crate::ablation::{join, per_second};

/// A generator, an executor and a collector, as one writes them first.
pub(super) trait Line: Sync {
    /// Sends tasks until then, and says how many.
    fn generate(&self, to: TcpStream, until: Instant) -> Result<u64>;

    /// Computes what comes until the generator's end.
    fn execute(&self, from: TcpStream, to: TcpStream) -> Result<()>;

    /// Counts results until the executor's end.
    fn collect(&self, from: TcpStream) -> Result<u64>;

    /// All three at once, for this long and until the last result is there.
    fn run(&self, time: Duration) -> Result<Through> {
        let (tasks_to, tasks_from) = pair()?;
        let (results_to, results_from) = pair()?;
        let started = Instant::now();
        thread::scope(|scope| {
            let generating = scope.spawn(move || self.generate(tasks_to, started + time));
            let executing = scope.spawn(move || self.execute(tasks_from, results_to));
            let collected = self.collect(results_from)?;
            let took = started.elapsed();
            let generated = join(generating)?;
            join(executing)?;
            ensure!(generated == collected, "{generated} generated, {collected} collected");
            Ok(Through { collected, took })
        })
    }
}

/// What went through.
#[derive(Debug, Clone, Copy)]
pub(super) struct Through {
    pub(super) collected: u64,
    pub(super) took: Duration,
}

impl Through {
    pub(super) fn per_second(self) -> f64 {
        per_second(self.collected, self.took)
    }
}
