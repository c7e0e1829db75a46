//! After startup a pipeline allocates nothing per batch.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::alloc::System;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pipeline::collector::Verify;
use pipeline::generator::{LedgerOptions, Overload, PaceOptions, Rate};
use pipeline::local::{self, LocalOptions};
use pipeline::task::Plan;
use pipeline::task::{Kernel, Maker};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BATCH: u32 = 64;

/// Allocations and reallocations of a whole run of this many batches.
fn allocations(batches: u64) -> usize {
    let options = LocalOptions {
        stream: 1,
        plan: Plan { task: "sha256x10-le".into(), seed: 7, batch: BATCH, limits: None },
        input: None,
        make_task: Maker::built_in(Kernel::Lanes),
        kernel: "lanes".into(),
        pace: PaceOptions {
            rate: Rate::Max,
            tick_ns: 1_000_000,
            duration_ns: None,
            tasks: Some(batches * u64::from(BATCH)),
            overload: Overload::Queue,
            backlog_max: 0,
        },
        ledger: LedgerOptions { window: 32, batch: BATCH, lease_ns_min: 60_000_000_000 },
        executors: 1,
        threads: 2,
        corrupt: 0.0,
        verify: Verify::Sample { size: 10, window_ns: 60_000_000_000 },
        out: None,
        log: None,
        results: None,
        patience: Duration::from_secs(20),
    };
    let region = Region::new(ALLOCATOR);
    let summary = local::run(&options, &AtomicBool::new(false), &|_| {}).unwrap();
    let change = region.change();
    assert_eq!(summary.generator.faults, Vec::<String>::new());
    change.allocations + change.reallocations
}

#[test]
fn a_longer_run_allocates_no_more() {
    allocations(500);
    let (short, long) = (allocations(500), allocations(5_500));
    // Periodic allocations (a thread's wake-up, a status) are not per batch.
    let per_batch = long.saturating_sub(short);
    assert!(per_batch < 500, "{short} allocations for 500 batches, {long} for 5,500");
}
