//! Every decoder of a peer's data checks the size of its result before it builds it.
//!
//! [`decoders::DECODERS`] lists them, each with a small input that claims or describes a huge
//! result. A source file with a decoder is in this table, or in [`sources::OTHERS`] with the reason
//! why its results are no larger than their input.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

mod compressed;
mod decoders;
mod sources;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One test, because the allocator counts all threads. The total of allocated bytes limits the
/// bytes in use at any time.
#[test]
fn a_small_input_takes_little_memory() {
    let mut wrong = Vec::new();
    for decoder in decoders::DECODERS {
        let input = (decoder.input)();
        let region = Region::new(ALLOCATOR);
        let outcome = (decoder.decode)(&input);
        let bytes = region.change().bytes_allocated;
        let name = decoder.name;
        println!("{name}: {} bytes, {bytes} allocated: {outcome}", input.len());
        let is_small = input.len() <= decoders::INPUT_BYTES_MAX;
        if !is_small || bytes > decoder.bytes_max || !outcome.contains(decoder.outcome) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    sources::check();
}
