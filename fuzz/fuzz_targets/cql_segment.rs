//! Segments of CQL's version 5 from any bytes. Run: `cargo +nightly fuzz run cql_segment`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| wire::cql::check::check_segments(data));
