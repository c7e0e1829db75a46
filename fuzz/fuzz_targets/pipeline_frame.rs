//! Frames of the pipeline from any bytes. Run: `cargo +nightly fuzz run pipeline_frame`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| pipeline::frame::check_bytes(data));
