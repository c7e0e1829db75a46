//! Common structure of the naive lines: three threads, two connections, and checks of the outcome.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::repro::ablation::wire::pair;
use crate::repro::ablation::{join, per_second};

/// A generator, an executor and a collector in their naive form.
pub(super) trait Line: Sync {
    /// Sends tasks until the deadline, and returns how many.
    fn generate(&self, to: TcpStream, until: Instant) -> Result<u64>;

    /// Computes tasks until the generator's end of stream.
    fn execute(&self, from: TcpStream, to: TcpStream) -> Result<()>;

    /// Counts results until the executor's end of stream.
    fn collect(&self, from: TcpStream) -> Result<u64>;

    /// Runs all three for this long and until the last result has arrived.
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

/// Throughput of a line.
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
