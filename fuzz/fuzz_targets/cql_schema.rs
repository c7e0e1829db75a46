//! Schemas that are accepted, described to clients and read again. Run: `cargo +nightly fuzz run cql_schema`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| cql::check::check_schema(data));
