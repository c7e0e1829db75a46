//! `myriad pipeline` with a counting allocator: a run fails if frames cause allocations.
//!
//! ```text
//! cargo run --release -p pipeline --example steady -- run --rate 2M --duration 30m --growth-max 1%
//! ```
//!
//! A separate program, because counting costs two atomic additions per allocation on all threads,
//! which the server should not pay.

use std::alloc::System;

use lexopt::Parser;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn count() -> u64 {
    let stats = ALLOCATOR.stats();
    u64::try_from(stats.allocations + stats.reallocations).expect("64 bits")
}

fn main() -> anyhow::Result<()> {
    pipeline::meter::count_allocations_by(count);
    pipeline::run(&mut Parser::from_env())
}
