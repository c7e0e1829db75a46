//! Frames of the replication stream from any bytes. Run: `cargo +nightly fuzz run replication_frame`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| wire::replication::check(data));
