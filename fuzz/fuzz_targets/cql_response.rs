//! Responses of CQL from any bytes. Run: `cargo +nightly fuzz run cql_response`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| wire::cql::check::check_responses(data));
