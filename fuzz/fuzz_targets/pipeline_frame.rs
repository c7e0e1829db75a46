//! Frames of the pipeline from any bytes. Run: `cargo +nightly fuzz run pipeline_frame`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| pipeline::check::check_frames(data));
